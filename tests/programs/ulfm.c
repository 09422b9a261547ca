/* Rank 1 and the last rank die. The others learn of it, revoke the world, shrink it, and add up ones. For Open MPI with ULFM. */
#include <mpi-ext.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>

int main(int argc, char **argv) {
    int rank, size, class = MPI_SUCCESS, left = 0, one = 1, sum = 0;
    MPI_Comm rest;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1 || rank == size - 1)
        raise(SIGKILL);
    int code = MPI_Barrier(MPI_COMM_WORLD);
    if (code != MPI_SUCCESS)
        MPI_Error_class(code, &class);
    MPIX_Comm_revoke(MPI_COMM_WORLD);
    if (class != MPIX_ERR_PROC_FAILED && class != MPIX_ERR_REVOKED)
        printf("rank %d: the barrier returned class %d\n", rank, class);
    if (MPIX_Comm_shrink(MPI_COMM_WORLD, &rest) == MPI_SUCCESS) {
        MPI_Comm_size(rest, &left);
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, rest);
    }
    printf("rank %d: %d are left, sum %d\n", rank, left, sum);
    fflush(stdout);
    MPI_Finalize();
    return 0;
}
