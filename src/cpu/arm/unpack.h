// SPDX-License-Identifier: MIT
// unpack.h: unpacks blocks of quantised rows to vectors of signed bytes and returns their scales. The bytes are in the order of
// the elements, so that activations need no shuffling.
//
// Blocks of 32: unpack_<type>(block) returns 32 bytes, scale_<type>(block) the float with which a byte is multiplied. The bytes of
// q4_0 are 16 times the value, which saves a shift; its scale is divided by 16.
// Blocks of 256: unpack_<type>(block, v) stores 16 vectors. The bytes of q3_K and q6_K are too large by an offset (4, 32).
// Kernels subtract the offset, or subtract offset * scales * sums of y.
#pragma once

#include "quant/blocks.h"

#include <arm_neon.h>
#include <stddef.h>
#include <string.h>

#define UNPACK_INLINE static inline __attribute__((always_inline))

struct q32 {
    int8x16_t lo, hi; // elements 0 to 15, 16 to 31
};

UNPACK_INLINE float f16_as_float(const uint16_t *h) {
    __fp16 f;
    memcpy(&f, h, sizeof f);
    return f;
}

// Compilers would copy a zero vector, which takes a cycle of a vector pipe. MOVI takes none.
UNPACK_INLINE int32x4_t zeros(void) {
    int32x4_t z;
    __asm__ volatile("movi %0.4s, #0" : "=w"(z));
    return z;
}

UNPACK_INLINE int8x16_t s8(uint8x16_t v) {
    return vreinterpretq_s8_u8(v);
}

UNPACK_INLINE uint8x16_t low4(uint8x16_t v) {
    return vandq_u8(v, vdupq_n_u8(15));
}

// ---- blocks of 32 ----

// The bytes of a block of one row, or of the blocks of two rows, a and b. half 0 or 1: a vector holds bytes 0 to 7, or 8 to 15, of
// a, then those of b. half -1: a vector holds 16 bytes of a.
struct source {
    const void *a, *b;
    int half;
};

UNPACK_INLINE uint8x16_t source_at(const struct source *s, size_t at) {
    const uint8x16_t a = vld1q_u8((const uint8_t *) s->a + at);
    if (s->half < 0) {
        return a;
    }
    const uint64x2_t x = vreinterpretq_u64_u8(a), y = vreinterpretq_u64_u8(vld1q_u8((const uint8_t *) s->b + at));
    return vreinterpretq_u8_u64(s->half == 0 ? vzip1q_u64(x, y) : vzip2q_u64(x, y));
}

// q32_<type>(source) unpacks 32 elements of one row, or 16 elements of each of two rows.
#define UNPACK_32(type) \
    UNPACK_INLINE struct q32 unpack_##type(const block_##type *b) { \
        return q32_##type(&(struct source){b, NULL, -1}); \
    }

UNPACK_INLINE struct q32 q32_q8_0(const struct source *s) {
    const size_t qs = offsetof(block_q8_0, qs);
    return (struct q32){s8(source_at(s, qs)), s8(source_at(s, qs + 16))};
}
UNPACK_32(q8_0)

// A nibble q represents q - 8. Flipping the top bit gives q - 8 in two's complement. The upper half of a byte holds 16 (q - 8).
UNPACK_INLINE struct q32 q32_q4_0(const struct source *s) {
    const uint8x16_t v = veorq_u8(source_at(s, offsetof(block_q4_0, qs)), vdupq_n_u8(0x88));
    return (struct q32){s8(vshlq_n_u8(v, 4)), s8(vandq_u8(v, vdupq_n_u8(0xf0)))};
}
UNPACK_32(q4_0)

UNPACK_INLINE struct q32 q32_q4_1(const struct source *s) {
    const uint8x16_t v = source_at(s, offsetof(block_q4_1, qs));
    return (struct q32){s8(low4(v)), s8(vshrq_n_u8(v, 4))};
}
UNPACK_32(q4_1)

// Expands the bits of a byte to 8 bytes: 0 for a set bit, 0xf0 for a clear bit. A table avoids slow moves from general registers
// to vectors.
#define BIT(b, i) ((uint64_t) ((b) >> (i) &1 ? 0x00 : 0xf0) << (8 * (i)))
#define BITS_1(b) (BIT(b, 0) | BIT(b, 1) | BIT(b, 2) | BIT(b, 3) | BIT(b, 4) | BIT(b, 5) | BIT(b, 6) | BIT(b, 7))
#define BITS_4(b) BITS_1(b), BITS_1((b) + 1), BITS_1((b) + 2), BITS_1((b) + 3)
#define BITS_16(b) BITS_4(b), BITS_4((b) + 4), BITS_4((b) + 8), BITS_4((b) + 12)
#define BITS_64(b) BITS_16(b), BITS_16((b) + 16), BITS_16((b) + 32), BITS_16((b) + 48)
static const uint64_t table_bits[256] = {BITS_64(0), BITS_64(64), BITS_64(128), BITS_64(192)};

UNPACK_INLINE uint8x16_t bits8x2(uint8_t first, uint8_t second) {
    return vreinterpretq_u8_u64(vcombine_u64(vld1_u64(&table_bits[first]), vld1_u64(&table_bits[second])));
}
UNPACK_INLINE uint8x16_t bits16(const uint8_t *two) {
    return bits8x2(two[0], two[1]);
}
UNPACK_INLINE uint8x16_t source_bits16(const struct source *s, size_t at) {
    const uint8_t *a = (const uint8_t *) s->a + at;
    return s->half < 0 ? bits16(a) : bits8x2(a[s->half], ((const uint8_t *) s->b + at)[s->half]);
}

// If the fifth bit is set, the element is q, otherwise q - 16.
UNPACK_INLINE struct q32 q32_q5_0(const struct source *s) {
    const uint8x16_t v = source_at(s, offsetof(block_q5_0, qs));
    const size_t qh = offsetof(block_q5_0, qh);
    return (struct q32){s8(vorrq_u8(low4(v), source_bits16(s, qh))), s8(vorrq_u8(vshrq_n_u8(v, 4), source_bits16(s, qh + 2)))};
}
UNPACK_32(q5_0)

UNPACK_INLINE struct q32 q32_q5_1(const struct source *s) {
    const uint8x16_t v = source_at(s, offsetof(block_q5_1, qs)), bit = vdupq_n_u8(0x10);
    const size_t qh = offsetof(block_q5_1, qh);
    return (struct q32){s8(vorrq_u8(low4(v), vbicq_u8(bit, source_bits16(s, qh)))),
        s8(vorrq_u8(vshrq_n_u8(v, 4), vbicq_u8(bit, source_bits16(s, qh + 2))))};
}
UNPACK_32(q5_1)

UNPACK_INLINE struct q32 q32_table(const int8_t *table, uint8x16_t v) {
    const int8x16_t t = vld1q_s8(table);
    return (struct q32){vqtbl1q_s8(t, low4(v)), vqtbl1q_s8(t, vshrq_n_u8(v, 4))};
}

static const int8_t table_iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
static const int8_t table_mxfp4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}; // twice the values

UNPACK_INLINE struct q32 q32_iq4_nl(const struct source *s) {
    return q32_table(table_iq4, source_at(s, offsetof(block_iq4_nl, qs)));
}
UNPACK_32(iq4_nl)

UNPACK_INLINE struct q32 q32_mxfp4(const struct source *s) {
    return q32_table(table_mxfp4, source_at(s, offsetof(block_mxfp4, qs)));
}
UNPACK_32(mxfp4)

// Uses one conversion for four f16 values. Joins them in a general register, because a load to a lane takes a vector pipe.
UNPACK_INLINE float32x4_t f16x4_as_floats(const uint16_t *a, const uint16_t *b, const uint16_t *c, const uint16_t *d) {
    const uint64_t bits = (uint64_t) *a | (uint64_t) *b << 16 | (uint64_t) *c << 32 | (uint64_t) *d << 48;
    return vcvt_f32_f16(vreinterpret_f16_u64(vcreate_u64(bits)));
}

// scale_<type>: the scale of one block. scales_<type>: the scales of one block of each of four rows.
#define SCALE_FROM_F16(type, factor) \
    UNPACK_INLINE float scale_##type(const block_##type *b) { \
        return f16_as_float(&b->d) * (factor); \
    } \
    UNPACK_INLINE float32x4_t scales_##type( \
        const block_##type *a, const block_##type *b, const block_##type *c, const block_##type *d) { \
        return vmulq_n_f32(f16x4_as_floats(&a->d, &b->d, &c->d, &d->d), factor); \
    }
SCALE_FROM_F16(q8_0, 1.0f)
SCALE_FROM_F16(q4_0, 0.0625f)
SCALE_FROM_F16(q4_1, 1.0f)
SCALE_FROM_F16(q5_0, 1.0f)
SCALE_FROM_F16(q5_1, 1.0f)
SCALE_FROM_F16(iq4_nl, 1.0f)

// Returns 2^(e - 128), because table_mxfp4 holds twice the values. Two of the scales are subnormal.
UNPACK_INLINE float scale_mxfp4(const block_mxfp4 *b) {
    const uint32_t bits = b->e < 2 ? 0x00200000u << b->e : (uint32_t) (b->e - 1) << 23;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}
// The upper 16 bits of scale_mxfp4 for each e. The lower 16 bits are 0.
#define POWER(e) (uint16_t)((e) == 0 ? 0x20 : (e) == 1 ? 0x40 : (e) *128 - 128)
#define POWERS_4(e) POWER(e), POWER((e) + 1), POWER((e) + 2), POWER((e) + 3)
#define POWERS_16(e) POWERS_4(e), POWERS_4((e) + 4), POWERS_4((e) + 8), POWERS_4((e) + 12)
#define POWERS_64(e) POWERS_16(e), POWERS_16((e) + 16), POWERS_16((e) + 32), POWERS_16((e) + 48)
static const uint16_t table_powers[256] = {POWERS_64(0), POWERS_64(64), POWERS_64(128), POWERS_64(192)};

UNPACK_INLINE float32x4_t scales_mxfp4(const block_mxfp4 *a, const block_mxfp4 *b, const block_mxfp4 *c, const block_mxfp4 *d) {
    return (float32x4_t){scale_mxfp4(a), scale_mxfp4(b), scale_mxfp4(c), scale_mxfp4(d)};
}

#define MIN_FROM_F16(type) \
    UNPACK_INLINE float min_##type(const block_##type *b) { \
        return f16_as_float(&b->m); \
    } \
    UNPACK_INLINE float32x4_t mins_##type( \
        const block_##type *a, const block_##type *b, const block_##type *c, const block_##type *d) { \
        return f16x4_as_floats(&a->m, &b->m, &c->m, &d->m); \
    }
MIN_FROM_F16(q4_1)
MIN_FROM_F16(q5_1)

// ---- blocks of 256 ----

// Extracts the 8 scales and 8 minima of q4_K and q5_K: 6 bits each in 12 bytes.
UNPACK_INLINE void scales_6bit(const uint8_t *from, uint8x8_t *scales, uint8x8_t *mins) {
    uint64_t low; // four scales, four minima, and bits of others
    uint32_t high;
    memcpy(&low, from, sizeof low);
    memcpy(&high, from + sizeof low, sizeof high);
    const uint64_t first = low & 0x3f3f3f3f3f3f3f3f, nibbles = (high >> 4 | (uint64_t) high << 32) & 0x0f0f0f0f0f0f0f0f;
    const uint64_t second = nibbles | ((low >> 34 | low << 30) & 0x3030303030303030); // four minima, then four scales
    *scales = vcreate_u8((second & 0xffffffff00000000) | (first & 0xffffffff));
    *mins = vcreate_u8(first >> 32 | second << 32);
}

// part_<type>(source, j, v) unpacks part j of 4: four groups of 16 elements. These are the groups of the block:
#define GROUP_K8(j, i) (4 * (j) + (i))                    // runs of 32 elements
#define GROUP_K16(j, i) ((j) / 2 * 8 + (j) % 2 + 2 * (i)) // runs of 16 elements
#define UNPACK_256(type, group) \
    UNPACK_INLINE void unpack_##type(const block_##type *b, int8x16_t *v) { \
        for (int j = 0; j < 4; j++) { \
            int8x16_t part[4]; \
            part_##type(&(struct source){b, NULL, -1}, j, part); \
            for (int i = 0; i < 4; i++) { \
                v[group(j, i)] = part[i]; \
            } \
        } \
    }

UNPACK_INLINE void part_q4_K(const struct source *s, const int j, int8x16_t *v) {
    const size_t qs = offsetof(block_q4_K, qs) + 32 * (size_t) j;
    const uint8x16_t q0 = source_at(s, qs), q1 = source_at(s, qs + 16);
    v[0] = s8(low4(q0));
    v[1] = s8(low4(q1));
    v[2] = s8(vshrq_n_u8(q0, 4));
    v[3] = s8(vshrq_n_u8(q1, 4));
}
UNPACK_256(q4_K, GROUP_K8)

// Returns v, which is below 16, with bit r of h as its fifth bit.
UNPACK_INLINE uint8x16_t with_fifth(uint8x16_t v, uint8x16_t h, const int r) {
    return vbslq_u8(vdupq_n_u8(0x10), r < 4 ? h << (4 - r) : h >> (r - 4), v);
}

UNPACK_INLINE void part_q5_K(const struct source *s, const int j, int8x16_t *v) {
    const size_t qs = offsetof(block_q5_K, qs) + 32 * (size_t) j, qh = offsetof(block_q5_K, qh);
    const uint8x16_t h0 = source_at(s, qh), h1 = source_at(s, qh + 16), q0 = source_at(s, qs), q1 = source_at(s, qs + 16);
    v[0] = s8(with_fifth(low4(q0), h0, 2 * j));
    v[1] = s8(with_fifth(low4(q1), h1, 2 * j));
    v[2] = s8(with_fifth(vshrq_n_u8(q0, 4), h0, 2 * j + 1));
    v[3] = s8(with_fifth(vshrq_n_u8(q1, 4), h1, 2 * j + 1));
}
UNPACK_256(q5_K, GROUP_K8)

UNPACK_INLINE void part_q2_K(const struct source *s, const int j, int8x16_t *v) {
    const uint8x16_t q = source_at(s, offsetof(block_q2_K, qs) + 16 * (size_t) j), three = vdupq_n_u8(3);
    v[0] = s8(vandq_u8(q, three));
    v[1] = s8(vandq_u8(vshrq_n_u8(q, 2), three));
    v[2] = s8(vandq_u8(vshrq_n_u8(q, 4), three));
    v[3] = s8(vshrq_n_u8(q, 6));
}
UNPACK_256(q2_K, GROUP_K16)

UNPACK_INLINE void part_q3_K(const struct source *s, const int j, int8x16_t *v) {
    const uint8x16_t three = vdupq_n_u8(3), four = vdupq_n_u8(4);
    const uint8x16_t q = source_at(s, offsetof(block_q3_K, qs) + 16 * (size_t) j);
    const uint8x16_t h = source_at(s, offsetof(block_q3_K, hmask) + 16 * (size_t) (j % 2)), m = j < 2 ? h : vshrq_n_u8(h, 4);
    v[0] = s8(vbslq_u8(four, vshlq_n_u8(m, 2), vandq_u8(q, three)));
    v[1] = s8(vbslq_u8(four, vshlq_n_u8(m, 1), vandq_u8(vshrq_n_u8(q, 2), three)));
    v[2] = s8(vbslq_u8(four, m, vandq_u8(vshrq_n_u8(q, 4), three)));
    v[3] = s8(vbslq_u8(four, vshrq_n_u8(m, 1), vshrq_n_u8(q, 6)));
}
UNPACK_256(q3_K, GROUP_K16)

// Returns the 16 scales of q3_K: 6 bits each in 12 bytes, with an offset of 32.
UNPACK_INLINE int8x16_t scales_q3_K(const uint8_t *from) {
    uint32_t u[3];
    memcpy(u, from, sizeof u);
    const uint32_t lo = 0x0f0f0f0f, hi = 0x03030303;
    const uint64_t a = (uint64_t) ((u[1] & lo) | (u[2] >> 2 & hi) << 4) << 32 | ((u[0] & lo) | (u[2] & hi) << 4);
    const uint64_t b = (uint64_t) ((u[1] >> 4 & lo) | (u[2] >> 6 & hi) << 4) << 32 | ((u[0] >> 4 & lo) | (u[2] >> 4 & hi) << 4);
    return vsubq_s8(vcombine_s8(vcreate_s8(a), vcreate_s8(b)), vdupq_n_s8(32));
}

UNPACK_INLINE void part_q6_K(const struct source *s, const int j, int8x16_t *v) {
    const size_t ql = offsetof(block_q6_K, ql) + (size_t) (j / 2 * 64 + j % 2 * 16);
    const uint8x16_t high = vdupq_n_u8(0x30), h = source_at(s, offsetof(block_q6_K, qh) + 16 * (size_t) j);
    const uint8x16_t q0 = source_at(s, ql), q1 = source_at(s, ql + 32);
    v[0] = s8(vbslq_u8(high, vshlq_n_u8(h, 4), low4(q0)));
    v[1] = s8(vbslq_u8(high, vshlq_n_u8(h, 2), low4(q1)));
    v[2] = s8(vbslq_u8(high, h, vshrq_n_u8(q0, 4)));
    v[3] = s8(vbslq_u8(high, vshrq_n_u8(h, 2), vshrq_n_u8(q1, 4)));
}
UNPACK_256(q6_K, GROUP_K16)

UNPACK_INLINE void part_iq4_xs(const struct source *s, const int j, int8x16_t *v) {
    for (size_t i = 0; i < 2; i++) {
        const struct q32 q = q32_table(table_iq4, source_at(s, offsetof(block_iq4_xs, qs) + 32 * (size_t) j + 16 * i));
        v[2 * i] = q.lo;
        v[2 * i + 1] = q.hi;
    }
}
UNPACK_256(iq4_xs, GROUP_K8)

// Returns the 8 scales of iq4_xs: 4 bits in scales_l and 2 bits in scales_h, with an offset of 32.
UNPACK_INLINE int8x8_t scales_iq4_xs(const block_iq4_xs *b) {
    uint32_t l;
    memcpy(&l, b->scales_l, sizeof l);
    const uint8x8_t two = vreinterpret_u8_u32(vdup_n_u32(l));
    const uint8x8_t each = vzip1_u8(vand_u8(two, vdup_n_u8(15)), vshr_n_u8(two, 4));
    const int16x8_t shift = {4, 2, 0, -2, -4, -6, -8, -10}; // moves bits 2j, 2j + 1 to 4, 5
    const uint8x8_t high = vmovn_u16(vandq_u16(vshlq_u16(vdupq_n_u16(b->scales_h), shift), vdupq_n_u16(0x30)));
    return vsub_s8(vreinterpret_s8_u8(vorr_u8(each, high)), vdup_n_s8(32));
}

// ---- elements of f32 and f16 rows as floats: four from index i on, or one ----

UNPACK_INLINE float32x4_t four_f32(const float *x, int64_t i) {
    return vld1q_f32(x + i);
}
UNPACK_INLINE float one_f32(const float *x, int64_t i) {
    return x[i];
}
UNPACK_INLINE float32x4_t four_f16(const uint16_t *x, int64_t i) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(x + i)));
}
UNPACK_INLINE float one_f16(const uint16_t *x, int64_t i) {
    return f16_as_float(x + i);
}

// ---- SDOT for processors that lack the instruction: each lane adds four products of bytes ----

// Adds two products in 16 bits. The sum fits if one operand is never -128; activations never are.
#ifndef __ARM_FEATURE_DOTPROD
static inline __attribute__((always_inline)) int32x4_t sdot_by_products(int32x4_t sum, int8x16_t x, int8x16_t y) {
    const int16x8_t low = vmull_s8(vget_low_s8(x), vget_low_s8(y)), high = vmull_high_s8(x, y);
    return vpadalq_s16(sum, vpaddq_s16(low, high));
}
#    define vdotq_s32 sdot_by_products // arm_neon.h declares vdotq_s32 even if unsupported
#endif
