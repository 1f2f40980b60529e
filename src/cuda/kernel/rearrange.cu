// SPDX-License-Identifier: MIT
// rearrange.cu: ops that move elements unchanged (place_any), keep a triangle, write or add a part, or compute elements from
// their index.

#include "cuda/kernel/common.cuh"
#include "gpu/kernel/rearrange.h"

DEV int64_t wrap(int64_t i, int64_t n) {
    const int64_t r = i % n;
    return r < 0 ? r + n : r;
}

// Returns the address of the source of element x; NULL: the element is zero.
DEV const char *source_of(const struct gpu_rearrange_args &g, at4 x) {
    switch (g.what) {
        case GGML_OP_REPEAT: return at_repeat(g.a, x);
        case GGML_OP_CONCAT: { // p[0]: dimension
            int64_t i[4] = {x.i0, x.i1, x.i2, x.i3};
            if (i[g.p[0]] < g.a.ne[g.p[0]]) {
                return at(g.a, x);
            }
            i[g.p[0]] -= g.a.ne[g.p[0]];
            return at(g.b, i[0], i[1], i[2], i[3]);
        }
        case GGML_OP_DIAG: return x.i0 == x.i1 ? at(g.a, x.i0, 0, x.i2, x.i3) : nullptr;
        case GGML_OP_PAD: // p: padding before the first element, per dimension
            x = {x.i0 - g.p[0], x.i1 - g.p[1], x.i2 - g.p[2], x.i3 - g.p[3]};
            return x.i0 >= 0 && x.i0 < g.a.ne[0] && x.i1 >= 0 && x.i1 < g.a.ne[1] && x.i2 >= 0 && x.i2 < g.a.ne[2] && x.i3 >= 0 &&
                           x.i3 < g.a.ne[3]
                       ? at(g.a, x)
                       : nullptr;
        case GGML_OP_ROLL:
            return at(g.a, wrap(x.i0 - g.p[0], g.a.ne[0]), wrap(x.i1 - g.p[1], g.a.ne[1]), wrap(x.i2 - g.p[2], g.a.ne[2]),
                wrap(x.i3 - g.p[3], g.a.ne[3]));
        case GGML_OP_PAD_REFLECT_1D: {
            int64_t i = x.i0 - g.p[0];
            if (i < 0) {
                i = -i;
            } else if (i >= g.a.ne[0]) {
                i = 2 * (g.a.ne[0] - 1) - i;
            }
            return at(g.a, i, x.i1, x.i2, x.i3);
        }
        case GGML_OP_WIN_PART: { // p[0]: windows along x; p[2]: side of a window
            const int64_t ix = x.i3 % g.p[0] * g.p[2] + x.i1, iy = x.i3 / g.p[0] * g.p[2] + x.i2;
            return ix < g.a.ne[1] && iy < g.a.ne[2] ? at(g.a, x.i0, ix, iy, 0) : nullptr;
        }
        case GGML_OP_WIN_UNPART: { // p[0]: side of a window; p[1]: windows along x
            return at(g.a, x.i0, x.i1 % g.p[0], x.i2 % g.p[0], x.i2 / g.p[0] * g.p[1] + x.i1 / g.p[0]);
        }
        default: // GET_REL_POS
            return at(g.a, x.i0, g.dst.ne[1] - 1 - x.i1 + x.i2, 0, 0);
    }
}

KERNEL place_any(const __grid_constant__ struct gpu_rearrange_args g) {
    dep_begin();
    for (int64_t i = thread_index(); i < g.n; i += thread_count()) {
        const at4 x = g.index.d0.d != 0 ? index_split(i, g.index) : index_split(i, g.dst.ne);
        const char *from = source_of(g, x);
        char *to = at(g.dst, x);
        switch (g.size) {
            case 4: *(uint32_t *) to = from != nullptr ? *(const uint32_t *) from : 0; break;
            case 2: *(uint16_t *) to = from != nullptr ? *(const uint16_t *) from : 0; break;
            case 8: *(uint64_t *) to = from != nullptr ? *(const uint64_t *) from : 0; break;
            default:
                for (int k = 0; k < g.size; k++) {
                    to[k] = from != nullptr ? from[k] : 0;
                }
        }
    }
}

KERNEL place_band(const __grid_constant__ struct gpu_band_args g) {
    dep_begin();
    for (int64_t i = thread_index(); i < g.n; i += thread_count()) {
        const at4 x = g.index.d0.d != 0 ? index_split(i, g.index) : index_split(i, g.dst.ne);
        const bool kept = x.i0 >= x.i1 + g.first && x.i0 < x.i1 + g.end;
        *(float *) at(g.dst, x) = kept ? *(const float *) at(g.a, x) : g.value;
    }
}

// The op driver refuses parts whose rows overlap, so no two threads write the same element.
KERNEL place_part(const __grid_constant__ struct gpu_part_args g) {
    dep_begin();
    for (int64_t i = thread_index(); i < g.n; i += thread_count()) {
        const at4 x = g.index.d0.d != 0 ? index_split(i, g.index) : index_split(i, g.b.ne);
        if (g.add) {
            *(float *) at(g.part, x) += *(const float *) at(g.b, x);
        } else {
            *(uint32_t *) at(g.part, x) = *(const uint32_t *) at(g.b, x);
        }
    }
}

// ADD_ID: adds the row of b that the index in c selects. ADD1: adds one number.
KERNEL place_add_id(const __grid_constant__ struct gpu_op_args g) {
    dep_begin();
    for (int64_t i = thread_index(); i < g.n; i += thread_count()) {
        const at4 x = g.index.d0.d != 0 ? index_split(i, g.index) : index_split(i, g.dst.ne);
        float v = load_number(at(g.a, x), g.a.type);
        if (g.what == GGML_OP_ADD1) {
            v += load_number(g.b.p, g.b.type);
        } else {
            const int32_t id = *(const int32_t *) at(g.c, x.i1, x.i2, 0, 0);
            v += id >= 0 && id < g.b.ne[1] ? load_number(at(g.b, x.i0, id, 0, 0), g.b.type) : 0.0f;
        }
        store_number(at(g.dst, x), g.dst.type, v);
    }
}

DEV float timestep(const struct gpu_op_args &g, int64_t i0, int64_t i1) {
    const int64_t half = g.dst.ne[0] / 2;
    if (i0 >= 2 * half) {
        return 0.0f;
    }
    const int64_t j = i0 < half ? i0 : i0 - half;
    const float freq = expf(-logf((float) g.p[1]) * (float) j / (float) half), t = *(const float *) (g.a.p + i1 * g.a.nb[0]);
    return i0 < half ? cosf(t * freq) : sinf(t * freq);
}

// ARANGE and TIMESTEP_EMBEDDING, whose elements depend on their index, and ADD_REL_POS.
KERNEL place_made(const __grid_constant__ struct gpu_op_args g) {
    dep_begin();
    for (int64_t i = thread_index(); i < g.n; i += thread_count()) {
        const at4 x = g.index.d0.d != 0 ? index_split(i, g.index) : index_split(i, g.dst.ne);
        float v;
        if (g.what == GGML_OP_ARANGE) {
            v = fmaf(g.f[2], (float) x.i0, g.f[0]);
        } else if (g.what == GGML_OP_TIMESTEP_EMBEDDING) {
            v = timestep(g, x.i0, x.i1);
        } else { // ADD_REL_POS: contiguous rows of w * w elements; b (pw) is indexed by x, c (ph) by y
            const int64_t w = g.b.ne[0], row = i / (w * w), at_row = i % (w * w);
            v = ((const float *) g.a.p)[i] + ((const float *) g.b.p)[row * w + at_row % w] +
                ((const float *) g.c.p)[row * w + at_row / w];
        }
        *(float *) at(g.dst, x) = v;
    }
}
