// SPDX-License-Identifier: MIT
// problem.c: allocates problems, computes totals and sections, and finds the lowest allowed offset of a block.

#include "base/min.h"
#include "plan/solve/plan.h"

#include <string.h>

size_t berth_plan_prob_reserve(int32_t n, int32_t n_sec) {
    return ((size_t) n + (size_t) n_sec + 1) * sizeof(int64_t) + 2 * (size_t) n * sizeof(int32_t);
}

void berth_plan_prob_init_in(struct plan_prob *p, int32_t n, int32_t n_sec, void *memory) {
    *p = (struct plan_prob){.n = n, .n_sec = n_sec};
    p->size = memory;
    p->total = p->size + n;
    p->begin = (int32_t *) (p->total + n_sec + 1);
    p->end = p->begin + n;
}

bool berth_plan_prob_init(struct plan_prob *p, int32_t n, int32_t n_sec) {
    void *memory = berth_malloc(berth_plan_prob_reserve(n, n_sec));
    if (memory == NULL) {
        *p = (struct plan_prob){0};
        return false;
    }
    berth_plan_prob_init_in(p, n, n_sec, memory);
    p->own_memory = memory;
    return true;
}

void berth_plan_prob_fini(struct plan_prob *p) {
    berth_free(p->own_memory);
    berth_free(p->align);
    berth_free(p->fixed);
    berth_free(p->fixed_ids);
    *p = (struct plan_prob){0};
}

// Fills the totals with the sums of the sizes divided by 2^shift, modulo 2^64. Returns the sum of all these sizes, or 2^63 if it
// is larger.
static uint64_t fill_totals(struct plan_prob *p, int shift) {
    const uint64_t top = (uint64_t) 1 << 63;
    uint64_t *total = (uint64_t *) p->total, all = 0, sum = 0;
    for (int32_t s = 0; s <= p->n_sec; s++) {
        total[s] = 0;
    }
    for (int32_t i = 0; i < p->n; i++) {
        const uint64_t size = (uint64_t) p->size[i] >> shift;
        total[p->begin[i]] += size;
        total[p->end[i]] -= size;
        all = min_u64(all + size, top); // does not overflow: sizes are at most 2^62
    }
    for (int32_t s = 0; s < p->n_sec; s++) {
        sum += total[s];
        total[s] = sum;
    }
    return all;
}

bool berth_plan_prob_totals(struct plan_prob *p) {
    p->bound = 0;
    p->bound_sec = 0;
    // A total that wrapped may look small. Totals of sizes divided by 2^30 cannot wrap. Each of the fewer than 2^29 sizes is
    // rounded down by less than 1, so these totals are less than 2^29 too low.
    const bool may_wrap = fill_totals(p, 0) > (uint64_t) INT64_MAX;
    if (may_wrap) {
        fill_totals(p, 30);
        for (int32_t s = 0; s < p->n_sec; s++) {
            if (p->total[s] > (int64_t) 1 << 33) {
                return false;
            }
        }
        fill_totals(p, 0);
    }
    for (int32_t s = 0; s < p->n_sec; s++) {
        if (p->total[s] < 0) {
            return false;
        }
        if (p->total[s] > p->bound) {
            p->bound = p->total[s];
            p->bound_sec = s;
        }
    }
    return true;
}

bool berth_plan_life_max(const struct plan_prob *p, int64_t *most) {
    size_t m = (size_t) p->n_sec;
    int64_t *tree = berth_malloc(2 * m * sizeof *tree); // maximum tree; leaf m + s is total[s]
    if (tree == NULL) {
        return false;
    }
    memcpy(tree + m, p->total, m * sizeof *tree);
    for (size_t i = m - 1; i > 0; i--) {
        tree[i] = max_i64(tree[2 * i], tree[2 * i + 1]);
    }
    for (int32_t i = 0; i < p->n; i++) {
        most[i] = 0;
        for (size_t lo = (size_t) p->begin[i] + m, hi = (size_t) p->end[i] + m; lo < hi; lo /= 2, hi /= 2) {
            if (lo & 1) {
                most[i] = max_i64(tree[lo], most[i]);
                lo++;
            }
            if (hi & 1) {
                hi--;
                most[i] = max_i64(tree[hi], most[i]);
            }
        }
    }
    berth_free(tree);
    return true;
}

void berth_plan_prob_cut(struct plan_prob *p, int32_t *sec_at, int32_t n_times) {
    enum { STARTS = 1, ENDS = 2 };
    memset(sec_at, 0, (size_t) n_times * sizeof *sec_at);
    for (int32_t i = 0; i < p->n; i++) {
        sec_at[p->begin[i]] |= STARTS;
        sec_at[p->end[i]] |= ENDS;
    }
    int32_t sec = -1;
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
    for (int32_t i = 0; i < p->n; i++) {
        p->begin[i] = sec_at[p->begin[i]];
        p->end[i] = sec_at[p->end[i]] + 1;
    }
    p->n_sec = sec + 1;
}

int64_t berth_plan_peak(const struct plan_prob *p, const int64_t *off) {
    int64_t peak = 0;
    for (int32_t i = 0; i < p->n; i++) {
        peak = max_i64(off[i] + p->size[i], peak);
    }
    return peak;
}

bool berth_plan_prob_subset(const struct plan_prob *p, const int32_t *ids, int32_t n, struct plan_prob *sub) {
    if (!berth_plan_prob_init(sub, n, p->n_sec)) {
        return false;
    }
    int32_t *sec_at = berth_malloc((size_t) p->n_sec * sizeof *sec_at);
    if (sec_at == NULL) {
        berth_plan_prob_fini(sub);
        return false;
    }
    for (int32_t k = 0; k < n; k++) {
        sub->begin[k] = p->begin[ids[k]];
        sub->end[k] = p->end[ids[k]] - 1;
        sub->size[k] = p->size[ids[k]];
    }
    berth_plan_prob_cut(sub, sec_at, p->n_sec); // also removes sections that are no longer maximal
    sub->bound_is_inexact = p->bound_is_inexact;
    berth_free(sec_at);
    return berth_plan_prob_totals(sub); // cannot fail: the totals of p fit
}

// ---- the lowest allowed offset of a block ----

// Returns the lowest aligned offset >= level at which block i is inside one chunk, -1: none up to limit.
static int64_t lowest_aligned(const struct plan_prob *p, int32_t i, int64_t level, int64_t limit) {
    int64_t base = 0;
    if (p->chunk > 0) {
        base = level / p->chunk * p->chunk;
    }
    int64_t in = level - base;
    if (p->align != NULL && in % p->align[i] != 0) {
        int64_t pad = p->align[i] - in % p->align[i];
        if (pad > limit - in) {
            return -1;
        }
        in += pad;
    }
    if (p->chunk > 0 && p->size[i] > p->chunk - in) {
        if (base > limit - p->chunk) {
            return -1;
        }
        base += p->chunk;
        in = 0;
    }
    return in > limit - base ? -1 : base + in;
}

int64_t berth_plan_lowest_at(const struct plan_prob *p, int32_t i, int64_t level, int64_t limit) {
    int64_t at = lowest_aligned(p, i, level, limit);
    for (int32_t f = 0; at >= 0 && f < p->n_fixed; f++) {
        int32_t x = p->fixed_ids[f];
        int64_t end = p->fixed[x] + p->size[x];
        if (x == i || end <= at || p->end[x] <= p->begin[i] || p->end[i] <= p->begin[x]) {
            continue;
        }
        if (p->fixed[x] >= at && p->size[i] <= p->fixed[x] - at) {
            break; // fixed_ids is sorted by rising offset: the remaining fixed blocks are higher
        }
        at = lowest_aligned(p, i, end, limit);
    }
    return at;
}
