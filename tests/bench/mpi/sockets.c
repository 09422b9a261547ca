/* What messages over TCP on one host cost without any MPI library: two processes, one on each of the first two processors, that call send(2) and
 * recv(2) and nothing else, without ever sleeping. What an MPI library adds to this is its own.
 *
 *   cc -O2 sockets.c -o sockets && ./sockets
 *
 * Prints for each size the time of one message to and fro and of one of a stream (64 messages, then an answer), in microseconds: medians.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LONGEST = 1 << 20, WINDOW = 64, SAMPLES = 401 };

static char data[LONGEST];

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void must(int right, const char *what) {
    if (!right) {
        perror(what);
        exit(1);
    }
}

static void give(int fd, long bytes) {
    for (long at = 0; at < bytes;) {
        ssize_t sent = send(fd, data + at, (size_t)(bytes - at), MSG_DONTWAIT);
        must(sent > 0 || errno == EAGAIN, "send");
        at += sent > 0 ? sent : 0;
    }
}

static void take(int fd, long bytes) {
    for (long at = 0; at < bytes;) {
        ssize_t got = recv(fd, data + at, (size_t)(bytes - at), MSG_DONTWAIT);
        must(got > 0 || (got < 0 && errno == EAGAIN), "recv");
        at += got > 0 ? got : 0;
    }
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *samples) {
    qsort(samples, SAMPLES, sizeof *samples, ascending);
    return samples[SAMPLES / 2];
}

static void measure(int fd, int is_first, long bytes) {
    static double to_and_fro[SAMPLES], stream[SAMPLES];
    for (int i = -20; i < SAMPLES; i++) {
        double since = now();
        if (is_first) {
            give(fd, bytes);
            take(fd, bytes);
        } else {
            take(fd, bytes);
            give(fd, bytes);
        }
        to_and_fro[i < 0 ? 0 : i] = (now() - since) / 2;
    }
    for (int i = -20; i < SAMPLES; i++) {
        double since = now();
        for (int k = 0; k < WINDOW; k++)
            is_first ? give(fd, bytes) : take(fd, bytes);
        is_first ? take(fd, 1) : give(fd, 1);
        stream[i < 0 ? 0 : i] = (now() - since) / WINDOW;
    }
    if (is_first)
        printf("%8ld B: to and fro %8.2f us, stream %8.2f us\n", bytes, median(to_and_fro), median(stream));
}

int main(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1, fd;
    must(bind(listener, (struct sockaddr *)&address, length) == 0 && listen(listener, 1) == 0, "listen");
    must(getsockname(listener, (struct sockaddr *)&address, &length) == 0, "getsockname");
    /* What is inherited by both ends: a connection that is paced measures the kernel's timers. */
    must(setsockopt(listener, IPPROTO_TCP, TCP_CONGESTION, "reno", 4) == 0, "reno");
    pid_t other = fork();
    must(other >= 0, "fork");
    cpu_set_t here;
    CPU_ZERO(&here);
    CPU_SET(other ? 0 : 1, &here);
    must(sched_setaffinity(0, sizeof here, &here) == 0, "bind to a processor");
    if (other == 0) {
        fd = socket(AF_INET, SOCK_STREAM, 0);
        must(setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4) == 0, "reno");
        must(connect(fd, (struct sockaddr *)&address, length) == 0, "connect");
    } else {
        fd = accept(listener, NULL, NULL);
        must(fd >= 0, "accept");
    }
    must(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0, "TCP_NODELAY");
    for (long bytes = 1; bytes <= LONGEST; bytes *= 4)
        measure(fd, other != 0, bytes);
    return other == 0 || waitpid(other, NULL, 0) == other ? 0 : 1;
}
