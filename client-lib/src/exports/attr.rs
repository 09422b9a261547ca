//! The functions of the chapter `attr`. Generated from `abi/*.tsv` by `cargo xtask abi`: do not edit.

use super::*;

exports! {
    fn MPI_Attr_delete PMPI_Attr_delete(comm: CommHandle, keyval: c_int) -> c_int
        => call(Scope::Comm(comm)) attr::comm_delete_attr(comm, keyval);
    fn MPI_Attr_get PMPI_Attr_get(
        comm: CommHandle, keyval: c_int, attribute_val: *mut c_void, flag: *mut c_int
    ) -> c_int
        => call(Scope::Comm(comm)) attr::comm_get_attr(comm, keyval, attribute_val, flag);
    fn MPI_Attr_put PMPI_Attr_put(comm: CommHandle, keyval: c_int, attribute_val: *mut c_void) -> c_int
        => call(Scope::Comm(comm)) attr::comm_set_attr(comm, keyval, attribute_val);
    fn MPI_Comm_create_keyval PMPI_Comm_create_keyval(
        comm_copy_attr_fn: *const c_void, comm_delete_attr_fn: *const c_void, comm_keyval: *mut c_int,
        extra_state: *mut c_void
    ) -> c_int
        => call(Scope::World) attr::comm_create_keyval(
            comm_copy_attr_fn, comm_delete_attr_fn, comm_keyval, extra_state
        );
    fn MPI_Comm_delete_attr PMPI_Comm_delete_attr(comm: CommHandle, comm_keyval: c_int) -> c_int
        => call(Scope::Comm(comm)) attr::comm_delete_attr(comm, comm_keyval);
    fn MPI_Comm_free_keyval PMPI_Comm_free_keyval(comm_keyval: *mut c_int) -> c_int
        => call(Scope::World) attr::comm_free_keyval(comm_keyval);
    fn MPI_Comm_get_attr PMPI_Comm_get_attr(
        comm: CommHandle, comm_keyval: c_int, attribute_val: *mut c_void, flag: *mut c_int
    ) -> c_int
        => call(Scope::Comm(comm)) attr::comm_get_attr(comm, comm_keyval, attribute_val, flag);
    fn MPI_Comm_set_attr PMPI_Comm_set_attr(comm: CommHandle, comm_keyval: c_int, attribute_val: *mut c_void) -> c_int
        => call(Scope::Comm(comm)) attr::comm_set_attr(comm, comm_keyval, attribute_val);
    fn MPI_Keyval_create PMPI_Keyval_create(
        copy_fn: *const c_void, delete_fn: *const c_void, keyval: *mut c_int, extra_state: *mut c_void
    ) -> c_int
        => call(Scope::World) attr::comm_create_keyval(copy_fn, delete_fn, keyval, extra_state);
    fn MPI_Keyval_free PMPI_Keyval_free(keyval: *mut c_int) -> c_int
        => call(Scope::World) attr::comm_free_keyval(keyval);
    fn MPI_Type_create_keyval PMPI_Type_create_keyval(
        type_copy_attr_fn: *const c_void, type_delete_attr_fn: *const c_void, type_keyval: *mut c_int,
        extra_state: *mut c_void
    ) -> c_int
        => call(Scope::World) attr::type_create_keyval(
            type_copy_attr_fn, type_delete_attr_fn, type_keyval, extra_state
        );
    fn MPI_Type_delete_attr PMPI_Type_delete_attr(datatype: DatatypeHandle, type_keyval: c_int) -> c_int
        => call(Scope::World) attr::type_delete_attr(datatype, type_keyval);
    fn MPI_Type_free_keyval PMPI_Type_free_keyval(type_keyval: *mut c_int) -> c_int
        => call(Scope::World) attr::type_free_keyval(type_keyval);
    fn MPI_Type_get_attr PMPI_Type_get_attr(
        datatype: DatatypeHandle, type_keyval: c_int, attribute_val: *mut c_void, flag: *mut c_int
    ) -> c_int
        => call(Scope::World) attr::type_get_attr(datatype, type_keyval, attribute_val, flag);
    fn MPI_Type_set_attr PMPI_Type_set_attr(
        datatype: DatatypeHandle, type_keyval: c_int, attribute_val: *mut c_void
    ) -> c_int
        => call(Scope::World) attr::type_set_attr(datatype, type_keyval, attribute_val);
    fn MPI_Win_create_keyval PMPI_Win_create_keyval(
        win_copy_attr_fn: *const c_void, win_delete_attr_fn: *const c_void, win_keyval: *mut c_int,
        extra_state: *mut c_void
    ) -> c_int
        => call(Scope::World) attr::win_create_keyval(win_copy_attr_fn, win_delete_attr_fn, win_keyval, extra_state);
    fn MPI_Win_delete_attr PMPI_Win_delete_attr(win: WinHandle, win_keyval: c_int) -> c_int
        => call(Scope::Win(win)) attr::win_delete_attr(win, win_keyval);
    fn MPI_Win_free_keyval PMPI_Win_free_keyval(win_keyval: *mut c_int) -> c_int
        => call(Scope::World) attr::win_free_keyval(win_keyval);
    fn MPI_Win_get_attr PMPI_Win_get_attr(
        win: WinHandle, win_keyval: c_int, attribute_val: *mut c_void, flag: *mut c_int
    ) -> c_int
        => call(Scope::Win(win)) attr::win_get_attr(win, win_keyval, attribute_val, flag);
    fn MPI_Win_set_attr PMPI_Win_set_attr(win: WinHandle, win_keyval: c_int, attribute_val: *mut c_void) -> c_int
        => call(Scope::Win(win)) attr::win_set_attr(win, win_keyval, attribute_val);
}
