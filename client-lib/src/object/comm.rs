//! Communicators: a group, or two, and contexts of their own (MPI 5.0 §7.2.2, §7.6).
//!
//! `MPI_Comm_free` is local: the handle is invalid at once, but the contexts stay open, and are not reused, while a receive that
//! was started before can still get its message. This needs no counters: [`Comms::sweep`] checks when a context is needed.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use super::agree::{Circle, tag};
use super::attr::Attributes;
use super::context::Contexts;
use super::creation::{Creation, CreationId, Creations};
use super::errhandler::Errhandler;
use super::group::Group;
use super::info::Info;
use super::names::Names;
use super::parties::{Born, Parties, Remote};
use super::partitioned::{self, Partitions};
use super::requests::{Request, Requests};
use super::table::Table;
use super::topology::Topology;
use crate::abi::constants::{MPI_COMM_NULL, MPI_COMM_SELF, MPI_COMM_WORLD};
use crate::abi::{CommHandle, SessionHandle, handle::Handle};
use crate::coll::Layout;
use crate::coll::inter::Sides;
use crate::coll::node::Sharing;
use crate::coll::outboxes::OutboxId;
use crate::engine::{Engine, Peer, Transport};
use crate::error::{MpiError, MpiResult};

/// An intracommunicator, or an intercommunicator.
#[derive(Debug)]
pub struct Communicator {
    /// The context of its point-to-point messages; that of its collectives is the next number.
    pub context: u32,
    /// The peers that its messages name: `peers[rank]`.
    pub peers: Arc<[Peer]>,
    /// Its group, or groups.
    pub parties: Parties,
    /// This process's rank.
    pub rank: u32,
    /// Its error handler.
    pub errhandler: Errhandler,
    /// Whether the program has set it on this communicator.
    pub chose_errhandler: bool,
    /// The name, as set by `MPI_Comm_set_name`.
    pub name: Vec<u8>,
    /// The number of collective operations started on it: all members count alike.
    pub collectives: u32,
    /// As `collectives`, of those that were called without blocking.
    pub nonblocking: u32,
    /// The number of calls on it that members have compared (`RSD_MPI_CHECK`).
    pub compared: u32,
    /// The user's attributes.
    pub attributes: Attributes,
    /// The user's assertions about how it is used.
    pub hints: Info,
    /// Its topology, if it has one.
    pub topology: Option<Arc<Topology>>,
    /// Memory that its members share, if all are on one node.
    pub sharing: Sharing,
    /// The outbox of that memory, and the number of the first non-blocking operation that may use it.
    pub outbox: Option<(OutboxId, u32)>,
    /// Which members share a node, once a collective has needed it.
    pub layout: OnceLock<Layout>,
    /// The session from which it was derived, if it was.
    pub session: Option<SessionHandle>,
    /// Whether it is revoked; then it has no `peers`, so that each use of one finds out.
    pub is_revoked: bool,
    /// How many of its lost members the user has acknowledged, in the order of the losses.
    pub acknowledged: usize,
}

/// The context of a communicator that is promised but not made yet: nothing is ever received on it.
const UNBORN: u32 = u32::MAX - 1;

impl Communicator {
    /// A communicator with a name and an error handler; nothing is started on it yet.
    pub fn new(context: u32, parties: impl Into<Parties>, errhandler: Errhandler, name: &str) -> Self {
        let parties = parties.into();
        Self {
            context,
            peers: Arc::clone(parties.named()),
            rank: parties.rank(),
            errhandler,
            chose_errhandler: false,
            name: name.into(),
            collectives: 0,
            nonblocking: 0,
            compared: 0,
            attributes: Attributes::default(),
            hints: Info::default(),
            topology: None,
            sharing: if parties.remote.is_none() { Sharing::default() } else { Sharing::Never },
            outbox: None,
            layout: OnceLock::new(),
            session: parties.group.session,
            is_revoked: false,
            acknowledged: 0,
            parties,
        }
    }

    /// A communicator made by a creation.
    pub fn born(born: Born, errhandler: Errhandler) -> Self {
        Self::new(born.context, born.parties, errhandler, "")
    }

    /// A promised communicator: its context follows.
    pub fn promised(parties: Parties, errhandler: Errhandler) -> Self {
        Self::new(UNBORN, parties, errhandler, "")
    }

    /// The group of this process.
    #[inline]
    pub fn group(&self) -> &Arc<Group> {
        &self.parties.group
    }

    /// For an intercommunicator: the other side.
    #[inline]
    pub fn remote(&self) -> Option<&Remote> {
        self.parties.remote.as_ref()
    }

    /// For an intercommunicator: this process's place in its collectives.
    pub fn sides(&self) -> Option<Sides> {
        let remote = self.remote()?;
        let (local, remote, local_first) = (self.group().size(), remote.group.size(), remote.local_first);
        Some(Sides { rank: self.rank, local, remote, local_first })
    }

    /// Fails with class `MPI_ERR_COMM` for an intercommunicator, in functions that do not accept one.
    pub fn must_be_intra(&self) -> MpiResult {
        match self.remote() {
            None => Ok(()),
            Some(_) => {
                Err(MpiError::comm("this function needs an intracommunicator, and this is an intercommunicator"))
            }
        }
    }

    /// Fails with class `MPIX_ERR_REVOKED` if it is revoked.
    #[inline]
    pub fn must_be_usable(&self) -> MpiResult {
        if self.is_revoked { Err(MpiError::was_revoked()) } else { Ok(()) }
    }

    /// Its lost members, in the order in which this process has learned of it.
    pub fn lost<T: Transport>(&self, engine: &Engine<T>) -> Vec<Peer> {
        let members = self.parties.all();
        engine.losses().iter().copied().filter(|peer| members.contains(peer)).collect()
    }

    /// The context of its collectives.
    pub fn collective_context(&self) -> u32 {
        self.context + 1
    }

    /// All members, of both groups if there are two, for an operation that all take part in: it counts as one
    /// operation.
    pub fn circle_of_all(&mut self) -> Circle {
        let tag = tag::counted(self.collectives);
        self.collectives = self.collectives.wrapping_add(1);
        self.circle(None, self.parties.place(), tag)
    }

    /// The tag of the next comparison of calls.
    pub fn next_compared(&mut self) -> i32 {
        let tag = tag::compared(self.compared);
        self.compared = self.compared.wrapping_add(1);
        tag
    }

    /// Some members, by their places among all; this process is the `place`-th of them.
    pub fn circle(&self, ranks: Option<Arc<[u32]>>, place: u32, tag: i32) -> Circle {
        Circle { context: self.collective_context(), members: Arc::clone(self.parties.all()), ranks, place, tag }
    }
}

/// All communicators of the process.
#[derive(Debug, Default)]
pub struct Comms {
    /// `MPI_COMM_WORLD`, while the library is initialised.
    pub world: Option<Communicator>,
    /// `MPI_COMM_SELF`, likewise.
    pub own: Option<Communicator>,
    /// The communicators that the user has made.
    pub made: Table<CommHandle, Communicator>,
    /// The communicators in the making.
    pub creations: Creations,
    /// The contexts in use.
    pub contexts: Contexts,
    /// The names of processes in messages to others.
    pub names: Names,
    /// All processes that were started together, which count as one group where they have no communicator.
    pub all_peers: Arc<[Peer]>,
    /// In a spawned process: the communicator with its parents, until it is freed.
    pub parent: Option<CommHandle>,
    /// Freed communicators whose contexts are still open.
    freed: Vec<Freed>,
    /// First contexts whose numbers are not used again.
    held: BTreeSet<u32>,
    /// First contexts of communicators that are revoked.
    revoked: BTreeSet<u32>,
    /// Counts communicators that have got their context.
    births: u64,
}

#[derive(Debug, Clone)]
struct Freed {
    handle: CommHandle,
    context: u32,
    parties: Parties,
}

impl Comms {
    /// The communicator of a handle; fails with class `MPI_ERR_COMM` if there is none.
    #[inline]
    pub fn get(&self, handle: CommHandle) -> MpiResult<&Communicator> {
        let found = match handle.bits() {
            MPI_COMM_WORLD => self.world.as_ref(),
            MPI_COMM_SELF => self.own.as_ref(),
            _ => self.made.get(handle),
        };
        found.ok_or_else(|| unknown(handle))
    }

    /// As [`Comms::get`].
    #[inline]
    pub fn get_mut(&mut self, handle: CommHandle) -> MpiResult<&mut Communicator> {
        let found = match handle.bits() {
            MPI_COMM_WORLD => self.world.as_mut(),
            MPI_COMM_SELF => self.own.as_mut(),
            _ => self.made.get_mut(handle),
        };
        found.ok_or_else(|| unknown(handle))
    }

    /// Returns a handle for a communicator.
    pub fn add(&mut self, communicator: Communicator) -> MpiResult<CommHandle> {
        self.births += 1;
        self.made.add(communicator).ok_or_else(|| MpiError::no_mem("too many communicators (two million)"))
    }

    /// Advances the communicators in the making; returns whether any moved. A promised one is usable once it is made.
    #[inline]
    pub fn progress<T: Transport>(&mut self, engine: &mut Engine<T>) -> bool {
        !self.creations.is_empty() && self.get_on(engine)
    }

    fn get_on<T: Transport>(&mut self, engine: &mut Engine<T>) -> bool {
        let moved = self.creations.poll(engine, &mut self.contexts, &self.names);
        let (made, births) = (&mut self.made, &mut self.births);
        self.creations.settle(|creation| {
            let promised = creation.promised.and_then(|promised| made.get_mut(promised));
            if let (Some(communicator), Some(context)) = (promised, creation.context()) {
                communicator.context = context;
                *births += 1;
            }
        });
        moved
    }

    /// Counts communicators that have got their context.
    pub fn births(&self) -> u64 {
        self.births
    }

    /// The groups of the communicator with this first context, also if it is freed and the context still open.
    pub fn parties_of(&self, context: u32) -> Option<&Parties> {
        let all = self.world.iter().chain(&self.own).chain(self.made.iter().map(|(_, communicator)| communicator));
        let of_freed = || self.freed.iter().find(|freed| freed.context == context).map(|freed| &freed.parties);
        let mut open = all.filter(|communicator| communicator.context == context);
        open.next().map(|communicator| &communicator.parties).or_else(of_freed)
    }

    /// Marks the communicator with this first context as revoked.
    pub fn mark_revoked(&mut self, context: u32) {
        self.revoked.insert(context);
        let all = self.world.iter_mut().chain(&mut self.own).chain(self.made.values_mut());
        for communicator in all.filter(|communicator| communicator.context == context) {
            communicator.is_revoked = true;
            communicator.peers = Arc::from([]);
        }
    }

    /// Whether any communicator is revoked.
    #[inline]
    pub fn has_revoked(&self) -> bool {
        !self.revoked.is_empty()
    }

    /// Declares that the number of this first context must not be used again.
    pub fn hold(&mut self, context: u32) {
        self.held.insert(context);
    }

    /// Makes a promised communicator the one that was born, or removes it.
    pub fn keep_promise(&mut self, promised: CommHandle, born: MpiResult<Option<Born>>) -> MpiResult {
        match born {
            Ok(Some(born)) => {
                if let Some(communicator) = self.made.get_mut(promised) {
                    let (errhandler, session) = (communicator.errhandler, communicator.session);
                    *communicator = Communicator { session, ..Communicator::born(born, errhandler) };
                    self.births += 1;
                }
                Ok(())
            }
            Ok(None) => {
                let _ = self.made.take(promised);
                Ok(())
            }
            Err(error) => {
                let _ = self.made.take(promised);
                Err(error)
            }
        }
    }

    /// The result of a creation, if it is over. A promised communicator that failed is removed.
    pub fn take_born(&mut self, id: CreationId) -> Option<MpiResult<Option<Born>>> {
        let creation = self.creations.take(id)?;
        let promised = creation.promised;
        let result = creation.into_result()?;
        if let (Some(promised), Err(_)) = (promised, &result) {
            let _ = self.made.take(promised);
        }
        Some(result)
    }

    /// Frees a communicator's handle; its contexts stay open as long as [`Comms::sweep`] finds a reason.
    pub fn free(&mut self, handle: CommHandle) -> MpiResult<Communicator> {
        let Some(communicator) = self.made.take(handle) else { return Err(unknown(handle)) };
        self.freed.push(Freed { handle, context: communicator.context, parties: communicator.parties.clone() });
        self.parent.take_if(|parent| *parent == handle);
        Ok(communicator)
    }

    /// Closes the contexts of freed communicators on which nothing can arrive any more, and makes them available again.
    pub fn sweep<T: Transport>(&mut self, engine: &mut Engine<T>, requests: &Requests, partitions: &mut Partitions) {
        let (creations, contexts) = (&self.creations, &mut self.contexts);
        let (held, revoked) = (&mut self.held, &self.revoked);
        self.freed.retain(|freed| {
            let of_parts = partitioned::context_of(freed.context + 1);
            let in_use = engine.has_receives(freed.context)
                || engine.has_receives(freed.context + 1)
                || partitions.awaits(of_parts)
                || creations.use_context(freed.context + 1)
                || requests.iter().any(|(_, request)| holds(request, freed.handle));
            // Members that have not heard of the loss or the revocation may still send: what they wait for is answered.
            let is_closed = revoked.contains(&freed.context) || engine.has_dead(freed.context + 1);
            if !in_use && is_closed {
                held.insert(freed.context);
                engine.abandon(freed.context);
                engine.abandon(freed.context + 1);
                engine.abandon(of_parts);
            } else if !in_use {
                engine.close(freed.context);
                engine.close(freed.context + 1);
                engine.close(of_parts);
                partitions.forget(of_parts);
                if !held.contains(&freed.context) {
                    contexts.release(Contexts::number_of(freed.context));
                }
            }
            in_use
        });
    }

    /// Starts to make a communicator.
    pub fn begin(&mut self, creation: Creation) -> CreationId {
        self.creations.begin(creation)
    }
}

/// Whether a request may still start something on the communicator. The engine knows about messages in flight.
fn holds(request: &Request, comm: CommHandle) -> bool {
    match request {
        Request::Message { .. } | Request::Exchange(_) | Request::Over { .. } => false,
        Request::General(_) | Request::Creation { .. } | Request::Flush { .. } | Request::Recovery { .. } => false,
        // Although nothing is sent: it must not take the revocation of a later communicator with the same context for one of its own.
        Request::Posted { comm: on, .. } => *on == comm,
        Request::Collective { comm: on, .. } | Request::Partitioned { comm: on, .. } => *on == comm,
        Request::Persistent(persistent) => persistent.comm == comm,
    }
}

#[cold]
fn unknown(handle: CommHandle) -> MpiError {
    MpiError::comm(match handle.bits() {
        MPI_COMM_NULL => "the communicator is MPI_COMM_NULL",
        MPI_COMM_WORLD | MPI_COMM_SELF => "MPI_COMM_WORLD and MPI_COMM_SELF exist only from MPI_Init to MPI_Finalize",
        _ => "invalid or freed communicator",
    })
}
