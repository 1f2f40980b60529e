// SPDX-License-Identifier: MIT
// mid.cuh: products of weights with many columns, in tiles of 8 to 64 columns. The kernels have the same names on all GPUs: on
// sm_90a they are mid90.cuh, on other GPUs mid80.cuh.
//
// A block has one to four groups of four warps. A group multiplies 64 rows with NT columns. n_row_groups of the groups have
// different rows. The groups that have different rows and the same chunk of them (decode.cuh) are a chunk group. Chunk group i of n
// has chunks i, i + n, i + 2 n, ... Each warp copies its own 16 rows into its own ring, in the file's format, and unpacks them into
// the A operand in registers. Columns are the B operand in shared memory. The groups of a chunk group share the columns. At the end,
// all sums are stored in shared memory, [group][column][MID_PITCH], and added in a fixed order.
#pragma once

#include "mma_args.h"
#include "mmv.cuh"

// ---- rows ----

// Starts the copy of a chunk of 16 rows to a stage of a ring. w: the first of the rows.
template <class D>
LANE void mid_rows_fetch(
    const mma_args &a, const char *w, int n_rows, const mmv_pieces<D> &pieces, int chunk, uint32_t stage, int lane) {
    typedef mmv_stage<D> S;
    const int64_t from = (int64_t) chunk * S::BYTES, row_bytes = (int64_t) (a.k / D::QK) * D::BYTES;
    const char *src = w + from;
    const int odd = (int) ((uintptr_t) src & 15);
    if (n_rows == MMV_ROWS && from + S::BYTES + (S::BYTES % 16 == 0 ? 0 : 32) <= row_bytes) {
        pieces.copy_all(src - odd, stage, lane);
    } else {
        pieces.copy(src - odd, n_rows, odd + (int) min((int64_t) S::BYTES, row_bytes - from), stage);
    }
}

// If the last chunk of a row is incomplete, its missing elements are multiplied with zeros, so they must be finite. Sets a warp's
// ring, which begins at byte `ring` of shared memory, to zeros.
template <class D> LANE void mid_ring_clear(const mma_args &a, uint32_t *smem, uint32_t ring, int lane) {
    if (a.k % D::CH != 0) {
        for (int i = lane * 16; i < a.n_stages * mmv_stage<D>::SIZE; i += 32 * 16) {
            *reinterpret_cast<uint4 *>(reinterpret_cast<char *>(smem) + ring + i) = make_uint4(0, 0, 0, 0);
        }
        __syncwarp();
    }
}

// Decodes 64 elements of two rows from sub 2 q on.
template <class D, class P> LANE void mid_step(const D &d0, const D &d1, P p0, P p1, int q, int t, uint32_t *to) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
        uint32_t o0[4], o1[4];
        d0.get(p0, 2 * q + h, t, o0);
        d1.get(p1, 2 * q + h, t, o1);
        operands_put(o0, o1, to + 8 * h);
    }
}

// A chunk of two rows in shared memory. Rows begin at multiples of 4 bytes, so chunks begin at multiples of 2 (`two` is 0 or 2).
template <class D> struct mid_rows {
    typedef mmv_stage<D> S;
    enum { IS_ALIGNED = S::BYTES % 4 == 0 };
    const char *p0, *p1;
    uint32_t two;
    D d0, d1;
    // src: the chunk in the first of the 16 rows; stage: its copy.
    LANE void init(const char *src, const char *stage, int lane) {
        const uint32_t odd = (uint32_t) (uintptr_t) src & 15;
        two = S::BYTES % 4 == 0 ? 0 : odd & 2;
        p0 = stage + lane / 4 * S::PITCH + odd - two;
        p1 = p0 + 8 * S::PITCH;
    }
    LANE void prep(int valid) {
        if (IS_ALIGNED || two == 0) {
            d0.prep(words{p0, 0}, valid);
            d1.prep(words{p1, 0}, valid);
        } else {
            d0.prep(words{p0, 2}, valid);
            d1.prep(words{p1, 2}, valid);
        }
    }
    LANE void step(int q, int t, uint32_t *to) const {
        if (IS_ALIGNED || two == 0) {
            mid_step<D, words>(d0, d1, {p0, 0}, {p1, 0}, q, t, to);
        } else {
            mid_step<D, words>(d0, d1, {p0, 2}, {p1, 2}, q, t, to);
        }
    }
};

// ---- tiles ----

// The matrix of a block, and the block's index among the row blocks of the matrix.
struct mid_part {
    const char *w;
    float *y;
    const float *add;
    int64_t y_col;
    int m, row_block;
    LANE void init(const mma_args &a, int rows) {
        w = a.w, y = a.y, add = a.add, y_col = a.y_col, m = a.m, row_block = blockIdx.y;
        for (int i = 0; i < a.n_more && row_block >= (m + rows - 1) / rows; i++) {
            row_block -= (m + rows - 1) / rows;
            w = a.w_more[i], y = a.y_more[i], add = NULL, y_col = a.y_col_more[i], m = a.m_more[i];
        }
    }
};

// The tile of a block: its matrix, rows and columns.
struct mid_tile {
    mid_part part;
    const char *w; // first row
    int tile, z, i2, i3, row0;
    // Returns false if the tile is unused.
    LANE bool init(const mma_args &a, int index) {
        tile = index % a.n_tiles, z = index / a.n_tiles, i2 = z % a.ne2, i3 = z / a.ne2;
        part.init(a, 64 * a.n_row_groups);
        row0 = part.row_block * 64 * a.n_row_groups;
        w = part.w + i2 / a.r2 * a.w_z2 + i3 / a.r3 * a.w_z3 + row0 * a.w_row;
        if ((!a.w_const || a.tile_expert != NULL) && a.wait) {
            wait_for_previous();
        }
        const int expert = a.tile_expert != NULL ? a.tile_expert[tile] : 0;
        w += a.tile_expert != NULL ? expert * a.w_z2 : 0;
        return expert >= 0;
    }
    LANE const char *columns(const mma_args &a, int nt) const {
        const int n_steps = (a.k + 255) / 256 * 4;
        return reinterpret_cast<const char *>(a.tiles + z * a.tiles_z) + (int64_t) tile * n_steps * nt * 128;
    }
};

// ---- sums ----

template <int NT> LANE void mid_sums_put(float *sums, int warp, int lane, const float *c) {
    const int g = lane / 4, t = lane % 4, row = 16 * (warp % 4) + g;
    float *mine = sums + warp / 4 * NT * MID_PITCH;
#pragma unroll
    for (int j = 0; j < NT / 8; j++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            mine[(8 * j + 2 * t + i % 2) * MID_PITCH + row + 8 * (i / 2)] = c[4 * j + i];
        }
    }
}

// Reads four floats of the sums of block `rank` of the cluster. addr: their address in this block's shared memory.
LANE float4 mid_sums_read(uint32_t addr, int rank) {
    float4 v;
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    uint32_t there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;\n" : "=r"(there) : "r"(addr), "r"(rank));
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];\n"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(there)
                 : "memory");
#else
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];\n"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(addr)
                 : "memory");
#endif
    return v;
}

// Adds the sums and stores the results. Each of the n_ranks blocks of a cluster stores a part of the rows. sums: address of the sums
// in shared memory.
template <int NT> LANE void mid_sums_store(const mma_args &a, const mid_tile &t, uint32_t sums, int rank, int n_ranks) {
    const mid_part &part = t.part;
    float *y = part.y + t.i2 * a.y_z2 + t.i3 * a.y_z3;
    const float *scale = a.scale + t.z * a.scale_z;
    const int col0 = t.tile * NT, n_groups = blockDim.x / 128, n_rows = 64 * a.n_row_groups / n_ranks;
    for (int i = threadIdx.x; i < n_rows / 4 * NT; i += blockDim.x) {
        const int row = rank * n_rows + i % (n_rows / 4) * 4, col = i / (n_rows / 4);
        const int64_t to = a.to != NULL ? (int64_t) a.to[col0 + col] : col0 + col < a.n ? (col0 + col) * part.y_col : -1;
        if (to < 0) {
            continue;
        }
        float4 sum = make_float4(0, 0, 0, 0);
        for (int from = 0; from < n_ranks; from++) {
            for (int group = row / 64; group < n_groups; group += a.n_row_groups) {
                const float4 v = mid_sums_read(sums + ((group * NT + col) * MID_PITCH + row % 64) * 4, from);
                sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
            }
        }
        const float all[4] = {sum.x, sum.y, sum.z, sum.w}, s = scale[col0 + col];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            if (t.row0 + row + j < part.m) {
                const float addend = part.add != NULL ? part.add[(col0 + col) * a.add_col + t.row0 + row + j] : 0.0f;
                y[to + t.row0 + row + j] = all[j] * s + addend;
            }
        }
    }
}

#include "mid80.cuh"
#include "mid90.cuh"

#define MID_KERNEL(name, type, nt) \
    extern "C" __global__ void __launch_bounds__(MID_GROUPS * 128, 1) mid_##name##_##nt(const __grid_constant__ mma_args a) { \
        mid90<decode_##type, nt>(a); \
        mid80<decode_##type, nt>(a); \
    }
#define MID_KERNELS(name, type) \
    MID_KERNEL(name, type, 8) \
    MID_KERNEL(name, type, 16) \
    MID_KERNEL(name, type, 32) \
    MID_KERNEL(name, type, 64)
