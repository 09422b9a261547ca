//! One-sided communication: operations on the memory of other members of a window (MPI 5.0 §12.3).

#![expect(unsafe_code, reason = "the C boundary")]
#![expect(clippy::missing_safety_doc, reason = "callers guarantee what the standard requires of them")]
#![expect(clippy::too_many_arguments, reason = "the standard's argument list")]

mod quick;
mod target;

use std::ffi::{c_int, c_void};

use super::args::{self, put as put_result};
use super::completion::{add, check_room};
use crate::abi::constants::MPI_NO_OP;
use crate::abi::{DatatypeHandle, OpHandle, RequestHandle, WinHandle};
use crate::datatype::Element;
use crate::error::{MpiError, MpiResult};
use crate::memory::{Buffer, zeroed};
use crate::object::requests::{Exchange, Half, Request};
use crate::object::window::{Accumulate, Combination, Kind, Near, Place};
use crate::runtime::{Guard, Runtime, State};

use target::{Found, Spot, combination, find, handles, must_fit, predefined, same_length};

/// No combination, for operations that only move bytes.
const NOTHING: (OpHandle, DatatypeHandle) = (OpHandle(0), DatatypeHandle(0));

/// The place of a request, for the forms that return one.
type Asks = Option<*mut RequestHandle>;

/// `MPI_Put`.
pub unsafe fn put(
    rt: &Runtime,
    origin_addr: *const c_void,
    origin_count: i64,
    origin_datatype: DatatypeHandle,
    target_rank: c_int,
    target_disp: i64,
    target_count: i64,
    target_datatype: DatatypeHandle,
    win: WinHandle,
) -> MpiResult {
    let origin = (origin_addr, origin_count, origin_datatype);
    // SAFETY: the caller's promise.
    unsafe { store(rt, origin, (target_rank, target_disp, target_count, target_datatype), None, win, None) }
}

/// `MPI_Rput`.
pub unsafe fn rput(
    rt: &Runtime,
    origin_addr: *const c_void,
    origin_count: i64,
    origin_datatype: DatatypeHandle,
    target_rank: c_int,
    target_disp: i64,
    target_count: i64,
    target_datatype: DatatypeHandle,
    win: WinHandle,
    request: *mut RequestHandle,
) -> MpiResult {
    let origin = (origin_addr, origin_count, origin_datatype);
    // SAFETY: the caller's promise.
    unsafe { store(rt, origin, (target_rank, target_disp, target_count, target_datatype), None, win, Some(request)) }
}

/// `MPI_Accumulate`.
pub unsafe fn accumulate(
    rt: &Runtime,
    origin_addr: *const c_void,
    origin_count: i64,
    origin_datatype: DatatypeHandle,
    target_rank: c_int,
    target_disp: i64,
    target_count: i64,
    target_datatype: DatatypeHandle,
    op: OpHandle,
    win: WinHandle,
) -> MpiResult {
    let origin = (origin_addr, origin_count, origin_datatype);
    // SAFETY: the caller's promise.
    unsafe { store(rt, origin, (target_rank, target_disp, target_count, target_datatype), Some(op), win, None) }
}

/// `MPI_Raccumulate`.
pub unsafe fn raccumulate(
    rt: &Runtime,
    origin_addr: *const c_void,
    origin_count: i64,
    origin_datatype: DatatypeHandle,
    target_rank: c_int,
    target_disp: i64,
    target_count: i64,
    target_datatype: DatatypeHandle,
    op: OpHandle,
    win: WinHandle,
    request: *mut RequestHandle,
) -> MpiResult {
    let origin = (origin_addr, origin_count, origin_datatype);
    let target = (target_rank, target_disp, target_count, target_datatype);
    // SAFETY: the caller's promise.
    unsafe { store(rt, origin, target, Some(op), win, Some(request)) }
}

/// `MPI_Get`.
pub unsafe fn get(
    rt: &Runtime,
    origin_addr: *mut c_void,
    origin_count: i64,
    origin_datatype: DatatypeHandle,
    target_rank: c_int,
    target_disp: i64,
    target_count: i64,
    target_datatype: DatatypeHandle,
    win: WinHandle,
) -> MpiResult {
    let into = (origin_addr.cast_const(), origin_count, origin_datatype);
    // SAFETY: the caller's promise.
    unsafe { load(rt, None, into, (target_rank, target_disp, target_count, target_datatype), None, win, None) }
}

/// `MPI_Rget`.
pub unsafe fn rget(
    rt: &Runtime,
    origin_addr: *mut c_void,
    origin_count: i64,
    origin_datatype: DatatypeHandle,
    target_rank: c_int,
    target_disp: i64,
    target_count: i64,
    target_datatype: DatatypeHandle,
    win: WinHandle,
    request: *mut RequestHandle,
) -> MpiResult {
    let into = (origin_addr.cast_const(), origin_count, origin_datatype);
    let target = (target_rank, target_disp, target_count, target_datatype);
    // SAFETY: the caller's promise.
    unsafe { load(rt, None, into, target, None, win, Some(request)) }
}

/// `MPI_Get_accumulate`.
pub unsafe fn get_accumulate(
    rt: &Runtime,
    origin_addr: *const c_void,
    origin_count: i64,
    origin_datatype: DatatypeHandle,
    result_addr: *mut c_void,
    result_count: i64,
    result_datatype: DatatypeHandle,
    target_rank: c_int,
    target_disp: i64,
    target_count: i64,
    target_datatype: DatatypeHandle,
    op: OpHandle,
    win: WinHandle,
) -> MpiResult {
    let origin = Some((origin_addr, origin_count, origin_datatype));
    let into = (result_addr.cast_const(), result_count, result_datatype);
    let target = (target_rank, target_disp, target_count, target_datatype);
    // SAFETY: the caller's promise.
    unsafe { load(rt, origin, into, target, Some(op), win, None) }
}

/// `MPI_Rget_accumulate`.
pub unsafe fn rget_accumulate(
    rt: &Runtime,
    origin_addr: *const c_void,
    origin_count: i64,
    origin_datatype: DatatypeHandle,
    result_addr: *mut c_void,
    result_count: i64,
    result_datatype: DatatypeHandle,
    target_rank: c_int,
    target_disp: i64,
    target_count: i64,
    target_datatype: DatatypeHandle,
    op: OpHandle,
    win: WinHandle,
    request: *mut RequestHandle,
) -> MpiResult {
    let origin = Some((origin_addr, origin_count, origin_datatype));
    let into = (result_addr.cast_const(), result_count, result_datatype);
    let target = (target_rank, target_disp, target_count, target_datatype);
    // SAFETY: the caller's promise.
    unsafe { load(rt, origin, into, target, Some(op), win, Some(request)) }
}

/// `MPI_Fetch_and_op`.
pub unsafe fn fetch_and_op(
    rt: &Runtime,
    origin_addr: *const c_void,
    result_addr: *mut c_void,
    datatype: DatatypeHandle,
    target_rank: c_int,
    target_disp: i64,
    op: OpHandle,
    win: WinHandle,
) -> MpiResult {
    if Element::of(datatype).is_none() {
        predefined(&rt.lock(), datatype)?;
    }
    let (origin, into) = (Some((origin_addr, 1, datatype)), (result_addr.cast_const(), 1, datatype));
    // SAFETY: the caller's promise.
    unsafe { load(rt, origin, into, (target_rank, target_disp, 1, datatype), Some(op), win, None) }
}

/// `MPI_Compare_and_swap`: of integers, logicals and bytes (MPI 5.0 §12.3.4).
pub unsafe fn compare_and_swap(
    rt: &Runtime,
    origin_addr: *const c_void,
    compare_addr: *const c_void,
    result_addr: *mut c_void,
    datatype: DatatypeHandle,
    target_rank: c_int,
    target_disp: i64,
    win: WinHandle,
) -> MpiResult {
    use crate::datatype::Class::{Byte, CInteger, FortranInteger, Logical, MultiLanguage};
    let mut guard = rt.lock();
    let element = predefined(&guard, datatype)?;
    if !matches!(element.class(), CInteger | FortranInteger | Logical | Byte | MultiLanguage) {
        return Err(MpiError::datatype(format!("MPI_Compare_and_swap is not defined for {}", element.name())));
    }
    let found = find(&guard, win, (target_rank, target_disp, 1, datatype))?;
    // SAFETY: the caller's promise.
    let [expected, new, into] = unsafe {
        [
            args::buffer(&guard, compare_addr, 1, datatype)?,
            args::buffer(&guard, origin_addr, 1, datatype)?,
            args::buffer(&guard, result_addr.cast_const(), 1, datatype)?,
        ]
    };
    let size = element.size();
    let mut both = [0; 64];
    let both = &mut both[..2 * size];
    expected.read(0, &mut both[..size]);
    new.read(0, &mut both[size..]);
    expected.settle().and_then(|()| new.settle())?;
    // SAFETY: so little data is copied into the call at once.
    let data = unsafe { Buffer::contiguous(both.as_mut_ptr(), both.len()) };
    match found {
        None => Ok(()),
        Some(Found::Near(near)) => combine(&mut guard, win, &near, &Combination::compare(element), &data, Some(&into)),
        Some(Found::Far(remote)) => {
            let State { windows, engine, .. } = &mut *guard;
            let window = windows.get_mut(win)?;
            window.enter(engine, remote.target)?;
            let with = (OpHandle(0), element.handle());
            window.fetch(engine, Kind::Compare, with, remote, Some(&data), &into, false);
            Ok(())
        }
    }
}

type Origin = (*const c_void, i64, DatatypeHandle);
type Target = (c_int, i64, i64, DatatypeHandle);

/// Writes to the target's memory, or combines it with something.
unsafe fn store(
    rt: &Runtime,
    (address, count, datatype): Origin,
    target: Target,
    op: Option<OpHandle>,
    win: WinHandle,
    asks: Asks,
) -> MpiResult {
    if asks.is_none() {
        let origin = (address, count, datatype);
        // SAFETY: the caller's promise.
        let done = unsafe {
            match op {
                None => quick::copy(rt, quick::Way::Put, origin, target, win),
                Some(op) => quick::accumulate(rt, origin, None, target, op, win),
            }
        };
        if done.is_some() {
            return Ok(());
        }
    }
    let mut guard = rt.lock();
    asks.map_or(Ok(()), |place| check_room(&guard, place))?;
    let found = find(&guard, win, target)?;
    // SAFETY: the caller's promise.
    let buffer = unsafe { args::buffer(&guard, address, count, datatype)? };
    let found = found.map(|found| found.first(buffer.len())).transpose()?;
    let len = found.as_ref().map_or(0, Found::len);
    let with = op.map_or(Ok(None), |op| combination(&guard, op, target.3, len, false))?;
    let mut halves = OVER;
    match found {
        None => {}
        Some(Found::Near(near)) => match (op, with) {
            (None, _) => {
                guard.windows.get(win)?.must_permit(near.target)?;
                Near::put(near.memory, &buffer, &near.buffer)?;
                buffer.settle()?;
            }
            (Some(op), Some(with)) => {
                combine(&mut guard, win, &near, &with, &buffer, None)?;
                guard.windows.get_mut(win)?.remember(op, target.3, with);
            }
            (Some(_), None) => guard.windows.get(win)?.must_permit(near.target)?,
        },
        Some(Found::Far(remote)) => {
            let kind = if op.is_some() { Kind::Accumulate } else { Kind::Put };
            let State { windows, engine, .. } = &mut *guard;
            let window = windows.get_mut(win)?;
            window.enter(engine, remote.target)?;
            halves = window.send_data(engine, kind, handles(op, with.as_ref()), remote, &buffer, asks.is_some());
        }
    }
    // SAFETY: the caller's promise.
    unsafe { put_request(&mut guard, win, halves, asks) }
}

/// Reads the target's memory; with an operation and data, also combines it with these.
unsafe fn load(
    rt: &Runtime,
    origin: Option<Origin>,
    (address, count, datatype): Origin,
    target: Target,
    op: Option<OpHandle>,
    win: WinHandle,
    asks: Asks,
) -> MpiResult {
    if asks.is_none() {
        let result = (address, count, datatype);
        // SAFETY: the caller's promise.
        let done = unsafe {
            match (op, origin) {
                (Some(op), Some(origin)) => quick::accumulate(rt, origin, Some(result), target, op, win),
                (Some(_), None) => None,
                (None, _) => quick::copy(rt, quick::Way::Get, result, target, win),
            }
        };
        if done.is_some() {
            return Ok(());
        }
    }
    let mut guard = rt.lock();
    asks.map_or(Ok(()), |place| check_room(&guard, place))?;
    let found = find(&guard, win, target)?;
    // SAFETY: the caller's promise.
    let mut into = unsafe { args::buffer(&guard, address, count, datatype)? };
    let len = found.as_ref().map_or(0, Found::len);
    let with = op.map_or(Ok(None), |op| combination(&guard, op, target.3, len, true))?;
    let data = match origin {
        // The origin's arguments are ignored then (MPI 5.0 §12.3.4).
        Some((address, count, datatype)) if op != Some(OpHandle(MPI_NO_OP)) => {
            // SAFETY: the caller's promise.
            Some(unsafe { args::buffer(&guard, address, count, datatype)? })
        }
        Some(_) | None => None,
    };
    let mut halves = OVER;
    if found.is_some() {
        must_fit(len, into.len())?;
        into = into.part(0, len);
        data.as_ref().map_or(Ok(()), |data| same_length(data.len(), len))?;
    }
    match found {
        None => {}
        Some(Found::Near(near)) => match (op, with) {
            (None, _) => {
                guard.windows.get(win)?.must_permit(near.target)?;
                Near::get(near.memory, &into, &near.buffer)?;
                into.settle()?;
            }
            (Some(op), Some(with)) => {
                combine(&mut guard, win, &near, &with, &data.unwrap_or(Buffer::EMPTY), Some(&into))?;
                guard.windows.get_mut(win)?.remember(op, target.3, with);
            }
            (Some(_), None) => guard.windows.get(win)?.must_permit(near.target)?,
        },
        Some(Found::Far(remote)) => {
            let kind = if op.is_some() { Kind::Fetch } else { Kind::Get };
            let State { windows, engine, .. } = &mut *guard;
            let window = windows.get_mut(win)?;
            window.enter(engine, remote.target)?;
            halves =
                window.fetch(engine, kind, handles(op, with.as_ref()), remote, data.as_ref(), &into, asks.is_some());
        }
    }
    // SAFETY: the caller's promise.
    unsafe { put_request(&mut guard, win, halves, asks) }
}

/// Combines data with memory on this node. If another process is in the way, it has only a little left to do.
fn combine(
    guard: &mut Guard<'_>,
    win: WinHandle,
    near: &Spot,
    combination: &Combination,
    data: &Buffer,
    into: Option<&Buffer>,
) -> MpiResult {
    let window = guard.windows.get(win)?;
    window.must_permit(near.target)?;
    let len = near.buffer.len();
    if let (Some(at), Some(data), Some(into)) = (
        near.buffer.as_contiguous().filter(|_| near.memory.place == Place::Here),
        data.as_contiguous(),
        into.map_or(Some(std::ptr::null_mut()), Buffer::as_contiguous),
    ) && combination.is_dense()
        // SAFETY: the caller has compared the lengths.
        && unsafe { window.near.accumulate_at_once(near.target, combination, data, into, at, len) }.is_some()
    {
        return Ok(());
    }
    let (packed_data, mut packed_into);
    let data = match data.as_contiguous() {
        Some(data) => data.cast_const(),
        None => {
            let mut packed = zeroed(data.len())?;
            data.read(0, &mut packed);
            data.settle()?;
            packed_data = packed;
            packed_data.as_ptr()
        }
    };
    let mut before = std::ptr::null_mut();
    packed_into = Box::default();
    if let Some(into) = into {
        before = match into.as_contiguous() {
            Some(into) => into,
            None => {
                packed_into = zeroed(len)?;
                packed_into.as_mut_ptr()
            }
        };
    }
    let mut work = Accumulate { combination, data, before, elements: &near.buffer, done: 0 };
    loop {
        let window = guard.windows.get(win)?;
        // SAFETY: the caller has compared the lengths of data and result with that of the elements, which are in the window.
        if let Some(result) = unsafe { window.near.accumulate(near.target, near.memory, &mut work) } {
            result?;
            break;
        }
        guard.step();
        guard.unlocked(std::thread::yield_now);
        guard.windows.get(win)?.loss()?;
    }
    if let Some(into) = into.filter(|_| !packed_into.is_empty()) {
        into.write(0, &packed_into);
        into.settle()?;
    }
    Ok(())
}

unsafe fn put_request(state: &mut State, win: WinHandle, halves: (Half, Half), asks: Asks) -> MpiResult {
    let Some(place) = asks else { return Ok(()) };
    let comm = state.windows.get(win)?.comm;
    let (sent, received) = halves;
    let exchange = Exchange { sent, received, copy: Vec::new(), comm };
    let handle = add(state, Request::Exchange(Box::new(exchange)))?;
    // SAFETY: the caller's promise.
    unsafe { put_result(place, handle) }
}

/// Nothing to wait for.
const OVER: (Half, Half) = (Half::Over(None), Half::Over(None));
