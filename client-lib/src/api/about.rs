//! Information about the library, the machine and the ABI, and the time (MPI 5.0 §9.1, §9.6, §20).

#![expect(unsafe_code, reason = "the C boundary")]

use std::ffi::{c_char, c_int, c_void};

use super::args::{check_place, put};
use crate::abi::InfoHandle;
use crate::abi::constants::{MPI_ABI_SUBVERSION, MPI_ABI_VERSION, MPI_SUBVERSION, MPI_VERSION};
use crate::error::{MpiError, MpiResult};
use crate::object::hardware::resources;
use crate::object::info::Info;
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

/// `MPI_Abi_get_info`: the sizes of the ABI's integers.
///
/// # Safety
///
/// See [`get_version`].
pub unsafe fn abi_get_info(rt: &Runtime, info: *mut InfoHandle) -> MpiResult {
    check_place(info)?;
    let mut sizes = Info::default();
    for key in [&b"mpi_aint_size"[..], b"mpi_count_size", b"mpi_offset_size"] {
        sizes.set(key, b"8")?;
    }
    // SAFETY: the caller's promise.
    unsafe { put(info, rt.visit().infos.add(sizes)?) }
}

/// `MPI_Abi_get_fortran_info`: `MPI_INFO_NULL` until it was set.
///
/// # Safety
///
/// See [`get_version`].
pub unsafe fn abi_get_fortran_info(rt: &Runtime, info: *mut InfoHandle) -> MpiResult {
    check_place(info)?;
    let mut state = rt.visit();
    let known = state.fortran.info().cloned();
    let handle = known.map(|known| state.infos.add(known)).transpose()?.unwrap_or(InfoHandle::NULL);
    // SAFETY: the caller's promise.
    unsafe { put(info, handle) }
}

/// `MPI_Abi_set_fortran_info`.
///
/// # Safety
///
/// See [`get_version`].
pub unsafe fn abi_set_fortran_info(rt: &Runtime, info: InfoHandle) -> MpiResult {
    let mut state = rt.visit();
    let info = state.infos.get(info)?.clone();
    state.fortran.set_info(&info)
}

/// `MPI_Abi_get_fortran_booleans`.
///
/// # Safety
///
/// See [`get_version`]; the values need room for `logical_size` bytes.
pub unsafe fn abi_get_fortran_booleans(
    rt: &Runtime,
    logical_size: c_int,
    logical_true: *mut c_void,
    logical_false: *mut c_void,
    is_set: *mut c_int,
) -> MpiResult {
    let size = logical(logical_size)?;
    let known = rt.visit().fortran.knows_logical(logical_size);
    if known {
        for (place, value) in [(logical_true, 1_u8), (logical_false, 0)] {
            check_place(place)?;
            // SAFETY: the caller's promise; the machine is little-endian, as the ABI here is.
            unsafe {
                place.write_bytes(0, size);
                place.cast::<u8>().write(value);
            }
        }
    }
    // SAFETY: the caller's promise.
    unsafe { put(is_set, c_int::from(known)) }
}

/// `MPI_Abi_set_fortran_booleans`.
///
/// # Safety
///
/// See [`get_version`]; the values must have `logical_size` bytes.
pub unsafe fn abi_set_fortran_booleans(
    rt: &Runtime,
    logical_size: c_int,
    logical_true: *mut c_void,
    logical_false: *mut c_void,
) -> MpiResult {
    let size = logical(logical_size)?;
    check_place(logical_true)?;
    check_place(logical_false)?;
    // SAFETY: the caller's promise.
    let values = unsafe {
        [logical_true, logical_false].map(|value| std::slice::from_raw_parts(value.cast::<u8>().cast_const(), size))
    };
    rt.visit().fortran.set_logical(logical_size, values[0], values[1])
}

fn logical(size: c_int) -> MpiResult<usize> {
    match size {
        1 | 2 | 4 | 8 | 16 => Ok(size as usize),
        _ => Err(MpiError::arg(format!("invalid LOGICAL size {size} (1, 2, 4, 8 or 16 bytes)"))),
    }
}

/// `MPI_Get_hw_resource_info`: for each kind of resource, whether this process is confined to one of them.
///
/// # Safety
///
/// See [`get_version`].
pub unsafe fn get_hw_resource_info(rt: &Runtime, info: *mut InfoHandle) -> MpiResult {
    check_place(info)?;
    let mut found = Info::default();
    found.set(b"mpi_shared_memory", b"true")?;
    for (kind, part) in resources() {
        found.set(kind.as_bytes(), if part.is_some() { b"true" } else { b"false" })?;
    }
    // SAFETY: the caller's promise.
    unsafe { put(info, rt.visit().infos.add(found)?) }
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
