// SPDX-License-Identifier: MIT
// buffer.c: buffers: the memory of tensors on one device, with what its type says about it.
// A buffer of size 0 has no memory and no functions of its own. multi.c makes one of several.

#include "backend/backend.h"

// For backends: wraps context. On NULL the context is still the caller's.
ggml_backend_buffer_t ggml_backend_buffer_init(
    ggml_backend_buffer_type_t buft, struct ggml_backend_buffer_i iface, void *context, size_t size) {
    ggml_backend_buffer_t buffer = berth_malloc(sizeof *buffer);
    if (buffer == NULL) {
        berth_fail(GGML_STATUS_ALLOC_FAILED, "ggml_backend_buffer_init: out of memory for a buffer of %zu bytes of type %s", size,
            buft != NULL ? ggml_backend_buft_name(buft) : "(NULL)");
        return NULL;
    }
    *buffer = (struct ggml_backend_buffer){
        .iface = iface,
        .buft = buft,
        .context = context,
        .size = size,
        .usage = GGML_BACKEND_BUFFER_USAGE_ANY,
    };
    return buffer;
}

void ggml_backend_buffer_free(ggml_backend_buffer_t buffer) {
    if (buffer == NULL) {
        return;
    }
    if (buffer->iface.free_buffer != NULL) {
        buffer->iface.free_buffer(buffer);
    }
    berth_free(buffer);
}

const char *ggml_backend_buffer_name(ggml_backend_buffer_t buffer) {
    return buffer != NULL ? ggml_backend_buft_name(buffer->buft) : NULL;
}

size_t ggml_backend_buffer_get_size(ggml_backend_buffer_t buffer) {
    return buffer != NULL ? buffer->size : 0;
}

// NULL for an empty buffer, and for one made of several, which has no single start.
void *ggml_backend_buffer_get_base(ggml_backend_buffer_t buffer) {
    if (buffer == NULL || buffer->size == 0) {
        return NULL;
    }
    return buffer->iface.get_base != NULL ? buffer->iface.get_base(buffer) : NULL;
}

enum ggml_status ggml_backend_buffer_init_tensor(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor) {
    if (buffer == NULL || tensor == NULL) {
        return berth_fail(
            GGML_STATUS_FAILED, "ggml_backend_buffer_init_tensor: the %s is NULL", buffer == NULL ? "buffer" : "tensor");
    }
    return buffer->iface.init_tensor != NULL ? buffer->iface.init_tensor(buffer, tensor) : GGML_STATUS_SUCCESS;
}

void ggml_backend_buffer_clear(ggml_backend_buffer_t buffer, uint8_t value) {
    if (buffer == NULL || buffer->size == 0) {
        return;
    }
    if (buffer->iface.clear == NULL) {
        berth_fail(GGML_STATUS_FAILED, "ggml_backend_buffer_clear: a buffer of type %s cannot be cleared",
            ggml_backend_buffer_name(buffer));
        return;
    }
    buffer->iface.clear(buffer, value);
}

void ggml_backend_buffer_reset(ggml_backend_buffer_t buffer) {
    if (buffer != NULL && buffer->iface.reset != NULL) {
        buffer->iface.reset(buffer);
    }
}

void ggml_backend_buffer_set_usage(ggml_backend_buffer_t buffer, enum ggml_backend_buffer_usage usage) {
    if (buffer == NULL) {
        return;
    }
    buffer->usage = usage;
    if (ggml_backend_buffer_is_multi_buffer(buffer)) {
        ggml_backend_multi_buffer_set_usage(buffer, usage);
    }
    const struct berth_several *several = berth_several_get();
    if (several != NULL) {
        several->set_usage(buffer, usage);
    }
}

enum ggml_backend_buffer_usage ggml_backend_buffer_get_usage(ggml_backend_buffer_t buffer) {
    return buffer != NULL ? buffer->usage : GGML_BACKEND_BUFFER_USAGE_ANY;
}

// ---- what the type says ----

ggml_backend_buffer_type_t ggml_backend_buffer_get_type(ggml_backend_buffer_t buffer) {
    return buffer != NULL ? buffer->buft : NULL;
}

size_t ggml_backend_buffer_get_alignment(ggml_backend_buffer_t buffer) {
    return ggml_backend_buft_get_alignment(ggml_backend_buffer_get_type(buffer));
}

size_t ggml_backend_buffer_get_max_size(ggml_backend_buffer_t buffer) {
    return ggml_backend_buft_get_max_size(ggml_backend_buffer_get_type(buffer));
}

size_t ggml_backend_buffer_get_alloc_size(ggml_backend_buffer_t buffer, const struct ggml_tensor *tensor) {
    return ggml_backend_buft_get_alloc_size(ggml_backend_buffer_get_type(buffer), tensor);
}

bool ggml_backend_buffer_is_host(ggml_backend_buffer_t buffer) {
    return ggml_backend_buft_is_host(ggml_backend_buffer_get_type(buffer));
}
