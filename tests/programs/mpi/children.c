/* Processes that ranks start: programs, and forked children that do not use MPI. They do not disturb MPI in their parent, and when that dies,
 * its peers notice although its children live. */
#include "check.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void ping(void) {
    int token = rank, got = -1;
    MPI_Sendrecv(&token, 1, MPI_INT, right(), 1, &got, 1, MPI_INT, left(), 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    CHECK(got == left());
}

static void programs(void) {
    char line[32] = "";
    int status = system("exit 3");
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3);
    ping();
    FILE *pipe = popen("echo hello", "r");
    CHECK(pipe && fgets(line, sizeof line, pipe) && strcmp(line, "hello\n") == 0);
    ping();
    CHECK(pipe && pclose(pipe) == 0);
}

/* What a child calls ends it with a sentence, whichever call that is; without a call it ends as it likes. */
static void forks(void) {
    for (int call = 0; call < 8; call++) {
        int status = -1, flag = 0;
        MPI_Info info;
        MPI_Session session;
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            if (!freopen("/dev/null", "w", stderr))
                _exit(9);
            alarm(20);
            MPI_Initialized(&flag);
            if (!flag)
                _exit(7);
            if (call == 1)
                MPI_Send(&flag, 1, MPI_INT, right(), 2, MPI_COMM_WORLD);
            if (call == 2)
                MPI_Info_create(&info);
            if (call == 3)
                MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session);
            if (call == 4)
                MPI_Init(NULL, NULL);
            if (call == 5)
                MPI_Finalize();
            if (call == 6)
                MPI_Abort(MPI_COMM_WORLD, 1);
            if (call == 7)
                MPI_Barrier(MPI_COMM_WORLD);
            exit(0);
        }
        ping();
        CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
        CHECK(WEXITSTATUS(status) == (call == 0 ? 0 : MPI_ERR_OTHER));
        ping();
    }
}

/* The descriptors that the launcher left open: Hydra's pipes among them, whose end it waits for. */
static char inherited[1024];

static void find_inherited(void) {
    for (int fd = 0; fd < (int)sizeof inherited; fd++)
        inherited[fd] = fcntl(fd, F_GETFD) != -1;
}

/* The last rank dies and leaves a child behind, which lives for 60 s with all that MPI has opened; the others notice at once. */
static int dies(void) {
    int token = 0;
    double before;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (rank == size - 1) {
        for (int to = 0; to < rank; to++)
            MPI_Send(&token, 1, MPI_INT, to, 1, MPI_COMM_WORLD);
        for (int from = 0; from < rank; from++)
            MPI_Recv(&token, 1, MPI_INT, from, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        fflush(NULL);
        if (fork() == 0) {
            for (int fd = 0; fd < (int)sizeof inherited; fd++)
                if (inherited[fd])
                    close(fd);
            alarm(60);
            for (;;)
                pause();
        }
        raise(SIGKILL);
    }
    MPI_Recv(&token, 1, MPI_INT, size - 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send(&token, 1, MPI_INT, size - 1, 2, MPI_COMM_WORLD);
    before = MPI_Wtime();
    FAILS(MPI_Recv(&token, 1, MPI_INT, size - 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE), MPI_ERR_PROC_ABORTED);
    CHECK(MPI_Wtime() - before < 30);
    if (!wrong)
        printf("rank %d noticed\n", rank);
    fflush(NULL);
    _exit(wrong != 0);
}

int main(int argc, char **argv) {
    find_inherited();
    begin(&argc, &argv);
    if (argc > 1 && strcmp(argv[1], "die") == 0)
        return dies();
    ping();
    programs();
    if (!on_mpich())
        forks();
    return finish("children");
}
