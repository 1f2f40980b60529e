// SPDX-License-Identifier: MIT
// ssm.cu: ops of state space models. SSM_SCAN computes h = exp(dt A) h + dt B x, y = C h per token. Threads keep the states h in
// registers over all tokens. scan_channels is for one rate per state (Mamba 1), scan_heads for one rate per head (Mamba 2),
// scan_any for all other sizes. SSM_CONV is a convolution over the last tokens.

#include "cuda/kernel/common.cuh"
#include "gpu/kernel/ssm.h"

#include <float.h>

#define PER_LANE 8 // scan_any: states of a row per lane, so at most 256

DEV float softplus(float v) {
    return v <= 20.0f ? log1pf(expf(v)) : v;
}
// A rate of -INFINITY becomes the largest finite rate, so that a step of 0 does not give NaN.
DEV float finite_rate(float v) {
    return v < -FLT_MAX ? -FLT_MAX : v;
}
DEV float exp2_approx(float v) {
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
    return r;
}

// ---- SSM_SCAN: one warp per row of a head ----

KERNEL scan_any(const __grid_constant__ struct gpu_scan_args g) {
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
        const float step = softplus(*(const float *) at(g.dt, h, t, seq, 0));
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
                    const int64_t to = (blockIdx.x * d_head + i) * d_state + at_;
                    g.states[before * slab + to] = s[k];
                    if (g.copy != nullptr && before == 0) {
                        g.copy[to] = s[k];
                    }
                }
            }
        }
    }
}

// ---- SSM_SCAN with one rate per state: four lanes per channel, four states per lane ----

#define LOADS (SCAN_CHANNELS * SCAN_CHUNK / 128)  // inputs and steps per thread and chunk
#define LOADS_BC (SCAN_STATES * SCAN_CHUNK / 128) // elements of B, and of C, per thread and chunk

// A chunk in registers, on the way from global to shared memory.
struct scan_loads {
    float dt[LOADS], x[LOADS], b[LOADS_BC], c[LOADS_BC];
    __device__ __forceinline__ void load(const struct gpu_scan_args &g, int64_t first, int64_t channel, int64_t seq) {
        const int64_t n_token = g.x.ne[2];
#pragma unroll
        for (int j = 0; j < LOADS; j++) {
            const int64_t t = first + threadIdx.x / SCAN_CHANNELS + j * (128 / SCAN_CHANNELS);
            const bool is_there = t < n_token && channel < g.x.ne[1];
            dt[j] = is_there ? *(const float *) at(g.dt, channel, t, seq, 0) : 0.0f;
            x[j] = is_there ? *(const float *) at(g.x, 0, channel, t, seq) : 0.0f;
        }
#pragma unroll
        for (int j = 0; j < LOADS_BC; j++) {
            const int64_t t = first + threadIdx.x / SCAN_STATES + j * (128 / SCAN_STATES);
            const int k = threadIdx.x % SCAN_STATES;
            b[j] = t < n_token ? *(const float *) at(g.b, k, 0, t, seq) : 0.0f;
            c[j] = t < n_token ? *(const float *) at(g.c, k, 0, t, seq) : 0.0f;
        }
    }
};

// Adds v[i] over the four lanes of a channel. Lane q receives the sum of v[q].
DEV float sum_of_four(const float *v, int q) {
    const bool upper = (q & 2) != 0, odd = (q & 1) != 0;
    const float a = (upper ? v[2] : v[0]) + __shfl_xor_sync(~0u, upper ? v[0] : v[2], 2);
    const float b = (upper ? v[3] : v[1]) + __shfl_xor_sync(~0u, upper ? v[1] : v[3], 2);
    return (odd ? b : a) + __shfl_xor_sync(~0u, odd ? a : b, 1);
}

// blockIdx.x: group of SCAN_CHANNELS channels; blockIdx.y: sequence. A channel is a head of one row.
extern "C" __global__ void __launch_bounds__(128) scan_channels(const __grid_constant__ struct gpu_scan_args g) {
    __shared__ float2 inputs[SCAN_CHUNK][SCAN_CHANNELS]; // step and x * step
    __shared__ float4 bs[SCAN_CHUNK][SCAN_STATES / 4], cs[SCAN_CHUNK][SCAN_STATES / 4];
    dep_begin();
    const int64_t n_head = g.x.ne[1], n_token = g.x.ne[2], seq = blockIdx.y, first_channel = (int64_t) blockIdx.x * SCAN_CHANNELS;
    const int q = threadIdx.x % 4, channel = threadIdx.x / 4; // states 4 q to 4 q + 3 of this channel of the block
    const int64_t h = first_channel + channel;
    const bool is_there = h < n_head;
    scan_loads next;
    next.load(g, 0, first_channel + threadIdx.x % SCAN_CHANNELS, seq);
    const int32_t id = g.ids[seq];
    float s[4], rate[4];
#pragma unroll
    for (int k = 0; k < 4; k++) {
        s[k] = is_there && id >= 0 && id < g.s.ne[3] ? *(const float *) at(g.s, 4 * q + k, 0, h, id) : 0.0f;
        rate[k] = is_there ? finite_rate(*(const float *) at(g.a, 4 * q + k, h, 0, 0) * 1.44269504f) : 0.0f; // for exp2
    }
    float *y = g.y + seq * n_token * n_head + h;
    for (int64_t first = 0; first < n_token; first += SCAN_CHUNK) {
        __syncthreads(); // all threads have finished the previous chunk
#pragma unroll
        for (int j = 0; j < LOADS; j++) {
            const int t = threadIdx.x / SCAN_CHANNELS + j * (128 / SCAN_CHANNELS);
            // Tokens after the last one have step 0, which does not change the state.
            const float step = first + t < n_token ? softplus(next.dt[j]) : 0.0f;
            inputs[t][threadIdx.x % SCAN_CHANNELS] = make_float2(step, next.x[j] * step);
        }
#pragma unroll
        for (int j = 0; j < LOADS_BC; j++) {
            ((float *) bs)[threadIdx.x + 128 * j] = next.b[j];
            ((float *) cs)[threadIdx.x + 128 * j] = next.c[j];
        }
        __syncthreads();
        if (first + SCAN_CHUNK < n_token) {
            next.load(g, first + SCAN_CHUNK, first_channel + threadIdx.x % SCAN_CHANNELS, seq);
        }
        const int n = n_token - first < SCAN_CHUNK ? (int) (n_token - first) : SCAN_CHUNK;
        for (int t = 0; t < n; t += 4) {
            float part[4];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const float2 in = inputs[t + j][channel];
                const float4 b = bs[t + j][q], c = cs[t + j][q];
                s[0] = s[0] * exp2_approx(in.x * rate[0]) + b.x * in.y;
                s[1] = s[1] * exp2_approx(in.x * rate[1]) + b.y * in.y;
                s[2] = s[2] * exp2_approx(in.x * rate[2]) + b.z * in.y;
                s[3] = s[3] * exp2_approx(in.x * rate[3]) + b.w * in.y;
                part[j] = s[0] * c.x + s[1] * c.y + (s[2] * c.z + s[3] * c.w);
            }
            const float sum = sum_of_four(part, q);
            if (is_there && t + q < n) {
                y[(first + t + q) * n_head] = sum;
            }
        }
    }
#pragma unroll
    for (int k = 0; k < 4; k++) {
        if (is_there) {
            const int64_t to = (seq * n_head + h) * SCAN_STATES + 4 * q + k;
            g.states[to] = s[k];
            if (g.copy != nullptr) {
                g.copy[to] = s[k];
            }
        }
    }
}

// ---- SSM_SCAN with one rate per head: 16 lanes per row, two rows and 4 N states of each per lane ----

DEV void copy_16_async(void *to, const void *from, bool is_there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((uint32_t) __cvta_generic_to_shared(to)), "l"(from),
                 "r"(is_there ? 16 : 0)
                 : "memory");
}
DEV void copies_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int N> DEV void copies_wait() { // waits for all groups but the last N
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// d_state is 64 N. blockIdx.x: head of a sequence; blockIdx.y: group of SCAN_ROWS rows.
template <int N> DEV void scan_heads(const struct gpu_scan_args &g) {
    enum { D = 64 * N, FOURS = SCAN_TOKENS * D / 4 }; // FOURS: float4 of B, and of C, per chunk
    extern __shared__ float4 bc[];                    // [2 chunks][B, C][token][D / 4]
    __shared__ float decays[2][SCAN_TOKENS];
    __shared__ float2 inputs[2][SCAN_TOKENS][SCAN_ROWS / 2]; // x * step, two rows
    dep_begin();
    const int64_t d_head = g.x.ne[0], n_head = g.x.ne[1], n_token = g.x.ne[2];
    const int64_t seq = blockIdx.x / n_head, h = blockIdx.x % n_head, group = h / (n_head / g.b.ne[1]);
    const int half = threadIdx.x / 16, lane = threadIdx.x % 16;
    const int64_t row = (int64_t) blockIdx.y * SCAN_ROWS + 2 * half;
    const float rate = finite_rate(*(const float *) at(g.a, 0, h, 0, 0));
    const int32_t id = g.ids[seq];
    const bool has_old = id >= 0 && id < g.s.ne[3];
    float s[2][4 * N];
#pragma unroll
    for (int r = 0; r < 2; r++) {
#pragma unroll
        for (int k = 0; k < 4 * N; k++) {
            const int n = k / 4 * 64 + lane * 4 + k % 4;
            s[r][k] = has_old && row + r < d_head ? *(const float *) at(g.s, n, row + r, h, id) : 0.0f;
        }
    }
    // Each thread loads two inputs of a chunk: token threadIdx.x / 8, rows 2 (threadIdx.x % 8) and the next. They are loaded two
    // chunks ahead, into registers. B and C are copied one chunk ahead.
    enum { PER_TOKEN = D / 4, STEP = 128 / PER_TOKEN }; // float4 per token; tokens that the block copies at a time
    const int my_token = threadIdx.x / 8, my_pair = threadIdx.x % 8, copy_token = threadIdx.x / PER_TOKEN;
    const int64_t my_row = (int64_t) blockIdx.y * SCAN_ROWS + 2 * my_pair;
    const char *b_from = at(g.b, threadIdx.x % PER_TOKEN * 4, group, copy_token, seq);
    const char *c_from = at(g.c, threadIdx.x % PER_TOKEN * 4, group, copy_token, seq);
    const char *dt_from = at(g.dt, h, my_token, seq, 0), *x_from = at(g.x, my_row, h, my_token, seq);
    float next_dt = 0.0f;
    float2 next_x = make_float2(0.0f, 0.0f);
    const auto load = [&](int64_t first) {
        if (first + my_token < n_token) {
            const char *from = x_from + first * g.x.nb[2];
            next_dt = *(const float *) (dt_from + first * g.dt.nb[1]);
            next_x.x = my_row < d_head ? *(const float *) from : 0.0f;
            next_x.y = my_row + 1 < d_head ? *(const float *) (from + g.x.nb[0]) : 0.0f;
        }
    };
    const auto stage = [&](int64_t first, int buffer) {
        float4 *to = bc + buffer * 2 * FOURS + threadIdx.x;
#pragma unroll
        for (int i = 0; i < FOURS / 128; i++) {
            const int64_t t = first + i * STEP;
            const bool is_there = t + copy_token < n_token;
            copy_16_async(to + 128 * i, b_from + (is_there ? t * g.b.nb[2] : 0), is_there);
            copy_16_async(to + FOURS + 128 * i, c_from + (is_there ? t * g.c.nb[2] : 0), is_there);
        }
        copies_commit();
        const bool is_there = first + my_token < n_token;
        const float step = is_there ? softplus(next_dt) : 0.0f;
        inputs[buffer][my_token][my_pair] = make_float2(is_there ? next_x.x * step : 0.0f, is_there ? next_x.y * step : 0.0f);
        if (my_pair == 0) {
            decays[buffer][my_token] = expf(step * rate);
        }
    };
    load(0);
    stage(0, 0);
    load(SCAN_TOKENS);
    int buffer = 0;
    for (int64_t first = 0; first < n_token; first += SCAN_TOKENS) {
        if (first + SCAN_TOKENS < n_token) {
            stage(first + SCAN_TOKENS, buffer ^ 1);
            load(first + 2 * SCAN_TOKENS);
            copies_wait<1>();
        } else {
            copies_wait<0>();
        }
        __syncthreads();
        const float4 *bs = bc + buffer * 2 * FOURS + lane, *cs = bs + FOURS;
        for (int t = 0; t < SCAN_TOKENS; t += 4) {
            float part[8]; // [token][row]
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const float decay = decays[buffer][t + j];
                const float2 in = inputs[buffer][t + j][half];
                part[2 * j] = part[2 * j + 1] = 0.0f;
#pragma unroll
                for (int k = 0; k < N; k++) {
                    const float4 b = bs[(t + j) * (D / 4) + 16 * k], c = cs[(t + j) * (D / 4) + 16 * k];
                    const float bv[4] = {b.x, b.y, b.z, b.w}, cv[4] = {c.x, c.y, c.z, c.w};
#pragma unroll
                    for (int e = 0; e < 4; e++) {
                        s[0][4 * k + e] = s[0][4 * k + e] * decay + bv[e] * in.x;
                        s[1][4 * k + e] = s[1][4 * k + e] * decay + bv[e] * in.y;
                        part[2 * j] += s[0][4 * k + e] * cv[e];
                        part[2 * j + 1] += s[1][4 * k + e] * cv[e];
                    }
                }
            }
            const float sum = sum_of_eight(part, lane);
            const int64_t token = first + t + lane / 4;
            const int r = lane / 2 % 2;
            if (lane % 2 == 0 && token < n_token && row + r < d_head) {
                g.y[((seq * n_token + token) * n_head + h) * d_head + row + r] = sum;
            }
        }
        __syncthreads(); // the next iteration overwrites this buffer
        buffer ^= 1;
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
#pragma unroll
        for (int k = 0; k < 4 * N; k++) {
            if (row + r < d_head) {
                const int64_t to = (blockIdx.x * d_head + row + r) * D + k / 4 * 64 + lane * 4 + k % 4;
                g.states[to] = s[r][k];
                if (g.copy != nullptr) {
                    g.copy[to] = s[r][k];
                }
            }
        }
    }
}

#define SCAN_HEADS(d, n) \
    extern "C" __global__ void __launch_bounds__(128) scan_heads_##d(const __grid_constant__ struct gpu_scan_args g) { \
        scan_heads<n>(g); \
    }
SCAN_HEADS(64, 1)
SCAN_HEADS(128, 2)
SCAN_HEADS(256, 4)

// ---- SSM_CONV ----

// One thread per element, for any d_conv.
KERNEL ssm_conv_any(const __grid_constant__ struct gpu_op_args g) {
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

// Each thread computes CONV_TOKENS tokens of one channel. blockIdx.x: channels; blockIdx.y: tokens; blockIdx.z: sequence.
template <int D> DEV void ssm_conv(const struct gpu_ssm_conv_args &g) {
    dep_begin();
    const int64_t c = (int64_t) blockIdx.x * CONV_THREADS + threadIdx.x, seq = blockIdx.z;
    const int64_t n_token = g.dst.ne[1], first = (int64_t) blockIdx.y * CONV_TOKENS;
    if (c >= g.dst.ne[0]) {
        return;
    }
    const int n_before = g.before.p != nullptr ? D - 1 : 0;
    const auto input = [&](int64_t i) {
        return *(const float *) (i < n_before ? at(g.before, i, c, seq, 0) : at(g.x, i - n_before, c, seq, 0));
    };
    float w[D], in[CONV_TOKENS + D - 1], last[D - 1];
#pragma unroll
    for (int j = 0; j < CONV_TOKENS + D - 1; j++) {
        in[j] = first + j < n_token + D - 1 ? input(first + j) : 0.0f;
    }
#pragma unroll
    for (int j = 0; j < D; j++) {
        w[j] = *(const float *) at(g.w, j, c, 0, 0);
    }
    const float bias = g.bias != nullptr ? g.bias[c] : 0.0f;
    // The thread that reads `before` of a channel also writes `kept`, because both may be the same memory.
    const bool keeps = g.kept != nullptr && first == 0;
#pragma unroll
    for (int j = 0; j < D - 1; j++) {
        last[j] = keeps ? input(n_token + j) : 0.0f;
    }
#pragma unroll
    for (int t = 0; t < CONV_TOKENS; t++) {
        if (first + t < n_token) {
            float sum = 0.0f;
#pragma unroll
            for (int j = 0; j < D; j++) {
                sum += in[t + j] * w[j];
            }
            sum += bias;
            *(float *) at(g.dst, c, first + t, seq, 0) = g.silu ? sum / (1.0f + expf(-sum)) : sum;
        }
    }
#pragma unroll
    for (int j = 0; j < D - 1; j++) {
        if (keeps) {
            g.kept[(seq * g.dst.ne[0] + c) * (D - 1) + j] = last[j];
        }
    }
}

#define SSM_CONV(d) \
    extern "C" __global__ void __launch_bounds__(CONV_THREADS) \
        ssm_conv_##d(const __grid_constant__ struct gpu_ssm_conv_args g) { \
        ssm_conv<d>(g); \
    }
SSM_CONV(2)
SSM_CONV(3)
SSM_CONV(4)

KERNEL ssm_gate(const __grid_constant__ struct gpu_ssm_gate_args g) {
    dep_begin();
    for (int64_t i = thread_index(); i < g.n; i += thread_count()) {
        const at4 x = g.index.d0.d != 0 ? index_split(i, g.index) : index_split(i, g.dst.ne);
        const float z = *(const float *) at(g.z, x);
        const float sum = *(const float *) at(g.y, x) + *(const float *) at(g.x, x) * *(const float *) at_repeat(g.d, x);
        *(float *) at(g.dst, x) = z / (1.0f + expf(-z)) * sum;
    }
}
