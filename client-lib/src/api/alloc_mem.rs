//! Memory that the library gives out (MPI 5.0 §9.2), and what profiling tools redefine (§15.2.4).

#![expect(unsafe_code, reason = "the border to C")]
#![expect(clippy::missing_safety_doc, reason = "callers promise what the standard demands of a function's caller")]

use std::ffi::{c_int, c_void};

use super::args::{check_place, put};
use crate::abi::InfoHandle;
use crate::error::{MpiError, MpiResult};
use crate::runtime::Runtime;

/// A cache line: what is given out begins with one, unless the user wants more.
const ALIGNMENT: usize = 64;

/// `MPI_Alloc_mem`. The hint `mpi_minimum_memory_alignment` is heeded.
pub unsafe fn alloc_mem(rt: &Runtime, size: i64, info: InfoHandle, baseptr: *mut c_void) -> MpiResult {
    check_place(baseptr)?;
    let wanted = usize::try_from(size).map_err(|_| MpiError::arg(format!("the size is {size}")))?;
    let alignment = {
        let state = rt.lock();
        let hint = state.infos.hints(info)?.and_then(|hints| hints.get(b"mpi_minimum_memory_alignment"));
        let hint = hint.and_then(|hint| str::from_utf8(hint).ok()).and_then(|hint| hint.parse::<usize>().ok());
        hint.filter(|hint| hint.is_power_of_two()).map_or(ALIGNMENT, |hint| hint.max(ALIGNMENT))
    };
    let mut base = std::ptr::null_mut();
    // SAFETY: the place for the address is ours; the alignment is a power of two above the size of an address.
    let failed = unsafe { libc::posix_memalign(&raw mut base, alignment, wanted.max(1)) };
    if failed != 0 {
        return Err(MpiError::no_mem(format!("there is no memory of {size} bytes")));
    }
    // SAFETY: the caller's promise: the address of an address.
    unsafe { put(baseptr.cast::<*mut c_void>(), base) }
}

/// `MPI_Free_mem`.
pub unsafe fn free_mem(_: &Runtime, base: *mut c_void) -> MpiResult {
    // SAFETY: the caller's promise: from MPI_Alloc_mem, and not freed yet.
    unsafe { libc::free(base) };
    Ok(())
}

/// `MPI_Pcontrol`: for tools that define it themselves.
pub unsafe fn pcontrol(_: &Runtime, _level: c_int) -> MpiResult {
    Ok(())
}
