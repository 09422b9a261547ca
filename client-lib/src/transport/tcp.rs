//! Frames over TCP: one connection for each pair of processes that communicate, made when the first of them sends.
//!
//! [`Tcp::expect`] declares a peer. When there is something to send, the address of the peer is requested
//! ([`Tcp::next_wanted`]) and supplied with [`Tcp::locate`]. Both sides prove that they know the job's secret ([`hello`]). If
//! two processes dial each other at the same time, the dial of the process with the smaller [`ProcessName`] wins: that process
//! refuses the other's dial once its own may have been accepted, and the other drops its own when the winner's arrives.
//!
//! A send goes to the socket at once ([`link`]). Every poll reads from the connections that were active recently, without
//! asking whether there is data: one system call per message. The [`Poller`] reports the others, and the owner of this value
//! passes its reports to [`Tcp::on_ready`]. Nothing here blocks.
//!
//! A process behind a router or a firewall cannot be dialled from other machines ([`reaching`]): it dials the others before there is
//! anything to send, and they wait for its dials.
//!
//! If the user has named several interfaces, long messages go over all of them at once ([`rails`]).
//!
//! If many processes on other hosts send long messages to this one and the network loses data, only some of them send at a time
//! ([`admission`]), and the eager limit falls ([`loss`]).
//!
//! A foreign process that connects to the port can only hold one of [`UNIDENTIFIED_MAX`] places for [`TcpConfig::hello_limit`].
//! Memory: 16 bytes for each peer, about 300 for each connection, one scratch buffer, and up to a frame for each connection
//! whose peer is slow.
//!
//! The kernel reports the end of a peer's process at once; the loss of a host is noticed after half a minute ([`socket`]).

mod admission;
mod connecting;
mod directory;
mod end;
mod foreign;
mod handshake;
mod hello;
mod lanes;
mod link;
mod loss;
pub mod port;
mod private;
mod queue;
mod rails;
mod reaching;
mod slab;
mod socket;
mod wire;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use admission::{Admission, Request};
use directory::{Directory, Way};
use end::{End, Got};
use handshake::{Greeting, Own};
use link::Link;
use loss::LOSSY_EAGER;
use private::Private;
pub use private::close_in_child;
use rails::Rails;
use reaching::Reaching;
use slab::Slab;

use super::address::Interface;
use super::name::ProcessName;
use super::poller::{Owner, Poller, Ready, Token};
use crate::device;
use crate::engine::{Frame, FrameLimits, Peer, Refusal, Sink};
use crate::memory::Payload;

/// The settings of the TCP transport.
#[derive(Debug)]
pub struct TcpConfig {
    /// This process.
    pub me: ProcessName,
    /// A secret that only the processes of the job know.
    pub secret: [u8; 32],
    /// The socket where others reach this process.
    pub listen: Listen,
    /// The address to announce to others, if it is not the listening address.
    pub advertise: Option<IpAddr>,
    /// The interfaces for long messages, if there are several: the first is the one of the socket.
    pub rails: Vec<Interface>,
    /// How long an attempt to connect may take.
    pub connect_limit: Duration,
    /// How long a connection may be silent before its hello.
    pub hello_limit: Duration,
    /// The longest payloads of one frame; at most 4 MiB.
    pub limits: FrameLimits,
}

/// A listening socket, made here or inherited.
#[derive(Debug)]
pub enum Listen {
    /// At this address, on a port that the system chooses.
    At(IpAddr),
    /// Inherited from the process that started this one.
    Inherited(OwnedFd),
}

/// Why TCP is unavailable. Each text reads after "failed to".
#[derive(Debug, thiserror::Error)]
pub enum TcpError {
    /// Cannot listen at this address.
    #[error("listen on {at}: {source}")]
    Listen {
        /// The configured address.
        at: IpAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The inherited descriptor is not a listening socket.
    #[error("listen on the inherited socket: {source}")]
    Inherited {
        /// The system's error.
        source: io::Error,
    },
    /// The socket listens on all addresses, and none was configured to announce.
    #[error("announce the address of this process: the socket listens on all addresses of the host")]
    NoAddress,
}

/// The default limits. Over loopback long parts are fastest (4 MiB at 6.5 GB/s in parts of 1 MiB, 5.6 of 512 KiB, 4.2
/// of 256 KiB): each part ends with a system call and a short segment.
pub const LIMITS: FrameLimits = FrameLimits {
    eager: 128 << 10,
    eager_device: 128 << 10,
    part: 1 << 20,
    part_device: device::CHUNK,
    lent: usize::MAX,
};

/// The most connections that may be silent at a time; if there is one more, the oldest is closed.
pub const UNIDENTIFIED_MAX: usize = 64;

/// A connection is polled for this many polls after its last message.
const HEAT: u32 = 1_000;
/// If more connections than this are hot, they are read only when the poller reports them.
const HOT: usize = 4;
/// The most reads from one connection in one poll.
const READS: usize = 8;
/// The size of the buffer for reads that do not go directly to user memory: 64 KiB and their frame.
const SCRATCH: usize = (64 << 10) + 512;
/// Polls without result between two readings of the clock.
const PATIENCE: u32 = 256;
/// How often open connections are checked for hosts that have vanished.
const LOOK: Duration = Duration::from_secs(5);
/// How long no connection is accepted after the descriptors have run out.
const REST: Duration = Duration::from_millis(100);

/// Which connections are read in every poll, because there was data on them a short time ago.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reads {
    /// None, or so many that it is better to wait for reports.
    None,
    /// Some: data on others is not seen without a report.
    Some,
    /// All.
    All,
}

/// The TCP part of a process's transport.
#[derive(Debug)]
pub struct Tcp {
    own: Own,
    limits: FrameLimits,
    address: SocketAddr,
    listener: Private<TcpListener>,
    poller: Arc<Poller>,
    directory: Directory,
    reaching: Reaching,
    links: Slab<Link>,
    greetings: Slab<Greeting>,
    rails: Option<Box<Rails>>,
    admission: Admission,
    /// The number of lossy links.
    lossy: usize,
    /// Links that are polled.
    active: Vec<u32>,
    /// Peers whose address is wanted.
    wanted: VecDeque<Peer>,
    /// The listening addresses of peers of other jobs.
    addresses: HashMap<Peer, SocketAddr>,
    /// Losses that have not been reported to the sink yet.
    losses: VecDeque<(Peer, String)>,
    scratch: Box<[u8]>,
    /// Memory for data that a socket does not accept.
    spare: Vec<u8>,
    refused: u64,
    idle_polls: u32,
    next_look: Instant,
    /// When to accept again.
    resting: Option<Instant>,
}

/// The meaning of a number in the poller's set.
enum Id {
    Listener,
    Greeting(u32),
    Link(u32),
}

impl Id {
    const fn token(self) -> Token {
        let id = match self {
            Self::Listener => 0,
            Self::Greeting(id) => (id << 1 | 1) + 1,
            Self::Link(id) => (id << 1) + 1,
        };
        Token { owner: Owner::Tcp, id }
    }

    const fn of(token: Token) -> Self {
        match token.id {
            0 => Self::Listener,
            id if (id - 1) & 1 == 1 => Self::Greeting((id - 1) >> 1),
            id => Self::Link((id - 1) >> 1),
        }
    }
}

impl Tcp {
    /// Starts to listen; no peer is known yet.
    pub fn new(config: TcpConfig, poller: Arc<Poller>) -> Result<Self, TcpError> {
        let TcpConfig { me, secret, listen, advertise, rails, connect_limit, hello_limit, limits } = config;
        let listener = match listen {
            Listen::At(at) => socket::listen(at).map_err(|source| TcpError::Listen { at, source })?,
            Listen::Inherited(socket) => socket::inherited(socket).map_err(|source| TcpError::Inherited { source })?,
        };
        let inherited = |source| TcpError::Inherited { source };
        let mut address = listener.local_addr().map_err(inherited)?;
        if let Some(advertise) = advertise {
            address.set_ip(advertise);
        }
        if address.ip().is_unspecified() {
            return Err(TcpError::NoAddress);
        }
        poller.add(&listener, Id::Listener.token()).map_err(inherited)?;
        let eager = limits.eager.min(wire::FRAME_MAX);
        let part = |part: usize| part.clamp(1, wire::FRAME_MAX);
        let limits = FrameLimits {
            eager,
            eager_device: eager,
            part: part(limits.part),
            part_device: part(limits.part_device),
            ..limits
        };
        Ok(Self {
            own: Own::of_job(me, secret, connect_limit, hello_limit),
            limits,
            address,
            listener: Private::new(listener),
            poller,
            directory: Directory::new(me.world),
            reaching: Reaching::default(),
            links: Slab::new(),
            greetings: Slab::new(),
            rails: Rails::new(rails),
            admission: Admission::new(),
            lossy: 0,
            active: Vec::new(),
            wanted: VecDeque::new(),
            addresses: HashMap::new(),
            losses: VecDeque::new(),
            scratch: vec![0; SCRATCH].into(),
            spare: Vec::new(),
            refused: 0,
            idle_polls: 0,
            next_look: Instant::now() + LOOK,
            resting: None,
        })
    }

    /// Where others reach this process: `a.b.c.d:port` or `[v6]:port`.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Replaces the configured secret. Call this before the first poll, if the address had to be known first.
    pub fn set_secret(&mut self, secret: [u8; 32]) {
        self.own.secret = secret;
    }

    /// Declares a peer that is reachable over TCP and may connect. Nothing happens until either side sends.
    pub fn expect(&mut self, peer: Peer, name: ProcessName) {
        self.directory.add(peer, name);
    }

    /// A peer whose address is needed now; each is returned once.
    pub fn next_wanted(&mut self) -> Option<Peer> {
        while let Some(peer) = self.wanted.pop_front() {
            if self.directory.way(peer) == Some(Way::Wanted) {
                return Some(peer);
            }
        }
        None
    }

    /// Supplies the address of a wanted peer, as [`Tcp::address`] returned it there, or the reason why there is none.
    pub fn locate(&mut self, peer: Peer, address: Result<&str, String>) {
        if self.directory.way(peer) != Some(Way::Wanted) {
            return;
        }
        let parsed =
            address.and_then(|text| text.parse::<SocketAddr>().map_err(|_| format!("invalid address {text:?}")));
        match (parsed, self.directory.name(peer)) {
            (Ok(address), Some(name)) => self.dial(peer, name, address),
            (Err(why), _) => self.lose(peer, None, &why),
            (Ok(_), None) => {}
        }
    }

    /// Sends a frame: one system call if the connection is open and not busy.
    #[inline]
    pub fn try_send(&mut self, to: Peer, frame: &Frame, payload: Payload<'_>) -> Result<(), Refusal> {
        let Some(Way::Open(id)) = self.directory.way(to) else { return self.try_connect(to) };
        match *frame {
            Frame::Clear { len, .. } if len > 0 && self.is_far(id) => {
                return self.request(Request { link: id, frame: *frame, len });
            }
            Frame::Bye if self.admission.is_waiting() => self.release(id)?,
            _sent_at_once => {}
        }
        self.send_on(id, frame, payload)
    }

    #[inline]
    fn send_on(&mut self, id: u32, frame: &Frame, payload: Payload<'_>) -> Result<(), Refusal> {
        let Some(link) = self.links.get_mut(id) else { return Err(Refusal::Lost) };
        let result = link.try_send(frame, payload, &mut self.spare);
        let is_far = link.is_far;
        if !link.polled && (result.is_err() || link.is_sending()) {
            self.activate(id);
        }
        if payload.len() >= LOSSY_EAGER {
            if payload.len() >= lanes::LONG && self.rails.is_some() {
                self.use_rails(id);
            }
            if is_far && !matches!(frame, Frame::Part { .. }) {
                self.look_for_loss(id, Instant::now());
            }
        }
        result
    }

    fn is_far(&self, id: u32) -> bool {
        self.links.get(id).is_some_and(|link| link.is_far)
    }

    #[cold]
    fn try_connect(&mut self, to: Peer) -> Result<(), Refusal> {
        match self.directory.way(to) {
            Some(Way::Unused) => {
                match (self.addresses.get(&to).copied(), self.directory.name(to)) {
                    (Some(address), Some(name)) => self.dial(to, name, address),
                    _ => {
                        self.directory.set(to, Way::Wanted);
                        self.wanted.push_back(to);
                    }
                }
                Err(Refusal::Full)
            }
            Some(Way::Wanted | Way::Dialled(_)) => {
                self.need(to);
                Err(Refusal::Full)
            }
            Some(Way::Open(_)) => Err(Refusal::Full),
            Some(Way::Lost | Way::Over) | None => Err(Refusal::Lost),
        }
    }

    /// Delivers what has arrived and sends what is queued; returns whether there was anything. Call it again until it
    /// returns false.
    #[inline]
    pub fn poll<S: Sink>(&mut self, sink: &mut S) -> bool {
        let mut moved = false;
        if !self.losses.is_empty() {
            moved = true;
            while let Some((peer, reason)) = self.losses.pop_front() {
                sink.on_lost(peer, &reason);
            }
        }
        let crowded = self.active.len() > HOT;
        let mut index = 0;
        while let Some(&id) = self.active.get(index) {
            match self.step(id, sink) {
                Ok(true) => {
                    moved = true;
                    index += 1;
                }
                Ok(false) if self.cools_down(id, crowded) => drop(self.active.swap_remove(index)),
                Ok(false) => index += 1,
                Err(end) => {
                    moved = true;
                    self.active.swap_remove(index);
                    self.end(id, &end);
                }
            }
        }
        if self.admission.is_waiting() {
            self.continue_admission(moved);
        }
        if moved {
            self.idle_polls = 0;
        } else {
            self.idle_polls += 1;
            if self.idle_polls >= PATIENCE {
                self.idle_polls = 0;
                self.look_at_clock();
            }
        }
        moved
    }

    /// Which connections [`Tcp::poll`] reads without the poller's reports.
    #[inline]
    pub fn reads(&self) -> Reads {
        match self.active.len() {
            0 => Reads::None,
            hot if hot > HOT => Reads::None,
            hot if hot < self.links.len() => Reads::Some,
            _ => Reads::All,
        }
    }

    /// Sends and reads on one link.
    #[inline]
    fn step<S: Sink>(&mut self, id: u32, sink: &mut S) -> Result<bool, End> {
        let Some(link) = self.links.get_mut(id) else { return Ok(false) };
        let sent = link.is_sending() && link.flush(&mut self.spare);
        let (mut read, outstanding) = (false, link.outstanding());
        for _ in 0..READS {
            match link.read(&mut self.scratch, sink)? {
                Got::Nothing => break,
                Got::Some => {
                    read = true;
                    break;
                }
                Got::Full => read = true,
            }
        }
        let moved = sent | read;
        if moved {
            link.heat = HEAT;
            let has_heard = link.has_heard();
            if read && link.standing.is_admitted {
                self.on_data(id, outstanding);
            }
            if has_heard {
                self.on_heard(id)?;
            }
        }
        Ok(moved)
    }

    /// After a poll without result: returns whether the link is left to the poller. Its last read found nothing, so the
    /// poller reports whatever arrives.
    #[inline]
    fn cools_down(&mut self, id: u32, crowded: bool) -> bool {
        let Some(link) = self.links.get_mut(id) else { return true };
        link.heat = if crowded { 0 } else { link.heat.saturating_sub(1) };
        link.polled = link.heat > 0 || link.is_sending();
        !link.polled
    }

    fn activate(&mut self, id: u32) {
        if let Some(link) = self.links.get_mut(id) {
            link.heat = HEAT;
            if !link.polled {
                link.polled = true;
                self.active.push(id);
            }
        }
    }

    /// Handles a report of the poller. The next poll delivers what arrived.
    pub fn on_ready(&mut self, ready: Ready) {
        match Id::of(ready.token) {
            Id::Link(id) => self.activate(id),
            Id::Greeting(id) => self.greet(id, Instant::now()),
            Id::Listener => self.accept(Instant::now()),
        }
    }

    /// Call this before sleeping until the poller reports something; returns the longest time to sleep.
    pub fn prepare_sleep(&mut self) -> Option<Duration> {
        let now = self.look_at_clock();
        if !self.losses.is_empty() {
            return Some(Duration::ZERO);
        }
        let greetings = self.greetings.iter().filter_map(|(_, greeting)| match greeting {
            Greeting::Dial(dial) => dial.deadline(),
            Greeting::Answer(answer) => answer.deadline(),
        });
        let look = (self.links.len() > 0).then_some(self.next_look);
        let stall = self.admission.deadline();
        greetings
            .chain(look)
            .chain(self.resting)
            .chain(stall)
            .min()
            .map(|deadline| deadline.saturating_duration_since(now))
    }

    /// Cuts all contact with this peer.
    pub fn cut(&mut self, peer: Peer) {
        match self.directory.way(peer) {
            Some(Way::Open(id)) => {
                self.active.retain(|active| *active != id);
                self.close(id);
                self.admit();
            }
            Some(Way::Dialled(id)) => self.drop_greeting(id),
            Some(Way::Unused | Way::Wanted | Way::Lost | Way::Over) | None => {}
        }
        self.reaching.needs(peer);
        self.directory.set(peer, Way::Lost);
    }

    /// The peers with a connection.
    pub fn connected(&self) -> Vec<Peer> {
        self.links.iter().filter(|(_, link)| !link.is_left()).map(|(_, link)| link.peer).collect()
    }

    /// Whether the system has accepted everything that was sent. It arrives even if this process exits, unless incoming
    /// data were not read: so exchange farewells first.
    pub fn is_flushed(&self) -> bool {
        !self.admission.is_waiting() && self.links.iter().all(|(_, link)| !link.is_sending())
    }

    /// The number of connections that did not come from processes of the job, or were too slow to prove it.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// For users: `tcp 10.0.0.2:4411`, or the state of the connection.
    pub fn describe(&self, peer: Peer) -> String {
        match self.directory.way(peer) {
            Some(Way::Open(id)) => match self.links.get(id) {
                Some(link) => {
                    let rails = link.lanes.iter().flat_map(|lanes| lanes.addresses());
                    rails.fold(format!("tcp {}", link.address), |text, rail| format!("{text} and {rail}"))
                }
                None => "tcp".into(),
            },
            Some(Way::Unused) => "tcp (not used)".into(),
            Some(Way::Wanted | Way::Dialled(_)) => "tcp (connecting)".into(),
            Some(Way::Lost) => "tcp (lost)".into(),
            Some(Way::Over) => "tcp (over)".into(),
            None => "none".into(),
        }
    }
}

#[cfg(test)]
mod tests;
