/* All but rank 0 finalize without ever having sent or received anything. Rank 0 gets an error instead of waiting forever. */
#include "check.h"

#include <unistd.h>

int main(int argc, char **argv) {
    int token = 0;
    MPI_Request request;
    MPI_Status status;
    begin(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (rank > 0) {
        MPI_Finalize();
        if (argc > 1 && strcmp(argv[1], "stay") == 0)
            sleep(2);
        return 0;
    }
    double begun = MPI_Wtime();
    /* From any source: nobody is left. */
    if (argc > 2)
        FAILS(MPI_Recv(&token, 1, MPI_INT, MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE), MPI_ERR_PROC_ABORTED);
    if (size > 1)
        FAILS(MPI_Recv(&token, 1, MPI_INT, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE), MPI_ERR_PROC_ABORTED);
    if (size > 2) {
        MPI_Irecv(&token, 1, MPI_INT, 2, 3, MPI_COMM_WORLD, &request);
        FAILS(MPI_Wait(&request, &status), MPI_ERR_PROC_ABORTED);
    }
    if (size > 1) {
        MPI_Irecv(&token, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &request);
        FAILS(MPI_Wait(&request, &status), MPI_ERR_PROC_ABORTED);
        FAILS(MPI_Probe(MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, &status), MPI_ERR_PROC_ABORTED);
    }
    CHECK(MPI_Wtime() - begun < 20);
    MPI_Finalize();
    if (!wrong)
        printf("silent ok on %d\n", size);
    return wrong != 0;
}
