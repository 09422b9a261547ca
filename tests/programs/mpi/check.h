/* Shared by the programs of this folder: they check themselves, and rank 0 prints one line if everything is right. */
#ifndef CHECK_H
#define CHECK_H

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size, wrong;

#define CHECK(what) \
    do { \
        if (!(what)) { \
            wrong++; \
            fprintf(stderr, "rank %d of %d: %s:%d: failed: %s\n", rank, size, __FILE__, __LINE__, #what); \
        } \
    } while (0)

/* As CHECK, in a thread: `t` has a `number` and counts what is `wrong`. */
#define MUST(what) \
    do { \
        if (!(what)) { \
            t->wrong++; \
            fprintf(stderr, "rank %d thread %d: line %d: failed: %s\n", rank, t->number, __LINE__, #what); \
        } \
    } while (0)

/* The class of the code that a call returns; for calls that must fail under MPI_ERRORS_RETURN. */
static inline int class_of(int code) {
    int class = MPI_ERR_UNKNOWN;
    MPI_Error_class(code, &class);
    return class;
}

/* Whether the text of a code contains this. */
static inline int says(int code, const char *part) {
    char text[MPI_MAX_ERROR_STRING];
    int length = -1;
    MPI_Error_string(code, text, &length);
    if (length == (int)strlen(text) && strstr(text, part))
        return 1;
    fprintf(stderr, "rank %d: the text of %d is: %s\n", rank, code, text);
    return 0;
}

#define FAILS(call, expected) \
    do { \
        int class_ = class_of(call); \
        if (class_ != (expected)) { \
            wrong++; \
            fprintf(stderr, "rank %d of %d: %s:%d: class %d instead of %s: %s\n", rank, size, __FILE__, __LINE__, class_, #expected, \
                    #call); \
        } \
    } while (0)

static inline void begin(int *argc, char ***argv) {
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
}

/* Whether it runs on MPICH: known deviations of MPICH from the standard are not checked. */
static inline int on_mpich(void) {
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    MPI_Get_library_version(version, &length);
    return strncmp(version, "MPICH", 5) == 0;
}

/* Ends the program: `return finish("p2p");`. All ranks succeed or none does. */
static inline int finish(const char *name) {
    int all = 1;
    MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalize();
    if (all == 0 && rank == 0)
        printf("%s ok on %d\n", name, size);
    return all != 0;
}

/* Memory that is freed at the end of the program at the latest; a failed allocation ends the program. */
static inline void *room(size_t bytes) {
    void *p = malloc(bytes ? bytes : 1);
    if (!p) {
        fprintf(stderr, "out of memory\n");
        exit(3);
    }
    return p;
}

/* Element `i` of a message; `seed` distinguishes messages. */
static inline int value(int seed, long i) {
    return (int)((unsigned)seed * 2654435761u + (unsigned)i * 40503u + 12345u);
}

static inline void fill(int *p, long count, int seed) {
    for (long i = 0; i < count; i++)
        p[i] = value(seed, i);
}

static inline int filled(const int *p, long count, int seed) {
    for (long i = 0; i < count; i++)
        if (p[i] != value(seed, i))
            return 0;
    return 1;
}

/* The ranks before and after this one in the ring. */
static inline int left(void) {
    return (rank + size - 1) % size;
}

static inline int right(void) {
    return (rank + 1) % size;
}

#endif
