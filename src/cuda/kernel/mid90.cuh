// SPDX-License-Identifier: MIT
// mid90.cuh: products of weights with 2 to 64 columns per tile on sm_90a. All multiprocessors have work, even with few rows: the
// blocks of a cluster compute the same rows with different chunks of k (decode.cuh) and add their sums.
//
// A block has four warp groups. A warp group multiplies 64 rows with NT columns (wgmma.cuh). n_row_groups of the groups have
// different rows. The other groups have other chunks of the same rows. Each warp copies its own 16 rows into its own ring, in the
// file's format, and unpacks them into the A operand in registers. Columns are the B operand in shared memory; warp groups with
// the same chunks share it.
//
// At the end, all sums are stored in shared memory, [group][column][MID_PITCH]. Each block of the cluster adds the sums of a part
// of the rows, in a fixed order, and stores the result.
//
// Shared memory: [barriers: MID_HEAD bytes] [columns: stage, chunk group] [rings: warp, stage]; later the sums, after the barriers.
#pragma once

#include "mma_args.h"
#include "mmv.cuh"

template <class D, int NT> struct mid_block {
    typedef mmv_stage<D> S;
    enum { B_SIZE = NT * D::CH * 2, STEPS = D::CH / 64 };
    uint32_t base, columns, rings; // addresses in shared memory: barriers, columns, rings
    uint32_t full, empty;          // barriers of this chunk group, 8 bytes per stage
    int n_stages, warp, lane, row_group, chunk_group, n_chunk_groups;
    int first, n_own; // first chunk of this group; number of its chunks, n_chunk_groups apart

    LANE int chunk_at(int i) const {
        return first + i * n_chunk_groups;
    }
    LANE uint32_t ring_at(int i) const {
        return rings + (warp * n_stages + i % n_stages) * S::SIZE;
    }
    LANE uint32_t columns_at(int i) const {
        return columns + (i % n_stages * n_chunk_groups + chunk_group) * B_SIZE;
    }
    LANE void fetch_rows(const mma_args &a, const char *w, int n_rows, const mmv_pieces<D> &pieces, int i) const {
        if (i < n_own) {
            const int64_t from = (int64_t) chunk_at(i) * S::BYTES, row_bytes = (int64_t) (a.k / D::QK) * D::BYTES;
            const char *src = w + from;
            const int odd = (int) ((uintptr_t) src & 15);
            if (n_rows == MMV_ROWS && from + S::BYTES + (S::BYTES % 16 == 0 ? 0 : 32) <= row_bytes) {
                pieces.copy_all(src - odd, ring_at(i), lane);
            } else {
                pieces.copy(src - odd, n_rows, odd + (int) min((int64_t) S::BYTES, row_bytes - from), ring_at(i));
            }
        }
        copy_commit();
    }
    // Called by one thread per chunk group.
    LANE void fetch_columns(const char *tile, int i) const {
        if (i < n_own) {
            const uint32_t bar = full + 8 * (i % n_stages);
            if (i >= n_stages) {
                bar_wait(empty + 8 * (i % n_stages), (i / n_stages - 1) & 1);
            }
            bar_expect(bar, B_SIZE);
            bulk_copy(columns_at(i), tile + (int64_t) chunk_at(i) * B_SIZE, B_SIZE, bar);
        }
    }
};

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

// Decodes chunk i and multiplies it with the columns. A step is 64 elements; it is decoded while the previous step is multiplied.
template <class D, int NT> LANE void mid_chunk(const mid_block<D, NT> &b, mid_rows<D> rows, int valid, int i, float *c) {
    typedef mid_block<D, NT> B;
    const int t = b.lane % 4;
    uint32_t a[2][16];
    rows.prep(valid);
    rows.step(0, t, a[0]);
    bar_wait(b.full + 8 * (i % b.n_stages), i / b.n_stages & 1);
    const uint64_t columns = wgmma_desc(b.columns_at(i));
#pragma unroll
    for (int q = 0; q < B::STEPS; q++) {
        wgmma_fence();
#pragma unroll
        for (int j = 0; j < 4; j++) {
            wgmma<NT, D::BF>::template rs<0>(c, a[q & 1] + 4 * j, columns + q * NT * 8 + 2 * j, 1);
        }
        wgmma_commit();
        if (q + 1 < B::STEPS) {
            wgmma_wait<1>(); // the previous step no longer reads the other half of a[]
            rows.step(q + 1, t, a[(q + 1) & 1]);
        }
    }
    wgmma_wait<0>();
    if (b.lane == 0) {
        bar_arrive(b.empty + 8 * (i % b.n_stages));
    }
}

// ---- the sums of a cluster ----

LANE void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;\n" ::: "memory");
}
// Reads four floats at an address of this block's shared memory, from the shared memory of block `rank` of the cluster.
LANE float4 cluster_read(uint32_t addr, int rank) {
    uint32_t there;
    float4 v;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;\n" : "=r"(there) : "r"(addr), "r"(rank));
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];\n"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(there)
                 : "memory");
    return v;
}

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

template <int NT>
LANE void mid_sums_store(
    const mma_args &a, const mid_part &part, uint32_t sums, float *y, const float *scale, int row0, int col0) {
    const int n_ranks = gridDim.x, rank = blockIdx.x, n_rows = 64 * a.n_row_groups / n_ranks;
    for (int i = threadIdx.x; i < n_rows / 4 * NT; i += MID_GROUPS * 128) {
        const int row = rank * n_rows + i % (n_rows / 4) * 4, col = i / (n_rows / 4);
        const int64_t to = a.to != NULL ? (int64_t) a.to[col0 + col] : col0 + col < a.n ? (col0 + col) * part.y_col : -1;
        if (to < 0) {
            continue;
        }
        float4 sum = make_float4(0, 0, 0, 0);
        for (int from = 0; from < n_ranks; from++) {
            for (int group = row / 64; group < MID_GROUPS; group += a.n_row_groups) {
                const float4 v = cluster_read(sums + ((group * NT + col) * MID_PITCH + row % 64) * 4, from);
                sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
            }
        }
        const float all[4] = {sum.x, sum.y, sum.z, sum.w}, s = scale[col0 + col];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            if (row0 + row + j < part.m) {
                const float addend = part.add != NULL ? part.add[(col0 + col) * a.add_col + row0 + row + j] : 0.0f;
                y[to + row0 + row + j] = all[j] * s + addend;
            }
        }
    }
}

template <class D, int NT> LANE void mid90(const mma_args &a) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    typedef mid_block<D, NT> B;
    typedef typename B::S S;
    extern __shared__ __align__(1024) uint32_t smem[];
    let_next_start();
    B b;
    b.base = smem_addr(smem);
    b.warp = threadIdx.x / 32, b.lane = threadIdx.x % 32;
    b.n_stages = a.n_stages;
    b.n_chunk_groups = MID_GROUPS / a.n_row_groups;
    b.row_group = b.warp / 4 % a.n_row_groups, b.chunk_group = b.warp / 4 / a.n_row_groups;
    b.columns = b.base + MID_HEAD;
    b.rings = b.columns + a.n_stages * b.n_chunk_groups * B::B_SIZE;
    b.full = b.base + b.chunk_group * 2 * MID_STAGES * 8, b.empty = b.full + MID_STAGES * 8;
    if (threadIdx.x < b.n_chunk_groups * MID_STAGES) {
        const uint32_t bar = b.base + (threadIdx.x / MID_STAGES * 2 * MID_STAGES + threadIdx.x % MID_STAGES) * 8;
        bar_init(bar, 1);
        bar_init(bar + MID_STAGES * 8, 4 * a.n_row_groups);
        asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
    }
    __syncthreads();
    const int tile = blockIdx.z % a.n_tiles, z = blockIdx.z / a.n_tiles, i2 = z % a.ne2, i3 = z / a.ne2;
    mid_part part;
    part.init(a, 64 * a.n_row_groups);
    const int block_row0 = part.row_block * 64 * a.n_row_groups, row0 = block_row0 + 64 * b.row_group + 16 * (b.warp % 4);
    const char *w = part.w + i2 / a.r2 * a.w_z2 + i3 / a.r3 * a.w_z3;
    if ((!a.w_const || a.tile_expert != NULL) && a.wait) {
        wait_for_previous();
    }
    if (a.tile_expert != NULL) {
        const int expert = a.tile_expert[tile];
        if (expert < 0) { // all blocks of the cluster have this tile
            return;
        }
        w += expert * a.w_z2;
    }
    w += row0 * a.w_row;
    const int n_chunks = (a.k + D::CH - 1) / D::CH, first = n_chunks * blockIdx.x / gridDim.x,
              end = n_chunks * (blockIdx.x + 1) / gridDim.x, n_rows = min(part.m - row0, (int) MMV_ROWS);
    b.first = first + b.chunk_group;
    b.n_own = max((end - b.first + b.n_chunk_groups - 1) / b.n_chunk_groups, 0);
    mmv_pieces<D> pieces;
    pieces.init(a.w_row, b.lane);
    if (a.k % D::CH !=
        0) { // The last chunk is incomplete. Its missing elements are multiplied with zeros, so they must be finite.
        for (int i = b.lane * 16; i < a.n_stages * S::SIZE; i += 32 * 16) {
            const uint32_t at = b.ring_at(0) - b.base + i;
            *reinterpret_cast<uint4 *>(reinterpret_cast<char *>(smem) + at) = make_uint4(0, 0, 0, 0);
        }
        __syncwarp();
    }
    // Constant weights can be copied before the previous kernel ends.
    for (int i = 0; i < a.n_stages - 1; i++) {
        b.fetch_rows(a, w, n_rows, pieces, i);
    }
    if (a.wait) {
        wait_for_previous();
    }
    const int n_steps = (a.k + 255) / 256 * 4;
    const char *columns = reinterpret_cast<const char *>(a.tiles + z * a.tiles_z) + (int64_t) tile * n_steps * NT * 128;
    const bool is_loader = b.row_group == 0 && b.warp % 4 == 0 && b.lane == 0;
    for (int i = 0; i < a.n_stages - 1 && is_loader; i++) {
        b.fetch_columns(columns, i);
    }
    float c[NT / 2];
#    pragma unroll
    for (int i = 0; i < NT / 2; i++) {
        c[i] = 0.0f;
    }
    for (int i = 0; i < b.n_own; i++) {
        copy_wait(a.n_stages - 2);
        __syncwarp();
        b.fetch_rows(a, w, n_rows, pieces, i + a.n_stages - 1);
        if (is_loader) {
            b.fetch_columns(columns, i + a.n_stages - 1);
        }
        __syncwarp();
        const int k = b.chunk_at(i) * D::CH, valid = min((int) D::CH, a.k - k);
        const char *src = w + (int64_t) b.chunk_at(i) * S::BYTES;
        const uint32_t odd = (uint32_t) (uintptr_t) src & 15, two = S::BYTES % 4 == 0 ? 0 : odd & 2;
        const char *p0 = reinterpret_cast<const char *>(smem) + (b.ring_at(i) - b.base) + b.lane / 4 * S::PITCH + odd - two;
        mid_chunk<D, NT>(b, {p0, p0 + 8 * S::PITCH, two}, valid, i, c);
    }
    wgmma_pin<NT / 2>(c);
    __syncthreads();
    mid_sums_put<NT>(reinterpret_cast<float *>(smem) + MID_HEAD / 4, b.warp, b.lane, c);
    cluster_sync();
    float *y = part.y + i2 * a.y_z2 + i3 * a.y_z3;
    mid_sums_store<NT>(a, part, b.base + MID_HEAD, y, a.scale + z * a.scale_z, block_row0, tile * NT);
    cluster_sync(); // other blocks may still read the sums of this block
#endif
}

#define MID90_KERNEL(name, type, nt) \
    extern "C" __global__ void __launch_bounds__(MID_GROUPS * 128, 1) mid90_##name##_##nt(const __grid_constant__ mma_args a) { \
        mid90<decode_##type, nt>(a); \
    }
#define MID90_KERNELS(name, type) \
    MID90_KERNEL(name, type, 8) \
    MID90_KERNEL(name, type, 16) \
    MID90_KERNEL(name, type, 32) \
    MID90_KERNEL(name, type, 64)
