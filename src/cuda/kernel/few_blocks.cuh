// SPDX-License-Identifier: MIT
// few_blocks.cuh: decodes weights of block formats into 8-bit operands of tensor cores, one struct per format. Used by few90.cuh.
//
// A chunk is 256 elements of a row, in shared memory in the file's format. A sub is 32 elements of a chunk, a run is half of a sub.
//   prep()   reads the data that all elements of a chunk share
//   get()    stores elements 4t to 4t + 3 of run 0 of a sub in w[0], and of run 1 in w[1], as signed bytes, or unsigned if U8
//   scale()  returns the factor of a sub (RUNS 1) or of run r of a sub (RUNS 2)
//   less()   returns what is subtracted from each element of a sub (LESS 1) or of a run (LESS 2; then RUNS is 2)
//   d        if SUPER: factor of the whole chunk; the minimums have the factor dmin
//   FACTOR   the bytes are 1 / FACTOR times the elements
#pragma once

#include "dot.cuh"

struct few_block { // blocks of at most 64 elements
    enum { SUPER = 0, LESS = 0, U8 = 0, RUNS = 1 };
    float d, dmin;
    template <class P> LANE void prep(P) {
    }
    template <class P> LANE float less(P, int, int) const {
        return 0.0f;
    }
};
struct few_super : few_block {
    enum { SUPER = 1 };
};

// ---- blocks of 32 elements ----

// Signed values of n bits are moved to the top of each byte, so that the highest bit is the sign.
struct few_q4_0 : few_block {
    enum { QK = 32, BYTES = 18 };
    static constexpr float FACTOR = 0.0625f;
    template <class P> LANE void get(P p, int sub, int t, uint32_t *w) const {
        const uint32_t q = p.at(sub * BYTES).u32(2 + 4 * t) ^ 0x88888888u;
        w[0] = q << 4 & 0xf0f0f0f0u;
        w[1] = q & 0xf0f0f0f0u;
    }
    template <class P> LANE float scale(P p, int sub, int) const {
        return half_value(p.at(sub * BYTES).u16(0));
    }
};

struct few_q4_1 : few_block {
    enum { QK = 32, BYTES = 20, LESS = 1, U8 = 1 };
    static constexpr float FACTOR = 1.0f;
    template <class P> LANE void get(P p, int sub, int t, uint32_t *w) const {
        const uint32_t q = p.at(sub * BYTES).w32(4 + 4 * t);
        w[0] = q & 0x0f0f0f0fu;
        w[1] = q >> 4 & 0x0f0f0f0fu;
    }
    template <class P> LANE float scale(P p, int sub, int) const {
        return half_value(p.at(sub * BYTES).u16(0));
    }
    template <class P> LANE float less(P p, int sub, int) const {
        return -half_value(p.at(sub * BYTES).u16(2));
    }
};

// Returns bits 0 to 3 of h in bit 4 of four bytes.
LANE uint32_t few_fifth_bits(uint32_t h) {
    return (h & 15) * 0x00204081u << 4 & 0x10101010u;
}

struct few_q5_0 : few_block {
    enum { QK = 32, BYTES = 22 };
    static constexpr float FACTOR = 0.125f;
    template <class P> LANE void get(P p, int sub, int t, uint32_t *w) const {
        p = p.at(sub * BYTES);
        const uint32_t q = p.u32(6 + 4 * t), h = ~p.u32(2) >> (4 * t);
        w[0] = ((q & 0x0f0f0f0fu) | few_fifth_bits(h)) << 3;
        w[1] = ((q >> 4 & 0x0f0f0f0fu) | few_fifth_bits(h >> 16)) << 3;
    }
    template <class P> LANE float scale(P p, int sub, int) const {
        return half_value(p.at(sub * BYTES).u16(0));
    }
};

struct few_q5_1 : few_block {
    enum { QK = 32, BYTES = 24, LESS = 1, U8 = 1 };
    static constexpr float FACTOR = 1.0f;
    template <class P> LANE void get(P p, int sub, int t, uint32_t *w) const {
        p = p.at(sub * BYTES);
        const uint32_t q = p.w32(8 + 4 * t), h = p.w32(4) >> (4 * t);
        w[0] = (q & 0x0f0f0f0fu) | few_fifth_bits(h);
        w[1] = (q >> 4 & 0x0f0f0f0fu) | few_fifth_bits(h >> 16);
    }
    template <class P> LANE float scale(P p, int sub, int) const {
        return half_value(p.at(sub * BYTES).u16(0));
    }
    template <class P> LANE float less(P p, int sub, int) const {
        return -half_value(p.at(sub * BYTES).u16(2));
    }
};

struct few_q8_0 : few_block {
    enum { QK = 32, BYTES = 34 };
    static constexpr float FACTOR = 1.0f;
    template <class P> LANE void get(P p, int sub, int t, uint32_t *w) const {
        w[0] = p.at(sub * BYTES).u32(2 + 4 * t);
        w[1] = p.at(sub * BYTES).u32(18 + 4 * t);
    }
    template <class P> LANE float scale(P p, int sub, int) const {
        return half_value(p.at(sub * BYTES).u16(0));
    }
};

// ---- superblocks ----

// Returns byte i of w as a float. If HIGH, divides by 16: the exponent of the float whose lowest bits receive the byte is smaller
// by 4.
template <bool HIGH> LANE float few_byte(uint32_t w, int i) {
    const uint32_t bits = __byte_perm(w, HIGH ? 0x49000000u : 0x4b000000u, 0x7540 | i);
    return __uint_as_float(bits) - (HIGH ? 524288.0f : 8388608.0f);
}

struct few_scales_6 : few_super { // scales and minimums of q4_K and q5_K
    enum { LESS = 1, U8 = 1 };
    uint32_t s[2], m[2];
    template <class P> LANE void prep(P p) {
        const uint32_t dm = p.w32(0), a = p.w32(4), b = p.w32(8), c = p.w32(12);
        d = half_value(dm & 0xffff), dmin = half_value(dm >> 16);
        s[0] = a & 0x3f3f3f3fu;
        m[0] = b & 0x3f3f3f3fu;
        s[1] = (c & 0x0f0f0f0fu) | (a >> 2 & 0x30303030u);
        m[1] = (c >> 4 & 0x0f0f0f0fu) | (b >> 2 & 0x30303030u);
    }
    template <class P> LANE float less(P, int sub, int) const {
        return (float) ((sub < 4 ? m[0] : m[1]) >> (8 * (sub & 3)) & 63);
    }
};

// Odd subs are the high nibbles, read as 16 times their values.
struct few_q4_K : few_scales_6 {
    enum { QK = 256, BYTES = 144 };
    static constexpr float FACTOR = 1.0f;
    template <class P> LANE void get(P p, int sub, int t, uint32_t *w) const {
        const uint32_t mask = sub & 1 ? 0xf0f0f0f0u : 0x0f0f0f0fu;
        w[0] = p.w32(16 + 32 * (sub >> 1) + 4 * t) & mask;
        w[1] = p.w32(32 + 32 * (sub >> 1) + 4 * t) & mask;
    }
    template <class P> LANE float scale(P, int sub, int) const {
        return sub & 1 ? few_byte<true>(s[sub >> 2], sub & 3) : few_byte<false>(s[sub >> 2], sub & 3);
    }
};

struct few_q5_K : few_scales_6 {
    enum { QK = 256, BYTES = 176 };
    static constexpr float FACTOR = 1.0f;
    template <class P> LANE void get(P p, int sub, int t, uint32_t *w) const {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const uint32_t q = p.w32(48 + 32 * (sub >> 1) + 16 * r + 4 * t) >> (4 * (sub & 1));
            const uint32_t h = p.w32(16 + 16 * r + 4 * t) >> sub << 4;
            w[r] = (q & 0x0f0f0f0fu) | (h & 0x10101010u);
        }
    }
    template <class P> LANE float scale(P, int sub, int) const {
        return few_byte<false>(s[sub >> 2], sub & 3);
    }
};

struct few_q2_K : few_super {
    enum { QK = 256, BYTES = 84, RUNS = 2, LESS = 2 };
    static constexpr float FACTOR = 1.0f;
    template <class P> LANE void prep(P p) {
        d = half_value(p.u16(80)), dmin = half_value(p.u16(82));
    }
    template <class P> LANE void get(P p, int sub, int t, uint32_t *w) const {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            w[r] = p.w32(16 + 32 * (sub >> 2) + 16 * r + 4 * t) >> (2 * (sub & 3)) & 0x03030303u;
        }
    }
    template <class P> LANE float scale(P p, int sub, int r) const {
        return (float) (p.u8(2 * sub + r) & 15);
    }
    template <class P> LANE float less(P p, int sub, int r) const {
        return (float) (p.u8(2 * sub + r) >> 4);
    }
};

struct few_q3_K : few_super {
    enum { QK = 256, BYTES = 110, RUNS = 2 };
    static constexpr float FACTOR = 0.03125f;
    template <class P> LANE void prep(P p) {
        d = half_value(p.u16(108));
    }
    template <class P> LANE void get(P p, int sub, int t, uint32_t *w) const {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const uint32_t q = p.u32(32 + 32 * (sub >> 2) + 16 * r + 4 * t) >> (2 * (sub & 3));
            const uint32_t h = ~p.u32(16 * r + 4 * t) >> sub;
            w[r] = (q & 0x03030303u) << 5 | (h & 0x01010101u) << 7;
        }
    }
    template <class P> LANE float scale(P p, int sub, int r) const {
        const int run = 2 * sub + r;
        const int low = p.u8(96 + (run & 7)) >> (run < 8 ? 0 : 4) & 15;
        const int high = p.u8(104 + (run & 3)) >> (2 * (run >> 2)) & 3;
        return (float) ((low | high << 4) - 32);
    }
};

struct few_q6_K : few_super {
    enum { QK = 256, BYTES = 210, RUNS = 2 };
    static constexpr float FACTOR = 0.25f;
    template <class P> LANE void prep(P p) {
        d = half_value(p.u16(208));
    }
    template <class P> LANE void get(P p, int sub, int t, uint32_t *w) const {
        const int half = sub >> 2, q = sub & 3;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const uint32_t low = p.u32(64 * half + 32 * (q & 1) + 16 * r + 4 * t);
            const uint32_t high = p.u32(128 + 32 * half + 16 * r + 4 * t) << (6 - 2 * q);
            w[r] = ((q >> 1 ? low >> 2 : low << 2) & 0x3c3c3c3cu) | ((high & 0xc0c0c0c0u) ^ 0x80808080u);
        }
    }
    template <class P> LANE float scale(P p, int sub, int r) const {
        return (float) (int8_t) p.u8(192 + 2 * sub + r);
    }
};

// ---- nibbles that index a table of values ----

struct few_iq4_nl : few_block {
    enum { QK = 32, BYTES = 18 };
    static constexpr float FACTOR = 1.0f;
    LANE static void values(uint32_t q, uint32_t *w) {
        const uint32_t a = curve_4(q), b = curve_4(q >> 16);
        w[0] = __byte_perm(a, b, 0x6420) ^ 0x80808080u;
        w[1] = __byte_perm(a, b, 0x7531) ^ 0x80808080u;
    }
    template <class P> LANE void get(P p, int sub, int t, uint32_t *w) const {
        values(p.at(sub * BYTES).u32(2 + 4 * t), w);
    }
    template <class P> LANE float scale(P p, int sub, int) const {
        return half_value(p.at(sub * BYTES).u16(0));
    }
};

struct few_iq4_xs : few_super {
    enum { QK = 256, BYTES = 136 };
    static constexpr float FACTOR = 1.0f;
    uint32_t high, low;
    template <class P> LANE void prep(P p) {
        const uint32_t head = p.w32(0);
        d = half_value(head & 0xffff);
        high = head >> 16;
        low = p.w32(4);
    }
    template <class P> LANE void get(P p, int sub, int t, uint32_t *w) const {
        few_iq4_nl::values(p.w32(8 + 16 * sub + 4 * t), w);
    }
    template <class P> LANE float scale(P, int sub, int) const {
        return (float) ((int) ((low >> (4 * sub) & 15) | (high >> (2 * sub) & 3) << 4) - 32);
    }
};

struct few_mxfp4 : few_block {
    enum { QK = 32, BYTES = 17 };
    static constexpr float FACTOR = 1.0f;
    template <class P> LANE void get(P p, int sub, int t, uint32_t *w) const {
        const uint32_t q = p.at(sub * BYTES).u32(1 + 4 * t);
        fp4_words<1>(&q, w);
    }
    template <class P> LANE float scale(P p, int sub, int) const {
        const uint32_t e = p.at(sub * BYTES).u8(0);
        return __uint_as_float(e < 2 ? 0x00200000u << e : (e - 1) << 23);
    }
};

struct few_nvfp4 : few_block {
    enum { QK = 64, BYTES = 36, RUNS = 2 };
    static constexpr float FACTOR = 0.5f;
    template <class P> LANE void get(P p, int sub, int t, uint32_t *w) const {
#pragma unroll
        for (int r = 0; r < 2; r++) { // 8 bytes per run: elements 0 to 7 are the low nibbles, 8 to 15 the high nibbles
            const uint32_t q = p.at((sub >> 1) * BYTES).w32(4 + 16 * (sub & 1) + 8 * r + 4 * (t & 1));
            uint32_t v[2];
            fp4_words<1>(&q, v);
            w[r] = t < 2 ? v[0] : v[1];
        }
    }
    template <class P> LANE float scale(P p, int sub, int r) const {
        return decode_nvfp4::scale_value(p.at((sub >> 1) * BYTES).u8(2 * (sub & 1) + r));
    }
};
