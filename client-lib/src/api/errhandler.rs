//! Error handlers (MPI 5.0 §9.3, §9.5). There are no files yet: handlers can be created for them, and set for files that will be
//! opened.

#![expect(unsafe_code, reason = "the C boundary")]
#![expect(clippy::missing_safety_doc, reason = "callers guarantee what the standard requires of them")]

use std::ffi::{c_int, c_void};

use super::args::{check_place, put};
use crate::abi::{CommHandle, ErrhandlerHandle, FileHandle, SessionHandle, WinHandle};
use crate::error::{MpiError, MpiResult};
use crate::object::errhandler::Of;
use crate::runtime::{Runtime, Scope, State, last_met, raise};

macro_rules! creates {
    ($($name:ident $of:ident $text:literal;)*) => {$(
        #[doc = concat!("`MPI_", $text, "_create_errhandler`.")]
        pub unsafe fn $name(rt: &Runtime, function: *const c_void, errhandler: *mut ErrhandlerHandle) -> MpiResult {
            check_place(errhandler)?;
            let made = rt.visit().errhandlers.create(function, Of::$of)?;
            // SAFETY: the caller's promise.
            unsafe { put(errhandler, made) }
        }
    )*};
}

creates! {
    comm_create_errhandler Comm "Comm";
    win_create_errhandler Win "Win";
    file_create_errhandler File "File";
    session_create_errhandler Session "Session";
}

/// `MPI_Errhandler_free`.
pub unsafe fn errhandler_free(rt: &Runtime, errhandler: *mut ErrhandlerHandle) -> MpiResult {
    check_place(errhandler)?;
    // SAFETY: the caller's promise.
    unsafe {
        rt.visit().errhandlers.free(errhandler.read())?;
        put(errhandler, ErrhandlerHandle::NULL)
    }
}

/// `MPI_Comm_set_errhandler`.
pub unsafe fn comm_set_errhandler(rt: &Runtime, comm: CommHandle, errhandler: ErrhandlerHandle) -> MpiResult {
    let mut state = rt.lock();
    let State { comms, errhandlers, .. } = &mut *state;
    let communicator = comms.get_mut(comm)?;
    let new = errhandlers.find(errhandler, Of::Comm)?;
    let old = std::mem::replace(&mut communicator.errhandler, new);
    communicator.chose_errhandler = true;
    errhandlers.used(new);
    errhandlers.unused(old);
    Ok(())
}

/// `MPI_Comm_get_errhandler`.
pub unsafe fn comm_get_errhandler(rt: &Runtime, comm: CommHandle, errhandler: *mut ErrhandlerHandle) -> MpiResult {
    check_place(errhandler)?;
    let mut state = rt.lock();
    let found = state.comms.get(comm)?.errhandler;
    // SAFETY: the caller's promise.
    unsafe { put(errhandler, state.errhandlers.held(found)) }
}

/// `MPI_Comm_call_errhandler`.
pub unsafe fn comm_call_errhandler(rt: &Runtime, comm: CommHandle, errorcode: c_int) -> MpiResult {
    rt.lock().comms.get(comm)?;
    call(rt, "MPI_Comm_call_errhandler", Scope::Comm(comm), errorcode)
}

/// `MPI_Win_set_errhandler`.
pub unsafe fn win_set_errhandler(rt: &Runtime, win: WinHandle, errhandler: ErrhandlerHandle) -> MpiResult {
    let mut state = rt.lock();
    let State { windows, errhandlers, .. } = &mut *state;
    let window = windows.get_mut(win)?;
    let new = errhandlers.find(errhandler, Of::Win)?;
    let old = std::mem::replace(&mut window.errhandler, new);
    errhandlers.used(new);
    errhandlers.unused(old);
    Ok(())
}

/// `MPI_Win_get_errhandler`.
pub unsafe fn win_get_errhandler(rt: &Runtime, win: WinHandle, errhandler: *mut ErrhandlerHandle) -> MpiResult {
    check_place(errhandler)?;
    let mut state = rt.lock();
    let found = state.windows.get(win)?.errhandler;
    // SAFETY: the caller's promise.
    unsafe { put(errhandler, state.errhandlers.held(found)) }
}

/// `MPI_Win_call_errhandler`.
pub unsafe fn win_call_errhandler(rt: &Runtime, win: WinHandle, errorcode: c_int) -> MpiResult {
    rt.lock().windows.get(win)?;
    call(rt, "MPI_Win_call_errhandler", Scope::Win(win), errorcode)
}

/// `MPI_Session_set_errhandler`.
pub unsafe fn session_set_errhandler(rt: &Runtime, session: SessionHandle, errhandler: ErrhandlerHandle) -> MpiResult {
    let mut state = rt.visit();
    let State { sessions, errhandlers, .. } = &mut *state;
    let found = sessions.get_mut(session)?;
    let new = errhandlers.find(errhandler, Of::Session)?;
    let old = std::mem::replace(&mut found.errhandler, new);
    errhandlers.used(new);
    errhandlers.unused(old);
    Ok(())
}

/// `MPI_Session_get_errhandler`.
pub unsafe fn session_get_errhandler(
    rt: &Runtime,
    session: SessionHandle,
    errhandler: *mut ErrhandlerHandle,
) -> MpiResult {
    check_place(errhandler)?;
    let mut state = rt.visit();
    let found = state.sessions.get(session)?.errhandler;
    // SAFETY: the caller's promise.
    unsafe { put(errhandler, state.errhandlers.held(found)) }
}

/// `MPI_Session_call_errhandler`.
pub unsafe fn session_call_errhandler(rt: &Runtime, session: SessionHandle, errorcode: c_int) -> MpiResult {
    rt.visit().sessions.get(session)?;
    call(rt, "MPI_Session_call_errhandler", Scope::Session(session), errorcode)
}

/// `MPI_File_set_errhandler`: for `MPI_FILE_NULL`, the handler of files that are opened later.
pub unsafe fn file_set_errhandler(rt: &Runtime, file: FileHandle, errhandler: ErrhandlerHandle) -> MpiResult {
    null(file)?;
    let mut state = rt.visit();
    let new = state.errhandlers.find(errhandler, Of::File)?;
    let old = std::mem::replace(&mut state.errhandlers.file, new);
    state.errhandlers.used(new);
    state.errhandlers.unused(old);
    Ok(())
}

/// `MPI_File_get_errhandler`.
pub unsafe fn file_get_errhandler(rt: &Runtime, file: FileHandle, errhandler: *mut ErrhandlerHandle) -> MpiResult {
    null(file)?;
    check_place(errhandler)?;
    let mut state = rt.visit();
    let found = state.errhandlers.file;
    // SAFETY: the caller's promise.
    unsafe { put(errhandler, state.errhandlers.held(found)) }
}

/// `MPI_File_call_errhandler`.
pub unsafe fn file_call_errhandler(rt: &Runtime, file: FileHandle, errorcode: c_int) -> MpiResult {
    null(file)?;
    call(rt, "MPI_File_call_errhandler", Scope::File(file), errorcode)
}

fn null(file: FileHandle) -> MpiResult {
    if file == FileHandle::NULL {
        Ok(())
    } else {
        Err(MpiError::new(crate::abi::constants::MPI_ERR_FILE, "invalid or closed file"))
    }
}

fn call(rt: &Runtime, name: &'static str, scope: Scope, code: c_int) -> MpiResult {
    let text = match rt.visit().error_codes.text_after(code, last_met().as_ref()) {
        Ok(text) if !text.is_empty() => String::from_utf8_lossy(&text).into_owned(),
        Ok(_) | Err(_) => format!("the program has raised error {code}"),
    };
    raise(rt, name, scope, MpiError::new(code, text));
    Ok(())
}
