//! The functions of the chapter `errhan`. Generated from `abi/*.tsv` by `cargo xtask abi`: do not edit.

use super::*;

exports! {
    fn MPI_Abort PMPI_Abort(comm: CommHandle, errorcode: c_int) -> c_int
        => call(Scope::Comm(comm)) env::abort(comm, errorcode);
    fn MPI_Add_error_class PMPI_Add_error_class(errorclass: *mut c_int) -> c_int
        => call_always(Scope::World) errcodes::add_error_class(errorclass);
    fn MPI_Add_error_code PMPI_Add_error_code(errorclass: c_int, errorcode: *mut c_int) -> c_int
        => call_always(Scope::World) errcodes::add_error_code(errorclass, errorcode);
    fn MPI_Add_error_string PMPI_Add_error_string(errorcode: c_int, string: *const c_char) -> c_int
        => call_always(Scope::World) errcodes::add_error_string(errorcode, string);
    fn MPI_Comm_call_errhandler PMPI_Comm_call_errhandler(comm: CommHandle, errorcode: c_int) -> c_int
        => call(Scope::Comm(comm)) errhandler::comm_call_errhandler(comm, errorcode);
    fn MPI_Comm_create_errhandler PMPI_Comm_create_errhandler(
        comm_errhandler_fn: *const c_void, errhandler: *mut ErrhandlerHandle
    ) -> c_int
        => call(Scope::World) errhandler::comm_create_errhandler(comm_errhandler_fn, errhandler);
    fn MPI_Comm_get_errhandler PMPI_Comm_get_errhandler(comm: CommHandle, errhandler: *mut ErrhandlerHandle) -> c_int
        => call(Scope::Comm(comm)) errhandler::comm_get_errhandler(comm, errhandler);
    fn MPI_Comm_set_errhandler PMPI_Comm_set_errhandler(comm: CommHandle, errhandler: ErrhandlerHandle) -> c_int
        => call(Scope::Comm(comm)) errhandler::comm_set_errhandler(comm, errhandler);
    fn MPI_Error_class PMPI_Error_class(errorcode: c_int, errorclass: *mut c_int) -> c_int
        => call_always(Scope::World) errcodes::error_class(errorcode, errorclass);
    fn MPI_Error_string PMPI_Error_string(errorcode: c_int, string: *mut c_char, resultlen: *mut c_int) -> c_int
        => call_always(Scope::World) errcodes::error_string(errorcode, string, resultlen);
    fn MPI_Remove_error_class PMPI_Remove_error_class(errorclass: c_int) -> c_int
        => call_always(Scope::World) errcodes::remove_error_class(errorclass);
    fn MPI_Remove_error_code PMPI_Remove_error_code(errorcode: c_int) -> c_int
        => call_always(Scope::World) errcodes::remove_error_code(errorcode);
    fn MPI_Remove_error_string PMPI_Remove_error_string(errorcode: c_int) -> c_int
        => call_always(Scope::World) errcodes::remove_error_string(errorcode);
    fn MPI_Win_call_errhandler PMPI_Win_call_errhandler(win: WinHandle, errorcode: c_int) -> c_int
        => call(Scope::Win(win)) errhandler::win_call_errhandler(win, errorcode);
    fn MPI_Win_create_errhandler PMPI_Win_create_errhandler(
        win_errhandler_fn: *const c_void, errhandler: *mut ErrhandlerHandle
    ) -> c_int
        => call(Scope::World) errhandler::win_create_errhandler(win_errhandler_fn, errhandler);
    fn MPI_Win_get_errhandler PMPI_Win_get_errhandler(win: WinHandle, errhandler: *mut ErrhandlerHandle) -> c_int
        => call(Scope::Win(win)) errhandler::win_get_errhandler(win, errhandler);
    fn MPI_Win_set_errhandler PMPI_Win_set_errhandler(win: WinHandle, errhandler: ErrhandlerHandle) -> c_int
        => call(Scope::Win(win)) errhandler::win_set_errhandler(win, errhandler);
}
