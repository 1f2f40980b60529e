// SPDX-License-Identifier: MIT
// recur.h: arguments of kernel/recur.cu.
#pragma once

#include "cuda/kernel/args.h"

struct cuda_recur_args {
    const float *x[6];          // contiguous sources in the op's numbering; GATED_DELTA_NET uses q, k, v for its first three
    const float *state;         // [n_seq][n_head][d][d]
    float *y, *states;          // the result, and the new states, which follow it in the same tensor
    struct cuda_view q, k, v;   // GATED_DELTA_NET
    int64_t d, n_head, n_token; // n_token: tokens per sequence
    int64_t n_seq, n_kept, n_gate;
    float scale;
    int32_t what; // enum ggml_op
};

struct cuda_scan_args {
    struct cuda_view s, x, dt, a, b, c;
    const int32_t *ids;
    float *y, *states;
    int64_t n_kept; // number of states to keep
};
