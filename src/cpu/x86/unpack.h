// SPDX-License-Identifier: MIT
// unpack.h: unpacks blocks of quantised rows to vectors of 32 bytes in row order, and returns their scales. Requires AVX2 and
// F16C.
//
// Blocks of 32: unpack_<type>(block) returns the bytes, scale_<type>(block) the factor of a byte. Bytes are signed, except those
// of q4_1 and q5_1.
// Blocks of 256: unpack_<type>(block, v) stores 8 vectors. scales_<type>(block) returns one byte per run (16 or 32 elements).
// Bytes are unsigned, except those of iq4_xs. Bytes of q3_K and q6_K are too large by an offset (4, 32), which the caller
// corrects.
#pragma once

#include "quant/blocks.h"

#include <immintrin.h>
#include <stddef.h>
#include <string.h>

#define UNPACK_INLINE static inline __attribute__((always_inline))

UNPACK_INLINE float f16_as_float(const uint16_t *h) {
    return _cvtsh_ss(*h);
}

UNPACK_INLINE __m256i load32(const void *at) {
    return _mm256_loadu_si256(at);
}

// Loads 16 bytes from each of two addresses.
UNPACK_INLINE __m256i both(const void *even, const void *odd) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(even)), _mm_loadu_si128(odd), 1);
}

UNPACK_INLINE __m256i low4(__m256i v) {
    return _mm256_and_si256(v, _mm256_set1_epi8(15));
}

// Shift right (BITS_AT) or left (BITS_UP), then mask each byte.
#define BITS_AT(v, n, mask) _mm256_and_si256(_mm256_srli_epi16(v, n), _mm256_set1_epi8(mask))
#define BITS_UP(v, n, mask) _mm256_and_si256(_mm256_slli_epi16(v, n), _mm256_set1_epi8(mask))

UNPACK_INLINE float sum8(__m256 v) {
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// Returns the sum of 32 bytes.
UNPACK_INLINE int sum_bytes(const int8_t *q) {
    const __m256i four = _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), load32(q)), _mm256_set1_epi16(1));
    const __m128i two = _mm_add_epi32(_mm256_castsi256_si128(four), _mm256_extracti128_si256(four, 1));
    const __m128i one = _mm_add_epi32(two, _mm_shuffle_epi32(two, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(one, _mm_shuffle_epi32(one, 0xb1)));
}

UNPACK_INLINE int sum_16(const int8_t *q) {
    int sum = 0;
    for (int i = 0; i < 16; i++) {
        sum += q[i];
    }
    return sum;
}

// Moves element n k + s of each 4 n elements of a column to 4 s + k. The rows of q1_0 (n = 8) and q2_0 (n = 4) then need no shuffles:
// quad s of a row is a shift and a mask of its packed bytes. n = 1 changes nothing.
UNPACK_INLINE void transpose_quads(int8_t q[32], const int n) {
    int8_t from[32];
    if (n == 1) {
        return;
    }
    memcpy(from, q, sizeof from);
    for (int i = 0; i < 32; i++) {
        q[i] = from[i / (4 * n) * 4 * n + n * (i % 4) + i / 4 % n];
    }
}

// X(TYPE, type) for every type that widen__avx2.c converts to floats.
// clang-format off
#define EACH_UNPACKED(X) \
    X(Q8_0, q8_0) X(Q4_0, q4_0) X(Q5_0, q5_0) X(IQ4_NL, iq4_nl) X(MXFP4, mxfp4) X(Q4_1, q4_1) X(Q5_1, q5_1) \
    X(Q4_K, q4_K) X(Q5_K, q5_K) X(Q2_K, q2_K) X(Q3_K, q3_K) X(Q6_K, q6_K) X(IQ4_XS, iq4_xs)
// clang-format on

// ---- blocks of 32 ----

UNPACK_INLINE __m256i unpack_q8_0(const block_q8_0 *b) {
    return load32(b->qs);
}

// Low nibbles first, then high nibbles.
UNPACK_INLINE __m256i nibbles(const uint8_t *qs) {
    const __m128i v = _mm_loadu_si128((const void *) qs);
    return low4(_mm256_set_m128i(_mm_srli_epi16(v, 4), v));
}

UNPACK_INLINE __m256i unpack_q4_0(const block_q4_0 *b) {
    return _mm256_sub_epi8(nibbles(b->qs), _mm256_set1_epi8(8));
}

UNPACK_INLINE __m256i unpack_q4_1(const block_q4_1 *b) {
    return nibbles(b->qs);
}

// 0xff for a set bit, 0 for a clear bit.
UNPACK_INLINE __m256i bits32(const uint8_t *qh) {
    int32_t bits;
    memcpy(&bits, qh, sizeof bits);
    const __m256i which = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i mask = _mm256_set1_epi64x((long long) 0x8040201008040201);
    return _mm256_cmpeq_epi8(_mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(bits), which), mask), mask);
}

// If the fifth bit is set, the element is q, otherwise q - 16.
UNPACK_INLINE __m256i unpack_q5_0(const block_q5_0 *b) {
    return _mm256_or_si256(nibbles(b->qs), _mm256_andnot_si256(bits32(b->qh), _mm256_set1_epi8((char) 0xf0)));
}

UNPACK_INLINE __m256i unpack_q5_1(const block_q5_1 *b) {
    return _mm256_or_si256(nibbles(b->qs), _mm256_and_si256(bits32(b->qh), _mm256_set1_epi8(0x10)));
}

static const int8_t table_iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
static const int8_t table_mxfp4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}; // twice the values
static const int8_t table_mxfp4_plus_12[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

UNPACK_INLINE __m256i unpack_table(const int8_t *table, const uint8_t *qs) {
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128((const void *) table)), nibbles(qs));
}

UNPACK_INLINE __m256i unpack_iq4_nl(const block_iq4_nl *b) {
    return unpack_table(table_iq4, b->qs);
}

UNPACK_INLINE __m256i unpack_mxfp4(const block_mxfp4 *b) {
    return unpack_table(table_mxfp4, b->qs);
}

#define SCALE_FROM_F16(type) \
    UNPACK_INLINE float scale_##type(const block_##type *b) { \
        return f16_as_float(&b->d); \
    }
SCALE_FROM_F16(q8_0)
SCALE_FROM_F16(q4_0)
SCALE_FROM_F16(q4_1)
SCALE_FROM_F16(q5_0)
SCALE_FROM_F16(q5_1)
SCALE_FROM_F16(iq4_nl)

// Returns 2^(e - 128), because table_mxfp4 holds twice the values. Two of the scales are subnormal.
UNPACK_INLINE float scale_mxfp4(const block_mxfp4 *b) {
    const uint32_t bits = b->e < 2 ? 0x00200000u << b->e : (uint32_t) (b->e - 1) << 23;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

UNPACK_INLINE __m256 scales_mxfp4(__m128i e) {
    const __m256i v = _mm256_cvtepu8_epi32(e), two = _mm256_set1_epi32(2);
    const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(v, _mm256_set1_epi32(1)), 23);
    const __m256i least = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), v);
    return _mm256_castsi256_ps(_mm256_blendv_epi8(normal, least, _mm256_cmpgt_epi32(two, v)));
}

// ---- blocks of 64 and 128: elements 32 j to 32 j + 31 ----

UNPACK_INLINE __m256i cell_q1_0(const block_q1_0 *b, int j) {
    return _mm256_or_si256(_mm256_andnot_si256(bits32(b->qs + 4 * j), _mm256_set1_epi8(-1)), _mm256_set1_epi8(1));
}

// Byte k of a lane gets the bits 2 k and 2 k + 1 of the lane's byte.
UNPACK_INLINE __m256i cell_q2_0(const block_q2_0 *b, int j) {
    const __m256i q = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *) (b->qs + 8 * j)));
    const __m256i two = _mm256_or_si256(q, _mm256_slli_epi32(q, 12)), four = _mm256_or_si256(two, _mm256_slli_epi32(two, 6));
    return _mm256_sub_epi8(_mm256_and_si256(four, _mm256_set1_epi8(3)), _mm256_set1_epi8(1));
}

// A group has 16 elements: low nibbles of 8 bytes first, then high nibbles.
UNPACK_INLINE __m256i cell_nvfp4(const block_nvfp4 *b, int j) {
    const __m128i q = _mm_loadu_si128((const void *) (b->qs + 16 * j)), high = _mm_srli_epi16(q, 4);
    const __m256i v = low4(_mm256_set_m128i(_mm_unpackhi_epi64(q, high), _mm_unpacklo_epi64(q, high)));
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128((const void *) table_mxfp4)), v);
}

// A scale of nvfp4 is an unsigned float of 4 bits of exponent and 3 of mantissa. The sign bit is ignored, and 0x7f counts as 0. As an
// f16, shifted by 7 bits, it is too small by 2^8. It should be half as large, because table_mxfp4 holds twice the values.
#define NVFP4_FACTOR 128.0f
UNPACK_INLINE __m128i bytes_of_scales_nvfp4(__m128i s) {
    const __m128i most = _mm_set1_epi8(0x7f);
    return _mm_andnot_si128(_mm_cmpeq_epi8(s, most), _mm_and_si128(s, most));
}
UNPACK_INLINE __m256 scales_nvfp4(__m128i s) {
    const __m128i words = _mm_cvtepu8_epi16(bytes_of_scales_nvfp4(s));
    return _mm256_mul_ps(_mm256_cvtph_ps(_mm_slli_epi16(words, 7)), _mm256_set1_ps(NVFP4_FACTOR));
}

// ---- blocks of 256 ----

// Lower 8 bytes: scales of q4_K and q5_K; upper 8 bytes: minima. 6 bits each in 12 bytes.
UNPACK_INLINE __m128i scales_6bit(const uint8_t *from) {
#ifdef __AVX2__
    int32_t last;
    memcpy(&last, from + 8, sizeof last);
    const __m128i first = _mm_loadl_epi64((const void *) from); // the first 4 scales, the first 4 minima
    const __m128i both = _mm_unpacklo_epi32(first, _mm_set1_epi32(last));
    const __m128i low = _mm_and_si128(
        _mm_srlv_epi32(both, _mm_setr_epi32(0, 0, 0, 4)), _mm_setr_epi32(0x3f3f3f3f, 0x0f0f0f0f, 0x3f3f3f3f, 0x0f0f0f0f));
    const __m128i high = _mm_and_si128(_mm_slli_epi64(_mm_unpacklo_epi32(first, first), 30), _mm_set1_epi64x(0x3030303000000000));
    return _mm_or_si128(low, high);
#else
    uint32_t u[3];
    memcpy(u, from, sizeof u);
    const uint32_t s0 = u[0] & 0x3f3f3f3f, s1 = (u[2] & 0x0f0f0f0f) | (u[0] >> 6 & 0x03030303) << 4;
    const uint32_t m0 = u[1] & 0x3f3f3f3f, m1 = (u[2] >> 4 & 0x0f0f0f0f) | (u[1] >> 6 & 0x03030303) << 4;
    return _mm_setr_epi32((int) s0, (int) s1, (int) m0, (int) m1);
#endif
}

// Elements are in RAW_<type> vectors of 32 bytes, RAW_AT_<type> bytes after the start of a block. bits_<type> operates within
// bytes, so that it also works on transposed bytes (pack_x.h).
#define RAW_q4_K 4
#define RAW_AT_q4_K offsetof(block_q4_K, qs)
UNPACK_INLINE void bits_q4_K(const __m256i *raw, __m256i *v) {
    for (int j = 0; j < 4; j++) {
        v[2 * j] = low4(raw[j]);
        v[2 * j + 1] = BITS_AT(raw[j], 4, 15);
    }
}

#define RAW_q5_K 5
#define RAW_AT_q5_K offsetof(block_q5_K, qh)
UNPACK_INLINE void bits_q5_K(const __m256i *raw, __m256i *v) {
    __m256i h = raw[0];
    for (int j = 0; j < 4; j++) {
        v[2 * j] = _mm256_or_si256(low4(raw[1 + j]), BITS_UP(h, 4, 0x10));
        v[2 * j + 1] = _mm256_or_si256(BITS_AT(raw[1 + j], 4, 15), BITS_UP(h, 3, 0x10));
        h = _mm256_srli_epi16(h, 2);
    }
}

#define RAW_q2_K 2
#define RAW_AT_q2_K offsetof(block_q2_K, qs)
UNPACK_INLINE void bits_q2_K(const __m256i *raw, __m256i *v) {
    for (int j = 0; j < 2; j++) {
        v[4 * j] = BITS_AT(raw[j], 0, 3);
        v[4 * j + 1] = BITS_AT(raw[j], 2, 3);
        v[4 * j + 2] = BITS_AT(raw[j], 4, 3);
        v[4 * j + 3] = BITS_AT(raw[j], 6, 3);
    }
}

#define RAW_q3_K 3
#define RAW_AT_q3_K offsetof(block_q3_K, hmask)
UNPACK_INLINE void bits_q3_K(const __m256i *raw, __m256i *v) {
    __m256i h = raw[0];
    for (int j = 0; j < 2; j++) {
        const __m256i q = raw[1 + j];
        v[4 * j] = _mm256_or_si256(BITS_AT(q, 0, 3), BITS_UP(h, 2, 4));
        v[4 * j + 1] = _mm256_or_si256(BITS_AT(q, 2, 3), BITS_UP(h, 1, 4));
        v[4 * j + 2] = _mm256_or_si256(BITS_AT(q, 4, 3), BITS_AT(h, 0, 4));
        v[4 * j + 3] = _mm256_or_si256(BITS_AT(q, 6, 3), BITS_AT(h, 1, 4));
        h = _mm256_srli_epi16(h, 4);
    }
}

#define RAW_q6_K 6
#define RAW_AT_q6_K offsetof(block_q6_K, ql)
UNPACK_INLINE void bits_q6_K(const __m256i *raw, __m256i *v) {
    for (int j = 0; j < 2; j++) {
        const __m256i q0 = raw[2 * j], q1 = raw[2 * j + 1], h = raw[4 + j];
        v[4 * j] = _mm256_or_si256(low4(q0), BITS_UP(h, 4, 0x30));
        v[4 * j + 1] = _mm256_or_si256(low4(q1), BITS_UP(h, 2, 0x30));
        v[4 * j + 2] = _mm256_or_si256(BITS_AT(q0, 4, 15), BITS_AT(h, 0, 0x30));
        v[4 * j + 3] = _mm256_or_si256(BITS_AT(q1, 4, 15), BITS_AT(h, 2, 0x30));
    }
}

#define RAW_tq2_0 2
#define RAW_AT_tq2_0 offsetof(block_tq2_0, qs)
#define bits_tq2_0 bits_q2_K

#define UNPACK_256(type) \
    UNPACK_INLINE void unpack_##type(const block_##type *b, __m256i *v) { \
        __m256i raw[RAW_##type]; \
        for (int j = 0; j < RAW_##type; j++) { \
            raw[j] = load32((const char *) b + RAW_AT_##type + 32 * j); \
        } \
        bits_##type(raw, v); \
    }
UNPACK_256(q4_K)
UNPACK_256(q5_K)
UNPACK_256(q2_K)
UNPACK_256(q3_K)
UNPACK_256(q6_K)
UNPACK_256(tq2_0)

UNPACK_INLINE void unpack_iq4_xs(const block_iq4_xs *b, __m256i *v) {
    for (int j = 0; j < 8; j++) {
        v[j] = unpack_table(table_iq4, b->qs + 16 * j);
    }
}

UNPACK_INLINE __m128i scales_q4_K(const block_q4_K *b) {
    return scales_6bit(b->scales);
}
UNPACK_INLINE __m128i scales_q5_K(const block_q5_K *b) {
    return scales_6bit(b->scales);
}
UNPACK_INLINE __m128i scales_q6_K(const block_q6_K *b) {
    return _mm_loadu_si128((const void *) b->scales);
}
UNPACK_INLINE __m128i scales_q2_K(const block_q2_K *b) {
    return _mm_and_si128(_mm_loadu_si128((const void *) b->scales), _mm_set1_epi8(15));
}

UNPACK_INLINE __m128i scales_tq2_0(const block_tq2_0 *b) {
    (void) b;
    return _mm_set1_epi8(1);
}

// Returns the 16 scales of q3_K: 6 bits each in 12 bytes, with an offset of 32.
UNPACK_INLINE __m128i scales_q3_K(const block_q3_K *b) {
    uint32_t u[3];
    memcpy(u, b->scales, sizeof u);
    const uint32_t lo = 0x0f0f0f0f, hi = 0x03030303;
    const __m128i v = _mm_setr_epi32((int) ((u[0] & lo) | (u[2] & hi) << 4), (int) ((u[1] & lo) | (u[2] >> 2 & hi) << 4),
        (int) ((u[0] >> 4 & lo) | (u[2] >> 4 & hi) << 4), (int) ((u[1] >> 4 & lo) | (u[2] >> 6 & hi) << 4));
    return _mm_sub_epi8(v, _mm_set1_epi8(32));
}

// Returns the 8 scales of iq4_xs: 4 bits in scales_l and 2 bits in scales_h, with an offset of 32.
UNPACK_INLINE __m128i scales_iq4_xs(const block_iq4_xs *b) {
    int32_t l;
    memcpy(&l, b->scales_l, sizeof l);
    const __m128i two = _mm_cvtsi32_si128(l);
    const __m128i each = _mm_and_si128(_mm_unpacklo_epi8(two, _mm_srli_epi16(two, 4)), _mm_set1_epi8(15));
    // Bits 2 j and 2 j + 1 become bits 4 and 5.
    const __m128i up = _mm_mullo_epi16(
        _mm_set1_epi16((short) b->scales_h), _mm_setr_epi16(1 << 14, 1 << 12, 1 << 10, 1 << 8, 1 << 6, 1 << 4, 1 << 2, 1));
    const __m128i high = _mm_and_si128(_mm_srli_epi16(up, 10), _mm_set1_epi16(0x30));
    return _mm_sub_epi8(_mm_or_si128(each, _mm_packus_epi16(high, high)), _mm_set1_epi8(32));
}

// d_<type>(block): the factor of all scales.
#define D_256(type) \
    UNPACK_INLINE float d_##type(const block_##type *b) { \
        return f16_as_float(&b->d); \
    }
D_256(q4_K)
D_256(q5_K)
D_256(q2_K)
D_256(q3_K)
D_256(q6_K)
D_256(iq4_xs)

// Same layout as scales_<type>.
UNPACK_INLINE __m128i mins_q4_K(const block_q4_K *b) {
    return _mm_srli_si128(scales_6bit(b->scales), 8);
}
UNPACK_INLINE __m128i mins_q5_K(const block_q5_K *b) {
    return _mm_srli_si128(scales_6bit(b->scales), 8);
}
UNPACK_INLINE __m128i mins_q2_K(const block_q2_K *b) {
    return _mm_and_si128(_mm_srli_epi16(_mm_loadu_si128((const void *) b->scales), 4), _mm_set1_epi8(15));
}
