/* The process sets that rsd defines: the job, the group and the nodes; in addition to the standard's two (MPI 5.0 §11.3.2). */
#include "check.h"

static int members_of(MPI_Session session, const char *name, MPI_Group *group) {
    int members = -1;
    CHECK(MPI_Group_from_session_pset(session, name, group) == MPI_SUCCESS);
    MPI_Group_size(*group, &members);
    return members;
}

static int listed(MPI_Session session, const char *wanted) {
    int count = 0, found = 0;
    CHECK(MPI_Session_get_num_psets(session, MPI_INFO_NULL, &count) == MPI_SUCCESS);
    for (int i = 0; i < count; i++) {
        char name[MPI_MAX_PSET_NAME_LEN];
        int room_ = sizeof name;
        CHECK(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, i, &room_, name) == MPI_SUCCESS);
        found += strcmp(name, wanted) == 0;
    }
    return found;
}

/* A set of all ranks; if its variable is not set, there is none of this kind. */
static void whole(MPI_Session session, const char *kind, const char *variable) {
    char name[MPI_MAX_PSET_NAME_LEN];
    MPI_Group group;
    const char *value = getenv(variable);
    snprintf(name, sizeof name, "rsd://%s/%s", kind, value ? value : "1");
    CHECK(listed(session, name) == (value != NULL));
    if (value) {
        CHECK(members_of(session, name, &group) == size);
        MPI_Group_free(&group);
    } else {
        CHECK(MPI_Group_from_session_pset(session, name, &group) != MPI_SUCCESS);
    }
}

/* The ranks of one node communicate; all nodes together contain each rank once. */
static void nodes(MPI_Session session) {
    const char *own = getenv("RSD_NODE_NAME");
    int count = 0, together = 0, with_me = 0;
    CHECK(MPI_Session_get_num_psets(session, MPI_INFO_NULL, &count) == MPI_SUCCESS);
    for (int i = 0; i < count; i++) {
        char name[MPI_MAX_PSET_NAME_LEN];
        int room_ = sizeof name, mine;
        MPI_Group group;
        CHECK(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, i, &room_, name) == MPI_SUCCESS);
        if (strncmp(name, "rsd://node/", 11) != 0)
            continue;
        together += members_of(session, name, &group);
        MPI_Group_rank(group, &mine);
        with_me += mine != MPI_UNDEFINED;
        CHECK(own && (mine != MPI_UNDEFINED) == (strcmp(name + 11, own) == 0));
        if (mine != MPI_UNDEFINED) {
            MPI_Comm comm;
            int n, sum = 0, one = 1;
            CHECK(MPI_Comm_create_from_group(group, "org.example.node", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm) == MPI_SUCCESS);
            MPI_Comm_size(comm, &n);
            CHECK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm) == MPI_SUCCESS && sum == n);
            CHECK(n == atoi(getenv("RSD_LOCAL_SIZE")) && mine == atoi(getenv("RSD_LOCAL_RANK")));
            MPI_Comm_free(&comm);
        }
        MPI_Group_free(&group);
    }
    CHECK(together == (own ? size : 0) && with_me == (own != NULL));
}

int main(int argc, char **argv) {
    begin(&argc, &argv);
    MPI_Session session;
    MPI_Group group;
    CHECK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session) == MPI_SUCCESS);
    whole(session, "job", "RSD_JOB");
    whole(session, "group", "RSD_GROUP");
    nodes(session);
    CHECK(MPI_Group_from_session_pset(session, "rsd://node/none such", &group) != MPI_SUCCESS);
    CHECK(MPI_Group_from_session_pset(session, "rsd://job/0", &group) != MPI_SUCCESS);
    CHECK(MPI_Session_finalize(&session) == MPI_SUCCESS);
    return finish("psets");
}
