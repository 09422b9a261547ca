/* `ft`: revoked communicators, agreements and shrinks while all live (ULFM), on intra- and intercommunicators. */
#include "check.h"

#include <unistd.h>

#ifndef MPIX_ERR_REVOKED
/* Another library's mpi.h. */
int main(int argc, char **argv) {
    begin(&argc, &argv);
    return finish("ft");
}
#else

/* MPICH's library for the standard ABI does not have them. */
#pragma weak MPIX_Comm_revoke
#pragma weak MPIX_Comm_is_revoked
#pragma weak MPIX_Comm_get_failed
#pragma weak MPIX_Comm_ack_failed
#pragma weak MPIX_Comm_failure_ack
#pragma weak MPIX_Comm_failure_get_acked
#pragma weak MPIX_Comm_agree
#pragma weak MPIX_Comm_iagree
#pragma weak MPIX_Comm_shrink
#pragma weak MPIX_Comm_ishrink

enum { LONG = 1 << 20 };
static char out[LONG], in[LONG];

/* Nobody has died. */
static void unharmed(MPI_Comm comm) {
    MPI_Group group;
    int flag = -1, compared = -1;
    CHECK(MPIX_Comm_is_revoked(comm, &flag) == MPI_SUCCESS && flag == 0);
    CHECK(MPIX_Comm_get_failed(comm, &group) == MPI_SUCCESS);
    CHECK(MPI_Group_compare(group, MPI_GROUP_EMPTY, &compared) == MPI_SUCCESS && compared == MPI_IDENT);
    MPI_Group_free(&group);
    CHECK(MPIX_Comm_ack_failed(comm, 5, &flag) == MPI_SUCCESS && flag == 0);
    CHECK(MPIX_Comm_failure_ack(comm) == MPI_SUCCESS && MPIX_Comm_failure_get_acked(comm, &group) == MPI_SUCCESS);
    CHECK(MPI_Group_compare(group, MPI_GROUP_EMPTY, &compared) == MPI_SUCCESS && compared == MPI_IDENT);
    FAILS(MPIX_Comm_ack_failed(comm, -1, &flag), MPI_ERR_ARG);
    FAILS(MPIX_Comm_get_failed(MPI_COMM_NULL, &group), MPI_ERR_COMM);
}

/* The AND of all but the bits of `mine`. */
static void agreements(MPI_Comm comm, int mine, int expected) {
    for (int i = 0; i < 20; i++) {
        int flag = i;
        CHECK(MPIX_Comm_agree(comm, &flag) == MPI_SUCCESS && flag == i);
    }
    int flag = ~mine;
    CHECK(MPIX_Comm_agree(comm, &flag) == MPI_SUCCESS && flag == ~expected);
    /* Several at once end in their order. */
    int flags[8];
    MPI_Request requests[8];
    for (int i = 0; i < 8; i++) {
        flags[i] = ~mine & ~(1 << (8 + i));
        CHECK(MPIX_Comm_iagree(comm, &flags[i], &requests[i]) == MPI_SUCCESS);
    }
    CHECK(MPI_Waitall(8, requests, MPI_STATUSES_IGNORE) == MPI_SUCCESS);
    for (int i = 0; i < 8; i++)
        CHECK(flags[i] == (~expected & ~(1 << (8 + i))) && requests[i] == MPI_REQUEST_NULL);
}

static void same(MPI_Comm comm, MPI_Comm other) {
    int is = -1;
    CHECK(MPI_Comm_compare(comm, other, &is) == MPI_SUCCESS && is == MPI_CONGRUENT);
}

static void shrinks(MPI_Comm comm) {
    MPI_Comm shrunk;
    MPI_Request request;
    CHECK(MPIX_Comm_shrink(comm, &shrunk) == MPI_SUCCESS);
    same(comm, shrunk);
    CHECK(MPI_Barrier(shrunk) == MPI_SUCCESS);
    CHECK(MPI_Comm_free(&shrunk) == MPI_SUCCESS);
    CHECK(MPIX_Comm_ishrink(comm, &shrunk, &request) == MPI_SUCCESS && request != MPI_REQUEST_NULL);
    CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS && request == MPI_REQUEST_NULL);
    same(comm, shrunk);
    CHECK(MPI_Barrier(shrunk) == MPI_SUCCESS);
    CHECK(MPI_Comm_free(&shrunk) == MPI_SUCCESS);
}

/* Everything but agreements and shrinks fails on a revoked communicator. */
static void refused(MPI_Comm comm) {
    int flag = 0, value = 0;
    MPI_Comm other;
    MPI_Request request;
    MPI_Message message;
    CHECK(MPIX_Comm_is_revoked(comm, &flag) == MPI_SUCCESS && flag == 1);
    FAILS(MPI_Barrier(comm), MPIX_ERR_REVOKED);
    FAILS(MPI_Send(&value, 1, MPI_INT, MPI_PROC_NULL, 0, comm), MPIX_ERR_REVOKED);
    FAILS(MPI_Send(&value, 1, MPI_INT, 0, 0, comm), MPIX_ERR_REVOKED);
    FAILS(MPI_Isend(&value, 1, MPI_INT, 0, 0, comm, &request), MPIX_ERR_REVOKED);
    FAILS(MPI_Recv(&value, 1, MPI_INT, MPI_PROC_NULL, 0, comm, MPI_STATUS_IGNORE), MPIX_ERR_REVOKED);
    FAILS(MPI_Recv(&value, 1, MPI_INT, 0, 0, comm, MPI_STATUS_IGNORE), MPIX_ERR_REVOKED);
    FAILS(MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, MPI_STATUS_IGNORE), MPIX_ERR_REVOKED);
    FAILS(MPI_Probe(MPI_ANY_SOURCE, 0, comm, MPI_STATUS_IGNORE), MPIX_ERR_REVOKED);
    FAILS(MPI_Iprobe(MPI_ANY_SOURCE, 0, comm, &flag, MPI_STATUS_IGNORE), MPIX_ERR_REVOKED);
    FAILS(MPI_Improbe(0, 0, comm, &flag, &message, MPI_STATUS_IGNORE), MPIX_ERR_REVOKED);
    FAILS(MPI_Ibarrier(comm, &request), MPIX_ERR_REVOKED);
    FAILS(MPI_Comm_dup(comm, &other), MPIX_ERR_REVOKED);
    FAILS(MPI_Comm_split(comm, 0, 0, &other), MPIX_ERR_REVOKED);
    CHECK(says(MPI_Bcast(&value, 1, MPI_INT, 0, comm), "revoked"));
    CHECK(MPIX_Comm_revoke(comm) == MPI_SUCCESS);
}

static void revoked(MPI_Comm of) {
    MPI_Comm comm;
    CHECK(MPI_Comm_dup(of, &comm) == MPI_SUCCESS);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    CHECK(MPIX_Comm_revoke(comm) == MPI_SUCCESS);
    refused(comm);
    int flag = 5;
    CHECK(MPIX_Comm_agree(comm, &flag) == MPI_SUCCESS && flag == 5);
    shrinks(comm);
    CHECK(MPI_Comm_free(&comm) == MPI_SUCCESS);
}

/* What waits is ended by a revocation: `way` says for what all but the last rank wait. */
static void waits(int way) {
    MPI_Comm comm;
    MPI_Request request = MPI_REQUEST_NULL;
    int sum, last = size - 1, code = MPI_SUCCESS;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    /* Now they share memory, if they are on one node. */
    for (int i = 0; i < 6; i++)
        CHECK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm) == MPI_SUCCESS);
    MPI_Request made[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    if (way == 9) {
        MPI_Send_init(out, 8, MPI_CHAR, last, 1, comm, &made[0]);
        MPI_Recv_init(in, 8, MPI_CHAR, last, 1, comm, &made[1]);
        /* On a revoked communicator, none could be made. The revocation may end this barrier, but only once all have come. */
        MPI_Barrier(comm);
    }
    if (rank == last) {
        usleep(way % 2 ? 1000 : 30000);
        MPIX_Comm_revoke(comm);
    } else if (way == 0)
        code = MPI_Barrier(comm);
    else if (way == 1)
        code = MPI_Recv(in, 8, MPI_CHAR, last, 1, comm, MPI_STATUS_IGNORE);
    else if (way == 2)
        code = MPI_Recv(in, 8, MPI_CHAR, MPI_ANY_SOURCE, 1, comm, MPI_STATUS_IGNORE);
    else if (way == 3)
        code = MPI_Send(out, LONG, MPI_CHAR, last, 1, comm);
    else if (way == 4)
        code = MPI_Ssend(out, 8, MPI_CHAR, last, 1, comm);
    else if (way == 5) {
        /* It may be revoked already. */
        code = MPI_Ibarrier(comm, &request);
        if (code == MPI_SUCCESS)
            code = MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else if (way == 6)
        code = MPI_Allgather(out, LONG / size, MPI_CHAR, in, LONG / size, MPI_CHAR, comm);
    else if (way == 7)
        code = MPI_Probe(last, 1, comm, MPI_STATUS_IGNORE);
    else if (way == 8) {
        MPI_Comm other;
        code = MPI_Comm_dup(comm, &other);
    } else if (way == 9) {
        code = MPI_Start(&made[1]);
        if (code == MPI_SUCCESS)
            code = MPI_Wait(&made[1], MPI_STATUS_IGNORE);
        FAILS(MPI_Start(&made[0]), MPIX_ERR_REVOKED);
    } else if (way == 10) {
        int at;
        MPI_Request two[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
        code = MPI_Irecv(in, 8, MPI_CHAR, MPI_ANY_SOURCE, 1, comm, &two[1]);
        if (code == MPI_SUCCESS) {
            code = MPI_Waitany(2, two, &at, MPI_STATUS_IGNORE);
            CHECK(at == 1 && two[1] == MPI_REQUEST_NULL);
        }
    }
    if (rank != last && class_of(code) != MPIX_ERR_REVOKED) {
        fprintf(stderr, "rank %d: waiting in way %d ended with class %d\n", rank, way, class_of(code));
        wrong++;
    }
    for (int i = 0; i < 2; i++)
        if (made[i] != MPI_REQUEST_NULL)
            MPI_Request_free(&made[i]);
    int flag = 1;
    CHECK(MPIX_Comm_agree(comm, &flag) == MPI_SUCCESS && flag == 1);
    refused(comm);
    MPI_Comm_free(&comm);
}

/* Many at once: the numbers of communicators stay apart. */
static void many(void) {
    for (int i = 0; i < 30; i++) {
        MPI_Comm comm, shrunk;
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
        if (rank == i % size)
            MPIX_Comm_revoke(comm);
        CHECK(MPIX_Comm_shrink(comm, &shrunk) == MPI_SUCCESS);
        MPI_Comm_free(&comm);
        int sum = 0;
        CHECK(MPI_Allreduce(&size, &sum, 1, MPI_INT, MPI_SUM, shrunk) == MPI_SUCCESS && sum == size * size);
        MPI_Comm_free(&shrunk);
    }
}

static void intercommunicators(void) {
    MPI_Comm half, inter;
    int low = rank < size / 2;
    MPI_Comm_split(MPI_COMM_WORLD, low, 0, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, low ? size / 2 : 0, 3, &inter);
    unharmed(inter);
    /* Each group gets what the other one has passed. */
    agreements(inter, low ? 1 : 2, low ? 2 : 1);
    MPI_Comm shrunk;
    int mine, theirs;
    CHECK(MPIX_Comm_shrink(inter, &shrunk) == MPI_SUCCESS);
    same(inter, shrunk);
    MPI_Comm_size(shrunk, &mine);
    MPI_Comm_remote_size(shrunk, &theirs);
    CHECK(mine + theirs == size);
    CHECK(MPI_Barrier(shrunk) == MPI_SUCCESS);
    MPI_Comm_free(&shrunk);
    revoked(inter);
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
}

int main(int argc, char **argv) {
    begin(&argc, &argv);
    if (on_mpich())
        return finish("ft");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    int class = MPI_ERR_UNKNOWN;
    CHECK(MPI_Error_class(MPIX_ERR_PROC_FAILED_PENDING, &class) == MPI_SUCCESS && class == MPIX_ERR_PROC_FAILED_PENDING);
    unharmed(MPI_COMM_WORLD);
    unharmed(MPI_COMM_SELF);
    agreements(MPI_COMM_WORLD, 1 << rank % 8, (1 << (size < 8 ? size : 8)) - 1);
    agreements(MPI_COMM_SELF, 1, 1);
    shrinks(MPI_COMM_WORLD);
    shrinks(MPI_COMM_SELF);
    revoked(MPI_COMM_WORLD);
    revoked(MPI_COMM_SELF);
    for (int way = 0; way <= 10 && size > 1; way++)
        waits(way);
    many();
    if (size > 1)
        intercommunicators();
    return finish("ft");
}
#endif
