// SPDX-License-Identifier: MIT
// gemm_bf16__bf16.c: kernels for bfloat16 rows. Dot products use BFDOT. Products with many columns use BFMMLA, in tiles of 8 by 8.
// BFMMLA multiplies 4 elements of 2 rows with 4 elements of 2 columns and adds the 4 sums in f32. A panel is a list of steps of 4
// elements. A step holds, for each pair of rows (or columns), 4 elements of each. The last step is padded with zeros.

#include "cpu/kernels.h"

#include "quant/half.h"

#include <arm_neon.h>
#include <string.h>

#define MR 8
#define NR 8

static bfloat16x8_t bf16_at(const uint16_t *at) {
    return vreinterpretq_bf16_u16(vld1q_u16(at));
}

// ---- dot products ----

// Memory limits the speed, so rows are processed one at a time, which reads memory sequentially.
static void vec_dot__bf16(CPU_DOT_ARGS) {
    const uint16_t *x = vx, *y = vy;
    float32x4_t a[8];
    for (int j = 0; j < 8; j++) {
        a[j] = vdupq_n_f32(0.0f);
    }
    int i = 0;
    for (; i + 64 <= n; i += 64) {
        for (int j = 0; j < 8; j++) {
            a[j] = vbfdotq_f32(a[j], bf16_at(x + i + 8 * j), bf16_at(y + i + 8 * j));
        }
    }
    for (; i + 8 <= n; i += 8) {
        a[0] = vbfdotq_f32(a[0], bf16_at(x + i), bf16_at(y + i));
    }
    const float32x4_t lo = vaddq_f32(vaddq_f32(a[0], a[1]), vaddq_f32(a[2], a[3]));
    const float32x4_t hi = vaddq_f32(vaddq_f32(a[4], a[5]), vaddq_f32(a[6], a[7]));
    float sum = vaddvq_f32(vaddq_f32(lo, hi));
    for (; i < n; i++) {
        sum += berth_bf16_to_float(x[i]) * berth_bf16_to_float(y[i]);
    }
    *s = sum;
}

// ---- many columns ----

static void pack_x__bf16(int64_t n, void *panel, const void *x, size_t bx, int nx) {
    for (int r = 0; r < MR; r++) {
        const uint16_t *row = (const void *) ((const char *) x + (r < nx ? (size_t) r * bx : 0));
        uint16_t *to = (uint16_t *) panel + r * 4;
        int64_t i = 0;
        for (; i + 4 <= n; i += 4, to += MR * 4) {
            vst1_u16(to, vld1_u16(row + i));
        }
        if (i < n) {
            memset(to, 0, 4 * sizeof *to);
            memcpy(to, row + i, (size_t) (n - i) * sizeof *to);
        }
    }
}

static void pack_y__bf16(CPU_TABLE, int64_t n, void *panel, const float *const *y, int ny) {
    for (int r = 0; r < NR; r++) {
        const float *row = y[r < ny ? r : 0];
        uint16_t *to = (uint16_t *) panel + r * 4;
        int64_t i = 0;
        for (; i + 4 <= n; i += 4, to += NR * 4) {
            vst1_u16(to, vreinterpret_u16_bf16(vcvt_bf16_f32(vld1q_f32(row + i))));
        }
        if (i < n) {
            float last[4] = {0};
            memcpy(last, row + i, (size_t) (n - i) * sizeof *last);
            vst1_u16(to, vreinterpret_u16_bf16(vcvt_bf16_f32(vld1q_f32(last))));
        }
    }
}

#define PAIRS(X) \
    X(0, 0) \
    X(0, 1) X(0, 2) X(0, 3) X(1, 0) X(1, 1) X(1, 2) X(1, 3) X(2, 0) X(2, 1) X(2, 2) X(2, 3) X(3, 0) X(3, 1) X(3, 2) X(3, 3)
#define ZERO(p, q) float32x4_t a##p##q = vdupq_n_f32(0.0f);
// The lanes of a##p##q: {row 0 column 0, row 1 column 0, row 0 column 1, row 1 column 1} of row pair p and column pair q.
#define STEP(p, q) a##p##q = vbfmmlaq_f32(a##p##q, y##q, x##p);
#define STORE(p, q) \
    vst1_f32(&tile[2 * q][2 * p], vget_low_f32(a##p##q)); \
    vst1_f32(&tile[2 * q + 1][2 * p], vget_high_f32(a##p##q));

static void run__bf16(CPU_GEMM_ARGS) {
    const uint16_t *x = vx, *y = vy;
    PAIRS(ZERO)
    for (int64_t i = 0; i < n; i += 4, x += MR * 4, y += NR * 4) {
        const bfloat16x8_t x0 = bf16_at(x), x1 = bf16_at(x + 8), x2 = bf16_at(x + 16), x3 = bf16_at(x + 24);
        const bfloat16x8_t y0 = bf16_at(y), y1 = bf16_at(y + 8), y2 = bf16_at(y + 16), y3 = bf16_at(y + 24);
        PAIRS(STEP)
    }
    float tile[NR][MR];
    PAIRS(STORE)
    for (int c = 0; c < ny; c++) {
        memcpy(s + c * ld_s, tile[c], (size_t) nx * sizeof(float));
    }
}

void cpu_tier_bf16_gemm_bf16(struct cpu_kernels *k) {
    k->traits[GGML_TYPE_BF16].vec_dot = vec_dot__bf16;
    k->gemm[GGML_TYPE_BF16] = (struct cpu_gemm){.pack_x = pack_x__bf16,
        .pack_y = pack_y__bf16,
        .run = run__bf16,
        .mr = MR,
        .nr = NR,
        .min_cols = 4,
        .step = 4,
        .x_size = MR * 4 * sizeof(uint16_t),
        .y_size = NR * 4 * sizeof(uint16_t)};
}
