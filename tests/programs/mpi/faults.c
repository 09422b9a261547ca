/* Mistakes that must be errors, and nothing worse: arguments that are wrong at one rank only, handlers that are set in one place only,
 * functions that any thread may call at any thread level (MPI 5.0 §6.2, §9.3, §11.6). */
#include "check.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 64, BIG = 100000 };

static int *one, *two;
static MPI_Comm comm;

/* A call with the arguments of this program, wrong if `bad`. The first calls of a communicator use messages, the later ones shared
 * memory; long blocks take a third way. */
static int call(int which, int bad, int count) {
    MPI_Request request = MPI_REQUEST_NULL;
    int fewer = bad ? count - 1 : count, counts[MOST], places[MOST], code;
    for (int i = 0; i < size; i++) {
        counts[i] = count;
        places[i] = i * count;
    }
    switch (which) {
    case 0:
        return MPI_Allgather(one, fewer, MPI_INT, two, count, MPI_INT, comm);
    case 1:
        return MPI_Alltoall(one, fewer, MPI_INT, two, count, MPI_INT, comm);
    case 2:
        return MPI_Allreduce(one, bad ? one : two, count, MPI_INT, MPI_SUM, comm);
    case 3:
        return MPI_Allgatherv(one, fewer, MPI_INT, two, counts, places, MPI_INT, comm);
    case 4:
        return MPI_Allgather(bad ? two : one, count, MPI_INT, two, count, MPI_INT, comm);
    case 5:
        return MPI_Scan(one, bad ? one : two, count, MPI_INT, MPI_SUM, comm);
    case 6:
        return MPI_Reduce_scatter_block(one, bad ? one : two, count, MPI_INT, MPI_SUM, comm);
    default:
        code = MPI_Iallgather(one, fewer, MPI_INT, two, count, MPI_INT, comm, &request);
        return code != MPI_SUCCESS ? code : MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
}

/* What is wrong is wrong at all ranks, or at the last one: no rank waits for another forever, and the next call works. */
static void counts_and_aliases(int count) {
    static const int classes[] = {MPI_ERR_COUNT,  MPI_ERR_COUNT,  MPI_ERR_BUFFER, MPI_ERR_COUNT,
                                  MPI_ERR_BUFFER, MPI_ERR_BUFFER, MPI_ERR_BUFFER, MPI_ERR_COUNT};
    for (int round = 0; round < 6; round++)
        for (int which = 0; which < 8; which++) {
            int all = round % 2, bad = all || rank == size - 1;
            int code = call(which, bad, count);
            if (bad)
                FAILS(code, classes[which]);
            for (int i = 0; i < count; i++)
                one[i] = rank + i;
            CHECK(MPI_Allgather(one, count, MPI_INT, two, count, MPI_INT, comm) == MPI_SUCCESS);
            for (int i = 0; i < size * count; i += count - 1)
                CHECK(two[i] == i / count + i % count);
        }
}

static void rooted(void) {
    for (int round = 0; round < 6; round++) {
        int code = MPI_Reduce(one, rank == 0 ? one : NULL, 4, MPI_INT, MPI_SUM, 0, comm);
        if (rank == 0)
            FAILS(code, MPI_ERR_BUFFER);
        code = MPI_Gather(one, 1, MPI_INT, two, 2, MPI_INT, 0, comm);
        if (rank == 0)
            FAILS(code, MPI_ERR_COUNT);
        code = MPI_Gather(one, 2, MPI_INT, two, 1, MPI_INT, 0, comm);
        if (rank == 0)
            FAILS(code, MPI_ERR_TRUNCATE);
        code = MPI_Scatter(two, 2, MPI_INT, one, 1, MPI_INT, 0, comm);
        FAILS(code, rank == 0 || size == 1 ? MPI_ERR_TRUNCATE : class_of(code));
        code = MPI_Gather(rank == 0 ? two : one, 1, MPI_INT, two, 1, MPI_INT, 0, comm);
        if (rank == 0)
            FAILS(code, MPI_ERR_BUFFER);
        CHECK(MPI_Barrier(comm) == MPI_SUCCESS);
    }
}

/* The even and the odd elements of one array are two buffers. */
static void disjoint_types(void) {
    MPI_Datatype even, odd;
    int blocks[4] = {1, 1, 1, 1}, at[4] = {0, 2, 4, 6}, next[4] = {1, 3, 5, 7};
    MPI_Type_indexed(4, blocks, at, MPI_INT, &even);
    MPI_Type_indexed(4, blocks, next, MPI_INT, &odd);
    MPI_Type_commit(&even);
    MPI_Type_commit(&odd);
    for (int i = 0; i < 8; i++)
        one[i] = i % 2 ? -1 : rank + i;
    if (size == 1)
        CHECK(MPI_Allgather(one, 1, even, one, 1, odd, comm) == MPI_SUCCESS && one[7] == 6 && one[1] == 0);
    int code = MPI_Alltoall(one, 0, even, one, 0, odd, comm);
    CHECK(code == MPI_SUCCESS);
    MPI_Type_free(&even);
    MPI_Type_free(&odd);
}

/* A request that is not complete has no index. */
static void get_status(void) {
    MPI_Request requests[2];
    MPI_Status status;
    int flag = 5, index = 5, token = 0;
    if (on_mpich())
        return;
    MPI_Irecv(&token, 1, MPI_INT, 0, 71, MPI_COMM_SELF, &requests[0]);
    requests[1] = MPI_REQUEST_NULL;
    status.MPI_ERROR = 4711;
    CHECK(MPI_Request_get_status_any(1, &requests[1], &index, &flag, &status) == MPI_SUCCESS);
    CHECK(flag && index == MPI_UNDEFINED && status.MPI_ERROR == MPI_SUCCESS);
    CHECK(MPI_Request_get_status_any(2, requests, &index, &flag, &status) == MPI_SUCCESS);
    CHECK(!flag && index == MPI_UNDEFINED);
    MPI_Send(&rank, 1, MPI_INT, 0, 71, MPI_COMM_SELF);
    CHECK(MPI_Request_get_status_any(2, requests, &index, &flag, &status) == MPI_SUCCESS);
    CHECK(flag && index == 0 && status.MPI_TAG == 71);
    MPI_Wait(&requests[0], &status);
}

/* Errors without a communicator go to the handler of MPI_COMM_SELF or, if only MPI_COMM_WORLD has one, to that. */
static int heard;
static MPI_Comm heard_on;

static void hear(MPI_Comm *on, int *code, ...) {
    heard = *code;
    heard_on = *on;
}

static void handlers(void) {
    MPI_Errhandler handler;
    MPI_Group none = MPI_GROUP_NULL;
    MPI_Datatype null = MPI_DATATYPE_NULL;
    FAILS(MPI_Type_contiguous(1, MPI_INT, NULL), MPI_ERR_ARG);
    FAILS(MPI_Type_free(&null), MPI_ERR_TYPE);
    FAILS(MPI_Group_free(&none), MPI_ERR_GROUP);
    MPI_Comm_create_errhandler(hear, &handler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
    FAILS(MPI_Type_contiguous(-1, MPI_INT, &null), MPI_ERR_COUNT);
    CHECK(class_of(heard) == MPI_ERR_COUNT && heard_on == MPI_COMM_WORLD);
    heard = 0;
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    FAILS(MPI_Type_contiguous(-1, MPI_INT, &null), MPI_ERR_COUNT);
    CHECK(heard == 0);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, handler);
    FAILS(MPI_Type_contiguous(-1, MPI_INT, &null), MPI_ERR_COUNT);
    CHECK(class_of(heard) == MPI_ERR_COUNT && heard_on == MPI_COMM_SELF);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Errhandler_free(&handler);
}

/* Below MPI_THREAD_MULTIPLE, a thread waits for a message, and another one calls what any thread may call. */
static void *visit(void *failures) {
    int *missed = failures;
    for (int i = 0; i < 2000; i++) {
        MPI_Info info, copy;
        MPI_Errhandler handler;
        char text[MPI_MAX_ERROR_STRING], value[8];
        int length, class, flag, main = 1, room = sizeof value;
        MPI_Info_create(&info);
        MPI_Info_set(info, "key", "value");
        MPI_Info_dup(info, &copy);
        MPI_Info_get_string(copy, "key", &room, value, &flag);
        *missed += !flag || strcmp(value, "value") != 0;
        MPI_Info_free(&info);
        MPI_Info_free(&copy);
        MPI_Session_create_errhandler((MPI_Session_errhandler_function *)hear, &handler);
        MPI_Errhandler_free(&handler);
        MPI_Error_class(MPI_ERR_COUNT, &class);
        MPI_Error_string(MPI_ERR_COUNT, text, &length);
        MPI_Is_thread_main(&main);
        *missed += class != MPI_ERR_COUNT || length == 0 || main;
        if (i % 100 == 0 && !on_mpich()) {
            MPI_Session session;
            *missed += MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session) != MPI_SUCCESS;
            *missed += MPI_Session_finalize(&session) != MPI_SUCCESS;
        }
    }
    return NULL;
}

static void visitors(void) {
    int missed = 0, tokens = 0, provided = -1, me = rank;
    pthread_t other;
    MPI_Query_thread(&provided);
    CHECK(provided == MPI_THREAD_SINGLE || on_mpich());
    if (pthread_create(&other, NULL, visit, &missed))
        exit(3);
    for (int i = 0; i < 5000; i++) {
        MPI_Sendrecv(&me, 1, MPI_INT, right(), 72, &tokens, 1, MPI_INT, left(), 72, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        CHECK(tokens == left());
    }
    pthread_join(other, NULL);
    CHECK(missed == 0);
}

/* A forked child is told that MPI is over; if it calls MPI nevertheless, it alone ends. */
static void forks(void) {
    if (on_mpich())
        return;
    for (int calls = 0; calls < 2; calls++) {
        int status = -1, over = 0;
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            int devnull = open("/dev/null", O_WRONLY);
            dup2(devnull, 2);
            MPI_Finalized(&over);
            if (!over)
                _exit(7);
            if (calls)
                MPI_Comm_rank(MPI_COMM_WORLD, &over);
            _exit(0);
        }
        CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
        CHECK(WEXITSTATUS(status) == (calls ? MPI_ERR_OTHER : 0));
        CHECK(MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS);
    }
}

/* The error field of a status is set only where the call returns MPI_ERR_IN_STATUS. */
static void error_fields(void) {
    MPI_Request requests[3];
    MPI_Status statuses[3];
    int got[3], sent[2] = {1, 2};
    for (int bad = 0; bad < 2; bad++) {
        for (int i = 0; i < 3; i++) {
            statuses[i].MPI_ERROR = 4711;
            MPI_Irecv(&got[i], 1, MPI_INT, rank, 80 + i, comm, &requests[i]);
        }
        for (int i = 0; i < 3; i++)
            MPI_Send(sent, i == 1 && bad ? 2 : 1, MPI_INT, rank, 80 + i, comm);
        int code = MPI_Waitall(3, requests, statuses);
        if (bad)
            FAILS(code, MPI_ERR_IN_STATUS);
        for (int i = 0; i < 3; i++)
            CHECK(class_of(statuses[i].MPI_ERROR) == (i == 1 ? MPI_ERR_TRUNCATE : MPI_SUCCESS) || !bad);
        for (int i = 0; i < 3 && !bad && !on_mpich(); i++)
            CHECK(statuses[i].MPI_ERROR == 4711);
    }
}

/* The tools interface has codes of its own, and calls no handler. */
static void tools(void) {
    int number;
    if (!on_mpich())
        CHECK(MPI_T_cvar_get_num(&number) == MPI_T_ERR_NOT_INITIALIZED);
}

/* A send to oneself that nobody receives can be cancelled, and then the wait does not depend on anybody. */
static void cancelled_sends(void) {
    static char big[1 << 20];
    MPI_Request request;
    MPI_Status status;
    int flag;
    for (int probed = 0; probed < 2; probed++) {
        MPI_Message message;
        MPI_Issend(big, sizeof big, MPI_CHAR, rank, 90, comm, &request);
        if (probed)
            MPI_Mprobe(rank, 90, comm, &message, MPI_STATUS_IGNORE);
        MPI_Cancel(&request);
        if (probed) {
            static char in[1 << 20];
            MPI_Test(&request, &flag, &status);
            CHECK(!flag);
            MPI_Mrecv(in, sizeof in, MPI_CHAR, &message, MPI_STATUS_IGNORE);
        }
        MPI_Wait(&request, &status);
        MPI_Test_cancelled(&status, &flag);
        CHECK(flag == !probed);
        MPI_Iprobe(rank, 90, comm, &flag, MPI_STATUS_IGNORE);
        CHECK(!flag);
    }
}

static int extents_seen, extents_wrong;

static void add_pairs(void *in, void *inout, int *count, MPI_Datatype *type) {
    MPI_Aint lb, extent = 0;
    extents_seen++;
    extents_wrong += MPI_Type_get_extent(*type, &lb, &extent) != MPI_SUCCESS || extent != 2 * (MPI_Aint)sizeof(int);
    for (int i = 0; i < 2 * *count; i++)
        ((int *)inout)[i] += ((int *)in)[i];
}

/* A user's function sees a valid datatype, although the program has freed it since. */
static void freed_types(void) {
    MPI_Datatype pair, copy;
    MPI_Op op;
    int mine[2] = {rank, 1}, all[2] = {-1, -1};
    MPI_Request request;
    MPI_Type_contiguous(2, MPI_INT, &pair);
    MPI_Type_commit(&pair);
    MPI_Op_create(add_pairs, 1, &op);
    MPI_Iallreduce(mine, all, 1, pair, op, comm, &request);
    copy = pair;
    MPI_Type_free(&pair);
    FAILS(MPI_Type_free(&copy), MPI_ERR_TYPE);
    MPI_Op_free(&op);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(all[0] == size * (size - 1) / 2 && all[1] == size);
    CHECK(extents_wrong == 0 && (extents_seen >= 0));
}

/* Pages of memory in use. */
static long resident(void) {
    long all = 0, used = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file && fscanf(file, "%ld %ld", &all, &used) == 2);
    if (file)
        fclose(file);
    return used;
}

/* A request that is freed while it is in progress costs no memory once it is over. */
static void forgotten(void) {
    static char data[1 << 20];
    long before = 0;
    for (int round = 0; round < 150; round++) {
        MPI_Request request;
        MPI_Isendrecv_replace(data, sizeof data, MPI_CHAR, right(), 9, left(), 9, MPI_COMM_WORLD, &request);
        MPI_Request_free(&request);
        MPI_Barrier(MPI_COMM_WORLD);
        if (round == 50)
            before = resident();
    }
    CHECK((resident() - before) * 4096 < 40 << 20);
}

int main(int argc, char **argv) {
    begin(&argc, &argv);
    tools();
    if (argc < 2 || strcmp(argv[1], "few") != 0)
        forgotten();
    one = room(sizeof(int) * (size_t)size * BIG);
    two = room(sizeof(int) * (size_t)size * BIG);
    memset(one, 0, sizeof(int) * (size_t)size * BIG);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    /* MPICH checks less. */
    if (!on_mpich()) {
        counts_and_aliases(4);
        counts_and_aliases(BIG);
        rooted();
        disjoint_types();
    }
    if (!on_mpich()) {
        cancelled_sends();
        freed_types();
    }
    get_status();
    error_fields();
    forks();
    handlers();
    visitors();
    MPI_Comm_free(&comm);
    free(one);
    free(two);
    return finish("faults");
}
