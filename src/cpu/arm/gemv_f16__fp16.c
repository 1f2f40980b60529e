// SPDX-License-Identifier: MIT
// gemv_f16__fp16.c: one column times rows of halves, as fast as memory brings them. Widening takes one of two pipes two turns for
// four halves, so that it is done after eight products have been added as halves, in two parts, and not before.
//
// The column comes in runs of STEP elements: {what their sums are to be multiplied with} {STEP halves, zeros after its end}.
// Rows come as they lie. One whose products are too much for a half has sums that are not finite: it is multiplied again as
// floats.

#include "cpu/arm/halves.h"
#include "cpu/arm/tiers.h"

#include <string.h>

#define STEP 256
#define AHEAD 1024 // bytes asked for before they are read
#define LARGEST 128.0f

struct run {
    float back, pad[3]; // aligned as vectors are
    uint16_t y[STEP];
};

static void pack__fp16(CPU_TABLE, int64_t n, void *panel, const float *y) {
    for (struct run *to = panel; n > 0; n -= STEP, y += STEP, to++) {
        const int64_t m   = n < STEP ? n : STEP;
        const float scale = scale_for(column_max(m, y), LARGEST);
        to->back          = 1.0f / scale;
        int64_t i         = 0;
        for (; i + 8 <= m; i += 8) {
            vst1q_u16(to->y + i, halves_of(y + i, scale));
        }
        if (i < m) {
            float rest[8] = {0};
            memcpy(rest, y + i, (size_t) (m - i) * sizeof *y);
            vst1q_u16(to->y + i, halves_of(rest, scale));
            i += 8;
        }
        memset(to->y + i, 0, (size_t) (STEP - i) * sizeof *to->y);
    }
}

// Four times eight products, added as halves.
static inline __attribute__((always_inline)) float16x8_t product4(const uint16_t *x, const uint16_t *y) {
    float16x8_t t = vmulq_f16(f16_at(x), f16_at(y));
    t             = vfmaq_f16(t, f16_at(x + 8), f16_at(y + 8));
    t             = vfmaq_f16(t, f16_at(x + 16), f16_at(y + 16));
    return vfmaq_f16(t, f16_at(x + 24), f16_at(y + 24));
}

// Products of 64 elements, added to floats.
static inline __attribute__((always_inline)) void add64(float32x4_t *lo, float32x4_t *hi, const uint16_t *x, const uint16_t *y) {
    const float16x8_t t = vaddq_f16(product4(x, y), product4(x + 32, y + 32));
    *lo                 = vaddq_f32(*lo, vcvt_f32_f16(vget_low_f16(t)));
    *hi                 = vaddq_f32(*hi, vcvt_high_f32_f16(t));
}

static float row__fp16(int64_t n, const uint16_t *x, const struct run *y) {
    float32x4_t sum = vdupq_n_f32(0.0f);
    for (; n > 0; n -= STEP, x += STEP, y++) {
        const int64_t m = n < STEP ? n : STEP;
        float32x4_t lo = vdupq_n_f32(0.0f), hi = lo;
        int64_t i = 0;
        for (; i + 64 <= m; i += 64) {
            __builtin_prefetch((const char *) (x + i) + AHEAD, 0, 3);
            __builtin_prefetch((const char *) (x + i) + AHEAD + 64, 0, 3);
            add64(&lo, &hi, x + i, y->y + i);
        }
        if (i < m) {
            uint16_t rest[64] = {0};
            memcpy(rest, x + i, (size_t) (m - i) * sizeof *x);
            add64(&lo, &hi, rest, y->y + i);
        }
        sum = vfmaq_n_f32(sum, vaddq_f32(lo, hi), y->back);
    }
    return vaddvq_f32(sum);
}

static float row_as_floats(int64_t n, const uint16_t *x, const struct run *y) {
    float sum = 0.0f;
    for (; n > 0; n -= STEP, x += STEP, y++) {
        float part = 0.0f;
        for (int64_t i = 0; i < n && i < STEP; i++) {
            const float32x4_t v = vcvt_f32_f16(vreinterpret_f16_u16((uint16x4_t){x[i], y->y[i], 0, 0}));
            part                = fmaf(vgetq_lane_f32(v, 0), vgetq_lane_f32(v, 1) * y->back, part);
        }
        sum += part;
    }
    return sum;
}

static void gemv__fp16(int64_t n, float *s, const void *vx, size_t bx, int nx, const void *y) {
    for (int r = 0; r < nx; r++) {
        const uint16_t *x = (const void *) ((const char *) vx + (size_t) r * bx);
        s[r]              = row__fp16(n, x, y);
        if (!isfinite(s[r])) {
            s[r] = row_as_floats(n, x, y);
        }
    }
}

void cpu_tier_fp16_gemv(struct cpu_kernels *k) {
    k->gemv[GGML_TYPE_F16] = (struct cpu_gemv){pack__fp16, gemv__fp16, STEP, sizeof(struct run)};
}
