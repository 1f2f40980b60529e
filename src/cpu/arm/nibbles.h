// SPDX-License-Identifier: MIT
// nibbles.h: multiplies the complete groups (gemv_q32.h) of two rows of q4_0, iq4_nl or mxfp4 with a column, by SDOT. The vector
// pipes limit the speed. The order of the instructions is fixed in assembly: code of compilers took 6 to 15% longer on a Neoverse
// N1. This code takes 27, 34 and 35 cycles per group of both rows; without stalls it would take 25, 33 and 32.
//
// The stages are those of gemv_q32.h. Three measures save cycles of the vector pipes:
//   - Scales go to vectors through memory, because a move takes a cycle of a vector pipe.
//   - Offsets of q4_0 include the bits of a large float (LARGE in gemv_q32.h). Subtracting that float converts the sums in one
//     cycle of any pipe. A conversion takes two cycles of one pipe.
//   - Scales of mxfp4 come from a table that holds the upper 16 bits of floats.
//
// Registers:
//     v0 v1    next block of rows a and b      v16 v17  first part of the sums        v26 v27  scales of the previous group
//     v2 v3    the block after v0 v1           v18 v19  sums of the previous group    v28 v29  results
//     v4-v7    a block of a and b, as bytes    v20 v21  next bytes of the column      v30      table, or the large float
//     v8-v11   sums of a, v12-v15 of b         v22 v23  the bytes after v20 v21       v31      15 in every byte
//     v24      scales as f16                   v25      offsets of the previous group
#pragma once

#include "cpu/arm/unpack.h"

#define NIBBLES_STR_(s) #s
#define NIBBLES_STR(s) NIBBLES_STR_(s)

// clang-format off

// ---- stages ----

// Loads the quants of blocks a[j] and b[j] to xa and xb, and 32 bytes of the column to y0 and y1.
#define NEXT(xa, xb, y0, y1, j, y_off, size) \
    "ldur q" #xa ", [%[a], #(" #j " * " size " + " size " - 16)]\n\t" \
    "ldur q" #xb ", [%[b], #(" #j " * " size " + " size " - 16)]\n\t" \
    "ldp q" #y0 ", q" #y1 ", [%[y], #(" y_off ")]\n\t"

#define DOTS(xa, xb, y0, y1, sum_a, sum_b, expand) \
    "and v4.16b, v" #xa ".16b, v31.16b\n\t" \
    "ushr v5.16b, v" #xa ".16b, #4\n\t" \
    "and v6.16b, v" #xb ".16b, v31.16b\n\t" \
    "ushr v7.16b, v" #xb ".16b, #4\n\t" \
    expand \
    "movi v" #sum_a ".4s, #0\n\t" \
    "movi v" #sum_b ".4s, #0\n\t" \
    "sdot v" #sum_a ".4s, v4.16b, v" #y0 ".16b\n\t" \
    "sdot v" #sum_b ".4s, v6.16b, v" #y0 ".16b\n\t" \
    "sdot v" #sum_a ".4s, v5.16b, v" #y1 ".16b\n\t" \
    "sdot v" #sum_b ".4s, v7.16b, v" #y1 ".16b\n\t"

#define EXPAND_TABLE \
    "tbl v4.16b, {v30.16b}, v4.16b\n\t" \
    "tbl v5.16b, {v30.16b}, v5.16b\n\t" \
    "tbl v6.16b, {v30.16b}, v6.16b\n\t" \
    "tbl v7.16b, {v30.16b}, v7.16b\n\t"

// Load the scales of four blocks of a row into general registers n0 to n3.
#define LOAD_SCALES(ldr, row, size, n) \
    ldr " %w[" n "0], [%[" #row "]]\n\t" \
    ldr " %w[" n "1], [%[" #row "], #(" size ")]\n\t" \
    ldr " %w[" n "2], [%[" #row "], #(2 * " size ")]\n\t" \
    ldr " %w[" n "3], [%[" #row "], #(3 * " size ")]\n\t"
#define LOAD_F16(row, size, n) LOAD_SCALES("ldrh", row, size, n)
#define LOAD_POWERS(row, size, n) LOAD_SCALES("ldrb", row, size, n)
// JOIN_16BIT joins four 16-bit scales in n0. JOIN_POWERS first replaces exponents of mxfp4 by 16-bit scales.
#define JOIN_16BIT(n) \
    "orr %x[" n "0], %x[" n "0], %x[" n "1], lsl #16\n\t" \
    "orr %x[" n "2], %x[" n "2], %x[" n "3], lsl #16\n\t" \
    "orr %x[" n "0], %x[" n "0], %x[" n "2], lsl #32\n\t"
#define JOIN_POWERS(n) \
    "ldrh %w[" n "0], [%[powers], %x[" n "0], lsl #1]\n\t" \
    "ldrh %w[" n "1], [%[powers], %x[" n "1], lsl #1]\n\t" \
    "ldrh %w[" n "2], [%[powers], %x[" n "2], lsl #1]\n\t" \
    "ldrh %w[" n "3], [%[powers], %x[" n "3], lsl #1]\n\t" \
    JOIN_16BIT(n)

#define FLOATS_OF_F16 \
    "fcvtl v8.4s, v24.4h\n\t" \
    "fcvtl2 v9.4s, v24.8h\n\t"
#define FLOATS_OF_POWERS \
    "shll v8.4s, v24.4h, #16\n\t" \
    "shll2 v9.4s, v24.8h, #16\n\t"

// The two folding steps of the previous group. For the first group, the previous sums and scales are zeros.
#define FOLD_HALF \
    "addp v18.4s, v10.4s, v11.4s\n\t" \
    "addp v19.4s, v14.4s, v15.4s\n\t"
#define FOLD \
    "addp v18.4s, v16.4s, v18.4s\n\t" \
    "addp v19.4s, v17.4s, v19.4s\n\t"
#define OFFSET_SUMS \
    "add v18.4s, v18.4s, v25.4s\n\t" \
    "add v19.4s, v19.4s, v25.4s\n\t"
#define FLOATS_OF_OFFSET_SUMS \
    "fsub v18.4s, v18.4s, v30.4s\n\t" \
    "fsub v19.4s, v19.4s, v30.4s\n\t" \
    "ldr q25, [%[y], #16]\n\t"
#define FLOATS_OF_SUMS \
    "scvtf v18.4s, v18.4s\n\t" \
    "scvtf v19.4s, v19.4s\n\t"
#define ADD_UP \
    "fmla v28.4s, v18.4s, v26.4s\n\t" \
    "fmla v29.4s, v19.4s, v27.4s\n\t"

// ---- a group, and all groups ----

// next_x, next_y: block index and column offset that are loaded for the next group.
#define NIBBLES_GROUP(size, head, next_x, next_y, load, join, scale_floats, expand, offset, sum_floats) \
    load(a, size, "a") \
    FOLD_HALF \
    "prfm pldl2keep, [%[a], #" NIBBLES_STR(STREAMS_AHEAD) "]\n\t" \
    "prfm pldl2keep, [%[b], #" NIBBLES_STR(STREAMS_AHEAD) "]\n\t" \
    NEXT(2, 3, 22, 23, 1, head " + 32", size) \
    DOTS(0, 1, 20, 21, 8, 12, expand) \
    join("a") \
    load(b, size, "b") \
    FOLD \
    NEXT(0, 1, 20, 21, 2, head " + 64", size) \
    DOTS(2, 3, 22, 23, 9, 13, expand) \
    join("b") \
    "stp %x[a0], %x[b0], [%[cell]]\n\t" \
    offset \
    "addp v16.4s, v8.4s, v9.4s\n\t" \
    "addp v17.4s, v12.4s, v13.4s\n\t" \
    NEXT(2, 3, 22, 23, 3, head " + 96", size) \
    DOTS(0, 1, 20, 21, 10, 14, expand) \
    "ldr q24, [%[cell]]\n\t" \
    sum_floats \
    NEXT(0, 1, 20, 21, next_x, next_y, size) \
    DOTS(2, 3, 22, 23, 11, 15, expand) \
    scale_floats \
    ADD_UP \
    "ldr q24, [%[y]]\n\t" \
    "fmul v26.4s, v8.4s, v24.4s\n\t" \
    "fmul v27.4s, v9.4s, v24.4s\n\t"

// There is at least one group. The last group loads its last block twice, because loads past the end are not allowed.
#define NIBBLES(type, size, head, table, powers_at, load, join, scale_floats, expand, offset, sum_floats) \
    UNPACK_INLINE float32x2_t two_rows_##type(int64_t n, const block_##type *a, const block_##type *b, const char *y) { \
        _Static_assert(sizeof(block_##type) == size, "offsets are those of a block"); \
        register float32x4_t sums_a __asm__("v28"), sums_b __asm__("v29"); \
        int64_t left = n / 128; \
        uint64_t a0, a1, a2, a3, b0, b1, b2, b3, cell[2]; \
        __asm__ volatile( \
            "movi v31.16b, #15\n\t" \
            "ldr q30, [%[numbers]]\n\t" \
            "ldur q0, [%[a], #(" #size " - 16)]\n\t" \
            "ldur q1, [%[b], #(" #size " - 16)]\n\t" \
            "ldp q20, q21, [%[y], #" #head "]\n\t" \
            "movi v10.4s, #0\n\tmovi v11.4s, #0\n\tmovi v14.4s, #0\n\tmovi v15.4s, #0\n\t" \
            "movi v16.4s, #0\n\tmovi v17.4s, #0\n\tmovi v25.4s, #0\n\t" \
            "movi v26.4s, #0\n\tmovi v27.4s, #0\n\tmovi v28.4s, #0\n\tmovi v29.4s, #0\n\t" \
            "subs %[left], %[left], #1\n\t" \
            "b.eq 2f\n\t" \
            ".p2align 5\n\t" \
            "1:\n\t" \
            NIBBLES_GROUP(#size, #head, 4, #head " + 128 + " #head, load, join, scale_floats, expand, offset, sum_floats) \
            "add %[a], %[a], #(4 * " #size ")\n\t" \
            "add %[b], %[b], #(4 * " #size ")\n\t" \
            "add %[y], %[y], #(" #head " + 128)\n\t" \
            "subs %[left], %[left], #1\n\t" \
            "b.ne 1b\n\t" \
            "2:\n\t" \
            NIBBLES_GROUP(#size, #head, 3, #head, load, join, scale_floats, expand, offset, sum_floats) \
            FOLD_HALF \
            FOLD \
            offset \
            sum_floats \
            ADD_UP \
            : "=w"(sums_a), "=w"(sums_b), [a] "+r"(a), [b] "+r"(b), [y] "+r"(y), [left] "+r"(left), [a0] "=&r"(a0), \
              [a1] "=&r"(a1), [a2] "=&r"(a2), [a3] "=&r"(a3), [b0] "=&r"(b0), [b1] "=&r"(b1), [b2] "=&r"(b2), [b3] "=&r"(b3) \
            : [numbers] "r"(table), [powers] "r"(powers_at), [cell] "r"(cell) \
            : "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15", "v16", \
              "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v30", "v31", "cc", "memory"); \
        return (float32x2_t){vaddvq_f32(sums_a), vaddvq_f32(sums_b)}; \
    }

// clang-format on

static const float table_large[4] = {LARGE, LARGE, LARGE, LARGE};

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverlength-strings" // gcc and clang accept long strings
NIBBLES(q4_0, 18, 32, table_large, NULL, LOAD_F16, JOIN_16BIT, FLOATS_OF_F16, "", OFFSET_SUMS, FLOATS_OF_OFFSET_SUMS)
NIBBLES(iq4_nl, 18, 16, table_iq4, NULL, LOAD_F16, JOIN_16BIT, FLOATS_OF_F16, EXPAND_TABLE, "", FLOATS_OF_SUMS)
NIBBLES(mxfp4, 17, 16, table_mxfp4, table_powers, LOAD_POWERS, JOIN_POWERS, FLOATS_OF_POWERS, EXPAND_TABLE, "", FLOATS_OF_SUMS)
#pragma GCC diagnostic pop
