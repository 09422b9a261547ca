/* `abort CODE`: the last rank aborts the job, while the others wait for a message that never arrives. */
#include "check.h"

int main(int argc, char **argv) {
    begin(&argc, &argv);
    int code = argc > 1 ? atoi(argv[1]) : 7, got;
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == size - 1)
        MPI_Abort(MPI_COMM_WORLD, code);
    MPI_Recv(&got, 1, MPI_INT, size - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return finish("abort");
}
