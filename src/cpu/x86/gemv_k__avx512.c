// SPDX-License-Identifier: MIT
// gemv_k__avx512.c: products of rows in blocks of 256 with a few columns: gemv_k.h without VNNI.

#include "cpu/x86/unpack.h"

UNPACK_INLINE __m512i add_words(__m512i sum, __m512i a, __m512i b) {
    return _mm512_add_epi32(sum, _mm512_madd_epi16(a, b));
}

#include "cpu/x86/gemv_k.h"

void cpu_tier_avx512_gemv_k(struct cpu_kernels *k) {
    gemv_k_fill(k);
    // of gemm_q__avx512.c, which packs rows first and fills up to four columns
    k->gemm[GGML_TYPE_Q2_K].min_cols = 7;
    k->gemm[GGML_TYPE_Q4_K].min_cols = 7;
    k->gemm[GGML_TYPE_Q3_K].min_cols = 6;
    k->gemm[GGML_TYPE_Q6_K].min_cols = 8;
    k->gemm[GGML_TYPE_IQ4_XS].min_cols = 13;
}
