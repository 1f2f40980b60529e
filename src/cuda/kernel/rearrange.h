/* SPDX-License-Identifier: MIT
 * rearrange.h: arguments of kernel/place.cu: elements that move as they are, to other places. */
#pragma once

#include "cuda/kernel/args.h"

struct cuda_rearrange_args {
    struct cuda_view dst, a, b;
    struct cuda_index index; /* of dst; d0.d 0: it has too many elements */
    int64_t n;               /* elements, or blocks, of dst */
    int32_t what;            /* the op; ROLL of a PAD that goes around */
    int32_t size;            /* bytes of one */
    int32_t p[4];            /* by what: see rearrange.cu:source_of */
};

/* A triangle of rows kept, the rest a value: row i1 keeps elements [i1 + first, i1 + end). */
struct cuda_band_args {
    struct cuda_view dst, a;
    struct cuda_index index;
    int64_t n, first, end;
    float value;
};

/* Part of dst, of b's shape: b goes there, or is added. */
struct cuda_part_args {
    struct cuda_view part, b;
    struct cuda_index index; /* of b */
    int64_t n;
    int32_t add, pad;
};
