/* What RSD_MPI_CHECK=1 must find: one fault for each name in the first argument, and none in a program without faults. The results are on
 * stderr, where the test looks for them. */
#include "check.h"

static MPI_Comm comm;

/* Sends of one datatype that are received as another: each one is an error at the receiver, in whichever order both sides come, and the
 * message after it arrives. */
static void datatypes(void) {
    MPI_Request request, sends[2];
    MPI_Status status;
    MPI_Datatype pair, other;
    MPI_Message message;
    int lengths[2] = {1, 1}, token = 0, sent = 1;
    MPI_Aint at[2] = {0, 8};
    MPI_Datatype types[2] = {MPI_INT, MPI_DOUBLE}, swapped[2] = {MPI_DOUBLE, MPI_INT};
    static float out[50000];
    static int in[50000];
    MPI_Type_create_struct(2, lengths, at, types, &pair);
    MPI_Type_create_struct(2, lengths, at, swapped, &other);
    MPI_Type_commit(&pair);
    MPI_Type_commit(&other);
    for (int late = 0; late < 2; late++)
        for (int count = 1; count <= 50000; count += 49999) {
            for (int way = 0; way < 4; way++) {
                if (late)
                    MPI_Barrier(comm);
                if (rank == 0) {
                    if (way == 1)
                        MPI_Issend(out, count, MPI_FLOAT, 1, 5, comm, &sends[0]);
                    else if (way == 2)
                        MPI_Isend(out, 1, pair, 1, 5, comm, &sends[0]);
                    else
                        MPI_Isend(out, count, MPI_FLOAT, 1, 5, comm, &sends[0]);
                    MPI_Isend(&sent, 1, MPI_INT, 1, 6, comm, &sends[1]);
                }
                if (!late)
                    MPI_Barrier(comm);
                if (rank == 1) {
                    int code;
                    if (way == 1) {
                        MPI_Irecv(in, count, MPI_INT, MPI_ANY_SOURCE, 5, comm, &request);
                        code = MPI_Wait(&request, &status);
                    } else if (way == 2) {
                        code = MPI_Recv(in, 1, other, 0, 5, comm, &status);
                    } else if (way == 3) {
                        MPI_Mprobe(0, MPI_ANY_TAG, comm, &message, &status);
                        code = MPI_Mrecv(in, count, MPI_INT, &message, &status);
                    } else {
                        code = MPI_Recv(in, count, MPI_INT, 0, MPI_ANY_TAG, comm, &status);
                    }
                    FAILS(code, MPI_ERR_TYPE);
                    if (way != 2)
                        CHECK(says(code, "the message of rank 0 with tag 5") && says(code, "was sent as MPI_FLOAT and is received as MPI_INT"));
                    CHECK(MPI_Recv(&token, 1, MPI_INT, 0, 6, comm, &status) == MPI_SUCCESS && token == 1);
                    token = 0;
                }
                if (rank == 0)
                    CHECK(MPI_Waitall(2, sends, MPI_STATUSES_IGNORE) == MPI_SUCCESS);
                MPI_Barrier(comm);
            }
        }
    /* To oneself. */
    MPI_Isend(out, 1, MPI_FLOAT, rank, 7, comm, &request);
    FAILS(MPI_Recv(in, 1, MPI_INT, rank, 7, comm, &status), MPI_ERR_TYPE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Irecv(in, 1, MPI_INT, rank, 7, comm, &request);
    MPI_Send(out, 1, MPI_FLOAT, rank, 7, comm);
    FAILS(MPI_Wait(&request, &status), MPI_ERR_TYPE);
    MPI_Type_free(&pair);
    MPI_Type_free(&other);
}

/* What looks alike in memory, bytes, and equal parts of derived datatypes are no fault. */
static void alike(void) {
    MPI_Request requests[4];
    MPI_Datatype three;
    long wide[4] = {1, 2, 3, 4}, got[4] = {0};
    char packed[64];
    int at = 0, ints[6] = {1, 2, 3, 4, 5, 6}, six[6] = {0};
    MPI_Sendrecv(wide, 4, MPI_LONG, right(), 1, got, 4, MPI_INT64_T, left(), 1, comm, MPI_STATUS_IGNORE);
    CHECK(got[3] == 4);
    MPI_Sendrecv(wide, 4, MPI_LONG, right(), 1, got, 32, MPI_BYTE, left(), 1, comm, MPI_STATUS_IGNORE);
    MPI_Pack(ints, 6, MPI_INT, packed, sizeof packed, &at, comm);
    MPI_Sendrecv(packed, at, MPI_PACKED, right(), 2, six, 6, MPI_INT, left(), 2, comm, MPI_STATUS_IGNORE);
    CHECK(six[5] == 6);
    MPI_Type_contiguous(3, MPI_INT, &three);
    MPI_Type_commit(&three);
    memset(six, 0, sizeof six);
    MPI_Sendrecv(ints, 6, MPI_INT, right(), 3, six, 2, three, left(), 3, comm, MPI_STATUS_IGNORE);
    CHECK(six[5] == 6);
    MPI_Send_init(ints, 6, MPI_INT, right(), 4, comm, &requests[0]);
    MPI_Recv_init(six, 2, three, left(), 4, comm, &requests[1]);
    for (int round = 0; round < 3; round++) {
        MPI_Startall(2, requests);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    }
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
    MPI_Type_free(&three);
}

/* Collectives that match, in all forms. */
static void collectives(void) {
    MPI_Request requests[3];
    MPI_Comm copy;
    int one = rank, sum = 0, *all = room(sizeof(int) * (size_t)size);
    for (int round = 0; round < 5; round++) {
        MPI_Barrier(comm);
        MPI_Bcast(&one, 1, MPI_INT, size - 1, comm);
        one = rank;
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
        CHECK(sum == size * (size - 1) / 2);
        MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_MAX, comm);
        MPI_Gather(&one, 1, MPI_INT, all, 4, MPI_BYTE, 0, MPI_COMM_SELF);
        MPI_Gather(rank ? &one : MPI_IN_PLACE, 1, MPI_INT, all, 1, MPI_INT, 0, comm);
        MPI_Iallgather(&one, 1, MPI_INT, all, 1, MPI_INT, comm, &requests[0]);
        MPI_Ibarrier(comm, &requests[1]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        CHECK(all[size - 1] == size - 1);
        MPI_Comm_dup(comm, &copy);
        MPI_Reduce(&one, &sum, 1, MPI_INT, MPI_SUM, 0, copy);
        MPI_Comm_free(&copy);
    }
    free(all);
}

/* The last rank does something else than the others. */
static int differs(const char *what) {
    int odd = rank == size - 1, one = 1, two[2] = {0, 0};
    float real = 1;
    MPI_Comm copy;
    MPI_Request request;
    if (!strcmp(what, "function"))
        return odd ? MPI_Barrier(comm) : MPI_Bcast(&one, 1, MPI_INT, 0, comm);
    if (!strcmp(what, "root"))
        return MPI_Bcast(&one, 1, MPI_INT, odd, comm);
    if (!strcmp(what, "count"))
        return MPI_Bcast(two, 1 + odd, MPI_INT, 0, comm);
    if (!strcmp(what, "operation"))
        return MPI_Allreduce(&one, two, 1, MPI_INT, odd ? MPI_MAX : MPI_SUM, comm);
    if (!strcmp(what, "datatype"))
        return odd ? MPI_Bcast(&real, 1, MPI_FLOAT, 0, comm) : MPI_Bcast(&one, 1, MPI_INT, 0, comm);
    if (!strcmp(what, "constructor"))
        return odd ? MPI_Comm_split(comm, 0, 0, &copy) : MPI_Comm_dup(comm, &copy);
    if (!strcmp(what, "form")) {
        if (!odd)
            return MPI_Barrier(comm);
        MPI_Ibarrier(comm, &request);
        return MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    fprintf(stderr, "unknown fault %s\n", what);
    exit(2);
}

/* Objects that are never freed, a message that is never received, and requests that are never completed. */
static void leaks(void) {
    MPI_Request requests[3];
    MPI_Datatype type;
    MPI_Comm copy;
    MPI_Group group;
    MPI_Info info;
    MPI_Op op;
    MPI_Win win;
    static int ints[4];
    MPI_Irecv(ints, 1, MPI_INT, MPI_ANY_SOURCE, 99, comm, &requests[0]);
    MPI_Irecv(ints, 1, MPI_INT, MPI_ANY_SOURCE, 98, comm, &requests[0]);
    MPI_Isend(ints, 1, MPI_INT, rank, 97, comm, &requests[1]);
    MPI_Recv_init(ints, 1, MPI_INT, 0, 96, comm, &requests[2]);
    MPI_Send(ints, 3, MPI_INT, rank, 95, comm);
    MPI_Type_contiguous(3, MPI_INT, &type);
    MPI_Type_vector(3, 1, 2, MPI_INT, &type);
    MPI_Comm_dup(comm, &copy);
    MPI_Comm_group(comm, &group);
    MPI_Info_create(&info);
    MPI_Op_create((MPI_User_function *)leaks, 1, &op);
    MPI_Win_create(ints, sizeof ints, 4, MPI_INFO_NULL, comm, &win);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "nothing";
    begin(&argc, &argv);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    if (!strcmp(what, "leaks")) {
        leaks();
        return finish("checked");
    }
    if (strcmp(what, "nothing") != 0) {
        differs(what);
        return finish("checked");
    }
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    if (size > 1)
        datatypes();
    alike();
    collectives();
    MPI_Comm_free(&comm);
    return finish("checked");
}
