/* The functions of the CUDA driver that test programs call, found at run time: programs compile without CUDA, and run on the driver or
 * on its double, fake.c. The names are those without a version suffix; the suffixed functions are what is called.
 *
 *     cuda_begin(0);
 *     CUDA(cuMemAlloc(&address, bytes));
 */
#ifndef CUDA_DRIVER_H
#define CUDA_DRIVER_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct cuda_context *CUcontext;
typedef struct cuda_stream *CUstream;
typedef struct cuda_event *CUevent;
typedef struct {
    char reserved[64];
} CUipcMemHandle;

enum {
    CU_STREAM_NON_BLOCKING = 1,
    CU_EVENT_DISABLE_TIMING = 2,
    CU_MEM_ATTACH_GLOBAL = 1,
    CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS = 1,
};

/* Name, symbol, parameters. */
#define CUDA_DRIVER_FUNCTIONS(X) \
    X(cuInit, cuInit, (unsigned)) \
    X(cuGetErrorName, cuGetErrorName, (CUresult, const char **)) \
    X(cuDeviceGet, cuDeviceGet, (CUdevice *, int)) \
    X(cuDeviceGetCount, cuDeviceGetCount, (int *)) \
    X(cuDeviceGetName, cuDeviceGetName, (char *, int, CUdevice)) \
    X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice)) \
    X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, (CUdevice)) \
    X(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2, (CUdevice)) \
    X(cuCtxCreate, cuCtxCreate_v2, (CUcontext *, unsigned, CUdevice)) \
    X(cuCtxDestroy, cuCtxDestroy_v2, (CUcontext)) \
    X(cuCtxGetCurrent, cuCtxGetCurrent, (CUcontext *)) \
    X(cuCtxSetCurrent, cuCtxSetCurrent, (CUcontext)) \
    X(cuCtxPushCurrent, cuCtxPushCurrent_v2, (CUcontext)) \
    X(cuCtxPopCurrent, cuCtxPopCurrent_v2, (CUcontext *)) \
    X(cuCtxSynchronize, cuCtxSynchronize, (void)) \
    X(cuStreamCreate, cuStreamCreate, (CUstream *, unsigned)) \
    X(cuStreamDestroy, cuStreamDestroy_v2, (CUstream)) \
    X(cuStreamSynchronize, cuStreamSynchronize, (CUstream)) \
    X(cuStreamQuery, cuStreamQuery, (CUstream)) \
    X(cuEventCreate, cuEventCreate, (CUevent *, unsigned)) \
    X(cuEventDestroy, cuEventDestroy_v2, (CUevent)) \
    X(cuEventRecord, cuEventRecord, (CUevent, CUstream)) \
    X(cuEventQuery, cuEventQuery, (CUevent)) \
    X(cuEventSynchronize, cuEventSynchronize, (CUevent)) \
    X(cuMemAlloc, cuMemAlloc_v2, (CUdeviceptr *, size_t)) \
    X(cuMemFree, cuMemFree_v2, (CUdeviceptr)) \
    X(cuMemAllocManaged, cuMemAllocManaged, (CUdeviceptr *, size_t, unsigned)) \
    X(cuMemAllocHost, cuMemAllocHost_v2, (void **, size_t)) \
    X(cuMemFreeHost, cuMemFreeHost, (void *)) \
    X(cuMemHostRegister, cuMemHostRegister_v2, (void *, size_t, unsigned)) \
    X(cuMemHostUnregister, cuMemHostUnregister, (void *)) \
    X(cuMemcpy, cuMemcpy, (CUdeviceptr, CUdeviceptr, size_t)) \
    X(cuMemcpyAsync, cuMemcpyAsync, (CUdeviceptr, CUdeviceptr, size_t, CUstream)) \
    X(cuMemcpyHtoD, cuMemcpyHtoD_v2, (CUdeviceptr, const void *, size_t)) \
    X(cuMemcpyDtoH, cuMemcpyDtoH_v2, (void *, CUdeviceptr, size_t)) \
    X(cuMemcpyDtoD, cuMemcpyDtoD_v2, (CUdeviceptr, CUdeviceptr, size_t)) \
    X(cuMemsetD8, cuMemsetD8_v2, (CUdeviceptr, unsigned char, size_t)) \
    X(cuPointerGetAttribute, cuPointerGetAttribute, (void *, int, CUdeviceptr)) \
    X(cuIpcGetMemHandle, cuIpcGetMemHandle, (CUipcMemHandle *, CUdeviceptr)) \
    X(cuIpcOpenMemHandle, cuIpcOpenMemHandle_v2, (CUdeviceptr *, CUipcMemHandle, unsigned)) \
    X(cuIpcCloseMemHandle, cuIpcCloseMemHandle, (CUdeviceptr))

#define X(name, symbol, parameters) static CUresult(*name) parameters;
CUDA_DRIVER_FUNCTIONS(X)
#undef X

/* The calls of a function that the double has counted in this process; NULL on the driver. */
static long long (*fake_cuda_calls)(const char *function);

static inline void cuda_check(CUresult code, const char *call, const char *file, int line) {
    const char *name = NULL;
    if (code == 0) return;
    if (cuGetErrorName(code, &name) || !name) name = "unknown error";
    fprintf(stderr, "%s:%d: %s: %s (%d)\n", file, line, call, name, code);
    exit(1);
}

/* Ends the program if a call fails. */
#define CUDA(call) cuda_check((call), #call, __FILE__, __LINE__)

/* Loads the driver. */
static inline void cuda_load(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) {
        fprintf(stderr, "libcuda.so.1 cannot be loaded: %s\n", dlerror());
        exit(1);
    }
#define X(name, symbol, parameters) \
    *(void **)&name = dlsym(driver, #symbol); \
    if (!name) { \
        fprintf(stderr, "libcuda.so.1 has no %s\n", #symbol); \
        exit(1); \
    }
    CUDA_DRIVER_FUNCTIONS(X)
#undef X
    *(void **)&fake_cuda_calls = dlsym(driver, "fake_cuda_calls");
}

/* Loads and starts the driver; the primary context of one of the devices is current then. Rank `n` uses device `n` modulo their number.
 * Returns the device. */
static inline CUdevice cuda_begin(int n) {
    CUcontext context;
    CUdevice device;
    int devices;
    if (!cuInit) cuda_load();
    CUDA(cuInit(0));
    CUDA(cuDeviceGetCount(&devices));
    CUDA(cuDeviceGet(&device, n % devices));
    CUDA(cuDevicePrimaryCtxRetain(&context, device));
    CUDA(cuCtxSetCurrent(context));
    return device;
}

#endif
