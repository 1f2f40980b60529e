// SPDX-License-Identifier: MIT
// common.glsl: what all kernels share: memory, numbers, element indices, sums over a workgroup.
//
// A line "//KERNEL name -D..." in a .comp file declares a kernel. The build compiles the file once per kernel, with the macro
// KERNEL_name and the macros of the line. If the name ends in _FORMAT, the line declares one kernel per block format (FORMATS in
// formats.glsl), with the macros TYPE, TYPE_<name>, QK (elements per block) and QB (bytes per block).
//
// Kernels access memory only through the functions and types of this file, by device address. ARGS(type) declares the struct of
// gpu/kernel that the kernel receives; its fields are g.field.
#extension GL_EXT_buffer_reference2 : require
#extension GL_EXT_scalar_block_layout : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#extension GL_EXT_shader_8bit_storage : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_control_flow_attributes : require

#define float32_t float
#ifndef SHADER_HAS_INT32_T
#    define int32_t int
#    define uint32_t uint
#endif

#include "ggml_enums.h"

layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;
layout(constant_id = 3) const uint SHARED_WORDS = 1; // the shared_size of a launch, in words of 32 bits

layout(push_constant, scalar) uniform push_constants {
    uint64_t args;
    uint64_t tables; // struct vulkan_tables
    uvec3 grid;      // number of workgroups
    uint pad;
} push;

#define ARGS(type) \
    layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer args_at { \
        type value; \
    };
#define g args_at(push.args).value

// ---- memory ----

layout(buffer_reference, scalar, buffer_reference_align = 1) buffer at_u8 { uint8_t v; };
layout(buffer_reference, scalar, buffer_reference_align = 1) buffer at_i8 { int8_t v; };
layout(buffer_reference, scalar, buffer_reference_align = 2) buffer at_u16 { uint16_t v; };
layout(buffer_reference, scalar, buffer_reference_align = 2) buffer at_i16 { int16_t v; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer at_u32 { uint v; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer at_i32 { int v; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer at_f32 { float v; };
layout(buffer_reference, scalar, buffer_reference_align = 16) buffer at_f32x4 { vec4 v; };
layout(buffer_reference, scalar, buffer_reference_align = 16) buffer at_u32x4 { uvec4 v; };

uint load_u8(uint64_t p) {
    return uint(at_u8(p).v);
}
int load_i8(uint64_t p) {
    return int(at_i8(p).v);
}
uint load_u16(uint64_t p) {
    return uint(at_u16(p).v);
}
uint load_u32(uint64_t p) {
    return at_u32(p).v;
}
int load_i32(uint64_t p) {
    return at_i32(p).v;
}
float load_f32(uint64_t p) {
    return at_f32(p).v;
}
// An address that is a multiple of 4, not necessarily of 8.
uvec2 load_u64(uint64_t p) {
    return uvec2(at_u32(p).v, at_u32(p + 4).v);
}
int64_t load_i64(uint64_t p) {
    const uvec2 v = load_u64(p);
    return int64_t(uint64_t(v.x) | uint64_t(v.y) << 32);
}
void store_u8(uint64_t p, uint v) {
    at_u8(p).v = uint8_t(v);
}
void store_u16(uint64_t p, uint v) {
    at_u16(p).v = uint16_t(v);
}
void store_u32(uint64_t p, uint v) {
    at_u32(p).v = v;
}
void store_f32(uint64_t p, float v) {
    at_f32(p).v = v;
}
void store_u64(uint64_t p, uvec2 v) {
    at_u32(p).v = v.x;
    at_u32(p + 4).v = v.y;
}

// ---- numbers ----

#define INFINITY uintBitsToFloat(0x7f800000u)
#define NOT_A_NUMBER uintBitsToFloat(0x7fc00000u)

bool is_nan(float v) {
    return (floatBitsToUint(v) & 0x7fffffffu) > 0x7f800000u;
}
bool is_finite(float v) {
    return (floatBitsToUint(v) & 0x7f800000u) != 0x7f800000u;
}
// As fmaxf and fminf: if one of the numbers is NaN, the result is the other one.
float max_of(float a, float b) {
    return is_nan(a) || b > a ? b : a;
}
float min_of(float a, float b) {
    return is_nan(a) || b < a ? b : a;
}

float half_to_float(uint h) {
    const uint exponent = h >> 10 & 31u, mantissa = h & 1023u;
    uint bits = (exponent + 112u) << 23 | mantissa << 13;
    if (exponent == 0u) {
        bits = floatBitsToUint(float(mantissa) * 5.9604644775390625e-08);
    } else if (exponent == 31u) {
        bits = 0x7f800000u | mantissa << 13;
    }
    return uintBitsToFloat(bits | (h & 0x8000u) << 16);
}
// Rounds to nearest even.
uint float_to_half(float f) {
    const uint bits = floatBitsToUint(f), sign = bits >> 16 & 0x8000u, u = bits & 0x7fffffffu;
    if (u > 0x7f800000u) {
        return sign | 0x7e00u;
    }
    if (u >= 0x477ff000u) {
        return sign | 0x7c00u;
    }
    if (u < 0x38800000u) { // below the smallest normal f16
        if (u < 0x33000000u) {
            return sign;
        }
        const uint shift = 126u - (u >> 23), mantissa = (u & 0x7fffffu) | 0x800000u;
        const uint rest = mantissa & ((1u << shift) - 1u), tie = 1u << (shift - 1u);
        uint h = mantissa >> shift;
        if (rest > tie || (rest == tie && (h & 1u) != 0u)) {
            h++;
        }
        return sign | h;
    }
    const uint rounded = u + 0xfffu + (u >> 13 & 1u);
    return sign | (rounded - 0x38000000u) >> 13;
}
float bf16_to_float(uint b) {
    return uintBitsToFloat(b << 16);
}
uint float_to_bf16(float f) {
    const uint u = floatBitsToUint(f);
    return is_nan(f) ? (u >> 16 | 64u) & 0xffffu : (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
}
// Converts a number of 64 bits without the type double, which some devices lack.
float double_to_float(uvec2 v) {
    const int exponent = int(v.y >> 20 & 2047u) - 1023;
    const uint sign = v.y & 0x80000000u;
    const uint64_t mantissa = uint64_t(v.y & 0xfffffu) << 32 | uint64_t(v.x);
    if (exponent == 1024) {
        return uintBitsToFloat(sign | 0x7f800000u | (mantissa != 0 ? 0x400000u : 0u));
    }
    if (exponent < -150) {
        return uintBitsToFloat(sign);
    }
    const uint64_t full = mantissa | uint64_t(1) << 52;
    const int shift = exponent >= -126 ? 29 : 29 + (-126 - exponent);
    if (shift > 54) {
        return uintBitsToFloat(sign);
    }
    const uint64_t rest = full & ((uint64_t(1) << shift) - 1), tie = uint64_t(1) << (shift - 1);
    uint64_t m = full >> shift;
    if (rest > tie || (rest == tie && (m & 1) != 0)) {
        m++;
    }
    if (exponent < -126) {
        return uintBitsToFloat(sign | uint(m));
    }
    const uint64_t bits = (uint64_t(exponent + 127) << 23) + (m - 0x800000);
    return bits >= 0x7f800000 ? uintBitsToFloat(sign | 0x7f800000u) : uintBitsToFloat(sign | uint(bits));
}
uvec2 float_to_double(float f) {
    const uint u = floatBitsToUint(f), sign = u & 0x80000000u, exponent = u >> 23 & 255u;
    uint mantissa = u & 0x7fffffu;
    if (exponent == 255u) {
        return uvec2(mantissa << 29, sign | 0x7ff00000u | mantissa >> 3);
    }
    if (exponent == 0u) {
        if (mantissa == 0u) {
            return uvec2(0u, sign);
        }
        const int high = findMSB(mantissa);
        mantissa = mantissa << (23 - high) & 0x7fffffu;
        return uvec2(mantissa << 29, sign | uint(high - 149 + 1023) << 20 | mantissa >> 3);
    }
    return uvec2(mantissa << 29, sign | (exponent + 896u) << 20 | mantissa >> 3);
}

// type: f32, f16, bf16, f64 or an integer type.
float load_number(uint64_t p, int type) {
    switch (type) {
        case GGML_TYPE_F32: return load_f32(p);
        case GGML_TYPE_F16: return half_to_float(load_u16(p));
        case GGML_TYPE_BF16: return bf16_to_float(load_u16(p));
        case GGML_TYPE_I32: return float(load_i32(p));
        case GGML_TYPE_I16: return float(int(at_i16(p).v));
        case GGML_TYPE_I8: return float(load_i8(p));
        case GGML_TYPE_F64: return double_to_float(load_u64(p));
        default: return float(load_i64(p));
    }
}
void store_number(uint64_t p, int type, float v) {
    switch (type) {
        case GGML_TYPE_F32: store_f32(p, v); break;
        case GGML_TYPE_F16: store_u16(p, float_to_half(v)); break;
        case GGML_TYPE_BF16: store_u16(p, float_to_bf16(v)); break;
        case GGML_TYPE_I32: at_i32(p).v = int(v); break;
        case GGML_TYPE_I16: store_u16(p, uint(int(v))); break;
        case GGML_TYPE_I8: store_u8(p, uint(int(v))); break;
        case GGML_TYPE_F64: store_u64(p, float_to_double(v)); break;
        default: {
            const int64_t i = int64_t(v);
            store_u64(p, uvec2(uint(i), uint(i >> 32)));
        }
    }
}

// ---- functions that GLSL lacks or that drivers compute with few bits ----

// The rounding error of the product a * b, exact unless it underflows. A driver need not have a fused multiply-add.
float product_error(float a, float b) {
    precise float ca = 4097.0 * a;
    precise float ah = ca - (ca - a);
    precise float al = a - ah;
    precise float cb = 4097.0 * b;
    precise float bh = cb - (cb - b);
    precise float bl = b - bh;
    precise float p = a * b;
    precise float e = ((ah * bh - p) + ah * bl + al * bh) + al * bl;
    return e;
}

// a * b + c with one rounding, except in rare cases.
float fused(float a, float b, float c) {
    precise float p = a * b;
    precise float s = p + c;
    precise float back = s - p;
    precise float rest = (p - (s - back)) + (c - back) + product_error(a, b);
    return is_finite(rest) ? s + rest : s;
}

// a / b rounded to nearest, except in rare cases. Drivers need to divide accurately only if 2^-126 <= |b| <= 2^126.
float divided(float a, float b) {
    float scale = 1.0;
    if (abs(b) > 1e37) {
        scale = 9.5367431640625e-07;
    } else if (abs(b) < 1e-30) {
        scale = 1048576.0;
    }
    const float c = b * scale, x = a * scale, q = x / c;
    precise float p = q * c;
    const float rest = (x - p) - product_error(q, c);
    return rest != 0.0 && is_finite(rest) && is_finite(q) ? q + rest / c : q; // -0 + 0 would be 0
}

// e^v with an error of about one unit in the last place: 2^n times a polynomial over [-ln 2 / 2, ln 2 / 2].
float exp_of(float v) {
    if (is_nan(v)) {
        return v;
    }
    if (v > 88.8) {
        return INFINITY;
    }
    if (v < -104.0) {
        return 0.0;
    }
    const float n = roundEven(v * 1.44269504088896341);
    const float r = fma(n, -1.42860677e-6, fma(n, -0.693145751953125, v));
    float p = 1.9875691500e-4;
    p = fma(p, r, 1.3981999507e-3);
    p = fma(p, r, 8.3334519073e-3);
    p = fma(p, r, 4.1665795894e-2);
    p = fma(p, r, 1.6666665459e-1);
    p = fma(p, r, 5.0000001201e-1);
    p = fma(p, r * r, r) + 1.0;
    const int e = int(n), half_e = e / 2;
    return p * uintBitsToFloat(uint(half_e + 127) << 23) * uintBitsToFloat(uint(e - half_e + 127) << 23);
}
// e^v - 1, also exact near 0.
float expm1_of(float v) {
    if (abs(v) < 0.5) {
        float p = 2.48015873e-5;
        p = fma(p, v, 1.98412698e-4);
        p = fma(p, v, 1.38888889e-3);
        p = fma(p, v, 8.33333333e-3);
        p = fma(p, v, 4.16666667e-2);
        p = fma(p, v, 1.66666667e-1);
        p = fma(p, v, 0.5);
        return fma(p, v * v, v);
    }
    return exp_of(v) - 1.0;
}
float log_of(float v) {
    if (is_nan(v) || v < 0.0) {
        return NOT_A_NUMBER;
    }
    if (v == 0.0 || v == INFINITY) {
        return v == 0.0 ? -INFINITY : v;
    }
    float x = v, e = 0.0;
    if (x < 1.17549435e-38) {
        x *= 8388608.0;
        e = -23.0;
    }
    const uint u = floatBitsToUint(x);
    e += float(int(u >> 23) - 127);
    float m = uintBitsToFloat((u & 0x7fffffu) | 0x3f800000u);
    if (m > 1.41421356) {
        m *= 0.5;
        e += 1.0;
    }
    const float s = (m - 1.0) / (m + 1.0), s2 = s * s;
    float p = 0.111111111;
    p = fma(p, s2, 0.142857143);
    p = fma(p, s2, 0.2);
    p = fma(p, s2, 0.333333333);
    const float r = 2.0 * fma(p * s2, s, s);
    return fma(e, 0.693145751953125, fma(e, 1.42860677e-6, r));
}
float tanh_of(float v) {
    if (abs(v) > 9.1) {
        return v > 0.0 ? 1.0 : -1.0;
    }
    const float t = expm1_of(2.0 * abs(v)), r = t / (t + 2.0);
    return v < 0.0 ? -r : (v >= 0.0 ? r : v);
}
// The error function: a series near 0, otherwise 1 - erfc by a continued fraction that was fitted to f32.
float erf_of(float v) {
    if (is_nan(v)) {
        return v;
    }
    const float a = abs(v);
    if (a < 1.0) {
        const float z = a * a;
        float p = 7.853861353153693e-5;
        p = fma(p, z, -8.010193625184903e-4);
        p = fma(p, z, 5.188327685732524e-3);
        p = fma(p, z, -2.685381193529856e-2);
        p = fma(p, z, 1.128358514861418e-1);
        p = fma(p, z, -3.761262582423300e-1);
        p = fma(p, z, 1.128379165726710);
        return v * p;
    }
    if (a > 4.0) {
        return v > 0.0 ? 1.0 : -1.0;
    }
    // Abramowitz and Stegun 7.1.28, in the form of 7.1.26 with a reciprocal: accurate to 1.5e-7
    const float t = 1.0 / fma(0.3275911, a, 1.0);
    float p = 1.061405429;
    p = fma(p, t, -1.453152027);
    p = fma(p, t, 1.421413741);
    p = fma(p, t, -0.284496736);
    p = fma(p, t, 0.254829592);
    const float r = 1.0 - p * t * exp_of(-a * a);
    return v < 0.0 ? -r : r;
}
// Returns the remainder of v modulo pi / 2, nearest to 0, for finite |v| >= 2. q: the quotient modulo 4. v / (2 pi) is computed
// in integers, with the bits of 1 / (2 pi) that the exponent of v requires.
float quarter_turn_of(float v, out int q) {
    const uint turns[8] = uint[8]( // 1 / (2 pi)
        0u, 0x28be60dbu, 0x9391054au, 0x7f09d5f4u, 0x7d4d3770u, 0x36d8a566u, 0x4f10e410u, 0x7f9458eau);
    const uint bits = floatBitsToUint(v), mantissa = bits << 8 | 0x80000000u;
    const int exponent = int(bits >> 23 & 255u) - 126, first = exponent >> 5, shift = exponent & 31;
    uint word[3];
    for (int i = 0; i < 3; i++) {
        const uint64_t two = uint64_t(turns[first + i]) << 32 | uint64_t(turns[first + i + 1]);
        word[i] = uint(two >> (32 - shift));
    }
    uint64_t p = uint64_t(mantissa) * uint64_t(word[2]);
    p = uint64_t(mantissa) * uint64_t(word[1]) + (p >> 32);
    p += uint64_t(mantissa * word[0]) << 32;
    q = int(uint(p >> 62)); // p: the angle in full turns, times 2^64
    int64_t rest = int64_t(p & ((uint64_t(1) << 62) - 1));
    if (rest >= int64_t(1) << 61) {
        rest -= int64_t(1) << 62;
        q++;
    }
    const float r = float(rest) * 3.4061215800304946e-19; // pi / 2 / 2^62
    if (v < 0.0) {
        q = -q & 3;
        return -r;
    }
    q &= 3;
    return r;
}
vec2 cos_sin_of(float v) {
    if (!is_finite(v)) {
        return vec2(NOT_A_NUMBER);
    }
    const float n = roundEven(v * 0.636619772367581343);
    int q = int(n) & 3;
    float r = fma(n, -1.5707963267341256, v);
    r = fma(n, -6.0771005063e-11, r);
    if (abs(n) > 4096.0) {
        r = quarter_turn_of(v, q);
    }
    const float z = r * r;
    float s = 2.7183114939898219064e-6;
    s = fma(s, z, -1.9839334836096632576e-4);
    s = fma(s, z, 8.3333293858894631756e-3);
    s = fma(s, z, -1.66666666416265235595e-1);
    s = fma(s * z, r, r);
    float c = 2.44331571e-5;
    c = fma(c, z, -1.38873162e-3);
    c = fma(c, z, 4.16666456e-2);
    c = fma(c, z, -0.5);
    c = fma(c, z, 1.0);
    const vec2 cs = (q & 1) == 0 ? vec2(c, s) : vec2(s, c);
    return vec2(q == 1 || q == 2 ? -cs.x : cs.x, q >= 2 ? -cs.y : cs.y);
}
// base^v for base > 0.
float pow_of(float base, float v) {
    return exp_of(v * log_of(base));
}

float silu_of(float v) {
    return v / (1.0 + exp_of(-v));
}

// ---- indices ----

uint thread_x() {
    return gl_LocalInvocationID.x;
}
uint block_dim() {
    return gl_WorkGroupSize.x;
}
int64_t thread_index() {
    return int64_t(gl_WorkGroupID.x) * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
}
int64_t thread_count() {
    return int64_t(push.grid.x) * gl_WorkGroupSize.x;
}
