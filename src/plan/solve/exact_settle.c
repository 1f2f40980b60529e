// SPDX-License-Identifier: MIT
// exact_settle.c: derives conclusions at a node of the exact search, until nothing changes: from sections (exact_section.c), from
// blocks that must rest on other blocks, and from valleys that no block can use. All changes are in the trail.

#include "base/min.h"
#include "plan/solve/exact_state.h"

// ---- the trail ----

void berth_exact_set(struct exact *x, int64_t *at, int64_t value) {
    if (x->n_trail == x->cap_trail) {
        if (!BERTH_GROW(&x->trail, &x->cap_trail, x->n_trail + 1)) {
            x->is_out_of_memory = true;
            return;
        }
    }
    x->trail[x->n_trail++] = (struct exact_change){at, *at};
    *at = value;
}

void berth_exact_undo(struct exact *x, size_t mark) {
    x->is_noted = false;
    while (x->n_trail > mark) {
        struct exact_change *c = &x->trail[--x->n_trail];
        *c->at = c->old;
    }
}

// ---- propagation ----

// Puts the sections of block i into the queue. The queue is first in, first out, so a section is checked after most changes to
// its neighbours.
static void queue_block(struct exact *x, int32_t i) {
    for (int32_t s = x->p->begin[i]; s < x->p->end[i]; s++) {
        if (!x->is_queued[s]) {
            const int32_t end = x->i_queue + x->n_queue++;
            x->queue[end < x->p->n_sec ? end : end - x->p->n_sec] = s;
            x->is_queued[s] = true;
        }
    }
}

int32_t berth_exact_queue_take(struct exact *x) {
    const int32_t s = x->queue[x->i_queue];
    x->i_queue = x->i_queue + 1 < x->p->n_sec ? x->i_queue + 1 : 0;
    x->n_queue--;
    x->is_queued[s] = false;
    return s;
}

bool berth_exact_raise(struct exact *x, int32_t i, int64_t low) {
    x->is_noted = false;
    berth_exact_set(x, &x->low[i], low);
    queue_block(x, i);
    x->n_inspected += x->p->end[i] - x->p->begin[i];
    return exact_holds(x, low + x->p->size[i]);
}

// ---- placing ----

bool berth_exact_place(struct exact *x, int32_t i, bool *has_split) {
    const struct plan_prob *p = x->p;
    int64_t top = x->sky[i] + p->size[i];
    bool ok = true;
    x->off[i] = x->sky[i];
    x->is_noted = false;
    berth_exact_set(x, &x->low[i], EXACT_PLACED);
    queue_block(x, i);
    x->n_inspected += 4 * (p->end[i] - p->begin[i]) + x->near_at[i + 1] - x->near_at[i];
    for (int32_t s = p->begin[i]; s < p->end[i]; s++) {
        berth_exact_set(x, &x->rest[s], x->rest[s] - p->size[i]);
        berth_exact_set(x, &x->floor[s], top);
    }
    for (int32_t s = p->begin[i] + 1; s < p->end[i]; s++) {
        berth_exact_set(x, &x->span[s], x->span[s] - 1);
        *has_split |= x->span[s] == 0;
    }
    for (int32_t k = x->near_at[i]; k < x->near_at[i + 1]; k++) {
        int32_t j = x->near_ids[k];
        if (x->low[j] != EXACT_PLACED && x->sky[j] < top) {
            berth_exact_set(x, &x->sky[j], top);
            ok = (x->low[j] >= top || berth_exact_raise(x, j, top)) && ok;
        }
    }
    return ok;
}

// ---- blocks that cannot be at their sky ----

// Block i cannot be at its sky. So it rests on an unplaced neighbour (its support), and an unplaced neighbour (its blocker) keeps
// it from sliding down to its sky. The support and the blocker that an earlier node found are tested first. Returns false if
// there is no support or no blocker, or if block i does not fit.
static bool rest_on(struct exact *x, int32_t i) {
    const int64_t *size = x->p->size;
    const int64_t sky_end = x->sky[i] + size[i];
    if (x->low[x->support[i]] + size[x->support[i]] <= x->low[i] && x->low[x->blocker[i]] < sky_end) {
        return true;
    }
    int64_t least = INT64_MAX;
    int64_t low_min = EXACT_PLACED;
    x->n_inspected += x->near_at[i + 1] - x->near_at[i];
    for (int32_t k = x->near_at[i]; k < x->near_at[i + 1]; k++) {
        int32_t j = x->near_ids[k];
        int64_t end = x->low[j] + size[j];
        if (end < least) {
            least = end;
            x->support[i] = j;
        }
        if (x->low[j] < low_min) {
            low_min = x->low[j];
            x->blocker[i] = j;
        }
    }
    const bool is_free = least >= EXACT_PLACED || (low_min >= sky_end && (x->ask->rules & EXACT_DOMINANCE));
    if (!is_free && x->low[i] >= least) {
        return true;
    }
    exact_log(x, 'R', i);
    if (is_free) {
        return false;
    }
    return berth_exact_raise(x, i, least);
}

// Of equal blocks, the block with the lower number must be lower.
static bool above_twin(struct exact *x, int32_t i) {
    const int32_t j = x->twin[i];
    if (x->low[j] == EXACT_PLACED || x->low[i] >= x->low[j] + x->p->size[j]) {
        return true;
    }
    exact_log(x, 'T', i);
    return berth_exact_raise(x, i, x->low[j] + x->p->size[j]);
}

bool berth_exact_sort_on(struct exact *x, int32_t i) {
    const int64_t *size = x->p->size;
    bool ok = true;
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
    for (int32_t s = x->p->begin[i]; s < x->p->end[i]; s++) {
        if (x->floor[s] != x->sky[i]) {
            return false;
        }
    }
    return true;
}

// ---- valleys ----

// Returns whether block i is below block j if both are part-wide. j may be -1.
static bool is_below(const struct plan_prob *p, int32_t i, int32_t j) {
    return j < 0 || p->size[i] > p->size[j] || (p->size[i] == p->size[j] && i < j);
}

void berth_exact_note_candidates(struct exact *x, struct exact_part part) {
    const struct plan_prob *p = x->p;
    const int32_t *list = x->lists + part.list;
    int32_t lo = part.hi, hi = part.lo;
    for (int32_t s = part.lo; s < part.hi; s++) {
        x->best_at[s] = -1;
        x->n_at[s] = 0;
    }
    x->part_wide_id = -1;
    bool has_part_wide = false; // a part-wide block is a candidate
    x->n_inspected += 3 * (part.n + part.hi - part.lo);
    for (int32_t k = 0; k < part.n; k++) {
        int32_t i = list[k];
        lo = min_i32(p->begin[i], lo);
        hi = max_i32(p->end[i], hi);
        const bool is_part_wide = p->begin[i] == part.lo && p->end[i] == part.hi;
        // A proof requires the largest one. Otherwise any candidate will do, and the last one leads to less propagation.
        if (is_part_wide && x->log != NULL && is_below(p, i, x->part_wide_id)) {
            x->part_wide_id = i;
        }
        if (is_candidate(x, i)) {
            int32_t *best = &x->best_at[p->begin[i]];
            if (*best < 0 || x->pre[i] < x->pre[*best]) {
                *best = i;
            }
            has_part_wide |= is_part_wide;
            if (is_part_wide && x->log == NULL) {
                x->part_wide_id = i;
            }
            x->n_at[p->begin[i]]++;
        }
    }
    if (!has_part_wide) {
        x->part_wide_id = -1;
    }
    x->noted_lo = lo;
    x->noted_hi = hi;
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

// Raises the floor of each valley without a candidate. *has_raised: there was such a valley. False: there is no plan.
static bool raise_valleys(struct exact *x, struct exact_part part, bool *has_raised) {
    const struct plan_prob *p = x->p;
    const int32_t *list = x->lists + part.list;
    berth_exact_note_candidates(x, part);
    const int32_t lo = x->noted_lo, hi = x->noted_hi;
    for (int32_t s = lo; s < hi;) {
        struct exact_run r = berth_exact_run_at(x, s, lo, hi);
        int64_t wall = min_i64(r.left, r.right);
        if (r.best < 0 && r.floor < wall && x->rest[s] > 0) {
            if (x->log != NULL) {
                const int64_t level = wall == EXACT_PLACED ? 0 : wall;
                berth_plan_log_step(x->log, 'V', (const int64_t[]){r.lo, r.hi, level}, 3);
            }
            if (wall == EXACT_PLACED) {
                return false; // no block can be placed here
            }
            *has_raised = true;
            for (int32_t t = r.lo; t < r.hi; t++) {
                berth_exact_set(x, &x->floor[t], wall);
            }
            for (int32_t k = 0; k < part.n; k++) {
                int32_t i = list[k];
                if (x->low[i] < wall && p->begin[i] < r.hi && p->end[i] > r.lo && !berth_exact_raise(x, i, wall)) {
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
    x->n_inspected += 2 * part.n;
    if (!berth_exact_propagate(x)) {
        return false;
    }
    size_t mark = x->n_trail;
    for (int32_t k = 0; k < part.n; k++) {
        int32_t i = list[k];
        if (x->twin[i] >= 0 && (x->ask->rules & EXACT_TWINS) && !above_twin(x, i)) {
            return false;
        }
        if (x->low[i] > x->sky[i] && (x->ask->rules & EXACT_RESTING) && !rest_on(x, i)) {
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
                berth_exact_queue_take(x);
            }
            return false;
        }
    }
    x->is_noted = true; // raise_valleys ran last and raised no valley
    return true;
}
