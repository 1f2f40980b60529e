// SPDX-License-Identifier: MIT
// device.c: the functions of ggml's interfaces that are the same for every GPU.

#include "core/graph.h"
#include "gpu/gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- devices ----

const char *gpu_dev_name(ggml_backend_dev_t dev) {
    return gpu_device_of(dev)->name;
}

const char *gpu_dev_description(ggml_backend_dev_t dev) {
    return gpu_device_of(dev)->description;
}

ggml_backend_buffer_type_t gpu_dev_buft(ggml_backend_dev_t dev) {
    return &gpu_device_of(dev)->buft;
}

bool gpu_dev_supports_op(ggml_backend_dev_t dev, const struct ggml_tensor *op) {
    return op != NULL && gpu_supports_op(gpu_device_of(dev), op);
}

// Minimum columns of a product for which weights in host memory are worth copying to the device.
#define OFFLOAD_COLUMNS 32

bool gpu_dev_offload_op(ggml_backend_dev_t dev, const struct ggml_tensor *op) {
    (void) dev;
    switch (op->op) {
        case GGML_OP_GET_ROWS: return false;
        case GGML_OP_MUL_MAT_ID:
        case GGML_OP_ROPE:
        case GGML_OP_ROPE_BACK: return op->ne[2] >= OFFLOAD_COLUMNS;
        default: return op->ne[1] >= OFFLOAD_COLUMNS;
    }
}

void gpu_description_copy(const struct gpu_device *dev, char *description, size_t size) {
    if (description != NULL && size > 0) {
        snprintf(description, size, "%s", dev != NULL ? dev->description : "");
    }
}

void gpu_memory_query(struct gpu_device *dev, size_t *n_free, size_t *n_total) {
    size_t bytes_free = 0, bytes_total = 0;
    if (dev != NULL) {
        dev->ggml.iface.get_memory(&dev->ggml, &bytes_free, &bytes_total);
    }
    if (n_free != NULL) {
        *n_free = bytes_free;
    }
    if (n_total != NULL) {
        *n_total = bytes_total;
    }
}

bool gpu_env_is_set(const char *name) {
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' && strcmp(value, "0") != 0;
}

// ---- buffer types ----

const char *gpu_buft_name(ggml_backend_buffer_type_t buft) {
    return ((const struct gpu_device *) buft->context)->name;
}

// More than the tensor's size only if the op's row requests extra_size bytes.
size_t gpu_buft_alloc_size(ggml_backend_buffer_type_t buft, const struct ggml_tensor *tensor) {
    const struct gpu_device *dev = buft->context;
    const size_t size = ggml_nbytes(tensor);
    const struct gpu_op_row *row = gpu_op_row(dev, tensor->op);
    if (row == NULL || row->extra_size == NULL || tensor->view_src != NULL || ggml_nelements(tensor) == 0 ||
        !gpu_supports_op(dev, tensor)) {
        return size;
    }
    const size_t extra = row->extra_size(dev, tensor);
    return extra > 0 ? (size + 255) / 256 * 256 + 256 + extra : size;
}

// ---- the arena ----

void gpu_arena_fail(struct gpu_device *dev, size_t size, const struct ggml_cgraph *graph) {
    pthread_mutex_lock(&dev->lock);
    snprintf(dev->arena_text, sizeof dev->arena_text, "%s: cannot allocate %zu bytes of work memory for a graph of %d nodes",
        dev->name, size, graph->n_nodes);
    pthread_mutex_unlock(&dev->lock);
}

bool gpu_arena_check(struct gpu_device *dev) {
    char why[sizeof dev->arena_text];
    pthread_mutex_lock(&dev->lock);
    memcpy(why, dev->arena_text, sizeof why);
    dev->arena_text[0] = '\0';
    pthread_mutex_unlock(&dev->lock);
    if (why[0] != '\0') {
        shim_error(GGML_STATUS_ALLOC_FAILED, "%s", why);
    }
    return why[0] == '\0';
}
