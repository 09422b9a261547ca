/* Messages between all ranks at random: of all lengths, sent in each mode, received in each way, posted before or after they arrive, with
 * gaps between the elements, waited for in any order. Every element is compared, and messages with one source, tag and communicator must not overtake each other.
 *
 * `letters [ROUNDS] [SEED] [LONGEST]`: all ranks draw the same plan, so a failure names the round. LONGEST is in elements. */
#include "check.h"

#include <unistd.h>

enum { MOST = 48, TAGS = 3, COMMS = 2, MOST_RANKS = 32 };
enum send_form { ISEND, ISSEND, IBSEND, SEND_INIT, SENDS };
enum recv_form { IRECV, RECV_INIT, IMPROBE, MPROBE, PROBE, RECVS };

static unsigned long long state;

static unsigned draw(unsigned below) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)(state >> 33) % below;
}

typedef struct {
    int from, to, tag, comm, count, number; /* `number`: how many of the round have the same source, destination, tag and communicator before it */
    int sent_by, received_by, gaps_out, gaps_in, late;
    int *out, *in;
    MPI_Request sending, receiving;
    MPI_Status status;
} Letter;

static MPI_Comm comms[COMMS];
static MPI_Datatype spaced;
static Letter letters[MOST];
/* Whether a rank receives from any source with any tag in this round: then all its receives of a communicator do. */
static int takes_any[MOST_RANKS][COMMS];

static int word(int round, const Letter *l, int i) {
    return value(round * 31 + l->from * 1009 + l->to * 97 + l->tag * 7 + l->comm * 3 + l->number * 100003, i);
}

static int *paper(int count, int gaps) {
    int *p = room((size_t)count * (gaps ? 2 : 1) * sizeof(int));
    for (int i = 0; i < count * (gaps ? 2 : 1); i++)
        p[i] = -99;
    return p;
}

static MPI_Datatype type(int gaps) {
    return gaps ? spaced : MPI_INT;
}

static int plan(int longest, int *most) {
    int count = 1 + (int)draw(MOST);
    *most = 0;
    for (int r = 0; r < size; r++)
        for (int c = 0; c < COMMS; c++)
            takes_any[r][c] = draw(3) == 0;
    for (int i = 0; i < count; i++) {
        Letter *l = &letters[i];
        memset(l, 0, sizeof *l);
        l->from = (int)draw((unsigned)size);
        l->to = (int)draw((unsigned)size);
        l->tag = (int)draw(TAGS);
        l->comm = (int)draw(COMMS);
        l->count = (int)draw(((unsigned)longest >> draw(16)) + 1);
        l->sent_by = (int)draw(SENDS);
        l->received_by = (int)draw(RECVS);
        l->gaps_out = draw(4) == 0;
        l->gaps_in = draw(4) == 0;
        l->late = draw(2) == 0;
        for (int k = 0; k < i; k++)
            l->number += letters[k].from == l->from && letters[k].to == l->to && letters[k].tag == l->tag && letters[k].comm == l->comm;
        *most = l->count > *most ? l->count : *most;
    }
    return count;
}

static void send(int round, Letter *l) {
    l->out = paper(l->count, l->gaps_out);
    for (int i = 0; i < l->count; i++)
        l->out[i * (l->gaps_out ? 2 : 1)] = word(round, l, i);
    MPI_Datatype t = type(l->gaps_out);
    MPI_Comm comm = comms[l->comm];
    if (l->sent_by == ISEND)
        MPI_Isend(l->out, l->count, t, l->to, l->tag, comm, &l->sending);
    else if (l->sent_by == ISSEND)
        MPI_Issend(l->out, l->count, t, l->to, l->tag, comm, &l->sending);
    else if (l->sent_by == IBSEND)
        MPI_Ibsend(l->out, l->count, t, l->to, l->tag, comm, &l->sending);
    else {
        MPI_Send_init(l->out, l->count, t, l->to, l->tag, comm, &l->sending);
        MPI_Start(&l->sending);
    }
}

/* Posts a receive, or finds the message first and receives it then. */
static void receive(Letter *l, int most) {
    int any = takes_any[rank][l->comm], from = any ? MPI_ANY_SOURCE : l->from, tag = any ? MPI_ANY_TAG : l->tag;
    int count = any ? most : l->count;
    MPI_Comm comm = comms[l->comm];
    MPI_Datatype t = type(l->gaps_in);
    MPI_Message message;
    MPI_Status found;
    int there = 0;
    l->in = paper(count, l->gaps_in);
    switch (l->received_by) {
    case RECV_INIT:
        MPI_Recv_init(l->in, count, t, from, tag, comm, &l->receiving);
        MPI_Start(&l->receiving);
        break;
    case IMPROBE:
        while (!there)
            MPI_Improbe(from, tag, comm, &there, &message, &found);
        MPI_Imrecv(l->in, count, t, &message, &l->receiving);
        break;
    case MPROBE:
        MPI_Mprobe(from, tag, comm, &message, &found);
        MPI_Imrecv(l->in, count, t, &message, &l->receiving);
        break;
    case PROBE:
        MPI_Probe(from, tag, comm, &found);
        MPI_Irecv(l->in, count, t, found.MPI_SOURCE, found.MPI_TAG, comm, &l->receiving);
        break;
    default:
        MPI_Irecv(l->in, count, t, from, tag, comm, &l->receiving);
    }
}

/* The letter of the plan that a receive must have got: the next one of its source and tag. */
static const Letter *meant(const Letter *l, int count, int seen[MOST]) {
    for (int i = 0; i < count; i++) {
        const Letter *other = &letters[i];
        if (!seen[i] && other->to == rank && other->comm == l->comm && other->from == l->status.MPI_SOURCE && other->tag == l->status.MPI_TAG) {
            seen[i] = 1;
            return other;
        }
    }
    return NULL;
}

static void compare(int round, const Letter *l, const Letter *expected) {
    int got = -1, bad = 0;
    MPI_Get_count(&l->status, type(l->gaps_in), &got);
    if (expected == NULL || got != expected->count) {
        wrong++;
        fprintf(stderr, "rank %d of %d: round %d: %d elements from %d with tag %d; %d expected\n", rank, size, round, got, l->status.MPI_SOURCE, l->status.MPI_TAG,
                expected ? expected->count : -1);
        return;
    }
    for (int i = 0; i < got; i++)
        bad += l->in[i * (l->gaps_in ? 2 : 1)] != word(round, expected, i) || (l->gaps_in && l->in[2 * i + 1] != -99);
    if (bad) {
        wrong++;
        fprintf(stderr, "rank %d of %d: round %d: %d of %d elements from %d with tag %d are wrong (sent by %d, received by %d)\n", rank, size, round, bad, got,
                expected->from, expected->tag, expected->sent_by, l->received_by);
    }
}

/* Waits for all requests, in one of several ways. */
static void wait_all(int how, int count, MPI_Request *requests, MPI_Status *statuses) {
    int index, done, indices[2 * MOST], some;
    MPI_Status got[2 * MOST];
    if (how == 0) {
        MPI_Waitall(count, requests, statuses);
    } else if (how == 1) {
        for (int i = 0; i < count; i++) {
            MPI_Waitany(count, requests, &index, &got[0]);
            statuses[index] = got[0];
        }
    } else if (how == 2) {
        for (int left = count; left > 0; left -= some) {
            MPI_Waitsome(count, requests, &some, indices, got);
            for (int i = 0; i < some; i++)
                statuses[indices[i]] = got[i];
        }
    } else {
        for (int i = count - 1; i >= 0; i--)
            for (done = 0; !done;)
                MPI_Test(&requests[i], &done, &statuses[i]);
    }
}

static void exchange(int round, int longest) {
    int most, count = plan(longest, &most), how = (int)draw(4), laggard = (int)draw(16);
    MPI_Request requests[2 * MOST], never;
    MPI_Status statuses[2 * MOST], cancelled;
    int flying = 0, seen[MOST] = {0}, was;
    MPI_Irecv(&was, 1, MPI_INT, MPI_ANY_SOURCE, TAGS + 1, MPI_COMM_WORLD, &never);
    if (laggard == rank)
        usleep(300);
    /* What is to be found must not be taken by a receive that is posted already: with any source, all are posted, in the plan's order. */
    for (int i = 0; i < count; i++) {
        Letter *l = &letters[i];
        int is_found = l->received_by >= IMPROBE, joins = takes_any[rank][l->comm];
        for (int k = 0; k < count && !joins; k++)
            joins = letters[k].to == rank && letters[k].from == l->from && letters[k].tag == l->tag && letters[k].comm == l->comm && k != i;
        if (is_found && joins)
            l->received_by = IRECV;
        l->late |= l->received_by >= IMPROBE;
        if (joins)
            l->late = 0;
        if (l->to == rank && !l->late)
            receive(l, most);
    }
    for (int i = 0; i < count; i++)
        if (letters[i].from == rank)
            send(round, &letters[i]);
    for (int i = 0; i < count; i++)
        if (letters[i].to == rank && letters[i].late)
            receive(&letters[i], most);
    for (int i = 0; i < count; i++) {
        if (letters[i].to == rank)
            requests[flying++] = letters[i].receiving;
        if (letters[i].from == rank)
            requests[flying++] = letters[i].sending;
    }
    wait_all(how, flying, requests, statuses);
    flying = 0;
    for (int i = 0; i < count; i++) {
        Letter *l = &letters[i];
        if (l->to == rank) {
            l->status = statuses[flying++];
            if (l->received_by == RECV_INIT)
                MPI_Request_free(&l->receiving);
        }
        if (l->from == rank) {
            flying++;
            if (l->sent_by == SEND_INIT)
                MPI_Request_free(&l->sending);
            free(l->out);
        }
    }
    for (int i = 0; i < count; i++)
        if (letters[i].to == rank) {
            compare(round, &letters[i], meant(&letters[i], count, seen));
            free(letters[i].in);
        }
    MPI_Cancel(&never);
    MPI_Wait(&never, &cancelled);
    MPI_Test_cancelled(&cancelled, &was);
    CHECK(was);
}

int main(int argc, char **argv) {
    begin(&argc, &argv);
    int rounds = argc > 1 ? atoi(argv[1]) : 100, seed = argc > 2 ? atoi(argv[2]) : 1, longest = argc > 3 ? atoi(argv[3]) : 60000;
    if (size > MOST_RANKS) {
        fprintf(stderr, "letters is for at most %d ranks\n", MOST_RANKS);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    comms[0] = MPI_COMM_WORLD;
    MPI_Comm_dup(MPI_COMM_WORLD, &comms[1]);
    MPI_Type_create_resized(MPI_INT, 0, 2 * sizeof(int), &spaced);
    MPI_Type_commit(&spaced);
    int bytes = MOST * (longest * (int)sizeof(int) + MPI_BSEND_OVERHEAD);
    void *buffer = room((size_t)bytes);
    MPI_Buffer_attach(buffer, bytes);
    state = (unsigned)seed * 2654435761u + 1;
    for (int round = 0; round < rounds; round++) {
        exchange(round, longest);
        /* A receive from any source must not get a message of the next round. */
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Buffer_detach(&buffer, &bytes);
    free(buffer);
    MPI_Type_free(&spaced);
    MPI_Comm_free(&comms[1]);
    return finish("letters");
}
