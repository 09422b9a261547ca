/* Measures the distance of two processors: the nanoseconds for a cache line to go from one to the other and back. If a host moves virtual
 * processors, this changes from one second to the next. _GNU_SOURCE must be defined. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

enum { BATCHES = 9 };

/* Seconds that all turns may take, besides 2 us for each: then the other processor has something else to do. */
static const double LATE = 2e-3;

static struct {
    _Alignas(128) atomic_uint turn;
    _Alignas(128) atomic_int is_over;
} line;

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static cpu_set_t only(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    return set;
}

static void *answer(void *unused) {
    (void)unused;
    for (unsigned turn = 1; !atomic_load(&line.is_over);)
        if (atomic_load(&line.turn) == turn) {
            atomic_store(&line.turn, turn + 1);
            turn += 2;
        }
    return NULL;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of nine batches of so many turns; 0 if it cannot be measured, because a processor is busy, not ours, or both are one. */
static double distance(int here, int there, int turns) {
    double took[BATCHES] = {0};
    cpu_set_t before, own = only(here), others = only(there);
    pthread_attr_t on_other;
    pthread_t other;
    atomic_store(&line.turn, 0);
    atomic_store(&line.is_over, 0);
    if (here == there || pthread_getaffinity_np(pthread_self(), sizeof before, &before) != 0 ||
        pthread_setaffinity_np(pthread_self(), sizeof own, &own) != 0)
        return 0;
    pthread_attr_init(&on_other);
    pthread_attr_setaffinity_np(&on_other, sizeof others, &others);
    if (pthread_create(&other, &on_other, answer, NULL) == 0) {
        unsigned i = 0;
        double since = seconds();
        int is_late = 0;
        for (int batch = 0; batch < BATCHES && !is_late; batch++) {
            /* The first batch also waits for the thread to start. */
            double start = seconds();
            for (unsigned end = i + (unsigned)turns; i < end && !is_late; i++) {
                atomic_store(&line.turn, 2 * i + 1);
                for (unsigned looks = 1; atomic_load(&line.turn) != 2 * i + 2 && !is_late; looks++)
                    is_late = looks % 1024 == 0 && seconds() - since > LATE + turns * BATCHES * 2e-6;
            }
            took[batch] = is_late ? 0 : (seconds() - start) * 1e9 / turns;
        }
        atomic_store(&line.is_over, 1);
        pthread_join(other, NULL);
        if (is_late)
            took[BATCHES / 2] = 0;
        else
            qsort(took, BATCHES, sizeof *took, by_value);
    }
    pthread_attr_destroy(&on_other);
    pthread_setaffinity_np(pthread_self(), sizeof before, &before);
    return took[BATCHES / 2];
}
