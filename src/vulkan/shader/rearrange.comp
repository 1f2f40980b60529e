#version 450
// SPDX-License-Identifier: MIT
// rearrange.comp: ops that move elements unchanged (place_any), keep a triangle, write or add a part, or compute elements from
// their index.
//KERNEL place_any
//KERNEL place_band
//KERNEL place_part
//KERNEL place_add_id
//KERNEL place_made
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "tensor.glsl"
#include "rearrange.h"

int64_t wrap(int64_t i, int64_t n) { // GLSL does not define i % n for negative numbers
    return i >= 0 ? i % n : n - 1 - (-1 - i) % n;
}

#ifdef KERNEL_place_any
ARGS(gpu_rearrange_args)

bool is_inside(at4 x) {
    return x.i0 >= 0 && x.i0 < g.a.ne[0] && x.i1 >= 0 && x.i1 < g.a.ne[1] && x.i2 >= 0 && x.i2 < g.a.ne[2] && x.i3 >= 0 &&
           x.i3 < g.a.ne[3];
}

// Returns the address of the source of element x; 0: the element is zero.
uint64_t source_of(at4 x) {
    switch (g.what) {
        case GGML_OP_REPEAT: return at_repeat(g.a, x);
        case GGML_OP_CONCAT: { // p[0]: dimension
            const int d = g.p[0];
            const int64_t n = g.a.ne[d], i = d == 0 ? x.i0 : d == 1 ? x.i1 : d == 2 ? x.i2 : x.i3;
            if (i < n) {
                return at_element(g.a, x);
            }
            const at4 y = at4(d == 0 ? i - n : x.i0, d == 1 ? i - n : x.i1, d == 2 ? i - n : x.i2, d == 3 ? i - n : x.i3);
            return at_element(g.b, y);
        }
        case GGML_OP_DIAG: return x.i0 == x.i1 ? at_indices(g.a, x.i0, 0, x.i2, x.i3) : 0;
        case GGML_OP_PAD: { // p: padding before the first element, per dimension
            const at4 y = at4(x.i0 - g.p[0], x.i1 - g.p[1], x.i2 - g.p[2], x.i3 - g.p[3]);
            return is_inside(y) ? at_element(g.a, y) : 0;
        }
        case GGML_OP_ROLL: {
            const at4 y = at4(wrap(x.i0 - g.p[0], g.a.ne[0]), wrap(x.i1 - g.p[1], g.a.ne[1]), wrap(x.i2 - g.p[2], g.a.ne[2]),
                wrap(x.i3 - g.p[3], g.a.ne[3]));
            return at_element(g.a, y);
        }
        case GGML_OP_PAD_REFLECT_1D: {
            int64_t i = x.i0 - g.p[0];
            if (i < 0) {
                i = -i;
            } else if (i >= g.a.ne[0]) {
                i = 2 * (g.a.ne[0] - 1) - i;
            }
            return at_indices(g.a, i, x.i1, x.i2, x.i3);
        }
        case GGML_OP_WIN_PART: { // p[0]: windows along x; p[2]: side of a window
            const int64_t ix = x.i3 % g.p[0] * g.p[2] + x.i1, iy = x.i3 / g.p[0] * g.p[2] + x.i2;
            return ix < g.a.ne[1] && iy < g.a.ne[2] ? at_indices(g.a, x.i0, ix, iy, 0) : 0;
        }
        case GGML_OP_WIN_UNPART: // p[0]: side of a window; p[1]: windows along x
            return at_indices(g.a, x.i0, x.i1 % g.p[0], x.i2 % g.p[0], x.i2 / g.p[0] * g.p[1] + x.i1 / g.p[0]);
        default: // GET_REL_POS
            return at_indices(g.a, x.i0, g.dst.ne[1] - 1 - x.i1 + x.i2, 0, 0);
    }
}

void main() {
    for (int64_t i = thread_index(); i < g.n; i += thread_count()) {
        const at4 x = index_split(i, g.index, g.dst);
        const uint64_t from = source_of(x), to = at_element(g.dst, x);
        switch (g.size) {
            case 4: store_u32(to, from != 0 ? load_u32(from) : 0u); break;
            case 2: store_u16(to, from != 0 ? load_u16(from) : 0u); break;
            case 8: store_u64(to, from != 0 ? load_u64(from) : uvec2(0u)); break;
            default:
                for (int k = 0; k < g.size; k++) {
                    store_u8(to + k, from != 0 ? load_u8(from + k) : 0u);
                }
        }
    }
}
#endif
#ifdef KERNEL_place_band
ARGS(gpu_band_args)
void main() {
    for (int64_t i = thread_index(); i < g.n; i += thread_count()) {
        const at4 x = index_split(i, g.index, g.dst);
        const bool kept = x.i0 >= x.i1 + g.first && x.i0 < x.i1 + g.end;
        store_u32(at_element(g.dst, x), kept ? load_u32(at_element(g.a, x)) : floatBitsToUint(g.value));
    }
}
#endif
#ifdef KERNEL_place_part
ARGS(gpu_part_args)
// The op driver refuses parts whose rows overlap, so no two threads write the same element.
void main() {
    for (int64_t i = thread_index(); i < g.n; i += thread_count()) {
        const at4 x = index_split(i, g.index, g.b);
        const uint64_t to = at_element(g.part, x), from = at_element(g.b, x);
        if (g.add != 0) {
            store_f32(to, load_f32(to) + load_f32(from));
        } else {
            store_u32(to, load_u32(from));
        }
    }
}
#endif
#ifdef KERNEL_place_add_id
ARGS(gpu_op_args)
// ADD_ID: adds the row of b that the index in c selects. ADD1: adds one number.
void main() {
    for (int64_t i = thread_index(); i < g.n; i += thread_count()) {
        const at4 x = index_split(i, g.index, g.dst);
        float v = load_number(at_element(g.a, x), g.a.type);
        if (g.what == GGML_OP_ADD1) {
            v += load_number(g.b.p, g.b.type);
        } else {
            const int id = load_i32(at_indices(g.c, x.i1, x.i2, 0, 0));
            if (id >= 0 && id < g.b.ne[1]) {
                v += load_number(at_indices(g.b, x.i0, id, 0, 0), g.b.type);
            }
        }
        store_number(at_element(g.dst, x), g.dst.type, v);
    }
}
#endif
#ifdef KERNEL_place_made
ARGS(gpu_op_args)
float timestep(int64_t i0, int64_t i1) {
    const int64_t n_half = g.dst.ne[0] / 2;
    if (i0 >= 2 * n_half) {
        return 0.0;
    }
    const int64_t j = i0 < n_half ? i0 : i0 - n_half;
    const float freq = exp_of(-log_of(float(g.p[1])) * float(j) / float(n_half));
    const vec2 cs = cos_sin_of(load_f32(g.a.p + uint64_t(i1 * g.a.nb[0])) * freq);
    return i0 < n_half ? cs.x : cs.y;
}
// ARANGE and TIMESTEP_EMBEDDING, whose elements depend on their index, and ADD_REL_POS.
void main() {
    for (int64_t i = thread_index(); i < g.n; i += thread_count()) {
        const at4 x = index_split(i, g.index, g.dst);
        float v;
        if (g.what == GGML_OP_ARANGE) {
            v = fused(g.f[2], float(x.i0), g.f[0]);
        } else if (g.what == GGML_OP_TIMESTEP_EMBEDDING) {
            v = timestep(x.i0, x.i1);
        } else { // ADD_REL_POS: contiguous rows of w * w elements; b (pw) is indexed by x, c (ph) by y
            const int64_t w = g.b.ne[0], row = i / (w * w), at_row = i % (w * w);
            v = load_f32(g.a.p + uint64_t(i * 4)) + load_f32(g.b.p + uint64_t((row * w + at_row % w) * 4)) +
                load_f32(g.c.p + uint64_t((row * w + at_row / w) * 4));
        }
        store_f32(at_element(g.dst, x), v);
    }
}
#endif
