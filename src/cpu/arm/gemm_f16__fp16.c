// SPDX-License-Identifier: MIT
// gemm_f16__fp16.c: products of f16 rows with several columns, in tiles of 16 by 8 (gemm_f16.h). Up to 192 products are summed in
// f16, more in f32.

#define MR 16
#define NR 8

// Add vector h0 to vectors 28 and 29, or its first half to vector 28.
#define FEW_TO_F32_HALF(h) "fcvtl v31.4s, v" #h "0.4h\n\tfadd v28.4s, v28.4s, v31.4s\n\t"
#define FEW_TO_F32(h) FEW_TO_F32_HALF(h) "fcvtl2 v31.4s, v" #h "0.8h\n\tfadd v29.4s, v29.4s, v31.4s\n\t"

#include "base/min.h"
#include "cpu/arm/gemm_f16.h"
#include "cpu/kernels.h"

// A step is STEP (8) elements. A quad is four steps.
// With panels, the products of SUM steps are added in f16 registers. PART / SUM of these sums are added in f16 in memory
// (`part`), and `part` is then added to the f32 sums.
// With unpacked rows, the products of a quad are added in f16 registers. QUADS of these sums are added in `part`, and `part` is
// then added to the f32 sums.
// Adding several short sums rounds less than one long sum.
#define SUM 3            // steps
#define PART 24          // steps
#define ROWS 8           // unpacked rows at a time; limited by L1 sets
#define ROWS_MAX_COLS 64 // with more columns, panels are faster
#define QUAD 32          // elements
#define QUADS 6
#define AHEAD 512 // prefetch distance in bytes

// Adds to `part` the products of n steps. Vectors 20 + r: sums of row r. Vectors 10 + r: sums of row 8 + r. Vectors 0 to 7:
// elements of 8 rows. Vectors 8, 9, 18, 19 and 28 to 31: columns. Assembly, because compilers need two instructions to multiply
// by a lane, copy zeros, and run out of registers.

// clang-format off
#define EIGHT ".irp r, 0, 1, 2, 3, 4, 5, 6, 7\n\t"
#define MULTIPLY(sums, k, y) EIGHT "fmla v" #sums "\\r\\().8h, v" #y ".8h, v\\r\\().h[" #k "]\n\t.endr\n\t"
#define EIGHT_ELEMENTS(sums) \
    MULTIPLY(sums, 0, 8) MULTIPLY(sums, 1, 9) MULTIPLY(sums, 2, 18) MULTIPLY(sums, 3, 19) \
    MULTIPLY(sums, 4, 28) MULTIPLY(sums, 5, 29) MULTIPLY(sums, 6, 30) MULTIPLY(sums, 7, 31)
#define LOAD(a, b, from, off) "ldp q" #a ", q" #b ", [%[" #from "], #" #off "]\n\t"
#define PUT(a, b, x0, x1, off) \
    "ldp q" #x0 ", q" #x1 ", [%[part], #" #off "]\n\t" \
    "fadd v" #a ".8h, v" #a ".8h, v" #x0 ".8h\n\t" \
    "fadd v" #b ".8h, v" #b ".8h, v" #x1 ".8h\n\t" \
    "stp q" #a ", q" #b ", [%[part], #" #off "]\n\t"

static inline __attribute__((always_inline)) void add_steps(
    float16_t part[MR][NR], const uint16_t *x, const uint16_t *y, int64_t n) {
    __asm__ volatile(
        EIGHT "movi v2\\r\\().4s, #0\n\tmovi v1\\r\\().4s, #0\n\t.endr\n\t"
        "1:\n\t"
        LOAD(0, 1, x, 0) LOAD(8, 9, y, 0) LOAD(2, 3, x, 32) LOAD(4, 5, x, 64) LOAD(6, 7, x, 96)
        LOAD(18, 19, y, 32) LOAD(28, 29, y, 64) LOAD(30, 31, y, 96)
        EIGHT_ELEMENTS(2)
        LOAD(0, 1, x, 128) LOAD(2, 3, x, 160) LOAD(4, 5, x, 192) LOAD(6, 7, x, 224)
        EIGHT_ELEMENTS(1)
        "add %[x], %[x], #256\n\t"
        "add %[y], %[y], #128\n\t"
        "subs %[n], %[n], #1\n\t"
        "b.ne 1b\n\t"
        PUT(20, 21, 0, 1, 0) PUT(22, 23, 2, 3, 32) PUT(24, 25, 4, 5, 64) PUT(26, 27, 6, 7, 96)
        PUT(10, 11, 0, 1, 128) PUT(12, 13, 2, 3, 160) PUT(14, 15, 4, 5, 192) PUT(16, 17, 6, 7, 224)
        : [x] "+r"(x), [y] "+r"(y), [n] "+r"(n)
        : [part] "r"(part)
        : "memory", "cc", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15",
          "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31");
}

// Adds to `part` the products of n quads of eight unpacked rows. The first row is at x; rows are b bytes apart. Elements are in
// vectors 0 to 15, because only these can be the lane operand. Sums: 16 to 23. Columns: 24 to 31. Each step loads the operands of
// the next step. The last step loads operands of its quad again, because loads past the end are not allowed.
#define X_ROW(r, v) "ldr q" #v ", [%[x], %[o" #r "]]\n\t"
#define X_ROWS(v0, v1, v2, v3, v4, v5, v6, v7) \
    "ldr q" #v0 ", [%[x]]\n\t" X_ROW(1, v1) X_ROW(2, v2) X_ROW(3, v3) X_ROW(4, v4) X_ROW(5, v5) X_ROW(6, v6) X_ROW(7, v7)
#define X_EVEN X_ROWS(0, 1, 2, 3, 4, 5, 6, 7)
#define X_ODD X_ROWS(8, 9, 10, 11, 12, 13, 14, 15)
#define ONE(op, a, y, x, k) #op " v" #a ".8h, v" #y ".8h, v" #x ".h[" #k "]\n\t"
#define EVEN(op, y, k, off) \
    ONE(op, 16, y, 0, k) ONE(op, 17, y, 1, k) ONE(op, 18, y, 2, k) ONE(op, 19, y, 3, k) ONE(op, 20, y, 4, k) ONE(op, 21, y, 5, k) \
    ONE(op, 22, y, 6, k) ONE(op, 23, y, 7, k) "ldr q" #y ", [%[y], #" #off "]\n\t"
#define ODD(y, k, off) \
    ONE(fmla, 16, y, 8, k) ONE(fmla, 17, y, 9, k) ONE(fmla, 18, y, 10, k) ONE(fmla, 19, y, 11, k) ONE(fmla, 20, y, 12, k) \
    ONE(fmla, 21, y, 13, k) ONE(fmla, 22, y, 14, k) ONE(fmla, 23, y, 15, k) "ldr q" #y ", [%[y], #" #off "]\n\t"
#define EVEN_STEP(op, off) \
    EVEN(op, 24, 0, off) EVEN(fmla, 25, 1, off + 16) EVEN(fmla, 26, 2, off + 32) EVEN(fmla, 27, 3, off + 48) \
    EVEN(fmla, 28, 4, off + 64) EVEN(fmla, 29, 5, off + 80) EVEN(fmla, 30, 6, off + 96) EVEN(fmla, 31, 7, off + 112)
#define ODD_STEP(off) \
    ODD(24, 0, off) ODD(25, 1, off + 16) ODD(26, 2, off + 32) ODD(27, 3, off + 48) ODD(28, 4, off + 64) ODD(29, 5, off + 80) \
    ODD(30, 6, off + 96) ODD(31, 7, off + 112)
#define NEXT_STEP "add %[x], %[x], #16\n\t"
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverlength-strings" // longer than C guarantees; compilers with inline assembly accept it
static inline __attribute__((always_inline)) void add_quads(
    float16_t part[ROWS][NR], const uint16_t *x, size_t b, const uint16_t *y, int64_t n) {
    const uint16_t *next;
    __asm__ volatile(
        X_EVEN
        LOAD(24, 25, y, 0) LOAD(26, 27, y, 32) LOAD(28, 29, y, 64) LOAD(30, 31, y, 96)
        "1:\n\t"
        NEXT_STEP X_ODD EVEN_STEP(fmul, 128)
        NEXT_STEP X_EVEN ODD_STEP(256)
        NEXT_STEP X_ODD EVEN_STEP(fmla, 384)
        "subs %[n], %[n], #1\n\t"
        "add %[next], %[x], #16\n\t"
        "csel %[x], %[next], %[x], ne\n\t"
        "add %[next], %[y], #512\n\t"
        "csel %[y], %[next], %[y], ne\n\t"
        X_EVEN ODD_STEP(0)
        PUT(16, 17, 8, 9, 0) PUT(18, 19, 10, 11, 32) PUT(20, 21, 12, 13, 64) PUT(22, 23, 14, 15, 96)
        "b.ne 1b\n\t"
        : [x] "+r"(x), [y] "+r"(y), [n] "+r"(n), [next] "=&r"(next)
        : [part] "r"(part), [o1] "r"(b), [o2] "r"(2 * b), [o3] "r"(3 * b), [o4] "r"(4 * b), [o5] "r"(5 * b), [o6] "r"(6 * b),
          [o7] "r"(7 * b)
        : "memory", "cc", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15",
          "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31");
}
#pragma GCC diagnostic pop
// clang-format on

static inline void rows_prefetch(const uint16_t *x, size_t bx) {
    for (int r = 0; r < ROWS; r++) {
        for (size_t i = AHEAD; i < AHEAD + QUADS * QUAD * sizeof *x; i += 64) {
            __builtin_prefetch((const char *) x + (size_t) r * bx + i, 0, 3);
        }
    }
}

static inline __attribute__((always_inline)) void add(float *to, float16x8_t v) {
    vst1q_f32(to, vaddq_f32(vld1q_f32(to), vcvt_f32_f16(vget_low_f16(v))));
    vst1q_f32(to + 4, vaddq_f32(vld1q_f32(to + 4), vcvt_high_f32_f16(v)));
}

static void run__fp16(CPU_GEMM_ARGS) {
    const uint16_t *x = vx, *y = y_elements(vy);
    const struct y_head *head = vy;
    const struct x_layout at = {vx, 8, 8 * MR};
    float tile[MR][NR] = {{0}};
    if (head->is_by_column) {
        few_run(n, tile, MR, &at, y, ny);
        tile_store(n, tile, MR, &at, head, s, ld_s, nx, ny);
        return;
    }
    for (int64_t left = n_groups(n); left > 0; left -= PART) {
        float16_t part[MR][NR] = {{0}};
        for (int64_t i = 0; i < PART && i < left; i += SUM, x += SUM * STEP * MR, y += SUM * STEP * NR) {
            add_steps(part, x, y, min_i64(left - i, SUM));
        }
        for (int r = 0; r < MR; r++) {
            add(tile[r], vld1q_f16(part[r]));
        }
    }
    tile_store(n, tile, MR, &at, head, s, ld_s, nx, ny);
}

static void rows__fp16(int64_t n, float *s, int64_t ld_s, const uint16_t *x, size_t bx, const struct y_head *head, int ny) {
    const struct x_layout at = {x, bx / sizeof *x, 8};
    const uint16_t *y = y_elements(head);
    float tile[ROWS][NR] = {{0}};
    if (head->is_by_column) {
        few_run(n, tile, ROWS, &at, y, ny);
        tile_store(n, tile, ROWS, &at, head, s, ld_s, ROWS, ny);
        return;
    }
    for (int64_t left = n / QUAD; left > 0; left -= QUADS, x += QUADS * QUAD, y += QUADS * QUAD * NR) {
        float16_t part[ROWS][NR] = {{0}};
        rows_prefetch(x, bx);
        add_quads(part, x, bx, y, min_i64(left, QUADS));
        for (int r = 0; r < ROWS; r++) {
            add(tile[r], vld1q_f16(part[r]));
        }
    }
    tile_store(n, tile, ROWS, &at, head, s, ld_s, ROWS, ny);
}

static void run_rows__fp16(CPU_GEMM_ROWS_ARGS) {
    for (int r = 0; r < MR; r += ROWS) {
        rows__fp16(n, s + r, ld_s, (const void *) ((const char *) vx + (size_t) r * bx), bx, vy, ny);
    }
}

void cpu_tier_fp16_gemm_f16(struct cpu_kernels *k) {
    k->gemm[GGML_TYPE_F16] = gemm_f16(run__fp16, 2, (struct cpu_gemm_rows){run_rows__fp16, QUAD, ROWS_MAX_COLS, 1});
}
