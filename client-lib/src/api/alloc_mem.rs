//! Memory that the library allocates for the user (MPI 5.0 §9.2), and a function that profiling tools redefine
//! (§15.2.4).

#![expect(unsafe_code, reason = "the C boundary")]
#![expect(clippy::missing_safety_doc, reason = "callers guarantee what the standard requires of them")]

use std::ffi::{c_int, c_void};

use super::args::{check_place, put};
use crate::abi::InfoHandle;
use crate::error::{MpiError, MpiResult};
use crate::runtime::Runtime;

/// A cache line: the alignment of allocated memory, unless the user requests more.
const ALIGNMENT: usize = 64;

/// `MPI_Alloc_mem`. The hint `mpi_minimum_memory_alignment` is respected.
pub unsafe fn alloc_mem(rt: &Runtime, size: i64, info: InfoHandle, baseptr: *mut c_void) -> MpiResult {
    check_place(baseptr)?;
    let wanted = usize::try_from(size).map_err(|_| MpiError::arg(format!("invalid size {size}")))?;
    let alignment = {
        let state = rt.lock();
        let hint = state.infos.hints(info)?.and_then(|hints| hints.get(b"mpi_minimum_memory_alignment"));
        let hint = hint.and_then(|hint| str::from_utf8(hint).ok()).and_then(|hint| hint.parse::<usize>().ok());
        hint.filter(|hint| hint.is_power_of_two()).map_or(ALIGNMENT, |hint| hint.max(ALIGNMENT))
    };
    let mut base = std::ptr::null_mut();
    // SAFETY: `base` is a valid place for the address; the alignment is a power of two not below the size of an
    // address.
    let failed = unsafe { libc::posix_memalign(&raw mut base, alignment, wanted.max(1)) };
    if failed != 0 {
        return Err(MpiError::no_mem(format!("cannot allocate {size} bytes")));
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

/// `MPI_Pcontrol`: for tools that redefine it.
pub unsafe fn pcontrol(_: &Runtime, _level: c_int) -> MpiResult {
    Ok(())
}
