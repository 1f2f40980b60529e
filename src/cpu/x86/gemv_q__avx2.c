// SPDX-License-Identifier: MIT
// gemv_q__avx2.c: products of rows in blocks of 32 with one column: gemv_q.h with AVX2. Bytes of 8 bits stay signed and are
// multiplied by magnitude, with their signs given to the column, since two products would not fit into 16 bits.

#include "cpu/x86/unpack.h"

#define OFFSET_8BIT 0

UNPACK_INLINE __m256i gemv_dot(__m256i first, __m256i x, __m256i y) {
    return _mm256_add_epi32(first, _mm256_madd_epi16(_mm256_maddubs_epi16(x, y), _mm256_set1_epi16(1)));
}

UNPACK_INLINE __m256i gemv_dot_8bit(__m256i first, __m256i x, __m256i y) {
    (void) first;
    return _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_abs_epi8(x), _mm256_sign_epi8(y, x)), _mm256_set1_epi16(1));
}

#include "cpu/x86/gemv_q.h"

void cpu_tier_avx2_gemv_q(struct cpu_kernels *k) {
    gemv_q_fill(k);
}
