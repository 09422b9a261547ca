//! Information about the library, and the time (MPI 5.0 §9.1, §9.6, §20.3): nothing here needs state.

#![expect(unsafe_code, reason = "the C boundary")]

use std::ffi::{c_char, c_int, c_void};

use super::args::put;
use crate::abi::InfoHandle;
use crate::abi::constants::{MPI_ABI_SUBVERSION, MPI_ABI_VERSION, MPI_SUBVERSION, MPI_VERSION};
use crate::error::{MpiError, MpiResult};
use crate::runtime::Runtime;

/// For people. Programs that search it for another library's name find none.
const LIBRARY: &str = concat!("rsd ", env!("CARGO_PKG_VERSION"), ", by the MPI 5.0 standard ABI");

/// `MPI_Get_version`.
///
/// # Safety
///
/// Result pointers must be null or valid for writes; this applies to all functions here.
pub unsafe fn get_version(_: &Runtime, version: *mut c_int, subversion: *mut c_int) -> MpiResult {
    // SAFETY: the caller's promise.
    unsafe {
        put(version, MPI_VERSION)?;
        put(subversion, MPI_SUBVERSION)
    }
}

/// `MPI_Get_library_version`.
///
/// # Safety
///
/// See [`get_version`]; the text needs room for `MPI_MAX_LIBRARY_VERSION_STRING` bytes.
pub unsafe fn get_library_version(_: &Runtime, text: *mut c_char, len: *mut c_int) -> MpiResult {
    if text.is_null() {
        return Err(MpiError::arg("the version pointer is null"));
    }
    // SAFETY: the caller's promise; the text with its end is far shorter than the room for it.
    unsafe {
        text.copy_from_nonoverlapping(LIBRARY.as_ptr().cast(), LIBRARY.len());
        text.add(LIBRARY.len()).write(0);
        put(len, LIBRARY.len() as c_int)
    }
}

/// `MPI_Abi_get_version`.
///
/// # Safety
///
/// See [`get_version`].
pub unsafe fn abi_get_version(_: &Runtime, major: *mut c_int, minor: *mut c_int) -> MpiResult {
    // SAFETY: the caller's promise.
    unsafe {
        put(major, MPI_ABI_VERSION)?;
        put(minor, MPI_ABI_SUBVERSION)
    }
}

/// `MPI_Abi_get_fortran_info`: no Fortran is known, and this is the standard's answer in that case.
///
/// # Safety
///
/// See [`get_version`].
pub unsafe fn abi_get_fortran_info(_: &Runtime, info: *mut InfoHandle) -> MpiResult {
    // SAFETY: the caller's promise.
    unsafe { put(info, InfoHandle::NULL) }
}

/// `MPI_Abi_get_fortran_booleans`: none are set.
///
/// # Safety
///
/// See [`get_version`].
pub unsafe fn abi_get_fortran_booleans(
    _: &Runtime,
    logical_size: c_int,
    _true: *mut c_void,
    _false: *mut c_void,
    is_set: *mut c_int,
) -> MpiResult {
    if !matches!(logical_size, 1 | 2 | 4 | 8 | 16) {
        return Err(MpiError::arg(format!("invalid LOGICAL size {logical_size} (1, 2, 4, 8 or 16 bytes)")));
    }
    // SAFETY: the caller's promise.
    unsafe { put(is_set, 0) }
}

/// `MPI_Wtime`: seconds since the node started.
pub fn wtime() -> f64 {
    seconds(libc::clock_gettime)
}

/// `MPI_Wtick`: the resolution of [`wtime`] in seconds.
pub fn wtick() -> f64 {
    seconds(libc::clock_getres)
}

#[inline]
fn seconds(ask: unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> c_int) -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: every Linux has this clock, and `time` is a valid place for the answer.
    unsafe { ask(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::constants::MPI_MAX_LIBRARY_VERSION_STRING;

    #[test]
    fn the_version_names_this_library_and_no_other_mpi() {
        assert!(LIBRARY.starts_with("rsd ") && LIBRARY.len() < MPI_MAX_LIBRARY_VERSION_STRING as usize);
        for other in ["MPICH", "Open MPI", "Intel", "MVAPICH", "Microsoft", "Cray", "IBM"] {
            assert!(!LIBRARY.to_lowercase().contains(&other.to_lowercase()), "{other}");
        }
    }

    #[test]
    fn time_advances_by_the_tick() {
        let (before, tick) = (wtime(), wtick());
        assert!(tick > 0.0 && tick < 0.1, "{tick}");
        let after = std::iter::repeat_with(wtime).find(|now| *now > before);
        assert!(after.is_some_and(|after| after - before >= tick * 0.5));
    }
}
