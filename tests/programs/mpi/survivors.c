/* `survivors GATE`: survives the deaths of others. It opens MPI with a session, runs reductions with all others until a process is gone,
 * closes, and opens MPI again for the next world; until, on rank 0, the file GATE exists. Prints one line per world. */
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

/* Runs one world: returns 1 if the gate was open, 0 if a process has gone, -1 if there is no world. */
static int world(const char *gate, int number) {
    MPI_Session session;
    MPI_Group group;
    MPI_Comm comm;
    int rank, size, told = 0, mine[2], all[2] = {0, 0};
    if (MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session) != MPI_SUCCESS)
        return -1;
    MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
    int made = MPI_Comm_create_from_group(group, "survivors", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm);
    MPI_Group_free(&group);
    if (made == MPI_SUCCESS) {
        MPI_Comm_rank(comm, &rank);
        MPI_Comm_size(comm, &size);
        while (all[1] == 0) {
            mine[0] = rank;
            mine[1] = rank == 0 && access(gate, F_OK) == 0;
            if (MPI_Allreduce(mine, all, 2, MPI_INT, MPI_SUM, comm) != MPI_SUCCESS)
                break;
            if (!told++) {
                printf("world %d: rank %d of %d, sum %d\n", number, rank, size, all[0]);
                fflush(stdout);
            }
            usleep(2000);
        }
    }
    /* After the loss of a peer the process manager has closed the connection, so an error on leaving the job is expected. */
    MPI_Session_finalize(&session);
    return made == MPI_SUCCESS ? all[1] : 0;
}

int main(int argc, char **argv) {
    int open = 0;
    if (argc < 2)
        return 2;
    for (int number = 1; open == 0; number++)
        open = world(argv[1], number);
    return open < 0;
}
