/* `idle PERCENT`: a rank that waits, in a receive and then in a barrier, uses less than PERCENT of a core. Rank 0 is late; a single rank
 * does not wait. The cost of the wait is measured from half a second after it began. */
#include "check.h"

#include <pthread.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { SECONDS = 2 };

static double cpu_s(void) {
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) + (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) * 1e-6;
}

static double after_half;

static void *look(void *unused) {
    usleep(500000);
    after_half = cpu_s();
    return unused;
}

/* The cost of the wait, as a fraction of a core. */
static double waiting(void (*wait)(void)) {
    pthread_t other;
    after_half = cpu_s();
    pthread_create(&other, NULL, look, NULL);
    wait();
    double used = cpu_s();
    pthread_join(other, NULL);
    return (used - after_half) / (SECONDS - 0.5);
}

static void receive(void) {
    int token;
    MPI_Recv(&token, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void barrier(void) {
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv) {
    begin(&argc, &argv);
    double most = (argc > 1 ? atof(argv[1]) : 1) / 100, receiving = 0, in_barrier = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        sleep(SECONDS);
        for (int to = 1; to < size; to++)
            MPI_Send(&rank, 1, MPI_INT, to, 0, MPI_COMM_WORLD);
        sleep(SECONDS);
        barrier();
    } else {
        receiving = waiting(receive);
        in_barrier = waiting(barrier);
    }
    if (receiving >= most || in_barrier >= most)
        fprintf(stderr, "rank %d used %.2f %% of a core in a receive, %.2f %% in a barrier\n", rank, 100 * receiving,
                100 * in_barrier);
    CHECK(receiving < most && in_barrier < most);
    return finish("idle");
}
