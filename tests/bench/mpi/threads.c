/* Measures what several threads of a rank cost each other (MPI_THREAD_MULTIPLE). Each thread has a communicator of its own, and the thread with
 * the same number on the other rank as its partner.
 *
 *   threads MS
 *
 * With 1, 2, 4 and 8 threads for each of two ranks: messages to and fro, 64 messages one way and a short answer, and allreduces. Rank 0 prints
 * one JSON object per figure and line: the time for one message or operation of all threads together, so a figure that does not change with the
 * number of threads means that they cost each other nothing.
 */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_THREADS = 8, WINDOW = 64, TAG = 7, LONGEST = 4096, MOST_TIMES = 1 << 20 };

typedef enum { TO_AND_FRO, ONE_WAY, ALLREDUCE, KINDS } Kind;

static const struct {
    const char *name;
    /* Messages or operations in one repetition. */
    int count;
} kinds[KINDS] = {{"to and fro", 2}, {"one way", WINDOW}, {"allreduce", 1}};

typedef struct {
    Kind kind;
    int bytes;
    long times;
    MPI_Comm comm;
    /* What it took, in seconds. */
    double took;
    unsigned char *out, *in;
} Part;

static int rank;
static Part parts[MOST_THREADS];
static pthread_barrier_t all_are_there;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void check(int right, const char *what) {
    if (!right) {
        fprintf(stderr, "rank %d: %s went wrong\n", rank, what);
        MPI_Abort(MPI_COMM_WORLD, 9);
    }
}

static void to_and_fro(const Part *p) {
    for (long i = 0; i < p->times; i++) {
        if (rank == 0)
            MPI_Send(p->out, p->bytes, MPI_BYTE, 1, TAG, p->comm);
        MPI_Recv(p->in, p->bytes, MPI_BYTE, 1 - rank, TAG, p->comm, MPI_STATUS_IGNORE);
        if (rank == 1)
            MPI_Send(p->out, p->bytes, MPI_BYTE, 0, TAG, p->comm);
    }
    check(p->in[0] == 2 - rank && p->in[p->bytes - 1] == 2 - rank, "a message");
}

static void one_way(const Part *p) {
    MPI_Request requests[WINDOW];
    for (long i = 0; i < p->times; i++) {
        for (int k = 0; k < WINDOW; k++) {
            if (rank == 0)
                MPI_Isend(p->out, p->bytes, MPI_BYTE, 1, TAG, p->comm, &requests[k]);
            else
                MPI_Irecv(p->in, p->bytes, MPI_BYTE, 0, TAG, p->comm, &requests[k]);
        }
        MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
        if (rank == 0)
            MPI_Recv(NULL, 0, MPI_BYTE, 1, TAG, p->comm, MPI_STATUS_IGNORE);
        else
            MPI_Send(NULL, 0, MPI_BYTE, 0, TAG, p->comm);
    }
    check(rank == 0 || (p->in[0] == 1 && p->in[p->bytes - 1] == 1), "a message of a window");
}

static void allreduce(const Part *p) {
    for (long i = 0; i < p->times; i++)
        MPI_Allreduce(p->out, p->in, p->bytes, MPI_BYTE, MPI_BOR, p->comm);
    check(p->in[0] == 3 && p->in[p->bytes - 1] == 3, "an allreduce");
}

static void *run(void *argument) {
    Part *p = argument;
    pthread_barrier_wait(&all_are_there);
    double since = now();
    if (p->kind == TO_AND_FRO)
        to_and_fro(p);
    else if (p->kind == ONE_WAY)
        one_way(p);
    else
        allreduce(p);
    p->took = now() - since;
    return NULL;
}

/* The time until the last thread of both ranks has done its repetitions. */
static double batch(int threads, Kind kind, int bytes, long times) {
    pthread_t started[MOST_THREADS];
    pthread_barrier_init(&all_are_there, NULL, (unsigned)threads);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int t = 0; t < threads; t++) {
        parts[t].kind = kind;
        parts[t].bytes = bytes;
        parts[t].times = times;
        check(pthread_create(&started[t], NULL, run, &parts[t]) == 0, "a thread");
    }
    double took = 0, longest;
    for (int t = 0; t < threads; t++) {
        pthread_join(started[t], NULL);
        took = parts[t].took > took ? parts[t].took : took;
    }
    pthread_barrier_destroy(&all_are_there);
    MPI_Allreduce(&took, &longest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return longest;
}

int main(int argc, char **argv) {
    int provided, size;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc != 2 || size != 2 || provided != MPI_THREAD_MULTIPLE) {
        fprintf(stderr, "usage: threads MS, with 2 ranks of a library for threads\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    double budget = atof(argv[1]) * 1e-3;
    for (int t = 0; t < MOST_THREADS; t++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &parts[t].comm);
        parts[t].out = malloc(LONGEST);
        parts[t].in = calloc(LONGEST, 1);
        memset(parts[t].out, rank + 1, LONGEST);
    }
    for (int kind = 0; kind < KINDS; kind++)
        for (int bytes = 8; bytes <= LONGEST; bytes *= LONGEST / 8)
            for (int threads = 1; threads <= MOST_THREADS; threads *= 2) {
                double took = 0;
                long times = 1;
                while ((took = batch(threads, (Kind)kind, bytes, times)) < budget && times < MOST_TIMES)
                    times *= 4;
                double each = took / (double)times / threads / kinds[kind].count * 1e6;
                if (rank == 0)
                    printf("{\"figure\":\"%s, %d thread%s\",\"bytes\":%d,\"value\":%.5g,\"unit\":\"us\"}\n", kinds[kind].name, threads,
                           threads > 1 ? "s" : "", bytes, each);
                fflush(stdout);
            }
    for (int t = 0; t < MOST_THREADS; t++) {
        MPI_Comm_free(&parts[t].comm);
        free(parts[t].out);
        free(parts[t].in);
    }
    MPI_Finalize();
    return 0;
}
