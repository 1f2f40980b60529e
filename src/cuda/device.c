// SPDX-License-Identifier: MIT
// device.c: ggml's device interface of a GPU: properties, supported ops, buffer types and events.

#include "cuda/device.h"

static void dev_memory(ggml_backend_dev_t dev, size_t *n_free, size_t *n_total) {
    struct cuda_device *d = cuda_device_of(dev);
    *n_free = *n_total = 0;
    if (!atomic_load(&d->is_lost) && cuda_device_enter(d) == GGML_STATUS_SUCCESS) {
        const CUresult rc = d->cu->MemGetInfo(n_free, n_total);
        if (rc != CUDA_SUCCESS) {
            cuda_fail(d, rc, "querying free memory");
            *n_free = *n_total = 0;
        }
        gpu_memory_apply_limit(&d->gpu, cuda_memory_used(d, *n_free), n_free, n_total);
    }
}

static enum ggml_backend_dev_type dev_type(ggml_backend_dev_t dev) {
    return cuda_device_of(dev)->traits.integrated ? GGML_BACKEND_DEVICE_TYPE_IGPU : GGML_BACKEND_DEVICE_TYPE_GPU;
}

// If buffer_from_host_ptr is true, programs leave their weights in host memory. GPUs with separate memory read host memory
// slowly, so it is true only for integrated GPUs.
static void dev_props(ggml_backend_dev_t dev, struct ggml_backend_dev_props *props) {
    struct cuda_device *d = cuda_device_of(dev);
    *props = (struct ggml_backend_dev_props){
        .name = d->name,
        .description = d->description,
        .type = dev_type(dev),
        .device_id = d->pci,
        .caps = {.async = true,
            .host_buffer = true,
            .buffer_from_host_ptr = d->traits.integrated,
            .events = true,
            .mmap_support = !d->traits.integrated},
    };
    dev_memory(dev, &props->memory_free, &props->memory_total);
}

static ggml_backend_t dev_init(ggml_backend_dev_t dev, const char *params) {
    (void) params;
    return cuda_backend_new(cuda_device_of(dev));
}

static ggml_backend_buffer_type_t dev_host_buft(ggml_backend_dev_t dev) {
    (void) dev;
    return cuda_host_buft();
}

static ggml_backend_buffer_t dev_from_host(ggml_backend_dev_t dev, void *ptr, size_t size, size_t max_tensor_size) {
    (void) max_tensor_size;
    return cuda_buffer_from_host(cuda_device_of(dev), ptr, size);
}

static bool dev_supports_buft(ggml_backend_dev_t dev, ggml_backend_buffer_type_t buft) {
    const struct cuda_device *d = cuda_device_of(dev);
    return buft == &d->gpu.buft || (d->traits.integrated && buft == cuda_host_buft());
}

const struct ggml_backend_device_i cuda_device_iface = {
    .get_name = gpu_dev_name,
    .get_description = gpu_dev_description,
    .get_memory = dev_memory,
    .get_type = dev_type,
    .get_props = dev_props,
    .init_backend = dev_init,
    .get_buffer_type = gpu_dev_buft,
    .get_host_buffer_type = dev_host_buft,
    .buffer_from_host_ptr = dev_from_host,
    .supports_op = gpu_dev_supports_op,
    .supports_buft = dev_supports_buft,
    .offload_op = gpu_dev_offload_op,
    .event_new = cuda_event_new,
    .event_free = cuda_event_free,
    .event_synchronize = cuda_event_wait_host,
};
