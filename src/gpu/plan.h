// SPDX-License-Identifier: MIT
// plan.h: the plan of a graph: its steps in their order, and the properties by which the graph is recognised. A backend keeps the
// plans of its last graphs. What a backend records for a plan (a CUDA graph, a command buffer), it keeps under the plan's index.
#pragma once

#include "gpu/gpu.h"

#include "core/graph.h"

// One step of a plan: one node that its op row runs, or several nodes that a fusion runs.
struct gpu_step {
    int i_node;
    int n_nodes;
    const struct gpu_op_row *row;    // NULL with a fusion
    const struct gpu_fusion *fusion; // NULL with a row
};

// All properties of a tensor on which a launch depends. A plan is valid for graphs whose tensors equal its snapshots.
struct gpu_snapshot {
    const struct ggml_tensor *tensor;
    void *data;
    int64_t ne[GGML_MAX_DIMS];
    size_t nb[GGML_MAX_DIMS];
    int32_t op_params[GGML_MAX_OP_PARAMS / sizeof(int32_t)]; // only set for nodes
    int32_t op, type, flags, n_src;
    bool is_inner; // the tensor is a source and also an earlier node; the snapshot of that node is compared
};

struct gpu_plan {
    struct gpu_snapshot *snapshots; // [n_snapshots]: each node, followed by its sources
    size_t n_snapshots, snapshots_cap;
    struct gpu_step *steps; // [n_steps]
    int n_steps;
    size_t steps_cap;
    size_t work_size;   // bytes; the largest work memory that a step requires
    uint64_t n_runs;    // computes since the plan was made or the arena was enlarged
    uint64_t last_used; // gpu_plans.clock at the last compute of this plan
};

#define GPU_MAX_PLANS 16 // the least recently used plan is replaced

struct gpu_plans {
    struct gpu_device *dev;
    struct gpu_plan plans[GPU_MAX_PLANS];
    const struct ggml_tensor **slots; // hash table of nodes, used while a plan is made
    size_t slots_cap;
    size_t n_reserved; // calls of gpu_plan_reserve(); call n reserves plans[n % GPU_MAX_PLANS]
    uint64_t clock;    // number of computes; value for last_used
    bool no_fusion;    // fusions are not used
};

// Begins a compute: finds or makes the plan of the graph. Fails if an earlier call without a return value failed, memory is exhausted,
// or an op cannot run.
enum ggml_status gpu_compute_begin(struct gpu_plans *b, const struct ggml_cgraph *graph, struct gpu_plan **plan) BERTH_MUST_USE;
// Requests that the sources of fusions keep their memory (gpu_rope_keep and others), for graph_optimize. Returns false if fusions are
// not used.
bool gpu_plans_keep(
    const struct gpu_plans *b, const struct ggml_cgraph *graph, struct ggml_backend_graph_optimize_params *params);
// Allocates memory for a plan. gpu_compute_begin() then allocates nothing for graphs of this size or smaller. Returns false if memory
// is exhausted.
bool gpu_plan_reserve(struct gpu_plans *b, const struct ggml_cgraph *graph) BERTH_MUST_USE;
void gpu_plans_fini(struct gpu_plans *b);
size_t gpu_graph_work_size(const struct gpu_plans *b, const struct ggml_cgraph *graph);
// Runs the steps of a plan, in their order, for the graph of the run.
enum ggml_status gpu_steps_run(struct gpu_run *r, const struct gpu_plan *plan) BERTH_MUST_USE;
// Writes the fusions of the last computed graph into buf, one per line with its count. Returns the length of the text.
size_t gpu_plans_explain(const struct gpu_plans *b, char *buf, size_t size);

static inline ggml_backend_buffer_t gpu_buffer_of(const struct ggml_tensor *t) {
    return t->view_src != NULL ? t->view_src->buffer : t->buffer;
}
