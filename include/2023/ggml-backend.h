// SPDX-License-Identifier: MIT
// 2023/ggml-backend.h: backends and buffers of November 2023 to February 2024, for programs written for them. BERTH_2023 selects
// the date if the prototypes of several dates differ. 2023/ggml-alloc.h has the general rules.
#pragma once

#include "ggml.h"

#include "ggml-alloc.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ggml_backend *ggml_backend_t;
typedef struct ggml_backend_buffer *ggml_backend_buffer_t;
typedef struct ggml_backend_buffer_type *ggml_backend_buffer_type_t;
typedef void *ggml_backend_graph_plan_t;

// Without a date, the functions of 2024 are available too.
#if BERTH_2023 >= 202402 || defined(BERTH_2023_ANY) || (defined(BERTH_2023_IMPLEMENTATION) && BERTH_2023 >= 202312)
#    define BERTH_2023_HAS_2024
#endif

// ---- buffer types ----

#if BERTH_2023 >= 202312
GGML_API GGML_CALL ggml_backend_buffer_t BERTH_2023_AT(buft_alloc_buffer)(ggml_backend_buffer_type_t buft, size_t size);
GGML_API size_t BERTH_2023_AT(buft_get_alignment)(ggml_backend_buffer_type_t buft);
GGML_API GGML_CALL size_t BERTH_2023_AT(buft_get_alloc_size)(ggml_backend_buffer_type_t buft, struct ggml_tensor *tensor);
GGML_API bool BERTH_2023_AT(buft_supports_backend)(ggml_backend_buffer_type_t buft, ggml_backend_t backend);
#endif
#ifdef BERTH_2023_HAS_2024
GGML_API const char *BERTH_2023_AT(buft_name)(ggml_backend_buffer_type_t buft);
GGML_API size_t BERTH_2023_AT(buft_get_max_size)(ggml_backend_buffer_type_t buft);
GGML_API bool BERTH_2023_AT(buft_is_host)(ggml_backend_buffer_type_t buft);
#endif

// ---- buffers ----

GGML_API void berth_2023_buffer_free(ggml_backend_buffer_t buffer);
GGML_API size_t berth_2023_buffer_get_alignment(ggml_backend_buffer_t buffer);
GGML_API void *berth_2023_buffer_get_base(ggml_backend_buffer_t buffer);
GGML_API size_t berth_2023_buffer_get_size(ggml_backend_buffer_t buffer);
GGML_API size_t berth_2023_buffer_get_alloc_size(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor);
GGML_API GGML_CALL void berth_2023_buffer_init_tensor(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor);
GGML_API void berth_2023_buffer_free_tensor(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor); // until November 2023
GGML_API const char *berth_2023_buffer_name(ggml_backend_buffer_t buffer); // this and the next four: since 2024
GGML_API size_t berth_2023_buffer_get_max_size(ggml_backend_buffer_t buffer);
GGML_API void berth_2023_buffer_clear(ggml_backend_buffer_t buffer, uint8_t value);
GGML_API bool berth_2023_buffer_is_host(ggml_backend_buffer_t buffer);
GGML_API void berth_2023_buffer_reset(ggml_backend_buffer_t buffer);
#if BERTH_2023 >= 202312
GGML_API ggml_backend_buffer_type_t BERTH_2023_AT(buffer_get_type)(ggml_backend_buffer_t buffer);
#endif
#ifdef BERTH_2023_HAS_2024
#    ifndef BERTH_2023_IMPLEMENTATION
enum ggml_backend_buffer_usage {
    GGML_BACKEND_BUFFER_USAGE_ANY = 0,
    GGML_BACKEND_BUFFER_USAGE_WEIGHTS = 1,
};
#    endif
GGML_API void BERTH_2023_AT(buffer_set_usage)(ggml_backend_buffer_t buffer, enum ggml_backend_buffer_usage usage);
#endif

// ---- backends ----

GGML_API const char *BERTH_2023_AT(name)(ggml_backend_t backend);
GGML_API void BERTH_2023_AT(free)(ggml_backend_t backend);
GGML_API ggml_backend_buffer_t BERTH_2023_AT(alloc_buffer)(ggml_backend_t backend, size_t size);
GGML_API size_t BERTH_2023_AT(get_alignment)(ggml_backend_t backend);
GGML_API ggml_backend_buffer_type_t BERTH_2023_AT(get_default_buffer_type)(
    ggml_backend_t backend); // before December 2023 it returns the backend
#if BERTH_2023 < 202312
GGML_API ggml_backend_t BERTH_2023_AT(get_backend)(const struct ggml_tensor *tensor);
GGML_API void BERTH_2023_AT(tensor_set_async)(struct ggml_tensor *tensor, const void *data, size_t offset, size_t size);
GGML_API void BERTH_2023_AT(tensor_get_async)(const struct ggml_tensor *tensor, void *data, size_t offset, size_t size);
#else
GGML_API void BERTH_2023_AT(tensor_set_async)(
    ggml_backend_t backend, struct ggml_tensor *tensor, const void *data, size_t offset, size_t size);
GGML_API void BERTH_2023_AT(tensor_get_async)(
    ggml_backend_t backend, const struct ggml_tensor *tensor, void *data, size_t offset, size_t size);
GGML_API void BERTH_2023_AT(tensor_copy_async)(ggml_backend_t backend, struct ggml_tensor *src, struct ggml_tensor *dst);
#endif
#ifdef BERTH_2023_HAS_2024
GGML_API size_t BERTH_2023_AT(get_max_size)(ggml_backend_t backend);
#endif
GGML_API GGML_CALL void berth_2023_tensor_set(struct ggml_tensor *tensor, const void *data, size_t offset, size_t size);
GGML_API GGML_CALL void berth_2023_tensor_get(const struct ggml_tensor *tensor, void *data, size_t offset, size_t size);
GGML_API void BERTH_2023_AT(synchronize)(ggml_backend_t backend);
GGML_API ggml_backend_graph_plan_t BERTH_2023_AT(graph_plan_create)(ggml_backend_t backend, struct ggml_cgraph *cgraph);
GGML_API void BERTH_2023_AT(graph_plan_free)(ggml_backend_t backend, ggml_backend_graph_plan_t plan);
GGML_API void BERTH_2023_AT(graph_plan_compute)(ggml_backend_t backend, ggml_backend_graph_plan_t plan);
#if BERTH_2023 < 202402
GGML_API void BERTH_2023_AT(graph_compute)(ggml_backend_t backend, struct ggml_cgraph *cgraph);
#else
GGML_API bool BERTH_2023_AT(graph_compute)(ggml_backend_t backend, struct ggml_cgraph *cgraph);
#endif
GGML_API bool BERTH_2023_AT(supports_op)(ggml_backend_t backend, const struct ggml_tensor *op);
GGML_API void berth_2023_tensor_copy(struct ggml_tensor *src, struct ggml_tensor *dst);
// Like ggml_backend_graph_compute, with a status.
GGML_API enum ggml_status BERTH_2023_AT(graph_compute_status)(ggml_backend_t backend, struct ggml_cgraph *cgraph);

// ---- the CPU ----

GGML_API ggml_backend_t BERTH_2023_AT(cpu_init)(void); // in libggml
GGML_API GGML_CALL bool BERTH_2023_AT(is_cpu)(ggml_backend_t backend);
GGML_API void BERTH_2023_AT(cpu_set_n_threads)(ggml_backend_t backend_cpu, int n_threads);
#if BERTH_2023 < 202312
GGML_API ggml_backend_buffer_t BERTH_2023_AT(cpu_buffer_from_ptr)(ggml_backend_t backend_cpu, void *ptr, size_t size);
#else
GGML_API GGML_CALL ggml_backend_buffer_t BERTH_2023_AT(cpu_buffer_from_ptr)(void *ptr, size_t size);
GGML_API GGML_CALL ggml_backend_buffer_type_t BERTH_2023_AT(cpu_buffer_type)(void);
#endif
#ifdef BERTH_2023_HAS_2024
GGML_API void BERTH_2023_AT(cpu_set_abort_callback)(
    ggml_backend_t backend_cpu, ggml_abort_callback abort_callback, void *abort_callback_data);
// Returns the CPU's buffer type: Berth does not support high-bandwidth memory.
GGML_API ggml_backend_buffer_type_t BERTH_2023_AT(cpu_hbm_buffer_type)(void);
#endif
// Wraps a backend of today's API, which must compute on host memory, as a backend of this API. The result owns it. Returns NULL
// on failure.
struct berth_today_backend;
GGML_API ggml_backend_t BERTH_2023_AT(wrap)(struct berth_today_backend *today);

// ---- the registry (in libggml): the CPU and the backends that the program registers ----

#if BERTH_2023 >= 202312
GGML_API size_t BERTH_2023_AT(reg_get_count)(void);
GGML_API size_t BERTH_2023_AT(reg_find_by_name)(const char *name); // SIZE_MAX if there is none
// The argument is "NAME" or "NAME:params".
GGML_API ggml_backend_t BERTH_2023_AT(reg_init_backend_from_str)(const char *backend_str);
GGML_API const char *BERTH_2023_AT(reg_get_name)(size_t i);
GGML_API ggml_backend_t BERTH_2023_AT(reg_init_backend)(size_t i, const char *params);
GGML_API ggml_backend_buffer_type_t BERTH_2023_AT(reg_get_default_buffer_type)(size_t i);
GGML_API ggml_backend_buffer_t BERTH_2023_AT(reg_alloc_buffer)(size_t i, size_t size);
#endif

// ---- the scheduler: one graph over several backends ----

struct ggml_backend_sched;
typedef struct ggml_backend_sched *ggml_backend_sched_t;

// The first backend has the highest priority. The last one should be the CPU. The scheduler starts with allocators that measure.
#if BERTH_2023 < 202402
GGML_API ggml_backend_sched_t BERTH_2023_AT(sched_new)(ggml_backend_t *backends, int n_backends);
#else
// bufts, or elements of it, may be NULL: the backend's default type is used. graph_size is ignored.
GGML_API ggml_backend_sched_t BERTH_2023_AT(sched_new)(
    ggml_backend_t *backends, ggml_backend_buffer_type_t *bufts, int n_backends, size_t graph_size);
#endif
#if defined(BERTH_2023_ANY) || (defined(BERTH_2023_IMPLEMENTATION) && BERTH_2023 == 202312)
GGML_API ggml_backend_sched_t berth_202312_sched_new_of(
    ggml_backend_t *backends, ggml_backend_buffer_type_t *bufts, int n_backends, size_t graph_size);
#endif
// With ask = true, called before a node: returns whether the caller needs the result. With ask = false the result is ready; false
// then ends the graph.
typedef bool (*ggml_backend_sched_eval_callback)(struct ggml_tensor *t, bool ask, void *user_data);
GGML_API int berth_2023_sched_get_n_splits(ggml_backend_sched_t sched);
GGML_API ggml_backend_t berth_2023_sched_get_node_backend(ggml_backend_sched_t sched, struct ggml_tensor *node);
GGML_API void berth_2023_sched_reset(ggml_backend_sched_t sched);
GGML_API void berth_2023_sched_set_eval_callback(
    ggml_backend_sched_t sched, ggml_backend_sched_eval_callback callback, void *user_data);
GGML_API void berth_2023_sched_free(ggml_backend_sched_t sched);
// Splits and measures the largest graph that will be computed, then allocates one buffer per backend.
GGML_API void berth_2023_sched_init_measure(ggml_backend_sched_t sched, struct ggml_cgraph *measure_graph);
// Returns the allocator for inputs, before and after measuring. It is reset after each graph.
GGML_API ggml_tallocr_t berth_2023_sched_get_tallocr(ggml_backend_sched_t sched, ggml_backend_t backend);
GGML_API ggml_backend_buffer_t berth_2023_sched_get_buffer(ggml_backend_sched_t sched, ggml_backend_t backend);
// Selects the backend of a node, for one graph.
GGML_API void berth_2023_sched_set_node_backend(ggml_backend_sched_t sched, struct ggml_tensor *node, ggml_backend_t backend);
GGML_API void berth_2023_sched_graph_compute(ggml_backend_sched_t sched, struct ggml_cgraph *graph);
// Like ggml_backend_sched_graph_compute, with a status.
GGML_API enum ggml_status berth_2023_sched_graph_compute_status(ggml_backend_sched_t sched, struct ggml_cgraph *graph);

// ---- graphs on another backend ----

#if BERTH_2023 >= 202312
#    ifndef BERTH_2023_IMPLEMENTATION
struct ggml_backend_graph_copy {
    ggml_backend_buffer_t buffer;
    struct ggml_context *ctx_allocated;
    struct ggml_context *ctx_unallocated;
    struct ggml_cgraph *graph;
};
#    endif
// Receives the node of both graphs that was computed last. A false answer ends the comparison.
typedef bool (*GGML_CALL ggml_backend_eval_callback)(
    int node_index, struct ggml_tensor *t1, struct ggml_tensor *t2, void *user_data);
// All members are NULL on failure.
GGML_API struct ggml_backend_graph_copy BERTH_2023_AT(graph_copy)(ggml_backend_t backend, struct ggml_cgraph *graph);
#    if BERTH_2023 < 202402
GGML_API void BERTH_2023_AT(compare_graph_backend)(ggml_backend_t backend1, ggml_backend_t backend2, struct ggml_cgraph *graph,
    ggml_backend_eval_callback callback, void *user_data);
#    else
GGML_API bool BERTH_2023_AT(compare_graph_backend)(ggml_backend_t backend1, ggml_backend_t backend2, struct ggml_cgraph *graph,
    ggml_backend_eval_callback callback, void *user_data);
#    endif
#endif
struct ggml_backend_graph_copy;
GGML_API void berth_2023_graph_copy_free(struct ggml_backend_graph_copy copy);
// These two give one tensor its address.
GGML_API void berth_2023_tensor_alloc(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor, void *addr);
GGML_API void berth_2023_view_init(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor);

// ---- names of ggml's API ----

#ifndef BERTH_2023_IMPLEMENTATION
#    if BERTH_2023 >= 202312
// These are functions and not macros, because a struct has the same name and a macro would rename both.
static inline struct ggml_backend_graph_copy ggml_backend_graph_copy(ggml_backend_t backend, struct ggml_cgraph *graph) {
    return BERTH_2023_AT(graph_copy)(backend, graph);
}
#        if BERTH_2023 < 202402
static inline ggml_backend_buffer_type_t ggml_backend_buffer_type(ggml_backend_buffer_t buffer) {
    return BERTH_2023_AT(buffer_get_type)(buffer);
}
#        endif
#    endif
#    define ggml_backend_buft_alloc_buffer BERTH_2023_AT(buft_alloc_buffer)
#    define ggml_backend_buft_get_alignment BERTH_2023_AT(buft_get_alignment)
#    define ggml_backend_buft_get_alloc_size BERTH_2023_AT(buft_get_alloc_size)
#    define ggml_backend_buft_supports_backend BERTH_2023_AT(buft_supports_backend)
#    define ggml_backend_buft_name BERTH_2023_AT(buft_name)
#    define ggml_backend_buft_get_max_size BERTH_2023_AT(buft_get_max_size)
#    define ggml_backend_buft_is_host BERTH_2023_AT(buft_is_host)
#    define ggml_backend_buffer_free berth_2023_buffer_free
#    define ggml_backend_buffer_get_alignment berth_2023_buffer_get_alignment
#    define ggml_backend_buffer_get_base berth_2023_buffer_get_base
#    define ggml_backend_buffer_get_size berth_2023_buffer_get_size
#    define ggml_backend_buffer_get_alloc_size berth_2023_buffer_get_alloc_size
#    define ggml_backend_buffer_init_tensor berth_2023_buffer_init_tensor
#    define ggml_backend_buffer_free_tensor berth_2023_buffer_free_tensor
#    define ggml_backend_buffer_get_type BERTH_2023_AT(buffer_get_type)
#    define ggml_backend_buffer_name berth_2023_buffer_name
#    define ggml_backend_buffer_get_max_size berth_2023_buffer_get_max_size
#    define ggml_backend_buffer_clear berth_2023_buffer_clear
#    define ggml_backend_buffer_is_host berth_2023_buffer_is_host
#    define ggml_backend_buffer_set_usage BERTH_2023_AT(buffer_set_usage)
#    define ggml_backend_buffer_reset berth_2023_buffer_reset
#    define ggml_backend_name BERTH_2023_AT(name)
#    define ggml_backend_free BERTH_2023_AT(free)
#    define ggml_backend_alloc_buffer BERTH_2023_AT(alloc_buffer)
#    define ggml_backend_get_alignment BERTH_2023_AT(get_alignment)
#    define ggml_get_backend BERTH_2023_AT(get_backend)
#    define ggml_backend_tensor_set_async BERTH_2023_AT(tensor_set_async)
#    define ggml_backend_tensor_get_async BERTH_2023_AT(tensor_get_async)
#    define ggml_backend_get_default_buffer_type BERTH_2023_AT(get_default_buffer_type)
#    define ggml_backend_tensor_copy_async BERTH_2023_AT(tensor_copy_async)
#    define ggml_backend_get_max_size BERTH_2023_AT(get_max_size)
#    define ggml_backend_tensor_set berth_2023_tensor_set
#    define ggml_backend_tensor_get berth_2023_tensor_get
#    define ggml_backend_synchronize BERTH_2023_AT(synchronize)
#    define ggml_backend_graph_plan_create BERTH_2023_AT(graph_plan_create)
#    define ggml_backend_graph_plan_free BERTH_2023_AT(graph_plan_free)
#    define ggml_backend_graph_plan_compute BERTH_2023_AT(graph_plan_compute)
#    define ggml_backend_graph_compute BERTH_2023_AT(graph_compute)
#    define ggml_backend_supports_op BERTH_2023_AT(supports_op)
#    define ggml_backend_tensor_copy berth_2023_tensor_copy
#    define ggml_backend_cpu_init BERTH_2023_AT(cpu_init)
#    define ggml_backend_is_cpu BERTH_2023_AT(is_cpu)
#    define ggml_backend_cpu_set_n_threads BERTH_2023_AT(cpu_set_n_threads)
#    define ggml_backend_cpu_buffer_from_ptr BERTH_2023_AT(cpu_buffer_from_ptr)
#    define ggml_backend_cpu_buffer_type BERTH_2023_AT(cpu_buffer_type)
#    define ggml_backend_cpu_set_abort_callback BERTH_2023_AT(cpu_set_abort_callback)
#    define ggml_backend_cpu_hbm_buffer_type BERTH_2023_AT(cpu_hbm_buffer_type)
#    define ggml_backend_reg_get_count BERTH_2023_AT(reg_get_count)
#    define ggml_backend_reg_find_by_name BERTH_2023_AT(reg_find_by_name)
#    define ggml_backend_reg_init_backend_from_str BERTH_2023_AT(reg_init_backend_from_str)
#    define ggml_backend_reg_get_name BERTH_2023_AT(reg_get_name)
#    define ggml_backend_reg_init_backend BERTH_2023_AT(reg_init_backend)
#    define ggml_backend_reg_get_default_buffer_type BERTH_2023_AT(reg_get_default_buffer_type)
#    define ggml_backend_reg_alloc_buffer BERTH_2023_AT(reg_alloc_buffer)
#    define ggml_backend_sched_new BERTH_2023_AT(sched_new)
#    define ggml_backend_sched_get_n_splits berth_2023_sched_get_n_splits
#    define ggml_backend_sched_get_node_backend berth_2023_sched_get_node_backend
#    define ggml_backend_sched_reset berth_2023_sched_reset
#    define ggml_backend_sched_set_eval_callback berth_2023_sched_set_eval_callback
#    define ggml_backend_sched_free berth_2023_sched_free
#    define ggml_backend_sched_init_measure berth_2023_sched_init_measure
#    define ggml_backend_sched_get_tallocr berth_2023_sched_get_tallocr
#    define ggml_backend_sched_get_buffer berth_2023_sched_get_buffer
#    define ggml_backend_sched_set_node_backend berth_2023_sched_set_node_backend
#    define ggml_backend_sched_graph_compute berth_2023_sched_graph_compute
#    define ggml_backend_graph_copy_free berth_2023_graph_copy_free
#    define ggml_backend_compare_graph_backend BERTH_2023_AT(compare_graph_backend)
#    define ggml_backend_tensor_alloc berth_2023_tensor_alloc
#    define ggml_backend_view_init berth_2023_view_init
#    define berth_2023_graph_compute_status BERTH_2023_AT(graph_compute_status)
#endif

#ifdef __cplusplus
}
#endif

// Without a date, the number of arguments selects the form.
#ifdef BERTH_2023_ANY
static inline ggml_backend_buffer_t berth_2023_buffer_from_ptr(ggml_backend_t backend_cpu, void *ptr, size_t size) {
    (void) backend_cpu;
    return berth_202312_cpu_buffer_from_ptr(ptr, size);
}
#    ifdef __cplusplus
static inline ggml_backend_sched_t berth_202312_sched_new(
    ggml_backend_t *backends, ggml_backend_buffer_type_t *bufts, int n_backends, size_t graph_size) {
    return berth_202312_sched_new_of(backends, bufts, n_backends, graph_size);
}
static inline ggml_backend_buffer_t berth_202312_cpu_buffer_from_ptr(ggml_backend_t backend_cpu, void *ptr, size_t size) {
    return berth_2023_buffer_from_ptr(backend_cpu, ptr, size);
}
static inline void berth_202312_tensor_set_async(struct ggml_tensor *tensor, const void *data, size_t offset, size_t size) {
    berth_2023_tensor_set(tensor, data, offset, size);
}
static inline void berth_202312_tensor_get_async(const struct ggml_tensor *tensor, void *data, size_t offset, size_t size) {
    berth_2023_tensor_get(tensor, data, offset, size);
}
#    else
#        define BERTH_2023_PICK_5(a, b, c, d, e, name, ...) name
#        define berth_202312_sched_new(...) \
            BERTH_2023_PICK_5(__VA_ARGS__, , berth_202312_sched_new_of, , berth_202312_sched_new, , )(__VA_ARGS__)
#        define berth_202312_cpu_buffer_from_ptr(...) \
            BERTH_2023_PICK_5(__VA_ARGS__, , , berth_2023_buffer_from_ptr, berth_202312_cpu_buffer_from_ptr, , )(__VA_ARGS__)
#        define berth_202312_tensor_set_async(...) \
            BERTH_2023_PICK_5(__VA_ARGS__, berth_202312_tensor_set_async, berth_2023_tensor_set, , , , )(__VA_ARGS__)
#        define berth_202312_tensor_get_async(...) \
            BERTH_2023_PICK_5(__VA_ARGS__, berth_202312_tensor_get_async, berth_2023_tensor_get, , , , )(__VA_ARGS__)
#    endif
#endif
