//! The functions of the chapter `topo`. Generated from `abi/*.tsv` by `cargo xtask abi`: do not edit.

use super::*;

exports! {
    fn MPI_Cart_coords PMPI_Cart_coords(comm: CommHandle, rank: c_int, maxdims: c_int, coords: *mut c_int) -> c_int
        => call(Scope::Comm(comm)) topo::cart_coords(comm, rank, maxdims, coords);
    fn MPI_Cart_create PMPI_Cart_create(
        comm_old: CommHandle, ndims: c_int, dims: *const c_int, periods: *const c_int, reorder: c_int,
        comm_cart: *mut CommHandle
    ) -> c_int
        => call(Scope::Comm(comm_old)) topo::cart_create(comm_old, ndims, dims, periods, reorder, comm_cart);
    fn MPI_Cart_get PMPI_Cart_get(
        comm: CommHandle, maxdims: c_int, dims: *mut c_int, periods: *mut c_int, coords: *mut c_int
    ) -> c_int
        => call(Scope::Comm(comm)) topo::cart_get(comm, maxdims, dims, periods, coords);
    fn MPI_Cart_map PMPI_Cart_map(
        comm: CommHandle, ndims: c_int, dims: *const c_int, periods: *const c_int, newrank: *mut c_int
    ) -> c_int
        => call(Scope::Comm(comm)) topo::cart_map(comm, ndims, dims, periods, newrank);
    fn MPI_Cart_rank PMPI_Cart_rank(comm: CommHandle, coords: *const c_int, rank: *mut c_int) -> c_int
        => call(Scope::Comm(comm)) topo::cart_rank(comm, coords, rank);
    fn MPI_Cart_shift PMPI_Cart_shift(
        comm: CommHandle, direction: c_int, disp: c_int, rank_source: *mut c_int, rank_dest: *mut c_int
    ) -> c_int
        => call(Scope::Comm(comm)) topo::cart_shift(comm, direction, disp, rank_source, rank_dest);
    fn MPI_Cart_sub PMPI_Cart_sub(comm: CommHandle, remain_dims: *const c_int, newcomm: *mut CommHandle) -> c_int
        => call(Scope::Comm(comm)) topo::cart_sub(comm, remain_dims, newcomm);
    fn MPI_Cartdim_get PMPI_Cartdim_get(comm: CommHandle, ndims: *mut c_int) -> c_int
        => call(Scope::Comm(comm)) topo::cartdim_get(comm, ndims);
    fn MPI_Dims_create PMPI_Dims_create(nnodes: c_int, ndims: c_int, dims: *mut c_int) -> c_int
        => call(Scope::World) topo::dims_create(nnodes, ndims, dims);
    fn MPI_Dist_graph_create PMPI_Dist_graph_create(
        comm_old: CommHandle, n: c_int, sources: *const c_int, degrees: *const c_int, destinations: *const c_int,
        weights: *const c_int, info: InfoHandle, reorder: c_int, comm_dist_graph: *mut CommHandle
    ) -> c_int
        => call(Scope::Comm(comm_old)) topo::dist_graph_create(
            comm_old, n, sources, degrees, destinations, weights, info, reorder, comm_dist_graph
        );
    fn MPI_Dist_graph_create_adjacent PMPI_Dist_graph_create_adjacent(
        comm_old: CommHandle, indegree: c_int, sources: *const c_int, sourceweights: *const c_int, outdegree: c_int,
        destinations: *const c_int, destweights: *const c_int, info: InfoHandle, reorder: c_int,
        comm_dist_graph: *mut CommHandle
    ) -> c_int
        => call(Scope::Comm(comm_old)) topo::dist_graph_create_adjacent(
            comm_old, indegree, sources, sourceweights, outdegree, destinations, destweights, info, reorder,
            comm_dist_graph
        );
    fn MPI_Dist_graph_neighbors PMPI_Dist_graph_neighbors(
        comm: CommHandle, maxindegree: c_int, sources: *mut c_int, sourceweights: *mut c_int, maxoutdegree: c_int,
        destinations: *mut c_int, destweights: *mut c_int
    ) -> c_int
        => call(Scope::Comm(comm)) topo::dist_graph_neighbors(
            comm, maxindegree, sources, sourceweights, maxoutdegree, destinations, destweights
        );
    fn MPI_Dist_graph_neighbors_count PMPI_Dist_graph_neighbors_count(
        comm: CommHandle, indegree: *mut c_int, outdegree: *mut c_int, weighted: *mut c_int
    ) -> c_int
        => call(Scope::Comm(comm)) topo::dist_graph_neighbors_count(comm, indegree, outdegree, weighted);
    fn MPI_Graph_create PMPI_Graph_create(
        comm_old: CommHandle, nnodes: c_int, indx: *const c_int, edges: *const c_int, reorder: c_int,
        comm_graph: *mut CommHandle
    ) -> c_int
        => call(Scope::Comm(comm_old)) topo::graph_create(comm_old, nnodes, indx, edges, reorder, comm_graph);
    fn MPI_Graph_get PMPI_Graph_get(
        comm: CommHandle, maxindex: c_int, maxedges: c_int, indx: *mut c_int, edges: *mut c_int
    ) -> c_int
        => call(Scope::Comm(comm)) topo::graph_get(comm, maxindex, maxedges, indx, edges);
    fn MPI_Graph_map PMPI_Graph_map(
        comm: CommHandle, nnodes: c_int, indx: *const c_int, edges: *const c_int, newrank: *mut c_int
    ) -> c_int
        => call(Scope::Comm(comm)) topo::graph_map(comm, nnodes, indx, edges, newrank);
    fn MPI_Graph_neighbors PMPI_Graph_neighbors(
        comm: CommHandle, rank: c_int, maxneighbors: c_int, neighbors: *mut c_int
    ) -> c_int
        => call(Scope::Comm(comm)) topo::graph_neighbors(comm, rank, maxneighbors, neighbors);
    fn MPI_Graph_neighbors_count PMPI_Graph_neighbors_count(
        comm: CommHandle, rank: c_int, nneighbors: *mut c_int
    ) -> c_int
        => call(Scope::Comm(comm)) topo::graph_neighbors_count(comm, rank, nneighbors);
    fn MPI_Graphdims_get PMPI_Graphdims_get(comm: CommHandle, nnodes: *mut c_int, nedges: *mut c_int) -> c_int
        => call(Scope::Comm(comm)) topo::graphdims_get(comm, nnodes, nedges);
    fn MPI_Topo_test PMPI_Topo_test(comm: CommHandle, status: *mut c_int) -> c_int
        => call(Scope::Comm(comm)) topo::topo_test(comm, status);
}
