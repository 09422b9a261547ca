//! The one place where a process sleeps: an epoll set that all transports share.
//!
//! Everything is edge-triggered: a descriptor is reported once when it becomes ready, and again only after new data, or new
//! room after a send was refused. After a report, the owner reads until nothing is left, at once or in later polls; data that
//! arrive between the last read and the sleep are reported at once. So the set does not change while messages flow, and an
//! eventfd that is never read can serve as a doorbell.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

/// The transport that a descriptor belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Owner {
    /// Shared memory: doorbells and unix sockets.
    Shm = 1,
    /// TCP.
    Tcp = 2,
    /// No transport: the threads that sleep check what these reports are about.
    Others = 3,
}

/// Identifies a descriptor: its transport, and that transport's number for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token {
    /// The transport that gets the reports.
    pub owner: Owner,
    /// The owner's number for the descriptor. A late report may have a number that now belongs to another descriptor.
    pub id: u32,
}

/// A report about one descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ready {
    /// The descriptor.
    pub token: Token,
    /// There is data, end of stream, an error, or a connection to accept.
    pub readable: bool,
    /// There is room, or an error.
    pub writable: bool,
}

/// The reports of one [`Poller::wait`]. They are separate from the set, so that a thread can sleep without holding the
/// state that the reports are about.
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
    /// The reports of the last wait.
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

/// The epoll set.
#[derive(Debug)]
pub struct Poller {
    epoll: Epoll,
}

impl Poller {
    /// Creates an empty set, which is closed in programs that this process executes.
    pub fn new() -> io::Result<Self> {
        Ok(Self { epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)? })
    }

    /// Adds a descriptor for reading and writing. It is reported at once if it is already ready.
    pub fn add(&self, descriptor: impl AsFd, token: Token) -> io::Result<()> {
        Ok(self.epoll.add(descriptor, Self::event(token))?)
    }

    /// Gives a descriptor another token. It is reported again if it is ready.
    pub fn change(&self, descriptor: impl AsFd, token: Token) -> io::Result<()> {
        Ok(self.epoll.modify(descriptor, &mut Self::event(token))?)
    }

    /// Removes a descriptor. Call this before closing it: a forked child may hold the same socket, which would keep it
    /// in the set.
    pub fn remove(&self, descriptor: impl AsFd) {
        // It fails for descriptors that are not in the set, which is the desired state.
        let _ = self.epoll.delete(descriptor);
    }

    /// Sleeps until a descriptor is ready or `limit` (rounded up to milliseconds) is over; zero only checks. A signal
    /// also ends the sleep.
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

/// Sleeps until a descriptor is readable or `limit` (rounded up to milliseconds) is over. A signal also ends the sleep.
pub fn wait_readable<'a>(descriptors: impl Iterator<Item = BorrowedFd<'a>>, limit: Duration) {
    let limit_ms = limit.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128) as i32;
    let limit = PollTimeout::try_from(limit_ms).unwrap_or(PollTimeout::MAX);
    let mut waited_for = descriptors.map(|it| PollFd::new(it, PollFlags::POLLIN)).collect::<Vec<_>>();
    // The caller checks by itself, whatever the result is.
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
