// SPDX-License-Identifier: MIT
// mv.cuh: products of weights with one column. A warp computes two rows at a time, which share the loads of the column. The warp
// copies steps (pieces of both rows) in advance into its own ring in shared memory, so that memory is always busy.
// The column is in shared memory. For dense rows, it is stored as f32. For block formats, it is stored in 8 bits with a scale per
// sub. A sub is 32 consecutive elements, and a run is half of a sub (dot.cuh).
// Optional norm, addition and gate: mv_args.h.
#pragma once

#include "dot.cuh"
#include "gate.cuh"
#include "wgmma.cuh"

#include <float.h>

// MV_AHEAD and MV_NORMED: pieces of eight elements of the column that a thread loads per round. MV_NORMED is used if the column
// has a norm, and in mv_block.cuh.
enum { MV_THREADS = MV_WARPS * 32, MV_AHEAD = 4, MV_NORMED = 2 };
static_assert(MV_NORM_MAX <= MV_NORMED * MV_THREADS * 8, "a column with a norm is loaded in one round");

// ---- eight elements of the column ----

LANE float max_nan(float a, float b) { // unlike fmaxf, returns NaN if an operand is NaN
    float r;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
}
struct mv_eight {
    float4 a, b;
    LANE void set(const float4 *p) {
        a = p[0], b = p[1];
    }
    // Multiplies each element by f and by the element of `by`.
    LANE void scale(float f, const mv_eight &by) {
        a.x *= f * by.a.x, a.y *= f * by.a.y, a.z *= f * by.a.z, a.w *= f * by.a.w;
        b.x *= f * by.b.x, b.y *= f * by.b.y, b.z *= f * by.b.z, b.w *= f * by.b.w;
    }
    LANE static float max_abs4(float4 v) {
        return max_nan(max_nan(fabsf(v.x), fabsf(v.y)), max_nan(fabsf(v.z), fabsf(v.w)));
    }
    LANE static float sum_sq4(float4 v) {
        return v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
    }
    LANE float max_abs() const {
        return max_nan(max_abs4(a), max_abs4(b));
    }
    LANE float sum_sq() const {
        return sum_sq4(a) + sum_sq4(b);
    }
};

LANE float approx_rcp(float v) {
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
    return r;
}
// Multiplies by `inverse`, the reciprocal of the scale, and rounds to signed bytes. Products are at most 127 in magnitude. Adding
// 1.5 * 2^23 puts the integer into the lowest byte of the float.
LANE uint32_t mv_to_bytes(float4 v, float inverse) {
    const uint32_t x = __float_as_uint(fmaf(v.x, inverse, 12582912.0f)), y = __float_as_uint(fmaf(v.y, inverse, 12582912.0f)),
                   z = __float_as_uint(fmaf(v.z, inverse, 12582912.0f)), w = __float_as_uint(fmaf(v.w, inverse, 12582912.0f));
    return __byte_perm(__byte_perm(x, y, 0x0040), __byte_perm(z, w, 0x0040), 0x5410);
}

// ---- block formats: 32 or 64 elements per thread at a time ----

// The bytes of the warp's two rows at the current step.
struct mv_rows {
    bytes row[2];
};

// A type per value of SUBS, the number of subs that a thread processes together. The last parameter of mv_step has this type, so
// the compiler selects the mv_step for SUBS.
template <int N> struct mv_kind {};
template <class B>
LANE void mv_step(const B &t, const mv_rows &r, int from, int n, int k, const char *xs, int lane, float *sum, mv_kind<1>);
template <class B>
LANE void mv_step(const B &t, const mv_rows &r, int from, int n, int k, const char *xs, int lane, float *sum, mv_kind<2>);

template <class T> struct mv_blocks {
    enum { QK = T::QK, BYTES = T::BYTES, STEP = 2048, STEP_BYTES = STEP / QK * BYTES };
    T dot;

    // Layout of a column: first run 0 of all subs, then run 1 of all subs (16 bytes per run), then four floats per sub. The
    // floats are the scale, and the scale times the sum of run 0, of run 1 and of both.
    LANE static uint32_t column_size(int k) {
        return (uint32_t) (k / 32) * 48;
    }
    LANE void init(int lane) {
        dot.init(lane);
    }

    // Converts the eight elements v from element 8 i on to bytes. Four adjacent threads convert the 32 elements of a sub: the
    // first two threads convert run 0, the others run 1. All threads of a warp must call this function.
    LANE static void column_put(int i, const mv_eight &v, int k_n, char *xs) {
        const int n_sub = k_n / 32;
        float max_abs = v.max_abs();
        max_abs = max_nan(max_abs, __shfl_xor_sync(~0u, max_abs, 1));
        max_abs = max_nan(max_abs, __shfl_xor_sync(~0u, max_abs, 2));
        // 127 / max_abs, computed without overflow; 0 if max_abs is too small.
        const float inverse = max_abs >= 1e-36f ? 7.9375f * approx_rcp(max_abs * 0.0625f) : 0.0f;
        const uint32_t lo = mv_to_bytes(v.a, inverse), hi = mv_to_bytes(v.b, inverse);
        int sum = __dp4a((int) lo, 0x01010101, __dp4a((int) hi, 0x01010101, 0));
        sum += __shfl_xor_sync(~0u, sum, 1);
        const int other = __shfl_xor_sync(~0u, sum, 2);
        if (8 * i >= k_n) {
            return;
        }
        const uint32_t w = threadIdx.x % 4, sub = T::sub_place((uint32_t) i / 4, n_sub);
        reinterpret_cast<uint2 *>(xs)[(w / 2 * n_sub + sub) * 2 + w % 2] = make_uint2(lo, hi);
        if (w == 0) {
            const float d = max_abs <= FLT_MAX ? max_abs * (1.0f / 127.0f) : NAN; // bytes cannot represent infinity
            reinterpret_cast<float4 *>(xs)[2 * n_sub + sub] =
                make_float4(d, d * (float) sum, d * (float) other, d * (float) (sum + other));
        }
    }

    // Adds the products of sub i of the column with both rows to sum. half_off: offset in the step of the half (1,024 elements)
    // that has this sub: 0 or STEP_BYTES / 2.
    LANE void add_products(const mv_rows &r, uint32_t half_off, int i, int n_sub, const char *xs, float *sum) const {
        const int4 *x = reinterpret_cast<const int4 *>(xs) + i;
        const int4 a = x[0], b = x[n_sub];
        const float4 head = reinterpret_cast<const float4 *>(x)[2 * n_sub];
        sum[0] += dot.of(r.row[0].at(half_off), a, b, head);
        sum[1] += dot.of(r.row[1].at(half_off), a, b, head);
    }

    // Processes the thread's part of a step of n elements. from: first element of the step.
    LANE void step(const mv_rows &r, int from, int n, int k, const char *xs, int lane, float *sum) const {
        mv_step(*this, r, from, n, k, xs, lane, sum, mv_kind<T::SUBS>());
    }
};

// SUBS 1: each thread processes one sub of each half of the step.
template <class B>
LANE void mv_step(const B &t, const mv_rows &r, int from, int n, int k, const char *xs, int lane, float *sum, mv_kind<1>) {
    const int i = from / 32 + lane;
    if (lane * 32 < n) {
        t.add_products(r, 0, i, k / 32, xs, sum);
    }
    if (lane * 32 + 1024 < n) {
        t.add_products(r, B::STEP_BYTES / 2, i + 32, k / 32, xs, sum);
    }
}

// SUBS 2: each thread processes two subs that share bytes.
template <class B>
LANE void mv_step(const B &t, const mv_rows &r, int from, int n, int k, const char *xs, int lane, float *sum, mv_kind<2>) {
    const int n_sub = k / 32;
    if (lane * 64 >= n) {
        return;
    }
    const int4 *x = reinterpret_cast<const int4 *>(xs) + from / 64 + lane, *y = x + n_sub / 2;
    const dot_x x0 = {x[0], x[n_sub], reinterpret_cast<const float4 *>(x)[2 * n_sub]};
    const dot_x x1 = {y[0], y[n_sub], reinterpret_cast<const float4 *>(y)[2 * n_sub]};
    sum[0] += t.dot.of(r.row[0], x0, x1);
    sum[1] += t.dot.of(r.row[1], x0, x1);
}

// ---- dense rows ----

template <int TYPE> // 1 f16, 2 bf16
struct mv_dense {
    enum { QK = 1, BYTES = 2, STEP = 1024, STEP_BYTES = 2048 };
    LANE static uint32_t column_size(int k) {
        return (uint32_t) (k + 7) / 8 * 32;
    }
    LANE void init(int) {
    }
    // Layout: for all i the elements 8i to 8i + 3, then for all i the elements 8i + 4 to 8i + 7.
    LANE static void column_put(int i, const mv_eight &v, int k_n, char *xs) {
        float4 *to = reinterpret_cast<float4 *>(xs);
        if (8 * i < k_n) {
            to[i] = v.a, to[(k_n + 7) / 8 + i] = v.b;
        }
    }
    LANE static float add_pair(uint32_t w, float x0, float x1, float sum) {
        float a, b;
        if (TYPE == 1) {
            const float2 v = __half22float2(as_h2(w));
            a = v.x, b = v.y;
        } else {
            a = __uint_as_float(w << 16), b = __uint_as_float(w & 0xffff0000u);
        }
        return fmaf(b, x1, fmaf(a, x0, sum));
    }
    // Adds the products of elements 8i to 8i + 7. left: number of these elements that exist, if less than 8. Bytes after the row
    // are undefined.
    LANE static float add_eight(bytes row, int i, int left, float4 a, float4 b, float sum) {
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
        float more = add_pair(w[1], a.z, a.w, 0.0f);
        sum = add_pair(w[0], a.x, a.y, sum);
        more = add_pair(w[3], b.z, b.w, more);
        return add_pair(w[2], b.x, b.y, sum) + more;
    }
    LANE void step(const mv_rows &r, int from, int n, int k, const char *xs, int lane, float *sum) const {
        const int n8 = (k + 7) / 8;
        const float4 *xv = reinterpret_cast<const float4 *>(xs) + from / 8;
#pragma unroll
        for (int j = 0; j < STEP / 256; j++) {
            const int i = lane + 32 * j;
            if (i * 8 < n) {
                const float4 a = xv[i], b = xv[n8 + i];
                sum[0] = add_eight(r.row[0], i, n - i * 8, a, b, sum[0]);
                sum[1] = add_eight(r.row[1], i, n - i * 8, a, b, sum[1]);
            }
        }
    }
};

// f32 rows.
struct mv_floats {
    enum { QK = 1, BYTES = 4, STEP = 512, STEP_BYTES = 2048 };
    LANE static uint32_t column_size(int k) {
        return (uint32_t) (k + 7) / 8 * 32;
    }
    LANE void init(int) {
    }
    LANE static void column_put(int i, const mv_eight &v, int k_n, char *xs) {
        float4 *to = reinterpret_cast<float4 *>(xs) + 2 * i;
        if (8 * i < k_n) {
            to[0] = v.a, to[1] = v.b;
        }
    }
    LANE static float add_four(bytes row, int i, int left, float4 x, float sum) {
        float4 w;
        if (row.off % 16 == 0) {
            w = *reinterpret_cast<const float4 *>(row.base + ((row.off + 16 * i) >> 2));
        } else {
            const float *p = reinterpret_cast<const float *>(row.base + ((row.off + 16 * i) >> 2));
            w = make_float4(p[0], p[1], p[2], p[3]);
        }
        float more = left > 1 ? w.y * x.y : 0.0f;
        sum = fmaf(w.x, x.x, sum);
        if (left > 3) {
            more = fmaf(w.w, x.w, more);
        }
        return (left > 2 ? fmaf(w.z, x.z, sum) : sum) + more;
    }
    LANE void step(const mv_rows &r, int from, int n, int, const char *xs, int lane, float *sum) const {
        const float4 *xv = reinterpret_cast<const float4 *>(xs) + from / 4;
#pragma unroll
        for (int j = 0; j < STEP / 128; j++) {
            const int i = lane + 32 * j;
            if (i * 4 < n) {
                const float4 x = xv[i];
                sum[0] = add_four(r.row[0], i, n - i * 4, x, sum[0]);
                sum[1] = add_four(r.row[1], i, n - i * 4, x, sum[1]);
            }
        }
    }
};

// ---- loading the column ----

// Returns 1 / the root mean square of the column. sum: the thread's sum of squares. scratch: one float per warp, 64 bytes apart.
LANE float mv_inverse_rms(const mv_args &a, float sum, char *scratch) {
#pragma unroll
    for (int i = 16; i > 0; i /= 2) {
        sum += __shfl_xor_sync(~0u, sum, i);
    }
    if (threadIdx.x % 32 == 0) {
        *reinterpret_cast<float *>(scratch + threadIdx.x / 32 * 64) = sum;
    }
    __syncthreads();
    sum = 0.0f;
#pragma unroll
    for (int i = 0; i < MV_WARPS; i++) {
        sum += *reinterpret_cast<const float *>(scratch + i * 64);
    }
    return 1.0f / sqrtf(sum / (float) a.k + a.eps);
}

// Loads eight elements of a column of any length at any address; elements from k on are 0.
LANE mv_eight mv_load_eight(const float *x, int i, int k) {
    float v[8];
#pragma unroll
    for (int e = 0; e < 8; e++) {
        v[e] = 8 * i + e < k ? x[8 * i + e] : 0.0f;
    }
    return {make_float4(v[0], v[1], v[2], v[3]), make_float4(v[4], v[5], v[6], v[7])};
}
// mv_column for a column that is not aligned to 16 bytes, or whose length is not a multiple of 8.
template <class T> LANE void mv_odd_column(const mv_args &a, const float *x, char *xs, char *scratch) {
    float sum = 0.0f, f = 0.0f;
    if (a.norm != NULL) {
        for (int i = threadIdx.x; 8 * i < a.k; i += MV_THREADS) {
            sum += mv_load_eight(x, i, a.k).sum_sq();
        }
        f = mv_inverse_rms(a, sum, scratch);
    }
#pragma unroll 1
    for (int first = 0; 8 * first < a.k; first += MV_THREADS) {
        const int i = first + threadIdx.x;
        mv_eight v = mv_load_eight(x, i, a.k);
        if (a.norm != NULL) {
            v.scale(f, mv_load_eight(a.norm, i, a.k));
        }
        T::column_put(i, v, a.k, xs);
    }
}

// Loads AHEAD pieces of eight elements per thread, from piece `first` on. Issues all loads before the first use.
template <int AHEAD> LANE void mv_round(const mv_args &a, const float *x, int first, mv_eight *v) {
#pragma unroll
    for (int j = 0; j < AHEAD; j++) {
        const int i = first + j * MV_THREADS + threadIdx.x;
        v[j].a = v[j].b = make_float4(0, 0, 0, 0);
        if (8 * i < a.k) {
            v[j].set(reinterpret_cast<const float4 *>(x) + 2 * i);
        }
    }
}
// Writes to shared memory, in the format of T, the pieces that mv_round<AHEAD> has loaded.
template <class T, int AHEAD> LANE void mv_put_pieces(const mv_args &a, int first, const mv_eight *v, char *xs) {
#pragma unroll
    for (int j = 0; j < AHEAD; j++) {
        if (8 * (first + j * MV_THREADS + (int) (threadIdx.x & ~31u)) < a.k) { // true or false for all threads of a warp
            T::column_put(first + j * MV_THREADS + threadIdx.x, v[j], a.k, xs);
        }
    }
}

// Loads the column x into shared memory (xs) in the format of T. If there is a norm, applies it first. scratch: memory for
// mv_inverse_rms.
template <class T, int AHEAD> LANE void mv_column(const mv_args &a, const float *x, char *xs, char *scratch) {
    if ((((uintptr_t) x | (uintptr_t) a.norm) % 16 | a.k % 8) != 0) {
        mv_odd_column<T>(a, x, xs, scratch);
    } else if (a.norm != NULL) { // MV_NORM_MAX elements fit into one round
        mv_eight v[MV_NORMED], by[MV_NORMED];
        mv_round<MV_NORMED>(a, x, 0, v);
        mv_round<MV_NORMED>(a, a.norm, 0, by);
        float sum = 0.0f;
#pragma unroll
        for (int j = 0; j < MV_NORMED; j++) {
            sum += v[j].sum_sq();
        }
        const float f = mv_inverse_rms(a, sum, scratch);
#pragma unroll
        for (int j = 0; j < MV_NORMED; j++) {
            v[j].scale(f, by[j]);
        }
        mv_put_pieces<T, MV_NORMED>(a, 0, v, xs);
    } else {
        for (int first = 0; 8 * first < a.k; first += AHEAD * MV_THREADS) {
            mv_eight v[AHEAD];
            mv_round<AHEAD>(a, x, first, v);
            mv_put_pieces<T, AHEAD>(a, first, v, xs);
        }
    }
}

// ---- loop over rows ----

// A turn is two rows. Without a gate, they are neighbouring rows of one matrix. With a gate, they are row i of each of the two
// matrices. If the second row does not exist, the first row is processed twice.
struct mv_place {
    const char *w[2]; // rows at the next step, rounded down to 16 bytes
    int odd[2];       // bytes by which w was rounded down
    int left;         // bytes of a row that remain
    int turn;         // index of the turn
    int part, row;    // part: index of the matrix; row: its first row in this turn
};

// The order in which a warp processes its turns and their steps.
struct mv_walk {
    int64_t w_off;          // bytes from a.w[i] to the matrix of this product
    int row_bytes, n_turns; // bytes per row; turns of all warps
    LANE void init(const mv_args &a, int bytes) {
        row_bytes = bytes;
        n_turns = a.glu != MV_GLU_NONE ? a.m[0] : 0;
        for (int i = 0; i < a.n_parts && a.glu == MV_GLU_NONE; i++) {
            n_turns += (a.m[i] + 1) / 2;
        }
    }
    // Sets the fields of p from p->turn.
    LANE void find(const mv_args &a, mv_place *p) const {
        if (p->turn >= n_turns) {
            return;
        }
        p->part = 0, p->row = p->turn;
        if (a.glu == MV_GLU_NONE) {
            while (p->part < a.n_parts - 1 && p->row >= (a.m[p->part] + 1) / 2) {
                p->row -= (a.m[p->part++] + 1) / 2;
            }
            p->row *= 2;
        }
        const int64_t at = w_off + p->row * a.w_row;
        const char *first = a.w[p->part] + at;
        const char *second = a.glu != MV_GLU_NONE ? a.w[1] + at : p->row + 1 < a.m[p->part] ? first + a.w_row : first;
        p->odd[0] = (int) ((uintptr_t) first & 15), p->odd[1] = (int) ((uintptr_t) second & 15);
        p->w[0] = first - p->odd[0], p->w[1] = second - p->odd[1];
        p->left = row_bytes;
    }
    LANE void next_turn(const mv_args &a, mv_place *p) const {
        p->turn += gridDim.x * MV_WARPS;
        find(a, p);
    }
    LANE void next_step(const mv_args &a, mv_place *p, int step_bytes) const {
        p->left -= step_bytes;
        p->w[0] += step_bytes, p->w[1] += step_bytes;
        if (p->left <= 0) {
            next_turn(a, p);
        }
    }
};

// Starts the copy of one step of both rows into a stage of the ring, which is at address `to`. row_size: bytes per row in a
// stage.
template <class T> LANE void mv_fetch(const mv_place &p, uint32_t to, uint32_t row_size, uint32_t bar, int lane) {
    static_assert(T::STEP_BYTES % 16 == 0, "a row has the same misalignment at every step");
    const int n_bytes = min((int) T::STEP_BYTES, p.left);
#if __CUDA_ARCH__ >= 900
    if (lane == 0) {
        const int size[2] = {(p.odd[0] + n_bytes + 15) & ~15, (p.odd[1] + n_bytes + 15) & ~15};
        bar_expect(bar, size[0] + size[1]);
        bulk_copy(to, p.w[0], size[0], bar);
        bulk_copy(to + row_size, p.w[1], size[1], bar);
    }
#else
#    pragma unroll
    for (int r = 0; r < 2; r++) {
        for (int at = lane * 16; at < p.odd[r] + n_bytes; at += 512) {
            copy16(to + r * row_size + at, p.w[r] + at, min(p.odd[r] + n_bytes - at, 16));
        }
    }
#endif
}

// Sets *x to the column of the product blockIdx.z. Sets *w_off and *y_off to the offsets of this product in the weights and in
// the results. Returns false if its expert does not exist.
LANE bool mv_operands(const mv_args &a, int64_t *w_off, const float **x, int64_t *y_off) {
    const int z = blockIdx.z;
    *x = a.x;
    if (a.ids != NULL) {
        const int slot = z % a.n_used, token = z / a.n_used;
        const int expert = a.ids[token * a.ids_row + slot];
        *x += slot % a.x_ne1 * a.x_col + token * a.x_z2;
        *y_off = slot * a.y_col + token * a.y_z2;
        *w_off = expert * a.w_z2;
        return expert >= 0 && expert < a.n_experts;
    } else {
        const int i2 = z % a.ne2, i3 = z / a.ne2;
        *x += i2 * a.x_z2 + i3 * a.x_z3;
        *y_off = i2 * a.y_z2 + i3 * a.y_z3;
        *w_off = i2 / a.r2 * a.w_z2 + i3 / a.r3 * a.w_z3;
    }
    return true;
}

// The results of an expert that does not exist.
LANE void mv_zeros(const mv_args &a, int64_t y_off) {
    for (int i = blockIdx.x * MV_THREADS + threadIdx.x; i < a.m[0]; i += gridDim.x * MV_THREADS) {
        a.y[0][y_off + i] = 0.0f;
    }
}

// Threads 0 to 15 return the sum of the first row, threads 16 to 31 the sum of the second row.
LANE float mv_sum(const float *sum, int lane) {
    const bool second = lane >= 16;
    float mine = second ? sum[1] : sum[0];
    mine += __shfl_xor_sync(~0u, second ? sum[0] : sum[1], 16);
#pragma unroll
    for (int i = 8; i > 0; i /= 2) {
        mine += __shfl_xor_sync(~0u, mine, i);
    }
    return mine;
}

// Writes the results of a turn. sum: as mv_sum returns it. addend: the number to add to the sum (a.add).
LANE void mv_store(const mv_args &a, const mv_place &p, float sum, int64_t y_off, float addend, int lane) {
    if (a.glu != MV_GLU_NONE) {
        const float up = __shfl_down_sync(~0u, sum, 16);
        if (lane == 0) {
            a.y[0][y_off + p.row] = glu_gate(a.glu, sum) * up;
        }
    } else if (lane % 16 == 0 && p.row + lane / 16 < a.m[p.part]) {
        a.y[p.part][y_off + p.row + lane / 16] = sum + addend;
    }
}

template <class T> LANE void mv(const mv_args &a) {
    enum { ROW = (T::STEP_BYTES + 30) / 16 * 16 + 16, STAGE = 2 * ROW };
    extern __shared__ __align__(128) uint32_t smem[];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    // Layout: [per warp: barriers, then one float][column][rings].
    char *xs = reinterpret_cast<char *>(smem) + MV_WARPS * 64;
    const uint32_t ring_off = MV_WARPS * 64 + (T::column_size(a.k) + 15) / 16 * 16 + warp * a.n_stages * STAGE;
    const uint32_t ring = smem_addr(smem) + ring_off, bars = smem_addr(smem) + warp * 64;
    let_next_start();
    // Constant weights can be copied before the previous kernel ends.
    if (a.wait && (a.ids != NULL || !a.w_const)) {
        wait_for_previous();
    }
    const float *x;
    int64_t y_off;
    mv_walk walk;
    if (!mv_operands(a, &walk.w_off, &x, &y_off)) {
        mv_zeros(a, y_off);
        return;
    }
    walk.init(a, a.k / T::QK * T::BYTES);
    mv_place at;
    at.turn = blockIdx.x * MV_WARPS + warp;
    walk.find(a, &at);
    mv_place ahead = at;
#if __CUDA_ARCH__ >= 900
    if (lane < a.n_stages) {
        bar_init(bars + 8 * lane, 1);
        asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
    }
    __syncwarp();
#endif
    for (int s = 0; s < a.n_stages; s++) {
        if (ahead.turn < walk.n_turns) {
            mv_fetch<T>(ahead, ring + s * STAGE, ROW, bars + 8 * s, lane);
            walk.next_step(a, &ahead, T::STEP_BYTES);
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
    mv_column<T, MV_AHEAD>(a, x, xs, reinterpret_cast<char *>(smem) + 56);
    __syncthreads();
    int stage = 0;
    uint32_t lap = 0;
    while (at.turn < walk.n_turns) {
        const bool is_there = a.add != NULL && at.row + lane / 16 < a.m[at.part];
        const float addend = is_there ? a.add[at.row + lane / 16] : 0.0f;
        float sum[2] = {0.0f, 0.0f};
        for (int from = 0; from < a.k; from += T::STEP) {
#if __CUDA_ARCH__ >= 900
            bar_wait(bars + 8 * stage, lap);
#else
            copy_wait(a.n_stages - 1);
            __syncwarp();
#endif
            const uint32_t here = ring_off + stage * STAGE;
            const mv_rows rows = {{{smem, here + at.odd[0]}, {smem, here + ROW + at.odd[1]}}};
            t.step(rows, from, min((int) T::STEP, a.k - from), a.k, xs, lane, sum);
            __syncwarp();
            if (ahead.turn < walk.n_turns) {
                mv_fetch<T>(ahead, ring + stage * STAGE, ROW, bars + 8 * stage, lane);
                walk.next_step(a, &ahead, T::STEP_BYTES);
            }
#if __CUDA_ARCH__ < 900
            copy_commit();
#endif
            if (++stage == a.n_stages) {
                stage = 0, lap ^= 1;
            }
        }
        mv_store(a, at, mv_sum(sum, lane), y_off, addend, lane);
        walk.next_turn(a, &at);
    }
}

#define MV_KERNEL(name, type) \
    extern "C" __global__ void __launch_bounds__(MV_THREADS, 1) mv_##name(const __grid_constant__ mv_args a) { \
        mv<type>(a); \
    }
