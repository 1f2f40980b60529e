// SPDX-License-Identifier: MIT
// rope.h: arguments of kernel/rope.cu.
#pragma once

#include "gpu/kernel/args.h"

struct gpu_rope_args {
    struct gpu_view dst, a;
    const char *pos, *factors; // positions; frequency factors, or NULL
    int64_t pos_nb, factors_nb;
    int64_t n_rows;  // product of dimensions 1 to 3 of dst
    int32_t n_pairs; // rotated pairs per row; 0: rows are copied
    int32_t n_apart; // distance between the two elements of a pair
    int32_t n_offs;  // index of the first rotated element
    // is_halves: the first element of pair i is element i, not 2 i (NEOX, MROPE, VISION, IMROPE). is_multi: MROPE, VISION or
    // IMROPE. is_vision: VISION. is_interleaved: IMROPE.
    int32_t is_halves, is_multi, is_vision, is_interleaved;
    int32_t sections[4];
    // step: ratio of the angles of consecutive pairs. magnitude: factor by which the length of a pair changes when it is rotated
    // (the parameter attn_factor, times YaRN's own factor if YaRN is used). ramp, ext_factor: YaRN. sin_sign: -1 for ROPE_BACK,
    // otherwise 1.
    float step, freq_scale, ext_factor, ramp[2], magnitude, sin_sign;
    // If fused with SET_ROWS, numbers contains its row indices: the cache row of each token. NULL: rows are written to dst in
    // order.
    const char *numbers;
    int64_t numbers_nb;
    int32_t numbers_are_64; // 1: the indices are int64_t; 0: int32_t
    int32_t is_early;       // 1: read pos, factors and numbers before previous kernels end; no kernel of the graph writes them
    int64_t to_nb1, to_ne1; // bytes between rows of the cache, and its number of rows
    // NULL, or the weights of a norm: the row is divided by its root mean square and multiplied with the weights before it is
    // rotated. Requires f32 rows of at most GPU_ROPE_NORM_MAX elements, of which all are rotated, and one warp per row.
    const float *norm;
    float eps;
};
enum { GPU_ROPE_NORM_MAX = 256 };

// One launch runs up to three jobs. blockIdx.y is the index of the job. If n_pairs of a job is 0, the job copies rows.
enum { GPU_ROPE_JOBS = 3 };
struct gpu_rope_jobs {
    struct gpu_rope_args job[GPU_ROPE_JOBS];
};
