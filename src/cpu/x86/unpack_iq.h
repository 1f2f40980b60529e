// SPDX-License-Identifier: MIT
// unpack_iq.h: unpacks the formats with codebooks (iq1, iq2, iq3) and tq1_0, as unpack.h does: unpack_<type>(block, v) stores 8
// vectors of unsigned bytes, scales_<type>(block) returns a byte per run, and d_<type>(block) is the factor of all scales. An element
// is d * scale * (byte - offset). src/quant/iq*.c and low_bit.c describe the blocks.
#pragma once

#include "cpu/codebooks.h"
#include "cpu/x86/unpack.h"

// X(TYPE, type, n_runs, offset). n_runs: 8 runs of 32 elements, or 16 runs of 16 elements.
#define CODEBOOK_FORMATS(X) \
    X(IQ2_XXS, iq2_xxs, 8, 64) \
    X(IQ2_XS, iq2_xs, 16, 64) \
    X(IQ2_S, iq2_s, 16, 64) \
    X(IQ3_XXS, iq3_xxs, 8, 64) \
    X(IQ3_S, iq3_s, 8, 16) \
    X(IQ1_S, iq1_s, 8, 16) \
    X(IQ1_M, iq1_m, 16, 16)
#define IQ_FORMATS(X) CODEBOOK_FORMATS(X) X(TQ1_0, tq1_0, 8, 1)

// ---- codebooks and signs ----

// The number of instructions limits the speed, so indices are loaded as bytes or words: shifts and masks would take more.

// Four points of 8 values. Loads of single points are faster than a gather on most processors.
UNPACK_INLINE __m256i points8(const uint64_t *book, uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
    return _mm256_setr_epi64x((long long) book[a], (long long) book[b], (long long) book[c], (long long) book[d]);
}

// Eight points of 4 values. POINT(k) is the index of point k.
#define POINTS4(book, POINT) \
    _mm256_setr_epi32((int) (book)[POINT(0)], (int) (book)[POINT(1)], (int) (book)[POINT(2)], (int) (book)[POINT(3)], \
        (int) (book)[POINT(4)], (int) (book)[POINT(5)], (int) (book)[POINT(6)], (int) (book)[POINT(7)])

// signs: 1 or -1.
UNPACK_INLINE __m256i with_signs(__m256i magnitudes, __m256i signs, const int offset) {
    return _mm256_add_epi8(_mm256_sign_epi8(magnitudes, signs), _mm256_set1_epi8((char) offset));
}

// The signs of 32 elements, for the 7 sign bits of each 8 elements, which are the low bits of a, b, c and d.
UNPACK_INLINE __m256i signs_7bit(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
    return points8(cpu_codebooks.signs, a & 127, b & 127, c & 127, d & 127);
}

// The signs of 32 elements, for a bit of each element.
UNPACK_INLINE __m256i signs_8bit(const uint8_t *bits) {
    return _mm256_or_si256(bits32(bits), _mm256_set1_epi8(1));
}

// ---- scales ----

// Scales are 2 s + 1 for stored numbers s.
UNPACK_INLINE __m128i odd_scales(__m128i s) {
    return _mm_add_epi8(_mm_add_epi8(s, s), _mm_set1_epi8(1));
}

// 16 nibbles, the low one of a byte first.
UNPACK_INLINE __m128i nibble_scales(__m128i two) {
    return odd_scales(_mm_and_si128(_mm_unpacklo_epi8(two, _mm_srli_epi16(two, 4)), _mm_set1_epi8(15)));
}

// Numbers of at most 15 in 8 lanes of 32 bits.
UNPACK_INLINE __m128i lane_scales(__m128i a, __m128i b) {
    return odd_scales(_mm_packs_epi16(_mm_packs_epi32(a, b), _mm_setzero_si128()));
}

// ---- iq2 ----

// cell_<type>(block, j) returns elements 32 j to 32 j + 31.
UNPACK_INLINE __m256i cell_iq2_xxs(const block_iq2_xxs *b, int j) {
    const uint8_t *q = (const uint8_t *) (b->qs + 4 * j);
    const uint32_t s = u32_at(q + 4);
    return with_signs(points8(cpu_codebooks.iq2_xxs, q[0], q[1], q[2], q[3]), signs_7bit(s, s >> 7, s >> 14, s >> 21), 64);
}
// The upper 4 bits of 8 words of 64 bits.
UNPACK_INLINE __m128i scales_iq2_xxs(const block_iq2_xxs *b) {
    __m128i v[4];
    for (int j = 0; j < 4; j++) {
        v[j] = _mm_srli_epi64(_mm_loadu_si128((const void *) (b->qs + 8 * j)), 60);
    }
    return lane_scales(_mm_packs_epi32(v[0], v[1]), _mm_packs_epi32(v[2], v[3]));
}

UNPACK_INLINE __m256i cell_iq2_xs(const block_iq2_xs *b, int j) {
    const uint16_t *q = b->qs + 4 * j;
    const __m256i v = points8(cpu_codebooks.iq2_xs, q[0] & 511, q[1] & 511, q[2] & 511, q[3] & 511);
    return with_signs(v, points8(cpu_codebooks.signs, q[0] >> 9, q[1] >> 9, q[2] >> 9, q[3] >> 9), 64);
}
UNPACK_INLINE __m128i scales_iq2_xs(const block_iq2_xs *b) {
    return nibble_scales(_mm_loadl_epi64((const void *) b->scales));
}

UNPACK_INLINE __m256i cell_iq2_s(const block_iq2_s *b, int j) {
    const uint8_t *q = b->qs + 4 * j;
    const uint32_t h = b->qh[j];
    const __m256i v = points8(
        cpu_codebooks.iq2_s, q[0] | (h << 8 & 0x300), q[1] | (h << 6 & 0x300), q[2] | (h << 4 & 0x300), q[3] | (h << 2 & 0x300));
    return with_signs(v, signs_8bit(b->qs + 32 + 4 * j), 64);
}
UNPACK_INLINE __m128i scales_iq2_s(const block_iq2_s *b) {
    return nibble_scales(_mm_loadl_epi64((const void *) b->scales));
}

// ---- iq3 ----

UNPACK_INLINE __m256i cell_iq3_xxs(const block_iq3_xxs *b, int j) {
    const uint8_t *q = b->qs + 8 * j;
    const uint32_t s = u32_at(b->qs + 64 + 4 * j);
#define POINT(k) q[k]
    return with_signs(POINTS4(cpu_codebooks.iq3_xxs, POINT), signs_7bit(s, s >> 7, s >> 14, s >> 21), 64);
#undef POINT
}
UNPACK_INLINE __m128i scales_iq3_xxs(const block_iq3_xxs *b) {
    const __m128i *s = (const void *) (b->qs + 64);
    return lane_scales(_mm_srli_epi32(_mm_loadu_si128(s), 28), _mm_srli_epi32(_mm_loadu_si128(s + 1), 28));
}

// Bit k of qh[j] is bit 8 of index k. The products move it there.
UNPACK_INLINE __m256i cell_iq3_s(const block_iq3_s *b, int j) {
    const __m128i up = _mm_setr_epi16(256, 128, 64, 32, 16, 8, 4, 2), bit = _mm_set1_epi16(256);
    const __m128i high = _mm_and_si128(_mm_mullo_epi16(_mm_set1_epi16(b->qh[j]), up), bit);
    const __m128i at = _mm_or_si128(_mm_cvtepu8_epi16(_mm_loadl_epi64((const void *) (b->qs + 8 * j))), high);
    const uint64_t at0 = (uint64_t) _mm_cvtsi128_si64(at), at1 = (uint64_t) _mm_extract_epi64(at, 1);
#define POINT(k) (((k) < 4 ? at0 : at1) >> 16 * ((k) % 4) & 0xffff)
    return with_signs(POINTS4(cpu_codebooks.iq3_s, POINT), signs_8bit(b->signs + 4 * j), 16);
#undef POINT
}
UNPACK_INLINE __m128i scales_iq3_s(const block_iq3_s *b) {
    return nibble_scales(_mm_cvtsi32_si128((int) u32_at(b->scales)));
}

// ---- iq1 ----

UNPACK_INLINE __m256i cell_iq1_s(const block_iq1_s *b, int j) {
    const uint8_t *q = b->qs + 4 * j;
    const uint32_t h = b->qh[j];
    return points8(cpu_codebooks.iq1 + (h >> 15) * 2048, q[0] | (h << 8 & 0x700), q[1] | (h << 5 & 0x700),
        q[2] | (h << 2 & 0x700), q[3] | (h >> 1 & 0x700));
}
UNPACK_INLINE __m128i scales_iq1_s(const block_iq1_s *b) {
    const __m128i s = _mm_and_si128(_mm_srli_epi16(_mm_loadu_si128((const void *) b->qh), 12), _mm_set1_epi16(7));
    return odd_scales(_mm_packs_epi16(s, _mm_setzero_si128()));
}

UNPACK_INLINE __m256i cell_iq1_m(const block_iq1_m *b, int j) {
    const uint8_t *q = b->qs + 4 * j;
    const uint32_t h0 = b->qh[2 * j], h1 = b->qh[2 * j + 1];
    return points8(cpu_codebooks.iq1, q[0] | (h0 << 8 & 0xf00), q[1] | (h0 << 4 & 0xf00), q[2] | (h1 << 8 & 0xf00),
        q[3] | (h1 << 4 & 0xf00));
}
// Four scales of 3 bits in each of four words of 16 bits. The products move them to the upper bits.
UNPACK_INLINE __m128i scales_iq1_m(const block_iq1_m *b) {
    const __m128i words = _mm_loadl_epi64((const void *) b->scales), four = _mm_unpacklo_epi16(words, words);
    const __m128i up = _mm_setr_epi16(1 << 13, 1 << 10, 1 << 7, 1 << 4, 1 << 13, 1 << 10, 1 << 7, 1 << 4);
    const __m128i s0 = _mm_srli_epi16(_mm_mullo_epi16(_mm_unpacklo_epi32(four, four), up), 13);
    const __m128i s1 = _mm_srli_epi16(_mm_mullo_epi16(_mm_unpackhi_epi32(four, four), up), 13);
    return odd_scales(_mm_packs_epi16(s0, s1));
}

#define UNPACK_CELLS(TYPE, type, n_runs, offset) \
    UNPACK_INLINE void unpack_##type(const block_##type *b, __m256i *v) { \
        _Pragma("GCC unroll 8") for (int j = 0; j < 8; j++) { \
            v[j] = cell_##type(b, j); \
        } \
    }
CODEBOOK_FORMATS(UNPACK_CELLS)

// ---- tq1_0 ----

// The fractions f of low_bit.c are stored as f - 128. Three times f - 128 is 3 f - 128 (mod 256).
UNPACK_INLINE __m256i times_3(__m256i f) {
    return _mm256_add_epi8(_mm256_add_epi8(f, f), f);
}

// The first trit of f is 1 from f = 86 on, and 2 from f = 171 on.
UNPACK_INLINE __m256i first_trits(__m256i f) {
    const __m256i one = _mm256_cmpgt_epi8(f, _mm256_set1_epi8(85 - 128)), two = _mm256_cmpgt_epi8(f, _mm256_set1_epi8(170 - 128));
    return _mm256_sub_epi8(_mm256_setzero_si256(), _mm256_add_epi8(one, two));
}

UNPACK_INLINE void unpack_tq1_0(const block_tq1_0 *b, __m256i *v) {
    const __m128i q = _mm_loadu_si128((const void *) (b->qs + 32)), low = _mm_set1_epi16(255);
    const __m128i h = _mm_unpacklo_epi8(_mm_set1_epi32((int) u32_at(b->qh)), _mm_setzero_si128());
    const __m128i h0 = _mm_and_si128(_mm_mullo_epi16(h, _mm_setr_epi16(1, 1, 1, 1, 3, 3, 3, 3)), low);
    const __m128i h1 = _mm_and_si128(_mm_mullo_epi16(h, _mm_setr_epi16(9, 9, 9, 9, 27, 27, 27, 27)), low);
    const __m256i top = _mm256_set1_epi8(-128);
    __m256i f = _mm256_add_epi8(load32(b->qs), top);
    _Pragma("GCC unroll 5") for (int j = 0; j < 5; j++) {
        v[j] = first_trits(f);
        f = times_3(f);
    }
    f = _mm256_add_epi8(_mm256_set_m128i(_mm_add_epi8(_mm_add_epi8(q, q), q), q), top);
    v[5] = first_trits(f);
    f = times_3(times_3(f));
    v[6] = first_trits(f);
    f = times_3(times_3(f));
    const __m256i last = _mm256_add_epi8(_mm256_castsi128_si256(_mm_packus_epi16(h0, h1)), top);
    v[7] = first_trits(_mm256_inserti128_si256(f, _mm256_castsi256_si128(last), 1));
}
UNPACK_INLINE __m128i scales_tq1_0(const block_tq1_0 *b) {
    (void) b;
    return _mm_set1_epi8(1);
}

// ---- d ----

CODEBOOK_D(f16_as_float)
