// SPDX-License-Identifier: MIT
// multi.c: one buffer made of several, for tensors that do not fit into one of the type's largest size.
// It owns its parts. Tensors lie in the parts and name them as their buffer; the whole is for freeing, clearing and usage.

#include "backend/backend.h"

#include <string.h>

struct multi {
    size_t n_parts;
    ggml_backend_buffer_t parts[];
};

static void multi_free(ggml_backend_buffer_t buffer) {
    struct multi *multi = buffer->context;
    for (size_t i = 0; i < multi->n_parts; i++) {
        ggml_backend_buffer_free(multi->parts[i]);
    }
    berth_free(multi);
}

static void multi_clear(ggml_backend_buffer_t buffer, uint8_t value) {
    struct multi *multi = buffer->context;
    for (size_t i = 0; i < multi->n_parts; i++) {
        ggml_backend_buffer_clear(multi->parts[i], value);
    }
}

static void multi_reset(ggml_backend_buffer_t buffer) {
    struct multi *multi = buffer->context;
    for (size_t i = 0; i < multi->n_parts; i++) {
        ggml_backend_buffer_reset(multi->parts[i]);
    }
}

static const struct ggml_backend_buffer_i multi_iface = {
    .free_buffer = multi_free,
    .clear = multi_clear,
    .reset = multi_reset,
};

// On NULL the parts are still the caller's.
ggml_backend_buffer_t ggml_backend_multi_buffer_alloc_buffer(ggml_backend_buffer_t *buffers, size_t n_buffers) {
    if (buffers == NULL || n_buffers == 0) {
        berth_fail(GGML_STATUS_FAILED, "ggml_backend_multi_buffer_alloc_buffer: no buffers given");
        return NULL;
    }
    size_t total = 0, size;
    for (size_t i = 0; i < n_buffers; i++) {
        if (buffers[i] == NULL || !berth_add_ok(total, buffers[i]->size, &total)) {
            berth_fail(GGML_STATUS_FAILED, "ggml_backend_multi_buffer_alloc_buffer: buffer %zu of %zu %s", i, n_buffers,
                buffers[i] == NULL ? "is NULL" : "makes the sum of sizes overflow");
            return NULL;
        }
    }
    struct multi *multi = NULL;
    if (berth_mul_ok(n_buffers, sizeof multi->parts[0], &size) && berth_add_ok(size, sizeof *multi, &size)) {
        multi = berth_malloc(size);
    }
    if (multi == NULL) {
        berth_fail(GGML_STATUS_ALLOC_FAILED, "ggml_backend_multi_buffer_alloc_buffer: out of memory for %zu buffers", n_buffers);
        return NULL;
    }
    multi->n_parts = n_buffers;
    memcpy(multi->parts, buffers, n_buffers * sizeof buffers[0]);

    ggml_backend_buffer_t buffer = ggml_backend_buffer_init(buffers[0]->buft, multi_iface, multi, total);
    if (buffer == NULL) {
        berth_free(multi);
    }
    return buffer;
}

bool ggml_backend_buffer_is_multi_buffer(ggml_backend_buffer_t buffer) {
    return buffer != NULL && buffer->iface.free_buffer == multi_free;
}

void ggml_backend_multi_buffer_set_usage(ggml_backend_buffer_t buffer, enum ggml_backend_buffer_usage usage) {
    if (!ggml_backend_buffer_is_multi_buffer(buffer)) {
        berth_fail(GGML_STATUS_FAILED, "ggml_backend_multi_buffer_set_usage: the buffer is not made of several");
        return;
    }
    struct multi *multi = buffer->context;
    for (size_t i = 0; i < multi->n_parts; i++) {
        ggml_backend_buffer_set_usage(multi->parts[i], usage);
    }
}
