// SPDX-License-Identifier: MIT
// order.h: what the files of the order pass share: the graph as tasks and blocks.
//
//   ops --order_model.c--> order_graph --order.c: cut--> parts --order_exact.c, order_beam.c--> order of tasks --order.c--> order
//   of ops
//
// A task is an op that runs; pure views are none of that: they are free and go where their first reader wants them. A block is
// memory: it comes with the task that makes it (or is there from the start) and goes behind its last user, unless kept.
// Which bytes are alive after a set of tasks depends on the set alone, not on the order inside it: so parts between two points
// that every order passes are independent, and a search may work on sets.
#pragma once

#include "base/base.h"

#define ORDER_EXACT_MAX 64 // tasks of a part that one word can hold

// Lists of int32_t by key: list k is at[start[k]] .. at[start[k + 1] - 1].
struct order_lists {
    int32_t *start;
    int32_t *at;
};

struct order_graph {
    const struct berth_order_op *ops;
    int32_t n_ops;
    int32_t *root;    // [n_ops] the op whose memory the result lies in, through all views
    int32_t *op_task; // [n_ops] its task, -1: input or pure view
    int32_t n_tasks;
    int32_t *task_op;        // [n_tasks] in the given order
    struct order_lists pred; // task -> tasks that must run before
    struct order_lists succ; // task -> tasks that must run after
    int32_t n_blocks;        // roots with bytes
    int32_t *block_op;       // [n_blocks]
    int32_t *op_block;       // [n_ops] block of this root, -1: none
    int32_t *made;           // [n_tasks] block that the task makes, -1: none
    uint64_t *size;          // [n_blocks]
    int32_t *pool;           // [n_blocks] from 0, counted in order of appearance
    int32_t n_pools;
    bool *keep;                  // [n_blocks] to the end
    struct order_lists users;    // block -> tasks that read or write it, rising, without its maker
    struct order_lists used;     // task -> blocks it reads or writes, without the one it makes
    struct order_lists takeover; // task -> blocks it may take over if it is their last user
};

// ---- order_model.c ----

enum ggml_status order_graph_init(
    struct order_graph *g, struct berth_arrays *mem, const struct berth_order_op *ops, size_t n_ops) BERTH_MUST_USE;
struct order_live {
    uint64_t total; // peak of live bytes, all pools as one memory
    uint64_t apart; // each pool with its own peak, added up
};
// Live bytes of an order of tasks; step_live and step_peak, both or none NULL, become those before and while each position runs
// (all pools as one). False: out of memory.
bool order_measure(const struct order_graph *g, const int32_t *tasks, struct order_live *out, uint64_t *step_live,
    uint64_t *step_peak) BERTH_MUST_USE;
bool order_is_topological(const struct order_graph *g, const int32_t *tasks, int32_t *position); // position: [n_tasks] scratch

// ---- parts ----

// A stretch of an order of tasks to be improved: what ran before it is fixed as a set. Blocks and tasks have local numbers.
struct order_part {
    int32_t n;                   // tasks
    const int32_t *tasks;        // [n] in the order known so far
    uint64_t live;               // bytes alive before the first
    uint64_t bound;              // no order inside the part has a lower peak
    struct order_lists pred;     // local -> local
    struct order_lists succ;     //
    int32_t n_blocks;            // blocks that can die inside the part; all others only count in live
    uint64_t *size;              // [n_blocks]
    struct order_lists users;    // block -> local tasks, rising
    struct order_lists used;     // local task -> blocks
    struct order_lists takeover; // local task -> blocks
    uint64_t *need;              // [n] bytes the task asks for unless it takes over
    uint64_t *stay;              // [n] of these, what is left behind: 0 if nobody uses it
};

// Fills the rest of a part whose n, tasks and live are given. position: by task of the whole order.
bool order_part_init(
    struct order_part *p, struct berth_arrays *mem, const struct order_graph *g, const int32_t *position) BERTH_MUST_USE;

enum order_result { ORDER_OUT_OF_MEMORY = -1, ORDER_GAVE_UP, ORDER_NONE_BETTER, ORDER_BETTER };

struct order_ask {
    uint64_t aim, limit;
    int64_t max_nodes; // sets that are visited at most
};
// An order (local numbers) with a peak below the limit, the lowest there is, or any that does not pass the aim: a generous aim
// makes the search dive. ORDER_NONE_BETTER is a proof. *n_nodes grows by the sets visited. Parts of up to ORDER_EXACT_MAX tasks.
enum order_result order_exact(
    const struct order_part *p, const struct order_ask *ask, int32_t *order, uint64_t *peak, int64_t *n_nodes) BERTH_MUST_USE;
// The best order that a beam of this width finds, if it is below `limit`.
enum order_result order_beam(
    const struct order_part *p, uint64_t limit, int32_t width, int32_t *order, uint64_t *peak) BERTH_MUST_USE;
// Depth first from the ends, the deepest need first.
enum order_result order_depth_first(const struct order_part *p, uint64_t limit, int32_t *order, uint64_t *peak) BERTH_MUST_USE;
// Peak of an order of the part; UINT64_MAX if out of memory.
uint64_t order_part_peak(const struct order_part *p, const int32_t *order);
