//! Operations to reduce with, whose results show in what order the operands stood.

#![expect(unsafe_code, reason = "operations work on elements at addresses")]

use super::super::run::UserCall;

/// How elements of a reduction look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Op {
    /// The sum of 4-byte integers, which commutes.
    Sum,
    /// The composition of linear functions of 2 integers of 4 bytes, which does not.
    Compose,
}

impl Op {
    pub(super) fn unit(self) -> usize {
        match self {
            Self::Sum => 4,
            Self::Compose => 8,
        }
    }

    /// `right` becomes left op right, in packed bytes.
    pub(super) fn apply(self, left: &[u8], right: &mut [u8]) {
        for (left, right) in left.chunks(self.unit()).zip(right.chunks_mut(self.unit())) {
            let word = |bytes: &[u8], index: usize| {
                u32::from_ne_bytes([bytes[4 * index], bytes[4 * index + 1], bytes[4 * index + 2], bytes[4 * index + 3]])
            };
            match self {
                Self::Sum => {
                    let sum = word(left, 0).wrapping_add(word(right, 0));
                    right.copy_from_slice(&sum.to_ne_bytes());
                }
                Self::Compose => {
                    let (a, b, c, d) = (word(left, 0), word(left, 1), word(right, 0), word(right, 1));
                    right[..4].copy_from_slice(&a.wrapping_mul(c).to_ne_bytes());
                    right[4..].copy_from_slice(&b.wrapping_mul(c).wrapping_add(d).to_ne_bytes());
                }
            }
        }
    }

    /// As the library would call a function of the user's, for elements `extent` bytes apart whose halves lie `apart` bytes apart
    /// from `first` bytes after their addresses on.
    pub(super) fn call(self, call: UserCall, extent: isize, first: isize, apart: isize) {
        let half = self.unit() / 2;
        for index in 0..call.count as isize {
            let place =
                |base: *mut u8, side: usize| base.wrapping_offset(index * extent + first + side as isize * apart);
            let mut packed = [[0_u8; 8]; 2];
            for (packed, base) in packed.iter_mut().zip([call.left.cast_mut(), call.right]) {
                for side in 0..2 {
                    // SAFETY: the run under test says that the elements are there; that is what is tested.
                    unsafe { place(base, side).copy_to(packed[side * half..].as_mut_ptr(), half) };
                }
            }
            let [left, mut right] = packed;
            self.apply(&left[..self.unit()], &mut right[..self.unit()]);
            for side in 0..2 {
                // SAFETY: as above.
                unsafe { place(call.right, side).copy_from(right[side * half..].as_ptr(), half) };
            }
        }
    }
}

/// [`Op::Sum`] of packed elements, as a kernel.
pub(super) unsafe fn sum(left: *const u8, right: *mut u8, count: usize) {
    Op::Sum.call(UserCall { left, right, count }, 4, 0, 2);
}

/// [`Op::Compose`] of packed elements, as a kernel.
pub(super) unsafe fn compose(left: *const u8, right: *mut u8, count: usize) {
    Op::Compose.call(UserCall { left, right, count }, 8, 0, 4);
}
