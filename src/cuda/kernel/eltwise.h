// SPDX-License-Identifier: MIT
// eltwise.h: arguments of kernel/eltwise.cu.
#pragma once

#include "cuda/kernel/args.h"

// Value of cuda_map_args.what for an op other than GGML_OP_UNARY. For GGML_OP_UNARY, it is the enum ggml_unary_op.
#define CUDA_MAP(op) (GGML_UNARY_OP_COUNT + (op))

struct cuda_map_args {
    struct cuda_view dst, a;
    struct cuda_index index; // of dst; if dst has 2^31 or more elements, d0.d is 0 and the kernel divides by dst.ne
    int64_t n;               // elements of dst
    float p[4];              // parameters of the op
    int32_t what;            // enum ggml_unary_op, or CUDA_MAP(op)
    int32_t pad;
};

struct cuda_glu_args {
    struct cuda_view dst, a, b; // with one source: the two halves of its rows
    struct cuda_index index;
    int64_t n;
    float alpha, limit;
    int32_t what;    // enum ggml_glu_op
    int32_t a_is_16; // a is f16
};

struct cuda_binary_args {
    struct cuda_view dst, a, b;
    struct cuda_index index; // of dst; if dst has 2^31 or more elements, d0.d is 0 and the kernel divides by dst.ne
    int64_t n;               // elements of dst
    int32_t what;            // enum ggml_op
    int32_t pad;
};

// Contiguous f32. b has n_b elements and repeats. n and n_b are multiples of 4.
struct cuda_binary_dense_args {
    float *dst;
    const float *a, *b;
    int64_t n, n_b;
    struct cuda_div d_b; // divisor n_b / 4
    int32_t what;        // enum ggml_op
};

#define CUDA_COMM_MAX 16 // largest number of devices

// Adds the tensors of all devices, element by element (comm.c).
struct cuda_comm_args {
    char *to;                        // receives the sum
    const char *from[CUDA_COMM_MAX]; // one tensor per device; NULL: the tensor counts as zeros
    int64_t n;                       // elements of each tensor
    int32_t n_from;                  // number of devices
    int32_t type, size;              // enum ggml_type; bytes per element
    int32_t pad;
};
