/* `flood LINES`: writes this many lines of 100 bytes, each with rank and number, as fast as it can. No MPI. */
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    const char *rank = getenv("RSD_RANK");
    long lines = argc > 1 ? atol(argv[1]) : 1;
    for (long i = 0; i < lines; i++)
        printf("%4s %10ld %083ld\n", rank ? rank : "-", i, i);
    return 0;
}
