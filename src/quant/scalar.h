// SPDX-License-Identifier: MIT
// scalar.h: finds the scale, or the scale and offset, with the least squared error. A run is a sequence of elements that share a
// scale. A grid is the set of values that elements may take before scaling. A level is the index of a grid value; blocks store
// levels. All functions work on a frame (normalise.h) and use its weights.
#pragma once

#include "quant/normalise.h"

// All integers lo..hi, or 16 sorted values of which the first is lo and the last is hi.
struct grid {
    float lo, hi;
    const int8_t *values; // NULL, or 16 values
};

// Fits one run of len elements at x[at]: x = d * g, g in the grid. Returns d as f16. Writes the levels to q: indices into the
// table, or g - lo without a table.
uint16_t berth_fit_run(const struct frame *f, int at, int len, const struct grid *grid, uint8_t *q);

// Fits a superblock of 256 elements in runs of len: x = d * s[run] * g, s in s_min .. -s_min - 1. Returns d as f16.
uint16_t berth_fit_super(const struct frame *f, int len, const struct grid *grid, int s_min, int8_t *s, uint8_t *q);

// Fits a superblock in runs of len (struct affine_super): q in 0..q_max, s and m in 0..s_max.
void berth_fit_affine_super(const struct frame *f, int len, int q_max, int s_max, struct affine_super *out);

// Defines three functions. quantize_blocks_X searches long for the best scales (`fit`). quantize_row_X_ref writes the same bytes
// as the reference (`plain`). quantize_X calls quantize_blocks_X for each row. `fit` and `plain` compute s and q of block i and
// return d. `pack` writes s and q into y[i].
#define BERTH_QUANTIZE_SUPER(name, fit, plain, pack) \
    static void quantize_blocks_##name(const float *x, block_##name *y, int64_t n, const float *w) { \
        for (int64_t i = 0; i < n; i++) { \
            struct frame f; \
            int8_t s[16]; \
            uint8_t q[QK_K]; \
            if (!frame_init(&f, x + i * QK_K, block_weights(w, i), QK_K)) { \
                berth_block_nan(&y[i], sizeof(y[i]), &y[i].d); \
                continue; \
            } \
            y[i].d = fit; \
            pack(s, q, &y[i]); \
        } \
    } \
    void quantize_row_##name##_ref(const float *GGML_RESTRICT x, block_##name *GGML_RESTRICT y, int64_t k) { \
        for (int64_t i = 0; i < k / QK_K; i++) { \
            int8_t s[16]; \
            uint8_t q[QK_K]; \
            if (!berth_is_finite(x + i * QK_K, QK_K)) { \
                berth_block_nan(&y[i], sizeof(y[i]), &y[i].d); \
                continue; \
            } \
            y[i].d = plain; \
            pack(s, q, &y[i]); \
        } \
    } \
    BERTH_QUANTIZE_WEIGHTED(name, QK_K)
