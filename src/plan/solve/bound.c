// SPDX-License-Identifier: MIT
// bound.c: computes a lower bound of the peak of a pool, without searching. The bound is the maximum of these numbers:
// - live bytes: the largest sum of the sizes of items that are alive at the same step. Of an alias group, only the largest live
//   member counts.
// - padded bytes, for each alignment A: the largest sum of the sizes, each rounded up to A, of live blocks whose alignment is a
//   multiple of A. The largest padding is subtracted, because the highest block needs no padding.
// - fixed blocks: the end of each fixed block, and the lowest possible end of each block that is alive together with fixed
//   blocks.
// With chunks, only the live bytes are a bound, because padding and holes may be at the unused end of a chunk.

#include "base/min.h"
#include "plan/solve/blocks.h"

#include <string.h>

// ---- live bytes if the block of an alias group covers more than its members (its hull; see blocks.c) ----

struct events {
    uint64_t *key;   // [2 * cap] time of each change; the second half is scratch
    int32_t *idx;    // [2 * cap] index in delta; the second half is scratch
    uint64_t *delta; // [cap]
    int32_t n, cap;
    uint64_t *times; // [2n + 1] scratch for a group
    int32_t *next;   // [2n + 1] scratch for a group
};

static uint64_t end_key(int64_t last) {
    return plan_time_key(last) + (last < INT64_MAX);
}

static void events_add(struct events *e, uint64_t from, uint64_t to, uint64_t size) {
    e->key[e->n] = from;
    e->delta[e->n++] = size;
    e->key[e->n] = to;
    e->delta[e->n++] = 0 - size;
}

static int32_t find_time(const uint64_t *times, int32_t n, uint64_t key) {
    int32_t lo = 0;
    for (int32_t hi = n; hi - lo > 1;) {
        int32_t mid = lo + (hi - lo) / 2;
        if (times[mid] <= key) {
            lo = mid;
        } else {
            hi = mid;
        }
    }
    return lo;
}

// Adds the events of an alias group. members is sorted by falling size. Each member counts only at the times that no larger
// member covers.
static void events_add_group(struct events *e, const struct plan_pool *pool, const int32_t *members, int32_t n) {
    uint64_t *times = e->times;
    int32_t *next = e->next;
    for (int32_t k = 0; k < n; k++) {
        const struct berth_plan_item *item = &pool->items[pool->ids[members[k]]];
        times[2 * k] = plan_time_key(item->first);
        times[2 * k + 1] = end_key(item->last);
    }
    berth_plan_sort(times, next, e->key + e->cap, e->idx + e->cap, 2 * n);
    for (int32_t t = 0; t <= 2 * n; t++) {
        next[t] = t; // first uncovered cell from t on; cell t is [times[t], times[t + 1])
    }
    for (int32_t k = 0; k < n; k++) {
        const struct berth_plan_item *item = &pool->items[pool->ids[members[k]]];
        int32_t t = find_time(times, 2 * n, plan_time_key(item->first));
        while (t > 0 && times[t - 1] == times[t]) {
            t--;
        }
        for (;;) {
            int32_t to = t;
            while (next[to] != to) {
                to = next[to];
            }
            while (next[t] != to) { // path compression
                int32_t step = next[t];
                next[t] = to;
                t = step;
            }
            if (to >= 2 * n - 1 || times[to] >= end_key(item->last)) {
                break;
            }
            events_add(e, times[to], times[to + 1], item->size);
            next[to] = to + 1;
            t = to + 1;
        }
    }
}

static enum ggml_status live_bound_without_hulls(struct plan_pool *pool) {
    size_t n = (size_t) pool->n_ids;
    size_t cap = 4 * n;
    struct berth_arrays mem = {0};
    struct events e = {berth_arrays_new(&mem, 2 * cap, sizeof *e.key), berth_arrays_new(&mem, 2 * cap, sizeof *e.idx),
        berth_arrays_new(&mem, cap, sizeof *e.delta), 0, (int32_t) cap, berth_arrays_new(&mem, 2 * n + 1, sizeof *e.times),
        berth_arrays_new(&mem, 2 * n + 1, sizeof *e.next)};
    uint64_t *key = berth_arrays_new(&mem, n, sizeof *key);
    int32_t *idx = berth_arrays_new(&mem, n, sizeof *idx);
    if (mem.has_failed) {
        berth_arrays_free(&mem);
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "plan: out of memory for the bound of %d items", pool->n_ids);
    }
    for (size_t k = 0; k < n; k++) {
        key[k] = ~pool->items[pool->ids[k]].size;
        idx[k] = (int32_t) k;
    }
    berth_plan_sort(key, idx, e.key, e.idx, pool->n_ids);
    for (size_t k = 0; k < n; k++) {
        int32_t alias = pool->items[pool->ids[idx[k]]].alias;
        key[k] = alias > 0 ? (uint64_t) alias : UINT32_MAX;
    }
    berth_plan_sort(key, idx, e.key, e.idx, pool->n_ids);
    for (int32_t k = 0; k < pool->n_ids;) {
        const struct berth_plan_item *item = &pool->items[pool->ids[idx[k]]];
        int32_t end = k + 1;
        while (item->alias > 0 && end < pool->n_ids && key[end] == key[k]) {
            end++;
        }
        if (end == k + 1) {
            events_add(&e, plan_time_key(item->first), end_key(item->last), item->size);
        } else {
            events_add_group(&e, pool, idx + k, end - k);
        }
        k = end;
    }
    for (int32_t k = 0; k < e.n; k++) {
        e.idx[k] = k;
    }
    berth_plan_sort(e.key, e.idx, e.key + cap, e.idx + cap, e.n);
    uint64_t sum = 0;
    for (int32_t k = 0; k < e.n; k++) {
        sum += e.delta[e.idx[k]];
        bool is_settled = k + 1 == e.n || e.key[k + 1] != e.key[k];
        if (is_settled && sum > pool->bound && sum <= (uint64_t) INT64_MAX) {
            pool->bound = sum;
        }
    }
    berth_arrays_free(&mem);
    return GGML_STATUS_SUCCESS;
}

// ---- the bound ----

// Returns the largest padding of a block of section s. The caller subtracts it: the highest block needs no padding, and any block
// may be the highest.
static uint64_t max_padding(const struct plan_pool *pool, int32_t s) {
    uint64_t most = 0;
    for (int32_t k = 0; k < pool->n_ids; k++) {
        int32_t i = pool->block_of[k];
        if (i >= 0 && pool->prob.begin[i] <= s && s < pool->prob.end[i]) {
            uint64_t slack = (uint64_t) pool->prob.size[i] * pool->unit - pool->items[pool->ids[k]].size;
            most = max_u64(slack, most);
        }
    }
    return most;
}

static int64_t section_step(const struct plan_pool *pool, int32_t s) {
    int64_t step = INT64_MIN;
    for (int32_t k = 0; k < pool->n_ids; k++) {
        int32_t i = pool->block_of[k];
        if (i >= 0 && pool->prob.begin[i] <= s && s < pool->prob.end[i] && pool->items[pool->ids[k]].first > step) {
            step = pool->items[pool->ids[k]].first;
        }
    }
    return step;
}

// Returns the units that the blocks whose alignment is a multiple of align require together. *s: the section where they require
// most. total: [n_sec + 1] scratch.
static int64_t aligned_need(const struct plan_prob *p, int64_t align, int64_t *total, int32_t *s) {
    memset(total, 0, ((size_t) p->n_sec + 1) * sizeof *total);
    for (int32_t i = 0; i < p->n; i++) {
        if (p->align[i] % align == 0) {
            const int64_t pad = (align - p->size[i] % align) % align;
            if (pad > INT64_MAX - p->size[i] || p->n > INT64_MAX / (p->size[i] + pad)) {
                return 0; // a sum might overflow
            }
            total[p->begin[i]] += p->size[i] + pad;
            total[p->end[i]] -= p->size[i] + pad;
        }
    }
    int64_t sum = 0, most = 0, slack = 0;
    for (int32_t k = 0; k < p->n_sec; k++) {
        sum += total[k];
        if (sum > most) {
            *s = k;
            most = sum;
        }
    }
    for (int32_t i = 0; i < p->n; i++) {
        if (p->align[i] % align == 0 && p->begin[i] <= *s && *s < p->end[i]) {
            const int64_t pad = (align - p->size[i] % align) % align;
            slack = max_i64(pad, slack);
        }
    }
    return most - slack;
}

// Only the first N_ALIGNS different alignments are tried, to limit the time.
#define N_ALIGNS 16

static enum ggml_status raise_by_alignments(struct plan_pool *pool) {
    struct plan_prob *p = &pool->prob;
    int64_t met[N_ALIGNS];
    int n_met = 0;
    int64_t *total = berth_malloc(((size_t) p->n_sec + 1) * sizeof *total);
    if (total == NULL) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "plan: out of memory for the bound of %d blocks", p->n);
    }
    for (int32_t i = 0; i < p->n && n_met < N_ALIGNS; i++) {
        int k = 0;
        while (k < n_met && met[k] != p->align[i]) {
            k++;
        }
        if (k < n_met) {
            continue;
        }
        met[n_met++] = p->align[i];
        int32_t s = 0;
        const int64_t need = aligned_need(p, p->align[i], total, &s);
        if (need > p->bound && need <= INT64_MAX / (int64_t) pool->unit) {
            p->bound = need;
            pool->bound = (uint64_t) need * pool->unit;
            pool->bound_step = section_step(pool, s);
        }
    }
    berth_free(total);
    return GGML_STATUS_SUCCESS;
}

enum ggml_status berth_plan_pool_bound(struct plan_pool *pool) {
    struct plan_prob *p = &pool->prob;
    pool->bound = 0;
    pool->bound_step = 0;
    if (p->n == 0) {
        return GGML_STATUS_SUCCESS;
    }
    pool->bound_step = section_step(pool, p->bound_sec);
    if (p->bound_is_inexact) {
        enum ggml_status status = live_bound_without_hulls(pool);
        if (status != GGML_STATUS_SUCCESS) {
            return status;
        }
        // The totals of p count hulls and are too high for a bound.
        p->bound = (int64_t) (pool->bound / pool->unit + (pool->bound % pool->unit != 0));
    } else {
        if (p->bound > INT64_MAX / (int64_t) pool->unit) {
            return berth_fail(GGML_STATUS_FAILED,
                "plan: %lld units of %llu bytes are alive at one step, more than 2^63 - 1 bytes", (long long) p->bound,
                (unsigned long long) pool->unit);
        }
        pool->bound = (uint64_t) p->bound * pool->unit;
        pool->bound -= pool->pad_max > 0 ? max_padding(pool, p->bound_sec) : 0;
    }
    if (p->align != NULL && p->chunk == 0 && !p->bound_is_inexact) {
        const enum ggml_status status = raise_by_alignments(pool);
        if (status != GGML_STATUS_SUCCESS) {
            return status;
        }
    }
    if (p->chunk > 0 || p->n_fixed == 0) {
        return GGML_STATUS_SUCCESS;
    }
    int32_t i_top = -1;
    for (int32_t i = 0; i < p->n; i++) {
        int64_t at = p->fixed[i];
        if (at < 0) {
            at = p->bound_is_inexact ? 0 : berth_plan_lowest_at(p, i, 0, INT64_MAX - p->size[i]);
        }
        if (at >= 0 && at + p->size[i] > p->bound) {
            p->bound = at + p->size[i];
            if (p->bound <= INT64_MAX / (int64_t) pool->unit) {
                uint64_t end = (uint64_t) p->bound * pool->unit - pool->pad_max;
                pool->bound = max_u64(end, pool->bound);
            }
            i_top = i;
        }
    }
    if (i_top >= 0) {
        pool->bound_step = section_step(pool, p->begin[i_top]);
    }
    return GGML_STATUS_SUCCESS;
}
