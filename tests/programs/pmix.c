/* A PMIx client without MPI: puts, gets, publishes, founds a group, and says whether all answers were right. */
#include <pmix.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static pmix_proc_t me;

static void expect(const char *what, int got, int wanted) {
    if (got == wanted) return;
    printf("rank %u: %s: %s (%d), expected %d\n", me.rank, what, PMIx_Error_string(got), got, wanted);
    fflush(stdout);
    _exit(3);
}

static void fence(const char *what, const pmix_info_t *info, size_t infos) {
    pmix_proc_t all;
    PMIX_LOAD_PROCID(&all, me.nspace, PMIX_RANK_WILDCARD);
    expect(what, PMIx_Fence(&all, 1, info, infos), PMIX_SUCCESS);
}

static uint32_t job_size(void) {
    pmix_proc_t all;
    pmix_value_t *value;
    PMIX_LOAD_PROCID(&all, me.nspace, PMIX_RANK_WILDCARD);
    expect("job size", PMIx_Get(&all, PMIX_JOB_SIZE, NULL, 0, &value), PMIX_SUCCESS);
    uint32_t size = value->data.uint32;
    PMIX_VALUE_RELEASE(value);
    return size;
}

/* Values of all ranks, with a fence that collects them or without. */
static void modex(uint32_t size, const char *prefix, bool collect) {
    char key[64];
    pmix_value_t value, *got;
    pmix_info_t info;
    snprintf(key, sizeof key, "%s-%u", prefix, me.rank);
    value.type = PMIX_UINT64;
    value.data.uint64 = 1000 + me.rank;
    expect("put", PMIx_Put(PMIX_GLOBAL, key, &value), PMIX_SUCCESS);
    expect("commit", PMIx_Commit(), PMIX_SUCCESS);
    PMIX_INFO_LOAD(&info, PMIX_COLLECT_DATA, &collect, PMIX_BOOL);
    fence("fence", &info, 1);
    for (uint32_t rank = 0; rank < size; rank++) {
        pmix_proc_t other;
        PMIX_LOAD_PROCID(&other, me.nspace, rank);
        snprintf(key, sizeof key, "%s-%u", prefix, rank);
        expect(key, PMIx_Get(&other, key, NULL, 0, &got), PMIX_SUCCESS);
        if (got->type != PMIX_UINT64 || got->data.uint64 != 1000 + rank) expect("value", 1, 0);
        PMIX_VALUE_RELEASE(got);
    }
}

static void missing(uint32_t size) {
    bool yes = true;
    pmix_proc_t other;
    pmix_info_t info;
    pmix_value_t *got;
    PMIX_LOAD_PROCID(&other, me.nspace, (me.rank + 1) % size);
    PMIX_INFO_LOAD(&info, PMIX_IMMEDIATE, &yes, PMIX_BOOL);
    expect("a missing key", PMIx_Get(&other, "none", &info, 1, &got), PMIX_ERR_NOT_FOUND);
}

static void names(void) {
    pmix_info_t info;
    pmix_pdata_t found;
    char *keys[] = {"service", NULL};
    if (me.rank == 0) {
        PMIX_INFO_LOAD(&info, "service", "tcp://here", PMIX_STRING);
        expect("publish", PMIx_Publish(&info, 1), PMIX_SUCCESS);
        expect("publish again", PMIx_Publish(&info, 1), PMIX_ERR_DUPLICATE_KEY);
    }
    fence("published", NULL, 0);
    PMIX_PDATA_CONSTRUCT(&found);
    strcpy(found.key, "service");
    expect("lookup", PMIx_Lookup(&found, 1, NULL, 0), PMIX_SUCCESS);
    if (strcmp(found.value.data.string, "tcp://here") || found.proc.rank) expect("found", 1, 0);
    fence("looked up", NULL, 0);
    if (me.rank == 0) {
        expect("unpublish", PMIx_Unpublish(keys, NULL, 0), PMIX_SUCCESS);
        expect("lookup of nothing", PMIx_Lookup(&found, 1, NULL, 0), PMIX_ERR_NOT_FOUND);
    }
}

/* A fence of the even ranks, and a group of all. */
static void some(uint32_t size) {
    pmix_proc_t even[64], all;
    pmix_info_t info, *told;
    size_t count = 0, tells, number = 0;
    bool yes = true;
    for (uint32_t rank = 0; rank < size; rank += 2, count++) PMIX_LOAD_PROCID(&even[count], me.nspace, rank);
    if (me.rank % 2 == 0) expect("fence of some", PMIx_Fence(even, count, NULL, 0), PMIX_SUCCESS);
    PMIX_LOAD_PROCID(&all, me.nspace, PMIX_RANK_WILDCARD);
    PMIX_INFO_LOAD(&info, PMIX_GROUP_ASSIGN_CONTEXT_ID, &yes, PMIX_BOOL);
    expect("group", PMIx_Group_construct("all", &all, 1, &info, 1, &told, &tells), PMIX_SUCCESS);
    for (size_t i = 0; i < tells; i++)
        if (PMIX_CHECK_KEY(&told[i], PMIX_GROUP_CONTEXT_ID)) number = told[i].value.data.size;
    if (number <= size) expect("number of the group", (int)number, -1);
    expect("end of the group", PMIx_Group_destruct("all", NULL, 0), PMIX_SUCCESS);
}

int main(void) {
    expect("init", PMIx_Init(&me, NULL, 0), PMIX_SUCCESS);
    uint32_t size = job_size();
    modex(size, "collected", true);
    modex(size, "direct", false);
    missing(size);
    names();
    some(size);
    fence("the end", NULL, 0);
    printf("rank %u of %u right\n", me.rank, size);
    fflush(stdout);
    expect("finalize", PMIx_Finalize(NULL, 0), PMIX_SUCCESS);
    return 0;
}
