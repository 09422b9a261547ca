/* Partitioned communication (MPI 5.0 chapter 4): matching, parts of different sizes, order, threads, derived types, errors. */
#include "check.h"

#include <sys/resource.h>

/* MPICH 5.0 has neither, nor its header: a program built with it asks the library that it runs on. */
extern int MPI_Psend_init_c(const void *, int, MPI_Count, MPI_Datatype, int, int, MPI_Comm, MPI_Info, MPI_Request *)
    __attribute__((weak));
extern int MPI_Precv_init_c(void *, int, MPI_Count, MPI_Datatype, int, int, MPI_Comm, MPI_Info, MPI_Request *)
    __attribute__((weak));

enum { PARTS = 12, COUNT = 5, TOTAL = PARTS * COUNT, BIG = 1 << 18 };

static int out[4 * BIG], in[4 * BIG];

/* Round `round` of a pair of requests in the ring: the parts are released in the order i * step. */
static void round_trip(MPI_Request *both, int parts, int step, int total, int round) {
    MPI_Status status;
    int flag = -1, count;
    fill(out, total, 100 * rank + round);
    memset(in, -1, total * sizeof *in);
    MPI_Startall(2, both);
    for (int i = 0; i < parts; i++)
        MPI_Pready(i * step % parts, both[0]);
    MPI_Wait(&both[0], MPI_STATUS_IGNORE);
    MPI_Wait(&both[1], &status);
    CHECK(both[0] != MPI_REQUEST_NULL && both[1] != MPI_REQUEST_NULL);
    CHECK(status.MPI_SOURCE == left());
    MPI_Get_count(&status, MPI_INT, &count);
    CHECK(count == total);
    CHECK(filled(in, total, 100 * left() + round));
    MPI_Parrived(both[1], 0, &flag);
    CHECK(flag == 1);
}

static void rings(void) {
    MPI_Request both[2];
    /* As many parts on both sides, and more or fewer on the receiver's; short and long ones. */
    const int theirs[] = {PARTS, 1, 3, 20, 60};
    for (unsigned i = 0; i < sizeof theirs / sizeof *theirs; i++) {
        MPI_Psend_init(out, PARTS, COUNT, MPI_INT, right(), 7, MPI_COMM_WORLD, MPI_INFO_NULL, &both[0]);
        MPI_Precv_init(in, theirs[i], TOTAL / theirs[i], MPI_INT, left(), 7, MPI_COMM_WORLD, MPI_INFO_NULL, &both[1]);
        for (int round = 0; round < 3; round++)
            round_trip(both, PARTS, round == 1 ? 5 : 7, TOTAL, round);
        MPI_Request_free(&both[0]);
        MPI_Request_free(&both[1]);
        CHECK(both[0] == MPI_REQUEST_NULL);
    }
    if (MPI_Psend_init_c == NULL || MPI_Precv_init_c == NULL)
        return;
    MPI_Psend_init_c(out, 4, BIG, MPI_INT, right(), 8, MPI_COMM_WORLD, MPI_INFO_NULL, &both[0]);
    MPI_Precv_init_c(in, 8, BIG / 2, MPI_INT, left(), 8, MPI_COMM_WORLD, MPI_INFO_NULL, &both[1]);
    round_trip(both, 4, 3, 4 * BIG, 9);
    round_trip(both, 4, 1, 4 * BIG, 10);
    MPI_Request_free(&both[0]);
    MPI_Request_free(&both[1]);
}

/* A part that has arrived is seen before the others are released. */
static void arrives(void) {
    MPI_Request both[2];
    int token = 0, flag;
    MPI_Psend_init(out, 4, 3, MPI_INT, right(), 1, MPI_COMM_WORLD, MPI_INFO_NULL, &both[0]);
    MPI_Precv_init(in, 4, 3, MPI_INT, left(), 1, MPI_COMM_WORLD, MPI_INFO_NULL, &both[1]);
    fill(out, 12, rank);
    MPI_Startall(2, both);
    for (int part = 3; part >= 0; part--) {
        MPI_Pready(part, both[0]);
        for (flag = 0; !flag;)
            MPI_Parrived(both[1], part, &flag);
        for (int i = 3 * part; i < 3 * part + 3; i++)
            CHECK(in[i] == value(left(), i));
        if (part > 0 && size > 1) {
            MPI_Parrived(both[1], 0, &flag);
            MPI_Sendrecv_replace(&token, 1, MPI_INT, right(), 3, left(), 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
    }
    MPI_Waitall(2, both, MPI_STATUSES_IGNORE);
    MPI_Start(&both[1]);
    MPI_Parrived(both[1], 2, &flag);
    CHECK(!flag);
    MPI_Test(&both[1], &flag, MPI_STATUS_IGNORE);
    CHECK(!flag);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Start(&both[0]);
    const int list[] = {2, 0};
    MPI_Pready_list(2, list, both[0]);
    MPI_Pready_range(3, 3, both[0]);
    MPI_Request_get_status(both[0], &flag, MPI_STATUS_IGNORE);
    CHECK(!flag);
    MPI_Pready_range(1, 1, both[0]);
    MPI_Waitall(2, both, MPI_STATUSES_IGNORE);
    CHECK(filled(in, 12, left()));
    MPI_Request_free(&both[0]);
    MPI_Request_free(&both[1]);
}

/* Requests of one tag are matched in order, those of different tags by tag, and other messages with these tags are separate. */
static void matching(void) {
    enum { N = 4 };
    MPI_Request sends[N], receives[N], plain;
    MPI_Comm comm;
    int box[N], got[N], other = -1;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    for (int late = 0; late < 2; late++) {
        for (int i = 0; i < N; i++)
            box[i] = 1000 * rank + 10 * late + i;
        MPI_Irecv(&other, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &plain);
        for (int pass = 0; pass < 2; pass++)
            for (int i = 0; i < N; i++)
                if (pass == late)
                    MPI_Psend_init(&box[i], 1, 1, MPI_INT, right(), i / 2, comm, MPI_INFO_NULL, &sends[i]);
                else /* those of tag 1 first */
                    MPI_Precv_init(&got[(i + 2) % N], 1, 1, MPI_INT, left(), (i + 2) % N / 2, comm, MPI_INFO_NULL,
                            &receives[(i + 2) % N]);
        MPI_Startall(N, sends);
        MPI_Startall(N, receives);
        for (int i = N - 1; i >= 0; i--)
            MPI_Pready(0, sends[i]);
        MPI_Waitall(N, sends, MPI_STATUSES_IGNORE);
        MPI_Waitall(N, receives, MPI_STATUSES_IGNORE);
        for (int i = 0; i < N; i++)
            CHECK(got[i] == 1000 * left() + 10 * late + i);
        int flag;
        MPI_Test(&plain, &flag, MPI_STATUS_IGNORE);
        CHECK(!flag);
        MPI_Barrier(comm);
        MPI_Send(&rank, 1, MPI_INT, right(), 1, comm);
        MPI_Wait(&plain, MPI_STATUS_IGNORE);
        CHECK(other == left());
        for (int i = 0; i < N; i++) {
            MPI_Request_free(&sends[i]);
            MPI_Request_free(&receives[i]);
        }
    }
    /* A request that is freed before its sender is known keeps its place in the order. */
    MPI_Precv_init(&got[0], 1, 1, MPI_INT, left(), 5, comm, MPI_INFO_NULL, &receives[0]);
    MPI_Request_free(&receives[0]);
    MPI_Precv_init(&got[1], 1, 1, MPI_INT, left(), 5, comm, MPI_INFO_NULL, &receives[1]);
    MPI_Barrier(comm);
    for (int i = 0; i < 2; i++)
        MPI_Psend_init(&box[i], 1, 1, MPI_INT, right(), 5, comm, MPI_INFO_NULL, &sends[i]);
    MPI_Start(&receives[1]);
    MPI_Start(&sends[1]);
    MPI_Pready(0, sends[1]);
    MPI_Wait(&sends[1], MPI_STATUS_IGNORE);
    MPI_Wait(&receives[1], MPI_STATUS_IGNORE);
    CHECK(got[1] == 1000 * left() + 11);
    MPI_Request_free(&sends[0]);
    MPI_Request_free(&sends[1]);
    MPI_Request_free(&receives[1]);
    MPI_Comm_free(&comm);
}

static void shapes(void) {
    MPI_Request both[2];
    MPI_Datatype pair;
    MPI_Type_vector(2, 1, 2, MPI_INT, &pair);
    MPI_Type_commit(&pair);
    fill(out, 100, rank);
    memset(in, 0, 400);
    /* Every second int, into contiguous memory that is cut elsewhere. */
    MPI_Psend_init(out, 6, 2, pair, right(), 0, MPI_COMM_WORLD, MPI_INFO_NULL, &both[0]);
    MPI_Precv_init(in, 4, 6, MPI_INT, left(), 0, MPI_COMM_WORLD, MPI_INFO_NULL, &both[1]);
    MPI_Type_free(&pair);
    MPI_Startall(2, both);
    MPI_Pready_range(0, 5, both[0]);
    MPI_Waitall(2, both, MPI_STATUSES_IGNORE);
    for (int i = 0; i < 12; i++)
        CHECK(in[2 * i] == value(left(), 3 * i) && in[2 * i + 1] == value(left(), 3 * i + 2));
    MPI_Request_free(&both[0]);
    MPI_Request_free(&both[1]);
    /* No process, no parts, no data. */
    MPI_Status status;
    MPI_Psend_init(out, 2, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &both[0]);
    MPI_Precv_init(in, 2, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &both[1]);
    MPI_Startall(2, both);
    /* As with any other receiver, the send is complete only when all parts were released. */
    for (int part = 0, flag = 1; part < 2 && !on_mpich(); part++) {
        MPI_Test(&both[0], &flag, MPI_STATUS_IGNORE);
        CHECK(!flag);
        CHECK(MPI_Pready(part, both[0]) == MPI_SUCCESS);
    }
    if (on_mpich())
        MPI_Pready_range(0, 1, both[0]);
    MPI_Wait(&both[1], &status);
    CHECK(status.MPI_SOURCE == MPI_PROC_NULL);
    MPI_Wait(&both[0], MPI_STATUS_IGNORE);
    MPI_Request_free(&both[0]);
    MPI_Request_free(&both[1]);
    for (int parts = 0; parts < 3; parts += 2) {
        MPI_Psend_init(NULL, parts, 0, MPI_INT, right(), 0, MPI_COMM_WORLD, MPI_INFO_NULL, &both[0]);
        MPI_Precv_init(NULL, parts, 0, MPI_INT, left(), 0, MPI_COMM_WORLD, MPI_INFO_NULL, &both[1]);
        MPI_Startall(2, both);
        if (parts)
            MPI_Pready_range(0, parts - 1, both[0]);
        MPI_Waitall(2, both, MPI_STATUSES_IGNORE);
        MPI_Request_free(&both[0]);
        MPI_Request_free(&both[1]);
    }
}

static void errors(void) {
    MPI_Request send, receive, plain;
    MPI_Comm comm;
    int flag;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    FAILS(MPI_Psend_init(out, -1, 1, MPI_INT, 0, 0, comm, MPI_INFO_NULL, &send), MPI_ERR_ARG);
    flag = 0;
    CHECK(MPI_Parrived(MPI_REQUEST_NULL, 0, &flag) == MPI_SUCCESS && flag);
    FAILS(MPI_Psend_init(out, 1, -1, MPI_INT, 0, 0, comm, MPI_INFO_NULL, &send), MPI_ERR_COUNT);
    FAILS(MPI_Psend_init(out, 1, 1, MPI_DATATYPE_NULL, 0, 0, comm, MPI_INFO_NULL, &send), MPI_ERR_TYPE);
    FAILS(MPI_Psend_init(out, 1, 1, MPI_INT, size, 0, comm, MPI_INFO_NULL, &send), MPI_ERR_RANK);
    FAILS(MPI_Precv_init(in, 1, 1, MPI_INT, MPI_ANY_SOURCE, 0, comm, MPI_INFO_NULL, &receive), MPI_ERR_RANK);
    FAILS(MPI_Precv_init(in, 1, 1, MPI_INT, 0, MPI_ANY_TAG, comm, MPI_INFO_NULL, &receive), MPI_ERR_TAG);
    FAILS(MPI_Psend_init(NULL, 1, 1, MPI_INT, 0, 0, comm, MPI_INFO_NULL, &send), MPI_ERR_BUFFER);
    FAILS(MPI_Psend_init(out, 1, 1, MPI_INT, 0, 0, MPI_COMM_NULL, MPI_INFO_NULL, &send), MPI_ERR_COMM);
    FAILS(MPI_Psend_init(out, 1, 1, MPI_INT, 0, 0, comm, MPI_INFO_NULL, NULL), MPI_ERR_ARG);

    MPI_Psend_init(out, 2, 1, MPI_INT, right(), 0, comm, MPI_INFO_NULL, &send);
    MPI_Precv_init(in, 2, 1, MPI_INT, left(), 0, comm, MPI_INFO_NULL, &receive);
    FAILS(MPI_Pready(0, send), MPI_ERR_REQUEST);
    MPI_Start(&send);
    MPI_Start(&receive);
    FAILS(MPI_Start(&send), MPI_ERR_REQUEST);
    FAILS(MPI_Pready(2, send), MPI_ERR_ARG);
    FAILS(MPI_Pready(-1, send), MPI_ERR_ARG);
    FAILS(MPI_Pready_range(1, 0, send), MPI_ERR_ARG);
    FAILS(MPI_Pready(0, receive), MPI_ERR_REQUEST);
    FAILS(MPI_Parrived(send, 0, &flag), MPI_ERR_REQUEST);
    FAILS(MPI_Parrived(receive, 2, &flag), MPI_ERR_ARG);
    FAILS(MPI_Cancel(&send), MPI_ERR_REQUEST);
    FAILS(MPI_Pready(0, MPI_REQUEST_NULL), MPI_ERR_REQUEST);
    MPI_Pready(0, send);
    FAILS(MPI_Pready(0, send), MPI_ERR_ARG);
    MPI_Pready(1, send);
    MPI_Wait(&send, MPI_STATUS_IGNORE);
    MPI_Wait(&receive, MPI_STATUS_IGNORE);
    MPI_Request_free(&send);
    MPI_Request_free(&receive);
    MPI_Recv_init(in, 1, MPI_INT, 0, 0, comm, &plain);
    FAILS(MPI_Pready(0, plain), MPI_ERR_REQUEST);
    MPI_Request_free(&plain);
    /* More data than there is room for. */
    MPI_Psend_init(out, 3, 1, MPI_INT, right(), 0, comm, MPI_INFO_NULL, &send);
    MPI_Precv_init(in, 1, 2, MPI_INT, left(), 0, comm, MPI_INFO_NULL, &receive);
    MPI_Start(&send);
    MPI_Start(&receive);
    in[2] = 77;
    MPI_Pready_range(0, 2, send);
    FAILS(MPI_Wait(&receive, MPI_STATUS_IGNORE), MPI_ERR_TRUNCATE);
    MPI_Wait(&send, MPI_STATUS_IGNORE);
    CHECK(in[2] == 77);
    MPI_Request_free(&send);
    MPI_Request_free(&receive);
    MPI_Comm_free(&comm);
}

/* Between two groups. */
static void across(void) {
    if (size < 2)
        return;
    MPI_Comm half, inter;
    int upper = rank >= size / 2, far, got = -1, mine;
    MPI_Comm_split(MPI_COMM_WORLD, upper, 0, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, upper ? 0 : size / 2, 4, &inter);
    MPI_Comm_remote_size(inter, &far);
    MPI_Comm_rank(inter, &mine);
    MPI_Request both[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    if (mine < far && mine < size / 2) {
        MPI_Psend_init(&rank, 1, 1, MPI_INT, mine, 2, inter, MPI_INFO_NULL, &both[0]);
        MPI_Precv_init(&got, 1, 1, MPI_INT, mine, 2, inter, MPI_INFO_NULL, &both[1]);
        MPI_Startall(2, both);
        MPI_Pready(0, both[0]);
        MPI_Waitall(2, both, MPI_STATUSES_IGNORE);
        CHECK(got == (upper ? mine : size / 2 + mine));
        MPI_Request_free(&both[0]);
        MPI_Request_free(&both[1]);
    }
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
}

/* Megabytes of memory that this process has used. */
static long used(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss / 1024;
}

/* A sender that is faster than its receiver waits for it, instead of filling its memory. */
static void far_ahead(void) {
    enum { BYTES = 16384, ROUNDS = 16000 };
    static char data[BYTES];
    MPI_Request request;
    int flag;
    if (size < 2 || rank > 1 || on_mpich())
        return;
    if (rank == 0)
        MPI_Psend_init(data, 1, BYTES, MPI_BYTE, 1, 5, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    else
        MPI_Precv_init(data, 1, BYTES, MPI_BYTE, 0, 5, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    long before = used();
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Start(&request);
        if (rank == 0)
            MPI_Pready(0, request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        for (double since = MPI_Wtime(); round == 0 && rank == 1 && MPI_Wtime() - since < 1;)
            MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE);
    }
    CHECK(used() - before < 128);
    MPI_Request_free(&request);
}

/* What was announced for a communicator that its receiver has freed does not reach the next one. */
static void freed(void) {
    MPI_Comm comm;
    MPI_Request request;
    for (int round = 0; round < 4 && size > 1 && !on_mpich(); round++) {
        int got = -1, sent = 100 + round;
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        if (rank == 1) {
            MPI_Precv_init(&got, 1, 1, MPI_INT, 0, 5, comm, MPI_INFO_NULL, &request);
            MPI_Request_free(&request);
            MPI_Comm_free(&comm);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0) {
            MPI_Psend_init(&sent, 1, 1, MPI_INT, 1, 5, comm, MPI_INFO_NULL, &request);
            MPI_Request_free(&request);
        }
        if (rank != 1)
            MPI_Comm_free(&comm);
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        if (rank == 0)
            MPI_Psend_init(&sent, 1, 1, MPI_INT, 1, 5, comm, MPI_INFO_NULL, &request);
        if (rank == 1)
            MPI_Precv_init(&got, 1, 1, MPI_INT, 0, 5, comm, MPI_INFO_NULL, &request);
        if (rank < 2) {
            MPI_Start(&request);
            if (rank == 0)
                MPI_Pready(0, request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            MPI_Request_free(&request);
        }
        CHECK(rank != 1 || got == sent);
        MPI_Comm_free(&comm);
    }
}

int main(int argc, char **argv) {
    begin(&argc, &argv);
    far_ahead();
    freed();
    rings();
    arrives();
    matching();
    shapes();
    errors();
    across();
    return finish("partitioned");
}
