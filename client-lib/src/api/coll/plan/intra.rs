//! Collective functions on an intracommunicator (MPI 5.0 §6.2.2).

mod reductions;

use std::ffi::{c_int, c_void};

use super::arguments::{
    Types, apart, at_root_in_place, blocks, equal, fits, is_in_place, memory, not_in_place, places, total,
};
pub(in crate::api::coll) use super::neighbor::{
    neighbor_allgather, neighbor_allgatherv, neighbor_alltoall, neighbor_alltoallv, neighbor_alltoallw,
};
use super::{On, Plan, Varied, What};
use crate::abi::DatatypeHandle;
use crate::api::args;
use crate::api::ints::Ints;
use crate::coll::Call;
use crate::coll::node::Uneven;
use crate::coll::operands::{Memory, Operands};
use crate::error::MpiResult;
use crate::memory::Buffer;
use crate::runtime::State;
pub(in crate::api::coll) use reductions::{allreduce, exscan, reduce, reduce_scatter, reduce_scatter_block, scan};

/// `MPI_Barrier`.
pub(in crate::api::coll) unsafe fn barrier(_state: &State, on: On<'_>) -> MpiResult<Plan> {
    let On { comm, members, .. } = on;
    Ok(Plan::new((comm, members), What::Call(Call::Barrier), Operands::default()))
}

/// `MPI_Bcast`.
pub(in crate::api::coll) unsafe fn bcast(
    state: &State,
    buffer: *mut c_void,
    count: i64,
    datatype: DatatypeHandle,
    root: c_int,
    on: On<'_>,
) -> MpiResult<Plan> {
    let On { comm, communicator, members } = on;
    let root = args::root(communicator, root)?;
    not_in_place(buffer)?;
    // SAFETY: the caller's promise.
    let recv = unsafe { memory(state, buffer, count, datatype)? };
    let what = What::Call(Call::Bcast { root, len: recv.len() });
    Ok(Plan::new((comm, members), what, Operands { recv, ..Operands::default() }))
}

/// `MPI_Gather`.
pub(in crate::api::coll) unsafe fn gather(
    state: &State,
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: DatatypeHandle,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: DatatypeHandle,
    root: c_int,
    on: On<'_>,
) -> MpiResult<Plan> {
    let On { comm, communicator, members } = on;
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
    let check = match is_root && !in_place {
        true => apart((sendbuf, sendtype), send.len(), (recvbuf, recvtype), recv.len())
            .and_then(|()| equal(send.len(), block)),
        false => Ok(()),
    };
    let what = What::Call(Call::Gather { root, block, in_place });
    Ok(Plan::new((comm, members), what, Operands { send, recv, ..Operands::default() }).checked(check))
}

/// `MPI_Gatherv`.
pub(in crate::api::coll) unsafe fn gatherv(
    state: &State,
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: DatatypeHandle,
    recvbuf: *mut c_void,
    recvcounts: Ints,
    displs: Ints,
    recvtype: DatatypeHandle,
    root: c_int,
    on: On<'_>,
) -> MpiResult<Plan> {
    let On { comm, communicator, members } = on;
    let (here, root) = (members.here, args::root(communicator, root)?);
    let is_root = root == here.rank;
    let in_place = at_root_in_place(sendbuf, is_root)?;
    // SAFETY: the caller's promise.
    let send = unsafe { if in_place { Memory::NONE } else { memory(state, sendbuf, sendcount, sendtype)? } };
    let (mut recv_from, mut check): (Box<[Buffer]>, _) = (Box::default(), Ok(()));
    if is_root {
        not_in_place(recvbuf)?;
        // SAFETY: the caller's promise.
        recv_from = unsafe { places(state, recvbuf, recvcounts, displs, Types::One(recvtype), here)? };
        let all = total(&recv_from)?;
        check = apart((sendbuf, sendtype), send.len(), (recvbuf, recvtype), all);
        check = check.and_then(|()| fits(send.len(), recv_from[root as usize].len() as u64));
    }
    let what = What::Uneven(Uneven::Gather { root, in_place });
    Ok(Plan::new((comm, members), what, Operands { send, recv_from, ..Operands::default() }).checked(check))
}

/// `MPI_Scatter`.
pub(in crate::api::coll) unsafe fn scatter(
    state: &State,
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: DatatypeHandle,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: DatatypeHandle,
    root: c_int,
    on: On<'_>,
) -> MpiResult<Plan> {
    let On { comm, communicator, members } = on;
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
    let check = match is_root && !in_place {
        true => apart((sendbuf, sendtype), send.len(), (recvbuf, recvtype), recv.len())
            .and_then(|()| fits(block, recv.len())),
        false => Ok(()),
    };
    let what = What::Call(Call::Scatter { root, block, in_place });
    Ok(Plan::new((comm, members), what, Operands { send, recv, ..Operands::default() }).checked(check))
}

/// `MPI_Scatterv`.
pub(in crate::api::coll) unsafe fn scatterv(
    state: &State,
    sendbuf: *const c_void,
    sendcounts: Ints,
    displs: Ints,
    sendtype: DatatypeHandle,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: DatatypeHandle,
    root: c_int,
    on: On<'_>,
) -> MpiResult<Plan> {
    let On { comm, communicator, members } = on;
    let (here, root) = (members.here, args::root(communicator, root)?);
    let is_root = root == here.rank;
    let in_place = at_root_in_place(recvbuf, is_root)?;
    // SAFETY: the caller's promise.
    let recv = unsafe { if in_place { Memory::NONE } else { memory(state, recvbuf, recvcount, recvtype)? } };
    let (mut send_to, mut check): (Box<[Buffer]>, _) = (Box::default(), Ok(()));
    if is_root {
        not_in_place(sendbuf)?;
        // SAFETY: the caller's promise.
        send_to = unsafe { places(state, sendbuf, sendcounts, displs, Types::One(sendtype), here)? };
        if !in_place {
            check = apart((sendbuf, sendtype), total(&send_to)?, (recvbuf, recvtype), recv.len());
            check = check.and_then(|()| fits(send_to[root as usize].len() as u64, recv.len()));
        }
    }
    let what = What::Uneven(Uneven::Scatter { root, in_place });
    Ok(Plan::new((comm, members), what, Operands { recv, send_to, ..Operands::default() }).checked(check))
}

/// `MPI_Allgather`.
pub(in crate::api::coll) unsafe fn allgather(
    state: &State,
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: DatatypeHandle,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: DatatypeHandle,
    on: On<'_>,
) -> MpiResult<Plan> {
    let On { comm, members, .. } = on;
    let in_place = is_in_place(sendbuf);
    not_in_place(recvbuf)?;
    // SAFETY: the caller's promise.
    let (send, recv) = unsafe {
        let send = if in_place { Memory::NONE } else { memory(state, sendbuf, sendcount, sendtype)? };
        (send, blocks(state, recvbuf, recvcount, recvtype, members.here)?)
    };
    let block = recv.len() / u64::from(members.here.size);
    let check = match in_place {
        true => Ok(()),
        false => apart((sendbuf, sendtype), send.len(), (recvbuf, recvtype), recv.len())
            .and_then(|()| equal(send.len(), block)),
    };
    let what = What::Call(Call::Allgather { block, in_place });
    Ok(Plan::new((comm, members), what, Operands { send, recv, ..Operands::default() }).checked(check))
}

/// `MPI_Allgatherv`.
pub(in crate::api::coll) unsafe fn allgatherv(
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
    let On { comm, members, .. } = on;
    let here = members.here;
    let in_place = is_in_place(sendbuf);
    not_in_place(recvbuf)?;
    // SAFETY: the caller's promise.
    let (send, recv_from) = unsafe {
        let send = if in_place { Memory::NONE } else { memory(state, sendbuf, sendcount, sendtype)? };
        (send, places(state, recvbuf, recvcounts, displs, Types::One(recvtype), here)?)
    };
    let all = total(&recv_from)?;
    let check = match in_place {
        true => Ok(()),
        false => apart((sendbuf, sendtype), send.len(), (recvbuf, recvtype), all)
            .and_then(|()| equal(send.len(), recv_from[here.rank as usize].len() as u64)),
    };
    let longest = recv_from.iter().map(|block| block.len() as u64).max().unwrap_or(0);
    let what = What::Varied(Varied::Allgather { longest, in_place });
    Ok(Plan::new((comm, members), what, Operands { send, recv_from, ..Operands::default() }).checked(check))
}

/// `MPI_Alltoall`.
pub(in crate::api::coll) unsafe fn alltoall(
    state: &State,
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: DatatypeHandle,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: DatatypeHandle,
    on: On<'_>,
) -> MpiResult<Plan> {
    let On { comm, members, .. } = on;
    let in_place = is_in_place(sendbuf);
    not_in_place(recvbuf)?;
    // SAFETY: the caller's promise.
    let (send, recv) = unsafe {
        let send = if in_place { Memory::NONE } else { blocks(state, sendbuf, sendcount, sendtype, members.here)? };
        (send, blocks(state, recvbuf, recvcount, recvtype, members.here)?)
    };
    let block = |memory: &Memory| memory.len() / u64::from(members.here.size);
    let check = match in_place {
        true => Ok(()),
        false => apart((sendbuf, sendtype), send.len(), (recvbuf, recvtype), recv.len())
            .and_then(|()| equal(block(&send), block(&recv))),
    };
    let what = What::Call(Call::Alltoall { block: block(&recv), in_place });
    Ok(Plan::new((comm, members), what, Operands { send, recv, ..Operands::default() }).checked(check))
}

alltoall_of_blocks! {}

unsafe fn each_to_each(
    state: &State,
    (sendbuf, sendcounts, sdispls, sendtypes): (*const c_void, Ints, Ints, Types),
    (recvbuf, recvcounts, rdispls, recvtypes): (*mut c_void, Ints, Ints, Types),
    on: On<'_>,
) -> MpiResult<Plan> {
    let On { comm, members, .. } = on;
    let here = members.here;
    let in_place = is_in_place(sendbuf);
    not_in_place(recvbuf)?;
    // SAFETY: the caller's promise.
    let recv_from = unsafe { places(state, recvbuf, recvcounts, rdispls, recvtypes, here)? };
    let (mut send_to, mut check): (Box<[Buffer]>, _) = (Box::default(), Ok(()));
    if !in_place {
        // SAFETY: the caller's promise.
        send_to = unsafe { places(state, sendbuf, sendcounts, sdispls, sendtypes, here)? };
        if let (Types::One(sendtype), Types::One(recvtype)) = (sendtypes, recvtypes) {
            check = apart((sendbuf, sendtype), total(&send_to)?, (recvbuf, recvtype), total(&recv_from)?);
        }
        let own = |blocks: &[Buffer]| blocks[here.rank as usize].len() as u64;
        check = check.and_then(|()| fits(own(&send_to), own(&recv_from)));
    }
    let what = What::Uneven(Uneven::Alltoall { in_place });
    Ok(Plan::new((comm, members), what, Operands { send_to, recv_from, ..Operands::default() }).checked(check))
}
