// SPDX-License-Identifier: MIT
// norm.h: arguments of kernel/norm.cu.
#pragma once

#include "cuda/kernel/args.h"

// dst = norm(a) * mul + add over rows. If b is present, the source is a + b, and the kernel writes a + b to sum. A view with p
// NULL is absent. mul and add repeat. Row indices count over dimensions 1 to 3.
struct cuda_norm_args {
    struct cuda_view dst, a, b, sum, mul, add;
    float eps;
    int32_t what; // enum ggml_op
};

struct cuda_group_norm_args {
    struct cuda_view dst, a;
    int64_t n_groups, n_each; // groups, and channels per group; the last group may have fewer
    float eps;
};

// y = softmax(x * scale + slope * mask) over rows. sinks and mask may be absent.
struct cuda_softmax_args {
    struct cuda_view dst, a, mask;
    const char *sinks;
    int64_t sinks_nb;
    float scale, max_bias, m0, m1; // m0, m1: bases of the ALiBi slopes of heads below n_head_log2 and of the others
    int32_t n_head_log2;
};
