// SPDX-License-Identifier: MIT
// gemm_q__dotprod.c: products of quantised rows with many columns, in tiles of 8 rows by 4 columns, by SDOT. SDOT multiplies four
// bytes of each of four rows with four bytes of a column. So each lane is the sum of one row, and scales of four rows are a
// vector with the same layout. panel_q.h defines line and run.

#define MR 8
#define NR 4
#define GROUP 4
#define MIN_COLS 4

#include "cpu/arm/panel_q.h"
#include "cpu/arm/rows_q.h"

// ---- lines ----

UNPACK_INLINE void x_lines4(char *to, const int32x4_t *v) {
    const int64x2_t ab0 = vreinterpretq_s64_s32(vzip1q_s32(v[0], v[1])), ab1 = vreinterpretq_s64_s32(vzip2q_s32(v[0], v[1]));
    const int64x2_t cd0 = vreinterpretq_s64_s32(vzip1q_s32(v[2], v[3])), cd1 = vreinterpretq_s64_s32(vzip2q_s32(v[2], v[3]));
    vst1q_s64((int64_t *) (void *) to, vzip1q_s64(ab0, cd0));
    vst1q_s64((int64_t *) (void *) (to + X_LINE), vzip2q_s64(ab0, cd0));
    vst1q_s64((int64_t *) (void *) (to + 2 * X_LINE), vzip1q_s64(ab1, cd1));
    vst1q_s64((int64_t *) (void *) (to + 3 * X_LINE), vzip2q_s64(ab1, cd1));
}

UNPACK_INLINE void x_bytes(char *to, const int8x16_t *v) {
    const int32x4_t words[4] = {
        vreinterpretq_s32_s8(v[0]), vreinterpretq_s32_s8(v[1]), vreinterpretq_s32_s8(v[2]), vreinterpretq_s32_s8(v[3])};
    x_lines4(to, words);
}

UNPACK_INLINE void y_number(char *line, int c, float v) {
    memcpy(line + 4 * c, &v, sizeof v);
}

// ---- the product ----

// Multiplies 4 or 8 lines of x with lines of y and adds to t00 .. t13. Assembly: code of compilers takes 62 cycles per block of
// q8_0 instead of 51.
#define DOTS_LINE(x0, x1, y, x_off, y_off) \
    "ldp q" #x0 ", q" #x1 ", [%[x], #" #x_off "]\n\t" \
    "ldr q" #y ", [%[y], #" #y_off "]\n\t" \
    "sdot %[t00].4s, v" #x0 ".16b, v" #y ".4b[0]\n\t" \
    "sdot %[t01].4s, v" #x0 ".16b, v" #y ".4b[1]\n\t" \
    "sdot %[t02].4s, v" #x0 ".16b, v" #y ".4b[2]\n\t" \
    "sdot %[t03].4s, v" #x0 ".16b, v" #y ".4b[3]\n\t" \
    "sdot %[t10].4s, v" #x1 ".16b, v" #y ".4b[0]\n\t" \
    "sdot %[t11].4s, v" #x1 ".16b, v" #y ".4b[1]\n\t" \
    "sdot %[t12].4s, v" #x1 ".16b, v" #y ".4b[2]\n\t" \
    "sdot %[t13].4s, v" #x1 ".16b, v" #y ".4b[3]\n\t"
#define DOTS_4_LINES \
    DOTS_LINE(0, 1, 2, 0, 0) \
    DOTS_LINE(3, 4, 5, 32, 16) \
    DOTS_LINE(0, 1, 2, 64, 32) \
    DOTS_LINE(3, 4, 5, 96, 48)
#define DOTS_8_LINES \
    DOTS_4_LINES \
    DOTS_LINE(0, 1, 2, 128, 64) \
    DOTS_LINE(3, 4, 5, 160, 80) \
    DOTS_LINE(0, 1, 2, 192, 96) \
    DOTS_LINE(3, 4, 5, 224, 112)
#define DOTS(lines, x_at, y_at) \
    __asm__(lines \
            : [t00] "+w"(t00), [t01] "+w"(t01), [t02] "+w"(t02), [t03] "+w"(t03), [t10] "+w"(t10), [t11] "+w"(t11), \
            [t12] "+w"(t12), [t13] "+w"(t13) \
            : [x] "r"(x_at), [y] "r"(y_at) \
            : "v0", "v1", "v2", "v3", "v4", "v5", "memory")

// Vector (p, c) holds the sums of rows 4 p to 4 p + 3 with column c. Compilers keep named vectors in registers more reliably than
// arrays.
#define TILE(X) X(0, 0) X(0, 1) X(0, 2) X(0, 3) X(1, 0) X(1, 1) X(1, 2) X(1, 3)
#define SUM(p, c) float32x4_t sum##p##c = vdupq_n_f32(0.0f);
#define STORE(p, c) vst1q_f32(&tile[c][4 * p], sum##p##c);

// Integer sums start with the bits of the float BASE. If |i| < 2^22, the bits of BASE plus i are the float BASE + i. Subtracting
// BASE takes one cycle of any pipe; a conversion takes two cycles of one pipe.
#define BASE 12582912.0f // 1.5 times 2^23
#define BASED(p, c) int32x4_t t##p##c = vreinterpretq_s32_f32(base);
#define ADD(p, c) \
    sum##p##c = vfmaq_laneq_f32(sum##p##c, vmulq_f32(vsubq_f32(vreinterpretq_f32_s32(t##p##c), base), d_x##p), d_y, c);
#define ADD_MIN(p, c) sum##p##c = vfmaq_laneq_f32(sum##p##c, min_x##p, sum_y, c);

UNPACK_INLINE void run_32(int64_t n, float *s, int64_t ld_s, const char *x, int nx, const char *y, int ny, const bool has_min) {
    float32x4_t base = vdupq_n_f32(BASE);
    // Hides the constant from the compiler, which would otherwise add -BASE instead of subtracting BASE. -BASE needs one more
    // register.
    __asm__("" : "+w"(base));
    TILE(SUM)
    for (int64_t i = 0; i < n / 32; i++) {
        const float32x4_t d_x0 = f32_at(x), d_x1 = f32_at(x + 16), d_y = f32_at(y);
        x += X_LINE;
        y += Y_LINE;
        if (has_min) {
            const float32x4_t min_x0 = f32_at(x), min_x1 = f32_at(x + 16), sum_y = f32_at(y);
            TILE(ADD_MIN)
            x += X_LINE;
            y += Y_LINE;
        }
        TILE(BASED)
        DOTS(DOTS_8_LINES, x, y);
        x += LINES(32) * X_LINE;
        y += LINES(32) * Y_LINE;
        TILE(ADD)
    }
    float tile[NR][MR];
    TILE(STORE)
    store_tile(tile, s, ld_s, nx, ny);
}

#define ZERO_BLOCK(p, c) int32x4_t block_sum##p##c = zeros();
#define ZERO_RUN(p, c) int32x4_t t##p##c = zeros();
#define ADD_RUN(p, c) block_sum##p##c = vmlaq_s32(block_sum##p##c, t##p##c, scale##p);
#define ADD_BLOCK(p, c) sum##p##c = vfmaq_laneq_f32(sum##p##c, vmulq_f32(vcvtq_f32_s32(block_sum##p##c), d_x##p), d_y, c);

UNPACK_INLINE void run_256(
    int64_t n, float *s, int64_t ld_s, const char *x, int nx, const char *y, int ny, const int n_runs, const bool has_min) {
    TILE(SUM)
    for (int64_t i = 0; i < n / QK_K; i++) {
        const char *d_x = x, *scales = x + X_LINE, *mins = scales + n_runs * X_LINE, *d = y, *sums = y + Y_LINE;
        x = has_min ? mins + n_runs * X_LINE : mins;
        y = has_min ? sums + n_runs * Y_LINE : sums;
        TILE(ZERO_BLOCK)
        for (int r = 0; r < n_runs; r++) {
            TILE(ZERO_RUN)
            if (n_runs == 8) {
                DOTS(DOTS_8_LINES, x, y);
            } else {
                DOTS(DOTS_4_LINES, x, y);
            }
            x += LINES(QK_K) / n_runs * X_LINE;
            y += LINES(QK_K) / n_runs * Y_LINE;
            const int32x4_t scale0 = s32_at(scales + r * X_LINE), scale1 = s32_at(scales + r * X_LINE + 16);
            TILE(ADD_RUN)
            if (has_min) {
                const float32x4_t min_x0 = f32_at(mins + r * X_LINE), min_x1 = f32_at(mins + r * X_LINE + 16);
                const float32x4_t sum_y = f32_at(sums + r * Y_LINE);
                TILE(ADD_MIN)
            }
        }
        const float32x4_t d_x0 = f32_at(d_x), d_x1 = f32_at(d_x + 16), d_y = f32_at(d);
        TILE(ADD_BLOCK)
    }
    float tile[NR][MR];
    TILE(STORE)
    store_tile(tile, s, ld_s, nx, ny);
}

// ---- rows that are not packed into panels (kernels.h: cpu_gemm_rows) ----

// factor: 1/16 for q4_0, whose bytes are 16 times the value, else 1.
UNPACK_INLINE void store_rows(float32x4_t *sum, float factor, float *s, int64_t ld_s, int ny) {
    float tile[NR][MR];
    for (int r = 0; r < MR; r++) {
        for (int c = 0; c < NR; c++) {
            tile[c][r] = sum[r][c] * factor;
        }
    }
    store_tile(tile, s, ld_s, MR, ny);
}

#define ROWS_RUN(type, factor) \
    static void rows_##type(CPU_GEMM_ROWS_ARGS) { \
        const float base[4] = {BASE, BASE, BASE, BASE}; \
        float32x4_t sum[MR]; \
        four_##type(n, vx, bx, vy, base, sum); \
        four_##type(n, (const char *) vx + 4 * bx, bx, vy, base, sum + 4); \
        store_rows(sum, factor, s, ld_s, ny); \
    }
ROWS_RUN(q8_0, 1.0f)
ROWS_RUN(q4_0, 0.0625f)
ROWS_RUN(iq4_nl, 1.0f)
ROWS_RUN(mxfp4, 1.0f)

// Multiply one run (32 or 16 bytes) of four rows with the lines at y. Rows are 256 bytes apart.
#define ROWS_LINE(y, x, k) \
    "sdot %[t0].4s, v" #y ".16b, v" #x "0.4b[" #k "]\n\t" \
    "sdot %[t1].4s, v" #y ".16b, v" #x "1.4b[" #k "]\n\t" \
    "sdot %[t2].4s, v" #y ".16b, v" #x "2.4b[" #k "]\n\t" \
    "sdot %[t3].4s, v" #y ".16b, v" #x "3.4b[" #k "]\n\t"
#define ROWS_4_LINES(x) ROWS_LINE(4, x, 0) ROWS_LINE(5, x, 1) ROWS_LINE(6, x, 2) ROWS_LINE(7, x, 3)
#define ROWS_RUN_16 \
    "ldr q0, [%[x]]\n\tldr q1, [%[x], #256]\n\tldr q2, [%[x], #512]\n\tldr q3, [%[x], #768]\n\t" \
    "ldp q4, q5, [%[y]]\n\tldp q6, q7, [%[y], #32]\n\t" ROWS_4_LINES()
#define ROWS_RUN_32 \
    "ldp q0, q10, [%[x]]\n\tldp q1, q11, [%[x], #256]\n\tldp q2, q12, [%[x], #512]\n\tldp q3, q13, [%[x], #768]\n\t" \
    "ldp q4, q5, [%[y]]\n\tldp q6, q7, [%[y], #32]\n\t" ROWS_4_LINES() "ldp q4, q5, [%[y], #64]\n\tldp q6, q7, [%[y], " \
                                                                       "#96]\n\t" ROWS_4_LINES(1)
#define ROWS_DOTS(lines, x_at, y_at) \
    __asm__(lines \
            : [t0] "+w"(t0), [t1] "+w"(t1), [t2] "+w"(t2), [t3] "+w"(t3) \
            : [x] "r"(x_at), [y] "r"(y_at) \
            : "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v10", "v11", "v12", "v13", "memory")
#define EACH_ROW(X) X(0) X(1) X(2) X(3)
#define ROW_ZERO_BLOCK(r) int32x4_t block_sum##r = zeros();
#define ROW_ZERO_RUN(r) int32x4_t t##r = zeros();
#define ROW_ADD_RUN(r) block_sum##r = vmlaq_laneq_s32(block_sum##r, t##r, scale, r);
#define ROW_ADD_MIN(r) sum[r] = vfmaq_laneq_f32(sum[r], sum_y, min_x, r);
#define ROW_ADD_BLOCK(r) sum[r] = vfmaq_f32(sum[r], vmulq_laneq_f32(vcvtq_f32_s32(block_sum##r), d_x, r), d_y);

// As run_256, for four unpacked rows. v: elements as bytes. head: scales and minima, as heads_<type> stores them.
UNPACK_INLINE void rows_256(float32x4_t *sum, float32x4_t d_x, const char *head, int8x16_t (*v)[16], const char *y,
    const int n_runs, const bool has_min) {
    const float32x4_t d_y = f32_at(y);
    const char *sums = y + Y_LINE, *lines = has_min ? sums + n_runs * Y_LINE : sums;
    EACH_ROW(ROW_ZERO_BLOCK)
    for (int run = 0; run < n_runs; run++, lines += LINES(QK_K) / n_runs * Y_LINE) {
        EACH_ROW(ROW_ZERO_RUN)
        if (n_runs == 8) {
            ROWS_DOTS(ROWS_RUN_32, &v[0][2 * run], lines);
        } else {
            ROWS_DOTS(ROWS_RUN_16, &v[0][run], lines);
        }
        const int32x4_t scale = s32_at(head + run * X_LINE);
        EACH_ROW(ROW_ADD_RUN)
        if (has_min) {
            const float32x4_t min_x = f32_at(head + (n_runs + run) * X_LINE), sum_y = f32_at(sums + run * Y_LINE);
            EACH_ROW(ROW_ADD_MIN)
        }
    }
    EACH_ROW(ROW_ADD_BLOCK)
}

#define ROWS_RUN_256(type, n_head, offset, n_runs, has_min) \
    static void rows_##type(CPU_GEMM_ROWS_ARGS) { \
        const int nx = MR; \
        float32x4_t sum[MR]; \
        for (int g = 0; g < MR / GROUP; g++) { \
            const char *x = vx, *y = vy; \
            ROWS_OF(type) \
            for (int r = 0; r < GROUP; r++) { \
                sum[g * GROUP + r] = vdupq_n_f32(0.0f); \
            } \
            for (int64_t i = 0; i < n / QK_K; i++, y += (1 + ((has_min) ? (n_runs) : 0) + LINES(QK_K)) * Y_LINE) { \
                char head[(n_head) *X_LINE]; \
                int8x16_t v[GROUP][16]; \
                for (int r = 0; r < GROUP; r++) { \
                    unpack_##type(row[r], v[r]); \
                    for (int j = 0; j < 16 && (offset) != 0; j++) { \
                        v[r][j] = vsubq_s8(v[r][j], vdupq_n_s8(offset)); \
                    } \
                } \
                heads_##type(head, row); \
                rows_256(sum + g * GROUP, D_OF(row[0], row[1], row[2], row[3]), head, v, y, n_runs, has_min); \
                NEXT_BLOCKS \
            } \
        } \
        store_rows(sum, 1.0f, s, ld_s, ny); \
    }
ROWS_RUN_256(q4_K, 16, 0, 8, true)
ROWS_RUN_256(q5_K, 16, 0, 8, true)
ROWS_RUN_256(q6_K, 16, 32, 16, false)
ROWS_RUN_256(q3_K, 16, 4, 16, false)
ROWS_RUN_256(q2_K, 32, 0, 16, true)
ROWS_RUN_256(iq4_xs, 8, 0, 8, false)

GEMM_Q_TIER(static void panels)

void cpu_tier_dotprod_gemm_q(struct cpu_kernels *k) {
    panels(k);
#define ROWS(TYPE, type, step, least, most) \
    k->gemm[GGML_TYPE_##TYPE].rows = (struct cpu_gemm_rows){rows_##type, step, most}; \
    k->gemm[GGML_TYPE_##TYPE].min_cols = least;
    ROWS(Q8_0, q8_0, 32, 2, 28)
    ROWS(Q4_0, q4_0, 32, 3, 12)
    ROWS(IQ4_NL, iq4_nl, 32, 3, 12)
    ROWS(MXFP4, mxfp4, 32, 3, 12)
    ROWS(Q4_K, q4_K, QK_K, 4, 4)
    ROWS(Q5_K, q5_K, QK_K, 3, 4)
    ROWS(Q6_K, q6_K, QK_K, 3, 4)
    ROWS(Q3_K, q3_K, QK_K, 3, 4)
    ROWS(Q2_K, q2_K, QK_K, 3, 4)
    ROWS(IQ4_XS, iq4_xs, QK_K, 3, 4)
}
