// SPDX-License-Identifier: MIT
// rearrange.h: arguments of kernel/rearrange.cu.
#pragma once

#include "cuda/kernel/args.h"

struct cuda_rearrange_args {
    struct cuda_view dst, a, b;
    struct cuda_index index; // of dst; d0.d 0: dst has too many elements
    int64_t n;               // elements, or blocks of a quantised type, of dst
    int32_t what;            // enum ggml_op; GGML_OP_ROLL for a circular PAD
    int32_t size;            // bytes per element or block
    int32_t p[4];            // meaning depends on `what`: see source_of in rearrange.cu
};

// Keeps a triangle or band: row i1 keeps elements [i1 + first, i1 + end), and all others become value.
struct cuda_band_args {
    struct cuda_view dst, a;
    struct cuda_index index;
    int64_t n, first, end;
    float value;
};

// Writes b into a part of dst that has b's shape, or adds it there.
struct cuda_part_args {
    struct cuda_view part, b;
    struct cuda_index index; // of b
    int64_t n;
    int32_t add, pad;
};
