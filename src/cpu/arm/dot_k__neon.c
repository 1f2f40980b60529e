// SPDX-License-Identifier: MIT
// dot_k__neon.c: dot products of the formats with blocks of 256, without an instruction for dot products of bytes (sdot.h).

#include "cpu/arm/dot_k.h"

void cpu_tier_neon_k(struct cpu_kernels *k) {
    dot_k_fill(k);
}
