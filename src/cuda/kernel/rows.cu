// SPDX-License-Identifier: MIT
// rows.cu: reads rows of any type by index; writes rows by index into a KV cache; copies between layouts and types.

#include "cuda/kernel/quantize.cuh"
#include "cuda/kernel/rows.cuh"

DEV void move(char *to, const char *from, int size) {
    switch (size) {
        case 1: *to = *from; break;
        case 2: *(uint16_t *) to = *(const uint16_t *) from; break;
        case 4: *(uint32_t *) to = *(const uint32_t *) from; break;
        case 8: *(uint64_t *) to = *(const uint64_t *) from; break;
        default:
            for (int i = 0; i < size; i++) {
                to[i] = from[i];
            }
    }
}

KERNEL rows_get(const __grid_constant__ struct gpu_rows_args g) {
    dep_begin();
    for (int64_t ir = blockIdx.x; ir < g.n_rows; ir += gridDim.x) {
        const int64_t i1 = ir % g.dst.ne[1], i2 = ir / g.dst.ne[1] % g.dst.ne[2], i3 = ir / (g.dst.ne[1] * g.dst.ne[2]);
        const int64_t number = number_at(g.numbers, i1, i2, i3);
        const bool is_there = number >= 0 && number < g.a.ne[1];
        const char *from = at(g.a, 0, is_there ? number : 0, i2, i3);
        char *to = at(g.dst, 0, i1, i2, i3);
        for (int64_t i = (int64_t) blockIdx.y * blockDim.x + threadIdx.x; i < g.dst.ne[0];
             i += (int64_t) gridDim.y * blockDim.x) {
            if (g.size != 0 && is_there) {
                move(to + i * g.dst.nb[0], from + i * g.a.nb[0], g.size);
            } else if (g.size != 0) {
                for (int k = 0; k < g.size; k++) {
                    to[i * g.dst.nb[0] + k] = 0;
                }
            } else {
                const bool plain = g.a.type == GGML_TYPE_F32 || g.a.type == GGML_TYPE_F16 || g.a.type == GGML_TYPE_BF16;
                const float v = plain ? load_number(from + i * g.a.nb[0], g.a.type) : row_element(from, g.a.type, i);
                *(float *) (to + i * g.dst.nb[0]) = is_there ? v : 0.0f;
            }
        }
    }
}

// dst is f32, f16, bf16, or has the type of a.
KERNEL rows_set(const __grid_constant__ struct gpu_rows_args g) {
    dep_begin();
    for (int64_t ir = blockIdx.x; ir < g.n_rows; ir += gridDim.x) {
        const int64_t i1 = ir % g.a.ne[1], i2 = ir / g.a.ne[1] % g.a.ne[2], i3 = ir / (g.a.ne[1] * g.a.ne[2]);
        const int64_t number = number_at(g.numbers, i1, i2 % g.numbers.ne[1], i3 % g.numbers.ne[2]);
        if (number < 0 || number >= g.dst.ne[1]) {
            continue;
        }
        const char *from = at(g.a, 0, i1, i2, i3);
        char *to = at(g.dst, 0, number, i2, i3);
        for (int64_t i = (int64_t) blockIdx.y * blockDim.x + threadIdx.x; i < g.a.ne[0]; i += (int64_t) gridDim.y * blockDim.x) {
            if (g.size != 0) {
                move(to + i * g.dst.nb[0], from + i * g.a.nb[0], g.size);
            } else {
                store_number(to + i * g.dst.nb[0], g.dst.type, load_number(from + i * g.a.nb[0], g.a.type));
            }
        }
    }
}

// dst is quantised, in blocks of 32.
KERNEL rows_set_blocks(const __grid_constant__ struct gpu_rows_args g) {
    dep_begin();
    const int64_t n_blocks = g.a.ne[0] / 32;
    for (int64_t ib = thread_index(); ib < n_blocks * g.n_rows; ib += thread_count()) {
        const int64_t ir = ib / n_blocks, i0 = ib % n_blocks * 32;
        const int64_t i1 = ir % g.a.ne[1], i2 = ir / g.a.ne[1] % g.a.ne[2], i3 = ir / (g.a.ne[1] * g.a.ne[2]);
        const int64_t number = number_at(g.numbers, i1, i2 % g.numbers.ne[1], i3 % g.numbers.ne[2]);
        if (number < 0 || number >= g.dst.ne[1]) {
            continue;
        }
        const char *from = at(g.a, i0, i1, i2, i3);
        float x[32];
        for (int j = 0; j < 32; j++) {
            x[j] = load_number(from + j * g.a.nb[0], g.a.type);
        }
        row_quantize(x, at(g.dst, 0, number, i2, i3), g.dst.type, i0);
    }
}

// ---- copies ----

// Copies elements or blocks of g.size bytes unchanged.
KERNEL copy_as_is(const __grid_constant__ struct gpu_copy_args g) {
    dep_begin();
    for (int64_t i = thread_index(); i < g.n; i += thread_count()) {
        move(at(g.dst, place_of(i, g.dst, g.dst_index)), at(g.a, place_of(i, g.a, g.a_index)), g.size);
    }
}

// Converts elements of types without blocks, with one rounding.
KERNEL copy_convert(const __grid_constant__ struct gpu_copy_args g) {
    dep_begin();
    for (int64_t i = thread_index(); i < g.n; i += thread_count()) {
        const float v = load_number(at(g.a, place_of(i, g.a, g.a_index)), g.a.type);
        store_number(at(g.dst, place_of(i, g.dst, g.dst_index)), g.dst.type, v);
    }
}

// Converts quantised elements to floats.
KERNEL copy_widen(const __grid_constant__ struct gpu_copy_args g) {
    dep_begin();
    for (int64_t i = thread_index(); i < g.n; i += thread_count()) {
        const at4 x = place_of(i, g.a, g.a_index);
        const float v = row_element(at(g.a, 0, x.i1, x.i2, x.i3), g.a.type, x.i0);
        store_number(at(g.dst, place_of(i, g.dst, g.dst_index)), g.dst.type, v);
    }
}

// Quantises into blocks of 32, from any type. n counts blocks. A block of dst may come from several rows of a.
KERNEL copy_narrow(const __grid_constant__ struct gpu_copy_args g) {
    dep_begin();
    for (int64_t ib = thread_index(); ib < g.n; ib += thread_count()) {
        float x[32];
        for (int j = 0; j < 32; j++) {
            x[j] = copy_source(g, ib * 32 + j);
        }
        const at4 to = place_of(ib * 32, g.dst, g.dst_index);
        row_quantize(x, at(g.dst, 0, to.i1, to.i2, to.i3), g.dst.type, to.i0);
    }
}

// Copies n contiguous words of 16 bytes.
KERNEL copy_words(const __grid_constant__ struct gpu_copy_args g) {
    dep_begin();
    for (int64_t i = thread_index(); i < g.n; i += thread_count()) {
        ((uint4 *) g.dst.p)[i] = ((const uint4 *) g.a.p)[i];
    }
}

// Transposes squares of 32 x 32 elements of 2 or 4 bytes. a is contiguous along axis 1, dst along axis 0.
template <typename T> DEV void transpose(const struct gpu_copy_args &g) {
    __shared__ T square[32][33];
    dep_begin();
    const int64_t i0 = (int64_t) blockIdx.x * 32, i1 = (int64_t) blockIdx.y * 32;
    for (int64_t iz = blockIdx.z; iz < g.n; iz += gridDim.z) {
        const int64_t i2 = iz % g.dst.ne[2], i3 = iz / g.dst.ne[2];
        __syncthreads();
        for (int k = threadIdx.y; k < 32; k += 8) {
            if (i0 + k < g.dst.ne[0] && i1 + threadIdx.x < g.dst.ne[1]) {
                square[k][threadIdx.x] = *(const T *) at(g.a, i0 + k, i1 + threadIdx.x, i2, i3);
            }
        }
        __syncthreads();
        for (int k = threadIdx.y; k < 32; k += 8) {
            if (i1 + k < g.dst.ne[1] && i0 + threadIdx.x < g.dst.ne[0]) {
                *(T *) at(g.dst, i0 + threadIdx.x, i1 + k, i2, i3) = square[threadIdx.x][k];
            }
        }
    }
}
KERNEL copy_transpose_4(const __grid_constant__ struct gpu_copy_args g) {
    transpose<uint32_t>(g);
}
KERNEL copy_transpose_2(const __grid_constant__ struct gpu_copy_args g) {
    transpose<uint16_t>(g);
}
