/* Joins a group after MPI_Init, which is refused; prints why. */
#define _GNU_SOURCE
#include <mpi.h>
#include <rsd_join.h>

int main(int argc, char **argv) {
    char why[RSD_JOIN_WHY] = "";
    int code;
    MPI_Init(&argc, &argv);
    code = rsd_join("actors", 1, RSD_JOIN_ANY_RANK, 5, NULL, why);
    printf("refused %d: %s\n", code, why);
    MPI_Finalize();
    return 0;
}
