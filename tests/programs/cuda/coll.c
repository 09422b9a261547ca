/* Collective operations on memory that the CPU cannot touch, compared with results computed on the host: blocking, nonblocking and
 * persistent; from device memory, into device memory, or both; in place; with operations of MPI and of the program.
 *
 *     coll [PAIRS]
 *
 * PAIRS are the kinds of the send and of the receive buffer, `DD,DH,HD` by default. Rank 0 prints `ok coll`. */
#include "device.h"

static MPI_Comm comm;
static int me, n; /* in comm */

enum form { BLOCKING, NONBLOCKING, PERSISTENT, FORMS };
static enum form form;
static const char *const form_names[] = {"blocking", "nonblocking", "persistent"};

#if MPI_VERSION >= 4
#define PERSISTENT_CALL(init, ...) MPI(init(__VA_ARGS__, comm, MPI_INFO_NULL, &request_))
#else
#define PERSISTENT_CALL(init, ...) fail("this MPI has no persistent collective operations")
#endif

/* Runs one collective operation in the form that is being tested; a persistent one twice. */
#define RUN(now, later, init, ...) \
    do { \
        MPI_Request request_ = MPI_REQUEST_NULL; \
        say_case(#now); \
        if (form == BLOCKING) { \
            MPI(now(__VA_ARGS__, comm)); \
        } else if (form == NONBLOCKING) { \
            MPI(later(__VA_ARGS__, comm, &request_)); \
            MPI(MPI_Wait(&request_, MPI_STATUS_IGNORE)); \
        } else { \
            PERSISTENT_CALL(init, __VA_ARGS__); \
            for (int start_ = 0; start_ < 2; start_++) { \
                if (start_) restore(); \
                MPI(MPI_Start(&request_)); \
                MPI(MPI_Wait(&request_, MPI_STATUS_IGNORE)); \
            } \
            MPI(MPI_Request_free(&request_)); \
        } \
    } while (0)

/* ---- Buffers ---- */

enum { GUARD = 64 };

/* What is sent, what the receive buffer contains before and must contain after. `got` is what it contains. */
static char *given, *initial, *expected, *got, *poison;
static char *area[128][2]; /* by kind; for sending and for receiving */
static char out_kind, in_kind;
static char *out, *in;
static size_t out_bytes, in_bytes, area_bytes, number;

/* The elements of the images above. */
static struct element {
    const char *name;
    MPI_Datatype type;
    size_t bytes;
} element;

static const char *note = "";

static void say_case(const char *function) {
    say("%s, %s, %c to %c, %zu of %s%s", function, form_names[form], out_kind, in_kind, number, element.name, note);
}

static void set(char *image, long i, long v) {
    if (element.type == MPI_INT)
        memcpy(image + (size_t)i * sizeof(int), &(int){(int)v}, sizeof(int));
    else
        memcpy(image + (size_t)i * sizeof(double), &(double){(double)v}, sizeof(double));
}

/* Starts a case with buffers of so many elements. Nothing of the receive buffer is expected to change unless the case says so. */
static void begin_case(long out_count, long in_count) {
    out_bytes = (size_t)out_count * element.bytes, in_bytes = (size_t)in_count * element.bytes;
    if (out_bytes + 2 * GUARD > area_bytes || in_bytes + 2 * GUARD > area_bytes) fail("the areas are too small");
    memset(given, POISON, out_bytes);
    memset(initial, POISON, in_bytes);
    memset(expected, POISON, in_bytes);
}

static void give(long i, long v) {
    set(given, i, v);
}

static void expect(long i, long v) {
    set(expected, i, v);
}

/* What the receive buffer contains before, and after unless something else is expected. */
static void start_with(long i, long v) {
    set(initial, i, v);
    set(expected, i, v);
}

static void restore(void) {
    put(in_kind, in - GUARD, poison, GUARD);
    put(in_kind, in, initial, in_bytes);
    put(in_kind, in + in_bytes, poison, GUARD);
}

/* Puts the images where the operation is to find them. */
static void place(void) {
    out = area[(int)out_kind][0] + GUARD + 8 * (number % 3);
    in = area[(int)in_kind][1] + GUARD + 8 * (number % 2);
    put(out_kind, out, given, out_bytes);
    restore();
}

static void fetch(void) {
    get(in_kind, got, in - GUARD, GUARD);
    compare(got, poison, GUARD, "bytes before the receive buffer");
    get(in_kind, got, in + in_bytes, GUARD);
    compare(got, poison, GUARD, "bytes after the receive buffer");
    get(in_kind, got, in, in_bytes);
}

static void check(void) {
    fetch();
    compare(got, expected, in_bytes, "receive buffer");
    get(out_kind, got, out, out_bytes);
    compare(got, given, out_bytes, "send buffer, which must not change");
}

/* ---- Values ---- */

/* Element `i` of the data of rank `r`; small, so that sums are exact. */
static long value(int r, long i) {
    return (r * 7 + i * 3) % 11 - 5;
}

static long reduced(MPI_Op op, int from, int past, long i) {
    long result = value(from, i);
    for (int r = from + 1; r < past; r++)
        result = op == MPI_SUM ? result + value(r, i) : value(r, i) > result ? value(r, i) : result;
    return result;
}

static int next_root(int root) {
    return n <= 3 ? root + 1 : root + (n - 1) / 2;
}

/* ---- One block of each rank ---- */

static void rooted(int root) {
    int c = (int)number;
    long count = (long)number;

    /* A broadcast has one buffer: it is of the send kind at the root, of the receive kind elsewhere. */
    begin_case(me == root ? count : 0, me == root ? 0 : count);
    for (long i = 0; i < count; i++) {
        if (me == root) give(i, value(root, i));
        if (me != root) expect(i, value(root, i));
    }
    place();
    RUN(MPI_Bcast, MPI_Ibcast, MPI_Bcast_init, me == root ? out : in, c, element.type, root);
    check();

    begin_case(count, me == root ? n * count : 0);
    for (long i = 0; i < count; i++)
        give(i, value(me, i));
    for (int r = 0; r < n && me == root; r++)
        for (long i = 0; i < count; i++)
            expect(r * count + i, value(r, i));
    place();
    RUN(MPI_Gather, MPI_Igather, MPI_Gather_init, out, c, element.type, me == root ? in : NULL, c, element.type, root);
    check();

    note = ", in place";
    if (me == root)
        for (long i = 0; i < count; i++)
            start_with(me * count + i, value(me, i));
    for (int r = 0; r < n && me == root; r++)
        for (long i = 0; i < count; i++)
            expect(r * count + i, value(r, i));
    place();
    RUN(MPI_Gather, MPI_Igather, MPI_Gather_init, me == root ? MPI_IN_PLACE : out, c, element.type, me == root ? in : NULL, c,
        element.type, root);
    check();
    note = "";

    begin_case(me == root ? n * count : 0, count);
    for (int r = 0; r < n && me == root; r++)
        for (long i = 0; i < count; i++)
            give(r * count + i, value(r, i));
    for (long i = 0; i < count; i++)
        expect(i, value(me, i));
    place();
    RUN(MPI_Scatter, MPI_Iscatter, MPI_Scatter_init, me == root ? out : NULL, c, element.type, in, c, element.type, root);
    check();

    note = ", in place";
    if (me == root) memset(expected, POISON, in_bytes);
    place();
    RUN(MPI_Scatter, MPI_Iscatter, MPI_Scatter_init, me == root ? out : NULL, c, element.type, me == root ? MPI_IN_PLACE : in, c,
        element.type, root);
    check();
    note = "";
}

static void among_all(void) {
    int c = (int)number;
    long count = (long)number;

    begin_case(count, n * count);
    for (long i = 0; i < count; i++)
        give(i, value(me, i));
    for (int r = 0; r < n; r++)
        for (long i = 0; i < count; i++)
            expect(r * count + i, value(r, i));
    place();
    RUN(MPI_Allgather, MPI_Iallgather, MPI_Allgather_init, out, c, element.type, in, c, element.type);
    check();

    note = ", in place";
    for (long i = 0; i < count; i++)
        set(initial, me * count + i, value(me, i));
    place();
    RUN(MPI_Allgather, MPI_Iallgather, MPI_Allgather_init, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, in, c, element.type);
    check();
    note = "";

    /* Rank r sends to t the elements from t * count on. */
    begin_case(n * count, n * count);
    for (long i = 0; i < n * count; i++)
        give(i, value(me, i));
    for (int r = 0; r < n; r++)
        for (long i = 0; i < count; i++)
            expect(r * count + i, value(r, me * count + i));
    place();
    RUN(MPI_Alltoall, MPI_Ialltoall, MPI_Alltoall_init, out, c, element.type, in, c, element.type);
    check();

    note = ", in place";
    for (long i = 0; i < n * count; i++)
        set(initial, i, value(me, i));
    place();
    RUN(MPI_Alltoall, MPI_Ialltoall, MPI_Alltoall_init, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, in, c, element.type);
    check();
    note = "";
}

/* ---- Reductions ---- */

static void give_mine(long out_count, long in_count) {
    begin_case(out_count, in_count);
    for (long i = 0; i < out_count; i++)
        give(i, value(me, i));
}

static void start_with_mine(long count) {
    begin_case(0, count);
    for (long i = 0; i < count; i++)
        start_with(i, value(me, i));
    note = ", in place";
}

static void expect_reduced(MPI_Op op, int from, int past, long first, long count) {
    for (long i = 0; i < count; i++)
        expect(i, reduced(op, from, past, first + i));
}

static void reductions(MPI_Op op) {
    int c = (int)number, counts[n];
    long count = (long)number, total = 0, before = 0;
    for (int root = 0; root < n; root = next_root(root)) {
        give_mine(count, me == root ? count : 0);
        if (me == root) expect_reduced(op, 0, n, 0, count);
        place();
        RUN(MPI_Reduce, MPI_Ireduce, MPI_Reduce_init, out, me == root ? in : NULL, c, element.type, op, root);
        check();
        if (me == root) {
            start_with_mine(count);
            expect_reduced(op, 0, n, 0, count);
        }
        note = ", in place";
        place();
        RUN(MPI_Reduce, MPI_Ireduce, MPI_Reduce_init, me == root ? MPI_IN_PLACE : out, me == root ? in : NULL, c, element.type, op, root);
        check();
        note = "";
    }

    for (int in_place = 0; in_place < 2; in_place++) {
        const void *from;
#define START(result_count) \
    do { \
        if (in_place) \
            start_with_mine(count); \
        else \
            give_mine(count, result_count); \
    } while (0)
#define PLACE (place(), from = in_place ? MPI_IN_PLACE : (void *)out)
        START(count);
        expect_reduced(op, 0, n, 0, count);
        PLACE;
        RUN(MPI_Allreduce, MPI_Iallreduce, MPI_Allreduce_init, from, in, c, element.type, op);
        check();

        START(count);
        expect_reduced(op, 0, me + 1, 0, count);
        PLACE;
        RUN(MPI_Scan, MPI_Iscan, MPI_Scan_init, from, in, c, element.type, op);
        check();

        /* The result of rank 0 is undefined. */
        START(count);
        if (me) expect_reduced(op, 0, me, 0, count);
        PLACE;
        RUN(MPI_Exscan, MPI_Iexscan, MPI_Exscan_init, from, in, c, element.type, op);
        if (me) check();
#undef START
#undef PLACE
        note = "";
    }

    give_mine(n * count, count);
    expect_reduced(op, 0, n, me * count, count);
    place();
    RUN(MPI_Reduce_scatter_block, MPI_Ireduce_scatter_block, MPI_Reduce_scatter_block_init, out, in, c, element.type, op);
    check();

    for (int r = 0; r < n; r++) {
        counts[r] = r % 3 == 2 ? 0 : c + r;
        before += r < me ? counts[r] : 0;
        total += counts[r];
    }
    give_mine(total, counts[me]);
    expect_reduced(op, 0, n, before, counts[me]);
    place();
    RUN(MPI_Reduce_scatter, MPI_Ireduce_scatter, MPI_Reduce_scatter_init, out, in, counts, element.type, op);
    check();
}

/* ---- Another count for each rank ---- */

static void varying(void) {
    int c = (int)number, counts[n], at[n];
    long total = 3;
    memset(counts, 0, sizeof counts);
    for (int r = 0; r < n; r++) {
        counts[r] = r % 3 == 2 ? 0 : c + r;
        at[r] = (int)total;
        total += counts[r] + 2;
    }
    for (int root = 0; root < n; root = next_root(root)) {
        give_mine(counts[me], me == root ? total : 0);
        for (int r = 0; r < n && me == root; r++)
            for (long i = 0; i < counts[r]; i++)
                expect(at[r] + i, value(r, i));
        place();
        RUN(MPI_Gatherv, MPI_Igatherv, MPI_Gatherv_init, out, counts[me], element.type, in, counts, at, element.type, root);
        check();

        begin_case(me == root ? total : 0, counts[me]);
        for (int r = 0; r < n && me == root; r++)
            for (long i = 0; i < counts[r]; i++)
                give(at[r] + i, value(r, i));
        for (long i = 0; i < counts[me]; i++)
            expect(i, value(me, i));
        place();
        RUN(MPI_Scatterv, MPI_Iscatterv, MPI_Scatterv_init, out, counts, at, element.type, in, counts[me], element.type, root);
        check();
    }
    give_mine(counts[me], total);
    for (int r = 0; r < n; r++)
        for (long i = 0; i < counts[r]; i++)
            expect(at[r] + i, value(r, i));
    place();
    RUN(MPI_Allgatherv, MPI_Iallgatherv, MPI_Allgatherv_init, out, counts[me], element.type, in, counts, at, element.type);
    check();
    for (long i = 0; i < counts[me]; i++)
        set(initial, at[me] + i, value(me, i));
    note = ", in place";
    place();
    RUN(MPI_Allgatherv, MPI_Iallgatherv, MPI_Allgatherv_init, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, in, counts, at, element.type);
    check();
    note = "";

    /* Rank r sends r + t + count elements to t, of its data from t * 10 on. */
    int sent[n], sent_at[n], taken[n], taken_at[n], sent_bytes[n], taken_bytes[n], length = 0;
    MPI_Datatype types[n];
    for (int r = 0; r < n; r++) {
        types[r] = element.type;
        sent[r] = taken[r] = c + me + r;
        sent_at[r] = r * 10, sent_bytes[r] = sent_at[r] * (int)element.bytes;
        taken_at[r] = length, taken_bytes[r] = taken_at[r] * (int)element.bytes;
        length += taken[r] + 1;
    }
    give_mine(n * 10 + c + me + n, length);
    for (int r = 0; r < n; r++)
        for (long i = 0; i < taken[r]; i++)
            expect(taken_at[r] + i, value(r, me * 10 + i));
    place();
    RUN(MPI_Alltoallv, MPI_Ialltoallv, MPI_Alltoallv_init, out, sent, sent_at, element.type, in, taken, taken_at, element.type);
    check();
    place();
    RUN(MPI_Alltoallw, MPI_Ialltoallw, MPI_Alltoallw_init, out, sent, sent_bytes, types, in, taken, taken_bytes, types);
    check();

    note = ", in place";
    for (int r = 0; r < n; r++)
        for (long i = 0; i < taken[r]; i++)
            set(initial, taken_at[r] + i, value(me, r * 10 + i));
    place();
    RUN(MPI_Alltoallv, MPI_Ialltoallv, MPI_Alltoallv_init, MPI_IN_PLACE, NULL, NULL, MPI_DATATYPE_NULL, in, taken, taken_at, element.type);
    check();
    note = "";
}

/* ---- Datatypes with gaps: every second element ---- */

static void with_gaps(void) {
    MPI_Datatype second;
    int c = (int)number;
    long count = (long)number;
    MPI(MPI_Type_create_resized(element.type, 0, (MPI_Aint)(2 * element.bytes), &second));
    MPI(MPI_Type_commit(&second));
    note = " with gaps";

    begin_case(me == 0 ? 2 * count : 0, me == 0 ? 0 : 2 * count);
    for (long i = 0; i < count; i++) {
        if (me == 0) give(2 * i, value(0, i));
        if (me != 0) expect(2 * i, value(0, i));
    }
    place();
    RUN(MPI_Bcast, MPI_Ibcast, MPI_Bcast_init, me == 0 ? out : in, c, second, 0);
    check();

    /* Dense on the senders' side. */
    int root = n - 1;
    give_mine(count, me == root ? 2 * n * count : 0);
    for (int r = 0; r < n && me == root; r++)
        for (long i = 0; i < count; i++)
            expect(2 * (r * count + i), value(r, i));
    place();
    RUN(MPI_Gather, MPI_Igather, MPI_Gather_init, out, c, element.type, in, c, second, root);
    check();

    begin_case(2 * n * count, 2 * n * count);
    for (long i = 0; i < n * count; i++)
        give(2 * i, value(me, i));
    for (int r = 0; r < n; r++)
        for (long i = 0; i < count; i++)
            expect(2 * (r * count + i), value(r, me * count + i));
    place();
    RUN(MPI_Alltoall, MPI_Ialltoall, MPI_Alltoall_init, out, c, second, in, c, second);
    check();
    note = "";
    MPI(MPI_Type_free(&second));
}

/* ---- A program's own operation, and pairs ---- */

/* 2x2 matrices: their product depends on the order. */
struct matrix {
    unsigned m[4];
};

static struct matrix times(struct matrix a, struct matrix b) {
    return (struct matrix){{a.m[0] * b.m[0] + a.m[1] * b.m[2], a.m[0] * b.m[1] + a.m[1] * b.m[3],
                            a.m[2] * b.m[0] + a.m[3] * b.m[2], a.m[2] * b.m[1] + a.m[3] * b.m[3]}};
}

static void multiply(void *first, void *second, int *length, MPI_Datatype *type) {
    struct matrix *a = first, *b = second;
    (void)type;
    for (int i = 0; i < *length; i++)
        b[i] = times(a[i], b[i]);
}

static struct matrix matrix(int r, long i) {
    return (struct matrix){{(unsigned)r + 1, (unsigned)i, 3, (unsigned)r * 2 + 1}};
}

static void expect_product(int past, long first, long count) {
    for (long i = 0; i < count; i++) {
        struct matrix product = matrix(0, first + i);
        for (int r = 1; r < past; r++)
            product = times(product, matrix(r, first + i));
        memcpy(expected + (size_t)i * sizeof product, &product, sizeof product);
    }
}

static void give_matrices(long out_count, long in_count) {
    begin_case(out_count, in_count);
    for (long i = 0; i < out_count; i++)
        ((struct matrix *)given)[i] = matrix(me, i);
}

static void products(void) {
    struct element was = element;
    MPI_Op op;
    int c = (int)number, root = n / 2;
    long count = (long)number;
    element.name = "matrix", element.bytes = sizeof(struct matrix);
    MPI(MPI_Type_contiguous(4, MPI_UNSIGNED, &element.type));
    MPI(MPI_Type_commit(&element.type));
    MPI(MPI_Op_create(multiply, 0, &op));

    give_matrices(count, me == root ? count : 0);
    if (me == root) expect_product(n, 0, count);
    place();
    RUN(MPI_Reduce, MPI_Ireduce, MPI_Reduce_init, out, in, c, element.type, op, root);
    check();

    give_matrices(count, count);
    expect_product(n, 0, count);
    place();
    RUN(MPI_Allreduce, MPI_Iallreduce, MPI_Allreduce_init, out, in, c, element.type, op);
    check();

    expect_product(me + 1, 0, count);
    place();
    RUN(MPI_Scan, MPI_Iscan, MPI_Scan_init, out, in, c, element.type, op);
    check();

    if (me) expect_product(me, 0, count);
    place();
    RUN(MPI_Exscan, MPI_Iexscan, MPI_Exscan_init, out, in, c, element.type, op);
    if (me) check();

    give_matrices(n * count, count);
    expect_product(n, me * count, count);
    place();
    RUN(MPI_Reduce_scatter_block, MPI_Ireduce_scatter_block, MPI_Reduce_scatter_block_init, out, in, c, element.type, op);
    check();

    MPI(MPI_Op_free(&op));
    MPI(MPI_Type_free(&element.type));
    element = was;
}

/* The bytes between the parts of a pair may change. */
static void pairs(void) {
    struct pair {
        double value;
        int at;
    };
    struct element was = element;
    long count = (long)number;
    element = (struct element){"pair", MPI_DOUBLE_INT, sizeof(struct pair)};
    begin_case(count, count);
    for (long i = 0; i < count; i++)
        memcpy(given + (size_t)i * sizeof(struct pair), &(struct pair){(double)value(me, i), me}, sizeof(struct pair));
    place();
    RUN(MPI_Allreduce, MPI_Iallreduce, MPI_Allreduce_init, out, in, (int)number, element.type, MPI_MINLOC);
    fetch();
    for (long i = 0; i < count; i++) {
        struct pair is, must = {(double)value(0, i), 0};
        memcpy(&is, got + (size_t)i * sizeof is, sizeof is);
        for (int r = 1; r < n; r++)
            if ((double)value(r, i) < must.value) must = (struct pair){(double)value(r, i), r};
        if (is.value != must.value || is.at != must.at)
            fail("pair %ld is (%g, %d) instead of (%g, %d)", i, is.value, is.at, must.value, must.at);
    }
    element = was;
}

/* ---- Neighbours in a ring ---- */

static void neighbors(void) {
    MPI_Comm whole = comm;
    int before = (me + n - 1) % n, after = (me + 1) % n, degree = n > 2 ? 2 : 1;
    int sources[] = {before, after}, targets[] = {after, before}, c = (int)number;
    int weights[] = {1, 1};
    long count = (long)number;
    MPI(MPI_Dist_graph_create_adjacent(whole, degree, sources, weights, degree, targets, weights, MPI_INFO_NULL, 0, &comm));

    give_mine(count, degree * count);
    for (int s = 0; s < degree; s++)
        for (long i = 0; i < count; i++)
            expect(s * count + i, value(sources[s], i));
    place();
    RUN(MPI_Neighbor_allgather, MPI_Ineighbor_allgather, MPI_Neighbor_allgather_init, out, c, element.type, in, c, element.type);
    check();

    int counts[] = {c, c}, at[] = {c + 1, 0}, out_at[] = {0, c};
    give_mine(count, 2 * count + 1);
    for (int s = 0; s < degree; s++)
        for (long i = 0; i < count; i++)
            expect(at[s] + i, value(sources[s], i));
    place();
    RUN(MPI_Neighbor_allgatherv, MPI_Ineighbor_allgatherv, MPI_Neighbor_allgatherv_init, out, c, element.type, in, counts, at,
        element.type);
    check();

    /* The block for the neighbour after this rank is the first; the neighbour's first source is the one before it. */
    give_mine(degree * count, degree * count);
    for (int s = 0; s < degree; s++)
        for (long i = 0; i < count; i++)
            expect(s * count + i, value(sources[s], s * count + i));
    place();
    RUN(MPI_Neighbor_alltoall, MPI_Ineighbor_alltoall, MPI_Neighbor_alltoall_init, out, c, element.type, in, c, element.type);
    check();

    give_mine(degree * count, 2 * count + 1);
    for (int s = 0; s < degree; s++)
        for (long i = 0; i < count; i++)
            expect(at[s] + i, value(sources[s], out_at[s] + i));
    place();
    RUN(MPI_Neighbor_alltoallv, MPI_Ineighbor_alltoallv, MPI_Neighbor_alltoallv_init, out, counts, out_at, element.type, in, counts, at,
        element.type);
    check();

    MPI_Aint out_displacements[2], in_displacements[2];
    MPI_Datatype types[] = {element.type, element.type};
    for (int s = 0; s < 2; s++) {
        out_displacements[s] = out_at[s] * (MPI_Aint)element.bytes;
        in_displacements[s] = at[s] * (MPI_Aint)element.bytes;
    }
    place();
    RUN(MPI_Neighbor_alltoallw, MPI_Ineighbor_alltoallw, MPI_Neighbor_alltoallw_init, out, counts, out_displacements, types, in, counts,
        in_displacements, types);
    check();
    MPI(MPI_Comm_free(&comm));
    comm = whole;
}

/* ---- Two groups: even and odd ranks ---- */

static void between_groups(void) {
    MPI_Comm whole = comm, half;
    int c = (int)number, side = me % 2;
    long count = (long)number;
    if (n < 2) return;
    MPI(MPI_Comm_split(whole, side, me, &half));
    MPI(MPI_Intercomm_create(half, 0, whole, 1 - side, 3, &comm));
    note = " between groups";

    int sends = me == 0, receives = side == 1;
    begin_case(sends ? count : 0, receives ? count : 0);
    for (long i = 0; i < count; i++) {
        if (sends) give(i, value(0, i));
        if (receives) expect(i, value(0, i));
    }
    place();
    RUN(MPI_Bcast, MPI_Ibcast, MPI_Bcast_init, sends ? out : in, c, element.type,
        side == 1 ? 0 : sends ? MPI_ROOT : MPI_PROC_NULL);
    check();

    give_mine(count, count);
    for (long i = 0; i < count; i++) {
        long sum = 0;
        for (int r = 1 - side; r < n; r += 2)
            sum += value(r, i);
        expect(i, sum);
    }
    place();
    RUN(MPI_Allreduce, MPI_Iallreduce, MPI_Allreduce_init, out, in, c, element.type, MPI_SUM);
    check();
    note = "";
    MPI(MPI_Comm_free(&comm));
    MPI(MPI_Comm_free(&half));
    comm = whole;
}

static void run_all(void) {
    for (int root = 0; root < n; root = next_root(root))
        rooted(root);
    among_all();
    reductions(MPI_SUM);
    reductions(MPI_MAX);
    varying();
    if (number <= 1000) with_gaps();
    products();
    pairs();
    neighbors();
    between_groups();
}

int main(int argc, char **argv) {
    static const size_t counts[] = {1, 7, 1000, 40000};
    enum { MOST = 40000 };
    const char *choice = argc > 1 ? argv[1] : "DD,DH,HD";
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (strspn(choice, "DMPH,") != strlen(choice) || strlen(choice) % 3 != 2) fail("unknown pairs of kinds `%s`", choice);
    if (strspn(choice, "H,") != strlen(choice)) cuda_begin(rank);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    me = rank, n = size;
    area_bytes = (size_t)n * (MOST + 2 * (size_t)n + 20) * sizeof(struct matrix) + 4 * GUARD;
    given = room(area_bytes), initial = room(area_bytes), expected = room(area_bytes), got = room(area_bytes);
    poison = room(GUARD);
    memset(poison, POISON, GUARD);
    for (const char *kind = "DMPH"; *kind; kind++)
        for (int i = 0; i < 2 && strchr(choice, *kind); i++)
            area[(int)*kind][i] = allocate(*kind, area_bytes);
    for (const char *pair = choice; *pair; pair += pair[2] ? 3 : 2)
        for (int f = 0; f < (MPI_VERSION >= 4 ? FORMS : PERSISTENT); f++)
            for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
                for (int doubles = 0; doubles < 2; doubles++) {
                    out_kind = pair[0], in_kind = pair[1], form = (enum form)f, number = counts[i];
                    element = doubles ? (struct element){"double", MPI_DOUBLE, sizeof(double)}
                                      : (struct element){"int", MPI_INT, sizeof(int)};
                    /* The longest ones once for each form. */
                    if (doubles && form != BLOCKING && number == MOST) continue;
                    run_all();
                }
    for (const char *kind = "DMPH"; *kind; kind++)
        for (int i = 0; i < 2; i++)
            if (area[(int)*kind][i]) release(*kind, area[(int)*kind][i]);
    say("end");
    MPI_Comm_free(&comm);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) printf("ok coll %s on %d ranks\n", choice, size);
    MPI_Finalize();
    return 0;
}
