// SPDX-License-Identifier: MIT
// place.c: gives one tensor its place: an address in a buffer, or its source's place for a view.
// A tensor that is refused is left as it was.

#include "backend/backend.h"
#include "core/op.h"

static enum ggml_status place(struct ggml_tensor *tensor, ggml_backend_buffer_t buffer, void *data) {
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
        return berth_fail(GGML_STATUS_FAILED, "ggml_backend_tensor_alloc: the %s is NULL",
            buffer == NULL   ? "buffer"
            : tensor == NULL ? "tensor"
                             : "address");
    }
    if (berth_poisoned(tensor)) {
        return berth_fail(GGML_STATUS_FAILED, "%s", berth_poison_error(tensor));
    }
    if (tensor->buffer != NULL || tensor->data != NULL || tensor->view_src != NULL) {
        return berth_fail(GGML_STATUS_FAILED, "ggml_backend_tensor_alloc: tensor %s %s", berth_name_of(tensor),
            tensor->view_src != NULL ? "is a view: ggml_backend_view_init places it" : "has memory already");
    }
    const uintptr_t base = (uintptr_t) ggml_backend_buffer_get_base(buffer), at = (uintptr_t) addr;
    const size_t need = ggml_backend_buffer_get_alloc_size(buffer, tensor);
    if (base == 0 || at < base || at - base > buffer->size || need > buffer->size - (at - base)) {
        return berth_fail(GGML_STATUS_FAILED,
            "ggml_backend_tensor_alloc: tensor %s of %zu bytes does not lie in the buffer: address %p, buffer %p of %zu bytes",
            berth_name_of(tensor), need, addr, (void *) base, buffer->size);
    }
    return place(tensor, buffer, addr);
}

enum ggml_status ggml_backend_view_init(struct ggml_tensor *tensor) {
    if (tensor == NULL) {
        return berth_fail(GGML_STATUS_FAILED, "ggml_backend_view_init: the tensor is NULL");
    }
    const struct ggml_tensor *src = tensor->view_src;
    if (src == NULL || tensor->buffer != NULL) {
        return berth_fail(GGML_STATUS_FAILED, "ggml_backend_view_init: tensor %s %s", berth_name_of(tensor),
            src == NULL ? "is no view" : "has a buffer already");
    }
    if (src->buffer == NULL || src->data == NULL) {
        return berth_fail(GGML_STATUS_FAILED, "ggml_backend_view_init: tensor %s is a view of %s, which has no memory",
            berth_name_of(tensor), berth_name_of(src));
    }
    void *data_was = tensor->data; // a view of arena memory has its address from the start
    const enum ggml_status status = place(tensor, src->buffer, (char *) src->data + tensor->view_offs);
    if (status != GGML_STATUS_SUCCESS) {
        tensor->data = data_was;
    }
    return status;
}
