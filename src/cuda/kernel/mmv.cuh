// SPDX-License-Identifier: MIT
// mmv.cuh: products of weights with up to 8 columns, at the speed of memory.
//
// A block has up to 8 columns (blockIdx.y) and loops over tiles of 16 rows. Chunk c (decode.cuh) of a tile belongs to warp
// c % WARPS. Each warp copies chunks in advance into its own ring, also chunks of the next tile, so that copies never pause. At
// the end of a tile, the sums of the warps are added.
// Columns are f16, or bf16 for bf16 and f32 weights (act.cu). With XP = 2, their rounding residuals are multiplied too. If
// columns do not fit into shared memory, the block processes all tiles once per part of k_part chunks.
#pragma once

#include "decode.cuh"
#include "mmv_args.h"
#include "wgmma.cuh"

enum { MMV_ROWS = 16, MMV_COLS = 8 };

template <class D> struct mmv_stage {
    enum {
        BYTES = D::CH / D::QK * D::BYTES,     // bytes per row
        PIECES = ((BYTES + 14) / 16 + 1) | 1, // copies of 16 bytes per row; odd, so that rows begin in different banks
        PITCH = PIECES * 16,
        SIZE = PITCH * MMV_ROWS,
    };
};

// The position of a warp in its work.
struct mmv_place {
    int part, tile, chunk;
};

// The order in which a warp processes its chunks.
struct mmv_walk {
    int n_parts, n_tiles, n_chunks, k_part, warp;
    LANE int chunks_of(int part) const {
        return min(k_part, n_chunks - part * k_part);
    }
    // If the part has no chunk p->chunk, moves p to the next tile or part that has a chunk for this warp.
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

// The 16-byte pieces of a chunk that a thread copies, if rows begin at multiples of 16 bytes. Bulk copies would take more
// instructions, because the threads of a warp issue them serially.
template <class D> struct mmv_pieces {
    typedef mmv_stage<D> S;
    enum { EACH = S::BYTES % 16 == 0 ? S::BYTES / 16 : (S::BYTES + 30) / 16, N = (MMV_ROWS * EACH + 31) / 32 };
    int from[N];      // byte offset in global memory
    uint32_t what[N]; // packed: row, offset in the row, offset in the stage

    LANE void init(int64_t w_row, int lane) {
#pragma unroll
        for (int j = 0; j < N; j++) {
            const int i = lane + 32 * j, row = i / EACH, piece = i % EACH;
            from[j] = (int) (row * w_row) + 16 * piece;
            what[j] = (uint32_t) row << 26 | (uint32_t) (16 * piece) << 14 | (uint32_t) (row * S::PITCH + 16 * piece);
        }
    }
    // Copies the pieces of all 16 rows. Reads up to 32 bytes after a chunk whose size is not a multiple of 16.
    LANE void copy_all(const char *src, uint32_t to, int lane) const {
#pragma unroll
        for (int j = 0; j < N; j++) {
            if (32 * (j + 1) <= MMV_ROWS * EACH || lane + 32 * j < MMV_ROWS * EACH) {
                copy16(to + (what[j] & 0x3fff), src + from[j], 16);
            }
        }
    }
    LANE void copy(const char *src, int n_rows, int n_bytes, uint32_t to) const {
#pragma unroll
        for (int j = 0; j < N; j++) {
            if ((int) (what[j] >> 26) < n_rows && (int) (what[j] >> 14 & 0xfff) < n_bytes) {
                copy16(to + (what[j] & 0x3fff), src + from[j], 16);
            }
        }
    }
};

// Starts the copy of chunk p of the 16 rows of a tile into a stage. All pieces begin at multiples of 16 bytes, so a row in the
// stage keeps its misalignment.
template <class D>
LANE void mmv_fetch(const mmv_args &a, const char *w, const mmv_walk &walk, const mmv_place &p, const mmv_pieces<D> &pieces,
    uint32_t stage, int lane) {
    typedef mmv_stage<D> S;
    const int64_t row_bytes = (int64_t) (a.k / D::QK) * D::BYTES;
    const int64_t from = (int64_t) (p.part * walk.k_part + p.chunk) * S::BYTES;
    const int n_bytes = (int) min((int64_t) S::BYTES, row_bytes - from), row0 = p.tile * MMV_ROWS;
    const char *first = w + row0 * a.w_row + from;
    if (a.w_sixteens) {
        const int odd = (int) ((uintptr_t) first & 15);
        pieces.copy(first - odd, min(a.m - row0, (int) MMV_ROWS), odd + n_bytes, stage);
    } else {
        for (int i = lane; i < MMV_ROWS * S::PIECES; i += 32) {
            const int r = i / S::PIECES, piece = i % S::PIECES;
            const char *src = first + r * a.w_row;
            const int odd = (int) ((uintptr_t) src & 15), left = odd + n_bytes - piece * 16;
            if (row0 + r < a.m && left > 0) {
                copy16(stage + r * S::PITCH + piece * 16, src - odd + piece * 16, min(left, 16));
            }
        }
    }
    copy_commit();
}

// Loads elements k_from to k_from + k_n - 1 of the block's columns into shared memory. If XP is 2, their rounding residuals
// follow.
template <int XP, int WARPS>
LANE void mmv_columns(const mmv_args &a, int n, const uint16_t *x, int k_from, int k_n, int pitch, uint16_t *xs) {
    for (int piece = threadIdx.x; piece < k_n / 8; piece += WARPS * 32) {
#pragma unroll
        for (int part = 0; part < XP; part++) {
            const uint16_t *from = x + part * a.xh_rest * a.xh_col + k_from + piece * 8;
            uint16_t *to = xs + part * n * pitch + piece * 8;
            uint4 v[MMV_COLS];
#pragma unroll
            for (int c = 0; c < MMV_COLS; c++) {
                v[c] = c < n ? *reinterpret_cast<const uint4 *>(from + c * a.xh_col) : make_uint4(0, 0, 0, 0);
            }
#pragma unroll
            for (int c = 0; c < MMV_COLS; c++) {
                if (c < n) {
                    *reinterpret_cast<uint4 *>(to + c * pitch) = v[c];
                }
            }
        }
    }
    __syncthreads();
}

// Stores the rounding residuals of the decoded weights o in lo. Only f32 weights have residuals.
template <class D, class P> LANE void mmv_rest(const D &d, P p, int sub, int t, const uint32_t *o, uint32_t *lo) {
}
template <class P> LANE void mmv_rest(const decode_f32 &d, P p, int sub, int t, const uint32_t *o, uint32_t *lo) {
    d.rest(p, sub, t, o, lo);
}
template <class D> struct mmv_has_rest {
    enum { YES = 0 };
};
template <> struct mmv_has_rest<decode_f32> {
    enum { YES = 1 };
};

// Multiplies one sub of the thread's two rows with the columns. acc receives the products of run 0, `more` those of run 1.
template <class D, int XP, class P>
LANE void mmv_sub(
    const D &d0, const D &d1, P p0, P p1, int sub, uint32_t x_addr, uint32_t x_part, int t, float *acc, float *more) {
    uint32_t x[4], o0[4], o1[4];
    ldmatrix4(x_addr + 64 * sub, x);
    d0.get(p0, sub, t, o0);
    d1.get(p1, sub, t, o1);
    const uint32_t a0[4] = {o0[0], o1[0], o0[1], o1[1]}, a1[4] = {o0[2], o1[2], o0[3], o1[3]};
    mma16816<D::BF>(acc, a0, x[0], x[1]);
    mma16816<D::BF>(more, a1, x[2], x[3]);
    if (mmv_has_rest<D>::YES) {
        uint32_t l0[4], l1[4];
        mmv_rest(d0, p0, sub, t, o0, l0);
        mmv_rest(d1, p1, sub, t, o1, l1);
        const uint32_t b0[4] = {l0[0], l1[0], l0[1], l1[1]}, b1[4] = {l0[2], l1[2], l0[3], l1[3]};
        mma16816<D::BF>(acc, b0, x[0], x[1]);
        mma16816<D::BF>(more, b1, x[2], x[3]);
    }
    if (XP == 2) {
        ldmatrix4(x_addr + x_part + 64 * sub, x);
        mma16816<D::BF>(acc, a0, x[0], x[1]);
        mma16816<D::BF>(more, a1, x[2], x[3]);
    }
}

// Multiplies one chunk of the thread's two rows with the columns. valid: number of elements of the chunk that exist.
template <class D, int XP, class P>
LANE void mmv_chunk(P p0, P p1, int valid, uint32_t x_addr, uint32_t x_part, int t, float *acc, float *more) {
    D d0, d1;
    d0.prep(p0, valid);
    d1.prep(p1, valid);
    if (valid == D::CH) {
#pragma unroll
        for (int sub = 0; sub < D::CH / 32; sub++) {
            mmv_sub<D, XP, P>(d0, d1, p0, p1, sub, x_addr, x_part, t, acc, more);
        }
    } else {
#pragma unroll
        for (int sub = 0; sub < D::CH / 32; sub++) {
            if (sub * 32 < valid) {
                mmv_sub<D, XP, P>(d0, d1, p0, p1, sub, x_addr, x_part, t, acc, more);
            }
        }
    }
}

// Adds the sums of all warps for a tile and writes the result, or adds it to y if `add` is set. Called by one warp.
template <int WARPS>
LANE void mmv_store(const mmv_args &a, int n, const float *red, const float *scale, float *y, int row0, bool add, int lane) {
    const int r = lane / 2, j0 = lane % 2 * 4;
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll
    for (int i = 0; i < WARPS; i++) {
        const float4 v = reinterpret_cast<const float4 *>(red)[i * 32 + lane];
        sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
    }
    const float all[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if (j0 + i < n && row0 + r < a.m) {
            float *to = y + (j0 + i) * a.y_col + row0 + r;
            *to = add ? *to + all[i] * scale[j0 + i] : all[i] * scale[j0 + i];
        }
    }
}

// Combines the sums of all warps. A place is shared memory for the sums of one tile. There are MMV_TILES places, which the tiles
// use in turn. A warp stores its sums in the place of the tile and continues with the next tile. The warps take turns to add the
// sums of a tile.
// GPUs before sm_90 have no barriers in shared memory, so all warps wait at every tile.
template <int WARPS> struct mmv_meeting {
    float *red;
    uint32_t bars;   // two per place: all sums are stored; the place is free
    int place, warp; // place of the current tile; index of this warp
    uint32_t lap;    // parity of the barriers; it changes when all places have been used

    LANE void init(float *sums, uint32_t at, int w) {
        red = sums, bars = at, warp = w, place = 0, lap = 0;
#if __CUDA_ARCH__ >= 900
        if (threadIdx.x < MMV_TILES) {
            bar_init(bars + 16 * threadIdx.x, WARPS);
            bar_init(bars + 16 * threadIdx.x + 8, 1);
            asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
        }
#endif
    }
    // Stores the sums of this warp in the place of the current tile.
    LANE void put(const float *acc, int g, int t) {
        float *mine = red + (place * WARPS + warp) * 128;
#if __CUDA_ARCH__ >= 900
        bar_wait(bars + 16 * place + 8, lap ^ 1);
#endif
        *reinterpret_cast<float2 *>(mine + g * 8 + 2 * t) = make_float2(acc[0], acc[1]);
        *reinterpret_cast<float2 *>(mine + (g + 8) * 8 + 2 * t) = make_float2(acc[2], acc[3]);
#if __CUDA_ARCH__ >= 900
        __syncwarp();
        if (g + t == 0) {
            bar_arrive(bars + 16 * place);
        }
#else
        __syncthreads();
#endif
    }
    // If it is this warp's turn, waits for the sums of all warps and writes the result of the tile. Moves to the next place.
    LANE void store(const mmv_args &a, int n, const float *scale, float *y, int row0, bool add, int turn, int lane) {
        if (turn % WARPS == warp) {
#if __CUDA_ARCH__ >= 900
            bar_wait(bars + 16 * place, lap);
#endif
            mmv_store<WARPS>(a, n, red + place * WARPS * 128, scale, y, row0, add, lane);
#if __CUDA_ARCH__ >= 900
            __syncwarp();
            if (lane == 0) {
                bar_arrive(bars + 16 * place + 8);
            }
#endif
        }
        if (++place == MMV_TILES) {
            place = 0, lap ^= 1;
        }
    }
};

template <class D, int XP, int WARPS> LANE void mmv(const mmv_args &a) {
    typedef mmv_stage<D> S;
    extern __shared__ __align__(128) uint32_t smem[];
    float *red = reinterpret_cast<float *>(smem);                         // [MMV_TILES][warp][16 x 8], then the barriers
    const int n = min((int) MMV_COLS, a.n - (int) blockIdx.y * MMV_COLS); // columns of this block
    const int pitch = a.k_part * D::CH + 8;
    uint16_t *xs = reinterpret_cast<uint16_t *>(red + MMV_FIXED(WARPS) / 4);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const uint32_t ring_off = MMV_FIXED(WARPS) + XP * n * pitch * 2 + warp * a.n_stages * S::SIZE;
    const uint32_t ring = smem_addr(smem) + ring_off, meet_at = smem_addr(red + MMV_TILES * WARPS * 128);
    mmv_meeting<WARPS> meeting;
    meeting.init(red, meet_at, warp);

    let_next_start();
    const int z = blockIdx.z, i2 = z % a.ne2, i3 = z / a.ne2;
    const char *w = a.w + i2 / a.r2 * a.w_z2 + i3 / a.r3 * a.w_z3;
    const int col0 = blockIdx.y * MMV_COLS;
    const uint16_t *x = a.xh + z * a.xh_z + col0 * a.xh_col;
    const float *scale = a.scale + z * a.scale_z + col0;
    float *y = a.y + i2 * a.y_z2 + i3 * a.y_z3 + col0 * a.y_col;
    mmv_walk walk;
    walk.n_tiles = (a.m + MMV_ROWS - 1) / MMV_ROWS;
    walk.n_chunks = (a.k + D::CH - 1) / D::CH;
    walk.k_part = a.k_part;
    walk.n_parts = (walk.n_chunks + a.k_part - 1) / a.k_part;
    walk.warp = warp;
    mmv_pieces<D> pieces;
    pieces.init(a.w_row, lane);
    // Constant weights can be copied before the previous kernel ends.
    if (!a.w_const && a.wait) {
        wait_for_previous();
    }
    mmv_place next = {0, (int) blockIdx.x, warp};
    walk.settle(&next);
    for (int s = 0; s < a.n_stages - 1 && next.part < walk.n_parts; s++) {
        mmv_fetch<D>(a, w, walk, next, pieces, ring + s * S::SIZE, lane);
        next.chunk += WARPS;
        walk.settle(&next);
    }
    if (a.wait) {
        wait_for_previous();
    }
    int stage = 0, fill = a.n_stages - 1, turn = 0;
    const int col = lane % 8 < n ? lane % 8 : 0;
    const uint32_t x_addr = smem_addr(xs) + (col * pitch + lane / 8 * 8) * 2;
    for (int part = 0; part < walk.n_parts; part++) {
        __syncthreads();
        mmv_columns<XP, WARPS>(a, n, x, part * a.k_part * D::CH, walk.chunks_of(part) * D::CH, pitch, xs);
        for (int tile = blockIdx.x; tile < walk.n_tiles; tile += gridDim.x) {
            float acc[4] = {0, 0, 0, 0}, more[4] = {0, 0, 0, 0};
            for (int c = warp; c < walk.chunks_of(part); c += WARPS) {
                __syncwarp();
                copy_wait(next.part < walk.n_parts ? max(a.n_stages - 2, 0) : 0);
                __syncwarp();
                if (next.part < walk.n_parts) {
                    mmv_fetch<D>(a, w, walk, next, pieces, ring + fill * S::SIZE, lane);
                    next.chunk += WARPS;
                    walk.settle(&next);
                    fill = fill + 1 == a.n_stages ? 0 : fill + 1;
                }
                if (a.n_stages == 1) { // no chunk is copied ahead
                    copy_wait(0);
                    __syncwarp();
                }
                const int k = (part * a.k_part + c) * D::CH, valid = min((int) D::CH, a.k - k);
                const char *row = w + (int64_t) (tile * MMV_ROWS + g) * a.w_row + (int64_t) k / D::QK * D::BYTES;
                const uint32_t odd0 = (uint32_t) (uintptr_t) row & 15, odd1 = (uint32_t) (uintptr_t) (row + 8 * a.w_row) & 15;
                const uint32_t at = ring_off + stage * S::SIZE + g * S::PITCH, x_at = x_addr + c * D::CH * 2,
                               x_part = n * pitch * 2;
                if (a.w_fours) { // rows begin at multiples of 4 bytes, so chunks begin at multiples of 2
                    const uint32_t two = S::BYTES % 4 == 0 ? 0 : odd0 & 2;
                    const char *p0 = reinterpret_cast<const char *>(smem) + at + odd0 - two,
                               *p1 = p0 + 8 * S::PITCH + odd1 - odd0;
                    if (two == 0) {
                        mmv_chunk<D, XP, words>({p0, 0}, {p1, 0}, valid, x_at, x_part, t, acc, more);
                    } else {
                        mmv_chunk<D, XP, words>({p0, 2}, {p1, 2}, valid, x_at, x_part, t, acc, more);
                    }
                } else {
                    mmv_chunk<D, XP, bytes>(
                        {smem, at + odd0}, {smem, at + 8 * S::PITCH + odd1}, valid, x_at, x_part, t, acc, more);
                }
                stage = stage + 1 == a.n_stages ? 0 : stage + 1;
            }
#pragma unroll
            for (int i = 0; i < 4; i++) {
                acc[i] += more[i];
            }
            meeting.put(acc, g, t);
            meeting.store(a, n, scale, y, tile * MMV_ROWS, part > 0, turn++, lane);
        }
    }
}

// Types with large chunks have only the kernel with 8 warps.
#define MMV_KERNEL(name, type, parts, warps) \
    extern "C" __global__ void __launch_bounds__(warps * 32, 1) mmv_##name(const __grid_constant__ mmv_args a) { \
        mmv<decode_##type, parts, warps>(a); \
    }
#define MMV_KERNELS(name, type, parts) \
    MMV_KERNEL(name, type, parts, MMV_WARPS) \
    MMV_KERNEL(name##_8, type, parts, MMV_WARPS_LARGE)
