// SPDX-License-Identifier: MIT
// dot_q32__dotprod.c: dot products of the formats with blocks of 32, by the instruction for dot products of bytes.

#include "cpu/arm/dot_q32.h"

void cpu_tier_dotprod_q32(struct cpu_kernels *k) {
    dot_q32_fill(k);
}
