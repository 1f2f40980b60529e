// SPDX-License-Identifier: MIT
// reduce.cu: reductions of rows or of a tensor to one number, and running sums. Reductions sum in double, running sums in float.
// The order of the additions does not depend on how blocks are scheduled.

#include "cuda/kernel/common.cuh"
#include "gpu/kernel/reduce.h"

DEV double warp_sum_f64(double v) {
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) {
        v += __shfl_xor_sync(0xffffffffu, v, o);
    }
    return v;
}
DEV double block_sum_f64(double v) {
    __shared__ double part[32];
    v = warp_sum_f64(v);
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
        part[threadIdx.x / 32] = v;
    }
    __syncthreads();
    v = threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0.0;
    return warp_sum_f64(v); // valid only in the first warp
}

// Each block sums a part; then reduce_parts sums the parts.
KERNEL reduce_all(const __grid_constant__ struct gpu_reduce_args g) {
    dep_begin();
    double sum = 0.0;
    for (int64_t i = thread_index(); i < g.n; i += thread_count()) {
        const at4 x = g.index.d0.d != 0 ? index_split(i, g.index) : index_split(i, g.a.ne);
        if (g.b.p != nullptr) {
            sum += *(const int32_t *) at(g.a, x) == *(const int32_t *) at(g.b, x);
        } else {
            sum += load_number(at(g.a, x), g.a.type);
        }
    }
    sum = block_sum_f64(sum);
    if (threadIdx.x == 0) {
        g.parts[blockIdx.x] = sum;
    }
}
KERNEL reduce_parts(const __grid_constant__ struct gpu_reduce_args g) {
    dep_begin();
    double sum = 0.0;
    for (int i = threadIdx.x; i < g.n_parts; i += blockDim.x) {
        sum += g.parts[i];
    }
    sum = block_sum_f64(sum);
    if (threadIdx.x == 0) {
        if (g.dst.type == GGML_TYPE_I64) {
            *(int64_t *) g.dst.p = (int64_t) sum;
        } else {
            store_number(g.dst.p, g.dst.type, (float) sum);
        }
    }
}

DEV int64_t row_of(const struct gpu_view &v, int64_t ir, int d) {
    if (d == 1) {
        return ir % v.ne[1];
    }
    return d == 2 ? ir / v.ne[1] % v.ne[2] : ir / (v.ne[1] * v.ne[2]);
}

KERNEL reduce_rows(const __grid_constant__ struct gpu_reduce_args g) {
    dep_begin();
    const int64_t ir = blockIdx.x, i1 = row_of(g.a, ir, 1), i2 = row_of(g.a, ir, 2), i3 = row_of(g.a, ir, 3);
    const char *row = at(g.a, 0, i1, i2, i3);
    double sum = 0.0;
    for (int64_t i = threadIdx.x; i < g.n; i += blockDim.x) {
        sum += load_number(row + i * g.a.nb[0], g.a.type);
    }
    sum = block_sum_f64(sum);
    if (threadIdx.x == 0) {
        const float v = g.what == GGML_OP_MEAN ? (float) sum / (float) g.n : (float) sum;
        store_number(at(g.dst, 0, i1, i2, i3), g.dst.type, v);
    }
}

// Finds the index of the largest element; of equal elements, the last. Elements before the last NaN do not count. One block per
// row; each thread searches one stretch of consecutive elements.
KERNEL reduce_argmax(const __grid_constant__ struct gpu_reduce_args g) {
    dep_begin();
    const int64_t ir = blockIdx.x;
    const char *row = at(g.a, 0, ir, 0, 0);
    __shared__ float maxima[1024];
    __shared__ int64_t places[1024];
    __shared__ int resets[1024];
    const int64_t each = (g.n + blockDim.x - 1) / blockDim.x, begin = threadIdx.x * each, end = min(begin + each, g.n);
    float max = -INFINITY;
    int64_t at_ = -1;
    int reset = 0;
    for (int64_t i = begin; i < end; i++) {
        const float x = load_number(row + i * g.a.nb[0], g.a.type);
        if (!(max > x)) {
            max = x;
        }
        if (max == x) {
            at_ = i;
        }
        reset |= x != x;
    }
    maxima[threadIdx.x] = max, places[threadIdx.x] = at_, resets[threadIdx.x] = reset;
    __syncthreads();
    if (threadIdx.x == 0) {
        float best = -INFINITY;
        int64_t place = 0;
        for (int t = 0; t < blockDim.x; t++) {
            if (t * each >= g.n) {
                break;
            }
            if (resets[t]) { // a NaN discards the results of earlier stretches
                best = maxima[t];
                if (places[t] >= 0) {
                    place = places[t];
                }
                continue;
            }
            if (!(best > maxima[t])) {
                best = maxima[t];
                if (places[t] >= 0 && best == maxima[t]) {
                    place = places[t];
                }
            }
        }
        *(int32_t *) (g.dst.p + ir * g.dst.nb[0]) = (int32_t) place;
    }
}

// One block per row.
KERNEL reduce_cumsum(const __grid_constant__ struct gpu_reduce_args g) {
    __shared__ float warps[32];
    dep_begin();
    const int64_t ir = blockIdx.x, i1 = row_of(g.a, ir, 1), i2 = row_of(g.a, ir, 2), i3 = row_of(g.a, ir, 3);
    const char *from = at(g.a, 0, i1, i2, i3);
    char *to = at(g.dst, 0, i1, i2, i3);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, n_warps = blockDim.x / 32;
    float before = 0.0f;
    for (int64_t i0 = 0; i0 < g.n; i0 += blockDim.x) {
        const int64_t i = i0 + threadIdx.x;
        float v = i < g.n ? *(const float *) (from + i * g.a.nb[0]) : 0.0f;
#pragma unroll
        for (int o = 1; o < 32; o <<= 1) {
            const float w = __shfl_up_sync(0xffffffffu, v, o);
            v += lane >= o ? w : 0.0f;
        }
        __syncthreads();
        if (lane == 31) {
            warps[warp] = v;
        }
        __syncthreads();
        float sum = before, all = before;
        for (int w = 0; w < n_warps; w++) {
            sum += w < warp ? warps[w] : 0.0f;
            all += warps[w];
        }
        if (i < g.n) {
            *(float *) (to + i * g.dst.nb[0]) = sum + v;
        }
        before = all;
    }
}
