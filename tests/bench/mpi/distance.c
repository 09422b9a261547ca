/* Prints the distance of two processors in nanoseconds (distance.h).
 *
 *   distance CPU CPU
 */
#define _GNU_SOURCE
#include "distance.h"

#include <stdio.h>

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: distance CPU CPU\n");
        return 2;
    }
    double measured = 0;
    for (int tries = 0; measured == 0 && tries < 5; tries++)
        measured = distance(atoi(argv[1]), atoi(argv[2]), MOST_TURNS);
    if (measured == 0) {
        fprintf(stderr, "distance: processor %s or %s is not ours, or busy\n", argv[1], argv[2]);
        return 1;
    }
    printf("%.0f\n", measured);
    return 0;
}
