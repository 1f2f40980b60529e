// SPDX-License-Identifier: MIT
// decode_curve.cuh: decoders (decode.cuh) of types whose nibbles index a table of 16 values: iq4_nl iq4_xs mxfp4 nvfp4.
#pragma once

#include "lane.cuh"

// The 16 values of iq4_* plus 128, four per word.
#define CURVE_0 0x3f2d1801u
#define CURVE_1 0x766a5d4fu
#define CURVE_2 0xa6998d81u
#define CURVE_3 0xf1d9c5b5u

// Looks up the low four nibbles of w. Returns one value per byte.
LANE uint32_t curve_4(uint32_t w) {
    const uint32_t pick = w & 0x7777u;
    const uint32_t low = __byte_perm(CURVE_0, CURVE_1, pick), high = __byte_perm(CURVE_2, CURVE_3, pick);
    return __byte_perm(low, high, 0x3210u | (w >> 1 & 0x4444u));
}

// Multiplies the values by s. Low nibbles belong to run 0, high nibbles to run 1.
LANE void curve_word(uint32_t w, uint32_t s, uint32_t *o) {
    const uint32_t a = curve_4(w), b = curve_4(w >> 16); // l0 h0 l1 h1, l2 h2 l3 h3
    const uint32_t low = __byte_perm(a, b, 0x6420), high = __byte_perm(a, b, 0x7531);
    o[0] = h2_mul(h2_less(even_bytes(low), 1152), s);
    o[1] = h2_mul(h2_less(odd_bytes(low), 1152), s);
    o[2] = h2_mul(h2_less(even_bytes(high), 1152), s);
    o[3] = h2_mul(h2_less(odd_bytes(high), 1152), s);
}

struct decode_iq4_nl : decode_plain {
    enum { QK = 32, BYTES = 18, CH = 256, BF = 0 };
    template <class P> LANE void get(P p, int sub, int t, uint32_t *o) const {
        p = p.at(sub * BYTES);
        curve_word(p.u32(2 + 4 * t), h2_low(p.u16(0)), o);
    }
};

struct decode_iq4_xs {
    enum { QK = 256, BYTES = 136, CH = 256, BF = 0 };
    float d;
    uint32_t high, low;
    template <class P> LANE void prep(P p, int) {
        const uint32_t head = p.w32(0);
        d = half_value(head & 0xffff);
        high = head >> 16;
        low = p.w32(4);
    }
    template <class P> LANE void get(P p, int sub, int t, uint32_t *o) const {
        const int s = (int) ((low >> (4 * sub) & 15) | (high >> (2 * sub) & 3) << 4) - 32;
        curve_word(p.w32(8 + 16 * sub + 4 * t), h2_all(d * (float) s), o);
    }
};

// Converts the 4-bit floats in the low nibbles of bytes 0 and 2 to f16. Moved to the bits of an f16, a 4-bit float is the value
// times 2^-14, also if subnormal.
LANE uint32_t even_fp4(uint32_t w) {
    return h2_mul((w & 0x00070007u) << 9 | (w & 0x00080008u) << 12, 0x74007400u);
}

struct decode_mxfp4 : decode_plain {
    enum { QK = 32, BYTES = 17, CH = 256, BF = 0 };
    template <class P> LANE void get(P p, int sub, int t, uint32_t *o) const {
        p = p.at(sub * BYTES);
        const uint32_t e = p.u8(0), w = p.u32(1 + 4 * t);
        const uint32_t s = h2_all(__uint_as_float(e == 0 ? 0x00400000u : e << 23));
        o[0] = h2_mul(even_fp4(w), s);
        o[1] = h2_mul(even_fp4(w >> 8), s);
        o[2] = h2_mul(even_fp4(w >> 4), s);
        o[3] = h2_mul(even_fp4(w >> 12), s);
    }
};

struct decode_nvfp4 : decode_plain {
    enum { QK = 64, BYTES = 36, CH = 256, BF = 0 };
    LANE static float scale_value(uint32_t s) { // unsigned float: 4 exponent bits, 3 mantissa bits
        const uint32_t exponent = s >> 3 & 15, mantissa = s & 7;
        const float normal = __uint_as_float((exponent + 120) << 23 | mantissa << 20);
        return s == 0x7f ? 0.0f : exponent == 0 ? (float) mantissa * 0x1p-9f : normal;
    }
    template <class P> LANE void get(P p, int sub, int t, uint32_t *o) const {
        p = p.at((sub >> 1) * BYTES);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int group = 2 * (sub & 1) + r;
            const uint32_t s = h2_all(scale_value(p.u8(group)));
            const uint32_t w = p.w32(4 + 8 * group + 4 * (t & 1)) >> (4 * (t >> 1));
            o[2 * r] = h2_mul(even_fp4(w), s);
            o[2 * r + 1] = h2_mul(even_fp4(w >> 8), s);
        }
    }
};
