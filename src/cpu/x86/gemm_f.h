// SPDX-License-Identifier: MIT
// gemm_f.h: products of f32, f16 and bf16 rows with many columns, in tiles of MR rows by NR columns. In a panel, element k of MR
// rows (or NR columns) is in adjacent floats. Missing rows and columns are copies of the first one. Their results are not stored.
// For some tiers, src/CMakeLists.txt defines MR, a multiple of V_LANES, and MIN_COLS_F16.
#pragma once

#include "cpu/kernels.h"
#include "cpu/x86/floats.h"

#include <string.h>

#ifdef __AVX512F__
#    define MR 32
#    define NR 12
#    define MIN_COLS_F32 33
#    define MIN_COLS_F16 33
#    define MIN_COLS_BF16 33
#else
#    ifndef MR // smaller in the tier sse42
#        define MR 16
#    endif
#    define NR 6
#    ifdef __AVX2__
#        define MIN_COLS_F32 17
#    else
#        define MIN_COLS_F32 10
#    endif
#    ifndef MIN_COLS_F16 // smaller without F16C: panels convert each row once
#        define MIN_COLS_F16 20
#    endif
#    define MIN_COLS_BF16 20
#endif
#define VECS (MR / V_LANES)
#define EACH_VEC(v) _Pragma("GCC unroll 2") for (int v = 0; v < VECS; v++)
#define EACH_COLUMN(c) _Pragma("GCC unroll 16") for (int c = 0; c < n_cols; c++)

FLOATS_INLINE void transpose8(__m256 v[8]) {
    __m256 a[8];
    __m256d b[8];
    for (int j = 0; j < 8; j += 2) {
        a[j] = _mm256_unpacklo_ps(v[j], v[j + 1]);
        a[j + 1] = _mm256_unpackhi_ps(v[j], v[j + 1]);
    }
    for (int j = 0; j < 8; j += 4) {
        b[j] = _mm256_unpacklo_pd(_mm256_castps_pd(a[j]), _mm256_castps_pd(a[j + 2]));
        b[j + 1] = _mm256_unpackhi_pd(_mm256_castps_pd(a[j]), _mm256_castps_pd(a[j + 2]));
        b[j + 2] = _mm256_unpacklo_pd(_mm256_castps_pd(a[j + 1]), _mm256_castps_pd(a[j + 3]));
        b[j + 3] = _mm256_unpackhi_pd(_mm256_castps_pd(a[j + 1]), _mm256_castps_pd(a[j + 3]));
    }
    for (int j = 0; j < 4; j++) {
        v[j] = _mm256_permute2f128_ps(_mm256_castpd_ps(b[j]), _mm256_castpd_ps(b[j + 4]), 0x20);
        v[j + 4] = _mm256_permute2f128_ps(_mm256_castpd_ps(b[j]), _mm256_castpd_ps(b[j + 4]), 0x31);
    }
}

#define PACK_X(type, element) \
    static void pack_x_##type(int64_t n, void *panel, const void *x, size_t bx, int nx) { \
        for (int g = 0; g < MR; g += 8) { \
            const element *row[8]; \
            for (int r = 0; r < 8; r++) { \
                row[r] = (const void *) ((const char *) x + (g + r < nx ? (size_t) (g + r) * bx : 0)); \
            } \
            float *to = (float *) panel + g; \
            int64_t i = 0; \
            for (; i + 8 <= n; i += 8) { \
                __m256 v[8]; \
                for (int r = 0; r < 8; r++) { \
                    v[r] = load_##type(row[r] + i); \
                } \
                transpose8(v); \
                for (int j = 0; j < 8; j++) { \
                    _mm256_storeu_ps(to + (i + j) * MR, v[j]); \
                } \
            } \
            for (; i < n; i++) { \
                for (int r = 0; r < 8; r++) { \
                    to[i * MR + r] = one_##type(row[r] + i); \
                } \
            } \
        } \
    }
PACK_X(f32, float)
PACK_X(f16, uint16_t)
PACK_X(bf16, uint16_t)

// vec_dot of bf16 rounds both operands to bf16. So pack_y_bf16 rounds the columns to bf16.
FLOATS_INLINE float round_bf16(float v) {
    return berth_bf16_to_float(berth_float_to_bf16(v));
}
FLOATS_INLINE float identity(float v) {
    return v;
}

// PIECE elements of all columns at a time, so that lines of the panel stay in the L1 cache.
#define PIECE 64
#define PACK_Y(name, as) \
    static void pack_y_##name(CPU_TABLE, int64_t n, void *panel, const float *const *y, int ny) { \
        for (int64_t i0 = 0; i0 < n; i0 += PIECE) { \
            const int64_t end = n - i0 < PIECE ? n : i0 + PIECE; \
            for (int c = 0; c < NR; c++) { \
                const float *from = y[c < ny ? c : 0]; \
                float *to = (float *) panel + c; \
                for (int64_t i = i0; i < end; i++) { \
                    to[i * NR] = as(from[i]); \
                } \
            } \
        } \
    }
PACK_Y(f32, identity)
PACK_Y(bf16, round_bf16)

// Computes n_cols columns, at least ny.
FLOATS_INLINE void product(int64_t n, float *s, int64_t ld_s, const float *x, int nx, const float *y, int ny, const int n_cols) {
    V sum[NR][VECS];
    EACH_COLUMN(c) {
        EACH_VEC(v) {
            sum[c][v] = V_PS(setzero)();
        }
    }
    for (int64_t i = 0; i < n; i++, x += MR, y += NR) {
        V rows[VECS];
        EACH_VEC(v) {
            rows[v] = V_LOAD(x + V_LANES * v);
        }
        EACH_COLUMN(c) {
            const V column = V_ALL(y[c]);
            EACH_VEC(v) {
                sum[c][v] = V_FMA(rows[v], column, sum[c][v]);
            }
        }
    }
    float tile[NR][MR];
    const bool is_full = VECS > 1 && nx == MR && ny == n_cols;
    float *to = is_full ? s : tile[0];
    const int64_t ld = is_full ? ld_s : MR;
    EACH_COLUMN(c) {
        EACH_VEC(v) {
            V_STORE(to + c * ld + V_LANES * v, sum[c][v]);
        }
    }
    for (int c = 0; c < ny && !is_full; c++) {
        memcpy(s + c * ld_s, tile[c], (size_t) nx * sizeof(float));
    }
}

// The last panel of columns may have few columns.
static void panels_run(CPU_GEMM_ARGS) {
    if (ny > 3 * NR / 4) {
        product(n, s, ld_s, vx, nx, vy, ny, NR);
    } else if (ny > NR / 2) {
        product(n, s, ld_s, vx, nx, vy, ny, 3 * NR / 4);
    } else if (ny > NR / 4) {
        product(n, s, ld_s, vx, nx, vy, ny, NR / 2);
    } else {
        product(n, s, ld_s, vx, nx, vy, ny, NR / 4);
    }
}

void CPU_TIER_FILL(gemm_f)(struct cpu_kernels *k) {
    static const struct {
        enum ggml_type type;
        void (*pack_x)(int64_t n, void *panel, const void *x, size_t bx, int nx);
        void (*pack_y)(CPU_TABLE, int64_t n, void *panel, const float *const *y, int ny);
        int min_cols;
    } rows[] = {{GGML_TYPE_F32, pack_x_f32, pack_y_f32, MIN_COLS_F32}, {GGML_TYPE_F16, pack_x_f16, pack_y_f32, MIN_COLS_F16},
        {GGML_TYPE_BF16, pack_x_bf16, pack_y_bf16, MIN_COLS_BF16}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        k->gemm[rows[i].type] = (struct cpu_gemm){.pack_x = rows[i].pack_x,
            .pack_y = rows[i].pack_y,
            .run = panels_run,
            .mr = MR,
            .nr = NR,
            .min_cols = rows[i].min_cols,
            .step = 1,
            .x_size = MR * sizeof(float),
            .y_size = NR * sizeof(float)};
    }
}
