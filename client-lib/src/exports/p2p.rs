//! The functions of the chapter `p2p`. Generated from `abi/*.tsv` by `cargo xtask abi`: do not edit.

use super::*;

exports! {
    fn MPI_Bsend PMPI_Bsend(
        buf: *const c_void, count: c_int, datatype: DatatypeHandle, dest: c_int, tag: c_int, comm: CommHandle
    ) -> c_int
        => call(Scope::Comm(comm)) p2p::bsend(buf, i64::from(count), datatype, dest, tag, comm);
    fn MPI_Bsend_c PMPI_Bsend_c(
        buf: *const c_void, count: i64, datatype: DatatypeHandle, dest: c_int, tag: c_int, comm: CommHandle
    ) -> c_int
        => call(Scope::Comm(comm)) p2p::bsend(buf, count, datatype, dest, tag, comm);
    fn MPI_Bsend_init PMPI_Bsend_init(
        buf: *const c_void, count: c_int, datatype: DatatypeHandle, dest: c_int, tag: c_int, comm: CommHandle,
        request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) p2p::bsend_init(buf, i64::from(count), datatype, dest, tag, comm, request);
    fn MPI_Bsend_init_c PMPI_Bsend_init_c(
        buf: *const c_void, count: i64, datatype: DatatypeHandle, dest: c_int, tag: c_int, comm: CommHandle,
        request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) p2p::bsend_init(buf, count, datatype, dest, tag, comm, request);
    fn MPI_Ibsend PMPI_Ibsend(
        buf: *const c_void, count: c_int, datatype: DatatypeHandle, dest: c_int, tag: c_int, comm: CommHandle,
        request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) p2p::ibsend(buf, i64::from(count), datatype, dest, tag, comm, request);
    fn MPI_Ibsend_c PMPI_Ibsend_c(
        buf: *const c_void, count: i64, datatype: DatatypeHandle, dest: c_int, tag: c_int, comm: CommHandle,
        request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) p2p::ibsend(buf, count, datatype, dest, tag, comm, request);
    fn MPI_Improbe PMPI_Improbe(
        source: c_int, tag: c_int, comm: CommHandle, flag: *mut c_int, message: *mut MessageHandle,
        status: *mut Status
    ) -> c_int
        => call(Scope::Comm(comm)) p2p::improbe(source, tag, comm, flag, message, status);
    fn MPI_Imrecv PMPI_Imrecv(
        buf: *mut c_void, count: c_int, datatype: DatatypeHandle, message: *mut MessageHandle,
        request: *mut RequestHandle
    ) -> c_int
        => call(Scope::World) p2p::imrecv(buf, i64::from(count), datatype, message, request);
    fn MPI_Imrecv_c PMPI_Imrecv_c(
        buf: *mut c_void, count: i64, datatype: DatatypeHandle, message: *mut MessageHandle,
        request: *mut RequestHandle
    ) -> c_int
        => call(Scope::World) p2p::imrecv(buf, count, datatype, message, request);
    fn MPI_Iprobe PMPI_Iprobe(
        source: c_int, tag: c_int, comm: CommHandle, flag: *mut c_int, status: *mut Status
    ) -> c_int
        => call(Scope::Comm(comm)) p2p::iprobe(source, tag, comm, flag, status);
    fn MPI_Irecv PMPI_Irecv(
        buf: *mut c_void, count: c_int, datatype: DatatypeHandle, source: c_int, tag: c_int, comm: CommHandle,
        request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) p2p::irecv(buf, i64::from(count), datatype, source, tag, comm, request);
    fn MPI_Irecv_c PMPI_Irecv_c(
        buf: *mut c_void, count: i64, datatype: DatatypeHandle, source: c_int, tag: c_int, comm: CommHandle,
        request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) p2p::irecv(buf, count, datatype, source, tag, comm, request);
    fn MPI_Irsend PMPI_Irsend(
        buf: *const c_void, count: c_int, datatype: DatatypeHandle, dest: c_int, tag: c_int, comm: CommHandle,
        request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) p2p::irsend(buf, i64::from(count), datatype, dest, tag, comm, request);
    fn MPI_Irsend_c PMPI_Irsend_c(
        buf: *const c_void, count: i64, datatype: DatatypeHandle, dest: c_int, tag: c_int, comm: CommHandle,
        request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) p2p::irsend(buf, count, datatype, dest, tag, comm, request);
    fn MPI_Isend PMPI_Isend(
        buf: *const c_void, count: c_int, datatype: DatatypeHandle, dest: c_int, tag: c_int, comm: CommHandle,
        request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) p2p::isend(buf, i64::from(count), datatype, dest, tag, comm, request);
    fn MPI_Isend_c PMPI_Isend_c(
        buf: *const c_void, count: i64, datatype: DatatypeHandle, dest: c_int, tag: c_int, comm: CommHandle,
        request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) p2p::isend(buf, count, datatype, dest, tag, comm, request);
    fn MPI_Isendrecv PMPI_Isendrecv(
        sendbuf: *const c_void, sendcount: c_int, sendtype: DatatypeHandle, dest: c_int, sendtag: c_int,
        recvbuf: *mut c_void, recvcount: c_int, recvtype: DatatypeHandle, source: c_int, recvtag: c_int,
        comm: CommHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) p2p::isendrecv(
            sendbuf, i64::from(sendcount), sendtype, dest, sendtag, recvbuf, i64::from(recvcount), recvtype, source,
            recvtag, comm, request
        );
    fn MPI_Isendrecv_c PMPI_Isendrecv_c(
        sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle, dest: c_int, sendtag: c_int,
        recvbuf: *mut c_void, recvcount: i64, recvtype: DatatypeHandle, source: c_int, recvtag: c_int,
        comm: CommHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) p2p::isendrecv(
            sendbuf, sendcount, sendtype, dest, sendtag, recvbuf, recvcount, recvtype, source, recvtag, comm, request
        );
    fn MPI_Isendrecv_replace PMPI_Isendrecv_replace(
        buf: *mut c_void, count: c_int, datatype: DatatypeHandle, dest: c_int, sendtag: c_int, source: c_int,
        recvtag: c_int, comm: CommHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) p2p::isendrecv_replace(
            buf, i64::from(count), datatype, dest, sendtag, source, recvtag, comm, request
        );
    fn MPI_Isendrecv_replace_c PMPI_Isendrecv_replace_c(
        buf: *mut c_void, count: i64, datatype: DatatypeHandle, dest: c_int, sendtag: c_int, source: c_int,
        recvtag: c_int, comm: CommHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) p2p::isendrecv_replace(
            buf, count, datatype, dest, sendtag, source, recvtag, comm, request
        );
    fn MPI_Issend PMPI_Issend(
        buf: *const c_void, count: c_int, datatype: DatatypeHandle, dest: c_int, tag: c_int, comm: CommHandle,
        request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) p2p::issend(buf, i64::from(count), datatype, dest, tag, comm, request);
    fn MPI_Issend_c PMPI_Issend_c(
        buf: *const c_void, count: i64, datatype: DatatypeHandle, dest: c_int, tag: c_int, comm: CommHandle,
        request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) p2p::issend(buf, count, datatype, dest, tag, comm, request);
    fn MPI_Mprobe PMPI_Mprobe(
        source: c_int, tag: c_int, comm: CommHandle, message: *mut MessageHandle, status: *mut Status
    ) -> c_int
        => call(Scope::Comm(comm)) p2p::mprobe(source, tag, comm, message, status);
    fn MPI_Mrecv PMPI_Mrecv(
        buf: *mut c_void, count: c_int, datatype: DatatypeHandle, message: *mut MessageHandle, status: *mut Status
    ) -> c_int
        => call(Scope::World) p2p::mrecv(buf, i64::from(count), datatype, message, status);
    fn MPI_Mrecv_c PMPI_Mrecv_c(
        buf: *mut c_void, count: i64, datatype: DatatypeHandle, message: *mut MessageHandle, status: *mut Status
    ) -> c_int
        => call(Scope::World) p2p::mrecv(buf, count, datatype, message, status);
    fn MPI_Probe PMPI_Probe(source: c_int, tag: c_int, comm: CommHandle, status: *mut Status) -> c_int
        => call(Scope::Comm(comm)) p2p::probe(source, tag, comm, status);
    fn MPI_Recv PMPI_Recv(
        buf: *mut c_void, count: c_int, datatype: DatatypeHandle, source: c_int, tag: c_int, comm: CommHandle,
        status: *mut Status
    ) -> c_int
        => call(Scope::Comm(comm)) p2p::recv(buf, i64::from(count), datatype, source, tag, comm, status);
    fn MPI_Recv_c PMPI_Recv_c(
        buf: *mut c_void, count: i64, datatype: DatatypeHandle, source: c_int, tag: c_int, comm: CommHandle,
        status: *mut Status
    ) -> c_int
        => call(Scope::Comm(comm)) p2p::recv(buf, count, datatype, source, tag, comm, status);
    fn MPI_Recv_init PMPI_Recv_init(
        buf: *mut c_void, count: c_int, datatype: DatatypeHandle, source: c_int, tag: c_int, comm: CommHandle,
        request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) p2p::recv_init(buf, i64::from(count), datatype, source, tag, comm, request);
    fn MPI_Recv_init_c PMPI_Recv_init_c(
        buf: *mut c_void, count: i64, datatype: DatatypeHandle, source: c_int, tag: c_int, comm: CommHandle,
        request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) p2p::recv_init(buf, count, datatype, source, tag, comm, request);
    fn MPI_Rsend PMPI_Rsend(
        buf: *const c_void, count: c_int, datatype: DatatypeHandle, dest: c_int, tag: c_int, comm: CommHandle
    ) -> c_int
        => call(Scope::Comm(comm)) p2p::rsend(buf, i64::from(count), datatype, dest, tag, comm);
    fn MPI_Rsend_c PMPI_Rsend_c(
        buf: *const c_void, count: i64, datatype: DatatypeHandle, dest: c_int, tag: c_int, comm: CommHandle
    ) -> c_int
        => call(Scope::Comm(comm)) p2p::rsend(buf, count, datatype, dest, tag, comm);
    fn MPI_Rsend_init PMPI_Rsend_init(
        buf: *const c_void, count: c_int, datatype: DatatypeHandle, dest: c_int, tag: c_int, comm: CommHandle,
        request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) p2p::rsend_init(buf, i64::from(count), datatype, dest, tag, comm, request);
    fn MPI_Rsend_init_c PMPI_Rsend_init_c(
        buf: *const c_void, count: i64, datatype: DatatypeHandle, dest: c_int, tag: c_int, comm: CommHandle,
        request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) p2p::rsend_init(buf, count, datatype, dest, tag, comm, request);
    fn MPI_Send PMPI_Send(
        buf: *const c_void, count: c_int, datatype: DatatypeHandle, dest: c_int, tag: c_int, comm: CommHandle
    ) -> c_int
        => call(Scope::Comm(comm)) p2p::send(buf, i64::from(count), datatype, dest, tag, comm);
    fn MPI_Send_c PMPI_Send_c(
        buf: *const c_void, count: i64, datatype: DatatypeHandle, dest: c_int, tag: c_int, comm: CommHandle
    ) -> c_int
        => call(Scope::Comm(comm)) p2p::send(buf, count, datatype, dest, tag, comm);
    fn MPI_Send_init PMPI_Send_init(
        buf: *const c_void, count: c_int, datatype: DatatypeHandle, dest: c_int, tag: c_int, comm: CommHandle,
        request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) p2p::send_init(buf, i64::from(count), datatype, dest, tag, comm, request);
    fn MPI_Send_init_c PMPI_Send_init_c(
        buf: *const c_void, count: i64, datatype: DatatypeHandle, dest: c_int, tag: c_int, comm: CommHandle,
        request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) p2p::send_init(buf, count, datatype, dest, tag, comm, request);
    fn MPI_Sendrecv PMPI_Sendrecv(
        sendbuf: *const c_void, sendcount: c_int, sendtype: DatatypeHandle, dest: c_int, sendtag: c_int,
        recvbuf: *mut c_void, recvcount: c_int, recvtype: DatatypeHandle, source: c_int, recvtag: c_int,
        comm: CommHandle, status: *mut Status
    ) -> c_int
        => call(Scope::Comm(comm)) p2p::sendrecv(
            sendbuf, i64::from(sendcount), sendtype, dest, sendtag, recvbuf, i64::from(recvcount), recvtype, source,
            recvtag, comm, status
        );
    fn MPI_Sendrecv_c PMPI_Sendrecv_c(
        sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle, dest: c_int, sendtag: c_int,
        recvbuf: *mut c_void, recvcount: i64, recvtype: DatatypeHandle, source: c_int, recvtag: c_int,
        comm: CommHandle, status: *mut Status
    ) -> c_int
        => call(Scope::Comm(comm)) p2p::sendrecv(
            sendbuf, sendcount, sendtype, dest, sendtag, recvbuf, recvcount, recvtype, source, recvtag, comm, status
        );
    fn MPI_Sendrecv_replace PMPI_Sendrecv_replace(
        buf: *mut c_void, count: c_int, datatype: DatatypeHandle, dest: c_int, sendtag: c_int, source: c_int,
        recvtag: c_int, comm: CommHandle, status: *mut Status
    ) -> c_int
        => call(Scope::Comm(comm)) p2p::sendrecv_replace(
            buf, i64::from(count), datatype, dest, sendtag, source, recvtag, comm, status
        );
    fn MPI_Sendrecv_replace_c PMPI_Sendrecv_replace_c(
        buf: *mut c_void, count: i64, datatype: DatatypeHandle, dest: c_int, sendtag: c_int, source: c_int,
        recvtag: c_int, comm: CommHandle, status: *mut Status
    ) -> c_int
        => call(Scope::Comm(comm)) p2p::sendrecv_replace(
            buf, count, datatype, dest, sendtag, source, recvtag, comm, status
        );
    fn MPI_Ssend PMPI_Ssend(
        buf: *const c_void, count: c_int, datatype: DatatypeHandle, dest: c_int, tag: c_int, comm: CommHandle
    ) -> c_int
        => call(Scope::Comm(comm)) p2p::ssend(buf, i64::from(count), datatype, dest, tag, comm);
    fn MPI_Ssend_c PMPI_Ssend_c(
        buf: *const c_void, count: i64, datatype: DatatypeHandle, dest: c_int, tag: c_int, comm: CommHandle
    ) -> c_int
        => call(Scope::Comm(comm)) p2p::ssend(buf, count, datatype, dest, tag, comm);
    fn MPI_Ssend_init PMPI_Ssend_init(
        buf: *const c_void, count: c_int, datatype: DatatypeHandle, dest: c_int, tag: c_int, comm: CommHandle,
        request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) p2p::ssend_init(buf, i64::from(count), datatype, dest, tag, comm, request);
    fn MPI_Ssend_init_c PMPI_Ssend_init_c(
        buf: *const c_void, count: i64, datatype: DatatypeHandle, dest: c_int, tag: c_int, comm: CommHandle,
        request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Comm(comm)) p2p::ssend_init(buf, count, datatype, dest, tag, comm, request);
}
