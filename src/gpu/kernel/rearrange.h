// SPDX-License-Identifier: MIT
// rearrange.h: arguments of kernel/rearrange.cu.
#pragma once

#include "gpu/kernel/args.h"

struct gpu_rearrange_args {
    struct gpu_view dst, a, b;
    struct gpu_index index; // of dst; if dst has 2^31 or more elements, d0.d is 0 and the kernel divides by dst.ne
    int64_t n;              // elements of dst, or blocks if quantised
    int32_t what;           // enum ggml_op; GGML_OP_ROLL for a circular PAD
    int32_t size;           // bytes per element or block
    int32_t p[4];           // parameters; see source_of in rearrange.cu
};

// Row i1 keeps elements [i1 + first, i1 + end). All other elements become value.
struct gpu_band_args {
    struct gpu_view dst, a;
    struct gpu_index index;
    int64_t n, first, end;
    float value;
};

// Writes or adds b to a part of dst that has b's shape.
struct gpu_part_args {
    struct gpu_view part, b;
    struct gpu_index index; // of b
    int64_t n;
    int32_t add, pad;
};
