// SPDX-License-Identifier: MIT
// gemv_k.h: one column times rows of q4_K and q5_K, two rows (a and b) at a time (streams.h). A section is two of the 8 runs of
// a block. The code is software-pipelined over sections: load i + 1, multiply i, fold i - 1, scale i - 2. The pipelining saves a
// quarter of the time on a Neoverse V1 (docs/user/speed.md).
//
// Vectors hold both rows:
//   folded dots of a section  {a low, a high, b low, b high}: the low nibbles are the first run, the high nibbles the second
//   sums of minima of a block {a, a, b, b}
//   both, folded together     {a, b, minima of a, minima of b}
// The minima are multiplied with the sums of y over the runs. A sum has 13 bits. The negated sum is stored as two
// bytes for SDOT, 128 hi + lo. Because the sum is negated, the kernel adds the products.
#pragma once

#include "cpu/arm/quantize.h"
#include "cpu/arm/streams.h"
#include "cpu/arm/unpack.h"
#include "cpu/kernels.h"

struct y_block {
    int8_t qs[QK_K];
    int8_t sums_hi[16], sums_lo[16]; // negated sums of the 8 runs, stored twice
    float d, pad[3];
};

struct section {
    uint8x16_t a[2], b[2];
    int8x16_t y[4];
};

// Sums of lanes before folding (dots) and after the first folding step (half_folded).
struct dots {
    int32x4_t a_low, b_low, a_high, b_high;
};
struct half_folded {
    int32x4_t a, b;
};

UNPACK_INLINE void load_section(struct section *s, const uint8_t *a, const uint8_t *b, const int8_t *y) {
    for (int j = 0; j < 2; j++) {
        s->a[j] = vld1q_u8(a + 16 * j);
    }
    for (int j = 0; j < 2; j++) {
        s->b[j] = vld1q_u8(b + 16 * j);
    }
    for (int j = 0; j < 4; j++) {
        s->y[j] = vld1q_s8(y + 16 * j);
    }
}

UNPACK_INLINE int32x4_t dot2(uint8x16_t x0, uint8x16_t x1, const int8x16_t *y) {
    return vdotq_s32(vdotq_s32(zeros(), s8(x0), y[0]), s8(x1), y[1]);
}

UNPACK_INLINE struct dots dots_q4_K(const struct section *s) {
    return (struct dots){
        .a_low = dot2(low4(s->a[0]), low4(s->a[1]), s->y),
        .b_low = dot2(low4(s->b[0]), low4(s->b[1]), s->y),
        .a_high = dot2(vshrq_n_u8(s->a[0], 4), vshrq_n_u8(s->a[1], 4), s->y + 2),
        .b_high = dot2(vshrq_n_u8(s->b[0], 4), vshrq_n_u8(s->b[1], 4), s->y + 2),
    };
}

// Applies the first folding step to d and stores the result in *h. Returns the folded dots that *h held before.
UNPACK_INLINE int32x4_t fold(struct half_folded *h, const struct dots *d) {
    const int32x4_t folded = vpaddq_s32(h->a, h->b);
    h->a = vpaddq_s32(d->a_low, d->a_high);
    h->b = vpaddq_s32(d->b_low, d->b_high);
    return folded;
}

// Byte indices that move the scales of section j to the lanes of the folded dots. Index 255 gives 0.
static const uint8_t scale_index[4][16] = {
#define INDEX(j) \
    { j, 255, 255, 255, j + 1, 255, 255, 255, j + 8, 255, 255, 255, j + 9, 255, 255, 255 }
    INDEX(0),
    INDEX(2),
    INDEX(4),
    INDEX(6),
#undef INDEX
};

UNPACK_INLINE int32x4_t scales_at(uint8x16_t both, int j) {
    return vreinterpretq_s32_u8(vqtbl1q_u8(both, vld1q_u8(scale_index[j])));
}

// d, dmin and scales of a block of row a and a block of row b.
struct heads {
    uint8x16_t scales; // 8 scales of a, then 8 of b
    int8x16_t mins;    // 8 minima of a, then 8 of b
    float32x4_t d;     // {d of a, d of b, dmin of a, dmin of b}
};

UNPACK_INLINE uint16x4_t two_f16(const char *at) {
    uint32_t two;
    memcpy(&two, at, sizeof two);
    return vreinterpret_u16_u32(vset_lane_u32(two, vdup_n_u32(0), 0));
}

UNPACK_INLINE struct heads heads_of(const char *a, const char *b) {
    uint8x8_t scales_a, mins_a, scales_b, mins_b;
    scales_6bit((const uint8_t *) a + 4, &scales_a, &mins_a);
    scales_6bit((const uint8_t *) b + 4, &scales_b, &mins_b);
    return (struct heads){
        .scales = vcombine_u8(scales_a, scales_b),
        .mins = s8(vcombine_u8(mins_a, mins_b)),
        .d = vcvt_f32_f16(vreinterpret_f16_u16(vzip1_u16(two_f16(a), two_f16(b)))),
    };
}

// The fifth bits of q5_K: bit r of each byte belongs to run r.
struct fifths {
    uint8x16_t a[2], b[2];
};

UNPACK_INLINE void load_fifths(struct fifths *f, const uint8_t *a, const uint8_t *b) {
    for (int j = 0; j < 2; j++) {
        f->a[j] = vld1q_u8(a + 16 * j);
        f->b[j] = vld1q_u8(b + 16 * j);
    }
}

UNPACK_INLINE struct dots dots_q5_K(const struct section *s, const struct fifths *f, const int j) {
    uint8x16_t v[8];
    for (int i = 0; i < 2; i++) {
        v[i] = with_fifth(low4(s->a[i]), f->a[i], 2 * j);
        v[2 + i] = with_fifth(low4(s->b[i]), f->b[i], 2 * j);
        v[4 + i] = with_fifth(vshrq_n_u8(s->a[i], 4), f->a[i], 2 * j + 1);
        v[6 + i] = with_fifth(vshrq_n_u8(s->b[i], 4), f->b[i], 2 * j + 1);
    }
    return (struct dots){dot2(v[0], v[1], s->y), dot2(v[2], v[3], s->y), dot2(v[4], v[5], s->y + 2), dot2(v[6], v[7], s->y + 2)};
}

// Bytes of the head (d, dmin, scales). In q5_K the fifth bits follow the head.
#define HEAD 16
_Static_assert(offsetof(block_q4_K, qs) == HEAD && offsetof(block_q5_K, qh) == HEAD, "a block's head");
_Static_assert(offsetof(block_q4_K, scales) == offsetof(block_q5_K, scales), "a block's head");

// Adds a block to the sums. is_invariant: first the minima, then the dots, to the sums in the lower half, as gemm_q__*.c do.
UNPACK_INLINE float32x4_t add_block(float32x4_t sums, float32x4_t ended, float32x4_t d, const bool is_invariant) {
    if (!is_invariant) {
        return vfmaq_f32(sums, ended, d);
    }
    const float32x2_t low = vfma_f32(vget_low_f32(sums), vget_high_f32(ended), vget_high_f32(d));
    return vcombine_f32(vfma_f32(low, vget_low_f32(ended), vget_low_f32(d)), vdup_n_f32(0.0f));
}

UNPACK_INLINE void store_two(const struct streams *at, float32x4_t sums) {
    const float32x2_t v = vadd_f32(vget_low_f32(sums), vget_high_f32(sums));
    *at->s_a = vget_lane_f32(v, 0);
    *at->s_b = vget_lane_f32(v, 1);
}

// The pipeline finishes a pair of rows while the next pair begins.
UNPACK_INLINE void rows_run(
    int64_t n_blocks, struct streams at, const struct y_block *column, const bool is_q5, const bool is_invariant) {
    const size_t size = is_q5 ? sizeof(block_q5_K) : sizeof(block_q4_K), quants = is_q5 ? offsetof(block_q5_K, qs) : HEAD;
    const int32x4_t zero = vdupq_n_s32(0);
    struct dots dots = {zero, zero, zero, zero};
    struct half_folded half = {zero, zero};
    int32x4_t block_sum = zero, mins = zero, scales2 = zero, scales3 = zero;
    float32x4_t sums = vdupq_n_f32(0.0f), d = sums;
    const struct y_block *y = column;
    const char *a = at.a, *b = at.b;
    // The pair whose results are stored next. The first store writes zeros, which the first pair overwrites.
    struct streams previous = at;
    struct section s;
    struct fifths f;
    load_section(&s, (const uint8_t *) a + quants, (const uint8_t *) b + quants, y->qs);
    if (is_q5) {
        load_fifths(&f, (const uint8_t *) a + HEAD, (const uint8_t *) b + HEAD);
    }
#define SECTION(j, scales, next_a, next_b, next_y) \
    block_sum = vmlaq_s32(block_sum, fold(&half, &dots), scales); \
    dots = is_q5 ? dots_q5_K(&s, &f, j) : dots_q4_K(&s); \
    load_section(&s, (const uint8_t *) (next_a) + quants, (const uint8_t *) (next_b) + quants, next_y);

    for (int64_t left = n_blocks; left > 0;) {
        const bool first = left == n_blocks;
        streams_prefetch(a, b);
        SECTION(0, scales2, a + 32, b + 32, y->qs + 64) // uses scales of the previous block
        const struct heads h = heads_of(a, b);
        SECTION(1, scales3, a + 64, b + 64, y->qs + 128)
        const float32x4_t ended = vcvtq_f32_s32(vpaddq_s32(block_sum, mins));
        block_sum = zero;
        mins = vshlq_n_s32(vdotq_s32(zeros(), h.mins, vld1q_s8(y->sums_hi)), 7);
        SECTION(2, scales_at(h.scales, 0), a + 96, b + 96, y->qs + 192)
        sums = add_block(sums, ended, d, is_invariant);
        if (first) {
            store_two(&previous, sums);
            sums = vdupq_n_f32(0.0f);
            previous = at;
        }
        d = vmulq_n_f32(h.d, y->d);
        mins = vdotq_s32(mins, h.mins, vld1q_s8(y->sums_lo));
        if (--left > 0) {
            a += size;
            b += size;
            y++;
        } else {
            streams_next(&at);
            if (streams_have(&at)) {
                left = n_blocks;
                a = at.a;
                b = at.b;
                y = column;
            }
        }
        SECTION(3, scales_at(h.scales, 1), a, b, y->qs)
        if (is_q5) {
            load_fifths(&f, (const uint8_t *) a + HEAD, (const uint8_t *) b + HEAD);
        }
        scales2 = scales_at(h.scales, 2);
        scales3 = scales_at(h.scales, 3);
    }
#undef SECTION
    block_sum = vmlaq_s32(block_sum, fold(&half, &dots), scales2);
    block_sum = vmlaq_s32(block_sum, fold(&half, &dots), scales3);
    store_two(&previous, add_block(sums, vcvtq_f32_s32(vpaddq_s32(block_sum, mins)), d, is_invariant));
}

#define GEMV(name, is_q5, is_invariant) \
    static void gemv_##name(int64_t n, float *s, const void *x, size_t bx, int nx, const void *y) { \
        if (n == 0) { \
            memset(s, 0, (size_t) nx * sizeof *s); \
        } else if (nx > 0) { \
            rows_run(n / QK_K, streams(s, x, bx, nx), y, is_q5, is_invariant); \
        } \
    }
GEMV(q4_K, false, false)
GEMV(q5_K, true, false)
GEMV(q4_K_invariant, false, true)
GEMV(q5_K_invariant, true, true)

static void pack_gemv_k(CPU_TABLE, int64_t n, void *panel, const float *y) {
    struct y_block *to = panel;
    for (int64_t i = 0; i < n / QK_K; i++) {
        block_q8_K b;
        block_q8_K_of(y + i * QK_K, &b);
        memcpy(to[i].qs, b.qs, sizeof b.qs);
        for (int j = 0; j < 8; j++) {
            const int sum = -(b.bsums[2 * j] + b.bsums[2 * j + 1]), lo = ((sum + 64) & 127) - 64;
            to[i].sums_lo[j] = to[i].sums_lo[8 + j] = (int8_t) lo;
            to[i].sums_hi[j] = to[i].sums_hi[8 + j] = (int8_t) ((sum - lo) / 128);
        }
        to[i].d = b.d;
    }
}

void CPU_TIER_FILL(gemv_k)(struct cpu_kernels *k) {
    const struct cpu_gemv gemv = {.pack_y = pack_gemv_k, .step = QK_K, .y_size = sizeof(struct y_block)};
    k->gemv[GGML_TYPE_Q4_K] = k->gemv[GGML_TYPE_Q5_K] = gemv;
    k->gemv[GGML_TYPE_Q4_K].run = gemv_q4_K;
    k->gemv[GGML_TYPE_Q4_K].run_invariant = gemv_q4_K_invariant;
    k->gemv[GGML_TYPE_Q5_K].run = gemv_q5_K;
    k->gemv[GGML_TYPE_Q5_K].run_invariant = gemv_q5_K_invariant;
}
