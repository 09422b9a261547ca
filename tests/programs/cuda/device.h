/* Shared by the programs of this folder: memory of four kinds, patterns of bytes, and failures that say what was being done.
 *
 * A rank whose check fails prints the case and calls MPI_Abort. Kinds are letters: D device, M managed, P pinned host, H host. */
#ifndef DEVICE_H
#define DEVICE_H

#include "driver.h"

#include <mpi.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

enum { POISON = 0xa5 };

static int rank, size;
static char doing[256] = "start"; /* the case, for messages */

__attribute__((format(printf, 1, 2))) static inline void say(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(doing, sizeof doing, format, arguments);
    va_end(arguments);
}

__attribute__((format(printf, 1, 2), noreturn)) static inline void fail(const char *format, ...) {
    char what[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    fprintf(stderr, "rank %d of %d: %s: %s\n", rank, size, doing, what);
    MPI_Abort(MPI_COMM_WORLD, 9);
    abort();
}

static inline void mpi_check(int code, const char *call, int line) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length;
    if (code == MPI_SUCCESS) return;
    MPI_Error_string(code, text, &length);
    fail("line %d: %s: %s", line, call, text);
}

/* A call that must succeed; for communicators whose errors return. */
#define MPI(call) mpi_check((call), #call, __LINE__)

#define MUST(condition) \
    do { \
        if (!(condition)) fail("line %d: not true: %s", __LINE__, #condition); \
    } while (0)

static inline int class_of(int code) {
    int class = MPI_ERR_UNKNOWN;
    MPI_Error_class(code, &class);
    return class;
}

static inline int says(int code, const char *part) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length;
    MPI_Error_string(code, text, &length);
    if (strstr(text, part)) return 1;
    fprintf(stderr, "rank %d: the text of error %d is: %s\n", rank, code, text);
    return 0;
}

static inline void *room(size_t bytes) {
    void *p = malloc(bytes ? bytes : 1);
    if (!p) fail("out of memory");
    return p;
}

/* Memory of a kind. */
static inline char *allocate(char kind, size_t bytes) {
    CUdeviceptr address = 0;
    void *p = NULL;
    switch (kind) {
    case 'D': CUDA(cuMemAlloc(&address, bytes)); return (char *)(uintptr_t)address;
    case 'M': CUDA(cuMemAllocManaged(&address, bytes, CU_MEM_ATTACH_GLOBAL)); return (char *)(uintptr_t)address;
    case 'P': CUDA(cuMemAllocHost(&p, bytes)); return p;
    default: return room(bytes);
    }
}

static inline void release(char kind, void *p) {
    switch (kind) {
    case 'D':
    case 'M': CUDA(cuMemFree((uintptr_t)p)); break;
    case 'P': CUDA(cuMemFreeHost(p)); break;
    default: free(p);
    }
}

/* Copies host memory into memory of a kind, and waits until it is there. */
static inline void put(char kind, void *to, const void *from, size_t bytes) {
    if (!bytes) return;
    if (kind == 'D') {
        CUDA(cuMemcpyHtoD((uintptr_t)to, from, bytes));
        CUDA(cuCtxSynchronize());
    } else {
        memcpy(to, from, bytes);
    }
}

static inline void get(char kind, void *to, const void *from, size_t bytes) {
    if (!bytes) return;
    if (kind == 'D')
        CUDA(cuMemcpyDtoH(to, (uintptr_t)from, bytes));
    else
        memcpy(to, from, bytes);
}

/* `bytes` bytes that differ from seed to seed: a window of one long sequence without a short period. At most PATTERN bytes. */
enum { PATTERN = (1 << 22) + (1 << 17), SEEDS = 1 << 16 };

static inline const unsigned char *pattern(unsigned seed) {
    static unsigned char *sequence;
    if (!sequence) {
        uint64_t state = 88172645463325252u;
        sequence = room(PATTERN + SEEDS);
        for (size_t i = 0; i < PATTERN + SEEDS; i++) {
            state ^= state << 13, state ^= state >> 7, state ^= state << 17;
            sequence[i] = (unsigned char)(state >> 32);
        }
    }
    return sequence + seed * 7919u % SEEDS;
}

/* Ends the program unless two ranges of host memory are equal. */
static inline void compare(const void *is, const void *expected, size_t bytes, const char *what) {
    const unsigned char *a = is, *b = expected;
    size_t first = 0, wrong = 0;
    if (!bytes || !memcmp(a, b, bytes)) return;
    for (size_t i = bytes; i-- > 0;)
        if (a[i] != b[i]) first = i, wrong++;
    fail("%s: %zu of %zu bytes are wrong, the first is byte %zu: 0x%02x instead of 0x%02x", what, wrong, bytes, first, a[first], b[first]);
}

#endif
