/* One rank sends far more than another one receives: the receiver's memory does not grow with it, and messages between other ranks, and from
 * others to the same receiver, are not held up. A send that is cancelled too late needs no receiver to complete. */
#include "check.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FLOOD = 60000, EACH = 4000, LONG = 1 << 20 };

/* Bytes of memory in use. */
static long resident(void) {
    long all = 0, used = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file && fscanf(file, "%ld %ld", &all, &used) == 2);
    if (file)
        fclose(file);
    return used * sysconf(_SC_PAGESIZE);
}

/* Rank 0 floods rank 1 with messages of 4,000 bytes, 240 MB in all, while that waits for another message. */
static void flood(void) {
    static char data[EACH];
    int token = 0;
    if (rank == 0) {
        for (int i = 0; i < FLOOD; i++) {
            memcpy(data, &i, sizeof i);
            MPI_Send(data, sizeof data, MPI_CHAR, 1, 1, MPI_COMM_WORLD);
        }
    } else if (rank == 1) {
        /* Whoever sends last has got a message of everybody else, and these do not depend on the flood. */
        long before = resident(), most = 0;
        int left = size - 2, flag;
        while (left > 0) {
            MPI_Iprobe(MPI_ANY_SOURCE, 2, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
            if (flag) {
                MPI_Recv(&token, 1, MPI_INT, MPI_ANY_SOURCE, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                left--;
            }
        }
        /* The flood rises until it is stopped. */
        for (int look = 0; look < 200000; look++)
            MPI_Iprobe(MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
        most = resident() - before;
        CHECK(most < 100L << 20);
        for (int i = 0; i < FLOOD; i++) {
            MPI_Recv(data, sizeof data, MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            CHECK(memcmp(data, &i, sizeof i) == 0);
        }
    } else {
        int to = rank == size - 1 ? 2 : rank + 1, from = rank == 2 ? size - 1 : rank - 1;
        for (int round = 0; round < 100; round++)
            MPI_Sendrecv(&rank, 1, MPI_INT, to, 4, &token, 1, MPI_INT, from, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(&rank, 1, MPI_INT, 1, 2, MPI_COMM_WORLD);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Rank 0 starts sends of all lengths to rank 1, which makes no call meanwhile: messages to the others need no room that those take. */
static void silent(void) {
    enum { SENDS = 300, MOST = 30000 };
    static char data[MOST], got[MOST];
    MPI_Request requests[SENDS];
    char path[64] = "";
    if (size < 3)
        return;
    if (rank == 0) {
        snprintf(path, sizeof path, "/tmp/rsd-flood-%ld", (long)getpid());
        CHECK(mkfifo(path, 0600) == 0);
    }
    MPI_Bcast(path, sizeof path, MPI_CHAR, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        for (int i = 0; i < SENDS; i++)
            MPI_Isend(data, i % 2 ? 2000 : MOST, MPI_CHAR, 1, 5, MPI_COMM_WORLD, &requests[i]);
        for (int length = 1; length <= MOST; length = length * 3 + 1) {
            MPI_Send(data, length, MPI_CHAR, 2, 6, MPI_COMM_WORLD);
            MPI_Recv(got, length, MPI_CHAR, 2, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        /* Rank 1 has waited for this. */
        int end = open(path, O_WRONLY);
        CHECK(end >= 0 && close(end) == 0);
        MPI_Waitall(SENDS, requests, MPI_STATUSES_IGNORE);
        unlink(path);
    } else if (rank == 1) {
        int end = open(path, O_RDONLY);
        CHECK(end >= 0 && close(end) == 0);
        for (int i = 0; i < SENDS; i++)
            MPI_Recv(got, MOST, MPI_CHAR, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (rank == 2) {
        for (int length = 1; length <= MOST; length = length * 3 + 1) {
            MPI_Recv(got, length, MPI_CHAR, 0, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(got, length, MPI_CHAR, 0, 6, MPI_COMM_WORLD);
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Rank 0 cancels sends of which rank 1 has heard, and waits for them while that makes no call: it may use the memory again at once, and what
 * rank 1 receives then, if anything, is the message. */
static void cancelled(void) {
    enum { KINDS = 6 };
    static char data[KINDS][LONG], got[LONG];
    MPI_Request requests[KINDS], persistent;
    MPI_Status statuses[KINDS];
    char path[64] = "";
    int flags[KINDS] = {0};
    if (size < 2 || on_mpich())
        return;
    if (rank == 0) {
        snprintf(path, sizeof path, "/tmp/rsd-cancel-%ld", (long)getpid());
        CHECK(mkfifo(path, 0600) == 0);
    }
    MPI_Bcast(path, sizeof path, MPI_CHAR, 0, MPI_COMM_WORLD);
    MPI_Datatype spread;
    MPI_Type_vector(LONG / 2, 1, 2, MPI_CHAR, &spread);
    MPI_Type_commit(&spread);
    if (rank == 0) {
        memset(data, 7, sizeof data);
        MPI_Isend(data[0], LONG, MPI_CHAR, 1, 10, MPI_COMM_WORLD, &requests[0]);
        MPI_Issend(data[1], LONG, MPI_CHAR, 1, 11, MPI_COMM_WORLD, &requests[1]);
        MPI_Issend(data[2], 5, MPI_CHAR, 1, 12, MPI_COMM_WORLD, &requests[2]);
        MPI_Isend(data[3], 1, spread, 1, 13, MPI_COMM_WORLD, &requests[3]);
        MPI_Isend(data[4], LONG, MPI_CHAR, 1, 14, MPI_COMM_WORLD, &requests[4]);
        MPI_Ssend_init(data[5], LONG, MPI_CHAR, 1, 15, MPI_COMM_WORLD, &persistent);
        MPI_Start(&persistent);
        requests[5] = persistent;
        MPI_Send(got, 0, MPI_CHAR, 1, 9, MPI_COMM_WORLD);
        MPI_Recv(got, 0, MPI_CHAR, 1, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int i = 0; i < KINDS; i++)
            MPI_Cancel(&requests[i]);
        CHECK(MPI_Waitall(KINDS, requests, statuses) == MPI_SUCCESS);
        memset(data, 8, sizeof data);
        for (int i = 0; i < KINDS; i++)
            MPI_Test_cancelled(&statuses[i], &flags[i]);
        MPI_Request_free(&persistent);
        int end = open(path, O_WRONLY);
        CHECK(end >= 0 && close(end) == 0);
        unlink(path);
        MPI_Send(flags, KINDS, MPI_INT, 1, 8, MPI_COMM_WORLD);
    } else if (rank == 1) {
        MPI_Recv(got, 0, MPI_CHAR, 0, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int i = 0; i < KINDS; i++)
            MPI_Probe(0, 10 + i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(got, 0, MPI_CHAR, 0, 9, MPI_COMM_WORLD);
        int end = open(path, O_RDONLY);
        CHECK(end >= 0 && close(end) == 0);
        MPI_Recv(flags, KINDS, MPI_INT, 0, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int i = 0; i < KINDS; i++) {
            int length = -1, right = 1;
            MPI_Status status;
            CHECK(!flags[i]);
            memset(got, 0, sizeof got);
            MPI_Recv(got, LONG, MPI_CHAR, 0, 10 + i, MPI_COMM_WORLD, &status);
            MPI_Get_count(&status, MPI_CHAR, &length);
            CHECK(length == (i == 2 ? 5 : i == 3 ? LONG / 2 : LONG));
            for (int at = 0; at < length; at++)
                right &= got[at] == 7;
            CHECK(right);
        }
    }
    MPI_Type_free(&spread);
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv) {
    begin(&argc, &argv);
    cancelled();
    silent();
    if (size > 1)
        flood();
    return finish("flood");
}
