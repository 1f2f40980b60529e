// SPDX-License-Identifier: MIT
// gemv_k__dotprod.c: one column times rows of q4_K and q5_K, by the instruction for dot products of bytes.

#include "cpu/arm/gemv_k.h"

void cpu_tier_dotprod_gemv_k(struct cpu_kernels *k) {
    gemv_k_fill(k);
}
