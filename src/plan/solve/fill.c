// SPDX-License-Identifier: MIT
// fill.c: looks for a plan below a cap (fill.h). It puts the blocks into gaps, one by one. The blocks of the fullest sections come
// first, so the plan grows from all local maxima of the live bytes at the same time. Of the blocks with the same fullest section,
// the one that lives longest comes first.
//
// A block that finds no gap is open. Ejection chains place it before the next block comes: then only blocks of fuller sections are
// in the way. A chain that fails may swap: it places its block and leaves easier blocks open. So the plan changes also between
// successes, and no block stays open forever at the same place.

#include "plan/solve/fill.h"
#include "base/min.h"

#include <string.h>

#define CLOCK_BLOCKS 32  // blocks between two readings of the clock
#define CHAIN_STEPS 50   // steps of a chain; each second round has twice as many
#define SWAP 2           // a chain may leave blocks open whose difficulties sum to less than this times that of its own block
#define HOPELESS 8       // a chain ends early if this sum is more than this times the difficulty of its own block
#define SWAP_OPEN 4      // with so many more open blocks than at best, chains do not swap
#define STUCK_CHAINS 50  // chains since the number of open blocks was least, until the search is stuck
#define STUCK_OPEN 10    // the same per open block
#define NOISE 0.3        // blocks are ordered by lifetime times a random factor of 1 to 1 + NOISE, except the first time
#define LOAD_BLOCK_NS 20 // counted work per block of loading and storing the plan

struct fill {
    const struct plan_prob *p;
    struct eject *eject;
    struct berth_arrays mem;
    int64_t *most;  // [n] largest total in the lifetime of each block
    int64_t *off;   // [n] the plan between two runs, -1: not placed
    int32_t *order; // [n] the blocks, in the order in which they are placed
    int32_t *open;  // [n_open] the open blocks
    uint64_t *key;  // [2n] scratch
    int32_t *idx;   // [n] scratch
    int64_t cap;
    int32_t i_next; // next element of order
    int32_t n_open, n_open_least;
    int32_t i_open;   // the next open block that gets a chain
    int64_t n_chains; // chains since the number of open blocks was least
    int n_orders;
    bool is_long; // this round of chains has more steps
    uint64_t random;
};

void berth_fill_free(struct fill *f) {
    if (f != NULL) {
        berth_arrays_free(&f->mem);
        berth_free(f);
    }
}

struct fill *berth_fill_new(const struct plan_prob *p, struct eject *eject, uint64_t seed) {
    struct fill *f = berth_calloc(1, sizeof *f);
    if (f == NULL) {
        return NULL;
    }
    const size_t n = (size_t) p->n;
    f->p = p;
    f->eject = eject;
    f->random = seed;
    f->most = berth_arrays_new(&f->mem, n, sizeof *f->most);
    f->off = berth_arrays_new(&f->mem, n, sizeof *f->off);
    f->order = berth_arrays_new(&f->mem, n, sizeof *f->order);
    f->open = berth_arrays_new(&f->mem, n, sizeof *f->open);
    f->key = berth_arrays_new(&f->mem, 2 * n, sizeof *f->key);
    f->idx = berth_arrays_new(&f->mem, n, sizeof *f->idx);
    if (f->mem.has_failed || !berth_plan_life_max(p, f->most)) {
        berth_fill_free(f);
        return NULL;
    }
    return f;
}

static void set_order(struct fill *f) {
    const struct plan_prob *p = f->p;
    for (int32_t i = 0; i < p->n; i++) {
        const double noise = f->n_orders == 0 ? 0 : NOISE / 100 * (double) plan_random_below(&f->random, 100);
        const double w = (p->end[i] - p->begin[i]) * (1 + noise);
        f->key[i] = ~plan_priority_key(PLAN_TWA, w, (double) p->size[i], (double) f->most[i]);
        f->order[i] = i;
    }
    berth_plan_sort(f->key, f->order, f->key + p->n, f->idx, p->n);
    f->n_orders++;
}

// Takes the blocks of off that end at or below the cap. off may be NULL.
static void fill_reset(struct fill *f, const int64_t *off, int64_t cap) {
    const struct plan_prob *p = f->p;
    f->cap = cap;
    f->n_open = 0;
    f->i_open = 0;
    f->n_open_least = p->n - SWAP_OPEN;
    f->n_chains = 0;
    for (int32_t i = 0; i < p->n; i++) {
        const bool is_placed = off != NULL && off[i] >= 0 && off[i] + p->size[i] <= cap;
        f->off[i] = is_placed ? off[i] : -1;
    }
}

void berth_fill_begin(struct fill *f, const int64_t *off, int64_t cap) {
    fill_reset(f, off, cap);
    f->i_next = f->p->n;
    for (int32_t i = 0; i < f->p->n; i++) {
        if (f->off[i] < 0) {
            f->open[f->n_open++] = i;
        }
    }
}

void berth_fill_begin_new(struct fill *f, const int64_t *off, int64_t cap) {
    fill_reset(f, off, cap);
    f->i_next = 0;
    set_order(f);
}

void berth_fill_raise(struct fill *f, int64_t cap) {
    f->cap = cap;
    f->n_chains = 0;
}

// Runs a chain for an open block.
static void open_place(struct fill *f, struct eject_limits *limits) {
    if (f->i_open >= f->n_open) {
        f->i_open = 0;
        f->is_long = !f->is_long;
    }
    limits->swap = f->n_open <= f->n_open_least + SWAP_OPEN ? SWAP : 0;
    limits->max_steps = f->is_long ? 2 * CHAIN_STEPS : CHAIN_STEPS;
    f->n_chains++;
    const int32_t *ids;
    const bool is_placed = berth_eject_place(f->eject, f->open[f->i_open], limits);
    const int32_t n_left = berth_eject_open(f->eject, &ids);
    if (!is_placed && n_left == 0) {
        f->i_open++;
        return;
    }
    f->open[f->i_open] = f->open[--f->n_open];
    memcpy(f->open + f->n_open, ids, (size_t) n_left * sizeof *ids);
    f->n_open += n_left;
    if (f->n_open < f->n_open_least) {
        f->n_open_least = f->n_open;
        f->n_chains = 0;
    }
}

enum fill_result berth_fill_run(struct fill *f, const struct plan_goal *goal) {
    struct eject_limits limits = {.cap = f->cap, .hopeless = HOPELESS, .goal = goal};
    const int32_t n = f->p->n;
    enum fill_result result = FILL_OPEN;
    berth_eject_load(f->eject, f->off);
    plan_work_add(goal->work, (int64_t) n * LOAD_BLOCK_NS);
    for (int count = 0; result == FILL_OPEN; count++) {
        const bool is_next = f->n_open == 0 && f->i_next < n; // a new block comes
        if ((!is_next || count % CLOCK_BLOCKS == 0) && plan_is_over(goal->deadline_us, goal->work, goal->watch)) {
            break;
        }
        if (is_next) {
            const int32_t i = f->order[f->i_next++];
            if (!berth_eject_is_placed(f->eject, i) && !berth_eject_fit(f->eject, i, &limits)) {
                f->open[0] = i;
                f->n_open = 1;
                f->n_open_least = 1;
                f->n_chains = 0;
            }
        } else if (f->n_open == 0) {
            result = FILL_DONE;
        } else if (f->n_chains > STUCK_CHAINS + STUCK_OPEN * f->n_open) {
            result = FILL_STUCK;
        } else {
            open_place(f, &limits);
        }
    }
    berth_eject_store(f->eject, f->off);
    return result;
}
