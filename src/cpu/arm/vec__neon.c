// SPDX-License-Identifier: MIT
// vec__neon.c: row functions on floats. exp has an error of at most 2 units in the last place, also for subnormal results,
// infinities and NaN.

#include "base/min.h"
#include "cpu/kernels.h"

#include <arm_neon.h>
#include <math.h>

#define INLINE static inline __attribute__((always_inline))

#define V float32x4_t
#define V_LANES 4
#define V_LOAD vld1q_f32
#define V_STORE vst1q_f32
#define V_ALL vdupq_n_f32
#define V_FMA(a, b, c) vfmaq_f32(c, a, b)
#define V_WHERE_NOT_0(v, weight) vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(v), vceqzq_f32(weight)))
#include "cpu/mix.h"

static void row_rotate__neon(int64_t n, float *z, const float *x, const float *c, const float *s) {
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        const float32x4_t v = vld1q_f32(x + i);
        vst1q_f32(z + i, vfmaq_f32(vmulq_f32(vrev64q_f32(v), vld1q_f32(s + i)), v, vld1q_f32(c + i)));
    }
    if (i + 2 <= n) {
        const float32x2_t v = vld1_f32(x + i);
        vst1_f32(z + i, vfma_f32(vmul_f32(vrev64_f32(v), vld1_f32(s + i)), v, vld1_f32(c + i)));
    }
}

// ---- the exponential ----

struct parts {
    float32x4_t p; // exp(r)
    int32x4_t k;
};

// exp(x) = 2^k exp(r), |r| <= ln 2 / 2, for |x| <= 104. Taylor series of degree 7, reduced to degree 6 by Chebyshev economization.
// Truncation error: below 2^-26.
INLINE struct parts parts4(float32x4_t x) {
    const float32x4_t z = vfmaq_n_f32(vdupq_n_f32(0x1.8p23f), x, 0x1.715476p+0f); // rounds to an integer in the low bits
    const float32x4_t k = vsubq_f32(z, vdupq_n_f32(0x1.8p23f));
    const float32x4_t r = vfmsq_n_f32(vfmsq_n_f32(x, k, 0x1.62e4p-1f), k, 0x1.7f7d1cp-20f);
    float32x4_t p = vfmaq_n_f32(vdupq_n_f32(0.00837503932f), r, 1.0f / 720);
    p = vfmaq_f32(vdupq_n_f32(1.0f / 24), p, r);
    p = vfmaq_f32(vdupq_n_f32(0.166664162f), p, r);
    p = vfmaq_f32(vdupq_n_f32(0.5f), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f), p, r);
    return (struct parts){p, vsubq_s32(vreinterpretq_s32_f32(z), vreinterpretq_s32_f32(vdupq_n_f32(0x1.8p23f)))};
}

// Returns 2^k for -126 <= k <= 127, and infinity for k = 128. If x is NaN, k and the result are arbitrary.
INLINE float32x4_t power2(int32x4_t k) {
    const uint32x4_t one = vreinterpretq_u32_f32(vdupq_n_f32(1.0f));
    return vreinterpretq_f32_u32(vaddq_u32(vreinterpretq_u32_s32(vshlq_n_s32(k, 23)), one));
}

// 2^k may not be a normal float, so two factors 2^(k / 2) and 2^(k - k / 2) are used.
INLINE float32x4_t exp4(float32x4_t x) {
    x = vminq_f32(vmaxq_f32(x, vdupq_n_f32(-104.0f)), vdupq_n_f32(89.0f)); // beyond, exp is 0 or infinity
    const struct parts e = parts4(x);
    const int32x4_t half = vshrq_n_s32(e.k, 1);
    return vmulq_f32(vmulq_f32(e.p, power2(half)), power2(vsubq_s32(e.k, half)));
}

// Returns 1 + exp(-x). If exp(-x) is above 2^127.5, the result may be infinity. The rounding constant is larger by 127 than in
// parts4, so that the low bits of z are the biased exponent of 2^k.
INLINE float32x4_t one_and_exp4(float32x4_t x) {
    x = vminq_f32(vmaxq_f32(x, vdupq_n_f32(-89.0f)), vdupq_n_f32(87.0f));
    const float32x4_t z = vfmsq_n_f32(vdupq_n_f32(0x1.8p23f + 127), x, 0x1.715476p+0f);
    const float32x4_t k = vsubq_f32(z, vdupq_n_f32(0x1.8p23f + 127));
    const float32x4_t u = vfmaq_n_f32(vfmaq_n_f32(x, k, 0x1.62e4p-1f), k, 0x1.7f7d1cp-20f);
    float32x4_t p = vfmaq_n_f32(vdupq_n_f32(-0.00837503932f), u, 1.0f / 720);
    p = vfmaq_f32(vdupq_n_f32(1.0f / 24), p, u);
    p = vfmaq_f32(vdupq_n_f32(-0.166664162f), p, u);
    p = vfmaq_f32(vdupq_n_f32(0.5f), p, u);
    p = vfmaq_f32(vdupq_n_f32(-1.0f), p, u);
    p = vfmaq_f32(vdupq_n_f32(1.0f), p, u);
    return vfmaq_f32(vdupq_n_f32(1.0f), p, vreinterpretq_f32_s32(vshlq_n_s32(vreinterpretq_s32_f32(z), 23)));
}

INLINE float32x4_t sigmoid4(float32x4_t x) {
    return vdivq_f32(vdupq_n_f32(1.0f), one_and_exp4(x));
}

INLINE float32x4_t silu4(float32x4_t x) {
    return vdivq_f32(x, one_and_exp4(x));
}

// Rounds to f16 and back; ukr/vec.c explains why.
INLINE float32x4_t round_f16_4(float32x4_t x) {
    return vcvt_f32_f16(vcvt_f16_f32(x));
}

// Uses 0.5 (1 + tanh u) = 1 / (1 + exp(-2u)). For |x| >= 10 the result is 0 or x.
INLINE float32x4_t gelu4(float32x4_t x) {
    const float32x4_t v = round_f16_4(x);
    const float32x4_t u = vmulq_f32(
        vmulq_n_f32(v, 2 * 0.79788456080286535587989211986876f), vfmaq_n_f32(vdupq_n_f32(1.0f), vmulq_f32(v, v), 0.044715f));
    const float32x4_t y = round_f16_4(vdivq_f32(v, one_and_exp4(u)));
    const float32x4_t z = vbslq_f32(vcleq_f32(x, vdupq_n_f32(-10.0f)), vdupq_n_f32(0.0f), y);
    return vbslq_f32(vcgeq_f32(x, vdupq_n_f32(10.0f)), x, z);
}

INLINE float32x4_t gelu_quick4(float32x4_t x) {
    const float32x4_t v = round_f16_4(x);
    return round_f16_4(vmulq_f32(v, sigmoid4(vmulq_n_f32(v, 1.702f))));
}

INLINE float32x4_t load_some(const float *x, int64_t n) {
    float v[4] = {0};
    for (int64_t i = 0; i < n; i++) {
        v[i] = x[i];
    }
    return vld1q_f32(v);
}

INLINE void store_some(float *y, int64_t n, float32x4_t from) {
    float v[4];
    vst1q_f32(v, from);
    for (int64_t i = 0; i < n; i++) {
        y[i] = v[i];
    }
}

#define ROW(name) \
    static void row_##name##__neon(int64_t n, float *y, const float *x) { \
        int64_t i = 0; \
        for (; i + 16 <= n; i += 16) { /* four independent chains hide the latency of the polynomial */ \
            const float32x4_t a = name##4(vld1q_f32(x + i)), b = name##4(vld1q_f32(x + i + 4)); \
            const float32x4_t c = name##4(vld1q_f32(x + i + 8)), d = name##4(vld1q_f32(x + i + 12)); \
            vst1q_f32(y + i, a); \
            vst1q_f32(y + i + 4, b); \
            vst1q_f32(y + i + 8, c); \
            vst1q_f32(y + i + 12, d); \
        } \
        for (; i < n; i += 4) { \
            const int64_t m = n - i < 4 ? n - i : 4; \
            store_some(y + i, m, name##4(load_some(x + i, m))); \
        } \
    }
static void row_silu_mul__neon(int64_t n, float *z, const float *x, const float *y) {
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const float32x4_t a = silu4(vld1q_f32(x + i)), b = silu4(vld1q_f32(x + i + 4));
        const float32x4_t c = vld1q_f32(y + i), d = vld1q_f32(y + i + 4);
        vst1q_f32(z + i, vmulq_f32(a, c));
        vst1q_f32(z + i + 4, vmulq_f32(b, d));
    }
    for (; i < n; i += 4) {
        const int64_t m = min_i64(n - i, 4);
        store_some(z + i, m, vmulq_f32(silu4(load_some(x + i, m)), load_some(y + i, m)));
    }
}

ROW(exp)
ROW(sigmoid)
ROW(silu)
ROW(gelu)
ROW(gelu_quick)

static float row_max__neon(int64_t n, const float *x) {
    float32x4_t a = vdupq_n_f32(-INFINITY), b = a, c = a, d = a;
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) { // vmaxnm ignores NaN
        a = vmaxnmq_f32(a, vld1q_f32(x + i));
        b = vmaxnmq_f32(b, vld1q_f32(x + i + 4));
        c = vmaxnmq_f32(c, vld1q_f32(x + i + 8));
        d = vmaxnmq_f32(d, vld1q_f32(x + i + 12));
    }
    float max = vmaxnmvq_f32(vmaxnmq_f32(vmaxnmq_f32(a, b), vmaxnmq_f32(c, d)));
    for (; i < n; i++) {
        max = max_f32(x[i], max);
    }
    return max;
}

// Sums of 256 elements are f32; the total is f64.
static double row_exp_sum__neon(int64_t n, float *y, const float *x, float max) {
    const float32x4_t m = vdupq_n_f32(max);
    double sum = 0;
    int64_t i = 0;
    while (i + 8 <= n) {
        const int64_t end = n - i < 256 ? i + (n - i) / 8 * 8 : i + 256;
        float32x4_t part0 = vdupq_n_f32(0.0f), part1 = part0;
        for (; i < end; i += 8) {
            const float32x4_t a = exp4(vsubq_f32(vld1q_f32(x + i), m)), b = exp4(vsubq_f32(vld1q_f32(x + i + 4), m));
            vst1q_f32(y + i, a);
            vst1q_f32(y + i + 4, b);
            part0 = vaddq_f32(part0, a);
            part1 = vaddq_f32(part1, b);
        }
        sum += (double) vaddvq_f32(vaddq_f32(part0, part1));
    }
    for (; i < n; i++) {
        y[i] = vgetq_lane_f32(exp4(vdupq_n_f32(x[i] - max)), 0);
        sum += (double) y[i];
    }
    return sum;
}

void cpu_tier_neon_vec(struct cpu_kernels *k) {
    k->exp = row_exp__neon;
    k->sigmoid = row_sigmoid__neon;
    k->silu = row_silu__neon;
    k->silu_mul = row_silu_mul__neon;
    k->gelu = row_gelu__neon;
    k->gelu_quick = row_gelu_quick__neon;
    k->max = row_max__neon;
    k->exp_sum = row_exp_sum__neon;
    k->mix = rows_mix;
    k->rotate = row_rotate__neon;
}
