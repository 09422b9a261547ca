/* Buffered sends (MPI 5.0 §3.6): what an attached buffer has room for, and what flushing and detaching wait for, also with threads. Even ranks
 * send to the next one. */
#include "check.h"

#include <pthread.h>
#include <unistd.h>

enum { LONG = 1 << 20, MEDIUM = 128 << 10, ROOM = 2 * (LONG + MPI_BSEND_OVERHEAD), ROUNDS = 200 };
enum { TAG = 1, LATER, GO, END };

static int gives, takes;
static char *data, *buffer;

static void attach(int bytes) {
    MPI_Buffer_attach(buffer, bytes);
}

static void detach(void) {
    void *was;
    int bytes;
    MPI_Buffer_detach(&was, &bytes);
}

static int is_all(const char *bytes, int length, char value) {
    for (int i = 0; i < length; i++)
        if (bytes[i] != value)
            return 0;
    return 1;
}

static void give(int length, char value, int tag) {
    memset(data, value, (size_t)length);
    CHECK(MPI_Bsend(data, length, MPI_BYTE, rank + 1, tag, MPI_COMM_WORLD) == MPI_SUCCESS);
    memset(data, -1, (size_t)length);
}

static void take(int length, char value, int tag) {
    memset(data, -2, (size_t)length);
    MPI_Recv(data, length, MPI_BYTE, rank - 1, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    CHECK(is_all(data, length, value));
}

static void take_go(void) {
    MPI_Recv(NULL, 0, MPI_BYTE, rank - 1, GO, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* A buffer for one message has room for the next one as soon as the receiver has the first, although the sender only meets it in barriers. */
static void one_at_a_time(void) {
    if (gives)
        attach(LONG + MPI_BSEND_OVERHEAD);
    for (int i = 0; i < 10; i++) {
        if (gives) {
            give(LONG, (char)i, TAG);
            usleep(10000);
        } else if (takes) {
            take(LONG, (char)i, TAG);
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
    if (gives)
        detach();
}

/* A flush is for the messages before it, whatever becomes of the buffer. */
static void flush_of_an_earlier_buffer(void) {
    if (gives) {
        MPI_Request flush;
        attach(ROOM);
        give(LONG, 1, TAG);
        MPI_Buffer_iflush(&flush);
        detach();
        attach(ROOM);
        give(LONG, 2, LATER);
        MPI_Wait(&flush, MPI_STATUS_IGNORE);
        MPI_Send(NULL, 0, MPI_BYTE, rank + 1, GO, MPI_COMM_WORLD);
        detach();
    } else if (takes) {
        take(LONG, 1, TAG);
        take_go();
        take(LONG, 2, LATER);
    }
}

static void *flush_then_go(void *unused) {
    MPI_Buffer_flush();
    MPI_Send(NULL, 0, MPI_BYTE, rank + 1, GO, MPI_COMM_WORLD);
    return unused;
}

/* Nor does it wait for what another thread sends meanwhile. */
static void flush_beside_a_send(void) {
    if (gives) {
        pthread_t flusher;
        attach(ROOM);
        give(LONG, 1, TAG);
        pthread_create(&flusher, NULL, flush_then_go, NULL);
        usleep(50000);
        give(LONG, 2, LATER);
        pthread_join(flusher, NULL);
        detach();
    } else if (takes) {
        usleep(100000);
        take(LONG, 1, TAG);
        take_go();
        take(LONG, 2, LATER);
    }
}

static void *change_buffers(void *unused) {
    for (int i = 0; i < ROUNDS; i++) {
        detach();
        attach(ROOM);
    }
    return unused;
}

/* A message either finds no buffer, or arrives as it was. */
static void detached_beside_sends(void) {
    if (gives) {
        pthread_t changer;
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        attach(ROOM);
        pthread_create(&changer, NULL, change_buffers, NULL);
        for (int i = 0; i < ROUNDS; i++) {
            memset(data, i % 100, MEDIUM);
            (void)MPI_Bsend(data, MEDIUM, MPI_BYTE, rank + 1, TAG, MPI_COMM_WORLD);
            memset(data, -1, MEDIUM);
        }
        pthread_join(changer, NULL);
        detach();
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
        MPI_Send(NULL, 0, MPI_BYTE, rank + 1, END, MPI_COMM_WORLD);
    } else if (takes) {
        for (;;) {
            MPI_Status status;
            MPI_Recv(data, MEDIUM, MPI_BYTE, rank - 1, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
            if (status.MPI_TAG == END)
                break;
            CHECK(data[0] != (char)-1 && is_all(data, MEDIUM, data[0]));
        }
    }
}

/* A persistent request may be started after its communicator was freed. */
static void after_its_communicator(void) {
    MPI_Comm freed;
    MPI_Request requests[2];
    int got = -1;
    attach(ROOM);
    MPI_Comm_dup(MPI_COMM_WORLD, &freed);
    MPI_Recv_init(&got, 1, MPI_INT, left(), TAG, freed, &requests[0]);
    MPI_Bsend_init(&rank, 1, MPI_INT, right(), TAG, freed, &requests[1]);
    MPI_Comm_free(&freed);
    MPI_Startall(2, requests);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    CHECK(got == left());
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
    detach();
}

/* The size of an automatic buffer means nothing. */
static void automatic(void) {
    void *was;
    int bytes;
    CHECK(MPI_Buffer_attach(MPI_BUFFER_AUTOMATIC, -1) == MPI_SUCCESS);
    if (gives)
        give(LONG, 1, TAG);
    else if (takes)
        take(LONG, 1, TAG);
    MPI_Buffer_detach(&was, &bytes);
    CHECK(was == MPI_BUFFER_AUTOMATIC);
}

int main(int argc, char **argv) {
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    CHECK(provided == MPI_THREAD_MULTIPLE);
    gives = rank % 2 == 0 && rank + 1 < size;
    takes = rank % 2;
    data = room(LONG);
    buffer = room(ROOM);
    /* After a few, barriers go through shared memory, where they receive no messages. */
    for (int i = 0; i < 5; i++)
        MPI_Barrier(MPI_COMM_WORLD);
    one_at_a_time();
    flush_of_an_earlier_buffer();
    flush_beside_a_send();
    detached_beside_sends();
    after_its_communicator();
    automatic();
    free(data);
    free(buffer);
    return finish("buffered");
}
