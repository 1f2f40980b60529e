// SPDX-License-Identifier: MIT
// recur.cu: recurrences over tokens. A line is one row of a head's d x d state (RWKV_WKV7, GATED_DELTA_NET) or one column
// (RWKV_WKV6, GATED_LINEAR_ATTN). Lines are independent. One warp keeps one line in registers over all tokens of a sequence.

#include "cuda/kernel/dequant.cuh"
#include "cuda/kernel/recur.h"

#define PER_LANE 8 // elements of a line per lane, so d <= 256

struct line {
    float s[PER_LANE]; // s[i]: element lane + 32 i
};
// Returns the dot product of a line with x, to all lanes.
DEV float sum_of(const struct cuda_recur_args &g, const line &l, const float *x, int lane) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < PER_LANE; i++) {
        const int at = lane + 32 * i;
        sum += at < g.d ? l.s[i] * x[at] : 0.0f;
    }
    return warp_sum(sum);
}

// Each step function updates line n with one token and returns the element of the result for this line.
// x: sources of this token and head.
DEV float step_columns(const struct cuda_recur_args &g, line &l, const float *const *x, int64_t n, int lane) {
    const float *k = x[0], *r = x[2], v = x[1][n];
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < PER_LANE; i++) {
        const int at = lane + 32 * i;
        if (at < g.d) {
            const float kv = k[at] * v;
            if (g.what == GGML_OP_RWKV_WKV6) { // x[3]: bonus of the first occurrence; x[4]: decay
                sum += r[at] * l.s[i] + v * (r[at] * x[3][at] * k[at]);
                l.s[i] = l.s[i] * x[4][at] + kv;
            } else { // x[3]: gate
                l.s[i] = l.s[i] * x[3][at] + kv;
                sum += l.s[i] * (r[at] * g.scale);
            }
        }
    }
    return warp_sum(sum);
}
DEV float step_wkv7(const struct cuda_recur_args &g, line &l, const float *const *x, int64_t n, int lane) {
    const float *r = x[0], *w = x[1], *k = x[2], v = x[3][n], *a = x[4], *b = x[5];
    const float sa = sum_of(g, l, a, lane);
#pragma unroll
    for (int i = 0; i < PER_LANE; i++) {
        const int at = lane + 32 * i;
        l.s[i] = at < g.d ? l.s[i] * w[at] + k[at] * v + b[at] * sa : 0.0f;
    }
    return sum_of(g, l, r, lane);
}
// q, k: vectors of this token and head; v: element of v for this line; gate: one or d numbers.
DEV float step_delta(
    const struct cuda_recur_args &g, line &l, const float *q, const float *k, float v, const float *gate, float beta, int lane) {
#pragma unroll
    for (int i = 0; i < PER_LANE; i++) {
        const int at = lane + 32 * i;
        const int at_gate = g.n_gate == 1 ? 0 : at;
        l.s[i] = at < g.d ? l.s[i] * expf(gate[at_gate]) : 0.0f;
    }
    const float more = (v - sum_of(g, l, k, lane)) * beta;
#pragma unroll
    for (int i = 0; i < PER_LANE; i++) {
        const int at = lane + 32 * i;
        l.s[i] += at < g.d ? k[at] * more : 0.0f;
    }
    return sum_of(g, l, q, lane) * g.scale;
}

// blockIdx.x: index of a head of a sequence; blockIdx.y: group of blockDim.y lines.
KERNEL recur(const __grid_constant__ struct cuda_recur_args g) {
    dep_begin();
    const int64_t n = (int64_t) blockIdx.y * blockDim.y + threadIdx.y, unit = blockIdx.x, seq = unit / g.n_head,
                  h = unit % g.n_head;
    const int lane = threadIdx.x;
    if (n >= g.d) {
        return;
    }
    const bool columns = g.what == GGML_OP_RWKV_WKV6 || g.what == GGML_OP_GATED_LINEAR_ATTN;
    const int64_t first = unit * g.d * g.d + (columns ? n : n * g.d), step = columns ? g.d : 1;
    line l;
#pragma unroll
    for (int i = 0; i < PER_LANE; i++) {
        const int at = lane + 32 * i;
        l.s[i] = at < g.d ? g.state[first + at * step] : 0.0f;
    }
    const int64_t slab = g.d * g.d * g.n_head * g.n_seq;
    for (int64_t t = 0; t < g.n_token; t++) {
        const int64_t row = (seq * g.n_token + t) * g.n_head + h;
        float y;
        if (g.what == GGML_OP_GATED_DELTA_NET) {
            const float *q = (const float *) at(g.q, 0, h % g.q.ne[1], t, seq / (g.n_seq / g.q.ne[3]));
            const float *k = (const float *) at(g.k, 0, h % g.k.ne[1], t, seq / (g.n_seq / g.k.ne[3]));
            const float v = ((const float *) at(g.v, 0, h, t, seq))[n];
            y = step_delta(g, l, q, k, v, g.x[3] + row * g.n_gate, g.x[4][row], lane);
        } else {
            const float *x[6];
            for (int i = 0; i < 6; i++) {
                const int64_t at_row = g.what == GGML_OP_RWKV_WKV6 && i == 3 ? h : row;
                x[i] = g.x[i] != nullptr ? g.x[i] + at_row * g.d : nullptr;
            }
            y = columns ? step_columns(g, l, x, n, lane) : step_wkv7(g, l, x, n, lane);
        }
        if (lane == 0) {
            g.y[row * g.d + n] = y;
        }
        const int64_t before = g.n_token - 1 - t;
        if (before == 0 || before < g.n_kept) {
#pragma unroll
            for (int i = 0; i < PER_LANE; i++) {
                const int at = lane + 32 * i;
                if (at < g.d) {
                    g.states[before * slab + first + at * step] = l.s[i];
                }
            }
        }
    }
    if (g.n_token == 0) {
        for (int at = lane; at < g.d; at += 32) {
            g.states[first + at * step] = g.state[first + at * step];
        }
    }
}

// ---- SSM_SCAN: h = exp(dt A) h + dt B x, y = C h. One warp per element of a head. ----

KERNEL ssm_scan(const __grid_constant__ struct cuda_scan_args g) {
    dep_begin();
    const int64_t d_state = g.s.ne[0], d_head = g.x.ne[0], n_head = g.x.ne[1], n_token = g.x.ne[2], n_seq = g.x.ne[3];
    const int64_t i = (int64_t) blockIdx.y * blockDim.y + threadIdx.y, seq = blockIdx.x / n_head, h = blockIdx.x % n_head;
    const int lane = threadIdx.x;
    if (i >= d_head) {
        return;
    }
    const int32_t id = g.ids[seq];
    float s[PER_LANE], rate[PER_LANE];
    const bool is_there = id >= 0 && id < g.s.ne[3];
#pragma unroll
    for (int k = 0; k < PER_LANE; k++) {
        const int at_ = lane + 32 * k;
        s[k] = at_ < d_state && is_there ? *(const float *) at(g.s, at_, i, h, id) : 0.0f;
        const int at_rate = g.a.ne[0] == 1 ? 0 : at_;
        rate[k] = at_ < d_state ? *(const float *) at(g.a, at_rate, h, 0, 0) : 0.0f;
    }
    const int64_t group = h / (n_head / g.b.ne[1]), slab = d_state * d_head * n_head * n_seq;
    for (int64_t t = 0; t < n_token; t++) {
        const float raw = *(const float *) at(g.dt, h, t, seq, 0), step = raw <= 20.0f ? log1pf(expf(raw)) : raw;
        const float in = *(const float *) at(g.x, i, h, t, seq) * step;
        const float *b = (const float *) at(g.b, 0, group, t, seq), *c = (const float *) at(g.c, 0, group, t, seq);
        float sum = 0.0f;
#pragma unroll
        for (int k = 0; k < PER_LANE; k++) {
            const int at_ = lane + 32 * k;
            if (at_ < d_state) {
                s[k] = s[k] * expf(step * rate[k]) + b[at_] * in;
                sum += s[k] * c[at_];
            }
        }
        sum = warp_sum(sum);
        if (lane == 0) {
            g.y[((seq * n_token + t) * n_head + h) * d_head + i] = sum;
        }
        const int64_t before = n_token - 1 - t;
        if (before == 0 || before < g.n_kept) {
#pragma unroll
            for (int k = 0; k < PER_LANE; k++) {
                const int at_ = lane + 32 * k;
                if (at_ < d_state) {
                    g.states[before * slab + (blockIdx.x * d_head + i) * d_state + at_] = s[k];
                }
            }
        }
    }
}

// ---- one thread per element ----

KERNEL ssm_conv(const __grid_constant__ struct cuda_op_args g) {
    dep_begin();
    for (int64_t i = thread_index(); i < g.n; i += thread_count()) {
        const at4 x = g.index.d0.d != 0 ? index_split(i, g.index) : index_split(i, g.dst.ne); // channel, token, sequence
        float sum = 0.0f;
        for (int64_t j = 0; j < g.b.ne[0]; j++) {
            sum += *(const float *) at(g.a, x.i1 + j, x.i0, x.i2, 0) * *(const float *) at(g.b, j, x.i0, 0, 0);
        }
        *(float *) at(g.dst, x) = sum;
    }
}

KERNEL solve_tri(const __grid_constant__ struct cuda_op_args g) {
    dep_begin();
    for (int64_t i = thread_index(); i < g.n; i += thread_count()) {
        const int64_t j = i % g.dst.ne[0], i2 = i / g.dst.ne[0] % g.dst.ne[2], i3 = i / (g.dst.ne[0] * g.dst.ne[2]);
        for (int64_t r = 0; r < g.dst.ne[1]; r++) {
            float sum = 0.0f;
            for (int64_t c = 0; c < r; c++) {
                sum += *(const float *) at(g.dst, j, c, i2, i3) * *(const float *) at(g.a, c, r, i2, i3);
            }
            *(float *) at(g.dst, j, r, i2, i3) =
                (*(const float *) at(g.b, j, r, i2, i3) - sum) / *(const float *) at(g.a, r, r, i2, i3);
        }
    }
}

#define HC 4

// Divides each row (or, if rows is false, each column) of m by its sum plus eps.
DEV void comb_norm(float m[HC][HC], bool rows, float eps) {
    for (int i = 0; i < HC; i++) {
        float sum = 0.0f;
        for (int j = 0; j < HC; j++) {
            sum += rows ? m[i][j] : m[j][i];
        }
        for (int j = 0; j < HC; j++) {
            if (rows) {
                m[i][j] /= sum + eps;
            } else {
                m[j][i] /= sum + eps;
            }
        }
    }
}

// Each thread computes one token. f[0]: eps; p[1]: number of normalisation rounds.
KERNEL hc_comb(const __grid_constant__ struct cuda_op_args g) {
    dep_begin();
    const float scale = *(const float *) at(g.b, 2, 0, 0, 0);
    for (int64_t t = thread_index(); t < g.a.ne[1]; t += thread_count()) {
        float m[HC][HC];
        for (int i = 0; i < HC; i++) {
            float max = -INFINITY, sum = 0.0f;
            for (int j = 0; j < HC; j++) {
                const int k = 2 * HC + i * HC + j;
                m[i][j] = *(const float *) at(g.a, k, t, 0, 0) * scale + *(const float *) at(g.c, k, 0, 0, 0);
                max = fmaxf(max, m[i][j]);
            }
            for (int j = 0; j < HC; j++) {
                m[i][j] = expf(m[i][j] - max);
                sum += m[i][j];
            }
            for (int j = 0; j < HC; j++) {
                m[i][j] = m[i][j] / sum + g.f[0];
            }
        }
        comb_norm(m, false, g.f[0]);
        for (int k = 1; k < g.p[1]; k++) {
            comb_norm(m, true, g.f[0]);
            comb_norm(m, false, g.f[0]);
        }
        for (int i = 0; i < HC * HC; i++) {
            ((float *) g.dst.p)[t * HC * HC + i] = m[i / HC][i % HC];
        }
    }
}

KERNEL hc_pre(const __grid_constant__ struct cuda_op_args g) {
    dep_begin();
    const bool gated = g.p[1] != 0;
    const float scale = g.p[0] == 0 && !gated ? 1.0f : g.f[0];
    for (int64_t i = thread_index(); i < g.n; i += thread_count()) {
        const at4 x = g.index.d0.d != 0 ? index_split(i, g.index) : index_split(i, g.dst.ne);
        float sum = 0.0f;
        for (int64_t s = 0; s < g.a.ne[1]; s++) {
            const float v = *(const float *) at(g.a, x.i0, s, x.i1, 0);
            sum += gated ? v / (1.0f + expf(-*(const float *) at(g.b, x.i0, s, x.i1, 0)))
                         : v * *(const float *) at(g.b, s, x.i1, 0, 0);
        }
        *(float *) at(g.dst, x) = sum * scale;
    }
}

// a: new stream; b: old streams; c: post; d: comb, or absent.
KERNEL hc_post(const __grid_constant__ struct cuda_op_args g) {
    dep_begin();
    for (int64_t i = thread_index(); i < g.n; i += thread_count()) {
        const at4 x = g.index.d0.d != 0 ? index_split(i, g.index) : index_split(i, g.dst.ne);
        float sum = *(const float *) at(g.a, x.i0, x.i2, 0, 0) * *(const float *) at(g.c, x.i1, x.i2, 0, 0);
        if (g.d.p == nullptr) {
            sum += *(const float *) at(g.b, x);
        }
        for (int64_t from = 0; g.d.p != nullptr && from < g.dst.ne[1]; from++) {
            sum += *(const float *) at(g.b, x.i0, from, x.i2, 0) * *(const float *) at(g.d, x.i1, from, x.i2, 0);
        }
        *(float *) at(g.dst, x) = sum;
    }
}

// One warp per key and token: the sum over heads of weight * max(0, q k), plus the mask. a: q; b: k; c: weights; d: mask.
KERNEL lightning_indexer(const __grid_constant__ struct cuda_op_args g) {
    dep_begin();
    const int lane = threadIdx.x;
    for (int64_t i = (int64_t) blockIdx.x * blockDim.y + threadIdx.y; i < g.n; i += (int64_t) gridDim.x * blockDim.y) {
        const int64_t key = i % g.dst.ne[0], t = i / g.dst.ne[0] % g.dst.ne[1], seq = i / (g.dst.ne[0] * g.dst.ne[1]);
        const char *k = at(g.b, 0, 0, key, seq);
        const bool dense = g.b.type == GGML_TYPE_F32 || g.b.type == GGML_TYPE_F16 || g.b.type == GGML_TYPE_BF16;
        float kv[PER_LANE];
#pragma unroll
        for (int j = 0; j < PER_LANE; j++) {
            const int at_ = lane + 32 * j;
            kv[j] = 0.0f;
            if (at_ < g.a.ne[0]) {
                kv[j] = dense ? load_number(k + at_ * g.b.nb[0], g.b.type) : row_element(k, g.b.type, at_);
            }
        }
        float sum = 0.0f;
        for (int64_t h = 0; h < g.a.ne[1]; h++) {
            const float *q = (const float *) at(g.a, 0, h, t, seq);
            float dot = 0.0f;
#pragma unroll
            for (int j = 0; j < PER_LANE; j++) {
                const int at_ = lane + 32 * j;
                dot += at_ < g.a.ne[0] ? q[at_] * kv[j] : 0.0f;
            }
            dot = warp_sum(dot);
            sum += fmaxf(dot, 0.0f) * *(const float *) at(g.c, h, t, 0, seq);
        }
        if (lane == 0) {
            *(float *) at(g.dst, key, t, 0, seq) = sum + half_to_float(*(const uint16_t *) at(g.d, key, t, 0, seq % g.d.ne[3]));
        }
    }
}
