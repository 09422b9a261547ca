/* A process that may use 1 GiB of memory asks for more than that: an error, and communication goes on. */
#include "check.h"

#include <sys/mman.h>
#include <sys/resource.h>

int main(int argc, char **argv) {
    begin(&argc, &argv);
    size_t bytes = (size_t)700 << 20;
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    /* Pages that are never written cost nothing. */
    char *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(data != MAP_FAILED);
    struct rlimit limit = {(rlim_t)1 << 30, (rlim_t)1 << 30};
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    FAILS(MPI_Sendrecv_replace(data, (int)bytes, MPI_CHAR, 0, 1, 0, 1, MPI_COMM_SELF, MPI_STATUS_IGNORE), MPI_ERR_NO_MEM);
    int got = 0;
    CHECK(MPI_Allreduce(&size, &got, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD) == MPI_SUCCESS && got == size);
    return finish("exhausted");
}
