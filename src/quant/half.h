// SPDX-License-Identifier: MIT
// half.h: conversions between float and f16 (IEEE binary16) or bf16. Conversions from float round once, to nearest even.
// NaN: float to f16 keeps the sign and gives the default quiet NaN. float to bf16 keeps the upper payload and sets the quiet bit.
// f16 to float keeps the payload and sets the quiet bit. bf16 to float keeps every bit. All four conversions keep subnormals.
// There are no tables.
#pragma once

#include <stdint.h>
#include <string.h>

static inline uint32_t berth_float_bits(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof(u));
    return u;
}

static inline float berth_bits_float(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof(f));
    return f;
}

static inline float berth_half_to_float(uint16_t h) {
    const uint32_t sign = (uint32_t) (h & 0x8000u) << 16;
    const uint32_t mag = h & 0x7fffu;
    uint32_t bits;
    if (mag < 0x0400u) {
        bits = berth_float_bits((float) mag * 0x1p-24f); // zero and subnormals: exact
    } else if (mag < 0x7c00u) {
        bits = (mag << 13) + (112u << 23);
    } else {
        bits = 0x7f800000u | (mag << 13) | (mag > 0x7c00u ? 0x00400000u : 0u);
    }
    return berth_bits_float(sign | bits);
}

static inline uint16_t berth_float_to_half(float f) {
    const uint32_t bits = berth_float_bits(f);
    const uint32_t mag = bits & 0x7fffffffu;
    uint32_t half;
    if (mag > 0x7f800000u) {
        half = 0x7e00u;
    } else if (mag >= 0x477ff000u) { // 65520 and more round to infinity
        half = 0x7c00u;
    } else if (mag >= 0x38800000u) {
        half = (mag - (112u << 23) + 0x0fffu + ((mag >> 13) & 1u)) >> 13;
    } else {
        // Subnormal f16 values and floats in [0.5, 1) have the same step, 2^-24. So adding 0.5 rounds to f16.
        half = berth_float_bits(berth_bits_float(mag) + 0.5f) - 0x3f000000u;
    }
    return (uint16_t) ((bits >> 16 & 0x8000u) | half);
}

static inline float berth_bf16_to_float(uint16_t b) {
    return berth_bits_float((uint32_t) b << 16);
}

static inline uint16_t berth_float_to_bf16(float f) {
    const uint32_t bits = berth_float_bits(f);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return (uint16_t) (bits >> 16 | 0x0040u);
    }
    return (uint16_t) ((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
