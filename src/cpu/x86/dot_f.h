// SPDX-License-Identifier: MIT
// dot_f.h: dot products of f32, f16 and bf16 rows, single or in tiles of MR rows of x and NR_ALL rows of y. f16 and bf16 values are
// converted to f32 first. In single dot products, four vectors of sums hide the latency of the multiply-add. A tile with more
// than NR rows of y multiplies PART_SIZE bytes of its rows in several passes, so that only the first pass reads them from memory.
#pragma once

#include "base/min.h"
#include "cpu/kernels.h"
#include "cpu/x86/ahead.h"
#include "cpu/x86/floats.h"
#include "cpu/x86/unpack.h"

#define MR 4
#define NR_ALL 16
#define PART_SIZE 4096
#ifdef __AVX512F__
#    define NR 6 // 24 sums, six columns and a row use 31 of 32 registers

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

// Add the elements after the last complete vector, by masked loads.
#    define DOT_END(type) \
        for (; i < n; i += 16) { \
            const int m = n - i < 16 ? n - i : 16; \
            a = _mm512_fmadd_ps(some_##type(x + i, m), some_##type(y + i, m), a); \
        } \
        *s = _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(a, b), _mm512_add_ps(c, d)));
#    define TILE_REST(type) \
        if (i < n) { \
            TILE_STEP(some_##type(y[c] + i, n - i), some_##type(x[r] + i, n - i)) \
        }
#    define TILE_END(type, element)
#else
#    define NR 3 // twelve sums, three columns and a row use all 16 registers

// Add the elements after the last complete vector one by one.
#    define DOT_END(type) \
        float sum = sum8(_mm256_add_ps(_mm256_add_ps(a, b), _mm256_add_ps(c, d))); \
        for (; i < n; i++) { \
            sum += one_##type(x + i) * one_##type(y + i); \
        } \
        *s = sum;
#    define TILE_REST(type)
#    define TILE_END(type, element) \
        for (int64_t i = n / V_LANES * V_LANES; i < n; i++) { \
            for (int c = 0; c < ny; c++) { \
                for (int r = 0; r < MR; r++) { \
                    const element *x = (const void *) ((const char *) vx + (size_t) r * bx); \
                    const element *y = (const void *) ((const char *) vy + (size_t) c * by); \
                    s[r + c * ld_s] += one_##type(x + i) * one_##type(y + i); \
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
    _Pragma("GCC unroll 6") for (int c = 0; c < ny; c++) { \
        v[c] = y_of_c; \
    } \
    _Pragma("GCC unroll 4") for (int r = 0; r < MR; r++) { \
        const V u = x_of_r; \
        _Pragma("GCC unroll 6") for (int c = 0; c < ny; c++) { \
            a[c][r] = V_FMA(u, v[c], a[c][r]); \
        } \
    }

#define TILE(type, element) \
    UNPACK_INLINE void pass_##type(int64_t n, V(*sum)[MR], const char *vx, size_t bx, const char *vy, size_t by, const int ny) { \
        const element *x[MR], *y[NR]; \
        V a[NR][MR]; \
        _Pragma("GCC unroll 4") for (int r = 0; r < MR; r++) { \
            x[r] = (const void *) (vx + (size_t) r * bx); \
        } \
        _Pragma("GCC unroll 6") for (int c = 0; c < ny; c++) { \
            y[c] = (const void *) (vy + (size_t) c * by); \
            _Pragma("GCC unroll 4") for (int r = 0; r < MR; r++) { \
                a[c][r] = sum[c][r]; \
            } \
        } \
        int64_t i = 0; \
        for (; i + V_LANES <= n; i += V_LANES) { \
            TILE_STEP(v_##type(y[c] + i), v_##type(x[r] + i)) \
        } \
        TILE_REST(type) \
        _Pragma("GCC unroll 6") for (int c = 0; c < ny; c++) { \
            _Pragma("GCC unroll 4") for (int r = 0; r < MR; r++) { \
                sum[c][r] = a[c][r]; \
            } \
        } \
    } \
    static void part_##type(int64_t n, V(*sum)[MR], const char *x, size_t bx, const char *y, size_t by, int ny) { \
        for (int left = (ny + NR - 1) / NR; left > 0; left--) { /* equal passes: no pass has one column */ \
            const int now = (ny + left - 1) / left; \
            if (NR >= 6 && now == 6) { \
                pass_##type(n, sum, x, bx, y, by, NR >= 6 ? 6 : 1); \
            } else if (NR >= 5 && now == 5) { \
                pass_##type(n, sum, x, bx, y, by, NR >= 5 ? 5 : 1); \
            } else if (NR >= 4 && now == 4) { \
                pass_##type(n, sum, x, bx, y, by, NR >= 4 ? 4 : 1); \
            } else if (now == 3) { \
                pass_##type(n, sum, x, bx, y, by, 3); \
            } else { \
                pass_##type(n, sum, x, bx, y, by, 2); \
            } \
            sum += now, y += (size_t) now * by, ny -= now; \
        } \
    } \
    static void tile_##type(CPU_TILE_ARGS) { \
        if (nx < MR || ny < 2) { \
            cpu_tile_by_dot(vec_dot_##type, n, s, ld_s, vx, bx, nx, vy, by, ny); \
            return; \
        } \
        V sum[NR_ALL][MR]; \
        for (int c = 0; c < ny; c++) { \
            for (int r = 0; r < MR; r++) { \
                sum[c][r] = V_PS(setzero)(); \
            } \
        } \
        const int64_t part = ny > NR ? (int64_t) (PART_SIZE / sizeof(element)) : n; \
        for (int64_t i = 0; i < n; i += part) { \
            const size_t off = (size_t) i * sizeof(element); \
            part_##type(min_i64(n - i, part), sum, (const char *) vx + off, bx, (const char *) vy + off, by, ny); \
        } \
        for (int c = 0; c < ny; c++) { \
            _mm_storeu_ps(s + c * ld_s, sums_across4(sum[c])); \
        } \
        TILE_END(type, element) \
    }
TILE(f32, float)
TILE(f16, uint16_t)
TILE(bf16, uint16_t)

void CPU_TIER_FILL(dot_f)(struct cpu_kernels *k) {
#define ROW(TYPE, type) \
    k->traits[GGML_TYPE_##TYPE].vec_dot = vec_dot_##type; \
    k->tile[GGML_TYPE_##TYPE] = (struct cpu_tile){tile_##type, MR, NR_ALL};
    ROW(F32, f32)
    ROW(F16, f16)
    ROW(BF16, bf16)
#undef ROW
}
