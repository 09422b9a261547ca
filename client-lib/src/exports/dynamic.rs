//! The functions of the chapter `dynamic`. Generated from `abi/*.tsv` by `cargo xtask abi`: do not edit.

use super::*;

exports! {
    fn MPI_Close_port PMPI_Close_port(port_name: *const c_char) -> c_int
        => call(Scope::World) dynamic::close_port(port_name);
    fn MPI_Comm_accept PMPI_Comm_accept(
        port_name: *const c_char, info: InfoHandle, root: c_int, comm: CommHandle, newcomm: *mut CommHandle
    ) -> c_int
        => call(Scope::Comm(comm)) dynamic::comm_accept(port_name, info, root, comm, newcomm);
    fn MPI_Comm_connect PMPI_Comm_connect(
        port_name: *const c_char, info: InfoHandle, root: c_int, comm: CommHandle, newcomm: *mut CommHandle
    ) -> c_int
        => call(Scope::Comm(comm)) dynamic::comm_connect(port_name, info, root, comm, newcomm);
    fn MPI_Comm_disconnect PMPI_Comm_disconnect(comm: *mut CommHandle) -> c_int
        => call(Scope::World) comm::comm_disconnect(comm);
    fn MPI_Comm_get_parent PMPI_Comm_get_parent(parent: *mut CommHandle) -> c_int
        => call(Scope::World) spawn::comm_get_parent(parent);
    fn MPI_Comm_join PMPI_Comm_join(fd: c_int, intercomm: *mut CommHandle) -> c_int
        => call(Scope::World) dynamic::comm_join(fd, intercomm);
    fn MPI_Comm_spawn PMPI_Comm_spawn(
        command: *const c_char, argv: *mut *mut c_char, maxprocs: c_int, info: InfoHandle, root: c_int,
        comm: CommHandle, intercomm: *mut CommHandle, array_of_errcodes: *mut c_int
    ) -> c_int
        => call(Scope::Comm(comm)) spawn::comm_spawn(
            command, argv, maxprocs, info, root, comm, intercomm, array_of_errcodes
        );
    fn MPI_Comm_spawn_multiple PMPI_Comm_spawn_multiple(
        count: c_int, array_of_commands: *mut *mut c_char, array_of_argv: *mut *mut *mut c_char,
        array_of_maxprocs: *const c_int, array_of_info: *const InfoHandle, root: c_int, comm: CommHandle,
        intercomm: *mut CommHandle, array_of_errcodes: *mut c_int
    ) -> c_int
        => call(Scope::Comm(comm)) spawn::comm_spawn_multiple(
            count, array_of_commands, array_of_argv, array_of_maxprocs, array_of_info, root, comm, intercomm,
            array_of_errcodes
        );
    fn MPI_Lookup_name PMPI_Lookup_name(service_name: *const c_char, info: InfoHandle, port_name: *mut c_char) -> c_int
        => call(Scope::World) names::lookup_name(service_name, info, port_name);
    fn MPI_Open_port PMPI_Open_port(info: InfoHandle, port_name: *mut c_char) -> c_int
        => call(Scope::World) dynamic::open_port(info, port_name);
    fn MPI_Publish_name PMPI_Publish_name(
        service_name: *const c_char, info: InfoHandle, port_name: *const c_char
    ) -> c_int
        => call(Scope::World) names::publish_name(service_name, info, port_name);
    fn MPI_Unpublish_name PMPI_Unpublish_name(
        service_name: *const c_char, info: InfoHandle, port_name: *const c_char
    ) -> c_int
        => call(Scope::World) names::unpublish_name(service_name, info, port_name);
}
