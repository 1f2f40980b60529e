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

// A warp reads 16 keys from `first` on, then 16 keys from first + stride on, up to and excluding `last`.
struct few_from {
    const char *k, *v; // key 0 and value 0
    int64_t k_1, v_1;  // bytes between keys; bytes between values
    int first, last, stride, g, t;
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

// A source of keys and values is few_halves or few_q8_0. start() begins to load. scores() multiplies 16 keys with the queries.
// add() adds the 16 values, multiplied by the weights p, to the sums.

// ---- f16: the next 16 keys are loaded into registers while the current ones are processed ----

template <int D> struct few_halves {
    enum { STAGES = 0 };
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
    LANE void start(const few_from &f, uint32_t) {
        read_keys(f, f.first);
        read_values(f, f.first);
    }
    LANE void scores(const few_from &f, int key, const uint32_t *q, float *s, float *more) {
#pragma unroll
        for (int c = 0; c < D / 32; c++) {
            const uint32_t a0[4] = {k[0][c].x, k[1][c].x, k[0][c].y, k[1][c].y};
            const uint32_t a1[4] = {k[0][c].z, k[1][c].z, k[0][c].w, k[1][c].w};
            mma16816<false>(s, a0, q[4 * c], q[4 * c + 1]);
            mma16816<false>(more, a1, q[4 * c + 2], q[4 * c + 3]);
        }
        read_keys(f, key + f.stride);
    }
    LANE static uint32_t nth_word(const uint4 &v, int w) {
        return w == 0 ? v.x : w == 1 ? v.y : w == 2 ? v.z : v.w;
    }
    LANE void add(const few_from &f, int key, const uint32_t *p, few_sums<D> *sum) {
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
            const uint32_t w0 = nth_word(v[0][i / 4], i % 4), w1 = nth_word(v[1][i / 4], i % 4),
                           w2 = nth_word(v[2][i / 4], i % 4), w3 = nth_word(v[3][i / 4], i % 4);
            const uint32_t a[4] = {__byte_perm(w0, w1, 0x5410), __byte_perm(w0, w1, 0x7632), __byte_perm(w2, w3, 0x5410),
                __byte_perm(w2, w3, 0x7632)};
            mma16816<false>(sum->o[i], a, p[0], p[1]);
        }
        read_values(f, key + f.stride);
    }
};

// ---- q8_0: rows can begin at any even address, so they are copied through a ring in shared memory ----

// The 16-byte pieces of 16 rows that a thread copies. 16 rows are a multiple of 16 bytes, so the misalignment of a row repeats.
template <int ROW, int PITCH> struct few_pieces {
    enum { PIECES = (ROW + 30) / 16, N = (ATTN_KEYS * PIECES + 31) / 32 };
    int from[N];      // byte offset in global memory
    uint32_t what[N]; // packed: row, number of bytes, offset in the ring

    LANE void init(const char *p, int64_t stride, int lane) {
#pragma unroll
        for (int j = 0; j < N; j++) {
            const int i = lane + 32 * j, row = i / PIECES, piece = i % PIECES;
            const int odd = (int) ((uintptr_t) (p + row * stride) & 15), left = row < ATTN_KEYS ? odd + ROW - 16 * piece : 0;
            from[j] = (int) (row * stride) - odd + 16 * piece;
            what[j] = (uint32_t) row << 24 | (uint32_t) max(min(left, 16), 0) << 16 | (uint32_t) (row * PITCH + 16 * piece);
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

template <int D> struct few_q8_0 {
    enum { STAGES = 3, ROW = D / 32 * 34, PITCH = ((ROW + 30) / 16 | 1) * 16, STAGE = 2 * ATTN_KEYS * PITCH };
    few_pieces<ROW, PITCH> keys, values;
    uint32_t ring;                   // byte offset in shared memory
    uint32_t key_at[2], value_at[4]; // byte offsets of the blocks that the thread reads
    int stage, ahead;

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

    LANE void fetch(const few_from &f, int to) {
        const uint32_t at = smem_addr(shared_words()) + ring + to * STAGE;
        keys.copy(f.k + ahead * f.k_1, f.last - ahead, at);
        values.copy(f.v + ahead * f.v_1, f.last - ahead, at + ATTN_KEYS * PITCH);
        copy_commit();
        ahead += f.stride;
    }
    LANE void start(const few_from &f, uint32_t offset) {
        keys.init(f.k, f.k_1, threadIdx.x % 32);
        values.init(f.v, f.v_1, threadIdx.x % 32);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int r = 2 * f.t + i % 2 + i / 2 * 8;
            value_at[i] =
                ATTN_KEYS * PITCH + r * PITCH + ((uint32_t) (uintptr_t) (f.v + r * f.v_1) & 15) + f.g * (D / 8) / 32 * 34;
        }
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int r = f.g + 8 * i;
            key_at[i] = r * PITCH + ((uint32_t) (uintptr_t) (f.k + r * f.k_1) & 15) + f.t * (D / 4) / 32 * 34;
        }
        ring = offset;
        stage = 0, ahead = f.first;
        for (int s = 0; s < STAGES - 1; s++) {
            fetch(f, s);
        }
    }
    LANE static uint32_t pair_times(uint32_t w, uint32_t which, uint32_t d) {
        return h2_mul(h2_less(__byte_perm(w, MAGIC, which), 1152), d);
    }
    LANE void scores(const few_from &f, int key, const uint32_t *q, float *s, float *more) {
        copy_wait(STAGES - 2);
        __syncwarp();
        fetch(f, stage == 0 ? STAGES - 1 : stage - 1);
        const uint32_t base = ring + stage * STAGE;
        uint32_t w[2][D / 16], d[2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const bytes b = {shared_words(), base + key_at[h]};
            words_at<D / 16>(b, 2 + f.t * (D / 4) % 32, w[h]);
            d[h] = h2_low(b.u16(0));
        }
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
            const uint32_t x = w[0][i] ^ 0x80808080u, y = w[1][i] ^ 0x80808080u;
            const uint32_t a[4] = {pair_times(x, 0x7170, d[0]), pair_times(y, 0x7170, d[1]), pair_times(x, 0x7372, d[0]),
                pair_times(y, 0x7372, d[1])};
            mma16816<false>(i % 2 ? more : s, a, q[2 * i], q[2 * i + 1]);
        }
    }
    LANE void add(const few_from &f, int key, const uint32_t *p, few_sums<D> *sum) {
        const uint32_t base = ring + stage * STAGE;
        uint32_t w[4][D / 32], d[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const bytes b = {shared_words(), base + value_at[i]};
            words_at<D / 32>(b, 2 + f.g * (D / 8) % 32, w[i]);
            d[i] = key + 2 * f.t + i % 2 + i / 2 * 8 < f.last ? b.u16(0) : 0; // data after the last key is undefined
        }
        const uint32_t d01 = d[0] | d[1] << 16, d23 = d[2] | d[3] << 16;
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
            const uint32_t half = i % 2 ? 0x7362 : 0x5140; // interleaves the bytes of two keys
            const uint32_t x = __byte_perm(w[0][i / 2], w[1][i / 2], half) ^ 0x80808080u,
                           y = __byte_perm(w[2][i / 2], w[3][i / 2], half) ^ 0x80808080u;
            const uint32_t a[4] = {
                pair_times(x, 0x7170, d01), pair_times(x, 0x7372, d01), pair_times(y, 0x7170, d23), pair_times(y, 0x7372, d23)};
            mma16816<false>(sum->o[i], a, p[0], p[1]);
        }
        stage = stage + 1 == STAGES ? 0 : stage + 1;
    }
};

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
        a.v_1, split * a.split_keys + warp * ATTN_KEYS, min((split + 1) * a.split_keys, a.n_kv), WARPS * ATTN_KEYS, g, t};
    __shared__ int rows[FEW_ROWS];
    few_touch(a, from);
    attn_rows(a, FEW_ROWS, 0, group, batch, rows);
    const attn_row row[2] = {attn_row_of(a, 2 * t, group, batch), attn_row_of(a, 2 * t + 1, group, batch)};
    const attn_row mine = attn_row_of(a, g, group, batch);
    if (a.wait) {
        wait_for_previous();
    }
    S source;
    source.start(from, warp * a.warp_shared);
    uint16_t mask[4];
    few_mask(a, row, from.first, g, mask);
    uint32_t q[D / 8];
    few_queries<S, D>(a, mine, batch, t, q);
    few_sums<D> sum;
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
        sum.o[i][0] = sum.o[i][1] = sum.o[i][2] = sum.o[i][3] = 0.0f;
    }
    sum.m[0] = sum.m[1] = -INFINITY, sum.l[0] = sum.l[1] = 0.0f;
    for (int key = from.first; key < from.last; key += from.stride) {
        float s[4] = {0, 0, 0, 0}, more[4] = {0, 0, 0, 0};
        uint32_t p[2];
        source.scores(from, key, q, s, more);
        few_score(a, row, key + g, from.last, mask, more, s);
        few_mask(a, row, key + from.stride, g, mask);
        few_weigh<D>(s, &sum, p);
        source.add(from, key, p, &sum);
    }
    __syncthreads(); // the sums overwrite the rings
    float *all = reinterpret_cast<float *>(smem);
    few_put<S, D, WARPS>(sum, row, warp, g, t, all);
    attn_merge<D, FEW_ROWS, WARPS>(a, 0, rows, split, all);
}
