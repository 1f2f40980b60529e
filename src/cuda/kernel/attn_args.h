// SPDX-License-Identifier: MIT
// attn_args.h: arguments of the attention kernels.
#pragma once

#include "cuda/kernel/tensor_map.h"

#include <stdint.h>

#define ATTN_SPLITS 512 // largest number of splits
#define ATTN_WIDE 576   // largest head dimension of attn_wide

// y[batch][query][head][d_v] = softmax(scale q k + slope mask) v. Strides are in bytes. y is contiguous.
// A group is the heads that share keys. A row is one head of one query. A step is the keys that a warp (attn_wide: a block)
// processes at a time. A split is the part of the keys that one block processes: every n_split-th step of each warp.
struct attn_args {
    const char *q, *k, *v, *mask;
    const float *sinks;
    float *y;
    float *part;          // several splits: [split][row][d_v], unnormalised weighted sums of values
    float *limit;         // several splits: [split][row][2], largest score (log2), sum of weights
    const uint8_t *kinds; // attn90: ATTN_MASK_* per mask tile; NULL: no mask
    int64_t q_1, q_2, q_3, k_1, k_2, k_3, v_1, v_2, v_3, mask_1, mask_2, mask_3;
    int q_0, k_0, v_0;    // read by attn_wide; the other kernels require dense rows
    float scale, softcap; // if softcap is not 0, the op has already divided scale by softcap
    float slope_base[2];  // log2 of the slope bases: heads below n_slope, other heads
    int n_slope;          // 0: no slopes (ALiBi)
    int mask_ne2, mask_ne3;
    int d_k, d_v, n_kv, n_q, n_head, n_group, n_batch; // n_kv: keys; n_q: queries; n_group: heads per group
    int k_type, v_type;                                // enum ggml_type
    int k_row_size, v_row_size;                        // bytes per key, bytes per value
    int k_r3, v_r3;                                    // batches that share keys; batches that share values
    int n_stages;                                      // stages of a warp's ring, 1 to 3
    int warp_shared;                                   // attn_few: bytes of a warp's ring
    int n_split;
    int n_rows; // rows of `part` per split
    int skips;  // find steps of hidden keys and skip them; requires a mask that can be read as 16-byte words
    int early;  // read the first keys before the mask
    int wait;
};

// Arguments of attn90: tensor maps of k and v (TMA), with dimensions [batch][group][key][d]. A box has 64 f16 of each key,
// swizzled as in wgmma.cuh.
struct attn90_args {
    struct cuda_tensor_map k_map, v_map;
    struct attn_args a;
};

// Arguments of attn_mask, which writes kinds[batch][head][tile of queries][tile of keys].
struct attn_mask_args {
    const char *mask;
    uint8_t *kinds;
    int64_t mask_1, mask_2, mask_3;
    int ne2, n_q, n_kv, q_rows, k_rows;
    int wait;
};
// Kind of a tile of the mask. NOTHING: all -INFINITY, no key is visible. ALL: all 0, every key is visible. SOME: other values.
enum { ATTN_MASK_NOTHING = 0, ATTN_MASK_ALL = 1, ATTN_MASK_SOME = 2 };
