// SPDX-License-Identifier: MIT
// backend.h: one backend of a device: a stream, an arena for work memory, and the plans of its last graphs.
#pragma once

#include "cuda/device.h"

#include "core/graph.h"

// ---- the plan of a graph: the launches in their order (plan.c) ----

// One step of a plan: one node that its op row runs, or several nodes that a fusion runs.
struct cuda_step {
    int i_node;
    int n_nodes;
    const struct cuda_op_row *row;    // NULL with a fusion
    const struct cuda_fusion *fusion; // NULL with a row
};

// All properties of a tensor on which a launch depends. A plan is valid for graphs whose tensors equal its snapshots.
struct cuda_snapshot {
    const struct ggml_tensor *tensor;
    void *data;
    int64_t ne[GGML_MAX_DIMS];
    size_t nb[GGML_MAX_DIMS];
    int32_t op_params[GGML_MAX_OP_PARAMS / sizeof(int32_t)]; // only set for nodes
    int32_t op, type, flags, n_src;
    bool is_inner; // the tensor is a source and also an earlier node; the snapshot of that node is compared
};

struct cuda_plan {
    struct cuda_snapshot *snapshots; // [n_snapshots]: each node, followed by its sources
    size_t n_snapshots, snapshots_cap;
    struct cuda_step *steps; // [n_steps]
    int n_steps;
    size_t steps_cap;
    size_t work_size;   // bytes; the largest work memory that a step requires
    uint64_t n_runs;    // computes since the plan was made or the arena was enlarged; compute 2 captures the steps
    uint64_t last_used; // cuda_backend.clock at the last compute of this plan
    CUgraphExec exec;   // the captured steps; NULL: not captured
    bool has_clusters;  // a kernel of exec has clusters
};

#define CUDA_MAX_PLANS 16 // the least recently used plan is replaced

struct cuda_backend {
    struct cuda_device *dev;
    CUstream stream;
    CUevent event; // for copies between backends
    void *arena;   // device memory; work memory of one step at a time; NULL: none
    size_t arena_size;
    struct cuda_plan plans[CUDA_MAX_PLANS];
    const struct ggml_tensor **slots; // hash table of nodes, used while a plan is made
    size_t slots_cap;
    size_t n_reserved; // calls of cuda_plan_reserve(); call n reserves plans[n % CUDA_MAX_PLANS]
    uint64_t clock;    // number of computes; value for last_used
    uint64_t n_captured, n_replayed, n_updated, n_launched; // for the log: CUDA graphs; kernels that were launched separately
    bool no_graphs, no_fusion;                              // CUDA graphs are not used; fusions are not used
};

// Finds or makes the plan of a graph. Returns NULL and sets the last error if memory is exhausted or an op cannot run.
struct cuda_plan *cuda_plan_get(struct cuda_backend *b, const struct ggml_cgraph *graph) BERTH_MUST_USE;
// Allocates memory for a plan. cuda_plan_get() then allocates nothing for graphs of this size or smaller. Returns false if memory
// is exhausted.
bool cuda_plan_reserve(struct cuda_backend *b, const struct ggml_cgraph *graph) BERTH_MUST_USE;
void cuda_plan_fini(struct cuda_backend *b, struct cuda_plan *plan);
// Makes the arena large enough for a step that requires `size` bytes. Returns false if memory is exhausted.
bool cuda_arena_grow(struct cuda_backend *b, size_t size) BERTH_MUST_USE;
size_t cuda_graph_work_size(const struct cuda_backend *b, const struct ggml_cgraph *graph);

enum ggml_status cuda_compute(struct cuda_backend *b, const struct ggml_cgraph *graph) BERTH_MUST_USE;

// Allocates work memory and a plan, so that a compute allocates no host or device memory.
enum ggml_status cuda_backend_reserve(ggml_backend_t backend, const struct ggml_cgraph *graph) BERTH_MUST_USE;
// Writes the fusions of the last computed graph into buf, one per line with its count. Returns the length of the text.
size_t cuda_backend_explain(ggml_backend_t backend, char *buf, size_t size);
size_t cuda_backend_n_allocs(ggml_backend_t backend);
extern const char cuda_archs[]; // "800,860,890,900"; the build generates it

// ---- sums over several backends (comm.c); the registry exports these functions by name ----

// Returns NULL if a backend is not a CUDA backend, if a device cannot access another device's memory, or if memory is exhausted.
void *cuda_comm_init(ggml_backend_t *backends, size_t n);
void cuda_comm_free(void *comm);
// tensors[i] is on backend i. Replaces each tensor by the sum of all tensors, in stream order. A tensor without
// GGML_TENSOR_FLAG_COMPUTE counts as zeros. Returns false if the sum was not computed.
bool cuda_comm_allreduce(void *comm, struct ggml_tensor **tensors);
