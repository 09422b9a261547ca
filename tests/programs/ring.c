/* A token goes round the ring, `ring ROUNDS` times; every rank adds one. Rank 0 prints the sum. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    int rank, size, rounds = argc > 1 ? atoi(argv[1]) : 3;
    long token = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int left = (rank + size - 1) % size, right = (rank + 1) % size;
    for (int round = 0; round < rounds; round++) {
        long sent = token + 1;
        if (rank == 0) {
            /* A single rank sends to itself: the receive must be posted first. */
            MPI_Request request;
            MPI_Irecv(&token, 1, MPI_LONG, left, round, MPI_COMM_WORLD, &request);
            MPI_Send(&sent, 1, MPI_LONG, right, round, MPI_COMM_WORLD);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(&token, 1, MPI_LONG, left, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            token++;
            MPI_Send(&token, 1, MPI_LONG, right, round, MPI_COMM_WORLD);
        }
    }
    if (rank == 0)
        printf("token %ld\n", token);
    MPI_Finalize();
    return rank == 0 && token != (long)rounds * size;
}
