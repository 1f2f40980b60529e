/* SPDX-License-Identifier: MIT
 * rows.h: arguments of kernel/rows.cu. */
#pragma once

#include "cuda/kernel/args.h"

/* GET_ROWS: row (i1, i2, i3) of dst is row numbers(i1, i2, i3) of a. SET_ROWS: row (i1, i2, i3) of a goes to dst's row
 * numbers(i1, i2 % ne1, i3 % ne2). A number out of range: zeros, or nothing. */
struct cuda_rows_args {
    struct cuda_view dst, a, numbers;
    int64_t n_rows;
    int32_t size; /* bytes of an element that moves as it is; 0: it is converted */
    int32_t pad;
};

/* Elements in their order from one layout to another. */
struct cuda_copy_args {
    struct cuda_view dst, a;
    struct cuda_index dst_index, a_index; /* d0.d 0: too many elements */
    int64_t n;                            /* elements, blocks that move as they are, or fours */
    int32_t size;                         /* likewise; 0: converted */
    int32_t block;                        /* 32: dst takes whole blocks of so many; a's length of a row that moves in blocks */
};
