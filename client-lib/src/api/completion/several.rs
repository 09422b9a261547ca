//! Completion of several requests: all, any or some of them (MPI 5.0 §3.7.5).

use std::ffi::c_int;

use super::ending::{
    End, Found, end, find, find_first, first_interrupted, give_up_all, has_moved, interrupted, interrupted_any,
    is_over, is_over_already, known, poll, position, wait_for,
};
use super::results::{array, nth, release_one_of_many, store_any, store_one_of_many};
use crate::abi::constants::MPI_UNDEFINED;
use crate::abi::{RequestHandle, Status};
use crate::api::args::put;
use crate::error::{MpiError, MpiResult};
use crate::object::requests::Finished;
use crate::runtime::{Guard, Runtime, State};

/// `MPI_Waitall`.
///
/// # Safety
///
/// See [`super::wait`].
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
        // SAFETY: there is a status for each request, or none at all.
        unsafe {
            let end = match is_over_already(handle) {
                true => Some(End::Plain(Status::EMPTY)),
                false => wait_for(&mut guard, handle, nth(statuses, index)),
            };
            match end {
                None => release_one_of_many(request, statuses, index, failed.is_some()),
                Some(end) => store_one_of_many(&mut guard, end, request, statuses, index, &mut failed),
            }
        }
    }
    failed.map_or(Ok(()), Err)
}

/// `MPI_Testall`.
///
/// # Safety
///
/// See [`super::wait`].
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
/// See [`super::wait`].
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
/// See [`super::wait`].
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
/// See [`super::wait`].
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
/// See [`super::wait`].
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
