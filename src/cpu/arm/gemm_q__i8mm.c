// SPDX-License-Identifier: MIT
// gemm_q__i8mm.c: products of quantised rows with several columns, by SMMLA. For rows x0, x1 and columns y0, y1, the result vector
// is {x0 y0, x1 y0, x0 y1, x1 y1}. So a line (panel_q.h) holds numbers of rows as {x0 x1 x0 x1} and numbers of columns as {y0 y0 y1
// y1}. A kernel computes np pairs of rows times nq pairs of columns, at most 8 vectors of sums, so that all sums stay in registers.

#define MR 8
#define NC 4
#define GROUP 2
#define FEW 0
#define Y_WIDTH STEP

#include "cpu/arm/panel_q.h"

#define PX (MR / 2) // pairs of rows in a panel
#define PY (NC / 2) // pairs of columns in a tile
#define PN (NR / 2) // pairs of columns in a panel

#define UNROLL _Pragma("GCC unroll 4")
#define EACH_PAIR UNROLL for (int p = 0; p < np; p++) UNROLL for (int q = 0; q < nq; q++)

// ---- lines ----

UNPACK_INLINE void x_zip(uint8x16_t *v) {
    const uint64x2_t a = vreinterpretq_u64_u8(v[0]), b = vreinterpretq_u64_u8(v[1]);
    v[0] = vreinterpretq_u8_u64(vzip1q_u64(a, b));
    v[1] = vreinterpretq_u8_u64(vzip2q_u64(a, b));
}

UNPACK_INLINE void x_scales8(char *to, const int8x8_t *scales) {
    const int16x8_t both = vreinterpretq_s16_s8(vcombine_s8(vzip1_s8(scales[0], scales[1]), vzip2_s8(scales[0], scales[1])));
    const int8x16_t twice[2] = {vreinterpretq_s8_s16(vzip1q_s16(both, both)), vreinterpretq_s8_s16(vzip2q_s16(both, both))};
    for (int j = 0; j < 2; j++, to += 4 * X_LINE) { // twice[j]: a b a b of four runs
        const int16x8_t lo = vmovl_s8(vget_low_s8(twice[j])), hi = vmovl_high_s8(twice[j]);
        const int32x4_t line[4] = {
            vmovl_s16(vget_low_s16(lo)), vmovl_high_s16(lo), vmovl_s16(vget_low_s16(hi)), vmovl_high_s16(hi)};
        for (int i = 0; i < 4; i++) {
            vst1q_s32((int32_t *) (void *) (to + i * X_LINE), line[i]);
        }
    }
}

UNPACK_INLINE void y_number(char *line, int c, float v) {
    vst1_f32((float *) (void *) (line + c * 8), vdup_n_f32(v));
}

// hi, then lo.
UNPACK_INLINE void y_sums(char *to, int c, const int8_t *hi, const int8_t *lo, const int n) {
    y_bytes(to, c, hi, n, STEP);
    y_bytes(to + LINES(n) * Y_LINE, c, lo, n, STEP);
}

// ---- the product of a block ----

// The lines of a block: x for np pairs of rows, y[t] for tile t of the columns.
struct block_at {
    const char *x, *y[NR / NC];
};

// x_line, y_line: index of a line.
UNPACK_INLINE const char *x_at(const struct block_at *b, int x_line, int p) {
    return b->x + x_line * X_LINE + p * 16;
}
UNPACK_INLINE const char *y_at(const struct block_at *b, int y_line, int q) {
    return b->y[q / PY] + y_line * Y_LINE + q % PY * 16;
}

// Adds to t the products of n_steps lines.
UNPACK_INLINE void multiply(
    int32x4_t t[PX][PN], const struct block_at *at, int x_line, int y_line, const int n_steps, const int np, const int nq) {
    UNROLL for (int j = 0; j < n_steps; j++) {
        int8x16_t b[PN];
        UNROLL for (int q = 0; q < nq; q++) {
            b[q] = s8_at(y_at(at, y_line + j, q));
        }
        UNROLL for (int p = 0; p < np; p++) {
            const int8x16_t a = s8_at(x_at(at, x_line + j, p));
            UNROLL for (int q = 0; q < nq; q++) {
                t[p][q] = vmmlaq_s32(t[p][q], b[q], a);
            }
        }
    }
}

// Adds to `sum` the numbers t times the scales of rows, in line x_line, and of columns, in line 0.
UNPACK_INLINE void add_scaled(
    float32x4_t sum[PX][PN], int32x4_t t[PX][PN], const struct block_at *at, int x_line, const int np, const int nq) {
    EACH_PAIR {
        const float32x4_t d = vmulq_f32(f32_at(x_at(at, x_line, p)), f32_at(y_at(at, 0, q)));
        sum[p][q] = vfmaq_f32(sum[p][q], vcvtq_f32_s32(t[p][q]), d);
    }
}

// n_block: 32, or 16 for nvfp4.
UNPACK_INLINE void add_32(
    float32x4_t sum[PX][PN], const struct block_at *at, const int np, const int nq, const int n_block, const bool has_min) {
    int32x4_t t[PX][PN];
    EACH_PAIR {
        t[p][q] = zeros();
    }
    multiply(t, at, X_HEAD_32(has_min), Y_HEAD_32(has_min), LINES(n_block), np, nq);
    add_scaled(sum, t, at, 0, np, nq);
    if (has_min) {
        EACH_PAIR {
            sum[p][q] = vfmaq_f32(sum[p][q], f32_at(x_at(at, 1, p)), f32_at(y_at(at, 1, q)));
        }
    }
}

UNPACK_INLINE void add_256(
    float32x4_t sum[PX][PN], const struct block_at *at, const int np, const int nq, const int n_runs, const bool has_min) {
    const int steps = LINES(QK_K) / n_runs, x_head = X_HEAD_256(n_runs, has_min), y_head = Y_HEAD_256(n_runs, has_min);
    int32x4_t t[PX][PN], block_sum[PX][PN];
    if (has_min) {
        EACH_PAIR {
            t[p][q] = zeros();
        }
        multiply(t, at, 2, 1, LINES(n_runs), np, nq);
        EACH_PAIR {
            t[p][q] = vshlq_n_s32(t[p][q], 7);
        }
        multiply(t, at, 2, 1 + LINES(n_runs), LINES(n_runs), np, nq);
        add_scaled(sum, t, at, 1, np, nq);
    }
    EACH_PAIR {
        block_sum[p][q] = zeros();
    }
    struct block_at run = *at;
    for (int r = 0; r < n_runs; r++) {
        EACH_PAIR {
            t[p][q] = zeros();
        }
        multiply(t, &run, x_head, y_head, steps, np, nq);
        UNROLL for (int p = 0; p < np; p++) {
            const int32x4_t scale = s32_at(x_at(at, x_head - n_runs + r, p));
            UNROLL for (int q = 0; q < nq; q++) {
                block_sum[p][q] = vmlaq_s32(block_sum[p][q], t[p][q], scale);
            }
        }
        run.x += steps * X_LINE;
        run.y[0] += steps * Y_LINE;
        run.y[1] += steps * Y_LINE;
    }
    add_scaled(sum, block_sum, at, 0, np, nq);
}

#define ZERO_SUM \
    for (int p = 0; p < np; p++) { \
        for (int q = 0; q < nq; q++) { \
            sum[p][q] = vdupq_n_f32(0.0f); \
        } \
    }

// Stores nx rows and ny columns of the sums. The sums of a column pair are {x0 y0, x1 y0, x0 y1, x1 y1}.
UNPACK_INLINE void store(float32x4_t sum[PX][PN], float *s, int64_t ld_s, const int np, const int nq, int nx, int ny) {
    float tile[NR][MR];
    EACH_PAIR {
        vst1_f32(&tile[2 * q][2 * p], vget_low_f32(sum[p][q]));
        vst1_f32(&tile[2 * q + 1][2 * p], vget_high_f32(sum[p][q]));
    }
    for (int c = 0; c < ny; c++) {
        if (nx == 2 * np) { // constant size, so that the copy is inlined
            memcpy(s + c * ld_s, tile[c], 2 * (size_t) np * sizeof(float));
        } else {
            memcpy(s + c * ld_s, tile[c], (size_t) nx * sizeof(float));
        }
    }
}

// ---- panels ----

UNPACK_INLINE void run_32(
    int64_t n, float *s, int64_t ld_s, const char *x, int nx, const char *y, int ny, const int n_block, const bool has_min) {
    const int np = PX, nq = PY;
    struct block_at at = {x, {y, y}};
    float32x4_t sum[PX][PN];
    ZERO_SUM
    for (int64_t i = 0; i < n / n_block; i++) {
        add_32(sum, &at, np, nq, n_block, has_min);
        at.x += (X_HEAD_32(has_min) + LINES(n_block)) * X_LINE;
        at.y[0] += Y_PANEL(n_block, Y_HEAD_32(has_min));
    }
    store(sum, s, ld_s, np, nq, nx, ny);
}

UNPACK_INLINE void run_256(
    int64_t n, float *s, int64_t ld_s, const char *x, int nx, const char *y, int ny, const int n_runs, const bool has_min) {
    const int np = PX, nq = PY;
    struct block_at at = {x, {y, y}};
    float32x4_t sum[PX][PN];
    ZERO_SUM
    for (int64_t i = 0; i < n / QK_K; i++) {
        add_256(sum, &at, np, nq, n_runs, has_min);
        at.x += (X_HEAD_256(n_runs, has_min) + LINES(QK_K)) * X_LINE;
        at.y[0] += Y_PANEL(QK_K, Y_HEAD_256(n_runs, has_min));
    }
    store(sum, s, ld_s, np, nq, nx, ny);
}

#define RUN(name, n_block, y_head, call, ...) \
    static void run_##name(CPU_GEMM_ARGS) { \
        const char *y = vy; \
        for (int c = 0; c < ny; c += NC, y += Y_TILE(n_block, y_head)) { \
            call(n, s + c * ld_s, ld_s, vx, nx, y, min_int(ny - c, NC), __VA_ARGS__); \
        } \
    }
RUN(q16, 16, Y_HEAD_32(0), run_32, 16, false)
RUN(q32, 32, Y_HEAD_32(0), run_32, 32, false)
RUN(q32_min, 32, Y_HEAD_32(1), run_32, 32, true)
RUN(k8, QK_K, Y_HEAD_256(8, 0), run_256, 8, false)
RUN(k8_min, QK_K, Y_HEAD_256(8, 1), run_256, 8, true)
RUN(k16, QK_K, Y_HEAD_256(16, 0), run_256, 16, false)
RUN(k16_min, QK_K, Y_HEAD_256(16, 1), run_256, 16, true)

// ---- rows that are not packed into panels (kernels.h: cpu_gemm_rows) ----
// A block of all rows is unpacked to `lines`, in the layout of a panel, and multiplied with all columns before the next block is
// unpacked. The float operations of a sum are those of run_32 and run_256, so results do not depend on the number of columns.
// Blocks of 32 are inlined and stay in registers. Blocks of 256 are unpacked to the L1 cache.

// x_block: x_block_<type> (panel_q.h). x_size: bytes of a block. `add`: adds a block of `lines` to `sum`.
#define ROWS_BODY(n_block, x_head, y_head, x_block, x_size, ADD) \
    const char *row[PX][GROUP]; \
    float32x4_t sum[PX][PN]; \
    char lines[((x_head) + LINES(n_block)) * X_LINE] __attribute__((aligned(64))); \
    struct block_at at = {lines, {y, y + Y_TILE(n_block, y_head)}}; \
    for (int p = 0; p < np; p++) { \
        row[p][0] = x + (size_t) (2 * p) * bx; \
        row[p][1] = row[p][0] + bx; \
    } \
    ZERO_SUM \
    for (int64_t i = 0; i < n / (n_block); i++) { \
        for (int p = 0; p < np; p++) { \
            x_block(lines + p * 16, (const void *const *) row[p]); \
            row[p][0] += x_size; \
            row[p][1] += x_size; \
        } \
        ADD; \
        at.y[0] += Y_PANEL(n_block, y_head); \
        at.y[1] += Y_PANEL(n_block, y_head); \
    } \
    store(sum, s, ld_s, np, nq, 2 * np, ny);

// With at most 4 columns, all MR rows at a time; with more, 4 rows at a time.
#define ROWS_HALVES(call, nq, ...) \
    for (int r = 0; r < MR; r += 4) { \
        call(n, s + r, ld_s, (const char *) vx + (size_t) r * bx, bx, vy, ny, 2, nq, __VA_ARGS__); \
    }
#define ROWS_SWITCH(call, ...) \
    switch ((ny + 1) / 2) { \
        case 1: call(n, s, ld_s, vx, bx, vy, ny, 4, 1, __VA_ARGS__); break; \
        case 2: call(n, s, ld_s, vx, bx, vy, ny, 4, 2, __VA_ARGS__); break; \
        case 3: ROWS_HALVES(call, 3, __VA_ARGS__) break; \
        default: ROWS_HALVES(call, 4, __VA_ARGS__) break; \
    }
#define ROWS_PART_ARGS \
    int64_t n, float *s, int64_t ld_s, const char *x, size_t bx, const char *y, int ny, const int np, const int nq

#define ROWS_32(type, has_min) \
    UNPACK_INLINE void part_##type(ROWS_PART_ARGS, const bool with_min) { \
        ROWS_BODY(32, X_HEAD_32(with_min), Y_HEAD_32(with_min), x_block_##type, sizeof(block_##type), \
            add_32(sum, &at, np, nq, 32, with_min)) \
    } \
    static void rows_##type(CPU_GEMM_ROWS_ARGS) { \
        ROWS_SWITCH(part_##type, has_min) \
    }
ROWS_32(q8_0, false)
ROWS_32(q4_0, false)
ROWS_32(q5_0, false)
ROWS_32(iq4_nl, false)
ROWS_32(mxfp4, false)
ROWS_32(q4_1, true)
ROWS_32(q5_1, true)

typedef void (*x_block_t)(char *to, const void *const *blocks);
UNPACK_INLINE void part_256(ROWS_PART_ARGS, x_block_t x_block, size_t x_size, const int n_runs, const bool has_min){ROWS_BODY(
    QK_K, X_HEAD_256(n_runs, has_min), Y_HEAD_256(n_runs, has_min), x_block, x_size, add_256(sum, &at, np, nq, n_runs, has_min))}
#define ROWS_256(name, n_runs, has_min) \
    static __attribute__((noinline)) void rows_##name(CPU_GEMM_ROWS_ARGS, x_block_t x_block, size_t x_size) { \
        ROWS_SWITCH(part_256, x_block, x_size, n_runs, has_min) \
    }
ROWS_256(k8, 8, false) ROWS_256(k8_min, 8, true) ROWS_256(k16, 16, false) ROWS_256(k16_min, 16, true)
#define ROWS_K(type, runs) \
    static void rows_##type(CPU_GEMM_ROWS_ARGS) { \
        rows_##runs(n, s, ld_s, vx, bx, vy, ny, x_block_##type, sizeof(block_##type)); \
    }
    ROWS_K(q4_K, k8_min) ROWS_K(q5_K, k8_min) ROWS_K(iq4_xs, k8) ROWS_K(q3_K, k16) ROWS_K(q6_K, k16) ROWS_K(q2_K, k16_min)
#define ROWS_IQ(TYPE, type, n_runs) ROWS_K(type, k##n_runs)
        IQ_FORMATS(ROWS_IQ)

// Limits that follow from counts of vector instructions for two rows and 256 elements, not from measurements. A Neoverse V1
// executes four of them per cycle.
//   q4_K: rows take about 70 to unpack and 48 per pair of columns. One column with the kernel of cpu_gemv takes 90.
//   q8_0: rows take 48 to unpack and scale and 56 per pair of columns. One column with the kernel of cpu_gemv takes 56, and reads
//   the rows again for every column.
// So unpacked rows are faster from two columns on. A panel is unpacked once, but stored and loaded, which takes as long as
// unpacking a second time for a second panel of columns.
#define MIN_COLS 2
#define ROWS_MAX_COLS (2 * NR)

            void cpu_tier_i8mm_gemm_q(struct cpu_kernels *k) {
    GEMM_Q_32(Q8_0, q8_0, rows_q8_0, MIN_COLS, ROWS_MAX_COLS)
    GEMM_Q_32(Q4_0, q4_0, rows_q4_0, MIN_COLS, ROWS_MAX_COLS)
    GEMM_Q_32(Q5_0, q5_0, rows_q5_0, MIN_COLS, ROWS_MAX_COLS)
    GEMM_Q_32(IQ4_NL, iq4_nl, rows_iq4_nl, MIN_COLS, ROWS_MAX_COLS)
    GEMM_Q_32(MXFP4, mxfp4, rows_mxfp4, MIN_COLS, ROWS_MAX_COLS)
    GEMM_Q_32(Q1_0, q1_0, NULL, 5, 0)
    GEMM_Q_32(Q2_0, q2_0, NULL, 5, 0)
    GEMM_Q_16(NVFP4, nvfp4, 5)
    GEMM_Q_32_MIN(Q4_1, q4_1, rows_q4_1, MIN_COLS, ROWS_MAX_COLS)
    GEMM_Q_32_MIN(Q5_1, q5_1, rows_q5_1, MIN_COLS, ROWS_MAX_COLS)
    GEMM_Q_256(Q4_K, q4_K, k8_min, k8_min, 8, 1, MIN_COLS, ROWS_MAX_COLS)
    GEMM_Q_256(Q5_K, q5_K, k8_min, k8_min, 8, 1, MIN_COLS, ROWS_MAX_COLS)
    GEMM_Q_256(IQ4_XS, iq4_xs, k, k8, 8, 0, MIN_COLS, ROWS_MAX_COLS)
    GEMM_Q_256(Q3_K, q3_K, k, k16, 16, 0, MIN_COLS, ROWS_MAX_COLS)
    GEMM_Q_256(Q6_K, q6_K, k, k16, 16, 0, MIN_COLS, ROWS_MAX_COLS)
    GEMM_Q_256(Q2_K, q2_K, k16_min, k16_min, 16, 1, MIN_COLS, ROWS_MAX_COLS)
#define GEMM_IQ(TYPE, type, n_runs) GEMM_Q_256(TYPE, type, k, k##n_runs, n_runs, 0, MIN_COLS, ROWS_MAX_COLS)
    IQ_FORMATS(GEMM_IQ)
}
