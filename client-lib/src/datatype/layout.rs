//! The places of a message's bytes in memory, and the visits that pack, unpack and list them.
//!
//! Packed order is the order of the type map (MPI 5.0 §5.1), wherever the bytes are: elements may overlap and run backwards.

use super::copy::{Pack, Pieces, Unpack};
use super::element::is_tracked;
use super::shape::{Sequence, Shape, Visitor};
use super::sign::Sign;
use super::signature::Signature;

/// The places of an element's packed bytes, relative to its address, and the distance to the next element.
#[derive(Debug)]
pub struct Layout {
    shape: Shape,
    extent: isize,
    signature: Option<Signature>,
}

impl Layout {
    /// A layout of blocks (offset, length) in packed order.
    pub fn new(pieces: &[(isize, usize)], extent: isize) -> Self {
        let mut sequence = Sequence::default();
        for &(offset, len) in pieces {
            sequence.push(Shape::bytes(len).moved(offset));
        }
        Self { shape: sequence.finish(), extent, signature: None }
    }

    pub(super) fn of(shape: Shape, extent: isize, signature: Signature) -> Self {
        Self { shape, extent, signature: Some(signature) }
    }

    /// The basic datatypes of the `len` packed bytes after the first `skip`, if they are known.
    pub fn sign(&self, skip: usize, len: usize) -> Sign {
        self.signature.as_ref().map_or(Sign::UNKNOWN, |signature| Sign::of(signature, skip, len))
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

    /// The offset of the first byte from the address, if `count` elements are contiguous in packed order, and their datatype may be forgotten
    /// ([`track`](super::track)).
    #[inline]
    pub fn contiguous_at(&self, count: usize) -> Option<isize> {
        let side_by_side = self.shape.is_contiguous() && (count == 1 || self.extent == self.shape.size as isize);
        (side_by_side && !is_tracked()).then_some(self.shape.offset)
    }

    /// Copies the packed bytes from `at` on, of any number of elements.
    ///
    /// # Safety
    ///
    /// The memory of the elements that hold them must be readable, and `len` bytes at `into` writable.
    #[expect(unsafe_code, reason = "copies from memory that the user has lent")]
    pub unsafe fn pack(&self, base: *mut u8, at: usize, into: *mut u8, len: usize) {
        // SAFETY: the caller's promise; `into` has a byte for each visited byte.
        let mut pack = unsafe { Pack::new(into) };
        self.visit(base, at, len, &mut pack);
    }

    /// Overwrites the packed bytes from `at` on, of any number of elements.
    ///
    /// # Safety
    ///
    /// The memory of the elements that hold them must be writable, and `len` bytes at `from` readable.
    #[expect(unsafe_code, reason = "copies to memory that the user has lent")]
    pub unsafe fn unpack(&self, base: *mut u8, at: usize, from: *const u8, len: usize) {
        // SAFETY: the caller's promise; `from` has a byte for each visited byte.
        let mut unpack = unsafe { Unpack::new(from) };
        self.visit(base, at, len, &mut unpack);
    }

    /// Lists the pieces of memory that hold the packed bytes from `at` on, until `len` bytes are listed or `visit`
    /// returns false. Pieces that touch are merged.
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
