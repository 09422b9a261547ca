//! Ports: a process of one job waits for a process of another job that knows the port's name (MPI 5.0 §11.9).
//!
//! A port is a listening socket, a secret, and a name that contains both: only a process that has the name can connect. The two
//! prove to each other that they know it by the same handshake as all connections ([`super::hello`]). After that they
//! exchange words instead of frames ([`Line`]), by which two groups of processes are introduced to each other.
//!
//! Callers are served in order of arrival, one per accept. They may prove their identity in any order: a caller that has said
//! hello is waited for briefly before a later one is served. A foreign connection holds a place for at most half a minute.
//! Nothing here blocks.

mod line;

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

pub use line::Line;

use super::handshake::{Answer, Dial, Dialled, Own, Progress};
use super::hello::Verdict;
use super::private::Private;
use super::{UNIDENTIFIED_MAX, socket};
use crate::engine::Peer;
use crate::transport::address::everywhere;
use crate::transport::name::ProcessName;

/// The content of a port's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortName {
    /// The process that opened it.
    pub owner: ProcessName,
    /// Its listening address.
    pub address: SocketAddr,
    secret: [u8; 32],
}

/// All names begin with this; the number changes with the protocol that follows the connection.
const MARK: &str = "rsd-mpi-1";

impl PortName {
    /// Encodes the name as at most 160 visible ASCII characters, which [`PortName::parse`] decodes.
    pub fn text(&self) -> String {
        let Self { owner, address, secret } = self;
        format!("{MARK}/{address}/{}/{}/{}", hex(&owner.world), owner.rank, hex(secret))
    }

    /// Derives a key from the secret by a keyed hash.
    pub fn derive(&self, hash: impl FnOnce(&[u8; 32]) -> [u8; 32]) -> [u8; 32] {
        hash(&self.secret)
    }

    /// Decodes a port name; `None` if it is invalid.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('/');
        let mut next = || parts.next();
        if next()? != MARK {
            return None;
        }
        let address = next()?.parse().ok()?;
        let world = bytes_of(next()?)?;
        let owner = ProcessName { world, rank: next()?.parse().ok()? };
        let secret = bytes_of(next()?)?;
        next().is_none().then_some(Self { owner, address, secret })
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes_of<const N: usize>(digits: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if digits.len() != 2 * N || !digits.is_ascii() {
        return None;
    }
    for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&digits[at..at + 2], 16).ok()?;
    }
    Some(bytes)
}

/// An open port.
#[derive(Debug)]
pub struct Port {
    name: PortName,
    own: Own,
    listener: Private<TcpListener>,
    /// In order of arrival.
    callers: Vec<Caller>,
}

/// A process that has connected and has not been served yet.
#[derive(Debug)]
struct Caller {
    answer: Answer,
    standing: Standing,
}

/// How far a caller has proved its identity.
#[derive(Debug, Clone, Copy)]
enum Standing {
    /// Not at all: any process can connect.
    Silent,
    /// Its hello shows that it knows the name; its proof is pending.
    Named { at: Instant },
    /// It has proved its identity, and waits for an accept.
    Proved { at: Instant },
}

/// How long a connection may be silent before its hello.
const HELLO_LIMIT: Duration = Duration::from_secs(30);

/// How long a caller that said hello keeps its place before a later one that has proved its identity. A caller that
/// connects does nothing but wait for the challenge: it answers once it has been scheduled, which takes a fraction of
/// this time even on a busy machine. Only a caller that was stopped, or whose host is gone, delays the others this
/// long, once.
const PATIENCE: Duration = Duration::from_millis(250);

/// The most callers that have said hello and hold a place; more wait in the system's queue.
const CALLERS: usize = 128;

impl Port {
    /// Opens a port for this process, which others reach at this address. If it is no address of this machine, because a
    /// router translates it, the port listens at all addresses.
    pub fn open(owner: ProcessName, at: IpAddr) -> io::Result<Self> {
        let listener = match socket::listen(at) {
            Err(error) if error.kind() == ErrorKind::AddrNotAvailable => socket::listen(everywhere(at))?,
            made => made?,
        };
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(io::Error::from)?;
        let mut address = listener.local_addr()?;
        address.set_ip(at);
        let name = PortName { owner, address, secret };
        let own = Own::of_port(owner, secret, HELLO_LIMIT);
        Ok(Self { name, own, listener: Private::new(listener), callers: Vec::new() })
    }

    /// Returns the name, which callers need.
    pub fn name(&self) -> &PortName {
        &self.name
    }

    /// Readable when a process connects.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Serves the next caller: it has the message that it is accepted, and must send first. New sockets are passed to
    /// `watch`: there may be a caller when one of them is readable, or at [`Port::deadline`].
    pub fn next_caller(&mut self, now: Instant, watch: impl FnMut(BorrowedFd<'_>)) -> io::Result<Option<Line>> {
        self.callers.retain_mut(|caller| caller.advance(&self.own, now));
        self.admit(now, watch)?;
        while let Some((at, since)) = self.first()
            && since <= now
        {
            let Caller { answer, .. } = self.callers.remove(at);
            if answer.send_verdict(Verdict::Welcome).is_ok() {
                return Ok(Some(Line::new(answer.socket)));
            }
        }
        Ok(None)
    }

    /// The latest time at which there is a caller to serve, unless an accept finds one before.
    pub fn deadline(&self) -> Option<Instant> {
        self.first().map(|(_, since)| since)
    }

    /// Accepts connections from the system's queue, as far as there is room.
    fn admit(&mut self, now: Instant, mut watch: impl FnMut(BorrowedFd<'_>)) -> io::Result<()> {
        while self.callers.iter().filter(|caller| !caller.is_silent()).count() < CALLERS {
            match self.listener.accept() {
                Ok((socket, address)) => {
                    let Ok(answer) = Answer::new(&self.own, socket, address, 0, now) else { continue };
                    watch(answer.socket.as_fd());
                    let mut caller = Caller { answer, standing: Standing::Silent };
                    // Its hello has already arrived if it has waited for the accept.
                    if caller.advance(&self.own, now) {
                        self.callers.push(caller);
                    }
                    self.bound_the_silent();
                }
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => break,
                    ErrorKind::ConnectionAborted | ErrorKind::Interrupted => {}
                    _ => return Err(error),
                },
            }
        }
        Ok(())
    }

    /// If there is one silent caller too many, closes the one that has been silent for longest.
    fn bound_the_silent(&mut self) {
        let mut silent = self.callers.iter().enumerate().filter(|(_, caller)| caller.is_silent()).map(|(at, _)| at);
        if let Some(oldest) = silent.next()
            && silent.count() >= UNIDENTIFIED_MAX
        {
            self.callers.remove(oldest);
        }
    }

    /// The caller to serve next, and since when: when no earlier caller is waited for any more.
    fn first(&self) -> Option<(usize, Instant)> {
        let proved = |(at, caller): (usize, &Caller)| match caller.standing {
            Standing::Proved { at: since } => Some((at, since)),
            Standing::Silent | Standing::Named { .. } => None,
        };
        let (place, proved_at) = self.callers.iter().enumerate().find_map(proved)?;
        let patience = |caller: &Caller| match caller.standing {
            Standing::Named { at } => Some(at + PATIENCE),
            Standing::Silent | Standing::Proved { .. } => None,
        };
        // The delay is limited, however many callers say hello one after the other.
        let waits_until =
            self.callers[..place].iter().filter_map(patience).max().map(|it| it.min(proved_at + PATIENCE));
        Some((place, waits_until.map_or(proved_at, |until| until.max(proved_at))))
    }
}

impl Caller {
    /// Advances a caller as far as the received data allow; false if nothing more can be expected from it.
    fn advance(&mut self, own: &Own, now: Instant) -> bool {
        loop {
            if let Standing::Proved { .. } = self.standing {
                return true;
            }
            match self.answer.advance(own, now) {
                Progress::Named(_) => self.standing = Standing::Named { at: now },
                Progress::Proved(_) => self.standing = Standing::Proved { at: now },
                Progress::Wait => return !matches!(self.standing, Standing::Named { at } if at + HELLO_LIMIT <= now),
                Progress::Refused | Progress::Gone => return false,
            }
        }
    }

    fn is_silent(&self) -> bool {
        matches!(self.standing, Standing::Silent)
    }
}

/// This process's attempt to connect to a port.
#[derive(Debug)]
pub struct Call {
    name: PortName,
    own: Own,
    dial: Dial,
}

impl Call {
    /// Starts a call as `me`.
    pub fn begin(me: ProcessName, name: PortName, limit: Duration, now: Instant) -> Self {
        let own = Own::of_port(me, name.secret, limit);
        let dial = Dial::new(&own, Peer(0), name.owner, name.address, now);
        Self { name, own, dial }
    }

    /// Returns the line once the other side has accepted; an error is a sentence about the port.
    pub fn poll(&mut self, now: Instant, mut watch: impl FnMut(BorrowedFd<'_>)) -> Result<Option<Line>, String> {
        match self.dial.advance(&self.own, now) {
            Dialled::Wait => Ok(None),
            Dialled::Watch => {
                if let Some(socket) = self.dial.socket() {
                    watch(socket.as_fd());
                }
                Ok(None)
            }
            Dialled::Open(socket) => Ok(Some(Line::new(socket))),
            Dialled::Failed(why) => Err(format!("the port at {} is unreachable: {why}", self.name.address)),
        }
    }

    /// The descriptor to watch from the beginning.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.dial.socket().map(AsFd::as_fd)
    }
}

#[cfg(test)]
mod tests;
