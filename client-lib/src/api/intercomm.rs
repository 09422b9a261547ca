//! Intercommunicators (MPI 5.0 §7.6).

#![expect(unsafe_code, reason = "the C boundary")]
#![expect(clippy::missing_safety_doc, reason = "callers guarantee what the standard requires of them")]

use std::ffi::c_int;
use std::sync::Arc;

use super::args::{self, check_place, put};
use super::comm::{make, sort, sweep};
use super::group::of_session;
use crate::abi::{CommHandle, GroupHandle};
use crate::error::{MpiError, MpiResult};
use crate::object::agree::{Failure, tag};
use crate::object::bridge::{Brings, Crossing};
use crate::object::comm::Communicator;
use crate::object::creation::{Creation, Sorts};
use crate::object::parties::Remote;
use crate::runtime::{Role, Runtime, State, connect_groups};

/// `MPI_Comm_test_inter`.
pub unsafe fn comm_test_inter(rt: &Runtime, comm: CommHandle, flag: *mut c_int) -> MpiResult {
    let is_inter = rt.lock().comms.get(comm)?.remote().is_some();
    // SAFETY: the caller's promise.
    unsafe { put(flag, c_int::from(is_inter)) }
}

/// `MPI_Comm_remote_size`.
pub unsafe fn comm_remote_size(rt: &Runtime, comm: CommHandle, size: *mut c_int) -> MpiResult {
    let found = remote(rt.lock().comms.get(comm)?)?.group.size();
    // SAFETY: the caller's promise.
    unsafe { put(size, found as c_int) }
}

/// `MPI_Comm_remote_group`.
pub unsafe fn comm_remote_group(rt: &Runtime, comm: CommHandle, group: *mut GroupHandle) -> MpiResult {
    let mut state = rt.lock();
    let communicator = state.comms.get(comm)?;
    let found = of_session(Arc::clone(&remote(communicator)?.group), communicator.session);
    check_place(group)?;
    // SAFETY: the caller's promise.
    unsafe { put(group, state.groups.add(found)?) }
}

/// The other side; fails with class `MPI_ERR_COMM` if there is none.
fn remote(comm: &Communicator) -> MpiResult<&Remote> {
    comm.remote().ok_or_else(|| MpiError::comm("an intracommunicator has no remote group"))
}

/// `MPI_Intercomm_create`. Only the leader can check the arguments that only it passes. If they are invalid, it tells
/// the other members that there will be no communicator, but it cannot tell the other leader, which it does not know.
pub unsafe fn intercomm_create(
    rt: &Runtime,
    local_comm: CommHandle,
    local_leader: c_int,
    peer_comm: CommHandle,
    remote_leader: c_int,
    tag: c_int,
    newintercomm: *mut CommHandle,
) -> MpiResult {
    check_place(newintercomm)?;
    let tag = args::tag(tag)?;
    let mut guard = rt.lock();
    let local = guard.comms.get(local_comm)?;
    local.must_be_intra()?;
    local.must_be_usable()?;
    let leader = args::rank(local, local_leader)?;
    let crossing = if leader == local.rank { Some(crossing(&guard, peer_comm, remote_leader, tag)) } else { None };
    let (crossing, fault) = match crossing.transpose() {
        Ok(crossing) => (crossing, None),
        Err(error) => (None, Some(error)),
    };
    let state = &mut *guard;
    sweep(state);
    let circle = state.circle_of_all(local_comm)?;
    let group = Arc::clone(state.comms.get(local_comm)?.group());
    let names = &state.comms.names;
    let mut known = group.members.iter().chain(crossing.as_ref().map(|crossing| &crossing.to));
    let brings = match &fault {
        Some(fault) => Brings::Failure(Failure::of(fault)),
        None if known.any(|peer| names.is_foreign(*peer)) => Brings::Foreign,
        None => Brings::Nothing,
    };
    let creation = Creation::between(circle.clone(), group, crossing, &mut state.comms.contexts, brings);
    let made = make(&mut guard, local_comm, creation);
    let mut made = fault.map_or(made, Err)?;
    if made == CommHandle::NULL {
        made = connect_groups(&mut guard, local_comm, circle, leader, Role::Through(crossing), None)?;
    }
    // SAFETY: the caller's promise.
    unsafe { put(newintercomm, made) }
}

/// How the leader reaches the other leader.
fn crossing(state: &State, comm: CommHandle, leader: c_int, tag: c_int) -> MpiResult<Crossing> {
    let comm = state.comms.get(comm)?;
    let leader = args::rank(comm, leader)?;
    let from = comm.parties.place_of_named(leader);
    if from == comm.parties.place() {
        return Err(MpiError::rank("the remote leader is this process: each group needs its own leader"));
    }
    Ok(Crossing {
        context: comm.collective_context(),
        rank: comm.parties.place(),
        from,
        to: comm.parties.all()[from as usize],
        tag: tag::of_leaders(tag),
    })
}

/// `MPI_Intercomm_merge`: as if all were split by `high`; if both groups pass the same value, the order is that of the
/// union.
pub unsafe fn intercomm_merge(
    rt: &Runtime,
    intercomm: CommHandle,
    high: c_int,
    newintracomm: *mut CommHandle,
) -> MpiResult {
    check_place(newintracomm)?;
    let mut guard = rt.lock();
    remote(guard.comms.get(intercomm)?)?;
    let made = sort(&mut guard, intercomm, Some(0), c_int::from(high != 0), Sorts::One)?;
    // SAFETY: the caller's promise.
    unsafe { put(newintracomm, made) }
}
