// SPDX-License-Identifier: MIT
// gemv_k__vnni.c: products of rows in blocks of 256 with a few columns: gemv_k.h, multiplying and adding words in one
// instruction.

#include "cpu/x86/unpack.h"

UNPACK_INLINE __m512i add_words(__m512i sum, __m512i a, __m512i b) {
    return _mm512_dpwssd_epi32(sum, a, b);
}

#include "cpu/x86/gemv_k.h"

void cpu_tier_vnni_gemv_k(struct cpu_kernels *k) {
    gemv_k_fill(k);
}
