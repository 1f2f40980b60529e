// SPDX-License-Identifier: MIT
// mmv.cuh: weights times up to 8 columns, at the speed of memory.
//
// A block has 8 columns (grid.y) and walks over tiles of 16 rows. Its 8 warps share a tile's elements by chunks (decode.cuh): each warp has a ring of
// chunks of its own in shared memory, copied ahead over the ends of tiles, so that copies never pause; no warp waits for another
// but at the end of a tile, where their sums meet. Columns come as halves (bf16 for bf16 and f32 weights; act.cu), with XP = 2
// also what rounding took off them. Those that do not fit into shared memory are taken in parts of k_part chunks; then y is added
// to, always by the same thread.
#pragma once

#include "decode.cuh"
#include "mmv_args.h"
#include "wgmma.cuh"

enum { MMV_WARPS = 8, MMV_ROWS = 16, MMV_COLS = 8 };

template <class D>
struct mmv_stage {
    enum {
        BYTES  = D::CH / D::QK * D::BYTES,       // of a row
        PIECES = ((BYTES + 14) / 16 + 1) | 1,    // copies of 16 bytes; odd, so that rows begin in different banks
        PITCH  = PIECES * 16,
        SIZE   = PITCH * MMV_ROWS,
    };
};

// Where a warp is: chunk of a tile of a part.
struct mmv_place {
    int part, tile, chunk;
};

struct mmv_walk {
    int n_parts, n_tiles, n_chunks, k_part, warp;
    LANE int chunks_of(int part) const { return min(k_part, n_chunks - part * k_part); }
    LANE void settle(mmv_place *p) const {
        while (p->part < n_parts && p->chunk >= chunks_of(p->part)) {
            p->chunk = warp;
            p->tile += gridDim.x;
            if (p->tile >= n_tiles) {
                p->tile = blockIdx.x;
                p->part++;
            }
        }
    }
};

// A chunk of 16 rows on its way: one copy a row on sm_90, whose pieces begin and end at multiples of 16 bytes around the chunk.
template <class D>
LANE void mmv_fetch(const mmv_args &a, const char *w, const mmv_walk &walk, const mmv_place &p, uint32_t stage, uint32_t bar, int lane) {
    typedef mmv_stage<D> S;
    const int64_t row_bytes = (int64_t) (a.k / D::QK) * D::BYTES;
    const int64_t from      = (int64_t) (p.part * walk.k_part + p.chunk) * S::BYTES;
    const int n_bytes       = (int) min((int64_t) S::BYTES, row_bytes - from);
#if __CUDA_ARCH__ >= 900
    if (lane < MMV_ROWS) {
        const int row = p.tile * MMV_ROWS + lane;
        if (row < a.m) {
            const char *src  = w + row * a.w_row + from;
            const int odd    = (int) ((uintptr_t) src & 15);
            const int size   = (odd + n_bytes + 15) & ~15;
            bar_expect(bar, size);
            bulk_copy(stage + lane * S::PITCH, src - odd, size, bar);
        } else {
            bar_arrive(bar);
        }
    }
#else
#pragma unroll 4
    for (int i = lane; i < MMV_ROWS * S::PIECES; i += 32) {
        const int r = i / S::PIECES, piece = i % S::PIECES;
        const int row   = p.tile * MMV_ROWS + r;
        const char *src = w + row * a.w_row + from;
        const int odd   = (int) ((uintptr_t) src & 15);
        const int left  = odd + n_bytes - piece * 16;
        if (row < a.m && left > 0) {
            copy16(stage + r * S::PITCH + piece * 16, src - odd + piece * 16, min(left, 16));
        }
    }
    copy_commit();
#endif
}

// Columns of a part, 16 bytes a thread at a time.
template <int XP>
LANE void mmv_columns(const mmv_args &a, int n, const uint16_t *x, int k_from, int k_n, int pitch, uint16_t *xs) {
    const int pieces = k_n / 8, all = XP * n * pieces;
#pragma unroll 8
    for (int i = threadIdx.x; i < all; i += MMV_WARPS * 32) {
        const int c = i / pieces, piece = i % pieces;
        const uint16_t *from = x + (c < n ? c : a.xh_rest + c - n) * a.xh_col + k_from + piece * 8;
        *reinterpret_cast<uint4 *>(xs + c * pitch + piece * 8) = *reinterpret_cast<const uint4 *>(from);
    }
    __syncthreads();
}

// f32 has a second part of weights.
template <class D>
LANE void mmv_rest(const D &d, bytes p, int sub, int t, const uint32_t *o, uint32_t *lo) {}
LANE void mmv_rest(const decode_f32 &d, bytes p, int sub, int t, const uint32_t *o, uint32_t *lo) {
    d.rest(p, sub, t, o, lo);
}
template <class D>
struct mmv_has_rest {
    enum { YES = 0 };
};
template <>
struct mmv_has_rest<decode_f32> {
    enum { YES = 1 };
};

template <class D, int XP>
LANE void mmv_sub(const D &d0, const D &d1, bytes p0, bytes p1, int sub, uint32_t x_addr, uint32_t x_part, int t, float *acc) {
    uint32_t x[4], o0[4], o1[4];
    ldmatrix4(x_addr + 64 * sub, x);
    d0.get(p0, sub, t, o0);
    d1.get(p1, sub, t, o1);
    const uint32_t a0[4] = {o0[0], o1[0], o0[1], o1[1]}, a1[4] = {o0[2], o1[2], o0[3], o1[3]};
    mma16816<D::BF>(acc, a0, x[0], x[1]);
    mma16816<D::BF>(acc, a1, x[2], x[3]);
    if (mmv_has_rest<D>::YES) {
        uint32_t l0[4], l1[4];
        mmv_rest(d0, p0, sub, t, o0, l0);
        mmv_rest(d1, p1, sub, t, o1, l1);
        const uint32_t b0[4] = {l0[0], l1[0], l0[1], l1[1]}, b1[4] = {l0[2], l1[2], l0[3], l1[3]};
        mma16816<D::BF>(acc, b0, x[0], x[1]);
        mma16816<D::BF>(acc, b1, x[2], x[3]);
    }
    if (XP == 2) {
        ldmatrix4(x_addr + x_part + 64 * sub, x);
        mma16816<D::BF>(acc, a0, x[0], x[1]);
        mma16816<D::BF>(acc, a1, x[2], x[3]);
    }
}

// A chunk that is whole is one run of instructions; of others only subs that begin within valid are looked at.
template <class D, int XP>
LANE void mmv_chunk(bytes p0, bytes p1, int valid, uint32_t x_addr, uint32_t x_part, int t, float *acc) {
    D d0, d1;
    d0.prep(p0, valid);
    d1.prep(p1, valid);
    if (valid == D::CH) {
#pragma unroll
        for (int sub = 0; sub < D::CH / 32; sub++) {
            mmv_sub<D, XP>(d0, d1, p0, p1, sub, x_addr, x_part, t, acc);
        }
    } else {
#pragma unroll
        for (int sub = 0; sub < D::CH / 32; sub++) {
            if (sub * 32 < valid) {
                mmv_sub<D, XP>(d0, d1, p0, p1, sub, x_addr, x_part, t, acc);
            }
        }
    }
}

// Sums of the warps, by 128 threads.
LANE void mmv_store(const mmv_args &a, int n, const float *red, const float *scale, float *y, int row0, bool add) {
    const int r = threadIdx.x % 16, j = threadIdx.x / 16;
    if (j < n && row0 + r < a.m) {
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < MMV_WARPS; i++) {
            sum += red[i * 128 + r * 8 + j];
        }
        float *to = y + j * a.y_col + row0 + r;
        *to       = add ? *to + sum * scale[j] : sum * scale[j];
    }
}

template <class D, int XP>
LANE void mmv(const mmv_args &a) {
    typedef mmv_stage<D> S;
    extern __shared__ __align__(128) uint32_t smem[];
    float *red      = reinterpret_cast<float *>(smem); // two of 8 warps of 16 x 8, then the barriers
    const int n     = min((int) MMV_COLS, a.n - (int) blockIdx.y * MMV_COLS); // columns of this block
    const int pitch = a.k_part * D::CH + 8;
    uint16_t *xs    = reinterpret_cast<uint16_t *>(red + 2 * MMV_WARPS * 128 + 128);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const uint32_t ring_off = (2 * MMV_WARPS * 128 + 128) * 4 + XP * n * pitch * 2 + warp * a.n_stages * S::SIZE;
    const uint32_t ring = smem_addr(smem) + ring_off, bars = smem_addr(red + 2 * MMV_WARPS * 128) + warp * 64;

    let_next_start();
    const int z = blockIdx.z, i2 = z % a.ne2, i3 = z / a.ne2;
    const char *w      = a.w + i2 / a.r2 * a.w_z2 + i3 / a.r3 * a.w_z3;
    const int col0     = blockIdx.y * MMV_COLS;
    const uint16_t *x  = a.xh + z * a.xh_z + col0 * a.xh_col;
    const float *scale = a.scale + z * a.scale_z + col0;
    float *y           = a.y + i2 * a.y_z2 + i3 * a.y_z3 + col0 * a.y_col;
    mmv_walk walk;
    walk.n_tiles  = (a.m + MMV_ROWS - 1) / MMV_ROWS;
    walk.n_chunks = (a.k + D::CH - 1) / D::CH;
    walk.k_part   = a.k_part;
    walk.n_parts  = (walk.n_chunks + a.k_part - 1) / a.k_part;
    walk.warp     = warp;
#if __CUDA_ARCH__ >= 900
    if (lane < a.n_stages) {
        bar_init(bars + 8 * lane, MMV_ROWS);
        asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
    }
    __syncwarp();
#endif
    // Weights may be on their way before the kernel ahead has written the columns.
    if (!a.w_const && a.wait) {
        wait_for_previous();
    }
    mmv_place next = {0, (int) blockIdx.x, warp};
    walk.settle(&next);
    for (int s = 0; s < a.n_stages - 1 && next.part < walk.n_parts; s++) {
        mmv_fetch<D>(a, w, walk, next, ring + s * S::SIZE, bars + 8 * s, lane);
        next.chunk += MMV_WARPS;
        walk.settle(&next);
    }
    if (a.wait) {
        wait_for_previous();
    }
    int stage = 0, fill = a.n_stages - 1, buffer = 0;
    uint32_t lap          = 0;
    const int col         = lane % 8 < n ? lane % 8 : 0;
    const uint32_t x_addr = smem_addr(xs) + (col * pitch + lane / 8 * 8) * 2;
    for (int part = 0; part < walk.n_parts; part++) {
        __syncthreads();
        mmv_columns<XP>(a, n, x, part * a.k_part * D::CH, walk.chunks_of(part) * D::CH, pitch, xs);
        for (int tile = blockIdx.x; tile < walk.n_tiles; tile += gridDim.x) {
            float acc[4] = {0, 0, 0, 0};
            for (int c = warp; c < walk.chunks_of(part); c += MMV_WARPS) {
                __syncwarp();
#if __CUDA_ARCH__ < 900
                copy_wait(next.part < walk.n_parts ? a.n_stages - 2 : 0);
                __syncwarp();
#endif
                if (next.part < walk.n_parts) {
                    mmv_fetch<D>(a, w, walk, next, ring + fill * S::SIZE, bars + 8 * fill, lane);
                    next.chunk += MMV_WARPS;
                    walk.settle(&next);
                    fill = fill + 1 == a.n_stages ? 0 : fill + 1;
                }
#if __CUDA_ARCH__ >= 900
                bar_wait(bars + 8 * stage, lap);
#endif
                const int k         = (part * a.k_part + c) * D::CH;
                const char *row     = w + (int64_t) (tile * MMV_ROWS + g) * a.w_row + (int64_t) k / D::QK * D::BYTES;
                const uint32_t odd0 = (uint32_t) (uintptr_t) row & 15, odd1 = (uint32_t) (uintptr_t) (row + 8 * a.w_row) & 15;
                const bytes at      = {smem, ring_off + stage * S::SIZE + g * S::PITCH};
                mmv_chunk<D, XP>(at.at(odd0), at.at(8 * S::PITCH + odd1), min((int) D::CH, a.k - k), x_addr + c * D::CH * 2,
                    n * pitch * 2, t, acc);
                stage++;
                if (stage == a.n_stages) {
                    stage = 0, lap ^= 1;
                }
            }
            float *mine = red + (buffer * MMV_WARPS + warp) * 128;
            *reinterpret_cast<float2 *>(mine + g * 8 + 2 * t)       = make_float2(acc[0], acc[1]);
            *reinterpret_cast<float2 *>(mine + (g + 8) * 8 + 2 * t) = make_float2(acc[2], acc[3]);
            __syncthreads();
            mmv_store(a, n, red + buffer * MMV_WARPS * 128, scale, y, tile * MMV_ROWS, part > 0);
            buffer ^= 1;
        }
    }
}

#define MMV_KERNEL(name, type, parts) \
    extern "C" __global__ void __launch_bounds__(MMV_WARPS * 32, 2) mmv_##name(const __grid_constant__ mmv_args a) { \
        mmv<decode_##type, parts>(a); \
    }
