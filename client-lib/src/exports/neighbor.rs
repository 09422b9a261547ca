//! The functions of the chapter `neighbor`. Generated from `abi/*.tsv` by `cargo xtask abi`: do not edit.

use super::*;

exports! {
    fn MPI_Ineighbor_allgather PMPI_Ineighbor_allgather(
        sendbuf: *const c_void, sendcount: c_int, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcount: c_int,
        recvtype: DatatypeHandle, comm: CommHandle, request: *mut RequestHandle
    ) -> c_int
        => unsupported(Scope::Comm(comm));
    fn MPI_Ineighbor_allgather_c PMPI_Ineighbor_allgather_c(
        sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcount: i64,
        recvtype: DatatypeHandle, comm: CommHandle, request: *mut RequestHandle
    ) -> c_int
        => unsupported(Scope::Comm(comm));
    fn MPI_Ineighbor_allgatherv PMPI_Ineighbor_allgatherv(
        sendbuf: *const c_void, sendcount: c_int, sendtype: DatatypeHandle, recvbuf: *mut c_void,
        recvcounts: *const c_int, displs: *const c_int, recvtype: DatatypeHandle, comm: CommHandle,
        request: *mut RequestHandle
    ) -> c_int
        => unsupported(Scope::Comm(comm));
    fn MPI_Ineighbor_allgatherv_c PMPI_Ineighbor_allgatherv_c(
        sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcounts: *const i64,
        displs: *const i64, recvtype: DatatypeHandle, comm: CommHandle, request: *mut RequestHandle
    ) -> c_int
        => unsupported(Scope::Comm(comm));
    fn MPI_Ineighbor_alltoall PMPI_Ineighbor_alltoall(
        sendbuf: *const c_void, sendcount: c_int, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcount: c_int,
        recvtype: DatatypeHandle, comm: CommHandle, request: *mut RequestHandle
    ) -> c_int
        => unsupported(Scope::Comm(comm));
    fn MPI_Ineighbor_alltoall_c PMPI_Ineighbor_alltoall_c(
        sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcount: i64,
        recvtype: DatatypeHandle, comm: CommHandle, request: *mut RequestHandle
    ) -> c_int
        => unsupported(Scope::Comm(comm));
    fn MPI_Ineighbor_alltoallv PMPI_Ineighbor_alltoallv(
        sendbuf: *const c_void, sendcounts: *const c_int, sdispls: *const c_int, sendtype: DatatypeHandle,
        recvbuf: *mut c_void, recvcounts: *const c_int, rdispls: *const c_int, recvtype: DatatypeHandle,
        comm: CommHandle, request: *mut RequestHandle
    ) -> c_int
        => unsupported(Scope::Comm(comm));
    fn MPI_Ineighbor_alltoallv_c PMPI_Ineighbor_alltoallv_c(
        sendbuf: *const c_void, sendcounts: *const i64, sdispls: *const i64, sendtype: DatatypeHandle,
        recvbuf: *mut c_void, recvcounts: *const i64, rdispls: *const i64, recvtype: DatatypeHandle, comm: CommHandle,
        request: *mut RequestHandle
    ) -> c_int
        => unsupported(Scope::Comm(comm));
    fn MPI_Ineighbor_alltoallw PMPI_Ineighbor_alltoallw(
        sendbuf: *const c_void, sendcounts: *const c_int, sdispls: *const i64, sendtypes: *const DatatypeHandle,
        recvbuf: *mut c_void, recvcounts: *const c_int, rdispls: *const i64, recvtypes: *const DatatypeHandle,
        comm: CommHandle, request: *mut RequestHandle
    ) -> c_int
        => unsupported(Scope::Comm(comm));
    fn MPI_Ineighbor_alltoallw_c PMPI_Ineighbor_alltoallw_c(
        sendbuf: *const c_void, sendcounts: *const i64, sdispls: *const i64, sendtypes: *const DatatypeHandle,
        recvbuf: *mut c_void, recvcounts: *const i64, rdispls: *const i64, recvtypes: *const DatatypeHandle,
        comm: CommHandle, request: *mut RequestHandle
    ) -> c_int
        => unsupported(Scope::Comm(comm));
    fn MPI_Neighbor_allgather PMPI_Neighbor_allgather(
        sendbuf: *const c_void, sendcount: c_int, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcount: c_int,
        recvtype: DatatypeHandle, comm: CommHandle
    ) -> c_int
        => unsupported(Scope::Comm(comm));
    fn MPI_Neighbor_allgather_c PMPI_Neighbor_allgather_c(
        sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcount: i64,
        recvtype: DatatypeHandle, comm: CommHandle
    ) -> c_int
        => unsupported(Scope::Comm(comm));
    fn MPI_Neighbor_allgather_init PMPI_Neighbor_allgather_init(
        sendbuf: *const c_void, sendcount: c_int, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcount: c_int,
        recvtype: DatatypeHandle, comm: CommHandle, info: InfoHandle, request: *mut RequestHandle
    ) -> c_int
        => unsupported(Scope::Comm(comm));
    fn MPI_Neighbor_allgather_init_c PMPI_Neighbor_allgather_init_c(
        sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcount: i64,
        recvtype: DatatypeHandle, comm: CommHandle, info: InfoHandle, request: *mut RequestHandle
    ) -> c_int
        => unsupported(Scope::Comm(comm));
    fn MPI_Neighbor_allgatherv PMPI_Neighbor_allgatherv(
        sendbuf: *const c_void, sendcount: c_int, sendtype: DatatypeHandle, recvbuf: *mut c_void,
        recvcounts: *const c_int, displs: *const c_int, recvtype: DatatypeHandle, comm: CommHandle
    ) -> c_int
        => unsupported(Scope::Comm(comm));
    fn MPI_Neighbor_allgatherv_c PMPI_Neighbor_allgatherv_c(
        sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcounts: *const i64,
        displs: *const i64, recvtype: DatatypeHandle, comm: CommHandle
    ) -> c_int
        => unsupported(Scope::Comm(comm));
    fn MPI_Neighbor_allgatherv_init PMPI_Neighbor_allgatherv_init(
        sendbuf: *const c_void, sendcount: c_int, sendtype: DatatypeHandle, recvbuf: *mut c_void,
        recvcounts: *const c_int, displs: *const c_int, recvtype: DatatypeHandle, comm: CommHandle, info: InfoHandle,
        request: *mut RequestHandle
    ) -> c_int
        => unsupported(Scope::Comm(comm));
    fn MPI_Neighbor_allgatherv_init_c PMPI_Neighbor_allgatherv_init_c(
        sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcounts: *const i64,
        displs: *const i64, recvtype: DatatypeHandle, comm: CommHandle, info: InfoHandle, request: *mut RequestHandle
    ) -> c_int
        => unsupported(Scope::Comm(comm));
    fn MPI_Neighbor_alltoall PMPI_Neighbor_alltoall(
        sendbuf: *const c_void, sendcount: c_int, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcount: c_int,
        recvtype: DatatypeHandle, comm: CommHandle
    ) -> c_int
        => unsupported(Scope::Comm(comm));
    fn MPI_Neighbor_alltoall_c PMPI_Neighbor_alltoall_c(
        sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcount: i64,
        recvtype: DatatypeHandle, comm: CommHandle
    ) -> c_int
        => unsupported(Scope::Comm(comm));
    fn MPI_Neighbor_alltoall_init PMPI_Neighbor_alltoall_init(
        sendbuf: *const c_void, sendcount: c_int, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcount: c_int,
        recvtype: DatatypeHandle, comm: CommHandle, info: InfoHandle, request: *mut RequestHandle
    ) -> c_int
        => unsupported(Scope::Comm(comm));
    fn MPI_Neighbor_alltoall_init_c PMPI_Neighbor_alltoall_init_c(
        sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcount: i64,
        recvtype: DatatypeHandle, comm: CommHandle, info: InfoHandle, request: *mut RequestHandle
    ) -> c_int
        => unsupported(Scope::Comm(comm));
    fn MPI_Neighbor_alltoallv PMPI_Neighbor_alltoallv(
        sendbuf: *const c_void, sendcounts: *const c_int, sdispls: *const c_int, sendtype: DatatypeHandle,
        recvbuf: *mut c_void, recvcounts: *const c_int, rdispls: *const c_int, recvtype: DatatypeHandle,
        comm: CommHandle
    ) -> c_int
        => unsupported(Scope::Comm(comm));
    fn MPI_Neighbor_alltoallv_c PMPI_Neighbor_alltoallv_c(
        sendbuf: *const c_void, sendcounts: *const i64, sdispls: *const i64, sendtype: DatatypeHandle,
        recvbuf: *mut c_void, recvcounts: *const i64, rdispls: *const i64, recvtype: DatatypeHandle, comm: CommHandle
    ) -> c_int
        => unsupported(Scope::Comm(comm));
    fn MPI_Neighbor_alltoallv_init PMPI_Neighbor_alltoallv_init(
        sendbuf: *const c_void, sendcounts: *const c_int, sdispls: *const c_int, sendtype: DatatypeHandle,
        recvbuf: *mut c_void, recvcounts: *const c_int, rdispls: *const c_int, recvtype: DatatypeHandle,
        comm: CommHandle, info: InfoHandle, request: *mut RequestHandle
    ) -> c_int
        => unsupported(Scope::Comm(comm));
    fn MPI_Neighbor_alltoallv_init_c PMPI_Neighbor_alltoallv_init_c(
        sendbuf: *const c_void, sendcounts: *const i64, sdispls: *const i64, sendtype: DatatypeHandle,
        recvbuf: *mut c_void, recvcounts: *const i64, rdispls: *const i64, recvtype: DatatypeHandle, comm: CommHandle,
        info: InfoHandle, request: *mut RequestHandle
    ) -> c_int
        => unsupported(Scope::Comm(comm));
    fn MPI_Neighbor_alltoallw PMPI_Neighbor_alltoallw(
        sendbuf: *const c_void, sendcounts: *const c_int, sdispls: *const i64, sendtypes: *const DatatypeHandle,
        recvbuf: *mut c_void, recvcounts: *const c_int, rdispls: *const i64, recvtypes: *const DatatypeHandle,
        comm: CommHandle
    ) -> c_int
        => unsupported(Scope::Comm(comm));
    fn MPI_Neighbor_alltoallw_c PMPI_Neighbor_alltoallw_c(
        sendbuf: *const c_void, sendcounts: *const i64, sdispls: *const i64, sendtypes: *const DatatypeHandle,
        recvbuf: *mut c_void, recvcounts: *const i64, rdispls: *const i64, recvtypes: *const DatatypeHandle,
        comm: CommHandle
    ) -> c_int
        => unsupported(Scope::Comm(comm));
    fn MPI_Neighbor_alltoallw_init PMPI_Neighbor_alltoallw_init(
        sendbuf: *const c_void, sendcounts: *const c_int, sdispls: *const i64, sendtypes: *const DatatypeHandle,
        recvbuf: *mut c_void, recvcounts: *const c_int, rdispls: *const i64, recvtypes: *const DatatypeHandle,
        comm: CommHandle, info: InfoHandle, request: *mut RequestHandle
    ) -> c_int
        => unsupported(Scope::Comm(comm));
    fn MPI_Neighbor_alltoallw_init_c PMPI_Neighbor_alltoallw_init_c(
        sendbuf: *const c_void, sendcounts: *const i64, sdispls: *const i64, sendtypes: *const DatatypeHandle,
        recvbuf: *mut c_void, recvcounts: *const i64, rdispls: *const i64, recvtypes: *const DatatypeHandle,
        comm: CommHandle, info: InfoHandle, request: *mut RequestHandle
    ) -> c_int
        => unsupported(Scope::Comm(comm));
}
