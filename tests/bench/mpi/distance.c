/* Prints the distance of two processors in nanoseconds (distance.h), or 0 if they are too busy.
 *
 *   distance CPU CPU
 */
#define _GNU_SOURCE
#include "distance.h"

#include <stdio.h>

/* So many turns take a tenth of a millisecond or more. */
enum { TURNS = 2000 };

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: distance CPU CPU\n");
        return 2;
    }
    for (int i = 1; i < 3; i++) {
        cpu_set_t one = only(atoi(argv[i]));
        if (sched_setaffinity(0, sizeof one, &one) != 0) {
            fprintf(stderr, "distance: processor %s is not ours\n", argv[i]);
            return 1;
        }
    }
    double measured = 0;
    for (int tries = 0; measured == 0 && tries < 5; tries++)
        measured = distance(atoi(argv[1]), atoi(argv[2]), TURNS);
    printf("%.0f\n", measured);
    return 0;
}
