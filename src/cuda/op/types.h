// SPDX-License-Identifier: MIT
// types.h: which types kernels can read as floats, and write.
#pragma once

#include "ggml.h"

#include <stdbool.h>

// Types that kernel/dequant.cuh reads.
static inline bool cuda_can_widen(enum ggml_type t) {
    return t == GGML_TYPE_F32 || t == GGML_TYPE_F16 || t == GGML_TYPE_BF16 || ggml_is_quantized(t);
}

// Blocks of 32 that kernel/quantize.cuh writes.
static inline bool cuda_can_quantise(enum ggml_type t) {
    return t == GGML_TYPE_Q8_0 || t == GGML_TYPE_Q4_0 || t == GGML_TYPE_Q4_1 || t == GGML_TYPE_Q5_0 || t == GGML_TYPE_Q5_1 ||
           t == GGML_TYPE_IQ4_NL || t == GGML_TYPE_MXFP4;
}
