/* A test double of the CUDA driver library for machines without a GPU. Tests build it as `libcuda.so.1`:
 *
 *     cc -shared -fPIC -O1 -pthread -Wl,-soname,libcuda.so.1 -o libcuda.so.1 fake.c
 *
 * It is as unforgiving as the driver may be:
 *   - Device memory crashes a process that touches it: its address is a reservation without access. Copies use a second mapping.
 *   - Addresses of freed memory are used again at once, for another buffer.
 *   - An asynchronous copy waits in its stream until something that synchronises runs it. Host memory that is not pinned is read by
 *     the call itself, and a copy into it is complete when the call returns, as the driver documents.
 *   - A synchronous copy within device memory and cuMemset wait in the null stream, unless the memory has SYNC_MEMOPS.
 *   - Streams made with CU_STREAM_NON_BLOCKING do not wait for the null stream; the others do.
 *   - Calls that need a current context fail without one. So do waits for streams and events, which some drivers allow.
 *
 * Memory is one memfd for each allocation, which another process opens through /proc/PID/fd: both must see each other's /proc.
 *
 * Environment:
 *   FAKE_CUDA_DEVICES=N      number of devices (default 1); CUDA_VISIBLE_DEVICES selects and orders them by number
 *   FAKE_CUDA_NO_IPC=1       memory cannot be exported: CUDA_ERROR_NOT_SUPPORTED
 *   FAKE_CUDA_NO_OPEN=1      exported memory cannot be opened: CUDA_ERROR_MAP_FAILED
 *   FAKE_CUDA_FAIL_COPY=N    the N-th asynchronous copy of the process and all later ones fail: CUDA_ERROR_ILLEGAL_ADDRESS
 *   FAKE_CUDA_FAIL_LATE=1    these failures are reported by what waits for the copy, not by the call that starts it
 *   FAKE_CUDA_TRACE=FILE     at its exit a process appends `PID FUNCTION CALLS` lines for the functions it called, and
 *                            `PID unfinished N` for the operations that were never waited for,
 *                            `PID open N` for the mappings of others' memory that it did not close
 *
 * A program in the same process reads the counts with `fake_cuda_counts`. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct context *CUcontext;
typedef struct stream *CUstream;
typedef struct event *CUevent;

/* Every error of this double, with the value that the driver gives it. */
#define ERRORS(X) \
    X(CUDA_SUCCESS, 0, "no error") \
    X(CUDA_ERROR_INVALID_VALUE, 1, "invalid argument") \
    X(CUDA_ERROR_OUT_OF_MEMORY, 2, "out of memory") \
    X(CUDA_ERROR_NOT_INITIALIZED, 3, "initialization error") \
    X(CUDA_ERROR_DEINITIALIZED, 4, "driver shutting down") \
    X(CUDA_ERROR_NO_DEVICE, 100, "no CUDA-capable device is detected") \
    X(CUDA_ERROR_INVALID_DEVICE, 101, "invalid device ordinal") \
    X(CUDA_ERROR_INVALID_CONTEXT, 201, "invalid device context") \
    X(CUDA_ERROR_MAP_FAILED, 205, "mapping of buffer object failed") \
    X(CUDA_ERROR_INVALID_HANDLE, 400, "invalid resource handle") \
    X(CUDA_ERROR_NOT_FOUND, 500, "named symbol not found") \
    X(CUDA_ERROR_NOT_READY, 600, "device not ready") \
    X(CUDA_ERROR_ILLEGAL_ADDRESS, 700, "an illegal memory access was encountered") \
    X(CUDA_ERROR_CONTEXT_IS_DESTROYED, 709, "context is destroyed") \
    X(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, 712, "part or all of the requested memory range is already mapped") \
    X(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, 713, "pointer does not correspond to a registered memory region") \
    X(CUDA_ERROR_NOT_SUPPORTED, 801, "operation not supported")

#define X(name, value, text) name = value,
enum { ERRORS(X) };
#undef X

enum { MEMORY_HOST = 1, MEMORY_DEVICE = 2, MEMORY_UNIFIED = 4 };

typedef enum {
    ATTRIBUTE_CONTEXT = 1,
    ATTRIBUTE_MEMORY_TYPE = 2,
    ATTRIBUTE_DEVICE_POINTER = 3,
    ATTRIBUTE_HOST_POINTER = 4,
    ATTRIBUTE_SYNC_MEMOPS = 6,
    ATTRIBUTE_BUFFER_ID = 7,
    ATTRIBUTE_IS_MANAGED = 8,
    ATTRIBUTE_DEVICE_ORDINAL = 9,
    ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE = 10,
    ATTRIBUTE_RANGE_START_ADDR = 11,
    ATTRIBUTE_RANGE_SIZE = 12,
    ATTRIBUTE_MAPPED = 13
} CUpointer_attribute;

typedef struct {
    size_t srcXInBytes, srcY;
    int srcMemoryType;
    const void *srcHost;
    CUdeviceptr srcDevice;
    void *srcArray;
    size_t srcPitch;
    size_t dstXInBytes, dstY;
    int dstMemoryType;
    void *dstHost;
    CUdeviceptr dstDevice;
    void *dstArray;
    size_t dstPitch;
    size_t WidthInBytes, Height;
} CUDA_MEMCPY2D;

typedef struct {
    char reserved[64];
} CUipcMemHandle;

/* What a CUipcMemHandle contains: descriptor `fd` of process `pid`, whose name contains the nonce. */
struct exported {
    uint32_t magic;
    int32_t pid, fd, device;
    uint64_t bytes, nonce;
};

struct fake_cuda_count {
    const char *function;
    unsigned long long calls;
};

enum {
    MAGIC = 0xfa4ecada,
    DEVICES = 16,
    STACK = 64,     /* contexts that a thread can push */
    POLLS = 3,      /* queries of unfinished work that are answered with NOT_READY */
    PAGE = 1 << 16, /* to which the size of an allocation is rounded up */
    ALIGNMENT = 1 << 21,
};

static const size_t ARENA = 1ULL << 38, DEVICE_BYTES = 16ULL << 30, MAX_PITCH = (1ULL << 31) - 1;

#define FUNCTIONS(X) \
    X(cuInit) X(cuDriverGetVersion) X(cuGetErrorName) X(cuGetErrorString) \
    X(cuDeviceGet) X(cuDeviceGetCount) X(cuDeviceGetName) X(cuDeviceGetUuid) X(cuDeviceGetUuid_v2) X(cuDeviceTotalMem_v2) \
    X(cuDeviceGetPCIBusId) X(cuDeviceGetAttribute) X(cuDeviceCanAccessPeer) \
    X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease_v2) X(cuDevicePrimaryCtxGetState) X(cuDevicePrimaryCtxReset_v2) \
    X(cuCtxCreate_v2) X(cuCtxDestroy_v2) X(cuCtxGetCurrent) X(cuCtxSetCurrent) X(cuCtxPushCurrent_v2) X(cuCtxPopCurrent_v2) \
    X(cuCtxGetDevice) X(cuCtxGetId) X(cuCtxSynchronize) \
    X(cuStreamCreate) X(cuStreamCreateWithPriority) X(cuStreamDestroy_v2) X(cuStreamSynchronize) X(cuStreamQuery) \
    X(cuStreamWaitEvent) \
    X(cuEventCreate) X(cuEventDestroy_v2) X(cuEventRecord) X(cuEventQuery) X(cuEventSynchronize) \
    X(cuMemAlloc_v2) X(cuMemFree_v2) X(cuMemAllocManaged) X(cuMemAllocHost_v2) X(cuMemHostAlloc) X(cuMemFreeHost) \
    X(cuMemHostRegister_v2) X(cuMemHostUnregister) X(cuMemHostGetDevicePointer_v2) X(cuMemGetInfo_v2) X(cuMemGetAddressRange_v2) \
    X(cuMemcpy) X(cuMemcpyAsync) X(cuMemcpyHtoD_v2) X(cuMemcpyDtoH_v2) X(cuMemcpyDtoD_v2) \
    X(cuMemcpyHtoDAsync_v2) X(cuMemcpyDtoHAsync_v2) X(cuMemcpyDtoDAsync_v2) \
    X(cuMemcpy2D_v2) X(cuMemcpy2DUnaligned_v2) X(cuMemcpy2DAsync_v2) X(cuMemsetD8_v2) X(cuMemsetD8Async) \
    X(cuPointerGetAttribute) X(cuPointerGetAttributes) X(cuPointerSetAttribute) \
    X(cuIpcGetMemHandle) X(cuIpcOpenMemHandle) X(cuIpcOpenMemHandle_v2) X(cuIpcCloseMemHandle)

#define X(name) NUMBER_##name,
enum { FUNCTIONS(X) FUNCTION_COUNT };
#undef X
#define X(name) #name,
static const char *const names[] = {FUNCTIONS(X)};
#undef X

/* A deferred operation: a copy of rows, a fill of rows, a marker of an event, or a wait for what another stream had to do. */
struct operation {
    enum { COPY, FILL, MARKER, WAIT } kind;
    struct operation *next;
    uint64_t number;
    char *to;
    const char *from;
    size_t to_pitch, from_pitch, width, height;
    void *staged; /* a copy of host memory that is not pinned; freed with the operation */
    int byte;
    int fails;
    struct event *event;
    struct stream *other; /* with `until`, for WAIT */
    uint64_t until;
};

struct stream {
    struct stream *next; /* of all streams ever */
    struct context *context;
    struct operation *first, **end;
    int is_alive, waits_for_null, polls, failure;
};

/* Recorded as operation `number` of `stream`; done once it has run. */
struct event {
    struct event *next;
    struct context *context;
    struct stream *stream;
    uint64_t number;
    int is_alive, is_done, polls;
};

/* The primary context of a device keeps its address when it is destroyed and retained again; its id changes. */
struct context {
    struct context *next;
    unsigned long long id;
    int device, is_alive, is_primary, retained;
    struct stream *null;
};

struct memory {
    enum { DEVICE, MANAGED, PINNED, REGISTERED, OPENED } kind;
    struct memory *next; /* by address */
    uintptr_t address;
    size_t bytes, mapped;
    char *alias; /* through which copies go */
    int fd, device, sync_memops, opened;
    uint64_t nonce;
    unsigned long long id;
    struct context *context;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int is_ready, is_over, is_forked;
static unsigned long long counts[FUNCTION_COUNT];
static unsigned long long last_id;
static uint64_t last_operation, copies;
static uintptr_t arena;
static struct memory *memories;
static struct stream *streams;
static struct event *events;
static struct context *contexts, primaries[DEVICES];
static int device_count, physical[DEVICES];

static _Thread_local struct context *stack[STACK];
static _Thread_local int depth;

static void unlock(int *unused) {
    (void)unused;
    pthread_mutex_unlock(&lock);
}

/* Counts a call and holds the lock until the function returns. */
#define COUNT(function) \
    pthread_mutex_lock(&lock); \
    __attribute__((cleanup(unlock), unused)) int locked_ = 1; \
    counts[NUMBER_##function]++

/* As COUNT, for functions that need cuInit. */
#define BEGIN(function) \
    COUNT(function); \
    if (is_over || is_forked || !is_ready) return is_over ? CUDA_ERROR_DEINITIALIZED : CUDA_ERROR_NOT_INITIALIZED

/* As BEGIN, for functions that need a current context, which is `here` then. */
#define BEGIN_IN_CONTEXT(function) \
    BEGIN(function); \
    struct context *here = depth ? stack[depth - 1] : NULL; \
    if (!here) return CUDA_ERROR_INVALID_CONTEXT; \
    if (!here->is_alive) return CUDA_ERROR_CONTEXT_IS_DESTROYED

#define REQUIRE(condition, error) \
    do { \
        if (!(condition)) return (error); \
    } while (0)

static void *zeroed(size_t bytes) {
    void *p = calloc(1, bytes);
    if (!p) abort();
    return p;
}

static int is_set(const char *variable) {
    const char *value = getenv(variable);
    return value && *value && strcmp(value, "0");
}

/* ---- Streams ---- */

static struct stream *new_stream(struct context *context, int waits_for_null) {
    struct stream *it = zeroed(sizeof *it);
    it->context = context;
    it->end = &it->first;
    it->is_alive = 1;
    it->waits_for_null = waits_for_null;
    it->next = streams;
    return streams = it;
}

static struct operation *defer(struct stream *stream, int kind) {
    struct operation *it = zeroed(sizeof *it);
    it->kind = kind;
    it->number = ++last_operation;
    *stream->end = it;
    stream->end = &it->next;
    stream->polls = 0;
    return it;
}

static void run_until(struct stream *stream, uint64_t number);

static void run_first(struct stream *stream) {
    struct operation *it = stream->first;
    stream->first = it->next;
    if (!stream->first) stream->end = &stream->first;
    if (it->fails) stream->failure = CUDA_ERROR_ILLEGAL_ADDRESS;
    if (it->kind == MARKER && it->event->number == it->number) it->event->is_done = 1;
    if (it->kind == WAIT) run_until(it->other, it->until);
    if (!it->fails)
        for (size_t row = 0; row < it->height; row++) {
            if (it->kind == COPY) memmove(it->to + row * it->to_pitch, it->from + row * it->from_pitch, it->width);
            if (it->kind == FILL) memset(it->to + row * it->to_pitch, it->byte, it->width);
        }
    free(it->staged);
    free(it);
}

/* Whether the null stream of `stream`'s context and `stream` wait for each other. */
static int is_ordered_with(const struct stream *other, const struct stream *stream) {
    return other == stream || (other->context == stream->context && other->waits_for_null && stream->waits_for_null &&
                               (stream->context->null->first || stream == stream->context->null));
}

/* Runs the operations of a stream up to this one, after those that they wait for. */
static void run_until(struct stream *stream, uint64_t number) {
    for (;;) {
        struct stream *next = NULL;
        if (!stream->first || stream->first->number > number) return;
        for (struct stream *it = streams; it; it = it->next)
            if (it->first && is_ordered_with(it, stream) && (!next || it->first->number < next->first->number)) next = it;
        if (!next) return;
        run_first(next);
    }
}

/* Runs what a stream has to do. The null stream also waits for the streams that wait for it. */
static CUresult run(struct stream *stream) {
    if (stream == stream->context->null)
        for (struct stream *it = streams; it; it = it->next)
            if (it->context == stream->context && it->waits_for_null) run_until(it, last_operation);
    run_until(stream, last_operation);
    return stream->failure;
}

static CUresult run_context(const struct context *context) {
    CUresult failure = CUDA_SUCCESS;
    for (struct stream *it = streams; it; it = it->next)
        if (it->context == context && run(it)) failure = it->failure;
    return failure;
}

static void run_all(void) {
    for (struct stream *it = streams; it; it = it->next)
        run(it);
}

/* The handles 1 and 2 are the null stream and the thread's own, which is taken for the null stream here. */
static CUresult find_stream(struct context *here, CUstream handle, struct stream **out) {
    if ((uintptr_t)handle <= 2) return *out = here->null, CUDA_SUCCESS;
    for (struct stream *it = streams; it; it = it->next)
        if (it == handle && it != it->context->null) {
            if (!it->context->is_alive) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
            return *out = it, it->is_alive ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
        }
    return CUDA_ERROR_INVALID_HANDLE;
}

static CUresult find_event(CUevent handle, struct event **out) {
    for (struct event *it = events; it; it = it->next)
        if (it == handle) {
            if (!it->context->is_alive) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
            return *out = it, it->is_alive ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
        }
    return CUDA_ERROR_INVALID_HANDLE;
}

/* ---- Memory ---- */

static size_t rounded(size_t bytes, size_t unit) {
    return (bytes + unit - 1) / unit * unit;
}

static struct memory *find_memory(uintptr_t address) {
    for (struct memory *it = memories; it && it->address <= address; it = it->next)
        if (address - it->address < it->bytes) return it;
    return NULL;
}

static struct memory *add_memory(int kind, uintptr_t address, size_t bytes, struct context *context) {
    struct memory *it = zeroed(sizeof *it), **at = &memories;
    it->kind = kind;
    it->address = address;
    it->bytes = bytes;
    it->alias = (char *)address;
    it->fd = -1;
    it->device = context->device;
    it->context = context;
    it->id = ++last_id;
    while (*at && (*at)->address < address)
        at = &(*at)->next;
    it->next = *at;
    return *at = it;
}

/* The lowest free range of the address space for devices. */
static uintptr_t free_range(size_t bytes) {
    uintptr_t at = arena;
    for (struct memory *it = memories; it; it = it->next)
        if (it->address >= arena && it->address < arena + ARENA) {
            if (it->address - at >= bytes) return at;
            at = rounded(it->address + it->mapped, ALIGNMENT);
        }
    return arena + ARENA - at >= bytes ? at : 0;
}

/* Gives the memory of `fd` an address for devices, and an alias for copies. */
static CUresult map(int kind, int fd, size_t bytes, struct context *context, struct memory **out) {
    size_t mapped = rounded(bytes, PAGE);
    uintptr_t address = free_range(mapped);
    REQUIRE(address, CUDA_ERROR_OUT_OF_MEMORY);
    char *alias = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    REQUIRE(alias != MAP_FAILED, CUDA_ERROR_OUT_OF_MEMORY);
    int access = kind == MANAGED ? PROT_READ | PROT_WRITE : PROT_NONE;
    if (mmap((void *)address, mapped, access, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
        munmap(alias, mapped);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = add_memory(kind, address, bytes, context);
    (*out)->mapped = mapped;
    (*out)->alias = alias;
    (*out)->fd = fd;
    return CUDA_SUCCESS;
}

static void name_of(uint64_t nonce, char *name, size_t bytes) {
    snprintf(name, bytes, "fake-cuda-%016llx", (unsigned long long)nonce);
}

static CUresult allocate(int kind, size_t bytes, struct context *context, struct memory **out) {
    char name[64];
    uint64_t nonce;
    size_t used = 0;
    REQUIRE(bytes, CUDA_ERROR_INVALID_VALUE);
    for (struct memory *it = memories; it; it = it->next)
        if (it->kind == DEVICE && it->device == context->device) used += it->mapped;
    REQUIRE(bytes <= DEVICE_BYTES - used, CUDA_ERROR_OUT_OF_MEMORY);
    if (getrandom(&nonce, sizeof nonce, 0) != sizeof nonce) abort();
    name_of(nonce, name, sizeof name);
    int fd = memfd_create(name, MFD_CLOEXEC);
    REQUIRE(fd >= 0, CUDA_ERROR_OUT_OF_MEMORY);
    CUresult code = ftruncate(fd, (off_t)rounded(bytes, PAGE)) ? CUDA_ERROR_OUT_OF_MEMORY : map(kind, fd, bytes, context, out);
    if (code)
        close(fd);
    else
        (*out)->nonce = nonce;
    return code;
}

static void release(struct memory *memory) {
    struct memory **at = &memories;
    while (*at != memory)
        at = &(*at)->next;
    *at = memory->next;
    if (memory->kind == PINNED) {
        munmap((void *)memory->address, memory->mapped);
    } else if (memory->kind != REGISTERED) {
        /* The range stays reserved: an access crashes, and no other mapping gets there. */
        mmap((void *)memory->address, memory->mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        munmap(memory->alias, memory->mapped);
        close(memory->fd);
    }
    free(memory);
}

/* ---- Contexts ---- */

static void start_context(struct context *it, int device) {
    it->id = ++last_id;
    it->device = device;
    it->null = new_stream(it, 1);
    it->is_alive = 1;
}

static void end_context(struct context *it) {
    run_all();
    for (struct memory *next, *memory = memories; memory; memory = next) {
        next = memory->next;
        if (memory->context == it) release(memory);
    }
    for (struct stream *stream = streams; stream; stream = stream->next)
        if (stream->context == it) stream->is_alive = 0;
    for (struct event *event = events; event; event = event->next)
        if (event->context == it) event->is_alive = 0;
    it->is_alive = 0;
}

static int is_context(const struct context *it) {
    for (int i = 0; i < device_count; i++)
        if (it == &primaries[i]) return primaries[i].id != 0;
    for (struct context *other = contexts; other; other = other->next)
        if (it == other) return 1;
    return 0;
}

/* ---- Copies ---- */

struct place {
    char *at;
    struct memory *memory; /* NULL: host memory that the driver does not know */
};

/* Finds memory of `bytes` bytes. `type` says what it must be: MEMORY_UNIFIED accepts all. */
static CUresult find_place(uintptr_t address, size_t bytes, int type, struct place *out) {
    struct memory *memory = find_memory(address);
    REQUIRE(address, CUDA_ERROR_INVALID_VALUE);
    *out = (struct place){(char *)address, memory};
    if (!memory) {
        REQUIRE(address < arena || address >= arena + ARENA, CUDA_ERROR_INVALID_VALUE);
        return type == MEMORY_DEVICE ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    }
    REQUIRE(bytes <= memory->bytes - (address - memory->address), CUDA_ERROR_INVALID_VALUE);
    REQUIRE(type != MEMORY_HOST || (memory->kind != DEVICE && memory->kind != OPENED), CUDA_ERROR_INVALID_VALUE);
    out->at = memory->alias + (address - memory->address);
    return CUDA_SUCCESS;
}

static int is_on_device(const struct memory *memory) {
    return memory && memory->kind != PINNED && memory->kind != REGISTERED;
}

static int injected_failure(void) {
    const char *first = getenv("FAKE_CUDA_FAIL_COPY");
    copies++;
    return first && *first && copies >= strtoull(first, NULL, 10);
}

/* Rows from one place to another. `asynchronous` says which kind of function was called. */
struct rows {
    struct place to, from;
    size_t to_pitch, from_pitch, width, height;
};

static CUresult copy_rows(const struct rows *rows, struct stream *stream, int asynchronous) {
    int fails = asynchronous && injected_failure();
    REQUIRE(!fails || is_set("FAKE_CUDA_FAIL_LATE"), CUDA_ERROR_ILLEGAL_ADDRESS);
    if (!rows->width || !rows->height) return CUDA_SUCCESS;
    struct operation *it = defer(stream, COPY);
    it->to = rows->to.at, it->from = rows->from.at;
    it->to_pitch = rows->to_pitch, it->from_pitch = rows->from_pitch;
    it->width = rows->width, it->height = rows->height;
    it->fails = fails;
    int within = is_on_device(rows->to.memory) && is_on_device(rows->from.memory);
    int at_once = asynchronous ? !rows->to.memory
                               : !within || rows->to.memory->sync_memops || rows->from.memory->sync_memops;
    if (at_once) return run(stream);
    if (!rows->from.memory) {
        char *staged = it->staged = zeroed(it->width * it->height);
        for (size_t row = 0; row < it->height; row++)
            memcpy(staged + row * it->width, it->from + row * it->from_pitch, it->width);
        it->from = staged;
        it->from_pitch = it->width;
    }
    return CUDA_SUCCESS;
}

static CUresult copy(uintptr_t to, int to_type, uintptr_t from, int from_type, size_t bytes, struct stream *stream, int asynchronous) {
    struct rows rows = {.width = bytes, .height = 1};
    if (!bytes) return CUDA_SUCCESS;
    CUresult code = find_place(to, bytes, to_type, &rows.to);
    if (!code) code = find_place(from, bytes, from_type, &rows.from);
    return code ? code : copy_rows(&rows, stream, asynchronous);
}

/* One side of a two-dimensional copy. */
static CUresult find_rows(int type, const void *host, CUdeviceptr device, size_t x, size_t y, size_t *pitch, const CUDA_MEMCPY2D *copy,
                          struct place *out) {
    REQUIRE(type == MEMORY_HOST || type == MEMORY_DEVICE || type == MEMORY_UNIFIED, CUDA_ERROR_INVALID_VALUE);
    if (*pitch == 0 && copy->Height == 1 && y == 0) *pitch = x + copy->WidthInBytes;
    REQUIRE(*pitch >= x + copy->WidthInBytes && *pitch <= MAX_PITCH, CUDA_ERROR_INVALID_VALUE);
    uintptr_t base = type == MEMORY_HOST ? (uintptr_t)host : device;
    REQUIRE(base, CUDA_ERROR_INVALID_VALUE);
    return find_place(base + y * *pitch + x, (copy->Height - 1) * *pitch + copy->WidthInBytes, type, out);
}

static CUresult copy_2d(const CUDA_MEMCPY2D *copy, struct stream *stream, int asynchronous) {
    REQUIRE(copy, CUDA_ERROR_INVALID_VALUE);
    struct rows rows = {.to_pitch = copy->dstPitch, .from_pitch = copy->srcPitch, .width = copy->WidthInBytes, .height = copy->Height};
    if (!rows.width || !rows.height) return CUDA_SUCCESS;
    CUresult code = find_rows(copy->dstMemoryType, copy->dstHost, copy->dstDevice, copy->dstXInBytes, copy->dstY, &rows.to_pitch, copy,
                              &rows.to);
    if (!code)
        code = find_rows(copy->srcMemoryType, copy->srcHost, copy->srcDevice, copy->srcXInBytes, copy->srcY, &rows.from_pitch, copy,
                         &rows.from);
    return code ? code : copy_rows(&rows, stream, asynchronous);
}

static CUresult fill(CUdeviceptr to, unsigned char byte, size_t bytes, struct stream *stream, int asynchronous) {
    struct place place;
    if (!bytes) return CUDA_SUCCESS;
    CUresult code = find_place(to, bytes, MEMORY_DEVICE, &place);
    if (code) return code;
    struct operation *it = defer(stream, FILL);
    it->to = place.at, it->byte = byte, it->width = bytes, it->height = 1;
    int at_once = !asynchronous && (!is_on_device(place.memory) || place.memory->sync_memops);
    return at_once ? run(stream) : CUDA_SUCCESS;
}

/* ---- The driver's functions: start, errors, devices ---- */

static void in_child(void) {
    is_forked = 1;
    pthread_mutex_init(&lock, NULL);
}

static void find_devices(void) {
    const char *number = getenv("FAKE_CUDA_DEVICES"), *visible = getenv("CUDA_VISIBLE_DEVICES");
    int all = number ? atoi(number) : 1;
    if (all > DEVICES) all = DEVICES;
    if (!visible) {
        for (; device_count < all; device_count++)
            physical[device_count] = device_count;
        return;
    }
    for (char *end; device_count < all; visible = end + 1) {
        long device = strtol(visible, &end, 10);
        if (end == visible || device < 0 || device >= all) return;
        physical[device_count++] = (int)device;
        if (*end != ',') return;
    }
}

CUresult cuInit(unsigned flags) {
    COUNT(cuInit);
    REQUIRE(!is_forked, CUDA_ERROR_NOT_INITIALIZED);
    REQUIRE(!is_over, CUDA_ERROR_DEINITIALIZED);
    REQUIRE(flags == 0, CUDA_ERROR_INVALID_VALUE);
    if (is_ready) return CUDA_SUCCESS;
    find_devices();
    REQUIRE(device_count, CUDA_ERROR_NO_DEVICE);
    void *reserved = mmap(NULL, ARENA + ALIGNMENT, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REQUIRE(reserved != MAP_FAILED, CUDA_ERROR_OUT_OF_MEMORY);
    arena = rounded((uintptr_t)reserved, ALIGNMENT);
    pthread_atfork(NULL, NULL, in_child);
    return is_ready = 1, CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version) {
    COUNT(cuDriverGetVersion);
    REQUIRE(version, CUDA_ERROR_INVALID_VALUE);
    return *version = 12040, CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult code, const char **name) {
    COUNT(cuGetErrorName);
#define X(error, value, text) \
    if (code == value) return *name = #error, CUDA_SUCCESS;
    ERRORS(X)
#undef X
    return *name = NULL, CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult code, const char **string) {
    COUNT(cuGetErrorString);
#define X(error, value, text) \
    if (code == value) return *string = text, CUDA_SUCCESS;
    ERRORS(X)
#undef X
    return *string = NULL, CUDA_ERROR_INVALID_VALUE;
}

static int is_device(CUdevice device) {
    return device >= 0 && device < device_count;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    BEGIN(cuDeviceGet);
    REQUIRE(device, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(is_device(ordinal), CUDA_ERROR_INVALID_DEVICE);
    return *device = ordinal, CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count) {
    BEGIN(cuDeviceGetCount);
    REQUIRE(count, CUDA_ERROR_INVALID_VALUE);
    return *count = device_count, CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int bytes, CUdevice device) {
    BEGIN(cuDeviceGetName);
    REQUIRE(name && bytes > 0, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(is_device(device), CUDA_ERROR_INVALID_DEVICE);
    snprintf(name, (size_t)bytes, "Fake GPU %d", physical[device]);
    return CUDA_SUCCESS;
}

static CUresult uuid_of(char *uuid, CUdevice device) {
    REQUIRE(uuid, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(is_device(device), CUDA_ERROR_INVALID_DEVICE);
    memcpy(uuid, "fake-cuda-gpu-\0", 15);
    uuid[15] = (char)('0' + physical[device]);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(char *uuid, CUdevice device) {
    BEGIN(cuDeviceGetUuid);
    return uuid_of(uuid, device);
}

CUresult cuDeviceGetUuid_v2(char *uuid, CUdevice device) {
    BEGIN(cuDeviceGetUuid_v2);
    return uuid_of(uuid, device);
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    BEGIN(cuDeviceTotalMem_v2);
    REQUIRE(bytes, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(is_device(device), CUDA_ERROR_INVALID_DEVICE);
    return *bytes = DEVICE_BYTES, CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *id, int bytes, CUdevice device) {
    BEGIN(cuDeviceGetPCIBusId);
    REQUIRE(id && bytes >= 13, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(is_device(device), CUDA_ERROR_INVALID_DEVICE);
    snprintf(id, (size_t)bytes, "0000:%02X:00.0", 0x3b + (unsigned)physical[device]);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
    static const struct {
        int attribute, value;
    } known[] = {
        {11, 0x7fffffff}, /* MAX_PITCH */
        {19, 1},          /* CAN_MAP_HOST_MEMORY */
        {40, 2},          /* ASYNC_ENGINE_COUNT */
        {41, 1},          /* UNIFIED_ADDRESSING */
        {75, 9},          /* COMPUTE_CAPABILITY_MAJOR */
        {83, 1},          /* MANAGED_MEMORY */
        {125, 1},         /* IPC_EVENT_SUPPORTED */
    };
    BEGIN(cuDeviceGetAttribute);
    REQUIRE(value && attribute > 0, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(is_device(device), CUDA_ERROR_INVALID_DEVICE);
    *value = attribute == 33 ? 0x3b + physical[device] : 0; /* PCI_BUS_ID */
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].attribute == attribute) *value = known[i].value;
    return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
    BEGIN(cuDeviceCanAccessPeer);
    REQUIRE(can, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(is_device(device) && is_device(peer), CUDA_ERROR_INVALID_DEVICE);
    return *can = device != peer, CUDA_SUCCESS;
}

/* ---- Contexts ---- */

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    BEGIN(cuDevicePrimaryCtxRetain);
    REQUIRE(context, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(is_device(device), CUDA_ERROR_INVALID_DEVICE);
    struct context *it = &primaries[device];
    it->is_primary = 1;
    if (!it->is_alive) start_context(it, device);
    it->retained++;
    return *context = it, CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    BEGIN(cuDevicePrimaryCtxRelease_v2);
    REQUIRE(is_device(device), CUDA_ERROR_INVALID_DEVICE);
    struct context *it = &primaries[device];
    REQUIRE(it->retained, CUDA_ERROR_INVALID_CONTEXT);
    if (--it->retained == 0 && it->is_alive) end_context(it);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
    BEGIN(cuDevicePrimaryCtxGetState);
    REQUIRE(flags && active, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(is_device(device), CUDA_ERROR_INVALID_DEVICE);
    *flags = 0;
    return *active = primaries[device].is_alive, CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
    BEGIN(cuDevicePrimaryCtxReset_v2);
    REQUIRE(is_device(device), CUDA_ERROR_INVALID_DEVICE);
    if (primaries[device].is_alive) end_context(&primaries[device]);
    return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device) {
    BEGIN(cuCtxCreate_v2);
    REQUIRE(context && flags <= 0xff, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(is_device(device), CUDA_ERROR_INVALID_DEVICE);
    REQUIRE(depth < STACK, CUDA_ERROR_OUT_OF_MEMORY);
    struct context *it = zeroed(sizeof *it);
    start_context(it, device);
    it->next = contexts;
    contexts = it;
    stack[depth++] = it;
    return *context = it, CUDA_SUCCESS;
}

CUresult cuCtxDestroy_v2(CUcontext context) {
    BEGIN(cuCtxDestroy_v2);
    REQUIRE(is_context(context) && !context->is_primary, CUDA_ERROR_INVALID_CONTEXT);
    REQUIRE(context->is_alive, CUDA_ERROR_CONTEXT_IS_DESTROYED);
    end_context(context);
    if (depth && stack[depth - 1] == context) depth--;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context) {
    BEGIN(cuCtxGetCurrent);
    REQUIRE(context, CUDA_ERROR_INVALID_VALUE);
    return *context = depth ? stack[depth - 1] : NULL, CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
    BEGIN(cuCtxSetCurrent);
    if (!context) {
        if (depth) depth--;
        return CUDA_SUCCESS;
    }
    REQUIRE(is_context(context), CUDA_ERROR_INVALID_CONTEXT);
    REQUIRE(context->is_alive, CUDA_ERROR_CONTEXT_IS_DESTROYED);
    if (!depth) depth = 1;
    stack[depth - 1] = context;
    return CUDA_SUCCESS;
}

/* The driver frees a context's memory with it, and corrupts the heap of a process that passes it again. */
static void must_be_alive(CUcontext context) {
    if (context->is_alive) return;
    fputs("fake_cuda: a context is used that is destroyed\n", stderr);
    abort();
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
    BEGIN(cuCtxPushCurrent_v2);
    REQUIRE(context, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(is_context(context), CUDA_ERROR_INVALID_CONTEXT);
    must_be_alive(context);
    REQUIRE(depth < STACK, CUDA_ERROR_OUT_OF_MEMORY);
    stack[depth++] = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext *context) {
    BEGIN(cuCtxPopCurrent_v2);
    REQUIRE(depth, CUDA_ERROR_INVALID_CONTEXT);
    depth--;
    if (context) *context = stack[depth];
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device) {
    BEGIN_IN_CONTEXT(cuCtxGetDevice);
    REQUIRE(device, CUDA_ERROR_INVALID_VALUE);
    return *device = here->device, CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext context, unsigned long long *id) {
    BEGIN(cuCtxGetId);
    if (!context && depth) context = stack[depth - 1];
    REQUIRE(id, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(context && is_context(context), CUDA_ERROR_INVALID_CONTEXT);
    must_be_alive(context);
    return *id = context->id, CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void) {
    BEGIN_IN_CONTEXT(cuCtxSynchronize);
    return run_context(here);
}

/* ---- Streams and events ---- */

CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
    BEGIN_IN_CONTEXT(cuStreamCreate);
    REQUIRE(stream && flags <= 1, CUDA_ERROR_INVALID_VALUE);
    return *stream = new_stream(here, !flags), CUDA_SUCCESS;
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority) {
    (void)priority;
    BEGIN_IN_CONTEXT(cuStreamCreateWithPriority);
    REQUIRE(stream && flags <= 1, CUDA_ERROR_INVALID_VALUE);
    return *stream = new_stream(here, !flags), CUDA_SUCCESS;
}

CUresult cuStreamDestroy_v2(CUstream handle) {
    struct stream *stream;
    BEGIN_IN_CONTEXT(cuStreamDestroy_v2);
    CUresult code = (uintptr_t)handle <= 2 ? CUDA_ERROR_INVALID_HANDLE : find_stream(here, handle, &stream);
    if (code) return code;
    run(stream);
    return stream->is_alive = 0, CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream handle) {
    struct stream *stream;
    BEGIN_IN_CONTEXT(cuStreamSynchronize);
    CUresult code = find_stream(here, handle, &stream);
    return code ? code : run(stream);
}

CUresult cuStreamQuery(CUstream handle) {
    struct stream *stream;
    BEGIN_IN_CONTEXT(cuStreamQuery);
    CUresult code = find_stream(here, handle, &stream);
    if (code) return code;
    if (stream->first && stream->polls++ < POLLS) return CUDA_ERROR_NOT_READY;
    return run(stream);
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent awaited, unsigned flags) {
    struct stream *stream;
    struct event *event;
    BEGIN_IN_CONTEXT(cuStreamWaitEvent);
    CUresult code = find_stream(here, handle, &stream);
    if (!code) code = find_event(awaited, &event);
    if (code) return code;
    REQUIRE(flags <= 1, CUDA_ERROR_INVALID_VALUE);
    if (!event->stream || event->is_done) return CUDA_SUCCESS;
    struct operation *it = defer(stream, WAIT);
    it->other = event->stream;
    it->until = event->number;
    return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent *event, unsigned flags) {
    BEGIN_IN_CONTEXT(cuEventCreate);
    /* CU_EVENT_INTERPROCESS needs CU_EVENT_DISABLE_TIMING. */
    REQUIRE(event && flags <= 7 && (!(flags & 4) || flags & 2), CUDA_ERROR_INVALID_VALUE);
    struct event *it = zeroed(sizeof *it);
    it->context = here;
    it->is_alive = it->is_done = 1;
    it->next = events;
    return *event = events = it, CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent handle) {
    struct event *event;
    BEGIN_IN_CONTEXT(cuEventDestroy_v2);
    CUresult code = find_event(handle, &event);
    if (code) return code;
    return event->is_alive = 0, CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent handle, CUstream into) {
    struct event *event;
    struct stream *stream;
    BEGIN_IN_CONTEXT(cuEventRecord);
    CUresult code = find_event(handle, &event);
    if (!code) code = find_stream(here, into, &stream);
    if (code) return code;
    REQUIRE(event->context == stream->context, CUDA_ERROR_INVALID_HANDLE);
    struct operation *marker = defer(stream, MARKER);
    marker->event = event;
    event->stream = stream;
    event->number = marker->number;
    event->is_done = event->polls = 0;
    return CUDA_SUCCESS;
}

static CUresult wait_for(struct event *event) {
    if (!event->is_done) run_until(event->stream, event->number);
    return event->stream ? event->stream->failure : CUDA_SUCCESS;
}

CUresult cuEventQuery(CUevent handle) {
    struct event *event;
    BEGIN_IN_CONTEXT(cuEventQuery);
    CUresult code = find_event(handle, &event);
    if (code) return code;
    if (!event->is_done && event->polls++ < POLLS) return CUDA_ERROR_NOT_READY;
    return wait_for(event);
}

CUresult cuEventSynchronize(CUevent handle) {
    struct event *event;
    BEGIN_IN_CONTEXT(cuEventSynchronize);
    CUresult code = find_event(handle, &event);
    return code ? code : wait_for(event);
}

/* ---- Memory ---- */

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) {
    struct memory *it;
    BEGIN_IN_CONTEXT(cuMemAlloc_v2);
    REQUIRE(address, CUDA_ERROR_INVALID_VALUE);
    CUresult code = allocate(DEVICE, bytes, here, &it);
    if (code) return code;
    return *address = it->address, CUDA_SUCCESS;
}

CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned flags) {
    struct memory *it;
    BEGIN_IN_CONTEXT(cuMemAllocManaged);
    REQUIRE(address && (flags == 1 || flags == 2), CUDA_ERROR_INVALID_VALUE);
    CUresult code = allocate(MANAGED, bytes, here, &it);
    if (code) return code;
    return *address = it->address, CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr address) {
    BEGIN_IN_CONTEXT(cuMemFree_v2);
    struct memory *it = find_memory(address);
    REQUIRE(it && it->address == address && (it->kind == DEVICE || it->kind == MANAGED), CUDA_ERROR_INVALID_VALUE);
    run_all();
    return release(it), CUDA_SUCCESS;
}

static CUresult allocate_host(void **out, size_t bytes, struct context *here) {
    REQUIRE(out && bytes, CUDA_ERROR_INVALID_VALUE);
    size_t mapped = rounded(bytes, PAGE);
    void *p = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(p != MAP_FAILED, CUDA_ERROR_OUT_OF_MEMORY);
    add_memory(PINNED, (uintptr_t)p, bytes, here)->mapped = mapped;
    return *out = p, CUDA_SUCCESS;
}

CUresult cuMemAllocHost_v2(void **out, size_t bytes) {
    BEGIN_IN_CONTEXT(cuMemAllocHost_v2);
    return allocate_host(out, bytes, here);
}

CUresult cuMemHostAlloc(void **out, size_t bytes, unsigned flags) {
    BEGIN_IN_CONTEXT(cuMemHostAlloc);
    REQUIRE(flags <= 7, CUDA_ERROR_INVALID_VALUE);
    return allocate_host(out, bytes, here);
}

CUresult cuMemFreeHost(void *p) {
    BEGIN_IN_CONTEXT(cuMemFreeHost);
    struct memory *it = find_memory((uintptr_t)p);
    REQUIRE(it && it->address == (uintptr_t)p && it->kind == PINNED, CUDA_ERROR_INVALID_VALUE);
    run_all();
    return release(it), CUDA_SUCCESS;
}

CUresult cuMemHostRegister_v2(void *p, size_t bytes, unsigned flags) {
    BEGIN_IN_CONTEXT(cuMemHostRegister_v2);
    uintptr_t first = (uintptr_t)p, past = first + bytes;
    REQUIRE(p && bytes && flags <= 15 && past > first, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(past <= arena || first >= arena + ARENA, CUDA_ERROR_INVALID_VALUE);
    for (struct memory *it = memories; it; it = it->next)
        REQUIRE(past <= it->address || it->address + it->bytes <= first, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    add_memory(REGISTERED, first, bytes, here);
    return CUDA_SUCCESS;
}

CUresult cuMemHostUnregister(void *p) {
    BEGIN_IN_CONTEXT(cuMemHostUnregister);
    struct memory *it = find_memory((uintptr_t)p);
    REQUIRE(it && it->kind == REGISTERED, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    REQUIRE(it->address == (uintptr_t)p, CUDA_ERROR_INVALID_VALUE);
    run_all();
    return release(it), CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *address, void *p, unsigned flags) {
    BEGIN_IN_CONTEXT(cuMemHostGetDevicePointer_v2);
    struct memory *it = find_memory((uintptr_t)p);
    REQUIRE(address && !flags && it && (it->kind == PINNED || it->kind == REGISTERED), CUDA_ERROR_INVALID_VALUE);
    return *address = (uintptr_t)p, CUDA_SUCCESS;
}

CUresult cuMemGetInfo_v2(size_t *unused, size_t *total) {
    BEGIN_IN_CONTEXT(cuMemGetInfo_v2);
    REQUIRE(unused && total, CUDA_ERROR_INVALID_VALUE);
    *unused = *total = DEVICE_BYTES;
    for (struct memory *it = memories; it; it = it->next)
        if (it->kind == DEVICE && it->device == here->device) *unused -= it->mapped;
    return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address) {
    BEGIN_IN_CONTEXT(cuMemGetAddressRange_v2);
    struct memory *it = find_memory(address);
    REQUIRE(it, CUDA_ERROR_NOT_FOUND);
    if (base) *base = it->address;
    if (bytes) *bytes = it->bytes;
    return CUDA_SUCCESS;
}

/* Stores one attribute. Without memory, it stores what the driver gives for an address that it does not know. */
static CUresult attribute_of(const struct memory *it, CUpointer_attribute attribute, uintptr_t address, void *out) {
    unsigned number = 0;
    unsigned long long wide = 0;
    int is_wide = 0;
    CUresult code = CUDA_SUCCESS;
    REQUIRE(out, CUDA_ERROR_INVALID_VALUE);
    switch (attribute) {
    case ATTRIBUTE_CONTEXT: is_wide = 1, wide = it ? (uintptr_t)it->context : 0; break;
    case ATTRIBUTE_MEMORY_TYPE: number = it ? (is_on_device(it) ? MEMORY_DEVICE : MEMORY_HOST) : 0; break;
    case ATTRIBUTE_DEVICE_POINTER: is_wide = 1, wide = it ? address : 0; break;
    case ATTRIBUTE_HOST_POINTER:
        is_wide = 1;
        if (it && (it->kind == DEVICE || it->kind == OPENED))
            code = CUDA_ERROR_INVALID_VALUE;
        else
            wide = it ? address : 0;
        break;
    case ATTRIBUTE_SYNC_MEMOPS: number = it && it->sync_memops; break;
    case ATTRIBUTE_BUFFER_ID: is_wide = 1, wide = it ? it->id : 0; break;
    case ATTRIBUTE_IS_MANAGED: number = it && it->kind == MANAGED; break;
    case ATTRIBUTE_DEVICE_ORDINAL: number = it ? (unsigned)it->device : (unsigned)-2; break;
    case ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: number = it && it->kind == DEVICE; break;
    case ATTRIBUTE_RANGE_START_ADDR: is_wide = 1, wide = it ? it->address : 0; break;
    case ATTRIBUTE_RANGE_SIZE: is_wide = 1, wide = it ? it->bytes : 0; break;
    case ATTRIBUTE_MAPPED: number = it != NULL; break;
    default: return CUDA_ERROR_INVALID_VALUE;
    }
    if (is_wide)
        memcpy(out, &wide, sizeof wide);
    else
        memcpy(out, &number, sizeof number);
    return code;
}

CUresult cuPointerGetAttribute(void *out, CUpointer_attribute attribute, CUdeviceptr address) {
    BEGIN(cuPointerGetAttribute);
    struct memory *it = find_memory(address);
    REQUIRE(it, CUDA_ERROR_INVALID_VALUE);
    return attribute_of(it, attribute, address, out);
}

CUresult cuPointerGetAttributes(unsigned number, CUpointer_attribute *attributes, void **out, CUdeviceptr address) {
    BEGIN(cuPointerGetAttributes);
    REQUIRE(number && attributes && out, CUDA_ERROR_INVALID_VALUE);
    struct memory *it = find_memory(address);
    for (unsigned i = 0; i < number; i++) {
        CUresult code = attribute_of(it, attributes[i], address, out[i]);
        REQUIRE(!code || attributes[i] == ATTRIBUTE_HOST_POINTER, code);
    }
    return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr address) {
    BEGIN(cuPointerSetAttribute);
    struct memory *it = find_memory(address);
    REQUIRE(value && attribute == ATTRIBUTE_SYNC_MEMOPS && it && is_on_device(it), CUDA_ERROR_INVALID_VALUE);
    it->sync_memops = *(const unsigned *)value != 0;
    /* What was started before is complete once the driver has set this. */
    if (it->sync_memops) run_all();
    return CUDA_SUCCESS;
}

/* ---- Copies ---- */

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    BEGIN_IN_CONTEXT(cuMemcpy);
    return copy(to, MEMORY_UNIFIED, from, MEMORY_UNIFIED, bytes, here->null, 0);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) {
    BEGIN_IN_CONTEXT(cuMemcpyHtoD_v2);
    return copy(to, MEMORY_DEVICE, (uintptr_t)from, MEMORY_HOST, bytes, here->null, 0);
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) {
    BEGIN_IN_CONTEXT(cuMemcpyDtoH_v2);
    return copy((uintptr_t)to, MEMORY_HOST, from, MEMORY_DEVICE, bytes, here->null, 0);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    BEGIN_IN_CONTEXT(cuMemcpyDtoD_v2);
    return copy(to, MEMORY_DEVICE, from, MEMORY_DEVICE, bytes, here->null, 0);
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream handle) {
    struct stream *stream;
    BEGIN_IN_CONTEXT(cuMemcpyAsync);
    CUresult code = find_stream(here, handle, &stream);
    return code ? code : copy(to, MEMORY_UNIFIED, from, MEMORY_UNIFIED, bytes, stream, 1);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream handle) {
    struct stream *stream;
    BEGIN_IN_CONTEXT(cuMemcpyHtoDAsync_v2);
    CUresult code = find_stream(here, handle, &stream);
    return code ? code : copy(to, MEMORY_DEVICE, (uintptr_t)from, MEMORY_HOST, bytes, stream, 1);
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream handle) {
    struct stream *stream;
    BEGIN_IN_CONTEXT(cuMemcpyDtoHAsync_v2);
    CUresult code = find_stream(here, handle, &stream);
    return code ? code : copy((uintptr_t)to, MEMORY_HOST, from, MEMORY_DEVICE, bytes, stream, 1);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream handle) {
    struct stream *stream;
    BEGIN_IN_CONTEXT(cuMemcpyDtoDAsync_v2);
    CUresult code = find_stream(here, handle, &stream);
    return code ? code : copy(to, MEMORY_DEVICE, from, MEMORY_DEVICE, bytes, stream, 1);
}

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D *copy) {
    BEGIN_IN_CONTEXT(cuMemcpy2D_v2);
    return copy_2d(copy, here->null, 0);
}

CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *copy) {
    BEGIN_IN_CONTEXT(cuMemcpy2DUnaligned_v2);
    return copy_2d(copy, here->null, 0);
}

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *copy, CUstream handle) {
    struct stream *stream;
    BEGIN_IN_CONTEXT(cuMemcpy2DAsync_v2);
    CUresult code = find_stream(here, handle, &stream);
    return code ? code : copy_2d(copy, stream, 1);
}

CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char byte, size_t bytes) {
    BEGIN_IN_CONTEXT(cuMemsetD8_v2);
    return fill(to, byte, bytes, here->null, 0);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char byte, size_t bytes, CUstream handle) {
    struct stream *stream;
    BEGIN_IN_CONTEXT(cuMemsetD8Async);
    CUresult code = find_stream(here, handle, &stream);
    return code ? code : fill(to, byte, bytes, stream, 1);
}

/* ---- Memory of other processes ---- */

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address) {
    BEGIN_IN_CONTEXT(cuIpcGetMemHandle);
    REQUIRE(!is_set("FAKE_CUDA_NO_IPC"), CUDA_ERROR_NOT_SUPPORTED);
    struct memory *it = find_memory(address);
    REQUIRE(handle && it && it->kind == DEVICE, CUDA_ERROR_INVALID_VALUE);
    struct exported exported = {MAGIC, getpid(), it->fd, physical[it->device], it->bytes, it->nonce};
    memset(handle, 0, sizeof *handle);
    memcpy(handle, &exported, sizeof exported);
    return CUDA_SUCCESS;
}

/* The descriptor of the exported memory, -1 if its process has freed it or has ended. */
static int descriptor_of(const struct exported *exported) {
    char path[64], name[64], expected[64], target[128] = {0};
    snprintf(path, sizeof path, "/proc/%d/fd/%d", exported->pid, exported->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return -1;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    name_of(exported->nonce, name, sizeof name);
    snprintf(expected, sizeof expected, "/memfd:%.40s (deleted)", name);
    if (readlink(path, target, sizeof target - 1) > 0 && !strcmp(target, expected)) return fd;
    close(fd);
    return -1;
}

static CUresult open_exported(CUdeviceptr *address, CUipcMemHandle handle, unsigned flags, struct context *here) {
    struct exported exported;
    memcpy(&exported, &handle, sizeof exported);
    REQUIRE(!is_set("FAKE_CUDA_NO_OPEN"), CUDA_ERROR_MAP_FAILED);
    REQUIRE(address && flags == 1 && exported.magic == MAGIC, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(exported.pid != getpid(), CUDA_ERROR_INVALID_CONTEXT);
    int fd = descriptor_of(&exported);
    REQUIRE(fd >= 0, CUDA_ERROR_INVALID_VALUE);
    for (struct memory *it = memories; it; it = it->next)
        if (it->kind == OPENED && it->nonce == exported.nonce && it->context == here) {
            close(fd);
            it->opened++;
            return *address = it->address, CUDA_SUCCESS;
        }
    struct memory *it;
    CUresult code = map(OPENED, fd, exported.bytes, here, &it);
    if (code) return close(fd), code;
    it->nonce = exported.nonce;
    it->opened = 1;
    for (int i = 0; i < device_count; i++)
        if (physical[i] == exported.device) it->device = i;
    return *address = it->address, CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *address, CUipcMemHandle handle, unsigned flags) {
    BEGIN_IN_CONTEXT(cuIpcOpenMemHandle);
    return open_exported(address, handle, flags, here);
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *address, CUipcMemHandle handle, unsigned flags) {
    BEGIN_IN_CONTEXT(cuIpcOpenMemHandle_v2);
    return open_exported(address, handle, flags, here);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
    BEGIN_IN_CONTEXT(cuIpcCloseMemHandle);
    struct memory *it = find_memory(address);
    REQUIRE(it && it->kind == OPENED && it->address == address, CUDA_ERROR_INVALID_VALUE);
    if (--it->opened) return CUDA_SUCCESS;
    run_all();
    return release(it), CUDA_SUCCESS;
}

/* ---- Counts ---- */

/* Stores the counts of all functions, at most `slots`; returns how many functions there are. */
int fake_cuda_counts(struct fake_cuda_count *out, int slots) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < FUNCTION_COUNT && i < slots; i++)
        out[i] = (struct fake_cuda_count){names[i], counts[i]};
    pthread_mutex_unlock(&lock);
    return FUNCTION_COUNT;
}

/* The calls of one function; -1 if there is no function of this name. */
long long fake_cuda_calls(const char *function) {
    long long calls = -1;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < FUNCTION_COUNT; i++)
        if (!strcmp(names[i], function)) calls = (long long)counts[i];
    pthread_mutex_unlock(&lock);
    return calls;
}

__attribute__((destructor)) static void write_trace(void) {
    const char *path = getenv("FAKE_CUDA_TRACE");
    static char text[FUNCTION_COUNT * 80 + 200];
    size_t length = 0;
    int unfinished = 0, open_count = 0, pid = getpid();
    pthread_mutex_lock(&lock);
    is_over = 1;
    for (struct stream *stream = streams; stream; stream = stream->next)
        for (struct operation *it = stream->first; it; it = it->next)
            unfinished++;
    for (struct memory *it = memories; it; it = it->next)
        open_count += it->kind == OPENED;
    for (int i = 0; i < FUNCTION_COUNT; i++)
        if (counts[i]) length += (size_t)sprintf(text + length, "%d %s %llu\n", pid, names[i], counts[i]);
    length += (size_t)sprintf(text + length, "%d unfinished %d\n%d open %d\n", pid, unfinished, pid, open_count);
    pthread_mutex_unlock(&lock);
    int fd = path && *path && !is_forked ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : -1;
    if (fd < 0) return;
    if (write(fd, text, length) != (ssize_t)length) perror(path);
    close(fd);
}
