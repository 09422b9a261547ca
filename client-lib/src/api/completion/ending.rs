//! Whether a request is complete, and with what result.

use std::ffi::c_int;

use super::super::args::put_status;
use crate::abi::{RequestHandle, Status};
use crate::engine::{Outcome, RequestId};
use crate::error::{MpiError, MpiResult};
use crate::object::recovery::Recovered;
use crate::object::requests::{Active, Finished, Generalized, Half, Request, Start};
use crate::runtime::{Guard, State};

/// The end of a request.
pub(super) enum End {
    /// The usual end: the request is removed, its status is the only result, and its handle becomes null.
    Plain(Status),
    Other(Box<Finished>),
}

impl End {
    /// Whether the request is still in progress ([`interrupted`]).
    pub(super) fn is_pending(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Other(finished) => finished.is_pending(),
        }
    }
}

/// Whether a handle stands for nothing in progress: a send that completed at once, or no request at all.
#[inline]
pub(super) fn is_over_already(handle: RequestHandle) -> bool {
    handle == RequestHandle::sent() || handle == RequestHandle::NULL
}

/// Waits for the end of a request; `None`: its status is stored.
///
/// # Safety
///
/// The status must be null or valid for a write.
#[inline(always)]
pub(super) unsafe fn wait_for(guard: &mut Guard<'_>, handle: RequestHandle, status: *mut Status) -> Option<End> {
    guard.wait_or(
        // SAFETY: the caller's promise.
        |state| match unsafe { end_plainly(state, handle, status) } {
            Plainly::Ended => Some(None),
            Plainly::Pending => None,
            Plainly::Otherwise => end_otherwise(state, handle).map(Some),
        },
        |state| last_end(state, handle).map(Some),
    )
}

/// What [`end_plainly`] finds.
enum Plainly {
    /// It has ended, and its status is stored.
    Ended,
    Pending,
    /// It is of another kind, or has an error: [`finish`] knows.
    Otherwise,
}

/// Ends the request of a message that is complete and has no error, and stores its status word by word: copying an
/// [`End`] reads more at once than was written just before, and that stalls the processor.
///
/// # Safety
///
/// The status must be null or valid for a write.
#[inline(always)]
unsafe fn end_plainly(state: &mut State, handle: RequestHandle, status: *mut Status) -> Plainly {
    let State { requests, engine, .. } = state;
    let (receives, (source, tag, bytes)) = match requests.get(handle) {
        Some(Request::Message { id, receives, .. }) => match engine.take_plain(*id) {
            Some(plain) => (*receives, plain),
            None => return if engine.outcome(*id).is_some() { Plainly::Otherwise } else { Plainly::Pending },
        },
        Some(Request::Over {
            outcome: Some(Outcome { source, tag, bytes, cancelled: false, error: None }),
            receives,
            ..
        }) => (*receives, (*source, *tag, *bytes)),
        _another_kind => return Plainly::Otherwise,
    };
    requests.discard(handle);
    let seen = if receives { Status::new(source as c_int, tag, bytes) } else { Status::EMPTY };
    // SAFETY: the caller's promise.
    unsafe { put_status(status, seen) };
    Plainly::Ended
}

/// The request's result, if it is complete.
#[inline]
pub(super) fn end(state: &mut State, handle: RequestHandle) -> Option<End> {
    let mut status = Status::EMPTY;
    // SAFETY: a status of this function.
    match unsafe { end_plainly(state, handle, &raw mut status) } {
        Plainly::Ended => Some(End::Plain(status)),
        Plainly::Pending => None,
        Plainly::Otherwise => end_otherwise(state, handle),
    }
}

fn end_otherwise(state: &mut State, handle: RequestHandle) -> Option<End> {
    finish(state, handle).map(|finished| match finished {
        Finished { status, error: None, gone: true, general: None } => End::Plain(status),
        finished => End::Other(Box::new(finished)),
    })
}

/// What a pass over several requests finds at one of them.
pub(super) enum Found {
    /// A null or inactive request.
    Nothing,
    Pending,
    Over(End),
}

/// One step of such a pass: whether the request is valid, whether it is active, and its result, if it is complete.
#[inline]
pub(super) fn find(state: &mut State, handle: RequestHandle) -> MpiResult<Found> {
    if handle == RequestHandle::NULL {
        return Ok(Found::Nothing);
    }
    match state.requests.get(handle) {
        Some(Request::Message { id, .. }) if state.engine.outcome(*id).is_none() => return Ok(Found::Pending),
        Some(Request::Message { .. }) => {}
        Some(_) if !is_active(state, handle) => return Ok(Found::Nothing),
        Some(_) => {}
        None if handle == RequestHandle::sent() => return Ok(Found::Over(End::Plain(Status::EMPTY))),
        None => known(state, handle)?,
    }
    Ok(end(state, handle).map_or(Found::Pending, Found::Over))
}

/// Where the first complete request stands among several.
pub(super) fn position(state: &State, requests: &[RequestHandle]) -> Option<usize> {
    requests.iter().position(|handle| match state.requests.get(*handle) {
        Some(Request::Message { id, .. }) => state.engine.outcome(*id).is_some(),
        _other => is_active(state, *handle) && is_over(state, *handle),
    })
}

/// The first complete request of several, and whether any is active. Later ones are not looked at.
pub(super) fn find_first(state: &mut State, requests: &[RequestHandle]) -> MpiResult<(Option<(usize, End)>, bool)> {
    let mut active = false;
    for (index, handle) in requests.iter().enumerate() {
        match find(state, *handle)? {
            Found::Nothing => {}
            Found::Pending => active = true,
            Found::Over(end) => return Ok((Some((index, end)), true)),
        }
    }
    Ok((None, active))
}

/// Whether something has moved since a call returned this number, which is updated: only then can any of many requests have ended, which
/// takes long to find out.
#[inline]
pub(super) fn has_moved(state: &State, seen: &mut u64) -> bool {
    let now = state.movements();
    std::mem::replace(seen, now) != now
}

/// As [`end`], before a sleep: a request that can never complete fails.
#[cold]
pub(super) fn last_end(state: &mut State, handle: RequestHandle) -> Option<End> {
    give_up_all(state, &[handle]);
    end(state, handle).or_else(|| interrupted(state, handle).map(|finished| End::Other(Box::new(finished))))
}

/// What a call returns for a receive from any source that is not complete, if a member has died and the user has not acknowledged it:
/// an error of class `MPIX_ERR_PROC_FAILED_PENDING`. The receive stays posted.
#[cold]
pub(super) fn interrupted(state: &State, handle: RequestHandle) -> Option<Finished> {
    if state.engine.losses().is_empty() {
        return None;
    }
    let error = state.engine.interruption(received(state, handle)?)?;
    let comm = state.requests.get(handle)?.comm()?;
    let error = MpiError::proc_failed_pending(format!(
        "{}; the receive from any source is still posted: acknowledge the failure, or cancel it",
        error.text
    ));
    Some(Finished { error: Some(error.on(comm)), ..Finished::NOTHING })
}

/// As [`interrupted`], for the first such request.
#[cold]
pub(super) fn interrupted_any(state: &State, requests: &[RequestHandle]) -> Option<(usize, Finished)> {
    if state.engine.losses().is_empty() {
        return None;
    }
    requests.iter().enumerate().find_map(|(index, handle)| Some((index, interrupted(state, *handle)?)))
}

/// As [`interrupted_any`], as the end of a call.
#[cold]
pub(super) fn first_interrupted(state: &State, requests: &[RequestHandle]) -> Option<(usize, End)> {
    interrupted_any(state, requests).map(|(index, finished)| (index, End::Other(Box::new(finished))))
}

/// If all active requests are receives from processes that have finalized, they can never complete: then they fail.
#[cold]
pub(super) fn give_up_all(state: &mut State, requests: &[RequestHandle]) {
    let active: Vec<RequestHandle> = requests.iter().copied().filter(|handle| is_active(state, *handle)).collect();
    let received = |handle: &RequestHandle| received(state, *handle).filter(|id| state.engine.is_vain(*id));
    let vain: Vec<RequestId> = active.iter().filter_map(received).collect();
    if vain.len() == active.len() {
        vain.into_iter().for_each(|id| state.engine.give_up(id));
    }
}

/// The engine's receive behind a request, if there is one.
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
        Request::Message { .. } | Request::Over { .. } | Request::Collective { .. } | Request::Posted { .. } => None,
        Request::Partitioned { .. } => None,
        Request::Creation { .. } | Request::Flush { .. } | Request::General(_) | Request::Recovery { .. } => None,
    }
}

/// The request's result, if it is complete; then the request is removed, or becomes inactive if it is persistent.
#[inline]
pub(super) fn finish(state: &mut State, handle: RequestHandle) -> Option<Finished> {
    let State { requests, engine, collectives, outboxes, comms, buffered, partitions, recovery, .. } = state;
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
        Request::Posted { id, comm } => {
            let error = outboxes.take(*id)?.err().map(|error| error.on(*comm));
            Finished { error, gone: true, ..Finished::NOTHING }
        }
        Request::Creation { id, comm } => {
            let error = comms.take_born(*id)?.err().map(|error| error.on(*comm));
            Finished { error, gone: true, ..Finished::NOTHING }
        }
        Request::Recovery { id, comm, flag } => {
            let result = match recovery.take(*id)? {
                Recovered::Shrunk(result) => result.map(drop),
                Recovered::Agreed(agreed, result) => {
                    // SAFETY: the caller of `MPIX_Comm_iagree` has lent the flag until the request is complete.
                    unsafe { flag.write(agreed) };
                    result
                }
            };
            Finished { error: result.err().map(|error| error.on(*comm)), gone: true, ..Finished::NOTHING }
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
        Request::Partitioned { id, .. } => partitions.finish(*id)?,
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

/// Whether [`finish`] would return a result.
pub(in crate::api) fn is_over(state: &State, handle: RequestHandle) -> bool {
    match state.requests.get(handle) {
        None | Some(Request::Over { .. }) => true,
        Some(Request::Message { id, .. }) => state.engine.outcome(*id).is_some(),
        Some(Request::Exchange(exchange)) => exchange.is_over(&state.engine),
        Some(Request::Collective { id, .. }) => state.collectives.is_over(*id),
        Some(Request::Posted { id, .. }) => state.outboxes.is_over(*id),
        Some(Request::Creation { id, .. }) => state.comms.creations.is_over(*id),
        Some(Request::Recovery { id, .. }) => state.recovery.is_over(*id),
        Some(Request::Flush { owner, until }) => state.buffered.is_flushed(*owner, *until, &state.engine),
        Some(Request::Persistent(persistent)) => match &persistent.active {
            None | Some(Active::Over(_)) => true,
            Some(Active::Message(id)) => state.engine.outcome(*id).is_some(),
            Some(Active::Collective(id)) => state.collectives.is_over(*id),
        },
        Some(Request::Partitioned { id, .. }) => state.partitions.is_over(*id),
        Some(Request::General(general)) => general.complete,
    }
}

/// The status of a completed request, which is not changed; only its function knows that of a generalized one.
pub(in crate::api) fn look(state: &State, handle: RequestHandle) -> (Status, Option<Generalized>) {
    let of = |outcome: Option<&crate::engine::Outcome>, receives, comm| {
        Finished::of_message(outcome.cloned(), receives, comm, false).status
    };
    match state.requests.get(handle) {
        None | Some(Request::Collective { .. } | Request::Posted { .. } | Request::Creation { .. }) => {
            (Status::EMPTY, None)
        }
        Some(Request::Flush { .. } | Request::Recovery { .. }) => (Status::EMPTY, None),
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
        Some(Request::Partitioned { id, .. }) => (state.partitions.status(*id), None),
        Some(Request::General(general)) => (Status::EMPTY, Some((**general).clone())),
    }
}

/// False for null and inactive requests.
pub(in crate::api) fn is_active(state: &State, handle: RequestHandle) -> bool {
    match state.requests.get(handle) {
        None => handle == RequestHandle::sent(),
        Some(Request::Persistent(persistent)) => persistent.active.is_some(),
        Some(Request::Partitioned { id, .. }) => state.partitions.is_active(*id),
        Some(_) => true,
    }
}

pub(in crate::api) fn any_active(state: &State, requests: &[RequestHandle]) -> MpiResult<bool> {
    let mut active = false;
    for handle in requests {
        known(state, *handle)?;
        active |= is_active(state, *handle);
    }
    Ok(active)
}

/// Looks and, if there is no result, makes progress once and looks again.
pub(in crate::api) fn poll<T>(guard: &mut Guard<'_>, mut look: impl FnMut(&mut State) -> Option<T>) -> Option<T> {
    if let Some(found) = look(guard) {
        return Some(found);
    }
    guard.step();
    look(guard)
}

#[inline]
pub(super) fn known(state: &State, handle: RequestHandle) -> MpiResult {
    let known =
        handle == RequestHandle::sent() || state.requests.get(handle).is_some() || handle == RequestHandle::NULL;
    if known { Ok(()) } else { Err(MpiError::request("invalid or freed request")) }
}
