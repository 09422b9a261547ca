//! Handles as `int`, for Fortran (MPI 5.0 §20.3.4), and address arithmetic (§4.1.5): nothing here needs state.

use std::ffi::c_int;

use crate::abi::handle::Handle;

/// `MPI_X_toint` of all classes; a predefined handle becomes its constant.
pub fn to_int<H: Handle>(handle: H) -> c_int {
    handle.to_int()
}

/// `MPI_X_fromint` of all classes. An unknown number becomes a handle without an object.
pub fn from_int<H: Handle>(number: c_int) -> H {
    H::from_int(number)
}

/// `MPI_Aint_add`.
pub fn aint_add(base: i64, displacement: i64) -> i64 {
    base.wrapping_add(displacement)
}

/// `MPI_Aint_diff`.
pub fn aint_diff(address: i64, other: i64) -> i64 {
    address.wrapping_sub(other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::handle::Place;
    use crate::abi::{CommHandle, InfoHandle};

    #[test]
    fn handles_convert_to_an_int_and_back() {
        let made = CommHandle::made(Place { slot: 3, generation: 7 });
        assert_eq!(from_int::<CommHandle>(to_int(made)), made);
        assert_eq!((to_int(CommHandle::NULL), from_int::<CommHandle>(0x101)), (0x100, CommHandle(0x101)));
        assert_eq!(from_int::<InfoHandle>(to_int(InfoHandle::NULL)), InfoHandle::NULL);
    }

    #[test]
    fn addresses_wrap_instead_of_panicking() {
        assert_eq!(aint_diff(aint_add(i64::MAX, 2), 2), i64::MAX);
    }
}
