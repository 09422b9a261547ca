//! The functions of the chapter `group`. Generated from `abi/*.tsv` by `cargo xtask abi`: do not edit.

use super::*;

exports! {
    fn MPI_Group_compare PMPI_Group_compare(group1: GroupHandle, group2: GroupHandle, result: *mut c_int) -> c_int
        => call(Scope::World) group::group_compare(group1, group2, result);
    fn MPI_Group_difference PMPI_Group_difference(
        group1: GroupHandle, group2: GroupHandle, newgroup: *mut GroupHandle
    ) -> c_int
        => call(Scope::World) group::group_difference(group1, group2, newgroup);
    fn MPI_Group_excl PMPI_Group_excl(
        group: GroupHandle, n: c_int, ranks: *const c_int, newgroup: *mut GroupHandle
    ) -> c_int
        => call(Scope::World) group::group_excl(group, n, ranks, newgroup);
    fn MPI_Group_free PMPI_Group_free(group: *mut GroupHandle) -> c_int
        => call(Scope::World) group::group_free(group);
    fn MPI_Group_fromint PMPI_Group_fromint(group: c_int) -> GroupHandle
        => plain() fortran::from_int(group);
    fn MPI_Group_incl PMPI_Group_incl(
        group: GroupHandle, n: c_int, ranks: *const c_int, newgroup: *mut GroupHandle
    ) -> c_int
        => call(Scope::World) group::group_incl(group, n, ranks, newgroup);
    fn MPI_Group_intersection PMPI_Group_intersection(
        group1: GroupHandle, group2: GroupHandle, newgroup: *mut GroupHandle
    ) -> c_int
        => call(Scope::World) group::group_intersection(group1, group2, newgroup);
    fn MPI_Group_range_excl PMPI_Group_range_excl(
        group: GroupHandle, n: c_int, ranges: *const [c_int; 3], newgroup: *mut GroupHandle
    ) -> c_int
        => call(Scope::World) group::group_range_excl(group, n, ranges, newgroup);
    fn MPI_Group_range_incl PMPI_Group_range_incl(
        group: GroupHandle, n: c_int, ranges: *const [c_int; 3], newgroup: *mut GroupHandle
    ) -> c_int
        => call(Scope::World) group::group_range_incl(group, n, ranges, newgroup);
    fn MPI_Group_rank PMPI_Group_rank(group: GroupHandle, rank: *mut c_int) -> c_int
        => call(Scope::World) group::group_rank(group, rank);
    fn MPI_Group_size PMPI_Group_size(group: GroupHandle, size: *mut c_int) -> c_int
        => call(Scope::World) group::group_size(group, size);
    fn MPI_Group_toint PMPI_Group_toint(group: GroupHandle) -> c_int
        => plain() fortran::to_int(group);
    fn MPI_Group_translate_ranks PMPI_Group_translate_ranks(
        group1: GroupHandle, n: c_int, ranks1: *const c_int, group2: GroupHandle, ranks2: *mut c_int
    ) -> c_int
        => call(Scope::World) group::group_translate_ranks(group1, n, ranks1, group2, ranks2);
    fn MPI_Group_union PMPI_Group_union(group1: GroupHandle, group2: GroupHandle, newgroup: *mut GroupHandle) -> c_int
        => call(Scope::World) group::group_union(group1, group2, newgroup);
}
