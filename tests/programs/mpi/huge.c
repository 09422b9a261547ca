/* One message of more than two gigabytes, as bytes with a large count and as elements of a type with a small one. */
#include "check.h"

int main(int argc, char **argv) {
    begin(&argc, &argv);
    MPI_Count bytes = ((MPI_Count)1 << 31) + 4099, got = 0;
    enum { STEP = 4096 - 7 };
    if (size != 2) {
        fprintf(stderr, "huge runs on two ranks\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    unsigned char *p = calloc((size_t)bytes, 1);
    CHECK(p != NULL);
    MPI_Datatype all;
    MPI_Type_contiguous_c(bytes, MPI_BYTE, &all);
    MPI_Type_commit(&all);
    if (rank == 0) {
        for (MPI_Count i = 0; i < bytes; i += STEP)
            p[i] = (unsigned char)(i / STEP % 251 + 1);
        p[bytes - 1] = 99;
        MPI_Send_c(p, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
    } else {
        MPI_Status status;
        MPI_Recv(p, 1, all, 0, 1, MPI_COMM_WORLD, &status);
        MPI_Get_count_c(&status, MPI_BYTE, &got);
        int narrow;
        MPI_Get_count(&status, MPI_BYTE, &narrow);
        CHECK(got == bytes && narrow == MPI_UNDEFINED && p[bytes - 1] == 99);
        long differing = 0;
        for (MPI_Count i = 0; i < bytes - 1; i += STEP)
            differing += p[i] != (unsigned char)(i / STEP % 251 + 1);
        CHECK(differing == 0);
    }
    MPI_Type_free(&all);
    free(p);
    return finish("huge");
}
