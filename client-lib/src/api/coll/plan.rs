//! From the arguments of a collective function to what is to be done: every argument checked that counts on this rank.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use crate::abi::constants::MPI_IN_PLACE;
use crate::abi::{CommHandle, DatatypeHandle, OpHandle};
use crate::api::args;
use crate::api::coll::inter;
use crate::api::ints::Ints;
use crate::coll::operands::{Memory, Operands};
use crate::coll::{Call, Here, Members, Schedule, Vector, choice};
use crate::error::{MpiError, MpiResult};
use crate::memory::Buffer;
use crate::object::comm::Communicator;
use crate::op::Reduction;
use crate::runtime::State;

/// A call with its arguments checked.
pub(super) struct Plan {
    pub(super) comm: CommHandle,
    pub(super) members: Members,
    pub(super) what: What,
    pub(super) operands: Operands,
    pub(super) reduction: Option<Reduction>,
}

/// What this rank does.
pub(super) enum What {
    /// As many others may do: its schedule may be known.
    Call(Call),
    /// This.
    Schedule(Schedule),
}

/// `MPI_Barrier`.
pub(super) unsafe fn barrier(state: &State, comm: CommHandle) -> MpiResult<Plan> {
    let (_, members) = members(state, comm)?;
    Ok(Plan { comm, members, what: What::Call(Call::Barrier), operands: Operands::default(), reduction: None })
}

/// `MPI_Bcast`.
pub(super) unsafe fn bcast(
    state: &State,
    buffer: *mut c_void,
    count: i64,
    datatype: DatatypeHandle,
    root: c_int,
    comm: CommHandle,
) -> MpiResult<Plan> {
    let (communicator, members) = members(state, comm)?;
    if communicator.remote().is_some() {
        // SAFETY: the caller's promise.
        return unsafe { inter::bcast(state, buffer, count, datatype, root, comm) };
    }
    let root = args::root(communicator, root)?;
    not_in_place(buffer)?;
    // SAFETY: the caller's promise.
    let recv = unsafe { memory(state, buffer, count, datatype)? };
    let what = What::Call(Call::Bcast { root, len: recv.len() });
    Ok(Plan { comm, members, what, operands: Operands { recv, ..Operands::default() }, reduction: None })
}

/// `MPI_Gather`.
pub(super) unsafe fn gather(
    state: &State,
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: DatatypeHandle,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: DatatypeHandle,
    root: c_int,
    comm: CommHandle,
) -> MpiResult<Plan> {
    let (communicator, members) = members(state, comm)?;
    if communicator.remote().is_some() {
        // SAFETY: the caller's promise.
        return unsafe { inter::gather(state, sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm) };
    }
    let root = args::root(communicator, root)?;
    let is_root = root == members.here.rank;
    let in_place = at_root_in_place(sendbuf, is_root)?;
    // SAFETY: the caller's promise.
    let send = unsafe { if in_place { Memory::NONE } else { memory(state, sendbuf, sendcount, sendtype)? } };
    let recv = if is_root {
        not_in_place(recvbuf)?;
        // SAFETY: the caller's promise.
        unsafe { blocks(state, recvbuf, recvcount, recvtype, members.here)? }
    } else {
        Memory::NONE
    };
    let block = if is_root { recv.len() / u64::from(members.here.size) } else { send.len() };
    if is_root {
        apart(sendbuf, send.len(), recvbuf, recv.len())?;
        fits(send.len(), block)?;
    }
    let what = What::Call(Call::Gather { root, block, in_place });
    Ok(Plan { comm, members, what, operands: Operands { send, recv, ..Operands::default() }, reduction: None })
}

/// `MPI_Gatherv`.
pub(super) unsafe fn gatherv(
    state: &State,
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: DatatypeHandle,
    recvbuf: *mut c_void,
    recvcounts: Ints,
    displs: Ints,
    recvtype: DatatypeHandle,
    root: c_int,
    comm: CommHandle,
) -> MpiResult<Plan> {
    let (communicator, members) = members(state, comm)?;
    if communicator.remote().is_some() {
        // SAFETY: the caller's promise.
        return unsafe {
            inter::gatherv(state, sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, root, comm)
        };
    }
    let (here, root) = (members.here, args::root(communicator, root)?);
    let is_root = root == here.rank;
    let in_place = at_root_in_place(sendbuf, is_root)?;
    // SAFETY: the caller's promise.
    let send = unsafe { if in_place { Memory::NONE } else { memory(state, sendbuf, sendcount, sendtype)? } };
    let mut recv_from: Box<[Buffer]> = Box::default();
    if is_root {
        not_in_place(recvbuf)?;
        // SAFETY: the caller's promise.
        recv_from = unsafe { places(state, recvbuf, recvcounts, displs, Types::One(recvtype), here)? };
        apart(sendbuf, send.len(), recvbuf, recv_from.iter().map(Buffer::len).sum::<usize>() as u64)?;
        fits(send.len(), recv_from[root as usize].len() as u64)?;
    }
    let what = What::Schedule(choice::gatherv(here, root, send.len(), &lens(&recv_from), in_place));
    Ok(Plan { comm, members, what, operands: Operands { send, recv_from, ..Operands::default() }, reduction: None })
}

/// `MPI_Scatter`.
pub(super) unsafe fn scatter(
    state: &State,
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: DatatypeHandle,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: DatatypeHandle,
    root: c_int,
    comm: CommHandle,
) -> MpiResult<Plan> {
    let (communicator, members) = members(state, comm)?;
    if communicator.remote().is_some() {
        // SAFETY: the caller's promise.
        return unsafe {
            inter::scatter(state, sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm)
        };
    }
    let root = args::root(communicator, root)?;
    let is_root = root == members.here.rank;
    let in_place = at_root_in_place(recvbuf, is_root)?;
    // SAFETY: the caller's promise.
    let recv = unsafe { if in_place { Memory::NONE } else { memory(state, recvbuf, recvcount, recvtype)? } };
    let send = if is_root {
        not_in_place(sendbuf)?;
        // SAFETY: the caller's promise.
        unsafe { blocks(state, sendbuf, sendcount, sendtype, members.here)? }
    } else {
        Memory::NONE
    };
    let block = if is_root { send.len() / u64::from(members.here.size) } else { recv.len() };
    if is_root && !in_place {
        apart(sendbuf, send.len(), recvbuf, recv.len())?;
        fits(block, recv.len())?;
    }
    let what = What::Call(Call::Scatter { root, block, in_place });
    Ok(Plan { comm, members, what, operands: Operands { send, recv, ..Operands::default() }, reduction: None })
}

/// `MPI_Scatterv`.
pub(super) unsafe fn scatterv(
    state: &State,
    sendbuf: *const c_void,
    sendcounts: Ints,
    displs: Ints,
    sendtype: DatatypeHandle,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: DatatypeHandle,
    root: c_int,
    comm: CommHandle,
) -> MpiResult<Plan> {
    let (communicator, members) = members(state, comm)?;
    if communicator.remote().is_some() {
        // SAFETY: the caller's promise.
        return unsafe {
            inter::scatterv(state, sendbuf, sendcounts, displs, sendtype, recvbuf, recvcount, recvtype, root, comm)
        };
    }
    let (here, root) = (members.here, args::root(communicator, root)?);
    let is_root = root == here.rank;
    let in_place = at_root_in_place(recvbuf, is_root)?;
    // SAFETY: the caller's promise.
    let recv = unsafe { if in_place { Memory::NONE } else { memory(state, recvbuf, recvcount, recvtype)? } };
    let mut send_to: Box<[Buffer]> = Box::default();
    if is_root {
        not_in_place(sendbuf)?;
        // SAFETY: the caller's promise.
        send_to = unsafe { places(state, sendbuf, sendcounts, displs, Types::One(sendtype), here)? };
        if !in_place {
            apart(sendbuf, send_to.iter().map(Buffer::len).sum::<usize>() as u64, recvbuf, recv.len())?;
            fits(send_to[root as usize].len() as u64, recv.len())?;
        }
    }
    let what = What::Schedule(choice::scatterv(here, root, &lens(&send_to), recv.len(), in_place));
    Ok(Plan { comm, members, what, operands: Operands { recv, send_to, ..Operands::default() }, reduction: None })
}

/// `MPI_Allgather`.
pub(super) unsafe fn allgather(
    state: &State,
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: DatatypeHandle,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: DatatypeHandle,
    comm: CommHandle,
) -> MpiResult<Plan> {
    let (communicator, members) = members(state, comm)?;
    if communicator.remote().is_some() {
        // SAFETY: the caller's promise.
        return unsafe { inter::allgather(state, sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm) };
    }
    let in_place = is_in_place(sendbuf);
    not_in_place(recvbuf)?;
    // SAFETY: the caller's promise.
    let (send, recv) = unsafe {
        let send = if in_place { Memory::NONE } else { memory(state, sendbuf, sendcount, sendtype)? };
        (send, blocks(state, recvbuf, recvcount, recvtype, members.here)?)
    };
    let block = recv.len() / u64::from(members.here.size);
    apart(sendbuf, send.len(), recvbuf, recv.len())?;
    fits(send.len(), block)?;
    let what = What::Call(Call::Allgather { block, in_place });
    Ok(Plan { comm, members, what, operands: Operands { send, recv, ..Operands::default() }, reduction: None })
}

/// `MPI_Allgatherv`.
pub(super) unsafe fn allgatherv(
    state: &State,
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: DatatypeHandle,
    recvbuf: *mut c_void,
    recvcounts: Ints,
    displs: Ints,
    recvtype: DatatypeHandle,
    comm: CommHandle,
) -> MpiResult<Plan> {
    let (communicator, members) = members(state, comm)?;
    if communicator.remote().is_some() {
        // SAFETY: the caller's promise.
        return unsafe {
            inter::allgatherv(state, sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, comm)
        };
    }
    let here = members.here;
    let in_place = is_in_place(sendbuf);
    not_in_place(recvbuf)?;
    // SAFETY: the caller's promise.
    let (send, recv_from) = unsafe {
        let send = if in_place { Memory::NONE } else { memory(state, sendbuf, sendcount, sendtype)? };
        (send, places(state, recvbuf, recvcounts, displs, Types::One(recvtype), here)?)
    };
    let lens = lens(&recv_from);
    total(&lens)?;
    apart(sendbuf, send.len(), recvbuf, lens.iter().sum())?;
    fits(send.len(), lens[here.rank as usize])?;
    let what = What::Schedule(choice::allgatherv(here, send.len(), &lens, in_place));
    Ok(Plan { comm, members, what, operands: Operands { send, recv_from, ..Operands::default() }, reduction: None })
}

/// `MPI_Alltoall`.
pub(super) unsafe fn alltoall(
    state: &State,
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: DatatypeHandle,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: DatatypeHandle,
    comm: CommHandle,
) -> MpiResult<Plan> {
    let (communicator, members) = members(state, comm)?;
    if communicator.remote().is_some() {
        // SAFETY: the caller's promise.
        return unsafe { inter::alltoall(state, sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm) };
    }
    let in_place = is_in_place(sendbuf);
    not_in_place(recvbuf)?;
    // SAFETY: the caller's promise.
    let (send, recv) = unsafe {
        let send = if in_place { Memory::NONE } else { blocks(state, sendbuf, sendcount, sendtype, members.here)? };
        (send, blocks(state, recvbuf, recvcount, recvtype, members.here)?)
    };
    apart(sendbuf, send.len(), recvbuf, recv.len())?;
    if !in_place && send.len() != recv.len() {
        return Err(MpiError::truncate(format!(
            "{} bytes go to each rank, and {} come from each, of which this one is one",
            send.len() / u64::from(members.here.size),
            recv.len() / u64::from(members.here.size)
        )));
    }
    let what = What::Call(Call::Alltoall { block: recv.len() / u64::from(members.here.size), in_place });
    Ok(Plan { comm, members, what, operands: Operands { send, recv, ..Operands::default() }, reduction: None })
}

/// `MPI_Alltoallv`.
pub(super) unsafe fn alltoallv(
    state: &State,
    sendbuf: *const c_void,
    sendcounts: Ints,
    sdispls: Ints,
    sendtype: DatatypeHandle,
    recvbuf: *mut c_void,
    recvcounts: Ints,
    rdispls: Ints,
    recvtype: DatatypeHandle,
    comm: CommHandle,
) -> MpiResult<Plan> {
    let send = (sendbuf, sendcounts, sdispls, Types::One(sendtype));
    // SAFETY: the caller's promise.
    unsafe { each_to_each(state, send, (recvbuf, recvcounts, rdispls, Types::One(recvtype)), comm) }
}

/// `MPI_Alltoallw`.
pub(super) unsafe fn alltoallw(
    state: &State,
    sendbuf: *const c_void,
    sendcounts: Ints,
    sdispls: Ints,
    sendtypes: *const DatatypeHandle,
    recvbuf: *mut c_void,
    recvcounts: Ints,
    rdispls: Ints,
    recvtypes: *const DatatypeHandle,
    comm: CommHandle,
) -> MpiResult<Plan> {
    let send = (sendbuf, sendcounts, sdispls, Types::Each(sendtypes));
    // SAFETY: the caller's promise.
    unsafe { each_to_each(state, send, (recvbuf, recvcounts, rdispls, Types::Each(recvtypes)), comm) }
}

unsafe fn each_to_each(
    state: &State,
    (sendbuf, sendcounts, sdispls, sendtypes): (*const c_void, Ints, Ints, Types),
    (recvbuf, recvcounts, rdispls, recvtypes): (*mut c_void, Ints, Ints, Types),
    comm: CommHandle,
) -> MpiResult<Plan> {
    let (communicator, members) = members(state, comm)?;
    if communicator.remote().is_some() {
        let (send, recv) = ((sendbuf, sendcounts, sdispls, sendtypes), (recvbuf, recvcounts, rdispls, recvtypes));
        // SAFETY: the caller's promise.
        return unsafe { inter::each_to_each(state, send, recv, comm) };
    }
    let here = members.here;
    let in_place = is_in_place(sendbuf);
    not_in_place(recvbuf)?;
    // SAFETY: the caller's promise.
    let recv_from = unsafe { places(state, recvbuf, recvcounts, rdispls, recvtypes, here)? };
    let from = lens(&recv_from);
    let (mut send_to, mut to): (Box<[Buffer]>, _) = (Box::default(), None);
    if !in_place {
        // SAFETY: the caller's promise.
        send_to = unsafe { places(state, sendbuf, sendcounts, sdispls, sendtypes, here)? };
        let lens = lens(&send_to);
        if matches!(sendtypes, Types::One(_)) {
            apart(sendbuf, total(&lens)?, recvbuf, total(&from)?)?;
        }
        fits(lens[here.rank as usize], from[here.rank as usize])?;
        to = Some(lens);
    }
    let what = What::Schedule(choice::alltoallv(here, to.as_deref(), &from));
    Ok(Plan { comm, members, what, operands: Operands { send_to, recv_from, ..Operands::default() }, reduction: None })
}

/// `MPI_Reduce`.
pub(super) unsafe fn reduce(
    state: &State,
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: i64,
    datatype: DatatypeHandle,
    op: OpHandle,
    root: c_int,
    comm: CommHandle,
) -> MpiResult<Plan> {
    let (communicator, members) = members(state, comm)?;
    if communicator.remote().is_some() {
        // SAFETY: the caller's promise.
        return unsafe { inter::reduce(state, sendbuf, recvbuf, count, datatype, op, root, comm) };
    }
    let root = args::root(communicator, root)?;
    let is_root = root == members.here.rank;
    let in_place = at_root_in_place(sendbuf, is_root)?;
    // SAFETY: the caller's promise.
    let (send, recv) = unsafe {
        let send = if in_place { Memory::NONE } else { memory(state, sendbuf, count, datatype)? };
        (send, if is_root { result(state, recvbuf, count, datatype)? } else { Memory::NONE })
    };
    if is_root {
        apart(sendbuf, send.len(), recvbuf, recv.len())?;
    }
    combining(state, comm, members, send, recv, count, datatype, op, |vector, commutes| {
        What::Call(Call::Reduce { root, vector, commutes, in_place })
    })
}

/// `MPI_Allreduce`.
pub(super) unsafe fn allreduce(
    state: &State,
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: i64,
    datatype: DatatypeHandle,
    op: OpHandle,
    comm: CommHandle,
) -> MpiResult<Plan> {
    let (communicator, members) = members(state, comm)?;
    if communicator.remote().is_some() {
        // SAFETY: the caller's promise.
        return unsafe { inter::allreduce(state, sendbuf, recvbuf, count, datatype, op, comm) };
    }
    let in_place = is_in_place(sendbuf);
    // SAFETY: the caller's promise.
    let (send, recv) = unsafe { vectors(state, sendbuf, recvbuf, count, datatype)? };
    combining(state, comm, members, send, recv, count, datatype, op, |vector, commutes| {
        What::Call(Call::Allreduce { vector, commutes, in_place })
    })
}

/// `MPI_Scan`.
pub(super) unsafe fn scan(
    state: &State,
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: i64,
    datatype: DatatypeHandle,
    op: OpHandle,
    comm: CommHandle,
) -> MpiResult<Plan> {
    let (communicator, members) = members(state, comm)?;
    communicator.must_be_intra()?;
    let in_place = is_in_place(sendbuf);
    // SAFETY: the caller's promise.
    let (send, recv) = unsafe { vectors(state, sendbuf, recvbuf, count, datatype)? };
    combining(state, comm, members, send, recv, count, datatype, op, |vector, _| {
        What::Call(Call::Scan { vector, in_place })
    })
}

/// `MPI_Exscan`: rank 0 has no result.
pub(super) unsafe fn exscan(
    state: &State,
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: i64,
    datatype: DatatypeHandle,
    op: OpHandle,
    comm: CommHandle,
) -> MpiResult<Plan> {
    let (communicator, members) = members(state, comm)?;
    communicator.must_be_intra()?;
    let in_place = is_in_place(sendbuf);
    // SAFETY: the caller's promise.
    let (send, recv) = unsafe {
        if members.here.rank == 0 && !in_place {
            (memory(state, sendbuf, count, datatype)?, Memory::NONE)
        } else {
            vectors(state, sendbuf, recvbuf, count, datatype)?
        }
    };
    combining(state, comm, members, send, recv, count, datatype, op, |vector, _| {
        What::Call(Call::Exscan { vector, in_place })
    })
}

/// `MPI_Reduce_scatter_block`.
pub(super) unsafe fn reduce_scatter_block(
    state: &State,
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    recvcount: i64,
    datatype: DatatypeHandle,
    op: OpHandle,
    comm: CommHandle,
) -> MpiResult<Plan> {
    let (communicator, members) = members(state, comm)?;
    if communicator.remote().is_some() {
        // SAFETY: the caller's promise.
        return unsafe { inter::reduce_scatter_block(state, sendbuf, recvbuf, recvcount, datatype, op, comm) };
    }
    let in_place = is_in_place(sendbuf);
    let all = recvcount.checked_mul(i64::from(members.here.size)).ok_or_else(|| too_many(recvcount))?;
    // SAFETY: the caller's promise.
    let (send, recv) = unsafe { to_be_scattered(state, sendbuf, recvbuf, all, recvcount, datatype)? };
    combining(state, comm, members, send, recv, recvcount, datatype, op, |block, commutes| {
        What::Call(Call::ReduceScatterBlock { block, commutes, in_place })
    })
}

/// `MPI_Reduce_scatter`.
pub(super) unsafe fn reduce_scatter(
    state: &State,
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    recvcounts: Ints,
    datatype: DatatypeHandle,
    op: OpHandle,
    comm: CommHandle,
) -> MpiResult<Plan> {
    let (communicator, members) = members(state, comm)?;
    if communicator.remote().is_some() {
        // SAFETY: the caller's promise.
        return unsafe { inter::reduce_scatter(state, sendbuf, recvbuf, recvcounts, datatype, op, comm) };
    }
    let here = members.here;
    let in_place = is_in_place(sendbuf);
    there_is(recvcounts, "counts")?;
    // SAFETY: the caller's promise.
    let counts = unsafe { recvcounts.to_vec(here.size as usize) };
    if let Some(negative) = counts.iter().find(|count| **count < 0) {
        return Err(MpiError::count(format!("a count is {negative}")));
    }
    let all = counts.iter().try_fold(0_i64, |sum, count| sum.checked_add(*count)).ok_or_else(|| too_many(i64::MAX))?;
    // SAFETY: the caller's promise.
    let (send, recv) = unsafe { to_be_scattered(state, sendbuf, recvbuf, all, counts[here.rank as usize], datatype)? };
    let counts: Vec<u64> = counts.iter().map(|count| count.unsigned_abs()).collect();
    combining(state, comm, members, send, recv, all, datatype, op, |vector, commutes| {
        What::Schedule(choice::reduce_scatterv(here, &counts, vector.unit, commutes, in_place))
    })
}

/// A reduction of vectors of this length.
pub(super) fn combining(
    state: &State,
    comm: CommHandle,
    members: Members,
    send: Memory,
    recv: Memory,
    count: i64,
    datatype: DatatypeHandle,
    op: OpHandle,
    what: impl FnOnce(Vector, bool) -> What,
) -> MpiResult<Plan> {
    let elements = state.types.get_committed(datatype)?;
    let reduction = Reduction::new(&state.ops.resolve(op)?, &elements, datatype)?;
    let vector = Vector { count: count.unsigned_abs(), unit: elements.size() as u64 };
    let what = what(vector, reduction.commutes());
    let operands = Operands { send, recv, elements: Some(elements), ..Operands::default() };
    Ok(Plan { comm, members, what, operands, reduction: Some(reduction) })
}

/// The communicator, and its members as the messages of its collectives know them.
pub(super) fn members(state: &State, comm: CommHandle) -> MpiResult<(&Communicator, Members)> {
    let communicator = state.comms.get(comm)?;
    let parties = &communicator.parties;
    let here = Here::new(parties.place(), parties.all().len() as u32);
    let peers = Arc::clone(parties.all());
    Ok((communicator, Members { context: communicator.collective_context(), here, peers }))
}

#[inline]
pub(super) fn is_in_place(address: *const c_void) -> bool {
    address.addr() == MPI_IN_PLACE
}

pub(super) fn not_in_place(address: *const c_void) -> MpiResult {
    if is_in_place(address) {
        return Err(MpiError::buffer("MPI_IN_PLACE stands where this function does not take it"));
    }
    Ok(())
}

/// Whether the root says `MPI_IN_PLACE`, which nobody else may.
fn at_root_in_place(address: *const c_void, is_root: bool) -> MpiResult<bool> {
    if is_in_place(address) && !is_root {
        return Err(MpiError::buffer("only the root may pass MPI_IN_PLACE"));
    }
    Ok(is_in_place(address))
}

/// Memory that the user lends for elements.
pub(super) unsafe fn memory(
    state: &State,
    address: *const c_void,
    count: i64,
    datatype: DatatypeHandle,
) -> MpiResult<Memory> {
    not_in_place(address)?;
    // SAFETY: the caller's promise.
    let buffer = unsafe { args::buffer(state, address, count, datatype)? };
    Ok(Memory::new(address.cast_mut().cast(), buffer))
}

/// Memory for a result.
pub(super) unsafe fn result(
    state: &State,
    address: *mut c_void,
    count: i64,
    datatype: DatatypeHandle,
) -> MpiResult<Memory> {
    // SAFETY: the caller's promise.
    unsafe { memory(state, address, count, datatype) }
}

/// Memory for a block of each rank.
pub(super) unsafe fn blocks(
    state: &State,
    address: *const c_void,
    count: i64,
    datatype: DatatypeHandle,
    here: Here,
) -> MpiResult<Memory> {
    let all = count.checked_mul(i64::from(here.size)).ok_or_else(|| too_many(count))?;
    // SAFETY: the caller's promise.
    unsafe { memory(state, address, all, datatype) }
}

/// Operands and results of one length; no operands if in place.
unsafe fn vectors(
    state: &State,
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: i64,
    datatype: DatatypeHandle,
) -> MpiResult<(Memory, Memory)> {
    // SAFETY: the caller's promise.
    unsafe { to_be_scattered(state, sendbuf, recvbuf, count, count, datatype) }
}

/// Operands of one length and results of another; in place, operands lie where the results go.
unsafe fn to_be_scattered(
    state: &State,
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    all: i64,
    own: i64,
    datatype: DatatypeHandle,
) -> MpiResult<(Memory, Memory)> {
    if is_in_place(sendbuf) {
        // SAFETY: the caller's promise.
        return Ok((Memory::NONE, unsafe { result(state, recvbuf, all, datatype)? }));
    }
    // SAFETY: the caller's promise.
    let (send, recv) = unsafe { (memory(state, sendbuf, all, datatype)?, result(state, recvbuf, own, datatype)?) };
    apart(sendbuf, send.len(), recvbuf, recv.len())?;
    Ok((send, recv))
}

/// The datatypes of several blocks; with one for each, displacements count bytes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Types {
    One(DatatypeHandle),
    Each(*const DatatypeHandle),
}

/// Memory for a block of each rank, where each has its own length and place.
pub(super) unsafe fn places(
    state: &State,
    address: *const c_void,
    counts: Ints,
    displs: Ints,
    types: Types,
    here: Here,
) -> MpiResult<Box<[Buffer]>> {
    there_is(counts, "counts")?;
    there_is(displs, "displacements")?;
    let (datatype, extent) = match types {
        Types::One(datatype) => (datatype, state.types.resolve_committed(datatype)?.extent()),
        Types::Each(types) if types.is_null() => return Err(MpiError::datatype("the array of datatypes is null")),
        Types::Each(_) => (DatatypeHandle::NULL, 1),
    };
    let place = |rank: usize| {
        let datatype = match types {
            Types::One(_) => datatype,
            // SAFETY: the caller's promise; the array is not null.
            Types::Each(types) => unsafe { types.add(rank).read() },
        };
        // SAFETY: the caller's promise; the arrays are not null.
        let (count, displacement) = unsafe { (counts.get(rank), displs.get(rank)) };
        if count > 0 && address.is_null() && displacement != 0 && crate::datatype::basic_size(datatype).is_some() {
            return Err(MpiError::buffer(format!("the buffer is null, for {count} elements of rank {rank}")));
        }
        let offset = displacement.checked_mul(extent).and_then(|offset| isize::try_from(offset).ok());
        let offset = offset.ok_or_else(|| MpiError::arg(format!("the displacement {displacement} is too large")))?;
        // SAFETY: the caller's promise.
        unsafe { args::buffer(state, address.wrapping_byte_offset(offset), count, datatype) }
    };
    (0..here.size as usize).map(place).collect()
}

pub(super) fn lens(buffers: &[Buffer]) -> Vec<u64> {
    buffers.iter().map(|buffer| buffer.len() as u64).collect()
}

/// Of all blocks.
pub(super) fn total(lens: &[u64]) -> MpiResult<u64> {
    lens.iter().try_fold(0_u64, |sum, len| sum.checked_add(*len)).ok_or_else(|| too_many(i64::MAX))
}

pub(super) fn there_is(array: Ints, what: &str) -> MpiResult {
    if array.is_null() {
        return Err(MpiError::arg(format!("the array of {what} is null")));
    }
    Ok(())
}

/// What is sent and where it is received may not be the same memory (MPI 5.0 §6.2.3).
pub(super) fn apart(send: *const c_void, send_len: u64, recv: *const c_void, recv_len: u64) -> MpiResult {
    if send == recv && send_len > 0 && recv_len > 0 && !send.is_null() {
        return Err(MpiError::buffer("the buffers to send from and to receive into are the same: pass MPI_IN_PLACE"));
    }
    Ok(())
}

/// What a rank sends to itself must fit where it receives it.
fn fits(sent: u64, room: u64) -> MpiResult {
    if sent > room {
        return Err(MpiError::truncate(format!("this rank sends itself {sent} bytes, to where {room} fit")));
    }
    Ok(())
}

#[cold]
pub(super) fn too_many(count: i64) -> MpiError {
    MpiError::count(format!("{count} elements of each rank are more than memory can be"))
}
