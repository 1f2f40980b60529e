// SPDX-License-Identifier: MIT
// exact.c: answers "does this problem fit into C units?" by branch and bound over canonical plans. In a canonical plan no block
// can slide down: each block is at offset 0 or directly on another block. exact_state.h defines the terms.
//
// A node of the search tree tries a candidate of one valley at its sky. If that fails, the node adds the fact that the block is
// above its sky, and continues with another candidate. This covers all plans, whichever valley is filled first. If the valley
// with the least slack is filled first, wrong choices fail soon. For example, instance G of MiniMalloc's set takes 420 nodes this
// way, and 466,637 nodes if the lowest valley is filled first. Facts that hold at each node:
// - Resting: if low[i] > sky[i], then low[i] >= min(low[j] + size[j]) over unplaced neighbours j. One of these
//   neighbours keeps i from sliding to its sky.
// - Valley: a valley is adjacent sections with one floor that is lower than the floors on both sides. If no candidate can use a
//   valley, its floor rises to the lower of these two floors.
// - Not first: a block that cannot be the lowest of a section is above a block that can be the lowest.
// A rule that excludes plans also computes the least capacity that may allow these plans. The least of all these capacities is
// the next capacity worth asking for (*next). A node takes 3 to 10 us at 200 to 300 blocks.

#include "base/min.h"
#include "plan/solve/exact_state.h"

#include <string.h>

#define BLAME_LEAST 0.1   // added to the failures of a valley, so that they can be a divisor
#define BLAME_UNIT 1e6    // factor that turns candidates / failures into an integer
#define NODE_NS 300       // counted work of a node
#define INSPECT_NS 5      // counted work of one inspection of a block or section
#define ASK_INSPECTED 20  // inspections per block and section at the start
#define CLOCK_NODES 16    // nodes between two readings of the clock
#define CLOCK_BLOCKS 1000 // with more blocks, every node reads the clock

static void sort_part(struct exact *x, const struct exact_part *part) {
    const struct plan_prob *p = x->p;
    int32_t *list = x->lists + part->list;
    for (int32_t k = 0; k < part->n; k++) {
        int32_t i = list[k];
        int64_t t = 0;
        for (int32_t s = p->begin[i]; s < p->end[i]; s++) {
            t = max_i64(x->rest[s], t);
        }
        double w = p->end[i] - p->begin[i];
        double z = (double) p->size[i];
        if (x->ask->blame != NULL) {
            z *= 1 + (double) x->ask->weight * (double) x->ask->blame[i] / x->blame_max;
        }
        x->key[k] = ~plan_priority_key(x->ask->preorder, w, z, (double) t);
    }
    berth_plan_sort(x->key, list, x->key + part->n, x->tmp, part->n);
    for (int32_t k = 0; k < part->n; k++) {
        x->pre[list[k]] = k;
        x->pos[list[k]] = k;
    }
}

static enum exact_answer part_descend(struct exact *x, struct exact_part part);

// Divides a part into pieces that no unplaced block connects, and searches each piece separately. Then restores the preorder of
// the part.
static enum exact_answer descend_split(struct exact *x, struct exact_part part) {
    const struct plan_prob *p = x->p;
    size_t base = x->n_lists;
    size_t n = (size_t) part.n;
    enum exact_answer answer = EXACT_FITS;
    if (base + 2 * n > x->cap_lists && !BERTH_GROW(&x->lists, &x->cap_lists, base + 2 * n)) {
        x->is_out_of_memory = true;
        return EXACT_UNKNOWN;
    }
    // Block numbers rise with the first section.
    int32_t *by_start = x->lists + base;
    for (size_t k = 0; k < n; k++) {
        int32_t i = x->lists[part.list + k];
        x->key[k] = (uint64_t) i;
        by_start[k] = i;
        by_start[n + k] = x->pre[i];
    }
    berth_plan_sort(x->key, by_start, x->key + n, x->tmp, part.n);
    x->n_lists = base + 2 * n;
    for (size_t from = 0; from < n && answer == EXACT_FITS;) {
        by_start = x->lists + base; // the recursion may have moved the array
        int32_t lo = p->begin[by_start[from]];
        int32_t end = p->end[by_start[from]];
        size_t to = from + 1;
        for (; to < n && p->begin[by_start[to]] < end; to++) {
            end = max_i32(p->end[by_start[to]], end);
        }
        struct exact_part piece = {base + from, (int32_t) (to - from), lo, end};
        sort_part(x, &piece);
        x->is_noted = false;
        const uint64_t log_size = x->log != NULL ? plan_log_size(x->log) : 0;
        answer = part_descend(x, piece);
        if (answer == EXACT_FITS && x->log != NULL) { // if another piece has no plan, the steps of this piece are not needed
            berth_plan_log_cut(x->log, log_size);
        }
        from = to;
    }
    for (size_t k = 0; k < n; k++) {
        int32_t i = x->lists[part.list + k];
        x->pos[i] = (int32_t) k;
        x->pre[i] = x->lists[base + n + k];
    }
    x->n_lists = base;
    x->is_noted = false;
    x->n_inspected += ASK_INSPECTED / 2 * (int64_t) n;
    return answer;
}

bool berth_exact_is_over(struct exact *x) {
    x->n_nodes++;
    plan_work_add(x->ask->work, NODE_NS + x->n_inspected * INSPECT_NS);
    x->n_inspected = 0;
    if ((x->n_nodes % CLOCK_NODES == 0 || x->p->n > CLOCK_BLOCKS) &&
        ((x->ask->stop != NULL && atomic_load_explicit(x->ask->stop, memory_order_relaxed)) ||
            (x->ask->deadline_us < INT64_MAX && plan_is_over(x->ask->deadline_us, x->ask->work, x->ask->watch)))) {
        x->is_late = true;
    }
    return x->is_late || x->is_out_of_memory || x->n_nodes > x->ask->max_nodes;
}

// Returns the number of candidates divided by the blame of the valley's sections. A wrong choice fails soonest in valleys with
// few candidates and many failures, so these are filled first.
static int64_t valley_blame(const struct exact *x, const struct exact_run *r) {
    double n_candidates = 0, n_failed = BLAME_LEAST;
    for (int32_t s = r->lo; s < r->hi; s++) {
        n_candidates += x->n_at[s];
        n_failed += x->ask->blame != NULL ? (double) x->ask->blame[x->p->n + s] : 0;
    }
    return (int64_t) (n_candidates / n_failed * BLAME_UNIT);
}

// The valley with the least rank is filled first.
static int64_t valley_rank(const struct exact *x, const struct exact_run *r) {
    int64_t slack = EXACT_PLACED;
    switch (x->ask->valley) {
        case EXACT_LOWEST: return r->floor;
        case EXACT_NARROWEST: return r->hi - r->lo;
        case EXACT_BLAMED: return valley_blame(x, r);
        default:
            for (int32_t s = r->lo; s < r->hi; s++) {
                slack = min_i64(x->slack[s], slack);
            }
            return slack;
    }
}

// Chooses a candidate of the valley with the least rank. berth_exact_settle has ensured that every valley has a candidate.
int32_t berth_exact_choose(struct exact *x, struct exact_part part) {
    struct exact_run best = {.best = -1};
    if (part.n == 0) {
        return -1;
    }
    if (!x->is_noted) {
        berth_exact_note_candidates(x, part);
    }
    const int32_t lo = x->noted_lo, hi = x->noted_hi;
    if (x->part_wide_id >= 0 && (x->ask->rules & EXACT_PART_WIDE)) {
        return x->part_wide_id;
    }
    int64_t best_rank = INT64_MAX;
    for (int32_t s = lo; s < hi;) {
        struct exact_run r = berth_exact_run_at(x, s, lo, hi);
        if (r.best >= 0 && r.floor < r.left && r.floor < r.right) {
            int64_t rank = valley_rank(x, &r);
            if (rank < best_rank || (rank == best_rank && r.hi - r.lo < best.hi - best.lo)) {
                best_rank = rank;
                best = r;
            }
        }
        s = r.hi;
    }
    BERTH_ASSERT_INTERNAL(best.best >= 0);
    return best.best;
}

// Returns whether some unplaced neighbour of block i can keep i from sliding down to its sky in a canonical plan.
static bool can_be_higher(const struct exact *x, int32_t i) {
    for (int32_t k = x->near_at[i]; k < x->near_at[i + 1]; k++) {
        int32_t j = x->near_ids[k];
        if (x->low[j] < x->sky[i] + x->p->size[i]) {
            return true;
        }
    }
    return false;
}

struct exact_part berth_exact_part_without(struct exact *x, struct exact_part part, int32_t i) {
    int32_t *list = x->lists + part.list;
    int32_t last = list[--part.n];
    list[x->pos[i]] = last;
    list[part.n] = i;
    x->pos[last] = x->pos[i];
    x->pos[i] = part.n;
    return part;
}

bool berth_exact_try(struct exact *x, int32_t i, bool is_part_wide, struct exact_part left, bool *has_split) {
    const bool is_sorted = is_part_wide || !(x->ask->rules & EXACT_SORTED);
    if (x->low[i] > x->sky[i]) {
        return false; // a part-wide block that cannot be at the bottom
    }
    return berth_exact_place(x, i, has_split) && (is_sorted || berth_exact_sort_on(x, i)) && berth_exact_settle(x, left);
}

bool berth_exact_try_higher(struct exact *x, int32_t i, bool is_part_wide, struct exact_part part) {
    if (is_part_wide) {
        exact_log(x, 'W', i);
        return false;
    }
    if ((x->ask->rules & EXACT_SKY_ONLY) && !can_be_higher(x, i)) {
        exact_log(x, 'R', i);
        return false;
    }
    return berth_exact_raise(x, i, x->sky[i] + 1) && berth_exact_settle(x, part);
}

// Searches for a plan of the part. Requires that berth_exact_settle was called. The caller undoes the changes in the trail.
static enum exact_answer part_descend(struct exact *x, struct exact_part part) {
    for (;;) {
        int32_t i = berth_exact_choose(x, part);
        if (i < 0) {
            return EXACT_FITS;
        }
        if (berth_exact_is_over(x)) {
            return EXACT_UNKNOWN;
        }
        bool is_part_wide = i == x->part_wide_id && (x->ask->rules & EXACT_PART_WIDE);
        size_t mark = x->n_trail;
        bool has_split = false;
        struct exact_part left = berth_exact_part_without(x, part, i);
        const bool can_be_low = x->low[i] == x->sky[i];
        if (can_be_low) {
            exact_log(x, 'P', i);
        }
        if (berth_exact_try(x, i, is_part_wide, left, &has_split)) {
            bool is_split = has_split && (x->ask->rules & EXACT_SPLIT);
            enum exact_answer answer = is_split ? descend_split(x, left) : part_descend(x, left);
            if (answer != EXACT_NO) {
                return answer;
            }
        }
        berth_exact_undo(x, mark);
        if (x->is_out_of_memory) {
            return EXACT_UNKNOWN;
        }
        if (can_be_low && x->log != NULL) {
            berth_plan_log_step(x->log, 'X', NULL, 0);
        }
        if (!berth_exact_try_higher(x, i, is_part_wide, part)) {
            return x->is_out_of_memory ? EXACT_UNKNOWN : EXACT_NO;
        }
    }
}

// Resets the state for an ask. False: the size of a block or the total of a section exceeds the capacity.
static bool exact_start(struct exact *x, const struct exact_ask *ask) {
    const struct plan_prob *p = x->p;
    const size_t n = (size_t) p->n;
    x->ask = ask;
    x->next = INT64_MAX;
    x->n_lists = n;
    x->n_nodes = 0;
    x->n_inspected = ASK_INSPECTED * (int64_t) (p->n + p->n_sec) + x->sec_at[p->n_sec];
    x->blame_max = 1;
    x->is_late = false;
    x->is_out_of_memory = false;
    x->n_trail = 0;
    x->is_noted = false;
    memset(x->low, 0, 2 * n * sizeof *x->low);
    memcpy(x->rest, p->total, (size_t) p->n_sec * sizeof *x->rest);
    memset(x->floor, 0, (size_t) p->n_sec * sizeof *x->floor);
    memset(x->span, 0, ((size_t) p->n_sec + 1) * sizeof *x->span);
    for (int32_t i = 0; i < p->n; i++) {
        for (int32_t s = p->begin[i] + 1; s < p->end[i]; s++) {
            x->span[s]++;
        }
        x->lists[i] = i;
        x->support[i] = i;
        x->blocker[i] = i;
    }
    for (int32_t i = 0; ask->blame != NULL && i < p->n; i++) {
        x->blame_max = max_f64((double) ask->blame[i], x->blame_max);
    }
    bool ok = true;
    for (int32_t s = 0; s < p->n_sec; s++) {
        if (!exact_holds(x, p->total[s])) {
            exact_log(x, 'N', s);
            ok = false;
        }
        x->slack[s] = ask->cap - p->total[s];
    }
    for (int32_t i = 0; i < p->n; i++) {
        ok = exact_holds(x, p->size[i]) && ok;
    }
    return ok;
}

static enum exact_answer ask_beam(struct exact *x, const struct exact_ask *ask) {
    struct exact_part all = {0, x->p->n, 0, x->p->n_sec};
    if (!exact_start(x, ask)) {
        return EXACT_NO;
    }
    sort_part(x, &all);
    return berth_exact_beam(x, ask->width);
}

static enum exact_answer ask_depth(struct exact *x, const struct exact_ask *ask) {
    struct exact_part all = {0, x->p->n, 0, x->p->n_sec};
    if (ask->proof != NULL) {
        x->log = &x->log_memory;
        berth_plan_log_cut(x->log, 0);
    }
    if (!exact_start(x, ask)) {
        return EXACT_NO;
    }
    sort_part(x, &all);
    return (ask->rules & EXACT_SPLIT) ? descend_split(x, all) : part_descend(x, all);
}

enum exact_answer berth_exact_ask(
    struct exact *x, const struct exact_ask *ask, int64_t *off, int64_t *next, int64_t *n_nodes, bool *is_late) {
    enum exact_answer answer = EXACT_UNKNOWN;
    x->log = NULL;
    if (ask->width > 0) {
        answer = ask_beam(x, ask);
    }
    // A beam cannot be logged. If it proves that there is no plan, and the ask has a proof to write, a search in depth repeats this.
    if (ask->width == 0 || (answer == EXACT_NO && ask->proof != NULL)) {
        *n_nodes += ask->width > 0 ? x->n_nodes : 0;
        answer = ask_depth(x, ask);
    }
    if (answer == EXACT_FITS) {
        memcpy(off, x->off, (size_t) x->p->n * sizeof *off);
    }
    if (answer == EXACT_NO && x->log != NULL) {
        berth_plan_proof_keep(ask->proof, x->log, &ask->scope, x->next);
    }
    *next = answer == EXACT_NO ? x->next : ask->cap;
    *n_nodes += x->n_nodes;
    plan_work_add(ask->work, x->n_inspected * INSPECT_NS);
    *is_late = x->is_late;
    return answer;
}
