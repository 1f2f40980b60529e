// SPDX-License-Identifier: MIT
// gemv_q8_0__dotprod.c: one column times rows of q8_0, two rows at a time (streams.h). The kernel reads 18.4 of at most 19.5 GB/s
// on a Neoverse N1; a kernel with one row at a time reads 17.4 GB/s.
//
// The quants of three of four blocks are unaligned, and unaligned loads take two cycles. So four blocks (136 bytes) are loaded
// together, including the scales:
//   scale | 2 .. 33 block 0 | scale | 36 .. 67 block 1 | scale | 70 .. 101 block 2 | scale | 104 .. 135 block 3
// The column has the same layout, with zeros at the positions of the scales. A lane of SDOT never contains elements of two
// blocks. The last bytes of block 2 and the first bytes of block 3 share a vector. The sums of this vector (dot_late) are added
// after the first folding step.
//
// The column consists of groups of four blocks: [4 scales] [10 vectors] [16 unused bytes, so that a group is three cache lines].
// After the groups, the remaining blocks are stored as [4 scales] [32 bytes per block].

#include "cpu/arm/quantize.h"
#include "cpu/arm/streams.h"
#include "cpu/arm/unpack.h"
#include "cpu/kernels.h"

#include <math.h>

#define N_VECTORS 10
#define GROUP 192

UNPACK_INLINE int8x16_t bytes_at(const char *at) {
    return vld1q_s8((const int8_t *) at);
}

// Loads 8 bytes followed by zeros. Compilers use two instructions.
UNPACK_INLINE int8x16_t last_bytes(const char *at) {
    int8x16_t v;
    __asm__("ldr %d0, %1" : "=w"(v) : "Q"(*(const int64_t *) (const void *) at));
    return v;
}

UNPACK_INLINE float32x4_t f32_at(const char *at) {
    return vld1q_f32((const float *) (const void *) at);
}

// Returns the scales of four blocks, from vectors that begin at bytes 0, 32, 64 and 96. Compilers would copy x0, which takes a
// cycle.
UNPACK_INLINE float32x4_t scales_of(int8x16_t x0, int8x16_t x32, int8x16_t x64, int8x16_t x96) {
    __asm__("mov %0.h[1], %1.h[1]\n\tmov %0.h[2], %2.h[2]\n\tmov %0.h[3], %3.h[3]" : "+w"(x0) : "w"(x32), "w"(x64), "w"(x96));
    return vcvt_f32_f16(vreinterpret_f16_s8(vget_low_s8(x0)));
}

struct group {
    int32x4_t dot[4];   // partial sums of each block
    int32x4_t dot_late; // partial sums of blocks 2 and 3, added after the first folding step
    float32x4_t scales; // of the row
};

UNPACK_INLINE struct group group_of(const char *x, const int8x16_t *v) {
    const int8x16_t x0 = bytes_at(x), x32 = bytes_at(x + 32), x64 = bytes_at(x + 64), x96 = bytes_at(x + 96);
    struct group g;
    g.dot[0] = vdotq_s32(vdotq_s32(vdotq_s32(zeros(), x0, v[0]), bytes_at(x + 16), v[1]), x32, v[2]);
    g.dot[1] = vdotq_s32(vdotq_s32(zeros(), bytes_at(x + 36), v[3]), bytes_at(x + 52), v[4]);
    g.dot[2] = vdotq_s32(vdotq_s32(zeros(), x64, v[5]), bytes_at(x + 80), v[6]);
    g.dot[3] = vdotq_s32(vdotq_s32(zeros(), bytes_at(x + 112), v[8]), last_bytes(x + 128), v[9]);
    g.dot_late = vdotq_s32(zeros(), x96, v[7]);
    g.scales = scales_of(x0, x32, x64, x96);
    return g;
}

// d: the scales of the column.
UNPACK_INLINE float32x4_t group_add(float32x4_t sums, const struct group *g, float32x4_t d) {
    const int32x4_t b23 = vaddq_s32(vpaddq_s32(g->dot[2], g->dot[3]), g->dot_late);
    const int32x4_t dots = vpaddq_s32(vpaddq_s32(g->dot[0], g->dot[1]), b23);
    return vfmaq_f32(sums, vcvtq_f32_s32(dots), vmulq_f32(g->scales, d));
}

UNPACK_INLINE float float_at(const char *at) {
    float f;
    memcpy(&f, at, sizeof f);
    return f;
}

static float row_rest(int n, const block_q8_0 *x, const char *y) {
    float sum = 0.0f;
    for (int i = 0; i < n; i++) {
        const int32x4_t half = vdotq_s32(zeros(), vld1q_s8(x[i].qs), bytes_at(y + 16 + 32 * i));
        const int32x4_t dot = vdotq_s32(half, vld1q_s8(x[i].qs + 16), bytes_at(y + 32 + 32 * i));
        sum = fmaf((float) vaddvq_s32(dot), f16_as_float(&x[i].d) * float_at(y + 4 * i), sum);
    }
    return sum;
}

static void gemv_q8_0__dotprod(int64_t n, float *s, const void *x, size_t bx, int nx, const void *y) {
    const int64_t n_groups = n / 128;
    const int n_rest = (int) (n / 32 % 4);
    for (struct streams at = streams(s, x, bx, nx); streams_have(&at); streams_next(&at)) {
        const char *a = at.a, *b = at.b, *column = y;
        float32x4_t sums_a = vdupq_n_f32(0.0f), sums_b = sums_a, d_b = sums_a;
        struct group last = {{zeros(), zeros(), zeros(), zeros()}, zeros(), sums_a}; // group of row b, folded one group later
        for (int64_t i = 0; i < n_groups; i++, column += GROUP) {
            const float32x4_t d = f32_at(column);
            int8x16_t v[N_VECTORS];
            for (int j = 0; j < N_VECTORS; j++) {
                v[j] = bytes_at(column + 16 + 16 * j);
            }
            const struct group group_a = group_of(a, v);
            sums_b = group_add(sums_b, &last, d_b);
            last = group_of(b, v);
            sums_a = group_add(sums_a, &group_a, d);
            d_b = d;
            a += 4 * sizeof(block_q8_0);
            b += 4 * sizeof(block_q8_0);
        }
        sums_b = group_add(sums_b, &last, d_b);
        float s_a = vaddvq_f32(sums_a), s_b = vaddvq_f32(sums_b);
        if (n_rest > 0) {
            s_a += row_rest(n_rest, (const void *) a, column);
            s_b += row_rest(n_rest, (const void *) b, column);
        }
        *at.s_a = s_a;
        *at.s_b = s_b;
    }
}

// ---- the column ----

// Returns the scale.
UNPACK_INLINE float pack_block(int8_t *to, const float *y) {
    int8x16_t lo, hi;
    float d;
    if (!bytes32(y, &lo, &hi, &d)) {
        block_q8_0 b;
        block_q8_0_of(y, &b);
        memcpy(to, b.qs, 32);
        return f16_as_float(&b.d);
    }
    vst1q_s8(to, lo);
    vst1q_s8(to + 16, hi);
    return rounded_to_f16(d);
}

UNPACK_INLINE void pack_group(char *to, const char *x) {
    const int8x16_t first = {-1, -1, -1, -1};
    const int8x16_t v[N_VECTORS] = {bytes_at(x), bytes_at(x + 16), vandq_s8(bytes_at(x + 32), first), bytes_at(x + 36),
        bytes_at(x + 52), vbicq_s8(bytes_at(x + 64), first), bytes_at(x + 80), bytes_at(x + 96), bytes_at(x + 112),
        last_bytes(x + 128)};
    for (int j = 0; j < N_VECTORS; j++) {
        vst1q_s8((int8_t *) to + 16 * j, v[j]);
    }
}

static void pack_q8_0__dotprod(CPU_TABLE, int64_t n, void *panel, const float *y) {
    char *to = panel;
    for (; n >= 128; n -= 128, y += 128, to += GROUP) {
        block_q8_0 x[4];
        float d[4];
        for (int j = 0; j < 4; j++) {
            d[j] = pack_block(x[j].qs, y + 32 * j);
            x[j].d = 0;
        }
        memcpy(to, d, sizeof d);
        pack_group(to + 16, (const char *) x);
    }
    for (int j = 0; j < n / 32; j++) {
        const float d = pack_block((int8_t *) to + 16 + 32 * j, y + 32 * j);
        memcpy(to + 4 * j, &d, sizeof d);
    }
}

void cpu_tier_dotprod_gemv_q8_0(struct cpu_kernels *k) {
    k->gemv[GGML_TYPE_Q8_0] =
        (struct cpu_gemv){.pack_y = pack_q8_0__dotprod, .run = gemv_q8_0__dotprod, .step = 128, .y_size = GROUP};
}
