//! Shared memory: frames between processes of one node.
//!
//! Each process has one segment ([`segment`]) with the ring in which it receives ([`ring`]) and the cells from which it sends
//! ([`cells`]). A frame of up to 56 bytes, including its head, goes into a slot of the receiver's ring, and one of up to 224 bytes into as many
//! as it takes. A longer payload goes into a cell of the sender's segment; the slot names the cell, and the receiver copies from it. In the
//! steady state a small frame takes one to four cache lines and no system call, allocation or lock.
//!
//! Long messages go through cells, part by part, both sides copying at the same time; or the receiver reads them from the
//! sender's memory ([`cma`]), and a sender that is otherwise idle writes some of the pieces ([`share`]). Large cells are filled
//! through the caches or past them ([`copy`]). The payload of a large cell, too, can be read from the sender's memory
//! ([`lend`]). Messages from the memory of a device are copied by the device, if both processes can use it ([`device`]). In all these
//! cases the faster way differs between machines by a factor of up to ten, so it is measured during use ([`choice`], and for long messages
//! [`streams`]).
//!
//! Processes connect when they first communicate ([`connect`]), over unix sockets ([`socket`]) whose names follow from the names
//! of the processes; there they exchange segment and doorbell. The connection stays open, and its end reports the peer's
//! death. Frames that the peer sent before it died still arrive, except messages whose bytes lay in its
//! own memory ([`lend`]).
//!
//! [`Shm`] is one part of the process's transport: it has the methods of [`crate::engine::Transport`] for the peers that it was
//! told to expect, and a descriptor that becomes readable when there is something to do ([`Shm::fd`]).

mod allocations;
mod cells;
pub mod choice;
mod connect;
mod copy;
mod crowd;
mod descriptors;
mod device;
mod foreign;
mod geometry;
mod hello;
mod lend;
mod link;
mod member;
mod receiving;
mod ring;
mod segment;
mod sending;
mod share;
mod socket;
mod streams;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;
mod ticket;
mod trials;

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::engine::frame::Frame;
use crate::engine::{FrameLimits, Peer, Refusal, Sink};
use crate::memory::{self, Payload};
use crate::transport::name::ProcessName;

use crate::shared_memory::cma;
use crate::shared_memory::sync::Ordering;
use cells::{Pool, Timed};
use choice::{Way, ticks};
use connect::Caller;
use crowd::Crowd;
use descriptors::Room;
use geometry::{Geometry, LARGE, SMALL};
use link::{Link, LinkState};
use ring::{DATA, LONGEST, Receiver, slots_of};
use segment::Segment;
use sending::{head_len, put, put_long};
use share::{Offers, Shares};
pub(super) use socket::decline_as;

/// The settings of the shared-memory transport.
#[derive(Debug, Clone)]
pub struct ShmConfig {
    /// This process.
    pub me: ProcessName,
    /// Slots of the ring: a power of two.
    pub slots: u32,
    /// Cells of 4 KiB.
    pub small_cells: u32,
    /// Cells of 32 KiB.
    pub large_cells: u32,
    /// How long a peer may take to start listening.
    pub connect_limit: Duration,
    /// Whether a receiver may read long messages from the sender's memory.
    pub cma: bool,
    /// Whether a receiver may read messages from the sender's device memory.
    pub device_ipc: bool,
    /// How many peers may connect, for which descriptors are needed.
    pub peers: usize,
}

impl ShmConfig {
    /// The sizes that performed well in measurements.
    pub fn new(me: ProcessName) -> Self {
        let connect_limit = Duration::from_secs(30);
        Self { me, slots: 1024, small_cells: 64, large_cells: 64, connect_limit, cma: true, device_ipc: true, peers: 0 }
    }
}

/// A descriptor that ends this process's sleep when it becomes readable.
#[derive(Debug)]
pub struct Watched {
    set: Arc<Epoll>,
    bell: OwnedFd,
}

impl Drop for Watched {
    /// The epoll set would keep the descriptor as long as another process has it open.
    fn drop(&mut self) {
        let _ = self.set.delete(&self.bell);
    }
}

/// The shared memory of one process.
#[derive(Debug)]
pub struct Shm {
    config: ShmConfig,
    segment: Segment,
    receiver: Receiver,
    pool: Pool,
    /// `routes[peer]`: the index of its link, or [`NO_LINK`].
    routes: Vec<u16>,
    /// A peer marks its frames with the index of its link here.
    links: Vec<Link>,
    /// Links that are free for reuse.
    vacant: Vec<u16>,
    /// There is work besides the ring: connections being made, deaths.
    unsettled: bool,
    /// Polls since the sockets were last looked at.
    polls: u32,
    /// It has taken reports of the descriptors.
    has_looked: bool,
    names: HashMap<ProcessName, u16>,
    losses: Vec<(Peer, String)>,
    /// The process manager's message about the end of the job.
    news: Option<String>,
    /// The memory that peers may read.
    offers: Offers,
    /// The messages that are copied together with their senders.
    shares: Shares,
    /// The message that could not be read from its sender's memory, and whose cell is being filled.
    landing: Option<lend::Unread>,
    /// The number of frames from unknown links.
    strays: u64,
    callers: HashMap<u32, Caller>,
    next_caller: u32,
    listener: OwnedFd,
    segment_fd: OwnedFd,
    bell: EventFd,
    epoll: Arc<Epoll>,
    namespaces: [u64; 2],
    crowd: Crowd,
    room: Room,
    /// Gives up its place to refuse a caller when this process cannot open more files.
    spare: Option<OwnedFd>,
}

const NO_LINK: u16 = u16::MAX;
/// The number of polls between two checks of the sockets, which take a system call; the second one while a connection
/// is being made.
const LOOK_EVERY: u32 = 1024;
const LOOK_EVERY_UNSETTLED: u32 = 16;

/// In the lower half of a note: the length of a payload in slots.
const LEN: u32 = 0x1ff;
const _: () = assert!(LONGEST * DATA <= LEN as usize);
/// The payload is in a cell.
const IN_CELL: u32 = 0x200;
/// The receiver must report how many ticks its copy took.
const TIMED: u32 = 0x400;
/// Not a frame: the receiver asks its sender to take part in a copy.
const HELP: u32 = 0x800;
/// The receiver may read the payload from the sender's memory.
const LENT: u32 = 0x1000;
/// Not a frame: a part of a record of device memory ([`device`]).
const EXPORT: u32 = 0x2000;
/// Where a slot names the cell and the length, if it uses a cell.
const CELL_AT: usize = DATA - 8;

impl Shm {
    /// Creates the segment and starts to listen.
    pub fn new(config: ShmConfig) -> io::Result<Self> {
        let geometry = Geometry { slots: config.slots, small: config.small_cells, large: config.large_cells };
        let geometry = geometry.checked().ok_or(io::ErrorKind::InvalidInput)?;
        let (segment, segment_fd) = Segment::create(geometry)?;
        let listener = socket::listen_as(config.me)?;
        let bell = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, connect::LISTENER))?;
        // Edge-triggered, so that it need not be read.
        epoll.add(&bell, EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, connect::BELL))?;
        if config.cma {
            cma::allow();
        }
        let mut crowd = Crowd::default();
        crowd.add(0);
        segment.nonce().store(connect::nonce(config.me), Ordering::Relaxed);
        Ok(Self {
            pool: Pool::new(geometry),
            receiver: Receiver::default(),
            routes: Vec::new(),
            links: Vec::new(),
            vacant: Vec::new(),
            unsettled: false,
            polls: 0,
            has_looked: false,
            names: HashMap::new(),
            losses: Vec::new(),
            news: None,
            offers: Offers::default(),
            shares: Shares::default(),
            landing: None,
            strays: 0,
            callers: HashMap::new(),
            next_caller: 0,
            namespaces: cma::namespaces(),
            crowd,
            room: Room::for_peers(config.peers),
            spare: listener.try_clone().ok(),
            config,
            segment,
            listener,
            segment_fd,
            bell,
            epoll: Arc::new(epoll),
        })
    }

    /// Whether this process and its connected peers have fewer cores than they are.
    pub fn shares_cores(&self) -> bool {
        self.crowd.shares_cores()
    }

    /// Whether this process and its connected peers belong to one session.
    pub fn shares_session(&self) -> bool {
        self.crowd.shares_session()
    }

    /// Declares a peer of this name on this node. It may not have started yet; nothing happens before one of the two
    /// sends something to the other.
    pub fn expect(&mut self, peer: Peer, name: ProcessName) {
        let index = peer.0 as usize;
        let is_full = self.vacant.is_empty() && self.links.len() >= NO_LINK as usize;
        if is_full || self.names.contains_key(&name) {
            return;
        }
        if self.routes.len() <= index {
            self.routes.resize(index + 1, NO_LINK);
        }
        let new = Link { peer, name, state: LinkState::Idle, bye: false, listens: false, left: false };
        let link = match self.vacant.pop() {
            Some(vacant) => {
                self.links[vacant as usize] = new;
                vacant
            }
            None => {
                self.links.push(new);
                (self.links.len() - 1) as u16
            }
        };
        self.routes[index] = link;
        self.names.insert(name, link);
    }

    /// As long as the returned value lives, this descriptor ends this process's sleep when it becomes readable.
    pub fn watch_bell(&self, bell: OwnedFd) -> io::Result<Watched> {
        // Edge-triggered, so that it need not be read.
        self.epoll.add(&bell, EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, connect::BELL))?;
        Ok(Watched { set: Arc::clone(&self.epoll), bell })
    }

    #[inline(always)]
    fn route(&self, peer: Peer) -> Option<usize> {
        self.routes.get(peer.0 as usize).map(|link| *link as usize).filter(|link| *link < self.links.len())
    }

    /// As [`crate::engine::Transport::limits`].
    #[inline]
    pub fn limits(&self, _: Peer) -> FrameLimits {
        FrameLimits { eager: LARGE, eager_device: device::EAGER, part: LARGE, part_device: LARGE, lent: lend::FROM }
    }

    /// As [`crate::engine::Transport::try_send`].
    #[inline]
    pub fn try_send(&mut self, to: Peer, frame: &Frame, payload: Payload<'_>) -> Result<(), Refusal> {
        let Some(index) = self.route(to) else { return Err(Refusal::Lost) };
        self.transmit(index, frame, payload, false)
    }

    /// Sends a frame over a link; `is_whole` says that what a cell costs both sides is to be measured, as it is usually filled.
    #[inline(always)]
    fn transmit(&mut self, index: usize, frame: &Frame, payload: Payload<'_>, is_whole: bool) -> Result<(), Refusal> {
        let LinkState::Up(up) = &mut self.links[index].state else { return self.call(index) };
        let len = payload.len();
        let ring = up.segment.ring();
        let count = slots_of(head_len(frame) + len);
        if (2..=LONGEST).contains(&count) {
            if !ring.has_room(count, &mut up.known_head) {
                up.starved = true;
                return Err(Refusal::Full);
            }
            let mut pieces = [[0; DATA]; LONGEST];
            let room = memory::Room::new(pieces.as_flattened_mut());
            room.put_payload(frame.encode(room), payload);
            let sent = put_long(&self.segment, up, len as u32, &pieces[..count]);
            return if sent { Ok(()) } else { Err(Refusal::Full) };
        }
        let cell = if count == 1 {
            None
        } else {
            if !ring.has_room(1, &mut up.known_head) {
                up.starved = true;
                return Err(Refusal::Full);
            }
            if len > SMALL && !is_whole && up.fill.best().is_none() {
                self.pool.collect(&self.segment);
            }
            let cell = self.pool.take(&self.segment, len, index as u16).ok_or(Refusal::Full)?;
            let into = self.segment.cell_room(cell, len).ok_or(Refusal::Full)?;
            let (way, timed) = match len > SMALL && self.pool.was_filled(cell, len) {
                true if is_whole => (up.fill.best().unwrap_or(Way::First), true),
                true => up.fill.choose(),
                false => (Way::First, false),
            };
            let start = if timed { ticks() } else { 0 };
            match (way, payload.as_bytes()) {
                (Way::Second, Some(bytes)) => copy::stream(into, bytes),
                (Way::First | Way::Second, _) => into.put_payload(0, payload),
            }
            if timed {
                self.pool.time(cell, Timed { is_whole, way, len, ticks: ticks() - start });
            }
            Some((cell, if timed { IN_CELL | TIMED } else { IN_CELL }))
        };
        let sent = put(&self.segment, up, cell.map_or(len as u32, |(_, kind)| kind), |data| {
            let head_len = frame.encode(data);
            match cell {
                None => data.put_payload(head_len, payload),
                Some((cell, _)) => {
                    data.put(CELL_AT, cell.to_ne_bytes());
                    data.put(CELL_AT + 4, (len as u32).to_ne_bytes());
                }
            }
        });
        if !sent {
            cell.inspect(|(cell, _)| self.pool.undo(*cell));
            return Err(Refusal::Full);
        }
        if !self.pool.costs.is_empty() {
            self.learn();
        }
        if cell.is_some() && len <= SMALL {
            self.pool.fetch_next(&self.segment, len);
        }
        Ok(())
    }

    /// As [`crate::engine::Transport::poll`].
    #[inline]
    pub fn poll<S: Sink>(&mut self, sink: &mut S) -> bool {
        let mut came = self.poll_ring(sink);
        if !self.shares.is_empty() {
            came |= self.poll_shares(sink);
        }
        if !came && self.shares.is_asked() {
            came = self.help();
        }
        self.polls += 1;
        if self.is_look_due() { self.poll_sockets(sink) | came } else { came }
    }

    /// Whether the sockets must be looked at.
    #[inline]
    fn is_look_due(&self) -> bool {
        self.polls >= LOOK_EVERY || (self.unsettled && self.polls >= LOOK_EVERY_UNSETTLED)
    }

    /// Handles the sockets: incoming connections, answers, deaths. Call it when [`Shm::fd`] is readable; a poll does it
    /// every so often by itself.
    #[cold]
    pub fn poll_sockets<S: Sink>(&mut self, sink: &mut S) -> bool {
        self.polls = 0;
        let mut came = self.look();
        self.has_looked |= came;
        if self.unsettled {
            came |= self.settle(Instant::now(), sink);
        }
        came
    }

    /// Evaluates the costs of timed cells.
    #[cold]
    fn learn(&mut self) {
        for (link, timed) in self.pool.costs.drain(..) {
            if let LinkState::Up(up) = &mut self.links[link as usize].state {
                match timed.is_whole {
                    true => up.lending.learn(Way::First, timed.ticks, timed.len),
                    false => up.fill.learn(timed.way, cells::weighed(&timed), timed.len),
                }
            }
        }
    }

    /// A sender has waited for room in this process's ring; it is unknown which one, so all are woken.
    #[cold]
    fn wake_all(&self) {
        for link in &self.links {
            if let LinkState::Up(up) = &link.state {
                up.wake();
            }
        }
    }

    /// Readable when there may be something to do, provided that [`Shm::prepare_sleep`] has been called since the last
    /// poll.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }

    /// Asks all peers to ring the doorbell from now on. Returns false, without asking, if something has arrived
    /// meanwhile or a refused frame may be accepted now.
    pub fn prepare_sleep(&mut self) -> bool {
        if !self.segment.ring().prepare_sleep(&self.receiver) {
            return false;
        }
        let mut ready = self.pool.await_refill(&self.segment) || self.shares.is_asked() || self.has_finished_shares();
        for link in &mut self.links {
            if let LinkState::Up(up) = &mut link.state
                && up.starved
            {
                up.starved = !up.segment.ring().await_room(&mut up.known_head);
                ready |= !up.starved;
            }
        }
        if ready {
            self.awake();
        }
        !ready
    }

    /// Reverts [`Shm::prepare_sleep`].
    pub fn awake(&mut self) {
        self.segment.ring().awake();
    }

    /// Whether a poll has taken reports of the descriptors since the last call. A thread that sleeps on the descriptors does not get these.
    #[inline]
    pub fn has_looked(&mut self) -> bool {
        std::mem::take(&mut self.has_looked)
    }

    /// When to poll again at the latest, even if nothing arrives.
    pub fn sleep_limit(&self) -> Option<Duration> {
        if self.unsettled { Some(self.next_call(Instant::now())) } else { None }
    }

    /// Sleeps until there may be something to poll, at most `limit`; for a process that has no other transport.
    pub fn park(&mut self, limit: Duration) {
        if self.prepare_sleep() {
            let limit = self.sleep_limit().map_or(limit, |sooner| sooner.min(limit));
            let limit = PollTimeout::try_from(limit + Duration::from_micros(999)).unwrap_or(PollTimeout::MAX);
            let _ = poll(&mut [PollFd::new(self.fd(), PollFlags::POLLIN)], limit);
            self.awake();
        }
        self.polls = LOOK_EVERY;
    }

    /// The used part of the own ring, from 0 to 1.
    pub fn ring_fill(&self) -> f64 {
        let ring = self.segment.ring();
        let used = ring.tail().saturating_sub(self.receiver.next());
        (used as f64 / ring.slots.len() as f64).min(1.0)
    }

    /// Describes how frames reach a peer, and why.
    pub fn describe(&self, peer: Peer) -> String {
        match self.route(peer).map(|index| &self.links[index].state) {
            None => "not on this node".into(),
            Some(LinkState::Idle) => "not connected".into(),
            Some(LinkState::Calling(call)) => format!("connecting: {}", call.last),
            Some(LinkState::Left(_) | LinkState::Over) => "over".into(),
            Some(LinkState::Up(up)) => match &up.cma {
                cma::Verdict::Yes(_) => match up.streams.best() {
                    Some(Way::First) => "copy through cells (faster than cma here)".into(),
                    Some(Way::Second) => "cma (faster than copying through cells here)".into(),
                    None => "cma or copy through cells, whichever is measured faster".into(),
                },
                cma::Verdict::No(reason) => format!("copy through cells (cma: {reason}; {})", cma::devices()),
            },
        }
    }
}
