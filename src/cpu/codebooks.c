// SPDX-License-Identifier: MIT
// codebooks.c: expands the packed codebooks of quant/grids.h.

#include "cpu/codebooks.h"

#include "quant/grids.h"

struct cpu_codebooks cpu_codebooks;

static const uint8_t values_iq2[4] = {8, 25, 43}, values_sign[2] = {1, 0xff};
static const uint8_t values_iq3_xxs[8] = {4, 12, 20, 28, 36, 44, 52, 62}, values_iq3_s[8] = {1, 3, 5, 7, 9, 11, 13, 15};
#define IQ1(value) ((uint8_t) (CODEBOOK_OFFSET_IQ1 + (value)))
static const uint8_t values_up[4] = {IQ1(-7), IQ1(1), IQ1(9)}, values_down[4] = {IQ1(-9), IQ1(-1), IQ1(7)};

// Returns the bytes of a point of `dim` values, whose fields have n_bits.
static uint64_t point_bytes(unsigned point, const uint8_t *values, int dim, int n_bits) {
    uint64_t bytes = 0;
    for (int i = 0; i < dim; i++, point >>= n_bits) {
        bytes |= (uint64_t) values[point & ((1u << n_bits) - 1)] << (8 * i);
    }
    return bytes;
}

#define N(grid) (int) (sizeof(grid) / sizeof(grid)[0])
#define EXPAND(to, grid, values, dim, n_bits) \
    for (int i = 0; i < N(grid); i++) { \
        (to)[i] = point_bytes((grid)[i], values, dim, n_bits); \
    }

void cpu_codebooks_init(void) {
    struct cpu_codebooks *c = &cpu_codebooks;
    if (c->signs[127] != 0) { // written last
        return;
    }
    EXPAND(c->iq2_xxs, grid_iq2_xxs, values_iq2, 8, 2)
    EXPAND(c->iq2_xs, grid_iq2_xs, values_iq2, 8, 2)
    EXPAND(c->iq2_s, grid_iq2_s, values_iq2, 8, 2)
    EXPAND(c->iq1, grid_iq1, values_up, 8, 2)
    EXPAND(c->iq1 + N(grid_iq1), grid_iq1, values_down, 8, 2)
    EXPAND(c->iq3_xxs, grid_iq3_xxs, values_iq3_xxs, 4, 3)
    EXPAND(c->iq3_s, grid_iq3_s, values_iq3_s, 4, 3)
    for (unsigned i = 0; i < 128; i++) {
        c->signs[i] = point_bytes(i | (unsigned) __builtin_parity(i) << 7, values_sign, 8, 1);
    }
}
