// SPDX-License-Identifier: MIT
// codebooks.h: the codebooks of the iq formats (quant/grids.h) as bytes, so that one load returns a point, and what the kernels of all
// architectures have in common for these formats.
#pragma once

#include "quant/blocks.h"

#include <string.h>

#if defined(__x86_64__)
#    define CODEBOOK_OFFSET_IQ1 16 // x86 kernels multiply unsigned bytes
#else
#    define CODEBOOK_OFFSET_IQ1 0
#endif

struct cpu_codebooks {
    uint64_t iq2_xxs[256], iq2_xs[512], iq2_s[1024]; // magnitudes of 8 elements
    uint64_t iq3_xxs[256], iq3_s[512]; // magnitudes of 4 elements in the low half; arm loads words of 8 bytes faster than of 4
    uint64_t iq1[4096];  // offset + 8 * (value + shift); the shift is 1/8 in the first half of the table, -1/8 in the second half
    uint64_t signs[128]; // 1 or -1, for 7 sign bits; the eighth sign makes the number of minus signs even
};
extern struct cpu_codebooks cpu_codebooks;

// Called before kernels use the codebooks. Further calls change nothing.
void cpu_codebooks_init(void);

#define CODEBOOK_INLINE static inline __attribute__((always_inline))

CODEBOOK_INLINE uint64_t u64_at(const void *at) {
    uint64_t v;
    memcpy(&v, at, sizeof v);
    return v;
}

CODEBOOK_INLINE uint32_t u32_at(const void *at) {
    uint32_t v;
    memcpy(&v, at, sizeof v);
    return v;
}

// Defines d_<type>(block), the factor of all scales, for the iq and tq formats. to_float(&f16) returns a float.
#define CODEBOOK_D(to_float) \
    CODEBOOK_D_OF(iq2_xxs, to_float, 0.125f) \
    CODEBOOK_D_OF(iq2_xs, to_float, 0.125f) \
    CODEBOOK_D_OF(iq2_s, to_float, 0.125f) \
    CODEBOOK_D_OF(iq3_xxs, to_float, 0.25f) \
    CODEBOOK_D_OF(iq3_s, to_float, 1.0f) \
    CODEBOOK_D_OF(iq1_s, to_float, 0.125f) \
    CODEBOOK_D_OF(tq1_0, to_float, 1.0f) \
    CODEBOOK_D_OF(tq2_0, to_float, 1.0f) \
    /* The upper nibbles of four words. */ \
    CODEBOOK_INLINE float d_iq1_m(const block_iq1_m *b) { \
        const uint64_t q = u64_at(b->scales); \
        const uint16_t h = (uint16_t) ((q >> 12 & 0xf) | (q >> 24 & 0xf0) | (q >> 36 & 0xf00) | (q >> 48 & 0xf000)); \
        return to_float(&h) * 0.125f; \
    }
#define CODEBOOK_D_OF(type, to_float, factor) \
    CODEBOOK_INLINE float d_##type(const block_##type *b) { \
        return to_float(&b->d) * (factor); \
    }
