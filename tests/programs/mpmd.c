/* `mpmd NAME`: each rank sends its NAME to rank 0, which prints `RANK NAME APPNUM` for all, in rank order. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    int rank, size, there, *appnum;
    char line[80];
    if (argc < 2)
        return 2;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &appnum, &there);
    snprintf(line, sizeof line, "%d %s %d", rank, argv[1], there ? *appnum : -1);
    if (rank != 0)
        MPI_Send(line, sizeof line, MPI_CHAR, 0, 0, MPI_COMM_WORLD);
    else
        for (int from = 0; from < size; from++) {
            if (from > 0)
                MPI_Recv(line, sizeof line, MPI_CHAR, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            puts(line);
        }
    MPI_Finalize();
    return 0;
}
