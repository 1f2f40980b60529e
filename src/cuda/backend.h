// SPDX-License-Identifier: MIT
// backend.h: one stream of work on a device, with its arena and the graphs it has captured.
#pragma once

#include "cuda/device.h"

#include "core/graph.h"

// ---- the plan of a graph: what is launched, in order (plan.c) ----

// One step: a node by its row, or several by a fusion.
struct cuda_step {
    int i_node;
    int n_nodes;
    const struct cuda_op_row *row;    // NULL with a fusion
    const struct cuda_fusion *fusion; // NULL with a row
};

// All that a launch depends on, of one tensor.
struct cuda_seen {
    const struct ggml_tensor *tensor;
    void *data;
    int64_t ne[GGML_MAX_DIMS];
    size_t nb[GGML_MAX_DIMS];
    int32_t op_params[GGML_MAX_OP_PARAMS / sizeof(int32_t)]; // of nodes
    int32_t op, type, flags, n_src;
    bool is_inner; // a source that is a node of the graph: looked at as such
};

struct cuda_plan {
    struct cuda_seen *seen; // [n_seen]: the nodes, each followed by its sources
    size_t n_seen, seen_cap;
    struct cuda_step *steps; // [n_steps]
    int n_steps;
    size_t steps_cap;
    size_t work_size; // the most that a step wants
    uint64_t n_runs;
    uint64_t last_used;
    CUgraphExec exec; // NULL: not captured
};

#define CUDA_MAX_PLANS 16 // graphs that a backend knows at a time; the one unused for longest makes room

struct cuda_backend {
    struct cuda_device *dev;
    CUstream stream;
    CUevent event; // for copies between backends
    void *arena;
    size_t arena_size;
    struct cuda_plan plans[CUDA_MAX_PLANS];
    const struct ggml_tensor **slots; // a table of nodes, for a plan in the making
    size_t slots_cap;
    size_t n_reserved; // plans that were given room, one after the other
    uint64_t clock;    // counts computes
    uint64_t n_captured, n_replayed, n_updated, n_launched;
    bool no_graphs, no_fusion;
};

// Finds or makes the plan of a graph. NULL: out of memory, or an op that is not supported; the last error says so.
struct cuda_plan *cuda_plan_get(struct cuda_backend *b, const struct ggml_cgraph *graph) BERTH_MUST_USE;
// Room for a plan of the graph, so that cuda_plan_get() of one that is no larger needs none. False: it cannot be had.
bool cuda_plan_reserve(struct cuda_backend *b, const struct ggml_cgraph *graph) BERTH_MUST_USE;
void cuda_plan_fini(struct cuda_backend *b, struct cuda_plan *plan);
// Room for the largest step. False: it cannot be had.
bool cuda_arena_grow(struct cuda_backend *b, size_t size) BERTH_MUST_USE;
// Largest work_size of the graph's nodes.
size_t cuda_graph_work_size(const struct cuda_backend *b, const struct ggml_cgraph *graph);

enum ggml_status cuda_compute(struct cuda_backend *b, const struct ggml_cgraph *graph) BERTH_MUST_USE;

// As berth_backend_reserve(): work memory and a plan's room, so that computing takes no memory of the host or the device.
enum ggml_status cuda_backend_reserve(ggml_backend_t backend, const struct ggml_cgraph *graph) BERTH_MUST_USE;
// The fusions of the last graph computed and how often each, a line each, into buf: for `berth explain`. Returns its length.
size_t cuda_backend_explain(ggml_backend_t backend, char *buf, size_t size);
// How often device memory was taken from the driver so far.
size_t cuda_backend_n_allocs(ggml_backend_t backend);
extern const char cuda_archs[]; // "800,860,890,900"; made by the build

// ---- sums over several backends (comm.c), by the names that a registry is asked for ----

// For backends that are all CUDA, on devices that reach each other's memory. NULL: not so, or no memory.
void *cuda_comm_init(ggml_backend_t *backends, size_t n);
void cuda_comm_free(void *comm);
// Every tensor becomes the sum of all, in order with each backend's work; one that is not computed counts as zeros. False: not
// done.
bool cuda_comm_allreduce(void *comm, struct ggml_tensor **tensors);
