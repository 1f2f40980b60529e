// SPDX-License-Identifier: MIT
// quantize__neon.c: rows of floats to the formats that activations take in dot products. Bit for bit what the portable functions
// make of finite rows; a row that is not finite goes to them.

#include "cpu/arm/quantize.h"
#include "cpu/arm/tiers.h"

#include "quant/quants.h"

#include <math.h>

static void q8_0_from_f32__neon(const float *restrict x, void *restrict vy, int64_t n) {
    block_q8_0 *y = vy;
    for (int64_t i = 0; i < n / 32; i++) {
        int8x16_t lo, hi;
        float d;
        if (!bytes32(x + i * 32, &lo, &hi, &d)) {
            quantize_row_q8_0_ref(x + i * 32, &y[i], 32);
            continue;
        }
        y[i].d = half_of(d);
        vst1q_s8(y[i].qs, lo);
        vst1q_s8(y[i].qs + 16, hi);
    }
}

static void q8_1_from_f32__neon(const float *restrict x, void *restrict vy, int64_t n) {
    block_q8_1 *y = vy;
    for (int64_t i = 0; i < n / 32; i++) {
        int8x16_t lo, hi;
        float d;
        if (!bytes32(x + i * 32, &lo, &hi, &d)) {
            quantize_row_q8_1_ref(x + i * 32, &y[i], 32);
            continue;
        }
        y[i].d = half_of(d);
        y[i].s = half_of((float) vaddlvq_s16(vaddq_s16(vpaddlq_s8(lo), vpaddlq_s8(hi))) * d);
        vst1q_s8(y[i].qs, lo);
        vst1q_s8(y[i].qs + 16, hi);
    }
}

// The value that is farthest from zero, with its sign: the first of equals.
static float extreme(const float *x, float max, float min) {
    if (max != -min) {
        return max > -min ? max : min;
    }
    while (fabsf(*x) != max) {
        x++;
    }
    return *x;
}

// The sums of 8 vectors of bytes.
static int16x8_t sums8(const int8x16_t *v) {
    int16x8_t s[8];
    for (int j = 0; j < 8; j++) {
        s[j] = vpaddlq_s8(v[j]);
    }
    const int16x8_t lo = vpaddq_s16(vpaddq_s16(s[0], s[1]), vpaddq_s16(s[2], s[3]));
    return vpaddq_s16(lo, vpaddq_s16(vpaddq_s16(s[4], s[5]), vpaddq_s16(s[6], s[7])));
}

static void q8_K_from_f32__neon(const float *restrict x, void *restrict vy, int64_t n) {
    block_q8_K *y = vy;
    for (int64_t i = 0; i < n / QK_K; i++, x += QK_K) {
        float32x4_t max[4], min[4];
        for (int u = 0; u < 4; u++) {
            max[u] = min[u] = vld1q_f32(x + 4 * u);
        }
        for (int j = 16; j < QK_K; j += 16) {
            for (int u = 0; u < 4; u++) { // a NaN stays
                const float32x4_t v = vld1q_f32(x + j + 4 * u);
                max[u]              = vmaxq_f32(max[u], v);
                min[u]              = vminq_f32(min[u], v);
            }
        }
        const float most  = vmaxvq_f32(vmaxq_f32(vmaxq_f32(max[0], max[1]), vmaxq_f32(max[2], max[3])));
        const float least = vminvq_f32(vminq_f32(vminq_f32(min[0], min[1]), vminq_f32(min[2], min[3])));
        const float amax  = most > -least ? most : -least;
        if (!(amax >= 0x1p-100f && most < INFINITY && least > -INFINITY)) {
            quantize_row_q8_K_ref(x, &y[i], QK_K);
            continue;
        }
        const float inverse = -127.0f / extreme(x, most, least);
        for (int j = 0; j < QK_K; j += 128) {
            int8x16_t bytes[8];
            for (int v = 0; v < 8; v++) {
                int32x4_t q[4];
                for (int u = 0; u < 4; u++) {
                    q[u] = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + j + 16 * v + 4 * u), inverse));
                    q[u] = vminq_s32(q[u], vdupq_n_s32(127));
                }
                bytes[v] = narrow(q[0], q[1], q[2], q[3]);
                vst1q_s8(y[i].qs + j + 16 * v, bytes[v]);
            }
            vst1q_s16(y[i].bsums + j / 16, sums8(bytes));
        }
        y[i].d = 1 / inverse;
    }
}

void cpu_tier_neon_quantize(struct cpu_kernels *k) {
    k->traits[GGML_TYPE_Q8_0].from_float = q8_0_from_f32__neon;
    k->traits[GGML_TYPE_Q8_1].from_float = q8_1_from_f32__neon;
    k->traits[GGML_TYPE_Q8_K].from_float = q8_K_from_f32__neon;
}
