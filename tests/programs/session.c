/* A program of MPI 4 without MPI_Init, for any MPI: a session, its process sets, communicators made of them. Twice, so that a process can
 * come back. Prints `session right on SIZE`. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(int holds, const char *what) {
    if (holds)
        return;
    fprintf(stderr, "failed: %s\n", what);
    exit(1);
}

/* A communicator of a process set, and its size. */
static int comm_of(MPI_Session session, const char *set, const char *tag, MPI_Comm *comm) {
    MPI_Group group;
    int size;
    must(MPI_Group_from_session_pset(session, set, &group) == MPI_SUCCESS, set);
    must(MPI_Comm_create_from_group(group, tag, MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, comm) == MPI_SUCCESS, tag);
    MPI_Group_free(&group);
    MPI_Comm_size(*comm, &size);
    return size;
}

static int has_set(MPI_Session session, const char *wanted) {
    int count, found = 0;
    MPI_Session_get_num_psets(session, MPI_INFO_NULL, &count);
    for (int at = 0; at < count; at++) {
        char name[MPI_MAX_PSET_NAME_LEN + 1];
        int room = sizeof name;
        MPI_Session_get_nth_pset(session, MPI_INFO_NULL, at, &room, name);
        found |= strcmp(name, wanted) == 0;
    }
    return found;
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 1, rank = 0, size = 0, sum;
    for (int round = 0; round < rounds; round++) {
        MPI_Session session;
        MPI_Comm world, self;
        must(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session) == MPI_SUCCESS, "MPI_Session_init");
        must(has_set(session, "mpi://WORLD") && has_set(session, "mpi://SELF"), "the sets of the standard");
        size = comm_of(session, "mpi://WORLD", "world", &world);
        must(comm_of(session, "mpi://SELF", "self", &self) == 1, "one process in SELF");
        MPI_Comm_rank(world, &rank);
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, world);
        must(sum == size * (size - 1) / 2, "the sum over all");
        const char *told = getenv("RSD_RANK");
        must(!told || atoi(told) == rank, "the rank is the launcher's");
        MPI_Comm_free(&self);
        MPI_Comm_free(&world);
        must(MPI_Session_finalize(&session) == MPI_SUCCESS, "MPI_Session_finalize");
    }
    if (rank == 0)
        printf("session right on %d\n", size);
    return 0;
}
