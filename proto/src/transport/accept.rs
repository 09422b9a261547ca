//! Accepts connections and finds out who their peers are.
//!
//! A TLS handshake has a deadline, and only so many connections may be in it, or stay without a certificate ([`Crowd`]).

use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

use super::conn::{Conn, Refusals, Tls, Who};
use super::crowd::Crowd;
use super::own_uid;
use super::shares::{Share, Shares};
use super::tls::Own;

/// The deadline of a TLS handshake on the accepting side.
const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(1);
/// The most connections that may be in a handshake.
const HANDSHAKES_MAX: usize = 256;
/// The most connections of callers without a certificate.
const GUESTS_MAX: usize = 256;

/// The TCP side of a daemon.
#[derive(Debug)]
pub struct TcpDoor {
    /// Where it listens: of the listeners that arrive here, the latest is served. None: it stops listening.
    pub listeners: mpsc::Receiver<Option<TcpListener>>,
    /// Its certificate.
    pub own: Own,
    /// Receives every refusal.
    pub refusals: Refusals,
}

/// Whose connections are accepted.
#[derive(Debug, Clone)]
pub struct Admission {
    /// Whether the daemon serves all users of the machine.
    pub serves_all: bool,
    /// How many connections each user may have.
    pub connections: Shares,
}

/// The most connections of a user beyond its share, whose requests are refused with the reason. Further ones are closed.
const OVER_MAX: usize = 16;

impl Admission {
    /// Counts a connection of a user; None: it must be closed.
    fn count(&self, uid: u32) -> Option<Option<Share>> {
        match self.serves_all {
            true => self.connections.take(uid, OVER_MAX).map(Some),
            false => Some(None),
        }
    }
}

/// Accepts connections on both kinds of listener, checks them by the rules of [`transport`](super), and passes them to a tonic
/// server. Of the unix listeners that `unix` gives, the latest is served. Stops when the result is dropped.
pub fn accept(
    unix: mpsc::Receiver<UnixListener>,
    tcp: Option<TcpDoor>,
    admission: Admission,
) -> mpsc::Receiver<io::Result<Conn>> {
    let (sender, receiver) = mpsc::channel(16);
    tokio::spawn(accept_unix(unix, admission.clone(), sender.clone()));
    if let Some(tcp) = tcp {
        tokio::spawn(accept_tcp(tcp, admission, sender));
    }
    receiver
}

async fn accept_unix(
    mut unix: mpsc::Receiver<UnixListener>,
    admission: Admission,
    sender: mpsc::Sender<io::Result<Conn>>,
) {
    let Some(mut listener) = unix.recv().await else { return };
    loop {
        let accepted = tokio::select! {
            Some(newer) = unix.recv() => {
                listener = newer;
                continue;
            }
            accepted = next(&sender, listener.accept()) => accepted,
        };
        match accepted {
            Some(Ok((stream, _))) => {
                let uid = stream.peer_cred().map(|peer| peer.uid());
                let known = uid.ok().filter(|uid| admission.serves_all || *uid == 0 || *uid == own_uid());
                if let Some(share) = known.and_then(|uid| admission.count(uid)) {
                    // The receiver is dropped only when the server stops.
                    let _ = sender.send(Ok(Conn::Unix(stream, share))).await;
                }
            }
            Some(Err(_)) => {}
            None => return,
        }
    }
}

async fn accept_tcp(mut tcp: TcpDoor, admission: Admission, sender: mpsc::Sender<io::Result<Conn>>) {
    let (handshakes, guests) = (Crowd::new(HANDSHAKES_MAX), Crowd::new(GUESTS_MAX));
    let mut listener: Option<TcpListener> = None;
    loop {
        let accepted = tokio::select! {
            Some(latest) = tcp.listeners.recv() => {
                listener = latest;
                continue;
            }
            accepted = next(&sender, accept_on(listener.as_ref())) => accepted,
        };
        let Some(accepted) = accepted else { return };
        let Ok((stream, peer)) = accepted else { continue };
        let mut place = handshakes.enter(peer.ip());
        let (own, refusals, guests, sender) = (tcp.own.clone(), tcp.refusals.clone(), guests.clone(), sender.clone());
        let admission = admission.clone();
        tokio::spawn(async move {
            let done = tokio::select! {
                done = tokio::time::timeout(HANDSHAKE_DEADLINE, admit(stream, peer, &own, &guests, &admission)) => {
                    done.unwrap_or(Err("it did not complete a TLS handshake within a second".into()))
                }
                () = &mut place => Err("too many connections are in their TLS handshake".into()),
            };
            drop(place);
            match done {
                Ok(Some(conn)) => drop(sender.send(Ok(conn)).await),
                Ok(None) => {}
                Err(why) => refusals.report(Some(peer.ip().to_canonical()), &why),
            }
        });
    }
}

async fn accept_on(listener: Option<&TcpListener>) -> io::Result<(TcpStream, SocketAddr)> {
    match listener {
        Some(listener) => listener.accept().await,
        None => pending().await,
    }
}

/// Performs the handshake of an accepted connection. None: the caller has closed it without a word, as a probe of the port does.
async fn admit(
    stream: TcpStream,
    from: SocketAddr,
    own: &Own,
    guests: &Crowd,
    admission: &Admission,
) -> Result<Option<Conn>, String> {
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
    let at = stream.local_addr().map_err(|error| error.to_string())?;
    // What a program sends that does not speak TLS shows in its first byte; 22 begins a handshake.
    let mut first = [0];
    match stream.peek(&mut first).await {
        Ok(0) => return Ok(None),
        Ok(_) if first[0] == 22 => {}
        Ok(_) => {
            answer_plainly(&stream).await;
            return Err("it does not speak TLS".into());
        }
        Err(error) => return Err(error.to_string()),
    }
    let stream = TlsAcceptor::from(own.server()).accept(stream).await;
    let stream = stream.map_err(|error| format!("its TLS handshake failed: {error}"))?;
    let recognised = own.recognise(stream.get_ref().1.peer_certificates());
    let guest = recognised.is_err().then(|| guests.enter(from.ip()));
    let who = Who::of(recognised);
    let share = match who {
        Who::User(uid) => admission.count(uid).ok_or_else(|| format!("user {uid} has too many connections"))?,
        Who::Local { .. } | Who::Node(_) | Who::Guest(_) => None,
    };
    Ok(Some(Conn::Tls(Box::new(Tls::accepted(stream, who, from.ip(), at.ip(), guest, share)))))
}

/// Tells a program that speaks HTTP, or a person with a terminal, what this port is.
async fn answer_plainly(stream: &TcpStream) {
    let text = "this port of rsd speaks TLS only: use rsd start --join, or rsctl login\n";
    let answer =
        format!("HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{text}", text.len());
    // Bytes that are never read would make the kernel discard the answer. Errors are ignored: the connection is closed anyway.
    let _ = stream.try_read(&mut [0; 4096]);
    if stream.writable().await.is_ok() {
        let _ = stream.try_write(answer.as_bytes());
    }
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
