// SPDX-License-Identifier: MIT
// pool.c: from the caller's items to one problem per pool, and offsets back. Items without bytes take no part; alias groups
// become one block each; times become sections; bytes become units.
//
// Which unit: with one alignment A for all, sizes rounded up to A lose nothing but the last block's padding; with several, if
// every size is a multiple of all of them. Else the alignments stay in the problem ("odd") and the unit divides everything.
// Sections: going through time, a new one begins where something starts after something has ended. O(n) when steps are dense,
// else a sort.

#include "plan/plan.h"

#include <string.h>

// A block before its times are sections.
struct raw_block {
    int64_t first, last;
    uint64_t size, align, fixed;
    int32_t group; // alias group, -1: none
};

static uint64_t gcd(uint64_t x, uint64_t y) {
    while (y != 0) {
        uint64_t r = x % y;
        x          = y;
        y          = r;
    }
    return x;
}

static bool lcm_ok(uint64_t x, uint64_t y, uint64_t *out) {
    return !__builtin_mul_overflow(x, y / gcd(x, y), out) && *out <= (uint64_t) INT64_MAX;
}

// ---- the items ----

static enum ggml_status item_check(const struct berth_plan_item *item, int64_t i, uint64_t max_chunk) {
    if (item->last < item->first) {
        return berth_fail(GGML_STATUS_FAILED, "plan: item %lld ends at step %lld, before it starts at %lld", (long long) i,
            (long long) item->last, (long long) item->first);
    }
    if (item->size > PLAN_SIZE_MAX) {
        return berth_fail(
            GGML_STATUS_FAILED, "plan: item %lld has %llu bytes, more than 2^62", (long long) i, (unsigned long long) item->size);
    }
    if (max_chunk > 0 && item->size > max_chunk) {
        return berth_fail(GGML_STATUS_FAILED, "plan: item %lld has %llu bytes, more than a chunk holds (%llu)", (long long) i,
            (unsigned long long) item->size, (unsigned long long) max_chunk);
    }
    if (item->align > (uint64_t) INT64_MAX) {
        return berth_fail(GGML_STATUS_FAILED, "plan: item %lld has the alignment %llu, more than 2^63 - 1", (long long) i,
            (unsigned long long) item->align);
    }
    if (item->fixed == BERTH_PLAN_ANY) {
        return GGML_STATUS_SUCCESS;
    }
    uint64_t in = max_chunk > 0 ? item->fixed % max_chunk : item->fixed;
    if (item->fixed > (uint64_t) INT64_MAX - item->size || (item->align > 1 && in % item->align != 0) ||
        (max_chunk > 0 && item->size > max_chunk - in)) {
        return berth_fail(GGML_STATUS_FAILED,
            "plan: item %lld cannot lie at its fixed offset %llu: %llu bytes, alignment %llu, chunks of %llu", (long long) i,
            (unsigned long long) item->fixed, (unsigned long long) item->size, (unsigned long long) item->align,
            (unsigned long long) max_chunk);
    }
    return GGML_STATUS_SUCCESS;
}

enum ggml_status berth_plan_items_check(
    const struct berth_plan_item *items, int64_t n, uint64_t max_chunk, struct plan_traits *traits) {
    *traits = (struct plan_traits){.is_by_first = true};
    if (n < 0 || n > INT32_MAX / 4 || (n > 0 && items == NULL)) {
        return berth_fail(GGML_STATUS_FAILED, "plan: %lld items cannot be planned (0 to %d can)", (long long) n, INT32_MAX / 4);
    }
    for (int64_t i = 0; i < n; i++) {
        const struct berth_plan_item *item = &items[i];
        if (item->last < item->first || item->size > PLAN_SIZE_MAX || max_chunk > 0 || item->align > (uint64_t) INT64_MAX ||
            item->fixed != BERTH_PLAN_ANY) {
            enum ggml_status status = item_check(item, i, max_chunk);
            if (status != GGML_STATUS_SUCCESS) {
                return status;
            }
        }
        traits->has_pools |= item->pool != items[0].pool;
        traits->has_alias |= item->alias >= 0;
        traits->has_fixed |= item->fixed != BERTH_PLAN_ANY;
        traits->is_by_first &= i == 0 || items[i - 1].first <= item->first;
    }
    return GGML_STATUS_SUCCESS;
}

// ---- alias groups ----

static uint64_t time_key(int64_t t) {
    return (uint64_t) t ^ (uint64_t) 1 << 63;
}

// Enters the members ids[members[0..n)] of one group as block. *is_loose: its hull is larger than the group.
static enum ggml_status group_merge(struct raw_block *block, const struct berth_plan_item *items, const int32_t *ids,
    const int32_t *members, int32_t n, bool *is_loose) {
    *block = (struct raw_block){INT64_MAX, INT64_MIN, 0, 1, BERTH_PLAN_ANY, items[ids[members[0]]].alias};
    for (int32_t k = 0; k < n; k++) {
        int32_t i                          = ids[members[k]];
        const struct berth_plan_item *item = &items[i];
        if (item->fixed != BERTH_PLAN_ANY) {
            if (block->fixed != BERTH_PLAN_ANY && block->fixed != item->fixed) {
                return berth_fail(GGML_STATUS_FAILED,
                    "plan: item %d is fixed at %llu, but another one of its alias group %d at %llu", i,
                    (unsigned long long) item->fixed, item->alias, (unsigned long long) block->fixed);
            }
            block->fixed = item->fixed;
        }
        if (!lcm_ok(block->align, item->align > 0 ? item->align : 1, &block->align)) {
            return berth_fail(
                GGML_STATUS_FAILED, "plan: the alignments of alias group %d have no common multiple below 2^63", item->alias);
        }
        if (item->size == 0) {
            continue;
        }
        block->first = item->first < block->first ? item->first : block->first;
        block->last  = item->last > block->last ? item->last : block->last;
        block->size  = item->size > block->size ? item->size : block->size;
    }
    // Members come by rising first step. The hull is exact if those of the full size cover it without a hole.
    int64_t covered = block->first; // [block->first, covered) is covered by the full size
    bool is_whole   = block->size == 0;
    for (int32_t k = 0; k < n && !is_whole; k++) {
        const struct berth_plan_item *item = &items[ids[members[k]]];
        if (item->size == block->size && item->first <= covered) {
            is_whole = item->last >= block->last;
            covered  = is_whole || item->last < covered ? covered : item->last + 1;
        }
    }
    *is_loose |= !is_whole || (block->fixed != BERTH_PLAN_ANY && n > 1);
    return GGML_STATUS_SUCCESS;
}

// One member's fixed offset must suit the alignments of all, also of those without bytes.
static enum ggml_status group_check(const struct raw_block *group, uint64_t max_chunk) {
    const uint64_t in = group->fixed != BERTH_PLAN_ANY && max_chunk > 0 ? group->fixed % max_chunk : group->fixed;
    if (group->fixed == BERTH_PLAN_ANY || in % group->align == 0) {
        return GGML_STATUS_SUCCESS;
    }
    return berth_fail(GGML_STATUS_FAILED, "plan: alias group %d cannot lie at %llu: common alignment %llu, chunks of %llu",
        group->group, (unsigned long long) group->fixed, (unsigned long long) group->align, (unsigned long long) max_chunk);
}

// Gives the members of a merged group their blocks: one for all; or, where the group is fixed and so needs no place, one for
// each, since a hull could lie where it has no right to.
static void group_enter(struct plan_pool *pool, const int32_t *members, int32_t n, struct raw_block *blocks, int32_t *n_blocks) {
    struct raw_block group = blocks[*n_blocks];
    if (group.fixed == BERTH_PLAN_ANY) {
        for (int32_t k = 0; k < n; k++) {
            pool->block_of[members[k]] = group.size > 0 ? *n_blocks : -1;
        }
        *n_blocks += group.size > 0;
        return;
    }
    int32_t fixed_id = -1;
    for (int32_t k = 0; k < n; k++) {
        int32_t i = pool->ids[members[k]];
        fixed_id  = pool->items[i].fixed != BERTH_PLAN_ANY ? i : fixed_id;
    }
    for (int32_t k = 0; k < n; k++) {
        const struct berth_plan_item *item = &pool->items[pool->ids[members[k]]];
        pool->block_of[members[k]]         = item->size > 0 ? *n_blocks : -2 - fixed_id;
        if (item->size > 0) {
            blocks[(*n_blocks)++] =
                (struct raw_block){item->first, item->last, item->size, group.align, group.fixed, group.group};
        }
    }
}

// One block per group and per free item. Items without bytes keep a block only where a group or a fixed offset gives one.
static enum ggml_status pool_merge(struct plan_pool *pool, struct raw_block *blocks, int32_t *n_blocks) {
    size_t n                = (size_t) pool->n_ids;
    uint64_t *key           = berth_malloc(2 * n * sizeof *key);
    int32_t *members        = berth_malloc(2 * n * sizeof *members);
    enum ggml_status status = GGML_STATUS_ALLOC_FAILED;
    if (key == NULL || members == NULL) {
        berth_fail(status, "plan: out of memory for %d items", pool->n_ids);
        goto done;
    }
    for (int32_t k = 0; k < pool->n_ids; k++) {
        key[k]     = time_key(pool->items[pool->ids[k]].first);
        members[k] = k;
    }
    berth_plan_sort(key, members, key + n, members + n, pool->n_ids);
    for (int32_t k = 0; k < pool->n_ids; k++) {
        const struct berth_plan_item *item = &pool->items[pool->ids[members[k]]];
        key[k]                             = item->alias >= 0 ? (uint64_t) item->alias : UINT32_MAX;
    }
    berth_plan_sort(key, members, key + n, members + n, pool->n_ids);
    *n_blocks = 0;
    for (int32_t k = 0; k < pool->n_ids;) {
        const struct berth_plan_item *item = &pool->items[pool->ids[members[k]]];
        int32_t end                        = k + 1;
        while (item->alias >= 0 && end < pool->n_ids && key[end] == key[k]) {
            end++;
        }
        status = group_merge(&blocks[*n_blocks], pool->items, pool->ids, members + k, end - k, &pool->prob.is_loose);
        if (status == GGML_STATUS_SUCCESS) {
            status = group_check(&blocks[*n_blocks], pool->max_chunk);
        }
        if (status != GGML_STATUS_SUCCESS) {
            goto done;
        }
        group_enter(pool, members + k, end - k, blocks, n_blocks);
        k = end;
    }
    status = GGML_STATUS_SUCCESS;
done:
    berth_free(members);
    berth_free(key);
    return status;
}

// Fixed blocks that collide, or break their group's alignment or a chunk, leave no plan.
static enum ggml_status fixed_check(const struct plan_pool *pool, const struct raw_block *blocks, int32_t n) {
    struct berth_plan_item *items = berth_malloc((size_t) n * sizeof *items);
    uint64_t *off                 = berth_malloc((size_t) n * sizeof *off);
    enum ggml_status status       = GGML_STATUS_ALLOC_FAILED;
    int32_t n_fixed               = 0;
    if (items == NULL || off == NULL) {
        berth_fail(status, "plan: out of memory for %d blocks", n);
        goto done;
    }
    for (int32_t i = 0; i < n; i++) {
        const struct raw_block *b = &blocks[i];
        if (b->fixed != BERTH_PLAN_ANY) {
            items[n_fixed] = (struct berth_plan_item){b->first, b->last, b->size, b->align, b->fixed, b->group, 0};
            off[n_fixed++] = b->fixed;
        }
    }
    struct berth_plan_params params = {.max_chunk = pool->max_chunk};
    struct berth_plan_fault fault;
    status = berth_plan_check(items, n_fixed, &params, off, &fault);
    if (status == GGML_STATUS_FAILED && fault.kind == BERTH_PLAN_COLLIDE) {
        berth_fail(status,
            "plan: items fixed at %llu (%llu bytes) and at %llu (%llu bytes) share bytes and live together at step %lld",
            (unsigned long long) off[fault.i], (unsigned long long) items[fault.i].size, (unsigned long long) off[fault.j],
            (unsigned long long) items[fault.j].size,
            (long long) (items[fault.i].first > items[fault.j].first ? items[fault.i].first : items[fault.j].first));
    } else if (status == GGML_STATUS_FAILED) {
        berth_fail(status, "plan: alias group %d cannot lie at %llu: %llu bytes, common alignment %llu, chunks of %llu",
            items[fault.i].alias, (unsigned long long) off[fault.i], (unsigned long long) items[fault.i].size,
            (unsigned long long) items[fault.i].align, (unsigned long long) pool->max_chunk);
    }
done:
    berth_free(off);
    berth_free(items);
    return status;
}

// ---- units ----

// Blocks have few different sizes, and dividing is slow: sizes met before, by their bits.
#define N_MET 16

static size_t met_slot(uint64_t size) {
    return (size_t) (size * 0x9E3779B97F4A7C15u >> 60);
}
_Static_assert(N_MET == 1 << 4, "met_slot takes four bits");

struct scale {
    uint64_t unit;
    bool is_odd;     // alignments stay in the problem
    bool is_rounded; // sizes are rounded up to the unit
};

static struct scale pool_scale(const struct plan_pool *pool, const struct raw_block *blocks, int32_t n, bool chunk) {
    uint64_t all        = 0; // divides every size
    uint64_t align      = blocks[0].align;
    bool is_one_align   = true;
    uint64_t fixed      = 0;
    uint64_t met[N_MET] = {0};
    for (int32_t i = 0; i < n; i++) {
        const size_t slot = met_slot(blocks[i].size);
        if (met[slot] != blocks[i].size) {
            met[slot] = blocks[i].size;
            all       = all != 0 && blocks[i].size % all == 0 ? all : gcd(blocks[i].size, all);
        }
        if (blocks[i].align != align) {
            is_one_align = false;
        }
        fixed = blocks[i].fixed != BERTH_PLAN_ANY ? gcd(blocks[i].fixed, fixed) : fixed;
    }
    uint64_t common = align;
    for (int32_t i = 0; i < n && !is_one_align && common != 0; i++) {
        if (!lcm_ok(common, blocks[i].align, &common)) {
            common = 0;
        }
    }
    uint64_t rest = gcd(fixed, chunk ? pool->max_chunk : 0); // 0: nothing else to divide
    if (common != 0 && all % common == 0 && rest % common == 0) {
        return (struct scale){gcd(all, rest), false, false};
    }
    if (is_one_align && !chunk && rest % align == 0) {
        uint64_t unit = rest;
        for (int32_t i = 0; i < n; i++) {
            uint64_t size = (blocks[i].size + align - 1) / align * align;
            unit          = unit != 0 && size % unit == 0 ? unit : gcd(size, unit);
        }
        return (struct scale){unit, false, true};
    }
    uint64_t unit = gcd(all, rest);
    for (int32_t i = 0; i < n; i++) {
        unit = gcd(unit, blocks[i].align);
    }
    return (struct scale){unit, true, false};
}

// ---- sections ----

// Dense times t[0..2n): firsts, then lasts, all below n_times. Fills a and b; returns the number of sections.
static int32_t cut_sections(
    const int32_t *first, const int32_t *last, int32_t n, int32_t *a, int32_t *b, int32_t *sec_at, int32_t n_times) {
    enum { STARTS = 1, ENDS = 2 };
    memset(sec_at, 0, (size_t) n_times * sizeof *sec_at);
    for (int32_t i = 0; i < n; i++) {
        sec_at[first[i]] |= STARTS;
        sec_at[last[i]] |= ENDS;
    }
    int32_t sec    = -1;
    bool has_ended = true;
    for (int32_t t = 0; t < n_times; t++) {
        int32_t marks = sec_at[t];
        if ((marks & STARTS) && has_ended) {
            sec++;
            has_ended = false;
        }
        has_ended |= (marks & ENDS) != 0;
        sec_at[t] = sec;
    }
    for (int32_t i = 0; i < n; i++) {
        a[i] = sec_at[first[i]];
        b[i] = sec_at[last[i]] + 1;
    }
    return sec + 1;
}

// How many times n blocks may have for them to count as dense; ranks are fewer.
static size_t times_max(int32_t n) {
    return 4 * (size_t) n + 64;
}

// Times as dense numbers in t[0..2n): as they are if they are dense, else their ranks. Returns how many, -1: out of memory.
static int32_t dense_times(const struct raw_block *blocks, int32_t n, int32_t *t) {
    int64_t least = INT64_MAX;
    int64_t most  = INT64_MIN;
    for (int32_t i = 0; i < n; i++) {
        least = blocks[i].first < least ? blocks[i].first : least;
        most  = blocks[i].last > most ? blocks[i].last : most;
    }
    uint64_t span = (uint64_t) most - (uint64_t) least;
    if (span < times_max(n)) {
        for (int32_t i = 0; i < n; i++) {
            t[i]     = (int32_t) (blocks[i].first - least);
            t[n + i] = (int32_t) (blocks[i].last - least);
        }
        return (int32_t) span + 1;
    }
    size_t m        = 2 * (size_t) n;
    uint64_t *key   = berth_malloc(2 * m * sizeof *key);
    int32_t *idx    = berth_malloc(2 * m * sizeof *idx);
    int32_t n_times = -1;
    if (key != NULL && idx != NULL) {
        for (int32_t i = 0; i < n; i++) {
            key[i]     = time_key(blocks[i].first);
            key[n + i] = time_key(blocks[i].last);
            idx[i]     = i;
            idx[n + i] = n + i;
        }
        berth_plan_sort(key, idx, key + m, idx + m, (int32_t) m);
        for (size_t k = 0; k < m; k++) {
            n_times += k == 0 || key[k] != key[k - 1];
            t[idx[k]] = n_times;
        }
        n_times++;
    }
    berth_free(idx);
    berth_free(key);
    return n_times;
}

// Fills the problem's sections and arrays from the blocks, which come by rising first step.
static enum ggml_status pool_fill(
    struct plan_pool *pool, const struct raw_block *blocks, int32_t n, struct scale scale, bool chunk) {
    bool is_loose           = pool->prob.is_loose;
    enum ggml_status status = GGML_STATUS_ALLOC_FAILED;
    int32_t *t              = berth_malloc((2 * (size_t) n + times_max(n)) * sizeof *t);
    int32_t n_times         = t != NULL ? dense_times(blocks, n, t) : -1;
    struct plan_prob *p     = &pool->prob;
    if (n_times < 0 || !berth_plan_prob_init(p, n, n)) {
        goto done;
    }
    p->is_loose         = is_loose;
    p->n_sec            = cut_sections(t, t + n, n, p->a, p->b, t + 2 * (size_t) n, n_times);
    p->chunk            = chunk ? (int64_t) (pool->max_chunk / scale.unit) : 0;
    pool->unit          = scale.unit;
    uint64_t met[N_MET] = {0}, met_units[N_MET];
    for (int32_t i = 0; i < n; i++) {
        const size_t slot = met_slot(blocks[i].size);
        if (met[slot] != blocks[i].size) {
            met[slot]       = blocks[i].size;
            met_units[slot] = blocks[i].size / scale.unit;
            met_units[slot] += met_units[slot] * scale.unit < blocks[i].size;
            const uint64_t slack = met_units[slot] * scale.unit - blocks[i].size;
            pool->least_end      = slack > pool->least_end ? slack : pool->least_end;
        }
        p->size[i] = (int64_t) met_units[slot];
        p->n_fixed += blocks[i].fixed != BERTH_PLAN_ANY;
    }
    if (scale.is_odd) {
        p->align = berth_malloc((size_t) n * sizeof *p->align);
        if (p->align == NULL) {
            goto done;
        }
        for (int32_t i = 0; i < n; i++) {
            p->align[i] = (int64_t) (blocks[i].align / scale.unit);
        }
    }
    if (p->n_fixed > 0) {
        size_t nf      = (size_t) p->n_fixed;
        p->fixed       = berth_malloc((size_t) n * sizeof *p->fixed);
        p->fixed_ids   = berth_malloc(2 * nf * sizeof *p->fixed_ids);
        uint64_t *keys = berth_malloc(2 * nf * sizeof *keys);
        if (p->fixed == NULL || p->fixed_ids == NULL || keys == NULL) {
            berth_free(keys);
            goto done;
        }
        int32_t f = 0;
        for (int32_t i = 0; i < n; i++) {
            p->fixed[i] = blocks[i].fixed != BERTH_PLAN_ANY ? (int64_t) (blocks[i].fixed / scale.unit) : -1;
            if (p->fixed[i] >= 0) {
                keys[f]           = (uint64_t) p->fixed[i];
                p->fixed_ids[f++] = i;
            }
        }
        berth_plan_sort(keys, p->fixed_ids, keys + nf, p->fixed_ids + nf, p->n_fixed);
        berth_free(keys);
    }
    status = GGML_STATUS_SUCCESS;
done:
    berth_free(t);
    if (status != GGML_STATUS_SUCCESS) {
        berth_fail(status, "plan: out of memory for %d blocks", n);
    }
    return status;
}

// Sorts the blocks by rising first step and renames them in block_of.
static bool sort_blocks(struct plan_pool *pool, struct raw_block **blocks, int32_t n) {
    size_t m                 = (size_t) n;
    uint64_t *key            = berth_malloc(2 * m * sizeof *key);
    int32_t *idx             = berth_malloc(2 * m * sizeof *idx);
    struct raw_block *sorted = berth_malloc(m * sizeof *sorted);
    bool ok                  = key != NULL && idx != NULL && sorted != NULL;
    if (ok) {
        for (int32_t i = 0; i < n; i++) {
            key[i] = time_key((*blocks)[i].first);
            idx[i] = i;
        }
        berth_plan_sort(key, idx, key + m, idx + m, n);
        for (int32_t i = 0; i < n; i++) {
            sorted[i]                = (*blocks)[idx[i]];
            idx[m + (size_t) idx[i]] = i;
        }
        for (int32_t k = 0; k < pool->n_ids; k++) {
            pool->block_of[k] = pool->block_of[k] >= 0 ? idx[m + (size_t) pool->block_of[k]] : pool->block_of[k];
        }
        struct raw_block *swap = *blocks;
        *blocks                = sorted;
        sorted                 = swap;
    }
    berth_free(sorted);
    berth_free(idx);
    berth_free(key);
    return ok;
}

void berth_plan_pool_fini(struct plan_pool *pool) {
    berth_plan_prob_fini(&pool->prob);
    berth_free(pool->block_of);
    pool->block_of = NULL;
}

enum ggml_status berth_plan_pool_init(struct plan_pool *pool, const struct berth_plan_item *items, int32_t *ids, int32_t n_ids,
    const struct plan_traits *traits, uint64_t max_chunk, bool chunk) {
    *pool                    = (struct plan_pool){.items = items, .ids = ids, .n_ids = n_ids, .unit = 1, .max_chunk = max_chunk};
    enum ggml_status status  = GGML_STATUS_ALLOC_FAILED;
    pool->block_of           = berth_malloc((size_t) n_ids * sizeof *pool->block_of);
    struct raw_block *blocks = berth_malloc((size_t) n_ids * sizeof *blocks);
    int32_t n                = 0;
    if (pool->block_of == NULL || blocks == NULL) {
        berth_fail(status, "plan: out of memory for %d items", n_ids);
        goto done;
    }
    if (traits->has_alias) {
        status = pool_merge(pool, blocks, &n);
        if (status != GGML_STATUS_SUCCESS) {
            goto done;
        }
    } else {
        for (int32_t k = 0; k < n_ids; k++) {
            const struct berth_plan_item *item = &items[ids[k]];
            pool->block_of[k]                  = item->size > 0 ? n : -1;
            if (item->size > 0) {
                blocks[n++] =
                    (struct raw_block){item->first, item->last, item->size, item->align > 0 ? item->align : 1, item->fixed, -1};
            }
        }
    }
    status = GGML_STATUS_SUCCESS;
    if (n == 0) {
        goto done;
    }
    if ((!traits->is_by_first || traits->has_alias) && !sort_blocks(pool, &blocks, n)) {
        status = berth_fail(GGML_STATUS_ALLOC_FAILED, "plan: out of memory for %d blocks", n);
        goto done;
    }
    status = traits->has_fixed ? fixed_check(pool, blocks, n) : GGML_STATUS_SUCCESS;
    if (status == GGML_STATUS_SUCCESS) {
        status = pool_fill(pool, blocks, n, pool_scale(pool, blocks, n, chunk), chunk);
    }
    if (status == GGML_STATUS_SUCCESS && !berth_plan_prob_totals(&pool->prob)) {
        status = berth_fail(GGML_STATUS_FAILED, "plan: more than 2^63 - 1 units of %llu bytes are alive together",
            (unsigned long long) pool->unit);
    }
done:
    berth_free(blocks);
    if (status != GGML_STATUS_SUCCESS) {
        berth_plan_pool_fini(pool);
    }
    return status;
}

// ---- offsets ----

static uint64_t to_bytes(const struct plan_pool *pool, int64_t off) {
    int64_t chunk = pool->prob.chunk;
    if (chunk > 0) {
        return (uint64_t) (off / chunk) * pool->max_chunk + (uint64_t) (off % chunk) * pool->unit;
    }
    return (uint64_t) off * pool->unit;
}

void berth_plan_pool_apply(const struct plan_pool *pool, const int64_t *off, uint64_t *offsets) {
    for (int32_t k = 0; k < pool->n_ids; k++) {
        int32_t i = pool->ids[k];
        if (pool->block_of[k] >= 0) {
            offsets[i] = to_bytes(pool, off[pool->block_of[k]]);
        } else {
            const struct berth_plan_item *item = &pool->items[pool->block_of[k] == -1 ? i : -2 - pool->block_of[k]];
            offsets[i]                         = item->fixed != BERTH_PLAN_ANY ? item->fixed : 0;
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
