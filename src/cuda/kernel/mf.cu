// SPDX-License-Identifier: MIT
// mf.cu: kernel mf_f32, products of f32 rows with 2 to 8 f32 columns without rounding the operands. The columns are in shared
// memory.
// A piece is 16 bytes (4 floats) of a row. A turn is the four rows that a block computes at a time. In one pass, each thread
// processes one piece of each of the four rows. A turn takes as many passes as its rows need. Each thread loads the pieces of two
// passes in advance.
#include "mf_args.h"
#include "mv_block.cuh"

enum { MF_WARPS = MF_THREADS / 32, MF_SUMS = MF_ROWS * MF_COLS };
static_assert(MF_SUMS == 32, "each of the 32 threads of a warp ends with one sum");

// What one thread loads for one pass: one piece of each row of the turn.
struct mf_piece {
    uint4 w[MF_ROWS];
};
// The position of a block in its work.
struct mf_place {
    int turn, pass;
};

// The order in which a block processes its turns and their passes: block b processes turns b, b + gridDim.x, ...
struct mf_walk {
    const char *w;
    int n_turns, n_pieces, n_passes; // turns of all blocks; pieces per row; passes per turn

    LANE void next(mf_place *p) const {
        if (++p->pass == n_passes) {
            p->pass = 0;
            p->turn += gridDim.x;
        }
    }
    // For a row that does not exist, reads the last row.
    LANE void read(const mf_args &a, const mf_place &p, mf_piece *to) const {
        const int i = p.pass * MF_THREADS + threadIdx.x;
        if (p.turn < n_turns && i < n_pieces) {
#pragma unroll
            for (int r = 0; r < MF_ROWS; r++) {
                to->w[r] = mvb_read(w + min(p.turn * MF_ROWS + r, a.m - 1) * a.w_row + 16 * (int64_t) i, a.w_const);
            }
        }
    }
};

LANE float mf_dot(uint4 w, float4 x, float sum) {
    sum = fmaf(__uint_as_float(w.x), x.x, sum);
    sum = fmaf(__uint_as_float(w.y), x.y, sum);
    sum = fmaf(__uint_as_float(w.z), x.z, sum);
    return fmaf(__uint_as_float(w.w), x.w, sum);
}

// One step of a butterfly sum of 32 sums over a warp. After the steps 16, 8, 4, 2, 1, thread i holds total i in sum[0].
template <int HALF> LANE void mf_reduce(float *sum, int lane) {
    const bool upper = (lane & HALF) != 0;
#pragma unroll
    for (int j = 0; j < HALF; j++) {
        const float keep = upper ? sum[j + HALF] : sum[j], give = upper ? sum[j] : sum[j + HALF];
        sum[j] = keep + __shfl_xor_sync(~0u, give, HALF);
    }
}

struct mf_work {
    mf_walk walk;
    const float4 *xs; // [column][piece], in shared memory
    float *y, *red;   // y: result; red: [2][warp][row][column], in shared memory, two buffers for the sums of each warp
    int buffer;       // 0 or 1: the buffer of the current turn; turns alternate

    // Adds the products of the pieces at position p to sum[MF_SUMS]. After the last pass of a turn, stores the results of the
    // turn and sets the sums to 0. *piece holds the data of position p. Afterwards *piece holds the data of position *ahead, and
    // *ahead is advanced.
    LANE void step(const mf_args &a, mf_place p, mf_place *ahead, mf_piece *piece, float *sum) {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, i = p.pass * MF_THREADS + threadIdx.x;
        if (i < walk.n_pieces) {
#pragma unroll
            for (int c = 0; c < MF_COLS; c++) {
                const float4 x = xs[c * walk.n_pieces + i];
#pragma unroll
                for (int r = 0; r < MF_ROWS; r++) {
                    sum[r * MF_COLS + c] = mf_dot(piece->w[r], x, sum[r * MF_COLS + c]);
                }
            }
        }
        walk.read(a, *ahead, piece);
        walk.next(ahead);
        if (p.pass + 1 < walk.n_passes) {
            return;
        }
        mf_reduce<16>(sum, lane);
        mf_reduce<8>(sum, lane);
        mf_reduce<4>(sum, lane);
        mf_reduce<2>(sum, lane);
        mf_reduce<1>(sum, lane);
        red[(buffer * MF_WARPS + warp) * MF_SUMS + lane] = sum[0];
        __syncthreads();
        if (warp == p.turn / (int) gridDim.x % MF_WARPS) {
            float total = 0.0f;
#pragma unroll
            for (int j = 0; j < MF_WARPS; j++) {
                total += red[(buffer * MF_WARPS + j) * MF_SUMS + lane];
            }
            const int row = p.turn * MF_ROWS + lane / MF_COLS, col = lane % MF_COLS;
            if (row < a.m && col < a.n) {
                y[col * a.y_col + row] = total;
            }
        }
        buffer ^= 1;
#pragma unroll
        for (int j = 0; j < MF_SUMS; j++) {
            sum[j] = 0.0f;
        }
    }
};

extern "C" __global__ void __launch_bounds__(MF_THREADS, 1) mf_f32(const __grid_constant__ mf_args a) {
    extern __shared__ __align__(128) uint32_t smem[];
    let_next_start();
    if (a.wait && !a.w_const) {
        wait_for_previous();
    }
    const int i2 = blockIdx.z % a.ne2, i3 = blockIdx.z / a.ne2, n_pieces = a.k / 4;
    float *red = reinterpret_cast<float *>(smem);
    float4 *xs = reinterpret_cast<float4 *>(red + 2 * MF_WARPS * MF_SUMS);
    mf_work work = {{a.w + i2 / a.r2 * a.w_z2 + i3 / a.r3 * a.w_z3, (a.m + MF_ROWS - 1) / MF_ROWS, n_pieces,
                        (n_pieces + MF_THREADS - 1) / MF_THREADS},
        xs, a.y + i2 * a.y_z2 + i3 * a.y_z3, red, 0};
    mf_place at = {(int) blockIdx.x, 0}, ahead = at;
    mf_piece first, second;
    work.walk.read(a, ahead, &first);
    work.walk.next(&ahead);
    work.walk.read(a, ahead, &second);
    work.walk.next(&ahead);
    if (a.wait) {
        wait_for_previous();
    }
    const float *x = a.x + i2 * a.x_z2 + i3 * a.x_z3;
    for (int i = threadIdx.x; i < n_pieces; i += MF_THREADS) {
#pragma unroll
        for (int c = 0; c < MF_COLS; c++) {
            xs[c * n_pieces + i] = c < a.n ? reinterpret_cast<const float4 *>(x + c * a.x_col)[i] : make_float4(0, 0, 0, 0);
        }
    }
    __syncthreads();
    float sum[MF_SUMS];
#pragma unroll
    for (int j = 0; j < MF_SUMS; j++) {
        sum[j] = 0.0f;
    }
    while (at.turn < work.walk.n_turns) {
        work.step(a, at, &ahead, &first, sum);
        work.walk.next(&at);
        if (at.turn < work.walk.n_turns) {
            work.step(a, at, &ahead, &second, sum);
            work.walk.next(&at);
        }
    }
}
