/* `late_init GATE`: rank 0 enters MPI_Init only when the file GATE exists; the others wait for it in the first fence. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv) {
    const char *told = getenv("RSD_RANK");
    int rank, one = 1, all;
    if (argc < 2 || !told)
        return 2;
    if (atoi(told) == 0)
        while (access(argv[1], F_OK) != 0) {
            struct timespec pause = {0, 10000000};
            nanosleep(&pause, NULL);
        }
    else {
        printf("entering\n");
        fflush(stdout);
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Allreduce(&one, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%d ranks met\n", all);
    MPI_Finalize();
    return 0;
}
