//! The functions of the chapter `coll`. Generated from `abi/*.tsv` by `cargo xtask abi`: do not edit.

use super::*;

exports! {
    fn MPI_Allgather PMPI_Allgather(
        sendbuf: *const c_void, sendcount: c_int, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcount: c_int,
        recvtype: DatatypeHandle, comm: CommHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::allgather(
            sendbuf, i64::from(sendcount), sendtype, recvbuf, i64::from(recvcount), recvtype, comm
        );
    fn MPI_Allgather_c PMPI_Allgather_c(
        sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcount: i64,
        recvtype: DatatypeHandle, comm: CommHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::allgather(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm);
    fn MPI_Allgather_init PMPI_Allgather_init(
        sendbuf: *const c_void, sendcount: c_int, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcount: c_int,
        recvtype: DatatypeHandle, comm: CommHandle, info: InfoHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::allgather_init(
            sendbuf, i64::from(sendcount), sendtype, recvbuf, i64::from(recvcount), recvtype, comm, info, request
        );
    fn MPI_Allgather_init_c PMPI_Allgather_init_c(
        sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcount: i64,
        recvtype: DatatypeHandle, comm: CommHandle, info: InfoHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::allgather_init(
            sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm, info, request
        );
    fn MPI_Allgatherv PMPI_Allgatherv(
        sendbuf: *const c_void, sendcount: c_int, sendtype: DatatypeHandle, recvbuf: *mut c_void,
        recvcounts: *const c_int, displs: *const c_int, recvtype: DatatypeHandle, comm: CommHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::allgatherv(
            sendbuf, i64::from(sendcount), sendtype, recvbuf, Ints::Narrow(recvcounts), Ints::Narrow(displs), recvtype,
            comm
        );
    fn MPI_Allgatherv_c PMPI_Allgatherv_c(
        sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcounts: *const i64,
        displs: *const i64, recvtype: DatatypeHandle, comm: CommHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::allgatherv(
            sendbuf, sendcount, sendtype, recvbuf, Ints::Wide(recvcounts), Ints::Wide(displs), recvtype, comm
        );
    fn MPI_Allgatherv_init PMPI_Allgatherv_init(
        sendbuf: *const c_void, sendcount: c_int, sendtype: DatatypeHandle, recvbuf: *mut c_void,
        recvcounts: *const c_int, displs: *const c_int, recvtype: DatatypeHandle, comm: CommHandle, info: InfoHandle,
        request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::allgatherv_init(
            sendbuf, i64::from(sendcount), sendtype, recvbuf, Ints::Narrow(recvcounts), Ints::Narrow(displs), recvtype,
            comm, info, request
        );
    fn MPI_Allgatherv_init_c PMPI_Allgatherv_init_c(
        sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcounts: *const i64,
        displs: *const i64, recvtype: DatatypeHandle, comm: CommHandle, info: InfoHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::allgatherv_init(
            sendbuf, sendcount, sendtype, recvbuf, Ints::Wide(recvcounts), Ints::Wide(displs), recvtype, comm, info,
            request
        );
    fn MPI_Allreduce PMPI_Allreduce(
        sendbuf: *const c_void, recvbuf: *mut c_void, count: c_int, datatype: DatatypeHandle, op: OpHandle,
        comm: CommHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::allreduce(sendbuf, recvbuf, i64::from(count), datatype, op, comm);
    fn MPI_Allreduce_c PMPI_Allreduce_c(
        sendbuf: *const c_void, recvbuf: *mut c_void, count: i64, datatype: DatatypeHandle, op: OpHandle,
        comm: CommHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::allreduce(sendbuf, recvbuf, count, datatype, op, comm);
    fn MPI_Allreduce_init PMPI_Allreduce_init(
        sendbuf: *const c_void, recvbuf: *mut c_void, count: c_int, datatype: DatatypeHandle, op: OpHandle,
        comm: CommHandle, info: InfoHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::allreduce_init(
            sendbuf, recvbuf, i64::from(count), datatype, op, comm, info, request
        );
    fn MPI_Allreduce_init_c PMPI_Allreduce_init_c(
        sendbuf: *const c_void, recvbuf: *mut c_void, count: i64, datatype: DatatypeHandle, op: OpHandle,
        comm: CommHandle, info: InfoHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::allreduce_init(sendbuf, recvbuf, count, datatype, op, comm, info, request);
    fn MPI_Alltoall PMPI_Alltoall(
        sendbuf: *const c_void, sendcount: c_int, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcount: c_int,
        recvtype: DatatypeHandle, comm: CommHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::alltoall(
            sendbuf, i64::from(sendcount), sendtype, recvbuf, i64::from(recvcount), recvtype, comm
        );
    fn MPI_Alltoall_c PMPI_Alltoall_c(
        sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcount: i64,
        recvtype: DatatypeHandle, comm: CommHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::alltoall(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm);
    fn MPI_Alltoall_init PMPI_Alltoall_init(
        sendbuf: *const c_void, sendcount: c_int, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcount: c_int,
        recvtype: DatatypeHandle, comm: CommHandle, info: InfoHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::alltoall_init(
            sendbuf, i64::from(sendcount), sendtype, recvbuf, i64::from(recvcount), recvtype, comm, info, request
        );
    fn MPI_Alltoall_init_c PMPI_Alltoall_init_c(
        sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcount: i64,
        recvtype: DatatypeHandle, comm: CommHandle, info: InfoHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::alltoall_init(
            sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm, info, request
        );
    fn MPI_Alltoallv PMPI_Alltoallv(
        sendbuf: *const c_void, sendcounts: *const c_int, sdispls: *const c_int, sendtype: DatatypeHandle,
        recvbuf: *mut c_void, recvcounts: *const c_int, rdispls: *const c_int, recvtype: DatatypeHandle,
        comm: CommHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::alltoallv(
            sendbuf, Ints::Narrow(sendcounts), Ints::Narrow(sdispls), sendtype, recvbuf, Ints::Narrow(recvcounts),
            Ints::Narrow(rdispls), recvtype, comm
        );
    fn MPI_Alltoallv_c PMPI_Alltoallv_c(
        sendbuf: *const c_void, sendcounts: *const i64, sdispls: *const i64, sendtype: DatatypeHandle,
        recvbuf: *mut c_void, recvcounts: *const i64, rdispls: *const i64, recvtype: DatatypeHandle, comm: CommHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::alltoallv(
            sendbuf, Ints::Wide(sendcounts), Ints::Wide(sdispls), sendtype, recvbuf, Ints::Wide(recvcounts),
            Ints::Wide(rdispls), recvtype, comm
        );
    fn MPI_Alltoallv_init PMPI_Alltoallv_init(
        sendbuf: *const c_void, sendcounts: *const c_int, sdispls: *const c_int, sendtype: DatatypeHandle,
        recvbuf: *mut c_void, recvcounts: *const c_int, rdispls: *const c_int, recvtype: DatatypeHandle,
        comm: CommHandle, info: InfoHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::alltoallv_init(
            sendbuf, Ints::Narrow(sendcounts), Ints::Narrow(sdispls), sendtype, recvbuf, Ints::Narrow(recvcounts),
            Ints::Narrow(rdispls), recvtype, comm, info, request
        );
    fn MPI_Alltoallv_init_c PMPI_Alltoallv_init_c(
        sendbuf: *const c_void, sendcounts: *const i64, sdispls: *const i64, sendtype: DatatypeHandle,
        recvbuf: *mut c_void, recvcounts: *const i64, rdispls: *const i64, recvtype: DatatypeHandle, comm: CommHandle,
        info: InfoHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::alltoallv_init(
            sendbuf, Ints::Wide(sendcounts), Ints::Wide(sdispls), sendtype, recvbuf, Ints::Wide(recvcounts),
            Ints::Wide(rdispls), recvtype, comm, info, request
        );
    fn MPI_Alltoallw PMPI_Alltoallw(
        sendbuf: *const c_void, sendcounts: *const c_int, sdispls: *const c_int, sendtypes: *const DatatypeHandle,
        recvbuf: *mut c_void, recvcounts: *const c_int, rdispls: *const c_int, recvtypes: *const DatatypeHandle,
        comm: CommHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::alltoallw(
            sendbuf, Ints::Narrow(sendcounts), Ints::Narrow(sdispls), sendtypes, recvbuf, Ints::Narrow(recvcounts),
            Ints::Narrow(rdispls), recvtypes, comm
        );
    fn MPI_Alltoallw_c PMPI_Alltoallw_c(
        sendbuf: *const c_void, sendcounts: *const i64, sdispls: *const i64, sendtypes: *const DatatypeHandle,
        recvbuf: *mut c_void, recvcounts: *const i64, rdispls: *const i64, recvtypes: *const DatatypeHandle,
        comm: CommHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::alltoallw(
            sendbuf, Ints::Wide(sendcounts), Ints::Wide(sdispls), sendtypes, recvbuf, Ints::Wide(recvcounts),
            Ints::Wide(rdispls), recvtypes, comm
        );
    fn MPI_Alltoallw_init PMPI_Alltoallw_init(
        sendbuf: *const c_void, sendcounts: *const c_int, sdispls: *const c_int, sendtypes: *const DatatypeHandle,
        recvbuf: *mut c_void, recvcounts: *const c_int, rdispls: *const c_int, recvtypes: *const DatatypeHandle,
        comm: CommHandle, info: InfoHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::alltoallw_init(
            sendbuf, Ints::Narrow(sendcounts), Ints::Narrow(sdispls), sendtypes, recvbuf, Ints::Narrow(recvcounts),
            Ints::Narrow(rdispls), recvtypes, comm, info, request
        );
    fn MPI_Alltoallw_init_c PMPI_Alltoallw_init_c(
        sendbuf: *const c_void, sendcounts: *const i64, sdispls: *const i64, sendtypes: *const DatatypeHandle,
        recvbuf: *mut c_void, recvcounts: *const i64, rdispls: *const i64, recvtypes: *const DatatypeHandle,
        comm: CommHandle, info: InfoHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::alltoallw_init(
            sendbuf, Ints::Wide(sendcounts), Ints::Wide(sdispls), sendtypes, recvbuf, Ints::Wide(recvcounts),
            Ints::Wide(rdispls), recvtypes, comm, info, request
        );
    fn MPI_Barrier PMPI_Barrier(comm: CommHandle) -> c_int
        => call(Scope::Comm(comm)) coll::barrier(comm);
    fn MPI_Barrier_init PMPI_Barrier_init(comm: CommHandle, info: InfoHandle, request: *mut RequestHandle) -> c_int
        => call(Scope::Comm(comm)) coll::barrier_init(comm, info, request);
    fn MPI_Bcast PMPI_Bcast(
        buffer: *mut c_void, count: c_int, datatype: DatatypeHandle, root: c_int, comm: CommHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::bcast(buffer, i64::from(count), datatype, root, comm);
    fn MPI_Bcast_c PMPI_Bcast_c(
        buffer: *mut c_void, count: i64, datatype: DatatypeHandle, root: c_int, comm: CommHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::bcast(buffer, count, datatype, root, comm);
    fn MPI_Bcast_init PMPI_Bcast_init(
        buffer: *mut c_void, count: c_int, datatype: DatatypeHandle, root: c_int, comm: CommHandle, info: InfoHandle,
        request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::bcast_init(buffer, i64::from(count), datatype, root, comm, info, request);
    fn MPI_Bcast_init_c PMPI_Bcast_init_c(
        buffer: *mut c_void, count: i64, datatype: DatatypeHandle, root: c_int, comm: CommHandle, info: InfoHandle,
        request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::bcast_init(buffer, count, datatype, root, comm, info, request);
    fn MPI_Exscan PMPI_Exscan(
        sendbuf: *const c_void, recvbuf: *mut c_void, count: c_int, datatype: DatatypeHandle, op: OpHandle,
        comm: CommHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::exscan(sendbuf, recvbuf, i64::from(count), datatype, op, comm);
    fn MPI_Exscan_c PMPI_Exscan_c(
        sendbuf: *const c_void, recvbuf: *mut c_void, count: i64, datatype: DatatypeHandle, op: OpHandle,
        comm: CommHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::exscan(sendbuf, recvbuf, count, datatype, op, comm);
    fn MPI_Exscan_init PMPI_Exscan_init(
        sendbuf: *const c_void, recvbuf: *mut c_void, count: c_int, datatype: DatatypeHandle, op: OpHandle,
        comm: CommHandle, info: InfoHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::exscan_init(
            sendbuf, recvbuf, i64::from(count), datatype, op, comm, info, request
        );
    fn MPI_Exscan_init_c PMPI_Exscan_init_c(
        sendbuf: *const c_void, recvbuf: *mut c_void, count: i64, datatype: DatatypeHandle, op: OpHandle,
        comm: CommHandle, info: InfoHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::exscan_init(sendbuf, recvbuf, count, datatype, op, comm, info, request);
    fn MPI_Gather PMPI_Gather(
        sendbuf: *const c_void, sendcount: c_int, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcount: c_int,
        recvtype: DatatypeHandle, root: c_int, comm: CommHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::gather(
            sendbuf, i64::from(sendcount), sendtype, recvbuf, i64::from(recvcount), recvtype, root, comm
        );
    fn MPI_Gather_c PMPI_Gather_c(
        sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcount: i64,
        recvtype: DatatypeHandle, root: c_int, comm: CommHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::gather(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm);
    fn MPI_Gather_init PMPI_Gather_init(
        sendbuf: *const c_void, sendcount: c_int, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcount: c_int,
        recvtype: DatatypeHandle, root: c_int, comm: CommHandle, info: InfoHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::gather_init(
            sendbuf, i64::from(sendcount), sendtype, recvbuf, i64::from(recvcount), recvtype, root, comm, info,
            request
        );
    fn MPI_Gather_init_c PMPI_Gather_init_c(
        sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcount: i64,
        recvtype: DatatypeHandle, root: c_int, comm: CommHandle, info: InfoHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::gather_init(
            sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm, info, request
        );
    fn MPI_Gatherv PMPI_Gatherv(
        sendbuf: *const c_void, sendcount: c_int, sendtype: DatatypeHandle, recvbuf: *mut c_void,
        recvcounts: *const c_int, displs: *const c_int, recvtype: DatatypeHandle, root: c_int, comm: CommHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::gatherv(
            sendbuf, i64::from(sendcount), sendtype, recvbuf, Ints::Narrow(recvcounts), Ints::Narrow(displs), recvtype,
            root, comm
        );
    fn MPI_Gatherv_c PMPI_Gatherv_c(
        sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcounts: *const i64,
        displs: *const i64, recvtype: DatatypeHandle, root: c_int, comm: CommHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::gatherv(
            sendbuf, sendcount, sendtype, recvbuf, Ints::Wide(recvcounts), Ints::Wide(displs), recvtype, root, comm
        );
    fn MPI_Gatherv_init PMPI_Gatherv_init(
        sendbuf: *const c_void, sendcount: c_int, sendtype: DatatypeHandle, recvbuf: *mut c_void,
        recvcounts: *const c_int, displs: *const c_int, recvtype: DatatypeHandle, root: c_int, comm: CommHandle,
        info: InfoHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::gatherv_init(
            sendbuf, i64::from(sendcount), sendtype, recvbuf, Ints::Narrow(recvcounts), Ints::Narrow(displs), recvtype,
            root, comm, info, request
        );
    fn MPI_Gatherv_init_c PMPI_Gatherv_init_c(
        sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcounts: *const i64,
        displs: *const i64, recvtype: DatatypeHandle, root: c_int, comm: CommHandle, info: InfoHandle,
        request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::gatherv_init(
            sendbuf, sendcount, sendtype, recvbuf, Ints::Wide(recvcounts), Ints::Wide(displs), recvtype, root, comm,
            info, request
        );
    fn MPI_Iallgather PMPI_Iallgather(
        sendbuf: *const c_void, sendcount: c_int, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcount: c_int,
        recvtype: DatatypeHandle, comm: CommHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::iallgather(
            sendbuf, i64::from(sendcount), sendtype, recvbuf, i64::from(recvcount), recvtype, comm, request
        );
    fn MPI_Iallgather_c PMPI_Iallgather_c(
        sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcount: i64,
        recvtype: DatatypeHandle, comm: CommHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::iallgather(
            sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm, request
        );
    fn MPI_Iallgatherv PMPI_Iallgatherv(
        sendbuf: *const c_void, sendcount: c_int, sendtype: DatatypeHandle, recvbuf: *mut c_void,
        recvcounts: *const c_int, displs: *const c_int, recvtype: DatatypeHandle, comm: CommHandle,
        request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::iallgatherv(
            sendbuf, i64::from(sendcount), sendtype, recvbuf, Ints::Narrow(recvcounts), Ints::Narrow(displs), recvtype,
            comm, request
        );
    fn MPI_Iallgatherv_c PMPI_Iallgatherv_c(
        sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcounts: *const i64,
        displs: *const i64, recvtype: DatatypeHandle, comm: CommHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::iallgatherv(
            sendbuf, sendcount, sendtype, recvbuf, Ints::Wide(recvcounts), Ints::Wide(displs), recvtype, comm, request
        );
    fn MPI_Iallreduce PMPI_Iallreduce(
        sendbuf: *const c_void, recvbuf: *mut c_void, count: c_int, datatype: DatatypeHandle, op: OpHandle,
        comm: CommHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::iallreduce(sendbuf, recvbuf, i64::from(count), datatype, op, comm, request);
    fn MPI_Iallreduce_c PMPI_Iallreduce_c(
        sendbuf: *const c_void, recvbuf: *mut c_void, count: i64, datatype: DatatypeHandle, op: OpHandle,
        comm: CommHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::iallreduce(sendbuf, recvbuf, count, datatype, op, comm, request);
    fn MPI_Ialltoall PMPI_Ialltoall(
        sendbuf: *const c_void, sendcount: c_int, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcount: c_int,
        recvtype: DatatypeHandle, comm: CommHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::ialltoall(
            sendbuf, i64::from(sendcount), sendtype, recvbuf, i64::from(recvcount), recvtype, comm, request
        );
    fn MPI_Ialltoall_c PMPI_Ialltoall_c(
        sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcount: i64,
        recvtype: DatatypeHandle, comm: CommHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::ialltoall(
            sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm, request
        );
    fn MPI_Ialltoallv PMPI_Ialltoallv(
        sendbuf: *const c_void, sendcounts: *const c_int, sdispls: *const c_int, sendtype: DatatypeHandle,
        recvbuf: *mut c_void, recvcounts: *const c_int, rdispls: *const c_int, recvtype: DatatypeHandle,
        comm: CommHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::ialltoallv(
            sendbuf, Ints::Narrow(sendcounts), Ints::Narrow(sdispls), sendtype, recvbuf, Ints::Narrow(recvcounts),
            Ints::Narrow(rdispls), recvtype, comm, request
        );
    fn MPI_Ialltoallv_c PMPI_Ialltoallv_c(
        sendbuf: *const c_void, sendcounts: *const i64, sdispls: *const i64, sendtype: DatatypeHandle,
        recvbuf: *mut c_void, recvcounts: *const i64, rdispls: *const i64, recvtype: DatatypeHandle, comm: CommHandle,
        request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::ialltoallv(
            sendbuf, Ints::Wide(sendcounts), Ints::Wide(sdispls), sendtype, recvbuf, Ints::Wide(recvcounts),
            Ints::Wide(rdispls), recvtype, comm, request
        );
    fn MPI_Ialltoallw PMPI_Ialltoallw(
        sendbuf: *const c_void, sendcounts: *const c_int, sdispls: *const c_int, sendtypes: *const DatatypeHandle,
        recvbuf: *mut c_void, recvcounts: *const c_int, rdispls: *const c_int, recvtypes: *const DatatypeHandle,
        comm: CommHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::ialltoallw(
            sendbuf, Ints::Narrow(sendcounts), Ints::Narrow(sdispls), sendtypes, recvbuf, Ints::Narrow(recvcounts),
            Ints::Narrow(rdispls), recvtypes, comm, request
        );
    fn MPI_Ialltoallw_c PMPI_Ialltoallw_c(
        sendbuf: *const c_void, sendcounts: *const i64, sdispls: *const i64, sendtypes: *const DatatypeHandle,
        recvbuf: *mut c_void, recvcounts: *const i64, rdispls: *const i64, recvtypes: *const DatatypeHandle,
        comm: CommHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::ialltoallw(
            sendbuf, Ints::Wide(sendcounts), Ints::Wide(sdispls), sendtypes, recvbuf, Ints::Wide(recvcounts),
            Ints::Wide(rdispls), recvtypes, comm, request
        );
    fn MPI_Ibarrier PMPI_Ibarrier(comm: CommHandle, request: *mut RequestHandle) -> c_int
        => call(Scope::Comm(comm)) coll::ibarrier(comm, request);
    fn MPI_Ibcast PMPI_Ibcast(
        buffer: *mut c_void, count: c_int, datatype: DatatypeHandle, root: c_int, comm: CommHandle,
        request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::ibcast(buffer, i64::from(count), datatype, root, comm, request);
    fn MPI_Ibcast_c PMPI_Ibcast_c(
        buffer: *mut c_void, count: i64, datatype: DatatypeHandle, root: c_int, comm: CommHandle,
        request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::ibcast(buffer, count, datatype, root, comm, request);
    fn MPI_Iexscan PMPI_Iexscan(
        sendbuf: *const c_void, recvbuf: *mut c_void, count: c_int, datatype: DatatypeHandle, op: OpHandle,
        comm: CommHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::iexscan(sendbuf, recvbuf, i64::from(count), datatype, op, comm, request);
    fn MPI_Iexscan_c PMPI_Iexscan_c(
        sendbuf: *const c_void, recvbuf: *mut c_void, count: i64, datatype: DatatypeHandle, op: OpHandle,
        comm: CommHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::iexscan(sendbuf, recvbuf, count, datatype, op, comm, request);
    fn MPI_Igather PMPI_Igather(
        sendbuf: *const c_void, sendcount: c_int, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcount: c_int,
        recvtype: DatatypeHandle, root: c_int, comm: CommHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::igather(
            sendbuf, i64::from(sendcount), sendtype, recvbuf, i64::from(recvcount), recvtype, root, comm, request
        );
    fn MPI_Igather_c PMPI_Igather_c(
        sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcount: i64,
        recvtype: DatatypeHandle, root: c_int, comm: CommHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::igather(
            sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm, request
        );
    fn MPI_Igatherv PMPI_Igatherv(
        sendbuf: *const c_void, sendcount: c_int, sendtype: DatatypeHandle, recvbuf: *mut c_void,
        recvcounts: *const c_int, displs: *const c_int, recvtype: DatatypeHandle, root: c_int, comm: CommHandle,
        request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::igatherv(
            sendbuf, i64::from(sendcount), sendtype, recvbuf, Ints::Narrow(recvcounts), Ints::Narrow(displs), recvtype,
            root, comm, request
        );
    fn MPI_Igatherv_c PMPI_Igatherv_c(
        sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcounts: *const i64,
        displs: *const i64, recvtype: DatatypeHandle, root: c_int, comm: CommHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::igatherv(
            sendbuf, sendcount, sendtype, recvbuf, Ints::Wide(recvcounts), Ints::Wide(displs), recvtype, root, comm,
            request
        );
    fn MPI_Ireduce PMPI_Ireduce(
        sendbuf: *const c_void, recvbuf: *mut c_void, count: c_int, datatype: DatatypeHandle, op: OpHandle,
        root: c_int, comm: CommHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::ireduce(sendbuf, recvbuf, i64::from(count), datatype, op, root, comm, request);
    fn MPI_Ireduce_c PMPI_Ireduce_c(
        sendbuf: *const c_void, recvbuf: *mut c_void, count: i64, datatype: DatatypeHandle, op: OpHandle, root: c_int,
        comm: CommHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::ireduce(sendbuf, recvbuf, count, datatype, op, root, comm, request);
    fn MPI_Ireduce_scatter PMPI_Ireduce_scatter(
        sendbuf: *const c_void, recvbuf: *mut c_void, recvcounts: *const c_int, datatype: DatatypeHandle, op: OpHandle,
        comm: CommHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::ireduce_scatter(
            sendbuf, recvbuf, Ints::Narrow(recvcounts), datatype, op, comm, request
        );
    fn MPI_Ireduce_scatter_block PMPI_Ireduce_scatter_block(
        sendbuf: *const c_void, recvbuf: *mut c_void, recvcount: c_int, datatype: DatatypeHandle, op: OpHandle,
        comm: CommHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::ireduce_scatter_block(
            sendbuf, recvbuf, i64::from(recvcount), datatype, op, comm, request
        );
    fn MPI_Ireduce_scatter_block_c PMPI_Ireduce_scatter_block_c(
        sendbuf: *const c_void, recvbuf: *mut c_void, recvcount: i64, datatype: DatatypeHandle, op: OpHandle,
        comm: CommHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::ireduce_scatter_block(
            sendbuf, recvbuf, recvcount, datatype, op, comm, request
        );
    fn MPI_Ireduce_scatter_c PMPI_Ireduce_scatter_c(
        sendbuf: *const c_void, recvbuf: *mut c_void, recvcounts: *const i64, datatype: DatatypeHandle, op: OpHandle,
        comm: CommHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::ireduce_scatter(
            sendbuf, recvbuf, Ints::Wide(recvcounts), datatype, op, comm, request
        );
    fn MPI_Iscan PMPI_Iscan(
        sendbuf: *const c_void, recvbuf: *mut c_void, count: c_int, datatype: DatatypeHandle, op: OpHandle,
        comm: CommHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::iscan(sendbuf, recvbuf, i64::from(count), datatype, op, comm, request);
    fn MPI_Iscan_c PMPI_Iscan_c(
        sendbuf: *const c_void, recvbuf: *mut c_void, count: i64, datatype: DatatypeHandle, op: OpHandle,
        comm: CommHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::iscan(sendbuf, recvbuf, count, datatype, op, comm, request);
    fn MPI_Iscatter PMPI_Iscatter(
        sendbuf: *const c_void, sendcount: c_int, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcount: c_int,
        recvtype: DatatypeHandle, root: c_int, comm: CommHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::iscatter(
            sendbuf, i64::from(sendcount), sendtype, recvbuf, i64::from(recvcount), recvtype, root, comm, request
        );
    fn MPI_Iscatter_c PMPI_Iscatter_c(
        sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcount: i64,
        recvtype: DatatypeHandle, root: c_int, comm: CommHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::iscatter(
            sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm, request
        );
    fn MPI_Iscatterv PMPI_Iscatterv(
        sendbuf: *const c_void, sendcounts: *const c_int, displs: *const c_int, sendtype: DatatypeHandle,
        recvbuf: *mut c_void, recvcount: c_int, recvtype: DatatypeHandle, root: c_int, comm: CommHandle,
        request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::iscatterv(
            sendbuf, Ints::Narrow(sendcounts), Ints::Narrow(displs), sendtype, recvbuf, i64::from(recvcount), recvtype,
            root, comm, request
        );
    fn MPI_Iscatterv_c PMPI_Iscatterv_c(
        sendbuf: *const c_void, sendcounts: *const i64, displs: *const i64, sendtype: DatatypeHandle,
        recvbuf: *mut c_void, recvcount: i64, recvtype: DatatypeHandle, root: c_int, comm: CommHandle,
        request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::iscatterv(
            sendbuf, Ints::Wide(sendcounts), Ints::Wide(displs), sendtype, recvbuf, recvcount, recvtype, root, comm,
            request
        );
    fn MPI_Reduce PMPI_Reduce(
        sendbuf: *const c_void, recvbuf: *mut c_void, count: c_int, datatype: DatatypeHandle, op: OpHandle,
        root: c_int, comm: CommHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::reduce(sendbuf, recvbuf, i64::from(count), datatype, op, root, comm);
    fn MPI_Reduce_c PMPI_Reduce_c(
        sendbuf: *const c_void, recvbuf: *mut c_void, count: i64, datatype: DatatypeHandle, op: OpHandle, root: c_int,
        comm: CommHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::reduce(sendbuf, recvbuf, count, datatype, op, root, comm);
    fn MPI_Reduce_init PMPI_Reduce_init(
        sendbuf: *const c_void, recvbuf: *mut c_void, count: c_int, datatype: DatatypeHandle, op: OpHandle,
        root: c_int, comm: CommHandle, info: InfoHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::reduce_init(
            sendbuf, recvbuf, i64::from(count), datatype, op, root, comm, info, request
        );
    fn MPI_Reduce_init_c PMPI_Reduce_init_c(
        sendbuf: *const c_void, recvbuf: *mut c_void, count: i64, datatype: DatatypeHandle, op: OpHandle, root: c_int,
        comm: CommHandle, info: InfoHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::reduce_init(sendbuf, recvbuf, count, datatype, op, root, comm, info, request);
    fn MPI_Reduce_local PMPI_Reduce_local(
        inbuf: *const c_void, inoutbuf: *mut c_void, count: c_int, datatype: DatatypeHandle, op: OpHandle
    ) -> c_int
        => call(Scope::World) op::reduce_local(inbuf, inoutbuf, i64::from(count), datatype, op);
    fn MPI_Reduce_local_c PMPI_Reduce_local_c(
        inbuf: *const c_void, inoutbuf: *mut c_void, count: i64, datatype: DatatypeHandle, op: OpHandle
    ) -> c_int
        => call(Scope::World) op::reduce_local(inbuf, inoutbuf, count, datatype, op);
    fn MPI_Reduce_scatter PMPI_Reduce_scatter(
        sendbuf: *const c_void, recvbuf: *mut c_void, recvcounts: *const c_int, datatype: DatatypeHandle, op: OpHandle,
        comm: CommHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::reduce_scatter(sendbuf, recvbuf, Ints::Narrow(recvcounts), datatype, op, comm);
    fn MPI_Reduce_scatter_block PMPI_Reduce_scatter_block(
        sendbuf: *const c_void, recvbuf: *mut c_void, recvcount: c_int, datatype: DatatypeHandle, op: OpHandle,
        comm: CommHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::reduce_scatter_block(
            sendbuf, recvbuf, i64::from(recvcount), datatype, op, comm
        );
    fn MPI_Reduce_scatter_block_c PMPI_Reduce_scatter_block_c(
        sendbuf: *const c_void, recvbuf: *mut c_void, recvcount: i64, datatype: DatatypeHandle, op: OpHandle,
        comm: CommHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::reduce_scatter_block(sendbuf, recvbuf, recvcount, datatype, op, comm);
    fn MPI_Reduce_scatter_block_init PMPI_Reduce_scatter_block_init(
        sendbuf: *const c_void, recvbuf: *mut c_void, recvcount: c_int, datatype: DatatypeHandle, op: OpHandle,
        comm: CommHandle, info: InfoHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::reduce_scatter_block_init(
            sendbuf, recvbuf, i64::from(recvcount), datatype, op, comm, info, request
        );
    fn MPI_Reduce_scatter_block_init_c PMPI_Reduce_scatter_block_init_c(
        sendbuf: *const c_void, recvbuf: *mut c_void, recvcount: i64, datatype: DatatypeHandle, op: OpHandle,
        comm: CommHandle, info: InfoHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::reduce_scatter_block_init(
            sendbuf, recvbuf, recvcount, datatype, op, comm, info, request
        );
    fn MPI_Reduce_scatter_c PMPI_Reduce_scatter_c(
        sendbuf: *const c_void, recvbuf: *mut c_void, recvcounts: *const i64, datatype: DatatypeHandle, op: OpHandle,
        comm: CommHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::reduce_scatter(sendbuf, recvbuf, Ints::Wide(recvcounts), datatype, op, comm);
    fn MPI_Reduce_scatter_init PMPI_Reduce_scatter_init(
        sendbuf: *const c_void, recvbuf: *mut c_void, recvcounts: *const c_int, datatype: DatatypeHandle, op: OpHandle,
        comm: CommHandle, info: InfoHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::reduce_scatter_init(
            sendbuf, recvbuf, Ints::Narrow(recvcounts), datatype, op, comm, info, request
        );
    fn MPI_Reduce_scatter_init_c PMPI_Reduce_scatter_init_c(
        sendbuf: *const c_void, recvbuf: *mut c_void, recvcounts: *const i64, datatype: DatatypeHandle, op: OpHandle,
        comm: CommHandle, info: InfoHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::reduce_scatter_init(
            sendbuf, recvbuf, Ints::Wide(recvcounts), datatype, op, comm, info, request
        );
    fn MPI_Scan PMPI_Scan(
        sendbuf: *const c_void, recvbuf: *mut c_void, count: c_int, datatype: DatatypeHandle, op: OpHandle,
        comm: CommHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::scan(sendbuf, recvbuf, i64::from(count), datatype, op, comm);
    fn MPI_Scan_c PMPI_Scan_c(
        sendbuf: *const c_void, recvbuf: *mut c_void, count: i64, datatype: DatatypeHandle, op: OpHandle,
        comm: CommHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::scan(sendbuf, recvbuf, count, datatype, op, comm);
    fn MPI_Scan_init PMPI_Scan_init(
        sendbuf: *const c_void, recvbuf: *mut c_void, count: c_int, datatype: DatatypeHandle, op: OpHandle,
        comm: CommHandle, info: InfoHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::scan_init(
            sendbuf, recvbuf, i64::from(count), datatype, op, comm, info, request
        );
    fn MPI_Scan_init_c PMPI_Scan_init_c(
        sendbuf: *const c_void, recvbuf: *mut c_void, count: i64, datatype: DatatypeHandle, op: OpHandle,
        comm: CommHandle, info: InfoHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::scan_init(sendbuf, recvbuf, count, datatype, op, comm, info, request);
    fn MPI_Scatter PMPI_Scatter(
        sendbuf: *const c_void, sendcount: c_int, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcount: c_int,
        recvtype: DatatypeHandle, root: c_int, comm: CommHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::scatter(
            sendbuf, i64::from(sendcount), sendtype, recvbuf, i64::from(recvcount), recvtype, root, comm
        );
    fn MPI_Scatter_c PMPI_Scatter_c(
        sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcount: i64,
        recvtype: DatatypeHandle, root: c_int, comm: CommHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::scatter(
            sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm
        );
    fn MPI_Scatter_init PMPI_Scatter_init(
        sendbuf: *const c_void, sendcount: c_int, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcount: c_int,
        recvtype: DatatypeHandle, root: c_int, comm: CommHandle, info: InfoHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::scatter_init(
            sendbuf, i64::from(sendcount), sendtype, recvbuf, i64::from(recvcount), recvtype, root, comm, info,
            request
        );
    fn MPI_Scatter_init_c PMPI_Scatter_init_c(
        sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle, recvbuf: *mut c_void, recvcount: i64,
        recvtype: DatatypeHandle, root: c_int, comm: CommHandle, info: InfoHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::scatter_init(
            sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm, info, request
        );
    fn MPI_Scatterv PMPI_Scatterv(
        sendbuf: *const c_void, sendcounts: *const c_int, displs: *const c_int, sendtype: DatatypeHandle,
        recvbuf: *mut c_void, recvcount: c_int, recvtype: DatatypeHandle, root: c_int, comm: CommHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::scatterv(
            sendbuf, Ints::Narrow(sendcounts), Ints::Narrow(displs), sendtype, recvbuf, i64::from(recvcount), recvtype,
            root, comm
        );
    fn MPI_Scatterv_c PMPI_Scatterv_c(
        sendbuf: *const c_void, sendcounts: *const i64, displs: *const i64, sendtype: DatatypeHandle,
        recvbuf: *mut c_void, recvcount: i64, recvtype: DatatypeHandle, root: c_int, comm: CommHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::scatterv(
            sendbuf, Ints::Wide(sendcounts), Ints::Wide(displs), sendtype, recvbuf, recvcount, recvtype, root, comm
        );
    fn MPI_Scatterv_init PMPI_Scatterv_init(
        sendbuf: *const c_void, sendcounts: *const c_int, displs: *const c_int, sendtype: DatatypeHandle,
        recvbuf: *mut c_void, recvcount: c_int, recvtype: DatatypeHandle, root: c_int, comm: CommHandle,
        info: InfoHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::scatterv_init(
            sendbuf, Ints::Narrow(sendcounts), Ints::Narrow(displs), sendtype, recvbuf, i64::from(recvcount), recvtype,
            root, comm, info, request
        );
    fn MPI_Scatterv_init_c PMPI_Scatterv_init_c(
        sendbuf: *const c_void, sendcounts: *const i64, displs: *const i64, sendtype: DatatypeHandle,
        recvbuf: *mut c_void, recvcount: i64, recvtype: DatatypeHandle, root: c_int, comm: CommHandle,
        info: InfoHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) coll::scatterv_init(
            sendbuf, Ints::Wide(sendcounts), Ints::Wide(displs), sendtype, recvbuf, recvcount, recvtype, root, comm,
            info, request
        );
}
