// SPDX-License-Identifier: MIT
// mv_block.cuh: products of dense weights with one column, for rows that begin at multiples of 16 bytes. A block computes four
// rows at a time and reads them from begin to end, which is the fastest access pattern. Each thread loads the next pieces into
// registers while it adds the current pieces. Norm, addition and gate: mv_args.h.
#pragma once

#include "mv.cuh"

enum { MVB_ROWS = 4 };

// is_const: no kernel of the graph writes the memory. Other memory must not be read by ld.global.nc, because the compiler could
// move that read before wait_for_previous().
LANE uint4 mvb_read(const char *p, bool is_const) {
    uint4 v;
    if (is_const) {
        asm volatile("ld.global.nc.L1::no_allocate.v4.b32 {%0,%1,%2,%3}, [%4];\n"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "l"(p));
    } else {
        asm volatile("ld.global.L1::no_allocate.v4.b32 {%0,%1,%2,%3}, [%4];\n"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "l"(p)
                     : "memory");
    }
    return v;
}

template <int TYPE> // 1 f16, 2 bf16, as in mv_dense
struct mvb_16 : mv_dense<TYPE> {
    enum { PIECE = 8 };
    float4 a, b;
    LANE void column(int i, int k, const char *xs) { // loads the column elements of piece i
        const float4 *x = reinterpret_cast<const float4 *>(xs) + i;
        a = x[0], b = x[k / 8];
    }
    LANE float dot(uint4 w, float sum) const {
        float more = this->add_pair(w.y, a.z, a.w, 0.0f);
        sum = this->add_pair(w.x, a.x, a.y, sum);
        more = this->add_pair(w.w, b.z, b.w, more);
        return this->add_pair(w.z, b.x, b.y, sum) + more;
    }
};
struct mvb_32 : mv_floats {
    enum { PIECE = 4 };
    float4 x;
    LANE void column(int i, int, const char *xs) {
        x = reinterpret_cast<const float4 *>(xs)[i];
    }
    LANE float dot(uint4 w, float sum) const {
        const float more = fmaf(__uint_as_float(w.w), x.w, __uint_as_float(w.y) * x.y);
        return fmaf(__uint_as_float(w.z), x.z, fmaf(__uint_as_float(w.x), x.x, sum)) + more;
    }
};

// A turn is four rows. Without a gate, they are neighbouring rows of one matrix. With a gate, they are two neighbouring rows of
// each of the two matrices. For a missing row, another row is read.
struct mvb_place {
    const char *p0, *p1, *p2, *p3; // the rows, at the thread's next piece
    int turn, part, row, end;      // end: one past the last row of the turn
};

struct mvb_walk {
    int64_t w_off, step; // step: bytes from the end of a turn to the block's next turn
    int per;             // rows per turn of each matrix
    LANE int turns(const mv_args &a, int part) const {
        return (a.m[part] + per - 1) / per;
    }
    LANE void init(const mv_args &a, int n_pieces) {
        per = a.glu != MV_GLU_NONE ? 2 : 4;
        step = (int64_t) gridDim.x * per * a.w_row - (n_pieces + MV_THREADS - 1) / MV_THREADS * (16 * MV_THREADS);
    }
    // Sets the fields of p from p->turn.
    LANE void find(const mv_args &a, mvb_place *p) const {
        p->part = 0, p->row = p->turn;
        while (a.glu == MV_GLU_NONE && p->part < a.n_parts - 1 && p->row >= turns(a, p->part)) {
            p->row -= turns(a, p->part++);
        }
        p->row = p->turn < a.n_full ? p->row * per : a.n_full * per + (p->turn - a.n_full) * a.n_last;
        p->end = min(a.m[p->part], p->row + (p->turn < a.n_full ? per : a.n_last));
        const int64_t at = w_off + p->row * a.w_row + 16 * (int) threadIdx.x;
        const int left = p->end - p->row;
        const char *second = a.glu != MV_GLU_NONE ? a.w[1] + at : a.w[p->part] + at + (left > 2 ? 2 * a.w_row : 0);
        p->p0 = a.w[p->part] + at;
        p->p1 = p->p0 + (left > 1 ? a.w_row : 0);
        p->p2 = second;
        p->p3 = second + (left > per - 1 ? a.w_row : 0);
    }
    // Moves p to the block's next turn. Most turns are a constant distance apart, so their addresses need only an addition.
    LANE void next(const mv_args &a, mvb_place *p) const {
        p->turn += gridDim.x;
        if (p->turn < a.n_full && p->row + (int) (gridDim.x + 1) * per <= a.m[p->part]) {
            p->row += gridDim.x * per;
            p->end = p->row + per;
            p->p0 += step, p->p1 += step, p->p2 += step, p->p3 += step;
        } else if (p->turn < a.n_turns) {
            find(a, p);
        }
    }
};

// Thread i returns the sum of row i / 8.
LANE float mvb_sum(const float *sum, int lane) {
    const bool upper = lane >= 16, odd = lane % 16 >= 8;
    float a = upper ? sum[2] : sum[0], b = upper ? sum[3] : sum[1];
    a += __shfl_xor_sync(~0u, upper ? sum[0] : sum[2], 16);
    b += __shfl_xor_sync(~0u, upper ? sum[1] : sum[3], 16);
    float mine = odd ? b : a;
    mine += __shfl_xor_sync(~0u, odd ? a : b, 8);
#pragma unroll
    for (int i = 4; i > 0; i /= 2) {
        mine += __shfl_xor_sync(~0u, mine, i);
    }
    return mine;
}

// Adds the sums of all warps and writes the results of a turn. Called by one warp. red: [warp][row].
LANE void mvb_store(const mv_args &a, int part, int row, int end, const float *red, int64_t y_off, int lane) {
    float sum = red[lane] + red[lane + 32];
    sum += __shfl_xor_sync(~0u, sum, 4);
    sum += __shfl_xor_sync(~0u, sum, 8);
    sum += __shfl_xor_sync(~0u, sum, 16);
    const float up = __shfl_down_sync(~0u, sum, 2);
    if (a.glu != MV_GLU_NONE) {
        if (lane < 2 && row + lane < end) {
            a.y[0][y_off + row + lane] = glu_gate(a.glu, sum) * up;
        }
    } else if (lane < 4 && row + lane < end) {
        a.y[part][y_off + row + lane] = a.add != NULL ? sum + a.add[row + lane] : sum;
    }
}

template <class T> LANE void mv_block(const mv_args &a) {
    static_assert(MV_WARPS * MVB_ROWS == 64, "in mvb_store, each of 32 threads reads two of the 64 sums");
    extern __shared__ __align__(128) uint32_t smem[];
    __shared__ float red[2][MV_WARPS * MVB_ROWS];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    char *xs = reinterpret_cast<char *>(smem) + MV_WARPS * 64;
    let_next_start();
    if (a.wait && (a.ids != NULL || !a.w_const)) {
        wait_for_previous();
    }
    const float *x;
    int64_t y_off;
    mvb_walk walk;
    if (!mv_operands(a, &walk.w_off, &x, &y_off)) {
        mv_zeros(a, y_off);
        return;
    }
    const int n_pieces = a.k / T::PIECE;
    walk.init(a, n_pieces);
    mvb_place at;
    uint4 w0, w1, w2, w3;
    w0 = w1 = w2 = w3 = make_uint4(0, 0, 0, 0);
    at.turn = blockIdx.x;
    if (at.turn < a.n_turns) {
        walk.find(a, &at);
        if (threadIdx.x < n_pieces) {
            w0 = mvb_read(at.p0, a.w_const), w1 = mvb_read(at.p1, a.w_const), w2 = mvb_read(at.p2, a.w_const),
            w3 = mvb_read(at.p3, a.w_const);
        }
    }
    if (a.wait) {
        wait_for_previous();
    }
    mv_column<T, MV_NORMED>(a, x, xs, reinterpret_cast<char *>(smem) + 56);
    __syncthreads();
    int buffer = 0;
    while (at.turn < a.n_turns) {
        float sum[MVB_ROWS] = {0, 0, 0, 0};
        int turn = at.turn, part = at.part, row = at.row, end = at.end;
        for (int first = 0; first < n_pieces; first += MV_THREADS) {
            const int i = first + threadIdx.x;
            T t;
            if (i < n_pieces) {
                t.column(i, a.k, xs);
                sum[0] = t.dot(w0, sum[0]), sum[1] = t.dot(w1, sum[1]), sum[2] = t.dot(w2, sum[2]), sum[3] = t.dot(w3, sum[3]);
            }
            int next = i + MV_THREADS; // piece to load: the next piece, or the first of the next turn
            at.p0 += 16 * MV_THREADS, at.p1 += 16 * MV_THREADS, at.p2 += 16 * MV_THREADS, at.p3 += 16 * MV_THREADS;
            if (first + MV_THREADS >= n_pieces) {
                walk.next(a, &at);
                next = at.turn < a.n_turns ? threadIdx.x : n_pieces;
            }
            if (next < n_pieces) {
                w0 = mvb_read(at.p0, a.w_const), w1 = mvb_read(at.p1, a.w_const), w2 = mvb_read(at.p2, a.w_const),
                w3 = mvb_read(at.p3, a.w_const);
            }
        }
        const float mine = mvb_sum(sum, lane);
        if (lane % 8 == 0) {
            red[buffer][warp * MVB_ROWS + lane / 8] = mine;
        }
        __syncthreads();
        if (warp == (turn / (int) gridDim.x) % MV_WARPS) {
            mvb_store(a, part, row, end, red[buffer], y_off, lane);
        }
        buffer ^= 1;
    }
}

#define MVB_KERNEL(name, type) \
    extern "C" __global__ void __launch_bounds__(MV_THREADS, MVB_BLOCKS) mvb_##name(const __grid_constant__ mv_args a) { \
        mv_block<type>(a); \
    }
