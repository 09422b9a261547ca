//! Groups (MPI 5.0 §7.3).

#![expect(unsafe_code, reason = "the C boundary")]
#![expect(clippy::missing_safety_doc, reason = "callers guarantee what the standard requires of them")]

use std::ffi::c_int;
use std::sync::Arc;

use super::args::{elements, put};
use crate::abi::constants::{MPI_PROC_NULL, MPI_UNDEFINED};
use crate::abi::{CommHandle, GroupHandle, SessionHandle};
use crate::engine::Peer;
use crate::error::{MpiError, MpiResult};
use crate::object::group::{Group, ranks_of_ranges};
use crate::runtime::{Runtime, State};

/// `MPI_Comm_group`.
pub unsafe fn comm_group(rt: &Runtime, comm: CommHandle, group: *mut GroupHandle) -> MpiResult {
    let mut state = rt.lock();
    let communicator = state.comms.get(comm)?;
    let found = of_session(Arc::clone(communicator.group()), communicator.session);
    // SAFETY: the caller's promise.
    unsafe { put_group(&mut state, found, group) }
}

/// The same group, derived from a session.
pub(super) fn of_session(group: Arc<Group>, session: Option<SessionHandle>) -> Arc<Group> {
    match group.session.or(session) {
        same if same == group.session => group,
        session => Arc::new(Group { members: Arc::clone(&group.members), rank: group.rank, session }),
    }
}

/// `MPI_Group_size`.
pub unsafe fn group_size(rt: &Runtime, group: GroupHandle, size: *mut c_int) -> MpiResult {
    let found = rt.lock().groups.get(group)?.size();
    // SAFETY: the caller's promise.
    unsafe { put(size, found as c_int) }
}

/// `MPI_Group_rank`.
pub unsafe fn group_rank(rt: &Runtime, group: GroupHandle, rank: *mut c_int) -> MpiResult {
    let found = rt.lock().groups.get(group)?.rank;
    // SAFETY: the caller's promise.
    unsafe { put(rank, found.map_or(MPI_UNDEFINED, |rank| rank as c_int)) }
}

/// `MPI_Group_translate_ranks`.
pub unsafe fn group_translate_ranks(
    rt: &Runtime,
    group1: GroupHandle,
    n: c_int,
    ranks1: *const c_int,
    group2: GroupHandle,
    ranks2: *mut c_int,
) -> MpiResult {
    let (one, two) = two(&rt.lock(), group1, group2)?;
    // SAFETY: the caller's promise.
    let ranks = unsafe { elements(n, ranks1, "ranks")? };
    if let Some(bad) = ranks.iter().find(|rank| **rank != MPI_PROC_NULL && !(0..one.size() as c_int).contains(*rank)) {
        return Err(MpiError::rank(format!("rank {bad} is not in the group of size {}", one.size())));
    }
    if !ranks.is_empty() && ranks2.is_null() {
        return Err(MpiError::arg("the rank pointer is null"));
    }
    // The rank of MPI_PROC_NULL is not in the group, and is handled below.
    let found = one.translate(ranks.iter().map(|rank| *rank as u32), &two);
    for (index, (rank, found)) in ranks.iter().zip(found).enumerate() {
        let found = if *rank == MPI_PROC_NULL { MPI_PROC_NULL } else { found.map_or(MPI_UNDEFINED, |it| it as c_int) };
        // SAFETY: the caller guarantees room for this many ranks.
        unsafe { ranks2.add(index).write(found) };
    }
    Ok(())
}

/// `MPI_Group_compare`.
pub unsafe fn group_compare(rt: &Runtime, group1: GroupHandle, group2: GroupHandle, result: *mut c_int) -> MpiResult {
    let (one, two) = two(&rt.lock(), group1, group2)?;
    // SAFETY: the caller's promise.
    unsafe { put(result, one.compare(&two)) }
}

/// `MPI_Group_union`.
pub unsafe fn group_union(
    rt: &Runtime,
    group1: GroupHandle,
    group2: GroupHandle,
    newgroup: *mut GroupHandle,
) -> MpiResult {
    // SAFETY: the caller's promise.
    unsafe { combine(rt, group1, group2, newgroup, Group::union) }
}

/// `MPI_Group_intersection`.
pub unsafe fn group_intersection(
    rt: &Runtime,
    group1: GroupHandle,
    group2: GroupHandle,
    newgroup: *mut GroupHandle,
) -> MpiResult {
    // SAFETY: the caller's promise.
    unsafe { combine(rt, group1, group2, newgroup, Group::intersection) }
}

/// `MPI_Group_difference`.
pub unsafe fn group_difference(
    rt: &Runtime,
    group1: GroupHandle,
    group2: GroupHandle,
    newgroup: *mut GroupHandle,
) -> MpiResult {
    // SAFETY: the caller's promise.
    unsafe { combine(rt, group1, group2, newgroup, Group::difference) }
}

/// `MPI_Group_incl`.
pub unsafe fn group_incl(
    rt: &Runtime,
    group: GroupHandle,
    n: c_int,
    ranks: *const c_int,
    newgroup: *mut GroupHandle,
) -> MpiResult {
    // SAFETY: the caller's promise.
    let ranks = unsafe { elements(n, ranks, "ranks")? };
    let ranks: Vec<i64> = ranks.iter().copied().map(i64::from).collect();
    // SAFETY: the caller's promise.
    unsafe { derive(rt, group, newgroup, None, |group| group.include(&ranks)) }
}

/// `MPI_Group_excl`.
pub unsafe fn group_excl(
    rt: &Runtime,
    group: GroupHandle,
    n: c_int,
    ranks: *const c_int,
    newgroup: *mut GroupHandle,
) -> MpiResult {
    // SAFETY: the caller's promise.
    let ranks = unsafe { elements(n, ranks, "ranks")? };
    let ranks: Vec<i64> = ranks.iter().copied().map(i64::from).collect();
    // SAFETY: the caller's promise.
    unsafe { derive(rt, group, newgroup, None, |group| group.exclude(&ranks)) }
}

/// `MPI_Group_range_incl`.
pub unsafe fn group_range_incl(
    rt: &Runtime,
    group: GroupHandle,
    n: c_int,
    ranges: *const [c_int; 3],
    newgroup: *mut GroupHandle,
) -> MpiResult {
    // SAFETY: the caller's promise.
    unsafe {
        let ranges = elements(n, ranges, "ranges")?;
        derive(rt, group, newgroup, None, |group| group.include(&ranks_of_ranges(ranges, group.size())?))
    }
}

/// `MPI_Group_range_excl`.
pub unsafe fn group_range_excl(
    rt: &Runtime,
    group: GroupHandle,
    n: c_int,
    ranges: *const [c_int; 3],
    newgroup: *mut GroupHandle,
) -> MpiResult {
    // SAFETY: the caller's promise.
    unsafe {
        let ranges = elements(n, ranges, "ranges")?;
        derive(rt, group, newgroup, None, |group| group.exclude(&ranks_of_ranges(ranges, group.size())?))
    }
}

/// `MPI_Group_free`.
pub unsafe fn group_free(rt: &Runtime, group: *mut GroupHandle) -> MpiResult {
    if group.is_null() {
        return Err(MpiError::group("the group pointer is null"));
    }
    // SAFETY: the caller's promise.
    unsafe {
        rt.lock().groups.free(group.read())?;
        put(group, GroupHandle::NULL)
    }
}

fn two(state: &State, group1: GroupHandle, group2: GroupHandle) -> MpiResult<(Arc<Group>, Arc<Group>)> {
    Ok((state.groups.get(group1)?, state.groups.get(group2)?))
}

unsafe fn combine(
    rt: &Runtime,
    group1: GroupHandle,
    group2: GroupHandle,
    newgroup: *mut GroupHandle,
    how: fn(&Group, &Group) -> Vec<Peer>,
) -> MpiResult {
    let other = rt.lock().groups.get(group2)?;
    // SAFETY: the caller's promise.
    unsafe { derive(rt, group1, newgroup, other.session, |group| Ok(how(group, &other))) }
}

unsafe fn derive(
    rt: &Runtime,
    group: GroupHandle,
    newgroup: *mut GroupHandle,
    session: Option<SessionHandle>,
    how: impl FnOnce(&Group) -> MpiResult<Vec<Peer>>,
) -> MpiResult {
    let mut state = rt.lock();
    let from = state.groups.get(group)?;
    let made = Group { session: from.session.or(session), ..Group::new(how(&from)?, state.me()) };
    // SAFETY: the caller's promise.
    unsafe { put_group(&mut state, Arc::new(made), newgroup) }
}

unsafe fn put_group(state: &mut State, group: Arc<Group>, place: *mut GroupHandle) -> MpiResult {
    if place.is_null() {
        return Err(MpiError::arg("the group pointer is null"));
    }
    // SAFETY: the caller's promise.
    unsafe { put(place, state.groups.add(group)?) }
}
