// SPDX-License-Identifier: MIT
// tiers.h: the fillers of arm's tiers.
#pragma once

#include "cpu/kernels.h"

void cpu_tier_neon(struct cpu_kernels *k);      // dot__neon.c
void cpu_tier_neon_tile(struct cpu_kernels *k); // tile__neon.c, called by the former
