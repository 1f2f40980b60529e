// SPDX-License-Identifier: MIT
// gemv_f16__fp16.c: one or a few columns times f16 rows, at the speed of memory. A conversion of four f16 values takes one of two
// pipes for two cycles. So eight products are added in f16, and only the sum is converted.

#include "base/min.h"
#include "cpu/arm/gemv_f16.h"
#include "cpu/kernels.h"

#include <string.h>

#define AHEAD 1024     // prefetch distance in bytes
#define LARGEST 128.0f // limit of the scaled elements of a column
#define MAX_COLS 4     // columns per pass

static void pack__fp16(CPU_TABLE, int64_t n, void *panel, const float *y) {
    for (struct segment *to = panel; n > 0; n -= STEP, y += STEP, to++) {
        const int64_t m = min_i64(n, STEP);
        const float scale = scale_for(column_max(m, y), LARGEST);
        to->unscale = 1.0f / scale;
        int64_t i = 0;
        for (; i + 8 <= m; i += 8) {
            vst1q_u16(to->y + i, f16x8_from_f32(y + i, scale));
        }
        if (i < m) {
            float rest[8] = {0};
            memcpy(rest, y + i, (size_t) (m - i) * sizeof *y);
            vst1q_u16(to->y + i, f16x8_from_f32(rest, scale));
            i += 8;
        }
        memset(to->y + i, 0, (size_t) (STEP - i) * sizeof *to->y);
    }
}

// 8 f16 sums of four products each.
static inline __attribute__((always_inline)) float16x8_t product4(const uint16x8x4_t x, const uint16_t *y) {
    const uint16x8x4_t v = vld1q_u16_x4(y); // no two loads hit the same cache bank
    float16x8_t t = vmulq_f16(vreinterpretq_f16_u16(x.val[0]), vreinterpretq_f16_u16(v.val[0]));
    t = vfmaq_f16(t, vreinterpretq_f16_u16(x.val[1]), vreinterpretq_f16_u16(v.val[1]));
    t = vfmaq_f16(t, vreinterpretq_f16_u16(x.val[2]), vreinterpretq_f16_u16(v.val[2]));
    return vfmaq_f16(t, vreinterpretq_f16_u16(x.val[3]), vreinterpretq_f16_u16(v.val[3]));
}

static inline __attribute__((always_inline)) void add64(
    float32x4_t *lo, float32x4_t *hi, const uint16_t *x, const struct segment *const *y, int64_t k, int64_t i, const int nc) {
    float16x8_t t[MAX_COLS];
    const uint16x8x4_t x0 = vld1q_u16_x4(x);
    for (int c = 0; c < nc; c++) {
        t[c] = product4(x0, y[c][k].y + i);
    }
    const uint16x8x4_t x1 = vld1q_u16_x4(x + 32);
    for (int c = 0; c < nc; c++) {
        t[c] = vaddq_f16(t[c], product4(x1, y[c][k].y + i + 32));
        lo[c] = vaddq_f32(lo[c], vcvt_f32_f16(vget_low_f16(t[c])));
        hi[c] = vaddq_f32(hi[c], vcvt_high_f32_f16(t[c]));
    }
}

// nc <= MAX_COLS. Each part of the row is loaded once for all columns.
static inline __attribute__((always_inline)) void row__fp16(
    int64_t n, const uint16_t *x, const struct segment *const *y, const int nc, float *s) {
    float32x4_t sum[MAX_COLS];
    for (int c = 0; c < nc; c++) {
        sum[c] = vdupq_n_f32(0.0f);
    }
    for (int64_t k = 0; n > 0; n -= STEP, x += STEP, k++) {
        const int64_t m = min_i64(n, STEP);
        float32x4_t lo[MAX_COLS], hi[MAX_COLS];
        for (int c = 0; c < nc; c++) {
            lo[c] = hi[c] = vdupq_n_f32(0.0f);
        }
        int64_t i = 0;
        for (; i + 64 <= m; i += 64) {
            __builtin_prefetch((const char *) (x + i) + AHEAD, 0, 3);
            __builtin_prefetch((const char *) (x + i) + AHEAD + 64, 0, 3);
            add64(lo, hi, x + i, y, k, i, nc);
        }
        if (i < m) {
            uint16_t rest[64] = {0};
            memcpy(rest, x + i, (size_t) (m - i) * sizeof *x);
            add64(lo, hi, rest, y, k, i, nc);
        }
        for (int c = 0; c < nc; c++) {
            sum[c] = vfmaq_n_f32(sum[c], vaddq_f32(lo[c], hi[c]), y[c][k].unscale);
        }
    }
    for (int c = 0; c < nc; c++) {
        s[c] = vaddvq_f32(sum[c]);
    }
}

static void gemv__fp16(int64_t n, float *s, const void *vx, size_t bx, int nx, const void *vy) {
    const struct segment *y = vy;
    for (int r = 0; r < nx; r++) {
        const uint16_t *x = (const void *) ((const char *) vx + (size_t) r * bx);
        row__fp16(n, x, &y, 1, s + r);
        if (!isfinite(s[r])) {
            s[r] = row_recompute_f32(n, x, y);
        }
    }
}

static void row_cols(int64_t n, const uint16_t *x, const struct segment *const *y, int nc, float *s) {
    switch (nc) {
        case 1: row__fp16(n, x, y, 1, s); break;
        case 2: row__fp16(n, x, y, 2, s); break;
        case 3: row__fp16(n, x, y, 3, s); break;
        default: row__fp16(n, x, y, 4, s); break;
    }
}

static void gemv_cols__fp16(int64_t n, float *const *s, const void *vx, size_t bx, int nx, const void *const *vy, int ny) {
    const struct segment *y[CPU_GEMV_COLS];
    for (int c = 0; c < ny; c++) {
        y[c] = vy[c];
    }
    const int n_parts = (ny + MAX_COLS - 1) / MAX_COLS, most = (ny + n_parts - 1) / n_parts;
    for (int r = 0; r < nx; r++) {
        const uint16_t *x = (const void *) ((const char *) vx + (size_t) r * bx);
        float out[CPU_GEMV_COLS];
        for (int c = 0; c < ny; c += most) {
            row_cols(n, x, y + c, min_int(ny - c, most), out + c);
        }
        for (int c = 0; c < ny; c++) {
            s[c][r] = isfinite(out[c]) ? out[c] : row_recompute_f32(n, x, y[c]);
        }
    }
}

void cpu_tier_fp16_gemv_f16(struct cpu_kernels *k) {
    k->gemv[GGML_TYPE_F16] = (struct cpu_gemv){
        .pack_y = pack__fp16, .run = gemv__fp16, .run_cols = gemv_cols__fp16, .step = STEP, .y_size = sizeof(struct segment)};
}
