// SPDX-License-Identifier: MIT
// norm.cu: norms and softmax over rows, one block per row. norm_fours keeps rows of up to 16 Ki floats in registers.

#include "cuda/kernel/common.cuh"
#include "gpu/kernel/norm.h"

struct row_at {
    int64_t i1, i2, i3;
};
DEV row_at row_of(const struct gpu_view &v, int64_t ir) {
    const int64_t i1 = ir % v.ne[1], rest = ir / v.ne[1];
    return {i1, rest % v.ne[2], rest / v.ne[2]};
}
DEV char *row_start(const struct gpu_view &v, const row_at &r) {
    return at(v, 0, r.i1, r.i2, r.i3);
}
DEV char *row_start_repeat(const struct gpu_view &v, const row_at &r) {
    return at_repeat(v, {0, r.i1, r.i2, r.i3});
}

DEV float norm_scale(int what, float sum_sq, int64_t n, float eps) {
    switch (what) {
        case GGML_OP_L2_NORM: return 1.0f / fmaxf(sqrtf(sum_sq), eps);
        default: return 1.0f / sqrtf(sum_sq / (float) n + eps);
    }
}

// For rows with any strides.
KERNEL norm_any(const __grid_constant__ struct gpu_norm_args g) {
    dep_begin();
    const int64_t n = g.dst.ne[0];
    const row_at r = row_of(g.dst, blockIdx.x);
    const char *a = row_start(g.a, r), *b = g.b.p != nullptr ? row_start_repeat(g.b, r) : nullptr;
    char *sum = g.sum.p != nullptr ? row_start(g.sum, r) : nullptr, *y = row_start(g.dst, r);
    float s = 0.0f, s2 = 0.0f;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        float v = *(const float *) (a + i * g.a.nb[0]);
        if (b != nullptr) {
            v += *(const float *) (b + i % g.b.ne[0] * g.b.nb[0]);
            *(float *) (sum + i * g.sum.nb[0]) = v;
        }
        s += v;
        s2 += v * v;
    }
    const char *x = b != nullptr ? sum : a;
    const int64_t x_step = b != nullptr ? g.sum.nb[0] : g.a.nb[0];
    float mean = 0.0f;
    if (g.what == GGML_OP_NORM) {
        mean = block_sum(s) / (float) n;
        s2 = 0.0f;
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
            const float v = *(const float *) (x + i * x_step) - mean;
            s2 += v * v;
        }
    }
    const float scale = norm_scale(g.what, block_sum(s2), n, g.eps);
    const char *mul = g.mul.p != nullptr ? row_start_repeat(g.mul, r) : nullptr,
               *add = g.add.p != nullptr ? row_start_repeat(g.add, r) : nullptr;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        float v = (*(const float *) (x + i * x_step) - mean) * scale;
        v *= mul != nullptr ? *(const float *) (mul + i % g.mul.ne[0] * g.mul.nb[0]) : 1.0f;
        v += add != nullptr ? *(const float *) (add + i % g.add.ne[0] * g.add.nb[0]) : 0.0f;
        *(float *) (y + i * g.dst.nb[0]) = v;
    }
}

DEV float sum4(float4 v) {
    return (v.x + v.y) + (v.z + v.w);
}
DEV float dot4(float4 v) { // sum of squares
    return (v.x * v.x + v.y * v.y) + (v.z * v.z + v.w * v.w);
}

// Requires contiguous rows of 4 * n4 floats at multiples of 16 bytes, n4 <= 4 * blockDim.x. The same holds for mul, add and b.
KERNEL norm_fours(const __grid_constant__ struct gpu_norm_args g) {
    const int n4 = (int) (g.dst.ne[0] / 4);
    float4 v[4], m[4], p[4]; // loaded together with the row, so that the thread waits once
    const row_at r = row_of(g.dst, blockIdx.x);
    dep_begin();
    const float4 *a = (const float4 *) row_start(g.a, r),
                 *b = g.b.p != nullptr ? (const float4 *) row_start_repeat(g.b, r) : nullptr;
    const float4 *mul = g.mul.p != nullptr ? (const float4 *) row_start_repeat(g.mul, r) : nullptr;
    const float4 *add = g.add.p != nullptr ? (const float4 *) row_start_repeat(g.add, r) : nullptr;
    float4 *to = g.sum.p != nullptr ? (float4 *) row_start(g.sum, r) : nullptr;
    float s = 0.0f, s2 = 0.0f;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const int i = threadIdx.x + j * blockDim.x;
        v[j] = i < n4 ? a[i] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        m[j] = mul != nullptr && i < n4 ? mul[i] : make_float4(1.0f, 1.0f, 1.0f, 1.0f);
        p[j] = add != nullptr && i < n4 ? add[i] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (b != nullptr && i < n4) {
            const float4 w = b[i];
            v[j] = make_float4(v[j].x + w.x, v[j].y + w.y, v[j].z + w.z, v[j].w + w.w);
            to[i] = v[j];
        }
        s += sum4(v[j]);
        s2 += dot4(v[j]);
    }
    if (g.what == GGML_OP_NORM) {
        const float mean = block_sum(s) / (float) g.dst.ne[0];
        s2 = 0.0f;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            if (threadIdx.x + j * blockDim.x < n4) {
                v[j] = make_float4(v[j].x - mean, v[j].y - mean, v[j].z - mean, v[j].w - mean);
                s2 += dot4(v[j]);
            }
        }
    }
    const float scale = norm_scale(g.what, block_sum(s2), g.dst.ne[0], g.eps);
    float4 *y = (float4 *) row_start(g.dst, r);
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const int i = threadIdx.x + j * blockDim.x;
        if (i < n4) {
            y[i] = make_float4(v[j].x * scale * m[j].x + p[j].x, v[j].y * scale * m[j].y + p[j].y,
                v[j].z * scale * m[j].z + p[j].z, v[j].w * scale * m[j].w + p[j].w);
        }
    }
}

KERNEL group_norm(const __grid_constant__ struct gpu_group_norm_args g) {
    dep_begin();
    const int64_t i3 = blockIdx.x / g.n_groups, c0 = blockIdx.x % g.n_groups * g.n_each;
    const int64_t c1 = min(c0 + g.n_each, g.dst.ne[2]);
    const int64_t ne0 = g.dst.ne[0], plane = ne0 * g.dst.ne[1], n = plane * (c1 - c0);
    float s = 0.0f, s2 = 0.0f;
    if (c0 >= c1) {
        return;
    }
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        s += *(const float *) at(g.a, i % ne0, i % plane / ne0, c0 + i / plane, i3);
    }
    const float mean = block_sum(s) / (float) n;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        const float v = *(const float *) at(g.a, i % ne0, i % plane / ne0, c0 + i / plane, i3) - mean;
        s2 += v * v;
    }
    const float scale = 1.0f / sqrtf(block_sum(s2) / (float) n + g.eps);
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        const float v = *(const float *) at(g.a, i % ne0, i % plane / ne0, c0 + i / plane, i3);
        *(float *) at(g.dst, i % ne0, i % plane / ne0, c0 + i / plane, i3) = (v - mean) * scale;
    }
}

DEV float head_slope(const struct gpu_softmax_args &g, int64_t head) {
    if (!(g.max_bias > 0.0f)) {
        return 1.0f;
    }
    return head < g.n_head_log2 ? powf(g.m0, (float) (head + 1)) : powf(g.m1, (float) (2 * (head - g.n_head_log2) + 1));
}

KERNEL soft_max(const __grid_constant__ struct gpu_softmax_args g) {
    dep_begin();
    const int64_t n = g.dst.ne[0];
    const row_at r = row_of(g.dst, blockIdx.x);
    const float *x = (const float *) row_start(g.a, r);
    float *y = (float *) row_start(g.dst, r);
    const char *m = g.mask.p != nullptr ? at(g.mask, 0, r.i1, r.i2 % g.mask.ne[2], r.i3 % g.mask.ne[3]) : nullptr;
    const float slope = head_slope(g, r.i2),
                sink = g.sinks != nullptr ? *(const float *) (g.sinks + r.i2 * g.sinks_nb) : -INFINITY;
    float max = sink, sum = 0.0f;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        float v = x[i] * g.scale;
        if (m != nullptr) {
            v += slope * load_number(m + i * g.mask.nb[0], g.mask.type);
        }
        y[i] = v;
        max = fmaxf(max, v);
    }
    max = block_max(max);
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        const float v = expf(y[i] - max);
        y[i] = v;
        sum += v;
    }
    sum = block_sum(sum);
    if (g.sinks != nullptr) {
        sum += expf(sink - max);
    }
    const float scale = 1.0f / sum;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        y[i] *= scale;
    }
}
