//! Control variables (MPI 5.0 §15.3.6): the library's settings.

use std::ffi::{CStr, c_char, c_int, c_void};

use rsd_proto::library::SETTINGS;

use super::{entered, find, give, offer, offer_text};
use crate::abi::DatatypeHandle;
use crate::abi::constants as c;
use crate::error::MpiResult;
use crate::object::tools::{control, fault};
use crate::runtime::Runtime;
use crate::settings::Settings;

/// The room for a value, with its terminating 0.
const ROOM: usize = 4096;

/// `MPI_T_cvar_get_num`.
pub unsafe fn cvar_get_num(rt: &Runtime, num_cvar: *mut c_int) -> MpiResult {
    let _state = entered(rt)?;
    // SAFETY: the caller's promise.
    unsafe { give(num_cvar, SETTINGS.len() as c_int) }
}

/// `MPI_T_cvar_get_info`.
#[expect(clippy::too_many_arguments, reason = "the standard's argument list")]
pub unsafe fn cvar_get_info(
    rt: &Runtime,
    cvar_index: c_int,
    name: *mut c_char,
    name_len: *mut c_int,
    verbosity: *mut c_int,
    datatype: *mut DatatypeHandle,
    enumtype: *mut usize,
    desc: *mut c_char,
    desc_len: *mut c_int,
    bind: *mut c_int,
    scope: *mut c_int,
) -> MpiResult {
    let _state = entered(rt)?;
    let setting = &SETTINGS[control(cvar_index)?];
    let text = format!("{} (values: {}; default: {})", setting.meaning, setting.values, setting.default);
    // SAFETY: the caller's promise.
    unsafe {
        offer_text(name, name_len, setting.name);
        offer_text(desc, desc_len, &text);
        offer(verbosity, c::MPI_T_VERBOSITY_USER_BASIC);
        offer(datatype, DatatypeHandle(c::MPI_CHAR));
        offer(enumtype, 0);
        offer(bind, c::MPI_T_BIND_NO_OBJECT);
        offer(scope, c::MPI_T_SCOPE_LOCAL);
    }
    Ok(())
}

/// `MPI_T_cvar_get_index`.
pub unsafe fn cvar_get_index(rt: &Runtime, name: *const c_char, cvar_index: *mut c_int) -> MpiResult {
    let _state = entered(rt)?;
    // SAFETY: the caller's promise.
    unsafe { give(cvar_index, find(name, SETTINGS.iter().map(|setting| setting.name))?) }
}

/// `MPI_T_cvar_handle_alloc`.
pub unsafe fn cvar_handle_alloc(
    rt: &Runtime,
    cvar_index: c_int,
    _obj_handle: *mut c_void,
    handle: *mut usize,
    count: *mut c_int,
) -> MpiResult {
    let mut state = entered(rt)?;
    let made = state.tools.add_control(cvar_index)?;
    // SAFETY: the caller's promise.
    unsafe {
        give(handle, made)?;
        give(count, ROOM as c_int)
    }
}

/// `MPI_T_cvar_handle_free`.
pub unsafe fn cvar_handle_free(rt: &Runtime, handle: *mut usize) -> MpiResult {
    let mut state = entered(rt)?;
    if handle.is_null() {
        return Err(fault(c::MPI_T_ERR_INVALID_HANDLE, "the handle pointer is null"));
    }
    // SAFETY: the caller's promise.
    unsafe {
        state.tools.remove_control(handle.read())?;
        give(handle, 0)
    }
}

/// `MPI_T_cvar_read`: the text that is set, or an empty one.
pub unsafe fn cvar_read(rt: &Runtime, handle: usize, buf: *mut c_void) -> MpiResult {
    let state = entered(rt)?;
    let value = state.tools.control_value(handle, |name| std::env::var(name).ok())?;
    let mut room = ROOM as c_int;
    if buf.is_null() {
        return Err(fault(c::MPI_T_ERR_INVALID, "the buffer is null"));
    }
    // SAFETY: the caller's promise: room for the number of characters that `MPI_T_cvar_handle_alloc` has returned.
    unsafe { offer_text(buf.cast(), &raw mut room, &value) };
    Ok(())
}

/// `MPI_T_cvar_write`: before the library is opened.
pub unsafe fn cvar_write(rt: &Runtime, handle: usize, buf: *const c_void) -> MpiResult {
    let mut state = entered(rt)?;
    let name = state.tools.control_name(handle)?;
    if buf.is_null() {
        return Err(fault(c::MPI_T_ERR_INVALID, "the buffer is null"));
    }
    if state.world.is_some() {
        let text = format!("{name} is read when MPI is initialized: write it before");
        return Err(fault(c::MPI_T_ERR_CVAR_SET_NOT_NOW, text));
    }
    // SAFETY: the caller's promise.
    let value = unsafe { CStr::from_ptr(buf.cast()) }.to_string_lossy().into_owned();
    if !value.is_empty() {
        let alone = Settings::from_variables([(name.to_owned(), value.clone())]);
        // A group's other variables need its name, which may follow.
        if let Err(error) =
            alone.or_else(|error| if name.starts_with("RSD_JOIN_") { Ok(Settings::default()) } else { Err(error) })
        {
            return Err(fault(c::MPI_T_ERR_INVALID, error.text));
        }
    }
    state.tools.write_control(name, value);
    Ok(())
}
