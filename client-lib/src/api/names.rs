//! Names for ports (MPI 5.0 §11.9.4). The process manager stores them for all jobs that it runs: with rsd, for the
//! whole DVM, until they are unpublished or the publishing job ends.

#![expect(unsafe_code, reason = "the C boundary")]
#![expect(clippy::missing_safety_doc, reason = "callers guarantee what the standard requires of them")]

use std::ffi::c_char;

use super::args::{check_place, put_text, text};
use crate::abi::InfoHandle;
use crate::abi::constants::{MPI_ERR_NAME, MPI_ERR_SERVICE, MPI_MAX_PORT_NAME};
use crate::bootstrap::BootstrapError;
use crate::error::{MpiError, MpiResult};
use crate::runtime::{Runtime, State, manager};

/// `MPI_Publish_name`: fails with class `MPI_ERR_SERVICE` if the name is taken. No info keys are known.
pub unsafe fn publish_name(
    rt: &Runtime,
    service_name: *const c_char,
    info: InfoHandle,
    port_name: *const c_char,
) -> MpiResult {
    let mut state = rt.lock();
    // SAFETY: the caller's promise.
    let (name, port) = unsafe { (service(&state, service_name, info)?, text(port_name, "port name")?) };
    match manager(&mut state)?.publish(name, port).map_err(|error| mpi_error("publish a name", &error))? {
        true => Ok(()),
        false => Err(MpiError::new(MPI_ERR_SERVICE, format!("the name {} is taken", shown(name)))),
    }
}

/// `MPI_Unpublish_name`: fails with class `MPI_ERR_SERVICE` if there is no such name.
pub unsafe fn unpublish_name(
    rt: &Runtime,
    service_name: *const c_char,
    info: InfoHandle,
    _port_name: *const c_char,
) -> MpiResult {
    let mut state = rt.lock();
    // SAFETY: the caller's promise.
    let name = unsafe { service(&state, service_name, info)? };
    match manager(&mut state)?.unpublish(name).map_err(|error| mpi_error("unpublish a name", &error))? {
        true => Ok(()),
        false => Err(MpiError::new(MPI_ERR_SERVICE, format!("the name {} is not published by this user", shown(name)))),
    }
}

/// `MPI_Lookup_name`: fails with class `MPI_ERR_NAME` if there is no such name now; it does not wait.
pub unsafe fn lookup_name(
    rt: &Runtime,
    service_name: *const c_char,
    info: InfoHandle,
    port_name: *mut c_char,
) -> MpiResult {
    check_place(port_name)?;
    let mut state = rt.lock();
    // SAFETY: the caller's promise.
    let name = unsafe { service(&state, service_name, info)? };
    let found = manager(&mut state)?.lookup(name).map_err(|error| mpi_error("look up a name", &error))?;
    let port =
        found.ok_or_else(|| MpiError::new(MPI_ERR_NAME, format!("the name {} is not published", shown(name))))?;
    if port.len() >= MPI_MAX_PORT_NAME as usize {
        return Err(MpiError::new(
            MPI_ERR_NAME,
            format!("the port of {} is longer than MPI_MAX_PORT_NAME", shown(name)),
        ));
    }
    // SAFETY: the caller's promise.
    unsafe { put_text(port_name, MPI_MAX_PORT_NAME as usize, &port) }.map(drop)
}

unsafe fn service<'a>(state: &State, name: *const c_char, info: InfoHandle) -> MpiResult<&'a [u8]> {
    state.infos.hints(info)?;
    // SAFETY: the caller's promise.
    match unsafe { text(name, "service name")? } {
        [] => Err(MpiError::arg("the service name is empty")),
        name => Ok(name),
    }
}

fn shown(name: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(&name[..name.len().min(80)]))
}

fn mpi_error(what: &str, error: &BootstrapError) -> MpiError {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
    MpiError::other(format!("cannot {what}: failed to {error}{cause}"))
}
