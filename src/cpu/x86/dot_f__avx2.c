// SPDX-License-Identifier: MIT
// dot_f__avx2.c: dot products of f32, f16 and bf16 rows, one with one and 4 with 3 at once, and rows of halves and bfloat16 to
// and from floats. Halves are widened before they are multiplied; four sums hide the latency of the multiply-add.

#include "cpu/kernels.h"
#include "cpu/x86/ahead.h"
#include "cpu/x86/floats.h"
#include "cpu/x86/unpack.h"

#define DOT(type, element) \
    static void vec_dot_##type##__avx2( \
        int n, float *restrict s, size_t bs, const void *restrict vx, size_t bx, const void *restrict vy, size_t by, int nrc) { \
        (void) bs, (void) bx, (void) by, (void) nrc; \
        const element *x = vx, *y = vy; \
        __m256 a = _mm256_setzero_ps(), b = a, c = a, d = a; \
        int i = 0; \
        for (; i + 32 <= n; i += 32) { \
            fetch_ahead(x + i, 32 * sizeof *x); \
            a = _mm256_fmadd_ps(load_##type(x + i), load_##type(y + i), a); \
            b = _mm256_fmadd_ps(load_##type(x + i + 8), load_##type(y + i + 8), b); \
            c = _mm256_fmadd_ps(load_##type(x + i + 16), load_##type(y + i + 16), c); \
            d = _mm256_fmadd_ps(load_##type(x + i + 24), load_##type(y + i + 24), d); \
        } \
        float sum = sum8(_mm256_add_ps(_mm256_add_ps(a, b), _mm256_add_ps(c, d))); \
        for (; i < n; i++) { \
            sum += one_##type(x + i) * one_##type(y + i); \
        } \
        *s = sum; \
    }
DOT(f32, float)
DOT(f16, uint16_t)
DOT(bf16, uint16_t)

// ---- tiles ----

#define MR 4
#define NR 3 // twelve sums, three columns and a row: all registers

#define TILE(type, element) \
    UNPACK_INLINE void tile_##type##_of( \
        int64_t n, float *s, int64_t ld_s, const char *vx, size_t bx, const char *vy, size_t by, const int ny) { \
        const element *x[MR], *y[NR]; \
        __m256 a[NR][MR]; \
        _Pragma("GCC unroll 4") for (int r = 0; r < MR; r++) { \
            x[r] = (const void *) (vx + (size_t) r * bx); \
        } \
        _Pragma("GCC unroll 4") for (int c = 0; c < ny; c++) { \
            y[c] = (const void *) (vy + (size_t) c * by); \
            _Pragma("GCC unroll 4") for (int r = 0; r < MR; r++) { \
                a[c][r] = _mm256_setzero_ps(); \
            } \
        } \
        int64_t i = 0; \
        for (; i + 8 <= n; i += 8) { \
            __m256 u[NR]; \
            _Pragma("GCC unroll 4") for (int c = 0; c < ny; c++) { \
                u[c] = load_##type(y[c] + i); \
            } \
            _Pragma("GCC unroll 4") for (int r = 0; r < MR; r++) { \
                const __m256 v = load_##type(x[r] + i); \
                _Pragma("GCC unroll 4") for (int c = 0; c < ny; c++) { \
                    a[c][r] = _mm256_fmadd_ps(v, u[c], a[c][r]); \
                } \
            } \
        } \
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
        } \
    } \
    static void tile_##type##__avx2( \
        int64_t n, float *s, int64_t ld_s, const void *x, size_t bx, int nx, const void *y, size_t by, int ny) { \
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
                vec_dot_##type##__avx2(cpu_dot_length(n), s + r + c * ld_s, 0, (const char *) x + (size_t) r * bx, 0, \
                    (const char *) y + (size_t) c * by, 0, 1); \
            } \
        } \
    }
TILE(f32, float)
TILE(f16, uint16_t)
TILE(bf16, uint16_t)

// ---- rows ----

static void half_from_f32__avx2(const float *restrict x, void *restrict vy, int64_t n) {
    uint16_t *y = vy;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        _mm_storeu_si128((void *) (y + i), _mm256_cvtps_ph(_mm256_loadu_ps(x + i), 0));
    }
    for (; i < n; i++) {
        y[i] = (uint16_t) _cvtss_sh(x[i], 0);
    }
}

#define TO_F32(name, type) \
    static void name(const void *restrict vx, float *restrict y, int64_t n) { \
        const uint16_t *x = vx; \
        int64_t i = 0; \
        for (; i + 8 <= n; i += 8) { \
            _mm256_storeu_ps(y + i, load_##type(x + i)); \
        } \
        for (; i < n; i++) { \
            y[i] = one_##type(x + i); \
        } \
    }
TO_F32(half_to_f32__avx2, f16)
TO_F32(bf16_to_f32__avx2, bf16)

// The compiler's vectors, twice as wide as without this tier.
static void bf16_from_f32__avx2(const float *restrict x, void *restrict vy, int64_t n) {
    uint16_t *y = vy;
    for (int64_t i = 0; i < n; i++) {
        y[i] = berth_float_to_bf16(x[i]);
    }
}

void CPU_TIER_FILL(dot_f)(struct cpu_kernels *k) {
    k->traits[GGML_TYPE_F32].vec_dot = vec_dot_f32__avx2;
    k->traits[GGML_TYPE_F16].vec_dot = vec_dot_f16__avx2;
    k->traits[GGML_TYPE_BF16].vec_dot = vec_dot_bf16__avx2;
    k->tile[GGML_TYPE_F32] = (struct cpu_tile){tile_f32__avx2, MR, NR};
    k->tile[GGML_TYPE_F16] = (struct cpu_tile){tile_f16__avx2, MR, NR};
    k->tile[GGML_TYPE_BF16] = (struct cpu_tile){tile_bf16__avx2, MR, NR};
    k->traits[GGML_TYPE_F16].from_float = half_from_f32__avx2;
    k->traits[GGML_TYPE_BF16].from_float = bf16_from_f32__avx2;
    k->to_float[GGML_TYPE_F16] = half_to_f32__avx2;
    k->to_float[GGML_TYPE_BF16] = bf16_to_f32__avx2;
}
