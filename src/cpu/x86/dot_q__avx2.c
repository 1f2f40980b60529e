// SPDX-License-Identifier: MIT
// dot_q__avx2.c: dot products of quantised rows, 32 bytes at a time (one_column.h).

#include "cpu/kernels.h"
#include "cpu/x86/ahead.h"
#include "cpu/x86/one_column.h"

// ---- blocks of 32 ----

UNPACK_INLINE __m256 quads(__m256i pairs) {
    return _mm256_cvtepi32_ps(widened(pairs));
}

#define DOT_32(type) \
    static void vec_dot_##type##__avx2(CPU_DOT_ARGS) { \
        const block_##type *x = vx; \
        const block_q8_0 *y = vy; \
        __m256 sum0 = _mm256_setzero_ps(), sum1 = sum0; \
        int i = 0; \
        for (; i + 2 <= n / 32; i += 2) { \
            const __m256 a = quads(pairs_signed(unpack_##type(&x[i]), load32(y[i].qs))); \
            const __m256 b = quads(pairs_signed(unpack_##type(&x[i + 1]), load32(y[i + 1].qs))); \
            sum0 = _mm256_fmadd_ps(a, _mm256_set1_ps(scale_##type(&x[i]) * f16_as_float(&y[i].d)), sum0); \
            sum1 = _mm256_fmadd_ps(b, _mm256_set1_ps(scale_##type(&x[i + 1]) * f16_as_float(&y[i + 1].d)), sum1); \
        } \
        if (i < n / 32) { \
            const __m256 a = quads(pairs_signed(unpack_##type(&x[i]), load32(y[i].qs))); \
            sum0 = _mm256_fmadd_ps(a, _mm256_set1_ps(scale_##type(&x[i]) * f16_as_float(&y[i].d)), sum0); \
        } \
        *s = sum8(_mm256_add_ps(sum0, sum1)); \
    }
DOT_32(q8_0)
DOT_32(q4_0)
DOT_32(q5_0)
DOT_32(iq4_nl)
DOT_32(mxfp4)

#define DOT_32_MIN(type) \
    static void vec_dot_##type##__avx2(CPU_DOT_ARGS) { \
        const block_##type *x = vx; \
        const block_q8_1 *y = vy; \
        __m256 sum = _mm256_setzero_ps(); \
        float mins = 0.0f; \
        for (int i = 0; i < n / 32; i++) { \
            const __m256 a = quads(_mm256_maddubs_epi16(unpack_##type(&x[i]), load32(y[i].qs))); \
            sum = _mm256_fmadd_ps(a, _mm256_set1_ps(f16_as_float(&x[i].d) * f16_as_float(&y[i].d)), sum); \
            mins += f16_as_float(&x[i].m) * f16_as_float(&y[i].s); \
        } \
        *s = sum8(sum) + mins; \
    }
DOT_32_MIN(q4_1)
DOT_32_MIN(q5_1)

// ---- blocks of 64 and 128 ----

#define SCALES_OF_F16(x, j) _mm256_set1_ps(f16_as_float(&(x)->d))
#define SCALES_OF_NVFP4(x, j) \
    _mm256_permutevar8x32_ps(scales_nvfp4(_mm_cvtsi32_si128((int) u32_at((x)->d))), \
        _mm256_add_epi32(_mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1), _mm256_set1_epi32(2 * (j))))
#define DOT_CELLS(type, n_cells, scales_of) \
    static void vec_dot_##type##__avx2(CPU_DOT_ARGS) { \
        const block_##type *x = vx; \
        const block_q8_0 *y = vy; \
        __m256 sum = _mm256_setzero_ps(); \
        for (int i = 0; i < n / (32 * (n_cells)); i++) { \
            _Pragma("GCC unroll 4") for (int j = 0; j < (n_cells); j++, y++) { \
                const __m256 d = _mm256_mul_ps(scales_of(&x[i], j), _mm256_set1_ps(f16_as_float(&y->d))); \
                sum = _mm256_fmadd_ps(quads(pairs_signed(cell_##type(&x[i], j), load32(y->qs))), d, sum); \
            } \
        } \
        *s = sum8(sum); \
    }
DOT_CELLS(q1_0, 4, SCALES_OF_F16)
DOT_CELLS(q2_0, 2, SCALES_OF_F16)
DOT_CELLS(nvfp4, 2, SCALES_OF_NVFP4)

// ---- blocks of 256 ----

#define DOT_256(type) \
    static void vec_dot_##type##__avx2(CPU_DOT_ARGS) { \
        const block_##type *x = vx; \
        const block_q8_K *y = vy; \
        __m256 sum = _mm256_setzero_ps(); \
        for (int i = 0; i < n / QK_K; i++) { \
            prefetch_ahead(&x[i], sizeof x[i]); \
            sum = add_##type(sum, &x[i], y[i].qs, y[i].bsums, y[i].d); \
        } \
        *s = sum8(sum); \
    }
DOT_256(q4_K)
DOT_256(q5_K)
DOT_256(q2_K)
DOT_256(q3_K)
DOT_256(q6_K)
DOT_256(iq4_xs)
DOT_256(tq2_0)
#define DOT_IQ(TYPE, type, n_runs, offset) DOT_256(type)
IQ_FORMATS(DOT_IQ)

void CPU_TIER_FILL(dot_q)(struct cpu_kernels *k) {
#define ROW(TYPE, type) k->traits[GGML_TYPE_##TYPE].vec_dot = vec_dot_##type##__avx2;
#define ROW_IQ(TYPE, type, n_runs, offset) ROW(TYPE, type)
    cpu_codebooks_init();
    EACH_UNPACKED(ROW)
    IQ_FORMATS(ROW_IQ)
    ROW(TQ2_0, tq2_0)
    ROW(Q1_0, q1_0)
    ROW(Q2_0, q2_0)
    ROW(NVFP4, nvfp4)
#undef ROW
#undef ROW_IQ
}
