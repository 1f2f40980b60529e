// SPDX-License-Identifier: MIT
// plan.h: struct view_plan, which `berth plan` and `berth map` use for any input file: the items to place, their buffers, and the
// results of planning each buffer.
#pragma once

#include "berth-alloc.h"
#include "berth-budget.h"

#include <stdio.h>

#define VIEW_BUDGET_US 1000000 // time limit of the search that decides what to recompute and spill
#define VIEW_BUDGET_N_ALIVE 8

// A memory limit. bytes: the limit, 0: none. spill: bytes of a second pool to which values may be spilled, 0: no spilling.
struct view_budget {
    uint64_t bytes, spill;
};

// A value that is alive in every schedule at the step that needs the most memory.
struct view_value {
    char name[64];
    uint64_t size;
};

struct view_buffer {
    int32_t pool;         // pool of the items in this buffer
    char name[64];        // name of its buffer type, "" if the file has none
    uint64_t chunk_limit; // bytes, 0: no limit
    const size_t *items;  // [n_items] ascending indices into the set; part of view_plan.order
    size_t n_items;
    struct berth_plan_report report; // result of planning this buffer; plan.c measures time_us itself
};

// The memory of a model on one device, in bytes. The plan is about `compute` only.
struct view_home {
    char device[64];
    uint64_t weights, cache, compute;
    bool is_mapped; // the weights are in the pages of the mapped file
};

// Progress of a search.
struct view_progress {
    int64_t us, limit_us; // time since the start of the search; its time limit
    uint64_t peak, bound; // sums over the buffers that are finished and the current one
};

struct view_plan {
    struct berth_plan_set *set;
    struct view_home *homes; // [n_homes] one per device; only for a model
    size_t n_homes;
    struct view_buffer *buffers; // by ascending pool
    size_t n_buffers;
    size_t *order; // the indices of all items, buffer by buffer
    struct view_budget budget;
    struct berth_budget_result *budgeted; // result of the solver for the memory limit; NULL: no limit
    struct view_value
        alive[VIEW_BUDGET_N_ALIVE]; // the first values of budgeted->alive, largest first; budgeted->n_alive may be larger
    // Explanation of the cost of spilling, for the user; NULL: no memory limit
    const char *spill_price;
    bool can_budget;                                                 // the input is a graph, so a memory limit is possible
    int64_t n_ctx_train;                                             // positions for which a model was trained
    bool (*watch)(const struct view_progress *progress, void *user); // called during a search; false ends it; NULL: not called
    void *watch_user;
};

// Reads the items of a file: CSV, JSON, a captured graph (compressed or not), or a model. The items of a model are those of the
// graph that a session with the options' batch, context and cache runs. A memory limit is allowed for captured graphs and for CSV
// with costs. On failure plan is empty.
struct model_options;
enum ggml_status view_plan_read(
    const char *path, const struct model_options *options, const struct view_budget *budget, struct view_plan *plan);
// Reads the items of a captured graph and the tensors of each item. The offsets are those of the captured program. has_offsets is
// false nevertheless, so that the planner does not start from them. With a memory limit, the items are those of a changed graph
// that stays below the limit. If there is no such graph (plan->budgeted->fits is false), they are those of the original graph.
enum ggml_status view_plan_read_graph(const char *path, struct view_plan *plan);
// For a CSV with the columns cost and reads: replaces the items by those of a schedule that stays below the plan's memory limit
// (costs.c). If there is none, the items stay unchanged and plan->budgeted->fits is false.
enum ggml_status view_plan_budget_set(const char *path, struct view_plan *plan);
// Reads the items of a model's graph, and the model's memory per device.
enum ggml_status view_plan_read_model(const char *path, const struct model_options *options, struct view_plan *plan);

// ---- plan.c ----

// Makes a set of items from the JSON that `write` writes. Sets has_offsets to false, so that planning does not start from them.
enum ggml_status view_set_make(
    enum ggml_status (*write)(FILE *file, void *user), void *user, const char *path, struct berth_plan_set **set);
// Sets plan->buffers from plan->set: one buffer per pool of the items, with the file's description of this pool.
enum ggml_status view_plan_buffers(struct view_plan *plan);
void view_plan_free(struct view_plan *plan);
// Stores value i of budgeted->alive in plan->alive, if there is space.
void view_plan_alive_add(struct view_plan *plan, size_t i, const char *name, uint64_t size);
// view_pools_sort sorts the file's descriptions of pools by pool number. After that, view_pools_find returns the description of a
// pool; NULL: none. If a pool has several descriptions, one of them is returned.
void view_pools_sort(struct berth_plan_set *set);
const struct berth_plan_pool *view_pools_find(const struct berth_plan_set *set, int32_t pool);

// Plans every buffer, checks the plan, and fills the reports: one per buffer, and their sum. params->start: offsets of all items
// from which to start, or NULL. params->max_chunk is ignored; each buffer has its own. plan->watch is called during a search. If
// it ends the search, *is_stopped is true.
enum ggml_status view_plan_solve(struct view_plan *plan, const struct berth_plan_params *params, uint64_t *offsets,
    struct berth_plan_report *sum, bool *is_stopped);

// An item, and the tensor that occupies it at a step.
struct view_alive {
    uint64_t size;
    const char *name, *op; // op: "" if the file has none
};
// Returns the items of a buffer at the step with the most live bytes, largest first; the caller frees the array. *bytes: the sum of
// their sizes. NULL: out of memory.
struct view_alive *view_alive_at_bound(
    const struct view_plan *plan, const struct view_buffer *buffer, size_t *n, uint64_t *bytes);
// Returns the buffer with the highest peak; NULL: there is none.
const struct view_buffer *view_plan_largest(const struct view_plan *plan);
