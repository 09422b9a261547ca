/* Attaches a process of Open MPI 5 that already runs, without a launcher, to rsd, as a job of its own.
 *
 *     #include <rsd_attach.h>
 *     char why[RSD_JOIN_WHY];
 *     MPI_Init(&argc, &argv);                        // MPI_COMM_WORLD is this process alone, and stays so
 *     if (rsd_attach(0, NULL, why))
 *         errx(1, "%s", why);
 *     MPI_Open_port(MPI_INFO_NULL, port);            // MPI_Publish_name, MPI_Comm_accept, MPI_Comm_connect … work too
 *
 * Needs a running daemon on this node (`rsd start`). The environment stays as it is. Open MPI 4.1 decides in MPI_Init whether it has a
 * process manager: use rsd_join.h before it. As rsd_join.h, this is POSIX with Linux's extensions; with an old C library, link with -ldl
 * and -pthread. */
#ifndef RSD_ATTACH_H
#define RSD_ATTACH_H

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/time.h>

#include "rsd_join.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifndef RTLD_NOLOAD
#define RTLD_NOLOAD 4
#endif

/* Seconds, if the caller gives none. */
#define RSD_ATTACH_S 60

extern int MPI_Get_library_version(char *version, int *length) __attribute__((weak));

/* Of the PMIx library: a process, and an attribute with its value. The same in all versions from 4.2 to 6.1. */
struct rsd_pmix_proc {
    char name[256];
    uint32_t rank;
};
struct rsd_pmix_info {
    char key[512];
    uint32_t flags;
    struct {
        uint16_t type;
        union {
            char *text;
            uint64_t most[3];
        } data;
    } value;
};

/* Calls of the PMIx library, which have no deadlines of their own: another thread makes them. */
struct rsd_attach_calls {
    int (*init)(struct rsd_pmix_proc *, struct rsd_pmix_info *, size_t);
    int (*commit)(void);
    int (*finalize)(struct rsd_pmix_info *, size_t);
    struct rsd_pmix_proc self;
    struct rsd_pmix_info info;
    /* Empty: asks for the process's name. Otherwise connects. */
    char uri[320];
    int status, is_over, is_left;
    pthread_mutex_t lock;
    pthread_cond_t over;
};

static void *rsd_attach_run(void *it) {
    struct rsd_attach_calls *calls = (struct rsd_attach_calls *)it;
    int status, is_left;
    if (calls->uri[0]) {
        snprintf(calls->info.key, sizeof calls->info.key, "pmix.srvr.uri");
        calls->info.value.type = 3;
        calls->info.value.data.text = calls->uri;
        status = calls->init(NULL, &calls->info, 1);
        if (status == 0)
            status = calls->commit(); /* what Open MPI has told the library since MPI_Init */
    } else {
        calls->init(&calls->self, NULL, 0);
        status = 0;
    }
    calls->finalize(NULL, 0); /* only counts: MPI_Init's own use goes on */
    pthread_mutex_lock(&calls->lock);
    calls->status = status;
    calls->is_over = 1;
    is_left = calls->is_left;
    pthread_cond_signal(&calls->over);
    pthread_mutex_unlock(&calls->lock);
    if (is_left)
        free(calls);
    return NULL;
}

/* Waits for the calls until a time of rsd_join_now. Returns their status, or -1 with *late set; then they are the thread's. */
static int rsd_attach_within(struct rsd_attach_calls *calls, double until, int *late) {
    struct timespec limit;
    pthread_t thread;
    int status, failed = 0;
    limit.tv_sec = (time_t)until;
    limit.tv_nsec = (long)((until - (double)limit.tv_sec) * 1e9);
    calls->is_over = 0;
    *late = 0;
    if (pthread_create(&thread, NULL, rsd_attach_run, calls) != 0)
        return -1;
    pthread_detach(thread);
    pthread_mutex_lock(&calls->lock);
    while (!calls->is_over && !failed)
        failed = pthread_cond_timedwait(&calls->over, &calls->lock, &limit);
    *late = calls->is_left = !calls->is_over;
    status = calls->is_over ? calls->status : -1;
    pthread_mutex_unlock(&calls->lock);
    return status;
}

/* The PMIx library of this process, if it is initialised. */
static void *rsd_attach_library(void) {
    static char line[4600];
    void *found = NULL;
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps && !found && fgets(line, sizeof line, maps)) {
        char *path = strchr(line, '/');
        int (*initialized)(void);
        void *library;
        if (!path || !strstr(path, "/libpmix"))
            continue;
        path[strcspn(path, "\n")] = 0;
        library = dlopen(path, RTLD_NOLOAD | RTLD_LAZY);
        if (!library)
            continue;
        *(void **)&initialized = dlsym(library, "PMIx_Initialized");
        if (initialized && initialized())
            found = library;
        else
            dlclose(library);
    }
    if (maps)
        fclose(maps);
    return found;
}

/* The first words of the version of the MPI library, if it is initialised; otherwise empty. */
static void rsd_attach_version(char *version, size_t room) {
    static char text[16384];
    int begun = 0, over = 0, length = 0;
    version[0] = 0;
    if (!MPI_Initialized || !MPI_Finalized || !MPI_Get_library_version)
        return;
    MPI_Initialized(&begun);
    MPI_Finalized(&over);
    if (begun && !over && MPI_Get_library_version(text, &length) == 0)
        snprintf(version, room, "%.*s", (int)strcspn(text, ",\n"), text);
    for (; *version; version++)
        if (*version == '\t')
            *version = ' ';
}

/* Asks the daemon for a job of this process alone, under the name that its PMIx library has given it. Returns 0, with the daemon's
 * line, or an exit code. */
static int rsd_attach_ask(const char *dir, const char *name, double until, char *line, size_t room, char *why) {
    char request[1024], encoded[800];
    struct timeval limit;
    size_t i, at = 0, have = 0;
    ssize_t got = 0;
    int fd = rsd_join_connect(dir), length, saved = errno;
    for (i = 0; name[i] && at + 4 < sizeof encoded; i++)
        at += (size_t)snprintf(encoded + at, sizeof encoded - at, "%%%02x", (unsigned char)name[i]);
    length = snprintf(request, sizeof request, "join v=1 timeout_ms=%ld namespace=%s\n",
                      (long)((until - rsd_join_now()) * 1e3), encoded);
    if (fd >= 0 && send(fd, request, (size_t)length, MSG_NOSIGNAL) == length) {
        for (;;) {
            double left = until - rsd_join_now();
            limit.tv_sec = left > 0 ? (time_t)left : 0;
            limit.tv_usec = left > 0 ? (suseconds_t)((left - (double)limit.tv_sec) * 1e6) : 0;
            if (left <= 0.001)
                break;
            setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
            got = read(fd, line + have, 1);
            if (got < 0 && errno == EINTR)
                continue;
            if (got <= 0 || have + 2 >= room)
                break;
            if (line[have++] != '\n')
                continue;
            line[have - 1] = 0;
            have = 0;
            if (strncmp(line, "wait ", 5) != 0) {
                close(fd);
                return 0;
            }
        }
        saved = errno;
        close(fd);
        if (until - rsd_join_now() <= 0.001 || (got < 0 && (saved == EAGAIN || saved == EWOULDBLOCK)))
            return rsd_join_no(why, 124, "the daemon at %s did not answer in time; does it run? (rsd status)%s", dir, "");
        saved = got == 0 ? ECONNRESET : saved;
    } else if (fd >= 0) {
        close(fd);
    }
    return rsd_join_no(why, 242, "no way to the daemon at %s: %s; is it running? (rsd status)", dir, strerror(saved));
}

/* Connects this process, which already runs Open MPI 5 without a launcher, to rsd.
 *
 * timeout_s: seconds; 0: a minute. place, why: where the result goes; both may be null. A second call changes nothing, and succeeds.
 * Call it from one thread. Returns 0, or rsctl's exit code (124: not in time, 240: cannot be attached, 241: no daemon, 245: another
 * user's); then `why` names what to do. */
static int rsd_attach(int timeout_s, struct rsd_place *place, char *why) {
    static struct rsd_place attached;
    static pid_t attached_pid;
    static char line[16385];
    char dir[4096], version[256], name[256], value[64], port[64];
    struct rsd_attach_calls *calls = NULL;
    pthread_condattr_t monotonic;
    double until = rsd_join_now() + (timeout_s > 0 ? timeout_s : RSD_ATTACH_S);
    void *library = NULL;
    int code, late = 0;
    if (attached_pid == getpid()) {
        if (place)
            *place = attached;
        return 0;
    }
    rsd_attach_version(version, sizeof version);
    if (!strstr(version, "Open MPI v4"))
        library = rsd_attach_library();
    if (!library && !version[0])
        return rsd_join_no(why, 240, "MPI is not initialised, so there is nothing to attach: %s%s",
                           "join a group first, or attach after MPI_Init", "");
    if (!library && strstr(version, "Open MPI"))
        return rsd_join_no(why, 240, "cannot attach %s: it decides in MPI_Init whether it has a process manager; %s", version,
                           "join before, or use Open MPI 5");
    if (!library)
        return rsd_join_no(why, 240, "cannot attach %s: only Open MPI 5 can be attached, %s", version,
                           "and others need it less (rsctl help groups)");
    calls = (struct rsd_attach_calls *)calloc(1, sizeof *calls);
    if (calls) {
        pthread_mutex_init(&calls->lock, NULL);
        pthread_condattr_init(&monotonic);
        pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
        pthread_cond_init(&calls->over, &monotonic);
        *(void **)&calls->init = dlsym(library, "PMIx_Init");
        *(void **)&calls->commit = dlsym(library, "PMIx_Commit");
        *(void **)&calls->finalize = dlsym(library, "PMIx_Finalize");
    }
    if (!calls || !calls->init || !calls->commit || !calls->finalize) {
        free(calls);
        return rsd_join_no(why, 255, "cannot use the PMIx library of %s%s", version, "");
    }
    if (rsd_attach_within(calls, until, &late) != 0) {
        if (!late)
            free(calls);
        return rsd_join_no(why, late ? 124 : 255, "the PMIx library of %s did not answer in time%s", version, "");
    }
    snprintf(name, sizeof name, "%s", calls->self.name);
    if (strncmp(name, "singleton.", 10) != 0) {
        free(calls);
        return rsd_join_no(why, 240, "this process has a process manager already: a launcher started it, in job %s%s", name, "");
    }
    code = rsd_join_find(dir, sizeof dir, why);
    if (code == 0)
        code = rsd_attach_ask(dir, name, until, line, sizeof line, why);
    if (code) {
        free(calls);
        return code;
    }
    if (strncmp(line, "error ", 6) == 0) {
        free(calls);
        if (why)
            rsd_join_value(line, "text", why, RSD_JOIN_WHY);
        code = (int)rsd_join_number(line, "code");
        return code > 0 ? code : 255;
    }
    rsd_join_value(line, "namespace", dir, sizeof dir);
    if (strncmp(line, "go ", 3) != 0 || strcmp(dir, name) != 0) {
        free(calls);
        return rsd_join_no(why, 244, "the daemon cannot attach processes: use programs of one release%s%s", "", "");
    }
    rsd_join_value(line, "node_index", value, sizeof value);
    rsd_join_value(line, "pmi_port", port, sizeof port);
    snprintf(calls->uri, sizeof calls->uri, "PMIX_SERVER_URI41;rsd.%s;tcp4://%s", value[0] ? value : "0", port);
    code = rsd_attach_within(calls, until, &late);
    snprintf(value, sizeof value, "%d", code);
    if (!late)
        free(calls);
    if (late)
        return rsd_join_no(why, 124, "the PMIx library of %s did not answer in time%s", version, "");
    if (code)
        return rsd_join_no(why, 242, "the PMIx library of %s cannot connect to the daemon's server (status %s)", version, value);
    attached.rank = attached.local_rank = 0;
    attached.size = attached.local_size = 1;
    attached.epoch = rsd_join_number(line, "epoch");
    attached.job = rsd_join_number(line, "job");
    attached_pid = getpid();
    if (place)
        *place = attached;
    return 0;
}

#ifdef __cplusplus
}
#endif

#endif
