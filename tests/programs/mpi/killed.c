/* The last rank dies without a farewell. Each other rank waits for a message from it or, with an argument, is in a collective
 * operation after some successful ones; it gets an error of class MPI_ERR_PROC_ABORTED within a second, prints
 * `rank N noticed` and ends. For launchers that do not end the others. */
#include "check.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* All but the last rank get an error in the middle of an operation, and in each later one. */
static void together(void) {
    double since, last;
    for (int i = 0; i < 10; i++) {
        since = now();
        CHECK(MPI_Allreduce(&since, &last, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD) == MPI_SUCCESS);
    }
    /* The last rank dies only when all others have completed the last reduction. */
    for (int from = 0; from < size - 1 && rank == size - 1; from++)
        MPI_Recv(NULL, 0, MPI_BYTE, from, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank == size - 1)
        raise(SIGKILL);
    MPI_Send(NULL, 0, MPI_BYTE, size - 1, 1, MPI_COMM_WORLD);
    FAILS(MPI_Barrier(MPI_COMM_WORLD), MPI_ERR_PROC_ABORTED);
    CHECK(now() - last < 1.5);
    FAILS(MPI_Allreduce(&since, &last, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD), MPI_ERR_PROC_ABORTED);
    if (!wrong)
        printf("rank %d noticed\n", rank);
    fflush(stdout);
    _exit(wrong != 0);
}

static int iprobe(int from) {
    int flag = 0, code = MPI_SUCCESS;
    while (!flag && code == MPI_SUCCESS) {
        code = MPI_Iprobe(from, 1, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
        usleep(20000);
    }
    return code;
}

static int accepting(void) {
    char port[MPI_MAX_PORT_NAME] = "";
    MPI_Comm inter;
    if (rank == 0)
        MPI_Open_port(MPI_INFO_NULL, port);
    return MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter);
}

/* The last rank has communicated with no other when it dies. A rank that waits for it notices once the launcher closes the connections,
 * after its grace. */
static void unknown(const char *way) {
    int token = 0, last = size - 1, code = MPI_SUCCESS;
    MPI_Message message;
    if (rank == last) {
        usleep(300000);
        raise(SIGKILL);
    }
    double since = now();
    if (strcmp(way, "recv") == 0)
        code = MPI_Recv(&token, 1, MPI_INT, last, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else if (strcmp(way, "any") == 0)
        code = MPI_Recv(&token, 1, MPI_INT, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else if (strcmp(way, "probe") == 0)
        code = MPI_Probe(last, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else if (strcmp(way, "mprobe") == 0)
        code = MPI_Mprobe(last, 1, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
    else if (strcmp(way, "iprobe") == 0)
        code = iprobe(last);
    else if (strcmp(way, "ssend") == 0)
        code = MPI_Ssend(&token, 1, MPI_INT, last, 1, MPI_COMM_WORLD);
    else if (strcmp(way, "accept") == 0)
        code = accepting();
    FAILS(code, MPI_ERR_PROC_ABORTED);
    CHECK(now() - since < 10);
    if (!wrong)
        printf("rank %d noticed\n", rank);
    fflush(stdout);
    _exit(wrong != 0);
}

int main(int argc, char **argv) {
    begin(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (argc > 1 && strcmp(argv[1], "unknown") == 0)
        unknown(argc > 2 ? argv[2] : "recv");
    if (argc > 1)
        together();
    double since = 0;
    int token;
    if (rank == size - 1) {
        for (int to = 0; to < size - 1; to++) {
            since = now();
            MPI_Ssend(&since, 1, MPI_DOUBLE, to, 1, MPI_COMM_WORLD);
        }
        raise(SIGKILL);
    }
    MPI_Recv(&since, 1, MPI_DOUBLE, size - 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    FAILS(MPI_Recv(&token, 1, MPI_INT, size - 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE), MPI_ERR_PROC_ABORTED);
    double took = now() - since;
    if (took > 1.5)
        fprintf(stderr, "rank %d noticed after %.2f s\n", rank, took);
    CHECK(took < 1.5);
    /* Nothing can be received from it, and nothing sent. */
    FAILS(MPI_Recv(&token, 1, MPI_INT, size - 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE), MPI_ERR_PROC_ABORTED);
    CHECK(MPI_Ssend(&token, 1, MPI_INT, size - 1, 3, MPI_COMM_WORLD) != MPI_SUCCESS);
    if (!wrong)
        printf("rank %d noticed\n", rank);
    fflush(stdout);
    /* MPI_Finalize would wait for it. */
    _exit(wrong != 0);
}
