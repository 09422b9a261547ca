/* Measures messages of all other ranks to rank 0, which they send at the same time. Prints for each length a line
 *
 *   BYTES MEDIAN P99
 *
 * in microseconds, from a barrier to the arrival of the last message. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { WARM_UP = 3, MOST = 200 };

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The time of one round. */
static double together(char *memory, int bytes, int rank, int ranks, MPI_Request *requests) {
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    if (rank != 0) {
        MPI_Send(memory, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
    } else {
        for (int i = 1; i < ranks; i++)
            MPI_Irecv(memory + (size_t)bytes * i, bytes, MPI_BYTE, i, 0, MPI_COMM_WORLD, &requests[i]);
        MPI_Waitall(ranks - 1, requests + 1, MPI_STATUSES_IGNORE);
    }
    return MPI_Wtime() - start;
}

int main(int argc, char **argv) {
    static const struct { int bytes, rounds; } plan[] = {
        {4 << 10, MOST}, {16 << 10, MOST}, {32 << 10, 100}, {64 << 10, 100}, {128 << 10, 50}, {1 << 20, 10},
    };
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (size_t k = 0; k < sizeof plan / sizeof *plan; k++) {
        int bytes = plan[k].bytes, rounds = plan[k].rounds;
        char *memory = calloc(rank == 0 ? ranks : 1, bytes);
        MPI_Request *requests = malloc(ranks * sizeof *requests);
        double took[MOST];
        for (int round = -WARM_UP; round < rounds; round++) {
            double seconds = together(memory, bytes, rank, ranks, requests);
            if (round >= 0)
                took[round] = seconds;
        }
        if (rank == 0) {
            qsort(took, rounds, sizeof *took, by_size);
            printf("%d %.0f %.0f\n", bytes, took[rounds / 2] * 1e6, took[rounds * 99 / 100] * 1e6);
            fflush(stdout);
        }
        free(requests);
        free(memory);
    }
    MPI_Finalize();
    return 0;
}
