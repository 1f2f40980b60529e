// SPDX-License-Identifier: MIT
// panel_cells.h: packs rows of the formats of unpack_iq.h into panels (panel_q.h includes it). Blocks are
// unpacked before they are zipped, because codebooks return neighbouring elements of one row.

#include "cpu/arm/unpack_iq.h"

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
