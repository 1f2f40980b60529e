// SPDX-License-Identifier: MIT
// panel_q.h: packs quantised rows (x) and float columns (y) into panels, for products with several columns (gemm_q__*.c). Rows are
// unpacked once for all columns. Elements are bytes, in the order in which the tier multiplies them.
//
// A panel of x holds MR rows. A panel of y holds NR columns: a block of each of NR / NC tiles of NC columns, then the next block of
// each tile. With few columns, only the first tiles are packed and multiplied. Blocks consist of lines. A line of x has 16 bytes
// for each group of GROUP rows: STEP bytes or one number of each row. A line of y has STEP bytes or one number of each column. Run:
// 16 or 32 elements with a common scale. The lines of a block ([..]?: only for formats with minima):
//   blocks of 32:  x: [scale] [minimum]? [bytes: LINES(32) lines]
//                  y: [scale] [sum]? [bytes: LINES(32) lines]
//   blocks of 256: x: [d] [dmin]? [minima as bytes: LINES(n_runs) lines]? [scales as int32: a line per run] [bytes: LINES(256)]
//                  y: [d] [sums of runs as bytes: LINES(2 * n_runs) lines]? [bytes: LINES(256) lines]
// A sum of a run has 13 bits. The negated sum is stored as two bytes, 128 hi + lo. Because it is negated, the kernel adds the
// products with minima. Missing rows and columns are copies of the first one. Their results are not stored.
//
// The bytes of a tile of y with at most FEW columns are by column: Y_WIDTH bytes of each column, in the space of LINES(Y_WIDTH) lines.
//
// The including file defines MR, NR, NC, GROUP, FEW and Y_WIDTH, and these functions for the layout within a line:
//   x_zip(v)             v[r]: 16 bytes of row r of a group; afterwards, v[i] is line i: bytes STEP i to STEP i + STEP - 1 of each row
//   x_scales8(to, v)     stores 8 scales v[r] of each row r of a group in 8 lines
//   y_number(line, c, v) stores a number v of column c of a tile
//   y_sums(to, c, hi, lo, n)  stores the sums of n runs of column c
#pragma once

#include "cpu/arm/quantize.h"
#include "cpu/arm/unpack.h"
#include "cpu/kernels.h"

#define AHEAD 512                // bytes: prefetch distance within a row
#define STEP (16 / GROUP)        // bytes of each row or column in a line
#define LINES(n) ((n) / STEP)    // lines of n elements
#define X_LINE (MR / GROUP * 16) // bytes of a line of x
#define Y_LINE (NC * STEP)       // bytes of a line of y

// Lines before the bytes of a block.
#define X_HEAD_32(has_min) (1 + (has_min))
#define Y_HEAD_32(has_min) (1 + (has_min))
#define X_HEAD_256(n_runs, has_min) (1 + (n_runs) + ((has_min) ? 1 + LINES(n_runs) : 0))
#define Y_HEAD_256(n_runs, has_min) (1 + ((has_min) ? 2 * LINES(n_runs) : 0))

UNPACK_INLINE void x_zip(uint8x16_t *v);
UNPACK_INLINE void x_scales8(char *to, const int8x8_t *scales);
UNPACK_INLINE void y_number(char *line, int c, float v);
UNPACK_INLINE void y_sums(char *to, int c, const int8_t *hi, const int8_t *lo, int n);

// ---- helpers for the products ----

UNPACK_INLINE float32x4_t f32_at(const char *at) {
    return vld1q_f32((const float *) (const void *) at);
}

UNPACK_INLINE int8x16_t s8_at(const char *at) {
    return vld1q_s8((const int8_t *) (const void *) at);
}

UNPACK_INLINE int32x4_t s32_at(const char *at) {
    return vld1q_s32((const int32_t *) (const void *) at);
}

UNPACK_INLINE void store_tile(float tile[NC][MR], float *s, int64_t ld_s, int nx, int ny) {
    for (int c = 0; c < ny; c++) {
        if (nx == MR) { // constant size, so that the copy is inlined
            memcpy(s + c * ld_s, tile[c], sizeof tile[c]);
        } else {
            memcpy(s + c * ld_s, tile[c], (size_t) nx * sizeof(float));
        }
    }
}

// ---- panels of y ----

// Stores n bytes of column c of a tile, `width` bytes at a time.
UNPACK_INLINE void y_bytes(char *to, int c, const int8_t *q, const int n, const int width) {
    for (int j = 0; j < n; j += width) {
        memcpy(to + j * NC + c * width, q + j, (size_t) width);
    }
}

// Bytes of a block of a tile and of a panel of y.
#define Y_TILE(n_block, y_head) (((y_head) + LINES(n_block)) * Y_LINE)
#define Y_PANEL(n_block, y_head) (NR / NC * Y_TILE(n_block, y_head))

// Defines pack_y_<y>, which calls column(n, tile, c, from, width) for each column of the tiles that have columns.
#define PACK_Y(y_type, n_block, y_head, column) \
    static void pack_y_##y_type(CPU_TABLE, int64_t n, void *panel, const float *const *y, int ny) { \
        for (int c = 0; c < ny || c % NC != 0; c++) { \
            char *tile = (char *) panel + c / NC * Y_TILE(n_block, y_head); \
            const float *from = y[c < ny ? c : 0]; \
            if (ny - c / NC * NC > FEW) { \
                column(n, tile, c % NC, from, STEP); \
            } else { \
                column(n, tile, c % NC, from, Y_WIDTH); \
            } \
        } \
    }

UNPACK_INLINE void y_column_q8_0(int64_t n, char *to, int c, const float *from, const int width) {
    for (int64_t i = 0; i < n; i += 32, to += Y_PANEL(32, Y_HEAD_32(0))) {
        block_q8_0 b;
        block_q8_0_of(from + i, &b);
        y_number(to, c, f16_as_float(&b.d));
        y_bytes(to + Y_LINE, c, b.qs, 32, width);
    }
}
PACK_Y(q8_0, 32, Y_HEAD_32(0), y_column_q8_0)

UNPACK_INLINE void y_column_q8_1(int64_t n, char *to, int c, const float *from, const int width) {
    for (int64_t i = 0; i < n; i += 32, to += Y_PANEL(32, Y_HEAD_32(1))) {
        block_q8_1 b;
        block_q8_1_of(from + i, &b);
        y_number(to, c, f16_as_float(&b.d));
        y_number(to + Y_LINE, c, f16_as_float(&b.s));
        y_bytes(to + 2 * Y_LINE, c, b.qs, 32, width);
    }
}
PACK_Y(q8_1, 32, Y_HEAD_32(1), y_column_q8_1)

// n_sums: runs with sums in the panel: 0, 8 or 16.
UNPACK_INLINE void y_column_q8_K(int64_t n, char *to, int c, const float *from, const int n_sums, const int width) {
    for (int64_t i = 0; i < n; i += QK_K, to += Y_PANEL(QK_K, Y_HEAD_256(n_sums, n_sums > 0))) {
        block_q8_K b;
        int8_t hi[16], lo[16];
        block_q8_K_of(from + i, &b);
        for (int r = 0; r < n_sums; r++) {
            const int sum = n_sums == 16 ? -b.bsums[r] : -(b.bsums[2 * r] + b.bsums[2 * r + 1]), low = ((sum + 64) & 127) - 64;
            lo[r] = (int8_t) low;
            hi[r] = (int8_t) ((sum - low) / 128);
        }
        y_number(to, c, b.d);
        y_sums(to + Y_LINE, c, hi, lo, n_sums);
        y_bytes(to + Y_HEAD_256(n_sums, n_sums > 0) * Y_LINE, c, b.qs, QK_K, width);
    }
}
#define PACK_Y_K(y_type, n_sums) \
    UNPACK_INLINE void y_column_##y_type(int64_t n, char *to, int c, const float *from, const int width) { \
        y_column_q8_K(n, to, c, from, n_sums, width); \
    } \
    PACK_Y(y_type, QK_K, Y_HEAD_256(n_sums, n_sums > 0), y_column_##y_type)
PACK_Y_K(k, 0)
PACK_Y_K(k8_min, 8)
PACK_Y_K(k16_min, 16)

// ---- panels of x ----
// The blocks of a group are zipped before they are unpacked: zipped[i] is a block whose vectors consist of line i of each vector
// (x_zip). Unpacking computes each byte of a vector from the same byte of other vectors. So unpacking zipped[i] gives lines, and
// fewer vectors are zipped than after unpacking.

#define ZIP(field) \
    for (size_t at = 0; at < sizeof zipped[0].field; at += 16) { \
        uint8x16_t v[GROUP]; \
        for (int r = 0; r < GROUP; r++) { \
            v[r] = vld1q_u8((const uint8_t *) row[r]->field + at); \
        } \
        x_zip(v); \
        for (int r = 0; r < GROUP; r++) { \
            vst1q_u8((uint8_t *) zipped[r].field + at, v[r]); \
        } \
    }
// Zips the fifth bits of q5_0 and q5_1: 16 bits belong to a vector.
#define ZIP_BITS(field) \
    for (int i = 0; i < GROUP; i++) { \
        uint32_t bits, line = 0; \
        for (int r = 0; r < GROUP; r++) { \
            memcpy(&bits, row[r]->field, sizeof bits); \
            line |= (bits >> STEP * i & ((1u << STEP) - 1) * 0x10001u) << STEP * r; \
        } \
        memcpy(zipped[i].field, &line, sizeof line); \
    }

UNPACK_INLINE void x_line(char *to, int8x16_t v) {
    vst1q_s8((int8_t *) to, v);
}

#define X_NUMBERS(line, of, row) vst1q_f32((float *) (void *) (line), of((row)[0], (row)[1], (row)[GROUP - 2], (row)[GROUP - 1]))

// x_block_<type> stores a block of a group. row[r]: the block of row r.
#define ROW_BLOCKS(type) \
    const block_##type *row[GROUP]; \
    for (int r = 0; r < GROUP; r++) { \
        row[r] = blocks[r]; \
        for (size_t line = 0; line < sizeof *row[r]; line += 64) { \
            __builtin_prefetch((const char *) row[r] + AHEAD + line, 0, 3); \
        } \
    }
#define X_BLOCK_32(type, has_min, mins_of, zip) \
    UNPACK_INLINE void x_block_##type(char *to, const void *const *blocks) { \
        ROW_BLOCKS(type) \
        block_##type zipped[GROUP]; \
        zip; \
        X_NUMBERS(to, scales_##type, row); \
        if (has_min) { \
            X_NUMBERS(to + X_LINE, mins_of, row); \
        } \
        to += X_HEAD_32(has_min) * X_LINE; \
        for (int i = 0; i < GROUP; i++) { \
            const struct q32 q = unpack_##type(&zipped[i]); \
            x_line(to + i * X_LINE, q.lo); \
            x_line(to + (LINES(16) + i) * X_LINE, q.hi); \
        } \
    }
#define NO_MINS(a, b, c, d) vdupq_n_f32(0.0f)
X_BLOCK_32(q8_0, 0, NO_MINS, ZIP(qs))
X_BLOCK_32(q4_0, 0, NO_MINS, ZIP(qs))
X_BLOCK_32(q5_0, 0, NO_MINS, ZIP(qs) ZIP_BITS(qh))
X_BLOCK_32(iq4_nl, 0, NO_MINS, ZIP(qs))
X_BLOCK_32(mxfp4, 0, NO_MINS, ZIP(qs))
X_BLOCK_32(q4_1, 1, mins_q4_1, ZIP(qs))
X_BLOCK_32(q5_1, 1, mins_q5_1, ZIP(qs) ZIP_BITS(qh))

// Scales and minima of 8 or 16 runs. With 8 runs, the upper half is 0.
struct head {
    int8x16_t scales, mins;
};

#define HEAD_6BIT(type) \
    UNPACK_INLINE struct head head_##type(const block_##type *b) { \
        const int8x8_t zero = vdup_n_s8(0); \
        uint8x8_t s, m; \
        scales_6bit(b->scales, &s, &m); \
        return (struct head){vcombine_s8(vreinterpret_s8_u8(s), zero), vcombine_s8(vreinterpret_s8_u8(m), zero)}; \
    }
HEAD_6BIT(q4_K)
HEAD_6BIT(q5_K)

UNPACK_INLINE struct head head_q2_K(const block_q2_K *b) {
    const uint8x16_t both = vld1q_u8(b->scales);
    return (struct head){s8(low4(both)), s8(vshrq_n_u8(both, 4))};
}
UNPACK_INLINE struct head head_q3_K(const block_q3_K *b) {
    return (struct head){.scales = scales_q3_K(b->scales)};
}
UNPACK_INLINE struct head head_q6_K(const block_q6_K *b) {
    return (struct head){.scales = vld1q_s8(b->scales)};
}
UNPACK_INLINE struct head head_iq4_xs(const block_iq4_xs *b) {
    return (struct head){.scales = vcombine_s8(scales_iq4_xs(b), vdup_n_s8(0))};
}

UNPACK_INLINE void x_scales(char *to, const struct head *h, const int n_runs) {
    int8x8_t lo[GROUP], hi[GROUP];
    for (int r = 0; r < GROUP; r++) {
        lo[r] = vget_low_s8(h[r].scales);
        hi[r] = vget_high_s8(h[r].scales);
    }
    x_scales8(to, lo);
    if (n_runs == 16) {
        x_scales8(to + 8 * X_LINE, hi);
    }
}

UNPACK_INLINE void x_mins(char *to, const struct head *h, const int n_runs) {
    uint8x16_t v[GROUP];
    for (int r = 0; r < GROUP; r++) {
        v[r] = vreinterpretq_u8_s8(h[r].mins);
    }
    x_zip(v);
    for (int i = 0; i < LINES(n_runs); i++) {
        x_line(to + i * X_LINE, s8(v[i]));
    }
}

// offset: subtracted from every element.
#define D_OF(a, b, c, d0) f16x4_as_floats(&(a)->d, &(b)->d, &(c)->d, &(d0)->d)
#define DMIN_OF(a, b, c, d0) f16x4_as_floats(&(a)->dmin, &(b)->dmin, &(c)->dmin, &(d0)->dmin)
#define X_BLOCK_256(type, n_runs, has_min, dmin_of, offset, zip) \
    static __attribute__((noinline)) void x_block_##type(char *to, const void *const *blocks) { \
        ROW_BLOCKS(type) \
        block_##type zipped[GROUP]; \
        struct head head[GROUP]; \
        for (int r = 0; r < GROUP; r++) { \
            head[r] = head_##type(row[r]); \
        } \
        zip; \
        X_NUMBERS(to, D_OF, row); \
        if (has_min) { \
            X_NUMBERS(to + X_LINE, dmin_of, row); \
            x_mins(to + 2 * X_LINE, head, n_runs); \
        } \
        to += X_HEAD_256(n_runs, has_min) * X_LINE; \
        x_scales(to - (n_runs) *X_LINE, head, n_runs); \
        for (int i = 0; i < GROUP; i++) { \
            int8x16_t v[16]; \
            unpack_##type(&zipped[i], v); \
            for (int j = 0; j < 16; j++) { \
                x_line(to + (LINES(16) * j + i) * X_LINE, (offset) == 0 ? v[j] : vsubq_s8(v[j], vdupq_n_s8(offset))); \
            } \
        } \
    }
X_BLOCK_256(q4_K, 8, 1, DMIN_OF, 0, ZIP(qs))
X_BLOCK_256(q5_K, 8, 1, DMIN_OF, 0, ZIP(qh) ZIP(qs))
X_BLOCK_256(q2_K, 16, 1, DMIN_OF, 0, ZIP(qs))
X_BLOCK_256(q3_K, 16, 0, D_OF, 4, ZIP(hmask) ZIP(qs))
X_BLOCK_256(q6_K, 16, 0, D_OF, 32, ZIP(ql) ZIP(qh))
X_BLOCK_256(iq4_xs, 8, 0, D_OF, 0, ZIP(qs))

#define PACK_X(type, n_block, x_head) \
    static void pack_x_##type(int64_t n, void *panel, const void *x, size_t bx, int nx) { \
        for (int g = 0; g < MR / GROUP; g++) { \
            const void *row[GROUP]; \
            char *to = (char *) panel + g * 16; \
            for (int r = 0; r < GROUP; r++) { \
                row[r] = (const char *) x + (g * GROUP + r < nx ? (size_t) (g * GROUP + r) * bx : 0); \
            } \
            for (int64_t i = 0; i < n / (n_block); i++, to += ((x_head) + LINES(n_block)) * X_LINE) { \
                x_block_##type(to, row); \
                for (int r = 0; r < GROUP; r++) { \
                    row[r] = (const char *) row[r] + sizeof(block_##type); \
                } \
            } \
        } \
    }
PACK_X(q8_0, 32, X_HEAD_32(0))
PACK_X(q4_0, 32, X_HEAD_32(0))
PACK_X(q5_0, 32, X_HEAD_32(0))
PACK_X(iq4_nl, 32, X_HEAD_32(0))
PACK_X(mxfp4, 32, X_HEAD_32(0))
PACK_X(q4_1, 32, X_HEAD_32(1))
PACK_X(q5_1, 32, X_HEAD_32(1))
PACK_X(q4_K, QK_K, X_HEAD_256(8, 1))
PACK_X(q5_K, QK_K, X_HEAD_256(8, 1))
PACK_X(q2_K, QK_K, X_HEAD_256(16, 1))
PACK_X(q3_K, QK_K, X_HEAD_256(16, 0))
PACK_X(q6_K, QK_K, X_HEAD_256(16, 0))
PACK_X(iq4_xs, QK_K, X_HEAD_256(8, 0))
#include "cpu/arm/panel_cells.h"

// ---- a tier ----

// The including file must define run_q32, run_q32_min, run_k8, run_k8_min, run_k16 and run_k16_min (kernels.h: cpu_gemm), and the
// kernels for unpacked rows of blocks of 256, rows_<type>.
// Below least columns, other kernels are faster. rows: kernel for unpacked rows and at most `most` columns.
#define GEMM_Q_ROW(TYPE, type, y, run, n_block, x_head, y_head, rows, least, most) \
    k->gemm[GGML_TYPE_##TYPE] = (struct cpu_gemm){pack_x_##type, pack_y_##y, run_##run, MR, NR, least, n_block, \
        ((x_head) + LINES(n_block)) * X_LINE, Y_PANEL(n_block, y_head), 0, 0, {rows, n_block, most, N_PANELS}};
#define GEMM_Q_32(TYPE, type, rows, least, most) \
    GEMM_Q_ROW(TYPE, type, q8_0, q32, 32, X_HEAD_32(0), Y_HEAD_32(0), rows, least, most)
#define GEMM_Q_32_MIN(TYPE, type, rows, least, most) \
    GEMM_Q_ROW(TYPE, type, q8_1, q32_min, 32, X_HEAD_32(1), Y_HEAD_32(1), rows, least, most)
#define GEMM_Q_256(TYPE, type, y, run, n_runs, has_min, least, most) \
    GEMM_Q_ROW(TYPE, type, y, run, QK_K, X_HEAD_256(n_runs, has_min), Y_HEAD_256(n_runs, has_min), rows_##type, least, most)
