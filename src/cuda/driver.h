// SPDX-License-Identifier: MIT
// driver.h: the part of NVIDIA's driver API that Berth calls. It is declared by hand to avoid the CUDA toolkit.
// driver.c loads the functions. Symbols and values are those of the driver's stable ABI.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;

enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_NOT_FOUND = 500,
    CUDA_ERROR_NOT_READY = 600,
    CUDA_ERROR_HOST_ALREADY_REGISTERED = 712,
    CUDA_ERROR_PEER_ALREADY_ENABLED = 704,
    CUDA_ERROR_GRAPH_EXEC_UPDATE = 910,
};

// CUdevice_attribute
enum {
    CU_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
    CU_ATTRIBUTE_INTEGRATED = 18,
    CU_ATTRIBUTE_PCI_BUS_ID = 33,
    CU_ATTRIBUTE_PCI_DEVICE_ID = 34,
    CU_ATTRIBUTE_L2_CACHE_SIZE = 38,
    CU_ATTRIBUTE_PCI_DOMAIN_ID = 50,
    CU_ATTRIBUTE_COMPUTE_MAJOR = 75,
    CU_ATTRIBUTE_COMPUTE_MINOR = 76,
    CU_ATTRIBUTE_MAX_SHARED_PER_BLOCK_OPTIN = 97,
};

enum {
    CU_FUNC_ATTRIBUTE_LOCAL_SIZE = 3,
    CU_FUNC_ATTRIBUTE_NUM_REGS = 4,
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED = 8,
    CU_LIMIT_STACK_SIZE = 0,
    CU_STREAM_NON_BLOCKING = 1,
    CU_EVENT_DISABLE_TIMING = 2,
    CU_MEMHOSTALLOC_PORTABLE = 1,
    CU_MEMHOSTREGISTER_PORTABLE = 1,
    CU_MEMHOSTREGISTER_DEVICEMAP = 2,
    CU_MEMHOSTREGISTER_READ_ONLY = 8,
    CU_CAPTURE_RELAXED = 2,
    CU_LAUNCH_CLUSTER_DIMENSION = 4,
    CU_LAUNCH_PROGRAMMATIC_SERIALIZATION = 6,
    CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
    CU_MEMORYTYPE_HOST = 1,
    CU_MEMORYTYPE_DEVICE = 2,
};

typedef struct {
    int id;
    char pad[4];
    union {
        char bytes[64];
        unsigned cluster[3];
        int programmatic;
    } value;
} CUlaunchAttribute;

typedef struct {
    unsigned grid[3];
    unsigned block[3];
    unsigned shared_size;
    CUstream stream;
    CUlaunchAttribute *attrs;
    unsigned n_attrs;
} CUlaunchConfig;

typedef struct {
    size_t src_x, src_y;
    unsigned src_type;
    const void *src_host;
    CUdeviceptr src_device;
    void *src_array;
    size_t src_pitch;
    size_t dst_x, dst_y;
    unsigned dst_type;
    void *dst_host;
    CUdeviceptr dst_device;
    void *dst_array;
    size_t dst_pitch;
    size_t width, height;
} CUDA_MEMCPY2D;

typedef struct {
    int result;
    void *node, *from;
} CUgraphExecUpdateResultInfo;

// X(field name, symbol, parameters). All functions return a CUresult. If a required function is missing, no device is listed.
// If an extra function is missing (drivers before 12.4), its field is NULL.
// clang-format off
#define CUDA_DRIVER_REQUIRED(X) \
    X(Init, cuInit, (unsigned flags)) \
    X(DriverGetVersion, cuDriverGetVersion, (int *version)) \
    X(GetErrorName, cuGetErrorName, (CUresult error, const char **name)) \
    X(GetErrorString, cuGetErrorString, (CUresult error, const char **text)) \
    X(DeviceGetCount, cuDeviceGetCount, (int *n)) \
    X(DeviceGet, cuDeviceGet, (CUdevice *device, int ordinal)) \
    X(DeviceGetName, cuDeviceGetName, (char *name, int size, CUdevice device)) \
    X(DeviceGetAttribute, cuDeviceGetAttribute, (int *value, int attribute, CUdevice device)) \
    X(DevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, (CUcontext *ctx, CUdevice device)) \
    X(DevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, (CUdevice device)) \
    X(CtxSetCurrent, cuCtxSetCurrent, (CUcontext ctx)) \
    X(DeviceCanAccessPeer, cuDeviceCanAccessPeer, (int *can, CUdevice device, CUdevice peer)) \
    X(CtxEnablePeerAccess, cuCtxEnablePeerAccess, (CUcontext peer, unsigned flags)) \
    X(ModuleLoadData, cuModuleLoadData, (CUmodule *module, const void *image)) \
    X(ModuleUnload, cuModuleUnload, (CUmodule module)) \
    X(ModuleGetFunction, cuModuleGetFunction, (CUfunction *function, CUmodule module, const char *name)) \
    X(FuncSetAttribute, cuFuncSetAttribute, (CUfunction function, int attribute, int value)) \
    X(FuncGetAttribute, cuFuncGetAttribute, (int *value, int attribute, CUfunction function)) \
    X(MemGetInfo, cuMemGetInfo_v2, (size_t *n_free, size_t *n_total)) \
    X(MemAlloc, cuMemAlloc_v2, (CUdeviceptr *p, size_t size)) \
    X(MemFree, cuMemFree_v2, (CUdeviceptr p)) \
    X(MemHostAlloc, cuMemHostAlloc, (void **p, size_t size, unsigned flags)) \
    X(MemFreeHost, cuMemFreeHost, (void *p)) \
    X(MemHostRegister, cuMemHostRegister_v2, (void *p, size_t size, unsigned flags)) \
    X(MemHostUnregister, cuMemHostUnregister, (void *p)) \
    X(MemHostGetDevicePointer, cuMemHostGetDevicePointer_v2, (CUdeviceptr *device, void *p, unsigned flags)) \
    X(PointerGetAttribute, cuPointerGetAttribute, (void *value, int attribute, CUdeviceptr p)) \
    X(MemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void *from, size_t size, CUstream stream)) \
    X(MemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t size, CUstream stream)) \
    X(MemcpyDtoDAsync, cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream)) \
    X(MemcpyPeerAsync, cuMemcpyPeerAsync, \
        (CUdeviceptr to, CUcontext to_ctx, CUdeviceptr from, CUcontext from_ctx, size_t size, CUstream stream)) \
    X(Memcpy2DAsync, cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D *copy, CUstream stream)) \
    X(MemsetD8Async, cuMemsetD8Async, (CUdeviceptr p, unsigned char value, size_t size, CUstream stream)) \
    X(StreamCreate, cuStreamCreate, (CUstream *stream, unsigned flags)) \
    X(StreamDestroy, cuStreamDestroy_v2, (CUstream stream)) \
    X(StreamSynchronize, cuStreamSynchronize, (CUstream stream)) \
    X(StreamWaitEvent, cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags)) \
    X(StreamBeginCapture, cuStreamBeginCapture_v2, (CUstream stream, int mode)) \
    X(StreamEndCapture, cuStreamEndCapture, (CUstream stream, CUgraph *graph)) \
    X(EventCreate, cuEventCreate, (CUevent *event, unsigned flags)) \
    X(EventDestroy, cuEventDestroy_v2, (CUevent event)) \
    X(EventRecord, cuEventRecord, (CUevent event, CUstream stream)) \
    X(EventSynchronize, cuEventSynchronize, (CUevent event)) \
    X(LaunchKernel, cuLaunchKernel, (CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, \
        unsigned bz, unsigned shared_size, CUstream stream, void **params, void **extra)) \
    X(GraphInstantiate, cuGraphInstantiateWithFlags, (CUgraphExec *exec, CUgraph graph, unsigned long long flags)) \
    X(GraphLaunch, cuGraphLaunch, (CUgraphExec exec, CUstream stream)) \
    X(GraphDestroy, cuGraphDestroy, (CUgraph graph)) \
    X(GraphExecDestroy, cuGraphExecDestroy, (CUgraphExec exec))
#define CUDA_DRIVER_EXTRA(X) \
    X(LaunchKernelEx, cuLaunchKernelEx, (const CUlaunchConfig *config, CUfunction function, void **params, void **extra)) \
    X(ModuleGetFunctionCount, cuModuleGetFunctionCount, (unsigned *n, CUmodule module)) \
    X(ModuleEnumerateFunctions, cuModuleEnumerateFunctions, (CUfunction *functions, unsigned n, CUmodule module)) \
    X(GraphExecUpdate, cuGraphExecUpdate_v2, (CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info)) \
    X(FuncLoad, cuFuncLoad, (CUfunction function)) \
    X(CtxGetLimit, cuCtxGetLimit, (size_t *value, int limit)) \
    X(CtxSetLimit, cuCtxSetLimit, (int limit, size_t value)) \
    X(TensorMapEncodeTiled, cuTensorMapEncodeTiled, (void *map, int type, unsigned rank, void *address, const uint64_t *dims, \
        const uint64_t *strides, const uint32_t *box, const uint32_t *steps, int interleave, int swizzle, int promotion, int fill))
// clang-format on

struct cuda_driver {
#define CUDA_DRIVER_FIELD(name, symbol, params) CUresult(*name) params;
    CUDA_DRIVER_REQUIRED(CUDA_DRIVER_FIELD)
    CUDA_DRIVER_EXTRA(CUDA_DRIVER_FIELD)
#undef CUDA_DRIVER_FIELD
    int version; // 13000 for CUDA 13.0
};

// The first call loads the driver. If no driver is usable, returns NULL and stores the reason in *why.
const struct cuda_driver *cuda_driver(const char **why);
// Writes the text into buf and returns buf: "CUDA_ERROR_OUT_OF_MEMORY 2 (out of memory)".
const char *cuda_error_text(const struct cuda_driver *cu, CUresult error, char *buf, size_t size);
