// SPDX-License-Identifier: MIT
// fusions.h: the fusions, the widest first. Add a line for a struct cuda_fusion cuda_fusion_<name> of op/*.c.
#pragma once

#include "cuda/cuda.h"

// clang-format off
#define CUDA_FUSIONS(X) \
    X(mv) \
    X(norm) \
    X(rope_turn) \
    X(rope_set)
// clang-format on

#define CUDA_FUSION_DECLARE(name) extern const struct cuda_fusion cuda_fusion_##name;
CUDA_FUSIONS(CUDA_FUSION_DECLARE)
#undef CUDA_FUSION_DECLARE
