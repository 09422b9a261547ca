//! Connections between groups of processes that were started separately (MPI 5.0 §11.9, §11.10).

#![expect(unsafe_code, reason = "the C boundary")]
#![expect(clippy::missing_safety_doc, reason = "callers guarantee what the standard requires of them")]

use std::ffi::{c_char, c_int};
use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::args::{self, check_place, put, put_text, text};
use crate::abi::constants::{MPI_COMM_SELF, MPI_ERR_INFO_VALUE, MPI_MAX_PORT_NAME};
use crate::abi::{CommHandle, InfoHandle};
use crate::error::{MpiError, MpiResult};
use crate::runtime::{Role, Runtime, State, connect_groups, join, port_name};

/// `MPI_Open_port`. No info keys are known: the port listens at the address of `RSD_MPI_INTERFACE` or of the launcher.
pub unsafe fn open_port(rt: &Runtime, info: InfoHandle, port_name: *mut c_char) -> MpiResult {
    check_place(port_name)?;
    let mut state = rt.lock();
    state.infos.hints(info)?;
    let name = state.open_port()?.text();
    // SAFETY: the caller's promise.
    unsafe { put_text(port_name, MPI_MAX_PORT_NAME as usize, name.as_bytes()) }.map(drop)
}

/// `MPI_Close_port`: callers that have not been accepted are refused.
pub unsafe fn close_port(rt: &Runtime, port_name: *const c_char) -> MpiResult {
    // SAFETY: the caller's promise.
    let name = self::port_name(unsafe { text(port_name, "port name")? })?;
    rt.lock().ports.close(&name)
}

/// `MPI_Comm_accept`. The info key `timeout`, in seconds, limits the wait; there is no limit by default.
pub unsafe fn comm_accept(
    rt: &Runtime,
    port_name: *const c_char,
    info: InfoHandle,
    root: c_int,
    comm: CommHandle,
    newcomm: *mut CommHandle,
) -> MpiResult {
    // SAFETY: the caller's promise.
    unsafe { connect_or_accept(rt, port_name, info, root, comm, newcomm, Role::Accept) }
}

/// `MPI_Comm_connect`. The info key `timeout`, in seconds, limits how long the other side may take to accept: 60 by
/// default.
pub unsafe fn comm_connect(
    rt: &Runtime,
    port_name: *const c_char,
    info: InfoHandle,
    root: c_int,
    comm: CommHandle,
    newcomm: *mut CommHandle,
) -> MpiResult {
    // SAFETY: the caller's promise.
    unsafe { connect_or_accept(rt, port_name, info, root, comm, newcomm, Role::Connect) }
}

/// Only the root's port name and info matter; the other members wait for the root.
unsafe fn connect_or_accept<'a>(
    rt: &Runtime,
    port_name: *const c_char,
    info: InfoHandle,
    root: c_int,
    comm: CommHandle,
    newcomm: *mut CommHandle,
    role: impl FnOnce(&'a [u8]) -> Role<'a>,
) -> MpiResult {
    check_place(newcomm)?;
    let mut guard = rt.lock();
    let communicator = guard.comms.get(comm)?;
    communicator.must_be_intra()?;
    communicator.must_be_usable()?;
    let root = args::root(communicator, root)?;
    let (name, limit) = match root == communicator.rank {
        // SAFETY: the caller's promise. A null pointer is an invalid port name, which the other members are told.
        true => (unsafe { text(port_name, "port name") }.unwrap_or_default(), limit(&guard, info)),
        false => (&[][..], Ok(None)),
    };
    // An invalid info is also reported only by the root.
    let (name, fault) = if limit.is_err() { (&[][..], limit.as_ref().err().cloned()) } else { (name, None) };
    let circle = guard.comms.get_mut(comm)?.circle_of_all();
    let made = connect_groups(&mut guard, comm, circle, root, role(name), limit.ok().flatten());
    let made = made.map_err(|error| fault.unwrap_or(error))?;
    // SAFETY: the caller's promise.
    unsafe { put(newcomm, made) }
}

/// The value of the info key `timeout`.
fn limit(state: &State, info: InfoHandle) -> MpiResult<Option<Duration>> {
    state.infos.hints(info)?.and_then(|hints| hints.get(b"timeout")).map(seconds).transpose()
}

/// Parses a value of the info key `timeout`.
pub(super) fn seconds(said: &[u8]) -> MpiResult<Duration> {
    let said = String::from_utf8_lossy(said);
    let seconds = said.trim().parse::<f64>().ok();
    let limit = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    limit.ok_or_else(|| {
        MpiError::new(
            MPI_ERR_INFO_VALUE,
            format!("invalid info value timeout={said:?}: expected seconds, such as 30 or 0.5"),
        )
    })
}

/// `MPI_Comm_join`, over any stream socket. Both sides send the same number of bytes, and nothing is left in the
/// socket.
pub unsafe fn comm_join(rt: &Runtime, fd: c_int, intercomm: *mut CommHandle) -> MpiResult {
    check_place(intercomm)?;
    if fd < 0 {
        return Err(MpiError::arg(format!("invalid descriptor {fd}")));
    }
    // SAFETY: the caller lends the descriptor for the duration of the call.
    let socket = unsafe { BorrowedFd::borrow_raw(fd) };
    let made = join(&mut rt.lock(), socket, CommHandle(MPI_COMM_SELF))?;
    // SAFETY: the caller's promise.
    unsafe { put(intercomm, made) }
}
