// SPDX-License-Identifier: MIT
// tensor.c: the memory of one tensor: address, access from the host, copies.
// A call with NULL, without memory, or with bytes outside the tensor is rejected: it changes nothing and sets the last error.
// If a backend is given, its next synchronize or compute reports the error too.

#include "backend/backend.h"
#include "core/op.h"
#include "core/span.h"

#include <stdio.h>

// ---- placement: a tensor gets an address in a buffer; a view gets its address in the memory of its source ----

static enum ggml_status tensor_place(struct ggml_tensor *tensor, ggml_backend_buffer_t buffer, void *data) {
    tensor->buffer = buffer;
    tensor->data = data;

    const enum ggml_status status = ggml_backend_buffer_init_tensor(buffer, tensor);
    if (status != GGML_STATUS_SUCCESS) {
        tensor->buffer = NULL;
        tensor->data = NULL;
    }
    return status;
}

enum ggml_status ggml_backend_tensor_alloc(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor, void *addr) {
    if (buffer == NULL || tensor == NULL || addr == NULL) {
        const char *what = tensor == NULL ? "tensor" : "address";
        return berth_fail(GGML_STATUS_FAILED, "ggml_backend_tensor_alloc: the %s is NULL", buffer == NULL ? "buffer" : what);
    }
    if (berth_poisoned(tensor)) {
        return berth_fail(GGML_STATUS_FAILED, "%s", berth_poison_error(tensor));
    }
    if (tensor->buffer != NULL || tensor->data != NULL || tensor->view_src != NULL) {
        return berth_fail(GGML_STATUS_FAILED, "ggml_backend_tensor_alloc: tensor %s %s", berth_name_of(tensor),
            tensor->view_src != NULL ? "is a view; use ggml_backend_view_init" : "has memory already");
    }
    const uintptr_t base = (uintptr_t) ggml_backend_buffer_get_base(buffer), at = (uintptr_t) addr;
    const size_t need = ggml_backend_buffer_get_alloc_size(buffer, tensor);
    if (base == 0 || at < base || at - base > buffer->size || need > buffer->size - (at - base)) {
        return berth_fail(GGML_STATUS_FAILED,
            "ggml_backend_tensor_alloc: tensor %s of %zu bytes at %p is not inside the buffer, which has %zu bytes at %p",
            berth_name_of(tensor), need, addr, buffer->size, (void *) base);
    }
    return tensor_place(tensor, buffer, addr);
}

enum ggml_status ggml_backend_view_init(struct ggml_tensor *tensor) {
    if (tensor == NULL) {
        return berth_fail(GGML_STATUS_FAILED, "ggml_backend_view_init: the tensor is NULL");
    }
    const struct ggml_tensor *src = tensor->view_src;
    if (src == NULL || tensor->buffer != NULL) {
        return berth_fail(GGML_STATUS_FAILED, "ggml_backend_view_init: tensor %s %s", berth_name_of(tensor),
            src == NULL ? "is not a view" : "has a buffer already");
    }
    if (src->buffer == NULL || src->data == NULL) {
        return berth_fail(GGML_STATUS_FAILED, "ggml_backend_view_init: tensor %s is a view of %s, which has no memory",
            berth_name_of(tensor), berth_name_of(src));
    }
    void *data_was = tensor->data; // a view of arena memory already has its address
    const enum ggml_status status = tensor_place(tensor, src->buffer, (char *) src->data + tensor->view_offs);
    if (status != GGML_STATUS_SUCCESS) {
        tensor->data = data_was;
    }
    return status;
}

// ---- access from the host: set, get, memset, their 2-D and async forms ----

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
        n_bytes > 0 ? berth_span_check_bytes(&(struct berth_span_base){0}, tensor, n_bytes) : BERTH_SPAN_OK;
    if (fault != BERTH_SPAN_OK) {
        berth_span_report(fault, tensor, reason, size);
        return NULL;
    }
    return buffer;
}

// n pieces of `size` bytes. Piece i is at byte offset + i * stride of the tensor, and at byte i * stride_data of the caller's
// memory.
struct pieces {
    size_t offset, size;
    size_t n, stride, stride_data;
};

static struct pieces piece_of(size_t offset, size_t size) {
    return (struct pieces){.offset = offset, .size = size, .n = 1};
}

// Returns the end of the last piece in the tensor, in bytes; SIZE_MAX on overflow.
static size_t pieces_end(const struct pieces *s) {
    size_t last, end;
    return berth_mul_ok(s->n - 1, s->stride, &last) && berth_add_ok(last, s->offset, &end) && berth_add_ok(end, s->size, &end)
               ? end
               : SIZE_MAX;
}

// Returns the buffer that the call accesses. Returns NULL if there are no bytes to access or if the call is rejected. data is
// only compared with NULL.
static ggml_backend_buffer_t access_check(
    const char *func, ggml_backend_t backend, const struct ggml_tensor *tensor, const void *data, const struct pieces *s) {
    if (tensor != NULL && (s->size == 0 || s->n == 0)) {
        return NULL;
    }
    const size_t have = ggml_nbytes(tensor), end = pieces_end(s);
    char reason[320];
    ggml_backend_buffer_t buffer =
        berth_tensor_memory(tensor, end < have && have != BERTH_SPAN_INVALID ? end : have, reason, sizeof reason);
    if (buffer == NULL) {
        berth_backend_fail(backend, "%s: %s", func, reason);
        return NULL;
    }
    if (data == NULL) {
        berth_backend_fail(backend, "%s: the memory for tensor %s is NULL", func, berth_name_of(tensor));
        return NULL;
    }
    if (end > have) {
        berth_backend_fail(backend, "%s: %zu pieces of %zu bytes from offset %zu with stride %zu exceed the %zu bytes of %s",
            func, s->n, s->size, s->offset, s->stride, have, berth_name_of(tensor));
        return NULL;
    }
    return buffer;
}

static void access_reject(
    const char *func, ggml_backend_t backend, const struct ggml_tensor *tensor, ggml_backend_buffer_t buffer) {
    berth_backend_fail(backend, "%s: buffers of type %s do not implement it (tensor %s)", func, ggml_backend_buffer_name(buffer),
        berth_name_of(tensor));
}

// ---- synchronous access through the buffer ----

static void set_sync(const char *func, ggml_backend_t backend, ggml_backend_buffer_t buffer, struct ggml_tensor *tensor,
    const char *data, const struct pieces *s) {
    berth_buffer_changes(buffer);
    if (s->n > 1 && buffer->iface.set_tensor_2d != NULL) {
        buffer->iface.set_tensor_2d(buffer, tensor, data, s->offset, s->size, s->n, s->stride, s->stride_data);
        return;
    }
    if (buffer->iface.set_tensor == NULL) {
        access_reject(func, backend, tensor, buffer);
        return;
    }
    for (size_t i = 0; i < s->n; i++) {
        buffer->iface.set_tensor(buffer, tensor, data + i * s->stride_data, s->offset + i * s->stride, s->size);
    }
}

static void get_sync(const char *func, ggml_backend_t backend, ggml_backend_buffer_t buffer, const struct ggml_tensor *tensor,
    char *data, const struct pieces *s) {
    if (s->n > 1 && buffer->iface.get_tensor_2d != NULL) {
        buffer->iface.get_tensor_2d(buffer, tensor, data, s->offset, s->size, s->n, s->stride, s->stride_data);
        return;
    }
    if (buffer->iface.get_tensor == NULL) {
        access_reject(func, backend, tensor, buffer);
        return;
    }
    for (size_t i = 0; i < s->n; i++) {
        buffer->iface.get_tensor(buffer, tensor, data + i * s->stride_data, s->offset + i * s->stride, s->size);
    }
}

void ggml_backend_tensor_set(struct ggml_tensor *tensor, const void *data, size_t offset, size_t size) {
    const struct pieces s = piece_of(offset, size);
    ggml_backend_buffer_t buffer = access_check(__func__, NULL, tensor, data, &s);
    if (buffer != NULL) {
        set_sync(__func__, NULL, buffer, tensor, data, &s);
    }
}

void ggml_backend_tensor_get(const struct ggml_tensor *tensor, void *data, size_t offset, size_t size) {
    const struct pieces s = piece_of(offset, size);
    ggml_backend_buffer_t buffer = access_check(__func__, NULL, tensor, data, &s);
    if (buffer != NULL) {
        get_sync(__func__, NULL, buffer, tensor, data, &s);
    }
}

void ggml_backend_tensor_set_2d(struct ggml_tensor *tensor, const void *data, size_t offset, size_t size, size_t n_copies,
    size_t stride_tensor, size_t stride_data) {
    const struct pieces s = {offset, size, n_copies, stride_tensor, stride_data};
    ggml_backend_buffer_t buffer = access_check(__func__, NULL, tensor, data, &s);
    if (buffer != NULL) {
        set_sync(__func__, NULL, buffer, tensor, data, &s);
    }
}

void ggml_backend_tensor_get_2d(const struct ggml_tensor *tensor, void *data, size_t offset, size_t size, size_t n_copies,
    size_t stride_tensor, size_t stride_data) {
    const struct pieces s = {offset, size, n_copies, stride_tensor, stride_data};
    ggml_backend_buffer_t buffer = access_check(__func__, NULL, tensor, data, &s);
    if (buffer != NULL) {
        get_sync(__func__, NULL, buffer, tensor, data, &s);
    }
}

void ggml_backend_tensor_memset(struct ggml_tensor *tensor, uint8_t value, size_t offset, size_t size) {
    const struct pieces s = piece_of(offset, size);
    ggml_backend_buffer_t buffer = access_check(__func__, NULL, tensor, &value, &s);
    if (buffer == NULL) {
        return;
    }
    if (buffer->iface.memset_tensor == NULL) {
        access_reject(__func__, NULL, tensor, buffer);
        return;
    }
    berth_buffer_changes(buffer);
    buffer->iface.memset_tensor(buffer, tensor, value, offset, size);
}

// ---- asynchronous access ----

// An asynchronous access takes place in the order of the backend's work. If the backend has no async functions, the call waits
// for the backend and then accesses the buffer.

static bool has_backend(const char *func, ggml_backend_t backend) {
    if (backend == NULL) {
        berth_fail(GGML_STATUS_FAILED, "%s: the backend is NULL", func);
    }
    return backend != NULL;
}

static void set_async(const char *func, ggml_backend_t backend, struct ggml_tensor *tensor, const char *data, struct pieces s) {
    ggml_backend_buffer_t buffer = has_backend(func, backend) ? access_check(func, backend, tensor, data, &s) : NULL;
    if (buffer == NULL) {
        return;
    }
    if (s.n > 1 && backend->iface.set_tensor_2d_async != NULL) {
        backend->iface.set_tensor_2d_async(backend, tensor, data, s.offset, s.size, s.n, s.stride, s.stride_data);
        return;
    }
    if (backend->iface.set_tensor_async == NULL) {
        berth_backend_wait(backend);
        set_sync(func, backend, buffer, tensor, data, &s);
        return;
    }
    for (size_t i = 0; i < s.n; i++) {
        backend->iface.set_tensor_async(backend, tensor, data + i * s.stride_data, s.offset + i * s.stride, s.size);
    }
}

static void get_async(const char *func, ggml_backend_t backend, const struct ggml_tensor *tensor, char *data, struct pieces s) {
    ggml_backend_buffer_t buffer = has_backend(func, backend) ? access_check(func, backend, tensor, data, &s) : NULL;
    if (buffer == NULL) {
        return;
    }
    if (s.n > 1 && backend->iface.get_tensor_2d_async != NULL) {
        backend->iface.get_tensor_2d_async(backend, tensor, data, s.offset, s.size, s.n, s.stride, s.stride_data);
        return;
    }
    if (backend->iface.get_tensor_async == NULL) {
        berth_backend_wait(backend);
        get_sync(func, backend, buffer, tensor, data, &s);
        return;
    }
    for (size_t i = 0; i < s.n; i++) {
        backend->iface.get_tensor_async(backend, tensor, data + i * s.stride_data, s.offset + i * s.stride, s.size);
    }
}

void ggml_backend_tensor_set_async(
    ggml_backend_t backend, struct ggml_tensor *tensor, const void *data, size_t offset, size_t size) {
    set_async(__func__, backend, tensor, data, piece_of(offset, size));
}

void ggml_backend_tensor_get_async(
    ggml_backend_t backend, const struct ggml_tensor *tensor, void *data, size_t offset, size_t size) {
    get_async(__func__, backend, tensor, data, piece_of(offset, size));
}

void ggml_backend_tensor_set_2d_async(ggml_backend_t backend, struct ggml_tensor *tensor, const void *data, size_t offset,
    size_t size, size_t n_copies, size_t stride_tensor, size_t stride_data) {
    set_async(__func__, backend, tensor, data, (struct pieces){offset, size, n_copies, stride_tensor, stride_data});
}

void ggml_backend_tensor_get_2d_async(ggml_backend_t backend, const struct ggml_tensor *tensor, void *data, size_t offset,
    size_t size, size_t n_copies, size_t stride_tensor, size_t stride_data) {
    get_async(__func__, backend, tensor, data, (struct pieces){offset, size, n_copies, stride_tensor, stride_data});
}

// ---- copies ----

// If the copy is rejected, returns false and stores the failure.
static bool check_copy(const char *func, ggml_backend_t backend, const struct ggml_tensor *src, const struct ggml_tensor *dst) {
    char reason[320];
    if (berth_tensor_memory(src, ggml_nbytes(src), reason, sizeof reason) == NULL ||
        berth_tensor_memory(dst, ggml_nbytes(dst), reason, sizeof reason) == NULL) {
        berth_backend_fail(backend, "%s: %s", func, reason);
        return false;
    }
    if (!berth_span_same_layout(src, dst)) {
        berth_backend_fail(backend,
            "%s: layouts differ: %s is %s " BERTH_SHAPE " with strides " BERTH_STRIDE ", %s is %s " BERTH_SHAPE
            " with strides " BERTH_STRIDE,
            func, berth_name_of(src), ggml_type_name(src->type), BERTH_NE(src), BERTH_NB(src), berth_name_of(dst),
            ggml_type_name(dst->type), BERTH_NE(dst), BERTH_NB(dst));
        return false;
    }
    return true;
}

// Returns true if dst's buffer has copied the tensor.
bool ggml_backend_buffer_copy_tensor(const struct ggml_tensor *src, struct ggml_tensor *dst) {
    if (!check_copy(__func__, NULL, src, dst)) {
        return false;
    }
    ggml_backend_buffer_t buffer = berth_tensor_buffer(dst);
    berth_buffer_changes(buffer);
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
    // The tensor is copied in one piece, because a buffer may accept only complete tensors.
    const bool has_staging = staging != NULL && staging->size >= size;
    void *bytes = has_staging ? staging->bytes : berth_malloc(size);
    if (bytes == NULL) {
        berth_backend_fail(backend, "%s: out of memory for %zu bytes to copy %s from %s to %s through the host", func, size,
            berth_name_of(src), ggml_backend_buffer_name(from), ggml_backend_buffer_name(to));
        return false;
    }
    from->iface.get_tensor(from, src, bytes, 0, size);
    to->iface.set_tensor(to, dst, bytes, 0, size);
    if (!has_staging) {
        berth_free(bytes);
    }
    return true;
}

bool berth_tensor_copy(const char *func, ggml_backend_t backend, const struct ggml_tensor *src, struct ggml_tensor *dst,
    const struct berth_staging *staging) {
    if (!check_copy(func, backend, src, dst)) {
        return false;
    }
    ggml_backend_buffer_t from = berth_tensor_buffer(src), to = berth_tensor_buffer(dst);
    const size_t size = ggml_nbytes(src);
    if (src == dst || size == 0) {
        return true;
    }
    berth_buffer_changes(to);
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

// The copy runs after all work of backend_src so far and before the next work of backend_dst.
void ggml_backend_tensor_copy_async(
    ggml_backend_t backend_src, ggml_backend_t backend_dst, const struct ggml_tensor *src, struct ggml_tensor *dst) {
    if (!check_copy(__func__, backend_dst, src, dst) || src == dst) {
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
