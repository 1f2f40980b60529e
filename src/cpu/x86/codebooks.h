// SPDX-License-Identifier: MIT
// codebooks.h: the codebooks of the iq formats (quant/grids.h) as bytes, so that one load returns a point.
#pragma once

#include <stdint.h>

struct cpu_codebooks {
    uint64_t iq2_xxs[256], iq2_xs[512], iq2_s[1024]; // magnitudes of 8 elements
    uint32_t iq3_xxs[256], iq3_s[512];               // magnitudes of 4 elements
    uint64_t iq1[4096];  // 16 + 8 * (value + shift); the shift is 1/8 in the first half of the table, -1/8 in the second half
    uint64_t signs[128]; // 1 or -1, for 7 sign bits; the eighth sign makes the number of minus signs even
};
extern struct cpu_codebooks cpu_codebooks;

// Called before kernels use the codebooks.
void cpu_codebooks_init(void);
