// SPDX-License-Identifier: MIT
// gemv_k__neon.c: one column times rows of q4_K and q5_K, without an instruction for dot products of bytes (sdot.h).

#include "cpu/arm/gemv_k.h"

void cpu_tier_neon_gemv_k(struct cpu_kernels *k) {
    gemv_k_fill(k);
}
