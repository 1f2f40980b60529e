// SPDX-License-Identifier: MIT
// gemv_q32__neon.c: one column times rows of blocks of 32, without an instruction for dot products of bytes (sdot.h).

#include "cpu/arm/gemv_q32.h"

void cpu_tier_neon_gemv_q32(struct cpu_kernels *k) {
    gemv_q32_fill(k);
    gemv_q8_0_fill(k);
}
