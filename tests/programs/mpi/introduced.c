/* Processes of different jobs that are introduced by others. Every job has the same arguments, except for PART:
 *     introduced PART FILE          PART is host, first or second
 *     introduced PART FILE before   one process of the first job dies before the whole job and the host merge
 *     introduced PART FILE within   one process of the first job dies while it waits for the host's processes, which are late
 * The first process of each other job connects separately to the host's first process. */
#include "check.h"

#include <signal.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { LONG = 300000, TAG = 5 };

/* Each process with each of the other side, and all together. */
static void use(MPI_Comm inter, int remote, int high) {
    int local, me, there, sum = 0, all_me, all_size;
    MPI_Comm all;
    MPI_Comm_size(inter, &local);
    MPI_Comm_rank(inter, &me);
    MPI_Comm_remote_size(inter, &there);
    CHECK(there == remote);
    int *out = room(LONG * sizeof *out), *in = room(LONG * sizeof *in), *got = room((size_t)there * sizeof *got);
    MPI_Request *requests = room(2 * (size_t)there * sizeof *requests);
    for (int r = 0; r < there; r++) {
        MPI_Irecv(&got[r], 1, MPI_INT, r, 1, inter, &requests[r]);
        MPI_Isend(&me, 1, MPI_INT, r, 1, inter, &requests[there + r]);
    }
    MPI_Waitall(2 * there, requests, MPI_STATUSES_IGNORE);
    for (int r = 0; r < there; r++)
        CHECK(got[r] == r);
    MPI_Allreduce(&me, &sum, 1, MPI_INT, MPI_SUM, inter);
    CHECK(sum == there * (there - 1) / 2);
    MPI_Intercomm_merge(inter, high, &all);
    MPI_Comm_rank(all, &all_me);
    MPI_Comm_size(all, &all_size);
    CHECK(all_size == local + there);
    int next = (all_me + 1) % all_size, before = (all_me + all_size - 1) % all_size;
    fill(out, LONG, all_me);
    MPI_Sendrecv(out, LONG, MPI_INT, next, 2, in, LONG, MPI_INT, before, 2, all, MPI_STATUS_IGNORE);
    CHECK(filled(in, LONG, before));
    MPI_Allreduce(&all_me, &sum, 1, MPI_INT, MPI_SUM, all);
    CHECK(sum == all_size * (all_size - 1) / 2);
    MPI_Comm_free(&all);
    free(out);
    free(in);
    free(got);
    free(requests);
}

static void say_port(const char *path, const char *part, const char *port) {
    char name[4096], whole[4200];
    snprintf(name, sizeof name, "%s.%s", path, part);
    snprintf(whole, sizeof whole, "%s.new", name);
    FILE *file = fopen(whole, "w");
    fputs(port, file);
    fclose(file);
    rename(whole, name);
}

static void hear_port(const char *path, const char *part, char *port) {
    char name[4096];
    FILE *file;
    snprintf(name, sizeof name, "%s.%s", path, part);
    while (!(file = fopen(name, "r"))) {
        struct timespec pause = {0, 1000000};
        nanosleep(&pause, NULL);
    }
    CHECK(fgets(port, MPI_MAX_PORT_NAME, file) != NULL);
    fclose(file);
}

/* A communicator of the first processes of the host and of another job: the host's has rank 0. */
static MPI_Comm pair(const char *path, const char *part, int hosts) {
    char port[MPI_MAX_PORT_NAME];
    MPI_Comm inter, both;
    if (hosts) {
        MPI_Open_port(MPI_INFO_NULL, port);
        say_port(path, part, port);
        MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter);
        MPI_Close_port(port);
    } else {
        hear_port(path, part, port);
        MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter);
    }
    MPI_Intercomm_merge(inter, !hosts, &both);
    MPI_Comm_disconnect(&inter);
    return both;
}

int main(int argc, char **argv) {
    begin(&argc, &argv);
    const char *part = argc > 1 ? argv[1] : "", *path = argc > 2 ? argv[2] : "";
    const char *death = argc > 3 ? argv[3] : "";
    int hosts = strcmp(part, "host") == 0, is_first = strcmp(part, "first") == 0, within = strcmp(death, "within") == 0;
    /* With more than three processes, the neighbours of the process that dies learn of its death from others. */
    int leader = within && is_first && size > 3 ? 2 : 0;
    MPI_Comm with_first = MPI_COMM_NULL, with_second = MPI_COMM_NULL, inter;
    if (rank == leader && (hosts || is_first))
        with_first = pair(path, "first", hosts);

    if (*death) {
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        MPI_Barrier(MPI_COMM_WORLD);
        if (is_first && !within && rank == size - 1)
            raise(SIGKILL);
        if (is_first && within && rank == 1) {
            struct itimerval soon = {.it_value = {0, 200000}};
            setitimer(ITIMER_REAL, &soon, NULL);
        }
        if (hosts && within)
            sleep(1);
        FAILS(MPI_Intercomm_create(MPI_COMM_WORLD, leader, with_first, hosts, TAG, &inter), MPI_ERR_PROC_ABORTED);
        printf("%s %d: told\n", part, rank);
        fflush(stdout);
        /* All processes of the host have the error by now, while the first job's leader lives. */
        if (hosts)
            MPI_Barrier(MPI_COMM_WORLD);
        if (rank == leader)
            MPI_Barrier(with_first);
        if (hosts)
            return finish("introduced");
        _exit(wrong);
    }

    /* The host's job and the first job: at first only their first processes know each other; and again, when all have met. */
    for (int round = 0; round < 3 && (hosts || is_first); round++) {
        MPI_Comm kept;
        MPI_Intercomm_create(MPI_COMM_WORLD, 0, with_first, hosts, TAG, &inter);
        use(inter, size, hosts);
        MPI_Intercomm_create(MPI_COMM_WORLD, 0, with_first, hosts, TAG, &kept);
        MPI_Comm_disconnect(&inter);
        use(kept, size, !hosts);
        MPI_Comm_disconnect(&kept);
    }

    /* The first processes of all jobs: those of the first and the second job are introduced by the host's. */
    if (rank == 0 && !is_first)
        with_second = pair(path, "second", hosts);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0 && (hosts || is_first))
        MPI_Intercomm_create(with_first, 0, with_second, 1, TAG, &inter);
    else if (!hosts && !is_first)
        MPI_Intercomm_create(MPI_COMM_WORLD, 0, with_second, 0, TAG, &inter);
    else
        inter = MPI_COMM_NULL;
    if (inter != MPI_COMM_NULL) {
        use(inter, hosts || is_first ? size : 2, is_first || hosts);
        MPI_Comm_disconnect(&inter);
    }
    if (with_first != MPI_COMM_NULL)
        MPI_Comm_disconnect(&with_first);
    if (with_second != MPI_COMM_NULL)
        MPI_Comm_disconnect(&with_second);
    return finish("introduced");
}
