//! Communicators (MPI 5.0 §7.4).

#![expect(unsafe_code, reason = "the C boundary")]
#![expect(clippy::missing_safety_doc, reason = "callers guarantee what the standard requires of them")]

use std::ffi::{c_char, c_int};
use std::sync::Arc;

use super::args::{self, put, put_text, text};
use super::attr::{self, Object};
use super::completion::{add, is_over};
use crate::abi::constants::{
    MPI_COMM_SELF, MPI_COMM_TYPE_HW_GUIDED, MPI_COMM_TYPE_HW_UNGUIDED, MPI_COMM_TYPE_RESOURCE_GUIDED,
    MPI_COMM_TYPE_SHARED, MPI_COMM_WORLD, MPI_CONGRUENT, MPI_IDENT, MPI_MAX_OBJECT_NAME, MPI_UNDEFINED, MPI_UNEQUAL,
};
use crate::abi::{CommHandle, GroupHandle, InfoHandle, RequestHandle, SessionHandle};
use crate::coll::node::Sharing;
use crate::engine::Peer;
use crate::error::{MpiError, MpiResult};
use crate::object::agree::tag;
use crate::object::attr::Attributes;
use crate::object::buffered::Owner;
use crate::object::comm::Communicator;
use crate::object::creation::{Colour, Creation, Sorts, ranks_in_parent};
use crate::object::errhandler::Errhandler;
use crate::object::group::Group;
use crate::object::hardware::resources;
use crate::object::info::Info;
use crate::object::requests::Request;
use crate::runtime::{Guard, Runtime, State};
use crate::transport::endpoint::Node;

/// `MPI_Comm_size`.
pub unsafe fn comm_size(rt: &Runtime, comm: CommHandle, size: *mut c_int) -> MpiResult {
    let found = rt.lock().comms.get(comm)?.group().size();
    // SAFETY: the caller's promise.
    unsafe { put(size, found as c_int) }
}

/// `MPI_Comm_rank`.
pub unsafe fn comm_rank(rt: &Runtime, comm: CommHandle, rank: *mut c_int) -> MpiResult {
    let found = rt.lock().comms.get(comm)?.rank;
    // SAFETY: the caller's promise.
    unsafe { put(rank, found as c_int) }
}

/// `MPI_Comm_compare`.
pub unsafe fn comm_compare(rt: &Runtime, comm1: CommHandle, comm2: CommHandle, result: *mut c_int) -> MpiResult {
    let state = rt.lock();
    let (one, two) = (state.comms.get(comm1)?, state.comms.get(comm2)?);
    let found = match (one.remote(), two.remote()) {
        _ if comm1 == comm2 => MPI_IDENT,
        (None, None) => congruent(one.group().compare(two.group())),
        // Both groups must agree (MPI 5.0 §7.6.1).
        (Some(far), Some(other_far)) => match (one.group().compare(two.group()), far.group.compare(&other_far.group)) {
            (MPI_UNEQUAL, _) | (_, MPI_UNEQUAL) => MPI_UNEQUAL,
            (MPI_IDENT, far) => congruent(far),
            (local, _) => local,
        },
        (None, Some(_)) | (Some(_), None) => MPI_UNEQUAL,
    };
    // SAFETY: the caller's promise.
    unsafe { put(result, found) }
}

/// Contexts differ where groups are identical.
fn congruent(compared: c_int) -> c_int {
    if compared == MPI_IDENT { MPI_CONGRUENT } else { compared }
}

/// `MPI_Comm_get_name`: `MPI_COMM_NULL` also has a name (MPI 5.0 §7.8).
pub unsafe fn comm_get_name(rt: &Runtime, comm: CommHandle, name: *mut c_char, resultlen: *mut c_int) -> MpiResult {
    let state = rt.lock();
    let found = if comm == CommHandle::NULL { &b"MPI_COMM_NULL"[..] } else { &state.comms.get(comm)?.name };
    // SAFETY: the caller's promise.
    unsafe { put(resultlen, put_text(name, MPI_MAX_OBJECT_NAME as usize, found)?) }
}

/// `MPI_Comm_set_name`.
pub unsafe fn comm_set_name(rt: &Runtime, comm: CommHandle, name: *const c_char) -> MpiResult {
    // SAFETY: the caller's promise.
    let name = unsafe { text(name, "name")? };
    let end = name.len().min(MPI_MAX_OBJECT_NAME as usize - 1);
    rt.lock().comms.get_mut(comm)?.name = name[..end].to_vec();
    Ok(())
}

/// `MPI_Comm_set_info`: of the hints, the standard's assertions are stored.
pub unsafe fn comm_set_info(rt: &Runtime, comm: CommHandle, info: InfoHandle) -> MpiResult {
    let mut state = rt.lock();
    let State { infos, comms, .. } = &mut *state;
    let communicator = comms.get_mut(comm)?;
    if let Some(hints) = infos.hints(info)? {
        communicator.hints.take_assertions(hints);
    }
    Ok(())
}

/// `MPI_Comm_get_info`.
pub unsafe fn comm_get_info(rt: &Runtime, comm: CommHandle, info_used: *mut InfoHandle) -> MpiResult {
    let mut state = rt.lock();
    let hints = state.comms.get(comm)?.hints.clone();
    args::check_place(info_used)?;
    // SAFETY: the caller's promise.
    unsafe { put(info_used, state.infos.add(hints.with_memory_kinds())?) }
}

/// `MPI_Comm_dup`.
pub unsafe fn comm_dup(rt: &Runtime, comm: CommHandle, newcomm: *mut CommHandle) -> MpiResult {
    // SAFETY: the caller's promise.
    unsafe { comm_dup_with_info(rt, comm, InfoHandle::NULL, newcomm) }
}

/// `MPI_Comm_dup_with_info`. Hints are not copied (MPI 5.0 §7.4.2).
pub unsafe fn comm_dup_with_info(
    rt: &Runtime,
    comm: CommHandle,
    info: InfoHandle,
    newcomm: *mut CommHandle,
) -> MpiResult {
    args::check_place(newcomm)?;
    let (hints, attributes) = copies(rt, comm, info)?;
    let mut guard = rt.lock();
    let made = match duplicate(&mut guard, comm, attributes.is_err()) {
        Ok(creation) => make(&mut guard, comm, creation),
        Err(error) => Err(error),
    };
    // SAFETY: the caller's promise.
    let mut attributes = attributes.inspect_err(|_| drop(unsafe { put(newcomm, CommHandle::NULL) }))?;
    let handle = match made {
        Ok(handle) => handle,
        Err(error) => {
            attributes.clear(&mut guard.keyvals);
            // SAFETY: the caller's promise.
            unsafe { put(newcomm, CommHandle::NULL)? };
            return Err(error);
        }
    };
    let topology = guard.comms.get(comm)?.topology.clone();
    let communicator = guard.comms.get_mut(handle)?;
    (communicator.hints, communicator.attributes, communicator.topology) = (hints, attributes, topology);
    // SAFETY: the caller's promise.
    unsafe { put(newcomm, handle) }
}

/// `MPI_Comm_idup`.
pub unsafe fn comm_idup(
    rt: &Runtime,
    comm: CommHandle,
    newcomm: *mut CommHandle,
    request: *mut RequestHandle,
) -> MpiResult {
    // SAFETY: the caller's promise.
    unsafe { comm_idup_with_info(rt, comm, InfoHandle::NULL, newcomm, request) }
}

/// `MPI_Comm_idup_with_info`.
pub unsafe fn comm_idup_with_info(
    rt: &Runtime,
    comm: CommHandle,
    info: InfoHandle,
    newcomm: *mut CommHandle,
    request: *mut RequestHandle,
) -> MpiResult {
    args::check_place(newcomm)?;
    args::check_place(request)?;
    let (hints, attributes) = copies(rt, comm, info)?;
    let mut guard = rt.lock();
    let state = &mut *guard;
    let mut creation = duplicate(state, comm, attributes.is_err())?;
    let attributes = match attributes {
        Ok(attributes) => attributes,
        Err(error) => {
            // SAFETY: the caller's promise.
            unsafe { put(newcomm, CommHandle::NULL)? };
            // The other members wait for this process.
            creation.forgotten = true;
            state.comms.begin(creation);
            return Err(error);
        }
    };
    let parent = state.comms.get(comm)?;
    let Communicator { errhandler, session, .. } = *parent;
    let topology = parent.topology.clone();
    let promised = Communicator::promised(parent.parties.clone(), errhandler);
    let handle = state.comms.add(Communicator { hints, attributes, session, topology, ..promised })?;
    state.errhandlers.used(errhandler);
    creation.promised = Some(handle);
    let id = state.comms.begin(creation);
    let waited_for = add(state, Request::Creation { id, comm })?;
    guard.step();
    // SAFETY: the caller's promise.
    unsafe {
        put(newcomm, handle)?;
        put(request, waited_for)
    }
}

/// The parts of a duplicate besides its context. The outer error is one of arguments; the inner one comes from a copy
/// function, and the other members must be told.
fn copies(rt: &Runtime, comm: CommHandle, info: InfoHandle) -> MpiResult<(Info, MpiResult<Attributes>)> {
    let mut hints = Info::default();
    {
        let state = rt.lock();
        state.comms.get(comm)?;
        if let Some(given) = state.infos.hints(info)? {
            hints.take_assertions(given);
        }
    }
    Ok((hints, attr::copy_all(rt, Object::Comm(comm))))
}

fn duplicate(state: &mut State, comm: CommHandle, fails: bool) -> MpiResult<Creation> {
    sweep(state);
    let parent = state.comms.get(comm)?;
    parent.must_be_usable()?;
    let parties = parent.parties.clone();
    let circle = state.circle_of_all(comm)?;
    Ok(Creation::of_all(circle, parties, &mut state.comms.contexts, fails))
}

/// `MPI_Comm_split`. In an intercommunicator, the members of one colour in both groups form one (MPI 5.0 §7.4.2).
pub unsafe fn comm_split(
    rt: &Runtime,
    comm: CommHandle,
    color: c_int,
    key: c_int,
    newcomm: *mut CommHandle,
) -> MpiResult {
    args::check_place(newcomm)?;
    let colour = match color {
        0.. => Some(color),
        MPI_UNDEFINED => None,
        _ => return Err(MpiError::arg(format!("invalid colour {color}: it must be 0 or more, or MPI_UNDEFINED"))),
    };
    let made = split(&mut rt.lock(), comm, colour, key)?;
    // SAFETY: the caller's promise.
    unsafe { put(newcomm, made) }
}

/// `MPI_Comm_split_type`: by nodes that share memory; other parts of the hardware are unknown here. In an
/// intercommunicator, the members of both groups on one node form one.
pub unsafe fn comm_split_type(
    rt: &Runtime,
    comm: CommHandle,
    split_type: c_int,
    key: c_int,
    info: InfoHandle,
    newcomm: *mut CommHandle,
) -> MpiResult {
    args::check_place(newcomm)?;
    let mut guard = rt.lock();
    let (mine, is_spread) = nodes(&guard, comm)?;
    let wanted = guard.infos.hints(info)?.and_then(|hints| hints.get(RESOURCE_TYPE));
    let guided = wanted == Some(SHARED_MEMORY);
    // The members that are confined to one part of one node.
    let part = wanted.and_then(|wanted| resources().into_iter().find(|(kind, _)| kind.as_bytes() == wanted)?.1);
    let with_part = |node: Colour| part.map(|part| node.wrapping_mul(PARTS).wrapping_add(part as Colour) & Colour::MAX);
    let colour = match split_type {
        MPI_UNDEFINED => None,
        MPI_COMM_TYPE_SHARED => mine,
        // Only proper parts of the whole are requested.
        MPI_COMM_TYPE_HW_UNGUIDED => mine.filter(|_| is_spread),
        MPI_COMM_TYPE_HW_GUIDED | MPI_COMM_TYPE_RESOURCE_GUIDED => {
            mine.and_then(|node| if guided { Some(node) } else { with_part(node) })
        }
        _ => return Err(MpiError::arg(format!("invalid split type {split_type}"))),
    };
    let made = split(&mut guard, comm, colour, key)?;
    let is_found = split_type == MPI_COMM_TYPE_HW_UNGUIDED && colour.is_some();
    if is_found && guard.infos.hints(info)?.is_some() {
        guard.infos.get_mut(info)?.set(RESOURCE_TYPE, SHARED_MEMORY)?;
    }
    // SAFETY: the caller's promise.
    unsafe { put(newcomm, made) }
}

/// The key of info that names the kind of hardware by which a communicator is split (MPI 5.0 §7.4.2), also in answer to an unguided split.
const RESOURCE_TYPE: &[u8] = b"mpi_hw_resource_type";
/// The kind of hardware that is a node.
const SHARED_MEMORY: &[u8] = b"mpi_shared_memory";

/// More than the cores of an affinity mask.
const PARTS: Colour = 1031;

/// A colour for the members on this process's node, and whether there are members elsewhere.
fn nodes(state: &State, comm: CommHandle) -> MpiResult<(Option<Colour>, bool)> {
    let parties = &state.comms.get(comm)?.parties;
    let all = parties.all();
    let nodes = state.world.as_ref().map_or(&[][..], |world| &world.nodes);
    if !all.iter().any(|peer| state.comms.names.is_foreign(*peer)) {
        let nodes: Vec<u32> = all.iter().map(|peer| nodes.get(peer.0 as usize).copied().unwrap_or(0)).collect();
        let mine = nodes.get(parties.place() as usize).map(|node| *node as Colour);
        return Ok((mine, nodes.iter().any(|node| *node != nodes[0])));
    }
    // The nodes of different jobs have no common numbers.
    let here = Node::here();
    let is_here = |peer: Peer| match state.comms.names.node(peer) {
        Some(node) => node.colour() == here.colour(),
        None => nodes.get(peer.0 as usize) == nodes.get(state.me().0 as usize),
    };
    Ok((Some(here.colour()), !all.iter().all(|peer| is_here(*peer))))
}

fn split(guard: &mut Guard<'_>, comm: CommHandle, colour: Option<Colour>, key: c_int) -> MpiResult<CommHandle> {
    let parent = guard.comms.get(comm)?;
    let sorts = if parent.remote().is_some() { Sorts::Two(parent.parties.size_of_first()) } else { Sorts::One };
    sort(guard, comm, colour, key, sorts)
}

/// All exchange their colours and keys; returns this process's communicator, or null.
pub(super) fn sort(
    guard: &mut Guard<'_>,
    comm: CommHandle,
    colour: Option<Colour>,
    key: c_int,
    sorts: Sorts,
) -> MpiResult<CommHandle> {
    let state = &mut **guard;
    sweep(state);
    state.comms.get(comm)?.must_be_usable()?;
    let circle = state.circle_of_all(comm)?;
    let me = circle.members[circle.place as usize];
    let creation = Creation::by_colour(circle, colour, key, me, sorts, &mut state.comms.contexts);
    make(guard, comm, creation)
}

/// `MPI_Comm_create`: only the members of the group communicate. In an intercommunicator neither side knows the other's
/// group, so all exchange theirs, as if the rank in the group were the key of a split.
pub unsafe fn comm_create(rt: &Runtime, comm: CommHandle, group: GroupHandle, newcomm: *mut CommHandle) -> MpiResult {
    args::check_place(newcomm)?;
    let mut guard = rt.lock();
    let group = guard.groups.get(group)?;
    let parent = guard.comms.get_mut(comm)?;
    if parent.remote().is_some() {
        ranks_in_parent(&group, parent.group())?;
        let made = split(&mut guard, comm, group.rank.map(|_| 0), group.rank.map_or(0, |rank| rank as c_int))?;
        // SAFETY: the caller's promise.
        return unsafe { put(newcomm, made) };
    }
    let made = of_members(&mut guard, comm, group)?;
    // SAFETY: the caller's promise.
    unsafe { put(newcomm, made) }
}

/// A communicator of some members of an intracommunicator, all of whose members call this; null in those that are not in the group.
pub(super) fn of_members(guard: &mut Guard<'_>, comm: CommHandle, group: Arc<Group>) -> MpiResult<CommHandle> {
    let parent = guard.comms.get(comm)?;
    parent.must_be_usable()?;
    let ranks = ranks_in_parent(&group, parent.group())?;
    // A process outside the group still counts the call.
    let tag = guard.circle_of_all(comm)?.tag;
    let Some(place) = group.rank else { return Ok(CommHandle::NULL) };
    let circle = guard.comms.get(comm)?.circle(Some(ranks), place, tag);
    sweep(guard);
    let creation = Creation::of_all(circle, group, &mut guard.comms.contexts, false);
    make(guard, comm, creation)
}

/// `MPI_Comm_create_group`, of an intracommunicator.
pub unsafe fn comm_create_group(
    rt: &Runtime,
    comm: CommHandle,
    group: GroupHandle,
    tag: c_int,
    newcomm: *mut CommHandle,
) -> MpiResult {
    args::check_place(newcomm)?;
    let tag = args::tag(tag)?;
    let mut guard = rt.lock();
    let group = guard.groups.get(group)?;
    let parent = guard.comms.get(comm)?;
    parent.must_be_intra()?;
    parent.must_be_usable()?;
    let ranks = ranks_in_parent(&group, parent.group())?;
    let made = match group.rank {
        None => CommHandle::NULL,
        Some(place) => {
            let circle = parent.circle(Some(ranks), place, tag::named(tag));
            sweep(&mut guard);
            let creation = Creation::of_all(circle, group, &mut guard.comms.contexts, false);
            make(&mut guard, comm, creation)?
        }
    };
    // SAFETY: the caller's promise.
    unsafe { put(newcomm, made) }
}

/// Waits until the communicator is made; null if this process is not in it. It inherits the error handler (MPI 5.0
/// §9.3).
pub(super) fn make(guard: &mut Guard<'_>, parent: CommHandle, creation: Creation) -> MpiResult<CommHandle> {
    let Communicator { errhandler, session, .. } = *guard.comms.get(parent)?;
    finish(guard, creation, errhandler, session)
}

/// Waits until a communicator is made that inherits nothing.
pub(super) fn finish(
    guard: &mut Guard<'_>,
    creation: Creation,
    errhandler: Errhandler,
    session: Option<SessionHandle>,
) -> MpiResult<CommHandle> {
    let id = guard.comms.begin(creation);
    let Some(born) = guard.wait(|state| state.comms.take_born(id))? else { return Ok(CommHandle::NULL) };
    let handle = guard.comms.add(Communicator { session, ..Communicator::born(born, errhandler) })?;
    guard.errhandlers.used(errhandler);
    Ok(handle)
}

pub(super) fn sweep(state: &mut State) {
    let State { comms, engine, requests, partitions, .. } = state;
    comms.sweep(engine, requests, partitions);
    if comms.names.has_foreign() {
        state.review_disconnects();
    }
}

/// After a communicator was freed.
pub(super) fn retire(state: &mut State, freed: Communicator) {
    state.errhandlers.unused(freed.errhandler);
    if let Some((outbox, _)) = freed.outbox {
        let shared = match freed.sharing {
            Sharing::Ready(shared) => Some(shared),
            Sharing::Untried(_) | Sharing::Never | Sharing::Busy => None,
        };
        state.outboxes.leave(outbox, shared);
    }
    sweep(state);
}

/// `MPI_Comm_free`. Pending operations on the communicator continue.
pub unsafe fn comm_free(rt: &Runtime, comm: *mut CommHandle) -> MpiResult {
    // SAFETY: the caller's promise.
    unsafe { release(rt, comm, false) }
}

/// `MPI_Comm_disconnect`: first waits for pending operations and, if there are members of other jobs, for all members:
/// the last communicator with one of these says farewell to it (MPI 5.0 §11.10.4).
pub unsafe fn comm_disconnect(rt: &Runtime, comm: *mut CommHandle) -> MpiResult {
    // SAFETY: the caller's promise.
    unsafe { release(rt, comm, true) }
}

unsafe fn release(rt: &Runtime, place: *mut CommHandle, waits: bool) -> MpiResult {
    if place.is_null() {
        return Err(MpiError::comm("the communicator pointer is null"));
    }
    // SAFETY: the caller's promise.
    let comm = unsafe { place.read() };
    if comm.0 == MPI_COMM_WORLD || comm.0 == MPI_COMM_SELF {
        return Err(MpiError::comm("MPI_COMM_WORLD and MPI_COMM_SELF cannot be freed"));
    }
    rt.lock().comms.get(comm)?;
    attr::delete_all(rt, Object::Comm(comm)).map_err(|error| error.on(comm))?;
    let mut guard = rt.lock();
    if waits {
        let Communicator { context, .. } = *guard.comms.get(comm)?;
        let receives = |state: &State| [context, context + 1].iter().any(|it| state.engine.has_receives(*it));
        // Sends and collectives too, except those whose request was freed.
        let is_pending = |state: &State| {
            let mut own = state.requests.iter().filter(|(_, request)| request.comm() == Some(comm));
            own.any(|(handle, _)| !is_over(state, handle))
        };
        guard.wait(|state| (!receives(state) && !is_pending(state)).then_some(()));
    }
    let foreign = if waits { guard.gather(comm)? } else { Vec::new() };
    // An attached buffer is released after its messages have been sent (MPI 5.0 §3.6).
    let owner = Owner::Comm(comm);
    guard.wait(|State { buffered, engine, .. }| (!buffered.is_busy(owner, engine)).then_some(()));
    let state = &mut *guard;
    let _ = state.buffered.detach(owner);
    let freed = state.comms.free(comm)?;
    retire(state, freed);
    guard.leave(&foreign);
    // SAFETY: the caller's promise.
    unsafe { put(place, CommHandle::NULL) }
}
