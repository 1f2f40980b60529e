// SPDX-License-Identifier: MIT
// moe.h: arguments of kernel/moe.cu.
#pragma once

#include "gpu/kernel/args.h"

#define ROUTER_EXPERTS 256 // most experts of moe_router

// Selects the n_used experts with the largest logits for each token. weights: their softmax values, divided by their clamped sum
// if `norm` is set.
struct gpu_router_args {
    const float *logits; // [n_tokens][n_experts]
    int32_t *ids;        // row stride ids_row
    float *weights;      // [n_tokens][n_used]
    int64_t ids_row, n_tokens;
    int32_t n_experts, n_used;
    float lo, hi; // limits of the sum
    int32_t norm;
};

// dst[t] = sum over slots i of x[t][i] * w[t][i], for rows of n elements. Contiguous.
struct gpu_expert_sum_args {
    float *dst;
    const float *x, *w;
    int64_t n, n_tokens;
    int32_t n_used;
};
