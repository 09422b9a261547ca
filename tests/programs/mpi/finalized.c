/* All but rank 0 finalize after a first message. Rank 0 gets errors of class MPI_ERR_PROC_ABORTED exactly where it would wait for
 * one of them forever. */
#include "check.h"

int main(int argc, char **argv) {
    int token = 0, flag = 1, index, count, cancelled = 0;
    MPI_Request requests[2];
    MPI_Status status, statuses[2];
    MPI_Message message;
    begin(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    if (rank > 0) {
        /* Two unreceived messages: one whose receive is posted, and one without a receive. */
        MPI_Send(&rank, 1, MPI_INT, 0, 1, MPI_COMM_WORLD);
        MPI_Ssend(&rank, 1, MPI_INT, 0, 2, MPI_COMM_WORLD);
        MPI_Finalize();
        return wrong != 0;
    }
    for (int from = 1; from < size; from++)
        CHECK(MPI_Recv(&token, 1, MPI_INT, from, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE) == MPI_SUCCESS && token == from);
    for (int from = 1; from < size; from++) {
        /* A test reports no error, and the receive may be cancelled. */
        MPI_Irecv(&token, 1, MPI_INT, from, 3, MPI_COMM_WORLD, &requests[0]);
        for (double end = MPI_Wtime() + 0.1; MPI_Wtime() < end;) {
            CHECK(MPI_Test(&requests[0], &flag, &status) == MPI_SUCCESS && !flag);
            CHECK(MPI_Iprobe(from, 3, MPI_COMM_WORLD, &flag, &status) == MPI_SUCCESS && !flag);
        }
        MPI_Cancel(&requests[0]);
        CHECK(MPI_Wait(&requests[0], &status) == MPI_SUCCESS);
        MPI_Test_cancelled(&status, &cancelled);
        CHECK(cancelled);

        FAILS(MPI_Recv(&token, 1, MPI_INT, from, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE), MPI_ERR_PROC_ABORTED);
        FAILS(MPI_Probe(from, 3, MPI_COMM_WORLD, &status), MPI_ERR_PROC_ABORTED);
        FAILS(MPI_Mprobe(from, 3, MPI_COMM_WORLD, &message, &status), MPI_ERR_PROC_ABORTED);
        FAILS(MPI_Ssend(&token, 1, MPI_INT, from, 3, MPI_COMM_WORLD), MPI_ERR_PROC_ABORTED);
        MPI_Irecv(&token, 1, MPI_INT, from, 3, MPI_COMM_WORLD, &requests[0]);
        FAILS(MPI_Wait(&requests[0], &status), MPI_ERR_PROC_ABORTED);
        CHECK(requests[0] == MPI_REQUEST_NULL);

        /* One of two requests can still complete: the call waits for that one. */
        for (int which = 0; which < 2; which++) {
            MPI_Irecv(&token, 1, MPI_INT, from, 3, MPI_COMM_WORLD, &requests[0]);
            MPI_Irecv(&token, 1, MPI_INT, from, 1, MPI_COMM_WORLD, &requests[1]);
            int code = MPI_Waitany(2, requests, &index, &status);
            CHECK(class_of(code) == (which ? MPI_ERR_PROC_ABORTED : MPI_SUCCESS) && index == !which);
            if (!which)
                MPI_Cancel(&requests[0]);
            CHECK(class_of(MPI_Wait(&requests[which], &status)) == (which ? MPI_ERR_PROC_ABORTED : MPI_SUCCESS));
        }
        MPI_Irecv(&token, 1, MPI_INT, from, 3, MPI_COMM_WORLD, &requests[0]);
        MPI_Irecv(&token, 1, MPI_INT, from, 3, MPI_COMM_WORLD, &requests[1]);
        int indices[2];
        FAILS(MPI_Waitsome(2, requests, &count, indices, statuses), MPI_ERR_IN_STATUS);
        CHECK(count == 2 && statuses[0].MPI_ERROR == statuses[1].MPI_ERROR);
        FAILS(statuses[0].MPI_ERROR, MPI_ERR_PROC_ABORTED);

        MPI_Recv_init(&token, 1, MPI_INT, from, 3, MPI_COMM_WORLD, &requests[0]);
        MPI_Start(&requests[0]);
        FAILS(MPI_Wait(&requests[0], &status), MPI_ERR_PROC_ABORTED);
        MPI_Request_free(&requests[0]);
        FAILS(MPI_Sendrecv(&token, 1, MPI_INT, MPI_PROC_NULL, 3, &token, 1, MPI_INT, from, 3, MPI_COMM_WORLD, &status),
              MPI_ERR_PROC_ABORTED);
    }
    if (size > 1) {
        FAILS(MPI_Barrier(MPI_COMM_WORLD), MPI_ERR_PROC_ABORTED);
        int code = MPI_Ibarrier(MPI_COMM_WORLD, &requests[0]);
        FAILS(code == MPI_SUCCESS ? MPI_Wait(&requests[0], &status) : code, MPI_ERR_PROC_ABORTED);
    }
    MPI_Finalize();
    if (!wrong)
        printf("finalized ok on %d\n", size);
    return wrong != 0;
}
