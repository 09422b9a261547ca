//! The loops that copy between packed bytes and their places in memory.
//!
//! Runs of 1 to 32 bytes, as in vectors of numbers, are copied by moves of exactly that length; longer ones by the C library's
//! `memmove`, which is defined even if a user has lent overlapping memory against the standard's rules. Structures are copied
//! field by field, in batches that fit the nearest cache: each field is a loop of equal moves.

#![expect(unsafe_code, reason = "copies from and to memory that the user has lent")]

use super::shape::{Run, Visitor};
use crate::copy::copy;

/// Packed bytes that fit the nearest cache together with the memory that they come from.
const NEAR: usize = 4096;

/// Copies what it visits to packed bytes.
pub(super) type Pack = Copier<true>;
/// Copies packed bytes to what it visits.
pub(super) type Unpack = Copier<false>;

/// Copies between what it visits and consecutive packed bytes.
pub(super) struct Copier<const PACK: bool> {
    packed: *mut u8,
}

impl Copier<true> {
    /// # Safety
    ///
    /// There must be room for all that will be visited, which must be readable.
    #[inline]
    pub(super) unsafe fn new(into: *mut u8) -> Self {
        Self { packed: into }
    }
}

impl Copier<false> {
    /// # Safety
    ///
    /// `from` must have a byte for each byte that will be visited, and these must be writable.
    #[inline]
    pub(super) unsafe fn new(from: *const u8) -> Self {
        Self { packed: from.cast_mut() }
    }
}

/// Calls `$copy::<N>` for a length that has a loop of its own, otherwise `$other`.
macro_rules! by_length {
    ($len:expr, $self:ident.$copy:ident($($argument:expr),*), $other:expr) => {
        match $len {
            1 => $self.$copy::<1>($($argument),*),
            2 => $self.$copy::<2>($($argument),*),
            3 => $self.$copy::<3>($($argument),*),
            4 => $self.$copy::<4>($($argument),*),
            6 => $self.$copy::<6>($($argument),*),
            8 => $self.$copy::<8>($($argument),*),
            12 => $self.$copy::<12>($($argument),*),
            16 => $self.$copy::<16>($($argument),*),
            20 => $self.$copy::<20>($($argument),*),
            24 => $self.$copy::<24>($($argument),*),
            32 => $self.$copy::<32>($($argument),*),
            _ => $other,
        }
    };
}

impl<const PACK: bool> Copier<PACK> {
    #[inline(always)]
    fn fixed<const N: usize>(&mut self, address: *mut u8) {
        // SAFETY: the creator has guaranteed that the visited bytes may be used, and that there is a packed byte for
        // each.
        unsafe {
            if PACK {
                std::ptr::copy(address.cast_const(), self.packed, N);
            } else {
                std::ptr::copy(self.packed.cast_const(), address, N);
            }
            self.packed = self.packed.add(N);
        }
    }

    #[inline(always)]
    fn any(&mut self, address: *mut u8, len: usize) {
        // SAFETY: as above.
        unsafe {
            if PACK {
                copy(address.cast_const(), self.packed, len);
            } else {
                copy(self.packed.cast_const(), address, len);
            }
            self.packed = self.packed.add(len);
        }
    }

    #[inline]
    fn fixed_strided<const N: usize>(&mut self, address: *mut u8, stride: isize, count: usize) {
        let mut address = address;
        for _ in 0..count {
            self.fixed::<N>(address);
            address = address.wrapping_offset(stride);
        }
    }

    /// Copies from every `stride` bytes to every `packed_stride` bytes, or back.
    #[inline]
    fn fixed_crossed<const N: usize>(
        &mut self,
        address: *mut u8,
        stride: isize,
        packed: *mut u8,
        packed_stride: usize,
        count: usize,
    ) {
        let (mut address, mut packed) = (address, packed);
        for _ in 0..count {
            // SAFETY: as above.
            unsafe {
                if PACK {
                    std::ptr::copy(address.cast_const(), packed, N);
                } else {
                    std::ptr::copy(packed.cast_const(), address, N);
                }
            }
            address = address.wrapping_offset(stride);
            packed = packed.wrapping_add(packed_stride);
        }
    }

    #[inline]
    fn fixed_scattered<const N: usize>(&mut self, address: *mut u8, offsets: &[isize]) {
        for offset in offsets {
            self.fixed::<N>(address.wrapping_offset(*offset));
        }
    }
}

impl<const PACK: bool> Visitor for Copier<PACK> {
    #[inline]
    fn run(&mut self, address: *mut u8, len: usize) -> bool {
        by_length!(len, self.fixed(address), self.any(address, len));
        true
    }

    fn strided(&mut self, address: *mut u8, stride: isize, len: usize, count: usize) -> bool {
        by_length!(len, self.fixed_strided(address, stride, count), {
            for index in 0..count {
                self.any(address.wrapping_offset(stride.wrapping_mul(index as isize)), len);
            }
        });
        true
    }

    fn crossed(&mut self, address: *mut u8, stride: isize, runs: &[Run], size: usize, count: usize) -> bool {
        let at_once = (NEAR / size).max(1);
        let (mut address, mut left) = (address, count);
        while left > 0 {
            let count = left.min(at_once);
            let start = self.packed;
            for run in runs {
                let (from, packed) = (address.wrapping_offset(run.offset), start.wrapping_add(run.at));
                by_length!(run.len, self.fixed_crossed(from, stride, packed, size, count), {
                    for index in 0..count {
                        self.packed = packed.wrapping_add(size * index);
                        self.any(from.wrapping_offset(stride.wrapping_mul(index as isize)), run.len);
                    }
                });
            }
            self.packed = start.wrapping_add(size * count);
            address = address.wrapping_offset(stride.wrapping_mul(count as isize));
            left -= count;
        }
        true
    }

    fn scattered(&mut self, address: *mut u8, offsets: &[isize], len: usize) -> bool {
        by_length!(len, self.fixed_scattered(address, offsets), {
            for offset in offsets {
                self.any(address.wrapping_offset(*offset), len);
            }
        });
        true
    }
}

/// Lists what it visits, merging pieces that touch.
pub(super) struct Pieces<'a> {
    visit: &'a mut dyn FnMut(*mut u8, usize) -> bool,
    /// Not listed yet, because the next piece may touch it.
    last: (*mut u8, usize),
}

impl<'a> Pieces<'a> {
    pub(super) fn new(visit: &'a mut dyn FnMut(*mut u8, usize) -> bool) -> Self {
        Self { visit, last: (std::ptr::null_mut(), 0) }
    }

    /// Lists the last piece.
    pub(super) fn finish(self) {
        if self.last.1 > 0 {
            (self.visit)(self.last.0, self.last.1);
        }
    }
}

impl Visitor for Pieces<'_> {
    fn run(&mut self, address: *mut u8, len: usize) -> bool {
        let (start, before) = self.last;
        if before > 0 && start.wrapping_add(before) == address {
            self.last.1 += len;
            return true;
        }
        self.last = (address, len);
        if before > 0 && !(self.visit)(start, before) {
            self.last.1 = 0;
            return false;
        }
        true
    }
}
