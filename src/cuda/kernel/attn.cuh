// SPDX-License-Identifier: MIT
// attn.cuh: attention for few queries. The keys are split over blocks, and attn_join combines the splits.
//
// A block computes 16 rows and one split of the keys. Row r of a group is head r % n_group of query r / n_group, so a block reads
// each key once for all heads of the group. Each warp processes 16 keys at a time (a step) with its own ring and its own sums, so
// warps wait for each other only at the end. A warp skips the steps that the mask hides from all rows of the block.
// A row is one head of one query. A group is the heads that share keys.
//
// Thread (g, t) = (lane / 4, lane % 4) holds rows g and g + 8 of the mma.sync fragments.
#pragma once

#include "attn_args.h"
#include "dot.cuh"
#include "ggml.h"
#include "wgmma.cuh"

enum { ATTN_WARPS = 4, ATTN_ROWS = 16, ATTN_KEYS = 16, ATTN_STAGES = 3 }; // ATTN_STAGES: largest number of stages
#define LOG2_E 1.4426950408889634f

LANE float attn_exp2(float v) {
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
    return r;
}

// Returns the bytes between rows in shared memory: an odd multiple of 16, so that rows begin in different banks. A row keeps its
// misalignment of up to 15 bytes.
LANE int attn_pitch(int row_size) {
    return ((row_size + 30) / 16 | 1) * 16;
}
LANE float attn_slope(const attn_args &a, int head) {
    if (a.n_slope == 0) {
        return 1.0f;
    }
    return exp2f(
        head < a.n_slope ? a.slope_base[0] * (float) (head + 1) : a.slope_base[1] * (float) (2 * (head - a.n_slope) + 1));
}

// The 16-byte pieces of 16 rows that a thread copies. Adjacent threads copy adjacent pieces. pieces: pieces per row.
struct attn_way {
    int pieces, row, piece, row_step, piece_step;
};
template <bool DIRECT> LANE attn_way attn_way_of(const char *p, int64_t stride, int size, int lane) {
    attn_way w;
    w.pieces = DIRECT || (((uintptr_t) p | (uintptr_t) stride) & 15) == 0 ? (size + 15) / 16 : (size + 30) / 16;
    w.row = lane / w.pieces;
    w.piece = lane % w.pieces;
    w.row_step = 32 / w.pieces;
    w.piece_step = 32 % w.pieces;
    return w;
}

// Copies 16 rows to shared memory. Rows from `last` on become zeros. DIRECT: rows of D f16 at multiples of 16 bytes.
template <int D, bool DIRECT>
LANE void attn_copy(const char *p, int64_t stride, int size, int first, int last, uint32_t to, int pitch, attn_way w) {
    if (DIRECT) {
        const int piece = threadIdx.x % (D / 8), row = threadIdx.x % 32 / (D / 8);
        const char *src = p + (int64_t) (first + row) * stride + 16 * piece;
#pragma unroll
        for (int r = 0; r < ATTN_KEYS; r += 256 / D) {
            copy16(to + (r + row) * pitch + 16 * piece, first + r + row < last ? src + r * stride : p,
                first + r + row < last ? 16 : 0);
        }
    }
    while (!DIRECT && w.row < ATTN_KEYS) {
        const char *src = p + (int64_t) (first + w.row) * stride;
        const int odd = (int) ((uintptr_t) src & 15);
        const int left = first + w.row < last ? odd + size - 16 * w.piece : 0;
        copy16(to + w.row * pitch + 16 * w.piece, left > 0 ? src - odd + 16 * w.piece : p - ((uintptr_t) p & 15),
            max(min(left, 16), 0));
        w.row += w.row_step;
        w.piece += w.piece_step;
        if (w.piece >= w.pieces) {
            w.piece -= w.pieces;
            w.row++;
        }
    }
}

// ---- unpacking of types other than f16 ----

template <bool BF> LANE uint32_t attn_pack(float lo, float hi) {
    return BF ? bf2_pack(lo, hi) : h2_pack(lo, hi);
}

// Returns four elements of a dense row from index i on, as two pairs of f16, or of bf16 if BF.
template <int TYPE, bool BF> LANE uint2 attn_four(bytes p, int i) {
    if (TYPE == GGML_TYPE_F32) {
        return make_uint2(attn_pack<BF>(__uint_as_float(p.w32(4 * i)), __uint_as_float(p.w32(4 * i + 4))),
            attn_pack<BF>(__uint_as_float(p.w32(4 * i + 8)), __uint_as_float(p.w32(4 * i + 12))));
    }
    uint2 o = make_uint2(p.u32(2 * i), p.u32(2 * i + 4));
    if (TYPE == GGML_TYPE_F16 && BF) {
        const float2 a = __half22float2(as_h2(o.x)), b = __half22float2(as_h2(o.y));
        o = make_uint2(bf2_pack(a.x, a.y), bf2_pack(b.x, b.y));
    }
    if (TYPE == GGML_TYPE_BF16 && !BF) {
        o.x = h2_pack(__uint_as_float(o.x << 16), __uint_as_float(o.x & 0xffff0000u));
        o.y = h2_pack(__uint_as_float(o.y << 16), __uint_as_float(o.y & 0xffff0000u));
    }
    return o;
}

// Converts 16 rows of n elements to f16 or bf16, padded with zeros to D. Row r is misaligned by (odd + r * step) % 16 bytes.
template <int D, int TYPE, bool BF>
LANE void attn_unpack_fours(bytes raw, int pitch, uint32_t odd, uint32_t step, int n, uint16_t *to, int lane) {
#pragma unroll 4
    for (int i = lane; i < ATTN_KEYS * (D / 4); i += 32) {
        const int r = i / (D / 4), e = i % (D / 4) * 4;
        uint2 o = make_uint2(0, 0);
        if (e < n) {
            o = attn_four<TYPE, BF>(raw.at(r * pitch + ((odd + r * step) & 15)), e);
        }
        *reinterpret_cast<uint2 *>(to + r * (D + 8) + e) = o;
    }
}

template <int D> LANE void attn_unpack_q8_0(bytes raw, int pitch, uint32_t odd, uint32_t step, int n, uint16_t *to, int lane) {
    const int r = lane / 2;
    const bytes row = raw.at(r * pitch + ((odd + r * step) & 15));
#pragma unroll
    for (int b = lane % 2; b < D / 32; b += 2) {
        uint32_t w[8] = {0, 0, 0, 0, 0, 0, 0, 0}, d = 0;
        if (b * 32 < n) {
            words_at<8>(row, b * 34 + 2, w);
            d = h2_low(row.u16(b * 34));
        }
        uint4 *at = reinterpret_cast<uint4 *>(to + r * (D + 8) + b * 32);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t o[4];
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const uint32_t u = w[2 * i + j] ^ 0x80808080u;
                o[2 * j] = h2_mul(h2_less(__byte_perm(u, MAGIC, 0x7170), 1152), d);
                o[2 * j + 1] = h2_mul(h2_less(__byte_perm(u, MAGIC, 0x7372), 1152), d);
            }
            at[i] = make_uint4(o[0], o[1], o[2], o[3]);
        }
    }
}

// Converts 16 rows of a block format to f16, with a decoder of decode.cuh.
template <int D, class DECODE>
LANE void attn_unpack_subs(bytes raw, int pitch, uint32_t odd, uint32_t step, int n, uint16_t *to, int lane) {
    const int t = lane % 4;
#pragma unroll 2
    for (int i = lane / 4; i < ATTN_KEYS * (D / 32); i += 8) {
        const int r = i / (D / 32), sub = i % (D / 32);
        uint32_t o[4] = {0, 0, 0, 0};
        if (32 * sub < n) {
            DECODE().get(raw.at(r * pitch + ((odd + r * step) & 15)), sub, t, o);
        }
        uint16_t *at = to + r * (D + 8) + 32 * sub + 4 * t;
        *reinterpret_cast<uint2 *>(at) = make_uint2(__byte_perm(o[0], o[1], 0x5410), __byte_perm(o[0], o[1], 0x7632));
        *reinterpret_cast<uint2 *>(at + 16) = make_uint2(__byte_perm(o[2], o[3], 0x5410), __byte_perm(o[2], o[3], 0x7632));
    }
}

// BF: the type is f32, f16 or bf16.
template <int D, bool BF>
LANE void attn_unpack(bytes raw, int pitch, const char *p, int64_t stride, int type, int n, uint16_t *to, int lane) {
    const uint32_t odd = (uint32_t) (uintptr_t) p & 15, step = (uint32_t) stride & 15;
    if (type == GGML_TYPE_F32) {
        attn_unpack_fours<D, GGML_TYPE_F32, BF>(raw, pitch, odd, step, n, to, lane);
    } else if (type == GGML_TYPE_BF16) {
        attn_unpack_fours<D, GGML_TYPE_BF16, BF>(raw, pitch, odd, step, n, to, lane);
    } else if (BF || type == GGML_TYPE_F16) {
        attn_unpack_fours<D, GGML_TYPE_F16, BF>(raw, pitch, odd, step, n, to, lane);
    } else if (type == GGML_TYPE_Q8_0) {
        attn_unpack_q8_0<D>(raw, pitch, odd, step, n, to, lane);
    } else if (type == GGML_TYPE_Q4_0) {
        attn_unpack_subs<D, decode_q4_0>(raw, pitch, odd, step, n, to, lane);
    } else if (type == GGML_TYPE_Q4_1) {
        attn_unpack_subs<D, decode_q4_1>(raw, pitch, odd, step, n, to, lane);
    } else if (type == GGML_TYPE_Q5_0) {
        attn_unpack_subs<D, decode_q5_0>(raw, pitch, odd, step, n, to, lane);
    } else if (type == GGML_TYPE_Q5_1) {
        attn_unpack_subs<D, decode_q5_1>(raw, pitch, odd, step, n, to, lane);
    } else {
        attn_unpack_subs<D, decode_iq4_nl>(raw, pitch, odd, step, n, to, lane);
    }
}

// ---- rows ----

struct attn_row {
    int query, head; // -1: the row does not exist
    const uint16_t *mask;
    float slope;
};

LANE attn_row attn_row_of(const attn_args &a, int r, int group, int batch) {
    attn_row row = {-1, 0, NULL, 1.0f};
    if (r < a.n_q * a.n_group) {
        row.query = r / a.n_group;
        row.head = group * a.n_group + r % a.n_group;
        row.slope = attn_slope(a, row.head);
        if (a.mask != NULL) {
            row.mask = reinterpret_cast<const uint16_t *>(
                a.mask + row.query * a.mask_1 + row.head % a.mask_ne2 * a.mask_2 + batch % a.mask_ne3 * a.mask_3);
        }
    }
    return row;
}

// ---- steps ----

// Returns the steps of a warp in order. A step is KEYS keys. The WARPS warps of all splits of a tile take turns, so that they have
// about the same number of visible keys. Steps that the mask hides from all rows of the tile are left out.
template <int ROWS, int KEYS, int WARPS> struct attn_steps {
    const attn_args &a;
    int tile, group, batch;
    int at;        // the last step; if steps are skipped: the first of the 32 steps in `open`
    uint32_t open; // bit i: step i from `at` on is visible and has not been returned

    LANE attn_steps(const attn_args &args, int tile, int group, int batch, int first)
        : a(args), tile(tile), group(group), batch(batch), at(first), open(0) {
    }
    LANE int stride() const { // from a step to the next one of the same warp
        return a.n_split * (WARPS * KEYS);
    }
    LANE uint32_t scan() const {
        const int key = at + (int) (threadIdx.x % 32) * stride();
        bool is_open = key < a.n_kv;
        if (key + KEYS <= a.n_kv) {
            const int each = a.mask_ne2 > 1 ? 1 : a.n_group; // rows that share a mask
            const int end = min((tile + 1) * ROWS, a.n_q * a.n_group);
            is_open = false;
#pragma unroll(ROWS > 8 ? 4 : 1) // attn_few has no registers for more
            for (int r = tile * ROWS / each * each; r < end; r += each) {
                const uint4 *mask = reinterpret_cast<const uint4 *>(attn_row_of(a, r, group, batch).mask + key);
#pragma unroll
                for (int i = 0; i < KEYS / 8; i++) {
                    const uint4 w = mask[i];
                    is_open |= w.x != 0xfc00fc00u || w.y != 0xfc00fc00u || w.z != 0xfc00fc00u || w.w != 0xfc00fc00u;
                }
            }
        }
        return __ballot_sync(~0u, is_open);
    }
    // Returns the first key of the next step. At the end, returns n_kv.
    LANE int next() {
        if (!a.skips) {
            at += stride();
            return min(at, a.n_kv);
        }
        while (open == 0) {
            if (at + 32 * stride() >= a.n_kv) {
                return a.n_kv;
            }
            at += 32 * stride();
            open = scan();
        }
        const int i = __ffs((int) open) - 1;
        open &= open - 1;
        return at + i * stride();
    }
    // Returns the first step, second() the step after it. With a.early, the first step may be hidden: its keys are loaded while
    // the mask is read.
    LANE int begin() {
        if (a.skips && !a.early) {
            open = scan();
            return next();
        }
        return min(at, a.n_kv);
    }
    LANE int second() {
        if (a.skips && a.early) {
            open = scan() & ~1u;
        }
        return next();
    }
};

// Loads the mask of a row at keys first, first + 1, first + 8 and first + 9. Callers load the mask one step in advance.
LANE void attn_mask_of(const attn_args &a, const attn_row &row, int first, uint16_t *mask) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int key = first + i / 2 * 8 + i % 2;
        mask[i] = row.mask != NULL && key < a.n_kv ? row.mask[key] : 0;
    }
}

// Applies softcap and mask. Returns the score in log2 units.
LANE float attn_score(const attn_args &a, const attn_row &row, int key, uint16_t mask, float v) {
    if (a.softcap != 0.0f) {
        v = a.softcap * tanhf(v);
    }
    v = fmaf(row.slope, half_value(mask), v);
    return key >= a.n_kv || row.query < 0 ? -INFINITY : v * LOG2_E;
}

// Sums of the two rows of a thread. o: weighted sums of values; m: largest score so far; l: sums of weights.
template <int D> struct attn_sums { float o[D / 8][4], m[2], l[2]; };

// Loads the queries, multiplied by the scale, as the A operand of mma.
template <int D, bool BF> LANE void attn_queries(const attn_args &a, const attn_row *row, int batch, int t, uint32_t (*q)[4]) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const float *p =
            reinterpret_cast<const float *>(a.q + max(row[h].query, 0) * a.q_1 + row[h].head * a.q_2 + batch * a.q_3);
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const int e = 16 * i + 8 * j + 2 * t; // d_k is even
                const float x = row[h].query >= 0 && e < a.d_k ? p[e] * a.scale : 0.0f;
                const float y = row[h].query >= 0 && e < a.d_k ? p[e + 1] * a.scale : 0.0f;
                q[i][h + 2 * j] = attn_pack<BF>(x, y);
            }
        }
    }
}

// Updates the sums with 16 keys. Stores the weights in p as the A operand. k_lane: shared address for ldmatrix.
template <int D, bool BF>
LANE void attn_weigh(const attn_args &a, const attn_row *row, const uint32_t (*q)[4], uint32_t k_lane, int key,
    const uint16_t (*mask)[4], attn_sums<D> *sum, uint32_t *p) {
    const int t = threadIdx.x % 4;
    float s[2][4] = {{0, 0, 0, 0}, {0, 0, 0, 0}}, more[2][4] = {{0, 0, 0, 0}, {0, 0, 0, 0}};
    // Four fragments are loaded before the first is used: the compiler does not reorder asm volatile statements.
#pragma unroll
    for (int i = 0; i < D / 16; i += 4) {
        uint32_t b[4][4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            ldmatrix4(k_lane + 32 * (i + j), b[j]);
        }
#pragma unroll
        for (int j = 0; j < 4; j++) {
            mma16816<BF>(j % 2 ? more[0] : s[0], q[i + j], b[j][0], b[j][1]);
            mma16816<BF>(j % 2 ? more[1] : s[1], q[i + j], b[j][2], b[j][3]);
        }
    }
    float scale[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float v[4], most = sum->m[h];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            v[i] = attn_score(
                a, row[h], key + i / 2 * 8 + 2 * t + i % 2, mask[h][i], s[i / 2][2 * h + i % 2] + more[i / 2][2 * h + i % 2]);
            most = fmaxf(most, v[i]);
        }
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
        const float base = most == -INFINITY ? 0.0f : most;
        scale[h] = attn_exp2(sum->m[h] - base);
        sum->m[h] = most;
        sum->l[h] *= scale[h];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float e = attn_exp2(v[i] - base);
            sum->l[h] += e;
            s[i / 2][2 * h + i % 2] = e;
        }
    }
    if (__any_sync(~0u, scale[0] != 1.0f || scale[1] != 1.0f)) {
#pragma unroll
        for (int i = 0; i < D / 8; i++) {
            sum->o[i][0] *= scale[0], sum->o[i][1] *= scale[0], sum->o[i][2] *= scale[1], sum->o[i][3] *= scale[1];
        }
    }
    p[0] = attn_pack<BF>(s[0][0], s[0][1]), p[1] = attn_pack<BF>(s[0][2], s[0][3]);
    p[2] = attn_pack<BF>(s[1][0], s[1][1]), p[3] = attn_pack<BF>(s[1][2], s[1][3]);
}

// Adds the values of 16 keys, multiplied by the weights p, to the sums. v_lane: shared address for ldmatrix.
template <int D, bool BF> LANE void attn_values(const uint32_t *p, uint32_t v_lane, attn_sums<D> *sum) {
#pragma unroll
    for (int i = 0; i < D / 16; i += 4) {
        uint32_t b[4][4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            ldmatrix4t(v_lane + 32 * (i + j), b[j]);
        }
#pragma unroll
        for (int j = 0; j < 4; j++) {
            mma16816<BF>(sum->o[2 * (i + j)], p, b[j][0], b[j][1]);
            mma16816<BF>(sum->o[2 * (i + j) + 1], p, b[j][2], b[j][3]);
        }
    }
}

// One element of a row before normalisation. value: weighted sum of values; most: largest score; l: sum of weights.
struct attn_total {
    float value, most, l;
};
LANE void attn_finish(const attn_args &a, attn_total t, int head, int64_t row, int e) {
    if (a.sinks != NULL) {
        const float sink = a.sinks[head] * LOG2_E, top = fmaxf(t.most, sink), f = exp2f(t.most - top);
        t.value *= f;
        t.l = t.l * f + exp2f(sink - top);
    }
    a.y[row * a.d_v + e] = t.l > 0.0f ? t.value / t.l : 0.0f;
}

// Layout of `all`: [warp][row][element], then [warp][row][2]: largest score, sum of weights.
template <int D, int ROWS, int WARPS> LANE attn_total attn_of_warps(const float *all, int r, int e) {
    const float *ml = all + WARPS * ROWS * D;
    attn_total t = {0.0f, -INFINITY, 0.0f};
#pragma unroll
    for (int w = 0; w < WARPS; w++) {
        t.most = fmaxf(t.most, ml[(w * ROWS + r) * 2]);
    }
    const float base = t.most == -INFINITY ? 0.0f : t.most;
#pragma unroll
    for (int w = 0; w < WARPS; w++) {
        const float f = attn_exp2(ml[(w * ROWS + r) * 2] - base);
        t.l += f * ml[(w * ROWS + r) * 2 + 1];
        t.value += f * all[(w * ROWS + r) * D + e];
    }
    return t;
}

// Stores in rows[] the row of a.y for each row of a tile. Called before wait_for_previous(), so that the slow divisions overlap
// with the previous kernel.
LANE void attn_rows(const attn_args &a, int n_rows, int tile, int group, int batch, int *rows) {
    if (threadIdx.x < n_rows) {
        const int at = tile * n_rows + threadIdx.x;
        rows[threadIdx.x] = (batch * a.n_q + at / a.n_group) * a.n_head + group * a.n_group + at % a.n_group;
    }
}

// Combines the sums of all warps for a tile of rows. With one split, writes the result to a.y. Otherwise writes the sums of this
// split to a.part and a.limit.
template <int D, int ROWS, int WARPS>
LANE void attn_merge(const attn_args &a, int tile, const int *rows, int split, const float *all) {
    const int n = min(ROWS, a.n_q * a.n_group - tile * ROWS);
    __syncthreads();
    for (int i = threadIdx.x; i < n * D; i += WARPS * 32) {
        const int r = i / D, e = i % D;
        const attn_total t = attn_of_warps<D, ROWS, WARPS>(all, r, e);
        const int64_t to = rows[r];
        if (e >= a.d_v) {
            continue;
        }
        if (a.n_split > 1) {
            a.part[((int64_t) split * a.n_rows + to) * a.d_v + e] = t.value;
            if (e == 0) {
                *reinterpret_cast<float2 *>(a.limit + ((int64_t) split * a.n_rows + to) * 2) = make_float2(t.most, t.l);
            }
        } else {
            attn_finish(a, t, rows[r] % a.n_head, to, e);
        }
    }
}

// Stores the sums of this warp in `all` (see attn_of_warps). n: number of rows of the tile that exist.
template <int D> LANE void attn_put(const attn_sums<D> &sum, int n, float *all) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    float *ml = all + ATTN_WARPS * ATTN_ROWS * D;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float l = sum.l[h];
        l += __shfl_xor_sync(~0u, l, 1);
        l += __shfl_xor_sync(~0u, l, 2);
        const int r = warp * ATTN_ROWS + g + 8 * h;
        if (t == 0) {
            ml[2 * r] = sum.m[h], ml[2 * r + 1] = l;
        }
#pragma unroll
        for (int i = 0; i < D / 8 && g + 8 * h < n; i++) {
            *reinterpret_cast<float2 *>(all + r * D + 8 * i + 2 * t) = make_float2(sum.o[i][2 * h], sum.o[i][2 * h + 1]);
        }
    }
}

// DIRECT: keys and values are rows of D f16 at multiples of 16 bytes and need no unpacking.
template <int D, bool BF, bool DIRECT> LANE void attn_split(const attn_args &a) {
    extern __shared__ __align__(128) uint32_t smem[];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int n_tiles = (a.n_q * a.n_group + ATTN_ROWS - 1) / ATTN_ROWS;
    const int split = blockIdx.x, tile = blockIdx.y % n_tiles, group = blockIdx.y / n_tiles, batch = blockIdx.z;
    const int pitch_k = attn_pitch(a.k_row_size), pitch_v = attn_pitch(a.v_row_size), stage = ATTN_KEYS * (pitch_k + pitch_v);
    const uint32_t ring = a.n_stages * stage, mine = warp * ring, base = smem_addr(smem) + mine;
    uint16_t *halves = reinterpret_cast<uint16_t *>(smem) + ATTN_WARPS * ring / 2 + warp * ATTN_KEYS * (D + 8);
    __shared__ int rows[ATTN_ROWS];
    let_next_start();
    attn_rows(a, ATTN_ROWS, tile, group, batch, rows);
    if (a.wait) {
        wait_for_previous();
    }
    const char *k = a.k + group * a.k_2 + batch / a.k_r3 * a.k_3, *v = a.v + group * a.v_2 + batch / a.v_r3 * a.v_3;
    const attn_way way_k = attn_way_of<DIRECT>(k, a.k_1, a.k_row_size, lane),
                   way_v = attn_way_of<DIRECT>(v, a.v_1, a.v_row_size, lane);
    auto fetch = [&](int key, uint32_t to) {
        if (key < a.n_kv) {
            attn_copy<D, DIRECT>(k, a.k_1, a.k_row_size, key, a.n_kv, to, pitch_k, way_k);
            attn_copy<D, DIRECT>(v, a.v_1, a.v_row_size, key, a.n_kv, to + ATTN_KEYS * pitch_k, pitch_v, way_v);
        }
        copy_commit();
    };
    attn_steps<ATTN_ROWS, ATTN_KEYS, ATTN_WARPS> steps(a, tile, group, batch, (split * ATTN_WARPS + warp) * ATTN_KEYS);
    int keys[ATTN_STAGES]; // the current step and the next ones
    keys[0] = steps.begin();
    if (a.n_stages > 1) {
        fetch(keys[0], base);
    }
    keys[1] = steps.second();
    if (a.n_stages > 2) {
        fetch(keys[1], base + stage);
    }
    keys[2] = steps.next();
    const attn_row row[2] = {
        attn_row_of(a, tile * ATTN_ROWS + g, group, batch), attn_row_of(a, tile * ATTN_ROWS + g + 8, group, batch)};
    uint16_t mask[2][4];
    attn_mask_of(a, row[0], keys[0] + 2 * t, mask[0]);
    attn_mask_of(a, row[1], keys[0] + 2 * t, mask[1]);
    uint32_t q[D / 16][4];
    attn_queries<D, BF>(a, row, batch, t, q);
    attn_sums<D> sum;
#pragma unroll
    for (int i = 0; i < D / 8; i++) {
        sum.o[i][0] = sum.o[i][1] = sum.o[i][2] = sum.o[i][3] = 0.0f;
    }
    sum.m[0] = sum.m[1] = -INFINITY, sum.l[0] = sum.l[1] = 0.0f;
    int at_stage = 0, fill = a.n_stages - 1;
    while (keys[0] < a.n_kv) {
        const int key = keys[0];
        uint16_t next[2][4];
        attn_mask_of(a, row[0], keys[1] + 2 * t, next[0]);
        attn_mask_of(a, row[1], keys[1] + 2 * t, next[1]);
        copy_wait(a.n_stages == 3 ? 1 : 0);
        __syncwarp();
        fetch(a.n_stages == 3 ? keys[2] : a.n_stages == 2 ? keys[1] : key, base + fill * stage);
        fill = fill + 1 == a.n_stages ? 0 : fill + 1;
        if (a.n_stages == 1) {
            copy_wait(0);
            __syncwarp();
        }
        const uint32_t at = mine + at_stage * stage;
        uint32_t k_addr = base + at_stage * stage, v_addr = k_addr + ATTN_KEYS * pitch_k, k_pitch = pitch_k, v_pitch = pitch_v,
                 p[4];
        if (!DIRECT) {
            attn_unpack<D, BF>({smem, at}, pitch_k, k + key * a.k_1, a.k_1, a.k_type, a.d_k, halves, lane);
            __syncwarp();
            k_addr = v_addr = smem_addr(halves), k_pitch = v_pitch = (D + 8) * 2;
        }
        attn_weigh<D, BF>(a, row, q, k_addr + (lane % 8 + lane / 16 * 8) * k_pitch + lane / 8 % 2 * 16, key, mask, &sum, p);
        if (!DIRECT) { // the values overwrite the unpacked keys
            __syncwarp();
            attn_unpack<D, BF>({smem, at + ATTN_KEYS * pitch_k}, pitch_v, v + key * a.v_1, a.v_1, a.v_type, a.d_v, halves, lane);
            __syncwarp();
        }
        attn_values<D, BF>(p, v_addr + lane % 16 * v_pitch + lane / 16 * 16, &sum);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            mask[i / 4][i % 4] = next[i / 4][i % 4];
        }
        at_stage = at_stage + 1 == a.n_stages ? 0 : at_stage + 1;
        keys[0] = keys[1], keys[1] = keys[2], keys[2] = steps.next();
    }
    __syncthreads();
    attn_put<D>(sum, a.n_q * a.n_group - tile * ATTN_ROWS, reinterpret_cast<float *>(smem));
    attn_merge<D, ATTN_ROWS, ATTN_WARPS>(a, tile, rows, split, reinterpret_cast<float *>(smem));
}
