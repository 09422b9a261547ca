/* Attributes, error handlers and info (MPI 5.0 §7.7, §9.3, chapter 10). */
#include "check.h"

static int copied, deleted, fail_to_copy;
static void *seen_extra;

static int copy(MPI_Comm comm, int key, void *extra, void *in, void *out, int *flag) {
    (void)key;
    int n;
    /* MPI may be called from here. */
    MPI_Comm_size(comm, &n);
    copied += n > 0;
    seen_extra = extra;
    *(void **)out = (char *)in + 1;
    *flag = 1;
    return fail_to_copy ? MPI_ERR_ARG : MPI_SUCCESS;
}

static int delete(MPI_Comm comm, int key, void *value, void *extra) {
    (void)comm, (void)key, (void)value, (void)extra;
    deleted++;
    return MPI_SUCCESS;
}

static void attributes(void) {
    int key, copies_itself, stays, flag, extra = 7, before;
    char base[4];
    void *value = NULL;
    MPI_Comm dup, plain;
    MPI_Comm_dup(MPI_COMM_WORLD, &plain);
    MPI_Comm_create_keyval(copy, delete, &key, &extra);
    MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, &copies_itself, NULL);
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &stays, NULL);
    MPI_Comm_get_attr(plain, key, &value, &flag);
    CHECK(!flag);
    MPI_Comm_set_attr(plain, key, base);
    MPI_Comm_set_attr(plain, copies_itself, base);
    MPI_Comm_set_attr(plain, stays, base);
    MPI_Comm_get_attr(plain, key, &value, &flag);
    CHECK(flag && value == base);
    /* A new value replaces the old one, which is deleted. */
    before = deleted;
    MPI_Comm_set_attr(plain, key, base + 1);
    CHECK(deleted == before + 1);
    MPI_Comm_dup(plain, &dup);
    CHECK(copied == 1 && seen_extra == &extra);
    MPI_Comm_get_attr(dup, key, &value, &flag);
    CHECK(flag && value == base + 2);
    MPI_Comm_get_attr(dup, copies_itself, &value, &flag);
    CHECK(flag && value == base);
    MPI_Comm_get_attr(dup, stays, &value, &flag);
    CHECK(!flag);
    before = deleted;
    MPI_Comm_delete_attr(dup, key);
    CHECK(deleted == before + 1);
    MPI_Comm_get_attr(dup, key, &value, &flag);
    CHECK(!flag);
    /* A freed key remains valid where it is used. */
    int key_was = key;
    MPI_Comm_free_keyval(&key);
    CHECK(key == MPI_KEYVAL_INVALID);
    /* Freeing it again is no error as long as it is in use. */
    key = key_was;
    CHECK(MPI_Comm_free_keyval(&key) == MPI_SUCCESS && key == MPI_KEYVAL_INVALID);
    MPI_Comm_get_attr(plain, key_was, &value, &flag);
    CHECK(flag && value == base + 1);
    before = deleted;
    MPI_Comm_free(&plain);
    CHECK(deleted == before + 1);
    MPI_Comm_free(&dup);
    MPI_Comm_free_keyval(&copies_itself);
    MPI_Comm_free_keyval(&stays);
}

/* The error of a copy function is the error of MPI_Comm_dup. */
static void failing_copy(void) {
    int key;
    MPI_Comm comm, dup = MPI_COMM_SELF;
    MPI_Request request;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_create_keyval(copy, delete, &key, NULL);
    MPI_Comm_set_attr(comm, key, &key);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    fail_to_copy = 1;
    CHECK(MPI_Comm_dup(comm, &dup) != MPI_SUCCESS && dup == MPI_COMM_NULL);
    dup = MPI_COMM_SELF;
    CHECK(MPI_Comm_idup(comm, &dup, &request) != MPI_SUCCESS && dup == MPI_COMM_NULL);
    /* Also where only that of another rank fails. */
    fail_to_copy = rank == 0;
    dup = MPI_COMM_SELF;
    CHECK(MPI_Comm_dup(comm, &dup) != MPI_SUCCESS && dup == MPI_COMM_NULL);
    fail_to_copy = 0;
    MPI_Comm_free_keyval(&key);
    MPI_Comm_free(&comm);
}

static int type_copied, type_deleted;

static int copy_of_type(MPI_Datatype type, int key, void *extra, void *in, void *out, int *flag) {
    (void)type, (void)key, (void)extra;
    if (fail_to_copy)
        return MPI_ERR_OTHER;
    type_copied++;
    *(void **)out = in;
    *flag = 1;
    return MPI_SUCCESS;
}

static int delete_of_type(MPI_Datatype type, int key, void *value, void *extra) {
    (void)type, (void)key, (void)value, (void)extra;
    type_deleted++;
    return MPI_SUCCESS;
}

static void of_types(void) {
    MPI_Datatype type, dup;
    int key, flag;
    void *value;
    MPI_Type_contiguous(2, MPI_INT, &type);
    MPI_Type_create_keyval(copy_of_type, delete_of_type, &key, NULL);
    MPI_Type_set_attr(type, key, &key);
    MPI_Type_dup(type, &dup);
    MPI_Type_get_attr(dup, key, &value, &flag);
    CHECK(flag && value == &key && type_copied == 1);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Datatype none = MPI_INT;
    fail_to_copy = 1;
    CHECK(MPI_Type_dup(type, &none) != MPI_SUCCESS && none == MPI_DATATYPE_NULL);
    fail_to_copy = 0;
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
    MPI_Type_delete_attr(dup, key);
    MPI_Type_free(&type);
    MPI_Type_free(&dup);
    CHECK(type_deleted == 2);
    MPI_Type_free_keyval(&key);
}

static void predefined(void) {
    int *value, flag;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &value, &flag);
    CHECK(flag && *value >= 32767);
    if (size > 1) {
        /* The largest tag works. */
        int token = rank, got = -1;
        MPI_Sendrecv(&token, 1, MPI_INT, right(), *value, &got, 1, MPI_INT, left(), *value, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        CHECK(got == left());
    }
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_WTIME_IS_GLOBAL, &value, &flag);
    CHECK(!flag || *value == 0 || *value == 1);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_UNIVERSE_SIZE, &value, &flag);
    CHECK(!flag || *value >= 1);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &value, &flag);
    CHECK(!flag || *value == 0);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_LASTUSEDCODE, &value, &flag);
    CHECK(flag && *value >= MPI_ERR_LASTCODE);
}

/* --- error handlers --- */

static int handled, handled_code, told;
static MPI_Comm handled_comm;

static void handler(MPI_Comm *comm, int *code, ...) {
    char text[MPI_MAX_ERROR_STRING];
    int length;
    handled++;
    handled_code = *code;
    handled_comm = *comm;
    /* MPI may be called from here, and has already recorded the error. */
    MPI_Error_string(*code, text, &length);
    told = strstr(text, "(last: ") != NULL;
}

/* MPICH 5.0.2 returns success after it has called a user-defined handler. */
static void handlers(void) {
    MPI_Errhandler mine, got;
    MPI_Comm dup, second;
    int token = 0, code;
    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &got);
    CHECK(got == MPI_ERRORS_ARE_FATAL);
    MPI_Errhandler_free(&got);
    CHECK(got == MPI_ERRHANDLER_NULL);
    MPI_Comm_dup(MPI_COMM_WORLD, &dup);
    MPI_Comm_create_errhandler(handler, &mine);
    MPI_Comm_set_errhandler(dup, mine);
    MPI_Comm_get_errhandler(dup, &got);
    CHECK(got == mine);
    MPI_Errhandler_free(&got);
    code = MPI_Send(&token, 1, MPI_INT, size + 5, 0, dup);
    CHECK(handled == 1 && class_of(handled_code) == MPI_ERR_RANK && handled_comm == dup);
    CHECK(on_mpich() || (code == handled_code && told));
    /* A duplicate inherits it, and it stays valid as long as it is used. */
    MPI_Errhandler_free(&mine);
    CHECK(mine == MPI_ERRHANDLER_NULL);
    MPI_Comm_dup(dup, &second);
    code = MPI_Recv(&token, -1, MPI_INT, 0, 0, second, MPI_STATUS_IGNORE);
    CHECK(handled == 2 && class_of(handled_code) == MPI_ERR_COUNT && handled_comm == second);
    CHECK(on_mpich() || code == handled_code);
    MPI_Comm_call_errhandler(second, MPI_ERR_OTHER);
    CHECK(handled == 3 && handled_code == MPI_ERR_OTHER);
    MPI_Comm_set_errhandler(second, MPI_ERRORS_RETURN);
    code = MPI_Send(&token, 1, MPI_DATATYPE_NULL, 0, 0, second);
    CHECK(handled == 3 && class_of(code) == MPI_ERR_TYPE);
    MPI_Comm_free(&second);
    MPI_Comm_free(&dup);
}

static void classes(void) {
    int class, code, got, length;
    char text[MPI_MAX_ERROR_STRING];
    MPI_Add_error_class(&class);
    CHECK(class > MPI_ERR_LASTCODE);
    MPI_Add_error_code(class, &code);
    MPI_Add_error_string(code, "of my own");
    MPI_Error_class(code, &got);
    CHECK(got == class);
    MPI_Error_string(code, text, &length);
    CHECK(strcmp(text, "of my own") == 0 && length == 9);
    int *last, flag;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_LASTUSEDCODE, &last, &flag);
    /* MPICH 5.0.2 counts classes only. */
    CHECK(flag && *last >= (on_mpich() ? class : code));
    MPI_Error_string(MPI_SUCCESS, text, &length);
    CHECK(length > 0 && length == (int)strlen(text));
    for (class = MPI_SUCCESS; class <= MPI_ERR_ABI; class++) {
        MPI_Error_class(class, &got);
        CHECK(got == class);
        MPI_Error_string(class, text, &length);
        CHECK(length > 0 && length < MPI_MAX_ERROR_STRING);
    }
}

/* --- info --- */

static void infos(void) {
    MPI_Info info, dup;
    char value[MPI_MAX_INFO_VAL + 1], key[MPI_MAX_INFO_KEY];
    int flag, length, keys;
    MPI_Info_create(&info);
    MPI_Info_get_nkeys(info, &keys);
    CHECK(keys == 0);
    MPI_Info_set(info, "one", "1");
    MPI_Info_set(info, "two", "zwei");
    MPI_Info_set(info, "one", "eins");
    MPI_Info_get_nkeys(info, &keys);
    CHECK(keys == 2);
    length = sizeof value;
    MPI_Info_get_string(info, "one", &length, value, &flag);
    CHECK(flag && strcmp(value, "eins") == 0 && length == 5);
    /* A buffer that is too short: the value is truncated, and its length reported. */
    length = 3;
    MPI_Info_get_string(info, "two", &length, value, &flag);
    CHECK(flag && strcmp(value, "zw") == 0 && length == 5);
    length = 0;
    MPI_Info_get_string(info, "two", &length, value, &flag);
    CHECK(flag && length == 5);
    MPI_Info_get_string(info, "three", &length, value, &flag);
    CHECK(!flag);
    MPI_Info_get_nthkey(info, 0, key);
    CHECK(strcmp(key, "one") == 0);
    MPI_Info_get_nthkey(info, 1, key);
    CHECK(strcmp(key, "two") == 0);
    MPI_Info_dup(info, &dup);
    MPI_Info_delete(info, "one");
    MPI_Info_get_nkeys(info, &keys);
    CHECK(keys == 1);
    MPI_Info_get_nkeys(dup, &keys);
    CHECK(keys == 2);
    MPI_Info_free(&info);
    MPI_Info_free(&dup);
    CHECK(info == MPI_INFO_NULL);
    MPI_Info_create_env(0, NULL, &info);
    MPI_Info_free(&info);
    MPI_Info_get_nkeys(MPI_INFO_ENV, &keys);
    CHECK(keys >= 0);
    /* What the program is told of its start does not depend on the state of the library. */
    MPI_Info_create_env(0, NULL, &info);
    length = 0;
    MPI_Info_get_string(info, "command", &length, NULL, &flag);
    CHECK(flag && length > 1);
    MPI_Info_get_string(info, "thread_level", &length, NULL, &flag);
    CHECK(!flag);
    MPI_Info_free(&info);
    /* A communicator keeps the hints that it knows. */
    MPI_Comm dup_comm;
    MPI_Info_create(&info);
    MPI_Info_set(info, "mpi_assert_no_any_tag", "false");
    MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &dup_comm);
    MPI_Comm_set_info(dup_comm, info);
    MPI_Info_free(&info);
    MPI_Comm_get_info(dup_comm, &info);
    MPI_Info_free(&info);
    MPI_Comm_free(&dup_comm);
}

int main(int argc, char **argv) {
    begin(&argc, &argv);
    attributes();
    failing_copy();
    of_types();
    predefined();
    handlers();
    classes();
    infos();
    return finish("attributes");
}
