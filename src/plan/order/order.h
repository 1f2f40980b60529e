// SPDX-License-Identifier: MIT
// order.h: declarations that the files of the order pass share. The pass looks for an order of the ops with fewer live bytes.
//
//   ops --order_model.c--> order_graph --order.c: cut--> parts --order_exact.c, order_beam.c--> order of tasks
//   --order.c--> order of ops
//
// Terms of the order pass:
//   task      an op that runs; a pure view (a view that writes nothing) is not a task
//   block     the memory of a result
//   die       a block dies after its last user has run, unless it is kept to the end
//   cut task  a task that has the same tasks before it in every order
//   part      a range of an order that is reordered alone: the tasks after one cut task up to the next one
// A result can take over the memory of a source that dies. The live bytes depend only on the set of tasks that have run, not on
// their order. So a search can work on sets of tasks, and each part can be reordered alone.
#pragma once

#include "base/base.h"

#define ORDER_EXACT_MAX 64 // largest number of tasks of a part that is solved exactly: one word holds a set

// One list of int32_t per key k: at[start[k] .. start[k + 1]).
struct order_lists {
    int32_t *start;
    int32_t *at;
};

struct order_graph {
    const struct berth_order_op *ops;
    int32_t n_ops;
    int32_t *root;    // [n_ops] op that owns the result's memory
    int32_t *op_task; // [n_ops] task of the op, -1: input or pure view
    int32_t n_tasks;
    int32_t *task_op;        // [n_tasks] op of the task, in the given order
    struct order_lists pred; // task -> tasks that must run before it
    struct order_lists succ; // task -> tasks that must run after it
    int32_t n_blocks;        // number of roots with bytes
    int32_t *block_op;       // [n_blocks] op that owns the block
    int32_t *op_block;       // [n_ops] block of this root, -1: none
    int32_t *made;           // [n_tasks] block that the task allocates, -1: none
    uint64_t *size;          // [n_blocks]
    int32_t *pool;           // [n_blocks] pool index, in order of appearance
    int32_t n_pools;
    bool *keep;                  // [n_blocks] the block is kept to the end
    struct order_lists users;    // block -> other tasks that use it, in rising order
    struct order_lists used;     // task -> blocks that it uses but does not allocate
    struct order_lists takeover; // task -> blocks that its result may take over
};

// ---- order_model.c ----

enum ggml_status order_graph_init(
    struct order_graph *g, struct berth_arrays *mem, const struct berth_order_op *ops, size_t n_ops) BERTH_MUST_USE;
struct order_live {
    uint64_t total;   // peak of the live bytes of all pools together
    uint64_t by_pool; // sum, over the pools, of the peak of the pool's live bytes
};
// Computes the live bytes of an order of tasks. step_live, step_peak: NULL or [n_tasks], the live bytes before and during each
// task. False: out of memory.
bool order_measure(const struct order_graph *g, const int32_t *tasks, struct order_live *out, uint64_t *step_live,
    uint64_t *step_peak) BERTH_MUST_USE;
bool order_is_topological(const struct order_graph *g, const int32_t *tasks, int32_t *position); // position: [n_tasks] scratch

// ---- parts ----

// A range of an order of tasks. Blocks and tasks have local numbers.
struct order_part {
    int32_t n;                   // number of tasks
    const int32_t *tasks;        // [n] in the order known so far
    uint64_t live;               // live bytes before the first task
    uint64_t bound;              // bytes; no order inside the part has a lower peak
    struct order_lists pred;     // local task -> local tasks
    struct order_lists succ;     // local task -> local tasks
    int32_t n_blocks;            // blocks that can die inside the part
    uint64_t *size;              // [n_blocks]
    struct order_lists users;    // block -> local tasks, in rising order
    struct order_lists used;     // local task -> blocks
    struct order_lists takeover; // local task -> blocks
    uint64_t *need;              // [n] size of the block that the task allocates
    uint64_t *stay;              // [n] bytes that stay alive after the task: need, or 0 if no task uses the block
};

// Fills in a part whose n, tasks and live are set. position: index of each task in the complete order.
bool order_part_init(
    struct order_part *p, struct berth_arrays *mem, const struct order_graph *g, const int32_t *position) BERTH_MUST_USE;

enum order_result { ORDER_OUT_OF_MEMORY = -1, ORDER_GAVE_UP, ORDER_NONE_BETTER, ORDER_BETTER };

struct order_ask {
    uint64_t aim;      // bytes; this peak is good enough
    uint64_t limit;    // bytes; only orders with a peak below this count
    int64_t max_nodes; // limit on the number of sets visited
};
// Looks for an order (local numbers) with a peak below ask->limit. If an order has a peak of at most ask->aim, the search ends.
// Otherwise the order with the lowest peak is returned. ORDER_NONE_BETTER is a proof. Adds the number of sets visited to
// *n_nodes. Requires at most ORDER_EXACT_MAX tasks.
enum order_result order_exact(
    const struct order_part *p, const struct order_ask *ask, int32_t *order, uint64_t *peak, int64_t *n_nodes) BERTH_MUST_USE;
// Beam search with `width` sets per step. Only orders with a peak below `limit` count.
enum order_result order_beam(
    const struct order_part *p, uint64_t limit, int32_t width, int32_t *order, uint64_t *peak) BERTH_MUST_USE;
// Makes the depth-first order from the tasks without successors back. Of several predecessors, the one whose path allocates most
// bytes comes first.
enum order_result order_depth_first(const struct order_part *p, uint64_t limit, int32_t *order, uint64_t *peak) BERTH_MUST_USE;
// Returns the peak of an order of the part; UINT64_MAX: out of memory.
uint64_t order_part_peak(const struct order_part *p, const int32_t *order);
