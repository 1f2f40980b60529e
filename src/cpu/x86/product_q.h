// SPDX-License-Identifier: MIT
// product_q.h: products of panels, for all vector widths. Include panel_q.h first, which defines run and quad. MR must be a
// multiple of V_LANES.
#pragma once

#include "cpu/x86/floats.h"

#ifdef __AVX512F__
#    define VI __m512i
#    define VI_OP(op) _mm512_##op
#    define VI_LOAD _mm512_loadu_si512
#    define VI_ZERO _mm512_setzero_si512
#else
#    define VI __m256i
#    define VI_OP(op) _mm256_##op
#    define VI_LOAD load32
#    define VI_ZERO _mm256_setzero_si256
#endif
#define VECS (MR / V_LANES)
#define EACH_VEC(v) _Pragma("GCC unroll 2") for (int v = 0; v < VECS; v++)
#define EACH_COLUMN(c) _Pragma("GCC unroll 16") for (int c = 0; c < n_cols; c++)

// quad_at, float_at: a quad or a float of a column in all lanes. floats_at: vector v of the floats of MR rows.
UNPACK_INLINE VI quad_at(const char *at) {
    int32_t v;
    memcpy(&v, at, sizeof v);
    return VI_OP(set1_epi32)(v);
}

UNPACK_INLINE V float_at(const char *at) {
    float v;
    memcpy(&v, at, sizeof v);
    return V_ALL(v);
}

UNPACK_INLINE V floats_at(const char *at, int v) {
    return V_LOAD((const float *) (const void *) at + V_LANES * v);
}

// Scales the integer sums t of a run and adds them to sum. With has_min, also adds minimum * `initial`. x and y point to the
// start of the run in the panels.
UNPACK_INLINE void add_run(V sum[NR][VECS], VI t[NR][VECS], const char *x, const char *y, const bool has_min, const int n_cols) {
    EACH_COLUMN(c) {
        const V d = float_at(y + 4 * (NR + c));
        EACH_VEC(v) {
            sum[c][v] = V_FMA(VI_OP(cvtepi32_ps)(t[c][v]), V_PS(mul)(floats_at(x, v), d), sum[c][v]);
            if (has_min) {
                sum[c][v] = V_FMA(floats_at(x + 4 * MR, v), float_at(y + 4 * c), sum[c][v]);
            }
        }
    }
}

UNPACK_INLINE void store_sums(float *s, int64_t ld_s, V sum[NR][VECS], int nx, int ny, const int n_cols) {
    float tile[NR][MR];
    EACH_COLUMN(c) {
        EACH_VEC(v) {
            V_STORE(tile[c] + V_LANES * v, sum[c][v]);
        }
    }
    for (int c = 0; c < ny; c++) {
        memcpy(s + c * ld_s, tile[c], (size_t) nx * sizeof(float));
    }
}

// Adds the dot products of a run to t. x and y point to the first bytes of the run. The including file defines this function.
UNPACK_INLINE void run_multiply(
    VI t[NR][VECS], const char *x, const char *y, const int R, const bool has_min, const bool is_8bit, const int n_cols);

// Computes n_cols columns, at least ny.
UNPACK_INLINE void product_cols(int64_t n, float *s, int64_t ld_s, const char *x, int nx, const char *y, int ny, const int R,
    const bool has_min, const bool is_8bit, const int n_cols) {
    const bool is_signed = is_8bit && OFFSET_8BIT == 0;
    V sum[NR][VECS];
    EACH_COLUMN(c) {
        EACH_VEC(v) {
            sum[c][v] = V_PS(setzero)();
        }
    }
    for (int64_t i = 0; i < n; i += R, x += X_RUN(R, has_min), y += Y_RUN(R)) {
        VI t[NR][VECS];
        EACH_COLUMN(c) {
            EACH_VEC(v) {
                t[c][v] = has_min || is_signed ? VI_ZERO() : quad_at(y + 4 * c);
            }
        }
        run_multiply(t, x + 4 * (1 + has_min) * MR, y + 4 * 2 * NR, R, has_min, is_8bit, n_cols);
        add_run(sum, t, x, y, has_min, n_cols);
    }
    store_sums(s, ld_s, sum, nx, ny, n_cols);
}

// The last panel of columns may have few columns.
UNPACK_INLINE void product(int64_t n, float *s, int64_t ld_s, const char *x, int nx, const char *y, int ny, const int R,
    const bool has_min, const bool is_8bit) {
    if (ny > 2 * NR / 3) {
        product_cols(n, s, ld_s, x, nx, y, ny, R, has_min, is_8bit, NR);
    } else if (ny > NR / 3) {
        product_cols(n, s, ld_s, x, nx, y, ny, R, has_min, is_8bit, 2 * NR / 3);
    } else {
        product_cols(n, s, ld_s, x, nx, y, ny, R, has_min, is_8bit, NR / 3);
    }
}
