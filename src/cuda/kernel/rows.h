// SPDX-License-Identifier: MIT
// rows.h: arguments of kernel/rows.cu.
#pragma once

#include "cuda/kernel/args.h"

// GET_ROWS: row (i1, i2, i3) of dst is row numbers(i1, i2, i3) of a. SET_ROWS: row (i1, i2, i3) of a goes to row numbers(i1, i2 %
// ne1, i3 % ne2) of dst. For a number out of range, GET_ROWS writes zeros, and SET_ROWS writes nothing.
struct cuda_rows_args {
    struct cuda_view dst, a, numbers;
    int64_t n_rows;
    int32_t size; // bytes per element if elements are copied unchanged; 0: they are converted
    int32_t pad;
};

// Copies elements, in order, from one layout to another.
struct cuda_copy_args {
    struct cuda_view dst, a;
    struct cuda_index dst_index, a_index; // d0.d 0: too many elements
    int64_t n;                            // number of elements, of blocks, or of 16-byte words, depending on the kernel
    int32_t size;                         // bytes per element or block that is copied unchanged; 0: elements are converted
    int32_t block;                        // elements per block of a; conversions to a quantised dst write blocks of 32
};
