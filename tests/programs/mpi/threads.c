/* MPI_THREAD_MULTIPLE: four threads per rank, each with its own message tags and its own communicator for collectives; then
 * all of them on one communicator. Threads that wait do not block the others. */
#include "check.h"

#include <pthread.h>
#include <unistd.h>

enum { THREADS = 4, ROUNDS = 300, LONG = 40000 };

typedef struct {
    int number;
    MPI_Comm own;
    int wrong;
} Thread;

static void ping(Thread *t, MPI_Comm comm, int length, int *out, int *in) {
    MPI_Request requests[2];
    fill(out, length, rank + t->number);
    MPI_Irecv(in, length, MPI_INT, left(), t->number, comm, &requests[0]);
    MPI_Isend(out, length, MPI_INT, right(), t->number, comm, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    MUST(filled(in, length, left() + t->number));
}

static void *run(void *argument) {
    Thread *t = argument;
    int *out = room(LONG * sizeof *out), *in = room(LONG * sizeof *in);
    for (int i = 0; i < ROUNDS; i++) {
        ping(t, MPI_COMM_WORLD, i % 50 ? 1 + i % 7 : LONG, out, in);
        int sum = 0, token = t->number;
        if (i % 5 == 0) {
            MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, t->own);
            MUST(sum == size * (size - 1) / 2);
        }
        if (i % 7 == 0) {
            MPI_Bcast(&token, 1, MPI_INT, i % size, t->own);
            MUST(token == t->number);
        }
        if (i % 20 == 0) {
            MPI_Request request;
            MPI_Ibarrier(t->own, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
        if (i % 100 == 0) {
            MPI_Comm dup;
            MPI_Comm_dup(t->own, &dup);
            ping(t, dup, 10, out, in);
            MPI_Comm_free(&dup);
        }
    }
    free(out);
    free(in);
    return NULL;
}

static MPI_Comm waiting;

/* Waits for a message that arrives last of all. */
static void *wait_long(void *argument) {
    Thread *t = argument;
    int got = -1;
    MPI_Recv(&got, 1, MPI_INT, left(), 99, waiting, MPI_STATUS_IGNORE);
    MUST(got == left());
    return NULL;
}

static int ignore_query(void *state, MPI_Status *status) {
    (void)state;
    MPI_Status_set_elements(status, MPI_BYTE, 0);
    MPI_Status_set_cancelled(status, 0);
    status->MPI_SOURCE = status->MPI_TAG = MPI_UNDEFINED;
    return MPI_SUCCESS;
}

static int ignore_free(void *state) {
    (void)state;
    return MPI_SUCCESS;
}

static int ignore_cancel(void *state, int complete) {
    (void)state;
    (void)complete;
    return MPI_SUCCESS;
}

static MPI_Request general[2];

/* Waits for one of several requests that only another thread completes. */
static void *wait_any(void *argument) {
    Thread *t = argument;
    int unused, index = -1, count = 0, indices[3];
    MPI_Request requests[3];
    MPI_Irecv(&unused, 1, MPI_INT, left(), 98, waiting, &requests[0]);
    for (int turn = 0; turn < 2; turn++) {
        requests[1] = MPI_REQUEST_NULL;
        requests[2] = general[turn];
        if (turn)
            MPI_Waitsome(3, requests, &count, indices, MPI_STATUSES_IGNORE);
        else
            MPI_Waitany(3, requests, &index, MPI_STATUS_IGNORE);
        MUST(turn ? count == 1 && indices[0] == 2 : index == 2);
        MPI_Send(&turn, 1, MPI_INT, rank, 97, waiting);
    }
    MPI_Cancel(&requests[0]);
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    return NULL;
}

int main(int argc, char **argv) {
    int provided, level, is_main;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    CHECK(provided == MPI_THREAD_MULTIPLE);
    MPI_Query_thread(&level);
    MPI_Is_thread_main(&is_main);
    CHECK(level == provided && is_main);
    MPI_Comm_dup(MPI_COMM_WORLD, &waiting);
    pthread_t ids[THREADS], waiter;
    Thread threads[THREADS], patient = {.number = -1};
    for (int i = 0; i < THREADS; i++) {
        threads[i] = (Thread){.number = i};
        MPI_Comm_dup(MPI_COMM_WORLD, &threads[i].own);
    }
    pthread_create(&waiter, NULL, wait_long, &patient);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&ids[i], NULL, run, &threads[i]);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(ids[i], NULL);
        CHECK(threads[i].wrong == 0);
    }
    pthread_t chooser;
    Thread choosing = {.number = -2};
    for (int i = 0; i < 2; i++)
        MPI_Grequest_start(ignore_query, ignore_free, ignore_cancel, NULL, &general[i]);
    pthread_create(&chooser, NULL, wait_any, &choosing);
    for (int i = 0; i < 2; i++) {
        int turn;
        usleep(30000);
        MPI_Grequest_complete(general[i]);
        MPI_Recv(&turn, 1, MPI_INT, rank, 97, waiting, MPI_STATUS_IGNORE);
        CHECK(turn == i);
    }
    pthread_join(chooser, NULL);
    CHECK(choosing.wrong == 0);
    MPI_Send(&rank, 1, MPI_INT, right(), 99, waiting);
    pthread_join(waiter, NULL);
    CHECK(patient.wrong == 0);
    for (int i = 0; i < THREADS; i++)
        MPI_Comm_free(&threads[i].own);
    MPI_Comm_free(&waiting);
    return finish("threads");
}
