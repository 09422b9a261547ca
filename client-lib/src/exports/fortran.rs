//! The functions of the chapter `fortran`. Generated from `abi/*.tsv` by `cargo xtask abi`: do not edit.

use super::*;

exports! {
    fn MPI_Abi_get_fortran_booleans PMPI_Abi_get_fortran_booleans(
        logical_size: c_int, logical_true: *mut c_void, logical_false: *mut c_void, is_set: *mut c_int
    ) -> c_int
        => call_always(Scope::World) about::abi_get_fortran_booleans(logical_size, logical_true, logical_false, is_set);
    fn MPI_Abi_get_fortran_info PMPI_Abi_get_fortran_info(info: *mut InfoHandle) -> c_int
        => call_always(Scope::World) about::abi_get_fortran_info(info);
    fn MPI_Abi_set_fortran_booleans PMPI_Abi_set_fortran_booleans(
        logical_size: c_int, logical_true: *mut c_void, logical_false: *mut c_void
    ) -> c_int
        => call_always(Scope::World) about::abi_set_fortran_booleans(logical_size, logical_true, logical_false);
    fn MPI_Abi_set_fortran_info PMPI_Abi_set_fortran_info(info: InfoHandle) -> c_int
        => call_always(Scope::World) about::abi_set_fortran_info(info);
    fn MPI_Comm_fromint PMPI_Comm_fromint(comm: c_int) -> CommHandle
        => plain() fortran::from_int(comm);
    fn MPI_Comm_toint PMPI_Comm_toint(comm: CommHandle) -> c_int
        => plain() fortran::to_int(comm);
    fn MPI_Errhandler_fromint PMPI_Errhandler_fromint(errhandler: c_int) -> ErrhandlerHandle
        => plain() fortran::from_int(errhandler);
    fn MPI_Errhandler_toint PMPI_Errhandler_toint(errhandler: ErrhandlerHandle) -> c_int
        => plain() fortran::to_int(errhandler);
    fn MPI_Message_fromint PMPI_Message_fromint(message: c_int) -> MessageHandle
        => plain() fortran::from_int(message);
    fn MPI_Message_toint PMPI_Message_toint(message: MessageHandle) -> c_int
        => plain() fortran::to_int(message);
    fn MPI_Request_fromint PMPI_Request_fromint(request: c_int) -> RequestHandle
        => plain() fortran::from_int(request);
    fn MPI_Request_toint PMPI_Request_toint(request: RequestHandle) -> c_int
        => plain() fortran::to_int(request);
}
