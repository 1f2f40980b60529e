// SPDX-License-Identifier: MIT
// exact_section.c: derives conclusions about the unplaced blocks of one section; exact_state.h defines low, slack and C.
// 1. A section is a one-machine scheduling problem: a block is a job with release time low and length size, and C is the deadline
//    of all jobs. The time is O(n).
// 2. At a border of a section with little slack, a block that begins must overlap the addresses of a block that ends. The time is
//    linear in the number of blocks at the border.

#include "base/min.h"
#include "plan/solve/exact_state.h"

#define N_NOT_FIRST 8 // number of subsets that section_not_first inspects
#define LARGE 128     // a section with more blocks gets only a partial check (section_check_large)

// The unplaced blocks of a section, sorted by rising low, with copies of low and size.
struct section {
    int32_t *ids;
    int64_t *low, *size;
    int32_t n;
};

// Lists the unplaced blocks of a section, whose sizes sum to `rest`. Moves them to the front of ids, so that the next call finds
// them there. *least, *highest: the least and the largest low.
static struct section section_new(const struct exact *x, int32_t *ids, int64_t rest, int64_t *least, int64_t *highest) {
    struct section c = {ids, x->sums, x->sums + x->p->n, 0};
    *least = EXACT_PLACED;
    *highest = 0;
    for (int32_t k = 0; rest > 0; k++) {
        const int32_t i = ids[k];
        const int64_t l = x->low[i];
        if (l == EXACT_PLACED) {
            continue;
        }
        ids[k] = ids[c.n];
        ids[c.n] = i;
        c.low[c.n] = l;
        c.size[c.n++] = x->p->size[i];
        *least = min_i64(l, *least);
        *highest = max_i64(l, *highest);
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
            c.ids[at] = c.ids[at - 1];
            c.low[at] = c.low[at - 1];
            c.size[at] = c.size[at - 1];
        }
        c.ids[at] = i;
        c.low[at] = l;
        c.size[at] = z;
    }
}

// Logs that the rules are applied to the blocks [k, n) of a section. The step names the least low of these blocks, and those of the
// other blocks that have the same low.
static void section_log(struct exact *x, int32_t s, struct section c, int32_t k) {
    if (x->log == NULL) {
        return;
    }
    berth_plan_log_step(x->log, 'N', (const int64_t[]){s, c.low[k]}, k > 0 ? 2 : 1);
    for (int32_t i = k; i > 0 && c.low[i - 1] == c.low[k]; i--) {
        berth_plan_log_more(x->log, c.ids[i - 1]);
    }
}

// Returns true if for each k, the blocks from k on fit between low[k] and C. rest: the sum of the sizes of all unplaced blocks.
static bool section_subsets_fit(struct exact *x, int32_t s, struct section c, int64_t rest) {
    for (int32_t k = 0; k < c.n && (x->ask->rules & EXACT_SUBSETS); k++) {
        if (!exact_holds(x, c.low[k] + rest)) {
            section_log(x, s, c, k);
            return false;
        }
        rest -= c.size[k];
    }
    return true;
}

// Returns the least end (low + size) of the blocks [k, to), but at least low.
static int64_t section_first_end(struct section c, int32_t k, int32_t to, int64_t low) {
    int64_t end = EXACT_PLACED;
    for (; k < to && end > low; k++) {
        end = min_i64(c.low[k] + c.size[k], end);
    }
    return max_i64(end, low);
}

// Applies the rule EXACT_NOT_FIRST to the blocks from k on, for each k < N_NOT_FIRST: those that cannot be the lowest are above a
// block that can be the lowest.
static bool section_not_first(struct exact *x, int32_t s, struct section c, int64_t rest) {
    int64_t latest = x->ask->cap - rest; // highest offset of the subset's lowest block
    int32_t to = 0;                      // blocks [k, to) can be the lowest
    for (int32_t k = 0; k < c.n && k < N_NOT_FIRST; k++) {
        to = max_i32(to, k);
        while (to < c.n && c.low[to] <= latest) {
            to++;
        }
        if (to == c.n) {
            return true;
        }
        const int64_t end = section_first_end(c, k, to, c.low[to]);
        if (c.low[to] < end) {
            section_log(x, s, c, k);
            const int64_t cap = x->ask->cap + c.low[to] - latest; // least capacity at which `to` could be the lowest
            x->next = min_i64(cap, x->next);
        }
        for (int32_t i = to; i < c.n && c.low[i] < end; i++) {
            c.low[i] = end;
            if (!berth_exact_raise(x, c.ids[i], end)) {
                return false;
            }
        }
        latest += c.size[k];
    }
    return true;
}

// The blocks that end at a border, or the blocks that begin there.
struct side {
    const int32_t *ids;
    int32_t n;
};

static struct side side_begins(const struct exact *x, int32_t s) {
    return (struct side){x->begin_ids + x->begin_at[s], x->begin_at[s + 1] - x->begin_at[s]};
}

static struct side side_ends(const struct exact *x, int32_t s) {
    return (struct side){x->end_ids + x->end_at[s], x->end_at[s + 1] - x->end_at[s]};
}

// Returns the least low of the unplaced blocks of a side, EXACT_PLACED if there are none. *only: the only unplaced block, or -1.
static int64_t side_least(const struct exact *x, struct side side, int32_t *only) {
    int64_t least = EXACT_PLACED;
    int32_t n = 0;
    for (int32_t k = 0; k < side.n; k++) {
        const int64_t low = x->low[side.ids[k]];
        if (low != EXACT_PLACED) {
            *only = side.ids[k];
            n++;
        }
        least = min_i64(low, least);
    }
    if (n != 1) {
        *only = -1;
    }
    return least;
}

// Checks one border of section s. own: the blocks of s that are not alive beyond the border. other: the blocks that are alive
// beyond the border but not in s. Above floor, at most slack units of s stay unused. So if an unplaced block of `other` is larger
// than the slack and is not below floor, it overlaps the addresses of a block of `own`. It begins at most slack units below the
// lowest block of `own`, and ends at most slack units above the highest block of `own`.
// letter: the step of the log, A if the border is after s, B if it is before s.
static bool border_check(struct exact *x, int32_t s, char letter, struct side own, struct side other) {
    const int64_t *size = x->p->size;
    const int64_t slack = x->slack[s];
    const int64_t floor = x->ask->cap - x->rest[s] - slack; // least low of the unplaced blocks of s
    int32_t only = -1;
    const int64_t least = side_least(x, own, &only);
    int64_t top = 0; // the highest end of a block of other
    bool ok = true, is_logged = false;
    for (int32_t k = 0; k < other.n && ok; k++) {
        const int32_t i = other.ids[k];
        const int64_t low = x->low[i];
        if (low == EXACT_PLACED || low < floor || size[i] <= slack) {
            continue;
        }
        top = max_i64(low + size[i], top);
        ok = low >= least - slack || (least != EXACT_PLACED && berth_exact_raise(x, i, least - slack));
        if (low < least - slack) {
            if (!is_logged) {
                exact_log(x, letter, s);
                is_logged = true;
            }
            exact_holds(x, x->ask->cap + 1); // lowers x->next: with more capacity, the slack is larger and the block may be lower
        }
    }
    if (ok && only >= 0 && x->low[only] < top - slack - size[only]) {
        if (!is_logged) {
            exact_log(x, letter, s);
        }
        exact_holds(x, x->ask->cap + 1);
        ok = berth_exact_raise(x, only, top - slack - size[only]);
    }
    return ok;
}

// Checks both borders of section s, from both sides. Sections in the queue are skipped, because they are checked later.
static bool borders_check(struct exact *x, int32_t s) {
    if (!(x->ask->rules & EXACT_BORDERS)) {
        return true;
    }
    bool ok = true;
    for (int32_t at = s > 0 ? s : 1; at <= s + 1 && at < x->p->n_sec && ok; at++) {
        const struct side begins = side_begins(x, at), ends = side_ends(x, at);
        ok = (x->is_queued[at - 1] || border_check(x, at - 1, 'A', ends, begins)) &&
             (x->is_queued[at] || border_check(x, at, 'B', begins, ends));
    }
    return ok;
}

// Returns true if the unplaced blocks of s fit above `least`, the least low. Also updates the slack of s.
static bool section_holds(struct exact *x, int32_t s, int64_t least) {
    const int64_t slack = x->ask->cap - x->rest[s] - least;
    if (slack >= 0 && x->slack[s] != slack) {
        berth_exact_set(x, &x->slack[s], slack);
    }
    if (exact_holds(x, least + x->rest[s])) {
        return true;
    }
    exact_log(x, 'N', s);
    return false;
}

// Checks a section with many blocks. Applies the rules only to the set of all unplaced blocks, not to its subsets.
static bool section_check_large(struct exact *x, int32_t s) {
    const int64_t latest = x->ask->cap - x->rest[s];
    int32_t *ids = x->sec_ids + x->sec_at[s];
    int32_t n = 0;
    // first_end: least end of the blocks that can be the lowest. late: least low of the other blocks.
    int64_t least = EXACT_PLACED, first_end = EXACT_PLACED, late = EXACT_PLACED;
    for (int64_t k = 0, rest = x->rest[s]; rest > 0; k++) {
        const int32_t i = ids[k];
        const int64_t low = x->low[i], size = x->p->size[i];
        if (low == EXACT_PLACED) {
            continue;
        }
        ids[k] = ids[n];
        ids[n++] = i;
        least = min_i64(low, least);
        if (low > latest && low < late) {
            late = low;
        }
        if (low <= latest && low + size < first_end) {
            first_end = low + size;
        }
        rest -= size;
    }
    bool ok = section_holds(x, s, least);
    if (!ok || late >= first_end || !(x->ask->rules & EXACT_NOT_FIRST)) {
        return ok;
    }
    exact_log(x, 'N', s);
    for (int32_t k = 0; k < n && ok; k++) {
        const int64_t low = x->low[ids[k]];
        if (low > latest && low < first_end) {
            const int64_t cap = x->ask->cap + low - latest; // least capacity at which the block could be the lowest
            x->next = min_i64(cap, x->next);
            ok = berth_exact_raise(x, ids[k], first_end);
        }
    }
    return ok;
}

// False: the section cannot hold its unplaced blocks.
static bool section_check(struct exact *x, int32_t s) {
    const int64_t rest = x->rest[s];
    x->n_inspected++;
    if (rest == 0) {
        return true;
    }
    x->n_inspected += x->sec_at[s + 1] - x->sec_at[s];
    if (x->sec_at[s + 1] - x->sec_at[s] > LARGE) {
        return section_check_large(x, s);
    }
    int64_t least, highest;
    const struct section c = section_new(x, x->sec_ids + x->sec_at[s], rest, &least, &highest);
    if (!section_holds(x, s, least)) {
        return false;
    }
    if (highest <= x->ask->cap - rest) {
        return true; // any block may be the lowest, and all fit
    }
    section_sort(c);
    return section_subsets_fit(x, s, c, rest) && (!(x->ask->rules & EXACT_NOT_FIRST) || section_not_first(x, s, c, rest));
}

static void section_blame(struct exact *x, int32_t s) {
    for (int32_t k = x->sec_at[s]; k < x->sec_at[s + 1]; k++) {
        if (x->low[x->sec_ids[k]] != EXACT_PLACED) {
            x->ask->blame[x->sec_ids[k]] += 1;
        }
    }
    x->ask->blame[x->p->n + s] += 1;
}

bool berth_exact_propagate(struct exact *x) {
    bool ok = true;
    while (x->n_queue > 0) {
        const int32_t s = berth_exact_queue_take(x);
        if (ok && !(section_check(x, s) && borders_check(x, s))) {
            ok = false;
            if (x->ask->blame != NULL) {
                section_blame(x, s);
            }
        }
    }
    return ok && !x->is_out_of_memory;
}
