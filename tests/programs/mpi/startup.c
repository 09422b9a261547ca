/* Initialization and finalization (MPI 5.0 §11.2 to §11.4, chapter 20): calls allowed before, predefined objects, cleanup. */
#include "check.h"

#include <unistd.h>

static int torn_down;

static int on_end(MPI_Comm comm, int key, void *value, void *extra) {
    (void)comm, (void)key, (void)value, (void)extra;
    int finalized = 1;
    MPI_Finalized(&finalized);
    torn_down += !finalized;
    return MPI_SUCCESS;
}

int main(int argc, char **argv) {
    int initialized = 1, finalized = 1, major = 0, minor = 0, length, provided = -1, key;
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    CHECK(!initialized && !finalized);
    MPI_Get_version(&major, &minor);
    CHECK(major == MPI_VERSION && minor == MPI_SUBVERSION);
    MPI_Abi_get_version(&major, &minor);
    CHECK(major == MPI_ABI_VERSION && minor == MPI_ABI_SUBVERSION);
    MPI_Get_library_version(text, &length);
    CHECK(length > 0 && length == (int)strlen(text));
    /* The version names this library and no other one. */
    CHECK(on_mpich() || (strstr(text, "rsd") && !strstr(text, "MPICH") && !strstr(text, "Open MPI")));

    if (argc > 1 && !strcmp(argv[1], "null"))
        MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided);
    else
        MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
    CHECK(provided >= MPI_THREAD_SERIALIZED);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    CHECK(rank >= 0 && rank < size);
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    CHECK(initialized && !finalized);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    CHECK(MPI_Init(NULL, NULL) != MPI_SUCCESS);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);

    MPI_Get_processor_name(text, &length);
    CHECK(length > 0 && length == (int)strlen(text) && length < MPI_MAX_PROCESSOR_NAME);
    double since = MPI_Wtime(), tick = MPI_Wtick();
    CHECK(tick > 0 && tick < 1e-3);
    usleep(2000);
    double took = MPI_Wtime() - since;
    CHECK(took >= 1.9e-3 && took < 10);
    void *memory = NULL;
    MPI_Alloc_mem(10000, MPI_INFO_NULL, &memory);
    CHECK(memory != NULL);
    memset(memory, 1, 10000);
    MPI_Free_mem(memory);
    MPI_Pcontrol(1);

    /* Attributes of COMM_SELF are deleted first, while MPI still works. */
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_end, &key, NULL);
    MPI_Comm_set_attr(MPI_COMM_SELF, key, &key);
    int all = 1, printer = rank == 0, members = size;
    MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalize();
    wrong = all;
    CHECK(torn_down == 1);
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    CHECK(initialized && finalized);
    MPI_Get_version(&major, &minor);
    CHECK(major == MPI_VERSION);
    if (printer && !wrong)
        printf("startup ok on %d\n", members);
    return wrong != 0;
}
