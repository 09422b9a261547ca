//! The functions of the chapter `rma`. Generated from `abi/*.tsv` by `cargo xtask abi`: do not edit.

use super::*;

exports! {
    fn MPI_Accumulate PMPI_Accumulate(
        origin_addr: *const c_void, origin_count: c_int, origin_datatype: DatatypeHandle, target_rank: c_int,
        target_disp: i64, target_count: c_int, target_datatype: DatatypeHandle, op: OpHandle, win: WinHandle
    ) -> c_int
        => call(Scope::Win(win)) rma::accumulate(
            origin_addr, i64::from(origin_count), origin_datatype, target_rank, target_disp, i64::from(target_count),
            target_datatype, op, win
        );
    fn MPI_Accumulate_c PMPI_Accumulate_c(
        origin_addr: *const c_void, origin_count: i64, origin_datatype: DatatypeHandle, target_rank: c_int,
        target_disp: i64, target_count: i64, target_datatype: DatatypeHandle, op: OpHandle, win: WinHandle
    ) -> c_int
        => call(Scope::Win(win)) rma::accumulate(
            origin_addr, origin_count, origin_datatype, target_rank, target_disp, target_count, target_datatype, op,
            win
        );
    fn MPI_Compare_and_swap PMPI_Compare_and_swap(
        origin_addr: *const c_void, compare_addr: *const c_void, result_addr: *mut c_void, datatype: DatatypeHandle,
        target_rank: c_int, target_disp: i64, win: WinHandle
    ) -> c_int
        => call(Scope::Win(win)) rma::compare_and_swap(
            origin_addr, compare_addr, result_addr, datatype, target_rank, target_disp, win
        );
    fn MPI_Fetch_and_op PMPI_Fetch_and_op(
        origin_addr: *const c_void, result_addr: *mut c_void, datatype: DatatypeHandle, target_rank: c_int,
        target_disp: i64, op: OpHandle, win: WinHandle
    ) -> c_int
        => call(Scope::Win(win)) rma::fetch_and_op(
            origin_addr, result_addr, datatype, target_rank, target_disp, op, win
        );
    fn MPI_Get PMPI_Get(
        origin_addr: *mut c_void, origin_count: c_int, origin_datatype: DatatypeHandle, target_rank: c_int,
        target_disp: i64, target_count: c_int, target_datatype: DatatypeHandle, win: WinHandle
    ) -> c_int
        => call(Scope::Win(win)) rma::get(
            origin_addr, i64::from(origin_count), origin_datatype, target_rank, target_disp, i64::from(target_count),
            target_datatype, win
        );
    fn MPI_Get_accumulate PMPI_Get_accumulate(
        origin_addr: *const c_void, origin_count: c_int, origin_datatype: DatatypeHandle, result_addr: *mut c_void,
        result_count: c_int, result_datatype: DatatypeHandle, target_rank: c_int, target_disp: i64,
        target_count: c_int, target_datatype: DatatypeHandle, op: OpHandle, win: WinHandle
    ) -> c_int
        => call(Scope::Win(win)) rma::get_accumulate(
            origin_addr, i64::from(origin_count), origin_datatype, result_addr, i64::from(result_count),
            result_datatype, target_rank, target_disp, i64::from(target_count), target_datatype, op, win
        );
    fn MPI_Get_accumulate_c PMPI_Get_accumulate_c(
        origin_addr: *const c_void, origin_count: i64, origin_datatype: DatatypeHandle, result_addr: *mut c_void,
        result_count: i64, result_datatype: DatatypeHandle, target_rank: c_int, target_disp: i64, target_count: i64,
        target_datatype: DatatypeHandle, op: OpHandle, win: WinHandle
    ) -> c_int
        => call(Scope::Win(win)) rma::get_accumulate(
            origin_addr, origin_count, origin_datatype, result_addr, result_count, result_datatype, target_rank,
            target_disp, target_count, target_datatype, op, win
        );
    fn MPI_Get_c PMPI_Get_c(
        origin_addr: *mut c_void, origin_count: i64, origin_datatype: DatatypeHandle, target_rank: c_int,
        target_disp: i64, target_count: i64, target_datatype: DatatypeHandle, win: WinHandle
    ) -> c_int
        => call(Scope::Win(win)) rma::get(
            origin_addr, origin_count, origin_datatype, target_rank, target_disp, target_count, target_datatype, win
        );
    fn MPI_Put PMPI_Put(
        origin_addr: *const c_void, origin_count: c_int, origin_datatype: DatatypeHandle, target_rank: c_int,
        target_disp: i64, target_count: c_int, target_datatype: DatatypeHandle, win: WinHandle
    ) -> c_int
        => call(Scope::Win(win)) rma::put(
            origin_addr, i64::from(origin_count), origin_datatype, target_rank, target_disp, i64::from(target_count),
            target_datatype, win
        );
    fn MPI_Put_c PMPI_Put_c(
        origin_addr: *const c_void, origin_count: i64, origin_datatype: DatatypeHandle, target_rank: c_int,
        target_disp: i64, target_count: i64, target_datatype: DatatypeHandle, win: WinHandle
    ) -> c_int
        => call(Scope::Win(win)) rma::put(
            origin_addr, origin_count, origin_datatype, target_rank, target_disp, target_count, target_datatype, win
        );
    fn MPI_Raccumulate PMPI_Raccumulate(
        origin_addr: *const c_void, origin_count: c_int, origin_datatype: DatatypeHandle, target_rank: c_int,
        target_disp: i64, target_count: c_int, target_datatype: DatatypeHandle, op: OpHandle, win: WinHandle,
        request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Win(win)) rma::raccumulate(
            origin_addr, i64::from(origin_count), origin_datatype, target_rank, target_disp, i64::from(target_count),
            target_datatype, op, win, request
        );
    fn MPI_Raccumulate_c PMPI_Raccumulate_c(
        origin_addr: *const c_void, origin_count: i64, origin_datatype: DatatypeHandle, target_rank: c_int,
        target_disp: i64, target_count: i64, target_datatype: DatatypeHandle, op: OpHandle, win: WinHandle,
        request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Win(win)) rma::raccumulate(
            origin_addr, origin_count, origin_datatype, target_rank, target_disp, target_count, target_datatype, op,
            win, request
        );
    fn MPI_Rget PMPI_Rget(
        origin_addr: *mut c_void, origin_count: c_int, origin_datatype: DatatypeHandle, target_rank: c_int,
        target_disp: i64, target_count: c_int, target_datatype: DatatypeHandle, win: WinHandle,
        request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Win(win)) rma::rget(
            origin_addr, i64::from(origin_count), origin_datatype, target_rank, target_disp, i64::from(target_count),
            target_datatype, win, request
        );
    fn MPI_Rget_accumulate PMPI_Rget_accumulate(
        origin_addr: *const c_void, origin_count: c_int, origin_datatype: DatatypeHandle, result_addr: *mut c_void,
        result_count: c_int, result_datatype: DatatypeHandle, target_rank: c_int, target_disp: i64,
        target_count: c_int, target_datatype: DatatypeHandle, op: OpHandle, win: WinHandle,
        request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Win(win)) rma::rget_accumulate(
            origin_addr, i64::from(origin_count), origin_datatype, result_addr, i64::from(result_count),
            result_datatype, target_rank, target_disp, i64::from(target_count), target_datatype, op, win, request
        );
    fn MPI_Rget_accumulate_c PMPI_Rget_accumulate_c(
        origin_addr: *const c_void, origin_count: i64, origin_datatype: DatatypeHandle, result_addr: *mut c_void,
        result_count: i64, result_datatype: DatatypeHandle, target_rank: c_int, target_disp: i64, target_count: i64,
        target_datatype: DatatypeHandle, op: OpHandle, win: WinHandle, request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Win(win)) rma::rget_accumulate(
            origin_addr, origin_count, origin_datatype, result_addr, result_count, result_datatype, target_rank,
            target_disp, target_count, target_datatype, op, win, request
        );
    fn MPI_Rget_c PMPI_Rget_c(
        origin_addr: *mut c_void, origin_count: i64, origin_datatype: DatatypeHandle, target_rank: c_int,
        target_disp: i64, target_count: i64, target_datatype: DatatypeHandle, win: WinHandle,
        request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Win(win)) rma::rget(
            origin_addr, origin_count, origin_datatype, target_rank, target_disp, target_count, target_datatype, win,
            request
        );
    fn MPI_Rput PMPI_Rput(
        origin_addr: *const c_void, origin_count: c_int, origin_datatype: DatatypeHandle, target_rank: c_int,
        target_disp: i64, target_count: c_int, target_datatype: DatatypeHandle, win: WinHandle,
        request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Win(win)) rma::rput(
            origin_addr, i64::from(origin_count), origin_datatype, target_rank, target_disp, i64::from(target_count),
            target_datatype, win, request
        );
    fn MPI_Rput_c PMPI_Rput_c(
        origin_addr: *const c_void, origin_count: i64, origin_datatype: DatatypeHandle, target_rank: c_int,
        target_disp: i64, target_count: i64, target_datatype: DatatypeHandle, win: WinHandle,
        request: *mut RequestHandle
    ) -> c_int
        => call(Scope::Win(win)) rma::rput(
            origin_addr, origin_count, origin_datatype, target_rank, target_disp, target_count, target_datatype, win,
            request
        );
    fn MPI_Win_allocate PMPI_Win_allocate(
        size: i64, disp_unit: c_int, info: InfoHandle, comm: CommHandle, baseptr: *mut c_void, win: *mut WinHandle
    ) -> c_int
        => call(Scope::Comm(comm)) window::win_allocate(size, i64::from(disp_unit), info, comm, baseptr, win);
    fn MPI_Win_allocate_c PMPI_Win_allocate_c(
        size: i64, disp_unit: i64, info: InfoHandle, comm: CommHandle, baseptr: *mut c_void, win: *mut WinHandle
    ) -> c_int
        => call(Scope::Comm(comm)) window::win_allocate(size, disp_unit, info, comm, baseptr, win);
    fn MPI_Win_allocate_shared PMPI_Win_allocate_shared(
        size: i64, disp_unit: c_int, info: InfoHandle, comm: CommHandle, baseptr: *mut c_void, win: *mut WinHandle
    ) -> c_int
        => call(Scope::Comm(comm)) window::win_allocate_shared(size, i64::from(disp_unit), info, comm, baseptr, win);
    fn MPI_Win_allocate_shared_c PMPI_Win_allocate_shared_c(
        size: i64, disp_unit: i64, info: InfoHandle, comm: CommHandle, baseptr: *mut c_void, win: *mut WinHandle
    ) -> c_int
        => call(Scope::Comm(comm)) window::win_allocate_shared(size, disp_unit, info, comm, baseptr, win);
    fn MPI_Win_attach PMPI_Win_attach(win: WinHandle, base: *mut c_void, size: i64) -> c_int
        => call(Scope::Win(win)) window::win_attach(win, base, size);
    fn MPI_Win_complete PMPI_Win_complete(win: WinHandle) -> c_int
        => call(Scope::Win(win)) window::win_complete(win);
    fn MPI_Win_create PMPI_Win_create(
        base: *mut c_void, size: i64, disp_unit: c_int, info: InfoHandle, comm: CommHandle, win: *mut WinHandle
    ) -> c_int
        => call(Scope::Comm(comm)) window::win_create(base, size, i64::from(disp_unit), info, comm, win);
    fn MPI_Win_create_c PMPI_Win_create_c(
        base: *mut c_void, size: i64, disp_unit: i64, info: InfoHandle, comm: CommHandle, win: *mut WinHandle
    ) -> c_int
        => call(Scope::Comm(comm)) window::win_create(base, size, disp_unit, info, comm, win);
    fn MPI_Win_create_dynamic PMPI_Win_create_dynamic(info: InfoHandle, comm: CommHandle, win: *mut WinHandle) -> c_int
        => call(Scope::Comm(comm)) window::win_create_dynamic(info, comm, win);
    fn MPI_Win_detach PMPI_Win_detach(win: WinHandle, base: *const c_void) -> c_int
        => call(Scope::Win(win)) window::win_detach(win, base);
    fn MPI_Win_fence PMPI_Win_fence(assert: c_int, win: WinHandle) -> c_int
        => call(Scope::Win(win)) window::win_fence(assert, win);
    fn MPI_Win_flush PMPI_Win_flush(rank: c_int, win: WinHandle) -> c_int
        => call(Scope::Win(win)) window::win_flush(rank, win);
    fn MPI_Win_flush_all PMPI_Win_flush_all(win: WinHandle) -> c_int
        => call(Scope::Win(win)) window::win_flush_all(win);
    fn MPI_Win_flush_local PMPI_Win_flush_local(rank: c_int, win: WinHandle) -> c_int
        => call(Scope::Win(win)) window::win_flush_local(rank, win);
    fn MPI_Win_flush_local_all PMPI_Win_flush_local_all(win: WinHandle) -> c_int
        => call(Scope::Win(win)) window::win_flush_local_all(win);
    fn MPI_Win_free PMPI_Win_free(win: *mut WinHandle) -> c_int
        => call(Scope::World) window::win_free(win);
    fn MPI_Win_fromint PMPI_Win_fromint(win: c_int) -> WinHandle
        => plain() fortran::from_int(win);
    fn MPI_Win_get_group PMPI_Win_get_group(win: WinHandle, group: *mut GroupHandle) -> c_int
        => call(Scope::Win(win)) window::win_get_group(win, group);
    fn MPI_Win_lock PMPI_Win_lock(lock_type: c_int, rank: c_int, assert: c_int, win: WinHandle) -> c_int
        => call(Scope::Win(win)) window::win_lock(lock_type, rank, assert, win);
    fn MPI_Win_lock_all PMPI_Win_lock_all(assert: c_int, win: WinHandle) -> c_int
        => call(Scope::Win(win)) window::win_lock_all(assert, win);
    fn MPI_Win_post PMPI_Win_post(group: GroupHandle, assert: c_int, win: WinHandle) -> c_int
        => call(Scope::Win(win)) window::win_post(group, assert, win);
    fn MPI_Win_shared_query PMPI_Win_shared_query(
        win: WinHandle, rank: c_int, size: *mut i64, disp_unit: *mut c_int, baseptr: *mut c_void
    ) -> c_int
        => call(Scope::Win(win)) window::win_shared_query(win, rank, size, IntsOut::Narrow(disp_unit), baseptr);
    fn MPI_Win_shared_query_c PMPI_Win_shared_query_c(
        win: WinHandle, rank: c_int, size: *mut i64, disp_unit: *mut i64, baseptr: *mut c_void
    ) -> c_int
        => call(Scope::Win(win)) window::win_shared_query(win, rank, size, IntsOut::Wide(disp_unit), baseptr);
    fn MPI_Win_start PMPI_Win_start(group: GroupHandle, assert: c_int, win: WinHandle) -> c_int
        => call(Scope::Win(win)) window::win_start(group, assert, win);
    fn MPI_Win_sync PMPI_Win_sync(win: WinHandle) -> c_int
        => call(Scope::Win(win)) window::win_sync(win);
    fn MPI_Win_test PMPI_Win_test(win: WinHandle, flag: *mut c_int) -> c_int
        => call(Scope::Win(win)) window::win_test(win, flag);
    fn MPI_Win_toint PMPI_Win_toint(win: WinHandle) -> c_int
        => plain() fortran::to_int(win);
    fn MPI_Win_unlock PMPI_Win_unlock(rank: c_int, win: WinHandle) -> c_int
        => call(Scope::Win(win)) window::win_unlock(rank, win);
    fn MPI_Win_unlock_all PMPI_Win_unlock_all(win: WinHandle) -> c_int
        => call(Scope::Win(win)) window::win_unlock_all(win);
    fn MPI_Win_wait PMPI_Win_wait(win: WinHandle) -> c_int
        => call(Scope::Win(win)) window::win_wait(win);
}
