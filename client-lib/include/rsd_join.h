/* Joins a process that already runs to a named group of rsd, so that its MPI library forms one world of the group's members.
 *
 *     #include <rsd_join.h>
 *     char why[RSD_JOIN_WHY];
 *     if (rsd_join("actors", 16, RSD_JOIN_ANY_RANK, 0, NULL, why))   // returns when sixteen processes have joined
 *         errx(1, "%s", why);
 *     MPI_Init(&argc, &argv);                                        // MPI_COMM_WORLD has sixteen ranks
 *
 * Needs a running daemon on this node (`rsd start`). Call it before MPI_Init, from one thread: it changes the environment.
 * POSIX with flock (Linux), C99 with its extensions (gcc -std=gnu99 or later, the default) or C++; everything is static, so there is
 * nothing to link. Names, sizes and times are those of `rsctl group exec`. The protocol of the socket is documented in rsd's
 * proto/src/join.rs. */
#ifndef RSD_JOIN_H
#define RSD_JOIN_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The size in bytes of the error text. */
#define RSD_JOIN_WHY 4500
/* Ranks are assigned by node, then in order of arrival. */
#define RSD_JOIN_ANY_RANK (-1)

/* This process among the members of its epoch. */
struct rsd_place {
    int rank, size, local_rank, local_size;
    /* Counts from 1: each forming of the group is a new epoch. */
    long epoch;
    /* The job number of the epoch, for rsctl. */
    long job;
};

/* Of the MPI library, where the program is linked with one. Weak: it need not be. */
extern int MPI_Initialized(int *flag) __attribute__((weak));
extern int MPI_Finalized(int *flag) __attribute__((weak));

static int rsd_join_no(char *why, int code, const char *format, const char *one, const char *two) {
    if (why)
        snprintf(why, RSD_JOIN_WHY, format, one, two);
    return code;
}

/* The directory of the sockets of the daemon with this state directory, for paths of less than `room` bytes; any other path as it is. */
static void rsd_join_entry(const char *dir, char *entry, size_t room) {
    char link[4096];
    ssize_t len = -1;
    if (snprintf(link, sizeof link, "%s/run", dir) < (int)sizeof link)
        len = readlink(link, entry, room);
    if (len >= 0 && len < (ssize_t)room)
        entry[len] = 0;
    else
        snprintf(entry, room, "%s", dir);
}

static int rsd_join_connect(const char *dir);

/* Whether root's daemon that serves all users has its sockets there. Its lock is root's own, so its socket is tried. */
static int rsd_join_public(const char *dir) {
    struct stat meta;
    int fd = -1;
    if (stat(dir, &meta) == 0 && meta.st_uid == 0 && !(meta.st_mode & 022))
        fd = rsd_join_connect(dir);
    if (fd >= 0)
        close(fd);
    else
        errno = EACCES;
    return fd >= 0;
}

/* Whether a running daemon has its sockets there: then it holds the lock. */
static int rsd_join_runs(const char *dir) {
    char path[4096];
    int lock, held;
    if (snprintf(path, sizeof path, "%s/rsd.lock", dir) >= (int)sizeof path)
        return 0;
    lock = open(path, O_RDONLY | O_CLOEXEC);
    if (lock < 0)
        return errno == EACCES ? rsd_join_public(dir) : 0;
    held = flock(lock, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    close(lock);
    return held;
}

/* The value of a key in a daemon's daemon.json: the text of a string, or a bare word. Empty if it is missing. Only for values that
 * need no escapes. */
static void rsd_join_about(const char *json, const char *key, char *value, size_t room) {
    char quoted[32];
    size_t len;
    const char *p;
    snprintf(quoted, sizeof quoted, "\"%s\"", key);
    p = strstr(json, quoted);
    p = p ? p + strlen(quoted) : "";
    p += strspn(p, " \t\r\n:");
    p += *p == '"';
    len = strcspn(p, "\",} \t\r\n");
    snprintf(value, room, "%.*s", (int)len, p);
}

/* The DVM and the state directory of the daemon with its sockets in a directory, and whether it is the DVM's head. 0 if the daemon does
 * not run, or is not ready yet. */
static int rsd_join_look(const char *dir, char *dvm, size_t room, int *is_head, char *state, size_t state_room) {
    char path[4096], json[4096], word[8];
    ssize_t have = -1;
    int file;
    if (!rsd_join_runs(dir) || snprintf(path, sizeof path, "%s/daemon.json", dir) >= (int)sizeof path)
        return 0;
    file = open(path, O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
        have = read(file, json, sizeof json - 1);
        close(file);
    }
    if (have <= 0)
        return 0;
    json[have] = 0;
    rsd_join_about(json, "dvm", dvm, room);
    rsd_join_about(json, "state_dir", state, state_room);
    rsd_join_about(json, "serves_all", word, sizeof word);
    /* Other users cannot enter root's state directory; this directory stands for the daemon. */
    if (!state[0] || (geteuid() != 0 && strcmp(word, "true") == 0))
        snprintf(state, state_room, "%s", dir);
    rsd_join_about(json, "head", word, sizeof word);
    *is_head = strcmp(word, "true") == 0;
    return 1;
}

/* The error for a place that belongs to another user, or lies in another user's directory. */
static int rsd_join_denied(const char *place, char *why) {
    char path[4096], uid[32];
    struct stat meta;
    snprintf(path, sizeof path, "%s", place);
    while (stat(path, &meta) != 0 && strrchr(path, '/') > path)
        *strrchr(path, '/') = 0;
    snprintf(uid, sizeof uid, "%lu", stat(path, &meta) == 0 ? (unsigned long)meta.st_uid : 0UL);
    return rsd_join_no(why, 245, "%s belongs to uid %s; use a daemon of your own: rsd start", path, uid);
}

/* A daemon accepts its own user and root; root's may accept everybody. Returns 0, or an exit code with the reason in `why`. */
static int rsd_join_may(const char *dir, char *why) {
    struct stat meta;
    if (geteuid() != 0 && stat(dir, &meta) == 0 && meta.st_uid != geteuid() && meta.st_uid != 0)
        return rsd_join_denied(dir, why);
    return 0;
}

/* Finds the state directory of the daemon named by RSD_DVM, or of the only DVM's daemon: its head if that runs here. Returns 0, or an exit code. */
static int rsd_join_find_in(const char *below, char *dir, size_t room, char *why) {
    const char *wish = getenv("RSD_DVM");
    char entry[4096], found[4096] = "", other[4096] = "", dvm[256], first[256] = "";
    int is_head, has_head = 0;
    struct dirent *each;
    DIR *entries;
    if (wish && wish[0]) {
        int len = 0, code;
        if (strchr(wish, '/'))
            rsd_join_entry(wish, entry, sizeof entry);
        else
            len = snprintf(entry, sizeof entry, "%s/%s", below, wish);
        errno = 0;
        if (len < (int)sizeof entry && rsd_join_runs(entry)) {
            code = rsd_join_may(entry, why);
            if (code || rsd_join_look(entry, dvm, sizeof dvm, &is_head, dir, room))
                return code;
        }
        if (errno == EACCES)
            return rsd_join_denied(entry, why);
        return rsd_join_no(why, 241, "RSD_DVM=%s: no such daemon is running; start one with: rsd start%s", wish, "");
    }
    entries = opendir(below);
    if (!entries && errno == EACCES)
        return rsd_join_denied(below, why);
    while (entries && (each = readdir(entries))) {
        if (each->d_name[0] == '.' || snprintf(entry, sizeof entry, "%s/%s", below, each->d_name) >= (int)sizeof entry ||
            !rsd_join_look(entry, dvm, sizeof dvm, &is_head, dir, room))
            continue;
        /* Daemons of one DVM count once; the head takes precedence. */
        if (found[0] && strcmp(dvm, first) != 0) {
            snprintf(other, sizeof other, "%s", dir);
        } else if (!found[0] || (is_head && !has_head)) {
            snprintf(found, sizeof found, "%s", dir);
            snprintf(first, sizeof first, "%s", dvm);
            has_head = is_head;
        }
    }
    if (entries)
        closedir(entries);
    if (other[0])
        return rsd_join_no(why, 241, "several DVMs are running here; choose one with RSD_DVM: %s or %s", found, other);
    if (!found[0])
        return rsd_join_no(why, 241, "no daemon is running here (looked in %s); start one with: rsd start%s", below, "");
    snprintf(dir, room, "%s", found);
    return rsd_join_may(dir, why);
}

/* The same in the user's runtime directory; if the user has no such daemon, one that serves all users. */
static int rsd_join_find(char *dir, size_t room, char *why) {
    const char *base = getenv("RSD_RUNTIME_DIR"), *run = getenv("XDG_RUNTIME_DIR");
    char below[4096], other[RSD_JOIN_WHY];
    struct stat meta;
    int code, again;
    if (base && base[0] && base[0] != '/')
        return rsd_join_no(why, 240, "RSD_RUNTIME_DIR=%s: not an absolute path%s", base, "");
    if (base && base[0])
        snprintf(below, sizeof below, "%s", base);
    else if (geteuid() == 0 && stat("/run", &meta) == 0 && S_ISDIR(meta.st_mode) && meta.st_uid == 0)
        snprintf(below, sizeof below, "/run/rsd");
    else if (run && run[0] == '/' && stat(run, &meta) == 0 && S_ISDIR(meta.st_mode))
        snprintf(below, sizeof below, "%s/rsd", run);
    else {
        /* That of a login shell, for processes that have not its environment. */
        snprintf(below, sizeof below, "/run/user/%lu", (unsigned long)geteuid());
        if (stat(below, &meta) == 0 && S_ISDIR(meta.st_mode) && meta.st_uid == geteuid())
            snprintf(below, sizeof below, "/run/user/%lu/rsd", (unsigned long)geteuid());
        else
            snprintf(below, sizeof below, "/tmp/rsd-%lu", (unsigned long)geteuid());
    }
    code = rsd_join_find_in(below, dir, room, why);
    if (code != 241 || (base && base[0]) || strcmp(below, "/run/rsd") == 0)
        return code;
    again = rsd_join_find_in("/run/rsd", dir, room, other);
    /* That directory may be root's own. */
    if (again && strncmp(other, "several", 7) != 0)
        return code;
    if (again && why)
        snprintf(why, RSD_JOIN_WHY, "%s", other);
    return again;
}

/* The value of a key in a line, decoded; empty if it is missing. */
static void rsd_join_value(const char *line, const char *key, char *value, size_t room) {
    size_t len = strlen(key), at = 0;
    const char *p = line;
    while ((p = strchr(p, ' ')) && !(strncmp(p + 1, key, len) == 0 && p[1 + len] == '='))
        p++;
    for (p = p ? p + len + 2 : ""; *p && *p != ' ' && at + 1 < room; p++) {
        unsigned byte = (unsigned char)*p;
        if (*p == '%' && sscanf(p + 1, "%2x", &byte) == 1)
            p += 2;
        value[at++] = (char)byte;
    }
    value[at] = 0;
}

static long rsd_join_number(const char *line, const char *key) {
    char value[32];
    rsd_join_value(line, key, value, sizeof value);
    return strtol(value, NULL, 10);
}

/* Removes variables that another launcher has left, which do not apply to this world. */
static void rsd_join_clean(void) {
    static const char *const families[] = {"PMI_",      "PMIX_SERVER_",    "PMIX_NAMESPACE", "PMIX_RANK",   "HYDI_",
                                           "MPISPAWN_", "OMPI_COMM_WORLD_", "OMPI_UNIVERSE_SIZE", "MV2_COMM_WORLD_", "MPIRUN_RSH_LAUNCH", "MPI_LOCAL",   "PRTE_LAUNCHED", "RSD_CPUS",
                                           "RSD_GPUS",  "RSD_LISTEN_FD",   "RSD_NODE_ADDRESS"};
    extern char **environ;
    char **variable = environ;
    while (variable && *variable) {
        char name[256];
        size_t len = strcspn(*variable, "="), family;
        for (family = 0; family < sizeof families / sizeof *families; family++)
            if (strncmp(*variable, families[family], strlen(families[family])) == 0)
                break;
        if (family == sizeof families / sizeof *families || len >= sizeof name) {
            variable++;
            continue;
        }
        memcpy(name, *variable, len);
        name[len] = 0;
        unsetenv(name); /* the following variables move up */
    }
}

static void rsd_join_settle(const char *group, const char *dir, const char *line) {
    static const char *const set[][2] = {
        {"PMI_PORT", "pmi_port"}, {"PMI_ID", "pmi_id"}, {"PMI_RANK", "rank"}, {"PMI_SIZE", "size"}, {"PMI_HOSTNAME", "node"},
        {"MPI_LOCALRANKID", "local_rank"}, {"MPI_LOCALNRANKS", "local_size"}, {"MV2_COMM_WORLD_RANK", "rank"},
        {"MV2_COMM_WORLD_SIZE", "size"}, {"MV2_COMM_WORLD_LOCAL_RANK", "local_rank"},
        {"MV2_COMM_WORLD_LOCAL_SIZE", "local_size"}, {"RSD_EPOCH", "epoch"}, {"RSD_JOB", "job"}, {"RSD_RANK", "rank"},
        {"RSD_SIZE", "size"}, {"RSD_LOCAL_RANK", "local_rank"}, {"RSD_LOCAL_SIZE", "local_size"},
        {"RSD_NODE", "node_index"}, {"RSD_NODE_NAME", "node"}, {"RSD_PMI_NAMESPACE", "namespace"},
        {"RSD_NODE_ADDRESS", "address"}, {"PMIX_NAMESPACE", "namespace"}, {"PMIX_RANK", "rank"}, {"PMIX_HOSTNAME", "node"}};
    /* The same port serves PMIx, which Open MPI speaks. `unless_set`: some libraries must be told which to use. */
    static const char *const fixed[][2] = {{"PMIX_GDS_MODULE", "hash"}, {"PMIX_SECURITY_MODE", "native"},
        {"PMIX_BFROP_BUFFER_TYPE", "PMIX_BFROP_BUFFER_NON_DESC"}, {"PMIX_VERSION", "4.2.2"}};
    static const char *const unless_set[][2] = {{"MPIR_CVAR_PMI_VERSION", "1"}, {"OMPI_MCA_schizo", "ompi"}};
    char entry[4000], value[4096], node[32], port[256];
    size_t i;
    rsd_join_clean();
    for (i = 0; i < sizeof set / sizeof *set; i++) {
        rsd_join_value(line, set[i][1], value, sizeof value);
        if (value[0])
            setenv(set[i][0], value, 1);
    }
    for (i = 0; i < sizeof fixed / sizeof *fixed; i++)
        setenv(fixed[i][0], fixed[i][1], 1);
    for (i = 0; i < sizeof unless_set / sizeof *unless_set; i++)
        setenv(unless_set[i][0], unless_set[i][1], 0);
    rsd_join_value(line, "node_index", node, sizeof node);
    rsd_join_value(line, "pmi_port", port, sizeof port);
    snprintf(value, sizeof value, "rsd.%s;tcp4://%s", node[0] ? node : "0", port);
    setenv("PMIX_SERVER_URI41", value, 1);
    setenv("PMIX_SERVER_URI3", value, 1);
    setenv("RSD_GROUP", group, 1);
    setenv("RSD_DVM", dir, 1);
    rsd_join_entry(dir, entry, sizeof entry);
    if (snprintf(value, sizeof value, "%s/rsd.sock", entry) < (int)sizeof value)
        setenv("RSD_SOCKET", value, 1);
}

/* Whether a comma-separated list contains this name. */
static int rsd_join_listed(const char *list, const char *name) {
    size_t len = strlen(name);
    for (; list && *list; list = strchr(list, ',') ? strchr(list, ',') + 1 : "")
        if (strncmp(list, name, len) == 0 && (list[len] == ',' || list[len] == 0))
            return 1;
    return 0;
}

/* Sets the variables of other frameworks that the daemon sends: NAME=VALUE, one per line. Existing variables stay, except
 * those that an earlier place has set. */
static void rsd_join_export(const char *line) {
    static char text[16385], before[4096], names[4096];
    const char *former = getenv("RSD_EXPORTED");
    char *pair, *next, *value;
    size_t at = 0;
    snprintf(before, sizeof before, "%s", former ? former : "");
    unsetenv("RSD_EXPORTED");
    names[0] = 0;
    rsd_join_value(line, "env", text, sizeof text);
    for (pair = text; *pair; pair = next) {
        next = pair + strcspn(pair, "\n");
        if (*next)
            *next++ = 0;
        value = strchr(pair, '=');
        if (!value)
            continue;
        *value++ = 0;
        if (getenv(pair) && !rsd_join_listed(before, pair))
            continue;
        setenv(pair, value, 1);
        if (at + strlen(pair) + 2 < sizeof names)
            at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", at ? "," : "", pair);
    }
    if (names[0])
        setenv("RSD_EXPORTED", names, 1);
}

static double rsd_join_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int rsd_join_connect(const char *dir) {
    struct sockaddr_un address;
    char entry[4096];
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), saved, at = -1, len;
    if (fd < 0)
        return -1;
    memset(&address, 0, sizeof address);
    address.sun_family = AF_UNIX;
    rsd_join_entry(dir, entry, sizeof entry);
    len = snprintf(address.sun_path, sizeof address.sun_path, "%s/join.sock", entry);
    if (len >= (int)sizeof address.sun_path) { /* too long for the kernel: use the open directory */
        at = open(entry, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/join.sock", at);
    }
    if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        saved = errno;
        close(fd);
        fd = -1;
        errno = saved;
    }
    if (at >= 0)
        close(at);
    return fd;
}

/* Waits until the group is complete, and sets this process's environment so that MPI libraries find its place in the group.
 *
 * size: members; 0 if the group was created with a size. rank: the requested rank, or RSD_JOIN_ANY_RANK.
 * RSD_JOIN_EXPORT in the environment: other frameworks to set variables for: torch, nccl, nvshmem, separated by commas.
 * timeout_s: seconds; 0: the group's own timeout, by default a minute. place, why: where the result goes; both may be null.
 * Returns 0, or rsctl's exit code (124: not complete in time, 240: after MPI_Init, 241: no daemon, 245: another user's); then
 * `why` names what to do. */
__attribute__((unused)) static int rsd_join(const char *group, int size, int rank, int timeout_s, struct rsd_place *place, char *why) {
    static char line[16385];
    char dir[4096], token[65] = "", request[1024], name[256] = "", export_[128] = "";
    const char *wanted = getenv("RSD_JOIN_EXPORT");
    double began = rsd_join_now(), lost = 0;
    size_t i, at = 0;
    int code, begun = 0, over = 0;
    if (MPI_Initialized && MPI_Finalized) { /* both may be called at any time */
        MPI_Initialized(&begun);
        MPI_Finalized(&over);
    }
    if (begun && !over && !(wanted && wanted[0]))
        return rsd_join_no(why, 240, "MPI is initialised already, so this process cannot become a member: %s%s",
                           "call rsd_join before MPI_Init", "");
    code = rsd_join_find(dir, sizeof dir, why);
    if (code)
        return code;
    for (i = 0; wanted && wanted[i] && at + 4 < sizeof export_; i++)
        if (wanted[i] != ' ' && wanted[i] != '\t')
            at += (size_t)snprintf(export_ + at, sizeof export_ - at, wanted[i] > ' ' && wanted[i] != '%' ? "%c" : "%%%02x",
                                   (unsigned char)wanted[i]);
    at = 0;
    for (i = 0; group[i] && at + 4 < sizeof name; i++)
        at += (size_t)snprintf(name + at, sizeof name - at, "%%%02x", (unsigned char)group[i]);
    for (;;) {
        int fd = rsd_join_connect(dir), used, saved = errno;
        used = snprintf(request, sizeof request, "join v=1 group=%s", name);
        if (size > 0)
            used += snprintf(request + used, sizeof request - (size_t)used, " size=%d", size);
        if (rank >= 0)
            used += snprintf(request + used, sizeof request - (size_t)used, " rank=%d", rank);
        if (timeout_s > 0) {
            long left = timeout_s * 1000L - (long)((rsd_join_now() - began) * 1e3);
            used += snprintf(request + used, sizeof request - (size_t)used, " timeout_ms=%ld", left > 0 ? left : 0);
        }
        if (export_[0]) /* the daemon refuses an unknown name and lists the known ones */
            used += snprintf(request + used, sizeof request - (size_t)used, " export=%s", export_);
        if (token[0])
            used += snprintf(request + used, sizeof request - (size_t)used, " token=%s", token);
        used += snprintf(request + used, sizeof request - (size_t)used, "\n");
        if (fd >= 0 && send(fd, request, (size_t)used, MSG_NOSIGNAL) == used) {
            size_t have = 0;
            ssize_t got;
            while (have < sizeof line - 1 && ((got = read(fd, line + have, 1)) > 0 || (got < 0 && errno == EINTR))) {
                if (got < 0 || line[have++] != '\n')
                    continue;
                line[have - 1] = 0;
                have = 0;
                lost = 0;
                if (strncmp(line, "wait ", 5) == 0) {
                    rsd_join_value(line, "token", token, sizeof token);
                } else if (strncmp(line, "go ", 3) == 0) {
                    rsd_join_settle(group, dir, line);
                    rsd_join_export(line);
                    if (place) {
                        place->rank = (int)rsd_join_number(line, "rank");
                        place->size = (int)rsd_join_number(line, "size");
                        place->local_rank = (int)rsd_join_number(line, "local_rank");
                        place->local_size = (int)rsd_join_number(line, "local_size");
                        place->epoch = rsd_join_number(line, "epoch");
                        place->job = rsd_join_number(line, "job");
                    }
                    close(fd);
                    return 0;
                } else if (strncmp(line, "error ", 6) == 0) {
                    if (why)
                        rsd_join_value(line, "text", why, RSD_JOIN_WHY);
                    close(fd);
                    code = (int)rsd_join_number(line, "code");
                    return code > 0 ? code : 255;
                } else {
                    close(fd);
                    return rsd_join_no(why, 244, "the daemon at %s says what this header does not know: use one release%s",
                                       dir, "");
                }
            }
            saved = ECONNRESET;
        }
        if (fd >= 0)
            close(fd);
        /* The first connection must succeed; later ones wait for a daemon that restarts, which keeps the place. */
        if (lost == 0)
            lost = rsd_join_now();
        if (!token[0] || rsd_join_now() - lost > 10)
            return rsd_join_no(why, 242, "no way to the daemon at %s: %s; is it running? (rsd status)", dir, strerror(saved));
        {
            struct timespec pause = {0, 100 * 1000 * 1000};
            nanosleep(&pause, NULL);
        }
    }
}

#ifdef __cplusplus
}
#endif

#endif
