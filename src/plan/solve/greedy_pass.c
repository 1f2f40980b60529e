// SPDX-License-Identifier: MIT
// greedy_pass.c: places blocks by valley. The skyline over the sections is a row of segments; a valley is a segment below both of its
// neighbours. Of the unplaced blocks that live wholly inside the valley the one with the best priority goes on its floor; where
// there is none, the floor rises to the lower neighbour (the only step that wastes). Valleys do not see one another, so the
// order in which they are filled does not matter: the walk goes to the nearest one and needs no heap.
//
// Row of segments, left to right: left[0..n_left), cur, right[n_right..0). Both stacks share one array of n_sec + 2.
// An aimed dive prefers blocks that serve the section with the most left to place, and gives up where the target is out of reach.
// At most 3n steps, one query each; 1 us a block or less up to 10^4 blocks, 2 us at 10^6 (bench/plan.c scale).

#include "plan/solve/greedy_pass.h"
#include "base/min.h"

#include <string.h>

#define HOPELESS (-1) // in place of a rank: the target cannot be met

// ---- what is left to place, by section ----

// Recomputes node x of the tree of what is left: most[x] = more[x] + the larger of its children.
static void left_pull(struct greedy_pass *d, int32_t x) {
    int64_t l = d->left_most[2 * x];
    int64_t r = d->left_most[2 * x + 1];
    d->left_most[x] = max_i64(l, r) + d->left_more[x];
}

// Takes size from the sections [lo, hi).
static void left_take(struct greedy_pass *d, int32_t lo, int32_t hi, int64_t size) {
    int32_t l = lo + d->left_n;
    int32_t h = hi + d->left_n;
    for (int32_t x = l, y = h; x < y; x /= 2, y /= 2) {
        if (x & 1) {
            d->left_most[x] -= size;
            d->left_more[x] -= size;
            x++;
        }
        if (y & 1) {
            y--;
            d->left_most[y] -= size;
            d->left_more[y] -= size;
        }
    }
    for (int32_t x = l / 2; x > 0; x /= 2) {
        left_pull(d, x);
    }
    for (int32_t x = (h - 1) / 2; x > 0; x /= 2) {
        left_pull(d, x);
    }
}

// The section of [lo, hi) with the most left to place, the first of several.
struct left_search {
    int32_t lo, hi, at;
    int64_t most;
};

// node covers [first, first + n); above: what the nodes above it add.
static void left_find(const struct greedy_pass *d, int32_t node, int32_t first, int32_t n, int64_t above, struct left_search *x) {
    if (first >= x->hi || first + n <= x->lo || d->left_most[node] + above <= x->most) {
        return;
    }
    if (n == 1) {
        x->most = d->left_most[node] + above;
        x->at = first;
        return;
    }
    above += d->left_more[node];
    left_find(d, 2 * node, first, n / 2, above, x);
    left_find(d, 2 * node + 1, first + n / 2, n / 2, above, x);
}

static bool left_plant(struct greedy_pass *d) {
    const struct plan_prob *p = d->p;
    if (d->left_most == NULL) {
        d->left_n = 1;
        while (d->left_n < p->n_sec) {
            d->left_n *= 2;
        }
        d->left_most = berth_arrays_new(&d->mem, (size_t) d->left_n * 4, sizeof *d->left_most);
        if (d->left_most == NULL) {
            return false;
        }
        d->left_more = d->left_most + 2 * (size_t) d->left_n;
    }
    memset(d->left_more, 0, (size_t) d->left_n * 2 * sizeof *d->left_more);
    for (int32_t s = 0; s < d->left_n; s++) {
        d->left_most[d->left_n + s] = s < p->n_sec ? p->total[s] : -1;
    }
    for (int32_t x = d->left_n - 1; x > 0; x--) {
        left_pull(d, x);
    }
    return true;
}

// The block for a valley: one that serves the section with the most left to place, if there is one.
static int32_t aimed_query(const struct greedy_pass *d, int32_t lo, int32_t hi, int64_t wall, int64_t target, int *in) {
    struct left_search x = {lo, hi, -1, -1};
    left_find(d, 1, 0, d->left_n, 0, &x);
    int32_t r = berth_greedy_index_query(d, lo, hi, x.at, in);
    if (r != GREEDY_PLACED) {
        return r;
    }
    // Nothing can stand on the floor of that section: it will be as high as the wall.
    return wall < INT64_MAX && x.most > target - wall ? HOPELESS : berth_greedy_index_query(d, lo, hi, -1, in);
}

// ---- the dive ----

// One dive with the ranks as they are. Peak or -1.
static int64_t greedy_fill(struct greedy_pass *d, bool is_aimed, int64_t target, int64_t *off) {
    const struct plan_prob *p = d->p;
    const bool is_odd = plan_prob_is_constrained(p);
    struct greedy_segment *left = d->row;                 // left[-1] is the left neighbour
    struct greedy_segment *right = d->row + p->n_sec + 2; // right[0] is the right neighbour
    struct greedy_segment *const left_end = left;
    struct greedy_segment *const right_end = right;
    struct greedy_segment cur = {0, 0};
    int32_t hi = p->n_sec; // end of cur
    int64_t peak = 0;
    int32_t n_left = d->n_free;
    for (int32_t f = 0; f < p->n_fixed; f++) {
        int32_t i = p->fixed_ids[f];
        off[i] = p->fixed[i];
        peak = max_i64(off[i] + p->size[i], peak);
    }
    if (peak > target) {
        return -1;
    }
    while (n_left > 0) {
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
        int k = 0;
        int64_t wall = min_i64(wall_l, wall_r);
        int32_t r = is_aimed ? aimed_query(d, cur.lo, hi, wall, target, &k) : berth_greedy_index_query(d, cur.lo, hi, -1, &k);
        if (r == GREEDY_PLACED) {
            cur.level = wall;
            continue;
        }
        if (r == HOPELESS) {
            return -1;
        }
        int32_t slot = d->by_rank[r];
        int32_t i = d->block[slot];
        int64_t at = is_odd ? berth_plan_lowest_at(p, i, cur.level, target) : cur.level;
        if (at < 0 || p->size[i] > target - at) {
            return -1;
        }
        off[i] = at;
        int64_t top = at + p->size[i];
        peak = max_i64(top, peak);
        n_left--;
        if (is_aimed) {
            left_take(d, p->a[i], p->b[i], p->size[i]);
        }
        berth_greedy_index_remove(d, &d->classes[k], slot);
        struct greedy_segment placed = {top, p->a[i]};
        int32_t b = p->b[i];
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
    if (is_aimed && !left_plant(d)) {
        return -1;
    }
    if (priority != PLAN_ZW && d->life_max == NULL) {
        int64_t *most = berth_arrays_new(&d->mem, (size_t) d->p->n, sizeof *most);
        if (most == NULL || !berth_plan_life_max(d->p, most)) {
            return -1; // the next try asks again
        }
        d->life_max = most;
    }
    berth_greedy_index_rank(d, priority);
    berth_greedy_index_plant(d);
    return greedy_fill(d, is_aimed, target, off);
}
