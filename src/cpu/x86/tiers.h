// SPDX-License-Identifier: MIT
// tiers.h: the fillers of x86's tiers.
#pragma once

#include "cpu/kernels.h"

void cpu_tier_avx2_float(struct cpu_kernels *k);    // dot__avx2.c
void cpu_tier_avx2_quantize(struct cpu_kernels *k); // quantize__avx2.c
void cpu_tier_avx2_q32(struct cpu_kernels *k);      // dot_q32__avx2.c
void cpu_tier_avx2_k(struct cpu_kernels *k);        // dot_k__avx2.c
