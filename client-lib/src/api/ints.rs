//! Integers that are `int` in one form of a function and `MPI_Count` or `MPI_Aint` in the other.

#![expect(unsafe_code, reason = "arrays that C passes by address")]

use std::ffi::c_int;

use crate::error::{MpiError, MpiResult};

/// An array of integers that belongs to the caller.
#[derive(Debug, Clone, Copy)]
pub enum Ints {
    /// `const int []`.
    Narrow(*const c_int),
    /// `const MPI_Count []` or `const MPI_Aint []`.
    Wide(*const i64),
}

impl Ints {
    /// Whether the pointer is null.
    pub fn is_null(self) -> bool {
        match self {
            Self::Narrow(array) => array.is_null(),
            Self::Wide(array) => array.is_null(),
        }
    }

    /// Element `index`.
    ///
    /// # Safety
    ///
    /// The array must have this element.
    #[inline]
    pub unsafe fn get(self, index: usize) -> i64 {
        match self {
            // SAFETY: the caller's promise.
            Self::Narrow(array) => i64::from(unsafe { array.add(index).read() }),
            // SAFETY: the caller's promise.
            Self::Wide(array) => unsafe { array.add(index).read() },
        }
    }

    /// The first `count` elements.
    ///
    /// # Safety
    ///
    /// The array must have these elements.
    pub unsafe fn to_vec(self, count: usize) -> Vec<i64> {
        // SAFETY: the caller's promise.
        (0..count).map(|index| unsafe { self.get(index) }).collect()
    }
}

/// Where a function stores one or more integers.
#[derive(Debug, Clone, Copy)]
pub enum IntsOut {
    /// `int *`.
    Narrow(*mut c_int),
    /// `MPI_Count *` or `MPI_Aint *`.
    Wide(*mut i64),
}

impl IntsOut {
    /// Whether the pointer is null.
    pub fn is_null(self) -> bool {
        match self {
            Self::Narrow(place) => place.is_null(),
            Self::Wide(place) => place.is_null(),
        }
    }

    /// Stores element `index`; fails with class `MPI_ERR_VALUE_TOO_LARGE` if the value does not fit, `MPI_ERR_ARG` if the pointer is null.
    ///
    /// # Safety
    ///
    /// There must be memory for it.
    #[inline]
    pub unsafe fn put(self, index: usize, value: i64) -> MpiResult {
        if self.is_null() {
            return Err(MpiError::arg("a result pointer is null"));
        }
        match self {
            Self::Narrow(place) => {
                let value = c_int::try_from(value).map_err(|_| {
                    MpiError::value_too_large(format!("{value} does not fit an int: call the form ending in _c"))
                })?;
                // SAFETY: the caller's promise.
                unsafe { place.add(index).write(value) };
            }
            // SAFETY: the caller's promise.
            Self::Wide(place) => unsafe { place.add(index).write(value) },
        }
        Ok(())
    }
}
