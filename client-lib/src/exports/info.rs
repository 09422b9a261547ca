//! The functions of the chapter `info`. Generated from `abi/*.tsv` by `cargo xtask abi`: do not edit.

use super::*;

exports! {
    fn MPI_Abi_get_info PMPI_Abi_get_info(info: *mut InfoHandle) -> c_int
        => call_always(Scope::World) about::abi_get_info(info);
    fn MPI_Comm_get_info PMPI_Comm_get_info(comm: CommHandle, info_used: *mut InfoHandle) -> c_int
        => call(Scope::Comm(comm)) comm::comm_get_info(comm, info_used);
    fn MPI_Comm_set_info PMPI_Comm_set_info(comm: CommHandle, info: InfoHandle) -> c_int
        => call(Scope::Comm(comm)) comm::comm_set_info(comm, info);
    fn MPI_Info_create PMPI_Info_create(info: *mut InfoHandle) -> c_int
        => call_always(Scope::World) info::info_create(info);
    fn MPI_Info_create_env PMPI_Info_create_env(argc: c_int, argv: *mut *mut c_char, info: *mut InfoHandle) -> c_int
        => call_always(Scope::World) info::info_create_env(argc, argv, info);
    fn MPI_Info_delete PMPI_Info_delete(info: InfoHandle, key: *const c_char) -> c_int
        => call_always(Scope::World) info::info_delete(info, key);
    fn MPI_Info_dup PMPI_Info_dup(info: InfoHandle, newinfo: *mut InfoHandle) -> c_int
        => call_always(Scope::World) info::info_dup(info, newinfo);
    fn MPI_Info_free PMPI_Info_free(info: *mut InfoHandle) -> c_int
        => call_always(Scope::World) info::info_free(info);
    fn MPI_Info_fromint PMPI_Info_fromint(info: c_int) -> InfoHandle
        => plain() fortran::from_int(info);
    fn MPI_Info_get PMPI_Info_get(
        info: InfoHandle, key: *const c_char, valuelen: c_int, value: *mut c_char, flag: *mut c_int
    ) -> c_int
        => call_always(Scope::World) info::info_get(info, key, valuelen, value, flag);
    fn MPI_Info_get_nkeys PMPI_Info_get_nkeys(info: InfoHandle, nkeys: *mut c_int) -> c_int
        => call_always(Scope::World) info::info_get_nkeys(info, nkeys);
    fn MPI_Info_get_nthkey PMPI_Info_get_nthkey(info: InfoHandle, n: c_int, key: *mut c_char) -> c_int
        => call_always(Scope::World) info::info_get_nthkey(info, n, key);
    fn MPI_Info_get_string PMPI_Info_get_string(
        info: InfoHandle, key: *const c_char, buflen: *mut c_int, value: *mut c_char, flag: *mut c_int
    ) -> c_int
        => call_always(Scope::World) info::info_get_string(info, key, buflen, value, flag);
    fn MPI_Info_get_valuelen PMPI_Info_get_valuelen(
        info: InfoHandle, key: *const c_char, valuelen: *mut c_int, flag: *mut c_int
    ) -> c_int
        => call_always(Scope::World) info::info_get_valuelen(info, key, valuelen, flag);
    fn MPI_Info_set PMPI_Info_set(info: InfoHandle, key: *const c_char, value: *const c_char) -> c_int
        => call_always(Scope::World) info::info_set(info, key, value);
    fn MPI_Info_toint PMPI_Info_toint(info: InfoHandle) -> c_int
        => plain() fortran::to_int(info);
    fn MPI_Win_get_info PMPI_Win_get_info(win: WinHandle, info_used: *mut InfoHandle) -> c_int
        => call(Scope::Win(win)) window::win_get_info(win, info_used);
    fn MPI_Win_set_info PMPI_Win_set_info(win: WinHandle, info: InfoHandle) -> c_int
        => call(Scope::Win(win)) window::win_set_info(win, info);
}
