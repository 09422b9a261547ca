/* `recovery MODE [DEATHS]`: ranks kill themselves, and the survivors go on (ULFM). For jobs that continue after the loss of a rank.
 * Prints one line, from the first survivor, if everything is right. */
#include "check.h"

#include <mpi-ext.h>
#include <signal.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void die(int signal) {
    (void)signal;
    raise(SIGKILL);
}

/* Kills this process in so many microseconds. */
static void die_in(long us) {
    struct itimerval when = {{0, 0}, {us / 1000000, us % 1000000 + 1}};
    signal(SIGALRM, die);
    setitimer(ITIMER_REAL, &when, NULL);
}

static unsigned long state;

static unsigned below(unsigned limit) {
    state = state * 6364136223846793005ul + 1442695040888963407ul;
    return (unsigned)(state >> 33) % limit;
}

/* A communicator of the survivors of `comm`, on which all have succeeded. */
static MPI_Comm survivors(MPI_Comm comm) {
    MPI_Comm rest;
    for (;;) {
        int code = MPIX_Comm_revoke(comm);
        if (code == MPI_SUCCESS)
            code = MPIX_Comm_shrink(comm, &rest);
        if (code != MPI_SUCCESS) {
            says(code, "MPI_SUCCESS");
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
        MPI_Comm_set_errhandler(rest, MPI_ERRORS_RETURN);
        int flag = MPI_Barrier(rest) == MPI_SUCCESS;
        if (MPIX_Comm_agree(rest, &flag) == MPI_SUCCESS && flag)
            return rest;
        comm = rest;
    }
}

static int left_of(MPI_Comm comm) {
    int left = 0;
    MPI_Comm_size(comm, &left);
    return left;
}

static int end(const char *mode, MPI_Comm comm) {
    int all = 1, first;
    CHECK(MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, comm) == MPI_SUCCESS);
    MPI_Comm_rank(comm, &first);
    if (all == 0 && first == 0)
        printf("%s ok: %d of %d are left\n", mode, left_of(comm), size);
    fflush(stdout);
    MPI_Finalize();
    return all != 0;
}

/* Ranks 1, 3, 5 … die in the midst of reductions, at different steps; the last two of these at one. */
static int steps(int deaths) {
    enum { STEPS = 60 };
    MPI_Comm comm = MPI_COMM_WORLD;
    int at = -1, step = 0;
    if (rank % 2 && rank / 2 < deaths)
        at = 5 + 10 * (rank / 2 == deaths - 1 && deaths > 1 ? deaths - 2 : rank / 2);
    double since = now(), longest = 0;
    while (step < STEPS) {
        int here[2] = {1, step}, all[2];
        if (step == at)
            raise(SIGKILL);
        int code = MPI_Allreduce(here, all, 2, MPI_INT, MPI_SUM, comm);
        if (code == MPI_SUCCESS) {
            CHECK(all[0] == left_of(comm) && all[1] == step * all[0]);
            step++;
        } else {
            int class = class_of(code);
            CHECK(class == MPIX_ERR_PROC_FAILED || class == MPIX_ERR_REVOKED);
            if (class != MPIX_ERR_PROC_FAILED && class != MPIX_ERR_REVOKED)
                says(code, "MPIX_ERR_PROC_FAILED");
        }
        if (code != MPI_SUCCESS) {
            comm = survivors(comm);
            /* Some may have completed the step. */
            int first = step;
            CHECK(MPI_Allreduce(&first, &step, 1, MPI_INT, MPI_MIN, comm) == MPI_SUCCESS);
        }
        double took = now() - since;
        longest = took > longest ? took : longest;
        since = now();
    }
    CHECK(left_of(comm) == size - deaths);
    if (longest > 2)
        fprintf(stderr, "rank %d: a recovery took %.2f s\n", rank, longest);
    CHECK(longest < 3);
    return end("steps", comm);
}

/* Ranks die at random times while all agree again and again: every agreement has one result. */
static int agreements(int deaths) {
    enum { ROUNDS = 1 << 17 };
    static int seen[ROUNDS], others[ROUNDS], least[ROUNDS];
    state = (unsigned long)rank * 77 + (unsigned long)time(NULL);
    if (rank < deaths)
        die_in(20000 + below(150000));
    int last = 0, known = 0;
    double until = now() + 0.6;
    for (int round = 0; round < ROUNDS && !last; round++) {
        /* The highest bit says that this process has had enough. */
        int flag = ~(1 << rank), bit = 1 << 30;
        if (now() > until)
            flag &= ~bit;
        int code = MPIX_Comm_agree(MPI_COMM_WORLD, &flag), class = class_of(code);
        CHECK(code == MPI_SUCCESS || class == MPIX_ERR_PROC_FAILED);
        CHECK((flag & (1 << rank)) == 0);
        seen[round] = flag ^ class << 20;
        last = (flag & bit) == 0;
        known = round + 1;
        if (code != MPI_SUCCESS && below(2))
            MPIX_Comm_failure_ack(MPI_COMM_WORLD);
    }
    /* A death may come late. */
    if (rank < deaths)
        for (;;)
            pause();
    MPI_Comm rest = survivors(MPI_COMM_WORLD);
    while (left_of(rest) > size - deaths) {
        usleep(10000);
        rest = survivors(rest);
    }
    CHECK(MPI_Allreduce(seen, others, ROUNDS, MPI_INT, MPI_MAX, rest) == MPI_SUCCESS);
    CHECK(MPI_Allreduce(seen, least, ROUNDS, MPI_INT, MPI_MIN, rest) == MPI_SUCCESS);
    for (int round = 0; round < ROUNDS; round++)
        CHECK(others[round] == seen[round] && least[round] == seen[round]);
    CHECK(known > 10);
    /* Once all have acknowledged all deaths, there is no error. */
    int flag = 3, acked;
    MPI_Group failed;
    CHECK(MPIX_Comm_failure_ack(MPI_COMM_WORLD) == MPI_SUCCESS);
    CHECK(MPIX_Comm_failure_get_acked(MPI_COMM_WORLD, &failed) == MPI_SUCCESS);
    CHECK(MPI_Group_size(failed, &acked) == MPI_SUCCESS && acked == deaths);
    MPI_Group_free(&failed);
    CHECK(MPIX_Comm_agree(MPI_COMM_WORLD, &flag) == MPI_SUCCESS && flag == 3);
    return end("agreements", rest);
}

/* Receives from any source, when the last rank and then the one before it die. */
static int any(void) {
    MPI_Comm comm;
    MPI_Group failed, world;
    MPI_Status status;
    int in = 0, in2 = 0, flag = -1, at = -1, acked = -1, last = size - 1, dead = -1, out = 42;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Barrier(comm);
    if (rank == last) {
        usleep(50000);
        raise(SIGKILL);
    }
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    MPI_Irecv(&in, 1, MPI_INT, MPI_ANY_SOURCE, 1, comm, &requests[0]);
    FAILS(MPI_Wait(&requests[0], &status), MPIX_ERR_PROC_FAILED_PENDING);
    CHECK(requests[0] != MPI_REQUEST_NULL);
    FAILS(MPI_Test(&requests[0], &flag, &status), MPIX_ERR_PROC_FAILED_PENDING);
    CHECK(flag == 0 && requests[0] != MPI_REQUEST_NULL);
    FAILS(MPI_Waitany(2, requests, &at, &status), MPIX_ERR_PROC_FAILED_PENDING);
    CHECK(requests[0] != MPI_REQUEST_NULL);
    FAILS(MPI_Testall(1, requests, &flag, MPI_STATUSES_IGNORE), MPIX_ERR_PROC_FAILED_PENDING);
    CHECK(flag == 0 && requests[0] != MPI_REQUEST_NULL);
    FAILS(MPI_Waitall(1, requests, &status), MPI_ERR_IN_STATUS);
    CHECK(status.MPI_ERROR == MPIX_ERR_PROC_FAILED_PENDING && requests[0] != MPI_REQUEST_NULL);
    FAILS(MPI_Recv(&in2, 1, MPI_INT, MPI_ANY_SOURCE, 2, comm, &status), MPIX_ERR_PROC_FAILED);
    FAILS(MPI_Recv(&in2, 1, MPI_INT, last, 2, comm, &status), MPIX_ERR_PROC_FAILED);
    FAILS(MPI_Probe(MPI_ANY_SOURCE, 2, comm, &status), MPIX_ERR_PROC_FAILED);
    FAILS(MPI_Send(&in2, 1, MPI_INT, last, 2, comm), MPIX_ERR_PROC_FAILED);
    CHECK(MPIX_Comm_get_failed(comm, &failed) == MPI_SUCCESS);
    CHECK(MPI_Group_size(failed, &flag) == MPI_SUCCESS && flag == 1);
    int first = 0;
    CHECK(MPI_Group_translate_ranks(failed, 1, &first, world, &dead) == MPI_SUCCESS && dead == last);
    MPI_Group_free(&failed);
    CHECK(MPIX_Comm_ack_failed(comm, 0, &acked) == MPI_SUCCESS && acked == 0);
    FAILS(MPI_Wait(&requests[0], &status), MPIX_ERR_PROC_FAILED_PENDING);
    CHECK(MPIX_Comm_ack_failed(comm, size, &acked) == MPI_SUCCESS && acked == 1);
    /* The others can still be heard, and the receive was posted all the time. */
    int agreed = 1;
    CHECK(MPIX_Comm_agree(comm, &agreed) == MPI_SUCCESS && agreed == 1);
    int next = (rank + 1) % last, before = (rank + last - 1) % last;
    CHECK(MPI_Send(&out, 1, MPI_INT, next, 1, comm) == MPI_SUCCESS);
    CHECK(MPI_Wait(&requests[0], &status) == MPI_SUCCESS && in == 42 && status.MPI_SOURCE == before);
    CHECK(requests[0] == MPI_REQUEST_NULL);
    FAILS(MPI_Recv(&in2, 1, MPI_INT, last, 2, comm, &status), MPIX_ERR_PROC_FAILED);
    int sum = 0, code = MPI_Allreduce(&out, &sum, 1, MPI_INT, MPI_SUM, comm);
    FAILS(code, MPIX_ERR_PROC_FAILED);
    /* Another one dies. */
    CHECK(MPIX_Comm_agree(comm, &agreed) == MPI_SUCCESS && agreed == 1);
    if (rank == last - 1)
        raise(SIGKILL);
    CHECK(MPI_Irecv(&in, 1, MPI_INT, MPI_ANY_SOURCE, 1, comm, &requests[0]) == MPI_SUCCESS);
    FAILS(MPI_Wait(&requests[0], &status), MPIX_ERR_PROC_FAILED_PENDING);
    FAILS(MPIX_Comm_agree(comm, &agreed), MPIX_ERR_PROC_FAILED);
    MPI_Comm rest = survivors(comm);
    FAILS(MPI_Wait(&requests[0], &status), MPIX_ERR_REVOKED);
    CHECK(left_of(rest) == size - 2);
    MPI_Group_free(&world);
    return end("any", rest);
}

enum { LONG = 1 << 18, MOST = 16 };
static char out[LONG * MOST], in[LONG * MOST];

/* One collective operation of each kind, long or short; blocking or not. */
static int collective(MPI_Comm comm, int kind, int n, int blocks) {
    MPI_Request request = MPI_REQUEST_NULL;
    int code = MPI_SUCCESS, root = 0;
    if (kind >= 10) {
        root = 1;
        kind -= 10;
    }
    if (kind == 0)
        code = blocks ? MPI_Barrier(comm) : MPI_Ibarrier(comm, &request);
    else if (kind == 1)
        code = blocks ? MPI_Bcast(out, n, MPI_SIGNED_CHAR, root, comm) : MPI_Ibcast(out, n, MPI_SIGNED_CHAR, root, comm, &request);
    else if (kind == 2)
        code = blocks ? MPI_Reduce(out, in, n, MPI_SIGNED_CHAR, MPI_MAX, root, comm)
                      : MPI_Ireduce(out, in, n, MPI_SIGNED_CHAR, MPI_MAX, root, comm, &request);
    else if (kind == 3)
        code = blocks ? MPI_Allreduce(out, in, n, MPI_SIGNED_CHAR, MPI_MAX, comm)
                      : MPI_Iallreduce(out, in, n, MPI_SIGNED_CHAR, MPI_MAX, comm, &request);
    else if (kind == 4)
        code = blocks ? MPI_Allgather(out, n, MPI_SIGNED_CHAR, in, n, MPI_SIGNED_CHAR, comm)
                      : MPI_Iallgather(out, n, MPI_SIGNED_CHAR, in, n, MPI_SIGNED_CHAR, comm, &request);
    else if (kind == 5)
        code = blocks ? MPI_Alltoall(out, n, MPI_SIGNED_CHAR, in, n, MPI_SIGNED_CHAR, comm)
                      : MPI_Ialltoall(out, n, MPI_SIGNED_CHAR, in, n, MPI_SIGNED_CHAR, comm, &request);
    else if (kind == 6)
        code = blocks ? MPI_Gather(out, n, MPI_SIGNED_CHAR, in, n, MPI_SIGNED_CHAR, root, comm)
                      : MPI_Igather(out, n, MPI_SIGNED_CHAR, in, n, MPI_SIGNED_CHAR, root, comm, &request);
    else if (kind == 7)
        code = blocks ? MPI_Scatter(out, n, MPI_SIGNED_CHAR, in, n, MPI_SIGNED_CHAR, root, comm)
                      : MPI_Iscatter(out, n, MPI_SIGNED_CHAR, in, n, MPI_SIGNED_CHAR, root, comm, &request);
    else if (kind == 8)
        code = blocks ? MPI_Scan(out, in, n, MPI_SIGNED_CHAR, MPI_MAX, comm) : MPI_Iscan(out, in, n, MPI_SIGNED_CHAR, MPI_MAX, comm, &request);
    else
        code = blocks ? MPI_Reduce_scatter_block(out, in, n, MPI_SIGNED_CHAR, MPI_MAX, comm)
                      : MPI_Ireduce_scatter_block(out, in, n, MPI_SIGNED_CHAR, MPI_MAX, comm, &request);
    if (code == MPI_SUCCESS && !blocks)
        code = MPI_Wait(&request, MPI_STATUS_IGNORE);
    return code;
}

/* The `i`-th of a stream of operations. */
static int one_of(MPI_Comm comm, int kind, int i) {
    return collective(comm, kind, i % 3 == 0 ? 8 : i % 3 == 1 ? 5000 : LONG, i / 3 % 2);
}

/* Collectives in which a rank dies, in a stream of them: nothing hangs, and all survivors stop. No one revokes before. */
static int hangs(int kind) {
    MPI_Comm comm;
    for (int n = 8; n <= LONG; n = n * 181 > LONG && n < LONG ? LONG : n * 181)
        for (int blocks = 0; blocks < 2; blocks++)
            for (int i = 0; i < 4; i++)
                CHECK(collective(MPI_COMM_WORLD, kind, n, blocks) == MPI_SUCCESS);
    CHECK(MPI_Comm_dup(MPI_COMM_WORLD, &comm) == MPI_SUCCESS);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    /* A rank that has left the barrier knows that all ranks have the communicator; only then may one die. */
    MPI_Barrier(MPI_COMM_WORLD);
    state = (unsigned long)time(NULL) + (unsigned long)kind;
    if (rank == size / 2)
        die_in(20000 + below(100000));
    int code = MPI_SUCCESS;
    double first = 0;
    /* A root may never notice; the others do. */
    int i = 0;
    for (; code == MPI_SUCCESS && (first == 0 || now() < first + 1); i++) {
        code = one_of(comm, kind, i);
        MPI_Group failed;
        int dead = 0;
        if (first == 0) {
            MPIX_Comm_get_failed(comm, &failed);
            MPI_Group_size(failed, &dead);
            MPI_Group_free(&failed);
            first = dead ? now() : 0;
        }
    }
    CHECK(code == MPI_SUCCESS || class_of(code) == MPIX_ERR_PROC_FAILED);
    if (code != MPI_SUCCESS && class_of(code) != MPIX_ERR_PROC_FAILED)
        says(code, "MPIX_ERR_PROC_FAILED");
    /* And again, on what is broken. */
    for (int end = i + 6; i < end; i++)
        one_of(comm, kind, i);
    MPIX_Comm_failure_ack(comm);
    int all = code == MPI_SUCCESS;
    MPIX_Comm_agree(comm, &all);
    CHECK(all == 0);
    MPI_Comm rest = survivors(comm);
    MPI_Comm_free(&comm);
    CHECK(left_of(rest) == size - 1);
    for (int blocks = 0; blocks < 2; blocks++)
        CHECK(collective(rest, kind, LONG, blocks) == MPI_SUCCESS);
    return end("hangs", rest);
}

int main(int argc, char **argv) {
    begin(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    const char *mode = argc > 1 ? argv[1] : "steps";
    int number = argc > 2 ? atoi(argv[2]) : 1;
    if (strcmp(mode, "steps") == 0)
        return steps(number);
    if (strcmp(mode, "agreements") == 0)
        return agreements(number);
    if (strcmp(mode, "any") == 0)
        return any();
    return hangs(number);
}
