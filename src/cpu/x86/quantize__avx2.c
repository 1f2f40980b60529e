// SPDX-License-Identifier: MIT
// quantize__avx2.c: rows of floats to the formats that activations take in dot products. Bit for bit what the portable functions
// make of finite rows; a row that is not finite goes to them.

#include "cpu/x86/avx2.h"
#include "cpu/x86/tiers.h"

#include "quant/half.h"
#include "quant/quants.h"

#include <math.h>

// Four times 8 numbers of 32 bits that fit into bytes, in their order.
AVX2_INLINE __m256i narrow(__m256i a, __m256i b, __m256i c, __m256i d) {
    const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
    return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

// To the nearest whole number, ties away from zero.
AVX2_INLINE __m256i round_away(__m256 v) {
    const __m256 almost_half = _mm256_or_ps(_mm256_and_ps(v, _mm256_set1_ps(-0.0f)), _mm256_set1_ps(0x1.fffffep-2f));
    return _mm256_cvttps_epi32(_mm256_add_ps(v, almost_half));
}

// 32 floats to bytes and the float one of them stands for; false if they are not finite or too small to divide by.
AVX2_INLINE bool bytes32(const float *x, __m256i *bytes, float *d) {
    const __m256 a = _mm256_loadu_ps(x), b = _mm256_loadu_ps(x + 8), c = _mm256_loadu_ps(x + 16), e = _mm256_loadu_ps(x + 24);
    const __m256 most = _mm256_max_ps(_mm256_max_ps(abs_f32(a), abs_f32(b)), _mm256_max_ps(abs_f32(c), abs_f32(e)));
    const __m256 nan  = _mm256_or_ps(_mm256_cmp_ps(a, b, _CMP_UNORD_Q), _mm256_cmp_ps(c, e, _CMP_UNORD_Q));
    const float max   = max_f32(most);
    *d                = max / 127.0f;
    if (_mm256_movemask_ps(nan) != 0 || !(max >= 0x1p-100f && max < INFINITY)) {
        return false;
    }
    const __m256 inverse = _mm256_set1_ps(1.0f / *d);
    *bytes               = narrow(round_away(_mm256_mul_ps(a, inverse)), round_away(_mm256_mul_ps(b, inverse)),
                      round_away(_mm256_mul_ps(c, inverse)), round_away(_mm256_mul_ps(e, inverse)));
    return true;
}

static void q8_0_from_f32__avx2(const float *restrict x, void *restrict vy, int64_t n) {
    block_q8_0 *y = vy;
    for (int64_t i = 0; i < n / 32; i++) {
        __m256i bytes;
        float d;
        if (!bytes32(x + i * 32, &bytes, &d)) {
            quantize_row_q8_0_ref(x + i * 32, &y[i], 32);
            continue;
        }
        y[i].d = berth_float_to_half(d);
        _mm256_storeu_si256((void *) y[i].qs, bytes);
    }
}

// The sum of 8 numbers.
AVX2_INLINE int sum_i32(__m256i v) {
    const __m128i a = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    const __m128i b = _mm_add_epi32(a, _mm_shuffle_epi32(a, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(b, _mm_shuffle_epi32(b, 0xb1)));
}

static void q8_1_from_f32__avx2(const float *restrict x, void *restrict vy, int64_t n) {
    block_q8_1 *y = vy;
    for (int64_t i = 0; i < n / 32; i++) {
        __m256i bytes;
        float d;
        if (!bytes32(x + i * 32, &bytes, &d)) {
            quantize_row_q8_1_ref(x + i * 32, &y[i], 32);
            continue;
        }
        y[i].d = berth_float_to_half(d);
        y[i].s = berth_float_to_half((float) sum_i32(quads(_mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes))) * d);
        _mm256_storeu_si256((void *) y[i].qs, bytes);
    }
}

// The value that is farthest from zero, with its sign: the first of equals.
static float extreme(const float *x, int n, float amax) {
    for (int j = 0; j < n; j++) {
        if (fabsf(x[j]) == amax) {
            return x[j];
        }
    }
    return amax;
}

static void q8_K_from_f32__avx2(const float *restrict x, void *restrict vy, int64_t n) {
    block_q8_K *y = vy;
    for (int64_t i = 0; i < n / QK_K; i++, x += QK_K) {
        __m256 most = _mm256_setzero_ps(), nan = most;
        for (int j = 0; j < QK_K; j += 8) {
            const __m256 v = _mm256_loadu_ps(x + j);
            most           = _mm256_max_ps(most, abs_f32(v));
            nan            = _mm256_or_ps(nan, _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
        }
        const float amax = max_f32(most);
        if (_mm256_movemask_ps(nan) != 0 || !(amax >= 0x1p-100f && amax < INFINITY)) {
            quantize_row_q8_K_ref(x, &y[i], QK_K);
            continue;
        }
        const float inverse = -127.0f / extreme(x, QK_K, amax);
        for (int j = 0; j < QK_K; j += 32) {
            __m256i q[4];
            for (int u = 0; u < 4; u++) {
                q[u] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + j + 8 * u), _mm256_set1_ps(inverse)));
                q[u] = _mm256_min_epi32(q[u], _mm256_set1_epi32(127));
            }
            const __m256i bytes = narrow(q[0], q[1], q[2], q[3]);
            _mm256_storeu_si256((void *) (y[i].qs + j), bytes);
            for (int u = 0; u < 2; u++) {
                int sum = 0;
                for (int v = 0; v < 16; v++) {
                    sum += y[i].qs[j + 16 * u + v];
                }
                y[i].bsums[j / 16 + u] = (int16_t) sum;
            }
        }
        y[i].d = 1 / inverse;
    }
}

void cpu_tier_avx2_quantize(struct cpu_kernels *k) {
    k->traits[GGML_TYPE_Q8_0].from_float = q8_0_from_f32__avx2;
    k->traits[GGML_TYPE_Q8_1].from_float = q8_1_from_f32__avx2;
    k->traits[GGML_TYPE_Q8_K].from_float = q8_K_from_f32__avx2;
}
