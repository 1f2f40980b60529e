// SPDX-License-Identifier: MIT
// common.cuh: helpers of all kernel files: overlapping launches, number types, element indices, sums over warps and blocks.
#pragma once

#include "ggml.h"
#include "gpu/kernel/args.h"
#include "quant/blocks.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define KERNEL extern "C" __global__ void
#define DEV static __device__ __forceinline__

// ---- overlap: a kernel launched with gpu_dims.overlap may start before the previous kernel ends ----

// Waits until the previous kernel has ended and its results are visible.
DEV void dep_wait() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// Allows the next kernel to start when all blocks of this kernel have called dep_launch() or ended.
DEV void dep_launch() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" :::);
#endif
}

// Waits for the previous kernel, then allows the next kernel to start. For kernels that can do nothing before the wait. If a
// kernel allowed the next kernel to start before the wait, blocks of the next kernel could take resources that blocks of this
// kernel still need to start.
DEV void dep_begin() {
    dep_wait();
    dep_launch();
}

// ---- numbers ----

DEV float half_to_float(uint16_t h) {
    return __half2float(__ushort_as_half(h));
}
DEV uint16_t float_to_half(float f) {
    return __half_as_ushort(__float2half_rn(f));
}
DEV float bf16_to_float(uint16_t b) {
    return __uint_as_float((uint32_t) b << 16);
}
DEV uint16_t float_to_bf16(float f) {
    return __bfloat16_as_ushort(__float2bfloat16_rn(f));
}

// type: f32, f16, bf16, f64 or an integer type.
DEV float load_number(const char *p, int type) {
    switch (type) {
        case GGML_TYPE_F32: return *(const float *) p;
        case GGML_TYPE_F16: return half_to_float(*(const uint16_t *) p);
        case GGML_TYPE_BF16: return bf16_to_float(*(const uint16_t *) p);
        case GGML_TYPE_I32: return (float) *(const int32_t *) p;
        case GGML_TYPE_I16: return (float) *(const int16_t *) p;
        case GGML_TYPE_I8: return (float) *(const int8_t *) p;
        case GGML_TYPE_F64: return (float) *(const double *) p;
        default: return (float) *(const int64_t *) p;
    }
}
DEV void store_number(char *p, int type, float v) {
    switch (type) {
        case GGML_TYPE_F32: *(float *) p = v; break;
        case GGML_TYPE_F16: *(uint16_t *) p = float_to_half(v); break;
        case GGML_TYPE_BF16: *(uint16_t *) p = float_to_bf16(v); break;
        case GGML_TYPE_I32: *(int32_t *) p = (int32_t) v; break;
        case GGML_TYPE_I16: *(int16_t *) p = (int16_t) v; break;
        case GGML_TYPE_I8: *(int8_t *) p = (int8_t) v; break;
        case GGML_TYPE_F64: *(double *) p = v; break;
        default: *(int64_t *) p = (int64_t) v; break;
    }
}

// ---- indices ----

DEV uint32_t div_by(uint32_t n, struct gpu_div d) {
    return (uint32_t) (((uint64_t) __umulhi(n, d.mul) + n) >> d.shift);
}
struct at4 {
    int64_t i0, i1, i2, i3;
};
DEV at4 index_split(int64_t i, const struct gpu_index &x) {
    const uint32_t n = (uint32_t) i;
    const uint32_t i3 = div_by(n, x.d012), r3 = n - i3 * x.d012.d;
    const uint32_t i2 = div_by(r3, x.d01), r2 = r3 - i2 * x.d01.d;
    const uint32_t i1 = div_by(r2, x.d0);
    return {r2 - i1 * x.d0.d, i1, i2, i3};
}
// For tensors of any size.
DEV at4 index_split(int64_t i, const int64_t ne[4]) {
    const int64_t i3 = i / (ne[0] * ne[1] * ne[2]);
    i -= i3 * ne[0] * ne[1] * ne[2];
    const int64_t i2 = i / (ne[0] * ne[1]);
    i -= i2 * ne[0] * ne[1];
    return {i % ne[0], i / ne[0], i2, i3};
}
DEV char *at(const struct gpu_view &v, int64_t i0, int64_t i1, int64_t i2, int64_t i3) {
    return v.p + i0 * v.nb[0] + i1 * v.nb[1] + i2 * v.nb[2] + i3 * v.nb[3];
}
DEV char *at(const struct gpu_view &v, const at4 &i) {
    return at(v, i.i0, i.i1, i.i2, i.i3);
}
// Returns the element that broadcasts to index i: each index is taken modulo the extent.
DEV char *at_repeat(const struct gpu_view &v, const at4 &i) {
    const int64_t i0 = i.i0 < v.ne[0] ? i.i0 : i.i0 % v.ne[0], i1 = i.i1 < v.ne[1] ? i.i1 : i.i1 % v.ne[1];
    const int64_t i2 = i.i2 < v.ne[2] ? i.i2 : i.i2 % v.ne[2], i3 = i.i3 < v.ne[3] ? i.i3 : i.i3 % v.ne[3];
    return at(v, i0, i1, i2, i3);
}
DEV int64_t thread_index() {
    return (int64_t) blockIdx.x * blockDim.x + threadIdx.x;
}
DEV int64_t thread_count() {
    return (int64_t) gridDim.x * blockDim.x;
}

// ---- reductions: all threads of the warp or block must call, and all receive the result ----

DEV float warp_sum(float v) {
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) {
        v += __shfl_xor_sync(0xffffffffu, v, o);
    }
    return v;
}
DEV float warp_max(float v) {
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) {
        v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, o));
    }
    return v;
}
// Adds v[i] over 16 lanes. Lanes 2 i and 2 i + 1 receive the sum of v[i].
DEV float sum_of_eight(const float *v, int lane) {
    float a[4], b[2];
    const bool e = (lane & 8) != 0, f = (lane & 4) != 0, h = (lane & 2) != 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        a[i] = (e ? v[i + 4] : v[i]) + __shfl_xor_sync(~0u, e ? v[i] : v[i + 4], 8);
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        b[i] = (f ? a[i + 2] : a[i]) + __shfl_xor_sync(~0u, f ? a[i] : a[i + 2], 4);
    }
    const float c = (h ? b[1] : b[0]) + __shfl_xor_sync(~0u, h ? b[0] : b[1], 2);
    return c + __shfl_xor_sync(~0u, c, 1);
}
// Combines v over all threads of the block. Requires full warps and at most 1024 threads. Over: warp_sum or warp_max. none: the
// neutral element of Over.
template <float (*Over)(float)> DEV float block_reduce(float v, float none) {
    __shared__ float part[33];
    v = Over(v);
    if (blockDim.x <= 32) {
        return v;
    }
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    __syncthreads(); // another thread may still read an earlier result
    if (lane == 0) {
        part[warp] = v;
    }
    __syncthreads();
    if (warp == 0) {
        v = Over(lane < (int) blockDim.x / 32 ? part[lane] : none);
        if (lane == 0) {
            part[32] = v;
        }
    }
    __syncthreads();
    return part[32];
}
DEV float block_sum(float v) {
    return block_reduce<warp_sum>(v, 0.0f);
}
DEV float block_max(float v) {
    return block_reduce<warp_max>(v, -INFINITY);
}
