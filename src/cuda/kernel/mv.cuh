// SPDX-License-Identifier: MIT
// mv.cuh: weights times one column. A warp has a row at a time: it copies steps of the row ahead into a ring of its own in shared
// memory, over the ends of rows, so that memory never rests; no warp waits for another. The column lies in shared memory: in
// 8 bits with a scale for 32 elements for block formats (dot.cuh), in floats for dense rows. Takes mmv_args with n = 1.
#pragma once

#include "dot.cuh"
#include "mmv_args.h"
#include "wgmma.cuh"

enum { MV_WARPS = 16 };

// ---- block formats: 32 elements a thread at a time ----

template <class T>
struct mv_blocks {
    enum { QK = T::QK, BYTES = T::BYTES, STEP = 2048, STEP_BYTES = STEP / QK * BYTES };
    T dot;

    // Shared memory of a column of n_sub subs: two planes of 16 bytes a sub, then {scale, scaled sums of the two runs, of both}.
    LANE static uint32_t column_size(int k) { return (uint32_t) (k / 32) * 48; }
    LANE void init(int lane) { dot.init(lane); }

    LANE static void column(const float *x, int k_n, char *xs) {
        const int n_sub = k_n / 32;
        for (int i = threadIdx.x; i < n_sub * 8; i += MV_WARPS * 32) {
            const float *from = x + 4 * i;
            const float a = from[0], b = from[1], c = from[2], d = from[3];
            float most = fmaxf(fmaxf(fabsf(a), fabsf(b)), fmaxf(fabsf(c), fabsf(d)));
            const uint32_t mask = 0xffu << (threadIdx.x & 24);
#pragma unroll
            for (int j = 4; j > 0; j /= 2) {
                most = fmaxf(most, __shfl_xor_sync(mask, most, j));
            }
            const float up = most > 0.0f ? 127.0f / most : 0.0f;
            const int q0 = __float2int_rn(a * up), q1 = __float2int_rn(b * up), q2 = __float2int_rn(c * up),
                      q3 = __float2int_rn(d * up);
            int sum = q0 + q1 + q2 + q3;
            sum += __shfl_xor_sync(mask, sum, 1);
            sum += __shfl_xor_sync(mask, sum, 2);
            const int other = __shfl_xor_sync(mask, sum, 4);
            const int sub = i / 8, w = i % 8;
            reinterpret_cast<uint32_t *>(xs)[(w / 4 * n_sub + sub) * 4 + w % 4] =
                (uint32_t) (q0 & 255) | (uint32_t) (q1 & 255) << 8 | (uint32_t) (q2 & 255) << 16 | (uint32_t) q3 << 24;
            if (w == 0) {
                const float d = most / 127.0f;
                reinterpret_cast<float4 *>(xs)[2 * n_sub + sub] =
                    make_float4(d, d * (float) sum, d * (float) other, d * (float) (sum + other));
            }
        }
    }

    LANE float one(bytes row, int i, int n_sub, const char *xs) const {
        const int4 *x = reinterpret_cast<const int4 *>(xs) + i;
        return dot.of(row, x[0], x[n_sub], reinterpret_cast<const float4 *>(x)[2 * n_sub]);
    }

    // The thread's part of a step of n elements, row: its bytes, from: its first element.
    LANE float step(bytes row, int from, int n, int k, const char *xs, int lane) const {
        const int i = from / 32 + lane;
        float sum   = 0.0f;
        if (n == STEP) {
            sum = one(row, i, k / 32, xs) + one(row.at(STEP_BYTES / 2), i + 32, k / 32, xs);
        } else {
            if (lane * 32 < n) {
                sum = one(row, i, k / 32, xs);
            }
            if (lane * 32 + 1024 < n) {
                sum += one(row.at(STEP_BYTES / 2), i + 32, k / 32, xs);
            }
        }
        return sum;
    }
};

// ---- dense rows ----

template <int TYPE> // 1 f16, 2 bf16
struct mv_dense {
    enum { QK = 1, BYTES = 2, STEP = 1024, STEP_BYTES = 2048 };
    LANE static uint32_t column_size(int k) { return (uint32_t) (k + 7) / 8 * 32; }
    LANE void init(int) {}
    LANE static void column(const float *x, int k_n, char *xs) {
        // planes of four: elements 8i..8i+3, then 8i+4..8i+7
        const int n8 = (k_n + 7) / 8;
#pragma unroll 4
        for (int i = threadIdx.x; i < n8 * 8; i += MV_WARPS * 32) {
            reinterpret_cast<float *>(xs)[(i % 8 / 4 * n8 + i / 8) * 4 + i % 4] = i < k_n ? x[i] : 0.0f;
        }
    }
    LANE static float pair(uint32_t w, float x0, float x1, float sum) {
        float a, b;
        if (TYPE == 1) {
            const float2 v = __half22float2(as_h2(w));
            a = v.x, b = v.y;
        } else {
            a = __uint_as_float(w << 16), b = __uint_as_float(w & 0xffff0000u);
        }
        return fmaf(b, x1, fmaf(a, x0, sum));
    }
    LANE float step(bytes row, int from, int n, int k, const char *xs, int lane) const {
        const int n8     = (k + 7) / 8;
        const float4 *xv = reinterpret_cast<const float4 *>(xs) + from / 8;
        float sum = 0.0f, more = 0.0f;
#pragma unroll
        for (int j = 0; j < STEP / 256; j++) {
            const int i = lane + 32 * j;
            if (i * 8 < n) {
                const float4 a = xv[i], b = xv[n8 + i];
                uint32_t w[4];
                if (row.off % 16 == 0) {
                    const uint4 v = *reinterpret_cast<const uint4 *>(row.base + ((row.off + 16 * i) >> 2));
                    w[0] = v.x, w[1] = v.y, w[2] = v.z, w[3] = v.w;
                } else {
                    words_at<4>(row, 16 * i, w);
                }
                if (i * 8 + 8 > n) { // what lies behind the row may be anything
#pragma unroll
                    for (int e = 0; e < 4; e++) {
                        const int at = i * 8 + 2 * e;
                        w[e]         = at >= n ? 0 : at + 1 >= n ? w[e] & 0xffff : w[e];
                    }
                }
                sum  = pair(w[0], a.x, a.y, sum);
                more = pair(w[1], a.z, a.w, more);
                sum  = pair(w[2], b.x, b.y, sum);
                more = pair(w[3], b.z, b.w, more);
            }
        }
        return sum + more;
    }
};

struct mv_floats {
    enum { QK = 1, BYTES = 4, STEP = 512, STEP_BYTES = 2048 };
    LANE static uint32_t column_size(int k) { return (uint32_t) (k + 3) / 4 * 16; }
    LANE void init(int) {}
    LANE static void column(const float *x, int k_n, char *xs) {
#pragma unroll 4
        for (int i = threadIdx.x; i < (k_n + 3) / 4 * 4; i += MV_WARPS * 32) {
            reinterpret_cast<float *>(xs)[i] = i < k_n ? x[i] : 0.0f;
        }
    }
    LANE float step(bytes row, int from, int n, int k, const char *xs, int lane) const {
        const float4 *xv = reinterpret_cast<const float4 *>(xs) + from / 4;
        float sum = 0.0f, more = 0.0f;
#pragma unroll
        for (int j = 0; j < STEP / 128; j++) {
            const int i = lane + 32 * j;
            if (i * 4 < n) {
                const float4 x = xv[i];
                float4 w;
                if (row.off % 16 == 0) {
                    w = *reinterpret_cast<const float4 *>(row.base + ((row.off + 16 * i) >> 2));
                } else {
                    const float *p = reinterpret_cast<const float *>(row.base + ((row.off + 16 * i) >> 2));
                    w              = make_float4(p[0], p[1], p[2], p[3]);
                }
                sum  = fmaf(w.x, x.x, sum);
                more = i * 4 + 1 < n ? fmaf(w.y, x.y, more) : more;
                sum  = i * 4 + 2 < n ? fmaf(w.z, x.z, sum) : sum;
                more = i * 4 + 3 < n ? fmaf(w.w, x.w, more) : more;
            }
        }
        return sum + more;
    }
};

// ---- the walk over rows ----

// Where the next copy comes from, and goes.
struct mv_next {
    const char *from; // of the row, NULL when all is on its way
    int row, step, stage;
};

template <class T>
LANE void mv_fetch(const mmv_args &a, const char *w, mv_next *next, int n_steps, uint32_t ring, uint32_t bars, int lane) {
    enum { STAGE = (T::STEP_BYTES + 30) / 16 * 16 + 16 };
    if (next->row < a.m) {
        const int from     = next->step * T::STEP_BYTES;
        const int n_bytes  = min((int) T::STEP_BYTES, (int) (a.k / T::QK * T::BYTES) - from);
        const char *src    = next->from + from;
        const int odd      = (int) ((uintptr_t) src & 15);
        const uint32_t to  = ring + next->stage * STAGE;
#if __CUDA_ARCH__ >= 900
        if (lane == 0) {
            const int size = (odd + n_bytes + 15) & ~15;
            bar_expect(bars + 8 * next->stage, size);
            bulk_copy(to, src - odd, size, bars + 8 * next->stage);
        }
#else
        for (int at = lane * 16; at < odd + n_bytes; at += 512) {
            copy16(to + at, src - odd + at, min(odd + n_bytes - at, 16));
        }
#endif
        next->stage = next->stage + 1 == a.n_stages ? 0 : next->stage + 1;
        if (++next->step == n_steps) {
            next->step = 0;
            next->row += gridDim.x * MV_WARPS;
            next->from += (int64_t) gridDim.x * MV_WARPS * a.w_row;
        }
    }
#if __CUDA_ARCH__ < 900
    copy_commit();
#endif
}

// Which weights, column and result a block has.
LANE void mv_operands(const mmv_args &a, const char **w, const float **x, float **y) {
    const int z = blockIdx.z;
    *w = a.w, *x = a.x, *y = a.y;
    if (a.ids != NULL) {
        const int slot = z % a.n_used, token = z / a.n_used;
        const int expert = a.ids[token * a.ids_row + slot];
        *x += slot % a.x_ne1 * a.x_col + token * a.x_z2;
        *y += slot * a.y_col + token * a.y_z2;
        *w += (expert >= 0 && expert < a.n_experts ? expert : 0) * a.w_z2;
    } else {
        const int i2 = z % a.ne2, i3 = z / a.ne2;
        *w += i2 / a.r2 * a.w_z2 + i3 / a.r3 * a.w_z3;
        *x += i2 * a.x_z2 + i3 * a.x_z3;
        *y += i2 * a.y_z2 + i3 * a.y_z3;
    }
}

template <class T>
LANE void mv(const mmv_args &a) {
    enum { STAGE = (T::STEP_BYTES + 30) / 16 * 16 + 16 };
    extern __shared__ __align__(128) uint32_t smem[];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const uint32_t bars     = smem_addr(smem) + warp * 64;
    const uint32_t ring_off = MV_WARPS * 64 + (T::column_size(a.k) + 15) / 16 * 16 + warp * a.n_stages * STAGE;
    const uint32_t ring     = smem_addr(smem) + ring_off;
    char *xs                = reinterpret_cast<char *>(smem) + MV_WARPS * 64;
    let_next_start();
    // Weights may be on their way before the kernel ahead has written the column.
    if (a.wait && (a.ids != NULL || !a.w_const)) {
        wait_for_previous();
    }
    const char *w;
    const float *x;
    float *y;
    mv_operands(a, &w, &x, &y);
    const int n_steps = (a.k + T::STEP - 1) / T::STEP, row0 = blockIdx.x * MV_WARPS + warp;
    mv_next next      = {w + row0 * a.w_row, row0, 0, 0};
#if __CUDA_ARCH__ >= 900
    if (lane < a.n_stages) {
        bar_init(bars + 8 * lane, 1);
        asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
    }
    __syncwarp();
#endif
    for (int s = 0; s < a.n_stages - 1; s++) {
        mv_fetch<T>(a, w, &next, n_steps, ring, bars, lane);
    }
    if (a.wait) {
        wait_for_previous();
    }
    T t;
    t.init(lane);
    T::column(x, a.k, xs);
    __syncthreads();
    int stage    = 0;
    uint32_t lap = 0;
    w += row0 * a.w_row;
    for (int row = row0; row < a.m; row += gridDim.x * MV_WARPS) {
        float sum = 0.0f;
        for (int step = 0; step < n_steps; step++) {
#if __CUDA_ARCH__ < 900
            copy_wait(a.n_stages - 2);
#endif
            __syncwarp();
            mv_fetch<T>(a, w, &next, n_steps, ring, bars, lane);
#if __CUDA_ARCH__ >= 900
            bar_wait(bars + 8 * stage, lap);
#endif
            const uint32_t odd = (uint32_t) (uintptr_t) (w + step * T::STEP_BYTES) & 15;
            const bytes at     = {smem, ring_off + stage * STAGE + odd};
            sum += t.step(at, step * T::STEP, min((int) T::STEP, a.k - step * T::STEP), a.k, xs, lane);
            if (++stage == a.n_stages) {
                stage = 0, lap ^= 1;
            }
        }
        w += (int64_t) gridDim.x * MV_WARPS * a.w_row;
#pragma unroll
        for (int i = 16; i > 0; i /= 2) {
            sum += __shfl_xor_sync(~0u, sum, i);
        }
        if (lane == 0) {
            y[row] = sum;
        }
    }
}

#define MV_KERNEL(name, type) \
    extern "C" __global__ void __launch_bounds__(MV_WARPS * 32, 2) mv_##name(const __grid_constant__ mmv_args a) { \
        mv<type>(a); \
    }
