// SPDX-License-Identifier: MIT
// eject.c: ejection chains (eject.h). A step of a chain places one block i. It lists the blocks that are alive together with i,
// sorts them by their starts, and looks for a gap. Of several gaps, it prefers a small one in which i touches its neighbours for
// much of its lifetime: such gaps waste little. If there is no gap, the step also sorts the blocks by their ends, and visits the
// offsets at which i is directly above or below one of them. The cost of an offset is the sum of the weights of the blocks that i
// would overlap. The step takes the offset of least cost and ejects the blocks that i overlaps.
//
// The weight of a block is its difficulty times its blame. The difficulty grows with size and lifetime. The blame counts the steps
// in which the block fitted into no gap. If the blame of a block reaches its limit, all blame is halved. The blocks of the last
// TABU steps and fixed blocks are not ejected. A step takes O(m log m) for m blocks alive together with i, and mostly O(m).

#include "plan/solve/eject.h"
#include "base/min.h"

#include <math.h>
#include <string.h>

#define TABU 2                              // steps for which a placed block is not ejected
#define WEIGHT_FIXED ((int64_t) 1 << 40)    // weight of blocks that are not ejected
#define DIFFICULTY_MAX ((double) (1 << 26)) // difficulty of the most difficult block
#define WIDTH_POWER 0.75                    // exponent of the lifetime in the difficulty
#define BLAME_MAX 250
#define TOUCH_MOST 1.3   // a gap counts (size + typical size) * (TOUCH_MOST - touched part of the lifetime); less is better
#define TOUCH_WALL 0.5   // touched part at address 0 and at the cap
#define SWAP_STEPS 10    // after so many steps, a chain ends early if half of its limit on swaps is enough, or if it is hopeless
#define CLOCK_STEPS 32   // steps between two readings of the clock
#define STEP_NS 500      // counted work of a step
#define STEP_BLOCK_NS 25 // counted work of a step per block alive together with the placed one

#define UNPLACED (-1)

// What a step reads of a block, in one place.
struct cell {
    int64_t off, size, weight; // off: UNPLACED or the offset
    int32_t begin, end;
};

// Block i had the offset off.
struct eject_move {
    int64_t off;
    int32_t i;
};

struct eject {
    const struct plan_prob *p;
    const struct plan_overlap *overlap;
    struct berth_arrays mem;
    struct cell *cells;  // [n]
    int32_t *difficulty; // [n]
    uint8_t *blame;      // [n]
    int64_t *ends;       // [2 * n_leaves] maximum tree over the ends of placed blocks; leaf i is at n_leaves + i
    int32_t n_leaves;    // a power of two
    int32_t *open;       // [n_open] unplaced blocks of the chain
    int32_t n_open;
    uint32_t *chain_of;      // [n] the last chain that changed the block
    uint32_t i_chain;        // number of the chain
    struct eject_move *undo; // [n_undo] offsets before the chain
    int32_t n_undo;
    int32_t tabu[TABU];                   // blocks of the last steps, -1: none
    uint64_t *start, *end, *tmp_key;      // [n] offsets of the listed blocks: starts and ends, sorted
    int32_t *by_start, *by_end, *tmp_idx; // [n] blocks by start and by end
    uint64_t *sum_start, *sum_end;        // [n + 1] prefix sums of weights by start and by end
    double typical_size;                  // half the mean size
    uint64_t random;
    bool is_random; // chance selects the spot of this step
};

static uint64_t random_next(struct eject *e) {
    e->random ^= e->random << 13;
    e->random ^= e->random >> 7;
    e->random ^= e->random << 17;
    return e->random;
}

// ---- memory ----

static void set_difficulties(struct eject *e) {
    const struct plan_prob *p = e->p;
    double most = 1, sum = 0;
    for (int32_t i = 0; i < p->n; i++) {
        sum += (double) p->size[i];
    }
    e->typical_size = sum / p->n / 2;
    for (int pass = 0; pass < 2; pass++) {
        for (int32_t i = 0; i < p->n; i++) {
            const double d = (double) p->size[i] * pow(p->end[i] - p->begin[i], WIDTH_POWER);
            if (pass == 0) {
                most = max_f64(d, most);
            } else {
                e->difficulty[i] = 1 + (int32_t) (d / most * (DIFFICULTY_MAX - 1));
            }
        }
    }
}

struct eject *berth_eject_new(const struct plan_prob *p, const struct plan_overlap *overlap, uint64_t seed) {
    struct eject *e = berth_calloc(1, sizeof *e);
    if (e == NULL) {
        return NULL;
    }
    const size_t n = (size_t) p->n;
    e->p = p;
    e->overlap = overlap;
    e->random = (seed + 1) * 0x9E3779B97F4A7C15u | 1;
    for (e->n_leaves = 1; e->n_leaves < p->n;) {
        e->n_leaves *= 2;
    }
    e->cells = berth_arrays_new(&e->mem, n, sizeof *e->cells);
    e->difficulty = berth_arrays_new(&e->mem, n, sizeof *e->difficulty);
    e->blame = berth_arrays_new(&e->mem, n, sizeof *e->blame);
    e->ends = berth_arrays_new(&e->mem, 2 * (size_t) e->n_leaves, sizeof *e->ends);
    e->open = berth_arrays_new(&e->mem, n, sizeof *e->open);
    e->chain_of = berth_arrays_new(&e->mem, n, sizeof *e->chain_of);
    e->undo = berth_arrays_new(&e->mem, n, sizeof *e->undo);
    e->start = berth_arrays_new(&e->mem, n, sizeof *e->start);
    e->end = berth_arrays_new(&e->mem, n, sizeof *e->end);
    e->tmp_key = berth_arrays_new(&e->mem, n, sizeof *e->tmp_key);
    e->by_start = berth_arrays_new(&e->mem, n, sizeof *e->by_start);
    e->by_end = berth_arrays_new(&e->mem, n, sizeof *e->by_end);
    e->tmp_idx = berth_arrays_new(&e->mem, n, sizeof *e->tmp_idx);
    e->sum_start = berth_arrays_new(&e->mem, n + 1, sizeof *e->sum_start);
    e->sum_end = berth_arrays_new(&e->mem, n + 1, sizeof *e->sum_end);
    if (e->mem.has_failed) {
        berth_eject_free(e);
        return NULL;
    }
    set_difficulties(e);
    for (int32_t i = 0; i < p->n; i++) {
        e->cells[i] = (struct cell){UNPLACED, p->size[i], 0, p->begin[i], p->end[i]};
        e->blame[i] = 1;
    }
    for (int k = 0; k < TABU; k++) {
        e->tabu[k] = -1;
    }
    return e;
}

void berth_eject_free(struct eject *e) {
    if (e != NULL) {
        berth_arrays_free(&e->mem);
        berth_free(e);
    }
}

// ---- the plan ----

static bool is_fixed(const struct eject *e, int32_t i) {
    return e->p->fixed != NULL && e->p->fixed[i] >= 0;
}

static int64_t weight_of(const struct eject *e, int32_t i) {
    return is_fixed(e, i) ? WEIGHT_FIXED : (int64_t) e->difficulty[i] * e->blame[i];
}

static int64_t end_of(const struct cell *c) {
    return c->off == UNPLACED ? 0 : c->off + c->size;
}

void berth_eject_load(struct eject *e, const int64_t *off) {
    memset(e->ends, 0, 2 * (size_t) e->n_leaves * sizeof *e->ends);
    for (int32_t i = 0; i < e->p->n; i++) {
        e->cells[i].off = off[i] < 0 ? UNPLACED : off[i];
        e->cells[i].weight = weight_of(e, i);
        e->ends[e->n_leaves + i] = end_of(&e->cells[i]);
    }
    for (int32_t k = e->n_leaves - 1; k > 0; k--) {
        e->ends[k] = max_i64(e->ends[2 * k], e->ends[2 * k + 1]);
    }
    e->n_undo = 0;
}

bool berth_eject_is_placed(const struct eject *e, int32_t i) {
    return e->cells[i].off != UNPLACED;
}

void berth_eject_store(const struct eject *e, int64_t *off) {
    for (int32_t i = 0; i < e->p->n; i++) {
        off[i] = e->cells[i].off;
    }
}

int64_t berth_eject_peak(const struct eject *e) {
    return e->ends[1];
}

static void update_end(struct eject *e, int32_t i) {
    int32_t k = e->n_leaves + i;
    e->ends[k] = end_of(&e->cells[i]);
    for (k /= 2; k > 0; k /= 2) {
        e->ends[k] = max_i64(e->ends[2 * k], e->ends[2 * k + 1]);
    }
}

int32_t berth_eject_above(struct eject *e, int64_t cap) {
    int32_t k = 1;
    while (k < e->n_leaves) {
        const bool may_first = e->ends[2 * k] > cap, may_second = e->ends[2 * k + 1] > cap;
        if (!may_first && !may_second) {
            return -1;
        }
        k = 2 * k + (may_second && (!may_first || (random_next(e) >> 32 & 1)));
    }
    const int32_t i = k - e->n_leaves;
    return i < e->p->n && e->ends[k] > cap && !is_fixed(e, i) ? i : -1;
}

// ---- lists of blocks sorted by offset ----

// Sorts the pairs by key; keys are at most top. One pass distributes the pairs over buckets. Nearly all buckets are small.
static void sort_by_offset(struct eject *e, uint64_t *key, int32_t *idx, int32_t n, uint64_t top) {
    enum { FEW = 24, BITS = 12 };
    uint32_t at[(1 << BITS) + 2];
    if (n <= FEW) {
        berth_plan_sort(key, idx, e->tmp_key, e->tmp_idx, n);
        return;
    }
    const int n_bits = min_int(31 - __builtin_clz((uint32_t) n), BITS);
    const int shift = max_int(64 - __builtin_clzll(top | 1) - n_bits, 0);
    const uint32_t n_buckets = (uint32_t) (top >> shift) + 1;
    memset(at, 0, (n_buckets + 1) * sizeof *at);
    for (int32_t k = 0; k < n; k++) {
        at[(key[k] >> shift) + 1]++;
    }
    for (uint32_t b = 1; b <= n_buckets; b++) {
        at[b] += at[b - 1];
    }
    for (int32_t k = 0; k < n; k++) {
        const uint32_t to = at[key[k] >> shift]++;
        e->tmp_key[to] = key[k];
        e->tmp_idx[to] = idx[k];
    }
    memcpy(key, e->tmp_key, (size_t) n * sizeof *key);
    memcpy(idx, e->tmp_idx, (size_t) n * sizeof *idx);
    int32_t from = 0;
    for (uint32_t b = 0; b < n_buckets; b++) { // at[b] is now the end of bucket b
        const int32_t m = (int32_t) at[b] - from;
        if (m > 1) {
            berth_plan_sort(key + from, idx + from, e->tmp_key, e->tmp_idx, m);
        }
        from = (int32_t) at[b];
    }
}

// Lists the placed blocks that are alive together with block i. Returns their number.
static int32_t list_neighbours(struct eject *e, int32_t i) {
    const struct plan_overlap *o = e->overlap;
    const int32_t begin = e->cells[i].begin, bucket = o->bucket_of[begin];
    int32_t m = 0;
    for (int32_t k = o->list_at[bucket]; k < o->list_at[bucket + 1]; k++) {
        const int32_t j = o->list[k];
        const struct cell *c = &e->cells[j];
        if (c->end > begin && c->off != UNPLACED) {
            e->start[m] = (uint64_t) c->off;
            e->by_start[m++] = j;
        }
    }
    for (int32_t j = o->first_at[o->sec_of[bucket]]; j < o->first_at[e->cells[i].end]; j++) {
        const struct cell *c = &e->cells[j];
        if (c->end > begin && c->off != UNPLACED) {
            e->start[m] = (uint64_t) c->off;
            e->by_start[m++] = j;
        }
    }
    return m;
}

// Sorts the m listed blocks by start. end[k] is then the end of block by_start[k]. No block ends above top.
static void sort_starts(struct eject *e, int32_t m, int64_t top) {
    sort_by_offset(e, e->start, e->by_start, m, (uint64_t) top);
    for (int32_t k = 0; k < m; k++) {
        e->end[k] = e->start[k] + (uint64_t) e->cells[e->by_start[k]].size;
    }
}

// Sorts the ends of the m listed blocks, and fills the prefix sums. The blocks are sorted by start.
static void sort_ends(struct eject *e, int32_t m, int64_t top) {
    for (int32_t k = 0; k < m; k++) {
        const int32_t j = e->by_start[k];
        e->by_end[k] = j;
        e->sum_start[k + 1] = e->sum_start[k] + (uint64_t) e->cells[j].weight;
    }
    sort_by_offset(e, e->end, e->by_end, m, (uint64_t) top);
    for (int32_t k = 0; k < m; k++) {
        e->sum_end[k + 1] = e->sum_end[k] + (uint64_t) e->cells[e->by_end[k]].weight;
    }
}

// ---- a step ----

struct spot {
    int64_t off;       // -1: none
    int64_t cost;      // sum of the weights of the overlapped blocks
    int32_t n_starts;  // number of listed blocks that start below the end of the block
    int32_t n_offered; // number of spots compared, if chance selects one
};

static int64_t align_up(const struct eject *e, int32_t i, int64_t off) {
    if (e->p->align == NULL) {
        return off;
    }
    const int64_t over = off % e->p->align[i];
    return over == 0 ? off : off + e->p->align[i] - over;
}

// Returns for how many sections block i is alive together with block j.
static int32_t common_width(const struct eject *e, int32_t i, int32_t j) {
    return min_i32(e->cells[i].end, e->cells[j].end) - max_i32(e->cells[i].begin, e->cells[j].begin);
}

// Returns the best offset of block i in a gap below cap, -1: no gap. The m listed blocks are sorted by start.
static int64_t find_gap(struct eject *e, int32_t i, int64_t cap, int32_t m) {
    const int64_t size = e->cells[i].size;
    const double width = e->cells[i].end - e->cells[i].begin;
    double least = INFINITY, below = TOUCH_WALL * width; // below: sections in which a block ends at top
    int64_t best = -1, top = 0;
    for (int32_t k = 0; k <= m && top <= cap - size; k++) {
        const int64_t start = k < m ? min_i64((int64_t) e->start[k], cap) : cap, low = align_up(e, i, top);
        if (start - size >= low) {
            const int64_t high = start - size - (e->p->align != NULL ? (start - size) % e->p->align[i] : 0);
            double above = start == cap ? TOUCH_WALL * width : 0;
            for (int32_t j = k; j < m && start < cap && (int64_t) e->start[j] == start; j++) {
                above += common_width(e, i, e->by_start[j]);
            }
            if (high + size < start) {
                above = 0;
            }
            const double touch = (low == top ? max_f64(below, above) : above) / width;
            const double value = ((double) (start - top - size) + e->typical_size) * (TOUCH_MOST - touch);
            if (value < least) {
                least = value;
                best = low == top && below >= above ? low : high;
            }
        }
        if (k < m && (int64_t) e->end[k] >= top) {
            if ((int64_t) e->end[k] > top) {
                below = 0;
            }
            below += common_width(e, i, e->by_start[k]);
            top = (int64_t) e->end[k];
        }
    }
    return best;
}

// Compares the spot `off` of a block of the given size with the best one. *n_starts and *n_ends are cursors of a sweep with rising
// offsets. The sums wrap, but their difference is exact.
static void spot_offer(
    struct eject *e, struct spot *best, int64_t off, int64_t size, int32_t m, int32_t *n_starts, int32_t *n_ends) {
    while (*n_starts < m && e->start[*n_starts] < (uint64_t) (off + size)) {
        ++*n_starts;
    }
    while (*n_ends < m && e->end[*n_ends] <= (uint64_t) off) {
        ++*n_ends;
    }
    const int64_t cost = (int64_t) (e->sum_start[*n_starts] - e->sum_end[*n_ends]);
    if (e->is_random) {
        best->n_offered++;
        if (random_next(e) % (uint64_t) best->n_offered == 0) {
            *best = (struct spot){off, cost, *n_starts, best->n_offered};
        }
    } else if (cost < best->cost) {
        *best = (struct spot){off, cost, *n_starts, 0};
    }
}

// Returns the cheapest spot of block i whose end is at most cap. The m listed blocks are sorted by start and by end.
static struct spot find_spot(struct eject *e, int32_t i, int64_t cap, int32_t m) {
    struct spot best = {.off = -1, .cost = INT64_MAX};
    const int64_t size = e->cells[i].size;
    int32_t n_starts = 0, n_ends = 0;
    for (int32_t k = -1; k < m; k++) { // directly above block k
        if (k >= 0 && k + 1 < m && e->end[k + 1] == e->end[k]) {
            continue;
        }
        if (k >= 0 && (int64_t) e->end[k] > cap) {
            break;
        }
        const int64_t off = align_up(e, i, k < 0 ? 0 : (int64_t) e->end[k]);
        if (off > cap - size) {
            break;
        }
        spot_offer(e, &best, off, size, m, &n_starts, &n_ends);
    }
    n_starts = 0;
    n_ends = 0;
    for (int32_t k = 0; k <= m; k++) { // directly below block k, then below the cap
        const bool is_last = k == m || (int64_t) e->start[k] >= cap;
        int64_t off = (is_last ? cap : (int64_t) e->start[k]) - size;
        if (off >= 0) {
            off -= e->p->align != NULL ? off % e->p->align[i] : 0;
            spot_offer(e, &best, off, size, m, &n_starts, &n_ends);
        }
        if (is_last) {
            break;
        }
    }
    return best;
}

static void take_out(struct eject *e, int32_t i) {
    if (e->chain_of[i] != e->i_chain) {
        e->chain_of[i] = e->i_chain;
        e->undo[e->n_undo++] = (struct eject_move){e->cells[i].off, i};
    }
    e->cells[i].off = UNPLACED;
    e->open[e->n_open++] = i;
}

// Returns false if the spot overlaps a block that is not ejected.
static bool eject_overlapped(struct eject *e, const struct spot *spot) {
    if (spot->cost >= WEIGHT_FIXED) {
        return false;
    }
    for (int32_t k = 0; k < spot->n_starts; k++) {
        const int32_t j = e->by_start[k];
        if (e->cells[j].off + e->cells[j].size > spot->off) {
            if (e->cells[j].weight >= WEIGHT_FIXED) {
                return false;
            }
            take_out(e, j);
        }
    }
    return true;
}

// Makes block i the last one that is not ejected. i == -1: none.
static void tabu_push(struct eject *e, int32_t i, int32_t step) {
    int32_t *slot = &e->tabu[step % TABU];
    if (*slot >= 0) {
        e->cells[*slot].weight = weight_of(e, *slot);
    }
    *slot = i;
    if (i >= 0) {
        e->cells[i].weight = WEIGHT_FIXED;
    }
}

// Takes the most difficult open block: easier ones fit into the gaps that it leaves.
static int32_t open_pop(struct eject *e) {
    int32_t best = 0;
    for (int32_t k = 1; k < e->n_open; k++) {
        if (e->difficulty[e->open[k]] > e->difficulty[e->open[best]]) {
            best = k;
        }
    }
    const int32_t i = e->open[best];
    e->open[best] = e->open[--e->n_open];
    return i;
}

static void blame_add(struct eject *e, int32_t i) {
    if (++e->blame[i] < BLAME_MAX) {
        return;
    }
    for (int32_t k = 0; k < e->p->n; k++) {
        e->blame[k] = (uint8_t) ((e->blame[k] + 1) / 2);
        if (e->cells[k].weight < WEIGHT_FIXED) {
            e->cells[k].weight = weight_of(e, k);
        }
    }
}

static bool step_run(struct eject *e, struct eject_limits *limits, int32_t step, int64_t top) {
    const int32_t i = open_pop(e), m = list_neighbours(e, i);
    sort_starts(e, m, top);
    limits->n_steps++;
    plan_work_add(limits->goal->work, STEP_NS + (int64_t) m * STEP_BLOCK_NS);
    int64_t off = e->is_random ? -1 : find_gap(e, i, limits->cap, m);
    if (off < 0) {
        if (!e->is_random) {
            blame_add(e, i);
        }
        sort_ends(e, m, top);
        const struct spot spot = find_spot(e, i, limits->cap, m);
        off = spot.off;
        if (off < 0 || !eject_overlapped(e, &spot)) {
            e->open[e->n_open++] = i;
            return false;
        }
    }
    e->cells[i].off = off;
    tabu_push(e, i, step);
    e->is_random = false;
    return true;
}

bool berth_eject_fit(struct eject *e, int32_t i, struct eject_limits *limits) {
    const int32_t m = list_neighbours(e, i);
    sort_starts(e, m, max_i64(berth_eject_peak(e), limits->cap));
    plan_work_add(limits->goal->work, STEP_NS + (int64_t) m * STEP_BLOCK_NS);
    e->cells[i].off = find_gap(e, i, limits->cap, m);
    update_end(e, i);
    return e->cells[i].off != UNPLACED;
}

// Returns whether the open blocks together have less than `swap` times the difficulty of block i.
static bool is_swap(const struct eject *e, int32_t i, double swap) {
    double sum = 0;
    for (int32_t k = 0; k < e->n_open; k++) {
        sum += e->difficulty[e->open[k]];
    }
    return sum < swap * e->difficulty[i];
}

static void chain_undo(struct eject *e) {
    for (int32_t k = 0; k < e->n_undo; k++) {
        e->cells[e->undo[k].i].off = e->undo[k].off;
        update_end(e, e->undo[k].i);
    }
    e->n_undo = 0;
    e->n_open = 0;
}

bool berth_eject_place(struct eject *e, int32_t i, struct eject_limits *limits) {
    const int64_t top = max_i64(berth_eject_peak(e), limits->cap);
    if (++e->i_chain == 0) { // the numbers are used up
        memset(e->chain_of, 0, (size_t) e->p->n * sizeof *e->chain_of);
        e->i_chain = 1;
    }
    e->n_open = 0;
    e->n_undo = 0;
    take_out(e, i);
    for (int32_t step = 0; e->n_open > 0 && step < limits->max_steps; step++) {
        if (step % CLOCK_STEPS == CLOCK_STEPS - 1 &&
            plan_is_over(limits->goal->deadline_us, limits->goal->work, limits->goal->watch)) {
            break;
        }
        if (!step_run(e, limits, step, top)) {
            break;
        }
        if (step >= SWAP_STEPS &&
            (is_swap(e, i, limits->swap / 2) || (limits->hopeless > 0 && !is_swap(e, i, limits->hopeless)))) {
            break;
        }
    }
    for (int k = 0; k < TABU; k++) {
        tabu_push(e, -1, k);
    }
    const bool is_placed = e->n_open == 0;
    if (!is_placed && !is_swap(e, i, limits->swap)) {
        chain_undo(e);
        return false;
    }
    for (int32_t k = 0; k < e->n_undo; k++) {
        update_end(e, e->undo[k].i);
    }
    return is_placed;
}

int32_t berth_eject_open(const struct eject *e, const int32_t **ids) {
    *ids = e->open;
    return e->n_open;
}

bool berth_eject_shake(struct eject *e, int32_t i, struct eject_limits *limits) {
    const int32_t m = list_neighbours(e, i);
    if (m == 0) {
        return false;
    }
    const int32_t j = e->by_start[random_next(e) % (uint64_t) m];
    if (is_fixed(e, j)) {
        return false;
    }
    e->is_random = true;
    const bool ok = berth_eject_place(e, j, limits);
    e->is_random = false;
    return ok;
}
