// SPDX-License-Identifier: MIT
// berth-budget-graph.h: graphs that keep a budget of bytes. What berth-budget.h finds, as a graph that any backend runs: ops that
// run again are nodes of their own, and so are copies to another pool of memory and back. Results are the same bits.
#pragma once

#include "berth-budget.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ggml_backend_buffer_type;

#define BERTH_BUDGET_AGAIN " (again)"   // ends the name of a node that computes what another did before
#define BERTH_BUDGET_MOVED_OUT " (out)" // ... of a copy in the other pool
#define BERTH_BUDGET_MOVED_IN " (in)"   // ... of what came back

struct berth_graph_budget_params {
    uint64_t bytes;                        // that the graph's tensors without memory may take together
    struct ggml_backend_buffer_type *buft; // where they go; NULL: the CPU's
    int64_t time_us;                       // local search
    uint64_t seed;
    // A schedule to take in place of solving: (*result)->steps of a graph of the same ops, whose tensors may have been larger.
    // GGML_STATUS_FAILED where it is none of this graph's.
    const struct berth_budget_step *steps; // NULL: none
    size_t n_steps;

    // Another pool, to which values may move and come back: of the host, or of a file (berth_file_buffer_type_new).
    struct ggml_backend_buffer_type *spill_buft; // NULL: none
    uint64_t spill_bytes;                        // that it may take
    double spill_cost;                           // of a byte, one way, as berth_node_cost counts; 0: as the CPU copies it

    // Is told of the tensors of (*result)->alive, in their order, with their bytes: what every schedule has at once. NULL: nobody
    void (*on_alive)(size_t i, const struct ggml_tensor *tensor, uint64_t size, void *user);
    void *user;
};

// What computing a node costs, from shapes: multiplications, and what its bytes take to move as so many of these.
BERTH_API uint64_t berth_node_cost(const struct ggml_tensor *node);

// *out becomes a graph in a context of its own, *ctx, that computes what `graph` does within the budget: the graph's own tensors,
// whose sources may then be copies, so that the old graph is not to be computed any more, and copies of those that run again.
// Free the context after its last use. A budget that cannot be kept is no failure: *out is NULL, nothing was changed, and
// (*result)->fits is false with what lacks. (*result)->uses[i].peak is what ggml_gallocr needs for *out in pool i; the scheduler
// and the allocator keep the order of nodes. Outputs, and memory that nodes write into, do not move.
BERTH_API enum ggml_status berth_graph_budget(struct ggml_cgraph *graph, const struct berth_graph_budget_params *params,
    struct ggml_context **ctx, struct ggml_cgraph **out, struct berth_budget_result **result);

// The pool of a node of such a graph that is a copy to the other pool, 1, or back, 0; -1: it is no such copy.
BERTH_API int berth_budget_pool_of(const struct ggml_tensor *node);
// The pools of a graph's nodes, for ggml_gallocr_reserve_n: 1 for what lies in the other one. n: nodes of the graph.
BERTH_API void berth_budget_pools(const struct ggml_cgraph *graph, int *node_buffer_ids, int n);

#ifdef __cplusplus
}
#endif
