/* Attaches after MPI_Init, then connects to another process: `attached accept` and `attached connect`. */
#define _GNU_SOURCE
#include <mpi.h>
#include <rsd_attach.h>

int main(int argc, char **argv) {
    char why[RSD_JOIN_WHY], port[MPI_MAX_PORT_NAME] = "";
    struct rsd_place place = {0}, again = {0};
    MPI_Comm between, together;
    int code, sum = 0, one = 1, accepts = argc > 1 && !strcmp(argv[1], "accept");
    if (argc < 2) {
        fprintf(stderr, "refused %d: %s\n", rsd_attach(1, NULL, why), why);
        return 1;
    }
    MPI_Init(&argc, &argv);
    code = rsd_attach(30, &place, why);
    if (code) {
        fprintf(stderr, "refused %d: %s\n", code, why);
        return 1;
    }
    if (place.size != 1 || place.job <= 0 || rsd_attach(1, &again, why) || again.job != place.job)
        return 2;
    if (accepts) {
        MPI_Open_port(MPI_INFO_NULL, port);
        MPI_Publish_name("the door", MPI_INFO_NULL, port);
        puts("published");
        fflush(stdout);
        MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &between);
    } else {
        MPI_Lookup_name("the door", MPI_INFO_NULL, port);
        MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &between);
    }
    MPI_Intercomm_merge(between, !accepts, &together);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, together);
    printf("%d together\n", sum);
    fflush(stdout);
    MPI_Comm_free(&together);
    MPI_Comm_disconnect(&between);
    MPI_Finalize();
    return 0;
}
