// SPDX-License-Identifier: MIT
// berth-meta.h: statistics of composite devices (ggml_backend_meta_device). Part of berth.h, whose general rules hold.
// docs/user/meta.md is the guide.
#pragma once

#include "ggml-backend.h"

#include <stdio.h>

#ifndef BERTH_API
#    define BERTH_API GGML_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

// ---- statistics ----

// Counters of a composite backend since its creation.
struct berth_meta_stats {
    int64_t n_graphs;           // graphs computed
    int64_t n_cache_misses;     // of these, graphs that were not in the graph cache
    int64_t n_sums;             // sums over all devices
    int64_t summed_size;        // bytes of the tensors that were summed
    int64_t n_gathered;         // nodes that got complete sources, because their op cannot work on parts
    int64_t redistributed_size; // bytes of tensors that changed their distribution
    int64_t scratch_size;       // bytes that the cached graphs hold in addition to their own memory, on all devices
    int64_t n_grown;            // times that a device got more memory for a tensor whose distribution differs from the plan
};

// Stores the counters of a composite backend. Returns false for other backends.
BERTH_API bool berth_meta_stats(ggml_backend_t backend, struct berth_meta_stats *stats);

// Returns the bytes that device number index holds of a composite device's buffer. Returns 0 for other buffers and devices.
BERTH_API size_t berth_meta_buffer_size(ggml_backend_buffer_t buffer, int64_t index);

// Writes lines of text about the graph that was computed last: its sums over devices, each node that needed complete sources, and
// the bytes moved for it. Returns false if the backend is not a composite backend.
BERTH_API bool berth_meta_explain(ggml_backend_t backend, FILE *file);

#ifdef __cplusplus
}
#endif
