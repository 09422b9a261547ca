//! The constructors of datatypes (MPI 5.0 §5.1.2 to §5.1.9). `large` says whether the form with large counts was
//! called.

#![expect(unsafe_code, reason = "the C boundary")]
#![expect(clippy::missing_safety_doc, reason = "callers guarantee what the standard requires of them")]

use std::ffi::c_int;

use super::args::{check_place, elements, put};
use super::datatype::null_array;
use super::ints::Ints;
use crate::abi::DatatypeHandle;
use crate::abi::constants as c;
use crate::datatype::{Datatype, Distribution, Element, Form, TypeRef, Unit};
use crate::error::{MpiError, MpiResult};
use crate::object::datatypes::Types;
use crate::runtime::Runtime;

/// `MPI_Type_contiguous`.
pub unsafe fn type_contiguous(
    rt: &Runtime,
    count: i64,
    oldtype: DatatypeHandle,
    newtype: *mut DatatypeHandle,
    large: bool,
) -> MpiResult {
    // SAFETY: the caller's promise.
    unsafe { of_one(rt, oldtype, newtype, |old| Datatype::contiguous(form(large), count, old)) }
}

/// `MPI_Type_vector`.
pub unsafe fn type_vector(
    rt: &Runtime,
    count: i64,
    blocklength: i64,
    stride: i64,
    oldtype: DatatypeHandle,
    newtype: *mut DatatypeHandle,
    large: bool,
) -> MpiResult {
    let make = |old: &TypeRef| Datatype::vector(form(large), Unit::Extents, count, blocklength, stride, old);
    // SAFETY: the caller's promise.
    unsafe { of_one(rt, oldtype, newtype, make) }
}

/// `MPI_Type_create_hvector`.
pub unsafe fn type_create_hvector(
    rt: &Runtime,
    count: i64,
    blocklength: i64,
    stride: i64,
    oldtype: DatatypeHandle,
    newtype: *mut DatatypeHandle,
    large: bool,
) -> MpiResult {
    let make = |old: &TypeRef| Datatype::vector(form(large), Unit::Bytes, count, blocklength, stride, old);
    // SAFETY: the caller's promise.
    unsafe { of_one(rt, oldtype, newtype, make) }
}

/// `MPI_Type_indexed`.
pub unsafe fn type_indexed(
    rt: &Runtime,
    count: i64,
    blocklengths: Ints,
    displacements: Ints,
    oldtype: DatatypeHandle,
    newtype: *mut DatatypeHandle,
    large: bool,
) -> MpiResult {
    // SAFETY: the caller's promise.
    let (lengths, displacements) = unsafe { (array(count, blocklengths)?, array(count, displacements)?) };
    let make = |old: &TypeRef| Datatype::indexed(form(large), Unit::Extents, &lengths, &displacements, old);
    // SAFETY: the caller's promise.
    unsafe { of_one(rt, oldtype, newtype, make) }
}

/// `MPI_Type_create_hindexed`.
pub unsafe fn type_create_hindexed(
    rt: &Runtime,
    count: i64,
    blocklengths: Ints,
    displacements: *const i64,
    oldtype: DatatypeHandle,
    newtype: *mut DatatypeHandle,
    large: bool,
) -> MpiResult {
    // SAFETY: the caller's promise.
    let (lengths, displacements) = unsafe { (array(count, blocklengths)?, array(count, Ints::Wide(displacements))?) };
    let make = |old: &TypeRef| Datatype::indexed(form(large), Unit::Bytes, &lengths, &displacements, old);
    // SAFETY: the caller's promise.
    unsafe { of_one(rt, oldtype, newtype, make) }
}

/// `MPI_Type_create_indexed_block`.
pub unsafe fn type_create_indexed_block(
    rt: &Runtime,
    count: i64,
    blocklength: i64,
    displacements: Ints,
    oldtype: DatatypeHandle,
    newtype: *mut DatatypeHandle,
    large: bool,
) -> MpiResult {
    // SAFETY: the caller's promise.
    let displacements = unsafe { array(count, displacements)? };
    let make = |old: &TypeRef| Datatype::indexed_block(form(large), Unit::Extents, blocklength, &displacements, old);
    // SAFETY: the caller's promise.
    unsafe { of_one(rt, oldtype, newtype, make) }
}

/// `MPI_Type_create_hindexed_block`.
pub unsafe fn type_create_hindexed_block(
    rt: &Runtime,
    count: i64,
    blocklength: i64,
    displacements: *const i64,
    oldtype: DatatypeHandle,
    newtype: *mut DatatypeHandle,
    large: bool,
) -> MpiResult {
    // SAFETY: the caller's promise.
    let displacements = unsafe { array(count, Ints::Wide(displacements))? };
    let make = |old: &TypeRef| Datatype::indexed_block(form(large), Unit::Bytes, blocklength, &displacements, old);
    // SAFETY: the caller's promise.
    unsafe { of_one(rt, oldtype, newtype, make) }
}

/// `MPI_Type_create_struct`.
pub unsafe fn type_create_struct(
    rt: &Runtime,
    count: i64,
    blocklengths: Ints,
    displacements: *const i64,
    types: *const DatatypeHandle,
    newtype: *mut DatatypeHandle,
    large: bool,
) -> MpiResult {
    // SAFETY: the caller's promise.
    let (lengths, displacements) = unsafe { (array(count, blocklengths)?, array(count, Ints::Wide(displacements))?) };
    if types.is_null() && !lengths.is_empty() {
        return Err(null_array());
    }
    let mut state = rt.lock();
    let fields: MpiResult<Vec<TypeRef>> = (0..lengths.len())
        // SAFETY: the caller's promise.
        .map(|index| state.types.get(unsafe { types.add(index).read() }))
        .collect();
    let made = Datatype::structure(form(large), &lengths, &displacements, &fields?)?;
    // SAFETY: the caller's promise.
    unsafe { put_made(&mut state.types, made, newtype) }
}

/// `MPI_Type_create_resized`.
pub unsafe fn type_create_resized(
    rt: &Runtime,
    oldtype: DatatypeHandle,
    lb: i64,
    extent: i64,
    newtype: *mut DatatypeHandle,
    large: bool,
) -> MpiResult {
    // SAFETY: the caller's promise.
    unsafe { of_one(rt, oldtype, newtype, |old| Datatype::resized(form(large), lb, extent, old)) }
}

/// `MPI_Type_create_subarray`.
#[expect(clippy::too_many_arguments, reason = "the standard's argument list")]
pub unsafe fn type_create_subarray(
    rt: &Runtime,
    ndims: c_int,
    sizes: Ints,
    subsizes: Ints,
    starts: Ints,
    order: c_int,
    oldtype: DatatypeHandle,
    newtype: *mut DatatypeHandle,
    large: bool,
) -> MpiResult {
    if ndims < 1 {
        return Err(MpiError::arg(format!("invalid number of dimensions {ndims}")));
    }
    let ndims = i64::from(ndims);
    // SAFETY: the caller's promise.
    let (sizes, subsizes, starts) = unsafe { (array(ndims, sizes)?, array(ndims, subsizes)?, array(ndims, starts)?) };
    let make = |old: &TypeRef| Datatype::subarray(form(large), &sizes, &subsizes, &starts, order, old);
    // SAFETY: the caller's promise.
    unsafe { of_one(rt, oldtype, newtype, make) }
}

/// `MPI_Type_create_darray`.
#[expect(clippy::too_many_arguments, reason = "the standard's argument list")]
pub unsafe fn type_create_darray(
    rt: &Runtime,
    size: c_int,
    rank: c_int,
    ndims: c_int,
    gsizes: Ints,
    distribs: *const c_int,
    dargs: *const c_int,
    psizes: *const c_int,
    order: c_int,
    oldtype: DatatypeHandle,
    newtype: *mut DatatypeHandle,
    large: bool,
) -> MpiResult {
    if ndims < 1 {
        return Err(MpiError::arg(format!("invalid number of dimensions {ndims}")));
    }
    // SAFETY: the caller's promise.
    let (sizes, kinds, arguments, processes) = unsafe {
        (
            array(ndims.into(), gsizes)?,
            elements(ndims, distribs, "distributions")?,
            elements(ndims, dargs, "distribution arguments")?,
            elements(ndims, psizes, "process grid sizes")?,
        )
    };
    let parts = Distribution { size, rank, sizes: &sizes, kinds, arguments, processes, order };
    // SAFETY: the caller's promise.
    unsafe { of_one(rt, oldtype, newtype, |old| Datatype::darray(form(large), parts, old)) }
}

/// `MPI_Type_create_f90_integer`: of `r` decimal digits.
pub unsafe fn type_create_f90_integer(rt: &Runtime, r: c_int, newtype: *mut DatatypeHandle) -> MpiResult {
    let found = match r {
        ..=2 => c::MPI_INTEGER1,
        3..=4 => c::MPI_INTEGER2,
        5..=9 => c::MPI_INTEGER4,
        10..=18 => c::MPI_INTEGER8,
        19..=38 => c::MPI_INTEGER16,
        39.. => return Err(MpiError::arg(format!("no Fortran integer has {r} decimal digits (at most 38)"))),
    };
    // SAFETY: the caller's promise.
    unsafe { put_f90(rt, c::MPI_COMBINER_F90_INTEGER, &[r], found, newtype) }
}

/// `MPI_Type_create_f90_real`: with `p` decimal digits and an exponent range of `r`.
pub unsafe fn type_create_f90_real(rt: &Runtime, p: c_int, r: c_int, newtype: *mut DatatypeHandle) -> MpiResult {
    let [real, _] = real_kind(p, r)?;
    // SAFETY: the caller's promise.
    unsafe { put_f90(rt, c::MPI_COMBINER_F90_REAL, &[p, r], real, newtype) }
}

/// `MPI_Type_create_f90_complex`: of two such reals.
pub unsafe fn type_create_f90_complex(rt: &Runtime, p: c_int, r: c_int, newtype: *mut DatatypeHandle) -> MpiResult {
    let [_, complex] = real_kind(p, r)?;
    // SAFETY: the caller's promise.
    unsafe { put_f90(rt, c::MPI_COMBINER_F90_COMPLEX, &[p, r], complex, newtype) }
}

/// The kind that `SELECTED_REAL_KIND` selects, and its complex type; either argument may be `MPI_UNDEFINED`. On x86-64, gfortran's kind
/// of 18 digits is that of `long double`.
fn real_kind(p: c_int, r: c_int) -> MpiResult<[usize; 2]> {
    /// Digits, exponent range, real, complex.
    const KINDS: [(c_int, c_int, usize, usize); 4] = [
        (6, 37, c::MPI_REAL4, c::MPI_COMPLEX8),
        (15, 307, c::MPI_REAL8, c::MPI_COMPLEX16),
        (18, 4931, c::MPI_LONG_DOUBLE, c::MPI_C_LONG_DOUBLE_COMPLEX),
        (33, 4931, c::MPI_REAL16, c::MPI_COMPLEX32),
    ];
    if p == c::MPI_UNDEFINED && r == c::MPI_UNDEFINED {
        return Err(MpiError::arg("precision and range are both MPI_UNDEFINED"));
    }
    let is_there = |digits: c_int| cfg!(target_arch = "x86_64") || digits != 18;
    let suits = |wanted: c_int, has: c_int| wanted == c::MPI_UNDEFINED || wanted <= has;
    let found = KINDS.iter().find(|(digits, range, ..)| is_there(*digits) && suits(p, *digits) && suits(r, *range));
    found.map(|(_, _, real, complex)| [*real, *complex]).ok_or_else(|| {
        MpiError::arg(format!("no Fortran real has {p} decimal digits (at most 33) and exponent range {r} (4931)"))
    })
}

unsafe fn put_f90(
    rt: &Runtime,
    combiner: c_int,
    requested: &[c_int],
    found: usize,
    newtype: *mut DatatypeHandle,
) -> MpiResult {
    check_place(newtype)?;
    let element = Element::of(DatatypeHandle(found)).ok_or_else(|| MpiError::intern("an unknown Fortran type"))?;
    // SAFETY: the caller's promise.
    unsafe { put(newtype, rt.lock().types.f90(combiner, requested, element)?) }
}

fn form(large: bool) -> Form {
    if large { Form::Count } else { Form::Int }
}

/// Makes a datatype of one other.
unsafe fn of_one(
    rt: &Runtime,
    old: DatatypeHandle,
    new: *mut DatatypeHandle,
    make: impl FnOnce(&TypeRef) -> MpiResult<Datatype>,
) -> MpiResult {
    let mut state = rt.lock();
    let made = make(&state.types.get(old)?)?;
    // SAFETY: the caller's promise.
    unsafe { put_made(&mut state.types, made, new) }
}

unsafe fn put_made(types: &mut Types, made: Datatype, place: *mut DatatypeHandle) -> MpiResult {
    if place.is_null() {
        return Err(MpiError::arg("the new datatype pointer is null"));
    }
    // SAFETY: the caller's promise.
    unsafe { put(place, types.add_made(made)?) }
}

/// `count` integers of the user.
unsafe fn array(count: i64, values: Ints) -> MpiResult<Vec<i64>> {
    let count = usize::try_from(count).map_err(|_| MpiError::count(format!("invalid count {count}")))?;
    if values.is_null() && count > 0 {
        return Err(null_array());
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { values.to_vec(count) })
}
