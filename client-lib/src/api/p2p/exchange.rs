//! A send and a receive as one operation: `MPI_Sendrecv` and related functions (MPI 5.0 §3.10).

use std::ffi::{c_int, c_void};

use super::super::args::{put, put_status};
use super::super::completion::{add, check_room};
use super::{Receiving, Sending, blocking, of, receiving, sending, status_of};
use crate::abi::{CommHandle, DatatypeHandle, RequestHandle, Status};
use crate::engine::{Mode, Started};
use crate::error::MpiResult;
use crate::memory::Buffer;
use crate::object::requests::{Exchange, Half, Request};
use crate::runtime::{Guard, Runtime, State};

/// `MPI_Sendrecv`.
///
/// # Safety
///
/// See [`super::recv`].
#[expect(clippy::too_many_arguments, reason = "the standard's argument list")]
pub unsafe fn sendrecv(
    rt: &Runtime,
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: DatatypeHandle,
    dest: c_int,
    sendtag: c_int,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: DatatypeHandle,
    source: c_int,
    recvtag: c_int,
    comm: CommHandle,
    status: *mut Status,
) -> MpiResult {
    let mut guard = rt.lock();
    // SAFETY: the caller's promise.
    let (sending, receiving) = unsafe {
        let sending = sending(&guard, sendbuf, sendcount, sendtype, dest, sendtag, comm)?;
        (sending, receiving(&guard, recvbuf, recvcount, recvtype, source, recvtag, comm)?)
    };
    exchange(&mut guard, sending, receiving, status)
}

/// `MPI_Sendrecv_replace`: the received message replaces the sent one, which is copied first.
///
/// # Safety
///
/// See [`super::recv`].
#[expect(clippy::too_many_arguments, reason = "the standard's argument list")]
pub unsafe fn sendrecv_replace(
    rt: &Runtime,
    buf: *mut c_void,
    count: i64,
    datatype: DatatypeHandle,
    dest: c_int,
    sendtag: c_int,
    source: c_int,
    recvtag: c_int,
    comm: CommHandle,
    status: *mut Status,
) -> MpiResult {
    let mut guard = rt.lock();
    // SAFETY: the caller's promise.
    let (mut sending, receiving) = unsafe {
        let sending = sending(&guard, buf, count, datatype, dest, sendtag, comm)?;
        (sending, receiving(&guard, buf, count, datatype, source, recvtag, comm)?)
    };
    let mut copy = packed(&sending.buffer)?;
    // SAFETY: the copy outlives the operation, which `exchange` completes.
    sending.buffer = unsafe { Buffer::contiguous(copy.as_mut_ptr(), copy.len()) };
    exchange(&mut guard, sending, receiving, status)
}

fn exchange(guard: &mut Guard<'_>, sending: Sending, receiving: Receiving, status: *mut Status) -> MpiResult {
    let (received, sent) = start(guard, sending, receiving);
    let sent = sent.map_or(Ok(()), |started| of(blocking(guard, started)));
    let (seen, received) = match received.map(|started| blocking(guard, started)) {
        Some(outcome) => (status_of(&outcome), of(outcome)),
        None => (Status::PROC_NULL, Ok(())),
    };
    // SAFETY: the callers' callers' promise.
    unsafe { put_status(status, seen) };
    sent.and(received)
}

/// Starts both, the receive first; nothing is started for `MPI_PROC_NULL`.
fn start(state: &mut State, sending: Sending, receiving: Receiving) -> (Option<Started>, Option<Started>) {
    sending.buffer.will_be_read();
    receiving.buffer.will_be_written();
    let received =
        receiving.source.map(|source| state.engine.recv(receiving.context, source, receiving.tag, receiving.buffer));
    let sent = sending.to.map(|to| state.engine.send(sending.envelope, to, Mode::Standard, sending.buffer));
    (received, sent)
}

/// `MPI_Isendrecv`.
///
/// # Safety
///
/// See [`super::recv`].
#[expect(clippy::too_many_arguments, reason = "the standard's argument list")]
pub unsafe fn isendrecv(
    rt: &Runtime,
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: DatatypeHandle,
    dest: c_int,
    sendtag: c_int,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: DatatypeHandle,
    source: c_int,
    recvtag: c_int,
    comm: CommHandle,
    request: *mut RequestHandle,
) -> MpiResult {
    let mut guard = rt.lock();
    // SAFETY: the caller's promise.
    let (sending, receiving) = unsafe {
        let sending = sending(&guard, sendbuf, sendcount, sendtype, dest, sendtag, comm)?;
        (sending, receiving(&guard, recvbuf, recvcount, recvtype, source, recvtag, comm)?)
    };
    check_room(&guard, request)?;
    let handle = keep(&mut guard, sending, receiving, Vec::new(), comm)?;
    // SAFETY: the caller's promise.
    unsafe { put(request, handle) }
}

/// `MPI_Isendrecv_replace`.
///
/// # Safety
///
/// See [`super::recv`].
#[expect(clippy::too_many_arguments, reason = "the standard's argument list")]
pub unsafe fn isendrecv_replace(
    rt: &Runtime,
    buf: *mut c_void,
    count: i64,
    datatype: DatatypeHandle,
    dest: c_int,
    sendtag: c_int,
    source: c_int,
    recvtag: c_int,
    comm: CommHandle,
    request: *mut RequestHandle,
) -> MpiResult {
    let mut guard = rt.lock();
    // SAFETY: the caller's promise.
    let (mut sending, receiving) = unsafe {
        let sending = sending(&guard, buf, count, datatype, dest, sendtag, comm)?;
        (sending, receiving(&guard, buf, count, datatype, source, recvtag, comm)?)
    };
    check_room(&guard, request)?;
    let mut copy = packed(&sending.buffer)?;
    // SAFETY: the request keeps the copy until the operation is over.
    sending.buffer = unsafe { Buffer::contiguous(copy.as_mut_ptr(), copy.len()) };
    let handle = keep(&mut guard, sending, receiving, copy, comm)?;
    // SAFETY: the caller's promise.
    unsafe { put(request, handle) }
}

fn keep(
    state: &mut State,
    sending: Sending,
    receiving: Receiving,
    copy: Vec<u8>,
    comm: CommHandle,
) -> MpiResult<RequestHandle> {
    let half = |started| match started {
        Some(Started::Pending(id)) => Half::Pending(id),
        Some(Started::Over(outcome)) => Half::Over(Some(outcome)),
        None => Half::Over(None),
    };
    let (received, sent) = start(state, sending, receiving);
    let exchange = Exchange { sent: half(sent), received: half(received), copy, comm };
    add(state, Request::Exchange(Box::new(exchange)))
}

/// The packed bytes of a buffer.
fn packed(buffer: &Buffer) -> MpiResult<Vec<u8>> {
    Ok(buffer.copied()?.0.into())
}
