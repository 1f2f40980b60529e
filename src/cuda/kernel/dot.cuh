// SPDX-License-Identifier: MIT
// dot.cuh: products of 32 weights with 32 elements of a column in 8 bits, one struct per format. Used by mv.cuh.
//
// A sub is 32 elements. A run is half of a sub.
// A thread processes one sub of every 1,024 elements, so of() receives the bytes of 1,024 elements. The position of the sub in a
// block is constant, so init() computes offsets, masks and factors once. If two subs share bytes, a thread processes both
// (SUBS = 2), and of() receives the bytes of 2,048 elements.
// sub_place() returns the position of a sub in the column. With SUBS = 2, the first subs of all pairs come first.
// Bit fields are masked but not shifted: a field at bit b counts as 2^b times its value, and a factor corrects the sum.
// head holds four numbers of a sub of the column: {scale, scale * sum of run 0, scale * sum of run 1, scale * sum of both}.
#pragma once

#include "decode.cuh"

// Reads N words of 4 bytes from byte i of p on. p.off + i may have any alignment.
template <int N> LANE void words_at(bytes p, uint32_t i, uint32_t *v) {
    const uint32_t o = p.off + i, shift = 8 * (o & 3);
    uint32_t w[N + 1];
#pragma unroll
    for (int j = 0; j <= N; j++) {
        w[j] = p.base[(o >> 2) + j];
    }
#pragma unroll
    for (int j = 0; j < N; j++) {
        v[j] = __funnelshift_r(w[j], w[j + 1], shift);
    }
}
// Reads N words of 4 bytes from byte i of p on. p.off + i is a multiple of 4.
template <int N> LANE void aligned_at(bytes p, uint32_t i, uint32_t *v) {
#pragma unroll
    for (int j = 0; j < N; j++) {
        v[j] = p.base[((p.off + i) >> 2) + j];
    }
}

LANE int dot_u(uint32_t w, int x, int c) { // bytes of w are unsigned
    int r;
    asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(w), "r"(x), "r"(c));
    return r;
}
// Integer sums start at DOT_ZERO, the bits of the float 1.5 * 2^23. Sums stay below 2^22, so a float subtraction converts them. A
// conversion instruction would have a quarter of the throughput.
enum { DOT_ZERO = 0x4b400000 };
LANE float dot_value(int sum) {
    return __int_as_float(sum) - 12582912.0f;
}
LANE float byte_0(uint32_t w) {
    return __uint_as_float(__byte_perm(w, 0x4b000000u, 0x7540)) - 8388608.0f;
}
LANE float byte_1(uint32_t w) {
    return __uint_as_float(__byte_perm(w, 0x4b000000u, 0x7541)) - 8388608.0f;
}

LANE int sum4_u(const uint32_t *w, uint32_t mask, int4 x, int c) {
    return dot_u(w[0] & mask, x.x, dot_u(w[1] & mask, x.y, dot_u(w[2] & mask, x.z, dot_u(w[3] & mask, x.w, c))));
}
LANE float dot4_u(const uint32_t *w, uint32_t mask, int4 x) {
    return dot_value(sum4_u(w, mask, x, DOT_ZERO));
}
LANE float dot8_u(const uint32_t *w, uint32_t mask, int4 a, int4 b) {
    return dot_value(sum4_u(w, mask, a, DOT_ZERO) + sum4_u(w + 4, mask, b, 0));
}
LANE int sum4_s(const uint32_t *w, int4 x, int c) {
    return __dp4a((int) w[0], x.x, __dp4a((int) w[1], x.y, __dp4a((int) w[2], x.z, __dp4a((int) w[3], x.w, c))));
}
LANE float dot4_s(const uint32_t *w, int4 x) {
    return dot_value(sum4_s(w, x, DOT_ZERO));
}
LANE float dot8_s(const uint32_t *w, int4 a, int4 b) {
    return dot_value(sum4_s(w, a, DOT_ZERO) + sum4_s(w + 4, b, 0));
}

// One sub of the column. a, b: the elements of run 0 and of run 1, in 8 bits.
struct dot_x {
    int4 a, b;
    float4 head;
};
struct dot_single {
    enum { SUBS = 1 };
    LANE static int sub_place(int sub, int) {
        return sub;
    }
};
struct dot_pair { // subs 2 i and 2 i + 1 share bytes
    enum { SUBS = 2 };
    LANE static int sub_place(int sub, int n_sub) {
        return sub / 2 + (sub & 1) * (n_sub / 2);
    }
};

// ---- blocks of 32 elements ----

template <int SIZE> struct dot_32 : dot_single {
    enum { QK = 32, BYTES = SIZE };
    uint32_t at;
    LANE void init(int lane) {
        at = lane * BYTES;
    }
};

struct dot_q4_0 : dot_32<18> {
    LANE float of(bytes p, int4 a, int4 b, float4 head) const {
        uint32_t w[4];
        words_at<4>(p, at + 2, w);
        const float sum = dot4_u(w, 0x0f0f0f0fu, a) + dot4_u(w, 0xf0f0f0f0u, b) * 0.0625f;
        return half_value(p.u16(at)) * (sum * head.x - 8.0f * head.w);
    }
};

struct dot_q4_1 : dot_32<20> {
    LANE float of(bytes p, int4 a, int4 b, float4 head) const {
        uint32_t w[5];
        aligned_at<5>(p, at, w);
        const float sum = dot4_u(w + 1, 0x0f0f0f0fu, a) + dot4_u(w + 1, 0xf0f0f0f0u, b) * 0.0625f;
        return half_value(w[0] & 0xffff) * sum * head.x + half_value(w[0] >> 16) * head.w;
    }
};

// Returns the sum of the elements whose bit in h is set. h: one bit per element.
LANE float dot_bits(uint32_t h, int4 a, int4 b) {
    uint32_t w[8];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        w[i] = (h >> (4 * i) & 15) * 0x00204081u;
    }
    return dot8_u(w, 0x01010101u, a, b);
}

struct dot_q5_0 : dot_32<22> {
    LANE float of(bytes p, int4 a, int4 b, float4 head) const {
        uint32_t w[5];
        words_at<5>(p, at + 2, w);
        const float sum = dot4_u(w + 1, 0x0f0f0f0fu, a) + dot4_u(w + 1, 0xf0f0f0f0u, b) * 0.0625f + 16.0f * dot_bits(w[0], a, b);
        return half_value(p.u16(at)) * (sum * head.x - 16.0f * head.w);
    }
};

struct dot_q5_1 : dot_32<24> {
    LANE float of(bytes p, int4 a, int4 b, float4 head) const {
        uint32_t w[6];
        aligned_at<6>(p, at, w);
        const float sum = dot4_u(w + 2, 0x0f0f0f0fu, a) + dot4_u(w + 2, 0xf0f0f0f0u, b) * 0.0625f + 16.0f * dot_bits(w[1], a, b);
        return half_value(w[0] & 0xffff) * sum * head.x + half_value(w[0] >> 16) * head.w;
    }
};

struct dot_q8_0 : dot_32<34> {
    LANE float of(bytes p, int4 a, int4 b, float4 head) const {
        uint32_t w[8];
        words_at<8>(p, at + 2, w);
        return half_value(p.u16(at)) * head.x * dot8_s(w, a, b);
    }
};

// ---- superblocks: the sub of a thread is lane % 8 ----

LANE float power(int n) { // 2^n
    return __uint_as_float((uint32_t) (127 + n) << 23);
}

struct dot_q2_K : dot_single {
    enum { QK = 256, BYTES = 84 };
    uint32_t at, qs, scales, mask;
    float factor;
    LANE void init(int lane) {
        const int sub = lane % 8;
        at = lane / 8 * BYTES, qs = at + 16 + 32 * (sub >> 2), scales = at + 2 * sub;
        mask = 0x03030303u << (2 * (sub & 3)), factor = power(-2 * (sub & 3));
    }
    LANE float of(bytes p, int4 a, int4 b, float4 head) const {
        uint32_t w[8];
        aligned_at<8>(p, qs, w);
        const uint32_t sc = p.u16(scales), dm = p.w32(at + 80);
        const float sum = dot4_u(w, mask, a) * (float) (sc & 15) + dot4_u(w + 4, mask, b) * (float) (sc >> 8 & 15);
        const float less = head.y * (float) (sc >> 4 & 15) + head.z * (float) (sc >> 12);
        return half_value(dm & 0xffff) * factor * head.x * sum - half_value(dm >> 16) * less;
    }
};

struct dot_q3_K : dot_single {
    enum { QK = 256, BYTES = 110 };
    uint32_t at, qs, low[2], high[2], mask, bit;
    int low_shift, high_shift;
    float factor, bit_factor;
    LANE void init(int lane) {
        const int sub = lane % 8;
        at = lane / 8 * BYTES, qs = at + 32 + 32 * (sub >> 2);
        mask = 0x03030303u << (2 * (sub & 3)), factor = power(-2 * (sub & 3));
        bit = 0x01010101u << sub, bit_factor = power(2 - sub);
        low[0] = at + 96 + (2 * sub & 7), high[0] = at + 104 + (2 * sub & 3);
        low_shift = sub < 4 ? 0 : 4, high_shift = 2 * (sub >> 1);
    }
    LANE float of(bytes p, int4 a, int4 b, float4 head) const {
        uint32_t w[8], h[8];
        words_at<8>(p, qs, w);
        words_at<8>(p, at, h);
        const uint32_t l = p.u16(low[0]) >> low_shift, u = p.u16(high[0]) >> high_shift;
        const float s0 = (float) ((int) ((l & 15) | (u & 3) << 4) - 32),
                    s1 = (float) ((int) ((l >> 8 & 15) | (u >> 8 & 3) << 4) - 32);
        const float lo = dot4_u(w, mask, a) * factor + dot4_u(h, bit, a) * bit_factor;
        const float hi = dot4_u(w + 4, mask, b) * factor + dot4_u(h + 4, bit, b) * bit_factor;
        return half_value(p.u16(at + 108)) * (s0 * (lo * head.x - 4.0f * head.y) + s1 * (hi * head.x - 4.0f * head.z));
    }
};

// Extracts the scales and the minimums of two subs from the first 16 bytes of a block of q4_K or q5_K.
struct dot_scale_6 {
    uint32_t shift, first, low, high; // masks; if sub < 4, its 6 bits are in one byte
    LANE void init(int pair) {
        shift = 16 * (pair & 1);
        first = pair < 2 ? 0x3f3f : 0, low = pair < 2 ? 0 : 0x0f0f, high = pair < 2 ? 0 : 0x3030;
    }
    LANE void of(uint4 block, float2 *s, float2 *m) const {
        const uint32_t a = block.y >> shift, b = block.z >> shift, c = block.w >> shift;
        const uint32_t u = (a & first) | (c & low) | (a >> 2 & high), v = (b & first) | (c >> 4 & low) | (b >> 2 & high);
        *s = make_float2(byte_0(u), byte_1(u));
        *m = make_float2(byte_0(v), byte_1(v));
    }
};

LANE uint4 block_16(bytes p, uint32_t i) { // p.off + i is a multiple of 16
    return *reinterpret_cast<const uint4 *>(p.base + ((p.off + i) >> 2));
}
LANE void words_16(bytes p, uint32_t i, uint32_t *w) { // p.off + i is a multiple of 16
    const uint4 u = block_16(p, i), v = block_16(p, i + 16);
    w[0] = u.x, w[1] = u.y, w[2] = u.z, w[3] = u.w, w[4] = v.x, w[5] = v.y, w[6] = v.z, w[7] = v.w;
}

struct dot_q4_K : dot_pair {
    enum { QK = 256, BYTES = 144 };
    uint32_t at, qs;
    dot_scale_6 sc;
    LANE void init(int lane) {
        at = lane / 4 * BYTES, qs = at + 16 + 32 * (lane % 4);
        sc.init(lane % 4);
    }
    LANE float of(bytes p, const dot_x &x, const dot_x &y) const {
        uint32_t w[8];
        words_16(p, qs, w);
        const uint4 head = block_16(p, at);
        const uint32_t dm = head.x;
        float2 s, m;
        sc.of(head, &s, &m);
        const float lo = dot8_u(w, 0x0f0f0f0fu, x.a, x.b) * x.head.x,
                    hi = dot8_u(w, 0xf0f0f0f0u, y.a, y.b) * (0.0625f * y.head.x);
        return half_value(dm & 0xffff) * (s.x * lo + s.y * hi) - half_value(dm >> 16) * (m.x * x.head.w + m.y * y.head.w);
    }
};

struct dot_q5_K : dot_pair {
    enum { QK = 256, BYTES = 176 };
    uint32_t at, qs, bit;
    float factor;
    dot_scale_6 sc;
    LANE void init(int lane) {
        const int pair = lane % 4;
        at = lane / 4 * BYTES, qs = at + 48 + 32 * pair;
        bit = 0x01010101u << (2 * pair), factor = power(4 - 2 * pair);
        sc.init(pair);
    }
    LANE float of(bytes p, const dot_x &x, const dot_x &y) const {
        uint32_t w[8], h[8];
        words_16(p, qs, w);
        words_16(p, at + 16, h);
        const uint4 head = block_16(p, at);
        const uint32_t dm = head.x;
        float2 s, m;
        sc.of(head, &s, &m);
        const float lo = (dot8_u(w, 0x0f0f0f0fu, x.a, x.b) + dot8_u(h, bit, x.a, x.b) * factor) * x.head.x;
        const float hi =
            (dot8_u(w, 0xf0f0f0f0u, y.a, y.b) * 0.0625f + dot8_u(h, bit << 1, y.a, y.b) * (0.5f * factor)) * y.head.x;
        return half_value(dm & 0xffff) * (s.x * lo + s.y * hi) - half_value(dm >> 16) * (m.x * x.head.w + m.y * y.head.w);
    }
};

struct dot_q6_K {
    enum { QK = 256, BYTES = 210, SUBS = 2 };
    uint32_t at, ql, qh, scales, bits;
    float factor;
    // A half of a block has four subs: 0 and 2 share bytes, and so do 1 and 3.
    LANE static int sub_place(int sub, int n_sub) {
        return sub / 4 * 2 + (sub & 1) + (sub >> 1 & 1) * (n_sub / 2);
    }
    LANE void init(int lane) {
        const int half = lane % 4 / 2, q = lane % 2;
        at = lane / 4 * BYTES, ql = at + 64 * half + 32 * q, qh = at + 128 + 32 * half, scales = at + 192 + 8 * half + 2 * q;
        bits = 0x03030303u << (2 * q), factor = power(4 - 2 * q);
    }
    LANE float of(bytes p, const dot_x &x, const dot_x &y) const {
        uint32_t w[8], h[8];
        words_at<8>(p, ql, w);
        words_at<8>(p, qh, h);
        const uint32_t s = p.u16(scales) ^ 0x8080, t = p.u16(scales + 4) ^ 0x8080;
        const float x0 = dot4_u(w, 0x0f0f0f0fu, x.a) + dot4_u(h, bits, x.a) * factor;
        const float x1 = dot4_u(w + 4, 0x0f0f0f0fu, x.b) + dot4_u(h + 4, bits, x.b) * factor;
        const float y0 = dot4_u(w, 0xf0f0f0f0u, y.a) * 0.0625f + dot4_u(h, bits << 4, y.a) * (0.0625f * factor);
        const float y1 = dot4_u(w + 4, 0xf0f0f0f0u, y.b) * 0.0625f + dot4_u(h + 4, bits << 4, y.b) * (0.0625f * factor);
        const float first =
            (byte_0(s) - 128.0f) * (x0 * x.head.x - 32.0f * x.head.y) + (byte_1(s) - 128.0f) * (x1 * x.head.x - 32.0f * x.head.z);
        const float second =
            (byte_0(t) - 128.0f) * (y0 * y.head.x - 32.0f * y.head.y) + (byte_1(t) - 128.0f) * (y1 * y.head.x - 32.0f * y.head.z);
        return half_value(p.u16(at + 208)) * (first + second);
    }
};

// ---- nibbles that index a table of values ----

// Low nibbles go to v[0..4), high nibbles to v[4..8).
LANE void curve_words(const uint32_t *w, uint32_t *v) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t a = curve_4(w[i]), b = curve_4(w[i] >> 16);
        v[i] = __byte_perm(a, b, 0x6420) ^ 0x80808080u;
        v[i + 4] = __byte_perm(a, b, 0x7531) ^ 0x80808080u;
    }
}

struct dot_iq4_nl : dot_32<18> {
    LANE float of(bytes p, int4 a, int4 b, float4 head) const {
        uint32_t w[4], v[8];
        words_at<4>(p, at + 2, w);
        curve_words(w, v);
        return half_value(p.u16(at)) * head.x * dot8_s(v, a, b);
    }
};

struct dot_iq4_xs : dot_single {
    enum { QK = 256, BYTES = 136 };
    uint32_t at, qs;
    int sub;
    LANE void init(int lane) {
        sub = lane % 8, at = lane / 8 * BYTES, qs = at + 8 + 16 * sub;
    }
    LANE float of(bytes p, int4 a, int4 b, float4 head) const {
        uint32_t w[4], v[8];
        aligned_at<4>(p, qs, w);
        curve_words(w, v);
        const uint32_t first = p.w32(at), low = p.w32(at + 4);
        const int scale = (int) ((low >> (4 * sub) & 15) | (first >> (16 + 2 * sub) & 3) << 4) - 32;
        return half_value(first & 0xffff) * (float) scale * head.x * dot8_s(v, a, b);
    }
};

// Returns twice the values (0 1 2 3 4 6 8 12) with their signs, one per byte.
LANE uint32_t fp4_4(uint32_t w) {
    const uint32_t pick = w & 0x7777u;
    const uint32_t low = __byte_perm(0x03020100u, 0x0c080604u, pick), high = __byte_perm(0xfdfeff00u, 0xf4f8fafcu, pick);
    return __byte_perm(low, high, 0x3210u | (w >> 1 & 0x4444u));
}
template <int N> LANE void fp4_words(const uint32_t *w, uint32_t *v) {
#pragma unroll
    for (int i = 0; i < N; i++) {
        const uint32_t a = fp4_4(w[i]), b = fp4_4(w[i] >> 16);
        v[i] = __byte_perm(a, b, 0x6420);
        v[i + N] = __byte_perm(a, b, 0x7531);
    }
}

struct dot_mxfp4 : dot_32<17> {
    LANE float of(bytes p, int4 a, int4 b, float4 head) const {
        uint32_t w[4], v[8];
        words_at<4>(p, at + 1, w);
        fp4_words<4>(w, v);
        const uint32_t e = p.u8(at);
        return __uint_as_float(e < 2 ? 0x00200000u << e : (e - 1) << 23) * head.x * dot8_s(v, a, b);
    }
};

struct dot_nvfp4 : dot_single {
    enum { QK = 64, BYTES = 36 };
    uint32_t scales, qs;
    LANE void init(int lane) {
        scales = lane / 2 * BYTES + 2 * (lane % 2), qs = lane / 2 * BYTES + 4 + 16 * (lane % 2);
    }
    LANE float of(bytes p, int4 a, int4 b, float4 head) const {
        uint32_t w[4], v[8];
        aligned_at<4>(p, qs, w);
        fp4_words<2>(w, v);
        fp4_words<2>(w + 2, v + 4);
        return 0.5f * head.x *
               (decode_nvfp4::scale_value(p.u8(scales)) * dot4_s(v, a) +
                   decode_nvfp4::scale_value(p.u8(scales + 1)) * dot4_s(v + 4, b));
    }
};
