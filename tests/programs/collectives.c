/* Collectives with results that every rank can predict; rank 0 prints `collectives right on N ranks`. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size;

static void check(int right, const char *what) {
    if (!right) {
        fprintf(stderr, "rank %d: %s is wrong\n", rank, what);
        MPI_Abort(MPI_COMM_WORLD, 9);
    }
}

static void allreduce(int count) {
    long *in = malloc(count * sizeof *in), *out = malloc(count * sizeof *out);
    for (int i = 0; i < count; i++)
        in[i] = (long)rank * count + i;
    MPI_Allreduce(in, out, count, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < count; i++)
        check(out[i] == (long)size * (size - 1) / 2 * count + (long)size * i, "allreduce");
    free(in);
    free(out);
}

static void alltoall(int count) {
    int *in = malloc((size_t)size * count * sizeof *in), *out = malloc((size_t)size * count * sizeof *out);
    for (int to = 0; to < size; to++)
        for (int i = 0; i < count; i++)
            in[to * count + i] = rank * 1000003 + to * 1009 + i;
    MPI_Alltoall(in, count, MPI_INT, out, count, MPI_INT, MPI_COMM_WORLD);
    for (int from = 0; from < size; from++)
        for (int i = 0; i < count; i++)
            check(out[from * count + i] == from * 1000003 + rank * 1009 + i, "alltoall");
    free(in);
    free(out);
}

static void allgather(int count) {
    int *in = malloc(count * sizeof *in), *out = malloc((size_t)size * count * sizeof *out);
    for (int i = 0; i < count; i++)
        in[i] = rank * 1000003 + i;
    MPI_Allgather(in, count, MPI_INT, out, count, MPI_INT, MPI_COMM_WORLD);
    for (int from = 0; from < size; from++)
        for (int i = 0; i < count; i++)
            check(out[from * count + i] == from * 1000003 + i, "allgather");
    free(in);
    free(out);
}

static void bcast(void) {
    for (int root = 0; root < size; root += size > 4 ? size / 4 : 1) {
        char text[64] = {0};
        if (rank == root)
            snprintf(text, sizeof text, "from rank %d", root);
        MPI_Bcast(text, sizeof text, MPI_CHAR, root, MPI_COMM_WORLD);
        char expected[64];
        snprintf(expected, sizeof expected, "from rank %d", root);
        check(!strcmp(text, expected), "bcast");
    }
}

static void split(void) {
    MPI_Comm half;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
    int mine, members, one = 1, all;
    MPI_Comm_rank(half, &mine);
    MPI_Comm_size(half, &members);
    check(members == (size + 1 - rank % 2) / 2, "split's size");
    check(mine == members - 1 - rank / 2, "split's order");
    MPI_Allreduce(&one, &all, 1, MPI_INT, MPI_SUM, half);
    check(all == members, "allreduce in a half");
    MPI_Comm_free(&half);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    allreduce(1);
    allreduce(10000);
    alltoall(1);
    alltoall(1000);
    allgather(1);
    allgather(1000);
    bcast();
    split();
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        printf("collectives right on %d ranks\n", size);
    MPI_Finalize();
    return 0;
}
