/* `incast BYTES ROUNDS STOPPED`: in each round, all other ranks send a message of this length to rank 0 at the same time, which checks each
 * byte and prints how many were wrong. In the last round, the first STOPPED of them stop (SIGSTOP) once they have announced their
 * messages, and rank 0 begins with those: it prints `others` when all further messages have arrived, and the stopped ranks are to be
 * continued then. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static unsigned char expected(int rank, int round, size_t at) {
    return (unsigned char)(at * 31 + (at >> 8) * 7 + (at >> 16) * 13 + rank * 5 + round);
}

int main(int argc, char **argv) {
    if (argc != 4)
        return 2;
    size_t bytes = strtoull(argv[1], NULL, 10);
    int rounds = atoi(argv[2]), stopped = atoi(argv[3]), rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    unsigned char *memory = malloc(rank == 0 ? bytes * ranks : bytes);
    MPI_Request *requests = calloc(ranks, sizeof *requests);
    long wrong = 0;
    for (int round = 0; round < rounds; round++) {
        int stops = round == rounds - 1 ? stopped : 0;
        if (rank != 0) {
            for (size_t i = 0; i < bytes; i++)
                memory[i] = expected(rank, round, i);
            MPI_Send(NULL, 0, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
            MPI_Barrier(MPI_COMM_WORLD);
            MPI_Isend(memory, (int)bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, requests);
            if (rank <= stops)
                raise(SIGSTOP);
            MPI_Wait(requests, MPI_STATUS_IGNORE);
            continue;
        }
        for (int i = 1; i < ranks; i++)
            MPI_Recv(NULL, 0, MPI_BYTE, i, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Barrier(MPI_COMM_WORLD);
        for (int i = 1; i < ranks; i++) {
            if (i <= stops)
                MPI_Probe(i, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Irecv(memory + bytes * i, (int)bytes, MPI_BYTE, i, 0, MPI_COMM_WORLD, &requests[i]);
        }
        MPI_Waitall(ranks - 1 - stops, requests + 1 + stops, MPI_STATUSES_IGNORE);
        if (stops) {
            puts("others");
            fflush(stdout);
        }
        MPI_Waitall(stops, requests + 1, MPI_STATUSES_IGNORE);
        for (int i = 1; i < ranks; i++)
            for (size_t at = 0; at < bytes; at++)
                wrong += memory[bytes * i + at] != expected(i, round, at);
    }
    if (rank == 0)
        printf("%ld wrong\n", wrong);
    MPI_Finalize();
    return 0;
}
