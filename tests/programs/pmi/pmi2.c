/* PMI-2 without MPI, for any library that has Slurm's functions.
 * `pmi2 all [GATE]`: every request but spawn and abort; with GATE, all ranks wait for this file in the middle, and rank 0 writes `waiting`.
 * `pmi2 exchange`: puts and gets of values that every client transfers.
 * `pmi2 held GATE`: as exchange, but all ranks wait for this file between fence and gets, and rank 0 writes `waiting`; and some values are
 * overwritten.
 * `pmi2 shmem`: the calls by which GPU runtimes exchange blocks: values of half the longest length, no job name, one buffer for all.
 * `pmi2 spawn`: rank 0 spawns two jobs of this program, which check what they are. `pmi2 refused`: a spawn that must fail.
 * `pmi2 abort CODE`: rank 1 aborts. `pmi2 die`: rank 1 is killed. The others wait in a fence.
 * `pmi2 alone RANK`: this rank leaves; the others of its node wait for a value that no rank will store. */
#include <pmi2.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int rank, size, appnum, spawned;
static char job[256], value[PMI2_MAX_VALLEN];

static void must(int holds, const char *what) {
  if (!holds) {
    fprintf(stderr, "rank %d: failed: %s\n", rank, what);
    exit(9);
  }
}

static void put(const char *key, const char *text) {
  must(PMI2_KVS_Put(key, text) == PMI2_SUCCESS, key);
}

static void fence(void) {
  must(PMI2_KVS_Fence() == PMI2_SUCCESS, "fence");
}

static void expect(const char *from, const char *key, const char *text) {
  int length = 0;
  must(PMI2_KVS_Get(from, PMI2_ID_NULL, key, value, sizeof value, &length) == PMI2_SUCCESS, key);
  must(length == (int)strlen(text) && strcmp(value, text) == 0, key);
}

/* `form` has two %d: the round and the rank. */
static void exchange(const char *form, int round) {
  char key[64], text[64];
  snprintf(key, sizeof key, "key-%d-%d", round, rank);
  snprintf(text, sizeof text, form, round, rank);
  put(key, text);
  fence();
  for (int other = 0; other < size; other++) {
    snprintf(key, sizeof key, "key-%d-%d", round, other);
    snprintf(text, sizeof text, form, round, other);
    expect(job, key, text);
  }
}

static void ring(const char *word) {
  char mine[64], text[64], left[PMI2_MAX_VALLEN], right[PMI2_MAX_VALLEN];
  int of = -1, ranks = -1;
  snprintf(mine, sizeof mine, "%s-%d", word, rank);
  must(PMIX_Ring(mine, &of, &ranks, left, right, sizeof left) == PMI2_SUCCESS, "ring");
  must(of == rank && ranks == size, "place in the ring");
  snprintf(text, sizeof text, "%s-%d", word, (rank + size - 1) % size);
  must(strcmp(left, text) == 0, "left neighbour");
  snprintf(text, sizeof text, "%s-%d", word, (rank + 1) % size);
  must(strcmp(right, text) == 0, "right neighbour");
}

static void on_node(void) {
  const char *local = getenv("MPI_LOCALRANKID"), *node = getenv("RSD_NODE");
  int found = 0, numbers[8], count = 0;
  char text[64];
  must(local && node, "the launcher's variables");
  snprintf(text, sizeof text, "of node %s", node);
  must(PMI2_Info_GetNodeAttr("nothing", value, sizeof value, &found, 0) == PMI2_SUCCESS && !found, "a missing value");
  if (atoi(local) == 0) {
    must(PMI2_Info_PutNodeAttr("numbers", "3,-4,5") == PMI2_SUCCESS, "put numbers on the node");
    must(PMI2_Info_PutNodeAttr("segment", text) == PMI2_SUCCESS, "put on the node");
  }
  must(PMI2_Info_GetNodeAttr("segment", value, sizeof value, &found, 1) == PMI2_SUCCESS && found, "get on the node");
  must(strcmp(value, text) == 0, "the value of this node");
  must(PMI2_Info_GetNodeAttrIntArray("numbers", numbers, 8, &count, &found) == PMI2_SUCCESS && found, "get numbers");
  must(count == 3 && numbers[0] == 3 && numbers[1] == -4 && numbers[2] == 5, "the numbers");
}

static void names(void) {
  char name[300], port[PMI2_MAX_VALLEN];
  snprintf(name, sizeof name, "service of %s", job);
  if (rank == 0) {
    must(PMI2_Nameserv_publish(name, NULL, "port$7;x") == PMI2_SUCCESS, "publish");
    must(PMI2_Nameserv_publish(name, NULL, "other") != PMI2_SUCCESS, "a name is published once");
  }
  fence();
  must(PMI2_Nameserv_lookup(name, NULL, port, sizeof port) == PMI2_SUCCESS, "lookup");
  must(strcmp(port, "port$7;x") == 0, "the port");
  fence();
  if (rank == 0)
    must(PMI2_Nameserv_unpublish(name, NULL) == PMI2_SUCCESS, "unpublish");
  fence();
  must(PMI2_Nameserv_lookup(name, NULL, port, sizeof port) != PMI2_SUCCESS, "lookup of an unknown name");
}

static void attributes(void) {
  int found = 0;
  must(PMI2_Info_GetJobAttr("PMI_process_mapping", value, sizeof value, &found) == PMI2_SUCCESS && found, "mapping");
  must(strncmp(value, "(vector,(", 9) == 0, "the form of the mapping");
  must(PMI2_Info_GetJobAttr("universeSize", value, sizeof value, &found) == PMI2_SUCCESS && found, "universe");
  must(atoi(value) >= size, "the size of the universe");
  must(PMI2_Info_GetJobAttr("nothing", value, sizeof value, &found) == PMI2_SUCCESS && !found, "no such attribute");
}

static void await(const char *gate) {
  struct timespec pause = {0, 10000000};
  while (access(gate, F_OK) != 0)
    nanosleep(&pause, NULL);
}

static void all(const char *gate) {
  int length = 0, number = -1;
  char longest[PMI2_MAX_VALLEN];
  must(!spawned && appnum == 0 && PMI2_Initialized(), "the place in the job");
  /* Slurm's library does not know it in port mode. */
  must(getenv("PMI_ID") || (PMI2_Job_GetRank(&number) == PMI2_SUCCESS && number == rank), "rank");
  must(PMI2_Info_GetSize(&number) == PMI2_SUCCESS && number == size, "size");
  attributes();
  exchange("a;b;;%d = %d;", 0);
  ring("first");
  on_node();
  if (gate) {
    char key[64];
    snprintf(key, sizeof key, "before-%d", rank);
    put(key, "kept");
    if (rank == 0) {
      printf("waiting\n");
      fflush(stdout);
    }
    await(gate);
    fence();
    snprintf(key, sizeof key, "before-%d", (rank + 1) % size);
    expect(job, key, "kept");
  }
  names();
  memset(longest, 'x', sizeof longest - 1);
  longest[sizeof longest - 1] = 0;
  if (rank == 0)
    put("longest", longest);
  ring("second;");
  expect(job, "longest", longest);
  must(PMI2_KVS_Get(job, PMI2_ID_NULL, "-NONEXIST-KEY", value, sizeof value, &length) != PMI2_SUCCESS, "a missing key");
  exchange("%d%d\n", 1);
}

static void held(const char *gate) {
  int length = 0;
  char key[64], text[64];
  for (int round = 0; round < 3; round++) {
    snprintf(key, sizeof key, "key-%d", rank);
    snprintf(text, sizeof text, "%d of %d", round, rank);
    if (round == 0 || rank % 2 == 0)
      put(key, text);
    fence();
    if (round == 0 && rank == 0) {
      printf("waiting\n");
      fflush(stdout);
    }
    await(gate);
    for (int at = 0; at < size; at++) {
      int other = (rank + at) % size;
      snprintf(key, sizeof key, "key-%d", other);
      snprintf(text, sizeof text, "%d of %d", other % 2 == 0 ? round : 0, other);
      expect(job, key, text);
    }
    snprintf(key, sizeof key, "none-%d", round);
    must(PMI2_KVS_Get(job, PMI2_ID_NULL, key, value, sizeof value, &length) != PMI2_SUCCESS, "a key that nobody has put");
    fence();
  }
}

static void shmem(void) {
  char key[PMI2_MAX_KEYLEN], block[PMI2_MAX_VALLEN / 2 + 1];
  for (int round = 1; round < 6; round++)
    for (int part = 0; part < 3; part++) {
      snprintf(key, sizeof key, "BLOCK-%04x-%08x-%04x", round, rank, part);
      memset(block, 'A' + (rank + round + part) % 26, sizeof block - 1);
      block[sizeof block - 1] = 0;
      put(key, block);
      fence();
      for (int other = 0; other < size; other++) {
        snprintf(key, sizeof key, "BLOCK-%04x-%08x-%04x", round, other, part);
        memset(block, 'A' + (other + round + part) % 26, sizeof block - 1);
        expect(NULL, key, block);
      }
    }
}

static void spawn(const char *program) {
  const char *commands[] = {program, program}, *first[] = {"child", "with a space;"}, *second[] = {"child", "second"};
  const char **arguments[] = {first, second};
  int counts[] = {2, 2}, processes[] = {1, 2}, infos[] = {0, 1}, errors[3] = {-1, -1, -1};
  MPID_Info directory = {.key = "wdir", .value = "/"}, parent = {.key = "parent", .value = job};
  const MPID_Info *keys[] = {NULL, &directory}, *preput[] = {&parent};
  char child[256] = "";
  if (rank == 0) {
    must(PMI2_Job_Spawn(2, commands, counts, arguments, processes, infos, keys, 1, preput, child, sizeof child, errors) ==
             PMI2_SUCCESS,
         "spawn");
    must(child[0] && strcmp(child, job) != 0, "the name of the new job");
    must(errors[0] == 0 && errors[1] == 0 && errors[2] == 0, "the errors of the new job");
  }
  fence();
}

static void be_child(const char *word) {
  int found = 0;
  char here[64];
  must(spawned && size == 3, "a child of a job");
  must(appnum == (rank > 0), "the number of its program");
  must(strcmp(word, rank == 0 ? "with a space;" : "second") == 0, "its arguments");
  must(rank == 0 || (getcwd(here, sizeof here) && strcmp(here, "/") == 0), "its directory");
  must(PMI2_Info_GetJobAttr("parent", value, sizeof value, &found) == PMI2_SUCCESS && found, "what its parent has put");
  must(strcmp(value, job) != 0, "a job of its own");
  expect(job, "parent", value);
  exchange(";%d;%d", 0);
}

static void refused(const char *program) {
  const char *commands[] = {program}, **arguments[] = {NULL};
  int counts[] = {0}, processes[] = {1000000}, infos[] = {0}, errors[1];
  const MPID_Info *keys[] = {NULL};
  char child[256] = "";
  (void)errors;
  int code = PMI2_Job_Spawn(1, commands, counts, arguments, processes, infos, keys, 0, NULL, child, sizeof child,
                            calloc(1000000, sizeof(int)));
  must(code != PMI2_SUCCESS || !child[0], "a spawn of too many is refused");
  fence();
}

int main(int argc, char **argv) {
  const char *what = argc > 1 ? argv[1] : "all";
  must(PMI2_Init(&spawned, &size, &rank, &appnum) == PMI2_SUCCESS, "init");
  must(PMI2_Job_GetId(job, sizeof job) == PMI2_SUCCESS && job[0], "the job's name");
  if (strcmp(what, "all") == 0)
    all(argc > 2 ? argv[2] : NULL);
  else if (strcmp(what, "held") == 0)
    held(argv[2]);
  else if (strcmp(what, "shmem") == 0)
    shmem();
  else if (strcmp(what, "spawn") == 0)
    spawn(argv[0]);
  else if (strcmp(what, "refused") == 0)
    refused(argv[0]);
  else if (strcmp(what, "child") == 0)
    be_child(argv[2]);
  else if (strcmp(what, "exchange") == 0)
    exchange("tcp$%d$%d", 0);
  else if (strcmp(what, "abort") == 0 || strcmp(what, "die") == 0) {
    fence();
    if (rank == 1 && strcmp(what, "die") == 0)
      raise(SIGKILL);
    if (rank == 1)
      PMI2_Abort(atoi(argv[2]), "giving up;\nfor good");
    must(PMI2_KVS_Fence() != PMI2_SUCCESS, "no fence completes without rank 1");
  } else if (strcmp(what, "alone") == 0) {
    int found = 1;
    if (rank != atoi(argv[2]))
      must(PMI2_Info_GetNodeAttr("never", value, sizeof value, &found, 1) == PMI2_SUCCESS && !found, "no value");
  } else
    must(0, "a known word");
  must(PMI2_Finalize() == PMI2_SUCCESS, "finalize");
  printf("%s: rank %d of %d: right\n", what, rank, size);
  return 0;
}
