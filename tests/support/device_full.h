// SPDX-License-Identifier: MIT
// device_full.h: a device for tests of the backend interface. It implements all optional functions, counts their calls, and does
// not protect its memory. It supports only ADD.
#pragma once

#include "support/device.h"

struct device_full {
    int fail_init; // n > 0: the n-th init_tensor call from now on fails
    int n_init, n_reset, n_set_2d, n_async, n_copy;
};

static struct device fake;
static struct device_full full;

static inline enum ggml_status full_init_tensor(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor) {
    (void) buffer;
    (void) tensor;
    full.n_init++;
    return full.fail_init > 0 && --full.fail_init == 0 ? GGML_STATUS_ALLOC_FAILED : GGML_STATUS_SUCCESS;
}

static inline void full_set_2d(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor, const void *data, size_t offset,
    size_t size, size_t n, size_t stride, size_t stride_data) {
    (void) buffer;
    full.n_set_2d++;
    for (size_t i = 0; i < n; i++) {
        memcpy((char *) tensor->data + offset + i * stride, (const char *) data + i * stride_data, size);
    }
}

static inline bool full_copy(ggml_backend_buffer_t buffer, const struct ggml_tensor *src, struct ggml_tensor *dst) {
    (void) buffer;
    full.n_copy++;
    memcpy(dst->data, src->data, ggml_nbytes(src));
    return true;
}

static inline void full_reset(ggml_backend_buffer_t buffer) {
    (void) buffer;
    full.n_reset++;
}

static inline size_t full_alloc_size(ggml_backend_buffer_type_t buft, const struct ggml_tensor *tensor) {
    (void) buft;
    return ggml_nbytes(tensor);
}

static inline void full_set_async(
    ggml_backend_t backend, struct ggml_tensor *tensor, const void *data, size_t offset, size_t size) {
    (void) backend;
    full.n_async++;
    memcpy((char *) tensor->data + offset, data, size);
}

static inline void full_get_async(
    ggml_backend_t backend, const struct ggml_tensor *tensor, void *data, size_t offset, size_t size) {
    (void) backend;
    full.n_async++;
    memcpy(data, (const char *) tensor->data + offset, size);
}

static inline ggml_backend_graph_plan_t full_plan_create(ggml_backend_t backend, const struct ggml_cgraph *graph) {
    (void) backend;
    const struct ggml_cgraph **plan = malloc(sizeof *plan);
    if (plan != NULL) {
        *plan = graph;
    }
    return plan;
}

static inline void full_plan_free(ggml_backend_t backend, ggml_backend_graph_plan_t plan) {
    (void) backend;
    free(plan);
}

static inline enum ggml_status full_plan_compute(ggml_backend_t backend, ggml_backend_graph_plan_t plan) {
    return device_compute(backend, *(struct ggml_cgraph **) plan);
}

static inline bool full_supports(const struct device *dev, const struct ggml_tensor *op) {
    (void) dev;
    return op->op == GGML_OP_ADD;
}

static inline void full_init(void) {
    memset(&full, 0, sizeof full);
    device_init(&fake, "Fake");
    fake.is_open = fake.has_events = true;
    fake.align = 64;
    fake.n_free = 5;
    fake.n_total = 7;
    fake.supports = full_supports;
    fake.buft.iface.get_alloc_size = full_alloc_size;
    fake.buffer_iface.init_tensor = full_init_tensor;
    fake.buffer_iface.reset = full_reset;
    fake.buffer_iface.set_tensor_2d = full_set_2d;
}

static inline void full_start(void) {
    full_init();
    device_start(&fake);
    struct ggml_backend_i *iface = &fake.backend.iface;
    iface->set_tensor_async = full_set_async;
    iface->get_tensor_async = full_get_async;
    iface->synchronize = device_synchronize;
    iface->graph_plan_create = full_plan_create;
    iface->graph_plan_free = full_plan_free;
    iface->graph_plan_compute = full_plan_compute;
}

static inline void full_stop(void) {
    device_stop(&fake);
}
