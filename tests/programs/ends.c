/* `ends HOW [RANK]`: after a barrier, one rank (0) ends in an unusual way while the others wait in a receive.
 *   abort     MPI_Abort with code 7
 *   mistake   a call with an invalid argument
 *   segv      a segmentation fault
 *   exit3     _exit(3) without MPI_Finalize
 *   exit0     _exit(0) without MPI_Finalize, which also counts as a failure
 *   finalize5 all finalize, then this rank exits with 5
 *   noinit    this rank never calls MPI_Init, prints that and exits with 0
 * Before it ends, it writes one line to stderr. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    int who = argc > 2 ? atoi(argv[2]) : 0, rank, got;
    const char *told = getenv("RSD_RANK");
    if (!strcmp(how, "noinit") && told && atoi(told) == who) {
        fprintf(stderr, "rank %d leaves without MPI\n", who);
        return 0;
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == who) {
        fprintf(stderr, "rank %d ends by %s\n", rank, how);
        if (!strcmp(how, "abort"))
            MPI_Abort(MPI_COMM_WORLD, 7);
        if (!strcmp(how, "mistake"))
            MPI_Send(&rank, 1, MPI_INT, 99, 0, MPI_COMM_WORLD);
        if (!strcmp(how, "segv"))
            raise(SIGSEGV);
        if (!strcmp(how, "exit3"))
            _exit(3);
        if (!strcmp(how, "exit0"))
            _exit(0);
    }
    if (!strcmp(how, "finalize5")) {
        MPI_Finalize();
        return rank == who ? 5 : 0;
    }
    MPI_Recv(&got, 1, MPI_INT, who, 99, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Finalize();
    return 0;
}
