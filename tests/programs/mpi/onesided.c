/* One-sided communication between ranks of one node and of several at a time: atomicity, locks, all operations on all types, and targets
 * that compute. */
#include "check.h"

#include <complex.h>
#include <stdint.h>

#define LONG 5000

static MPI_Comm world, node;
static int node_rank, node_size;

/* Windows of each kind, whose memory is zero. */
enum { ALLOCATED, ELEMENTS, CREATED, DYNAMIC, KINDS };

typedef struct {
    int kind;
    MPI_Win win;
    char *memory;
    MPI_Aint *at; /* of a dynamic window, by rank */
} Window;

static Window open_window(int kind, MPI_Aint bytes, MPI_Comm comm) {
    Window w = {kind, MPI_WIN_NULL, NULL, NULL};
    if (kind == ALLOCATED || kind == ELEMENTS) {
        MPI_Info info = MPI_INFO_NULL;
        if (kind == ELEMENTS) {
            MPI_Info_create(&info);
            MPI_Info_set(info, "mpi_accumulate_granularity", "8");
        }
        MPI_Win_allocate(bytes, 1, info, comm, &w.memory, &w.win);
        if (kind == ELEMENTS)
            MPI_Info_free(&info);
        int me;
        MPI_Comm_rank(comm, &me);
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, me, MPI_MODE_NOCHECK, w.win);
        memset(w.memory, 0, bytes);
        MPI_Win_unlock(me, w.win);
    } else {
        w.memory = room(bytes);
        memset(w.memory, 0, bytes);
        if (kind == CREATED) {
            MPI_Win_create(w.memory, bytes, 1, MPI_INFO_NULL, comm, &w.win);
        } else {
            int many;
            MPI_Comm_size(comm, &many);
            MPI_Win_create_dynamic(MPI_INFO_NULL, comm, &w.win);
            MPI_Win_attach(w.win, w.memory, bytes);
            w.at = room(many * sizeof *w.at);
            MPI_Aint here;
            MPI_Get_address(w.memory, &here);
            MPI_Allgather(&here, 1, MPI_AINT, w.at, 1, MPI_AINT, comm);
        }
    }
    MPI_Barrier(comm);
    return w;
}

static void close_window(Window *w) {
    MPI_Win_free(&w->win);
    if (w->kind == CREATED || w->kind == DYNAMIC)
        free(w->memory);
    free(w->at);
}

static MPI_Aint at(const Window *w, int target, MPI_Aint offset) {
    return w->at ? w->at[target] + offset : offset;
}

/* Every rank adds to the same elements in every way, near and far, short and long: nothing is lost. */
static void sums(int kind) {
    enum { ROUNDS = 30 };
    Window w = open_window(kind, LONG * sizeof(int64_t), world);
    int64_t *ones = room(LONG * sizeof *ones), *old = room(LONG * sizeof *old), one = 1, two[2] = {1, 1}, got;
    for (int i = 0; i < LONG; i++)
        ones[i] = 1;
    MPI_Datatype every;
    MPI_Type_vector(LONG / 2, 1, 2, MPI_INT64_T, &every);
    MPI_Type_commit(&every);
    MPI_Win_lock_all(0, w.win);
    for (int round = 0; round < ROUNDS; round++) {
        int target = round % size;
        MPI_Accumulate(ones, LONG, MPI_INT64_T, target, at(&w, target, 0), LONG, MPI_INT64_T, MPI_SUM, w.win);
        MPI_Accumulate(ones, LONG / 2, MPI_INT64_T, target, at(&w, target, 0), 1, every, MPI_SUM, w.win);
        MPI_Accumulate(ones, 1, every, target, at(&w, target, sizeof one), 1, every, MPI_SUM, w.win);
        MPI_Fetch_and_op(&one, &got, MPI_INT64_T, target, at(&w, target, 8), MPI_SUM, w.win);
        MPI_Get_accumulate(two, 2, MPI_INT64_T, old, 2, MPI_INT64_T, target, at(&w, target, 0), 2, MPI_INT64_T, MPI_SUM, w.win);
        MPI_Get_accumulate(ones, LONG, MPI_INT64_T, old, LONG, MPI_INT64_T, target, at(&w, target, 0), LONG, MPI_INT64_T, MPI_SUM, w.win);
        MPI_Win_flush(target, w.win);
        for (int64_t seen = old[2];;) {
            int64_t next = seen + 1, found = -1;
            MPI_Compare_and_swap(&next, &seen, &found, MPI_INT64_T, target, at(&w, target, 16), w.win);
            MPI_Win_flush(target, w.win);
            if (found == seen)
                break;
            seen = found;
        }
    }
    MPI_Win_unlock_all(w.win);
    MPI_Barrier(world);
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, w.win);
    int64_t *mine = (int64_t *)w.memory;
    int64_t times = 0, good = 1;
    for (int round = 0; round < ROUNDS; round++)
        times += round % size == rank ? size : 0;
    for (int i = 0; i < LONG; i++)
        good &= mine[i] == times * (3 + (i == 0) + 2 * (i == 1) + (i == 2));
    CHECK(good);
    if (!good)
        fprintf(stderr, "rank %d: kind %d: %ld %ld %ld %ld of %ld\n", rank, kind, (long)mine[0], (long)mine[1], (long)mine[2], (long)mine[3],
                (long)times);
    MPI_Win_unlock(rank, w.win);
    MPI_Type_free(&every);
    close_window(&w);
    free(ones);
    free(old);
}

/* Locks of all ranks on the same memory: what one does alone is one step, and no one writes while others read. */
static void locked(int kind) {
    enum { ROUNDS = 40 };
    Window w = open_window(kind, 2 * sizeof(long), world);
    int target = size - 1;
    for (int i = 0; i < ROUNDS; i++) {
        long both[2] = {-1, -2};
        int alone = (i + rank) % 3 != 0;
        MPI_Win_lock(alone ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED, target, 0, w.win);
        MPI_Get(both, 2, MPI_LONG, target, at(&w, target, 0), 2, MPI_LONG, w.win);
        MPI_Win_flush(target, w.win);
        CHECK(both[0] == both[1]);
        if (alone) {
            both[0]++;
            MPI_Put(both, 1, MPI_LONG, target, at(&w, target, 0), 1, MPI_LONG, w.win);
            MPI_Win_flush(target, w.win);
            MPI_Put(both, 1, MPI_LONG, target, at(&w, target, sizeof(long)), 1, MPI_LONG, w.win);
        }
        MPI_Win_unlock(target, w.win);
    }
    MPI_Barrier(world);
    long expected = 0;
    for (int r = 0; r < size; r++)
        for (int i = 0; i < ROUNDS; i++)
            expected += (i + r) % 3 != 0;
    MPI_Win_lock_all(0, w.win);
    if (rank == target)
        CHECK(((long *)w.memory)[0] == expected && ((long *)w.memory)[1] == expected);
    MPI_Win_unlock_all(w.win);
    close_window(&w);
}

/* --- all operations on all types, compared with MPI_Reduce_local --- */

static const MPI_Op *operations(int *count) {
    static MPI_Op all[12];
    MPI_Op values[] = {MPI_SUM, MPI_PROD, MPI_MIN, MPI_MAX, MPI_LAND, MPI_LOR, MPI_LXOR, MPI_BAND, MPI_BOR, MPI_BXOR, MPI_MINLOC, MPI_MAXLOC};
    memcpy(all, values, sizeof all);
    *count = 12;
    return all;
}

static const MPI_Datatype *types(int *count) {
    static MPI_Datatype all[40];
    MPI_Datatype values[] = {
        MPI_CHAR, MPI_SIGNED_CHAR, MPI_UNSIGNED_CHAR, MPI_SHORT, MPI_UNSIGNED_SHORT, MPI_INT, MPI_UNSIGNED, MPI_LONG, MPI_UNSIGNED_LONG,
        MPI_LONG_LONG, MPI_INT8_T, MPI_INT16_T, MPI_INT32_T, MPI_INT64_T, MPI_UINT8_T, MPI_UINT16_T, MPI_UINT32_T, MPI_UINT64_T, MPI_AINT,
        MPI_COUNT, MPI_OFFSET, MPI_FLOAT, MPI_DOUBLE, MPI_LONG_DOUBLE, MPI_C_BOOL, MPI_C_FLOAT_COMPLEX, MPI_C_DOUBLE_COMPLEX,
        MPI_C_LONG_DOUBLE_COMPLEX, MPI_BYTE, MPI_FLOAT_INT, MPI_DOUBLE_INT, MPI_LONG_INT, MPI_2INT, MPI_SHORT_INT, MPI_LONG_DOUBLE_INT,
    };
    memcpy(all, values, sizeof values);
    *count = sizeof values / sizeof *values;
    return all;
}

/* Small positive numbers of any type, by its size: the bytes of its padding are zero. */
static void numbers(MPI_Datatype type, char *p, int count, int seed) {
    MPI_Aint lb, extent;
    MPI_Type_get_extent(type, &lb, &extent);
    memset(p, 0, (size_t)extent * (size_t)count);
    for (int i = 0; i < count; i++) {
        char *to = p + i * extent;
        int n = 1 + (i * 7 + seed * 3) % 5;
        if (type == MPI_FLOAT)
            *(float *)to = (float)n;
        else if (type == MPI_DOUBLE)
            *(double *)to = n;
        else if (type == MPI_LONG_DOUBLE)
            *(long double *)to = n;
        else if (type == MPI_C_FLOAT_COMPLEX)
            *(float complex *)to = (float)n + 2 * I;
        else if (type == MPI_C_DOUBLE_COMPLEX)
            *(double complex *)to = n + 2 * I;
        else if (type == MPI_C_LONG_DOUBLE_COMPLEX)
            *(long double complex *)to = n + 2 * I;
        else if (type == MPI_C_BOOL)
            *to = (char)(n & 1);
        else if (type == MPI_FLOAT_INT)
            *(float *)to = (float)n, *(int *)(to + 4) = i + seed;
        else if (type == MPI_DOUBLE_INT)
            *(double *)to = n, *(int *)(to + 8) = i + seed;
        else if (type == MPI_LONG_INT)
            *(long *)to = n, *(int *)(to + 8) = i + seed;
        else if (type == MPI_SHORT_INT)
            *(short *)to = (short)n, *(int *)(to + 4) = i + seed;
        else if (type == MPI_LONG_DOUBLE_INT)
            *(long double *)to = n, *(int *)(to + 16) = i + seed;
        else
            *to = (char)n; /* an integer of any size: little-endian */
    }
}

/* Whether the elements are equal, without their padding. */
static int equal(MPI_Datatype type, const char *a, const char *b, int count) {
    int bytes, at_a = 0, at_b = 0;
    MPI_Pack_size(count, type, MPI_COMM_SELF, &bytes);
    char *x = room(bytes), *y = room(bytes);
    memset(x, 0, bytes);
    memset(y, 0, bytes);
    MPI_Pack(a, count, type, x, bytes, &at_a, MPI_COMM_SELF);
    MPI_Pack(b, count, type, y, bytes, &at_b, MPI_COMM_SELF);
    int same = at_a == at_b;
    if (type == MPI_LONG_DOUBLE || type == MPI_C_LONG_DOUBLE_COMPLEX) {
        for (int i = 0; i < at_a; i += 16)
            same &= memcmp(x + i, y + i, 10) == 0;
    } else if (type == MPI_LONG_DOUBLE_INT) {
        for (int i = 0; i < at_a; i += 20)
            same &= memcmp(x + i, y + i, 10) == 0 && memcmp(x + i + 16, y + i + 16, 4) == 0;
    } else {
        same &= memcmp(x, y, at_a) == 0;
    }
    free(x);
    free(y);
    return same;
}

static int is_near(int target) {
    MPI_Group all, here;
    int place;
    MPI_Comm_group(world, &all);
    MPI_Comm_group(node, &here);
    MPI_Group_translate_ranks(all, 1, &target, here, &place);
    MPI_Group_free(&all);
    MPI_Group_free(&here);
    return place != MPI_UNDEFINED;
}

/* Near and far targets, after MPI_Reduce_local has told what must come out. */
static void every_operation(int kind) {
    enum { COUNT = 9 };
    int op_count, type_count, pairs = 0;
    const MPI_Op *ops = operations(&op_count);
    const MPI_Datatype *all = types(&type_count);
    Window w = open_window(kind, 1024, world);
    char *data = room(1024), *expected = room(1024), *initial = room(1024), *old = room(1024), *once = room(1024), *twice = room(1024);
    char *last = room(1024), *first = room(1024);
    int target = right(), near = is_near(target);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    for (int t = 0; t < type_count; t++) {
        for (int o = 0; o < op_count; o++) {
            /* Messages take their time. */
            if (!near && (t + o) % 4 != 0)
                continue;
            numbers(all[t], data, COUNT, 1);
            numbers(all[t], initial, COUNT, 2);
            numbers(all[t], expected, COUNT, 2);
            if (MPI_Reduce_local(data, expected, COUNT, all[t], ops[o]) != MPI_SUCCESS)
                continue;
            pairs++;
            MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, w.win);
            MPI_Put(initial, COUNT, all[t], target, at(&w, target, 0), COUNT, all[t], w.win);
            MPI_Win_flush(target, w.win);
            /* Accumulates of one origin on the same elements keep their order. */
            MPI_Get_accumulate(data, COUNT, all[t], old, COUNT, all[t], target, at(&w, target, 0), COUNT, all[t], ops[o], w.win);
            MPI_Get_accumulate(NULL, 0, all[t], once, COUNT, all[t], target, at(&w, target, 0), COUNT, all[t], MPI_NO_OP, w.win);
            MPI_Accumulate(data, COUNT, all[t], target, at(&w, target, 0), COUNT, all[t], ops[o], w.win);
            MPI_Get_accumulate(NULL, 0, all[t], twice, COUNT, all[t], target, at(&w, target, 0), COUNT, all[t], MPI_NO_OP, w.win);
            MPI_Fetch_and_op(data, last, all[t], target, at(&w, target, 0), MPI_REPLACE, w.win);
            MPI_Fetch_and_op(data, first, all[t], target, at(&w, target, 0), MPI_NO_OP, w.win);
            MPI_Win_unlock(target, w.win);
            CHECK(equal(all[t], old, initial, COUNT) && equal(all[t], once, expected, COUNT));
            MPI_Reduce_local(data, expected, COUNT, all[t], ops[o]);
            CHECK(equal(all[t], twice, expected, COUNT) && equal(all[t], last, expected, 1) && equal(all[t], first, data, 1));
        }
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
    CHECK(pairs > (near ? 200 : 50));
    close_window(&w);
    free(data);
    free(expected);
    free(initial);
    free(old);
    free(once);
    free(twice);
    free(last);
    free(first);
}

/* --- a target that computes: it makes no call until the others of its node have done everything --- */

static void computing(int kind) {
    Window w = open_window(kind, (MPI_Aint)((4 + LONG) * sizeof(int64_t)), node);
    volatile int64_t *mine = (volatile int64_t *)w.memory;
    MPI_Win_fence(0, w.win);
    MPI_Win_fence(MPI_MODE_NOSUCCEED, w.win);
    if (node_rank == 0) {
        /* The last of the others says so at the end, after a flush. */
        while (mine[1] != node_size - 1)
            ;
        CHECK(mine[0] == 3L * (node_size - 1) && mine[4 + LONG - 1] == node_size - 1);
    } else {
        int64_t one = 1, before = -1, *ones = room(LONG * sizeof *ones), *back = room(LONG * sizeof *back);
        for (int i = 0; i < LONG; i++)
            ones[i] = 1;
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, w.win);
        MPI_Get(&before, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, w.win);
        MPI_Win_flush(0, w.win);
        before++;
        MPI_Put(&before, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, w.win);
        MPI_Win_unlock(0, w.win);
        MPI_Win_lock_all(0, w.win);
        MPI_Fetch_and_op(&one, &before, MPI_INT64_T, 0, 16, MPI_SUM, w.win);
        MPI_Accumulate(ones, LONG, MPI_INT64_T, 0, 32, LONG, MPI_INT64_T, MPI_SUM, w.win);
        MPI_Request request;
        MPI_Rget(back, LONG, MPI_INT64_T, 0, 32, LONG, MPI_INT64_T, w.win, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        CHECK(back[LONG - 1] >= 1);
        MPI_Win_flush(0, w.win);
        MPI_Win_unlock_all(w.win);
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, w.win);
        MPI_Get(&before, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, w.win);
        MPI_Win_flush(0, w.win);
        before += 2;
        MPI_Put(&before, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, w.win);
        MPI_Win_unlock(0, w.win);
        MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, w.win);
        MPI_Accumulate(&one, 1, MPI_INT64_T, 0, 8, 1, MPI_INT64_T, MPI_SUM, w.win);
        MPI_Win_unlock(0, w.win);
        free(ones);
        free(back);
    }
    MPI_Barrier(node);
    close_window(&w);
}

/* The memory of MPI_Win_allocate is that of all members of the node, unless a setting says otherwise. */
static void queried(void) {
    const char *shm = getenv("RSD_MPI_SHM");
    int shares = shm == NULL || strcmp(shm, "off") != 0;
    Window w = open_window(ALLOCATED, 100 * (rank + 1), world);
    int next = right(), unit = -1;
    MPI_Aint bytes = -1;
    char *base = (char *)&bytes;
    MPI_Win_shared_query(w.win, next, &bytes, &unit, &base);
    if (shares && is_near(next))
        CHECK(bytes == 100 * (next + 1) && unit == 1 && base);
    else
        CHECK(bytes == 0 && !base);
    MPI_Win_fence(0, w.win);
    if (base)
        base[99] = 5;
    MPI_Win_fence(0, w.win);
    int expects = shares && is_near(next), comes;
    MPI_Sendrecv(&expects, 1, MPI_INT, next, 2, &comes, 1, MPI_INT, left(), 2, world, MPI_STATUS_IGNORE);
    CHECK(w.memory[99] == (comes ? 5 : 0));
    close_window(&w);
}

/* Many windows: those that have no bell any more work all the same. */
static void many(void) {
    enum { MANY = 70 };
    MPI_Win *wins = room(MANY * sizeof *wins);
    int **memory = room(MANY * sizeof *memory);
    for (int i = 0; i < MANY; i++)
        MPI_Win_allocate(sizeof(int), sizeof(int), MPI_INFO_NULL, world, &memory[i], &wins[i]);
    for (int i = 0; i < MANY; i += 23) {
        MPI_Win_fence(0, wins[i]);
        *memory[i] = 0;
        MPI_Win_fence(MPI_MODE_NOSUCCEED, wins[i]);
        for (int round = 0; round < 5; round++) {
            int got = -1;
            MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, wins[i]);
            MPI_Get(&got, 1, MPI_INT, 0, 0, 1, MPI_INT, wins[i]);
            MPI_Win_flush(0, wins[i]);
            got++;
            MPI_Put(&got, 1, MPI_INT, 0, 0, 1, MPI_INT, wins[i]);
            MPI_Win_unlock(0, wins[i]);
        }
        MPI_Win_fence(0, wins[i]);
        if (rank == 0)
            CHECK(*memory[i] == 5 * size);
        MPI_Win_fence(MPI_MODE_NOSUCCEED, wins[i]);
    }
    for (int i = 0; i < MANY; i++)
        MPI_Win_free(&wins[i]);
    free(wins);
    free(memory);
}

int main(int argc, char **argv) {
    begin(&argc, &argv);
    MPI_Comm_dup(MPI_COMM_WORLD, &world);
    MPI_Comm_split_type(world, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_rank(node, &node_rank);
    MPI_Comm_size(node, &node_size);
    int few = argc > 1 && strcmp(argv[1], "few") == 0;
    for (int kind = 0; kind < KINDS; kind++) {
        sums(kind);
        locked(kind);
        if (!few && kind != DYNAMIC)
            every_operation(kind);
    }
    computing(ALLOCATED);
    computing(ELEMENTS);
    computing(CREATED);
    queried();
    if (!few)
        many();
    MPI_Comm_free(&node);
    MPI_Comm_free(&world);
    return finish("onesided");
}
