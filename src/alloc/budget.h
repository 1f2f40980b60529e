// SPDX-License-Identifier: MIT
// budget.h: graphs under a budget: budget_ops.c makes the solver's ops of a graph, budget_graph.c a graph of its schedule.
#pragma once

#include "berth-budget-graph.h"
#include "core/optable.h"
#include "ggml-backend-impl.h"
#include "record/record.h"

#define BUDGET_FLOPS_A_NODE 4096 // for coming by at all

struct graph_sizes {
    ggml_backend_buffer_type_t buft; // where tensors without memory go
    size_t align;
};

struct graph_ops {
    struct record_list list; // every tensor that the graph names, the nodes first
    int32_t n_nodes;
    struct berth_arrays mem; // of the following
    int32_t *op_of;          // [list.n] -1: a view, or memory of somebody else
    bool *is_mutable;        // [list.n] memory that a node writes which did not make it
    int32_t *writer;         // [list.n] the first op that writes it, of memory that changes
    bool is_one;             // all that runs once is of one group
    int32_t *group;          // [list.n] of memory that changes, on the way to the one that stands for its group
    struct berth_budget_op *ops;
    struct ggml_tensor **tensors; // [n] of each op
    int32_t *srcs;
    int32_t *n_views; // [n] tensors that look at the op's value
    int32_t n;
};

enum ggml_status graph_ops_init(struct graph_ops *o, struct ggml_cgraph *graph, const struct graph_sizes *sizes) BERTH_MUST_USE;
void graph_ops_fini(struct graph_ops *o);
