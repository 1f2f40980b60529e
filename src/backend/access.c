// SPDX-License-Identifier: MIT
// access.c: reading and writing a tensor's bytes from the host: set, get, memset, their 2-D and their async forms.
// Each call checks first and then moves: outside the tensor's bytes, without memory, or NULL, it refuses and writes nothing.
// A refusal is the last error; with a backend at hand it is also kept for its next synchronize or compute.

#include "backend/backend.h"
#include "core/op.h"
#include "core/span.h"

#include <stdio.h>

ggml_backend_buffer_t berth_tensor_memory(const struct ggml_tensor *tensor, size_t n_bytes, char *reason, size_t size) {
    if (tensor == NULL) {
        snprintf(reason, size, "the tensor is NULL");
        return NULL;
    }
    if (berth_poisoned(tensor)) {
        snprintf(reason, size, "%s", berth_poison_error(tensor));
        return NULL;
    }
    ggml_backend_buffer_t buffer = berth_tensor_buffer(tensor);
    if (buffer == NULL || tensor->data == NULL) {
        snprintf(reason, size, "tensor %s has no %s", berth_name_of(tensor), buffer == NULL ? "buffer" : "memory in its buffer");
        return NULL;
    }
    const enum berth_span_fault fault =
        n_bytes > 0 ? berth_span_part(&(struct berth_span_room){0}, tensor, n_bytes) : BERTH_SPAN_OK;
    if (fault != BERTH_SPAN_OK) {
        berth_span_tell(fault, tensor, reason, size);
        return NULL;
    }
    return buffer;
}

// n pieces of size bytes: piece i lies at offset + i * stride in the tensor, at i * stride_data in the caller's memory.
struct pieces {
    size_t offset, size;
    size_t n, stride, stride_data;
};

static struct pieces piece(size_t offset, size_t size) {
    return (struct pieces){.offset = offset, .size = size, .n = 1};
}

// Bytes of the tensor up to the last piece's end; SIZE_MAX: more than can be counted.
static size_t pieces_end(const struct pieces *s) {
    size_t last, end;
    return berth_mul_ok(s->n - 1, s->stride, &last) && berth_add_ok(last, s->offset, &end) && berth_add_ok(end, s->size, &end)
               ? end
               : SIZE_MAX;
}

// The buffer to use; NULL if there is nothing to do or the call was refused. data is only asked to be there.
static ggml_backend_buffer_t checked(
    const char *func, ggml_backend_t backend, const struct ggml_tensor *tensor, const void *data, const struct pieces *s) {
    if (tensor != NULL && (s->size == 0 || s->n == 0)) {
        return NULL;
    }
    const size_t have = ggml_nbytes(tensor), end = pieces_end(s);
    char reason[320];
    ggml_backend_buffer_t buffer =
        berth_tensor_memory(tensor, end < have && have != BERTH_SPAN_NONE ? end : have, reason, sizeof reason);
    if (buffer == NULL) {
        berth_backend_fail(backend, "%s: %s", func, reason);
        return NULL;
    }
    if (data == NULL) {
        berth_backend_fail(backend, "%s: the memory for tensor %s is NULL", func, berth_name_of(tensor));
        return NULL;
    }
    if (end > have) {
        berth_backend_fail(backend, "%s: %zu pieces of %zu bytes from offset %zu, %zu apart, do not lie in the %zu bytes of %s",
            func, s->n, s->size, s->offset, s->stride, have, berth_name_of(tensor));
        return NULL;
    }
    return buffer;
}

static void unable(const char *func, ggml_backend_t backend, const struct ggml_tensor *tensor, ggml_backend_buffer_t buffer) {
    berth_backend_fail(backend, "%s: a buffer of type %s cannot do this (tensor %s)", func, ggml_backend_buffer_name(buffer),
        berth_name_of(tensor));
}

// ---- through the buffer ----

static void set_now(const char *func, ggml_backend_t backend, ggml_backend_buffer_t buffer, struct ggml_tensor *tensor,
    const char *data, const struct pieces *s) {
    if (s->n > 1 && buffer->iface.set_tensor_2d != NULL) {
        buffer->iface.set_tensor_2d(buffer, tensor, data, s->offset, s->size, s->n, s->stride, s->stride_data);
        return;
    }
    if (buffer->iface.set_tensor == NULL) {
        unable(func, backend, tensor, buffer);
        return;
    }
    for (size_t i = 0; i < s->n; i++) {
        buffer->iface.set_tensor(buffer, tensor, data + i * s->stride_data, s->offset + i * s->stride, s->size);
    }
}

static void get_now(const char *func, ggml_backend_t backend, ggml_backend_buffer_t buffer, const struct ggml_tensor *tensor,
    char *data, const struct pieces *s) {
    if (s->n > 1 && buffer->iface.get_tensor_2d != NULL) {
        buffer->iface.get_tensor_2d(buffer, tensor, data, s->offset, s->size, s->n, s->stride, s->stride_data);
        return;
    }
    if (buffer->iface.get_tensor == NULL) {
        unable(func, backend, tensor, buffer);
        return;
    }
    for (size_t i = 0; i < s->n; i++) {
        buffer->iface.get_tensor(buffer, tensor, data + i * s->stride_data, s->offset + i * s->stride, s->size);
    }
}

void ggml_backend_tensor_set(struct ggml_tensor *tensor, const void *data, size_t offset, size_t size) {
    const struct pieces s = piece(offset, size);
    ggml_backend_buffer_t buffer = checked(__func__, NULL, tensor, data, &s);
    if (buffer != NULL) {
        set_now(__func__, NULL, buffer, tensor, data, &s);
    }
}

void ggml_backend_tensor_get(const struct ggml_tensor *tensor, void *data, size_t offset, size_t size) {
    const struct pieces s = piece(offset, size);
    ggml_backend_buffer_t buffer = checked(__func__, NULL, tensor, data, &s);
    if (buffer != NULL) {
        get_now(__func__, NULL, buffer, tensor, data, &s);
    }
}

void ggml_backend_tensor_set_2d(struct ggml_tensor *tensor, const void *data, size_t offset, size_t size, size_t n_copies,
    size_t stride_tensor, size_t stride_data) {
    const struct pieces s = {offset, size, n_copies, stride_tensor, stride_data};
    ggml_backend_buffer_t buffer = checked(__func__, NULL, tensor, data, &s);
    if (buffer != NULL) {
        set_now(__func__, NULL, buffer, tensor, data, &s);
    }
}

void ggml_backend_tensor_get_2d(const struct ggml_tensor *tensor, void *data, size_t offset, size_t size, size_t n_copies,
    size_t stride_tensor, size_t stride_data) {
    const struct pieces s = {offset, size, n_copies, stride_tensor, stride_data};
    ggml_backend_buffer_t buffer = checked(__func__, NULL, tensor, data, &s);
    if (buffer != NULL) {
        get_now(__func__, NULL, buffer, tensor, data, &s);
    }
}

void ggml_backend_tensor_memset(struct ggml_tensor *tensor, uint8_t value, size_t offset, size_t size) {
    const struct pieces s = piece(offset, size);
    ggml_backend_buffer_t buffer = checked(__func__, NULL, tensor, &value, &s);
    if (buffer == NULL) {
        return;
    }
    if (buffer->iface.memset_tensor == NULL) {
        unable(__func__, NULL, tensor, buffer);
        return;
    }
    buffer->iface.memset_tensor(buffer, tensor, value, offset, size);
}

// ---- in the backend's order of work; a backend without async forms waits and uses the buffer ----

static bool has_backend(const char *func, ggml_backend_t backend) {
    if (backend == NULL) {
        berth_fail(GGML_STATUS_FAILED, "%s: the backend is NULL", func);
    }
    return backend != NULL;
}

static void set_async(const char *func, ggml_backend_t backend, struct ggml_tensor *tensor, const char *data, struct pieces s) {
    ggml_backend_buffer_t buffer = has_backend(func, backend) ? checked(func, backend, tensor, data, &s) : NULL;
    if (buffer == NULL) {
        return;
    }
    if (s.n > 1 && backend->iface.set_tensor_2d_async != NULL) {
        backend->iface.set_tensor_2d_async(backend, tensor, data, s.offset, s.size, s.n, s.stride, s.stride_data);
        return;
    }
    if (backend->iface.set_tensor_async == NULL) {
        berth_backend_wait(backend);
        set_now(func, backend, buffer, tensor, data, &s);
        return;
    }
    for (size_t i = 0; i < s.n; i++) {
        backend->iface.set_tensor_async(backend, tensor, data + i * s.stride_data, s.offset + i * s.stride, s.size);
    }
}

static void get_async(const char *func, ggml_backend_t backend, const struct ggml_tensor *tensor, char *data, struct pieces s) {
    ggml_backend_buffer_t buffer = has_backend(func, backend) ? checked(func, backend, tensor, data, &s) : NULL;
    if (buffer == NULL) {
        return;
    }
    if (s.n > 1 && backend->iface.get_tensor_2d_async != NULL) {
        backend->iface.get_tensor_2d_async(backend, tensor, data, s.offset, s.size, s.n, s.stride, s.stride_data);
        return;
    }
    if (backend->iface.get_tensor_async == NULL) {
        berth_backend_wait(backend);
        get_now(func, backend, buffer, tensor, data, &s);
        return;
    }
    for (size_t i = 0; i < s.n; i++) {
        backend->iface.get_tensor_async(backend, tensor, data + i * s.stride_data, s.offset + i * s.stride, s.size);
    }
}

void ggml_backend_tensor_set_async(
    ggml_backend_t backend, struct ggml_tensor *tensor, const void *data, size_t offset, size_t size) {
    set_async(__func__, backend, tensor, data, piece(offset, size));
}

void ggml_backend_tensor_get_async(
    ggml_backend_t backend, const struct ggml_tensor *tensor, void *data, size_t offset, size_t size) {
    get_async(__func__, backend, tensor, data, piece(offset, size));
}

void ggml_backend_tensor_set_2d_async(ggml_backend_t backend, struct ggml_tensor *tensor, const void *data, size_t offset,
    size_t size, size_t n_copies, size_t stride_tensor, size_t stride_data) {
    set_async(__func__, backend, tensor, data, (struct pieces){offset, size, n_copies, stride_tensor, stride_data});
}

void ggml_backend_tensor_get_2d_async(ggml_backend_t backend, const struct ggml_tensor *tensor, void *data, size_t offset,
    size_t size, size_t n_copies, size_t stride_tensor, size_t stride_data) {
    get_async(__func__, backend, tensor, data, (struct pieces){offset, size, n_copies, stride_tensor, stride_data});
}
