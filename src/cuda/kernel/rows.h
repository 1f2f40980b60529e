// SPDX-License-Identifier: MIT
// rows.h: arguments of kernel/rows.cu.
#pragma once

#include "cuda/kernel/args.h"

// GET_ROWS: row (i1, i2, i3) of dst is row numbers(i1, i2, i3) of a. SET_ROWS: row (i1, i2, i3) of a goes to row numbers(i1, i2 %
// ne1, i3 % ne2) of dst. If a number is out of range, GET_ROWS writes zeros and SET_ROWS writes nothing.
struct cuda_rows_args {
    struct cuda_view dst, a, numbers;
    int64_t n_rows;
    int32_t size; // bytes per unchanged element; 0: elements are converted
    int32_t pad;
};

// Copies elements, in order, from one layout to another.
struct cuda_copy_args {
    struct cuda_view dst, a;
    struct cuda_index dst_index, a_index; // if there are 2^31 or more elements, d0.d is 0 and the kernel divides by ne
    int64_t n;                            // elements, blocks or 16-byte words, by kernel
    int32_t size;                         // bytes per unchanged element or block; 0: converted
    int32_t block;                        // elements per block of a
};
