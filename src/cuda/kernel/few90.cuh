// SPDX-License-Identifier: MIT
// few90.cuh: products with 2 to 16 columns on sm_90a, at the speed of memory. Terms, and the layout of the columns: few_args.h.
//
// A block loops over tiles of 16 rows. Two warps copy the steps of the tiles into a ring in shared memory. 16 warps form
// two groups, which multiply the steps in turn, one chunk per warp. At the end of a tile, the sums of the warps are added. Block
// formats are multiplied with columns in 8 bits, dense weights with columns in f16 or bf16, both on tensor cores.
// If the columns do not fit into shared memory, they are divided into parts. The block processes FEW_BATCH of its tiles at a time,
// once per part. A round is one part of one batch.
#pragma once

#include "act_few.cuh"
#include "few_args.h"
#include "few_blocks.cuh"
#include "gate.cuh"
#include "wgmma.cuh"

// ---- one chunk ----

// c = zero + a * b. a: 16 rows of 32 weights (mma_8_sub) or of 16 weights (mma_8_run).
template <bool U8>
LANE void mma_8_sub(int *c, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1, const int *zero) {
    if (U8) {
        asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};\n"
            : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
            : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "r"(zero[0]), "r"(zero[1]), "r"(zero[2]), "r"(zero[3]));
    } else {
        asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};\n"
            : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
            : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "r"(zero[0]), "r"(zero[1]), "r"(zero[2]), "r"(zero[3]));
    }
}
LANE void mma_8_run(int *c, uint32_t a0, uint32_t a1, uint32_t b, const int *zero) {
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%7,%8,%9,%10};\n"
        : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
        : "r"(a0), "r"(a1), "r"(b), "r"(zero[0]), "r"(zero[1]), "r"(zero[2]), "r"(zero[3]));
}

// What a thread (g, t) knows of the columns. It supplies elements of column `col` to the products. Its sums belong to rows g and
// g + 8 and columns 2t and 2t + 1.
// There are NB groups of 8 columns.
template <int NB> struct few_lane {
    int g, t, n, col[NB], pair[NB]; // n: columns of a record; pair: pair of columns of its sums, or a pair that exists
    // The integer sums start at the bits of the float 1.5 * 2^23, so that they can be used as floats (dot.cuh).
    int zero[4];
    LANE void init(int lane, int n_columns) {
        g = lane / 4, t = lane % 4, n = n_columns;
#pragma unroll
        for (int b = 0; b < NB; b++) {
            col[b] = (8 * b + g) % n, pair[b] = min(4 * b + t, (n + 1) / 2 - 1);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            asm volatile("mov.b32 %0, 0x4b400000;\n" : "=r"(zero[i]));
        }
    }
};

// sum += scale of the row * scale of the column * integer sum. dx: the scales of columns 2t and 2t + 1. Scales of columns have at
// most 22 significant bits, so that their products with 1.5 * 2^23 (less) are exact.
LANE void few_add(const int *c, float2 dx, float2 less, float s0, float s1, float *sum) {
    sum[0] = fmaf(fmaf(__int_as_float(c[0]), dx.x, less.x), s0, sum[0]);
    sum[1] = fmaf(fmaf(__int_as_float(c[1]), dx.y, less.y), s0, sum[1]);
    sum[2] = fmaf(fmaf(__int_as_float(c[2]), dx.x, less.x), s1, sum[2]);
    sum[3] = fmaf(fmaf(__int_as_float(c[3]), dx.y, less.y), s1, sum[3]);
}

// Adds the products of chunks of rows g (p0) and g + 8 (p1) with the record x. n_sub: number of subs that exist.
template <class D, int NB, bool FULL, class P>
LANE void few_chunk_8(P p0, P p1, int n_sub, const char *x, const few_lane<NB> &l, float *acc) {
    D d0, d1;
    d0.prep(p0);
    d1.prep(p1);
    const int n_pairs = (l.n + 1) / 2;
    const char *xd = x + 256 * l.n, *xq = x + 16 * l.t;
    float part[4 * NB], less_part[4 * NB]; // less_part: with LESS 2, the products with the minimums
#pragma unroll
    for (int i = 0; i < 4 * NB; i++) {
        part[i] = less_part[i] = 0.0f;
    }
    float *sum = D::SUPER ? part : acc;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        if (!FULL && 2 * j >= n_sub) {
            break;
        }
        uint4 q[NB];
        float4 d[NB];
#pragma unroll
        for (int b = 0; b < NB; b++) {
            q[b] = *reinterpret_cast<const uint4 *>(xq + 64 * (j * l.n + l.col[b]));
            d[b] = *reinterpret_cast<const float4 *>(xd + 16 * (j * n_pairs + l.pair[b]));
        }
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int sub = 2 * j + i;
            if (!FULL && sub >= n_sub) {
                break;
            }
            uint32_t w0[2], w1[2];
            float s0[2], s1[2];
            d0.get(p0, sub, l.t, w0);
            d1.get(p1, sub, l.t, w1);
#pragma unroll
            for (int r = 0; r < D::RUNS; r++) {
                s0[r] = d0.scale(p0, sub, r), s1[r] = d1.scale(p1, sub, r);
            }
#pragma unroll
            for (int b = 0; b < NB; b++) {
                const float2 dx = i == 0 ? make_float2(d[b].x, d[b].y) : make_float2(d[b].z, d[b].w);
                const float2 less = make_float2(dx.x * -12582912.0f, dx.y * -12582912.0f);
                const uint32_t x0 = i == 0 ? q[b].x : q[b].z, x1 = i == 0 ? q[b].y : q[b].w;
                int c[4];
                if (D::RUNS == 1) {
                    mma_8_sub<D::U8 != 0>(c, w0[0], w1[0], w0[1], w1[1], x0, x1, l.zero);
                    few_add(c, dx, less, s0[0], s1[0], sum + 4 * b);
                }
#pragma unroll
                for (int r = 0; r < 2 && D::RUNS == 2; r++) {
                    mma_8_run(c, w0[r], w1[r], r == 0 ? x0 : x1, l.zero);
                    few_add(c, dx, less, s0[r], s1[r], sum + 4 * b);
                    if (D::LESS == 2) { // weights of 1 give the sum of the run
                        mma_8_run(c, 0x01010101u, 0x01010101u, r == 0 ? x0 : x1, l.zero);
                        few_add(c, dx, less, d0.less(p0, sub, r), d1.less(p1, sub, r), less_part + 4 * b);
                    }
                }
            }
        }
    }
    if (D::SUPER) {
#pragma unroll
        for (int i = 0; i < 4 * NB; i++) {
            acc[i] = fmaf(i % 4 < 2 ? d0.d : d1.d, part[i], acc[i]);
            if (D::LESS == 2) {
                acc[i] = fmaf(i % 4 < 2 ? -d0.dmin : -d1.dmin, less_part[i], acc[i]);
            }
        }
    }
    if (D::LESS == 1) { // the sums of the subs are a matrix of 8 subs by 8 columns, multiplied with the rows' minimums
        float m[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int sub = 2 * l.t + i % 2;
            m[i] = 0.0f;
            if (FULL || sub < n_sub) {
                m[i] = i < 2 ? d0.less(p0, sub, 0) : d1.less(p1, sub, 0);
            }
        }
        const uint32_t m0 = bf2_pack(m[0], m[1]), m1 = bf2_pack(m[2], m[3]);
        const uint32_t a[4] = {m0, m1, m0, m1};
        const uint32_t r0 = bf2_pack(m[0] - __uint_as_float(m0 << 16), m[1] - __uint_as_float(m0 & 0xffff0000u));
        const uint32_t r1 = bf2_pack(m[2] - __uint_as_float(m1 << 16), m[3] - __uint_as_float(m1 & 0xffff0000u));
        const uint32_t rest[4] = {r0, r1, r0, r1};
#pragma unroll
        for (int b = 0; b < NB; b++) {
            const uint2 s = *reinterpret_cast<const uint2 *>(xd + 64 * n_pairs + 32 * l.col[b] + 8 * l.t);
            float c[4] = {0, 0, 0, 0};
            mma16816<true>(c, a, s.x, s.y);
            if (!D::SUPER) { // f16 minimums have more bits than bf16
                mma16816<true>(c, rest, s.x, s.y);
            }
#pragma unroll
            for (int i = 0; i < 4; i++) {
                acc[4 * b + i] -= D::SUPER ? (i < 2 ? d0.dmin : d1.dmin) * c[i] : c[i];
            }
        }
    }
}

template <class D, int N_BLOCKS> struct few_8 {
    enum { CH = 256, NB = N_BLOCKS, IS_DENSE = 0, ROW_BYTES = CH / D::QK * D::BYTES, STEP_BYTES = FEW_CHUNKS * ROW_BYTES };
    // Rows begin in different banks: 16 bytes apart modulo 128.
    enum { PITCH = (STEP_BYTES + 111) / 128 * 128 + 16 };
    static constexpr float FACTOR = D::FACTOR * 16777216.0f;
    LANE static uint32_t record(int n) {
        return FEW_RECORD_8(n);
    }
    LANE static void chunk(const char *stage, int c, int k_left, const char *x, const few_lane<NB> &l, float *acc) {
        const char *p = stage + l.g * PITCH + c * ROW_BYTES;
        const int n_sub = k_left / 32;
        if (ROW_BYTES % 4 != 0 && (c & 1) != 0) { // the chunk begins 2 bytes after a multiple of 4
            p -= 2;
            few_chunk_8<D, NB, true, words>({p, 2}, {p + 8 * PITCH, 2}, 8, x, l, acc);
        } else if (D::QK == 256 || n_sub >= 8) {
            few_chunk_8<D, NB, true, words>({p, 0}, {p + 8 * PITCH, 0}, 8, x, l, acc);
        } else {
            few_chunk_8<D, NB, false, words>({p, 0}, {p + 8 * PITCH, 0}, n_sub, x, l, acc);
        }
    }
};

template <bool BF, int N_BLOCKS> struct few_16 {
    enum { CH = 64, NB = N_BLOCKS, IS_DENSE = 1, ROW_BYTES = 128, STEP_BYTES = FEW_CHUNKS * ROW_BYTES, PITCH = STEP_BYTES + 64 };
    static constexpr float FACTOR = 1.0f;
    LANE static uint32_t record(int n) {
        return FEW_RECORD_16(n);
    }
    LANE static void chunk(const char *stage, int c, int, const char *x, const few_lane<NB> &l, float *acc) {
        const char *p = stage + l.g * PITCH + c * ROW_BYTES + 16 * l.t;
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const uint4 u = *reinterpret_cast<const uint4 *>(p + 64 * j),
                        v = *reinterpret_cast<const uint4 *>(p + 8 * PITCH + 64 * j);
            const uint32_t a0[4] = {u.x, v.x, u.y, v.y}, a1[4] = {u.z, v.z, u.w, v.w};
#pragma unroll
            for (int b = 0; b < NB; b++) {
                const uint4 q = *reinterpret_cast<const uint4 *>(x + 64 * (j * l.n + l.col[b]) + 16 * l.t);
                mma16816<BF>(acc + 4 * b, a0, q.x, q.y);
                mma16816<BF>(acc + 4 * b, a1, q.z, q.w);
            }
        }
    }
};

// ---- tiles ----

// The rows of a tile. Without a gate, they are neighbouring rows of one matrix. With a gate, they are 8 neighbouring rows of each
// of the two matrices.
struct few_tile {
    int part, row; // matrix and first row
    LANE void find(const few_args &a, int tile) {
        part = 0;
        if (a.glu != MV_GLU_NONE) {
            row = tile * 8;
            return;
        }
        while (part < a.n_parts - 1 && tile >= (a.m[part] + FEW_ROWS - 1) / FEW_ROWS) {
            tile -= (a.m[part++] + FEW_ROWS - 1) / FEW_ROWS;
        }
        row = tile * FEW_ROWS;
    }
    // Address of row i < 16 of the tile. A missing row is replaced by the last row.
    LANE const char *at(const few_args &a, int i) const {
        const int p = a.glu != MV_GLU_NONE ? i / 8 : part, r = a.glu != MV_GLU_NONE ? row + i % 8 : row + i;
        return a.w[p] + min(r, a.m[p] - 1) * a.w_row;
    }
    // Writes the results of a tile for eight columns from col0 on. v: sums of rows g and g + 8 and columns 2t and 2t + 1.
    LANE void store(const few_args &a, const float *v, int col0, int g, int t) const {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int col = col0 + 2 * t + i;
            if (col >= a.n) {
                continue;
            }
            const float f = a.scale != NULL ? a.scale[col] : 1.0f;
            if (a.glu != MV_GLU_NONE) {
                if (row + g < a.m[0]) {
                    a.y[0][col * a.y_col[0] + row + g] = glu_gate(a.glu, v[i] * f) * (v[i + 2] * f);
                }
                continue;
            }
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const int r = row + g + 8 * j;
                if (r < a.m[part]) {
                    const float addend = a.add != NULL ? a.add[col * a.add_col + r] : 0.0f;
                    a.y[part][col * a.y_col[part] + r] = v[i + 2 * j] * f + addend;
                }
            }
        }
    }
};

// Barriers in shared memory, 8 bytes each: full and empty per stage, stored and free per place, one for the end of a round, then one per step of the columns.
struct few_bars {
    uint32_t base;
    LANE uint32_t full(int stage) const {
        return base + 16 * stage;
    }
    LANE uint32_t empty(int stage) const {
        return base + 16 * stage + 8;
    }
    LANE uint32_t stored(int place) const {
        return base + 16 * (FEW_STAGES + place);
    }
    LANE uint32_t is_free(int place) const {
        return base + 16 * (FEW_STAGES + place) + 8;
    }
    LANE uint32_t round_done() const {
        return base + 16 * (FEW_STAGES + FEW_PLACES);
    }
    LANE uint32_t columns(int step) const {
        return base + 16 * (FEW_STAGES + FEW_PLACES) + 8 + 8 * step;
    }
    LANE void init(const few_args &a) const {
        for (int i = 0; i < a.n_stages; i++) {
            bar_init(full(i), FEW_COPIERS);
            bar_init(empty(i), FEW_CHUNKS);
        }
        for (int i = 0; i < FEW_PLACES; i++) {
            bar_init(stored(i), FEW_WARPS);
            bar_init(is_free(i), 1);
        }
        bar_init(round_done(), FEW_WARPS);
        for (int i = 0; i < a.part_steps; i++) {
            bar_init(columns(i), 1);
        }
        asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
    }
};
static_assert(16 * (FEW_STAGES + FEW_PLACES) + 8 + 8 * FEW_STEPS <= FEW_HEAD, "the barriers fit");

// Sizes and addresses that all warps of a block compute in the same way.
template <class T> struct few_work {
    enum { STAGE = FEW_ROWS * T::PITCH };
    // n: columns of a record; n_parts: parts of the columns; n_local: tiles of this block; batch: tiles per round
    int n, n_steps, n_chunks, n_parts, n_local, batch, n_rounds;
    uint32_t record, columns_off, kept_off, ring_off;
    few_bars bars;
    LANE void init(const few_args &a, const void *smem) {
        n = a.rest ? (a.n <= 2 ? 4 : 8) : a.n;
        record = T::record(n);
        n_chunks = (a.k + T::CH - 1) / T::CH;
        n_steps = (n_chunks + FEW_CHUNKS - 1) / FEW_CHUNKS;
        n_parts = (n_steps + a.part_steps - 1) / a.part_steps;
        n_local = (a.n_tiles - (int) blockIdx.x + (int) gridDim.x - 1) / (int) gridDim.x;
        columns_off = FEW_FIXED(T::NB);
        batch = n_parts > 1 ? (int) FEW_BATCH : n_local;
        n_rounds = (n_local + batch - 1) / batch * n_parts;
        kept_off = columns_off + a.part_steps * FEW_CHUNKS * record;
        ring_off = kept_off + (n_parts > 1 ? FEW_BATCH * 512 * T::NB : 0);
        bars.base = smem_addr(smem);
    }
    LANE int steps_of(const few_args &a, int part) const {
        return min(a.part_steps, n_steps - part * a.part_steps);
    }
    LANE int tiles_of(int round) const {
        return min(batch, n_local - round / n_parts * batch);
    }
    LANE int tile_at(int round, int i) const {
        return blockIdx.x + (round / n_parts * batch + i) * gridDim.x;
    }
};

// Copies the records of the columns of a round. Called by one thread.
template <class T> LANE void few_copy_columns(const few_args &a, const few_work<T> &w, int round) {
    if (round > 0) { // the warps no longer read the columns of the previous round
        bar_wait(w.bars.round_done(), (round - 1) & 1);
    } else if (a.wait) {
        wait_for_previous();
    }
    const int part = round % w.n_parts;
    for (int s = 0; s < a.part_steps; s++) {
        if (s >= w.steps_of(a, part)) {
            bar_arrive(w.bars.columns(s));
            continue;
        }
        const int first = (part * a.part_steps + s) * FEW_CHUNKS;
        const uint32_t size = min((int) FEW_CHUNKS, w.n_chunks - first) * w.record;
        bar_expect(w.bars.columns(s), size);
        bulk_copy(w.bars.base + w.columns_off + s * FEW_CHUNKS * w.record, a.records + (int64_t) first * w.record, size,
            w.bars.columns(s));
    }
}

// Starts a copy of a box of the tensor map to shared memory, and counts it at bar when complete. x: in units of 8 bytes.
LANE void few_box_copy(uint32_t to, const cuda_tensor_map *map, int x, int row, uint32_t bar) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], "
                 "[%4];\n" ::"r"(to),
                 "l"(map), "r"(x), "r"(row), "r"(bar)
                 : "memory");
}

// Copies a share of the rows of all tiles. Called by one thread of each of FEW_COPIERS warps. Units are the steps of all tiles in
// order. A single warp could not issue the copies fast enough.
template <class T> LANE void few_produce(const few_args &a, const few_work<T> &w, int share) {
    enum { ROWS = FEW_ROWS / FEW_COPIERS };
    static_assert(ROWS == 8, "a box has 8 rows, and with a gate a share is one matrix");
    const int row_bytes = (int) ((int64_t) a.k * T::ROW_BYTES / T::CH);
    for (int i = 0; i < a.n_parts && a.has_maps; i++) {
        asm volatile("prefetch.tensormap [%0];\n" ::"l"(&a.maps[i]) : "memory");
    }
    if (!a.w_const && a.wait) {
        wait_for_previous();
    }
    int stage = 0, n_copied = 0; // n_copied: units so far, up to n_stages
    uint32_t lap = 1;
    for (int round = 0; round < w.n_rounds; round++) {
        const int part = round % w.n_parts, n_units = w.tiles_of(round) * w.steps_of(a, part);
        int unit = 0;
        for (int i = 0; i < w.tiles_of(round); i++) {
            few_tile tile;
            tile.find(a, w.tile_at(round, i));
            const bool has_gate = a.glu != MV_GLU_NONE;
            const cuda_tensor_map *map = &a.maps[has_gate ? share : tile.part];
            const int box_row = has_gate ? tile.row : tile.row + share * ROWS;
            const char *row[ROWS];
#pragma unroll
            for (int r = 0; r < ROWS && !a.has_maps; r++) {
                row[r] = tile.at(a, share * ROWS + r) + part * a.part_steps * T::STEP_BYTES;
            }
            for (int s = 0; s < w.steps_of(a, part); s++) {
                const int from = (part * a.part_steps + s) * T::STEP_BYTES;
                const uint32_t size = (min((int) T::STEP_BYTES, row_bytes - from) + 15) & ~15;
                const uint32_t bar = w.bars.full(stage);
                if (n_copied == a.n_stages) {
                    bar_wait(w.bars.empty(stage), lap);
                } else {
                    n_copied++;
                }
                const uint32_t to = w.bars.base + w.ring_off + stage * few_work<T>::STAGE + share * ROWS * T::PITCH;
                bar_expect(bar, a.has_maps ? ROWS * T::PITCH : ROWS * size);
                if (a.has_maps) {
                    few_box_copy(to, map, from / 8, box_row, bar);
                } else {
#pragma unroll
                    for (int r = 0; r < ROWS; r++) {
                        bulk_copy(to + r * T::PITCH, row[r], size, bar);
                        row[r] += T::STEP_BYTES;
                    }
                }
                if (++stage == a.n_stages) {
                    stage = 0, lap ^= 1;
                }
                // The columns follow as soon as the ring is full.
                if (++unit == min(n_units, a.n_stages) && share == 0 && a.x == NULL) {
                    few_copy_columns<T>(a, w, round);
                }
            }
        }
    }
}

// Adds the sums of all warps for tile i of a round and column group b, and writes the result. Called by one warp. red:
// [warp][NB][thread]. kept: [tile][NB][thread], the sums of earlier parts.
template <class T>
LANE void few_finish(
    const few_args &a, const few_work<T> &w, const float4 *red, float4 *kept, int i, int b, int round, int lane) {
    const int part = round % w.n_parts;
    float v[4] = {0, 0, 0, 0};
#pragma unroll
    for (int j = 0; j < FEW_WARPS; j++) {
        const float4 u = red[(j * T::NB + b) * 32 + lane];
        v[0] += u.x, v[1] += u.y, v[2] += u.z, v[3] += u.w;
    }
    float4 *mine = kept + (i * T::NB + b) * 32 + lane;
    if (part > 0) {
        v[0] += mine->x, v[1] += mine->y, v[2] += mine->z, v[3] += mine->w;
    }
    if (part < w.n_parts - 1) {
        *mine = make_float4(v[0], v[1], v[2], v[3]);
        return;
    }
#pragma unroll
    for (int j = 0; j < 4; j++) {
        if (T::IS_DENSE && a.rest) { // the residual of column c is column c + n / 2
            v[j] += __shfl_down_sync(~0u, v[j], w.n / 4);
        }
        v[j] *= T::FACTOR;
    }
    few_tile tile;
    tile.find(a, w.tile_at(round, i));
    tile.store(a, v, 8 * b, lane / 4, lane % 4);
}

// One of the FEW_PLACES warps that add the sums of tiles: the warp of a place. Tile i of each round is in
// place i % FEW_PLACES, so that one warp adds all parts of a tile.
template <class T> LANE void few_finish_all(const few_args &a, const few_work<T> &w, char *smem, int place, int lane) {
    const float4 *red = reinterpret_cast<const float4 *>(smem + FEW_HEAD) + place * FEW_WARPS * T::NB * 32;
    float4 *kept = reinterpret_cast<float4 *>(smem + w.kept_off);
    if (a.wait) { // few_finish reads results of earlier kernels
        wait_for_previous();
    }
    uint32_t lap = 0;
    for (int round = 0; round < w.n_rounds; round++) {
        for (int i = place; i < w.tiles_of(round); i += FEW_PLACES) {
            bar_wait(w.bars.stored(place), lap);
            for (int b = 0; b < T::NB; b++) {
                few_finish<T>(a, w, red, kept, i, b, round, lane);
            }
            __syncwarp();
            if (lane == 0) {
                bar_arrive(w.bars.is_free(place));
            }
            lap ^= 1;
        }
    }
}

LANE void few_warps_sync() { // of the warps that multiply
    asm volatile("bar.sync 1, %0;\n" ::"n"(FEW_WARPS * 32) : "memory");
}

// Converts the columns in shared memory. Called by the warps that multiply.
template <class T> LANE void few_convert(const few_args &a, const few_work<T> &w, char *smem, int warp, int lane) {
    enum { TOGETHER = 4 };                                    // columns whose loads overlap
    float *sums = reinterpret_cast<float *>(smem + FEW_HEAD); // [column][warp] sums of squares; later the sums of tiles
    if (a.wait) {
        wait_for_previous();
    }
    for (int col0 = 0; col0 < a.n && a.norm != NULL; col0 += TOGETHER) {
        float sum[TOGETHER] = {0, 0, 0, 0};
        for (int c = warp; c < w.n_chunks; c += FEW_WARPS) {
            float v[TOGETHER][8];
#pragma unroll
            for (int i = 0; i < TOGETHER; i++) {
                const act_source x = {a.x + min(col0 + i, a.n - 1) * a.x_col, NULL, NULL, 0.0f, 0, MV_GLU_NONE};
                x.eight(c * 32 + lane, a.k, v[i]);
            }
#pragma unroll
            for (int i = 0; i < TOGETHER * 8; i++) {
                sum[i / 8] += v[i / 8][i % 8] * v[i / 8][i % 8];
            }
        }
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) {
#pragma unroll
            for (int j = 16; j > 0; j /= 2) {
                sum[i] += __shfl_xor_sync(~0u, sum[i], j);
            }
            if (lane == 0 && col0 + i < a.n) {
                sums[(col0 + i) * FEW_WARPS + warp] = sum[i];
            }
        }
    }
    if (a.norm != NULL) {
        few_warps_sync();
    }
    for (int col0 = 0; col0 < a.n; col0 += TOGETHER) {
        float inverse[TOGETHER] = {0, 0, 0, 0};
        for (int i = 0; i < TOGETHER && a.norm != NULL; i++) {
            float sum = 0.0f;
            for (int j = 0; j < FEW_WARPS; j++) {
                sum += sums[min(col0 + i, a.n - 1) * FEW_WARPS + j];
            }
            inverse[i] = 1.0f / sqrtf(sum / (float) a.k + a.eps);
        }
        for (int c = warp; c < w.n_chunks; c += FEW_WARPS) {
            float v[TOGETHER][8];
#pragma unroll
            for (int i = 0; i < TOGETHER; i++) {
                const act_source x = {a.x + min(col0 + i, a.n - 1) * a.x_col, NULL, a.norm, inverse[i], 0, MV_GLU_NONE};
                x.eight(c * 32 + lane, a.k, v[i]);
            }
#pragma unroll
            for (int i = 0; i < TOGETHER; i++) {
                if (col0 + i < a.n) {
                    act_record_8(v[i], col0 + i, a.n, smem + w.columns_off + c * w.record, lane);
                }
            }
        }
    }
    few_warps_sync();
}

template <class T> LANE void few_multiply(const few_args &a, const few_work<T> &w, char *smem, int warp, int lane) {
    few_lane<T::NB> l;
    l.init(lane, w.n);
    const int group = warp / FEW_CHUNKS, c = warp % FEW_CHUNKS;
    float4 *red = reinterpret_cast<float4 *>(smem + FEW_HEAD);
    int stage = 0, turn = 0;
    uint32_t lap = 0, place_laps = 0; // place_laps: one bit per place
    for (int round = 0; round < w.n_rounds; round++) {
        const int part = round % w.n_parts, n_steps = w.steps_of(a, part);
        for (int i = 0; i < w.tiles_of(round); i++) {
            float acc[4 * T::NB];
#pragma unroll
            for (int j = 0; j < 4 * T::NB; j++) {
                acc[j] = 0.0f;
            }
            for (int s = 0; s < n_steps; s++) {
                if (a.x == NULL) {
                    bar_wait(w.bars.columns(s), round & 1); // in every round, so that no warp is two rounds ahead of the barrier
                }
                if (turn == group) { // n_stages is even, so a group always waits for the same stages
                    const int chunk = (part * a.part_steps + s) * FEW_CHUNKS + c;
                    bar_wait(w.bars.full(stage), lap);
                    if (chunk < w.n_chunks) {
                        T::chunk(smem + w.ring_off + stage * few_work<T>::STAGE, c, a.k - chunk * T::CH,
                            smem + w.columns_off + (s * FEW_CHUNKS + c) * w.record, l, acc);
                    }
                    __syncwarp();
                    if (lane == 0) {
                        bar_arrive(w.bars.empty(stage));
                    }
                }
                turn ^= 1;
                if (++stage == a.n_stages) {
                    stage = 0, lap ^= 1;
                }
            }
            const int place = i % FEW_PLACES;
            bar_wait(w.bars.is_free(place), ~place_laps >> place & 1);
#pragma unroll
            for (int b = 0; b < T::NB; b++) {
                red[((place * FEW_WARPS + warp) * T::NB + b) * 32 + lane] =
                    make_float4(acc[4 * b], acc[4 * b + 1], acc[4 * b + 2], acc[4 * b + 3]);
            }
            __syncwarp();
            if (lane == 0) {
                bar_arrive(w.bars.stored(place));
            }
            place_laps ^= 1u << place;
        }
        if (lane == 0) {
            bar_arrive(w.bars.round_done());
        }
    }
}

template <class T> LANE void few(const few_args &a) {
    extern __shared__ __align__(128) char smem[];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    let_next_start();
    few_work<T> w;
    w.init(a, smem);
    if (threadIdx.x == 0) {
        w.bars.init(a);
    }
    __syncthreads();
    if (warp < FEW_WARPS) {
        if (!T::IS_DENSE && a.x != NULL) {
            few_convert<T>(a, w, smem, warp, lane);
        }
        few_multiply<T>(a, w, smem, warp, lane);
    } else if (warp < FEW_WARPS + FEW_PLACES) {
        few_finish_all<T>(a, w, smem, warp - FEW_WARPS, lane);
    } else if (lane == 0) {
        few_produce<T>(a, w, warp - FEW_WARPS - FEW_PLACES);
    }
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#    define FEW90(type, a) few<type>(a)
#else
#    define FEW90(type, a)
#endif
#define FEW90_KERNEL(name, type) \
    extern "C" __global__ void __launch_bounds__(FEW_THREADS, 1) few90_##name(const __grid_constant__ few_args a) { \
        FEW90(type, a); \
    }
// Kernels for up to 8 and up to 16 columns. type: a template with the number of column groups.
#define FEW90_KERNELS(name, type) \
    FEW90_KERNEL(name##_8, type<1>) \
    FEW90_KERNEL(name##_16, type<2>)
// Kernels for the block format that few_##name decodes.
#define FEW90_FORMAT(name) \
    template <int NB> using type_##name = few_8<few_##name, NB>; \
    FEW90_KERNELS(name, type_##name)
