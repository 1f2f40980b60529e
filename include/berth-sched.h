// SPDX-License-Identifier: MIT
// berth-sched.h: what Berth's scheduler offers beyond ggml-backend.h: why each op runs where it runs, a timeline, limits, a
// strict mode. Part of berth.h.
#pragma once

#include "berth-backend.h"
#include "berth-plan.h"
#include "ggml-backend.h"

#include <stdio.h>

#ifndef BERTH_API
#    define BERTH_API GGML_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

// A scheduler is used by one thread at a time. While it computes a graph, its eval callback and the graph's ops may query it,
// wait for it and set another callback; calls that change it are refused with GGML_STATUS_FAILED, false or an error line.

// Why a tensor is on its backend.
enum berth_sched_reason {
    BERTH_SCHED_NONE,            // no backend yet
    BERTH_SCHED_PLACED,          // its memory was there before
    BERTH_SCHED_CALLER,          // ggml_backend_sched_set_tensor_backend
    BERTH_SCHED_INPUT,           // the caller writes it: the last backend, which is the host's
    BERTH_SCHED_WEIGHT,          // a weight it reads lies there
    BERTH_SCHED_OFFLOAD,         // its weight lies on the host, and the device wants the op nevertheless
    BERTH_SCHED_EXPANSION,       // the ops before or after it run there
    BERTH_SCHED_PRIORITY,        // the first backend that can run it, most source bytes at hand first
    BERTH_SCHED_READER,          // the op that reads it runs there
    BERTH_SCHED_FALLBACK_OP,     // a backend that should have run it does not support the op
    BERTH_SCHED_FALLBACK_TYPE,   // ... supports the op, but not with these types
    BERTH_SCHED_FALLBACK_BUFFER, // ... supports both, but not all that is written into the same buffer
};

BERTH_API const char *berth_sched_reason_name(enum berth_sched_reason reason);
// Of a tensor in the graph that was split last; BERTH_SCHED_NONE for others.
BERTH_API enum berth_sched_reason berth_sched_reason(ggml_backend_sched_t sched, const struct ggml_tensor *tensor);

// The graph that was split last: its splits with the inputs that are copied to them, its nodes with backend and reason. Text is
// what GGML_SCHED_DEBUG=2 prints; JSON is one object. FAILED if there is no such graph or the stream fails.
BERTH_API enum ggml_status berth_sched_explain_text(ggml_backend_sched_t sched, FILE *file);
BERTH_API enum ggml_status berth_sched_explain_json(ggml_backend_sched_t sched, FILE *file);

// The promise: after ggml_backend_sched_reserve, computing that graph, or one of the same nodes and edges in which no extent is
// larger, takes no memory, neither of the scheduler nor of backends that can reserve: Berth's CPU backend with the threads it has
// then. Where ops go elsewhere when extents shrink, such as batches below a device's offload_op, reserve a graph of either kind;
// the last eight are kept. Tensors must have the same backends (ggml_backend_sched_set_tensor_backend) as when it was reserved.
// berth-backend.h has the same for backends that are given graphs without a scheduler.

// What reserving the graph takes beside the compute buffers, in bytes: sizes[b] of backend b. Work memory of backends that can
// reserve, and with the last one, which is the host's, memory for copies between devices that cannot reach each other.
BERTH_API enum ggml_status berth_sched_work_sizes(ggml_backend_sched_t sched, struct ggml_cgraph *graph, size_t *sizes);

// How good the memory plan of a backend is, and the whole plan as JSON (as berth_gallocr_save writes it, copies between backends
// included): of the graph that was planned last, by reserve, reserve_size or alloc. To save it, that graph must still be there.
// FAILED if there is none.
BERTH_API enum ggml_status berth_sched_report(
    ggml_backend_sched_t sched, ggml_backend_t backend, struct berth_plan_report *report);
BERTH_API enum ggml_status berth_sched_save(ggml_backend_sched_t sched, FILE *file);

// Strict: a graph with a fallback is refused with GGML_STATUS_FAILED and the node's name. Default: off, or what
// BERTH_SCHED_STRICT=1 says.
BERTH_API void berth_sched_set_strict(ggml_backend_sched_t sched, bool strict);

// Most bytes of compute buffers for a backend, 0: no limit. A plan that would pass it is made with fewer copies of inputs
// (ggml_backend_sched_get_n_copies tells), or refused with GGML_STATUS_ALLOC_FAILED if one copy is too much.
BERTH_API void berth_sched_set_limit(ggml_backend_sched_t sched, ggml_backend_t backend, size_t bytes);
// How many graphs may be in flight: 4 for a scheduler made with parallel = true, else 1. Takes effect with the next graph.
BERTH_API void berth_sched_set_n_copies(ggml_backend_sched_t sched, int n_copies);

// ggml_backend_sched_synchronize with a status: the first failure of a backend since the last one.
BERTH_API enum ggml_status berth_sched_synchronize(ggml_backend_sched_t sched);
// ggml_backend_sched_split_graph with a status.
BERTH_API enum ggml_status berth_sched_split(ggml_backend_sched_t sched, struct ggml_cgraph *graph);

// A timeline of what is computed from now on: a row a backend, a bar a split, a copy with its bytes, and an op with device, bytes
// read and written, operations, GB/s, GFLOP/s, threads that were busy (processor time over time); a track of the bytes of compute
// buffers in use. While tracing, ops run one by one, so that each one's time is its own and backends fuse nothing.
BERTH_API enum ggml_status berth_sched_trace_start(ggml_backend_sched_t sched);
// Ends tracing and writes what was seen in the Trace Event Format that Chrome and Perfetto read. GGML_STATUS_ALLOC_FAILED: it is
// written, but bars are missing that there was no memory for.
BERTH_API enum ggml_status berth_sched_trace_stop(ggml_backend_sched_t sched, FILE *file);

// Is told of every graph that a scheduler of this process plans by reserve or reserve_size, while graph and plan are there: for a
// program that puts Berth under a library and looks at what it asks for. sizes: bytes of each backend, of reserve_size; NULL of
// reserve. callback NULL: nobody is told. Not to be changed while a graph is planned.
typedef void (*berth_sched_planned_t)(
    ggml_backend_sched_t sched, struct ggml_cgraph *graph, const size_t *sizes, void *user_data);
BERTH_API void berth_sched_on_plan(berth_sched_planned_t callback, void *user_data);

// Of a graph that keeps a budget by moving values (berth-budget-graph.h): what moves out runs on the backend `other`, what comes
// back on `own`. As ggml_backend_sched_set_tensor_backend for each such node. A move of one backend's memory to another's is a
// copy, and nothing else. Moves run serially with the other nodes.
BERTH_API void berth_sched_set_moves(
    ggml_backend_sched_t sched, const struct ggml_cgraph *graph, ggml_backend_t own, ggml_backend_t other);

// How often a graph was met that was known, and how often one was split and planned anew.
struct berth_sched_stats {
    int64_t n_reused, n_planned;
    int64_t n_copies_made; // tensors copied between backends
    int64_t copy_bytes;
};
BERTH_API void berth_sched_get_stats(ggml_backend_sched_t sched, struct berth_sched_stats *stats);

#ifdef __cplusplus
}
#endif
