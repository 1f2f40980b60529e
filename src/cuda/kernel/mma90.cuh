// SPDX-License-Identifier: MIT
// mma90.cuh: products of weights with many columns on sm_90a. A block computes 128 rows by NT columns.
//
// One warp group copies chunks of weights (decode.cuh) and tiles of columns (mma_args.h). Two warp groups compute 64 rows each.
// They unpack weights into the A operand in registers while the previous product runs. Columns are the B operand.
#pragma once

#include "decode.cuh"
#include "mma_args.h"
#include "wgmma.cuh"

enum { MMA_ROWS = 128, MMA_STEP = 64 };

// Sizes in shared memory, in bytes. A stage of weights is one chunk of 128 rows. A stage of columns is MMA_STEP elements of NT
// columns.
template <class D, int NT> struct mma_plan {
    enum {
        BYTES = D::CH / D::QK * D::BYTES,     // bytes of a chunk of one row
        PIECES = ((BYTES + 14) / 16 + 1) | 1, // 16-byte pieces per row; odd, so that rows begin in different banks
        PITCH = PIECES * 16,
        A_SIZE = PITCH * MMA_ROWS,                 // a stage of weights
        B_SIZE = NT * 128,                         // a stage of columns
        N_A = D::CH < 256 && D::BYTES < 4 ? 4 : 2, // number of stages of weights
        N_B = NT == 256 ? 4 : 6,                   // number of stages of columns
        BARS = 256,
        SIZE = N_B * B_SIZE + N_A * A_SIZE + BARS + 1024 + 64,
        STEPS = D::CH / MMA_STEP, // stages of columns per chunk
    };
};

// Shared addresses of the barriers, one of each kind per stage. full: the stage has been copied; empty: the stage has been read.
// a: stages of weights; b: stages of columns.
struct mma_bars {
    uint32_t full_a, empty_a, full_b, empty_b;
};

// Run by the warp group that copies. Copies the chunks of weights and the tiles of columns in advance.
template <class D, int NT>
LANE void mma_feed(
    const mma_args &a, const char *w, const char *tiles, int row0, uint32_t smem_a, uint32_t smem_b, mma_bars bar) {
    typedef mma_plan<D, NT> P;
    const int n_chunks = (a.k + D::CH - 1) / D::CH;
    const int64_t row_bytes = (int64_t) (a.k / D::QK) * D::BYTES;
    int step = 0;
    for (int c = 0; c < n_chunks; c++) {
        const int s = c % P::N_A;
        const int64_t from = (int64_t) c * P::BYTES;
        const int n_bytes = (int) min((int64_t) P::BYTES, row_bytes - from);
        bar_wait(bar.empty_a + 8 * s, (c / P::N_A + 1) & 1);
        // Each thread copies one row, extended to multiples of 16 bytes at both ends.
        const char *src = w + (int64_t) (row0 + threadIdx.x) * a.w_row + from;
        const int odd = (int) ((uintptr_t) src & 15);
        if (row0 + (int) threadIdx.x < a.m) {
            const int size = (odd + n_bytes + 15) & ~15;
            bar_expect(bar.full_a + 8 * s, size);
            bulk_copy(smem_a + s * P::A_SIZE + threadIdx.x * P::PITCH, src - odd, size, bar.full_a + 8 * s);
        } else {
            bar_arrive(bar.full_a + 8 * s);
        }
        if (threadIdx.x == 0) {
            for (int end = step + P::STEPS; step < end; step++) {
                const int sb = step % P::N_B;
                bar_wait(bar.empty_b + 8 * sb, (step / P::N_B + 1) & 1);
                bar_expect(bar.full_b + 8 * sb, P::B_SIZE);
                bulk_copy(smem_b + sb * P::B_SIZE, tiles + (int64_t) step * P::B_SIZE, P::B_SIZE, bar.full_b + 8 * sb);
            }
        }
    }
}

// Decodes elements 64 q to 64 q + 63 of a chunk, of the thread's two rows, into the A operand.
template <class D, int NT>
LANE void mma_step(const D &d0, const D &d1, bytes p0, bytes p1, int q, int t, int valid, uint32_t *a) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
        uint32_t o0[4] = {0, 0, 0, 0}, o1[4] = {0, 0, 0, 0};
        if ((2 * q + h) * 32 < valid) {
            d0.get(p0, 2 * q + h, t, o0);
            d1.get(p1, 2 * q + h, t, o1);
        }
        operands_put(o0, o1, a + 8 * h);
    }
}

// Run by the two warp groups that compute. Decodes the weights and multiplies them with the columns. c receives the sums.
template <class D, int NT>
LANE void mma_eat(const mma_args &args, const char *w, int row0, const uint32_t *smem, uint32_t a_off, uint32_t smem_b,
    mma_bars bar, float *c) {
    typedef mma_plan<D, NT> P;
    const int n_chunks = (args.k + D::CH - 1) / D::CH;
    const int warp = threadIdx.x / 32 - 4, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4; // warps 0 to 7 of the two groups
    const int row = 16 * warp + g;
    int step = 0;
    uint32_t a[2][16];
    for (int ch = 0; ch < n_chunks; ch++) {
        const int s = ch % P::N_A;
        const int valid = min((int) D::CH, args.k - ch * D::CH);
        const char *src = w + (int64_t) (row0 + row) * args.w_row + (int64_t) ch * P::BYTES;
        const bytes at = {smem, a_off + s * P::A_SIZE + row * P::PITCH};
        const bytes p0 = at.at((uint32_t) (uintptr_t) src & 15);
        const bytes p1 = at.at(8 * P::PITCH + ((uint32_t) (uintptr_t) (src + 8 * args.w_row) & 15));
        bar_wait(bar.full_a + 8 * s, ch / P::N_A & 1);
        D d0, d1;
        d0.prep(p0, valid);
        d1.prep(p1, valid);
#pragma unroll
        for (int q = 0; q < P::STEPS; q++) {
            mma_step<D, NT>(d0, d1, p0, p1, q, t, valid, a[q & 1]);
            if (q == P::STEPS - 1) {
                __syncwarp();
                if (lane == 0) {
                    bar_arrive(bar.empty_a + 8 * s);
                }
            }
            const int sb = step % P::N_B;
            bar_wait(bar.full_b + 8 * sb, step / P::N_B & 1);
            const uint64_t b = wgmma_desc(smem_b + sb * P::B_SIZE);
            wgmma_fence();
#pragma unroll
            for (int i = 0; i < 4; i++) {
                wgmma<NT, D::BF>::template rs<0>(c, a[q & 1] + 4 * i, b + 2 * i, step + i > 0);
            }
            wgmma_commit();
            // Waits for the previous product, or for this one if a chunk has one step. Then the half of a[] that it read may be
            // overwritten.
            wgmma_wait<P::STEPS == 1 ? 0 : 1>();
            if (step > 0 && lane == 0) {
                bar_arrive(bar.empty_b + 8 * ((step - 1) % P::N_B));
            }
            step++;
        }
    }
    wgmma_wait<0>();
    wgmma_pin<NT / 2>(c);
}

// Multiplies the sums by the scales of the columns and writes them to y.
template <class D, int NT>
LANE void mma_store(const mma_args &a, float *y, const float *scale, int col0, int row0, const float *c) {
    const int warp = threadIdx.x / 32 - 4, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int row = row0 + 16 * warp + g;
#pragma unroll
    for (int j = 0; j < NT / 8; j++) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int col = col0 + 8 * j + 2 * t + i;
            const float s = scale[col];
            const int64_t to = a.to != NULL ? (int64_t) a.to[col] : col < a.n ? col * a.y_col : -1;
            if (to >= 0) {
                if (row < a.m) {
                    y[to + row] = c[4 * j + i] * s;
                }
                if (row + 8 < a.m) {
                    y[to + row + 8] = c[4 * j + 2 + i] * s;
                }
            }
        }
    }
}

template <class D, int NT> LANE void mma90(const mma_args &a) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    typedef mma_plan<D, NT> P;
    extern __shared__ __align__(1024) uint32_t smem[];
    let_next_start();
    const uint32_t base = smem_addr(smem);
    const uint32_t pad = (1024 - base % 1024) % 1024;
    const uint32_t smem_b = base + pad, a_off = pad + P::N_B * P::B_SIZE,
                   bars = smem_b + P::N_B * P::B_SIZE + P::N_A * P::A_SIZE + 64;
    mma_bars bar = {bars, bars + 32, bars + 64, bars + 128};
    if (threadIdx.x == 0) {
        for (int i = 0; i < P::N_A; i++) {
            bar_init(bar.full_a + 8 * i, 128);
            bar_init(bar.empty_a + 8 * i, 8);
        }
        for (int i = 0; i < P::N_B; i++) {
            bar_init(bar.full_b + 8 * i, 1);
            bar_init(bar.empty_b + 8 * i, 8);
        }
        asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
    }
    __syncthreads();
    if (a.wait) {
        wait_for_previous();
    }
    const int tile = blockIdx.x, row0 = blockIdx.y * MMA_ROWS, z = blockIdx.z;
    const int i2 = z % a.ne2, i3 = z / a.ne2;
    int expert = 0;
    const char *w = a.w;
    if (a.tile_expert != NULL) {
        expert = a.tile_expert[tile];
        w += (expert < 0 ? 0 : expert) * a.w_z2;
    } else {
        w += i2 / a.r2 * a.w_z2 + i3 / a.r3 * a.w_z3;
    }
    if (expert < 0) {
        return;
    }
    const int n_steps = (a.k + 255) / 256 * 4;
    if (threadIdx.x < 128) {
        setmaxnreg_less<40>();
        const char *tiles = reinterpret_cast<const char *>(a.tiles + z * a.tiles_z) + (int64_t) tile * n_steps * P::B_SIZE;
        mma_feed<D, NT>(a, w, tiles, row0, base + a_off, smem_b, bar);
    } else {
        setmaxnreg_more<232>();
        float c[NT / 2];
        mma_eat<D, NT>(a, w, row0, smem, a_off, smem_b, bar, c);
        mma_store<D, NT>(a, a.y + i2 * a.y_z2 + i3 * a.y_z3, a.scale + z * a.scale_z, tile * NT, row0, c);
    }
#endif
}

#define MMA90_KERNEL(name, type, nt) \
    extern "C" __global__ void __launch_bounds__(384, 1) mma90_##name##_##nt(const __grid_constant__ mma_args a) { \
        mma90<decode_##type, nt>(a); \
    }
#define MMA90_KERNELS(name, type) \
    MMA90_KERNEL(name, type, 64) \
    MMA90_KERNEL(name, type, 256)
