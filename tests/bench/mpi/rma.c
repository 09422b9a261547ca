/* Measures the one-sided operations of an MPI library, and what stands beside them. The same program is built for every library.
 *
 *   rma rma [MS]        put, get and accumulate: latency with the flush, bandwidth; fetch_and_op, lock-put-unlock, fence
 *   rma beside [MS]     vectors of doubles with stride 2, neighbour alltoall, messages of four threads per rank
 *   rma overlap [MS]    how much of a transfer goes on while both ranks compute
 *
 * Rank 0 prints one JSON object per figure and line: the median of nine batches after one to warm up, as in bench.c. Every kind of operation
 * is verified once before it is timed.
 */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BATCHES = 9, WINDOW = 64, TAG = 7, THREADS = 4, LONGEST = 1 << 20 };

static int rank, size;
static double budget = 0.3;
static MPI_Win window;
static unsigned char *memory;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void fail(const char *what) {
    fprintf(stderr, "rank %d of %d: %s went wrong\n", rank, size, what);
    MPI_Abort(MPI_COMM_WORLD, 9);
}

static void *room(size_t bytes) {
    void *p;
    if (posix_memalign(&p, 4096, bytes) != 0)
        abort();
    memset(p, 0, bytes);
    return p;
}

/* --- timing --- */

typedef struct {
    long bytes;
    unsigned char *out, *in;
} Work;
/* `repeat` performs the operation this many times; all ranks call it. */
typedef void Repeat(const Work *work, long times);

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double batch(Repeat *repeat, const Work *work, long times) {
    MPI_Barrier(MPI_COMM_WORLD);
    double since = now();
    repeat(work, times);
    double took = now() - since, slowest;
    MPI_Allreduce(&took, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest;
}

static double measure(Repeat *repeat, const Work *work) {
    double target = budget / BATCHES, took = batch(repeat, work, 1), all[BATCHES];
    long times = 1;
    while (took < target / 2 && times < 1L << 40) {
        double more = took > 0 ? target / took : 10;
        times = (long)((double)times * (more > 10 ? 10 : more)) + 1;
        took = batch(repeat, work, times);
    }
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

static void latency(const char *figure, Repeat *repeat, const Work *work) {
    tell(figure, work->bytes, measure(repeat, work) * 1e6, "us");
}

static void bandwidth(const char *figure, Repeat *repeat, const Work *work) {
    tell(figure, work->bytes, (double)work->bytes * WINDOW / measure(repeat, work) * 1e-9, "GB/s");
}

/* --- rank 0 uses the memory of rank 1, which waits in MPI --- */

static int doubles(const Work *w) {
    return (int)(w->bytes / 8);
}

static void put(const Work *w, long times) {
    for (long i = 0; i < times && rank == 0; i++) {
        MPI_Put(w->out, (int)w->bytes, MPI_BYTE, 1, 0, (int)w->bytes, MPI_BYTE, window);
        MPI_Win_flush(1, window);
    }
}

static void get(const Work *w, long times) {
    for (long i = 0; i < times && rank == 0; i++) {
        MPI_Get(w->in, (int)w->bytes, MPI_BYTE, 1, 0, (int)w->bytes, MPI_BYTE, window);
        MPI_Win_flush(1, window);
    }
}

static void accumulate(const Work *w, long times) {
    for (long i = 0; i < times && rank == 0; i++) {
        MPI_Accumulate(w->out, doubles(w), MPI_DOUBLE, 1, 0, doubles(w), MPI_DOUBLE, MPI_SUM, window);
        MPI_Win_flush(1, window);
    }
}

static void puts_(const Work *w, long times) {
    for (long i = 0; i < times && rank == 0; i++) {
        for (int j = 0; j < WINDOW; j++)
            MPI_Put(w->out, (int)w->bytes, MPI_BYTE, 1, 0, (int)w->bytes, MPI_BYTE, window);
        MPI_Win_flush(1, window);
    }
}

static void gets_(const Work *w, long times) {
    for (long i = 0; i < times && rank == 0; i++) {
        for (int j = 0; j < WINDOW; j++)
            MPI_Get(w->in, (int)w->bytes, MPI_BYTE, 1, 0, (int)w->bytes, MPI_BYTE, window);
        MPI_Win_flush(1, window);
    }
}

static void accumulates(const Work *w, long times) {
    for (long i = 0; i < times && rank == 0; i++) {
        for (int j = 0; j < WINDOW; j++)
            MPI_Accumulate(w->out, doubles(w), MPI_DOUBLE, 1, 0, doubles(w), MPI_DOUBLE, MPI_SUM, window);
        MPI_Win_flush(1, window);
    }
}

static void fetch(const Work *w, long times) {
    long one = 1;
    for (long i = 0; i < times && rank == 0; i++) {
        MPI_Fetch_and_op(&one, w->in, MPI_LONG, 1, 0, MPI_SUM, window);
        MPI_Win_flush(1, window);
    }
}

/* All ranks at the same counter. */
static void fetch_all(const Work *w, long times) {
    long one = 1;
    for (long i = 0; i < times; i++) {
        MPI_Fetch_and_op(&one, w->in, MPI_LONG, 1, 0, MPI_SUM, window);
        MPI_Win_flush(1, window);
    }
}

static void swap(const Work *w, long times) {
    long zero = 0;
    for (long i = 0; i < times && rank == 0; i++) {
        MPI_Compare_and_swap(&zero, &zero, w->in, MPI_LONG, 1, 0, window);
        MPI_Win_flush(1, window);
    }
}

static void locked_put(const Work *w, long times) {
    for (long i = 0; i < times && rank == 0; i++) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, window);
        MPI_Put(w->out, (int)w->bytes, MPI_BYTE, 1, 0, (int)w->bytes, MPI_BYTE, window);
        MPI_Win_unlock(1, window);
    }
}

static void fenced_put(const Work *w, long times) {
    for (long i = 0; i < times; i++) {
        MPI_Put(w->out, (int)w->bytes, MPI_BYTE, (rank + 1) % size, 0, (int)w->bytes, MPI_BYTE, window);
        MPI_Win_fence(0, window);
    }
}

static void posted_put(const Work *w, long times) {
    MPI_Group all, other;
    int peer = 1 - rank;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_incl(all, 1, &peer, &other);
    for (long i = 0; i < times && rank < 2; i++) {
        MPI_Win_post(other, 0, window);
        MPI_Win_start(other, 0, window);
        MPI_Put(w->out, (int)w->bytes, MPI_BYTE, peer, 0, (int)w->bytes, MPI_BYTE, window);
        MPI_Win_complete(window);
        MPI_Win_wait(window);
    }
    MPI_Group_free(&all);
    MPI_Group_free(&other);
}

static void open_window(int created) {
    if (created) {
        memory = room(LONGEST);
        MPI_Win_create(memory, LONGEST, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    } else {
        MPI_Win_allocate(LONGEST, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
    }
    MPI_Win_lock_all(0, window);
    memset(memory, 0, LONGEST);
    MPI_Win_sync(window);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void close_window(int created) {
    MPI_Win_free(&window);
    if (created)
        free(memory);
}

static void verify(const Work *w) {
    if (rank == 0) {
        double *out = (double *)w->out, *in = (double *)w->in;
        for (int i = 0; i < 1000; i++)
            out[i] = i + 0.5;
        MPI_Put(out, 1000, MPI_DOUBLE, 1, 64, 1000, MPI_DOUBLE, window);
        MPI_Win_flush(1, window);
        MPI_Accumulate(out, 1000, MPI_DOUBLE, 1, 64, 1000, MPI_DOUBLE, MPI_SUM, window);
        MPI_Win_flush(1, window);
        MPI_Get(in, 1000, MPI_DOUBLE, 1, 64, 1000, MPI_DOUBLE, window);
        MPI_Win_flush(1, window);
        for (int i = 0; i < 1000; i++)
            if (in[i] != 2 * i + 1)
                fail("a put, an accumulate or a get");
        long one = 1, before = -1, after = -1;
        MPI_Fetch_and_op(&one, &before, MPI_LONG, 1, 0, MPI_SUM, window);
        MPI_Win_flush(1, window);
        MPI_Fetch_and_op(&one, &after, MPI_LONG, 1, 0, MPI_SUM, window);
        MPI_Win_flush(1, window);
        if (before != 0 || after != 1)
            fail("a fetch");
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static void rma(void) {
    static const long lats[] = {8, 1024, 65536}, widths[] = {8, 4096, 65536, LONGEST};
    Work w = {8, room(LONGEST), room(LONGEST)};
    for (int created = 0; created < 2; created++) {
        open_window(created);
        verify(&w);
        memset(w.out, 0, LONGEST);
        for (int i = 0; i < 3; i++) {
            w.bytes = lats[i];
            latency(created ? "put, own memory" : "put", put, &w);
            latency(created ? "get, own memory" : "get", get, &w);
            latency(created ? "accumulate, own memory" : "accumulate", accumulate, &w);
        }
        for (int i = 0; i < 4; i++) {
            w.bytes = widths[i];
            bandwidth(created ? "puts, own memory" : "puts", puts_, &w);
            bandwidth(created ? "gets, own memory" : "gets", gets_, &w);
            bandwidth(created ? "accumulates, own memory" : "accumulates", accumulates, &w);
        }
        w.bytes = 8;
        latency(created ? "fetch_and_op, own memory" : "fetch_and_op", fetch, &w);
        latency(created ? "fetch_and_op of all, own memory" : "fetch_and_op of all", fetch_all, &w);
        latency(created ? "compare_and_swap, own memory" : "compare_and_swap", swap, &w);
        MPI_Win_unlock_all(window);
        MPI_Barrier(MPI_COMM_WORLD);
        latency(created ? "lock-put-unlock, own memory" : "lock-put-unlock", locked_put, &w);
        MPI_Win_fence(0, window);
        latency(created ? "put-fence, own memory" : "put-fence", fenced_put, &w);
        MPI_Win_fence(MPI_MODE_NOSUCCEED, window);
        latency(created ? "post-start-put-complete-wait, own memory" : "post-start-put-complete-wait", posted_put, &w);
        close_window(created);
    }
    free(w.out);
    free(w.in);
}

/* --- vectors, neighbours, threads --- */

static MPI_Datatype vector;
static MPI_Comm ring;

static void vectors(const Work *w, long times) {
    (void)w;
    for (long i = 0; i < times && rank < 2; i++) {
        if (rank == 0) {
            MPI_Send(w->out, 1, vector, 1, TAG, MPI_COMM_WORLD);
            MPI_Recv(w->in, 1, vector, 1, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(w->in, 1, vector, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(w->out, 1, vector, 0, TAG, MPI_COMM_WORLD);
        }
    }
}

static void neighbours(const Work *w, long times) {
    for (long i = 0; i < times; i++)
        MPI_Neighbor_alltoall(w->out, (int)w->bytes, MPI_BYTE, w->in, (int)w->bytes, MPI_BYTE, ring);
}

typedef struct {
    int number;
    long times;
} Thread;

static void *rate_of_one(void *argument) {
    Thread *t = argument;
    MPI_Request requests[WINDOW];
    char bytes[WINDOW][8] = {{0}};
    for (long i = 0; i < t->times; i++) {
        for (int j = 0; j < WINDOW; j++) {
            if (rank == 0)
                MPI_Isend(bytes[j], 8, MPI_BYTE, 1, t->number, MPI_COMM_WORLD, &requests[j]);
            else
                MPI_Irecv(bytes[j], 8, MPI_BYTE, 0, t->number, MPI_COMM_WORLD, &requests[j]);
        }
        MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
        char token = 0;
        if (rank == 0)
            MPI_Recv(&token, 1, MPI_BYTE, 1, 100 + t->number, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else
            MPI_Send(&token, 1, MPI_BYTE, 0, 100 + t->number, MPI_COMM_WORLD);
    }
    return NULL;
}

static void rates(const Work *w, long times) {
    (void)w;
    pthread_t threads[THREADS];
    Thread all[THREADS];
    for (int i = 0; i < THREADS && rank < 2; i++) {
        all[i] = (Thread){i, times};
        pthread_create(&threads[i], NULL, rate_of_one, &all[i]);
    }
    for (int i = 0; i < THREADS && rank < 2; i++)
        pthread_join(threads[i], NULL);
}

static void beside(int threads) {
    Work w = {8, room(2 * LONGEST), room(2 * LONGEST)};
    for (long bytes = 65536; bytes <= LONGEST; bytes *= 16) {
        MPI_Type_vector((int)(bytes / 8), 1, 2, MPI_DOUBLE, &vector);
        MPI_Type_commit(&vector);
        w.bytes = bytes;
        tell("vector of doubles, stride 2", bytes, measure(vectors, &w) * 5e5, "us");
        MPI_Type_free(&vector);
    }
    int periodic = 1;
    MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &periodic, 0, &ring);
    for (long bytes = 8; bytes <= 65536; bytes *= 16) {
        w.bytes = bytes;
        latency("neighbour alltoall", neighbours, &w);
    }
    MPI_Comm_free(&ring);
    if (threads)
        tell("messages of 4 + 4 threads", 8, THREADS * WINDOW / measure(rates, &w) * 1e-6, "M/s");
    free(w.out);
    free(w.in);
}

/* --- overlap --- */

/* Seconds of arithmetic without any call. */
static void compute(double seconds) {
    volatile double x = 1;
    for (double since = now(); now() - since < seconds;)
        for (int i = 0; i < 100; i++)
            x = x * 1.0000001 + 1e-9;
}

/* The share of a transfer that takes place while both ranks compute for as long as it takes. */
static void overlap(const char *figure, void (*start)(const Work *, MPI_Request *), const Work *w) {
    enum { TIMES = 15 };
    double alone[TIMES], both[TIMES];
    for (int i = 0; i < 2 * TIMES; i++) {
        MPI_Request request;
        double pause = 0;
        if (i >= TIMES) {
            qsort(alone, TIMES, sizeof *alone, ascending);
            pause = alone[TIMES / 2];
        }
        MPI_Barrier(MPI_COMM_WORLD);
        double since = now(), took, slowest;
        start(w, &request);
        compute(pause);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        took = now() - since;
        MPI_Allreduce(&took, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        (i < TIMES ? alone : both)[i % TIMES] = slowest;
    }
    qsort(both, TIMES, sizeof *both, ascending);
    double hidden = (2 * alone[TIMES / 2] - both[TIMES / 2]) / alone[TIMES / 2];
    tell(figure, w->bytes, hidden < 0 ? 0 : hidden * 100, "%");
}

static void send_long(const Work *w, MPI_Request *request) {
    if (rank == 0)
        MPI_Isend(w->out, (int)w->bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, request);
    else
        MPI_Irecv(w->in, (int)w->bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, request);
}

static void reduce_long(const Work *w, MPI_Request *request) {
    MPI_Iallreduce(w->out, w->in, doubles(w), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, request);
}

static void overlaps(void) {
    Work w = {16 << 20, room(16 << 20), room(16 << 20)};
    overlap("overlap of a long message", send_long, &w);
    overlap("overlap of iallreduce", reduce_long, &w);
    free(w.out);
    free(w.in);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "rma";
    int provided = MPI_THREAD_SINGLE;
    if (argc > 2)
        budget = atof(argv[2]) * 1e-3;
    MPI_Init_thread(&argc, &argv, strcmp(what, "beside") == 0 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (strcmp(what, "beside") == 0)
        beside(provided == MPI_THREAD_MULTIPLE);
    else if (strcmp(what, "overlap") == 0)
        overlaps();
    else
        rma();
    MPI_Finalize();
    return 0;
}
