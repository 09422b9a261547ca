//! Turns the arguments of a collective function into a plan: checks every argument that is significant on this rank.
//!
//! Each function exists twice: for intracommunicators ([`intra`]) and for intercommunicators ([`inter`]). Both use the checks in
//! `arguments`.

use std::sync::Arc;

use crate::abi::{CommHandle, DatatypeHandle, OpHandle};
use crate::coll::node::Uneven;
use crate::coll::operands::{Memory, Operands};
use crate::coll::{Call, Here, Layout, Members, Schedule, Vector, choice};
use crate::engine::Peer;
use crate::error::{MpiError, MpiResult};
use crate::object::comm::Communicator;
use crate::op::Reduction;
use crate::runtime::State;

/// The functions that pass a length and a place for each block, by `each_to_each`.
macro_rules! alltoall_of_blocks {
    () => {
        /// `MPI_Alltoallv`.
        pub(in crate::api::coll) unsafe fn alltoallv(
            state: &State,
            sendbuf: *const c_void,
            sendcounts: Ints,
            sdispls: Ints,
            sendtype: DatatypeHandle,
            recvbuf: *mut c_void,
            recvcounts: Ints,
            rdispls: Ints,
            recvtype: DatatypeHandle,
            on: On<'_>,
        ) -> MpiResult<Plan> {
            let send = (sendbuf, sendcounts, sdispls, Types::One(sendtype));
            // SAFETY: the caller's promise.
            unsafe { each_to_each(state, send, (recvbuf, recvcounts, rdispls, Types::One(recvtype)), on) }
        }

        /// `MPI_Alltoallw`.
        pub(in crate::api::coll) unsafe fn alltoallw(
            state: &State,
            sendbuf: *const c_void,
            sendcounts: Ints,
            sdispls: Ints,
            sendtypes: *const DatatypeHandle,
            recvbuf: *mut c_void,
            recvcounts: Ints,
            rdispls: Ints,
            recvtypes: *const DatatypeHandle,
            on: On<'_>,
        ) -> MpiResult<Plan> {
            let send = (sendbuf, sendcounts, sdispls, Types::Each(sendtypes));
            // SAFETY: the caller's promise.
            unsafe { each_to_each(state, send, (recvbuf, recvcounts, rdispls, Types::Each(recvtypes)), on) }
        }
    };
}

use arguments::lens;

mod arguments;
pub(super) mod inter;
pub(super) mod intra;
pub(super) mod neighbor;

/// A call with its arguments checked.
pub(super) struct Plan {
    pub(super) comm: CommHandle,
    pub(super) members: Members,
    pub(super) what: What,
    pub(super) operands: Operands,
    pub(super) reduction: Option<Reduction>,
    /// The operation, if it combines.
    pub(super) op: Option<OpHandle>,
    /// What is wrong with the arguments of this rank alone: it takes part, so that the others do not wait for it, but neither reads nor
    /// writes the user's data.
    pub(super) fault: Option<MpiError>,
}

impl Plan {
    pub(super) fn new(on: (CommHandle, Members), what: What, operands: Operands) -> Self {
        Self { comm: on.0, members: on.1, what, operands, reduction: None, op: None, fault: None }
    }

    /// Whether no data of this rank lie where it receives.
    pub(super) fn writes_only_results(&self) -> bool {
        let lends = !self.operands.send.is_empty() || !self.operands.send_to.is_empty();
        lends || matches!(self.what, What::Call(Call::Bcast { .. }))
    }

    /// With what is wrong, if anything is.
    fn checked(self, check: MpiResult) -> Self {
        Self { fault: check.err().or(self.fault), ..self }
    }
}

/// The work of this rank.
pub(super) enum What {
    /// A uniform call: its schedule may be cached.
    Call(Call),
    /// A call whose blocks have different lengths, all of which every rank knows.
    Varied(Varied),
    /// A call whose blocks have lengths that only some ranks know.
    Uneven(Uneven),
    /// A call with a schedule of its own.
    Schedule(Schedule),
}

/// A call with blocks of different lengths. [`Varied::call`] is the same call with blocks of the longest length.
pub(super) enum Varied {
    /// `MPI_Allgatherv`; the lengths are those of [`Operands::recv_from`].
    Allgather { longest: u64, in_place: bool },
    /// `MPI_Reduce_scatter`, of so many elements for each rank.
    ReduceScatter {
        longest: Vector,
        counts: Box<[u64]>,
        /// The first byte and the length of each rank's part.
        parts: Box<[(u64, u64)]>,
        commutes: bool,
        in_place: bool,
    },
}

impl Varied {
    pub(super) fn call(&self) -> Call {
        match *self {
            Self::Allgather { longest, in_place } => Call::Allgather { block: longest, in_place },
            Self::ReduceScatter { longest, commutes, in_place, .. } => {
                Call::ReduceScatterBlock { block: longest, commutes, in_place }
            }
        }
    }

    /// The same call as all members know it: in a reduce-scatter, some may be in place and others not (MPI 5.0 §6.10.2).
    pub(super) fn call_of_all(&self) -> Call {
        match self.call() {
            Call::ReduceScatterBlock { block, commutes, .. } => {
                Call::ReduceScatterBlock { block, commutes, in_place: true }
            }
            call => call,
        }
    }

    pub(super) fn parts(&self) -> Option<&[(u64, u64)]> {
        match self {
            Self::Allgather { .. } => None,
            Self::ReduceScatter { parts, .. } => Some(parts),
        }
    }

    pub(super) fn schedule(&self, here: Here, layout: &Layout, operands: &Operands) -> Schedule {
        match self {
            Self::Allgather { in_place, .. } => {
                choice::allgatherv(here, layout, operands.send.len(), &lens(&operands.recv_from), *in_place)
            }
            Self::ReduceScatter { longest, counts, commutes, in_place, .. } => {
                choice::reduce_scatterv(here, layout, counts, longest.unit, *commutes, *in_place)
            }
        }
    }
}

/// The schedule of a call with blocks whose lengths only some ranks know.
pub(super) fn schedule_of_uneven(call: Uneven, here: Here, operands: &Operands) -> Schedule {
    let from = lens(&operands.recv_from);
    match call {
        Uneven::Gather { root, in_place } => choice::gatherv(here, root, operands.send.len(), &from, in_place),
        Uneven::Scatter { root, in_place } => {
            choice::scatterv(here, root, &lens(&operands.send_to), operands.recv.len(), in_place)
        }
        Uneven::Alltoall { in_place: true } => choice::alltoallv(here, None, &from),
        Uneven::Alltoall { in_place: false } => choice::alltoallv(here, Some(&lens(&operands.send_to)), &from),
    }
}

/// The communicator of a call, and its members as its collectives need them.
pub(super) struct On<'a> {
    comm: CommHandle,
    communicator: &'a Communicator,
    pub(super) members: Members,
}

impl<'a> On<'a> {
    /// An error of class `MPI_ERR_COMM` if the handle is not one of a communicator.
    pub(super) fn new(state: &'a State, comm: CommHandle) -> MpiResult<Self> {
        let communicator = state.comms.get(comm)?;
        communicator.must_be_usable()?;
        let parties = &communicator.parties;
        let here = Here::new(parties.place(), parties.all().len() as u32);
        let peers = Arc::clone(parties.all());
        let members = Members { context: communicator.collective_context(), here, peers };
        Ok(Self { comm, communicator, members })
    }

    /// Whether it is an intercommunicator.
    pub(super) fn is_inter(&self) -> bool {
        self.communicator.remote().is_some()
    }
}

/// Which members of a communicator share a node: all members know the same. The nodes of processes of other jobs are unknown, on both
/// sides; with such members, each process counts as a node, and whether they share processors is unknown, too. If all are on one node and
/// do not share its memory, each counts as a node as well. (Nodes may differ in that, so it does not count if there are several.)
pub(super) fn layout(state: &State, communicator: &Communicator) -> Layout {
    let find = || {
        let peers = communicator.parties.all();
        let apart = || Layout::apart(peers.len() as u32);
        let Some(world) = &state.world else { return apart() };
        let node = |peer: &Peer| world.nodes.get(peer.0 as usize).copied();
        let Some(nodes) = peers.iter().map(node).collect::<Option<Vec<u32>>>() else { return apart() };
        let by_nodes = Layout::of(nodes);
        let layout = if by_nodes.nodes() > 1 || world.settings.shm { by_nodes } else { apart() };
        layout.crowded(world.is_crowded)
    };
    communicator.layout.get_or_init(find).clone()
}

/// A reduction of vectors of this length.
fn combining(
    state: &State,
    check: MpiResult,
    comm: CommHandle,
    members: Members,
    send: Memory,
    recv: Memory,
    count: i64,
    datatype: DatatypeHandle,
    op: OpHandle,
    what: &dyn Fn(Vector, bool) -> What,
) -> MpiResult<Plan> {
    let elements = state.types.get_committed(datatype)?;
    let reduction = Reduction::new(&state.ops.resolve(op)?, &elements, datatype)?;
    // The program may free the datatype while the operation is in progress.
    let reduction = reduction.holding(state.types.hold(datatype));
    let vector = Vector { count: count.unsigned_abs(), unit: elements.size() as u64 };
    let what = what(vector, reduction.commutes());
    // In place, or with elements for which there is no result.
    let reads_result = send.is_empty() || matches!(what, What::Call(Call::Exscan { .. }));
    let operands = Operands { send, recv, elements: Some(elements), ..Operands::default() }.on_host(reads_result)?;
    Ok(Plan { reduction: Some(reduction), op: Some(op), ..Plan::new((comm, members), what, operands).checked(check) })
}
