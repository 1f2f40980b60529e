// SPDX-License-Identifier: MIT
// gemm_f16__fp16.c: products of rows of halves with many columns, 16 by 8, multiplied and added in halves, eight at a time.
// Halves would lose digits and overflow over a long row, so
//   - every column is scaled by a power of two, which costs no digit, to a largest element between 4 and 8;
//   - sums of 192 products, which then stay below 2^16 unless a row has elements above 40, are added up in floats. A tile with
//     sums that are not finite is computed again as floats.
// What is left of the error is that of rounding products and short sums to 11 bits: a fourteenth of what adding up whole rows in
// halves gives. A panel: [of y: what the sums are to be multiplied with: a float a column] [of x: 8 elements of each row; of y:
// an element of each column; and zeros up to a whole step]

#include "cpu/arm/gemm_f16.h"
#include "cpu/arm/halves.h"
#include "cpu/arm/tiers.h"

#include <string.h>

#define LARGEST 8.0f
#define ROWS_MAX_COLS 64 // more are faster in panels
#define PACK_AHEAD 1024  // bytes of a row asked for before they are packed

// ---- panels ----

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

// Eight elements of each row, then the next eight. Rows that are missing are copies of the first; what they give is not stored.
static void pack_x__fp16(int64_t n, void *panel, const void *x, size_t bx, int nx) {
    for (int h = 0; h < MR; h += 4) { // four rows are a line of the cache of the panel
        uint16_t *to = (uint16_t *) panel + h * 8;
        const uint16_t *rows[4];
        for (int r = 0; r < 4; r++) {
            rows[r] = (const void *) ((const char *) x + (h + r < nx ? (size_t) (h + r) * bx : 0));
        }
        int64_t i = 0;
        for (; i + 32 <= n; i += 32, to += 32 * MR) {
            for (int r = 0; r < 4; r++) {
                __builtin_prefetch((const char *) (rows[r] + i) + PACK_AHEAD, 0, 3);
                for (int j = 0; j < 4; j++) {
                    vst1q_u16(to + j * 8 * MR + r * 8, vld1q_u16(rows[r] + i + 8 * j));
                }
            }
        }
        for (int64_t end = (n + STEP - 1) / STEP * STEP; i < end; i += 8, to += 8 * MR) {
            for (int r = 0; r < 4; r++) {
                uint16_t v[8] = {0};
                if (i < n) {
                    memcpy(v, rows[r] + i, (size_t) (n - i < 8 ? n - i : 8) * sizeof *v);
                }
                memcpy(to + r * 8, v, sizeof v);
            }
        }
    }
}

static void pack_y__fp16(CPU_TABLE, int64_t n, void *panel, const float *const *y, int ny) {
    float *back = panel, scale[NR];
    const float *rows[NR];
    for (int c = 0; c < NR; c++) {
        rows[c]  = y[c < ny ? c : 0];
        scale[c] = scale_for(column_max(n, rows[c]), LARGEST);
        back[c]  = 1.0f / scale[c];
    }
    uint16_t *to = (uint16_t *) (void *) (back + NR);
    int64_t i    = 0;
    for (; i + 8 <= n; i += 8, to += 8 * NR) {
        uint16x8_t v[8];
        for (int c = 0; c < NR; c++) {
            v[c] = halves_of(rows[c] + i, scale[c]);
        }
        transpose8(v);
        for (int j = 0; j < 8; j++) {
            vst1q_u16(to + j * NR, v[j]);
        }
    }
    for (int64_t end = (n + STEP - 1) / STEP * STEP; i < end; i++, to += NR) {
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

GEMM_F16_RUN(fp16)

void cpu_tier_fp16_gemm(struct cpu_kernels *k) {
    k->gemm[GGML_TYPE_F16] = (struct cpu_gemm){.pack_x = pack_x__fp16,
        .pack_y                                        = pack_y__fp16,
        .run                                           = run__fp16,
        .mr                                            = MR,
        .nr                                            = NR,
        .min_cols                                      = 6,
        .step                                          = STEP,
        .x_size                                        = STEP * MR * sizeof(uint16_t),
        .y_size                                        = STEP * NR * sizeof(uint16_t),
        .y_head                                        = NR * sizeof(float),
        .rows                                          = {run_rows__fp16, QUAD, ROWS_MAX_COLS}};
}
