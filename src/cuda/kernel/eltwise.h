/* SPDX-License-Identifier: MIT
 * eltwise.h: arguments of kernel/eltwise.cu. */
#pragma once

#include "cuda/kernel/args.h"

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
