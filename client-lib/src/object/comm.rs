//! Communicators: a group and a context of its own (MPI 5.0 §7.2.2).

use std::sync::Arc;

use super::errhandler::Errhandler;
use super::group::Group;
use super::table::Table;
use crate::abi::constants::{MPI_COMM_NULL, MPI_COMM_SELF, MPI_COMM_WORLD};
use crate::abi::{CommHandle, handle::Handle};
use crate::engine::Peer;
use crate::error::{MpiError, MpiResult};

/// An intracommunicator.
#[derive(Debug)]
pub struct Communicator {
    /// Of its point-to-point messages; that of its collectives is the next higher number.
    pub context: u32,
    /// Its members.
    pub group: Arc<Group>,
    /// This process's rank.
    pub rank: u32,
    /// What becomes of its errors.
    pub errhandler: Errhandler,
    /// As `MPI_Comm_set_name` left it.
    pub name: String,
    /// How many collective operations have been started on it: all members count alike.
    pub collectives: u32,
}

impl Communicator {
    /// With a name and error handler; nothing started on it yet.
    pub fn new(context: u32, group: Arc<Group>, rank: u32, errhandler: Errhandler, name: &str) -> Self {
        Self { context, group, rank, errhandler, name: name.to_owned(), collectives: 0 }
    }

    /// How many members.
    #[inline]
    pub fn size(&self) -> u32 {
        self.group.members.len() as u32
    }

    /// The process with a rank.
    #[inline]
    pub fn peer(&self, rank: u32) -> Option<Peer> {
        self.group.members.get(rank as usize).copied()
    }

    /// The context of its collectives.
    pub fn collective_context(&self) -> u32 {
        self.context + 1
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
}

#[cold]
fn unknown(handle: CommHandle) -> MpiError {
    MpiError::comm(match handle.bits() {
        MPI_COMM_NULL => "the communicator is MPI_COMM_NULL",
        _ => "the communicator was freed or never was one",
    })
}
