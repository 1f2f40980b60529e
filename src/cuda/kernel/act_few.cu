// SPDX-License-Identifier: MIT
// act_few.cu: converts the columns of products with 2 to 16 columns to the records of few_args.h, after an optional norm. A warp
// converts 256 elements at a time, 8 per thread. blockIdx.x: column. Without a norm and without a scale per column, several blocks
// (blockIdx.y) share a column.
#include "act_few.cuh"

enum { ACT_WARPS = 16 };

LANE act_source act_few_source(const act_few_args &a, int col) {
    const char *x = a.x + col * a.x_col;
    return {x, NULL, a.norm, a.norm != NULL ? act_inverse_rms(x, a.k, a.eps) : 0.0f, a.x_type, MV_GLU_NONE};
}

extern "C" __global__ void __launch_bounds__(ACT_WARPS * 32) act_few_8(const __grid_constant__ act_few_args a) {
    let_next_start();
    if (a.wait) {
        wait_for_previous();
    }
    const int col = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32, n_chunks = (a.k + 255) / 256;
    const act_source source = act_few_source(a, col);
    for (int c = blockIdx.y * ACT_WARPS + warp; c < n_chunks; c += gridDim.y * ACT_WARPS) {
        float v[8];
        source.eight(c * 32 + lane, a.k, v);
        act_record_8(v, col, a.n, a.records + (int64_t) c * FEW_RECORD_8(a.n), lane);
    }
}

LANE uint32_t act_pair(int bf, float lo, float hi) {
    return bf ? bf2_pack(lo, hi) : h2_pack(lo, hi);
}

extern "C" __global__ void __launch_bounds__(ACT_WARPS * 32) act_few_16(const __grid_constant__ act_few_args a) {
    let_next_start();
    if (a.wait) {
        wait_for_previous();
    }
    const int col = blockIdx.x, n = a.rest ? (a.n <= 2 ? 4 : 8) : a.n;
    const act_source source = act_few_source(a, col);
    const float scale = a.bf ? 1.0f : act_scale(source, a.k), up = 1.0f / scale;
    if (threadIdx.x == 0 && blockIdx.y == 0) {
        a.scale[col] = scale;
    }
    for (int i = blockIdx.y * ACT_WARPS * 32 + threadIdx.x; 8 * i < (a.k + 63) / 64 * 64; i += gridDim.y * ACT_WARPS * 32) {
        float v[8];
        source.eight(i, a.k, v);
        char *to = a.records + (int64_t) (i / 8) * FEW_RECORD_16(n) + 64 * (i / 4 % 2 * n + col) + i % 4 * 16;
        uint32_t p[4], r[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float lo = v[2 * j] * up, hi = v[2 * j + 1] * up;
            p[j] = act_pair(a.bf, lo, hi);
            const float2 back = a.bf ? make_float2(__uint_as_float(p[j] << 16), __uint_as_float(p[j] & 0xffff0000u))
                                     : __half22float2(as_h2(p[j]));
            r[j] = act_pair(a.bf, lo - back.x, hi - back.y);
        }
        *reinterpret_cast<uint4 *>(to) = make_uint4(p[0], p[1], p[2], p[3]);
        if (a.rest) {
            *reinterpret_cast<uint4 *>(to + 64 * (n / 2)) = make_uint4(r[0], r[1], r[2], r[3]);
        }
    }
}
