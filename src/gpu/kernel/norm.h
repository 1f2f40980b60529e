// SPDX-License-Identifier: MIT
// norm.h: arguments of kernel/norm.cu.
#pragma once

#include "gpu/kernel/args.h"

// dst = norm(a) * mul + add. If b is present, norms a + b and also writes a + b to sum. A view with p NULL is absent. mul and add
// repeat to the shape of dst.
struct gpu_norm_args {
    struct gpu_view dst, a, b, sum, mul, add;
    float eps;
    int32_t what; // enum ggml_op
};

struct gpu_group_norm_args {
    struct gpu_view dst, a;
    int64_t n_groups, n_each; // groups; channels per group (the last group may have fewer)
    float eps;
};

// y = softmax(x * scale + slope * mask) over rows. sinks and mask may be absent.
struct gpu_softmax_args {
    struct gpu_view dst, a, mask;
    const char *sinks;
    int64_t sinks_nb;
    float scale, max_bias;
    float m0, m1;        // ALiBi slope bases: heads below n_head_log2, other heads
    int32_t n_head_log2; // largest power of two that is at most the number of heads
};
