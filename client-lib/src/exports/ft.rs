//! The functions of the chapter `ft`. Generated from `abi/*.tsv` by `cargo xtask abi`: do not edit.

use super::*;

exports! {
    fn MPIX_Comm_ack_failed PMPIX_Comm_ack_failed(comm: CommHandle, num_to_ack: c_int, num_acked: *mut c_int) -> c_int
        => call(Scope::Comm(comm)) ft::comm_ack_failed(comm, num_to_ack, num_acked);
    fn MPIX_Comm_agree PMPIX_Comm_agree(comm: CommHandle, flag: *mut c_int) -> c_int
        => call(Scope::Comm(comm)) ft::comm_agree(comm, flag);
    fn MPIX_Comm_failure_ack PMPIX_Comm_failure_ack(comm: CommHandle) -> c_int
        => call(Scope::Comm(comm)) ft::comm_failure_ack(comm);
    fn MPIX_Comm_failure_get_acked PMPIX_Comm_failure_get_acked(
        comm: CommHandle, failedgroup: *mut GroupHandle
    ) -> c_int
        => call(Scope::Comm(comm)) ft::comm_failure_get_acked(comm, failedgroup);
    fn MPIX_Comm_get_failed PMPIX_Comm_get_failed(comm: CommHandle, failedgroup: *mut GroupHandle) -> c_int
        => call(Scope::Comm(comm)) ft::comm_get_failed(comm, failedgroup);
    fn MPIX_Comm_iagree PMPIX_Comm_iagree(comm: CommHandle, flag: *mut c_int, request: *mut RequestHandle) -> c_int
        => call(Scope::Comm(comm)) ft::comm_iagree(comm, flag, request);
    fn MPIX_Comm_is_revoked PMPIX_Comm_is_revoked(comm: CommHandle, flag: *mut c_int) -> c_int
        => call(Scope::Comm(comm)) ft::comm_is_revoked(comm, flag);
    fn MPIX_Comm_ishrink PMPIX_Comm_ishrink(
        comm: CommHandle, newcomm: *mut CommHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) ft::comm_ishrink(comm, newcomm, request);
    fn MPIX_Comm_revoke PMPIX_Comm_revoke(comm: CommHandle) -> c_int
        => call(Scope::Comm(comm)) ft::comm_revoke(comm);
    fn MPIX_Comm_shrink PMPIX_Comm_shrink(comm: CommHandle, newcomm: *mut CommHandle) -> c_int
        => call(Scope::Comm(comm)) ft::comm_shrink(comm, newcomm);
}
