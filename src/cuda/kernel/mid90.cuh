// SPDX-License-Identifier: MIT
// mid90.cuh: products with tiles of 8 to 64 columns on sm_90a (mid.cuh). All multiprocessors have work, even with few rows: the
// blocks of a cluster compute the same rows with different chunks of k and add their sums. A group of four warps is a warp group
// (wgmma.cuh).
//
// Shared memory: [barriers: MID_HEAD bytes] [columns: stage, chunk group] [rings: warp, stage]; later the sums, after the barriers.
#pragma once

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
            mid_rows_fetch<D>(a, w, n_rows, pieces, chunk_at(i), ring_at(i), lane);
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

LANE void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;\n" ::: "memory");
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
    mid_tile tile;
    if (!tile.init(a, blockIdx.z)) { // all blocks of the cluster have this tile
        return;
    }
    const int warp_row = 64 * b.row_group + 16 * (b.warp % 4);
    const char *w = tile.w + warp_row * a.w_row;
    const int n_chunks = (a.k + D::CH - 1) / D::CH, first = n_chunks * blockIdx.x / gridDim.x,
              end = n_chunks * (blockIdx.x + 1) / gridDim.x, n_rows = min(tile.part.m - tile.row0 - warp_row, (int) MMV_ROWS);
    b.first = first + b.chunk_group;
    b.n_own = max((end - b.first + b.n_chunk_groups - 1) / b.n_chunk_groups, 0);
    mmv_pieces<D> pieces;
    pieces.init(a.w_row, b.lane);
    mid_ring_clear<D>(a, smem, b.ring_at(0) - b.base, b.lane);
    // Constant weights can be copied before the previous kernel ends.
    for (int i = 0; i < a.n_stages - 1; i++) {
        b.fetch_rows(a, w, n_rows, pieces, i);
    }
    if (a.wait) {
        wait_for_previous();
    }
    const char *columns = tile.columns(a, NT);
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
        mid_rows<D> rows;
        rows.init(w + (int64_t) b.chunk_at(i) * S::BYTES, reinterpret_cast<const char *>(smem) + (b.ring_at(i) - b.base), b.lane);
        mid_chunk<D, NT>(b, rows, valid, i, c);
    }
    wgmma_pin<NT / 2>(c);
    __syncthreads();
    mid_sums_put<NT>(reinterpret_cast<float *>(smem) + MID_HEAD / 4, b.warp, b.lane, c);
    cluster_sync();
    mid_sums_store<NT>(a, tile, b.base + MID_HEAD, blockIdx.x, gridDim.x);
    cluster_sync(); // other blocks may still read the sums of this block
#endif
}
