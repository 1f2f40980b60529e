// SPDX-License-Identifier: MIT
// dot_f__avx512.c: dot products of f32, f16 and bf16 rows with 512-bit vectors, one with one and 4 with 4 at once.

#include "cpu/kernels.h"
#include "cpu/x86/ahead.h"

#include <immintrin.h>
#include <stddef.h>

#define INLINE static inline __attribute__((always_inline))

// The first n elements of a row, and 0 for the rest of 16.
INLINE __m512 some_f32(const float *x, int64_t n) {
    return _mm512_maskz_loadu_ps((__mmask16) ((1u << n) - 1), x);
}
INLINE __m512 some_f16(const uint16_t *x, int64_t n) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16((__mmask16) ((1u << n) - 1), x));
}
INLINE __m512 some_bf16(const uint16_t *x, int64_t n) {
    const __m256i v = _mm256_maskz_loadu_epi16((__mmask16) ((1u << n) - 1), x);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16));
}
INLINE __m512 load_f32(const float *x) {
    return _mm512_loadu_ps(x);
}
INLINE __m512 load_f16(const uint16_t *x) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const void *) x));
}
INLINE __m512 load_bf16(const uint16_t *x) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *) x)), 16));
}

#define DOT(type, element) \
    static void vec_dot_##type##__avx512( \
        int n, float *restrict s, size_t bs, const void *restrict vx, size_t bx, const void *restrict vy, size_t by, int nrc) { \
        (void) bs, (void) bx, (void) by, (void) nrc; \
        const element *x = vx, *y = vy; \
        __m512 a = _mm512_setzero_ps(), b = a, c = a, d = a; \
        int i = 0; \
        for (; i + 64 <= n; i += 64) { \
            fetch_ahead(x + i, 64 * sizeof *x); \
            a = _mm512_fmadd_ps(load_##type(x + i), load_##type(y + i), a); \
            b = _mm512_fmadd_ps(load_##type(x + i + 16), load_##type(y + i + 16), b); \
            c = _mm512_fmadd_ps(load_##type(x + i + 32), load_##type(y + i + 32), c); \
            d = _mm512_fmadd_ps(load_##type(x + i + 48), load_##type(y + i + 48), d); \
        } \
        for (; i < n; i += 16) { \
            const int m = n - i < 16 ? n - i : 16; \
            a = _mm512_fmadd_ps(some_##type(x + i, m), some_##type(y + i, m), a); \
        } \
        *s = _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(a, b), _mm512_add_ps(c, d))); \
    }
DOT(f32, float)
DOT(f16, uint16_t)
DOT(bf16, uint16_t)

#define MR 4
#define NR 4

#define TILE_STEP(y_of_c, x_of_r) \
    __m512 v[NR]; \
    _Pragma("GCC unroll 4") for (int c = 0; c < ny; c++) { \
        v[c] = y_of_c; \
    } \
    _Pragma("GCC unroll 4") for (int r = 0; r < MR; r++) { \
        const __m512 u = x_of_r; \
        _Pragma("GCC unroll 4") for (int c = 0; c < ny; c++) { \
            a[c][r] = _mm512_fmadd_ps(u, v[c], a[c][r]); \
        } \
    }

// Neighbours' sums, a and b in turn.
INLINE __m512 fold(__m512 a, __m512 b) {
    return _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
}

// The sums of four vectors, side by side.
INLINE __m128 sums_of(const __m512 *a) {
    const __m512d ab = _mm512_castps_pd(fold(a[0], a[1])), cd = _mm512_castps_pd(fold(a[2], a[3]));
    const __m512 all = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(ab, cd)), _mm512_castpd_ps(_mm512_unpackhi_pd(ab, cd)));
    const __m512 two = _mm512_add_ps(all, _mm512_shuffle_f32x4(all, all, 0x4e));
    return _mm512_castps512_ps128(_mm512_add_ps(two, _mm512_shuffle_f32x4(two, two, 0xb1)));
}

#define TILE(type, element) \
    INLINE void tile_##type##_of( \
        int64_t n, float *s, int64_t ld_s, const char *vx, size_t bx, const char *vy, size_t by, const int ny) { \
        const element *x[MR], *y[NR]; \
        __m512 a[NR][MR]; \
        _Pragma("GCC unroll 4") for (int r = 0; r < MR; r++) { \
            x[r] = (const void *) (vx + (size_t) r * bx); \
        } \
        _Pragma("GCC unroll 4") for (int c = 0; c < ny; c++) { \
            y[c] = (const void *) (vy + (size_t) c * by); \
            _Pragma("GCC unroll 4") for (int r = 0; r < MR; r++) { \
                a[c][r] = _mm512_setzero_ps(); \
            } \
        } \
        int64_t i = 0; \
        for (; i + 16 <= n; i += 16) { \
            TILE_STEP(load_##type(y[c] + i), load_##type(x[r] + i)) \
        } \
        if (i < n) { \
            TILE_STEP(some_##type(y[c] + i, n - i), some_##type(x[r] + i, n - i)) \
        } \
        _Pragma("GCC unroll 4") for (int c = 0; c < ny; c++) { \
            _mm_storeu_ps(s + c * ld_s, sums_of(a[c])); \
        } \
    } \
    static void tile_##type##__avx512( \
        int64_t n, float *s, int64_t ld_s, const void *x, size_t bx, int nx, const void *y, size_t by, int ny) { \
        if (nx == MR && ny == NR) { \
            tile_##type##_of(n, s, ld_s, x, bx, y, by, NR); \
            return; \
        } \
        if (nx == MR && ny == 3) { \
            tile_##type##_of(n, s, ld_s, x, bx, y, by, 3); \
            return; \
        } \
        if (nx == MR && ny == 2) { \
            tile_##type##_of(n, s, ld_s, x, bx, y, by, 2); \
            return; \
        } \
        for (int c = 0; c < ny; c++) { \
            for (int r = 0; r < nx; r++) { \
                vec_dot_##type##__avx512(cpu_dot_length(n), s + r + c * ld_s, 0, (const char *) x + (size_t) r * bx, 0, \
                    (const char *) y + (size_t) c * by, 0, 1); \
            } \
        } \
    }
TILE(f32, float)
TILE(f16, uint16_t)
TILE(bf16, uint16_t)

void cpu_tier_avx512_dot_f(struct cpu_kernels *k) {
#define ROW(TYPE, type) \
    k->traits[GGML_TYPE_##TYPE].vec_dot = vec_dot_##type##__avx512; \
    k->tile[GGML_TYPE_##TYPE] = (struct cpu_tile){tile_##type##__avx512, MR, NR};
    ROW(F32, f32)
    ROW(F16, f16)
    ROW(BF16, bf16)
#undef ROW
}
