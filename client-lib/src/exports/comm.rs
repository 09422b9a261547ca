//! The functions of the chapter `comm`. Generated from `abi/*.tsv` by `cargo xtask abi`: do not edit.

use super::*;

exports! {
    fn MPI_Comm_compare PMPI_Comm_compare(comm1: CommHandle, comm2: CommHandle, result: *mut c_int) -> c_int
        => call(Scope::Comm(comm1)) comm::comm_compare(comm1, comm2, result);
    fn MPI_Comm_create PMPI_Comm_create(comm: CommHandle, group: GroupHandle, newcomm: *mut CommHandle) -> c_int
        => call(Scope::Comm(comm)) comm::comm_create(comm, group, newcomm);
    fn MPI_Comm_create_group PMPI_Comm_create_group(
        comm: CommHandle, group: GroupHandle, tag: c_int, newcomm: *mut CommHandle
    ) -> c_int
        => call(Scope::Comm(comm)) comm::comm_create_group(comm, group, tag, newcomm);
    fn MPI_Comm_dup PMPI_Comm_dup(comm: CommHandle, newcomm: *mut CommHandle) -> c_int
        => call(Scope::Comm(comm)) comm::comm_dup(comm, newcomm);
    fn MPI_Comm_dup_with_info PMPI_Comm_dup_with_info(
        comm: CommHandle, info: InfoHandle, newcomm: *mut CommHandle
    ) -> c_int
        => call(Scope::Comm(comm)) comm::comm_dup_with_info(comm, info, newcomm);
    fn MPI_Comm_free PMPI_Comm_free(comm: *mut CommHandle) -> c_int
        => call(Scope::World) comm::comm_free(comm);
    fn MPI_Comm_get_name PMPI_Comm_get_name(comm: CommHandle, comm_name: *mut c_char, resultlen: *mut c_int) -> c_int
        => call(Scope::Comm(comm)) comm::comm_get_name(comm, comm_name, resultlen);
    fn MPI_Comm_group PMPI_Comm_group(comm: CommHandle, group: *mut GroupHandle) -> c_int
        => call(Scope::Comm(comm)) group::comm_group(comm, group);
    fn MPI_Comm_idup PMPI_Comm_idup(comm: CommHandle, newcomm: *mut CommHandle, request: *mut RequestHandle) -> c_int
        => call(Scope::Comm(comm)) comm::comm_idup(comm, newcomm, request);
    fn MPI_Comm_idup_with_info PMPI_Comm_idup_with_info(
        comm: CommHandle, info: InfoHandle, newcomm: *mut CommHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) comm::comm_idup_with_info(comm, info, newcomm, request);
    fn MPI_Comm_rank PMPI_Comm_rank(comm: CommHandle, rank: *mut c_int) -> c_int
        => call(Scope::Comm(comm)) comm::comm_rank(comm, rank);
    fn MPI_Comm_remote_group PMPI_Comm_remote_group(comm: CommHandle, group: *mut GroupHandle) -> c_int
        => call(Scope::Comm(comm)) intercomm::comm_remote_group(comm, group);
    fn MPI_Comm_remote_size PMPI_Comm_remote_size(comm: CommHandle, size: *mut c_int) -> c_int
        => call(Scope::Comm(comm)) intercomm::comm_remote_size(comm, size);
    fn MPI_Comm_set_name PMPI_Comm_set_name(comm: CommHandle, comm_name: *const c_char) -> c_int
        => call(Scope::Comm(comm)) comm::comm_set_name(comm, comm_name);
    fn MPI_Comm_size PMPI_Comm_size(comm: CommHandle, size: *mut c_int) -> c_int
        => call(Scope::Comm(comm)) comm::comm_size(comm, size);
    fn MPI_Comm_split PMPI_Comm_split(comm: CommHandle, color: c_int, key: c_int, newcomm: *mut CommHandle) -> c_int
        => call(Scope::Comm(comm)) comm::comm_split(comm, color, key, newcomm);
    fn MPI_Comm_split_type PMPI_Comm_split_type(
        comm: CommHandle, split_type: c_int, key: c_int, info: InfoHandle, newcomm: *mut CommHandle
    ) -> c_int
        => call(Scope::Comm(comm)) comm::comm_split_type(comm, split_type, key, info, newcomm);
    fn MPI_Comm_test_inter PMPI_Comm_test_inter(comm: CommHandle, flag: *mut c_int) -> c_int
        => call(Scope::Comm(comm)) intercomm::comm_test_inter(comm, flag);
    fn MPI_Intercomm_create PMPI_Intercomm_create(
        local_comm: CommHandle, local_leader: c_int, peer_comm: CommHandle, remote_leader: c_int, tag: c_int,
        newintercomm: *mut CommHandle
    ) -> c_int
        => call(Scope::Comm(local_comm)) intercomm::intercomm_create(
            local_comm, local_leader, peer_comm, remote_leader, tag, newintercomm
        );
    fn MPI_Intercomm_merge PMPI_Intercomm_merge(
        intercomm: CommHandle, high: c_int, newintracomm: *mut CommHandle
    ) -> c_int
        => call(Scope::Comm(intercomm)) intercomm::intercomm_merge(intercomm, high, newintracomm);
}
