/* Processes that were started separately connect (MPI 5.0 §11.9, §11.10). Without arguments, or with an unknown one, both sides are in one
 * job; the name of a port is in a file otherwise:
 *     accept FILE COUNT, connect FILE COUNT    two jobs, COUNT times one after the other, each time used and disconnected
 *     serve FILE COUNT, visit FILE             COUNT separate processes, at the port of one job
 *     queue FILE COUNT GATE, stand FILE NUMBER COUNT processes in order of arrival; the job is busy until the file GATE exists
 *     besieged FILE, word FILE, victim FILE    a job that accepts until a caller sends the password; callers without it may be killed
 *     forsaken FILE                            a job that connects to a process that dies instead of accepting */
#include "check.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static MPI_Comm inter;
static int local_rank, local_size, remote_size;

static void look(MPI_Comm comm) {
    inter = comm;
    int flag = 0;
    MPI_Comm_test_inter(inter, &flag);
    CHECK(flag);
    MPI_Comm_rank(inter, &local_rank);
    MPI_Comm_size(inter, &local_size);
    MPI_Comm_remote_size(inter, &remote_size);
}

/* Each process sends to each of the other side: short messages, and one that is longer than any frame. */
static void messages(void) {
    enum { LONG = 1 << 20 };
    int *out = room(LONG * sizeof(int)), *in = room(LONG * sizeof(int));
    MPI_Request *requests = room(2 * (size_t)remote_size * sizeof(MPI_Request));
    int *got = room((size_t)remote_size * sizeof(int));
    for (int count = 0; count < 3; count++) {
        for (int r = 0; r < remote_size; r++) {
            MPI_Irecv(&got[r], 1, MPI_INT, r, count, inter, &requests[r]);
            MPI_Isend(&local_rank, 1, MPI_INT, r, count, inter, &requests[remote_size + r]);
        }
        MPI_Waitall(2 * remote_size, requests, MPI_STATUSES_IGNORE);
        for (int r = 0; r < remote_size; r++)
            CHECK(got[r] == r);
    }
    /* The first of each side. */
    if (local_rank == 0) {
        fill(out, LONG, local_size);
        MPI_Sendrecv(out, LONG, MPI_INT, 0, 7, in, LONG, MPI_INT, 0, 7, inter, MPI_STATUS_IGNORE);
        CHECK(filled(in, LONG, remote_size));
    }
    free(out);
    free(in);
    free(requests);
    free(got);
}

static void collectives(int high) {
    int sum = 0, n = local_rank + 1;
    MPI_Allreduce(&n, &sum, 1, MPI_INT, MPI_SUM, inter);
    CHECK(sum == remote_size * (remote_size + 1) / 2);
    MPI_Comm all, half, near;
    MPI_Intercomm_merge(inter, high, &all);
    int rank_of_all, size_of_all;
    MPI_Comm_rank(all, &rank_of_all);
    MPI_Comm_size(all, &size_of_all);
    CHECK(size_of_all == local_size + remote_size);
    CHECK(rank_of_all == (high ? remote_size + local_rank : local_rank));
    for (int round = 0; round < 5; round++) {
        MPI_Allreduce(&rank_of_all, &sum, 1, MPI_INT, MPI_SUM, all);
        CHECK(sum == size_of_all * (size_of_all - 1) / 2);
        MPI_Barrier(all);
    }
    MPI_Comm_split(all, rank_of_all % 2, 0, &half);
    MPI_Comm_size(half, &n);
    CHECK(n == (size_of_all + 1 - rank_of_all % 2) / 2);
    MPI_Barrier(half);
    MPI_Comm_split_type(all, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &near);
    MPI_Comm_size(near, &n);
    CHECK(n >= 1 && n <= size_of_all);
    MPI_Barrier(near);
    MPI_Group mine, theirs, both;
    MPI_Comm_group(inter, &mine);
    MPI_Comm_remote_group(inter, &theirs);
    MPI_Comm_group(all, &both);
    MPI_Group joined;
    MPI_Group_union(mine, theirs, &joined);
    int result;
    MPI_Group_compare(joined, both, &result);
    CHECK(result == (high ? MPI_SIMILAR : MPI_IDENT));
    MPI_Group_free(&mine);
    MPI_Group_free(&theirs);
    MPI_Group_free(&both);
    MPI_Group_free(&joined);
    MPI_Comm_free(&near);
    MPI_Comm_free(&half);
    MPI_Comm_disconnect(&all);
    CHECK(all == MPI_COMM_NULL);
}

static int descriptors(void) {
    int n = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (readdir(folder))
        n++;
    closedir(folder);
    return n;
}

static long memory(void) {
    long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(fscanf(file, "%ld %ld", &pages, &resident) == 2);
    fclose(file);
    return resident * sysconf(_SC_PAGESIZE);
}

/* The port name that the accepting side has written, in a file whose name says that it is complete. */
static void read_name(const char *path, char *port) {
    FILE *file;
    while (!(file = fopen(path, "r"))) {
        struct timespec pause = {0, 1000000};
        nanosleep(&pause, NULL);
    }
    CHECK(fgets(port, MPI_MAX_PORT_NAME, file) != NULL);
    fclose(file);
}

static void write_name(const char *path, const char *port) {
    char whole[4096];
    snprintf(whole, sizeof whole, "%s.new", path);
    FILE *file = fopen(whole, "w");
    fputs(port, file);
    fclose(file);
    rename(whole, path);
}

static void rounds(int accepts, const char *path, int count) {
    char port[MPI_MAX_PORT_NAME] = "";
    int root = size - 1, fds = 0;
    long bytes = 0;
    if (rank == root) {
        if (accepts) {
            MPI_Open_port(MPI_INFO_NULL, port);
            write_name(path, port);
        } else {
            read_name(path, port);
        }
    }
    for (int round = 0; round < count; round++) {
        MPI_Comm comm;
        if (accepts)
            MPI_Comm_accept(port, MPI_INFO_NULL, root, MPI_COMM_WORLD, &comm);
        else
            MPI_Comm_connect(port, MPI_INFO_NULL, root, MPI_COMM_WORLD, &comm);
        look(comm);
        CHECK(local_size == size && local_rank == rank);
        if (round < 3) {
            messages();
            collectives(!accepts);
        }
        MPI_Comm_disconnect(&inter);
        CHECK(inter == MPI_COMM_NULL);
        if (round == 20) {
            fds = descriptors();
            bytes = memory();
        }
    }
    if (count > 20) {
        CHECK(descriptors() <= fds + 8);
        CHECK(memory() <= bytes + (4 << 20));
    }
    if (accepts && rank == root)
        MPI_Close_port(port);
}

/* The first process accepts and the others connect, then the reverse. */
static void within(void) {
    MPI_Comm part;
    MPI_Comm_split(MPI_COMM_WORLD, rank == 0, rank, &part);
    for (int round = 0; round < 2 && size > 1; round++) {
        char port[MPI_MAX_PORT_NAME] = "";
        int accepts = (rank == 0) == (round == 0);
        if (rank == round)
            MPI_Open_port(MPI_INFO_NULL, port);
        MPI_Bcast(port, MPI_MAX_PORT_NAME, MPI_CHAR, round, MPI_COMM_WORLD);
        MPI_Comm comm;
        if (accepts)
            MPI_Comm_accept(port, MPI_INFO_NULL, 0, part, &comm);
        else
            MPI_Comm_connect(port, MPI_INFO_NULL, 0, part, &comm);
        look(comm);
        CHECK(remote_size == (rank == 0 ? size - 1 : 1));
        messages();
        collectives(!accepts);
        MPI_Comm_free(&inter);
        if (rank == round)
            MPI_Close_port(port);
    }
    MPI_Comm_free(&part);
}

/* Many processes connect separately to one port; all stay connected, and messages reach the right ones. */
static void serve(const char *path, int count) {
    char port[MPI_MAX_PORT_NAME] = "";
    MPI_Comm *clients = room((size_t)count * sizeof *clients);
    if (rank == 0) {
        MPI_Open_port(MPI_INFO_NULL, port);
        write_name(path, port);
    }
    for (int i = 0; i < count; i++) {
        MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &clients[i]);
        int n;
        MPI_Comm_remote_size(clients[i], &n);
        CHECK(n == 1);
    }
    if (rank == 0)
        MPI_Close_port(port);
    int *seen = room((size_t)count * sizeof *seen);
    memset(seen, 0, (size_t)count * sizeof *seen);
    for (int i = 0; i < count; i++) {
        int number = -1, answer = 100 * i + rank;
        MPI_Recv(&number, 1, MPI_INT, 0, 1, clients[i], MPI_STATUS_IGNORE);
        CHECK(number >= 0 && number < count && !seen[number]);
        seen[number] = 1;
        MPI_Send(&answer, 1, MPI_INT, 0, 2, clients[i]);
    }
    for (int i = 0; i < count; i++)
        MPI_Comm_disconnect(&clients[i]);
    free(clients);
    free(seen);
}

static void visit(const char *path) {
    char port[MPI_MAX_PORT_NAME];
    read_name(path, port);
    MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter);
    look(inter);
    int first = -1;
    for (int r = 0; r < remote_size; r++)
        MPI_Send(&rank, 1, MPI_INT, r, 1, inter);
    for (int r = 0; r < remote_size; r++) {
        int answer = -1;
        MPI_Recv(&answer, 1, MPI_INT, r, 2, inter, MPI_STATUS_IGNORE);
        first = r == 0 ? answer : first;
        CHECK(answer == first + r);
    }
    MPI_Comm_disconnect(&inter);
}

/* Many processes have connected to a port before the first accept: they are served in order of arrival. */
static void queue(const char *path, int count, const char *gate) {
    char port[MPI_MAX_PORT_NAME] = "", word[MPI_MAX_PORT_NAME];
    if (rank == 0) {
        MPI_Open_port(MPI_INFO_NULL, port);
        write_name(path, port);
        read_name(gate, word);
    }
    for (int i = 0; i < count; i++) {
        MPI_Comm comm;
        int number = -1;
        MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &comm);
        MPI_Recv(&number, 1, MPI_INT, 0, 4, comm, MPI_STATUS_IGNORE);
        CHECK(number == i);
        MPI_Comm_disconnect(&comm);
    }
    if (rank == 0)
        MPI_Close_port(port);
}

static void stand(const char *path, int number) {
    char port[MPI_MAX_PORT_NAME];
    read_name(path, port);
    MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter);
    look(inter);
    for (int r = 0; r < remote_size; r++)
        MPI_Send(&number, 1, MPI_INT, r, 4, inter);
    MPI_Comm_disconnect(&inter);
}

/* A process that connects may die at any time; the last one sends the password. */
enum { WORD = 4711 };

static void besieged(const char *path) {
    char port[MPI_MAX_PORT_NAME] = "";
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (rank == 0) {
        MPI_Open_port(MPI_INFO_NULL, port);
        write_name(path, port);
    }
    for (int word = 0; word != WORD;) {
        MPI_Comm comm = MPI_COMM_NULL;
        int came = MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &comm) == MPI_SUCCESS;
        if (came) {
            word = 0;
            int code = MPI_Recv(&word, 1, MPI_INT, 0, 3, comm, MPI_STATUS_IGNORE);
            CHECK(code == MPI_SUCCESS || class_of(code) == MPI_ERR_PROC_ABORTED);
            MPI_Comm_disconnect(&comm);
        }
        /* Some ranks may have received it, and others not. */
        MPI_Allreduce(MPI_IN_PLACE, &word, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    }
    if (rank == 0)
        MPI_Close_port(port);
}

static void say_the_word(const char *path, int word) {
    char port[MPI_MAX_PORT_NAME];
    read_name(path, port);
    MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter);
    look(inter);
    for (int r = 0; r < remote_size && word; r++)
        MPI_Send(&word, 1, MPI_INT, r, 3, inter);
    if (!word) {
        printf("there\n");
        fflush(stdout);
        pause();
    }
    MPI_Comm_disconnect(&inter);
}

/* The other side dies before it accepts, or while it does. */
static void forsaken(const char *path) {
    char port[MPI_MAX_PORT_NAME] = "";
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    if (rank == 0)
        read_name(path, port);
    printf("calling\n");
    fflush(stdout);
    MPI_Comm comm;
    int class = class_of(MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &comm));
    CHECK(class == MPI_ERR_PORT);
}

/* The text of a code includes the message of the last error, if that was of its class. */
static void sentences(const char *port, MPI_Info hurry) {
    MPI_Comm comm;
    char late[MPI_MAX_INFO_VAL];
    int code, number;
    code = MPI_Comm_accept(port, hurry, 0, MPI_COMM_SELF, &comm);
    CHECK(says(code, "(last: MPI_Comm_accept: no process connected to the port at ") && says(code, " within 200ms)"));
    /* The same for repeated queries, by the class as well, and after successful calls. */
    MPI_Comm_rank(MPI_COMM_WORLD, &number);
    CHECK(says(class_of(code), "MPI_Comm_accept: no process connected"));
    code = MPI_Comm_connect(port, hurry, 0, MPI_COMM_SELF, &comm);
    CHECK(says(code, "(last: MPI_Comm_connect: rank ") && says(code, " has not accepted within 200ms"));
    code = MPI_Comm_connect("nowhere", hurry, 0, MPI_COMM_SELF, &comm);
    CHECK(says(code, "\"nowhere\" is not the name of a port"));
    /* A class that was not the last error's has only its own text. */
    char text[MPI_MAX_ERROR_STRING], before[MPI_MAX_ERROR_STRING];
    int length;
    MPI_Error_string(MPI_ERR_INFO_VALUE, before, &length);
    CHECK(strstr(before, "last") == NULL);
    MPI_Info info;
    MPI_Info_create(&info);
    memset(late, 'x', sizeof late);
    late[sizeof late - 1] = 0;
    MPI_Info_set(info, "timeout", late);
    code = MPI_Comm_connect(port, info, 0, MPI_COMM_SELF, &comm);
    CHECK(code == MPI_ERR_INFO_VALUE && says(code, "(last: MPI_Comm_connect: invalid info value timeout=\"xxx") && says(code, before));
    MPI_Info_free(&info);
    MPI_Error_string(MPI_ERR_PORT, text, &length);
    CHECK(strstr(text, "last") == NULL);
}

static void wrong_uses(void) {
    MPI_Comm comm, two;
    MPI_Info info;
    char port[MPI_MAX_PORT_NAME], other[MPI_MAX_PORT_NAME];
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    CHECK(MPI_Open_port(MPI_INFO_NULL, port) == MPI_SUCCESS && MPI_Open_port(MPI_INFO_NULL, other) == MPI_SUCCESS);
    CHECK(strcmp(port, other) != 0 && strlen(port) < MPI_MAX_PORT_NAME && strpbrk(port, " \\\n") == NULL);
    MPI_Info_create(&info);
    MPI_Info_set(info, "timeout", "0.2");
    double start = MPI_Wtime();
    FAILS(MPI_Comm_accept(port, info, 0, MPI_COMM_SELF, &comm), MPI_ERR_PORT);
    FAILS(MPI_Comm_connect(port, info, 0, MPI_COMM_SELF, &comm), MPI_ERR_PORT);
    CHECK(MPI_Wtime() - start >= 0.4);
    sentences(port, info);
    FAILS(MPI_Comm_accept(port, info, size - 1, MPI_COMM_WORLD, &comm), MPI_ERR_PORT);
    FAILS(MPI_Comm_accept("tag#0$connentry#02$", info, 0, MPI_COMM_SELF, &comm), MPI_ERR_PORT);
    FAILS(MPI_Comm_connect("tag#0$connentry#02$", info, 0, MPI_COMM_SELF, &comm), MPI_ERR_PORT);
    FAILS(MPI_Comm_connect("", info, 0, MPI_COMM_SELF, &comm), MPI_ERR_PORT);
    FAILS(MPI_Comm_connect(NULL, info, 0, MPI_COMM_SELF, &comm), MPI_ERR_PORT);
    FAILS(MPI_Comm_connect(port, info, 1, MPI_COMM_SELF, &comm), MPI_ERR_ROOT);
    FAILS(MPI_Comm_accept(port, info, -1, MPI_COMM_SELF, &comm), MPI_ERR_ROOT);
    FAILS(MPI_Comm_accept(port, info, 0, MPI_COMM_NULL, &comm), MPI_ERR_COMM);
    FAILS(MPI_Comm_accept(port, info, 0, MPI_COMM_SELF, NULL), MPI_ERR_ARG);
    FAILS(MPI_Close_port("nonsense"), MPI_ERR_PORT);
    FAILS(MPI_Comm_join(-1, &comm), MPI_ERR_ARG);
    FAILS(MPI_Comm_join(0x7fffffff, &comm), MPI_ERR_OTHER);
    MPI_Info_set(info, "timeout", "soon");
    FAILS(MPI_Comm_connect(port, info, 0, MPI_COMM_SELF, &comm), MPI_ERR_INFO_VALUE);
    MPI_Info_free(&info);
    CHECK(MPI_Close_port(port) == MPI_SUCCESS);
    FAILS(MPI_Close_port(port), MPI_ERR_PORT);
    FAILS(MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &comm), MPI_ERR_PORT);
    FAILS(MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &comm), MPI_ERR_PORT);
    CHECK(MPI_Close_port(other) == MPI_SUCCESS);
    two = MPI_COMM_WORLD;
    FAILS(MPI_Comm_disconnect(&two), MPI_ERR_COMM);
    two = MPI_COMM_NULL;
    FAILS(MPI_Comm_disconnect(&two), MPI_ERR_COMM);
    MPI_Comm_dup(MPI_COMM_WORLD, &two);
    CHECK(MPI_Comm_disconnect(&two) == MPI_SUCCESS && two == MPI_COMM_NULL);
}

/* The first two processes share a socket, and nothing is left in it. */
static void joined(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0), fd = -1;
    if (rank == 0) {
        CHECK(bind(listener, (struct sockaddr *)&at, sizeof at) == 0 && listen(listener, 1) == 0);
        getsockname(listener, (struct sockaddr *)&at, &length);
    }
    MPI_Bcast(&at, sizeof at, MPI_BYTE, 0, MPI_COMM_WORLD);
    if (rank == 0)
        fd = accept(listener, NULL, NULL);
    if (rank == 1) {
        fd = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(connect(fd, (struct sockaddr *)&at, sizeof at) == 0);
    }
    close(listener);
    if (fd >= 0) {
        MPI_Comm comm;
        MPI_Comm_join(fd, &comm);
        look(comm);
        CHECK(local_size == 1 && remote_size == 1);
        char byte = (char)('a' + rank), got = 0;
        CHECK(write(fd, &byte, 1) == 1 && read(fd, &got, 1) == 1 && got == 'a' + 1 - rank);
        messages();
        collectives(rank == 1);
        MPI_Comm_disconnect(&inter);
        close(fd);
    }
}

int main(int argc, char **argv) {
    begin(&argc, &argv);
    const char *what = argc > 1 ? argv[1] : "", *path = argc > 2 ? argv[2] : "";
    int count = argc > 3 ? atoi(argv[3]) : 0;
    if (strcmp(what, "accept") == 0 || strcmp(what, "connect") == 0)
        rounds(what[0] == 'a', path, count);
    else if (strcmp(what, "serve") == 0)
        serve(path, count);
    else if (strcmp(what, "visit") == 0)
        visit(path);
    else if (strcmp(what, "queue") == 0)
        queue(path, count, argv[4]);
    else if (strcmp(what, "stand") == 0)
        stand(path, count);
    else if (strcmp(what, "besieged") == 0)
        besieged(path);
    else if (strcmp(what, "word") == 0)
        say_the_word(path, WORD);
    else if (strcmp(what, "victim") == 0)
        say_the_word(path, 0);
    else if (strcmp(what, "forsaken") == 0)
        forsaken(path);
    else {
        within();
        if (size > 1)
            joined();
        wrong_uses();
    }
    return finish("ports");
}
