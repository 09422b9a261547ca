//! Atomics and cells for memory that several processes share, or that loom checks under `--cfg loom`, or whose accesses the library's own
//! tests count (`traffic`).

#[cfg(loom)]
pub(crate) use loom::cell::UnsafeCell;
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(any(loom, test)))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{Ordering, fence};

#[cfg(all(test, not(loom)))]
pub(crate) use super::traffic::{AtomicU32, AtomicU64};

/// As loom's: access by pointer, for as long as a closure runs.
#[cfg(not(loom))]
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    #[inline(always)]
    pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        reads(self.0.get().cast(), size_of::<T>());
        f(self.0.get())
    }

    #[inline(always)]
    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        writes(self.0.get().cast(), size_of::<T>());
        f(self.0.get())
    }
}

/// The caller reads `len` bytes at an address that may be shared. Only tests look at that.
#[inline(always)]
pub(crate) fn reads(start: *const u8, len: usize) {
    #[cfg(all(test, not(loom)))]
    super::traffic::on_access(start.addr(), len, super::traffic::Access::Read);
    let _ = (start, len);
}

/// As [`reads`], if the caller writes there.
#[inline(always)]
pub(crate) fn writes(start: *const u8, len: usize) {
    #[cfg(all(test, not(loom)))]
    super::traffic::on_access(start.addr(), len, super::traffic::Access::Write);
    let _ = (start, len);
}

/// A full barrier after an atomic read-modify-write of the same thread. On x86-64 that instruction is already a full
/// barrier.
#[inline(always)]
pub(crate) fn fence_after_rmw() {
    if cfg!(all(target_arch = "x86_64", not(loom))) {
        std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}

/// A value alone on its cache lines: two lines, since processors fetch them in pairs.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Line<T>(pub(crate) T);
