/* With RSD_MPI_PROGRESS=thread: long messages, collectives and one-sided operations go on while all ranks compute, which here means that they
 * look at their memory and make no call. Without it, this program would not end. */
#include "check.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#define LONG (1 << 20)

static void computes_until(const int *place, int expected) {
    while (*(const volatile int *)place != expected)
        ;
}

/* Messages in a ring; the receive is posted before, so nobody has to call anything. */
static void messages(MPI_Comm comm, int round) {
    MPI_Request requests[2];
    int *in = room(LONG * sizeof *in), *out = room(LONG * sizeof *out);
    memset(in, 0, LONG * sizeof *in);
    fill(out, LONG, rank + round);
    out[LONG - 1] = 77 + round;
    MPI_Irecv(in, LONG, MPI_INT, left(), 1, comm, &requests[0]);
    MPI_Isend(out, LONG, MPI_INT, right(), 1, comm, &requests[1]);
    computes_until(&in[LONG - 1], 77 + round);
    CHECK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE) == MPI_SUCCESS);
    CHECK(filled(in, LONG - 1, left() + round));
    free(in);
    free(out);
}

static void collectives(MPI_Comm comm, int round) {
    MPI_Request request;
    int *in = room(LONG * sizeof *in), *out = room(LONG * sizeof *out), good = 1;
    for (int i = 0; i < LONG; i++) {
        out[i] = 1 + round;
        in[i] = 0;
    }
    MPI_Iallreduce(out, in, LONG, MPI_INT, MPI_SUM, comm, &request);
    for (int i = 0; i < LONG; i += LONG / 16)
        computes_until(&in[i], size * (1 + round));
    CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    for (int i = 0; i < LONG; i++)
        good &= in[i] == size * (1 + round);
    CHECK(good);
    free(in);
    free(out);
}

/* Rank 0 computes until all others have locked its memory, and written to it. */
static void targets(MPI_Comm comm, int dynamic) {
    int memory[3] = {0}, one = 1;
    MPI_Aint at = 0;
    MPI_Win win;
    if (dynamic) {
        MPI_Win_create_dynamic(MPI_INFO_NULL, comm, &win);
        MPI_Win_attach(win, memory, sizeof memory);
        MPI_Get_address(memory, &at);
        MPI_Bcast(&at, 1, MPI_AINT, 0, comm);
    } else {
        MPI_Win_create(memory, sizeof memory, 1, MPI_INFO_NULL, comm, &win);
    }
    MPI_Barrier(comm);
    if (rank == 0) {
        computes_until(&memory[2], size - 1);
        CHECK(memory[0] == size - 1 && memory[1] == size - 1);
    } else {
        int seen = -1;
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
        MPI_Get(&seen, 1, MPI_INT, 0, at, 1, MPI_INT, win);
        MPI_Win_flush(0, win);
        seen++;
        MPI_Put(&seen, 1, MPI_INT, 0, at, 1, MPI_INT, win);
        MPI_Win_unlock(0, win);
        MPI_Win_lock_all(0, win);
        MPI_Fetch_and_op(&one, &seen, MPI_INT, 0, at + 4, MPI_SUM, win);
        MPI_Win_flush(0, win);
        MPI_Accumulate(&one, 1, MPI_INT, 0, at + 8, 1, MPI_INT, MPI_SUM, win);
        MPI_Win_unlock_all(win);
    }
    MPI_Barrier(comm);
    MPI_Win_free(&win);
}

/* Short messages between the phases: the thread has to stand back, and to come again. */
static void chat(MPI_Comm comm, int tag) {
    for (int i = 0; i < 200; i++) {
        int token = i, got = -1;
        MPI_Sendrecv(&token, 1, MPI_INT, right(), tag, &got, 1, MPI_INT, left(), tag, comm, MPI_STATUS_IGNORE);
        CHECK(got == i);
    }
}

static void *chats(void *comm) {
    for (int i = 0; i < 20; i++)
        chat(*(MPI_Comm *)comm, 9);
    return NULL;
}

int main(int argc, char **argv) {
    int levels[] = {MPI_THREAD_SINGLE, MPI_THREAD_MULTIPLE}, provided;
    MPI_Init_thread(&argc, &argv, levels[argc > 1 && strcmp(argv[1], "threads") == 0], &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm world, other;
    MPI_Comm_dup(MPI_COMM_WORLD, &world);
    MPI_Comm_dup(MPI_COMM_WORLD, &other);
    pthread_t thread;
    if (provided == MPI_THREAD_MULTIPLE)
        pthread_create(&thread, NULL, chats, &other);
    for (int round = 0; round < 3; round++) {
        messages(world, round);
        chat(world, 5);
        collectives(world, round);
    }
    targets(world, 0);
    targets(world, 1);
    /* A child has no such thread, and does not wait for it. */
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    if (provided == MPI_THREAD_MULTIPLE)
        pthread_join(thread, NULL);
    MPI_Comm_free(&world);
    MPI_Comm_free(&other);
    return finish("progress");
}
