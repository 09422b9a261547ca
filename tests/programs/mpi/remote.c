/* Operations on the memory of other ranks at random: of all kinds, on elements of one to eight bytes, of all lengths, with gaps on either side, in
 * windows of each kind and between all kinds of synchronization. Every byte of every window is compared with what must be there.
 *
 * `remote [ROUNDS] [SEED] [LONGEST]`: all ranks draw the same plan, so a failure names the round. LONGEST is in bytes. */
#include "check.h"

#include <stdint.h>
#include <unistd.h>

enum { MOST_RANKS = 8, MOST = 40, WINDOWS = 5, MARGIN = 40 };
enum window { ALLOCATED, CREATED, DYNAMIC, SHARED };
enum epoch { FENCES, LOCKS, LOCK_ALL, GROUPS, EPOCHS };
/* What happens to a piece of memory in a round. The first ones have one origin, the others several at the same time. */
enum use { OWN, PUT, PUT_AND_GET, REPLACE, IN_ORDER, SWAP, GET, READ, ADD, ADD_AND_GET, FETCH_AND_ADD, FLIP, LARGEST, USES };
#define HAS_ONE_ORIGIN(use) ((use) <= SWAP)
/* Whether a swap finds what it compares with. */
#define IS_EQUAL(p) ((p)->wait % 2 == 0)
static const char *const names[USES] = {"own", "put", "put and get", "replace", "in order", "swap", "get", "read", "add", "add and get", "fetch and add", "flip", "largest"};

static unsigned long long state;

static unsigned draw(unsigned below) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)(state >> 33) % below;
}

typedef struct {
    enum window kind;
    MPI_Win win;
    unsigned char *memory;
    MPI_Aint starts[MOST_RANKS]; /* what a target's displacements begin at */
    unsigned char *must[MOST_RANKS]; /* what is in the memory of each rank */
} Window;

/* One piece: `count` elements of `bytes` bytes, `stride` elements apart. */
typedef struct {
    enum use use;
    int target, first, count, bytes, stride, gaps, wait;
    int acts[MOST_RANKS], exclusive[MOST_RANKS];
    void *sent, *got, *before;
    uint64_t compared;
    MPI_Request request;
} Piece;

static int longest, room_each;
static Window windows[WINDOWS];
static Piece pieces[MOST];

static MPI_Datatype element(int bytes) {
    return bytes == 1 ? MPI_UINT8_T : bytes == 2 ? MPI_UINT16_T : bytes == 4 ? MPI_UINT32_T : MPI_UINT64_T;
}

static uint64_t load(const void *from, int bytes) {
    uint64_t word = 0;
    memcpy(&word, from, (size_t)bytes); /* the first bytes are the low ones on all machines that rsd runs on */
    return word;
}

static void store(void *to, int bytes, uint64_t word) {
    memcpy(to, &word, (size_t)bytes);
}

/* A new type of this many elements at a distance. */
static MPI_Datatype spaced(int count, int bytes, int stride) {
    MPI_Datatype type;
    MPI_Type_vector(count, 1, stride, element(bytes), &type);
    MPI_Type_commit(&type);
    return type;
}

/* Element `i` of what `origin` contributes. */
static uint64_t given(int round, const Piece *p, int origin, int i) {
    if (p->use == ADD_AND_GET || p->use == FETCH_AND_ADD)
        return 1ull << origin;
    uint64_t high = (unsigned)value(round * 131 + origin * 7 + p->first, 2 * i), low = (unsigned)value(round * 131 + origin * 7 + p->target, 2 * i + 1);
    return p->bytes == 8 ? high << 32 | low : low >> (32 - 8 * p->bytes);
}

static unsigned char *where(unsigned char *memory, const Piece *p, int i) {
    return memory + p->first + (size_t)i * p->stride * p->bytes;
}

static int plan(void) {
    int next[MOST_RANKS] = {0}, count = 0, wanted = 1 + (int)draw(MOST);
    for (int k = 0; k < wanted; k++) {
        Piece *p = &pieces[count];
        memset(p, 0, sizeof *p);
        p->use = (enum use)draw(USES);
        p->target = (int)draw((unsigned)size);
        p->bytes = 1 << draw(4);
        p->stride = draw(3) ? 1 : 1 + (int)draw(3);
        p->gaps = draw(4) == 0;
        p->wait = (int)draw(6);
        p->count = 1 + (int)draw(((unsigned)longest >> draw(17)) / (unsigned)p->bytes + 1);
        if (p->use == SWAP)
            p->count = 1;
        if (p->use == FETCH_AND_ADD) /* one call for each element */
            p->count = 1 + p->count % 50;
        int aligned = (next[p->target] + p->bytes - 1) / p->bytes * p->bytes;
        p->first = aligned + (int)draw(4) * p->bytes;
        /* Elements that are only copied may lie at any address. */
        if (p->use == PUT || p->use == GET || p->use == PUT_AND_GET)
            p->first += (int)draw(2) * (p->bytes / 2);
        int ends = p->first + ((p->count - 1) * p->stride + 1) * p->bytes;
        int only = (int)draw((unsigned)size), any = 0;
        for (int r = 0; r < size; r++) {
            p->acts[r] = HAS_ONE_ORIGIN(p->use) ? r == (p->use == OWN ? p->target : only) : draw(3) > 0;
            p->exclusive[r] = draw(3) == 0;
            any |= p->acts[r];
        }
        if (ends > room_each || !any)
            continue;
        next[p->target] = ends;
        count++;
    }
    return count;
}

/* Sets what must be in the memory of all after the round, and notes what is in the piece before it. */
static void apply(Window *w, int round, Piece *p) {
    p->before = room((size_t)p->count * 8);
    for (int i = 0; i < p->count; i++) {
        unsigned char *at = where(w->must[p->target], p, i);
        uint64_t word = load(at, p->bytes);
        ((uint64_t *)p->before)[i] = word;
        for (int r = 0; r < size; r++) {
            if (!p->acts[r] || p->use == GET || p->use == READ)
                continue;
            uint64_t by = given(round, p, r, i);
            if (p->use == ADD || p->use == ADD_AND_GET || p->use == FETCH_AND_ADD)
                word += by;
            else if (p->use == FLIP)
                word ^= by;
            else if (p->use == LARGEST)
                word = by > word ? by : word;
            else if (p->use == SWAP && !IS_EQUAL(p))
                continue;
            else
                word = by;
        }
        store(at, p->bytes, word);
    }
}

/* This rank's part of a piece. */
static void act(Window *w, int round, Piece *p, enum epoch epoch) {
    int n = p->count, step = p->gaps ? 2 : 1, b = p->bytes;
    size_t len = (size_t)n * step * b;
    p->sent = room(len + 8);
    p->got = room(len + 8);
    memset(p->sent, 0x77, len);
    memset(p->got, 0x66, len);
    for (int i = 0; i < n; i++)
        store((char *)p->sent + (size_t)i * step * b, b, given(round, p, rank, i));
    MPI_Datatype one = element(b), here = spaced(n, b, step), there = spaced(n, b, p->stride);
    int is_plain = !p->gaps && p->stride == 1, here_n = is_plain ? n : 1, t = p->target;
    MPI_Datatype here_t = is_plain ? one : here, there_t = is_plain ? one : there;
    MPI_Aint at = w->starts[t] + p->first;
    MPI_Win win = w->win;
    int by_request = (epoch == LOCKS || epoch == LOCK_ALL) && p->wait >= 4;
    MPI_Request request = MPI_REQUEST_NULL;
    if (epoch == LOCKS)
        MPI_Win_lock(p->exclusive[rank] ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED, t, 0, win);
    switch (p->use) {
    case PUT:
    case PUT_AND_GET:
        if (by_request)
            MPI_Rput(p->sent, here_n, here_t, t, at, here_n, there_t, win, &request);
        else
            MPI_Put(p->sent, here_n, here_t, t, at, here_n, there_t, win);
        if (p->use == PUT_AND_GET && (epoch == LOCKS || epoch == LOCK_ALL)) {
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            MPI_Win_flush(t, win);
            MPI_Get(p->got, here_n, here_t, t, at, here_n, there_t, win);
        }
        break;
    case GET:
        if (by_request)
            MPI_Rget(p->got, here_n, here_t, t, at, here_n, there_t, win, &request);
        else
            MPI_Get(p->got, here_n, here_t, t, at, here_n, there_t, win);
        break;
    case READ:
        MPI_Get_accumulate(NULL, 0, one, p->got, here_n, here_t, t, at, here_n, there_t, MPI_NO_OP, win);
        break;
    case REPLACE:
    case ADD:
    case FLIP:
    case LARGEST: {
        MPI_Op op = p->use == REPLACE ? MPI_REPLACE : p->use == ADD ? MPI_SUM : p->use == FLIP ? MPI_BXOR : MPI_MAX;
        if (by_request)
            MPI_Raccumulate(p->sent, here_n, here_t, t, at, here_n, there_t, op, win, &request);
        else
            MPI_Accumulate(p->sent, here_n, here_t, t, at, here_n, there_t, op, win);
        break;
    }
    case IN_ORDER:
        /* Accumulates of one origin to one place keep their order. */
        for (int i = 0; i < n; i++)
            store((char *)p->got + (size_t)i * step * b, b, ~given(round, p, rank, i));
        MPI_Accumulate(p->got, here_n, here_t, t, at, here_n, there_t, MPI_REPLACE, win);
        MPI_Accumulate(p->sent, here_n, here_t, t, at, here_n, there_t, MPI_REPLACE, win);
        break;
    case SWAP:
        p->compared = ((uint64_t *)p->before)[0] ^ !IS_EQUAL(p);
        MPI_Compare_and_swap(p->sent, &p->compared, p->got, one, t, at, win);
        break;
    case ADD_AND_GET:
        if (by_request)
            MPI_Rget_accumulate(p->sent, here_n, here_t, p->got, here_n, here_t, t, at, here_n, there_t, MPI_SUM, win, &request);
        else
            MPI_Get_accumulate(p->sent, here_n, here_t, p->got, here_n, here_t, t, at, here_n, there_t, MPI_SUM, win);
        break;
    case FETCH_AND_ADD:
        for (int i = 0; i < n; i++) {
            size_t mine = (size_t)i * step * b;
            MPI_Fetch_and_op((char *)p->sent + mine, (char *)p->got + mine, one, t, at + (MPI_Aint)i * p->stride * b, MPI_SUM, win);
        }
        break;
    default:
        break;
    }
    if (p->wait == 1 && epoch == LOCK_ALL)
        MPI_Win_flush(t, win);
    if (p->wait == 2 && epoch == LOCK_ALL)
        MPI_Win_flush_all(win);
    if (p->wait == 3 && (epoch == LOCK_ALL || epoch == LOCKS))
        MPI_Win_flush_local(t, win);
    if (p->wait == 4)
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    p->request = request;
    if (epoch == LOCKS) {
        MPI_Wait(&p->request, MPI_STATUS_IGNORE);
        MPI_Win_unlock(t, win);
    }
    MPI_Type_free(&here);
    MPI_Type_free(&there);
}

/* Compares what this rank has got. Of those that add at the same time, each finds what some of the others have added, and never its own. */
static void compare(int round, const Piece *p, enum epoch epoch) {
    int step = p->gaps ? 2 : 1, b = p->bytes, bad = 0;
    int is_read = p->use == GET || p->use == READ || p->use == SWAP, adds = p->use == ADD_AND_GET || p->use == FETCH_AND_ADD;
    int is_put = p->use == PUT_AND_GET && (epoch == LOCKS || epoch == LOCK_ALL);
    uint64_t all = b == 8 ? ~0ull : (1ull << 8 * b) - 1;
    for (int i = 0; i < p->count; i++) {
        uint64_t got = load((char *)p->got + (size_t)i * step * b, b), before = ((uint64_t *)p->before)[i], added = (got - before) & all;
        if (is_read)
            bad += got != before;
        if (is_put)
            bad += got != given(round, p, rank, i);
        if (adds) {
            bad += (added >> rank & 1) != 0;
            for (int r = 0; r < 64; r++)
                bad += (added >> r & 1) && (r >= size || !p->acts[r]);
        }
        if (p->gaps && (is_read || is_put || adds))
            bad += load((char *)p->got + ((size_t)i * 2 + 1) * b, b) != (0x6666666666666666ull & all);
    }
    if (bad) {
        wrong++;
        fprintf(stderr, "rank %d of %d: round %d: got %d wrong of %d elements of %d bytes (%s, target %d, at %d, stride %d, epoch %d)\n", rank, size, round, bad,
                p->count, b, names[p->use], p->target, p->first, p->stride, epoch);
    }
}

/* Compares all of this rank's memory. */
static void compare_own(int round, const Window *w, int count, enum epoch epoch) {
    const unsigned char *must = w->must[rank];
    for (int at = 0; at < room_each + MARGIN; at++) {
        if (w->memory[at] == must[at])
            continue;
        const char *use = "none";
        for (int k = 0; k < count; k++)
            if (pieces[k].target == rank && pieces[k].first <= at)
                use = names[pieces[k].use];
        wrong++;
        fprintf(stderr, "rank %d of %d: round %d: byte %d of window %d is %d instead of %d (%s, epoch %d)\n", rank, size, round, at, (int)w->kind, w->memory[at],
                must[at], use, epoch);
        return;
    }
}

static void exchange(int round) {
    Window *w = &windows[draw(WINDOWS)];
    enum epoch epoch = (enum epoch)draw(EPOCHS);
    int count = plan(), laggard = (int)draw(16), order[MOST];
    MPI_Group everybody;
    MPI_Win_get_group(w->win, &everybody);
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, w->win);
    for (int k = 0; k < count; k++) {
        Piece *p = &pieces[k];
        for (int i = 0; p->use == OWN && p->target == rank && i < p->count; i++)
            store(where(w->memory, p, i), p->bytes, given(round, p, rank, i));
        apply(w, round, p);
        order[k] = (k + rank) % count;
    }
    MPI_Win_unlock(rank, w->win);
    MPI_Barrier(MPI_COMM_WORLD);
    if (laggard == rank)
        usleep(300);
    if (epoch == FENCES)
        MPI_Win_fence(MPI_MODE_NOPRECEDE, w->win);
    if (epoch == GROUPS) {
        MPI_Win_post(everybody, 0, w->win);
        MPI_Win_start(everybody, 0, w->win);
    }
    if (epoch == LOCK_ALL)
        MPI_Win_lock_all(0, w->win);
    for (int k = 0; k < count; k++)
        if (pieces[order[k]].acts[rank] && pieces[order[k]].use != OWN)
            act(w, round, &pieces[order[k]], epoch);
    for (int k = 0; k < count; k++)
        if (pieces[k].sent)
            MPI_Wait(&pieces[k].request, MPI_STATUS_IGNORE);
    if (epoch == LOCK_ALL)
        MPI_Win_unlock_all(w->win);
    if (epoch == GROUPS) {
        MPI_Win_complete(w->win);
        MPI_Win_wait(w->win);
    }
    if (epoch == FENCES)
        MPI_Win_fence(MPI_MODE_NOSUCCEED, w->win);
    MPI_Group_free(&everybody);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, w->win);
    compare_own(round, w, count, epoch);
    MPI_Win_unlock(rank, w->win);
    for (int k = 0; k < count; k++) {
        if (pieces[k].sent)
            compare(round, &pieces[k], epoch);
        free(pieces[k].sent);
        free(pieces[k].got);
        free(pieces[k].before);
    }
}

static void open_window(Window *w, enum window kind) {
    MPI_Aint bytes = room_each + MARGIN, here = 0;
    w->kind = kind;
    if (kind == ALLOCATED)
        MPI_Win_allocate(bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &w->memory, &w->win);
    else if (kind == SHARED)
        MPI_Win_allocate_shared(bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &w->memory, &w->win);
    else
        w->memory = room((size_t)bytes);
    if (kind == CREATED)
        MPI_Win_create(w->memory, bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &w->win);
    if (kind == DYNAMIC) {
        MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &w->win);
        MPI_Win_attach(w->win, w->memory, bytes);
        MPI_Get_address(w->memory, &here);
    }
    MPI_Allgather(&here, 1, MPI_AINT, w->starts, 1, MPI_AINT, MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, w->win);
    memset(w->memory, 0x55, (size_t)bytes);
    MPI_Win_unlock(rank, w->win);
    for (int r = 0; r < size; r++)
        w->must[r] = memset(room((size_t)bytes), 0x55, (size_t)bytes);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void close_window(Window *w) {
    if (w->kind == DYNAMIC) {
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Win_detach(w->win, w->memory);
    }
    MPI_Win_free(&w->win);
    if (w->kind == CREATED || w->kind == DYNAMIC)
        free(w->memory);
    for (int r = 0; r < size; r++)
        free(w->must[r]);
}

int main(int argc, char **argv) {
    begin(&argc, &argv);
    int rounds = argc > 1 ? atoi(argv[1]) : 100, seed = argc > 2 ? atoi(argv[2]) : 1, node_size;
    longest = argc > 3 ? atoi(argv[3]) : 40000;
    room_each = (4 * longest + 7) / 8 * 8;
    if (size > MOST_RANKS) {
        fprintf(stderr, "remote is for at most %d ranks\n", MOST_RANKS);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    MPI_Comm node;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_size(node, &node_size);
    MPI_Comm_free(&node);
    for (int k = 0; k < WINDOWS; k++)
        open_window(&windows[k], k < 3 ? (enum window)k : node_size == size ? SHARED : CREATED);
    state = (unsigned)seed * 2654435761u + 1;
    for (int round = 0; round < rounds; round++)
        exchange(round);
    for (int k = 0; k < WINDOWS; k++)
        close_window(&windows[k]);
    return finish("remote");
}
