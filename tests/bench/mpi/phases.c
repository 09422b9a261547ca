/* `phases`: prints for each rank how many milliseconds it took from SINCE (nanoseconds of the clock) to main, and in MPI_Init and
   MPI_Finalize, and when it ended. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

int main(int argc, char **argv) {
    const char *since = getenv("SINCE");
    double begin_ms = since ? atof(since) / 1e6 : 0;
    double main_ms = now_ms();
    MPI_Init(&argc, &argv);
    double in_ms = now_ms();
    MPI_Finalize();
    double out_ms = now_ms();
    printf("%.2f %.2f %.2f\n", main_ms - begin_ms, in_ms - main_ms, out_ms - in_ms);
    return 0;
}
