// SPDX-License-Identifier: MIT
// args.h: arguments that op drivers (op/*.c) pass to kernels.
#pragma once

#include <stdint.h>

// Address, shape, strides and type of a tensor.
struct gpu_view {
    char *p;
    int64_t ne[4];
    int64_t nb[4];
    int32_t type; // enum ggml_type
    int32_t pad;
};

// Constants for a fast division: n / d = (umulhi(n, mul) + n) >> shift, for n < 2^31.
struct gpu_div {
    uint32_t mul, shift, d;
};

// Divisors that split a flat index into four indices. Requires fewer than 2^31 elements.
struct gpu_index {
    struct gpu_div d0, d01, d012; // by ne0, ne0 * ne1, ne0 * ne1 * ne2
};

// Arguments of an op with up to four sources.
struct gpu_op_args {
    struct gpu_view dst, a, b, c, d; // a to d: sources 0 to 3; p NULL: absent
    struct gpu_index index;          // of dst
    int64_t n;                       // elements of dst, unless the kernel's comment defines it otherwise
    double *parts;                   // loss: [n_rows], partial sums
    int32_t p[8];                    // first parameters of the op as integers
    float f[4];                      // first parameters of the op as floats
    int32_t what;                    // enum ggml_op
    int32_t pad;
};

// Arguments of an optimiser step (kernel step_adamw, step_sgd). p: hyperparameters, nb bytes apart.
struct gpu_step_args {
    struct gpu_op_args op;
    const float *p;
    int64_t nb;
};
