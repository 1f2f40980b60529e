// SPDX-License-Identifier: MIT
// plan.h: struct view_plan holds the items of any input file, their buffers, and the plan of each buffer. `berth plan` and `berth
// map` use it.
#pragma once

#include "berth-alloc.h"
#include "berth-budget.h"

#include <stdio.h>

#define VIEW_BUDGET_US 1000000 // time limit of the search that decides what to recompute and spill
#define VIEW_BUDGET_N_ALIVE 8  // number of values in view_plan.alive

// A memory limit.
struct view_budget {
    uint64_t bytes;           // 0: no limit
    uint64_t spill;           // bytes of a second pool for spilled values; 0: no spilling
    berth_plan_write_t proof; // as in berth_budget_params
    void *proof_data;
    // Receives the ops and limits. If it returns false, the input is read without a search. NULL: not called.
    bool (*on_ops)(const struct berth_budget_op *ops, int64_t n_ops, const struct berth_budget_params *params, void *user);
    void *user;
};

// A value that is alive in every schedule at the step that needs the most memory.
struct view_value {
    char name[64];
    uint64_t size;
};

// A point of the curve of a search.
#define VIEW_CURVE_MAX 200 // if a curve has more points, every second one is dropped
struct view_point {
    int64_t us; // since planning of the buffer began
    uint64_t peak, bound;
};

struct view_buffer {
    int32_t pool;         // pool of the items in this buffer
    char name[64];        // name of its buffer type, "" if the file has none
    uint64_t chunk_limit; // bytes, 0: no limit
    const size_t *items;  // [n_items] ascending indices into the set; part of view_plan.order
    size_t n_items;
    struct berth_plan_report report; // result of planning this buffer; plan.c measures time_us itself
    struct view_point *curve;        // [n_curve] the peak during the search: its first and last value, and changes between them
    size_t n_curve;
};

// Bytes of a model on one device. Only `compute` is planned.
struct view_home {
    char device[64];
    uint64_t weights, cache, compute;
    bool is_mapped; // the weights are in the pages of the mapped file
};

struct view_progress {
    int64_t us, limit_us; // time since the start of the search; its time limit
    int64_t fell_us;      // time of the last improvement; 0: none yet
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
    struct berth_budget_result *budgeted;         // result of the solver for the memory limit; NULL: no limit
    struct view_value alive[VIEW_BUDGET_N_ALIVE]; // the first values of budgeted->alive, largest first
    // Explanation of the cost of spilling, for the user; NULL: no memory limit
    const char *spill_price;
    bool can_budget;                                                 // the input is a graph, so a memory limit is possible
    int64_t n_ctx_train;                                             // positions for which a model was trained
    bool (*watch)(const struct view_progress *progress, void *user); // called during a search; false ends it; NULL: not called
    void *watch_user;
};

// Reads the items of a CSV or JSON file, a captured graph (compressed or not), or a model. A model is planned with the batch,
// context and cache type of the options. A memory limit is allowed for captured graphs and for CSV with costs. On failure plan is
// empty.
struct model_options;
enum ggml_status view_plan_read(
    const char *path, const struct model_options *options, const struct view_budget *budget, struct view_plan *plan);
// Reads the items of a captured graph, with the captured offsets. set->has_offsets is false, so that the planner does not start
// from these offsets. With a memory limit, the graph is changed to stay below the limit. If no such graph is found,
// plan->budgeted->fits is false, and the items of the original graph are read.
enum ggml_status view_plan_read_graph(const char *path, struct view_plan *plan);
// Applies the plan's memory limit to a CSV with the columns cost and reads: replaces the items by the items of a schedule below
// the limit (costs.c). If no such schedule is found, plan->budgeted->fits is false and the items are unchanged.
enum ggml_status view_plan_budget_set(const char *path, struct view_plan *plan);
// Reads the items of a model's graph, and the model's memory per device.
enum ggml_status view_plan_read_model(const char *path, const struct model_options *options, struct view_plan *plan);

// ---- plan.c ----

// Makes a set of items from the JSON that `write` writes. set->has_offsets is false, so that the planner does not start from the
// offsets in the JSON.
enum ggml_status view_set_make(
    enum ggml_status (*write)(FILE *file, void *user), void *user, const char *path, struct berth_plan_set **set);
// Sets plan->buffers: one buffer per pool of plan->set, with the file's description of the pool.
enum ggml_status view_plan_buffers(struct view_plan *plan);
void view_plan_free(struct view_plan *plan);
// Stores value i of budgeted->alive in plan->alive. Does nothing if i is VIEW_BUDGET_N_ALIVE or more.
void view_plan_alive_add(struct view_plan *plan, size_t i, const char *name, uint64_t size);
// view_pools_sort sorts the file's descriptions of pools. Afterwards, view_pools_find returns the description of a pool; NULL:
// none.
void view_pools_sort(struct berth_plan_set *set);
const struct berth_plan_pool *view_pools_find(const struct berth_plan_set *set, int32_t pool);

// Plans and checks every buffer and fills the reports. params->start: offsets of all items from which to start, or NULL.
// params->chunk_limit is ignored. Each buffer has its own limit. *is_stopped: plan->watch ended the search.
enum ggml_status view_plan_solve(struct view_plan *plan, const struct berth_plan_params *params, uint64_t *offsets,
    struct berth_plan_report *sum, bool *is_stopped);

struct view_alive {
    uint64_t size;
    const char *name, *op; // op: "" if the file has none
};
// Returns the items of a buffer at the step with the most live bytes, largest first. The caller frees the array. *bytes: sum of
// the sizes. NULL: out of memory.
struct view_alive *view_alive_at_bound(
    const struct view_plan *plan, const struct view_buffer *buffer, size_t *n, uint64_t *bytes);
// Returns the buffer with the highest peak; NULL: there is no buffer.
const struct view_buffer *view_plan_largest(const struct view_plan *plan);

// ---- layers.c: shortens the text of berth_sched_explain_text ----

#define VIEW_LAYERS_FOLDED (-1) // a layer is written, then the number of equal layers that follow
#define VIEW_LAYERS_ALL (-2)    // every line

// Writes the lines of a text by layer. layer: VIEW_LAYERS_FOLDED, VIEW_LAYERS_ALL, or the only layer to write. A node belongs to the
// layer in its name (blk.3.ffn.up). Lines without a layer are always written. Returns the number of lines of `layer`.
size_t view_layers_write(const char *text, int64_t layer, FILE *file);
