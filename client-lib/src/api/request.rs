//! Completion: waiting for requests, testing, freeing and cancelling them (MPI 5.0 §3.7 to §3.9).

#![expect(unsafe_code, reason = "the border to C")]

use std::ffi::{c_int, c_void};

use super::args::{put, put_status};
use crate::abi::constants::{MPI_ERR_IN_STATUS, MPI_SUCCESS, MPI_UNDEFINED};
use crate::abi::{RequestHandle, Status};
use crate::engine::RequestId;
use crate::error::{MpiError, MpiResult};
use crate::object::request::{Active, Finished, Generalized, Half, Request, Start};
use crate::runtime::{Guard, Runtime, State};

/// `MPI_Wait`.
///
/// # Safety
///
/// As the standard demands of its caller; so for all functions here.
#[inline]
pub unsafe fn wait(rt: &Runtime, request: *mut RequestHandle, status: *mut Status) -> MpiResult {
    // SAFETY: the caller's promise.
    let handle = unsafe { one(request)? };
    let end = if is_over_already(handle) {
        End::Plain(Status::EMPTY)
    } else {
        let mut guard = rt.lock();
        known(&guard, handle)?;
        guard.wait_or(|state| end(state, handle), |state| last_end(state, handle))
    };
    // SAFETY: the caller's promise.
    unsafe { tell_end(end, request, status) }
}

/// `MPI_Test`.
///
/// # Safety
///
/// See [`wait`].
pub unsafe fn test(rt: &Runtime, request: *mut RequestHandle, flag: *mut c_int, status: *mut Status) -> MpiResult {
    // SAFETY: the caller's promise.
    let handle = unsafe { one(request)? };
    let end = if is_over_already(handle) {
        Some(End::Plain(Status::EMPTY))
    } else {
        let mut guard = rt.lock();
        known(&guard, handle)?;
        poll(&mut guard, |state| end(state, handle))
    };
    // SAFETY: the caller's promise.
    unsafe {
        put(flag, c_int::from(end.is_some()))?;
        end.map_or(Ok(()), |end| tell_end(end, request, status))
    }
}

/// `MPI_Waitall`.
///
/// # Safety
///
/// See [`wait`].
pub unsafe fn waitall(rt: &Runtime, count: c_int, requests: *mut RequestHandle, statuses: *mut Status) -> MpiResult {
    // SAFETY: the caller's promise.
    let requests = unsafe { array(count, requests)? };
    let mut guard = rt.lock();
    for handle in requests.iter() {
        known(&guard, *handle)?;
    }
    let mut failed = None;
    for (index, request) in requests.iter_mut().enumerate() {
        let (handle, status) = (*request, nth(statuses, index));
        let end = match is_over_already(handle) {
            true => End::Plain(Status::EMPTY),
            false => guard.wait_or(|state| end(state, handle), |state| last_end(state, handle)),
        };
        match end {
            End::Plain(seen) => {
                *request = RequestHandle::NULL;
                if !status.is_null() {
                    // SAFETY: as many statuses as requests, or none.
                    unsafe { status.write(seen) };
                }
            }
            // SAFETY: as above.
            End::Other(finished) => unsafe { tell_one_of_many(&mut guard, *finished, request, status, &mut failed) },
        }
    }
    failed.map_or(Ok(()), Err)
}

/// `MPI_Testall`.
///
/// # Safety
///
/// See [`wait`].
pub unsafe fn testall(
    rt: &Runtime,
    count: c_int,
    requests: *mut RequestHandle,
    flag: *mut c_int,
    statuses: *mut Status,
) -> MpiResult {
    // SAFETY: the caller's promise.
    let requests = unsafe { array(count, requests)? };
    let mut guard = rt.lock();
    for handle in requests.iter() {
        known(&guard, *handle)?;
    }
    let all = poll(&mut guard, |state| requests.iter().all(|handle| is_over(state, *handle)).then_some(())).is_some();
    // SAFETY: the caller's promise.
    unsafe { put(flag, c_int::from(all))? };
    let mut failed = None;
    for (index, request) in requests.iter_mut().enumerate().filter(|_| all) {
        let Some(finished) = finish(&mut guard, *request) else { continue };
        // SAFETY: as many statuses as requests, or none.
        unsafe { tell_one_of_many(&mut guard, finished, request, nth(statuses, index), &mut failed) };
    }
    failed.map_or(Ok(()), Err)
}

/// `MPI_Waitany`.
///
/// # Safety
///
/// See [`wait`].
pub unsafe fn waitany(
    rt: &Runtime,
    count: c_int,
    requests: *mut RequestHandle,
    index: *mut c_int,
    status: *mut Status,
) -> MpiResult {
    // SAFETY: the caller's promise.
    let requests = unsafe { array(count, requests)? };
    let mut guard = rt.lock();
    let found = any_active(&guard, requests)?.then(|| {
        let last = |state: &mut State| {
            give_up_all(state, requests);
            finish_any(state, requests)
        };
        guard.wait_or(|state| finish_any(state, requests), last)
    });
    drop(guard);
    // SAFETY: the caller's promise.
    unsafe { tell_any(found, requests, index, status) }
}

/// `MPI_Testany`.
///
/// # Safety
///
/// See [`wait`].
pub unsafe fn testany(
    rt: &Runtime,
    count: c_int,
    requests: *mut RequestHandle,
    index: *mut c_int,
    flag: *mut c_int,
    status: *mut Status,
) -> MpiResult {
    // SAFETY: the caller's promise.
    let requests = unsafe { array(count, requests)? };
    let mut guard = rt.lock();
    let active = any_active(&guard, requests)?;
    let found = if active { poll(&mut guard, |state| finish_any(state, requests)) } else { None };
    drop(guard);
    // SAFETY: the caller's promise.
    unsafe {
        put(flag, c_int::from(!active || found.is_some()))?;
        tell_any(found, requests, index, status)
    }
}

/// `MPI_Waitsome`.
///
/// # Safety
///
/// See [`wait`].
pub unsafe fn waitsome(
    rt: &Runtime,
    count: c_int,
    requests: *mut RequestHandle,
    finished: *mut c_int,
    indices: *mut c_int,
    statuses: *mut Status,
) -> MpiResult {
    // SAFETY: the caller's promise.
    unsafe { some(rt, count, requests, finished, indices, statuses, true) }
}

/// `MPI_Testsome`.
///
/// # Safety
///
/// See [`wait`].
pub unsafe fn testsome(
    rt: &Runtime,
    count: c_int,
    requests: *mut RequestHandle,
    finished: *mut c_int,
    indices: *mut c_int,
    statuses: *mut Status,
) -> MpiResult {
    // SAFETY: the caller's promise.
    unsafe { some(rt, count, requests, finished, indices, statuses, false) }
}

unsafe fn some(
    rt: &Runtime,
    count: c_int,
    requests: *mut RequestHandle,
    finished_count: *mut c_int,
    indices: *mut c_int,
    statuses: *mut Status,
    waits: bool,
) -> MpiResult {
    // SAFETY: the caller's promise.
    let requests = unsafe { array(count, requests)? };
    let mut guard = rt.lock();
    if !any_active(&guard, requests)? {
        // SAFETY: the caller's promise.
        return unsafe { put(finished_count, MPI_UNDEFINED) };
    }
    let is_some_over =
        |state: &mut State| requests.iter().any(|it| is_active(state, *it) && is_over(state, *it)).then_some(());
    if waits {
        let last = |state: &mut State| {
            give_up_all(state, requests);
            is_some_over(state)
        };
        guard.wait_or(is_some_over, last);
    } else {
        // What has come meanwhile is looked at below.
        let _ = poll(&mut guard, is_some_over);
    }
    let mut failed = None;
    let mut found = 0;
    for (index, request) in requests.iter_mut().enumerate() {
        if !is_active(&guard, *request) {
            continue;
        }
        let Some(finished) = finish(&mut guard, *request) else { continue };
        // SAFETY: room for as many indices and statuses as there are requests is the caller's promise.
        unsafe {
            put(indices.wrapping_add(found), index as c_int)?;
            tell_one_of_many(&mut guard, finished, request, nth(statuses, found), &mut failed);
        }
        found += 1;
    }
    // SAFETY: the caller's promise.
    unsafe { put(finished_count, found as c_int)? };
    failed.map_or(Ok(()), Err)
}

/// `MPI_Request_get_status`.
///
/// # Safety
///
/// See [`wait`].
pub unsafe fn request_get_status(
    rt: &Runtime,
    request: RequestHandle,
    flag: *mut c_int,
    status: *mut Status,
) -> MpiResult {
    let mut guard = rt.lock();
    known(&guard, request)?;
    let over = poll(&mut guard, |state| is_over(state, request).then_some(())).is_some();
    // SAFETY: the caller's promise.
    unsafe { put(flag, c_int::from(over))? };
    if !over {
        return Ok(());
    }
    let (seen, query) = look(&guard, request);
    drop(guard);
    let seen = match query {
        Some(general) => {
            let (status, error) = general.ask();
            error?;
            status
        }
        None => seen,
    };
    // SAFETY: the caller's promise.
    unsafe { put_status(status, seen) };
    Ok(())
}

/// `MPI_Request_free`.
///
/// # Safety
///
/// See [`wait`].
pub unsafe fn request_free(rt: &Runtime, request: *mut RequestHandle) -> MpiResult {
    // SAFETY: the caller's promise.
    let handle = unsafe { one(request)? };
    let mut guard = rt.lock();
    known(&guard, handle)?;
    if handle == RequestHandle::NULL {
        return Err(MpiError::request("the request is MPI_REQUEST_NULL"));
    }
    let mut general = None;
    if handle != RequestHandle::sent() {
        match guard.requests.get_mut(handle) {
            Some(Request::General(it)) if !it.complete => it.freed = true,
            _ => match guard.requests.take(handle) {
                Some(Request::Message { id, .. }) => guard.engine.forget(id),
                Some(Request::Exchange(exchange)) => exchange.forget(&mut guard.engine),
                Some(Request::Persistent(it)) => {
                    match it.active {
                        Some(Active::Message(id)) => guard.engine.forget(id),
                        Some(Active::Collective(_) | Active::Over(_)) | None => {}
                    }
                    if let Start::Collective(id) = it.start {
                        guard.collectives.forget(id);
                    }
                }
                Some(Request::Collective { id, .. }) => guard.collectives.forget(id),
                Some(Request::Creation { id, .. }) => guard.comms.creations.forget(id),
                Some(Request::General(it)) => general = Some(it),
                Some(Request::Over { .. } | Request::Flush { .. }) | None => {}
            },
        }
    }
    drop(guard);
    // SAFETY: the caller's promise.
    unsafe { put(request, RequestHandle::NULL)? };
    general.map_or(Ok(()), |general| general.release())
}

/// `MPI_Cancel`.
///
/// # Safety
///
/// See [`wait`].
pub unsafe fn cancel(rt: &Runtime, request: *mut RequestHandle) -> MpiResult {
    // SAFETY: the caller's promise.
    let handle = unsafe { one(request)? };
    let mut guard = rt.lock();
    known(&guard, handle)?;
    let id = match guard.requests.get(handle) {
        Some(Request::Message { id, .. }) => Some(*id),
        Some(Request::Persistent(it)) => match &it.active {
            Some(Active::Message(id)) => Some(*id),
            Some(Active::Over(_) | Active::Collective(_)) => None,
            None => return Err(MpiError::request("the request is not active")),
        },
        Some(Request::Collective { .. } | Request::Creation { .. }) => {
            return Err(MpiError::request("a collective operation cannot be cancelled"));
        }
        Some(Request::Flush { .. }) => return Err(MpiError::request("a flush of a buffer cannot be cancelled")),
        Some(Request::Exchange(_)) => {
            return Err(MpiError::request("a send and receive in one cannot be cancelled"));
        }
        Some(Request::General(it)) => {
            let general = it.clone();
            drop(guard);
            return general.call_cancel();
        }
        Some(Request::Over { .. }) => None,
        None if handle == RequestHandle::NULL => return Err(MpiError::request("the request is MPI_REQUEST_NULL")),
        None => None,
    };
    if let Some(id) = id {
        // Where it is too late, the operation ends as usual.
        let _ = guard.engine.cancel(id);
    }
    Ok(())
}

/// `MPI_Test_cancelled`.
///
/// # Safety
///
/// See [`wait`].
pub unsafe fn test_cancelled(_: &Runtime, status: *const Status, flag: *mut c_int) -> MpiResult {
    if status.is_null() {
        return Err(MpiError::arg("the status is null"));
    }
    // SAFETY: the caller's promise.
    unsafe { put(flag, c_int::from((*status).cancelled())) }
}

/// `MPI_Status_set_cancelled`.
///
/// # Safety
///
/// See [`wait`].
pub unsafe fn status_set_cancelled(_: &Runtime, status: *mut Status, flag: c_int) -> MpiResult {
    if status.is_null() {
        return Err(MpiError::arg("the status is null"));
    }
    // SAFETY: the caller's promise.
    unsafe { (*status).set_cancelled(flag != 0) };
    Ok(())
}

/// `MPI_Grequest_start`.
///
/// # Safety
///
/// See [`wait`].
pub unsafe fn grequest_start(
    rt: &Runtime,
    query: *const c_void,
    free: *const c_void,
    cancel: *const c_void,
    extra_state: *mut c_void,
    request: *mut RequestHandle,
) -> MpiResult {
    if query.is_null() || free.is_null() || cancel.is_null() {
        return Err(MpiError::arg("a function of the generalised request is null"));
    }
    let general = Generalized { query, free, cancel, extra_state, complete: false, freed: false };
    let handle = add(&mut rt.lock(), Request::General(Box::new(general)))?;
    // SAFETY: the caller's promise.
    unsafe { put(request, handle) }
}

/// `MPI_Grequest_complete`.
///
/// # Safety
///
/// See [`wait`].
pub unsafe fn grequest_complete(rt: &Runtime, request: RequestHandle) -> MpiResult {
    let mut guard = rt.lock();
    let Some(Request::General(general)) = guard.requests.get_mut(request) else {
        return Err(MpiError::request("the request is not a generalised one"));
    };
    general.complete = true;
    if !general.freed {
        guard.wake_others();
        return Ok(());
    }
    let general = general.clone();
    let _ = guard.requests.take(request);
    drop(guard);
    general.release()
}

/// Adds a request for the user to keep.
#[inline]
pub fn add(state: &mut State, request: Request) -> MpiResult<RequestHandle> {
    state.requests.add(request).ok_or_else(|| MpiError::no_mem("there are two million requests already"))
}

/// How a request has ended.
enum End {
    /// As most do: it is forgotten, its status is all there is to tell, and its handle is null from now on.
    Plain(Status),
    Other(Box<Finished>),
}

/// Whether a handle stands for nothing that could go on: a send that was over when it was started, or no request at all.
#[inline]
fn is_over_already(handle: RequestHandle) -> bool {
    handle == RequestHandle::sent() || handle == RequestHandle::NULL
}

/// The request's end, if it has come.
#[inline]
fn end(state: &mut State, handle: RequestHandle) -> Option<End> {
    let State { requests, engine, .. } = state;
    if let Some(Request::Message { id, receives, .. }) = requests.get(handle) {
        let receives = *receives;
        if let Some((source, tag, bytes)) = engine.take_plain(*id) {
            requests.discard(handle);
            let status = if receives { Status::new(source as c_int, tag, bytes) } else { Status::EMPTY };
            return Some(End::Plain(status));
        }
        engine.outcome(*id)?;
    }
    finish(state, handle).map(|finished| End::Other(Box::new(finished)))
}

/// As [`end`], before a sleep: the request fails if it waits in vain.
#[cold]
fn last_end(state: &mut State, handle: RequestHandle) -> Option<End> {
    give_up_all(state, &[handle]);
    end(state, handle)
}

/// Whoever waits for these waits in vain if all that are active are receives from processes that have finalized: then they fail.
#[cold]
fn give_up_all(state: &mut State, requests: &[RequestHandle]) {
    let active: Vec<RequestHandle> = requests.iter().copied().filter(|handle| is_active(state, *handle)).collect();
    let received = |handle: &RequestHandle| received(state, *handle).filter(|id| state.engine.is_vain(*id));
    let vain: Vec<RequestId> = active.iter().filter_map(received).collect();
    if vain.len() == active.len() {
        vain.into_iter().for_each(|id| state.engine.give_up(id));
    }
}

/// The engine's receive that a request waits for, if it is one.
fn received(state: &State, handle: RequestHandle) -> Option<RequestId> {
    match state.requests.get(handle)? {
        Request::Message { id, receives: true, .. } => Some(*id),
        Request::Exchange(exchange) => match exchange.received {
            Half::Pending(id) => Some(id),
            Half::Over(_) => None,
        },
        Request::Persistent(persistent) => match persistent.active {
            Some(Active::Message(id)) => Some(id),
            Some(Active::Over(_) | Active::Collective(_)) | None => None,
        },
        Request::Message { .. } | Request::Over { .. } | Request::Collective { .. } => None,
        Request::Creation { .. } | Request::Flush { .. } | Request::General(_) => None,
    }
}

/// The request's end, if it has come; it is forgotten then, or inactive if it is persistent.
#[inline]
pub fn finish(state: &mut State, handle: RequestHandle) -> Option<Finished> {
    let State { requests, engine, collectives, comms, buffered, .. } = state;
    let Some(request) = requests.get_mut(handle) else {
        return Some(Finished { gone: handle == RequestHandle::sent(), ..Finished::NOTHING });
    };
    let finished = match request {
        Request::Message { id, receives, comm } => {
            Finished::of_message(Some(engine.take(*id)?), *receives, *comm, true)
        }
        Request::Over { outcome, receives, comm } => Finished::of_message(outcome.take(), *receives, *comm, true),
        Request::Exchange(exchange) => exchange.finish(engine)?,
        Request::Collective { id, comm } => {
            let error = collectives.take(*id)?.err().map(|error| error.on(*comm));
            Finished { error, gone: true, ..Finished::NOTHING }
        }
        Request::Creation { id, comm } => {
            let error = comms.take_born(*id)?.err().map(|error| error.on(*comm));
            Finished { error, gone: true, ..Finished::NOTHING }
        }
        Request::Flush { owner, until } => {
            if !buffered.is_flushed(*owner, *until, engine) {
                return None;
            }
            Finished { gone: true, ..Finished::NOTHING }
        }
        Request::Persistent(persistent) => {
            let receives = matches!(persistent.start, Start::Receive { .. });
            let comm = persistent.comm;
            let finished = match &mut persistent.active {
                None => Finished::NOTHING,
                Some(Active::Message(id)) => Finished::of_message(Some(engine.take(*id)?), receives, comm, false),
                Some(Active::Over(outcome)) => Finished::of_message(outcome.take(), receives, comm, false),
                Some(Active::Collective(id)) => {
                    let error = collectives.take(*id)?.err().map(|error| error.on(comm));
                    Finished { error, ..Finished::NOTHING }
                }
            };
            persistent.active = None;
            finished
        }
        Request::General(general) => {
            if !general.complete {
                return None;
            }
            Finished { gone: true, general: Some((**general).clone()), ..Finished::NOTHING }
        }
    };
    if finished.gone {
        let _ = requests.take(handle);
    }
    Some(finished)
}

/// Whether [`finish`] would give something.
pub(super) fn is_over(state: &State, handle: RequestHandle) -> bool {
    match state.requests.get(handle) {
        None | Some(Request::Over { .. }) => true,
        Some(Request::Message { id, .. }) => state.engine.outcome(*id).is_some(),
        Some(Request::Exchange(exchange)) => exchange.is_over(&state.engine),
        Some(Request::Collective { id, .. }) => state.collectives.is_over(*id),
        Some(Request::Creation { id, .. }) => state.comms.creations.is_over(*id),
        Some(Request::Flush { owner, until }) => state.buffered.is_flushed(*owner, *until, &state.engine),
        Some(Request::Persistent(persistent)) => match &persistent.active {
            None | Some(Active::Over(_)) => true,
            Some(Active::Message(id)) => state.engine.outcome(*id).is_some(),
            Some(Active::Collective(id)) => state.collectives.is_over(*id),
        },
        Some(Request::General(general)) => general.complete,
    }
}

/// The status of a request that is over, which stays as it is; that of a generalised one only its function knows.
pub(super) fn look(state: &State, handle: RequestHandle) -> (Status, Option<Generalized>) {
    let of = |outcome: Option<&crate::engine::Outcome>, receives, comm| {
        Finished::of_message(outcome.cloned(), receives, comm, false).status
    };
    match state.requests.get(handle) {
        None | Some(Request::Collective { .. } | Request::Creation { .. } | Request::Flush { .. }) => {
            (Status::EMPTY, None)
        }
        Some(Request::Over { outcome, receives, comm }) => (of(outcome.as_ref(), *receives, *comm), None),
        Some(Request::Message { id, receives, comm }) => (of(state.engine.outcome(*id), *receives, *comm), None),
        Some(Request::Exchange(exchange)) => (exchange.status(&state.engine), None),
        Some(Request::Persistent(persistent)) => {
            let receives = matches!(persistent.start, Start::Receive { .. });
            match &persistent.active {
                None | Some(Active::Collective(_)) => (Status::EMPTY, None),
                Some(Active::Over(outcome)) => (of(outcome.as_ref(), receives, persistent.comm), None),
                Some(Active::Message(id)) => (of(state.engine.outcome(*id), receives, persistent.comm), None),
            }
        }
        Some(Request::General(general)) => (Status::EMPTY, Some((**general).clone())),
    }
}

/// Null and inactive requests are not.
pub(super) fn is_active(state: &State, handle: RequestHandle) -> bool {
    match state.requests.get(handle) {
        None => handle == RequestHandle::sent(),
        Some(Request::Persistent(persistent)) => persistent.active.is_some(),
        Some(_) => true,
    }
}

pub(super) fn any_active(state: &State, requests: &[RequestHandle]) -> MpiResult<bool> {
    let mut active = false;
    for handle in requests {
        known(state, *handle)?;
        active |= is_active(state, *handle);
    }
    Ok(active)
}

fn finish_any(state: &mut State, requests: &[RequestHandle]) -> Option<(usize, Finished)> {
    requests.iter().enumerate().find_map(|(index, handle)| {
        let active = is_active(state, *handle);
        if active { finish(state, *handle).map(|finished| (index, finished)) } else { None }
    })
}

/// Looks, and if there is nothing, gets on with things once and looks again.
pub(super) fn poll<T>(guard: &mut Guard<'_>, mut look: impl FnMut(&mut State) -> Option<T>) -> Option<T> {
    if let Some(found) = look(guard) {
        return Some(found);
    }
    guard.step();
    look(guard)
}

#[inline]
fn known(state: &State, handle: RequestHandle) -> MpiResult {
    let known =
        handle == RequestHandle::sent() || state.requests.get(handle).is_some() || handle == RequestHandle::NULL;
    if known { Ok(()) } else { Err(MpiError::request("the request was freed or never was one")) }
}

#[inline]
unsafe fn one(request: *mut RequestHandle) -> MpiResult<RequestHandle> {
    if request.is_null() {
        return Err(MpiError::request("the place of the request is null"));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { request.read() })
}

unsafe fn array<'a>(count: c_int, requests: *mut RequestHandle) -> MpiResult<&'a mut [RequestHandle]> {
    match usize::try_from(count) {
        Err(_) => Err(MpiError::arg(format!("the number of requests is {count}"))),
        Ok(0) => Ok(&mut []),
        Ok(_) if requests.is_null() => Err(MpiError::request("the array of requests is null")),
        // SAFETY: the caller's promise: as many requests, which nobody else uses during the call.
        Ok(count) => Ok(unsafe { std::slice::from_raw_parts_mut(requests, count) }),
    }
}

/// The status of one of several requests: null if the user ignores them.
pub(super) fn nth(statuses: *mut Status, index: usize) -> *mut Status {
    if statuses.is_null() { statuses } else { statuses.wrapping_add(index) }
}

/// Tells the user how a request has ended; its error is the call's.
#[inline]
unsafe fn tell_end(end: End, request: *mut RequestHandle, status: *mut Status) -> MpiResult {
    // SAFETY: the caller's promise.
    unsafe {
        match end {
            End::Plain(seen) => {
                request.write(RequestHandle::NULL);
                put_status(status, seen);
                Ok(())
            }
            End::Other(finished) => tell(*finished, request, status),
        }
    }
}

/// Tells the user of a request that is over; its error is the call's.
#[inline]
unsafe fn tell(finished: Finished, request: *mut RequestHandle, status: *mut Status) -> MpiResult {
    if finished.gone {
        // SAFETY: the caller's promise.
        unsafe { request.write(RequestHandle::NULL) };
    }
    let mut seen = finished.status;
    let mut result = finished.error.map_or(Ok(()), Err);
    if let Some(general) = finished.general {
        let (queried, error) = general.ask();
        seen = queried;
        result = error.and(general.release());
    }
    // SAFETY: the caller's promise.
    unsafe { put_status(status, seen) };
    result
}

/// Tells the user of one of several requests; an error goes into its status, and the call's is `MPI_ERR_IN_STATUS`.
unsafe fn tell_one_of_many(
    guard: &mut Guard<'_>,
    finished: Finished,
    request: &mut RequestHandle,
    status: *mut Status,
    failed: &mut Option<MpiError>,
) {
    let comm = finished.error.as_ref().and_then(|error| error.on);
    // Functions of a generalised request are called with the state unlocked.
    let unlocks = finished.general.is_some();
    // SAFETY: the caller's promise.
    let tell = || unsafe { tell(finished, request, status) };
    let result = if unlocks { guard.unlocked(tell) } else { tell() };
    let class = result.as_ref().err().map_or(MPI_SUCCESS, |error| error.class);
    if !status.is_null() {
        // SAFETY: the caller's promise.
        unsafe { (*status).error = class };
    }
    if let (Err(error), None) = (result, &failed) {
        let text = format!("one of the operations failed ({}): the statuses tell which", error.text);
        *failed = Some(MpiError { on: comm, ..MpiError::new(MPI_ERR_IN_STATUS, text) });
    }
}

unsafe fn tell_any(
    found: Option<(usize, Finished)>,
    requests: &mut [RequestHandle],
    index: *mut c_int,
    status: *mut Status,
) -> MpiResult {
    // SAFETY: the caller's promise.
    unsafe {
        match found {
            Some((at, finished)) => {
                put(index, at as c_int)?;
                tell(finished, &raw mut requests[at], status)
            }
            None => {
                put(index, MPI_UNDEFINED)?;
                put_status(status, Status::EMPTY);
                Ok(())
            }
        }
    }
}

impl Generalized {
    /// Calls the user's query function: what the status is, and what the call that asked returns.
    fn ask(&self) -> (Status, MpiResult) {
        type Query = unsafe extern "C" fn(*mut c_void, *mut Status) -> c_int;
        let mut status = Status::EMPTY;
        // SAFETY: the user has passed the address as a function of this type.
        let code = unsafe {
            let query = std::mem::transmute::<*const c_void, Query>(self.query);
            query(self.extra_state, &raw mut status)
        };
        (status, of_user(code, "query"))
    }

    /// Calls the user's free function.
    fn release(&self) -> MpiResult {
        type Free = unsafe extern "C" fn(*mut c_void) -> c_int;
        // SAFETY: the user has passed the address as a function of this type.
        let code = unsafe { std::mem::transmute::<*const c_void, Free>(self.free)(self.extra_state) };
        of_user(code, "free")
    }

    /// Calls the user's cancel function.
    fn call_cancel(&self) -> MpiResult {
        type Cancel = unsafe extern "C" fn(*mut c_void, c_int) -> c_int;
        // SAFETY: the user has passed the address as a function of this type.
        let code = unsafe {
            std::mem::transmute::<*const c_void, Cancel>(self.cancel)(self.extra_state, c_int::from(self.complete))
        };
        of_user(code, "cancel")
    }
}

fn of_user(code: c_int, which: &str) -> MpiResult {
    match code {
        MPI_SUCCESS => Ok(()),
        code => Err(MpiError::new(code, format!("the {which} function of the generalised request returned {code}"))),
    }
}
