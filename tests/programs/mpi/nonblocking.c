/* Non-blocking collectives (MPI 5.0 §6.12): many in progress at once, of all kinds and of lengths around the limits between the ways in which
 * they are executed; completed in another order than started, between blocking ones, on communicators that are freed meanwhile. */
#include "check.h"

enum { OPEN = 40, KINDS = 9 };

/* One operation in progress. */
typedef struct {
    int kind, count, root, number;
    int *in, *out;
    MPI_Request request;
} Operation;

static int word(int number, int from, int to, int at) {
    return number * 7919 + from * 613 + to * 31 + at;
}

static int reduced(int number, int last, int at) {
    int sum = 0;
    for (int from = 0; from < last; from++)
        sum += word(number, from, 0, at);
    return sum;
}

static Operation start(MPI_Comm comm, int kind, int count, int number) {
    Operation o = {.kind = kind, .count = count, .root = number % size, .number = number};
    int all = count * size;
    o.in = room((all + 1) * sizeof *o.in);
    o.out = room((all + 1) * sizeof *o.out);
    for (int to = 0; to < size; to++)
        for (int at = 0; at < count; at++)
            o.in[to * count + at] = word(number, rank, kind == 3 || kind == 5 ? to : 0, at);
    memset(o.out, 0xff, (all + 1) * sizeof *o.out);
    switch (kind) {
    case 0: MPI_Ibarrier(comm, &o.request); break;
    case 1: MPI_Ibcast(rank == o.root ? o.in : o.out, count, MPI_INT, o.root, comm, &o.request); break;
    case 2: MPI_Igather(o.in, count, MPI_INT, o.out, count, MPI_INT, o.root, comm, &o.request); break;
    case 3: MPI_Iscatter(o.in, count, MPI_INT, o.out, count, MPI_INT, o.root, comm, &o.request); break;
    case 4: MPI_Iallgather(o.in, count, MPI_INT, o.out, count, MPI_INT, comm, &o.request); break;
    case 5: MPI_Ialltoall(o.in, count, MPI_INT, o.out, count, MPI_INT, comm, &o.request); break;
    case 6: MPI_Ireduce(o.in, o.out, count, MPI_INT, MPI_SUM, o.root, comm, &o.request); break;
    case 7: MPI_Iallreduce(o.in, o.out, count, MPI_INT, MPI_SUM, comm, &o.request); break;
    default: MPI_Iscan(o.in, o.out, count, MPI_INT, MPI_SUM, comm, &o.request);
    }
    return o;
}

static int has_ended_well(const Operation *o) {
    int right = 1;
    for (int at = 0; at < o->count; at++) {
        switch (o->kind) {
        case 0: break;
        case 1: right &= rank == o->root || o->out[at] == word(o->number, o->root, 0, at); break;
        case 3: right &= o->out[at] == word(o->number, o->root, rank, at); break;
        case 6: right &= rank != o->root || o->out[at] == reduced(o->number, size, at); break;
        case 7: right &= o->out[at] == reduced(o->number, size, at); break;
        case 8: right &= o->out[at] == reduced(o->number, rank + 1, at); break;
        default:
            for (int from = 0; from < size && (o->kind != 2 || rank == o->root); from++)
                right &= o->out[from * o->count + at] == word(o->number, from, o->kind == 5 ? rank : 0, at);
        }
    }
    return right && o->out[o->count * size] == -1;
}

static void end(Operation *o) {
    CHECK(MPI_Wait(&o->request, MPI_STATUS_IGNORE) == MPI_SUCCESS && o->request == MPI_REQUEST_NULL);
    if (!has_ended_well(o)) {
        wrong++;
        fprintf(stderr, "rank %d of %d: wrong data: kind %d, %d ints, number %d\n", rank, size, o->kind, o->count, o->number);
    }
    free(o->in);
    free(o->out);
}

/* Different numbers of operations in progress, completed from the last to the first, or as it comes. */
static void many(MPI_Comm comm) {
    static const int counts[] = {1, 12, 13, 100, 512, 513, 1024, 1025, 4096, 8192, 8193, 20000};
    Operation open[OPEN];
    int number = 0;
    for (int most = 1; most <= OPEN; most += 13) {
        for (int round = 0; round < 3; round++) {
            for (int i = 0; i < most; i++, number++) {
                int kind = (number * 5 + round) % KINDS, count = counts[(number * 7 + round) % 12];
                open[i] = start(comm, kind, most > 20 && count > 4096 ? 13 : count, number);
                if (i % 9 == 8) {
                    int sum;
                    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm);
                    CHECK(sum == size * (size - 1) / 2);
                }
            }
            for (int left = most; left > 0; left--) {
                int i = rank % 2 ? left - 1 : (number + left) % left;
                end(&open[i]);
                open[i] = open[left - 1];
            }
        }
    }
}

/* Requests that are freed (the standard does not allow this for collectives, but the library does), a communicator that is freed before its
 * operations are over, a datatype with holes at one rank only. */
static void given_up(void) {
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    for (int i = 0; i < 5; i++)
        MPI_Barrier(comm);
    MPI_Request request;
    for (int i = 0; i < 50; i++) {
        MPI_Ibarrier(comm, &request);
        MPI_Request_free(&request);
    }
    int with_holes[20], dense[10], out[10];
    for (int i = 0; i < 20; i++)
        with_holes[i] = rank == 0 && i % 2 == 0 ? 100 + i / 2 : -5;
    for (int i = 0; i < 10; i++)
        dense[i] = -1;
    MPI_Datatype every_second;
    MPI_Type_vector(10, 1, 2, MPI_INT, &every_second);
    MPI_Type_commit(&every_second);
    if (rank == 0)
        MPI_Ibcast(with_holes, 1, every_second, 0, comm, &request);
    else
        MPI_Ibcast(dense, 10, MPI_INT, 0, comm, &request);
    MPI_Request reduction;
    for (int i = 0; i < 10; i++)
        out[i] = rank;
    MPI_Iallreduce(MPI_IN_PLACE, out, 10, MPI_INT, MPI_MAX, comm, &reduction);
    MPI_Type_free(&every_second);
    MPI_Comm_free(&comm);
    MPI_Wait(&reduction, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    for (int i = 0; i < 10; i++)
        CHECK((rank == 0 || dense[i] == 100 + i) && out[i] == size - 1);
}

/* A member that waits for one operation takes part in others, whatever the others wait for. */
static void crossed(MPI_Comm comm) {
    enum { AHEAD = 50 };
    MPI_Request requests[AHEAD];
    int words[AHEAD], token = 0;
    for (int i = 0; i < AHEAD; i++) {
        words[i] = rank == 0 ? i : -1;
        MPI_Ibcast(&words[i], 1, MPI_INT, 0, comm, &requests[i]);
    }
    /* The first member waits for a message that the others send only once they have all words. */
    if (rank == 0) {
        for (int from = 1; from < size; from++)
            MPI_Recv(&token, 1, MPI_INT, from, 5, comm, MPI_STATUS_IGNORE);
    } else {
        MPI_Wait(&requests[AHEAD - 1], MPI_STATUS_IGNORE);
        MPI_Send(&token, 1, MPI_INT, 0, 5, comm);
    }
    MPI_Waitall(AHEAD, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < AHEAD; i++)
        CHECK(words[i] == i);
}

int main(int argc, char **argv) {
    begin(&argc, &argv);
    /* First by messages, then, after some blocking calls, over memory if all are on one node. */
    Operation early[3];
    for (int i = 0; i < 3; i++)
        early[i] = start(MPI_COMM_WORLD, 4, 10, i);
    for (int i = 0; i < 5; i++)
        MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 2; i >= 0; i--)
        end(&early[i]);
    many(MPI_COMM_WORLD);
    crossed(MPI_COMM_WORLD);
    given_up();
    MPI_Comm halves;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &halves);
    int sum = 0, members;
    MPI_Comm_size(halves, &members);
    for (int i = 0; i < 20; i++) {
        MPI_Request request;
        int one = i;
        MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, halves, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        CHECK(sum == i * members);
        MPI_Barrier(halves);
    }
    MPI_Comm_free(&halves);
    return finish("nonblocking");
}
