// SPDX-License-Identifier: MIT
// berth-meta.h: what a device made of several (ggml_backend_meta_device) tells of its work. Part of berth.h.
#pragma once

#include "ggml-backend.h"

#include <stdio.h>

#ifndef BERTH_API
#    define BERTH_API GGML_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

// Since the backend was made.
struct berth_meta_stats {
    int64_t n_graphs;      // computed
    int64_t n_built;       // of these: not known before, so that their parts were made
    int64_t n_sums;        // over all devices
    int64_t sum_bytes;     // of the tensors that were summed up
    int64_t n_whole;       // nodes that got whole sources, since the op cannot carry the split
    int64_t move_bytes;    // of tensors that went from one split to another
    int64_t scratch_bytes; // that the known graphs hold beside their own memory, on all devices
    int64_t n_grown;       // times that a device got more memory for a tensor of a graph, which was planned in another state
};

// False: not a backend of such a device.
BERTH_API bool berth_meta_stats(ggml_backend_t backend, struct berth_meta_stats *stats);
// Bytes that device index has of a buffer of such a device. 0: it is none, or has no such device.
BERTH_API size_t berth_meta_buffer_size(ggml_backend_buffer_t buffer, size_t index);
// Of the graph that was computed last: sums, and where whole sources were needed and what they cost, as lines of text.
BERTH_API bool berth_meta_explain(ggml_backend_t backend, FILE *file);

#ifdef __cplusplus
}
#endif
