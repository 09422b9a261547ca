/* One-sided operations whose buffers at the origin lie in device memory. The windows are on the host: device memory in a window is refused.
 *
 *     rma [KINDS]
 *
 * KINDS are the kinds of memory at the origin, D, M and H by default. Rank 0 prints `ok rma`. */
#include "device.h"

enum { MOST = 100000, GUARD = 16 };

static const int counts[] = {0, 1, 3, 7, 1000, 8191, 40000, MOST};

static double *window_memory;
static MPI_Win window;

static void fill(double *numbers, int count, int seed) {
    for (int i = 0; i < count; i++) numbers[i] = seed + i % 1000;
}

/* Every rank works on the memory of the next one; afterwards, each looks at its own. */
static void check_window(int count, int from, int factor) {
    int before = (rank + size - 1) % size;
    for (int i = 0; i < count; i++) {
        double wanted = factor * (before + from + i % 1000);
        if (window_memory[i] != wanted) fail("element %d of the window: %g instead of %g", i, window_memory[i], wanted);
    }
}

static void check_numbers(char kind, double *at, int count, int seed) {
    static double copy[MOST];
    get(kind, (char *)copy, (char *)at, sizeof(double) * count);
    for (int i = 0; i < count; i++)
        if (copy[i] != seed + i % 1000) fail("element %d: %g instead of %d", i, copy[i], seed + i % 1000);
}

static void move(char kind, int count) {
    static double numbers[MOST];
    int target = (rank + 1) % size;
    double *origin = (double *)allocate(kind, sizeof(double) * (count + 1)), *result = (double *)allocate(kind, sizeof(double) * (count + 1));
    fill(numbers, count, rank + 5);
    put(kind, (char *)origin, (char *)numbers, sizeof(double) * count);
    fill(window_memory, MOST, -1);
    MPI(MPI_Win_fence(0, window));
    say("put of %d from %c", count, kind);
    MPI(MPI_Put(origin, count, MPI_DOUBLE, target, 0, count, MPI_DOUBLE, window));
    MPI(MPI_Win_fence(0, window));
    check_window(count, 5, 1);
    MPI(MPI_Win_fence(0, window));
    say("get of %d to %c", count, kind);
    MPI(MPI_Get(result, count, MPI_DOUBLE, target, 0, count, MPI_DOUBLE, window));
    MPI(MPI_Win_fence(0, window));
    check_numbers(kind, result, count, rank + 5);
    say("accumulate of %d from %c", count, kind);
    MPI(MPI_Accumulate(origin, count, MPI_DOUBLE, target, 0, count, MPI_DOUBLE, MPI_SUM, window));
    MPI(MPI_Win_fence(0, window));
    check_window(count, 5, 2);
    MPI(MPI_Win_fence(0, window));
    say("get_accumulate of %d with %c", count, kind);
    MPI(MPI_Get_accumulate(origin, count, MPI_DOUBLE, result, count, MPI_DOUBLE, target, 0, count, MPI_DOUBLE, MPI_REPLACE, window));
    MPI(MPI_Win_fence(0, window));
    check_window(count, 5, 1);
    get(kind, (char *)numbers, (char *)result, sizeof(double) * count);
    for (int i = 0; i < count; i++)
        if (numbers[i] != 2 * (rank + 5 + i % 1000)) fail("element %d from before: %g", i, numbers[i]);
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    say("requests of %d with %c", count, kind);
    MPI_Request requests[2];
    MPI(MPI_Win_lock_all(0, window));
    MPI(MPI_Rput(origin, count, MPI_DOUBLE, target, 0, count, MPI_DOUBLE, window, &requests[0]));
    MPI(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
    MPI(MPI_Win_flush(target, window));
    MPI(MPI_Rget(result, count, MPI_DOUBLE, target, 0, count, MPI_DOUBLE, window, &requests[1]));
    MPI(MPI_Wait(&requests[1], MPI_STATUS_IGNORE));
    check_numbers(kind, result, count, rank + 5);
    MPI(MPI_Win_unlock_all(window));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    release(kind, (char *)origin);
    release(kind, (char *)result);
}

static void single(char kind) {
    int *value = (int *)allocate(kind, 12), mine[3] = {1, 0, 7}, now[3];
    for (int i = 0; i < 2; i++) ((int *)window_memory)[i] = 0;
    put(kind, (char *)value, (char *)mine, sizeof mine);
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    say("fetch and add with %c", kind);
    MPI(MPI_Win_lock_all(0, window));
    MPI(MPI_Fetch_and_op(value, value + 1, MPI_INT, 0, 0, MPI_SUM, window));
    MPI(MPI_Win_flush(0, window));
    get(kind, (char *)now, (char *)value, sizeof now);
    if (now[1] < 0 || now[1] >= size) fail("fetched %d", now[1]);
    MPI(MPI_Win_unlock_all(window));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    if (rank == 0 && ((int *)window_memory)[0] != size) fail("the sum is %d", ((int *)window_memory)[0]);
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    say("compare and swap with %c", kind);
    if (rank == size - 1) {
        int sum = size;
        put(kind, (char *)(value + 1), (char *)&sum, sizeof sum);
        MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window));
        MPI(MPI_Compare_and_swap(value + 2, value + 1, value, MPI_INT, 0, 0, window));
        MPI(MPI_Win_unlock(0, window));
        get(kind, (char *)now, (char *)value, sizeof now);
        if (now[0] != size) fail("the value before is %d", now[0]);
    }
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    if (rank == 0 && ((int *)window_memory)[0] != 7) fail("the swapped value is %d", ((int *)window_memory)[0]);
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    release(kind, (char *)value);
}

static void must_be_refused(int code, const char *what) {
    char text[MPI_MAX_ERROR_STRING];
    int length;
    if (code == MPI_SUCCESS) fail("%s was not refused", what);
    MPI_Error_string(code, text, &length);
    if (!strstr(text, "device memory") && !strstr(text, "base")) fail("%s: %s", what, text);
}

static void refused(void) {
    char *at = allocate('D', 4096), packed[64];
    MPI_Win other;
    MPI_Aint position = 0;
    say("what device memory cannot be used for");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    must_be_refused(MPI_Win_create(at, 4096, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &other), "MPI_Win_create");
    MPI(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &other));
    MPI_Win_set_errhandler(other, MPI_ERRORS_RETURN);
    must_be_refused(MPI_Win_attach(other, at, 4096), "MPI_Win_attach");
    MPI(MPI_Win_free(&other));
    must_be_refused(MPI_Pack_external("external32", at, 4, MPI_INT, packed, sizeof packed, &position), "MPI_Pack_external");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    release('D', at);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    cuda_begin(rank);
    MPI(MPI_Win_allocate(sizeof(double) * MOST, sizeof(double), MPI_INFO_NULL, MPI_COMM_WORLD, &window_memory, &window));
    for (const char *kind = argc > 1 ? argv[1] : "DMH"; *kind; kind++) {
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) move(*kind, counts[i]);
        single(*kind);
    }
    MPI(MPI_Win_free(&window));
    refused();
    if (rank == 0) printf("ok rma on %d ranks\n", size);
    MPI_Finalize();
}
