#version 450
// SPDX-License-Identifier: MIT
// rope.comp: RoPE, with one thread per pair of elements. The angle of pair i is position * step^i, computed by repeated
// multiplication as on the CPU: at positions above 100,000, other rounding would be visible. If row indices (numbers) are given,
// rows are written directly into a cache, in its type.
//KERNEL rope
//KERNEL rope_jobs
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "tensor.glsl"
#include "rope.h"

// A launch has one job, or several in a row (struct gpu_rope_jobs).
ARGS(gpu_rope_args)
#define job (args_at(push.args) + gl_WorkGroupID.y).value

shared float norm_parts[128];

int section_of(int at) {
    if (job.is_interleaved != 0) {
        const int which = at % 3;
        return at < 3 * job.sections[which] ? which : 3;
    }
    const int s0 = job.sections[0], s1 = job.sections[1], s2 = job.sections[2];
    return at < s0 ? 0 : at < s0 + s1 ? 1 : at < s0 + s1 + s2 ? 2 : 3;
}

// Returns the angle before scaling.
float angle_of(int i, int64_t token) {
    int n_steps = i, section = 0;
    if (job.is_multi != 0) {
        const int s0 = job.sections[0], s1 = job.sections[1], s2 = job.sections[2];
        const int at = i % (s0 + s1 + s2 + job.sections[3]);
        section = section_of(at);
        // The powers of step restart in each section, except in a section with the same start as an earlier, empty one.
        if (job.is_vision != 0) {
            const int starts[4] = int[4](0, s0, s0 + s1, s0 + s1 + s2);
            const int begin = starts[section];
            bool is_first = true;
            for (int j = 0; j < section; j++) {
                is_first = is_first && starts[j] != begin;
            }
            n_steps = is_first ? at - begin : i;
        }
    }
    precise float theta = float(load_i32(job.pos + uint64_t((token + section * job.a.ne[2]) * job.pos_nb)));
    const float factor = job.step;
    for (int k = 0; k < n_steps; k++) {
        theta *= factor;
    }
    return theta;
}

vec2 cos_sin_at(int i, int64_t token) {
    const float theta = angle_of(i, token);
    const float plain = job.factors != 0 ? theta / load_f32(job.factors + uint64_t(i * job.factors_nb)) : theta;
    const float scaled = job.freq_scale * plain;
    float angle = scaled;
    if (job.ext_factor != 0.0) {
        const float y = (float(i) - job.ramp[0]) / max(0.001, job.ramp[1] - job.ramp[0]);
        const float mixed = (1.0 - min(1.0, max(0.0, y))) * job.ext_factor;
        angle = scaled * (1.0 - mixed) + plain * mixed;
    }
    const vec2 cs = cos_sin_of(angle);
    return vec2(cs.x * job.magnitude, cs.y * job.magnitude * job.sin_sign);
}

void main() {
    const int64_t n_rows = job.n_rows;
    const uint x = gl_LocalInvocationID.x, y = gl_LocalInvocationID.y, row_in_block = y * gl_WorkGroupSize.x;
    const bool has_norm = job.norm != 0;
    const int64_t step = int64_t(push.grid.x) * gl_WorkGroupSize.y;
    // All threads of the workgroup take the same number of turns, because of the barrier.
    for (int64_t first = int64_t(gl_WorkGroupID.x) * gl_WorkGroupSize.y; first < n_rows; first += step) {
        const int64_t ir = first + y;
        const bool is_row = ir < n_rows;
        const at4 r = row_of(job.a, is_row ? ir : 0);
        const uint64_t from = at_element(job.a, r);
        uint64_t to = 0;
        if (is_row) {
            if (job.numbers != 0) { // the heads of a token are contiguous in a row of the cache
                const uint64_t p = job.numbers + uint64_t(r.i2 * job.numbers_nb);
                const int64_t number = job.numbers_are_64 != 0 ? load_i64(p) : int64_t(load_i32(p));
                if (number >= 0 && number < job.to_ne1) {
                    to = job.dst.p + uint64_t(number * job.to_nb1 + r.i1 * job.a.ne[0] * job.dst.nb[0]);
                }
            } else {
                to = at_element(job.dst, r);
            }
        }
        float inverse = 1.0;
        if (has_norm) { // uniform over the workgroup
            float s = 0.0;
            for (int64_t i = x; i < job.a.ne[0] && is_row; i += gl_WorkGroupSize.x) {
                const float v = load_f32(from + uint64_t(i * job.a.nb[0]));
                s += v * v;
            }
            barrier();
            norm_parts[row_in_block + x] = s;
            barrier();
            float sum = 0.0;
            for (uint i = 0u; i < gl_WorkGroupSize.x; i++) {
                sum += norm_parts[row_in_block + i];
            }
            inverse = 1.0 / sqrt(sum / float(job.a.ne[0]) + job.eps);
        }
        if (to == 0) {
            continue;
        }
        for (int i = int(x); i < job.n_pairs; i += int(gl_WorkGroupSize.x)) {
            const vec2 cs = cos_sin_at(i, r.i2);
            const int64_t j = job.n_offs + (job.is_halves != 0 ? i : 2 * i), k = j + job.n_apart;
            float a = load_number(from + uint64_t(j * job.a.nb[0]), job.a.type);
            float b = load_number(from + uint64_t(k * job.a.nb[0]), job.a.type);
            if (has_norm) {
                a *= inverse * load_f32(job.norm + uint64_t(j * 4));
                b *= inverse * load_f32(job.norm + uint64_t(k * 4));
            }
            store_number(to + uint64_t(j * job.dst.nb[0]), job.dst.type, a * cs.x - b * cs.y);
            store_number(to + uint64_t(k * job.dst.nb[0]), job.dst.type, a * cs.y + b * cs.x);
        }
        const int64_t n_left = job.a.ne[0] - 2 * job.n_pairs;
        for (int64_t i = x; i < n_left; i += gl_WorkGroupSize.x) {
            const int64_t j = i < job.n_offs ? i : i + 2 * job.n_pairs;
            store_number(to + uint64_t(j * job.dst.nb[0]), job.dst.type,
                load_number(from + uint64_t(j * job.a.nb[0]), job.a.type));
        }
    }
}
