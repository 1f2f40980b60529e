// SPDX-License-Identifier: MIT
// berth-budget-graph.h: graphs within a memory limit. It turns a schedule of berth-budget.h into a graph that any backend can
// run. Nodes that recompute values, and copies to other memory and back, are nodes of their own. Results are the same bits. Part
// of berth.h, whose general rules hold.
#pragma once

#include "berth-budget.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ggml_backend_buffer_type;

// End of the name of a node that recomputes the value of another node.
#define BERTH_BUDGET_SUFFIX_RECOMPUTED " (again)"
// End of the name of a copy to the other pool, which spills a value.
#define BERTH_BUDGET_SUFFIX_SPILLED " (out)"
// End of the name of a copy back, which restores a value.
#define BERTH_BUDGET_SUFFIX_RESTORED " (in)"

// How to rewrite a graph.
struct berth_graph_budget_params {
    uint64_t memory_limit;                 // of all tensors of the graph that have no memory yet
    struct ggml_backend_buffer_type *buft; // type of that memory; NULL: host memory
    int64_t time_limit_us;                 // time limit of the local search
    uint64_t seed;                         // seed of the local search
    // A schedule to use instead of solving; NULL: solve. It is (*result)->steps of a graph with the same ops, whose tensors may
    // have been larger. A schedule that does not belong to this graph is GGML_STATUS_FAILED.
    const struct berth_budget_step *steps;
    int64_t n_steps; // number of its steps

    // The type of the other pool, to which values may be spilled: host memory, or files (berth_file_buffer_type_new). NULL:
    // nothing is spilled.
    struct ggml_backend_buffer_type *spill_buft;
    uint64_t spill_limit;       // memory limit of the other pool
    double spill_cost_per_byte; // cost of copying a byte one way, in the unit of berth_budget_node_cost; 0: the default, 4

    // Receives the tensors of (*result)->alive in their order, with their bytes: every schedule has these in memory at once. May
    // be NULL.
    void (*on_alive)(int64_t i, const struct ggml_tensor *tensor, uint64_t size, void *user_data);
    // Receives the ops and limits before the search. If it returns false, there is no search: *out and *result are NULL. May be NULL.
    bool (*on_ops)(const struct berth_budget_op *ops, int64_t n_ops, const struct berth_budget_params *params, void *user_data);
    void *user_data; // argument of on_alive and on_ops

    berth_plan_write_t proof; // as in berth_budget_params
    void *proof_data;         // argument of `proof`
};

// ---- graphs within a memory limit ----

// Returns the cost of computing a node, estimated from its shapes in floating-point operations: its arithmetic, 2 per byte that
// it reads or writes, and 4096 per node.
BERTH_API uint64_t berth_budget_node_cost(const struct ggml_tensor *node);

// Rewrites a graph so that it keeps the memory limit. *out becomes a graph in a new context *ctx, which the caller frees with
// ggml_free after the last use. *out contains the tensors of `graph`, whose sources may become copies, so `graph` must not be
// computed any more. A limit that cannot be kept is not a failure: *out is NULL, nothing is changed, and (*result)->fits is
// false. The caller frees *result with berth_budget_free. (*result)->uses[i].peak is the memory that ggml_gallocr needs for *out
// in pool i. Outputs, and memory that nodes write into, are not spilled.
BERTH_API enum ggml_status berth_graph_budget(struct ggml_cgraph *graph, const struct berth_graph_budget_params *params,
    struct ggml_context **ctx, struct ggml_cgraph **out, struct berth_budget_result **result);

// Returns 1 for a node of such a graph that is a copy to the other pool, 0 for a copy back, -1 for other nodes.
BERTH_API int berth_budget_pool_of(const struct ggml_tensor *node);

// Stores the pools of the graph's first n nodes, for ggml_gallocr_reserve_n: 1 for copies to the other pool, otherwise 0.
BERTH_API void berth_budget_pools(const struct ggml_cgraph *graph, int *node_buffer_ids, int64_t n);

#ifdef __cplusplus
}
#endif
