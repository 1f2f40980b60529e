// SPDX-License-Identifier: MIT
// dot_f.h: dot products of f32, f16 and bf16 rows, single or in tiles of MR rows of x and up to NR_ALL rows of y. f16 and bf16 values
// are converted to f32 first. In single dot products, four vectors of sums hide the latency of the multiply-add. A tile with more
// than NR rows of y multiplies PART_SIZE bytes of its rows in several passes, so that only the first pass reads them from memory.
//
// Products with few columns (kernels.h: cpu_gemv) use the same tiles with columns of f32, so that only the rows are converted. ROWS rows are multiplied with a part of the columns before the next part, so that this part stays in the L1 cache.
#pragma once

#include "base/min.h"
#include "cpu/kernels.h"
#include "cpu/x86/ahead.h"
#include "cpu/x86/floats.h"
#include "cpu/x86/unpack.h"

#include <string.h>

#define MR 4
#define NR_ALL 16
#define PART_SIZE 4096
#define ROWS 16       // multiple of MR
#define Y_SIZE 24576u // bytes of columns that stay in the L1 cache
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
#    define DOT_END(type, y_type) \
        for (; i < n; i += 16) { \
            const int64_t m = min_i64(n - i, 16); \
            a = _mm512_fmadd_ps(some_##type(x + i, m), some_##y_type(y + i, m), a); \
        } \
        *s = _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(a, b), _mm512_add_ps(c, d)));
#    define TILE_REST(type, y_type) \
        if (i < n) { \
            TILE_STEP(some_##y_type(y[c] + i, n - i), some_##type(x[r] + i, n - i)) \
        }
#    define TILE_END(type, element, y_type)
#else
#    define NR 3 // twelve sums, three columns and a row use all 16 registers

// Add the elements after the last complete vector one by one.
#    define DOT_END(type, y_type) \
        float sum = sum8(_mm256_add_ps(_mm256_add_ps(a, b), _mm256_add_ps(c, d))); \
        for (; i < n; i++) { \
            sum += one_##type(x + i) * one_##y_type(y + i); \
        } \
        *s = sum;
#    define TILE_REST(type, y_type)
#    define TILE_END(type, element, y_type) \
        for (int64_t i = n / V_LANES * V_LANES; i < n; i++) { \
            for (int c = 0; c < ny; c++) { \
                for (int r = 0; r < MR; r++) { \
                    const element *x = (const void *) (vx + (size_t) r * bx); \
                    s[c][r] += one_##type(x + i) * one_##y_type(y[c] + i); \
                } \
            } \
        }
#endif

#define DOT(type, element, y_type, y_element) \
    UNPACK_INLINE void dot_##type##_##y_type(int64_t n, float *s, const element *x, const y_element *y) { \
        V a = V_PS(setzero)(), b = a, c = a, d = a; \
        int64_t i = 0; \
        for (; i + 4 * V_LANES <= n; i += 4 * V_LANES) { \
            prefetch_ahead(x + i, 4 * V_LANES * sizeof *x); \
            a = V_FMA(v_##type(x + i), v_##y_type(y + i), a); \
            b = V_FMA(v_##type(x + i + V_LANES), v_##y_type(y + i + V_LANES), b); \
            c = V_FMA(v_##type(x + i + 2 * V_LANES), v_##y_type(y + i + 2 * V_LANES), c); \
            d = V_FMA(v_##type(x + i + 3 * V_LANES), v_##y_type(y + i + 3 * V_LANES), d); \
        } \
        DOT_END(type, y_type) \
    }
DOT(f32, float, f32, float)
DOT(f16, uint16_t, f16, uint16_t)
DOT(bf16, uint16_t, bf16, uint16_t)
DOT(f16, uint16_t, f32, float)
DOT(bf16, uint16_t, f32, float)

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

// Defines part_<type>_<y_type>: adds the products of MR rows and ny rows of y, from element i0, to the sums.
#define TILE(type, element, y_type, y_element) \
    UNPACK_INLINE void pass_##type##_##y_type( \
        int64_t n, V(*sum)[MR], const char *vx, size_t bx, const y_element *const *vy, int64_t i0, const int ny) { \
        const element *x[MR]; \
        const y_element *y[NR]; \
        V a[NR][MR]; \
        _Pragma("GCC unroll 4") for (int r = 0; r < MR; r++) { \
            x[r] = (const element *) (const void *) (vx + (size_t) r * bx) + i0; \
        } \
        _Pragma("GCC unroll 6") for (int c = 0; c < ny; c++) { \
            y[c] = vy[c] + i0; \
            _Pragma("GCC unroll 4") for (int r = 0; r < MR; r++) { \
                a[c][r] = sum[c][r]; \
            } \
        } \
        int64_t i = 0; \
        for (; i + V_LANES <= n; i += V_LANES) { \
            TILE_STEP(v_##y_type(y[c] + i), v_##type(x[r] + i)) \
        } \
        TILE_REST(type, y_type) \
        _Pragma("GCC unroll 6") for (int c = 0; c < ny; c++) { \
            _Pragma("GCC unroll 4") for (int r = 0; r < MR; r++) { \
                sum[c][r] = a[c][r]; \
            } \
        } \
    } \
    static void part_##type##_##y_type( \
        int64_t n, V(*sum)[MR], const char *x, size_t bx, const y_element *const *y, int64_t i0, int ny) { \
        for (int left = (ny + NR - 1) / NR; left > 0; left--) { /* equal passes: no pass has one column */ \
            const int now = (ny + left - 1) / left; \
            if (NR >= 6 && now == 6) { \
                pass_##type##_##y_type(n, sum, x, bx, y, i0, NR >= 6 ? 6 : 1); \
            } else if (NR >= 5 && now == 5) { \
                pass_##type##_##y_type(n, sum, x, bx, y, i0, NR >= 5 ? 5 : 1); \
            } else if (NR >= 4 && now == 4) { \
                pass_##type##_##y_type(n, sum, x, bx, y, i0, NR >= 4 ? 4 : 1); \
            } else if (now == 3) { \
                pass_##type##_##y_type(n, sum, x, bx, y, i0, 3); \
            } else { \
                pass_##type##_##y_type(n, sum, x, bx, y, i0, 2); \
            } \
            sum += now, y += now, ny -= now; \
        } \
    } \
    UNPACK_INLINE void end_##type##_##y_type( \
        int64_t n, float *const *s, V(*sum)[MR], const char *vx, size_t bx, const y_element *const *y, int ny) { \
        for (int c = 0; c < ny; c++) { \
            _mm_storeu_ps(s[c], sums_across4(sum[c])); \
        } \
        (void) n, (void) vx, (void) bx, (void) y; \
        TILE_END(type, element, y_type) \
    }
TILE(f32, float, f32, float)
TILE(f16, uint16_t, f16, uint16_t)
TILE(bf16, uint16_t, bf16, uint16_t)
TILE(f16, uint16_t, f32, float)
TILE(bf16, uint16_t, f32, float)

UNPACK_INLINE void sums_clear(V (*sum)[MR], int n) {
    for (int c = 0; c < n; c++) {
        for (int r = 0; r < MR; r++) {
            sum[c][r] = V_PS(setzero)();
        }
    }
}

#define DOT_AND_TILE(type, element) \
    static void vec_dot_##type(CPU_DOT_ARGS) { \
        dot_##type##_##type(n, s, vx, vy); \
    } \
    static void tile_##type(CPU_TILE_ARGS) { \
        if (nx < MR || ny < 2) { \
            cpu_tile_by_dot(vec_dot_##type, n, s, ld_s, vx, bx, nx, vy, by, ny); \
            return; \
        } \
        V sum[NR_ALL][MR]; \
        float *to[NR_ALL]; \
        const element *y[NR_ALL]; \
        for (int c = 0; c < ny; c++) { \
            to[c] = s + c * ld_s; \
            y[c] = (const void *) ((const char *) vy + (size_t) c * by); \
        } \
        sums_clear(sum, ny); \
        const int64_t part = ny > NR ? (int64_t) (PART_SIZE / sizeof(element)) : n; \
        for (int64_t i = 0; i < n; i += part) { \
            part_##type##_##type(min_i64(n - i, part), sum, vx, bx, y, i, ny); \
        } \
        end_##type##_##type(n, to, sum, vx, bx, y, ny); \
    }
DOT_AND_TILE(f32, float)
DOT_AND_TILE(f16, uint16_t)
DOT_AND_TILE(bf16, uint16_t)

// ---- columns of f32 ----

_Static_assert(NR_ALL >= CPU_GEMV_COLS, "a tile takes all columns of a call");

static void pack_plain(CPU_TABLE, int64_t n, void *panel, const float *y) {
    memcpy(panel, y, (size_t) n * sizeof *y);
}

// vec_dot of bf16 rounds both operands to bf16.
static void pack_rounded(CPU_TABLE, int64_t n, void *panel, const float *y) {
    float *to = panel;
    for (int64_t i = 0; i < n; i++) {
        to[i] = berth_bf16_to_float(berth_float_to_bf16(y[i]));
    }
}

#define GEMV(type, element) \
    static void gemv_##type(int64_t n, float *s, const void *x, size_t bx, int nx, const void *y) { \
        for (int r = 0; r < nx; r++) { \
            dot_##type##_f32(n, s + r, (const void *) ((const char *) x + (size_t) r * bx), y); \
        } \
    } \
    static void gemv_cols_##type(int64_t n, float *const *s, const void *vx, size_t bx, int nx, const void *const *vy, int ny) { \
        const int64_t part = (int64_t) (Y_SIZE / sizeof(float)) / ny / V_LANES * V_LANES; \
        const float *y[NR_ALL]; \
        float *to[NR_ALL]; \
        int r0 = 0; \
        for (int c = 0; c < ny; c++) { \
            y[c] = vy[c]; \
        } \
        for (int now; (now = min_int(nx - r0, ROWS) / MR * MR) > 0; r0 += now) { \
            const char *x = (const char *) vx + (size_t) r0 * bx; \
            V sum[ROWS / MR][NR_ALL][MR]; \
            sums_clear(sum[0], ROWS / MR * NR_ALL); \
            for (int64_t i = 0; i < n; i += part) { \
                for (int r = 0; r < now; r += MR) { \
                    part_##type##_f32(min_i64(n - i, part), sum[r / MR], x + (size_t) r * bx, bx, y, i, ny); \
                } \
            } \
            for (int r = 0; r < now; r += MR) { \
                for (int c = 0; c < ny; c++) { \
                    to[c] = s[c] + r0 + r; \
                } \
                end_##type##_f32(n, to, sum[r / MR], x + (size_t) r * bx, bx, y, ny); \
            } \
        } \
        for (int c = 0; c < ny; c++) { \
            gemv_##type(n, s[c] + r0, (const char *) vx + (size_t) r0 * bx, bx, nx - r0, y[c]); \
        } \
    }
GEMV(f32, float)
GEMV(f16, uint16_t)
GEMV(bf16, uint16_t)

void CPU_TIER_FILL(dot_f)(struct cpu_kernels *k) {
#define ROW(TYPE, type, pack) \
    k->traits[GGML_TYPE_##TYPE].vec_dot = vec_dot_##type; \
    k->tile[GGML_TYPE_##TYPE] = (struct cpu_tile){tile_##type, MR, NR_ALL}; \
    k->gemv[GGML_TYPE_##TYPE] = \
        (struct cpu_gemv){.pack_y = pack, .run = gemv_##type, .run_cols = gemv_cols_##type, .step = 1, .y_size = sizeof(float)};
    ROW(F32, f32, pack_plain)
    ROW(F16, f16, pack_plain)
    ROW(BF16, bf16, pack_rounded)
#undef ROW
}
