// SPDX-License-Identifier: MIT
// quantize__neon.c: quantises rows of floats to the formats that activations have in dot products, block by block (quantize.h).

#include "cpu/arm/quantize.h"
#include "cpu/kernels.h"

#define ROW_OF(type, n_block) \
    static void type##_from_f32__neon(const float *restrict x, void *restrict vy, int64_t n) { \
        block_##type *y = vy; \
        for (int64_t i = 0; i < n / (n_block); i++) { \
            block_##type##_of(x + i * (n_block), &y[i]); \
        } \
    }
ROW_OF(q8_0, 32)
ROW_OF(q8_1, 32)
ROW_OF(q8_K, QK_K)

void cpu_tier_neon_quantize(struct cpu_kernels *k) {
    k->traits[GGML_TYPE_Q8_0].from_float = q8_0_from_f32__neon;
    k->traits[GGML_TYPE_Q8_1].from_float = q8_1_from_f32__neon;
    k->traits[GGML_TYPE_Q8_K].from_float = q8_K_from_f32__neon;
}
