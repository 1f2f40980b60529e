// SPDX-License-Identifier: MIT
// sort.cu: sorts the indices of each row by 64-bit keys, with a bitonic sorting network. Upper half of a key: the float as an
// unsigned integer of the same order. Lower half: the index, so that equal elements keep their order. Rows of up to 4,096
// elements are sorted in shared memory, longer rows in device memory with one launch per step.

#include "cuda/kernel/common.cuh"
#include "gpu/kernel/reduce.h"

DEV uint64_t key_of(float f, int64_t i, bool down) {
    f += 0.0f; // -0 becomes 0
    const uint32_t u = __float_as_uint(f);
    uint32_t k = (u & 0x80000000u) != 0 ? ~u : u | 0x80000000u;
    if ((u & 0x7fffffffu) > 0x7f800000u) {
        k = 0xffffffffu; // NaN
    }
    return (uint64_t) (down ? ~k : k) << 32 | (uint64_t) (uint32_t) i;
}
DEV const char *row_at(const struct gpu_view &v, int64_t ir) {
    return at(v, 0, ir % v.ne[1], ir / v.ne[1] % v.ne[2], ir / (v.ne[1] * v.ne[2]));
}
DEV void store_index(const struct gpu_sort_args &g, int64_t ir, int64_t i, uint64_t key) {
    const int64_t to = g.swap && g.dst.ne[0] > 1 && i < 2 ? 1 - i : i;
    if (i < g.dst.ne[0]) {
        *(int32_t *) (row_at(g.dst, ir) + to * g.dst.nb[0]) = (int32_t) (uint32_t) key;
    }
}

KERNEL sort_shared(const __grid_constant__ struct gpu_sort_args g) {
    extern __shared__ uint64_t keys[];
    dep_begin();
    const int64_t ir = blockIdx.x, n = g.a.ne[0];
    const char *row = row_at(g.a, ir);
    for (int64_t i = threadIdx.x; i < g.n_pad; i += blockDim.x) {
        keys[i] = i < n ? key_of(load_number(row + i * g.a.nb[0], g.a.type), i, g.down) : ~(uint64_t) 0;
    }
    for (int k = 2; k <= g.n_pad; k *= 2) {
        for (int j = k / 2; j > 0; j /= 2) {
            __syncthreads();
            for (int i = threadIdx.x; i < g.n_pad; i += blockDim.x) {
                const int o = i ^ j;
                if (o > i) {
                    const uint64_t x = keys[i], y = keys[o];
                    if ((x > y) == ((i & k) == 0)) {
                        keys[i] = y, keys[o] = x;
                    }
                }
            }
        }
    }
    __syncthreads();
    for (int64_t i = threadIdx.x; i < g.dst.ne[0]; i += blockDim.x) {
        store_index(g, ir, i, keys[i]);
    }
}

KERNEL sort_fill(const __grid_constant__ struct gpu_sort_args g) {
    dep_begin();
    for (int64_t i = thread_index(); i < g.n_rows * g.n_pad; i += thread_count()) {
        const int64_t ir = i / g.n_pad, j = i % g.n_pad;
        g.keys[i] = j < g.a.ne[0] ? key_of(load_number(row_at(g.a, ir) + j * g.a.nb[0], g.a.type), j, g.down) : ~(uint64_t) 0;
    }
}
KERNEL sort_step(const __grid_constant__ struct gpu_sort_args g) {
    dep_begin();
    for (int64_t i = thread_index(); i < g.n_rows * g.n_pad; i += thread_count()) {
        const int64_t at = i % g.n_pad, o = at ^ g.j;
        if (o > at) {
            uint64_t *row = g.keys + i / g.n_pad * g.n_pad;
            const uint64_t x = row[at], y = row[o];
            if ((x > y) == ((at & g.k) == 0)) {
                row[at] = y, row[o] = x;
            }
        }
    }
}
KERNEL sort_store(const __grid_constant__ struct gpu_sort_args g) {
    dep_begin();
    for (int64_t i = thread_index(); i < g.n_rows * g.dst.ne[0]; i += thread_count()) {
        const int64_t ir = i / g.dst.ne[0], j = i % g.dst.ne[0];
        store_index(g, ir, j, g.keys[ir * g.n_pad + j]);
    }
}
