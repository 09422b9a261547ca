//! Chooses the transport to each peer, and lets the process sleep while nothing arrives on any of them.

mod foreign;

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

pub use foreign::ForeignPeer;

use super::address;
use super::name::ProcessName;
use super::poller::{self, Owner, Poller, Ready, Reports, Token};
use super::shm::{self, Shm, ShmConfig, Watched};
use super::tcp::{self, Listen, Reads, Tcp, TcpConfig};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::engine::{Frame, FrameLimits, Loan, Peer, PullRefused, Pulled, Refusal, Region, Sink, Transport};
use crate::memory::{Arrived, Buffer, Payload};
use crate::settings::Settings;

/// The location of the processes, as known at startup.
#[derive(Debug)]
pub struct Neighbourhood<'a> {
    /// This process.
    pub name: ProcessName,
    /// `nodes[rank]`: the node of each rank.
    pub nodes: &'a [u32],
    /// The user's settings.
    pub settings: &'a Settings,
    /// The address of this node that the launcher advertises: its daemon uses it to reach other nodes.
    pub advertised: Option<IpAddr>,
    /// Inclusive ranges of the ranks that ranks on other machines cannot dial.
    pub dial_out: Vec<(u32, u32)>,
    /// The sockets and secret that the launcher has prepared for connections with other nodes; otherwise this process prepares
    /// them.
    pub prepared: Option<Prepared>,
}

/// The data for connections with other nodes.
#[derive(Debug)]
pub struct Prepared {
    /// A secret that only the job's processes know.
    pub secret: [u8; 32],
    /// The listening socket.
    pub listener: OwnedFd,
}

/// The transports of one process. Without any, the process is alone.
#[derive(Debug, Default)]
pub struct Routes {
    shm: Option<Shm>,
    tcp: Option<Tcp>,
    /// `routes[peer]`.
    routes: Vec<Route>,
    /// Holds TCP's descriptors; shared memory's as well, if both are in use.
    poller: Option<Arc<Poller>>,
    /// Readable when something may have arrived: the poller or, without one, shared memory's own set.
    set: Option<Arc<OwnedFd>>,
    bell: Option<Bell>,
    /// While it is open, processes of this node that call this one find that it shares no memory.
    declines: Option<OwnedFd>,
    polls: u32,
    /// A frame may have been caught since the last poll.
    must_poll: bool,
    /// A descriptor of no transport has become ready.
    is_told: bool,
    /// See [`Routes::is_outdated`].
    is_outdated: bool,
    /// This node's address as the launcher advertises it.
    advertised: Option<IpAddr>,
}

/// The transport that reaches a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Route {
    /// The peer is this process.
    Own,
    /// The peer is on this node.
    Shm,
    /// The peer is on another node.
    Tcp,
}

/// The number of polls between two checks of TCP's descriptors, if all connections are read without reports, or none and there is shared
/// memory to poll: a check is a system call.
const LOOK_EVERY: u32 = 64;
/// The same if some connections are read without reports: each of these reads is a system call, too, and data on the others waits.
const LOOK_OFTEN: u32 = 2;
/// The same while data comes on those that are read. Sooner, a rank to which many send would read more of what it does not need yet.
const LOOK_ANYWAY: u32 = 1024;

impl Routes {
    /// The transports of a process that is alone, on a node with this address.
    pub fn alone(advertised: Option<IpAddr>) -> Self {
        Self { advertised, ..Self::default() }
    }

    /// Creates the transports to all ranks of a world; none is connected yet.
    pub fn new(neighbourhood: Neighbourhood<'_>) -> io::Result<Self> {
        let Neighbourhood { name, nodes, settings, advertised, dial_out, prepared } = neighbourhood;
        let routes = routes(nodes, name.rank, settings);
        let mut routes = Self { routes, ..Self::alone(advertised) };
        if routes.routes.contains(&Route::Tcp) {
            let poller = Arc::new(Poller::new()?);
            let (secret, listen, advertise, rails) = match prepared {
                // The launcher has bound it to the address that it advertises, or to all.
                Some(Prepared { secret, listener }) => (secret, Listen::Inherited(listener), advertised, Vec::new()),
                None => {
                    let place = address::of(settings.interface.as_deref(), advertised)?;
                    ([0; 32], Listen::At(place.listen), place.announce, place.rails)
                }
            };
            let config = TcpConfig {
                me: name,
                secret,
                listen,
                advertise,
                rails,
                connect_limit: settings.connect,
                hello_limit: settings.connect,
                limits: tcp::LIMITS,
            };
            let made = Tcp::new(config, Arc::clone(&poller)).map_err(io::Error::other)?;
            routes.set = Some(Arc::new(poller.as_fd().try_clone_to_owned()?));
            routes.tcp = Some(made);
            routes.poller = Some(poller);
        }
        if routes.routes.contains(&Route::Shm) {
            let peers = routes.routes.iter().filter(|route| **route == Route::Shm).count();
            let config = ShmConfig {
                cma: settings.cma,
                device_ipc: settings.cuda_ipc,
                connect_limit: settings.connect,
                peers,
                ..ShmConfig::new(name)
            };
            let shm = Shm::new(config)?;
            if let Some(poller) = &routes.poller {
                poller.add(shm.fd(), Token { owner: Owner::Shm, id: 0 })?;
            }
            routes.set.get_or_insert(Arc::new(shm.fd().try_clone_to_owned()?));
            routes.shm = Some(shm);
        }
        let here = nodes[name.rank as usize];
        if !settings.shm && nodes.iter().filter(|node| **node == here).count() > 1 {
            // Without it, callers learn only that no process listens.
            routes.declines = shm::decline_as(name).ok();
        }
        for (rank, route) in routes.routes.iter().enumerate() {
            let peer = Peer(rank as u32);
            let name = ProcessName { world: name.world, rank: rank as u32 };
            match (route, &mut routes.shm, &mut routes.tcp) {
                (Route::Shm, Some(shm), _) => shm.expect(peer, name),
                (Route::Tcp, _, Some(tcp)) => tcp.expect(peer, name),
                (Route::Own | Route::Shm | Route::Tcp, _, _) => {}
            }
        }
        if let Some(tcp) = &mut routes.tcp {
            tcp.set_dial_out(&dial_out);
        }
        Ok(routes)
    }

    /// Makes this descriptor end sleeps when it becomes readable, if this process makes connections with other nodes.
    pub fn wake_by(&self, descriptor: impl AsFd) -> io::Result<()> {
        match &self.poller {
            Some(poller) => poller.add(descriptor, Token { owner: Owner::Others, id: 0 }),
            None => Ok(()),
        }
    }

    /// The address where processes on other nodes reach this one; `None` if there are no other nodes.
    pub fn address(&self) -> Option<String> {
        self.tcp.as_ref().map(Tcp::address)
    }

    /// Sets the secret that proves to processes on other nodes that this one belongs to their job.
    pub fn set_secret(&mut self, secret: [u8; 32]) {
        if let Some(tcp) = &mut self.tcp {
            tcp.set_secret(secret);
        }
    }

    /// A peer on another node whose address is needed now.
    #[inline]
    pub fn next_wanted(&mut self) -> Option<Peer> {
        self.tcp.as_mut().and_then(Tcp::next_wanted)
    }

    /// Supplies the address of a wanted peer, or the reason why there is none.
    pub fn locate(&mut self, peer: Peer, address: Result<&str, String>) {
        if let Some(tcp) = &mut self.tcp {
            tcp.locate(peer, address);
        }
    }

    /// Whether some ranks of this job cannot be dialled from other machines.
    pub fn has_dial_out(&self) -> bool {
        self.tcp.as_ref().is_some_and(Tcp::has_dial_out)
    }

    /// If this process is one of them: dials all ranks on other nodes, and returns whether this is still going on.
    pub fn is_reaching(&mut self) -> bool {
        self.tcp.as_mut().is_some_and(Tcp::is_reaching)
    }

    /// Whether no peer would lose this process if it ended now, after the farewells.
    pub fn is_settled(&self) -> bool {
        self.tcp.as_ref().is_none_or(Tcp::is_settled)
    }

    /// The peers with a connection.
    pub fn connected(&self) -> Vec<Peer> {
        let shm = self.shm.as_ref().map(Shm::connected).unwrap_or_default();
        let tcp = self.tcp.as_ref().map(Tcp::connected).unwrap_or_default();
        [shm, tcp].concat()
    }

    /// Whether all accepted frames have left this process.
    pub fn is_flushed(&mut self) -> bool {
        self.tcp.as_ref().is_none_or(Tcp::is_flushed)
    }

    /// Describes each peer with a connection in one line: which transport, and why.
    pub fn describe(&self, me: u32) -> Vec<String> {
        let describe = |peer: &Peer| match (self.route(*peer), &self.shm, &self.tcp) {
            (Some(Route::Shm), Some(shm), _) => format!("{me}<->{} {}", peer.0, shm.describe(*peer)),
            (Some(Route::Tcp), _, Some(tcp)) => format!("{me}<->{} {}", peer.0, tcp.describe(*peer)),
            _ => format!("{me}<->{} self", peer.0),
        };
        self.connected().iter().map(describe).collect()
    }

    /// How messages reach a peer: 0 not at all, 1 in this process, 2 by shared memory, 3 by TCP.
    pub fn path(&self, peer: Peer, me: Peer) -> i32 {
        match self.route(peer) {
            _ if peer == me => 1,
            None => 0,
            Some(Route::Own) => 1,
            Some(Route::Shm) => 2,
            Some(Route::Tcp) => 3,
        }
    }

    /// The used part of the ring in which this process receives, from 0 to 1.
    pub fn ring_fill(&self) -> f64 {
        self.shm.as_ref().map_or(0.0, Shm::ring_fill)
    }

    /// Announces to all peers that this process is about to sleep, for at most `limit`; `None` if something has arrived
    /// meanwhile.
    pub fn prepare_sleep(&mut self, limit: Duration) -> Option<Sleep> {
        let mut limit = limit;
        self.is_outdated = false;
        if let Some(tcp) = &mut self.tcp {
            limit = tcp.prepare_sleep().map_or(limit, |within| within.min(limit));
            if limit.is_zero() {
                return None;
            }
        }
        if let Some(shm) = &mut self.shm {
            limit = shm.sleep_limit().map_or(limit, |within| within.min(limit));
            if !shm.prepare_sleep() {
                return None;
            }
        }
        Some(Sleep { on: self.set.clone(), bell: self.bell(), limit })
    }

    /// Whether this process and its connected peers on this node have fewer cores than they are.
    pub fn shares_cores(&self) -> bool {
        self.shm.as_ref().is_some_and(Shm::shares_cores)
    }

    /// Whether this process and its connected peers on its node belong to one session, so that a yield of one reaches the others.
    pub fn shares_session(&self) -> bool {
        self.shm.as_ref().is_some_and(Shm::shares_session)
    }

    /// As long as the returned value lives, this descriptor ends this process's sleep when it becomes readable; `None`
    /// without shared memory.
    pub fn watch_bell(&self, bell: OwnedFd) -> Option<Watched> {
        self.shm.as_ref()?.watch_bell(bell).ok()
    }

    /// Whether what [`Routes::prepare_sleep`] has found and asked for may not hold any more, because another thread has taken a report of the
    /// descriptors, or could not send: then the sleep must be prepared anew. Says so once for each sleep that is prepared.
    pub fn is_outdated(&mut self) -> bool {
        std::mem::take(&mut self.is_outdated)
    }

    /// Withdraws the announcement of [`Routes::prepare_sleep`].
    pub fn wake(&mut self) {
        if let Some(shm) = &mut self.shm {
            shm.awake();
        }
        self.look_soon();
    }

    /// Makes the next poll look at all sockets.
    pub fn look_soon(&mut self) {
        if let Some(shm) = &mut self.shm {
            shm.look_soon();
        }
        self.polls = LOOK_EVERY;
    }

    /// Whether a descriptor of no transport has become ready since the last call ([`Routes::wake_by`]).
    pub fn was_told(&mut self) -> bool {
        std::mem::take(&mut self.is_told)
    }

    fn on_ready(&mut self, ready: Ready) {
        match ready.token.owner {
            Owner::Tcp => {
                if let Some(tcp) = &mut self.tcp {
                    tcp.on_ready(ready);
                }
            }
            Owner::Shm => {
                if let Some(shm) = &mut self.shm {
                    shm.look_soon();
                }
            }
            Owner::Others => self.is_told = true,
        }
    }

    /// Made when first needed: most processes have only one thread that waits, which no other thread wakes.
    fn bell(&mut self) -> Bell {
        let made = || EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK).ok().map(Arc::new);
        self.bell.get_or_insert_with(|| Bell(made())).clone()
    }

    #[inline]
    fn route(&self, peer: Peer) -> Option<Route> {
        self.routes.get(peer.0 as usize).copied()
    }

    fn poll_tcp<S: Sink>(&mut self, sink: &mut S) -> bool {
        let Some(poller) = &self.poller else { return false };
        let (came, reads) = self.tcp.as_mut().map_or((false, Reads::None), |tcp| (tcp.poll(sink), tcp.reads()));
        self.polls += 1;
        let every = match reads {
            Reads::Some => LOOK_OFTEN,
            Reads::None if self.shm.is_none() => 1,
            Reads::None | Reads::All => LOOK_EVERY,
        };
        if self.polls < every || (came && self.polls < LOOK_ANYWAY) {
            return came;
        }
        self.polls = 0;
        let mut reports = Reports::default();
        if poller.wait(&mut reports, Duration::ZERO).is_err() {
            return came;
        }
        let mut ready = false;
        for report in reports.iter() {
            (ready, self.is_outdated) = (true, true);
            self.on_ready(report);
        }
        match &mut self.tcp {
            // Also if the reports are of connections that were just read: data may have come since, and a yield may follow this poll.
            Some(tcp) if ready => tcp.poll(sink) | came,
            Some(_) | None => came,
        }
    }
}

/// Whether a rank reaches other ranks by connections, as if they were on other nodes.
pub fn needs_connections(nodes: &[u32], rank: u32, settings: &Settings) -> bool {
    routes(nodes, rank, settings).contains(&Route::Tcp)
}

/// `routes[peer]`, for the process of this rank.
fn routes(nodes: &[u32], rank: u32, settings: &Settings) -> Vec<Route> {
    let here = nodes[rank as usize];
    let route = |(other, node): (usize, &u32)| match () {
        () if other == rank as usize => Route::Own,
        () if *node == here && settings.shm => Route::Shm,
        () => Route::Tcp,
    };
    nodes.iter().enumerate().map(route).collect()
}

/// A sleep that is about to begin, without the state.
#[derive(Debug)]
pub struct Sleep {
    on: Option<Arc<OwnedFd>>,
    bell: Bell,
    limit: Duration,
}

/// Wakes a sleeping thread of this process.
#[derive(Debug, Clone)]
pub struct Bell(Option<Arc<EventFd>>);

impl Bell {
    /// Ends the sleep, or the next sleep at once.
    pub fn ring(&self) {
        if let Some(bell) = &self.0 {
            // It fails only if the counter is full: then the bell rings already.
            let _ = bell.write(1);
        }
    }
}

impl Sleep {
    /// The bell that ends this sleep.
    pub fn bell(&self) -> Bell {
        self.bell.clone()
    }

    /// Sleeps until something may have arrived, the bell rings, or the time is over.
    pub fn sleep(self) {
        let set = self.on.as_deref().map(AsFd::as_fd);
        let bell = self.bell.0.as_deref().map(AsFd::as_fd);
        poller::wait_readable(set.into_iter().chain(bell), self.limit);
        if let Some(bell) = &self.bell.0 {
            // If the bell has not rung, there is nothing to read.
            let _ = bell.read();
        }
    }
}

impl Transport for Routes {
    #[inline]
    fn limits(&self, to: Peer) -> FrameLimits {
        match (self.route(to), &self.shm, &self.tcp) {
            (Some(Route::Shm), Some(shm), _) => shm.limits(to),
            (Some(Route::Tcp), _, Some(tcp)) => tcp.limits(to),
            _ => FrameLimits { eager: 0, eager_device: 0, part: 0, part_device: 0, lent: usize::MAX },
        }
    }

    #[inline]
    fn try_send(&mut self, to: Peer, frame: &Frame, payload: Payload<'_>) -> Result<(), Refusal> {
        let sent = match (self.route(to), &mut self.shm, &mut self.tcp) {
            (Some(Route::Shm), Some(shm), _) => shm.try_send(to, frame, payload),
            (Some(Route::Tcp), _, Some(tcp)) => tcp.try_send(to, frame, payload),
            _ => Err(Refusal::Lost),
        };
        if sent.is_err() {
            self.is_outdated = true;
        }
        sent
    }

    #[inline]
    fn try_lend<S: Sink>(
        &mut self,
        to: Peer,
        frame: &Frame,
        buffer: &Buffer,
        may_stay: bool,
        sink: &mut S,
    ) -> Result<Option<Loan>, Refusal> {
        let sent = match (self.route(to), &mut self.shm) {
            (Some(Route::Shm), Some(shm)) => shm.try_lend(to, frame, buffer, may_stay, sink),
            _ => self.try_send(to, frame, Payload::new(buffer, 0, buffer.len())).map(|()| None),
        };
        if sent.is_err() {
            self.is_outdated = true;
        }
        sent
    }

    fn redeem<S: Sink>(&mut self, to: Peer, loan: Loan, buffer: &Buffer, must: bool, sink: &mut S) -> bool {
        match (self.route(to), &mut self.shm) {
            (Some(Route::Shm), Some(shm)) => shm.redeem(to, loan, buffer, must, sink),
            _ => true,
        }
    }

    #[inline]
    fn poll<S: Sink>(&mut self, sink: &mut S) -> bool {
        self.must_poll = false;
        let came = self.shm.as_mut().is_some_and(|shm| shm.poll(sink));
        if let Some(shm) = &mut self.shm
            && shm.has_looked()
        {
            self.is_outdated = true;
        }
        if self.poller.is_some() { self.poll_tcp(sink) | came } else { came }
    }

    #[inline]
    fn catch(&mut self, from: Option<Peer>, take: impl FnOnce(Peer, &Frame, Arrived<'_>) -> bool) {
        let may_come = from.is_none_or(|from| self.route(from) == Some(Route::Shm));
        // Connections must be read as often as the ring, nearly.
        let is_due = self.poller.is_some() && std::mem::replace(&mut self.must_poll, true);
        if let (Some(shm), true, false) = (&mut self.shm, may_come, is_due) {
            shm.catch(take);
        }
    }

    fn offer(&mut self, to: Peer, buffer: &Buffer) -> Option<Region> {
        match (self.route(to), &mut self.shm) {
            (Some(Route::Shm), Some(shm)) => shm.offer(to, buffer),
            _ => None,
        }
    }

    fn withdraw(&mut self, to: Peer, region: Region) {
        if let (Some(Route::Shm), Some(shm)) = (self.route(to), &mut self.shm) {
            shm.withdraw(to, region);
        }
    }

    fn retract(&mut self, to: Peer, region: Region) {
        if let (Some(Route::Shm), Some(shm)) = (self.route(to), &mut self.shm) {
            shm.retract(to, region);
        }
    }

    fn pull(
        &mut self,
        from: Peer,
        region: Region,
        into: &Buffer,
        len: usize,
        token: u32,
    ) -> Result<Pulled, PullRefused> {
        match (self.route(from), &mut self.shm) {
            (Some(Route::Shm), Some(shm)) => shm.pull(from, region, into, len, token),
            _ => Err(PullRefused),
        }
    }

    fn cut(&mut self, peer: Peer) {
        match (self.route(peer), &mut self.shm, &mut self.tcp) {
            (Some(Route::Shm), Some(shm), _) => shm.cut(peer),
            (Some(Route::Tcp), _, Some(tcp)) => tcp.cut(peer),
            _ => {}
        }
    }
}
