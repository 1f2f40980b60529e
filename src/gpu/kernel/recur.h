// SPDX-License-Identifier: MIT
// recur.h: arguments of kernel/recur.cu.
#pragma once

#include "gpu/kernel/args.h"

struct gpu_recur_args {
    const float *x[6];          // contiguous sources by number; GATED_DELTA_NET: only x[3], x[4]
    const float *state;         // [n_seq][n_head][d][d], the old states
    float *y, *states;          // result; new states, after y in the same tensor
    struct gpu_view q, k, v;    // GATED_DELTA_NET: sources 0 to 2
    int64_t d, n_head, n_token; // n_token: tokens per sequence
    int64_t n_seq;
    int64_t n_kept; // number of states to store; states[i] is the state before the last i tokens; states[0] is always stored
    int64_t n_gate; // GATED_DELTA_NET: gates per head, 1 or d
    float scale;
    int32_t what; // enum ggml_op
};

// Kernels for many tokens (wkv6_64, ...): threads per block, lines per block, tokens that a block loads at a time.
enum { LINES_THREADS = 128, LINES_ROWS = 16, LINES_CHUNK = 8 };
