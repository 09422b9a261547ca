//! Ports: where a process of one job waits for one of another that knows the port's name (MPI 5.0 §11.9).
//!
//! A port is a listening socket, a secret, and a name that says both: whoever has the name can connect, and nobody else. The two
//! prove to each other that they know it by the handshake of all connections ([`super::hello`]). Then frames do not
//! flow but words ([`Line`]), by which two groups of processes learn of each other.
//!
//! Callers are answered in the order in which they prove that they know the name, each by one accept. A stranger costs a place for
//! as long as [`super::TcpConfig::hello_limit`] says, and nothing else. Nothing here blocks.

mod line;

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

pub use line::Line;

use super::greeting::{Answer, Dial, Dialled, Heard, Own};
use super::hello::Verdict;
use super::{STRANGERS, socket};
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
    /// Those who have not proved anything yet.
    strangers: Vec<Answer>,
    /// Those who have, and wait for an accept.
    callers: VecDeque<Answer>,
}

/// How long somebody who has connected may be silent.
const HELLO_LIMIT: Duration = Duration::from_secs(30);

/// So many wait for an accept; more wait for their answer in the system's queue.
const CALLERS: usize = 128;

impl Port {
    /// Opens one at this address, for this process.
    pub fn open(owner: ProcessName, at: IpAddr) -> io::Result<Self> {
        let listener = socket::listen(at)?;
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(io::Error::from)?;
        let name = PortName { owner, address: listener.local_addr()?, secret };
        let own = Own::of_port(owner, secret, HELLO_LIMIT);
        Ok(Self { name, own, listener, strangers: Vec::new(), callers: VecDeque::new() })
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
    /// to `watch`: there may be somebody when one of them is readable.
    pub fn next_caller(&mut self, now: Instant, mut watch: impl FnMut(BorrowedFd<'_>)) -> io::Result<Option<Line>> {
        while self.callers.len() < CALLERS {
            match self.listener.accept() {
                Ok((socket, address)) => {
                    let Ok(answer) = Answer::new(&self.own, socket, address, now) else { continue };
                    watch(answer.socket.as_fd());
                    if self.strangers.len() >= STRANGERS {
                        // The one that has been silent for longest.
                        drop(self.strangers.remove(0));
                    }
                    self.strangers.push(answer);
                }
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => break,
                    ErrorKind::ConnectionAborted | ErrorKind::Interrupted => {}
                    _ => return Err(error),
                },
            }
        }
        for mut stranger in std::mem::take(&mut self.strangers) {
            let heard = loop {
                match stranger.advance(&self.own, now) {
                    Heard::Named(_) => {}
                    heard => break heard,
                }
            };
            match heard {
                Heard::Wait => self.strangers.push(stranger),
                Heard::Proved(_) => self.callers.push_back(stranger),
                Heard::Named(_) | Heard::Refused | Heard::Gone => {}
            }
        }
        while let Some(caller) = self.callers.pop_front() {
            if caller.tell(Verdict::Welcome).is_ok() {
                return Ok(Some(Line::new(caller.socket)));
            }
        }
        Ok(None)
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
