/* Point-to-point messages (MPI 5.0 chapter 3): modes, wildcards, order, probes, statuses, truncation. */
#include "check.h"

/* Around the eager limits of the known libraries, and beyond. */
static const int lengths[] = {0, 1, 2, 100, 1000, 4095, 4096, 20000, 300000};
enum { LENGTHS = sizeof lengths / sizeof *lengths, LONGEST = 300000 };

static int *out, *in;

typedef int Send(const void *, int, MPI_Datatype, int, int, MPI_Comm);
typedef int Isend(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);

static int is_of(const MPI_Status *status, int source, int tag, int count) {
    int got = -1, elements = -1, cancelled = 1;
    MPI_Get_count(status, MPI_INT, &got);
    MPI_Get_elements(status, MPI_INT, &elements);
    MPI_Test_cancelled(status, &cancelled);
    return status->MPI_SOURCE == source && status->MPI_TAG == tag && got == count && elements == count && !cancelled;
}

/* Round the ring: the receive is posted first, so that every mode is allowed. */
static void blocking(Send *send, int seed) {
    for (int l = 0; l < LENGTHS; l++) {
        int count = lengths[l];
        MPI_Request request;
        MPI_Status status;
        memset(in, 0, (size_t)count * sizeof *in);
        fill(out, count, seed + rank);
        MPI_Irecv(in, count, MPI_INT, left(), l, MPI_COMM_WORLD, &request);
        MPI_Barrier(MPI_COMM_WORLD);
        CHECK(send(out, count, MPI_INT, right(), l, MPI_COMM_WORLD) == MPI_SUCCESS);
        /* The buffer of a completed send may change. */
        fill(out, count, seed + 1000);
        MPI_Wait(&request, &status);
        CHECK(request == MPI_REQUEST_NULL);
        CHECK(filled(in, count, seed + left()));
        CHECK(is_of(&status, left(), l, count));
    }
}

static void nonblocking(Isend *send, int seed, int posted_first) {
    for (int l = 0; l < LENGTHS; l++) {
        int count = lengths[l];
        MPI_Request requests[2];
        MPI_Status statuses[2];
        memset(in, 0, (size_t)count * sizeof *in);
        fill(out, count, seed + rank);
        if (posted_first) {
            MPI_Irecv(in, count, MPI_INT, left(), l, MPI_COMM_WORLD, &requests[0]);
            MPI_Barrier(MPI_COMM_WORLD);
        }
        send(out, count, MPI_INT, right(), l, MPI_COMM_WORLD, &requests[1]);
        if (!posted_first) {
            MPI_Barrier(MPI_COMM_WORLD);
            MPI_Irecv(in, count, MPI_INT, left(), l, MPI_COMM_WORLD, &requests[0]);
        }
        MPI_Waitall(2, requests, statuses);
        CHECK(filled(in, count, seed + left()));
        CHECK(is_of(&statuses[0], left(), l, count));
    }
}

static void modes(void) {
    int bytes;
    MPI_Pack_size(LONGEST, MPI_INT, MPI_COMM_WORLD, &bytes);
    bytes = 2 * (bytes + MPI_BSEND_OVERHEAD);
    void *buffer = room((size_t)bytes), *back;
    MPI_Buffer_attach(buffer, bytes);
    blocking(MPI_Send, 1);
    blocking(MPI_Ssend, 2);
    blocking(MPI_Rsend, 3);
    blocking(MPI_Bsend, 4);
    for (int posted_first = 0; posted_first < 2; posted_first++) {
        nonblocking(MPI_Isend, 5, posted_first);
        nonblocking(MPI_Issend, 6, posted_first);
        nonblocking(MPI_Ibsend, 7, posted_first);
    }
    nonblocking(MPI_Irsend, 8, 1);
    int was;
    MPI_Buffer_detach(&back, &was);
    CHECK(back == buffer && was == bytes);
    free(buffer);
}

/* A synchronous send completes only when it is received. */
static void synchronous(void) {
    MPI_Request request;
    int token = rank, got = -1, over = 1;
    MPI_Issend(&token, 1, MPI_INT, right(), 1, MPI_COMM_WORLD, &request);
    for (int i = 0; i < 100; i++) {
        MPI_Test(&request, &over, MPI_STATUS_IGNORE);
        CHECK(!over);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Recv(&got, 1, MPI_INT, left(), 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(got == left());
}

/* Messages of one sender arrive in the order sent, whatever their lengths; those with other tags are left alone. */
static void order(void) {
    enum { MANY = 60 };
    MPI_Request requests[MANY];
    int *messages[MANY];
    for (int i = 0; i < MANY; i++) {
        int count = lengths[(i * 5) % (LENGTHS - 1)] + 1;
        messages[i] = room((size_t)count * sizeof(int));
        fill(messages[i], count, i);
        messages[i][0] = i;
        MPI_Isend(messages[i], count, MPI_INT, 0, i % 3, MPI_COMM_WORLD, &requests[i]);
    }
    if (rank == 0) {
        int *next = calloc((size_t)size * 3, sizeof *next);
        /* First those with tag 1, from any source; then the others in order of arrival. */
        for (int k = 0; k < size * MANY; k++) {
            MPI_Status status;
            int tag = k < size * MANY / 3 ? 1 : MPI_ANY_TAG, count;
            MPI_Recv(in, LONGEST, MPI_INT, MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, &status);
            MPI_Get_count(&status, MPI_INT, &count);
            int *sequence = &next[status.MPI_SOURCE * 3 + status.MPI_TAG], i = in[0];
            CHECK(i == 3 * *sequence + status.MPI_TAG);
            CHECK(count == lengths[(i * 5) % (LENGTHS - 1)] + 1);
            CHECK(filled(in + 1, 0, 0) && (count < 2 || in[count - 1] == value(i, count - 1)));
            (*sequence)++;
        }
        free(next);
    }
    MPI_Waitall(MANY, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < MANY; i++)
        free(messages[i]);
}

/* Receives are matched in the order posted. */
static void posted_order(void) {
    enum { MANY = 12 };
    MPI_Request requests[MANY];
    int got[MANY], sent[MANY];
    for (int i = 0; i < MANY; i++)
        MPI_Irecv(&got[i], 1, MPI_INT, i % 2 ? MPI_ANY_SOURCE : left(), i % 3 ? MPI_ANY_TAG : 5, MPI_COMM_WORLD, &requests[i]);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < MANY; i++) {
        sent[i] = 100 * rank + i;
        MPI_Send(&sent[i], 1, MPI_INT, right(), 5, MPI_COMM_WORLD);
    }
    MPI_Waitall(MANY, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < MANY; i++)
        CHECK(got[i] == 100 * left() + i);
}

static void probes(void) {
    for (int l = 0; l < LENGTHS; l++) {
        int count = lengths[l], there = 0;
        MPI_Request request;
        MPI_Status status;
        MPI_Message message;
        fill(out, count, rank);
        MPI_Isend(out, count, MPI_INT, right(), 40 + l, MPI_COMM_WORLD, &request);
        MPI_Probe(left(), MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        CHECK(is_of(&status, left(), 40 + l, count));
        while (!there)
            MPI_Iprobe(MPI_ANY_SOURCE, 40 + l, MPI_COMM_WORLD, &there, &status);
        CHECK(is_of(&status, left(), 40 + l, count));
        MPI_Iprobe(left(), 999, MPI_COMM_WORLD, &there, &status);
        CHECK(!there);
        if (l % 2) {
            MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &message, &status);
        } else {
            for (there = 0; !there;)
                MPI_Improbe(left(), 40 + l, MPI_COMM_WORLD, &there, &message, &status);
        }
        CHECK(is_of(&status, left(), 40 + l, count));
        /* It is removed from matching: no other probe or receive finds it. */
        MPI_Iprobe(left(), MPI_ANY_TAG, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
        CHECK(!there && message != MPI_MESSAGE_NULL && message != MPI_MESSAGE_NO_PROC);
        memset(in, 0, (size_t)count * sizeof *in);
        if (l % 3) {
            MPI_Mrecv(in, count, MPI_INT, &message, &status);
        } else {
            MPI_Request receive;
            MPI_Imrecv(in, count, MPI_INT, &message, &receive);
            MPI_Wait(&receive, &status);
        }
        CHECK(message == MPI_MESSAGE_NULL);
        CHECK(is_of(&status, left(), 40 + l, count));
        CHECK(filled(in, count, left()));
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

static void null_process(void) {
    int flag = 0, token = 77;
    MPI_Status status;
    MPI_Request requests[2];
    MPI_Message message;
    MPI_Send(&token, 1, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_WORLD);
    MPI_Ssend(&token, 1, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_WORLD);
    MPI_Recv(&token, 1, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_WORLD, &status);
    CHECK(is_of(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0));
    MPI_Recv(NULL, 0, MPI_DATATYPE_NULL, MPI_PROC_NULL, 1, MPI_COMM_WORLD, &status);
    CHECK(is_of(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0));
    MPI_Sendrecv(NULL, 0, MPI_DATATYPE_NULL, right(), 1, NULL, 0, MPI_DATATYPE_NULL, left(), 1, MPI_COMM_WORLD, &status);
    CHECK(is_of(&status, left(), 1, 0));
    MPI_Isend(&token, 1, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(&token, 1, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_WORLD, &requests[1]);
    MPI_Wait(&requests[1], &status);
    CHECK(is_of(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0));
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    MPI_Probe(MPI_PROC_NULL, 1, MPI_COMM_WORLD, &status);
    CHECK(is_of(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0));
    MPI_Iprobe(MPI_PROC_NULL, 1, MPI_COMM_WORLD, &flag, &status);
    CHECK(flag);
    MPI_Mprobe(MPI_PROC_NULL, 1, MPI_COMM_WORLD, &message, &status);
    CHECK(message == MPI_MESSAGE_NO_PROC);
    CHECK(is_of(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0));
    MPI_Mrecv(&token, 1, MPI_INT, &message, &status);
    CHECK(message == MPI_MESSAGE_NULL);
    CHECK(is_of(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0));
    MPI_Sendrecv(&token, 1, MPI_INT, MPI_PROC_NULL, 0, &token, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &status);
    CHECK(is_of(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0));
    CHECK(token == 77);
}

/* MPICH 5.0.2 leaves the status of the non-blocking forms empty. */
static void exchanges(void) {
    for (int l = 0; l < LENGTHS; l++) {
        int count = lengths[l];
        MPI_Status status;
        MPI_Request request;
        fill(out, count, rank);
        memset(in, 0, (size_t)count * sizeof *in);
        MPI_Sendrecv(out, count, MPI_INT, right(), 5, in, count, MPI_INT, left(), 5, MPI_COMM_WORLD, &status);
        CHECK(is_of(&status, left(), 5, count));
        CHECK(filled(in, count, left()));
        MPI_Sendrecv_replace(in, count, MPI_INT, right(), 6, MPI_ANY_SOURCE, 6, MPI_COMM_WORLD, &status);
        CHECK(is_of(&status, left(), 6, count));
        CHECK(filled(in, count, (rank + 2 * size - 2) % size));
        MPI_Isendrecv(out, count, MPI_INT, right(), 7, in, count, MPI_INT, left(), MPI_ANY_TAG, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, &status);
        CHECK(on_mpich() || is_of(&status, left(), 7, count));
        CHECK(filled(in, count, left()));
        MPI_Isendrecv_replace(in, count, MPI_INT, right(), 8, left(), 8, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, &status);
        CHECK(on_mpich() || is_of(&status, left(), 8, count));
        CHECK(filled(in, count, (rank + 2 * size - 2) % size));
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

/* A message longer than its buffer is an error, does not touch the memory after the buffer, and affects no later message. */
static void truncation(void) {
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int l = 1; l < LENGTHS; l++) {
        int count = lengths[l], place = count / 2;
        MPI_Request request;
        MPI_Status status;
        for (int posted_first = 0; posted_first < 2; posted_first++) {
            fill(out, count, rank);
            for (int i = 0; i < count; i++)
                in[i] = -1;
            if (posted_first) {
                MPI_Irecv(in, place, MPI_INT, left(), 3, MPI_COMM_WORLD, &request);
                MPI_Barrier(MPI_COMM_WORLD);
                MPI_Send(out, count, MPI_INT, right(), 3, MPI_COMM_WORLD);
                FAILS(MPI_Wait(&request, &status), MPI_ERR_TRUNCATE);
            } else {
                MPI_Isend(out, count, MPI_INT, right(), 3, MPI_COMM_WORLD, &request);
                FAILS(MPI_Recv(in, place, MPI_INT, left(), 3, MPI_COMM_WORLD, &status), MPI_ERR_TRUNCATE);
                MPI_Wait(&request, MPI_STATUS_IGNORE);
            }
            CHECK(status.MPI_SOURCE == left() && status.MPI_TAG == 3);
            int spared = 1;
            for (int i = place; i < count; i++)
                spared &= in[i] == -1;
            CHECK(spared);
            int token = rank, got = -1;
            MPI_Sendrecv(&token, 1, MPI_INT, right(), 4, &got, 1, MPI_INT, left(), 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            CHECK(got == left());
        }
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

/* The forms with MPI_Count are the same functions. */
static void large_counts(void) {
    MPI_Status status;
    MPI_Request request;
    MPI_Count count = 20000, got = -1;
    fill(out, 20000, rank);
    memset(in, 0, 20000 * sizeof *in);
    MPI_Irecv_c(in, count, MPI_INT, left(), 1, MPI_COMM_WORLD, &request);
    MPI_Send_c(out, count, MPI_INT, right(), 1, MPI_COMM_WORLD);
    MPI_Wait(&request, &status);
    MPI_Get_count_c(&status, MPI_INT, &got);
    CHECK(got == count && filled(in, 20000, left()));
    MPI_Get_elements_c(&status, MPI_SHORT, &got);
    CHECK(got == 2 * count);
    MPI_Sendrecv_c(out, count, MPI_INT, right(), 2, in, count, MPI_INT, left(), 2, MPI_COMM_WORLD, &status);
    MPI_Isend_c(out, count, MPI_INT, right(), 3, MPI_COMM_WORLD, &request);
    MPI_Recv_c(in, count, MPI_INT, left(), 3, MPI_COMM_WORLD, &status);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(filled(in, 20000, left()));
}

/* A received message may end within an element of the receiver's type. */
static void part_of_an_element(void) {
    MPI_Datatype pair;
    MPI_Request request;
    MPI_Status status;
    int whole = -1, parts = -1;
    MPI_Type_contiguous(2, MPI_INT, &pair);
    MPI_Type_commit(&pair);
    MPI_Isend(out, 7, MPI_INT, right(), 4, MPI_COMM_WORLD, &request);
    MPI_Recv(in, 100, pair, left(), 4, MPI_COMM_WORLD, &status);
    MPI_Get_count(&status, pair, &whole);
    MPI_Get_elements(&status, pair, &parts);
    CHECK(whole == MPI_UNDEFINED && parts == 7);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Type_free(&pair);
}

static void status_fields(void) {
    MPI_Status status;
    memset(&status, 0, sizeof status);
    int source, tag, error, count, cancelled;
    MPI_Status_set_source(&status, 3);
    MPI_Status_set_tag(&status, 4);
    MPI_Status_set_error(&status, MPI_ERR_TAG);
    MPI_Status_set_elements(&status, MPI_DOUBLE, 5);
    MPI_Status_set_cancelled(&status, 1);
    MPI_Status_get_source(&status, &source);
    MPI_Status_get_tag(&status, &tag);
    MPI_Status_get_error(&status, &error);
    MPI_Get_count(&status, MPI_DOUBLE, &count);
    MPI_Test_cancelled(&status, &cancelled);
    CHECK(source == 3 && tag == 4 && error == MPI_ERR_TAG && count == 5 && cancelled);
    MPI_Count huge = (MPI_Count)1 << 33, many = 0;
    MPI_Status_set_elements_c(&status, MPI_BYTE, huge);
    MPI_Get_elements_c(&status, MPI_BYTE, &many);
    CHECK(many == huge);
    MPI_Get_count(&status, MPI_BYTE, &count);
    CHECK(count == MPI_UNDEFINED);
}

int main(int argc, char **argv) {
    begin(&argc, &argv);
    out = room(LONGEST * sizeof *out);
    in = room(LONGEST * sizeof *in);
    modes();
    synchronous();
    order();
    posted_order();
    probes();
    null_process();
    exchanges();
    truncation();
    large_counts();
    part_of_an_element();
    status_fields();
    free(out);
    free(in);
    return finish("p2p");
}
