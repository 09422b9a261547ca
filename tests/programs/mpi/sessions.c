/* Sessions: before MPI_Init, beside it and after MPI_Finalize; process sets, and communicators made of them (MPI 5.0 §11.3). */
#include "check.h"

static MPI_Session begin_session(const char *level) {
    MPI_Session session = MPI_SESSION_NULL;
    MPI_Info info = MPI_INFO_NULL;
    if (level) {
        MPI_Info_create(&info);
        MPI_Info_set(info, "thread_level", level);
    }
    CHECK(MPI_Session_init(info, MPI_ERRORS_RETURN, &session) == MPI_SUCCESS);
    CHECK(session != MPI_SESSION_NULL);
    if (level) {
        char told[64] = "";
        int room_ = sizeof told, flag = 0;
        MPI_Info_free(&info);
        CHECK(MPI_Session_get_info(session, &info) == MPI_SUCCESS);
        MPI_Info_get_string(info, "thread_level", &room_, told, &flag);
        CHECK(flag && (on_mpich() || strcmp(told, level) == 0));
        MPI_Info_free(&info);
    }
    return session;
}

static void end_session(MPI_Session session) {
    CHECK(MPI_Session_finalize(&session) == MPI_SUCCESS);
    CHECK(session == MPI_SESSION_NULL);
}

static MPI_Group set(MPI_Session session, const char *name) {
    MPI_Group group = MPI_GROUP_NULL;
    CHECK(MPI_Group_from_session_pset(session, name, &group) == MPI_SUCCESS);
    return group;
}

static MPI_Comm comm_of(MPI_Group group, const char *tag) {
    MPI_Comm comm = MPI_COMM_NULL;
    CHECK(MPI_Comm_create_from_group(group, tag, MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm) == MPI_SUCCESS);
    return comm;
}

/* Gathers the members' ranks in the set of all, and reduces them to a sum on all. */
static void works(MPI_Comm comm, int number, int members, int expected) {
    int n, sum = -1;
    MPI_Comm_size(comm, &n);
    CHECK(n == members);
    CHECK(MPI_Allreduce(&number, &sum, 1, MPI_INT, MPI_SUM, comm) == MPI_SUCCESS);
    CHECK(sum == expected);
    MPI_Barrier(comm);
}

static void sets(MPI_Session session) {
    int count = 0, world = 0, self = 0;
    CHECK(MPI_Session_get_num_psets(session, MPI_INFO_NULL, &count) == MPI_SUCCESS && count >= 2);
    for (int i = 0; i < count; i++) {
        char name[MPI_MAX_PSET_NAME_LEN + 1], cut[4] = "abc", value_[16] = "";
        int need = 0, again, flag, room_ = sizeof value_, short_ = 4;
        CHECK(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, i, &need, NULL) == MPI_SUCCESS);
        CHECK(need > 1 && need <= MPI_MAX_PSET_NAME_LEN);
        again = need;
        CHECK(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, i, &again, name) == MPI_SUCCESS);
        CHECK(again == need && (int)strlen(name) + 1 == need);
        CHECK(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, i, &short_, cut) == MPI_SUCCESS);
        CHECK(strncmp(cut, name, 3) == 0 && cut[3] == 0);
        world += strcmp(name, "mpi://WORLD") == 0;
        self += strcmp(name, "mpi://SELF") == 0;
        MPI_Info info;
        CHECK(MPI_Session_get_pset_info(session, name, &info) == MPI_SUCCESS);
        MPI_Info_get_string(info, "mpi_size", &room_, value_, &flag);
        MPI_Group group = set(session, name);
        int members;
        MPI_Group_size(group, &members);
        CHECK(flag && atoi(value_) == members);
        MPI_Group_free(&group);
        MPI_Info_free(&info);
    }
    CHECK(world == 1 && self == 1);
}

static void before(void) {
    MPI_Session first = begin_session("MPI_THREAD_SINGLE"), second = begin_session(NULL);
    int initialized = 1, finalized = 1, n, r, alone;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    CHECK(!initialized && !finalized);
    sets(first);
    MPI_Group all = set(first, "mpi://WORLD"), own = set(second, "mpi://SELF");
    MPI_Group_rank(all, &r);
    MPI_Group_size(all, &n);
    rank = r;
    size = n;
    MPI_Group_size(own, &alone);
    CHECK(alone == 1);
    MPI_Comm whole = comm_of(all, "org.example.whole"), single = comm_of(own, "org.example.single");
    works(whole, r, n, n * (n - 1) / 2);
    works(single, r, 1, r);
    MPI_Comm copy, half;
    CHECK(MPI_Comm_dup(whole, &copy) == MPI_SUCCESS);
    works(copy, 1, n, n);
    CHECK(MPI_Comm_split(copy, r % 2, -r, &half) == MPI_SUCCESS);
    works(half, 1, r % 2 ? n / 2 : (n + 1) / 2, r % 2 ? n / 2 : (n + 1) / 2);
    MPI_Comm_free(&half);
    MPI_Comm_free(&copy);
    /* Ranks in reverse order; several with one string, one after the other; only some members. */
    int backwards[1][3] = {{n - 1, 0, -1}};
    MPI_Group turned;
    MPI_Group_range_incl(all, 1, backwards, &turned);
    MPI_Comm same[3];
    for (int i = 0; i < 3; i++) {
        int mine;
        same[i] = comm_of(turned, "org.example.turned");
        MPI_Comm_rank(same[i], &mine);
        CHECK(mine == n - 1 - r);
    }
    for (int i = 0; i < 3; i++) {
        works(same[i], i, n, n * i);
        MPI_Comm_free(&same[i]);
    }
    int evens[1][3] = {{0, n - 1, 2}};
    MPI_Group even;
    MPI_Group_range_incl(all, 1, evens, &even);
    if (r % 2 == 0) {
        MPI_Comm comm = comm_of(even, "org.example.even");
        works(comm, 1, (n + 1) / 2, (n + 1) / 2);
        MPI_Comm_free(&comm);
    }
    MPI_Group odd;
    MPI_Group_difference(all, even, &odd);
    if (n > 1) {
        MPI_Comm inter = MPI_COMM_NULL;
        int flag, theirs, sum = -1;
        /* Only the leader knows the other group. */
        CHECK(MPI_Intercomm_create_from_groups(r % 2 ? odd : even, 0, r < 2 || on_mpich() ? (r % 2 ? even : odd) : MPI_GROUP_NULL, 0, "org.example.inter",
                                               MPI_INFO_NULL, MPI_ERRORS_RETURN, &inter) == MPI_SUCCESS);
        MPI_Comm_test_inter(inter, &flag);
        MPI_Comm_remote_size(inter, &theirs);
        CHECK(flag && theirs == (r % 2 ? (n + 1) / 2 : n / 2));
        MPI_Allreduce(&r, &sum, 1, MPI_INT, MPI_SUM, inter);
        int expected = 0;
        for (int i = 0; i < n; i++)
            expected += (i % 2 != r % 2) * i;
        CHECK(sum == expected);
        MPI_Comm_free(&inter);
    }
    MPI_Group_free(&odd);
    MPI_Group_free(&even);
    MPI_Group_free(&turned);
    MPI_Comm_disconnect(&single);
    MPI_Comm_disconnect(&whole);
    MPI_Group_free(&all);
    MPI_Group_free(&own);
    end_session(first);
    /* The other session stays open until after MPI_Init. */
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &r);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    CHECK(r == rank && n == size);
    works(MPI_COMM_WORLD, 1, size, size);
    end_session(second);
    works(MPI_COMM_WORLD, 1, size, size);
}

static void buffers(MPI_Session session) {
    MPI_Group own = set(session, "mpi://SELF");
    MPI_Comm self = comm_of(own, "org.example.buffers");
    int n = 4 * (int)sizeof(int) + 4 * MPI_BSEND_OVERHEAD, got = 0, told = 0;
    void *memory = room((size_t)n), *back = NULL;
    CHECK(MPI_Session_attach_buffer(session, memory, n) == MPI_SUCCESS);
    for (int i = 0; i < 3; i++)
        CHECK(MPI_Bsend(&i, 1, MPI_INT, 0, i, self) == MPI_SUCCESS);
    for (int i = 0; i < 3; i++) {
        MPI_Recv(&got, 1, MPI_INT, 0, i, self, MPI_STATUS_IGNORE);
        CHECK(got == i);
    }
    MPI_Request flush;
    CHECK(MPI_Session_iflush_buffer(session, &flush) == MPI_SUCCESS && MPI_Wait(&flush, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    CHECK(MPI_Session_flush_buffer(session) == MPI_SUCCESS);
    CHECK(MPI_Session_detach_buffer(session, &back, &told) == MPI_SUCCESS);
    CHECK(back == memory && told == n);
    FAILS(MPI_Bsend(&n, 1, MPI_INT, 0, 0, self), MPI_ERR_BUFFER);
    free(memory);
    MPI_Comm_free(&self);
    MPI_Group_free(&own);
}

/* The end of a session does not wait for messages of the world model, which nobody has received yet. */
static void others_messages(void) {
    MPI_Session session = begin_session(NULL);
    MPI_Request request;
    int out = 5, got = 0;
    MPI_Issend(&out, 1, MPI_INT, 0, 3, MPI_COMM_SELF, &request);
    end_session(session);
    MPI_Recv(&got, 1, MPI_INT, 0, 3, MPI_COMM_SELF, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(got == 5);
}

static int seen, calls;

static void handler(MPI_Session *session, int *code, ...) {
    (void)session;
    calls++;
    seen = class_of(*code);
}

#define STRICT(call, expected) \
    do { \
        if (!on_mpich()) \
            FAILS(call, expected); \
    } while (0)

static void errors(MPI_Session session) {
    MPI_Session none = MPI_SESSION_NULL;
    MPI_Group group, all = set(session, "mpi://WORLD"), own = set(session, "mpi://SELF"), others;
    MPI_Comm comm;
    MPI_Info info;
    MPI_Errhandler mine, got;
    int n;
    group = all;
    STRICT(MPI_Group_from_session_pset(session, "mpi://NOWHERE", &group), MPI_ERR_ARG);
    CHECK(on_mpich() || group == MPI_GROUP_NULL);
    for (int which = 0; which < 3 && !on_mpich(); which++) {
        comm = MPI_COMM_SELF;
        CHECK(MPI_Intercomm_create_from_groups(which == 1 ? own : MPI_GROUP_EMPTY, 0, which == 0 ? own : MPI_GROUP_EMPTY, 0, "t",
                                               MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm) == MPI_SUCCESS);
        CHECK(comm == MPI_COMM_NULL);
    }
    STRICT(MPI_Group_from_session_pset(session, NULL, &group), MPI_ERR_ARG);
    STRICT(MPI_Group_from_session_pset(none, "mpi://WORLD", &group), MPI_ERR_SESSION);
    STRICT(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, 99, &n, NULL), MPI_ERR_ARG);
    STRICT(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, -1, &n, NULL), MPI_ERR_ARG);
    STRICT(MPI_Session_get_num_psets(none, MPI_INFO_NULL, &n), MPI_ERR_SESSION);
    STRICT(MPI_Session_get_num_psets(session, MPI_INFO_NULL, NULL), MPI_ERR_ARG);
    STRICT(MPI_Session_get_pset_info(session, "mpi://NOWHERE", &info), MPI_ERR_ARG);
    STRICT(MPI_Session_get_info(none, &info), MPI_ERR_SESSION);
    STRICT(MPI_Session_finalize(&none), MPI_ERR_SESSION);
    STRICT(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, NULL), MPI_ERR_ARG);
    STRICT(MPI_Comm_create_from_group(MPI_GROUP_NULL, "t", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm), MPI_ERR_GROUP);
    STRICT(MPI_Comm_create_from_group(all, NULL, MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm), MPI_ERR_ARG);
    char longer[MPI_MAX_STRINGTAG_LEN + 2];
    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = 0;
    STRICT(MPI_Comm_create_from_group(all, longer, MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm), MPI_ERR_ARG);
    MPI_Group_difference(all, own, &others);
    if (size > 1)
        STRICT(MPI_Comm_create_from_group(others, "t", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm), MPI_ERR_GROUP);
    MPI_Group_free(&others);
    STRICT(MPI_Intercomm_create_from_groups(own, 0, own, 0, "t", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm), MPI_ERR_RANK);
    STRICT(MPI_Intercomm_create_from_groups(own, 1, all, 0, "t", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm), MPI_ERR_RANK);
    STRICT(MPI_Intercomm_create_from_groups(own, 0, all, size, "t", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm), MPI_ERR_RANK);
    MPI_Info_create(&info);
    MPI_Info_set(info, "thread_level", "MPI_THREAD_NONE");
    STRICT(MPI_Session_init(info, MPI_ERRORS_RETURN, &none), MPI_ERR_ARG);
    MPI_Info_free(&info);
    MPI_Group_free(&all);
    MPI_Group_free(&own);

    CHECK(MPI_Session_create_errhandler(handler, &mine) == MPI_SUCCESS);
    CHECK(MPI_Session_set_errhandler(session, mine) == MPI_SUCCESS);
    CHECK(MPI_Session_get_errhandler(session, &got) == MPI_SUCCESS && got == mine);
    MPI_Errhandler_free(&got);
    MPI_Errhandler_free(&mine);
    CHECK(MPI_Session_call_errhandler(session, MPI_ERR_OTHER) == MPI_SUCCESS);
    CHECK(calls == 1 && seen == MPI_ERR_OTHER);
    if (!on_mpich()) {
        MPI_Session_get_num_psets(session, MPI_INFO_NULL, NULL);
        CHECK(calls == 2 && seen == MPI_ERR_ARG);
    }
    MPI_Session_set_errhandler(session, MPI_ERRORS_RETURN);
}

int main(int argc, char **argv) {
    (void)argc, (void)argv;
    before();
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Session beside = begin_session("MPI_THREAD_MULTIPLE");
    buffers(beside);
    others_messages();
    errors(beside);
    int all = 1;
    MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalize();
    /* It stays open after MPI_Finalize, and new sessions may begin. */
    int finalized = 0;
    MPI_Finalized(&finalized);
    CHECK(finalized);
    MPI_Session after = begin_session(NULL);
    sets(after);
    MPI_Group group = set(after, "mpi://WORLD");
    MPI_Comm comm = comm_of(group, "org.example.after");
    works(comm, rank, size, size * (size - 1) / 2);
    MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, comm);
    MPI_Comm_free(&comm);
    MPI_Group_free(&group);
    end_session(beside);
    end_session(after);
    if (all == 0 && rank == 0)
        printf("sessions ok on %d\n", size);
    return all != 0 || wrong != 0;
}
