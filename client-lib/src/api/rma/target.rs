//! What the arguments of an operation mean: the memory of the target, and the operation that is done to its elements.

use std::ffi::c_int;

use super::{NOTHING, Target};
use crate::abi::constants::{MPI_ERR_DISP, MPI_ERR_RMA_RANGE, MPI_PROC_NULL};
use crate::abi::{DatatypeHandle, OpHandle, WinHandle};
use crate::datatype::{Datatype, Element, basic_size};
use crate::error::{MpiError, MpiResult};
use crate::memory::Buffer;
use crate::object::window::{Combination, Memory, Places, Remote, Window};
use crate::op::{Builtin, OpRef};
use crate::runtime::State;

/// The memory that an operation is about.
#[derive(Debug)]
pub(super) enum Found {
    /// This process uses it by itself.
    Near(Spot),
    /// Its owner uses it.
    Far(Remote),
}

/// Memory of a member on this node.
#[derive(Debug)]
pub(super) struct Spot {
    pub(super) target: u32,
    pub(super) memory: Memory,
    /// With addresses of the process that owns it.
    pub(super) buffer: Buffer,
}

impl Found {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Near(spot) => spot.buffer.len(),
            Self::Far(remote) => remote.places.len,
        }
    }

    /// The first `len` bytes of it: what is written may be shorter than the memory that is named, as a message may be shorter than its receive buffer
    /// (MPI 5.0 §12.3.1). Fails with class `MPI_ERR_TRUNCATE` if it is longer.
    pub(super) fn first(self, len: usize) -> MpiResult<Self> {
        must_fit(len, self.len())?;
        Ok(match self {
            Self::Near(Spot { target, memory, buffer }) => {
                Self::Near(Spot { target, memory, buffer: buffer.part(0, len) })
            }
            Self::Far(Remote { target, places }) => Self::Far(Remote { target, places: places.first(len) }),
        })
    }
}

/// The target's memory; `None` for `MPI_PROC_NULL`.
#[inline]
pub(super) fn find(state: &State, win: WinHandle, (rank, disp, count, datatype): Target) -> MpiResult<Option<Found>> {
    let window = state.windows.get(win)?;
    if let (Some(target), Ok(count), Some(size)) = (member(window, rank), u32::try_from(count), basic_size(datatype))
        && let Some(memory) = window.near.memory(target)
    {
        let (part, len) = (&window.parts[target as usize], count as usize * size);
        let at = (disp >= 0).then(|| disp.checked_mul(part.disp_unit)).flatten().map(|at| at as usize);
        let at = at.filter(|at| at.checked_add(len).is_some_and(|end| end <= part.size));
        if let Some(at) = at {
            let start = std::ptr::with_exposed_provenance_mut(memory.address + at);
            // SAFETY: within the member's memory, which it lends until `MPI_Win_free`.
            let buffer = unsafe { Buffer::contiguous(start, len) };
            return Ok(Some(Found::Near(Spot { target, memory, buffer })));
        }
    }
    find_any(state, window, (rank, disp, count, datatype))
}

fn member(window: &Window, rank: c_int) -> Option<u32> {
    u32::try_from(rank).ok().filter(|rank| *rank < window.size())
}

#[inline(never)]
fn find_any(state: &State, window: &Window, (rank, disp, count, datatype): Target) -> MpiResult<Option<Found>> {
    let datatype = state.types.resolve_committed(datatype)?;
    let count = usize::try_from(count).map_err(|_| MpiError::count(format!("invalid count {count}")))?;
    if rank == MPI_PROC_NULL {
        return Ok(None);
    }
    let Some(target) = member(window, rank) else {
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
    if let Some(memory) = window.near.memory(target) {
        let buffer =
            if len == 0 { Some(Buffer::EMPTY) } else { near_buffer(datatype, count, start, part.size, memory) };
        let buffer = buffer.ok_or_else(|| out_of_range(disp, target))?;
        return Ok(Some(Found::Near(Spot { target, memory, buffer })));
    }
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
    Ok(Some(Found::Far(Remote { target, places })))
}

/// The elements that start `start` bytes after the begin of a member's memory of `size` bytes; `None` if they are not all in it.
fn near_buffer(datatype: &Datatype, count: usize, start: i64, size: usize, memory: Memory) -> Option<Buffer> {
    let (first, span) = datatype.span(count).ok()?;
    let at = usize::try_from(start.checked_add(first as i64)?).ok()?;
    if at.checked_add(span)? > size {
        return None;
    }
    let base = std::ptr::with_exposed_provenance_mut(memory.address.wrapping_add(start as usize));
    // SAFETY: within the member's memory, which it lends until `MPI_Win_free`.
    Some(unsafe { Buffer::new(base, count, datatype.layout()) })
}

#[cold]
fn out_of_range(disp: i64, target: u32) -> MpiError {
    MpiError::new(
        MPI_ERR_RMA_RANGE,
        format!("the memory at displacement {disp} is not all in the window of rank {target}"),
    )
}

pub(super) fn must_fit(len: usize, room: usize) -> MpiResult {
    if len <= room { Ok(()) } else { Err(too_long(len, room)) }
}

#[cold]
fn too_long(len: usize, room: usize) -> MpiError {
    MpiError::truncate(format!("{len} bytes do not fit into {room}"))
}

/// An operation that also fetches needs data of exactly the target's length.
pub(super) fn same_length(origin: usize, target: usize) -> MpiResult {
    if origin == target {
        return Ok(());
    }
    Err(MpiError::count(format!("{origin} bytes at the origin, {target} at the target")))
}

/// The operation on the elements of the target's type: a predefined one, of which the target's type consists (MPI 5.0 §12.3.3).
/// Returns `None` for an operation without elements.
pub(super) fn combination(
    state: &State,
    op: OpHandle,
    datatype: DatatypeHandle,
    len: usize,
    fetches: bool,
) -> MpiResult<Option<Combination>> {
    let OpRef::Builtin(builtin) = state.ops.resolve(op)? else {
        return Err(MpiError::op("only predefined operations can be used for accumulates"));
    };
    let element = match Element::of(datatype) {
        Some(element) => Some(element),
        None => basic(state.types.resolve_committed(datatype)?, matches!(builtin, Builtin::MinLoc | Builtin::MaxLoc)),
    };
    if builtin == Builtin::NoOp && !fetches {
        return Err(MpiError::op("MPI_NO_OP is for operations that return something"));
    }
    match element {
        _ if len == 0 => Ok(None),
        Some(element) if !len.is_multiple_of(element.size()) => {
            Err(MpiError::count(format!("{len} bytes end within an element of {}", element.size())))
        }
        Some(element) => Combination::new(builtin, element).map(Some),
        None => Err(MpiError::datatype("accumulates need a datatype that consists of one predefined datatype")),
    }
}

/// As the messages name them.
pub(super) fn handles(op: Option<OpHandle>, with: Option<&Combination>) -> (OpHandle, DatatypeHandle) {
    match (op, with) {
        (Some(op), Some(with)) => (op, with.element().handle()),
        _ => NOTHING,
    }
}

/// The predefined datatype that a datatype consists of; `pairs` if a pair is meant: those of two equal numbers also consist of numbers.
fn basic(datatype: &Datatype, pairs: bool) -> Option<Element> {
    let uniform = || if pairs { None } else { datatype.uniform() };
    if let Some(element) = datatype.element().or_else(uniform) {
        return Some(element);
    }
    let mut inner = datatype.contents().types.iter().map(|one| basic(one, pairs));
    let first = inner.next()??;
    inner.all(|other| other == Some(first)).then_some(first)
}

/// A predefined datatype, also one of `MPI_Type_create_f90_integer` and the like.
pub(super) fn predefined(state: &State, datatype: DatatypeHandle) -> MpiResult<Element> {
    match Element::of(datatype) {
        Some(element) => Ok(element),
        None => state
            .types
            .resolve_committed(datatype)?
            .element()
            .ok_or_else(|| MpiError::datatype("only predefined datatypes can be used")),
    }
}
