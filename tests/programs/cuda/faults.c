/* What goes wrong with device memory, and what must go right under difficult conditions. For 2 ranks; rank 0 prints
 * `ok faults MODE` unless the mode says otherwise.
 *
 *     faults copy         for FAKE_CUDA_FAIL_COPY: the call returns an error that mentions CUDA, and the program goes on
 *     faults calls        the same for all kinds of calls, with FAKE_CUDA_FAIL_COPY=1
 *     faults default      the same with the default error handler: the program does not come to its end, which exits with 0
 *     faults freed-later  memory is freed between the receive and its message: an error, no crash
 *     faults dies         rank 0 is killed while rank 1 knows its memory: rank 1 prints `rank 1 goes on`, and `ok faults dies`
 *                         unless the launcher ends it first
 *     faults context      memory of other contexts, calls without a current context, calls from two threads
 *     faults late         CUDA is loaded after MPI_Init and after messages
 *     faults reset        the device is reset between messages */
#define _POSIX_C_SOURCE 200809L
#define _DEFAULT_SOURCE
#include "device.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LONG = 1 << 20, TAG = 1, DONE = 99 };

static int peer;
static MPI_Comm comm;
static const size_t lengths[] = {8, 4000, 100000, LONG};
enum { LENGTHS = sizeof lengths / sizeof *lengths };

/* Sends and receives with the peer at once. */
static void exchange(const char *from, char *to, size_t bytes, int tag) {
    MPI_Request requests[2];
    MPI(MPI_Irecv(to, (int)bytes, MPI_BYTE, peer, tag, comm, &requests[0]));
    MPI(MPI_Isend(from, (int)bytes, MPI_BYTE, peer, tag, comm, &requests[1]));
    MPI(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
}

static void check_received(char kind, const char *at, size_t bytes, unsigned seed) {
    char *copy = room(bytes);
    get(kind, copy, at, bytes);
    compare(copy, pattern(seed), bytes, "message");
    free(copy);
}

static void exchange_all(char from_kind, char *from, char to_kind, char *to) {
    for (size_t i = 0; i < LENGTHS; i++) {
        put(from_kind, from, pattern((unsigned)(10 * rank) + (unsigned)i), lengths[i]);
        put(to_kind, to, pattern(1000), lengths[i]);
        exchange(from, to, lengths[i], TAG);
        check_received(to_kind, to, lengths[i], (unsigned)(10 * peer) + (unsigned)i);
    }
}

/* New memory for each call. */
static void exchange_new(const char *pair) {
    char *from = allocate(pair[0], LONG), *to = allocate(pair[1], LONG);
    exchange_all(pair[0], from, pair[1], to);
    release(pair[0], from);
    release(pair[1], to);
}

/* ---- Copies that fail ---- */

static int must_mention_cuda(int code) {
    if (code == MPI_SUCCESS) return 0;
    if (!says(code, "CUDA")) fail("the error does not mention CUDA");
    return 1;
}

/* Returns how many of the two ranks got an error. A message without an error must have arrived. */
static int failures_of(char from, char to, size_t bytes) {
    char *out = allocate(from, LONG), *in = allocate(to, LONG);
    int mine, all;
    put(from, out, pattern(1), bytes);
    put(to, in, pattern(2), bytes);
    say("%c to %c, %zu bytes", from, to, bytes);
    if (rank == 0) {
        mine = must_mention_cuda(MPI_Send(out, (int)bytes, MPI_BYTE, peer, TAG, comm));
    } else {
        mine = must_mention_cuda(MPI_Recv(in, (int)bytes, MPI_BYTE, peer, TAG, comm, MPI_STATUS_IGNORE));
    }
    MPI(MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_SUM, comm));
    if (!all && rank == 1) check_received(to, in, bytes, 1);
    release(from, out);
    release(to, in);
    return all;
}

static void copy(void) {
    int failures = 0;
    cuda_begin(rank);
    for (const char *const *pair = (const char *const[]){"DD", "DH", "HD", NULL}; *pair; pair++)
        for (size_t i = 0; i < LENGTHS; i++)
            failures += failures_of((*pair)[0], (*pair)[1], lengths[i]);
    say("%d failures", failures);
    MUST(failures > 0);

    /* To itself. */
    char *out = allocate('D', LONG), *in = allocate('D', LONG);
    MPI_Request request;
    put('D', out, pattern(1), LONG);
    say("message to itself");
    int code = MPI_Irecv(in, LONG, MPI_BYTE, rank, TAG, comm, &request);
    failures = must_mention_cuda(code);
    MUST(!failures);
    failures = must_mention_cuda(MPI_Send(out, LONG, MPI_BYTE, rank, TAG, comm));
    failures += must_mention_cuda(MPI_Wait(&request, MPI_STATUS_IGNORE));
    MUST(failures > 0);

    /* Messages between host memories need no copy of CUDA. */
    say("host memory after failures");
    exchange_new("HH");
}

static void with_default_handler(void) {
    cuda_begin(rank);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_ARE_FATAL);
    exchange_new("DD");
    fprintf(stderr, "rank %d: no copy has failed\n", rank);
}

/* ---- Every kind of call while copies fail ---- */

enum { CALLS = 14 };

/* Makes one call, with the pair's device memory; returns the error of this rank. */
static int failing_call(int which, char *out, char *in, MPI_Win window) {
    MPI_Request request;
    int code, bytes = 4000, self = rank;
    switch (which) {
    case 0: return rank ? MPI_Recv(in, bytes, MPI_BYTE, peer, TAG, comm, MPI_STATUS_IGNORE) : MPI_Ssend(out, 1000, MPI_BYTE, peer, TAG, comm);
    case 1: return rank ? MPI_SUCCESS : MPI_Bsend(out, bytes, MPI_BYTE, peer, TAG, comm); /* it fails, so nothing is sent */
    case 2: return MPI_Sendrecv_replace(out, bytes, MPI_BYTE, peer, TAG, peer, TAG, comm, MPI_STATUS_IGNORE);
    case 3: return MPI_Sendrecv(out, bytes, MPI_BYTE, self, TAG, in, bytes, MPI_BYTE, self, TAG, comm, MPI_STATUS_IGNORE);
    case 4: return MPI_Gather(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, 0, comm);
    case 5: return MPI_Scatter(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, 0, comm);
    case 6: return MPI_Bcast(out, bytes, MPI_BYTE, 0, comm);
    case 7: return MPI_Allgather(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, comm);
    case 8: return MPI_Alltoall(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, comm);
    case 9: return MPI_Allreduce(out, in, bytes / 4, MPI_INT, MPI_SUM, comm);
    case 10:
        code = MPI_Iallreduce(out, in, bytes / 4, MPI_INT, MPI_SUM, comm, &request);
        return code ? code : MPI_Wait(&request, MPI_STATUS_IGNORE);
    case 11: code = MPI_Put(out, 400, MPI_BYTE, peer, 0, 400, MPI_BYTE, window); break;
    case 12: code = MPI_Accumulate(out, 100, MPI_INT, peer, 0, 100, MPI_INT, MPI_SUM, window); break;
    default: code = MPI_Get(in, 400, MPI_BYTE, peer, 0, 400, MPI_BYTE, window); break;
    }
    int flushed = MPI_Win_flush(peer, window);
    return code ? code : flushed;
}

static void calls(void) {
    static char buffered[1 << 16], memory[4096];
    MPI_Win window;
    cuda_begin(rank);
    MPI_Buffer_attach(buffered, sizeof buffered);
    MPI(MPI_Win_create(memory, sizeof memory, 1, MPI_INFO_NULL, comm, &window));
    MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN);
    MPI(MPI_Win_lock_all(0, window));
    for (int which = 0; which < CALLS; which++) {
        char *out = allocate('D', 2 * LONG), *in = allocate('D', 2 * LONG);
        say("call %d", which);
        /* Collectives over memory that the ranks share begin after a few calls. */
        for (int round = 0; round < (which < 4 || which > 9 ? 1 : 5); round++) {
            int code = failing_call(which, out, in, window), failures = code != MPI_SUCCESS, all;
            MPI(MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
            if (!all) fail("round %d: every copy fails, and no rank has an error", round);
        }
        release('D', out);
        release('D', in);
    }
    MPI_Win_unlock_all(window);
    MPI_Win_free(&window);
    MPI_Buffer_detach(&(void *){NULL}, &(int){0});
}

/* ---- Memory freed too early ---- */

static void freed_later(void) {
    cuda_begin(rank);
    exchange_new("DD");
    for (size_t i = 0; i < LENGTHS; i++)
        for (const char *from = "DH"; *from; from++) {
            say("receive into memory freed since, from %c, %zu bytes", *from, lengths[i]);
            MPI_Request request;
            char *at = allocate(rank ? 'D' : *from, lengths[i]);
            if (rank == 1) {
                MPI(MPI_Irecv(at, (int)lengths[i], MPI_BYTE, peer, TAG, comm, &request));
                release('D', at);
                MPI(MPI_Barrier(comm));
                int code = MPI_Wait(&request, MPI_STATUS_IGNORE);
                /* The driver may keep the memory of a freed allocation accessible, and its double may map that of the sender there. */
                if (fake_cuda_calls && *from == 'H' && !must_mention_cuda(code)) fail("no error");
            } else {
                put(*from, at, pattern(3), lengths[i]);
                MPI(MPI_Barrier(comm));
                MPI_Send(at, (int)lengths[i], MPI_BYTE, peer, TAG, comm); /* may fail or not */
                release(*from, at);
            }
            MPI(MPI_Barrier(comm));
            say("after an error");
            exchange_new("DD");
        }
}

/* ---- A process that dies ---- */

static void dies(void) {
    char *at, *copy = room(LONG);
    int pid = getpid(), code;
    cuda_begin(rank);
    at = allocate('D', LONG);
    if (rank == 0) {
        put('D', at, pattern(4), LONG);
        MPI(MPI_Send(at, LONG, MPI_BYTE, 1, TAG, comm));
        MPI(MPI_Send(&pid, 1, MPI_INT, 1, TAG, comm));
        MPI(MPI_Recv(NULL, 0, MPI_BYTE, 1, DONE, comm, MPI_STATUS_IGNORE));
        raise(SIGKILL);
    }
    MPI(MPI_Recv(at, LONG, MPI_BYTE, 0, TAG, comm, MPI_STATUS_IGNORE));
    check_received('D', at, LONG, 4);
    MPI(MPI_Recv(&pid, 1, MPI_INT, 0, TAG, comm, MPI_STATUS_IGNORE));
    MPI(MPI_Send(NULL, 0, MPI_BYTE, 0, DONE, comm));
    struct pollfd end = {.fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN};
    if (end.fd >= 0 && poll(&end, 1, 30000) != 1) fail("the other process lives");
    say("after the end of the other process");
    for (unsigned round = 0; round < 3; round++) {
        char *other = allocate('D', LONG);
        put('D', other, pattern(round), LONG);
        check_received('D', other, LONG, round);
        release('D', other);
    }
    check_received('D', at, LONG, 4);
    printf("rank 1 goes on\n");
    fflush(stdout);
    code = MPI_Recv(copy, 1, MPI_BYTE, 0, TAG, comm, MPI_STATUS_IGNORE);
    if (code == MPI_SUCCESS) fail("a message from a dead process");
    release('D', at);
    printf("ok faults dies\n");
    fflush(stdout);
    _exit(0);
}

/* ---- Contexts ---- */

static CUcontext primary, other;

static void current_must_be(CUcontext expected) {
    CUcontext current;
    CUDA(cuCtxGetCurrent(&current));
    if (current != expected) fail("another context is current: %p instead of %p", (void *)current, (void *)expected);
}

struct memory {
    CUcontext context;
    char *out, *in;
};

static struct memory new_memory(CUcontext context) {
    struct memory it = {context, NULL, NULL};
    CUDA(cuCtxPushCurrent(context));
    it.out = allocate('D', LONG), it.in = allocate('D', LONG);
    CUDA(cuCtxPopCurrent(NULL));
    return it;
}

static void free_memory(struct memory it) {
    CUDA(cuCtxPushCurrent(it.context));
    release('D', it.out);
    release('D', it.in);
    CUDA(cuCtxPopCurrent(NULL));
}

/* MPI is called with the context of the caller, which may be none; the program's own copies use the memory's. */
static void exchange_of(const struct memory *from, const struct memory *to, int tag) {
    CUcontext before;
    CUDA(cuCtxGetCurrent(&before));
    for (size_t i = 0; i < LENGTHS; i++) {
        CUDA(cuCtxPushCurrent(from->context));
        put('D', from->out, pattern((unsigned)(100 * tag + 10 * rank) + (unsigned)i), lengths[i]);
        CUDA(cuCtxPopCurrent(NULL));
        exchange(from->out, to->in, lengths[i], tag);
        current_must_be(before);
        CUDA(cuCtxPushCurrent(to->context));
        check_received('D', to->in, lengths[i], (unsigned)(100 * tag + 10 * peer) + (unsigned)i);
        CUDA(cuCtxPopCurrent(NULL));
    }
}

/* A thread without a context. */
static void *in_thread(void *unused) {
    struct memory a = new_memory(other), b = new_memory(primary);
    for (int round = 0; round < 10; round++) {
        exchange_of(&a, &b, 50);
        exchange_of(&b, &a, 51);
    }
    current_must_be(NULL);
    free_memory(a);
    free_memory(b);
    return unused;
}

static void contexts(void) {
    CUdevice device = cuda_begin(rank);
    pthread_t thread;
    CUDA(cuCtxGetCurrent(&primary));
    CUDA(cuCtxCreate(&other, 0, device));
    CUDA(cuCtxPopCurrent(NULL));
    current_must_be(primary);
    struct memory of_primary = new_memory(primary), of_other = new_memory(other);
    say("memory of another context");
    exchange_of(&of_other, &of_other, 10);
    exchange_of(&of_other, &of_primary, 11);
    exchange_of(&of_primary, &of_other, 12);
    say("no current context");
    CUDA(cuCtxSetCurrent(NULL));
    exchange_of(&of_other, &of_other, 13);
    exchange_of(&of_primary, &of_primary, 14);
    exchange_of(&of_primary, &of_other, 15);
    say("the other context is current");
    CUDA(cuCtxPushCurrent(other));
    exchange_of(&of_primary, &of_primary, 16);
    CUDA(cuCtxPopCurrent(NULL));
    say("two threads");
    pthread_create(&thread, NULL, in_thread, NULL);
    for (int round = 0; round < 10; round++) {
        exchange_of(&of_other, &of_primary, 20);
        exchange_of(&of_primary, &of_other, 21);
    }
    pthread_join(thread, NULL);
    current_must_be(NULL);
    free_memory(of_other);
    /* A library that kept something in the other context must notice that it is gone. */
    say("after the end of the other context");
    MPI(MPI_Barrier(comm));
    CUDA(cuCtxDestroy(other));
    exchange_of(&of_primary, &of_primary, 30);
    free_memory(of_primary);
    CUDA(cuCtxSetCurrent(primary));
}

/* ---- CUDA that comes late, and starts again ---- */

static void late(void) {
    static char registered[LONG], plain[LONG];
    say("host memory before CUDA");
    exchange_all('H', registered, 'H', plain);
    say("CUDA loaded, not started");
    cuda_load();
    exchange_all('H', registered, 'H', plain);
    cuda_begin(rank);
    for (const char *const *pair = (const char *const[]){"DD", "DH", "HD", "MM", "PD", "HH", NULL}; *pair; pair++) {
        say("CUDA started after MPI, %s", *pair);
        exchange_new(*pair);
    }
    say("host memory that was registered meanwhile");
    CUDA(cuMemHostRegister(registered, LONG, 0));
    exchange_all('H', registered, 'H', plain);
    exchange_all('H', plain, 'H', registered);
    CUDA(cuMemHostUnregister(registered));
    exchange_all('H', registered, 'H', plain);
}

static void reset(void) {
    for (int round = 0; round < 4; round++) {
        CUdevice device = cuda_begin(rank);
        char *kept = allocate('D', 2 * LONG); /* not released: it ends with the reset */
        say("reset %d", round);
        exchange_new("DD");
        exchange_all('D', kept, 'D', kept + LONG);
        exchange_new("HD");
        MPI(MPI_Barrier(comm));
        if (round == 3) return;
        CUDA(cuDevicePrimaryCtxReset(device));
        MPI(MPI_Barrier(comm));
        say("host memory after reset %d", round);
        exchange_new("HH");
    }
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(void);
    } modes[] = {{"copy", copy}, {"calls", calls}, {"default", with_default_handler}, {"freed-later", freed_later}, {"dies", dies},
                 {"context", contexts}, {"late", late}, {"reset", reset}};
    const char *mode = argc > 1 ? argv[1] : "";
    int threads;
    MPI_Init_thread(&argc, &argv, strcmp(mode, "context") ? MPI_THREAD_SINGLE : MPI_THREAD_MULTIPLE, &threads);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size != 2) fail("needs 2 ranks");
    if (!strcmp(mode, "context") && threads != MPI_THREAD_MULTIPLE) fail("MPI_THREAD_MULTIPLE is not supported");
    peer = 1 - rank;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    pattern(0); /* before there are threads */
    int found = 0;
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (!strcmp(mode, modes[i].name)) found = 1, modes[i].run();
    if (!found) fail("unknown mode `%s`", mode);
    say("end");
    MPI_Comm_free(&comm);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) printf("ok faults %s\n", mode);
    MPI_Finalize();
    return 0;
}
