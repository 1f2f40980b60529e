// SPDX-License-Identifier: MIT
// improve_threads.c: runs the workers of local search (improve.h), one per thread, and divides the time between local search and
// other searches.
//
// Worker 0 is the leader. It runs in the caller's thread and improves the caller's plan. The other workers, the helpers, have
// their own plans. After each turn, a helper exchanges plans: it offers its plan to the others if this is the lowest one, or takes
// the lowest plan if its own is higher.
//
// If the goal counts work (plan.h), the leader only offers plans and takes none until the end of the search. So it finds what it
// finds alone, and the helpers can only lower the peak further. The helpers then run during the whole search. Otherwise, they run
// during the turns of the leader, because the threads belong to the exact search at other times. The leader takes the lowest plan
// at the end of its turn.

#include "base/min.h"
#include "plan/solve/improve.h"

#include <pthread.h>
#include <string.h>

#define OTHERS_FIRST_US 100000 // with a capacity, other searches run alone for so long; they mostly answer sooner
#define FIRST_BLOCK_US 100     // time of the first turn per block, if the gap is large
#define SMALL_BLOCK_US 1       // the same with fewer than IMPROVE_SMALL blocks
#define SMALL_OTHERS 4         // other searches then get at least so much time per time of local search
#define GAP_PART 100           // a gap of more than one in so many bytes of the bound is large
#define OTHERS_MAX 4           // after turns without success, the time of other searches per time of local search
#define MANY_SHARE 3           // with more than IMPROVE_MANY blocks, time of local search per time of other searches

struct helper {
    struct plan_improve *improve;
    struct improve_worker *worker;
    struct plan_state state;
    struct plan_goal goal;
    struct plan_work work;
    int64_t *memory; // [2n] the arrays of the state
    pthread_t thread;
    bool is_running;
};

struct plan_improve {
    const struct plan_prob *p;
    const struct plan_goal *goal;
    struct plan_state *state;
    struct plan_overlap overlap;
    struct improve_worker *leader;
    struct helper *helpers; // [n_helpers]
    int n_helpers;
    pthread_mutex_t lock;      // protects the next three fields
    int64_t *off;              // [n] the lowest plan that a worker has offered
    const char *method;        // of this plan
    atomic_int_least64_t peak; // of this plan, PLAN_NO_CAP: none. May be read without the lock
    int64_t start_us;          // when the search began
    int64_t shared_us;         // time of berth_plan_improve_share so far
    int others;                // time that other searches get per time of local search
};

// ---- exchange ----

static void plan_offer(struct plan_improve *m, const struct plan_state *s) {
    if (m->n_helpers == 0 || s->peak >= atomic_load(&m->peak)) {
        return;
    }
    pthread_mutex_lock(&m->lock);
    if (s->peak < atomic_load(&m->peak)) {
        memcpy(m->off, s->off, (size_t) m->p->n * sizeof *m->off);
        m->method = s->method;
        atomic_store(&m->peak, s->peak);
        if (m->goal->watch != NULL && m->goal->watch->state == m->state) {
            atomic_store(&m->goal->watch->least, s->peak);
        }
    }
    pthread_mutex_unlock(&m->lock);
}

static void plan_take(struct plan_improve *m, struct plan_state *s) {
    if (m->n_helpers == 0 || s->peak <= atomic_load(&m->peak)) {
        return;
    }
    pthread_mutex_lock(&m->lock);
    memcpy(s->spare, m->off, (size_t) m->p->n * sizeof *m->off);
    plan_state_take(s, atomic_load(&m->peak), m->method);
    pthread_mutex_unlock(&m->lock);
}

// ---- helpers ----

static void *helper_run(void *arg) {
    struct helper *h = arg;
    struct plan_improve *m = h->improve;
    const int64_t floor = max_i64(h->state.bound, h->goal.enough);
    while (h->state.peak > floor && !plan_is_over(h->goal.deadline_us, &h->work, NULL)) {
        berth_improve_turn(h->worker, h->goal.deadline_us);
        plan_offer(m, &h->state);
        plan_take(m, &h->state);
    }
    if (h->state.peak <= floor && m->goal->work != NULL) {
        atomic_store(&m->goal->work->has_ended, true);
    }
    return NULL;
}

static void helpers_start(struct plan_improve *m, int64_t wall_end_us) {
    plan_offer(m, m->state);
    for (int k = 0; k < m->n_helpers; k++) {
        struct helper *h = &m->helpers[k];
        h->state.bound = m->state->bound;
        h->work.wall_end_us = wall_end_us;
        atomic_store(&h->work.has_ended, false);
        plan_take(m, &h->state);
        // If a thread does not start, its work is not done.
        h->is_running = pthread_create(&h->thread, NULL, helper_run, h) == 0;
    }
}

static void helpers_stop(struct plan_improve *m) {
    for (int k = 0; k < m->n_helpers; k++) {
        atomic_store(&m->helpers[k].work.has_ended, true);
    }
    for (int k = 0; k < m->n_helpers; k++) {
        if (m->helpers[k].is_running) {
            pthread_join(m->helpers[k].thread, NULL);
            m->helpers[k].is_running = false;
        }
    }
    plan_take(m, m->state);
}

// Makes at most n helpers, as memory allows.
static void helpers_new(struct plan_improve *m, int n) {
    const struct plan_goal *g = m->goal;
    m->helpers = n > 0 ? berth_calloc((size_t) n, sizeof *m->helpers) : NULL;
    m->off = n > 0 ? berth_malloc((size_t) m->p->n * sizeof *m->off) : NULL;
    while (m->helpers != NULL && m->off != NULL && m->n_helpers < n) {
        struct helper *h = &m->helpers[m->n_helpers];
        h->improve = m;
        h->memory = berth_malloc(2 * (size_t) m->p->n * sizeof *h->memory);
        h->work.wall_end_us = g->work != NULL ? g->work->wall_end_us : g->deadline_us;
        h->goal = (struct plan_goal){.enough = g->enough, .deadline_us = INT64_MAX / 2, .work = &h->work, .n_threads = 1};
        h->goal.seed = g->seed + ((uint64_t) (m->n_helpers + 1) << 32);
        h->state = (struct plan_state){.off = h->memory, .peak = PLAN_NO_CAP, .method = "start"};
        if (h->memory != NULL) {
            h->state.spare = h->memory + m->p->n;
            h->worker = berth_improve_new(m->p, &m->overlap, &h->goal, &h->state, m->n_helpers + 1);
        }
        if (h->worker == NULL) {
            berth_free(h->memory);
            break;
        }
        m->n_helpers++;
    }
}

// ---- the search ----

struct plan_improve *berth_plan_improve_new(const struct plan_prob *p, const struct plan_goal *g, struct plan_state *s) {
    struct plan_improve *m = berth_calloc(1, sizeof *m);
    if (m == NULL || pthread_mutex_init(&m->lock, NULL) != 0) {
        berth_free(m);
        return NULL;
    }
    m->p = p;
    m->goal = g;
    m->state = s;
    m->start_us = plan_now_us(g->work);
    m->others = p->n < IMPROVE_SMALL ? SMALL_OTHERS : 1;
    atomic_init(&m->peak, PLAN_NO_CAP);
    if (berth_overlap_init(&m->overlap, p)) {
        m->leader = berth_improve_new(p, &m->overlap, g, s, 0);
    }
    if (m->leader == NULL) {
        berth_plan_improve_free(m);
        return NULL;
    }
    helpers_new(m, g->n_threads - 1);
    if (g->work != NULL) {
        helpers_start(m, g->work->wall_end_us);
    }
    return m;
}

void berth_plan_improve_free(struct plan_improve *m) {
    if (m == NULL) {
        return;
    }
    helpers_stop(m);
    for (int k = 0; k < m->n_helpers; k++) {
        berth_improve_free(m->helpers[k].worker);
        berth_free(m->helpers[k].memory);
    }
    berth_free(m->helpers);
    berth_free(m->off);
    berth_improve_free(m->leader);
    berth_overlap_fini(&m->overlap);
    pthread_mutex_destroy(&m->lock);
    berth_free(m);
}

bool berth_plan_improve_turn(struct plan_improve *m, int64_t until_us) {
    const struct plan_goal *g = m->goal;
    const struct plan_state *s = m->state;
    const int64_t first = s->peak, floor = max_i64(s->bound, g->enough), end_us = min_i64(until_us, g->deadline_us);
    if (g->work == NULL) {
        helpers_start(m, end_us);
    }
    while (min_i64(s->peak, atomic_load(&m->peak)) > floor && !plan_is_over(end_us, g->work, g->watch)) {
        berth_improve_turn(m->leader, end_us);
        plan_offer(m, s);
    }
    if (g->work == NULL) {
        helpers_stop(m);
    }
    return s->peak < first;
}

void berth_plan_improve_share(struct plan_improve *m) {
    if (m == NULL) {
        return;
    }
    const struct plan_goal *g = m->goal;
    const int64_t now = plan_now_us(g->work), others_us = now - m->start_us - m->shared_us;
    const int64_t due_us = m->p->n > IMPROVE_MANY ? MANY_SHARE * others_us : others_us / m->others,
                  lag_us = due_us - m->shared_us;
    const bool is_small = m->p->n < IMPROVE_SMALL, is_first = m->shared_us == 0;
    if (lag_us < (is_small && !is_first ? IMPROVE_TURN_US : 0) || (g->enough > 0 && others_us < OTHERS_FIRST_US)) {
        return;
    }
    int64_t turn_us = max_i64(lag_us, IMPROVE_TURN_US);
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
