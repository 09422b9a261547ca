//! Completion: waiting for requests, testing, freeing and cancelling them (MPI 5.0 §3.7 to §3.9).

#![expect(unsafe_code, reason = "the C boundary")]

mod ending;
mod generalized;
mod results;

use std::ffi::c_int;

use super::args::{put, put_status};
use crate::abi::constants::MPI_UNDEFINED;
use crate::abi::{RequestHandle, Status};
use crate::error::{MpiError, MpiResult};
use crate::object::requests::{Active, Finished, Request, Start};
use crate::runtime::{Guard, Runtime, State};

use ending::{
    End, Found, end, find, find_first, first_interrupted, give_up_all, has_moved, interrupted, interrupted_any,
    is_over_already, known, last_end, position,
};
pub(super) use ending::{any_active, is_active, is_over, look, poll};
pub use generalized::{grequest_complete, grequest_start};
pub(super) use results::nth;
use results::{array, one, store_any, store_end, store_one_of_many};

/// `MPI_Wait`.
///
/// # Safety
///
/// The caller must meet the standard's requirements; this applies to all functions here.
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
    unsafe { store_end(end, request, status) }
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
        let found = poll(&mut guard, |state| end(state, handle));
        found.or_else(|| interrupted(&guard, handle).map(|finished| End::Other(Box::new(finished))))
    };
    // SAFETY: the caller's promise.
    unsafe {
        put(flag, c_int::from(end.as_ref().is_some_and(|end| !end.is_pending())))?;
        end.map_or(Ok(()), |end| store_end(end, request, status))
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
        let handle = *request;
        let end = match is_over_already(handle) {
            true => End::Plain(Status::EMPTY),
            false => guard.wait_or(|state| end(state, handle), |state| last_end(state, handle)),
        };
        // SAFETY: there is a status for each request, or none at all.
        unsafe { store_one_of_many(&mut guard, end, request, statuses, index, &mut failed) };
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
    let mut is_valid = Ok(());
    let mut first = 0;
    let all = poll(&mut guard, |state| {
        // Those before have ended, and stay so.
        while let Some(handle) = requests.get(first) {
            is_valid = known(state, *handle);
            if is_valid.is_err() || !is_over(state, *handle) {
                return None;
            }
            first += 1;
        }
        Some(())
    });
    let all = all.is_some();
    is_valid?;
    // SAFETY: the caller's promise.
    unsafe { put(flag, c_int::from(all))? };
    if !all && let Some((_, Finished { error: Some(error), .. })) = interrupted_any(&guard, requests) {
        return Err(error);
    }
    let mut failed = None;
    for (index, request) in requests.iter_mut().enumerate().filter(|_| all) {
        let end = match is_over_already(*request) {
            true => Some(End::Plain(Status::EMPTY)),
            false => end(&mut guard, *request),
        };
        let Some(end) = end else { continue };
        // SAFETY: there is a status for each request, or none at all.
        unsafe { store_one_of_many(&mut guard, end, request, statuses, index, &mut failed) };
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
    let found = match find_first(&mut guard, requests)? {
        (None, true) => {
            let look = |state: &mut State| find_first(state, requests).map(|(found, _)| found).transpose();
            let last = |state: &mut State| {
                give_up_all(state, requests);
                look(state).or_else(|| first_interrupted(state, requests).map(Ok))
            };
            let mut seen = guard.movements();
            Some(guard.wait_or(|state| if has_moved(state, &mut seen) { look(state) } else { None }, last)?)
        }
        (found, _active) => found,
    };
    drop(guard);
    // SAFETY: the caller's promise.
    unsafe { store_any(found, requests, index, status) }
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
    let (mut found, active) = find_first(&mut guard, requests)?;
    if active && found.is_none() {
        let mut seen = guard.movements();
        guard.step();
        if has_moved(&guard, &mut seen) {
            found = find_first(&mut guard, requests)?.0;
        }
        found = found.or_else(|| first_interrupted(&guard, requests));
    }
    drop(guard);
    let is_over = found.as_ref().is_some_and(|(_, end)| !end.is_pending());
    // SAFETY: the caller's promise.
    unsafe {
        put(flag, c_int::from(!active || is_over))?;
        store_any(found, requests, index, status)
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
    let mut ended = Ended { indices, statuses, count: 0, failed: None };
    // SAFETY: the caller's promise.
    let active = unsafe { ended.take(&mut guard, requests, 0)? };
    if active && ended.count == 0 {
        let mut from = 0;
        if waits {
            let last = |state: &mut State| {
                give_up_all(state, requests);
                position(state, requests).or_else(|| interrupted_any(state, requests).map(|(index, _)| index))
            };
            let mut seen = guard.movements();
            let look = |state: &mut State| if has_moved(state, &mut seen) { position(state, requests) } else { None };
            from = guard.wait_or(look, last);
        } else {
            guard.step();
        }
        // SAFETY: the caller's promise.
        unsafe {
            ended.take(&mut guard, requests, from)?;
            if ended.count == 0 {
                ended.take_interrupted(&mut guard, requests)?;
            }
        }
    }
    // SAFETY: the caller's promise.
    unsafe { put(finished_count, if active { ended.count as c_int } else { MPI_UNDEFINED })? };
    ended.failed.map_or(Ok(()), Err)
}

/// The results that `MPI_Waitsome` and `MPI_Testsome` return.
struct Ended {
    indices: *mut c_int,
    statuses: *mut Status,
    count: usize,
    failed: Option<MpiError>,
}

impl Ended {
    /// Stores the results of the complete requests from an index on; returns whether any is active. An invalid request is an error only if no
    /// complete one stands before it, whose result would be lost.
    ///
    /// # Safety
    ///
    /// There is room for an index and a status for each request.
    unsafe fn take(&mut self, guard: &mut Guard<'_>, requests: &mut [RequestHandle], from: usize) -> MpiResult<bool> {
        let mut active = false;
        for (index, request) in requests.iter_mut().enumerate().skip(from) {
            match find(guard, *request) {
                Ok(Found::Nothing) => {}
                Ok(Found::Pending) => active = true,
                Ok(Found::Over(end)) => {
                    active = true;
                    // SAFETY: the caller's promise.
                    unsafe { self.store(guard, index, end, request)? };
                }
                Err(_) if self.count > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(active)
    }

    /// Stores an error for each receive that a loss has interrupted; they stay posted.
    ///
    /// # Safety
    ///
    /// As [`Ended::take`].
    #[cold]
    unsafe fn take_interrupted(&mut self, guard: &mut Guard<'_>, requests: &mut [RequestHandle]) -> MpiResult {
        for (index, request) in requests.iter_mut().enumerate() {
            if let Some(finished) = interrupted(guard, *request) {
                // SAFETY: the caller's promise.
                unsafe { self.store(guard, index, End::Other(Box::new(finished)), request)? };
            }
        }
        Ok(())
    }

    unsafe fn store(
        &mut self,
        guard: &mut Guard<'_>,
        index: usize,
        end: End,
        request: &mut RequestHandle,
    ) -> MpiResult {
        // SAFETY: the caller's promise.
        unsafe {
            put(self.indices.wrapping_add(self.count), index as c_int)?;
            store_one_of_many(guard, end, request, self.statuses, self.count, &mut self.failed);
        }
        self.count += 1;
        Ok(())
    }
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
                Some(Request::Posted { id, .. }) => guard.outboxes.forget(id),
                Some(Request::Partitioned { id, .. }) => {
                    let State { partitions, engine, .. } = &mut *guard;
                    partitions.free(engine, id);
                }
                Some(Request::Creation { id, .. }) => guard.comms.creations.forget(id),
                Some(Request::Recovery { id, .. }) => guard.recovery.forget(id),
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
        Some(Request::Collective { .. } | Request::Posted { .. }) => {
            return Err(MpiError::request("a collective operation cannot be cancelled"));
        }
        Some(Request::Creation { .. } | Request::Recovery { .. }) => {
            return Err(MpiError::request("a collective operation cannot be cancelled"));
        }
        Some(Request::Partitioned { .. }) => {
            return Err(MpiError::request("a partitioned operation cannot be cancelled"));
        }
        Some(Request::Flush { .. }) => return Err(MpiError::request("a buffer flush cannot be cancelled")),
        Some(Request::Exchange(_)) => {
            return Err(MpiError::request("a combined send and receive cannot be cancelled"));
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
        // If it is too late, the operation completes normally; a send without waiting for its receiver.
        if !guard.engine.cancel(id)
            && let Some(outcome) = guard.engine.detach(id)
        {
            match guard.requests.get_mut(handle) {
                Some(Request::Persistent(it)) => it.active = Some(Active::Over(Some(outcome))),
                Some(request) => {
                    if let Request::Message { receives, comm, .. } = *request {
                        *request = Request::Over { outcome: Some(outcome), receives, comm };
                    }
                }
                None => {}
            }
        }
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
/// Adds a request; returns its handle.
#[inline]
pub fn add(state: &mut State, request: Request) -> MpiResult<RequestHandle> {
    state.requests.add(request).ok_or_else(|| MpiError::no_mem("too many requests (two million)"))
}
