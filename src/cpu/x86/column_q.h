// SPDX-License-Identifier: MIT
// column_q.h: the layout of a packed column for products with rows in blocks of 32 elements. A column consists of groups of 8
// blocks, because one instruction converts eight scales of a row to float:
//   [8 scales] [8 initial values or sums] [256 bytes]
// The unpacked bytes of a row are unsigned: they are larger than the value by an offset. `initial` is the integer that the dot
// product of a block starts with: -offset times the sum of the bytes of the column's block. For formats with minima, the group has
// `sum` instead: the float with which the minimum is multiplied. The 256 bytes are 16 units of 16 bytes, in the order in which the
// kernel reads them; `order` lists the units.
#pragma once

#include "cpu/kernels.h"
#include "cpu/x86/unpack.h"

#define GROUP 256 // elements
struct y_group {
    float scale[8];
    union {
        int32_t initial[8];
        float sum[8];
    };
    int8_t qs[GROUP];
};

#define PACK(name, block, TYPE, order, set_initial) \
    static void pack_##name(CPU_TABLE, int64_t n, void *panel, const float *y) { \
        struct y_group *to = panel; \
        for (int64_t i = 0; i < n; i += GROUP, to++) { \
            const int m = n - i < GROUP ? (int) (n - i) : GROUP; \
            block b[8]; \
            memset(to, 0, sizeof *to); \
            k->traits[TYPE].from_float(y + i, b, m); \
            for (int j = 0; j < m / 32; j++) { \
                to->scale[j] = f16_as_float(&b[j].d); \
                set_initial; \
            } \
            for (int u = 0; u < 16; u++) { \
                if ((order)[u] < m / 16) { \
                    memcpy(to->qs + 16 * u, b[(order)[u] / 2].qs + 16 * ((order)[u] % 2), 16); \
                } \
            } \
        } \
    }
#define PACK_OFFSET(name, offset, order) \
    PACK(name, block_q8_0, GGML_TYPE_Q8_0, order, to->initial[j] = -(offset) *sum_bytes(b[j].qs))
#define PACK_SUMS(name, order) PACK(name, block_q8_1, GGML_TYPE_Q8_1, order, to->sum[j] = f16_as_float(&b[j].s))

// SCALES_* return the scales of 8 blocks of a row as floats, MINS_* the minima of 8 blocks, MIN_* the minimum of one block.
#define F16_OF_8(b, of) \
    _mm256_cvtph_ps(_mm_setr_epi16((short) (b)[0].of, (short) (b)[1].of, (short) (b)[2].of, (short) (b)[3].of, \
        (short) (b)[4].of, (short) (b)[5].of, (short) (b)[6].of, (short) (b)[7].of))
#define SCALES_F16(b) F16_OF_8(b, d)
#define SCALES_MXFP4(b) \
    scales_mxfp4(_mm_setr_epi8((char) (b)[0].e, (char) (b)[1].e, (char) (b)[2].e, (char) (b)[3].e, (char) (b)[4].e, \
        (char) (b)[5].e, (char) (b)[6].e, (char) (b)[7].e, 0, 0, 0, 0, 0, 0, 0, 0))
#define MINS_NONE(b) _mm256_setzero_ps()
#define MINS_F16(b) F16_OF_8(b, m)
#define MIN_NONE(b) 0.0f
#define MIN_F16(b) f16_as_float(&(b)->m)
