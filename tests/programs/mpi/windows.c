/* One-sided communication: every function, every kind of window and of epoch, and the error class of each wrong argument. */
#include "check.h"

#include <stddef.h>
#include <stdint.h>

#define SHORT 10
#define LONG 100000

static MPI_Comm world;

static MPI_Win window_of(int *memory, long count) {
    MPI_Win win;
    MPI_Win_create(memory, count * (MPI_Aint)sizeof *memory, sizeof *memory, MPI_INFO_NULL, world, &win);
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    return win;
}

/* Puts and gets between fences, short and long, contiguous and with holes. */
static void fences(void) {
    for (int pass = 0; pass < 2; pass++) {
        long count = pass ? LONG : SHORT;
        int *memory = room(2 * count * sizeof(int)), *mine = room(count * sizeof(int)), *theirs = room(count * sizeof(int));
        memset(memory, 0, 2 * count * sizeof(int));
        fill(memory + count, count, rank);
        fill(mine, count, 100 + rank);
        MPI_Win win = window_of(memory, 2 * count);
        MPI_Win_fence(MPI_MODE_NOPRECEDE, win);
        CHECK(MPI_Put(mine, (int)count, MPI_INT, right(), 0, (int)count, MPI_INT, win) == MPI_SUCCESS);
        CHECK(MPI_Get(theirs, (int)count, MPI_INT, left(), count, (int)count, MPI_INT, win) == MPI_SUCCESS);
        CHECK(MPI_Put(mine, (int)count, MPI_INT, MPI_PROC_NULL, 0, (int)count, MPI_INT, win) == MPI_SUCCESS);
        CHECK(MPI_Win_fence(0, win) == MPI_SUCCESS);
        CHECK(filled(memory, count, 100 + left()) && filled(theirs, count, left()) && filled(memory + count, count, rank));

        /* Every second element. */
        MPI_Datatype every;
        MPI_Type_vector((int)count / 2, 1, 2, MPI_INT, &every);
        MPI_Type_commit(&every);
        memset(memory, 0, 2 * count * sizeof(int));
        MPI_Win_fence(0, win);
        MPI_Put(mine, (int)count / 2, MPI_INT, right(), 0, 1, every, win);
        MPI_Win_fence(0, win);
        int good = 1;
        for (long i = 0; i < count; i++)
            good &= memory[i] == (i % 2 ? 0 : value(100 + left(), i / 2));
        CHECK(good);
        memset(theirs, 0, count * sizeof(int));
        MPI_Get(theirs, 1, every, right(), 0, (int)count / 2, MPI_INT, win);
        CHECK(MPI_Win_fence(MPI_MODE_NOSUCCEED, win) == MPI_SUCCESS);
        good = 1;
        for (long i = 0; i < count; i++)
            good &= theirs[i] == (i % 2 ? 0 : i / 2 % 2 ? 0 : value(100 + rank, i / 4));
        CHECK(good);
        MPI_Type_free(&every);
        FAILS(MPI_Put(mine, 1, MPI_INT, right(), 0, 1, MPI_INT, win), MPI_ERR_RMA_SYNC);
        MPI_Win_free(&win);
        CHECK(win == MPI_WIN_NULL);
        free(memory);
        free(mine);
        free(theirs);
    }
}

/* Accumulates from all to one, of several types, and of elements with holes. */
static void accumulates(void) {
    struct pair {
        double value;
        int at;
    };
    struct {
        int sum[LONG];
        double product;
        struct pair best[3];
        unsigned bits;
    } *memory = room(sizeof *memory);
    memset(memory, 0, sizeof *memory);
    memory->product = 1;
    for (int i = 0; i < 3; i++)
        memory->best[i] = (struct pair){-1, -1};
    MPI_Win win;
    MPI_Win_create(memory, sizeof *memory, 1, MPI_INFO_NULL, world, &win);
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    int *ones = room(LONG * sizeof(int));
    for (int i = 0; i < LONG; i++)
        ones[i] = i + rank;
    double two = 2;
    struct pair mine[3] = {{rank, rank}, {-rank, rank}, {5, rank}};
    unsigned bit = 1u << (rank % 31);
    MPI_Win_fence(0, win);
    MPI_Accumulate(ones, LONG, MPI_INT, 0, 0, LONG, MPI_INT, MPI_SUM, win);
    MPI_Accumulate(ones, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_SUM, win);
    MPI_Accumulate(&two, 1, MPI_DOUBLE, 0, offsetof(__typeof__(*memory), product), 1, MPI_DOUBLE, MPI_PROD, win);
    MPI_Accumulate(mine, 3, MPI_DOUBLE_INT, 0, offsetof(__typeof__(*memory), best), 3, MPI_DOUBLE_INT, MPI_MAXLOC, win);
    MPI_Accumulate(&bit, 1, MPI_UNSIGNED, 0, offsetof(__typeof__(*memory), bits), 1, MPI_UNSIGNED, MPI_BOR, win);
    CHECK(MPI_Win_fence(0, win) == MPI_SUCCESS);
    if (rank == 0) {
        int good = 1, ranks = size * (size - 1) / 2;
        for (int i = 1; i < LONG; i++)
            good &= memory->sum[i] == size * i + ranks;
        CHECK(good && memory->sum[0] == 2 * ranks);
        double product = 1;
        for (int i = 0; i < size; i++)
            product *= 2;
        CHECK(memory->product == product);
        CHECK(memory->best[0].value == size - 1 && memory->best[0].at == size - 1);
        CHECK(memory->best[1].value == 0 && memory->best[1].at == 0 && memory->best[2].value == 5 && memory->best[2].at == 0);
        CHECK(size > 31 || memory->bits == (1u << size) - 1);
    }
    /* Accumulates of one origin keep their order, also a short one after a long one. */
    MPI_Win_fence(0, win);
    if (rank == size - 1) {
        memset(ones, 0, LONG * sizeof(int));
        MPI_Accumulate(ones, LONG, MPI_INT, 0, 0, LONG, MPI_INT, MPI_REPLACE, win);
        int seven = 7;
        MPI_Accumulate(&seven, 1, MPI_INT, 0, 4 * (LONG - 1), 1, MPI_INT, MPI_SUM, win);
    }
    MPI_Win_fence(0, win);
    if (rank == 0)
        CHECK(memory->sum[0] == 0 && memory->sum[LONG - 1] == 7);
    FAILS(MPI_Accumulate(ones, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_NO_OP, win), MPI_ERR_OP);
    FAILS(MPI_Accumulate(&two, 1, MPI_DOUBLE, 0, 0, 1, MPI_DOUBLE, MPI_BAND, win), MPI_ERR_OP);
    MPI_Win_fence(0, win);
    MPI_Win_free(&win);
    free(ones);
    free(memory);
}

/* Locks: counters, fetches, swaps, flushes and requests. */
static void locks(void) {
    enum { ROUNDS = 50 };
    long *memory;
    MPI_Win win;
    MPI_Win_allocate((MPI_Aint)(8 * sizeof(long)), sizeof(long), MPI_INFO_NULL, world, &memory, &win);
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, win);
    for (int i = 0; i < 8; i++)
        memory[i] = 0;
    MPI_Win_unlock(rank, win);
    MPI_Barrier(world);
    /* A read and a write under an exclusive lock are one step. */
    for (int i = 0; i < ROUNDS; i++) {
        long was = -1, next;
        CHECK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win) == MPI_SUCCESS);
        MPI_Get(&was, 1, MPI_LONG, 0, 0, 1, MPI_LONG, win);
        CHECK(MPI_Win_flush(0, win) == MPI_SUCCESS);
        next = was + 1;
        MPI_Put(&next, 1, MPI_LONG, 0, 0, 1, MPI_LONG, win);
        CHECK(MPI_Win_unlock(0, win) == MPI_SUCCESS);
    }
    CHECK(MPI_Win_lock_all(0, win) == MPI_SUCCESS);
    long one = 1, before, seen = 0;
    for (int i = 0; i < ROUNDS; i++) {
        before = -1;
        MPI_Fetch_and_op(&one, &before, MPI_LONG, size - 1, 1, MPI_SUM, win);
        MPI_Win_flush(size - 1, win);
        CHECK(before >= seen);
        seen = before + 1;
    }
    /* A spin lock of compare-and-swap. */
    for (int i = 0; i < 10; i++) {
        long zero = 0, mine = rank + 1, found = -1, sum = -1;
        do {
            MPI_Compare_and_swap(&mine, &zero, &found, MPI_LONG, 0, 2, win);
            MPI_Win_flush(0, win);
        } while (found != 0);
        MPI_Get(&sum, 1, MPI_LONG, 0, 3, 1, MPI_LONG, win);
        MPI_Win_flush_local(0, win);
        sum++;
        MPI_Put(&sum, 1, MPI_LONG, 0, 3, 1, MPI_LONG, win);
        MPI_Win_flush(0, win);
        MPI_Accumulate(&zero, 1, MPI_LONG, 0, 2, 1, MPI_LONG, MPI_REPLACE, win);
        MPI_Win_flush_all(win);
    }
    /* Requests. */
    MPI_Request requests[4];
    long put = 40 + rank, got = -1, added = 2, old = -1;
    MPI_Rput(&put, 1, MPI_LONG, right(), 4, 1, MPI_LONG, win, &requests[0]);
    MPI_Raccumulate(&added, 1, MPI_LONG, right(), 5, 1, MPI_LONG, MPI_SUM, win, &requests[1]);
    CHECK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE) == MPI_SUCCESS);
    MPI_Win_flush_all(win);
    MPI_Rget(&got, 1, MPI_LONG, right(), 4, 1, MPI_LONG, win, &requests[2]);
    MPI_Rget_accumulate(&added, 1, MPI_LONG, &old, 1, MPI_LONG, right(), 5, 1, MPI_LONG, MPI_SUM, win, &requests[3]);
    CHECK(MPI_Waitall(2, requests + 2, MPI_STATUSES_IGNORE) == MPI_SUCCESS);
    CHECK(got == put && old == 2);
    MPI_Rget(&got, 1, MPI_LONG, MPI_PROC_NULL, 0, 1, MPI_LONG, win, &requests[0]);
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    long nothing = -1;
    MPI_Get_accumulate(NULL, 0, MPI_LONG, &nothing, 1, MPI_LONG, right(), 5, 1, MPI_LONG, MPI_NO_OP, win);
    CHECK(MPI_Win_flush_local_all(win) == MPI_SUCCESS && nothing == 4);
    CHECK(MPI_Win_sync(win) == MPI_SUCCESS);
    CHECK(MPI_Win_unlock_all(win) == MPI_SUCCESS);
    MPI_Barrier(world);
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
    if (rank == 0)
        CHECK(memory[0] == ROUNDS * size && memory[2] == 0 && memory[3] == 10 * size);
    if (rank == size - 1)
        CHECK(memory[1] == ROUNDS * size);
    CHECK(memory[4] == 40 + left() && memory[5] == 4);
    MPI_Win_unlock(rank, win);
    /* Several targets at a time. */
    for (int to = 0; to < size; to++)
        CHECK(MPI_Win_lock(MPI_LOCK_SHARED, to, to == rank ? MPI_MODE_NOCHECK : 0, win) == MPI_SUCCESS);
    long times = 1;
    for (int to = 0; to < size; to++)
        MPI_Accumulate(&times, 1, MPI_LONG, to, 6, 1, MPI_LONG, MPI_SUM, win);
    for (int to = 0; to < size; to++)
        CHECK(MPI_Win_unlock(to, win) == MPI_SUCCESS);
    MPI_Barrier(world);
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
    CHECK(memory[6] == size);
    MPI_Win_unlock(rank, win);
    MPI_Win_free(&win);
}

/* A long request, completed by its own wait before and after the flush. */
static void long_requests(void) {
    int *memory = room(LONG * sizeof(int)), *mine = room(LONG * sizeof(int)), *got = room(LONG * sizeof(int));
    memset(memory, 0, LONG * sizeof(int));
    fill(mine, LONG, rank);
    MPI_Win win = window_of(memory, LONG);
    MPI_Request request;
    for (int pass = 0; pass < 2; pass++) {
        MPI_Barrier(world);
        MPI_Win_lock_all(0, win);
        MPI_Rput(mine, LONG, MPI_INT, right(), 0, LONG, MPI_INT, win, &request);
        if (pass)
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Win_flush(right(), win);
        if (!pass)
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        memset(got, 0, LONG * sizeof(int));
        MPI_Rget(got, LONG, MPI_INT, right(), 0, LONG, MPI_INT, win, &request);
        if (pass)
            MPI_Win_flush(right(), win);
        else
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        CHECK(filled(got, LONG, rank));
        if (pass)
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Win_unlock_all(win);
    }
    MPI_Win_free(&win);
    free(memory);
    free(mine);
    free(got);
}

/* Post, start, complete, wait. */
static void groups(void) {
    int memory[4] = {0}, mine = 500 + rank, got = -1, flag;
    MPI_Win win = window_of(memory, 4);
    MPI_Group all, to, from;
    MPI_Comm_group(world, &all);
    int next = right(), before = left();
    MPI_Group_incl(all, 1, &next, &to);
    MPI_Group_incl(all, 1, &before, &from);
    for (int round = 0; round < 3; round++) {
        memory[1] = 900 + rank + round;
        CHECK(MPI_Win_post(from, 0, win) == MPI_SUCCESS);
        FAILS(MPI_Win_post(from, 0, win), MPI_ERR_RMA_SYNC);
        CHECK(MPI_Win_start(to, 0, win) == MPI_SUCCESS);
        mine = 500 + rank + round;
        MPI_Put(&mine, 1, MPI_INT, next, 0, 1, MPI_INT, win);
        MPI_Get(&got, 1, MPI_INT, next, 1, 1, MPI_INT, win);
        if (size > 2)
            FAILS(MPI_Put(&mine, 1, MPI_INT, before, 0, 1, MPI_INT, win), MPI_ERR_RMA_SYNC);
        CHECK(MPI_Win_complete(win) == MPI_SUCCESS);
        CHECK(got == 900 + next + round);
        if (round == 1)
            do
                MPI_Win_test(win, &flag);
            while (!flag);
        else
            CHECK(MPI_Win_wait(win) == MPI_SUCCESS);
        CHECK(memory[0] == 500 + before + round);
    }
    /* A long get has read the memory when the wait ends. */
    int *many = room(LONG * sizeof(int)), *theirs = room(LONG * sizeof(int));
    MPI_Win large = window_of(many, LONG);
    for (int round = 0; round < 5; round++) {
        fill(many, LONG, rank + round);
        MPI_Win_post(from, 0, large);
        MPI_Win_start(to, 0, large);
        MPI_Get(theirs, LONG, MPI_INT, next, 0, LONG, MPI_INT, large);
        if (rank % 2 && before != rank) {
            CHECK(MPI_Win_wait(large) == MPI_SUCCESS);
            memset(many, 0, LONG * sizeof(int));
            CHECK(MPI_Win_complete(large) == MPI_SUCCESS);
        } else {
            CHECK(MPI_Win_complete(large) == MPI_SUCCESS);
            CHECK(MPI_Win_wait(large) == MPI_SUCCESS);
            memset(many, 0, LONG * sizeof(int));
        }
        CHECK(filled(theirs, LONG, next + round));
    }
    MPI_Win_free(&large);
    free(many);
    free(theirs);
    FAILS(MPI_Win_complete(win), MPI_ERR_RMA_SYNC);
    FAILS(MPI_Win_wait(win), MPI_ERR_RMA_SYNC);
    FAILS(MPI_Win_test(win, &flag), MPI_ERR_RMA_SYNC);
    MPI_Group_free(&all);
    MPI_Group_free(&to);
    MPI_Group_free(&from);
    MPI_Win_free(&win);
}

static void dynamic(void) {
    MPI_Win win;
    int *memory = room(LONG * sizeof(int)), *got = room(LONG * sizeof(int));
    fill(memory, LONG, rank);
    MPI_Win_create_dynamic(MPI_INFO_NULL, world, &win);
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    CHECK(MPI_Win_attach(win, memory, LONG * sizeof(int)) == MPI_SUCCESS);
    FAILS(MPI_Win_attach(win, memory + 1, 4), MPI_ERR_RMA_ATTACH);
    FAILS(MPI_Win_shared_query(win, rank, &(MPI_Aint){0}, &(int){0}, &(void *){0}), MPI_ERR_RMA_FLAVOR);
    MPI_Aint here, *there = room(size * sizeof *there);
    MPI_Get_address(memory, &here);
    MPI_Allgather(&here, 1, MPI_AINT, there, 1, MPI_AINT, world);
    MPI_Win_lock_all(0, win);
    CHECK(MPI_Get(got, LONG, MPI_INT, right(), there[right()], LONG, MPI_INT, win) == MPI_SUCCESS);
    MPI_Win_flush(right(), win);
    CHECK(filled(got, LONG, right()));
    MPI_Get(got, 3, MPI_INT, right(), MPI_Aint_add(there[right()], 40), 3, MPI_INT, win);
    CHECK(MPI_Win_flush(right(), win) == MPI_SUCCESS && got[0] == value(right(), 10));
    /* Memory that is not attached: the error comes with the flush. */
    MPI_Put(got, 1, MPI_INT, right(), there[right()] + LONG * (MPI_Aint)sizeof(int), 1, MPI_INT, win);
    FAILS(MPI_Win_flush(right(), win), MPI_ERR_RMA_RANGE);
    MPI_Get(got, 1, MPI_INT, right(), 16, 1, MPI_INT, win);
    FAILS(MPI_Win_flush(right(), win), MPI_ERR_RMA_RANGE);
    CHECK(MPI_Win_unlock_all(win) == MPI_SUCCESS);
    MPI_Barrier(world);
    CHECK(MPI_Win_detach(win, memory) == MPI_SUCCESS);
    FAILS(MPI_Win_detach(win, memory), MPI_ERR_BASE);
    /* The same memory in three pieces, of which an access may touch several. */
    CHECK(MPI_Win_attach(win, memory + 100, (LONG - 100) * sizeof(int)) == MPI_SUCCESS);
    CHECK(MPI_Win_attach(win, memory, 40 * sizeof(int)) == MPI_SUCCESS);
    CHECK(MPI_Win_attach(win, memory + 40, 60 * sizeof(int)) == MPI_SUCCESS);
    MPI_Barrier(world);
    MPI_Win_lock_all(0, win);
    memset(got, 0, LONG * sizeof(int));
    MPI_Get(got, LONG, MPI_INT, right(), there[right()], LONG, MPI_INT, win);
    CHECK(MPI_Win_flush(right(), win) == MPI_SUCCESS && filled(got, LONG, right()));
    MPI_Win_unlock_all(win);
    MPI_Barrier(world);
    /* With a hole between two of them, it is not all attached. */
    CHECK(MPI_Win_detach(win, memory + 40) == MPI_SUCCESS);
    MPI_Barrier(world);
    MPI_Win_lock_all(0, win);
    MPI_Get(got, 100, MPI_INT, right(), there[right()], 100, MPI_INT, win);
    FAILS(MPI_Win_flush(right(), win), MPI_ERR_RMA_RANGE);
    MPI_Win_unlock_all(win);
    MPI_Barrier(world);
    MPI_Win_free(&win);
    free(memory);
    free(got);
    free(there);
}

static void shared(void) {
    MPI_Comm node;
    int nodes, here, many;
    MPI_Comm_split_type(world, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_rank(node, &here);
    MPI_Comm_size(node, &many);
    nodes = many != size;
    for (int apart = 0; apart < 2; apart++) {
        MPI_Info info;
        MPI_Info_create(&info);
        MPI_Info_set(info, "alloc_shared_noncontig", apart ? "true" : "false");
        MPI_Win win;
        long *mine, *first, *next;
        MPI_Aint bytes;
        int unit;
        CHECK(MPI_Win_allocate_shared(2 * (MPI_Aint)sizeof(long), sizeof(long), info, node, &mine, &win) == MPI_SUCCESS);
        MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
        MPI_Info_free(&info);
        MPI_Win_shared_query(win, MPI_PROC_NULL, &bytes, &unit, &first);
        CHECK(bytes == 2 * (MPI_Aint)sizeof(long) && unit == (int)sizeof(long));
        if (!apart)
            CHECK(mine == first + 2 * here);
        MPI_Win_shared_query(win, (here + 1) % many, &bytes, &unit, &next);
        MPI_Win_fence(0, win);
        next[0] = 7000 + here;
        MPI_Win_fence(0, win);
        CHECK(mine[0] == 7000 + (here + many - 1) % many);
        mine[1] = 0;
        MPI_Barrier(node);
        MPI_Win_lock_all(0, win);
        long one = 1, old;
        for (int to = 0; to < many; to++)
            MPI_Fetch_and_op(&one, &old, MPI_LONG, to, 1, MPI_SUM, win);
        MPI_Win_unlock_all(win);
        MPI_Barrier(node);
        CHECK(mine[1] == many);
        MPI_Barrier(node);
        /* Memory that is written without calls, under a lock. */
        for (int i = 0; i < 20; i++) {
            MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
            first[1]++;
            MPI_Win_unlock(0, win);
        }
        MPI_Barrier(node);
        CHECK(first[1] == 21L * many);
        MPI_Barrier(node);
        MPI_Win_free(&win);
    }
    if (nodes) {
        long *none;
        MPI_Win win;
        MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN);
        FAILS(MPI_Win_allocate_shared(8, 8, MPI_INFO_NULL, world, &none, &win), MPI_ERR_RMA_SHARED);
        MPI_Comm_set_errhandler(world, MPI_ERRORS_ARE_FATAL);
    }
    MPI_Comm_free(&node);
}

static int deleted, raised;

static int on_delete(MPI_Win win, int key, void *attribute, void *extra) {
    (void)win, (void)key, (void)extra;
    deleted += *(int *)attribute;
    return MPI_SUCCESS;
}

static void on_error(MPI_Win *win, int *code, ...) {
    (void)win;
    raised = class_of(*code);
}

static void about(void) {
    int memory[4], flag, length, number = 5, key, *kind;
    char name[MPI_MAX_OBJECT_NAME];
    void *base;
    MPI_Aint *bytes;
    MPI_Group group, all;
    MPI_Win win = window_of(memory, 4);
    MPI_Win_get_attr(win, MPI_WIN_BASE, &base, &flag);
    CHECK(flag && base == memory);
    MPI_Win_get_attr(win, MPI_WIN_SIZE, &bytes, &flag);
    CHECK(flag && *bytes == sizeof memory);
    MPI_Win_get_attr(win, MPI_WIN_DISP_UNIT, &kind, &flag);
    CHECK(flag && *kind == sizeof *memory);
    MPI_Win_get_attr(win, MPI_WIN_CREATE_FLAVOR, &kind, &flag);
    CHECK(flag && *kind == MPI_WIN_FLAVOR_CREATE);
    MPI_Win_get_attr(win, MPI_WIN_MODEL, &kind, &flag);
    CHECK(flag && *kind == MPI_WIN_UNIFIED);
    MPI_Win_get_group(win, &group);
    MPI_Comm_group(world, &all);
    MPI_Group_compare(group, all, &flag);
    CHECK(flag == MPI_IDENT);
    MPI_Group_free(&group);
    MPI_Group_free(&all);
    MPI_Win_get_name(win, name, &length);
    CHECK(length == 0);
    MPI_Win_set_name(win, "halo");
    MPI_Win_get_name(win, name, &length);
    CHECK(length == 4 && strcmp(name, "halo") == 0);
    MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, on_delete, &key, NULL);
    MPI_Win_set_attr(win, key, &number);
    MPI_Win_get_attr(win, key, &kind, &flag);
    CHECK(flag && kind == &number);
    MPI_Win_delete_attr(win, key);
    CHECK(deleted == 5);
    MPI_Win_set_attr(win, key, &number);
    MPI_Info info;
    MPI_Win_get_info(win, &info);
    MPI_Info_set(info, "no_locks", "true");
    MPI_Win_set_info(win, info);
    MPI_Info_free(&info);
    MPI_Win_get_info(win, &info);
    char text[16];
    length = sizeof text;
    MPI_Info_get_string(info, "no_locks", &length, text, &flag);
    CHECK(flag && strcmp(text, "true") == 0);
    MPI_Info_free(&info);
    MPI_Errhandler handler, found;
    MPI_Win_create_errhandler(on_error, &handler);
    MPI_Win_set_errhandler(win, handler);
    MPI_Win_get_errhandler(win, &found);
    CHECK(found == handler);
    MPI_Errhandler_free(&found);
    MPI_Errhandler_free(&handler);
    MPI_Win_call_errhandler(win, MPI_ERR_RMA_RANGE);
    CHECK(raised == MPI_ERR_RMA_RANGE);
    FAILS(MPI_Win_unlock(0, win), MPI_ERR_RMA_SYNC);
    CHECK(raised == MPI_ERR_RMA_SYNC);
    /* The window's handler also hears that it cannot be freed: that of MPI_COMM_WORLD would end the program. */
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
    raised = MPI_SUCCESS;
    FAILS(MPI_Win_free(&win), MPI_ERR_RMA_SYNC);
    CHECK(raised == MPI_ERR_RMA_SYNC);
    MPI_Win_unlock(rank, win);
    MPI_Win_free(&win);
    CHECK(deleted == 10);
    MPI_Win_free_keyval(&key);
}

static void wrong_arguments(void) {
    int memory[4] = {0}, other = 0;
    MPI_Win win, none = MPI_WIN_NULL;
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN);
    FAILS(MPI_Win_create(memory, -1, 1, MPI_INFO_NULL, world, &win), MPI_ERR_SIZE);
    FAILS(MPI_Win_create(memory, 4, 0, MPI_INFO_NULL, world, &win), MPI_ERR_DISP);
    FAILS(MPI_Win_create(NULL, 4, 1, MPI_INFO_NULL, world, &win), MPI_ERR_BASE);
    FAILS(MPI_Win_create(memory, 4, 1, MPI_INFO_NULL, MPI_COMM_NULL, &win), MPI_ERR_COMM);
    /* Wrong at one rank only: no rank hangs. */
    int code = MPI_Win_create(memory, rank == 0 ? -1 : 4, 1, MPI_INFO_NULL, world, &win);
    FAILS(code, rank == 0 ? MPI_ERR_SIZE : MPI_ERR_OTHER);
    FAILS(MPI_Win_free(&none), MPI_ERR_WIN);
    FAILS(MPI_Win_fence(0, MPI_WIN_NULL), MPI_ERR_WIN);
    win = window_of(memory, 4);
    FAILS(MPI_Win_fence(12345, win), MPI_ERR_ASSERT);
    FAILS(MPI_Win_lock(77, 0, 0, win), MPI_ERR_LOCKTYPE);
    FAILS(MPI_Win_lock(MPI_LOCK_SHARED, size, 0, win), MPI_ERR_RANK);
    FAILS(MPI_Win_flush(0, win), MPI_ERR_RMA_SYNC);
    FAILS(MPI_Win_flush_all(win), MPI_ERR_RMA_SYNC);
    FAILS(MPI_Win_unlock_all(win), MPI_ERR_RMA_SYNC);
    FAILS(MPI_Win_attach(win, memory, 4), MPI_ERR_RMA_FLAVOR);
    MPI_Aint bytes;
    int unit;
    void *base;
    CHECK(MPI_Win_shared_query(win, rank, &bytes, &unit, &base) == MPI_SUCCESS && bytes == sizeof memory && base == memory);
    FAILS(MPI_Win_shared_query(win, size, &bytes, &unit, &base), MPI_ERR_RANK);
    CHECK(MPI_Win_lock(MPI_LOCK_SHARED, MPI_PROC_NULL, 0, win) == MPI_SUCCESS && MPI_Win_unlock(MPI_PROC_NULL, win) == MPI_SUCCESS);
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
    FAILS(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win), MPI_ERR_RMA_SYNC);
    FAILS(MPI_Win_lock_all(0, win), MPI_ERR_RMA_SYNC);
    FAILS(MPI_Win_free(&win), MPI_ERR_RMA_SYNC);
    FAILS(MPI_Put(&other, 1, MPI_INT, 0, 4, 1, MPI_INT, win), MPI_ERR_RMA_RANGE);
    FAILS(MPI_Put(&other, 1, MPI_INT, 0, -1, 1, MPI_INT, win), MPI_ERR_DISP);
    FAILS(MPI_Put(&other, 1, MPI_INT, size, 0, 1, MPI_INT, win), MPI_ERR_RANK);
    FAILS(MPI_Put(&other, -1, MPI_INT, 0, 0, 1, MPI_INT, win), MPI_ERR_COUNT);
    FAILS(MPI_Put(&other, 1, MPI_INT, 0, 0, -1, MPI_INT, win), MPI_ERR_COUNT);
    FAILS(MPI_Put(&other, 1, MPI_DATATYPE_NULL, 0, 0, 1, MPI_INT, win), MPI_ERR_TYPE);
    FAILS(MPI_Get(&other, 1, MPI_INT, 0, 0, 1, MPI_DATATYPE_NULL, win), MPI_ERR_TYPE);
    FAILS(MPI_Put(NULL, 1, MPI_INT, 0, 0, 1, MPI_INT, win), MPI_ERR_BUFFER);
    FAILS(MPI_Put(&other, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_WIN_NULL), MPI_ERR_WIN);
    FAILS(MPI_Accumulate(&other, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_OP_NULL, win), MPI_ERR_OP);
    FAILS(MPI_Compare_and_swap(&other, &other, &other, MPI_DOUBLE, 0, 0, win), MPI_ERR_TYPE);
    MPI_Win_unlock(0, win);
    MPI_Win_free(&win);
    MPI_Comm_set_errhandler(world, MPI_ERRORS_ARE_FATAL);
}

/* Two windows at a time, and messages between the operations. */
static void beside(void) {
    int one[2] = {0}, two[2] = {0}, token = 0, mine = rank;
    MPI_Win first = window_of(one, 2), second = window_of(two, 2);
    MPI_Win_fence(0, first);
    MPI_Win_fence(0, second);
    for (int i = 0; i < 20; i++) {
        int add = 1;
        MPI_Accumulate(&add, 1, MPI_INT, right(), 0, 1, MPI_INT, MPI_SUM, first);
        MPI_Sendrecv(&mine, 1, MPI_INT, right(), 1, &token, 1, MPI_INT, left(), MPI_ANY_TAG, world, MPI_STATUS_IGNORE);
        CHECK(token == left());
        MPI_Accumulate(&add, 1, MPI_INT, left(), 1, 1, MPI_INT, MPI_SUM, second);
        MPI_Barrier(world);
    }
    MPI_Win_fence(0, second);
    MPI_Win_fence(0, first);
    CHECK(one[0] == 20 && two[1] == 20 && one[1] == 0 && two[0] == 0);
    MPI_Win_free(&first);
    MPI_Win_free(&second);
}

/* What is written may be shorter than the memory that is named, and what is read shorter than the memory for it, as with messages. */
static void lengths(void) {
    int memory[8], data[8], i;
    for (i = 0; i < 8; i++)
        memory[i] = data[i] = rank;
    MPI_Datatype every_second;
    MPI_Type_vector(4, 1, 2, MPI_INT, &every_second);
    MPI_Type_commit(&every_second);
    MPI_Win win = window_of(memory, 8);
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    MPI_Win_fence(0, win);
    CHECK(MPI_Put(data, 2, MPI_INT, right(), 0, 1, every_second, win) == MPI_SUCCESS);
    CHECK(MPI_Accumulate(data, 1, MPI_INT, right(), 5, 3, MPI_INT, MPI_SUM, win) == MPI_SUCCESS);
    MPI_Win_fence(0, win);
    for (i = 0; i < 8; i++)
        CHECK(memory[i] == (i == 0 || i == 2 ? left() : i == 5 ? rank + left() : rank));
    CHECK(MPI_Get(data, 8, MPI_INT, right(), 5, 1, MPI_INT, win) == MPI_SUCCESS);
    FAILS(MPI_Put(data, 8, MPI_INT, right(), 0, 1, every_second, win), MPI_ERR_TRUNCATE);
    FAILS(MPI_Get(data, 1, MPI_INT, right(), 0, 2, MPI_INT, win), MPI_ERR_TRUNCATE);
    FAILS(MPI_Accumulate(data, 3, MPI_CHAR, right(), 0, 1, MPI_INT, MPI_REPLACE, win), MPI_ERR_COUNT);
    MPI_Win_fence(0, win);
    CHECK(data[0] == right() + rank && data[1] == rank);
    MPI_Win_free(&win);
    MPI_Type_free(&every_second);
}

/* Pairs of equal numbers in a derived datatype, and a sized integer. */
static void kinds_of_elements(void) {
    int memory[4] = {0}, data[4] = {rank, rank, size - rank, rank}, one = 1, before = -1;
    MPI_Datatype pairs, sized;
    MPI_Type_contiguous(2, MPI_2INT, &pairs);
    MPI_Type_commit(&pairs);
    MPI_Type_create_f90_integer(9, &sized);
    MPI_Win win = window_of(memory, 4);
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    MPI_Win_fence(0, win);
    CHECK(MPI_Accumulate(data, 1, pairs, 0, 0, 1, pairs, MPI_MAXLOC, win) == MPI_SUCCESS);
    MPI_Win_fence(0, win);
    if (rank == 0)
        CHECK(memory[0] == size - 1 && memory[1] == size - 1 && memory[2] == size && memory[3] == 0);
    MPI_Win_fence(0, win);
    memory[0] = 0;
    MPI_Win_fence(0, win);
    CHECK(MPI_Fetch_and_op(&one, &before, sized, 0, 0, MPI_SUM, win) == MPI_SUCCESS);
    MPI_Win_fence(0, win);
    CHECK(before >= 0 && before < size && (rank > 0 || memory[0] == size));
    MPI_Win_free(&win);
    MPI_Type_free(&pairs);
}

/* One member asks for memory that nobody has: none gets a window, and none waits for it. */
static void no_memory_for_one(void) {
    void *base;
    MPI_Win win;
    MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN);
    FAILS(MPI_Win_allocate(rank == 0 ? (MPI_Aint)1 << 50 : 8, 1, MPI_INFO_NULL, world, &base, &win), MPI_ERR_NO_MEM);
    MPI_Comm_set_errhandler(world, MPI_ERRORS_ARE_FATAL);
}

/* Members may ask for different places of their shared memory, but all must find the same. */
static void apart_for_some(void) {
    MPI_Comm node;
    MPI_Info info;
    MPI_Win win;
    int *mine, *theirs, me, members, unit, flag, length = 6;
    MPI_Aint bytes;
    char value[6] = "";
    MPI_Comm_split_type(world, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_rank(node, &me);
    MPI_Comm_size(node, &members);
    MPI_Info_create(&info);
    MPI_Info_set(info, "alloc_shared_noncontig", me == 0 ? "true" : "false");
    MPI_Win_allocate_shared(sizeof(int), sizeof(int), info, node, &mine, &win);
    MPI_Info_free(&info);
    *mine = me;
    MPI_Win_fence(0, win);
    for (int r = 0; r < members; r++) {
        MPI_Win_shared_query(win, r, &bytes, &unit, &theirs);
        CHECK(bytes == sizeof(int) && *theirs == r);
    }
    /* What has become of the hint, and the default of one that was not given. */
    MPI_Win_get_info(win, &info);
    MPI_Info_get_string(info, "alloc_shared_noncontig", &length, value, &flag);
    CHECK(flag && !strcmp(value, members == 1 ? "true" : "false"));
    length = sizeof value;
    MPI_Info_get_string(info, "no_locks", &length, value, &flag);
    CHECK(flag && !strcmp(value, "false"));
    MPI_Info_free(&info);
    MPI_Win_fence(0, win);
    MPI_Win_free(&win);
    MPI_Comm_free(&node);
}

/* Under a lock, a long read and a short one see the same, also if the lock is released at once. */
static void long_reads_under_locks(void) {
    enum { MANY = 4 << 20, FEW = 64, ROUNDS = 30 };
    char *memory = room(MANY), *got = room(MANY), one;
    MPI_Aint at;
    MPI_Win win;
    memset(memory, 0, MANY);
    MPI_Win_create_dynamic(MPI_INFO_NULL, world, &win);
    MPI_Win_attach(win, memory, MANY);
    MPI_Get_address(memory, &at);
    MPI_Bcast(&at, 1, MPI_AINT, 0, world);
    for (int i = 0; i < ROUNDS; i++) {
        if (rank == 1) {
            MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
            MPI_Get(&one, 1, MPI_CHAR, 0, MPI_Aint_add(at, MANY - 1), 1, MPI_CHAR, win);
            MPI_Get(got, MANY, MPI_CHAR, 0, at, MANY, MPI_CHAR, win);
            MPI_Win_unlock(0, win);
            CHECK(got[MANY - 1] == one);
        } else if (rank == 2) {
            char data[FEW];
            memset(data, i + 1, FEW);
            MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
            MPI_Put(data, FEW, MPI_CHAR, 0, MPI_Aint_add(at, MANY - FEW), FEW, MPI_CHAR, win);
            MPI_Win_unlock(0, win);
        }
    }
    MPI_Barrier(world);
    MPI_Win_detach(win, memory);
    MPI_Win_free(&win);
    free(memory);
    free(got);
}

int main(int argc, char **argv) {
    begin(&argc, &argv);
    MPI_Comm_dup(MPI_COMM_WORLD, &world);
    lengths();
    kinds_of_elements();
    no_memory_for_one();
    apart_for_some();
    long_reads_under_locks();
    fences();
    accumulates();
    locks();
    long_requests();
    groups();
    dynamic();
    shared();
    about();
    wrong_arguments();
    beside();
    MPI_Comm_free(&world);
    return finish("windows");
}
