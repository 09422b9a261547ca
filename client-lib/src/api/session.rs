//! Sessions, and groups and communicators from their process sets (MPI 5.0 §11.3, §7.4.2, §7.6.2).

#![expect(unsafe_code, reason = "the C boundary")]
#![expect(clippy::missing_safety_doc, reason = "callers guarantee what the standard requires of them")]
#![expect(clippy::too_many_arguments, reason = "the standard's argument list")]

use std::ffi::{c_char, c_int};
use std::sync::Arc;

use super::args::{check_place, put, put_text, text};
use super::comm::{finish, sweep};
use crate::abi::constants::{MPI_ERR_SESSION, MPI_MAX_STRINGTAG_LEN};
use crate::abi::{CommHandle, ErrhandlerHandle, GroupHandle, InfoHandle, SessionHandle};
use crate::engine::Peer;
use crate::error::{MpiError, MpiResult};
use crate::object::agree::{Circle, Failure};
use crate::object::bridge::{Brings, Crossing};
use crate::object::creation::Creation;
use crate::object::errhandler::{Errhandler, Of};
use crate::object::group::Group;
use crate::object::info::Info;
use crate::object::session::{self, Pset, Session};
use crate::runtime::{self, GROUPS_CONTEXT, Guard, Runtime, State};

/// `MPI_Session_init`. May be called at any time.
pub unsafe fn session_init(
    rt: &Runtime,
    info: InfoHandle,
    errhandler: ErrhandlerHandle,
    session: *mut SessionHandle,
) -> MpiResult {
    check_place(session)?;
    let made = {
        let state = rt.visit();
        let errhandler = state.errhandlers.find(errhandler, Of::Session)?;
        Session { errhandler, thread_level: session::thread_level(state.infos.hints(info)?)? }
    };
    let handle = runtime::begin_session(rt, made)?;
    // SAFETY: the caller's promise.
    unsafe { put(session, handle) }
}

/// `MPI_Session_finalize`.
pub unsafe fn session_finalize(rt: &Runtime, session: *mut SessionHandle) -> MpiResult {
    if session.is_null() {
        return Err(MpiError::new(MPI_ERR_SESSION, "the session pointer is null"));
    }
    // SAFETY: the caller's promise.
    unsafe {
        runtime::end_session(rt, session.read())?;
        put(session, SessionHandle::NULL)
    }
}

/// `MPI_Session_get_info`.
pub unsafe fn session_get_info(rt: &Runtime, session: SessionHandle, info_used: *mut InfoHandle) -> MpiResult {
    let mut state = rt.visit();
    let reported = state.sessions.get(session)?.info()?;
    check_place(info_used)?;
    // SAFETY: the caller's promise.
    unsafe { put(info_used, state.infos.add(reported.with_memory_kinds())?) }
}

/// `MPI_Session_get_num_psets`. No hints are known.
pub unsafe fn session_get_num_psets(
    rt: &Runtime,
    session: SessionHandle,
    info: InfoHandle,
    npset_names: *mut c_int,
) -> MpiResult {
    let mut state = rt.visit();
    state.sessions.get(session)?;
    state.infos.hints(info)?;
    let count = state.psets()?.count() as c_int;
    // SAFETY: the caller's promise.
    unsafe { put(npset_names, count) }
}

/// `MPI_Session_get_nth_pset`: `pset_len` counts the terminating 0, both as the available and as the required room.
pub unsafe fn session_get_nth_pset(
    rt: &Runtime,
    session: SessionHandle,
    info: InfoHandle,
    n: c_int,
    pset_len: *mut c_int,
    pset_name: *mut c_char,
) -> MpiResult {
    let mut state = rt.visit();
    state.sessions.get(session)?;
    state.infos.hints(info)?;
    check_place(pset_len)?;
    let psets = state.psets()?;
    let name = usize::try_from(n).ok().and_then(|n| psets.name(n)).ok_or_else(|| {
        MpiError::arg(format!("invalid process set number {n}: there are {}, counted from 0", psets.count()))
    })?;
    // SAFETY: the caller's promise.
    unsafe {
        let room = pset_len.read();
        let room = usize::try_from(room).map_err(|_| MpiError::arg(format!("invalid name length {room}")))?;
        if room > 0 {
            put_text(pset_name, room, name.as_bytes())?;
        }
        put(pset_len, name.len() as c_int + 1)
    }
}

/// `MPI_Session_get_pset_info`: the number of processes.
pub unsafe fn session_get_pset_info(
    rt: &Runtime,
    session: SessionHandle,
    pset_name: *const c_char,
    info: *mut InfoHandle,
) -> MpiResult {
    let mut state = rt.visit();
    state.sessions.get(session)?;
    check_place(info)?;
    // SAFETY: the caller's promise.
    let members = members(&mut state, unsafe { text(pset_name, "name of the process set")? })?;
    let mut reported = Info::default();
    reported.set(b"mpi_size", members.len().to_string().as_bytes())?;
    // SAFETY: the caller's promise.
    unsafe { put(info, state.infos.add(reported)?) }
}

/// `MPI_Group_from_session_pset`.
pub unsafe fn group_from_session_pset(
    rt: &Runtime,
    session: SessionHandle,
    pset_name: *const c_char,
    newgroup: *mut GroupHandle,
) -> MpiResult {
    let mut state = rt.lock();
    state.sessions.get(session)?;
    check_place(newgroup)?;
    // Also the answer for a name that does not exist (MPI 5.0 §11.3).
    // SAFETY: the caller's promise.
    unsafe { put(newgroup, GroupHandle::NULL)? };
    // SAFETY: the caller's promise.
    let members = members(&mut state, unsafe { text(pset_name, "name of the process set")? })?;
    let group = Group { session: Some(session), ..Group::new(members, state.me()) };
    // SAFETY: the caller's promise.
    unsafe { put(newgroup, state.groups.add(Arc::new(group))?) }
}

/// The members of the process set with this name.
fn members(state: &mut State, name: &[u8]) -> MpiResult<Vec<Peer>> {
    // The standard sets need no process manager.
    let pset = match Pset::standard(name) {
        Some(pset) => pset,
        None => state.psets()?.named(name)?,
    };
    Ok(match pset {
        Pset::World => state.comms.all_peers.to_vec(),
        Pset::Own => vec![state.me()],
        Pset::Node(node) => {
            let nodes = state.world.as_ref().map_or(&[][..], |world| &world.nodes);
            let on_it = state.comms.all_peers.iter().zip(nodes).filter(|(_, on)| **on == node);
            on_it.map(|(peer, _)| *peer).collect()
        }
    })
}

/// `MPI_Comm_create_from_group`. The members use a context that all processes have in common, with a tag from their
/// string.
pub unsafe fn comm_create_from_group(
    rt: &Runtime,
    group: GroupHandle,
    stringtag: *const c_char,
    info: InfoHandle,
    errhandler: ErrhandlerHandle,
    newcomm: *mut CommHandle,
) -> MpiResult {
    check_place(newcomm)?;
    // SAFETY: the caller's promise.
    let string = unsafe { stringtag_of(stringtag)? };
    let mut guard = rt.lock();
    let (hints, errhandler) = asked(&guard, info, errhandler)?;
    let group = guard.groups.get(group)?;
    let made = if group.members.is_empty() {
        CommHandle::NULL
    } else {
        let circle = circle(&guard, &group, Use::One, string)?;
        sweep(&mut guard);
        let creation = Creation::of_all(circle, Arc::clone(&group), &mut guard.comms.contexts, false);
        made(&mut guard, creation, hints, errhandler, &group)?
    };
    // SAFETY: the caller's promise.
    unsafe { put(newcomm, made) }
}

/// `MPI_Intercomm_create_from_groups`.
pub unsafe fn intercomm_create_from_groups(
    rt: &Runtime,
    local_group: GroupHandle,
    local_leader: c_int,
    remote_group: GroupHandle,
    remote_leader: c_int,
    stringtag: *const c_char,
    info: InfoHandle,
    errhandler: ErrhandlerHandle,
    newintercomm: *mut CommHandle,
) -> MpiResult {
    check_place(newintercomm)?;
    // SAFETY: the caller's promise.
    let string = unsafe { stringtag_of(stringtag)? };
    let mut guard = rt.lock();
    let (hints, errhandler) = asked(&guard, info, errhandler)?;
    let group = guard.groups.get(local_group)?;
    // Only the leader knows the other group: of a group with several members, all learn that it is empty as an error.
    let is_empty = |other: GroupHandle| guard.groups.get(other).is_ok_and(|other| other.members.is_empty());
    if group.members.is_empty() || (group.size() == 1 && is_empty(remote_group)) {
        // SAFETY: the caller's promise.
        return unsafe { put(newintercomm, CommHandle::NULL) };
    }
    let circle = circle(&guard, &group, Use::Local, string)?;
    let leader = member(&group, local_leader)?;
    let crossing = (group.rank == Some(leader)).then(|| {
        let remote = guard.groups.get(remote_group)?;
        let to = remote.members[member(&remote, remote_leader)? as usize];
        if to == guard.me() {
            return Err(MpiError::rank("the remote leader is this process: each group needs its own leader"));
        }
        let (from, rank) = (place(&guard, to)?, circle.rank(circle.place));
        let leaders = if from < rank { [to, guard.me()] } else { [guard.me(), to] };
        let tag = hashed(&guard, Use::Leaders, string, &leaders);
        Ok(Crossing { context: circle.context, rank, from, to, tag })
    });
    let (crossing, fault) = match crossing.transpose() {
        Ok(crossing) => (crossing, None),
        Err(error) => (None, Some(error)),
    };
    sweep(&mut guard);
    let contexts = &mut guard.comms.contexts;
    // All members know the others from their groups.
    let brings = fault.as_ref().map_or(Brings::Nothing, |fault| Brings::Failure(Failure::of(fault)));
    let creation = Creation::between(circle, Arc::clone(&group), crossing, contexts, brings);
    let made = made(&mut guard, creation, hints, errhandler, &group);
    let made = fault.map_or(made, Err)?;
    // SAFETY: the caller's promise.
    unsafe { put(newintercomm, made) }
}

/// Waits until the communicator is made.
fn made(
    guard: &mut Guard<'_>,
    creation: Creation,
    hints: Info,
    errhandler: Errhandler,
    group: &Group,
) -> MpiResult<CommHandle> {
    let handle = finish(guard, creation, errhandler, group.session)?;
    if let Ok(communicator) = guard.comms.get_mut(handle) {
        communicator.hints = hints;
    }
    Ok(handle)
}

fn asked(state: &State, info: InfoHandle, errhandler: ErrhandlerHandle) -> MpiResult<(Info, Errhandler)> {
    let mut hints = Info::default();
    if let Some(given) = state.infos.hints(info)? {
        hints.take_assertions(given);
    }
    Ok((hints, state.errhandlers.find(errhandler, Of::Comm)?))
}

unsafe fn stringtag_of<'a>(stringtag: *const c_char) -> MpiResult<&'a [u8]> {
    // SAFETY: the caller's promise.
    let string = unsafe { text(stringtag, "string tag")? };
    if string.len() >= MPI_MAX_STRINGTAG_LEN as usize {
        return Err(MpiError::arg(format!(
            "the string tag has {} bytes: it must have fewer than {MPI_MAX_STRINGTAG_LEN}",
            string.len()
        )));
    }
    Ok(string)
}

fn member(group: &Group, rank: c_int) -> MpiResult<u32> {
    let found = u32::try_from(rank).ok().filter(|rank| *rank < group.size());
    found.ok_or_else(|| MpiError::rank(format!("rank {rank} is not in the group of size {}", group.size())))
}

/// The purpose of messages, so that those of different purposes are never confused.
#[derive(Debug, Clone, Copy)]
enum Use {
    One = 1,
    Local = 2,
    Leaders = 3,
}

/// The members of a group on the common context.
fn circle(state: &State, group: &Group, of: Use, string: &[u8]) -> MpiResult<Circle> {
    let place_here = group.rank.ok_or_else(|| MpiError::group("this process is not a member of the group"))?;
    let ranks: Arc<[u32]> = group.members.iter().map(|peer| place(state, *peer)).collect::<MpiResult<_>>()?;
    Ok(Circle {
        context: GROUPS_CONTEXT + 1,
        members: Arc::clone(&state.comms.all_peers),
        ranks: Some(ranks),
        place: place_here,
        tag: hashed(state, of, string, &group.members),
    })
}

/// A peer's place among all processes.
fn place(state: &State, peer: Peer) -> MpiResult<u32> {
    let found = state.comms.all_peers.iter().position(|it| *it == peer);
    found.map(|place| place as u32).ok_or_else(|| MpiError::group("a member of the group belongs to another job"))
}

/// The tag for messages with this purpose, string and members.
fn hashed(state: &State, of: Use, string: &[u8], members: &[Peer]) -> i32 {
    // FNV-1a: equal in all processes, unlike a seeded hash.
    let names = state.comms.names.to_words(members);
    let bytes =
        [of as u8].into_iter().chain(string.iter().copied()).chain(names.into_iter().flat_map(u64::to_ne_bytes));
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    ((hash >> 32 ^ hash) & 0x7fff_ffff) as i32
}
