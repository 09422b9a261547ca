/* Measures an MPI library at every size. The same program is built for every library; it uses only MPI and libc.
 *
 *   sweep KIND MS LONGEST [SIZE ...]
 *
 * KIND is a name from the table `kinds` below. The sizes are all powers of two up to LONGEST bytes, and the sizes given. Rank 0 prints one
 * JSON object per cell and line: the name of the figure, the number of ranks, the size in bytes, and in microseconds the median, the best
 * and the 99th percentile of its samples, and their mean with the barriers before them (`whole`); and in nanoseconds the distance of two
 * processors (distance.h) just before and after (`distances`, 0 if unknown).
 *
 * A sample is the time that the slowest rank needs for one operation; without barriers, short ones are timed several at a time. A cell ends after
 * MS milliseconds (but not before three samples), COSTLY seconds, or MOST_SAMPLES samples.
 *
 * For sizes in bytes, a message or a block of a collective has that size; a reduction has vectors of doubles of that size in all (blocks of a
 * reduce-scatter, per rank), so reductions begin at 8 bytes. Every cell is verified before it is timed. Buffers begin at pages, or SHIFT bytes (an
 * environment variable) behind, as arrays whose first elements are not sent. With REWRITE, ranks change what they send before each sample, as programs
 * do, except in broadcasts; `whole` has the time for that.
 *
 * To find out why a cell is as it is: with SAMPLES=FILE, rank 0 writes all samples of each cell there, in their order, in microseconds of each rank. With
 * COSTS, it writes to standard error how much of a processor's time an operation takes each rank on average (of the program and of the kernel), and how
 * often a rank gives its processor to another one.
 */
#define _GNU_SOURCE
#include "distance.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { MOST_SAMPLES = 4096, FEWEST_SAMPLES = 3, MOST_WINDOW = 64, MOST_RANKS = 128, TAG = 7, ANSWER = 8, MOST_SIZES = 64 };

/* Seconds after which a cell ends even with few samples. */
static const double COSTLY = 1.0;
/* Bytes of one buffer that is rotated, to find nothing in the caches. */
static const long COLD = 64 << 20;
/* Bytes of all ranks' buffers together, at most. */
static const double MEMORY = 3e9;

/* Samples that are not counted. */
enum { WARM = 3 };

/* Turns of a cache line, for each of the batches by which a distance is measured. */
enum { FEW_TURNS = 20 };

static int rank, size;
static double budget = 0.03;

static void fail(const char *what, long bytes) {
    fprintf(stderr, "rank %d of %d: %s of %ld bytes arrived wrong\n", rank, size, what, bytes);
    MPI_Abort(MPI_COMM_WORLD, 9);
}

/* How far each buffer begins behind a page. */
static long shift;

/* Whether each rank changes `out` before each sample. */
static int rewrites;

static unsigned char *memory(long bytes) {
    void *p = NULL;
    if (posix_memalign(&p, 4096, (size_t)(shift + bytes + 1)) != 0) {
        fprintf(stderr, "rank %d: no memory for %ld bytes\n", rank, bytes);
        MPI_Abort(MPI_COMM_WORLD, 8);
    }
    memset(p, 0, (size_t)(shift + bytes));
    return (unsigned char *)p + shift;
}

/* --- a cell --- */

typedef struct {
    const char *name;
    long bytes;
    /* Messages in flight; 1 if the kind has no window. */
    int window;
    /* How far the buffers move with each operation, and the length after which they begin again. */
    long step, span;
    /* The operations so far. */
    long done;
    /* Bytes of `out`. */
    long out_len;
    unsigned char *out, *in;
    /* Counts and places of the forms that have one for each rank. */
    int counts[MOST_RANKS], places[MOST_RANKS];
    MPI_Datatype types[MOST_RANKS];
    /* Seconds of computation between the start and the end of a non-blocking operation. */
    double compute;
} Cell;

/* Performs the operation this many times. */
typedef void Repeat(Cell *cell, long times);
/* Performs it once on known data and checks what arrives. */
typedef void Verify(Cell *cell);

/* Where message i of the operations that are running lies. */
static long place_of(const Cell *c, long i) {
    return c->step ? (c->done * c->window + i) * c->step % c->span : 0;
}

static unsigned char *out_of(const Cell *c, long i) {
    return c->out + place_of(c, i);
}

static unsigned char *in_of(const Cell *c, long i) {
    return c->in + place_of(c, i);
}

static unsigned char pattern(int from, long i) {
    return (unsigned char)(i * 131 + from * 29 + 7);
}

static void fill(unsigned char *p, long bytes, int from) {
    for (long i = 0; i < bytes; i++)
        p[i] = pattern(from, i);
}

static int filled(const unsigned char *p, long bytes, int from) {
    for (long i = 0; i < bytes; i++)
        if (p[i] != pattern(from, i))
            return 0;
    return 1;
}

static double samples[MOST_SAMPLES], slowest[MOST_SAMPLES];

/* The time of all samples together, with the barriers before them. */
static double whole;

/* Sets the first `count` of `slowest` to the times of the slowest rank, sorted. */
static void take_slowest(int count) {
    MPI_Allreduce(samples, slowest, count, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    qsort(slowest, (size_t)count, sizeof *slowest, by_value);
}

/* The number of operations for one sample. It is the same for every library, because a first operation costs more than those that follow it. After a
 * barrier it is one, as in most benchmarks; otherwise, short operations are too short for the clock. */
static long times_of(const Cell *c, int barrier) {
    enum { SHORT = 4096, MANY = 16, FEW = 4 };
    if (barrier || c->bytes > SHORT)
        return 1;
    return c->window > 1 ? FEW : MANY;
}

static void run(Repeat *repeat, Cell *cell, long times) {
    repeat(cell, times);
    cell->done += times;
}

/* Takes samples: after a barrier each (as most benchmarks do), or one straight after the other. Returns how many. */
static int sample(Repeat *repeat, Cell *cell, int barrier, long times) {
    double start = seconds(), spent = 0;
    whole = 0;
    int count = 0, more = FEWEST_SAMPLES, next = 0;
    while (more > 0 && count < MOST_SAMPLES) {
        next += more;
        double begun = seconds();
        for (; count < next && count < MOST_SAMPLES; count++) {
            for (long i = 0; rewrites && i + (long)sizeof(double) <= cell->out_len; i += (long)sizeof(double))
                *(double *)(cell->out + i) += 1;
            if (barrier)
                MPI_Barrier(MPI_COMM_WORLD);
            double since = seconds();
            run(repeat, cell, times);
            double took = seconds() - since;
            samples[count] = took / (double)times;
            spent += took;
        }
        whole += seconds() - begun;
        /* Rank 0 decides, now and then, so that deciding costs little. */
        more = spent >= budget || seconds() - start >= COSTLY ? 0 : spent / count < 1e-4 ? 32 : 4;
        MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD);
        if (!barrier)
            MPI_Barrier(MPI_COMM_WORLD);
    }
    return count;
}

/* The distance of the processors of rank 0 and of one in the second half (of any other processor, if that is the same), measured by rank 0 while the other ranks sleep. */
static double distance_now(void) {
    const struct timespec long_enough = {0, 300000};
    int here = sched_getcpu(), there = here, processors = (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (rank == size / 2)
        MPI_Send(&here, 1, MPI_INT, 0, TAG, MPI_COMM_WORLD);
    if (rank == 0)
        MPI_Recv(&there, 1, MPI_INT, size / 2, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank > 0) {
        nanosleep(&long_enough, NULL);
        return 0;
    }
    return distance(here, there == here ? (here + 1) % processors : there, FEW_TURNS);
}

/* Prints a cell of samples of so many operations. `less` seconds of each operation do not count. */
static void tell(const Cell *c, const char *suffix, int count, long times, double factor, double less, const double distances[2]) {
    double shown[4] = {slowest[count / 2], slowest[0], slowest[count * 99 / 100], whole / count / (double)times};
    for (int i = 0; i < 4; i++) /* Never nothing, because ratios are computed from it. */
        shown[i] = (shown[i] - less > less / 100 ? shown[i] - less : less / 100) * factor;
    if (rank == 0)
        printf("{\"figure\":\"%s%s\",\"np\":%d,\"bytes\":%ld,\"median\":%.5g,\"best\":%.5g,\"p99\":%.5g,\"whole\":%.5g,\"samples\":%d,\"distances\":[%.0f,%.0f]}\n",
               c->name, suffix, size, c->bytes, shown[0], shown[1], shown[2], shown[3], count, distances[0], distances[1]);
    fflush(stdout);
}

/* Writes all samples in their order, a line for each with a number for each rank. */
static void write_samples(const Cell *c, const char *suffix, int count, double factor) {
    static double all[MOST_RANKS * MOST_SAMPLES];
    static FILE *file;
    MPI_Gather(samples, count, MPI_DOUBLE, all, count, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    if (rank > 0)
        return;
    if (!file && !(file = fopen(getenv("SAMPLES"), "w"))) {
        fprintf(stderr, "cannot write %s\n", getenv("SAMPLES"));
        MPI_Abort(MPI_COMM_WORLD, 7);
    }
    fprintf(file, "# %s%s, %ld bytes\n", c->name, suffix, c->bytes);
    for (int i = 0; i < count; i++)
        for (int r = 0; r < size; r++)
            fprintf(file, "%.3f%c", all[r * count + i] * factor, r < size - 1 ? ' ' : '\n');
    fflush(file);
}

static double micros(struct timeval t) {
    return (double)t.tv_sec * 1e6 + (double)t.tv_usec;
}

/* Writes what an operation has cost each rank on average, since `before`. */
static void write_costs(const Cell *c, const char *suffix, double operations, const struct rusage *before) {
    struct rusage now;
    getrusage(RUSAGE_SELF, &now);
    double sums[3], own[3] = {micros(now.ru_utime) - micros(before->ru_utime), micros(now.ru_stime) - micros(before->ru_stime),
                              (double)(now.ru_nvcsw + now.ru_nivcsw - before->ru_nvcsw - before->ru_nivcsw)};
    MPI_Reduce(own, sums, 3, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        fprintf(stderr, "%s%s, %ld bytes: program %.2f us, kernel %.2f us, %.2f switches\n", c->name, suffix, c->bytes, sums[0] / operations / size,
                sums[1] / operations / size, sums[2] / operations / size);
}

/* Measures and prints a cell; returns the median in seconds. */
static double measure(Repeat *repeat, Cell *cell, const char *suffix, int barrier, double factor) {
    double distances[2] = {distance_now()};
    long times = times_of(cell, barrier);
    for (int warm = 0; warm < WARM; warm++)
        run(repeat, cell, times);
    struct rusage before;
    getrusage(RUSAGE_SELF, &before);
    int count = sample(repeat, cell, barrier, times);
    if (getenv("COSTS"))
        write_costs(cell, suffix, (double)count * (double)times, &before);
    if (getenv("SAMPLES"))
        write_samples(cell, suffix, count, factor);
    take_slowest(count);
    distances[1] = distance_now();
    tell(cell, suffix, count, times, factor, cell->compute, distances);
    return slowest[count / 2];
}

/* --- point to point: the first half of the ranks with the second half --- */

static int partner(void) {
    return rank < size / 2 ? rank + size / 2 : rank - size / 2;
}

static int is_first(void) {
    return rank < size / 2;
}

static int is_paired(void) {
    return rank < size / 2 * 2;
}

static void ping_pong(Cell *c, long times) {
    int n = (int)c->bytes, peer = partner();
    for (long i = 0; i < times && is_paired(); i++) {
        if (is_first())
            MPI_Send(out_of(c, i), n, MPI_BYTE, peer, TAG, MPI_COMM_WORLD);
        MPI_Recv(in_of(c, i), n, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (!is_first())
            MPI_Send(out_of(c, i), n, MPI_BYTE, peer, TAG, MPI_COMM_WORLD);
    }
}

/* A window of messages one way, then a short answer. */
static void one_way(Cell *c, long times) {
    MPI_Request requests[MOST_WINDOW];
    int n = (int)c->bytes, peer = partner();
    char answer = 0;
    for (long i = 0; i < times && is_paired(); i++) {
        for (int k = 0; k < c->window; k++)
            if (is_first())
                MPI_Isend(out_of(c, i * c->window + k), n, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &requests[k]);
            else
                MPI_Irecv(in_of(c, i * c->window + k), n, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &requests[k]);
        MPI_Waitall(c->window, requests, MPI_STATUSES_IGNORE);
        if (is_first())
            MPI_Recv(&answer, 1, MPI_CHAR, peer, ANSWER, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else
            MPI_Send(&answer, 1, MPI_CHAR, peer, ANSWER, MPI_COMM_WORLD);
    }
}

static void both_ways(Cell *c, long times) {
    MPI_Request requests[2 * MOST_WINDOW];
    int n = (int)c->bytes, peer = partner(), w = c->window;
    for (long i = 0; i < times && is_paired(); i++) {
        for (int k = 0; k < w; k++)
            MPI_Irecv(in_of(c, i * w + k), n, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &requests[k]);
        for (int k = 0; k < w; k++)
            MPI_Isend(out_of(c, i * w + k), n, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &requests[w + k]);
        MPI_Waitall(2 * w, requests, MPI_STATUSES_IGNORE);
    }
}

static void verify_pair(Cell *c) {
    if (!is_paired())
        return;
    fill(c->out, c->bytes, rank);
    ping_pong(c, 1);
    if (!filled(c->in, c->bytes, partner()))
        fail("a message", c->bytes);
}

/* --- collectives. In rooted ones the root is rank 0, as in other benchmarks. --- */

#define DOUBLES(c) ((int)((c)->bytes / (long)sizeof(double)))
#define EACH for (long i = 0; i < times; i++)
#define WORLD MPI_COMM_WORLD
#define OUT(c) out_of(c, i)
#define IN(c) in_of(c, i)
#define N(c) ((int)(c)->bytes)

static void barrier(Cell *c, long times) {
    (void)c;
    EACH MPI_Barrier(WORLD);
}
static void bcast(Cell *c, long times) {
    EACH MPI_Bcast(IN(c), N(c), MPI_BYTE, 0, WORLD);
}
/* The root changes each time, so that no rank can run ahead of the others. */
static void bcast_turned(Cell *c, long times) {
    EACH MPI_Bcast(IN(c), N(c), MPI_BYTE, (int)((c->done + i) % size), WORLD);
}
static void gather(Cell *c, long times) {
    EACH MPI_Gather(OUT(c), N(c), MPI_BYTE, IN(c), N(c), MPI_BYTE, 0, WORLD);
}
static void gatherv(Cell *c, long times) {
    EACH MPI_Gatherv(OUT(c), N(c), MPI_BYTE, IN(c), c->counts, c->places, MPI_BYTE, 0, WORLD);
}
static void scatter(Cell *c, long times) {
    EACH MPI_Scatter(OUT(c), N(c), MPI_BYTE, IN(c), N(c), MPI_BYTE, 0, WORLD);
}
static void scatterv(Cell *c, long times) {
    EACH MPI_Scatterv(OUT(c), c->counts, c->places, MPI_BYTE, IN(c), N(c), MPI_BYTE, 0, WORLD);
}
static void allgather(Cell *c, long times) {
    EACH MPI_Allgather(OUT(c), N(c), MPI_BYTE, IN(c), N(c), MPI_BYTE, WORLD);
}
static void allgatherv(Cell *c, long times) {
    EACH MPI_Allgatherv(OUT(c), N(c), MPI_BYTE, IN(c), c->counts, c->places, MPI_BYTE, WORLD);
}
static void alltoall(Cell *c, long times) {
    EACH MPI_Alltoall(OUT(c), N(c), MPI_BYTE, IN(c), N(c), MPI_BYTE, WORLD);
}
static void alltoallv(Cell *c, long times) {
    EACH MPI_Alltoallv(OUT(c), c->counts, c->places, MPI_BYTE, IN(c), c->counts, c->places, MPI_BYTE, WORLD);
}
static void alltoallw(Cell *c, long times) {
    EACH MPI_Alltoallw(OUT(c), c->counts, c->places, c->types, IN(c), c->counts, c->places, c->types, WORLD);
}
static void reduce(Cell *c, long times) {
    EACH MPI_Reduce(OUT(c), IN(c), DOUBLES(c), MPI_DOUBLE, MPI_SUM, 0, WORLD);
}
static void allreduce(Cell *c, long times) {
    EACH MPI_Allreduce(OUT(c), IN(c), DOUBLES(c), MPI_DOUBLE, MPI_SUM, WORLD);
}
static void reduce_scatter_block(Cell *c, long times) {
    EACH MPI_Reduce_scatter_block(OUT(c), IN(c), DOUBLES(c), MPI_DOUBLE, MPI_SUM, WORLD);
}
static void reduce_scatter(Cell *c, long times) {
    EACH MPI_Reduce_scatter(OUT(c), IN(c), c->counts, MPI_DOUBLE, MPI_SUM, WORLD);
}
static void scan(Cell *c, long times) {
    EACH MPI_Scan(OUT(c), IN(c), DOUBLES(c), MPI_DOUBLE, MPI_SUM, WORLD);
}
static void exscan(Cell *c, long times) {
    EACH MPI_Exscan(OUT(c), IN(c), DOUBLES(c), MPI_DOUBLE, MPI_SUM, WORLD);
}

/* Computes without MPI for so many seconds. */
static void compute(double length) {
    for (double since = seconds(); seconds() - since < length;)
        ;
}

#define NON_BLOCKING(name, call)                                                                                                        \
    static void name(Cell *c, long times) {                                                                                             \
        MPI_Request request;                                                                                                            \
        EACH {                                                                                                                          \
            call;                                                                                                                       \
            if (c->compute > 0)                                                                                                         \
                compute(c->compute);                                                                                                    \
            MPI_Wait(&request, MPI_STATUS_IGNORE);                                                                                      \
        }                                                                                                                               \
    }
NON_BLOCKING(ibarrier, MPI_Ibarrier(WORLD, &request))
NON_BLOCKING(ibcast, MPI_Ibcast(IN(c), N(c), MPI_BYTE, 0, WORLD, &request))
NON_BLOCKING(igather, MPI_Igather(OUT(c), N(c), MPI_BYTE, IN(c), N(c), MPI_BYTE, 0, WORLD, &request))
NON_BLOCKING(iscatter, MPI_Iscatter(OUT(c), N(c), MPI_BYTE, IN(c), N(c), MPI_BYTE, 0, WORLD, &request))
NON_BLOCKING(iallgather, MPI_Iallgather(OUT(c), N(c), MPI_BYTE, IN(c), N(c), MPI_BYTE, WORLD, &request))
NON_BLOCKING(ialltoall, MPI_Ialltoall(OUT(c), N(c), MPI_BYTE, IN(c), N(c), MPI_BYTE, WORLD, &request))
NON_BLOCKING(ireduce, MPI_Ireduce(OUT(c), IN(c), DOUBLES(c), MPI_DOUBLE, MPI_SUM, 0, WORLD, &request))
NON_BLOCKING(iallreduce, MPI_Iallreduce(OUT(c), IN(c), DOUBLES(c), MPI_DOUBLE, MPI_SUM, WORLD, &request))
NON_BLOCKING(ireduce_scatter_block,
             MPI_Ireduce_scatter_block(OUT(c), IN(c), DOUBLES(c), MPI_DOUBLE, MPI_SUM, WORLD, &request))

/* --- what must arrive --- */

static Repeat *verified;

static void verify_bcast(Cell *c) {
    memset(c->in, 0, (size_t)c->bytes);
    if (rank == 0)
        fill(c->in, c->bytes, 0);
    verified(c, 1);
    if (!filled(c->in, c->bytes, 0))
        fail(c->name, c->bytes);
}

/* A block from each rank, at all ranks or at the root. */
static void verify_gathered(Cell *c, int here) {
    fill(c->out, c->bytes, rank);
    verified(c, 1);
    for (int from = 0; from < size && here; from++)
        if (!filled(c->in + from * c->bytes, c->bytes, from))
            fail(c->name, c->bytes);
}

static void verify_gather(Cell *c) {
    verify_gathered(c, rank == 0);
}

static void verify_allgather(Cell *c) {
    verify_gathered(c, 1);
}

static void verify_scatter(Cell *c) {
    for (int to = 0; to < size && rank == 0; to++)
        fill(c->out + to * c->bytes, c->bytes, to);
    verified(c, 1);
    if (!filled(c->in, c->bytes, rank))
        fail(c->name, c->bytes);
}

static void verify_alltoall(Cell *c) {
    for (int to = 0; to < size; to++)
        fill(c->out + to * c->bytes, c->bytes, rank * size + to);
    verified(c, 1);
    for (int from = 0; from < size; from++)
        if (!filled(c->in + from * c->bytes, c->bytes, from * size + rank))
            fail(c->name, c->bytes);
}

/* Element i of rank r is i + r, with i counted over all blocks; the sum over the ranks before `end` at element `first` + i must arrive. */
static void verify_sums(Cell *c, long elements, long first, int end, int here) {
    double *out = (double *)c->out, *in = (double *)c->in;
    for (long i = 0; i < elements; i++)
        out[i] = (double)(i + rank);
    verified(c, 1);
    for (long i = 0; i < DOUBLES(c) && here; i++)
        if (in[i] != (double)(first + i) * end + (double)end * (end - 1) / 2)
            fail(c->name, c->bytes);
    memset(out, 0, (size_t)elements * sizeof *out);
}

static void verify_reduce(Cell *c) {
    verify_sums(c, DOUBLES(c), 0, size, rank == 0);
}
static void verify_allreduce(Cell *c) {
    verify_sums(c, DOUBLES(c), 0, size, 1);
}
static void verify_reduce_scatter(Cell *c) {
    verify_sums(c, (long)DOUBLES(c) * size, (long)DOUBLES(c) * rank, size, 1);
}
static void verify_scan(Cell *c) {
    verify_sums(c, DOUBLES(c), 0, rank + 1, 1);
}
static void verify_exscan(Cell *c) {
    verify_sums(c, DOUBLES(c), 0, rank, rank > 0);
}

/* --- the kinds --- */

typedef enum { ONE, ALL } Length; /* of a buffer: one block, or a block for each rank */
typedef enum { PAIRS, BLOCKING, SPLIT } Form;

static const struct Kind {
    const char *name;
    Repeat *repeat;
    Verify *verify;
    Form form;
    Length out, in;
    int is_reduction, has_counts, window, is_cold;
} kinds[] = {
    {"latency", ping_pong, verify_pair, PAIRS, ONE, ONE, 0, 0, 1, 0},
    {"latency cold", ping_pong, verify_pair, PAIRS, ONE, ONE, 0, 0, 1, 1},
    {"one way x1", one_way, verify_pair, PAIRS, ONE, ONE, 0, 0, 1, 0},
    {"one way x16", one_way, verify_pair, PAIRS, ONE, ONE, 0, 0, 16, 0},
    {"one way x64", one_way, verify_pair, PAIRS, ONE, ONE, 0, 0, 64, 0},
    {"one way cold x16", one_way, verify_pair, PAIRS, ONE, ONE, 0, 0, 16, 1},
    {"both ways x1", both_ways, verify_pair, PAIRS, ONE, ONE, 0, 0, 1, 0},
    {"both ways x16", both_ways, verify_pair, PAIRS, ONE, ONE, 0, 0, 16, 0},
    {"both ways x64", both_ways, verify_pair, PAIRS, ONE, ONE, 0, 0, 64, 0},
    {"barrier", barrier, NULL, BLOCKING, ONE, ONE, 0, 0, 1, 0},
    {"bcast", bcast, verify_bcast, BLOCKING, ONE, ONE, 0, 0, 1, 0},
    {"bcast from all", bcast_turned, verify_bcast, BLOCKING, ONE, ONE, 0, 0, 1, 0},
    {"gather", gather, verify_gather, BLOCKING, ONE, ALL, 0, 0, 1, 0},
    {"gatherv", gatherv, verify_gather, BLOCKING, ONE, ALL, 0, 1, 1, 0},
    {"scatter", scatter, verify_scatter, BLOCKING, ALL, ONE, 0, 0, 1, 0},
    {"scatterv", scatterv, verify_scatter, BLOCKING, ALL, ONE, 0, 1, 1, 0},
    {"allgather", allgather, verify_allgather, BLOCKING, ONE, ALL, 0, 0, 1, 0},
    {"allgatherv", allgatherv, verify_allgather, BLOCKING, ONE, ALL, 0, 1, 1, 0},
    {"alltoall", alltoall, verify_alltoall, BLOCKING, ALL, ALL, 0, 0, 1, 0},
    {"alltoallv", alltoallv, verify_alltoall, BLOCKING, ALL, ALL, 0, 1, 1, 0},
    {"alltoallw", alltoallw, verify_alltoall, BLOCKING, ALL, ALL, 0, 1, 1, 0},
    {"reduce", reduce, verify_reduce, BLOCKING, ONE, ONE, 1, 0, 1, 0},
    {"allreduce", allreduce, verify_allreduce, BLOCKING, ONE, ONE, 1, 0, 1, 0},
    {"reduce_scatter_block", reduce_scatter_block, verify_reduce_scatter, BLOCKING, ALL, ONE, 1, 0, 1, 0},
    {"reduce_scatter", reduce_scatter, verify_reduce_scatter, BLOCKING, ALL, ONE, 1, 1, 1, 0},
    {"scan", scan, verify_scan, BLOCKING, ONE, ONE, 1, 0, 1, 0},
    {"exscan", exscan, verify_exscan, BLOCKING, ONE, ONE, 1, 0, 1, 0},
    {"ibarrier", ibarrier, NULL, SPLIT, ONE, ONE, 0, 0, 1, 0},
    {"ibcast", ibcast, verify_bcast, SPLIT, ONE, ONE, 0, 0, 1, 0},
    {"igather", igather, verify_gather, SPLIT, ONE, ALL, 0, 0, 1, 0},
    {"iscatter", iscatter, verify_scatter, SPLIT, ALL, ONE, 0, 0, 1, 0},
    {"iallgather", iallgather, verify_allgather, SPLIT, ONE, ALL, 0, 0, 1, 0},
    {"ialltoall", ialltoall, verify_alltoall, SPLIT, ALL, ALL, 0, 0, 1, 0},
    {"ireduce", ireduce, verify_reduce, SPLIT, ONE, ONE, 1, 0, 1, 0},
    {"iallreduce", iallreduce, verify_allreduce, SPLIT, ONE, ONE, 1, 0, 1, 0},
    {"ireduce_scatter_block", ireduce_scatter_block, verify_reduce_scatter, SPLIT, ALL, ONE, 1, 0, 1, 0},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* Measures the operation alone; then what it adds to a computation between its start and its end that takes as long as the operation alone. */
static void measure_split(const struct Kind *kind, Cell *c) {
    c->compute = measure(kind->repeat, c, "", 1, 1e6);
    measure(kind->repeat, c, ", computing", 1, 1e6);
}

static void cell(const struct Kind *kind, long bytes) {
    long unit = kind->is_reduction ? (long)sizeof(double) : 1;
    long blocks_out = kind->out == ALL ? size : 1, blocks_in = kind->in == ALL ? size : 1;
    if (bytes % unit != 0 || (double)bytes * (double)(blocks_out + blocks_in) * size > MEMORY)
        return;
    Cell c = {.name = kind->name, .bytes = bytes, .window = kind->window};
    long out = bytes * blocks_out, in = bytes * blocks_in;
    if (kind->is_cold) {
        c.step = (bytes + 4095) / 4096 * 4096;
        c.span = COLD / c.step * c.step;
        out = in = c.span + c.step;
    }
    for (int i = 0; i < size; i++) {
        c.counts[i] = (int)(bytes / unit);
        c.places[i] = (int)(bytes / unit) * i;
        c.types[i] = MPI_BYTE;
    }
    c.out_len = out;
    c.out = memory(out);
    c.in = memory(in);
    verified = kind->repeat;
    if (kind->verify)
        kind->verify(&c);
    switch (kind->form) {
    case PAIRS: /* A ping-pong is two messages. */
        measure(kind->repeat, &c, "", 0, kind->repeat == ping_pong ? 0.5e6 : 1e6 / kind->window);
        break;
    case BLOCKING:
        if (kind->repeat != barrier)
            measure(kind->repeat, &c, "", 1, 1e6);
        measure(kind->repeat, &c, kind->repeat == barrier ? "" : ", no barrier", 0, 1e6);
        break;
    case SPLIT:
        measure_split(kind, &c);
        break;
    }
    free(c.out - shift);
    free(c.in - shift);
}

static int larger(const void *a, const void *b) {
    long x = *(const long *)a, y = *(const long *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    long sizes[MOST_SIZES], count = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(WORLD, &rank);
    MPI_Comm_size(WORLD, &size);
    const struct Kind *kind = NULL;
    for (int k = 0; k < KINDS && argc > 3; k++)
        if (!strcmp(kinds[k].name, argv[1]))
            kind = &kinds[k];
    if (kind == NULL || size > MOST_RANKS || size < 2) {
        if (rank == 0)
            fprintf(stderr, "usage: sweep KIND MS LONGEST [SIZE ...], with 2 to %d ranks\n", MOST_RANKS);
        MPI_Abort(WORLD, 2);
        return 2;
    }
    budget = atof(argv[2]) * 1e-3;
    if (getenv("SHIFT"))
        shift = atol(getenv("SHIFT"));
    rewrites = getenv("REWRITE") != NULL;
    long longest = atol(argv[3]);
    if (kind->verify == NULL)
        longest = 0, argc = 4; /* No data: one cell. */
    else
        for (long bytes = kind->is_reduction ? (long)sizeof(double) : 1; bytes <= longest; bytes *= 2)
            sizes[count++] = bytes;
    for (int i = 4; i < argc && count < MOST_SIZES; i++)
        if (atol(argv[i]) <= longest)
            sizes[count++] = kind->is_reduction ? (atol(argv[i]) + 7) / 8 * 8 : atol(argv[i]);
    if (count == 0)
        sizes[count++] = 0;
    qsort(sizes, (size_t)count, sizeof *sizes, larger);
    for (int i = 0; i < count; i++)
        cell(kind, sizes[i]);
    MPI_Finalize();
    return 0;
}
