/* Topologies (MPI 5.0 §8): grids, graphs, distributed graphs, and all forms of the neighbourhood collectives. */
#include "check.h"

enum { MOST = 64 };

static MPI_Comm world;
/* MPI_UNWEIGHTED: compilers warn about arrays at such addresses where they see them. */
static int *volatile unweighted;

/* A ring as a grid, with this communicator's rank. */
static MPI_Comm ring(int periodic) {
    MPI_Comm made;
    int dims[1] = {size}, periods[1] = {periodic};
    CHECK(MPI_Cart_create(world, 1, dims, periods, 0, &made) == MPI_SUCCESS);
    return made;
}

static void grids(void) {
    MPI_Comm grid, copy, part, none;
    int dims[3] = {0, 0, 0}, periods[3] = {1, 0, 1}, coords[3], got[3], wraps[3], kind, me, count, other, before, after;
    MPI_Request request;
    CHECK(MPI_Dims_create(size, 3, dims) == MPI_SUCCESS);
    CHECK(MPI_Cart_create(world, 3, dims, periods, 1, &grid) == MPI_SUCCESS);
    CHECK(MPI_Topo_test(grid, &kind) == MPI_SUCCESS && kind == MPI_CART);
    CHECK(MPI_Topo_test(world, &kind) == MPI_SUCCESS && kind == MPI_UNDEFINED);
    CHECK(MPI_Cartdim_get(grid, &count) == MPI_SUCCESS && count == 3);
    CHECK(MPI_Cart_get(grid, 3, got, wraps, coords) == MPI_SUCCESS);
    CHECK(!memcmp(got, dims, sizeof dims) && wraps[0] == 1 && wraps[1] == 0 && wraps[2] == 1);
    MPI_Comm_rank(grid, &me);
    CHECK(me == (coords[0] * dims[1] + coords[1]) * dims[2] + coords[2]);
    for (int i = 0; i < size; i++) {
        CHECK(MPI_Cart_coords(grid, i, 3, coords) == MPI_SUCCESS);
        CHECK(MPI_Cart_rank(grid, coords, &other) == MPI_SUCCESS && other == i);
        coords[0] -= dims[0];
        coords[2] += 2 * dims[2];
        CHECK(MPI_Cart_rank(grid, coords, &other) == MPI_SUCCESS && other == i);
    }
    MPI_Cart_coords(grid, me, 3, coords);
    CHECK(MPI_Cart_shift(grid, 1, 1, &before, &after) == MPI_SUCCESS);
    CHECK((before == MPI_PROC_NULL) == (coords[1] == 0) && (after == MPI_PROC_NULL) == (coords[1] == dims[1] - 1));
    CHECK(MPI_Cart_shift(grid, 0, dims[0], &before, &after) == MPI_SUCCESS && before == me && after == me);
    CHECK(MPI_Cart_map(world, 3, dims, periods, &other) == MPI_SUCCESS && other == me);
    coords[1] = dims[1];
    FAILS(MPI_Cart_rank(grid, coords, &other), on_mpich() ? MPI_ERR_RANK : MPI_ERR_ARG);

    int kept[3] = {1, 0, 1};
    CHECK(MPI_Cart_sub(grid, kept, &part) == MPI_SUCCESS);
    CHECK(MPI_Cart_get(part, 2, got, wraps, coords) == MPI_SUCCESS && got[0] == dims[0] && got[1] == dims[2]);
    MPI_Comm_size(part, &count);
    CHECK(count == dims[0] * dims[2]);
    int mine[3];
    MPI_Cart_coords(grid, me, 3, mine);
    CHECK(coords[0] == mine[0] && coords[1] == mine[2]);
    int line = -1;
    MPI_Allreduce(&mine[1], &line, 1, MPI_INT, MPI_MAX, part);
    CHECK(line == mine[1]);
    MPI_Comm_free(&part);
    int nothing[3] = {0, 0, 0};
    CHECK(MPI_Cart_sub(grid, nothing, &part) == MPI_SUCCESS);
    MPI_Comm_size(part, &count);
    CHECK(count == 1 && MPI_Cartdim_get(part, &count) == MPI_SUCCESS && count == 0);
    CHECK(MPI_Cart_rank(part, coords, &other) == MPI_SUCCESS && other == 0);
    MPI_Comm_free(&part);

    MPI_Comm_dup(grid, &copy);
    CHECK(MPI_Topo_test(copy, &kind) == MPI_SUCCESS && kind == MPI_CART);
    MPI_Comm_free(&copy);
    MPI_Comm_idup(grid, &copy, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(MPI_Cartdim_get(copy, &count) == MPI_SUCCESS && count == 3);
    MPI_Comm_free(&copy);
    MPI_Comm_split(grid, 0, me, &copy);
    CHECK(MPI_Topo_test(copy, &kind) == MPI_SUCCESS && kind == MPI_UNDEFINED);
    MPI_Comm_free(&copy);
    MPI_Comm_free(&grid);

    int one[1] = {1};
    CHECK(MPI_Cart_create(world, 1, one, periods, 0, &none) == MPI_SUCCESS);
    CHECK((none == MPI_COMM_NULL) == (rank > 0));
    CHECK(MPI_Cart_map(world, 1, one, periods, &other) == MPI_SUCCESS && other == (rank > 0 ? MPI_UNDEFINED : 0));
    if (none != MPI_COMM_NULL)
        MPI_Comm_free(&none);
    CHECK(MPI_Cart_create(world, 0, NULL, NULL, 0, &none) == MPI_SUCCESS);
    CHECK((none == MPI_COMM_NULL) == (rank > 0));
    if (none != MPI_COMM_NULL)
        MPI_Comm_free(&none);
}

/* A star whose centre is rank 0, as a graph. */
static void graphs(void) {
    MPI_Comm star, part;
    int index[MOST], edges[2 * MOST], kind, nodes, links, count, got[2 * MOST], other;
    for (int i = 0; i < size; i++)
        index[i] = size - 1 + i;
    for (int i = 0; i < size - 1; i++) {
        edges[i] = i + 1;
        edges[size - 1 + i] = 0;
    }
    CHECK(MPI_Graph_create(world, size, index, edges, 1, &star) == MPI_SUCCESS);
    CHECK(MPI_Topo_test(star, &kind) == MPI_SUCCESS && kind == MPI_GRAPH);
    CHECK(MPI_Graphdims_get(star, &nodes, &links) == MPI_SUCCESS && nodes == size && links == 2 * (size - 1));
    int back[MOST];
    CHECK(MPI_Graph_get(star, size, links, back, got) == MPI_SUCCESS);
    CHECK(!memcmp(back, index, sizeof(int) * (size_t)size) && !memcmp(got, edges, sizeof(int) * (size_t)links));
    CHECK(MPI_Graph_neighbors_count(star, 0, &count) == MPI_SUCCESS && count == size - 1);
    CHECK(MPI_Graph_neighbors(star, size - 1, 2 * MOST, got) == MPI_SUCCESS && (size == 1 || got[0] == 0));
    CHECK(MPI_Graph_map(world, size, index, edges, &other) == MPI_SUCCESS && other >= 0 && other < size);

    int me, sent, heard[MOST];
    MPI_Comm_rank(star, &me);
    sent = 100 + me;
    CHECK(MPI_Neighbor_allgather(&sent, 1, MPI_INT, heard, 1, MPI_INT, star) == MPI_SUCCESS);
    for (int i = 0; i < (me == 0 ? size - 1 : 1) && size > 1; i++)
        CHECK(heard[i] == (me == 0 ? 101 + i : 100));
    MPI_Comm_free(&star);
    int single[1] = {0};
    CHECK(MPI_Graph_create(world, 1, single, edges, 0, &part) == MPI_SUCCESS && (part == MPI_COMM_NULL) == (rank > 0));
    if (part != MPI_COMM_NULL)
        MPI_Comm_free(&part);
}

/* Each rank has an edge to the next one and two to itself; named here by the rank before. */
static void distributed(void) {
    MPI_Comm graph;
    int in[3], out[3], weights[3] = {7, 8, 9}, of_in[3], of_out[3], indegree, outdegree, weighted, kind;
    int to[3] = {right(), rank, rank}, from[3] = {left(), rank, rank};
    CHECK(MPI_Dist_graph_create_adjacent(world, 3, from, weights, 3, to, weights, MPI_INFO_NULL, 0, &graph) == MPI_SUCCESS);
    CHECK(MPI_Topo_test(graph, &kind) == MPI_SUCCESS && kind == MPI_DIST_GRAPH);
    CHECK(MPI_Dist_graph_neighbors_count(graph, &indegree, &outdegree, &weighted) == MPI_SUCCESS);
    CHECK(indegree == 3 && outdegree == 3 && weighted);
    CHECK(MPI_Dist_graph_neighbors(graph, 3, in, of_in, 3, out, of_out) == MPI_SUCCESS);
    CHECK(!memcmp(in, from, sizeof in) && !memcmp(out, to, sizeof out) && of_in[1] == 8 && of_out[2] == 9);
    int sent[3] = {10 * rank, 10 * rank + 1, 10 * rank + 2}, got[3] = {-1, -1, -1};
    CHECK(MPI_Neighbor_alltoall(sent, 1, MPI_INT, got, 1, MPI_INT, graph) == MPI_SUCCESS);
    CHECK(got[0] == 10 * left() && got[1] == 10 * rank + 1 && got[2] == 10 * rank + 2);
    MPI_Comm_free(&graph);

    CHECK(MPI_Dist_graph_create_adjacent(world, 0, NULL, unweighted, 0, NULL, unweighted, MPI_INFO_NULL, 0, &graph) ==
          MPI_SUCCESS);
    CHECK(MPI_Dist_graph_neighbors_count(graph, &indegree, &outdegree, &weighted) == MPI_SUCCESS);
    CHECK(indegree == 0 && outdegree == 0 && !weighted);
    CHECK(MPI_Neighbor_alltoallv(NULL, NULL, NULL, MPI_INT, NULL, NULL, NULL, MPI_INT, graph) == MPI_SUCCESS || on_mpich());
    MPI_Comm_free(&graph);

    /* Rank r names the edges of the rank after it. */
    int sources[1] = {right()}, degrees[1] = {2}, ends[2] = {(rank + 2) % size, right()}, heavy[2] = {rank, 50 + rank};
    CHECK(MPI_Dist_graph_create(world, 1, sources, degrees, ends, heavy, MPI_INFO_NULL, 1, &graph) == MPI_SUCCESS);
    CHECK(MPI_Dist_graph_neighbors_count(graph, &indegree, &outdegree, &weighted) == MPI_SUCCESS);
    CHECK(indegree == 2 && outdegree == 2 && weighted);
    CHECK(MPI_Dist_graph_neighbors(graph, 2, in, of_in, 2, out, of_out) == MPI_SUCCESS);
    int sum = 0, next = 0;
    for (int i = 0; i < 2; i++) {
        CHECK(in[i] == rank || in[i] == left());
        next += out[i] == right();
        sum += of_out[i];
    }
    CHECK(next == (size == 1 ? 2 : 1) && sum == 50 + 2 * left());
    MPI_Comm_free(&graph);
    CHECK(MPI_Dist_graph_create(world, 0, NULL, NULL, NULL, unweighted, MPI_INFO_NULL, 0, &graph) == MPI_SUCCESS);
    CHECK(MPI_Dist_graph_neighbors_count(graph, &indegree, &outdegree, &weighted) == MPI_SUCCESS);
    CHECK(indegree == 0 && outdegree == 0 && !weighted);
    MPI_Comm_free(&graph);
}

/* The blocks from before and after in a ring: `gap` elements apart. */
static void is_of_neighbours(const int *got, int gap, int each, int periodic) {
    int first = rank == 0 && !periodic, last = rank == size - 1 && !periodic;
    CHECK(got[0] == (first ? -1 : 1000 + left() * each + each - each));
    CHECK(got[gap] == (last ? -1 : 1000 + right() * each));
}

/* All forms of all five functions, on a ring and on a line. `got[0]` is from the rank before, `got[1]` from the one after. */
static void neighbours(int periodic) {
    MPI_Comm line = ring(periodic);
    MPI_Request requests[5];
    int counts[2] = {1, 1}, places[2] = {1, 0}, mine = 1000 + rank, both[2] = {1000 + rank, 1000 + rank};
    MPI_Aint offsets[2] = {sizeof(int), 0};
    MPI_Count many[2] = {1, 1};
    MPI_Aint far[2] = {1, 0};
    MPI_Datatype types[2] = {MPI_INT, MPI_INT};
    for (int form = 0; form < 6; form++) {
        int a[2] = {-1, -1}, b[2] = {-1, -1}, c[2] = {-1, -1}, d[2] = {-1, -1}, e[2] = {-1, -1};
        if (form == 0) {
            CHECK(MPI_Neighbor_allgather(&mine, 1, MPI_INT, a, 1, MPI_INT, line) == MPI_SUCCESS);
            CHECK(MPI_Neighbor_allgatherv(&mine, 1, MPI_INT, b, counts, places, MPI_INT, line) == MPI_SUCCESS);
            CHECK(MPI_Neighbor_alltoall(both, 1, MPI_INT, c, 1, MPI_INT, line) == MPI_SUCCESS);
            CHECK(MPI_Neighbor_alltoallv(both, counts, places, MPI_INT, d, counts, places, MPI_INT, line) == MPI_SUCCESS);
            CHECK(MPI_Neighbor_alltoallw(both, counts, offsets, types, e, counts, offsets, types, line) == MPI_SUCCESS);
        } else if (form == 1) {
            CHECK(MPI_Neighbor_allgather_c(&mine, 1, MPI_INT, a, 1, MPI_INT, line) == MPI_SUCCESS);
            CHECK(MPI_Neighbor_allgatherv_c(&mine, 1, MPI_INT, b, many, far, MPI_INT, line) == MPI_SUCCESS);
            CHECK(MPI_Neighbor_alltoall_c(both, 1, MPI_INT, c, 1, MPI_INT, line) == MPI_SUCCESS);
            CHECK(MPI_Neighbor_alltoallv_c(both, many, far, MPI_INT, d, many, far, MPI_INT, line) == MPI_SUCCESS);
            CHECK(MPI_Neighbor_alltoallw_c(both, many, offsets, types, e, many, offsets, types, line) == MPI_SUCCESS);
        } else if (form == 2) {
            MPI_Ineighbor_allgather(&mine, 1, MPI_INT, a, 1, MPI_INT, line, &requests[0]);
            MPI_Ineighbor_allgatherv(&mine, 1, MPI_INT, b, counts, places, MPI_INT, line, &requests[1]);
            MPI_Ineighbor_alltoall(both, 1, MPI_INT, c, 1, MPI_INT, line, &requests[2]);
            MPI_Ineighbor_alltoallv(both, counts, places, MPI_INT, d, counts, places, MPI_INT, line, &requests[3]);
            MPI_Ineighbor_alltoallw(both, counts, offsets, types, e, counts, offsets, types, line, &requests[4]);
            CHECK(MPI_Waitall(5, requests, MPI_STATUSES_IGNORE) == MPI_SUCCESS);
        } else if (form == 3) {
            MPI_Ineighbor_allgather_c(&mine, 1, MPI_INT, a, 1, MPI_INT, line, &requests[0]);
            MPI_Ineighbor_allgatherv_c(&mine, 1, MPI_INT, b, many, far, MPI_INT, line, &requests[1]);
            MPI_Ineighbor_alltoall_c(both, 1, MPI_INT, c, 1, MPI_INT, line, &requests[2]);
            MPI_Ineighbor_alltoallv_c(both, many, far, MPI_INT, d, many, far, MPI_INT, line, &requests[3]);
            MPI_Ineighbor_alltoallw_c(both, many, offsets, types, e, many, offsets, types, line, &requests[4]);
            CHECK(MPI_Waitall(5, requests, MPI_STATUSES_IGNORE) == MPI_SUCCESS);
        } else {
            MPI_Info info = MPI_INFO_NULL;
            if (form == 4) {
                MPI_Neighbor_allgather_init(&mine, 1, MPI_INT, a, 1, MPI_INT, line, info, &requests[0]);
                MPI_Neighbor_allgatherv_init(&mine, 1, MPI_INT, b, counts, places, MPI_INT, line, info, &requests[1]);
                MPI_Neighbor_alltoall_init(both, 1, MPI_INT, c, 1, MPI_INT, line, info, &requests[2]);
                MPI_Neighbor_alltoallv_init(both, counts, places, MPI_INT, d, counts, places, MPI_INT, line, info, &requests[3]);
                MPI_Neighbor_alltoallw_init(both, counts, offsets, types, e, counts, offsets, types, line, info, &requests[4]);
            } else {
                MPI_Neighbor_allgather_init_c(&mine, 1, MPI_INT, a, 1, MPI_INT, line, info, &requests[0]);
                MPI_Neighbor_allgatherv_init_c(&mine, 1, MPI_INT, b, many, far, MPI_INT, line, info, &requests[1]);
                MPI_Neighbor_alltoall_init_c(both, 1, MPI_INT, c, 1, MPI_INT, line, info, &requests[2]);
                MPI_Neighbor_alltoallv_init_c(both, many, far, MPI_INT, d, many, far, MPI_INT, line, info, &requests[3]);
                MPI_Neighbor_alltoallw_init_c(both, many, offsets, types, e, many, offsets, types, line, info, &requests[4]);
            }
            for (int again = 0; again < 3; again++) {
                a[0] = a[1] = b[0] = b[1] = c[0] = c[1] = d[0] = d[1] = e[0] = e[1] = -1;
                CHECK(MPI_Startall(5, requests) == MPI_SUCCESS);
                CHECK(MPI_Waitall(5, requests, MPI_STATUSES_IGNORE) == MPI_SUCCESS);
            }
            for (int i = 0; i < 5; i++)
                MPI_Request_free(&requests[i]);
        }
        is_of_neighbours(a, 1, 1, periodic);
        is_of_neighbours(b + 1, -1, 1, periodic);
        is_of_neighbours(c, 1, 1, periodic);
        is_of_neighbours(d + 1, -1, 1, periodic);
        is_of_neighbours(e + 1, -1, 1, periodic);
    }
    MPI_Comm_free(&line);
}

/* What is sent backwards arrives from the rank after, even if it is the same as the one before. */
static void directions(void) {
    enum { LONG = 100000 };
    MPI_Comm circle = ring(1);
    int *sent = room(2 * LONG * sizeof(int)), *got = room(2 * LONG * sizeof(int));
    fill(sent, LONG, 2 * rank);
    fill(sent + LONG, LONG, 2 * rank + 1);
    CHECK(MPI_Neighbor_alltoall(sent, LONG, MPI_INT, got, LONG, MPI_INT, circle) == MPI_SUCCESS);
    if (!on_mpich())
        CHECK(filled(got, LONG, 2 * left() + 1) && filled(got + LONG, LONG, 2 * right()));
    /* Addresses instead of displacements. */
    int counts[2] = {2, 1};
    MPI_Datatype types[2] = {MPI_INT, MPI_INT};
    MPI_Aint from[2], to[2];
    int parts[2] = {1, 2};
    MPI_Get_address(sent, &from[0]);
    MPI_Get_address(sent + LONG, &from[1]);
    MPI_Get_address(got + 5, &to[0]);
    MPI_Get_address(got + 9, &to[1]);
    CHECK(MPI_Neighbor_alltoallw(MPI_BOTTOM, counts, from, types, MPI_BOTTOM, parts, to, types, circle) == MPI_SUCCESS);
    if (!on_mpich())
        CHECK(filled(got + 5, 1, 2 * left() + 1) && filled(got + 9, 2, 2 * right()));
    free(sent);
    free(got);
    MPI_Comm_free(&circle);
}

static void mistakes(void) {
    MPI_Comm circle = ring(1), made;
    int dims[1] = {size}, periods[1] = {1}, more[1] = {size + 1}, none[1] = {0}, two[2] = {0, 0}, out[2], number, bad[1] = {size};
    int falls[2] = {2, 1}, many[1] = {1};
    if (!on_mpich()) {
        FAILS(MPI_Cart_create(MPI_COMM_NULL, 1, dims, periods, 0, &made), MPI_ERR_COMM);
        FAILS(MPI_Cart_create(world, -1, dims, periods, 0, &made), MPI_ERR_DIMS);
        made = world;
        FAILS(MPI_Cart_create(world, 1, more, periods, 0, &made), MPI_ERR_DIMS);
        CHECK(made == MPI_COMM_NULL);
        FAILS(MPI_Cart_create(world, 1, none, periods, 0, &made), MPI_ERR_DIMS);
        FAILS(MPI_Cart_create(world, 1, NULL, periods, 0, &made), MPI_ERR_ARG);
        FAILS(MPI_Cart_create(world, 1, dims, NULL, 0, &made), MPI_ERR_ARG);
        FAILS(MPI_Cart_create(world, 1, dims, periods, 0, NULL), MPI_ERR_ARG);
        FAILS(MPI_Cart_map(world, 1, more, periods, &number), MPI_ERR_DIMS);
        FAILS(MPI_Cart_get(circle, -1, out, out, out), MPI_ERR_ARG);
        FAILS(MPI_Cart_shift(circle, 1, 1, out, out), MPI_ERR_DIMS);
        FAILS(MPI_Cart_shift(circle, -1, 1, out, out), MPI_ERR_DIMS);
        FAILS(MPI_Cart_sub(circle, NULL, &made), MPI_ERR_ARG);
        FAILS(MPI_Cart_rank(circle, NULL, &number), MPI_ERR_ARG);
        FAILS(MPI_Graph_create(world, size + 1, two, two, 0, &made), MPI_ERR_ARG);
        FAILS(MPI_Graph_create(world, 1, many, bad, 0, &made), MPI_ERR_ARG);
        if (size > 1)
            FAILS(MPI_Graph_create(world, 2, falls, two, 0, &made), MPI_ERR_ARG);
        FAILS(MPI_Graph_map(world, -1, two, two, &number), MPI_ERR_ARG);
        FAILS(MPI_Dist_graph_create_adjacent(world, 1, bad, unweighted, 0, NULL, unweighted, MPI_INFO_NULL, 0, &made),
              MPI_ERR_RANK);
        FAILS(MPI_Dist_graph_create_adjacent(world, -1, two, unweighted, 0, NULL, unweighted, MPI_INFO_NULL, 0, &made),
              MPI_ERR_ARG);
        FAILS(MPI_Dist_graph_create_adjacent(world, 1, two, two, 0, NULL, unweighted, MPI_INFO_NULL, 0, &made), MPI_ERR_ARG);
        FAILS(MPI_Dist_graph_create(world, 1, two, bad, NULL, unweighted, MPI_INFO_NULL, 0, &made), MPI_ERR_ARG);
        FAILS(MPI_Neighbor_allgather(MPI_IN_PLACE, 1, MPI_INT, out, 1, MPI_INT, circle), MPI_ERR_BUFFER);
        FAILS(MPI_Neighbor_alltoallv(two, NULL, two, MPI_INT, out, two, two, MPI_INT, circle), MPI_ERR_ARG);
        FAILS(MPI_Neighbor_alltoallw(two, two, NULL, NULL, out, two, NULL, NULL, circle), MPI_ERR_ARG);
        FAILS(MPI_Neighbor_alltoall(two, -1, MPI_INT, out, 1, MPI_INT, circle), MPI_ERR_COUNT);
        if (size == 1)
            FAILS(MPI_Neighbor_alltoall(two, 1, MPI_INT, out, 1, MPI_CHAR, circle), MPI_ERR_TRUNCATE);
    }
    FAILS(MPI_Cart_coords(circle, size, 1, out), MPI_ERR_RANK);
    FAILS(MPI_Cartdim_get(world, &number), MPI_ERR_TOPOLOGY);
    FAILS(MPI_Cart_get(world, 1, out, out, out), MPI_ERR_TOPOLOGY);
    FAILS(MPI_Cart_shift(world, 0, 1, out, out), MPI_ERR_TOPOLOGY);
    FAILS(MPI_Cart_sub(world, two, &made), MPI_ERR_TOPOLOGY);
    FAILS(MPI_Cart_coords(world, 0, 1, out), MPI_ERR_TOPOLOGY);
    FAILS(MPI_Cart_rank(world, two, &number), MPI_ERR_TOPOLOGY);
    FAILS(MPI_Graphdims_get(circle, out, out), MPI_ERR_TOPOLOGY);
    FAILS(MPI_Graph_get(circle, 1, 1, out, out), MPI_ERR_TOPOLOGY);
    FAILS(MPI_Graph_neighbors_count(circle, 0, &number), MPI_ERR_TOPOLOGY);
    FAILS(MPI_Graph_neighbors(circle, 0, 1, out), MPI_ERR_TOPOLOGY);
    FAILS(MPI_Dist_graph_neighbors_count(circle, out, out, out), MPI_ERR_TOPOLOGY);
    FAILS(MPI_Dist_graph_neighbors(circle, 1, out, out, 1, out, out), MPI_ERR_TOPOLOGY);
    FAILS(MPI_Neighbor_allgather(two, 1, MPI_INT, out, 1, MPI_INT, world), MPI_ERR_TOPOLOGY);
    MPI_Comm_free(&circle);
}

int main(int argc, char **argv) {
    begin(&argc, &argv);
    unweighted = MPI_UNWEIGHTED;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_dup(MPI_COMM_WORLD, &world);
    grids();
    graphs();
    distributed();
    neighbours(0);
    neighbours(1);
    directions();
    mistakes();
    MPI_Comm_free(&world);
    return finish("topologies");
}
