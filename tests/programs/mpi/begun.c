/* `begun LATE GATE`: rank LATE (-1: none) enters MPI_Init only when the file GATE.init exists; each rank prints when it has returned.
 * No rank communicates before the file GATE.talk exists; then each sends to all. */
#include "check.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

static void wait_for(const char *gate, const char *what) {
    char path[4096];
    snprintf(path, sizeof path, "%s.%s", gate, what);
    while (access(path, F_OK) != 0) {
        struct timespec pause = {0, 5000000};
        nanosleep(&pause, NULL);
    }
}

int main(int argc, char **argv) {
    const char *told = getenv("RSD_RANK"), *listener = getenv("RSD_LISTEN_FD");
    if (argc < 3 || !told)
        return 2;
    if (atoi(argv[1]) == atoi(told))
        wait_for(argv[2], "init");
    begin(&argc, &argv);
    printf("initialised %d\n", rank);
    fflush(stdout);
    /* Programs that this one executes must not inherit the launcher's socket. */
    if (listener)
        CHECK(fcntl(atoi(listener), F_GETFD) == FD_CLOEXEC);
    wait_for(argv[2], "talk");

    int *sent = malloc(2 * size * sizeof *sent), *got = sent + size;
    for (int peer = 0; peer < size; peer++)
        sent[peer] = 1000 * rank + peer, got[peer] = -1;
    MPI_Request *requests = malloc(2 * size * sizeof *requests);
    for (int peer = 0; peer < size; peer++) {
        MPI_Irecv(&got[peer], 1, MPI_INT, peer, 7, MPI_COMM_WORLD, &requests[peer]);
        MPI_Isend(&sent[peer], 1, MPI_INT, peer, 7, MPI_COMM_WORLD, &requests[size + peer]);
    }
    MPI_Waitall(2 * size, requests, MPI_STATUSES_IGNORE);
    for (int peer = 0; peer < size; peer++)
        CHECK(got[peer] == 1000 * peer + rank);
    free(requests);
    free(sent);
    int ended = finish("begun");
    if (listener)
        CHECK(fcntl(atoi(listener), F_GETFD) == -1);
    return ended || wrong;
}
