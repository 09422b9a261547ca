/* Processes of any MPI find each other by names and connect. `names alone NAME`: one process publishes NAME, looks it up, and
 * unpublishes it; every misuse is an error. `names accept NAME COUNT`, `names connect NAME COUNT`: two worlds connect COUNT times over the port
 * that the first has published; `names hold` is `names accept`, but prints `published` first. A NAME with a slash is a file: the port
 * is written to it instead. Prints `names ok on SIZE`. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank, size;

static void must(int holds, const char *what) {
  if (!holds) {
    fprintf(stderr, "rank %d: failed: %s\n", rank, what);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
}

static int class_of(int error) {
  int class = MPI_SUCCESS;
  if (error != MPI_SUCCESS)
    MPI_Error_class(error, &class);
  return class;
}

static void alone(const char *name) {
  /* Not every MPI supports ports on every network. */
  char port[] = "tag#0$made-up$", found[MPI_MAX_PORT_NAME] = "";
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  must(class_of(MPI_Lookup_name(name, MPI_INFO_NULL, found)) == MPI_ERR_NAME, "the name is not published yet");
  must(MPI_Publish_name(name, MPI_INFO_NULL, port) == MPI_SUCCESS, "the name is published");
  must(class_of(MPI_Publish_name(name, MPI_INFO_NULL, port)) != MPI_SUCCESS, "and not twice");
  must(MPI_Lookup_name(name, MPI_INFO_NULL, found) == MPI_SUCCESS && strcmp(found, port) == 0, "it is found");
  must(MPI_Unpublish_name(name, MPI_INFO_NULL, port) == MPI_SUCCESS, "it is unpublished");
  must(class_of(MPI_Lookup_name(name, MPI_INFO_NULL, found)) == MPI_ERR_NAME, "it is not found any more");
  must(class_of(MPI_Unpublish_name(name, MPI_INFO_NULL, port)) != MPI_SUCCESS, "an unpublished name cannot be unpublished");
}

static void use(MPI_Comm inter, int accepts, int round) {
  int remote, sum, one, got = -1, sent = 1000 * accepts + round;
  MPI_Comm all;
  MPI_Comm_remote_size(inter, &remote);
  if (rank == 0) {
    MPI_Sendrecv(&sent, 1, MPI_INT, 0, 5, &got, 1, MPI_INT, 0, 5, inter, MPI_STATUS_IGNORE);
    must(got == 1000 * !accepts + round, "the other side's message of this round");
  }
  MPI_Intercomm_merge(inter, !accepts, &all);
  MPI_Comm_rank(all, &one);
  MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, all);
  must(sum == (size + remote) * (size + remote - 1) / 2, "the sum over both sides");
  MPI_Comm_free(&all);
}

/* The file appears when it is complete. */
static void write_port(const char *file, const char *port) {
  char partial[4096];
  snprintf(partial, sizeof partial, "%s.partial", file);
  FILE *out = fopen(partial, "w");
  must(out && fputs(port, out) >= 0 && fclose(out) == 0 && rename(partial, file) == 0, "the port is written");
}

static int read_port(const char *file, char *port) {
  FILE *in = fopen(file, "r");
  if (!in)
    return 0;
  must(fgets(port, MPI_MAX_PORT_NAME, in) != NULL && fclose(in) == 0, "the port is read");
  return 1;
}

static void meet(const char *mode, const char *name, int count) {
  int accepts = strcmp(mode, "connect") != 0, by_file = strchr(name, '/') != NULL;
  char port[MPI_MAX_PORT_NAME] = "";
  MPI_Comm inter;
  if (rank == 0 && accepts) {
    MPI_Open_port(MPI_INFO_NULL, port);
    if (by_file)
      write_port(name, port);
    else
      MPI_Publish_name(name, MPI_INFO_NULL, port);
    if (strcmp(mode, "hold") == 0)
      printf("published\n");
    fflush(stdout);
  } else if (rank == 0 && by_file) {
    while (!read_port(name, port))
      usleep(10000);
  } else if (rank == 0) {
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    while (MPI_Lookup_name(name, MPI_INFO_NULL, port) != MPI_SUCCESS)
      usleep(10000);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
  }
  for (int round = 0; round < count; round++) {
    if (accepts)
      MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter);
    else
      MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter);
    use(inter, accepts, round);
    MPI_Comm_disconnect(&inter);
  }
  if (rank == 0 && accepts) {
    if (!by_file)
      MPI_Unpublish_name(name, MPI_INFO_NULL, port);
    MPI_Close_port(port);
  }
}

int main(int argc, char **argv) {
  int *universe, found;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  must(argc > 2, "a mode and a name");
  /* This makes a singleton of MPICH request a process manager, which names do not. */
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_UNIVERSE_SIZE, &universe, &found);
  if (strcmp(argv[1], "alone") == 0)
    alone(argv[2]);
  else
    meet(argv[1], argv[2], argc > 3 ? atoi(argv[3]) : 1);
  if (rank == 0)
    printf("names ok on %d\n", size);
  MPI_Finalize();
  return 0;
}
