// SPDX-License-Identifier: MIT
// gemm_f16__fhm.c: products of rows of halves with many columns, 8 by 16 (gemm_f16.h). Sums of 48 products, made of two of
// 24, reach the floats by a multiplication with one, which all four pipes of a large core do, where only one converts. Such a
// core multiplies and adds four times a turn, but a sum is ready after four: there are sixteen at any time. Fewer columns, up to
// 8, have two sums each, of every other element. Rows are taken from panels or as they lie, by the same instructions.

#define MR 8
#define NR 16

#include "cpu/arm/gemm_f16.h"
#include "cpu/kernels.h"

#include <limits.h>

#define AHEAD 256 // bytes of a row asked for before they are read

// Products of n times eight elements of all rows with 16 columns, or the first 8 of them, added to `tile`. Elements of row r are
// in vector r, its sums in vectors 20 + r and 10 + r, columns where there is room. What is next is loaded as soon as its place is
// free; after the last elements they are loaded again. Whole, since compilers need two instructions to multiply by a lane.

// clang-format off
#define FMA(a, r, y, k) "fmla v" #a #r ".8h, v" #y ".8h, v" #r ".h[" #k "]\n\t"
#define X_ROW(r) "ldr q" #r ", [%[x], %[o" #r "]]\n\t"
#define EACH(f) f(0) f(1) f(2) f(3) f(4) f(5) f(6) f(7)
#define ZERO(r) "movi v2" #r ".4s, #0\n\tmovi v1" #r ".4s, #0\n\t"
#define ASK(r) "prfm pldl1keep, [%[next], %[o" #r "]]\n\t"
// One of eight elements, with a load in the middle of it.
#define GROUP(f, a, b, k, load) f(0, a, b, k) f(1, a, b, k) f(2, a, b, k) f(3, a, b, k) load f(4, a, b, k) f(5, a, b, k) \
    f(6, a, b, k) f(7, a, b, k)
#define NEXT \
    "subs %[n], %[n], #1\n\t" \
    "add %[next], %[x], %[step]\n\tcsel %[x], %[next], %[x], ne\n\t" \
    "add %[next], %[y], #256\n\tcsel %[y], %[next], %[y], ne\n\t"
// Sums of row r to floats, those of the vector that begins with a; ones is a vector of ones.
#define PUT(r, a, x0, x1, ones, off) \
    "ldp q" #x0 ", q" #x1 ", [%[tile], #" #off "]\n\t" \
    "fmlal v" #x0 ".4s, v" #a #r ".4h, v" #ones ".4h\n\tfmlal2 v" #x1 ".4s, v" #a #r ".4h, v" #ones ".4h\n\t" \
    "stp q" #x0 ", q" #x1 ", [%[tile], #" #off "]\n\t"
// Sums of `most` times eight elements, or all that are left.
#define SUMS(most, label, eight) \
    "cmp %[n], #" #most "\n\tmov %[left], #" #most "\n\tcsel %[left], %[n], %[left], lo\n\t" \
    "add %[next], %[x], %[ahead]\n\t" EACH(ASK) EACH(ZERO) \
    #label ":\n\t" eight "subs %[left], %[left], #1\n\tb.ne " #label "b\n\t"
#define OPERANDS \
    : [x] "+r"(x), [y] "+r"(y), [n] "+r"(n), [next] "=&r"(next), [left] "=&r"(left) \
    : [tile] "r"(tile), [part] "r"(part), [step] "r"(step), [ahead] "r"((size_t) AHEAD), [o0] "r"((size_t) 0), [o1] "r"(b), \
      [o2] "r"(2 * b), [o3] "r"(3 * b), [o4] "r"(4 * b), [o5] "r"(5 * b), [o6] "r"(6 * b), [o7] "r"(7 * b) \
    : "memory", "cc", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15", \
      "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31"

// 16 columns: pairs of vectors, of which four are there in turn.
#define BOTH(r, a, b, k) FMA(2, r, a, k) FMA(1, r, b, k)
#define BOTH_NEXT(r, a, b, k) BOTH(r, a, b, k) X_ROW(r)
#define PAIR(a, b, off) "ldp q" #a ", q" #b ", [%[y], #" #off "]\n\t"
#define EIGHT_OF_16 \
    GROUP(BOTH, 8, 9, 0, PAIR(28, 29, 64)) GROUP(BOTH, 18, 19, 1, PAIR(30, 31, 96)) GROUP(BOTH, 28, 29, 2, PAIR(8, 9, 128)) \
    GROUP(BOTH, 30, 31, 3, PAIR(18, 19, 160)) GROUP(BOTH, 8, 9, 4, PAIR(28, 29, 192)) GROUP(BOTH, 18, 19, 5, PAIR(30, 31, 224)) \
    NEXT GROUP(BOTH, 28, 29, 6, PAIR(8, 9, 0)) GROUP(BOTH_NEXT, 30, 31, 7, PAIR(18, 19, 32))
#define PUT_16(r, off, off2) PUT(r, 2, 28, 29, 31, off) PUT(r, 1, 28, 29, 31, off2)
// Every other sums are kept as halves and added to the next: storing floats takes as long as what is multiplied between.
#define KEEP(r, off) "stp q2" #r ", q1" #r ", [%[part], #" #off "]\n\t"
#define KEPT(r, off) "ldp q28, q29, [%[part], #" #off "]\n\t" \
    "fadd v2" #r ".8h, v2" #r ".8h, v28.8h\n\tfadd v1" #r ".8h, v1" #r ".8h, v29.8h\n\t"
#define EACH_KEPT(f) f(0, 0) f(1, 32) f(2, 64) f(3, 96) f(4, 128) f(5, 160) f(6, 192) f(7, 224)

// 8 columns: a vector, every other one to the second sums.
#define FIRST(r, a, b, k) FMA(2, r, a, k)
#define SECOND(r, a, b, k) FMA(1, r, a, k)
#define SECOND_NEXT(r, a, b, k) SECOND(r, a, b, k) X_ROW(r)
#define ONE(a, off) "ldr q" #a ", [%[y], #" #off "]\n\t"
#define EIGHT_OF_8 \
    GROUP(FIRST, 8, , 0, ONE(30, 192)) GROUP(SECOND, 9, , 1, ONE(31, 224)) \
    NEXT GROUP(FIRST, 18, , 2, ONE(8, 0)) GROUP(SECOND, 19, , 3, ONE(9, 32)) GROUP(FIRST, 28, , 4, ONE(18, 64)) \
    GROUP(SECOND, 29, , 5, ONE(19, 96)) GROUP(FIRST, 30, , 6, ONE(28, 128)) GROUP(SECOND_NEXT, 31, , 7, ONE(29, 160))
#define FOLD(r) "fadd v2" #r ".8h, v2" #r ".8h, v1" #r ".8h\n\t"
#define PUT_8(r, off) PUT(r, 2, 30, 31, 10, off)

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverlength-strings" // of C's own length: whoever takes assembly takes more
static void add_16(float tile[MR][NR], const uint16_t *x, size_t b, size_t step, const uint16_t *y, int64_t n) {
    const uint16_t *next;
    int64_t left;
    float16_t part[MR][NR];
    __asm__ volatile(
        EACH(X_ROW) PAIR(8, 9, 0) PAIR(18, 19, 32)
        "1:\n\t"
        SUMS(3, 2, EIGHT_OF_16)
        "cbz %[n], 4f\n\t"
        EACH_KEPT(KEEP)
        SUMS(3, 3, EIGHT_OF_16)
        EACH_KEPT(KEPT)
        "4:\n\t"
        "fmov v31.8h, #1.0\n\t"
        PUT_16(0, 0, 32) PUT_16(1, 64, 96) PUT_16(2, 128, 160) PUT_16(3, 192, 224)
        PUT_16(4, 256, 288) PUT_16(5, 320, 352) PUT_16(6, 384, 416) PUT_16(7, 448, 480)
        "cbnz %[n], 1b\n\t"
        OPERANDS);
}

static void add_8(float tile[MR][NR], const uint16_t *x, size_t b, size_t step, const uint16_t *y, int64_t n) {
    const uint16_t *next;
    int64_t left;
    const char *part = NULL; // none is kept
    __asm__ volatile(
        EACH(X_ROW) ONE(8, 0) ONE(9, 32) ONE(18, 64) ONE(19, 96) ONE(28, 128) ONE(29, 160)
        "1:\n\t"
        SUMS(6, 2, EIGHT_OF_8)
        EACH(FOLD) "fmov v10.8h, #1.0\n\t"
        PUT_8(0, 0) PUT_8(1, 64) PUT_8(2, 128) PUT_8(3, 192) PUT_8(4, 256) PUT_8(5, 320) PUT_8(6, 384) PUT_8(7, 448)
        "cbnz %[n], 1b\n\t"
        OPERANDS);
}
#pragma GCC diagnostic pop
// clang-format on

// nx rows, of which eight elements lie as `at` says, with a panel of columns.
static inline __attribute__((always_inline)) void tile_run(
    int64_t n, float *s, int64_t ld_s, const struct place *at, int nx, const void *panel_y, int ny) {
    float tile[MR][NR] = {{0}};
    const uint16_t *y = (const void *) ((const float *) panel_y + NR);
    if (n > 0) {
        (ny > 8 ? add_16 : add_8)(tile, at->x, at->row * sizeof *y, at->step * sizeof *y, y, (n + STEP - 1) / STEP);
    }
    tile_put(n, tile, MR, at, panel_y, s, ld_s, nx, ny);
}

static void run__fhm(CPU_GEMM_ARGS) {
    tile_run(n, s, ld_s, &(struct place){vx, 8, 8 * MR}, nx, vy, ny);
}

static void run_rows__fhm(CPU_GEMM_ROWS_ARGS) {
    tile_run(n, s, ld_s, &(struct place){vx, bx / sizeof(uint16_t), 8}, MR, vy, ny);
}

void cpu_tier_fhm_gemm_f16(struct cpu_kernels *k) {
    const struct cpu_gemm_rows rows = {run_rows__fhm, STEP, INT_MAX}; // panels of them were no faster
    k->gemm[GGML_TYPE_F16] = gemm_f16(run__fhm, 5, rows);
}
