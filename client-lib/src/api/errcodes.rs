//! Error classes, codes and their texts (MPI 5.0 §9.4, §9.5), callable at any time.

#![expect(unsafe_code, reason = "the C boundary")]
#![expect(clippy::missing_safety_doc, reason = "callers guarantee what the standard requires of them")]

use std::ffi::{c_char, c_int};

use super::args::{check_place, put, put_text, text};
use crate::abi::constants::MPI_MAX_ERROR_STRING;
use crate::error::MpiResult;
use crate::object::errcodes::ErrorCodes;
use crate::runtime::{Runtime, last_met};

/// `MPI_Error_class`.
pub unsafe fn error_class(rt: &Runtime, errorcode: c_int, errorclass: *mut c_int) -> MpiResult {
    let class = rt.visit().error_codes.class_of(errorcode)?;
    // SAFETY: the caller's promise.
    unsafe { put(errorclass, class) }
}

/// `MPI_Error_string`: includes the message of this thread's last error, if that was of this class.
pub unsafe fn error_string(rt: &Runtime, errorcode: c_int, string: *mut c_char, resultlen: *mut c_int) -> MpiResult {
    let last = last_met();
    let state = rt.visit();
    let found = state.error_codes.text_after(errorcode, last.as_ref())?;
    // SAFETY: the caller's promise.
    unsafe { put(resultlen, put_text(string, MPI_MAX_ERROR_STRING as usize, &found)?) }
}

/// `MPI_Add_error_class`.
pub unsafe fn add_error_class(rt: &Runtime, errorclass: *mut c_int) -> MpiResult {
    // SAFETY: the caller's promise.
    unsafe { add(rt, errorclass, ErrorCodes::add_class) }
}

/// `MPI_Add_error_code`.
pub unsafe fn add_error_code(rt: &Runtime, errorclass: c_int, errorcode: *mut c_int) -> MpiResult {
    // SAFETY: the caller's promise.
    unsafe { add(rt, errorcode, |codes| codes.add_code(errorclass)) }
}

/// `MPI_Add_error_string`.
pub unsafe fn add_error_string(rt: &Runtime, errorcode: c_int, string: *const c_char) -> MpiResult {
    // SAFETY: the caller's promise.
    let text = unsafe { text(string, "text")? };
    rt.visit().error_codes.set_text(errorcode, text)
}

/// `MPI_Remove_error_class`.
pub unsafe fn remove_error_class(rt: &Runtime, errorclass: c_int) -> MpiResult {
    rt.visit().error_codes.remove_class(errorclass)
}

/// `MPI_Remove_error_code`.
pub unsafe fn remove_error_code(rt: &Runtime, errorcode: c_int) -> MpiResult {
    rt.visit().error_codes.remove_code(errorcode)
}

/// `MPI_Remove_error_string`.
pub unsafe fn remove_error_string(rt: &Runtime, errorcode: c_int) -> MpiResult {
    rt.visit().error_codes.remove_text(errorcode)
}

unsafe fn add(rt: &Runtime, place: *mut c_int, how: impl FnOnce(&mut ErrorCodes) -> MpiResult<i32>) -> MpiResult {
    check_place(place)?;
    let mut state = rt.visit();
    let number = how(&mut state.error_codes)?;
    state.keyvals.predefined.set_last_used_code(state.error_codes.last());
    // SAFETY: the caller's promise.
    unsafe { put(place, number) }
}
