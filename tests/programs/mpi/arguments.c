/* Every function of the table (client-lib/abi/functions.tsv, the first argument of the program) with wrong arguments: none of them ends the
 * process by a signal, and none reports a fault of the library.
 *
 *     arguments TABLE freed            each handle in turn is that of a freed object, all else is right: the error names the class
 *     arguments TABLE null             each result pointer and each array in turn is null: an error, and nothing is written
 *     arguments TABLE garbage SEED N   N calls of each function with arguments of a pool that contains wrong ones
 *
 * Each function is called in a child of its own, which initialises MPI: where it ends is known to the parent. */
#include <dlfcn.h>
#include <limits.h>
#include <mpi.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FUNCTIONS = 700, PARAMETERS = 16, ROOM = 1 << 16 };

typedef struct {
    char type[64], name[64];
    int is_pointer, is_const, is_array;
} parameter_t;

typedef struct {
    char name[64];
    int count;
    parameter_t parameters[PARAMETERS];
} function_t;

static function_t functions[FUNCTIONS];
static int function_count;

/* --- the table --- */

static void parse_parameter(char *text, parameter_t *one) {
    memset(one, 0, sizeof *one);
    char *bracket = strchr(text, '[');
    if (bracket) {
        *bracket = 0;
        one->is_array = one->is_pointer = 1;
    }
    char *end = text + strlen(text);
    while (end > text && (end[-1] == ' '))
        *--end = 0;
    while (end > text && (end[-1] == '_' || (end[-1] >= '0' && end[-1] <= '9') || (end[-1] | 32) - 'a' < 26u))
        end--;
    snprintf(one->name, sizeof one->name, "%s", end);
    *end = 0;
    for (char *at = text; *at; at++)
        one->is_pointer += *at == '*';
    if (strncmp(text, "const ", 6) == 0) {
        one->is_const = 1;
        text += 6;
    }
    size_t length = strcspn(text, " *");
    snprintf(one->type, sizeof one->type, "%.*s", (int)length, text);
}

static void read_table(const char *path) {
    static char line[4096];
    FILE *file = fopen(path, "r");
    if (!file)
        exit(3);
    while (fgets(line, sizeof line, file) && function_count < FUNCTIONS) {
        line[strcspn(line, "\n")] = 0;
        char *fields[4], *rest = line;
        int got = 0;
        for (; got < 4 && rest; got++)
            fields[got] = strsep(&rest, "\t");
        if (got < 4 || strcmp(fields[0], "chapter") == 0 || strcmp(fields[2], "int") != 0)
            continue;
        function_t *function = &functions[function_count++];
        snprintf(function->name, sizeof function->name, "%s", fields[1]);
        char *list = fields[3], *one;
        while ((one = strsep(&list, ",")) && function->count < PARAMETERS) {
            while (*one == ' ')
                one++;
            if (*one && strcmp(one, "void") != 0 && strcmp(one, "...") != 0)
                parse_parameter(one, &function->parameters[function->count++]);
        }
    }
    fclose(file);
}

/* --- arguments --- */

/* A class of handles: its right one, one that was freed, the null one and the error class. */
typedef struct {
    const char *type;
    uintptr_t right, made, freed, null;
    int class;
} handle_t;

static handle_t handles[] = {
    {"MPI_Comm", 0, 0, 0, (uintptr_t)MPI_COMM_NULL, MPI_ERR_COMM},
    {"MPI_Datatype", 0, 0, 0, (uintptr_t)MPI_DATATYPE_NULL, MPI_ERR_TYPE},
    {"MPI_Group", 0, 0, 0, (uintptr_t)MPI_GROUP_NULL, MPI_ERR_GROUP},
    {"MPI_Op", 0, 0, 0, (uintptr_t)MPI_OP_NULL, MPI_ERR_OP},
    {"MPI_Info", 0, 0, 0, (uintptr_t)MPI_INFO_NULL, MPI_ERR_INFO},
    {"MPI_Win", 0, 0, 0, (uintptr_t)MPI_WIN_NULL, MPI_ERR_WIN},
    {"MPI_Request", 0, 0, 0, (uintptr_t)MPI_REQUEST_NULL, MPI_ERR_REQUEST},
    {"MPI_Errhandler", 0, 0, 0, (uintptr_t)MPI_ERRHANDLER_NULL, MPI_ERR_ERRHANDLER},
    {"MPI_Session", 0, 0, 0, (uintptr_t)MPI_SESSION_NULL, MPI_ERR_SESSION},
    {"MPI_Message", 0, 0, 0, (uintptr_t)MPI_MESSAGE_NULL, MPI_ERR_REQUEST},
    {"MPI_File", 0, 0, 0, (uintptr_t)MPI_FILE_NULL, MPI_ERR_FILE},
};
enum { HANDLES = sizeof handles / sizeof *handles };

static handle_t *handle_of(const char *type) {
    for (int i = 0; i < HANDLES; i++)
        if (strcmp(handles[i].type, type) == 0)
            return &handles[i];
    return NULL;
}

static int nothing(void) {
    return MPI_SUCCESS;
}

static char memory[ROOM] __attribute__((aligned(64)));

static void make_objects(void) {
    MPI_Comm comm;
    MPI_Datatype type;
    MPI_Group group;
    MPI_Op op;
    MPI_Info info;
    MPI_Win win;
    MPI_Request request;
    MPI_Errhandler handler;
    MPI_Session session;
    MPI_Message message;
    static int in, out = 1;
    int ones[1] = {1};
    for (int round = 0; round < 2; round++) {
        /* The first round's are freed, and nothing takes their place. */
        MPI_Cart_create(MPI_COMM_SELF, 1, ones, ones, 0, &comm);
        MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
        MPI_Type_contiguous(1, MPI_INT, &type);
        MPI_Type_commit(&type);
        MPI_Comm_group(MPI_COMM_SELF, &group);
        MPI_Op_create((MPI_User_function *)nothing, 1, &op);
        MPI_Info_create(&info);
        MPI_Win_create(memory + ROOM / 2, 4096, 1, MPI_INFO_NULL, MPI_COMM_SELF, &win);
        MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
        MPI_Send_init(&out, 1, MPI_INT, 0, 900, MPI_COMM_SELF, &request);
        MPI_Comm_create_errhandler((MPI_Comm_errhandler_function *)nothing, &handler);
        MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session);
        MPI_Send(&out, 1, MPI_INT, 0, 901 + round, MPI_COMM_SELF);
        MPI_Mprobe(0, 901 + round, MPI_COMM_SELF, &message, MPI_STATUS_IGNORE);
        uintptr_t made[] = {(uintptr_t)comm,    (uintptr_t)type,    (uintptr_t)group,   (uintptr_t)op,
                            (uintptr_t)info,    (uintptr_t)win,     (uintptr_t)request, (uintptr_t)handler,
                            (uintptr_t)session, (uintptr_t)message, (uintptr_t)MPI_FILE_NULL};
        for (int i = 0; i < HANDLES; i++)
            *(round ? &handles[i].made : &handles[i].freed) = made[i];
        for (int i = 0; i < HANDLES && round; i++)
            handles[i].right = made[i];
        /* More functions accept these than those that the program makes. */
        handles[1].right = (uintptr_t)MPI_INT;
        handles[3].right = (uintptr_t)MPI_SUM;
        handles[7].right = (uintptr_t)MPI_ERRORS_RETURN;
        if (round == 0) {
            MPI_Comm_free(&comm);
            MPI_Type_free(&type);
            MPI_Group_free(&group);
            MPI_Op_free(&op);
            MPI_Info_free(&info);
            MPI_Win_free(&win);
            MPI_Request_free(&request);
            MPI_Errhandler_free(&handler);
            MPI_Session_finalize(&session);
            MPI_Mrecv(&in, 1, MPI_INT, &message, MPI_STATUS_IGNORE);
        }
    }
}

static uint64_t state;

static unsigned below(unsigned limit) {
    state += 0x9e3779b97f4a7c15u;
    uint64_t word = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9u;
    word = (word ^ (word >> 27)) * 0x94d049bb133111ebu;
    return (unsigned)((word ^ (word >> 31)) % limit);
}

static uintptr_t any_handle(const handle_t *of) {
    switch (below(8)) {
    case 0:
        return of->freed;
    case 1:
        return of->null;
    case 2:
        return handles[below(HANDLES)].right;
    case 3:
        return below(0x420);
    case 4:
        return (uintptr_t)-1 - below(3);
    case 6:
        return of->made;
    case 5:
        return of->made ^ ((uintptr_t)1 << below(40));
    default:
        return of->right;
    }
}

/* Counts and places in memory are few or negative: with a count that exceeds the memory, the program would be wrong and not the library. */
static int64_t any_number(const char *name) {
    static const int64_t few[] = {-1, 0, 1, 2, 3, INT_MIN, -7}, all[] = {-1, 0, 1, 2, 5, INT_MIN, INT_MAX, -2, -3, 1 << 20, 32767};
    static const char *free_names[] = {"tag",   "root",   "rank",  "dest",  "source", "color", "key",      "assert",  "errorcode", "errorclass", "keyval",
                                       "p",     "r",      "index", "bind",  "verbosity", "level", "required", "split_type", "direction", "leader"};
    for (size_t i = 0; i < sizeof free_names / sizeof *free_names; i++)
        if (strlen(free_names[i]) == 1 ? strcmp(name, free_names[i]) == 0 : strstr(name, free_names[i]) != NULL)
            return all[below(sizeof all / sizeof *all)];
    return few[below(sizeof few / sizeof *few)];
}

/* Memory for one parameter, in the middle of its room: small displacements stay inside. */
static char rooms[PARAMETERS][ROOM] __attribute__((aligned(64)));

static void *fill_room(const parameter_t *one, int at, int wild) {
    char *middle = rooms[at] + ROOM / 2;
    const handle_t *handle = handle_of(one->type);
    memset(rooms[at], 0, ROOM);
    if (one->is_pointer > 1)
        return middle; /* null pointers */
    for (int i = 0; i < 64; i++) {
        if (handle)
            ((uintptr_t *)middle)[i] = wild ? any_handle(handle) : handle->right;
        else if (strcmp(one->type, "int") == 0)
            ((int *)middle)[i] = wild ? (int)below(4) - 1 : 1;
        else if (strcmp(one->type, "MPI_Aint") == 0 || strcmp(one->type, "MPI_Count") == 0 || strcmp(one->type, "MPI_Offset") == 0)
            ((int64_t *)middle)[i] = wild ? (int64_t)below(4) - 1 : 1;
    }
    if (strcmp(one->name, "datarep") == 0)
        snprintf(middle, 64, "%s", wild && below(3) == 0 ? "native" : "external32");
    else if (strcmp(one->type, "char") == 0)
        snprintf(middle, 64, "%s", wild && below(3) == 0 ? "" : "mpi_key");
    return middle;
}

static int is_function(const parameter_t *one) {
    return strstr(one->type, "_function") != NULL;
}

static uintptr_t right_argument(const parameter_t *one, int at) {
    const handle_t *handle = handle_of(one->type);
    if (is_function(one))
        return (uintptr_t)nothing;
    if (one->is_pointer)
        return (uintptr_t)fill_room(one, at, 0);
    if (handle)
        return handle->right;
    if (strstr(one->name, "leader") || strstr(one->name, "assert") || strstr(one->name, "rank") || strstr(one->name, "root") || strstr(one->name, "dest") || strstr(one->name, "source"))
        return 0;
    return 1;
}

static uintptr_t any_argument(const parameter_t *one, int at) {
    const handle_t *handle = handle_of(one->type);
    if (is_function(one))
        return below(4) ? (uintptr_t)nothing : 0;
    if (one->is_pointer)
        return below(8) ? (uintptr_t)fill_room(one, at, 1) : 0;
    if (handle)
        return any_handle(handle);
    if (strncmp(one->type, "MPI_T_", 6) == 0)
        return below(4);
    return (uintptr_t)any_number(one->name);
}

typedef int (*call_t)(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t,
                      uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t);

/* All arguments are integers or addresses, which the calling convention passes alike. */
static int call(const function_t *function, uintptr_t *a) {
    call_t address;
    *(void **)&address = dlsym(RTLD_DEFAULT, function->name);
    if (!address)
        return MPI_SUCCESS;
    return address(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14], a[15]);
}

/* --- the tests --- */

static int wrong;

static int class_of(int code) {
    int class = MPI_ERR_UNKNOWN;
    MPI_Error_class(code, &class);
    return class;
}

static void complain(const function_t *function, int at, int code, const char *what) {
    char text[MPI_MAX_ERROR_STRING] = "success";
    int length;
    if (code != MPI_SUCCESS)
        MPI_Error_string(code, text, &length);
    fprintf(stderr, "%s, argument %s: %s: %s (class %d)\n", function->name, at < 0 ? "any" : function->parameters[at].name, what, text, class_of(code));
    wrong++;
}

/* Null handles and the like that these functions accept, or handles that they do not look at. */
static int is_exempt(const function_t *function, const parameter_t *one) {
    static const char *const pairs[][2] = {
        {"_toint", ""},          {"_fromint", ""},         {"MPI_Comm_get_parent", ""},     {"MPI_Keyval", ""},
        {"MPI_Pcontrol", ""},    {"MPI_File_", ""},        {"MPI_Register_datarep", ""},    {"MPI_Status_f2c", ""},
        {"MPI_Status_c2f", ""},  {"MPI_T_", ""},           {"MPI_Comm_call_errhandler", ""}, {"MPI_Session_call_errhandler", ""},
        {"MPI_Win_call_errhandler", ""},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (strstr(function->name, pairs[i][0]) && strstr(one->name, pairs[i][1]))
            return 1;
    return 0;
}

/* Functions that end the process, close MPI, start others, or take addresses that must be right. */
static int is_excluded(const char *name) {
    static const char *const names[] = {"MPI_Init",          "MPI_Init_thread", "MPI_Finalize",    "MPI_Abort",       "MPI_Comm_spawn",
                                        "MPI_Comm_spawn_multiple", "MPI_Free_mem", "MPI_Comm_join", "MPI_Comm_accept", "MPI_Comm_connect",
                                        "MPI_Pcontrol"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0)
            return 1;
    return 0;
}

/* Whether a handle behind a pointer is an argument, and not only a result. */
static int is_input(const function_t *function, const parameter_t *one) {
    static const char *const takers[] = {"MPI_Wait", "MPI_Test", "MPI_Start", "MPI_Cancel", "MPI_Mrecv", "MPI_Imrecv"};
    if (one->is_array)
        return 0;
    for (size_t i = 0; i < sizeof takers / sizeof *takers; i++)
        if (strncmp(function->name, takers[i], strlen(takers[i])) == 0)
            return i < 4 || strcmp(one->name, "message") == 0;
    return strstr(function->name, "_free") || strstr(function->name, "_finalize");
}

static void with_freed_handles(const function_t *function) {
    for (int bad = 0; bad < function->count; bad++) {
        const parameter_t *one = &function->parameters[bad];
        const handle_t *handle = handle_of(one->type);
        uintptr_t arguments[PARAMETERS] = {0};
        if (!handle || handle->freed == handle->null || (one->is_pointer && !is_input(function, one)) || is_exempt(function, one))
            continue;
        make_objects();
        for (int i = 0; i < function->count; i++)
            arguments[i] = right_argument(&function->parameters[i], i);
        if (one->is_pointer)
            *(uintptr_t *)arguments[bad] = handle->freed;
        else
            arguments[bad] = handle->freed;
        int code = call(function, arguments);
        if (class_of(code) != handle->class && class_of(code) != MPI_ERR_UNSUPPORTED_OPERATION)
            complain(function, bad, code, "a freed handle");
    }
}

static void with_null_pointers(const function_t *function) {
    for (int bad = 0; bad < function->count; bad++) {
        const parameter_t *one = &function->parameters[bad];
        uintptr_t arguments[PARAMETERS] = {0};
        if (!one->is_pointer || is_function(one) || strcmp(one->type, "MPI_Status") == 0 || is_exempt(function, one))
            continue;
        make_objects();
        for (int i = 0; i < function->count; i++)
            arguments[i] = right_argument(&function->parameters[i], i);
        arguments[bad] = 0;
        int code = call(function, arguments);
        if (class_of(code) == MPI_ERR_INTERN)
            complain(function, bad, code, "a null pointer");
    }
}

static void with_garbage(const function_t *function, int calls) {
    for (int round = 0; round < calls; round++) {
        uintptr_t arguments[PARAMETERS] = {0};
        if (round % 16 == 0) {
            make_objects();
            MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
            MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
        }
        for (int i = 0; i < function->count; i++)
            arguments[i] = any_argument(&function->parameters[i], i);
        int code = call(function, arguments);
        if (class_of(code) == MPI_ERR_INTERN)
            complain(function, -1, code, "garbage");
    }
}

/* A receive of a message that nobody sends, and the like. */
static int may_wait(const char *name) {
    static const char *const parts[] = {"ecv", "robe", "Wait", "wait", "send", "Send", "_lock", "_start", "_post", "_complete", "fence", "Barrier", "_free", "isconnect", "flush", "finalize", "detach", "Buffer"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strstr(name, parts[i]))
            return 1;
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 3)
        return 2;
    read_table(argv[1]);
    uint64_t seed = argc > 3 ? strtoull(argv[3], NULL, 0) : 1;
    int calls = argc > 4 ? atoi(argv[4]) : 50, called = 0, failed = 0;
    for (int i = 0; i < function_count; i++) {
        const function_t *function = &functions[i];
        if (is_excluded(function->name) || (argc > 5 && strcmp(argv[5], function->name) != 0))
            continue;
        called++;
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            alarm(10);
            state = seed * 1000003 + (uint64_t)i;
            MPI_Init(NULL, NULL);
            MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
            MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
            if (strcmp(argv[2], "freed") == 0)
                with_freed_handles(function);
            else if (strcmp(argv[2], "null") == 0)
                with_null_pointers(function);
            else
                with_garbage(function, calls);
            _exit(wrong ? 99 : 0);
        }
        int status = 0;
        if (child < 0 || waitpid(child, &status, 0) != child)
            return 3;
        int is_late = WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM;
        if (WIFEXITED(status) ? WEXITSTATUS(status) == 99 : !(is_late && may_wait(function->name))) {
            failed++;
            if (WIFSIGNALED(status))
                fprintf(stderr, "%s: ended by signal %d\n", function->name, WTERMSIG(status));
        }
    }
    if (failed)
        fprintf(stderr, "%d of %d functions failed\n", failed, called);
    else
        printf("%s ok\n", argv[2]);
    return failed != 0;
}
