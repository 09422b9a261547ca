//! The memory that windows make.

use std::ffi::c_void;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

use crate::error::{MpiError, MpiResult};

/// A mapping of memory that processes of a node share.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<c_void>,
    len: NonZeroUsize,
}

// SAFETY: an address of memory that the window owns.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes.
    pub fn new(fd: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        let len = NonZeroUsize::new(len).ok_or(io::ErrorKind::InvalidInput)?;
        if (nix::sys::stat::fstat(fd)?.st_size as u64) < len.get() as u64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        // SAFETY: a new mapping, at an address that the kernel chooses, touches no existing memory.
        let start =
            unsafe { mmap(None, len, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_SHARED, fd, 0) }?;
        Ok(Self { start, len })
    }

    /// Its address.
    pub fn address(&self) -> usize {
        self.start.as_ptr().expose_provenance()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `new` mapped it; the window's memory is not used after `MPI_Win_free`.
        let _ = unsafe { munmap(self.start, self.len.get()) };
    }
}

/// Memory that a window keeps.
#[derive(Debug, Default)]
pub enum Kept {
    /// None: the user's.
    #[default]
    None,
    /// From the heap.
    Heap(Heap),
    /// Shared.
    Shared(Mapping),
}

/// A block of the C library's heap.
#[derive(Debug)]
pub struct Heap(NonNull<c_void>);

// SAFETY: an address of memory that the window owns.
unsafe impl Send for Heap {}

impl Drop for Heap {
    fn drop(&mut self) {
        // SAFETY: `Kept::heap` allocated it.
        unsafe { libc::free(self.0.as_ptr()) };
    }
}

impl Kept {
    /// A cache line, as `MPI_Alloc_mem`.
    const ALIGNMENT: usize = 64;

    /// Memory from the heap, and its address.
    pub fn heap(len: usize) -> MpiResult<(Self, usize)> {
        let mut base = std::ptr::null_mut();
        // SAFETY: `base` is a valid place; the alignment is a power of two.
        let failed = unsafe { libc::posix_memalign(&raw mut base, Self::ALIGNMENT, len.max(1)) } != 0;
        match NonNull::new(base).filter(|_| !failed) {
            Some(base) => Ok((Self::Heap(Heap(base)), base.as_ptr().expose_provenance())),
            None => Err(MpiError::no_mem(format!("failed to allocate {len} bytes for the window"))),
        }
    }

    /// Whether the window has no memory of its own.
    pub fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    /// Gives it up without freeing it.
    pub(super) fn leak(self) {
        std::mem::forget(self);
    }
}
