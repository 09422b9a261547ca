/* PMI-1 without MPI. `pmi all`: every request but spawn and abort; `pmi some`: without names. `pmi spawn`: rank 0 spawns two programs. `pmi abort CODE`: rank 1
 * aborts; the others wait in a barrier. */
#include <pmi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size, spawned;
static char name[256], value[1024];

static void must(int holds, const char *what) {
  if (!holds) {
    fprintf(stderr, "rank %d: failed: %s\n", rank, what);
    exit(9);
  }
}

static void barrier(void) {
  must(PMI_KVS_Commit(name) == PMI_SUCCESS && PMI_Barrier() == PMI_SUCCESS, "barrier");
}

static void exchange(int round) {
  char key[64], text[64];
  snprintf(key, sizeof key, "key-%d-%d", round, rank);
  snprintf(text, sizeof text, "tcp$%d=%d", round, rank);
  must(PMI_KVS_Put(name, key, text) == PMI_SUCCESS, "put");
  barrier();
  for (int other = 0; other < size; other++) {
    snprintf(key, sizeof key, "key-%d-%d", round, other);
    snprintf(text, sizeof text, "tcp$%d=%d", round, other);
    must(PMI_KVS_Get(name, key, value, sizeof value) == PMI_SUCCESS && strcmp(value, text) == 0, "get");
  }
}

static void clique(void) {
  int count = 0, found = 0, *ranks;
  const char *local = getenv("MPI_LOCALNRANKS");
  must(PMI_Get_clique_size(&count) == PMI_SUCCESS && count > 0, "clique size");
  must(!local || count == atoi(local), "the number of ranks of this node");
  ranks = calloc(count, sizeof *ranks);
  must(PMI_Get_clique_ranks(ranks, count) == PMI_SUCCESS, "clique ranks");
  for (int at = 0; at < count; at++) {
    found |= ranks[at] == rank;
    must(ranks[at] >= 0 && ranks[at] < size && (at == 0 || ranks[at] > ranks[at - 1]), "ranks in order");
  }
  must(found, "its own rank is of its node");
  must(count == 1 || PMI_Get_clique_ranks(ranks, count - 1) != PMI_SUCCESS, "too little room");
  free(ranks);
}

static void names(void) {
  char service[300];
  snprintf(service, sizeof service, "service of %s", name);
  if (rank == 0)
    must(PMI_Publish_name(service, "port $7") == PMI_SUCCESS, "publish");
  barrier();
  must(PMI_Lookup_name(service, value) == PMI_SUCCESS && strcmp(value, "port $7") == 0, "lookup");
  barrier();
  if (rank == 0)
    must(PMI_Unpublish_name(service) == PMI_SUCCESS, "unpublish");
  barrier();
  must(PMI_Lookup_name(service, value) != PMI_SUCCESS, "lookup of an unknown name");
}

static void all(int with_names) {
  int number = -1, key_max = 0, value_max = 0;
  PMI_BOOL is = PMI_FALSE;
  char other[256];
  must(!spawned && PMI_Initialized(&is) == PMI_SUCCESS && is == PMI_TRUE, "initialised");
  /* -1: the process manager does not know. */
  must(PMI_Get_appnum(&number) == PMI_SUCCESS && (number == 0 || number == -1), "appnum");
  must(PMI_Get_universe_size(&number) == PMI_SUCCESS && (number == -1 || number >= size), "universe");
  must(PMI_KVS_Get_key_length_max(&key_max) == PMI_SUCCESS && key_max >= 32, "key length");
  must(PMI_KVS_Get_value_length_max(&value_max) == PMI_SUCCESS && value_max >= 256, "value length");
  must(PMI_KVS_Get_name_length_max(&number) == PMI_SUCCESS && number >= (int)strlen(name) + 1, "name length");
  must(PMI_Get_id(other, sizeof other) == PMI_SUCCESS && strcmp(other, name) == 0, "id");
  must(PMI_KVS_Get_my_name(other, 2) != PMI_SUCCESS, "a name needs room");
  exchange(0);
  clique();
  if (with_names)
    names();
  must(PMI_KVS_Get(name, "nothing", value, sizeof value) != PMI_SUCCESS, "a missing key");
  must(PMI_KVS_Put(name, "two words", "x") != PMI_SUCCESS, "a key is one word");
  exchange(1);
}

static void spawn(const char *program) {
  const char *commands[] = {program, program}, *first[] = {"child", "with a space", NULL}, *second[] = {"child", "second", NULL};
  const char **arguments[] = {first, second};
  int processes[] = {1, 2}, infos[] = {0, 0}, errors[3] = {-1, -1, -1};
  PMI_keyval_t parent = {"parent", name};
  const PMI_keyval_t *keys[] = {NULL, NULL};
  if (rank == 0) {
    must(PMI_Spawn_multiple(2, commands, arguments, processes, infos, keys, 1, &parent, errors) == PMI_SUCCESS, "spawn");
    must(errors[0] == 0 && errors[1] == 0 && errors[2] == 0, "the errors of the new job");
  }
  barrier();
}

static void be_child(const char *word) {
  must(spawned && size == 3, "a child of a job");
  must(strcmp(word, rank == 0 ? "with a space" : "second") == 0, "its arguments");
  must(PMI_KVS_Get(name, "parent", value, sizeof value) == PMI_SUCCESS && strcmp(value, name) != 0, "what its parent has put");
  exchange(0);
}

int main(int argc, char **argv) {
  const char *what = argc > 1 ? argv[1] : "all";
  must(PMI_Init(&spawned) == PMI_SUCCESS, "init");
  must(PMI_Get_rank(&rank) == PMI_SUCCESS && PMI_Get_size(&size) == PMI_SUCCESS, "rank and size");
  must(PMI_KVS_Get_my_name(name, sizeof name) == PMI_SUCCESS && name[0], "the job's name");
  if (strcmp(what, "all") == 0)
    all(1);
  else if (strcmp(what, "some") == 0)
    all(0);
  else if (strcmp(what, "spawn") == 0)
    spawn(argv[0]);
  else if (strcmp(what, "child") == 0)
    be_child(argv[2]);
  else if (strcmp(what, "abort") == 0) {
    barrier();
    if (rank == 1)
      PMI_Abort(atoi(argv[2]), "giving up");
    PMI_Barrier();
  }
  must(PMI_Finalize() == PMI_SUCCESS, "finalize");
  printf("%s: rank %d of %d: right\n", what, rank, size);
  return 0;
}
