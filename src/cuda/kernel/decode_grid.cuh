// SPDX-License-Identifier: MIT
// decode_grid.cuh: decoders (decode.cuh) of codebook types: iq1_* iq2_* iq3_*. A point is an entry of the codebook. It has 8
// values (iq1, iq2) or 4 values (iq3). Thread t holds elements 4t to 4t + 3 of a run: half a point (iq1, iq2) or one point (iq3).
#pragma once

#include "lane.cuh"

#define BERTH_GRID static __device__ const
#include "quant/grids.h"

// Expand four fields of 2 or 3 bits to nibbles, as the selector of __byte_perm.
LANE uint32_t fields_2(uint32_t p) {
    return (p & 3) | (p & 0xc) << 2 | (p & 0x30) << 4 | (p & 0xc0) << 6;
}
LANE uint32_t fields_3(uint32_t p) {
    return (p & 7) | (p & 0x38) << 1 | (p & 0x1c0) << 2 | (p & 0xe00) << 3;
}
LANE uint32_t even_parity(uint32_t seven) { // the eighth sign makes the number of minus signs even
    return seven | (__popc(seven) & 1) << 7;
}

// Converts the four bytes of v to two pairs of f16, multiplied by s. The low four bits of `sign` are the signs.
LANE void signed_4(uint32_t v, uint32_t sign, uint32_t s, uint32_t *o) {
    o[0] = h2_mul(h2_less(even_bytes(v), 1024), s) ^ even_bits<15>(sign);
    o[1] = h2_mul(h2_less(odd_bytes(v), 1024), s) ^ odd_bits<15>(sign);
}

// ---- iq2: values 8 25 43, half a point per thread ----

LANE void half_point_iq2(uint32_t point, int t, uint32_t sign, uint32_t s, uint32_t *o) {
    const uint32_t v = __byte_perm(0x002b1908u, 0, fields_2(point >> (8 * (t & 1)) & 0xff));
    signed_4(v, sign >> (4 * (t & 1)), s, o);
}

struct decode_iq2_xxs {
    enum { QK = 256, BYTES = 66, CH = 256, BF = 0 };
    float d;
    template <class P> LANE void prep(P p, int) {
        d = half_value(p.u16(0));
    }
    template <class P> LANE void get(P p, int sub, int t, uint32_t *o) const {
        const uint32_t head = p.u32(2 + 8 * sub), tail = p.u32(6 + 8 * sub);
        const uint32_t s = h2_all(d * (0.5f + (float) (tail >> 28)) * 0.25f);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int u = 2 * r + (t >> 1);
            half_point_iq2(grid_iq2_xxs[head >> (8 * u) & 255], t, even_parity(tail >> (7 * u) & 127), s, o + 2 * r);
        }
    }
};

template <class P> LANE uint32_t scale_iq2(float d, P p, int at, int sub, int r) {
    return h2_all(d * (0.5f + (float) (p.u8(at + sub) >> (4 * r) & 15)) * 0.25f);
}

struct decode_iq2_xs {
    enum { QK = 256, BYTES = 74, CH = 256, BF = 0 };
    float d;
    template <class P> LANE void prep(P p, int) {
        d = half_value(p.u16(0));
    }
    template <class P> LANE void get(P p, int sub, int t, uint32_t *o) const {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const uint32_t q = p.u16(2 + 8 * sub + 4 * r + 2 * (t >> 1));
            half_point_iq2(grid_iq2_xs[q & 511], t, even_parity(q >> 9), scale_iq2(d, p, 66, sub, r), o + 2 * r);
        }
    }
};

struct decode_iq2_s {
    enum { QK = 256, BYTES = 82, CH = 256, BF = 0 };
    float d;
    template <class P> LANE void prep(P p, int) {
        d = half_value(p.u16(0));
    }
    template <class P> LANE void get(P p, int sub, int t, uint32_t *o) const {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int u = 2 * r + (t >> 1);
            const uint32_t index = p.u8(2 + 4 * sub + u) | (p.u8(66 + sub) >> (2 * u) & 3) << 8;
            half_point_iq2(grid_iq2_s[index], t, p.u8(34 + 4 * sub + u), scale_iq2(d, p, 74, sub, r), o + 2 * r);
        }
    }
};

// ---- iq3: one point per thread ----

struct decode_iq3_xxs {
    enum { QK = 256, BYTES = 98, CH = 256, BF = 0 };
    float d;
    template <class P> LANE void prep(P p, int) {
        d = half_value(p.u16(0));
    }
    template <class P> LANE void get(P p, int sub, int t, uint32_t *o) const {
        const uint32_t tail = p.u32(66 + 4 * sub);
        const uint32_t s = h2_all(d * (0.5f + (float) (tail >> 28)) * 0.5f);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int u = 2 * r + (t >> 1);
            const uint32_t sign = even_parity(tail >> (7 * u) & 127) >> (4 * (t & 1));
            const uint32_t v = fields_3(grid_iq3_xxs[p.u8(2 + 8 * sub + 4 * r + t)]);
            signed_4(__byte_perm(0x1c140c04u, 0x3e342c24u, v), sign, s, o + 2 * r);
        }
    }
};

struct decode_iq3_s {
    enum { QK = 256, BYTES = 110, CH = 256, BF = 0 };
    float d;
    template <class P> LANE void prep(P p, int) {
        d = half_value(p.u16(0));
    }
    template <class P> LANE void get(P p, int sub, int t, uint32_t *o) const {
        const uint32_t s = h2_all(d * (float) (1 + 2 * (p.u8(106 + (sub >> 1)) >> (4 * (sub & 1)) & 15)));
        const uint32_t high = p.u8(66 + sub);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int g = 4 * r + t;
            const uint32_t sign = p.u8(74 + 4 * sub + 2 * r + (t >> 1)) >> (4 * (t & 1));
            const uint32_t v = fields_3(grid_iq3_s[p.u8(2 + 8 * sub + g) | (high >> g & 1) << 8]);
            signed_4(__byte_perm(0x07050301u, 0x0f0d0b09u, v), sign, s, o + 2 * r);
        }
    }
};

// ---- iq1: values -1 0 1 plus or minus an eighth, half a point per thread ----

LANE void half_point_iq1(uint32_t index, int t, bool down, float scale, uint32_t *o) {
    const uint32_t v = fields_2(grid_iq1[index] >> (8 * (t & 1)) & 0xff);
    const uint32_t shift = h2_all(down ? -1.125f : -0.875f); // fields are the value plus one
    const uint32_t s = h2_all(scale);
    o[0] = h2_mul(h2_add(h2_less((v & 3) | (v & 0x300) << 8 | MAGIC, 1024), shift), s);
    o[1] = h2_mul(h2_add(h2_less((v >> 4 & 3) | (v >> 4 & 0x300) << 8 | MAGIC, 1024), shift), s);
}

struct decode_iq1_s {
    enum { QK = 256, BYTES = 50, CH = 256, BF = 0 };
    float d;
    template <class P> LANE void prep(P p, int) {
        d = half_value(p.u16(0));
    }
    template <class P> LANE void get(P p, int sub, int t, uint32_t *o) const {
        const uint32_t head = p.u16(34 + 2 * sub);
        const float s = d * (float) (2 * (head >> 12 & 7) + 1);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int u = 2 * r + (t >> 1);
            half_point_iq1(p.u8(2 + 4 * sub + u) | (head >> (3 * u) & 7) << 8, t, head >> 15, s, o + 2 * r);
        }
    }
};

struct decode_iq1_m {
    enum { QK = 256, BYTES = 56, CH = 256, BF = 0 };
    float d;
    template <class P> LANE void prep(P p, int) {
        const uint32_t a = p.w32(48), b = p.w32(52);
        d = half_value((a >> 12 & 15) | (a >> 28) << 4 | (b >> 12 & 15) << 8 | (b >> 28) << 12);
    }
    template <class P> LANE void get(P p, int sub, int t, uint32_t *o) const {
        const uint32_t word = p.u16(48 + 2 * (sub >> 1)); // four scales of 3 bits, one per run
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int g = 4 * sub + 2 * r + (t >> 1);
            const uint32_t head = p.u8(32 + (g >> 1)) >> (4 * (g & 1)) & 15;
            const float s = d * (float) (2 * (word >> (3 * (2 * (sub & 1) + r)) & 7) + 1);
            half_point_iq1(p.u8(g) | (head & 7) << 8, t, head >> 3, s, o + 2 * r);
        }
    }
};
