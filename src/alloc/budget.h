// SPDX-License-Identifier: MIT
// budget.h: graphs under a memory limit. budget_ops.c translates a graph to ops of the solver; budget_graph.c translates the
// solver's schedule to a graph.
#pragma once

#include "berth-budget-graph.h"
#include "core/optable.h"
#include "ggml-backend-impl.h"
#include "record/record.h"

#define BUDGET_FLOPS_PER_NODE 4096 // multiply-adds: fixed cost of a node

struct graph_sizes {
    ggml_backend_buffer_type_t buft; // buffer type of tensors without memory
    size_t align;
};

struct graph_ops {
    struct record_list list; // every tensor of the graph, the nodes first
    int32_t n_nodes;
    struct berth_arrays mem; // owns the arrays below
    int32_t *op_of;          // [list.n] op of the tensor, -1: none
    bool *is_mutable;        // [list.n] a node other than the tensor's producer writes the tensor's memory
    int32_t *writer;         // [list.n] first op that writes the memory; valid if is_mutable
    bool is_one_group;       // all ops with BERTH_BUDGET_ONCE are in one group
    int32_t *group;          // [list.n] union-find parent; valid if is_mutable
    struct berth_budget_op *ops;
    struct ggml_tensor **tensors; // [n] tensor of each op
    int32_t *srcs;                // sources of all ops; berth_budget_op.srcs points here
    int32_t *n_views;             // [n] number of views of the op's value
    int32_t n;                    // number of ops
};

enum ggml_status graph_ops_init(struct graph_ops *o, struct ggml_cgraph *graph, const struct graph_sizes *sizes) BERTH_MUST_USE;
void graph_ops_fini(struct graph_ops *o);
