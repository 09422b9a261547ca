//! The only code that opens gRPC connections ([`dial`]) and accepts them ([`accept`], [`CheckStamp`]).
//!
//! An address is a unix socket, or TCP on loopback. A unix socket has mode 0600, and the uid of its peer is checked. On loopback
//! TCP, where the kernel attaches no credentials, the owner of the peer's socket is looked up in `/proc/net/tcp`. So in both
//! cases only the daemon's own user and root are accepted. Other machines reach the port through an ssh tunnel, whose end is
//! again a local process of the user.
//!
//! Every request carries the caller's protocol number and version in its metadata. A server with another protocol number refuses
//! the request and names both versions.

mod server;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::mpsc;
use tonic::metadata::{AsciiMetadataValue, MetadataMap};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::server::Connected;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

pub use server::Services;

use crate::services::{dvm_client::DvmClient, link_client::LinkClient, pmi_client::PmiClient};
use crate::{PROTOCOL, VERSION};

/// The largest request. A submission's environment and argv are the largest content.
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// The address of a daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Its unix socket.
    Unix(PathBuf),
    /// `host:port`.
    Tcp(String),
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Target::Unix(path) => write!(f, "{}", path.display()),
            Target::Tcp(address) => f.write_str(address),
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
    /// No answer in time.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// Any other error.
    #[error("{0}")]
    Io(io::Error),
}

/// Connects to a daemon and sends nothing yet. The attempt fails after `deadline`.
pub async fn dial(target: &Target, deadline: Duration) -> Result<Channel, DialError> {
    let connect = async {
        match target {
            Target::Unix(path) => UnixStream::connect(path).await.map(Conn::Unix).map_err(|error| explain(path, error)),
            Target::Tcp(address) => {
                let stream = TcpStream::connect(address).await.map_err(|error| match error.kind() {
                    io::ErrorKind::ConnectionRefused => DialError::NotRunning(error),
                    _ => DialError::Io(error),
                })?;
                stream.set_nodelay(true).map_err(DialError::Io)?;
                Ok(Conn::Tcp(stream))
            }
        }
    };
    let conn = tokio::time::timeout(deadline, connect).await.map_err(|_| DialError::TimedOut(deadline))??;

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
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .keep_alive_while_idle(true);
    let channel = tokio::time::timeout(deadline, endpoint.connect_with_connector(connector))
        .await
        .map_err(|_| DialError::TimedOut(deadline))?;
    channel.map_err(|error| DialError::Io(io::Error::other(error)))
}

/// How often an idle connection is probed, and how long the answer may take. The time is long enough for a machine whose cores
/// are all busy with spinning ranks.
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

fn own_uid() -> u32 {
    nix::unistd::geteuid().as_raw()
}

/// Adds the protocol number and the version to every request.
#[derive(Debug, Clone, Copy)]
pub struct Stamp;

impl Interceptor for Stamp {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let metadata = request.metadata_mut();
        metadata.insert("rsd-protocol", AsciiMetadataValue::from(PROTOCOL));
        metadata.insert("rsd-version", AsciiMetadataValue::from_static(VERSION));
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

/// Returns a client for a child's stream to its parent.
pub fn link_client(channel: Channel) -> LinkClient<Stamped> {
    LinkClient::with_interceptor(channel, Stamp)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX)
}

/// Returns a client for the gRPC `Pmi` service of a rank.
pub fn pmi_client(channel: Channel) -> PmiClient<Stamped> {
    PmiClient::with_interceptor(channel, Stamp)
}

/// The server's side of [`Stamp`]: refuses a caller with another protocol number, and names both.
#[derive(Debug, Clone, Copy)]
pub struct CheckStamp;

impl Interceptor for CheckStamp {
    fn call(&mut self, request: Request<()>) -> Result<Request<()>, Status> {
        let word = |key| request.metadata().get(key).and_then(|value| value.to_str().ok());
        let theirs = word("rsd-protocol");
        if theirs.and_then(|number| number.parse().ok()) == Some(PROTOCOL) {
            return Ok(request);
        }
        let text = format!(
            "the caller is version {} (protocol {}), this daemon is version {VERSION} (protocol {PROTOCOL}): \
             use programs of one release, and restart daemons after an upgrade",
            word("rsd-version").unwrap_or("unknown"),
            theirs.unwrap_or("unknown"),
        );
        Err(refusal(Code::FailedPrecondition, exit::VERSION, text))
    }
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
            _ => "internal",
        }
    }
}

/// Accepts connections on both kinds of listener, checks them by the rules above, and passes them to a tonic server.
/// Of the unix listeners that `unix` gives, the latest is served. Stops when the result is dropped.
pub fn accept(mut unix: mpsc::Receiver<UnixListener>, tcp: Option<TcpListener>) -> mpsc::Receiver<io::Result<Conn>> {
    let (sender, receiver) = mpsc::channel(16);
    let to_server = sender.clone();
    tokio::spawn(async move {
        let Some(mut listener) = unix.recv().await else { return };
        loop {
            let accepted = tokio::select! {
                Some(newer) = unix.recv() => {
                    listener = newer;
                    continue;
                }
                accepted = next(&to_server, listener.accept()) => accepted,
            };
            match accepted {
                Some(Ok((stream, _))) => {
                    let uid = stream.peer_cred().map(|peer| peer.uid());
                    admit(&to_server, Conn::Unix(stream), uid.ok()).await;
                }
                Some(Err(_)) => {}
                None => return,
            }
        }
    });
    if let Some(tcp) = tcp {
        tokio::spawn(async move {
            while let Some(accepted) = next(&sender, tcp.accept()).await {
                let Ok((stream, peer)) = accepted else { continue };
                let uid = stream.local_addr().ok().and_then(|local| loopback_peer_uid(local, peer));
                if stream.set_nodelay(true).is_ok() {
                    admit(&sender, Conn::Tcp(stream), uid).await;
                }
            }
        });
    }
    receiver
}

/// Returns the next accepted connection; `None` after the receiver is dropped. An error, usually a lack of descriptors, is
/// followed by a pause so that the loop does not spin.
async fn next<T>(
    sender: &mpsc::Sender<io::Result<Conn>>,
    accept: impl Future<Output = io::Result<T>>,
) -> Option<io::Result<T>> {
    tokio::select! {
        accepted = accept => {
            if accepted.is_err() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Some(accepted)
        }
        () = sender.closed() => None,
    }
}

async fn admit(sender: &mpsc::Sender<io::Result<Conn>>, conn: Conn, uid: Option<u32>) {
    if uid.is_some_and(|uid| uid == 0 || uid == own_uid()) {
        // The receiver is dropped only when the server stops.
        let _ = sender.send(Ok(conn)).await;
    }
}

/// Returns the owner of the other end of a loopback connection, by `/proc/net/tcp`: of the socket with local address `peer` and
/// remote address `local`. `None` if the table does not have it, which counts as another user.
pub fn loopback_peer_uid(local: SocketAddr, peer: SocketAddr) -> Option<u32> {
    let table = if peer.is_ipv4() { "/proc/net/tcp" } else { "/proc/net/tcp6" };
    let text = std::fs::read_to_string(table).ok()?;
    find_uid(&text, &hex_address(peer), &hex_address(local))
}

/// Finds a uid in the kernel's table, which has lines `sl local_address rem_address st tx:rx tr:when retrnsmt uid …`.
fn find_uid(table: &str, local: &str, remote: &str) -> Option<u32> {
    table.lines().skip(1).find_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let matches = words.next()? == local && words.next()? == remote;
        if matches { words.nth(4)?.parse().ok() } else { None }
    })
}

/// Returns an address as the kernel prints it: 32-bit words of the address in host order, then the port.
fn hex_address(address: SocketAddr) -> String {
    let words = |octets: &[u8]| {
        let word = |w: &[u8]| u32::from_ne_bytes([w[0], w[1], w[2], w[3]]);
        octets.chunks_exact(4).map(|w| format!("{:08X}", word(w))).collect::<String>()
    };
    let ip = match address.ip() {
        IpAddr::V4(ip) => words(&ip.octets()),
        IpAddr::V6(ip) => words(&ip.octets()),
    };
    format!("{ip}:{:04X}", address.port())
}

/// A connection of either kind.
#[derive(Debug)]
pub enum Conn {
    /// Over the unix socket.
    Unix(UnixStream),
    /// Over loopback TCP.
    Tcp(TcpStream),
}

macro_rules! each {
    ($conn:expr, $io:ident => $call:expr) => {
        match $conn.get_mut() {
            Conn::Unix($io) => $call,
            Conn::Tcp($io) => $call,
        }
    };
}

impl AsyncRead for Conn {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        each!(self, io => Pin::new(io).poll_read(cx, buf))
    }
}

impl AsyncWrite for Conn {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        each!(self, io => Pin::new(io).poll_write(cx, buf))
    }
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        each!(self, io => Pin::new(io).poll_write_vectored(cx, bufs))
    }
    fn is_write_vectored(&self) -> bool {
        true
    }
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, io => Pin::new(io).poll_flush(cx))
    }
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, io => Pin::new(io).poll_shutdown(cx))
    }
}

/// The peer of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its user: the daemon's own user or root, because others are refused. A TCP peer counts as the daemon's own user.
    pub uid: u32,
    /// The process that connected, by pid in our namespace; None if the kernel does not report it.
    pub pid: Option<u32>,
}

impl Connected for Conn {
    type ConnectInfo = Peer;
    fn connect_info(&self) -> Peer {
        match self {
            Conn::Unix(stream) => {
                let peer = stream.peer_cred();
                let pid = peer.as_ref().ok().and_then(|peer| peer.pid()).and_then(|pid| u32::try_from(pid).ok());
                Peer { uid: peer.map_or_else(|_| own_uid(), |peer| peer.uid()), pid: pid.filter(|pid| *pid > 0) }
            }
            Conn::Tcp(_) => Peer { uid: own_uid(), pid: None },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_print_as_the_kernel_prints_them() {
        // The kernel prints 127.0.0.1:8080 as 0100007F:1F90 on little-endian machines.
        let expected = if cfg!(target_endian = "little") { "0100007F:1F90" } else { "7F000001:1F90" };
        assert_eq!(hex_address("127.0.0.1:8080".parse().unwrap()), expected);
    }

    #[test]
    fn the_peer_of_a_loopback_connection_is_known_by_uid() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, peer) = listener.accept().unwrap();
        assert_eq!(peer, client.local_addr().unwrap());
        assert_eq!(loopback_peer_uid(server.local_addr().unwrap(), peer), Some(own_uid()));
    }

    #[test]
    fn a_socket_that_is_not_in_the_table_has_no_owner() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n\
                     0: 0100007F:1F90 0100007F:A0B1 01 00000000:00000000 00:00000000 00000000  1000        0 1 1\n";
        assert_eq!(find_uid(table, "0100007F:1F90", "0100007F:A0B1"), Some(1000));
        assert_eq!(find_uid(table, "0100007F:1F90", "0100007F:A0B2"), None);
    }

    #[test]
    fn another_protocol_is_refused_and_both_are_named() {
        let mut request = Request::new(());
        request.metadata_mut().insert("rsd-protocol", AsciiMetadataValue::from(99_u32));
        request.metadata_mut().insert("rsd-version", AsciiMetadataValue::from_static("9.9.9"));
        let status = CheckStamp.call(request).unwrap_err();
        assert!(status.message().contains("9.9.9 (protocol 99)"), "{status}");
        assert!(status.message().contains(&format!("{VERSION} (protocol {PROTOCOL})")), "{status}");
        assert_eq!(exit_code(&status), Some(exit::VERSION));
        let stamped = Stamp.call(Request::new(())).unwrap();
        assert!(CheckStamp.call(stamped).is_ok());
    }
}
