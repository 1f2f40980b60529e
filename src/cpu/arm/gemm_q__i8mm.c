// SPDX-License-Identifier: MIT
// gemm_q__i8mm.c: products of quantised rows with many columns: 8 rows times 4 columns of bytes at once by smmla, which
// multiplies 2 rows of 8 bytes with 2 others. Panels hold the bytes as smmla wants them and scales as vectors that fit its
// results, so that what unpacking costs is paid once for all columns.
//
// A vector of a result is {x0 y0, x1 y0, x0 y1, x1 y1} for a pair of rows x and a pair of columns y. Panels, with pairs p and
// steps j of 8 elements:
//   blocks of 32:  x: [scale: p {x0 x1 x0 x1}] [min: likewise]? [bytes: j, p {x0: 8, x1: 8}]
//                  y: [scale: p {y0 y0 y1 y1}] [sum: likewise]? [bytes: j, p {y0: 8, y1: 8}]
//   blocks of 256: x: [d: p] [scales of runs: run, p, int32] [minima of runs: run, p, float]? [bytes]
//                  y: [d: p] [sums of runs: run, p, float]? [bytes]
// Rows and columns that are missing are copies of the first; what they give is not stored.

#include "cpu/arm/tiers.h"
#include "cpu/arm/unpack.h"

#include "quant/quants.h"

#define MR 8
#define NR 4
#define PX (MR / 2)
#define PY (NR / 2)
#define X_LINE (PX * 16) // bytes of one vector for each pair
#define Y_LINE (PY * 16)

static ggml_from_float_t to_q8_0, to_q8_1, to_q8_K; // set once by cpu_tier_i8mm_gemm

// ---- the product ----

UNPACK_INLINE float32x4_t f32_at(const char *at) {
    return vld1q_f32((const float *) (const void *) at);
}

UNPACK_INLINE int8x16_t s8_at(const char *at) {
    return vld1q_s8((const int8_t *) (const void *) at);
}

UNPACK_INLINE int32x4_t s32_at(const char *at) {
    return vld1q_s32((const int32_t *) (const void *) at);
}

// n_steps times 8 elements of all pairs with all pairs.
UNPACK_INLINE void multiply(int32x4_t t[PX][PY], const char *x, const char *y, int n_steps) {
    for (int p = 0; p < PX; p++) {
        for (int q = 0; q < PY; q++) {
            t[p][q] = zeros();
        }
    }
    for (int j = 0; j < n_steps; j++) {
        int8x16_t b[PY];
        for (int q = 0; q < PY; q++) {
            b[q] = s8_at(y + j * Y_LINE + q * 16);
        }
        for (int p = 0; p < PX; p++) {
            const int8x16_t a = s8_at(x + j * X_LINE + p * 16);
            for (int q = 0; q < PY; q++) {
                t[p][q] = vmmlaq_s32(t[p][q], b[q], a);
            }
        }
    }
}

UNPACK_INLINE void store(float32x4_t sum[PX][PY], float *s, int64_t ld_s, int nx, int ny) {
    float tile[NR][MR];
    for (int p = 0; p < PX; p++) {
        for (int q = 0; q < PY; q++) {
            vst1_f32(&tile[2 * q][2 * p], vget_low_f32(sum[p][q]));
            vst1_f32(&tile[2 * q + 1][2 * p], vget_high_f32(sum[p][q]));
        }
    }
    for (int c = 0; c < ny; c++) {
        if (nx == MR) { // a size the compiler knows
            memcpy(s + c * ld_s, tile[c], sizeof tile[c]);
        } else {
            memcpy(s + c * ld_s, tile[c], (size_t) nx * sizeof(float));
        }
    }
}

UNPACK_INLINE void run_32(int64_t n, float *s, int64_t ld_s, const char *x, int nx, const char *y, int ny, const bool has_min) {
    const int lines = has_min ? 2 : 1;
    float32x4_t sum[PX][PY];
    int32x4_t t[PX][PY];
    for (int p = 0; p < PX; p++) {
        for (int q = 0; q < PY; q++) {
            sum[p][q] = vdupq_n_f32(0.0f);
        }
    }
    for (int64_t i = 0; i < n / 32; i++, x += (lines + 4) * X_LINE, y += (lines + 4) * Y_LINE) {
        multiply(t, x + lines * X_LINE, y + lines * Y_LINE, 4);
        for (int p = 0; p < PX; p++) {
            for (int q = 0; q < PY; q++) {
                const float32x4_t d = vmulq_f32(f32_at(x + p * 16), f32_at(y + q * 16));
                sum[p][q]           = vfmaq_f32(sum[p][q], vcvtq_f32_s32(t[p][q]), d);
                if (has_min) {
                    sum[p][q] = vfmaq_f32(sum[p][q], f32_at(x + X_LINE + p * 16), f32_at(y + Y_LINE + q * 16));
                }
            }
        }
    }
    store(sum, s, ld_s, nx, ny);
}

#define STEPS_256 32 // of 8 elements

UNPACK_INLINE void run_256(
    int64_t n, float *s, int64_t ld_s, const char *x, int nx, const char *y, int ny, const int n_runs, const bool has_min) {
    const int steps = STEPS_256 / n_runs, x_head = 1 + (has_min ? 2 : 1) * n_runs, y_head = 1 + (has_min ? n_runs : 0);
    float32x4_t sum[PX][PY];
    int32x4_t t[PX][PY], whole[PX][PY];
    for (int p = 0; p < PX; p++) {
        for (int q = 0; q < PY; q++) {
            sum[p][q] = vdupq_n_f32(0.0f);
        }
    }
    for (int64_t i = 0; i < n / QK_K; i++, x += (x_head + STEPS_256) * X_LINE, y += (y_head + STEPS_256) * Y_LINE) {
        for (int p = 0; p < PX; p++) {
            for (int q = 0; q < PY; q++) {
                whole[p][q] = vdupq_n_s32(0);
            }
        }
        const char *scales = x + X_LINE, *mins = scales + n_runs * X_LINE, *sums = y + Y_LINE;
        const char *xq = x + x_head * X_LINE, *yq = y + y_head * Y_LINE;
        for (int r = 0; r < n_runs; r++, scales += X_LINE, xq += steps * X_LINE, yq += steps * Y_LINE) {
            multiply(t, xq, yq, steps);
            for (int p = 0; p < PX; p++) {
                const int32x4_t scale = s32_at(scales + p * 16);
                for (int q = 0; q < PY; q++) {
                    whole[p][q] = vmlaq_s32(whole[p][q], t[p][q], scale);
                    if (has_min) {
                        sum[p][q] = vfmaq_f32(sum[p][q], f32_at(mins + r * X_LINE + p * 16), f32_at(sums + r * Y_LINE + q * 16));
                    }
                }
            }
        }
        for (int p = 0; p < PX; p++) {
            for (int q = 0; q < PY; q++) {
                const float32x4_t d = vmulq_f32(f32_at(x + p * 16), f32_at(y + q * 16));
                sum[p][q]           = vfmaq_f32(sum[p][q], vcvtq_f32_s32(whole[p][q]), d);
            }
        }
    }
    store(sum, s, ld_s, nx, ny);
}

#define RUN(name, call, ...) \
    static void run_##name##__i8mm(int64_t n, float *s, int64_t ld_s, const void *x, int nx, const void *y, int ny) { \
        call(n, s, ld_s, x, nx, y, ny, __VA_ARGS__); \
    }
RUN(q32, run_32, false)
RUN(q32_min, run_32, true)
RUN(k8, run_256, 8, false)
RUN(k8_min, run_256, 8, true)
RUN(k16, run_256, 16, false)
RUN(k16_min, run_256, 16, true)

// ---- panels of y ----

// 32 bytes of column c to the steps that begin at `to`.
UNPACK_INLINE void y_bytes(char *to, int c, const int8_t *q) {
    for (int j = 0; j < 4; j++) {
        vst1_s8((int8_t *) to + j * Y_LINE + c * 8, vld1_s8(q + 8 * j));
    }
}

// v of column c into a line.
UNPACK_INLINE void y_number(char *line, int c, float v) {
    vst1_f32((float *) (void *) (line + c * 8), vdup_n_f32(v));
}

static void pack_y_q8_0__i8mm(int64_t n, void *panel, const float *const *y, int ny) {
    for (int c = 0; c < NR; c++) {
        const float *from = y[c < ny ? c : 0];
        char *to          = panel;
        for (int64_t i = 0; i < n; i += 256) {
            const int m = n - i < 256 ? (int) (n - i) : 256;
            block_q8_0 b[8];
            to_q8_0(from + i, b, m);
            for (int j = 0; j < m / 32; j++, to += 5 * Y_LINE) {
                y_number(to, c, half_at(&b[j].d));
                y_bytes(to + Y_LINE, c, b[j].qs);
            }
        }
    }
}

static void pack_y_q8_1__i8mm(int64_t n, void *panel, const float *const *y, int ny) {
    for (int c = 0; c < NR; c++) {
        const float *from = y[c < ny ? c : 0];
        char *to          = panel;
        for (int64_t i = 0; i < n; i += 256) {
            const int m = n - i < 256 ? (int) (n - i) : 256;
            block_q8_1 b[8];
            to_q8_1(from + i, b, m);
            for (int j = 0; j < m / 32; j++, to += 6 * Y_LINE) {
                y_number(to, c, half_at(&b[j].d));
                y_number(to + Y_LINE, c, half_at(&b[j].s));
                y_bytes(to + 2 * Y_LINE, c, b[j].qs);
            }
        }
    }
}

// n_sums: runs whose sums go into the panel, 0, 8 or 16.
UNPACK_INLINE void pack_y_q8_K(int64_t n, char *panel, const float *const *y, int ny, const int n_sums) {
    for (int c = 0; c < NR; c++) {
        const float *from = y[c < ny ? c : 0];
        char *to          = panel;
        for (int64_t i = 0; i < n; i += QK_K, to += (1 + n_sums + STEPS_256) * Y_LINE) {
            block_q8_K b;
            to_q8_K(from + i, &b, QK_K);
            y_number(to, c, b.d);
            for (int r = 0; r < n_sums; r++) {
                const int sum = n_sums == 16 ? b.bsums[r] : b.bsums[2 * r] + b.bsums[2 * r + 1];
                y_number(to + (1 + r) * Y_LINE, c, b.d * (float) sum);
            }
            for (int j = 0; j < 8; j++) {
                y_bytes(to + (1 + n_sums + 4 * j) * Y_LINE, c, b.qs + 32 * j);
            }
        }
    }
}

static void pack_y_k__i8mm(int64_t n, void *panel, const float *const *y, int ny) {
    pack_y_q8_K(n, panel, y, ny, 0);
}
static void pack_y_k8_min__i8mm(int64_t n, void *panel, const float *const *y, int ny) {
    pack_y_q8_K(n, panel, y, ny, 8);
}
static void pack_y_k16_min__i8mm(int64_t n, void *panel, const float *const *y, int ny) {
    pack_y_q8_K(n, panel, y, ny, 16);
}

// ---- panels of x ----

// 16 elements of a pair of rows: two steps.
UNPACK_INLINE void x_bytes(char *to, int8x16_t a, int8x16_t b) {
    vst1q_s8((int8_t *) to, vcombine_s8(vget_low_s8(a), vget_low_s8(b)));
    vst1q_s8((int8_t *) to + X_LINE, vcombine_s8(vget_high_s8(a), vget_high_s8(b)));
}

UNPACK_INLINE void x_numbers(char *to, float a, float b) {
    const float32x4_t v = {a, b, a, b};
    vst1q_f32((float *) (void *) to, v);
}

UNPACK_INLINE void x_scales4(char *to, int16x4_t ab) { // a0 b0 a1 b1: two runs
    const int32x4_t v = vmovl_s16(ab);
    vst1q_s32((int32_t *) (void *) to, vcombine_s32(vget_low_s32(v), vget_low_s32(v)));
    vst1q_s32((int32_t *) (void *) (to + X_LINE), vcombine_s32(vget_high_s32(v), vget_high_s32(v)));
}

// Scales of 8 runs of a pair.
UNPACK_INLINE void x_scales8(char *to, int8x8_t a, int8x8_t b) {
    const int16x8_t lo = vmovl_s8(vzip1_s8(a, b)), hi = vmovl_s8(vzip2_s8(a, b));
    x_scales4(to, vget_low_s16(lo));
    x_scales4(to + 2 * X_LINE, vget_high_s16(lo));
    x_scales4(to + 4 * X_LINE, vget_low_s16(hi));
    x_scales4(to + 6 * X_LINE, vget_high_s16(hi));
}

UNPACK_INLINE void x_mins4(char *to, int16x4_t ab, float32x4_t dmin) {
    const float32x4_t v = vmulq_f32(vcvtq_f32_s32(vmovl_s16(ab)), dmin);
    vst1q_f32((float *) (void *) to, vcombine_f32(vget_low_f32(v), vget_low_f32(v)));
    vst1q_f32((float *) (void *) (to + X_LINE), vcombine_f32(vget_high_f32(v), vget_high_f32(v)));
}

// Minima of 8 runs of a pair, to be added.
UNPACK_INLINE void x_mins8(char *to, int8x8_t a, int8x8_t b, float dmin_a, float dmin_b) {
    const float32x4_t dmin = {-dmin_a, -dmin_b, -dmin_a, -dmin_b};
    const int16x8_t lo = vmovl_s8(vzip1_s8(a, b)), hi = vmovl_s8(vzip2_s8(a, b));
    x_mins4(to, vget_low_s16(lo), dmin);
    x_mins4(to + 2 * X_LINE, vget_high_s16(lo), dmin);
    x_mins4(to + 4 * X_LINE, vget_low_s16(hi), dmin);
    x_mins4(to + 6 * X_LINE, vget_high_s16(hi), dmin);
}

#define NO_MIN(block) 0.0f
#define PACK_32(type, has_min, min_of) \
    static void pack_x_##type##__i8mm(int64_t n, void *panel, const void *x, size_t bx, int nx) { \
        for (int p = 0; p < PX; p++) { \
            const block_##type *a = (const void *) ((const char *) x + (2 * p < nx ? (size_t) (2 * p) * bx : 0)); \
            const block_##type *b = (const void *) ((const char *) x + (2 * p + 1 < nx ? (size_t) (2 * p + 1) * bx : 0)); \
            char *to              = (char *) panel + p * 16; \
            for (int64_t i = 0; i < n / 32; i++, to += (5 + has_min) * X_LINE) { \
                const struct q32 qa = unpack_##type(&a[i]), qb = unpack_##type(&b[i]); \
                x_numbers(to, scale_##type(&a[i]), scale_##type(&b[i])); \
                if (has_min) { \
                    x_numbers(to + X_LINE, min_of(&a[i]), min_of(&b[i])); \
                } \
                x_bytes(to + (1 + has_min) * X_LINE, qa.lo, qb.lo); \
                x_bytes(to + (3 + has_min) * X_LINE, qa.hi, qb.hi); \
            } \
        } \
    }
PACK_32(q8_0, 0, NO_MIN)
PACK_32(q4_0, 0, NO_MIN)
PACK_32(q5_0, 0, NO_MIN)
PACK_32(iq4_nl, 0, NO_MIN)
PACK_32(mxfp4, 0, NO_MIN)
PACK_32(q4_1, 1, min_q4_1)
PACK_32(q5_1, 1, min_q5_1)

// Each lays out the scales of a pair and says what comes off every element.
UNPACK_INLINE void heads_q4_K(char *to, const block_q4_K *a, const block_q4_K *b) {
    uint8x8_t sa, ma, sb, mb;
    scales_6bit(a->scales, &sa, &ma);
    scales_6bit(b->scales, &sb, &mb);
    x_scales8(to, vreinterpret_s8_u8(sa), vreinterpret_s8_u8(sb));
    x_mins8(to + 8 * X_LINE, vreinterpret_s8_u8(ma), vreinterpret_s8_u8(mb), half_at(&a->dmin), half_at(&b->dmin));
}
UNPACK_INLINE void heads_q5_K(char *to, const block_q5_K *a, const block_q5_K *b) {
    uint8x8_t sa, ma, sb, mb;
    scales_6bit(a->scales, &sa, &ma);
    scales_6bit(b->scales, &sb, &mb);
    x_scales8(to, vreinterpret_s8_u8(sa), vreinterpret_s8_u8(sb));
    x_mins8(to + 8 * X_LINE, vreinterpret_s8_u8(ma), vreinterpret_s8_u8(mb), half_at(&a->dmin), half_at(&b->dmin));
}
UNPACK_INLINE void heads_q2_K(char *to, const block_q2_K *a, const block_q2_K *b) {
    const uint8x16_t both_a = vld1q_u8(a->scales), both_b = vld1q_u8(b->scales);
    const int8x16_t sa = s8(low4(both_a)), sb = s8(low4(both_b)), ma = s8(vshrq_n_u8(both_a, 4)), mb = s8(vshrq_n_u8(both_b, 4));
    const float da = half_at(&a->dmin), db = half_at(&b->dmin);
    x_scales8(to, vget_low_s8(sa), vget_low_s8(sb));
    x_scales8(to + 8 * X_LINE, vget_high_s8(sa), vget_high_s8(sb));
    x_mins8(to + 16 * X_LINE, vget_low_s8(ma), vget_low_s8(mb), da, db);
    x_mins8(to + 24 * X_LINE, vget_high_s8(ma), vget_high_s8(mb), da, db);
}
UNPACK_INLINE void heads_16(char *to, int8x16_t sa, int8x16_t sb) {
    x_scales8(to, vget_low_s8(sa), vget_low_s8(sb));
    x_scales8(to + 8 * X_LINE, vget_high_s8(sa), vget_high_s8(sb));
}
UNPACK_INLINE void heads_q3_K(char *to, const block_q3_K *a, const block_q3_K *b) {
    heads_16(to, scales_q3_K(a->scales), scales_q3_K(b->scales));
}
UNPACK_INLINE void heads_q6_K(char *to, const block_q6_K *a, const block_q6_K *b) {
    heads_16(to, vld1q_s8(a->scales), vld1q_s8(b->scales));
}
UNPACK_INLINE void heads_iq4_xs(char *to, const block_iq4_xs *a, const block_iq4_xs *b) {
    x_scales8(to, scales_iq4_xs(a), scales_iq4_xs(b));
}

// n_head: lines of scales and minima; offset: what comes off every element.
#define PACK_256(type, n_head, offset) \
    static void pack_x_##type##__i8mm(int64_t n, void *panel, const void *x, size_t bx, int nx) { \
        for (int p = 0; p < PX; p++) { \
            const block_##type *a = (const void *) ((const char *) x + (2 * p < nx ? (size_t) (2 * p) * bx : 0)); \
            const block_##type *b = (const void *) ((const char *) x + (2 * p + 1 < nx ? (size_t) (2 * p + 1) * bx : 0)); \
            char *to              = (char *) panel + p * 16; \
            for (int64_t i = 0; i < n / QK_K; i++, to += (1 + (n_head) + STEPS_256) * X_LINE) { \
                int8x16_t va[16], vb[16]; \
                x_numbers(to, half_at(&a[i].d), half_at(&b[i].d)); \
                heads_##type(to + X_LINE, &a[i], &b[i]); \
                unpack_##type(&a[i], va); \
                unpack_##type(&b[i], vb); \
                for (int j = 0; j < 16; j++) { \
                    x_bytes(to + (1 + (n_head) + 2 * j) * X_LINE, vsubq_s8(va[j], vdupq_n_s8(offset)), \
                        vsubq_s8(vb[j], vdupq_n_s8(offset))); \
                } \
            } \
        } \
    }
PACK_256(q4_K, 16, 0)
PACK_256(q5_K, 16, 0)
PACK_256(q2_K, 32, 0)
PACK_256(q3_K, 16, 4)
PACK_256(q6_K, 16, 32)
PACK_256(iq4_xs, 8, 0)

void cpu_tier_i8mm_gemm(struct cpu_kernels *k) {
    to_q8_0 = k->traits[GGML_TYPE_Q8_0].from_float;
    to_q8_1 = k->traits[GGML_TYPE_Q8_1].from_float;
    to_q8_K = k->traits[GGML_TYPE_Q8_K].from_float;
#define ROW(TYPE, type, y, run, n_step, x_lines, y_lines) \
    k->gemm[GGML_TYPE_##TYPE] = (struct cpu_gemm){pack_x_##type##__i8mm, pack_y_##y##__i8mm, run_##run##__i8mm, MR, NR, 4, \
        n_step, (x_lines) *X_LINE, (y_lines) *Y_LINE, 0, 0};
    ROW(Q8_0, q8_0, q8_0, q32, 32, 5, 5)
    ROW(Q4_0, q4_0, q8_0, q32, 32, 5, 5)
    ROW(Q5_0, q5_0, q8_0, q32, 32, 5, 5)
    ROW(IQ4_NL, iq4_nl, q8_0, q32, 32, 5, 5)
    ROW(MXFP4, mxfp4, q8_0, q32, 32, 5, 5)
    ROW(Q4_1, q4_1, q8_1, q32_min, 32, 6, 6)
    ROW(Q5_1, q5_1, q8_1, q32_min, 32, 6, 6)
    ROW(Q4_K, q4_K, k8_min, k8_min, 256, 49, 41)
    ROW(Q5_K, q5_K, k8_min, k8_min, 256, 49, 41)
    ROW(IQ4_XS, iq4_xs, k, k8, 256, 41, 33)
    ROW(Q3_K, q3_K, k, k16, 256, 49, 33)
    ROW(Q6_K, q6_K, k, k16, 256, 49, 33)
    ROW(Q2_K, q2_K, k16_min, k16_min, 256, 65, 49)
#undef ROW
}
