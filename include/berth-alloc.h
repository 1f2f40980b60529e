// SPDX-License-Identifier: MIT
// berth-alloc.h: parameters, reports, checks and saved plans of Berth's graph allocator. It extends ggml-alloc.h. Part of berth.h,
// whose general rules hold.
//
// If BERTH_CAPTURE=DIR is set in the environment when an allocator is created, it writes every distinct graph that it plans to
// DIR as a .ggraph file. `berth plan` reads these files.
#pragma once

#include "berth-plan.h"
#include "ggml-alloc.h"

#ifdef __cplusplus
extern "C" {
#endif

// ---- parameters ----

// Returns whether the result of a node may take over the memory of its source src[i_src]. The allocator asks only for ops that
// ggml does not run in place, and only for sources of the same layout that nothing reads afterwards.
typedef bool (*berth_inplace_t)(const struct ggml_tensor *node, int i_src, void *user_data);

// Parameters of an allocator.
struct berth_gallocr_params {
    int64_t time_limit_us;   // time limit of the search after the fast path, per graph; default 0: no search
    bool inplace_via_views;  // run ops in place also through a view of the complete source; default true
    bool free_unread;        // free the memory of inputs and results that no node reads; default false
    berth_inplace_t inplace; // allows further ops to run in place; NULL: only those that ggml runs in place
    void *inplace_user_data; // argument of inplace
};

// Returns the default parameters. BERTH_PLAN_BUDGET_US in the environment sets time_limit_us.
BERTH_API struct berth_gallocr_params berth_gallocr_params_default(void);

// Sets the parameters, which are copied. All plans are dropped, so the next graph is planned with the new parameters.
BERTH_API void berth_gallocr_set_params(ggml_gallocr_t galloc, const struct berth_gallocr_params *params);

// ---- sizes ----

// Like ggml_gallocr_reserve_n_size, with a status: sizes[i] becomes the bytes that buffer i needs for this graph. No buffer is
// allocated.
BERTH_API enum ggml_status berth_gallocr_sizes(
    ggml_gallocr_t galloc, struct ggml_cgraph *graph, const int *node_buffer_ids, const int *leaf_buffer_ids, size_t *sizes);

// Receives the bytes that the tensors of a context take in memory of this type. For ggml_backend_alloc_ctx_tensors_from_buft_size
// it receives the bytes that they would take.
typedef void (*berth_tensors_placed_t)(ggml_backend_buffer_type_t buft, size_t size, void *user_data);

// Sets a callback for all contexts of the process: ggml_backend_alloc_ctx_tensors_from_buft and its _size variant call it. NULL
// removes it. It is not synchronised with threads that allocate at the same time.
BERTH_API void berth_tensors_on_place(berth_tensors_placed_t callback, void *user_data);

// ---- reports ----

// Stores how good the plan of a buffer is (peak, bound, gap), for the graph that was reserved or allocated last. Returns
// GGML_STATUS_FAILED if there is no plan or no such buffer.
BERTH_API enum ggml_status berth_gallocr_report(ggml_gallocr_t galloc, int buffer_id, struct berth_plan_report *report);

// A tensor that is alive at a step of a graph.
struct berth_gallocr_live {
    const struct ggml_tensor *tensor; // the tensor in this memory at the step
    uint64_t offset;                  // in the buffer; chunk k begins at k times the largest size of the buffer type
    uint64_t size;                    // bytes, padding included
    int64_t first, last;              // the nodes from first to last use the memory
};

// Finds the tensors that are alive in a buffer while node number step runs; step -1 means the step with the most live bytes.
// Stores up to n_max of them, the largest first. Returns the number of all of them, or -1 if the graph was not reserved.
BERTH_API int64_t berth_gallocr_live(ggml_gallocr_t galloc, struct ggml_cgraph *graph, int buffer_id, int64_t step,
    struct berth_gallocr_live *live, int64_t n_max);

// ---- checks, for tests of programs and backends ----

// Returns whether the addresses in this allocated graph respect all lifetimes. If not, berth_last_error() names the tensors that
// collide.
BERTH_API bool berth_gallocr_verify(ggml_gallocr_t galloc, struct ggml_cgraph *graph);

// Computes a graph on a backend, as ggml_backend_graph_compute does.
typedef enum ggml_status (*berth_compute_t)(ggml_backend_t backend, struct ggml_cgraph *graph);

// Computes an allocated graph node by node by calling compute with graphs of one node. It fills new results with 0xFF before and
// dead memory with 0xDF after each node. Returns GGML_STATUS_FAILED, with both names, if a node changes live memory of another
// tensor. It is slow.
BERTH_API enum ggml_status berth_gallocr_compute_checked(
    ggml_gallocr_t galloc, struct ggml_cgraph *graph, ggml_backend_t backend, berth_compute_t compute);

// ---- plans as files ----

// Writes the plan of a reserved graph as JSON, with one item per piece of memory and the name, op, type and shape of each tensor
// in it. berth_plan_read_json reads it. The stream stays the caller's.
BERTH_API enum ggml_status berth_gallocr_save(ggml_gallocr_t galloc, struct ggml_cgraph *graph, FILE *file);

// Like ggml_gallocr_reserve_n, with a plan that was saved for the same graph, instead of planning. Returns GGML_STATUS_FAILED if
// the plan is not valid for this graph. The plan stays the caller's.
BERTH_API enum ggml_status berth_gallocr_load(ggml_gallocr_t galloc, struct ggml_cgraph *graph, const int *node_buffer_ids,
    const int *leaf_buffer_ids, const struct berth_plan_set *plan);

#ifdef __cplusplus
}
#endif
