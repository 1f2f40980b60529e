// SPDX-License-Identifier: MIT
// pool.c: makes a problem from the blocks of one pool, and converts offsets from units back to bytes.
//
// The unit is the greatest common divisor of the fixed offsets, the chunk size, and further numbers that depend on the case:
// 1. The sizes, the fixed offsets and the chunk size are multiples of every alignment. The further numbers are the sizes. The
//    alignments are dropped, because every offset in units is aligned. Nothing is wasted.
// 2. All blocks have the same alignment A, which divides the fixed offsets, and the pool has one chunk. The further numbers are
//    the sizes rounded up to A. A is dropped. This wastes the padding of the highest block, so pools of up to FEW_BLOCKS blocks
//    are treated as case 3.
// 3. All other pools. The further numbers are the sizes and the alignments. The problem is then constrained.
// Finding the sections takes O(n) if there are at most 4n + 64 steps. Otherwise the steps are sorted first.

#include "base/min.h"
#include "plan/solve/blocks.h"

#include <string.h>

// ---- units ----

#define FEW_BLOCKS 8

// Number of entries in a hash table of recent sizes. The table saves divisions, which are slow, because many blocks have the same
// size.
#define N_SEEN 16

static size_t seen_slot(uint64_t size) {
    return (size_t) (size * 0x9E3779B97F4A7C15u >> 60);
}
_Static_assert(N_SEEN == 1 << 4, "seen_slot takes four bits");

struct scale {
    uint64_t unit;
    bool keeps_alignments; // alignments stay in the problem
    bool is_rounded;       // sizes are rounded up to the unit
};

static struct scale pool_scale(const struct plan_pool *pool, const struct raw_block *blocks, int32_t n) {
    uint64_t all = 0; // greatest common divisor of the sizes
    uint64_t align = blocks[0].align;
    bool is_one_align = true;
    uint64_t fixed = 0;
    uint64_t seen[N_SEEN] = {0};
    for (int32_t i = 0; i < n; i++) {
        const size_t slot = seen_slot(blocks[i].size);
        if (seen[slot] != blocks[i].size) {
            seen[slot] = blocks[i].size;
            if (all == 0 || blocks[i].size % all != 0) {
                all = berth_gcd(blocks[i].size, all);
            }
        }
        if (blocks[i].align != align) {
            is_one_align = false;
        }
        if (blocks[i].fixed != BERTH_PLAN_ANY) {
            fixed = berth_gcd(blocks[i].fixed, fixed);
        }
    }
    uint64_t common = align;
    for (int32_t i = 0; i < n && !is_one_align && common != 0; i++) {
        if (!berth_lcm_ok(common, blocks[i].align, &common)) {
            common = 0;
        }
    }
    uint64_t rest = berth_gcd(fixed, pool->is_chunked ? pool->chunk_limit : 0); // 0: no fixed offsets and no chunks
    if (common != 0 && all % common == 0 && rest % common == 0) {
        return (struct scale){berth_gcd(all, rest), false, false};
    }
    if (is_one_align && !pool->is_chunked && rest % align == 0 && n > FEW_BLOCKS) {
        uint64_t unit = rest;
        for (int32_t i = 0; i < n; i++) {
            uint64_t size = (blocks[i].size + align - 1) / align * align;
            if (unit == 0 || size % unit != 0) {
                unit = berth_gcd(size, unit);
            }
        }
        return (struct scale){unit, false, true};
    }
    uint64_t unit = berth_gcd(all, rest);
    for (int32_t i = 0; i < n; i++) {
        unit = berth_gcd(unit, blocks[i].align);
    }
    return (struct scale){unit, true, false};
}

// ---- sections ----

// Returns the largest range of times that is used directly. Times of a larger range are replaced by their ranks. There are at
// most 2n ranks.
static size_t times_max(int32_t n) {
    return 4 * (size_t) n + 64;
}

// Fills t[0..n) with the first times and t[n..2n) with the last times, as distances from the earliest time or, if their range is
// too large, as ranks. Returns the number of times, -1: out of memory.
static int32_t dense_times(const struct raw_block *blocks, int32_t n, int32_t *t, struct berth_scratch *scratch) {
    int64_t least = INT64_MAX;
    int64_t most = INT64_MIN;
    for (int32_t i = 0; i < n; i++) {
        least = min_i64(blocks[i].first, least);
        most = max_i64(blocks[i].last, most);
    }
    uint64_t span = (uint64_t) most - (uint64_t) least;
    if (span < times_max(n)) {
        for (int32_t i = 0; i < n; i++) {
            t[i] = (int32_t) (blocks[i].first - least);
            t[n + i] = (int32_t) (blocks[i].last - least);
        }
        return (int32_t) span + 1;
    }
    size_t m = 2 * (size_t) n;
    uint64_t *key = berth_scratch_take(scratch, 2 * m * sizeof *key);
    int32_t *idx = berth_scratch_take(scratch, 2 * m * sizeof *idx);
    int32_t n_times = 0;
    if (key == NULL || idx == NULL) {
        return -1;
    }
    for (int32_t i = 0; i < n; i++) {
        key[i] = plan_time_key(blocks[i].first);
        key[n + i] = plan_time_key(blocks[i].last);
        idx[i] = i;
        idx[n + i] = n + i;
    }
    berth_plan_sort(key, idx, key + m, idx + m, (int32_t) m);
    for (size_t k = 0; k < m; k++) {
        n_times += k == 0 || key[k] != key[k - 1];
        t[idx[k]] = n_times - 1;
    }
    return n_times;
}

// ---- the problem ----

static bool fill_aligns(struct plan_prob *p, const struct raw_block *blocks, uint64_t unit) {
    p->align = berth_malloc((size_t) p->n * sizeof *p->align);
    for (int32_t i = 0; p->align != NULL && i < p->n; i++) {
        p->align[i] = (int64_t) (blocks[i].align / unit);
    }
    return p->align != NULL;
}

static bool fill_fixed(struct plan_prob *p, const struct raw_block *blocks, uint64_t unit, struct berth_scratch *scratch) {
    size_t nf = (size_t) p->n_fixed;
    p->fixed = berth_malloc((size_t) p->n * sizeof *p->fixed);
    p->fixed_ids = berth_malloc(2 * nf * sizeof *p->fixed_ids);
    uint64_t *keys = berth_scratch_take(scratch, 2 * nf * sizeof *keys);
    int32_t f = 0;
    if (p->fixed == NULL || p->fixed_ids == NULL || keys == NULL) {
        return false;
    }
    for (int32_t i = 0; i < p->n; i++) {
        p->fixed[i] = blocks[i].fixed != BERTH_PLAN_ANY ? (int64_t) (blocks[i].fixed / unit) : -1;
        if (p->fixed[i] >= 0) {
            keys[f] = (uint64_t) p->fixed[i];
            p->fixed_ids[f++] = i;
        }
    }
    berth_plan_sort(keys, p->fixed_ids, keys + nf, p->fixed_ids + nf, p->n_fixed);
    return true;
}

// blocks is sorted by rising first step. memory has berth_plan_prob_reserve(n, n) bytes.
static enum ggml_status pool_fill(
    struct plan_pool *pool, const struct raw_block *blocks, int32_t n, void *memory, struct berth_scratch *scratch) {
    const struct scale scale = pool_scale(pool, blocks, n);
    const bool bound_is_inexact = pool->prob.bound_is_inexact;
    struct plan_prob *p = &pool->prob;
    berth_plan_prob_init_in(p, n, n, memory);
    p->bound_is_inexact = bound_is_inexact;
    int32_t *sec_at = berth_scratch_take(scratch, times_max(n) * sizeof *sec_at);
    // end follows begin in memory.
    const int32_t n_times = sec_at != NULL ? dense_times(blocks, n, p->begin, scratch) : -1;
    if (n_times < 0) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "plan: out of memory for %d blocks", n);
    }
    berth_plan_prob_cut(p, sec_at, n_times);
    p->chunk = pool->is_chunked ? (int64_t) (pool->chunk_limit / scale.unit) : 0;
    pool->unit = scale.unit;
    uint64_t seen[N_SEEN] = {0}, seen_units[N_SEEN];
    for (int32_t i = 0; i < n; i++) {
        const size_t slot = seen_slot(blocks[i].size);
        if (seen[slot] != blocks[i].size) {
            seen[slot] = blocks[i].size;
            seen_units[slot] = blocks[i].size / scale.unit;
            seen_units[slot] += seen_units[slot] * scale.unit < blocks[i].size;
            const uint64_t slack = seen_units[slot] * scale.unit - blocks[i].size;
            pool->pad_max = max_u64(slack, pool->pad_max);
        }
        p->size[i] = (int64_t) seen_units[slot];
        p->n_fixed += blocks[i].fixed != BERTH_PLAN_ANY;
    }
    if ((scale.keeps_alignments && !fill_aligns(p, blocks, scale.unit)) ||
        (p->n_fixed > 0 && !fill_fixed(p, blocks, scale.unit, scratch))) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "plan: out of memory for %d blocks", n);
    }
    return GGML_STATUS_SUCCESS;
}

void berth_plan_pool_fini(struct plan_pool *pool) {
    berth_plan_prob_fini(&pool->prob);
}

enum ggml_status berth_plan_pool_init(struct plan_pool *pool, const struct plan_traits *traits, struct berth_scratch *scratch) {
    const int32_t n_ids = pool->n_ids;
    pool->unit = 1;
    pool->block_of = berth_scratch_take(scratch, (size_t) n_ids * sizeof *pool->block_of);
    void *memory = berth_scratch_take(scratch, berth_plan_prob_reserve(n_ids, n_ids));
    if (pool->block_of == NULL || memory == NULL) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "plan: out of memory for %d items", n_ids);
    }
    const struct berth_scratch_mark mark = scratch->at; // the blocks are released at the end
    struct raw_block *blocks;
    int32_t n;
    enum ggml_status status = berth_plan_blocks(pool, traits, scratch, &blocks, &n);
    if (status != GGML_STATUS_SUCCESS || n == 0) {
        goto done;
    }
    status = pool_fill(pool, blocks, n, memory, scratch);
    if (status != GGML_STATUS_SUCCESS) {
        goto done;
    }
    if (!berth_plan_prob_totals(&pool->prob)) {
        status = berth_fail(GGML_STATUS_FAILED, "plan: more than 2^63 - 1 units of %llu bytes are alive together",
            (unsigned long long) pool->unit);
    }
done:
    berth_scratch_back(scratch, mark);
    if (status != GGML_STATUS_SUCCESS) {
        berth_plan_pool_fini(pool);
    }
    return status;
}

// ---- offsets ----

void berth_plan_pool_apply(const struct plan_pool *pool, const int64_t *off, uint64_t *offsets) {
    for (int32_t k = 0; k < pool->n_ids; k++) {
        int32_t i = pool->ids[k];
        if (pool->block_of[k] >= 0) {
            offsets[i] = (uint64_t) off[pool->block_of[k]] * pool->unit; // the unit divides the chunk size
        } else {
            const struct berth_plan_item *item = &pool->items[pool->block_of[k] == -1 ? i : -2 - pool->block_of[k]];
            offsets[i] = item->is_fixed ? item->fixed : 0;
        }
    }
}

bool berth_plan_pool_take(const struct plan_pool *pool, const uint64_t *offsets, int64_t *off) {
    for (int32_t k = 0; k < pool->n_ids; k++) {
        if (pool->block_of[k] >= 0) {
            uint64_t x = offsets[pool->ids[k]];
            if (x % pool->unit != 0 || x > (uint64_t) INT64_MAX) {
                return false;
            }
            off[pool->block_of[k]] = (int64_t) (x / pool->unit);
        }
    }
    return true;
}
