//! The functions of the chapter `op`. Generated from `abi/*.tsv` by `cargo xtask abi`: do not edit.

use super::*;

exports! {
    fn MPI_Op_commutative PMPI_Op_commutative(op: OpHandle, commute: *mut c_int) -> c_int
        => call(Scope::World) op::op_commutative(op, commute);
    fn MPI_Op_create PMPI_Op_create(user_fn: *const c_void, commute: c_int, op: *mut OpHandle) -> c_int
        => call(Scope::World) op::op_create(user_fn, false, commute, op);
    fn MPI_Op_create_c PMPI_Op_create_c(user_fn: *const c_void, commute: c_int, op: *mut OpHandle) -> c_int
        => call(Scope::World) op::op_create(user_fn, true, commute, op);
    fn MPI_Op_free PMPI_Op_free(op: *mut OpHandle) -> c_int
        => call(Scope::World) op::op_free(op);
    fn MPI_Op_fromint PMPI_Op_fromint(op: c_int) -> OpHandle
        => plain() fortran::from_int(op);
    fn MPI_Op_toint PMPI_Op_toint(op: OpHandle) -> c_int
        => plain() fortran::to_int(op);
}
