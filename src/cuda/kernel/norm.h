/* SPDX-License-Identifier: MIT
 * norm.h: arguments of kernel/norm.cu. */
#pragma once

#include "cuda/kernel/args.h"

/* dst = norm(a) * mul + add over rows; a may be the sum of a and b, which then goes to sum. Views without p are left out; mul and
 * add repeat. Rows are numbered over dimensions 1 to 3. */
struct cuda_norm_args {
    struct cuda_view dst, a, b, sum, mul, add;
    float eps;
    int32_t what; /* the op */
};

struct cuda_group_norm_args {
    struct cuda_view dst, a;
    int64_t n_groups, n_each; /* channels of a group: the last may have fewer */
    float eps;
};

/* y = softmax(x * scale + slope * mask) over rows; sinks and mask may be absent. */
struct cuda_softmax_args {
    struct cuda_view dst, a, mask;
    const char *sinks;
    int64_t sinks_nb;
    float scale, max_bias, m0, m1;
    int32_t n_head_log2;
};
