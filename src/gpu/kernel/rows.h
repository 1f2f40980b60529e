// SPDX-License-Identifier: MIT
// rows.h: arguments of kernel/rows.cu.
#pragma once

#include "gpu/kernel/args.h"

// GET_ROWS copies row (r, i2, i3) of a to row (i1, i2, i3) of dst, where r = numbers[i1, i2, i3]. If r is out of range, GET_ROWS
// writes zeros.
// SET_ROWS copies row (i1, i2, i3) of a to row (r, i2, i3) of dst, where r = numbers[i1, i2 % numbers.ne[1], i3 % numbers.ne[2]].
// If r is out of range, SET_ROWS writes nothing.
struct gpu_rows_args {
    struct gpu_view dst, a, numbers; // numbers: row indices
    int64_t n_rows;                  // rows to copy: of dst for GET_ROWS, of a for SET_ROWS
    int32_t size;                    // bytes per element, if elements are copied without conversion; 0: elements are converted
    int32_t dst_block;               // elements per block of dst
};

// Copies elements, in order, from one layout to another.
struct gpu_copy_args {
    struct gpu_view dst, a;
    struct gpu_view b;                   // copy_narrow*: added to a, repeated to its shape; p is NULL: nothing is added
    struct gpu_index dst_index, a_index; // if there are 2^31 or more elements, d0.d is 0 and the kernel divides by ne
    int64_t n;                           // by kernel: elements, blocks, 16-byte words, or matrices to transpose
    int32_t size;                        // bytes per element or block, if they are copied without conversion; 0: converted
    int32_t block, dst_block;            // elements per block of a, of dst
    int32_t pad;
};
