//! Probes, and messages that a probe has matched (MPI 5.0 §3.8).

use std::ffi::{c_int, c_void};

use super::super::args::{self, check_place, put, put_status};
use super::super::completion::{add, check_room};
use super::{blocking, keep, of, status_of};
use crate::abi::{CommHandle, DatatypeHandle, MessageHandle, RequestHandle, Status};
use crate::engine::{Probed, Source, Started, TagMatch};
use crate::error::{MpiError, MpiResult};
use crate::object::requests::Request;
use crate::runtime::{Runtime, State};

/// The context, source and tag of a probe; no source for `MPI_PROC_NULL`.
fn wanted(state: &State, source: c_int, tag: c_int, comm: CommHandle) -> MpiResult<(u32, Option<Source>, TagMatch)> {
    let comm = state.comms.get(comm)?;
    let tag = args::tag_match(tag)?;
    Ok((comm.context, args::source(comm, source)?, tag))
}

fn status_of_probed(probed: &Probed) -> Status {
    Status::new(probed.source as c_int, probed.tag, probed.bytes)
}

/// `MPI_Probe`.
///
/// # Safety
///
/// See [`super::recv`].
pub unsafe fn probe(rt: &Runtime, source: c_int, tag: c_int, comm: CommHandle, status: *mut Status) -> MpiResult {
    let mut guard = rt.lock();
    let (context, source, tag) = wanted(&guard, source, tag, comm)?;
    let seen = match source {
        None => Status::PROC_NULL,
        Some(source) => {
            let look = |state: &mut State| state.engine.probe(context, source, tag).transpose();
            let last = |state: &mut State| look(state).or_else(|| state.engine.dried_up(context, source).map(Err));
            status_of_probed(&guard.wait_or(look, last)?)
        }
    };
    // SAFETY: the caller's promise.
    unsafe { put_status(status, seen) };
    Ok(())
}

/// `MPI_Iprobe`.
///
/// # Safety
///
/// See [`super::recv`].
pub unsafe fn iprobe(
    rt: &Runtime,
    source: c_int,
    tag: c_int,
    comm: CommHandle,
    flag: *mut c_int,
    status: *mut Status,
) -> MpiResult {
    let mut guard = rt.lock();
    let (context, source, tag) = wanted(&guard, source, tag, comm)?;
    let seen = match source {
        None => Some(Status::PROC_NULL),
        Some(source) => {
            guard.step();
            let seen = guard.engine.probe(context, source, tag)?;
            if seen.is_none() {
                guard.asked_in_vain();
            }
            seen.as_ref().map(status_of_probed)
        }
    };
    // SAFETY: the caller's promise.
    unsafe {
        put(flag, c_int::from(seen.is_some()))?;
        if let Some(seen) = seen {
            put_status(status, seen);
        }
    }
    Ok(())
}

/// `MPI_Mprobe`.
///
/// # Safety
///
/// See [`super::recv`].
pub unsafe fn mprobe(
    rt: &Runtime,
    source: c_int,
    tag: c_int,
    comm: CommHandle,
    message: *mut MessageHandle,
    status: *mut Status,
) -> MpiResult {
    check_place(message)?;
    let mut guard = rt.lock();
    let (context, source, tag) = wanted(&guard, source, tag, comm)?;
    guard.check_room_for_message()?;
    let (handle, seen) = match source {
        None => (MessageHandle::NO_PROC, Status::PROC_NULL),
        Some(source) => {
            let look = |state: &mut State| state.engine.mprobe(context, source, tag).transpose();
            let last = |state: &mut State| look(state).or_else(|| state.engine.dried_up(context, source).map(Err));
            let (id, probed) = guard.wait_or(look, last)?;
            (guard.keep_message(id, comm)?, status_of_probed(&probed))
        }
    };
    // SAFETY: the caller's promise.
    unsafe {
        put_status(status, seen);
        put(message, handle)
    }
}

/// `MPI_Improbe`.
///
/// # Safety
///
/// See [`super::recv`].
pub unsafe fn improbe(
    rt: &Runtime,
    source: c_int,
    tag: c_int,
    comm: CommHandle,
    flag: *mut c_int,
    message: *mut MessageHandle,
    status: *mut Status,
) -> MpiResult {
    check_place(flag)?;
    check_place(message)?;
    let mut guard = rt.lock();
    let (context, source, tag) = wanted(&guard, source, tag, comm)?;
    guard.check_room_for_message()?;
    let found = match source {
        None => Some((MessageHandle::NO_PROC, Status::PROC_NULL)),
        Some(source) => {
            guard.step();
            match guard.engine.mprobe(context, source, tag)? {
                Some((id, probed)) => Some((guard.keep_message(id, comm)?, status_of_probed(&probed))),
                None => {
                    guard.asked_in_vain();
                    None
                }
            }
        }
    };
    // SAFETY: the caller's promise.
    unsafe {
        put(flag, c_int::from(found.is_some()))?;
        if let Some((handle, seen)) = found {
            put_status(status, seen);
            put(message, handle)?;
        }
    }
    Ok(())
}

/// Takes the message of a handle and starts to receive it; `None` for `MPI_MESSAGE_NO_PROC`.
unsafe fn receive_message(
    state: &mut State,
    buf: *mut c_void,
    count: i64,
    datatype: DatatypeHandle,
    message: *mut MessageHandle,
) -> MpiResult<Option<(Started, CommHandle)>> {
    if message.is_null() {
        return Err(MpiError::request("the message pointer is null"));
    }
    // SAFETY: the caller's promise.
    let handle = unsafe { message.read() };
    let started = if handle == MessageHandle::NO_PROC {
        None
    } else {
        // SAFETY: the caller's promise.
        let buffer = unsafe { args::buffer(state, buf, count, datatype)? };
        let Some(kept) = state.messages.take(handle) else {
            return Err(MpiError::request("invalid, null or already received message"));
        };
        Some((state.engine.mrecv(kept.id, buffer), kept.comm))
    };
    // SAFETY: the caller's promise.
    unsafe { message.write(MessageHandle::NULL) };
    Ok(started)
}

/// `MPI_Mrecv`.
///
/// # Safety
///
/// See [`super::recv`].
pub unsafe fn mrecv(
    rt: &Runtime,
    buf: *mut c_void,
    count: i64,
    datatype: DatatypeHandle,
    message: *mut MessageHandle,
    status: *mut Status,
) -> MpiResult {
    let mut guard = rt.lock();
    // SAFETY: the caller's promise.
    let (seen, result) = match unsafe { receive_message(&mut guard, buf, count, datatype, message)? } {
        None => (Status::PROC_NULL, Ok(())),
        Some((started, comm)) => {
            let outcome = blocking(&mut guard, started);
            (status_of(&outcome), of(outcome).map_err(|error| error.on(comm)))
        }
    };
    // SAFETY: the caller's promise.
    unsafe { put_status(status, seen) };
    result
}

/// `MPI_Imrecv`.
///
/// # Safety
///
/// See [`super::recv`].
pub unsafe fn imrecv(
    rt: &Runtime,
    buf: *mut c_void,
    count: i64,
    datatype: DatatypeHandle,
    message: *mut MessageHandle,
    request: *mut RequestHandle,
) -> MpiResult {
    let mut guard = rt.lock();
    check_room(&guard, request)?;
    // SAFETY: the caller's promise.
    let handle = match unsafe { receive_message(&mut guard, buf, count, datatype, message)? } {
        None => add(&mut guard, Request::Over { outcome: None, receives: true, comm: CommHandle::NULL })?,
        Some((started, comm)) => keep(&mut guard, started, true, comm)?,
    };
    // SAFETY: the caller's promise.
    unsafe { put(request, handle) }
}

impl MessageHandle {
    /// `MPI_MESSAGE_NO_PROC`: the result of a probe of `MPI_PROC_NULL`.
    pub const NO_PROC: Self = Self(crate::abi::constants::MPI_MESSAGE_NO_PROC);
}
