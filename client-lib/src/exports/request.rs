//! The functions of the chapter `request`. Generated from `abi/*.tsv` by `cargo xtask abi`: do not edit.

use super::*;

exports! {
    fn MPI_Buffer_attach PMPI_Buffer_attach(buffer: *mut c_void, size: c_int) -> c_int
        => call(Scope::World) buffered::buffer_attach(buffer, i64::from(size));
    fn MPI_Buffer_attach_c PMPI_Buffer_attach_c(buffer: *mut c_void, size: i64) -> c_int
        => call(Scope::World) buffered::buffer_attach(buffer, size);
    fn MPI_Buffer_detach PMPI_Buffer_detach(buffer_addr: *mut c_void, size: *mut c_int) -> c_int
        => call(Scope::World) buffered::buffer_detach(buffer_addr, IntsOut::Narrow(size));
    fn MPI_Buffer_detach_c PMPI_Buffer_detach_c(buffer_addr: *mut c_void, size: *mut i64) -> c_int
        => call(Scope::World) buffered::buffer_detach(buffer_addr, IntsOut::Wide(size));
    fn MPI_Buffer_flush PMPI_Buffer_flush() -> c_int
        => call(Scope::World) buffered::buffer_flush();
    fn MPI_Buffer_iflush PMPI_Buffer_iflush(request: *mut RequestHandle) -> c_int
        => call(Scope::World) buffered::buffer_iflush(request);
    fn MPI_Cancel PMPI_Cancel(request: *mut RequestHandle) -> c_int
        => call(Scope::World) completion::cancel(request);
    fn MPI_Comm_attach_buffer PMPI_Comm_attach_buffer(comm: CommHandle, buffer: *mut c_void, size: c_int) -> c_int
        => call(Scope::Comm(comm)) buffered::comm_attach_buffer(comm, buffer, i64::from(size));
    fn MPI_Comm_attach_buffer_c PMPI_Comm_attach_buffer_c(comm: CommHandle, buffer: *mut c_void, size: i64) -> c_int
        => call(Scope::Comm(comm)) buffered::comm_attach_buffer(comm, buffer, size);
    fn MPI_Comm_detach_buffer PMPI_Comm_detach_buffer(
        comm: CommHandle, buffer_addr: *mut c_void, size: *mut c_int
    ) -> c_int
        => call(Scope::Comm(comm)) buffered::comm_detach_buffer(comm, buffer_addr, IntsOut::Narrow(size));
    fn MPI_Comm_detach_buffer_c PMPI_Comm_detach_buffer_c(
        comm: CommHandle, buffer_addr: *mut c_void, size: *mut i64
    ) -> c_int
        => call(Scope::Comm(comm)) buffered::comm_detach_buffer(comm, buffer_addr, IntsOut::Wide(size));
    fn MPI_Comm_flush_buffer PMPI_Comm_flush_buffer(comm: CommHandle) -> c_int
        => call(Scope::Comm(comm)) buffered::comm_flush_buffer(comm);
    fn MPI_Comm_iflush_buffer PMPI_Comm_iflush_buffer(comm: CommHandle, request: *mut RequestHandle) -> c_int
        => call(Scope::Comm(comm)) buffered::comm_iflush_buffer(comm, request);
    fn MPI_Grequest_complete PMPI_Grequest_complete(request: RequestHandle) -> c_int
        => call(Scope::World) completion::grequest_complete(request);
    fn MPI_Grequest_start PMPI_Grequest_start(
        query_fn: *const c_void, free_fn: *const c_void, cancel_fn: *const c_void, extra_state: *mut c_void,
        request: *mut RequestHandle
    ) -> c_int
        => call(Scope::World) completion::grequest_start(query_fn, free_fn, cancel_fn, extra_state, request);
    fn MPI_Request_free PMPI_Request_free(request: *mut RequestHandle) -> c_int
        => call(Scope::World) completion::request_free(request);
    fn MPI_Request_get_status PMPI_Request_get_status(
        request: RequestHandle, flag: *mut c_int, status: *mut Status
    ) -> c_int
        => call(Scope::World) completion::request_get_status(request, flag, status);
    fn MPI_Request_get_status_all PMPI_Request_get_status_all(
        count: c_int, array_of_requests: *const RequestHandle, flag: *mut c_int, array_of_statuses: *mut Status
    ) -> c_int
        => call(Scope::World) status::request_get_status_all(count, array_of_requests, flag, array_of_statuses);
    fn MPI_Request_get_status_any PMPI_Request_get_status_any(
        count: c_int, array_of_requests: *const RequestHandle, indx: *mut c_int, flag: *mut c_int, status: *mut Status
    ) -> c_int
        => call(Scope::World) status::request_get_status_any(count, array_of_requests, indx, flag, status);
    fn MPI_Request_get_status_some PMPI_Request_get_status_some(
        incount: c_int, array_of_requests: *const RequestHandle, outcount: *mut c_int, array_of_indices: *mut c_int,
        array_of_statuses: *mut Status
    ) -> c_int
        => call(Scope::World) status::request_get_status_some(
            incount, array_of_requests, outcount, array_of_indices, array_of_statuses
        );
    fn MPI_Start PMPI_Start(request: *mut RequestHandle) -> c_int
        => call(Scope::World) p2p::start(request);
    fn MPI_Startall PMPI_Startall(count: c_int, array_of_requests: *mut RequestHandle) -> c_int
        => call(Scope::World) p2p::startall(count, array_of_requests);
    fn MPI_Status_get_error PMPI_Status_get_error(status: *const Status, error: *mut c_int) -> c_int
        => call_always(Scope::World) status::status_get_error(status, error);
    fn MPI_Status_get_source PMPI_Status_get_source(status: *const Status, source: *mut c_int) -> c_int
        => call_always(Scope::World) status::status_get_source(status, source);
    fn MPI_Status_get_tag PMPI_Status_get_tag(status: *const Status, tag: *mut c_int) -> c_int
        => call_always(Scope::World) status::status_get_tag(status, tag);
    fn MPI_Status_set_cancelled PMPI_Status_set_cancelled(status: *mut Status, flag: c_int) -> c_int
        => call(Scope::World) completion::status_set_cancelled(status, flag);
    fn MPI_Status_set_error PMPI_Status_set_error(status: *mut Status, error: c_int) -> c_int
        => call_always(Scope::World) status::status_set_error(status, error);
    fn MPI_Status_set_source PMPI_Status_set_source(status: *mut Status, source: c_int) -> c_int
        => call_always(Scope::World) status::status_set_source(status, source);
    fn MPI_Status_set_tag PMPI_Status_set_tag(status: *mut Status, tag: c_int) -> c_int
        => call_always(Scope::World) status::status_set_tag(status, tag);
    fn MPI_Test PMPI_Test(request: *mut RequestHandle, flag: *mut c_int, status: *mut Status) -> c_int
        => call(Scope::World) completion::test(request, flag, status);
    fn MPI_Test_cancelled PMPI_Test_cancelled(status: *const Status, flag: *mut c_int) -> c_int
        => call(Scope::World) completion::test_cancelled(status, flag);
    fn MPI_Testall PMPI_Testall(
        count: c_int, array_of_requests: *mut RequestHandle, flag: *mut c_int, array_of_statuses: *mut Status
    ) -> c_int
        => call(Scope::World) completion::testall(count, array_of_requests, flag, array_of_statuses);
    fn MPI_Testany PMPI_Testany(
        count: c_int, array_of_requests: *mut RequestHandle, indx: *mut c_int, flag: *mut c_int, status: *mut Status
    ) -> c_int
        => call(Scope::World) completion::testany(count, array_of_requests, indx, flag, status);
    fn MPI_Testsome PMPI_Testsome(
        incount: c_int, array_of_requests: *mut RequestHandle, outcount: *mut c_int, array_of_indices: *mut c_int,
        array_of_statuses: *mut Status
    ) -> c_int
        => call(Scope::World) completion::testsome(
            incount, array_of_requests, outcount, array_of_indices, array_of_statuses
        );
    fn MPI_Wait PMPI_Wait(request: *mut RequestHandle, status: *mut Status) -> c_int
        => call(Scope::World) completion::wait(request, status);
    fn MPI_Waitall PMPI_Waitall(
        count: c_int, array_of_requests: *mut RequestHandle, array_of_statuses: *mut Status
    ) -> c_int
        => call(Scope::World) completion::waitall(count, array_of_requests, array_of_statuses);
    fn MPI_Waitany PMPI_Waitany(
        count: c_int, array_of_requests: *mut RequestHandle, indx: *mut c_int, status: *mut Status
    ) -> c_int
        => call(Scope::World) completion::waitany(count, array_of_requests, indx, status);
    fn MPI_Waitsome PMPI_Waitsome(
        incount: c_int, array_of_requests: *mut RequestHandle, outcount: *mut c_int, array_of_indices: *mut c_int,
        array_of_statuses: *mut Status
    ) -> c_int
        => call(Scope::World) completion::waitsome(
            incount, array_of_requests, outcount, array_of_indices, array_of_statuses
        );
}
