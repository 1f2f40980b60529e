// SPDX-License-Identifier: MIT
// expand.h: filling graphs, and what a graph that failed holds.
#pragma once

#include "core/graph.h"

enum berth_graph_failure {
    BERTH_GRAPH_FULL,      // more nodes or leafs than it has room for
    BERTH_GRAPH_NO_MEMORY, // no memory for the walk
    BERTH_GRAPH_CYCLE,     // a tensor depends on itself
    BERTH_GRAPH_N_FAILURES,
};

// Makes g a failed graph: its last slot holds poison from now on, and nothing is added any more. n_want: slots needed at least.
void berth_graph_fail(struct ggml_cgraph *g, enum berth_graph_failure why, int64_t n_want);

// t = 1.0 for an F32 scalar, wherever its memory is.
void berth_set_one(struct ggml_tensor *t);
