// SPDX-License-Identifier: MIT
// quantize.glsl: quantises 32 floats (the global array `values`) to a block, one thread per block. The bytes are those of the CPU
// backend: quantize_row_X_ref in quant/*.c, except q8_0 (BERTH_Q8_FACTOR_OF_MAX in quant/blocks.h; the build defines it here).

float values[32];

// a * b + c, and a / b, with separate roundings. A driver may divide with an error of a few units in the last place, so the
// quotient is corrected by its residual.
float product_of(float a, float b) {
    precise float r = a * b;
    return r;
}
float sum_of(float a, float b) {
    precise float r = a + b;
    return r;
}
float quotient(float a, float b) {
    precise float q = a / b;
    if (!(abs(q) > 1e-18 && abs(q) < 1e30 && abs(b) > 1e-18 && abs(b) < 1e30)) {
        return q;
    }
    precise float p = q * b;
    precise float rest = (a - p) - product_error(q, b);
    precise float r = q + rest / b;
    return r;
}
float reciprocal(float d) {
    return d != 0.0 ? quotient(1.0, d) : 0.0;
}
// The element of the largest magnitude. If there are several, the first of them.
float extreme() {
    float most = 0.0, at = 0.0;
    [[dont_unroll]] for (int j = 0; j < 32; j++) {
        const float a = abs(values[j]);
        if (a > most) {
            most = a;
            at = values[j];
        }
    }
    return at;
}
// The low byte as a signed number, limited to max.
int low_byte(int v, int most) {
    return min(bitfieldExtract(v, 0, 8), most);
}
// Conversion to int rounded toward zero. NaN becomes 0, as a GPU converts it.
int truncated(float v) {
    return is_nan(v) ? 0 : int(clamp(v, -2147483520.0, 2147483520.0));
}
int level_biased(float x, float id, float half_level, int most) {
    return low_byte(truncated(sum_of(product_of(x, id), half_level)), most);
}
int level_from(float x, float lo, float id) {
    return truncated(sum_of(product_of(sum_of(x, -lo), id), 0.5));
}
float round_half_away(float v) {
    const float t = trunc(v);
    return abs(v - t) >= 0.5 ? t + sign(v) : t;
}

void quantize_q8_0(uint64_t y) {
    float most = 0.0;
    bool all_finite = true;
    [[dont_unroll]] for (int j = 0; j < 32; j++) {
        most = max_of(most, abs(values[j]));
        all_finite = all_finite && is_finite(values[j]);
    }
    const float d = quotient(most, 127.0);
    store_u16(y, float_to_half(d));
    if (all_finite && most >= 7.888609052210118e-31) { // BERTH_Q8_MAX_LEAST
        const float id = BERTH_Q8_FACTOR_OF_MAX != 0 ? quotient(127.0, most) : quotient(1.0, d);
        [[dont_unroll]] for (int j = 0; j < 32; j++) {
            store_u8(y + 2 + j, uint(int(roundEven(product_of(values[j], id)))));
        }
        return;
    }
    const float id = reciprocal(d);
    [[dont_unroll]] for (int j = 0; j < 32; j++) {
        store_u8(y + 2 + j, uint(truncated(round_half_away(product_of(values[j], id)))));
    }
}
void quantize_q4_0(uint64_t y) {
    const float d = extreme() / -8.0, id = reciprocal(d);
    store_u16(y, float_to_half(d));
    [[dont_unroll]] for (int j = 0; j < 16; j++) {
        store_u8(y + 2 + j, uint(level_biased(values[j], id, 8.5, 15) | level_biased(values[j + 16], id, 8.5, 15) << 4));
    }
}
void store_high_bits(uint64_t p, uint qh) {
    [[dont_unroll]] for (int i = 0; i < 4; i++) {
        store_u8(p + i, qh >> (8 * i));
    }
}
void quantize_q5_0(uint64_t y) {
    const float d = extreme() / -16.0, id = reciprocal(d);
    uint qh = 0u;
    store_u16(y, float_to_half(d));
    [[dont_unroll]] for (int j = 0; j < 16; j++) {
        const int a = level_biased(values[j], id, 16.5, 31), b = level_biased(values[j + 16], id, 16.5, 31);
        store_u8(y + 6 + j, uint((a & 15) | (b & 15) << 4));
        qh |= uint(a >> 4 & 1) << j | uint(b >> 4 & 1) << (j + 16);
    }
    store_high_bits(y + 2, qh);
}
// x: the smallest element, y: the largest
vec2 range_of() {
    vec2 r = vec2(3.402823466e+38, -3.402823466e+38);
    [[dont_unroll]] for (int j = 0; j < 32; j++) {
        if (values[j] < r.x) {
            r.x = values[j];
        }
        if (values[j] > r.y) {
            r.y = values[j];
        }
    }
    return r;
}
void quantize_q4_1(uint64_t y) {
    const vec2 r = range_of();
    const float d = quotient(r.y - r.x, 15.0), id = reciprocal(d);
    store_u16(y, float_to_half(d));
    store_u16(y + 2, float_to_half(r.x));
    [[dont_unroll]] for (int j = 0; j < 16; j++) {
        store_u8(y + 4 + j,
            uint(low_byte(level_from(values[j], r.x, id), 15) | low_byte(level_from(values[j + 16], r.x, id), 15) << 4));
    }
}
void quantize_q5_1(uint64_t y) {
    const vec2 r = range_of();
    const float d = quotient(r.y - r.x, 31.0), id = reciprocal(d);
    uint qh = 0u;
    store_u16(y, float_to_half(d));
    store_u16(y + 2, float_to_half(r.x));
    [[dont_unroll]] for (int j = 0; j < 16; j++) {
        const int a = level_from(values[j], r.x, id), b = level_from(values[j + 16], r.x, id);
        store_u8(y + 8 + j, uint((a & 15) | (b & 15) << 4));
        qh |= uint(a >> 4 & 1) << j | uint(b >> 4 & 1) << (j + 16);
    }
    store_high_bits(y + 4, qh);
}
// The index of the value of iq4_nl that is nearest to v. If two values are equally near, the index of the upper one.
uint nearest_iq4(float v) {
    uint at = 0u;
    [[dont_unroll]] for (uint i = 1u; i < 16u; i++) {
        at += v >= 0.5 * float(value_iq4(i - 1u) + value_iq4(i)) ? 1u : 0u;
    }
    return at;
}
float mad(float a, float b, float c) {
    return BERTH_MAD_IS_FUSED != 0 ? fused(a, b, c) : sum_of(product_of(a, b), c);
}
void quantize_iq4_nl(uint64_t y) {
    const float most = extreme();
    const bool is_zero = abs(most) < 1e-15;
    const float id = is_zero ? 0.0 : quotient(1.0, quotient(most, float(value_iq4(0u))));
    float a = 0.0, b = 0.0;
    uint q[32];
    [[dont_unroll]] for (int j = 0; j < 32; j++) {
        q[j] = nearest_iq4(product_of(values[j], id));
        const float v = float(value_iq4(q[j])), wv = product_of(product_of(values[j], values[j]), v);
        a = mad(wv, values[j], a);
        b = mad(wv, v, b);
    }
    [[dont_unroll]] for (int j = 0; j < 16; j++) {
        store_u8(y + 2 + j, q[j] | q[j + 16] << 4);
    }
    store_u16(y, is_zero ? 0u : float_to_half(quotient(a, b)));
}
// The fp4 code whose value times the scale is nearest to x. d: half of the scale, because value_fp4 is twice the value.
uint nearest_fp4(float x, float d) {
    const float size = abs(x);
    uint best = 0u;
    float error = size;
    [[dont_unroll]] for (uint i = 1u; i < 8u; i++) {
        const float e = abs(sum_of(product_of(value_fp4(i), d), -size));
        if (e < error) {
            best = i;
            error = e;
        }
    }
    return best | (x < 0.0 && best != 0u ? 8u : 0u);
}
void quantize_mxfp4(uint64_t y) {
    float most = 0.0;
    [[dont_unroll]] for (int j = 0; j < 32; j++) {
        most = max_of(most, abs(values[j]));
    }
    // floor(log2(most)) - 2 + 127, from the exponent of the number
    uint e = 0u;
    if (most > 0.0) {
        const uint u = floatBitsToUint(most);
        const int power = (u >> 23) != 0u ? int(u >> 23) - 127 : findMSB(u) - 149;
        e = uint(power + 125) & 255u;
    }
    store_u8(y, e);
    const float d = half_scale_e8m0(e);
    [[dont_unroll]] for (int j = 0; j < 16; j++) {
        store_u8(y + 1 + j, nearest_fp4(values[j], d) | nearest_fp4(values[j + 16], d) << 4);
    }
}

// Quantises the values to elements i to i + 31 of a dense row. type: one that gpu_can_quantise accepts, with blocks of 32.
void row_quantize(uint64_t row, int type, int64_t i) {
    const uint64_t at = uint64_t(i / 32);
    switch (type) {
        case GGML_TYPE_Q8_0: quantize_q8_0(row + at * 34); break;
        case GGML_TYPE_Q4_0: quantize_q4_0(row + at * 18); break;
        case GGML_TYPE_Q4_1: quantize_q4_1(row + at * 20); break;
        case GGML_TYPE_Q5_0: quantize_q5_0(row + at * 22); break;
        case GGML_TYPE_Q5_1: quantize_q5_1(row + at * 24); break;
        case GGML_TYPE_MXFP4: quantize_mxfp4(row + at * 17); break;
        default: quantize_iq4_nl(row + at * 18); break;
    }
}
