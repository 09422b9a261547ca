//! Collective functions on an intercommunicator (MPI 5.0 §6.2.3): the data of one group go to the other, and `MPI_IN_PLACE` is
//! not allowed.

use std::ffi::{c_int, c_void};

use super::arguments::{Types, apart, blocks, lens, memory, not_in_place, places, result, there_is, too_many};
pub(in crate::api::coll) use super::intra::barrier;
pub(in crate::api::coll) use super::neighbor::{
    neighbor_allgather, neighbor_allgatherv, neighbor_alltoall, neighbor_alltoallv, neighbor_alltoallw,
};
use super::{On, Plan, What, combining};
use crate::abi::{CommHandle, DatatypeHandle, OpHandle};
use crate::api::args;
use crate::api::ints::Ints;
use crate::coll::inter::{self, Root, Sides};
use crate::coll::operands::{Memory, Operands};
use crate::coll::{Area, Here, Members, Schedule, Slice};
use crate::error::{MpiError, MpiResult};
use crate::memory::Buffer;
use crate::runtime::State;

pub(in crate::api::coll) use self::scan as exscan;

/// The number of rounds of an exchange in flight.
const WINDOW: u32 = 16;

/// The parts of a plan on an intercommunicator.
struct Between {
    comm: CommHandle,
    members: Members,
    sides: Sides,
}

impl Between {
    fn new(on: On<'_>) -> MpiResult<Self> {
        let On { comm, communicator, members } = on;
        let sides = communicator.sides();
        let sides = sides.ok_or_else(|| MpiError::comm("the communicator is an intracommunicator"))?;
        Ok(Self { comm, members, sides })
    }

    /// For a rooted operation.
    fn rooted(on: On<'_>, root: c_int) -> MpiResult<(Self, Root)> {
        let root = args::root_of_sides(on.communicator, root);
        Ok((Self::new(on)?, root?))
    }

    /// For blocks of the other group: one for each of its members.
    fn far(&self) -> Here {
        Here::new(0, self.sides.remote)
    }

    fn plan(self, schedule: Schedule, operands: Operands) -> Plan {
        let Self { comm, members, .. } = self;
        Plan::new((comm, members), What::Schedule(schedule), operands)
    }
}

pub(in crate::api::coll) unsafe fn bcast(
    state: &State,
    buffer: *mut c_void,
    count: i64,
    datatype: DatatypeHandle,
    root: c_int,
    on: On<'_>,
) -> MpiResult<Plan> {
    let (between, root) = Between::rooted(on, root)?;
    let recv = match root {
        Root::Beside => Memory::NONE,
        // SAFETY: the caller's promise.
        Root::This | Root::Remote(_) => unsafe { memory(state, buffer, count, datatype)? },
    };
    let schedule = inter::bcast(between.sides, root, recv.len());
    Ok(between.plan(schedule, Operands { recv, ..Operands::default() }))
}

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
    let (between, root) = Between::rooted(on, root)?;
    let (mut send, mut recv) = (Memory::NONE, Memory::NONE);
    match root {
        // SAFETY: the caller's promise.
        Root::This => recv = unsafe { blocks(state, recvbuf, recvcount, recvtype, between.far())? },
        // SAFETY: the caller's promise.
        Root::Remote(_) => send = unsafe { memory(state, sendbuf, sendcount, sendtype)? },
        Root::Beside => {}
    }
    let block = recv.len() / u64::from(between.sides.remote);
    let from = |rank| nth(Area::Recv, block, rank);
    let schedule = inter::gather(between.sides, root, Slice::all(Area::Send, send.len()), from);
    Ok(between.plan(schedule, Operands { send, recv, ..Operands::default() }))
}

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
    let (between, root) = Between::rooted(on, root)?;
    let (mut send, mut recv_from): (_, Box<[Buffer]>) = (Memory::NONE, Box::default());
    match root {
        Root::This => {
            not_in_place(recvbuf)?;
            // SAFETY: the caller's promise.
            recv_from = unsafe { places(state, recvbuf, recvcounts, displs, Types::One(recvtype), between.far())? };
        }
        // SAFETY: the caller's promise.
        Root::Remote(_) => send = unsafe { memory(state, sendbuf, sendcount, sendtype)? },
        Root::Beside => {}
    }
    let lens = lens(&recv_from);
    let from = |rank| Slice::all(Area::RecvFrom(rank), lens[rank as usize]);
    let schedule = inter::gather(between.sides, root, Slice::all(Area::Send, send.len()), from);
    Ok(between.plan(schedule, Operands { send, recv_from, ..Operands::default() }))
}

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
    let (between, root) = Between::rooted(on, root)?;
    let (mut send, mut recv) = (Memory::NONE, Memory::NONE);
    match root {
        // SAFETY: the caller's promise.
        Root::This => send = unsafe { blocks(state, sendbuf, sendcount, sendtype, between.far())? },
        // SAFETY: the caller's promise.
        Root::Remote(_) => recv = unsafe { memory(state, recvbuf, recvcount, recvtype)? },
        Root::Beside => {}
    }
    let block = send.len() / u64::from(between.sides.remote);
    let to = |rank| nth(Area::Send, block, rank);
    let schedule = inter::scatter(between.sides, root, to, Slice::all(Area::Recv, recv.len()));
    Ok(between.plan(schedule, Operands { send, recv, ..Operands::default() }))
}

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
    let (between, root) = Between::rooted(on, root)?;
    let (mut send_to, mut recv): (Box<[Buffer]>, _) = (Box::default(), Memory::NONE);
    match root {
        Root::This => {
            not_in_place(sendbuf)?;
            // SAFETY: the caller's promise.
            send_to = unsafe { places(state, sendbuf, sendcounts, displs, Types::One(sendtype), between.far())? };
        }
        // SAFETY: the caller's promise.
        Root::Remote(_) => recv = unsafe { memory(state, recvbuf, recvcount, recvtype)? },
        Root::Beside => {}
    }
    let lens = lens(&send_to);
    let to = |rank| Slice::all(Area::SendTo(rank), lens[rank as usize]);
    let schedule = inter::scatter(between.sides, root, to, Slice::all(Area::Recv, recv.len()));
    Ok(between.plan(schedule, Operands { send_to, recv, ..Operands::default() }))
}

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
    let between = Between::new(on)?;
    // SAFETY: the caller's promise.
    let (send, recv) = unsafe {
        let send = memory(state, sendbuf, sendcount, sendtype)?;
        (send, blocks(state, recvbuf, recvcount, recvtype, between.far())?)
    };
    apart((sendbuf, sendtype), send.len(), (recvbuf, recvtype), recv.len())?;
    let (own, block) = (Slice::all(Area::Send, send.len()), recv.len() / u64::from(between.sides.remote));
    let schedule = inter::exchange(between.sides, WINDOW, |_| own, |rank| nth(Area::Recv, block, rank));
    Ok(between.plan(schedule, Operands { send, recv, ..Operands::default() }))
}

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
    let between = Between::new(on)?;
    not_in_place(recvbuf)?;
    // SAFETY: the caller's promise.
    let (send, recv_from) = unsafe {
        let send = memory(state, sendbuf, sendcount, sendtype)?;
        (send, places(state, recvbuf, recvcounts, displs, Types::One(recvtype), between.far())?)
    };
    let lens = lens(&recv_from);
    let own = Slice::all(Area::Send, send.len());
    let from = |rank| Slice::all(Area::RecvFrom(rank), lens[rank as usize]);
    let schedule = inter::exchange(between.sides, WINDOW, |_| own, from);
    Ok(between.plan(schedule, Operands { send, recv_from, ..Operands::default() }))
}

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
    let between = Between::new(on)?;
    // SAFETY: the caller's promise.
    let (send, recv) = unsafe {
        let send = blocks(state, sendbuf, sendcount, sendtype, between.far())?;
        (send, blocks(state, recvbuf, recvcount, recvtype, between.far())?)
    };
    apart((sendbuf, sendtype), send.len(), (recvbuf, recvtype), recv.len())?;
    let block = |memory: &Memory| memory.len() / u64::from(between.sides.remote);
    let (out, back) = (block(&send), block(&recv));
    let to = |rank| nth(Area::Send, out, rank);
    let schedule = inter::exchange(between.sides, WINDOW, to, |rank| nth(Area::Recv, back, rank));
    Ok(between.plan(schedule, Operands { send, recv, ..Operands::default() }))
}

alltoall_of_blocks! {}

unsafe fn each_to_each(
    state: &State,
    (sendbuf, sendcounts, sdispls, sendtypes): (*const c_void, Ints, Ints, Types),
    (recvbuf, recvcounts, rdispls, recvtypes): (*mut c_void, Ints, Ints, Types),
    on: On<'_>,
) -> MpiResult<Plan> {
    let between = Between::new(on)?;
    not_in_place(sendbuf)?;
    not_in_place(recvbuf)?;
    // SAFETY: the caller's promise.
    let (send_to, recv_from) = unsafe {
        let send_to = places(state, sendbuf, sendcounts, sdispls, sendtypes, between.far())?;
        (send_to, places(state, recvbuf, recvcounts, rdispls, recvtypes, between.far())?)
    };
    let (out, back) = (lens(&send_to), lens(&recv_from));
    let to = |rank| Slice::all(Area::SendTo(rank), out[rank as usize]);
    let from = |rank| Slice::all(Area::RecvFrom(rank), back[rank as usize]);
    let schedule = inter::exchange(between.sides, WINDOW, to, from);
    Ok(between.plan(schedule, Operands { send_to, recv_from, ..Operands::default() }))
}

pub(in crate::api::coll) unsafe fn reduce(
    state: &State,
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: i64,
    datatype: DatatypeHandle,
    op: OpHandle,
    root: c_int,
    on: On<'_>,
) -> MpiResult<Plan> {
    let (between, root) = Between::rooted(on, root)?;
    let (mut send, mut recv) = (Memory::NONE, Memory::NONE);
    match root {
        // SAFETY: the caller's promise.
        Root::This => recv = unsafe { result(state, recvbuf, count, datatype)? },
        // SAFETY: the caller's promise.
        Root::Remote(_) => send = unsafe { memory(state, sendbuf, count, datatype)? },
        Root::Beside => return Ok(between.plan(Schedule::default(), Operands::default())),
    }
    let Between { comm, members, sides } = between;
    combining(state, Ok(()), comm, members, send, recv, count, datatype, op, &|vector, commutes| {
        What::Schedule(inter::reduce(sides, root, vector, commutes))
    })
}

pub(in crate::api::coll) unsafe fn allreduce(
    state: &State,
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: i64,
    datatype: DatatypeHandle,
    op: OpHandle,
    on: On<'_>,
) -> MpiResult<Plan> {
    let Between { comm, members, sides } = Between::new(on)?;
    // SAFETY: the caller's promise.
    let (send, recv) = unsafe { operands(state, (sendbuf, count), (recvbuf, count), datatype)? };
    combining(state, Ok(()), comm, members, send, recv, count, datatype, op, &|vector, commutes| {
        What::Schedule(inter::allreduce(sides, vector, commutes))
    })
}

pub(in crate::api::coll) unsafe fn reduce_scatter_block(
    state: &State,
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    recvcount: i64,
    datatype: DatatypeHandle,
    op: OpHandle,
    on: On<'_>,
) -> MpiResult<Plan> {
    let Between { comm, members, sides } = Between::new(on)?;
    let all = recvcount.checked_mul(i64::from(sides.local)).ok_or_else(|| too_many(recvcount))?;
    // SAFETY: the caller's promise.
    let (send, recv) = unsafe { operands(state, (sendbuf, all), (recvbuf, recvcount), datatype)? };
    let block = recv.len();
    combining(state, Ok(()), comm, members, send, recv, all, datatype, op, &|vector, commutes| {
        let part = |rank: u32| (u64::from(rank) * block, block);
        What::Schedule(inter::reduce_scatter(sides, vector, part, commutes))
    })
}

pub(in crate::api::coll) unsafe fn reduce_scatter(
    state: &State,
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    recvcounts: Ints,
    datatype: DatatypeHandle,
    op: OpHandle,
    on: On<'_>,
) -> MpiResult<Plan> {
    let Between { comm, members, sides } = Between::new(on)?;
    there_is(recvcounts, "counts")?;
    // SAFETY: the caller's promise.
    let counts = unsafe { recvcounts.to_vec(sides.local as usize) };
    if let Some(negative) = counts.iter().find(|count| **count < 0) {
        return Err(MpiError::count(format!("negative count {negative}")));
    }
    let all = counts.iter().try_fold(0_i64, |sum, count| sum.checked_add(*count)).ok_or_else(|| too_many(i64::MAX))?;
    let own = counts[sides.rank as usize];
    // SAFETY: the caller's promise.
    let (send, recv) = unsafe { operands(state, (sendbuf, all), (recvbuf, own), datatype)? };
    combining(state, Ok(()), comm, members, send, recv, all, datatype, op, &|vector, commutes| {
        let len = |rank: u32| counts[rank as usize].unsigned_abs() * vector.unit;
        let part = |rank: u32| ((0..rank).map(len).sum(), len(rank));
        What::Schedule(inter::reduce_scatter(sides, vector, part, commutes))
    })
}

/// `MPI_Scan` and `MPI_Exscan` take intracommunicators only.
pub(in crate::api::coll) unsafe fn scan(
    _state: &State,
    _sendbuf: *const c_void,
    _recvbuf: *mut c_void,
    _count: i64,
    _datatype: DatatypeHandle,
    _op: OpHandle,
    on: On<'_>,
) -> MpiResult<Plan> {
    on.communicator.must_be_intra()?;
    Err(MpiError::intern("an intracommunicator among intercommunicators"))
}

/// The operands, and the memory for the result.
unsafe fn operands(
    state: &State,
    (sendbuf, sent): (*const c_void, i64),
    (recvbuf, received): (*mut c_void, i64),
    datatype: DatatypeHandle,
) -> MpiResult<(Memory, Memory)> {
    // SAFETY: the caller's promise.
    let (send, recv) =
        unsafe { (memory(state, sendbuf, sent, datatype)?, result(state, recvbuf, received, datatype)?) };
    apart((sendbuf, datatype), send.len(), (recvbuf, datatype), recv.len())?;
    Ok((send, recv))
}

fn nth(area: Area, block: u64, rank: u32) -> Slice {
    Slice { area, at: u64::from(rank) * block, len: block }
}
