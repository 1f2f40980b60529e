// SPDX-License-Identifier: MIT
// berth-budget-graph.h: graphs that keep a budget of bytes. What berth-budget.h finds, as a graph that any backend runs: ops that
// run again are nodes of their own. Results are the same bits.
#pragma once

#include "berth-budget.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ggml_backend_buffer_type;

#define BERTH_BUDGET_AGAIN " (again)" // ends the name of a node that computes what another did before

struct berth_graph_budget_params {
    uint64_t bytes;                        // that the graph's tensors without memory may take together
    struct ggml_backend_buffer_type *buft; // where they go; NULL: the CPU's
    int64_t time_us;                       // local search
    uint64_t seed;
};

// What computing a node costs, from shapes: multiplications, and what its bytes take to move as so many of these.
BERTH_API uint64_t berth_node_cost(const struct ggml_tensor *node);

// *out becomes a graph in a context of its own, *ctx, that computes what `graph` does within the budget: the graph's own tensors,
// whose sources may then be copies, so that the old graph is not to be computed any more, and copies of those that run again.
// Free the context after its last use. A budget that cannot be kept is no failure: *out is NULL, nothing was changed, and
// (*result)->fits is false with what lacks. (*result)->uses[0].peak is what ggml_gallocr needs for *out. One buffer type for all;
// the scheduler and the allocator keep the order of nodes.
BERTH_API enum ggml_status berth_graph_budget(struct ggml_cgraph *graph, const struct berth_graph_budget_params *params,
    struct ggml_context **ctx, struct ggml_cgraph **out, struct berth_budget_result **result);

#ifdef __cplusplus
}
#endif
