/*
 * PMI-1: how a process learns its rank, exchanges small values with the other processes of its job, publishes names
 * and spawns jobs. Link with -lpmi (rsd's libpmi.so.0), which works under every launcher that sets PMI_FD or PMI_PORT.
 *
 * All functions return PMI_SUCCESS or another of the codes below. A process without a launcher is rank 0 of 1.
 */
#ifndef RSD_PMI_H
#define RSD_PMI_H

#ifdef __cplusplus
extern "C" {
#endif

typedef int PMI_BOOL;
#define PMI_TRUE 1
#define PMI_FALSE 0

#define PMI_SUCCESS 0
#define PMI_FAIL (-1)
#define PMI_ERR_INIT 1 /* PMI_Init has not been called, or PMI_Finalize has */
#define PMI_ERR_NOMEM 2
#define PMI_ERR_INVALID_ARG 3
#define PMI_ERR_INVALID_KEY 4
#define PMI_ERR_INVALID_KEY_LENGTH 5
#define PMI_ERR_INVALID_VAL 6
#define PMI_ERR_INVALID_VAL_LENGTH 7
#define PMI_ERR_INVALID_LENGTH 8 /* the buffer is too short */
#define PMI_ERR_INVALID_NUM_ARGS 9
#define PMI_ERR_INVALID_ARGS 10
#define PMI_ERR_INVALID_NUM_PARSED 11
#define PMI_ERR_INVALID_KEYVALP 12
#define PMI_ERR_INVALID_SIZE 13

/* A key and its value. */
typedef struct PMI_keyval_t {
  const char *key;
  char *val;
} PMI_keyval_t;

/* spawned: whether another process has spawned this job. */
int PMI_Init(int *spawned);
int PMI_Initialized(PMI_BOOL *initialized);
int PMI_Finalize(void);
/* Ends the whole job, this process included; returns only if the process manager cannot be reached. */
int PMI_Abort(int exit_code, const char error_msg[]);

int PMI_Get_size(int *size);
int PMI_Get_rank(int *rank);
/* -1: unknown. */
int PMI_Get_universe_size(int *size);
int PMI_Get_appnum(int *appnum);

/* The ranks of this node. */
int PMI_Get_clique_size(int *size);
int PMI_Get_clique_ranks(int ranks[], int length);

/* The job's name; the three functions differ only by name. */
int PMI_KVS_Get_my_name(char kvsname[], int length);
int PMI_Get_id(char id[], int length);
int PMI_Get_kvs_domain_id(char id[], int length);

/* Lengths include the end byte. */
int PMI_KVS_Get_name_length_max(int *length);
int PMI_Get_id_length_max(int *length);
int PMI_KVS_Get_key_length_max(int *length);
int PMI_KVS_Get_value_length_max(int *length);

/* What was put before a barrier is there for all ranks after it. Commit does nothing: a put is never held back. */
int PMI_KVS_Put(const char kvsname[], const char key[], const char value[]);
int PMI_KVS_Commit(const char kvsname[]);
int PMI_KVS_Get(const char kvsname[], const char key[], char value[], int length);
int PMI_Barrier(void);

/* PMI_FAIL: the name is taken, or unknown. `port` has room for the longest value. */
int PMI_Publish_name(const char service_name[], const char port[]);
int PMI_Unpublish_name(const char service_name[]);
int PMI_Lookup_name(const char service_name[], char port[]);

/*
 * Starts a job of `count` programs and returns when all its processes run. argvs[i] ends with NULL and does not contain
 * the program's name; argvs may be NULL. errors[i] is 0 if the i-th process of the job runs.
 */
int PMI_Spawn_multiple(int count, const char *cmds[], const char **argvs[], const int maxprocs[],
                       const int info_keyval_sizes[], const PMI_keyval_t *info_keyval_vectors[],
                       int preput_keyval_size, const PMI_keyval_t preput_keyval_vector[], int errors[]);

#ifdef __cplusplus
}
#endif

#endif
