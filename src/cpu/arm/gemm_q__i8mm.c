// SPDX-License-Identifier: MIT
// gemm_q__i8mm.c: products of quantised rows with many columns, in tiles of 8 rows by 4 columns, by SMMLA. For rows x0, x1 and
// columns y0, y1, the result vector is {x0 y0, x1 y0, x0 y1, x1 y1}. So a line (panel_q.h) holds numbers of rows as {x0 x1 x0 x1}
// and numbers of columns as {y0 y0 y1 y1}.

#define MR 8
#define NR 4
#define GROUP 2
#define MIN_COLS 4

#include "cpu/arm/panel_q.h"

#define PX (MR / 2) // pairs of rows
#define PY (NR / 2) // pairs of columns

// ---- lines ----

UNPACK_INLINE void x_lines4(char *to, const int32x4_t *v) {
    const int32x4_t lo = vzip1q_s32(v[0], v[1]), hi = vzip2q_s32(v[0], v[1]); // a0 b0 a1 b1
    const int32x4_t line[4] = {vcombine_s32(vget_low_s32(lo), vget_low_s32(lo)),
        vcombine_s32(vget_high_s32(lo), vget_high_s32(lo)), vcombine_s32(vget_low_s32(hi), vget_low_s32(hi)),
        vcombine_s32(vget_high_s32(hi), vget_high_s32(hi))};
    for (int j = 0; j < 4; j++) {
        vst1q_s32((int32_t *) (void *) (to + j * X_LINE), line[j]);
    }
}

UNPACK_INLINE void x_bytes(char *to, const int8x16_t *v) {
    vst1q_s8((int8_t *) to, vcombine_s8(vget_low_s8(v[0]), vget_low_s8(v[1])));
    vst1q_s8((int8_t *) to + X_LINE, vcombine_s8(vget_high_s8(v[0]), vget_high_s8(v[1])));
}

UNPACK_INLINE void y_number(char *line, int c, float v) {
    vst1_f32((float *) (void *) (line + c * 8), vdup_n_f32(v));
}

// ---- the product ----

// t: products of n_steps * 8 elements.
UNPACK_INLINE void multiply(int32x4_t t[PX][PY], const char *x, const char *y, int n_steps) {
    for (int p = 0; p < PX; p++) {
        for (int q = 0; q < PY; q++) {
            t[p][q] = zeros();
        }
    }
    for (int j = 0; j < n_steps; j++) {
        int8x16_t b[PY];
        for (int q = 0; q < PY; q++) {
            b[q] = s8_at(y + j * Y_LINE + q * 16);
        }
        for (int p = 0; p < PX; p++) {
            const int8x16_t a = s8_at(x + j * X_LINE + p * 16);
            for (int q = 0; q < PY; q++) {
                t[p][q] = vmmlaq_s32(t[p][q], b[q], a);
            }
        }
    }
}

UNPACK_INLINE void store(float32x4_t sum[PX][PY], float *s, int64_t ld_s, int nx, int ny) {
    float tile[NR][MR];
    for (int p = 0; p < PX; p++) {
        for (int q = 0; q < PY; q++) {
            vst1_f32(&tile[2 * q][2 * p], vget_low_f32(sum[p][q]));
            vst1_f32(&tile[2 * q + 1][2 * p], vget_high_f32(sum[p][q]));
        }
    }
    store_tile(tile, s, ld_s, nx, ny);
}

UNPACK_INLINE void run_32(int64_t n, float *s, int64_t ld_s, const char *x, int nx, const char *y, int ny, const bool has_min) {
    const int lines = has_min ? 2 : 1;
    float32x4_t sum[PX][PY];
    int32x4_t t[PX][PY];
    for (int p = 0; p < PX; p++) {
        for (int q = 0; q < PY; q++) {
            sum[p][q] = vdupq_n_f32(0.0f);
        }
    }
    for (int64_t i = 0; i < n / 32; i++, x += (lines + LINES(32)) * X_LINE, y += (lines + LINES(32)) * Y_LINE) {
        multiply(t, x + lines * X_LINE, y + lines * Y_LINE, LINES(32));
        for (int p = 0; p < PX; p++) {
            for (int q = 0; q < PY; q++) {
                const float32x4_t d = vmulq_f32(f32_at(x + p * 16), f32_at(y + q * 16));
                sum[p][q] = vfmaq_f32(sum[p][q], vcvtq_f32_s32(t[p][q]), d);
                if (has_min) {
                    sum[p][q] = vfmaq_f32(sum[p][q], f32_at(x + X_LINE + p * 16), f32_at(y + Y_LINE + q * 16));
                }
            }
        }
    }
    store(sum, s, ld_s, nx, ny);
}

UNPACK_INLINE void run_256(
    int64_t n, float *s, int64_t ld_s, const char *x, int nx, const char *y, int ny, const int n_runs, const bool has_min) {
    const int steps = LINES(QK_K) / n_runs, x_head = 1 + (has_min ? 2 : 1) * n_runs, y_head = 1 + (has_min ? n_runs : 0);
    float32x4_t sum[PX][PY];
    int32x4_t t[PX][PY], block_sum[PX][PY];
    for (int p = 0; p < PX; p++) {
        for (int q = 0; q < PY; q++) {
            sum[p][q] = vdupq_n_f32(0.0f);
        }
    }
    for (int64_t i = 0; i < n / QK_K; i++, x += (x_head + LINES(QK_K)) * X_LINE, y += (y_head + LINES(QK_K)) * Y_LINE) {
        for (int p = 0; p < PX; p++) {
            for (int q = 0; q < PY; q++) {
                block_sum[p][q] = vdupq_n_s32(0);
            }
        }
        const char *scales = x + X_LINE, *mins = scales + n_runs * X_LINE, *sums = y + Y_LINE;
        const char *xq = x + x_head * X_LINE, *yq = y + y_head * Y_LINE;
        for (int r = 0; r < n_runs; r++, scales += X_LINE, xq += steps * X_LINE, yq += steps * Y_LINE) {
            multiply(t, xq, yq, steps);
            for (int p = 0; p < PX; p++) {
                const int32x4_t scale = s32_at(scales + p * 16);
                for (int q = 0; q < PY; q++) {
                    block_sum[p][q] = vmlaq_s32(block_sum[p][q], t[p][q], scale);
                    if (has_min) {
                        sum[p][q] = vfmaq_f32(sum[p][q], f32_at(mins + r * X_LINE + p * 16), f32_at(sums + r * Y_LINE + q * 16));
                    }
                }
            }
        }
        for (int p = 0; p < PX; p++) {
            for (int q = 0; q < PY; q++) {
                const float32x4_t d = vmulq_f32(f32_at(x + p * 16), f32_at(y + q * 16));
                sum[p][q] = vfmaq_f32(sum[p][q], vcvtq_f32_s32(block_sum[p][q]), d);
            }
        }
    }
    store(sum, s, ld_s, nx, ny);
}

GEMM_Q_TIER(void cpu_tier_i8mm_gemm_q)
