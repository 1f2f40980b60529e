// SPDX-License-Identifier: MIT
// gemv_q__avxvnni.c: products of rows in blocks of 32 with one column: gemv_q.h with the instruction that multiplies four bytes
// and adds, as machines without AVX-512 have it.

#include "cpu/x86/unpack.h"

#define OFFSET_8BIT 128

UNPACK_INLINE __m256i gemv_dot(__m256i first, __m256i x, __m256i y) {
    return _mm256_dpbusd_avx_epi32(first, x, y);
}
#define gemv_dot_8bit gemv_dot

#include "cpu/x86/gemv_q.h"

void cpu_tier_avxvnni_gemv(struct cpu_kernels *k) {
    gemv_q_fill(k);
}
