// SPDX-License-Identifier: MIT
// unpack_iq.h: unpacks the formats with codebooks (iq1, iq2, iq3) and the ternary formats (tq) to signed bytes, in the order of the
// elements. An element is d_<type>(block) times the scale of its run, scales_<type>(block), times its byte. Runs have 32 elements
// (8 scales) or 16 elements (16 scales). src/quant/iq*.c and low_bit.c describe the blocks.
//
// cell_<type>(block, j) returns elements 32 j to 32 j + 31.
#pragma once

#include "cpu/arm/unpack.h"
#include "cpu/codebooks.h"

// X(TYPE, type, n_runs): runs of a block.
#define CODEBOOK_FORMATS(X) \
    X(IQ2_XXS, iq2_xxs, 8) \
    X(IQ2_XS, iq2_xs, 16) \
    X(IQ2_S, iq2_s, 16) \
    X(IQ3_XXS, iq3_xxs, 8) \
    X(IQ3_S, iq3_s, 8) \
    X(IQ1_S, iq1_s, 8) \
    X(IQ1_M, iq1_m, 16)
#define TERNARY_FORMATS(X) X(TQ1_0, tq1_0, 8) X(TQ2_0, tq2_0, 8)
#define IQ_FORMATS(X) CODEBOOK_FORMATS(X) TERNARY_FORMATS(X)

// ---- codebooks and signs ----

// A point of a codebook. Compilers would load the second half of a vector with LD1, which takes one more operation than a load and
// an INS, so they must not see that it comes from memory.
UNPACK_INLINE uint8x8_t point(const uint64_t *book, uint64_t i) {
    uint8x8_t v = vld1_u8((const uint8_t *) (book + i));
    __asm__("" : "+w"(v));
    return v;
}

// Two points of 8 values.
UNPACK_INLINE uint8x16_t points8(const uint64_t *book, uint64_t a, uint64_t b) {
    return vcombine_u8(point(book, a), point(book, b));
}

// Four points of 4 values.
UNPACK_INLINE uint8x16_t points4(const uint64_t *book, uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
    const uint32x2_t ab = vzip1_u32(vreinterpret_u32_u8(point(book, a)), vreinterpret_u32_u8(point(book, b)));
    const uint32x2_t cd = vzip1_u32(vreinterpret_u32_u8(point(book, c)), vreinterpret_u32_u8(point(book, d)));
    return vreinterpretq_u8_u32(vcombine_u32(ab, cd));
}

// A mask is 0xff for a negative element, otherwise 0.
UNPACK_INLINE int8x16_t with_signs(uint8x16_t magnitudes, uint8x16_t mask) {
    return s8(vsubq_u8(veorq_u8(magnitudes, mask), mask));
}

// Expands the bits of bytes `first` and `first` + 1 of v to masks of 16 elements.
UNPACK_INLINE uint8x16_t bit_masks(uint8x16_t v, const uint8_t first) {
    const uint8x16_t bits = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201));
    const uint8x16_t at = vcombine_u8(vdup_n_u8(first), vdup_n_u8(first + 1));
    return vtstq_u8(vqtbl1q_u8(v, at), bits);
}

UNPACK_INLINE uint8x16_t four_bytes(const uint8_t *at) {
    return vreinterpretq_u8_u32(vdupq_n_u32(u32_at(at)));
}

// ---- scales ----

// Scales are 2 s + 1 for stored numbers s.
UNPACK_INLINE int8x16_t odd_scales(uint8x16_t s) {
    return s8(vsliq_n_u8(vdupq_n_u8(1), s, 1));
}

// 16 nibbles, the low one of a byte first.
UNPACK_INLINE int8x16_t nibble_scales(uint8x8_t two) {
    const uint8x8_t lo = vand_u8(two, vdup_n_u8(15)), hi = vshr_n_u8(two, 4);
    return odd_scales(vcombine_u8(vzip1_u8(lo, hi), vzip2_u8(lo, hi)));
}

// The upper 4 bits of 8 words.
UNPACK_INLINE int8x16_t tail_scales(uint32x4_t a, uint32x4_t b) {
    const uint16x8_t s = vcombine_u16(vshrn_n_u32(a, 16), vshrn_n_u32(b, 16));
    return odd_scales(vcombine_u8(vmovn_u16(vshrq_n_u16(s, 12)), vdup_n_u8(0)));
}

// ---- iq2 ----

UNPACK_INLINE struct q32 cell_iq2_xxs(const block_iq2_xxs *b, int j) {
    const uint64_t q = u64_at(b->qs + 4 * j);
    const uint8x16_t lo = points8(cpu_codebooks.iq2_xxs, q & 255, q >> 8 & 255);
    const uint8x16_t hi = points8(cpu_codebooks.iq2_xxs, q >> 16 & 255, q >> 24 & 255);
    return (struct q32){s8(vmulq_u8(lo, points8(cpu_codebooks.signs, q >> 32 & 127, q >> 39 & 127))),
        s8(vmulq_u8(hi, points8(cpu_codebooks.signs, q >> 46 & 127, q >> 53 & 127)))};
}
UNPACK_INLINE int8x16_t scales_iq2_xxs(const block_iq2_xxs *b) {
    uint32x4_t v[4];
    for (int j = 0; j < 4; j++) {
        v[j] = vreinterpretq_u32_u16(vld1q_u16(b->qs + 8 * j));
    }
    return tail_scales(vuzp2q_u32(v[0], v[1]), vuzp2q_u32(v[2], v[3]));
}

UNPACK_INLINE struct q32 cell_iq2_xs(const block_iq2_xs *b, int j) {
    const uint64_t q = u64_at(b->qs + 4 * j);
    const uint8x16_t lo = points8(cpu_codebooks.iq2_xs, q & 511, q >> 16 & 511);
    const uint8x16_t hi = points8(cpu_codebooks.iq2_xs, q >> 32 & 511, q >> 48 & 511);
    return (struct q32){s8(vmulq_u8(lo, points8(cpu_codebooks.signs, q >> 9 & 127, q >> 25 & 127))),
        s8(vmulq_u8(hi, points8(cpu_codebooks.signs, q >> 41 & 127, q >> 57)))};
}
UNPACK_INLINE int8x16_t scales_iq2_xs(const block_iq2_xs *b) {
    return nibble_scales(vld1_u8(b->scales));
}

// Indices are loaded together: loads limit the speed.
UNPACK_INLINE struct q32 cell_iq2_s(const block_iq2_s *b, int j) {
    const uint32_t q = u32_at(b->qs + 4 * j), h = b->qh[j];
    const uint8x16_t signs = four_bytes(b->qs + 32 + 4 * j);
    const uint8x16_t lo = points8(cpu_codebooks.iq2_s, (q & 255) | (h << 8 & 0x300), (q >> 8 & 255) | (h << 6 & 0x300));
    const uint8x16_t hi = points8(cpu_codebooks.iq2_s, (q >> 16 & 255) | (h << 4 & 0x300), q >> 24 | (h << 2 & 0x300));
    return (struct q32){with_signs(lo, bit_masks(signs, 0)), with_signs(hi, bit_masks(signs, 2))};
}
UNPACK_INLINE int8x16_t scales_iq2_s(const block_iq2_s *b) {
    return nibble_scales(vld1_u8(b->scales));
}

// ---- iq3 ----

UNPACK_INLINE struct q32 cell_iq3_xxs(const block_iq3_xxs *b, int j) {
    const uint64_t q = u64_at(b->qs + 8 * j);
    const uint32_t tail = u32_at(b->qs + 64 + 4 * j);
    const uint8x16_t lo = points4(cpu_codebooks.iq3_xxs, q & 255, q >> 8 & 255, q >> 16 & 255, q >> 24 & 255);
    const uint8x16_t hi = points4(cpu_codebooks.iq3_xxs, q >> 32 & 255, q >> 40 & 255, q >> 48 & 255, q >> 56);
    return (struct q32){s8(vmulq_u8(lo, points8(cpu_codebooks.signs, tail & 127, tail >> 7 & 127))),
        s8(vmulq_u8(hi, points8(cpu_codebooks.signs, tail >> 14 & 127, tail >> 21 & 127)))};
}
UNPACK_INLINE int8x16_t scales_iq3_xxs(const block_iq3_xxs *b) {
    return tail_scales(vreinterpretq_u32_u8(vld1q_u8(b->qs + 64)), vreinterpretq_u32_u8(vld1q_u8(b->qs + 80)));
}

UNPACK_INLINE struct q32 cell_iq3_s(const block_iq3_s *b, int j) {
    const uint64_t q = u64_at(b->qs + 8 * j), h = b->qh[j];
    const uint8x16_t signs = four_bytes(b->signs + 4 * j);
#define POINT(k) (q >> 8 * (k) &255) | (h << (8 - (k)) & 256)
    const uint8x16_t lo = points4(cpu_codebooks.iq3_s, POINT(0), POINT(1), POINT(2), POINT(3));
    const uint8x16_t hi = points4(cpu_codebooks.iq3_s, POINT(4), POINT(5), POINT(6), POINT(7));
#undef POINT
    return (struct q32){with_signs(lo, bit_masks(signs, 0)), with_signs(hi, bit_masks(signs, 2))};
}
UNPACK_INLINE int8x16_t scales_iq3_s(const block_iq3_s *b) {
    return nibble_scales(vcreate_u8(u32_at(b->scales)));
}

// ---- iq1 ----

UNPACK_INLINE struct q32 cell_iq1_s(const block_iq1_s *b, int j) {
    const uint32_t q = u32_at(b->qs + 4 * j), h = b->qh[j];
    const uint64_t *book = cpu_codebooks.iq1 + (h >> 15) * 2048;
    return (struct q32){s8(points8(book, (q & 255) | (h << 8 & 0x700), (q >> 8 & 255) | (h << 5 & 0x700))),
        s8(points8(book, (q >> 16 & 255) | (h << 2 & 0x700), q >> 24 | (h >> 1 & 0x700)))};
}
UNPACK_INLINE int8x16_t scales_iq1_s(const block_iq1_s *b) {
    const uint8x8_t s = vand_u8(vshrn_n_u16(vshrq_n_u16(vld1q_u16(b->qh), 4), 8), vdup_n_u8(7));
    return odd_scales(vcombine_u8(s, vdup_n_u8(0)));
}

UNPACK_INLINE struct q32 cell_iq1_m(const block_iq1_m *b, int j) {
    const uint32_t q = u32_at(b->qs + 4 * j), h = b->qh[2 * j] | (uint32_t) b->qh[2 * j + 1] << 8;
    return (struct q32){s8(points8(cpu_codebooks.iq1, (q & 255) | (h << 8 & 0xf00), (q >> 8 & 255) | (h << 4 & 0xf00))),
        s8(points8(cpu_codebooks.iq1, (q >> 16 & 255) | (h & 0xf00), q >> 24 | (h >> 4 & 0xf00)))};
}
// Four scales of 3 bits in each of four 16-bit words.
UNPACK_INLINE int8x16_t scales_iq1_m(const block_iq1_m *b) {
    const uint8x16_t words = vcombine_u8(vld1_u8(b->scales), vdup_n_u8(0));
    const uint8x16_t at0 = {0, 1, 0, 1, 0, 1, 0, 1, 2, 3, 2, 3, 2, 3, 2, 3};
    const int16x8_t shift = {0, -3, -6, -9, 0, -3, -6, -9};
    const uint16x8_t w0 = vshlq_u16(vreinterpretq_u16_u8(vqtbl1q_u8(words, at0)), shift);
    const uint16x8_t w1 = vshlq_u16(vreinterpretq_u16_u8(vqtbl1q_u8(words, vaddq_u8(at0, vdupq_n_u8(4)))), shift);
    return odd_scales(vandq_u8(vcombine_u8(vmovn_u16(w0), vmovn_u16(w1)), vdupq_n_u8(7)));
}

// ---- tq ----

UNPACK_INLINE struct q32 cell_tq2_0(const block_tq2_0 *b, const int j) {
    const uint8_t *q = b->qs + j / 4 * 32;
    const uint8x16_t three = vdupq_n_u8(3), one = vdupq_n_u8(1);
    const uint8x16_t lo = vandq_u8(vld1q_u8(q) >> (2 * (j % 4)), three), hi = vandq_u8(vld1q_u8(q + 16) >> (2 * (j % 4)), three);
    return (struct q32){s8(vsubq_u8(lo, one)), s8(vsubq_u8(hi, one))};
}
UNPACK_INLINE int8x16_t scales_tq2_0(const block_tq2_0 *b) {
    (void) b;
    return vdupq_n_s8(1);
}

// The first trit of a fraction f (low_bit.c) is 3 f / 256.
UNPACK_INLINE int8x16_t first_trit(uint8x16_t f) {
    return s8(vshrq_n_u8(vhaddq_u8(f, vshrq_n_u8(f, 1)), 6));
}
UNPACK_INLINE int8x16_t ternary(uint8x16_t f) {
    return vsubq_s8(first_trit(f), vdupq_n_s8(1));
}
UNPACK_INLINE uint8x16_t times_power(uint8x16_t f, const int power) {
    static const uint8_t powers[5] = {1, 3, 9, 27, 81};
    return vmulq_u8(f, vdupq_n_u8(powers[power]));
}
UNPACK_INLINE struct q32 cell_tq1_0(const block_tq1_0 *b, const int j) {
    const uint8x16_t q = vld1q_u8(b->qs + (j < 5 ? 0 : 32));
    if (j < 5) {
        return (struct q32){ternary(times_power(q, j)), ternary(times_power(vld1q_u8(b->qs + 16), j))};
    }
    if (j < 7) {
        return (struct q32){ternary(times_power(q, 2 * (j - 5))), ternary(times_power(q, 2 * (j - 5) + 1))};
    }
    const uint8x16_t powers = {1, 1, 1, 1, 3, 3, 3, 3, 9, 9, 9, 9, 27, 27, 27, 27};
    return (struct q32){ternary(times_power(q, 4)), ternary(vmulq_u8(four_bytes(b->qh), powers))};
}
UNPACK_INLINE int8x16_t scales_tq1_0(const block_tq1_0 *b) {
    (void) b;
    return vdupq_n_s8(1);
}

// ---- d ----

CODEBOOK_D(f16_as_float)
