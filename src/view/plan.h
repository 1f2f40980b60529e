// SPDX-License-Identifier: MIT
// plan.h: reads any input as a plan: the readers of files, the buffers with their largest chunks, and the offsets per buffer.
#pragma once

#include "berth-alloc.h"
#include "berth-budget.h"

#include <stdio.h>

#define VIEW_BUDGET_US 1000000 // time limit of the search that decides what to recompute and spill
#define VIEW_BUDGET_N_ALIVE 8

// Memory limit of a graph or of ops with costs. bytes: 0 for no limit. spill: bytes of another pool, to which values may be
// spilled; 0: none.
struct view_budget {
    uint64_t bytes, spill;
};

// A value that is alive at the tightest point in every schedule.
struct view_value {
    char name[64];
    uint64_t size;
};

struct view_buffer {
    int32_t pool;        // of its items
    char name[64];       // name of its buffer type, "" if the file has none
    uint64_t max_chunk;  // bytes, 0: no limit
    const size_t *items; // [n_items] ascending indices into the set; part of view_plan.order
    size_t n_items;
    struct berth_plan_report report; // time_us is measured in plan.c
};

// Memory of a model on a device; the plan covers `compute`.
struct view_home {
    char device[64];
    uint64_t weights, cache, compute;
    bool is_mapped; // the weights are in the pages of the mapped file
};

// Progress of a search.
struct view_progress {
    int64_t us, limit_us; // time since its start, its time limit
    uint64_t peak, bound; // sums over all buffers so far
};

struct view_plan {
    struct berth_plan_set *set;
    struct view_home *homes; // [n_homes] for a model
    size_t n_homes;
    struct view_buffer *buffers; // by ascending pool
    size_t n_buffers;
    size_t *order; // the indices of all items, buffer by buffer
    struct view_budget budget;
    struct berth_budget_result *budgeted;         // result of the memory limit; NULL without one
    struct view_value alive[VIEW_BUDGET_N_ALIVE]; // of budgeted->alive, by size; n_alive may be larger
    // The cost of spilling in words; set with a memory limit.
    const char *spill_price;
    bool can_budget;                                                 // ops can be recomputed
    int64_t n_ctx_train;                                             // positions for which a model was trained
    bool (*watch)(const struct view_progress *progress, void *user); // called during a search; false ends it; NULL: not called
    void *watch_user;
};

// Reads the items of a file: CSV, JSON, a captured graph (compressed or not), or a model. For a model, they come from the graph of
// the batch, context and cache in the options. A memory limit is allowed for captured graphs and for CSV with costs. On failure
// plan is empty.
struct model_options;
enum ggml_status view_plan_read(
    const char *path, const struct model_options *options, const struct view_budget *budget, struct view_plan *plan);
// Reads the items of a captured graph, whatever its file name, with the tensors of each item. The offsets are those of the captured
// program; has_offsets is false, because the plan is still to be made. With a memory limit, the items are those of the graph that
// keeps it. If the limit cannot be kept, they are those of the original graph. plan->budgeted says which.
enum ggml_status view_plan_read_graph(const char *path, struct view_plan *plan);
// Replaces the set of a CSV whose rows have costs and reads by the items within the plan's memory limit (costs.c). Results are as
// in view_plan_read_graph.
enum ggml_status view_plan_budget_set(const char *path, struct view_plan *plan);
// Reads the items of a model's graph, and the model's memory per device.
enum ggml_status view_plan_read_model(const char *path, const struct model_options *options, struct view_plan *plan);

// ---- plan.c ----

// Makes the set of a plan that `write` writes as JSON; a plan file contains everything. has_offsets is false, so that its offsets
// are not used as a start.
enum ggml_status view_set_make(
    enum ggml_status (*write)(FILE *file, void *user), void *user, const char *path, struct berth_plan_set **set);
// Fills the buffers of a plan that has only a set: the pools of its items, with the file's descriptions of them.
enum ggml_status view_plan_buffers(struct view_plan *plan);
void view_plan_free(struct view_plan *plan);
// Adds a value that is alive at the tightest point, in the order of budgeted->alive.
void view_plan_alive_add(struct view_plan *plan, size_t i, const char *name, uint64_t size);
// Sorts the file's descriptions of pools by ascending pool. view_pools_find returns the description of one pool; NULL: none. If a
// pool has several descriptions, one of them is used.
void view_pools_sort(struct berth_plan_set *set);
const struct berth_plan_pool *view_pools_find(const struct berth_plan_set *set, int32_t pool);

// Plans every buffer, checks the plan, and fills the reports: one per buffer, and their sum. params->start: offsets of all items,
// or NULL. max_chunk comes from each buffer. The plan's watch is called during a search and may end it, which sets *is_stopped.
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
