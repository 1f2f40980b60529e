// SPDX-License-Identifier: MIT
// panel_cells.h: packs rows of the formats of unpack_iq.h and unpack_low_bit.h into panels (panel_q.h includes it). Blocks are
// unpacked before they are zipped, because codebooks return neighbouring elements of one row.

#include "cpu/arm/unpack_low_bit.h"

// v[r]: 16 bytes of row r of a group.
UNPACK_INLINE void x_lines16(char *to, const int8x16_t *v) {
    uint8x16_t line[GROUP];
    for (int r = 0; r < GROUP; r++) {
        line[r] = vreinterpretq_u8_s8(v[r]);
    }
    x_zip(line);
    for (int i = 0; i < GROUP; i++) {
        x_line(to + i * X_LINE, s8(line[i]));
    }
}

// ---- blocks of 256 ----

#define X_BLOCK_IQ(TYPE, type, n_runs) \
    UNPACK_INLINE float32x4_t ds_##type( \
        const block_##type *a, const block_##type *b, const block_##type *c, const block_##type *d) { \
        return (float32x4_t){d_##type(a), d_##type(b), d_##type(c), d_##type(d)}; \
    } \
    static __attribute__((noinline)) void x_block_##type(char *to, const void *const *blocks) { \
        ROW_BLOCKS(type) \
        struct head head[GROUP]; \
        for (int r = 0; r < GROUP; r++) { \
            head[r].scales = scales_##type(row[r]); \
        } \
        X_NUMBERS(to, ds_##type, row); \
        to += X_HEAD_256(n_runs, 0) * X_LINE; \
        x_scales(to - (n_runs) *X_LINE, head, n_runs); \
        for (int j = 0; j < 8; j++, to += LINES(32) * X_LINE) { \
            int8x16_t lo[GROUP], hi[GROUP]; \
            for (int r = 0; r < GROUP; r++) { \
                const struct q32 q = cell_##type(row[r], j); \
                lo[r] = q.lo; \
                hi[r] = q.hi; \
            } \
            x_lines16(to, lo); \
            x_lines16(to + LINES(16) * X_LINE, hi); \
        } \
    } \
    PACK_X(type, QK_K, X_HEAD_256(n_runs, 0))
IQ_FORMATS(X_BLOCK_IQ)

// ---- blocks of 128 and 64: as several blocks of 32 with the same scale ----

#define X_BLOCK_CELLS(type, n_cells) \
    static __attribute__((noinline)) void x_block_##type(char *to, const void *const *blocks) { \
        ROW_BLOCKS(type) \
        for (int j = 0; j < (n_cells); j++, to += (X_HEAD_32(0) + LINES(32)) * X_LINE) { \
            int8x16_t lo[GROUP], hi[GROUP]; \
            for (int r = 0; r < GROUP; r++) { \
                const struct q32 q = cell_##type(row[r], j); \
                lo[r] = q.lo; \
                hi[r] = q.hi; \
            } \
            X_NUMBERS(to, D_OF, row); \
            x_lines16(to + X_HEAD_32(0) * X_LINE, lo); \
            x_lines16(to + (X_HEAD_32(0) + LINES(16)) * X_LINE, hi); \
        } \
    } \
    PACK_X(type, 32 * (n_cells), (n_cells) *X_HEAD_32(0))
X_BLOCK_CELLS(q1_0, 4)
X_BLOCK_CELLS(q2_0, 2)

// ---- nvfp4: as blocks of 16, whose columns have the scale of a block of 32 ----

static __attribute__((noinline)) void x_block_nvfp4(char *to, const void *const *blocks) {
    ROW_BLOCKS(nvfp4)
    float d[4][4]; // [row or its copy][group]
    for (int r = 0; r < 4; r++) {
        vst1q_f32(d[r], scales_nvfp4(row[r % GROUP]));
    }
    for (int g = 0; g < 4; g++, to += (X_HEAD_32(0) + LINES(16)) * X_LINE) {
        int8x16_t v[GROUP];
        for (int r = 0; r < GROUP; r++) {
            const struct q32 q = cell_nvfp4(row[r], g / 2);
            v[r] = g % 2 == 0 ? q.lo : q.hi;
        }
        const float32x4_t scales = {d[0][g], d[1][g], d[2][g], d[3][g]};
        vst1q_f32((float *) (void *) to, scales);
        x_lines16(to + X_HEAD_32(0) * X_LINE, v);
    }
}
PACK_X(nvfp4, 64, 4 * X_HEAD_32(0))

UNPACK_INLINE void y_column_q16(int64_t n, char *to, int c, const float *from, const int width) {
    for (int64_t i = 0; i < n; i += 32) {
        block_q8_0 b;
        block_q8_0_of(from + i, &b);
        for (int half = 0; half < 2; half++, to += Y_PANEL(16, Y_HEAD_32(0))) {
            y_number(to, c, f16_as_float(&b.d));
            y_bytes(to + Y_LINE, c, b.qs + 16 * half, 16, width);
        }
    }
}
PACK_Y(q16, 16, Y_HEAD_32(0), y_column_q16)
// Four blocks per step, because a step of y must not divide a block of 32.
#define GEMM_Q_16(TYPE, type, least) GEMM_Q_ROW(TYPE, type, q16, q16, 64, 4 * X_HEAD_32(0), 4 * Y_HEAD_32(0), NULL, least, 0)
