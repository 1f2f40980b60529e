// SPDX-License-Identifier: MIT
// host_buffer.c: host buffers in pinned memory, so that copies overlap with other work. If the driver cannot pin memory, the
// buffer uses ordinary memory, and copies are slower.

#include "cuda/device.h"

#include "ggml-cuda.h"

#include <stdlib.h>

static struct cuda_device *devices; // the devices that reg.c lists
static int n_devices;

static const char *host_name(ggml_backend_buffer_type_t buft) {
    (void) buft;
    return GGML_CUDA_NAME "_Host";
}

// Memory that the driver pins in the context of one device is pinned for all devices, so any device is suitable.
struct cuda_device *cuda_device_enter_any(void) {
    for (int i = 0; i < n_devices; i++) {
        if (!atomic_load(&devices[i].is_lost) && cuda_device_enter(&devices[i]) == GGML_STATUS_SUCCESS) {
            return &devices[i];
        }
    }
    return NULL;
}

static void host_free(ggml_backend_buffer_t buffer) {
    for (int i = 0; i < n_devices; i++) { // if all devices are lost, the memory stays allocated until the process ends
        if (devices[i].ctx != NULL && cuda_device_enter_to_free(&devices[i])) {
            devices[i].cu->MemFreeHost(buffer->context);
            return;
        }
    }
}

static void *host_base(ggml_backend_buffer_t buffer) {
    return buffer->context;
}

static ggml_backend_buffer_t host_alloc(ggml_backend_buffer_type_t buft, size_t size) {
    struct cuda_device *dev = getenv("GGML_CUDA_NO_PINNED") == NULL ? cuda_device_enter_any() : NULL;
    void *p = NULL;
    CUresult rc = CUDA_ERROR_OUT_OF_MEMORY;
    if (dev != NULL && size > 0) {
        rc = dev->cu->MemHostAlloc(&p, size, CU_MEMHOSTALLOC_PORTABLE);
    }
    if (rc != CUDA_SUCCESS) {
        if (dev != NULL && size > 0) {
            char text[192];
            shim_log(GGML_LOG_LEVEL_WARN, "CUDA: cannot pin %zu bytes of host memory, copies will be slower: %s", size,
                cuda_error_text(dev->cu, rc, text, sizeof text));
        }
        return ggml_backend_buft_alloc_buffer(ggml_backend_cpu_buffer_type(), size);
    }
    // The buffer is a CPU buffer, except for its type and for how its memory is allocated and freed.
    ggml_backend_buffer_t buffer = ggml_backend_cpu_buffer_from_ptr(p, size);
    if (buffer == NULL) {
        dev->cu->MemFreeHost(p);
        return NULL;
    }
    buffer->buft = buft;
    buffer->iface.free_buffer = host_free;
    buffer->iface.get_base = host_base;
    buffer->context = p;
    return buffer;
}

static size_t host_alignment(ggml_backend_buffer_type_t buft) {
    (void) buft;
    return ggml_backend_buft_get_alignment(ggml_backend_cpu_buffer_type());
}

static bool host_is_host(ggml_backend_buffer_type_t buft) {
    (void) buft;
    return true;
}

static struct ggml_backend_buffer_type host_buft = {
    .iface = {.get_name = host_name, .alloc_buffer = host_alloc, .get_alignment = host_alignment, .is_host = host_is_host}};

void cuda_host_buft_init(struct cuda_device *all, int n) {
    devices = all;
    n_devices = n;
    host_buft.device = n > 0 ? &all[0].gpu.ggml : NULL;
}

ggml_backend_buffer_type_t cuda_host_buft(void) {
    return &host_buft;
}
