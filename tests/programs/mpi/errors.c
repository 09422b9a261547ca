/* Every bad argument gives its error class (MPI 5.0 §9.4), and never a crash: each line of the table is one call. */
#include "check.h"

static int one[64], two[64];
static MPI_Comm comm;
static MPI_Request request;
static MPI_Status status;
static MPI_Datatype type;
static MPI_Group group;
static MPI_Message message;
static MPI_Info info;
static MPI_Op op;
static int flag, number;

/* Invalid handles: of another class, random, freed. */
#define NO_COMM ((MPI_Comm)(size_t)0x7777777777)
#define NO_TYPE ((MPI_Datatype)(size_t)0x7777777777)
#define NO_REQUEST ((MPI_Request)(size_t)0x7777777777)
#define NO_GROUP ((MPI_Group)(size_t)0x7777777777)
#define NO_OP ((MPI_Op)(size_t)0x7777777777)
#define NO_INFO ((MPI_Info)(size_t)0x7777777777)
#define NO_ERRHANDLER ((MPI_Errhandler)(size_t)0x7777777777)

/* Errors that MPICH 5.0.2 does not detect, or gives another class. */
#define STRICT(call, expected) \
    do { \
        if (!on_mpich()) \
            FAILS(call, expected); \
    } while (0)

static void messages(void) {
    MPI_Datatype uncommitted;
    FAILS(MPI_Send(one, -1, MPI_INT, 0, 0, comm), MPI_ERR_COUNT);
    FAILS(MPI_Send(one, 1, MPI_DATATYPE_NULL, 0, 0, comm), MPI_ERR_TYPE);
    FAILS(MPI_Send(one, 1, MPI_INT, size, 0, comm), MPI_ERR_RANK);
    FAILS(MPI_Send(one, 1, MPI_INT, -17, 0, comm), MPI_ERR_RANK);
    FAILS(MPI_Send(one, 1, MPI_INT, MPI_ANY_SOURCE, 0, comm), MPI_ERR_RANK);
    FAILS(MPI_Send(one, 1, MPI_INT, 0, -7, comm), MPI_ERR_TAG);
    FAILS(MPI_Send(one, 1, MPI_INT, 0, MPI_ANY_TAG, comm), MPI_ERR_TAG);
    FAILS(MPI_Send(one, 1, MPI_INT, 0, 0, MPI_COMM_NULL), MPI_ERR_COMM);
    FAILS(MPI_Send(NULL, 1, MPI_INT, 0, 0, comm), MPI_ERR_BUFFER);
    FAILS(MPI_Ssend(one, -1, MPI_INT, 0, 0, comm), MPI_ERR_COUNT);
    FAILS(MPI_Bsend(one, 1, MPI_INT, size, 0, comm), MPI_ERR_RANK);
    FAILS(MPI_Rsend(one, 1, MPI_INT, 0, -9, comm), MPI_ERR_TAG);
    FAILS(MPI_Recv(one, -1, MPI_INT, 0, 0, comm, &status), MPI_ERR_COUNT);
    FAILS(MPI_Recv(one, 1, MPI_DATATYPE_NULL, 0, 0, comm, &status), MPI_ERR_TYPE);
    FAILS(MPI_Recv(one, 1, MPI_INT, size, 0, comm, &status), MPI_ERR_RANK);
    FAILS(MPI_Recv(one, 1, MPI_INT, 0, -9, comm, &status), MPI_ERR_TAG);
    FAILS(MPI_Recv(one, 1, MPI_INT, 0, 0, MPI_COMM_NULL, &status), MPI_ERR_COMM);
    FAILS(MPI_Isend(one, -1, MPI_INT, 0, 0, comm, &request), MPI_ERR_COUNT);
    FAILS(MPI_Irecv(one, 1, MPI_INT, size + 9, 0, comm, &request), MPI_ERR_RANK);
    FAILS(MPI_Send_init(one, 1, MPI_INT, 0, -9, comm, &request), MPI_ERR_TAG);
    FAILS(MPI_Recv_init(one, 1, MPI_DATATYPE_NULL, 0, 0, comm, &request), MPI_ERR_TYPE);
    FAILS(MPI_Probe(size, 0, comm, &status), MPI_ERR_RANK);
    FAILS(MPI_Iprobe(0, -9, comm, &flag, &status), MPI_ERR_TAG);
    FAILS(MPI_Mprobe(size, 0, comm, &message, &status), MPI_ERR_RANK);
    FAILS(MPI_Sendrecv(one, 1, MPI_INT, size, 0, two, 1, MPI_INT, 0, 0, comm, &status), MPI_ERR_RANK);
    FAILS(MPI_Sendrecv(one, 1, MPI_INT, 0, 0, two, -1, MPI_INT, 0, 0, comm, &status), MPI_ERR_COUNT);
    MPI_Type_contiguous(2, MPI_INT, &uncommitted);
    FAILS(MPI_Send(one, 1, uncommitted, 0, 0, comm), MPI_ERR_TYPE);
    MPI_Type_free(&uncommitted);
}

static void requests(void) {
    MPI_Request null = MPI_REQUEST_NULL;
    FAILS(MPI_Start(&null), MPI_ERR_REQUEST);
    FAILS(MPI_Request_free(&null), MPI_ERR_REQUEST);
    FAILS(MPI_Cancel(&null), MPI_ERR_REQUEST);
    MPI_Irecv(one, 1, MPI_INT, 0, 5, MPI_COMM_SELF, &request);
    FAILS(MPI_Start(&request), MPI_ERR_REQUEST);
    MPI_Cancel(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void communicators(void) {
    MPI_Comm freed, made;
    FAILS(MPI_Comm_size(MPI_COMM_NULL, &number), MPI_ERR_COMM);
    FAILS(MPI_Comm_rank(MPI_COMM_NULL, &number), MPI_ERR_COMM);
    FAILS(MPI_Comm_size(comm, NULL), MPI_ERR_ARG);
    FAILS(MPI_Comm_dup(MPI_COMM_NULL, &made), MPI_ERR_COMM);
    STRICT(MPI_Comm_split(comm, -5, 0, &made), MPI_ERR_ARG);
    FAILS(MPI_Comm_split_type(comm, 12345, 0, MPI_INFO_NULL, &made), MPI_ERR_ARG);
    FAILS(MPI_Comm_create(comm, MPI_GROUP_NULL, &made), MPI_ERR_GROUP);
    FAILS(MPI_Comm_group(MPI_COMM_NULL, &group), MPI_ERR_COMM);
    STRICT(MPI_Comm_remote_size(comm, &number), MPI_ERR_COMM);
    FAILS(MPI_Comm_compare(comm, MPI_COMM_NULL, &number), MPI_ERR_COMM);
    freed = MPI_COMM_NULL;
    FAILS(MPI_Comm_free(&freed), MPI_ERR_COMM);
    freed = MPI_COMM_WORLD;
    FAILS(MPI_Comm_free(&freed), MPI_ERR_COMM);
    FAILS(MPI_Group_size(MPI_GROUP_NULL, &number), MPI_ERR_GROUP);
    MPI_Comm_group(comm, &group);
    int ranks[2] = {0, size}, twice[2] = {0, 0}, theirs[2];
    MPI_Group bad;
    FAILS(MPI_Group_incl(group, 2, ranks, &bad), MPI_ERR_RANK);
    STRICT(MPI_Group_incl(group, 2, twice, &bad), MPI_ERR_RANK);
    FAILS(MPI_Group_incl(group, -1, ranks, &bad), MPI_ERR_ARG);
    FAILS(MPI_Group_excl(group, 2, ranks, &bad), MPI_ERR_RANK);
    FAILS(MPI_Group_translate_ranks(group, 2, ranks, group, theirs), MPI_ERR_RANK);
    FAILS(MPI_Group_union(group, MPI_GROUP_NULL, &bad), MPI_ERR_GROUP);
    MPI_Group_free(&group);
    FAILS(MPI_Group_free(&group), MPI_ERR_GROUP);
    int key = MPI_KEYVAL_INVALID;
    void *value;
    FAILS(MPI_Comm_set_attr(comm, key, one), MPI_ERR_KEYVAL);
    FAILS(MPI_Comm_get_attr(comm, key, &value, &flag), MPI_ERR_KEYVAL);
    FAILS(MPI_Comm_free_keyval(&key), MPI_ERR_KEYVAL);
    FAILS(MPI_Comm_set_attr(comm, MPI_TAG_UB, one), MPI_ERR_KEYVAL);
    FAILS(MPI_Comm_set_errhandler(comm, MPI_ERRHANDLER_NULL), MPI_ERR_ERRHANDLER);
}

static void datatypes(void) {
    MPI_Aint places[1] = {0};
    int minus[1] = {-1}, blocks[1] = {1};
    MPI_Datatype types[1] = {MPI_DATATYPE_NULL};
    FAILS(MPI_Type_contiguous(-1, MPI_INT, &type), MPI_ERR_COUNT);
    FAILS(MPI_Type_contiguous(1, MPI_DATATYPE_NULL, &type), MPI_ERR_TYPE);
    FAILS(MPI_Type_vector(-1, 1, 1, MPI_INT, &type), MPI_ERR_COUNT);
    CHECK(MPI_Type_vector(1, -1, 1, MPI_INT, &type) != MPI_SUCCESS);
    CHECK(MPI_Type_indexed(1, minus, blocks, MPI_INT, &type) != MPI_SUCCESS);
    FAILS(MPI_Type_create_struct(1, blocks, places, types, &type), MPI_ERR_TYPE);
    FAILS(MPI_Type_create_struct(-1, blocks, places, types, &type), MPI_ERR_COUNT);
    FAILS(MPI_Type_size(MPI_DATATYPE_NULL, &number), MPI_ERR_TYPE);
    type = MPI_DATATYPE_NULL;
    FAILS(MPI_Type_commit(&type), MPI_ERR_TYPE);
    FAILS(MPI_Type_free(&type), MPI_ERR_TYPE);
    type = MPI_INT;
    CHECK(MPI_Type_free(&type) != MPI_SUCCESS);
    char packed[8];
    int position = 0;
    CHECK(on_mpich() || MPI_Pack(one, 4, MPI_INT, packed, sizeof packed, &position, comm) != MPI_SUCCESS);
    CHECK(on_mpich() || MPI_Unpack(packed, sizeof packed, &position, one, 4, MPI_INT, comm) != MPI_SUCCESS);
    int integers[4];
    CHECK(MPI_Type_get_contents(MPI_INT, 0, 0, 0, integers, places, types) != MPI_SUCCESS);
}

static void collectives(void) {
    FAILS(MPI_Barrier(MPI_COMM_NULL), MPI_ERR_COMM);
    FAILS(MPI_Bcast(one, 1, MPI_INT, size, comm), MPI_ERR_ROOT);
    FAILS(MPI_Bcast(one, 1, MPI_INT, -1, comm), MPI_ERR_ROOT);
    FAILS(MPI_Bcast(one, -1, MPI_INT, 0, comm), MPI_ERR_COUNT);
    FAILS(MPI_Bcast(one, 1, MPI_DATATYPE_NULL, 0, comm), MPI_ERR_TYPE);
    FAILS(MPI_Reduce(one, two, 1, MPI_INT, MPI_OP_NULL, 0, comm), MPI_ERR_OP);
    FAILS(MPI_Reduce(one, two, 1, MPI_INT, MPI_SUM, size, comm), MPI_ERR_ROOT);
    FAILS(MPI_Allreduce(one, two, 1, MPI_DOUBLE, MPI_BAND, comm), MPI_ERR_OP);
    FAILS(MPI_Allreduce(one, two, 1, MPI_INT, MPI_MAXLOC, comm), MPI_ERR_OP);
    STRICT(MPI_Allreduce(one, two, -1, MPI_INT, MPI_SUM, comm), MPI_ERR_COUNT);
    FAILS(MPI_Allreduce(one, one, 1, MPI_INT, MPI_SUM, comm), MPI_ERR_BUFFER);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    FAILS(MPI_Reduce_local(one, one, 1, MPI_INT, MPI_SUM), MPI_ERR_BUFFER);
    FAILS(MPI_Gather(one, 1, MPI_INT, two, 1, MPI_INT, size, comm), MPI_ERR_ROOT);
    FAILS(MPI_Allgather(one, -1, MPI_INT, two, 1, MPI_INT, comm), MPI_ERR_COUNT);
    FAILS(MPI_Alltoall(one, 1, MPI_DATATYPE_NULL, two, 1, MPI_INT, comm), MPI_ERR_TYPE);
    FAILS(MPI_Ibcast(one, 1, MPI_INT, size, comm, &request), MPI_ERR_ROOT);
    FAILS(MPI_Scan(one, two, 1, MPI_INT, MPI_OP_NULL, comm), MPI_ERR_OP);
    op = MPI_SUM;
    FAILS(MPI_Op_free(&op), MPI_ERR_OP);
    FAILS(MPI_Op_create(NULL, 1, &op), MPI_ERR_ARG);
}

static void infos(void) {
    char key[MPI_MAX_INFO_KEY + 10], value[MPI_MAX_INFO_VAL + 10];
    memset(key, 'k', sizeof key);
    key[sizeof key - 1] = 0;
    memset(value, 'v', sizeof value);
    value[sizeof value - 1] = 0;
    MPI_Info_create(&info);
    FAILS(MPI_Info_set(info, key, "1"), MPI_ERR_INFO_KEY);
    FAILS(MPI_Info_set(info, "", "1"), MPI_ERR_INFO_KEY);
    FAILS(MPI_Info_set(info, "key", value), MPI_ERR_INFO_VALUE);
    FAILS(MPI_Info_delete(info, "none"), MPI_ERR_INFO_NOKEY);
    FAILS(MPI_Info_get_nthkey(info, 3, key), MPI_ERR_ARG);
    STRICT(MPI_Info_set(MPI_INFO_NULL, "key", "1"), MPI_ERR_INFO);
    MPI_Info_free(&info);
    STRICT(MPI_Info_free(&info), MPI_ERR_INFO);
    MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
    CHECK(MPI_Errhandler_free(&handler) != MPI_SUCCESS);
    STRICT(MPI_Error_class(-5, &number), MPI_ERR_ARG);
}

/* Values that are not handles, or not arrays; MPICH takes them for addresses. */
static void garbage(void) {
    MPI_Comm old;
    MPI_Request null = MPI_REQUEST_NULL;
    MPI_Datatype old_type;
    MPI_Comm_dup(comm, &old);
    MPI_Comm freed = old;
    MPI_Comm_free(&freed);
    MPI_Type_contiguous(1, MPI_INT, &old_type);
    MPI_Datatype freed_type = old_type;
    MPI_Type_free(&freed_type);
    FAILS(MPI_Comm_size(old, &number), MPI_ERR_COMM);
    FAILS(MPI_Send(one, 1, MPI_INT, 0, 0, old), MPI_ERR_COMM);
    FAILS(MPI_Type_size(old_type, &number), MPI_ERR_TYPE);
    FAILS(MPI_Send(one, 1, MPI_INT, 0, 0, NO_COMM), MPI_ERR_COMM);
    FAILS(MPI_Send(one, 1, MPI_INT, 0, 0, (MPI_Comm)MPI_INT), MPI_ERR_COMM);
    FAILS(MPI_Send(one, 1, NO_TYPE, 0, 0, comm), MPI_ERR_TYPE);
    FAILS(MPI_Send(one, 1, (MPI_Datatype)MPI_COMM_WORLD, 0, 0, comm), MPI_ERR_TYPE);
    FAILS(MPI_Group_size(NO_GROUP, &number), MPI_ERR_GROUP);
    FAILS(MPI_Allreduce(one, two, 1, MPI_INT, NO_OP, comm), MPI_ERR_OP);
    FAILS(MPI_Info_get_nkeys(NO_INFO, &number), MPI_ERR_INFO);
    FAILS(MPI_Comm_set_errhandler(comm, NO_ERRHANDLER), MPI_ERR_ERRHANDLER);
    request = NO_REQUEST;
    FAILS(MPI_Wait(&request, &status), MPI_ERR_REQUEST);
    FAILS(MPI_Test(&request, &flag, &status), MPI_ERR_REQUEST);
    CHECK(MPI_Waitall(-1, &null, MPI_STATUSES_IGNORE) != MPI_SUCCESS);
    CHECK(MPI_Testany(-1, &null, &number, &flag, &status) != MPI_SUCCESS);
    CHECK(MPI_Waitall(1, NULL, MPI_STATUSES_IGNORE) != MPI_SUCCESS);
    FAILS(MPI_Comm_size(0, &number), MPI_ERR_COMM);
    FAILS(MPI_Type_size(0, &number), MPI_ERR_TYPE);
}

static int handled;

static void on_file(MPI_File *file, int *code, ...) {
    handled += *file == MPI_FILE_NULL && class_of(*code) == MPI_ERR_UNSUPPORTED_OPERATION;
}

/* Files are not supported. A program that asks for one gets an error by default, not its end. */
static void files(void) {
    MPI_File file = MPI_FILE_NULL;
    MPI_Errhandler handler;
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
    FAILS(MPI_File_open(MPI_COMM_SELF, "file", MPI_MODE_RDONLY, MPI_INFO_NULL, &file), MPI_ERR_UNSUPPORTED_OPERATION);
    FAILS(MPI_File_delete("file", MPI_INFO_NULL), MPI_ERR_UNSUPPORTED_OPERATION);
    FAILS(MPI_File_close(&file), MPI_ERR_UNSUPPORTED_OPERATION);
    MPI_File_create_errhandler(on_file, &handler);
    MPI_File_set_errhandler(MPI_FILE_NULL, handler);
    FAILS(MPI_File_open(MPI_COMM_SELF, "file", MPI_MODE_RDONLY, MPI_INFO_NULL, &file), MPI_ERR_UNSUPPORTED_OPERATION);
    CHECK(handled == 1);
    MPI_File_set_errhandler(MPI_FILE_NULL, MPI_ERRORS_RETURN);
    MPI_Errhandler_free(&handler);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
}

static int refuse_to_delete(MPI_Comm of, int key, void *value, void *extra) {
    (void)of, (void)key, (void)value, (void)extra;
    return MPI_ERR_OTHER;
}

/* The end of MPI deletes this attribute, and the error goes to the handler of MPI_COMM_SELF, which returns it. */
static void fail_at_the_end(void) {
    int key;
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, refuse_to_delete, &key, NULL);
    MPI_Comm_set_attr(MPI_COMM_SELF, key, NULL);
}

int main(int argc, char **argv) {
    begin(&argc, &argv);
    /* Errors without a communicator go to the handler of COMM_SELF. */
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    messages();
    requests();
    communicators();
    datatypes();
    collectives();
    infos();
    if (!on_mpich())
        garbage();
    /* Everything still works. */
    int sum = 0;
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm);
    CHECK(sum == size * (size - 1) / 2);
    MPI_Comm_free(&comm);
    if (!on_mpich()) {
        files();
        fail_at_the_end();
    }
    return finish("errors");
}
