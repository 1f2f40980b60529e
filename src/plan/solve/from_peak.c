// SPDX-License-Identifier: MIT
// from_peak.c: plans outward from the fullest section. In this file, this section is called the peak. The blocks of the peak are
// stacked without gaps. Then one walk goes forward in time and another goes backward. A walk places each block when its lifetime
// begins and frees it when its lifetime ends. This reaches the bound for 524 of 553 buffers of real graphs.
//
// A walk puts a block into a gap. The neighbours of a gap are the block or wall below it and the block or wall above it; the
// walls are address 0 and the bound. The block goes next to the neighbour whose lifetime ends soonest after the end of the
// block's own lifetime, so that the two soon leave one common gap. If a walk fails, it is repeated with another rule: the
// smallest gap. If that fails too, the peak is stacked in another order. The time is O(n * gaps). If there are many gaps, the
// method ends without a plan.

#include "base/min.h"
#include "plan/solve/plan.h"

#define WORK_PER_BLOCK 64           // limit on inspected gaps per block, on average
#define NOISE 8                     // with chance, a walk ignores one in so many gaps
#define FOREVER ((int64_t) 1 << 40) // number of sections by which a wall outlives a block

struct gap {
    int64_t off, size;
    int32_t prev, next; // adjacent blocks, -1: the wall
};

// A segment is a block, a gap or a wall. Block i has the number i, gap k has the number n + k, a wall has the number -1.
struct walk {
    const struct plan_prob *p;
    int64_t *off;
    int32_t *by_first; // [n] blocks by rising begin, then falling end
    int32_t *by_end;   // [n] blocks by rising end, then falling begin
    int32_t *prev;     // [n] segment below a block
    int32_t *next;     // [n] segment above a block
    struct gap *gaps;  // [n + 1]
    int32_t n_gaps;
    int64_t work;
    int32_t failed_section; // the section where a walk failed, -1: none, -2: out of memory
    bool is_backward;       // the walk goes from later to earlier sections
    bool is_by_size;        // the second rule: a block goes into the smallest gap
    bool may_skip;          // a block without a gap gets the offset -1, and the walk continues
    uint64_t random;        // 0: the rules decide; otherwise chance sometimes excludes the best gap
};

// Returns the end of a block's lifetime in the direction of the walk.
static inline int64_t lifetime_end(const struct walk *w, int32_t i) {
    return w->is_backward ? -(int64_t) w->p->begin[i] : w->p->end[i];
}

// ---- gaps ----

static void link_gap(struct walk *w, int32_t k) {
    const struct gap *g = &w->gaps[k];
    if (g->prev >= 0) {
        w->next[g->prev] = w->p->n + k;
    }
    if (g->next >= 0) {
        w->prev[g->next] = w->p->n + k;
    }
}

static void drop_gap(struct walk *w, int32_t k) {
    w->n_gaps--;
    if (k < w->n_gaps) {
        w->gaps[k] = w->gaps[w->n_gaps];
        link_gap(w, k);
    }
}

static inline void block_remove(struct walk *w, int32_t i) {
    const int32_t n = w->p->n, below = w->prev[i], above = w->next[i];
    int32_t k;
    if (below >= n) {
        k = below - n;
    } else {
        k = above >= n ? above - n : w->n_gaps++;
    }
    if (below >= n && above >= n) {
        const struct gap *g = &w->gaps[above - n];
        w->gaps[k].size += w->p->size[i] + g->size;
        w->gaps[k].next = g->next;
        link_gap(w, k);
        drop_gap(w, above - n);
        return;
    }
    if (below >= n) {
        w->gaps[k].size += w->p->size[i];
        w->gaps[k].next = above;
    } else if (above >= n) {
        w->gaps[k].off -= w->p->size[i];
        w->gaps[k].size += w->p->size[i];
        w->gaps[k].prev = below;
    } else {
        w->gaps[k] = (struct gap){w->off[i], w->p->size[i], below, above};
    }
    link_gap(w, k);
}

// Returns for how many sections the neighbour outlives the new block; less is better. A neighbour that ends before the block gets
// a value above 2 * FOREVER, which is worse than a wall.
static inline int64_t gap_distance(const struct walk *w, int32_t neighbour, int64_t end) {
    const int64_t by = neighbour < 0 ? FOREVER : lifetime_end(w, neighbour) - end;
    return by >= 0 ? by : 2 * FOREVER - by;
}

static bool block_insert(struct walk *w, int32_t i) {
    const int64_t size = w->p->size[i], end = lifetime_end(w, i);
    int64_t best_by = INT64_MAX, best_size = INT64_MAX;
    int32_t best = -1;
    bool is_high = false;
    const bool is_by_size = w->is_by_size, is_random = w->random != 0;
    for (int32_t k = 0; k < w->n_gaps; k++) {
        const struct gap *g = &w->gaps[k];
        if (g->size < size || (is_by_size && g->size > best_size)) {
            continue;
        }
        const int64_t low = gap_distance(w, g->prev, end), high = gap_distance(w, g->next, end), by = min_i64(low, high);
        if (is_random && plan_random_below(&w->random, NOISE) == 0) {
            continue;
        }
        const bool is_nearer = by < best_by || (by == best_by && g->size < best_size);
        if (is_nearer || (is_by_size && g->size < best_size)) {
            best = k;
            best_by = by;
            best_size = g->size;
            is_high = high < low;
        }
    }
    w->work += w->n_gaps;
    if (best < 0) {
        return false;
    }
    struct gap *g = &w->gaps[best];
    w->off[i] = is_high ? g->off + g->size - size : g->off;
    if (best_size == size) {
        w->prev[i] = g->prev;
        w->next[i] = g->next;
    } else {
        w->prev[i] = is_high ? w->p->n + best : g->prev;
        w->next[i] = is_high ? g->next : w->p->n + best;
    }
    if (g->prev >= 0 && (best_size == size || !is_high)) {
        w->next[g->prev] = i;
    }
    if (g->next >= 0 && (best_size == size || is_high)) {
        w->prev[g->next] = i;
    }
    if (best_size == size) {
        drop_gap(w, best);
        return true;
    }
    g->off += is_high ? 0 : size;
    g->size -= size;
    if (is_high) {
        g->next = i;
    } else {
        g->prev = i;
    }
    return true;
}

// ---- the walks ----

// The order in which the blocks of the peak are stacked: the block with the largest reach, the earliest start or the largest size
// is at the bottom. The reach of a block is the distance from the peak to the begin or end of its lifetime, whichever is larger.
enum stacking { BY_REACH, BY_START, BY_SIZE };

static inline int64_t block_weight(const struct plan_prob *p, int32_t i, int32_t s, enum stacking by) {
    const int32_t before = s - p->begin[i], after = p->end[i] - s;
    if (by == BY_SIZE) {
        return p->size[i];
    }
    return by == BY_START ? before : max_i32(before, after);
}

// Lists the blocks alive in section s, bottom of the stack first. Returns their number, -1: too many for the insertion sort.
static int32_t stack_peak(struct walk *w, int32_t s, enum stacking by, int32_t *order) {
    const struct plan_prob *p = w->p;
    int32_t n = 0;
    for (int32_t k = 0; k < p->n && p->begin[w->by_first[k]] <= s; k++) {
        const int32_t i = w->by_first[k];
        if (p->end[i] <= s) {
            continue;
        }
        int32_t at = n++;
        for (; at > 0 && block_weight(p, order[at - 1], s, by) < block_weight(p, i, s, by); at--) {
            order[at] = order[at - 1];
        }
        order[at] = i;
        w->work += n - at;
        if (w->work > (int64_t) p->n * WORK_PER_BLOCK) {
            return -1;
        }
    }
    return n;
}

static void link_peak(struct walk *w, const int32_t *order, int32_t n) {
    int64_t top = 0;
    for (int32_t k = 0; k < n; k++) {
        w->off[order[k]] = top;
        w->prev[order[k]] = k > 0 ? order[k - 1] : -1;
        w->next[order[k]] = k + 1 < n ? order[k + 1] : -1;
        top += w->p->size[order[k]];
    }
    w->n_gaps = 0;
}

static bool walk_forward(struct walk *w, int32_t s) {
    const struct plan_prob *p = w->p;
    int32_t i_end = 0;
    w->is_backward = false;
    while (i_end < p->n && p->end[w->by_end[i_end]] <= s) {
        i_end++;
    }
    for (int32_t k = 0; k < p->n; k++) {
        const int32_t i = w->by_first[k];
        if (p->begin[i] <= s) {
            continue;
        }
        for (; p->end[w->by_end[i_end]] <= p->begin[i]; i_end++) {
            if (w->off[w->by_end[i_end]] >= 0) {
                block_remove(w, w->by_end[i_end]);
            }
        }
        if (!block_insert(w, i)) {
            w->off[i] = -1;
            if (w->may_skip) {
                continue;
            }
            w->failed_section = p->begin[i];
            return false;
        }
        if (w->work > (int64_t) p->n * WORK_PER_BLOCK) {
            w->failed_section = p->begin[i];
            return false;
        }
    }
    return true;
}

static bool walk_backward(struct walk *w, int32_t s) {
    const struct plan_prob *p = w->p;
    int32_t i_first = p->n - 1;
    w->is_backward = true;
    while (i_first >= 0 && p->begin[w->by_first[i_first]] > s) {
        i_first--;
    }
    for (int32_t k = p->n - 1; k >= 0; k--) {
        const int32_t i = w->by_end[k];
        if (p->end[i] > s) {
            continue;
        }
        for (; p->begin[w->by_first[i_first]] >= p->end[i]; i_first--) {
            if (w->off[w->by_first[i_first]] >= 0) {
                block_remove(w, w->by_first[i_first]);
            }
        }
        if (!block_insert(w, i)) {
            w->off[i] = -1;
            if (w->may_skip) {
                continue;
            }
            w->failed_section = p->end[i] - 1;
            return false;
        }
        if (w->work > (int64_t) p->n * WORK_PER_BLOCK) {
            w->failed_section = p->end[i] - 1;
            return false;
        }
    }
    return true;
}

// Fills by_end and by_first with two stable counting sorts. count: [n_sec + 2] scratch.
static void sort_ends(struct walk *w, int32_t *count) {
    const struct plan_prob *p = w->p;
    for (int pass = 0; pass < 2; pass++) {
        const int32_t *key = pass == 0 ? p->end : p->begin;
        for (int32_t s = 0; s < p->n_sec + 2; s++) {
            count[s] = 0;
        }
        for (int32_t i = 0; i < p->n; i++) {
            count[key[i] + 1]++;
        }
        for (int32_t s = 1; s < p->n_sec + 2; s++) {
            count[s] += count[s - 1];
        }
        for (int32_t k = p->n - 1; k >= 0; k--) {
            const int32_t i = pass == 0 ? k : w->by_end[k];
            (pass == 0 ? w->by_end : w->by_first)[count[key[i]]++] = i;
        }
    }
}

static bool peak_walk(struct walk *w, int32_t s, const int32_t *order, int32_t n_peak, bool (*run)(struct walk *w, int32_t s)) {
    bool ok = false;
    for (int rule = 0; rule < 2 && !ok; rule++) {
        w->is_by_size = rule == 1;
        w->work = 0;
        link_peak(w, order, n_peak);
        ok = run(w, s);
    }
    return ok;
}

static bool walk_both(struct walk *w, int32_t s, enum stacking by, int32_t *order) {
    w->work = 0;
    const int32_t n_peak = stack_peak(w, s, by, order);
    return n_peak >= 0 && peak_walk(w, s, order, n_peak, walk_forward) && peak_walk(w, s, order, n_peak, walk_backward);
}

int64_t berth_plan_from_peak(const struct plan_prob *p, int64_t *off) {
    const size_t n = (size_t) p->n;
    int32_t first = 0, last = p->n_sec - 1; // first and last section with the largest total
    struct walk w = {.p = p, .off = off};
    const size_t n_numbers = 5 * n + (size_t) p->n_sec + 2;
    struct berth_scratch scratch;
    berth_scratch_init(&scratch);
    w.gaps = berth_scratch_take(&scratch, (n + 1) * sizeof *w.gaps + n_numbers * sizeof(int32_t)); // gaps, then int32_t arrays
    if (w.gaps == NULL) {
        return -2;
    }
    int32_t *memory = (int32_t *) (w.gaps + n + 1);
    int64_t peak = -1;
    while (first < last && p->total[first] < p->bound) {
        first++;
    }
    while (first < last && p->total[last] < p->bound) {
        last--;
    }
    if (p->total[last] == p->bound) {
        w.by_first = memory;
        w.by_end = memory + n;
        w.prev = memory + 2 * n;
        w.next = memory + 3 * n;
        int32_t *order = memory + 4 * n;
        sort_ends(&w, memory + 5 * n);
        const bool ok =
            walk_both(&w, last, BY_REACH, order) || walk_both(&w, first, BY_START, order) || walk_both(&w, last, BY_SIZE, order);
        peak = ok ? p->bound : -1;
    }
    berth_scratch_fini(&scratch);
    return peak;
}

// ---- walks from given offsets ----

// Links the blocks alive in section s at their given offsets, with the gaps between them up to cap. False: out of memory.
static bool link_section(struct walk *w, int32_t s, int64_t cap) {
    const struct plan_prob *p = w->p;
    const size_t n = (size_t) p->n;
    int32_t m = 0;
    struct berth_scratch scratch;
    berth_scratch_init(&scratch);
    uint64_t *key = berth_scratch_take(&scratch, 2 * n * sizeof *key + 2 * n * sizeof(int32_t));
    if (key == NULL) {
        return false;
    }
    int32_t *order = (int32_t *) (key + 2 * n);
    for (int32_t i = 0; i < p->n; i++) {
        if (p->begin[i] <= s && s < p->end[i]) {
            key[m] = (uint64_t) w->off[i];
            order[m++] = i;
        }
    }
    berth_plan_sort(key, order, key + n, order + n, m);
    int64_t top = 0;
    w->n_gaps = 0;
    for (int32_t k = 0; k <= m; k++) {
        const int32_t below = k > 0 ? order[k - 1] : -1, above = k < m ? order[k] : -1;
        const int64_t to = k < m ? w->off[above] : cap;
        if (below >= 0) {
            w->next[below] = above;
        }
        if (above >= 0) {
            w->prev[above] = below;
        }
        if (to > top) {
            w->gaps[w->n_gaps] = (struct gap){top, to - top, below, above};
            link_gap(w, w->n_gaps++);
        }
        if (k < m) {
            top = to + p->size[above];
        }
    }
    berth_scratch_fini(&scratch);
    return true;
}

static bool walk_on(struct walk *w, int32_t s, int64_t cap, bool (*run)(struct walk *w, int32_t s)) {
    bool ok = false;
    for (int rule = 0; rule < 2 && !ok; rule++) {
        w->is_by_size = rule == 1;
        w->work = 0;
        if (!link_section(w, s, cap)) {
            w->failed_section = -2;
            return false;
        }
        ok = run(w, s);
    }
    return ok;
}

int32_t berth_plan_walk_from(const struct plan_prob *p, int32_t lo, int32_t hi, int64_t cap, int64_t *off) {
    const size_t n = (size_t) p->n;
    struct walk w = {.p = p, .off = off, .failed_section = -2};
    struct berth_scratch scratch;
    berth_scratch_init(&scratch);
    w.gaps = berth_scratch_take(&scratch, (n + 1) * sizeof *w.gaps + (4 * n + (size_t) p->n_sec + 2) * sizeof(int32_t));
    if (w.gaps != NULL) {
        w.by_first = (int32_t *) (w.gaps + n + 1);
        w.by_end = w.by_first + n;
        w.prev = w.by_end + n;
        w.next = w.prev + n;
        sort_ends(&w, w.next + n);
        if (walk_on(&w, hi - 1, cap, walk_forward) && walk_on(&w, lo, cap, walk_backward)) {
            w.failed_section = -1;
        }
    }
    berth_scratch_fini(&scratch);
    return w.failed_section;
}

int32_t berth_plan_walk_partly(const struct plan_prob *p, const struct plan_walk_way *way, int64_t cap, int64_t *off) {
    const size_t n = (size_t) p->n;
    struct walk w = {.p = p, .off = off, .may_skip = true, .is_by_size = way->is_by_size, .random = way->seed};
    struct berth_scratch scratch;
    berth_scratch_init(&scratch);
    int32_t n_skipped = -2;
    w.gaps = berth_scratch_take(&scratch, (n + 1) * sizeof *w.gaps + (5 * n + (size_t) p->n_sec + 2) * sizeof(int32_t));
    if (w.gaps == NULL) {
        return n_skipped;
    }
    w.by_first = (int32_t *) (w.gaps + n + 1);
    w.by_end = w.by_first + n;
    w.prev = w.by_end + n;
    w.next = w.prev + n;
    int32_t *order = w.next + n;
    sort_ends(&w, order + n);
    for (int32_t i = 0; i < p->n; i++) {
        off[i] = -1;
    }
    const int32_t n_peak = stack_peak(&w, way->section, (enum stacking) way->stacking, order);
    int64_t top = 0;
    for (int32_t k = 0; k < n_peak; k++) {
        off[order[k]] = top;
        top += p->size[order[k]];
    }
    bool ok = n_peak >= 0 && top <= cap;
    w.work = 0;
    ok = ok && link_section(&w, way->section, cap) && walk_forward(&w, way->section);
    w.work = 0;
    ok = ok && link_section(&w, way->section, cap) && walk_backward(&w, way->section);
    if (ok) {
        n_skipped = 0;
        for (int32_t i = 0; i < p->n; i++) {
            n_skipped += off[i] < 0;
        }
    }
    berth_scratch_fini(&scratch);
    return n_skipped;
}
