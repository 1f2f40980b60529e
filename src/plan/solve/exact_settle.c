// SPDX-License-Identifier: MIT
// exact_settle.c: what follows at a node of the exact search, until nothing new does: bounds of offsets from what sections can
// hold, what blocks must rest on, valleys that no block can use. All that is written goes through the trail.

#include "plan/solve/exact_state.h"

// ---- the trail ----

static void set(struct exact *x, int64_t *at, int64_t value) {
    if (x->n_trail == x->cap_trail) {
        if (!berth_grow((void **) &x->trail, &x->cap_trail, x->n_trail + 1, sizeof *x->trail)) {
            x->is_out_of_memory = true;
            return;
        }
    }
    x->trail[x->n_trail++] = (struct exact_change){at, *at};
    *at                    = value;
}

void berth_exact_undo(struct exact *x, size_t mark) {
    while (x->n_trail > mark) {
        struct exact_change *c = &x->trail[--x->n_trail];
        *c->at                 = c->old;
    }
}

// ---- propagation ----

static void queue_block(struct exact *x, int32_t i) {
    for (int32_t s = x->p->a[i]; s < x->p->b[i]; s++) {
        if (!x->is_queued[s]) {
            x->is_queued[s]        = true;
            x->queue[x->n_queue++] = s;
        }
    }
}

bool berth_exact_raise(struct exact *x, int32_t i, int64_t low) {
    set(x, &x->low[i], low);
    queue_block(x, i);
    return exact_holds(x, low + x->p->size[i]);
}

// The unplaced blocks of a section, by rising low, with copies of what is asked of them.
struct section {
    int32_t *ids;
    int64_t *low, *size;
    int32_t n;
};

// Brings the unplaced blocks of a section, of rest units, to the front of its list. They stay there: next time few have moved.
// *highest: the largest low.
static struct section section_new(const struct exact *x, int32_t *ids, int64_t rest, int64_t *least, int64_t *highest) {
    struct section c = {ids, x->sums, x->sums + x->p->n, 0};
    *least           = EXACT_PLACED;
    *highest         = 0;
    for (int32_t k = 0; rest > 0; k++) {
        const int32_t i = ids[k];
        const int64_t l = x->low[i];
        if (l == EXACT_PLACED) {
            continue;
        }
        ids[k]        = ids[c.n];
        ids[c.n]      = i;
        c.low[c.n]    = l;
        c.size[c.n++] = x->p->size[i];
        *least        = l < *least ? l : *least;
        *highest      = l > *highest ? l : *highest;
        rest -= x->p->size[i];
    }
    return c;
}

static void section_sort(struct section c) {
    for (int32_t k = 1; k < c.n; k++) {
        const int32_t i = c.ids[k];
        const int64_t l = c.low[k], z = c.size[k];
        int32_t at = k;
        for (; at > 0 && c.low[at - 1] > l; at--) {
            c.ids[at]  = c.ids[at - 1];
            c.low[at]  = c.low[at - 1];
            c.size[at] = c.size[at - 1];
        }
        c.ids[at]  = i;
        c.low[at]  = l;
        c.size[at] = z;
    }
}

// Of the blocks from k on, together sum units, those that cannot be lowest lie above one that can.
static bool section_not_first(struct exact *x, struct section c, int32_t k, int64_t sum) {
    const int64_t latest = x->ask->cap - sum; // the lowest lies no higher
    int64_t first_end    = EXACT_PLACED;      // least end of those that can be lowest
    for (; k < c.n && c.low[k] <= latest; k++) {
        first_end = c.low[k] + c.size[k] < first_end ? c.low[k] + c.size[k] : first_end;
    }
    if (k == c.n || c.low[k] >= first_end) {
        return true;
    }
    x->next = c.low[k] + sum < x->next ? c.low[k] + sum : x->next;
    for (; k < c.n && c.low[k] < first_end; k++) {
        c.low[k] = first_end;
        if (!berth_exact_raise(x, c.ids[k], first_end)) {
            return false;
        }
    }
    return true;
}

#define N_NOT_FIRST 8 // sets that are looked at

// One section as one machine: heads low, lengths size, deadline C.
static bool section_look(struct exact *x, int32_t s) {
    const int64_t rest = x->rest[s];
    if (rest == 0) {
        return true;
    }
    int64_t least, highest;
    const struct section c = section_new(x, x->sec_ids + x->sec_at[s], rest, &least, &highest);
    const int64_t latest   = x->ask->cap - rest;
    if (!exact_holds(x, least + rest)) {
        return false;
    }
    if (x->slack[s] != latest - least) {
        set(x, &x->slack[s], latest - least);
    }
    if (highest <= latest) {
        return true; // whoever comes first, there is room for all
    }
    section_sort(c);
    // All blocks but the lowest few need their room too, above the lowest of them.
    int64_t below = 0; // units of the lowest few
    for (int32_t k = 0; k < c.n && (x->ask->rules & EXACT_HEADS); k++) {
        if (!exact_holds(x, c.low[k] + rest - below)) {
            return false;
        }
        below += c.size[k];
    }
    below = 0;
    if (!(x->ask->rules & EXACT_NOT_FIRST)) {
        return true;
    }
    for (int32_t k = 0; k < c.n && k < N_NOT_FIRST && highest > latest + below; k++) {
        if (!section_not_first(x, c, k, rest - below)) {
            return false;
        }
        below += c.size[k];
    }
    return true;
}

// What is still to place where a section cannot hold it is to blame.
static void section_blame(struct exact *x, int32_t s) {
    for (int32_t k = x->sec_at[s]; k < x->sec_at[s + 1]; k++) {
        if (x->low[x->sec_ids[k]] != EXACT_PLACED) {
            x->ask->blame[x->sec_ids[k]] += 1;
        }
    }
}

static bool propagate(struct exact *x) {
    bool ok = true;
    while (x->n_queue > 0) {
        int32_t s       = x->queue[--x->n_queue];
        x->is_queued[s] = false;
        if (ok && !section_look(x, s)) {
            ok = false;
            if (x->ask->blame != NULL) {
                section_blame(x, s);
            }
        }
    }
    return ok && !x->is_out_of_memory;
}

// ---- placing ----

bool berth_exact_place(struct exact *x, int32_t i, bool *has_split) {
    const struct plan_prob *p = x->p;
    int64_t top               = x->sky[i] + p->size[i];
    bool ok                   = true;
    x->off[i]                 = x->sky[i];
    set(x, &x->low[i], EXACT_PLACED);
    queue_block(x, i);
    for (int32_t s = p->a[i]; s < p->b[i]; s++) {
        set(x, &x->rest[s], x->rest[s] - p->size[i]);
        set(x, &x->floor[s], top);
    }
    for (int32_t s = p->a[i] + 1; s < p->b[i]; s++) {
        set(x, &x->span[s], x->span[s] - 1);
        *has_split |= x->span[s] == 0;
    }
    for (int32_t k = x->near_at[i]; k < x->near_at[i + 1]; k++) {
        int32_t j = x->near_ids[k];
        if (x->low[j] != EXACT_PLACED && x->sky[j] < top) {
            set(x, &x->sky[j], top);
            ok = (x->low[j] >= top || berth_exact_raise(x, j, top)) && ok;
        }
    }
    return ok;
}

// ---- what follows for blocks that cannot lie at their sky ----

// Such a block rests on an unplaced neighbour, and would slide down to its sky if none were in the way. Witnesses of both are
// kept over nodes and asked first.
static bool rest_on(struct exact *x, int32_t i) {
    const int64_t *size   = x->p->size;
    const int64_t sky_end = x->sky[i] + size[i];
    if (x->low[x->under[i]] + size[x->under[i]] <= x->low[i] && x->low[x->block[i]] < sky_end) {
        return true;
    }
    int64_t least   = INT64_MAX;
    int64_t low_min = EXACT_PLACED;
    for (int32_t k = x->near_at[i]; k < x->near_at[i + 1]; k++) {
        int32_t j   = x->near_ids[k];
        int64_t end = x->low[j] + size[j];
        if (end < least) {
            least       = end;
            x->under[i] = j;
        }
        if (x->low[j] < low_min) {
            low_min     = x->low[j];
            x->block[i] = j;
        }
    }
    if (least >= EXACT_PLACED || (low_min >= sky_end && (x->ask->rules & EXACT_DOMINANCE))) {
        return false;
    }
    return x->low[i] >= least || berth_exact_raise(x, i, least);
}

// Of equal blocks the one of the lower number lies lower.
static bool behind_twin(struct exact *x, int32_t i) {
    const int32_t j = x->twin[i];
    return x->low[j] == EXACT_PLACED || x->low[i] >= x->low[j] + x->p->size[j] ||
           berth_exact_raise(x, i, x->low[j] + x->p->size[j]);
}

bool berth_exact_sort_on(struct exact *x, int32_t i) {
    const int64_t *size = x->p->size;
    bool ok             = true;
    for (int32_t j = x->peer[i]; j != i && ok; j = x->peer[j]) {
        if (x->low[j] == x->sky[j] && size[j] > size[i]) {
            ok = berth_exact_raise(x, j, x->sky[j] + 1);
        }
    }
    return ok;
}

static bool is_candidate(const struct exact *x, int32_t i) {
    if (x->low[i] != x->sky[i]) {
        return false;
    }
    for (int32_t s = x->p->a[i]; s < x->p->b[i]; s++) {
        if (x->floor[s] != x->sky[i]) {
            return false;
        }
    }
    return true;
}

// ---- valleys ----

void berth_exact_note_candidates(struct exact *x, struct exact_part part, int32_t *lo, int32_t *hi) {
    const struct plan_prob *p = x->p;
    const int32_t *list       = x->lists + part.list;
    for (int32_t s = part.lo; s < part.hi; s++) {
        x->best_at[s] = -1;
    }
    *lo        = part.hi;
    *hi        = part.lo;
    x->through = -1;
    for (int32_t k = 0; k < part.n; k++) {
        int32_t i = list[k];
        *lo       = p->a[i] < *lo ? p->a[i] : *lo;
        *hi       = p->b[i] > *hi ? p->b[i] : *hi;
        if (is_candidate(x, i)) {
            int32_t *best = &x->best_at[p->a[i]];
            *best         = *best < 0 || x->pre[i] < x->pre[*best] ? i : *best;
            x->through    = p->a[i] == part.lo && p->b[i] == part.hi ? i : x->through;
        }
    }
}

struct exact_run berth_exact_run_at(const struct exact *x, int32_t s, int32_t lo, int32_t hi) {
    struct exact_run r = {s, s, x->floor[s], EXACT_PLACED, EXACT_PLACED, -1};
    if (s > lo && x->span[s] > 0) {
        r.left = x->floor[s - 1];
    }
    do {
        int32_t i = x->best_at[r.hi];
        if (i >= 0 && (r.best < 0 || x->pre[i] < x->pre[r.best])) {
            r.best = i;
        }
        r.hi++;
    } while (r.hi < hi && x->floor[r.hi] == r.floor && x->span[r.hi] > 0);
    if (r.hi < hi && x->span[r.hi] > 0) {
        r.right = x->floor[r.hi];
    }
    return r;
}

// Raises the valleys that no candidate can use. *has_raised is set if there was one.
static bool raise_valleys(struct exact *x, struct exact_part part, bool *has_raised) {
    const struct plan_prob *p = x->p;
    const int32_t *list       = x->lists + part.list;
    int32_t lo, hi;
    berth_exact_note_candidates(x, part, &lo, &hi);
    for (int32_t s = lo; s < hi;) {
        struct exact_run r = berth_exact_run_at(x, s, lo, hi);
        int64_t wall       = r.left < r.right ? r.left : r.right;
        if (r.best < 0 && r.floor < wall && x->rest[s] > 0) {
            if (wall == EXACT_PLACED) {
                return false; // nothing can be placed
            }
            *has_raised = true;
            for (int32_t t = r.lo; t < r.hi; t++) {
                set(x, &x->floor[t], wall);
            }
            for (int32_t k = 0; k < part.n; k++) {
                int32_t i = list[k];
                if (x->low[i] < wall && p->a[i] < r.hi && p->b[i] > r.lo && !berth_exact_raise(x, i, wall)) {
                    return false;
                }
            }
        }
        s = r.hi;
    }
    return true;
}

static bool settle_once(struct exact *x, struct exact_part part, bool *has_moved) {
    const int32_t *list = x->lists + part.list;
    if (!propagate(x)) {
        return false;
    }
    size_t mark = x->n_trail;
    for (int32_t k = 0; k < part.n; k++) {
        int32_t i = list[k];
        if (x->twin[i] >= 0 && (x->ask->rules & EXACT_TWINS) && !behind_twin(x, i)) {
            return false;
        }
        if (x->low[i] > x->sky[i] && (x->ask->rules & EXACT_STRAND) && !rest_on(x, i)) {
            return false;
        }
    }
    *has_moved = x->n_trail != mark;
    return *has_moved || raise_valleys(x, part, has_moved);
}

bool berth_exact_settle(struct exact *x, struct exact_part part) {
    for (bool has_moved = true; has_moved;) {
        if (!settle_once(x, part, &has_moved)) {
            while (x->n_queue > 0) {
                x->is_queued[x->queue[--x->n_queue]] = false;
            }
            return false;
        }
    }
    return true;
}
