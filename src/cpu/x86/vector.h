// SPDX-License-Identifier: MIT
// vector.h: row functions on floats for vectors of 8 and of 16 lanes: exp and activation functions.
#pragma once

#include "base/min.h"
#include "cpu/kernels.h"
#include "cpu/x86/ahead.h"
#include "cpu/x86/floats.h"

#include <math.h>

// Selects the lanes below n.
FLOATS_INLINE V_SOME first(int64_t n) {
#ifdef __AVX512F__
    return (__mmask16) (n < 16 ? (1u << n) - 1 : 0xffff);
#else
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int) min_i64(n, 8)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
#endif
}

// Elements before the next vector-aligned address of z, at most n. A store that crosses a cache line takes twice as long.
FLOATS_INLINE int64_t to_vector(const float *z, int64_t n) {
    const int64_t i = (int64_t) (-((uintptr_t) z / sizeof *z) % V_LANES);
    return min_i64(i, n);
}

// ---- the exponential ----

// NaN stays NaN: both instructions return their second operand if an operand is NaN.
FLOATS_INLINE V within(V x, float lo, float hi) {
    return V_PS(min)(V_ALL(hi), V_PS(max)(V_ALL(lo), x));
}

// exp(sign * r) for |r| <= ln 2 / 2. Taylor series of degree 7, reduced to degree 6 by Chebyshev economization. Truncation error:
// below 2^-26.
FLOATS_INLINE V exp_series(V r, const float sign) {
    V p = V_FMA(r, V_ALL(1.0f / 720), V_ALL(sign * 0.00837503932f));
    p = V_FMA(p, r, V_ALL(1.0f / 24));
    p = V_FMA(p, r, V_ALL(sign * 0.166664162f));
    p = V_FMA(p, r, V_ALL(0.5f));
    p = V_FMA(p, r, V_ALL(sign * 1.0f));
    return V_FMA(p, r, V_ALL(1.0f));
}

// Returns 1 + exp(-x). If exp(-x) is above 2^127.5, the result may be infinity. `magic` includes 127, so that the low bits of z
// are the biased exponent of 2^k.
FLOATS_INLINE V one_and_exp(V x) {
    x = within(x, -89.0f, 87.0f);
    const V magic = V_ALL(0x1.8p23f + 127);
    const V z = V_PS(fnmadd)(x, V_ALL(0x1.715476p+0f), magic), k = V_PS(sub)(z, magic);
    const V u = V_FMA(k, V_ALL(0x1.7f7d1cp-20f), V_FMA(k, V_ALL(0x1.62e4p-1f), x));
    const V p = exp_series(u, -1.0f);
    return V_FMA(p, V_POWER_2(z), V_ALL(1.0f));
}

// With AVX-512, an estimate (rcp14) with one refinement step takes a fifth longer than the division.
FLOATS_INLINE V sigmoid_of(V x) {
    return V_PS(div)(V_ALL(1.0f), one_and_exp(x));
}

FLOATS_INLINE V silu_of(V x) {
    return V_PS(div)(x, one_and_exp(x));
}

#define ROW1(name) \
    static void row_##name(int64_t n, float *y, const float *x) { \
        int64_t i = 0; \
        for (; i + 2 * V_LANES <= n; i += 2 * V_LANES) { /* two independent chains hide the latency of the polynomial */ \
            prefetch_far(x + i, 2 * V_LANES); \
            prefetch_far(y + i, 2 * V_LANES); \
            const V a = name##_of(V_LOAD(x + i)), b = name##_of(V_LOAD(x + i + V_LANES)); \
            V_STORE(y + i, a); \
            V_STORE(y + i + V_LANES, b); \
        } \
        for (; i < n; i += V_LANES) { \
            const V_SOME some = first(n - i); \
            V_STORE_SOME(y + i, some, name##_of(V_LOAD_SOME(x + i, some))); \
        } \
    }
ROW1(sigmoid)
ROW1(silu)

static void row_silu_mul(int64_t n, float *z, const float *x, const float *y) {
    int64_t i = 0;
    for (; i + 2 * V_LANES <= n; i += 2 * V_LANES) {
        prefetch_far(x + i, 2 * V_LANES);
        prefetch_far(y + i, 2 * V_LANES);
        prefetch_far(z + i, 2 * V_LANES);
        const V a = silu_of(V_LOAD(x + i)), b = silu_of(V_LOAD(x + i + V_LANES));
        const V c = V_LOAD(y + i), d = V_LOAD(y + i + V_LANES);
        V_STORE(z + i, V_PS(mul)(a, c));
        V_STORE(z + i + V_LANES, V_PS(mul)(b, d));
    }
    for (; i < n; i += V_LANES) {
        const V_SOME some = first(n - i);
        const V a = V_PS(mul)(silu_of(V_LOAD_SOME(x + i, some)), V_LOAD_SOME(y + i, some));
        V_STORE_SOME(z + i, some, a);
    }
}
