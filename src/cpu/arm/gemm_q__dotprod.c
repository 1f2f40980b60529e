// SPDX-License-Identifier: MIT
// gemm_q__dotprod.c: products of quantised rows with many columns, in tiles of 8 rows by 4 columns, by SDOT. SDOT multiplies four
// bytes of each of four rows with four bytes of a column. So each lane is the sum of one row, and scales of four rows are a
// vector with the same layout. panel_q.h defines line and run.

#define MR 8
#define NR 8
#define NC 4
#define N_PANELS 1
#define GROUP 4
#define Y_WIDTH 16
#define FEW 1 // a tile with one column is by column
#define UNROLL _Pragma("GCC unroll 4")

#include "cpu/arm/panel_q.h"
#include "cpu/arm/rows_q.h"

// ---- lines ----

UNPACK_INLINE void x_zip(uint8x16_t *v) {
    const uint32x4_t a = vreinterpretq_u32_u8(v[0]), b = vreinterpretq_u32_u8(v[1]);
    const uint32x4_t c = vreinterpretq_u32_u8(v[2]), d = vreinterpretq_u32_u8(v[3]);
    const uint64x2_t ab0 = vreinterpretq_u64_u32(vzip1q_u32(a, b)), ab1 = vreinterpretq_u64_u32(vzip2q_u32(a, b));
    const uint64x2_t cd0 = vreinterpretq_u64_u32(vzip1q_u32(c, d)), cd1 = vreinterpretq_u64_u32(vzip2q_u32(c, d));
    v[0] = vreinterpretq_u8_u64(vzip1q_u64(ab0, cd0));
    v[1] = vreinterpretq_u8_u64(vzip2q_u64(ab0, cd0));
    v[2] = vreinterpretq_u8_u64(vzip1q_u64(ab1, cd1));
    v[3] = vreinterpretq_u8_u64(vzip2q_u64(ab1, cd1));
}

UNPACK_INLINE void x_scales8(char *to, const int8x8_t *scales) {
    const int8x8x2_t ab = vzip_s8(scales[0], scales[1]), cd = vzip_s8(scales[2], scales[3]);
    for (int j = 0; j < 2; j++, to += 4 * X_LINE) { // four runs: a b c d of each run
        const int16x4x2_t abcd = vzip_s16(vreinterpret_s16_s8(ab.val[j]), vreinterpret_s16_s8(cd.val[j]));
        for (int i = 0; i < 2; i++) {
            const int16x8_t two = vmovl_s8(vreinterpret_s8_s16(abcd.val[i]));
            vst1q_s32((int32_t *) (void *) (to + 2 * i * X_LINE), vmovl_s16(vget_low_s16(two)));
            vst1q_s32((int32_t *) (void *) (to + (2 * i + 1) * X_LINE), vmovl_high_s16(two));
        }
    }
}

UNPACK_INLINE void y_number(char *line, int c, float v) {
    memcpy(line + 4 * c, &v, sizeof v);
}

// By column: hi, then lo.
UNPACK_INLINE void y_sums(char *to, int c, const int8_t *hi, const int8_t *lo, const int n) {
    memcpy(to + c * 2 * n, hi, (size_t) n);
    memcpy(to + c * 2 * n + n, lo, (size_t) n);
}

// ---- the product ----

// Multiplies 4 or 8 lines of x with lines of y and adds to t00 .. t13. A Neoverse N1 dispatches at most two vector instructions
// and two loads per cycle, in order. So each pair of SDOT is followed by at most one load, for the next line. Assembly fixes this
// order: with three loads before every line, a block of q8_0 takes 57 cycles instead of 51.
#define DOTS_PAIR(p, x, y, c, d) \
    "sdot %[t" #p #c "].4s, v" #x ".16b, v" #y ".4b[" #c "]\n\tsdot %[t" #p #d "].4s, v" #x ".16b, v" #y ".4b[" #d "]\n\t"
#define DOTS_LINE(x0, x1, y, load0, load1, load2) \
    DOTS_PAIR(0, x0, y, 0, 1) load0 DOTS_PAIR(0, x0, y, 2, 3) load1 DOTS_PAIR(1, x1, y, 0, 1) load2 DOTS_PAIR(1, x1, y, 2, 3)
#define LOAD_X(v, off) "ldr q" #v ", [%[x], #" #off "]\n\t"
#define LOAD_Y(v, off) "ldr q" #v ", [%[y], #" #off "]\n\t"
#define DOTS_FIRST LOAD_Y(2, 0) LOAD_X(0, 0) LOAD_X(1, 16)
#define DOTS_3_LINES \
    DOTS_LINE(0, 1, 2, LOAD_Y(5, 16), LOAD_X(3, 32), LOAD_X(4, 48)) \
    DOTS_LINE(3, 4, 5, LOAD_Y(2, 32), LOAD_X(0, 64), LOAD_X(1, 80)) \
    DOTS_LINE(0, 1, 2, LOAD_Y(5, 48), LOAD_X(3, 96), LOAD_X(4, 112))
#define DOTS_4_LINES DOTS_FIRST DOTS_3_LINES DOTS_LINE(3, 4, 5, , , )
#define DOTS_8_LINES \
    DOTS_FIRST DOTS_3_LINES DOTS_LINE(3, 4, 5, LOAD_Y(2, 64), LOAD_X(0, 128), LOAD_X(1, 144)) \
        DOTS_LINE(0, 1, 2, LOAD_Y(5, 80), LOAD_X(3, 160), LOAD_X(4, 176)) \
            DOTS_LINE(3, 4, 5, LOAD_Y(2, 96), LOAD_X(0, 192), LOAD_X(1, 208)) \
                DOTS_LINE(0, 1, 2, LOAD_Y(5, 112), LOAD_X(3, 224), LOAD_X(4, 240)) DOTS_LINE(3, 4, 5, , , )
// The same with y by column. Vectors 2 to 5: 16 bytes of each column. Vectors 0, 1, 6 and 7: lines of x.
#define COLUMNS_LINE(x0, x1, k, load0, load1) \
    "sdot %[t00].4s, v" #x0 ".16b, v2.4b[" #k "]\n\tsdot %[t01].4s, v" #x0 ".16b, v3.4b[" #k "]\n\t" load0 \
    "sdot %[t02].4s, v" #x0 ".16b, v4.4b[" #k "]\n\tsdot %[t03].4s, v" #x0 ".16b, v5.4b[" #k "]\n\t" load1 \
    "sdot %[t10].4s, v" #x1 ".16b, v2.4b[" #k "]\n\tsdot %[t11].4s, v" #x1 ".16b, v3.4b[" #k "]\n\t" \
    "sdot %[t12].4s, v" #x1 ".16b, v4.4b[" #k "]\n\tsdot %[t13].4s, v" #x1 ".16b, v5.4b[" #k "]\n\t"
#define COLUMNS_16(y_off0, y_off1, x0, x1, x2, x3, x4, x5, x6, x7) \
    "ldp q2, q3, [%[y], #" #y_off0 "]\n\tldp q4, q5, [%[y], #" #y_off1 "]\n\t" LOAD_X(0, x0) LOAD_X(1, x1) \
        COLUMNS_LINE(0, 1, 0, LOAD_X(6, x2), LOAD_X(7, x3)) COLUMNS_LINE(6, 7, 1, LOAD_X(0, x4), LOAD_X(1, x5)) \
            COLUMNS_LINE(0, 1, 2, LOAD_X(6, x6), LOAD_X(7, x7)) COLUMNS_LINE(6, 7, 3, , )
#define COLUMNS_4_LINES COLUMNS_16(0, 32, 0, 16, 32, 48, 64, 80, 96, 112)
#define COLUMNS_8_LINES COLUMNS_4_LINES COLUMNS_16(64, 96, 128, 144, 160, 176, 192, 208, 224, 240)
#define DOTS(lines, x_at, y_at) \
    __asm__(lines \
            : [t00] "+w"(t00), [t01] "+w"(t01), [t02] "+w"(t02), [t03] "+w"(t03), [t10] "+w"(t10), [t11] "+w"(t11), \
            [t12] "+w"(t12), [t13] "+w"(t13) \
            : [x] "r"(x_at), [y] "r"(y_at) \
            : "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "memory")

// Vector (p, c) holds the sums of rows 4 p to 4 p + 3 with column c. Compilers keep named vectors in registers more reliably than
// arrays.
#define TILE(X) X(0, 0) X(0, 1) X(0, 2) X(0, 3) X(1, 0) X(1, 1) X(1, 2) X(1, 3)
#define SUM(p, c) float32x4_t sum##p##c = vdupq_n_f32(0.0f);
#define STORE(p, c) vst1q_f32(&tile[c][4 * p], sum##p##c);

// Integer sums start with the bits of the float BASE. If |i| < 2^22, the bits of BASE plus i are the float BASE + i. Subtracting
// BASE takes one cycle of any pipe; a conversion takes two cycles of one pipe.
#define BASE 12582912.0f // 1.5 times 2^23
static const float bases[4] = {BASE, BASE, BASE, BASE};
// A load, because copying a vector register takes a cycle of a vector pipe. Compilers would copy.
UNPACK_INLINE int32x4_t base_bits(void) {
    int32x4_t v;
    __asm__ volatile("ldr %q0, %1" : "=w"(v) : "m"(bases));
    return v;
}
#define BASED(p, c) int32x4_t t##p##c = base_bits();
#define ADD(p, c) \
    sum##p##c = vfmaq_laneq_f32(sum##p##c, vmulq_f32(vsubq_f32(vreinterpretq_f32_s32(t##p##c), base), d_x##p), d_y, c);
#define ADD_MIN(p, c) sum##p##c = vfmaq_laneq_f32(sum##p##c, min_x##p, sum_y, c);

// n_block: 32, or 16 for nvfp4.
UNPACK_INLINE void run_32(int64_t n, float *s, int64_t ld_s, const char *x, int nx, const char *y, int ny, const int n_block,
    const bool has_min, const bool by_column) {
    float32x4_t base = vld1q_f32(bases);
    // Hides the constant from the compiler, which would otherwise add -BASE instead of subtracting BASE. -BASE needs one more
    // register.
    __asm__("" : "+w"(base));
    TILE(SUM)
    for (int64_t i = 0; i < n / n_block; i++) {
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
        if (n_block == 16 && by_column) {
            DOTS(COLUMNS_4_LINES, x, y);
        } else if (n_block == 16) {
            DOTS(DOTS_4_LINES, x, y);
        } else if (by_column) {
            DOTS(COLUMNS_8_LINES, x, y);
        } else {
            DOTS(DOTS_8_LINES, x, y);
        }
        x += LINES(n_block) * X_LINE;
        y += LINES(n_block) * Y_LINE + (NR / NC - 1) * Y_TILE(n_block, Y_HEAD_32(has_min)); // skips the other tiles
        TILE(ADD)
    }
    float tile[NC][MR];
    TILE(STORE)
    store_tile(tile, s, ld_s, nx, ny);
}

#define ZERO_BLOCK(p, c) int32x4_t block_sum##p##c = zeros();
#define ZERO_RUN(p, c) int32x4_t t##p##c = zeros();
#define ADD_RUN(p, c) block_sum##p##c = vmlaq_s32(block_sum##p##c, t##p##c, scale##p);
#define ADD_BLOCK(p, c) sum##p##c = vfmaq_f32(sum##p##c, vcvtq_f32_s32(block_sum##p##c), vmulq_laneq_f32(d_x##p, d_y, c));
// Products of minima with sums of y start with the bits of BASE too. The products of hi are shifted together with BASE, so they start
// with BASE shifted to the right, which removes zero bits only. The largest sum is 63 * 8 * 32 * 127, below 2^21.
#define MIN_BASED(p, c) int32x4_t t##p##c = min_base;
#define MIN_SHIFT(p, c) t##p##c = vshlq_n_s32(t##p##c, 7);
#define ADD_BLOCK_MIN(p, c) \
    sum##p##c = vfmaq_f32(sum##p##c, vsubq_f32(vreinterpretq_f32_s32(t##p##c), base), vmulq_laneq_f32(d_x##p, d_y, c));
// Multiply line j of the minima with lane k of the vectors of sums, at c * distance bytes from `sums`.
#define MIN_LINE(j) const int8x16_t min_x0 = s8_at(mins + (j) *X_LINE), min_x1 = s8_at(mins + (j) *X_LINE + 16);
#define MIN_SUMS(at, distance) \
    const int8x16_t sum_y0 = s8_at(at), sum_y1 = s8_at((at) + (distance)), sum_y2 = s8_at((at) + 2 * (distance)), \
                    sum_y3 = s8_at((at) + 3 * (distance));
#define MIN_DOTS(j, k) \
    { \
        MIN_LINE(j) \
        t00 = vdotq_laneq_s32(t00, min_x0, sum_y0, k); \
        t01 = vdotq_laneq_s32(t01, min_x0, sum_y1, k); \
        t02 = vdotq_laneq_s32(t02, min_x0, sum_y2, k); \
        t03 = vdotq_laneq_s32(t03, min_x0, sum_y3, k); \
        t10 = vdotq_laneq_s32(t10, min_x1, sum_y0, k); \
        t11 = vdotq_laneq_s32(t11, min_x1, sum_y1, k); \
        t12 = vdotq_laneq_s32(t12, min_x1, sum_y2, k); \
        t13 = vdotq_laneq_s32(t13, min_x1, sum_y3, k); \
    }

UNPACK_INLINE void run_256(int64_t n, float *s, int64_t ld_s, const char *x, int nx, const char *y, int ny, const int n_runs,
    const bool has_min, const bool by_column) {
    TILE(SUM)
    for (int64_t i = 0; i < n / QK_K; i++) {
        const char *d_at = x, *scales = x + (X_HEAD_256(n_runs, has_min) - n_runs) * X_LINE;
        const float32x4_t d_y = f32_at(y);
        if (has_min) {
            const char *mins = x + 2 * X_LINE, *sums = y + Y_LINE;
            const float32x4_t d_x0 = f32_at(x + X_LINE), d_x1 = f32_at(x + X_LINE + 16);
            const float32x4_t base = vdupq_n_f32(BASE);
            const int32x4_t min_base = vshrq_n_s32(vreinterpretq_s32_f32(base), 7);
            TILE(MIN_BASED)
            if (n_runs == 8) {
                MIN_SUMS(sums, 16)
                MIN_DOTS(0, 0)
                MIN_DOTS(1, 1)
                TILE(MIN_SHIFT)
                MIN_DOTS(0, 2)
                MIN_DOTS(1, 3)
            } else {
                for (int half = 0; half < 2; half++) {
                    if (half == 1) {
                        TILE(MIN_SHIFT)
                    }
                    MIN_SUMS(sums + half * 16, 32)
                    MIN_DOTS(0, 0)
                    MIN_DOTS(1, 1)
                    MIN_DOTS(2, 2)
                    MIN_DOTS(3, 3)
                }
            }
            TILE(ADD_BLOCK_MIN)
        }
        x += X_HEAD_256(n_runs, has_min) * X_LINE;
        y += Y_HEAD_256(n_runs, has_min) * Y_LINE;
        TILE(ZERO_BLOCK)
        for (int r = 0; r < n_runs; r++) {
            TILE(ZERO_RUN)
            if (n_runs == 8 && by_column) {
                DOTS(COLUMNS_8_LINES, x, y);
            } else if (n_runs == 8) {
                DOTS(DOTS_8_LINES, x, y);
            } else if (by_column) {
                DOTS(COLUMNS_4_LINES, x, y);
            } else {
                DOTS(DOTS_4_LINES, x, y);
            }
            x += LINES(QK_K) / n_runs * X_LINE;
            y += LINES(QK_K) / n_runs * Y_LINE;
            const int32x4_t scale0 = s32_at(scales + r * X_LINE), scale1 = s32_at(scales + r * X_LINE + 16);
            TILE(ADD_RUN)
        }
        y += (NR / NC - 1) * Y_TILE(QK_K, Y_HEAD_256(n_runs, has_min)); // skips the other tiles
        const float32x4_t d_x0 = f32_at(d_at), d_x1 = f32_at(d_at + 16);
        TILE(ADD_BLOCK)
    }
    float tile[NC][MR];
    TILE(STORE)
    store_tile(tile, s, ld_s, nx, ny);
}
#define RUN(name, n_block, y_head, call, ...) \
    static void run_##name(CPU_GEMM_ARGS) { \
        const char *y = vy; \
        for (int c = 0; c < ny; c += NC, y += Y_TILE(n_block, y_head)) { \
            const int nc = min_int(ny - c, NC); \
            if (nc > FEW) { \
                call(n, s + c * ld_s, ld_s, vx, nx, y, nc, __VA_ARGS__, false); \
            } else { \
                call(n, s + c * ld_s, ld_s, vx, nx, y, nc, __VA_ARGS__, true); \
            } \
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

// factor: 1/16 for q4_0, whose bytes are 16 times the value, else 1.
UNPACK_INLINE void store_rows(float32x4_t *sum, float factor, float *s, int64_t ld_s, int ny) {
    float tile[NC][MR];
    for (int r = 0; r < MR; r++) {
        for (int c = 0; c < NC; c++) {
            tile[c][r] = sum[r][c] * factor;
        }
    }
    store_tile(tile, s, ld_s, MR, ny);
}

// A tile with one column. A vector is 16 elements of a row, so that one column fills the vectors. The float operations are those
// of run_32 and run_256.
UNPACK_INLINE int32x4_t fold4(int32x4_t a, int32x4_t b, int32x4_t c, int32x4_t d) {
    return vpaddq_s32(vpaddq_s32(a, b), vpaddq_s32(c, d));
}

#define ONE_COLUMN(type) \
    static void one_column_##type(int64_t n, float *s, const char *x, size_t bx, const char *y) { \
        for (int g = 0; g < MR; g += GROUP) { \
            const block_##type *row[GROUP]; \
            float32x4_t sum = vdupq_n_f32(0.0f); \
            for (int r = 0; r < GROUP; r++) { \
                row[r] = (const void *) (x + (size_t) (g + r) * bx); \
            } \
            const char *at = y; \
            for (int64_t i = 0; i < n / 32; i++, at += Y_PANEL(32, Y_HEAD_32(0))) { \
                const float32x4_t d_x = scales_##type(row[0], row[1], row[2], row[3]); \
                const int8x16_t lo = s8_at(at + Y_LINE), hi = s8_at(at + Y_LINE + NC * Y_WIDTH); \
                int32x4_t t[GROUP]; \
                for (int r = 0; r < GROUP; r++) { \
                    const struct q32 q = unpack_##type(row[r]); \
                    t[r] = vdotq_s32(vdotq_s32(zeros(), q.lo, lo), q.hi, hi); \
                    __builtin_prefetch((const char *) row[r] + AHEAD, 0, 3); \
                    row[r]++; \
                } \
                const float32x4_t dots = vcvtq_f32_s32(fold4(t[0], t[1], t[2], t[3])); \
                sum = vfmaq_laneq_f32(sum, vmulq_f32(dots, d_x), f32_at(at), 0); \
            } \
            vst1q_f32(s + g, sum); \
        } \
    }
ONE_COLUMN(q8_0)
ONE_COLUMN(q4_0)
ONE_COLUMN(iq4_nl)
ONE_COLUMN(mxfp4)

#define ROWS_RUN(type, factor) \
    static void rows_##type(CPU_GEMM_ROWS_ARGS) { \
        const char *y = vy; \
        for (; ny > FEW; ny -= NC, y += Y_TILE(32, Y_HEAD_32(0)), s += NC * ld_s) { \
            float32x4_t sum[MR]; \
            four_##type(n, vx, bx, y, bases, sum); \
            four_##type(n, (const char *) vx + 4 * bx, bx, y, bases, sum + 4); \
            store_rows(sum, factor, s, ld_s, min_int(ny, NC)); \
        } \
        if (ny == FEW) { \
            one_column_##type(n, s, vx, bx, y); \
        } \
    }
ROWS_RUN(q8_0, 1.0f)
ROWS_RUN(q4_0, 0.0625f)
ROWS_RUN(iq4_nl, 1.0f)
ROWS_RUN(mxfp4, 1.0f)

// Multiply one run (32 or 16 bytes) of four rows with the lines at y. Rows are 256 bytes apart. Loads are spread as in DOTS_LINE.
#define ROWS_LINE(y, x, k, load0, load1) \
    "sdot %[t0].4s, v" #y ".16b, v" #x "0.4b[" #k "]\n\tsdot %[t1].4s, v" #y ".16b, v" #x "1.4b[" #k "]\n\t" load0 \
    "sdot %[t2].4s, v" #y ".16b, v" #x "2.4b[" #k "]\n\tsdot %[t3].4s, v" #y ".16b, v" #x "3.4b[" #k "]\n\t" load1
#define ROWS_FIRST LOAD_Y(4, 0) LOAD_X(0, 0) LOAD_X(1, 256) LOAD_X(2, 512) LOAD_X(3, 768)
#define ROWS_RUN_16 \
    ROWS_FIRST ROWS_LINE(4, , 0, LOAD_Y(5, 16), LOAD_Y(6, 32)) ROWS_LINE(5, , 1, LOAD_Y(7, 48), ) ROWS_LINE(6, , 2, , ) \
        ROWS_LINE(7, , 3, , )
#define ROWS_RUN_32 \
    ROWS_FIRST ROWS_LINE(4, , 0, LOAD_Y(5, 16), LOAD_Y(6, 32)) ROWS_LINE(5, , 1, LOAD_Y(7, 48), LOAD_Y(4, 64)) \
        ROWS_LINE(6, , 2, LOAD_X(10, 16), LOAD_X(11, 272)) ROWS_LINE(7, , 3, LOAD_X(12, 528), LOAD_X(13, 784)) \
            ROWS_LINE(4, 1, 0, LOAD_Y(5, 80), LOAD_Y(6, 96)) ROWS_LINE(5, 1, 1, LOAD_Y(7, 112), ) ROWS_LINE(6, 1, 2, , ) \
                ROWS_LINE(7, 1, 3, , )
#define ROWS_DOTS(lines, x_at, y_at) \
    __asm__(lines \
            : [t0] "+w"(t0), [t1] "+w"(t1), [t2] "+w"(t2), [t3] "+w"(t3) \
            : [x] "r"(x_at), [y] "r"(y_at) \
            : "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v10", "v11", "v12", "v13", "memory")
#define EACH_ROW(X) X(0) X(1) X(2) X(3)
#define ROW_ZERO_BLOCK(r) int32x4_t block_sum##r = zeros();
#define ROW_ZERO_RUN(r) int32x4_t t##r = zeros();
#define ROW_ADD_RUN(r) block_sum##r = vmlaq_laneq_s32(block_sum##r, t##r, scale, r);
// lines: four lines of sums (x_zip). k, j: line and lane of four minima.
#define ROW_MIN_DOT(r, k, j) t##r = vdotq_laneq_s32(t##r, s8(lines[k]), x->mins[r], j);
#define ROW_MIN_DOTS(k, j) ROW_MIN_DOT(0, k, j) ROW_MIN_DOT(1, k, j) ROW_MIN_DOT(2, k, j) ROW_MIN_DOT(3, k, j)
#define ROW_MIN_SHIFT(r) t##r = vshlq_n_s32(t##r, 7);
#define ROW_ADD_MIN(r) sum[r] = vfmaq_f32(sum[r], vcvtq_f32_s32(t##r), vmulq_laneq_f32(d_y, dmin_x, r));
#define ROW_ADD_BLOCK(r) sum[r] = vfmaq_f32(sum[r], vcvtq_f32_s32(block_sum##r), vmulq_laneq_f32(d_y, d_x, r));

// A block of four rows.
struct rows_block {
    int8x16_t v[GROUP][16];               // elements
    int8x16_t scales[GROUP], mins[GROUP]; // of each run
    int32x4_t scale[16][X_LINE / 16];     // of each run; lane r: row r
    float32x4_t d_x, dmin_x;              // lane r: row r
};

#define ROWS_UNPACK(type, n_runs, dmin_of, offset) \
    static __attribute__((noinline)) void rows_unpack_##type(struct rows_block *restrict to, const void *const *blocks) { \
        ROW_BLOCKS(type) \
        struct head head[GROUP]; \
        for (int r = 0; r < GROUP; r++) { \
            int8x16_t v[16]; \
            unpack_##type(row[r], v); \
            for (int j = 0; j < 16; j++) { \
                to->v[r][j] = (offset) == 0 ? v[j] : vsubq_s8(v[j], vdupq_n_s8(offset)); \
            } \
            head[r] = head_##type(row[r]); \
            to->scales[r] = head[r].scales; \
            to->mins[r] = head[r].mins; \
        } \
        x_scales((char *) to->scale, head, n_runs); \
        to->d_x = D_OF(row[0], row[1], row[2], row[3]); \
        to->dmin_x = dmin_of(row[0], row[1], row[2], row[3]); \
    }
ROWS_UNPACK(q4_K, 8, DMIN_OF, 0)
ROWS_UNPACK(q5_K, 8, DMIN_OF, 0)
ROWS_UNPACK(iq4_xs, 8, D_OF, 0)
ROWS_UNPACK(q3_K, 16, D_OF, 4)
ROWS_UNPACK(q6_K, 16, D_OF, 32)
ROWS_UNPACK(q2_K, 16, DMIN_OF, 0)
#define ROWS_UNPACK_IQ(TYPE, type, n_runs) \
    static __attribute__((noinline)) void rows_unpack_##type(struct rows_block *restrict to, const void *const *blocks) { \
        ROW_BLOCKS(type) \
        struct head head[GROUP]; \
        for (int r = 0; r < GROUP; r++) { \
            _Pragma("GCC unroll 8") for (int j = 0; j < 8; j++) { \
                const struct q32 q = cell_##type(row[r], j); \
                to->v[r][2 * j] = q.lo; \
                to->v[r][2 * j + 1] = q.hi; \
            } \
            to->scales[r] = head[r].scales = scales_##type(row[r]); \
        } \
        x_scales((char *) to->scale, head, n_runs); \
        to->d_x = to->dmin_x = ds_##type(row[0], row[1], row[2], row[3]); \
    }
IQ_FORMATS(ROWS_UNPACK_IQ)

// As run_256, for four unpacked rows and a tile of y.
UNPACK_INLINE void rows_256(float32x4_t *sum, const struct rows_block *x, const char *y, const int n_runs, const bool has_min) {
    const float32x4_t d_y = f32_at(y), d_x = x->d_x, dmin_x = x->dmin_x;
    const char *sums = y + Y_LINE, *at = y + Y_HEAD_256(n_runs, has_min) * Y_LINE;
    if (has_min) {
        EACH_ROW(ROW_ZERO_RUN)
        for (int half = 0; half < n_runs / 8; half++) {
            uint8x16_t lines[4];
            for (int c = 0; c < NC; c++) {
                lines[c] = vreinterpretq_u8_s8(s8_at(sums + c * 2 * n_runs + half * 16));
            }
            x_zip(lines);
            EACH_ROW(ROW_MIN_SHIFT)
            ROW_MIN_DOTS(0, 0)
            ROW_MIN_DOTS(1, 1)
            if (n_runs == 8) {
                EACH_ROW(ROW_MIN_SHIFT)
                ROW_MIN_DOTS(2, 0)
                ROW_MIN_DOTS(3, 1)
            } else {
                ROW_MIN_DOTS(2, 2)
                ROW_MIN_DOTS(3, 3)
            }
        }
        EACH_ROW(ROW_ADD_MIN)
    }
    EACH_ROW(ROW_ZERO_BLOCK)
    for (int run = 0; run < n_runs; run++, at += LINES(QK_K) / n_runs * Y_LINE) {
        EACH_ROW(ROW_ZERO_RUN)
        if (n_runs == 8) {
            ROWS_DOTS(ROWS_RUN_32, &x->v[0][2 * run], at);
        } else {
            ROWS_DOTS(ROWS_RUN_16, &x->v[0][run], at);
        }
        const int32x4_t scale = x->scale[run][0];
        EACH_ROW(ROW_ADD_RUN)
    }
    EACH_ROW(ROW_ADD_BLOCK)
}

// The product of a row of a block with a column. Four partial sums.
UNPACK_INLINE int32x4_t row_dot(const int8x16_t *v, const int32x4_t *scale, const char *y, const int n_runs) {
    const int n_vectors = 16 / n_runs; // per run
    int32x4_t sum = zeros();
    UNROLL for (int k = 0; k < n_runs / 4; k++) {
        int32x4_t t[4];
        UNROLL for (int j = 0; j < 4; j++) {
            t[j] = zeros();
            UNROLL for (int u = 0; u < n_vectors; u++) {
                const int at = (4 * k + j) * n_vectors + u;
                t[j] = vdotq_s32(t[j], v[at], s8_at(y + at * NC * Y_WIDTH));
            }
        }
        sum = vmlaq_s32(sum, fold4(t[0], t[1], t[2], t[3]), scale[k]);
    }
    return sum;
}

// Minima times sums of y. Four partial sums.
UNPACK_INLINE int32x4_t row_min(int8x16_t mins, const char *sums, const int n_runs) {
    if (n_runs == 8) { // hi and lo in one vector
        const int32x4_t shift = {7, 7, 0, 0};
        const int8x16_t twice = vcombine_s8(vget_low_s8(mins), vget_low_s8(mins));
        return vshlq_s32(vdotq_s32(zeros(), twice, s8_at(sums)), shift);
    }
    return vdotq_s32(vshlq_n_s32(vdotq_s32(zeros(), mins, s8_at(sums)), 7), mins, s8_at(sums + 16));
}

UNPACK_INLINE void one_column_256(
    float32x4_t *sum, const struct rows_block *x, const char *y, const int n_runs, const bool has_min) {
    const float32x4_t d_y = f32_at(y);
    int32x4_t dots[GROUP], mins[GROUP];
    _Pragma("GCC unroll 1") for (int r = 0; r < GROUP; r++) {
        const int16x8_t s0 = vmovl_s8(vget_low_s8(x->scales[r])), s1 = vmovl_high_s8(x->scales[r]);
        const int32x4_t scale[4] = {
            vmovl_s16(vget_low_s16(s0)), vmovl_high_s16(s0), vmovl_s16(vget_low_s16(s1)), vmovl_high_s16(s1)};
        dots[r] = row_dot(x->v[r], scale, y + Y_HEAD_256(n_runs, has_min) * Y_LINE, n_runs);
        mins[r] = has_min ? row_min(x->mins[r], y + Y_LINE, n_runs) : zeros();
    }
    // Lane r: row r.
    if (has_min) {
        const float32x4_t m = vcvtq_f32_s32(fold4(mins[0], mins[1], mins[2], mins[3]));
        *sum = vfmaq_f32(*sum, m, vmulq_laneq_f32(x->dmin_x, d_y, 0));
    }
    const float32x4_t d = vmulq_laneq_f32(x->d_x, d_y, 0);
    *sum = vfmaq_f32(*sum, vcvtq_f32_s32(fold4(dots[0], dots[1], dots[2], dots[3])), d);
}

// unpack: rows_unpack_<type>. x_size: bytes of a block.
typedef void (*rows_unpack_t)(struct rows_block *to, const void *const *blocks);
#define ROWS_256(name, n_runs, has_min) \
    static __attribute__((noinline)) void rows_##name(CPU_GEMM_ROWS_ARGS, rows_unpack_t unpack, size_t x_size) { \
        float32x4_t sum[NR / NC][MR], one[MR / GROUP]; \
        memset(sum, 0, sizeof sum); \
        memset(one, 0, sizeof one); \
        for (int g = 0; g < MR; g += GROUP) { \
            const char *y = vy, *row[GROUP]; \
            for (int r = 0; r < GROUP; r++) { \
                row[r] = (const char *) vx + (size_t) (g + r) * bx; \
            } \
            for (int64_t i = 0; i < n / QK_K; i++, y += Y_PANEL(QK_K, Y_HEAD_256(n_runs, has_min))) { \
                struct rows_block block; \
                unpack(&block, (const void *const *) row); \
                const char *tile = y; \
                for (int c = 0; c < ny; c += NC, tile += Y_TILE(QK_K, Y_HEAD_256(n_runs, has_min))) { \
                    if (ny - c > FEW) { \
                        rows_256(sum[c / NC] + g, &block, tile, n_runs, has_min); \
                    } else { \
                        one_column_256(&one[g / GROUP], &block, tile, n_runs, has_min); \
                    } \
                } \
                for (int r = 0; r < GROUP; r++) { \
                    row[r] += x_size; \
                } \
            } \
        } \
        for (int c = 0; c < ny; c += NC) { \
            if (ny - c > FEW) { \
                store_rows(sum[c / NC], 1.0f, s + c * ld_s, ld_s, min_int(ny - c, NC)); \
            } else { \
                memcpy(s + c * ld_s, one, sizeof one); \
            } \
        } \
    }
ROWS_256(k8, 8, false)
ROWS_256(k8_min, 8, true)
ROWS_256(k16, 16, false)
ROWS_256(k16_min, 16, true)
#define ROWS_K(type, runs) \
    static void rows_##type(CPU_GEMM_ROWS_ARGS) { \
        rows_##runs(n, s, ld_s, vx, bx, vy, ny, rows_unpack_##type, sizeof(block_##type)); \
    }
ROWS_K(q4_K, k8_min)
ROWS_K(q5_K, k8_min)
ROWS_K(iq4_xs, k8)
ROWS_K(q3_K, k16)
ROWS_K(q6_K, k16)
ROWS_K(q2_K, k16_min)
#define ROWS_IQ(TYPE, type, n_runs) ROWS_K(type, k##n_runs)
IQ_FORMATS(ROWS_IQ)

void cpu_tier_dotprod_gemm_q(struct cpu_kernels *k) {
    GEMM_Q_32(Q8_0, q8_0, rows_q8_0, 2, 33)
    GEMM_Q_32(Q4_0, q4_0, rows_q4_0, 3, 13)
    GEMM_Q_32(IQ4_NL, iq4_nl, rows_iq4_nl, 2, 13)
    GEMM_Q_32(MXFP4, mxfp4, rows_mxfp4, 2, 13)
    GEMM_Q_32(Q5_0, q5_0, NULL, 3, 0)
    GEMM_Q_32(Q1_0, q1_0, NULL, 8, 0)
    GEMM_Q_32(Q2_0, q2_0, NULL, 6, 0)
    GEMM_Q_16(NVFP4, nvfp4, 8)
    GEMM_Q_32_MIN(Q4_1, q4_1, NULL, 3, 0)
    GEMM_Q_32_MIN(Q5_1, q5_1, NULL, 3, 0)
    GEMM_Q_256(Q4_K, q4_K, k8_min, k8_min, 8, 1, 4, 8)
    GEMM_Q_256(Q5_K, q5_K, k8_min, k8_min, 8, 1, 3, 8)
    GEMM_Q_256(IQ4_XS, iq4_xs, k, k8, 8, 0, 3, 8)
    GEMM_Q_256(Q3_K, q3_K, k, k16, 16, 0, 3, 8)
    GEMM_Q_256(Q6_K, q6_K, k, k16, 16, 0, 3, 8)
    GEMM_Q_256(Q2_K, q2_K, k16_min, k16_min, 16, 1, 3, 8)
#define GEMM_IQ(TYPE, type, n_runs) GEMM_Q_256(TYPE, type, k, k##n_runs, n_runs, 0, 3, 8)
    IQ_FORMATS(GEMM_IQ)
    k->gemm[GGML_TYPE_TQ2_0].min_cols = 7;
}
