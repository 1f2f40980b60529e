// SPDX-License-Identifier: MIT
// dot_f.h: dot products of f32, f16 and bf16 rows, single or in tiles of MR rows of x and NR rows of y. f16 and bf16 values are
// converted to f32 first. Four vectors of sums hide the latency of the multiply-add.
#pragma once

#include "cpu/kernels.h"
#include "cpu/x86/ahead.h"
#include "cpu/x86/floats.h"
#include "cpu/x86/unpack.h"

#define MR 4
#ifdef __AVX512F__
#    define NR 4

// Load n elements; the other lanes are 0.
FLOATS_INLINE __m512 some_f32(const float *x, int64_t n) {
    return _mm512_maskz_loadu_ps((__mmask16) ((1u << n) - 1), x);
}
FLOATS_INLINE __m512 some_f16(const uint16_t *x, int64_t n) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16((__mmask16) ((1u << n) - 1), x));
}
FLOATS_INLINE __m512 some_bf16(const uint16_t *x, int64_t n) {
    const __m256i v = _mm256_maskz_loadu_epi16((__mmask16) ((1u << n) - 1), x);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16));
}

// Adds pairs of lanes. In the result, sums of a and of b alternate.
FLOATS_INLINE __m512 fold(__m512 a, __m512 b) {
    return _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
}

// Lane i of the result is the sum of all lanes of a[i].
FLOATS_INLINE __m128 sums_across4(const __m512 *a) {
    const __m512d ab = _mm512_castps_pd(fold(a[0], a[1])), cd = _mm512_castps_pd(fold(a[2], a[3]));
    const __m512 all = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(ab, cd)), _mm512_castpd_ps(_mm512_unpackhi_pd(ab, cd)));
    const __m512 two = _mm512_add_ps(all, _mm512_shuffle_f32x4(all, all, 0x4e));
    return _mm512_castps512_ps128(_mm512_add_ps(two, _mm512_shuffle_f32x4(two, two, 0xb1)));
}

// Add the elements after the last complete vector, by masked loads.
#    define DOT_END(type) \
        for (; i < n; i += 16) { \
            const int m = n - i < 16 ? n - i : 16; \
            a = _mm512_fmadd_ps(some_##type(x + i, m), some_##type(y + i, m), a); \
        } \
        *s = _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(a, b), _mm512_add_ps(c, d)));
#    define TILE_END(type) \
        if (i < n) { \
            TILE_STEP(some_##type(y[c] + i, n - i), some_##type(x[r] + i, n - i)) \
        } \
        _Pragma("GCC unroll 4") for (int c = 0; c < ny; c++) { \
            _mm_storeu_ps(s + c * ld_s, sums_across4(a[c])); \
        }
#else
#    define NR 3 // twelve sums, three columns and a row use all 16 registers

// Add the elements after the last complete vector one by one.
#    define DOT_END(type) \
        float sum = sum8(_mm256_add_ps(_mm256_add_ps(a, b), _mm256_add_ps(c, d))); \
        for (; i < n; i++) { \
            sum += one_##type(x + i) * one_##type(y + i); \
        } \
        *s = sum;
#    define TILE_END(type) \
        _Pragma("GCC unroll 4") for (int c = 0; c < ny; c++) { \
            const __m256 all = _mm256_hadd_ps(_mm256_hadd_ps(a[c][0], a[c][1]), _mm256_hadd_ps(a[c][2], a[c][3])); \
            _mm_storeu_ps(s + c * ld_s, _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1))); \
        } \
        for (; i < n; i++) { \
            _Pragma("GCC unroll 4") for (int c = 0; c < ny; c++) { \
                _Pragma("GCC unroll 4") for (int r = 0; r < MR; r++) { \
                    s[r + c * ld_s] += one_##type(x[r] + i) * one_##type(y[c] + i); \
                } \
            } \
        }
#endif

#define DOT(type, element) \
    static void vec_dot_##type(CPU_DOT_ARGS) { \
        const element *x = vx, *y = vy; \
        V a = V_PS(setzero)(), b = a, c = a, d = a; \
        int i = 0; \
        for (; i + 4 * V_LANES <= n; i += 4 * V_LANES) { \
            prefetch_ahead(x + i, 4 * V_LANES * sizeof *x); \
            a = V_FMA(v_##type(x + i), v_##type(y + i), a); \
            b = V_FMA(v_##type(x + i + V_LANES), v_##type(y + i + V_LANES), b); \
            c = V_FMA(v_##type(x + i + 2 * V_LANES), v_##type(y + i + 2 * V_LANES), c); \
            d = V_FMA(v_##type(x + i + 3 * V_LANES), v_##type(y + i + 3 * V_LANES), d); \
        } \
        DOT_END(type) \
    }
DOT(f32, float)
DOT(f16, uint16_t)
DOT(bf16, uint16_t)

// ---- tiles ----

#define TILE_STEP(y_of_c, x_of_r) \
    V v[NR]; \
    _Pragma("GCC unroll 4") for (int c = 0; c < ny; c++) { \
        v[c] = y_of_c; \
    } \
    _Pragma("GCC unroll 4") for (int r = 0; r < MR; r++) { \
        const V u = x_of_r; \
        _Pragma("GCC unroll 4") for (int c = 0; c < ny; c++) { \
            a[c][r] = V_FMA(u, v[c], a[c][r]); \
        } \
    }

#define TILE(type, element) \
    UNPACK_INLINE void tile_##type##_fixed( \
        int64_t n, float *s, int64_t ld_s, const char *vx, size_t bx, const char *vy, size_t by, const int ny) { \
        const element *x[MR], *y[NR]; \
        V a[NR][MR]; \
        _Pragma("GCC unroll 4") for (int r = 0; r < MR; r++) { \
            x[r] = (const void *) (vx + (size_t) r * bx); \
        } \
        _Pragma("GCC unroll 4") for (int c = 0; c < ny; c++) { \
            y[c] = (const void *) (vy + (size_t) c * by); \
            _Pragma("GCC unroll 4") for (int r = 0; r < MR; r++) { \
                a[c][r] = V_PS(setzero)(); \
            } \
        } \
        int64_t i = 0; \
        for (; i + V_LANES <= n; i += V_LANES) { \
            TILE_STEP(v_##type(y[c] + i), v_##type(x[r] + i)) \
        } \
        TILE_END(type) \
    } \
    static void tile_##type(CPU_TILE_ARGS) { \
        if (nx == MR && NR == 4 && ny == 4) { \
            tile_##type##_fixed(n, s, ld_s, vx, bx, vy, by, NR); \
        } else if (nx == MR && ny == 3) { \
            tile_##type##_fixed(n, s, ld_s, vx, bx, vy, by, 3); \
        } else if (nx == MR && ny == 2) { \
            tile_##type##_fixed(n, s, ld_s, vx, bx, vy, by, 2); \
        } else { \
            cpu_tile_by_dot(vec_dot_##type, n, s, ld_s, vx, bx, nx, vy, by, ny); \
        } \
    }
TILE(f32, float)
TILE(f16, uint16_t)
TILE(bf16, uint16_t)

void CPU_TIER_FILL(dot_f)(struct cpu_kernels *k) {
#define ROW(TYPE, type) \
    k->traits[GGML_TYPE_##TYPE].vec_dot = vec_dot_##type; \
    k->tile[GGML_TYPE_##TYPE] = (struct cpu_tile){tile_##type, MR, NR};
    ROW(F32, f32)
    ROW(F16, f16)
    ROW(BF16, bf16)
#undef ROW
}
