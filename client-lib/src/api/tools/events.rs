//! Events and their sources (MPI 5.0 §15.3.8): there are none, so no index, name or handle is valid.

use std::ffi::{c_char, c_int, c_void};

use super::{entered, give};
use crate::abi::constants::{MPI_T_ERR_INVALID_HANDLE, MPI_T_ERR_INVALID_INDEX, MPI_T_ERR_INVALID_NAME};
use crate::abi::{DatatypeHandle, InfoHandle};
use crate::error::{MpiError, MpiResult};
use crate::object::tools::fault;
use crate::runtime::Runtime;

fn no_index() -> MpiError {
    fault(MPI_T_ERR_INVALID_INDEX, "this library has no events")
}

fn no_handle() -> MpiError {
    fault(MPI_T_ERR_INVALID_HANDLE, "this library has no events")
}

/// `MPI_T_event_get_num`.
pub unsafe fn event_get_num(rt: &Runtime, num_events: *mut c_int) -> MpiResult {
    let _state = entered(rt)?;
    // SAFETY: the caller's promise.
    unsafe { give(num_events, 0) }
}

/// `MPI_T_source_get_num`.
pub unsafe fn source_get_num(rt: &Runtime, num_sources: *mut c_int) -> MpiResult {
    let _state = entered(rt)?;
    // SAFETY: the caller's promise.
    unsafe { give(num_sources, 0) }
}

/// `MPI_T_event_get_index`.
pub unsafe fn event_get_index(rt: &Runtime, _name: *const c_char, _event_index: *mut c_int) -> MpiResult {
    let _state = entered(rt)?;
    Err(fault(MPI_T_ERR_INVALID_NAME, "this library has no events"))
}

macro_rules! none {
    ($($name:ident $mpi:literal $error:ident($($type:ty),*);)*) => {$(
        #[doc = concat!("`", $mpi, "`.")]
        #[expect(clippy::allow_attributes, reason = "only some have so many arguments")]
        #[allow(clippy::too_many_arguments, reason = "the standard's argument list")]
        pub unsafe fn $name(rt: &Runtime $(, _: $type)*) -> MpiResult {
            let _state = entered(rt)?;
            Err($error())
        }
    )*};
}

none! {
    event_get_info "MPI_T_event_get_info" no_index(
        c_int, *mut c_char, *mut c_int, *mut c_int, *mut DatatypeHandle, *mut i64, *mut c_int, *mut usize, *mut InfoHandle,
        *mut c_char, *mut c_int, *mut c_int
    );
    event_handle_alloc "MPI_T_event_handle_alloc" no_index(c_int, *mut c_void, InfoHandle, *mut usize);
    event_handle_free "MPI_T_event_handle_free" no_handle(usize, *mut c_void, *const c_void);
    event_handle_get_info "MPI_T_event_handle_get_info" no_handle(usize, *mut InfoHandle);
    event_handle_set_info "MPI_T_event_handle_set_info" no_handle(usize, InfoHandle);
    event_register_callback "MPI_T_event_register_callback" no_handle(usize, c_int, InfoHandle, *mut c_void, *const c_void);
    event_callback_get_info "MPI_T_event_callback_get_info" no_handle(usize, c_int, *mut InfoHandle);
    event_callback_set_info "MPI_T_event_callback_set_info" no_handle(usize, c_int, InfoHandle);
    event_set_dropped_handler "MPI_T_event_set_dropped_handler" no_handle(usize, *const c_void);
    event_read "MPI_T_event_read" no_handle(usize, c_int, *mut c_void);
    event_copy "MPI_T_event_copy" no_handle(usize, *mut c_void);
    event_get_timestamp "MPI_T_event_get_timestamp" no_handle(usize, *mut i64);
    event_get_source "MPI_T_event_get_source" no_handle(usize, *mut c_int);
    source_get_info "MPI_T_source_get_info" no_index(
        c_int, *mut c_char, *mut c_int, *mut c_char, *mut c_int, *mut c_int, *mut i64, *mut i64, *mut InfoHandle
    );
    source_get_timestamp "MPI_T_source_get_timestamp" no_index(c_int, *mut i64);
}
