// SPDX-License-Identifier: MIT
// mv.cuh: weights times one column. A warp has a row at a time: it copies steps of the row ahead into a ring of its own in shared
// memory, over the ends of rows, so that memory never rests; no warp waits for another. The column lies in shared memory: in
// 8 bits with a scale for 32 elements for block formats (dot.cuh), in floats for dense rows. Around the product: several matrices
// with one column, the norm of the column before, a sum or a gate behind (mv_args.h).
#pragma once

#include "dot.cuh"
#include "mv_args.h"
#include "wgmma.cuh"

enum { MV_THREADS = MV_WARPS * 32, MV_AHEAD = 4 };
static_assert(MV_NORM_MAX <= MV_AHEAD * MV_THREADS * 4, "a column with a norm is loaded in one round");

// ---- block formats: 32 elements a thread at a time, or 64 ----

template <int N>
struct mv_kind {};
template <class B>
LANE float mv_step(const B &t, bytes row, int from, int n, int k, const char *xs, int lane, mv_kind<1>);
template <class B>
LANE float mv_step(const B &t, bytes row, int from, int n, int k, const char *xs, int lane, mv_kind<2>);

template <class T>
struct mv_blocks {
    enum { QK = T::QK, BYTES = T::BYTES, STEP = 2048, STEP_BYTES = STEP / QK * BYTES };
    T dot;

    // Shared memory of a column of n_sub subs: two planes of 16 bytes a sub, then {scale, scaled sums of the two runs, of both}.
    LANE static uint32_t column_size(int k) { return (uint32_t) (k / 32) * 48; }
    LANE static int groups(int k) { return k / 4; }
    LANE void init(int lane) { dot.init(lane); }

    // Elements 4 i to 4 i + 3: eight threads that follow each other have a sub.
    LANE static void put(int i, float4 v, int k_n, char *xs) {
        const int n_sub = k_n / 32;
        float most = fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w)));
        const uint32_t mask = 0xffu << (threadIdx.x & 24);
#pragma unroll
        for (int j = 4; j > 0; j /= 2) {
            most = fmaxf(most, __shfl_xor_sync(mask, most, j));
        }
        const float up = most > 0.0f ? 127.0f / most : 0.0f;
        const int q0 = __float2int_rn(v.x * up), q1 = __float2int_rn(v.y * up), q2 = __float2int_rn(v.z * up),
                  q3 = __float2int_rn(v.w * up);
        int sum = q0 + q1 + q2 + q3;
        sum += __shfl_xor_sync(mask, sum, 1);
        sum += __shfl_xor_sync(mask, sum, 2);
        const int other = __shfl_xor_sync(mask, sum, 4);
        const int sub = T::place(i / 8, n_sub), w = i % 8;
        reinterpret_cast<uint32_t *>(xs)[(w / 4 * n_sub + sub) * 4 + w % 4] =
            (uint32_t) (q0 & 255) | (uint32_t) (q1 & 255) << 8 | (uint32_t) (q2 & 255) << 16 | (uint32_t) q3 << 24;
        if (w == 0) {
            const float d = most / 127.0f;
            reinterpret_cast<float4 *>(xs)[2 * n_sub + sub] = make_float4(d, d * (float) sum, d * (float) other, d * (float) (sum + other));
        }
    }

    LANE float one(bytes row, int i, int n_sub, const char *xs) const {
        const int4 *x = reinterpret_cast<const int4 *>(xs) + i;
        return dot.of(row, x[0], x[n_sub], reinterpret_cast<const float4 *>(x)[2 * n_sub]);
    }

    // The thread's part of a step of n elements, row: its bytes, from: its first element.
    LANE float step(bytes row, int from, int n, int k, const char *xs, int lane) const {
        return mv_step(*this, row, from, n, k, xs, lane, mv_kind<T::SUBS>());
    }
};

// A sub a thread, twice.
template <class B>
LANE float mv_step(const B &t, bytes row, int from, int n, int k, const char *xs, int lane, mv_kind<1>) {
    const int i = from / 32 + lane;
    if (n == B::STEP) {
        return t.one(row, i, k / 32, xs) + t.one(row.at(B::STEP_BYTES / 2), i + 32, k / 32, xs);
    }
    float sum = 0.0f;
    if (lane * 32 < n) {
        sum = t.one(row, i, k / 32, xs);
    }
    if (lane * 32 + 1024 < n) {
        sum += t.one(row.at(B::STEP_BYTES / 2), i + 32, k / 32, xs);
    }
    return sum;
}

// Two subs a thread that share bytes.
template <class B>
LANE float mv_step(const B &t, bytes row, int from, int n, int k, const char *xs, int lane, mv_kind<2>) {
    const int n_sub = k / 32;
    if (lane * 64 >= n) {
        return 0.0f;
    }
    const int4 *x  = reinterpret_cast<const int4 *>(xs) + from / 64 + lane, *y = x + n_sub / 2;
    const dot_x x0 = {x[0], x[n_sub], reinterpret_cast<const float4 *>(x)[2 * n_sub]};
    const dot_x x1 = {y[0], y[n_sub], reinterpret_cast<const float4 *>(y)[2 * n_sub]};
    return t.dot.of(row, x0, x1);
}

// ---- dense rows ----

template <int TYPE> // 1 f16, 2 bf16
struct mv_dense {
    enum { QK = 1, BYTES = 2, STEP = 1024, STEP_BYTES = 2048 };
    LANE static uint32_t column_size(int k) { return (uint32_t) (k + 7) / 8 * 32; }
    LANE static int groups(int k) { return (k + 7) / 8 * 2; }
    LANE void init(int) {}
    // planes of four: elements 8i..8i+3, then 8i+4..8i+7
    LANE static void put(int i, float4 v, int k_n, char *xs) {
        reinterpret_cast<float4 *>(xs)[i % 2 * ((k_n + 7) / 8) + i / 2] = v;
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
    // Eight elements of a row, of which `left` are there: what lies behind the row may be anything.
    LANE static float eight(bytes row, int i, int left, float4 a, float4 b, float sum) {
        uint32_t w[4];
        if (row.off % 16 == 0) {
            const uint4 v = *reinterpret_cast<const uint4 *>(row.base + ((row.off + 16 * i) >> 2));
            w[0] = v.x, w[1] = v.y, w[2] = v.z, w[3] = v.w;
        } else {
            words_at<4>(row, 16 * i, w);
        }
        if (left < 8) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                w[e] = 2 * e >= left ? 0 : 2 * e + 1 >= left ? w[e] & 0xffff : w[e];
            }
        }
        float more = pair(w[1], a.z, a.w, 0.0f);
        sum        = pair(w[0], a.x, a.y, sum);
        more       = pair(w[3], b.z, b.w, more);
        return pair(w[2], b.x, b.y, sum) + more;
    }
    LANE float step(bytes row, int from, int n, int k, const char *xs, int lane) const {
        const int n8     = (k + 7) / 8;
        const float4 *xv = reinterpret_cast<const float4 *>(xs) + from / 8;
        float sum        = 0.0f;
#pragma unroll
        for (int j = 0; j < STEP / 256; j++) {
            const int i = lane + 32 * j;
            if (i * 8 < n) {
                sum = eight(row, i, n - i * 8, xv[i], xv[n8 + i], sum);
            }
        }
        return sum;
    }
};

struct mv_floats {
    enum { QK = 1, BYTES = 4, STEP = 512, STEP_BYTES = 2048 };
    LANE static uint32_t column_size(int k) { return (uint32_t) (k + 3) / 4 * 16; }
    LANE static int groups(int k) { return (k + 3) / 4; }
    LANE void init(int) {}
    LANE static void put(int i, float4 v, int, char *xs) { reinterpret_cast<float4 *>(xs)[i] = v; }
    LANE static float four(bytes row, int i, int left, float4 x, float sum) {
        float4 w;
        if (row.off % 16 == 0) {
            w = *reinterpret_cast<const float4 *>(row.base + ((row.off + 16 * i) >> 2));
        } else {
            const float *p = reinterpret_cast<const float *>(row.base + ((row.off + 16 * i) >> 2));
            w              = make_float4(p[0], p[1], p[2], p[3]);
        }
        float more = left > 1 ? w.y * x.y : 0.0f;
        sum        = fmaf(w.x, x.x, sum);
        more       = left > 3 ? fmaf(w.w, x.w, more) : more;
        return (left > 2 ? fmaf(w.z, x.z, sum) : sum) + more;
    }
    LANE float step(bytes row, int from, int n, int k, const char *xs, int lane) const {
        const float4 *xv = reinterpret_cast<const float4 *>(xs) + from / 4;
        float sum        = 0.0f;
#pragma unroll
        for (int j = 0; j < STEP / 128; j++) {
            const int i = lane + 32 * j;
            if (i * 4 < n) {
                sum = four(row, i, n - i * 4, xv[i], sum);
            }
        }
        return sum;
    }
};

// ---- the column ----

LANE float4 mv_load(const float *x, int i, int k) {
    const float *p = x + 4 * i;
    if (4 * i + 4 <= k && (uintptr_t) x % 16 == 0) {
        return *reinterpret_cast<const float4 *>(p);
    }
    return make_float4(4 * i < k ? p[0] : 0.0f, 4 * i + 1 < k ? p[1] : 0.0f, 4 * i + 2 < k ? p[2] : 0.0f, 4 * i + 3 < k ? p[3] : 0.0f);
}

// One over the root mean square of all the values that the block's threads have. part: a float a warp, 64 bytes apart.
LANE float mv_rms(const mv_args &a, const float4 *v, char *part) {
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < MV_AHEAD; j++) {
        sum += v[j].x * v[j].x + v[j].y * v[j].y + v[j].z * v[j].z + v[j].w * v[j].w;
    }
#pragma unroll
    for (int i = 16; i > 0; i /= 2) {
        sum += __shfl_xor_sync(~0u, sum, i);
    }
    if (threadIdx.x % 32 == 0) {
        *reinterpret_cast<float *>(part + threadIdx.x / 32 * 64) = sum;
    }
    __syncthreads();
    sum = 0.0f;
#pragma unroll
    for (int i = 0; i < MV_WARPS; i++) {
        sum += *reinterpret_cast<const float *>(part + i * 64);
    }
    return 1.0f / sqrtf(sum / (float) a.k + a.eps);
}

// A thread's loads are all on their way before the first is used. With a norm the column fits into one round (MV_NORM_MAX).
template <class T>
LANE void mv_column(const mv_args &a, const float *x, char *xs, char *part) {
    const int n = T::groups(a.k);
    for (int first = 0; first < n; first += MV_AHEAD * MV_THREADS) {
        float4 v[MV_AHEAD], scale[MV_AHEAD];
#pragma unroll
        for (int j = 0; j < MV_AHEAD; j++) {
            const int i = first + j * MV_THREADS + threadIdx.x;
            v[j] = scale[j] = make_float4(0, 0, 0, 0);
            if (i < n) {
                v[j]     = mv_load(x, i, a.k);
                scale[j] = a.norm != NULL ? mv_load(a.norm, i, a.k) : scale[j];
            }
        }
        if (a.norm != NULL) {
            const float f = mv_rms(a, v, part);
#pragma unroll
            for (int j = 0; j < MV_AHEAD; j++) {
                v[j].x *= f * scale[j].x, v[j].y *= f * scale[j].y, v[j].z *= f * scale[j].z, v[j].w *= f * scale[j].w;
            }
        }
#pragma unroll
        for (int j = 0; j < MV_AHEAD; j++) {
            const int i = first + j * MV_THREADS + threadIdx.x;
            if (i < n) {
                T::put(i, v[j], a.k, xs);
            }
        }
    }
}

// ---- the walk over rows ----

// Rows of all parts follow each other; with a gate, row i of the one follows row i of the other, and a warp has both.
struct mv_place {
    const char *w;       // the row
    int row, step;       // of all rows; of its steps
    int part, part_row; // which matrix, and which of its rows
};

struct mv_walk {
    int64_t w_off;
    int n_steps, n_rows;
    LANE void find(const mv_args &a, mv_place *p) const {
        if (a.glu != MV_GLU_NONE) {
            p->part = p->row & 1, p->part_row = p->row >> 1;
        } else {
            p->part = 0, p->part_row = p->row;
            while (p->part < a.n_parts - 1 && p->part_row >= a.m[p->part]) {
                p->part_row -= a.m[p->part++];
            }
        }
        p->w = a.w[p->part] + w_off + p->part_row * a.w_row;
    }
    LANE void next(const mv_args &a, mv_place *p) const {
        if (++p->step < n_steps) {
            return;
        }
        p->step = 0;
        if (a.glu != MV_GLU_NONE) {
            p->row += p->row & 1 ? (int) gridDim.x * MV_WARPS * 2 - 1 : 1;
        } else {
            p->row += gridDim.x * MV_WARPS;
        }
        if (p->row < n_rows) {
            find(a, p);
        }
    }
};

template <class T>
LANE void mv_fetch(const mv_args &a, const mv_place &p, uint32_t to, uint32_t bar, int lane) {
    const int from    = p.step * T::STEP_BYTES;
    const int n_bytes = min((int) T::STEP_BYTES, (int) (a.k / T::QK * T::BYTES) - from);
    const char *src   = p.w + from;
    const int odd     = (int) ((uintptr_t) src & 15);
#if __CUDA_ARCH__ >= 900
    if (lane == 0) {
        const int size = (odd + n_bytes + 15) & ~15;
        bar_expect(bar, size);
        bulk_copy(to, src - odd, size, bar);
    }
#else
    for (int at = lane * 16; at < odd + n_bytes; at += 512) {
        copy16(to + at, src - odd + at, min(odd + n_bytes - at, 16));
    }
#endif
}

// Which weights, column and result a block has.
LANE void mv_operands(const mv_args &a, int64_t *w_off, const float **x, int64_t *y_off) {
    const int z = blockIdx.z;
    *x = a.x;
    if (a.ids != NULL) {
        const int slot = z % a.n_used, token = z / a.n_used;
        const int expert = a.ids[token * a.ids_row + slot];
        *x += slot % a.x_ne1 * a.x_col + token * a.x_z2;
        *y_off = slot * a.y_col + token * a.y_z2;
        *w_off = (expert >= 0 && expert < a.n_experts ? expert : 0) * a.w_z2;
    } else {
        const int i2 = z % a.ne2, i3 = z / a.ne2;
        *x += i2 * a.x_z2 + i3 * a.x_z3;
        *y_off = i2 * a.y_z2 + i3 * a.y_z3;
        *w_off = i2 / a.r2 * a.w_z2 + i3 / a.r3 * a.w_z3;
    }
}

LANE float mv_gate(int glu, float x) {
    if (glu == MV_GLU_SWIGLU) {
        return x / (1.0f + __expf(-x));
    }
    return 0.5f * x * (1.0f + tanhf(0.79788456080286535588f * x * (1.0f + 0.044715f * x * x)));
}

template <class T>
LANE void mv(const mv_args &a) {
    enum { STAGE = (T::STEP_BYTES + 30) / 16 * 16 + 16 };
    extern __shared__ __align__(128) uint32_t smem[];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    // [a warp's barriers, and a float behind them][column][rings]
    char *xs                = reinterpret_cast<char *>(smem) + MV_WARPS * 64;
    const uint32_t ring_off = MV_WARPS * 64 + (T::column_size(a.k) + 15) / 16 * 16 + warp * a.n_stages * STAGE;
    const uint32_t ring = smem_addr(smem) + ring_off, bars = smem_addr(smem) + warp * 64;
    let_next_start();
    // Weights may be on their way before the kernel ahead has written the column.
    if (a.wait && (a.ids != NULL || !a.w_const)) {
        wait_for_previous();
    }
    const float *x;
    int64_t y_off;
    mv_walk walk;
    mv_operands(a, &walk.w_off, &x, &y_off);
    walk.n_steps = (a.k + T::STEP - 1) / T::STEP;
    walk.n_rows  = 0;
    for (int i = 0; i < a.n_parts; i++) {
        walk.n_rows += a.m[i];
    }
    mv_place at = {NULL, (int) (blockIdx.x * MV_WARPS + warp) * (a.glu != MV_GLU_NONE ? 2 : 1), 0, 0, 0};
    if (at.row < walk.n_rows) {
        walk.find(a, &at);
    }
    mv_place ahead = at;
#if __CUDA_ARCH__ >= 900
    if (lane < a.n_stages) {
        bar_init(bars + 8 * lane, 1);
        asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
    }
    __syncwarp();
#endif
    for (int s = 0; s < a.n_stages; s++) {
        if (ahead.row < walk.n_rows) {
            mv_fetch<T>(a, ahead, ring + s * STAGE, bars + 8 * s, lane);
            walk.next(a, &ahead);
        }
#if __CUDA_ARCH__ < 900
        copy_commit();
#endif
    }
    if (a.wait) {
        wait_for_previous();
    }
    T t;
    t.init(lane);
    mv_column<T>(a, x, xs, reinterpret_cast<char *>(smem) + 56);
    __syncthreads();
    int stage    = 0;
    uint32_t lap = 0;
    float gate   = 0.0f;
    while (at.row < walk.n_rows) {
        const int part = at.part, row = at.part_row;
        const float more = a.add != NULL ? a.add[row] : 0.0f;
        float sum        = 0.0f;
        for (int step = 0; step < walk.n_steps; step++) {
#if __CUDA_ARCH__ >= 900
            bar_wait(bars + 8 * stage, lap);
#else
            copy_wait(a.n_stages - 1);
            __syncwarp();
#endif
            const uint32_t odd = (uint32_t) (uintptr_t) (at.w + step * T::STEP_BYTES) & 15;
            const bytes here   = {smem, ring_off + stage * STAGE + odd};
            sum += t.step(here, step * T::STEP, min((int) T::STEP, a.k - step * T::STEP), a.k, xs, lane);
            __syncwarp();
            if (ahead.row < walk.n_rows) {
                mv_fetch<T>(a, ahead, ring + stage * STAGE, bars + 8 * stage, lane);
                walk.next(a, &ahead);
            }
#if __CUDA_ARCH__ < 900
            copy_commit();
#endif
            if (++stage == a.n_stages) {
                stage = 0, lap ^= 1;
            }
        }
        at.step = walk.n_steps - 1;
        walk.next(a, &at);
#pragma unroll
        for (int i = 16; i > 0; i /= 2) {
            sum += __shfl_xor_sync(~0u, sum, i);
        }
        if (a.glu != MV_GLU_NONE && part == 0) {
            gate = sum;
        } else if (lane == 0) {
            float *y = a.y[a.glu != MV_GLU_NONE ? 0 : part] + y_off;
            y[row]   = a.glu != MV_GLU_NONE ? mv_gate(a.glu, gate) * sum : sum + more;
        }
    }
}

#define MV_KERNEL(name, type) \
    extern "C" __global__ void __launch_bounds__(MV_THREADS, 2) mv_##name(const __grid_constant__ mv_args a) { \
        mv<type>(a); \
    }
