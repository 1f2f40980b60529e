// SPDX-License-Identifier: MIT
// eltwise.h: arguments of kernel/eltwise.cu.
#pragma once

#include "gpu/kernel/args.h"

// Value of gpu_map_args.what for an op other than GGML_OP_UNARY. For GGML_OP_UNARY, it is the enum ggml_unary_op.
#define GPU_MAP(op) (GGML_UNARY_OP_COUNT + (op))

struct gpu_map_args {
    struct gpu_view dst, a;
    struct gpu_index index; // of dst; if dst has 2^31 or more elements, d0.d is 0 and the kernel divides by dst.ne
    int64_t n;              // elements of dst
    float p[4];             // parameters of the op
    int32_t what;           // enum ggml_unary_op, or GPU_MAP(op)
    int32_t pad;
};

struct gpu_glu_args {
    struct gpu_view dst, a, b; // with one source: the two halves of its rows
    struct gpu_index index;
    int64_t n;
    float alpha, limit;
    int32_t what;    // enum ggml_glu_op
    int32_t a_is_16; // a is f16
};

struct gpu_binary_args {
    struct gpu_view dst, a, b;
    struct gpu_index index; // of dst; if dst has 2^31 or more elements, d0.d is 0 and the kernel divides by dst.ne
    int64_t n;              // elements of dst
    int32_t what;           // enum ggml_op
    int32_t pad;
};

// Contiguous f32. b has n_b elements and repeats. n and n_b are multiples of 4.
struct gpu_binary_dense_args {
    float *dst;
    const float *a, *b;
    int64_t n, n_b;
    struct gpu_div d_b; // divisor n_b / 4
    int32_t what;       // enum ggml_op
};
