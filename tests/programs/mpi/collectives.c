/* Collective operations (MPI 5.0 chapter 6) compared with results computed from each rank's known data: blocking, non-blocking
 * and persistent, in place, with gaps between the elements, with user-defined operations, on halves of the world.
 *
 * `collectives few` leaves out the long messages, for many ranks. */
#include "check.h"

static MPI_Comm comm;
static int me, n; /* in comm, which `rank` and `size` are not */
static int few;

/* How a collective is called: each form must give the same. */
enum form { BLOCKING, NONBLOCKING, PERSISTENT, FORMS };
static enum form form;

/* Runs one collective in the form that is being tested. `now`, `later` and `init` are its three functions. */
#define RUN(now, later, init, ...) \
    do { \
        MPI_Request request_; \
        if (form == BLOCKING) { \
            CHECK(now(__VA_ARGS__, comm) == MPI_SUCCESS); \
        } else if (form == NONBLOCKING) { \
            CHECK(later(__VA_ARGS__, comm, &request_) == MPI_SUCCESS); \
            MPI_Wait(&request_, MPI_STATUS_IGNORE); \
            CHECK(request_ == MPI_REQUEST_NULL); \
        } else { \
            CHECK(init(__VA_ARGS__, comm, MPI_INFO_NULL, &request_) == MPI_SUCCESS); \
            MPI_Start(&request_); \
            MPI_Wait(&request_, MPI_STATUS_IGNORE); \
            MPI_Request_free(&request_); \
        } \
    } while (0)

/* Element `i` of the data of rank `r`; small, so that sums are exact and products do not overflow. */
static int give(int r, long i) {
    return (int)((r * 7 + i * 3) % 11) - 5;
}

static int *ints(long count) {
    return room((size_t)count * sizeof(int));
}

static int *given(int r, long count) {
    int *p = ints(count);
    for (long i = 0; i < count; i++)
        p[i] = give(r, i);
    return p;
}

/* Memory filled with a marker that shows where nothing was written. */
static int *blank(long count) {
    int *p = ints(count);
    for (long i = 0; i < count; i++)
        p[i] = -99;
    return p;
}

static int is_blank(const int *p, long count) {
    for (long i = 0; i < count; i++)
        if (p[i] != -99)
            return 0;
    return 1;
}

static int is_from(const int *p, int r, long first, long count) {
    for (long i = 0; i < count; i++)
        if (p[i] != give(r, first + i))
            return 0;
    return 1;
}

static int sum_of(int first, int past, long i) {
    int sum = 0;
    for (int r = first; r < past; r++)
        sum += give(r, i);
    return sum;
}

static int is_sum(const int *p, int first, int past, long from, long count) {
    for (long i = 0; i < count; i++)
        if (p[i] != sum_of(first, past, from + i))
            return 0;
    return 1;
}

/* Roots to try: all of a few ranks, some of many. */
static int next_root(int root) {
    return n <= 4 ? root + 1 : root + (n - 1) / 2;
}

static void barrier(void) {
    MPI_Request request;
    if (form == BLOCKING) {
        MPI_Barrier(comm);
    } else if (form == NONBLOCKING) {
        MPI_Ibarrier(comm, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else {
        MPI_Barrier_init(comm, MPI_INFO_NULL, &request);
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Request_free(&request);
    }
}

static void rooted(long count) {
    int c = (int)count;
    for (int root = 0; root < n; root = next_root(root)) {
        int *one = me == root ? given(root, count) : blank(count);
        RUN(MPI_Bcast, MPI_Ibcast, MPI_Bcast_init, one, c, MPI_INT, root);
        CHECK(is_from(one, root, 0, count));
        free(one);

        int *mine = given(me, count), *all = blank(n * count), *result = blank(count);
        RUN(MPI_Gather, MPI_Igather, MPI_Gather_init, mine, c, MPI_INT, all, c, MPI_INT, root);
        for (int r = 0; r < n && me == root; r++)
            CHECK(is_from(all + r * count, r, 0, count));
        CHECK(me == root || is_blank(all, n * count));
        RUN(MPI_Scatter, MPI_Iscatter, MPI_Scatter_init, all, c, MPI_INT, result, c, MPI_INT, root);
        CHECK(is_from(result, me, 0, count));

        RUN(MPI_Reduce, MPI_Ireduce, MPI_Reduce_init, mine, me == root ? result : NULL, c, MPI_INT, MPI_SUM, root);
        CHECK(me != root || is_sum(result, 0, n, 0, count));

        /* In place, at the root. */
        if (me == root) {
            memcpy(result, mine, (size_t)count * sizeof(int));
            RUN(MPI_Reduce, MPI_Ireduce, MPI_Reduce_init, MPI_IN_PLACE, result, c, MPI_INT, MPI_SUM, root);
            CHECK(is_sum(result, 0, n, 0, count));
            memcpy(all + root * count, mine, (size_t)count * sizeof(int));
            RUN(MPI_Gather, MPI_Igather, MPI_Gather_init, MPI_IN_PLACE, c, MPI_INT, all, c, MPI_INT, root);
            for (int r = 0; r < n; r++)
                CHECK(is_from(all + r * count, r, 0, count));
            RUN(MPI_Scatter, MPI_Iscatter, MPI_Scatter_init, all, c, MPI_INT, MPI_IN_PLACE, c, MPI_INT, root);
        } else {
            RUN(MPI_Reduce, MPI_Ireduce, MPI_Reduce_init, mine, NULL, c, MPI_INT, MPI_SUM, root);
            RUN(MPI_Gather, MPI_Igather, MPI_Gather_init, mine, c, MPI_INT, NULL, c, MPI_INT, root);
            RUN(MPI_Scatter, MPI_Iscatter, MPI_Scatter_init, NULL, c, MPI_INT, result, c, MPI_INT, root);
            CHECK(is_from(result, me, 0, count));
        }
        free(mine);
        free(all);
        free(result);
    }
}

static void among_all(long count) {
    int c = (int)count;
    int *mine = given(me, count), *all = blank(n * count), *result = blank(count);
    RUN(MPI_Allgather, MPI_Iallgather, MPI_Allgather_init, mine, c, MPI_INT, all, c, MPI_INT);
    for (int r = 0; r < n; r++)
        CHECK(is_from(all + r * count, r, 0, count));
    for (long i = 0; i < n * count; i++)
        all[i] = i / (count ? count : 1) == me ? give(me, i - me * count) : -99;
    RUN(MPI_Allgather, MPI_Iallgather, MPI_Allgather_init, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, c, MPI_INT);
    for (int r = 0; r < n; r++)
        CHECK(is_from(all + r * count, r, 0, count));

    /* Rank r sends to t the elements from t * count on. */
    int *to_all = given(me, n * count);
    RUN(MPI_Alltoall, MPI_Ialltoall, MPI_Alltoall_init, to_all, c, MPI_INT, all, c, MPI_INT);
    for (int r = 0; r < n; r++)
        CHECK(is_from(all + r * count, r, me * count, count));
    RUN(MPI_Alltoall, MPI_Ialltoall, MPI_Alltoall_init, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, to_all, c, MPI_INT);
    for (int r = 0; r < n; r++)
        CHECK(is_from(to_all + r * count, r, me * count, count));

    RUN(MPI_Allreduce, MPI_Iallreduce, MPI_Allreduce_init, mine, result, c, MPI_INT, MPI_SUM);
    CHECK(is_sum(result, 0, n, 0, count));
    memcpy(result, mine, (size_t)count * sizeof(int));
    RUN(MPI_Allreduce, MPI_Iallreduce, MPI_Allreduce_init, MPI_IN_PLACE, result, c, MPI_INT, MPI_SUM);
    CHECK(is_sum(result, 0, n, 0, count));

    RUN(MPI_Scan, MPI_Iscan, MPI_Scan_init, mine, result, c, MPI_INT, MPI_SUM);
    CHECK(is_sum(result, 0, me + 1, 0, count));
    memcpy(result, mine, (size_t)count * sizeof(int));
    RUN(MPI_Scan, MPI_Iscan, MPI_Scan_init, MPI_IN_PLACE, result, c, MPI_INT, MPI_SUM);
    CHECK(is_sum(result, 0, me + 1, 0, count));
    RUN(MPI_Exscan, MPI_Iexscan, MPI_Exscan_init, mine, result, c, MPI_INT, MPI_SUM);
    CHECK(me == 0 || is_sum(result, 0, me, 0, count));
    memcpy(result, mine, (size_t)count * sizeof(int));
    RUN(MPI_Exscan, MPI_Iexscan, MPI_Exscan_init, MPI_IN_PLACE, result, c, MPI_INT, MPI_SUM);
    CHECK(me == 0 || is_sum(result, 0, me, 0, count));

    free(to_all);
    to_all = given(me, n * count);
    RUN(MPI_Reduce_scatter_block, MPI_Ireduce_scatter_block, MPI_Reduce_scatter_block_init, to_all, result, c, MPI_INT, MPI_SUM);
    CHECK(is_sum(result, 0, n, me * count, count));
    RUN(MPI_Reduce_scatter_block, MPI_Ireduce_scatter_block, MPI_Reduce_scatter_block_init, MPI_IN_PLACE, to_all, c, MPI_INT,
        MPI_SUM);
    CHECK(is_sum(to_all, 0, n, me * count, count));
    free(mine);
    free(all);
    free(result);
    free(to_all);
}

/* Each rank has its own count, which may be 0; with gaps between the blocks. */
static long count_of(int r, long count) {
    return r % 3 == 2 ? 0 : count + r;
}

static void varying(long count) {
    int counts[n], places[n], total = 3;
    MPI_Datatype types[n];
    for (int r = 0; r < n; r++) {
        counts[r] = (int)count_of(r, count);
        places[r] = total;
        total += counts[r] + 2;
        types[r] = MPI_INT;
    }
    int *mine = given(me, counts[me]), *all = blank(total), *result = blank(counts[me]);
    for (int root = 0; root < n; root = next_root(root)) {
        RUN(MPI_Gatherv, MPI_Igatherv, MPI_Gatherv_init, mine, counts[me], MPI_INT, all, counts, places, MPI_INT, root);
        for (int r = 0; r < n && me == root; r++)
            CHECK(is_from(all + places[r], r, 0, counts[r]) && all[places[r] - 1] == -99);
        RUN(MPI_Scatterv, MPI_Iscatterv, MPI_Scatterv_init, all, counts, places, MPI_INT, result, counts[me], MPI_INT, root);
        CHECK(is_from(result, me, 0, counts[me]));
        memset(result, 0, (size_t)counts[me] * sizeof(int));
        for (int i = 0; i < total; i++)
            all[i] = -99;
    }
    RUN(MPI_Allgatherv, MPI_Iallgatherv, MPI_Allgatherv_init, mine, counts[me], MPI_INT, all, counts, places, MPI_INT);
    for (int r = 0; r < n; r++)
        CHECK(is_from(all + places[r], r, 0, counts[r]) && all[places[r] - 1] == -99);
    RUN(MPI_Allgatherv, MPI_Iallgatherv, MPI_Allgatherv_init, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, counts, places, MPI_INT);
    for (int r = 0; r < n; r++)
        CHECK(is_from(all + places[r], r, 0, counts[r]));

    /* Rank r sends r + t + count elements to t, of its data from t * 10 on. */
    int out[n], out_at[n], in[n], in_at[n], out_bytes[n], in_bytes[n], length = 0;
    for (int r = 0; r < n; r++) {
        out[r] = in[r] = (int)count + me + r;
        out_at[r] = r * 10;
        in_at[r] = length;
        out_bytes[r] = out_at[r] * (int)sizeof(int);
        in_bytes[r] = in_at[r] * (int)sizeof(int);
        length += in[r] + 1;
    }
    int *from = given(me, n * 10 + count + me + n), *to = blank(length);
    RUN(MPI_Alltoallv, MPI_Ialltoallv, MPI_Alltoallv_init, from, out, out_at, MPI_INT, to, in, in_at, MPI_INT);
    for (int r = 0; r < n; r++)
        CHECK(is_from(to + in_at[r], r, me * 10, in[r]) && to[in_at[r] + in[r]] == -99);
    free(to);
    to = blank(length);
    RUN(MPI_Alltoallw, MPI_Ialltoallw, MPI_Alltoallw_init, from, out, out_bytes, types, to, in, in_bytes, types);
    for (int r = 0; r < n; r++)
        CHECK(is_from(to + in_at[r], r, me * 10, in[r]));
    /* In place: the received data go back to where they came from. */
    RUN(MPI_Alltoallv, MPI_Ialltoallv, MPI_Alltoallv_init, MPI_IN_PLACE, NULL, NULL, MPI_DATATYPE_NULL, to, in, in_at, MPI_INT);
    for (int r = 0; r < n; r++)
        CHECK(is_from(to + in_at[r], me, r * 10, in[r]));

    int whole = 0, before = 0;
    for (int r = 0; r < n; r++) {
        before += r < me ? counts[r] : 0;
        whole += counts[r];
    }
    int *sums = given(me, whole);
    RUN(MPI_Reduce_scatter, MPI_Ireduce_scatter, MPI_Reduce_scatter_init, sums, result, counts, MPI_INT, MPI_SUM);
    CHECK(is_sum(result, 0, n, before, counts[me]));
    free(sums);
    free(from);
    free(to);
    free(mine);
    free(all);
    free(result);
}

/* The first and the last rank exchange a block. Where nothing is sent or received, any displacement will do. */
static void far_places(void) {
    enum { COUNT = 4000 };
    MPI_Count counts[n];
    MPI_Aint places[n];
    int other = me == 0 ? n - 1 : me == n - 1 ? 0 : -1;
    for (int r = 0; r < n; r++) {
        counts[r] = r == other ? COUNT : 0;
        places[r] = r == other ? 0 : (MPI_Aint)1 << 61;
    }
    int *mine = given(me, COUNT), *got = blank(COUNT);
    RUN(MPI_Alltoallv_c, MPI_Ialltoallv_c, MPI_Alltoallv_init_c, mine, counts, places, MPI_INT, got, counts, places, MPI_INT);
    CHECK(other < 0 ? is_blank(got, COUNT) : is_from(got, other, 0, COUNT));
    free(mine);
    free(got);
}

/* In a reduce-scatter, ranks without a part may pass MPI_IN_PLACE or not, whatever the others do. */
static void in_place_on_some(long count) {
    int counts[n];
    for (int turn = 0; turn < 4; turn++) {
        long whole = 0, before = 0;
        for (int r = 0; r < n; r++) {
            counts[r] = r % 2 == turn % 2 ? 0 : (int)count;
            whole += counts[r];
            before += r < me ? counts[r] : 0;
        }
        int *data = given(me, whole), *apart = blank(counts[me] + 1), in_place = (counts[me] == 0) == turn / 2;
        if (in_place)
            RUN(MPI_Reduce_scatter, MPI_Ireduce_scatter, MPI_Reduce_scatter_init, MPI_IN_PLACE, data, counts, MPI_INT, MPI_SUM);
        else
            RUN(MPI_Reduce_scatter, MPI_Ireduce_scatter, MPI_Reduce_scatter_init, data, apart, counts, MPI_INT, MPI_SUM);
        CHECK(is_sum(in_place ? data : apart, 0, n, before, counts[me]) && is_blank(apart + counts[me], 1));
        free(data);
        free(apart);
    }
}

/* Every second int of the memory, on both sides; and a type on one side only. */
static void with_gaps(long count) {
    MPI_Datatype every_second;
    int c = (int)count;
    MPI_Type_create_resized(MPI_INT, 0, 2 * sizeof(int), &every_second);
    MPI_Type_commit(&every_second);
    int *wide = blank(2 * n * count), *mine = blank(2 * count), *dense = given(me, count);
    for (long i = 0; i < count; i++)
        mine[2 * i] = give(me, i);
    RUN(MPI_Allgather, MPI_Iallgather, MPI_Allgather_init, mine, c, every_second, wide, c, every_second);
    for (int r = 0; r < n; r++)
        for (long i = 0; i < count; i++)
            CHECK(wide[2 * (r * count + i)] == give(r, i) && wide[2 * (r * count + i) + 1] == -99);
    memset(wide, 0, (size_t)(2 * n * count) * sizeof(int));
    RUN(MPI_Gather, MPI_Igather, MPI_Gather_init, dense, c, MPI_INT, wide, c, every_second, n - 1);
    for (int r = 0; r < n && me == n - 1; r++)
        for (long i = 0; i < count; i++)
            CHECK(wide[2 * (r * count + i)] == give(r, i));
    int *spread = blank(2 * count);
    if (me == 0)
        memcpy(spread, mine, (size_t)(2 * count) * sizeof(int));
    RUN(MPI_Bcast, MPI_Ibcast, MPI_Bcast_init, spread, c, every_second, 0);
    for (long i = 0; i < count; i++)
        CHECK(spread[2 * i] == give(0, i) && spread[2 * i + 1] == -99);
    free(spread);
    free(wide);
    free(mine);
    free(dense);
    MPI_Type_free(&every_second);
}

/* --- operations --- */

/* 2x2 matrices, whose product depends on the order. */
typedef struct {
    unsigned m[4];
} Matrix;

static Matrix times(Matrix a, Matrix b) {
    return (Matrix){{a.m[0] * b.m[0] + a.m[1] * b.m[2], a.m[0] * b.m[1] + a.m[1] * b.m[3], a.m[2] * b.m[0] + a.m[3] * b.m[2],
                     a.m[2] * b.m[1] + a.m[3] * b.m[3]}};
}

static void multiply(void *in, void *inout, int *length, MPI_Datatype *type) {
    Matrix *a = in, *b = inout;
    int bytes;
    /* MPI may be called from here. */
    MPI_Type_size(*type, &bytes);
    CHECK(bytes == sizeof(Matrix));
    for (int i = 0; i < *length; i++)
        b[i] = times(a[i], b[i]);
}

static void multiply_many(void *in, void *inout, MPI_Count *length, MPI_Datatype *type) {
    int length_as_int = (int)*length;
    multiply(in, inout, &length_as_int, type);
}

static Matrix matrix(int r, long i) {
    return (Matrix){{(unsigned)r + 1, (unsigned)i, 3, (unsigned)r * 2 + 1}};
}

static Matrix product(int past, long i) {
    Matrix all = matrix(0, i);
    for (int r = 1; r < past; r++)
        all = times(all, matrix(r, i));
    return all;
}

static void of_the_user(long count) {
    int c = (int)count, commutes = 1;
    MPI_Datatype type;
    MPI_Op op, wide;
    MPI_Type_contiguous(4, MPI_UNSIGNED, &type);
    MPI_Type_commit(&type);
    MPI_Op_create(multiply, 0, &op);
    MPI_Op_create_c(multiply_many, 0, &wide);
    MPI_Op_commutative(op, &commutes);
    CHECK(!commutes);
    Matrix *mine = room((size_t)count * sizeof *mine), *result = room((size_t)count * sizeof *result);
    for (long i = 0; i < count; i++)
        mine[i] = matrix(me, i);
    RUN(MPI_Allreduce, MPI_Iallreduce, MPI_Allreduce_init, mine, result, c, type, op);
    Matrix all = product(n, count - 1), some = product(me + 1, count - 1);
    CHECK(memcmp(&result[count - 1], &all, sizeof all) == 0);
    RUN(MPI_Reduce, MPI_Ireduce, MPI_Reduce_init, mine, result, c, type, wide, n - 1);
    CHECK(me != n - 1 || memcmp(&result[count - 1], &all, sizeof all) == 0);
    RUN(MPI_Scan, MPI_Iscan, MPI_Scan_init, mine, result, c, type, op);
    CHECK(memcmp(&result[count - 1], &some, sizeof some) == 0);
    MPI_Op_free(&op);
    MPI_Op_free(&wide);
    CHECK(op == MPI_OP_NULL);
    MPI_Type_free(&type);
    free(mine);
    free(result);
}

#define OP(type, mpi, op, start, step) \
    do { \
        /* Ones and few twos: exact in every type, whatever the order. */ \
        type mine_ = (type)(me % 8 == 1 ? 2 : 1), got_ = 0, all_ = (type)(start); \
        for (int r = 0; r < n; r++) { \
            type x = (type)(r % 8 == 1 ? 2 : 1); \
            all_ = (step); \
        } \
        MPI_Allreduce(&mine_, &got_, 1, mpi, op, comm); \
        CHECK(got_ == all_); \
    } while (0)

#define ARITHMETIC(type, mpi) \
    do { \
        OP(type, mpi, MPI_SUM, 0, (type)(all_ + x)); \
        OP(type, mpi, MPI_PROD, 1, (type)(all_ * x)); \
        OP(type, mpi, MPI_MAX, 0, x > all_ ? x : all_); \
        OP(type, mpi, MPI_MIN, 100, x < all_ ? x : all_); \
    } while (0)

#define BITS(type, mpi) \
    do { \
        ARITHMETIC(type, mpi); \
        OP(type, mpi, MPI_BAND, -1, (type)(all_ & x)); \
        OP(type, mpi, MPI_BOR, 0, (type)(all_ | x)); \
        OP(type, mpi, MPI_BXOR, 0, (type)(all_ ^ x)); \
    } while (0)

/* Types of more than one language have no logical operations (MPI 5.0, 6.9.2). */
#define INTEGER(type, mpi) \
    do { \
        BITS(type, mpi); \
        OP(type, mpi, MPI_LAND, 1, all_ && x); \
        OP(type, mpi, MPI_LOR, 0, all_ || x); \
        OP(type, mpi, MPI_LXOR, 0, !all_ != !x); \
    } while (0)

static void predefined(void) {
    INTEGER(signed char, MPI_SIGNED_CHAR);
    INTEGER(unsigned char, MPI_UNSIGNED_CHAR);
    INTEGER(short, MPI_SHORT);
    INTEGER(unsigned short, MPI_UNSIGNED_SHORT);
    INTEGER(int, MPI_INT);
    INTEGER(unsigned, MPI_UNSIGNED);
    INTEGER(long, MPI_LONG);
    INTEGER(unsigned long long, MPI_UNSIGNED_LONG_LONG);
    INTEGER(signed char, MPI_INT8_T);
    INTEGER(unsigned long, MPI_UINT64_T);
    BITS(MPI_Aint, MPI_AINT);
    BITS(MPI_Count, MPI_COUNT);
    ARITHMETIC(float, MPI_FLOAT);
    ARITHMETIC(double, MPI_DOUBLE);
    ARITHMETIC(long double, MPI_LONG_DOUBLE);
    OP(double _Complex, MPI_C_DOUBLE_COMPLEX, MPI_SUM, 0, all_ + x);
    OP(float _Complex, MPI_C_FLOAT_COMPLEX, MPI_PROD, 1, all_ *x);
    OP(_Bool, MPI_C_BOOL, MPI_LAND, 1, all_ && x);
    OP(unsigned char, MPI_BYTE, MPI_BXOR, 0, (unsigned char)(all_ ^ x));
    struct {
        double value;
        int at;
    } pair = {(double)((me * 5) % 7), me}, got;
    double most = -1, least = 100;
    int most_at = -1, least_at = -1;
    for (int r = 0; r < n; r++) {
        double x = (double)((r * 5) % 7);
        if (x > most)
            most = x, most_at = r;
        if (x < least)
            least = x, least_at = r;
    }
    MPI_Allreduce(&pair, &got, 1, MPI_DOUBLE_INT, MPI_MAXLOC, comm);
    CHECK(got.value == most && got.at == most_at);
    MPI_Allreduce(&pair, &got, 1, MPI_DOUBLE_INT, MPI_MINLOC, comm);
    CHECK(got.value == least && got.at == least_at);
    int a[3] = {1, 2, 3}, b[3] = {10, 20, 30};
    MPI_Reduce_local(a, b, 3, MPI_INT, MPI_SUM);
    CHECK(b[0] == 11 && b[2] == 33);
    int place;
    MPI_Comm_rank(comm, &place);
    char high = 'z', low = (char)('a' + place % 2);
    MPI_Allreduce(MPI_IN_PLACE, &high, 1, MPI_CHAR, MPI_MIN, comm);
    MPI_Allreduce(MPI_IN_PLACE, &low, 1, MPI_CHAR, MPI_MIN, comm);
    CHECK(high == 'z' && low == 'a');
}

/* --- several at once --- */

static void overlapping(void) {
    enum { MANY = 20 };
    MPI_Request requests[MANY + 1];
    int in[MANY], out[MANY], token = me, got = -1;
    MPI_Irecv(&got, 1, MPI_INT, (me + n - 1) % n, MPI_ANY_TAG, comm, &requests[MANY]);
    for (int i = 0; i < MANY; i++) {
        in[i] = me + i;
        out[i] = -1;
        if (i % 3 == 0)
            MPI_Iallreduce(&in[i], &out[i], 1, MPI_INT, MPI_SUM, comm, &requests[i]);
        else if (i % 3 == 1)
            MPI_Ibarrier(comm, &requests[i]);
        else
            MPI_Ibcast(&in[i], 1, MPI_INT, i % n, comm, &requests[i]);
    }
    /* A blocking collective in between, and an unrelated message. */
    MPI_Barrier(comm);
    MPI_Send(&token, 1, MPI_INT, (me + 1) % n, 1, comm);
    MPI_Waitall(MANY + 1, requests, MPI_STATUSES_IGNORE);
    CHECK(got == (me + n - 1) % n);
    for (int i = 0; i < MANY; i++)
        CHECK(i % 3 == 0 ? out[i] == n * (n - 1) / 2 + n * i : i % 3 == 1 || in[i] == i % n + i);
}

static void restarted(void) {
    MPI_Request request;
    int mine, sum;
    MPI_Allreduce_init(&mine, &sum, 1, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &request);
    for (int round = 0; round < 5; round++) {
        mine = me + round;
        MPI_Start(&request);
        for (int over = 0; !over;)
            MPI_Test(&request, &over, MPI_STATUS_IGNORE);
        CHECK(sum == n * (n - 1) / 2 + n * round);
    }
    MPI_Request_free(&request);
}

/* Counts beyond int are the same functions: here with small ones. */
static void large_counts(void) {
    MPI_Count counts[n];
    MPI_Aint places[n];
    for (int r = 0; r < n; r++) {
        counts[r] = r + 1;
        places[r] = r * (r + 1) / 2;
    }
    int *mine = given(me, me + 1), *all = blank((long)n * (n + 1) / 2), sum = 0;
    MPI_Allgatherv_c(mine, me + 1, MPI_INT, all, counts, places, MPI_INT, comm);
    for (int r = 0; r < n; r++)
        CHECK(is_from(all + places[r], r, 0, r + 1));
    MPI_Allreduce_c(&me, &sum, 1, MPI_INT, MPI_SUM, comm);
    CHECK(sum == n * (n - 1) / 2);
    MPI_Bcast_c(&sum, 1, MPI_INT, 0, comm);
    free(mine);
    free(all);
}

/* Only one rank has a long block, so only it may need another way than the others; later operations must not be mistaken for each other. */
static void one_long_block(void) {
    int counts[n], places[n], total = 0;
    for (int r = 0; r < n; r++) {
        counts[r] = r == n - 1 ? 40000 : 2;
        places[r] = total;
        total += counts[r];
    }
    int *mine = given(me, counts[me]), *all = blank(total), *result = blank(counts[me]);
    for (int round = 0; round < 3; round++) {
        RUN(MPI_Gatherv, MPI_Igatherv, MPI_Gatherv_init, mine, counts[me], MPI_INT, all, counts, places, MPI_INT, 0);
        for (int r = 0; r < n && me == 0; r++)
            CHECK(is_from(all + places[r], r, 0, counts[r]));
        RUN(MPI_Scatterv, MPI_Iscatterv, MPI_Scatterv_init, all, counts, places, MPI_INT, result, counts[me], MPI_INT, 0);
        CHECK(is_from(result, me, 0, counts[me]));
        of_the_user(5);
    }
    free(mine);
    free(all);
    free(result);
}

static void everything(MPI_Comm of) {
    static const long lengths[] = {0, 1, 5, 300, 3000, 40000};
    comm = of;
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &n);
    for (form = BLOCKING; form < FORMS; form++) {
        barrier();
        for (int l = 0; l < (few ? 4 : 6); l++) {
            rooted(lengths[l]);
            among_all(lengths[l]);
            if (l < 5) {
                varying(lengths[l]);
                in_place_on_some(lengths[l]);
                with_gaps(lengths[l]);
            }
            if (lengths[l])
                of_the_user(lengths[l]);
        }
        one_long_block();
        far_places();
        if (!few && n == 2)
            in_place_on_some(5 << 20);
    }
    predefined();
    overlapping();
    restarted();
    large_counts();
}

int main(int argc, char **argv) {
    begin(&argc, &argv);
    few = argc > 1 && !strcmp(argv[1], "few");
    everything(MPI_COMM_WORLD);
    MPI_Comm half;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
    few = 1;
    everything(half);
    MPI_Comm_free(&half);
    return finish("collectives");
}
