/* `rails BYTES COUNT`: rank 0 sends COUNT messages of this length to rank 1, which checks each byte, and prints how many milliseconds the
 * fastest took from the send to a short answer. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static unsigned char expected(int turn, size_t at) {
    return (unsigned char)(at * 31 + (at >> 8) * 7 + (at >> 16) * 13 + turn);
}

int main(int argc, char **argv) {
    size_t bytes = strtoull(argv[1], NULL, 10);
    int rank, count = atoi(argv[2]);
    long wrong = 0;
    double best = 1e9;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    unsigned char *memory = malloc(bytes);
    for (int turn = 0; turn < count; turn++) {
        for (size_t i = 0; i < bytes; i++)
            memory[i] = rank == 0 ? expected(turn, i) : 0;
        MPI_Barrier(MPI_COMM_WORLD);
        double start = MPI_Wtime();
        if (rank == 0) {
            MPI_Send(memory, (int)bytes, MPI_BYTE, 1, turn, MPI_COMM_WORLD);
            MPI_Recv(NULL, 0, MPI_BYTE, 1, turn, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(memory, (int)bytes, MPI_BYTE, 0, turn, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(NULL, 0, MPI_BYTE, 0, turn, MPI_COMM_WORLD);
            for (size_t i = 0; i < bytes; i++)
                wrong += memory[i] != expected(turn, i);
        }
        double took = MPI_Wtime() - start;
        best = took < best ? took : best;
    }
    MPI_Reduce(rank == 0 ? MPI_IN_PLACE : &wrong, &wrong, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%.0f ms, %ld wrong\n", best * 1e3, wrong);
    MPI_Finalize();
    return 0;
}
