// SPDX-License-Identifier: MIT
// gemm_q__i8mm.c: products of quantised rows with several columns, by SMMLA. For rows x0, x1 and columns y0, y1, the result vector
// is {x0 y0, x1 y0, x0 y1, x1 y1}. So a line (panel_q.h) holds numbers of rows as {x0 x1 x0 x1} and numbers of columns as {y0 y0 y1
// y1}. A kernel computes np pairs of rows times nq pairs of columns, at most 8 vectors of sums, so that all sums stay in registers.

#define MR 8
#define NR 4
#define NC 4
#define GROUP 2
#define FEW 0
#define Y_WIDTH STEP

#include "cpu/arm/panel_q.h"

#define PX (MR / 2)        // pairs of rows in a panel
#define PY (NR / 2)        // pairs of columns in a panel
#define N_PANELS 2         // panels of columns that are multiplied with unpacked rows at a time
#define PN (N_PANELS * PY) // pairs of columns in these panels

#define UNROLL _Pragma("GCC unroll 8")
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

// The lines of a block: x for np pairs of rows, y[i] for panel i of the columns.
struct block_at {
    const char *x, *y[N_PANELS];
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
    EACH_PAIR {
        const float32x4_t d = vmulq_f32(f32_at(x_at(at, 0, p)), f32_at(y_at(at, 0, q)));
        sum[p][q] = vfmaq_f32(sum[p][q], vcvtq_f32_s32(t[p][q]), d);
        if (has_min) {
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
    float tile[N_PANELS * NR][MR];
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

#define RUN(name, call, ...) \
    static void run_##name(CPU_GEMM_ARGS) { \
        call(n, s, ld_s, vx, nx, vy, ny, __VA_ARGS__); \
    }
RUN(q16, run_32, 16, false)
RUN(q32, run_32, 32, false)
RUN(q32_min, run_32, 32, true)
RUN(k8, run_256, 8, false)
RUN(k8_min, run_256, 8, true)
RUN(k16, run_256, 16, false)
RUN(k16_min, run_256, 16, true)

// ---- rows that are not packed into panels (kernels.h: cpu_gemm_rows) ----
// Four rows at a time, as two pairs. A part of a block is unpacked to registers and multiplied with all columns. The float operations
// of a sum are those of run_32 and run_256, so results do not depend on the number of columns.

#define PAIRS 2
#define EACH_PAIR_OF(n) UNROLL for (int p = 0; p < PAIRS; p++) UNROLL for (int q = 0; q < (n); q++)

// The blocks of a pair of rows.
struct pair {
    const char *a, *b;
};

// Blocks of 32: prefetches a later line of each row. At the end of a row, the row that follows 2 * PAIRS rows later is next.
UNPACK_INLINE void rows_prefetch_32(const struct pair *at, size_t size, int64_t n_left, size_t bx) {
    const size_t ahead = AHEAD + (n_left * (int64_t) size <= AHEAD ? (2 * PAIRS - 1) * bx : 0);
    for (int p = 0; p < PAIRS; p++) {
        __builtin_prefetch(at[p].a + ahead, 0, 3);
        __builtin_prefetch(at[p].b + ahead, 0, 3);
    }
}

// Blocks of 256: prefetches the share of one block of the next 2 * PAIRS rows, in the order of their addresses. With blocks of 32, this
// takes twice as long.
UNPACK_INLINE void rows_prefetch_256(const char *next, size_t size) {
    for (size_t line = 0; line < 2 * PAIRS * size; line += 64) {
        __builtin_prefetch(next + line, 0, 3);
    }
}

#define ROWS_ARGS int64_t n, float *s, int64_t ld_s, const char *x, size_t bx, const char *y, int ny, const int nq
#define ROWS_START(n_block, y_head) \
    struct pair at[PAIRS]; \
    float32x4_t sum[PX][PN]; \
    struct block_at column = {NULL, {y, y + cpu_gemm_lines((size_t) (n / (n_block)) * Y_PANEL(n_block, y_head))}}; \
    UNROLL for (int p = 0; p < PAIRS; p++) { \
        at[p] = (struct pair){x + (size_t) (2 * p) * bx, x + (size_t) (2 * p + 1) * bx}; \
    } \
    EACH_PAIR_OF(nq) { \
        sum[p][q] = vdupq_n_f32(0.0f); \
    }
UNPACK_INLINE void rows_next(struct pair *at, size_t size) {
    UNROLL for (int p = 0; p < PAIRS; p++) {
        at[p].a += size;
        at[p].b += size;
    }
}

UNPACK_INLINE void columns_next(struct block_at *columns, size_t size) {
    columns->y[0] += size;
    columns->y[1] += size;
}

// Adds to t the products of n lines of each pair of rows, v[p], with lines y_line ... of the columns.
#define MULTIPLY(t, v, n, y_line) \
    UNROLL for (int i = 0; i < (n); i++) { \
        int8x16_t b[PN]; \
        UNROLL for (int q = 0; q < nq; q++) { \
            b[q] = s8_at(y_at(&column, (y_line) + i, q)); \
        } \
        EACH_PAIR_OF(nq) { \
            t[p][q] = vmmlaq_s32(t[p][q], b[q], (v)[p][i]); \
        } \
    }

// half 0 or 1: 8 bytes of each of a and b.
UNPACK_INLINE int8x16_t both_halves(int8x16_t a, int8x16_t b, const int half) {
    const uint64x2_t x = vreinterpretq_u64_s8(a), y = vreinterpretq_u64_s8(b);
    return vreinterpretq_s8_u64(half == 0 ? vzip1q_u64(x, y) : vzip2q_u64(x, y));
}

// pair_cell_<type>(a, b, j, v): the lines of cell j, 32 elements of each row.
#define PAIR_32(type) \
    UNPACK_INLINE void pair_cell_##type(const block_##type *a, const block_##type *b, int j, int8x16_t *v) { \
        (void) j; \
        UNROLL for (int half = 0; half < 2; half++) { \
            const struct q32 both = q32_##type(&(struct source){a, b, half}); \
            v[half] = both.lo; \
            v[2 + half] = both.hi; \
        } \
    }
#define PAIR_CELLS(type) \
    UNPACK_INLINE void pair_cell_##type(const block_##type *a, const block_##type *b, int j, int8x16_t *v) { \
        const struct q32 x = cell_##type(a, j), y = cell_##type(b, j); \
        UNROLL for (int half = 0; half < 2; half++) { \
            v[half] = both_halves(x.lo, y.lo, half); \
            v[2 + half] = both_halves(x.hi, y.hi, half); \
        } \
    }

// Blocks of n_cells cells of 32 elements with one scale.
#define ROWS_32(type, n_cells, has_min, d_of, mins_of) \
    UNPACK_INLINE void tile_##type(ROWS_ARGS) { \
        ROWS_START(32, Y_HEAD_32(has_min)) \
        for (int64_t i = n / (32 * (n_cells)); i > 0; i--) { \
            float32x4_t d[PAIRS], m[PAIRS]; \
            UNROLL for (int p = 0; p < PAIRS; p++) { \
                const block_##type *r0 = (const void *) at[p].a, *r1 = (const void *) at[p].b; \
                d[p] = d_of(r0, r1, r0, r1); \
                m[p] = mins_of(r0, r1, r0, r1); \
            } \
            rows_prefetch_32(at, sizeof(block_##type), i, bx); \
            for (int j = 0; j < (n_cells); j++) { \
                int32x4_t t[PX][PN]; \
                int8x16_t v[PAIRS][4]; \
                UNROLL for (int p = 0; p < PAIRS; p++) { \
                    pair_cell_##type((const void *) at[p].a, (const void *) at[p].b, j, v[p]); \
                } \
                EACH_PAIR_OF(nq) { \
                    t[p][q] = zeros(); \
                } \
                MULTIPLY(t, v, 4, Y_HEAD_32(has_min)) \
                EACH_PAIR_OF(nq) { \
                    const float32x4_t scale = vmulq_f32(d[p], f32_at(y_at(&column, 0, q))); \
                    sum[p][q] = vfmaq_f32(sum[p][q], vcvtq_f32_s32(t[p][q]), scale); \
                    if (has_min) { \
                        sum[p][q] = vfmaq_f32(sum[p][q], m[p], f32_at(y_at(&column, 1, q))); \
                    } \
                } \
                columns_next(&column, Y_PANEL(32, Y_HEAD_32(has_min))); \
            } \
            rows_next(at, sizeof(block_##type)); \
        } \
        store(sum, s, ld_s, PAIRS, nq, 2 * PAIRS, ny); \
    } \
    ROWS_OF(type)

// All column counts of a type.
#define ROWS_OF(type) \
    static void rows_##type(CPU_GEMM_ROWS_ARGS) { \
        for (int r = 0; r < MR; r += 2 * PAIRS) { \
            const char *x = (const char *) vx + (size_t) r * bx; \
            switch ((ny + 1) / 2) { \
                case 1: tile_##type(n, s + r, ld_s, x, bx, vy, ny, 1); break; \
                case 2: tile_##type(n, s + r, ld_s, x, bx, vy, ny, 2); break; \
                case 3: tile_##type(n, s + r, ld_s, x, bx, vy, ny, 3); break; \
                default: tile_##type(n, s + r, ld_s, x, bx, vy, ny, 4); break; \
            } \
        } \
    }
#define ROWS_Q(type, has_min, mins_of) PAIR_32(type) ROWS_32(type, 1, has_min, scales_##type, mins_of)
#define ROWS_CELLS(type, n_cells) PAIR_CELLS(type) ROWS_32(type, n_cells, false, D_OF, NO_MINS)
ROWS_Q(q8_0, false, NO_MINS)
ROWS_Q(q4_0, false, NO_MINS)
ROWS_Q(q5_0, false, NO_MINS)
ROWS_Q(iq4_nl, false, NO_MINS)
ROWS_Q(mxfp4, false, NO_MINS)
ROWS_Q(q4_1, true, mins_q4_1)
ROWS_Q(q5_1, true, mins_q5_1)
ROWS_CELLS(q1_0, 4)
ROWS_CELLS(q2_0, 2)

// Byte indices that move the scale of run r of both rows to the upper bytes of {a, b, a, b}. Index 255 gives 0.
#define RUN_INDEX(r) \
    { 255, 255, 255, r, 255, 255, 255, r + 8, 255, 255, 255, r, 255, 255, 255, r + 8 }
static const uint8_t run_index[8][16] = {
    RUN_INDEX(0), RUN_INDEX(1), RUN_INDEX(2), RUN_INDEX(3), RUN_INDEX(4), RUN_INDEX(5), RUN_INDEX(6), RUN_INDEX(7)};

UNPACK_INLINE int32x4_t run_scale(int8x16_t scales, int r) {
    return vshrq_n_s32(vreinterpretq_s32_s8(vqtbl1q_s8(scales, vld1q_u8(run_index[r]))), 24);
}

// Adds the products of the minima with the sums of the runs.
#define ADD_MINS(n_runs, d_of) \
    UNROLL for (int p = 0; p < PAIRS; p++) { \
        const float32x4_t dmin = d_of(r0[p], r1[p], r0[p], r1[p]); \
        UNROLL for (int q = 0; q < nq; q++) { \
            int32x4_t t = zeros(); \
            UNROLL for (int i = 0; i < LINES(n_runs); i++) { \
                t = vmmlaq_s32(t, s8_at(y_at(&column, 1 + i, q)), both_halves(head[p][0].mins, head[p][1].mins, i)); \
            } \
            t = vshlq_n_s32(t, 7); \
            UNROLL for (int i = 0; i < LINES(n_runs); i++) { \
                t = vmmlaq_s32( \
                    t, s8_at(y_at(&column, 1 + LINES(n_runs) + i, q)), both_halves(head[p][0].mins, head[p][1].mins, i)); \
            } \
            const float32x4_t d = vmulq_f32(dmin, f32_at(y_at(&column, 0, q))); \
            sum[p][q] = vfmaq_f32(sum[p][q], vcvtq_f32_s32(t), d); \
        } \
    }
#define NO_ADD_MINS(n_runs, d_of)

// Part j has 4 groups of 16 elements of each row, 8 lines. group(j, i): index of group i in the block.
#define ROWS_256(type, n_runs, group, has_min, add_mins, d_of, dmin_of) \
    UNPACK_INLINE void tile_##type(ROWS_ARGS) { \
        ROWS_START(QK_K, Y_HEAD_256(n_runs, has_min)) \
        const char *next = x + 2 * PAIRS * bx; \
        for (int64_t i = n / QK_K; i > 0; i--, next += 2 * PAIRS * sizeof(block_##type)) { \
            int32x4_t block_sum[PX][PN]; \
            const block_##type *r0[PAIRS], *r1[PAIRS]; \
            struct head head[PAIRS][2]; \
            UNROLL for (int p = 0; p < PAIRS; p++) { \
                r0[p] = (const void *) at[p].a; \
                r1[p] = (const void *) at[p].b; \
                head[p][0] = head_##type(r0[p]); \
                head[p][1] = head_##type(r1[p]); \
            } \
            rows_prefetch_256(next, sizeof(block_##type)); \
            add_mins(n_runs, dmin_of) EACH_PAIR_OF(nq) { \
                block_sum[p][q] = zeros(); \
            } \
            UNROLL for (int j = 0; j < 4; j++) { \
                int8x16_t v[PAIRS][4][2]; /* [group][half] */ \
                UNROLL for (int p = 0; p < PAIRS; p++) { \
                    pair_part_##type(r0[p], r1[p], j, v[p]); \
                } \
                UNROLL for (int g = 0; g < 4; g += 16 / (n_runs)) { \
                    int32x4_t t[PX][PN]; \
                    EACH_PAIR_OF(nq) { \
                        t[p][q] = zeros(); \
                    } \
                    UNROLL for (int h = g; h < g + 16 / (n_runs); h++) { \
                        const int8x16_t *const lines[PAIRS] = {v[0][h], v[1][h]}; \
                        MULTIPLY(t, lines, 2, Y_HEAD_256(n_runs, has_min) + 2 * group(j, h)) \
                    } \
                    UNROLL for (int p = 0; p < PAIRS; p++) { \
                        const int run = group(j, g) * (n_runs) / 16; \
                        const int32x4_t scale = run_scale(both_halves(head[p][0].scales, head[p][1].scales, run / 8), run % 8); \
                        UNROLL for (int q = 0; q < nq; q++) { \
                            block_sum[p][q] = vmlaq_s32(block_sum[p][q], t[p][q], scale); \
                        } \
                    } \
                } \
            } \
            UNROLL for (int p = 0; p < PAIRS; p++) { \
                const float32x4_t d = d_of(r0[p], r1[p], r0[p], r1[p]); \
                UNROLL for (int q = 0; q < nq; q++) { \
                    const float32x4_t scale = vmulq_f32(d, f32_at(y_at(&column, 0, q))); \
                    sum[p][q] = vfmaq_f32(sum[p][q], vcvtq_f32_s32(block_sum[p][q]), scale); \
                } \
            } \
            rows_next(at, sizeof(block_##type)); \
            columns_next(&column, Y_PANEL(QK_K, Y_HEAD_256(n_runs, has_min))); \
        } \
        store(sum, s, ld_s, PAIRS, nq, 2 * PAIRS, ny); \
    } \
    ROWS_OF(type)

// v[group][half]. The compiler must not keep vectors of one part for the next one: it has too few registers.
#define PAIR_PART(type, offset) \
    UNPACK_INLINE void pair_part_##type(const block_##type *a, const block_##type *b, const int j, int8x16_t v[4][2]) { \
        __asm__("" : "+r"(a), "+r"(b)); \
        UNROLL for (int half = 0; half < 2; half++) { \
            int8x16_t part[4]; \
            part_##type(&(struct source){a, b, half}, j, part); \
            UNROLL for (int g = 0; g < 4; g++) { \
                v[g][half] = (offset) == 0 ? part[g] : vsubq_s8(part[g], vdupq_n_s8(offset)); \
            } \
        } \
    }
#define ROWS_K(type, n_runs, group, has_min, add_mins, dmin_of, offset) \
    PAIR_PART(type, offset) \
    ROWS_256(type, n_runs, group, has_min, add_mins, D_OF, dmin_of)
ROWS_K(q4_K, 8, GROUP_K8, true, ADD_MINS, DMIN_OF, 0)
ROWS_K(q5_K, 8, GROUP_K8, true, ADD_MINS, DMIN_OF, 0)
ROWS_K(iq4_xs, 8, GROUP_K8, false, NO_ADD_MINS, D_OF, 0)
ROWS_K(q3_K, 16, GROUP_K16, false, NO_ADD_MINS, D_OF, 4)
ROWS_K(q6_K, 16, GROUP_K16, false, NO_ADD_MINS, D_OF, 32)
ROWS_K(q2_K, 16, GROUP_K16, true, ADD_MINS, DMIN_OF, 0)

#define ROWS_IQ(TYPE, type, n_runs) \
    UNPACK_INLINE struct head head_##type(const block_##type *b) { \
        return (struct head){.scales = scales_##type(b)}; \
    } \
    static __attribute__((noinline)) void pair_part_##type( \
        const block_##type *a, const block_##type *b, int j, int8x16_t v[4][2]) { \
        for (int i = 0; i < 2; i++) { \
            const struct q32 x = cell_##type(a, 2 * j + i), y = cell_##type(b, 2 * j + i); \
            for (int half = 0; half < 2; half++) { \
                v[2 * i][half] = both_halves(x.lo, y.lo, half); \
                v[2 * i + 1][half] = both_halves(x.hi, y.hi, half); \
            } \
        } \
    } \
    ROWS_256(type, n_runs, GROUP_K8, false, NO_ADD_MINS, ds_##type, ds_##type)
IQ_FORMATS(ROWS_IQ)

// Limits from measurements on a Neoverse V1. With more than `most` columns, panels are faster: rows are unpacked once for all columns,
// not once for every 8. With fewer than `least` columns, cpu_gemv is faster.
void cpu_tier_i8mm_gemm_q(struct cpu_kernels *k) {
    GEMM_Q_32(Q8_0, q8_0, rows_q8_0, 2, 32)
    GEMM_Q_32(Q4_0, q4_0, rows_q4_0, 2, 32)
    GEMM_Q_32(Q5_0, q5_0, rows_q5_0, 2, 8)
    GEMM_Q_32(IQ4_NL, iq4_nl, rows_iq4_nl, 2, 32)
    GEMM_Q_32(MXFP4, mxfp4, rows_mxfp4, 2, 24)
    GEMM_Q_32(Q1_0, q1_0, rows_q1_0, 2, 16)
    GEMM_Q_32(Q2_0, q2_0, rows_q2_0, 2, 16)
    GEMM_Q_16(NVFP4, nvfp4, 5)
    GEMM_Q_32_MIN(Q4_1, q4_1, rows_q4_1, 2, 32)
    GEMM_Q_32_MIN(Q5_1, q5_1, rows_q5_1, 2, 8)
    GEMM_Q_256(Q4_K, q4_K, k8_min, k8_min, 8, 1, 2, 24)
    GEMM_Q_256(Q5_K, q5_K, k8_min, k8_min, 8, 1, 2, 16)
    GEMM_Q_256(IQ4_XS, iq4_xs, k, k8, 8, 0, 2, 16)
    GEMM_Q_256(Q3_K, q3_K, k, k16, 16, 0, 2, 8)
    GEMM_Q_256(Q6_K, q6_K, k, k16, 16, 0, 2, 12)
    GEMM_Q_256(Q2_K, q2_K, k16_min, k16_min, 16, 1, 1, 16)
#define GEMM_IQ(TYPE, type, n_runs) GEMM_Q_256(TYPE, type, k, k##n_runs, n_runs, 0, 2, 8)
    CODEBOOK_FORMATS(GEMM_IQ)
    GEMM_Q_256(TQ1_0, tq1_0, k, k8, 8, 0, 2, 8)
    GEMM_Q_256(TQ2_0, tq2_0, k, k8, 8, 0, 4, 8)
}
