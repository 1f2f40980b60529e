#version 450
// SPDX-License-Identifier: MIT
// rows.comp: reads rows of any type by index; writes rows by index into a KV cache; copies between layouts and types.
//KERNEL rows_get -DALL_TYPES
//KERNEL rows_set
//KERNEL rows_set_blocks -DQUANTIZES
//KERNEL copy_as_is
//KERNEL copy_convert
//KERNEL copy_widen -DALL_TYPES
//KERNEL copy_narrow -DALL_TYPES -DQUANTIZES
//KERNEL copy_words
//KERNEL copy_bytes
//KERNEL copy_transpose_4
//KERNEL copy_transpose_2
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "tensor.glsl"
#include "rows.h"
#if defined(ALL_TYPES) || defined(QUANTIZES)
#    include "formats.glsl"
#endif
#ifdef QUANTIZES
#    include "quantize.glsl"
#endif

void move(uint64_t to, uint64_t from, int size) {
    switch (size) {
        case 1: store_u8(to, load_u8(from)); break;
        case 2: store_u16(to, load_u16(from)); break;
        case 4: store_u32(to, load_u32(from)); break;
        case 8: store_u64(to, load_u64(from)); break;
        default:
            for (int i = 0; i < size; i++) {
                store_u8(to + i, load_u8(from + i));
            }
    }
}

#define number_of(v, i0, i1, i2) \
    ((v).type == GGML_TYPE_I64 ? load_i64(at_indices(v, i0, i1, i2, 0)) : int64_t(load_i32(at_indices(v, i0, i1, i2, 0))))

#ifdef KERNEL_rows_get
ARGS(gpu_rows_args)
void main() {
    for (int64_t ir = gl_WorkGroupID.x; ir < g.n_rows; ir += push.grid.x) {
        const at4 r = row_of(g.dst, ir);
        const int64_t number = number_of(g.numbers, r.i1, r.i2, r.i3);
        const bool is_there = number >= 0 && number < g.a.ne[1];
        const uint64_t from = at_indices(g.a, 0, is_there ? number : 0, r.i2, r.i3), to = at_element(g.dst, r);
        const bool plain = g.a.type == GGML_TYPE_F32 || g.a.type == GGML_TYPE_F16 || g.a.type == GGML_TYPE_BF16;
        for (int64_t i = int64_t(gl_WorkGroupID.y) * block_dim() + thread_x(); i < g.dst.ne[0];
             i += int64_t(push.grid.y) * block_dim()) {
            const uint64_t at = to + uint64_t(i * g.dst.nb[0]), source = from + uint64_t(i * g.a.nb[0]);
            if (g.size != 0 && is_there) {
                move(at, source, g.size);
            } else if (g.size != 0) {
                for (int k = 0; k < g.size; k++) {
                    store_u8(at + k, 0u);
                }
            } else if (!is_there) {
                store_f32(at, 0.0);
            } else {
                store_f32(at, plain ? load_number(source, g.a.type) : row_element(from, g.a.type, i));
            }
        }
    }
}
#endif
#ifdef KERNEL_rows_set
ARGS(gpu_rows_args)
// dst is f32, f16, bf16, or has the type of a.
void main() {
    for (int64_t ir = gl_WorkGroupID.x; ir < g.n_rows; ir += push.grid.x) {
        const at4 r = row_of(g.a, ir);
        const int64_t number = number_of(g.numbers, r.i1, r.i2 % g.numbers.ne[1], r.i3 % g.numbers.ne[2]);
        if (number < 0 || number >= g.dst.ne[1]) {
            continue;
        }
        const uint64_t from = at_element(g.a, r), to = at_indices(g.dst, 0, number, r.i2, r.i3);
        for (int64_t i = int64_t(gl_WorkGroupID.y) * block_dim() + thread_x(); i < g.a.ne[0];
             i += int64_t(push.grid.y) * block_dim()) {
            const uint64_t at = to + uint64_t(i * g.dst.nb[0]), source = from + uint64_t(i * g.a.nb[0]);
            if (g.size != 0) {
                move(at, source, g.size);
            } else {
                store_number(at, g.dst.type, load_number(source, g.a.type));
            }
        }
    }
}
#endif
#ifdef KERNEL_rows_set_blocks
ARGS(gpu_rows_args)
// dst is quantised, in blocks of 32.
void main() {
    const int64_t n_blocks = g.a.ne[0] / 32;
    for (int64_t ib = thread_index(); ib < n_blocks * g.n_rows; ib += thread_count()) {
        const int64_t i0 = ib % n_blocks * 32;
        const at4 r = row_of(g.a, ib / n_blocks);
        const int64_t number = number_of(g.numbers, r.i1, r.i2 % g.numbers.ne[1], r.i3 % g.numbers.ne[2]);
        if (number < 0 || number >= g.dst.ne[1]) {
            continue;
        }
        const uint64_t from = at_indices(g.a, i0, r.i1, r.i2, r.i3);
        for (int j = 0; j < 32; j++) {
            values[j] = load_number(from + uint64_t(j * g.a.nb[0]), g.a.type);
        }
        row_quantize(at_indices(g.dst, 0, number, r.i2, r.i3), g.dst.type, i0);
    }
}
#endif

// ---- copies ----

#ifdef KERNEL_copy_as_is
ARGS(gpu_copy_args)
void main() {
    for (int64_t i = thread_index(); i < g.n; i += thread_count()) {
        const at4 to = index_split(i, g.dst_index, g.dst), from = index_split(i, g.a_index, g.a);
        move(at_element(g.dst, to), at_element(g.a, from), g.size);
    }
}
#endif
#ifdef KERNEL_copy_convert
ARGS(gpu_copy_args)
void main() {
    for (int64_t i = thread_index(); i < g.n; i += thread_count()) {
        const at4 to = index_split(i, g.dst_index, g.dst), from = index_split(i, g.a_index, g.a);
        store_number(at_element(g.dst, to), g.dst.type, load_number(at_element(g.a, from), g.a.type));
    }
}
#endif
#ifdef KERNEL_copy_widen
ARGS(gpu_copy_args)
void main() {
    for (int64_t i = thread_index(); i < g.n; i += thread_count()) {
        const at4 to = index_split(i, g.dst_index, g.dst), x = index_split(i, g.a_index, g.a);
        const float v = row_element(at_indices(g.a, 0, x.i1, x.i2, x.i3), g.a.type, x.i0);
        store_number(at_element(g.dst, to), g.dst.type, v);
    }
}
#endif
#ifdef KERNEL_copy_narrow
ARGS(gpu_copy_args)
// Quantises into blocks of 32, from any type. n counts blocks. A block of dst may come from several rows of a.
void main() {
    for (int64_t ib = thread_index(); ib < g.n; ib += thread_count()) {
        for (int j = 0; j < 32; j++) {
            const at4 x = index_split(ib * 32 + j, g.a_index, g.a);
            float v;
            if (g.block == 1) {
                v = load_number(at_element(g.a, x), g.a.type);
            } else {
                v = row_element(at_indices(g.a, 0, x.i1, x.i2, x.i3), g.a.type, x.i0);
            }
            if (g.b.p != 0) {
                v += load_number(at_repeat(g.b, x), g.b.type);
            }
            values[j] = v;
        }
        const at4 to = index_split(ib * 32, g.dst_index, g.dst);
        row_quantize(at_indices(g.dst, 0, to.i1, to.i2, to.i3), g.dst.type, to.i0);
    }
}
#endif
#ifdef KERNEL_copy_words
ARGS(gpu_copy_args)
// Copies n contiguous words of 16 bytes.
void main() {
    for (int64_t i = thread_index(); i < g.n; i += thread_count()) {
        at_u32x4(g.dst.p + uint64_t(i * 16)).v = at_u32x4(g.a.p + uint64_t(i * 16)).v;
    }
}
#endif
#ifdef KERNEL_copy_bytes
struct copy_bytes_args {
    uint64_t to, from, size;
};
ARGS(copy_bytes_args)
void main() {
    const bool has_words = ((g.to | g.from) & 3) == 0;
    const int64_t n_words = has_words ? int64_t(g.size / 4) : 0;
    for (int64_t i = thread_index(); i < n_words; i += thread_count()) {
        store_u32(g.to + uint64_t(i * 4), load_u32(g.from + uint64_t(i * 4)));
    }
    for (int64_t i = n_words * 4 + thread_index(); i < int64_t(g.size); i += thread_count()) {
        store_u8(g.to + uint64_t(i), load_u8(g.from + uint64_t(i)));
    }
}
#endif
#if defined(KERNEL_copy_transpose_4) || defined(KERNEL_copy_transpose_2)
ARGS(gpu_copy_args)
// Transposes squares of 32 x 32 elements of 2 or 4 bytes. a is contiguous along axis 1, dst along axis 0.
#    ifdef KERNEL_copy_transpose_4
#        define LOAD load_u32
#        define STORE store_u32
#    else
#        define LOAD load_u16
#        define STORE store_u16
#    endif
shared uint square[32][33];
void main() {
    const int64_t i0 = int64_t(gl_WorkGroupID.x) * 32, i1 = int64_t(gl_WorkGroupID.y) * 32;
    const uint x = gl_LocalInvocationID.x;
    for (int64_t iz = gl_WorkGroupID.z; iz < g.n; iz += push.grid.z) {
        const int64_t i2 = iz % g.dst.ne[2], i3 = iz / g.dst.ne[2];
        barrier();
        for (uint k = gl_LocalInvocationID.y; k < 32u; k += 8u) {
            if (i0 + k < g.dst.ne[0] && i1 + x < g.dst.ne[1]) {
                square[k][x] = LOAD(at_indices(g.a, i0 + k, i1 + x, i2, i3));
            }
        }
        barrier();
        for (uint k = gl_LocalInvocationID.y; k < 32u; k += 8u) {
            if (i1 + k < g.dst.ne[1] && i0 + x < g.dst.ne[0]) {
                STORE(at_indices(g.dst, i0 + x, i1 + k, i2, i3), square[x][k]);
            }
        }
    }
}
#endif
