// SPDX-License-Identifier: MIT
// gemv_q32__dotprod.c: one column times rows of blocks of 32, by the instruction for dot products of bytes.

#include "cpu/arm/gemv_q32.h"

void cpu_tier_dotprod_gemv_q32(struct cpu_kernels *k) {
    gemv_q32_fill(k);
}
