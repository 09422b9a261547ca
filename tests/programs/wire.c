/* `wire A B DELAY_US LOSS_PER_MILLE KBIT_PER_S`: a cable with faults. Makes the network interfaces A and B, prints `ready`, and carries
 * every packet from each to the other: late, not faster than the rate (0: any), and some not at all. Ends with its standard input.
 * Kernels have this as netem, but not all of them. */
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { SLOTS = 4096, LARGEST = 2048 };

/* Packets on their way in one direction, in order. */
struct lane {
    int from, to;
    long long free_us; /* When the last packet has left the sender. */
    unsigned first, count;
    struct packet {
        long long due_us;
        ssize_t bytes;
        char data[LARGEST];
    } slots[SLOTS];
};

static long long delay_us, kbit_per_s;
static int loss_per_mille;
static unsigned long long chance = 1;

static long long now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000LL + now.tv_nsec / 1000;
}

static int interface(const char *name) {
    struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI};
    strncpy(request.ifr_name, name, IFNAMSIZ - 1);
    int it = open("/dev/net/tun", O_RDWR | O_NONBLOCK);
    if (it < 0 || ioctl(it, TUNSETIFF, &request) < 0) {
        perror(name);
        exit(1);
    }
    return it;
}

static int lost(void) {
    chance = chance * 6364136223846793005ULL + 1442695040888963407ULL;
    return (int)((chance >> 33) % 1000) < loss_per_mille;
}

/* Takes all packets that have arrived at one end. A full cable drops packets, as a router does. */
static void take(struct lane *lane) {
    for (;;) {
        struct packet *packet = &lane->slots[(lane->first + lane->count) % SLOTS];
        char dropped[LARGEST];
        int full = lane->count == SLOTS;
        ssize_t bytes = read(lane->from, full ? dropped : packet->data, LARGEST);
        if (bytes <= 0) return;
        if (full || lost()) continue;
        long long now = now_us();
        if (lane->free_us < now) lane->free_us = now;
        if (kbit_per_s) lane->free_us += bytes * 8000 / kbit_per_s;
        packet->bytes = bytes;
        packet->due_us = lane->free_us + delay_us;
        lane->count++;
    }
}

/* Delivers what is due; returns the milliseconds until the next packet is, -1 if there is none. */
static int deliver(struct lane *lane) {
    while (lane->count) {
        struct packet *packet = &lane->slots[lane->first];
        long long left = packet->due_us - now_us();
        if (left > 0) return (int)(left / 1000 + 1);
        /* An interface that is down accepts nothing; its packets are lost. */
        (void)!write(lane->to, packet->data, packet->bytes);
        lane->first = (lane->first + 1) % SLOTS;
        lane->count--;
    }
    return -1;
}

int main(int argc, char **argv) {
    static struct lane there, back;
    if (argc != 6) return 2;
    int a = interface(argv[1]), b = interface(argv[2]);
    delay_us = atoll(argv[3]), loss_per_mille = atoi(argv[4]), kbit_per_s = atoll(argv[5]);
    there.from = back.to = a, there.to = back.from = b;
    puts("ready");
    fflush(stdout);
    struct pollfd waited[] = {{.fd = 0, .events = POLLIN}, {.fd = a, .events = POLLIN}, {.fd = b, .events = POLLIN}};
    for (;;) {
        int one = deliver(&there), other = deliver(&back);
        int wait = one < 0 || (other >= 0 && other < one) ? other : one;
        if (poll(waited, 3, wait) < 0 || waited[0].revents) return 0;
        take(&there);
        take(&back);
    }
}
