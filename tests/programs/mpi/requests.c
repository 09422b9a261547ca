/* Requests (MPI 5.0 §3.7 to §3.9, §3.6): wait and test families, persistent ones, cancelling, freeing, buffered sends. */
#include "check.h"

enum { MANY = 8, LONG = 100000 };

static int is_empty(const MPI_Status *status) {
    int count = -1, cancelled = 1;
    MPI_Get_count(status, MPI_BYTE, &count);
    MPI_Test_cancelled(status, &cancelled);
    return status->MPI_SOURCE == MPI_ANY_SOURCE && status->MPI_TAG == MPI_ANY_TAG && count == 0 && !cancelled;
}

/* Receives of tags 0 to MANY-1 from the left, and the sends for them to the right. */
static int got[MANY];

static void post(MPI_Request *requests) {
    for (int i = 0; i < MANY; i++) {
        got[i] = -1;
        MPI_Irecv(&got[i], 1, MPI_INT, left(), i, MPI_COMM_WORLD, &requests[i]);
    }
}

static void feed(int i) {
    int token = 10 * rank + i;
    MPI_Send(&token, 1, MPI_INT, right(), i, MPI_COMM_WORLD);
}

static int has(int i, const MPI_Status *status) {
    return got[i] == 10 * left() + i && status->MPI_TAG == i && status->MPI_SOURCE == left();
}

static void null_requests(void) {
    MPI_Request nulls[3] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    MPI_Status statuses[3];
    int flag = 0, index = 5, count = 5, indices[3];
    MPI_Wait(nulls, statuses);
    CHECK(is_empty(statuses));
    MPI_Test(nulls, &flag, statuses);
    CHECK(flag && is_empty(statuses));
    MPI_Request_get_status(nulls[0], &flag, statuses);
    CHECK(flag && is_empty(statuses));
    MPI_Waitall(3, nulls, statuses);
    CHECK(is_empty(&statuses[2]));
    MPI_Testall(3, nulls, &flag, statuses);
    CHECK(flag);
    MPI_Waitany(3, nulls, &index, statuses);
    CHECK(index == MPI_UNDEFINED && is_empty(statuses));
    MPI_Testany(3, nulls, &index, &flag, statuses);
    CHECK(index == MPI_UNDEFINED && flag && is_empty(statuses));
    MPI_Waitsome(3, nulls, &count, indices, statuses);
    CHECK(count == MPI_UNDEFINED);
    MPI_Testsome(3, nulls, &count, indices, statuses);
    CHECK(count == MPI_UNDEFINED);
    MPI_Waitall(0, NULL, MPI_STATUSES_IGNORE);
    MPI_Waitany(0, NULL, &index, MPI_STATUS_IGNORE);
    CHECK(index == MPI_UNDEFINED);
}

static void any(void) {
    MPI_Request requests[MANY];
    MPI_Status status;
    int index, flag = 1, seen = 0;
    post(requests);
    MPI_Testany(MANY, requests, &index, &flag, &status);
    CHECK(!flag && index == MPI_UNDEFINED);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = MANY - 1; i >= 0; i--) {
        feed(i);
        if (i % 2) {
            MPI_Waitany(MANY, requests, &index, &status);
        } else {
            for (flag = 0; !flag;)
                MPI_Testany(MANY, requests, &index, &flag, &status);
        }
        CHECK(index >= 0 && index < MANY && requests[index] == MPI_REQUEST_NULL && has(index, &status));
        seen |= 1 << index;
    }
    CHECK(seen == (1 << MANY) - 1);
}

static void some(void) {
    MPI_Request requests[MANY];
    MPI_Status statuses[MANY];
    int indices[MANY], count = 5, seen = 0, turn = 0;
    post(requests);
    MPI_Testsome(MANY, requests, &count, indices, statuses);
    CHECK(count == 0);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < MANY; i++)
        feed(i);
    while (seen != (1 << MANY) - 1) {
        if (turn++ % 2)
            MPI_Testsome(MANY, requests, &count, indices, statuses);
        else
            MPI_Waitsome(MANY, requests, &count, indices, statuses);
        for (int k = 0; k < count; k++) {
            CHECK(!(seen & 1 << indices[k]) && has(indices[k], &statuses[k]));
            seen |= 1 << indices[k];
        }
    }
    MPI_Waitsome(MANY, requests, &count, indices, statuses);
    CHECK(count == MPI_UNDEFINED);
}

static void all(void) {
    MPI_Request requests[MANY];
    MPI_Status statuses[MANY];
    int flag = 1;
    post(requests);
    MPI_Testall(MANY, requests, &flag, statuses);
    CHECK(!flag && requests[0] != MPI_REQUEST_NULL);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < MANY; i++)
        feed(i);
    for (flag = 0; !flag;)
        MPI_Testall(MANY, requests, &flag, statuses);
    for (int i = 0; i < MANY; i++)
        CHECK(has(i, &statuses[i]) && requests[i] == MPI_REQUEST_NULL);
}

/* A query of a request does not change it. */
static void looking(void) {
    MPI_Request requests[MANY];
    MPI_Status statuses[MANY];
    int flag = 1, index, count, indices[MANY];
    post(requests);
    MPI_Request_get_status(requests[0], &flag, statuses);
    CHECK(!flag);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < MANY; i++)
        feed(i);
    for (flag = 0; !flag;)
        MPI_Request_get_status_all(MANY, requests, &flag, statuses);
    CHECK(has(3, &statuses[3]));
    MPI_Request_get_status_any(MANY, requests, &index, &flag, statuses);
    CHECK(flag && index >= 0 && index < MANY && has(index, statuses));
    MPI_Request_get_status_some(MANY, requests, &count, indices, statuses);
    CHECK(count == MANY);
    MPI_Request_get_status(requests[2], &flag, statuses);
    CHECK(flag && has(2, statuses) && requests[2] != MPI_REQUEST_NULL);
    MPI_Waitall(MANY, requests, MPI_STATUSES_IGNORE);
}

static void persistent(void) {
    enum { KINDS = 4 };
    int *out = room(LONG * sizeof *out), *in = room(LONG * sizeof *in), flag;
    int bytes = LONG * (int)sizeof(int) + MPI_BSEND_OVERHEAD;
    void *buffer = room((size_t)bytes);
    MPI_Buffer_attach(buffer, bytes);
    for (int count = 1; count <= LONG; count *= 100) {
        for (int kind = 0; kind < KINDS; kind++) {
            MPI_Request pair[2];
            MPI_Status statuses[2];
            MPI_Recv_init(in, count, MPI_INT, left(), kind, MPI_COMM_WORLD, &pair[0]);
            if (kind == 0)
                MPI_Send_init(out, count, MPI_INT, right(), kind, MPI_COMM_WORLD, &pair[1]);
            else if (kind == 1)
                MPI_Ssend_init(out, count, MPI_INT, right(), kind, MPI_COMM_WORLD, &pair[1]);
            else if (kind == 2)
                MPI_Bsend_init(out, count, MPI_INT, right(), kind, MPI_COMM_WORLD, &pair[1]);
            else
                MPI_Rsend_init(out, count, MPI_INT, right(), kind, MPI_COMM_WORLD, &pair[1]);
            /* Not started: the request completes at once, with an empty status. */
            MPI_Wait(&pair[0], statuses);
            CHECK(pair[0] != MPI_REQUEST_NULL && is_empty(statuses));
            MPI_Test(&pair[1], &flag, statuses);
            CHECK(flag && is_empty(statuses));
            for (int round = 0; round < 3; round++) {
                fill(out, count, rank + 10 * round);
                memset(in, 0, (size_t)count * sizeof *in);
                if (kind == 3) {
                    MPI_Start(&pair[0]);
                    MPI_Barrier(MPI_COMM_WORLD);
                    MPI_Start(&pair[1]);
                } else {
                    MPI_Startall(2, pair);
                }
                MPI_Waitall(2, pair, statuses);
                CHECK(filled(in, count, left() + 10 * round));
                CHECK(statuses[0].MPI_SOURCE == left() && statuses[0].MPI_TAG == kind);
                CHECK(pair[0] != MPI_REQUEST_NULL && pair[1] != MPI_REQUEST_NULL);
            }
            MPI_Request_free(&pair[0]);
            MPI_Request_free(&pair[1]);
            CHECK(pair[0] == MPI_REQUEST_NULL);
        }
    }
    int was;
    MPI_Buffer_detach(&buffer, &was);
    free(buffer);
    free(out);
    free(in);
}

static void cancelling(void) {
    MPI_Request request, keep;
    MPI_Status status;
    int one = -1, other = -1, cancelled = 0, token = rank;
    MPI_Irecv(&one, 1, MPI_INT, left(), 1, MPI_COMM_WORLD, &request);
    MPI_Irecv(&other, 1, MPI_INT, left(), 1, MPI_COMM_WORLD, &keep);
    MPI_Cancel(&request);
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &cancelled);
    CHECK(cancelled && request == MPI_REQUEST_NULL);
    MPI_Barrier(MPI_COMM_WORLD);
    /* The next receive gets the message. */
    MPI_Send(&token, 1, MPI_INT, right(), 1, MPI_COMM_WORLD);
    MPI_Wait(&keep, &status);
    MPI_Test_cancelled(&status, &cancelled);
    CHECK(!cancelled && other == left() && one == -1);
    /* A completed request cannot be cancelled. */
    MPI_Irecv(&one, 1, MPI_INT, left(), 2, MPI_COMM_WORLD, &request);
    MPI_Send(&token, 1, MPI_INT, right(), 2, MPI_COMM_WORLD);
    int there = 0;
    while (!there)
        MPI_Request_get_status(request, &there, MPI_STATUS_IGNORE);
    MPI_Cancel(&request);
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &cancelled);
    CHECK(!cancelled && one == left());
    /* A persistent request may be started again. */
    MPI_Recv_init(&one, 1, MPI_INT, left(), 3, MPI_COMM_WORLD, &request);
    MPI_Start(&request);
    MPI_Cancel(&request);
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &cancelled);
    CHECK(cancelled && request != MPI_REQUEST_NULL);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Start(&request);
    MPI_Send(&token, 1, MPI_INT, right(), 3, MPI_COMM_WORLD);
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &cancelled);
    CHECK(!cancelled && one == left());
    MPI_Request_free(&request);
}

static int queried, released;

static int query_fails(void *state, MPI_Status *status) {
    (void)state;
    queried++;
    MPI_Status_set_elements(status, MPI_BYTE, 0);
    MPI_Status_set_cancelled(status, 0);
    return MPI_ERR_OTHER;
}

static int free_gives(void *state) {
    released++;
    return *(int *)state;
}

static int cancel_nothing(void *state, int complete) {
    (void)state;
    return complete ? MPI_SUCCESS : MPI_ERR_OTHER;
}

/* The result of a generalized request is that of the function that is called last. */
static void generalized(void) {
    MPI_Request request;
    MPI_Status status;
    int results[] = {MPI_SUCCESS, MPI_ERR_ARG}, flag;
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    for (int i = 0; i < 2; i++) {
        MPI_Grequest_start(query_fails, free_gives, cancel_nothing, &results[i], &request);
        MPI_Grequest_complete(request);
        FAILS(MPI_Request_get_status(request, &flag, &status), MPI_ERR_OTHER);
        CHECK(class_of(MPI_Wait(&request, &status)) == results[i]);
        CHECK(request == MPI_REQUEST_NULL && queried == 2 * i + 2 && released == i + 1);
    }
    MPI_Grequest_start(query_fails, free_gives, cancel_nothing, &results[0], &request);
    MPI_Grequest_complete(request);
    CHECK(MPI_Waitall(1, &request, &status) == MPI_SUCCESS);
    MPI_Grequest_start(query_fails, free_gives, cancel_nothing, &results[1], &request);
    MPI_Grequest_complete(request);
    FAILS(MPI_Waitall(1, &request, &status), MPI_ERR_IN_STATUS);
    CHECK(status.MPI_ERROR == MPI_ERR_ARG);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
}

/* A request may be freed while its message is in flight: the message still arrives. */
static void freeing(void) {
    int *out = room(LONG * sizeof *out), *in = room(LONG * sizeof *in), ask = 0, answer;
    for (int count = 1; count <= LONG; count += LONG - 1) {
        MPI_Request request;
        fill(out, count, rank);
        MPI_Isend(out, count, MPI_INT, right(), 1, MPI_COMM_WORLD, &request);
        MPI_Request_free(&request);
        CHECK(request == MPI_REQUEST_NULL);
        MPI_Recv(in, count, MPI_INT, left(), 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        CHECK(filled(in, count, left()));
        /* After the answer `out` may change. */
        MPI_Sendrecv(&ask, 1, MPI_INT, left(), 2, &answer, 1, MPI_INT, right(), 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    free(out);
    free(in);
}

static void buffered(void) {
    enum { COUNT = 5000, TIMES = 6 };
    int size_of_one, was;
    MPI_Pack_size(COUNT, MPI_INT, MPI_COMM_WORLD, &size_of_one);
    int bytes = TIMES * (size_of_one + MPI_BSEND_OVERHEAD), *out = room(COUNT * sizeof *out), *in = room(COUNT * sizeof *in);
    void *buffer = room((size_t)bytes), *back;
    for (int round = 0; round < 3; round++) {
        MPI_Buffer_attach(buffer, bytes);
        for (int i = 0; i < TIMES; i++) {
            fill(out, COUNT, rank + i);
            MPI_Bsend(out, COUNT, MPI_INT, right(), i, MPI_COMM_WORLD);
        }
        for (int i = TIMES; i-- > 0;) {
            MPI_Recv(in, COUNT, MPI_INT, left(), i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            CHECK(filled(in, COUNT, left() + i));
        }
        /* The buffer is free again once all messages have been sent. */
        MPI_Buffer_flush();
        MPI_Bsend(out, COUNT, MPI_INT, right(), 99, MPI_COMM_WORLD);
        MPI_Recv(in, COUNT, MPI_INT, left(), 99, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Buffer_detach(&back, &was);
        CHECK(back == buffer && was == bytes);
    }
    /* Without room it is an error, and nothing is sent. */
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    CHECK(MPI_Bsend(out, COUNT, MPI_INT, right(), 1, MPI_COMM_WORLD) != MPI_SUCCESS);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    /* A buffer of the communicator, and an automatic one. */
    MPI_Comm_attach_buffer(MPI_COMM_WORLD, buffer, bytes);
    MPI_Bsend(out, COUNT, MPI_INT, right(), 1, MPI_COMM_WORLD);
    MPI_Recv(in, COUNT, MPI_INT, left(), 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Comm_flush_buffer(MPI_COMM_WORLD);
    MPI_Comm_detach_buffer(MPI_COMM_WORLD, &back, &was);
    CHECK(back == buffer && was == bytes);
    MPI_Buffer_attach(MPI_BUFFER_AUTOMATIC, 0);
    for (int i = 0; i < TIMES; i++)
        MPI_Bsend(out, COUNT, MPI_INT, right(), i, MPI_COMM_WORLD);
    for (int i = 0; i < TIMES; i++)
        MPI_Recv(in, COUNT, MPI_INT, left(), i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Buffer_detach(&back, &was);
    CHECK(back == MPI_BUFFER_AUTOMATIC);
    free(buffer);
    free(out);
    free(in);
}

/* With several statuses each contains its own error. */
static void errors_in_statuses(void) {
    MPI_Request requests[2];
    MPI_Status statuses[2];
    int small = 0, right_size = 0, tokens[2] = {rank, rank};
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Irecv(&small, 1, MPI_INT, left(), 1, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(&right_size, 1, MPI_INT, left(), 2, MPI_COMM_WORLD, &requests[1]);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Send(tokens, 1, MPI_INT, right(), 2, MPI_COMM_WORLD);
    MPI_Send(tokens, 2, MPI_INT, right(), 1, MPI_COMM_WORLD);
    int code = MPI_SUCCESS;
    while (code == MPI_SUCCESS && (requests[0] != MPI_REQUEST_NULL || requests[1] != MPI_REQUEST_NULL))
        code = MPI_Waitall(2, requests, statuses);
    CHECK(code == MPI_ERR_IN_STATUS);
    CHECK(class_of(statuses[0].MPI_ERROR) == MPI_ERR_TRUNCATE);
    CHECK(statuses[1].MPI_ERROR == MPI_SUCCESS || statuses[1].MPI_ERROR == MPI_ERR_PENDING);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    CHECK(right_size == left());
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

/* Waits for several requests of different kinds: each wait returns as soon as one of them is complete, whatever its kind. */
static void mixed(void) {
    enum { NEVER, BARRIER, IDLE, SENT, RECEIVE, DUP, KINDS };
    MPI_Request requests[KINDS];
    MPI_Status status, statuses[KINDS];
    MPI_Comm dup;
    int in = -1, unused = 0, index, count, indices[KINDS], seen = 0;
    MPI_Irecv(&unused, 1, MPI_INT, left(), 77, MPI_COMM_WORLD, &requests[NEVER]);
    MPI_Ibarrier(MPI_COMM_WORLD, &requests[BARRIER]);
    MPI_Recv_init(&unused, 1, MPI_INT, left(), 78, MPI_COMM_WORLD, &requests[IDLE]);
    MPI_Isend(&rank, 1, MPI_INT, right(), 79, MPI_COMM_WORLD, &requests[SENT]);
    MPI_Irecv(&in, 1, MPI_INT, left(), 79, MPI_COMM_WORLD, &requests[RECEIVE]);
    MPI_Comm_idup(MPI_COMM_WORLD, &dup, &requests[DUP]);
    for (int turn = 0; seen != (1 << BARRIER | 1 << SENT | 1 << RECEIVE | 1 << DUP); turn++) {
        if (turn % 2) {
            MPI_Waitsome(KINDS, requests, &count, indices, statuses);
            CHECK(count >= 1);
        } else {
            MPI_Waitany(KINDS, requests, &indices[0], &status);
            count = 1;
        }
        for (int k = 0; k < count; k++) {
            CHECK(!(seen & 1 << indices[k]));
            seen |= 1 << indices[k];
        }
    }
    CHECK(in == left());
    MPI_Testany(KINDS, requests, &index, &count, &status);
    CHECK(!count && index == MPI_UNDEFINED);
    MPI_Testsome(KINDS, requests, &count, indices, statuses);
    CHECK(count == 0);
    MPI_Cancel(&requests[NEVER]);
    MPI_Waitany(KINDS, requests, &index, &status);
    MPI_Test_cancelled(&status, &count);
    CHECK(index == NEVER && count);
    MPI_Request_free(&requests[IDLE]);
    MPI_Comm_free(&dup);
}

/* An invalid request is an error, but what is complete before it is not lost. */
static void invalid_behind_complete(void) {
    MPI_Request requests[3];
    MPI_Status statuses[3];
    int in = -1, count = 5, indices[3], index, flag;
    MPI_Irecv(&in, 1, MPI_INT, left(), 80, MPI_COMM_WORLD, &requests[0]);
    MPI_Send(&rank, 1, MPI_INT, right(), 80, MPI_COMM_WORLD);
    for (flag = 0; !flag;)
        MPI_Request_get_status(requests[0], &flag, MPI_STATUS_IGNORE);
    MPI_Recv_init(&in, 1, MPI_INT, left(), 81, MPI_COMM_WORLD, &requests[1]);
    MPI_Request freed = requests[1];
    MPI_Request_free(&requests[1]);
    requests[1] = freed;
    requests[2] = MPI_REQUEST_NULL;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    CHECK(MPI_Waitsome(3, requests, &count, indices, statuses) == MPI_SUCCESS);
    CHECK(count == 1 && indices[0] == 0 && requests[0] == MPI_REQUEST_NULL && in == left());
    FAILS(MPI_Waitsome(3, requests, &count, indices, statuses), MPI_ERR_REQUEST);
    FAILS(MPI_Testsome(3, requests, &count, indices, statuses), MPI_ERR_REQUEST);
    FAILS(MPI_Waitany(3, requests, &index, statuses), MPI_ERR_REQUEST);
    FAILS(MPI_Testany(3, requests, &index, &flag, statuses), MPI_ERR_REQUEST);
    FAILS(MPI_Testall(3, requests, &flag, statuses), MPI_ERR_REQUEST);
    FAILS(MPI_Waitall(3, requests, statuses), MPI_ERR_REQUEST);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
}

int main(int argc, char **argv) {
    begin(&argc, &argv);
    null_requests();
    any();
    some();
    all();
    looking();
    persistent();
    cancelling();
    freeing();
    generalized();
    buffered();
    errors_in_statuses();
    mixed();
    invalid_behind_complete();
    return finish("requests");
}
