// SPDX-License-Identifier: MIT
// exact_section.c: what a section says of its unplaced blocks. It is one machine with one job at a time: heads low, lengths size,
// deadline C. Beside a border that few blocks begin or end at, full or nearly, they must take each other's places.
// A section of n blocks costs O(n) where few have moved since the last look, and borders what begins and ends there.

#include "base/min.h"
#include "plan/solve/exact_state.h"

#define N_NOT_FIRST 8 // sets that are looked at
#define LARGE 128     // blocks of a section, with which that takes too long

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

// All blocks but the lowest few, of rest units in all, need their room too, above the lowest of them.
static bool section_heads(struct exact *x, struct section c, int64_t rest) {
    for (int32_t k = 0; k < c.n && (x->ask->rules & EXACT_HEADS); k++) {
        if (!exact_holds(x, c.low[k] + rest)) {
            return false;
        }
        rest -= c.size[k];
    }
    return true;
}

// The least end of the blocks [k, to), which can be lowest, if it is above low, and low if it is not.
static int64_t section_first_end(struct section c, int32_t k, int32_t to, int64_t low) {
    int64_t end = EXACT_PLACED;
    for (; k < to && end > low; k++) {
        end = min_i64(c.low[k] + c.size[k], end);
    }
    return max_i64(end, low);
}

// Of the blocks from k on, those that cannot be lowest lie above one that can: of all, of all but the lowest, and so on.
static bool section_not_first(struct exact *x, struct section c, int64_t rest) {
    int64_t latest = x->ask->cap - rest; // the lowest of them lies no higher
    int32_t to = 0;                      // those before it can be lowest
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
            const int64_t cap = x->ask->cap + c.low[to] - latest; // where it could be lowest
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

// The blocks of a border on one of its sides.
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

// The unplaced blocks of a side: the least low of them, EXACT_PLACED: there are none; *only: the one, -1: there are none or
// several.
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

// Section s, of which slack units stay empty, is tiled by blocks that live on beyond its border and by those of own, which do
// not. So a block of other, right beyond the border, larger than the slack and above all that is placed, meets one of own, and
// lies no farther below or above all of own than the slack.
static bool border_look(struct exact *x, int32_t s, struct side own, struct side other) {
    const int64_t *size = x->p->size;
    const int64_t slack = x->slack[s];
    const int64_t floor = x->ask->cap - x->rest[s] - slack; // the least low
    int32_t only = -1;
    const int64_t least = side_least(x, own, &only);
    int64_t top = 0; // the highest end of other's
    bool ok = true;
    for (int32_t k = 0; k < other.n && ok; k++) {
        const int32_t i = other.ids[k];
        const int64_t low = x->low[i];
        if (low == EXACT_PLACED || low < floor || size[i] <= slack) {
            continue;
        }
        top = max_i64(low + size[i], top);
        ok = low >= least - slack || (least != EXACT_PLACED && berth_exact_raise(x, i, least - slack));
        if (low < least - slack) {
            exact_holds(x, x->ask->cap + 1); // with more room it may lie elsewhere
        }
    }
    if (ok && only >= 0 && x->low[only] < top - slack - size[only]) {
        exact_holds(x, x->ask->cap + 1);
        ok = berth_exact_raise(x, only, top - slack - size[only]);
    }
    return ok;
}

// The borders at both ends of section s, each from both sides, but from those that are to be looked at anyway.
static bool borders_look(struct exact *x, int32_t s) {
    if (!(x->ask->rules & EXACT_BORDERS)) {
        return true;
    }
    bool ok = true;
    for (int32_t at = s > 0 ? s : 1; at <= s + 1 && at < x->p->n_sec && ok; at++) {
        const struct side begins = side_begins(x, at), ends = side_ends(x, at);
        ok = (x->is_queued[at - 1] || border_look(x, at - 1, ends, begins)) &&
             (x->is_queued[at] || border_look(x, at, begins, ends));
    }
    return ok;
}

// Has section s, whose unplaced blocks lie no lower than least, room for them?
static bool section_holds(struct exact *x, int32_t s, int64_t least) {
    const int64_t slack = x->ask->cap - x->rest[s] - least;
    if (slack >= 0 && x->slack[s] != slack) {
        berth_exact_set(x, &x->slack[s], slack);
    }
    return exact_holds(x, least + x->rest[s]);
}

// The rules for a section of very many blocks: only what cannot be lowest of all is looked for, in two passes.
static bool section_look_large(struct exact *x, int32_t s) {
    const int64_t latest = x->ask->cap - x->rest[s];
    int32_t *ids = x->sec_ids + x->sec_at[s];
    int32_t n = 0;
    int64_t least = EXACT_PLACED, first_end = EXACT_PLACED, late = EXACT_PLACED; // late: the least low that cannot be lowest
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
    if (late >= first_end || !(x->ask->rules & EXACT_NOT_FIRST)) {
        return ok;
    }
    for (int32_t k = 0; k < n && ok; k++) {
        const int64_t low = x->low[ids[k]];
        if (low > latest && low < first_end) {
            const int64_t cap = x->ask->cap + low - latest; // where it could be lowest
            x->next = min_i64(cap, x->next);
            ok = berth_exact_raise(x, ids[k], first_end);
        }
    }
    return ok;
}

// One section as one machine: heads low, lengths size, deadline C.
static bool section_look(struct exact *x, int32_t s) {
    const int64_t rest = x->rest[s];
    x->n_looks++;
    if (rest == 0) {
        return true;
    }
    x->n_looks += x->sec_at[s + 1] - x->sec_at[s];
    if (x->sec_at[s + 1] - x->sec_at[s] > LARGE) {
        return section_look_large(x, s);
    }
    int64_t least, highest;
    const struct section c = section_new(x, x->sec_ids + x->sec_at[s], rest, &least, &highest);
    if (!section_holds(x, s, least)) {
        return false;
    }
    if (highest <= x->ask->cap - rest) {
        return true; // whoever comes first, there is room for all
    }
    section_sort(c);
    return section_heads(x, c, rest) && (!(x->ask->rules & EXACT_NOT_FIRST) || section_not_first(x, c, rest));
}

// What is still to place where a section cannot hold it is to blame, and so is the section.
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
        if (ok && !(section_look(x, s) && borders_look(x, s))) {
            ok = false;
            if (x->ask->blame != NULL) {
                section_blame(x, s);
            }
        }
    }
    return ok && !x->is_out_of_memory;
}
