// SPDX-License-Identifier: MIT
// berth-backend.h: reserving the memory that backends take, and buffers in files. Part of berth.h, whose general rules hold.
#pragma once

#include "ggml-backend.h"

#ifndef BERTH_API
#    define BERTH_API GGML_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

// ---- work memory ----

// Returns the bytes of work memory that berth_backend_reserve would allocate for this graph. Returns 0 for backends that cannot
// report it. For a composite device the size is an upper bound.
BERTH_API size_t berth_backend_reserve_size(ggml_backend_t backend, const struct ggml_cgraph *graph);

// Makes the backend allocate its work memory, threads and other state for this graph. Afterwards, computing this graph, or one
// with the same nodes and edges in which no extent is larger, allocates nothing. The graph's memory is reserved separately, for
// example by ggml_gallocr_reserve. A composite device requires that the tensors have addresses. Backends that cannot reserve
// return SUCCESS and promise nothing (docs/dev/adding-a-backend.md).
BERTH_API enum ggml_status berth_backend_reserve(ggml_backend_t backend, const struct ggml_cgraph *graph);

// ---- buffers in files ----

// Creates a buffer type of host memory that is mapped from files in this folder. The system can move such memory to disk. The
// files have no names and disappear with their buffers. Free the type with berth_file_buffer_type_free. Returns NULL on failure.
BERTH_API ggml_backend_buffer_type_t berth_file_buffer_type_new(const char *folder);

// Frees a type of berth_file_buffer_type_new. Free its buffers first.
BERTH_API void berth_file_buffer_type_free(ggml_backend_buffer_type_t buft);

#ifdef __cplusplus
}
#endif
