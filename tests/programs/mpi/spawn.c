/* Names, and failing spawns: a failure is an error at all parents, with codes, and they continue. `spawn names` needs no
 * slots; `spawn refusals` needs a daemon that reports what happened to the spawned processes. */
#include "check.h"

#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static char *self;

static void names(void) {
    char service[64], port[MPI_MAX_PORT_NAME] = "", found[MPI_MAX_PORT_NAME], other[MPI_MAX_PORT_NAME] = "rsd x: \n\\%41";
    MPI_Open_port(MPI_INFO_NULL, port);
    snprintf(service, sizeof service, "my ocean\n100%% of %d", rank);
    FAILS(MPI_Lookup_name(service, MPI_INFO_NULL, found), MPI_ERR_NAME);
    FAILS(MPI_Unpublish_name(service, MPI_INFO_NULL, port), MPI_ERR_SERVICE);
    CHECK(MPI_Publish_name(service, MPI_INFO_NULL, port) == MPI_SUCCESS);
    FAILS(MPI_Publish_name(service, MPI_INFO_NULL, port), MPI_ERR_SERVICE);
    MPI_Barrier(MPI_COMM_WORLD);
    snprintf(service, sizeof service, "my ocean\n100%% of %d", (rank + 1) % size);
    CHECK(MPI_Lookup_name(service, MPI_INFO_NULL, found) == MPI_SUCCESS);
    CHECK(size > 1 || strcmp(found, port) == 0);
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(MPI_Unpublish_name(service, MPI_INFO_NULL, found) == MPI_SUCCESS);
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(MPI_Publish_name(service, MPI_INFO_NULL, other) == MPI_SUCCESS);
    CHECK(MPI_Lookup_name(service, MPI_INFO_NULL, found) == MPI_SUCCESS && strcmp(found, other) == 0);
    CHECK(MPI_Unpublish_name(service, MPI_INFO_NULL, other) == MPI_SUCCESS);
    FAILS(MPI_Lookup_name(NULL, MPI_INFO_NULL, found), MPI_ERR_ARG);
    FAILS(MPI_Publish_name("", MPI_INFO_NULL, port), MPI_ERR_ARG);
    MPI_Close_port(port);
}

/* All parents get the error class, and matching codes. */
static void refused(char *command, char **argv, int count, int root, const char *why) {
    int codes[64], expected = count > 0 && count <= 64 ? count : 0;
    MPI_Comm inter = MPI_COMM_NULL;
    memset(codes, -1, sizeof codes);
    FAILS(MPI_Comm_spawn(command, argv, count, MPI_INFO_NULL, root, MPI_COMM_WORLD, &inter, codes), MPI_ERR_SPAWN);
    CHECK(rank != root || says(MPI_ERR_SPAWN, why));
    CHECK(inter == MPI_COMM_NULL);
    for (int at = 0; at < expected; at++)
        CHECK(codes[at] == MPI_ERR_SPAWN);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void refusals(void) {
    MPI_Comm inter;
    MPI_Info info;
    int codes[64], remote, sum = 0, one = 1;
    char *child[] = {"child", NULL}, *early[] = {"early", NULL}, *late[] = {"late", NULL};
    refused("./nowhere", MPI_ARGV_NULL, 2, 0, "./nowhere");
    refused(self, child, 60, size - 1, "60 ranks requested");
    refused("/bin/true", MPI_ARGV_NULL, 1, 0, "without calling MPI_Init");
    refused(self, early, 2, 0, "(last: MPI_Comm_spawn: ");
    FAILS(MPI_Comm_spawn(self, child, -1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter, MPI_ERRCODES_IGNORE), MPI_ERR_ARG);
    FAILS(MPI_Comm_spawn(NULL, child, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter, MPI_ERRCODES_IGNORE), MPI_ERR_ARG);
    FAILS(MPI_Comm_spawn(self, child, 1, MPI_INFO_NULL, size, MPI_COMM_WORLD, &inter, MPI_ERRCODES_IGNORE), MPI_ERR_ROOT);
    /* More than can be: also the parents need no memory for that. */
    FAILS(MPI_Comm_spawn(self, child, 2147483647, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter, MPI_ERRCODES_IGNORE), MPI_ERR_SPAWN);
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    CHECK(usage.ru_maxrss < 1 << 20);
    /* Processes are started once all parents call: they wait for none. */
    char *timely[] = {"timely", NULL};
    if (rank == size - 1)
        sleep(8);
    CHECK(MPI_Comm_spawn(self, timely, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter, MPI_ERRCODES_IGNORE) == MPI_SUCCESS);
    double nothing = 0, waited = 100;
    MPI_Allreduce(&nothing, &waited, 1, MPI_DOUBLE, MPI_MAX, inter);
    CHECK(waited < 7);
    MPI_Comm_disconnect(&inter);
    /* A program that does not use MPI. */
    MPI_Info_create(&info);
    MPI_Info_set(info, "timeout", "0.5");
    char *nap[] = {"2", NULL};
    double since = MPI_Wtime();
    FAILS(MPI_Comm_spawn("/bin/sleep", nap, 1, info, 0, MPI_COMM_WORLD, &inter, MPI_ERRCODES_IGNORE), MPI_ERR_SPAWN);
    CHECK(MPI_Wtime() - since >= 0.4 && MPI_Wtime() - since < 20);
    MPI_Info_set(info, "timeout", "soon");
    FAILS(MPI_Comm_spawn("/bin/sleep", nap, 1, info, 0, MPI_COMM_WORLD, &inter, MPI_ERRCODES_IGNORE), MPI_ERR_INFO_VALUE);
    MPI_Info_free(&info);
    /* The death of a connected process is noticed by every process that communicates with it. */
    CHECK(MPI_Comm_spawn(self, late, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter, codes) == MPI_SUCCESS && codes[0] == MPI_SUCCESS);
    CHECK(MPI_Barrier(inter) != MPI_SUCCESS);
    MPI_Comm_free(&inter);
    /* Of sixty requested processes, the number that there is room for. */
    MPI_Info_create(&info);
    MPI_Info_set(info, "soft", "1:60");
    MPI_Info_set(info, "wdir", "/");
    CHECK(MPI_Comm_spawn(self, child, 60, info, 0, MPI_COMM_WORLD, &inter, codes) == MPI_SUCCESS);
    MPI_Comm_remote_size(inter, &remote);
    CHECK(remote > 0 && remote < 60);
    for (int at = 0; at < 60; at++)
        CHECK(codes[at] == (at < remote ? MPI_SUCCESS : MPI_ERR_SPAWN));
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, inter);
    CHECK(sum == remote);
    /* A process that waits for a message that never arrives gives up after 30 seconds. */
    since = MPI_Wtime();
    MPI_Comm_disconnect(&inter);
    CHECK(MPI_Wtime() - since < 20);
    MPI_Info_free(&info);
}

/* The seconds since this process was started. */
static double age(void) {
    char text[1024] = "";
    FILE *stat = fopen("/proc/self/stat", "r");
    CHECK(stat && fgets(text, sizeof text, stat));
    if (stat)
        fclose(stat);
    /* The program's name, which may contain anything, ends with the last parenthesis. The time of the start is the 22nd field. */
    char *field = strrchr(text, ')');
    for (int number = 2; number < 22 && field; number++)
        field = strchr(field + 1, ' ');
    CHECK(field != NULL);
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (double)now.tv_sec - (field ? atof(field) : 0) / (double)sysconf(_SC_CLK_TCK);
}

int main(int argc, char **argv) {
    MPI_Comm parent;
    char *mode = argc > 1 ? argv[1] : "", here[16] = "";
    int one = 1, sum;
    if (strcmp(mode, "early") == 0)
        return 3;
    begin(&argc, &argv);
    self = argv[0];
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_get_parent(&parent);
    if (strcmp(mode, "late") == 0)
        _exit(3);
    if (strcmp(mode, "timely") == 0) {
        double own = age(), none;
        MPI_Allreduce(&own, &none, 1, MPI_DOUBLE, MPI_MAX, parent);
        MPI_Comm_disconnect(&parent);
        MPI_Finalize();
        return wrong;
    }
    if (strcmp(mode, "child") == 0) {
        CHECK(parent != MPI_COMM_NULL && getcwd(here, sizeof here) && strcmp(here, "/") == 0);
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, parent);
        MPI_Comm_disconnect(&parent);
        MPI_Comm_get_parent(&parent);
        CHECK(parent == MPI_COMM_NULL);
        MPI_Finalize();
        return wrong;
    }
    CHECK(parent == MPI_COMM_NULL);
    if (strcmp(mode, "refusals") == 0)
        refusals();
    else
        names();
    return finish("spawn");
}
