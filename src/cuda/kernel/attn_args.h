/* SPDX-License-Identifier: MIT
 * attn_args.h: what an attention is told; the driver in C and the kernels read the same struct. */
#pragma once

#include <stdint.h>

#define ATTN_SPLITS 512 /* at most */
#define ATTN_WIDE 576   /* dimensions of attn_wide, at most */

/* y[b][query][head][d_v] = softmax(scale q k + slope mask) v. Strides in bytes but for y. A group: heads that share keys. */
struct attn_args {
    const char *q, *k, *v, *mask;
    const float *sinks;
    float *y;
    float *part;          /* [split][row][d_v] sums that are not divided yet, when there are several splits */
    float *limit;         /* [split][row][2]: the largest score, and the sum of exp(score - largest) */
    const uint8_t *kinds; /* attn90: what a tile of the mask holds (attn_mask.cu), NULL without a mask */
    int64_t q_1, q_2, q_3, k_1, k_2, k_3, v_1, v_2, v_3, mask_1, mask_2, mask_3;
    float scale, softcap; /* scale is divided by softcap where there is one */
    float slope_base[2];  /* log2 of the slopes' bases, for heads below n_slope and from it on */
    int n_slope;          /* 0: no slopes */
    int mask_ne2, mask_ne3;
    int d_k, d_v, n_kv, n_q, n_head, n_group, n_batch;
    int k_type, v_type;         /* enum ggml_type */
    int k_row_size, v_row_size; /* bytes of a key, of a value */
    int k_r3, v_r3;             /* batches that share keys, values */
    int n_stages;               /* of a warp's ring, 1 to 3 */
    int warp_shared;            /* attn_few: bytes of a warp's ring */
    int n_split,
        split_keys; /* keys of a split: a multiple of 64 for attn (which looks at n_kv alone), 16 attn_few, 32 attn_wide */
    int n_rows;     /* rows of part: all splits alike */
    int wait;
};

/* With maps of k and v for the copy engine: rows of 64 halves of a key, [batch][group][key][d], swapped as in wgmma.cuh. */
struct attn90_map {
    uint64_t opaque[16];
}
#if defined(__cplusplus) || defined(__GNUC__)
__attribute__((aligned(64)))
#endif
;
struct attn90_args {
    struct attn90_map k_map, v_map;
    struct attn_args a;
};

/* attn_mask: kinds[batch][head][tile of queries][tile of keys]. */
struct attn_mask_args {
    const char *mask;
    uint8_t *kinds;
    int64_t mask_1, mask_2, mask_3;
    int ne2, n_q, n_kv, q_rows, k_rows;
    int wait;
};
enum { ATTN_MASK_NOTHING = 0, ATTN_MASK_ALL = 1, ATTN_MASK_SOME = 2 };
