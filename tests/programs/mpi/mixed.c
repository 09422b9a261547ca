/* Collectives in a random order, with random lengths, roots, communicators and types, blocking, non-blocking and persistent, up to three at a
 * time; every element is compared. All ranks draw the same numbers, so the calls match.
 *
 * `mixed [ROUNDS] [SEED] [LONGEST]`: a failure names the round; the same numbers repeat it. LONGEST is in elements. */
#include "check.h"

#include <unistd.h>

enum kind {
    BARRIER, BCAST, GATHER, GATHERV, SCATTER, SCATTERV, ALLGATHER, ALLGATHERV, ALLTOALL, ALLTOALLV, ALLTOALLW,
    REDUCE, ALLREDUCE, REDUCE_SCATTER_BLOCK, REDUCE_SCATTER, SCAN, EXSCAN, KINDS
};
static const char *const names[KINDS] = {
    "barrier", "bcast", "gather", "gatherv", "scatter", "scatterv", "allgather", "allgatherv", "alltoall", "alltoallv", "alltoallw",
    "reduce", "allreduce", "reduce_scatter_block", "reduce_scatter", "scan", "exscan"
};
enum form { BLOCKING, NONBLOCKING, PERSISTENT, FORMS };

static unsigned long long state;

static unsigned draw(unsigned below) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)(state >> 33) % below;
}

#define HOLE 0x5a5a5a5au
#define MEMBERS 128

/* One side of a call: blocks one after the other, with a gap of one element between them, and elements `stride` apart. */
struct side {
    unsigned *at;
    int stride, blocks;
    int count[MEMBERS], first[MEMBERS], byte[MEMBERS];
    MPI_Datatype type, types[MEMBERS];
    long elements;
};

struct call {
    int round, root, me, n, in_place, len;
    enum kind kind;
    enum form form;
    MPI_Comm comm;
    struct side send, recv;
    /* What the receiving side must have in each block: its length, its first element in the data of rank `from` for rank `to`; if `sums`, of
     * the sum over the ranks up to `from`. -1: anything. */
    int len_of[MEMBERS], from[MEMBERS], to[MEMBERS], skip[MEMBERS], sums;
    MPI_Request request;
};

static MPI_Datatype dense = MPI_UNSIGNED, spaced;

static unsigned element(const struct call *c, int from, int to, int i) {
    return (unsigned)value((int)((unsigned)c->round * 65537u + (unsigned)(from * 257 + to)), i);
}

/* Makes one side with blocks of these lengths; its elements have gaps if `stride` is 2. */
static void make(struct side *s, int blocks, const int *counts, int stride) {
    s->blocks = blocks;
    s->stride = stride;
    s->type = stride == 2 ? spaced : dense;
    s->elements = 0;
    for (int b = 0; b < blocks; b++) {
        s->count[b] = counts[b];
        s->first[b] = (int)s->elements;
        s->byte[b] = (int)s->elements * stride * (int)sizeof(unsigned);
        s->types[b] = s->type;
        s->elements += counts[b] + 1;
    }
    s->at = room((size_t)(s->elements * stride + 1) * sizeof(unsigned));
    for (long i = 0; i < s->elements * stride + 1; i++)
        s->at[i] = HOLE;
}

/* As `make`, for the calls whose blocks all have one length and follow each other without gaps. */
static void make_even(struct side *s, int blocks, int count, int stride) {
    int counts[MEMBERS];
    for (int b = 0; b < blocks; b++)
        counts[b] = count;
    make(s, blocks, counts, stride);
    for (int b = 0; b < blocks; b++)
        s->first[b] = b * count;
}

static void fill_block(const struct call *c, struct side *s, int block, int from, int to) {
    for (int i = 0; i < s->count[block]; i++)
        s->at[(long)(s->first[block] + i) * s->stride] = element(c, from, to, i);
}

static void expect(struct call *c, int block, int len, int from, int to) {
    c->len_of[block] = len;
    c->from[block] = from;
    c->to[block] = to;
    c->skip[block] = 0;
}

#define MAKE(later, init, now, ...) \
    (c->form == BLOCKING      ? now(__VA_ARGS__, c->comm) \
     : c->form == NONBLOCKING ? later(__VA_ARGS__, c->comm, &c->request) \
                              : init(__VA_ARGS__, c->comm, MPI_INFO_NULL, &c->request))

static int even(enum kind kind) {
    return kind == GATHER || kind == SCATTER || kind == ALLGATHER || kind == ALLTOALL;
}

/* Draws a call, lays out its data, and starts it. */
static void start(struct call *c, int round, MPI_Comm *comms, int ncomms, unsigned longest) {
    memset(c, 0, sizeof *c);
    c->round = round;
    c->kind = draw(KINDS);
    c->form = draw(FORMS);
    c->comm = comms[draw(ncomms)];
    c->request = MPI_REQUEST_NULL;
    int lens[MEMBERS], strides[2][MEMBERS];
    const unsigned mosts[] = {2, 20, 300, 3000, 20000, 100000};
    unsigned most = mosts[draw(6)], lot = draw(1000), seed = draw(1u << 30);
    most = most > longest ? longest : most;
    c->in_place = draw(4) == 0;
    MPI_Comm_rank(c->comm, &c->me);
    MPI_Comm_size(c->comm, &c->n);
    int n = c->n, me = c->me;
    c->root = (int)(lot % (unsigned)n);
    /* Communicators that do not contain the same ranks have different data, but the same numbers are drawn. */
    unsigned long long common = state;
    state = seed;
    c->len = draw(8) == 0 ? 0 : (int)draw(most) + 1;
    for (int r = 0; r < MEMBERS; r++) {
        unsigned zero = draw(3), less = draw(8), len = draw((most >> less) + 1) + 1;
        lens[r] = even(c->kind) ? c->len : zero == 0 ? 0 : (int)len;
        strides[0][r] = (int)draw(4) == 0 ? 2 : 1;
        strides[1][r] = (int)draw(4) == 0 ? 2 : 1;
    }
    /* What rank `a` gives to rank `b`; the same both ways if it is in place. */
#define LEN(a, b) (even(c->kind) ? c->len : lens[c->in_place ? ((a) + (b)) % MEMBERS : ((a) * 7 + (b) * 3) % MEMBERS])
    struct side *s = &c->send, *r = &c->recv;
    int is_root = me == c->root, in = c->in_place, counts[MEMBERS], code = MPI_SUCCESS;
    int ss = strides[0][me], rs = strides[1][me];
    void *place = MPI_IN_PLACE;
    switch (c->kind) {
    case BARRIER:
        code = c->form == BLOCKING      ? MPI_Barrier(c->comm)
               : c->form == NONBLOCKING ? MPI_Ibarrier(c->comm, &c->request)
                                        : MPI_Barrier_init(c->comm, MPI_INFO_NULL, &c->request);
        break;
    case BCAST:
        make_even(r, 1, c->len, rs);
        if (is_root)
            fill_block(c, r, 0, c->root, 0);
        expect(c, 0, c->len, c->root, 0);
        code = MAKE(MPI_Ibcast, MPI_Bcast_init, MPI_Bcast, r->at, c->len, r->type, c->root);
        break;
    case GATHER:
    case GATHERV:
        for (int a = 0; a < n; a++)
            counts[a] = LEN(a, 0);
        make(s, 1, &counts[me], ss);
        fill_block(c, s, 0, me, 0);
        if (is_root) {
            c->kind == GATHER ? make_even(r, n, c->len, rs) : make(r, n, counts, rs);
            for (int a = 0; a < n; a++)
                expect(c, a, counts[a], a, 0);
            if (in)
                fill_block(c, r, me, me, 0);
        }
        in = in && is_root;
        if (c->kind == GATHER)
            code = MAKE(MPI_Igather, MPI_Gather_init, MPI_Gather, in ? place : s->at, s->count[0], s->type, r->at, c->len, r->type ? r->type : dense, c->root);
        else
            code = MAKE(MPI_Igatherv, MPI_Gatherv_init, MPI_Gatherv, in ? place : s->at, s->count[0], s->type, r->at, r->count, r->first, r->type ? r->type : dense, c->root);
        break;
    case SCATTER:
    case SCATTERV:
        for (int a = 0; a < n; a++)
            counts[a] = LEN(0, a);
        make(r, 1, &counts[me], rs);
        if (is_root) {
            c->kind == SCATTER ? make_even(s, n, c->len, ss) : make(s, n, counts, ss);
            for (int a = 0; a < n; a++)
                fill_block(c, s, a, c->root, a);
        }
        in = in && is_root;
        expect(c, 0, in ? -1 : counts[me], c->root, me);
        if (c->kind == SCATTER)
            code = MAKE(MPI_Iscatter, MPI_Scatter_init, MPI_Scatter, s->at, c->len, s->type ? s->type : dense, in ? place : r->at, r->count[0], r->type, c->root);
        else
            code = MAKE(MPI_Iscatterv, MPI_Scatterv_init, MPI_Scatterv, s->at, s->count, s->first, s->type ? s->type : dense, in ? place : r->at, r->count[0], r->type, c->root);
        break;
    case ALLGATHER:
    case ALLGATHERV:
        for (int a = 0; a < n; a++)
            counts[a] = LEN(a, 0);
        make(s, 1, &counts[me], ss);
        fill_block(c, s, 0, me, 0);
        c->kind == ALLGATHER ? make_even(r, n, c->len, rs) : make(r, n, counts, rs);
        for (int a = 0; a < n; a++)
            expect(c, a, counts[a], a, 0);
        if (in)
            fill_block(c, r, me, me, 0);
        if (c->kind == ALLGATHER)
            code = MAKE(MPI_Iallgather, MPI_Allgather_init, MPI_Allgather, in ? place : s->at, s->count[0], s->type, r->at, c->len, r->type);
        else
            code = MAKE(MPI_Iallgatherv, MPI_Allgatherv_init, MPI_Allgatherv, in ? place : s->at, s->count[0], s->type, r->at, r->count, r->first, r->type);
        break;
    case ALLTOALL:
    case ALLTOALLV:
    case ALLTOALLW:
        for (int b = 0; b < n; b++)
            counts[b] = LEN(me, b);
        c->kind == ALLTOALL ? make_even(s, n, c->len, ss) : make(s, n, counts, ss);
        for (int a = 0; a < n; a++)
            counts[a] = LEN(a, me);
        c->kind == ALLTOALL ? make_even(r, n, c->len, rs) : make(r, n, counts, rs);
        for (int b = 0; b < n; b++) {
            fill_block(c, s, b, me, b);
            if (in)
                fill_block(c, r, b, me, b);
            expect(c, b, counts[b], b, me);
        }
        if (c->kind == ALLTOALL)
            code = MAKE(MPI_Ialltoall, MPI_Alltoall_init, MPI_Alltoall, in ? place : s->at, c->len, s->type, r->at, c->len, r->type);
        else if (c->kind == ALLTOALLV)
            code = MAKE(MPI_Ialltoallv, MPI_Alltoallv_init, MPI_Alltoallv, in ? place : s->at, s->count, s->first, s->type, r->at, r->count, r->first, r->type);
        else
            code = MAKE(MPI_Ialltoallw, MPI_Alltoallw_init, MPI_Alltoallw, in ? place : s->at, s->count, s->byte, s->types, r->at, r->count, r->byte, r->types);
        break;
    case REDUCE:
    case ALLREDUCE:
    case SCAN:
    case EXSCAN:
        make_even(s, 1, c->len, 1);
        make_even(r, 1, c->len, 1);
        fill_block(c, s, 0, me, 0);
        in = in && (c->kind != REDUCE || is_root);
        if (in)
            fill_block(c, r, 0, me, 0);
        c->sums = 1;
        expect(c, 0, c->kind == REDUCE && !is_root ? -1 : c->len, c->kind == SCAN ? me : c->kind == EXSCAN ? me - 1 : n - 1, 0);
        if (c->kind == EXSCAN && me == 0)
            c->len_of[0] = -1;
        void *from = in ? place : s->at;
        code = c->kind == REDUCE      ? MAKE(MPI_Ireduce, MPI_Reduce_init, MPI_Reduce, from, r->at, c->len, dense, MPI_SUM, c->root)
               : c->kind == ALLREDUCE ? MAKE(MPI_Iallreduce, MPI_Allreduce_init, MPI_Allreduce, from, r->at, c->len, dense, MPI_SUM)
               : c->kind == SCAN      ? MAKE(MPI_Iscan, MPI_Scan_init, MPI_Scan, from, r->at, c->len, dense, MPI_SUM)
                                      : MAKE(MPI_Iexscan, MPI_Exscan_init, MPI_Exscan, from, r->at, c->len, dense, MPI_SUM);
        break;
    case REDUCE_SCATTER_BLOCK:
    case REDUCE_SCATTER: {
        int all = 0, before = 0;
        for (int a = 0; a < n; a++) {
            counts[a] = c->kind == REDUCE_SCATTER_BLOCK ? c->len / n : LEN(a, 0) / n;
            before += a < me ? counts[a] : 0;
            all += counts[a];
        }
        make_even(s, 1, all, 1);
        make_even(r, 1, in ? all : counts[me], 1);
        fill_block(c, in ? r : s, 0, me, 0);
        c->sums = 1;
        expect(c, 0, counts[me], n - 1, 0);
        c->skip[0] = before;
        /* The counts must last as long as the operation. */
        memcpy(s->byte, counts, sizeof counts);
        if (c->kind == REDUCE_SCATTER)
            code = MAKE(MPI_Ireduce_scatter, MPI_Reduce_scatter_init, MPI_Reduce_scatter, in ? place : s->at, r->at, s->byte, dense, MPI_SUM);
        else
            code = MAKE(MPI_Ireduce_scatter_block, MPI_Reduce_scatter_block_init, MPI_Reduce_scatter_block, in ? place : s->at, r->at, counts[0], dense, MPI_SUM);
        break;
    }
    case KINDS:
        break;
    }
    state = common;
    CHECK(code == MPI_SUCCESS);
    if (c->form == PERSISTENT)
        MPI_Start(&c->request);
}

/* Compares what has arrived with what must have, and frees the call. */
static void end(struct call *c) {
    long bad = 0, first = -1;
    int block = 0;
    for (int b = 0; b < c->recv.blocks; b++) {
        for (int i = 0; i < c->len_of[b]; i++) {
            unsigned expected = 0, got = c->recv.at[(long)(c->recv.first[b] + i) * c->recv.stride];
            if (c->sums)
                for (int a = 0; a <= c->from[b]; a++)
                    expected += element(c, a, 0, c->skip[b] + i);
            else
                expected = element(c, c->from[b], c->to[b], i);
            int hole_is_whole = c->recv.stride == 1 || c->recv.at[(long)(c->recv.first[b] + i) * 2 + 1] == HOLE;
            if (got != expected || !hole_is_whole) {
                block = first < 0 ? b : block;
                first = first < 0 ? i : first;
                bad++;
            }
        }
    }
    if (bad) {
        if (wrong++ < 3)
            fprintf(stderr, "rank %d of %d: round %d: %s (form %d, root %d, %s, rank %d of %d): %ld elements wrong, the first is %ld of block %d\n", rank, size,
                    c->round, names[c->kind], c->form, c->root, c->in_place ? "in place" : "not in place", c->me, c->n, bad, first, block);
    }
    free(c->send.at);
    free(c->recv.at);
}

int main(int argc, char **argv) {
    begin(&argc, &argv);
    int rounds = argc > 1 ? atoi(argv[1]) : 100, seed = argc > 2 ? atoi(argv[2]) : 1;
    if (size > MEMBERS) {
        fprintf(stderr, "mixed is for at most %d ranks\n", MEMBERS);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    unsigned longest = argc > 3 ? (unsigned)atoi(argv[3]) : 100000;
    MPI_Comm comms[4];
    comms[0] = MPI_COMM_WORLD;
    MPI_Comm_dup(MPI_COMM_WORLD, &comms[1]);
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &comms[2]);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &comms[3]);
    MPI_Type_create_resized(MPI_UNSIGNED, 0, 2 * sizeof(unsigned), &spaced);
    MPI_Type_commit(&spaced);
    state = (unsigned)seed * 2654435761u + 1;
    int laggard = 0;
    for (int round = 0; round < rounds;) {
        struct call calls[3];
        int flying = 1 + (int)draw(3);
        for (int i = 0; i < flying; i++) {
            start(&calls[i], round++, comms, 4, longest);
            if (calls[i].form == BLOCKING)
                end(&calls[i]);
        }
        laggard = (int)draw(64);
        if (laggard == rank)
            usleep(draw(500));
        else
            draw(500);
        MPI_Request requests[3];
        for (int i = 0; i < flying; i++)
            requests[i] = calls[i].form == BLOCKING ? MPI_REQUEST_NULL : calls[i].request;
        if (draw(2)) {
            MPI_Waitall(flying, requests, MPI_STATUSES_IGNORE);
        } else {
            for (int i = 0, index; i < flying; i++)
                MPI_Waitany(flying, requests, &index, MPI_STATUS_IGNORE);
        }
        for (int i = 0; i < flying; i++) {
            if (calls[i].form == PERSISTENT)
                MPI_Request_free(&calls[i].request);
            if (calls[i].form != BLOCKING)
                end(&calls[i]);
        }
    }
    MPI_Type_free(&spaced);
    for (int i = 1; i < 4; i++)
        MPI_Comm_free(&comms[i]);
    return finish("mixed");
}
