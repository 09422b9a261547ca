/* Latency and bandwidth of messages between kinds of memory, between the first two ranks; the others wait.
 *
 *     bench KIND KIND [BYTES]   messages between memory of rank 0 and of rank 1: D device, M managed, P pinned host, H host;
 *                                      from 1 byte to BYTES (64 MiB) in powers of two. Several pairs: `DD,HD,DH`
 *     bench limits [BYTES]      what the driver needs for copies and for its other calls, without messages
 *     bench collectives KINDS [BYTES]   collectives on memory of each kind, of all ranks; up to BYTES for each rank (16 MiB)
 *     bench overhead            8 bytes of host memory, before and after CUDA is loaded and started
 *
 * Latencies are one way, the median and the best round. A bandwidth is the median of windows of 16 messages, each answered once. */
#define _POSIX_C_SOURCE 200809L
#define _DEFAULT_SOURCE
#include "device.h"

#include <sys/mman.h>
#include <time.h>

enum { ROUNDS = 2000, WINDOW = 16 };

static size_t largest = 64 << 20;
static double samples[ROUNDS];

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(int count) {
    qsort(samples, (size_t)count, sizeof *samples, by_size);
    return samples[count / 2];
}

/* How many rounds fit into `budget` seconds, agreed on by both ranks. */
static int agreed_rounds(double round_seconds, double budget) {
    int rounds = (int)(budget / (round_seconds > 1e-9 ? round_seconds : 1e-9));
    rounds = rounds < 7 ? 7 : rounds > ROUNDS ? ROUNDS : rounds;
    if (rank == 0)
        MPI(MPI_Send(&rounds, 1, MPI_INT, 1, 2, MPI_COMM_WORLD));
    else
        MPI(MPI_Recv(&rounds, 1, MPI_INT, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    return rounds;
}

/* Seconds of a message there and one back, into samples[round]. */
static void ping_pong(void *buffer, size_t bytes, int rounds) {
    for (int round = 0; round < rounds; round++) {
        double since = now();
        if (rank == 0) {
            MPI(MPI_Send(buffer, (int)bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD));
            MPI(MPI_Recv(buffer, (int)bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        } else {
            MPI(MPI_Recv(buffer, (int)bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            MPI(MPI_Send(buffer, (int)bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD));
        }
        samples[round] = now() - since;
    }
}

static void windows(void *buffer, size_t bytes, int rounds) {
    MPI_Request requests[WINDOW];
    for (int round = 0; round < rounds; round++) {
        double since = now();
        for (int i = 0; i < WINDOW; i++)
            if (rank == 0)
                MPI(MPI_Isend(buffer, (int)bytes, MPI_BYTE, 1, 3, MPI_COMM_WORLD, &requests[i]));
            else
                MPI(MPI_Irecv(buffer, (int)bytes, MPI_BYTE, 0, 3, MPI_COMM_WORLD, &requests[i]));
        MPI(MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE));
        if (rank == 0)
            MPI(MPI_Recv(NULL, 0, MPI_BYTE, 1, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        else
            MPI(MPI_Send(NULL, 0, MPI_BYTE, 0, 4, MPI_COMM_WORLD));
        samples[round] = now() - since;
    }
}

static void messages(char mine, char theirs) {
    char *buffer = allocate(mine, largest);
    void *zeros = calloc(1, largest);
    put(mine, buffer, zeros, largest);
    free(zeros);
    if (rank == 0)
        printf("# %c of rank 0 and %c of rank 1\n#   bytes  latency median us  latency best us  bandwidth GB/s\n", mine, theirs);
    for (size_t bytes = 1; bytes <= largest; bytes *= 2) {
        say("%c %c, %zu bytes", mine, theirs, bytes);
        ping_pong(buffer, bytes, 3);
        int rounds = agreed_rounds(samples[2], 0.1);
        ping_pong(buffer, bytes, rounds);
        double middle = median(rounds) / 2, best = samples[0] / 2;
        windows(buffer, bytes, 2);
        rounds = agreed_rounds(samples[1], 0.1);
        windows(buffer, bytes, rounds);
        double rate = (double)bytes * WINDOW / median(rounds) * 1e-9;
        if (rank == 0) printf("%9zu  %17.2f  %15.2f  %14.3f\n", bytes, middle * 1e6, best * 1e6, rate);
    }
    release(mine, buffer);
}

/* ---- Limits ---- */

static double copy_seconds(const char *to, const char *from, size_t bytes, CUstream stream) {
    int rounds = 5;
    for (int measured = 0; measured < 2; measured++) {
        for (int i = 0; i < rounds; i++) {
            double since = now();
            CUDA(cuMemcpyAsync((uintptr_t)to, (uintptr_t)from, bytes, stream));
            CUDA(cuStreamSynchronize(stream));
            samples[i] = now() - since;
        }
        double middle = median(rounds);
        rounds = (int)(0.05 / middle);
        rounds = rounds < 7 ? 7 : rounds > ROUNDS ? ROUNDS : rounds;
        if (measured) return middle;
    }
    return 0;
}

/* Nanoseconds of a call, the average of many. */
#define AVERAGE(text, call) \
    do { \
        enum { CALLS = 2000 }; \
        double since_ = now(); \
        for (int i_ = 0; i_ < CALLS; i_++) \
            CUDA(call); \
        printf("%-44s %9.0f ns\n", text, (now() - since_) / CALLS * 1e9); \
    } while (0)

static void calls(CUstream stream) {
    enum { MEMORY_TYPE = 2, BUFFER_ID = 7 };
    unsigned long long value;
    CUdeviceptr device;
    CUcontext context;
    CUevent event;
    char *pinned = allocate('P', 4096);
    CUDA(cuMemAlloc(&device, 4096));
    CUDA(cuCtxGetCurrent(&context));
    CUDA(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    AVERAGE("pointer attribute of device memory", cuPointerGetAttribute(&value, MEMORY_TYPE, device));
    AVERAGE("buffer id of device memory", cuPointerGetAttribute(&value, BUFFER_ID, device));
    AVERAGE("pointer attribute of pinned memory", cuPointerGetAttribute(&value, MEMORY_TYPE, (uintptr_t)pinned));
    double since = now();
    for (int i = 0; i < 2000; i++)
        (void)!cuPointerGetAttribute(&value, MEMORY_TYPE, (uintptr_t)&value); /* fails: the driver does not know it */
    printf("%-44s %9.0f ns\n", "pointer attribute of host memory", (now() - since) / 2000 * 1e9);
    AVERAGE("current context", cuCtxGetCurrent(&context));
    AVERAGE("push and pop of a context", (cuCtxPushCurrent(context), cuCtxPopCurrent(&context)));
    AVERAGE("record of an event and wait for it", (cuEventRecord(event, stream), cuEventSynchronize(event)));
    AVERAGE("wait for an idle stream", cuStreamSynchronize(stream));
    AVERAGE("8 bytes to the device, cuMemcpyHtoD", cuMemcpyHtoD(device, pinned, 8));
    AVERAGE("8 bytes from the device, cuMemcpyDtoH", cuMemcpyDtoH(pinned, device, 8));
    CUDA(cuEventDestroy(event));
    CUDA(cuMemFree(device));
    release('P', pinned);
}

/* Rank 1 exports allocations; rank 0 opens each once and closes it. */
static void openings(void) {
    enum { OPENED = 16 };
    CUipcMemHandle handles[OPENED];
    CUdeviceptr address[OPENED];
    for (size_t bytes = 4096; bytes <= largest && bytes <= 64 << 20; bytes *= 128) {
        if (rank == 1) {
            for (int i = 0; i < OPENED; i++)
                CUDA(cuMemAlloc(&address[i], bytes));
            double since = now();
            for (int i = 0; i < OPENED; i++)
                CUDA(cuIpcGetMemHandle(&handles[i], address[i]));
            since = (now() - since) / OPENED * 1e6;
            MPI(MPI_Send(handles, (int)sizeof handles, MPI_BYTE, 0, 5, MPI_COMM_WORLD));
            MPI(MPI_Send(&since, 1, MPI_DOUBLE, 0, 5, MPI_COMM_WORLD));
            MPI(MPI_Recv(NULL, 0, MPI_BYTE, 0, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            for (int i = 0; i < OPENED; i++)
                CUDA(cuMemFree(address[i]));
        } else {
            double exported, opened = now(), closed;
            MPI(MPI_Recv(handles, (int)sizeof handles, MPI_BYTE, 1, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            MPI(MPI_Recv(&exported, 1, MPI_DOUBLE, 1, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            opened = now();
            for (int i = 0; i < OPENED; i++)
                CUDA(cuIpcOpenMemHandle(&address[i], handles[i], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
            opened = (now() - opened) / OPENED * 1e6;
            closed = now();
            for (int i = 0; i < OPENED; i++)
                CUDA(cuIpcCloseMemHandle(address[i]));
            closed = (now() - closed) / OPENED * 1e6;
            MPI(MPI_Send(NULL, 0, MPI_BYTE, 1, 6, MPI_COMM_WORLD));
            printf("memory of %zu bytes: export %.1f us, open %.1f us, close %.1f us\n", bytes, exported, opened, closed);
        }
    }
}

static void limits(void) {
    static const struct {
        const char *name;
        char to, from;
    } ways[] = {{"D to D", 'D', 'D'},          {"pinned to D", 'D', 'P'},     {"D to pinned", 'P', 'D'},
                {"pageable to D", 'D', 'H'},   {"D to pageable", 'H', 'D'},   {"managed to D", 'D', 'M'}};
    enum { WAYS = sizeof ways / sizeof *ways };
    CUstream stream;
    CUDA(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    if (rank == 0) {
        calls(stream);
        printf("# a copy and the wait for it: us, GB/s\n#   bytes");
        for (int i = 0; i < WAYS; i++)
            printf("  %18s", ways[i].name);
        printf("\n");
        char *areas[2][WAYS];
        for (int i = 0; i < WAYS; i++) {
            areas[0][i] = allocate(ways[i].to, largest), areas[1][i] = allocate(ways[i].from, largest);
            if (ways[i].to != 'D') memset(areas[0][i], 0, largest);
            if (ways[i].from != 'D') memset(areas[1][i], 0, largest);
        }
        for (size_t bytes = 1; bytes <= largest; bytes *= 2) {
            printf("%9zu", bytes);
            for (int i = 0; i < WAYS; i++) {
                double seconds = copy_seconds(areas[0][i], areas[1][i], bytes, stream);
                printf("  %10.2f %7.2f", seconds * 1e6, (double)bytes / seconds * 1e-9);
            }
            printf("\n");
        }
        for (int i = 0; i < WAYS; i++)
            release(ways[i].to, areas[0][i]), release(ways[i].from, areas[1][i]);
    }
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    if (size > 1 && rank < 2) openings();
    CUDA(cuStreamDestroy(stream));
}

/* ---- Overhead on host memory ---- */

static void overhead_of(const char *state, const char *where, void *buffer) {
    enum { CALLS = 20000 };
    double self = 0, best = 0, middle = 0;
    if (rank == 0) {
        MPI_Request request;
        char in[8];
        double since = now();
        for (int i = 0; i < CALLS; i++) {
            MPI(MPI_Irecv(in, 8, MPI_BYTE, 0, 7, MPI_COMM_SELF, &request));
            MPI(MPI_Send(buffer, 8, MPI_BYTE, 0, 7, MPI_COMM_SELF));
            MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
        }
        self = (now() - since) / CALLS * 1e9;
    }
    if (size > 1 && rank < 2) {
        ping_pong(buffer, 8, ROUNDS);
        ping_pong(buffer, 8, ROUNDS);
        middle = median(ROUNDS) / 2 * 1e9, best = samples[0] / 2 * 1e9;
    }
    if (rank == 0) printf("%-24s %-6s  %12.0f  %14.0f  %12.0f\n", state, where, self, middle, best);
}

static void overhead(void) {
    char stack[64] = {0}, *heap = calloc(1, 64);
    void *mapped = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(heap && mapped != MAP_FAILED);
    if (rank == 0) printf("# 8 bytes                         to itself ns  latency median  latency best\n");
    for (int state = 0; state < 4; state++) {
        static const char *const names[] = {"without CUDA", "CUDA loaded", "CUDA started", "after a device message"};
        say("%s", names[state]);
        if (state == 1) cuda_load();
        if (state == 2) cuda_begin(rank);
        if (state == 3) {
            char *device = allocate('D', 64);
            put('D', device, stack, 64);
            if (rank < 2 && size > 1) ping_pong(device, 64, 3);
            release('D', device);
        }
        overhead_of(names[state], "stack", stack);
        overhead_of(names[state], "heap", heap);
        overhead_of(names[state], "mmap", mapped);
    }
    munmap(mapped, 1 << 20);
    free(heap);
}

static void call(int which, void *out, void *in, int count) {
    switch (which) {
    case 0: MPI(MPI_Bcast(out, count, MPI_FLOAT, 0, MPI_COMM_WORLD)); break;
    case 1: MPI(MPI_Allreduce(out, in, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD)); break;
    case 2: MPI(MPI_Reduce(out, in, count, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD)); break;
    case 3: MPI(MPI_Allgather(out, count, MPI_FLOAT, in, count, MPI_FLOAT, MPI_COMM_WORLD)); break;
    default: MPI(MPI_Alltoall(out, count / size, MPI_FLOAT, in, count / size, MPI_FLOAT, MPI_COMM_WORLD)); break;
    }
}

static void collectives(const char *kinds, size_t most) {
    static const char *const names[] = {"bcast", "allreduce", "reduce", "allgather", "alltoall"};
    for (; *kinds; kinds++) {
        char *out = allocate(*kinds, most), *in = allocate(*kinds, most * (size_t)size);
        if (rank == 0) {
            printf("# %d ranks, memory %c, median us\n# %9s", size, *kinds, "bytes");
            for (int which = 0; which < 5; which++) printf(" %12s", names[which]);
            printf("\n");
        }
        for (size_t bytes = 4 * (size_t)size; bytes <= most; bytes *= 8) {
            if (rank == 0) printf("%11zu", bytes);
            for (int which = 0; which < 5; which++) {
                int rounds = bytes < 1 << 20 ? 200 : 20;
                say("%s of %zu bytes", names[which], bytes);
                for (int round = -5; round < rounds; round++) {
                    MPI(MPI_Barrier(MPI_COMM_WORLD));
                    double since = now();
                    call(which, out, in, (int)(bytes / 4));
                    double mine = now() - since, slowest = 0;
                    MPI(MPI_Reduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD));
                    if (round >= 0) samples[round] = slowest;
                }
                if (rank == 0) printf(" %12.2f", median(rounds) * 1e6);
            }
            if (rank == 0) printf("\n");
        }
        release(*kinds, out);
        release(*kinds, in);
    }
}

static int usage(void) {
    fprintf(stderr, "usage: bench KIND KIND [BYTES] | KINDS,... [BYTES] | collectives KINDS [BYTES] | limits [BYTES] | overhead\n"
                    "KIND is D, M, P or H; KINDS are two of them, such as DH\n");
    return 2;
}

int main(int argc, char **argv) {
    char pairs[128] = "";
    int at = 2;
    if (argc > 2 && !strcmp(argv[1], "collectives")) {
        MPI_Init(NULL, NULL);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        MPI_Comm_size(MPI_COMM_WORLD, &size);
        setvbuf(stdout, NULL, _IOLBF, 0);
        cuda_begin(rank);
        collectives(argv[2], argc > 3 ? strtoull(argv[3], NULL, 0) : 16 << 20);
        MPI_Finalize();
        return 0;
    }
    if (argc > 1) snprintf(pairs, sizeof pairs, "%s", argv[1]);
    int is_limits = !strcmp(pairs, "limits"), is_overhead = !strcmp(pairs, "overhead");
    if (strlen(pairs) == 1 && argc > 2) snprintf(pairs + 1, sizeof pairs - 1, "%s", argv[at++]);
    if (!*pairs || (!is_limits && !is_overhead && strspn(pairs, "DMPH,") != strlen(pairs))) return usage();
    if (argc > at) largest = strtoull(argv[at], NULL, 0);
    setvbuf(stdout, NULL, _IOLBF, 0);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size < 2 && !is_limits && !is_overhead) fail("needs 2 ranks");
    if (is_overhead) {
        overhead();
    } else {
        if (strspn(pairs, "H,") != strlen(pairs)) cuda_begin(rank);
        if (is_limits) limits();
        for (const char *pair = pairs; !is_limits && *pair; pair += pair[2] ? 3 : 2)
            if (!pair[1])
                fail("`%s` is not a pair of kinds", pair);
            else if (rank < 2)
                messages(pair[rank], pair[1 - rank]);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) printf("ok bench\n");
    MPI_Finalize();
    return 0;
}
