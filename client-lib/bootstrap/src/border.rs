//! What rsd's PMI libraries need where C calls them: text and numbers behind pointers, and what the functions return.

#![expect(unsafe_code, reason = "the arguments of functions that C calls")]

use std::ffi::{CStr, c_char, c_int};

use super::BootstrapError;

/// A return code, in which PMI-1 and PMI-2 agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "as the headers say")]
pub enum Code {
    Fail = -1,
    NotInitialised = 1,
    InvalidArgument = 3,
    InvalidKey = 4,
    InvalidKeyLength = 5,
    InvalidValue = 6,
    InvalidValueLength = 7,
    InvalidLength = 8,
}

impl From<BootstrapError> for Code {
    /// Only a number gets to the caller, so the reason is printed. A refusal is an answer that programs expect.
    fn from(error: BootstrapError) -> Code {
        if !matches!(error, BootstrapError::Refused { .. } | BootstrapError::Declined { .. }) {
            eprintln!("rsd: {}", error.describe("use the process manager"));
        }
        Code::Fail
    }
}

/// Returns the number for C: 0 for success.
pub fn code(result: Result<(), Code>) -> c_int {
    result.map_or_else(|code| code as c_int, |()| 0)
}

/// Returns the text behind a pointer; None for a null pointer.
///
/// # Safety
/// The pointer is null or points to bytes that end with a zero byte and stay as they are for `'a`.
pub unsafe fn text<'a>(text: *const c_char) -> Option<&'a [u8]> {
    // SAFETY: the caller guarantees a zero byte behind a pointer that is not null.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// Returns the text behind a pointer that must not be null.
///
/// # Safety
/// As [`text`].
pub unsafe fn given<'a>(place: *const c_char, otherwise: Code) -> Result<&'a [u8], Code> {
    // SAFETY: the caller guarantees a zero byte.
    unsafe { text(place) }.ok_or(otherwise)
}

/// Stores a number; does nothing for a null pointer.
///
/// # Safety
/// The pointer is null or may be written.
pub unsafe fn store(place: *mut c_int, value: impl TryInto<c_int>) {
    if !place.is_null() {
        // SAFETY: the caller guarantees that a pointer which is not null may be written.
        unsafe { place.write(value.try_into().unwrap_or(c_int::MAX)) };
    }
}

/// Copies text with its end byte into `len` bytes, as much as fits; returns whether all of it did.
///
/// # Safety
/// `place` is null, or `len` bytes behind it may be written.
pub unsafe fn copy(from: &[u8], place: *mut c_char, len: c_int) -> bool {
    let Some(room) = usize::try_from(len).ok().filter(|len| *len > 0 && !place.is_null()) else { return false };
    // C reads it up to the first zero byte.
    let from = &from[..from.iter().position(|byte| *byte == 0).unwrap_or(from.len())];
    let fits = from.len().min(room - 1);
    // SAFETY: the caller guarantees `room` bytes, of which these and the end byte are at most all.
    unsafe {
        std::ptr::copy_nonoverlapping(from.as_ptr().cast(), place, fits);
        place.add(fits).write(0);
    }
    fits == from.len()
}

/// Copies what was found; fails if it does not fit.
///
/// # Safety
/// As [`copy`].
pub unsafe fn give_text(place: *mut c_char, len: c_int, found: &[u8]) -> Result<(), Code> {
    // SAFETY: the caller guarantees the room.
    unsafe { copy(found, place, len) }.then_some(()).ok_or(Code::InvalidLength)
}

/// Returns `count` items behind a pointer: none for a null pointer or a negative count.
///
/// # Safety
/// The pointer is null, or `count` items behind it stay as they are for `'a`.
pub unsafe fn items<'a, T>(items: *const T, count: c_int) -> &'a [T] {
    match usize::try_from(count) {
        // SAFETY: the caller guarantees `count` items behind a pointer that is not null.
        Ok(count) if count > 0 && !items.is_null() => unsafe { std::slice::from_raw_parts(items, count) },
        Ok(_) | Err(_) => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_where_the_room_ends() {
        let mut room = [7 as c_char; 6];
        // SAFETY: all pointers are null or point to `room`.
        unsafe {
            assert!(copy(b"five5", room.as_mut_ptr(), 6));
            assert_eq!(text(room.as_ptr()), Some(&b"five5"[..]));
            assert!(!copy(b"more than that", room.as_mut_ptr(), 6));
            assert_eq!(text(room.as_ptr()), Some(&b"more "[..]));
            assert!(copy(b"ab\0c", room.as_mut_ptr(), 3));
            assert_eq!(text(room.as_ptr()), Some(&b"ab"[..]));
            assert!(!copy(b"x", room.as_mut_ptr(), 0) && !copy(b"x", room.as_mut_ptr(), -1));
            assert!(!copy(b"x", std::ptr::null_mut(), 6));
            assert_eq!(text(std::ptr::null()), None);
            assert_eq!(items(room.as_ptr(), 2).len() + items(room.as_ptr(), -1).len(), 2);
            store(std::ptr::null_mut(), 1);
        }
    }
}
