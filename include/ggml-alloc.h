// SPDX-License-Identifier: MIT
// ggml-alloc.h: tensor and graph allocators over backend buffers.
//
// General rules:
//   - Sizes and offsets are in bytes.
//   - A function that fails returns a status, false or NULL and sets berth_last_error() (berth.h).
//   - After a failure an allocator holds its old buffers, or others as large, and can be used for the next graph.
//   - An allocator has no lock. Use each one from one thread at a time. Different allocators can work concurrently.
//   - Every function accepts NULL. It then returns its failure value or does nothing.
#pragma once

#include "ggml.h"

#ifdef __cplusplus
extern "C" {
#endif

// A kind of memory, such as host memory or the memory of one GPU (ggml-backend.h).
typedef struct ggml_backend_buffer_type *ggml_backend_buffer_type_t;

// A range of memory of one buffer type (ggml-backend.h).
typedef struct ggml_backend_buffer *ggml_backend_buffer_t;

// A stream of work on one device (ggml-backend.h).
typedef struct ggml_backend *ggml_backend_t;

// Places tensors one after another in a buffer. It owns nothing and needs no free function.
struct ggml_tallocr {
    ggml_backend_buffer_t buffer; // the buffer, which the caller owns
    void *base;                   // address of the buffer's first byte
    size_t alignment;             // every tensor's address is a multiple of this
    size_t offset;                // bytes from base to the place of the next tensor
};

// A graph allocator. It owns the buffers that its graphs use.
typedef struct ggml_gallocr *ggml_gallocr_t;

// ---- one tensor after another in a buffer ----

// Returns an allocator that starts at the first aligned address of the buffer. The buffer must outlive it.
// With a NULL buffer the result has a NULL buffer, and ggml_tallocr_alloc fails on it.
GGML_API struct ggml_tallocr ggml_tallocr_new(ggml_backend_buffer_t buffer);

// Gives the tensor the next free place in the buffer and advances the offset. The tensor must not have memory or be a view.
// A failure changes nothing. Returns GGML_STATUS_ALLOC_FAILED if too few bytes are left, GGML_STATUS_FAILED for other errors.
GGML_API enum ggml_status ggml_tallocr_alloc(struct ggml_tallocr *talloc, struct ggml_tensor *tensor);

// ---- whole graphs, memory shared over time ----

// Tensors whose lifetimes do not overlap share memory; docs/user/allocators.md states the rules. Tensors that have memory, such
// as weights, keep it. An allocator keeps the plans of up to eight graphs, so graphs that alternate are planned once each.

// Creates a graph allocator with one buffer of the given type. No buffer is allocated yet. Free it with ggml_gallocr_free.
// Returns NULL on failure.
GGML_API ggml_gallocr_t ggml_gallocr_new(ggml_backend_buffer_type_t buft);

// Creates a graph allocator with n_bufs buffers; bufts[i] is the type of buffer i. Buffers of one type share their memory.
// The array is copied. Free the result with ggml_gallocr_free. Returns NULL on failure.
GGML_API ggml_gallocr_t ggml_gallocr_new_n(ggml_backend_buffer_type_t *bufts, int n_bufs);

// Frees the allocator, its plans and its buffers. Tensors that are placed in these buffers must not be used any more.
GGML_API void ggml_gallocr_free(ggml_gallocr_t galloc);

// Plans the graph and allocates buffers that are large enough for it. All tensors go to buffer 0. Tensors get no addresses yet.
// Afterwards ggml_gallocr_alloc_graph allocates nothing for this graph or for one of the same form in which no extent is larger.
// Returns false on failure.
GGML_API bool ggml_gallocr_reserve(ggml_gallocr_t galloc, struct ggml_cgraph *graph);

// Computes the bytes that each buffer needs for this graph, without allocating buffers. sizes has one element per buffer.
// Of several buffers of one type, the first has the bytes of all of them and the others have 0. On failure all sizes are 0.
GGML_API void ggml_gallocr_reserve_n_size(
    ggml_gallocr_t galloc, struct ggml_cgraph *graph, const int *node_buffer_ids, const int *leaf_buffer_ids, size_t *sizes);

// Like ggml_gallocr_reserve for several buffers: node_buffer_ids[i] is the buffer of node i, leaf_buffer_ids[i] that of leaf i.
// A NULL array means buffer 0 for all. An id that is not a buffer of the allocator is a failure.
GGML_API bool ggml_gallocr_reserve_n(
    ggml_gallocr_t galloc, struct ggml_cgraph *graph, const int *node_buffer_ids, const int *leaf_buffer_ids);

// Sets the address and buffer of every tensor of the graph. A graph without a plan is planned first, and buffers grow as needed.
// With several buffer types such a graph is a failure: call ggml_gallocr_reserve_n first, which states the buffer of each tensor.
GGML_API bool ggml_gallocr_alloc_graph(ggml_gallocr_t galloc, struct ggml_cgraph *graph);

// Returns the bytes that the allocator holds in a buffer now. Of several buffers of one type, the first returns the bytes of all
// of them and the others return 0. Returns 0 for an id that is not a buffer of the allocator.
GGML_API size_t ggml_gallocr_get_buffer_size(ggml_gallocr_t galloc, int buffer_id);

// ---- all tensors of a context ----

// Returns the bytes that ggml_backend_alloc_ctx_tensors_from_buft would allocate, padding included. Allocates nothing.
// Returns SIZE_MAX if the sum overflows.
GGML_API size_t ggml_backend_alloc_ctx_tensors_from_buft_size(struct ggml_context *ctx, ggml_backend_buffer_type_t buft);

// Allocates memory of the given type for every tensor of the context that has none, and places the views. The caller frees the
// buffer with ggml_backend_buffer_free. Tensors that exceed the type's largest buffer are spread over several, returned as one.
// Returns NULL on failure. Also returns NULL, without an error, if no tensor of the context needs memory.
GGML_API struct ggml_backend_buffer *ggml_backend_alloc_ctx_tensors_from_buft(
    struct ggml_context *ctx, ggml_backend_buffer_type_t buft);

// Like ggml_backend_alloc_ctx_tensors_from_buft, with the backend's default buffer type.
GGML_API struct ggml_backend_buffer *ggml_backend_alloc_ctx_tensors(struct ggml_context *ctx, ggml_backend_t backend);

#ifdef __cplusplus
}
#endif
