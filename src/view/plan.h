// SPDX-License-Identifier: MIT
// plan.h: any input as a plan: what the readers make of a file, and its places, buffer by buffer, each with its own largest chunk.
#pragma once

#include "berth-alloc.h"
#include "berth-budget.h"

#include <stdio.h>

#define VIEW_BUDGET_US 1000000 // search for what to run again
#define VIEW_BUDGET_N_ALIVE 8

// Bytes that a graph, or ops with costs, may take: bytes 0: as many as they do. spill: of another pool, to which values may move.
struct view_budget {
    uint64_t bytes, spill;
};

// A value that every schedule has at the tightest point.
struct view_value {
    char name[64];
    uint64_t size;
};

struct view_buffer {
    int32_t pool;        // of its items
    char name[64];       // of its type, "" if the file names none
    uint64_t max_chunk;  // bytes, 0: no limit
    const size_t *items; // [n_items] their numbers in the set, rising; a part of the plan's order
    size_t n_items;
    struct berth_plan_report report; // its time is measured here
};

// What a model takes on a device; the plan is about compute.
struct view_home {
    char device[64];
    uint64_t weights, cache, compute;
    bool is_mapped; // the weights lie in the file's own pages
};

// How far a search is.
struct view_progress {
    int64_t us, limit_us; // since its start, its time limit
    uint64_t peak, bound; // of all buffers until now
};

struct view_plan {
    struct berth_plan_set *set;
    struct view_home *homes; // [n_homes] of a model
    size_t n_homes;
    struct view_buffer *buffers; // by rising pool
    size_t n_buffers;
    size_t *order; // the numbers of all items, buffer by buffer
    struct view_budget budget;
    struct berth_budget_result *budgeted;                            // what that costs; NULL without a budget
    struct view_value alive[VIEW_BUDGET_N_ALIVE];                    // of budgeted->alive, by size; n_alive may be more
    const char *spill_price;                                         // of moving values, in words, with a budget that may spill
    bool can_budget;                                                 // its ops can run again
    int64_t n_ctx_train;                                             // positions that a model was trained for
    bool (*watch)(const struct view_progress *progress, void *user); // of a search; false ends it; NULL: nobody watches
    void *watch_user;
};

// Items of a file: CSV, JSON, a captured graph, packed or not, or a model: the graph of the
// batch, context and cache that the options ask for. A budget is for captured graphs and CSV with costs. On failure plan is
// empty.
struct model_options;
enum ggml_status view_plan_read(
    const char *path, const struct model_options *options, const struct view_budget *budget, struct view_plan *plan);
// Items of a captured graph, whatever its file is called: with the tensors that lie in each. The offsets are those of the
// captured program, which has_offsets does not count: the plan is to be made.
// With the plan's budget: those of the graph that keeps it; of one that cannot be kept those of the graph as it is. budgeted says
// which.
enum ggml_status view_plan_read_graph(const char *path, struct view_plan *plan);
// Items of a CSV whose rows say what they cost and read, within the plan's budget, in the place of its set (costs.c). As
// above.
enum ggml_status view_plan_budget_set(const char *path, struct view_plan *plan);
// Items and homes of a model.
enum ggml_status view_plan_read_model(const char *path, const struct model_options *options, struct view_plan *plan);

// ---- plan.c ----

// The set of a plan that `write` writes as JSON: a plan file has all that a plan has. The plan is to be made, so its offsets do not
// count as a plan to start from.
enum ggml_status view_set_make(
    enum ggml_status (*write)(FILE *file, void *user), void *user, const char *path, struct berth_plan_set **set);
// Fills the buffers of a plan that has a set only: the pools that its items name, with what the file says of them.
enum ggml_status view_plan_buffers(struct view_plan *plan);
void view_plan_free(struct view_plan *plan);
// Another value that is alive at the tightest point, in the order of budgeted->alive.
void view_plan_alive_add(struct view_plan *plan, size_t i, const char *name, uint64_t size);
// What a file says of its pools, by rising pool; then what it says of one, NULL: nothing. Of several descriptions of a pool one
// counts.
void view_pools_sort(struct berth_plan_set *set);
const struct berth_plan_pool *view_pools_find(const struct berth_plan_set *set, int32_t pool);

// Plans every buffer, checks the plan, and fills the reports: one per buffer, and their sum. params->start, if not NULL, has the
// offsets of all items; max_chunk is the buffers' own. The plan's watch sees a search and may end it: *is_stopped.
enum ggml_status view_plan_solve(struct view_plan *plan, const struct berth_plan_params *params, uint64_t *offsets,
    struct berth_plan_report *sum, bool *is_stopped);

// One piece of memory, and the tensor that has it at a step.
struct view_alive {
    uint64_t size;
    const char *name, *op; // op "" where the file says none
};
// What is alive in a buffer at the step where the most is, largest first; to be freed. *bytes: all of it. NULL: out of memory.
struct view_alive *view_alive_at_bound(
    const struct view_plan *plan, const struct view_buffer *buffer, size_t *n, uint64_t *bytes);
// The buffer with the highest peak; NULL: there is none.
const struct view_buffer *view_plan_largest(const struct view_plan *plan);
