/* Prints the size of its world and of the universe: `world N, universe U`; U may be `unknown`. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv) {
    int *universe, known, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_UNIVERSE_SIZE, &universe, &known);
    if (known)
        printf("world %d, universe %d\n", size, *universe);
    else
        printf("world %d, universe unknown\n", size);
    MPI_Finalize();
    return 0;
}
