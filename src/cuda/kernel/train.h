/* SPDX-License-Identifier: MIT
 * train.h: arguments of kernel/train.cu. */
#pragma once

#include "cuda/kernel/args.h"

struct cuda_train_args {
    struct cuda_view dst, a, b, c, d;
    struct cuda_index index; /* of dst */
    int64_t n;
    double *parts; /* of the loss: one a row */
    float f0;
    int32_t what; /* rows: 0 softmax, 1 rms norm */
};
