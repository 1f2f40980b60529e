// SPDX-License-Identifier: MIT
// dot_q32__neon.c: dot products of the formats with blocks of 32, without an instruction for dot products of bytes (sdot.h).

#include "cpu/arm/dot_q32.h"

void cpu_tier_neon_q32(struct cpu_kernels *k) {
    dot_q32_fill(k);
}
