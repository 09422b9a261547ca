/* `idle [anything]`: links an MPI library, and uses it only with an argument. */
#include <mpi.h>

int main(int argc, char **argv) {
    return argc > 1 ? MPI_Init(&argc, &argv) || MPI_Finalize() : 0;
}
