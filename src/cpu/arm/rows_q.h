// SPDX-License-Identifier: MIT
// rows_q.h: multiplies four unpacked rows of q8_0, q4_0, iq4_nl or mxfp4 with a panel of four columns (gemm_q__dotprod.c). With
// few columns, packing the rows takes longer than it saves. SDOT multiplies four bytes of each column (a line, panel_q.h) with
// four bytes of a row. So each lane is the sum of one column.
//
// The order of instructions is fixed in assembly, because code of compilers takes 50% longer. The next block is loaded, and the
// previous block scaled, while the current block is multiplied. Sums start with the bits of a large float (BASE in
// gemm_q__dotprod.c).
//
// Registers:
//     v0-v3    first 16 bytes of blocks, unpacked    v12-v15 v16-v19  sums of the current and of the previous block, alternating
//     v4-v7    second 16 bytes                       v20-v23          results
//     v8-v11   lines of the panel                    v24 v25 v26 v27  scales of rows and columns, of both blocks
//     v28      the large float                       v29-v31          constants for unpacking
#pragma once

#include "cpu/arm/unpack.h"

// clang-format off
// a, b: other instructions, usually a load each. A Neoverse N1 dispatches at most two vector instructions and two loads per cycle,
// in order, so loads are spread.
#define ROWS_DOT(t0, t1, t2, t3, y, x0, x1, x2, x3, k, a, b) \
    "sdot v" #t0 ".4s, v" #y ".16b, v" #x0 ".4b[" #k "]\n\t" \
    "sdot v" #t1 ".4s, v" #y ".16b, v" #x1 ".4b[" #k "]\n\t" a \
    "sdot v" #t2 ".4s, v" #y ".16b, v" #x2 ".4b[" #k "]\n\t" \
    "sdot v" #t3 ".4s, v" #y ".16b, v" #x3 ".4b[" #k "]\n\t" b
// Subtract the large float from sum p of the previous block, scale p by dx and dy, and add p to s.
#define ROWS_SUB(p) "fsub v" #p ".4s, v" #p ".4s, v28.4s\n\t"
#define ROWS_MUL(p, dx, r) "fmul v" #p ".4s, v" #p ".4s, v" #dx ".s[" #r "]\n\t"
#define ROWS_ADD(s, p, dy) "fmla v" #s ".4s, v" #p ".4s, v" #dy ".4s\n\t"

// ROWS_HEAD loads the scale of a row. ROWS_POWERS replaces exponents of mxfp4 by 16-bit scales. ROWS_JOIN moves the four
// scales to vector dx.
#define ROWS_HEAD(ldr, r) ldr " %w[d" #r "], [%[r" #r "], %[at]]\n\t"
#define ROWS_POWERS \
    "ldrh %w[d0], [%[powers], %x[d0], lsl #1]\n\t" \
    "ldrh %w[d1], [%[powers], %x[d1], lsl #1]\n\t" \
    "ldrh %w[d2], [%[powers], %x[d2], lsl #1]\n\t" \
    "ldrh %w[d3], [%[powers], %x[d3], lsl #1]\n\t"
#define ROWS_JOIN(dx) \
    "orr %x[d0], %x[d0], %x[d1], lsl #16\n\t" \
    "orr %x[d2], %x[d2], %x[d3], lsl #16\n\t" \
    "orr %x[d0], %x[d0], %x[d2], lsl #32\n\t" \
    "fmov d" #dx ", %x[d0]\n\t"
#define ROWS_WIDEN(dx) "fcvtl v" #dx ".4s, v" #dx ".4h\n\t"
#define ROWS_WIDEN_POWERS(dx) "shll v" #dx ".4s, v" #dx ".4h, #16\n\t"

#define ROWS_AHEAD "256" // prefetch distance in bytes
// After the last block, `next` is the first block, because loads past the end are not allowed.
#define ROWS_NEXT(size, head) \
    "add %[at], %[at], #" size "\n\t" \
    "cmp %[at], %[end]\n\t" \
    "csel %[next], %[at], xzr, lo\n\t" \
    "add %[next], %[next], #" head "\n\t"
#define ROWS_LOAD(v, r) "ldr q" #v ", [%[r" #r "], %[next]]\n\t"
#define ROWS_LOAD_4(v0, v1, v2, v3) ROWS_LOAD(v0, 0) ROWS_LOAD(v1, 1) ROWS_LOAD(v2, 2) ROWS_LOAD(v3, 3)
#define ROWS_Y(v, off) "ldr q" #v ", [%[y], #" #off "]\n\t"
#define ROWS_BASE(v) "ldr q" #v ", [%[base]]\n\t"
#define ROWS_PREFETCH(r) "prfm pldl1keep, [%[" #r "], %[d1]]\n\t"

// EXPAND(a, b, c) executes the loads a, b and c between the rows. LOW(v, r) loads the first 16 bytes of the next block of row r.
// HIGH prepares `next` for the other loads, to v4-v7.
#define Q8_0_HEAD "2"
#define Q8_0_SCALE(r) ROWS_HEAD("ldrh", r)
#define Q8_0_POWERS
#define Q8_0_WIDEN ROWS_WIDEN
#define Q8_0_SIZE "34"
#define Q8_0_INIT
#define Q8_0_FIRST ROWS_LOAD_4(0, 1, 2, 3) Q8_0_HIGH ROWS_LOAD_4(4, 5, 6, 7)
#define Q8_0_EXPAND(a, b, c) a b c
#define Q8_0_LOW ROWS_LOAD
#define Q8_0_HIGH "add %[next], %[next], #16\n\t"

// Nibbles are loaded to v4-v7 and expanded to v0-v7.
#define NONE(v, r)
#define Q4_0_HEAD "2"
#define Q4_0_SCALE(r) ROWS_HEAD("ldrh", r)
#define Q4_0_POWERS
#define Q4_0_WIDEN ROWS_WIDEN
#define Q4_0_SIZE "18"
#define Q4_0_INIT "movi v29.16b, #0xf0\n\tmovi v30.16b, #0x88\n\t"
#define Q4_0_FIRST ROWS_LOAD_4(4, 5, 6, 7)
#define Q4_0_ROW(lo, hi) \
    "eor v" #hi ".16b, v" #hi ".16b, v30.16b\n\t" \
    "shl v" #lo ".16b, v" #hi ".16b, #4\n\t" \
    "and v" #hi ".16b, v" #hi ".16b, v29.16b\n\t"
#define Q4_0_EXPAND(a, b, c) Q4_0_ROW(0, 4) a Q4_0_ROW(1, 5) b Q4_0_ROW(2, 6) c Q4_0_ROW(3, 7)
#define Q4_0_LOW NONE
#define Q4_0_HIGH

#define IQ4_NL_HEAD "2"
#define IQ4_NL_SCALE(r) ROWS_HEAD("ldrh", r)
#define IQ4_NL_POWERS
#define IQ4_NL_WIDEN ROWS_WIDEN
#define IQ4_NL_SIZE "18"
#define IQ4_NL_INIT "movi v29.16b, #0x0f\n\tldr q31, [%[table]]\n\t"
#define IQ4_NL_FIRST ROWS_LOAD_4(4, 5, 6, 7)
#define IQ4_NL_ROW(lo, hi) \
    "and v" #lo ".16b, v" #hi ".16b, v29.16b\n\t" \
    "ushr v" #hi ".16b, v" #hi ".16b, #4\n\t" \
    "tbl v" #lo ".16b, {v31.16b}, v" #lo ".16b\n\t" \
    "tbl v" #hi ".16b, {v31.16b}, v" #hi ".16b\n\t"
#define IQ4_NL_EXPAND(a, b, c) IQ4_NL_ROW(0, 4) a IQ4_NL_ROW(1, 5) b IQ4_NL_ROW(2, 6) c IQ4_NL_ROW(3, 7)
#define IQ4_NL_LOW NONE
#define IQ4_NL_HIGH

#define MXFP4_HEAD "1"
#define MXFP4_SCALE(r) ROWS_HEAD("ldrb", r)
#define MXFP4_POWERS ROWS_POWERS
#define MXFP4_WIDEN ROWS_WIDEN_POWERS
#define MXFP4_SIZE "17"
#define MXFP4_INIT IQ4_NL_INIT
#define MXFP4_FIRST IQ4_NL_FIRST
#define MXFP4_EXPAND IQ4_NL_EXPAND
#define MXFP4_LOW NONE
#define MXFP4_HIGH

// t0-t3, dx, dy: sums and scales of this block. p0-p3, px, py: those of the previous block; p0-p3 become the sums of the next
// block. ra, rb: rows to prefetch.
#define ROWS_BLOCK(TYPE, ra, rb, t0, t1, t2, t3, dx, dy, p0, p1, p2, p3, px, py) \
    TYPE##_EXPAND(ROWS_Y(8, 16), ROWS_Y(dy, 0), ROWS_Y(9, 32)) \
    ROWS_DOT(t0, t1, t2, t3, 8, 0, 1, 2, 3, 0, TYPE##_SCALE(0), TYPE##_SCALE(1)) \
    ROWS_SUB(p0) ROWS_SUB(p1) ROWS_Y(10, 48) ROWS_SUB(p2) ROWS_SUB(p3) ROWS_Y(11, 64) \
    ROWS_DOT(t0, t1, t2, t3, 9, 0, 1, 2, 3, 1, TYPE##_SCALE(2), TYPE##_SCALE(3)) \
    TYPE##_POWERS ROWS_JOIN(dx) \
    ROWS_MUL(p0, px, 0) ROWS_MUL(p1, px, 1) ROWS_Y(8, 80) ROWS_MUL(p2, px, 2) ROWS_MUL(p3, px, 3) ROWS_Y(9, 96) \
    ROWS_NEXT(TYPE##_SIZE, TYPE##_HEAD) \
    "add %[d1], %[at], #" ROWS_AHEAD "\n\t" \
    ROWS_DOT(t0, t1, t2, t3, 10, 0, 1, 2, 3, 2, ROWS_PREFETCH(ra), ROWS_PREFETCH(rb)) \
    TYPE##_WIDEN(dx) \
    ROWS_DOT(t0, t1, t2, t3, 11, 0, 1, 2, 3, 3, ROWS_Y(10, 112), ) \
    ROWS_DOT(t0, t1, t2, t3, 8, 4, 5, 6, 7, 0, ROWS_Y(11, 128), TYPE##_LOW(0, 0)) \
    ROWS_ADD(20, p0, py) ROWS_ADD(21, p1, py) TYPE##_LOW(1, 1) ROWS_ADD(22, p2, py) ROWS_ADD(23, p3, py) TYPE##_LOW(2, 2) \
    ROWS_DOT(t0, t1, t2, t3, 9, 4, 5, 6, 7, 1, TYPE##_LOW(3, 3) ROWS_BASE(p0), ROWS_BASE(p1)) \
    TYPE##_HIGH \
    "add %[y], %[y], %[y_size]\n\t" \
    ROWS_DOT(t0, t1, t2, t3, 10, 4, 5, 6, 7, 2, ROWS_BASE(p2), ROWS_BASE(p3)) \
    ROWS_DOT(t0, t1, t2, t3, 11, 4, 5, 6, 7, 3, ROWS_LOAD(4, 0) ROWS_LOAD(5, 1), ROWS_LOAD(6, 2) ROWS_LOAD(7, 3))

#define ROWS_Q(type, TYPE, numbers) \
    static void four_##type(int64_t n, const char *x, size_t bx, const char *y, const float *base, float32x4_t *out) { \
        const char *r0 = x, *r1 = r0 + bx, *r2 = r1 + bx, *r3 = r2 + bx; \
        size_t at = 0, next = sizeof(block_##type) % 16; \
        uint64_t d0, d1, d2, d3; \
        __asm__ volatile( \
            "ldr q28, [%[base]]\n\t" \
            TYPE##_INIT \
            "movi v20.4s, #0\n\tmovi v21.4s, #0\n\tmovi v22.4s, #0\n\tmovi v23.4s, #0\n\t" \
            "movi v24.4s, #0\n\tmovi v25.4s, #0\n\tmovi v26.4s, #0\n\tmovi v27.4s, #0\n\t" \
            "mov v12.16b, v28.16b\n\tmov v13.16b, v28.16b\n\tmov v14.16b, v28.16b\n\tmov v15.16b, v28.16b\n\t" \
            "mov v16.16b, v28.16b\n\tmov v17.16b, v28.16b\n\tmov v18.16b, v28.16b\n\tmov v19.16b, v28.16b\n\t" \
            TYPE##_FIRST \
            "tbnz %[n_blocks], #0, 2f\n\t" /* an odd number of blocks starts with the second part of the loop */ \
            "1:\n\t" \
            ROWS_BLOCK(TYPE, r0, r1, 12, 13, 14, 15, 24, 25, 16, 17, 18, 19, 26, 27) \
            "2:\n\t" \
            ROWS_BLOCK(TYPE, r2, r3, 16, 17, 18, 19, 26, 27, 12, 13, 14, 15, 24, 25) \
            "cmp %[at], %[end]\n\t" \
            "b.lo 1b\n\t" \
            ROWS_SUB(16) ROWS_SUB(17) ROWS_SUB(18) ROWS_SUB(19) \
            ROWS_MUL(16, 26, 0) ROWS_MUL(17, 26, 1) ROWS_MUL(18, 26, 2) ROWS_MUL(19, 26, 3) \
            ROWS_ADD(20, 16, 27) ROWS_ADD(21, 17, 27) ROWS_ADD(22, 18, 27) ROWS_ADD(23, 19, 27) \
            "stp q20, q21, [%[out]]\n\t" \
            "stp q22, q23, [%[out], #32]\n\t" \
            : [y] "+&r"(y), [at] "+&r"(at), [next] "+&r"(next), [d0] "=&r"(d0), [d1] "=&r"(d1), [d2] "=&r"(d2), [d3] "=&r"(d3) \
            : [r0] "r"(r0), [r1] "r"(r1), [r2] "r"(r2), [r3] "r"(r3), [base] "r"(base), [out] "r"(out), \
              [end] "r"((size_t) n / 32 * sizeof(block_##type)), \
              [n_blocks] "r"(n / 32), [table] "r"(numbers), [powers] "r"(table_powers), \
              [y_size] "I"(Y_PANEL(32, Y_HEAD_32(0))) \
            : "memory", "cc", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15", \
              "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30", \
              "v31"); \
    }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverlength-strings" // longer than C guarantees; compilers with inline assembly accept it
ROWS_Q(q8_0, Q8_0, NULL)
ROWS_Q(q4_0, Q4_0, NULL)
ROWS_Q(iq4_nl, IQ4_NL, table_iq4)
ROWS_Q(mxfp4, MXFP4, table_mxfp4)
#pragma GCC diagnostic pop
// clang-format on
