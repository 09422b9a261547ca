//! Fault tolerance (ULFM): the functions that the standard does not have yet, under the names that Open MPI and MPICH use. A loss is
//! reported as `MPIX_ERR_PROC_FAILED`, which is `MPI_ERR_PROC_ABORTED`.

#![expect(unsafe_code, reason = "the C boundary")]
#![expect(clippy::missing_safety_doc, reason = "callers guarantee what the standard requires of them")]

use std::ffi::c_int;
use std::sync::Arc;

use super::args::{check_place, put};
use super::comm::sweep;
use super::completion::add;
use crate::abi::{CommHandle, GroupHandle, RequestHandle};
use crate::engine::Peer;
use crate::error::{MpiError, MpiResult};
use crate::object::comm::Communicator;
use crate::object::group::Group;
use crate::object::recovery::{Ask, Recovered};
use crate::object::requests::{RecoveryId, Request};
use crate::runtime::{Guard, Runtime, State};

/// `MPIX_Comm_revoke`: not collective. Operations on the communicator fail at all members, those in progress too.
pub unsafe fn comm_revoke(rt: &Runtime, comm: CommHandle) -> MpiResult {
    let mut guard = rt.lock();
    let context = guard.comms.get(comm)?.context;
    let State { recovery, engine, comms, .. } = &mut *guard;
    recovery.revoke(context, engine, comms);
    guard.step();
    Ok(())
}

/// `MPIX_Comm_is_revoked`.
pub unsafe fn comm_is_revoked(rt: &Runtime, comm: CommHandle, flag: *mut c_int) -> MpiResult {
    let mut guard = rt.lock();
    guard.step();
    let found = guard.comms.get(comm)?.is_revoked;
    // SAFETY: the caller's promise.
    unsafe { put(flag, c_int::from(found)) }
}

/// `MPIX_Comm_get_failed`: the members that this process knows to be dead, in the order in which it has learned of it.
pub unsafe fn comm_get_failed(rt: &Runtime, comm: CommHandle, failed: *mut GroupHandle) -> MpiResult {
    // SAFETY: the caller's promise.
    unsafe { put_lost(rt, comm, failed, |_, lost| lost.len()) }
}

/// `MPIX_Comm_failure_get_acked`.
pub unsafe fn comm_failure_get_acked(rt: &Runtime, comm: CommHandle, failed: *mut GroupHandle) -> MpiResult {
    // SAFETY: the caller's promise.
    unsafe { put_lost(rt, comm, failed, |communicator, _| communicator.acknowledged) }
}

/// `MPIX_Comm_ack_failed`: acknowledges the first of the failed members, and returns how many are acknowledged in all.
pub unsafe fn comm_ack_failed(rt: &Runtime, comm: CommHandle, num_to_ack: c_int, num_acked: *mut c_int) -> MpiResult {
    let Ok(wanted) = usize::try_from(num_to_ack) else {
        return Err(MpiError::arg(format!("invalid number of failures: {num_to_ack}")));
    };
    check_place(num_acked)?;
    let acknowledged = acknowledge(&mut rt.lock(), comm, wanted)?;
    // SAFETY: the caller's promise.
    unsafe { put(num_acked, acknowledged as c_int) }
}

/// `MPIX_Comm_failure_ack`: acknowledges all failures that this process knows.
pub unsafe fn comm_failure_ack(rt: &Runtime, comm: CommHandle) -> MpiResult {
    acknowledge(&mut rt.lock(), comm, usize::MAX).map(drop)
}

/// `MPIX_Comm_agree`.
pub unsafe fn comm_agree(rt: &Runtime, comm: CommHandle, flag: *mut c_int) -> MpiResult {
    check_place(flag)?;
    let mut guard = rt.lock();
    // SAFETY: the caller's promise.
    let id = begin(&mut guard, comm, Ask::Agree(unsafe { flag.read() }))?;
    match guard.wait(|state| state.recovery.take(id)) {
        Recovered::Agreed(agreed, result) => {
            // SAFETY: the caller's promise.
            unsafe { put(flag, agreed)? };
            result
        }
        Recovered::Shrunk(result) => result.map(drop),
    }
}

/// `MPIX_Comm_iagree`.
pub unsafe fn comm_iagree(rt: &Runtime, comm: CommHandle, flag: *mut c_int, request: *mut RequestHandle) -> MpiResult {
    check_place(flag)?;
    check_place(request)?;
    let mut guard = rt.lock();
    // SAFETY: the caller's promise.
    let id = begin(&mut guard, comm, Ask::Agree(unsafe { flag.read() }))?;
    let handle = add(&mut guard, Request::Recovery { id, comm, flag })?;
    // SAFETY: the caller's promise.
    unsafe { put(request, handle) }
}

/// `MPIX_Comm_shrink`: null where one side of an intercommunicator has no survivors.
pub unsafe fn comm_shrink(rt: &Runtime, comm: CommHandle, newcomm: *mut CommHandle) -> MpiResult {
    check_place(newcomm)?;
    let mut guard = rt.lock();
    sweep(&mut guard);
    let id = begin(&mut guard, comm, Ask::Shrink(None))?;
    let handle = match guard.wait(|state| state.recovery.take(id)) {
        Recovered::Agreed(_, result) => result.map(|()| CommHandle::NULL)?,
        Recovered::Shrunk(born) => match born? {
            None => CommHandle::NULL,
            Some(born) => {
                let Communicator { errhandler, session, .. } = *guard.comms.get(comm)?;
                let handle = guard.comms.add(Communicator { session, ..Communicator::born(born, errhandler) })?;
                guard.errhandlers.used(errhandler);
                handle
            }
        },
    };
    // SAFETY: the caller's promise.
    unsafe { put(newcomm, handle) }
}

/// `MPIX_Comm_ishrink`.
pub unsafe fn comm_ishrink(
    rt: &Runtime,
    comm: CommHandle,
    newcomm: *mut CommHandle,
    request: *mut RequestHandle,
) -> MpiResult {
    check_place(newcomm)?;
    check_place(request)?;
    let mut guard = rt.lock();
    sweep(&mut guard);
    let parent = guard.comms.get(comm)?;
    let Communicator { errhandler, session, .. } = *parent;
    let promised = Communicator { session, ..Communicator::promised(parent.parties.clone(), errhandler) };
    let promised = guard.comms.add(promised)?;
    guard.errhandlers.used(errhandler);
    let id = begin(&mut guard, comm, Ask::Shrink(Some(promised)))?;
    let handle = add(&mut guard, Request::Recovery { id, comm, flag: std::ptr::null_mut() })?;
    // SAFETY: the caller's promise.
    unsafe {
        put(newcomm, promised)?;
        put(request, handle)
    }
}

fn begin(guard: &mut Guard<'_>, comm: CommHandle, ask: Ask) -> MpiResult<RecoveryId> {
    let State { recovery, engine, comms, .. } = &mut **guard;
    let communicator = comms.get(comm)?;
    let context = communicator.context;
    let lost = communicator.lost(engine);
    let acknowledged = &lost[..communicator.acknowledged.min(lost.len())];
    recovery.begin(ask, context, acknowledged, engine, comms)
}

/// Acknowledges the first failures; returns how many are acknowledged.
fn acknowledge(guard: &mut Guard<'_>, comm: CommHandle, wanted: usize) -> MpiResult<usize> {
    look(guard);
    let State { engine, comms, .. } = &mut **guard;
    let communicator = comms.get_mut(comm)?;
    let lost = communicator.lost(engine);
    communicator.acknowledged = communicator.acknowledged.max(wanted.min(lost.len()));
    let acknowledged: Vec<Peer> = lost[..communicator.acknowledged].to_vec();
    let count = acknowledged.len();
    engine.acknowledge(communicator.context, acknowledged);
    Ok(count)
}

unsafe fn put_lost(
    rt: &Runtime,
    comm: CommHandle,
    place: *mut GroupHandle,
    count: impl FnOnce(&Communicator, &[Peer]) -> usize,
) -> MpiResult {
    check_place(place)?;
    let mut guard = rt.lock();
    look(&mut guard);
    let State { engine, comms, groups, .. } = &mut *guard;
    let communicator = comms.get(comm)?;
    let lost = communicator.lost(engine);
    let count = count(communicator, &lost).min(lost.len());
    let me = communicator.parties.all()[communicator.parties.place() as usize];
    let group = groups.add(Arc::new(Group { session: communicator.session, ..Group::new(&lost[..count], me) }))?;
    // SAFETY: the caller's promise.
    unsafe { put(place, group) }
}

/// Takes in what has happened until now.
fn look(guard: &mut Guard<'_>) {
    guard.step();
    guard.hear_losses();
}
