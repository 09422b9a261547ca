/*
 * PMI-2: how a process learns its rank, exchanges small values with the other processes of its job or of its node,
 * publishes names and spawns jobs. Link with -lpmi2 (rsd's libpmi2.so.0), which works under every launcher that speaks
 * PMI-2 and sets PMI_FD or PMI_PORT. The functions are those of Slurm's pmi2.h.
 *
 * All functions return PMI2_SUCCESS or another of the codes below. A process without a launcher is rank 0 of 1.
 */
#ifndef RSD_PMI2_H
#define RSD_PMI2_H

#ifdef __cplusplus
extern "C" {
#endif

#define PMI2_SUCCESS 0
#define PMI2_FAIL (-1)
#define PMI2_ERR_INIT 1 /* PMI2_Init has not been called, or PMI2_Finalize has */
#define PMI2_ERR_NOMEM 2
#define PMI2_ERR_INVALID_ARG 3
#define PMI2_ERR_INVALID_KEY 4
#define PMI2_ERR_INVALID_KEY_LENGTH 5
#define PMI2_ERR_INVALID_VAL 6
#define PMI2_ERR_INVALID_VAL_LENGTH 7
#define PMI2_ERR_INVALID_LENGTH 8 /* the buffer is too short */
#define PMI2_ERR_INVALID_NUM_ARGS 9
#define PMI2_ERR_INVALID_ARGS 10
#define PMI2_ERR_INVALID_NUM_PARSED 11
#define PMI2_ERR_INVALID_KEYVALP 12
#define PMI2_ERR_INVALID_SIZE 13
#define PMI2_ERR_OTHER 14

/* With the end byte. */
#define PMI2_MAX_KEYLEN 64
#define PMI2_MAX_VALLEN 1024
#define PMI2_MAX_ATTRVALUE 1024
/* No particular rank. */
#define PMI2_ID_NULL (-1)

/* A key and its value; the library reads nothing else of it. */
typedef struct MPID_Info {
  int handle;
  int pobj_mutex;
  int ref_count;
  struct MPID_Info *next;
  char *key;
  char *value;
} MPID_Info;
#define PMI2U_Info MPID_Info

typedef struct PMI2_Connect_comm {
  int (*read)(void *buf, int maxlen, void *ctx);
  int (*write)(const void *buf, int len, void *ctx);
  void *ctx;
  int isMaster;
} PMI2_Connect_comm_t;

/* spawned: whether another process has spawned this job. appnum: -1 without a launcher. */
int PMI2_Init(int *spawned, int *size, int *rank, int *appnum);
int PMI2_Finalize(void);
/* Not 0 between init and finalize. */
int PMI2_Initialized(void);
/* Ends the whole job with the exit code `flag`, or 1 if that is 0; this process exits too. */
int PMI2_Abort(int flag, const char msg[]);

int PMI2_Job_GetId(char jobid[], int jobid_size);
int PMI2_Job_GetRank(int *rank);
/* The number of processes of the job. */
int PMI2_Info_GetSize(int *size);
/* Most process managers refuse. */
int PMI2_Job_Connect(const char jobid[], PMI2_Connect_comm_t *conn);
int PMI2_Job_Disconnect(const char jobid[]);
/*
 * Starts a job of `count` programs and returns when all its processes run. argvs[i] has argcs[i] arguments, without the
 * program's name. info_keyval_vectors[i] is an array, preput_keyval_vector an array of pointers. errors[i] is 0 if the
 * i-th process of the job runs.
 */
int PMI2_Job_Spawn(int count, const char *cmds[], int argcs[], const char **argvs[], const int maxprocs[],
                   const int info_keyval_sizes[], const struct MPID_Info *info_keyval_vectors[],
                   int preput_keyval_size, const struct MPID_Info *preput_keyval_vector[], char jobid[],
                   int jobid_size, int errors[]);

/*
 * What was put before a fence is there for all ranks after it. jobid: another job, or NULL. vallen: the value's length,
 * negative if `value` has no room for all of it.
 */
int PMI2_KVS_Put(const char key[], const char value[]);
int PMI2_KVS_Fence(void);
int PMI2_KVS_Get(const char *jobid, int src_pmi_id, const char key[], char value[], int maxvalue, int *vallen);

/* Values that the processes of a node store for each other. waitfor: whether to wait for it. flag: whether it is there. */
int PMI2_Info_PutNodeAttr(const char name[], const char value[]);
int PMI2_Info_GetNodeAttr(const char name[], char value[], int valuelen, int *flag, int waitfor);
int PMI2_Info_GetNodeAttrIntArray(const char name[], int array[], int arraylen, int *outlen, int *flag);
/* What the process manager knows: PMI_process_mapping, universeSize, and what the spawner has put for this job. */
int PMI2_Info_GetJobAttr(const char name[], char value[], int valuelen, int *flag);
int PMI2_Info_GetJobAttrIntArray(const char name[], int array[], int arraylen, int *outlen, int *flag);

/* The info argument is ignored. */
int PMI2_Nameserv_publish(const char service_name[], const struct MPID_Info *info, const char port[]);
int PMI2_Nameserv_lookup(const char service_name[], const struct MPID_Info *info, char port[], int portlen);
int PMI2_Nameserv_unpublish(const char service_name[], const struct MPID_Info *info);

/* Gives a value to both neighbours in the ring of all processes and returns theirs, and the ring's rank and size. */
#define HAVE_PMIX_RING 1
int PMIX_Ring(const char value[], int *rank, int *ranks, char left[], char right[], int maxvalue);

#ifdef __cplusplus
}
#endif

#endif
