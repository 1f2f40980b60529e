// SPDX-License-Identifier: MIT
// 2023/ggml-backend-impl.h: the tables that a backend of 2023 fills, and the structs that programs of then read.
#pragma once

#include "ggml-backend.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef void *ggml_backend_buffer_context_t;
typedef void *ggml_backend_context_t;

// All but get_base may be NULL.
struct ggml_backend_buffer_i {
    void (*free_buffer)(ggml_backend_buffer_t buffer);
    void *(*get_base)(ggml_backend_buffer_t buffer);
    size_t (*get_alloc_size)(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor); // before placing
    void (*init_tensor)(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor);      // after placing
    void (*free_tensor)(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor);      // before giving back
};

// Made by ggml_backend_buffer_init alone.
struct ggml_backend_buffer {
    size_t today[16]; // what today's functions see, since tensors point here
    struct ggml_backend_buffer_i iface;
    ggml_backend_t backend;
    ggml_backend_buffer_context_t context;
    size_t size;
};

// cpy_tensor_from and cpy_tensor_to may be NULL.
struct ggml_backend_i {
    const char *(*get_name)(ggml_backend_t backend);
    void (*free)(ggml_backend_t backend);
    ggml_backend_buffer_t (*alloc_buffer)(ggml_backend_t backend, size_t size);
    size_t (*get_alignment)(ggml_backend_t backend);
    void (*set_tensor_async)(ggml_backend_t backend, struct ggml_tensor *tensor, const void *data, size_t offset, size_t size);
    void (*get_tensor_async)(ggml_backend_t backend, const struct ggml_tensor *tensor, void *data, size_t offset, size_t size);
    void (*synchronize)(ggml_backend_t backend);
    void (*cpy_tensor_from)(ggml_backend_t backend, struct ggml_tensor *src, struct ggml_tensor *dst);
    void (*cpy_tensor_to)(ggml_backend_t backend, struct ggml_tensor *src, struct ggml_tensor *dst);
    ggml_backend_graph_plan_t (*graph_plan_create)(ggml_backend_t backend, struct ggml_cgraph *cgraph);
    void (*graph_plan_free)(ggml_backend_t backend, ggml_backend_graph_plan_t plan);
    void (*graph_plan_compute)(ggml_backend_t backend, ggml_backend_graph_plan_t plan);
    void (*graph_compute)(ggml_backend_t backend, struct ggml_cgraph *cgraph);
    bool (*supports_op)(ggml_backend_t backend, const struct ggml_tensor *op);
};

struct ggml_backend {
    struct ggml_backend_i iface;
    ggml_backend_context_t context;
};

GGML_API ggml_backend_buffer_t berth_2023_buffer_init(
    struct ggml_backend *backend, struct ggml_backend_buffer_i iface, ggml_backend_buffer_context_t context, size_t size);

// ---- the names of then ----

#ifndef BERTH_2023_IMPLEMENTATION
#    define ggml_backend_buffer_init berth_2023_buffer_init
#endif

#ifdef __cplusplus
}
#endif
