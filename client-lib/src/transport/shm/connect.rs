//! How two processes connect, and how a process notices that its peer has died.
//!
//! A process that has something to send connects to the peer's socket and says hello; the peer answers with its own hello.
//! Each pair has one connection, for both directions. If both call at once, the call of the process with the smaller name
//! wins: that process refuses the other's call, and the other process drops its own when it sees the winner's. A call
//! without an answer, because the peer has not started yet or does not expect this process yet, is retried until a deadline.
//!
//! If the connection or the process ends without a farewell, the peer has died. Frames that it has put into the ring by then
//! still arrive. If it died between claiming slots and publishing them, they are skipped: each process stores the positions
//! that it is about to claim in its own segment, where the receiver finds them.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::epoll::{EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{Shutdown, shutdown};

use super::descriptors;
use super::hello::Hello;
use super::link::{Call, Link, LinkState, Up};
use super::ring::LONGEST;
use super::segment::Segment;
use super::socket::{self, NoAnswer, Received};
use super::{NO_LINK, Shm};
use crate::engine::{Refusal, Sink};
use crate::shared_memory::cma::{self, Verdict};
use crate::shared_memory::sync::Ordering;
use crate::transport::name::ProcessName;

/// Epoll tokens: a link has its index, a caller its own number plus [`CALLER`].
pub(super) const LISTENER: u64 = u64::MAX;
pub(super) const BELL: u64 = u64::MAX - 1;
const CALLER: u64 = 1 << 32;

/// How long a caller may take to say hello.
const HELLO_LIMIT: Duration = Duration::from_secs(10);
/// The most callers that have not said hello yet.
const CALLERS: usize = 1024;
/// The first pause between two attempts; it doubles.
const FIRST_PAUSE: Duration = Duration::from_micros(200);
const LAST_PAUSE: Duration = Duration::from_millis(50);

/// Why a peer that shares no memory is lost.
const DIFFERS: &str =
    "it runs with RSD_MPI_SHM=off, and this process does not: set it to the same value for all processes of a node";

/// A connection that has not said hello yet.
#[derive(Debug)]
pub(super) struct Caller {
    socket: OwnedFd,
    since: Instant,
}

/// A word that no other process has at the same address.
pub(super) fn nonce(me: ProcessName) -> u64 {
    use std::hash::BuildHasher;
    std::collections::hash_map::RandomState::new().hash_one(me) | 1
}

/// How senders name a ring in their intents: not 0, but the lowest bits are.
fn ring_id(nonce: u64) -> u32 {
    nonce as u32 & !COUNTS | (COUNTS + 1)
}

/// The bits of an intent's ring that say how many slots are claimed, less one.
const COUNTS: u32 = LONGEST.next_power_of_two() as u32 - 1;

/// Whether an intent covers a position of this ring; `word` is the position + 1, as in a slot's word.
fn claims(intent: u64, ring_id: u32, word: u32) -> bool {
    let (ring, first) = ((intent >> 32) as u32, intent as u32);
    ring & !COUNTS == ring_id && word.wrapping_sub(first) <= ring & COUNTS
}

/// The intent of a sender that claims so many slots of a ring, from a position on; never 0.
#[inline(always)]
pub(super) fn claim_of(ring_id: u32, position: u64, count: u64) -> u64 {
    u64::from(ring_id | (count as u32 - 1)) << 32 | u64::from(position.wrapping_add(1) as u32)
}

impl Shm {
    /// Connects to a peer for which there is a frame.
    #[cold]
    pub(super) fn call(&mut self, index: usize) -> Result<(), Refusal> {
        match &self.links[index].state {
            LinkState::Idle => {
                let now = Instant::now();
                let deadline = now + self.config.connect_limit;
                let call = Call { socket: None, deadline, next_try: now, tries: 0, last: "not tried yet".into() };
                self.links[index].state = LinkState::Calling(call);
                self.try_call(index, now);
                Err(Refusal::Full)
            }
            LinkState::Calling(_) | LinkState::Up(_) => Err(Refusal::Full),
            LinkState::Left(_) | LinkState::Over => Err(Refusal::Lost),
        }
    }

    fn try_call(&mut self, index: usize, now: Instant) {
        self.unsettled = true;
        let name = self.links[index].name;
        let called = socket::call(name);
        if matches!(called, Err(NoAnswer::Off)) {
            return self.lose(index, DIFFERS);
        }
        if self.links[index].listens && matches!(called, Err(NoAnswer::Nobody)) {
            let reason = match &self.news {
                Some(news) => format!("it does not listen; the process manager says: {news}"),
                None => "its process has exited".to_owned(),
            };
            return self.lose(index, &reason);
        }
        let called = called.map_err(|why| match why {
            NoAnswer::Nobody => "no process listens there".to_string(),
            NoAnswer::Off => DIFFERS.to_owned(),
            NoAnswer::Foreign(why) => why,
            NoAnswer::Failed(errno) => descriptors::describe(errno, self.links.len() + 1),
        });
        let connected = called.and_then(|(socket, pid)| {
            self.greet(&socket, index).map(|()| (socket, pid)).map_err(|error| error.to_string())
        });
        let connected = connected.and_then(|(socket, pid)| {
            let event = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP, index as u64);
            self.epoll.add(&socket, event).map_err(|errno| errno.desc().to_string())?;
            Ok((socket, pid))
        });
        let LinkState::Calling(call) = &mut self.links[index].state else { return };
        match connected {
            Ok(socket) => call.socket = Some(socket),
            Err(reason) => call.put_off(now, reason),
        }
    }

    fn greet(&self, socket: &OwnedFd, index: usize) -> nix::Result<()> {
        let nonce = self.segment.nonce();
        let hello = Hello {
            from: self.config.me,
            to: self.links[index].name,
            sign: index as u16,
            geometry: self.segment.geometry(),
            nonce: nonce.load(Ordering::Relaxed),
            probe: std::ptr::from_ref(nonce) as u64,
            namespaces: self.namespaces,
        };
        socket::send_hello(socket, &hello, self.segment_fd.as_fd(), self.bell.as_fd())
    }

    /// Handles all socket events; returns whether there were any.
    pub(super) fn look(&mut self) -> bool {
        let mut events = [EpollEvent::empty(); 64];
        let count = self.epoll.wait(&mut events, EpollTimeout::ZERO).unwrap_or(0);
        for event in &events[..count] {
            match event.data() {
                LISTENER => self.answer_all(),
                BELL => {}
                token if token & CALLER != 0 => self.read_caller(token as u32),
                token => drop(self.read_link(token as usize)),
            }
        }
        count > 0
    }

    fn answer_all(&mut self) {
        let now = Instant::now();
        self.callers.retain(|_, caller| now - caller.since < HELLO_LIMIT);
        loop {
            let socket = match socket::answer(&self.listener) {
                Ok(socket) => socket,
                // The kernel reports this even if there is no caller.
                Err(Errno::EMFILE | Errno::ENFILE) => match socket::refuse(&self.listener, &mut self.spare) {
                    true => continue,
                    false => return,
                },
                Err(_) => return,
            };
            if self.callers.len() >= CALLERS || socket::process_behind(&socket).is_err() {
                continue;
            }
            let id = self.next_caller;
            self.next_caller = self.next_caller.wrapping_add(1);
            let event = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP, CALLER | u64::from(id));
            if self.epoll.add(&socket, event).is_ok() {
                self.callers.insert(id, Caller { socket, since: now });
                // Most callers have already said hello.
                self.read_caller(id);
            }
        }
    }

    fn read_caller(&mut self, id: u32) {
        let Some(caller) = self.callers.get(&id) else { return };
        let (packet, fds) = match socket::receive(&caller.socket) {
            Received::Nothing => return,
            Received::Packet(packet, fds) => (packet, fds),
            Received::End => return drop(self.callers.remove(&id)),
        };
        let Some(Caller { socket, .. }) = self.callers.remove(&id) else { return };
        let _ = self.epoll.delete(&socket);
        // A refused caller finds the connection closed, and calls again if it needs to.
        let Ok(hello) = Hello::decode(&packet) else { return };
        let Some(index) = self.names.get(&hello.from).map(|index| *index as usize) else { return };
        let ours_wins = self.config.me < hello.from;
        match &self.links[index].state {
            LinkState::Idle => {}
            LinkState::Calling(call) if call.socket.is_none() || !ours_wins => {}
            LinkState::Calling(_) | LinkState::Up(_) | LinkState::Left(_) | LinkState::Over => return,
        }
        let Ok(pid) = socket::process_behind(&socket) else { return };
        if hello.to != self.config.me || self.greet(&socket, index).is_err() {
            return;
        }
        self.connect(index, socket, pid, &hello, fds);
    }

    /// Handles an event on a link's socket, or the end of its process; returns whether the link is up now.
    fn read_link(&mut self, index: usize) -> bool {
        let Some(link) = self.links.get_mut(index) else { return false };
        match &mut link.state {
            LinkState::Idle | LinkState::Over => false,
            LinkState::Left(_) => {
                self.read_left(index);
                false
            }
            LinkState::Calling(call) => {
                let Some((socket, _)) = &call.socket else { return false };
                match socket::receive(socket) {
                    Received::Nothing => false,
                    Received::End => {
                        self.hang_up(index);
                        if let LinkState::Calling(call) = &mut self.links[index].state {
                            call.put_off(Instant::now(), "it closed the connection".into());
                        }
                        false
                    }
                    Received::Packet(packet, fds) => {
                        let Some((socket, pid)) = call.socket.take() else { return false };
                        let _ = self.epoll.delete(&socket);
                        match Hello::decode(&packet) {
                            Ok(hello) if hello.from == link.name => self.connect(index, socket, pid, &hello, fds),
                            Ok(hello) => self.lose(index, &format!("{} answered in its place", hello.from)),
                            Err(error) => self.lose(index, &error.to_string()),
                        }
                        matches!(self.links[index].state, LinkState::Up(_))
                    }
                }
            }
            LinkState::Up(up) => {
                let ended = up.process.as_ref().is_some_and(is_readable);
                if up.ends_at.is_none() && (ended || matches!(socket::receive(&up.socket), Received::End)) {
                    let _ = self.epoll.delete(&up.socket);
                    if let Some(process) = up.process.take() {
                        let _ = self.epoll.delete(&process);
                    }
                    let slots = self.segment.ring().slots.len() as u64;
                    up.ends_at = Some(self.segment.ring().tail().min(self.receiver.next() + slots));
                    self.unsettled = true;
                }
                true
            }
        }
    }

    /// Whether a link that was calling is now up: a peer may send as soon as it has answered.
    #[cold]
    pub(super) fn is_answered(&mut self, index: usize) -> bool {
        self.read_link(index)
    }

    fn connect(&mut self, index: usize, socket: OwnedFd, pid: i32, hello: &Hello, fds: Vec<OwnedFd>) {
        match self.make_up(socket, pid, hello, fds) {
            Ok(up) => {
                self.hang_up(index);
                let events = EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP;
                let _ = self.epoll.add(&up.socket, EpollEvent::new(events, index as u64));
                if let Some(process) = &up.process {
                    let _ = self.epoll.add(process, EpollEvent::new(EpollFlags::EPOLLIN, index as u64));
                }
                self.links[index].state = LinkState::Up(Box::new(up));
            }
            Err(error) => self.lose(index, &error.to_string()),
        }
    }

    fn make_up(&mut self, socket: OwnedFd, pid: i32, hello: &Hello, fds: Vec<OwnedFd>) -> io::Result<Up> {
        let [segment, bell]: [OwnedFd; 2] = fds.try_into().map_err(|_| match socket::is_exhausted() {
            true => io::Error::other(descriptors::describe(Errno::EMFILE, self.links.len() + 1)),
            false => io::Error::other("it did not pass its segment and doorbell"),
        })?;
        let (bell, socket) = (self.room.settle(bell), self.room.settle(socket));
        let segment = Segment::open(segment.as_fd(), hello.geometry)?;
        socket::set_nonblocking(&bell)?;
        let cma = match self.config.cma {
            true => cma::probe(pid, hello.probe, hello.nonce, [self.namespaces, hello.namespaces]),
            false => Verdict::No("switched off".into()),
        };
        if pid > 0 {
            self.crowd.add(pid);
            self.pool.set_crowded(self.crowd.shares_cores());
        }
        let mut up = Up::new(segment, bell, socket, hello.sign, ring_id(hello.nonce), cma);
        up.pid = pid;
        up.process = socket::process_fd(pid).map(|process| self.room.settle(process));
        Ok(up)
    }

    /// Advances calls and deaths, and reports what has to be reported; returns whether there was anything.
    pub(super) fn settle<S: Sink>(&mut self, now: Instant, sink: &mut S) -> bool {
        let mut came = false;
        let mut unsettled = false;
        for index in 0..self.links.len() {
            match &self.links[index].state {
                LinkState::Calling(call) if call.socket.is_none() && now >= call.deadline => {
                    let (tries, last) = (call.tries, call.last.clone());
                    let reason = format!(
                        "it is unreachable on this node (attempts: {tries}, socket @{}): {last}",
                        socket::address_of(self.links[index].name)
                    );
                    self.lose(index, &reason);
                }
                LinkState::Calling(call) if call.socket.is_none() && now >= call.next_try => self.try_call(index, now),
                LinkState::Up(up) => {
                    if let Some(end) = up.ends_at {
                        came |= self.drain(index, end, sink);
                    }
                }
                LinkState::Idle | LinkState::Calling(_) | LinkState::Left(_) | LinkState::Over => {}
            }
            unsettled |= match &self.links[index].state {
                LinkState::Calling(_) => true,
                LinkState::Up(up) => up.ends_at.is_some(),
                LinkState::Idle | LinkState::Left(_) | LinkState::Over => false,
            };
        }
        self.unsettled = unsettled;
        for (peer, reason) in std::mem::take(&mut self.losses) {
            sink.on_lost(peer, &reason);
            came = true;
        }
        came
    }

    /// Delivers what arrived before a peer's death, then reports the death.
    fn drain<S: Sink>(&mut self, index: usize, end: u64, sink: &mut S) -> bool {
        let mut came = false;
        while self.receiver.next() < end {
            came |= self.poll_ring(sink);
            if self.receiver.next() >= end {
                break;
            }
            let unclaimed = self.segment.ring().tail() <= self.receiver.next();
            if !unclaimed && !self.is_claimed_by_the_dead() {
                return came; // a live process is about to publish it
            }
            // It may have been published just before its sender died.
            let before = self.receiver.next();
            if self.poll_ring(sink) {
                if self.receiver.next() == before {
                    return true; // the engine has left the frame until the next poll
                }
                came = true;
                continue;
            }
            if self.segment.ring().is_published(&self.receiver) {
                return came; // a live process is filling its cell
            }
            self.segment.ring().skip(&mut self.receiver);
            if self.segment.ring().give_room(&mut self.receiver) {
                self.wake_all();
            }
        }
        self.lose(index, "it exited without finalizing MPI");
        true
    }

    /// Whether the next slot is claimed by a peer that has died, and by no other process.
    fn is_claimed_by_the_dead(&self) -> bool {
        let own = ring_id(self.segment.nonce().load(Ordering::Relaxed));
        let next = self.receiver.next().wrapping_add(1) as u32;
        let mut dead = false;
        for link in &self.links {
            match &link.state {
                LinkState::Up(up) if claims(up.segment.intent().load(Ordering::Acquire), own, next) => match up.ends_at
                {
                    Some(_) => dead = true,
                    None => return false,
                },
                // The positions that this peer has claimed are not visible yet.
                LinkState::Calling(call) if call.socket.is_some() => return false,
                LinkState::Idle | LinkState::Calling(_) | LinkState::Up(_) | LinkState::Left(_) | LinkState::Over => {}
            }
        }
        dead
    }

    /// Marks a peer as lost: nothing more will arrive from it.
    #[cold]
    pub(super) fn lose(&mut self, index: usize, reason: &str) {
        self.hang_up(index);
        let link = &mut self.links[index];
        if matches!(link.state, LinkState::Over) {
            return;
        }
        if !link.bye {
            self.losses.push((link.peer, format!("{}: {reason}", link.name)));
        }
        let state = std::mem::replace(&mut link.state, LinkState::Over);
        if link.left {
            self.vacant.push(index as u16);
        }
        if let LinkState::Up(up) | LinkState::Left(up) = state {
            self.uncount(up.pid);
        }
        debug_assert!(index < NO_LINK as usize);
        self.pool.reclaim(index as u16);
        self.shares.forget(index as u16);
        self.unsettled = true;
    }

    /// A peer's connection is over; the process may be connected as another peer.
    fn uncount(&mut self, pid: i32) {
        let is_of_it = |link: &Link| match &link.state {
            LinkState::Up(up) | LinkState::Left(up) => up.pid == pid,
            LinkState::Idle | LinkState::Calling(_) | LinkState::Over => false,
        };
        if !self.links.iter().any(is_of_it) {
            self.crowd.remove(pid);
            self.pool.set_crowded(self.crowd.shares_cores());
        }
    }

    /// Ends a call that has not been answered yet. A child of this process may hold the socket too, so it is not enough to close it.
    pub(super) fn hang_up(&mut self, index: usize) {
        if let LinkState::Calling(call) = &mut self.links[index].state
            && let Some((socket, _)) = call.socket.take()
        {
            let _ = self.epoll.delete(&socket);
            let _ = shutdown(socket.as_raw_fd(), Shutdown::Both);
        }
    }

    /// The time until a call must be retried. The socket reports on a call in progress.
    pub(super) fn next_call(&self, now: Instant) -> Duration {
        if !self.losses.is_empty() {
            return Duration::ZERO;
        }
        let due = self.links.iter().filter_map(|link| match &link.state {
            LinkState::Calling(call) if call.socket.is_none() => Some(call.next_try.saturating_duration_since(now)),
            LinkState::Up(up) if up.ends_at.is_some() => Some(FIRST_PAUSE),
            LinkState::Idle | LinkState::Calling(_) | LinkState::Up(_) | LinkState::Left(_) | LinkState::Over => None,
        });
        due.min().unwrap_or(LAST_PAUSE)
    }
}

impl Call {
    fn put_off(&mut self, now: Instant, reason: String) {
        self.socket = None;
        self.tries += 1;
        self.last = reason;
        self.next_try = now + FIRST_PAUSE.saturating_mul(1 << self.tries.min(10)).min(LAST_PAUSE);
    }
}

pub(super) fn is_readable(fd: &OwnedFd) -> bool {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    poll(&mut [PollFd::new(fd.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO) == Ok(1)
}
