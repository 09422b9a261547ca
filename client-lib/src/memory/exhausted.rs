//! When memory is exhausted: the process ends with a sentence, instead of an abort with a backtrace. Operations that need memory in
//! proportion to the user's counts ask for it in [`tolerate`], and fail with class `MPI_ERR_NO_MEM` instead.

#![expect(unsafe_code, reason = "the allocator of this library")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::Write;

use crate::abi::constants::MPI_ERR_NO_MEM;
use crate::error::{MpiError, MpiResult};

/// The system's allocator, which this library alone uses by this name.
struct Exhaustible;

#[global_allocator]
static ALLOCATOR: Exhaustible = Exhaustible;

thread_local! {
    static TOLERATED: Cell<bool> = const { Cell::new(false) };
}

/// Zeroed memory; fails with class `MPI_ERR_NO_MEM`.
pub fn zeroed(len: usize) -> MpiResult<Box<[u8]>> {
    let mut bytes = Vec::new();
    if tolerate(|| bytes.try_reserve_exact(len)).is_err() {
        return Err(MpiError::no_mem(format!("failed to allocate {len} bytes")));
    }
    bytes.resize(len, 0);
    Ok(bytes.into())
}

/// Runs a closure in which allocations may fail (`Vec::try_reserve_exact`).
pub fn tolerate<T>(body: impl FnOnce() -> T) -> T {
    let before = TOLERATED.with(|tolerated| tolerated.replace(true));
    let result = body();
    TOLERATED.with(|tolerated| tolerated.set(before));
    result
}

// SAFETY: every request goes to the system's allocator, unchanged.
unsafe impl GlobalAlloc for Exhaustible {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        checked(unsafe { System.alloc(layout) }, layout.size())
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        checked(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    #[inline]
    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        checked(unsafe { System.realloc(old, layout, size) }, size)
    }

    #[inline]
    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(old, layout) }
    }
}

#[inline(always)]
fn checked(got: *mut u8, bytes: usize) -> *mut u8 {
    if got.is_null() { refused(bytes) } else { got }
}

#[cold]
fn refused(bytes: usize) -> *mut u8 {
    if TOLERATED.try_with(Cell::get).unwrap_or(false) {
        return std::ptr::null_mut();
    }
    let mut text = [0; 96];
    let mut rest = &mut text[..];
    let _ = writeln!(rest, "MPI error: out of memory: failed to allocate {bytes} bytes");
    let unused = rest.len();
    let text = &text[..text.len() - unused];
    // SAFETY: writes this library's own bytes, and ends the process: nothing here allocates.
    unsafe {
        let _ = libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len());
        libc::_exit(MPI_ERR_NO_MEM & 0xff)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_cannot_be_had_is_an_error() {
        assert_eq!(zeroed(isize::MAX as usize - 100).unwrap_err().class, MPI_ERR_NO_MEM);
        assert_eq!(*zeroed(3).unwrap(), [0; 3]);
        assert!(!TOLERATED.with(Cell::get));
    }
}
