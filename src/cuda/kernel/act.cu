// SPDX-License-Identifier: MIT
// act.cu: converts the columns of a product to f16 or bf16 in the layout of mma_args.h, one block per column.
#include "act.cuh"
#include "mma_args.h"

// Packs the 8 elements v[0], v[2] ... v[14] as pairs of f16, or of bf16 if bf is set.
LANE void act_eight(const float *v, int bf, uint4 *w) {
    if (bf) {
        *w = make_uint4(bf2_pack(v[0], v[2]), bf2_pack(v[4], v[6]), bf2_pack(v[8], v[10]), bf2_pack(v[12], v[14]));
    } else {
        *w = make_uint4(h2_pack(v[0], v[2]), h2_pack(v[4], v[6]), h2_pack(v[8], v[10]), h2_pack(v[12], v[14]));
    }
}
// Leaves in v the rounding residuals of the packed elements w.
LANE void act_less(float *v, int bf, uint4 w) {
    const uint32_t p[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float2 h =
            bf ? make_float2(__uint_as_float(p[i] << 16), __uint_as_float(p[i] & 0xffff0000u)) : __half22float2(as_h2(p[i]));
        v[4 * i] -= h.x;
        v[4 * i + 2] -= h.y;
    }
}

// Converts column c without scaling, to contiguous columns (act_args.plain). For f16, magnitudes above the largest f16 become the
// largest f16, and NaN stays NaN.
LANE void act_plain(const act_args &a, const act_source &x, int c) {
    uint16_t *to = a.tiles + (int64_t) c * ((a.k + 7) / 8 * 8);
    for (int i = threadIdx.x; i < (a.k + 7) / 8; i += blockDim.x) {
        float v[8];
#pragma unroll
        for (int j = 0; j < 8; j++) {
            const float at = 8 * i + j < a.k ? x.value(8 * i + j) : 0.0f;
            v[j] = a.bf || at != at ? at : fminf(fmaxf(at, -65504.0f), 65504.0f);
        }
        uint4 w;
        if (a.bf) {
            w = make_uint4(bf2_pack(v[0], v[1]), bf2_pack(v[2], v[3]), bf2_pack(v[4], v[5]), bf2_pack(v[6], v[7]));
        } else {
            w = make_uint4(h2_pack(v[0], v[1]), h2_pack(v[2], v[3]), h2_pack(v[4], v[5]), h2_pack(v[6], v[7]));
        }
        *reinterpret_cast<uint4 *>(to + 8 * i) = w;
    }
}

// Where the converted elements of a column go.
struct act_target {
    char *to;
    int row, n_steps; // index of the column in its tile; steps of 64 elements
    // Divides elements 16i to 16i + 15 by the scale (up: its inverse), and stores them. Leaves other values in v.
    LANE void store(const act_args &a, int i, float up, float *v) const {
#pragma unroll
        for (int j = 0; j < 16; j++) {
            v[j] *= up;
        }
#pragma unroll
        for (int odd = 0; odd < 2; odd++) {
            uint4 w;
            act_eight(v + odd, a.bf, &w);
            if (a.flat) {
                *reinterpret_cast<uint4 *>(to + (2 * i + odd) * 16) = w;
            } else {
                const int piece = (2 * (i % 4) + odd) ^ (row & 7);
                *reinterpret_cast<uint4 *>(to + (int64_t) (i / 4) * a.nt * 128 + piece * 16) = w;
            }
            if (a.rest) {
                act_less(v + odd, a.bf, w);
                act_eight(v + odd, a.bf, &w);
                *reinterpret_cast<uint4 *>(to + (int64_t) a.n * n_steps * 128 + (2 * i + odd) * 16) = w;
            }
        }
    }
};

// Converts a column of which each thread has at most 16 elements, which stay in registers. Returns the scale. source: without norm.
LANE float act_once(const act_args &a, const act_source &source, bool is_there, const act_target &target) {
    const int i = threadIdx.x;
    const bool is_mine = i < target.n_steps * 4;
    float v[16];
#pragma unroll
    for (int j = 0; j < 16; j++) {
        v[j] = 0.0f;
    }
    if (is_there && is_mine) {
        source.eight(2 * i, a.k, v);
        source.eight(2 * i + 1, a.k, v + 8);
    }
    if (is_there && a.norm != NULL) {
        float sum = 0.0f, by[16];
#pragma unroll
        for (int j = 0; j < 16; j++) {
            by[j] = 0.0f;
            sum += v[j] * v[j];
        }
        const act_source weights = {reinterpret_cast<const char *>(a.norm), NULL, NULL, 0.0f, 0, MV_GLU_NONE};
        if (is_mine) {
            weights.eight(2 * i, a.k, by);
            weights.eight(2 * i + 1, a.k, by + 8);
        }
        const float inverse = 1.0f / sqrtf(act_reduce<false>(sum) / (float) a.k + a.eps);
#pragma unroll
        for (int j = 0; j < 16; j++) {
            v[j] *= inverse * by[j];
        }
    }
    float scale = 1.0f;
    if (is_there && !a.bf) {
        float most = 0.0f;
#pragma unroll
        for (int j = 0; j < 16; j++) {
            most = fmaxf(most, fabsf(v[j]));
        }
        scale = act_scale_of(act_reduce<true>(most));
    }
    if (is_mine) {
        target.store(a, i, 1.0f / scale, v);
    }
    return scale;
}

// Converts a column of any length. Returns the scale.
LANE float act_long(const act_args &a, act_source source, bool is_there, const act_target &target) {
    if (is_there && a.norm != NULL) {
        source.inverse = act_inverse_rms(source.x, a.k, a.eps);
        source.norm = a.norm;
    }
    const float scale = is_there && !a.bf ? act_scale(source, a.k) : 1.0f;
    for (int i = threadIdx.x; i < target.n_steps * 4; i += blockDim.x) {
        float v[16];
#pragma unroll
        for (int j = 0; j < 16; j++) {
            v[j] = 0.0f;
        }
        if (is_there) {
            source.eight(2 * i, a.k, v);
            source.eight(2 * i + 1, a.k, v + 8);
        }
        target.store(a, i, 1.0f / scale, v);
    }
    return scale;
}

extern "C" __global__ void __launch_bounds__(ACT_THREADS) act_tiles(const __grid_constant__ act_args a) {
    let_next_start();
    if (a.wait) {
        wait_for_previous();
    }
    const int c = blockIdx.x, z = blockIdx.y, n_tiles = gridDim.x / a.nt;
    const int n_steps = (a.k + 255) / 256 * 4;
    int from = c < a.n ? c : -1;
    if (a.from != NULL) {
        from = a.from[c];
    }
    int64_t x_off = 0;
    if (a.from != NULL) {
        x_off = from % a.n_used % a.x_ne1 * a.x_col + from / a.n_used * a.from_z2;
    } else {
        x_off = from * a.x_col + z % a.ne2 * a.x_z2 + z / a.ne2 * a.x_z3;
    }
    const char *x = a.x + x_off;
    const bool there = from >= 0;
    act_source source = {x, NULL, NULL, 0.0f, a.x_type, a.glu};
    if (a.glu != MV_GLU_NONE) {
        source.x2 = a.x2 + x_off;
    }
    if (a.plain) {
        if (a.norm != NULL) {
            source.inverse = act_inverse_rms(x, a.k, a.eps);
            source.norm = a.norm;
        }
        act_plain(a, source, c);
        return;
    }
    act_target target = {reinterpret_cast<char *>(a.tiles), c % a.nt, n_steps};
    if (a.flat) {
        target.to += ((int64_t) z * (a.rest ? 2 : 1) * a.n + c) * n_steps * 128;
    } else {
        target.to += (((int64_t) z * n_tiles + c / a.nt) * n_steps * a.nt + target.row) * 128;
    }
    const bool is_short = n_steps * 4 <= (int) blockDim.x;
    const float scale = is_short ? act_once(a, source, there, target) : act_long(a, source, there, target);
    if (threadIdx.x == 0) {
        a.scale[(int64_t) z * gridDim.x + c] = scale;
    }
}
