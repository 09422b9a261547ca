//! The functions of the chapter `topo`. Generated from `abi/*.tsv` by `cargo xtask abi`: do not edit.

use super::*;

exports! {
    fn MPI_Cart_coords PMPI_Cart_coords(comm: CommHandle, rank: c_int, maxdims: c_int, coords: *mut c_int) -> c_int
        => unsupported(Scope::Comm(comm));
    fn MPI_Cart_create PMPI_Cart_create(
        comm_old: CommHandle, ndims: c_int, dims: *const c_int, periods: *const c_int, reorder: c_int,
        comm_cart: *mut CommHandle
    ) -> c_int
        => unsupported(Scope::Comm(comm_old));
    fn MPI_Cart_get PMPI_Cart_get(
        comm: CommHandle, maxdims: c_int, dims: *mut c_int, periods: *mut c_int, coords: *mut c_int
    ) -> c_int
        => unsupported(Scope::Comm(comm));
    fn MPI_Cart_map PMPI_Cart_map(
        comm: CommHandle, ndims: c_int, dims: *const c_int, periods: *const c_int, newrank: *mut c_int
    ) -> c_int
        => unsupported(Scope::Comm(comm));
    fn MPI_Cart_rank PMPI_Cart_rank(comm: CommHandle, coords: *const c_int, rank: *mut c_int) -> c_int
        => unsupported(Scope::Comm(comm));
    fn MPI_Cart_shift PMPI_Cart_shift(
        comm: CommHandle, direction: c_int, disp: c_int, rank_source: *mut c_int, rank_dest: *mut c_int
    ) -> c_int
        => unsupported(Scope::Comm(comm));
    fn MPI_Cart_sub PMPI_Cart_sub(comm: CommHandle, remain_dims: *const c_int, newcomm: *mut CommHandle) -> c_int
        => unsupported(Scope::Comm(comm));
    fn MPI_Cartdim_get PMPI_Cartdim_get(comm: CommHandle, ndims: *mut c_int) -> c_int
        => unsupported(Scope::Comm(comm));
    fn MPI_Dims_create PMPI_Dims_create(nnodes: c_int, ndims: c_int, dims: *mut c_int) -> c_int
        => call(Scope::World) topo::dims_create(nnodes, ndims, dims);
    fn MPI_Dist_graph_create PMPI_Dist_graph_create(
        comm_old: CommHandle, n: c_int, sources: *const c_int, degrees: *const c_int, destinations: *const c_int,
        weights: *const c_int, info: InfoHandle, reorder: c_int, comm_dist_graph: *mut CommHandle
    ) -> c_int
        => unsupported(Scope::Comm(comm_old));
    fn MPI_Dist_graph_create_adjacent PMPI_Dist_graph_create_adjacent(
        comm_old: CommHandle, indegree: c_int, sources: *const c_int, sourceweights: *const c_int, outdegree: c_int,
        destinations: *const c_int, destweights: *const c_int, info: InfoHandle, reorder: c_int,
        comm_dist_graph: *mut CommHandle
    ) -> c_int
        => unsupported(Scope::Comm(comm_old));
    fn MPI_Dist_graph_neighbors PMPI_Dist_graph_neighbors(
        comm: CommHandle, maxindegree: c_int, sources: *mut c_int, sourceweights: *mut c_int, maxoutdegree: c_int,
        destinations: *mut c_int, destweights: *mut c_int
    ) -> c_int
        => unsupported(Scope::Comm(comm));
    fn MPI_Dist_graph_neighbors_count PMPI_Dist_graph_neighbors_count(
        comm: CommHandle, indegree: *mut c_int, outdegree: *mut c_int, weighted: *mut c_int
    ) -> c_int
        => unsupported(Scope::Comm(comm));
    fn MPI_Graph_create PMPI_Graph_create(
        comm_old: CommHandle, nnodes: c_int, indx: *const c_int, edges: *const c_int, reorder: c_int,
        comm_graph: *mut CommHandle
    ) -> c_int
        => unsupported(Scope::Comm(comm_old));
    fn MPI_Graph_get PMPI_Graph_get(
        comm: CommHandle, maxindex: c_int, maxedges: c_int, indx: *mut c_int, edges: *mut c_int
    ) -> c_int
        => unsupported(Scope::Comm(comm));
    fn MPI_Graph_map PMPI_Graph_map(
        comm: CommHandle, nnodes: c_int, indx: *const c_int, edges: *const c_int, newrank: *mut c_int
    ) -> c_int
        => unsupported(Scope::Comm(comm));
    fn MPI_Graph_neighbors PMPI_Graph_neighbors(
        comm: CommHandle, rank: c_int, maxneighbors: c_int, neighbors: *mut c_int
    ) -> c_int
        => unsupported(Scope::Comm(comm));
    fn MPI_Graph_neighbors_count PMPI_Graph_neighbors_count(
        comm: CommHandle, rank: c_int, nneighbors: *mut c_int
    ) -> c_int
        => unsupported(Scope::Comm(comm));
    fn MPI_Graphdims_get PMPI_Graphdims_get(comm: CommHandle, nnodes: *mut c_int, nedges: *mut c_int) -> c_int
        => unsupported(Scope::Comm(comm));
    fn MPI_Topo_test PMPI_Topo_test(comm: CommHandle, status: *mut c_int) -> c_int
        => call(Scope::Comm(comm)) topo::topo_test(comm, status);
}
