//! The tools interface (MPI 5.0 §15.3), callable at any time. Its functions return codes of their own and call no error handler.

#![expect(unsafe_code, reason = "the C boundary")]
#![expect(clippy::missing_safety_doc, reason = "callers guarantee what the standard requires of them")]

mod categories;
mod controls;
mod events;
mod variables;

use std::ffi::{CStr, c_char, c_int};

pub use categories::{
    category_changed, category_get_categories, category_get_cvars, category_get_events, category_get_index,
    category_get_info, category_get_num, category_get_num_events, category_get_pvars,
};
pub use controls::{
    cvar_get_index, cvar_get_info, cvar_get_num, cvar_handle_alloc, cvar_handle_free, cvar_read, cvar_write,
};
pub use events::{
    event_callback_get_info, event_callback_set_info, event_copy, event_get_index, event_get_info, event_get_num,
    event_get_source, event_get_timestamp, event_handle_alloc, event_handle_free, event_handle_get_info,
    event_handle_set_info, event_read, event_register_callback, event_set_dropped_handler, source_get_info,
    source_get_num, source_get_timestamp,
};
pub use variables::{
    enum_get_info, enum_get_item, pvar_get_index, pvar_get_info, pvar_get_num, pvar_handle_alloc, pvar_handle_free,
    pvar_read, pvar_readreset, pvar_reset, pvar_session_create, pvar_session_free, pvar_start, pvar_stop, pvar_write,
};

use crate::abi::constants::{
    MPI_T_ERR_INVALID, MPI_T_ERR_INVALID_NAME, MPI_THREAD_FUNNELED, MPI_THREAD_MULTIPLE, MPI_THREAD_SERIALIZED,
    MPI_THREAD_SINGLE,
};
use crate::error::MpiResult;
use crate::object::tools::fault;
use crate::runtime::{Guard, Runtime};

/// `MPI_T_init_thread`: any thread may call these functions, whatever it asks for.
pub unsafe fn init_thread(rt: &Runtime, required: c_int, provided: *mut c_int) -> MpiResult {
    let levels = [MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED, MPI_THREAD_MULTIPLE];
    if !levels.contains(&required) {
        return Err(fault(MPI_T_ERR_INVALID, format!("invalid thread level {required}")));
    }
    // SAFETY: the caller's promise.
    unsafe { give(provided, MPI_THREAD_MULTIPLE)? };
    rt.visit().tools.begin();
    Ok(())
}

/// `MPI_T_finalize`.
pub unsafe fn finalize(rt: &Runtime) -> MpiResult {
    rt.visit().tools.end()
}

/// The state, while the interface is in use.
fn entered(rt: &Runtime) -> MpiResult<Guard<'_>> {
    let state = rt.visit();
    state.tools.check()?;
    Ok(state)
}

/// Stores a result that the caller must want.
unsafe fn give<T>(place: *mut T, value: T) -> MpiResult {
    if place.is_null() {
        return Err(fault(MPI_T_ERR_INVALID, "a result pointer is null"));
    }
    // SAFETY: the caller's promise.
    unsafe { place.write(value) };
    Ok(())
}

/// Stores a result unless the caller does not want it.
unsafe fn offer<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: the caller's promise.
        unsafe { place.write(value) };
    }
}

/// Stores a text in the `*len` bytes at `place`, truncated if necessary, and in `*len` the room for all of it: the length with the
/// terminating 0 (MPI 5.0 §15.3.3). Either pointer may be null, and the length 0.
unsafe fn offer_text(place: *mut c_char, len: *mut c_int, text: &str) {
    if len.is_null() {
        return;
    }
    // SAFETY: the caller's promise: `*len` bytes at `place`.
    unsafe {
        let room = usize::try_from(len.read()).unwrap_or(0);
        if !place.is_null() && room > 0 {
            let shown = text.len().min(room - 1);
            place.copy_from_nonoverlapping(text.as_ptr().cast(), shown);
            place.add(shown).write(0);
        }
        len.write(text.len() as c_int + 1);
    }
}

/// The position of the item with this name.
unsafe fn find<'a>(name: *const c_char, mut names: impl Iterator<Item = &'a str>) -> MpiResult<c_int> {
    if name.is_null() {
        return Err(fault(MPI_T_ERR_INVALID, "the name is null"));
    }
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(name) };
    let found = names.position(|it| it.as_bytes() == name.to_bytes());
    found
        .map(|at| at as c_int)
        .ok_or_else(|| fault(MPI_T_ERR_INVALID_NAME, format!("unknown name {:?}", name.to_string_lossy())))
}
