//! The functions of the chapter `datatype`. Generated from `abi/*.tsv` by `cargo xtask abi`: do not edit.

use super::*;

exports! {
    fn MPI_Aint_add PMPI_Aint_add(base: i64, disp: i64) -> i64
        => plain() fortran::aint_add(base, disp);
    fn MPI_Aint_diff PMPI_Aint_diff(addr1: i64, addr2: i64) -> i64
        => plain() fortran::aint_diff(addr1, addr2);
    fn MPI_Get_address PMPI_Get_address(location: *const c_void, address: *mut i64) -> c_int
        => call(Scope::World) datatype::get_address(location, address);
    fn MPI_Get_count PMPI_Get_count(status: *const Status, datatype: DatatypeHandle, count: *mut c_int) -> c_int
        => call(Scope::World) datatype::get_count(status, datatype, IntsOut::Narrow(count));
    fn MPI_Get_count_c PMPI_Get_count_c(status: *const Status, datatype: DatatypeHandle, count: *mut i64) -> c_int
        => call(Scope::World) datatype::get_count(status, datatype, IntsOut::Wide(count));
    fn MPI_Get_elements PMPI_Get_elements(status: *const Status, datatype: DatatypeHandle, count: *mut c_int) -> c_int
        => call(Scope::World) datatype::get_elements(status, datatype, IntsOut::Narrow(count));
    fn MPI_Get_elements_c PMPI_Get_elements_c(status: *const Status, datatype: DatatypeHandle, count: *mut i64) -> c_int
        => call(Scope::World) datatype::get_elements(status, datatype, IntsOut::Wide(count));
    fn MPI_Get_elements_x PMPI_Get_elements_x(status: *const Status, datatype: DatatypeHandle, count: *mut i64) -> c_int
        => call(Scope::World) datatype::get_elements(status, datatype, IntsOut::Wide(count));
    fn MPI_Pack PMPI_Pack(
        inbuf: *const c_void, incount: c_int, datatype: DatatypeHandle, outbuf: *mut c_void, outsize: c_int,
        position: *mut c_int, comm: CommHandle
    ) -> c_int
        => call(Scope::Comm(comm)) pack::pack(
            inbuf, i64::from(incount), datatype, outbuf, i64::from(outsize), IntsOut::Narrow(position), comm
        );
    fn MPI_Pack_c PMPI_Pack_c(
        inbuf: *const c_void, incount: i64, datatype: DatatypeHandle, outbuf: *mut c_void, outsize: i64,
        position: *mut i64, comm: CommHandle
    ) -> c_int
        => call(Scope::Comm(comm)) pack::pack(inbuf, incount, datatype, outbuf, outsize, IntsOut::Wide(position), comm);
    fn MPI_Pack_external PMPI_Pack_external(
        datarep: *const c_char, inbuf: *const c_void, incount: c_int, datatype: DatatypeHandle, outbuf: *mut c_void,
        outsize: i64, position: *mut i64
    ) -> c_int
        => call(Scope::World) pack::pack_external(
            datarep, inbuf, i64::from(incount), datatype, outbuf, outsize, position
        );
    fn MPI_Pack_external_c PMPI_Pack_external_c(
        datarep: *const c_char, inbuf: *const c_void, incount: i64, datatype: DatatypeHandle, outbuf: *mut c_void,
        outsize: i64, position: *mut i64
    ) -> c_int
        => call(Scope::World) pack::pack_external(datarep, inbuf, incount, datatype, outbuf, outsize, position);
    fn MPI_Pack_external_size PMPI_Pack_external_size(
        datarep: *const c_char, incount: c_int, datatype: DatatypeHandle, size: *mut i64
    ) -> c_int
        => call(Scope::World) pack::pack_external_size(datarep, i64::from(incount), datatype, size);
    fn MPI_Pack_external_size_c PMPI_Pack_external_size_c(
        datarep: *const c_char, incount: i64, datatype: DatatypeHandle, size: *mut i64
    ) -> c_int
        => call(Scope::World) pack::pack_external_size(datarep, incount, datatype, size);
    fn MPI_Pack_size PMPI_Pack_size(
        incount: c_int, datatype: DatatypeHandle, comm: CommHandle, size: *mut c_int
    ) -> c_int
        => call(Scope::Comm(comm)) pack::pack_size(i64::from(incount), datatype, comm, IntsOut::Narrow(size));
    fn MPI_Pack_size_c PMPI_Pack_size_c(
        incount: i64, datatype: DatatypeHandle, comm: CommHandle, size: *mut i64
    ) -> c_int
        => call(Scope::Comm(comm)) pack::pack_size(incount, datatype, comm, IntsOut::Wide(size));
    fn MPI_Status_set_elements PMPI_Status_set_elements(
        status: *mut Status, datatype: DatatypeHandle, count: c_int
    ) -> c_int
        => call(Scope::World) datatype::status_set_elements(status, datatype, i64::from(count));
    fn MPI_Status_set_elements_c PMPI_Status_set_elements_c(
        status: *mut Status, datatype: DatatypeHandle, count: i64
    ) -> c_int
        => call(Scope::World) datatype::status_set_elements(status, datatype, count);
    fn MPI_Status_set_elements_x PMPI_Status_set_elements_x(
        status: *mut Status, datatype: DatatypeHandle, count: i64
    ) -> c_int
        => call(Scope::World) datatype::status_set_elements(status, datatype, count);
    fn MPI_Type_commit PMPI_Type_commit(datatype: *mut DatatypeHandle) -> c_int
        => call(Scope::World) datatype::type_commit(datatype);
    fn MPI_Type_contiguous PMPI_Type_contiguous(
        count: c_int, oldtype: DatatypeHandle, newtype: *mut DatatypeHandle
    ) -> c_int
        => call(Scope::World) construct::type_contiguous(i64::from(count), oldtype, newtype, false);
    fn MPI_Type_contiguous_c PMPI_Type_contiguous_c(
        count: i64, oldtype: DatatypeHandle, newtype: *mut DatatypeHandle
    ) -> c_int
        => call(Scope::World) construct::type_contiguous(count, oldtype, newtype, true);
    fn MPI_Type_create_darray PMPI_Type_create_darray(
        size: c_int, rank: c_int, ndims: c_int, array_of_gsizes: *const c_int, array_of_distribs: *const c_int,
        array_of_dargs: *const c_int, array_of_psizes: *const c_int, order: c_int, oldtype: DatatypeHandle,
        newtype: *mut DatatypeHandle
    ) -> c_int
        => call(Scope::World) construct::type_create_darray(
            size, rank, ndims, Ints::Narrow(array_of_gsizes), array_of_distribs, array_of_dargs, array_of_psizes,
            order, oldtype, newtype, false
        );
    fn MPI_Type_create_darray_c PMPI_Type_create_darray_c(
        size: c_int, rank: c_int, ndims: c_int, array_of_gsizes: *const i64, array_of_distribs: *const c_int,
        array_of_dargs: *const c_int, array_of_psizes: *const c_int, order: c_int, oldtype: DatatypeHandle,
        newtype: *mut DatatypeHandle
    ) -> c_int
        => call(Scope::World) construct::type_create_darray(
            size, rank, ndims, Ints::Wide(array_of_gsizes), array_of_distribs, array_of_dargs, array_of_psizes, order,
            oldtype, newtype, true
        );
    fn MPI_Type_create_f90_complex PMPI_Type_create_f90_complex(
        p: c_int, r: c_int, newtype: *mut DatatypeHandle
    ) -> c_int
        => call(Scope::World) construct::type_create_f90_complex(p, r, newtype);
    fn MPI_Type_create_f90_integer PMPI_Type_create_f90_integer(r: c_int, newtype: *mut DatatypeHandle) -> c_int
        => call(Scope::World) construct::type_create_f90_integer(r, newtype);
    fn MPI_Type_create_f90_real PMPI_Type_create_f90_real(p: c_int, r: c_int, newtype: *mut DatatypeHandle) -> c_int
        => call(Scope::World) construct::type_create_f90_real(p, r, newtype);
    fn MPI_Type_create_hindexed PMPI_Type_create_hindexed(
        count: c_int, array_of_blocklengths: *const c_int, array_of_displacements: *const i64, oldtype: DatatypeHandle,
        newtype: *mut DatatypeHandle
    ) -> c_int
        => call(Scope::World) construct::type_create_hindexed(
            i64::from(count), Ints::Narrow(array_of_blocklengths), array_of_displacements, oldtype, newtype, false
        );
    fn MPI_Type_create_hindexed_block PMPI_Type_create_hindexed_block(
        count: c_int, blocklength: c_int, array_of_displacements: *const i64, oldtype: DatatypeHandle,
        newtype: *mut DatatypeHandle
    ) -> c_int
        => call(Scope::World) construct::type_create_hindexed_block(
            i64::from(count), i64::from(blocklength), array_of_displacements, oldtype, newtype, false
        );
    fn MPI_Type_create_hindexed_block_c PMPI_Type_create_hindexed_block_c(
        count: i64, blocklength: i64, array_of_displacements: *const i64, oldtype: DatatypeHandle,
        newtype: *mut DatatypeHandle
    ) -> c_int
        => call(Scope::World) construct::type_create_hindexed_block(
            count, blocklength, array_of_displacements, oldtype, newtype, true
        );
    fn MPI_Type_create_hindexed_c PMPI_Type_create_hindexed_c(
        count: i64, array_of_blocklengths: *const i64, array_of_displacements: *const i64, oldtype: DatatypeHandle,
        newtype: *mut DatatypeHandle
    ) -> c_int
        => call(Scope::World) construct::type_create_hindexed(
            count, Ints::Wide(array_of_blocklengths), array_of_displacements, oldtype, newtype, true
        );
    fn MPI_Type_create_hvector PMPI_Type_create_hvector(
        count: c_int, blocklength: c_int, stride: i64, oldtype: DatatypeHandle, newtype: *mut DatatypeHandle
    ) -> c_int
        => call(Scope::World) construct::type_create_hvector(
            i64::from(count), i64::from(blocklength), stride, oldtype, newtype, false
        );
    fn MPI_Type_create_hvector_c PMPI_Type_create_hvector_c(
        count: i64, blocklength: i64, stride: i64, oldtype: DatatypeHandle, newtype: *mut DatatypeHandle
    ) -> c_int
        => call(Scope::World) construct::type_create_hvector(count, blocklength, stride, oldtype, newtype, true);
    fn MPI_Type_create_indexed_block PMPI_Type_create_indexed_block(
        count: c_int, blocklength: c_int, array_of_displacements: *const c_int, oldtype: DatatypeHandle,
        newtype: *mut DatatypeHandle
    ) -> c_int
        => call(Scope::World) construct::type_create_indexed_block(
            i64::from(count), i64::from(blocklength), Ints::Narrow(array_of_displacements), oldtype, newtype, false
        );
    fn MPI_Type_create_indexed_block_c PMPI_Type_create_indexed_block_c(
        count: i64, blocklength: i64, array_of_displacements: *const i64, oldtype: DatatypeHandle,
        newtype: *mut DatatypeHandle
    ) -> c_int
        => call(Scope::World) construct::type_create_indexed_block(
            count, blocklength, Ints::Wide(array_of_displacements), oldtype, newtype, true
        );
    fn MPI_Type_create_resized PMPI_Type_create_resized(
        oldtype: DatatypeHandle, lb: i64, extent: i64, newtype: *mut DatatypeHandle
    ) -> c_int
        => call(Scope::World) construct::type_create_resized(oldtype, lb, extent, newtype, false);
    fn MPI_Type_create_resized_c PMPI_Type_create_resized_c(
        oldtype: DatatypeHandle, lb: i64, extent: i64, newtype: *mut DatatypeHandle
    ) -> c_int
        => call(Scope::World) construct::type_create_resized(oldtype, lb, extent, newtype, true);
    fn MPI_Type_create_struct PMPI_Type_create_struct(
        count: c_int, array_of_blocklengths: *const c_int, array_of_displacements: *const i64,
        array_of_types: *const DatatypeHandle, newtype: *mut DatatypeHandle
    ) -> c_int
        => call(Scope::World) construct::type_create_struct(
            i64::from(count), Ints::Narrow(array_of_blocklengths), array_of_displacements, array_of_types, newtype,
            false
        );
    fn MPI_Type_create_struct_c PMPI_Type_create_struct_c(
        count: i64, array_of_blocklengths: *const i64, array_of_displacements: *const i64,
        array_of_types: *const DatatypeHandle, newtype: *mut DatatypeHandle
    ) -> c_int
        => call(Scope::World) construct::type_create_struct(
            count, Ints::Wide(array_of_blocklengths), array_of_displacements, array_of_types, newtype, true
        );
    fn MPI_Type_create_subarray PMPI_Type_create_subarray(
        ndims: c_int, array_of_sizes: *const c_int, array_of_subsizes: *const c_int, array_of_starts: *const c_int,
        order: c_int, oldtype: DatatypeHandle, newtype: *mut DatatypeHandle
    ) -> c_int
        => call(Scope::World) construct::type_create_subarray(
            ndims, Ints::Narrow(array_of_sizes), Ints::Narrow(array_of_subsizes), Ints::Narrow(array_of_starts), order,
            oldtype, newtype, false
        );
    fn MPI_Type_create_subarray_c PMPI_Type_create_subarray_c(
        ndims: c_int, array_of_sizes: *const i64, array_of_subsizes: *const i64, array_of_starts: *const i64,
        order: c_int, oldtype: DatatypeHandle, newtype: *mut DatatypeHandle
    ) -> c_int
        => call(Scope::World) construct::type_create_subarray(
            ndims, Ints::Wide(array_of_sizes), Ints::Wide(array_of_subsizes), Ints::Wide(array_of_starts), order,
            oldtype, newtype, true
        );
    fn MPI_Type_dup PMPI_Type_dup(oldtype: DatatypeHandle, newtype: *mut DatatypeHandle) -> c_int
        => call(Scope::World) datatype::type_dup(oldtype, newtype);
    fn MPI_Type_free PMPI_Type_free(datatype: *mut DatatypeHandle) -> c_int
        => call(Scope::World) datatype::type_free(datatype);
    fn MPI_Type_fromint PMPI_Type_fromint(datatype: c_int) -> DatatypeHandle
        => plain() fortran::from_int(datatype);
    fn MPI_Type_get_contents PMPI_Type_get_contents(
        datatype: DatatypeHandle, max_integers: c_int, max_addresses: c_int, max_datatypes: c_int,
        array_of_integers: *mut c_int, array_of_addresses: *mut i64, array_of_datatypes: *mut DatatypeHandle
    ) -> c_int
        => call(Scope::World) datatype::type_get_contents(
            datatype, max_integers, max_addresses, max_datatypes, array_of_integers, array_of_addresses,
            array_of_datatypes
        );
    fn MPI_Type_get_contents_c PMPI_Type_get_contents_c(
        datatype: DatatypeHandle, max_integers: i64, max_addresses: i64, max_large_counts: i64, max_datatypes: i64,
        array_of_integers: *mut c_int, array_of_addresses: *mut i64, array_of_large_counts: *mut i64,
        array_of_datatypes: *mut DatatypeHandle
    ) -> c_int
        => call(Scope::World) datatype::type_get_contents_c(
            datatype, max_integers, max_addresses, max_large_counts, max_datatypes, array_of_integers,
            array_of_addresses, array_of_large_counts, array_of_datatypes
        );
    fn MPI_Type_get_envelope PMPI_Type_get_envelope(
        datatype: DatatypeHandle, num_integers: *mut c_int, num_addresses: *mut c_int, num_datatypes: *mut c_int,
        combiner: *mut c_int
    ) -> c_int
        => call(Scope::World) datatype::type_get_envelope(
            datatype, num_integers, num_addresses, num_datatypes, combiner
        );
    fn MPI_Type_get_envelope_c PMPI_Type_get_envelope_c(
        datatype: DatatypeHandle, num_integers: *mut i64, num_addresses: *mut i64, num_large_counts: *mut i64,
        num_datatypes: *mut i64, combiner: *mut c_int
    ) -> c_int
        => call(Scope::World) datatype::type_get_envelope_c(
            datatype, num_integers, num_addresses, num_large_counts, num_datatypes, combiner
        );
    fn MPI_Type_get_extent PMPI_Type_get_extent(datatype: DatatypeHandle, lb: *mut i64, extent: *mut i64) -> c_int
        => call(Scope::World) datatype::type_get_extent(datatype, lb, extent);
    fn MPI_Type_get_extent_c PMPI_Type_get_extent_c(datatype: DatatypeHandle, lb: *mut i64, extent: *mut i64) -> c_int
        => call(Scope::World) datatype::type_get_extent(datatype, lb, extent);
    fn MPI_Type_get_extent_x PMPI_Type_get_extent_x(datatype: DatatypeHandle, lb: *mut i64, extent: *mut i64) -> c_int
        => call(Scope::World) datatype::type_get_extent(datatype, lb, extent);
    fn MPI_Type_get_name PMPI_Type_get_name(
        datatype: DatatypeHandle, type_name: *mut c_char, resultlen: *mut c_int
    ) -> c_int
        => call(Scope::World) datatype::type_get_name(datatype, type_name, resultlen);
    fn MPI_Type_get_true_extent PMPI_Type_get_true_extent(
        datatype: DatatypeHandle, true_lb: *mut i64, true_extent: *mut i64
    ) -> c_int
        => call(Scope::World) datatype::type_get_true_extent(datatype, true_lb, true_extent);
    fn MPI_Type_get_true_extent_c PMPI_Type_get_true_extent_c(
        datatype: DatatypeHandle, true_lb: *mut i64, true_extent: *mut i64
    ) -> c_int
        => call(Scope::World) datatype::type_get_true_extent(datatype, true_lb, true_extent);
    fn MPI_Type_get_true_extent_x PMPI_Type_get_true_extent_x(
        datatype: DatatypeHandle, true_lb: *mut i64, true_extent: *mut i64
    ) -> c_int
        => call(Scope::World) datatype::type_get_true_extent(datatype, true_lb, true_extent);
    fn MPI_Type_get_value_index PMPI_Type_get_value_index(
        value_type: DatatypeHandle, index_type: DatatypeHandle, pair_type: *mut DatatypeHandle
    ) -> c_int
        => call(Scope::World) datatype::type_get_value_index(value_type, index_type, pair_type);
    fn MPI_Type_indexed PMPI_Type_indexed(
        count: c_int, array_of_blocklengths: *const c_int, array_of_displacements: *const c_int,
        oldtype: DatatypeHandle, newtype: *mut DatatypeHandle
    ) -> c_int
        => call(Scope::World) construct::type_indexed(
            i64::from(count), Ints::Narrow(array_of_blocklengths), Ints::Narrow(array_of_displacements), oldtype,
            newtype, false
        );
    fn MPI_Type_indexed_c PMPI_Type_indexed_c(
        count: i64, array_of_blocklengths: *const i64, array_of_displacements: *const i64, oldtype: DatatypeHandle,
        newtype: *mut DatatypeHandle
    ) -> c_int
        => call(Scope::World) construct::type_indexed(
            count, Ints::Wide(array_of_blocklengths), Ints::Wide(array_of_displacements), oldtype, newtype, true
        );
    fn MPI_Type_match_size PMPI_Type_match_size(typeclass: c_int, size: c_int, datatype: *mut DatatypeHandle) -> c_int
        => call(Scope::World) datatype::type_match_size(typeclass, size, datatype);
    fn MPI_Type_set_name PMPI_Type_set_name(datatype: DatatypeHandle, type_name: *const c_char) -> c_int
        => call(Scope::World) datatype::type_set_name(datatype, type_name);
    fn MPI_Type_size PMPI_Type_size(datatype: DatatypeHandle, size: *mut c_int) -> c_int
        => call(Scope::World) datatype::type_size(datatype, IntsOut::Narrow(size));
    fn MPI_Type_size_c PMPI_Type_size_c(datatype: DatatypeHandle, size: *mut i64) -> c_int
        => call(Scope::World) datatype::type_size(datatype, IntsOut::Wide(size));
    fn MPI_Type_size_x PMPI_Type_size_x(datatype: DatatypeHandle, size: *mut i64) -> c_int
        => call(Scope::World) datatype::type_size(datatype, IntsOut::Wide(size));
    fn MPI_Type_toint PMPI_Type_toint(datatype: DatatypeHandle) -> c_int
        => plain() fortran::to_int(datatype);
    fn MPI_Type_vector PMPI_Type_vector(
        count: c_int, blocklength: c_int, stride: c_int, oldtype: DatatypeHandle, newtype: *mut DatatypeHandle
    ) -> c_int
        => call(Scope::World) construct::type_vector(
            i64::from(count), i64::from(blocklength), i64::from(stride), oldtype, newtype, false
        );
    fn MPI_Type_vector_c PMPI_Type_vector_c(
        count: i64, blocklength: i64, stride: i64, oldtype: DatatypeHandle, newtype: *mut DatatypeHandle
    ) -> c_int
        => call(Scope::World) construct::type_vector(count, blocklength, stride, oldtype, newtype, true);
    fn MPI_Unpack PMPI_Unpack(
        inbuf: *const c_void, insize: c_int, position: *mut c_int, outbuf: *mut c_void, outcount: c_int,
        datatype: DatatypeHandle, comm: CommHandle
    ) -> c_int
        => call(Scope::Comm(comm)) pack::unpack(
            inbuf, i64::from(insize), IntsOut::Narrow(position), outbuf, i64::from(outcount), datatype, comm
        );
    fn MPI_Unpack_c PMPI_Unpack_c(
        inbuf: *const c_void, insize: i64, position: *mut i64, outbuf: *mut c_void, outcount: i64,
        datatype: DatatypeHandle, comm: CommHandle
    ) -> c_int
        => call(Scope::Comm(comm)) pack::unpack(
            inbuf, insize, IntsOut::Wide(position), outbuf, outcount, datatype, comm
        );
    fn MPI_Unpack_external PMPI_Unpack_external(
        datarep: *const c_char, inbuf: *const c_void, insize: i64, position: *mut i64, outbuf: *mut c_void,
        outcount: c_int, datatype: DatatypeHandle
    ) -> c_int
        => call(Scope::World) pack::unpack_external(
            datarep, inbuf, insize, position, outbuf, i64::from(outcount), datatype
        );
    fn MPI_Unpack_external_c PMPI_Unpack_external_c(
        datarep: *const c_char, inbuf: *const c_void, insize: i64, position: *mut i64, outbuf: *mut c_void,
        outcount: i64, datatype: DatatypeHandle
    ) -> c_int
        => call(Scope::World) pack::unpack_external(datarep, inbuf, insize, position, outbuf, outcount, datatype);
}
