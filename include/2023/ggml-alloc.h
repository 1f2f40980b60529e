// SPDX-License-Identifier: MIT
// 2023/ggml-alloc.h: the two allocator APIs of 2023, ggml_allocr_* and later ggml_tallocr_* and ggml_gallocr_*, for programs
// written for them. Put include/2023 before include on the include path. The functions have their own symbols, so all generations
// of the API can be in one process; one source file uses one generation. docs/user/allocators.md compares the three.
//
// A tensor that does not fit gets no data; berth_last_error() has the reason, and max_size returns the bytes that are needed.
#pragma once

#include "ggml.h"

// Functions that take or return a backend, a buffer type or a buffer have one symbol per layout of these structs.
#if BERTH_2023 >= 202402
#    define BERTH_2023_AT(name) berth_202402_##name
#elif BERTH_2023 >= 202312
#    define BERTH_2023_AT(name) berth_202312_##name
#else
#    define BERTH_2023_AT(name) berth_202311_##name
#endif

#ifdef __cplusplus
extern "C" {
#endif

struct ggml_backend;
struct ggml_backend_buffer;
struct ggml_backend_buffer_type;

// ---- first generation: one allocator for tensors and graphs ----

struct ggml_allocr;
typedef struct ggml_allocr *ggml_allocr_t;

// Allocators over the caller's memory (new), for measuring only (new_measure), over a buffer that stays the caller's
// (new_from_buffer), and over a new buffer of a backend (new_from_backend). Free them with ggml_allocr_free.
GGML_API ggml_allocr_t BERTH_2023_AT(allocr_new)(void *data, size_t size, size_t alignment);
GGML_API ggml_allocr_t BERTH_2023_AT(allocr_new_measure)(size_t alignment);
GGML_API ggml_allocr_t berth_2023_allocr_new_from_buffer(struct ggml_backend_buffer *buffer);
GGML_API ggml_allocr_t BERTH_2023_AT(allocr_new_from_backend)(struct ggml_backend *backend, size_t size);
GGML_API ggml_allocr_t BERTH_2023_AT(allocr_new_measure_from_backend)(struct ggml_backend *backend);
GGML_API struct ggml_backend_buffer *berth_2023_allocr_get_buffer(ggml_allocr_t alloc);
// Sets the order in which the nodes run. Memory is freed only at a barrier, which is the value -1 in the list.
GGML_API void berth_2023_allocr_set_parse_seq(ggml_allocr_t alloc, const int *list, int n);
GGML_API void berth_2023_allocr_free(ggml_allocr_t alloc);
GGML_API bool berth_2023_allocr_is_measure(ggml_allocr_t alloc);
GGML_API void berth_2023_allocr_reset(ggml_allocr_t alloc);
GGML_API void berth_2023_allocr_alloc(ggml_allocr_t alloc, struct ggml_tensor *tensor);
GGML_API size_t berth_2023_allocr_max_size(ggml_allocr_t alloc);
GGML_API size_t berth_2023_allocr_alloc_graph(ggml_allocr_t alloc, struct ggml_cgraph *graph);
// October 2023: allocates several graphs that run one after the other. inputs[i] and outputs[i] are NULL, or lists that end with
// NULL.
GGML_API size_t berth_2023_allocr_alloc_graph_n(
    ggml_allocr_t alloc, struct ggml_cgraph **graphs, int n_graphs, struct ggml_tensor ***inputs, struct ggml_tensor ***outputs);

// ---- second generation: tensor allocators, and graph allocators over them ----

struct ggml_tallocr;
struct ggml_gallocr;
typedef struct ggml_tallocr *ggml_tallocr_t;
typedef struct ggml_gallocr *ggml_gallocr_t;

GGML_API ggml_tallocr_t BERTH_2023_AT(tallocr_new)(void *data, size_t size, size_t alignment);
GGML_API ggml_tallocr_t BERTH_2023_AT(tallocr_new_measure)(size_t alignment);
GGML_API ggml_tallocr_t berth_2023_tallocr_new_from_buffer(struct ggml_backend_buffer *buffer);
GGML_API ggml_tallocr_t BERTH_2023_AT(tallocr_new_from_backend)(struct ggml_backend *backend, size_t size);
GGML_API ggml_tallocr_t BERTH_2023_AT(tallocr_new_measure_from_backend)(struct ggml_backend *backend);
#if BERTH_2023 >= 202312
GGML_API ggml_tallocr_t BERTH_2023_AT(tallocr_new_from_buft)(struct ggml_backend_buffer_type *buft, size_t size);
GGML_API ggml_tallocr_t BERTH_2023_AT(tallocr_new_measure_from_buft)(struct ggml_backend_buffer_type *buft);
#endif
GGML_API struct ggml_backend_buffer *berth_2023_tallocr_get_buffer(ggml_tallocr_t talloc);
GGML_API void berth_2023_tallocr_free(ggml_tallocr_t talloc);
GGML_API bool berth_2023_tallocr_is_measure(ggml_tallocr_t talloc);
GGML_API void berth_2023_tallocr_reset(ggml_tallocr_t talloc);
GGML_API void berth_2023_tallocr_alloc(ggml_tallocr_t talloc, struct ggml_tensor *tensor);
GGML_API size_t berth_2023_tallocr_max_size(ggml_tallocr_t talloc);

GGML_API ggml_gallocr_t berth_2023_gallocr_new(void);
GGML_API void berth_2023_gallocr_free(ggml_gallocr_t galloc);
GGML_API void berth_2023_gallocr_set_parse_seq(ggml_gallocr_t galloc, const int *list, int n);
GGML_API size_t berth_2023_gallocr_alloc_graph(ggml_gallocr_t galloc, ggml_tallocr_t talloc, struct ggml_cgraph *graph);
// Allocates each tensor from the allocator at the tensor's slot of the hash set.
GGML_API void berth_2023_gallocr_alloc_graph_n(
    ggml_gallocr_t galloc, struct ggml_cgraph *graph, struct ggml_hash_set hash_set, ggml_tallocr_t *hash_node_talloc);

// Returns one buffer with every tensor of the context that has no memory yet. The caller frees it.
GGML_API struct ggml_backend_buffer *BERTH_2023_AT(alloc_ctx_tensors_from_buft)(
    struct ggml_context *ctx, struct ggml_backend_buffer_type *buft);
GGML_API struct ggml_backend_buffer *BERTH_2023_AT(alloc_ctx_tensors)(struct ggml_context *ctx, struct ggml_backend *backend);

// ---- names of ggml's API ----

#ifndef BERTH_2023_IMPLEMENTATION
#    define ggml_allocr_new BERTH_2023_AT(allocr_new)
#    define ggml_allocr_new_measure BERTH_2023_AT(allocr_new_measure)
#    define ggml_allocr_new_from_buffer berth_2023_allocr_new_from_buffer
#    define ggml_allocr_new_from_backend BERTH_2023_AT(allocr_new_from_backend)
#    define ggml_allocr_new_measure_from_backend BERTH_2023_AT(allocr_new_measure_from_backend)
#    define ggml_allocr_get_buffer berth_2023_allocr_get_buffer
#    define ggml_allocr_set_parse_seq berth_2023_allocr_set_parse_seq
#    define ggml_allocr_free berth_2023_allocr_free
#    define ggml_allocr_is_measure berth_2023_allocr_is_measure
#    define ggml_allocr_reset berth_2023_allocr_reset
#    define ggml_allocr_alloc berth_2023_allocr_alloc
#    define ggml_allocr_max_size berth_2023_allocr_max_size
#    define ggml_allocr_alloc_graph berth_2023_allocr_alloc_graph
#    define ggml_allocr_alloc_graph_n berth_2023_allocr_alloc_graph_n
#    define ggml_tallocr_new BERTH_2023_AT(tallocr_new)
#    define ggml_tallocr_new_measure BERTH_2023_AT(tallocr_new_measure)
#    define ggml_tallocr_new_from_buffer berth_2023_tallocr_new_from_buffer
#    define ggml_tallocr_new_from_backend BERTH_2023_AT(tallocr_new_from_backend)
#    define ggml_tallocr_new_measure_from_backend BERTH_2023_AT(tallocr_new_measure_from_backend)
#    define ggml_tallocr_new_from_buft BERTH_2023_AT(tallocr_new_from_buft)
#    define ggml_tallocr_new_measure_from_buft BERTH_2023_AT(tallocr_new_measure_from_buft)
#    define ggml_tallocr_get_buffer berth_2023_tallocr_get_buffer
#    define ggml_tallocr_free berth_2023_tallocr_free
#    define ggml_tallocr_is_measure berth_2023_tallocr_is_measure
#    define ggml_tallocr_reset berth_2023_tallocr_reset
#    define ggml_tallocr_alloc berth_2023_tallocr_alloc
#    define ggml_tallocr_max_size berth_2023_tallocr_max_size
#    define ggml_gallocr_new berth_2023_gallocr_new
#    define ggml_gallocr_free berth_2023_gallocr_free
#    define ggml_gallocr_set_parse_seq berth_2023_gallocr_set_parse_seq
#    define ggml_gallocr_alloc_graph berth_2023_gallocr_alloc_graph
#    define ggml_gallocr_alloc_graph_n berth_2023_gallocr_alloc_graph_n
#    define ggml_backend_alloc_ctx_tensors_from_buft BERTH_2023_AT(alloc_ctx_tensors_from_buft)
#    define ggml_backend_alloc_ctx_tensors BERTH_2023_AT(alloc_ctx_tensors)
#endif

#ifdef __cplusplus
}
#endif
