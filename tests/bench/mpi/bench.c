/* Measures the speed of an MPI library. The same program is built for every library; it uses only MPI and libc.
 *
 *   bench p2p [MS] [LONGEST]   latency, bandwidth, both ways, message rate between ranks 0 and 1
 *   bench coll [MS] [LONGEST]  barrier, bcast, allreduce, allgather, alltoall over all ranks
 *   bench start                MPI_Init and MPI_Finalize: the time of the whole process counts
 *   bench ring                 MPI_Init, one message from each rank to the next, MPI_Finalize: the time of the whole process counts
 *   bench memory               private memory of each rank after all ranks have communicated with each other
 *
 * Rank 0 prints one JSON object per figure and line. A figure is the median of nine batches after one to warm up; the repetitions of a batch
 * take a ninth of MS milliseconds (default 300), and it has at least one. Every size is verified once before it is timed.
 * Messages have at most LONGEST bytes. The caller decides where ranks run: they do not bind themselves.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BATCHES = 9, WINDOW = 64, TAG = 7 };

static int rank, size;
static double budget = 0.3;
static long longest = 4 << 20;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void fail(const char *what, long bytes) {
    fprintf(stderr, "rank %d of %d: %s of %ld bytes arrived wrong\n", rank, size, what, bytes);
    MPI_Abort(MPI_COMM_WORLD, 9);
}

static void *memory(size_t bytes) {
    void *p;
    if (posix_memalign(&p, 4096, bytes ? bytes : 1) != 0)
        abort();
    memset(p, 0, bytes);
    return p;
}

/* The contents of a message of rank `from`. */
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

/* --- timing --- */

/* The operation that is measured: `repeat` performs it this many times; all ranks call it. */
typedef struct {
    long bytes;
    unsigned char *out, *in;
} Work;
typedef void Repeat(const Work *work, long times);

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Seconds that the slowest rank needs for a batch. */
static double batch(Repeat *repeat, const Work *work, long times) {
    MPI_Barrier(MPI_COMM_WORLD);
    double since = now();
    repeat(work, times);
    double took = now() - since, slowest;
    MPI_Allreduce(&took, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest;
}

/* Seconds for one repetition: the median of the batches. */
static double measure(Repeat *repeat, const Work *work) {
    double target = budget / BATCHES, took = batch(repeat, work, 1);
    long times = 1;
    while (took < target / 2 && times < 1L << 40) {
        /* At most a factor of ten per step, because the first repetitions are slow for other reasons. */
        double more = took > 0 ? target / took : 10;
        times = (long)((double)times * (more > 10 ? 10 : more)) + 1;
        took = batch(repeat, work, times);
    }
    double all[BATCHES];
    for (int i = 0; i < BATCHES; i++)
        all[i] = batch(repeat, work, times) / (double)times;
    qsort(all, BATCHES, sizeof *all, ascending);
    return all[BATCHES / 2];
}

static void tell(const char *figure, long bytes, double value, const char *unit) {
    if (rank == 0) {
        printf("{\"figure\":\"%s\",\"np\":%d,\"bytes\":%ld,\"value\":%.6g,\"unit\":\"%s\"}\n", figure, size, bytes, value, unit);
        fflush(stdout);
    }
}

/* --- point to point, between ranks 0 and 1 --- */

static void ping_pong(const Work *w, long times) {
    int n = (int)w->bytes;
    for (long i = 0; i < times; i++) {
        if (rank == 0) {
            MPI_Send(w->out, n, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
            MPI_Recv(w->in, n, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else if (rank == 1) {
            MPI_Recv(w->in, n, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(w->out, n, MPI_BYTE, 0, TAG, MPI_COMM_WORLD);
        }
    }
}

/* A window of messages one way, then a short answer. As in the customary benchmarks, all of a window share one buffer. */
static void one_way(const Work *w, long times) {
    MPI_Request requests[WINDOW];
    int n = (int)w->bytes;
    char answer = 0;
    for (long i = 0; i < times; i++) {
        if (rank == 0) {
            for (int k = 0; k < WINDOW; k++)
                MPI_Isend(w->out, n, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &requests[k]);
            MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
            MPI_Recv(&answer, 1, MPI_CHAR, 1, TAG + 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else if (rank == 1) {
            for (int k = 0; k < WINDOW; k++)
                MPI_Irecv(w->in, n, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &requests[k]);
            MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
            MPI_Send(&answer, 1, MPI_CHAR, 0, TAG + 1, MPI_COMM_WORLD);
        }
    }
}

static void both_ways(const Work *w, long times) {
    MPI_Request requests[2 * WINDOW];
    int n = (int)w->bytes;
    for (long i = 0; i < times && rank < 2; i++) {
        for (int k = 0; k < WINDOW; k++)
            MPI_Irecv(w->in, n, MPI_BYTE, 1 - rank, TAG, MPI_COMM_WORLD, &requests[k]);
        for (int k = 0; k < WINDOW; k++)
            MPI_Isend(w->out, n, MPI_BYTE, 1 - rank, TAG, MPI_COMM_WORLD, &requests[WINDOW + k]);
        MPI_Waitall(2 * WINDOW, requests, MPI_STATUSES_IGNORE);
    }
}

/* Sends once in each direction, and checks the received data. */
static void verify_pair(const Work *w) {
    if (rank > 1)
        return;
    fill(w->out, w->bytes, rank);
    ping_pong(w, 1);
    if (!filled(w->in, w->bytes, 1 - rank))
        fail("a message", w->bytes);
}

static void pairs(void) {
    static const long sizes[] = {8, 1 << 10, 64 << 10, 1 << 20, 4 << 20};
    if (size < 2) {
        fprintf(stderr, "p2p needs two ranks\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    for (int i = 0; i < 5 && sizes[i] <= longest; i++) {
        Work w = {sizes[i], memory((size_t)sizes[i]), memory((size_t)sizes[i])};
        verify_pair(&w);
        tell("latency", w.bytes, measure(ping_pong, &w) / 2 * 1e6, "us");
        if (w.bytes == 8) {
            tell("rate", w.bytes, WINDOW / measure(one_way, &w) * 1e-6, "M/s");
        } else {
            double bytes = (double)w.bytes * WINDOW;
            tell("bandwidth", w.bytes, bytes / measure(one_way, &w) * 1e-9, "GB/s");
            tell("bidirectional", w.bytes, 2 * bytes / measure(both_ways, &w) * 1e-9, "GB/s");
        }
        free(w.out);
        free(w.in);
    }
}

/* --- collectives --- */

static void barrier(const Work *w, long times) {
    (void)w;
    for (long i = 0; i < times; i++)
        MPI_Barrier(MPI_COMM_WORLD);
}

/* The root changes with each repetition, so that no rank can run ahead of the others. */
static void bcast(const Work *w, long times) {
    for (long i = 0; i < times; i++)
        MPI_Bcast(w->in, (int)w->bytes, MPI_BYTE, (int)(i % size), MPI_COMM_WORLD);
}

static void allreduce(const Work *w, long times) {
    for (long i = 0; i < times; i++)
        MPI_Allreduce(w->out, w->in, (int)(w->bytes / (long)sizeof(double)), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

static void allgather(const Work *w, long times) {
    for (long i = 0; i < times; i++)
        MPI_Allgather(w->out, (int)w->bytes, MPI_BYTE, w->in, (int)w->bytes, MPI_BYTE, MPI_COMM_WORLD);
}

static void alltoall(const Work *w, long times) {
    for (long i = 0; i < times; i++)
        MPI_Alltoall(w->out, (int)w->bytes, MPI_BYTE, w->in, (int)w->bytes, MPI_BYTE, MPI_COMM_WORLD);
}

static void verify_bcast(const Work *w) {
    for (int root = 0; root < size; root++) {
        memset(w->in, 0, (size_t)w->bytes);
        if (rank == root)
            fill(w->in, w->bytes, root);
        MPI_Bcast(w->in, (int)w->bytes, MPI_BYTE, root, MPI_COMM_WORLD);
        if (!filled(w->in, w->bytes, root))
            fail("bcast", w->bytes);
    }
}

static void verify_allreduce(const Work *w) {
    long count = w->bytes / (long)sizeof(double);
    double *out = (double *)w->out, *in = (double *)w->in;
    for (long i = 0; i < count; i++)
        out[i] = (double)(i + rank);
    allreduce(w, 1);
    for (long i = 0; i < count; i++)
        if (in[i] != (double)i * size + (double)size * (size - 1) / 2)
            fail("allreduce", w->bytes);
    /* Repeated below without using the results: the values must not overflow. */
    memset(out, 0, (size_t)w->bytes);
}

static void verify_allgather(const Work *w) {
    fill(w->out, w->bytes, rank);
    allgather(w, 1);
    for (int from = 0; from < size; from++)
        if (!filled(w->in + from * w->bytes, w->bytes, from))
            fail("allgather", w->bytes);
}

static void verify_alltoall(const Work *w) {
    for (int to = 0; to < size; to++)
        fill(w->out + to * w->bytes, w->bytes, rank * size + to);
    alltoall(w, 1);
    for (int from = 0; from < size; from++)
        if (!filled(w->in + from * w->bytes, w->bytes, from * size + rank))
            fail("alltoall", w->bytes);
}

static void collectives(void) {
    static const struct {
        const char *name;
        Repeat *repeat;
        void (*verify)(const Work *);
    } figures[] = {
        {"bcast", bcast, verify_bcast},
        {"allreduce", allreduce, verify_allreduce},
        {"allgather", allgather, verify_allgather},
        {"alltoall", alltoall, verify_alltoall},
    };
    static const long sizes[] = {8, 1 << 10, 64 << 10};
    tell("barrier", 0, measure(barrier, NULL) * 1e6, "us");
    for (int f = 0; f < 4; f++)
        for (int i = 0; i < 3 && sizes[i] <= longest; i++) {
            size_t bytes = (size_t)sizes[i] * (size_t)size;
            Work w = {sizes[i], memory(bytes), memory(bytes)};
            figures[f].verify(&w);
            tell(figures[f].name, w.bytes, measure(figures[f].repeat, &w) * 1e6, "us");
            free(w.out);
            free(w.in);
        }
}

/* --- memory --- */

/* Private memory of this process, in KiB; 0 if the kernel does not report it. */
static long private_kib(void) {
    FILE *f = fopen("/proc/self/smaps_rollup", "r");
    char line[256];
    long sum = 0, kib;
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "Private_%*[a-zA-Z_]: %ld kB", &kib) == 1)
            sum += kib;
    if (f)
        fclose(f);
    return sum;
}

/* Each rank sends to each other: short messages, and some that are longer than any eager message. */
static void talk(void) {
    static const long sizes[] = {8, 4 << 10, 128 << 10};
    for (int i = 0; i < 3; i++) {
        Work w = {sizes[i], memory((size_t)sizes[i]), memory((size_t)sizes[i])};
        for (int shift = 1; shift < size; shift++)
            MPI_Sendrecv(w.out, (int)w.bytes, MPI_BYTE, (rank + shift) % size, TAG, w.in, (int)w.bytes, MPI_BYTE,
                         (rank - shift + size) % size, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        barrier(NULL, 3);
        free(w.out);
        free(w.in);
    }
}

static void weigh(void) {
    talk();
    long mine = private_kib(), most, sum;
    MPI_Allreduce(&mine, &most, 1, MPI_LONG, MPI_MAX, MPI_COMM_WORLD);
    MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    tell("memory", 0, (double)sum / size / 1024, "MiB");
    tell("memory_most", 0, (double)most / 1024, "MiB");
}

static void pass_on(void) {
    int mine = rank, got = -1, next = (rank + 1) % size, before = (rank + size - 1) % size;
    MPI_Sendrecv(&mine, 1, MPI_INT, next, TAG, &got, 1, MPI_INT, before, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (got != before) {
        fprintf(stderr, "bench: rank %d got %d from rank %d\n", rank, got, before);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "p2p";
    if (argc > 2)
        budget = atof(argv[2]) * 1e-3;
    if (argc > 3)
        longest = atol(argv[3]);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (!strcmp(what, "p2p"))
        pairs();
    else if (!strcmp(what, "coll"))
        collectives();
    else if (!strcmp(what, "ring"))
        pass_on();
    else if (!strcmp(what, "memory"))
        weigh();
    else if (strcmp(what, "start") != 0)
        fprintf(stderr, "bench: unknown section %s\n", what);
    MPI_Finalize();
    return 0;
}
