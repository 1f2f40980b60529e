// SPDX-License-Identifier: MIT
// 2023/ggml-backend.h: backends and buffers as of the end of 2023, for programs written for them. See 2023/ggml-alloc.h.
#pragma once

#include "ggml-alloc.h"
#include "ggml.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ggml_backend *ggml_backend_t;
typedef struct ggml_backend_buffer *ggml_backend_buffer_t;
typedef struct ggml_backend_buffer_type *ggml_backend_buffer_type_t;
typedef void *ggml_backend_graph_plan_t;

// ---- buffers ----

GGML_API void berth_2023_buffer_free(ggml_backend_buffer_t buffer);
GGML_API size_t berth_2023_buffer_get_alignment(ggml_backend_buffer_t buffer);
GGML_API void *berth_2023_buffer_get_base(ggml_backend_buffer_t buffer);
GGML_API size_t berth_2023_buffer_get_size(ggml_backend_buffer_t buffer);
GGML_API size_t berth_2023_buffer_get_alloc_size(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor);
GGML_API void berth_2023_buffer_init_tensor(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor);
GGML_API void berth_2023_buffer_free_tensor(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor);

// ---- backends ----

GGML_API ggml_backend_t berth_2023_get_backend(const struct ggml_tensor *tensor);
GGML_API const char *berth_2023_name(ggml_backend_t backend);
GGML_API void berth_2023_free(ggml_backend_t backend);
GGML_API ggml_backend_buffer_t berth_2023_alloc_buffer(ggml_backend_t backend, size_t size);
GGML_API size_t berth_2023_get_alignment(ggml_backend_t backend);
GGML_API ggml_backend_buffer_type_t berth_2023_get_default_buffer_type(ggml_backend_t backend);
GGML_API void berth_2023_tensor_set_async(struct ggml_tensor *tensor, const void *data, size_t offset, size_t size);
GGML_API void berth_2023_tensor_get_async(const struct ggml_tensor *tensor, void *data, size_t offset, size_t size);
GGML_API void berth_2023_tensor_set(struct ggml_tensor *tensor, const void *data, size_t offset, size_t size);
GGML_API void berth_2023_tensor_get(const struct ggml_tensor *tensor, void *data, size_t offset, size_t size);
GGML_API void berth_2023_synchronize(ggml_backend_t backend);
GGML_API ggml_backend_graph_plan_t berth_2023_graph_plan_create(ggml_backend_t backend, struct ggml_cgraph *cgraph);
GGML_API void berth_2023_graph_plan_free(ggml_backend_t backend, ggml_backend_graph_plan_t plan);
GGML_API void berth_2023_graph_plan_compute(ggml_backend_t backend, ggml_backend_graph_plan_t plan);
GGML_API void berth_2023_graph_compute(ggml_backend_t backend, struct ggml_cgraph *cgraph);
GGML_API bool berth_2023_supports_op(ggml_backend_t backend, const struct ggml_tensor *op);
GGML_API void berth_2023_tensor_copy(struct ggml_tensor *src, struct ggml_tensor *dst);
// ggml_backend_graph_compute with a status, since then it had none.
GGML_API enum ggml_status berth_2023_graph_compute_status(ggml_backend_t backend, struct ggml_cgraph *cgraph);

// ---- the CPU ----

GGML_API bool berth_2023_is_cpu(ggml_backend_t backend);
GGML_API ggml_backend_buffer_t berth_2023_cpu_buffer_from_ptr(ggml_backend_t backend_cpu, void *ptr, size_t size);

#ifndef BERTH_2023_IMPLEMENTATION
// Today's, in the library of the CPU backend, made a backend of then.
struct berth_today_backend;
extern struct berth_today_backend *ggml_backend_cpu_init(void);
extern void ggml_backend_cpu_set_n_threads(struct berth_today_backend *backend_cpu, int n_threads);
GGML_API ggml_backend_t berth_2023_wrap(struct berth_today_backend *backend);
GGML_API struct berth_today_backend *berth_2023_wrapped(ggml_backend_t backend);

static inline ggml_backend_t berth_2023_cpu_init(void) {
    return berth_2023_wrap(ggml_backend_cpu_init());
}

static inline void berth_2023_cpu_set_n_threads(ggml_backend_t backend_cpu, int n_threads) {
    if (berth_2023_is_cpu(backend_cpu)) {
        ggml_backend_cpu_set_n_threads(berth_2023_wrapped(backend_cpu), n_threads);
    }
}

#    define ggml_backend_cpu_init berth_2023_cpu_init
#    define ggml_backend_cpu_set_n_threads berth_2023_cpu_set_n_threads
#endif

// ---- the scheduler: one graph over several backends ----

struct ggml_backend_sched;
typedef struct ggml_backend_sched *ggml_backend_sched_t;

// The first backend has the highest priority; the last one should be the CPU. Starts with allocators that measure.
GGML_API ggml_backend_sched_t berth_2023_sched_new(ggml_backend_t *backends, int n_backends);
GGML_API void berth_2023_sched_free(ggml_backend_sched_t sched);
// Splits and measures the largest graph there will be, then gets one buffer for each backend.
GGML_API void berth_2023_sched_init_measure(ggml_backend_sched_t sched, struct ggml_cgraph *measure_graph);
// For inputs, before and after measuring. What they place is forgotten after each graph.
GGML_API ggml_tallocr_t berth_2023_sched_get_tallocr(ggml_backend_sched_t sched, ggml_backend_t backend);
GGML_API ggml_backend_buffer_t berth_2023_sched_get_buffer(ggml_backend_sched_t sched, ggml_backend_t backend);
// For one graph.
GGML_API void berth_2023_sched_set_node_backend(ggml_backend_sched_t sched, struct ggml_tensor *node, ggml_backend_t backend);
GGML_API void berth_2023_sched_graph_compute(ggml_backend_sched_t sched, struct ggml_cgraph *graph);
// The same with a status, since then it had none.
GGML_API enum ggml_status berth_2023_sched_graph_compute_status(ggml_backend_sched_t sched, struct ggml_cgraph *graph);

// ---- the names of then ----

#ifndef BERTH_2023_IMPLEMENTATION
#    define ggml_backend_sched_new berth_2023_sched_new
#    define ggml_backend_sched_free berth_2023_sched_free
#    define ggml_backend_sched_init_measure berth_2023_sched_init_measure
#    define ggml_backend_sched_get_tallocr berth_2023_sched_get_tallocr
#    define ggml_backend_sched_get_buffer berth_2023_sched_get_buffer
#    define ggml_backend_sched_set_node_backend berth_2023_sched_set_node_backend
#    define ggml_backend_sched_graph_compute berth_2023_sched_graph_compute
#    define ggml_backend_buffer_free berth_2023_buffer_free
#    define ggml_backend_buffer_get_alignment berth_2023_buffer_get_alignment
#    define ggml_backend_buffer_get_base berth_2023_buffer_get_base
#    define ggml_backend_buffer_get_size berth_2023_buffer_get_size
#    define ggml_backend_buffer_get_alloc_size berth_2023_buffer_get_alloc_size
#    define ggml_backend_buffer_init_tensor berth_2023_buffer_init_tensor
#    define ggml_backend_buffer_free_tensor berth_2023_buffer_free_tensor
#    define ggml_get_backend berth_2023_get_backend
#    define ggml_backend_name berth_2023_name
#    define ggml_backend_free berth_2023_free
#    define ggml_backend_alloc_buffer berth_2023_alloc_buffer
#    define ggml_backend_get_alignment berth_2023_get_alignment
#    define ggml_backend_get_default_buffer_type berth_2023_get_default_buffer_type
#    define ggml_backend_tensor_set_async berth_2023_tensor_set_async
#    define ggml_backend_tensor_get_async berth_2023_tensor_get_async
#    define ggml_backend_tensor_set berth_2023_tensor_set
#    define ggml_backend_tensor_get berth_2023_tensor_get
#    define ggml_backend_synchronize berth_2023_synchronize
#    define ggml_backend_graph_plan_create berth_2023_graph_plan_create
#    define ggml_backend_graph_plan_free berth_2023_graph_plan_free
#    define ggml_backend_graph_plan_compute berth_2023_graph_plan_compute
#    define ggml_backend_graph_compute berth_2023_graph_compute
#    define ggml_backend_supports_op berth_2023_supports_op
#    define ggml_backend_tensor_copy berth_2023_tensor_copy
#    define ggml_backend_is_cpu berth_2023_is_cpu
#    define ggml_backend_cpu_buffer_from_ptr berth_2023_cpu_buffer_from_ptr
#endif

#ifdef __cplusplus
}
#endif
