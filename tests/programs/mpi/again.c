/* MPI is closed after its last user and opened again by the next one: several sessions, then the world model. The argument says
 * whether the launcher accepts a process `again` or only `once`; if `once`, the second session must be refused with an explanation. */
#include "check.h"

static int session(MPI_Session *made) {
    return MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, made);
}

/* All processes exchange data. */
static void talk(MPI_Session in, int round_) {
    MPI_Group group;
    MPI_Comm comm;
    CHECK(MPI_Group_from_session_pset(in, "mpi://WORLD", &group) == MPI_SUCCESS);
    CHECK(MPI_Comm_create_from_group(group, "org.example.again", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm) == MPI_SUCCESS);
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    int *all = room(sizeof(int) * (size_t)size), mine = rank + 1000 * round_;
    CHECK(MPI_Allgather(&mine, 1, MPI_INT, all, 1, MPI_INT, comm) == MPI_SUCCESS);
    for (int i = 0; i < size; i++)
        CHECK(all[i] == i + 1000 * round_);
    free(all);
    MPI_Comm_free(&comm);
    MPI_Group_free(&group);
}

int main(int argc, char **argv) {
    int again = argc > 1 && strcmp(argv[1], "again") == 0;
    MPI_Session made;
    for (int i = 0; i < (again ? 5 : 1); i++) {
        CHECK(session(&made) == MPI_SUCCESS);
        talk(made, i);
        CHECK(MPI_Session_finalize(&made) == MPI_SUCCESS);
    }
    if (again) {
        begin(&argc, &argv);
        return finish("again");
    }
    char text[MPI_MAX_ERROR_STRING];
    int length, code = session(&made);
    CHECK(code != MPI_SUCCESS && MPI_Error_string(code, text, &length) == MPI_SUCCESS);
    if (wrong == 0 && rank == 0)
        printf("once ok on %d\n", size);
    return wrong != 0;
}
