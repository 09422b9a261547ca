//! Info objects (MPI 5.0 §10), callable at any time.

#![expect(unsafe_code, reason = "the C boundary")]
#![expect(clippy::missing_safety_doc, reason = "callers guarantee what the standard requires of them")]

use std::ffi::{CStr, c_char, c_int};

use super::args::{check_place, put, put_text, text};
use crate::abi::InfoHandle;
use crate::abi::constants::{
    MPI_INFO_ENV, MPI_MAX_INFO_KEY, MPI_THREAD_FUNNELED, MPI_THREAD_MULTIPLE, MPI_THREAD_SERIALIZED,
};
use crate::error::{MpiError, MpiResult};
use crate::object::info::{Info, check_key};
use crate::runtime::{Guard, Runtime, State};

/// `MPI_Info_create`.
pub unsafe fn info_create(rt: &Runtime, info: *mut InfoHandle) -> MpiResult {
    // SAFETY: the caller's promise.
    unsafe { put_new(rt, info, Info::default()) }
}

/// `MPI_Info_create_env`: the same before, between and after uses of the library, so without what only [`of_world`] knows.
pub unsafe fn info_create_env(rt: &Runtime, argc: c_int, argv: *mut *mut c_char, info: *mut InfoHandle) -> MpiResult {
    // SAFETY: the caller's promise.
    let arguments = unsafe { super::args::elements(argc, argv.cast_const(), "arguments")? };
    let arguments = arguments.iter().filter(|argument| !argument.is_null());
    // SAFETY: the caller's promise.
    let arguments: Vec<&[u8]> = arguments.map(|argument| unsafe { CStr::from_ptr(*argument) }.to_bytes()).collect();
    let made = if arguments.is_empty() { of_process(&[]) } else { Info::of_program(arguments, &[]) };
    // SAFETY: the caller's promise.
    unsafe { put_new(rt, info, made) }
}

/// `MPI_Info_dup`.
pub unsafe fn info_dup(rt: &Runtime, info: InfoHandle, newinfo: *mut InfoHandle) -> MpiResult {
    let copy = seen(rt, info).infos.get(info)?.clone();
    // SAFETY: the caller's promise.
    unsafe { put_new(rt, newinfo, copy) }
}

/// `MPI_Info_free`.
pub unsafe fn info_free(rt: &Runtime, info: *mut InfoHandle) -> MpiResult {
    check_place(info)?;
    // SAFETY: the caller's promise.
    unsafe {
        rt.visit().infos.free(info.read())?;
        put(info, InfoHandle::NULL)
    }
}

/// `MPI_Info_set`.
pub unsafe fn info_set(rt: &Runtime, info: InfoHandle, key: *const c_char, value: *const c_char) -> MpiResult {
    // SAFETY: the caller's promise.
    let (key, value) = unsafe { (key_of(key)?, value_of(value)?) };
    rt.visit().infos.get_mut(info)?.set(key, value)
}

/// `MPI_Info_delete`.
pub unsafe fn info_delete(rt: &Runtime, info: InfoHandle, key: *const c_char) -> MpiResult {
    // SAFETY: the caller's promise.
    let key = unsafe { key_of(key)? };
    rt.visit().infos.get_mut(info)?.delete(key)
}

/// `MPI_Info_get`: deprecated; `valuelen` does not count the terminating 0.
pub unsafe fn info_get(
    rt: &Runtime,
    info: InfoHandle,
    key: *const c_char,
    valuelen: c_int,
    value: *mut c_char,
    flag: *mut c_int,
) -> MpiResult {
    let room = usize::try_from(valuelen).map_err(|_| MpiError::arg(format!("invalid value length {valuelen}")))?;
    // SAFETY: the caller's promise.
    let key = unsafe { key_of(key)? };
    let state = seen(rt, info);
    let found = state.infos.get(info)?.get(key);
    // SAFETY: the caller's promise.
    unsafe {
        if let Some(found) = found {
            put_text(value, room + 1, found)?;
        }
        put(flag, c_int::from(found.is_some()))
    }
}

/// `MPI_Info_get_string`: `buflen` counts the terminating 0, both as the available and as the required room.
pub unsafe fn info_get_string(
    rt: &Runtime,
    info: InfoHandle,
    key: *const c_char,
    buflen: *mut c_int,
    value: *mut c_char,
    flag: *mut c_int,
) -> MpiResult {
    check_place(buflen)?;
    // SAFETY: the caller's promise.
    let (key, room) = unsafe { (key_of(key)?, buflen.read()) };
    let room = usize::try_from(room).map_err(|_| MpiError::arg(format!("invalid value length {room}")))?;
    let state = seen(rt, info);
    let found = state.infos.get(info)?.get(key);
    // SAFETY: the caller's promise.
    unsafe {
        if let Some(found) = found {
            if room > 0 {
                put_text(value, room, found)?;
            }
            put(buflen, found.len() as c_int + 1)?;
        }
        put(flag, c_int::from(found.is_some()))
    }
}

/// `MPI_Info_get_valuelen`: deprecated; does not count the terminating 0.
pub unsafe fn info_get_valuelen(
    rt: &Runtime,
    info: InfoHandle,
    key: *const c_char,
    valuelen: *mut c_int,
    flag: *mut c_int,
) -> MpiResult {
    // SAFETY: the caller's promise.
    let key = unsafe { key_of(key)? };
    let state = seen(rt, info);
    let found = state.infos.get(info)?.get(key);
    // SAFETY: the caller's promise.
    unsafe {
        if let Some(found) = found {
            put(valuelen, found.len() as c_int)?;
        }
        put(flag, c_int::from(found.is_some()))
    }
}

/// `MPI_Info_get_nkeys`.
pub unsafe fn info_get_nkeys(rt: &Runtime, info: InfoHandle, nkeys: *mut c_int) -> MpiResult {
    let keys = seen(rt, info).infos.get(info)?.len();
    // SAFETY: the caller's promise.
    unsafe { put(nkeys, keys as c_int) }
}

/// `MPI_Info_get_nthkey`.
pub unsafe fn info_get_nthkey(rt: &Runtime, info: InfoHandle, n: c_int, key: *mut c_char) -> MpiResult {
    let state = seen(rt, info);
    let info = state.infos.get(info)?;
    let found = usize::try_from(n).ok().and_then(|n| info.key(n));
    let Some(found) = found else {
        return Err(MpiError::arg(format!("invalid key number {n}: the info has {} keys, counted from 0", info.len())));
    };
    // SAFETY: the caller's promise.
    unsafe { put_text(key, MPI_MAX_INFO_KEY as usize, found).map(drop) }
}

/// The state, with `MPI_INFO_ENV` filled in if it is requested.
fn seen(rt: &Runtime, info: InfoHandle) -> Guard<'_> {
    let mut state = rt.visit();
    // Before initialization some values are unknown, so it is filled in again.
    if info.0 == MPI_INFO_ENV && (state.infos.env.is_none() || state.world.is_none()) {
        state.infos.env = Some(of_process(&of_world(&state)));
    }
    state
}

/// How this process was started.
fn of_process(more: &[(&str, String)]) -> Info {
    let line = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let arguments = line.strip_suffix(&[0]).unwrap_or(&line).split(|byte| *byte == 0);
    Info::of_program(arguments, more)
}

fn of_world(state: &State) -> Vec<(&'static str, String)> {
    let Some(world) = &state.world else { return Vec::new() };
    let level = match world.thread_level {
        MPI_THREAD_MULTIPLE => "MPI_THREAD_MULTIPLE",
        MPI_THREAD_SERIALIZED => "MPI_THREAD_SERIALIZED",
        MPI_THREAD_FUNNELED => "MPI_THREAD_FUNNELED",
        _ => "MPI_THREAD_SINGLE",
    };
    vec![("maxprocs", world.size.to_string()), ("thread_level", level.to_owned())]
}

unsafe fn put_new(rt: &Runtime, place: *mut InfoHandle, info: Info) -> MpiResult {
    check_place(place)?;
    // SAFETY: the caller's promise.
    unsafe { put(place, rt.visit().infos.add(info)?) }
}

unsafe fn key_of<'a>(key: *const c_char) -> MpiResult<&'a [u8]> {
    if key.is_null() {
        return Err(MpiError::info_key("the key is null"));
    }
    // SAFETY: the caller's promise.
    let key = unsafe { text(key, "key")? };
    check_key(key)?;
    Ok(key)
}

unsafe fn value_of<'a>(value: *const c_char) -> MpiResult<&'a [u8]> {
    if value.is_null() {
        return Err(MpiError::info_value("the value is null"));
    }
    // SAFETY: the caller's promise.
    unsafe { text(value, "value") }
}
