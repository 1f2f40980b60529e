// SPDX-License-Identifier: MIT
// decode.cuh: decodes weights of every type into operands of tensor cores.
//
// A warp holds 16 rows of weights; thread (g, t) = (lane / 4, lane % 4) holds rows g and g + 8.
// A chunk is CH elements of a row, in shared memory in the file's format. A sub is 32 elements of a chunk. A run is half of a
// sub. prep() reads the data that all elements of a chunk share. get() decodes the elements of one sub of one row that thread t
// needs:
//     o[0] = elements 4t, 4t + 2 of run 0       o[1] = elements 4t + 1, 4t + 3 of run 0       o[2], o[3]: the same of run 1
// as pairs of f16, or of bf16 if BF. Even elements therefore come before odd elements; act.cu stores columns in the same order.
// valid: number of elements of the chunk that exist, for dense rows whose length is not a multiple of 32.
//
// Integers become f16 by bit operations: the f16 with the bits 0x6400 | q is 1024 + q, for q < 1024. Subtracting 1024 is exact.
#pragma once

#include "decode_dense.cuh"
#include "lane.cuh"

#define MAGIC 0x64006400u

// Subtracts the bias from both f16 of a pair; exact for integers below 2048.
LANE uint32_t h2_less(uint32_t q, float bias) {
    return h2_add(q, h2_all(-bias));
}
// Return bytes 0 and 2 (even_bytes), or 1 and 3 (odd_bytes), plus 1024, as a pair of f16.
LANE uint32_t even_bytes(uint32_t w) {
    return __byte_perm(w, MAGIC, 0x7270);
}
LANE uint32_t odd_bytes(uint32_t w) {
    return __byte_perm(w, MAGIC, 0x7371);
}
template <uint32_t MASK> LANE uint32_t fields(uint32_t w) {
    uint32_t o;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;\n" : "=r"(o) : "r"(w), "n"(MASK), "r"(MAGIC));
    return o;
}
// Return the bits MASK of bytes 0 and 2 (even_fields), or 1 and 3 (odd_fields), plus 1024, as a pair of f16.
template <uint32_t MASK> LANE uint32_t even_fields(uint32_t w) {
    return fields<MASK * 0x00010001u>(w);
}
template <uint32_t MASK> LANE uint32_t odd_fields(uint32_t w) {
    return even_fields<MASK>(w >> 8);
}
// o[0]: low nibbles of bytes 0 and 2; o[1]: low nibbles of bytes 1 and 3; o[2], o[3]: high nibbles in the same order. Subtracts
// the bias. A high nibble is read as 1024 + 16 q; one fused multiply-add divides by 16 and subtracts 64 and the bias. Exact.
LANE void nibbles(uint32_t w, float bias, uint32_t *o) {
    const uint32_t odd = w >> 8;
    o[0] = h2_less(fields<0x000f000fu>(w), 1024 + bias);
    o[1] = h2_less(fields<0x000f000fu>(odd), 1024 + bias);
    o[2] = h2_fma(fields<0x00f000f0u>(w), h2_all(0.0625f), h2_all(-64 - bias));
    o[3] = h2_fma(fields<0x00f000f0u>(odd), h2_all(0.0625f), h2_all(-64 - bias));
}
// Decodes only the low nibbles or only the high nibbles, without a bias.
template <bool HIGH> LANE void nibbles_of(uint32_t w, uint32_t *o) {
    const uint32_t odd = w >> 8;
    o[0] = HIGH ? h2_fma(fields<0x00f000f0u>(w), h2_all(0.0625f), h2_all(-64)) : h2_less(fields<0x000f000fu>(w), 1024);
    o[1] = HIGH ? h2_fma(fields<0x00f000f0u>(odd), h2_all(0.0625f), h2_all(-64)) : h2_less(fields<0x000f000fu>(odd), 1024);
}
// Moves bits 0 and 2 of h (even_bits), or bits 1 and 3 (odd_bits), to bit BIT of the two elements of a pair.
template <int BIT> LANE uint32_t even_bits(uint32_t h) {
    return (h & 1) << BIT | (h & 4) << (BIT + 14);
}
template <int BIT> LANE uint32_t odd_bits(uint32_t h) {
    return even_bits<BIT>(h >> 1);
}

// ---- blocks of 32 elements with an f16 scale: q4_0 q4_1 q5_0 q5_1 q8_0 ----

struct decode_plain { // for types without data that a chunk shares
    template <class P> LANE void prep(P, int) {
    }
};

struct decode_q4_0 : decode_plain {
    enum { QK = 32, BYTES = 18, CH = 256, BF = 0 };
    template <class P> LANE void get(P p, int sub, int t, uint32_t *o) const {
        p = p.at(sub * BYTES);
        const uint32_t d = h2_low(p.u16(0));
        const uint32_t w = p.u32(2 + 4 * t);
        nibbles(w, 8, o);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            o[i] = h2_mul(o[i], d);
        }
    }
};

struct decode_q4_1 : decode_plain {
    enum { QK = 32, BYTES = 20, CH = 256, BF = 0 };
    template <class P> LANE void get(P p, int sub, int t, uint32_t *o) const {
        p = p.at(sub * BYTES);
        const uint32_t dm = p.w32(0), d = h2_low(dm), m = h2_high(dm);
        const uint32_t w = p.w32(4 + 4 * t);
        nibbles(w, 0, o);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            o[i] = h2_fma(o[i], d, m);
        }
    }
};

// Decodes four elements of each run, plus 1024: the low four bits are nibbles of w, the fifth bits are in h.
LANE void fives(uint32_t w, uint32_t h, uint32_t *o) {
    const uint32_t lo = h & 15, hi = h >> 16 & 15;
    o[0] = even_fields<15>(w) | even_bits<4>(lo);
    o[1] = odd_fields<15>(w) | odd_bits<4>(lo);
    o[2] = even_fields<15>(w >> 4) | even_bits<4>(hi);
    o[3] = odd_fields<15>(w >> 4) | odd_bits<4>(hi);
}

struct decode_q5_0 : decode_plain {
    enum { QK = 32, BYTES = 22, CH = 256, BF = 0 };
    template <class P> LANE void get(P p, int sub, int t, uint32_t *o) const {
        p = p.at(sub * BYTES);
        const uint32_t d = h2_low(p.u16(0));
        fives(p.u32(6 + 4 * t), p.u32(2) >> (4 * t), o);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            o[i] = h2_mul(h2_less(o[i], 1040), d);
        }
    }
};

struct decode_q5_1 : decode_plain {
    enum { QK = 32, BYTES = 24, CH = 256, BF = 0 };
    template <class P> LANE void get(P p, int sub, int t, uint32_t *o) const {
        p = p.at(sub * BYTES);
        const uint32_t dm = p.w32(0);
        fives(p.w32(8 + 4 * t), p.w32(4) >> (4 * t), o);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            o[i] = h2_fma(h2_less(o[i], 1024), h2_low(dm), h2_high(dm));
        }
    }
};

struct decode_q8_0 : decode_plain {
    enum { QK = 32, BYTES = 34, CH = 256, BF = 0 };
    template <class P> LANE void get(P p, int sub, int t, uint32_t *o) const {
        p = p.at(sub * BYTES);
        const uint32_t d = h2_low(p.u16(0));
        const uint32_t a = p.u32(2 + 4 * t) ^ 0x80808080u, b = p.u32(18 + 4 * t) ^ 0x80808080u;
        o[0] = h2_mul(h2_less(even_bytes(a), 1152), d);
        o[1] = h2_mul(h2_less(odd_bytes(a), 1152), d);
        o[2] = h2_mul(h2_less(even_bytes(b), 1152), d);
        o[3] = h2_mul(h2_less(odd_bytes(b), 1152), d);
    }
};

// ---- superblocks: q2_K q3_K q4_K q5_K q6_K ----

struct decode_q2_K {
    enum { QK = 256, BYTES = 84, CH = 256, BF = 0 };
    uint32_t dm;
    template <class P> LANE void prep(P p, int) {
        dm = p.w32(80);
    }
    template <class P> LANE void get(P p, int sub, int t, uint32_t *o) const {
        const int shift = 2 * (sub & 3);
        const uint32_t sc = p.u16(2 * sub);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const uint32_t s = sc >> (8 * r);
            const uint32_t sm = h2_mul(h2_less((s & 15) | (s & 0xf0) << 12 | MAGIC, 1024), dm);
            const uint32_t neg = h2_high(sm) ^ 0x80008000u;
            const uint32_t w = p.w32(16 + 32 * (sub >> 2) + 16 * r + 4 * t) >> shift;
            o[2 * r] = h2_fma(h2_less(even_fields<3>(w), 1024), h2_low(sm), neg);
            o[2 * r + 1] = h2_fma(h2_less(odd_fields<3>(w), 1024), h2_low(sm), neg);
        }
    }
};

struct decode_q3_K {
    enum { QK = 256, BYTES = 110, CH = 256, BF = 0 };
    float d;
    template <class P> LANE void prep(P p, int) {
        d = half_value(p.u16(108));
    }
    template <class P> LANE void get(P p, int sub, int t, uint32_t *o) const {
        const int shift = 2 * (sub & 3);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int run = 2 * sub + r;
            const int low = p.u8(96 + (run & 7)) >> (run < 8 ? 0 : 4) & 15;
            const int high = p.u8(104 + (run & 3)) >> (2 * (run >> 2)) & 3;
            const uint32_t s = h2_all(d * (float) ((low | high << 4) - 32));
            const uint32_t w = p.u32(32 + 32 * (sub >> 2) + 16 * r + 4 * t) >> shift;
            const uint32_t h = p.u32(16 * r + 4 * t) >> sub << 2;
            o[2 * r] = h2_mul(h2_less((w & 0x00030003u) | (h & 0x00040004u) | MAGIC, 1028), s);
            o[2 * r + 1] = h2_mul(h2_less((w >> 8 & 0x00030003u) | (h >> 8 & 0x00040004u) | MAGIC, 1028), s);
        }
    }
};

// Scales and minimums of q4_K and q5_K: 8 of each, 6 bits wide.
struct scales_6 {
    uint32_t s[2], m[2], dm;
    template <class P> LANE void prep(P p) {
        const uint32_t a = p.w32(4), b = p.w32(8), c = p.w32(12);
        dm = p.w32(0) ^ 0x80000000u; // negate dmin, because minimums are subtracted
        s[0] = a & 0x3f3f3f3fu;
        m[0] = b & 0x3f3f3f3fu;
        s[1] = (c & 0x0f0f0f0fu) | (a >> 2 & 0x30303030u);
        m[1] = (c >> 4 & 0x0f0f0f0fu) | (b >> 2 & 0x30303030u);
    }
    // Lower f16: scale. Upper f16: minimum.
    LANE uint32_t pair(int sub) const {
        const int i = sub >> 2, j = sub & 3;
        const uint32_t q = __byte_perm(s[i], m[i], j | (4 + j) << 8) & 0x00ff00ffu;
        return h2_mul(h2_less(q | MAGIC, 1024), dm);
    }
};

struct decode_q4_K {
    enum { QK = 256, BYTES = 144, CH = 256, BF = 0 };
    scales_6 sc;
    template <class P> LANE void prep(P p, int) {
        sc.prep(p);
    }
    template <class P> LANE void get(P p, int sub, int t, uint32_t *o) const {
        const uint32_t sm = sc.pair(sub), s = h2_low(sm), m = h2_high(sm);
        const uint32_t a = p.w32(16 + 32 * (sub >> 1) + 4 * t), b = p.w32(32 + 32 * (sub >> 1) + 4 * t);
        if (sub & 1) {
            nibbles_of<true>(a, o);
            nibbles_of<true>(b, o + 2);
        } else {
            nibbles_of<false>(a, o);
            nibbles_of<false>(b, o + 2);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            o[i] = h2_fma(o[i], s, m);
        }
    }
};

struct decode_q5_K {
    enum { QK = 256, BYTES = 176, CH = 256, BF = 0 };
    scales_6 sc;
    template <class P> LANE void prep(P p, int) {
        sc.prep(p);
    }
    template <class P> LANE void get(P p, int sub, int t, uint32_t *o) const {
        const uint32_t sm = sc.pair(sub), s = h2_low(sm), m = h2_high(sm);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const uint32_t w = p.w32(48 + 32 * (sub >> 1) + 16 * r + 4 * t) >> (4 * (sub & 1));
            const uint32_t h = p.w32(16 + 16 * r + 4 * t) >> sub << 4;
            o[2 * r] = h2_fma(h2_less((w & 0x000f000fu) | (h & 0x00100010u) | MAGIC, 1024), s, m);
            o[2 * r + 1] = h2_fma(h2_less((w >> 8 & 0x000f000fu) | (h >> 8 & 0x00100010u) | MAGIC, 1024), s, m);
        }
    }
};

struct decode_q6_K {
    enum { QK = 256, BYTES = 210, CH = 256, BF = 0 };
    float d;
    template <class P> LANE void prep(P p, int) {
        d = half_value(p.u16(208));
    }
    template <class P> LANE void get(P p, int sub, int t, uint32_t *o) const {
        const int half = sub >> 2, q = sub & 3;
        const uint32_t sc = p.u16(192 + 2 * sub);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const uint32_t s = h2_all(d * (float) (int8_t) (sc >> (8 * r)));
            const uint32_t w = p.u32(64 * half + 32 * (q & 1) + 16 * r + 4 * t) >> (4 * (q >> 1));
            const uint32_t h = p.u32(128 + 32 * half + 16 * r + 4 * t) >> (2 * q) << 4;
            o[2 * r] = h2_mul(h2_less((w & 0x000f000fu) | (h & 0x00300030u) | MAGIC, 1056), s);
            o[2 * r + 1] = h2_mul(h2_less((w >> 8 & 0x000f000fu) | (h >> 8 & 0x00300030u) | MAGIC, 1056), s);
        }
    }
};

// ---- one or two bits: q1_0 q2_0 tq1_0 tq2_0 ----

struct decode_q1_0 : decode_plain {
    enum { QK = 128, BYTES = 18, CH = 256, BF = 0 };
    template <class P> LANE void get(P p, int sub, int t, uint32_t *o) const {
        p = p.at((sub >> 2) * BYTES);
        const uint32_t d = h2_low(p.u16(0));
        const uint32_t w = ~p.u32(2 + 4 * (sub & 3)) >> (4 * t);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            o[2 * r] = d ^ even_bits<15>(w >> (16 * r));
            o[2 * r + 1] = d ^ odd_bits<15>(w >> (16 * r));
        }
    }
};

struct decode_q2_0 : decode_plain {
    enum { QK = 64, BYTES = 18, CH = 256, BF = 0 };
    template <class P> LANE void get(P p, int sub, int t, uint32_t *o) const {
        p = p.at((sub >> 1) * BYTES);
        const uint32_t d = h2_low(p.u16(0));
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const uint32_t b = p.u8(2 + 8 * (sub & 1) + 4 * r + t);
            o[2 * r] = h2_mul(h2_less((b & 3) | (b & 0x30) << 12 | MAGIC, 1025), d);
            o[2 * r + 1] = h2_mul(h2_less((b >> 2 & 3) | (b >> 2 & 0x30) << 12 | MAGIC, 1025), d);
        }
    }
};

struct decode_tq2_0 {
    enum { QK = 256, BYTES = 66, CH = 256, BF = 0 };
    uint32_t d;
    template <class P> LANE void prep(P p, int) {
        d = h2_low(p.u16(64));
    }
    template <class P> LANE void get(P p, int sub, int t, uint32_t *o) const {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const uint32_t w = p.u32(32 * (sub >> 2) + 16 * r + 4 * t) >> (2 * (sub & 3));
            o[2 * r] = h2_mul(h2_less(even_fields<3>(w), 1025), d);
            o[2 * r + 1] = h2_mul(h2_less(odd_fields<3>(w), 1025), d);
        }
    }
};

struct decode_tq1_0 {
    enum { QK = 256, BYTES = 54, CH = 256, BF = 0 };
    uint32_t d;
    template <class P> LANE void prep(P p, int) {
        d = h2_low(p.u16(52));
    }
    // A byte is a fraction in base 3 (quant/low_bit.c). Returns digit n of two bytes, plus 1024. Digit 0 is the most significant.
    LANE static uint32_t trit_after(uint32_t pair, int n) {
        const uint32_t power = n == 0 ? 1 : n == 1 ? 3 : n == 2 ? 9 : n == 3 ? 27 : 81;
        const uint32_t part = (pair * power) & 0x00ff00ffu; // no carry: 255 * 81 < 65536
        return (part * 3 >> 8 & 0x00030003u) | MAGIC;
    }
    template <class P> LANE void get(P p, int sub, int t, uint32_t *o) const {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            // 10 runs in the first 32 bytes, 5 in the next 16, 1 in the last 4.
            const int run = 2 * sub + r;
            int at, n;
            if (run < 10) {
                at = 16 * r + 4 * t, n = sub;
            } else if (run < 15) {
                at = 32 + 4 * t, n = run - 10;
            } else {
                at = 48, n = t;
            }
            const uint32_t w = p.u32(at);
            o[2 * r] = h2_mul(h2_less(trit_after(w & 0x00ff00ffu, n), 1025), d);
            o[2 * r + 1] = h2_mul(h2_less(trit_after(w >> 8 & 0x00ff00ffu, n), 1025), d);
        }
    }
};

#include "decode_curve.cuh"
#include "decode_grid.cuh"
