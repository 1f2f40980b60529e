// SPDX-License-Identifier: MIT
// copy.c: one tensor's bytes into another of the same layout. The cheapest way that exists is taken: straight from or to host
// memory, by the destination's buffer, or through host memory of the tensor's size.

#include "backend/backend.h"
#include "core/op.h"

#include <stdio.h>

static bool same_layout(const struct ggml_tensor *a, const struct ggml_tensor *b) {
    if (a->type != b->type) {
        return false;
    }
    for (int i = 0; i < GGML_MAX_DIMS; i++) {
        if (a->ne[i] != b->ne[i] || a->nb[i] != b->nb[i]) {
            return false;
        }
    }
    return true;
}

// False: refused, with the failure kept. Both tensors have memory and one layout otherwise.
static bool may_copy(const char *func, ggml_backend_t backend, const struct ggml_tensor *src, const struct ggml_tensor *dst) {
    char reason[320];
    if (berth_tensor_memory(src, ggml_nbytes(src), reason, sizeof reason) == NULL ||
        berth_tensor_memory(dst, ggml_nbytes(dst), reason, sizeof reason) == NULL) {
        berth_backend_fail(backend, "%s: %s", func, reason);
        return false;
    }
    if (!same_layout(src, dst)) {
        berth_backend_fail(backend,
            "%s: layouts differ: %s is %s " BERTH_SHAPE " with strides " BERTH_STRIDE ", %s is %s " BERTH_SHAPE
            " with strides " BERTH_STRIDE,
            func, berth_name_of(src), ggml_type_name(src->type), BERTH_NE(src), BERTH_NB(src), berth_name_of(dst),
            ggml_type_name(dst->type), BERTH_NE(dst), BERTH_NB(dst));
        return false;
    }
    return true;
}

// For backends: true if dst's buffer could do it by itself.
bool ggml_backend_buffer_copy_tensor(const struct ggml_tensor *src, struct ggml_tensor *dst) {
    if (!may_copy(__func__, NULL, src, dst)) {
        return false;
    }
    ggml_backend_buffer_t buffer = berth_tensor_buffer(dst);
    return buffer->iface.cpy_tensor != NULL && buffer->iface.cpy_tensor(buffer, src, dst);
}

static bool copy_through_host(const char *func, ggml_backend_t backend, const struct ggml_tensor *src, struct ggml_tensor *dst,
    const struct berth_staging *staging) {
    const size_t size = ggml_nbytes(src);
    ggml_backend_buffer_t from = berth_tensor_buffer(src), to = berth_tensor_buffer(dst);
    if (from->iface.get_tensor == NULL || to->iface.set_tensor == NULL) {
        berth_backend_fail(backend, "%s: %s to %s: a buffer of type %s cannot be %s", func, berth_name_of(src),
            berth_name_of(dst), ggml_backend_buffer_name(from->iface.get_tensor == NULL ? from : to),
            from->iface.get_tensor == NULL ? "read" : "written");
        return false;
    }
    // Whole, not in pieces: a buffer may rearrange its tensors and take them only as a whole.
    const bool is_there = staging != NULL && staging->size >= size;
    void *bytes = is_there ? staging->bytes : berth_malloc(size);
    if (bytes == NULL) {
        berth_backend_fail(backend, "%s: out of memory: %zu bytes to take %s from %s to %s through the host", func, size,
            berth_name_of(src), ggml_backend_buffer_name(from), ggml_backend_buffer_name(to));
        return false;
    }
    from->iface.get_tensor(from, src, bytes, 0, size);
    to->iface.set_tensor(to, dst, bytes, 0, size);
    if (!is_there) {
        berth_free(bytes);
    }
    return true;
}

bool berth_tensor_copy(const char *func, ggml_backend_t backend, const struct ggml_tensor *src, struct ggml_tensor *dst,
    const struct berth_staging *staging) {
    if (!may_copy(func, backend, src, dst)) {
        return false;
    }
    ggml_backend_buffer_t from = berth_tensor_buffer(src), to = berth_tensor_buffer(dst);
    const size_t size = ggml_nbytes(src);
    if (src == dst || size == 0) {
        return true;
    }
    if (ggml_backend_buffer_is_host(from) && to->iface.set_tensor != NULL) {
        to->iface.set_tensor(to, dst, src->data, 0, size);
    } else if (ggml_backend_buffer_is_host(to) && from->iface.get_tensor != NULL) {
        from->iface.get_tensor(from, src, dst->data, 0, size);
    } else if (to->iface.cpy_tensor == NULL || !to->iface.cpy_tensor(to, src, dst)) {
        return copy_through_host(func, backend, src, dst, staging);
    }
    return true;
}

void ggml_backend_tensor_copy(const struct ggml_tensor *src, struct ggml_tensor *dst) {
    berth_tensor_copy(__func__, NULL, src, dst, NULL);
}

// After all work given to backend_src so far and before what backend_dst is given next.
void ggml_backend_tensor_copy_async(
    ggml_backend_t backend_src, ggml_backend_t backend_dst, const struct ggml_tensor *src, struct ggml_tensor *dst) {
    if (!may_copy(__func__, backend_dst, src, dst) || src == dst) {
        return;
    }
    if (backend_src != NULL && backend_dst != NULL && backend_dst->iface.cpy_tensor_async != NULL &&
        backend_dst->iface.cpy_tensor_async(backend_src, backend_dst, src, dst)) {
        return;
    }
    berth_backend_wait(backend_src);
    berth_backend_wait(backend_dst);
    berth_tensor_copy(__func__, backend_dst, src, dst, NULL);
}
