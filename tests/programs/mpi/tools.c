/* The tools interface (MPI 5.0 §15.3): before, during and after MPI's own life. */
#include "check.h"

static int error_handler_calls;

static void on_error(MPI_Comm *comm, int *code, ...) {
    (void)comm, (void)code;
    error_handler_calls++;
}

static int control(const char *name) {
    int index = -1;
    CHECK(MPI_T_cvar_get_index(name, &index) == MPI_SUCCESS);
    return index;
}

static void read_control(const char *name, char *into) {
    MPI_T_cvar_handle handle;
    int count;
    CHECK(MPI_T_cvar_handle_alloc(control(name), NULL, &handle, &count) == MPI_SUCCESS && count == 4096);
    CHECK(MPI_T_cvar_read(handle, into) == MPI_SUCCESS);
    CHECK(MPI_T_cvar_handle_free(&handle) == MPI_SUCCESS && handle == MPI_T_CVAR_HANDLE_NULL);
}

static int write_control(const char *name, const char *value) {
    MPI_T_cvar_handle handle;
    int count, code;
    MPI_T_cvar_handle_alloc(control(name), NULL, &handle, &count);
    code = MPI_T_cvar_write(handle, value);
    MPI_T_cvar_handle_free(&handle);
    return code;
}

static void controls(void) {
    char name[64], text[64], value[4096];
    int count, length, text_length, verbosity, bind, scope, index;
    MPI_Datatype type;
    MPI_T_enum none;
    CHECK(MPI_T_cvar_get_num(&count) == MPI_SUCCESS && count > 8);
    for (int i = 0; i < count; i++) {
        length = sizeof name;
        text_length = sizeof text;
        CHECK(MPI_T_cvar_get_info(i, name, &length, &verbosity, &type, &none, text, &text_length, &bind, &scope) == MPI_SUCCESS);
        CHECK(length == (int)strlen(name) + 1 && strncmp(name, "RSD_", 4) == 0);
        CHECK(text_length > 1 && strlen(text) <= sizeof text - 1);
        CHECK(type == MPI_CHAR && none == MPI_T_ENUM_NULL && bind == MPI_T_BIND_NO_OBJECT && scope == MPI_T_SCOPE_LOCAL);
        CHECK(MPI_T_cvar_get_index(name, &index) == MPI_SUCCESS && index == i);
        /* The room that is needed, and a part. */
        int needed = 0, little = 5;
        CHECK(MPI_T_cvar_get_info(i, NULL, &needed, NULL, NULL, NULL, NULL, NULL, NULL, NULL) == MPI_SUCCESS && needed == length);
        CHECK(MPI_T_cvar_get_info(i, name, &little, NULL, NULL, NULL, NULL, NULL, NULL, NULL) == MPI_SUCCESS && little == length);
        CHECK(strcmp(name, "RSD_") == 0);
    }
    CHECK(MPI_T_cvar_get_info(count, name, &length, &verbosity, &type, &none, text, &text_length, &bind, &scope)
            == MPI_T_ERR_INVALID_INDEX);
    CHECK(MPI_T_cvar_get_index("RSD_MPI_NOTHING", &index) == MPI_T_ERR_INVALID_NAME);
    /* Written before MPI_Init, it counts; what is invalid is refused. */
    CHECK(write_control("RSD_MPI_SPIN_US", "a while") == MPI_T_ERR_INVALID);
    CHECK(write_control("RSD_MPI_SPIN_US", "7") == MPI_SUCCESS);
    read_control("RSD_MPI_SPIN_US", value);
    CHECK(strcmp(value, "7") == 0);
    CHECK(write_control("RSD_MPI_SPIN_US", "") == MPI_SUCCESS);
}

static MPI_T_pvar_session session;

static MPI_T_pvar_handle variable(const char *name, int class, void *object, int expected) {
    MPI_T_pvar_handle handle = MPI_T_PVAR_HANDLE_NULL;
    int index = -1, count = -1;
    CHECK(MPI_T_pvar_get_index(name, class, &index) == MPI_SUCCESS);
    CHECK(MPI_T_pvar_handle_alloc(session, index, object, &handle, &count) == MPI_SUCCESS);
    CHECK(count == expected);
    return handle;
}

static unsigned long number(MPI_T_pvar_handle handle) {
    unsigned long value = 12345;
    CHECK(MPI_T_pvar_read(session, handle, &value) == MPI_SUCCESS);
    return value;
}

static void variables(void) {
    int count, class, bind, readonly, continuous, atomic, length, index;
    char name[64];
    MPI_Datatype type;
    MPI_T_enum states;
    CHECK(MPI_T_pvar_get_num(&count) == MPI_SUCCESS && count >= 10);
    for (int i = 0; i < count; i++) {
        length = sizeof name;
        CHECK(MPI_T_pvar_get_info(i, name, &length, NULL, &class, &type, &states, NULL, NULL, &bind, &readonly, &continuous, &atomic)
                == MPI_SUCCESS);
        CHECK(continuous == 1 && (type == MPI_UNSIGNED_LONG || type == MPI_DOUBLE || type == MPI_INT));
        CHECK(MPI_T_pvar_get_index(name, class, &index) == MPI_SUCCESS && index == i);
        CHECK((states != MPI_T_ENUM_NULL) == (class == MPI_T_PVAR_CLASS_STATE));
    }
    CHECK(MPI_T_pvar_get_index("ring_fill", MPI_T_PVAR_CLASS_COUNTER, &index) == MPI_T_ERR_INVALID_NAME);

    MPI_T_pvar_handle sent = variable("messages_sent", MPI_T_PVAR_CLASS_COUNTER, NULL, 1);
    MPI_T_pvar_handle sent_bytes = variable("bytes_sent", MPI_T_PVAR_CLASS_AGGREGATE, NULL, 1);
    MPI_T_pvar_handle received = variable("messages_received", MPI_T_PVAR_CLASS_COUNTER, NULL, 1);
    MPI_T_pvar_handle received_bytes = variable("bytes_received", MPI_T_PVAR_CLASS_AGGREGATE, NULL, 1);
    MPI_T_pvar_handle pending = variable("requests_pending", MPI_T_PVAR_CLASS_LEVEL, NULL, 1);
    MPI_T_pvar_handle ring = variable("ring_fill", MPI_T_PVAR_CLASS_PERCENTAGE, NULL, 1);
    CHECK(number(sent) == 0 && number(received) == 0);

    static char big[1 << 20], in[1 << 20];
    MPI_Request requests[2];
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    const int sizes[] = {0, 1, 40, 5000, 1 << 20};
    unsigned long bytes = 0;
    CHECK(MPI_T_pvar_reset(session, MPI_T_PVAR_ALL_HANDLES) == MPI_SUCCESS);
    for (int late = 0; late < 2; late++)
        for (int i = 0; i < 5; i++) {
            /* With a receive there, and without. */
            unsigned long before = number(pending);
            if (!late) {
                MPI_Irecv(in, sizes[i], MPI_CHAR, left(), i, comm, &requests[0]);
                CHECK(number(pending) <= before + 1);
            }
            MPI_Isend(big, sizes[i], MPI_CHAR, right(), i, comm, &requests[1]);
            if (late) {
                MPI_Probe(left(), i, comm, MPI_STATUS_IGNORE);
                MPI_Irecv(in, sizes[i], MPI_CHAR, left(), i, comm, &requests[0]);
            }
            MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
            bytes += sizes[i];
        }
    CHECK(number(sent) == 10 && number(received) == 10);
    CHECK(number(sent_bytes) == bytes && number(received_bytes) == bytes);
    unsigned long value = 0;
    double fill = -1;
    CHECK(MPI_T_pvar_readreset(session, sent, &value) == MPI_SUCCESS && value == 10 && number(sent) == 0);
    value = 100;
    CHECK(MPI_T_pvar_write(session, sent, &value) == MPI_SUCCESS && number(sent) == 100);
    CHECK(MPI_T_pvar_read(session, ring, &fill) == MPI_SUCCESS && fill >= 0 && fill <= 1);
    CHECK(MPI_T_pvar_write(session, pending, &value) == MPI_T_ERR_PVAR_NO_WRITE);
    CHECK(MPI_T_pvar_readreset(session, ring, &fill) == MPI_T_ERR_PVAR_NO_WRITE);
    CHECK(MPI_T_pvar_reset(session, ring) == MPI_T_ERR_PVAR_NO_WRITE);
    CHECK(MPI_T_pvar_start(session, sent) == MPI_T_ERR_PVAR_NO_STARTSTOP);
    CHECK(MPI_T_pvar_stop(session, MPI_T_PVAR_ALL_HANDLES) == MPI_SUCCESS);

    /* The path to each peer, with names. */
    int *paths = room(size * sizeof *paths), num, state, items;
    MPI_T_pvar_handle path = variable("path", MPI_T_PVAR_CLASS_STATE, &comm, size);
    CHECK(MPI_T_pvar_read(session, path, paths) == MPI_SUCCESS);
    MPI_T_pvar_get_index("path", MPI_T_PVAR_CLASS_STATE, &index);
    MPI_T_pvar_get_info(index, NULL, NULL, NULL, NULL, NULL, &states, NULL, NULL, &bind, NULL, NULL, NULL);
    CHECK(bind == MPI_T_BIND_MPI_COMM);
    CHECK(MPI_T_enum_get_info(states, &num, NULL, NULL) == MPI_SUCCESS && num == 4);
    for (int i = 0; i < size; i++) {
        length = sizeof name;
        CHECK(MPI_T_enum_get_item(states, paths[i], &state, name, &length) == MPI_SUCCESS && state == paths[i]);
        CHECK(i == rank ? strcmp(name, "self") == 0 : strcmp(name, "shared_memory") == 0 || strcmp(name, "tcp") == 0);
    }
    CHECK(MPI_T_enum_get_item(states, num, &state, name, &length) == MPI_T_ERR_INVALID_ITEM);
    CHECK(MPI_T_enum_get_info(MPI_T_ENUM_NULL, &items, NULL, NULL) == MPI_T_ERR_INVALID);
    MPI_Comm_free(&comm);
    CHECK(MPI_T_pvar_read(session, path, paths) == MPI_T_ERR_INVALID_HANDLE);
    CHECK(MPI_T_pvar_handle_free(session, &path) == MPI_SUCCESS && path == MPI_T_PVAR_HANDLE_NULL);
    CHECK(MPI_T_pvar_handle_free(session, &path) == MPI_T_ERR_INVALID_HANDLE);
    free(paths);
}

static void categories(void) {
    int count, cvars, pvars, inner, all_cvars, all_pvars, list[64], seen_cvars = 0, seen_pvars = 0, stamp, index;
    char name[64];
    MPI_T_category_get_num(&count);
    MPI_T_cvar_get_num(&all_cvars);
    MPI_T_pvar_get_num(&all_pvars);
    for (int i = 0; i < count; i++) {
        int length = sizeof name;
        CHECK(MPI_T_category_get_info(i, name, &length, NULL, NULL, &cvars, &pvars, &inner) == MPI_SUCCESS);
        CHECK(MPI_T_category_get_index(name, &index) == MPI_SUCCESS && index == i);
        list[0] = -1;
        CHECK(MPI_T_category_get_cvars(i, 64, list) == MPI_SUCCESS && (cvars == 0 || list[0] >= 0));
        CHECK(MPI_T_category_get_pvars(i, 64, list) == MPI_SUCCESS);
        CHECK(MPI_T_category_get_categories(i, 64, list) == MPI_SUCCESS && (inner == 0 || list[0] > i));
        seen_cvars += cvars;
        seen_pvars += pvars;
    }
    CHECK(seen_cvars == all_cvars && seen_pvars == all_pvars);
    CHECK(MPI_T_category_changed(&stamp) == MPI_SUCCESS);
    CHECK(MPI_T_category_get_info(count, NULL, NULL, NULL, NULL, NULL, NULL, NULL) == MPI_T_ERR_INVALID_INDEX);
    CHECK(MPI_T_category_get_index("nothing", &index) == MPI_T_ERR_INVALID_NAME);
    CHECK(MPI_T_event_get_num(&count) == MPI_SUCCESS && count == 0);
    CHECK(MPI_T_source_get_num(&count) == MPI_SUCCESS && count == 0);
    CHECK(MPI_T_event_get_index("nothing", &index) == MPI_T_ERR_INVALID_NAME);
}

int main(int argc, char **argv) {
    int provided, count;
    CHECK(MPI_T_cvar_get_num(&count) == MPI_T_ERR_NOT_INITIALIZED);
    CHECK(MPI_T_finalize() == MPI_T_ERR_NOT_INITIALIZED);
    CHECK(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) == MPI_SUCCESS && provided >= MPI_THREAD_SINGLE);
    CHECK(MPI_T_init_thread(17, &provided) == MPI_T_ERR_INVALID);
    controls();
    CHECK(MPI_T_pvar_session_create(&session) == MPI_SUCCESS);
    MPI_T_pvar_handle early = variable("messages_sent", MPI_T_PVAR_CLASS_COUNTER, NULL, 1);
    CHECK(number(early) == 0);

    begin(&argc, &argv);
    MPI_Errhandler counting;
    MPI_Comm_create_errhandler(on_error, &counting);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, counting);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, counting);
    CHECK(write_control("RSD_MPI_SPIN_US", "9") == MPI_T_ERR_CVAR_SET_NOT_NOW);
    variables();
    categories();
    CHECK(error_handler_calls == 0);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Errhandler_free(&counting);
    CHECK(MPI_T_init_thread(MPI_THREAD_MULTIPLE, &provided) == MPI_SUCCESS);
    CHECK(MPI_T_finalize() == MPI_SUCCESS);
    int code = finish("tools");
    /* It outlives MPI. */
    CHECK(MPI_T_cvar_get_num(&count) == MPI_SUCCESS);
    CHECK(MPI_T_pvar_session_free(&session) == MPI_SUCCESS && session == MPI_T_PVAR_SESSION_NULL);
    CHECK(MPI_T_finalize() == MPI_SUCCESS);
    CHECK(MPI_T_cvar_get_num(&count) == MPI_T_ERR_NOT_INITIALIZED);
    return code || wrong;
}
