// SPDX-License-Identifier: MIT
// attn_wide.cuh: attention with head dimensions of 257 to 576, whose sums do not fit into the registers of one warp, and with keys
// and values of any type.
// A block computes 32 rows, 32 keys at a time. Four warps share 16 rows; each warp has a quarter of the dimensions. The four
// warps add their partial scores through shared memory.
#pragma once

#include "attn.cuh"
#include "dequant.cuh"

enum { WIDE_D = 576, WIDE_PART = WIDE_D / 4, WIDE_KEYS = 32, WIDE_ROWS = 32, WIDE_WARPS = 8, WIDE_PITCH = WIDE_D + 8 };

// Returns elements e to e + 3 of a row of any type as two pairs of f16, or of bf16 if BF. apart: bytes between elements.
template <bool BF> LANE uint2 wide_four(const char *row, int apart, int type, int e) {
    float v[4];
#define OF(TYPE, name, ...) \
    case GGML_TYPE_##TYPE: { \
        const block_##name *b = reinterpret_cast<const block_##name *>(row) + e / QK_##TYPE; \
        _Pragma("unroll") for (int i = 0; i < 4; i++) { \
            v[i] = element(b, e % QK_##TYPE + i); \
        } \
        break; \
    }
    switch (BF ? (int) GGML_TYPE_COUNT : type) {
        BERTH_FORMATS(OF)
        BERTH_ACTIVATIONS(OF)
        default:
#pragma unroll
            for (int i = 0; i < 4; i++) {
                v[i] = load_number(row + (e + i) * apart, type);
            }
    }
#undef OF
    return make_uint2(attn_pack<BF>(v[0], v[1]), attn_pack<BF>(v[2], v[3]));
}

// Loads rows of keys or values with n elements each. Elements from n on and rows from `last` on are zeros.
template <bool BF>
LANE void wide_load(const char *p, int apart, int64_t stride, int type, int n, int first, int last, uint16_t *tile) {
    const bool eights = type == GGML_TYPE_F16 && !BF && apart == 2 && (((uintptr_t) p | (uintptr_t) stride) & 7) == 0;
    for (int i = threadIdx.x; i < WIDE_KEYS * (WIDE_D / 4); i += WIDE_WARPS * 32) {
        const int r = i / (WIDE_D / 4), e = i % (WIDE_D / 4) * 4;
        uint2 v = make_uint2(0, 0);
        if (first + r < last && e < n) {
            const char *row = p + (first + r) * stride;
            v = eights ? *reinterpret_cast<const uint2 *>(row + 2 * e) : wide_four<BF>(row, apart, type, e);
        }
        *reinterpret_cast<uint2 *>(tile + r * WIDE_PITCH + e) = v;
    }
}

// Loads the queries of a tile of rows, multiplied by the scale. Elements from d_k on and rows that do not exist are zeros.
template <bool BF> LANE void wide_queries(const attn_args &a, int tile, int group, int batch, uint16_t *q) {
    for (int i = threadIdx.x; i < WIDE_ROWS * (WIDE_D / 2); i += WIDE_WARPS * 32) {
        const int r = i / (WIDE_D / 2), e = i % (WIDE_D / 2) * 2;
        const attn_row row = attn_row_of(a, tile * WIDE_ROWS + r, group, batch);
        uint32_t v = 0;
        if (row.query >= 0 && e < a.d_k) {
            const char *p = a.q + row.query * a.q_1 + row.head * a.q_2 + batch * a.q_3 + e * a.q_0;
            v = attn_pack<BF>(
                *reinterpret_cast<const float *>(p) * a.scale, *reinterpret_cast<const float *>(p + a.q_0) * a.scale);
        }
        *reinterpret_cast<uint32_t *>(q + r * WIDE_PITCH + e) = v;
    }
}

// Computes the partial scores of 16 rows and 32 keys from a quarter of the dimensions. q, k: addresses for ldmatrix.
template <bool BF> LANE void wide_scores(uint32_t q, uint32_t k, float (*s)[4]) {
#pragma unroll
    for (int j = 0; j < 4; j++) {
        s[j][0] = s[j][1] = s[j][2] = s[j][3] = 0.0f;
    }
#pragma unroll 3
    for (int i = 0; i < WIDE_PART / 16; i++) {
        uint32_t a[4], b[2][4];
        ldmatrix4(q + 32 * i, a);
        ldmatrix4(k + 32 * i, b[0]);
        ldmatrix4(k + 32 * i + 16 * WIDE_PITCH * 2, b[1]);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            mma16816<BF>(s[j], a, b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
        }
    }
}

// Sums of the two rows of a thread, as in attn_sums. o has only the warp's quarter of the dimensions.
struct wide_sums {
    float o[WIDE_PART / 8][4], m[2], l[2];
};

// Converts the products s of 32 keys into weights and updates the sums.
LANE void wide_weigh(const attn_args &a, const attn_row *row, int key, float (*s)[4], wide_sums *sum) {
    const int t = threadIdx.x % 4;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float most = sum->m[h];
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const int at = key + i / 2 * 8 + 2 * t + i % 2;
            const uint16_t mask = row[h].mask != NULL && at < a.n_kv ? row[h].mask[at] : 0;
            float *v = &s[i / 2][2 * h + i % 2];
            *v = attn_score(a, row[h], at, mask, *v);
            most = fmaxf(most, *v);
        }
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
        const float base = most == -INFINITY ? 0.0f : most, scale = exp2f(sum->m[h] - base);
        sum->m[h] = most;
        sum->l[h] *= scale;
#pragma unroll
        for (int i = 0; i < WIDE_PART / 8; i++) {
            sum->o[i][2 * h] *= scale, sum->o[i][2 * h + 1] *= scale;
        }
#pragma unroll
        for (int i = 0; i < 8; i++) {
            float *v = &s[i / 2][2 * h + i % 2];
            *v = exp2f(*v - base);
            sum->l[h] += *v;
        }
    }
}

// Adds the values of 32 keys, multiplied by the weights s, to the sums. v: address for ldmatrix.
template <bool BF> LANE void wide_values(const float (*s)[4], uint32_t v, wide_sums *sum) {
#pragma unroll
    for (int step = 0; step < 2; step++) {
        const float *x = s[2 * step], *y = s[2 * step + 1];
        const uint32_t p[4] = {
            attn_pack<BF>(x[0], x[1]), attn_pack<BF>(x[2], x[3]), attn_pack<BF>(y[0], y[1]), attn_pack<BF>(y[2], y[3])};
#pragma unroll
        for (int i = 0; i < WIDE_PART / 16; i++) {
            uint32_t b[4];
            ldmatrix4t(v + step * 16 * WIDE_PITCH * 2 + 32 * i, b);
            mma16816<BF>(sum->o[2 * i], p, b[0], b[1]);
            mma16816<BF>(sum->o[2 * i + 1], p, b[2], b[3]);
        }
    }
}

// With one split, writes the result to a.y. Otherwise writes the sums of this split to a.part and a.limit.
LANE void wide_store(const attn_args &a, const wide_sums &sum, const attn_row *row, int part, int batch, int split) {
    const int t = threadIdx.x % 4;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float l = sum.l[h];
        l += __shfl_xor_sync(~0u, l, 1);
        l += __shfl_xor_sync(~0u, l, 2);
        const int64_t to = ((int64_t) batch * a.n_q + row[h].query) * a.n_head + row[h].head;
#pragma unroll
        for (int i = 0; i < WIDE_PART / 4; i++) {
            const int e = part * WIDE_PART + i / 2 * 8 + 2 * t + i % 2;
            if (row[h].query < 0 || e >= a.d_v) {
                continue;
            }
            const attn_total total = {sum.o[i / 2][2 * h + i % 2], sum.m[h], l};
            if (a.n_split == 1) {
                attn_finish(a, total, row[h].head, to, e);
                continue;
            }
            a.part[((int64_t) split * a.n_rows + to) * a.d_v + e] = total.value;
            if (e == 0) {
                *reinterpret_cast<float2 *>(a.limit + ((int64_t) split * a.n_rows + to) * 2) = make_float2(total.most, l);
            }
        }
    }
}

template <bool BF> LANE void attn_wide(const attn_args &a) {
    extern __shared__ __align__(128) uint32_t smem[];
    uint16_t *q = reinterpret_cast<uint16_t *>(smem), *tile = q + WIDE_ROWS * WIDE_PITCH;
    float *quarters = reinterpret_cast<float *>(tile + WIDE_KEYS * WIDE_PITCH); // [warp][16][lane]
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, rows = warp / 4, part = warp % 4;
    const int n_tiles = (a.n_q * a.n_group + WIDE_ROWS - 1) / WIDE_ROWS;
    const int split = blockIdx.x, at = blockIdx.y % n_tiles, group = blockIdx.y / n_tiles, batch = blockIdx.z;
    let_next_start();
    if (a.wait) {
        wait_for_previous();
    }
    const char *k = a.k + group * a.k_2 + batch / a.k_r3 * a.k_3, *v = a.v + group * a.v_2 + batch / a.v_r3 * a.v_3;
    const int row0 = at * WIDE_ROWS + rows * 16 + g;
    const attn_row row[2] = {attn_row_of(a, row0, group, batch), attn_row_of(a, row0 + 8, group, batch)};
    wide_queries<BF>(a, at, group, batch, q);
    const uint32_t q_lane = smem_addr(q) + ((rows * 16 + lane % 16) * WIDE_PITCH + part * WIDE_PART + lane / 16 * 8) * 2;
    const uint32_t k_lane = smem_addr(tile) + ((lane % 8 + lane / 16 * 8) * WIDE_PITCH + part * WIDE_PART + lane / 8 % 2 * 8) * 2;
    const uint32_t v_lane = smem_addr(tile) + (lane % 16 * WIDE_PITCH + part * WIDE_PART + lane / 16 * 8) * 2;
    wide_sums sum;
#pragma unroll
    for (int i = 0; i < WIDE_PART / 8; i++) {
        sum.o[i][0] = sum.o[i][1] = sum.o[i][2] = sum.o[i][3] = 0.0f;
    }
    sum.m[0] = sum.m[1] = -INFINITY, sum.l[0] = sum.l[1] = 0.0f;
    attn_steps<WIDE_ROWS, WIDE_KEYS, 1> steps(a, at, group, batch, split * WIDE_KEYS); // one step per block
    for (int key = steps.begin(), after = steps.second(); key < a.n_kv; key = after, after = steps.next()) {
        float s[4][4];
        __syncthreads(); // wait until the values of the previous keys are read
        wide_load<BF>(k, a.k_0, a.k_1, a.k_type, a.d_k, key, a.n_kv, tile);
        __syncthreads();
        wide_scores<BF>(q_lane, k_lane, s);
#pragma unroll
        for (int i = 0; i < 16; i++) {
            quarters[(warp * 16 + i) * 32 + lane] = s[i / 4][i % 4];
        }
        __syncthreads();
        wide_load<BF>(v, a.v_0, a.v_1, a.v_type, a.d_v, key, a.n_kv, tile);
#pragma unroll
        for (int i = 0; i < 16; i++) {
            float all = 0.0f;
#pragma unroll
            for (int w = 0; w < 4; w++) {
                all += quarters[((rows * 4 + w) * 16 + i) * 32 + lane];
            }
            s[i / 4][i % 4] = all;
        }
        wide_weigh(a, row, key, s, &sum);
        __syncthreads();
        wide_values<BF>(s, v_lane, &sum);
    }
    wide_store(a, sum, row, part, batch, split);
}
