//! The functions of the chapter `neighbor`. Generated from `abi/*.tsv` by `cargo xtask abi`: do not edit.

use super::*;

exports! {
    fn MPI_Ineighbor_allgather PMPI_Ineighbor_allgather(
        sendbuf: *const c_void, sendcount: c_int, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcount: c_int,
        recvtype: DatatypeHandle, comm: CommHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::ineighbor_allgather(
            sendbuf, i64::from(sendcount), sendtype, recvbuf, i64::from(recvcount), recvtype, comm, request
        );
    fn MPI_Ineighbor_allgather_c PMPI_Ineighbor_allgather_c(
        sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcount: i64,
        recvtype: DatatypeHandle, comm: CommHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::ineighbor_allgather(
            sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm, request
        );
    fn MPI_Ineighbor_allgatherv PMPI_Ineighbor_allgatherv(
        sendbuf: *const c_void, sendcount: c_int, sendtype: DatatypeHandle, recvbuf: *mut c_void,
        recvcounts: *const c_int, displs: *const c_int, recvtype: DatatypeHandle, comm: CommHandle,
        request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::ineighbor_allgatherv(
            sendbuf, i64::from(sendcount), sendtype, recvbuf, Ints::Narrow(recvcounts), Ints::Narrow(displs), recvtype,
            comm, request
        );
    fn MPI_Ineighbor_allgatherv_c PMPI_Ineighbor_allgatherv_c(
        sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcounts: *const i64,
        displs: *const i64, recvtype: DatatypeHandle, comm: CommHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::ineighbor_allgatherv(
            sendbuf, sendcount, sendtype, recvbuf, Ints::Wide(recvcounts), Ints::Wide(displs), recvtype, comm, request
        );
    fn MPI_Ineighbor_alltoall PMPI_Ineighbor_alltoall(
        sendbuf: *const c_void, sendcount: c_int, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcount: c_int,
        recvtype: DatatypeHandle, comm: CommHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::ineighbor_alltoall(
            sendbuf, i64::from(sendcount), sendtype, recvbuf, i64::from(recvcount), recvtype, comm, request
        );
    fn MPI_Ineighbor_alltoall_c PMPI_Ineighbor_alltoall_c(
        sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcount: i64,
        recvtype: DatatypeHandle, comm: CommHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::ineighbor_alltoall(
            sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm, request
        );
    fn MPI_Ineighbor_alltoallv PMPI_Ineighbor_alltoallv(
        sendbuf: *const c_void, sendcounts: *const c_int, sdispls: *const c_int, sendtype: DatatypeHandle,
        recvbuf: *mut c_void, recvcounts: *const c_int, rdispls: *const c_int, recvtype: DatatypeHandle,
        comm: CommHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::ineighbor_alltoallv(
            sendbuf, Ints::Narrow(sendcounts), Ints::Narrow(sdispls), sendtype, recvbuf, Ints::Narrow(recvcounts),
            Ints::Narrow(rdispls), recvtype, comm, request
        );
    fn MPI_Ineighbor_alltoallv_c PMPI_Ineighbor_alltoallv_c(
        sendbuf: *const c_void, sendcounts: *const i64, sdispls: *const i64, sendtype: DatatypeHandle,
        recvbuf: *mut c_void, recvcounts: *const i64, rdispls: *const i64, recvtype: DatatypeHandle, comm: CommHandle,
        request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::ineighbor_alltoallv(
            sendbuf, Ints::Wide(sendcounts), Ints::Wide(sdispls), sendtype, recvbuf, Ints::Wide(recvcounts),
            Ints::Wide(rdispls), recvtype, comm, request
        );
    fn MPI_Ineighbor_alltoallw PMPI_Ineighbor_alltoallw(
        sendbuf: *const c_void, sendcounts: *const c_int, sdispls: *const i64, sendtypes: *const DatatypeHandle,
        recvbuf: *mut c_void, recvcounts: *const c_int, rdispls: *const i64, recvtypes: *const DatatypeHandle,
        comm: CommHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::ineighbor_alltoallw(
            sendbuf, Ints::Narrow(sendcounts), sdispls, sendtypes, recvbuf, Ints::Narrow(recvcounts), rdispls,
            recvtypes, comm, request
        );
    fn MPI_Ineighbor_alltoallw_c PMPI_Ineighbor_alltoallw_c(
        sendbuf: *const c_void, sendcounts: *const i64, sdispls: *const i64, sendtypes: *const DatatypeHandle,
        recvbuf: *mut c_void, recvcounts: *const i64, rdispls: *const i64, recvtypes: *const DatatypeHandle,
        comm: CommHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::ineighbor_alltoallw(
            sendbuf, Ints::Wide(sendcounts), sdispls, sendtypes, recvbuf, Ints::Wide(recvcounts), rdispls, recvtypes,
            comm, request
        );
    fn MPI_Neighbor_allgather PMPI_Neighbor_allgather(
        sendbuf: *const c_void, sendcount: c_int, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcount: c_int,
        recvtype: DatatypeHandle, comm: CommHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::neighbor_allgather(
            sendbuf, i64::from(sendcount), sendtype, recvbuf, i64::from(recvcount), recvtype, comm
        );
    fn MPI_Neighbor_allgather_c PMPI_Neighbor_allgather_c(
        sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcount: i64,
        recvtype: DatatypeHandle, comm: CommHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::neighbor_allgather(
            sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm
        );
    fn MPI_Neighbor_allgather_init PMPI_Neighbor_allgather_init(
        sendbuf: *const c_void, sendcount: c_int, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcount: c_int,
        recvtype: DatatypeHandle, comm: CommHandle, info: InfoHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::neighbor_allgather_init(
            sendbuf, i64::from(sendcount), sendtype, recvbuf, i64::from(recvcount), recvtype, comm, info, request
        );
    fn MPI_Neighbor_allgather_init_c PMPI_Neighbor_allgather_init_c(
        sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcount: i64,
        recvtype: DatatypeHandle, comm: CommHandle, info: InfoHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::neighbor_allgather_init(
            sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm, info, request
        );
    fn MPI_Neighbor_allgatherv PMPI_Neighbor_allgatherv(
        sendbuf: *const c_void, sendcount: c_int, sendtype: DatatypeHandle, recvbuf: *mut c_void,
        recvcounts: *const c_int, displs: *const c_int, recvtype: DatatypeHandle, comm: CommHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::neighbor_allgatherv(
            sendbuf, i64::from(sendcount), sendtype, recvbuf, Ints::Narrow(recvcounts), Ints::Narrow(displs), recvtype,
            comm
        );
    fn MPI_Neighbor_allgatherv_c PMPI_Neighbor_allgatherv_c(
        sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcounts: *const i64,
        displs: *const i64, recvtype: DatatypeHandle, comm: CommHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::neighbor_allgatherv(
            sendbuf, sendcount, sendtype, recvbuf, Ints::Wide(recvcounts), Ints::Wide(displs), recvtype, comm
        );
    fn MPI_Neighbor_allgatherv_init PMPI_Neighbor_allgatherv_init(
        sendbuf: *const c_void, sendcount: c_int, sendtype: DatatypeHandle, recvbuf: *mut c_void,
        recvcounts: *const c_int, displs: *const c_int, recvtype: DatatypeHandle, comm: CommHandle, info: InfoHandle,
        request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::neighbor_allgatherv_init(
            sendbuf, i64::from(sendcount), sendtype, recvbuf, Ints::Narrow(recvcounts), Ints::Narrow(displs), recvtype,
            comm, info, request
        );
    fn MPI_Neighbor_allgatherv_init_c PMPI_Neighbor_allgatherv_init_c(
        sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcounts: *const i64,
        displs: *const i64, recvtype: DatatypeHandle, comm: CommHandle, info: InfoHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::neighbor_allgatherv_init(
            sendbuf, sendcount, sendtype, recvbuf, Ints::Wide(recvcounts), Ints::Wide(displs), recvtype, comm, info,
            request
        );
    fn MPI_Neighbor_alltoall PMPI_Neighbor_alltoall(
        sendbuf: *const c_void, sendcount: c_int, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcount: c_int,
        recvtype: DatatypeHandle, comm: CommHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::neighbor_alltoall(
            sendbuf, i64::from(sendcount), sendtype, recvbuf, i64::from(recvcount), recvtype, comm
        );
    fn MPI_Neighbor_alltoall_c PMPI_Neighbor_alltoall_c(
        sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcount: i64,
        recvtype: DatatypeHandle, comm: CommHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::neighbor_alltoall(
            sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm
        );
    fn MPI_Neighbor_alltoall_init PMPI_Neighbor_alltoall_init(
        sendbuf: *const c_void, sendcount: c_int, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcount: c_int,
        recvtype: DatatypeHandle, comm: CommHandle, info: InfoHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::neighbor_alltoall_init(
            sendbuf, i64::from(sendcount), sendtype, recvbuf, i64::from(recvcount), recvtype, comm, info, request
        );
    fn MPI_Neighbor_alltoall_init_c PMPI_Neighbor_alltoall_init_c(
        sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcount: i64,
        recvtype: DatatypeHandle, comm: CommHandle, info: InfoHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::neighbor_alltoall_init(
            sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm, info, request
        );
    fn MPI_Neighbor_alltoallv PMPI_Neighbor_alltoallv(
        sendbuf: *const c_void, sendcounts: *const c_int, sdispls: *const c_int, sendtype: DatatypeHandle,
        recvbuf: *mut c_void, recvcounts: *const c_int, rdispls: *const c_int, recvtype: DatatypeHandle,
        comm: CommHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::neighbor_alltoallv(
            sendbuf, Ints::Narrow(sendcounts), Ints::Narrow(sdispls), sendtype, recvbuf, Ints::Narrow(recvcounts),
            Ints::Narrow(rdispls), recvtype, comm
        );
    fn MPI_Neighbor_alltoallv_c PMPI_Neighbor_alltoallv_c(
        sendbuf: *const c_void, sendcounts: *const i64, sdispls: *const i64, sendtype: DatatypeHandle,
        recvbuf: *mut c_void, recvcounts: *const i64, rdispls: *const i64, recvtype: DatatypeHandle, comm: CommHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::neighbor_alltoallv(
            sendbuf, Ints::Wide(sendcounts), Ints::Wide(sdispls), sendtype, recvbuf, Ints::Wide(recvcounts),
            Ints::Wide(rdispls), recvtype, comm
        );
    fn MPI_Neighbor_alltoallv_init PMPI_Neighbor_alltoallv_init(
        sendbuf: *const c_void, sendcounts: *const c_int, sdispls: *const c_int, sendtype: DatatypeHandle,
        recvbuf: *mut c_void, recvcounts: *const c_int, rdispls: *const c_int, recvtype: DatatypeHandle,
        comm: CommHandle, info: InfoHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::neighbor_alltoallv_init(
            sendbuf, Ints::Narrow(sendcounts), Ints::Narrow(sdispls), sendtype, recvbuf, Ints::Narrow(recvcounts),
            Ints::Narrow(rdispls), recvtype, comm, info, request
        );
    fn MPI_Neighbor_alltoallv_init_c PMPI_Neighbor_alltoallv_init_c(
        sendbuf: *const c_void, sendcounts: *const i64, sdispls: *const i64, sendtype: DatatypeHandle,
        recvbuf: *mut c_void, recvcounts: *const i64, rdispls: *const i64, recvtype: DatatypeHandle, comm: CommHandle,
        info: InfoHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::neighbor_alltoallv_init(
            sendbuf, Ints::Wide(sendcounts), Ints::Wide(sdispls), sendtype, recvbuf, Ints::Wide(recvcounts),
            Ints::Wide(rdispls), recvtype, comm, info, request
        );
    fn MPI_Neighbor_alltoallw PMPI_Neighbor_alltoallw(
        sendbuf: *const c_void, sendcounts: *const c_int, sdispls: *const i64, sendtypes: *const DatatypeHandle,
        recvbuf: *mut c_void, recvcounts: *const c_int, rdispls: *const i64, recvtypes: *const DatatypeHandle,
        comm: CommHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::neighbor_alltoallw(
            sendbuf, Ints::Narrow(sendcounts), sdispls, sendtypes, recvbuf, Ints::Narrow(recvcounts), rdispls,
            recvtypes, comm
        );
    fn MPI_Neighbor_alltoallw_c PMPI_Neighbor_alltoallw_c(
        sendbuf: *const c_void, sendcounts: *const i64, sdispls: *const i64, sendtypes: *const DatatypeHandle,
        recvbuf: *mut c_void, recvcounts: *const i64, rdispls: *const i64, recvtypes: *const DatatypeHandle,
        comm: CommHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::neighbor_alltoallw(
            sendbuf, Ints::Wide(sendcounts), sdispls, sendtypes, recvbuf, Ints::Wide(recvcounts), rdispls, recvtypes,
            comm
        );
    fn MPI_Neighbor_alltoallw_init PMPI_Neighbor_alltoallw_init(
        sendbuf: *const c_void, sendcounts: *const c_int, sdispls: *const i64, sendtypes: *const DatatypeHandle,
        recvbuf: *mut c_void, recvcounts: *const c_int, rdispls: *const i64, recvtypes: *const DatatypeHandle,
        comm: CommHandle, info: InfoHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::neighbor_alltoallw_init(
            sendbuf, Ints::Narrow(sendcounts), sdispls, sendtypes, recvbuf, Ints::Narrow(recvcounts), rdispls,
            recvtypes, comm, info, request
        );
    fn MPI_Neighbor_alltoallw_init_c PMPI_Neighbor_alltoallw_init_c(
        sendbuf: *const c_void, sendcounts: *const i64, sdispls: *const i64, sendtypes: *const DatatypeHandle,
        recvbuf: *mut c_void, recvcounts: *const i64, rdispls: *const i64, recvtypes: *const DatatypeHandle,
        comm: CommHandle, info: InfoHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::neighbor_alltoallw_init(
            sendbuf, Ints::Wide(sendcounts), sdispls, sendtypes, recvbuf, Ints::Wide(recvcounts), rdispls, recvtypes,
            comm, info, request
        );
}
