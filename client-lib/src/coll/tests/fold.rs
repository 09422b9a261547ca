//! Reduction operations whose results show the order of the operands.

#![expect(unsafe_code, reason = "operations work on elements at addresses")]

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use crate::abi::constants::{MPI_BYTE, MPI_SUM, MPI_UINT32_T};
use crate::abi::{DatatypeHandle, OpHandle};
use crate::datatype::{Datatype, Element, Form, TypeRef, Unit};
use crate::object::ops::Ops;
use crate::op::Reduction;

/// An operation and its elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Op {
    /// The sum of 4-byte integers, which commutes.
    Sum,
    /// The composition of linear functions of two 4-byte integers, which does not commute.
    Compose,
}

impl Op {
    pub(super) fn unit(self) -> usize {
        match self {
            Self::Sum => 4,
            Self::Compose => 8,
        }
    }

    /// Sets `right` to `left` op `right`, in packed bytes.
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

    /// The reduction that a program would pass, for elements laid out as in [`with_holes`] or without holes.
    pub(super) fn reduction(self, datatype: &Datatype, user: bool, holes: bool) -> Reduction {
        let function = match (self, holes) {
            (Self::Sum, false) if !user => {
                let (sum, number) = (OpHandle(MPI_SUM), DatatypeHandle(MPI_UINT32_T));
                let element = Element::of(number).expect("it is predefined");
                let sum = Ops::default().resolve(sum).expect("it is predefined");
                return Reduction::new(&sum, Datatype::predefined(element), number).expect("integers have a sum");
            }
            (Self::Sum, false) => sum as *const c_void,
            (Self::Sum, true) => sum_with_holes as *const c_void,
            (Self::Compose, false) => compose as *const c_void,
            (Self::Compose, true) => compose_with_holes as *const c_void,
        };
        let mut ops = Ops::default();
        let handle = ops.create(function, false, self == Self::Sum).expect("there is room");
        let op = ops.resolve(handle).expect("it was just made");
        Reduction::new(&op, datatype, DatatypeHandle(MPI_BYTE)).expect("a user's function takes any type")
    }

    /// For elements `extent` bytes apart; each has two halves `apart` bytes apart, the first one `first` bytes after
    /// the element's address.
    unsafe fn combine(self, left: *const u8, right: *mut u8, count: c_int, extent: isize, first: isize, apart: isize) {
        let half = self.unit() / 2;
        for index in 0..count as isize {
            let place =
                |base: *mut u8, side: usize| base.wrapping_offset(index * extent + first + side as isize * apart);
            let mut packed = [[0_u8; 8]; 2];
            for (packed, base) in packed.iter_mut().zip([left.cast_mut(), right]) {
                for side in 0..2 {
                    // SAFETY: the run under test guarantees that the elements exist; that is what the test checks.
                    unsafe { place(base, side).copy_to(packed[side * half..].as_mut_ptr(), half) };
                }
            }
            let [left, mut result] = packed;
            self.apply(&left[..self.unit()], &mut result[..self.unit()]);
            for side in 0..2 {
                // SAFETY: as above.
                unsafe { place(right, side).copy_from(result[side * half..].as_ptr(), half) };
            }
        }
    }
}

/// Elements of `unit` bytes in two pieces, stored backwards and starting before their address.
pub(super) fn with_holes(unit: usize) -> TypeRef {
    let byte =
        TypeRef::Predefined(Datatype::predefined(Element::of(DatatypeHandle(MPI_BYTE)).expect("it is predefined")));
    let half = unit as i64 / 2;
    let pieces =
        Datatype::indexed(Form::Count, Unit::Bytes, &[half, half], &[FIRST as i64, (FIRST + APART) as i64], &byte);
    let pieces = TypeRef::Made(Arc::new(pieces.expect("two pieces are a type")));
    let elements = Datatype::resized(Form::Count, 0, extent(unit) as i64, &pieces).expect("its extent may be negative");
    TypeRef::Made(Arc::new(elements))
}

/// Contiguous elements of `unit` bytes.
pub(super) fn without_holes(unit: usize) -> TypeRef {
    let byte =
        TypeRef::Predefined(Datatype::predefined(Element::of(DatatypeHandle(MPI_BYTE)).expect("it is predefined")));
    TypeRef::Made(Arc::new(
        Datatype::contiguous(Form::Count, unit as i64, &byte).expect("bytes side by side are a type"),
    ))
}

const FIRST: isize = -4;
const APART: isize = 12;

fn extent(unit: usize) -> isize {
    -(APART + unit as isize + 3)
}

macro_rules! functions {
    ($($name:ident $op:ident $extent:expr, $first:expr, $apart:expr;)*) => {$(
        extern "C" fn $name(left: *mut c_void, right: *mut c_void, len: *mut c_int, _: *mut DatatypeHandle) {
            // SAFETY: the library under test passes what the standard requires.
            unsafe { Op::$op.combine(left.cast(), right.cast(), *len, $extent, $first, $apart) };
        }
    )*};
}

functions! {
    sum Sum 4, 0, 2;
    compose Compose 8, 0, 4;
    sum_with_holes Sum extent(4), FIRST, APART;
    compose_with_holes Compose extent(8), FIRST, APART;
}
