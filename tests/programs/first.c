/* `first RANK [SECONDS]`: RANK sends to each other rank before any of these sends, and they answer. Then every rank sends to every
 * other one, and all meet in a barrier and an allreduce. The others call MPI_Init this much later than RANK, and take as long again
 * before they receive. Rank 0 prints `all N ranks answered RANK`. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void exchange(int rank, int size) {
    for (int other = 0; other < size; other++) {
        int mine = rank * 1000 + other, theirs = -1;
        MPI_Sendrecv(&mine, 1, MPI_INT, other, 1, &theirs, 1, MPI_INT, other, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (theirs != other * 1000 + rank)
            MPI_Abort(MPI_COMM_WORLD, 9);
    }
}

int main(int argc, char **argv) {
    const char *own = getenv("RSD_RANK");
    int first = atoi(argv[1]), seconds = argc > 2 ? atoi(argv[2]) : 0, rank, size, sum;
    if (own && atoi(own) != first)
        sleep(seconds);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int word = 4711;
    if (rank == first) {
        for (int other = 0; other < size; other++)
            if (other != rank)
                MPI_Send(&word, 1, MPI_INT, other, 0, MPI_COMM_WORLD);
        for (int other = 0; other < size; other++)
            if (other != rank)
                MPI_Recv(&word, 1, MPI_INT, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        sleep(seconds);
        MPI_Recv(&word, 1, MPI_INT, first, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(&word, 1, MPI_INT, first, 0, MPI_COMM_WORLD);
    }
    exchange(rank, size);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0 && word == 4711 && sum == size * (size - 1) / 2)
        printf("all %d ranks answered %d\n", size, first);
    MPI_Finalize();
    return 0;
}
