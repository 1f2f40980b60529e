// SPDX-License-Identifier: MIT
// reduce.h: arguments of kernel/reduce.cu and kernel/sort.cu.
#pragma once

#include "gpu/kernel/args.h"

struct gpu_reduce_args {
    struct gpu_view dst, a, b;
    struct gpu_index index; // of a
    int64_t n;              // elements of a; for kernels over rows, elements per row
    double *parts;          // [n_parts], one partial sum per block
    int32_t n_parts;
    int32_t what; // enum ggml_op, for kernels over rows
};

// Each row of dst receives the first dst.ne[0] indices of the sorted row of a.
struct gpu_sort_args {
    struct gpu_view dst, a;
    uint64_t *keys;              // [n_rows][n_pad], for rows that do not fit into shared memory; otherwise NULL
    int64_t n_rows, n_pad, k, j; // n_pad: padded row length; k, j: step of the bitonic network
    // down: 1: the largest element comes first. swap: 1: exchange the first two indices of each row, as ggml's CPU backend does
    // for TOP_K.
    int32_t down, swap;
};
