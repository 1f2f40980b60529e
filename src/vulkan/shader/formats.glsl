// SPDX-License-Identifier: MIT
// formats.glsl: element j of a block, for every block format. Results are bitwise equal to those of quant/*.c. A new format needs
// a function here and a line in FORMATS. b: address of the block, a multiple of 2 unless all fields are bytes.
//
// A kernel for one type defines TYPE_X; then only that format and its tables are compiled. A kernel for any type defines
// ALL_TYPES.

// The codebooks (quant/grids.h) are in memory: the compilers of some drivers take minutes for a table of constants.
#define TABLE(name, i) load_u16(push.tables + uint64_t(TABLE_##name + 2u * (i)))
const uint TABLE_iq2_xxs = 0u, TABLE_iq2_xs = 512u, TABLE_iq2_s = 1536u, TABLE_iq3_xxs = 3584u, TABLE_iq3_s = 4096u, TABLE_iq1 = 5120u;

uint nibble_of(uint64_t qs, uint j, uint half_n) {
    return j < half_n ? load_u8(qs + j) & 15u : load_u8(qs + j - half_n) >> 4;
}
float half_at(uint64_t p) {
    return half_to_float(load_u16(p));
}
// Numbers that the compiler may not combine into one operation with one rounding.
float minus(float a, float b) {
    precise float r = a - b;
    return r;
}
float plus_product(float a, float b, float c) {
    precise float p = a * b;
    precise float r = p + c;
    return r;
}

int value_iq4(uint i) {
    const uint packed[4] = {0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u};
    return bitfieldExtract(int(packed[i / 4u]), int(i % 4u * 8u), 8);
}
// Twice the value. half_scale_e8m0 and half_scale_ue4m3 return half of the scale, so that the product has the right value.
float value_fp4(uint i) {
    const uint packed = 0xc8643210u; // 0, 1, 2, 3, 4, 6, 8, 12
    const float v = float(packed >> 4u * (i & 7u) & 15u);
    return i < 8u ? v : (i == 8u ? 0.0 : -v);
}
float half_scale_e8m0(uint e) {
    return uintBitsToFloat(e < 2u ? 0x00200000u << e : (e - 1u) << 23);
}
float half_scale_ue4m3(uint s) {
    const uint exponent = s >> 3 & 15u, mantissa = s & 7u;
    if (s == 0x7fu) {
        return 0.0;
    }
    return exponent == 0u ? float(mantissa) * 0.0009765625 : uintBitsToFloat((exponent + 119u) << 23 | mantissa << 20);
}

// ---- blocks of 32 and 64 elements ----

float element_q4_0(uint64_t b, uint j) {
    return float(int(nibble_of(b + 2, j, 16u)) - 8) * half_at(b);
}
float element_q4_1(uint64_t b, uint j) {
    return plus_product(float(nibble_of(b + 4, j, 16u)), half_at(b), half_at(b + 2));
}
uint fifth(uint64_t qh, uint j) {
    return (load_u8(qh + j / 8u) >> (j % 8u) & 1u) << 4;
}
float element_q5_0(uint64_t b, uint j) {
    return float(int(nibble_of(b + 6, j, 16u) | fifth(b + 2, j)) - 16) * half_at(b);
}
float element_q5_1(uint64_t b, uint j) {
    return plus_product(float(nibble_of(b + 8, j, 16u) | fifth(b + 4, j)), half_at(b), half_at(b + 2));
}
float element_q8_0(uint64_t b, uint j) {
    return float(load_i8(b + 2 + j)) * half_at(b);
}
float element_q8_1(uint64_t b, uint j) {
    return float(load_i8(b + 4 + j)) * half_at(b);
}
float element_iq4_nl(uint64_t b, uint j) {
    return half_at(b) * float(value_iq4(nibble_of(b + 2, j, 16u)));
}
float element_mxfp4(uint64_t b, uint j) {
    return value_fp4(nibble_of(b + 1, j, 16u)) * half_scale_e8m0(load_u8(b));
}
float element_nvfp4(uint64_t b, uint j) {
    return value_fp4(nibble_of(b + 4 + j / 16u * 8u, j % 16u, 8u)) * half_scale_ue4m3(load_u8(b + j / 16u));
}

// ---- 1 and 2 bits per element ----

float element_q1_0(uint64_t b, uint j) {
    const float d = half_at(b);
    return (load_u8(b + 2 + j / 8u) >> (j % 8u) & 1u) != 0u ? d : -d;
}
float element_q2_0(uint64_t b, uint j) {
    return float(int(load_u8(b + 2 + j / 4u) >> (2u * (j % 4u)) & 3u) - 1) * half_at(b);
}
float element_tq2_0(uint64_t b, uint j) {
    return float(int(load_u8(b + j / 128u * 32u + j % 32u) >> (2u * (j / 32u % 4u)) & 3u) - 1) * half_at(b + 64);
}
float element_tq1_0(uint64_t b, uint j) {
    uint64_t qs = b;
    uint n = 32u, i = j;
    if (j >= 240u) {
        qs = b + 48;
        n = 4u;
        i = j - 240u;
    } else if (j >= 160u) {
        qs = b + 32;
        n = 16u;
        i = j - 160u;
    }
    uint power = 1u;
    for (uint r = i / n; r > 0u; r--) {
        power *= 3u;
    }
    const uint fraction = load_u8(qs + i % n) * power & 255u;
    return float(int(fraction * 3u >> 8) - 1) * half_at(b + 52);
}

// ---- superblocks ----

float element_q2_K(uint64_t b, uint j) {
    const uint s = load_u8(b + j / 16u);
    const uint q = load_u8(b + 16 + j / 128u * 32u + j % 32u) >> (2u * (j / 32u % 4u)) & 3u;
    return minus(half_at(b + 80) * float(s & 15u) * float(q), half_at(b + 82) * float(s >> 4));
}
float element_q3_K(uint64_t b, uint j) {
    const uint r = j / 16u;
    const uint low = r < 8u ? load_u8(b + 96 + r) & 15u : load_u8(b + 96 + r - 8u) >> 4;
    const uint high = load_u8(b + 104 + r % 4u) >> (2u * (r / 4u)) & 3u;
    const uint q = (load_u8(b + 32 + j / 128u * 32u + j % 32u) >> (2u * (j / 32u % 4u)) & 3u) |
                   (load_u8(b + j % 32u) >> (j / 32u) & 1u) << 2;
    return half_at(b + 108) * float(int(low | high << 4) - 32) * float(int(q) - 4);
}
// x: scale, y: minimum
uvec2 scale_min_of(uint64_t packed, uint r) {
    if (r < 4u) {
        return uvec2(load_u8(packed + r) & 63u, load_u8(packed + r + 4u) & 63u);
    }
    const uint a = load_u8(packed + r + 4u);
    return uvec2((a & 15u) | load_u8(packed + r - 4u) >> 6 << 4, a >> 4 | load_u8(packed + r) >> 6 << 4);
}
float element_q4_K(uint64_t b, uint j) {
    const uint r = j / 32u;
    const uvec2 sm = scale_min_of(b + 4, r);
    const uint q = load_u8(b + 16 + r / 2u * 32u + j % 32u) >> (4u * (r % 2u)) & 15u;
    return minus(half_at(b) * float(sm.x) * float(q), half_at(b + 2) * float(sm.y));
}
float element_q5_K(uint64_t b, uint j) {
    const uint r = j / 32u;
    const uvec2 sm = scale_min_of(b + 4, r);
    const uint q = (load_u8(b + 48 + r / 2u * 32u + j % 32u) >> (4u * (r % 2u)) & 15u) |
                   (load_u8(b + 16 + j % 32u) >> r & 1u) << 4;
    return minus(half_at(b) * float(sm.x) * float(q), half_at(b + 2) * float(sm.y));
}
float element_q6_K(uint64_t b, uint j) {
    const uint low = load_u8(b + j / 128u * 64u + j % 64u) >> (4u * (j / 64u % 2u)) & 15u;
    const uint high = load_u8(b + 128 + j / 128u * 32u + j % 32u) >> (2u * (j / 32u % 4u)) & 3u;
    return half_at(b + 208) * float(load_i8(b + 192 + j / 16u)) * float(int(low | high << 4) - 32);
}
float element_q8_K(uint64_t b, uint j) {
    return load_f32(b) * float(load_i8(b + 4 + j));
}
float element_iq4_xs(uint64_t b, uint j) {
    const uint r = j / 32u;
    const uint s = (load_u8(b + 4 + r / 2u) >> (4u * (r % 2u)) & 15u) | (load_u16(b + 2) >> (2u * r) & 3u) << 4;
    return half_at(b) * float(int(s) - 32) * float(value_iq4(nibble_of(b + 8 + r * 16u, j % 32u, 16u)));
}

// ---- codebooks ----

float with_sign(float v, uint signs, uint k) {
    return (signs >> k & 1u) != 0u ? -v : v;
}
uint even_signs(uint seven) { // the eighth sign makes the number of minus signs even
    return seven | (uint(bitCount(seven)) & 1u) << 7;
}
float value_iq2(uint point, uint k) {
    const uint f = point >> (2u * k) & 3u;
    if (f == 0u) {
        return 8.0;
    }
    return f == 1u ? 25.0 : 43.0;
}
float scale_iq2(uint64_t d, uint64_t packed, uint cell) {
    return half_at(d) * (0.5 + float(load_u8(packed + cell / 2u) >> (4u * (cell % 2u)) & 15u)) * 0.25;
}
#if defined(ALL_TYPES) || defined(TYPE_iq2_xxs)
float element_iq2_xxs(uint64_t b, uint j) {
    const uint c = j / 32u, u = j / 8u % 4u;
    const uint64_t q = b + 2 + 8u * c;
    const uint tail = load_u16(q + 4) | load_u16(q + 6) << 16;
    const float scale = half_at(b) * (0.5 + float(tail >> 28)) * 0.25;
    const uint point = TABLE(iq2_xxs, load_u16(q + u / 2u * 2u) >> (8u * (u % 2u)) & 255u);
    return with_sign(scale * value_iq2(point, j % 8u), even_signs(tail >> (7u * u) & 127u), j % 8u);
}
#endif
#if defined(ALL_TYPES) || defined(TYPE_iq2_xs)
float element_iq2_xs(uint64_t b, uint j) {
    const uint q = load_u16(b + 2 + j / 8u * 2u);
    return with_sign(scale_iq2(b, b + 66, j / 16u) * value_iq2(TABLE(iq2_xs, q & 511u), j % 8u), even_signs(q >> 9), j % 8u);
}
#endif
#if defined(ALL_TYPES) || defined(TYPE_iq2_s)
float element_iq2_s(uint64_t b, uint j) {
    const uint n = j / 8u;
    const uint point = TABLE(iq2_s, load_u8(b + 2 + n) | (load_u8(b + 66 + n / 4u) >> (2u * (n % 4u)) & 3u) << 8);
    return with_sign(scale_iq2(b, b + 74, j / 16u) * value_iq2(point, j % 8u), load_u8(b + 34 + n), j % 8u);
}
#endif
#if defined(ALL_TYPES) || defined(TYPE_iq3_xxs)
float element_iq3_xxs(uint64_t b, uint j) {
    const uint c = j / 32u, u = j / 8u % 4u;
    const uint64_t t = b + 66 + 4u * c;
    const uint tail = load_u16(t) | load_u16(t + 2) << 16;
    const uint f = TABLE(iq3_xxs, load_u8(b + 2 + j / 4u)) >> (3u * (j % 4u)) & 7u;
    const float v = half_at(b) * (0.5 + float(tail >> 28)) * 0.5 * (f == 7u ? 62.0 : 4.0 + 8.0 * float(f));
    return with_sign(v, even_signs(tail >> (7u * u) & 127u), j % 8u);
}
#endif
#if defined(ALL_TYPES) || defined(TYPE_iq3_s)
float element_iq3_s(uint64_t b, uint j) {
    const uint c = j / 32u, n = j / 4u;
    const uint point = TABLE(iq3_s, load_u8(b + 2 + n) | (load_u8(b + 66 + n / 8u) >> (n % 8u) & 1u) << 8);
    const float scale = half_at(b) * float(1u + 2u * (load_u8(b + 106 + c / 2u) >> (4u * (c % 2u)) & 15u));
    return with_sign(scale * float(2u * (point >> (3u * (j % 4u)) & 7u) + 1u), load_u8(b + 74 + j / 8u), j % 8u);
}
#endif
#if defined(ALL_TYPES) || defined(TYPE_iq1_s) || defined(TYPE_iq1_m)
float value_iq1(uint point, uint k, bool down, float scale) {
    return scale * (float(TABLE(iq1, point) >> (2u * k) & 3u) - 1.0 + (down ? -0.125 : 0.125));
}
float element_iq1_s(uint64_t b, uint j) {
    const uint n = j / 8u, head = load_u16(b + 34 + n / 4u * 2u);
    return value_iq1(load_u8(b + 2 + n) | (head >> (3u * (n % 4u)) & 7u) << 8, j % 8u, head >> 15 != 0u,
        half_at(b) * float(2u * (head >> 12 & 7u) + 1u));
}
float element_iq1_m(uint64_t b, uint j) {
    const uint n = j / 8u;
    uint h = 0u;
    for (uint k = 0u; k < 4u; k++) {
        h |= load_u8(b + 48 + 2u * k + 1u) >> 4 << (4u * k);
    }
    const uint head = load_u8(b + 32 + n / 2u) >> (4u * (n % 2u)) & 15u;
    const uint word = load_u8(b + 48 + n / 8u * 2u) | load_u8(b + 48 + n / 8u * 2u + 1u) << 8;
    const uint s = word >> (3u * (n / 2u % 4u)) & 7u;
    return value_iq1(load_u8(b + n) | (head & 7u) << 8, j % 8u, head >> 3 != 0u, half_to_float(h) * float(2u * s + 1u));
}
#endif

// X(TYPE, name, elements per block, bytes per block)
#define FORMATS(X) \
    X(Q4_0, q4_0, 32u, 18u) X(Q4_1, q4_1, 32u, 20u) X(Q5_0, q5_0, 32u, 22u) X(Q5_1, q5_1, 32u, 24u) X(Q8_0, q8_0, 32u, 34u) \
    X(Q8_1, q8_1, 32u, 36u) X(IQ4_NL, iq4_nl, 32u, 18u) X(MXFP4, mxfp4, 32u, 17u) X(NVFP4, nvfp4, 64u, 36u) \
    X(Q1_0, q1_0, 128u, 18u) X(Q2_0, q2_0, 64u, 18u) X(TQ1_0, tq1_0, 256u, 54u) X(TQ2_0, tq2_0, 256u, 66u) \
    X(Q2_K, q2_K, 256u, 84u) X(Q3_K, q3_K, 256u, 110u) X(Q4_K, q4_K, 256u, 144u) X(Q5_K, q5_K, 256u, 176u) \
    X(Q6_K, q6_K, 256u, 210u) X(Q8_K, q8_K, 256u, 292u) X(IQ4_XS, iq4_xs, 256u, 136u) X(IQ2_XXS, iq2_xxs, 256u, 66u) \
    X(IQ2_XS, iq2_xs, 256u, 74u) X(IQ2_S, iq2_s, 256u, 82u) X(IQ3_XXS, iq3_xxs, 256u, 98u) X(IQ3_S, iq3_s, 256u, 110u) \
    X(IQ1_S, iq1_s, 256u, 50u) X(IQ1_M, iq1_m, 256u, 56u)

#ifdef ALL_TYPES
// Element i of a dense row of any type.
float row_element(uint64_t row, int type, int64_t i) {
#    define ELEMENT_OF(TYPE, name, n, bytes) \
        case GGML_TYPE_##TYPE: return element_##name(row + uint64_t(i) / n * bytes, uint(i) % n);
    switch (type) {
        case GGML_TYPE_F32: return load_f32(row + uint64_t(i * 4));
        case GGML_TYPE_F16: return half_to_float(load_u16(row + uint64_t(i * 2)));
        case GGML_TYPE_BF16: return bf16_to_float(load_u16(row + uint64_t(i * 2)));
        case GGML_TYPE_I32: return float(load_i32(row + uint64_t(i * 4)));
        FORMATS(ELEMENT_OF)
        default: return 0.0;
    }
}
#endif
