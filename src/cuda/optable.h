// SPDX-License-Identifier: MIT
// optable.h: the families of op drivers. Add a line for op/<name>.c, which defines cuda_ops_<name>[].
#pragma once

#include "cuda/cuda.h"

// clang-format off
#define CUDA_FAMILIES(X) \
    X(view) \
    X(eltwise) \
    X(map) \
    X(norm) \
    X(rope) \
    X(rows) \
    X(copy) \
    X(place) \
    X(reduce) \
    X(picture) \
    X(recur) \
    X(train) \
    X(matmul) \
    X(mmid) \
    X(attention)
// clang-format on

#define CUDA_FAMILY_DECLARE(name) extern const struct cuda_op_entry cuda_ops_##name[];
CUDA_FAMILIES(CUDA_FAMILY_DECLARE)
#undef CUDA_FAMILY_DECLARE
