//! Performance variables and the enumeration of their states (MPI 5.0 §15.3.5, §15.3.7).

use std::ffi::{c_char, c_int, c_void};

use super::{entered, find, give, offer, offer_text};
use crate::abi::constants as c;
use crate::abi::{CommHandle, DatatypeHandle};
use crate::error::MpiResult;
use crate::object::tools::{Of, PATHS, PATHS_ENUM, Reading, VARIABLES, fault, variable};
use crate::runtime::{Guard, Runtime, State};

/// `MPI_T_pvar_get_num`.
pub unsafe fn pvar_get_num(rt: &Runtime, num_pvar: *mut c_int) -> MpiResult {
    let _state = entered(rt)?;
    // SAFETY: the caller's promise.
    unsafe { give(num_pvar, VARIABLES.len() as c_int) }
}

/// `MPI_T_pvar_get_info`.
#[expect(clippy::too_many_arguments, reason = "the standard's argument list")]
pub unsafe fn pvar_get_info(
    rt: &Runtime,
    pvar_index: c_int,
    name: *mut c_char,
    name_len: *mut c_int,
    verbosity: *mut c_int,
    var_class: *mut c_int,
    datatype: *mut DatatypeHandle,
    enumtype: *mut usize,
    desc: *mut c_char,
    desc_len: *mut c_int,
    bind: *mut c_int,
    readonly: *mut c_int,
    continuous: *mut c_int,
    atomic: *mut c_int,
) -> MpiResult {
    let _state = entered(rt)?;
    let variable = variable(pvar_index)?;
    let is_path = variable.of == Of::Paths;
    // SAFETY: the caller's promise.
    unsafe {
        offer_text(name, name_len, variable.name);
        offer_text(desc, desc_len, variable.meaning);
        offer(verbosity, c::MPI_T_VERBOSITY_USER_BASIC);
        offer(var_class, variable.class());
        offer(datatype, DatatypeHandle(variable.datatype()));
        offer(enumtype, if is_path { PATHS_ENUM } else { 0 });
        offer(bind, if is_path { c::MPI_T_BIND_MPI_COMM } else { c::MPI_T_BIND_NO_OBJECT });
        offer(readonly, c_int::from(!variable.counts()));
        offer(continuous, 1);
        offer(atomic, c_int::from(variable.counts()));
    }
    Ok(())
}

/// `MPI_T_pvar_get_index`.
pub unsafe fn pvar_get_index(rt: &Runtime, name: *const c_char, var_class: c_int, pvar_index: *mut c_int) -> MpiResult {
    let _state = entered(rt)?;
    // SAFETY: the caller's promise.
    let at = unsafe { find(name, VARIABLES.iter().map(|variable| variable.name))? };
    if variable(at)?.class() != var_class {
        return Err(fault(c::MPI_T_ERR_INVALID_NAME, format!("no variable of class {var_class} has this name")));
    }
    // SAFETY: the caller's promise.
    unsafe { give(pvar_index, at) }
}

/// `MPI_T_pvar_session_create`.
pub unsafe fn pvar_session_create(rt: &Runtime, session: *mut usize) -> MpiResult {
    let mut state = entered(rt)?;
    let made = state.tools.add_session();
    // SAFETY: the caller's promise.
    unsafe { give(session, made) }
}

/// `MPI_T_pvar_session_free`.
pub unsafe fn pvar_session_free(rt: &Runtime, session: *mut usize) -> MpiResult {
    let mut state = entered(rt)?;
    if session.is_null() {
        return Err(fault(c::MPI_T_ERR_INVALID_SESSION, "the session pointer is null"));
    }
    // SAFETY: the caller's promise.
    unsafe {
        state.tools.remove_session(session.read())?;
        give(session, 0)
    }
}

/// `MPI_T_pvar_handle_alloc`.
pub unsafe fn pvar_handle_alloc(
    rt: &Runtime,
    session: usize,
    pvar_index: c_int,
    obj_handle: *mut c_void,
    handle: *mut usize,
    count: *mut c_int,
) -> MpiResult {
    let mut state = entered(rt)?;
    let variable = variable(pvar_index)?;
    let (comm, values) = match variable.of {
        Of::Paths => {
            if obj_handle.is_null() {
                return Err(fault(c::MPI_T_ERR_INVALID, "the variable needs a communicator"));
            }
            // SAFETY: the caller's promise: the address of a communicator's handle.
            let comm = unsafe { obj_handle.cast::<CommHandle>().read() };
            let found = state.comms.get(comm).map_err(|error| fault(c::MPI_T_ERR_INVALID, error.text))?;
            (Some(comm), found.parties.named().len())
        }
        _ => (None, 1),
    };
    // A counter starts at the handle's creation.
    let base = if variable.counts() { counted(&state, variable.of) } else { 0 };
    let made = state.tools.add_reading(session, Reading { variable, comm, base })?;
    // SAFETY: the caller's promise.
    unsafe {
        give(handle, made)?;
        give(count, values as c_int)
    }
}

/// `MPI_T_pvar_handle_free`.
pub unsafe fn pvar_handle_free(rt: &Runtime, session: usize, handle: *mut usize) -> MpiResult {
    let mut state = entered(rt)?;
    if handle.is_null() {
        return Err(fault(c::MPI_T_ERR_INVALID_HANDLE, "the handle pointer is null"));
    }
    // SAFETY: the caller's promise.
    unsafe {
        state.tools.remove_reading(session, handle.read())?;
        give(handle, 0)
    }
}

/// `MPI_T_pvar_start`: no variable can be started, because none ever stops.
pub unsafe fn pvar_start(rt: &Runtime, session: usize, handle: usize) -> MpiResult {
    start_or_stop(rt, session, handle)
}

/// `MPI_T_pvar_stop`.
pub unsafe fn pvar_stop(rt: &Runtime, session: usize, handle: usize) -> MpiResult {
    start_or_stop(rt, session, handle)
}

fn start_or_stop(rt: &Runtime, session: usize, handle: usize) -> MpiResult {
    let mut state = entered(rt)?;
    if handle == c::MPI_T_PVAR_ALL_HANDLES {
        return state.tools.readings(session).map(drop);
    }
    state.tools.reading(session, handle)?;
    Err(fault(c::MPI_T_ERR_PVAR_NO_STARTSTOP, "the variable always runs"))
}

/// `MPI_T_pvar_read`.
pub unsafe fn pvar_read(rt: &Runtime, session: usize, handle: usize, buf: *mut c_void) -> MpiResult {
    let mut state = entered(rt)?;
    // SAFETY: the caller's promise.
    unsafe { read(&mut state, session, handle, buf) }
}

/// `MPI_T_pvar_write`.
pub unsafe fn pvar_write(rt: &Runtime, session: usize, handle: usize, buf: *const c_void) -> MpiResult {
    let mut state = entered(rt)?;
    if buf.is_null() {
        return Err(fault(c::MPI_T_ERR_INVALID, "the buffer is null"));
    }
    // SAFETY: the caller's promise; all variables that can be written have this type.
    restart(&mut state, session, handle, || unsafe { buf.cast::<u64>().read_unaligned() })
}

/// `MPI_T_pvar_reset`.
pub unsafe fn pvar_reset(rt: &Runtime, session: usize, handle: usize) -> MpiResult {
    let mut state = entered(rt)?;
    if handle != c::MPI_T_PVAR_ALL_HANDLES {
        return restart(&mut state, session, handle, || 0);
    }
    for handle in state.tools.readings(session)? {
        // Those that cannot be reset are left out (MPI 5.0 §15.3.7).
        let _ = restart(&mut state, session, handle, || 0);
    }
    Ok(())
}

/// `MPI_T_pvar_readreset`.
pub unsafe fn pvar_readreset(rt: &Runtime, session: usize, handle: usize, buf: *mut c_void) -> MpiResult {
    let mut state = entered(rt)?;
    if !state.tools.reading(session, handle)?.variable.counts() {
        return Err(read_only());
    }
    // SAFETY: the caller's promise.
    unsafe { read(&mut state, session, handle, buf)? };
    restart(&mut state, session, handle, || 0)
}

/// `MPI_T_enum_get_info`.
pub unsafe fn enum_get_info(
    rt: &Runtime,
    enumtype: usize,
    num: *mut c_int,
    name: *mut c_char,
    name_len: *mut c_int,
) -> MpiResult {
    let _state = entered(rt)?;
    check_enum(enumtype)?;
    // SAFETY: the caller's promise.
    unsafe {
        offer(num, PATHS.len() as c_int);
        offer_text(name, name_len, "path");
    }
    Ok(())
}

/// `MPI_T_enum_get_item`.
pub unsafe fn enum_get_item(
    rt: &Runtime,
    enumtype: usize,
    indx: c_int,
    value: *mut c_int,
    name: *mut c_char,
    name_len: *mut c_int,
) -> MpiResult {
    let _state = entered(rt)?;
    check_enum(enumtype)?;
    let Some(item) = usize::try_from(indx).ok().and_then(|at| PATHS.get(at)) else {
        return Err(fault(c::MPI_T_ERR_INVALID_ITEM, format!("no item {indx}: there are {}", PATHS.len())));
    };
    // SAFETY: the caller's promise.
    unsafe {
        offer(value, indx);
        offer_text(name, name_len, item);
    }
    Ok(())
}

fn check_enum(enumtype: usize) -> MpiResult {
    match enumtype {
        PATHS_ENUM => Ok(()),
        _ => Err(fault(c::MPI_T_ERR_INVALID, "invalid enumeration")),
    }
}

/// The value of a counter or level since the start of the process.
fn counted(state: &State, of: Of) -> u64 {
    let traffic = state.engine.traffic();
    match of {
        Of::Sent => traffic.sent,
        Of::SentBytes => traffic.sent_bytes,
        Of::Received => traffic.received,
        Of::ReceivedBytes => traffic.received_bytes,
        Of::Sleeps => state.sleeps(),
        Of::Unexpected => state.engine.unexpected() as u64,
        Of::Posted => state.engine.pending() as u64,
        Of::Backlog => state.engine.crowded() as u64,
        Of::RingFill | Of::Paths => 0,
    }
}

unsafe fn read(state: &mut Guard<'_>, session: usize, handle: usize, buf: *mut c_void) -> MpiResult {
    if buf.is_null() {
        return Err(fault(c::MPI_T_ERR_INVALID, "the buffer is null"));
    }
    let Reading { variable, comm, base } = *state.tools.reading(session, handle)?;
    match (variable.of, comm) {
        (Of::RingFill, _) => {
            let fill = state.engine.transport().ring_fill();
            // SAFETY: the caller's promise: room for one value of the variable's type.
            unsafe { buf.cast::<f64>().write_unaligned(fill) };
        }
        (Of::Paths, Some(comm)) => {
            let found = state.comms.get(comm).map_err(|error| fault(c::MPI_T_ERR_INVALID_HANDLE, error.text))?;
            for (rank, peer) in found.parties.named().iter().enumerate() {
                let path = state.engine.transport().path(*peer, state.me());
                // SAFETY: the caller's promise: room for one value per member.
                unsafe { buf.cast::<c_int>().add(rank).write_unaligned(path) };
            }
        }
        (of, _) => {
            // SAFETY: the caller's promise.
            unsafe { buf.cast::<u64>().write_unaligned(counted(state, of).wrapping_sub(base)) };
        }
    }
    Ok(())
}

/// Makes a handle count from a value on.
fn restart(state: &mut Guard<'_>, session: usize, handle: usize, value: impl FnOnce() -> u64) -> MpiResult {
    let variable = state.tools.reading(session, handle)?.variable;
    if !variable.counts() {
        return Err(read_only());
    }
    let now = counted(state, variable.of);
    state.tools.reading(session, handle)?.base = now.wrapping_sub(value());
    Ok(())
}

fn read_only() -> crate::error::MpiError {
    fault(c::MPI_T_ERR_PVAR_NO_WRITE, "the variable can only be read")
}
