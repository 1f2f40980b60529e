// SPDX-License-Identifier: MIT
// buffer.c: buffer types, buffers, and multi-buffers. A buffer of size 0 has no memory and an empty function table (iface).

#include "backend/backend.h"
#include "base/min.h"
#include "core/optable.h"

#include <stdatomic.h>
#include <string.h>

// ---- composite devices (src/meta), a higher level that registers its hooks here ----

static const struct berth_composite_hooks *_Atomic composite_hooks;

void berth_composite_hooks_set(const struct berth_composite_hooks *functions) {
    atomic_store_explicit(&composite_hooks, functions, memory_order_release);
}

const struct berth_composite_hooks *berth_composite_hooks_get(void) {
    return atomic_load_explicit(&composite_hooks, memory_order_acquire);
}

// ---- weights of the host ----

static _Atomic uint64_t weights_epoch;

uint64_t berth_weights_epoch(void) {
    return atomic_load_explicit(&weights_epoch, memory_order_relaxed);
}

void berth_weights_changed(void) {
    atomic_fetch_add_explicit(&weights_epoch, 1, memory_order_relaxed);
}

// ---- buffer types ----

const char *ggml_backend_buft_name(ggml_backend_buffer_type_t buft) {
    return buft != NULL && buft->iface.get_name != NULL ? buft->iface.get_name(buft) : NULL;
}

// For size 0, returns a buffer without memory, whatever the type is.
ggml_backend_buffer_t ggml_backend_buft_alloc_buffer(ggml_backend_buffer_type_t buft, size_t size) {
    if (buft == NULL) {
        return BERTH_FAIL_NULL(GGML_STATUS_FAILED, "ggml_backend_buft_alloc_buffer: the buffer type is NULL");
    }
    if (size == 0) {
        return ggml_backend_buffer_init(buft, (struct ggml_backend_buffer_i){0}, NULL, 0);
    }
    if (buft->iface.alloc_buffer == NULL) {
        return BERTH_FAIL_NULL(GGML_STATUS_FAILED, "ggml_backend_buft_alloc_buffer: buffers of type %s cannot be allocated",
            ggml_backend_buft_name(buft));
    }
    ggml_backend_buffer_t buffer = buft->iface.alloc_buffer(buft, size);
    if (buffer == NULL && berth_reclaim(buft)) {
        buffer = buft->iface.alloc_buffer(buft, size);
    }
    return buffer;
}

size_t ggml_backend_buft_get_alignment(ggml_backend_buffer_type_t buft) {
    const size_t align = buft != NULL && buft->iface.get_alignment != NULL ? buft->iface.get_alignment(buft) : 1;
    return align > 0 ? align : 1;
}

size_t ggml_backend_buft_get_max_size(ggml_backend_buffer_type_t buft) {
    if (buft == NULL) {
        return 0;
    }
    return buft->iface.get_max_size != NULL ? buft->iface.get_max_size(buft) : SIZE_MAX;
}

// Returns true if ggml's rules allow a buffer type to allocate more bytes than the tensor has. The rules allow this for
// quantised types, for tensors that no op computes, and for the results of some ops (berth_op_info.may_expand).
static bool may_expand(const struct ggml_tensor *tensor) {
    const struct berth_op_info *info = berth_op_info(tensor->op);
    return info == NULL || info->is_empty || info->may_expand || ggml_is_quantized(tensor->type);
}

// Warns if a buffer type requests more bytes than ggml's rules allow. Warns once per process, because every graph would repeat
// the message.
static void report_expansion(ggml_backend_buffer_type_t buft, const struct ggml_tensor *tensor, size_t size, size_t least) {
    static atomic_bool is_reported;
    if (!may_expand(tensor) && !atomic_exchange(&is_reported, true)) {
        berth_log(GGML_LOG_LEVEL_WARN,
            "buffer type %s requests %zu bytes for %s (%s of type %s, %zu bytes); ggml's rules allow more bytes than the "
            "tensor has "
            "only for quantised types and ops that may expand; the request is granted\n",
            ggml_backend_buft_name(buft), size, berth_name_of(tensor), ggml_op_name(tensor->op), ggml_type_name(tensor->type),
            least);
    }
}

// A backend may request padding, but not fewer bytes than the tensor has.
size_t ggml_backend_buft_get_alloc_size(ggml_backend_buffer_type_t buft, const struct ggml_tensor *tensor) {
    if (buft == NULL || tensor == NULL) {
        return 0;
    }
    const size_t least = ggml_nbytes(tensor);
    const size_t size = buft->iface.get_alloc_size != NULL ? buft->iface.get_alloc_size(buft, tensor) : least;
    if (BERTH_UNLIKELY(size > least)) {
        report_expansion(buft, tensor, size, least);
    }
    return max_size(size, least);
}

bool ggml_backend_buft_is_host(ggml_backend_buffer_type_t buft) {
    return buft != NULL && buft->iface.is_host != NULL && buft->iface.is_host(buft);
}

ggml_backend_dev_t ggml_backend_buft_get_device(ggml_backend_buffer_type_t buft) {
    return buft != NULL ? buft->device : NULL;
}

// ---- buffers ----

// If this function returns NULL, the caller still owns the context.
ggml_backend_buffer_t ggml_backend_buffer_init(
    ggml_backend_buffer_type_t buft, struct ggml_backend_buffer_i iface, void *context, size_t size) {
    ggml_backend_buffer_t buffer = berth_malloc(sizeof *buffer);
    if (buffer == NULL) {
        return BERTH_FAIL_NULL(GGML_STATUS_ALLOC_FAILED,
            "ggml_backend_buffer_init: out of memory for a buffer of %zu bytes of type %s", size,
            buft != NULL ? ggml_backend_buft_name(buft) : "(NULL)");
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
    berth_buffer_changes(buffer);
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

// Returns NULL for an empty buffer and for a multi-buffer, which has no single start.
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
    berth_buffer_changes(buffer);
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
    const struct berth_composite_hooks *hooks = berth_composite_hooks_get();
    if (hooks != NULL) {
        hooks->set_usage(buffer, usage);
    }
}

enum ggml_backend_buffer_usage ggml_backend_buffer_get_usage(ggml_backend_buffer_t buffer) {
    return buffer != NULL ? buffer->usage : GGML_BACKEND_BUFFER_USAGE_ANY;
}

// ---- properties of the type ----

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

// ---- multi-buffers, for tensors that do not fit into one buffer of the type ----

// A multi-buffer owns its parts. tensor->buffer is a part, never the multi-buffer.

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

// If this function returns NULL, the caller still owns the parts.
ggml_backend_buffer_t ggml_backend_multi_buffer_alloc_buffer(ggml_backend_buffer_t *buffers, size_t n_buffers) {
    if (buffers == NULL || n_buffers == 0) {
        return BERTH_FAIL_NULL(GGML_STATUS_FAILED, "ggml_backend_multi_buffer_alloc_buffer: no buffers given");
    }
    size_t total = 0, size;
    for (size_t i = 0; i < n_buffers; i++) {
        if (buffers[i] == NULL || !berth_add_ok(total, buffers[i]->size, &total)) {
            return BERTH_FAIL_NULL(GGML_STATUS_FAILED, "ggml_backend_multi_buffer_alloc_buffer: buffer %zu of %zu %s", i,
                n_buffers, buffers[i] == NULL ? "is NULL" : "makes the sum of sizes overflow");
        }
    }
    struct multi *multi = NULL;
    if (berth_mul_ok(n_buffers, sizeof multi->parts[0], &size) && berth_add_ok(size, sizeof *multi, &size)) {
        multi = berth_malloc(size);
    }
    if (multi == NULL) {
        return BERTH_FAIL_NULL(
            GGML_STATUS_ALLOC_FAILED, "ggml_backend_multi_buffer_alloc_buffer: out of memory for %zu buffers", n_buffers);
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
        berth_fail(GGML_STATUS_FAILED, "ggml_backend_multi_buffer_set_usage: the buffer is not a multi-buffer");
        return;
    }
    struct multi *multi = buffer->context;
    for (size_t i = 0; i < multi->n_parts; i++) {
        ggml_backend_buffer_set_usage(multi->parts[i], usage);
    }
}
