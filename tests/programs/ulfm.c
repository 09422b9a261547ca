/* Rank 1 and the last rank die. The others learn of it, revoke the world, shrink it, and add up ones. For Open MPI with ULFM. */
#include <mpi.h>
/* It uses the types of the other. */
#include <mpi-ext.h>
#include <signal.h>
#include <stdio.h>

int main(int argc, char **argv) {
    int rank, size, left = 0, one = 1, sum = 0;
    MPI_Comm rest;
    /* Open MPI writes to the sockets of processes that have died; the default action would kill the writer, too. */
    signal(SIGPIPE, SIG_IGN);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1 || rank == size - 1)
        raise(SIGKILL);
    /* Some may still complete it, others get one of several errors. */
    MPI_Barrier(MPI_COMM_WORLD);
    MPIX_Comm_revoke(MPI_COMM_WORLD);
    if (MPIX_Comm_shrink(MPI_COMM_WORLD, &rest) == MPI_SUCCESS) {
        MPI_Comm_size(rest, &left);
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, rest);
    }
    printf("rank %d: %d are left, sum %d\n", rank, left, sum);
    fflush(stdout);
    MPI_Finalize();
    return 0;
}
