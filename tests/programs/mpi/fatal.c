/* A bad argument under MPI_ERRORS_ARE_FATAL, the default: rank 0 reports the function and the reason, and ends the job. */
#include "check.h"

int main(int argc, char **argv) {
    begin(&argc, &argv);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        MPI_Send(&rank, 1, MPI_INT, size + 41, 0, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    return finish("fatal");
}
