//! The one place where a process sleeps: an epoll set that all transports share.
//!
//! Everything is edge-triggered: a descriptor is reported once when it becomes ready, and again only after new data, or new
//! room after a send was refused. Whoever gets a report reads until there is nothing more, now or by its own polls; what came
//! between the last read and the sleep is reported at once. So nothing has to be changed in the set while messages flow, and
//! an eventfd that is never read serves as a doorbell.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

/// Which transport a descriptor belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Owner {
    /// Shared memory: doorbells and unix sockets.
    Shm = 1,
    /// TCP.
    Tcp = 2,
    /// Nobody here: what its reports are about is looked at by those that sleep.
    Others = 3,
}

/// What a descriptor is known by: its transport, and the transport's own number for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token {
    /// Who gets the reports.
    pub owner: Owner,
    /// What the owner knows it by. A report may come for a number that has been given to another descriptor since.
    pub id: u32,
}

/// A report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ready {
    /// Of which descriptor.
    pub token: Token,
    /// There is data, the end of it, an error, or somebody to accept.
    pub readable: bool,
    /// There is room, or an error.
    pub writable: bool,
}

/// Reports of one look, taken with [`Poller::wait`]. Separate from the set, so that one can sleep without holding what
/// the reports are for.
#[derive(Debug)]
pub struct Reports {
    events: [EpollEvent; 64],
    len: usize,
}

impl Default for Reports {
    fn default() -> Self {
        Self { events: [EpollEvent::empty(); 64], len: 0 }
    }
}

impl Reports {
    /// Those of the last look.
    pub fn iter(&self) -> impl Iterator<Item = Ready> + '_ {
        self.events[..self.len].iter().filter_map(|event| {
            let flags = event.events();
            let over = flags.intersects(EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR);
            Some(Ready {
                token: Token::from_word(event.data())?,
                readable: over || flags.intersects(EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP),
                writable: over || flags.contains(EpollFlags::EPOLLOUT),
            })
        })
    }
}

impl Token {
    fn word(self) -> u64 {
        (self.owner as u64) << 32 | u64::from(self.id)
    }

    fn from_word(word: u64) -> Option<Self> {
        let owner = match word >> 32 {
            1 => Owner::Shm,
            2 => Owner::Tcp,
            3 => Owner::Others,
            _ => return None,
        };
        Some(Self { owner, id: word as u32 })
    }
}

/// The set.
#[derive(Debug)]
pub struct Poller {
    epoll: Epoll,
}

impl Poller {
    /// An empty one; closed in programs that this one starts.
    pub fn new() -> io::Result<Self> {
        Ok(Self { epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)? })
    }

    /// Adds a descriptor, for reading and writing. If it is ready already it is reported.
    pub fn add(&self, descriptor: impl AsFd, token: Token) -> io::Result<()> {
        Ok(self.epoll.add(descriptor, Self::event(token))?)
    }

    /// Gives a descriptor another token. If it is ready it is reported again.
    pub fn change(&self, descriptor: impl AsFd, token: Token) -> io::Result<()> {
        Ok(self.epoll.modify(descriptor, &mut Self::event(token))?)
    }

    /// Takes a descriptor out. To be done before closing it: a forked child may hold the same socket, which would then stay.
    pub fn remove(&self, descriptor: impl AsFd) {
        // It fails for descriptors that are not in the set, which is what was asked for.
        let _ = self.epoll.delete(descriptor);
    }

    /// Sleeps until something is ready, at most this long (rounded up to milliseconds); zero only looks. A signal wakes it, too.
    pub fn wait(&self, reports: &mut Reports, limit: Duration) -> io::Result<()> {
        let limit_ms = limit.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128) as i32;
        let limit = EpollTimeout::try_from(limit_ms).unwrap_or(EpollTimeout::MAX);
        reports.len = 0;
        reports.len = match self.epoll.wait(&mut reports.events, limit) {
            Ok(len) => len,
            Err(nix::Error::EINTR) => 0,
            Err(error) => return Err(error.into()),
        };
        Ok(())
    }

    fn event(token: Token) -> EpollEvent {
        let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT | EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLET;
        EpollEvent::new(flags, token.word())
    }
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }
}

/// Sleeps until a descriptor is readable, at most this long (rounded up to milliseconds). A signal wakes it, too.
pub fn wait_readable<'a>(descriptors: impl Iterator<Item = BorrowedFd<'a>>, limit: Duration) {
    let limit_ms = limit.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128) as i32;
    let limit = PollTimeout::try_from(limit_ms).unwrap_or(PollTimeout::MAX);
    let mut waited_for = descriptors.map(|it| PollFd::new(it, PollFlags::POLLIN)).collect::<Vec<_>>();
    // Whatever it says, the caller looks for itself.
    let _ = poll(&mut waited_for, limit);
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn look(poller: &Poller) -> Vec<Ready> {
        let mut reports = Reports::default();
        poller.wait(&mut reports, Duration::ZERO).unwrap();
        reports.iter().collect()
    }

    #[test]
    fn a_descriptor_is_reported_once_for_each_change() {
        let poller = Poller::new().unwrap();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let token = Token { owner: Owner::Tcp, id: u32::MAX };
        poller.add(&ours, token).unwrap();
        assert_eq!(look(&poller), [Ready { token, readable: false, writable: true }]);
        assert_eq!(look(&poller), []);
        theirs.write_all(b"a").unwrap();
        assert_eq!(look(&poller), [Ready { token, readable: true, writable: true }]);
        assert_eq!(look(&poller), []);
        theirs.write_all(b"b").unwrap();
        assert_eq!(look(&poller).len(), 1);
        let other = Token { owner: Owner::Shm, id: 0 };
        poller.change(&ours, other).unwrap();
        assert_eq!(look(&poller)[0].token, other);
        drop(theirs);
        assert!(look(&poller)[0].readable);
        poller.remove(&ours);
        assert_eq!(look(&poller), []);
    }
}
