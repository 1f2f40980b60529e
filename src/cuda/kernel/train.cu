// SPDX-License-Identifier: MIT
// train.cu: kernels for training: the loss, gradients, optimiser steps, and the outer product (gradient of a matrix product).

#include "cuda/kernel/dequant.cuh"

DEV const char *row_at(const struct gpu_view &v, int64_t ir) {
    return at(v, 0, ir % v.ne[1], ir / v.ne[1] % v.ne[2], ir / (v.ne[1] * v.ne[2]));
}
DEV double block_sum_f64(double v) {
    __shared__ double part[33];
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) {
        v += __shfl_xor_sync(0xffffffffu, v, o);
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
        part[threadIdx.x / 32] = v;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        double sum = 0.0;
        for (int i = 0; i < blockDim.x / 32; i++) {
            sum += part[i];
        }
        part[32] = sum;
    }
    __syncthreads();
    return part[32];
}

// Returns the sum of exp(x - maximum) over a row, and stores the maximum.
DEV double sum_of_exp(const float *x, int64_t n, float *max) {
    float most = -INFINITY;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        most = fmaxf(most, x[i]);
    }
    *max = block_max(most);
    double sum = 0.0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        sum += expf(x[i] - *max);
    }
    return block_sum_f64(sum);
}

// One block per row: sum over i of label[i] * log softmax(logits)[i]. g.a: logits; g.b: labels; g.n: elements per row.
KERNEL loss_rows(const __grid_constant__ struct gpu_op_args g) {
    dep_begin();
    const float *x = (const float *) row_at(g.a, blockIdx.x), *label = (const float *) row_at(g.b, blockIdx.x);
    float max;
    const double all = sum_of_exp(x, g.n, &max);
    const float rest = max + (float) log(all);
    double sum = 0.0;
    for (int64_t i = threadIdx.x; i < g.n; i += blockDim.x) {
        sum += (double) (x[i] - rest) * label[i];
    }
    sum = block_sum_f64(sum);
    if (threadIdx.x == 0) {
        g.parts[blockIdx.x] = sum;
    }
}
// The loss is minus the mean of the sums of all rows. g.n: number of rows.
KERNEL loss_sum(const __grid_constant__ struct gpu_op_args g) {
    dep_begin();
    double sum = 0.0;
    for (int64_t i = threadIdx.x; i < g.n; i += blockDim.x) {
        sum += g.parts[i];
    }
    sum = block_sum_f64(sum);
    if (threadIdx.x == 0) {
        *(float *) g.dst.p = (float) (-sum / (double) g.n);
    }
}

// One block per row: (softmax(logits) - labels) * gradient / number of rows. g.a: gradient; g.b: logits; g.c: labels.
KERNEL loss_back(const __grid_constant__ struct gpu_op_args g) {
    dep_begin();
    const float *x = (const float *) row_at(g.b, blockIdx.x), *label = (const float *) row_at(g.c, blockIdx.x);
    float *y = (float *) row_at(g.dst, blockIdx.x);
    const float d = *(const float *) g.a.p / (float) gridDim.x;
    float max;
    const float scale = (float) (1.0 / sum_of_exp(x, g.n, &max));
    for (int64_t i = threadIdx.x; i < g.n; i += blockDim.x) {
        y[i] = (expf(x[i] - max) * scale - label[i]) * d;
    }
}

// Gradients of softmax and RMS norm, one block per row. g.a: incoming gradient. SOFT_MAX_BACK: g.b: result; g.f[0]: scale.
// RMS_NORM_BACK: g.b: source; g.f[0]: eps.
KERNEL rows_back(const __grid_constant__ struct gpu_op_args g) {
    dep_begin();
    const char *d = row_at(g.a, blockIdx.x), *x = row_at(g.b, blockIdx.x);
    char *y = (char *) row_at(g.dst, blockIdx.x);
    double xd = 0.0, xx = 0.0;
    for (int64_t i = threadIdx.x; i < g.n; i += blockDim.x) {
        const float v = load_number(x + i * g.b.nb[0], g.b.type);
        xd += (double) v * load_number(d + i * g.a.nb[0], g.a.type);
        xx += (double) v * v;
    }
    xd = block_sum_f64(xd);
    xx = block_sum_f64(xx);
    const float along = (float) (-xd / (xx + (double) g.f[0] * (double) g.n)),
                scale = 1.0f / sqrtf((float) (xx / (double) g.n) + g.f[0]);
    for (int64_t i = threadIdx.x; i < g.n; i += blockDim.x) {
        const float v = load_number(x + i * g.b.nb[0], g.b.type), e = load_number(d + i * g.a.nb[0], g.a.type);
        store_number(y + i * g.dst.nb[0], g.dst.type,
            g.what == GGML_OP_SOFT_MAX_BACK ? (e - (float) xd) * v * g.f[0] : (e + v * along) * scale);
    }
}

KERNEL silu_back(const __grid_constant__ struct gpu_op_args g) {
    dep_begin();
    for (int64_t i = thread_index(); i < g.n; i += thread_count()) {
        const at4 x = g.index.d0.d != 0 ? index_split(i, g.index) : index_split(i, g.dst.ne);
        const float v = load_number(at(g.b, x), g.b.type), s = 1.0f / (1.0f + expf(-v));
        store_number(at(g.dst, x), g.dst.type, load_number(at(g.a, x), g.a.type) * s * (1.0f + v * (1.0f - s)));
    }
}

// Gradient of REPEAT: sums the elements of g.a that REPEAT copied from the same element.
KERNEL repeat_back(const __grid_constant__ struct gpu_op_args g) {
    dep_begin();
    for (int64_t i = thread_index(); i < g.n; i += thread_count()) {
        const at4 x = g.index.d0.d != 0 ? index_split(i, g.index) : index_split(i, g.dst.ne);
        float sum = 0.0f;
        for (int64_t i3 = x.i3; i3 < g.a.ne[3]; i3 += g.dst.ne[3]) {
            for (int64_t i2 = x.i2; i2 < g.a.ne[2]; i2 += g.dst.ne[2]) {
                for (int64_t i1 = x.i1; i1 < g.a.ne[1]; i1 += g.dst.ne[1]) {
                    for (int64_t i0 = x.i0; i0 < g.a.ne[0]; i0 += g.dst.ne[0]) {
                        sum += load_number(at(g.a, i0, i1, i2, i3), g.a.type);
                    }
                }
            }
        }
        *(float *) at(g.dst, x) = sum;
    }
}

// Row i of the result is the sum of the rows of g.a whose index in g.b is i. One thread per element, so that the order of the sum
// is fixed.
KERNEL get_rows_back(const __grid_constant__ struct gpu_op_args g) {
    dep_begin();
    const int64_t n_ids = g.b.ne[0] * g.b.ne[1] * g.b.ne[2] * g.b.ne[3];
    for (int64_t i = thread_index(); i < g.n; i += thread_count()) {
        const at4 x = g.index.d0.d != 0 ? index_split(i, g.index) : index_split(i, g.dst.ne);
        float sum = 0.0f;
        for (int64_t k = 0; k < n_ids && x.i2 == 0 && x.i3 == 0; k++) {
            const int32_t id = *(const int32_t *) (row_at(g.b, k / g.b.ne[0]) + k % g.b.ne[0] * g.b.nb[0]);
            if (id == x.i1) {
                sum += load_number(row_at(g.a, k) + x.i0 * g.a.nb[0], g.a.type);
            }
        }
        *(float *) at(g.dst, x) = sum;
    }
}

// g.a: weights; g.b: gradient; g.c, g.d: moments. s.p: hyperparameters, s.nb bytes apart: alpha, beta1, beta2, eps, weight decay,
// bias corrections of the two moments.
KERNEL step_adamw(const __grid_constant__ struct gpu_step_args s) {
    const struct gpu_op_args &g = s.op;
    dep_begin();
    float q[7];
    for (int i = 0; i < 7; i++) {
        q[i] = *(const float *) ((const char *) s.p + i * s.nb);
    }
    const float keep = 1.0f - q[0] * q[4];
    for (int64_t i = thread_index(); i < g.n; i += thread_count()) {
        const at4 x = g.index.d0.d != 0 ? index_split(i, g.index) : index_split(i, g.dst.ne);
        float *w = (float *) at(g.a, x), *m = (float *) at(g.c, x), *v = (float *) at(g.d, x);
        const float d = *(const float *) at(g.b, x);
        *m = *m * q[1] + d * (1.0f - q[1]);
        *v = *v * q[2] + d * d * (1.0f - q[2]);
        *w = *w * keep - q[0] * (*m * q[5]) / (sqrtf(*v * q[6]) + q[3]);
    }
}
// g.a: weights; g.b: gradient. s.p: alpha and weight decay, s.nb bytes apart.
KERNEL step_sgd(const __grid_constant__ struct gpu_step_args s) {
    const struct gpu_op_args &g = s.op;
    dep_begin();
    const float alpha = s.p[0], keep = 1.0f - alpha * *(const float *) ((const char *) s.p + s.nb);
    for (int64_t i = thread_index(); i < g.n; i += thread_count()) {
        const at4 x = g.index.d0.d != 0 ? index_split(i, g.index) : index_split(i, g.dst.ne);
        float *w = (float *) at(g.a, x);
        *w = *w * keep - alpha * *(const float *) at(g.b, x);
    }
}

// result[i, j] = sum over k of a[i, k] b[j, k]. Each block computes 16 x 16 elements.
KERNEL out_prod(const __grid_constant__ struct gpu_op_args g) {
    __shared__ float ta[16][17], tb[16][17];
    dep_begin();
    const int64_t i = (int64_t) blockIdx.x * 16 + threadIdx.x, j = (int64_t) blockIdx.y * 16 + threadIdx.y;
    for (int64_t z = blockIdx.z; z < g.dst.ne[2] * g.dst.ne[3]; z += gridDim.z) {
        const int64_t i2 = z % g.dst.ne[2], i3 = z / g.dst.ne[2];
        const int64_t a2 = i2 / (g.b.ne[2] / g.a.ne[2]), a3 = i3 / (g.b.ne[3] / g.a.ne[3]);
        const bool dense = g.a.type == GGML_TYPE_F32 || g.a.type == GGML_TYPE_F16 || g.a.type == GGML_TYPE_BF16;
        float sum = 0.0f;
        for (int64_t k0 = 0; k0 < g.a.ne[1]; k0 += 16) {
            const int64_t ka = k0 + threadIdx.y, jb = (int64_t) blockIdx.y * 16 + threadIdx.x;
            __syncthreads();
            float v = 0.0f;
            if (i < g.dst.ne[0] && ka < g.a.ne[1]) {
                v = dense ? load_number(at(g.a, i, ka, a2, a3), g.a.type) : row_element(at(g.a, 0, ka, a2, a3), g.a.type, i);
            }
            ta[threadIdx.y][threadIdx.x] = v;
            tb[threadIdx.y][threadIdx.x] = jb < g.dst.ne[1] && ka < g.a.ne[1] ? *(const float *) at(g.b, jb, ka, i2, i3) : 0.0f;
            __syncthreads();
#pragma unroll
            for (int k = 0; k < 16; k++) {
                sum += ta[k][threadIdx.x] * tb[k][threadIdx.y];
            }
        }
        if (i < g.dst.ne[0] && j < g.dst.ne[1]) {
            *(float *) at(g.dst, i, j, i2, i3) = sum;
        }
    }
}
