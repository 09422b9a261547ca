//! One-sided communication: operations on the memory of other members of a window (MPI 5.0 §12.3).

#![expect(unsafe_code, reason = "the C boundary")]
#![expect(clippy::missing_safety_doc, reason = "callers guarantee what the standard requires of them")]
#![expect(clippy::too_many_arguments, reason = "the standard's argument list")]

use std::ffi::{c_int, c_void};

use super::args::{self, check_place, put as put_result};
use super::completion::add;
use crate::abi::constants::{MPI_ERR_DISP, MPI_ERR_RMA_RANGE, MPI_NO_OP, MPI_PROC_NULL};
use crate::abi::handle::Handle;
use crate::abi::{DatatypeHandle, OpHandle, RequestHandle, WinHandle};
use crate::datatype::{Datatype, Element};
use crate::error::{MpiError, MpiResult};
use crate::memory::Buffer;
use crate::object::requests::{Exchange, Half, Request};
use crate::object::window::{Kind, Places, Remote};
use crate::op::{Builtin, OpRef, Reduction};
use crate::runtime::{Runtime, State};

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
    predefined(datatype)?;
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
    let element = predefined(datatype)?;
    if !matches!(element.class(), CInteger | FortranInteger | Logical | Byte | MultiLanguage) {
        return Err(MpiError::datatype(format!("MPI_Compare_and_swap is not defined for {}", element.name())));
    }
    let mut state = rt.lock();
    let Some(remote) = find(&mut state, win, (target_rank, target_disp, 1, datatype))? else { return Ok(()) };
    // SAFETY: the caller's promise.
    let [expected, new, into] = unsafe {
        [
            args::buffer(&state, compare_addr, 1, datatype)?,
            args::buffer(&state, origin_addr, 1, datatype)?,
            args::buffer(&state, result_addr.cast_const(), 1, datatype)?,
        ]
    };
    let size = element.size();
    let mut both = [0; 64];
    let both = &mut both[..2 * size];
    expected.read(0, &mut both[..size]);
    new.read(0, &mut both[size..]);
    // SAFETY: so little data is copied into the call at once.
    let data = unsafe { Buffer::contiguous(both.as_mut_ptr(), both.len()) };
    let State { windows, engine, .. } = &mut *state;
    let window = windows.get_mut(win)?;
    window.enter(engine, remote.target)?;
    window.fetch(engine, Kind::Compare, NOTHING, remote, Some(&data), &into, false);
    Ok(())
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
    asks.map_or(Ok(()), |place| check_place(place))?;
    let mut state = rt.lock();
    let found = find(&mut state, win, target)?;
    // SAFETY: the caller's promise.
    let buffer = unsafe { args::buffer(&state, address, count, datatype)? };
    let with = op.map_or(Ok(NOTHING), |op| combination(&state, op, target.3, found.as_ref(), false))?;
    let mut halves = (Half::Over(None), Half::Over(None));
    if let Some(remote) = found {
        same_length(buffer.len(), &remote)?;
        let kind = if op.is_some() { Kind::Accumulate } else { Kind::Put };
        let State { windows, engine, .. } = &mut *state;
        let window = windows.get_mut(win)?;
        window.enter(engine, remote.target)?;
        halves = window.send_data(engine, kind, with, remote, &buffer, asks.is_some());
    }
    // SAFETY: the caller's promise.
    unsafe { put_request(&mut state, win, halves, asks) }
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
    asks.map_or(Ok(()), |place| check_place(place))?;
    let mut state = rt.lock();
    let found = find(&mut state, win, target)?;
    // SAFETY: the caller's promise.
    let into = unsafe { args::buffer(&state, address, count, datatype)? };
    let with = op.map_or(Ok(NOTHING), |op| combination(&state, op, target.3, found.as_ref(), true))?;
    let data = match origin {
        // The origin's arguments are ignored then (MPI 5.0 §12.3.4).
        Some((address, count, datatype)) if op != Some(OpHandle(MPI_NO_OP)) => {
            // SAFETY: the caller's promise.
            Some(unsafe { args::buffer(&state, address, count, datatype)? })
        }
        Some(_) | None => None,
    };
    let mut halves = (Half::Over(None), Half::Over(None));
    if let Some(remote) = found {
        same_length(into.len(), &remote)?;
        data.as_ref().map_or(Ok(()), |data| same_length(data.len(), &remote))?;
        let kind = if op.is_some() { Kind::Fetch } else { Kind::Get };
        let State { windows, engine, .. } = &mut *state;
        let window = windows.get_mut(win)?;
        window.enter(engine, remote.target)?;
        halves = window.fetch(engine, kind, with, remote, data.as_ref(), &into, asks.is_some());
    }
    // SAFETY: the caller's promise.
    unsafe { put_request(&mut state, win, halves, asks) }
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

/// The target's memory; `None` for `MPI_PROC_NULL`.
fn find(state: &mut State, win: WinHandle, (rank, disp, count, datatype): Target) -> MpiResult<Option<Remote>> {
    let window = state.windows.get(win)?;
    let datatype = state.types.resolve_committed(datatype)?;
    let count = usize::try_from(count).map_err(|_| MpiError::count(format!("invalid count {count}")))?;
    if rank == MPI_PROC_NULL {
        return Ok(None);
    }
    let target = u32::try_from(rank).ok().filter(|rank| *rank < window.size());
    let Some(target) = target else {
        return Err(MpiError::rank(format!("rank {rank} is not in the window (0 to {})", window.size() - 1)));
    };
    let part = window.parts[target as usize];
    let start = match window.is_dynamic() {
        true => Some(disp),
        false if disp < 0 => return Err(MpiError::new(MPI_ERR_DISP, format!("invalid displacement {disp}"))),
        false => disp.checked_mul(part.disp_unit),
    };
    let start = start.ok_or_else(|| out_of_range(disp, target))?;
    let len = datatype.packed_len(count)?;
    let mut pieces = Vec::new();
    if len > 0 {
        // SAFETY: the memory at these places is only listed.
        let listed = unsafe { Buffer::new(std::ptr::null_mut(), count, datatype.layout()) };
        listed.pieces(0, len, |piece, len| {
            pieces.push((piece.addr() as i64, len));
            true
        });
    }
    let mut places = Places { at: start, len, pieces };
    if let [(offset, _)] = places.pieces[..] {
        places.at = start.checked_add(offset).ok_or_else(|| out_of_range(disp, target))?;
        places.pieces.clear();
    }
    let size = part.size as i64;
    let is_within = |piece: Option<(i64, usize)>| {
        piece.is_some_and(|(at, len)| at >= 0 && at.checked_add(len as i64).is_some_and(|end| end <= size))
    };
    if !window.is_dynamic() && !places.absolute().all(is_within) {
        return Err(out_of_range(disp, target));
    }
    Ok(Some(Remote { target, places }))
}

#[cold]
fn out_of_range(disp: i64, target: u32) -> MpiError {
    MpiError::new(
        MPI_ERR_RMA_RANGE,
        format!("the memory at displacement {disp} is not all in the window of rank {target}"),
    )
}

fn same_length(origin: usize, remote: &Remote) -> MpiResult {
    if origin == remote.places.len {
        return Ok(());
    }
    Err(MpiError::count(format!("{origin} bytes at the origin, {} at the target", remote.places.len)))
}

/// The operation and the type of the elements that it combines: a predefined one, of which the target's type consists (MPI 5.0 §12.3.3).
fn combination(
    state: &State,
    op: OpHandle,
    datatype: DatatypeHandle,
    remote: Option<&Remote>,
    fetches: bool,
) -> MpiResult<(OpHandle, DatatypeHandle)> {
    let OpRef::Builtin(builtin) = state.ops.resolve(op)? else {
        return Err(MpiError::op("only predefined operations can be used for accumulates"));
    };
    let element = basic(state.types.resolve_committed(datatype)?);
    let Some(element) = element else {
        if remote.is_none_or(|remote| remote.places.len == 0) {
            return Ok(NOTHING);
        }
        return Err(MpiError::datatype("accumulates need a datatype that consists of one predefined datatype"));
    };
    match builtin {
        Builtin::NoOp if !fetches => return Err(MpiError::op("MPI_NO_OP is for operations that return something")),
        Builtin::NoOp | Builtin::Replace => {}
        // Nothing is combined.
        _ if remote.is_none_or(|remote| remote.places.len == 0) => {}
        _ => drop(Reduction::new(&OpRef::Builtin(builtin), Datatype::predefined(element), element.handle())?),
    }
    Ok((op, element.handle()))
}

/// The predefined datatype that a datatype consists of, if it is one, or a pair.
fn basic(datatype: &Datatype) -> Option<Element> {
    if let Some(element) = datatype.element().or_else(|| datatype.uniform()) {
        return Some(element);
    }
    let mut inner = datatype.contents().types.iter().map(|one| basic(one));
    let first = inner.next()??;
    inner.all(|other| other == Some(first)).then_some(first)
}

fn predefined(datatype: DatatypeHandle) -> MpiResult<Element> {
    Element::of(datatype).ok_or_else(|| match datatype.place() {
        Some(_) => MpiError::datatype("only predefined datatypes can be used"),
        None => MpiError::datatype("invalid datatype"),
    })
}
