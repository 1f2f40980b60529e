// SPDX-License-Identifier: MIT
// gemv_q32.h: one column times rows of formats with blocks of 32 elements, two rows at a time (streams.h). A group is four
// blocks. One instruction converts the four sums of a group to float. The code is software-pipelined: it loads one block ahead,
// and folds and scales the sums of the previous group.
//
// The column also consists of groups. Groups are aligned, because an unaligned load takes as long as two loads:
//   [4 scales] [4 sums or offsets]? [128 bytes]
// q4_1 and q5_1 have sums, with which the minima are multiplied. q4_0 has offsets: -8 times the sum of the bytes of y in each
// block. The kernel multiplies unsigned nibbles q and adds the offset, because the elements are q - 8.
#pragma once

#include "cpu/arm/quantize.h"
#include "cpu/arm/streams.h"
#include "cpu/arm/unpack.h"
#include "cpu/kernels.h"

#include <math.h>

#define HEAD(has_extra) (16 + 16 * (has_extra))
#define GROUP(has_extra) (HEAD(has_extra) + 128)

UNPACK_INLINE float32x4_t f32_at(const char *at) {
    return vld1q_f32((const float *) (const void *) at);
}

UNPACK_INLINE int32x4_t s32_at(const char *at) {
    return vld1q_s32((const int32_t *) (const void *) at);
}

// ---- a block: loading it ahead of its use (LOAD_*), and expanding it to signed bytes (expand_*) ----

struct raw {
    uint8x16_t v[3];
};

#define LOAD_NIBBLES(b) ((struct raw){{vld1q_u8((b)->qs)}})
#define LOAD_BYTES(b) ((struct raw){{vreinterpretq_u8_s8(vld1q_s8((b)->qs)), vreinterpretq_u8_s8(vld1q_s8((b)->qs + 16))}})
#define LOAD_5BIT(b) ((struct raw){{vld1q_u8((b)->qs), bits16((b)->qh), bits16((b)->qh + 2)}})

UNPACK_INLINE struct q32 expand_bytes(const struct raw *r) {
    return (struct q32){s8(r->v[0]), s8(r->v[1])};
}
UNPACK_INLINE struct q32 expand_nibbles(const struct raw *r) {
    return (struct q32){s8(low4(r->v[0])), s8(vshrq_n_u8(r->v[0], 4))};
}
UNPACK_INLINE struct q32 expand_q5_0(const struct raw *r) {
    return (struct q32){s8(vorrq_u8(low4(r->v[0]), r->v[1])), s8(vorrq_u8(vshrq_n_u8(r->v[0], 4), r->v[2]))};
}
UNPACK_INLINE struct q32 expand_q5_1(const struct raw *r) {
    const uint8x16_t bit = vdupq_n_u8(0x10);
    return (struct q32){
        s8(vorrq_u8(low4(r->v[0]), vbicq_u8(bit, r->v[1]))), s8(vorrq_u8(vshrq_n_u8(r->v[0], 4), vbicq_u8(bit, r->v[2])))};
}
UNPACK_INLINE struct q32 expand_iq4_nl(const struct raw *r) {
    const int8x16_t t = vld1q_s8(table_iq4);
    return (struct q32){vqtbl1q_s8(t, low4(r->v[0])), vqtbl1q_s8(t, vshrq_n_u8(r->v[0], 4))};
}
UNPACK_INLINE struct q32 expand_mxfp4(const struct raw *r) {
    const int8x16_t t = vld1q_s8(table_mxfp4);
    return (struct q32){vqtbl1q_s8(t, low4(r->v[0])), vqtbl1q_s8(t, vshrq_n_u8(r->v[0], 4))};
}

// The scales of four blocks: *_OF joins bits in a general register, floats_of_* converts them.
#define F16_OF(b, d) ((uint64_t) (b)[0].d | (uint64_t) (b)[1].d << 16 | (uint64_t) (b)[2].d << 32 | (uint64_t) (b)[3].d << 48)
#define BYTES_OF(b, d) ((uint64_t) (b)[0].d | (uint64_t) (b)[1].d << 8 | (uint64_t) (b)[2].d << 16 | (uint64_t) (b)[3].d << 24)

UNPACK_INLINE float32x4_t floats_of_f16(uint64_t bits) {
    return vcvt_f32_f16(vreinterpret_f16_u64(vcreate_u64(bits)));
}

// Same result as scale_mxfp4 in unpack.h.
UNPACK_INLINE float32x4_t floats_of_bytes(uint64_t bits) {
    const uint32x4_t e = vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(bits))));
    const uint32x4_t normal = vsubq_u32(vshlq_n_u32(e, 23), vdupq_n_u32(1u << 23));
    const uint32x4_t least = vshlq_u32(vdupq_n_u32(0x00200000), vreinterpretq_s32_u32(e));
    return vreinterpretq_f32_u32(vbslq_u32(vcltq_u32(e, vdupq_n_u32(2)), least, normal));
}

// ---- the product ----

UNPACK_INLINE int32x4_t dot32(struct q32 x, const int8x16_t *y) {
    return vdotq_s32(vdotq_s32(zeros(), x.lo, y[0]), x.hi, y[1]);
}

struct row {
    struct raw next;         // the next block
    int32x4_t dot[4];        // partial sums of the blocks of a group
    int32x4_t half[2], fold; // dot after the first and second folding step
    float32x4_t part;        // fold as floats
    float32x4_t scale, sums; // scales of the previous group; result
};

enum extra { PLAIN, OFFSETS, SUMS }; // second field of a column group; PLAIN: none

// pack_block adds LARGE_BITS to each offset. So a sum plus its offset has the bits of the float LARGE + i, where i is the integer
// to convert. Subtracting LARGE gives i as a float (nibbles.h).
#define LARGE 0x1.8p23f // LARGE + i has the bits LARGE_BITS + i
#define LARGE_BITS 0x4b400000

UNPACK_INLINE float32x4_t floats_of_sums(int32x4_t fold, const enum extra extra) {
    return extra == OFFSETS ? vsubq_f32(vreinterpretq_f32_s32(fold), vdupq_n_f32(LARGE)) : vcvtq_f32_s32(fold);
}

#define MULTIPLY_BLOCK(r, j, expand, next_block, load) \
    do { \
        r.dot[j] = dot32(expand(&r.next), y_next); \
        r.next = load(next_block); \
    } while (0)

#define TWO_ROWS(type, load, expand, bits_of, floats_of, d, extra, m) \
    UNPACK_INLINE float32x2_t two_rows_##type(int64_t n, const block_##type *a, const block_##type *b, const char *y) { \
        const int32x4_t zero_s32 = vdupq_n_s32(0); \
        const float32x4_t zero_f32 = vdupq_n_f32(0.0f); \
        struct row ra = {load(a), {zero_s32, zero_s32, zero_s32, zero_s32}, {zero_s32, zero_s32}, zero_s32, zero_f32, zero_f32, \
                       zero_f32}, \
                   rb = ra; \
        rb.next = load(b); \
        int8x16_t y_next[2] = { \
            vld1q_s8((const int8_t *) y + HEAD(extra != PLAIN)), vld1q_s8((const int8_t *) y + HEAD(extra != PLAIN) + 16)}; \
        int32x4_t offsets = zero_s32; \
        for (int64_t left = n / 128; left > 0; left--) { \
            const int8_t *q = (const int8_t *) y + HEAD(extra != PLAIN); \
            const bool is_last = left == 1; /* the last group loads its last block a second time */ \
            const int step = is_last ? 3 : 4; \
            streams_prefetch(a, b); \
            const uint64_t bits_a = bits_of(a, d), bits_b = bits_of(b, d); \
            ra.half[1] = vpaddq_s32(ra.dot[2], ra.dot[3]); \
            rb.half[1] = vpaddq_s32(rb.dot[2], rb.dot[3]); \
            MULTIPLY_BLOCK(ra, 0, expand, a + 1, load); \
            MULTIPLY_BLOCK(rb, 0, expand, b + 1, load); \
            y_next[0] = vld1q_s8(q + 32); \
            y_next[1] = vld1q_s8(q + 48); \
            ra.fold = vpaddq_s32(ra.half[0], ra.half[1]); \
            rb.fold = vpaddq_s32(rb.half[0], rb.half[1]); \
            MULTIPLY_BLOCK(ra, 1, expand, a + 2, load); \
            MULTIPLY_BLOCK(rb, 1, expand, b + 2, load); \
            y_next[0] = vld1q_s8(q + 64); \
            y_next[1] = vld1q_s8(q + 80); \
            if (extra == OFFSETS) { \
                ra.fold = vaddq_s32(ra.fold, offsets); \
                rb.fold = vaddq_s32(rb.fold, offsets); \
                offsets = s32_at(y + 16); \
            } \
            ra.half[0] = vpaddq_s32(ra.dot[0], ra.dot[1]); \
            rb.half[0] = vpaddq_s32(rb.dot[0], rb.dot[1]); \
            const float32x4_t d_a = floats_of(bits_a), d_b = floats_of(bits_b); \
            MULTIPLY_BLOCK(ra, 2, expand, a + 3, load); \
            MULTIPLY_BLOCK(rb, 2, expand, b + 3, load); \
            y_next[0] = vld1q_s8(q + 96); \
            y_next[1] = vld1q_s8(q + 112); \
            ra.part = floats_of_sums(ra.fold, extra); \
            rb.part = floats_of_sums(rb.fold, extra); \
            const int8_t *next = is_last ? q : q + GROUP(extra != PLAIN); \
            MULTIPLY_BLOCK(ra, 3, expand, a + step, load); \
            MULTIPLY_BLOCK(rb, 3, expand, b + step, load); \
            y_next[0] = vld1q_s8(next); \
            y_next[1] = vld1q_s8(next + 16); \
            ra.sums = vfmaq_f32(ra.sums, ra.part, ra.scale); \
            rb.sums = vfmaq_f32(rb.sums, rb.part, rb.scale); \
            ra.scale = vmulq_f32(d_a, f32_at(y)); \
            rb.scale = vmulq_f32(d_b, f32_at(y)); \
            if (extra == SUMS) { \
                ra.sums = vfmaq_f32(ra.sums, floats_of(bits_of(a, m)), f32_at(y + 16)); \
                rb.sums = vfmaq_f32(rb.sums, floats_of(bits_of(b, m)), f32_at(y + 16)); \
            } \
            a += 4; \
            b += 4; \
            y += GROUP(extra != PLAIN); \
        } \
        ra.fold = vpaddq_s32(ra.half[0], vpaddq_s32(ra.dot[2], ra.dot[3])); \
        rb.fold = vpaddq_s32(rb.half[0], vpaddq_s32(rb.dot[2], rb.dot[3])); \
        if (extra == OFFSETS) { \
            ra.fold = vaddq_s32(ra.fold, offsets); \
            rb.fold = vaddq_s32(rb.fold, offsets); \
        } \
        ra.sums = vfmaq_f32(ra.sums, floats_of_sums(ra.fold, extra), ra.scale); \
        rb.sums = vfmaq_f32(rb.sums, floats_of_sums(rb.fold, extra), rb.scale); \
        return (float32x2_t){vaddvq_f32(ra.sums), vaddvq_f32(rb.sums)}; \
    }

UNPACK_INLINE float float_at(const char *at) {
    float f;
    memcpy(&f, at, sizeof f);
    return f;
}

UNPACK_INLINE int32_t int_at(const char *at) {
    int32_t i;
    memcpy(&i, at, sizeof i);
    return i;
}

// Multiplies the blocks after the last complete group.
#define REST(type, load, expand, d_of, extra, m_of) \
    UNPACK_INLINE float rest_##type(int n, const block_##type *x, const char *y) { \
        float sum = 0.0f; \
        for (int i = 0; i < n; i++) { \
            const int8_t *q = (const int8_t *) y + HEAD(extra != PLAIN) + 32 * i; \
            const int8x16_t v[2] = {vld1q_s8(q), vld1q_s8(q + 16)}; \
            const struct raw raw = load(&x[i]); \
            const int32_t dot = \
                vaddvq_s32(dot32(expand(&raw), v)) + (extra == OFFSETS ? int_at(y + 16 + 4 * i) - LARGE_BITS : 0); \
            sum = fmaf((float) dot, d_of(&x[i]) * float_at(y + 4 * i), sum); \
            if (extra == SUMS) { \
                sum = fmaf(m_of(&x[i]), float_at(y + 16 + 4 * i), sum); \
            } \
        } \
        return sum; \
    }

#define GEMV(type, extra) \
    static void gemv_##type(int64_t n, float *s, const void *x, size_t bx, int nx, const void *vy) { \
        const char *y_rest = (const char *) vy + n / 128 * GROUP(extra != PLAIN); \
        const int n_rest = (int) (n / 32 % 4); \
        for (struct streams at = streams(s, x, bx, nx); streams_have(&at); streams_next(&at)) { \
            const block_##type *a = (const void *) at.a, *b = (const void *) at.b; \
            float v[2] = {0}; \
            if (n >= 128) { \
                vst1_f32(v, two_rows_##type(n, a, b, vy)); \
            } \
            if (n_rest > 0) { \
                v[0] += rest_##type(n_rest, a + n / 128 * 4, y_rest); \
                v[1] += rest_##type(n_rest, b + n / 128 * 4, y_rest); \
            } \
            *at.s_a = v[0]; \
            *at.s_b = v[1]; \
        } \
    }

#define F16_D(b) f16_as_float(&(b)->d)
#define F16_M(b) f16_as_float(&(b)->m)
#ifdef __ARM_FEATURE_DOTPROD
#    include "cpu/arm/nibbles.h"
#else
TWO_ROWS(q4_0, LOAD_NIBBLES, expand_nibbles, F16_OF, floats_of_f16, d, OFFSETS, d)
TWO_ROWS(iq4_nl, LOAD_NIBBLES, expand_iq4_nl, F16_OF, floats_of_f16, d, PLAIN, d)
TWO_ROWS(mxfp4, LOAD_NIBBLES, expand_mxfp4, BYTES_OF, floats_of_bytes, e, PLAIN, e)
#endif
#define Q32(type, load, expand, extra, d_of, m_of) \
    REST(type, load, expand, d_of, extra, m_of) \
    GEMV(type, extra)
#define Q32_TWO_ROWS(type, load, expand, extra, m, m_of) \
    TWO_ROWS(type, load, expand, F16_OF, floats_of_f16, d, extra, m) \
    Q32(type, load, expand, extra, F16_D, m_of)
Q32(q4_0, LOAD_NIBBLES, expand_nibbles, OFFSETS, F16_D, F16_D)
Q32(iq4_nl, LOAD_NIBBLES, expand_iq4_nl, PLAIN, F16_D, F16_D)
Q32(mxfp4, LOAD_NIBBLES, expand_mxfp4, PLAIN, scale_mxfp4, scale_mxfp4)
Q32_TWO_ROWS(q5_0, LOAD_5BIT, expand_q5_0, PLAIN, d, F16_D)
Q32_TWO_ROWS(q4_1, LOAD_NIBBLES, expand_nibbles, SUMS, m, F16_M)
Q32_TWO_ROWS(q5_1, LOAD_5BIT, expand_q5_1, SUMS, m, F16_M)

// ---- the column ----

UNPACK_INLINE void pack_block(char *to, int j, const float *y, const enum extra extra) {
    int8x16_t lo, hi;
    float d;
    if (bytes32(y, &lo, &hi, &d)) {
        d = rounded_to_f16(d);
    } else {
        block_q8_0 b;
        block_q8_0_of(y, &b);
        lo = vld1q_s8(b.qs);
        hi = vld1q_s8(b.qs + 16);
        d = f16_as_float(&b.d);
    }
    memcpy(to + 4 * j, &d, sizeof d);
    if (extra == OFFSETS) {
        const int32_t offset = LARGE_BITS - 8 * vaddlvq_s16(vaddq_s16(vpaddlq_s8(lo), vpaddlq_s8(hi)));
        memcpy(to + 16 + 4 * j, &offset, sizeof offset);
    }
    vst1q_s8((int8_t *) to + HEAD(extra != PLAIN) + 32 * j, lo);
    vst1q_s8((int8_t *) to + HEAD(extra != PLAIN) + 32 * j + 16, hi);
}

UNPACK_INLINE void pack_blocks(int64_t n, char *to, const float *y, const enum extra extra) {
    for (int64_t i = 0; i < n / 32; i++) {
        pack_block(to + i / 4 * GROUP(extra != PLAIN), (int) (i % 4), y + i * 32, extra);
    }
}

static void pack_q8_0(CPU_TABLE, int64_t n, void *panel, const float *y) {
    pack_blocks(n, panel, y, PLAIN);
}

static void pack_q8_0_offsets(CPU_TABLE, int64_t n, void *panel, const float *y) {
    pack_blocks(n, panel, y, OFFSETS);
}

static void pack_q8_1(CPU_TABLE, int64_t n, void *panel, const float *y) {
    char *to = panel;
    for (int64_t i = 0; i < n; i += 128, to += GROUP(1)) {
        const int m = n - i < 128 ? (int) (n - i) : 128;
        for (int j = 0; j < m / 32; j++) {
            block_q8_1 b;
            block_q8_1_of(y + i + 32 * j, &b);
            const float d = f16_as_float(&b.d), sum = f16_as_float(&b.s);
            memcpy(to + 4 * j, &d, sizeof d);
            memcpy(to + 16 + 4 * j, &sum, sizeof sum);
            memcpy(to + HEAD(1) + 32 * j, b.qs, 32);
        }
    }
}

#ifndef __ARM_FEATURE_DOTPROD // with dotprod, gemv_q8_0__dotprod.c has the kernel of q8_0
// Memory limits the speed of q8_0, and the hardware prefetches one sequential row best.
UNPACK_INLINE float one_row_q8_0(int64_t n, const block_q8_0 *x, const char *y) {
    const int32x4_t zero_s32 = vdupq_n_s32(0);
    const float32x4_t zero_f32 = vdupq_n_f32(0.0f);
    struct row r = {
        LOAD_BYTES(x), {zero_s32, zero_s32, zero_s32, zero_s32}, {zero_s32, zero_s32}, zero_s32, zero_f32, zero_f32, zero_f32};
    int8x16_t y_next[2] = {vld1q_s8((const int8_t *) y + HEAD(0)), vld1q_s8((const int8_t *) y + HEAD(0) + 16)};
    for (int64_t left = n / 128; left > 0; left--, x += 4, y += GROUP(0)) {
        const int8_t *q = (const int8_t *) y + HEAD(0), *next = left > 1 ? q + GROUP(0) : q;
        for (size_t i = 0; i < 4 * sizeof *x; i += 64) {
            __builtin_prefetch((const char *) x + STREAMS_AHEAD + i, 0, 2);
        }
        const uint64_t bits = F16_OF(x, d);
        r.half[1] = vpaddq_s32(r.dot[2], r.dot[3]);
        MULTIPLY_BLOCK(r, 0, expand_bytes, x + 1, LOAD_BYTES);
        y_next[0] = vld1q_s8(q + 32);
        y_next[1] = vld1q_s8(q + 48);
        r.fold = vpaddq_s32(r.half[0], r.half[1]);
        MULTIPLY_BLOCK(r, 1, expand_bytes, x + 2, LOAD_BYTES);
        y_next[0] = vld1q_s8(q + 64);
        y_next[1] = vld1q_s8(q + 80);
        r.half[0] = vpaddq_s32(r.dot[0], r.dot[1]);
        const float32x4_t d = floats_of_f16(bits);
        MULTIPLY_BLOCK(r, 2, expand_bytes, x + 3, LOAD_BYTES);
        y_next[0] = vld1q_s8(q + 96);
        y_next[1] = vld1q_s8(q + 112);
        r.part = vcvtq_f32_s32(r.fold);
        MULTIPLY_BLOCK(r, 3, expand_bytes, x + (left > 1 ? 4 : 3), LOAD_BYTES);
        y_next[0] = vld1q_s8(next);
        y_next[1] = vld1q_s8(next + 16);
        r.sums = vfmaq_f32(r.sums, r.part, r.scale);
        r.scale = vmulq_f32(d, f32_at(y));
    }
    r.fold = vpaddq_s32(r.half[0], vpaddq_s32(r.dot[2], r.dot[3]));
    return vaddvq_f32(vfmaq_f32(r.sums, vcvtq_f32_s32(r.fold), r.scale));
}

REST(q8_0, LOAD_BYTES, expand_bytes, F16_D, PLAIN, F16_D)

static void gemv_q8_0(int64_t n, float *s, const void *x, size_t bx, int nx, const void *y) {
    const char *y_rest = (const char *) y + n / 128 * GROUP(0);
    for (int r = 0; r < nx; r++) {
        const block_q8_0 *row = (const void *) ((const char *) x + (size_t) r * bx);
        s[r] = n >= 128 ? one_row_q8_0(n, row, y) : 0.0f;
        if (n % 128 != 0) {
            s[r] += rest_q8_0((int) (n / 32 % 4), row + n / 128 * 4, y_rest);
        }
    }
}
#endif

void CPU_TIER_FILL(gemv_q32)(struct cpu_kernels *k) {
#define ROW(TYPE, type, y, has_extra) \
    k->gemv[GGML_TYPE_##TYPE] = \
        (struct cpu_gemv){.pack_y = pack_##y, .run = gemv_##type, .step = 128, .y_size = GROUP(has_extra)};
    ROW(Q4_0, q4_0, q8_0_offsets, 1)
    ROW(Q5_0, q5_0, q8_0, 0)
    ROW(IQ4_NL, iq4_nl, q8_0, 0)
    ROW(MXFP4, mxfp4, q8_0, 0)
    ROW(Q4_1, q4_1, q8_1, 1)
    ROW(Q5_1, q5_1, q8_1, 1)
#ifndef __ARM_FEATURE_DOTPROD
    ROW(Q8_0, q8_0, q8_0, 0)
#endif
}

#undef ROW
