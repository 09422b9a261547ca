/* Two threads begin and end sessions at once, so the last session often ends while the next one begins: the library stays open for it, or is
 * opened again. A process manager has to take the process in again. */
#include "check.h"

#include <pthread.h>

enum { ROUNDS = 20000 };

static pthread_barrier_t both;

typedef struct {
    int number;
    int wrong;
} Thread;

static void *run(void *argument) {
    Thread *t = argument;
    pthread_barrier_wait(&both);
    for (int i = 0; i < ROUNDS; i++) {
        MPI_Session session;
        int sets = 0;
        MUST(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session) == MPI_SUCCESS);
        MUST(MPI_Session_get_num_psets(session, MPI_INFO_NULL, &sets) == MPI_SUCCESS && sets >= 2);
        MUST(MPI_Session_finalize(&session) == MPI_SUCCESS);
    }
    return NULL;
}

int main(int argc, char **argv) {
    Thread threads[2] = {{.number = 0}, {.number = 1}};
    pthread_t other;
    pthread_barrier_init(&both, NULL, 2);
    pthread_create(&other, NULL, run, &threads[1]);
    run(&threads[0]);
    pthread_join(other, NULL);
    wrong += threads[0].wrong + threads[1].wrong;
    begin(&argc, &argv);
    return finish("turns");
}
