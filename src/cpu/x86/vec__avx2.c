// SPDX-License-Identifier: MIT
// vec__avx2.c: row functions on floats. exp has an error of at most 2 units in the last place, also for subnormal results,
// infinities and NaN.

#include "cpu/kernels.h"
#include "cpu/x86/vector.h"

#include "cpu/mix.h"

// ---- arithmetic ----

#define ROW2(name, op) \
    static void row_##name##__avx2(int64_t n, float *z, const float *x, const float *y) { \
        int64_t i = 0; \
        for (const int64_t head = to_vector(z, n); i < head; i++) { \
            z[i] = x[i] op y[i]; \
        } \
        const bool is_long = n >= FAR_LENGTH; \
        for (; i + 32 <= n; i += 32) { \
            if (is_long) { \
                prefetch_far(x + i, 32); \
                prefetch_far(y + i, 32); \
                prefetch_far(z + i, 32); \
            } \
            for (int j = 0; j < 32; j += 8) { \
                _mm256_storeu_ps(z + i + j, _mm256_##name##_ps(_mm256_loadu_ps(x + i + j), _mm256_loadu_ps(y + i + j))); \
            } \
        } \
        for (; i < n; i++) { \
            z[i] = x[i] op y[i]; \
        } \
    }
ROW2(add, +)
ROW2(sub, -)
ROW2(mul, *)
ROW2(div, /)

static void row_scale__avx2(int64_t n, float *y, const float *x, float s, float b) {
    const __m256 vs = _mm256_set1_ps(s), vb = _mm256_set1_ps(b == 0.0f ? -0.0f : b); // adding -0 keeps the sign of zero
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        _mm256_storeu_ps(y + i, _mm256_add_ps(_mm256_mul_ps(_mm256_loadu_ps(x + i), vs), vb));
    }
    for (; i < n; i++) {
        y[i] = x[i] * s + (b == 0.0f ? -0.0f : b);
    }
}

static void row_mad__avx2(int64_t n, float *y, const float *x, float s) {
    const __m256 vs = _mm256_set1_ps(s);
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        _mm256_storeu_ps(y + i, _mm256_fmadd_ps(_mm256_loadu_ps(x + i), vs, _mm256_loadu_ps(y + i)));
    }
    for (; i < n; i++) {
        y[i] = fmaf(x[i], s, y[i]);
    }
}

static void row_rotate__avx2(int64_t n, float *z, const float *x, const float *c, const float *s) {
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256 v = _mm256_loadu_ps(x + i);
        const __m256 other = _mm256_mul_ps(_mm256_permute_ps(v, 0xb1), _mm256_loadu_ps(s + i));
        _mm256_storeu_ps(z + i, _mm256_fmadd_ps(v, _mm256_loadu_ps(c + i), other));
    }
    for (; i + 2 <= n; i += 2) {
        const float a = x[i], b = x[i + 1];
        z[i] = fmaf(a, c[i], b * s[i]);
        z[i + 1] = fmaf(b, c[i + 1], a * s[i + 1]);
    }
}

// ---- reductions ----

FLOATS_INLINE double sum4(__m256d v) {
    const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(v), _mm256_extractf128_pd(v, 1));
    return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

FLOATS_INLINE __m256d plus(__m256d sum, __m256d v) {
    return _mm256_add_pd(sum, v);
}
FLOATS_INLINE __m256d plus_square(__m256d sum, __m256d v) {
    return _mm256_fmadd_pd(v, v, sum);
}
FLOATS_INLINE double identity(double v) {
    return v;
}
FLOATS_INLINE double square(double v) {
    return v * v;
}

// Same order as the portable kernels: sums whose terms nearly cancel would differ otherwise.
#define SUM(name, add, one) \
    static double row_##name##__avx2(int64_t n, const float *x) { \
        __m256d a = _mm256_setzero_pd(), b = a, c = a, d = a; \
        int64_t i = 0; \
        for (; i + 16 <= n; i += 16) { \
            a = add(a, _mm256_cvtps_pd(_mm_loadu_ps(x + i))); \
            b = add(b, _mm256_cvtps_pd(_mm_loadu_ps(x + i + 4))); \
            c = add(c, _mm256_cvtps_pd(_mm_loadu_ps(x + i + 8))); \
            d = add(d, _mm256_cvtps_pd(_mm_loadu_ps(x + i + 12))); \
        } \
        double lane[16], sum = 0; \
        _mm256_storeu_pd(lane, a); \
        _mm256_storeu_pd(lane + 4, b); \
        _mm256_storeu_pd(lane + 8, c); \
        _mm256_storeu_pd(lane + 12, d); \
        for (int j = 0; j < 16; j++) { \
            sum += lane[j]; \
        } \
        for (; i < n; i++) { \
            sum += one((double) x[i]); \
        } \
        return sum; \
    }
SUM(sum, plus, identity)
SUM(sum_sq, plus_square, square)

// If an operand is NaN, VMAXPS returns the second operand. So NaN in x is ignored.
FLOATS_INLINE __m256 larger(__m256 max, const float *x) {
    return _mm256_max_ps(_mm256_loadu_ps(x), max);
}

static float row_max__avx2(int64_t n, const float *x) {
    __m256 a = _mm256_set1_ps(-INFINITY), b = a, c = a, d = a;
    int64_t i = 0;
    for (; i + 32 <= n; i += 32) {
        a = larger(a, x + i);
        b = larger(b, x + i + 8);
        c = larger(c, x + i + 16);
        d = larger(d, x + i + 24);
    }
    float all[8];
    _mm256_storeu_ps(all, _mm256_max_ps(_mm256_max_ps(a, b), _mm256_max_ps(c, d)));
    float max = -INFINITY;
    for (int j = 0; j < 8; j++) {
        max = max_f32(all[j], max);
    }
    for (; i < n; i++) {
        max = max_f32(x[i], max);
    }
    return max;
}

// ---- the exponential ----

// Returns 2^k for -126 <= k <= 127, and infinity for k = 128.
FLOATS_INLINE __m256 power2(__m256i k) {
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_slli_epi32(k, 23), _mm256_castps_si256(_mm256_set1_ps(1.0f))));
}

// 2^k may not be a normal float, so two factors 2^(k / 2) and 2^(k - k / 2) are used.
FLOATS_INLINE __m256 exp_of(__m256 x) {
    x = within(x, -104.0f, 89.0f); // beyond, exp is 0 or infinity
    const __m256 magic = _mm256_set1_ps(0x1.8p23f);
    const __m256 z = _mm256_fmadd_ps(x, _mm256_set1_ps(0x1.715476p+0f), magic); // rounds to an integer in the low bits
    const __m256 k = _mm256_sub_ps(z, magic);
    const __m256 r = _mm256_fnmadd_ps(k, _mm256_set1_ps(0x1.7f7d1cp-20f), _mm256_fnmadd_ps(k, _mm256_set1_ps(0x1.62e4p-1f), x));
    const __m256 p = exp_series(r, 1.0f);
    const __m256i k_int = _mm256_sub_epi32(_mm256_castps_si256(z), _mm256_castps_si256(magic)),
                  half = _mm256_srai_epi32(k_int, 1);
    return _mm256_mul_ps(_mm256_mul_ps(p, power2(half)), power2(_mm256_sub_epi32(k_int, half)));
}

// Rounds to f16 and back; ukr/vec.c explains why.
FLOATS_INLINE __m256 round_f16(__m256 x) {
    return _mm256_cvtph_ps(_mm256_cvtps_ph(x, 0));
}

// Uses 0.5 (1 + tanh u) = 1 / (1 + exp(-2u)). For |x| >= 10 the result is 0 or x.
FLOATS_INLINE __m256 gelu_of(__m256 x) {
    const __m256 v = round_f16(x);
    const __m256 u = _mm256_mul_ps(_mm256_mul_ps(v, _mm256_set1_ps(2 * 0.79788456080286535587989211986876f)),
        _mm256_fmadd_ps(_mm256_mul_ps(v, v), _mm256_set1_ps(0.044715f), _mm256_set1_ps(1.0f)));
    const __m256 y = round_f16(_mm256_div_ps(v, one_and_exp(u)));
    const __m256 z = _mm256_andnot_ps(_mm256_cmp_ps(x, _mm256_set1_ps(-10.0f), _CMP_LE_OQ), y);
    return _mm256_blendv_ps(z, x, _mm256_cmp_ps(x, _mm256_set1_ps(10.0f), _CMP_GE_OQ));
}

FLOATS_INLINE __m256 gelu_quick_of(__m256 x) {
    const __m256 v = round_f16(x);
    return round_f16(_mm256_mul_ps(v, sigmoid_of(_mm256_mul_ps(v, _mm256_set1_ps(1.702f)))));
}

ROW1(exp)
ROW1(gelu)
ROW1(gelu_quick)

// Sums of 256 elements are f32; the total is f64.
static double row_exp_sum__avx2(int64_t n, float *y, const float *x, float max) {
    const __m256 m = _mm256_set1_ps(max);
    double sum = 0;
    for (int64_t i = 0; i < n;) {
        const int64_t end = n - i < 256 ? n : i + 256;
        __m256 part0 = _mm256_setzero_ps(), part1 = part0;
        for (; i + 16 <= end; i += 16) {
            const __m256 a = exp_of(_mm256_sub_ps(_mm256_loadu_ps(x + i), m)),
                         b = exp_of(_mm256_sub_ps(_mm256_loadu_ps(x + i + 8), m));
            _mm256_storeu_ps(y + i, a);
            _mm256_storeu_ps(y + i + 8, b);
            part0 = _mm256_add_ps(part0, a);
            part1 = _mm256_add_ps(part1, b);
        }
        for (; i < end; i += 8) {
            const __m256i some = first(end - i);
            const __m256 a = exp_of(_mm256_sub_ps(_mm256_maskload_ps(x + i, some), m));
            _mm256_maskstore_ps(y + i, some, a);
            part0 = _mm256_add_ps(part0, _mm256_and_ps(a, _mm256_castsi256_ps(some)));
        }
        i = end;
        const __m256 all = _mm256_add_ps(part0, part1);
        sum += sum4(_mm256_add_pd(_mm256_cvtps_pd(_mm256_castps256_ps128(all)), _mm256_cvtps_pd(_mm256_extractf128_ps(all, 1))));
    }
    return sum;
}

// ---- cosine and sine ----

// f64, so that rounding to f32 hides errors. x = n * pi / 2 + r, with quadrant n. If |x| >= 2^30, infinite or NaN, libm computes
// the results: the reduction would need more digits of pi than two doubles hold.
#define MAX_ANGLE 0x1p30f

FLOATS_INLINE void cos_sin4(__m128 x, __m128 *c, __m128 *s) {
    const __m256d v = _mm256_cvtps_pd(x), magic = _mm256_set1_pd(0x1.8p52); // rounds to an integer in the low bits
    const __m256d z = _mm256_fmadd_pd(v, _mm256_set1_pd(0x1.45f306dc9c883p-1), magic), n = _mm256_sub_pd(z, magic);
    const __m256d r =
        _mm256_fnmadd_pd(n, _mm256_set1_pd(0x1.1a62633145c07p-54), _mm256_fnmadd_pd(n, _mm256_set1_pd(0x1.921fb54442d18p+0), v));
    const __m256d r2 = _mm256_mul_pd(r, r);
    __m256d odd = _mm256_fmadd_pd(r2, _mm256_set1_pd(-1.0 / 39916800), _mm256_set1_pd(1.0 / 362880));
    __m256d even = _mm256_fmadd_pd(r2, _mm256_set1_pd(-1.0 / 3628800), _mm256_set1_pd(1.0 / 40320));
    odd = _mm256_fmadd_pd(odd, r2, _mm256_set1_pd(-1.0 / 5040));
    even = _mm256_fmadd_pd(even, r2, _mm256_set1_pd(-1.0 / 720));
    odd = _mm256_fmadd_pd(odd, r2, _mm256_set1_pd(1.0 / 120));
    even = _mm256_fmadd_pd(even, r2, _mm256_set1_pd(1.0 / 24));
    odd = _mm256_fmadd_pd(odd, r2, _mm256_set1_pd(-1.0 / 6));
    even = _mm256_fmadd_pd(even, r2, _mm256_set1_pd(-0.5));
    odd = _mm256_mul_pd(_mm256_fmadd_pd(odd, r2, _mm256_set1_pd(1.0)), r); // -0 stays -0
    even = _mm256_fmadd_pd(even, r2, _mm256_set1_pd(1.0));
    // Quadrants 1 and 3 swap sine and cosine. The sine is negative in quadrants 2 and 3, the cosine in quadrants 1 and 2.
    const __m256i q = _mm256_castpd_si256(z), next = _mm256_add_epi64(q, _mm256_set1_epi64x(1));
    const __m256d other = _mm256_castsi256_pd(_mm256_slli_epi64(q, 63)), sign = _mm256_set1_pd(-0.0);
    const __m256d sine = _mm256_blendv_pd(odd, even, other), cosine = _mm256_blendv_pd(even, odd, other);
    *s = _mm256_cvtpd_ps(_mm256_xor_pd(sine, _mm256_and_pd(sign, _mm256_castsi256_pd(_mm256_slli_epi64(q, 62)))));
    *c = _mm256_cvtpd_ps(_mm256_xor_pd(cosine, _mm256_and_pd(sign, _mm256_castsi256_pd(_mm256_slli_epi64(next, 62)))));
}

static void row_cos_sin__avx2(int64_t n, float *c, float *s, const float *x) {
    for (int64_t i = 0; i < n; i += 4) {
        const int64_t m = min_i64(n - i, 4);
        const __m128i some = _mm256_castsi256_si128(first(m));
        const __m128 v = _mm_maskload_ps(x + i, some);
        if (_mm_movemask_ps(_mm_cmp_ps(_mm_andnot_ps(_mm_set1_ps(-0.0f), v), _mm_set1_ps(MAX_ANGLE), _CMP_NLT_UQ)) != 0) {
            for (int64_t j = i; j < i + m; j++) {
                c[j] = cosf(x[j]);
                s[j] = sinf(x[j]);
            }
            continue;
        }
        __m128 cosine, sine;
        cos_sin4(v, &cosine, &sine);
        _mm_maskstore_ps(c + i, some, cosine);
        _mm_maskstore_ps(s + i, some, sine);
    }
}

void CPU_TIER_FILL(vec)(struct cpu_kernels *k) {
    k->add = row_add__avx2;
    k->sub = row_sub__avx2;
    k->mul = row_mul__avx2;
    k->div = row_div__avx2;
    k->scale = row_scale__avx2;
    k->mad = row_mad__avx2;
    k->sum = row_sum__avx2;
    k->sum_sq = row_sum_sq__avx2;
    k->max = row_max__avx2;
    k->exp = row_exp;
    k->sigmoid = row_sigmoid;
    k->silu = row_silu;
    k->silu_mul = row_silu_mul;
    k->gelu = row_gelu;
    k->gelu_quick = row_gelu_quick;
    k->exp_sum = row_exp_sum__avx2;
    k->mix = rows_mix;
    k->rotate = row_rotate__avx2;
    k->cos_sin = row_cos_sin__avx2;
}
