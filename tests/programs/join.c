/* Joins the group argv[1] of argv[2] members by itself, then uses MPI; prints the line that hello.c prints. */
#define _GNU_SOURCE
#include <mpi.h>
#include <rsd_join.h>

int main(int argc, char **argv) {
    char why[RSD_JOIN_WHY];
    struct rsd_place place;
    int rank, size, sum, code = rsd_join(argv[1], atoi(argv[2]), RSD_JOIN_ANY_RANK, atoi(argv[3]), &place, why);
    if (code) {
        fprintf(stderr, "refused %d: %s\n", code, why);
        return 1;
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank != place.rank || size != place.size || sum != size * (size - 1) / 2)
        return 2;
    printf("rank %d of %d on %s, local %d of %d\n", rank, size, getenv("RSD_NODE_NAME"), place.local_rank, place.local_size);
    MPI_Finalize();
    return 0;
}
