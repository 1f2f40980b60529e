// SPDX-License-Identifier: MIT
// act.cuh: reads a column that is converted for a product, after an optional norm or gate. A block converts one column, or a part of
// it. All threads of the block must call the functions that return a value of the whole column.
#pragma once

#include "gate.cuh"

struct act_source {
    const char *x, *x2; // x2: second source of the gate
    const float *norm;  // NULL, or the weights of the norm; then `inverse` is 1 / rms(x)
    float inverse;
    int type, glu; // type: 0 f32, 1 f16, 2 bf16

    LANE float value(int k) const {
        const float v = read(x, k);
        if (glu != MV_GLU_NONE) {
            return glu_gate(glu, v) * read(x2, k);
        }
        return norm != NULL ? v * (inverse * norm[k]) : v;
    }
    LANE float read(const char *from, int k) const {
        if (type == 0) {
            return reinterpret_cast<const float *>(from)[k];
        }
        const unsigned short v = reinterpret_cast<const unsigned short *>(from)[k];
        return type == 1 ? __half2float(__ushort_as_half(v)) : __uint_as_float((uint32_t) v << 16);
    }
    // Stores elements 8i to 8i + 7 of a column of k_n elements in v; elements from k_n on are 0.
    LANE void eight(int i, int k_n, float *v) const {
        const uintptr_t starts = (uintptr_t) x | (uintptr_t) x2 | (uintptr_t) norm;
        if (8 * i + 8 > k_n || type != 0 || starts % 16 != 0) {
#pragma unroll
            for (int j = 0; j < 8; j++) {
                v[j] = 8 * i + j < k_n ? value(8 * i + j) : 0.0f;
            }
            return;
        }
        load(x, i, v);
        float by[8];
        if (glu != MV_GLU_NONE) {
            load(x2, i, by);
#pragma unroll
            for (int j = 0; j < 8; j++) {
                v[j] = glu_gate(glu, v[j]) * by[j];
            }
        } else if (norm != NULL) {
            load(reinterpret_cast<const char *>(norm), i, by);
#pragma unroll
            for (int j = 0; j < 8; j++) {
                v[j] *= inverse * by[j];
            }
        }
    }
    LANE static void load(const char *p, int i, float *v) {
        const float4 a = reinterpret_cast<const float4 *>(p)[2 * i], b = reinterpret_cast<const float4 *>(p)[2 * i + 1];
        v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
    }
};

// Combines v over all threads of the block: the sum, or the maximum if MAX.
template <bool MAX> LANE float act_reduce(float v) {
    __shared__ float part[32];
#pragma unroll
    for (int i = 16; i > 0; i /= 2) {
        const float u = __shfl_xor_sync(~0u, v, i);
        v = MAX ? fmaxf(v, u) : v + u;
    }
    if (threadIdx.x % 32 == 0) {
        part[threadIdx.x / 32] = v;
    }
    __syncthreads();
    v = part[0];
    for (int i = 1; i < (int) blockDim.x / 32; i++) {
        v = MAX ? fmaxf(v, part[i]) : v + part[i];
    }
    return v;
}

// Returns 1 / the root mean square of a column of f32.
LANE float act_inverse_rms(const char *x, int k_n, float eps) {
    const act_source source = {x, NULL, NULL, 0.0f, 0, MV_GLU_NONE};
    float sum = 0.0f;
    for (int i = threadIdx.x; 8 * i < k_n; i += blockDim.x) {
        float v[8];
        source.eight(i, k_n, v);
#pragma unroll
        for (int j = 0; j < 8; j++) {
            sum += v[j] * v[j];
        }
    }
    return 1.0f / sqrtf(act_reduce<false>(sum) / (float) k_n + eps);
}

// Returns a power of two: `most`, the largest magnitude of a column, divided by it is in [2^14, 2^15). Returns 1 if most is 0.
LANE float act_scale_of(float most) {
    const int e = min(max((int) (__float_as_uint(most) >> 23) - 127, -100), 127);
    return most > 0.0f ? __uint_as_float((uint32_t) (e - 14 + 127) << 23) : 1.0f;
}

// Returns act_scale_of() of the column's largest magnitude.
LANE float act_scale(const act_source &source, int k_n) {
    float most = 0.0f;
    for (int i = threadIdx.x; 8 * i < k_n; i += blockDim.x) {
        float v[8];
        source.eight(i, k_n, v);
#pragma unroll
        for (int j = 0; j < 8; j++) {
            most = fmaxf(most, fabsf(v[j]));
        }
    }
    return act_scale_of(act_reduce<true>(most));
}
