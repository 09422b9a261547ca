/* A process with as many requests as it may have: a call that needs one more fails before it has started anything. */
#include "check.h"

enum { MOST = 3 << 20, LONG = 1 << 20, TAG = 5 };

int main(int argc, char **argv) {
    begin(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Request *held = room(MOST * sizeof *held), one;
    char *data = room(LONG);
    int count = 0, got = -1, there = 1, back = (rank + size - 1) % size;
    if (rank == 0) {
        while (count < MOST && MPI_Irecv(NULL, 0, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_WORLD, &held[count]) == MPI_SUCCESS)
            count++;
        CHECK(count > 1000000 && count < MOST);
        FAILS(MPI_Irecv(&got, 1, MPI_INT, left(), TAG, MPI_COMM_WORLD, &one), MPI_ERR_NO_MEM);
        FAILS(MPI_Isend(data, LONG, MPI_BYTE, right(), TAG, MPI_COMM_WORLD, &one), MPI_ERR_NO_MEM);
        FAILS(MPI_Isendrecv_replace(data, LONG, MPI_BYTE, right(), TAG, left(), TAG, MPI_COMM_WORLD, &one), MPI_ERR_NO_MEM);
        FAILS(MPI_Isendrecv(data, LONG, MPI_BYTE, right(), TAG, &got, 1, MPI_INT, left(), TAG, MPI_COMM_WORLD, &one), MPI_ERR_NO_MEM);
        FAILS(MPI_Psend_init(data, 1, LONG, MPI_BYTE, right(), TAG, MPI_COMM_WORLD, MPI_INFO_NULL, &one), MPI_ERR_NO_MEM);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
    CHECK(!there);
    MPI_Barrier(MPI_COMM_WORLD);
    /* The receives that failed do not get this message. */
    int sent = 100 + rank, got_now = -1;
    MPI_Send(&sent, 1, MPI_INT, right(), TAG, MPI_COMM_WORLD);
    MPI_Recv(&got_now, 1, MPI_INT, left(), TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    CHECK(got_now == 100 + back && got == -1);
    if (rank == 0) {
        MPI_Request_free(&held[--count]);
        CHECK(MPI_Irecv(&got, 1, MPI_INT, left(), TAG, MPI_COMM_WORLD, &one) == MPI_SUCCESS);
    }
    MPI_Send(&sent, 1, MPI_INT, right(), TAG, MPI_COMM_WORLD);
    if (rank == 0)
        MPI_Wait(&one, MPI_STATUS_IGNORE);
    else
        MPI_Recv(&got, 1, MPI_INT, left(), TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    CHECK(got == 100 + back);
    while (count > 0)
        MPI_Request_free(&held[--count]);
    free(held);
    free(data);
    return finish("crowded");
}
