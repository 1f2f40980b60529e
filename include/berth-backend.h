// SPDX-License-Identifier: MIT
// berth-backend.h: what Berth asks of backends beyond ggml-backend.h. Part of berth.h.
#pragma once

#include "ggml-backend.h"

#ifndef BERTH_API
#    define BERTH_API GGML_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

// The memory that a backend takes to compute a graph whose tensors have theirs, e.g. by ggml_gallocr_reserve: work memory in
// bytes; and taking it, with threads and what else there is, so that computing this graph, or one of its nodes and edges in which
// no extent is larger, takes none. 0 and SUCCESS from backends that cannot; docs/adding-a-backend.md says how one can. A device
// made of several wants the tensors' addresses too (ggml_backend_sched_reserve has them, and so has a graph after
// ggml_gallocr_alloc_graph); its size is a bound, of whole nodes on every part.
BERTH_API size_t berth_backend_reserve_size(ggml_backend_t backend, const struct ggml_cgraph *graph);
BERTH_API enum ggml_status berth_backend_reserve(ggml_backend_t backend, const struct ggml_cgraph *graph);

// Host memory that lies in files of a folder, mapped: what is written there may leave the machine's memory. The files have no
// names, and go with their buffers. Free the type behind its last buffer.
BERTH_API ggml_backend_buffer_type_t berth_file_buffer_type_new(const char *folder);
BERTH_API void berth_file_buffer_type_free(ggml_backend_buffer_type_t buft);

#ifdef __cplusplus
}
#endif
