// SPDX-License-Identifier: MIT
// dot__avx2.c: dot products and conversions of f32, f16 and bf16 with 256-bit vectors and fused multiply-add.

#include "cpu/x86/avx2.h"
#include "cpu/x86/tiers.h"

#include "quant/half.h"

#include <stddef.h>

AVX2_INLINE __m256 load_f32(const float *x) {
    return _mm256_loadu_ps(x);
}

AVX2_INLINE __m256 load_f16(const uint16_t *x) {
    return _mm256_cvtph_ps(load_128(x));
}

AVX2_INLINE __m256 load_bf16(const uint16_t *x) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_128(x)), 16));
}

#define AS_IS(v) (v)
#define DOT(name, element, load, one) \
    static void vec_dot_##name##__avx2( \
        int n, float *restrict s, size_t bs, const void *restrict vx, size_t bx, const void *restrict vy, size_t by, int nrc) { \
        (void) bs, (void) bx, (void) by, (void) nrc; \
        const element *x = vx, *y = vy; \
        __m256 a = _mm256_setzero_ps(), b = a, c = a, d = a; \
        int i = 0; \
        for (; i + 32 <= n; i += 32) { \
            a = _mm256_fmadd_ps(load(x + i), load(y + i), a); \
            b = _mm256_fmadd_ps(load(x + i + 8), load(y + i + 8), b); \
            c = _mm256_fmadd_ps(load(x + i + 16), load(y + i + 16), c); \
            d = _mm256_fmadd_ps(load(x + i + 24), load(y + i + 24), d); \
        } \
        float sum = sum_f32(_mm256_add_ps(_mm256_add_ps(a, b), _mm256_add_ps(c, d))); \
        for (; i < n; i++) { \
            sum += one(x[i]) * one(y[i]); \
        } \
        *s = sum; \
    }
DOT(f32, float, load_f32, AS_IS)
DOT(f16, uint16_t, load_f16, half_f32)
DOT(bf16, uint16_t, load_bf16, berth_bf16_to_float)

static void half_from_f32__avx2(const float *restrict x, void *restrict vy, int64_t n) {
    uint16_t *y = vy;
    int64_t i   = 0;
    for (; i + 8 <= n; i += 8) {
        _mm_storeu_si128((void *) (y + i), _mm256_cvtps_ph(load_f32(x + i), _MM_FROUND_TO_NEAREST_INT));
    }
    for (; i < n; i++) {
        y[i] = (uint16_t) _cvtss_sh(x[i], _MM_FROUND_TO_NEAREST_INT);
    }
}

static void half_to_f32__avx2(const void *restrict vx, float *restrict y, int64_t n) {
    const uint16_t *x = vx;
    int64_t i         = 0;
    for (; i + 8 <= n; i += 8) {
        _mm256_storeu_ps(y + i, load_f16(x + i));
    }
    for (; i < n; i++) {
        y[i] = half_f32(x[i]);
    }
}

void cpu_tier_avx2_float(struct cpu_kernels *k) {
    k->traits[GGML_TYPE_F32].vec_dot    = vec_dot_f32__avx2;
    k->traits[GGML_TYPE_F16].vec_dot    = vec_dot_f16__avx2;
    k->traits[GGML_TYPE_BF16].vec_dot   = vec_dot_bf16__avx2;
    k->traits[GGML_TYPE_F16].from_float = half_from_f32__avx2;
    k->to_float[GGML_TYPE_F16]          = half_to_f32__avx2;
}
