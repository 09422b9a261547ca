/* The demo: every rank prints where it runs, a token travels round the ring, and all compute pi together. */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static const char *node(void) {
    const char *name = getenv("RSD_NODE_NAME");
    return name ? name : "this machine";
}

int main(int argc, char **argv) {
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    printf("rank %2d of %d on %s\n", rank, size, node());
    fflush(stdout);

    /* The token counts the ranks that it visits. */
    int token = 0, left = (rank + size - 1) % size, right = (rank + 1) % size;
    double since = MPI_Wtime();
    if (rank == 0) {
        token = 1;
        if (size > 1) {
            MPI_Send(&token, 1, MPI_INT, right, 0, MPI_COMM_WORLD);
            MPI_Recv(&token, 1, MPI_INT, left, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        printf("the token is back after %d ranks and %.0f ms\n", token, (MPI_Wtime() - since) * 1e3);
    } else {
        MPI_Recv(&token, 1, MPI_INT, left, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        token++;
        MPI_Send(&token, 1, MPI_INT, right, 0, MPI_COMM_WORLD);
    }

    const long long steps = 40000000;
    double width = 1.0 / steps, mine = 0, pi = 0;
    since = MPI_Wtime();
    for (long long i = rank; i < steps; i += size) {
        double x = (i + 0.5) * width;
        mine += 4 / (1 + x * x) * width;
    }
    MPI_Reduce(&mine, &pi, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("pi is %.12f, computed in %.0f ms\n", pi, (MPI_Wtime() - since) * 1e3);
    MPI_Finalize();
    return fabs(pi - M_PI) > 1e-9 && rank == 0;
}
