//! Where the bytes of messages lie in memory, and the visits that pack, unpack and list them.
//!
//! Packed order is the order of the type map (MPI 5.0 §5.1), whatever the places: elements may overlap and go backwards.

use super::copy::{Pack, Pieces, Unpack};
use super::shape::{Sequence, Shape, Visitor};

/// Places of the packed bytes of one element, relative to its address, and the distance to the next element.
#[derive(Debug)]
pub struct Layout {
    shape: Shape,
    extent: isize,
}

impl Layout {
    /// Of blocks (offset, length) in packed order.
    pub fn new(pieces: &[(isize, usize)], extent: isize) -> Self {
        let mut sequence = Sequence::default();
        for &(offset, len) in pieces {
            sequence.push(Shape::bytes(len).moved(offset));
        }
        Self { shape: sequence.finish(), extent }
    }

    pub(super) fn of(shape: Shape, extent: isize) -> Self {
        Self { shape, extent }
    }

    /// Packed bytes of one element.
    #[inline]
    pub fn size(&self) -> usize {
        self.shape.size
    }

    /// Distance from one element to the next, in bytes.
    #[inline]
    pub fn extent(&self) -> isize {
        self.extent
    }

    /// If `count` elements lie side by side in packed order: the first byte's offset from the address.
    #[inline]
    pub fn contiguous_at(&self, count: usize) -> Option<isize> {
        let side_by_side = self.shape.is_contiguous() && (count == 1 || self.extent == self.shape.size as isize);
        side_by_side.then_some(self.shape.offset)
    }

    /// Copies packed bytes from `at` on, of any number of elements.
    ///
    /// # Safety
    ///
    /// The memory of the elements that hold them must be readable.
    #[expect(unsafe_code, reason = "copies from memory that the user has lent")]
    pub unsafe fn pack(&self, base: *mut u8, at: usize, into: &mut [u8]) {
        // SAFETY: the caller's promise; `into` is as long as all that is visited.
        let mut pack = unsafe { Pack::new(into.as_mut_ptr()) };
        self.visit(base, at, into.len(), &mut pack);
    }

    /// Copies over packed bytes from `at` on, of any number of elements.
    ///
    /// # Safety
    ///
    /// The memory of the elements that hold them must be writable.
    #[expect(unsafe_code, reason = "copies to memory that the user has lent")]
    pub unsafe fn unpack(&self, base: *mut u8, at: usize, from: &[u8]) {
        // SAFETY: the caller's promise; `from` is as long as all that is visited.
        let mut unpack = unsafe { Unpack::new(from.as_ptr()) };
        self.visit(base, at, from.len(), &mut unpack);
    }

    /// Names the pieces of memory with the packed bytes from `at` on, until `len` bytes are named or `visit` says no. Pieces
    /// that touch are named as one.
    pub fn pieces(&self, base: *mut u8, at: usize, len: usize, visit: &mut dyn FnMut(*mut u8, usize) -> bool) {
        let mut pieces = Pieces::new(visit);
        self.visit(base, at, len, &mut pieces);
        pieces.finish();
    }

    fn visit<V: Visitor>(&self, base: *mut u8, at: usize, len: usize, visitor: &mut V) {
        if len > 0 && self.shape.size > 0 {
            self.shape.visit_repeated(self.extent, base, at, at + len, visitor);
        }
    }
}
