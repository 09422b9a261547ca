//! The functions of the chapter `session`. Generated from `abi/*.tsv` by `cargo xtask abi`: do not edit.

use super::*;

exports! {
    fn MPI_Comm_create_from_group PMPI_Comm_create_from_group(
        group: GroupHandle, stringtag: *const c_char, info: InfoHandle, errhandler: ErrhandlerHandle,
        newcomm: *mut CommHandle
    ) -> c_int
        => call(Scope::Errhandler(errhandler)) session::comm_create_from_group(
            group, stringtag, info, errhandler, newcomm
        );
    fn MPI_Group_from_session_pset PMPI_Group_from_session_pset(
        session: SessionHandle, pset_name: *const c_char, newgroup: *mut GroupHandle
    ) -> c_int
        => call(Scope::Session(session)) session::group_from_session_pset(session, pset_name, newgroup);
    fn MPI_Intercomm_create_from_groups PMPI_Intercomm_create_from_groups(
        local_group: GroupHandle, local_leader: c_int, remote_group: GroupHandle, remote_leader: c_int,
        stringtag: *const c_char, info: InfoHandle, errhandler: ErrhandlerHandle, newintercomm: *mut CommHandle
    ) -> c_int
        => call(Scope::Errhandler(errhandler)) session::intercomm_create_from_groups(
            local_group, local_leader, remote_group, remote_leader, stringtag, info, errhandler, newintercomm
        );
    fn MPI_Session_attach_buffer PMPI_Session_attach_buffer(
        session: SessionHandle, buffer: *mut c_void, size: c_int
    ) -> c_int
        => call(Scope::Session(session)) buffered::session_attach_buffer(session, buffer, i64::from(size));
    fn MPI_Session_attach_buffer_c PMPI_Session_attach_buffer_c(
        session: SessionHandle, buffer: *mut c_void, size: i64
    ) -> c_int
        => call(Scope::Session(session)) buffered::session_attach_buffer(session, buffer, size);
    fn MPI_Session_call_errhandler PMPI_Session_call_errhandler(session: SessionHandle, errorcode: c_int) -> c_int
        => call(Scope::Session(session)) errhandler::session_call_errhandler(session, errorcode);
    fn MPI_Session_create_errhandler PMPI_Session_create_errhandler(
        session_errhandler_fn: *const c_void, errhandler: *mut ErrhandlerHandle
    ) -> c_int
        => call_always(Scope::World) errhandler::session_create_errhandler(session_errhandler_fn, errhandler);
    fn MPI_Session_detach_buffer PMPI_Session_detach_buffer(
        session: SessionHandle, buffer_addr: *mut c_void, size: *mut c_int
    ) -> c_int
        => call(Scope::Session(session)) buffered::session_detach_buffer(session, buffer_addr, IntsOut::Narrow(size));
    fn MPI_Session_detach_buffer_c PMPI_Session_detach_buffer_c(
        session: SessionHandle, buffer_addr: *mut c_void, size: *mut i64
    ) -> c_int
        => call(Scope::Session(session)) buffered::session_detach_buffer(session, buffer_addr, IntsOut::Wide(size));
    fn MPI_Session_finalize PMPI_Session_finalize(session: *mut SessionHandle) -> c_int
        => call(Scope::World) session::session_finalize(session);
    fn MPI_Session_flush_buffer PMPI_Session_flush_buffer(session: SessionHandle) -> c_int
        => call(Scope::Session(session)) buffered::session_flush_buffer(session);
    fn MPI_Session_fromint PMPI_Session_fromint(session: c_int) -> SessionHandle
        => plain() fortran::from_int(session);
    fn MPI_Session_get_errhandler PMPI_Session_get_errhandler(
        session: SessionHandle, errhandler: *mut ErrhandlerHandle
    ) -> c_int
        => call(Scope::Session(session)) errhandler::session_get_errhandler(session, errhandler);
    fn MPI_Session_get_info PMPI_Session_get_info(session: SessionHandle, info_used: *mut InfoHandle) -> c_int
        => call(Scope::Session(session)) session::session_get_info(session, info_used);
    fn MPI_Session_get_nth_pset PMPI_Session_get_nth_pset(
        session: SessionHandle, info: InfoHandle, n: c_int, pset_len: *mut c_int, pset_name: *mut c_char
    ) -> c_int
        => call(Scope::Session(session)) session::session_get_nth_pset(session, info, n, pset_len, pset_name);
    fn MPI_Session_get_num_psets PMPI_Session_get_num_psets(
        session: SessionHandle, info: InfoHandle, npset_names: *mut c_int
    ) -> c_int
        => call(Scope::Session(session)) session::session_get_num_psets(session, info, npset_names);
    fn MPI_Session_get_pset_info PMPI_Session_get_pset_info(
        session: SessionHandle, pset_name: *const c_char, info: *mut InfoHandle
    ) -> c_int
        => call(Scope::Session(session)) session::session_get_pset_info(session, pset_name, info);
    fn MPI_Session_iflush_buffer PMPI_Session_iflush_buffer(
        session: SessionHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Session(session)) buffered::session_iflush_buffer(session, request);
    fn MPI_Session_init PMPI_Session_init(
        info: InfoHandle, errhandler: ErrhandlerHandle, session: *mut SessionHandle
    ) -> c_int
        => call_always(Scope::Errhandler(errhandler)) session::session_init(info, errhandler, session);
    fn MPI_Session_set_errhandler PMPI_Session_set_errhandler(
        session: SessionHandle, errhandler: ErrhandlerHandle
    ) -> c_int
        => call(Scope::Session(session)) errhandler::session_set_errhandler(session, errhandler);
    fn MPI_Session_toint PMPI_Session_toint(session: SessionHandle) -> c_int
        => plain() fortran::to_int(session);
}
