//! A connection of either kind, and its peer.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Sleep, sleep};
use tokio_rustls::{TlsStream, client, server};
use tonic::transport::server::Connected;

use super::crowd::Place;
use super::own_uid;
use super::shares::Share;
use super::tls::{Owner, Unrecognised};

/// How long a guest's connection may last: enrolling takes milliseconds.
const GUEST_LIFETIME: Duration = Duration::from_secs(10);

/// A connection of either kind.
#[derive(Debug)]
pub enum Conn {
    /// Over the unix socket; an accepted one is counted.
    Unix(UnixStream, Option<Share>),
    /// Over TCP.
    Tls(Box<Tls>),
}

/// A connection over TCP.
#[derive(Debug)]
pub struct Tls {
    stream: TlsStream<TcpStream>,
    peer: Peer,
    end: End,
    /// Whether this side has begun to shut the connection down: then its own writes fail.
    is_shut: bool,
    /// The end of a guest's connection, and its place among the guests.
    guest: Option<(Pin<Box<Sleep>>, Place)>,
    /// Counts a user's connection.
    #[expect(dead_code, reason = "dropping it ends the count")]
    share: Option<Share>,
}

impl Tls {
    /// A connection that this process has opened. `end` is told of its end.
    pub(super) fn dialled(stream: client::TlsStream<TcpStream>, end: End) -> Tls {
        // Only the accepting side asks for the peer.
        let peer = Peer { who: Who::Guest(Unrecognised::NoCertificate), from: None, at: None, is_over: false };
        Tls { stream: stream.into(), peer, end, is_shut: false, guest: None, share: None }
    }

    /// A connection that was accepted from this address, at that one. `place`: a guest's; `share`: a user's.
    pub(super) fn accepted(
        stream: server::TlsStream<TcpStream>,
        who: Who,
        from: IpAddr,
        at: IpAddr,
        place: Option<Place>,
        share: Option<Share>,
    ) -> Tls {
        let is_over = share.as_ref().is_some_and(Share::is_over);
        let guest = place.map(|place| (Box::pin(sleep(GUEST_LIFETIME)), place));
        // A socket of both families reports IPv4 addresses in their IPv6 form.
        let peer = Peer { who, from: Some(from.to_canonical()), at: Some(at.to_canonical()), is_over };
        Tls { stream: stream.into(), peer, end: End::default(), is_shut: false, guest, share }
    }
}

/// What is known about the end of a connection. The connection has a clone of it.
#[derive(Debug, Clone, Default)]
pub struct End(Arc<Ends>);

#[derive(Debug, Default)]
struct Ends {
    by_peer: AtomicBool,
    dropped: AtomicBool,
}

impl End {
    /// Returns whether the peer's kernel has closed the connection. It does so when the process there ends; a machine that has lost
    /// power or its network stays silent.
    pub fn by_peer(&self) -> bool {
        self.0.by_peer.load(Relaxed)
    }

    /// Returns whether either side has closed the connection. HTTP/2 drops a closed connection at once.
    pub fn has_come(&self) -> bool {
        self.0.dropped.load(Relaxed)
    }

    /// Takes in the result of a read into a buffer with room.
    fn after_read(&self, result: &io::Result<()>, received: usize) {
        match result {
            Ok(()) if received == 0 => self.0.by_peer.store(true, Relaxed),
            Ok(()) => {}
            Err(error) => self.after_error(error),
        }
    }

    /// Takes in the error of a read, or of a write before this side has shut the connection down. After the peer's end, a write may
    /// fail before a read does.
    fn after_error(&self, error: &io::Error) {
        use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
        if matches!(error.kind(), ConnectionReset | BrokenPipe | UnexpectedEof) {
            self.0.by_peer.store(true, Relaxed);
        }
    }
}

impl Tls {
    fn after_write<T>(&self, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if let Poll::Ready(Err(error)) = &result
            && !self.is_shut
        {
            self.end.after_error(error);
        }
        result
    }
}

impl Drop for Tls {
    fn drop(&mut self) {
        self.end.0.dropped.store(true, Relaxed);
    }
}

/// Returns the result of a write to a unix socket. If the peer has closed it, what it sent before can still be read, and then its end. An
/// error would make the HTTP/2 connection drop all that, for example the number of a job that the head has just accepted. So such
/// a write, whose bytes the peer would never have read, counts as done.
fn onto_unix(result: Poll<io::Result<usize>>, bytes: usize) -> Poll<io::Result<usize>> {
    match result {
        Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::BrokenPipe => Poll::Ready(Ok(bytes)),
        other => other,
    }
}

macro_rules! written {
    ($conn:expr, $io:ident => $call:expr, $bytes:expr) => {
        match $conn.get_mut() {
            Conn::Unix($io, _) => onto_unix($call, $bytes),
            Conn::Tls(tls) => {
                let $io = &mut tls.stream;
                let written = $call;
                tls.after_write(written)
            }
        }
    };
}

impl Conn {
    /// Fails when a guest's time is over or its place was given away; otherwise wakes the task when that happens. Reads and writes
    /// check it: a guest that reads nothing keeps its connection waiting for a write.
    fn check_guest(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if let Conn::Tls(tls) = self
            && let Some((end, place)) = &mut tls.guest
            && (end.as_mut().poll(cx).is_ready() || Pin::new(place).poll(cx).is_ready())
        {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(())
    }
}

impl AsyncRead for Conn {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.check_guest(cx)?;
        match self.get_mut() {
            Conn::Unix(io, _) => Pin::new(io).poll_read(cx, buf),
            Conn::Tls(tls) => {
                let before = buf.filled().len();
                let read = ready!(Pin::new(&mut tls.stream).poll_read(cx, buf));
                tls.end.after_read(&read, buf.filled().len() - before);
                Poll::Ready(read)
            }
        }
    }
}

impl AsyncWrite for Conn {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.check_guest(cx)?;
        written!(self, io => Pin::new(io).poll_write(cx, buf), buf.len())
    }
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check_guest(cx)?;
        written!(self, io => Pin::new(io).poll_write_vectored(cx, bufs), bufs.iter().map(|buf| buf.len()).sum())
    }
    fn is_write_vectored(&self) -> bool {
        true
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check_guest(cx)?;
        match self.get_mut() {
            Conn::Unix(io, _) => Pin::new(io).poll_flush(cx),
            Conn::Tls(tls) => {
                let flushed = Pin::new(&mut tls.stream).poll_flush(cx);
                tls.after_write(flushed)
            }
        }
    }
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Conn::Unix(io, _) => Pin::new(io).poll_shutdown(cx),
            Conn::Tls(tls) => {
                tls.is_shut = true;
                Pin::new(&mut tls.stream).poll_shutdown(cx)
            }
        }
    }
}

/// The peer of an accepted connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Who it is.
    pub who: Who,
    /// The address from which it has connected over TCP.
    pub from: Option<IpAddr>,
    /// The address of this machine to which it has connected over TCP.
    pub at: Option<IpAddr>,
    /// Whether its user has more connections than allowed with this one.
    pub is_over: bool,
}

/// Who the peer of a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// A process on this machine, over the unix socket.
    Local {
        /// Its user: the daemon's own user or root, unless the daemon serves all users.
        uid: u32,
        /// Its pid in our namespace; None if the kernel does not report it.
        pid: Option<u32>,
    },
    /// A daemon of the DVM, by its certificate.
    Node(u32),
    /// A user on another machine, by the uid in the certificate.
    User(u32),
    /// A caller without a valid certificate.
    Guest(Unrecognised),
}

impl Who {
    pub(super) fn of(recognised: Result<Owner, Unrecognised>) -> Who {
        match recognised {
            Ok(Owner::Node(node)) => Who::Node(node),
            Ok(Owner::User(uid)) => Who::User(uid),
            Err(why) => Who::Guest(why),
        }
    }
}

/// Receives refusals: the source (None: a process on this machine, over the unix socket), and a sentence about it.
#[derive(Clone)]
pub struct Refusals(Arc<Report>);

type Report = dyn Fn(Option<IpAddr>, &str) + Send + Sync;

impl Refusals {
    /// Returns a receiver that calls `report`.
    pub fn new(report: impl Fn(Option<IpAddr>, &str) + Send + Sync + 'static) -> Refusals {
        Refusals(Arc::new(report))
    }

    /// Reports a refusal.
    pub fn report(&self, from: Option<IpAddr>, why: &str) {
        (self.0)(from, why);
    }
}

impl Default for Refusals {
    fn default() -> Refusals {
        Refusals::new(|_, _| {})
    }
}

impl fmt::Debug for Refusals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Refusals")
    }
}

impl Connected for Conn {
    type ConnectInfo = Peer;
    fn connect_info(&self) -> Peer {
        match self {
            Conn::Unix(stream, share) => {
                let peer = stream.peer_cred();
                let pid = peer.as_ref().ok().and_then(|peer| peer.pid()).and_then(|pid| u32::try_from(pid).ok());
                let uid = peer.map_or_else(|_| own_uid(), |peer| peer.uid());
                let is_over = share.as_ref().is_some_and(Share::is_over);
                Peer { who: Who::Local { uid, pid: pid.filter(|pid| *pid > 0) }, from: None, at: None, is_over }
            }
            Conn::Tls(tls) => tls.peer,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::net::Ipv4Addr;

    use rcgen::{
        BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
    };
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;

    use super::super::{candidates, tls};
    use super::*;
    use crate::v1::Credentials;

    const DVM: &str = "00112233445566ff";

    #[tokio::test]
    async fn what_a_peer_sent_before_its_end_is_read_also_after_a_write() {
        let (mut peer, ours) = UnixStream::pair().expect("a pair of sockets");
        let mut ours = Conn::Unix(ours, None);
        peer.write_all(b"job 7").await.expect("a write to an open socket");
        drop(peer);
        ours.write_all(b"a settings frame").await.expect("the peer's last words are not read yet");
        let mut said = String::new();
        ours.read_to_string(&mut said).await.expect("a read up to the peer's end");
        assert_eq!(said, "job 7");
    }

    fn credentials() -> Credentials {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let mut params = CertificateParams::new(tls::names_of_node(0, DVM)).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &authority).unwrap();
        Credentials {
            key: key.serialize_der().into(),
            certificate: certificate.der().to_vec().into(),
            authority: authority.der().to_vec().into(),
            dvm: DVM.into(),
            ..Credentials::default()
        }
    }

    /// A dialled connection, what is known about its end, and its other side.
    async fn pair() -> (Conn, End, server::TlsStream<TcpStream>) {
        let own = tls::Own::new(&credentials()).unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = [listener.local_addr().unwrap().to_string()];
        let accept =
            async { TlsAcceptor::from(own.server()).accept(listener.accept().await.unwrap().0).await.unwrap() };
        let dialer = own.dialer(Some(0));
        let (dialled, accepted) = tokio::join!(candidates::connect(&address, &dialer, None), accept);
        let end = End::default();
        (Conn::Tls(Box::new(Tls::dialled(dialled.unwrap(), end.clone()))), end, accepted)
    }

    /// Writes and reads nothing until a write fails.
    async fn write_until_it_fails(conn: &mut Conn) -> io::Error {
        loop {
            let written = poll_fn(|cx| {
                ready!(Pin::new(&mut *conn).poll_write(cx, &[0; 4096]))?;
                Pin::new(&mut *conn).poll_flush(cx)
            });
            if let Err(error) = tokio::time::timeout(Duration::from_secs(20), written).await.expect("a write ends") {
                return error;
            }
        }
    }

    fn run(test: impl Future) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
    }

    #[test]
    fn a_write_that_fails_first_shows_that_the_peer_has_ended() {
        run(async {
            let (mut conn, end, other) = pair().await;
            assert!(!end.by_peer());
            drop(other);
            let error = write_until_it_fails(&mut conn).await;
            assert!(end.by_peer(), "{error}");
            assert!(!end.has_come());
            drop(conn);
            assert!(end.has_come());
        });
    }

    #[test]
    fn after_this_side_has_shut_it_down_its_failed_writes_say_nothing_about_the_peer() {
        run(async {
            let (mut conn, end, other) = pair().await;
            poll_fn(|cx| Pin::new(&mut conn).poll_shutdown(cx)).await.unwrap();
            write_until_it_fails(&mut conn).await;
            assert!(!end.by_peer());
            drop(other);
        });
    }
}
