/* SPDX-License-Identifier: MIT
 * recur.h: arguments of kernel/recur.cu. */
#pragma once

#include "cuda/kernel/args.h"

struct cuda_recur_args {
    const float *x[6];          /* dense sources by the op's numbering, but for delta's q, k, v: views below */
    const float *state;         /* n_seq states of n_head matrices of d x d */
    float *y, *states;          /* the result and, behind it, the states it leaves */
    struct cuda_view q, k, v;   /* delta */
    int64_t d, n_head, n_token; /* tokens of a sequence */
    int64_t n_seq, n_kept, n_gate;
    float scale;
    int32_t what; /* the op */
};

struct cuda_scan_args {
    struct cuda_view s, x, dt, a, b, c;
    const int32_t *ids;
    float *y, *states;
    int64_t n_kept; /* states */
};
