// SPDX-License-Identifier: MIT
// recur.h: arguments of kernel/recur.cu.
#pragma once

#include "cuda/kernel/args.h"

struct cuda_recur_args {
    const float *x[6];          // contiguous sources by number; GATED_DELTA_NET: only x[3], x[4]
    const float *state;         // [n_seq][n_head][d][d], the old states
    float *y, *states;          // result; new states, after y in the same tensor
    struct cuda_view q, k, v;   // GATED_DELTA_NET: sources 0 to 2
    int64_t d, n_head, n_token; // n_token: tokens per sequence
    int64_t n_seq;
    int64_t n_kept; // the state after each of the last n_kept tokens is stored; the last state always
    int64_t n_gate; // GATED_DELTA_NET: gates per head, 1 or d
    float scale;
    int32_t what; // enum ggml_op
};

struct cuda_scan_args {
    struct cuda_view s, x, dt, a, b, c;
    const int32_t *ids;
    float *y, *states;
    int64_t n_kept; // number of states to keep
};
