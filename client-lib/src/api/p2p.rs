//! Point-to-point communication (MPI 5.0 §3).

#![expect(unsafe_code, reason = "the C boundary")]

mod exchange;
mod probes;

use std::ffi::{c_int, c_void};

use super::args::{self, put, put_status};
use super::completion::{add, check_room};
use crate::abi::{CommHandle, DatatypeHandle, RequestHandle, Status};
use crate::engine::{Envelope, Mode, Outcome, Peer, Source, Started, TagMatch};
use crate::error::{MpiError, MpiResult};
use crate::memory::Buffer;
use crate::object::requests::{Active, Persistent, Request, Start};
use crate::runtime::{Guard, Runtime, State};

pub use exchange::{isendrecv, isendrecv_replace, sendrecv, sendrecv_replace};
pub use probes::{improbe, imrecv, iprobe, mprobe, mrecv, probe};

/// A message to send, with checked arguments.
struct Sending {
    envelope: Envelope,
    to: Option<Peer>,
    buffer: Buffer,
}

#[inline(always)]
unsafe fn sending(
    state: &State,
    buf: *const c_void,
    count: i64,
    datatype: DatatypeHandle,
    dest: c_int,
    tag: c_int,
    comm: CommHandle,
) -> MpiResult<Sending> {
    let comm = state.comms.get(comm)?;
    let tag = args::tag(tag)?;
    let to = args::destination(comm, dest)?;
    let envelope = Envelope { context: comm.context, rank: comm.rank, tag };
    // SAFETY: the caller's promise.
    Ok(Sending { envelope, to, buffer: unsafe { args::buffer(state, buf, count, datatype)? } })
}

/// A message to receive, with checked arguments.
struct Receiving {
    context: u32,
    source: Option<Source>,
    tag: TagMatch,
    buffer: Buffer,
}

#[inline(always)]
unsafe fn receiving(
    state: &State,
    buf: *mut c_void,
    count: i64,
    datatype: DatatypeHandle,
    source: c_int,
    tag: c_int,
    comm: CommHandle,
) -> MpiResult<Receiving> {
    let comm = state.comms.get(comm)?;
    let tag = args::tag_match(tag)?;
    let source = args::source(comm, source)?;
    // SAFETY: the caller's promise.
    let buffer = unsafe { args::buffer(state, buf, count, datatype)? };
    Ok(Receiving { context: comm.context, source, tag, buffer })
}

#[inline]
fn blocking(guard: &mut Guard<'_>, started: Started) -> Outcome {
    match started {
        Started::Over(outcome) => outcome,
        Started::Pending(id) => guard.wait_or(
            |state| state.engine.take(id),
            |state| {
                state.engine.give_up(id);
                state.engine.interrupt(id);
                state.engine.take(id)
            },
        ),
    }
}

#[inline]
fn of(outcome: Outcome) -> MpiResult {
    outcome.error.map_or(Ok(()), |error| Err(*error))
}

#[inline]
fn status_of(outcome: &Outcome) -> Status {
    let mut status = Status::new(outcome.source as c_int, outcome.tag, outcome.bytes);
    status.set_cancelled(outcome.cancelled);
    status
}

/// Stores a started operation as a request.
#[inline]
fn keep(state: &mut State, started: Started, receives: bool, comm: CommHandle) -> MpiResult<RequestHandle> {
    match started {
        Started::Pending(id) => add(state, Request::Message { id, receives, comm }),
        Started::Over(outcome) if !receives && outcome.error.is_none() => Ok(RequestHandle::sent()),
        Started::Over(outcome) => add(state, Request::Over { outcome: Some(outcome), receives, comm }),
    }
}

macro_rules! sends {
    ($($blocking:ident $starting:ident $init:ident $mode:ident $buffered:literal $names:literal;)*) => {$(
        #[doc = concat!("Sends: ", $names, ".")]
        ///
        /// # Safety
        ///
        /// The caller must meet the standard's requirements.
        #[inline]
        pub unsafe fn $blocking(
            rt: &Runtime,
            buf: *const c_void,
            count: i64,
            datatype: DatatypeHandle,
            dest: c_int,
            tag: c_int,
            comm: CommHandle,
        ) -> MpiResult {
            let mut guard = rt.lock();
            // SAFETY: the caller's promise.
            let sending = unsafe { sending(&guard, buf, count, datatype, dest, tag, comm)? };
            let Some(to) = sending.to else { return Ok(()) };
            sending.buffer.will_be_read();
            if $buffered {
                return guard.send_buffered(comm, sending.envelope, to, &sending.buffer);
            }
            let started = guard.engine.send(sending.envelope, to, Mode::$mode, sending.buffer);
            of(blocking(&mut guard, started))
        }

        #[doc = concat!("Starts a send: the non-blocking form of ", $names, ".")]
        ///
        /// # Safety
        ///
        /// The caller must meet the standard's requirements.
        #[expect(clippy::too_many_arguments, reason = "the standard's argument list")]
        #[inline]
        pub unsafe fn $starting(
            rt: &Runtime,
            buf: *const c_void,
            count: i64,
            datatype: DatatypeHandle,
            dest: c_int,
            tag: c_int,
            comm: CommHandle,
            request: *mut RequestHandle,
        ) -> MpiResult {
            let mut guard = rt.lock();
            // SAFETY: the caller's promise.
            let sending = unsafe { sending(&guard, buf, count, datatype, dest, tag, comm)? };
            check_room(&guard, request)?;
            let handle = match sending.to {
                None => RequestHandle::sent(),
                Some(to) if $buffered => {
                    guard.send_buffered(comm, sending.envelope, to, &sending.buffer)?;
                    RequestHandle::sent()
                }
                Some(to) => {
                    let started = guard.engine.start_send(sending.envelope, to, Mode::$mode, sending.buffer);
                    keep(&mut guard, started, false, comm)?
                }
            };
            // SAFETY: the caller's promise.
            unsafe { put(request, handle) }
        }

        #[doc = concat!("Creates a persistent send request: the persistent form of ", $names, ".")]
        ///
        /// # Safety
        ///
        /// The caller must meet the standard's requirements.
        #[expect(clippy::too_many_arguments, reason = "the standard's argument list")]
        pub unsafe fn $init(
            rt: &Runtime,
            buf: *const c_void,
            count: i64,
            datatype: DatatypeHandle,
            dest: c_int,
            tag: c_int,
            comm: CommHandle,
            request: *mut RequestHandle,
        ) -> MpiResult {
            let mut guard = rt.lock();
            // SAFETY: the caller's promise.
            let Sending { envelope, to, buffer } = unsafe { sending(&guard, buf, count, datatype, dest, tag, comm)? };
            let start = Start::Send { envelope, to, mode: Mode::$mode, buffered: $buffered, buffer };
            let handle = add(&mut guard, Request::Persistent(Box::new(Persistent { start, active: None, comm })))?;
            // SAFETY: the caller's promise.
            unsafe { put(request, handle) }
        }
    )*};
}

sends! {
    send isend send_init Standard false "`MPI_Send`";
    ssend issend ssend_init Synchronous false "`MPI_Ssend`";
    rsend irsend rsend_init Ready false "`MPI_Rsend`";
    bsend ibsend bsend_init Standard true "`MPI_Bsend`";
}

/// `MPI_Recv`.
///
/// # Safety
///
/// The caller must meet the standard's requirements; this applies to all functions here.
#[expect(clippy::too_many_arguments, reason = "the standard's argument list")]
#[inline]
pub unsafe fn recv(
    rt: &Runtime,
    buf: *mut c_void,
    count: i64,
    datatype: DatatypeHandle,
    source: c_int,
    tag: c_int,
    comm: CommHandle,
    status: *mut Status,
) -> MpiResult {
    let mut guard = rt.lock();
    // SAFETY: the caller's promise.
    let receiving = unsafe { receiving(&guard, buf, count, datatype, source, tag, comm)? };
    let Some(source) = receiving.source else {
        // SAFETY: the caller's promise.
        unsafe { put_status(status, Status::PROC_NULL) };
        return Ok(());
    };
    receiving.buffer.will_be_written();
    let started = guard.recv(receiving.context, source, receiving.tag, receiving.buffer);
    let outcome = blocking(&mut guard, started);
    // SAFETY: the caller's promise.
    unsafe { put_status(status, status_of(&outcome)) };
    of(outcome)
}

/// `MPI_Irecv`.
///
/// # Safety
///
/// See [`recv`].
#[expect(clippy::too_many_arguments, reason = "the standard's argument list")]
#[inline]
pub unsafe fn irecv(
    rt: &Runtime,
    buf: *mut c_void,
    count: i64,
    datatype: DatatypeHandle,
    source: c_int,
    tag: c_int,
    comm: CommHandle,
    request: *mut RequestHandle,
) -> MpiResult {
    let mut guard = rt.lock();
    // SAFETY: the caller's promise.
    let receiving = unsafe { receiving(&guard, buf, count, datatype, source, tag, comm)? };
    check_room(&guard, request)?;
    let handle = match receiving.source {
        Some(source) => {
            receiving.buffer.will_be_written();
            let started = guard.recv(receiving.context, source, receiving.tag, receiving.buffer);
            keep(&mut guard, started, true, comm)?
        }
        None => add(&mut guard, Request::Over { outcome: None, receives: true, comm })?,
    };
    // SAFETY: the caller's promise.
    unsafe { put(request, handle) }
}

/// `MPI_Recv_init`.
///
/// # Safety
///
/// See [`recv`].
#[expect(clippy::too_many_arguments, reason = "the standard's argument list")]
pub unsafe fn recv_init(
    rt: &Runtime,
    buf: *mut c_void,
    count: i64,
    datatype: DatatypeHandle,
    source: c_int,
    tag: c_int,
    comm: CommHandle,
    request: *mut RequestHandle,
) -> MpiResult {
    let mut guard = rt.lock();
    // SAFETY: the caller's promise.
    let receiving = unsafe { receiving(&guard, buf, count, datatype, source, tag, comm)? };
    let Receiving { context, source, tag, buffer } = receiving;
    let start = Start::Receive { context, source, tag, buffer };
    let handle = add(&mut guard, Request::Persistent(Box::new(Persistent { start, active: None, comm })))?;
    // SAFETY: the caller's promise.
    unsafe { put(request, handle) }
}

/// `MPI_Start`.
///
/// # Safety
///
/// See [`recv`].
pub unsafe fn start(rt: &Runtime, request: *mut RequestHandle) -> MpiResult {
    if request.is_null() {
        return Err(MpiError::request("the request pointer is null"));
    }
    // SAFETY: the caller's promise.
    start_one(&mut rt.lock(), unsafe { request.read() })
}

/// `MPI_Startall`.
///
/// # Safety
///
/// See [`recv`].
pub unsafe fn startall(rt: &Runtime, count: c_int, requests: *mut RequestHandle) -> MpiResult {
    let count = usize::try_from(count).map_err(|_| MpiError::arg(format!("invalid number of requests: {count}")))?;
    if count > 0 && requests.is_null() {
        return Err(MpiError::request("the array of requests is null"));
    }
    let mut guard = rt.lock();
    for index in 0..count {
        // SAFETY: the caller's promise.
        start_one(&mut guard, unsafe { requests.add(index).read() })?;
    }
    Ok(())
}

fn start_one(state: &mut State, handle: RequestHandle) -> MpiResult {
    if state.comms.has_revoked()
        && let Some(comm) = state.requests.get(handle).and_then(Request::comm)
        && let Ok(communicator) = state.comms.get(comm)
    {
        communicator.must_be_usable().map_err(|error| error.on(comm))?;
    }
    let State { partitions, engine, requests, .. } = &mut *state;
    if let Some(Request::Partitioned { id, comm }) = requests.get(handle) {
        return partitions.start(engine, *id).map_err(|error| error.on(*comm));
    }
    let Some(Request::Persistent(persistent)) = state.requests.get(handle) else {
        return Err(MpiError::request("not a persistent request"));
    };
    if persistent.active.is_some() {
        return Err(MpiError::request("the request is already active").on(persistent.comm));
    }
    let comm = persistent.comm;
    let active = match persistent.start.clone() {
        Start::Send { to: None, .. } | Start::Receive { source: None, .. } => Active::Over(None),
        Start::Send { envelope, to: Some(to), buffered: true, buffer, .. } => {
            state.send_buffered(comm, envelope, to, &buffer).map_err(|error| error.on(comm))?;
            Active::Over(None)
        }
        Start::Send { envelope, to: Some(to), mode, buffered: false, buffer } => {
            active(state.engine.start_send(envelope, to, mode, buffer))
        }
        Start::Receive { context, source: Some(source), tag, buffer } => {
            active(state.recv(context, source, tag, buffer))
        }
        Start::Collective(id) => {
            state.start_collective(id)?;
            Active::Collective(id)
        }
    };
    if let Some(Request::Persistent(persistent)) = state.requests.get_mut(handle) {
        persistent.active = Some(active);
    }
    Ok(())
}

fn active(started: Started) -> Active {
    match started {
        Started::Pending(id) => Active::Message(id),
        Started::Over(outcome) => Active::Over(Some(outcome)),
    }
}
