// SPDX-License-Identifier: MIT
// rope.cu: RoPE, with one thread per pair of elements. The angle of pair i is position * step^i, computed by repeated
// multiplication as on the CPU: at positions above 100,000, other rounding would be visible. If row indices (numbers) are given,
// rows are written directly into a cache, in its type.

#include "cuda/kernel/common.cuh"
#include "gpu/kernel/rope.h"

DEV int section_of(const struct gpu_rope_args &g, int at) {
    const int32_t *s = g.sections;
    if (g.is_interleaved) {
        const int which = at % 3;
        return at < 3 * s[which] ? which : 3;
    }
    return at < s[0] ? 0 : at < s[0] + s[1] ? 1 : at < s[0] + s[1] + s[2] ? 2 : 3;
}

// Returns the angle before scaling.
DEV float angle_of(const struct gpu_rope_args &g, int i, int64_t token) {
    int n_steps = i, section = 0;
    if (g.is_multi) {
        const int32_t *s = g.sections;
        const int round = s[0] + s[1] + s[2] + s[3], at = i % round;
        section = section_of(g, at);
        // The powers of step restart in each section, except in a section with the same start as an earlier, empty one.
        if (g.is_vision) {
            const int starts[4] = {0, s[0], s[0] + s[1], s[0] + s[1] + s[2]};
            const int begin = starts[section];
            bool is_first = true;
            for (int j = 0; j < section; j++) {
                is_first = is_first && starts[j] != begin;
            }
            n_steps = is_first ? at - begin : i;
        }
    }
    float theta = (float) *(const int32_t *) (g.pos + (token + section * g.a.ne[2]) * g.pos_nb);
    for (int k = 0; k < n_steps; k++) {
        theta *= g.step;
    }
    return theta;
}

DEV float2 cos_sin(const struct gpu_rope_args &g, int i, int64_t token) {
    const float theta = angle_of(g, i, token);
    const float plain = g.factors != nullptr ? theta / *(const float *) (g.factors + i * g.factors_nb) : theta;
    const float scaled = g.freq_scale * plain;
    float angle = scaled;
    if (g.ext_factor != 0.0f) {
        const float y = ((float) i - g.ramp[0]) / fmaxf(0.001f, g.ramp[1] - g.ramp[0]);
        const float mix = (1.0f - fminf(1.0f, fmaxf(0.0f, y))) * g.ext_factor;
        angle = scaled * (1.0f - mix) + plain * mix;
    }
    float s, c;
    sincosf(angle, &s, &c);
    return make_float2(c * g.magnitude, s * g.magnitude * g.sin_sign);
}

// Row ir of a job. to: NULL if the row is not written.
struct rope_row {
    const char *from;
    char *to;
    int64_t token;
};

DEV rope_row row_at(const struct gpu_rope_args &g, int64_t ir) {
    const uint32_t rest = (uint32_t) ir / (uint32_t) g.a.ne[1]; // n_rows is less than 2^31
    const int64_t i1 = (uint32_t) ir % (uint32_t) g.a.ne[1], i2 = rest % (uint32_t) g.a.ne[2], i3 = rest / (uint32_t) g.a.ne[2];
    rope_row row = {at(g.a, 0, i1, i2, i3), at(g.dst, 0, i1, i2, i3), i2};
    if (g.numbers != nullptr) { // the heads of a token are contiguous in a row of the cache
        const char *p = g.numbers + i2 * g.numbers_nb;
        const int64_t number = g.numbers_are_64 ? *(const int64_t *) p : *(const int32_t *) p;
        row.to = nullptr;
        if (number >= 0 && number < g.to_ne1) {
            row.to = g.dst.p + number * g.to_nb1 + i1 * g.a.ne[0] * g.dst.nb[0];
        }
    }
    return row;
}

// Rows with a norm, one warp per row.
DEV void rope_norm_rows(const struct gpu_rope_args &g) {
    enum { PAIRS = GPU_ROPE_NORM_MAX / 2 / 32 }; // per lane
    bool has_waited = g.is_early == 0;
    dep_launch();
    if (has_waited) {
        dep_wait();
    }
    for (int64_t ir = (int64_t) blockIdx.x * blockDim.y + threadIdx.y; ir < g.n_rows; ir += (int64_t) gridDim.x * blockDim.y) {
        const rope_row row = row_at(g, ir);
        float2 cs[PAIRS], v[PAIRS];
#pragma unroll
        for (int p = 0; p < PAIRS; p++) {
            const int i = threadIdx.x + 32 * p;
            cs[p] = i < g.n_pairs ? cos_sin(g, i, row.token) : make_float2(0.0f, 0.0f);
        }
        if (!has_waited) {
            dep_wait();
            has_waited = true;
        }
        float sum = 0.0f;
#pragma unroll
        for (int p = 0; p < PAIRS; p++) {
            const int i = threadIdx.x + 32 * p;
            const int64_t j = g.is_halves ? i : 2 * i, k = j + g.n_apart;
            v[p] = make_float2(0.0f, 0.0f);
            if (i < g.n_pairs) {
                v[p] = make_float2(*(const float *) (row.from + j * g.a.nb[0]), *(const float *) (row.from + k * g.a.nb[0]));
            }
            sum += v[p].x * v[p].x + v[p].y * v[p].y;
        }
        const float inverse = 1.0f / sqrtf(warp_sum(sum) / (float) g.a.ne[0] + g.eps);
#pragma unroll
        for (int p = 0; p < PAIRS; p++) {
            const int i = threadIdx.x + 32 * p;
            const int64_t j = g.is_halves ? i : 2 * i, k = j + g.n_apart;
            if (i < g.n_pairs && row.to != nullptr) {
                const float a = v[p].x * inverse * g.norm[j], b = v[p].y * inverse * g.norm[k];
                store_number(row.to + j * g.dst.nb[0], g.dst.type, a * cs[p].x - b * cs[p].y);
                store_number(row.to + k * g.dst.nb[0], g.dst.type, a * cs[p].y + b * cs[p].x);
            }
        }
    }
    if (!has_waited) { // must not end before the previous kernels: the next kernel waits only for this kernel
        dep_wait();
    }
}

DEV void rope_rows(const struct gpu_rope_args &g) {
    const int64_t ne0 = g.a.ne[0];
    bool has_waited = g.is_early == 0;
    dep_launch();
    if (has_waited) {
        dep_wait();
    }
    for (int64_t ir = (int64_t) blockIdx.x * blockDim.y + threadIdx.y; ir < g.n_rows; ir += (int64_t) gridDim.x * blockDim.y) {
        const rope_row row = row_at(g, ir);
        const char *x = row.from;
        char *y = row.to;
        if (y == nullptr) {
            continue;
        }
        for (int i = threadIdx.x; i < g.n_pairs; i += blockDim.x) {
            const float2 cs = cos_sin(g, i, row.token);
            const int64_t j = g.n_offs + (g.is_halves ? i : 2 * i), k = j + g.n_apart;
            if (!has_waited) {
                dep_wait();
                has_waited = true;
            }
            const float a = load_number(x + j * g.a.nb[0], g.a.type), b = load_number(x + k * g.a.nb[0], g.a.type);
            store_number(y + j * g.dst.nb[0], g.dst.type, a * cs.x - b * cs.y);
            store_number(y + k * g.dst.nb[0], g.dst.type, a * cs.y + b * cs.x);
        }
        const int64_t n_left = ne0 - 2 * g.n_pairs;
        if (!has_waited) {
            dep_wait();
            has_waited = true;
        }
        for (int64_t i = threadIdx.x; i < n_left; i += blockDim.x) {
            const int64_t j = i < g.n_offs ? i : i + 2 * g.n_pairs;
            store_number(y + j * g.dst.nb[0], g.dst.type, load_number(x + j * g.a.nb[0], g.a.type));
        }
    }
    if (!has_waited) { // must not end before the previous kernels: the next kernel waits only for this kernel
        dep_wait();
    }
}

KERNEL rope(const __grid_constant__ struct gpu_rope_args g) {
    rope_rows(g);
}

KERNEL rope_jobs(const __grid_constant__ struct gpu_rope_jobs g) {
    const struct gpu_rope_args &job = g.job[blockIdx.y];
    if (job.norm != nullptr) {
        rope_norm_rows(job);
    } else {
        rope_rows(job);
    }
}
