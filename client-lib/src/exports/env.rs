//! The functions of the chapter `env`. Generated from `abi/*.tsv` by `cargo xtask abi`: do not edit.

use super::*;

exports! {
    fn MPI_Abi_get_version PMPI_Abi_get_version(abi_major: *mut c_int, abi_minor: *mut c_int) -> c_int
        => call_always(Scope::World) about::abi_get_version(abi_major, abi_minor);
    fn MPI_Alloc_mem PMPI_Alloc_mem(size: i64, info: InfoHandle, baseptr: *mut c_void) -> c_int
        => call(Scope::World) alloc_mem::alloc_mem(size, info, baseptr);
    fn MPI_Errhandler_free PMPI_Errhandler_free(errhandler: *mut ErrhandlerHandle) -> c_int
        => call_always(Scope::World) errhandler::errhandler_free(errhandler);
    fn MPI_Finalize PMPI_Finalize() -> c_int
        => call(Scope::World) env::finalize();
    fn MPI_Finalized PMPI_Finalized(flag: *mut c_int) -> c_int
        => call_always(Scope::World) env::finalized(flag);
    fn MPI_Free_mem PMPI_Free_mem(base: *mut c_void) -> c_int
        => call(Scope::World) alloc_mem::free_mem(base);
    fn MPI_Get_hw_resource_info PMPI_Get_hw_resource_info(hw_info: *mut InfoHandle) -> c_int
        => call_always(Scope::World) about::get_hw_resource_info(hw_info);
    fn MPI_Get_library_version PMPI_Get_library_version(version: *mut c_char, resultlen: *mut c_int) -> c_int
        => call_always(Scope::World) about::get_library_version(version, resultlen);
    fn MPI_Get_processor_name PMPI_Get_processor_name(name: *mut c_char, resultlen: *mut c_int) -> c_int
        => call(Scope::World) env::get_processor_name(name, resultlen);
    fn MPI_Get_version PMPI_Get_version(version: *mut c_int, subversion: *mut c_int) -> c_int
        => call_always(Scope::World) about::get_version(version, subversion);
    fn MPI_Init PMPI_Init(argc: *mut c_int, argv: *mut *mut *mut c_char) -> c_int
        => call_always(Scope::World) env::init(argc, argv);
    fn MPI_Init_thread PMPI_Init_thread(
        argc: *mut c_int, argv: *mut *mut *mut c_char, required: c_int, provided: *mut c_int
    ) -> c_int
        => call_always(Scope::World) env::init_thread(argc, argv, required, provided);
    fn MPI_Initialized PMPI_Initialized(flag: *mut c_int) -> c_int
        => call_always(Scope::World) env::initialized(flag);
    fn MPI_Is_thread_main PMPI_Is_thread_main(flag: *mut c_int) -> c_int
        => call(Scope::World) env::is_thread_main(flag);
    fn MPI_Pcontrol PMPI_Pcontrol(level: c_int) -> c_int
        => call(Scope::World) alloc_mem::pcontrol(level);
    fn MPI_Query_thread PMPI_Query_thread(provided: *mut c_int) -> c_int
        => call(Scope::World) env::query_thread(provided);
    fn MPI_Win_get_name PMPI_Win_get_name(win: WinHandle, win_name: *mut c_char, resultlen: *mut c_int) -> c_int
        => call(Scope::Win(win)) window::win_get_name(win, win_name, resultlen);
    fn MPI_Win_set_name PMPI_Win_set_name(win: WinHandle, win_name: *const c_char) -> c_int
        => call(Scope::Win(win)) window::win_set_name(win, win_name);
    fn MPI_Wtick PMPI_Wtick() -> f64
        => plain() about::wtick();
    fn MPI_Wtime PMPI_Wtime() -> f64
        => plain() about::wtime();
}
