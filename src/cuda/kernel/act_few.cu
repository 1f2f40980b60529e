// SPDX-License-Identifier: MIT
// act_few.cu: converts the columns of products with 2 to 16 columns to the records of few_args.h, after an optional norm. A warp
// converts 256 elements at a time, 8 per thread. blockIdx.x: column. Without a norm and without a scale per column, several blocks
// (blockIdx.y) share a column.
#include "act.cuh"
#include "few_args.h"

#include <float.h>

enum { ACT_WARPS = 16 };

LANE float act_max_nan(float a, float b) {
    float r;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
}

// Rounds four elements, divided by the scale, to signed bytes. Adding 1.5 * 2^23 puts the integer into the lowest byte.
LANE uint32_t act_bytes(const float *v, float inverse) {
    uint32_t b[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        b[j] = __float_as_uint(fmaf(v[j], inverse, 12582912.0f));
    }
    return __byte_perm(__byte_perm(b[0], b[1], 0x0040), __byte_perm(b[2], b[3], 0x0040), 0x5410);
}

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
    const int sub = lane / 4, quarter = lane % 4; // the quarter of the sub that this thread converts
    for (int c = blockIdx.y * ACT_WARPS + warp; c < n_chunks; c += gridDim.y * ACT_WARPS) {
        float v[8], most = 0.0f;
        source.eight(c * 32 + lane, a.k, v);
#pragma unroll
        for (int j = 0; j < 8; j++) {
            most = act_max_nan(most, fabsf(v[j]));
        }
        most = act_max_nan(most, __shfl_xor_sync(~0u, most, 1));
        most = act_max_nan(most, __shfl_xor_sync(~0u, most, 2));
        // 127 / most, computed without overflow; 0 if most is too small. Bytes cannot represent infinity.
        const float inverse = most >= 1e-36f ? 7.9375f / (most * 0.0625f) : 0.0f;
        float d = most <= FLT_MAX ? most * (1.0f / 127.0f) * 0x1p-24f : NAN;
        d = __uint_as_float(__float_as_uint(d) & ~3u); // 22 significant bits
        const uint32_t lo = act_bytes(v, inverse), hi = act_bytes(v + 4, inverse);
        int sum = __dp4a((int) lo, 0x01010101, __dp4a((int) hi, 0x01010101, 0));
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        char *to = a.records + (int64_t) c * FEW_RECORD_8(a.n);
        char *q = to + sub / 2 * 64 * a.n + col * 64 + quarter % 2 * 32 + sub % 2 * 8 + quarter / 2 * 4;
        *reinterpret_cast<uint32_t *>(q) = lo;
        *reinterpret_cast<uint32_t *>(q + 16) = hi;
        if (quarter == 0) {
            const int n_pairs = (a.n + 1) / 2;
            char *scales = to + 256 * a.n, *sums = scales + 64 * n_pairs;
            reinterpret_cast<float *>(scales)[(sub / 2 * n_pairs + col / 2) * 4 + sub % 2 * 2 + col % 2] = d;
            const float s = d * (float) sum;
            const __nv_bfloat16 rounded = __float2bfloat16_rn(s);
            __nv_bfloat16 *at = reinterpret_cast<__nv_bfloat16 *>(sums + 32 * col + sub / 2 * 8) + sub % 2;
            at[0] = rounded;
            at[2] = __float2bfloat16_rn(s - __bfloat162float(rounded));
        }
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
