/* `unreachable send|receive|barrier`: ranks that cannot reach each other; each must end with an error. */
#include "check.h"

#include <unistd.h>

int main(int argc, char **argv) {
    begin(&argc, &argv);
    const char *mode = argc > 1 ? argv[1] : "";
    if (strcmp(mode, "barrier") == 0)
        MPI_Barrier(MPI_COMM_WORLD);
    else if (rank == 1)
        MPI_Recv(&wrong, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else if (strcmp(mode, "receive") == 0)
        pause();
    else if (rank == 0) {
        MPI_Send(&rank, 1, MPI_INT, 1, 1, MPI_COMM_WORLD);
        printf("sent\n");
        fflush(stdout);
    }
    MPI_Finalize();
    printf("rank %d has finalized\n", rank);
    return 0;
}
