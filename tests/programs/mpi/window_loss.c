/* The last rank is killed while the others wait for it in a call about a window of one node, which no message would end: the call fails. */
#include "check.h"

#include <signal.h>
#include <unistd.h>

int main(int argc, char **argv) {
    begin(&argc, &argv);
    const char *what = argc > 1 ? argv[1] : "lock";
    int *memory, code, victim = size - 1;
    MPI_Win win;
    MPI_Win_allocate(sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    /* The barrier fails where the death is noticed before its end. */
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == victim) {
        /* It dies with the lock of rank 0. */
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
        kill(getpid(), SIGKILL);
    }
    if (strcmp(what, "lock") == 0) {
        while ((code = MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win)) == MPI_SUCCESS)
            MPI_Win_unlock(0, win);
    } else if (strcmp(what, "fence") == 0) {
        code = MPI_Win_fence(0, win);
    } else {
        MPI_Group all, last;
        MPI_Comm_group(MPI_COMM_WORLD, &all);
        MPI_Group_incl(all, 1, &victim, &last);
        if (strcmp(what, "start") == 0) {
            code = MPI_Win_start(last, 0, win);
        } else {
            MPI_Win_post(last, 0, win);
            code = MPI_Win_wait(win);
        }
    }
    printf("rank %d: %s\n", rank, class_of(code) == MPI_ERR_PROC_ABORTED ? "the loss is an error" : "wrong");
    fflush(stdout);
    MPI_Finalize();
    return 0;
}
