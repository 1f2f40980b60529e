// SPDX-License-Identifier: MIT
// gemm_f16__fhm.c: products of f16 rows with several columns, in tiles of 8 by 16 (gemm_f16.h). Sums of 48 products (with at
// most 8 columns: 96) are f16, longer sums f32. FMLAL with a factor of 1 adds f16 sums to f32 sums without a conversion. Four
// pipes execute FMLAL, but only one pipe executes conversions. Four multiply-adds per cycle with a latency of four cycles
// require 16 sums in progress: 8 rows times two vectors. With at most 8 columns, even and odd elements have separate sums.

#define MR 8
#define NR 16

// Add vector h0 to vectors 28 and 29, or its first half to vector 28. Vector 30: ones.
#define FEW_TO_F32_HALF(h) "fmlal v28.4s, v" #h "0.4h, v30.4h\n\t"
#define FEW_TO_F32(h) FEW_TO_F32_HALF(h) "fmlal2 v29.4s, v" #h "0.4h, v30.4h\n\t"

#include "cpu/arm/gemm_f16.h"
#include "cpu/kernels.h"

#include <limits.h>

#define AHEAD 256 // prefetch distance in bytes

// add_16 and add_8 add to `tile` the products of n groups of eight elements with 16 or 8 columns. Vector r: row r. Vectors 20 + r
// and 10 + r: sums of row r. Vectors 8, 9, 18, 19 and 28 to 31: columns. The last group loads its operands twice, because loads
// past the end are not allowed. Assembly, because compilers need two instructions to multiply by a lane.

// clang-format off
#define FMA(a, r, y, k) "fmla v" #a #r ".8h, v" #y ".8h, v" #r ".h[" #k "]\n\t"
#define X_ROW(r) "ldr q" #r ", [%[x], %[o" #r "]]\n\t"
#define EACH(f) f(0) f(1) f(2) f(3) f(4) f(5) f(6) f(7)
#define ZERO(r) "movi v2" #r ".4s, #0\n\tmovi v1" #r ".4s, #0\n\t"
#define PREFETCH(r) "prfm pldl1keep, [%[next], %[o" #r "]]\n\t"
// `load` is executed after the first four rows.
#define GROUP(f, a, b, k, load) f(0, a, b, k) f(1, a, b, k) f(2, a, b, k) f(3, a, b, k) load f(4, a, b, k) f(5, a, b, k) \
    f(6, a, b, k) f(7, a, b, k)
#define NEXT \
    "subs %[n], %[n], #1\n\t" \
    "add %[next], %[x], %[step]\n\tcsel %[x], %[next], %[x], ne\n\t" \
    "add %[next], %[y], #256\n\tcsel %[y], %[next], %[y], ne\n\t"
// Adds the f16 sums of row r, in vector a##r, to `tile`.
#define TO_F32(r, a, x0, x1, ones, off) \
    "ldp q" #x0 ", q" #x1 ", [%[tile], #" #off "]\n\t" \
    "fmlal v" #x0 ".4s, v" #a #r ".4h, v" #ones ".4h\n\tfmlal2 v" #x1 ".4s, v" #a #r ".4h, v" #ones ".4h\n\t" \
    "stp q" #x0 ", q" #x1 ", [%[tile], #" #off "]\n\t"
// Sums at most `most` groups of eight elements. `eight`: code for one group.
#define SUMS(most, label, eight) \
    "cmp %[n], #" #most "\n\tmov %[left], #" #most "\n\tcsel %[left], %[n], %[left], lo\n\t" \
    "add %[next], %[x], %[ahead]\n\t" EACH(PREFETCH) EACH(ZERO) \
    #label ":\n\t" eight "subs %[left], %[left], #1\n\tb.ne " #label "b\n\t"
#define OPERANDS \
    : [x] "+r"(x), [y] "+r"(y), [n] "+r"(n), [next] "=&r"(next), [left] "=&r"(left) \
    : [tile] "r"(tile), [part] "r"(part), [step] "r"(step), [ahead] "r"((size_t) AHEAD), [o0] "r"((size_t) 0), [o1] "r"(b), \
      [o2] "r"(2 * b), [o3] "r"(3 * b), [o4] "r"(4 * b), [o5] "r"(5 * b), [o6] "r"(6 * b), [o7] "r"(7 * b) \
    : "memory", "cc", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15", \
      "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31"

// One element of all columns is a pair of vectors.
#define BOTH(r, a, b, k) FMA(2, r, a, k) FMA(1, r, b, k)
#define BOTH_NEXT(r, a, b, k) BOTH(r, a, b, k) X_ROW(r)
#define PAIR(a, b, off) "ldp q" #a ", q" #b ", [%[y], #" #off "]\n\t"
#define EIGHT_OF_16 \
    GROUP(BOTH, 8, 9, 0, PAIR(28, 29, 64)) GROUP(BOTH, 18, 19, 1, PAIR(30, 31, 96)) GROUP(BOTH, 28, 29, 2, PAIR(8, 9, 128)) \
    GROUP(BOTH, 30, 31, 3, PAIR(18, 19, 160)) GROUP(BOTH, 8, 9, 4, PAIR(28, 29, 192)) GROUP(BOTH, 18, 19, 5, PAIR(30, 31, 224)) \
    NEXT GROUP(BOTH, 28, 29, 6, PAIR(8, 9, 0)) GROUP(BOTH_NEXT, 30, 31, 7, PAIR(18, 19, 32))
#define TO_F32_16(r, off, off2) TO_F32(r, 2, 28, 29, 31, off) TO_F32(r, 1, 28, 29, 31, off2)
// The f16 sums of three groups of eight elements are stored in `part` and added to the f16 sums of the next three groups. So the
// f32 sums are updated only once per six groups. An update of the f32 sums takes as long as multiplying three groups.
#define PART_STORE(r, off) "stp q2" #r ", q1" #r ", [%[part], #" #off "]\n\t"
#define PART_ADD(r, off) "ldp q28, q29, [%[part], #" #off "]\n\t" \
    "fadd v2" #r ".8h, v2" #r ".8h, v28.8h\n\tfadd v1" #r ".8h, v1" #r ".8h, v29.8h\n\t"
#define EACH_PART(f) f(0, 0) f(1, 32) f(2, 64) f(3, 96) f(4, 128) f(5, 160) f(6, 192) f(7, 224)

// Products of odd elements are added to vectors 10 + r.
#define FIRST(r, a, b, k) FMA(2, r, a, k)
#define SECOND(r, a, b, k) FMA(1, r, a, k)
#define SECOND_NEXT(r, a, b, k) SECOND(r, a, b, k) X_ROW(r)
#define ONE(a, off) "ldr q" #a ", [%[y], #" #off "]\n\t"
#define EIGHT_OF_8 \
    GROUP(FIRST, 8, , 0, ONE(30, 192)) GROUP(SECOND, 9, , 1, ONE(31, 224)) \
    NEXT GROUP(FIRST, 18, , 2, ONE(8, 0)) GROUP(SECOND, 19, , 3, ONE(9, 32)) GROUP(FIRST, 28, , 4, ONE(18, 64)) \
    GROUP(SECOND, 29, , 5, ONE(19, 96)) GROUP(FIRST, 30, , 6, ONE(28, 128)) GROUP(SECOND_NEXT, 31, , 7, ONE(29, 160))
#define FOLD(r) "fadd v2" #r ".8h, v2" #r ".8h, v1" #r ".8h\n\t"
#define EACH_PAIR(f, h) f(h##0, h##1, 0) f(h##2, h##3, 32) f(h##4, h##5, 64) f(h##6, h##7, 96)
#define PAIR_LOAD(a, b, off) "ldp q" #a ", q" #b ", [%[part], #" #off "]\n\t"
#define PAIR_STORE(a, b, off) "stp q" #a ", q" #b ", [%[part], #" #off "]\n\t"
#define TO_F32_8(r, off) TO_F32(r, 2, 30, 31, 10, off)

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverlength-strings" // longer than C guarantees; compilers with inline assembly accept it
static void add_16(float tile[MR][NR], const uint16_t *x, size_t b, size_t step, const uint16_t *y, int64_t n) {
    const uint16_t *next;
    int64_t left;
    float16_t part[MR][NR];
    __asm__ volatile(
        EACH(X_ROW) PAIR(8, 9, 0) PAIR(18, 19, 32)
        "1:\n\t"
        SUMS(3, 2, EIGHT_OF_16)
        "cbz %[n], 4f\n\t"
        EACH_PART(PART_STORE)
        SUMS(3, 3, EIGHT_OF_16)
        EACH_PART(PART_ADD)
        "4:\n\t"
        "fmov v31.8h, #1.0\n\t"
        TO_F32_16(0, 0, 32) TO_F32_16(1, 64, 96) TO_F32_16(2, 128, 160) TO_F32_16(3, 192, 224)
        TO_F32_16(4, 256, 288) TO_F32_16(5, 320, 352) TO_F32_16(6, 384, 416) TO_F32_16(7, 448, 480)
        "cbnz %[n], 1b\n\t"
        OPERANDS);
}

static void add_8(float tile[MR][NR], const uint16_t *x, size_t b, size_t step, const uint16_t *y, int64_t n) {
    const uint16_t *next;
    int64_t left;
    float16_t part[MR][8];
    __asm__ volatile(
        EACH(X_ROW) ONE(8, 0) ONE(9, 32) ONE(18, 64) ONE(19, 96) ONE(28, 128) ONE(29, 160)
        "1:\n\t"
        SUMS(6, 2, EIGHT_OF_8)
        EACH(FOLD)
        "cbz %[n], 4f\n\t"
        EACH_PAIR(PAIR_STORE, 2)
        SUMS(6, 3, EIGHT_OF_8)
        EACH(FOLD) EACH_PAIR(PAIR_LOAD, 1) EACH(FOLD)
        "4:\n\t"
        "fmov v10.8h, #1.0\n\t"
        TO_F32_8(0, 0) TO_F32_8(1, 64) TO_F32_8(2, 128) TO_F32_8(3, 192)
        TO_F32_8(4, 256) TO_F32_8(5, 320) TO_F32_8(6, 384) TO_F32_8(7, 448)
        "cbnz %[n], 1b\n\t"
        OPERANDS);
}
#pragma GCC diagnostic pop
// clang-format on

static inline __attribute__((always_inline)) void tile_run(
    int64_t n, float *s, int64_t ld_s, const struct x_layout *at, int nx, const void *panel_y, int ny) {
    float tile[MR][NR] = {{0}};
    const struct y_head *head = panel_y;
    const uint16_t *y = y_elements(panel_y);
    if (head->is_by_column) {
        few_run(n, tile, MR, at, y, ny);
    } else if (n > 0) {
        (ny > 8 ? add_16 : add_8)(tile, at->x, at->row * sizeof *y, at->step * sizeof *y, y, n_groups(n));
    }
    tile_store(n, tile, MR, at, head, s, ld_s, nx, ny);
}

static void run__fhm(CPU_GEMM_ARGS) {
    tile_run(n, s, ld_s, &(struct x_layout){vx, 8, 8 * MR}, nx, vy, ny);
}

static void run_rows__fhm(CPU_GEMM_ROWS_ARGS) {
    tile_run(n, s, ld_s, &(struct x_layout){vx, bx / sizeof(uint16_t), 8}, MR, vy, ny);
}

void cpu_tier_fhm_gemm_f16(struct cpu_kernels *k) {
    const struct cpu_gemm_rows rows = {run_rows__fhm, STEP, INT_MAX, 1}; // INT_MAX: panels were never faster
    k->gemm[GGML_TYPE_F16] = gemm_f16(run__fhm, 2, rows);
}
