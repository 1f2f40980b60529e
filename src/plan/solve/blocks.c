// SPDX-License-Identifier: MIT
// blocks.c: makes the blocks of one pool from the caller's items, and refuses invalid items. An alias group becomes one block,
// its hull: the hull is alive at all steps from the first to the last of the group, and has the size of the largest member. If
// the hull is larger than the group at some step, or if a group of several members has a fixed offset, the sum of the block sizes
// of a section may be too high for a lower bound. The problem then has bound_is_inexact. The time is O(n). If there are alias
// groups, or the items are not in the order of their first steps, a sort is added.

#include "plan/solve/blocks.h"
#include "base/min.h"

// ---- the items ----

static enum ggml_status item_check(const struct berth_plan_item *item, int64_t i, uint64_t chunk_limit) {
    if (item->last < item->first) {
        return berth_fail(GGML_STATUS_FAILED, "plan: item %lld ends at step %lld, before it starts at %lld", (long long) i,
            (long long) item->last, (long long) item->first);
    }
    if (item->size > PLAN_SIZE_MAX) {
        return berth_fail(
            GGML_STATUS_FAILED, "plan: item %lld has %llu bytes, more than 2^62", (long long) i, (unsigned long long) item->size);
    }
    if (chunk_limit > 0 && item->size > chunk_limit) {
        return berth_fail(GGML_STATUS_FAILED, "plan: item %lld has %llu bytes, but a chunk has only %llu", (long long) i,
            (unsigned long long) item->size, (unsigned long long) chunk_limit);
    }
    if (item->align > (uint64_t) INT64_MAX) {
        return berth_fail(GGML_STATUS_FAILED, "plan: item %lld has the alignment %llu, more than 2^63 - 1", (long long) i,
            (unsigned long long) item->align);
    }
    if (item->alias < 0) {
        return berth_fail(GGML_STATUS_FAILED, "plan: item %lld has the alias group %d, below 0", (long long) i, item->alias);
    }
    if (!item->is_fixed) {
        return GGML_STATUS_SUCCESS;
    }
    uint64_t in = chunk_limit > 0 ? item->fixed % chunk_limit : item->fixed;
    if (item->fixed > (uint64_t) INT64_MAX - item->size || (item->align > 1 && in % item->align != 0) ||
        (chunk_limit > 0 && item->size > chunk_limit - in)) {
        return berth_fail(GGML_STATUS_FAILED,
            "plan: item %lld cannot have its fixed offset %llu: %llu bytes, alignment %llu, chunks of %llu", (long long) i,
            (unsigned long long) item->fixed, (unsigned long long) item->size, (unsigned long long) item->align,
            (unsigned long long) chunk_limit);
    }
    return GGML_STATUS_SUCCESS;
}

enum ggml_status berth_plan_items_check(
    const struct berth_plan_item *items, int64_t n, uint64_t chunk_limit, struct plan_traits *traits) {
    *traits = (struct plan_traits){.is_by_first = true};
    if (n < 0 || n > INT32_MAX / 4 || (n > 0 && items == NULL)) {
        return berth_fail(GGML_STATUS_FAILED, "plan: cannot plan %lld items (allowed: 0 to %d)", (long long) n, INT32_MAX / 4);
    }
    for (int64_t i = 0; i < n; i++) {
        const struct berth_plan_item *item = &items[i];
        if (item->last < item->first || item->size > PLAN_SIZE_MAX || chunk_limit > 0 || item->align > (uint64_t) INT64_MAX ||
            item->is_fixed || item->alias < 0) {
            enum ggml_status status = item_check(item, i, chunk_limit);
            if (status != GGML_STATUS_SUCCESS) {
                return status;
            }
        }
        traits->has_pools |= item->pool != items[0].pool;
        traits->has_alias |= item->alias > 0;
        traits->has_fixed |= item->is_fixed;
        traits->is_by_first &= i == 0 || items[i - 1].first <= item->first;
    }
    return GGML_STATUS_SUCCESS;
}

// ---- alias groups ----

// Makes the hull of a group. Sets *bound_is_inexact if the hull is larger than the group, or if a group of several members has a
// fixed offset.
static enum ggml_status group_merge(struct raw_block *block, const struct berth_plan_item *items, const int32_t *ids,
    const int32_t *members, int32_t n, bool *bound_is_inexact) {
    *block = (struct raw_block){INT64_MAX, INT64_MIN, 0, 1, BERTH_PLAN_ANY, items[ids[members[0]]].alias};
    for (int32_t k = 0; k < n; k++) {
        int32_t i = ids[members[k]];
        const struct berth_plan_item *item = &items[i];
        if (item->is_fixed) {
            if (block->fixed != BERTH_PLAN_ANY && block->fixed != item->fixed) {
                return berth_fail(GGML_STATUS_FAILED,
                    "plan: item %d has the fixed offset %llu, but another item of its alias group %d has %llu", i,
                    (unsigned long long) item->fixed, item->alias, (unsigned long long) block->fixed);
            }
            block->fixed = item->fixed;
        }
        if (!berth_lcm_ok(block->align, item->align > 0 ? item->align : 1, &block->align)) {
            return berth_fail(
                GGML_STATUS_FAILED, "plan: the alignments of alias group %d have no common multiple below 2^63", item->alias);
        }
        if (item->size == 0) {
            continue;
        }
        block->first = min_i64(item->first, block->first);
        block->last = max_i64(item->last, block->last);
        block->size = max_u64(item->size, block->size);
    }
    // The hull is exact if members of the block's size cover all its steps. Members are sorted by rising first step.
    int64_t covered = block->first; // covered up to this step
    bool is_covered = block->size == 0;
    for (int32_t k = 0; k < n && !is_covered; k++) {
        const struct berth_plan_item *item = &items[ids[members[k]]];
        if (item->size == block->size && item->first <= covered) {
            is_covered = item->last >= block->last;
            if (!is_covered && item->last >= covered) {
                covered = item->last + 1;
            }
        }
    }
    *bound_is_inexact |= !is_covered || (block->fixed != BERTH_PLAN_ANY && n > 1);
    return GGML_STATUS_SUCCESS;
}

// Checks the fixed offset of a group against the common alignment of all its members, also of members without bytes.
static enum ggml_status group_check(const struct raw_block *group, uint64_t chunk_limit) {
    const uint64_t in = group->fixed != BERTH_PLAN_ANY && chunk_limit > 0 ? group->fixed % chunk_limit : group->fixed;
    if (group->fixed == BERTH_PLAN_ANY || in % group->align == 0) {
        return GGML_STATUS_SUCCESS;
    }
    return berth_fail(GGML_STATUS_FAILED, "plan: alias group %d cannot have offset %llu: common alignment %llu, chunks of %llu",
        group->group, (unsigned long long) group->fixed, (unsigned long long) group->align, (unsigned long long) chunk_limit);
}

// Adds the blocks of a group. A group without a fixed offset becomes one block. In a group with a fixed offset, each member
// becomes a block, because the hull could overlap other fixed items.
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
        if (pool->items[i].is_fixed) {
            fixed_id = i;
        }
    }
    for (int32_t k = 0; k < n; k++) {
        const struct berth_plan_item *item = &pool->items[pool->ids[members[k]]];
        pool->block_of[members[k]] = item->size > 0 ? *n_blocks : -2 - fixed_id;
        if (item->size > 0) {
            blocks[(*n_blocks)++] =
                (struct raw_block){item->first, item->last, item->size, group.align, group.fixed, group.group};
        }
    }
}

// Makes the blocks of all alias groups and single items. An item without bytes has the block of its group, or no block.
static enum ggml_status pool_merge(
    struct plan_pool *pool, struct raw_block *blocks, int32_t *n_blocks, struct berth_scratch *scratch) {
    size_t n = (size_t) pool->n_ids;
    uint64_t *key = berth_scratch_take(scratch, 2 * n * sizeof *key);
    int32_t *members = berth_scratch_take(scratch, 2 * n * sizeof *members);
    if (key == NULL || members == NULL) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "plan: out of memory for %d items", pool->n_ids);
    }
    for (int32_t k = 0; k < pool->n_ids; k++) {
        key[k] = plan_time_key(pool->items[pool->ids[k]].first);
        members[k] = k;
    }
    berth_plan_sort(key, members, key + n, members + n, pool->n_ids);
    for (int32_t k = 0; k < pool->n_ids; k++) {
        const struct berth_plan_item *item = &pool->items[pool->ids[members[k]]];
        key[k] = item->alias > 0 ? (uint64_t) item->alias : UINT32_MAX;
    }
    berth_plan_sort(key, members, key + n, members + n, pool->n_ids);
    *n_blocks = 0;
    for (int32_t k = 0; k < pool->n_ids;) {
        const struct berth_plan_item *item = &pool->items[pool->ids[members[k]]];
        int32_t end = k + 1;
        while (item->alias > 0 && end < pool->n_ids && key[end] == key[k]) {
            end++;
        }
        enum ggml_status status =
            group_merge(&blocks[*n_blocks], pool->items, pool->ids, members + k, end - k, &pool->prob.bound_is_inexact);
        if (status == GGML_STATUS_SUCCESS) {
            status = group_check(&blocks[*n_blocks], pool->chunk_limit);
        }
        if (status != GGML_STATUS_SUCCESS) {
            return status;
        }
        group_enter(pool, members + k, end - k, blocks, n_blocks);
        k = end;
    }
    return GGML_STATUS_SUCCESS;
}

static enum ggml_status fixed_check(
    const struct plan_pool *pool, const struct raw_block *blocks, int32_t n, struct berth_scratch *scratch) {
    struct berth_plan_item *items = berth_scratch_take(scratch, (size_t) n * sizeof *items);
    uint64_t *off = berth_scratch_take(scratch, (size_t) n * sizeof *off);
    int32_t n_fixed = 0;
    if (items == NULL || off == NULL) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "plan: out of memory for %d blocks", n);
    }
    for (int32_t i = 0; i < n; i++) {
        const struct raw_block *b = &blocks[i];
        if (b->fixed != BERTH_PLAN_ANY) {
            items[n_fixed] = (struct berth_plan_item){b->first, b->last, b->size, b->align, b->fixed, b->group, 0, true};
            off[n_fixed++] = b->fixed;
        }
    }
    struct berth_plan_params params = {.chunk_limit = pool->chunk_limit};
    struct berth_plan_fault fault;
    const enum ggml_status status = berth_plan_check(items, n_fixed, &params, off, &fault);
    if (status == GGML_STATUS_FAILED && fault.kind == BERTH_PLAN_COLLIDE) {
        berth_fail(status,
            "plan: items with fixed offsets %llu (%llu bytes) and %llu (%llu bytes) share bytes and are both alive at step %lld",
            (unsigned long long) off[fault.i], (unsigned long long) items[fault.i].size, (unsigned long long) off[fault.j],
            (unsigned long long) items[fault.j].size, (long long) max_i64(items[fault.i].first, items[fault.j].first));
    } else if (status == GGML_STATUS_FAILED) {
        berth_fail(status, "plan: alias group %d cannot have offset %llu: %llu bytes, common alignment %llu, chunks of %llu",
            items[fault.i].alias, (unsigned long long) off[fault.i], (unsigned long long) items[fault.i].size,
            (unsigned long long) items[fault.i].align, (unsigned long long) pool->chunk_limit);
    }
    return status;
}

// ---- the blocks ----

// Sorts the blocks by first step, and updates the block numbers in block_of.
static bool sort_blocks(struct plan_pool *pool, struct raw_block **blocks, int32_t n, struct berth_scratch *scratch) {
    size_t m = (size_t) n;
    uint64_t *key = berth_scratch_take(scratch, 2 * m * sizeof *key);
    int32_t *idx = berth_scratch_take(scratch, 2 * m * sizeof *idx);
    struct raw_block *sorted = berth_scratch_take(scratch, m * sizeof *sorted);
    if (key == NULL || idx == NULL || sorted == NULL) {
        return false;
    }
    for (int32_t i = 0; i < n; i++) {
        key[i] = plan_time_key((*blocks)[i].first);
        idx[i] = i;
    }
    berth_plan_sort(key, idx, key + m, idx + m, n);
    for (int32_t i = 0; i < n; i++) {
        sorted[i] = (*blocks)[idx[i]];
        idx[m + (size_t) idx[i]] = i;
    }
    for (int32_t k = 0; k < pool->n_ids; k++) {
        if (pool->block_of[k] >= 0) {
            pool->block_of[k] = idx[m + (size_t) pool->block_of[k]];
        }
    }
    *blocks = sorted;
    return true;
}

static int32_t pool_copy(struct plan_pool *pool, struct raw_block *blocks) {
    int32_t n = 0;
    for (int32_t k = 0; k < pool->n_ids; k++) {
        const struct berth_plan_item *item = &pool->items[pool->ids[k]];
        pool->block_of[k] = item->size > 0 ? n : -1;
        if (item->size > 0) {
            blocks[n++] = (struct raw_block){item->first, item->last, item->size, item->align > 0 ? item->align : 1,
                item->is_fixed ? item->fixed : BERTH_PLAN_ANY, 0};
        }
    }
    return n;
}

enum ggml_status berth_plan_blocks(struct plan_pool *pool, const struct plan_traits *traits, struct berth_scratch *scratch,
    struct raw_block **blocks, int32_t *n_blocks) {
    *n_blocks = 0;
    *blocks = berth_scratch_take(scratch, (size_t) pool->n_ids * sizeof **blocks);
    if (*blocks == NULL) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "plan: out of memory for %d items", pool->n_ids);
    }
    if (traits->has_alias) {
        const enum ggml_status status = pool_merge(pool, *blocks, n_blocks, scratch);
        if (status != GGML_STATUS_SUCCESS) {
            return status;
        }
    } else {
        *n_blocks = pool_copy(pool, *blocks);
    }
    if (*n_blocks > 0 && (!traits->is_by_first || traits->has_alias) && !sort_blocks(pool, blocks, *n_blocks, scratch)) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "plan: out of memory for %d blocks", *n_blocks);
    }
    return *n_blocks > 0 && traits->has_fixed ? fixed_check(pool, *blocks, *n_blocks, scratch) : GGML_STATUS_SUCCESS;
}
