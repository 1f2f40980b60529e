// SPDX-License-Identifier: MIT
// eltwise.cu: element-wise ops of one and two sources, and GLU. Contiguous f32 tensors are processed as float4. The formulas are
// those of cpu/op/eltwise.c and glu.c.

#include "cuda/kernel/comm.h"
#include "cuda/kernel/common.cuh"
#include "gpu/kernel/eltwise.h"

DEV float clip01(float v) {
    return fminf(1.0f, fmaxf(0.0f, v));
}
DEV float sigmoid(float v) {
    return 1.0f / (1.0f + expf(-v));
}
DEV float silu(float v) {
    return v / (1.0f + expf(-v));
}
DEV float gelu_tanh(float v) {
    return 0.5f * v * (1.0f + tanhf(0.79788456080286535587989211986876f * v * (1.0f + 0.044715f * v * v)));
}
DEV float gelu_erf(float v) {
    return 0.5f * v * (1.0f + erff(v * 0.70710678118654752440f));
}
DEV float gelu(float v) {
    if (v <= -10.0f) {
        return 0.0f;
    }
    return v >= 10.0f ? v : gelu_tanh(v);
}
DEV float sign(float v) {
    if (v > 0.0f) {
        return 1.0f;
    }
    return v < 0.0f ? -1.0f : 0.0f;
}
DEV float gelu_quick(float v) {
    if (fabsf(v) >= 65520.0f) { // the CPU computes this function in f16, which overflows here
        v = copysignf(INFINITY, v);
    }
    return v * (1.0f / (1.0f + expf(-1.702f * v)));
}

DEV float unary(int what, float v, const float *p) {
    switch (what) {
        case GGML_UNARY_OP_ABS: return fabsf(v);
        case GGML_UNARY_OP_SGN: return sign(v);
        case GGML_UNARY_OP_NEG: return -v;
        case GGML_UNARY_OP_STEP: return v > 0.0f ? 1.0f : 0.0f;
        case GGML_UNARY_OP_TANH: return tanhf(v);
        case GGML_UNARY_OP_ELU: return v > 0.0f ? v : expm1f(v);
        case GGML_UNARY_OP_RELU: return v > 0.0f ? v : 0.0f;
        case GGML_UNARY_OP_SIGMOID: return sigmoid(v);
        case GGML_UNARY_OP_GELU: return gelu(v);
        case GGML_UNARY_OP_GELU_QUICK: return gelu_quick(v);
        case GGML_UNARY_OP_SILU: return silu(v);
        case GGML_UNARY_OP_HARDSWISH: return v * clip01((v + 3.0f) / 6.0f);
        case GGML_UNARY_OP_HARDSIGMOID: return clip01((v + 3.0f) / 6.0f);
        case GGML_UNARY_OP_EXP: return expf(v);
        case GGML_UNARY_OP_EXPM1: return expm1f(v);
        case GGML_UNARY_OP_SOFTPLUS: return v > 20.0f ? v : logf(1.0f + expf(v));
        case GGML_UNARY_OP_GELU_ERF: return gelu_erf(v);
        case GGML_UNARY_OP_XIELU: return v > 0.0f ? p[1] * v * v + p[2] * v : (expm1f(fminf(v, p[3])) - v) * p[0] + p[2] * v;
        case GGML_UNARY_OP_FLOOR: return floorf(v);
        case GGML_UNARY_OP_CEIL: return ceilf(v);
        case GGML_UNARY_OP_ROUND: return roundf(v);
        case GGML_UNARY_OP_TRUNC: return truncf(v);
        case GPU_MAP(GGML_OP_SQR): return v * v;
        case GPU_MAP(GGML_OP_SQRT): return sqrtf(v);
        case GPU_MAP(GGML_OP_LOG): return logf(v);
        case GPU_MAP(GGML_OP_SIN): return sinf(v);
        case GPU_MAP(GGML_OP_COS): return cosf(v);
        case GPU_MAP(GGML_OP_SCALE): return v * p[0] + p[1];
        case GPU_MAP(GGML_OP_CLAMP): return fmaxf(fminf(v, p[1]), p[0]);
        case GPU_MAP(GGML_OP_LEAKY_RELU): return (v > 0.0f ? v : 0.0f) + p[0] * (v < 0.0f ? v : 0.0f);
        default: return p[0]; // GGML_OP_FILL
    }
}

// For any float type in any layout.
KERNEL map_any(const __grid_constant__ struct gpu_map_args g) {
    dep_begin();
    for (int64_t i = thread_index(); i < g.n; i += thread_count()) {
        const at4 x = g.index.d0.d != 0 ? index_split(i, g.index) : index_split(i, g.dst.ne);
        const float v = g.what == GPU_MAP(GGML_OP_FILL) ? 0.0f : load_number(at(g.a, x), g.a.type);
        store_number(at(g.dst, x), g.dst.type, unary(g.what, v, g.p));
    }
}

// For contiguous f32 tensors whose number of elements is a multiple of 4.
KERNEL map_dense(const __grid_constant__ struct gpu_map_args g) {
    dep_begin();
    for (int64_t i = thread_index(); i < g.n / 4; i += thread_count()) {
        const float4 v = ((const float4 *) g.a.p)[i];
        ((float4 *) g.dst.p)[i] =
            make_float4(unary(g.what, v.x, g.p), unary(g.what, v.y, g.p), unary(g.what, v.z, g.p), unary(g.what, v.w, g.p));
    }
}

DEV float limited(float x, float limit) {
    if (x < -limit) {
        return -limit;
    }
    return x > limit ? limit : x;
}

// Returns act(x) * u. x: element of a; u: element of b.
DEV float glu(const struct gpu_glu_args &g, float x, float u) {
    switch (g.what) {
        case GGML_GLU_OP_REGLU: return x > 0.0f ? x * u : 0.0f;
        case GGML_GLU_OP_GEGLU:
            if (g.a_is_16) { // the CPU's f16 table computes inf * 0 for -INFINITY
                return (x == -INFINITY ? NAN : gelu(x)) * u;
            }
            return x <= -10.0f ? 0.0f : gelu(x) * u;
        case GGML_GLU_OP_SWIGLU: return silu(x) * u;
        case GGML_GLU_OP_SWIGLU_OAI: {
            const float v = g.limit < x ? g.limit : x;
            return v / (1.0f + expf(g.alpha * -v)) * (limited(u, g.limit) + 1.0f);
        }
        case GGML_GLU_OP_GEGLU_ERF: return gelu_erf(x) * u;
        case GGML_GLU_OP_GEGLU_QUICK: return gelu_quick(x) * u;
        default: { // GGML_GLU_OP_SWIGLU_CLAMP
            const float v = g.limit < x ? g.limit : x;
            return v / (1.0f + expf(-v)) * limited(u, g.limit);
        }
    }
}

KERNEL glu_any(const __grid_constant__ struct gpu_glu_args g) {
    dep_begin();
    for (int64_t i = thread_index(); i < g.n; i += thread_count()) {
        const at4 x = g.index.d0.d != 0 ? index_split(i, g.index) : index_split(i, g.dst.ne);
        store_number(at(g.dst, x), g.dst.type, glu(g, load_number(at(g.a, x), g.a.type), load_number(at(g.b, x), g.b.type)));
    }
}

// Requires f32 rows at multiples of 16 bytes with a multiple of 4 elements. index and n count float4.
KERNEL glu_fours(const __grid_constant__ struct gpu_glu_args g) {
    dep_begin();
    for (int64_t i = thread_index(); i < g.n; i += thread_count()) {
        at4 x = index_split(i, g.index);
        x.i0 *= 4;
        const float4 a = *(const float4 *) at(g.a, x), b = *(const float4 *) at(g.b, x);
        *(float4 *) at(g.dst, x) = make_float4(glu(g, a.x, b.x), glu(g, a.y, b.y), glu(g, a.z, b.z), glu(g, a.w, b.w));
    }
}

DEV float binary(int what, float a, float b) {
    switch (what) {
        case GGML_OP_ADD: return a + b;
        case GGML_OP_SUB: return a - b;
        case GGML_OP_MUL: return a * b;
        default: return a / b;
    }
}

KERNEL eltwise_binary(const __grid_constant__ struct gpu_binary_args g) {
    dep_begin();
    for (int64_t i = thread_index(); i < g.n; i += thread_count()) {
        const at4 x = g.index.d0.d != 0 ? index_split(i, g.index) : index_split(i, g.dst.ne);
        const float a = load_number(at(g.a, x), g.a.type), b = load_number(at_repeat(g.b, x), g.b.type);
        store_number(at(g.dst, x), g.dst.type, binary(g.what, a, b));
    }
}

KERNEL eltwise_binary_dense(const __grid_constant__ struct gpu_binary_dense_args g) {
    dep_begin();
    for (int64_t i = thread_index(); i < g.n / 4; i += thread_count()) {
        const float4 a = ((const float4 *) g.a)[i];
        const int64_t j = g.n == g.n_b ? i : i - (int64_t) div_by((uint32_t) i, g.d_b) * (g.n_b / 4);
        const float4 b = ((const float4 *) g.b)[j];
        ((float4 *) g.dst)[i] =
            make_float4(binary(g.what, a.x, b.x), binary(g.what, a.y, b.y), binary(g.what, a.z, b.z), binary(g.what, a.w, b.w));
    }
}

// Reads each tensor directly from the memory of its device (comm.c).
KERNEL comm_sum(const __grid_constant__ struct cuda_comm_args g) {
    for (int64_t i = thread_index(); i < g.n; i += thread_count()) {
        float sum = 0.0f;
        for (int j = 0; j < g.n_from; j++) {
            sum += g.from[j] != nullptr ? load_number(g.from[j] + i * g.size, g.type) : 0.0f;
        }
        store_number(g.to + i * g.size, g.type, sum);
    }
}
