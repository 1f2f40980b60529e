// SPDX-License-Identifier: MIT
// gemm_f16__fp16.c: products of rows of halves with many columns, 16 by 8, multiplied and added in halves, eight at a time.
// Halves would lose digits and overflow over a long row, so
//   - every row and every column is scaled by a power of two, which costs no digit, to a largest element between 16 and 32;
//   - sums of CHUNK products, which then stay below 2^15, are added up in floats.
// What is left of the error is that of rounding a product and a short sum to 11 bits: about that of rounding the columns to
// halves. A panel: [what the sums are to be multiplied with: a float a row] [element k of all rows, side by side, and zeros up to
// a whole chunk]

#include "cpu/arm/gemm_f16.h"
#include "cpu/arm/tiers.h"

#include <math.h>
#include <string.h>

#define LARGEST 32.0f

// The power of two that brings max below LARGEST; 1 if there is nothing to scale.
static float scale_for(float max) {
    if (!(max > 0.0f && max < INFINITY)) {
        return 1.0f;
    }
    int e;
    frexpf(max, &e); // max < 2^e
    return ldexpf(LARGEST, e < -90 ? 90 : -e);
}

// ---- panels ----

// Four at a time: one after the other they would wait for each other.
static float row_max(int64_t n, const uint16_t *x) {
    float16x8_t max[4] = {vdupq_n_f16(0), vdupq_n_f16(0), vdupq_n_f16(0), vdupq_n_f16(0)};
    int64_t i          = 0;
    for (; i + 32 <= n; i += 32) {
        for (int j = 0; j < 4; j++) {
            max[j] = vmaxq_f16(max[j], vabsq_f16(f16_at(x + i + 8 * j)));
        }
    }
    float m = (float) vmaxvq_f16(vmaxq_f16(vmaxq_f16(max[0], max[1]), vmaxq_f16(max[2], max[3])));
    for (; i < n; i++) {
        const float v = fabsf((float) vget_lane_f16(vreinterpret_f16_u16(vdup_n_u16(x[i])), 0));
        m             = v > m ? v : m;
    }
    return m;
}

// 8 rows of 8 halves, element by element.
static void transpose8(uint16x8_t v[8]) {
    uint16x8_t a[8];
    uint32x4_t b[8];
    for (int j = 0; j < 4; j++) {
        a[2 * j]     = vtrn1q_u16(v[2 * j], v[2 * j + 1]);
        a[2 * j + 1] = vtrn2q_u16(v[2 * j], v[2 * j + 1]);
    }
    for (int j = 0; j < 2; j++) {
        for (int u = 0; u < 2; u++) {
            const uint32x4_t lo = vreinterpretq_u32_u16(a[4 * j + u]), hi = vreinterpretq_u32_u16(a[4 * j + 2 + u]);
            b[4 * j + u]     = vtrn1q_u32(lo, hi);
            b[4 * j + 2 + u] = vtrn2q_u32(lo, hi);
        }
    }
    for (int j = 0; j < 4; j++) {
        const uint64x2_t lo = vreinterpretq_u64_u32(b[j]), hi = vreinterpretq_u64_u32(b[j + 4]);
        v[j]     = vreinterpretq_u16_u64(vtrn1q_u64(lo, hi));
        v[j + 4] = vreinterpretq_u16_u64(vtrn2q_u64(lo, hi));
    }
}

// Rows that are missing are copies of the first; what they give is not stored.
static void pack_x__fp16(int64_t n, void *panel, const void *x, size_t bx, int nx) {
    float *back = panel;
    for (int h = 0; h < MR; h += 8) {
        const uint16_t *rows[8];
        float16_t scale[8];
        for (int r = 0; r < 8; r++) {
            rows[r]       = (const void *) ((const char *) x + (h + r < nx ? (size_t) (h + r) * bx : 0));
            const float s = scale_for(row_max(n, rows[r]));
            // a row of subnormals only would want more than a half can hold
            scale[r]    = (float16_t) (s < 32768.0f ? s : 32768.0f);
            back[h + r] = 1.0f / (float) scale[r];
        }
        uint16_t *to = (uint16_t *) (void *) (back + MR) + h;
        int64_t i    = 0;
        // rows a power of two apart fall into the same few lines of the cache: each line is read to its end at once
        for (; i + 32 <= n; i += 32) {
            uint16x8_t v[4][8];
            for (int r = 0; r < 8; r++) {
                for (int j = 0; j < 4; j++) {
                    v[j][r] = vreinterpretq_u16_f16(vmulq_n_f16(f16_at(rows[r] + i + 8 * j), scale[r]));
                }
            }
            for (int j = 0; j < 4; j++) {
                transpose8(v[j]);
                for (int u = 0; u < 8; u++, to += MR) {
                    vst1q_u16(to, v[j][u]);
                }
            }
        }
        for (; i + 8 <= n; i += 8, to += 8 * MR) {
            uint16x8_t v[8];
            for (int r = 0; r < 8; r++) {
                v[r] = vreinterpretq_u16_f16(vmulq_n_f16(f16_at(rows[r] + i), scale[r]));
            }
            transpose8(v);
            for (int j = 0; j < 8; j++) {
                vst1q_u16(to + j * MR, v[j]);
            }
        }
        for (int64_t end = (n + CHUNK - 1) / CHUNK * CHUNK; i < end; i++, to += MR) {
            if (i >= n) {
                memset(to, 0, 8 * sizeof *to);
                continue;
            }
            for (int r = 0; r < 8; r++) {
                const float16_t v = vget_lane_f16(vreinterpret_f16_u16(vdup_n_u16(rows[r][i])), 0) * scale[r];
                memcpy(to + r, &v, sizeof v);
            }
        }
    }
}

static float column_max(int64_t n, const float *y) {
    float32x4_t max[4] = {vdupq_n_f32(0.0f), vdupq_n_f32(0.0f), vdupq_n_f32(0.0f), vdupq_n_f32(0.0f)};
    int64_t i          = 0;
    for (; i + 16 <= n; i += 16) {
        for (int j = 0; j < 4; j++) {
            max[j] = vmaxq_f32(max[j], vabsq_f32(vld1q_f32(y + i + 4 * j)));
        }
    }
    float m = vmaxvq_f32(vmaxq_f32(vmaxq_f32(max[0], max[1]), vmaxq_f32(max[2], max[3])));
    for (; i < n; i++) {
        m = fabsf(y[i]) > m ? fabsf(y[i]) : m;
    }
    return m;
}

static uint16x8_t narrow(const float *y, float scale) {
    return vreinterpretq_u16_f16(
        vcombine_f16(vcvt_f16_f32(vmulq_n_f32(vld1q_f32(y), scale)), vcvt_f16_f32(vmulq_n_f32(vld1q_f32(y + 4), scale))));
}

static void pack_y__fp16(int64_t n, void *panel, const float *const *y, int ny) {
    float *back = panel, scale[NR];
    const float *rows[NR];
    for (int c = 0; c < NR; c++) {
        rows[c]  = y[c < ny ? c : 0];
        scale[c] = scale_for(column_max(n, rows[c]));
        back[c]  = 1.0f / scale[c];
    }
    uint16_t *to = (uint16_t *) (void *) (back + NR);
    int64_t i    = 0;
    for (; i + 8 <= n; i += 8, to += 8 * NR) {
        uint16x8_t v[8];
        for (int c = 0; c < NR; c++) {
            v[c] = narrow(rows[c] + i, scale[c]);
        }
        transpose8(v);
        for (int j = 0; j < 8; j++) {
            vst1q_u16(to + j * NR, v[j]);
        }
    }
    for (int64_t end = (n + CHUNK - 1) / CHUNK * CHUNK; i < end; i++, to += NR) {
        if (i >= n) {
            memset(to, 0, NR * sizeof *to);
            continue;
        }
        for (int c = 0; c < NR; c++) {
            const float16_t v = (float16_t) (rows[c][i] * scale[c]);
            memcpy(to + c, &v, sizeof v);
        }
    }
}

static inline __attribute__((always_inline)) void add(float *to, float16x8_t v) {
    vst1q_f32(to, vaddq_f32(vld1q_f32(to), vcvt_f32_f16(vget_low_f16(v))));
    vst1q_f32(to + 4, vaddq_f32(vld1q_f32(to + 4), vcvt_high_f32_f16(v)));
}

GEMM_F16_RUN(run__fp16)

void cpu_tier_fp16(struct cpu_kernels *k) {
    k->gemm[GGML_TYPE_F16] = (struct cpu_gemm){.pack_x = pack_x__fp16,
        .pack_y                                        = pack_y__fp16,
        .run                                           = run__fp16,
        .mr                                            = MR,
        .nr                                            = NR,
        .min_cols                                      = 16,
        .step                                          = CHUNK,
        .x_size                                        = CHUNK * MR * sizeof(uint16_t),
        .y_size                                        = CHUNK * NR * sizeof(uint16_t),
        .x_head                                        = MR * sizeof(float),
        .y_head                                        = NR * sizeof(float)};
}
