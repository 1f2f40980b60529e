// SPDX-License-Identifier: MIT
// beam.c: answers whether all blocks fit into a capacity (struct exact_ask in exact.h) by a beam search. A level holds states
// with the same number of placed blocks. From each state, the search tries up to BRANCHES next blocks. After each try, it derives
// conclusions (exact_settle.c): for example, that the offset of another block must be higher, or that the state has no plan. Of
// the resulting states, the `width` states with the least sum of 1 / slack^2 over the sections are kept for the next level. If no
// state was ever dropped, the answer "no" is a proof. exact_state.h defines the terms. Example: for instance D of MiniMalloc's
// set, a beam of 100 states found a plan at the bound in 3.6 s; the depth-first search was 3% above the bound after a minute.

#include "plan/solve/exact_state.h"

#include <string.h>

#define BRANCHES 10      // largest number of blocks tried per state
#define SLACK_ADDED 0.01 // part of the capacity; keeps 1 / slack^2 finite
#define SEEN_FACTOR 16   // hash table entries per state of a level

struct child {
    double badness;
    int32_t slot; // index in beam.next
};

struct beam {
    struct exact *x; // the state that is being expanded, and data that all states share
    struct berth_arrays mem;
    // int64_t numbers per state. A state is a copy of the arrays low, sky, off, rest, slack, floor and span of struct exact.
    // These arrays are consecutive in memory (exact_new.c).
    size_t size;
    int64_t *now, *next;    // [width][size]
    struct child *children; // [width] heap of states in next, worst at the top
    int32_t n_now, n_children, width;
    uint64_t *seen; // [n_seen] hash table of this level, 0: empty entry
    size_t n_seen;
    bool is_complete; // no state was dropped
};

static double state_badness(const struct exact *x) {
    const double added = SLACK_ADDED * (double) x->ask->cap;
    double sum = 0;
    for (int32_t s = 0; s < x->p->n_sec; s++) {
        const double slack = (double) x->slack[s] + added;
        sum += 1 / (slack * slack);
    }
    return sum;
}

static uint64_t hash_mix(uint64_t hash, const int64_t *v, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        hash = (hash ^ (uint64_t) v[i]) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
    }
    return hash;
}

// Returns true if an equal state of this level was kept before. The same choices in another order give the same low[] and
// floor[].
static bool is_seen(struct beam *b) {
    const uint64_t hash = hash_mix(hash_mix(1, b->x->low, b->x->p->n), b->x->floor, b->x->p->n_sec) | 1;
    for (size_t k = 0; k < 8; k++) {
        uint64_t *at = &b->seen[(hash + k) & (b->n_seen - 1)];
        if (*at == hash) {
            return true;
        }
        if (*at == 0) {
            *at = hash;
            return false;
        }
    }
    return false; // the table is full here: the state may be kept twice
}

static void children_sink(struct child *children, int32_t n) {
    for (int32_t i = 0;;) {
        int32_t worse = 2 * i + 1;
        worse += worse + 1 < n && children[worse + 1].badness > children[worse].badness;
        if (worse >= n || children[worse].badness <= children[i].badness) {
            return;
        }
        const struct child k = children[i];
        children[i] = children[worse];
        children[worse] = k;
        i = worse;
    }
}

static void children_add(struct child *children, int32_t at, struct child child) {
    for (; at > 0 && children[(at - 1) / 2].badness < child.badness; at = (at - 1) / 2) {
        children[at] = children[(at - 1) / 2];
    }
    children[at] = child;
}

static void beam_keep(struct beam *b) {
    const double bad = state_badness(b->x);
    const bool is_full = b->n_children == b->width;
    if (is_full && bad >= b->children[0].badness) {
        b->is_complete = false;
        return;
    }
    if (is_seen(b)) {
        return;
    }
    const int32_t slot = is_full ? b->children[0].slot : b->n_children;
    if (is_full) {
        b->is_complete = false;
        b->children[0].badness = bad;
        children_sink(b->children, b->n_children);
    } else {
        children_add(b->children, b->n_children++, (struct child){bad, slot});
    }
    memcpy(b->next + (size_t) slot * b->size, b->x->low, b->size * sizeof *b->next);
}

// Returns the unplaced blocks of state k as a part.
static struct exact_part state_load(struct beam *b, int32_t k) {
    struct exact *x = b->x;
    struct exact_part part = {0, 0, 0, x->p->n_sec};
    memcpy(x->low, b->now + (size_t) k * b->size, b->size * sizeof *b->now);
    x->n_trail = 0;
    x->is_noted = false; // the candidates of the part are not known yet
    x->n_inspected += 2 * x->p->n;
    for (int32_t i = 0; i < x->p->n; i++) {
        if (x->low[i] != EXACT_PLACED) {
            x->pos[i] = part.n;
            x->lists[part.n++] = i;
        }
    }
    return part;
}

// Tries up to BRANCHES blocks as the next block. Each is placed at its sky: the highest end of a placed block with a common
// section. The try of a block covers all plans with the block at its sky. So later tries assume that the block is above its sky.
// Returns true if all blocks are placed.
static bool state_expand(struct beam *b, int32_t k) {
    struct exact *x = b->x;
    const struct exact_part part = state_load(b, k);
    for (int branch = 0; branch < BRANCHES; branch++) {
        const int32_t i = berth_exact_choose(x, part);
        const bool is_part_wide = i == x->part_wide_id && (x->ask->rules & EXACT_PART_WIDE);
        const size_t mark = x->n_trail;
        const struct exact_part left = berth_exact_part_without(x, part, i);
        bool has_split = false;
        x->n_nodes++;
        if (berth_exact_try(x, i, is_part_wide, left, &has_split)) {
            if (left.n == 0) {
                return true;
            }
            beam_keep(b);
        }
        berth_exact_undo(x, mark);
        if (x->is_out_of_memory || !berth_exact_try_higher(x, i, is_part_wide, part)) {
            return false;
        }
    }
    b->is_complete = false;
    return false;
}

static enum exact_answer levels_run(struct beam *b) {
    struct exact *x = b->x;
    while (b->n_now > 0) {
        b->n_children = 0;
        memset(b->seen, 0, b->n_seen * sizeof *b->seen);
        for (int32_t k = 0; k < b->n_now; k++) {
            if (berth_exact_is_over(x)) {
                return EXACT_UNKNOWN;
            }
            if (state_expand(b, k)) {
                return EXACT_FITS;
            }
        }
        int64_t *swap = b->now;
        b->now = b->next;
        b->next = swap;
        b->n_now = b->n_children;
    }
    return b->is_complete && !x->is_out_of_memory ? EXACT_NO : EXACT_UNKNOWN;
}

static bool beam_init(struct beam *b, struct exact *x, int32_t width) {
    *b = (struct beam){.x = x, .width = width, .is_complete = true, .n_now = 1, .n_seen = 1};
    b->size = (size_t) (x->span - x->low) + (size_t) x->p->n_sec + 1;
    while (b->n_seen < SEEN_FACTOR * (size_t) width) {
        b->n_seen *= 2;
    }
    b->now = berth_arrays_new(&b->mem, (size_t) width, b->size * sizeof *b->now);
    b->next = berth_arrays_new(&b->mem, (size_t) width, b->size * sizeof *b->next);
    b->children = berth_arrays_new(&b->mem, (size_t) width, sizeof *b->children);
    b->seen = berth_arrays_new(&b->mem, b->n_seen, sizeof *b->seen);
    return !b->mem.has_failed;
}

enum exact_answer berth_exact_beam(struct exact *x, int32_t width) {
    struct beam b;
    enum exact_answer answer = EXACT_UNKNOWN;
    const struct exact_part all = {0, x->p->n, 0, x->p->n_sec};
    if (beam_init(&b, x, width)) {
        answer = EXACT_NO;
        if (berth_exact_settle(x, all)) {
            memcpy(b.now, x->low, b.size * sizeof *b.now);
            answer = levels_run(&b);
        }
    }
    berth_arrays_free(&b.mem);
    return answer;
}
