// SPDX-License-Identifier: MIT
// improve.c: lowers the peak of a plan by local search. There are three methods:
// 1. Fills: a fill (fill.h) builds a plan below a cap. After a success, the cap falls, and the next fill begins with the new plan.
//    After a failure, the cap rises. After several failures, a fill begins anew, so it can leave a local optimum.
// 2. Chains: an ejection chain (eject.h) moves each block that ends above a cap below it. The cap is below the peak by a fraction
//    of the gap. After a success the fraction grows; after failures it shrinks, and chains get more steps.
// 3. Walks: a walk outward from a full section (from_peak.c) plans all blocks below a cap, except some that find no gap. Chains
//    place these blocks. A walk begins anew, so it can leave a local optimum of method 2.
// The methods take turns. A method that lowered the peak in its last turns gets more time.
//
// Several workers may search. Each has a copy of the plan. With method 2, a worker appends the moves of a successful chain to a
// common log, unless they collide with moves that other workers have appended since its last look at the log. So the copies are
// equal at the end of a turn. With the other methods, each worker searches on its own, and the lowest plan counts.

#include "base/min.h"
#include "plan/solve/fill.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

#define FRACTION_FIRST 0.25
#define FRACTION_MAX 0.5
#define FRACTION_MIN 1e-4
#define STEPS_FIRST 100
#define STEPS_MAX 20000
#define STEPS_WALK 1000 // limit on the steps of a chain after a walk
#define SHAKES 8        // blocks that are moved after a failed chain
#define SHAKES_MANY 1   // the same with more than MANY_BLOCKS blocks
#define FAILS_MAX 4     // failed chains until the cap rises
#define SKIPPED_PART 20 // a walk that skips more than one in so many blocks is dropped
#define WALK_FIRST 0.5  // the first cap of walks, as a fraction of the gap
#define WALK_LAST 0.97
#define FILL_FIRST 0.6         // the first cap of fills, as a fraction of the gap, and the lowest one
#define FILL_NEXT 0.8          // the same after the first success
#define FILL_LAST 0.97         // if no lower cap than this succeeds, a fill begins anew
#define FILL_BLOCK_US 20       // time of a turn of fills per block
#define FILL_DEADLINE_US 60    // if less time per block is left at first, there are no fills
#define WALK_BLOCK_NS 500      // counted work of a walk per block
#define LOAD_BLOCK_NS 10       // counted work per block of copying a plan
#define TURN_US 10000          // least time of a turn
#define TURN_BLOCK_US 2        // time of a turn per block, if there are many
#define RATE_WEIGHT 0.5        // weight of the last turn in the rate of success
#define OTHERS_FIRST_US 100000 // with a capacity, other searches run alone for so long; they mostly answer sooner
#define FIRST_BLOCK_US 100     // time of the first turn per block, if the gap is large
#define SMALL_BLOCKS 2000      // with fewer blocks, the exact search mostly ends within a few milliseconds
#define SMALL_BLOCK_US 1       // then this is the time of the first turn per block
#define SMALL_OTHERS 4         // and other searches get at least so much time per time of local search
#define GAP_PART 100           // a gap of more than one in so many bytes of the bound is large
#define OTHERS_MAX 4           // after turns without success, the time of other searches per time of local search
#define MANY_BLOCKS 4000       // with more blocks, local search gets more time than other searches
#define MANY_SHARE 3           // its time per time of other searches
#define SHARE_SUCCESS 8        // share of time of a method that closes the gap in each turn, relative to one without success

enum method { FILLS, CHAINS, WALKS, N_METHODS };

struct improve_worker {
    struct plan_improve *improve;
    struct eject *eject;
    struct fill *fill;    // NULL: no fills
    int64_t fill_cap;     // of the fill that has begun; 0: none
    double fill_fraction; // the next cap is floor + fill_fraction * (peak - floor)
    bool is_fill_new;     // the next fill begins without any block
    int64_t *off;         // [n] a plan of method 3
    int64_t found;        // peak of a plan of methods 1 and 3 in eject, PLAN_NO_CAP: none
    int32_t n_read;       // number of moves of the log that are in the copy of the plan
    int64_t cap;          // of the current level of method 2; 0: none yet
    double fraction;      // cap = peak - fraction * (peak - floor)
    int32_t max_steps;
    int n_fails; // failed chains at this level
    uint64_t random;
    pthread_t thread;
    bool is_running;
};

struct plan_improve {
    const struct plan_prob *p;
    const struct plan_goal *goal;
    struct plan_state *state;
    struct plan_overlap overlap;
    struct improve_worker *workers;
    int n_workers;
    enum method method;     // of the current turn
    int64_t until_us;       // end of the current turn
    int64_t floor;          // no lower peak is sought
    int64_t loaded;         // peak of the plan in all copies; 0: the copies differ
    struct eject_move *log; // [n_log] moves of this turn
    int32_t n_log, log_cap;
    pthread_mutex_t lock; // protects the log
    double walk_fraction; // walks are tried at floor + walk_fraction * (peak - floor)
    int64_t n_walks;
    double used_us[N_METHODS];
    double rate[N_METHODS]; // recent part of the gap that a turn closed
    int64_t start_us;       // when the search began
    int64_t shared_us;      // time of berth_plan_improve_share so far
    int others;             // time that other searches get per time of local search
};

// ---- memory ----

static void worker_fini(struct improve_worker *w) {
    berth_fill_free(w->fill);
    berth_eject_free(w->eject);
    berth_free(w->off);
}

void berth_plan_improve_free(struct plan_improve *m) {
    if (m == NULL) {
        return;
    }
    for (int k = 0; k < m->n_workers; k++) {
        worker_fini(&m->workers[k]);
    }
    berth_free(m->workers);
    berth_free(m->log);
    berth_overlap_fini(&m->overlap);
    pthread_mutex_destroy(&m->lock);
    berth_free(m);
}

// Fills and walks require a plain problem.
static bool is_plain(const struct plan_prob *p) {
    return !plan_prob_is_constrained(p) && !p->bound_is_inexact;
}

struct plan_improve *berth_plan_improve_new(const struct plan_prob *p, const struct plan_goal *g, struct plan_state *s) {
    struct plan_improve *m = berth_calloc(1, sizeof *m);
    if (m == NULL || pthread_mutex_init(&m->lock, NULL) != 0) {
        berth_free(m);
        return NULL;
    }
    m->p = p;
    m->goal = g;
    m->state = s;
    m->walk_fraction = WALK_FIRST;
    m->start_us = plan_now_us(g->work);
    m->others = p->n < SMALL_BLOCKS ? SMALL_OTHERS : 1;
    m->workers = berth_calloc((size_t) max_int(g->n_threads, 1), sizeof *m->workers);
    const bool has_fills = is_plain(p) && p->n >= SMALL_BLOCKS && (g->deadline_us - m->start_us) / p->n >= FILL_DEADLINE_US;
    const bool has_overlap = berth_overlap_init(&m->overlap, p);
    while (m->workers != NULL && has_overlap && m->n_workers < max_int(g->n_threads, 1)) {
        struct improve_worker *w = &m->workers[m->n_workers];
        w->improve = m;
        w->fraction = FRACTION_FIRST;
        w->max_steps = STEPS_FIRST;
        w->random = g->seed + (uint64_t) m->n_workers;
        w->eject = berth_eject_new(p, &m->overlap, w->random);
        w->off = berth_malloc((size_t) p->n * sizeof *w->off);
        if (w->eject == NULL || w->off == NULL) {
            worker_fini(w);
            break;
        }
        w->fill_fraction = FILL_FIRST;
        w->is_fill_new = true;
        w->fill = has_fills ? berth_fill_new(p, w->eject, w->random) : NULL; // without memory, there are no fills
        m->n_workers++;
    }
    plan_work_add(g->work, (int64_t) p->n * LOAD_BLOCK_NS * 10);
    if (m->n_workers == 0) {
        berth_plan_improve_free(m);
        return NULL;
    }
    return m;
}

static bool turn_is_over(const struct plan_improve *m) {
    return plan_is_over(min_i64(m->until_us, m->goal->deadline_us), m->goal->work, m->goal->watch);
}

// ---- chains ----

// Makes the moves that other workers have appended to the log. The caller holds the lock, and the last chain is undone or does
// not collide.
static void log_read(struct improve_worker *w) {
    const struct plan_improve *m = w->improve;
    for (; w->n_read < m->n_log; w->n_read++) {
        berth_eject_move(w->eject, &m->log[w->n_read]);
    }
}

static bool log_append(struct plan_improve *m, const struct eject_move *moves, int32_t n) {
    if (n > m->log_cap - m->n_log) {
        const int64_t cap = 2 * ((int64_t) m->log_cap + n) + 64;
        struct eject_move *log = cap < INT32_MAX ? berth_realloc(m->log, (size_t) cap * sizeof *log) : NULL;
        if (log == NULL) {
            return false;
        }
        m->log = log;
        m->log_cap = (int32_t) cap;
    }
    memcpy(m->log + m->n_log, moves, (size_t) n * sizeof *moves);
    m->n_log += n;
    return true;
}

// Appends the last chain to the log, or undoes it if it collides with a move of another worker.
static void chain_publish(struct improve_worker *w) {
    struct plan_improve *m = w->improve;
    if (m->n_workers == 1) {
        return;
    }
    pthread_mutex_lock(&m->lock);
    bool collides = false;
    for (int32_t k = w->n_read; k < m->n_log && !collides; k++) {
        collides = berth_eject_collides(w->eject, &m->log[k]);
    }
    if (!collides) {
        log_read(w);
        const struct eject_move *moves;
        const int32_t n = berth_eject_moves(w->eject, &moves);
        collides = !log_append(m, moves, n);
        w->n_read = m->n_log;
    }
    if (collides) {
        berth_eject_undo(w->eject);
        log_read(w);
    }
    pthread_mutex_unlock(&m->lock);
}

// Sets the cap of the next level. is_success: no block ends above the last cap.
static void level_begin(struct improve_worker *w, bool is_success) {
    const struct plan_improve *m = w->improve;
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
    const int64_t step = (int64_t) ((double) (peak - m->floor) * w->fraction);
    w->cap = peak - max_i64(step, 1);
    w->n_fails = 0;
}

// Moves some blocks that are alive together with block i, which did not fit. The next chain finds other gaps.
static void neighbours_shake(struct improve_worker *w, int32_t i) {
    struct eject_limits limits = {.cap = w->cap, .max_steps = STEPS_FIRST, .goal = w->improve->goal};
    const int n_shakes = w->improve->p->n > MANY_BLOCKS ? SHAKES_MANY : SHAKES;
    for (int k = 0; k < n_shakes; k++) {
        if (berth_eject_shake(w->eject, i, &limits)) {
            chain_publish(w);
        }
    }
}

static void chains_run(struct improve_worker *w) {
    const struct plan_improve *m = w->improve;
    while (!turn_is_over(m) && berth_eject_peak(w->eject) > m->floor) {
        int32_t i = w->cap > 0 ? berth_eject_above(w->eject, w->cap) : -1;
        if (i < 0 || w->n_fails >= FAILS_MAX) {
            level_begin(w, i < 0);
            i = berth_eject_above(w->eject, w->cap);
        }
        if (i < 0) {
            break; // a fixed block is at the peak
        }
        struct eject_limits limits = {.cap = w->cap, .max_steps = w->max_steps, .goal = m->goal};
        if (berth_eject_place(w->eject, i, &limits)) {
            chain_publish(w);
        } else {
            w->n_fails++;
            neighbours_shake(w, i);
        }
    }
}

// ---- walks ----

// Chooses the section from which the walk of the given number starts: the fullest one, or a random one that is nearly as full.
static int32_t walk_section(struct improve_worker *w, int64_t i_walk) {
    const struct plan_prob *p = w->improve->p;
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
    const struct plan_improve *m = w->improve;
    struct eject_limits limits = {.cap = cap, .max_steps = STEPS_WALK, .goal = m->goal};
    berth_eject_load(w->eject, w->off);
    for (int32_t i = 0; i < m->p->n; i++) {
        if (w->off[i] < 0 && !berth_eject_place(w->eject, i, &limits)) {
            return PLAN_NO_CAP;
        }
    }
    return berth_eject_peak(w->eject);
}

static void walk_run(struct improve_worker *w) {
    const struct plan_improve *m = w->improve;
    const int64_t i_walk = m->n_walks + (w - m->workers);
    const struct plan_walk_way way = {
        .section = walk_section(w, i_walk),
        .stacking = (int) (i_walk % PLAN_N_STACKINGS),
        .is_by_size = i_walk / PLAN_N_STACKINGS % 2 == 1,
        .seed = i_walk < 2 * PLAN_N_STACKINGS ? 0 : (m->goal->seed + (uint64_t) i_walk) | 1,
    };
    const int64_t peak = m->state->peak;
    const int64_t cap = min_i64(m->floor + (int64_t) ((double) (peak - m->floor) * m->walk_fraction), peak - 1);
    w->found = PLAN_NO_CAP;
    plan_work_add(m->goal->work, (int64_t) m->p->n * WALK_BLOCK_NS);
    const int32_t n_skipped = berth_plan_walk_partly(m->p, &way, cap, w->off);
    if (n_skipped < 0 || n_skipped > m->p->n / SKIPPED_PART + 1) {
        return;
    }
    w->found = place_skipped(w, cap);
}

// ---- fills ----

static void fill_set_cap(struct improve_worker *w) {
    const struct plan_improve *m = w->improve;
    const int64_t peak = m->state->peak;
    const double fraction = pow(w->fill_fraction, 1.0 / (double) (1 + (w - m->workers))); // workers try different caps
    w->fill_cap = min_i64(m->floor + (int64_t) ((double) (peak - m->floor) * fraction), peak - 1);
}

// Continues the fill, or begins one if the peak has fallen to its cap.
static void fill_run(struct improve_worker *w) {
    const struct plan_improve *m = w->improve;
    struct plan_goal goal = *m->goal;
    goal.deadline_us = min_i64(m->until_us, goal.deadline_us);
    w->found = PLAN_NO_CAP;
    if (w->fill == NULL) {
        return;
    }
    if (w->fill_cap == 0 || w->fill_cap >= m->state->peak) {
        fill_set_cap(w);
        berth_fill_begin(w->fill, w->is_fill_new ? NULL : m->state->off, w->fill_cap);
        w->is_fill_new = false;
    }
    switch (berth_fill_run(w->fill, &goal)) {
        case FILL_OPEN: break;
        case FILL_DONE:
            w->found = berth_eject_peak(w->eject);
            w->fill_cap = 0;
            w->fill_fraction = max_f64(min_f64(w->fill_fraction * w->fill_fraction, FILL_NEXT), FILL_FIRST);
            break;
        case FILL_STUCK:
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

static void *worker_run(void *arg) {
    struct improve_worker *w = arg;
    switch (w->improve->method) {
        case FILLS: fill_run(w); break;
        case CHAINS: chains_run(w); break;
        default: walk_run(w); break;
    }
    return NULL;
}

static void workers_run(struct plan_improve *m) {
    for (int k = 1; k < m->n_workers; k++) {
        // If a thread does not start, its work is not done in this turn.
        m->workers[k].found = PLAN_NO_CAP;
        m->workers[k].is_running = pthread_create(&m->workers[k].thread, NULL, worker_run, &m->workers[k]) == 0;
    }
    worker_run(&m->workers[0]);
    for (int k = 1; k < m->n_workers; k++) {
        if (m->workers[k].is_running) {
            pthread_join(m->workers[k].thread, NULL);
        }
    }
}

static void chains_turn(struct plan_improve *m) {
    struct plan_state *s = m->state;
    if (m->loaded != s->peak) {
        for (int k = 0; k < m->n_workers; k++) {
            berth_eject_load(m->workers[k].eject, s->off);
            m->workers[k].cap = 0;
        }
        plan_work_add(m->goal->work, (int64_t) m->p->n * LOAD_BLOCK_NS);
    }
    workers_run(m);
    for (int k = 0; k < m->n_workers; k++) {
        log_read(&m->workers[k]);
        m->workers[k].n_read = 0;
    }
    m->n_log = 0;
    const int64_t peak = berth_eject_peak(m->workers[0].eject);
    if (peak < s->peak) {
        berth_eject_store(m->workers[0].eject, s->spare);
        plan_state_take(s, peak, "ejection chains");
        plan_work_add(m->goal->work, (int64_t) m->p->n * LOAD_BLOCK_NS);
    }
    m->loaded = s->peak;
}

// Takes the best plan that the workers have found, if it is better.
static bool take_found(struct plan_improve *m, const char *method) {
    const struct improve_worker *best = &m->workers[0];
    for (int k = 1; k < m->n_workers; k++) {
        if (m->workers[k].found < best->found) {
            best = &m->workers[k];
        }
    }
    if (best->found >= m->state->peak) {
        return false;
    }
    berth_eject_store(best->eject, m->state->spare);
    plan_state_take(m->state, best->found, method);
    return true;
}

static void fills_turn(struct plan_improve *m) {
    m->loaded = 0;
    while (!turn_is_over(m) && m->state->peak > m->floor) {
        workers_run(m);
        take_found(m, "fills");
    }
}

static void walks_turn(struct plan_improve *m) {
    struct plan_state *s = m->state;
    m->loaded = 0;
    while (!turn_is_over(m) && s->peak > m->floor) {
        workers_run(m);
        const int64_t n_before = m->n_walks / (2 * PLAN_N_STACKINGS);
        m->n_walks += m->n_workers;
        const bool has_fallen = take_found(m, "walks and chains");
        if (!has_fallen && m->n_walks / (2 * PLAN_N_STACKINGS) > n_before) { // all rules have failed
            m->walk_fraction = (1 + m->walk_fraction) / 2;
        }
        if (m->walk_fraction > WALK_LAST) {
            m->walk_fraction = WALK_FIRST;
        }
    }
}

// Returns the method whose time, divided by its share, is least.
static enum method next_method(const struct plan_improve *m) {
    if (!is_plain(m->p)) {
        return CHAINS;
    }
    static const double shares[N_METHODS] = {[FILLS] = 4, [CHAINS] = 1, [WALKS] = 1};
    enum method best = N_METHODS;
    double least = INFINITY;
    for (enum method k = m->workers[0].fill != NULL ? FILLS : CHAINS; k < N_METHODS; k++) {
        const double used = m->used_us[k] / (shares[k] * (1 + SHARE_SUCCESS * m->rate[k]));
        if (used < least) {
            best = k;
            least = used;
        }
    }
    return best;
}

bool berth_plan_improve_turn(struct plan_improve *m, int64_t until_us) {
    const struct plan_goal *g = m->goal;
    struct plan_state *s = m->state;
    const int64_t first = s->peak;
    m->floor = max_i64(s->bound, g->enough);
    for (int64_t now = plan_now_us(g->work); now < until_us && s->peak > m->floor;) {
        if (plan_is_over(g->deadline_us, g->work, g->watch)) {
            break;
        }
        const int64_t before = s->peak;
        m->method = next_method(m);
        const int64_t block_us = m->method == FILLS ? FILL_BLOCK_US : TURN_BLOCK_US;
        m->until_us = min_i64(now + max_i64(TURN_US, m->p->n * block_us), until_us);
        switch (m->method) {
            case FILLS: fills_turn(m); break;
            case CHAINS: chains_turn(m); break;
            default: walks_turn(m); break;
        }
        const int64_t then = plan_now_us(g->work);
        const double part = (double) (before - s->peak) / (double) (before - m->floor);
        m->used_us[m->method] += (double) (then - now);
        m->rate[m->method] += RATE_WEIGHT * (part - m->rate[m->method]);
        now = then;
    }
    return s->peak < first;
}

void berth_plan_improve_share(struct plan_improve *m) {
    if (m == NULL) {
        return;
    }
    const struct plan_goal *g = m->goal;
    const int64_t now = plan_now_us(g->work), others_us = now - m->start_us - m->shared_us;
    const int64_t due_us = m->p->n > MANY_BLOCKS ? MANY_SHARE * others_us : others_us / m->others, lag_us = due_us - m->shared_us;
    const bool is_small = m->p->n < SMALL_BLOCKS, is_first = m->shared_us == 0;
    if (lag_us < (is_small && !is_first ? TURN_US : 0) || (g->enough > 0 && others_us < OTHERS_FIRST_US)) {
        return;
    }
    int64_t turn_us = max_i64(lag_us, TURN_US);
    if (is_first && is_small) {
        turn_us = (int64_t) m->p->n * SMALL_BLOCK_US;
    } else if (is_first && m->state->peak - m->state->bound > m->state->bound / GAP_PART) {
        turn_us = max_i64(turn_us, (int64_t) m->p->n * FIRST_BLOCK_US);
    }
    const bool has_fallen = berth_plan_improve_turn(m, now + turn_us);
    m->shared_us += plan_now_us(g->work) - now;
    const int least = is_small ? SMALL_OTHERS : 1;
    m->others = has_fallen ? least : min_int(2 * m->others, OTHERS_MAX * least);
}
