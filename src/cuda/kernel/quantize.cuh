// SPDX-License-Identifier: MIT
// quantize.cuh: quantises 32 floats to a block of a KV cache type, one thread per block. The bytes are those of the
// CPU backend: quantize_row_X_ref in quant/*.c, except q8_0 (BERTH_Q8_FACTOR_OF_MAX in quant/blocks.h).
#pragma once

#include "cuda/kernel/dequant.cuh"

DEV float reciprocal(float d) {
    return d != 0.0f ? __fdiv_rn(1.0f, d) : 0.0f;
}
// Returns the element of the largest magnitude. If there are several, returns the first of them.
DEV float extreme(const float *x) {
    float amax = 0.0f, at = 0.0f;
    for (int j = 0; j < 32; j++) {
        const float a = fabsf(x[j]);
        if (a > amax) {
            amax = a, at = x[j];
        }
    }
    return at;
}
// Returns the low byte as a signed number, limited to max.
DEV int low_byte(int v, int max) {
    v = (int) (int8_t) v;
    return min(v, max);
}
// Returns the level of x: x * id + half, rounded toward zero and limited to max. id: reciprocal of the scale.
DEV int level_biased(float x, float id, float half, int max) {
    return low_byte(__float2int_rz(__fadd_rn(__fmul_rn(x, id), half)), max);
}

DEV void quantize(const float *x, block_q8_0 *y) {
    float amax = 0.0f;
    bool is_finite = true;
    for (int j = 0; j < 32; j++) {
        amax = fmaxf(amax, fabsf(x[j]));
        is_finite &= fabsf(x[j]) < INFINITY;
    }
    const float d = __fdiv_rn(amax, 127.0f);
    y->d = float_to_half(d);
    if (is_finite && amax >= BERTH_Q8_MAX_LEAST) {
        const float id = BERTH_Q8_FACTOR_OF_MAX ? __fdiv_rn(127.0f, amax) : __fdiv_rn(1.0f, d);
        for (int j = 0; j < 32; j++) {
            y->qs[j] = (int8_t) __float2int_rn(__fmul_rn(x[j], id));
        }
        return;
    }
    const float id = reciprocal(d);
    for (int j = 0; j < 32; j++) {
        y->qs[j] = (int8_t) (int) roundf(__fmul_rn(x[j], id));
    }
}
DEV void quantize(const float *x, block_q4_0 *y) {
    const float d = extreme(x) / -8, id = reciprocal(d);
    y->d = float_to_half(d);
    for (int j = 0; j < 16; j++) {
        y->qs[j] = (uint8_t) (level_biased(x[j], id, 8.5f, 15) | level_biased(x[j + 16], id, 8.5f, 15) << 4);
    }
}
DEV void quantize(const float *x, block_q5_0 *y) {
    const float d = extreme(x) / -16, id = reciprocal(d);
    uint32_t qh = 0;
    y->d = float_to_half(d);
    for (int j = 0; j < 16; j++) {
        const int a = level_biased(x[j], id, 16.5f, 31), b = level_biased(x[j + 16], id, 16.5f, 31);
        y->qs[j] = (uint8_t) ((a & 15) | (b & 15) << 4);
        qh |= (uint32_t) (a >> 4 & 1) << j | (uint32_t) (b >> 4 & 1) << (j + 16);
    }
    for (int i = 0; i < 4; i++) {
        y->qh[i] = (uint8_t) (qh >> (8 * i));
    }
}
// Stores the smallest and the largest element.
DEV void range(const float *x, float *lo, float *hi) {
    *lo = 3.402823466e+38f, *hi = -3.402823466e+38f;
    for (int j = 0; j < 32; j++) {
        if (x[j] < *lo) {
            *lo = x[j];
        }
        if (x[j] > *hi) {
            *hi = x[j];
        }
    }
}
DEV int level_from(float x, float lo, float id) {
    return __float2int_rz(__fadd_rn(__fmul_rn(__fsub_rn(x, lo), id), 0.5f));
}
DEV void quantize(const float *x, block_q4_1 *y) {
    float lo, hi;
    range(x, &lo, &hi);
    const float d = __fdiv_rn(hi - lo, 15.0f), id = reciprocal(d);
    y->d = float_to_half(d);
    y->m = float_to_half(lo);
    for (int j = 0; j < 16; j++) {
        y->qs[j] = (uint8_t) (low_byte(level_from(x[j], lo, id), 15) | low_byte(level_from(x[j + 16], lo, id), 15) << 4);
    }
}
DEV void quantize(const float *x, block_q5_1 *y) {
    float lo, hi;
    range(x, &lo, &hi);
    const float d = __fdiv_rn(hi - lo, 31.0f), id = reciprocal(d);
    uint32_t qh = 0;
    y->d = float_to_half(d);
    y->m = float_to_half(lo);
    for (int j = 0; j < 16; j++) {
        const int a = level_from(x[j], lo, id), b = level_from(x[j + 16], lo, id);
        y->qs[j] = (uint8_t) ((a & 15) | (b & 15) << 4);
        qh |= (uint32_t) (a >> 4 & 1) << j | (uint32_t) (b >> 4 & 1) << (j + 16);
    }
    for (int i = 0; i < 4; i++) {
        y->qh[i] = (uint8_t) (qh >> (8 * i));
    }
}
// Returns the index of the value of iq4_nl that is nearest to v. If two values are equally near, returns the index of the upper
// one.
DEV int nearest_iq4(float v) {
    int at = 0;
    for (int i = 1; i < 16; i++) {
        at += v >= 0.5f * (float) (values_iq4[i - 1] + values_iq4[i]);
    }
    return at;
}
DEV float mad(float a, float b, float c) {
    return BERTH_MAD_IS_FUSED ? fmaf(a, b, c) : __fadd_rn(__fmul_rn(a, b), c);
}
DEV void quantize(const float *x, block_iq4_nl *y) {
    const float max = extreme(x);
    float a = 0.0f, b = 0.0f;
    const float id = fabsf(max) < 1e-15f ? 0.0f : __fdiv_rn(1.0f, __fdiv_rn(max, (float) values_iq4[0]));
    uint8_t q[32];
    for (int j = 0; j < 32; j++) {
        q[j] = (uint8_t) nearest_iq4(__fmul_rn(x[j], id));
        const float v = (float) values_iq4[q[j]], wv = __fmul_rn(__fmul_rn(x[j], x[j]), v);
        a = mad(wv, x[j], a);
        b = mad(wv, v, b);
    }
    for (int j = 0; j < 16; j++) {
        y->qs[j] = (uint8_t) (q[j] | q[j + 16] << 4);
    }
    y->d = fabsf(max) < 1e-15f ? 0 : float_to_half(__fdiv_rn(a, b));
}
// Returns the fp4 code whose value times the scale is nearest to x. d: half of the scale, because values_fp4 holds twice the
// values.
DEV int nearest_fp4(float x, float d) {
    const float size = fabsf(x);
    int best = 0;
    float error = size;
    for (int i = 1; i < 8; i++) {
        const float e = fabsf(__fsub_rn(__fmul_rn((float) values_fp4[i], d), size));
        if (e < error) {
            best = i, error = e;
        }
    }
    return best | (x < 0.0f && best != 0 ? 8 : 0);
}
DEV void quantize(const float *x, block_mxfp4 *y) {
    float amax = 0.0f;
    for (int j = 0; j < 32; j++) {
        amax = fmaxf(amax, fabsf(x[j]));
    }
    y->e = amax > 0.0f ? (uint8_t) (int) (floorf(log2f(amax)) - 2 + 127) : 0;
    const float d = half_scale_e8m0(y->e);
    for (int j = 0; j < 16; j++) {
        y->qs[j] = (uint8_t) (nearest_fp4(x[j], d) | nearest_fp4(x[j + 16], d) << 4);
    }
}

// Quantises 32 floats to elements i to i + 31 of a dense row. type: one that gpu_can_quantise accepts.
DEV void row_quantize(const float *x, char *row, int type, int64_t i) {
    switch (type) {
        case GGML_TYPE_Q8_0: quantize(x, (block_q8_0 *) row + i / 32); break;
        case GGML_TYPE_Q4_0: quantize(x, (block_q4_0 *) row + i / 32); break;
        case GGML_TYPE_Q4_1: quantize(x, (block_q4_1 *) row + i / 32); break;
        case GGML_TYPE_Q5_0: quantize(x, (block_q5_0 *) row + i / 32); break;
        case GGML_TYPE_Q5_1: quantize(x, (block_q5_1 *) row + i / 32); break;
        case GGML_TYPE_MXFP4: quantize(x, (block_mxfp4 *) row + i / 32); break;
        default: quantize(x, (block_iq4_nl *) row + i / 32); break;
    }
}
