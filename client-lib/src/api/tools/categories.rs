//! Categories (MPI 5.0 §15.3.9): they never change.

use std::ffi::{c_char, c_int};

use super::{entered, find, give, offer, offer_text};
use crate::abi::constants::MPI_T_ERR_INVALID;
use crate::error::MpiResult;
use crate::object::tools::{CATEGORIES, category, fault};
use crate::runtime::Runtime;

/// `MPI_T_category_get_num`.
pub unsafe fn category_get_num(rt: &Runtime, num_cat: *mut c_int) -> MpiResult {
    let _state = entered(rt)?;
    // SAFETY: the caller's promise.
    unsafe { give(num_cat, CATEGORIES.len() as c_int) }
}

/// `MPI_T_category_get_info`.
#[expect(clippy::too_many_arguments, reason = "the standard's argument list")]
pub unsafe fn category_get_info(
    rt: &Runtime,
    cat_index: c_int,
    name: *mut c_char,
    name_len: *mut c_int,
    desc: *mut c_char,
    desc_len: *mut c_int,
    num_cvars: *mut c_int,
    num_pvars: *mut c_int,
    num_categories: *mut c_int,
) -> MpiResult {
    let _state = entered(rt)?;
    let category = category(cat_index)?;
    // SAFETY: the caller's promise.
    unsafe {
        offer_text(name, name_len, category.name);
        offer_text(desc, desc_len, category.meaning);
        offer(num_cvars, category.controls().len() as c_int);
        offer(num_pvars, category.variables().len() as c_int);
        offer(num_categories, category.categories.len() as c_int);
    }
    Ok(())
}

/// `MPI_T_category_get_index`.
pub unsafe fn category_get_index(rt: &Runtime, name: *const c_char, cat_index: *mut c_int) -> MpiResult {
    let _state = entered(rt)?;
    // SAFETY: the caller's promise.
    unsafe { give(cat_index, find(name, CATEGORIES.iter().map(|category| category.name))?) }
}

/// `MPI_T_category_get_cvars`.
pub unsafe fn category_get_cvars(rt: &Runtime, cat_index: c_int, len: c_int, indices: *mut c_int) -> MpiResult {
    let _state = entered(rt)?;
    // SAFETY: the caller's promise.
    unsafe { offer_all(&category(cat_index)?.controls(), len, indices) }
}

/// `MPI_T_category_get_pvars`.
pub unsafe fn category_get_pvars(rt: &Runtime, cat_index: c_int, len: c_int, indices: *mut c_int) -> MpiResult {
    let _state = entered(rt)?;
    // SAFETY: the caller's promise.
    unsafe { offer_all(&category(cat_index)?.variables(), len, indices) }
}

/// `MPI_T_category_get_categories`.
pub unsafe fn category_get_categories(rt: &Runtime, cat_index: c_int, len: c_int, indices: *mut c_int) -> MpiResult {
    let _state = entered(rt)?;
    // SAFETY: the caller's promise.
    unsafe { offer_all(category(cat_index)?.categories, len, indices) }
}

/// `MPI_T_category_get_num_events`.
pub unsafe fn category_get_num_events(rt: &Runtime, cat_index: c_int, num_events: *mut c_int) -> MpiResult {
    let _state = entered(rt)?;
    category(cat_index)?;
    // SAFETY: the caller's promise.
    unsafe { give(num_events, 0) }
}

/// `MPI_T_category_get_events`.
pub unsafe fn category_get_events(rt: &Runtime, cat_index: c_int, len: c_int, indices: *mut c_int) -> MpiResult {
    let _state = entered(rt)?;
    category(cat_index)?;
    // SAFETY: the caller's promise.
    unsafe { offer_all(&[], len, indices) }
}

/// `MPI_T_category_changed`.
pub unsafe fn category_changed(rt: &Runtime, update_number: *mut c_int) -> MpiResult {
    let _state = entered(rt)?;
    // SAFETY: the caller's promise.
    unsafe { give(update_number, 0) }
}

/// Stores as many of the values as there is room for.
unsafe fn offer_all(values: &[i32], len: c_int, place: *mut c_int) -> MpiResult {
    let room = usize::try_from(len).map_err(|_| fault(MPI_T_ERR_INVALID, format!("invalid length {len}")))?;
    let shown = &values[..values.len().min(room)];
    if place.is_null() && !shown.is_empty() {
        return Err(fault(MPI_T_ERR_INVALID, "the array of indices is null"));
    }
    for (at, value) in shown.iter().enumerate() {
        // SAFETY: the caller's promise: room for `len` values.
        unsafe { place.add(at).write(*value) };
    }
    Ok(())
}
