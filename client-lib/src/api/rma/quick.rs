//! The common case of one-sided operations in few instructions: predefined datatypes without holes, memory of this node that is mapped here,
//! and arguments that are valid. Everything else returns `None`, and goes the general way, which finds what is wrong.

use std::ffi::c_void;

use super::{Origin, Target};
use crate::abi::constants::MPI_NO_OP;
use crate::abi::{DatatypeHandle, OpHandle, WinHandle};
use crate::copy;
use crate::datatype::basic_size;
use crate::device;
use crate::object::window::Window;
use crate::runtime::{Runtime, State};

/// The direction of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Put,
    Get,
}

/// Copies to or from the target's memory.
///
/// # Safety
///
/// As for `MPI_Put` and `MPI_Get`.
#[inline]
pub(super) unsafe fn copy(rt: &Runtime, way: Way, origin: Origin, target: Target, win: WinHandle) -> Option<()> {
    let guard = rt.lock();
    let window = guard.windows.get(win).ok()?;
    let (there, len) = place(window, target)?;
    let here = lent(origin, len)?;
    // SAFETY: both have `len` bytes. The user may name the same memory twice, against the standard's rules: `copy` is defined even then.
    unsafe {
        match way {
            Way::Put => copy::copy(here, there, len),
            Way::Get => copy::copy(there, here, len),
        }
    }
    Some(())
}

/// Combines data with the target's memory, and returns what was there before if there is a place for it.
///
/// # Safety
///
/// As for `MPI_Get_accumulate`.
#[inline]
pub(super) unsafe fn accumulate(
    rt: &Runtime,
    origin: Origin,
    result: Option<Origin>,
    target: Target,
    op: OpHandle,
    win: WinHandle,
) -> Option<()> {
    let mut guard = rt.lock();
    let State { windows, .. } = &mut *guard;
    let window = windows.get_mut(win).ok()?;
    let (there, len) = place(window, target)?;
    let data = match op {
        OpHandle(MPI_NO_OP) if result.is_some() => std::ptr::null_mut(),
        OpHandle(MPI_NO_OP) => return None,
        _ => lent(origin, len)?,
    };
    let before = result.map_or(Some(std::ptr::null_mut()), |result| lent(result, len))?;
    let combination = window.known(op, target.3)?;
    // SAFETY: all have `len` bytes, which are whole elements.
    unsafe { window.near.accumulate_at_once(target.0 as u32, combination, data, before, there, len) }
}

/// Memory of the target that this process may use now, and its length, unless there is none.
#[inline(always)]
fn place(window: &Window, (rank, disp, count, datatype): Target) -> Option<(*mut u8, usize)> {
    let len = usize::try_from(count).ok()?.checked_mul(basic_size(datatype)?)?;
    let spot = window.spot(rank as u32)?;
    let at = usize::try_from(disp).ok()?.checked_mul(spot.disp_unit)?;
    let is_within = len > 0 && at.checked_add(len)? <= spot.size;
    (is_within && window.access.permits(rank as u32)).then(|| (spot.start.wrapping_add(at), len))
}

/// The origin's memory, if it has this length.
#[inline(always)]
fn lent((address, count, datatype): (*const c_void, i64, DatatypeHandle), len: usize) -> Option<*mut u8> {
    let same = usize::try_from(count).ok()?.checked_mul(basic_size(datatype)?)? == len;
    (same && !address.is_null() && !device::may_hold(address.cast())).then_some(address.cast_mut().cast())
}
