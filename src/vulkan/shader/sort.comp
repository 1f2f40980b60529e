#version 450
// SPDX-License-Identifier: MIT
// sort.comp: sorts the indices of each row by 64-bit keys, with a bitonic sorting network. Upper half of a key: the float as an
// unsigned integer of the same order. Lower half: the index, so that equal elements keep their order. Short rows are sorted in
// shared memory, longer rows in device memory with one launch per step.
//KERNEL sort_shared
//KERNEL sort_fill
//KERNEL sort_step
//KERNEL sort_store
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "tensor.glsl"
#include "reduce.h"

ARGS(gpu_sort_args)

// A key: x is the lower half, y the upper half.
uvec2 key_of(float f, int64_t i) {
    uint u = floatBitsToUint(f);
    if ((u & 0x7fffffffu) == 0u) {
        u = 0u; // -0 becomes 0
    }
    uint k = (u & 0x80000000u) != 0u ? ~u : u | 0x80000000u;
    if (is_nan(f)) {
        k = 0xffffffffu;
    }
    return uvec2(uint(i), g.down != 0 ? ~k : k);
}
bool is_greater(uvec2 a, uvec2 b) {
    return a.y > b.y || (a.y == b.y && a.x > b.x);
}
void store_index(int64_t ir, int64_t i, uvec2 key) {
    const int64_t to = g.swap != 0 && g.dst.ne[0] > 1 && i < 2 ? 1 - i : i;
    if (i < g.dst.ne[0]) {
        store_u32(at_element(g.dst, row_of(g.dst, ir)) + uint64_t(to * g.dst.nb[0]), key.x);
    }
}
uvec2 key_at(int64_t ir, int64_t i) {
    if (i >= g.a.ne[0]) {
        return uvec2(0xffffffffu);
    }
    return key_of(load_number(at_element(g.a, row_of(g.a, ir)) + uint64_t(i * g.a.nb[0]), g.a.type), i);
}

#ifdef KERNEL_sort_shared
shared uint keys[SHARED_WORDS]; // [n_pad][2]
void main() {
    const int64_t ir = int64_t(gl_WorkGroupID.x);
    const uint n = uint(g.n_pad);
    for (uint i = thread_x(); i < n; i += block_dim()) {
        const uvec2 k = key_at(ir, int64_t(i));
        keys[2u * i] = k.x;
        keys[2u * i + 1u] = k.y;
    }
    for (uint k = 2u; k <= n; k *= 2u) {
        for (uint j = k / 2u; j > 0u; j /= 2u) {
            barrier();
            for (uint i = thread_x(); i < n; i += block_dim()) {
                const uint o = i ^ j;
                if (o > i) {
                    const uvec2 x = uvec2(keys[2u * i], keys[2u * i + 1u]), y = uvec2(keys[2u * o], keys[2u * o + 1u]);
                    if (is_greater(x, y) == ((i & k) == 0u)) {
                        keys[2u * i] = y.x;
                        keys[2u * i + 1u] = y.y;
                        keys[2u * o] = x.x;
                        keys[2u * o + 1u] = x.y;
                    }
                }
            }
        }
    }
    barrier();
    for (uint i = thread_x(); i < uint(g.dst.ne[0]); i += block_dim()) {
        store_index(ir, int64_t(i), uvec2(keys[2u * i], keys[2u * i + 1u]));
    }
}
#endif
#ifdef KERNEL_sort_fill
void main() {
    for (int64_t i = thread_index(); i < g.n_rows * g.n_pad; i += thread_count()) {
        store_u64(g.keys + uint64_t(i * 8), key_at(i / g.n_pad, i % g.n_pad));
    }
}
#endif
#ifdef KERNEL_sort_step
void main() {
    for (int64_t i = thread_index(); i < g.n_rows * g.n_pad; i += thread_count()) {
        const int64_t at = i % g.n_pad, o = at ^ g.j;
        if (o > at) {
            const uint64_t row = g.keys + uint64_t(i / g.n_pad * g.n_pad * 8);
            const uvec2 x = load_u64(row + uint64_t(at * 8)), y = load_u64(row + uint64_t(o * 8));
            if (is_greater(x, y) == ((at & g.k) == 0)) {
                store_u64(row + uint64_t(at * 8), y);
                store_u64(row + uint64_t(o * 8), x);
            }
        }
    }
}
#endif
#ifdef KERNEL_sort_store
void main() {
    for (int64_t i = thread_index(); i < g.n_rows * g.dst.ne[0]; i += thread_count()) {
        const int64_t ir = i / g.dst.ne[0], j = i % g.dst.ne[0];
        store_index(ir, j, load_u64(g.keys + uint64_t((ir * g.n_pad + j) * 8)));
    }
}
#endif
