//! The only code that opens gRPC connections ([`dial`]) and accepts them ([`accept()`], [`Services`]).
//!
//! An address is a unix socket or a TCP port. The kernel reports the uid of a unix socket's peer. Only the daemon's own user and root
//! are accepted, and the socket has mode 0600; a daemon that serves all users accepts everybody, and each request is its user's. TCP is always TLS 1.3, also on loopback, and both sides show certificates of the DVM's
//! authority ([`tls`]). A caller without one is a guest, which may only enroll with a join token ([`token`]).
//!
//! Every request carries the caller's version and the newest and oldest protocol that it speaks in its metadata. A server that
//! speaks none of them refuses the request and names both versions.

mod accept;
mod candidates;
mod conn;
mod crowd;
pub mod loopback;
pub mod parts;
pub mod renewal;
mod server;
mod shares;
pub mod tls;
pub mod token;

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::codegen::http::HeaderMap;
use tonic::metadata::{AsciiMetadataValue, MetadataMap};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

pub use accept::{Admission, TcpDoor, accept};
pub use conn::{Conn, End, Peer, Refusals, Who};
pub use server::{Services, for_request};
pub use shares::{Share, Shares};
pub use tls::{Dialer, Own};

use crate::services::{
    access_client::AccessClient, dvm_client::DvmClient, heads_client::HeadsClient, link_client::LinkClient,
    observe_client::ObserveClient, pmi_client::PmiClient,
};
use crate::{PROTOCOL, PROTOCOL_OLDEST, VERSION};

/// The largest request. A submission's environment and argv are the largest content.
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// The address of a daemon.
#[derive(Debug, Clone)]
pub enum Target {
    /// Its unix socket.
    Unix(PathBuf),
    /// `host:port`, and how to recognise the daemon there.
    Tcp(String, Dialer),
    /// The same with several addresses of one daemon, best first.
    AnyOf(Vec<String>, Dialer),
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Target::Unix(path) => write!(f, "{}", path.display()),
            Target::Tcp(address, _) => f.write_str(address),
            Target::AnyOf(addresses, _) => f.write_str(&addresses.join(" or ")),
        }
    }
}

/// Why a daemon could not be reached. The text follows "cannot reach the daemon at X: ".
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// No socket exists there, or no process listens on it.
    #[error("no daemon is listening there ({0})")]
    NotRunning(io::Error),
    /// The socket belongs to another user.
    #[error(
        "its socket belongs to uid {owner_uid}, you are uid {own_uid}: use the daemon of your own user (rsd start)"
    )]
    NotPermitted {
        /// The owner of the socket.
        owner_uid: u32,
        /// The calling user.
        own_uid: u32,
    },
    /// The program there is not a daemon that the caller can trust, or does not trust the caller.
    #[error("{0}")]
    Untrusted(tls::Distrust),
    /// No answer in time.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// Any other error.
    #[error("{0}")]
    Io(io::Error),
}

/// Connects to a daemon and sends nothing yet. The attempt fails after `deadline`.
pub async fn dial(target: &Target, deadline: Duration) -> Result<Channel, DialError> {
    dial_watched(target, deadline, 2 * KEEP_ALIVE, &End::default()).await
}

/// The same; the connection fails when the daemon has not answered for `silence`, and `end` tells whether the daemon closed it.
pub async fn dial_watched(
    target: &Target,
    deadline: Duration,
    silence: Duration,
    end: &End,
) -> Result<Channel, DialError> {
    over(connect(target, deadline, end).await?, deadline, silence).await
}

/// A connection over TCP that is used for many calls, and that knows whether it is still open.
#[derive(Debug)]
pub struct Kept {
    /// For the calls. It does not connect again.
    pub channel: Channel,
    end: End,
}

impl Kept {
    /// Whether neither side has closed the connection. HTTP/2 drops a closed connection at once.
    pub fn is_open(&self) -> bool {
        !self.end.has_come()
    }
}

/// As [`dial_watched`], for a connection that is kept. The target is a TCP port.
///
/// # Errors
/// As [`dial`].
pub async fn dial_kept(target: &Target, deadline: Duration, silence: Duration) -> Result<Kept, DialError> {
    let end = End::default();
    let conn = connect(target, deadline, &end).await?;
    Ok(Kept { channel: over(conn, deadline, silence).await?, end })
}

async fn connect(target: &Target, deadline: Duration, end: &End) -> Result<Conn, DialError> {
    let (addresses, dialer) = match target {
        Target::Unix(path) => {
            let connected = tokio::time::timeout(deadline, connect_locally(path)).await;
            return connected.map_err(|_| DialError::TimedOut(deadline))?;
        }
        Target::Tcp(address, dialer) => (std::slice::from_ref(address), dialer),
        Target::AnyOf(addresses, dialer) => (&addresses[..], dialer),
    };
    let stream = candidates::connect(addresses, dialer, Some(deadline)).await?;
    Ok(Conn::Tls(Box::new(conn::Tls::dialled(stream, end.clone()))))
}

async fn connect_locally(path: &Path) -> Result<Conn, DialError> {
    let stream = UnixStream::connect(path).await.map_err(|error| explain(path, error))?;
    // Another user may have created the directory first, where directories are below /tmp.
    let peer = stream.peer_cred().map_err(DialError::Io)?;
    if peer.pid().is_some_and(has_ended) {
        return Err(DialError::NotRunning(io::ErrorKind::ConnectionRefused.into()));
    }
    let owner_uid = peer.uid();
    match own_uid() {
        // Root may call every daemon, and everybody may call root's.
        own_uid if own_uid == owner_uid || own_uid == 0 || owner_uid == 0 => Ok(Conn::Unix(stream, None)),
        own_uid => Err(DialError::NotPermitted { owner_uid, own_uid }),
    }
}

/// Speaks HTTP/2 over a connection.
async fn over(conn: Conn, deadline: Duration, silence: Duration) -> Result<Channel, DialError> {
    // The socket is already open, so that this code reports its errors; tonic's connector only passes it on. A second call means
    // that the connection broke: the channel's owner dials again.
    let mut once = Some(conn);
    let connector = tower::service_fn(move |_| {
        let conn = once.take();
        async move {
            let gone = || io::Error::new(io::ErrorKind::NotConnected, "lost the connection to the daemon");
            conn.map(TokioIo::new).ok_or_else(gone)
        }
    });
    let endpoint = Endpoint::from_static("http://rsd.invalid")
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(4 << 20)
        .http2_keep_alive_interval(silence / 2)
        .keep_alive_timeout(silence / 2)
        .keep_alive_while_idle(true);
    let channel = tokio::time::timeout(deadline, endpoint.connect_with_connector(connector))
        .await
        .map_err(|_| DialError::TimedOut(deadline))?;
    channel.map_err(|error| DialError::Io(io::Error::other(error)))
}

/// Connects to a daemon over TCP, and closes the connection once both sides have shown their certificates. Returns the IP address that
/// was reached. It has no deadline of its own.
///
/// # Errors
/// As [`dial`].
pub async fn probe(address: &str, dialer: &Dialer) -> Result<IpAddr, DialError> {
    let stream = candidates::connect(&[address.to_owned()], dialer, None).await?;
    stream.get_ref().0.peer_addr().map(|at| at.ip().to_canonical()).map_err(DialError::Io)
}

/// How often an idle connection of a client or a step is probed, and how long the answer may take. A user may stop rsctl for a
/// while. Links between daemons have a shorter time.
pub const KEEP_ALIVE: Duration = Duration::from_secs(60);

fn explain(path: &Path, error: io::Error) -> DialError {
    use std::os::unix::fs::MetadataExt;
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => DialError::NotRunning(error),
        io::ErrorKind::PermissionDenied => {
            // The socket, or the nearest visible directory above it.
            match path.ancestors().find_map(|p| std::fs::symlink_metadata(p).ok()) {
                Some(meta) => DialError::NotPermitted { owner_uid: meta.uid(), own_uid: own_uid() },
                None => DialError::Io(error),
            }
        }
        _ => DialError::Io(error),
    }
}

/// Whether the process that listens has ended. A process that it has just started may have its socket until it executes its program;
/// then the kernel still accepts connections, which are closed without an answer. Pid 0 is a process of another namespace.
fn has_ended(pid: i32) -> bool {
    if pid == 0 {
        return false;
    }
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        // `PID (NAME) STATE …`; NAME may contain any characters.
        Ok(stat) => stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['Z', 'X'])),
        // Without /proc, nothing is known.
        Err(error) => error.kind() == io::ErrorKind::NotFound && Path::new("/proc/self").exists(),
    }
}

fn own_uid() -> u32 {
    nix::unistd::geteuid().as_raw()
}

/// The key of a request's metadata with which a node says for which uid it forwards the request.
pub const CALLER_UID: &str = "rsd-caller-uid";
const PROTOCOL_KEY: &str = "rsd-protocol";
const PROTOCOL_OLDEST_KEY: &str = "rsd-protocol-oldest";
const VERSION_KEY: &str = "rsd-version";

/// Adds the protocol numbers and the version to every request.
#[derive(Debug, Clone, Copy)]
pub struct Stamp;

impl Interceptor for Stamp {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let metadata = request.metadata_mut();
        metadata.insert(PROTOCOL_KEY, AsciiMetadataValue::from(PROTOCOL));
        metadata.insert(PROTOCOL_OLDEST_KEY, AsciiMetadataValue::from(PROTOCOL_OLDEST));
        metadata.insert(VERSION_KEY, AsciiMetadataValue::from_static(VERSION));
        server::count_hop(metadata);
        Ok(request)
    }
}

/// A client whose requests are stamped.
pub type Stamped = InterceptedService<Channel, Stamp>;

/// Returns a client for calls to the head, or to any daemon, which forwards them.
pub fn dvm_client(channel: Channel) -> DvmClient<Stamped> {
    DvmClient::with_interceptor(channel, Stamp)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX)
}

/// Returns a client that watches a DVM.
pub fn observe_client(channel: Channel) -> ObserveClient<Stamped> {
    ObserveClient::with_interceptor(channel, Stamp)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX)
}

/// Returns a client for a child's stream to its parent.
pub fn link_client(channel: Channel) -> LinkClient<Stamped> {
    LinkClient::with_interceptor(channel, Stamp)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX)
}

/// Returns a client for join tokens and certificates.
pub fn access_client(channel: Channel) -> AccessClient<Stamped> {
    AccessClient::with_interceptor(channel, Stamp)
}

/// Returns a client for requests about the head and its standbys.
pub fn heads_client(channel: Channel) -> HeadsClient<Stamped> {
    HeadsClient::with_interceptor(channel, Stamp)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX)
}

/// Returns a client for the gRPC `Pmi` service of a rank.
pub fn pmi_client(channel: Channel) -> PmiClient<Stamped> {
    PmiClient::with_interceptor(channel, Stamp)
}

/// The server's side of [`Stamp`]: refuses a caller with which it has no protocol in common, and names the versions of both.
fn check_stamp(headers: &HeaderMap) -> Result<(), Status> {
    let word = |key| headers.get(key).and_then(|value| value.to_str().ok());
    let number = |key| word(key).and_then(|number| number.parse::<u32>().ok());
    let newest = number(PROTOCOL_KEY);
    let oldest = number(PROTOCOL_OLDEST_KEY).or(newest);
    if newest.is_some_and(|newest| newest >= PROTOCOL_OLDEST) && oldest.is_some_and(|oldest| oldest <= PROTOCOL) {
        return Ok(());
    }
    // The caller chooses these words, and the text is logged.
    let short = |key| word(key).map_or_else(|| "unknown".to_owned(), |word| word.chars().take(32).collect::<String>());
    let text = format!(
        "the caller is version {} (protocol {}), this daemon is version {VERSION} (protocol {PROTOCOL}): \
         use programs of one release, and restart daemons after an upgrade",
        short(VERSION_KEY),
        short(PROTOCOL_KEY),
    );
    Err(refusal(Code::FailedPrecondition, exit::VERSION, text))
}

/// Returns a refusal with the exit code for rsctl (see [`exit`]).
pub fn refusal(code: Code, exit_code: u8, text: impl Into<String>) -> Status {
    let mut metadata = MetadataMap::new();
    metadata.insert("rsd-exit", AsciiMetadataValue::from(u16::from(exit_code)));
    Status::with_metadata(code, text, metadata)
}

/// Returns the exit code of a refusal.
pub fn exit_code(status: &Status) -> Option<u8> {
    status.metadata().get("rsd-exit")?.to_str().ok()?.parse().ok()
}

/// The exit codes of rsd and rsctl, apart from those of a job itself.
pub mod exit {
    /// The job exceeded its `--timeout`.
    pub const TIMED_OUT: u8 = 124;
    /// The job was cancelled.
    pub const CANCELLED: u8 = 130;
    /// A bad option, host file or environment file.
    pub const USAGE: u8 = 240;
    /// No daemon is running, or several are and none was named.
    pub const NO_DAEMON: u8 = 241;
    /// The daemon does not answer, or has disconnected.
    pub const UNREACHABLE: u8 = 242;
    /// The job does not fit, or names an unknown host.
    pub const NOT_PLACED: u8 = 243;
    /// The two sides speak different protocols.
    pub const VERSION: u8 = 244;
    /// The daemon belongs to another user.
    pub const NOT_PERMITTED: u8 = 245;
    /// No such job or rank.
    pub const NO_SUCH_JOB: u8 = 246;
    /// A rank could not be started.
    pub const NOT_STARTED: u8 = 247;
    /// A file, a directory, a disk or an address cannot be used.
    pub const SYSTEM: u8 = 248;
    /// A daemon is already running in that state directory.
    pub const RUNS_ALREADY: u8 = 249;
    /// A program's MPI library cannot use rsd's process manager.
    pub const ALONE: u8 = 250;
    /// An internal error.
    pub const INTERNAL: u8 = 255;

    /// Returns the name of a code in JSON errors. The names are stable.
    pub fn name(code: u8) -> &'static str {
        match code {
            TIMED_OUT => "timed-out",
            CANCELLED => "cancelled",
            USAGE => "usage",
            NO_DAEMON => "no-daemon",
            UNREACHABLE => "unreachable",
            NOT_PLACED => "not-placed",
            VERSION => "version",
            NOT_PERMITTED => "not-permitted",
            NO_SUCH_JOB => "not-found",
            NOT_STARTED => "not-started",
            SYSTEM => "system",
            RUNS_ALREADY => "runs-already",
            ALONE => "alone",
            _ => "internal",
        }
    }
}

#[cfg(test)]
mod tests {
    use tonic::codegen::http::{HeaderName, HeaderValue};

    use super::*;

    fn headers(words: &[(&'static str, &'static str)]) -> HeaderMap {
        words.iter().map(|(key, value)| (HeaderName::from_static(key), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn another_protocol_is_refused_and_both_are_named() {
        let status = check_stamp(&headers(&[("rsd-protocol", "99"), ("rsd-version", "9.9.9")])).unwrap_err();
        assert!(status.message().contains("9.9.9 (protocol 99)"), "{status}");
        assert!(status.message().contains(&format!("{VERSION} (protocol {PROTOCOL})")), "{status}");
        assert_eq!(exit_code(&status), Some(exit::VERSION));
        let stamped = Stamp.call(Request::new(())).unwrap();
        assert!(check_stamp(&stamped.metadata().clone().into_headers()).is_ok());
        assert!(check_stamp(&HeaderMap::new()).unwrap_err().message().contains("unknown (protocol unknown)"));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_socket_whose_process_has_ended_is_not_a_running_daemon() {
        let path = std::env::temp_dir().join(format!("rsd-ended-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        // The child listens, and passes its socket on to a process that outlives it.
        let script = "import os, socket, sys\ns = socket.socket(socket.AF_UNIX)\ns.bind(sys.argv[1])\ns.listen(8)\n\
                      os.set_inheritable(s.fileno(), True)\nif os.fork() == 0: os.execvp('sleep', ['sleep', '20'])\n\
                      print('up', flush=True)\nsys.stdin.read()";
        let mut child = std::process::Command::new("python3")
            .args(["-c", script])
            .arg(&path)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut up = [0; 3];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut up).unwrap();
        let target = Target::Unix(path.clone());
        assert!(dial(&target, Duration::from_secs(5)).await.is_ok(), "it runs");
        drop(child.stdin.take());
        child.wait().unwrap();
        let refused = dial(&target, Duration::from_secs(5)).await;
        assert!(matches!(refused, Err(DialError::NotRunning(_))), "{refused:?}");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_newer_caller_that_still_speaks_this_protocol_is_accepted() {
        let newer = |oldest| check_stamp(&headers(&[("rsd-protocol", "99"), ("rsd-protocol-oldest", oldest)]));
        assert!(newer("4").is_ok());
        assert!(newer("98").is_err());
        assert!(check_stamp(&headers(&[("rsd-protocol", "3")])).is_err(), "older than the oldest");
    }
}
