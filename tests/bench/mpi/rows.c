/* Measures a thousand calls of the same collective, one straight after the other:
 *
 *   rows ROTATE BYTES...
 *
 * The root is rank 0, or with ROTATE = 1 another rank in each call. Prints for each collective and length a line
 *
 *   NAME BYTES MICROSECONDS
 *
 * with the time of the slowest rank, divided by the number of calls: the median of three rows, each after a barrier. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CALLS = 1000, ROWS = 3 };

typedef struct {
    int bytes, root;
    char *out, *in;
    int *counts, *places;
} Call;

static void bcast(const Call *c) { MPI_Bcast(c->out, c->bytes, MPI_BYTE, c->root, MPI_COMM_WORLD); }
static void gather(const Call *c) { MPI_Gather(c->out, c->bytes, MPI_BYTE, c->in, c->bytes, MPI_BYTE, c->root, MPI_COMM_WORLD); }
static void gatherv(const Call *c) { MPI_Gatherv(c->out, c->bytes, MPI_BYTE, c->in, c->counts, c->places, MPI_BYTE, c->root, MPI_COMM_WORLD); }
static void scatter(const Call *c) { MPI_Scatter(c->out, c->bytes, MPI_BYTE, c->in, c->bytes, MPI_BYTE, c->root, MPI_COMM_WORLD); }
static void scatterv(const Call *c) { MPI_Scatterv(c->out, c->counts, c->places, MPI_BYTE, c->in, c->bytes, MPI_BYTE, c->root, MPI_COMM_WORLD); }
static void allgather(const Call *c) { MPI_Allgather(c->out, c->bytes, MPI_BYTE, c->in, c->bytes, MPI_BYTE, MPI_COMM_WORLD); }
static void alltoall(const Call *c) { MPI_Alltoall(c->out, c->bytes, MPI_BYTE, c->in, c->bytes, MPI_BYTE, MPI_COMM_WORLD); }
static void reduce(const Call *c) { MPI_Reduce(c->out, c->in, c->bytes / 8, MPI_DOUBLE, MPI_SUM, c->root, MPI_COMM_WORLD); }
static void allreduce(const Call *c) { MPI_Allreduce(c->out, c->in, c->bytes / 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD); }
static void scan(const Call *c) { MPI_Scan(c->out, c->in, c->bytes / 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD); }
static void exscan(const Call *c) { MPI_Exscan(c->out, c->in, c->bytes / 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD); }

static const struct {
    const char *name;
    void (*run)(const Call *);
} kinds[] = {
    {"bcast", bcast}, {"gather", gather}, {"gatherv", gatherv}, {"scatter", scatter}, {"scatterv", scatterv}, {"allgather", allgather},
    {"alltoall", alltoall}, {"reduce", reduce}, {"allreduce", allreduce}, {"scan", scan}, {"exscan", exscan},
};

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc < 3) {
        if (rank == 0)
            fprintf(stderr, "usage: %s ROTATE BYTES...\n", argv[0]);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    int rotate = atoi(argv[1]);
    for (int a = 2; a < argc; a++) {
        Call c = {.bytes = atoi(argv[a])};
        size_t whole = (size_t)c.bytes * (size_t)ranks + sizeof(double);
        c.out = calloc(whole, 1);
        c.in = calloc(whole, 1);
        c.counts = malloc((size_t)ranks * sizeof(int));
        c.places = malloc((size_t)ranks * sizeof(int));
        if (c.out == NULL || c.in == NULL || c.counts == NULL || c.places == NULL) {
            fprintf(stderr, "rank %d: no memory for %s bytes from each rank\n", rank, argv[a]);
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
        for (int i = 0; i < ranks; i++) {
            c.counts[i] = c.bytes;
            c.places[i] = i * c.bytes;
        }
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            double rows[ROWS];
            for (int row = 0; row < ROWS; row++) {
                MPI_Barrier(MPI_COMM_WORLD);
                double since = MPI_Wtime();
                for (int i = 0; i < CALLS; i++) {
                    c.root = rotate ? i % ranks : 0;
                    kinds[k].run(&c);
                }
                double took = MPI_Wtime() - since;
                MPI_Allreduce(&took, &rows[row], 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
            }
            qsort(rows, ROWS, sizeof *rows, by_size);
            if (rank == 0)
                printf("%s %d %.2f\n", kinds[k].name, c.bytes, rows[ROWS / 2] / CALLS * 1e6);
        }
        free(c.out);
        free(c.in);
        free(c.counts);
        free(c.places);
    }
    MPI_Finalize();
    return 0;
}
