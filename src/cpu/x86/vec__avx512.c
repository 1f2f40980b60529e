// SPDX-License-Identifier: MIT
// vec__avx512.c: rows of floats with 512-bit vectors: arithmetic, the exponential and what is made of it, sums of weighted rows.
// As vec__avx2.c, but that the machine scales by powers of two itself.

#include "cpu/kernels.h"
#include "cpu/x86/ahead.h"

#include <immintrin.h>
#include <math.h>

#define V __m512
#define V_LANES 16
#define V_LOAD _mm512_loadu_ps
#define V_STORE _mm512_storeu_ps
#define V_ALL _mm512_set1_ps
#define V_FMA _mm512_fmadd_ps
#define V_WHERE_NOT_0(v, weight) _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(weight, _mm512_setzero_ps(), _CMP_NEQ_UQ), v)
#include "base/min.h"
#include "cpu/x86/mix.h"

#define INLINE static inline __attribute__((always_inline))

// The lanes below n.
INLINE __mmask16 first(int64_t n) {
    return (__mmask16) (n < 16 ? (1u << n) - 1 : 0xffff);
}

// ---- arithmetic ----

// Elements before the next line of the cache: a store that is in two lines takes twice as long.
INLINE int64_t to_line(const float *z, int64_t n) {
    const int64_t i = (int64_t) (-((uintptr_t) z / sizeof *z) % 16);
    return min_i64(i, n);
}

#define ROW2(name) \
    static void row_##name##__avx512(int64_t n, float *z, const float *x, const float *y) { \
        int64_t i = to_line(z, n); \
        if (i > 0) { \
            const __mmask16 some = first(i); \
            const __m512 a = _mm512_##name##_ps(_mm512_maskz_loadu_ps(some, x), _mm512_maskz_loadu_ps(some, y)); \
            _mm512_mask_storeu_ps(z, some, a); \
        } \
        const bool is_long = n >= FAR_LENGTH; \
        for (; i + 64 <= n; i += 64) { \
            if (is_long) { \
                fetch_far(x + i, 64); \
                fetch_far(y + i, 64); \
                fetch_far(z + i, 64); \
            } \
            for (int j = 0; j < 64; j += 16) { \
                _mm512_storeu_ps(z + i + j, _mm512_##name##_ps(_mm512_loadu_ps(x + i + j), _mm512_loadu_ps(y + i + j))); \
            } \
        } \
        for (; i < n; i += 16) { \
            const __mmask16 some = first(n - i); \
            const __m512 a = _mm512_##name##_ps(_mm512_maskz_loadu_ps(some, x + i), _mm512_maskz_loadu_ps(some, y + i)); \
            _mm512_mask_storeu_ps(z + i, some, a); \
        } \
    }
ROW2(add)
ROW2(sub)
ROW2(mul)
ROW2(div)

INLINE __m512 turn16(__m512 x, __m512 c, __m512 s) {
    return _mm512_fmadd_ps(x, c, _mm512_mul_ps(_mm512_permute_ps(x, 0xb1), s));
}

static void row_turn__avx512(int64_t n, float *z, const float *x, const float *c, const float *s) {
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        _mm512_storeu_ps(z + i, turn16(_mm512_loadu_ps(x + i), _mm512_loadu_ps(c + i), _mm512_loadu_ps(s + i)));
    }
    if (i < n) {
        const __mmask16 some = first(n - i);
        const __m512 cs = _mm512_maskz_loadu_ps(some, c + i), sn = _mm512_maskz_loadu_ps(some, s + i);
        _mm512_mask_storeu_ps(z + i, some, turn16(_mm512_maskz_loadu_ps(some, x + i), cs, sn));
    }
}

// ---- the exponential ----

// A NaN stays one: it is the second operand of both.
INLINE __m512 within(__m512 x, float lo, float hi) {
    return _mm512_min_ps(_mm512_set1_ps(hi), _mm512_max_ps(_mm512_set1_ps(lo), x));
}

// exp(x) = 2^k exp(r), |r| <= ln 2 / 2; the series: vec__avx2.c:parts8. Beyond the limits it is 0 and inf all the same.
INLINE __m512 exp16(__m512 x) {
    x = within(x, -104.0f, 89.0f);
    const __m512 magic = _mm512_set1_ps(0x1.8p23f); // rounds to a whole number
    const __m512 k = _mm512_sub_ps(_mm512_fmadd_ps(x, _mm512_set1_ps(0x1.715476p+0f), magic), magic);
    const __m512 r = _mm512_fnmadd_ps(k, _mm512_set1_ps(0x1.7f7d1cp-20f), _mm512_fnmadd_ps(k, _mm512_set1_ps(0x1.62e4p-1f), x));
    __m512 p = _mm512_fmadd_ps(r, _mm512_set1_ps(1.0f / 720), _mm512_set1_ps(0.00837503932f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 24));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.166664162f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.5f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(p, k);
}

// 1 + exp(-x), as vec__avx2.c:one_and_exp8.
INLINE __m512 one_and_exp16(__m512 x) {
    x = within(x, -89.0f, 87.0f);
    const __m512 magic = _mm512_set1_ps(0x1.8p23f + 127);
    const __m512 z = _mm512_fnmadd_ps(x, _mm512_set1_ps(0x1.715476p+0f), magic), k = _mm512_sub_ps(z, magic);
    const __m512 u = _mm512_fmadd_ps(k, _mm512_set1_ps(0x1.7f7d1cp-20f), _mm512_fmadd_ps(k, _mm512_set1_ps(0x1.62e4p-1f), x));
    __m512 p = _mm512_fmadd_ps(u, _mm512_set1_ps(1.0f / 720), _mm512_set1_ps(-0.00837503932f));
    p = _mm512_fmadd_ps(p, u, _mm512_set1_ps(1.0f / 24));
    p = _mm512_fmadd_ps(p, u, _mm512_set1_ps(-0.166664162f));
    p = _mm512_fmadd_ps(p, u, _mm512_set1_ps(0.5f));
    p = _mm512_fmadd_ps(p, u, _mm512_set1_ps(-1.0f));
    p = _mm512_fmadd_ps(p, u, _mm512_set1_ps(1.0f));
    return _mm512_fmadd_ps(p, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(z), 23)), _mm512_set1_ps(1.0f));
}

// Divided: an estimate made better by a step (rcp14) takes a fifth longer.
INLINE __m512 sigmoid16(__m512 x) {
    return _mm512_div_ps(_mm512_set1_ps(1.0f), one_and_exp16(x));
}

INLINE __m512 silu16(__m512 x) {
    return _mm512_div_ps(x, one_and_exp16(x));
}

#define ROW1(name) \
    static void row_##name##__avx512(int64_t n, float *y, const float *x) { \
        int64_t i = 0; \
        for (; i + 32 <= n; i += 32) { /* two at a time: the series is a chain */ \
            fetch_far(x + i, 32); \
            fetch_far(y + i, 32); \
            const __m512 a = name##16(_mm512_loadu_ps(x + i)), b = name##16(_mm512_loadu_ps(x + i + 16)); \
            _mm512_storeu_ps(y + i, a); \
            _mm512_storeu_ps(y + i + 16, b); \
        } \
        for (; i < n; i += 16) { \
            const __mmask16 some = first(n - i); \
            _mm512_mask_storeu_ps(y + i, some, name##16(_mm512_maskz_loadu_ps(some, x + i))); \
        } \
    }
ROW1(exp)
ROW1(sigmoid)
ROW1(silu)

static void row_silu_mul__avx512(int64_t n, float *z, const float *x, const float *y) {
    int64_t i = 0;
    for (; i + 32 <= n; i += 32) {
        fetch_far(x + i, 32);
        fetch_far(y + i, 32);
        fetch_far(z + i, 32);
        const __m512 a = silu16(_mm512_loadu_ps(x + i)), b = silu16(_mm512_loadu_ps(x + i + 16));
        const __m512 c = _mm512_loadu_ps(y + i), d = _mm512_loadu_ps(y + i + 16);
        _mm512_storeu_ps(z + i, _mm512_mul_ps(a, c));
        _mm512_storeu_ps(z + i + 16, _mm512_mul_ps(b, d));
    }
    for (; i < n; i += 16) {
        const __mmask16 some = first(n - i);
        const __m512 a = _mm512_mul_ps(silu16(_mm512_maskz_loadu_ps(some, x + i)), _mm512_maskz_loadu_ps(some, y + i));
        _mm512_mask_storeu_ps(z + i, some, a);
    }
}

void cpu_tier_avx512_vec(struct cpu_kernels *k) {
    k->add = row_add__avx512;
    k->sub = row_sub__avx512;
    k->mul = row_mul__avx512;
    k->div = row_div__avx512;
    k->exp = row_exp__avx512;
    k->sigmoid = row_sigmoid__avx512;
    k->silu = row_silu__avx512;
    k->silu_mul = row_silu_mul__avx512;
    k->mix = rows_mix;
    k->turn = row_turn__avx512;
}
