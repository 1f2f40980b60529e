/* SPDX-License-Identifier: MIT
 * reduce.h: arguments of kernel/reduce.cu and kernel/sort.cu. */
#pragma once

#include "cuda/kernel/args.h"

struct cuda_reduce_args {
    struct cuda_view dst, a, b;
    struct cuda_index index; /* of a */
    int64_t n;               /* elements of a; ne0 of a over rows */
    double *parts;           /* one a block */
    int32_t n_parts;
    int32_t what;
};

/* Rows of a by the order of their elements: the first dst.ne[0] indices of each. */
struct cuda_sort_args {
    struct cuda_view dst, a;
    uint64_t *keys; /* n_pad a row */
    int64_t n_rows, n_pad, k, j;
    int32_t down, swap; /* the largest first; the first two change places */
};
