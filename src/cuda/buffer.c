// SPDX-License-Identifier: MIT
// buffer.c: device memory as ggml buffers, one cuMemAlloc per buffer and no pool. Buffer functions run on the stream of the
// device and wait for that stream only. set and get return nothing, so their failures make the next compute of the device fail.

#include "cuda/device.h"

#define ALIGNMENT 128

struct buffer {
    struct cuda_device *dev;
    void *base;
    void *registered; // host memory that is mapped into the device; NULL: the buffer has device memory
};

// ---- memory ----

// Fails if the limit of the device does not allow `size` more bytes.
static bool limit_check(struct cuda_device *dev, size_t size, const char *what) {
    size_t n_free = 0, n_total = 0;
    const CUresult rc = dev->cu->MemGetInfo(&n_free, &n_total);
    if (rc != CUDA_SUCCESS) {
        cuda_fail(dev, rc, "querying free memory");
        return false;
    }
    const size_t used = cuda_memory_used(dev, n_free);
    if (!gpu_memory_exceeds_limit(&dev->gpu, used, size)) {
        return true;
    }
    shim_error(GGML_STATUS_ALLOC_FAILED,
        "%s: cannot allocate %zu bytes for %s, because BERTH_MEMORY allows %zu bytes, and %zu are in use", dev->name, size, what,
        dev->gpu.memory_limit, used);
    return false;
}

void *cuda_memory_take(struct cuda_device *dev, size_t size, const char *what) {
    CUdeviceptr p = 0;
    if (dev->gpu.memory_limit > 0 && !limit_check(dev, size, what)) {
        return NULL;
    }
    const CUresult rc = dev->cu->MemAlloc(&p, size);
    atomic_fetch_add(&dev->n_allocs, 1);
    if (rc == CUDA_SUCCESS) {
        return (void *) (uintptr_t) p;
    }
    size_t n_free = 0, n_total = 0;
    if (dev->cu->MemGetInfo(&n_free, &n_total) != CUDA_SUCCESS) {
        n_free = n_total = 0;
    }
    cuda_fail(dev, rc, "cannot allocate %zu bytes for %s, %zu of %zu free", size, what, n_free, n_total);
    return NULL;
}

void cuda_memory_give_back(struct cuda_device *dev, void *p) {
    if (p == NULL || atomic_load(&dev->is_lost)) { // the driver has freed all memory of a lost device
        return;
    }
    const CUresult rc = dev->cu->MemFree(cuda_ptr(p));
    if (rc != CUDA_SUCCESS) {
        cuda_fail(dev, rc, "freeing device memory");
    }
}

// ---- buffers ----

static void buffer_free(ggml_backend_buffer_t buffer) {
    struct buffer *b = buffer->context;
    if (cuda_device_enter_to_free(b->dev)) {
        if (b->registered != NULL) {
            b->dev->cu->MemHostUnregister(b->registered);
        } else {
            cuda_memory_give_back(b->dev, b->base);
        }
    }
    shim_free(b);
}

static void *buffer_base(ggml_backend_buffer_t buffer) {
    return ((struct buffer *) buffer->context)->base;
}

// If rc is CUDA_SUCCESS, waits for the stream of the device. Reports and defers an error of rc or of the wait.
static enum ggml_status stream_finish(struct cuda_device *dev, CUresult rc, const char *what, size_t size) {
    if (rc == CUDA_SUCCESS) {
        rc = dev->cu->StreamSynchronize(dev->stream);
    }
    if (rc == CUDA_SUCCESS) {
        return GGML_STATUS_SUCCESS;
    }
    cuda_device_defer_error(dev);
    return cuda_fail(dev, rc, "%s, %zu bytes", what, size);
}

static void buffer_set(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor, const void *data, size_t offset, size_t size) {
    struct cuda_device *dev = ((struct buffer *) buffer->context)->dev;
    if (cuda_device_enter_or_defer(dev)) {
        stream_finish(dev, dev->cu->MemcpyHtoDAsync(cuda_ptr(tensor->data) + offset, data, size, dev->stream),
            "copying to the device", size);
    }
}

static void buffer_get(ggml_backend_buffer_t buffer, const struct ggml_tensor *tensor, void *data, size_t offset, size_t size) {
    struct cuda_device *dev = ((struct buffer *) buffer->context)->dev;
    if (cuda_device_enter_or_defer(dev)) {
        stream_finish(dev, dev->cu->MemcpyDtoHAsync(data, cuda_ptr(tensor->data) + offset, size, dev->stream),
            "copying from the device", size);
    }
}

static void buffer_memset(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor, uint8_t value, size_t offset, size_t size) {
    struct cuda_device *dev = ((struct buffer *) buffer->context)->dev;
    if (cuda_device_enter_or_defer(dev)) {
        stream_finish(
            dev, dev->cu->MemsetD8Async(cuda_ptr(tensor->data) + offset, value, size, dev->stream), "setting memory", size);
    }
}

static void buffer_clear(ggml_backend_buffer_t buffer, uint8_t value) {
    const struct buffer *b = buffer->context;
    struct cuda_device *dev = b->dev;
    if (buffer->size > 0 && cuda_device_enter_or_defer(dev)) {
        stream_finish(
            dev, dev->cu->MemsetD8Async(cuda_ptr(b->base), value, buffer->size, dev->stream), "setting memory", buffer->size);
    }
}

CUresult cuda_pieces_copy(struct cuda_device *dev, CUstream stream, const struct cuda_pieces *p) {
    const bool is_set = p->from != NULL;
    const CUDA_MEMCPY2D copy = {.src_type = is_set ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE,
        .src_host = p->from,
        .src_device = is_set ? 0 : p->at,
        .src_pitch = is_set ? p->host_step : p->device_step,
        .dst_type = is_set ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST,
        .dst_host = p->to,
        .dst_device = is_set ? p->at : 0,
        .dst_pitch = is_set ? p->device_step : p->host_step,
        .width = p->size,
        .height = p->n};
    return dev->cu->Memcpy2DAsync(&copy, stream);
}

static void buffer_set_2d(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor, const void *data, size_t offset, size_t size,
    size_t n, size_t device_step, size_t host_step) {
    struct cuda_device *dev = ((struct buffer *) buffer->context)->dev;
    const struct cuda_pieces p = {cuda_ptr(tensor->data) + offset, data, NULL, size, n, device_step, host_step};
    if (cuda_device_enter_or_defer(dev)) {
        stream_finish(dev, cuda_pieces_copy(dev, dev->stream, &p), "copying to the device", size * n);
    }
}

static void buffer_get_2d(ggml_backend_buffer_t buffer, const struct ggml_tensor *tensor, void *data, size_t offset, size_t size,
    size_t n, size_t device_step, size_t host_step) {
    struct cuda_device *dev = ((struct buffer *) buffer->context)->dev;
    const struct cuda_pieces p = {cuda_ptr(tensor->data) + offset, NULL, data, size, n, device_step, host_step};
    if (cuda_device_enter_or_defer(dev)) {
        stream_finish(dev, cuda_pieces_copy(dev, dev->stream, &p), "copying from the device", size * n);
    }
}

static bool buffer_copy(ggml_backend_buffer_t buffer, const struct ggml_tensor *src, struct ggml_tensor *dst) {
    const ggml_backend_buffer_t from_buffer = src->view_src != NULL ? src->view_src->buffer : src->buffer;
    struct cuda_device *to = ((struct buffer *) buffer->context)->dev, *from = cuda_buffer_device(from_buffer);
    const size_t size = ggml_nbytes(src);
    if (from == NULL || !ggml_is_contiguous(src) || !ggml_is_contiguous(dst) || ggml_nbytes(dst) != size ||
        cuda_device_enter(from) != GGML_STATUS_SUCCESS || cuda_device_enter(to) != GGML_STATUS_SUCCESS) {
        return false;
    }
    const CUresult rc =
        from == to ? to->cu->MemcpyDtoDAsync(cuda_ptr(dst->data), cuda_ptr(src->data), size, to->stream)
                   : to->cu->MemcpyPeerAsync(cuda_ptr(dst->data), to->ctx, cuda_ptr(src->data), from->ctx, size, to->stream);
    return stream_finish(to, rc, "copying", size) == GGML_STATUS_SUCCESS;
}

static const struct ggml_backend_buffer_i buffer_iface = {
    .free_buffer = buffer_free,
    .get_base = buffer_base,
    .memset_tensor = buffer_memset,
    .set_tensor = buffer_set,
    .get_tensor = buffer_get,
    .set_tensor_2d = buffer_set_2d,
    .get_tensor_2d = buffer_get_2d,
    .cpy_tensor = buffer_copy,
    .clear = buffer_clear,
};

struct cuda_device *cuda_buffer_device(ggml_backend_buffer_t buffer) {
    return buffer != NULL && buffer->iface.get_base == buffer_base ? ((struct buffer *) buffer->context)->dev : NULL;
}

// The buffer owns the memory at base. If the result is NULL, the caller still owns the memory.
static ggml_backend_buffer_t buffer_wrap(struct cuda_device *dev, void *base, void *registered, size_t size) {
    struct buffer *b = shim_calloc(1, sizeof *b);
    if (b == NULL) {
        shim_error(GGML_STATUS_ALLOC_FAILED, "%s: out of memory for a buffer", dev->name);
        return NULL;
    }
    *b = (struct buffer){.dev = dev, .base = base, .registered = registered};
    ggml_backend_buffer_t buffer = ggml_backend_buffer_init(&dev->gpu.buft, buffer_iface, b, size);
    if (buffer == NULL) {
        shim_free(b);
    }
    return buffer;
}

ggml_backend_buffer_t cuda_buffer_from_host(struct cuda_device *dev, void *ptr, size_t size) {
    if (ptr == NULL || size == 0 || cuda_device_enter(dev) != GGML_STATUS_SUCCESS) {
        return NULL;
    }
    CUresult rc = dev->cu->MemHostRegister(ptr, size, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
    if (rc != CUDA_SUCCESS) {
        cuda_fail(dev, rc, "registering %zu bytes of host memory", size);
        return NULL;
    }
    CUdeviceptr p = 0;
    rc = dev->cu->MemHostGetDevicePointer(&p, ptr, 0);
    ggml_backend_buffer_t buffer = rc == CUDA_SUCCESS ? buffer_wrap(dev, (void *) (uintptr_t) p, ptr, size) : NULL;
    if (buffer == NULL) {
        if (rc != CUDA_SUCCESS) {
            cuda_fail(dev, rc, "mapping host memory into the device");
        }
        dev->cu->MemHostUnregister(ptr);
    }
    return buffer;
}

// ---- the buffer type ----

static ggml_backend_buffer_t buft_alloc(ggml_backend_buffer_type_t buft, size_t size) {
    struct cuda_device *dev = buft->context;
    if (cuda_device_enter(dev) != GGML_STATUS_SUCCESS || !gpu_arena_check(&dev->gpu)) {
        return NULL;
    }
    void *base = cuda_memory_take(dev, size > 0 ? size : 1, "a buffer");
    if (base == NULL) {
        return NULL;
    }
    ggml_backend_buffer_t buffer = buffer_wrap(dev, base, NULL, size);
    if (buffer == NULL) {
        cuda_memory_give_back(dev, base);
    }
    return buffer;
}

static size_t buft_alignment(ggml_backend_buffer_type_t buft) {
    (void) buft;
    return ALIGNMENT;
}

void cuda_buft_init(struct cuda_device *dev) {
    dev->gpu.buft = (struct ggml_backend_buffer_type){
        .iface =
            {
                .get_name = gpu_buft_name,
                .alloc_buffer = buft_alloc,
                .get_alignment = buft_alignment,
                .get_alloc_size = gpu_buft_alloc_size,
            },
        .device = &dev->gpu.ggml,
        .context = dev,
    };
}
