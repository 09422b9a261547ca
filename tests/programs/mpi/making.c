/* Communicators made concurrently: by threads, by MPI_Comm_idup in a different order on each rank, by overlapping groups; attributes at the end. */
#include "check.h"

#include <pthread.h>

enum { THREADS = 4, ROUNDS = 40 };

/* A token travels round the communicator: traffic in other communicators does not affect it. */
static int goes_round(MPI_Comm comm, int token) {
    int mine, members, got = -1;
    MPI_Comm_rank(comm, &mine);
    MPI_Comm_size(comm, &members);
    MPI_Sendrecv(&token, 1, MPI_INT, (mine + 1) % members, 7, &got, 1, MPI_INT, (mine + members - 1) % members, MPI_ANY_TAG, comm,
                 MPI_STATUS_IGNORE);
    return got == token;
}

/* Duplicates of two communicators, started in different orders on different ranks, with a blocking one in between. */
static void crossed(void) {
    MPI_Comm a, b, of_a, of_b, both;
    MPI_Request requests[2];
    MPI_Comm_dup(MPI_COMM_WORLD, &a);
    MPI_Comm_dup(MPI_COMM_WORLD, &b);
    if (rank % 2) {
        MPI_Comm_idup(a, &of_a, &requests[0]);
        MPI_Comm_dup(b, &of_b);
        requests[1] = MPI_REQUEST_NULL;
    } else {
        MPI_Comm_dup(b, &of_b);
        MPI_Comm_idup(a, &of_a, &requests[0]);
        requests[1] = MPI_REQUEST_NULL;
    }
    /* A parent may be freed while its duplicate is being made. */
    MPI_Comm_free(&a);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    CHECK(goes_round(of_a, 11) && goes_round(of_b, 12));
    MPI_Comm_idup(of_a, &both, &requests[0]);
    /* It progresses while another call waits. */
    CHECK(goes_round(of_b, 13));
    int flag = 0;
    while (!flag)
        MPI_Test(&requests[0], &flag, MPI_STATUS_IGNORE);
    CHECK(goes_round(both, 14));
    MPI_Comm_free(&both);
    MPI_Comm_free(&of_a);
    MPI_Comm_free(&of_b);
    MPI_Comm_free(&b);
}

typedef struct {
    int number;
    MPI_Comm parent;
    int wrong;
} Thread;

static void *run(void *argument) {
    Thread *t = argument;
    MPI_Group all, some;
    MPI_Comm_group(t->parent, &all);
    int half[1][3] = {{0, size / 2, 1}};
    MPI_Group_range_incl(all, 1, half, &some);
    for (int i = 0; i < ROUNDS; i++) {
        MPI_Comm made, half_of;
        MPI_Comm_dup(t->parent, &made);
        t->wrong += !goes_round(made, t->number * 1000 + i);
        MPI_Comm_split(made, rank % 2, -rank, &half_of);
        t->wrong += !goes_round(half_of, t->number * 1000 + i);
        MPI_Comm_free(&half_of);
        MPI_Comm_free(&made);
        /* All threads on one parent, distinguished by their tags. */
        if (rank <= size / 2) {
            MPI_Comm_create_group(MPI_COMM_WORLD, some, t->number, &made);
            t->wrong += !goes_round(made, t->number * 2000 + i);
            MPI_Comm_free(&made);
        }
    }
    MPI_Group_free(&some);
    MPI_Group_free(&all);
    return NULL;
}

static void threads(void) {
    Thread them[THREADS];
    pthread_t ids[THREADS];
    for (int i = 0; i < THREADS; i++) {
        them[i] = (Thread){.number = i};
        MPI_Comm_dup(MPI_COMM_WORLD, &them[i].parent);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_create(&ids[i], NULL, run, &them[i]);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(ids[i], NULL);
        CHECK(them[i].wrong == 0);
        MPI_Comm_free(&them[i].parent);
    }
}

/* Contexts are reused: far more communicators than a process could have at a time. */
static void many(void) {
    for (int i = 0; i < 5000; i++) {
        MPI_Comm comm;
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        if (i % 500 == 0)
            CHECK(goes_round(comm, i));
        MPI_Comm_free(&comm);
    }
}

/* --- at the end --- */

static int ended[4], ends;

static int at_end(MPI_Comm comm, int key, void *value, void *extra) {
    int finalized;
    MPI_Finalized(&finalized);
    (void)key, (void)extra;
    if (!finalized && (comm == MPI_COMM_SELF || comm == MPI_COMM_WORLD) && ends < 4)
        ended[ends] = *(int *)value;
    ends++;
    return MPI_SUCCESS;
}

int main(int argc, char **argv) {
    int provided, keys[4];
    static int order[4] = {1, 2, 3, 4};
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    crossed();
    threads();
    many();
    for (int i = 0; i < 4; i++) {
        MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, at_end, &keys[i], NULL);
        MPI_Comm_set_attr(i < 3 ? MPI_COMM_SELF : MPI_COMM_WORLD, keys[i], &order[i]);
        MPI_Comm_free_keyval(&keys[i]);
    }
    int failed = finish("making");
    /* The attributes of COMM_SELF are deleted first, in reverse order. */
    if (ends != 4 || ended[0] != 3 || ended[1] != 2 || ended[2] != 1 || ended[3] != 4) {
        fprintf(stderr, "rank %d: %d attributes were deleted at the end, %d %d %d %d\n", rank, ends, ended[0], ended[1], ended[2], ended[3]);
        return 1;
    }
    return failed;
}
