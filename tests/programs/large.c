/* `large BYTES`: every rank sends this many bytes to its right neighbour, which checks each of them. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static unsigned char expected(int from, size_t at) {
    return (unsigned char)(at * 31 + (at >> 8) * 7 + (at >> 16) * 13 + from);
}

int main(int argc, char **argv) {
    int rank, size;
    size_t bytes = argc > 1 ? strtoull(argv[1], NULL, 10) : 16 << 20;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int left = (rank + size - 1) % size, right = (rank + 1) % size;
    unsigned char *out = malloc(bytes), *in = calloc(bytes, 1);
    for (size_t i = 0; i < bytes; i++)
        out[i] = expected(rank, i);
    MPI_Sendrecv(out, (int)bytes, MPI_BYTE, right, 0, in, (int)bytes, MPI_BYTE, left, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    size_t wrong = 0;
    for (size_t i = 0; i < bytes; i++)
        wrong += in[i] != expected(left, i);
    if (wrong)
        fprintf(stderr, "rank %d: %zu of %zu bytes are wrong\n", rank, wrong, bytes);
    int mine = wrong != 0, any;
    MPI_Allreduce(&mine, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (rank == 0 && !any)
        printf("%zu bytes right on %d ranks\n", bytes, size);
    MPI_Finalize();
    return any;
}
