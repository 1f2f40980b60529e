// SPDX-License-Identifier: MIT
// vec__avx512.c: row functions on floats with 512-bit vectors: arithmetic, exp and activation functions, RoPE, weighted sums.

#include "cpu/x86/vector.h"

#include "cpu/mix.h"

// ---- arithmetic ----

#define ROW2(name) \
    static void row_##name##__avx512(int64_t n, float *z, const float *x, const float *y) { \
        int64_t i = to_vector(z, n); \
        if (i > 0) { \
            const __mmask16 some = first(i); \
            const __m512 a = _mm512_##name##_ps(_mm512_maskz_loadu_ps(some, x), _mm512_maskz_loadu_ps(some, y)); \
            _mm512_mask_storeu_ps(z, some, a); \
        } \
        const bool is_long = n >= FAR_LENGTH; \
        for (; i + 64 <= n; i += 64) { \
            if (is_long) { \
                prefetch_far(x + i, 64); \
                prefetch_far(y + i, 64); \
                prefetch_far(z + i, 64); \
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

FLOATS_INLINE __m512 rotate16(__m512 x, __m512 c, __m512 s) {
    return _mm512_fmadd_ps(x, c, _mm512_mul_ps(_mm512_permute_ps(x, 0xb1), s));
}

static void row_rotate__avx512(int64_t n, float *z, const float *x, const float *c, const float *s) {
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        _mm512_storeu_ps(z + i, rotate16(_mm512_loadu_ps(x + i), _mm512_loadu_ps(c + i), _mm512_loadu_ps(s + i)));
    }
    if (i < n) {
        const __mmask16 some = first(n - i);
        const __m512 cs = _mm512_maskz_loadu_ps(some, c + i), sn = _mm512_maskz_loadu_ps(some, s + i);
        _mm512_mask_storeu_ps(z + i, some, rotate16(_mm512_maskz_loadu_ps(some, x + i), cs, sn));
    }
}

// VSCALEFPS multiplies by a power of two. Beyond the limits of x, exp is 0 or infinity.
FLOATS_INLINE __m512 exp_of(__m512 x) {
    x = within(x, -104.0f, 89.0f);
    const __m512 magic = _mm512_set1_ps(0x1.8p23f); // rounds to an integer
    const __m512 k = _mm512_sub_ps(_mm512_fmadd_ps(x, _mm512_set1_ps(0x1.715476p+0f), magic), magic);
    const __m512 r = _mm512_fnmadd_ps(k, _mm512_set1_ps(0x1.7f7d1cp-20f), _mm512_fnmadd_ps(k, _mm512_set1_ps(0x1.62e4p-1f), x));
    return _mm512_scalef_ps(exp_series(r, 1.0f), k);
}
ROW1(exp)

void cpu_tier_avx512_vec(struct cpu_kernels *k) {
    k->add = row_add__avx512;
    k->sub = row_sub__avx512;
    k->mul = row_mul__avx512;
    k->div = row_div__avx512;
    k->exp = row_exp;
    k->sigmoid = row_sigmoid;
    k->silu = row_silu;
    k->silu_mul = row_silu_mul;
    k->mix = rows_mix;
    k->rotate = row_rotate__avx512;
}
