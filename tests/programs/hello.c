/* Every rank prints one line: `rank R of N on NODE, world W local L of M`. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static const char *variable(const char *name) {
    const char *value = getenv(name);
    return value ? value : "-";
}

int main(int argc, char **argv) {
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);

    /* Ranks that share memory are those that the launcher has put on one node. */
    MPI_Comm local;
    int local_rank, local_size;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &local);
    MPI_Comm_rank(local, &local_rank);
    MPI_Comm_size(local, &local_size);
    MPI_Comm_free(&local);
    printf("rank %d of %d on %s, local %d of %d\n", rank, size, variable("RSD_NODE_NAME"), local_rank, local_size);

    /* Other launchers set no variables to compare with. */
    int wrong = getenv("RSD_RANK") && (rank != atoi(variable("RSD_RANK")) || size != atoi(variable("RSD_SIZE")));
    MPI_Finalize();
    return wrong;
}
