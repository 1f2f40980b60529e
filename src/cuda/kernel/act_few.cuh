// SPDX-License-Identifier: MIT
// act_few.cuh: converts 256 elements of a column to a record of 8-bit integers (few_args.h).
#pragma once

#include "act.cuh"
#include "few_args.h"

#include <float.h>

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

// Converts elements 8 lane to 8 lane + 7 (v) of a chunk of column col of n. Called by a warp.
LANE void act_record_8(const float *v, int col, int n, char *record, int lane) {
    const int sub = lane / 4, quarter = lane % 4; // the quarter of the sub that this thread converts
    float most = 0.0f;
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
    char *q = record + sub / 2 * 64 * n + col * 64 + quarter % 2 * 32 + sub % 2 * 8 + quarter / 2 * 4;
    *reinterpret_cast<uint32_t *>(q) = lo;
    *reinterpret_cast<uint32_t *>(q + 16) = hi;
    if (quarter == 0) {
        const int n_pairs = (n + 1) / 2;
        char *scales = record + 256 * n, *sums = scales + 64 * n_pairs;
        reinterpret_cast<float *>(scales)[(sub / 2 * n_pairs + col / 2) * 4 + sub % 2 * 2 + col % 2] = d;
        const float s = d * (float) sum;
        const __nv_bfloat16 rounded = __float2bfloat16_rn(s);
        __nv_bfloat16 *at = reinterpret_cast<__nv_bfloat16 *>(sums + 32 * col + sub / 2 * 8) + sub % 2;
        at[0] = rounded;
        at[2] = __float2bfloat16_rn(s - __bfloat162float(rounded));
    }
}
