// SPDX-License-Identifier: MIT
// backend.c: a backend, which is one stream on a device. All work is asynchronous and in order; synchronize waits and reports
// failures. graph_optimize enlarges the arena. If graph_optimize was not called, graph_compute enlarges it.

#include "cuda/backend.h"

#include "backend/backend.h"

#include "ggml-cuda.h"

#pragma weak berth_backend_fail

static ggml_guid cuda_guid = {0xb1, 0x27, 0x3e, 0x5c, 0x90, 0x44, 0x4f, 0x0e, 0x8d, 0x1b, 0x62, 0x65, 0x72, 0x74, 0x68, 0x02};

static const char *backend_name(ggml_backend_t backend) {
    return ((struct cuda_backend *) backend->context)->dev->name;
}

static void backend_free(ggml_backend_t backend) {
    struct cuda_backend *b = backend->context;
    const struct cuda_driver *cu = b->dev->cu;
    const bool can_free = cuda_device_enter_to_free(b->dev);
    shim_log(GGML_LOG_LEVEL_DEBUG, "%s: %llu kernels launched separately, %llu graphs captured, %llu updated, %llu replayed",
        b->dev->name, (unsigned long long) b->n_launched, (unsigned long long) b->n_captured, (unsigned long long) b->n_updated,
        (unsigned long long) b->n_replayed);
    if (can_free && b->stream != NULL) {
        cu->StreamSynchronize(b->stream);
    }
    for (int i = 0; i < GPU_MAX_PLANS; i++) {
        if (b->execs[i].exec != NULL && !atomic_load(&b->dev->is_lost)) {
            cu->GraphExecDestroy(b->execs[i].exec);
        }
    }
    gpu_plans_fini(&b->plans);
    cuda_staging_free(b->staging, can_free);
    if (can_free) {
        cuda_memory_give_back(b->dev, b->arena);
        if (b->event != NULL) {
            cu->EventDestroy(b->event);
        }
        if (b->stream != NULL) {
            cu->StreamDestroy(b->stream);
        }
    }
    shim_free(b);
    shim_free(backend);
}

// Records an error of an asynchronous call. The next synchronize or compute of this backend reports it. what: the call; size: its
// bytes.
static void record_failure(ggml_backend_t backend, CUresult rc, const char *what, size_t size) {
    if (rc == CUDA_SUCCESS) {
        return;
    }
    struct cuda_backend *b = backend->context;
    cuda_fail(b->dev, rc, "%s, %zu bytes", what, size);
    if (berth_backend_fail != NULL) {
        berth_backend_fail(backend, "%s: %s failed (%zu bytes)", b->dev->name, what, size);
    } else {
        cuda_device_defer_error(b->dev);
    }
}

// Allocates the staging memory for a copy of this size, if it does not exist yet. Returns whether it exists. The device's context
// must be current.
static bool staging_ensure(struct cuda_backend *b, size_t size) {
    if (b->n_staging_threads == 0 || size < CUDA_STAGING_MIN) {
        return false;
    }
    if (b->staging == NULL) {
        b->staging = cuda_staging_new(b->dev, b->n_staging_threads);
        if (b->staging == NULL) {
            b->n_staging_threads = 0;
        }
    }
    return b->staging != NULL;
}

static CUresult copy_from_host(struct cuda_backend *b, CUdeviceptr to, const void *from, size_t size) {
    if (b->n_staging_threads > 0 && size >= CUDA_STAGING_MIN && !cuda_is_pinned(b->dev, from, size) && staging_ensure(b, size)) {
        return cuda_staging_copy(b->staging, b->stream, to, from, size);
    }
    return b->dev->cu->MemcpyHtoDAsync(to, from, size, b->stream);
}

static void set_async(ggml_backend_t backend, struct ggml_tensor *tensor, const void *data, size_t offset, size_t size) {
    struct cuda_backend *b = backend->context;
    if (cuda_device_enter_or_defer(b->dev)) {
        record_failure(backend, copy_from_host(b, cuda_ptr(tensor->data) + offset, data, size), "copying to the device", size);
    }
}

static void get_async(ggml_backend_t backend, const struct ggml_tensor *tensor, void *data, size_t offset, size_t size) {
    struct cuda_backend *b = backend->context;
    if (cuda_device_enter_or_defer(b->dev)) {
        record_failure(backend, b->dev->cu->MemcpyDtoHAsync(data, cuda_ptr(tensor->data) + offset, size, b->stream),
            "copying from the device", size);
    }
}

static void set_2d_async(ggml_backend_t backend, struct ggml_tensor *tensor, const void *data, size_t offset, size_t size,
    size_t n, size_t device_step, size_t host_step) {
    struct cuda_backend *b = backend->context;
    const struct cuda_pieces p = {cuda_ptr(tensor->data) + offset, data, NULL, size, n, device_step, host_step};
    if (cuda_device_enter_or_defer(b->dev)) {
        record_failure(backend, cuda_pieces_copy(b->dev, b->stream, &p), "copying to the device", size * n);
    }
}

static void get_2d_async(ggml_backend_t backend, const struct ggml_tensor *tensor, void *data, size_t offset, size_t size,
    size_t n, size_t device_step, size_t host_step) {
    struct cuda_backend *b = backend->context;
    const struct cuda_pieces p = {cuda_ptr(tensor->data) + offset, NULL, data, size, n, device_step, host_step};
    if (cuda_device_enter_or_defer(b->dev)) {
        record_failure(backend, cuda_pieces_copy(b->dev, b->stream, &p), "copying from the device", size * n);
    }
}

// Copies on the stream of backend_src, after the work that computes src. The stream of backend_dst waits for the copy.
static bool copy_async(
    ggml_backend_t backend_src, ggml_backend_t backend_dst, const struct ggml_tensor *src, struct ggml_tensor *dst) {
    if (!ggml_backend_is_cuda(backend_src) || !ggml_backend_is_cuda(backend_dst)) {
        return false;
    }
    struct cuda_backend *from = backend_src->context, *to = backend_dst->context;
    const size_t size = ggml_nbytes(src);
    if (cuda_buffer_device(gpu_buffer_of(src)) != from->dev || cuda_buffer_device(gpu_buffer_of(dst)) != to->dev ||
        ggml_nbytes(dst) != size || cuda_device_enter(to->dev) != GGML_STATUS_SUCCESS ||
        cuda_device_enter(from->dev) != GGML_STATUS_SUCCESS) {
        return false;
    }
    const struct cuda_driver *cu = from->dev->cu;
    CUresult rc = from->dev == to->dev ? cu->MemcpyDtoDAsync(cuda_ptr(dst->data), cuda_ptr(src->data), size, from->stream)
                                       : cu->MemcpyPeerAsync(cuda_ptr(dst->data), to->dev->ctx, cuda_ptr(src->data),
                                             from->dev->ctx, size, from->stream);
    if (rc == CUDA_SUCCESS && backend_src != backend_dst) {
        rc = cu->EventRecord(from->event, from->stream);
        if (rc == CUDA_SUCCESS) {
            rc = cuda_device_enter(to->dev) == GGML_STATUS_SUCCESS ? cu->StreamWaitEvent(to->stream, from->event, 0)
                                                                   : CUDA_ERROR_INVALID_VALUE;
        }
    }
    if (rc != CUDA_SUCCESS) {
        record_failure(backend_src, rc, "copying between backends", size);
        return false;
    }
    return true;
}

static void backend_synchronize(ggml_backend_t backend) {
    struct cuda_backend *b = backend->context;
    if (cuda_device_enter_or_defer(b->dev)) {
        record_failure(backend, b->dev->cu->StreamSynchronize(b->stream), "waiting for the device", 0);
    }
}

static enum ggml_status graph_compute(ggml_backend_t backend, struct ggml_cgraph *graph) {
    return cuda_compute(backend->context, graph);
}

static void event_record(ggml_backend_t backend, ggml_backend_event_t event) {
    struct cuda_backend *b = backend->context;
    if (cuda_device_enter_or_defer(b->dev)) {
        record_failure(backend, b->dev->cu->EventRecord(event->context, b->stream), "recording an event", 0);
    }
}

static void event_wait(ggml_backend_t backend, ggml_backend_event_t event) {
    struct cuda_backend *b = backend->context;
    if (event->device->iface.event_new != cuda_event_new) { // for an event of another kind of device, the host waits
        event->device->iface.event_synchronize(event->device, event);
    } else if (cuda_device_enter_or_defer(b->dev)) {
        record_failure(backend, b->dev->cu->StreamWaitEvent(b->stream, event->context, 0), "waiting for an event", 0);
    }
}

// Schedulers call this function before they allocate buffers. If the arena cannot be allocated, the next buffer allocation of the
// device fails and reports the reason.
static void graph_optimize(ggml_backend_t backend, struct ggml_cgraph *graph, struct ggml_backend_graph_optimize_params *params) {
    struct cuda_backend *b = backend->context;
    cuda_mv_gather(graph);
    if (gpu_plans_keep(&b->plans, graph, params)) {
        cuda_experts_keep(graph, params);
    }
    const size_t size = gpu_graph_work_size(&b->plans, graph);
    if (size <= b->arena_size || atomic_load(&b->dev->is_lost) || cuda_device_enter(b->dev) != GGML_STATUS_SUCCESS) {
        return;
    }
    if (!cuda_arena_grow(b, size)) {
        gpu_arena_fail(&b->dev->gpu, size, graph);
    }
}

static const struct ggml_backend_i backend_iface = {
    .get_name = backend_name,
    .free = backend_free,
    .set_tensor_async = set_async,
    .get_tensor_async = get_async,
    .set_tensor_2d_async = set_2d_async,
    .get_tensor_2d_async = get_2d_async,
    .cpy_tensor_async = copy_async,
    .synchronize = backend_synchronize,
    .graph_compute = graph_compute,
    .event_record = event_record,
    .event_wait = event_wait,
    .graph_optimize = graph_optimize,
};

ggml_backend_t cuda_backend_new(struct cuda_device *dev) {
    if (cuda_device_enter(dev) != GGML_STATUS_SUCCESS || cuda_kernels_load(dev) != GGML_STATUS_SUCCESS) {
        return NULL;
    }
    struct cuda_backend *b = shim_calloc(1, sizeof *b);
    ggml_backend_t backend = shim_calloc(1, sizeof *backend);
    if (b == NULL || backend == NULL) {
        shim_error(GGML_STATUS_ALLOC_FAILED, "%s: out of memory for a backend", dev->name);
        shim_free(b);
        shim_free(backend);
        return NULL;
    }
    b->dev = dev;
    b->plans.dev = &dev->gpu;
    b->n_staging_threads = cuda_staging_n_threads(dev);
    b->no_graphs = gpu_env_is_set("GGML_CUDA_DISABLE_GRAPHS");
    b->plans.no_fusion = gpu_env_is_set("GGML_CUDA_DISABLE_FUSION");
    *backend = (struct ggml_backend){.guid = &cuda_guid, .iface = backend_iface, .device = &dev->gpu.ggml, .context = b};
    CUresult rc = dev->cu->StreamCreate(&b->stream, CU_STREAM_NON_BLOCKING);
    if (rc == CUDA_SUCCESS) {
        rc = dev->cu->EventCreate(&b->event, CU_EVENT_DISABLE_TIMING);
    }
    if (rc != CUDA_SUCCESS) {
        cuda_fail(dev, rc, "creating a stream");
        backend_free(backend);
        return NULL;
    }
    return backend;
}

enum ggml_status cuda_backend_reserve(ggml_backend_t backend, const struct ggml_cgraph *graph) {
    struct cuda_backend *b = backend->context;
    enum ggml_status status = cuda_device_enter(b->dev);
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    return gpu_plan_reserve(&b->plans, graph) && cuda_arena_grow(b, gpu_graph_work_size(&b->plans, graph))
               ? GGML_STATUS_SUCCESS
               : GGML_STATUS_ALLOC_FAILED;
}

void cuda_backend_reserve_copies(ggml_backend_t backend, size_t size) {
    struct cuda_backend *b = backend->context;
    if (cuda_device_enter_or_defer(b->dev)) {
        staging_ensure(b, size);
    }
}

size_t cuda_backend_reserve_size(ggml_backend_t backend, const struct ggml_cgraph *graph) {
    return gpu_graph_work_size(&((struct cuda_backend *) backend->context)->plans, graph);
}

bool ggml_backend_is_cuda(ggml_backend_t backend) {
    return backend != NULL && backend->guid == &cuda_guid;
}

size_t cuda_backend_n_allocs(ggml_backend_t backend) {
    return ggml_backend_is_cuda(backend) ? atomic_load(&((struct cuda_backend *) backend->context)->dev->n_allocs) : 0;
}

// ---- events ----

ggml_backend_event_t cuda_event_new(ggml_backend_dev_t dev) {
    struct cuda_device *d = cuda_device_of(dev);
    CUevent event = NULL;
    if (cuda_device_enter(d) != GGML_STATUS_SUCCESS) {
        return NULL;
    }
    const CUresult rc = d->cu->EventCreate(&event, CU_EVENT_DISABLE_TIMING);
    if (rc != CUDA_SUCCESS) {
        cuda_fail(d, rc, "creating an event");
        return NULL;
    }
    ggml_backend_event_t e = shim_calloc(1, sizeof *e);
    if (e == NULL) {
        shim_error(GGML_STATUS_ALLOC_FAILED, "%s: out of memory for an event", d->name);
        d->cu->EventDestroy(event);
        return NULL;
    }
    *e = (struct ggml_backend_event){.device = dev, .context = event};
    return e;
}

void cuda_event_free(ggml_backend_dev_t dev, ggml_backend_event_t event) {
    struct cuda_device *d = cuda_device_of(dev);
    if (cuda_device_enter_to_free(d)) {
        d->cu->EventDestroy(event->context);
    }
    shim_free(event);
}

void cuda_event_wait_host(ggml_backend_dev_t dev, ggml_backend_event_t event) {
    struct cuda_device *d = cuda_device_of(dev);
    if (cuda_device_enter(d) == GGML_STATUS_SUCCESS) {
        const CUresult rc = d->cu->EventSynchronize(event->context);
        if (rc == CUDA_SUCCESS) {
            return;
        }
        cuda_fail(d, rc, "waiting for an event");
    }
    cuda_device_defer_error(d);
}

// ---- fusions of the last graph ----

size_t cuda_backend_explain(ggml_backend_t backend, char *buf, size_t size) {
    if (!ggml_backend_is_cuda(backend) || buf == NULL || size == 0) {
        return 0;
    }
    return gpu_plans_explain(&((const struct cuda_backend *) backend->context)->plans, buf, size);
}
