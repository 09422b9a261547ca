//! The functions of the chapter `io`. Generated from `abi/*.tsv` by `cargo xtask abi`: do not edit.

use super::*;

exports! {
    fn MPI_File_call_errhandler PMPI_File_call_errhandler(fh: FileHandle, errorcode: c_int) -> c_int
        => call(Scope::File(fh)) errhandler::file_call_errhandler(fh, errorcode);
    fn MPI_File_close PMPI_File_close(fh: *mut FileHandle) -> c_int
        => unsupported(Scope::File(FileHandle::NULL));
    fn MPI_File_create_errhandler PMPI_File_create_errhandler(
        file_errhandler_fn: *const c_void, errhandler: *mut ErrhandlerHandle
    ) -> c_int
        => call(Scope::World) errhandler::file_create_errhandler(file_errhandler_fn, errhandler);
    fn MPI_File_delete PMPI_File_delete(filename: *const c_char, info: InfoHandle) -> c_int
        => unsupported(Scope::File(FileHandle::NULL));
    fn MPI_File_fromint PMPI_File_fromint(file: c_int) -> FileHandle
        => plain() fortran::from_int(file);
    fn MPI_File_get_amode PMPI_File_get_amode(fh: FileHandle, amode: *mut c_int) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_get_atomicity PMPI_File_get_atomicity(fh: FileHandle, flag: *mut c_int) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_get_byte_offset PMPI_File_get_byte_offset(fh: FileHandle, offset: i64, disp: *mut i64) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_get_errhandler PMPI_File_get_errhandler(file: FileHandle, errhandler: *mut ErrhandlerHandle) -> c_int
        => call(Scope::File(file)) errhandler::file_get_errhandler(file, errhandler);
    fn MPI_File_get_group PMPI_File_get_group(fh: FileHandle, group: *mut GroupHandle) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_get_info PMPI_File_get_info(fh: FileHandle, info_used: *mut InfoHandle) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_get_position PMPI_File_get_position(fh: FileHandle, offset: *mut i64) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_get_position_shared PMPI_File_get_position_shared(fh: FileHandle, offset: *mut i64) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_get_size PMPI_File_get_size(fh: FileHandle, size: *mut i64) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_get_type_extent PMPI_File_get_type_extent(
        fh: FileHandle, datatype: DatatypeHandle, extent: *mut i64
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_get_type_extent_c PMPI_File_get_type_extent_c(
        fh: FileHandle, datatype: DatatypeHandle, extent: *mut i64
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_get_view PMPI_File_get_view(
        fh: FileHandle, disp: *mut i64, etype: *mut DatatypeHandle, filetype: *mut DatatypeHandle,
        datarep: *mut c_char
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_iread PMPI_File_iread(
        fh: FileHandle, buf: *mut c_void, count: c_int, datatype: DatatypeHandle, request: *mut RequestHandle
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_iread_all PMPI_File_iread_all(
        fh: FileHandle, buf: *mut c_void, count: c_int, datatype: DatatypeHandle, request: *mut RequestHandle
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_iread_all_c PMPI_File_iread_all_c(
        fh: FileHandle, buf: *mut c_void, count: i64, datatype: DatatypeHandle, request: *mut RequestHandle
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_iread_at PMPI_File_iread_at(
        fh: FileHandle, offset: i64, buf: *mut c_void, count: c_int, datatype: DatatypeHandle,
        request: *mut RequestHandle
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_iread_at_all PMPI_File_iread_at_all(
        fh: FileHandle, offset: i64, buf: *mut c_void, count: c_int, datatype: DatatypeHandle,
        request: *mut RequestHandle
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_iread_at_all_c PMPI_File_iread_at_all_c(
        fh: FileHandle, offset: i64, buf: *mut c_void, count: i64, datatype: DatatypeHandle,
        request: *mut RequestHandle
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_iread_at_c PMPI_File_iread_at_c(
        fh: FileHandle, offset: i64, buf: *mut c_void, count: i64, datatype: DatatypeHandle,
        request: *mut RequestHandle
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_iread_c PMPI_File_iread_c(
        fh: FileHandle, buf: *mut c_void, count: i64, datatype: DatatypeHandle, request: *mut RequestHandle
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_iread_shared PMPI_File_iread_shared(
        fh: FileHandle, buf: *mut c_void, count: c_int, datatype: DatatypeHandle, request: *mut RequestHandle
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_iread_shared_c PMPI_File_iread_shared_c(
        fh: FileHandle, buf: *mut c_void, count: i64, datatype: DatatypeHandle, request: *mut RequestHandle
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_iwrite PMPI_File_iwrite(
        fh: FileHandle, buf: *const c_void, count: c_int, datatype: DatatypeHandle, request: *mut RequestHandle
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_iwrite_all PMPI_File_iwrite_all(
        fh: FileHandle, buf: *const c_void, count: c_int, datatype: DatatypeHandle, request: *mut RequestHandle
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_iwrite_all_c PMPI_File_iwrite_all_c(
        fh: FileHandle, buf: *const c_void, count: i64, datatype: DatatypeHandle, request: *mut RequestHandle
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_iwrite_at PMPI_File_iwrite_at(
        fh: FileHandle, offset: i64, buf: *const c_void, count: c_int, datatype: DatatypeHandle,
        request: *mut RequestHandle
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_iwrite_at_all PMPI_File_iwrite_at_all(
        fh: FileHandle, offset: i64, buf: *const c_void, count: c_int, datatype: DatatypeHandle,
        request: *mut RequestHandle
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_iwrite_at_all_c PMPI_File_iwrite_at_all_c(
        fh: FileHandle, offset: i64, buf: *const c_void, count: i64, datatype: DatatypeHandle,
        request: *mut RequestHandle
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_iwrite_at_c PMPI_File_iwrite_at_c(
        fh: FileHandle, offset: i64, buf: *const c_void, count: i64, datatype: DatatypeHandle,
        request: *mut RequestHandle
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_iwrite_c PMPI_File_iwrite_c(
        fh: FileHandle, buf: *const c_void, count: i64, datatype: DatatypeHandle, request: *mut RequestHandle
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_iwrite_shared PMPI_File_iwrite_shared(
        fh: FileHandle, buf: *const c_void, count: c_int, datatype: DatatypeHandle, request: *mut RequestHandle
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_iwrite_shared_c PMPI_File_iwrite_shared_c(
        fh: FileHandle, buf: *const c_void, count: i64, datatype: DatatypeHandle, request: *mut RequestHandle
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_open PMPI_File_open(
        comm: CommHandle, filename: *const c_char, amode: c_int, info: InfoHandle, fh: *mut FileHandle
    ) -> c_int
        => unsupported(Scope::File(FileHandle::NULL));
    fn MPI_File_preallocate PMPI_File_preallocate(fh: FileHandle, size: i64) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_read PMPI_File_read(
        fh: FileHandle, buf: *mut c_void, count: c_int, datatype: DatatypeHandle, status: *mut Status
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_read_all PMPI_File_read_all(
        fh: FileHandle, buf: *mut c_void, count: c_int, datatype: DatatypeHandle, status: *mut Status
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_read_all_begin PMPI_File_read_all_begin(
        fh: FileHandle, buf: *mut c_void, count: c_int, datatype: DatatypeHandle
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_read_all_begin_c PMPI_File_read_all_begin_c(
        fh: FileHandle, buf: *mut c_void, count: i64, datatype: DatatypeHandle
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_read_all_c PMPI_File_read_all_c(
        fh: FileHandle, buf: *mut c_void, count: i64, datatype: DatatypeHandle, status: *mut Status
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_read_all_end PMPI_File_read_all_end(fh: FileHandle, buf: *mut c_void, status: *mut Status) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_read_at PMPI_File_read_at(
        fh: FileHandle, offset: i64, buf: *mut c_void, count: c_int, datatype: DatatypeHandle, status: *mut Status
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_read_at_all PMPI_File_read_at_all(
        fh: FileHandle, offset: i64, buf: *mut c_void, count: c_int, datatype: DatatypeHandle, status: *mut Status
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_read_at_all_begin PMPI_File_read_at_all_begin(
        fh: FileHandle, offset: i64, buf: *mut c_void, count: c_int, datatype: DatatypeHandle
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_read_at_all_begin_c PMPI_File_read_at_all_begin_c(
        fh: FileHandle, offset: i64, buf: *mut c_void, count: i64, datatype: DatatypeHandle
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_read_at_all_c PMPI_File_read_at_all_c(
        fh: FileHandle, offset: i64, buf: *mut c_void, count: i64, datatype: DatatypeHandle, status: *mut Status
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_read_at_all_end PMPI_File_read_at_all_end(
        fh: FileHandle, buf: *mut c_void, status: *mut Status
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_read_at_c PMPI_File_read_at_c(
        fh: FileHandle, offset: i64, buf: *mut c_void, count: i64, datatype: DatatypeHandle, status: *mut Status
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_read_c PMPI_File_read_c(
        fh: FileHandle, buf: *mut c_void, count: i64, datatype: DatatypeHandle, status: *mut Status
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_read_ordered PMPI_File_read_ordered(
        fh: FileHandle, buf: *mut c_void, count: c_int, datatype: DatatypeHandle, status: *mut Status
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_read_ordered_begin PMPI_File_read_ordered_begin(
        fh: FileHandle, buf: *mut c_void, count: c_int, datatype: DatatypeHandle
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_read_ordered_begin_c PMPI_File_read_ordered_begin_c(
        fh: FileHandle, buf: *mut c_void, count: i64, datatype: DatatypeHandle
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_read_ordered_c PMPI_File_read_ordered_c(
        fh: FileHandle, buf: *mut c_void, count: i64, datatype: DatatypeHandle, status: *mut Status
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_read_ordered_end PMPI_File_read_ordered_end(
        fh: FileHandle, buf: *mut c_void, status: *mut Status
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_read_shared PMPI_File_read_shared(
        fh: FileHandle, buf: *mut c_void, count: c_int, datatype: DatatypeHandle, status: *mut Status
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_read_shared_c PMPI_File_read_shared_c(
        fh: FileHandle, buf: *mut c_void, count: i64, datatype: DatatypeHandle, status: *mut Status
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_seek PMPI_File_seek(fh: FileHandle, offset: i64, whence: c_int) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_seek_shared PMPI_File_seek_shared(fh: FileHandle, offset: i64, whence: c_int) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_set_atomicity PMPI_File_set_atomicity(fh: FileHandle, flag: c_int) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_set_errhandler PMPI_File_set_errhandler(file: FileHandle, errhandler: ErrhandlerHandle) -> c_int
        => call(Scope::File(file)) errhandler::file_set_errhandler(file, errhandler);
    fn MPI_File_set_info PMPI_File_set_info(fh: FileHandle, info: InfoHandle) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_set_size PMPI_File_set_size(fh: FileHandle, size: i64) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_set_view PMPI_File_set_view(
        fh: FileHandle, disp: i64, etype: DatatypeHandle, filetype: DatatypeHandle, datarep: *const c_char,
        info: InfoHandle
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_sync PMPI_File_sync(fh: FileHandle) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_toint PMPI_File_toint(file: FileHandle) -> c_int
        => plain() fortran::to_int(file);
    fn MPI_File_write PMPI_File_write(
        fh: FileHandle, buf: *const c_void, count: c_int, datatype: DatatypeHandle, status: *mut Status
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_write_all PMPI_File_write_all(
        fh: FileHandle, buf: *const c_void, count: c_int, datatype: DatatypeHandle, status: *mut Status
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_write_all_begin PMPI_File_write_all_begin(
        fh: FileHandle, buf: *const c_void, count: c_int, datatype: DatatypeHandle
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_write_all_begin_c PMPI_File_write_all_begin_c(
        fh: FileHandle, buf: *const c_void, count: i64, datatype: DatatypeHandle
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_write_all_c PMPI_File_write_all_c(
        fh: FileHandle, buf: *const c_void, count: i64, datatype: DatatypeHandle, status: *mut Status
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_write_all_end PMPI_File_write_all_end(fh: FileHandle, buf: *const c_void, status: *mut Status) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_write_at PMPI_File_write_at(
        fh: FileHandle, offset: i64, buf: *const c_void, count: c_int, datatype: DatatypeHandle, status: *mut Status
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_write_at_all PMPI_File_write_at_all(
        fh: FileHandle, offset: i64, buf: *const c_void, count: c_int, datatype: DatatypeHandle, status: *mut Status
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_write_at_all_begin PMPI_File_write_at_all_begin(
        fh: FileHandle, offset: i64, buf: *const c_void, count: c_int, datatype: DatatypeHandle
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_write_at_all_begin_c PMPI_File_write_at_all_begin_c(
        fh: FileHandle, offset: i64, buf: *const c_void, count: i64, datatype: DatatypeHandle
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_write_at_all_c PMPI_File_write_at_all_c(
        fh: FileHandle, offset: i64, buf: *const c_void, count: i64, datatype: DatatypeHandle, status: *mut Status
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_write_at_all_end PMPI_File_write_at_all_end(
        fh: FileHandle, buf: *const c_void, status: *mut Status
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_write_at_c PMPI_File_write_at_c(
        fh: FileHandle, offset: i64, buf: *const c_void, count: i64, datatype: DatatypeHandle, status: *mut Status
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_write_c PMPI_File_write_c(
        fh: FileHandle, buf: *const c_void, count: i64, datatype: DatatypeHandle, status: *mut Status
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_write_ordered PMPI_File_write_ordered(
        fh: FileHandle, buf: *const c_void, count: c_int, datatype: DatatypeHandle, status: *mut Status
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_write_ordered_begin PMPI_File_write_ordered_begin(
        fh: FileHandle, buf: *const c_void, count: c_int, datatype: DatatypeHandle
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_write_ordered_begin_c PMPI_File_write_ordered_begin_c(
        fh: FileHandle, buf: *const c_void, count: i64, datatype: DatatypeHandle
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_write_ordered_c PMPI_File_write_ordered_c(
        fh: FileHandle, buf: *const c_void, count: i64, datatype: DatatypeHandle, status: *mut Status
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_write_ordered_end PMPI_File_write_ordered_end(
        fh: FileHandle, buf: *const c_void, status: *mut Status
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_write_shared PMPI_File_write_shared(
        fh: FileHandle, buf: *const c_void, count: c_int, datatype: DatatypeHandle, status: *mut Status
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_File_write_shared_c PMPI_File_write_shared_c(
        fh: FileHandle, buf: *const c_void, count: i64, datatype: DatatypeHandle, status: *mut Status
    ) -> c_int
        => unsupported(Scope::File(fh));
    fn MPI_Register_datarep PMPI_Register_datarep(
        datarep: *const c_char, read_conversion_fn: *const c_void, write_conversion_fn: *const c_void,
        dtype_file_extent_fn: *const c_void, extra_state: *mut c_void
    ) -> c_int
        => unsupported(Scope::File(FileHandle::NULL));
    fn MPI_Register_datarep_c PMPI_Register_datarep_c(
        datarep: *const c_char, read_conversion_fn: *const c_void, write_conversion_fn: *const c_void,
        dtype_file_extent_fn: *const c_void, extra_state: *mut c_void
    ) -> c_int
        => unsupported(Scope::File(FileHandle::NULL));
}
