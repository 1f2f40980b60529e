// SPDX-License-Identifier: MIT
// widen__neon.c: converts rows of q8_0 to floats. Results are bit-identical to the portable function. On a Neoverse N1, one pipe
// executes all conversions. So this kernel puts a byte in the low bits of a large float and subtracts the large float.

#include "cpu/arm/unpack.h"
#include "cpu/kernels.h"

#define AHEAD 2048 // prefetch distance; 4096 is slower

// v holds 4 floats 2^23 + 128 + q. Stores q times d.
UNPACK_INLINE void store4(float *y, uint16x8_t v, float32x4_t d) {
    vst1q_f32(y, vmulq_f32(vsubq_f32(vreinterpretq_f32_u16(v), vdupq_n_f32(0x1p23f + 128)), d));
}

static void q8_0_to_f32__neon(const void *restrict vx, float *restrict y, int64_t n) {
    const block_q8_0 *x = vx;
    const uint8x16_t top = vdupq_n_u8(0x80), zero = vdupq_n_u8(0);
    const uint16x8_t exponent = vdupq_n_u16(0x4b00); // the upper 16 bits of 2^23
    for (int64_t i = 0; i < n / QK_Q8_0; i++) {
        const float32x4_t d = vdupq_n_f32(f16_as_float(&x[i].d));
        for (int j = 0; j < 2; j++) { // L2 prefetch for stores: saves 6%
            __builtin_prefetch((const char *) y + AHEAD + 64 * j, 1, 2);
        }
        for (int j = 0; j < QK_Q8_0; j += 16, y += 16) {
            const uint8x16_t v = veorq_u8(vreinterpretq_u8_s8(vld1q_s8(x[i].qs + j)), top);
            const uint16x8_t lo = vreinterpretq_u16_u8(vzip1q_u8(v, zero)), hi = vreinterpretq_u16_u8(vzip2q_u8(v, zero));
            store4(y, vzip1q_u16(lo, exponent), d);
            store4(y + 4, vzip2q_u16(lo, exponent), d);
            store4(y + 8, vzip1q_u16(hi, exponent), d);
            store4(y + 12, vzip2q_u16(hi, exponent), d);
        }
    }
}

void cpu_tier_neon_widen(struct cpu_kernels *k) {
    k->to_float[GGML_TYPE_Q8_0] = q8_0_to_f32__neon;
}
