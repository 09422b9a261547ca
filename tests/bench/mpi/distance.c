/* Measures the distance of two processors: the nanoseconds for a cache line to go from one to the other and back.
 *
 *   distance CPU CPU
 *
 * Prints the median of nine batches. If a host moves virtual processors, this changes from one second to the next.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BATCHES = 9, ROUNDS = 2000 };

static _Alignas(128) atomic_uint line;

static void stay_on(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (pthread_setaffinity_np(pthread_self(), sizeof set, &set) != 0) {
        fprintf(stderr, "distance: cpu %d is not ours\n", cpu);
        exit(1);
    }
}

static void *answers(void *cpu) {
    stay_on(*(int *)cpu);
    for (unsigned i = 0; i < BATCHES * ROUNDS; i++) {
        while (atomic_load(&line) != 2 * i + 1)
            continue;
        atomic_store(&line, 2 * i + 2);
    }
    return NULL;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: distance CPU CPU\n");
        return 2;
    }
    int here = atoi(argv[1]), there = atoi(argv[2]);
    double took[BATCHES];
    pthread_t other;
    stay_on(here);
    if (pthread_create(&other, NULL, answers, &there) != 0)
        return 1;
    unsigned i = 0;
    for (int batch = 0; batch < BATCHES; batch++) {
        double since = now();
        for (unsigned end = i + ROUNDS; i < end; i++) {
            atomic_store(&line, 2 * i + 1);
            while (atomic_load(&line) != 2 * i + 2)
                continue;
        }
        took[batch] = (now() - since) / ROUNDS;
    }
    pthread_join(other, NULL);
    qsort(took, BATCHES, sizeof *took, by_size);
    printf("%.0f\n", took[BATCHES / 2]);
    return 0;
}
