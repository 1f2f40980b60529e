// SPDX-License-Identifier: MIT
// quantize__avx2.c: quantises rows of floats to q8_0, q8_1 and q8_K, the formats of activations, and converts f16 and bf16 rows
// from and to floats. For blocks of finite floats, the results are bit-identical to those of the portable functions; other blocks
// are passed to the quantisers of src/quant.

#include "cpu/kernels.h"
#include "cpu/x86/floats.h"
#include "cpu/x86/unpack.h"

#include "quant/quants.h"

#include <math.h>

UNPACK_INLINE __m256 magnitude(__m256 v) {
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v);
}

// Compared as integers, magnitudes of floats have the order of the floats, and NaN is the largest.
UNPACK_INLINE __m256 larger(__m256 a, __m256 b) {
    return _mm256_castsi256_ps(_mm256_max_epi32(_mm256_castps_si256(a), _mm256_castps_si256(b)));
}

UNPACK_INLINE float largest(__m256 v) {
    const __m256i all = _mm256_castps_si256(v);
    const __m128i four = _mm_max_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
    const __m128i two = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtss_f32(_mm_castsi128_ps(_mm_max_epi32(two, _mm_shuffle_epi32(two, 0xb1))));
}

// True if max is finite and not too small to divide by.
UNPACK_INLINE bool is_plain(float max) {
    return max >= BERTH_Q8_MAX_LEAST && max < INFINITY;
}

// Narrows 32 integers that fit into bytes, in order.
UNPACK_INLINE __m256i narrow(__m256i a, __m256i b, __m256i c, __m256i d) {
    const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
    return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

// Quantises 32 floats to bytes and their scale *d. Returns false if the floats are not plain (is_plain).
UNPACK_INLINE bool bytes32(const float *x, __m256i *bytes, float *d) {
    const __m256 a = _mm256_loadu_ps(x), b = _mm256_loadu_ps(x + 8), c = _mm256_loadu_ps(x + 16), e = _mm256_loadu_ps(x + 24);
    const float max = largest(larger(larger(magnitude(a), magnitude(b)), larger(magnitude(c), magnitude(e))));
    *d = max / 127.0f;
    if (!is_plain(max)) {
        return false;
    }
    const __m256 inv = _mm256_set1_ps(127.0f / max);
    *bytes = narrow(_mm256_cvtps_epi32(_mm256_mul_ps(a, inv)), _mm256_cvtps_epi32(_mm256_mul_ps(b, inv)),
        _mm256_cvtps_epi32(_mm256_mul_ps(c, inv)), _mm256_cvtps_epi32(_mm256_mul_ps(e, inv)));
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
        y[i].d = (ggml_half) _cvtss_sh(d, 0);
        _mm256_storeu_si256((void *) y[i].qs, bytes);
    }
}

// Returns the sums of the lower and of the upper 16 bytes.
UNPACK_INLINE void sums16(__m256i bytes, int *lo, int *hi) {
    const __m256i four = _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes), _mm256_set1_epi16(1));
    const __m256i two = _mm256_hadd_epi32(four, four);
    const __m256i one = _mm256_hadd_epi32(two, two);
    *lo = _mm256_extract_epi32(one, 0);
    *hi = _mm256_extract_epi32(one, 4);
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
        int lo, hi;
        sums16(bytes, &lo, &hi);
        y[i].d = (ggml_half) _cvtss_sh(d, 0);
        y[i].s = (ggml_half) _cvtss_sh((float) (lo + hi) * d, 0);
        _mm256_storeu_si256((void *) y[i].qs, bytes);
    }
}

// Returns the first value whose magnitude is amax, with its sign.
UNPACK_INLINE float extreme(const float *x, float amax) {
    for (int j = 0; j < QK_K; j += 8) {
        const __m256 is_equal = _mm256_cmp_ps(magnitude(_mm256_loadu_ps(x + j)), _mm256_set1_ps(amax), _CMP_EQ_OQ);
        const int mask = _mm256_movemask_ps(is_equal);
        if (mask != 0) {
            return x[j + __builtin_ctz((unsigned) mask)];
        }
    }
    return amax;
}

static void q8_K_from_f32__avx2(const float *restrict x, void *restrict vy, int64_t n) {
    block_q8_K *y = vy;
    for (int64_t i = 0; i < n / QK_K; i++, x += QK_K) {
        __m256 max = _mm256_setzero_ps();
        for (int j = 0; j < QK_K; j += 8) {
            max = larger(max, magnitude(_mm256_loadu_ps(x + j)));
        }
        const float amax = largest(max);
        if (!is_plain(amax)) {
            quantize_row_q8_K_ref(x, &y[i], QK_K);
            continue;
        }
        const float inverse = -127.0f / extreme(x, amax);
        for (int j = 0; j < QK_K; j += 32) {
            __m256i q[4];
            for (int u = 0; u < 4; u++) {
                q[u] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + j + 8 * u), _mm256_set1_ps(inverse)));
            }
            const __m256i bytes = narrow(q[0], q[1], q[2], q[3]); // saturates 128 to 127
            int lo, hi;
            sums16(bytes, &lo, &hi);
            y[i].bsums[j / 16] = (int16_t) lo;
            y[i].bsums[j / 16 + 1] = (int16_t) hi;
            _mm256_storeu_si256((void *) (y[i].qs + j), bytes);
        }
        y[i].d = 1 / inverse;
    }
}

// ---- f16 and bf16 ----

static void f16_from_f32__avx2(const float *restrict x, void *restrict vy, int64_t n) {
    uint16_t *y = vy;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        _mm_storeu_si128((void *) (y + i), _mm256_cvtps_ph(_mm256_loadu_ps(x + i), 0));
    }
    for (; i < n; i++) {
        y[i] = (uint16_t) _cvtss_sh(x[i], 0);
    }
}

#define TO_F32(name, type) \
    static void name(const void *restrict vx, float *restrict y, int64_t n) { \
        const uint16_t *x = vx; \
        int64_t i = 0; \
        for (; i + 8 <= n; i += 8) { \
            _mm256_storeu_ps(y + i, load_##type(x + i)); \
        } \
        for (; i < n; i++) { \
            y[i] = one_##type(x + i); \
        } \
    }
TO_F32(f16_to_f32__avx2, f16)
TO_F32(bf16_to_f32__avx2, bf16)

// The compiler vectorises this loop. With the flags of this tier, its vectors are twice as wide as in the portable function.
static void bf16_from_f32__avx2(const float *restrict x, void *restrict vy, int64_t n) {
    uint16_t *y = vy;
    for (int64_t i = 0; i < n; i++) {
        y[i] = berth_float_to_bf16(x[i]);
    }
}

void CPU_TIER_FILL(quantize)(struct cpu_kernels *k) {
    k->traits[GGML_TYPE_Q8_0].from_float = q8_0_from_f32__avx2;
    k->traits[GGML_TYPE_Q8_1].from_float = q8_1_from_f32__avx2;
    k->traits[GGML_TYPE_Q8_K].from_float = q8_K_from_f32__avx2;
    k->traits[GGML_TYPE_F16].from_float = f16_from_f32__avx2;
    k->traits[GGML_TYPE_BF16].from_float = bf16_from_f32__avx2;
    k->to_float[GGML_TYPE_F16] = f16_to_f32__avx2;
    k->to_float[GGML_TYPE_BF16] = bf16_to_f32__avx2;
}
