/* Functions that the other programs leave out: MPI_Isendrecv, queries of several requests, status fields, dimensions, memory, error codes. */
#include "check.h"

static void exchanges(void) {
    enum { LONG = 100000 };
    int one[3] = {rank, rank + 1, rank + 2}, in[3] = {-1, -1, -1};
    MPI_Request request;
    MPI_Status status;
    MPI_Isendrecv(one, 3, MPI_INT, right(), 1, in, 3, MPI_INT, left(), MPI_ANY_TAG, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, &status);
    CHECK(request == MPI_REQUEST_NULL && in[0] == left() && in[2] == left() + 2);
    CHECK(status.MPI_SOURCE == left() && status.MPI_TAG == 1);
    MPI_Isendrecv_replace(one, 3, MPI_INT, right(), 2, left(), 2, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(one[0] == left() && one[1] == left() + 1);
    /* Long messages, in place, all round the ring at once. */
    int *big = room(LONG * sizeof *big);
    fill(big, LONG, rank);
    MPI_Isendrecv_replace(big, LONG, MPI_INT, right(), 3, left(), 3, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(filled(big, LONG, left()));
    free(big);
    MPI_Isendrecv(one, 3, MPI_INT, MPI_PROC_NULL, 1, in, 3, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, &status);
    CHECK(status.MPI_SOURCE == MPI_PROC_NULL && in[0] == left());
}

static void looks(void) {
    int in[2] = {-1, -1}, out = rank, flag, index, count, indices[2];
    MPI_Request requests[2], null[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    MPI_Status status, statuses[2];
    MPI_Irecv(&in[0], 1, MPI_INT, left(), 10, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(&in[1], 1, MPI_INT, left(), 11, MPI_COMM_WORLD, &requests[1]);
    MPI_Send(&out, 1, MPI_INT, right(), 11, MPI_COMM_WORLD);
    do
        MPI_Request_get_status_any(2, requests, &index, &flag, &status);
    while (!flag);
    CHECK(index == 1 && status.MPI_TAG == 11 && requests[1] != MPI_REQUEST_NULL);
    MPI_Request_get_status_some(2, requests, &count, indices, statuses);
    CHECK(count == 1 && indices[0] == 1 && statuses[0].MPI_SOURCE == left());
    MPI_Request_get_status_all(2, requests, &flag, statuses);
    CHECK(!flag);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Send(&out, 1, MPI_INT, right(), 10, MPI_COMM_WORLD);
    do
        MPI_Request_get_status_all(2, requests, &flag, statuses);
    while (!flag);
    CHECK(statuses[0].MPI_TAG == 10 && statuses[1].MPI_TAG == 11);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    CHECK(in[0] == left() && in[1] == left());
    MPI_Request_get_status_some(2, null, &count, indices, MPI_STATUSES_IGNORE);
    CHECK(count == MPI_UNDEFINED);
    MPI_Request_get_status_any(2, null, &index, &flag, MPI_STATUS_IGNORE);
    CHECK(flag && index == MPI_UNDEFINED);
}

static void fields(void) {
    MPI_Status status;
    int got;
    memset(&status, 0, sizeof status);
    MPI_Status_set_source(&status, 4);
    MPI_Status_set_tag(&status, 5);
    MPI_Status_set_error(&status, MPI_ERR_TRUNCATE);
    CHECK(status.MPI_SOURCE == 4 && status.MPI_TAG == 5 && status.MPI_ERROR == MPI_ERR_TRUNCATE);
    MPI_Status_get_source(&status, &got);
    CHECK(got == 4);
    MPI_Status_get_tag(&status, &got);
    CHECK(got == 5);
    MPI_Status_get_error(&status, &got);
    CHECK(got == MPI_ERR_TRUNCATE);
}

static void dimensions(void) {
    int two[2] = {0, 0}, three[3] = {0, 3, 0}, topology;
    MPI_Dims_create(6, 2, two);
    CHECK(two[0] == 3 && two[1] == 2);
    MPI_Dims_create(6, 3, three);
    CHECK(three[0] == 2 && three[1] == 3 && three[2] == 1);
    MPI_Topo_test(MPI_COMM_WORLD, &topology);
    CHECK(topology == MPI_UNDEFINED);
}

static void memory(void) {
    char *base;
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "mpi_minimum_memory_alignment", "4096");
    MPI_Alloc_mem(10000, info, &base);
    CHECK(base && (size_t)base % 4096 == 0);
    memset(base, 1, 10000);
    MPI_Free_mem(base);
    MPI_Info_free(&info);
    MPI_Alloc_mem(0, MPI_INFO_NULL, &base);
    MPI_Free_mem(base);
    MPI_Pcontrol(1);
}

/* Error codes added before MPI_Init, or removed again. */
static int added;

static void before(void) {
    MPI_Info info;
    char text[MPI_MAX_ERROR_STRING];
    int length;
    MPI_Add_error_class(&added);
    MPI_Add_error_string(added, "early");
    MPI_Error_string(added, text, &length);
    MPI_Info_create(&info);
    MPI_Info_set(info, "key", "value");
    MPI_Info_free(&info);
}

static void codes(void) {
    char text[MPI_MAX_ERROR_STRING];
    int length, class;
    MPI_Error_string(added, text, &length);
    CHECK(strcmp(text, "early") == 0);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    CHECK(MPI_Remove_error_class(added) != MPI_SUCCESS);
    MPI_Remove_error_string(added);
    MPI_Remove_error_class(added);
    FAILS(MPI_Error_class(added, &class), MPI_ERR_ARG);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
}

int main(int argc, char **argv) {
    before();
    begin(&argc, &argv);
    exchanges();
    looks();
    fields();
    dimensions();
    memory();
    codes();
    return finish("more");
}
