// SPDX-License-Identifier: MIT
// gemv_f__neon.c: one or a few columns times f32 or f16 rows, two rows at a time (streams.h). The column stays in f32, because an
// f16 column would have to be converted at every use.

#include "cpu/arm/streams.h"
#include "cpu/arm/unpack.h"
#include "cpu/kernels.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#define STEP 16
#define MAX_COLS 4     // columns per pass
#define F32_MAX_COLS 2 // with more columns, tiles are faster

static void pack__neon(CPU_TABLE, int64_t n, void *panel, const float *y) {
    memcpy(panel, y, (size_t) n * sizeof *y);
}

// nc <= MAX_COLS. Two sums per row and column hide the latency.
#define ROWS2(type, element) \
    UNPACK_INLINE void rows2_##type( \
        int64_t n, const element *a, const element *b, const float *const *y, const int nc, float *s_a, float *s_b) { \
        float32x4_t sum_a[MAX_COLS][2], sum_b[MAX_COLS][2]; \
        for (int c = 0; c < nc; c++) { \
            sum_a[c][0] = sum_a[c][1] = sum_b[c][0] = sum_b[c][1] = vdupq_n_f32(0.0f); \
        } \
        int64_t i = 0; \
        for (; i + STEP <= n; i += STEP) { \
            for (int j = 0; j < STEP / 4; j++) { \
                const float32x4_t x_a = four_##type(a, i + 4 * j), x_b = four_##type(b, i + 4 * j); \
                for (int c = 0; c < nc; c++) { \
                    const float32x4_t v = vld1q_f32(y[c] + i + 4 * j); \
                    sum_a[c][j % 2] = vfmaq_f32(sum_a[c][j % 2], x_a, v); \
                    sum_b[c][j % 2] = vfmaq_f32(sum_b[c][j % 2], x_b, v); \
                } \
            } \
        } \
        for (int c = 0; c < nc; c++) { \
            float all_a = vaddvq_f32(vaddq_f32(sum_a[c][0], sum_a[c][1])); \
            float all_b = vaddvq_f32(vaddq_f32(sum_b[c][0], sum_b[c][1])); \
            for (int64_t j = i; j < n; j++) { \
                all_a = fmaf(one_##type(a, j), y[c][j], all_a); \
                all_b = fmaf(one_##type(b, j), y[c][j], all_b); \
            } \
            s_a[c] = all_a; /* s_a == s_b if a == b (streams.h) */ \
            s_b[c] = all_b; \
        } \
    }

#define GEMV(type, element) \
    ROWS2(type, element) \
    static void gemv_##type##__neon(int64_t n, float *s, const void *x, size_t bx, int nx, const void *vy) { \
        const float *y = vy; \
        for (struct streams at = streams(s, x, bx, nx); streams_have(&at); streams_next(&at)) { \
            rows2_##type(n, (const void *) at.a, (const void *) at.b, &y, 1, at.s_a, at.s_b); \
        } \
    } \
    static void gemv_cols_##type##__neon( \
        int64_t n, float *const *s, const void *x, size_t bx, int nx, const void *const *vy, int ny) { \
        const int n_parts = (ny + MAX_COLS - 1) / MAX_COLS, n_pass = (ny + n_parts - 1) / n_parts; \
        for (struct streams at = streams(s[0], x, bx, nx); streams_have(&at); streams_next(&at)) { \
            const element *a = (const void *) at.a, *b = (const void *) at.b; \
            const ptrdiff_t r_a = at.s_a - s[0], r_b = at.s_b - s[0]; \
            for (int c = 0, nc; c < ny; c += nc) { \
                const float *y[MAX_COLS]; \
                float s_a[MAX_COLS], s_b[MAX_COLS]; \
                nc = ny - c < n_pass ? ny - c : n_pass; \
                for (int j = 0; j < nc; j++) { \
                    y[j] = vy[c + j]; \
                } \
                switch (nc) { \
                    case 1: rows2_##type(n, a, b, y, 1, s_a, s_b); break; \
                    case 2: rows2_##type(n, a, b, y, 2, s_a, s_b); break; \
                    case 3: rows2_##type(n, a, b, y, 3, s_a, s_b); break; \
                    default: rows2_##type(n, a, b, y, MAX_COLS, s_a, s_b); break; \
                } \
                for (int j = 0; j < nc; j++) { \
                    s[c + j][r_a] = s_a[j]; \
                    s[c + j][r_b] = s_b[j]; \
                } \
            } \
        } \
    }
GEMV(f32, float)
GEMV(f16, uint16_t)

void cpu_tier_neon_gemv_f(struct cpu_kernels *k) {
    const size_t size = STEP * sizeof(float);
    k->gemv[GGML_TYPE_F32] = (struct cpu_gemv){.pack_y = pack__neon,
        .run = gemv_f32__neon,
        .run_cols = gemv_cols_f32__neon,
        .step = STEP,
        .y_size = size,
        .max_cols = F32_MAX_COLS};
    k->gemv[GGML_TYPE_F16] = (struct cpu_gemv){
        .pack_y = pack__neon, .run = gemv_f16__neon, .run_cols = gemv_cols_f16__neon, .step = STEP, .y_size = size};
}
