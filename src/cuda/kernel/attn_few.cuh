// SPDX-License-Identifier: MIT
// attn_few.cuh: attention for up to 8 rows (queries times heads of a group). Each thread converts keys and values into mma
// operands in registers. (g, t) = (lane / 4, lane % 4).
//
// Scores are [key][row]: keys are the A operand, queries the B operand. Queries and keys use the same permutation of dimensions,
// so that a thread can load adjacent dimensions.
// Weighted sums are [dimension][row]: values are the A operand, weights the B operand. few_weigh transposes the weights.
#pragma once

#include "attn.cuh"

enum { FEW_ROWS = 8 };
// The running maximum stays until a score exceeds the maximum by 8. Weights are therefore at most 2^8, which fits into f16.
#define FEW_SLACK 8.0f

LANE uint4 few_read(const char *p, bool there) {
    uint4 v = make_uint4(0, 0, 0, 0);
    if (there) {
        asm volatile("ld.global.L1::no_allocate.L2::128B.v4.b32 {%0,%1,%2,%3}, [%4];\n"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "l"(p)
                     : "memory");
    }
    return v;
}
LANE uint32_t few_transposed(uint32_t v) {
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %0;\n" : "+r"(v));
    return v;
}

template <int D> struct few_sums {
    // o: weighted sums of values, of dimensions value_dim(i) and value_dim(i) + 1 and rows 2t and 2t + 1; m: running maximum of
    // the scores of each row; l: sums of weights.
    float o[D / 16][4], m[2], l[2];
};

struct few_from {
    const char *k, *v; // key 0 and value 0
    int64_t k_1, v_1;  // bytes between keys; bytes between values
    int first, last;   // first key of the warp; end of all keys
    int g, t;
};

// Prefetches the warp's first keys and values into L2. This is safe while the previous kernel writes, because writes update L2.
LANE void few_touch(const attn_args &a, const few_from &f) {
    const int lane = threadIdx.x % 32, key = f.first + lane % 16;
    const char *p = lane < 16 ? f.k + key * f.k_1 : f.v + key * f.v_1;
    const int size = lane < 16 ? a.k_row_size : a.v_row_size;
    for (int at = 0; key < f.last && at < size; at += 128) {
        asm volatile("prefetch.global.L2 [%0];\n" ::"l"(p + at));
    }
}

// A source of keys and values is few_halves or few_blocks. keys[] has the first keys of the current step and of the next two.
// init() reads no memory. start() begins to load the first step. scores() multiplies 16 keys with the queries. add() adds the 16 values, multiplied by the
// weights p, to the sums. Both load the step that is AHEAD steps later.

// ---- f16: the next 16 keys are loaded into registers while the current ones are processed ----

template <int D> struct few_halves {
    enum { AHEAD = 1 }; // steps loaded in advance
    uint4 k[2][D / 32], v[4][D / 64];

    // query_dim: first dimension of the thread's i-th pair of query elements. value_dim: the same for pairs of sums.
    LANE static int query_dim(int i, int t) {
        return i / 4 * 32 + 8 * t + i % 4 * 2;
    }
    LANE static int value_dim(int i, int g) {
        return i / 4 * 64 + 8 * g + i % 4 * 2;
    }

    LANE void read_keys(const few_from &f, int key) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int mine = key + f.g + 8 * h;
            const char *p = f.k + mine * f.k_1 + 16 * f.t;
#pragma unroll
            for (int c = 0; c < D / 32; c++) {
                k[h][c] = few_read(p + 64 * c, mine < f.last);
            }
        }
    }
    LANE void read_values(const few_from &f, int key) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int mine = key + 2 * f.t + i % 2 + i / 2 * 8;
            const char *p = f.v + mine * f.v_1 + 16 * f.g;
#pragma unroll
            for (int c = 0; c < D / 64; c++) {
                v[i][c] = few_read(p + 128 * c, mine < f.last);
            }
        }
    }
    LANE void init(const attn_args &, const few_from &, uint32_t) {
    }
    LANE void start(const few_from &f, int key) {
        read_keys(f, key);
        read_values(f, key);
    }
    LANE void scores(const few_from &f, const int *keys, const uint32_t *q, float *s, float *more) {
#pragma unroll
        for (int c = 0; c < D / 32; c++) {
            const uint32_t a0[4] = {k[0][c].x, k[1][c].x, k[0][c].y, k[1][c].y};
            const uint32_t a1[4] = {k[0][c].z, k[1][c].z, k[0][c].w, k[1][c].w};
            mma16816<false>(s, a0, q[4 * c], q[4 * c + 1]);
            mma16816<false>(more, a1, q[4 * c + 2], q[4 * c + 3]);
        }
        read_keys(f, keys[1]);
    }
    LANE static uint32_t nth_word(const uint4 &v, int w) {
        return w == 0 ? v.x : w == 1 ? v.y : w == 2 ? v.z : v.w;
    }
    LANE void add(const few_from &f, const int *keys, const uint32_t *p, few_sums<D> *sum) {
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
            const uint32_t w0 = nth_word(v[0][i / 4], i % 4), w1 = nth_word(v[1][i / 4], i % 4),
                           w2 = nth_word(v[2][i / 4], i % 4), w3 = nth_word(v[3][i / 4], i % 4);
            const uint32_t a[4] = {__byte_perm(w0, w1, 0x5410), __byte_perm(w0, w1, 0x7632), __byte_perm(w2, w3, 0x5410),
                __byte_perm(w2, w3, 0x7632)};
            mma16816<false>(sum->o[i], a, p[0], p[1]);
        }
        read_values(f, keys[1]);
    }
};

// ---- block formats: rows can begin at any even address, so they are copied through a ring in shared memory ----

// The 16-byte pieces of 16 rows that a thread copies. 16 rows are a multiple of 16 bytes, so the misalignment of a row repeats.
// MAX_ROW: bytes of the longest row.
template <int MAX_ROW> struct few_pieces {
    enum { N = (ATTN_KEYS * ((MAX_ROW + 30) / 16) + 31) / 32 };
    int from[N];      // byte offset in global memory
    uint32_t what[N]; // packed: row, number of bytes, offset in the ring

    LANE void init(const char *p, int64_t stride, int size, int pitch, int lane) {
        const int n_pieces = (size + 30) / 16;
#pragma unroll
        for (int j = 0; j < N; j++) {
            const int i = lane + 32 * j, row = i / n_pieces, piece = i % n_pieces;
            const int odd = (int) ((uintptr_t) (p + row * stride) & 15), left = row < ATTN_KEYS ? odd + size - 16 * piece : 0;
            from[j] = (int) (row * stride) - odd + 16 * piece;
            what[j] = (uint32_t) row << 24 | (uint32_t) max(min(left, 16), 0) << 16 | (uint32_t) (row * pitch + 16 * piece);
        }
    }
    // n rows exist from p on. If n > 16, a piece at the end of a row may read bytes of the next row.
    LANE void copy(const char *p, int n, uint32_t to) const {
        if (n > ATTN_KEYS) {
#pragma unroll
            for (int j = 0; j < N; j++) {
                if ((what[j] & 0xff0000) != 0) {
                    copy16(to + (what[j] & 0xffff), p + from[j], 16);
                }
            }
            return;
        }
#pragma unroll
        for (int j = 0; j < N; j++) {
            if ((what[j] & 0xff0000) != 0 && (int) (what[j] >> 24) < n) {
                copy16(to + (what[j] & 0xffff), p + from[j], what[j] >> 16 & 31);
            }
        }
    }
};

// Stores the levels of a block of 32 elements as unsigned bytes in w: N words, from element 16 run + 4 word on, or the whole block
// if RUNS is 2. An element is d * (level - bias) + m. m is 0 in formats without an offset.
template <int RUNS, int N> LANE void few_levels(bytes b, int type, int run, int word, uint32_t *w) {
    if (type == GGML_TYPE_Q8_0) {
        words_at<RUNS * N>(b, 2 + 16 * run + 4 * word, w);
#pragma unroll
        for (int i = 0; i < RUNS * N; i++) {
            w[i] ^= 0x80808080u;
        }
        return;
    }
    const bool has_fifth = type == GGML_TYPE_Q5_0 || type == GGML_TYPE_Q5_1;
    const uint32_t head = type == GGML_TYPE_Q4_1 || type == GGML_TYPE_Q5_1 ? 4 : 2;
    uint32_t v[N];
    words_at<N>(b, head + (has_fifth ? 4 : 0) + 4 * word, v);
    if (type == GGML_TYPE_IQ4_NL) {
#pragma unroll
        for (int i = 0; i < N; i++) {
            const uint32_t x = curve_4(v[i]), y = curve_4(v[i] >> 16);
            w[i] = __byte_perm(x, y, RUNS == 2 || run == 0 ? 0x6420 : 0x7531);
            if (RUNS == 2) {
                w[N + i] = __byte_perm(x, y, 0x7531);
            }
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < RUNS * N; i++) {
        w[i] = v[i % N] >> (4 * run + i / N * 4) & 0x0f0f0f0fu;
    }
    if (has_fifth) {
        const uint32_t bits = b.u32(head) >> (16 * run + 4 * word);
#pragma unroll
        for (int i = 0; i < RUNS * N; i++) {
            w[i] |= ((bits >> (i / N * 16 + i % N * 4) & 15) * 0x00204081u & 0x01010101u) << 4;
        }
    }
}
// Returns -1024 - bias as a pair of f16, which few_pair adds.
LANE uint32_t few_bias(int type) {
    const bool has_offset = type == GGML_TYPE_Q4_1 || type == GGML_TYPE_Q5_1;
    const float bias = has_offset ? 0.0f : type == GGML_TYPE_Q4_0 ? 8.0f : type == GGML_TYPE_Q5_0 ? 16.0f : 128.0f;
    return h2_all(-1024.0f - bias);
}
// Returns two elements. which: the bytes of the levels in w and the upper byte of MAGIC.
template <bool HAS_OFFSET> LANE uint32_t few_pair(uint32_t w, uint32_t which, uint32_t bias, uint32_t d, uint32_t m) {
    const uint32_t v = h2_add(__byte_perm(w, MAGIC, which), bias);
    return HAS_OFFSET ? h2_fma(v, d, m) : h2_mul(v, d);
}

// TYPE: the type of keys and values, or GGML_TYPE_COUNT: the types are in attn_args.
template <int D, int TYPE> struct few_blocks_of {
    enum { AHEAD = 2, STAGES = 3, ANY = TYPE == GGML_TYPE_COUNT };
    few_pieces<D / 32 * 34> key_pieces, value_pieces;
    uint32_t ring;                   // byte offset in shared memory
    uint32_t key_at[2], value_at[4]; // byte offsets of the blocks that the thread reads
    int k_type, v_type, pitches;     // pitches: bytes of 16 keys in the ring; of 16 values in the upper half
    int stage;

    LANE static int query_dim(int i, int t) {
        return t * (D / 4) + 2 * i;
    }
    LANE static int value_dim(int i, int g) {
        return g * (D / 8) + 2 * i;
    }
    LANE static uint32_t *shared_words() {
        extern __shared__ __align__(128) uint32_t smem[];
        return smem;
    }
    LANE uint32_t keys_size() const {
        return pitches & 0xffff;
    }
    LANE uint32_t stage_size() const {
        return (pitches & 0xffff) + (pitches >> 16);
    }

    LANE void init(const attn_args &a, const few_from &f, uint32_t offset) {
        const int pitch_k = attn_pitch(a.k_row_size), pitch_v = attn_pitch(a.v_row_size);
        k_type = ANY ? a.k_type : TYPE, v_type = ANY ? a.v_type : TYPE;
        pitches = ATTN_KEYS * pitch_k | ATTN_KEYS * pitch_v << 16;
        ring = offset;
        stage = 0;
        key_pieces.init(f.k, f.k_1, a.k_row_size, pitch_k, threadIdx.x % 32);
        value_pieces.init(f.v, f.v_1, a.v_row_size, pitch_v, threadIdx.x % 32);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int r = 2 * f.t + i % 2 + i / 2 * 8;
            value_at[i] = keys_size() + r * pitch_v + ((uint32_t) (uintptr_t) (f.v + r * f.v_1) & 15) +
                          f.g * (D / 8) / 32 * (a.v_row_size / (D / 32));
        }
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int r = f.g + 8 * i;
            key_at[i] =
                r * pitch_k + ((uint32_t) (uintptr_t) (f.k + r * f.k_1) & 15) + f.t * (D / 4) / 32 * (a.k_row_size / (D / 32));
        }
    }
    LANE void fetch(const few_from &f, int to, int key) {
        const uint32_t at = smem_addr(shared_words()) + ring + to * stage_size();
        if (key < f.last) {
            key_pieces.copy(f.k + key * f.k_1, f.last - key, at);
            value_pieces.copy(f.v + key * f.v_1, f.last - key, at + keys_size());
        }
        copy_commit();
    }
    LANE void start(const few_from &f, int key) {
        fetch(f, 0, key);
    }
    LANE void scores(const few_from &f, const int *keys, const uint32_t *q, float *s, float *more) {
        copy_wait(STAGES - 2);
        __syncwarp();
        fetch(f, stage == 0 ? STAGES - 1 : stage - 1, keys[2]);
        const uint32_t base = ring + stage * stage_size(), bias = few_bias(k_type);
        const bool has_offset = k_type == GGML_TYPE_Q4_1 || k_type == GGML_TYPE_Q5_1;
        uint32_t w[2][D / 16], d[2], m[2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const bytes b = {shared_words(), base + key_at[h]};
            few_levels<D / 64, 4>(b, k_type, D == 128 ? 0 : f.t % 2, 0, w[h]);
            d[h] = h2_low(b.u16(0));
            m[h] = has_offset ? h2_low(b.u16(2)) : 0;
        }
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
            const uint32_t a[4] = {few_pair<ANY>(w[0][i], 0x7170, bias, d[0], m[0]),
                few_pair<ANY>(w[1][i], 0x7170, bias, d[1], m[1]), few_pair<ANY>(w[0][i], 0x7372, bias, d[0], m[0]),
                few_pair<ANY>(w[1][i], 0x7372, bias, d[1], m[1])};
            mma16816<false>(i % 2 ? more : s, a, q[2 * i], q[2 * i + 1]);
        }
    }
    LANE void add(const few_from &f, const int *keys, const uint32_t *p, few_sums<D> *sum) {
        const uint32_t base = ring + stage * stage_size(), bias = few_bias(v_type);
        const bool has_offset = v_type == GGML_TYPE_Q4_1 || v_type == GGML_TYPE_Q5_1;
        uint32_t w[4][D / 32], d[4], m[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const bytes b = {shared_words(), base + value_at[i]};
            const bool is_there = keys[0] + 2 * f.t + i % 2 + i / 2 * 8 < f.last; // data after the last key is undefined
            few_levels<1, D / 32>(b, v_type, f.g * (D / 8) % 32 / 16, f.g * (D / 8) % 16 / 4, w[i]);
            d[i] = is_there ? b.u16(0) : 0;
            m[i] = is_there && has_offset ? b.u16(2) : 0;
        }
        const uint32_t d01 = d[0] | d[1] << 16, d23 = d[2] | d[3] << 16, m01 = m[0] | m[1] << 16, m23 = m[2] | m[3] << 16;
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
            const uint32_t half = i % 2 ? 0x7362 : 0x5140; // interleaves the bytes of two keys
            const uint32_t x = __byte_perm(w[0][i / 2], w[1][i / 2], half), y = __byte_perm(w[2][i / 2], w[3][i / 2], half);
            const uint32_t a[4] = {few_pair<ANY>(x, 0x7170, bias, d01, m01), few_pair<ANY>(x, 0x7372, bias, d01, m01),
                few_pair<ANY>(y, 0x7170, bias, d23, m23), few_pair<ANY>(y, 0x7372, bias, d23, m23)};
            mma16816<false>(sum->o[i], a, p[0], p[1]);
        }
        stage = stage + 1 == STAGES ? 0 : stage + 1;
    }
};
template <int D> struct few_blocks : few_blocks_of<D, GGML_TYPE_COUNT> {};
template <int D> struct few_q8_0 : few_blocks_of<D, GGML_TYPE_Q8_0> {};

// ---- common parts ----

// Loads the queries, multiplied by the scale, as the B operand of mma.
template <class S, int D> LANE void few_queries(const attn_args &a, const attn_row &row, int batch, int t, uint32_t *q) {
    const float *p = reinterpret_cast<const float *>(a.q + max(row.query, 0) * a.q_1 + row.head * a.q_2 + batch * a.q_3);
    const bool is_even = (uintptr_t) p % 8 == 0;
#pragma unroll
    for (int i = 0; i < D / 8; i++) {
        const float *at = p + S::query_dim(i, t);
        const float2 v = is_even ? *reinterpret_cast<const float2 *>(at) : make_float2(at[0], at[1]);
        q[i] = row.query >= 0 ? h2_pack(v.x * a.scale, v.y * a.scale) : 0;
    }
}

// Stores the weights in p as the B operand. s[2 h + r]: score of key g + 8 h and row 2t + r.
template <int D> LANE void few_weigh(float *s, few_sums<D> *sum, uint32_t *p) {
    const float top[2] = {fmaxf(s[0], s[2]), fmaxf(s[1], s[3])};
    if (__any_sync(~0u, top[0] > sum->m[0] + FEW_SLACK || top[1] > sum->m[1] + FEW_SLACK)) {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float most = fmaxf(sum->m[r], top[r]);
            most = fmaxf(most, __shfl_xor_sync(~0u, most, 4));
            most = fmaxf(most, __shfl_xor_sync(~0u, most, 8));
            most = fmaxf(most, __shfl_xor_sync(~0u, most, 16));
            const float scale = most == -INFINITY ? 1.0f : attn_exp2(sum->m[r] - most);
            sum->m[r] = most;
            sum->l[r] *= scale;
#pragma unroll
            for (int i = 0; i < D / 16; i++) {
                sum->o[i][r] *= scale, sum->o[i][2 + r] *= scale;
            }
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float base = sum->m[i % 2] == -INFINITY ? 0.0f : sum->m[i % 2];
        s[i] = attn_exp2(s[i] - base);
        sum->l[i % 2] += s[i];
    }
    p[0] = few_transposed(h2_pack(s[0], s[1]));
    p[1] = few_transposed(h2_pack(s[2], s[3]));
}

// Converts partial products s and `more` into scores in log2 units. Scores of rows that do not exist are not used.
LANE void few_score(
    const attn_args &a, const attn_row *row, int key, int last, const uint16_t *mask, const float *more, float *s) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        s[i] += more[i];
    }
    if (a.softcap != 0.0f) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            s[i] = a.softcap * tanhf(s[i]);
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float v = fmaf(row[i % 2].slope, half_value(mask[i]), s[i]) * LOG2_E;
        s[i] = key + i / 2 * 8 < last ? v : -INFINITY;
    }
}

// Loads the mask of rows 2t, 2t + 1 at keys g, g + 8, in the order of s in few_weigh.
LANE void few_mask(const attn_args &a, const attn_row *row, int key, int g, uint16_t *mask) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int at = key + g + i / 2 * 8;
        mask[i] = row[i % 2].mask != NULL && at < a.n_kv ? row[i % 2].mask[at] : 0;
    }
}

// Stores the sums of this warp in `all` (see attn_of_warps).
template <class S, int D, int WARPS>
LANE void few_put(const few_sums<D> &sum, const attn_row *row, int warp, int g, int t, float *all) {
    float *ml = all + WARPS * FEW_ROWS * D;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float l = sum.l[r];
        l += __shfl_xor_sync(~0u, l, 4);
        l += __shfl_xor_sync(~0u, l, 8);
        l += __shfl_xor_sync(~0u, l, 16);
        const int at = warp * FEW_ROWS + 2 * t + r;
        if (g == 0) {
            ml[2 * at] = sum.m[r], ml[2 * at + 1] = l;
        }
#pragma unroll
        for (int i = 0; i < D / 16 && row[r].query >= 0; i++) {
            *reinterpret_cast<float2 *>(all + at * D + S::value_dim(i, g)) = make_float2(sum.o[i][r], sum.o[i][2 + r]);
        }
    }
}

template <class S, int D, int WARPS> LANE void attn_few(const attn_args &a) {
    extern __shared__ __align__(128) uint32_t smem[];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int split = blockIdx.x, group = blockIdx.y, batch = blockIdx.z;
    let_next_start();
    const few_from from = {a.k + group * a.k_2 + batch / a.k_r3 * a.k_3, a.v + group * a.v_2 + batch / a.v_r3 * a.v_3, a.k_1,
        a.v_1, (split * WARPS + warp) * ATTN_KEYS, a.n_kv, g, t};
    __shared__ int rows[FEW_ROWS];
    if (a.early) {
        few_touch(a, from);
    }
    attn_rows(a, FEW_ROWS, 0, group, batch, rows);
    const attn_row row[2] = {attn_row_of(a, 2 * t, group, batch), attn_row_of(a, 2 * t + 1, group, batch)};
    const attn_row mine = attn_row_of(a, g, group, batch);
    S source;
    source.init(a, from, warp * a.warp_shared);
    if (a.wait) {
        wait_for_previous();
    }
    attn_steps<FEW_ROWS, ATTN_KEYS, WARPS> steps(a, 0, group, batch, from.first);
    int keys[3];
    keys[0] = steps.begin();
    source.start(from, keys[0]);
    uint16_t mask[4];
    few_mask(a, row, keys[0], g, mask);
    uint32_t q[D / 8];
    few_queries<S, D>(a, mine, batch, t, q);
    keys[1] = steps.second();
    if constexpr (S::AHEAD == 2) {
        source.fetch(from, 1, keys[1]);
        keys[2] = steps.next();
    }
    few_sums<D> sum;
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
        sum.o[i][0] = sum.o[i][1] = sum.o[i][2] = sum.o[i][3] = 0.0f;
    }
    sum.m[0] = sum.m[1] = -INFINITY, sum.l[0] = sum.l[1] = 0.0f;
    while (keys[0] < a.n_kv) {
        float s[4] = {0, 0, 0, 0}, more[4] = {0, 0, 0, 0};
        uint32_t p[2];
        source.scores(from, keys, q, s, more);
        few_score(a, row, keys[0] + g, a.n_kv, mask, more, s);
        few_mask(a, row, keys[1], g, mask);
        few_weigh<D>(s, &sum, p);
        source.add(from, keys, p, &sum);
        keys[0] = keys[1];
        if (S::AHEAD == 2) {
            keys[1] = keys[2];
        }
        keys[S::AHEAD] = steps.next();
    }
    __syncthreads(); // the sums overwrite the rings
    float *all = reinterpret_cast<float *>(smem);
    few_put<S, D, WARPS>(sum, row, warp, g, t, all);
    attn_merge<D, FEW_ROWS, WARPS>(a, 0, rows, split, all);
}
