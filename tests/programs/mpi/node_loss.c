/* `node_loss`: one rank per node; the node of the last rank is lost while the others wait for it, without ever having communicated with
 * it. Every operation that depends on it fails with MPI_ERR_PROC_ABORTED; the others still communicate. */
#include "check.h"

#include <unistd.h>

int main(int argc, char **argv) {
    int value = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int last = size - 1;
    printf("rank %d has pid %d\n", rank, (int) getpid());
    fflush(stdout);
    if (rank == last)
        for (;;)
            pause();
    /* Even ranks wait for the lost one, odd ones for any. */
    int source = rank % 2 == 0 ? last : MPI_ANY_SOURCE;
    int code = MPI_Recv(&value, 1, MPI_INT, source, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    CHECK(class_of(code) == MPI_ERR_PROC_ABORTED);
    char text[MPI_MAX_ERROR_STRING];
    int length;
    MPI_Error_string(code, text, &length);
    printf("rank %d: %s\n", rank, text);
    fflush(stdout);
    CHECK(class_of(MPI_Send(&value, 1, MPI_INT, last, 7, MPI_COMM_WORLD)) == MPI_ERR_PROC_ABORTED);
    CHECK(class_of(MPI_Barrier(MPI_COMM_WORLD)) == MPI_ERR_PROC_ABORTED);
    /* The survivors. */
    int next = (rank + 1) % last, before = (rank + last - 1) % last;
    value = rank;
    CHECK(MPI_Sendrecv_replace(&value, 1, MPI_INT, next, 9, before, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    CHECK(value == before);
    MPI_Finalize();
    printf("rank %d has survived\n", rank);
    return wrong != 0;
}
