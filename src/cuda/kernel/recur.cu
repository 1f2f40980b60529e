// SPDX-License-Identifier: MIT
// recur.cu: recurrences over tokens. A line is one row of a head's d x d state (RWKV_WKV7, GATED_DELTA_NET) or one column
// (RWKV_WKV6, GATED_LINEAR_ATTN). Lines are independent. One warp keeps one line in registers over all tokens of a sequence.

#include "cuda/kernel/dequant.cuh"
#include "gpu/kernel/recur.h"

#define PER_LANE 8 // elements of a line per lane, so d <= 256

struct line {
    float s[PER_LANE]; // s[i]: element lane + 32 i
};
// Returns the dot product of a line with x, to all lanes.
DEV float sum_of(const struct gpu_recur_args &g, const line &l, const float *x, int lane) {
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
DEV float step_columns(const struct gpu_recur_args &g, line &l, const float *const *x, int64_t n, int lane) {
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
DEV float step_wkv7(const struct gpu_recur_args &g, line &l, const float *const *x, int64_t n, int lane) {
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
    const struct gpu_recur_args &g, line &l, const float *q, const float *k, float v, const float *gate, float beta, int lane) {
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
KERNEL recur(const __grid_constant__ struct gpu_recur_args g) {
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

// ---- many tokens: 16 lanes per line, two lines and D / 16 elements of each per lane ----
//
// One token changes a line S to S g + k m + b (S p), where m depends on the token, the line and S p. Without p, S p is 0. The
// result is the new S times r; for RWKV_WKV6, it is the old S times r plus m times the sum of p. The vectors g, k, r, p and b are
// the same for all lines of a head. The block computes them for LINES_CHUNK tokens at a time, in shared memory.

template <int D, int OP> struct lines_chunk {
    enum {
        HAS_SP = OP == GGML_OP_RWKV_WKV7 || OP == GGML_OP_GATED_DELTA_NET,
        HAS_P = HAS_SP || OP == GGML_OP_RWKV_WKV6,
        HAS_B = OP == GGML_OP_RWKV_WKV7,
        LOADS = LINES_CHUNK * D / LINES_THREADS // elements of each vector per thread
    };
    struct shared {
        float g[LINES_CHUNK][D], k[LINES_CHUNK][D], r[LINES_CHUNK][D];
        float p[HAS_P ? LINES_CHUNK : 1][D], b[HAS_B ? LINES_CHUNK : 1][D];
        float v[LINES_CHUNK][LINES_ROWS], beta[LINES_CHUNK];
    };
    float g[LOADS], k[LOADS], r[LOADS], a[HAS_B ? LOADS : 1], b[HAS_B ? LOADS : 1], v, beta;

    // Addresses of this thread's first element of each vector, and bytes between tokens.
    const char *at_r, *at_k, *at_g, *at_a, *at_b, *at_v, *at_beta;
    int64_t step_r, step_k, step_g, step, step_v, step_beta;

    __device__ __forceinline__ void init(const struct gpu_recur_args &x, int64_t seq, int64_t h, int64_t line) {
        const int e = threadIdx.x % D, t = threadIdx.x / D, t_v = threadIdx.x / LINES_ROWS;
        const int64_t n = line + threadIdx.x % LINES_ROWS, row = (seq * x.n_token + t) * x.n_head + h,
                      row_v = (seq * x.n_token + t_v) * x.n_head + h;
        const auto element = [&](int i) { return (const char *) (x.x[i] + row * D + e); };
        step = step_r = step_k = step_g = step_v = x.n_head * (int64_t) (D * sizeof(float));
        step_beta = x.n_head * (int64_t) sizeof(float);
        if (OP == GGML_OP_GATED_DELTA_NET) {
            at_r = at(x.q, 0, h % x.q.ne[1], t, seq / (x.n_seq / x.q.ne[3])) + e * sizeof(float);
            at_k = at(x.k, 0, h % x.k.ne[1], t, seq / (x.n_seq / x.k.ne[3])) + e * sizeof(float);
            at_v = at(x.v, 0, h, t_v, seq) + n * sizeof(float);
            at_g = x.n_gate == 1 ? (const char *) (x.x[3] + row) : element(3);
            at_beta = (const char *) (x.x[4] + row_v);
            step_r = x.q.nb[2], step_k = x.k.nb[2], step_v = x.v.nb[2];
            step_g = x.n_gate == 1 ? step_beta : step;
        } else {
            constexpr bool IS_7 = OP == GGML_OP_RWKV_WKV7;
            at_r = element(IS_7 ? 0 : 2), at_k = element(IS_7 ? 2 : 0);
            at_g = element(IS_7 ? 1 : OP == GGML_OP_RWKV_WKV6 ? 4 : 3);
            at_a = element(IS_7 ? 4 : 0), at_b = element(IS_7 ? 5 : 0);
            at_v = (const char *) (x.x[IS_7 ? 3 : 1] + row_v * D + n);
        }
    }

    // Loads a chunk from global memory into registers.
    __device__ __forceinline__ void load(const struct gpu_recur_args &x, int64_t first) {
#pragma unroll
        for (int j = 0; j < LOADS; j++) {
            const int64_t t = first + j * (LINES_THREADS / D);
            const bool is_there = t + threadIdx.x / D < x.n_token;
            r[j] = is_there ? *(const float *) (at_r + t * step_r) : 0.0f;
            k[j] = is_there ? *(const float *) (at_k + t * step_k) : 0.0f;
            g[j] = is_there ? *(const float *) (at_g + t * step_g) : 0.0f;
            if (HAS_B) {
                a[HAS_B ? j : 0] = is_there ? *(const float *) (at_a + t * step) : 0.0f;
                b[HAS_B ? j : 0] = is_there ? *(const float *) (at_b + t * step) : 0.0f;
            }
        }
        static_assert(LINES_CHUNK * LINES_ROWS == LINES_THREADS, "each thread loads one element of v");
        const bool is_there = first + threadIdx.x / LINES_ROWS < x.n_token;
        v = is_there ? *(const float *) (at_v + first * step_v) : 0.0f;
        beta = is_there && OP == GGML_OP_GATED_DELTA_NET ? *(const float *) (at_beta + first * step_beta) : 0.0f;
    }

    // Writes the chunk to shared memory.
    __device__ __forceinline__ void store(const struct gpu_recur_args &x, shared &s, int64_t h) {
#pragma unroll
        for (int j = 0; j < LOADS; j++) {
            const int i = threadIdx.x + LINES_THREADS * j, t = i / D, e = i % D;
            const float gate = OP == GGML_OP_GATED_DELTA_NET ? expf(g[j]) : g[j];
            s.g[t][e] = gate;
            s.k[t][e] = k[j];
            s.r[t][e] = OP == GGML_OP_GATED_DELTA_NET || OP == GGML_OP_GATED_LINEAR_ATTN ? r[j] * x.scale : r[j];
            if (OP == GGML_OP_GATED_DELTA_NET) {
                s.p[t][e] = gate * k[j];
            } else if (OP == GGML_OP_RWKV_WKV6) {
                s.p[t][e] = r[j] * x.x[3][h * D + e] * k[j];
            } else if (HAS_B) {
                s.p[t][e] = a[HAS_B ? j : 0];
                s.b[t][e] = b[HAS_B ? j : 0];
            }
        }
        s.v[threadIdx.x / LINES_ROWS][threadIdx.x % LINES_ROWS] = v;
        if (threadIdx.x % LINES_ROWS == 0) {
            s.beta[threadIdx.x / LINES_ROWS] = beta;
        }
    }
};

// Adds v over 16 lanes; all of them receive the sum.
DEV float sum_of_16(float v) {
#pragma unroll
    for (int o = 8; o > 0; o >>= 1) {
        v += __shfl_xor_sync(~0u, v, o);
    }
    return v;
}

DEV void load_four(const float *from, float *to) {
    const float4 v = *(const float4 *) from;
    to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
}

// blockIdx.x: head of a sequence; blockIdx.y: group of LINES_ROWS lines. D is a multiple of LINES_ROWS. n_kept is at most 1.
template <int D, int OP> DEV void recur_lines(const struct gpu_recur_args &x) {
    enum { N = D / 64, E = 4 * N }; // lane l has the elements 4 l to 4 l + 3 of each 64
    typedef lines_chunk<D, OP> chunk;
    __shared__ __align__(16) typename chunk::shared s;
    dep_begin();
    const int64_t seq = blockIdx.x / x.n_head, h = blockIdx.x % x.n_head, first_line = (int64_t) blockIdx.y * LINES_ROWS;
    const int pair = threadIdx.x / 16, lane = threadIdx.x % 16;
    const int64_t line = first_line + 2 * pair;
    const bool columns = OP == GGML_OP_RWKV_WKV6 || OP == GGML_OP_GATED_LINEAR_ATTN;
    const int64_t base = blockIdx.x * (int64_t) (D * D), line_step = columns ? 1 : D, element_step = columns ? D : 1;
    float state[2][E];
#pragma unroll
    for (int l = 0; l < 2; l++) {
#pragma unroll
        for (int i = 0; i < E; i++) {
            state[l][i] = x.state[base + (line + l) * line_step + (i / 4 * 64 + lane * 4 + i % 4) * element_step];
        }
    }
    chunk next;
    next.init(x, seq, h, first_line);
    next.load(x, 0);
    for (int64_t first = 0; first < x.n_token; first += LINES_CHUNK) {
        __syncthreads(); // all threads have finished the previous chunk
        next.store(x, s, h);
        __syncthreads();
        if (first + LINES_CHUNK < x.n_token) {
            next.load(x, first + LINES_CHUNK);
        }
        for (int t4 = 0; t4 < LINES_CHUNK && first + t4 < x.n_token; t4 += 4) {
            float y[8] = {0, 0, 0, 0, 0, 0, 0, 0}; // [token][line]
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int t = t4 + j;
                if (first + t >= x.n_token) {
                    break;
                }
                float sp[2] = {0.0f, 0.0f}, g[E], k[E], r[E], p[E], b[E];
#pragma unroll
                for (int i = 0; i < E; i += 4) {
                    const int e = i / 4 * 64 + lane * 4;
                    load_four(&s.g[t][e], g + i);
                    load_four(&s.k[t][e], k + i);
                    load_four(&s.r[t][e], r + i);
                    if (chunk::HAS_P) {
                        load_four(&s.p[t][e], p + i);
                    }
                    if (chunk::HAS_B) {
                        load_four(&s.b[t][e], b + i);
                    }
                }
#pragma unroll
                for (int l = 0; l < 2; l++) {
                    const float v = s.v[t][2 * pair + l];
                    float sum = 0.0f;
#pragma unroll
                    for (int i = 0; i < E; i++) {
                        if (chunk::HAS_SP) {
                            sp[l] += state[l][i] * p[i];
                        }
                        if (OP == GGML_OP_RWKV_WKV6) {
                            sum += state[l][i] * r[i] + p[i] * v;
                        }
                    }
                    if (chunk::HAS_SP) {
                        sp[l] = sum_of_16(sp[l]);
                    }
                    const float m = OP == GGML_OP_GATED_DELTA_NET ? (v - sp[l]) * s.beta[t] : v;
#pragma unroll
                    for (int i = 0; i < E; i++) {
                        state[l][i] = state[l][i] * g[i] + k[i] * m;
                        if (chunk::HAS_B) {
                            state[l][i] += b[i] * sp[l];
                        }
                        if (OP != GGML_OP_RWKV_WKV6) {
                            sum += state[l][i] * r[i];
                        }
                    }
                    y[2 * j + l] = sum;
                }
            }
            const float sum = sum_of_eight(y, lane);
            const int64_t t = first + t4 + lane / 4;
            if (lane % 2 == 0 && t < x.n_token) {
                x.y[((seq * x.n_token + t) * x.n_head + h) * D + line + lane / 2 % 2] = sum;
            }
        }
    }
#pragma unroll
    for (int l = 0; l < 2; l++) {
#pragma unroll
        for (int i = 0; i < E; i++) {
            x.states[base + (line + l) * line_step + (i / 4 * 64 + lane * 4 + i % 4) * element_step] = state[l][i];
        }
    }
}

#define RECUR_LINES(name, op) \
    extern "C" __global__ void __launch_bounds__(LINES_THREADS) name##_64(const __grid_constant__ struct gpu_recur_args g) { \
        recur_lines<64, op>(g); \
    } \
    extern "C" __global__ void __launch_bounds__(LINES_THREADS) name##_128(const __grid_constant__ struct gpu_recur_args g) { \
        recur_lines<128, op>(g); \
    }
RECUR_LINES(wkv6, GGML_OP_RWKV_WKV6)
RECUR_LINES(wkv7, GGML_OP_RWKV_WKV7)
RECUR_LINES(gla, GGML_OP_GATED_LINEAR_ATTN)
RECUR_LINES(delta, GGML_OP_GATED_DELTA_NET)

// ---- one thread per element ----

KERNEL solve_tri(const __grid_constant__ struct gpu_op_args g) {
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
KERNEL hc_comb(const __grid_constant__ struct gpu_op_args g) {
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

KERNEL hc_pre(const __grid_constant__ struct gpu_op_args g) {
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
KERNEL hc_post(const __grid_constant__ struct gpu_op_args g) {
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
KERNEL lightning_indexer(const __grid_constant__ struct gpu_op_args g) {
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
