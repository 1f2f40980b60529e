/* SPDX-License-Identifier: MIT
 * eltwise.h: arguments of kernel/eltwise.cu. */
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

enum cuda_binary { CUDA_BINARY_ADD, CUDA_BINARY_SUB, CUDA_BINARY_MUL, CUDA_BINARY_DIV };

struct cuda_binary_args {
    struct cuda_view dst, a, b;
    struct cuda_index index; /* of dst; d0.d 0: it has too many elements */
    int64_t n;               /* elements of dst */
    int32_t what;            /* enum cuda_binary */
    int32_t pad;
};

/* Dense f32: b has n_b elements and repeats; n and n_b are multiples of 4. */
struct cuda_binary_dense_args {
    float *dst;
    const float *a, *b;
    int64_t n, n_b;
    struct cuda_div d_b; /* n_b / 4 */
    int32_t what;
};

#define CUDA_COMM_MAX 16 /* devices */

struct cuda_comm_args {
    char *to;
    const char *from[CUDA_COMM_MAX]; /* one a device; NULL: zeros */
    int64_t n;                       /* elements */
    int32_t n_from;
    int32_t type, size;
    int32_t pad;
};
