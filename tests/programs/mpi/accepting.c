/* MPI_THREAD_MULTIPLE around connections, of two jobs of the same size. `accepting host FILE`: two threads of every process accept at
 * their own ports, while others exchange messages and run collectives. The ports' names are written to FILE once those have done their
 * share: threads that wait must not block the others. `accepting guest FILE`: two threads of every process connect, while others exchange
 * messages. `accepting alone`: no process connects, and the accepting threads time out. */
#include "check.h"

#include <pthread.h>
#include <time.h>

enum { PORTS = 2, TALKERS = 2, ROUNDS = 200, LONG = 40000, COMES = 3 };

typedef struct {
    int number;
    char port[MPI_MAX_PORT_NAME];
    MPI_Comm own;
    int wrong;
} Thread;

/* Both sides of a connection, of one process each: 0 accepts, 1 connects. */
static void use(Thread *t, MPI_Comm inter, int side) {
    int remote = 0, sum = 0, one = side + 1, length = LONG;
    int *out = room(LONG * sizeof *out), *in = room(LONG * sizeof *in);
    MPI_Comm all;
    MPI_Comm_remote_size(inter, &remote);
    MUST(remote == 1);
    fill(out, length, side + t->number % 10);
    MPI_Sendrecv(out, length, MPI_INT, 0, 7, in, length, MPI_INT, 0, 7, inter, MPI_STATUS_IGNORE);
    MUST(filled(in, length, 1 - side + t->number % 10));
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, inter);
    MUST(sum == 2 - side);
    MPI_Intercomm_merge(inter, side, &all);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, all);
    MUST(sum == 3);
    MPI_Comm_free(&all);
    free(out);
    free(in);
}

static void *accepts(void *argument) {
    Thread *t = argument;
    for (int i = 0; i < COMES; i++) {
        MPI_Comm inter;
        MPI_Comm_accept(t->port, MPI_INFO_NULL, 0, t->own, &inter);
        use(t, inter, 0);
        MPI_Comm_disconnect(&inter);
    }
    return NULL;
}

static void *connects(void *argument) {
    Thread *t = argument;
    for (int i = 0; i < COMES; i++) {
        MPI_Comm inter;
        MPI_Comm_connect(t->port, MPI_INFO_NULL, 0, t->own, &inter);
        use(t, inter, 1);
        MPI_Comm_disconnect(&inter);
    }
    return NULL;
}

static void *gives_up(void *argument) {
    Thread *t = argument;
    MPI_Comm inter;
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "timeout", "0.5");
    int code = MPI_Comm_accept(t->port, info, 0, t->own, &inter);
    MUST(class_of(code) == MPI_ERR_PORT);
    /* Each gets the error of its own port, whose name contains the address. */
    char at[MPI_MAX_PORT_NAME];
    snprintf(at, sizeof at, "%s", strchr(t->port, '/') + 1);
    *strchr(at, '/') = 0;
    MUST(says(code, at));
    MPI_Info_free(&info);
    return NULL;
}

static void *talks(void *argument) {
    Thread *t = argument;
    int *out = room(LONG * sizeof *out), *in = room(LONG * sizeof *in);
    for (int i = 0; i < ROUNDS; i++) {
        MPI_Request requests[2];
        int length = i % 50 ? 1 + i % 7 : LONG, sum = 0;
        fill(out, length, rank + t->number);
        MPI_Irecv(in, length, MPI_INT, left(), t->number, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(out, length, MPI_INT, right(), t->number, MPI_COMM_WORLD, &requests[1]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        MUST(filled(in, length, left() + t->number));
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, t->own);
        MUST(sum == size * (size - 1) / 2);
    }
    free(out);
    free(in);
    return NULL;
}

enum { ACCEPTING, CONNECTING, TALKING };

static pthread_t ids[3][2];
static Thread threads[3][2];

static void start(int kind, int count, void *(*run)(void *), MPI_Comm from) {
    for (int i = 0; i < count; i++) {
        Thread *t = &threads[kind][i];
        t->number = 10 * kind + i;
        MPI_Comm_dup(from, &t->own);
        /* Here an accept is expected to time out. */
        MPI_Comm_set_errhandler(t->own, run == gives_up ? MPI_ERRORS_RETURN : MPI_ERRORS_ARE_FATAL);
        CHECK(pthread_create(&ids[kind][i], NULL, run, t) == 0);
    }
}

static void join(int kind, int count) {
    for (int i = 0; i < count; i++) {
        pthread_join(ids[kind][i], NULL);
        CHECK(threads[kind][i].wrong == 0);
        MPI_Comm_free(&threads[kind][i].own);
    }
}

/* The ports of all processes, in rank order. */
static void tell(const char *path) {
    char *names = room((size_t)size * PORTS * MPI_MAX_PORT_NAME), mine[PORTS][MPI_MAX_PORT_NAME];
    for (int i = 0; i < PORTS; i++)
        memcpy(mine[i], threads[ACCEPTING][i].port, MPI_MAX_PORT_NAME);
    MPI_Gather(mine, sizeof mine, MPI_BYTE, names, sizeof mine, MPI_BYTE, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        char whole[4096];
        snprintf(whole, sizeof whole, "%s.new", path);
        FILE *file = fopen(whole, "w");
        CHECK(fwrite(names, sizeof mine, (size_t)size, file) == (size_t)size);
        fclose(file);
        rename(whole, path);
    }
    free(names);
}

/* The ports of the process with the same rank on the other side. */
static void hear(const char *path) {
    FILE *file;
    while (!(file = fopen(path, "r"))) {
        struct timespec pause = {0, 1000000};
        nanosleep(&pause, NULL);
    }
    CHECK(fseek(file, (long)rank * PORTS * MPI_MAX_PORT_NAME, SEEK_SET) == 0);
    for (int i = 0; i < PORTS; i++)
        CHECK(fread(threads[CONNECTING][i].port, MPI_MAX_PORT_NAME, 1, file) == 1);
    fclose(file);
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "", *path = argc > 2 ? argv[2] : "";
    int provided, host = strcmp(mode, "host") == 0, guest = strcmp(mode, "guest") == 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    CHECK(provided == MPI_THREAD_MULTIPLE);
    if (guest) {
        hear(path);
        start(CONNECTING, PORTS, connects, MPI_COMM_SELF);
    } else {
        for (int i = 0; i < PORTS; i++)
            MPI_Open_port(MPI_INFO_NULL, threads[ACCEPTING][i].port);
        start(ACCEPTING, PORTS, host ? accepts : gives_up, MPI_COMM_SELF);
    }
    start(TALKING, TALKERS, talks, MPI_COMM_WORLD);
    join(TALKING, TALKERS);
    if (host) {
        tell(path);
        start(TALKING, TALKERS, talks, MPI_COMM_WORLD);
        join(TALKING, TALKERS);
    }
    join(guest ? CONNECTING : ACCEPTING, PORTS);
    for (int i = 0; i < PORTS && !guest; i++)
        CHECK(MPI_Close_port(threads[ACCEPTING][i].port) == MPI_SUCCESS);
    return finish("accepting");
}
