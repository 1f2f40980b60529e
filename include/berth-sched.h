// SPDX-License-Identifier: MIT
// berth-sched.h: reasons, reports, limits, a strict mode and a timeline of Berth's scheduler. It extends the scheduler of
// ggml-backend.h. Part of berth.h, whose general rules hold. docs/user/scheduler.md is the guide.
//
// A scheduler is used by one thread at a time. While it computes a graph, its eval callback and the graph's ops may query it,
// wait for it and set another callback. Calls that change it are refused: they return GGML_STATUS_FAILED or false, or log an
// error.
//
// What ggml_backend_sched_reserve promises: computing the reserved graph, or one with the same nodes and edges in which no extent
// is larger, allocates no memory.
//   - This holds for the scheduler and for backends that can reserve, such as Berth's CPU backend with the threads that it then
//     has.
//   - The last eight reserved plans are kept.
//   - If ops run elsewhere for smaller extents, such as batches below a device's offload_op, reserve a graph of each kind.
//   - Tensors must have the same backends (ggml_backend_sched_set_tensor_backend) as in the reserved graph.
//   - berth_backend_reserve (berth-backend.h) gives the same promise for a backend without a scheduler.
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

// ---- reasons ----

// Why a tensor is on its backend.
enum berth_sched_reason {
    BERTH_SCHED_NONE,            // it has no backend yet
    BERTH_SCHED_PLACED,          // its memory is there
    BERTH_SCHED_CALLER,          // ggml_backend_sched_set_tensor_backend chose it
    BERTH_SCHED_INPUT,           // the caller writes it: the last backend, which is the host's
    BERTH_SCHED_WEIGHT,          // a weight that it reads is there
    BERTH_SCHED_OFFLOAD,         // its weight is on the host, but the device prefers to run the op
    BERTH_SCHED_EXPANSION,       // the ops before or after it run there
    BERTH_SCHED_PRIORITY,        // most bytes of its sources are there; of equals, the first backend that can run it
    BERTH_SCHED_READER,          // the op that reads it runs there
    BERTH_SCHED_FALLBACK_OP,     // the backend that should run it does not support the op
    BERTH_SCHED_FALLBACK_TYPE,   // that backend supports the op, but not with these types
    BERTH_SCHED_FALLBACK_BUFFER, // that backend supports both, but not all ops that write into the same memory
};

// Returns the name of a reason, such as "weight". Returns "?" for other values.
BERTH_API const char *berth_sched_reason_name(enum berth_sched_reason reason);

// Returns the reason of a tensor in the graph that was split last. Returns BERTH_SCHED_NONE for other tensors.
BERTH_API enum berth_sched_reason berth_sched_reason(ggml_backend_sched_t sched, const struct ggml_tensor *tensor);

// Writes the graph that was split last as text: its splits with the inputs that are copied to them, and its nodes with backend
// and reason. GGML_SCHED_DEBUG=2 logs the same. Returns GGML_STATUS_FAILED if there is no such graph or the stream fails.
BERTH_API enum ggml_status berth_sched_explain_text(ggml_backend_sched_t sched, FILE *file);

// Like berth_sched_explain_text, as one JSON object. docs/user/scheduler.md describes the keys.
BERTH_API enum ggml_status berth_sched_explain_json(ggml_backend_sched_t sched, FILE *file);

// ---- memory ----

// Stores the bytes that reserving the graph takes in addition to the compute buffers, one element per backend: the work memory of
// backends that can reserve. The last element also has the host memory for copies between devices that cannot reach each other.
BERTH_API enum ggml_status berth_sched_work_sizes(ggml_backend_sched_t sched, struct ggml_cgraph *graph, size_t *sizes);

// Stores how good the memory plan of a backend is, for the graph that was planned last by reserve, reserve_size or alloc. Returns
// GGML_STATUS_FAILED if there is none.
BERTH_API enum ggml_status berth_sched_report(
    ggml_backend_sched_t sched, ggml_backend_t backend, struct berth_plan_report *report);

// Writes that plan as JSON, in the format of berth_gallocr_save, copies between backends included. The graph must still exist.
// Returns GGML_STATUS_FAILED if there is no plan or the stream fails.
BERTH_API enum ggml_status berth_sched_save(ggml_backend_sched_t sched, FILE *file);

// ---- settings ----

// Turns strict mode on or off. In strict mode a graph with a fallback is refused with GGML_STATUS_FAILED and the node's name. The
// default is off, or on if BERTH_SCHED_STRICT=1 is set in the environment. The graph cache is dropped.
BERTH_API void berth_sched_set_strict(ggml_backend_sched_t sched, bool strict);

// Sets the memory limit of a backend's compute buffers; 0 means no limit. A plan above it is made with fewer graphs in
// flight (ggml_backend_sched_get_n_copies). If one graph is already too large, it is refused with GGML_STATUS_ALLOC_FAILED.
BERTH_API void berth_sched_set_memory_limit(ggml_backend_sched_t sched, ggml_backend_t backend, size_t limit);

// A value of `limit` below: the scheduler chooses the limit.
#define BERTH_SCHED_RESIDENT_AUTO SIZE_MAX

// Sets how many bytes of the device resident copies may take; 0 means none. A resident copy is a copy of a weight of the host that
// stays in the device's memory: the first graph that reads the weight on the device fills it, and from then on the ops that read
// the weight run on the device. The call frees existing resident copies. They are also freed, with one line in the log, if they, a
// graph, or another buffer of the process cannot be allocated on the device. Change such a weight with functions such as
// ggml_backend_tensor_set or with a node of a graph, not through its data pointer.
//
// With BERTH_SCHED_RESIDENT_AUTO, the limit is half of the device memory that is free once the compute buffers of the first graph
// that copies weights are allocated. This is the default for GPUs with memory of their own whose backend can reserve. The
// environment variable BERTH_SCHED_RESIDENT sets another default for all devices: a number of bytes, or 0 for none.
BERTH_API void berth_sched_set_resident_limit(ggml_backend_sched_t sched, ggml_backend_t backend, size_t limit);

// Sets how many graphs may be in flight, for the next graph on. The default is 4 for a scheduler created with parallel = true,
// else 1.
BERTH_API void berth_sched_set_n_copies(ggml_backend_sched_t sched, int n_copies);

// ---- calls with a status ----

// Like ggml_backend_sched_synchronize, with a status: the first failure of a backend since the last synchronize.
BERTH_API enum ggml_status berth_sched_synchronize(ggml_backend_sched_t sched);

// Like ggml_backend_sched_split_graph, with a status.
BERTH_API enum ggml_status berth_sched_split(ggml_backend_sched_t sched, struct ggml_cgraph *graph);

// ---- timeline ----

// Starts a timeline: one row per backend, one bar per split, copy and op, and a track of the bytes in use in compute buffers.
// While tracing, ops run one by one, so that each bar shows the time of its op; backends then fuse no ops.
BERTH_API enum ggml_status berth_sched_trace_start(ggml_backend_sched_t sched);

// Ends tracing and writes the timeline in the Trace Event Format, which Chrome and Perfetto read. Returns
// GGML_STATUS_ALLOC_FAILED if bars are missing because memory was short; the file is written nevertheless.
BERTH_API enum ggml_status berth_sched_trace_stop(ggml_backend_sched_t sched, FILE *file);

// ---- observers, spilling, counters ----

// Receives a graph that a scheduler has planned, while graph and plan exist. sizes has the bytes of each backend after
// reserve_size, and is NULL after reserve.
typedef void (*berth_sched_planned_t)(
    ggml_backend_sched_t sched, struct ggml_cgraph *graph, const size_t *sizes, void *user_data);

// Sets a callback for all schedulers of the process: reserve and reserve_size call it after planning. NULL removes it. Do not
// change it while a graph is planned.
BERTH_API void berth_sched_on_plan(berth_sched_planned_t callback, void *user_data);

// For a graph that spills (berth-budget-graph.h): runs the copies to the other memory on the backend `other`, and the copies back
// on `own`. It calls ggml_backend_sched_set_tensor_backend for each such node. The copies run serially with the other nodes.
BERTH_API void berth_sched_set_spill_backends(
    ggml_backend_sched_t sched, const struct ggml_cgraph *graph, ggml_backend_t own, ggml_backend_t other);

// Counters of a scheduler since its creation.
struct berth_sched_stats {
    int64_t n_cache_hits, n_planned; // graphs with a cache hit; graphs that were split and planned
    int64_t n_copied;                // tensors copied between backends
    int64_t copied_size;             // bytes of these copies
    int64_t resident_size;           // bytes of devices that resident copies take now
};

// Stores the counters of the scheduler.
BERTH_API void berth_sched_stats(ggml_backend_sched_t sched, struct berth_sched_stats *stats);

#ifdef __cplusplus
}
#endif
