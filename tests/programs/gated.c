/* `gated GATE`: computes, with an allreduce in every round, until the file GATE exists; then prints the result.
 * Rank 0 writes `computing` after the first round, so that a test knows when to begin. */
#include <mpi.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int rank, size, open = 0;
    long rounds = 0, sum = 0;
    if (argc < 2)
        return 2;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    while (!open) {
        struct timespec pause = {0, 20000000};
        nanosleep(&pause, NULL);
        long one = 1, all;
        MPI_Allreduce(&one, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
        sum += all;
        rounds++;
        if (rank == 0 && rounds == 1) {
            printf("computing\n");
            fflush(stdout);
        }
        if (rank == 0)
            open = access(argv[1], F_OK) == 0;
        MPI_Bcast(&open, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    int right = sum == rounds * size;
    printf("rank %d: %s\n", rank, right ? "right" : "wrong");
    MPI_Finalize();
    return !right;
}
