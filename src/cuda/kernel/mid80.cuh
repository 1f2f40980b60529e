// SPDX-License-Identifier: MIT
// mid80.cuh: products with tiles of 8 to 64 columns (mid.cuh) on all GPUs that cannot run mid90.cuh, by the instruction mma.sync.
//
// A step multiplies 64 elements of the chunk of each chunk group. The columns of MID80_STEPS steps are in shared memory. All warps
// copy them, MID80_STEPS - 1 steps in advance. A commit group (cp.async) has the columns of one step and the rows whose copy starts in
// that step.
//
// Shared memory: [columns: stage, chunk group] [rings: warp, stage]; later the sums.
#pragma once

// Multiplies one step of a warp's rows (a, 4 operands) with the columns in shared memory (wgmma.cuh describes their layout).
template <class D, int NT> LANE void mid80_multiply(const uint32_t *a, uint32_t columns, int lane, float *c) {
    const int r = lane % 8, m = lane / 8; // ldmatrix: this lane has the address of row r of matrix m
    uint32_t b[4];
    if (NT == 8) { // the four matrices are 32 elements of 8 columns
#pragma unroll
        for (int j = 0; j < 4; j += 2) {
            ldmatrix4(columns + r * 128 + (((2 * j + m) ^ r) << 4), b);
            mma16816<D::BF>(c, a + 4 * j, b[0], b[1]);
            mma16816<D::BF>(c, a + 4 * j + 4, b[2], b[3]);
        }
        return;
    }
#pragma unroll
    for (int j = 0; j < 4; j++) {
#pragma unroll
        for (int i = 0; i < NT / 16; i++) { // the four matrices are 16 elements of 16 columns
            ldmatrix4(columns + (16 * i + m / 2 * 8 + r) * 128 + (((2 * j + m % 2) ^ r) << 4), b);
            mma16816<D::BF>(c + 8 * i, a + 4 * j, b[0], b[1]);
            mma16816<D::BF>(c + 8 * i + 4, a + 4 * j, b[2], b[3]);
        }
    }
}

template <class D, int NT> LANE void mid80(const mma_args &a) {
#if !defined(__CUDA_ARCH_FEAT_SM90_ALL)
    typedef mmv_stage<D> S;
    enum { STEPS = D::CH / 64, STEP_SIZE = NT * 128 }; // STEPS: steps per chunk; STEP_SIZE: bytes of one chunk group's columns
    static_assert(STEPS >= MID80_STEPS - 1, "with two stages, the rows of a chunk must be complete when its first step begins");
    extern __shared__ __align__(1024) uint32_t smem[];
    let_next_start();
    const uint32_t base = smem_addr(smem);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, n_chunk_groups = blockDim.x / 128 / a.n_row_groups;
    const int row_group = warp / 4 % a.n_row_groups, chunk_group = warp / 4 / a.n_row_groups;
    const int n_sharing = 128 * a.n_row_groups, sharing = threadIdx.x % n_sharing; // threads that copy this chunk group's columns
    const uint32_t columns = base + chunk_group * STEP_SIZE, stage_size = n_chunk_groups * STEP_SIZE;
    const uint32_t ring = MID80_STEPS * stage_size + warp * a.n_stages * S::SIZE; // byte in shared memory
    mid_tile tile;
    if (!tile.init(a, blockIdx.x)) {
        return;
    }
    const int warp_row = 64 * row_group + 16 * (warp % 4), n_rows = min(tile.part.m - tile.row0 - warp_row, (int) MMV_ROWS);
    const char *w = tile.w + warp_row * a.w_row;
    // A turn is an index in the list of a chunk group's chunks.
    const int n_chunks = (a.k + D::CH - 1) / D::CH, n_turns = (n_chunks + n_chunk_groups - 1) / n_chunk_groups;
    mmv_pieces<D> pieces;
    pieces.init(a.w_row, lane);
    mid_ring_clear<D>(a, smem, ring, lane);
    const auto fetch_rows = [&](int turn) {
        const int chunk = chunk_group + turn * n_chunk_groups;
        if (chunk < n_chunks) {
            mid_rows_fetch<D>(a, w, n_rows, pieces, chunk, base + ring + turn % a.n_stages * S::SIZE, lane);
        }
    };
    const char *from = tile.columns(a, NT);
    const auto fetch_columns = [&](int step) {
        const int chunk = chunk_group + step / STEPS * n_chunk_groups;
        if (chunk < n_chunks) {
            const char *src = from + ((int64_t) chunk * STEPS + step % STEPS) * STEP_SIZE;
            const uint32_t to = columns + step % MID80_STEPS * stage_size;
            for (int i = 16 * sharing; i < STEP_SIZE; i += 16 * n_sharing) {
                copy16(to + i, src + i, 16);
            }
        }
    };
    for (int i = 0; i < a.n_stages - 1; i++) { // constant weights can be copied before the previous kernel ends
        fetch_rows(i);
    }
    if (a.wait) {
        wait_for_previous();
    }
    for (int i = 0; i < MID80_STEPS - 1; i++) {
        fetch_columns(i);
        copy_commit();
    }
    float c[NT / 2];
#    pragma unroll
    for (int i = 0; i < NT / 2; i++) {
        c[i] = 0.0f;
    }
    for (int turn = 0; turn < n_turns; turn++) {
        const int chunk = chunk_group + turn * n_chunk_groups, valid = min((int) D::CH, a.k - chunk * D::CH);
        mid_rows<D> rows;
        rows.init(
            w + (int64_t) chunk * S::BYTES, reinterpret_cast<const char *>(smem) + ring + turn % a.n_stages * S::SIZE, lane);
#    pragma unroll
        for (int q = 0; q < STEPS; q++) {
            const int step = turn * STEPS + q;
            copy_wait(MID80_STEPS - 2);
            __syncthreads(); // the step's copies are complete, and the stage that is overwritten next is no longer read
            fetch_columns(step + MID80_STEPS - 1);
            if (q == 0) {
                fetch_rows(turn + a.n_stages - 1);
            }
            copy_commit();
            if (chunk < n_chunks) {
                if (q == 0) {
                    rows.prep(valid);
                }
                uint32_t operands[16];
                rows.step(q, lane % 4, operands);
                mid80_multiply<D, NT>(operands, columns + step % MID80_STEPS * stage_size, lane, c);
            }
        }
    }
    copy_wait(0);
    __syncthreads();
    mid_sums_put<NT>(reinterpret_cast<float *>(smem), warp, lane, c);
    __syncthreads();
    mid_sums_store<NT>(a, tile, base, 0, 1);
#endif
}
