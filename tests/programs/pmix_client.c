/* A client of PMIx without MPI, linked to libpmix: `pmix_client WHAT`. Every rank checks what it gets; rank 0 prints `WHAT right on N`.
 *   values            put, commit, a fence with data: every rank has the values of all others
 *   modex             the same with a fence without data: the values are fetched one by one
 *   late              no fence: values come when they are committed; one that never comes times out
 *   places            what the process manager says of the job and its ranks; each rank prints `rank R of N, local L of M`
 *   names             publish, look up, wait for a name that comes later, publish again, unpublish
 *   query             the namespaces and process sets
 *   control           rank 0 signals rank 1, then all
 *   ask OTHER         asks for the namespaces and the size of another job, and ends it
 *   groups            all ranks, and the even ones, as groups with context numbers
 *   events            rank 0 notifies the others
 *   blocked GATE      the others wait for rank 1, in a fence, for a value and for a name, until this file exists
 *   meet OWN OTHER    two jobs find each other by these names, connect, and read each other's values
 *   connect OTHER     connects to two processes of another job by its namespace
 *   spawn             each rank spawns two processes, which read a value of their parent
 *   abort             rank 1 aborts the job with code 7 while the others are in a fence
 *   lost              rank 1 dies; the others, which outlive it only in a group, are told, and print `told of 1` */
#include <pmix.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LARGE = 50000, PATIENCE_S = 30 };

static pmix_proc_t me, everybody;
static uint32_t size;

static void must(int holds, const char *what, pmix_status_t status) {
    if (holds)
        return;
    fprintf(stderr, "rank %u: failed: %s (%s)\n", me.rank, what, PMIx_Error_string(status));
    _exit(1);
}

/* The call must return this status. */
#define GIVES(expected, call)                                                                                          \
    do {                                                                                                               \
        pmix_status_t status_ = (call);                                                                                \
        must(status_ == (expected), #call, status_);                                                                   \
    } while (0)
#define MUST(call) GIVES(PMIX_SUCCESS, call)
#define HOLDS(condition) must((condition), #condition, PMIX_SUCCESS)

static pmix_info_t flag(const char *key) {
    pmix_info_t info;
    bool yes = true;
    PMIX_INFO_LOAD(&info, key, &yes, PMIX_BOOL);
    return info;
}

static pmix_info_t count(const char *key, int value) {
    pmix_info_t info;
    PMIX_INFO_LOAD(&info, key, &value, PMIX_INT);
    return info;
}

static pmix_proc_t rank_of(const char *nspace, uint32_t rank) {
    pmix_proc_t proc;
    PMIX_LOAD_PROCID(&proc, nspace, rank);
    return proc;
}

static uint32_t number(const pmix_proc_t *proc, const char *key) {
    pmix_value_t *value = NULL;
    pmix_status_t status = PMIx_Get(proc, key, NULL, 0, &value);
    must(status == PMIX_SUCCESS, key, status);
    uint32_t found = 0;
    if (value->type == PMIX_UINT16)
        found = value->data.uint16;
    else
        must(value->type == PMIX_UINT32 || value->type == PMIX_PROC_RANK, key, PMIX_ERR_TYPE_MISMATCH), found = value->data.uint32;
    PMIX_VALUE_RELEASE(value);
    return found;
}

/* A copy of a text, to be freed. */
static char *text(const pmix_proc_t *proc, const char *key) {
    pmix_value_t *value = NULL;
    pmix_status_t status = PMIx_Get(proc, key, NULL, 0, &value);
    must(status == PMIX_SUCCESS, key, status);
    must(value->type == PMIX_STRING && value->data.string, key, PMIX_ERR_TYPE_MISMATCH);
    char *copy = strdup(value->data.string);
    PMIX_VALUE_RELEASE(value);
    return copy;
}

static void fence(int with_data) {
    pmix_info_t collect = flag(PMIX_COLLECT_DATA);
    MUST(PMIx_Fence(NULL, 0, with_data ? &collect : NULL, with_data ? 1 : 0));
}

/* --- values --- */

static void put_text(pmix_scope_t scope, const char *key, uint32_t rank) {
    char said[64];
    snprintf(said, sizeof said, "%s of %u", key, rank);
    pmix_value_t value = {.type = PMIX_STRING, .data.string = said};
    MUST(PMIx_Put(scope, key, &value));
}

static void put_all(void) {
    char *bytes = malloc(LARGE);
    memset(bytes, 'a' + me.rank % 26, LARGE);
    pmix_value_t large = {.type = PMIX_BYTE_OBJECT, .data.bo = {.bytes = bytes, .size = LARGE}};
    pmix_value_t rank = {.type = PMIX_UINT32, .data.uint32 = me.rank};
    put_text(PMIX_GLOBAL, "for all", me.rank);
    put_text(PMIX_LOCAL, "for the node", me.rank);
    put_text(PMIX_REMOTE, "for other nodes", me.rank);
    MUST(PMIx_Put(PMIX_GLOBAL, "large", &large));
    MUST(PMIx_Put(PMIX_GLOBAL, "number", &rank));
    MUST(PMIx_Commit());
    free(bytes);
}

static void has(const pmix_proc_t *proc, const char *key) {
    char expected[64], *found = text(proc, key);
    snprintf(expected, sizeof expected, "%s of %u", key, proc->rank);
    must(strcmp(found, expected) == 0, key, PMIX_SUCCESS);
    free(found);
}

static void check_rank(const pmix_proc_t *proc, int near) {
    has(proc, "for all");
    has(proc, near ? "for the node" : "for other nodes");
    HOLDS(number(proc, "number") == proc->rank);
    pmix_value_t *value = NULL;
    MUST(PMIx_Get(proc, "large", NULL, 0, &value));
    HOLDS(value->type == PMIX_BYTE_OBJECT && value->data.bo.size == LARGE);
    for (size_t at = 0; at < LARGE; at++)
        HOLDS(value->data.bo.bytes[at] == (char)('a' + proc->rank % 26));
    PMIX_VALUE_RELEASE(value);
}

/* Whether a rank is on this node: peers are a list as `0,1,5`. */
static int is_near(uint32_t rank) {
    int found = 0;
    char *peers = text(&everybody, PMIX_LOCAL_PEERS), *rest = peers, *one;
    while ((one = strsep(&rest, ",")))
        found |= (uint32_t)atol(one) == rank;
    free(peers);
    return found;
}

static void values(int with_data) {
    pmix_info_t now = flag(PMIX_IMMEDIATE);
    pmix_value_t *value = NULL;
    put_all();
    fence(with_data);
    for (uint32_t rank = 0; rank < size; rank++) {
        pmix_proc_t proc = rank_of(me.nspace, rank);
        if (rank != me.rank)
            check_rank(&proc, is_near(rank));
        HOLDS(PMIx_Get(&proc, "made up", &now, 1, &value) != PMIX_SUCCESS);
    }
    /* A second round adds to the first. */
    put_text(PMIX_GLOBAL, "second", me.rank);
    MUST(PMIx_Commit());
    fence(with_data);
    pmix_proc_t left = rank_of(me.nspace, (me.rank + size - 1) % size);
    has(&left, "second");
    has(&left, "for all");
    fence(0);
}

static void late(void) {
    pmix_info_t soon = count(PMIX_TIMEOUT, 1);
    pmix_value_t *value = NULL;
    /* Rank 0 commits only when rank 1 has its own value, and so on; the last one waits from the beginning. */
    if (me.rank + 1 < size) {
        pmix_proc_t next = rank_of(me.nspace, me.rank + 1);
        has(&next, "chain");
    }
    put_text(PMIX_GLOBAL, "chain", me.rank);
    MUST(PMIx_Commit());
    for (uint32_t rank = 0; rank < size; rank++) {
        pmix_proc_t proc = rank_of(me.nspace, rank);
        has(&proc, "chain");
    }
    pmix_proc_t left = rank_of(me.nspace, (me.rank + size - 1) % size);
    if (size > 1)
        HOLDS(PMIx_Get(&left, "never", &soon, 1, &value) != PMIX_SUCCESS);
    fence(0);
}

/* --- the job --- */

static int variable(const char *name, uint32_t otherwise) {
    const char *value = getenv(name);
    return value ? atoi(value) : (int)otherwise;
}

static void places(void) {
    uint32_t local = number(&me, PMIX_LOCAL_RANK), locals = number(&everybody, PMIX_LOCAL_SIZE);
    HOLDS(number(&everybody, PMIX_UNIV_SIZE) >= size);
    HOLDS(number(&everybody, PMIX_MAX_PROCS) >= size);
    HOLDS(number(&me, PMIX_APPNUM) == 0);
    HOLDS(number(&me, PMIX_NODE_RANK) < locals || getenv("RSD_JOB") == NULL);
    HOLDS((int)me.rank == variable("RSD_RANK", me.rank) && (int)size == variable("RSD_SIZE", size));
    HOLDS((int)local == variable("RSD_LOCAL_RANK", local) && (int)locals == variable("RSD_LOCAL_SIZE", locals));
    uint32_t near = 0, first = number(&everybody, PMIX_LOCALLDR), lowest = size;
    char *own = text(&me, PMIX_HOSTNAME);
    for (uint32_t rank = 0; rank < size; rank++) {
        pmix_proc_t proc = rank_of(me.nspace, rank);
        near += is_near(rank);
        if (is_near(rank) && rank < lowest)
            lowest = rank;
        char *host = text(&proc, PMIX_HOSTNAME);
        HOLDS(!is_near(rank) || strcmp(host, own) == 0);
        free(host);
    }
    HOLDS(near == locals && is_near(me.rank) && local < locals && first == lowest);
    pmix_proc_t *peers = NULL;
    size_t members = 0;
    MUST(PMIx_Resolve_peers(own, me.nspace, &peers, &members));
    HOLDS(members == locals);
    PMIX_PROC_FREE(peers, members);
    free(own);
    printf("rank %u of %u, local %u of %u\n", me.rank, size, local, locals);
    fflush(stdout);
    fence(0);
}

static void query(void) {
    char *keys[] = {PMIX_QUERY_NAMESPACES, NULL};
    pmix_query_t query = {.keys = keys};
    pmix_info_t *results = NULL;
    size_t found = 0;
    MUST(PMIx_Query_info(&query, 1, &results, &found));
    int named = 0;
    for (size_t at = 0; at < found; at++)
        named |= results[at].value.type == PMIX_STRING && strstr(results[at].value.data.string, me.nspace) != NULL;
    HOLDS(named);
    PMIX_INFO_FREE(results, found);
    fence(0);
}

/* --- control --- */

static volatile sig_atomic_t caught;

static void on_signal(int number) {
    (void)number;
    caught++;
}

static void caught_by(sig_atomic_t times) {
    for (int ms = 0; caught < times; ms++) {
        HOLDS(ms < 1000 * PATIENCE_S);
        usleep(1000);
    }
}

static void control(void) {
    signal(SIGUSR1, on_signal);
    fence(0);
    pmix_proc_t one = rank_of(me.nspace, 1);
    pmix_info_t usr1 = count(PMIX_JOB_CTRL_SIGNAL, SIGUSR1);
    pmix_info_t *results = NULL;
    size_t found = 0;
    if (me.rank == 0)
        MUST(PMIx_Job_control(&one, 1, &usr1, 1, &results, &found));
    if (me.rank == 1)
        caught_by(1);
    fence(0);
    HOLDS(caught == (me.rank == 1));
    fence(0);
    if (me.rank == 0)
        MUST(PMIx_Job_control(&everybody, 1, &usr1, 1, &results, &found));
    caught_by(me.rank == 1 ? 2 : 1);
    fence(0);
}

static void ask(const char *other) {
    char *names[] = {PMIX_QUERY_NAMESPACES, NULL}, *sizes[] = {PMIX_JOB_SIZE, NULL};
    pmix_info_t about, *results = NULL, end = flag(PMIX_JOB_CTRL_TERMINATE);
    PMIX_INFO_LOAD(&about, PMIX_NSPACE, other, PMIX_STRING);
    pmix_query_t queries[] = {{.keys = names}, {.keys = sizes, .qualifiers = &about, .nqual = 1}};
    size_t found = 0;
    MUST(PMIx_Query_info(queries, 2, &results, &found));
    HOLDS(found == 2);
    HOLDS(strstr(results[0].value.data.string, other) != NULL);
    HOLDS(results[1].value.type == PMIX_UINT32 && results[1].value.data.uint32 == 3);
    PMIX_INFO_FREE(results, found);
    pmix_proc_t all = rank_of(other, PMIX_RANK_WILDCARD);
    fence(0);
    if (me.rank == 0)
        MUST(PMIx_Job_control(&all, 1, &end, 1, &results, &found));
    fence(0);
}

/* --- names --- */

static void publish(pmix_status_t expected, const char *name, const char *value) {
    pmix_info_t info;
    PMIX_INFO_LOAD(&info, name, value, PMIX_STRING);
    GIVES(expected, PMIx_Publish(&info, 1));
    PMIX_INFO_DESTRUCT(&info);
}

static pmix_status_t look_up(const char *name, int wait, char *found, size_t room) {
    pmix_info_t waiting[] = {count(PMIX_WAIT, 0), count(PMIX_TIMEOUT, PATIENCE_S)};
    pmix_pdata_t data;
    PMIX_PDATA_CONSTRUCT(&data);
    snprintf(data.key, sizeof data.key, "%s", name);
    pmix_status_t status = PMIx_Lookup(&data, 1, wait ? waiting : NULL, wait ? 2 : 0);
    if (status == PMIX_SUCCESS && data.value.type == PMIX_STRING)
        snprintf(found, room, "%s", data.value.data.string);
    PMIX_PDATA_DESTRUCT(&data);
    return status;
}

static void names(void) {
    char name[PMIX_MAX_KEYLEN], found[64] = "", *list[] = {name, NULL};
    /* Other jobs may use the same program. */
    snprintf(name, sizeof name, "ocean of %.200s", me.nspace);
    if (me.rank == 0) {
        GIVES(PMIX_ERR_NOT_FOUND, look_up(name, 0, found, sizeof found));
        fence(0);
        publish(PMIX_SUCCESS, name, "deep");
        publish(PMIX_ERR_DUPLICATE_KEY, name, "shallow");
    } else {
        fence(0);
        MUST(look_up(name, 1, found, sizeof found));
        HOLDS(strcmp(found, "deep") == 0);
    }
    fence(0);
    MUST(look_up(name, 0, found, sizeof found));
    HOLDS(strcmp(found, "deep") == 0);
    fence(0);
    if (me.rank == 0)
        MUST(PMIx_Unpublish(list, NULL, 0));
    fence(0);
    GIVES(PMIX_ERR_NOT_FOUND, look_up(name, 0, found, sizeof found));
    fence(0);
}

/* --- groups, and other jobs --- */

static size_t construct(const char *name, const pmix_proc_t *members, size_t n) {
    pmix_info_t numbered = flag(PMIX_GROUP_ASSIGN_CONTEXT_ID), *results = NULL;
    size_t told = 0, context = 0, there = 0;
    MUST(PMIx_Group_construct(name, members, n, &numbered, 1, &results, &told));
    for (size_t at = 0; at < told; at++)
        if (PMIX_CHECK_KEY(&results[at], PMIX_GROUP_CONTEXT_ID)) {
            HOLDS(results[at].value.type == PMIX_SIZE);
            context = results[at].value.data.size;
            there = 1;
        }
    must(there, "a group has a context number", PMIX_ERR_NOT_FOUND);
    PMIX_INFO_FREE(results, told);
    return context;
}

static void groups(void) {
    pmix_proc_t *members = calloc(size, sizeof *members);
    uint32_t even = 0;
    for (uint32_t rank = 0; rank < size; rank += 2)
        members[even++] = rank_of(me.nspace, rank);
    for (int round = 0; round < 3; round++) {
        size_t whole = construct("whole", &everybody, 1);
        if (me.rank % 2 == 0) {
            size_t half = construct("even", members, even);
            must(half != whole, "each group has a number of its own", PMIX_SUCCESS);
            MUST(PMIx_Group_destruct("even", NULL, 0));
        }
        MUST(PMIx_Group_destruct("whole", NULL, 0));
    }
    free(members);
    fence(0);
}

static void blocked(const char *gate) {
    pmix_proc_t first_two[] = {rank_of(me.nspace, 0), rank_of(me.nspace, 1)};
    char found[64] = "";
    pmix_value_t *value = NULL;
    struct timespec moment = {0, 20 * 1000 * 1000};
    while (me.rank == 1 && access(gate, F_OK) != 0)
        nanosleep(&moment, NULL);
    if (me.rank == 1) {
        put_text(PMIX_GLOBAL, "late", me.rank);
        MUST(PMIx_Commit());
        publish(PMIX_SUCCESS, "the door", "open");
    }
    if (me.rank < 2)
        MUST(PMIx_Fence(first_two, 2, NULL, 0));
    if (me.rank == 2) {
        MUST(PMIx_Get(&first_two[1], "late", NULL, 0, &value));
        PMIX_VALUE_RELEASE(value);
    }
    if (me.rank == 3)
        MUST(look_up("the door", 1, found, sizeof found));
    fence(0);
}

static void meet(const char *own, const char *other) {
    char found[PMIX_MAX_NSLEN + 1] = "";
    put_text(PMIX_GLOBAL, "for all", me.rank);
    MUST(PMIx_Commit());
    if (me.rank == 0)
        publish(PMIX_SUCCESS, own, me.nspace);
    MUST(look_up(other, 1, found, sizeof found));
    pmix_proc_t both[] = {everybody, rank_of(found, PMIX_RANK_WILDCARD)};
    MUST(PMIx_Connect(both, 2, NULL, 0));
    uint32_t theirs = number(&both[1], PMIX_JOB_SIZE);
    for (uint32_t rank = 0; rank < theirs; rank++) {
        pmix_proc_t proc = rank_of(found, rank);
        has(&proc, "for all");
    }
    MUST(PMIx_Disconnect(both, 2, NULL, 0));
    fence(0);
    if (me.rank == 0) {
        char *list[] = {(char *)own, NULL};
        MUST(PMIx_Unpublish(list, NULL, 0));
    }
}

static void spawn(char *self) {
    put_text(PMIX_GLOBAL, "for all", me.rank);
    MUST(PMIx_Commit());
    char *args[] = {self, "child", NULL};
    pmix_app_t app;
    pmix_nspace_t spawned;
    PMIX_APP_CONSTRUCT(&app);
    app.cmd = self, app.argv = args, app.maxprocs = 2;
    MUST(PMIx_Spawn(NULL, 0, &app, 1, spawned));
    pmix_proc_t children[] = {me, rank_of(spawned, PMIX_RANK_WILDCARD)};
    MUST(PMIx_Connect(children, 2, NULL, 0));
    HOLDS(number(&children[1], PMIX_JOB_SIZE) == 2);
    for (uint32_t rank = 0; rank < 2; rank++) {
        pmix_proc_t proc = rank_of(spawned, rank);
        has(&proc, "for all");
    }
    MUST(PMIx_Disconnect(children, 2, NULL, 0));
    fence(0);
}

static void child(void) {
    pmix_value_t *value = NULL;
    MUST(PMIx_Get(&me, PMIX_PARENT_ID, NULL, 0, &value));
    HOLDS(value->type == PMIX_PROC);
    pmix_proc_t both[] = {*value->data.proc, everybody};
    HOLDS(strcmp(both[0].nspace, me.nspace) != 0);
    put_text(PMIX_GLOBAL, "for all", me.rank);
    MUST(PMIx_Commit());
    MUST(PMIx_Connect(both, 2, NULL, 0));
    has(&both[0], "for all");
    MUST(PMIx_Disconnect(both, 2, NULL, 0));
    fence(0);
}

/* --- events --- */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int registered, told;
    pmix_proc_t source;
} heard = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, {"", 0}};

static void on_registered(pmix_status_t status, size_t id, void *data) {
    (void)id, (void)data;
    must(status == PMIX_SUCCESS, "an event handler is registered", status);
    pthread_mutex_lock(&heard.lock);
    heard.registered = 1;
    pthread_cond_broadcast(&heard.changed);
    pthread_mutex_unlock(&heard.lock);
}

static void on_event(size_t id, pmix_status_t status, const pmix_proc_t *source, pmix_info_t info[], size_t infos,
                     pmix_info_t *results, size_t nresults, pmix_event_notification_cbfunc_fn_t done, void *data) {
    (void)id, (void)info, (void)infos, (void)results, (void)nresults, (void)status;
    pthread_mutex_lock(&heard.lock);
    /* The first event counts: in `lost`, those that were told are lost next. */
    int is_first = !heard.told;
    heard.told = 1;
    if (is_first)
        heard.source = *source;
    /* An event of the process manager may name the process in its values instead. */
    for (size_t at = 0; is_first && at < infos; at++)
        if (PMIX_CHECK_KEY(&info[at], PMIX_EVENT_AFFECTED_PROC) && info[at].value.type == PMIX_PROC)
            heard.source = *info[at].value.data.proc;
    pthread_cond_broadcast(&heard.changed);
    pthread_mutex_unlock(&heard.lock);
    if (done)
        done(PMIX_EVENT_ACTION_COMPLETE, NULL, 0, NULL, NULL, data);
}

static void wait_until(int *what, const char *name) {
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += PATIENCE_S;
    pthread_mutex_lock(&heard.lock);
    while (!*what)
        must(pthread_cond_timedwait(&heard.changed, &heard.lock, &end) == 0, name, PMIX_ERR_TIMEOUT);
    pthread_mutex_unlock(&heard.lock);
}

static void listen_for(pmix_status_t *codes, size_t n) {
    PMIx_Register_event_handler(codes, n, NULL, 0, on_event, on_registered, NULL);
    wait_until(&heard.registered, "the registration");
    fence(0);
}

static void events(void) {
    pmix_status_t code = PMIX_EXTERNAL_ERR_BASE - 7;
    listen_for(&code, 1);
    if (me.rank == 0)
        MUST(PMIx_Notify_event(code, &me, PMIX_RANGE_NAMESPACE, NULL, 0, NULL, NULL));
    else {
        wait_until(&heard.told, "the event");
        HOLDS(heard.source.rank == 0);
    }
    fence(0);
}

static void lost(void) {
    listen_for(NULL, 0);
    if (me.rank == 1)
        _exit(3);
    wait_until(&heard.told, "the event");
    printf("told of %u\n", heard.source.rank);
    exit(0);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    MUST(PMIx_Init(&me, NULL, 0));
    everybody = rank_of(me.nspace, PMIX_RANK_WILDCARD);
    size = number(&everybody, PMIX_JOB_SIZE);
    if (!strcmp(what, "values") || !strcmp(what, "modex"))
        values(!strcmp(what, "values"));
    else if (!strcmp(what, "late"))
        late();
    else if (!strcmp(what, "places"))
        places();
    else if (!strcmp(what, "names"))
        names();
    else if (!strcmp(what, "query"))
        query();
    else if (!strcmp(what, "control"))
        control();
    else if (!strcmp(what, "ask") && argc > 2)
        ask(argv[2]);
    else if (!strcmp(what, "groups"))
        groups();
    else if (!strcmp(what, "events"))
        events();
    else if (!strcmp(what, "connect") && argc > 2) {
        pmix_proc_t all[] = {rank_of(me.nspace, 0), rank_of(me.nspace, 1), rank_of(argv[2], 0), rank_of(argv[2], 1)};
        MUST(PMIx_Connect(all, 4, NULL, 0));
    }
    else if (!strcmp(what, "blocked") && argc > 2)
        blocked(argv[2]);
    else if (!strcmp(what, "meet") && argc > 3)
        meet(argv[2], argv[3]);
    else if (!strcmp(what, "spawn"))
        spawn(argv[0]);
    else if (!strcmp(what, "child"))
        child();
    else if (!strcmp(what, "lost"))
        lost();
    else if (!strcmp(what, "abort")) {
        if (me.rank == 1) {
            PMIx_Abort(7, "out of luck", NULL, 0);
            /* It returns, and this rank must not enter the fence. */
            for (;;)
                pause();
        }
        fence(0);
    } else
        must(0, "an unknown word", PMIX_ERR_BAD_PARAM);
    MUST(PMIx_Finalize(NULL, 0));
    if (me.rank == 0 && strcmp(what, "child"))
        printf("%s right on %u\n", what, size);
    return 0;
}
