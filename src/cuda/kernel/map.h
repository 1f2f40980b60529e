/* SPDX-License-Identifier: MIT
 * map.h: arguments of kernel/map.cu. */
#pragma once

#include "cuda/kernel/args.h"

/* What becomes of an element; the unary ops first, by their numbers. */
enum cuda_map {
    CUDA_MAP_SQR = 100,
    CUDA_MAP_SQRT,
    CUDA_MAP_LOG,
    CUDA_MAP_SIN,
    CUDA_MAP_COS,
    CUDA_MAP_SCALE,
    CUDA_MAP_CLAMP,
    CUDA_MAP_LEAKY_RELU,
    CUDA_MAP_FILL,
};

struct cuda_map_args {
    struct cuda_view dst, a;
    struct cuda_index index; /* of dst; d0.d 0: it has too many elements */
    int64_t n;               /* elements of dst */
    float p[4];
    int32_t what;
    int32_t pad;
};

/* Rows of dst from halves of rows of a, or of a and b. */
struct cuda_glu_args {
    struct cuda_view dst, a, b; /* a and b begin where their sides do */
    struct cuda_index index;
    int64_t n;
    float alpha, limit;
    int32_t what;    /* enum ggml_glu_op */
    int32_t a_is_16; /* a holds halves */
};
