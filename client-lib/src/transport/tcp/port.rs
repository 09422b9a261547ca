//! Ports: where a process of one job waits for one of another that knows the port's name (MPI 5.0 §11.9).
//!
//! A port is a listening socket, a secret, and a name that says both: whoever has the name can connect, and nobody else. The two
//! prove to each other that they know it by the handshake of all connections ([`super::hello`]). Then frames do not
//! flow but words ([`Line`]), by which two groups of processes learn of each other.
//!
//! Callers are answered in the order in which they have come, each by one accept. They prove who they are in any order: one that
//! has said hello is waited for a moment before somebody who came later has its turn. An unidentified connection costs a place for half a minute,
//! and nothing else. Nothing here blocks.

mod line;

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

pub use line::Line;

use super::handshake::{Answer, Dial, Dialled, Heard, Own};
use super::hello::Verdict;
use super::{UNIDENTIFIED_MAX, socket};
use crate::engine::Peer;
use crate::transport::name::ProcessName;

/// What a port's name says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortName {
    /// Who has opened it.
    pub owner: ProcessName,
    /// Where it listens.
    pub address: SocketAddr,
    secret: [u8; 32],
}

/// What all names begin with; the number changes with anything that is said after connecting.
const MARK: &str = "rsd-mpi-1";

impl PortName {
    /// As text of at most 160 visible ASCII characters, which [`PortName::parse`] takes.
    pub fn text(&self) -> String {
        let Self { owner, address, secret } = self;
        format!("{MARK}/{address}/{}/{}/{}", hex(&owner.world), owner.rank, hex(secret))
    }

    /// What follows from the secret by a keyed hash.
    pub fn derive(&self, hash: impl FnOnce(&[u8; 32]) -> [u8; 32]) -> [u8; 32] {
        hash(&self.secret)
    }

    /// None if it is no port's name.
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
    listener: TcpListener,
    /// In the order in which they have come.
    callers: Vec<Caller>,
}

/// Somebody who has connected, and whose turn it has not been.
#[derive(Debug)]
struct Caller {
    answer: Answer,
    standing: Standing,
}

/// What a caller has shown of itself.
#[derive(Debug, Clone, Copy)]
enum Standing {
    /// Nothing yet: anybody can connect.
    Silent,
    /// It has said hello as one that knows the name, and is expected to prove it.
    Named { at: Instant },
    /// It has proved it, and waits for an accept.
    Proved { at: Instant },
}

/// How long somebody who has connected may be silent.
const HELLO_LIMIT: Duration = Duration::from_secs(30);

/// How long somebody who said hello keeps its place before one that came later and has proved itself. Whoever connects waits for the
/// challenge and does nothing else: it answers once it has been woken, which takes a fraction of this on a busy machine. Only one
/// that was stopped, or whose host is gone, makes others wait as long as this, once.
const PATIENCE: Duration = Duration::from_millis(250);

/// So many that have said hello have a place; more wait in the system's queue.
const CALLERS: usize = 128;

impl Port {
    /// Opens one at this address, for this process.
    pub fn open(owner: ProcessName, at: IpAddr) -> io::Result<Self> {
        let listener = socket::listen(at)?;
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(io::Error::from)?;
        let name = PortName { owner, address: listener.local_addr()?, secret };
        let own = Own::of_port(owner, secret, HELLO_LIMIT);
        Ok(Self { name, own, listener, callers: Vec::new() })
    }

    /// What others have to know.
    pub fn name(&self) -> &PortName {
        &self.name
    }

    /// Readable when somebody calls.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// The next caller: it has been told that it is its turn, and is expected to speak first. Sockets that are new are given
    /// to `watch`: there may be somebody when one of them is readable, or at [`Port::deadline`].
    pub fn next_caller(&mut self, now: Instant, watch: impl FnMut(BorrowedFd<'_>)) -> io::Result<Option<Line>> {
        self.callers.retain_mut(|caller| caller.hear(&self.own, now));
        self.admit(now, watch)?;
        while let Some((at, since)) = self.first()
            && since <= now
        {
            let Caller { answer, .. } = self.callers.remove(at);
            if answer.tell(Verdict::Welcome).is_ok() {
                return Ok(Some(Line::new(answer.socket)));
            }
        }
        Ok(None)
    }

    /// When there is somebody at the latest, unless an accept finds somebody before.
    pub fn deadline(&self) -> Option<Instant> {
        self.first().map(|(_, since)| since)
    }

    /// Takes in those who wait in the system's queue, as far as there is room.
    fn admit(&mut self, now: Instant, mut watch: impl FnMut(BorrowedFd<'_>)) -> io::Result<()> {
        while self.callers.iter().filter(|caller| !caller.is_silent()).count() < CALLERS {
            match self.listener.accept() {
                Ok((socket, address)) => {
                    let Ok(answer) = Answer::new(&self.own, socket, address, now) else { continue };
                    watch(answer.socket.as_fd());
                    let mut caller = Caller { answer, standing: Standing::Silent };
                    // What it has said lies there already if it has waited for the accept.
                    if caller.hear(&self.own, now) {
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

    /// One too many, and the one that has been silent for longest goes.
    fn bound_the_silent(&mut self) {
        let mut silent = self.callers.iter().enumerate().filter(|(_, caller)| caller.is_silent()).map(|(at, _)| at);
        if let Some(oldest) = silent.next()
            && silent.count() >= UNIDENTIFIED_MAX
        {
            self.callers.remove(oldest);
        }
    }

    /// Whose turn it is next, and since when: as soon as nobody before it is waited for any more.
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
        // However many say hello one after the other.
        let waits_until =
            self.callers[..place].iter().filter_map(patience).max().map(|it| it.min(proved_at + PATIENCE));
        Some((place, waits_until.map_or(proved_at, |until| until.max(proved_at))))
    }
}

impl Caller {
    /// Gets on as far as what has come allows; false if there is nothing to be expected of it any more.
    fn hear(&mut self, own: &Own, now: Instant) -> bool {
        loop {
            if let Standing::Proved { .. } = self.standing {
                return true;
            }
            match self.answer.advance(own, now) {
                Heard::Named(_) => self.standing = Standing::Named { at: now },
                Heard::Proved(_) => self.standing = Standing::Proved { at: now },
                Heard::Wait => return !matches!(self.standing, Standing::Named { at } if at + HELLO_LIMIT <= now),
                Heard::Refused | Heard::Gone => return false,
            }
        }
    }

    fn is_silent(&self) -> bool {
        matches!(self.standing, Standing::Silent)
    }
}

/// This process's attempt to reach a port.
#[derive(Debug)]
pub struct Call {
    name: PortName,
    own: Own,
    dial: Dial,
}

impl Call {
    /// Begins, as `me`.
    pub fn begin(me: ProcessName, name: PortName, limit: Duration, now: Instant) -> Self {
        let own = Own::of_port(me, name.secret, limit);
        let dial = Dial::new(&own, Peer(0), name.owner, name.address, now);
        Self { name, own, dial }
    }

    /// The line, once the other side has accepted; an error is a sentence about the port.
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
            Dialled::Failed(why) => Err(format!("the port at {} cannot be reached: {why}", self.name.address)),
        }
    }

    /// What to watch from the beginning.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.dial.socket().map(AsFd::as_fd)
    }
}

#[cfg(test)]
mod tests;
