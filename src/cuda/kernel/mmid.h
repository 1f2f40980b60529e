/* SPDX-License-Identifier: MIT
 * mmid.h: what sorting (token, slot) pairs by expert is told. */
#pragma once

#include <stdint.h>

#define MMID_EXPERTS 1024

/* Out: for each tile of nt columns its expert (-1: none), for each column which column of x it is and where in y it goes (-1:
 * none). */
struct mmid_args {
    const int32_t *ids;
    int32_t *experts, *from, *to;
    int64_t ids_row, y_col, y_z2;
    int n_used, n_pairs, n_experts, x_ne1, nt, n_tiles;
    int wait;
};
