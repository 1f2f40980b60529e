// SPDX-License-Identifier: MIT
// beam.c: the exact search's question, asked in breadth: of all states with k blocks placed only the most promising are kept, and
// from each of them every next block of its first valley is tried. The exact search's conclusions are drawn in every state, so a
// wrong turn shows early; what is left of it is seen in the sections' slack. A state is worth the more, the less its sections are
// near the point where they can waste nothing: the sum of 1 / slack^2. D of MiniMalloc's set, where depth first ended 3% above
// the bound after a minute, fits into the bound with 100 states in 3.6 s.
// If no state was ever dropped, the answer "no" is a proof like the exact search's.

#include "plan/solve/exact_state.h"

#include <string.h>

#define BRANCHES 10    // blocks that are tried in a state
#define SLACK_ONE 0.01 // of the capacity: where less slack hardly counts any more
#define SEEN_FACTOR 16 // places for hashes, for each state

struct kid {
    double badness;
    int32_t slot; // of beam.next
};

struct beam {
    struct exact *x;
    struct berth_arrays mem;
    size_t size;         // numbers of a state: x->low and all that lies behind it up to the spans
    int64_t *now, *next; // [width][size]
    struct kid *kids;    // [width] what next holds, the worst on top of a heap
    int32_t n_now, n_kids, width;
    uint64_t *seen; // [n_seen] hashes of this level's states; a power of two; 0: none
    size_t n_seen;
    bool is_whole; // nothing was dropped
};

static double state_badness(const struct exact *x) {
    const double one = SLACK_ONE * (double) x->ask->cap;
    double sum = 0;
    for (int32_t s = 0; s < x->p->n_sec; s++) {
        const double room = (double) x->slack[s] + one;
        sum += 1 / (room * room);
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

// Has a state with the same bounds been seen on this level? Other orders of choice lead to it.
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
    return false; // crowded: it may come twice
}

static void kids_sink(struct kid *kids, int32_t n) {
    for (int32_t i = 0;;) {
        int32_t worse = 2 * i + 1;
        worse += worse + 1 < n && kids[worse + 1].badness > kids[worse].badness;
        if (worse >= n || kids[worse].badness <= kids[i].badness) {
            return;
        }
        const struct kid k = kids[i];
        kids[i] = kids[worse];
        kids[worse] = k;
        i = worse;
    }
}

static void kids_add(struct kid *kids, int32_t at, struct kid kid) {
    for (; at > 0 && kids[(at - 1) / 2].badness < kid.badness; at = (at - 1) / 2) {
        kids[at] = kids[(at - 1) / 2];
    }
    kids[at] = kid;
}

// Keeps the state of x for the next level, if it is among the best.
static void beam_keep(struct beam *b) {
    const double bad = state_badness(b->x);
    const bool is_full = b->n_kids == b->width;
    if (is_full && bad >= b->kids[0].badness) {
        b->is_whole = false;
        return;
    }
    if (is_seen(b)) {
        return;
    }
    const int32_t slot = is_full ? b->kids[0].slot : b->n_kids;
    if (is_full) {
        b->is_whole = false;
        b->kids[0].badness = bad;
        kids_sink(b->kids, b->n_kids);
    } else {
        kids_add(b->kids, b->n_kids++, (struct kid){bad, slot});
    }
    memcpy(b->next + (size_t) slot * b->size, b->x->low, b->size * sizeof *b->next);
}

// Takes state k of this level into x. Its unplaced blocks are the part.
static struct exact_part state_load(struct beam *b, int32_t k) {
    struct exact *x = b->x;
    struct exact_part part = {0, 0, 0, x->p->n_sec};
    memcpy(x->low, b->now + (size_t) k * b->size, b->size * sizeof *b->now);
    x->n_trail = 0;
    x->is_noted = false;
    x->n_looks += 2 * x->p->n;
    for (int32_t i = 0; i < x->p->n; i++) {
        if (x->low[i] != EXACT_PLACED) {
            x->pos[i] = part.n;
            x->lists[part.n++] = i;
        }
    }
    return part;
}

// Tries the next blocks of a state, each with the knowledge that those before it come higher. True: all blocks are placed.
static bool state_spread(struct beam *b, int32_t k) {
    struct exact *x = b->x;
    const struct exact_part part = state_load(b, k);
    for (int branch = 0; branch < BRANCHES; branch++) {
        const int32_t i = berth_exact_choose(x, part);
        const bool is_through = i == x->through && (x->ask->rules & EXACT_THROUGH);
        const size_t mark = x->n_trail;
        const struct exact_part left = berth_exact_part_without(x, part, i);
        bool has_split = false;
        x->n_nodes++;
        if (berth_exact_try(x, i, is_through, left, &has_split)) {
            if (left.n == 0) {
                return true;
            }
            beam_keep(b);
        }
        berth_exact_undo(x, mark);
        if (x->is_out_of_memory || !berth_exact_try_higher(x, i, is_through, part)) {
            return false;
        }
    }
    b->is_whole = false;
    return false;
}

static enum exact_answer levels_run(struct beam *b) {
    struct exact *x = b->x;
    while (b->n_now > 0) {
        b->n_kids = 0;
        memset(b->seen, 0, b->n_seen * sizeof *b->seen);
        for (int32_t k = 0; k < b->n_now; k++) {
            if (berth_exact_is_over(x)) {
                return EXACT_UNKNOWN;
            }
            if (state_spread(b, k)) {
                return EXACT_FITS;
            }
        }
        int64_t *swap = b->now;
        b->now = b->next;
        b->next = swap;
        b->n_now = b->n_kids;
    }
    return b->is_whole && !x->is_out_of_memory ? EXACT_NO : EXACT_UNKNOWN;
}

static bool beam_init(struct beam *b, struct exact *x, int32_t width) {
    *b = (struct beam){.x = x, .width = width, .is_whole = true, .n_now = 1, .n_seen = 1};
    b->size = (size_t) (x->span - x->low) + (size_t) x->p->n_sec + 1;
    while (b->n_seen < SEEN_FACTOR * (size_t) width) {
        b->n_seen *= 2;
    }
    b->now = berth_arrays_new(&b->mem, (size_t) width, b->size * sizeof *b->now);
    b->next = berth_arrays_new(&b->mem, (size_t) width, b->size * sizeof *b->next);
    b->kids = berth_arrays_new(&b->mem, (size_t) width, sizeof *b->kids);
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
