//! Communicators: a group, or two, and contexts of their own (MPI 5.0 §7.2.2, §7.6).
//!
//! `MPI_Comm_free` is local: the handle goes at once, but the contexts stay open, and are not used again, until no receive
//! that was started before can still get its message. Nothing has to be counted for that: [`Comms::sweep`] looks when a
//! context is wanted.

use std::sync::Arc;

use super::agree::{Circle, tag};
use super::attr::Attributes;
use super::context::Contexts;
use super::creation::{Creation, CreationId, Creations};
use super::errhandler::Errhandler;
use super::group::Group;
use super::info::Info;
use super::names::Names;
use super::parties::{Born, Parties, Remote};
use super::requests::{Request, Requests};
use super::table::Table;
use crate::abi::constants::{MPI_COMM_NULL, MPI_COMM_SELF, MPI_COMM_WORLD};
use crate::abi::{CommHandle, SessionHandle, handle::Handle};
use crate::coll::inter::Sides;
use crate::coll::node::Sharing;
use crate::engine::{Engine, Peer, Transport};
use crate::error::{MpiError, MpiResult};

/// An intracommunicator, or an intercommunicator.
#[derive(Debug)]
pub struct Communicator {
    /// Of its point-to-point messages; that of its collectives is the next higher number.
    pub context: u32,
    /// Whom its messages name: `peers[rank]`.
    pub peers: Arc<[Peer]>,
    /// Who is in it.
    pub parties: Parties,
    /// This process's rank.
    pub rank: u32,
    /// What becomes of its errors.
    pub errhandler: Errhandler,
    /// As `MPI_Comm_set_name` left it.
    pub name: Vec<u8>,
    /// How many collective operations have been started on it: all members count alike.
    pub collectives: u32,
    /// What the user has attached.
    pub attributes: Attributes,
    /// What the user has promised of how it is used.
    pub hints: Info,
    /// Memory that its members share, if all are on one node.
    pub sharing: Sharing,
    /// The session that it was derived from, if it was.
    pub session: Option<SessionHandle>,
}

/// The context of a communicator that is promised but not made yet: nothing is ever received on it.
const UNBORN: u32 = u32::MAX - 1;

impl Communicator {
    /// With a name and error handler; nothing started on it yet.
    pub fn new(context: u32, parties: impl Into<Parties>, errhandler: Errhandler, name: &str) -> Self {
        let parties = parties.into();
        Self {
            context,
            peers: Arc::clone(parties.named()),
            rank: parties.rank(),
            errhandler,
            name: name.into(),
            collectives: 0,
            attributes: Attributes::default(),
            hints: Info::default(),
            sharing: if parties.remote.is_none() { Sharing::default() } else { Sharing::Never },
            session: parties.group.session,
            parties,
        }
    }

    /// As a creation has made it.
    pub fn born(born: Born, errhandler: Errhandler) -> Self {
        Self::new(born.context, born.parties, errhandler, "")
    }

    /// Promised: its context follows.
    pub fn promised(parties: Parties, errhandler: Errhandler) -> Self {
        Self::new(UNBORN, parties, errhandler, "")
    }

    /// The group that this process is in.
    #[inline]
    pub fn group(&self) -> &Arc<Group> {
        &self.parties.group
    }

    /// Of an intercommunicator: the other side.
    #[inline]
    pub fn remote(&self) -> Option<&Remote> {
        self.parties.remote.as_ref()
    }

    /// Of an intercommunicator: who this process is in its collectives.
    pub fn sides(&self) -> Option<Sides> {
        let remote = self.remote()?;
        let (local, remote, local_first) = (self.group().size(), remote.group.size(), remote.local_first);
        Some(Sides { rank: self.rank, local, remote, local_first })
    }

    /// An error of class `MPI_ERR_COMM` if it is an intercommunicator, for functions that take none.
    pub fn must_be_intra(&self) -> MpiResult {
        match self.remote() {
            None => Ok(()),
            Some(_) => {
                Err(MpiError::comm("this function takes an intracommunicator, and this is an intercommunicator"))
            }
        }
    }

    /// The context of its collectives.
    pub fn collective_context(&self) -> u32 {
        self.context + 1
    }

    /// All, of both groups if there are two, for an operation that all take part in: it counts as one.
    pub fn circle_of_all(&mut self) -> Circle {
        let tag = tag::counted(self.collectives);
        self.collectives = self.collectives.wrapping_add(1);
        self.circle(None, self.parties.place(), tag)
    }

    /// Some, by their places among all, of which this process is the `place`-th.
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
    /// Those made by the user.
    pub made: Table<CommHandle, Communicator>,
    /// Those being made.
    pub creations: Creations,
    /// Which contexts are taken.
    pub contexts: Contexts,
    /// How members are named to other processes.
    pub names: Names,
    /// All that were started together, as they count each other where they have no communicator.
    pub everyone: Arc<[Peer]>,
    /// Of a process that was spawned: with whoever has spawned it, until that is freed.
    pub parent: Option<CommHandle>,
    /// Those freed by the user whose contexts are still open.
    freed: Vec<Freed>,
}

#[derive(Debug, Clone, Copy)]
struct Freed {
    handle: CommHandle,
    context: u32,
}

impl Comms {
    /// The communicator of a handle; an error of class `MPI_ERR_COMM` if there is none.
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

    /// A handle for a communicator.
    pub fn add(&mut self, communicator: Communicator) -> MpiResult<CommHandle> {
        self.made.add(communicator).ok_or_else(|| MpiError::no_mem("there are two million communicators already"))
    }

    /// Gets on with communicators that are being made; whether any moved. One that was promised is usable once it is made.
    #[inline]
    pub fn progress<T: Transport>(&mut self, engine: &mut Engine<T>) -> bool {
        !self.creations.is_empty() && self.get_on(engine)
    }

    fn get_on<T: Transport>(&mut self, engine: &mut Engine<T>) -> bool {
        let moved = self.creations.poll(engine, &mut self.contexts, &self.names);
        let made = &mut self.made;
        self.creations.settle(|creation| {
            let promised = creation.promised.and_then(|promised| made.get_mut(promised));
            if let (Some(communicator), Some(context)) = (promised, creation.context()) {
                communicator.context = context;
            }
        });
        moved
    }

    /// The end of a creation, if it has come. A promised communicator that came to nothing is gone.
    pub fn take_born(&mut self, id: CreationId) -> Option<MpiResult<Option<Born>>> {
        let creation = self.creations.take(id)?;
        let promised = creation.promised;
        let result = creation.into_result()?;
        if let (Some(promised), Err(_)) = (promised, &result) {
            let _ = self.made.take(promised);
        }
        Some(result)
    }

    /// Takes a communicator's handle from the user; its contexts stay open as long as [`Comms::sweep`] finds a reason.
    pub fn free(&mut self, handle: CommHandle) -> MpiResult<Communicator> {
        let Some(communicator) = self.made.take(handle) else { return Err(unknown(handle)) };
        self.freed.push(Freed { handle, context: communicator.context });
        self.parent.take_if(|parent| *parent == handle);
        Ok(communicator)
    }

    /// Closes the contexts of freed communicators on which nothing can come any more, and lets them be used again.
    pub fn sweep<T: Transport>(&mut self, engine: &mut Engine<T>, requests: &Requests) {
        let (creations, contexts) = (&self.creations, &mut self.contexts);
        self.freed.retain(|freed| {
            let in_use = engine.has_receives(freed.context)
                || engine.has_receives(freed.context + 1)
                || creations.use_context(freed.context + 1)
                || requests.iter().any(|(_, request)| holds(request, freed.handle));
            if !in_use {
                engine.close(freed.context);
                engine.close(freed.context + 1);
                contexts.release(Contexts::number_of(freed.context));
            }
            in_use
        });
    }

    /// Begins to make a communicator.
    pub fn begin(&mut self, creation: Creation) -> CreationId {
        self.creations.begin(creation)
    }
}

/// Whether a request may yet start something on the communicator. A message under way is the engine's to know.
fn holds(request: &Request, comm: CommHandle) -> bool {
    match request {
        Request::Message { .. } | Request::Exchange(_) | Request::Over { .. } => false,
        Request::General(_) | Request::Creation { .. } | Request::Flush { .. } => false,
        Request::Collective { comm: on, .. } => *on == comm,
        Request::Persistent(persistent) => persistent.comm == comm,
    }
}

#[cold]
fn unknown(handle: CommHandle) -> MpiError {
    MpiError::comm(match handle.bits() {
        MPI_COMM_NULL => "the communicator is MPI_COMM_NULL",
        MPI_COMM_WORLD | MPI_COMM_SELF => {
            "MPI_COMM_WORLD and MPI_COMM_SELF are there from MPI_Init to MPI_Finalize only"
        }
        _ => "the communicator was freed or never was one",
    })
}
