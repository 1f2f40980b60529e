// SPDX-License-Identifier: MIT
// greedy_pass.c: places each block once, valley by valley. plan.h defines skyline and valley. A segment is a sequence of sections
// with the same skyline level. The floor of a valley is its level. The wall of a valley is the lower of the levels on its two
// sides. The best block whose lifetime is inside the valley goes on the floor. If there is no such block, the floor rises to the
// wall; only this wastes memory. Valleys do not affect each other, so the order in which they are filled does not matter.
//
// An aimed pass prefers blocks of the section with the most unplaced units. It ends if that section must exceed the target.
// A pass has at most 3n steps with one query each. It takes at most 1 us per block up to 10^4 blocks, and 2 us per block at 10^6
// blocks (bench/plan.c scale).

#include "plan/solve/greedy_pass.h"
#include "base/min.h"

#include <string.h>

#define UNREACHABLE (-1) // instead of a rank: the target cannot be reached

// ---- unplaced units per section ----

static void unplaced_pull(struct greedy_pass *d, int32_t x) {
    int64_t l = d->unplaced_max[2 * x];
    int64_t r = d->unplaced_max[2 * x + 1];
    d->unplaced_max[x] = max_i64(l, r) + d->unplaced_add[x];
}

static void unplaced_subtract(struct greedy_pass *d, int32_t lo, int32_t hi, int64_t size) {
    int32_t l = lo + d->unplaced_n;
    int32_t h = hi + d->unplaced_n;
    for (int32_t x = l, y = h; x < y; x /= 2, y /= 2) {
        if (x & 1) {
            d->unplaced_max[x] -= size;
            d->unplaced_add[x] -= size;
            x++;
        }
        if (y & 1) {
            y--;
            d->unplaced_max[y] -= size;
            d->unplaced_add[y] -= size;
        }
    }
    for (int32_t x = l / 2; x > 0; x /= 2) {
        unplaced_pull(d, x);
    }
    for (int32_t x = (h - 1) / 2; x > 0; x /= 2) {
        unplaced_pull(d, x);
    }
}

// A search for the section in [lo, hi) with the most unplaced units. Of several such sections, the first is found.
struct unplaced_search {
    int32_t lo, hi;
    int32_t at;   // the section found so far
    int64_t most; // its unplaced units
};

// node covers the sections [first, first + n). above: the sum of unplaced_add over its ancestors.
static void unplaced_max_find(
    const struct greedy_pass *d, int32_t node, int32_t first, int32_t n, int64_t above, struct unplaced_search *x) {
    if (first >= x->hi || first + n <= x->lo || d->unplaced_max[node] + above <= x->most) {
        return;
    }
    if (n == 1) {
        x->most = d->unplaced_max[node] + above;
        x->at = first;
        return;
    }
    above += d->unplaced_add[node];
    unplaced_max_find(d, 2 * node, first, n / 2, above, x);
    unplaced_max_find(d, 2 * node + 1, first + n / 2, n / 2, above, x);
}

static bool unplaced_init(struct greedy_pass *d) {
    const struct plan_prob *p = d->p;
    if (d->unplaced_max == NULL) {
        d->unplaced_n = 1;
        while (d->unplaced_n < p->n_sec) {
            d->unplaced_n *= 2;
        }
        d->unplaced_max = berth_arrays_new(&d->mem, (size_t) d->unplaced_n * 4, sizeof *d->unplaced_max);
        if (d->unplaced_max == NULL) {
            return false;
        }
        d->unplaced_add = d->unplaced_max + 2 * (size_t) d->unplaced_n;
    }
    memset(d->unplaced_add, 0, (size_t) d->unplaced_n * 2 * sizeof *d->unplaced_add);
    for (int32_t s = 0; s < d->unplaced_n; s++) {
        d->unplaced_max[d->unplaced_n + s] = s < p->n_sec ? p->total[s] : -1;
    }
    for (int32_t x = d->unplaced_n - 1; x > 0; x--) {
        unplaced_pull(d, x);
    }
    return true;
}

// Returns the rank of the block to place, GREEDY_NO_RANK if no block fits into the valley, or UNREACHABLE.
static int32_t aimed_query(const struct greedy_pass *d, int32_t lo, int32_t hi, int64_t wall, int64_t target, int *i_class) {
    struct unplaced_search x = {lo, hi, -1, -1};
    unplaced_max_find(d, 1, 0, d->unplaced_n, 0, &x);
    int32_t r = berth_greedy_index_query(d, lo, hi, x.at, i_class);
    if (r != GREEDY_NO_RANK) {
        return r;
    }
    // All unplaced blocks of section x.at reach beyond the valley, so they will be at or above the wall.
    return wall < INT64_MAX && x.most > target - wall ? UNREACHABLE : berth_greedy_index_query(d, lo, hi, -1, i_class);
}

// ---- the pass ----

// Runs one pass with the current ranks. Returns the peak or -1.
static int64_t greedy_fill(struct greedy_pass *d, bool is_aimed, int64_t target, int64_t *off) {
    const struct plan_prob *p = d->p;
    const bool is_constrained = plan_prob_is_constrained(p);
    struct greedy_segment *left = d->skyline;                 // left[-1] is the left neighbour
    struct greedy_segment *right = d->skyline + p->n_sec + 2; // right[0] is the right neighbour
    struct greedy_segment *const left_end = left;
    struct greedy_segment *const right_end = right;
    struct greedy_segment cur = {0, 0};
    int32_t hi = p->n_sec; // end of cur
    int64_t peak = 0;
    int32_t n_unplaced = d->n_free;
    for (int32_t f = 0; f < p->n_fixed; f++) {
        int32_t i = p->fixed_ids[f];
        off[i] = p->fixed[i];
        peak = max_i64(off[i] + p->size[i], peak);
    }
    if (peak > target) {
        return -1;
    }
    while (n_unplaced > 0) {
        int64_t wall_l = left > left_end ? left[-1].level : INT64_MAX;
        int64_t wall_r = right < right_end ? right[0].level : INT64_MAX;
        if (wall_r < cur.level) {
            *left++ = cur;
            cur = *right++;
            hi = right < right_end ? right[0].lo : p->n_sec;
            continue;
        }
        if (wall_l < cur.level) {
            *--right = cur;
            hi = cur.lo;
            cur = *--left;
            continue;
        }
        if (wall_r == cur.level) {
            right++;
            hi = right < right_end ? right[0].lo : p->n_sec;
        }
        if (wall_l == cur.level) {
            cur.lo = (--left)->lo;
        }
        if (wall_l == cur.level || wall_r == cur.level) {
            continue;
        }
        int i_class = 0;
        int64_t wall = min_i64(wall_l, wall_r);
        int32_t r =
            is_aimed ? aimed_query(d, cur.lo, hi, wall, target, &i_class) : berth_greedy_index_query(d, cur.lo, hi, -1, &i_class);
        if (r == GREEDY_NO_RANK) {
            cur.level = wall;
            continue;
        }
        if (r == UNREACHABLE) {
            return -1;
        }
        int32_t slot = d->by_rank[r];
        int32_t i = d->block[slot];
        int64_t at = is_constrained ? berth_plan_lowest_at(p, i, cur.level, target) : cur.level;
        if (at < 0 || p->size[i] > target - at) {
            return -1;
        }
        off[i] = at;
        int64_t top = at + p->size[i];
        peak = max_i64(top, peak);
        n_unplaced--;
        if (is_aimed) {
            unplaced_subtract(d, p->begin[i], p->end[i], p->size[i]);
        }
        berth_greedy_index_remove(d, &d->classes[i_class], slot);
        struct greedy_segment placed = {top, p->begin[i]};
        int32_t b = p->end[i];
        if (cur.lo < placed.lo) {
            if (b < hi) {
                *--right = (struct greedy_segment){cur.level, b};
            }
            *--right = placed;
            hi = placed.lo;
        } else if (b < hi) {
            *left++ = placed;
            cur.lo = b;
        } else {
            cur = placed;
        }
    }
    return peak;
}

int64_t berth_greedy_pass_run(struct greedy_pass *d, enum plan_priority priority, bool is_aimed, int64_t target, int64_t *off) {
    if (is_aimed && !unplaced_init(d)) {
        return -1;
    }
    if (priority != PLAN_ZW && d->life_max == NULL) {
        int64_t *most = berth_arrays_new(&d->mem, (size_t) d->p->n, sizeof *most);
        if (most == NULL || !berth_plan_life_max(d->p, most)) {
            return -1; // the next pass tries again
        }
        d->life_max = most;
    }
    berth_greedy_index_rank(d, priority);
    berth_greedy_index_build(d);
    return greedy_fill(d, is_aimed, target, off);
}
