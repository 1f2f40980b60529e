// SPDX-License-Identifier: MIT
// gemm_f32__neon.c: products of f32 rows with many columns, in tiles of 8 by 8. Four loads feed sixteen multiply-adds. A panel
// holds element k of 8 rows (or columns) in adjacent floats. f16 rows are packed as f32, so that they are converted once.

#include "cpu/arm/unpack.h"
#include "cpu/kernels.h"

#include <arm_neon.h>
#include <string.h>

#define MR 8
#define NR 8

// Rows of `to` are 8 floats apart.
UNPACK_INLINE void transpose4(float *to, float32x4_t a, float32x4_t b, float32x4_t c, float32x4_t d) {
    const float64x2_t ab0 = vreinterpretq_f64_f32(vzip1q_f32(a, b)), ab1 = vreinterpretq_f64_f32(vzip2q_f32(a, b));
    const float64x2_t cd0 = vreinterpretq_f64_f32(vzip1q_f32(c, d)), cd1 = vreinterpretq_f64_f32(vzip2q_f32(c, d));
    vst1q_f32(to, vreinterpretq_f32_f64(vzip1q_f64(ab0, cd0)));
    vst1q_f32(to + 8, vreinterpretq_f32_f64(vzip2q_f64(ab0, cd0)));
    vst1q_f32(to + 16, vreinterpretq_f32_f64(vzip1q_f64(ab1, cd1)));
    vst1q_f32(to + 24, vreinterpretq_f32_f64(vzip2q_f64(ab1, cd1)));
}

// Rows are often a power of two apart and share a few cache sets. Only four rows fit in these sets, so pack8 reads four rows at a
// time. In pack_x, missing rows are copies of the first row. Their results are not stored.
#define PACK(type, element) \
    UNPACK_INLINE void pack4_##type(float *to, const element *const *rows, int64_t i) { \
        transpose4(to, four_##type(rows[0], i), four_##type(rows[1], i), four_##type(rows[2], i), four_##type(rows[3], i)); \
    } \
    static void pack8_##type(int64_t n, float *to, const element *const *rows) { \
        int64_t i = 0; \
        for (; i + 16 <= n; i += 16) { \
            for (int j = 0; j < 16; j += 4) { \
                pack4_##type(to + (i + j) * 8, rows, i + j); \
            } \
            for (int j = 0; j < 16; j += 4) { \
                pack4_##type(to + (i + j) * 8 + 4, rows + 4, i + j); \
            } \
        } \
        for (; i < n; i++) { \
            for (int r = 0; r < 8; r++) { \
                to[i * 8 + r] = one_##type(rows[r], i); \
            } \
        } \
    } \
    static void pack_x_##type(int64_t n, void *panel, const void *x, size_t bx, int nx) { \
        const element *rows[MR]; \
        for (int r = 0; r < MR; r++) { \
            rows[r] = (const void *) ((const char *) x + (r < nx ? (size_t) r * bx : 0)); \
        } \
        pack8_##type(n, panel, rows); \
    }
PACK(f32, float)
PACK(f16, uint16_t)

static void pack_y__neon(CPU_TABLE, int64_t n, void *panel, const float *const *y, int ny) {
    const float *rows[NR];
    for (int r = 0; r < NR; r++) {
        rows[r] = y[r < ny ? r : 0];
    }
    pack8_f32(n, panel, rows);
}

#define COLUMNS(X) X(0, y0, 0) X(1, y0, 1) X(2, y0, 2) X(3, y0, 3) X(4, y1, 0) X(5, y1, 1) X(6, y1, 2) X(7, y1, 3)
#define ZERO(c, v, lane) float32x4_t a##c = vdupq_n_f32(0.0f), b##c = a##c;
#define STEP(c, v, lane) \
    a##c = vfmaq_laneq_f32(a##c, x0, v, lane); \
    b##c = vfmaq_laneq_f32(b##c, x1, v, lane);
#define STORE(c, v, lane) \
    vst1q_f32(tile[c], a##c); \
    vst1q_f32(tile[c] + 4, b##c);
#define STORE_FULL(c, v, lane) \
    vst1q_f32(s + c * ld_s, a##c); \
    vst1q_f32(s + c * ld_s + 4, b##c);

static void run__neon(CPU_GEMM_ARGS) {
    const float *x = vx, *y = vy;
    COLUMNS(ZERO)
    for (int64_t i = 0; i < n; i++, x += MR, y += NR) {
        const float32x4_t x0 = vld1q_f32(x), x1 = vld1q_f32(x + 4), y0 = vld1q_f32(y), y1 = vld1q_f32(y + 4);
        COLUMNS(STEP)
    }
    if (nx == MR && ny == NR) {
        COLUMNS(STORE_FULL)
        return;
    }
    float tile[NR][MR];
    COLUMNS(STORE)
    for (int c = 0; c < ny; c++) {
        memcpy(s + c * ld_s, tile[c], (size_t) nx * sizeof(float));
    }
}

void cpu_tier_neon_gemm_f32(struct cpu_kernels *k) {
    k->gemm[GGML_TYPE_F32] = (struct cpu_gemm){.pack_x = pack_x_f32,
        .pack_y = pack_y__neon,
        .run = run__neon,
        .mr = MR,
        .nr = NR,
        .min_cols = 24,
        .step = 1,
        .x_size = MR * sizeof(float),
        .y_size = NR * sizeof(float)};
    k->gemm[GGML_TYPE_F16] = k->gemm[GGML_TYPE_F32];
    k->gemm[GGML_TYPE_F16].pack_x = pack_x_f16;
    k->gemm[GGML_TYPE_F16].min_cols = 8;
}
