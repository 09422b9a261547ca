//! Datatypes: committing, copying, freeing and querying them (MPI 5.0 §5.1); `construct` makes them.

#![expect(unsafe_code, reason = "the C boundary")]
#![expect(clippy::missing_safety_doc, reason = "callers guarantee what the standard requires of them")]

use std::ffi::{CStr, c_char, c_int, c_void};

use super::args::put;
use super::attr::{self, Object};
use super::ints::IntsOut;
use crate::abi::constants as c;
use crate::abi::{DatatypeHandle, Status};
use crate::datatype::Element;
use crate::error::{MpiError, MpiResult};
use crate::object::datatypes::Types;
use crate::runtime::Runtime;

/// `MPI_Type_commit`.
pub unsafe fn type_commit(rt: &Runtime, datatype: *mut DatatypeHandle) -> MpiResult {
    // SAFETY: the caller's promise.
    rt.lock().types.commit(unsafe { handle_at(datatype)? })
}

/// `MPI_Type_dup`.
pub unsafe fn type_dup(rt: &Runtime, oldtype: DatatypeHandle, newtype: *mut DatatypeHandle) -> MpiResult {
    // SAFETY: the caller's promise.
    let fails = |_: &MpiError| drop(unsafe { put(newtype, DatatypeHandle::NULL) });
    let attributes = attr::copy_all(rt, Object::Type(oldtype)).inspect_err(fails)?;
    let mut state = rt.lock();
    let copy = state.types.dup(oldtype)?;
    state.types.attached_mut(copy)?.attributes = attributes;
    // SAFETY: the caller's promise.
    unsafe { put(newtype, copy) }
}

/// `MPI_Type_free`.
pub unsafe fn type_free(rt: &Runtime, datatype: *mut DatatypeHandle) -> MpiResult {
    // SAFETY: the caller's promise.
    let handle = unsafe { handle_at(datatype)? };
    rt.lock().types.check_made(handle)?;
    attr::delete_all(rt, Object::Type(handle))?;
    rt.lock().types.free(handle)?;
    // SAFETY: the caller's promise.
    unsafe { put(datatype, DatatypeHandle::NULL) }
}

/// `MPI_Type_size`; `MPI_UNDEFINED` if the size does not fit an `int`.
pub unsafe fn type_size(rt: &Runtime, datatype: DatatypeHandle, size: IntsOut) -> MpiResult {
    let bytes = rt.lock().types.resolve(datatype)?.size();
    // SAFETY: the caller's promise.
    unsafe { put_if_it_fits(size, i64::try_from(bytes).ok()) }
}

/// `MPI_Type_get_extent`.
pub unsafe fn type_get_extent(rt: &Runtime, datatype: DatatypeHandle, lb: *mut i64, extent: *mut i64) -> MpiResult {
    let state = rt.lock();
    let datatype = state.types.resolve(datatype)?;
    // SAFETY: the caller's promise.
    unsafe {
        put(lb, datatype.lb())?;
        put(extent, datatype.extent())
    }
}

/// `MPI_Type_get_true_extent`.
pub unsafe fn type_get_true_extent(
    rt: &Runtime,
    datatype: DatatypeHandle,
    true_lb: *mut i64,
    true_extent: *mut i64,
) -> MpiResult {
    let state = rt.lock();
    let datatype = state.types.resolve(datatype)?;
    // SAFETY: the caller's promise.
    unsafe {
        put(true_lb, datatype.true_lb())?;
        put(true_extent, datatype.true_extent())
    }
}

/// `MPI_Type_get_envelope`: for datatypes made without large counts.
pub unsafe fn type_get_envelope(
    rt: &Runtime,
    datatype: DatatypeHandle,
    num_integers: *mut c_int,
    num_addresses: *mut c_int,
    num_datatypes: *mut c_int,
    combiner: *mut c_int,
) -> MpiResult {
    let state = rt.lock();
    let contents = state.types.resolve(datatype)?.contents();
    if !contents.counts.is_empty() {
        return Err(has_large_counts("MPI_Type_get_envelope_c"));
    }
    let sizes = [contents.integers.len(), contents.addresses.len(), contents.types.len()];
    for (place, size) in [num_integers, num_addresses, num_datatypes].into_iter().zip(sizes) {
        let size = c_int::try_from(size).map_err(|_| has_large_counts("MPI_Type_get_envelope_c"))?;
        // SAFETY: the caller's promise.
        unsafe { put(place, size)? };
    }
    // SAFETY: the caller's promise.
    unsafe { put(combiner, contents.combiner) }
}

/// `MPI_Type_get_envelope_c`.
pub unsafe fn type_get_envelope_c(
    rt: &Runtime,
    datatype: DatatypeHandle,
    num_integers: *mut i64,
    num_addresses: *mut i64,
    num_large_counts: *mut i64,
    num_datatypes: *mut i64,
    combiner: *mut c_int,
) -> MpiResult {
    let state = rt.lock();
    let contents = state.types.resolve(datatype)?.contents();
    // SAFETY: the caller's promise.
    unsafe {
        put(num_integers, contents.integers.len() as i64)?;
        put(num_addresses, contents.addresses.len() as i64)?;
        put(num_large_counts, contents.counts.len() as i64)?;
        put(num_datatypes, contents.types.len() as i64)?;
        put(combiner, contents.combiner)
    }
}

/// `MPI_Type_get_contents`: for datatypes made without large counts.
#[expect(clippy::too_many_arguments, reason = "the standard's argument list")]
pub unsafe fn type_get_contents(
    rt: &Runtime,
    datatype: DatatypeHandle,
    max_integers: c_int,
    max_addresses: c_int,
    max_datatypes: c_int,
    integers: *mut c_int,
    addresses: *mut i64,
    datatypes: *mut DatatypeHandle,
) -> MpiResult {
    let mut state = rt.lock();
    if !state.types.resolve(datatype)?.contents().counts.is_empty() {
        return Err(has_large_counts("MPI_Type_get_contents_c"));
    }
    let room = [max_integers.into(), max_addresses.into(), 0, max_datatypes.into()];
    // SAFETY: the caller's promise.
    unsafe { contents(&mut state.types, datatype, room, integers, addresses, std::ptr::null_mut(), datatypes) }
}

/// `MPI_Type_get_contents_c`.
#[expect(clippy::too_many_arguments, reason = "the standard's argument list")]
pub unsafe fn type_get_contents_c(
    rt: &Runtime,
    datatype: DatatypeHandle,
    max_integers: i64,
    max_addresses: i64,
    max_large_counts: i64,
    max_datatypes: i64,
    integers: *mut c_int,
    addresses: *mut i64,
    large_counts: *mut i64,
    datatypes: *mut DatatypeHandle,
) -> MpiResult {
    let room = [max_integers, max_addresses, max_large_counts, max_datatypes];
    // SAFETY: the caller's promise.
    unsafe { contents(&mut rt.lock().types, datatype, room, integers, addresses, large_counts, datatypes) }
}

/// Fills the arrays, if each has room; derived datatypes get new handles.
unsafe fn contents(
    types: &mut Types,
    datatype: DatatypeHandle,
    room: [i64; 4],
    integers: *mut c_int,
    addresses: *mut i64,
    counts: *mut i64,
    datatypes: *mut DatatypeHandle,
) -> MpiResult {
    let datatype = types.get(datatype)?;
    let contents = datatype.contents();
    if contents.combiner == c::MPI_COMBINER_NAMED {
        return Err(MpiError::datatype("a predefined datatype has no contents"));
    }
    let lens = [contents.integers.len(), contents.addresses.len(), contents.counts.len(), contents.types.len()];
    let null = [integers.is_null(), addresses.is_null(), counts.is_null(), datatypes.is_null()];
    for (((len, room), null), what) in
        lens.into_iter().zip(room).zip(null).zip(["integers", "addresses", "large counts", "datatypes"])
    {
        if room < len as i64 {
            return Err(MpiError::arg(format!("there is room for only {room} of {len} {what}")));
        }
        if null && len > 0 {
            return Err(null_array());
        }
    }
    // SAFETY: the caller's promise: arrays at least as long as just checked.
    unsafe {
        contents.integers.iter().enumerate().for_each(|(index, value)| integers.add(index).write(*value));
        contents.addresses.iter().enumerate().for_each(|(index, value)| addresses.add(index).write(*value));
        contents.counts.iter().enumerate().for_each(|(index, value)| counts.add(index).write(*value));
        for (index, one) in contents.types.iter().enumerate() {
            datatypes.add(index).write(types.add(one.clone())?);
        }
    }
    Ok(())
}

/// `MPI_Type_set_name`.
pub unsafe fn type_set_name(rt: &Runtime, datatype: DatatypeHandle, name: *const c_char) -> MpiResult {
    if name.is_null() {
        return Err(MpiError::arg("the name is null"));
    }
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    let name = &name[..name.len().min(c::MPI_MAX_OBJECT_NAME as usize - 1)];
    rt.lock().types.attached_mut(datatype)?.name = Some(name.to_vec());
    Ok(())
}

/// `MPI_Type_get_name`.
pub unsafe fn type_get_name(
    rt: &Runtime,
    datatype: DatatypeHandle,
    name: *mut c_char,
    resultlen: *mut c_int,
) -> MpiResult {
    let state = rt.lock();
    // The null handle has a name too (MPI 5.0 §7.8).
    let null = b"MPI_DATATYPE_NULL";
    let found = if datatype == DatatypeHandle::NULL { &null[..] } else { state.types.name(datatype)? };
    if name.is_null() {
        return Err(MpiError::arg("the name pointer is null"));
    }
    // SAFETY: the caller promises room for MPI_MAX_OBJECT_NAME characters, which no name exceeds.
    unsafe {
        std::ptr::copy_nonoverlapping(found.as_ptr().cast(), name, found.len());
        name.add(found.len()).write(0);
        put(resultlen, found.len() as c_int)
    }
}

/// `MPI_Type_match_size`.
pub unsafe fn type_match_size(_: &Runtime, typeclass: c_int, size: c_int, datatype: *mut DatatypeHandle) -> MpiResult {
    let found = match (typeclass, size) {
        (c::MPI_TYPECLASS_INTEGER, 1) => c::MPI_INTEGER1,
        (c::MPI_TYPECLASS_INTEGER, 2) => c::MPI_INTEGER2,
        (c::MPI_TYPECLASS_INTEGER, 4) => c::MPI_INTEGER4,
        (c::MPI_TYPECLASS_INTEGER, 8) => c::MPI_INTEGER8,
        (c::MPI_TYPECLASS_INTEGER, 16) => c::MPI_INTEGER16,
        (c::MPI_TYPECLASS_REAL, 2) => c::MPI_REAL2,
        (c::MPI_TYPECLASS_REAL, 4) => c::MPI_REAL4,
        (c::MPI_TYPECLASS_REAL, 8) => c::MPI_REAL8,
        (c::MPI_TYPECLASS_REAL, 16) => c::MPI_REAL16,
        (c::MPI_TYPECLASS_COMPLEX, 4) => c::MPI_COMPLEX4,
        (c::MPI_TYPECLASS_COMPLEX, 8) => c::MPI_COMPLEX8,
        (c::MPI_TYPECLASS_COMPLEX, 16) => c::MPI_COMPLEX16,
        (c::MPI_TYPECLASS_COMPLEX, 32) => c::MPI_COMPLEX32,
        (c::MPIX_TYPECLASS_LOGICAL, 1) => c::MPI_LOGICAL1,
        (c::MPIX_TYPECLASS_LOGICAL, 2) => c::MPI_LOGICAL2,
        (c::MPIX_TYPECLASS_LOGICAL, 4) => c::MPI_LOGICAL4,
        (c::MPIX_TYPECLASS_LOGICAL, 8) => c::MPI_LOGICAL8,
        (c::MPIX_TYPECLASS_LOGICAL, 16) => c::MPI_LOGICAL16,
        _ => return Err(MpiError::arg(format!("no Fortran type of class {typeclass} has {size} bytes"))),
    };
    // SAFETY: the caller's promise.
    unsafe { put(datatype, DatatypeHandle(found)) }
}

/// `MPI_Type_get_value_index`: the predefined pair, or `MPI_DATATYPE_NULL` if there is none.
pub unsafe fn type_get_value_index(
    rt: &Runtime,
    value_type: DatatypeHandle,
    index_type: DatatypeHandle,
    pair_type: *mut DatatypeHandle,
) -> MpiResult {
    let state = rt.lock();
    let (value, index) = (state.types.resolve(value_type)?.element(), state.types.resolve(index_type)?.element());
    let pair = value.zip(index).and_then(|(value, index)| Element::pair_of(value, index));
    // SAFETY: the caller's promise.
    unsafe { put(pair_type, pair.map_or(DatatypeHandle::NULL, Element::handle)) }
}

/// `MPI_Get_address`.
pub unsafe fn get_address(_: &Runtime, location: *const c_void, address: *mut i64) -> MpiResult {
    // SAFETY: the caller's promise.
    unsafe { put(address, location.addr() as i64) }
}

/// `MPI_Get_count`: `MPI_UNDEFINED` if the message ends within an element, or the count does not fit.
pub unsafe fn get_count(rt: &Runtime, status: *const Status, datatype: DatatypeHandle, count: IntsOut) -> MpiResult {
    // SAFETY: the caller's promise.
    let bytes = unsafe { bytes_in(status)? };
    let found = rt.lock().types.resolve(datatype)?.count_of(bytes);
    // SAFETY: the caller's promise.
    unsafe { put_if_it_fits(count, found) }
}

/// `MPI_Get_elements`: as `MPI_Get_count`, for basic elements.
pub unsafe fn get_elements(rt: &Runtime, status: *const Status, datatype: DatatypeHandle, count: IntsOut) -> MpiResult {
    // SAFETY: the caller's promise.
    let bytes = unsafe { bytes_in(status)? };
    let found = rt.lock().types.resolve(datatype)?.elements_of(bytes);
    // SAFETY: the caller's promise.
    unsafe { put_if_it_fits(count, found) }
}

/// `MPI_Status_set_elements`.
pub unsafe fn status_set_elements(
    rt: &Runtime,
    status: *mut Status,
    datatype: DatatypeHandle,
    count: i64,
) -> MpiResult {
    let count = u64::try_from(count).map_err(|_| MpiError::count(format!("invalid count {count}")))?;
    let bytes = rt.lock().types.resolve(datatype)?.bytes_of(count);
    let bytes = bytes
        .ok_or_else(|| MpiError::count(format!("{count} elements of the datatype are not a whole number of bytes")))?;
    if status.is_null() {
        return Err(null_status());
    }
    // SAFETY: the caller's promise.
    unsafe { (*status).set_bytes(bytes) };
    Ok(())
}

unsafe fn handle_at(place: *const DatatypeHandle) -> MpiResult<DatatypeHandle> {
    if place.is_null() {
        return Err(MpiError::arg("the datatype pointer is null"));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { place.read() })
}

unsafe fn bytes_in(status: *const Status) -> MpiResult<u64> {
    if status.is_null() {
        return Err(null_status());
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { (*status).bytes() })
}

/// Stores a value, or `MPI_UNDEFINED` if there is none or the caller's type is too small for it (MPI 5.0 §2.5.8).
pub(super) unsafe fn put_if_it_fits(place: IntsOut, value: Option<i64>) -> MpiResult {
    if place.is_null() {
        return Err(MpiError::arg("a result pointer is null"));
    }
    let fits = |value: &i64| matches!(place, IntsOut::Wide(_)) || c_int::try_from(*value).is_ok();
    // SAFETY: the caller's promise.
    unsafe { place.put(0, value.filter(fits).unwrap_or(c::MPI_UNDEFINED.into())) }
}

#[cold]
pub(super) fn null_array() -> MpiError {
    MpiError::arg("an array is null")
}

#[cold]
fn null_status() -> MpiError {
    MpiError::arg("the status is MPI_STATUS_IGNORE")
}

#[cold]
fn has_large_counts(function: &str) -> MpiError {
    MpiError::datatype(format!("the datatype was made with large counts: call {function}"))
}
