// SPDX-License-Identifier: MIT
// dot_k__dotprod.c: dot products of the formats with blocks of 256, by the instruction for dot products of bytes.

#include "cpu/arm/dot_k.h"

void cpu_tier_dotprod_k(struct cpu_kernels *k) {
    dot_k_fill(k);
}
