// SPDX-License-Identifier: MIT
// buft.c: buffer types: what kind of memory, how aligned, how much at most, and how many bytes a tensor takes in it.

#include "backend/backend.h"

#include "core/optable.h"

#include <stdatomic.h>

const char *ggml_backend_buft_name(ggml_backend_buffer_type_t buft) {
    return buft != NULL && buft->iface.get_name != NULL ? buft->iface.get_name(buft) : NULL;
}

// Size 0 gives a buffer without memory, whatever the type.
ggml_backend_buffer_t ggml_backend_buft_alloc_buffer(ggml_backend_buffer_type_t buft, size_t size) {
    if (buft == NULL) {
        berth_fail(GGML_STATUS_FAILED, "ggml_backend_buft_alloc_buffer: the buffer type is NULL");
        return NULL;
    }
    if (size == 0) {
        return ggml_backend_buffer_init(buft, (struct ggml_backend_buffer_i){0}, NULL, 0);
    }
    if (buft->iface.alloc_buffer == NULL) {
        berth_fail(GGML_STATUS_FAILED, "ggml_backend_buft_alloc_buffer: buffers of type %s cannot be allocated",
            ggml_backend_buft_name(buft));
        return NULL;
    }
    return buft->iface.alloc_buffer(buft, size);
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

// ggml's rule for more than a tensor's bytes: results of ops that may expand, quantised types, and what no op computes.
static bool may_expand(const struct ggml_tensor *tensor) {
    const struct berth_op_info *info = berth_op_info(tensor->op);
    return info == NULL || info->is_empty || info->may_expand || ggml_is_quantized(tensor->type);
}

// Said once: every graph would say it again, and the size is taken as asked.
static void tell_expansion(ggml_backend_buffer_type_t buft, const struct ggml_tensor *tensor, size_t size, size_t least) {
    static atomic_bool is_told;
    if (!may_expand(tensor) && !atomic_exchange(&is_told, true)) {
        berth_log(GGML_LOG_LEVEL_WARN,
            "buffer type %s asks for %zu bytes for %s (%s of type %s, %zu bytes), which ggml's rules allow for quantised types "
            "and for "
            "ops that may expand only; it gets them\n",
            ggml_backend_buft_name(buft), size, berth_name_of(tensor), ggml_op_name(tensor->op), ggml_type_name(tensor->type),
            least);
    }
}

// Never less than the tensor's own bytes: a backend may ask for padding, not for less.
size_t ggml_backend_buft_get_alloc_size(ggml_backend_buffer_type_t buft, const struct ggml_tensor *tensor) {
    if (buft == NULL || tensor == NULL) {
        return 0;
    }
    const size_t least = ggml_nbytes(tensor);
    const size_t size = buft->iface.get_alloc_size != NULL ? buft->iface.get_alloc_size(buft, tensor) : least;
    if (BERTH_UNLIKELY(size > least)) {
        tell_expansion(buft, tensor, size, least);
    }
    return size > least ? size : least;
}

bool ggml_backend_buft_is_host(ggml_backend_buffer_type_t buft) {
    return buft != NULL && buft->iface.is_host != NULL && buft->iface.is_host(buft);
}

ggml_backend_dev_t ggml_backend_buft_get_device(ggml_backend_buffer_type_t buft) {
    return buft != NULL ? buft->device : NULL;
}
