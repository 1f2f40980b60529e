// SPDX-License-Identifier: MIT
// best_fit.c: two classic placements.
// 1. Online best fit in the order of first sections, as in ggml, so that the planner is not worse than ggml. If the free list
//    becomes long, the method ends without a plan.
// 2. Each block goes into the lowest gap, in a given order. The time is quadratic.

#include "base/min.h"
#include "plan/solve/plan.h"

#include <string.h>

// ---- online best fit ----

#define WORK_PER_BLOCK 64 // limit on inspected gaps per block, on average

struct gap {
    int64_t off, size;
};

struct free_list {
    struct gap *gaps; // by rising offset, none adjacent; all are below end
    int32_t n, cap;
    int64_t end;  // all units from here on are free
    int64_t work; // gaps inspected so far
};

// Returns the smallest gap of at least `size` units, of several the last one, -1: none.
/*@ requires 0 <= n && \valid_read(gaps + (0 .. n - 1));
    assigns \nothing;
    ensures -1 <= \result < n;
    ensures \result >= 0 ==> gaps[\result].size >= size;
    ensures \forall integer i; 0 <= i < n && gaps[i].size >= size ==> \result >= 0 && gaps[\result].size <= gaps[i].size;
    ensures \forall integer i; \result < i < n && \result >= 0 ==> gaps[i].size < size || gaps[i].size > gaps[\result].size; */
static int32_t gaps_best(const struct gap *gaps, int32_t n, int64_t size) {
    int32_t best = -1;
    /*@ loop invariant 0 <= i <= n && -1 <= best < i;
        loop invariant best >= 0 ==> gaps[best].size >= size;
        loop invariant \forall integer k; 0 <= k < i && gaps[k].size >= size ==> best >= 0 && gaps[best].size <= gaps[k].size;
        loop invariant \forall integer k; best < k < i && best >= 0 ==> gaps[k].size < size || gaps[k].size > gaps[best].size;
        loop assigns i, best;
        loop variant n - i; */
    for (int32_t i = 0; i < n; i++) {
        if (gaps[i].size >= size && (best < 0 || gaps[i].size <= gaps[best].size)) {
            best = i;
        }
    }
    return best;
}

static int64_t free_list_take(struct free_list *f, int64_t size, int64_t target) {
    const int32_t best = gaps_best(f->gaps, f->n, size);
    f->work += f->n;
    if (best < 0) {
        // free_list_give merges the last gap into end.
        if (size > target - f->end) {
            return -1;
        }
        int64_t at = f->end;
        f->end += size;
        return at;
    }
    struct gap *g = &f->gaps[best];
    int64_t at = g->off;
    g->off += size;
    g->size -= size;
    if (g->size == 0) {
        memmove(g, g + 1, (size_t) (f->n - best - 1) * sizeof *g);
        f->n--;
    }
    return at;
}

static bool free_list_give(struct free_list *f, int64_t off, int64_t size) {
    int32_t i = f->n; // first gap with a higher offset
    while (i > 0 && f->gaps[i - 1].off > off) {
        i--;
    }
    f->work += f->n - i + 1;
    bool below = i > 0 && f->gaps[i - 1].off + f->gaps[i - 1].size == off;
    bool above = i < f->n && off + size == f->gaps[i].off;
    if (below && above) {
        f->gaps[i - 1].size += size + f->gaps[i].size;
        memmove(f->gaps + i, f->gaps + i + 1, (size_t) (f->n - i - 1) * sizeof *f->gaps);
        f->n--;
    } else if (below) {
        f->gaps[i - 1].size += size;
    } else if (above) {
        f->gaps[i].off = off;
        f->gaps[i].size += size;
    } else {
        if (f->n == f->cap) {
            size_t cap = (size_t) f->cap;
            if (!BERTH_GROW(&f->gaps, &cap, cap + 1)) {
                return false;
            }
            f->cap = (int32_t) cap;
        }
        memmove(f->gaps + i + 1, f->gaps + i, (size_t) (f->n - i) * sizeof *f->gaps);
        f->gaps[i] = (struct gap){off, size};
        f->n++;
    }
    if (f->gaps[f->n - 1].off + f->gaps[f->n - 1].size == f->end) {
        f->end = f->gaps[--f->n].off;
    }
    return true;
}

int64_t berth_plan_best_fit(const struct plan_prob *p, int64_t target, int64_t *off) {
    // ends lists the blocks by end, then by number.
    size_t m = (size_t) p->n_sec;
    int32_t *ends_at = berth_calloc(m + 2 + (size_t) p->n, sizeof *ends_at);
    if (ends_at == NULL) {
        return -2;
    }
    int32_t *ends = ends_at + m + 2;
    for (int32_t i = 0; i < p->n; i++) {
        ends_at[p->end[i] + 1]++;
    }
    for (size_t s = 1; s < m + 2; s++) {
        ends_at[s] += ends_at[s - 1];
    }
    for (int32_t i = 0; i < p->n; i++) {
        ends[ends_at[p->end[i]]++] = i;
    }
    struct free_list f = {0};
    int64_t peak = 0;
    int32_t i_end = 0;
    for (int32_t i = 0; i < p->n && peak >= 0; i++) {
        for (; i_end < p->n && p->end[ends[i_end]] <= p->begin[i]; i_end++) {
            if (!free_list_give(&f, off[ends[i_end]], p->size[ends[i_end]])) {
                peak = -2;
                break;
            }
        }
        if (peak < 0) {
            break;
        }
        off[i] = free_list_take(&f, p->size[i], target);
        if (off[i] < 0 || f.work > (int64_t) p->n * WORK_PER_BLOCK) {
            peak = -1;
            break;
        }
        peak = max_i64(off[i] + p->size[i], peak);
    }
    berth_free(f.gaps);
    berth_free(ends_at);
    return peak;
}

// ---- one by one into the lowest gap ----

int64_t berth_plan_place_around(const struct plan_prob *p, const struct plan_placing *how, int64_t target, int64_t *off) {
    const bool is_constrained = p->align != NULL || p->chunk > 0;
    int32_t *placed = how->placed;
    int32_t n_placed = 0; // placed[] is sorted by rising offset
    int64_t peak = 0;
    for (; n_placed < how->n_set; n_placed++) {
        int32_t i = how->set[n_placed];
        placed[n_placed] = i;
        off[i] = p->fixed[i];
        peak = max_i64(off[i] + p->size[i], peak);
    }
    for (int32_t o = 0; o < how->n_order && peak <= target; o++) {
        int32_t i = how->order[o];
        int64_t level = 0;
        for (int32_t k = 0; level >= 0 && k < n_placed; k++) {
            int32_t j = placed[k];
            if (p->end[j] <= p->begin[i] || p->end[i] <= p->begin[j] || off[j] + p->size[j] <= level) {
                continue;
            }
            if (off[j] - level >= p->size[i]) {
                break;
            }
            level = off[j] + p->size[j];
            if (is_constrained) {
                level = berth_plan_lowest_at(p, i, level, target);
            }
        }
        if (level < 0 || p->size[i] > target - level) {
            return -1;
        }
        off[i] = level;
        peak = max_i64(level + p->size[i], peak);
        int32_t k = n_placed++;
        for (; k > 0 && off[placed[k - 1]] > level; k--) {
            placed[k] = placed[k - 1];
        }
        placed[k] = i;
    }
    return peak > target ? -1 : peak;
}

int64_t berth_plan_place_in_order(
    const struct plan_prob *p, const int32_t *order, int32_t n_order, int64_t target, int32_t *placed, int64_t *off) {
    const struct plan_placing how = {p->fixed_ids, order, p->n_fixed, n_order, placed};
    return berth_plan_place_around(p, &how, target, off);
}

int32_t berth_plan_order_by_size(const struct plan_prob *p, int32_t *order, int32_t *tmp_idx, uint64_t *key) {
    int32_t n = 0;
    for (int32_t i = 0; i < p->n; i++) {
        if (p->fixed == NULL || p->fixed[i] < 0) {
            order[n] = i;
            key[n++] = ~(uint64_t) p->size[i];
        }
    }
    berth_plan_sort(key, order, key + p->n, tmp_idx, n);
    return n;
}

// Places the blocks by falling size, each in the lowest gap. If primary is not NULL, the order is by rising sign * primary[i],
// then by falling size.
static int64_t place_by(const struct plan_prob *p, const int64_t *primary, int64_t sign, int64_t target, int64_t *off) {
    size_t n = (size_t) p->n;
    struct berth_arrays mem = {0};
    int32_t *order = berth_arrays_new(&mem, 2 * n, sizeof *order);
    uint64_t *key = berth_arrays_new(&mem, 2 * n, sizeof *key);
    int64_t peak = -2;
    if (!mem.has_failed) {
        int32_t n_order = berth_plan_order_by_size(p, order, order + n, key);
        for (int32_t k = 0; primary != NULL && k < n_order; k++) {
            key[k] = (uint64_t) (sign * primary[order[k]]) ^ (uint64_t) 1 << 63;
        }
        if (primary != NULL) {
            berth_plan_sort(key, order, key + n, order + n, n_order);
        }
        peak = berth_plan_place_in_order(p, order, n_order, target, order + n, off);
    }
    berth_arrays_free(&mem);
    return peak;
}

int64_t berth_plan_largest_first(const struct plan_prob *p, int64_t target, int64_t *off) {
    return place_by(p, NULL, 1, target, off);
}

int64_t berth_plan_most_aligned_first(const struct plan_prob *p, int64_t target, int64_t *off) {
    return place_by(p, p->align, -1, target, off);
}

int64_t berth_plan_lowest_first(const struct plan_prob *p, const int64_t *plan, int64_t target, int64_t *off) {
    return place_by(p, plan, 1, target, off);
}
