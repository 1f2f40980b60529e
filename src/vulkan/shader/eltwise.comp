#version 450
// SPDX-License-Identifier: MIT
// eltwise.comp: element-wise ops of one and two sources, and GLU. The formulas are those of cpu/op/eltwise.c and glu.c.
//KERNEL map_any
//KERNEL map_dense
//KERNEL glu_any
//KERNEL glu_fours
//KERNEL eltwise_binary
//KERNEL eltwise_binary_dense
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "tensor.glsl"
#include "eltwise.h"

float clip01(float v) {
    return min_of(1.0, max_of(0.0, v));
}
float gelu_tanh(float v) {
    return 0.5 * v * (1.0 + tanh_of(0.79788456080286535587989211986876 * v * (1.0 + 0.044715 * v * v)));
}
float gelu_erf(float v) {
    return 0.5 * v * (1.0 + erf_of(v * 0.70710678118654752440));
}
float gelu(float v) {
    if (v <= -10.0) {
        return 0.0;
    }
    return v >= 10.0 ? v : gelu_tanh(v);
}
float gelu_quick(float v) {
    if (abs(v) >= 65520.0) { // the CPU computes this function in f16, which overflows here
        v = v > 0.0 ? INFINITY : -INFINITY;
    }
    return v * (1.0 / (1.0 + exp_of(-1.702 * v)));
}
float round_away(float v) { // halves away from zero
    const float t = trunc(v);
    return abs(v - t) >= 0.5 ? t + sign(v) : t;
}

#define MAP(op) (GGML_UNARY_OP_COUNT + op)

float unary(int what, float v, float p0, float p1, float p2, float p3) {
    switch (what) {
        case GGML_UNARY_OP_ABS: return uintBitsToFloat(floatBitsToUint(v) & 0x7fffffffu);
        case GGML_UNARY_OP_SGN: return v > 0.0 ? 1.0 : (v < 0.0 ? -1.0 : 0.0);
        case GGML_UNARY_OP_NEG: return -v;
        case GGML_UNARY_OP_STEP: return v > 0.0 ? 1.0 : 0.0;
        case GGML_UNARY_OP_TANH: return tanh_of(v);
        case GGML_UNARY_OP_ELU: return v > 0.0 ? v : expm1_of(v);
        case GGML_UNARY_OP_RELU: return v > 0.0 ? v : 0.0;
        case GGML_UNARY_OP_SIGMOID: return 1.0 / (1.0 + exp_of(-v));
        case GGML_UNARY_OP_GELU: return gelu(v);
        case GGML_UNARY_OP_GELU_QUICK: return gelu_quick(v);
        case GGML_UNARY_OP_SILU: return silu_of(v);
        case GGML_UNARY_OP_HARDSWISH: return v * clip01((v + 3.0) / 6.0);
        case GGML_UNARY_OP_HARDSIGMOID: return clip01((v + 3.0) / 6.0);
        case GGML_UNARY_OP_EXP: return exp_of(v);
        case GGML_UNARY_OP_EXPM1: return expm1_of(v);
        case GGML_UNARY_OP_SOFTPLUS: return v > 20.0 ? v : log_of(1.0 + exp_of(v));
        case GGML_UNARY_OP_GELU_ERF: return gelu_erf(v);
        case GGML_UNARY_OP_XIELU: return v > 0.0 ? p1 * v * v + p2 * v : (expm1_of(min_of(v, p3)) - v) * p0 + p2 * v;
        case GGML_UNARY_OP_FLOOR: return floor(v);
        case GGML_UNARY_OP_CEIL: return ceil(v);
        case GGML_UNARY_OP_ROUND: return round_away(v);
        case GGML_UNARY_OP_TRUNC: return trunc(v);
        case MAP(GGML_OP_SQR): return v * v;
        case MAP(GGML_OP_SQRT): return sqrt(v);
        case MAP(GGML_OP_LOG): return log_of(v);
        case MAP(GGML_OP_SIN): return cos_sin_of(v).y;
        case MAP(GGML_OP_COS): return cos_sin_of(v).x;
        case MAP(GGML_OP_SCALE): return v * p0 + p1;
        case MAP(GGML_OP_CLAMP): return max_of(min_of(v, p1), p0);
        case MAP(GGML_OP_LEAKY_RELU): return (v > 0.0 ? v : 0.0) + p0 * (v < 0.0 ? v : 0.0);
        default: return p0; // GGML_OP_FILL
    }
}

float limited(float x, float limit) {
    if (x < -limit) {
        return -limit;
    }
    return x > limit ? limit : x;
}

// Returns act(x) * u. x: element of a; u: element of b.
float glu(int what, float alpha, float limit, bool a_is_16, float x, float u) {
    switch (what) {
        case GGML_GLU_OP_REGLU: return x > 0.0 ? x * u : 0.0;
        case GGML_GLU_OP_GEGLU:
            if (a_is_16) { // the CPU's f16 table computes inf * 0 for -INFINITY
                return (x == -INFINITY ? NOT_A_NUMBER : gelu(x)) * u;
            }
            return x <= -10.0 ? 0.0 : gelu(x) * u;
        case GGML_GLU_OP_SWIGLU: return silu_of(x) * u;
        case GGML_GLU_OP_SWIGLU_OAI: {
            const float v = limit < x ? limit : x;
            return v / (1.0 + exp_of(alpha * -v)) * (limited(u, limit) + 1.0);
        }
        case GGML_GLU_OP_GEGLU_ERF: return gelu_erf(x) * u;
        case GGML_GLU_OP_GEGLU_QUICK: return gelu_quick(x) * u;
        default: { // GGML_GLU_OP_SWIGLU_CLAMP
            const float v = limit < x ? limit : x;
            return v / (1.0 + exp_of(-v)) * limited(u, limit);
        }
    }
}

float binary(int what, float a, float b) {
    switch (what) {
        case GGML_OP_ADD: return a + b;
        case GGML_OP_SUB: return a - b;
        case GGML_OP_MUL: return a * b;
        default: return divided(a, b);
    }
}

#ifdef KERNEL_map_any
ARGS(gpu_map_args)
void main() {
    for (int64_t i = thread_index(); i < g.n; i += thread_count()) {
        const at4 x = index_split(i, g.index, g.dst);
        const float v = g.what == MAP(GGML_OP_FILL) ? 0.0 : load_number(at_element(g.a, x), g.a.type);
        store_number(at_element(g.dst, x), g.dst.type, unary(g.what, v, g.p[0], g.p[1], g.p[2], g.p[3]));
    }
}
#endif
#ifdef KERNEL_map_dense
ARGS(gpu_map_args)
void main() {
    for (int64_t i = thread_index(); i < g.n / 4; i += thread_count()) {
        vec4 v = at_f32x4(g.a.p + uint64_t(i * 16)).v;
        for (int k = 0; k < 4; k++) {
            v[k] = unary(g.what, v[k], g.p[0], g.p[1], g.p[2], g.p[3]);
        }
        at_f32x4(g.dst.p + uint64_t(i * 16)).v = v;
    }
}
#endif
#ifdef KERNEL_glu_any
ARGS(gpu_glu_args)
void main() {
    for (int64_t i = thread_index(); i < g.n; i += thread_count()) {
        const at4 x = index_split(i, g.index, g.dst);
        const float a = load_number(at_element(g.a, x), g.a.type), b = load_number(at_element(g.b, x), g.b.type);
        store_number(at_element(g.dst, x), g.dst.type, glu(g.what, g.alpha, g.limit, g.a_is_16 != 0, a, b));
    }
}
#endif
#ifdef KERNEL_glu_fours
ARGS(gpu_glu_args)
// Requires f32 rows at multiples of 16 bytes with a multiple of 4 elements. index and n count vectors of 4.
void main() {
    for (int64_t i = thread_index(); i < g.n; i += thread_count()) {
        at4 x = index_split_fast(i, g.index);
        x.i0 *= 4;
        const vec4 a = at_f32x4(at_element(g.a, x)).v, b = at_f32x4(at_element(g.b, x)).v;
        vec4 y;
        for (int k = 0; k < 4; k++) {
            y[k] = glu(g.what, g.alpha, g.limit, false, a[k], b[k]);
        }
        at_f32x4(at_element(g.dst, x)).v = y;
    }
}
#endif
#ifdef KERNEL_eltwise_binary
ARGS(gpu_binary_args)
void main() {
    for (int64_t i = thread_index(); i < g.n; i += thread_count()) {
        const at4 x = index_split(i, g.index, g.dst);
        const float a = load_number(at_element(g.a, x), g.a.type), b = load_number(at_repeat(g.b, x), g.b.type);
        store_number(at_element(g.dst, x), g.dst.type, binary(g.what, a, b));
    }
}
#endif
#ifdef KERNEL_eltwise_binary_dense
ARGS(gpu_binary_dense_args)
void main() {
    for (int64_t i = thread_index(); i < g.n / 4; i += thread_count()) {
        const int64_t j = g.n == g.n_b ? i : i - int64_t(div_by(uint(i), g.d_b)) * (g.n_b / 4);
        const vec4 a = at_f32x4(g.a + uint64_t(i * 16)).v, b = at_f32x4(g.b + uint64_t(j * 16)).v;
        vec4 y;
        for (int k = 0; k < 4; k++) {
            y[k] = binary(g.what, a[k], b[k]);
        }
        at_f32x4(g.dst + uint64_t(i * 16)).v = y;
    }
}
#endif
