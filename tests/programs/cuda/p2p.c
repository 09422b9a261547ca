/* Point-to-point messages from and to memory that the CPU cannot touch. Rank r and rank r^1 are a pair; rank 0 prints `ok p2p`.
 *
 *     p2p [KINDS [TESTS]]
 *
 * KINDS are the kinds of memory, all of them by default: DMPH (device, managed, pinned host, host).
 * TESTS are letters, all of them by default: m modes, s self, w window, l lengths (short and truncated messages), f freed memory,
 * d datatypes, p pack and unpack, r partitioned. */
#include "device.h"

static const char *kinds = "DMPH";
static int peer, first; /* `first`: the rank that sends first */
static MPI_Comm comm;

static const size_t sizes[] = {0,    1,    3,    8,     55,    57,    1000,  4096,
                               4097, 8192, 20000, 32768, 32769, 65537, 1 << 20, (1 << 22) + 3};
enum { SIZES = sizeof sizes / sizeof *sizes, GUARD = 64, LARGEST = (1 << 22) + 3, AREA = LARGEST + 4 * GUARD };
enum { TAG = 5, GO = 6, BUFFERED = 65537 };

/* One area for outgoing and one for incoming messages of each kind. */
static char *out_area[128], *in_area[128], *scratch, *poison;

/* Different alignments within an allocation, with room for a guard before. */
static size_t offset_of(size_t bytes) {
    static const size_t offsets[] = {64, 72, 65, 67};
    return offsets[bytes % 4];
}

static char *outgoing(char kind, size_t bytes, unsigned seed) {
    char *at = out_area[(int)kind] + offset_of(bytes);
    put(kind, at, pattern(seed), bytes);
    return at;
}

static char *incoming(char kind, size_t bytes) {
    char *at = in_area[(int)kind] + offset_of(bytes);
    put(kind, at - GUARD, poison, bytes + 2 * GUARD);
    return at;
}

/* Whether `got` bytes of an area for `bytes` bytes are those of the seed, and nothing else was written. */
static void check_area(char kind, const char *at, size_t bytes, size_t got, unsigned seed) {
    get(kind, scratch, at - GUARD, bytes + 2 * GUARD);
    compare(scratch + GUARD, pattern(seed), got, "message");
    compare(scratch, poison, GUARD, "bytes before the buffer");
    compare(scratch + GUARD + got, poison, bytes - got + GUARD, "bytes after the message");
}

static void check_status(const MPI_Status *status, int source, int tag, size_t bytes) {
    int count = -1;
    MPI(MPI_Get_count(status, MPI_BYTE, &count));
    if ((size_t)count != bytes || status->MPI_SOURCE != source || status->MPI_TAG != tag)
        fail("status: %d bytes, source %d, tag %d instead of %zu, %d, %d", count, status->MPI_SOURCE, status->MPI_TAG, bytes, source, tag);
}

/* The receiver tells the sender that its receive is posted. */
static void give_go(void) {
    MPI(MPI_Send(NULL, 0, MPI_BYTE, peer, GO, comm));
}

static void await_go(void) {
    MPI(MPI_Recv(NULL, 0, MPI_BYTE, peer, GO, comm, MPI_STATUS_IGNORE));
}

/* ---- Modes: how one message is sent and received ---- */

struct message {
    char to, from; /* kinds */
    size_t bytes;
    unsigned seed;
};

static char *out_of(const struct message *m) {
    return outgoing(m->from, m->bytes, m->seed);
}

/* Receives into a receive posted before the sender starts. */
static void receive_posted(const struct message *m) {
    char *at = incoming(m->to, m->bytes);
    MPI_Request request;
    MPI_Status status;
    MPI(MPI_Irecv(at, (int)m->bytes, MPI_BYTE, peer, TAG, comm, &request));
    give_go();
    MPI(MPI_Wait(&request, &status));
    check_status(&status, peer, TAG, m->bytes);
    check_area(m->to, at, m->bytes, m->bytes, m->seed);
}

/* Receives a message that has arrived before the receive is posted. */
static void receive_late(const struct message *m) {
    char *at = incoming(m->to, m->bytes);
    MPI_Status status;
    MPI(MPI_Probe(MPI_ANY_SOURCE, TAG, comm, &status));
    check_status(&status, peer, TAG, m->bytes);
    MPI(MPI_Recv(at, (int)m->bytes, MPI_BYTE, MPI_ANY_SOURCE, TAG, comm, &status));
    check_status(&status, peer, TAG, m->bytes);
    check_area(m->to, at, m->bytes, m->bytes, m->seed);
}

static void send_late(const struct message *m, int sends) {
    if (!sends) return receive_late(m);
    char *at = out_of(m);
    MPI(MPI_Send(at, (int)m->bytes, MPI_BYTE, peer, TAG, comm));
    /* The buffer of a completed send may change. */
    put(m->from, at, pattern(m->seed + 1), m->bytes);
}

static void send_posted(const struct message *m, int sends) {
    if (!sends) return receive_posted(m);
    char *at = out_of(m);
    await_go();
    MPI(MPI_Send(at, (int)m->bytes, MPI_BYTE, peer, TAG, comm));
    put(m->from, at, pattern(m->seed + 1), m->bytes);
}

static void ssend(const struct message *m, int sends) {
    if (!sends) return receive_late(m);
    MPI(MPI_Ssend(out_of(m), (int)m->bytes, MPI_BYTE, peer, TAG, comm));
}

static void rsend(const struct message *m, int sends) {
    if (!sends) return receive_posted(m);
    char *at = out_of(m);
    await_go();
    MPI(MPI_Rsend(at, (int)m->bytes, MPI_BYTE, peer, TAG, comm));
}

static void bsend(const struct message *m, int sends) {
    if (!sends) return receive_late(m);
    char *at = out_of(m);
    MPI(MPI_Bsend(at, (int)m->bytes, MPI_BYTE, peer, TAG, comm));
    put(m->from, at, pattern(m->seed + 1), m->bytes);
}

static void isend_wait(const struct message *m, int sends) {
    if (!sends) return receive_posted(m);
    MPI_Request request;
    char *at = out_of(m);
    await_go();
    MPI(MPI_Isend(at, (int)m->bytes, MPI_BYTE, peer, TAG, comm, &request));
    MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
}

static void isend_test(const struct message *m, int sends) {
    char *at = sends ? out_of(m) : incoming(m->to, m->bytes);
    MPI_Request request;
    MPI_Status status;
    int done = 0;
    if (sends)
        MPI(MPI_Isend(at, (int)m->bytes, MPI_BYTE, peer, TAG, comm, &request));
    else
        MPI(MPI_Irecv(at, (int)m->bytes, MPI_BYTE, peer, TAG, comm, &request));
    while (!done)
        MPI(MPI_Test(&request, &done, &status));
    MUST(request == MPI_REQUEST_NULL);
    if (sends) return;
    check_status(&status, peer, TAG, m->bytes);
    check_area(m->to, at, m->bytes, m->bytes, m->seed);
}

/* Both directions at once; `some` with MPI_Waitsome. */
static void both_ways(const struct message *m, int some) {
    char *out = out_of(m), *in = incoming(m->to, m->bytes);
    MPI_Request requests[2];
    int done = 0, indices[2], left = 2;
    MPI(MPI_Irecv(in, (int)m->bytes, MPI_BYTE, peer, TAG, comm, &requests[0]));
    MPI(MPI_Isend(out, (int)m->bytes, MPI_BYTE, peer, TAG, comm, &requests[1]));
    if (!some) {
        MPI(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
        left = 0;
    }
    for (; left; left -= done)
        MPI(MPI_Waitsome(2, requests, &done, indices, MPI_STATUSES_IGNORE));
    check_area(m->to, in, m->bytes, m->bytes, m->seed);
}

static void waitall(const struct message *m, int sends) {
    (void)sends;
    both_ways(m, 0);
}

static void waitsome(const struct message *m, int sends) {
    (void)sends;
    both_ways(m, 1);
}

static void sendrecv(const struct message *m, int sends) {
    (void)sends;
    char *out = out_of(m), *in = incoming(m->to, m->bytes);
    MPI_Status status;
    MPI(MPI_Sendrecv(out, (int)m->bytes, MPI_BYTE, peer, TAG, in, (int)m->bytes, MPI_BYTE, peer, TAG, comm, &status));
    check_status(&status, peer, TAG, m->bytes);
    check_area(m->to, in, m->bytes, m->bytes, m->seed);
}

static void sendrecv_replace(const struct message *m, int sends) {
    char *at = incoming(m->to, m->bytes);
    MPI_Status status;
    put(m->to, at, pattern(m->seed + (unsigned)sends), m->bytes);
    MPI(MPI_Sendrecv_replace(at, (int)m->bytes, MPI_BYTE, peer, TAG, peer, TAG, comm, &status));
    check_status(&status, peer, TAG, m->bytes);
    check_area(m->to, at, m->bytes, m->bytes, m->seed + (unsigned)!sends);
}

static void mprobe(const struct message *m, int sends) {
    MPI_Request request;
    MPI_Message message;
    MPI_Status status;
    if (sends) {
        MPI(MPI_Issend(out_of(m), (int)m->bytes, MPI_BYTE, peer, TAG, comm, &request));
        MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
        return;
    }
    char *at = incoming(m->to, m->bytes);
    MPI(MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &message, &status));
    check_status(&status, peer, TAG, m->bytes);
    MPI(MPI_Imrecv(at, (int)m->bytes, MPI_BYTE, &message, &request));
    MPI(MPI_Wait(&request, &status));
    check_status(&status, peer, TAG, m->bytes);
    check_area(m->to, at, m->bytes, m->bytes, m->seed);
}

static void persistent(const struct message *m, int sends) {
    char *at = sends ? out_of(m) : incoming(m->to, m->bytes);
    MPI_Request request;
    if (sends)
        MPI(MPI_Send_init(at, (int)m->bytes, MPI_BYTE, peer, TAG, comm, &request));
    else
        MPI(MPI_Recv_init(at, (int)m->bytes, MPI_BYTE, peer, TAG, comm, &request));
    for (unsigned start = 0; start < 3; start++) {
        if (sends)
            put(m->from, at, pattern(m->seed + start), m->bytes);
        else
            put(m->to, at, poison, m->bytes);
        MPI(MPI_Start(&request));
        MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
        MUST(request != MPI_REQUEST_NULL);
        if (!sends) check_area(m->to, at, m->bytes, m->bytes, m->seed + start);
    }
    MPI(MPI_Request_free(&request));
}

static const struct mode {
    const char *name;
    void (*run)(const struct message *, int sends);
    int is_long, is_mutual; /* used for the longest messages too; both send */
    size_t limit;
} modes[] = {
    {"Send to a posted receive", send_posted, 1, 0, LARGEST},
    {"Send before the receive", send_late, 1, 0, LARGEST},
    {"Ssend", ssend, 0, 0, LARGEST},
    {"Rsend", rsend, 0, 0, LARGEST},
    {"Bsend", bsend, 0, 0, BUFFERED},
    {"Isend and Wait", isend_wait, 1, 0, LARGEST},
    {"Isend and Test", isend_test, 0, 0, LARGEST},
    {"Waitall", waitall, 1, 1, LARGEST},
    {"Waitsome", waitsome, 0, 1, LARGEST},
    {"Sendrecv", sendrecv, 1, 1, LARGEST},
    {"Sendrecv_replace", sendrecv_replace, 0, 1, LARGEST},
    {"Mprobe and Imrecv", mprobe, 0, 0, LARGEST},
    {"persistent", persistent, 0, 0, LARGEST},
};

static void test_modes(void) {
    int bytes = 4 * (BUFFERED + MPI_BSEND_OVERHEAD);
    void *buffer = room((size_t)bytes), *detached;
    unsigned seed = 1;
    MPI(MPI_Buffer_attach(buffer, bytes));
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        for (const char *from = kinds; *from; from++)
            for (const char *to = kinds; *to; to++)
                for (size_t s = 0; s < SIZES; s++) {
                    struct message m = {*to, *from, sizes[s], seed += 10};
                    if (m.bytes > modes[i].limit || (m.bytes >= 1 << 20 && !modes[i].is_long)) continue;
                    for (int turn = 0; turn < 2 - modes[i].is_mutual; turn++) {
                        int sends = (turn == 0) == (rank == first);
                        say("%s, %c to %c, %zu bytes, %s", modes[i].name, *from, *to, m.bytes, sends ? "sender" : "receiver");
                        modes[i].run(&m, sends);
                    }
                }
    MPI(MPI_Buffer_detach(&detached, &bytes));
    free(buffer);
}

/* ---- Messages to oneself ---- */

static void test_self(void) {
    unsigned seed = 5000;
    for (const char *from = kinds; *from; from++)
        for (const char *to = kinds; *to; to++)
            for (size_t s = 0; s < SIZES; s++)
                for (int posted = 0; posted < 2; posted++) {
                    size_t bytes = sizes[s];
                    MPI_Request request;
                    MPI_Status status;
                    say("message to itself, %c to %c, %zu bytes, %s", *from, *to, bytes, posted ? "posted" : "late");
                    char *out = outgoing(*from, bytes, ++seed), *in = incoming(*to, bytes);
                    if (posted) {
                        MPI(MPI_Irecv(in, (int)bytes, MPI_BYTE, rank, TAG, comm, &request));
                        MPI(MPI_Send(out, (int)bytes, MPI_BYTE, rank, TAG, comm));
                        MPI(MPI_Wait(&request, &status));
                    } else {
                        MPI(MPI_Isend(out, (int)bytes, MPI_BYTE, rank, TAG, comm, &request));
                        MPI(MPI_Recv(in, (int)bytes, MPI_BYTE, rank, TAG, comm, &status));
                        MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
                    }
                    check_status(&status, rank, TAG, bytes);
                    check_area(*to, in, bytes, bytes, seed);
                }
}

/* ---- Many messages at once ---- */

/* 64 messages of 1 KiB to 256 KiB in each direction. Four of them share each tag, so that their order matters. */
static void window_round(int round) {
    enum { MESSAGES = 64 };
    MPI_Request requests[2 * MESSAGES];
    MPI_Status statuses[2 * MESSAGES];
    char *in[MESSAGES], from[MESSAGES], to[MESSAGES];
    size_t bytes[MESSAGES], out_used[128] = {0}, in_used[128] = {0}, number = strlen(kinds);
    say("window of %d messages in both directions, round %d", MESSAGES, round);
    for (size_t i = 0; i < MESSAGES; i++) {
        static const int numerators[] = {8, 11, 13};
        bytes[i] = (size_t)(1024 << (i * 5 + (size_t)round) % 9) * (size_t)numerators[i % 3] / 13;
        from[i] = kinds[i % number], to[i] = kinds[(i / number + i) % number];
        /* The areas are too small only if one kind gets nearly everything. */
        if (out_used[(int)from[i]] + bytes[i] + 2 * GUARD > AREA || in_used[(int)to[i]] + bytes[i] + 2 * GUARD > AREA) bytes[i] = 0;
        in[i] = in_area[(int)to[i]] + in_used[(int)to[i]] + GUARD;
        in_used[(int)to[i]] += bytes[i] + 2 * GUARD;
        put(to[i], in[i] - GUARD, poison, bytes[i] + 2 * GUARD);
        if (round % 2 == 0) MPI(MPI_Irecv(in[i], (int)bytes[i], MPI_BYTE, peer, (int)i / 4, comm, &requests[i]));
    }
    for (size_t i = 0; i < MESSAGES; i++) {
        char *out = out_area[(int)from[i]] + out_used[(int)from[i]];
        out_used[(int)from[i]] += bytes[i] + 2 * GUARD;
        put(from[i], out, pattern((unsigned)(round * MESSAGES + (int)i)), bytes[i]);
        MPI(MPI_Isend(out, (int)bytes[i], MPI_BYTE, peer, (int)i / 4, comm, &requests[MESSAGES + i]));
    }
    if (round % 2)
        for (size_t i = 0; i < MESSAGES; i++)
            MPI(MPI_Irecv(in[i], (int)bytes[i], MPI_BYTE, peer, (int)i / 4, comm, &requests[i]));
    MPI(MPI_Waitall(2 * MESSAGES, requests, statuses));
    for (size_t i = 0; i < MESSAGES; i++) {
        say("window, round %d, message %zu, %c to %c, %zu bytes", round, i, from[i], to[i], bytes[i]);
        check_status(&statuses[i], peer, (int)i / 4, bytes[i]);
        check_area(to[i], in[i], bytes[i], bytes[i], (unsigned)(round * MESSAGES + (int)i));
    }
}

static void test_window(void) {
    for (int round = 0; round < 6; round++)
        window_round(round);
}

/* ---- Messages shorter and longer than the receive ---- */

static void test_lengths(void) {
    static const size_t pairs[][2] = {{0, 100},       {10, 57},  {57, 4096},   {1000, 100000},  {32769, 1 << 20}, {1 << 20, (1 << 20) + 77},
                                      {100, 0},       {57, 55},  {4000, 1000}, {70000, 33000},  {1 << 20, 1000},
                                      {1 << 20, (1 << 20) - 1}};
    unsigned seed = 9000;
    for (const char *from = kinds; *from; from++)
        for (const char *to = kinds; *to; to++)
            for (size_t s = 0; s < sizeof pairs / sizeof *pairs; s++)
                for (int turn = 0; turn < 4; turn++) {
                    size_t sent = pairs[s][0], wanted = pairs[s][1];
                    int sends = (turn % 2 == 0) == (rank == first), posted = turn / 2;
                    say("%c to %c, %zu bytes into a receive of %zu, %s", *from, *to, sent, wanted, posted ? "posted" : "late");
                    seed++;
                    if (sends) {
                        char *out = outgoing(*from, sent, seed);
                        if (posted) await_go();
                        MPI(MPI_Send(out, (int)sent, MPI_BYTE, peer, TAG, comm));
                        continue;
                    }
                    char *in = incoming(*to, wanted);
                    MPI_Request request;
                    MPI_Status status;
                    int code;
                    if (posted) {
                        MPI(MPI_Irecv(in, (int)wanted, MPI_BYTE, peer, TAG, comm, &request));
                        give_go();
                        code = MPI_Wait(&request, &status);
                    } else {
                        MPI(MPI_Probe(peer, TAG, comm, &status));
                        code = MPI_Recv(in, (int)wanted, MPI_BYTE, peer, TAG, comm, &status);
                    }
                    if (sent > wanted) {
                        if (class_of(code) != MPI_ERR_TRUNCATE) fail("class %d instead of MPI_ERR_TRUNCATE", class_of(code));
                        /* What the buffer contains is undefined, what surrounds it is not. */
                        get(*to, scratch, in - GUARD, wanted + 2 * GUARD);
                        compare(scratch, poison, GUARD, "bytes before the buffer");
                        compare(scratch + GUARD + wanted, poison, GUARD, "bytes after the buffer");
                    } else {
                        MPI(code);
                        check_status(&status, peer, TAG, sent);
                        check_area(*to, in, wanted, sent, seed);
                    }
                }
}

/* ---- Memory that is freed and allocated again between messages ---- */

static void test_freed(void) {
    static const size_t lengths[] = {1 << 20, 200000, 1 << 20, 5000, 3 << 20, 1 << 20};
    for (int round = 0; round < 24; round++)
        for (const char *kind = kinds; *kind; kind++) {
            size_t bytes = lengths[round % 6], kept_bytes = bytes + 2 * GUARD;
            int sends = (round / 2 % 2 == 0) == (rank == first);
            say("round %d with new memory of kind %c, %zu bytes, %s", round, *kind, bytes, sends ? "sender" : "receiver");
            char *at = allocate(*kind, kept_bytes);
            if (sends) {
                put(*kind, at, pattern((unsigned)round + 77), bytes);
                MPI(MPI_Send(at, (int)bytes, MPI_BYTE, peer, TAG, comm));
                /* A library that reads this memory later than it may finds other bytes. */
                put(*kind, at, poison, bytes);
            } else {
                put(*kind, at, poison, kept_bytes);
                MPI(MPI_Recv(at + GUARD, (int)bytes, MPI_BYTE, peer, TAG, comm, MPI_STATUS_IGNORE));
                check_area(*kind, at + GUARD, bytes, bytes, (unsigned)round + 77);
            }
            /* At times other memory takes the address first. */
            if (round % 3 == 2) {
                release(*kind, at);
                at = allocate(*kind, bytes / 2);
            }
            release(*kind, at);
        }
}

/* ---- Datatypes ---- */

enum { BLOCKS = 4000 };

/* A datatype made of bytes, and where each of its blocks lies, in the order of the type map. */
struct layout {
    const char *name;
    MPI_Datatype type;
    int count, is_typed; /* typed: the other side must use the same type */
    size_t span, bytes, blocks;
    struct {
        size_t at, bytes;
    } block[BLOCKS];
};

static void block(struct layout *l, size_t at, size_t bytes) {
    MUST(l->blocks < BLOCKS);
    l->block[l->blocks].at = at;
    l->block[l->blocks++].bytes = bytes;
    l->bytes += bytes;
    if (at + bytes > l->span) l->span = at + bytes;
}

static void contiguous(struct layout *l) {
    l->name = "contiguous", l->count = 7;
    MPI(MPI_Type_contiguous(3000, MPI_BYTE, &l->type));
    block(l, 0, 21000);
}

static void vector_of(struct layout *l, const char *name, int blocks, int bytes, int stride) {
    l->name = name, l->count = 1;
    MPI(MPI_Type_vector(blocks, bytes, stride, MPI_BYTE, &l->type));
    for (int i = 0; i < blocks; i++)
        block(l, (size_t)i * (size_t)stride, (size_t)bytes);
}

static void many_blocks(struct layout *l) {
    vector_of(l, "vector of 1000 blocks of 8", 1000, 8, 24);
}

static void three_blocks(struct layout *l) {
    vector_of(l, "vector of 3 blocks of 4000", 3, 4000, 5000);
}

static void long_vector(struct layout *l) {
    vector_of(l, "vector of 2000 blocks of 400", 2000, 400, 1000);
}

static void doubles(struct layout *l) {
    l->name = "vector of doubles", l->count = 1, l->is_typed = 1;
    MPI(MPI_Type_vector(1000, 1, 3, MPI_DOUBLE, &l->type));
    for (size_t i = 0; i < 1000; i++)
        block(l, i * 24, 8);
}

static void irregular(struct layout *l) {
    enum { N = 200 };
    int lengths[N], at[N], next = 0;
    l->name = "indexed", l->count = 1;
    for (int i = 0; i < N; i++) {
        lengths[i] = i * 7 % 50;
        at[i] = next;
        next += lengths[i] + i % 5 * 3;
        block(l, (size_t)at[i], (size_t)lengths[i]);
    }
    MPI(MPI_Type_indexed(N, lengths, at, MPI_BYTE, &l->type));
}

/* The type map runs from high addresses to low ones. */
static void backwards(struct layout *l) {
    enum { N = 60 };
    int lengths[N];
    MPI_Aint at[N];
    l->name = "hindexed backwards", l->count = 1;
    for (int i = 0; i < N; i++) {
        lengths[i] = 100 + i;
        at[i] = (N - 1 - i) * 300;
        block(l, (size_t)at[i], (size_t)lengths[i]);
    }
    MPI(MPI_Type_create_hindexed(N, lengths, at, MPI_BYTE, &l->type));
}

static void with_holes(struct layout *l) {
    int lengths[] = {2, 3, 5};
    MPI_Aint at[] = {0, 16, 48};
    MPI_Datatype types[] = {MPI_INT, MPI_DOUBLE, MPI_CHAR}, tight;
    l->name = "struct with holes", l->count = 100, l->is_typed = 1;
    MPI(MPI_Type_create_struct(3, lengths, at, types, &tight));
    MPI(MPI_Type_create_resized(tight, 0, 64, &l->type));
    MPI(MPI_Type_free(&tight));
    for (size_t i = 0; i < 100; i++)
        block(l, i * 64, 8), block(l, i * 64 + 16, 24), block(l, i * 64 + 48, 5);
}

static void resized(struct layout *l) {
    MPI_Datatype tight;
    l->name = "resized", l->count = 500;
    MPI(MPI_Type_contiguous(16, MPI_BYTE, &tight));
    MPI(MPI_Type_create_resized(tight, 0, 40, &l->type));
    MPI(MPI_Type_free(&tight));
    for (size_t i = 0; i < 500; i++)
        block(l, i * 40, 16);
}

static void subarray_2d(struct layout *l) {
    int whole[] = {100, 640}, part[] = {37, 232}, start[] = {11, 104};
    l->name = "subarray of 2 dimensions", l->count = 1;
    MPI(MPI_Type_create_subarray(2, whole, part, start, MPI_ORDER_C, MPI_BYTE, &l->type));
    for (size_t y = 0; y < 37; y++)
        block(l, (11 + y) * 640 + 104, 232);
    l->span = 100 * 640;
}

static void subarray_3d(struct layout *l) {
    int whole[] = {20, 20, 160}, part[] = {7, 5, 72}, start[] = {3, 4, 40};
    l->name = "subarray of 3 dimensions", l->count = 1;
    MPI(MPI_Type_create_subarray(3, whole, part, start, MPI_ORDER_C, MPI_BYTE, &l->type));
    for (size_t z = 0; z < 7; z++)
        for (size_t y = 0; y < 5; y++)
            block(l, ((3 + z) * 20 + 4 + y) * 160 + 40, 72);
    l->span = 20 * 20 * 160;
}

static void (*const layouts[])(struct layout *) = {contiguous, many_blocks, three_blocks, long_vector, doubles,     irregular,
                                                   backwards,  with_holes,  resized,      subarray_2d, subarray_3d};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

static struct layout *new_layout(size_t i) {
    struct layout *l = room(sizeof *l);
    l->span = l->bytes = l->blocks = 0;
    l->is_typed = 0;
    layouts[i](l);
    MPI(MPI_Type_commit(&l->type));
    return l;
}

static void free_layout(struct layout *l) {
    MPI(MPI_Type_free(&l->type));
    free(l);
}

/* The bytes of the seed's message, spread over host memory as the layout says. */
static void spread(const struct layout *l, char *image, unsigned seed) {
    const unsigned char *from = pattern(seed);
    for (size_t i = 0; i < l->blocks; i++) {
        memcpy(image + l->block[i].at, from, l->block[i].bytes);
        from += l->block[i].bytes;
    }
}

/* An area of a kind in which only the blocks of the layout contain the message. */
static char *spread_out(const struct layout *l, char kind, unsigned seed) {
    char *at = out_area[(int)kind] + GUARD;
    memcpy(scratch, poison, l->span);
    spread(l, scratch, seed);
    put(kind, at, scratch, l->span);
    return at;
}

static void check_spread(const struct layout *l, char kind, const char *at, unsigned seed) {
    static char *expected;
    if (!expected) expected = room(AREA);
    memcpy(expected, poison, l->span + 2 * GUARD);
    spread(l, expected + GUARD, seed);
    get(kind, scratch, at - GUARD, l->span + 2 * GUARD);
    compare(scratch, expected, l->span + 2 * GUARD, "datatype with its surroundings");
}

enum side { SAME, ONE_BLOCK_SENT, ONE_BLOCK_RECEIVED, SIDES };

static void send_layout(const struct layout *l, char from, enum side side, unsigned seed) {
    char *at = side == ONE_BLOCK_SENT ? outgoing(from, l->bytes, seed) : spread_out(l, from, seed);
    if (side == ONE_BLOCK_SENT)
        MPI(MPI_Send(at, (int)l->bytes, MPI_BYTE, peer, TAG, comm));
    else
        MPI(MPI_Send(at, l->count, l->type, peer, TAG, comm));
}

static void receive_layout(const struct layout *l, char to, enum side side, unsigned seed) {
    MPI_Status status;
    int count = -1;
    if (side == ONE_BLOCK_RECEIVED) {
        char *at = incoming(to, l->bytes);
        MPI(MPI_Recv(at, (int)l->bytes, MPI_BYTE, peer, TAG, comm, &status));
        check_status(&status, peer, TAG, l->bytes);
        check_area(to, at, l->bytes, l->bytes, seed);
        return;
    }
    char *at = in_area[(int)to] + 2 * GUARD;
    put(to, at - GUARD, poison, l->span + 2 * GUARD);
    MPI(MPI_Recv(at, l->count, l->type, peer, TAG, comm, &status));
    MPI(MPI_Get_count(&status, l->type, &count));
    MUST(count == l->count);
    check_spread(l, to, at, seed);
}

static void test_datatypes(void) {
    unsigned seed = 20000;
    for (size_t i = 0; i < LAYOUTS; i++) {
        struct layout *l = new_layout(i);
        for (const char *from = kinds; *from; from++)
            for (const char *to = kinds; *to; to++)
                for (int side = 0; side < (l->is_typed ? 1 : SIDES); side++)
                    for (int turn = 0; turn < 2; turn++) {
                        int sends = (turn == 0) == (rank == first);
                        say("%s, %c to %c, %s, %s", l->name, *from, *to,
                            side == SAME ? "both ends" : side == ONE_BLOCK_SENT ? "from one block" : "into one block",
                            sends ? "sender" : "receiver");
                        seed++;
                        if (sends)
                            send_layout(l, *from, (enum side)side, seed);
                        else
                            receive_layout(l, *to, (enum side)side, seed);
                    }
        free_layout(l);
    }
}

/* ---- Pack and unpack ---- */

static void test_pack(void) {
    unsigned seed = 30000;
    for (size_t i = 0; i < LAYOUTS; i++) {
        struct layout *l = new_layout(i);
        for (const char *from = kinds; *from; from++)
            for (const char *to = kinds; *to; to++) {
                int bytes, position = 0, end;
                say("pack of %s, %c to %c", l->name, *from, *to);
                seed++;
                MPI(MPI_Pack_size(l->count, l->type, comm, &bytes));
                MUST((size_t)bytes >= l->bytes && bytes <= LARGEST);
                char *at = spread_out(l, *from, seed), *packed = incoming(*to, (size_t)bytes);
                MPI(MPI_Pack(at, l->count, l->type, packed, bytes, &position, comm));
                end = position;
                MUST((size_t)end >= l->bytes && end <= bytes);
                get(*to, scratch, packed - GUARD, (size_t)bytes + 2 * GUARD);
                compare(scratch, poison, GUARD, "bytes before the packed ones");
                compare(scratch + GUARD + end, poison, (size_t)(bytes - end) + GUARD, "bytes after the packed ones");

                say("unpack of %s, %c to %c", l->name, *to, *from);
                char *unpacked = out_area[(int)*from] + 2 * GUARD;
                put(*from, unpacked - GUARD, poison, l->span + 2 * GUARD);
                position = 0;
                MPI(MPI_Unpack(packed, end, &position, unpacked, l->count, l->type, comm));
                MUST(position == end);
                check_spread(l, *from, unpacked, seed);
            }
        free_layout(l);
    }
}

/* ---- Partitioned ---- */

#if MPI_VERSION >= 4
static void test_partitioned(void) {
    static const size_t lengths[] = {16, 4096, 65536, 1 << 20};
    enum { PARTS = 8 };
    unsigned seed = 40000;
    for (const char *from = kinds; *from; from++)
        for (const char *to = kinds; *to; to++)
            for (size_t s = 0; s < sizeof lengths / sizeof *lengths; s++)
                for (int turn = 0; turn < 2; turn++) {
                    int sends = (turn == 0) == (rank == first), theirs = s % 2 ? PARTS : 2;
                    size_t bytes = lengths[s];
                    MPI_Request request;
                    say("partitioned, %c to %c, %zu bytes, %s", *from, *to, bytes, sends ? "sender" : "receiver");
                    char *at = sends ? out_area[(int)*from] + GUARD : incoming(*to, bytes);
                    if (sends)
                        MPI(MPI_Psend_init(at, PARTS, (MPI_Count)(bytes / PARTS), MPI_BYTE, peer, TAG, comm, MPI_INFO_NULL, &request));
                    else
                        MPI(MPI_Precv_init(at, theirs, (MPI_Count)bytes / theirs, MPI_BYTE, peer, TAG, comm, MPI_INFO_NULL, &request));
                    for (int round = 0; round < 2; round++) {
                        seed++;
                        if (!sends) put(*to, at, poison, bytes);
                        MPI(MPI_Start(&request));
                        for (int i = 0; sends && i < PARTS; i++) {
                            size_t part = (size_t)(i * 5 % PARTS), part_bytes = bytes / PARTS;
                            put(*from, at + part * part_bytes, pattern(seed) + part * part_bytes, part_bytes);
                            MPI(MPI_Pready((int)part, request));
                        }
                        MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
                        if (!sends) check_area(*to, at, bytes, bytes, seed);
                    }
                    MPI(MPI_Request_free(&request));
                }
}
#else
static void test_partitioned(void) {
}
#endif

int main(int argc, char **argv) {
    static const struct {
        char letter;
        int needs_peer;
        void (*run)(void);
    } tests[] = {{'m', 1, test_modes},     {'s', 0, test_self},      {'w', 1, test_window}, {'l', 1, test_lengths},
                 {'f', 1, test_freed},     {'d', 1, test_datatypes}, {'p', 0, test_pack},   {'r', 1, test_partitioned}};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc > 1) kinds = argv[1];
    if (strspn(kinds, "DMPH") != strlen(kinds) || !*kinds) fail("unknown kinds `%s`: expected letters of DMPH", kinds);
    if (size < 2) fail("needs 2 ranks or more");
    if (strcmp(kinds, "H")) cuda_begin(rank);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    peer = rank ^ 1;
    first = rank < peer ? rank : peer;
    scratch = room(AREA), poison = room(AREA);
    memset(poison, POISON, AREA);
    for (const char *kind = kinds; *kind; kind++)
        out_area[(int)*kind] = allocate(*kind, AREA), in_area[(int)*kind] = allocate(*kind, AREA);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        double since = MPI_Wtime();
        if ((argc > 2 && !strchr(argv[2], tests[i].letter)) || (tests[i].needs_peer && peer >= size)) continue;
        tests[i].run();
        if (getenv("DEVICE_TIMES") && rank == 0) printf("%c %.2f s\n", tests[i].letter, MPI_Wtime() - since);
    }
    for (const char *kind = kinds; *kind; kind++)
        release(*kind, out_area[(int)*kind]), release(*kind, in_area[(int)*kind]);
    say("end");
    MPI_Comm_free(&comm);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) printf("ok p2p %s on %d ranks\n", kinds, size);
    MPI_Finalize();
    return 0;
}
