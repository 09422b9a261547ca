/* Bootstraps as NVSHMEM does, through one of its plug-ins and without a GPU: nvshmem_bootstrap PLUGIN. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The interface of NVSHMEM 3's plug-ins. */
struct handle {
    int version, rank, size, node_rank, node_size;
    int (*allgather)(const void *, void *, int, struct handle *);
    int (*alltoall)(const void *, void *, int, struct handle *);
    int (*barrier)(struct handle *);
    void (*global_exit)(int);
    int (*finalize)(struct handle *);
    int (*show_info)(struct handle *, int);
    void *pre_init_ops, *comm_state;
};
/* 3.8.0: a plug-in serves callers of its own version and of later ones. */
enum { VERSION = 30800 };
typedef int init(void *, struct handle *, int);

static void check(int right, const char *what) {
    if (!right) {
        fprintf(stderr, "wrong: %s\n", what);
        exit(1);
    }
}

int main(int argc, char **argv) {
    void *plugin = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
    if (!plugin) {
        fprintf(stderr, "%s\n", argc > 1 ? dlerror() : "usage: nvshmem_bootstrap PLUGIN");
        return 2;
    }
    init *start = (init *)dlsym(plugin, "nvshmemi_bootstrap_plugin_init");
    struct handle handle;
    memset(&handle, 0, sizeof handle);
    check(start && start(NULL, &handle, VERSION) == 0, "init");
    int size = handle.size, rank = handle.rank;
    check(size > 0 && rank >= 0 && rank < size, "rank and size");
    for (int bytes = 1; bytes <= 5000; bytes = bytes * 3 + 1) {
        unsigned char *in = malloc((size_t)(bytes * size)), *out = malloc((size_t)(bytes * size));
        memset(in, rank + bytes, (size_t)bytes);
        check(handle.allgather(in, out, bytes, &handle) == 0, "allgather");
        for (int at = 0; at < bytes * size; at++)
            check(out[at] == (unsigned char)(at / bytes + bytes), "what allgather brought");
        check(handle.barrier(&handle) == 0, "barrier");
        for (int to = 0; to < size; to++)
            memset(in + to * bytes, rank * 16 + to, (size_t)bytes);
        check(handle.alltoall(in, out, bytes, &handle) == 0, "alltoall");
        for (int at = 0; at < bytes * size; at++)
            check(out[at] == (unsigned char)(at / bytes * 16 + rank), "what alltoall brought");
        free(in);
        free(out);
    }
    printf("rank %d of %d\n", rank, size);
    fflush(stdout);
    check(handle.barrier(&handle) == 0 && handle.finalize(&handle) == 0, "end");
    return 0;
}
