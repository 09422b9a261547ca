//! The functions of the chapter `partitioned`. Generated from `abi/*.tsv` by `cargo xtask abi`: do not edit.

use super::*;

exports! {
    fn MPI_Parrived PMPI_Parrived(request: RequestHandle, partition: c_int, flag: *mut c_int) -> c_int
        => call(Scope::World) partitioned::parrived(request, partition, flag);
    fn MPI_Pready PMPI_Pready(partition: c_int, request: RequestHandle) -> c_int
        => call(Scope::World) partitioned::pready(partition, request);
    fn MPI_Pready_list PMPI_Pready_list(
        length: c_int, array_of_partitions: *const c_int, request: RequestHandle
    ) -> c_int
        => call(Scope::World) partitioned::pready_list(length, array_of_partitions, request);
    fn MPI_Pready_range PMPI_Pready_range(partition_low: c_int, partition_high: c_int, request: RequestHandle) -> c_int
        => call(Scope::World) partitioned::pready_range(partition_low, partition_high, request);
    fn MPI_Precv_init PMPI_Precv_init(
        buf: *mut c_void, partitions: c_int, count: c_int, datatype: DatatypeHandle, dest: c_int, tag: c_int,
        comm: CommHandle, info: InfoHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) partitioned::precv_init(
            buf, partitions, i64::from(count), datatype, dest, tag, comm, info, request
        );
    fn MPI_Precv_init_c PMPI_Precv_init_c(
        buf: *mut c_void, partitions: c_int, count: i64, datatype: DatatypeHandle, dest: c_int, tag: c_int,
        comm: CommHandle, info: InfoHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) partitioned::precv_init(
            buf, partitions, count, datatype, dest, tag, comm, info, request
        );
    fn MPI_Psend_init PMPI_Psend_init(
        buf: *const c_void, partitions: c_int, count: c_int, datatype: DatatypeHandle, dest: c_int, tag: c_int,
        comm: CommHandle, info: InfoHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) partitioned::psend_init(
            buf, partitions, i64::from(count), datatype, dest, tag, comm, info, request
        );
    fn MPI_Psend_init_c PMPI_Psend_init_c(
        buf: *const c_void, partitions: c_int, count: i64, datatype: DatatypeHandle, dest: c_int, tag: c_int,
        comm: CommHandle, info: InfoHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) partitioned::psend_init(
            buf, partitions, count, datatype, dest, tag, comm, info, request
        );
}
