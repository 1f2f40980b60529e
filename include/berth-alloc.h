// SPDX-License-Identifier: MIT
// berth-alloc.h: what Berth's graph allocator offers beyond ggml-alloc.h: how hard to search, what may share memory, reports,
// checks, plans as files. Part of berth.h.
//
// With BERTH_CAPTURE=DIR in the environment, every distinct graph that is reserved is written to DIR as a .ggraph file, which
// `berth plan` reads.
#pragma once

#include "berth-plan.h"
#include "ggml-alloc.h"

#ifdef __cplusplus
extern "C" {
#endif

// May node's result take over the memory of its source src[i_src]? Asked only for sources of the same layout that nobody else
// needs any more, and only beyond the ops that ggml itself runs in place.
typedef bool (*berth_inplace_t)(const struct ggml_tensor *node, int i_src, void *user);

struct berth_gallocr_options {
    int64_t budget_us;        // search time of a reserve after the fast path; BERTH_PLAN_BUDGET_US sets the default, else 0
    bool inplace_via_views;   // in place also through a view of the whole source (default: yes)
    bool free_unread;         // inputs and results that nobody in the graph reads give their memory back (default: no)
    berth_inplace_t in_place; // further ops that may run in place, or NULL
    void *in_place_user;
};

BERTH_API struct berth_gallocr_options berth_gallocr_options_default(void);
// Takes effect with the next graph that is planned.
BERTH_API void berth_gallocr_set_options(ggml_gallocr_t galloc, const struct berth_gallocr_options *options);

// ggml_gallocr_reserve_n_size with a status: sizes[i] is what buffer i would need for this graph. Nothing is allocated.
BERTH_API enum ggml_status berth_gallocr_sizes(
    ggml_gallocr_t galloc, struct ggml_cgraph *graph, const int *node_buffer_ids, const int *leaf_buffer_ids, size_t *sizes);

// Is told of the bytes that tensors of a context take, or would, by ggml_backend_alloc_ctx_tensors_from_buft and its _size: of
// every context of this process, as berth_sched_on_plan is of graphs. callback NULL: nobody is told.
typedef void (*berth_tensors_placed_t)(ggml_backend_buffer_type_t buft, size_t size, void *user_data);
BERTH_API void berth_tensors_on_place(berth_tensors_placed_t callback, void *user_data);

// ---- reports ----

// How good the plan of a buffer is, for the graph that was reserved or allocated last: peak, bound, gap. FAILED if there is none.
BERTH_API enum ggml_status berth_gallocr_report(ggml_gallocr_t galloc, int buffer_id, struct berth_plan_report *report);

struct berth_gallocr_live {
    const struct ggml_tensor *tensor; // that lies there at the step
    uint64_t offset;                  // in the buffer; chunk k begins at k times the largest size of the buffer type
    uint64_t size;                    // bytes, with padding
    int64_t first, last;              // nodes between which the memory is taken
};

// The tensors that are alive in a buffer while node number `step` runs, -1: where the most bytes are, largest first. Writes up to
// n_max of them and returns how many there are, -1 if the graph was not reserved.
BERTH_API int64_t berth_gallocr_alive(
    ggml_gallocr_t galloc, struct ggml_cgraph *graph, int buffer_id, int64_t step, struct berth_gallocr_live *out, int64_t n_max);

// ---- checks, for tests of programs and backends ----

// Do the addresses in this graph, which was allocated, respect all lifetimes? False: what collides is in berth_last_error().
BERTH_API bool berth_gallocr_verify(ggml_gallocr_t galloc, struct ggml_cgraph *graph);

// Computes the graph node by node: memory of a result is filled with 0xFF before, memory that dies with 0xDF after, and no node
// may change memory of others that is alive. Slow. FAILED names the node and what it wrote over. compute is called with graphs
// of one node.
typedef enum ggml_status (*berth_compute_t)(ggml_backend_t backend, struct ggml_cgraph *graph);
BERTH_API enum ggml_status berth_gallocr_compute_checked(
    ggml_gallocr_t galloc, struct ggml_cgraph *graph, ggml_backend_t backend, berth_compute_t compute);

// ---- plans as files ----

// Writes the plan of a graph that was reserved as JSON: what berth_plan_read_json reads (an item for each piece of memory), with
// the name, op, type and shape of each tensor in it.
BERTH_API enum ggml_status berth_gallocr_save(ggml_gallocr_t galloc, struct ggml_cgraph *graph, FILE *file);
// ggml_gallocr_reserve_n with a plan that was saved for the same graph, instead of planning. FAILED if it is not valid for this
// graph.
BERTH_API enum ggml_status berth_gallocr_load(ggml_gallocr_t galloc, struct ggml_cgraph *graph, const int *node_buffer_ids,
    const int *leaf_buffer_ids, const struct berth_plan_set *plan);

#ifdef __cplusplus
}
#endif
