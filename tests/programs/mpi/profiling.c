/* The profiling interface (MPI 5.0 §15.2): the program's own functions replace the library's and call PMPI_; and the
 * library never calls its own functions by their public names. */
#include "check.h"

static int sends, receives, allreduces, depth;

int MPI_Send(const void *buffer, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
    sends++;
    CHECK(depth == 0);
    depth++;
    int code = PMPI_Send(buffer, count, type, to, tag, comm);
    depth--;
    return code;
}

int MPI_Recv(void *buffer, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Status *status) {
    receives++;
    CHECK(depth == 0);
    depth++;
    int code = PMPI_Recv(buffer, count, type, from, tag, comm, status);
    depth--;
    return code;
}

int MPI_Allreduce(const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    allreduces++;
    CHECK(depth == 0);
    depth++;
    int code = PMPI_Allreduce(in, out, count, type, op, comm);
    depth--;
    return code;
}

int main(int argc, char **argv) {
    begin(&argc, &argv);
    int sum = 0, got = -1;
    MPI_Comm dup, half;
    MPI_Comm_dup(MPI_COMM_WORLD, &dup);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, 0, &half);
    MPI_Barrier(dup);
    CHECK(sends == 0 && receives == 0 && allreduces == 0);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, dup);
    CHECK(allreduces == 1 && sum == size * (size - 1) / 2);
    MPI_Request request;
    MPI_Irecv(&got, 1, MPI_INT, left(), 1, dup, &request);
    MPI_Send(&rank, 1, MPI_INT, right(), 1, dup);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(sends == 1 && receives == 0 && got == left());
    MPI_Isend(&rank, 1, MPI_INT, left(), 2, dup, &request);
    MPI_Recv(&got, 1, MPI_INT, right(), 2, dup, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(sends == 1 && receives == 1 && got == right());
    MPI_Comm_free(&half);
    MPI_Comm_free(&dup);
    return finish("profiling");
}
