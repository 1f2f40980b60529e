// SPDX-License-Identifier: MIT
// improve.c: lowers the peak of a plan by local search (improve.h). There are three methods:
// 1. Fills: a fill (fill.h) builds a plan below a cap. After a success, the cap falls, and the next fill begins with the new plan.
//    After a failure, the cap rises. After several failures, a fill begins anew, so it can leave a local optimum. Except for the
//    first one, it begins with a plan of a core (critical.c): a search packs the blocks of the fullest sections better without
//    other blocks.
// 2. Chains: an ejection chain (eject.h) moves each block that ends above a cap below it. The cap is below the peak by a fraction
//    of the gap. After a success the fraction grows; after failures it shrinks, and chains get more steps.
// 3. Walks: a walk outward from a full section (from_peak.c) plans all blocks below a cap, except some that find no gap. Chains
//    place these blocks. A walk begins anew, so it can leave a local optimum of method 2.
// The methods take turns. A method that lowered the peak in its last turns gets more time.

#include "plan/solve/improve.h"
#include "base/min.h"
#include "plan/solve/fill.h"

#include <math.h>

#define FRACTION_FIRST 0.25
#define FRACTION_MAX 0.5
#define FRACTION_MIN 1e-4
#define STEPS_FIRST 100
#define STEPS_MAX 20000
#define STEPS_WALK 1000 // limit on the steps of a chain after a walk
#define SHAKES 8        // blocks that are moved after a failed chain
#define SHAKES_MANY 1   // the same with more than IMPROVE_MANY blocks
#define FAILS_MAX 4     // failed chains until the cap rises
#define SKIPPED_PART 20 // a walk that skips more than one in so many blocks is dropped
#define WALK_FIRST 0.5  // the first cap of walks, as a fraction of the gap
#define WALK_LAST 0.97
#define FILL_FIRST 0.48     // the first cap of fills, as a fraction of the gap, and the lowest one
#define FILL_NEXT 0.8       // the same after the first success
#define FILL_LAST 0.97      // if no lower cap than this succeeds, a fill begins anew
#define CORE_BLOCK_US 20    // time of the search for a plan of the core, per block of the problem
#define FILL_BLOCK_US 20    // time of a turn of fills per block
#define FILL_DEADLINE_US 60 // if less time per block is left at first, there are no fills
#define WALK_BLOCK_NS 500   // counted work of a walk per block
#define LOAD_BLOCK_NS 10    // counted work per block of copying a plan
#define TURN_BLOCK_US 2     // time of a turn per block, if there are many
#define RATE_WEIGHT 0.5     // weight of the last turn in the rate of success
#define SHARE_SUCCESS 8     // share of time of a method that closes the gap in each turn, relative to one without success

enum method { FILLS, CHAINS, WALKS, N_METHODS };

struct improve_worker {
    const struct plan_prob *p;
    const struct plan_goal *goal;
    struct plan_state *state;
    int i_worker;
    struct eject *eject;
    struct fill *fill; // NULL: no fills
    int64_t *off;      // [n] a plan of method 3
    int64_t until_us;  // end of the current turn
    int64_t floor;     // no lower peak is sought
    int64_t found;     // peak of a plan of methods 1 and 3 in eject, PLAN_NO_CAP: none
    // fills
    int64_t fill_cap;     // of the fill that has begun; 0: none
    double fill_fraction; // the next cap is floor + fill_fraction * (peak - floor)
    bool is_fill_new;     // the next fill begins anew
    int64_t i_new_fill;   // number of the next fill that begins anew; worker i starts at 2 * i
    bool may_try_core;    // the first fill runs; if it is stuck, a core is tried below the same cap
    // chains
    int64_t loaded;  // peak of the plan in eject; 0: another plan
    int64_t cap;     // of the current level; 0: none yet
    double fraction; // cap = peak - fraction * (peak - floor)
    int32_t max_steps;
    int n_fails; // failed chains at this level
    // walks
    double walk_fraction; // walks are tried at floor + walk_fraction * (peak - floor)
    int64_t n_walks;
    // turns
    double used_us[N_METHODS];
    double rate[N_METHODS]; // recent part of the gap that a turn closed
    uint64_t random;
};

// ---- memory ----

void berth_improve_free(struct improve_worker *w) {
    if (w != NULL) {
        berth_fill_free(w->fill);
        berth_eject_free(w->eject);
        berth_free(w->off);
        berth_free(w);
    }
}

// Fills and walks require a plain problem.
static bool is_plain(const struct plan_prob *p) {
    return !plan_prob_is_constrained(p) && !p->bound_is_inexact;
}

struct improve_worker *berth_improve_new(const struct plan_prob *p, const struct plan_overlap *overlap, const struct plan_goal *g,
    struct plan_state *s, int i_worker) {
    struct improve_worker *w = berth_calloc(1, sizeof *w);
    if (w == NULL) {
        return NULL;
    }
    w->p = p;
    w->goal = g;
    w->state = s;
    w->i_worker = i_worker;
    w->fraction = FRACTION_FIRST;
    w->max_steps = STEPS_FIRST;
    w->fill_fraction = FILL_FIRST;
    w->is_fill_new = true;
    w->i_new_fill = 2 * i_worker;
    w->may_try_core = i_worker == 0;
    w->walk_fraction = WALK_FIRST;
    w->n_walks = (int64_t) i_worker * 2 * PLAN_N_STACKINGS;
    w->random = g->seed;
    w->eject = berth_eject_new(p, overlap, g->seed);
    w->off = berth_malloc((size_t) p->n * sizeof *w->off);
    if (w->eject == NULL || w->off == NULL) {
        berth_improve_free(w);
        return NULL;
    }
    if (is_plain(p) && p->n >= IMPROVE_SMALL && plan_left_us(g) / p->n >= FILL_DEADLINE_US) {
        w->fill = berth_fill_new(p, w->eject, g->seed); // without memory, there are no fills
    }
    plan_work_add(g->work, (int64_t) p->n * LOAD_BLOCK_NS * 10);
    return w;
}

static bool turn_is_over(const struct improve_worker *w) {
    return plan_is_over(min_i64(w->until_us, w->goal->deadline_us), w->goal->work, w->goal->watch);
}

// ---- chains ----

// Sets the cap of the next level. is_success: no block ends above the last cap.
static void level_begin(struct improve_worker *w, bool is_success) {
    const int64_t peak = berth_eject_peak(w->eject);
    if (w->cap > 0 && is_success) {
        w->fraction = min_f64(w->fraction * 1.5, FRACTION_MAX);
        w->max_steps = max_i32(w->max_steps / 4 * 3, STEPS_FIRST);
    } else if (w->cap > 0) {
        w->fraction = w->fraction / 2;
        w->max_steps = min_i32(w->max_steps / 2 * 3, STEPS_MAX);
    }
    if (w->fraction < FRACTION_MIN) {
        w->fraction = FRACTION_FIRST;
    }
    const int64_t step = (int64_t) ((double) (peak - w->floor) * w->fraction);
    w->cap = peak - max_i64(step, 1);
    w->n_fails = 0;
}

// Moves some blocks that are alive together with block i, which did not fit. The next chain finds other gaps.
static void neighbours_shake(struct improve_worker *w, int32_t i) {
    struct eject_limits limits = {.cap = w->cap, .max_steps = STEPS_FIRST, .goal = w->goal};
    const int n_shakes = w->p->n > IMPROVE_MANY ? SHAKES_MANY : SHAKES;
    for (int k = 0; k < n_shakes && !turn_is_over(w); k++) {
        berth_eject_shake(w->eject, i, &limits);
    }
}

static void chains_run(struct improve_worker *w) {
    while (!turn_is_over(w) && berth_eject_peak(w->eject) > w->floor) {
        int32_t i = w->cap > 0 ? berth_eject_above(w->eject, w->cap) : -1;
        if (i < 0 || w->n_fails >= FAILS_MAX) {
            level_begin(w, i < 0);
            i = berth_eject_above(w->eject, w->cap);
        }
        if (i < 0) {
            break; // a fixed block is at the peak
        }
        struct eject_limits limits = {.cap = w->cap, .max_steps = w->max_steps, .goal = w->goal};
        if (!berth_eject_place(w->eject, i, &limits)) {
            w->n_fails++;
            neighbours_shake(w, i);
        }
    }
}

// ---- walks ----

// Chooses the section from which the walk of the given number starts: the fullest one, or a random one that is nearly as full.
static int32_t walk_section(struct improve_worker *w, int64_t i_walk) {
    const struct plan_prob *p = w->p;
    if (i_walk < 2 * PLAN_N_STACKINGS) {
        return p->bound_sec;
    }
    for (int tries = 0; tries < 64; tries++) {
        const int32_t s = (int32_t) plan_random_below(&w->random, (uint64_t) p->n_sec);
        if (p->total[s] >= p->bound - p->bound / 32) {
            return s;
        }
    }
    return p->bound_sec;
}

// Places the blocks that a walk has skipped. Returns the peak, PLAN_NO_CAP: some block does not fit.
static int64_t place_skipped(struct improve_worker *w, int64_t cap) {
    struct eject_limits limits = {.cap = cap, .max_steps = STEPS_WALK, .goal = w->goal};
    berth_eject_load(w->eject, w->off);
    for (int32_t i = 0; i < w->p->n; i++) {
        if (w->off[i] < 0 && !berth_eject_place(w->eject, i, &limits)) {
            return PLAN_NO_CAP;
        }
    }
    return berth_eject_peak(w->eject);
}

static void walk_run(struct improve_worker *w) {
    const int64_t i_walk = w->n_walks;
    const struct plan_walk_way way = {
        .section = walk_section(w, i_walk),
        .stacking = (int) (i_walk % PLAN_N_STACKINGS),
        .is_by_size = i_walk / PLAN_N_STACKINGS % 2 == 1,
        .seed = i_walk < 2 * PLAN_N_STACKINGS ? 0 : (w->goal->seed + (uint64_t) i_walk) | 1,
    };
    const int64_t peak = w->state->peak;
    const int64_t cap = min_i64(w->floor + (int64_t) ((double) (peak - w->floor) * w->walk_fraction), peak - 1);
    w->found = PLAN_NO_CAP;
    plan_work_add(w->goal->work, (int64_t) w->p->n * WALK_BLOCK_NS);
    const int32_t n_skipped = berth_plan_walk_partly(w->p, &way, cap, w->off);
    if (n_skipped < 0 || n_skipped > w->p->n / SKIPPED_PART + 1) {
        return;
    }
    w->found = place_skipped(w, cap);
}

// ---- fills ----

static void fill_set_cap(struct improve_worker *w) {
    const int64_t peak = w->state->peak;
    const double fraction = pow(w->fill_fraction, 1.0 / (1 + w->i_worker)); // workers try different caps
    w->fill_cap = min_i64(w->floor + (int64_t) ((double) (peak - w->floor) * fraction), peak - 1);
}

// Begins a fill anew: number 0 without any block, number 1 with the first plan of a core, later ones with plans of cores that a search
// has improved. If there is no time to plan a core, it begins without any block.
static void fill_begin_new(struct improve_worker *w) {
    static const double parts[] = {0.95, 0.97, 0.94, 0.99, 0.95, 0.98, 0.96}; // of the bound
    const int64_t k = w->i_new_fill++ - 1, core_us = (int64_t) w->p->n * CORE_BLOCK_US;
    int32_t n_core = 0;
    if (k >= 0 && plan_left_us(w->goal) >= core_us) {
        const double part = parts[k % (int64_t) (sizeof parts / sizeof parts[0])];
        struct plan_goal goal = *w->goal;
        goal.seed += (uint64_t) k;
        n_core = berth_plan_core(w->p, part, plan_now_us(goal.work) + (k > 0 ? core_us : 0), &goal, w->off);
    }
    berth_fill_begin_new(w->fill, n_core > 0 ? w->off : NULL, w->fill_cap);
}

// Continues the fill, or begins one if the peak has fallen to its cap.
static void fill_run(struct improve_worker *w) {
    struct plan_goal goal = *w->goal;
    goal.deadline_us = min_i64(w->until_us, goal.deadline_us);
    w->found = PLAN_NO_CAP;
    if (w->fill == NULL) {
        return;
    }
    if (w->fill_cap == 0 || w->fill_cap >= w->state->peak) {
        fill_set_cap(w);
        if (w->is_fill_new) {
            fill_begin_new(w);
        } else {
            berth_fill_begin(w->fill, w->state->off, w->fill_cap);
        }
        w->is_fill_new = false;
    }
    switch (berth_fill_run(w->fill, &goal)) {
        case FILL_OPEN: break;
        case FILL_DONE:
            w->found = berth_eject_peak(w->eject);
            w->fill_cap = 0;
            w->may_try_core = false;
            w->fill_fraction = max_f64(min_f64(w->fill_fraction * w->fill_fraction, FILL_NEXT), FILL_FIRST);
            break;
        case FILL_STUCK:
            if (w->may_try_core) {
                w->may_try_core = false;
                w->fill_cap = 0;
                w->is_fill_new = true;
                break;
            }
            w->fill_fraction = sqrt(w->fill_fraction);
            if (w->fill_fraction > FILL_LAST) {
                w->fill_fraction = FILL_NEXT;
                w->fill_cap = 0;
                w->is_fill_new = true;
            } else {
                fill_set_cap(w);
                berth_fill_raise(w->fill, w->fill_cap);
            }
            break;
    }
}

// ---- turns ----

static void chains_turn(struct improve_worker *w) {
    struct plan_state *s = w->state;
    if (w->loaded != s->peak) {
        berth_eject_load(w->eject, s->off);
        w->cap = 0;
        plan_work_add(w->goal->work, (int64_t) w->p->n * LOAD_BLOCK_NS);
    }
    chains_run(w);
    const int64_t peak = berth_eject_peak(w->eject);
    if (peak < s->peak) {
        berth_eject_store(w->eject, s->spare);
        plan_state_take(s, peak, "ejection chains");
        plan_work_add(w->goal->work, (int64_t) w->p->n * LOAD_BLOCK_NS);
    }
    w->loaded = s->peak;
}

// Takes the plan that a fill or a walk has found, if it is better.
static bool take_found(struct improve_worker *w, const char *method) {
    if (w->found >= w->state->peak) {
        return false;
    }
    berth_eject_store(w->eject, w->state->spare);
    plan_state_take(w->state, w->found, method);
    return true;
}

static void fills_turn(struct improve_worker *w) {
    w->loaded = 0;
    while (!turn_is_over(w) && w->state->peak > w->floor) {
        fill_run(w);
        take_found(w, "fills");
    }
}

static void walks_turn(struct improve_worker *w) {
    w->loaded = 0;
    while (!turn_is_over(w) && w->state->peak > w->floor) {
        walk_run(w);
        w->n_walks++;
        const bool has_fallen = take_found(w, "walks and chains");
        if (!has_fallen && w->n_walks % (2 * PLAN_N_STACKINGS) == 0) { // all rules have failed
            w->walk_fraction = (1 + w->walk_fraction) / 2;
        }
        if (w->walk_fraction > WALK_LAST) {
            w->walk_fraction = WALK_FIRST;
        }
    }
}

// Returns the method whose time, divided by its share, is least.
static enum method next_method(const struct improve_worker *w) {
    if (!is_plain(w->p)) {
        return CHAINS;
    }
    static const double shares[N_METHODS] = {[FILLS] = 4, [CHAINS] = 1, [WALKS] = 1};
    enum method best = N_METHODS;
    double least = INFINITY;
    for (enum method k = w->fill != NULL ? FILLS : CHAINS; k < N_METHODS; k++) {
        const double used = w->used_us[k] / (shares[k] * (1 + SHARE_SUCCESS * w->rate[k]));
        if (used < least) {
            best = k;
            least = used;
        }
    }
    return best;
}

void berth_improve_turn(struct improve_worker *w, int64_t until_us) {
    const struct plan_state *s = w->state;
    const int64_t now = plan_now_us(w->goal->work), before = s->peak;
    w->floor = max_i64(s->bound, w->goal->enough);
    if (before <= w->floor) {
        return;
    }
    const enum method method = next_method(w);
    const int64_t block_us = method == FILLS ? FILL_BLOCK_US : TURN_BLOCK_US;
    w->until_us = min_i64(now + max_i64(IMPROVE_TURN_US, w->p->n * block_us), until_us);
    switch (method) {
        case FILLS: fills_turn(w); break;
        case CHAINS: chains_turn(w); break;
        default: walks_turn(w); break;
    }
    const double part = (double) (before - s->peak) / (double) (before - w->floor);
    w->used_us[method] += (double) (plan_now_us(w->goal->work) - now);
    w->rate[method] += RATE_WEIGHT * (part - w->rate[method]);
}
