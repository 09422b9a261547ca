/* A library to preload: connections over IP are never made, as behind a firewall that drops packets. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <sys/socket.h>

int connect(int fd, const struct sockaddr *address, socklen_t length) {
    static int (*real)(int, const struct sockaddr *, socklen_t);
    if (address->sa_family == AF_INET || address->sa_family == AF_INET6) {
        errno = EINPROGRESS;
        return -1;
    }
    if (!real)
        real = (int (*)(int, const struct sockaddr *, socklen_t))dlsym(RTLD_NEXT, "connect");
    return real(fd, address, length);
}
