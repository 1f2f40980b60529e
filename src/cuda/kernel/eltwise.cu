// SPDX-License-Identifier: MIT
// eltwise.cu: element by element, two sources: any floats in any layout, and the common case of dense f32 four at a time.

#include "cuda/kernel/common.cuh"
#include "cuda/kernel/eltwise.h"

DEV float binary(int what, float a, float b) {
    switch (what) {
        case CUDA_BINARY_ADD: return a + b;
        case CUDA_BINARY_SUB: return a - b;
        case CUDA_BINARY_MUL: return a * b;
        default: return a / b;
    }
}

KERNEL eltwise_binary(const __grid_constant__ struct cuda_binary_args g) {
    dep_begin();
    for (int64_t i = thread_index(); i < g.n; i += thread_count()) {
        const at4 x = g.index.d0.d != 0 ? index_split(i, g.index) : index_split(i, g.dst.ne);
        const float a = load_number(at(g.a, x), g.a.type), b = load_number(at_repeat(g.b, x), g.b.type);
        store_number(at(g.dst, x), g.dst.type, binary(g.what, a, b));
    }
}

KERNEL eltwise_binary_dense(const __grid_constant__ struct cuda_binary_dense_args g) {
    dep_begin();
    for (int64_t i = thread_index(); i < g.n / 4; i += thread_count()) {
        const float4 a = ((const float4 *) g.a)[i];
        const int64_t j = g.n == g.n_b ? i : i - (int64_t) div_by((uint32_t) i, g.d_b) * (g.n_b / 4);
        const float4 b = ((const float4 *) g.b)[j];
        ((float4 *) g.dst)[i] =
            make_float4(binary(g.what, a.x, b.x), binary(g.what, a.y, b.y), binary(g.what, a.z, b.z), binary(g.what, a.w, b.w));
    }
}

// The sum of the same tensor of several devices, read where it is.
KERNEL comm_sum(const __grid_constant__ struct cuda_comm_args g) {
    for (int64_t i = thread_index(); i < g.n; i += thread_count()) {
        float sum = 0.0f;
        for (int j = 0; j < g.n_from; j++) {
            sum += g.from[j] != nullptr ? load_number(g.from[j] + i * g.size, g.type) : 0.0f;
        }
        store_number(g.to + i * g.size, g.type, sum);
    }
}
