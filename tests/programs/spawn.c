/* Spawns itself, for any MPI. `spawn family`: two and three processes as one job, merged with the parent; each side checks its data.
 * `spawn refused COUNT PROGRAM`: must be refused with MPI_ERR_SPAWN, without hanging; prints the error. `spawn outlived SECONDS
 * [STAYS]`: each process spawns one that runs for this long, and keeps running itself. `spawn dying HOW`: one that ends before MPI_Init
 * (`early`) or after it (`late`). */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static void must(int holds, const char *what) {
  if (!holds) {
    fprintf(stderr, "failed: %s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
}

/* All processes of both sides in one communicator: 1 + 2 + … + size. */
static int sum_of_all(MPI_Comm inter, int high) {
  MPI_Comm all;
  int rank, size, one, sum;
  MPI_Intercomm_merge(inter, high, &all);
  MPI_Comm_rank(all, &rank);
  MPI_Comm_size(all, &size);
  one = rank + 1;
  MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, all);
  must(sum == size * (size + 1) / 2, "the sum over all");
  MPI_Comm_free(&all);
  return size;
}

static int child(int argc, char **argv, MPI_Comm parent) {
  int *appnum, found, size, remote;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &appnum, &found);
  must(found, "a spawned process knows its program's number");
  must(argc > 2 && strcmp(argv[2], "with a space") == 0, "the arguments arrive");
  must(strcmp(argv[1], *appnum == 0 ? "first" : "second") == 0, "each program has its own");
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_remote_size(parent, &remote);
  must(size == 5 && remote > 0, "the sizes of both sides");
  const char *directory = getenv("SPAWN_DIRECTORY");
  char here[4096];
  if (getenv("SPAWN_INHERITED")) {
    struct rlimit files;
    mode_t mask = umask(0);
    umask(mask);
    getrlimit(RLIMIT_NOFILE, &files);
    printf("umask %03o, %d files, nice %d\n", (unsigned)mask, (int)files.rlim_cur, getpriority(PRIO_PROCESS, 0));
  }
  must(!directory || (getcwd(here, sizeof here) && strcmp(here, directory) == 0), "the directory is as inherited");
  sum_of_all(parent, 1);
  printf("child of %d\n", remote);
  MPI_Comm_disconnect(&parent);
  return 0;
}

static void family(char *self) {
  char *commands[] = {self, self}, *first[] = {"first", "with a space", NULL}, *second[] = {"second", "with a space", NULL};
  char **args[] = {first, second};
  int counts[] = {2, 3}, codes[5], rank, size, remote;
  MPI_Info infos[] = {MPI_INFO_NULL, MPI_INFO_NULL};
  MPI_Comm inter;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  memset(codes, -1, sizeof codes);
  MPI_Comm_spawn_multiple(2, commands, args, counts, infos, size - 1, MPI_COMM_WORLD, &inter, codes);
  for (int at = 0; at < 5; at++)
    must(codes[at] == MPI_SUCCESS, "every process was started");
  MPI_Comm_remote_size(inter, &remote);
  must(remote == 5, "five were spawned");
  int all = sum_of_all(inter, 0);
  must(all == size + 5, "merged with them");
  MPI_Comm_disconnect(&inter);
  if (rank == 0)
    printf("family of %d\n", all);
}

static void refused(int count, char *program) {
  int rank, class = MPI_SUCCESS;
  int *codes = malloc(count * sizeof *codes);
  MPI_Comm inter = MPI_COMM_NULL;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  int error = MPI_Comm_spawn(program, MPI_ARGV_NULL, count, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter, codes);
  if (error != MPI_SUCCESS)
    MPI_Error_class(error, &class);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0)
    printf("%s\n", class == MPI_SUCCESS ? "spawned" : "refused");
  free(codes);
}

int main(int argc, char **argv) {
  MPI_Comm parent, inter;
  char *mode = argc > 1 ? argv[1] : "";
  if (strcmp(mode, "early") == 0)
    return 3;
  MPI_Init(&argc, &argv);
  MPI_Comm_get_parent(&parent);
  if (strcmp(mode, "family") == 0)
    family(argv[0]);
  else if (strcmp(mode, "refused") == 0)
    refused(atoi(argv[2]), argv[3]);
  else if (strcmp(mode, "outlived") == 0) {
    char *lives[] = {"lives", argv[2], NULL};
    MPI_Comm_spawn(argv[0], lives, 1, MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter, MPI_ERRCODES_IGNORE);
    MPI_Comm_disconnect(&inter);
    printf("left\n");
    fflush(stdout);
    if (argc > 3)
      sleep(atoi(argv[3]));
  } else if (strcmp(mode, "lives") == 0) {
    MPI_Comm_disconnect(&parent);
    sleep(atoi(argv[2]));
    printf("lived\n");
  } else if (strcmp(mode, "dying") == 0) {
    char *dies[] = {argv[2], NULL};
    MPI_Comm_spawn(argv[0], dies, 1, MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter, MPI_ERRCODES_IGNORE);
    /* Not in a call that waits for the other side: MPICH may notice the end first, and crash. */
    for (;;)
      pause();
  } else if (strcmp(mode, "late") == 0)
    _exit(3);
  else if (parent != MPI_COMM_NULL)
    child(argc, argv, parent);
  MPI_Finalize();
  return 0;
}
