//! Neighbourhood collectives on a communicator with a topology (MPI 5.0 §8.6).

use std::ffi::c_void;

use super::arguments::{Types, blocks, fits, lens, memory, not_in_place, places};
use super::{On, Plan, What};
use crate::abi::DatatypeHandle;
use crate::abi::constants::MPI_ERR_TOPOLOGY;
use crate::api::ints::Ints;
use crate::coll::operands::{Memory, Operands};
use crate::coll::{Area, Here, Slice, neighbor};
use crate::error::{MpiError, MpiResult};
use crate::memory::Buffer;
use crate::object::topology::End;
use crate::runtime::State;

/// The neighbours of this rank.
struct Neighbours {
    sources: Vec<End>,
    destinations: Vec<End>,
    /// The order in which the blocks are sent.
    order: Vec<usize>,
}

impl Neighbours {
    fn of(on: &On<'_>) -> MpiResult<Self> {
        let Some(topology) = &on.communicator.topology else {
            return Err(MpiError::new(
                MPI_ERR_TOPOLOGY,
                "the communicator has no topology, so this process has no neighbours",
            ));
        };
        let (sources, destinations) =
            (topology.sources(on.members.here.rank), topology.destinations(on.members.here.rank));
        let order = topology.sending_order(destinations.len());
        Ok(Self { sources, destinations, order })
    }

    /// For one block for each source.
    fn incoming(&self) -> Here {
        Here::new(0, self.sources.len() as u32)
    }

    /// For one block for each destination.
    fn outgoing(&self) -> Here {
        Here::new(0, self.destinations.len() as u32)
    }

    fn plan(self, on: On<'_>, to: impl Fn(u32) -> Slice, from: impl Fn(u32) -> Slice, operands: Operands) -> Plan {
        let On { comm, members, .. } = on;
        let ends = |ends: &[End], index: usize| ends.get(index).copied().flatten().map(|rank| (rank, index as u32));
        let to: Vec<_> = self
            .order
            .iter()
            .filter_map(|index| ends(&self.destinations, *index))
            .map(|(rank, at)| (rank, to(at)))
            .collect();
        let from: Vec<_> = (0..self.sources.len())
            .filter_map(|index| ends(&self.sources, index))
            .map(|(rank, at)| (rank, from(at)))
            .collect();
        let (schedule, excess) = neighbor::exchange(members.here.rank, &to, &from);
        let check = excess.map_or(Ok(()), |(sent, room)| fits(sent, room));
        Plan::new((comm, members), What::Schedule(schedule), operands).checked(check)
    }
}

/// The `index`-th of `count` equal blocks.
fn nth(area: Area, memory: &Memory, count: u32) -> impl Fn(u32) -> Slice + use<> {
    let len = memory.len() / u64::from(count.max(1));
    move |index| Slice { area, at: u64::from(index) * len, len }
}

/// The `index`-th block, at a place of its own.
fn own_place(area: fn(u32) -> Area, buffers: &[Buffer]) -> impl Fn(u32) -> Slice + use<> {
    let lens = lens(buffers);
    move |index| Slice::all(area(index), lens[index as usize])
}

/// As [`places`]; without blocks, the arrays may be null.
unsafe fn places_of(
    state: &State,
    address: *const c_void,
    counts: Ints,
    displs: Ints,
    types: Types,
    here: Here,
) -> MpiResult<Box<[Buffer]>> {
    not_in_place(address)?;
    if here.size == 0 {
        return Ok(Box::default());
    }
    // SAFETY: the caller's promise.
    unsafe { places(state, address, counts, displs, types, here) }
}

/// `MPI_Neighbor_allgather`.
pub(in crate::api::coll) unsafe fn neighbor_allgather(
    state: &State,
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: DatatypeHandle,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: DatatypeHandle,
    on: On<'_>,
) -> MpiResult<Plan> {
    let near = Neighbours::of(&on)?;
    // SAFETY: the caller's promise.
    let (send, recv) = unsafe {
        let send = memory(state, sendbuf, sendcount, sendtype)?;
        (send, blocks(state, recvbuf, recvcount, recvtype, near.incoming())?)
    };
    let (all, from) = (Slice::all(Area::Send, send.len()), nth(Area::Recv, &recv, near.incoming().size));
    Ok(near.plan(on, |_| all, from, Operands { send, recv, ..Operands::default() }))
}

/// `MPI_Neighbor_allgatherv`.
pub(in crate::api::coll) unsafe fn neighbor_allgatherv(
    state: &State,
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: DatatypeHandle,
    recvbuf: *mut c_void,
    recvcounts: Ints,
    displs: Ints,
    recvtype: DatatypeHandle,
    on: On<'_>,
) -> MpiResult<Plan> {
    let near = Neighbours::of(&on)?;
    // SAFETY: the caller's promise.
    let (send, recv_from) = unsafe {
        let send = memory(state, sendbuf, sendcount, sendtype)?;
        (send, places_of(state, recvbuf, recvcounts, displs, Types::One(recvtype), near.incoming())?)
    };
    let (all, from) = (Slice::all(Area::Send, send.len()), own_place(Area::RecvFrom, &recv_from));
    Ok(near.plan(on, |_| all, from, Operands { send, recv_from, ..Operands::default() }))
}

/// `MPI_Neighbor_alltoall`.
pub(in crate::api::coll) unsafe fn neighbor_alltoall(
    state: &State,
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: DatatypeHandle,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: DatatypeHandle,
    on: On<'_>,
) -> MpiResult<Plan> {
    let near = Neighbours::of(&on)?;
    // SAFETY: the caller's promise.
    let (send, recv) = unsafe {
        let send = blocks(state, sendbuf, sendcount, sendtype, near.outgoing())?;
        (send, blocks(state, recvbuf, recvcount, recvtype, near.incoming())?)
    };
    let to = nth(Area::Send, &send, near.outgoing().size);
    let from = nth(Area::Recv, &recv, near.incoming().size);
    Ok(near.plan(on, to, from, Operands { send, recv, ..Operands::default() }))
}

/// `MPI_Neighbor_alltoallv`.
pub(in crate::api::coll) unsafe fn neighbor_alltoallv(
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

/// `MPI_Neighbor_alltoallw`: displacements are addresses in both forms.
pub(in crate::api::coll) unsafe fn neighbor_alltoallw(
    state: &State,
    sendbuf: *const c_void,
    sendcounts: Ints,
    sdispls: *const i64,
    sendtypes: *const DatatypeHandle,
    recvbuf: *mut c_void,
    recvcounts: Ints,
    rdispls: *const i64,
    recvtypes: *const DatatypeHandle,
    on: On<'_>,
) -> MpiResult<Plan> {
    let send = (sendbuf, sendcounts, Ints::Wide(sdispls), Types::Each(sendtypes));
    let recv = (recvbuf, recvcounts, Ints::Wide(rdispls), Types::Each(recvtypes));
    // SAFETY: the caller's promise.
    unsafe { each_to_each(state, send, recv, on) }
}

unsafe fn each_to_each(
    state: &State,
    (sendbuf, sendcounts, sdispls, sendtypes): (*const c_void, Ints, Ints, Types),
    (recvbuf, recvcounts, rdispls, recvtypes): (*mut c_void, Ints, Ints, Types),
    on: On<'_>,
) -> MpiResult<Plan> {
    let near = Neighbours::of(&on)?;
    // SAFETY: the caller's promise.
    let (send_to, recv_from) = unsafe {
        let send_to = places_of(state, sendbuf, sendcounts, sdispls, sendtypes, near.outgoing())?;
        (send_to, places_of(state, recvbuf, recvcounts, rdispls, recvtypes, near.incoming())?)
    };
    let (to, from) = (own_place(Area::SendTo, &send_to), own_place(Area::RecvFrom, &recv_from));
    Ok(near.plan(on, to, from, Operands { send_to, recv_from, ..Operands::default() }))
}
