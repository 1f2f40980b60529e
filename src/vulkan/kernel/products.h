// SPDX-License-Identifier: MIT
// products.h: arguments of the kernels of MUL_MAT, MUL_MAT_ID and FLASH_ATTN_EXT.
#pragma once

#include "gpu/kernel/args.h"

// y[i, j, z2, z3] = sum over k of w[k, i, z2 / r2, z3 / r3] * x[k, j, z2, z3]. If ids is present (MUL_MAT_ID), z2 is the token and
// j is the slot: y[i, j, z2] uses the weights w[k, i, ids[j, z2]] and the column x[k, j % x.ne[1], z2].
struct vulkan_product_args {
    struct gpu_view w, x, y, ids;
    int64_t r2, r3;
    int64_t n_tiles; // mm: tiles of columns
};
enum { MV_COLS = 8 };  // mv: columns per workgroup
enum { MM_TILE = 64 }; // mm: rows and columns per workgroup

// y[d, head, query, batch] = softmax(scale q k + slope mask) v. y is contiguous.
struct vulkan_attn_args {
    struct gpu_view q, k, v, mask, y;
    const char *sinks; // [head]; NULL: none
    float scale, softcap;
    float m0, m1;        // bases of the slopes: heads below n_head_log2, other heads
    int32_t n_head_log2; // 0: no slopes
    int32_t pad;
};
enum { ATTN_DIM_MAX = 576 }; // largest head dimension
enum { ATTN_THREADS = 64 };
