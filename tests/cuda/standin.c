// SPDX-License-Identifier: MIT
// standin.c: the simulated driver of standin.h. Copies and sets are done in the caller's thread; launches are only counted. With
// is_late, copies between device memory and pinned memory are queued. They are done when a call waits for them. A stream in capture
// only counts its work. A call that frees an object frees it even if the call returns an error, as the real driver does.

#include "standin.h"

#include "cuda/driver.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

enum { LOCAL_SIZE = 1368 }; // bytes of local memory of a thread, of every kernel

struct CUctx_st {
    int device;
};
struct work {
    struct work *next;
    void *to;
    const void *from;
    size_t size;     // of a copy
    long wait_id, n; // not a copy: waits until stream wait_id has done n pieces of work
};
struct CUstream_st {
    int device;
    long id;               // never 0
    CUstream next;         // in the list of all streams
    struct work *first;    // not done yet
    long n_queued, n_done; // pieces of work
    bool capturing;
    long n_captured;
};
struct CUfunc_st {
    char name[64];
    struct CUfunc_st *next;
};
struct CUmod_st {
    int device;
};
struct CUevent_st {
    long id, n; // the event is complete when stream id has done n pieces of work; id 0: not recorded
};
struct CUgraph_st {
    long n_nodes;
};
struct CUgraphExec_st {
    long n_nodes;
};
struct block {
    void *p;
    size_t size;
    int device; // -1: pinned host memory; -2: registered host memory, which the program owns
    struct block *next;
};

// All objects that exist, so that those of a lost device can be freed.
struct object {
    struct object *next;
    max_align_t bytes[];
};
static struct object *objects;

static void *object_new(size_t size) {
    struct object *o = calloc(1, sizeof *o + size);
    o->next = objects;
    objects = o;
    return o->bytes;
}
static void object_free(void *p) {
    for (struct object **at = &objects; *at != NULL; at = &(*at)->next) {
        struct object *o = *at;
        if ((void *) o->bytes == p) {
            *at = o->next;
            free(o);
            return;
        }
    }
}

static struct standin state = {.n_devices = 1, .version = 13000, .memory = (size_t) 1 << 30, .shared = 232448, .major = 9};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct CUctx_st contexts[STANDIN_MAX_DEVICES];
static int retained[STANDIN_MAX_DEVICES];
static struct block *blocks;
static struct CUfunc_st *functions;
static _Thread_local CUcontext current;
static CUstream streams;
static long last_stream_id;

EXPORT struct standin *standin_state(void) {
    return &state;
}

EXPORT void standin_reset(void) {
    pthread_mutex_lock(&lock);
    const struct standin old = state;
    state = (struct standin){.n_devices = 1, .version = 13000, .memory = (size_t) 1 << 30, .shared = 232448, .major = 9};
    state.n_contexts = old.n_contexts;
    state.n_modules = old.n_modules;
    state.n_streams = old.n_streams;
    state.n_events = old.n_events;
    state.n_graphs = old.n_graphs;
    state.n_execs = old.n_execs;
    state.n_buffers = old.n_buffers;
    state.n_pinned = old.n_pinned;
    state.n_registered = old.n_registered;
    memcpy(state.used, old.used, sizeof state.used);
    while (functions != NULL) {
        struct CUfunc_st *f = functions;
        functions = f->next;
        free(f);
    }
    pthread_mutex_unlock(&lock);
}

static void block_free(void *p);
static void work_drop(CUstream stream);
static void work_do_everything(void);
EXPORT void standin_drop(void) {
    pthread_mutex_lock(&lock);
    for (; streams != NULL; streams = streams->next) {
        work_drop(streams);
    }
    while (objects != NULL) {
        object_free(objects->bytes);
    }
    while (blocks != NULL) {
        block_free(blocks->p);
    }
    state.n_contexts = state.n_modules = state.n_streams = state.n_events = state.n_graphs = state.n_execs = state.n_registered =
        0;
    memset(retained, 0, sizeof retained);
    pthread_mutex_unlock(&lock);
}

// Every driver function calls this first. Takes the lock and returns the status to return. device: -1 for the current device.
static CUresult call_begin(int device) {
    pthread_mutex_lock(&lock);
    state.n_calls++;
    if (state.fail_at > 0 && --state.fail_at == 0) {
        return state.fail_with;
    }
    device = device >= 0 ? device : current != NULL ? current->device : 0;
    return device < STANDIN_MAX_DEVICES ? state.lost[device] : CUDA_ERROR_INVALID_VALUE;
}
static CUresult call_end(CUresult rc) {
    pthread_mutex_unlock(&lock);
    return rc;
}
static int current_device(void) {
    return current != NULL ? current->device : 0;
}

// ---- the driver and its devices ----

EXPORT CUresult cuInit(unsigned flags) {
    (void) flags;
    const char *version = getenv("STANDIN_VERSION"), *error = getenv("STANDIN_INIT_ERROR"), *n = getenv("STANDIN_DEVICES");
    CUresult rc = call_begin(0);
    state.version = version != NULL ? atoi(version) : state.version;
    state.n_devices = n != NULL ? atoi(n) : state.n_devices;
    rc = error != NULL ? atoi(error) : rc;
    return call_end(rc);
}
EXPORT CUresult cuDriverGetVersion(int *version) {
    const CUresult rc = call_begin(0);
    *version = state.version;
    return call_end(rc);
}
EXPORT CUresult cuGetErrorName(CUresult error, const char **name) {
    *name = error == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : error == 719 ? "CUDA_ERROR_LAUNCH_FAILED" : "CUDA_ERROR_OF_THE_STANDIN";
    return error == 12345 ? 1 : 0;
}
EXPORT CUresult cuGetErrorString(CUresult error, const char **text) {
    *text = error == 2 ? "out of memory" : "made to fail";
    return error == 12345 ? 1 : 0;
}
EXPORT CUresult cuDeviceGetCount(int *n) {
    const CUresult rc = call_begin(0);
    *n = state.n_devices;
    return call_end(rc);
}
EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    *device = ordinal;
    return call_end(call_begin(0));
}
EXPORT CUresult cuDeviceGetName(char *name, int size, CUdevice device) {
    snprintf(name, (size_t) size, "Stand-in %d", device);
    return call_end(call_begin(0));
}
EXPORT CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
    (void) device;
    switch (attribute) {
        case CU_ATTRIBUTE_COMPUTE_MAJOR: *value = state.major; break;
        case CU_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 4; break;
        case CU_ATTRIBUTE_MAX_SHARED_PER_BLOCK_OPTIN: *value = state.shared; break;
        default: *value = 0;
    }
    return call_end(call_begin(0));
}
EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice device) {
    const CUresult rc = call_begin(device);
    if (rc == CUDA_SUCCESS) {
        contexts[device].device = device;
        *ctx = &contexts[device];
        state.n_contexts += retained[device]++ == 0;
    }
    return call_end(rc);
}
EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    const CUresult rc = call_begin(device);
    state.n_contexts -= --retained[device] == 0;
    return call_end(rc);
}
EXPORT CUresult cuCtxSetCurrent(CUcontext ctx) {
    const CUresult rc = call_begin(ctx != NULL ? ctx->device : 0);
    current = rc == CUDA_SUCCESS ? ctx : current;
    return call_end(rc);
}
EXPORT CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
    const CUresult rc = call_begin(device);
    *can = device != peer && !state.no_peers;
    return call_end(rc);
}
EXPORT CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
    (void) peer;
    (void) flags;
    return call_end(call_begin(-1));
}

// ---- modules and launches ----

EXPORT CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    const CUresult rc = call_begin(-1);
    (void) image;
    *module = rc == CUDA_SUCCESS ? object_new(sizeof **module) : NULL;
    state.n_modules += rc == CUDA_SUCCESS;
    return call_end(rc);
}
EXPORT CUresult cuModuleUnload(CUmodule module) {
    const CUresult rc = call_begin(-1);
    object_free(module);
    state.n_modules--;
    return call_end(rc);
}
EXPORT CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    CUresult rc = call_begin(-1);
    (void) module;
    if (rc == CUDA_SUCCESS) {
        struct CUfunc_st *f = calloc(1, sizeof *f);
        snprintf(f->name, sizeof f->name, "%s", name);
        f->next = functions;
        functions = f;
        *function = f;
    }
    return call_end(rc);
}
EXPORT CUresult cuModuleGetFunctionCount(unsigned *n, CUmodule module) {
    const CUresult rc = call_begin(-1);
    (void) module;
    *n = 2;
    return call_end(rc);
}
EXPORT CUresult cuModuleEnumerateFunctions(CUfunction *list, unsigned n, CUmodule module) {
    static struct CUfunc_st any;
    const CUresult rc = call_begin(-1);
    (void) module;
    for (unsigned i = 0; i < n; i++) {
        list[i] = &any;
    }
    return call_end(rc);
}
EXPORT CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value) {
    (void) function, (void) attribute, (void) value;
    return call_end(call_begin(-1));
}
EXPORT CUresult cuFuncGetAttribute(int *value, int attribute, CUfunction function) {
    (void) attribute, (void) function;
    *value = LOCAL_SIZE;
    return call_end(call_begin(-1));
}
EXPORT CUresult cuFuncLoad(CUfunction function) {
    (void) function;
    return call_end(call_begin(-1));
}
EXPORT CUresult cuCtxGetLimit(size_t *value, int limit) {
    *value = 1024;
    return call_end(limit == CU_LIMIT_STACK_SIZE ? call_begin(-1) : CUDA_ERROR_INVALID_VALUE);
}
EXPORT CUresult cuCtxSetLimit(int limit, size_t value) {
    const CUresult rc = call_begin(-1);
    return call_end(rc == CUDA_SUCCESS && (limit != CU_LIMIT_STACK_SIZE || value != LOCAL_SIZE) ? CUDA_ERROR_INVALID_VALUE : rc);
}
static CUresult launched(CUresult rc, CUfunction function, CUstream stream) {
    if (rc == CUDA_SUCCESS && stream->capturing) {
        stream->n_captured++;
    } else if (rc == CUDA_SUCCESS) {
        state.n_launches++;
        memcpy(state.last_kernel, function->name, sizeof state.last_kernel);
    }
    return call_end(rc);
}
EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
    unsigned shared_size, CUstream stream, void **params, void **extra) {
    CUresult rc = call_begin(-1);
    (void) params, (void) extra;
    const bool is_sane = shared_size <= (unsigned) state.shared && gx > 0 && gy > 0 && gy < 65536 && gz > 0 && gz < 65536 &&
                         bx * by * bz > 0 && bx * by * bz <= 1024;
    return launched(rc == CUDA_SUCCESS && !is_sane ? CUDA_ERROR_INVALID_VALUE : rc, function, stream);
}
EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params, void **extra) {
    CUresult rc = call_begin(-1);
    (void) params, (void) extra;
    state.n_overlaps += config->n_attrs > 0;
    const bool is_sane = config->shared_size <= (unsigned) state.shared;
    return launched(rc == CUDA_SUCCESS && !is_sane ? CUDA_ERROR_INVALID_VALUE : rc, function, config->stream);
}

// ---- memory ----

static CUresult block_take(CUresult rc, void **p, size_t size, int device) {
    if (rc == CUDA_SUCCESS && device >= 0 && state.used[device] + size > state.memory) {
        rc = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    struct block *b = calloc(1, sizeof *b);
    *b = (struct block){.size = size, .device = device, .next = blocks};
    if (posix_memalign(&b->p, 512, size) != 0) {
        free(b);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    blocks = b;
    *p = b->p;
    if (device >= 0) {
        state.used[device] += size;
        state.n_buffers++;
    } else {
        state.n_pinned++;
        state.n_pins++;
    }
    return rc;
}
static struct block *block_find(const void *p) {
    for (struct block *b = blocks; b != NULL; b = b->next) {
        if ((const char *) p >= (char *) b->p && (const char *) p < (char *) b->p + b->size) {
            return b;
        }
    }
    return NULL;
}
static void block_free(void *p) {
    for (struct block **at = &blocks; *at != NULL; at = &(*at)->next) {
        struct block *b = *at;
        if (b->p == p) {
            *at = b->next;
            if (b->device >= 0) {
                state.used[b->device] -= b->size;
                state.n_buffers--;
            } else if (b->device == -1) {
                state.n_pinned--;
            }
            if (b->device != -2) {
                free(b->p);
            }
            free(b);
            return;
        }
    }
}
EXPORT CUresult cuMemGetInfo_v2(size_t *n_free, size_t *n_total) {
    const CUresult rc = call_begin(-1);
    *n_total = state.memory;
    *n_free = state.memory - state.used[current_device()];
    return call_end(rc);
}
EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t size) {
    void *at = NULL;
    const CUresult rc = block_take(call_begin(-1), &at, size, current_device());
    state.n_allocs++;
    *p = (CUdeviceptr) (uintptr_t) at;
    return call_end(rc);
}
EXPORT CUresult cuMemFree_v2(CUdeviceptr p) {
    const CUresult rc = call_begin(-1);
    work_do_everything();
    block_free((void *) (uintptr_t) p);
    return call_end(rc);
}
EXPORT CUresult cuMemHostAlloc(void **p, size_t size, unsigned flags) {
    (void) flags;
    const CUresult rc = call_begin(-1);
    return call_end(block_take(rc == CUDA_SUCCESS && state.no_pinned ? CUDA_ERROR_OUT_OF_MEMORY : rc, p, size, -1));
}
EXPORT CUresult cuMemFreeHost(void *p) {
    const CUresult rc = call_begin(-1);
    work_do_everything();
    block_free(p);
    return call_end(rc);
}
EXPORT CUresult cuMemHostRegister_v2(void *p, size_t size, unsigned flags) {
    const CUresult rc = call_begin(-1);
    (void) flags;
    if (rc == CUDA_SUCCESS) {
        struct block *b = calloc(1, sizeof *b);
        *b = (struct block){.p = p, .size = size, .device = -2, .next = blocks};
        blocks = b;
        state.n_registered++;
    }
    return call_end(rc);
}
EXPORT CUresult cuMemHostUnregister(void *p) {
    const CUresult rc = call_begin(-1);
    block_free(p);
    state.n_registered--;
    return call_end(rc);
}
EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *device, void *p, unsigned flags) {
    (void) flags;
    *device = (CUdeviceptr) (uintptr_t) p;
    return call_end(call_begin(-1));
}
EXPORT CUresult cuPointerGetAttribute(void *value, int attribute, CUdeviceptr p) {
    CUresult rc = call_begin(-1);
    const struct block *b = block_find((const void *) (uintptr_t) p);
    if (rc == CUDA_SUCCESS && (b == NULL || attribute != CU_POINTER_ATTRIBUTE_MEMORY_TYPE)) {
        rc = CUDA_ERROR_INVALID_VALUE;
    }
    if (rc == CUDA_SUCCESS) {
        *(unsigned *) value = b->device >= 0 ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
    }
    return call_end(rc);
}

// ---- the work of streams ----

static void work_queue(CUstream stream, struct work work) {
    struct work **at = &stream->first, *w = calloc(1, sizeof *w);
    while (*at != NULL) {
        at = &(*at)->next;
    }
    *w = work;
    *at = w;
    stream->n_queued++;
}
// Does the first n pieces of work of a stream, which may be gone.
static void work_do(long id, long n) {
    CUstream stream = streams;
    while (stream != NULL && stream->id != id) {
        stream = stream->next;
    }
    while (stream != NULL && stream->n_done < n && stream->first != NULL) {
        struct work *w = stream->first;
        if (w->wait_id != 0) {
            work_do(w->wait_id, w->n);
        } else {
            memmove(w->to, w->from, w->size);
        }
        stream->first = w->next;
        stream->n_done++;
        free(w);
    }
}
static void work_drop(CUstream stream) {
    while (stream->first != NULL) {
        struct work *w = stream->first;
        stream->first = w->next;
        free(w);
    }
}
static void work_do_all(CUstream stream) {
    work_do(stream->id, stream->n_queued);
}

// The driver waits for all work before it frees memory.
static void work_do_everything(void) {
    for (CUstream stream = streams; stream != NULL; stream = stream->next) {
        work_do_all(stream);
    }
}

static CUresult copy(void *to, const void *from, size_t size, CUstream stream) {
    const CUresult rc = call_begin(-1);
    if (rc == CUDA_SUCCESS && stream->capturing) {
        stream->n_captured++;
    } else if (rc == CUDA_SUCCESS) {
        work_queue(stream, (struct work){.to = to, .from = from, .size = size});
        if (!state.is_late || block_find(to) == NULL || block_find(from) == NULL) {
            work_do_all(stream);
        }
        state.n_copies++;
    }
    return call_end(rc);
}
EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t size, CUstream stream) {
    return copy((void *) (uintptr_t) to, from, size, stream);
}
EXPORT CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t size, CUstream stream) {
    return copy(to, (const void *) (uintptr_t) from, size, stream);
}
EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
    pthread_mutex_lock(&lock);
    state.n_device_copies++;
    pthread_mutex_unlock(&lock);
    return copy((void *) (uintptr_t) to, (const void *) (uintptr_t) from, size, stream);
}
EXPORT CUresult cuMemcpyPeerAsync(
    CUdeviceptr to, CUcontext to_ctx, CUdeviceptr from, CUcontext from_ctx, size_t size, CUstream stream) {
    (void) to_ctx, (void) from_ctx;
    return copy((void *) (uintptr_t) to, (const void *) (uintptr_t) from, size, stream);
}
EXPORT CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *c, CUstream stream) {
    const CUresult rc = call_begin(-1);
    work_do_all(stream);
    const char *from = c->src_type == CU_MEMORYTYPE_HOST ? c->src_host : (const char *) (uintptr_t) c->src_device;
    char *to = c->dst_type == CU_MEMORYTYPE_HOST ? c->dst_host : (char *) (uintptr_t) c->dst_device;
    for (size_t i = 0; rc == CUDA_SUCCESS && i < c->height; i++) {
        memcpy(to + i * c->dst_pitch, from + i * c->src_pitch, c->width);
    }
    state.n_copies++;
    return call_end(rc);
}
EXPORT CUresult cuMemsetD8Async(CUdeviceptr p, unsigned char value, size_t size, CUstream stream) {
    const CUresult rc = call_begin(-1);
    if (rc == CUDA_SUCCESS && stream->capturing) {
        stream->n_captured++;
    } else if (rc == CUDA_SUCCESS) {
        work_do_all(stream);
        memset((void *) (uintptr_t) p, value, size);
    }
    return call_end(rc);
}

// ---- streams, events, graphs ----

EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
    const CUresult rc = call_begin(-1);
    (void) flags;
    if (rc == CUDA_SUCCESS) {
        *stream = object_new(sizeof **stream);
        (*stream)->device = current_device();
        (*stream)->id = ++last_stream_id;
        (*stream)->next = streams;
        streams = *stream;
        state.n_streams++;
    }
    return call_end(rc);
}
EXPORT CUresult cuStreamDestroy_v2(CUstream stream) {
    const CUresult rc = call_begin(-1);
    for (CUstream *at = &streams; *at != NULL; at = &(*at)->next) {
        if (*at == stream) {
            work_do_all(stream);
            *at = stream->next;
            break;
        }
    }
    object_free(stream);
    state.n_streams--;
    return call_end(rc);
}
EXPORT CUresult cuStreamSynchronize(CUstream stream) {
    const CUresult rc = call_begin(-1);
    if (rc == CUDA_SUCCESS) {
        work_do_all(stream);
    }
    state.n_waits++;
    return call_end(rc == CUDA_SUCCESS && stream->capturing ? CUDA_ERROR_INVALID_VALUE : rc);
}
EXPORT CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
    const CUresult rc = call_begin(-1);
    (void) flags;
    if (rc == CUDA_SUCCESS && event->id != 0) {
        work_queue(stream, (struct work){.wait_id = event->id, .n = event->n});
    }
    return call_end(rc);
}
EXPORT CUresult cuStreamBeginCapture_v2(CUstream stream, int mode) {
    const CUresult rc = call_begin(-1);
    (void) mode;
    stream->capturing = rc == CUDA_SUCCESS;
    stream->n_captured = 0;
    return call_end(rc);
}
EXPORT CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
    const CUresult rc = call_begin(-1);
    stream->capturing = false;
    *graph = NULL;
    if (rc == CUDA_SUCCESS) {
        *graph = object_new(sizeof **graph);
        (*graph)->n_nodes = stream->n_captured;
        state.n_graphs++;
    }
    return call_end(rc);
}
EXPORT CUresult cuEventCreate(CUevent *event, unsigned flags) {
    const CUresult rc = call_begin(-1);
    (void) flags;
    if (rc == CUDA_SUCCESS) {
        *event = object_new(sizeof **event);
        state.n_events++;
    }
    return call_end(rc);
}
EXPORT CUresult cuEventDestroy_v2(CUevent event) {
    const CUresult rc = call_begin(-1);
    object_free(event);
    state.n_events--;
    return call_end(rc);
}
EXPORT CUresult cuEventRecord(CUevent event, CUstream stream) {
    const CUresult rc = call_begin(-1);
    if (rc == CUDA_SUCCESS) {
        event->id = stream->id;
        event->n = stream->n_queued;
    }
    return call_end(rc);
}
EXPORT CUresult cuEventSynchronize(CUevent event) {
    const CUresult rc = call_begin(-1);
    if (rc == CUDA_SUCCESS) {
        work_do(event->id, event->n);
    }
    state.n_waits++;
    return call_end(rc);
}
EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
    const CUresult rc = call_begin(-1);
    (void) flags;
    if (rc == CUDA_SUCCESS) {
        *exec = object_new(sizeof **exec);
        (*exec)->n_nodes = graph->n_nodes;
        state.n_execs++;
        state.n_instantiated++;
    }
    return call_end(rc);
}
EXPORT CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info) {
    const CUresult rc = call_begin(-1);
    (void) info;
    if (rc == CUDA_SUCCESS && exec->n_nodes != graph->n_nodes) {
        return call_end(CUDA_ERROR_GRAPH_EXEC_UPDATE);
    }
    state.n_updates += rc == CUDA_SUCCESS;
    return call_end(rc);
}
EXPORT CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
    const CUresult rc = call_begin(-1);
    (void) exec, (void) stream;
    state.n_graph_launches += rc == CUDA_SUCCESS;
    return call_end(rc);
}
EXPORT CUresult cuGraphDestroy(CUgraph graph) {
    const CUresult rc = call_begin(-1);
    object_free(graph);
    state.n_graphs--;
    return call_end(rc);
}
EXPORT CUresult cuGraphExecDestroy(CUgraphExec exec) {
    const CUresult rc = call_begin(-1);
    object_free(exec);
    state.n_execs--;
    return call_end(rc);
}
