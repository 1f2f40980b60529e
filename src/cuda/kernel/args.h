/* SPDX-License-Identifier: MIT
 * args.h: what drivers hand to kernels: plain structs that C and CUDA lay out alike. */
#pragma once

#include <stdint.h>

/* A tensor without its history. */
struct cuda_view {
    char *p;
    int64_t ne[4];
    int64_t nb[4];
    int32_t type; /* enum ggml_type */
    int32_t pad;
};

/* Division by a number that is known when the kernel is launched: q = (umulhi(n, mul) + n) >> shift, for n < 2^31. */
struct cuda_div {
    uint32_t mul, shift, d;
};

/* From a flat index of a tensor of fewer than 2^31 elements to its four. */
struct cuda_index {
    struct cuda_div d0, d01, d012; /* ne0, ne0 * ne1, ne0 * ne1 * ne2 */
};

/* An op of up to four sources. */
struct cuda_op_args {
    struct cuda_view dst, a, b, c, d; /* p NULL: there is no such source */
    struct cuda_index index;          /* of dst */
    int64_t n;                        /* elements of dst, unless the kernel says otherwise */
    double *parts;                    /* of a loss: one a row */
    int32_t p[8];                     /* the op's first parameters ... */
    float f[4];                       /* ... and as floats */
    int32_t what;                     /* the op */
    int32_t pad;
};
