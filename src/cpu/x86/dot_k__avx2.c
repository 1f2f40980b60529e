// SPDX-License-Identifier: MIT
// dot_k__avx2.c: dot products of the formats with blocks of 256. Within a block everything is integer and exact: products of
// bytes in pairs, pairs times the scale of their run; minima and offsets go with the block sums that q8_K carries.

#include "cpu/x86/avx2.h"
#include "cpu/x86/tiers.h"

#include "quant/blocks.h"

#include <string.h>

// ---- 8 runs of 32 unsigned bytes of a block, in the order of the row ----

AVX2_INLINE __m256i with_bit(__m256i low, __m256i bits, int at, char as) { // bit `at` of every byte, as the bit `as`
    const __m256i is = _mm256_and_si256(bits, _mm256_set1_epi8((char) (1 << at)));
    const __m256i no = _mm256_cmpeq_epi8(is, _mm256_setzero_si256());
    return _mm256_or_si256(low, _mm256_andnot_si256(no, _mm256_set1_epi8(as)));
}

AVX2_INLINE void unpack_q4_K(const block_q4_K *b, __m256i *v) {
    const __m256i low = _mm256_set1_epi8(15);
    for (int j = 0; j < 4; j++) {
        const __m256i q = load_256(b->qs + 32 * j);
        v[2 * j]        = _mm256_and_si256(q, low);
        v[2 * j + 1]    = _mm256_and_si256(_mm256_srli_epi16(q, 4), low);
    }
}

AVX2_INLINE void unpack_q5_K(const block_q5_K *b, __m256i *v) {
    const __m256i low = _mm256_set1_epi8(15), high = load_256(b->qh);
    for (int j = 0; j < 4; j++) {
        const __m256i q = load_256(b->qs + 32 * j);
        v[2 * j]        = with_bit(_mm256_and_si256(q, low), high, 2 * j, 0x10);
        v[2 * j + 1]    = with_bit(_mm256_and_si256(_mm256_srli_epi16(q, 4), low), high, 2 * j + 1, 0x10);
    }
}

AVX2_INLINE void unpack_2bits(const uint8_t *qs, __m256i *v) {
    const __m256i three = _mm256_set1_epi8(3);
    for (int j = 0; j < 2; j++) {
        const __m256i q = load_256(qs + 32 * j);
        v[4 * j]        = _mm256_and_si256(q, three);
        v[4 * j + 1]    = _mm256_and_si256(_mm256_srli_epi16(q, 2), three);
        v[4 * j + 2]    = _mm256_and_si256(_mm256_srli_epi16(q, 4), three);
        v[4 * j + 3]    = _mm256_and_si256(_mm256_srli_epi16(q, 6), three);
    }
}

AVX2_INLINE void unpack_q3_K(const block_q3_K *b, __m256i *v) { // 4 more than it stands for
    const __m256i high = load_256(b->hmask);
    unpack_2bits(b->qs, v);
    for (int r = 0; r < 8; r++) {
        v[r] = with_bit(v[r], high, r, 4);
    }
}

AVX2_INLINE void unpack_q6_K(const block_q6_K *b, __m256i *v) { // 32 more than it stands for
    const __m256i low = _mm256_set1_epi8(15), high = _mm256_set1_epi8(0x30);
    for (int j = 0; j < 2; j++) {
        const __m256i q0 = load_256(b->ql + 64 * j), q1 = load_256(b->ql + 64 * j + 32), h = load_256(b->qh + 32 * j);
        const __m256i h2 = _mm256_srli_epi16(h, 2);
        v[4 * j]         = _mm256_or_si256(_mm256_and_si256(q0, low), _mm256_and_si256(_mm256_slli_epi16(h, 4), high));
        v[4 * j + 1]     = _mm256_or_si256(_mm256_and_si256(q1, low), _mm256_and_si256(_mm256_slli_epi16(h, 2), high));
        v[4 * j + 2]     = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(q0, 4), low), _mm256_and_si256(h, high));
        v[4 * j + 3]     = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(q1, 4), low), _mm256_and_si256(h2, high));
    }
}

// ---- sums ----

// Run r of 32 elements is two runs of 16: their scales, side by side as the elements are.
AVX2_INLINE __m256i scales_of_two(const int16_t *scales, int r) {
    return _mm256_set_m128i(_mm_set1_epi16(scales[2 * r + 1]), _mm_set1_epi16(scales[2 * r]));
}

AVX2_INLINE __m256i dot_runs16(const __m256i *v, const int16_t *scales, const block_q8_K *y) {
    __m256i sum = _mm256_setzero_si256();
    for (int r = 0; r < 8; r++) {
        const __m256i pairs = _mm256_maddubs_epi16(v[r], load_256(y->qs + 32 * r));
        sum                 = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, scales_of_two(scales, r)));
    }
    return sum;
}

AVX2_INLINE __m256i dot_runs32(const __m256i *v, const uint8_t *scales, const block_q8_K *y) {
    __m256i sum = _mm256_setzero_si256();
    for (int r = 0; r < 8; r++) {
        const __m256i pairs = _mm256_maddubs_epi16(v[r], load_256(y->qs + 32 * r));
        sum                 = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(scales[r])));
    }
    return sum;
}

// Sum of 16 block sums, each times its factor.
AVX2_INLINE __m256i dot_sums(const int16_t *factors, const block_q8_K *y) {
    return _mm256_madd_epi16(load_256(factors), load_256(y->bsums));
}

// ---- a block: the sum times d, and with *min what comes off times dmin ----

// The 8 scales and minima of q4_K and q5_K: 6 bits each in 12 bytes. Each minimum stands for two block sums.
AVX2_INLINE void scales_6bit(const uint8_t *from, uint8_t *scales, int16_t *mins) {
    uint32_t u[3];
    memcpy(u, from, sizeof u);
    const uint32_t s[2] = {u[0] & 0x3f3f3f3f, (u[2] & 0x0f0f0f0f) | (u[0] >> 6 & 0x03030303) << 4};
    const uint32_t m[2] = {u[1] & 0x3f3f3f3f, (u[2] >> 4 & 0x0f0f0f0f) | (u[1] >> 6 & 0x03030303) << 4};
    memcpy(scales, s, sizeof s);
    uint8_t each[8];
    memcpy(each, m, sizeof m);
    for (int r = 0; r < 16; r++) {
        mins[r] = each[r / 2];
    }
}

AVX2_INLINE __m256i block_q4_K_dot(const block_q4_K *x, const block_q8_K *y, __m256i *min) {
    __m256i v[8];
    uint8_t scales[8];
    int16_t mins[16];
    unpack_q4_K(x, v);
    scales_6bit(x->scales, scales, mins);
    *min = dot_sums(mins, y);
    return dot_runs32(v, scales, y);
}

AVX2_INLINE __m256i block_q5_K_dot(const block_q5_K *x, const block_q8_K *y, __m256i *min) {
    __m256i v[8];
    uint8_t scales[8];
    int16_t mins[16];
    unpack_q5_K(x, v);
    scales_6bit(x->scales, scales, mins);
    *min = dot_sums(mins, y);
    return dot_runs32(v, scales, y);
}

AVX2_INLINE __m256i block_q2_K_dot(const block_q2_K *x, const block_q8_K *y, __m256i *min) {
    __m256i v[8];
    int16_t scales[16], mins[16];
    unpack_2bits(x->qs, v);
    for (int r = 0; r < 16; r++) {
        scales[r] = x->scales[r] & 15;
        mins[r]   = x->scales[r] >> 4;
    }
    *min = dot_sums(mins, y);
    return dot_runs16(v, scales, y);
}

AVX2_INLINE __m256i block_q3_K_dot(const block_q3_K *x, const block_q8_K *y, __m256i *min) {
    (void) min;
    __m256i v[8];
    int16_t scales[16];
    unpack_q3_K(x, v);
    for (int r = 0; r < 16; r++) {
        const int low = x->scales[r % 8] >> (r / 8 * 4) & 15, high = x->scales[8 + r % 4] >> (r / 4 * 2) & 3;
        scales[r] = (int16_t) ((low | high << 4) - 32);
    }
    return _mm256_sub_epi32(dot_runs16(v, scales, y), _mm256_slli_epi32(dot_sums(scales, y), 2));
}

AVX2_INLINE __m256i block_q6_K_dot(const block_q6_K *x, const block_q8_K *y, __m256i *min) {
    (void) min;
    __m256i v[8];
    int16_t scales[16];
    unpack_q6_K(x, v);
    for (int r = 0; r < 16; r++) {
        scales[r] = x->scales[r];
    }
    return _mm256_sub_epi32(dot_runs16(v, scales, y), _mm256_slli_epi32(dot_sums(scales, y), 5));
}

AVX2_INLINE __m256i block_iq4_xs_dot(const block_iq4_xs *x, const block_q8_K *y, __m256i *min) {
    (void) min;
    const __m128i values = _mm_setr_epi8(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
    const __m256i table  = _mm256_broadcastsi128_si256(values);
    __m256i sum          = _mm256_setzero_si256();
    for (int r = 0; r < 8; r++) {
        const __m256i q = _mm256_shuffle_epi8(table, nibbles(x->qs + 16 * r));
        const int low = x->scales_l[r / 2] >> (r % 2 * 4) & 15, high = x->scales_h >> (2 * r) & 3;
        const __m256i pairs = pairs_signed(q, load_256(y->qs + 32 * r));
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16((int16_t) ((low | high << 4) - 32))));
    }
    return sum;
}

// ---- rows ----

#define DMIN(block) half_f32((block)->dmin)
#define NO_MIN(block) 0.0f
#define DOT_K(type, has_min, min_of) \
    static void vec_dot_##type##__avx2( \
        int n, float *restrict s, size_t bs, const void *restrict vx, size_t bx, const void *restrict vy, size_t by, int nrc) { \
        (void) bs, (void) bx, (void) by, (void) nrc; \
        const block_##type *x = vx; \
        const block_q8_K *y   = vy; \
        __m256 sum            = _mm256_setzero_ps(); \
        for (int i = 0; i < n / QK_K; i++) { \
            __m256i min        = _mm256_setzero_si256(); \
            const __m256i dots = block_##type##_dot(&x[i], &y[i], &min); \
            sum                = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots), _mm256_set1_ps(half_f32(x[i].d) * y[i].d), sum); \
            if (has_min) { \
                sum = _mm256_fnmadd_ps(_mm256_cvtepi32_ps(min), _mm256_set1_ps(min_of(&x[i]) * y[i].d), sum); \
            } \
        } \
        *s = sum_f32(sum); \
    }
DOT_K(q4_K, 1, DMIN)
DOT_K(q5_K, 1, DMIN)
DOT_K(q2_K, 1, DMIN)
DOT_K(q3_K, 0, NO_MIN)
DOT_K(q6_K, 0, NO_MIN)
DOT_K(iq4_xs, 0, NO_MIN)

void cpu_tier_avx2_k(struct cpu_kernels *k) {
    k->traits[GGML_TYPE_Q4_K].vec_dot   = vec_dot_q4_K__avx2;
    k->traits[GGML_TYPE_Q5_K].vec_dot   = vec_dot_q5_K__avx2;
    k->traits[GGML_TYPE_Q2_K].vec_dot   = vec_dot_q2_K__avx2;
    k->traits[GGML_TYPE_Q3_K].vec_dot   = vec_dot_q3_K__avx2;
    k->traits[GGML_TYPE_Q6_K].vec_dot   = vec_dot_q6_K__avx2;
    k->traits[GGML_TYPE_IQ4_XS].vec_dot = vec_dot_iq4_xs__avx2;
}
