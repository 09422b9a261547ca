//! The temporary memory of collectives.
//!
//! It is zero before its first use, because bytes may be read before they are received. Up to [`KEPT`] it remains as it is for the next
//! operation. Longer memory is mapped: getting it anew each time would cost a page fault for each page, and zeroing it more than many
//! collectives take (4 MiB: 2 ms). So it stays mapped, but the system may take its pages back when it needs memory (`MADV_FREE`).

#![expect(unsafe_code, reason = "memory that messages are received into")]

use std::alloc::{self, Layout as Allocation};
use std::num::NonZero;
use std::ptr::NonNull;

use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::error::{MpiError, MpiResult};
use crate::memory::tolerate;

/// The most bytes of memory that are kept for the next operation, whatever other processes need.
const KEPT: usize = 4 << 20;

/// The most bytes of memory that are kept unless the system needs them.
const LENT: usize = 64 << 20;

/// Mapped memory is as long as multiples of this, the size of a huge page.
const HUGE: usize = 2 << 20;

/// The memory starts on a cache line of its own, which also satisfies the alignment of any type.
pub(super) const ALIGN: usize = 64;

/// A piece of memory.
#[derive(Debug)]
pub(super) struct Block {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the block owns its memory, as a `Box<[u8]>` does.
unsafe impl Send for Block {}
// SAFETY: a shared reference gives only the address.
unsafe impl Sync for Block {}

impl Default for Block {
    fn default() -> Self {
        Self { start: NonNull::dangling(), len: 0 }
    }
}

impl Block {
    pub(super) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Has room for this many bytes afterwards.
    pub(super) fn reserve(&mut self, len: usize) -> MpiResult {
        if len <= self.len {
            return Ok(());
        }
        *self = Self::default();
        let no_memory = || MpiError::no_mem(format!("out of memory: this operation needs {len} bytes"));
        let (start, len) = if len <= KEPT { allocated(len) } else { mapped(len) }.ok_or_else(no_memory)?;
        *self = Self { start, len };
        Ok(())
    }

    /// Nothing in the memory is needed any more.
    pub(super) fn trim(&mut self) {
        if self.len > LENT {
            *self = Self::default();
        } else if self.len > KEPT {
            // SAFETY: the memory is this block's, and whatever is read there afterwards, old bytes or zeros, is initialised. If it
            // fails (before Linux 4.5), the pages remain.
            let _ = unsafe { madvise(self.start.cast(), self.len, MmapAdvise::MADV_FREE) };
        }
    }
}

fn allocated(len: usize) -> Option<(NonNull<u8>, usize)> {
    let len = len.next_power_of_two();
    let allocation = Allocation::from_size_align(len, ALIGN).ok()?;
    // SAFETY: the length is not 0.
    let start = tolerate(|| unsafe { alloc::alloc_zeroed(allocation) });
    Some((NonNull::new(start)?, len))
}

fn mapped(len: usize) -> Option<(NonNull<u8>, usize)> {
    let len = len.checked_next_multiple_of(HUGE)?;
    let (access, flags) = (ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_PRIVATE);
    // SAFETY: new memory, which nothing else uses.
    let start = unsafe { mmap_anonymous(None, NonZero::new(len)?, access, flags) }.ok()?;
    // SAFETY: as above. It is only advice: a system without huge pages refuses it.
    let _ = unsafe { madvise(start, len, MmapAdvise::MADV_HUGEPAGE) };
    Some((start.cast(), len))
}

impl Drop for Block {
    fn drop(&mut self) {
        match self.len {
            0 => {}
            // SAFETY: `allocated` made it with this layout.
            1..=KEPT => unsafe {
                alloc::dealloc(self.start(), Allocation::from_size_align_unchecked(self.len, ALIGN));
            },
            // SAFETY: `mapped` made this mapping, with this length, and nothing uses it any more; with such arguments, munmap cannot fail.
            _ => drop(unsafe { munmap(self.start.cast(), self.len) }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(block: &mut Block) -> &mut [u8] {
        // SAFETY: the block is alive, and the tests make one reference at a time.
        unsafe { std::slice::from_raw_parts_mut(block.start(), block.len) }
    }

    #[test]
    fn memory_of_any_length_is_zero_aligned_and_kept() {
        let mut block = Block::default();
        for (wanted, expected) in [(1, 1), (100, 128), (KEPT, KEPT), (KEPT + 1, KEPT + HUGE), (3 * KEPT, 3 * KEPT)] {
            block.reserve(wanted).unwrap();
            assert_eq!((block.len, block.start().addr() % ALIGN), (expected, 0));
            assert!(bytes(&mut block).iter().all(|byte| *byte == 0));
            bytes(&mut block).fill(7);
            let before = block.start();
            block.trim();
            block.reserve(wanted / 2).unwrap();
            assert_eq!((block.start(), block.len), (before, expected));
            // Long memory may have been taken back.
            assert!(bytes(&mut block).iter().all(|byte| *byte == 7 || expected > KEPT && *byte == 0));
        }
    }

    #[test]
    fn huge_memory_is_given_back_and_impossible_memory_is_an_error() {
        let mut block = Block::default();
        block.reserve(LENT + 1).unwrap();
        bytes(&mut block)[LENT] = 1;
        block.trim();
        assert_eq!(block.len, 0);
        for len in [usize::MAX, isize::MAX as usize, 1 << 60] {
            let error = block.reserve(len).unwrap_err();
            assert!(error.to_string().contains(&format!("this operation needs {len} bytes")), "{error}");
        }
        block.reserve(10).unwrap();
        assert_eq!(block.len, 16);
    }
}
