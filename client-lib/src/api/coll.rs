//! Collective operations (MPI 5.0 §6): each function in its blocking, non-blocking and persistent form.
//!
//! A call's arguments become a `Plan` (`plan`), which each form executes in its own way.

#![expect(unsafe_code, reason = "the C boundary")]
#![expect(clippy::missing_safety_doc, reason = "callers guarantee what the standard requires of them")]
#![expect(clippy::too_many_arguments, reason = "the standard's argument list")]

mod brief;
mod compared;
mod intranode;
mod plan;

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use super::args::put;
use super::completion::add;
use super::ints::Ints;
use crate::abi::{CommHandle, DatatypeHandle, InfoHandle, OpHandle, RequestHandle};
use crate::coll::operands::{Memory, Operands};
use crate::coll::outboxes::{OutboxId, Posted};
use crate::coll::run::{Progress, Run};
use crate::coll::{Area, Call, CollectiveId, Members, Messages, Slice, alltoall};
use crate::device;
use crate::engine::RequestId;
use crate::error::{MpiError, MpiResult};
use crate::memory::Buffer;
use crate::object::requests::{Persistent, Request, Start};
use crate::runtime::{Guard, Runtime, State};
use brief::attempt;
use compared::compare;
use plan::{On, Plan, What, inter, intra, layout};

macro_rules! forms {
    ($($plan:ident: $blocking:ident $starting:ident $init:ident ($($name:ident: $type:ty),*; $comm:ident) $names:literal;)*) => {
    impl Plan {$(
        #[doc = concat!("Of `MPI_", $names, "`, on a communicator of either kind.")]
        #[inline]
        unsafe fn $plan(state: &State, $($name: $type,)* $comm: CommHandle) -> MpiResult<Self> {
            let on = On::new(state, $comm)?;
            // SAFETY: the caller's promise.
            unsafe {
                match on.is_inter() {
                    false => intra::$plan(state, $($name,)* on),
                    true => inter::$plan(state, $($name,)* on),
                }
            }
        }
    )*}

    $(
        #[doc = concat!("`MPI_", $names, "`.")]
        pub unsafe fn $blocking(rt: &Runtime, $($name: $type,)* $comm: CommHandle) -> MpiResult {
            /// Most calls do not need this code, nor its memory on the stack.
            #[inline(never)]
            unsafe fn complete_any(guard: &mut Guard<'_>, $($name: $type,)* $comm: CommHandle) -> MpiResult {
                // SAFETY: the caller's promise.
                let plan = unsafe { Plan::$plan(guard, $($name,)* $comm)? };
                complete(guard, plan)
            }
            let mut guard = rt.lock();
            attempt!($plan (&mut guard, $($name,)* $comm));
            // SAFETY: the caller's promise.
            unsafe { complete_any(&mut guard, $($name,)* $comm) }
        }

        #[doc = concat!("`MPI_", $names, "`, the non-blocking form.")]
        pub unsafe fn $starting(rt: &Runtime, $($name: $type,)* $comm: CommHandle, request: *mut RequestHandle) -> MpiResult {
            let mut guard = rt.lock();
            // SAFETY: the caller's promise.
            let plan = unsafe { Plan::$plan(&guard, $($name,)* $comm)? };
            // SAFETY: the caller's promise.
            unsafe { start(&mut guard, plan, request) }
        }

        #[doc = concat!("`MPI_", $names, "`, the persistent form. No hints are known.")]
        pub unsafe fn $init(rt: &Runtime, $($name: $type,)* $comm: CommHandle, info: InfoHandle, request: *mut RequestHandle) -> MpiResult {
            let mut guard = rt.lock();
            guard.infos.hints(info)?;
            // SAFETY: the caller's promise.
            let plan = unsafe { Plan::$plan(&guard, $($name,)* $comm)? };
            // SAFETY: the caller's promise.
            unsafe { init(&mut guard, plan, request) }
        }
    )*

    /// What a process that checks calls instead ([`super::checked`]): first, the members compare what they call.
    pub mod checked {
        use super::*;

        $(
            #[doc = concat!("`MPI_", $names, "`.")]
            pub unsafe fn $blocking(rt: &Runtime, $($name: $type,)* $comm: CommHandle) -> MpiResult {
                let mut guard = rt.lock();
                // SAFETY: the caller's promise.
                let plan = unsafe { Plan::$plan(&guard, $($name,)* $comm)? };
                compare(&mut guard, $names, &plan, Way::Blocking)?;
                // The short cut through shared memory is for memory without datatypes.
                complete_by_messages(&mut guard, plan, &mut |_| ())
            }

            #[doc = concat!("`MPI_", $names, "`, the non-blocking form.")]
            pub unsafe fn $starting(rt: &Runtime, $($name: $type,)* $comm: CommHandle, request: *mut RequestHandle) -> MpiResult {
                let mut guard = rt.lock();
                // SAFETY: the caller's promise.
                let plan = unsafe { Plan::$plan(&guard, $($name,)* $comm)? };
                compare(&mut guard, $names, &plan, Way::Nonblocking)?;
                // SAFETY: the caller's promise.
                unsafe { start(&mut guard, plan, request) }
            }

            #[doc = concat!("`MPI_", $names, "`, the persistent form.")]
            pub unsafe fn $init(rt: &Runtime, $($name: $type,)* $comm: CommHandle, info: InfoHandle, request: *mut RequestHandle) -> MpiResult {
                let mut guard = rt.lock();
                guard.infos.hints(info)?;
                // SAFETY: the caller's promise.
                let plan = unsafe { Plan::$plan(&guard, $($name,)* $comm)? };
                compare(&mut guard, $names, &plan, Way::Persistent)?;
                // SAFETY: the caller's promise.
                unsafe { init(&mut guard, plan, request) }
            }
        )*
    }
    };
}

forms! {
    barrier: barrier ibarrier barrier_init (; comm) "Barrier";

    bcast: bcast ibcast bcast_init
        (buffer: *mut c_void, count: i64, datatype: DatatypeHandle, root: c_int; comm) "Bcast";

    gather: gather igather gather_init
        (sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcount: i64,
         recvtype: DatatypeHandle, root: c_int; comm) "Gather";

    gatherv: gatherv igatherv gatherv_init
        (sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcounts: Ints,
         displs: Ints, recvtype: DatatypeHandle, root: c_int; comm) "Gatherv";

    scatter: scatter iscatter scatter_init
        (sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcount: i64,
         recvtype: DatatypeHandle, root: c_int; comm) "Scatter";

    scatterv: scatterv iscatterv scatterv_init
        (sendbuf: *const c_void, sendcounts: Ints, displs: Ints, sendtype: DatatypeHandle, recvbuf: *mut c_void,
         recvcount: i64, recvtype: DatatypeHandle, root: c_int; comm) "Scatterv";

    allgather: allgather iallgather allgather_init
        (sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcount: i64,
         recvtype: DatatypeHandle; comm) "Allgather";

    allgatherv: allgatherv iallgatherv allgatherv_init
        (sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcounts: Ints,
         displs: Ints, recvtype: DatatypeHandle; comm) "Allgatherv";

    alltoall: alltoall ialltoall alltoall_init
        (sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcount: i64,
         recvtype: DatatypeHandle; comm) "Alltoall";

    alltoallv: alltoallv ialltoallv alltoallv_init
        (sendbuf: *const c_void, sendcounts: Ints, sdispls: Ints, sendtype: DatatypeHandle, recvbuf: *mut c_void,
         recvcounts: Ints, rdispls: Ints, recvtype: DatatypeHandle; comm) "Alltoallv";

    alltoallw: alltoallw ialltoallw alltoallw_init
        (sendbuf: *const c_void, sendcounts: Ints, sdispls: Ints, sendtypes: *const DatatypeHandle,
         recvbuf: *mut c_void, recvcounts: Ints, rdispls: Ints, recvtypes: *const DatatypeHandle; comm)
        "Alltoallw";

    reduce: reduce ireduce reduce_init
        (sendbuf: *const c_void, recvbuf: *mut c_void, count: i64, datatype: DatatypeHandle, op: OpHandle, root: c_int; comm) "Reduce";

    allreduce: allreduce iallreduce allreduce_init
        (sendbuf: *const c_void, recvbuf: *mut c_void, count: i64, datatype: DatatypeHandle, op: OpHandle; comm) "Allreduce";

    reduce_scatter_block: reduce_scatter_block ireduce_scatter_block reduce_scatter_block_init
        (sendbuf: *const c_void, recvbuf: *mut c_void, recvcount: i64, datatype: DatatypeHandle, op: OpHandle; comm) "Reduce_scatter_block";

    reduce_scatter: reduce_scatter ireduce_scatter reduce_scatter_init
        (sendbuf: *const c_void, recvbuf: *mut c_void, recvcounts: Ints, datatype: DatatypeHandle, op: OpHandle; comm) "Reduce_scatter";

    scan: scan iscan scan_init
        (sendbuf: *const c_void, recvbuf: *mut c_void, count: i64, datatype: DatatypeHandle, op: OpHandle; comm) "Scan";

    exscan: exscan iexscan exscan_init
        (sendbuf: *const c_void, recvbuf: *mut c_void, count: i64, datatype: DatatypeHandle, op: OpHandle; comm) "Exscan";

    neighbor_allgather: neighbor_allgather ineighbor_allgather neighbor_allgather_init
        (sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcount: i64,
         recvtype: DatatypeHandle; comm) "Neighbor_allgather";

    neighbor_allgatherv: neighbor_allgatherv ineighbor_allgatherv neighbor_allgatherv_init
        (sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcounts: Ints,
         displs: Ints, recvtype: DatatypeHandle; comm) "Neighbor_allgatherv";

    neighbor_alltoall: neighbor_alltoall ineighbor_alltoall neighbor_alltoall_init
        (sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcount: i64,
         recvtype: DatatypeHandle; comm) "Neighbor_alltoall";

    neighbor_alltoallv: neighbor_alltoallv ineighbor_alltoallv neighbor_alltoallv_init
        (sendbuf: *const c_void, sendcounts: Ints, sdispls: Ints, sendtype: DatatypeHandle, recvbuf: *mut c_void,
         recvcounts: Ints, rdispls: Ints, recvtype: DatatypeHandle; comm) "Neighbor_alltoallv";

    neighbor_alltoallw: neighbor_alltoallw ineighbor_alltoallw neighbor_alltoallw_init
        (sendbuf: *const c_void, sendcounts: Ints, sdispls: *const i64, sendtypes: *const DatatypeHandle,
         recvbuf: *mut c_void, recvcounts: Ints, rdispls: *const i64, recvtypes: *const DatatypeHandle; comm)
        "Neighbor_alltoallw";
}

/// The ways to call a collective operation. The messages of each have tags of their own. Persistent operations start in any order, the
/// others in the same order everywhere; programs that mix blocking and non-blocking ones in different orders are wrong, but some exist
/// (mpi4py emulates `MPIX_Comm_iagree` like that), and this costs nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Blocking,
    Nonblocking,
    Persistent,
}

/// The operations of one way have so many tags.
const TAGS: u32 = 1 << 29;

/// A run that is ready to start.
fn prepared(state: &mut State, plan: Plan, way: Way) -> MpiResult<(Box<Run<RequestId>>, Members)> {
    let Plan { comm, members, what, operands, reduction, fault, op: _ } = plan;
    let layout = layout(state, state.comms.get(comm)?);
    let communicator = state.comms.get_mut(comm)?;
    let (started, first) = match way {
        Way::Blocking => (&mut communicator.collectives, 0),
        Way::Nonblocking => (&mut communicator.nonblocking, TAGS),
        Way::Persistent => (&mut communicator.collectives, 2 * TAGS),
    };
    let tag = first + *started % TAGS;
    *started = started.wrapping_add(1);
    let schedule = match what {
        What::Call(call) => state.collectives.schedule(call, members.here, &layout),
        What::Varied(varied) => Arc::new(varied.schedule(members.here, &layout, &operands)),
        What::Uneven(uneven) => Arc::new(plan::schedule_of_uneven(uneven, members.here, &operands)),
        What::Schedule(schedule) => Arc::new(schedule),
    };
    let mut run = state.collectives.spare();
    run.prepare(schedule, operands, reduction, tag as i32, fault)?;
    Ok((run, members))
}

#[inline]
fn complete(guard: &mut Guard<'_>, mut plan: Plan) -> MpiResult {
    if device::is_enabled() && plan.writes_only_results() {
        plan.operands.stream_results();
    }
    match intranode::attempt(guard, &plan) {
        Some(result) => result,
        None => complete_by_messages(guard, plan, &mut |_| ()),
    }
}

/// `meanwhile` is called whenever something may have arrived. Compiled once, for all callers: otherwise the library is 80 kB larger.
#[inline(never)]
fn complete_by_messages(guard: &mut Guard<'_>, plan: Plan, meanwhile: &mut dyn FnMut(&mut State)) -> MpiResult {
    let (mut run, members) = prepared(guard, plan, Way::Blocking)?;
    let result = loop {
        let progress = guard.wait(|state| {
            meanwhile(state);
            match run.advance(&mut Messages::new(&mut state.engine, &members)) {
                Progress::Pending => None,
                progress => Some(progress),
            }
        });
        match progress {
            Progress::Done(result) => break result,
            Progress::Call(call) => guard.unlocked(|| call.perform()),
            Progress::Pending => {}
        }
    };
    guard.collectives.keep(run);
    result
}

unsafe fn start(guard: &mut Guard<'_>, plan: Plan, request: *mut RequestHandle) -> MpiResult {
    there_is_a_place(request)?;
    if let Some((outbox, call)) = outbox(guard, &plan) {
        // SAFETY: the caller's promise.
        return unsafe { post(guard, outbox, call, plan, request) };
    }
    let (comm, fault) = (plan.comm, plan.fault.clone());
    let id = added(guard, plan, Way::Nonblocking)?;
    if let Some(fault) = fault {
        // The others depend on this rank's part.
        guard.start_collective(id)?;
        guard.collectives.forget(id);
        return Err(fault);
    }
    let handle = add(guard, Request::Collective { id, comm })?;
    guard.start_collective(id)?;
    // SAFETY: the caller's promise.
    unsafe { put(request, handle) }
}

/// The outbox through which a non-blocking operation goes, if it can. All members get the same answer.
fn outbox(state: &State, plan: &Plan) -> Option<(OutboxId, Call)> {
    let What::Call(call) = plan.what else { return None };
    let communicator = state.comms.get(plan.comm).ok()?;
    let (outbox, first) = communicator.outbox?;
    let is_dense = plan.operands.elements.as_ref().is_none_or(|it| it.size() as i64 == it.extent());
    // Numbers of operations are counted modulo 2^32.
    let is_later = communicator.nonblocking.wrapping_sub(first) as i32 >= 0;
    let fits = is_later && state.outboxes.fits(outbox, call, plan.reduction.as_ref(), is_dense);
    fits.then_some((outbox, call))
}

/// Starts an operation through an outbox.
unsafe fn post(
    guard: &mut Guard<'_>,
    outbox: OutboxId,
    call: Call,
    mut plan: Plan,
    request: *mut RequestHandle,
) -> MpiResult {
    let communicator = guard.comms.get_mut(plan.comm)?;
    communicator.nonblocking = communicator.nonblocking.wrapping_add(1);
    let Plan { comm, operands, reduction, fault, .. } = &mut plan;
    let started = guard.outboxes.start(outbox, call, operands, reduction, fault.clone());
    let handle = match started.ok_or_else(|| MpiError::intern("the outbox of a communicator is gone"))? {
        Posted::Over(result) => {
            result?;
            RequestHandle::sent()
        }
        Posted::Pending(id) => {
            if let Some(fault) = fault.take() {
                // The others depend on this rank's part.
                guard.outboxes.forget(id);
                return Err(fault);
            }
            add(guard, Request::Posted { id, comm: *comm })?
        }
    };
    // SAFETY: the caller's promise.
    unsafe { put(request, handle) }
}

unsafe fn init(guard: &mut Guard<'_>, plan: Plan, request: *mut RequestHandle) -> MpiResult {
    there_is_a_place(request)?;
    let (comm, fault) = (plan.comm, plan.fault.clone());
    let id = added(guard, plan, Way::Persistent)?;
    if let Some(fault) = fault {
        // Only the count of the calls, which all ranks have in common, needs it.
        guard.collectives.forget(id);
        return Err(fault);
    }
    let persistent = Persistent { start: Start::Collective(id), active: None, comm };
    let handle = add(guard, Request::Persistent(Box::new(persistent)))?;
    // SAFETY: the caller's promise.
    unsafe { put(request, handle) }
}

fn added(state: &mut State, plan: Plan, way: Way) -> MpiResult<CollectiveId> {
    let (run, members) = prepared(state, plan, way)?;
    Ok(state.collectives.add(run, members, way == Way::Persistent))
}

/// Every member sends a list of words to every member; returns `words[rank]` from each. Two exchanges: lengths, then words.
pub(super) fn between_all(guard: &mut Guard<'_>, comm: CommHandle, words: &[Vec<i32>]) -> MpiResult<Vec<Vec<i32>>> {
    let lens: Vec<u64> = words.iter().map(|words| words.len() as u64).collect();
    let mut theirs = vec![0_u64; lens.len()];
    let mut all: Vec<i32> = words.concat();
    let each = vec![1; lens.len()];
    exchange(guard, comm, &mut lens.clone(), &each, &mut theirs, &each)?;
    let most = usize::try_from(theirs.iter().sum::<u64>()).map_err(|_| MpiError::no_mem("too many words"))?;
    let mut got = vec![0_i32; most];
    exchange(guard, comm, &mut all, &lens, &mut got, &theirs)?;
    let mut rest = &got[..];
    let cut = |len: &u64| {
        let (list, after) = rest.split_at(*len as usize);
        rest = after;
        list.to_vec()
    };
    Ok(theirs.iter().map(cut).collect())
}

/// Exchanges so many elements with each member; `send` and `recv` have the lists one after the other.
fn exchange<T>(
    guard: &mut Guard<'_>,
    comm: CommHandle,
    send: &mut [T],
    sent: &[u64],
    recv: &mut [T],
    received: &[u64],
) -> MpiResult {
    let unit = size_of::<T>() as u64;
    let slices = |area, counts: &[u64]| {
        let mut at = 0;
        let next = |count: &u64| {
            let slice = Slice { area, at, len: count * unit };
            at += slice.len;
            slice
        };
        counts.iter().map(next).collect::<Vec<Slice>>()
    };
    let (to, from) = (slices(Area::Send, sent), slices(Area::Recv, received));
    let on = On::new(guard, comm)?;
    let schedule = alltoall::spread(on.members.here, WINDOW, |rank| to[rank as usize], |rank| from[rank as usize]);
    let lend = |address: *mut u8, count: usize| {
        // SAFETY: the elements are borrowed from the caller that waits for the operation.
        Memory::new(address, unsafe { Buffer::contiguous(address, count * size_of::<T>()) })
    };
    let (send, recv) = (lend(send.as_mut_ptr().cast(), send.len()), lend(recv.as_mut_ptr().cast(), recv.len()));
    let plan = Plan::new((comm, on.members), What::Schedule(schedule), Operands { send, recv, ..Operands::default() });
    complete_by_messages(guard, plan, &mut |_| ())
}

/// How many messages of [`exchange`] are in flight.
const WINDOW: u32 = 32;

/// Checked before anything is started that could not be reported.
fn there_is_a_place(request: *mut RequestHandle) -> MpiResult {
    if request.is_null() {
        return Err(MpiError::arg("the request pointer is null"));
    }
    Ok(())
}
