/* `epochs N`: opens MPI N times in turn, each time with a session over mpi://WORLD, and prints the sum of all ranks each time; then
 * the growth in descriptors and in KiB of private memory since the first tenth of the rounds. */
#include <dirent.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static long descriptors(void) {
    DIR *dir = opendir("/proc/self/fd");
    long count = 0;
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

/* What this process has written. The library's code counts as private, too, once the other process has ended. */
static long private_kib(void) {
    FILE *rollup = fopen("/proc/self/smaps_rollup", "r");
    char line[256];
    long sum = 0, kib;
    while (fgets(line, sizeof line, rollup))
        if (sscanf(line, "Private_Dirty: %ld", &kib) == 1)
            sum += kib;
    fclose(rollup);
    return sum;
}

int main(int argc, char **argv) {
    int times = argc > 1 ? atoi(argv[1]) : 1;
    long files = 0, memory = 0;
    for (int time = 0; time < times; time++) {
        MPI_Session session;
        MPI_Group group;
        MPI_Comm comm;
        int rank, size, sum;
        MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
        MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
        MPI_Comm_create_from_group(group, "epochs", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
        MPI_Comm_rank(comm, &rank);
        MPI_Comm_size(comm, &size);
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm);
        printf("epoch %d: %d of %d, sum %d\n", time, rank, size, sum);
        MPI_Comm_free(&comm);
        MPI_Group_free(&group);
        MPI_Session_finalize(&session);
        if (time == times / 10) {
            files = descriptors();
            memory = private_kib();
        }
    }
    printf("grown by %ld descriptors, %ld KiB\n", descriptors() - files, private_kib() - memory);
    return 0;
}
