// SPDX-License-Identifier: MIT
// codebooks.h: the codebooks of the iq formats (quant/grids.h) as bytes, so that one load returns a point. iq2 and iq3: magnitudes.
// iq1: 8 * (value + shift), where the shift is 1/8 for the first half of the table and -1/8 for the second half. The points of
// iq3 have 4 values, in the low half of a word.
#pragma once

#include <stdint.h>

struct cpu_codebooks {
    uint64_t iq2_xxs[256], iq2_xs[512], iq2_s[1024], iq1[4096], iq3_xxs[256], iq3_s[512];
};
extern struct cpu_codebooks cpu_codebooks;

// Called before kernels use the codebooks. Further calls change nothing.
void cpu_codebooks_init(void);
