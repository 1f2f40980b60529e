// SPDX-License-Identifier: MIT
// decode_dense.cuh: decoders (decode.cuh) of f16, bf16 and f32 rows.
#pragma once

#include "lane.cuh"

// Loads elements i to i + 3 as two pairs: the even elements, then the odd ones. Elements from `valid` on become zeros, because
// the bytes there are undefined.
template <class P> LANE void four_16(P p, int i, int valid, uint32_t *o) {
    uint32_t a = p.u32(2 * i), b = p.u32(2 * i + 4);
    if (i + 4 > valid) {
        a = i >= valid ? 0 : i + 1 >= valid ? a & 0xffff : a;
        b = i + 2 >= valid ? 0 : i + 3 >= valid ? b & 0xffff : b;
    }
    o[0] = __byte_perm(a, b, 0x5410);
    o[1] = __byte_perm(a, b, 0x7632);
}

template <int IS_BF, int N = 128> struct decode_16 {
    enum { QK = 1, BYTES = 2, CH = N, BF = IS_BF };
    int valid;
    template <class P> LANE void prep(P, int n) {
        valid = n;
    }
    template <class P> LANE void get(P p, int sub, int t, uint32_t *o) const {
        four_16(p, 32 * sub + 4 * t, valid, o);
        four_16(p, 32 * sub + 16 + 4 * t, valid, o + 2);
    }
};
typedef decode_16<0> decode_f16;
typedef decode_16<1> decode_bf16;
typedef decode_16<0, 64> decode_f16_short; // shorter chunks, for kernels with many rows per block
typedef decode_16<1, 64> decode_bf16_short;

template <int CHUNK> struct decode_f32_bf {
    enum { QK = 1, BYTES = 4, CH = CHUNK, BF = 1 };
    int valid;
    template <class P> LANE void prep(P, int n) {
        valid = n;
    }
    template <class P> LANE float value(P p, int i) const {
        return i < valid ? __uint_as_float(p.w32(4 * i)) : 0.0f;
    }
    template <class P> LANE void get(P p, int sub, int t, uint32_t *o) const {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int i = 32 * sub + 16 * r + 4 * t;
            o[2 * r] = bf2_pack(value(p, i), value(p, i + 2));
            o[2 * r + 1] = bf2_pack(value(p, i + 1), value(p, i + 3));
        }
    }
};
typedef decode_f32_bf<64> decode_f32_short; // shorter chunks, for kernels with many rows per block

// An f32 as two bf16, which hold 16 bits of its mantissa. rest() returns the rounding residual of get().
struct decode_f32 : decode_f32_bf<128> {
    LANE static float less_bf(float v, uint32_t bits) {
        return v - __uint_as_float(bits);
    }
    template <class P> LANE void rest(P p, int sub, int t, const uint32_t *o, uint32_t *lo) const {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int i = 32 * sub + 16 * r + 4 * t;
            const uint32_t a = o[2 * r], b = o[2 * r + 1];
            lo[2 * r] = bf2_pack(less_bf(value(p, i), a << 16), less_bf(value(p, i + 2), a & 0xffff0000u));
            lo[2 * r + 1] = bf2_pack(less_bf(value(p, i + 1), b << 16), less_bf(value(p, i + 3), b & 0xffff0000u));
        }
    }
};
