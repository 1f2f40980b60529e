// SPDX-License-Identifier: MIT
// search.c: better plans and a better bound, until the peak meets the bound or time is up. The exact search is asked again and
// again, by a portfolio of members (which valley first, which block first) with growing node limits:
//   at the bound        yes ends everything; no lifts the bound to the next capacity that is not ruled out
//   between bound and peak   yes lowers the peak; no lifts the bound far
// With a capacity there is one question only. Between rounds come short asks a little below the peak with noise in their
// preorders: where the search is hopelessly deep, luck lowers the peak (the improve path).
// Asks are lists whose first conclusive answer counts, whoever finds it: threads change the time, not the result.

#include "plan/solve/exact.h"

#include <pthread.h>

#define N_MEMBERS 6
#define PAIR_NS 12 // what a pair of neighbours costs in exact_new

static const struct {
    enum exact_valley valley;
    int preorder;
    const char *name;
} members[N_MEMBERS] = {
    {EXACT_TIGHTEST, EXACT_TWA, "exact, tightest, TWA"},
    {EXACT_NARROWEST, EXACT_TWA, "exact, narrowest, TWA"},
    {EXACT_TIGHTEST, EXACT_TAW, "exact, tightest, TAW"},
    {EXACT_TIGHTEST, EXACT_WAT, "exact, tightest, WAT"},
    {EXACT_LOWEST, EXACT_AT, "exact, lowest, AT"},
    {EXACT_LOWEST, EXACT_WAT, "exact, lowest, WAT"},
};

static const char noisy_name[] = "exact, with noise";

// ---- a list of asks, by one thread or several ----

struct task {
    struct exact_ask ask;
    int member;
    bool is_mid; // asks between bound and peak, not at the bound
    enum exact_answer answer;
    int64_t next, n_nodes;
    bool is_late;
    atomic_bool stop; // an earlier task has the answer
};

struct crew {
    const struct plan_prob *p;
    struct task tasks[2 * N_MEMBERS];
    int n_tasks;
    atomic_int i_next;
    atomic_int i_first; // least task with a conclusive answer
    int64_t *off;       // the plan of task i_first, if it has one
    pthread_mutex_t lock;
};

struct worker {
    struct crew *crew;
    struct exact *exact;
    int64_t *off; // [n]
    pthread_t thread;
    bool is_running;
};

static void *work(void *arg) {
    struct worker *w = arg;
    struct crew *c   = w->crew;
    for (;;) {
        int i = atomic_fetch_add(&c->i_next, 1);
        if (i >= c->n_tasks || i > atomic_load(&c->i_first)) {
            return NULL;
        }
        struct task *t = &c->tasks[i];
        t->answer      = berth_exact_ask(w->exact, &t->ask, w->off, &t->next, &t->n_nodes, &t->is_late);
        if (t->answer == EXACT_UNKNOWN) {
            continue;
        }
        pthread_mutex_lock(&c->lock);
        if (i < atomic_load(&c->i_first)) {
            atomic_store(&c->i_first, i);
            for (int k = i + 1; k < c->n_tasks; k++) {
                atomic_store(&c->tasks[k].stop, true);
            }
            if (t->answer == EXACT_FITS) {
                for (int32_t b = 0; b < c->p->n; b++) {
                    c->off[b] = w->off[b];
                }
            }
        }
        pthread_mutex_unlock(&c->lock);
    }
}

// Runs the tasks; returns the first conclusive one or -1.
static int crew_run(struct crew *c, struct worker *workers, int n_workers, int64_t *n_nodes) {
    atomic_store(&c->i_next, 0);
    atomic_store(&c->i_first, c->n_tasks);
    for (int i = 0; i < c->n_tasks; i++) {
        atomic_store(&c->tasks[i].stop, false);
        c->tasks[i].n_nodes = 0;
        c->tasks[i].answer  = EXACT_UNKNOWN;
        c->tasks[i].is_late = false;
    }
    for (int k = 1; k < n_workers; k++) {
        // A thread that does not start leaves its share to the others.
        workers[k].is_running = pthread_create(&workers[k].thread, NULL, work, &workers[k]) == 0;
    }
    work(&workers[0]);
    for (int k = 1; k < n_workers; k++) {
        if (workers[k].is_running) {
            pthread_join(workers[k].thread, NULL);
        }
    }
    int first = atomic_load(&c->i_first);
    for (int i = 0; i < c->n_tasks; i++) {
        *n_nodes += i <= first ? c->tasks[i].n_nodes : 0;
    }
    return first < c->n_tasks ? first : -1;
}

// ---- which asks ----

struct search {
    const struct plan_prob *p;
    const struct plan_goal *goal;
    struct plan_state *state;
    struct crew crew;
    struct worker *workers;
    int n_workers;
    double part;             // the middle question is asked at bound + part * (peak - bound)
    bool has_low[N_MEMBERS]; // asked at the bound in this round
    bool has_mid[N_MEMBERS]; // asked between
    int round;
    uint64_t n_noisy; // noisy asks so far
};

static bool is_time_up(const struct search *s) {
    return plan_is_over(s->goal->deadline_us, s->goal->watch);
}

static void add_task(struct search *s, int member, int64_t cap, bool is_mid) {
    struct task *t = &s->crew.tasks[s->crew.n_tasks++];
    int64_t limit  = 2 * (int64_t) s->p->n + 100;
    t->member      = member;
    t->is_mid      = is_mid;
    t->ask         = (struct exact_ask){
                .cap         = cap,
                .preorder    = members[member].preorder,
                .valley      = members[member].valley,
                .rules       = EXACT_ALL,
                .max_nodes   = limit << (2 * (s->round < 20 ? s->round : 20)),
                .deadline_us = s->goal->deadline_us,
                .stop        = &t->stop,
                .watch       = s->goal->watch,
    };
}

static int64_t mid_cap(const struct search *s) {
    const struct plan_state *st = s->state;
    int64_t mid                 = st->bound + (int64_t) ((double) (st->peak - st->bound) * s->part);
    return mid < st->peak ? mid : st->peak - 1;
}

// The open questions of this round, in the order in which answers count.
static void list_tasks(struct search *s) {
    s->crew.n_tasks = 0;
    int64_t mid     = mid_cap(s);
    for (int m = 0; m < N_MEMBERS; m++) {
        if (s->goal->enough > 0) {
            if (!s->has_low[m]) {
                add_task(s, m, s->goal->enough, false);
            }
            continue;
        }
        if (!s->has_low[m]) {
            add_task(s, m, s->state->bound, false);
        }
        if (!s->has_mid[m] && mid > s->state->bound) {
            add_task(s, m, mid, true);
        }
    }
}

static void note_answer(struct search *s, const struct task *t) {
    struct plan_state *st = s->state;
    if (t->answer == EXACT_FITS) {
        int64_t peak = 0;
        for (int32_t i = 0; i < s->p->n; i++) {
            int64_t end = s->crew.off[i] + s->p->size[i];
            peak        = end > peak ? end : peak;
        }
        if (peak < st->peak) {
            plan_state_take(st, peak, t->member >= 0 ? members[t->member].name : noisy_name);
            s->crew.off = st->spare;
        }
        s->part = t->is_mid ? s->part / 2 : s->part;
    } else if (t->next > st->bound) {
        st->bound = t->next < st->peak ? t->next : st->peak;
    }
}

// One round: every member with the same node limit, until none has anything new to say.
static void search_round(struct search *s) {
    for (int m = 0; m < N_MEMBERS; m++) {
        s->has_low[m] = false;
        s->has_mid[m] = false;
    }
    while (!plan_is_done(s->state, s->goal) && !is_time_up(s)) {
        list_tasks(s);
        if (s->crew.n_tasks == 0) {
            break;
        }
        int first = crew_run(&s->crew, s->workers, s->n_workers, &s->state->n_nodes);
        for (int i = 0; i < s->crew.n_tasks && (first < 0 || i < first); i++) {
            const struct task *t                                           = &s->crew.tasks[i];
            *(t->is_mid ? &s->has_mid[t->member] : &s->has_low[t->member]) = true;
        }
        if (first >= 0) {
            note_answer(s, &s->crew.tasks[first]);
        }
    }
    s->part = (1 + s->part) / 2;
}

// ---- the improve path ----

#define NOISY_ROUND 2 // the first round that is followed by noisy asks

static void add_noisy_task(struct search *s, int64_t cap) {
    static const enum exact_preorder preorders[] = {EXACT_WAT, EXACT_TWA, EXACT_WAT, EXACT_TAW, EXACT_WAT, EXACT_WAT};
    static const double noises[]                 = {0.003, 0.02, 0.08};
    struct task *t                               = &s->crew.tasks[s->crew.n_tasks++];
    uint64_t k                                   = s->n_noisy++;
    t->member                                    = -1;
    t->is_mid                                    = false;
    t->ask                                       = (struct exact_ask){
                                              .cap         = cap,
                                              .preorder    = preorders[k % 6],
                                              .valley      = (enum exact_valley)(k / 2 % EXACT_N_VALLEYS),
                                              .noise       = noises[k / 6 % 3],
                                              .seed        = (s->goal->seed + k) * 0x9E3779B97F4A7C15u,
                                              .rules       = EXACT_ALL,
                                              .max_nodes   = 3 * (int64_t) s->p->n + 50,
                                              .deadline_us = s->goal->deadline_us,
                                              .stop        = &t->stop,
                                              .watch       = s->goal->watch,
    };
}

// Short asks below the peak; the step grows with success and shrinks without.
static void search_noisy(struct search *s) {
    struct plan_state *st = s->state;
    int shift             = 3;
    // about as many nodes as the round had
    for (int64_t lists = (int64_t) 1 << (2 * (s->round < 20 ? s->round : 20));
         lists > 0 && !plan_is_done(st, s->goal) && !is_time_up(s); lists--) {
        int64_t step    = (st->peak - st->bound) >> shift;
        int64_t cap     = s->goal->enough > 0 ? s->goal->enough : st->peak - (step > 1 ? step : 1);
        s->crew.n_tasks = 0;
        for (int k = 0; k < 2 * N_MEMBERS; k++) {
            add_noisy_task(s, cap);
        }
        int first = crew_run(&s->crew, s->workers, s->n_workers, &st->n_nodes);
        if (first >= 0) {
            lists += s->crew.tasks[first].answer == EXACT_FITS;
            note_answer(s, &s->crew.tasks[first]);
            shift -= shift > 2;
        } else {
            shift += shift < 6;
        }
    }
}

// ---- the search ----

static void workers_free(struct worker *workers, int n) {
    for (int k = 0; workers != NULL && k < n; k++) {
        berth_exact_free(workers[k].exact);
        berth_free(workers[k].off);
    }
    berth_free(workers);
}

// As many workers as memory allows, at most n. *n: how many there are.
static struct worker *workers_new(const struct plan_prob *p, struct crew *crew, int *n) {
    struct worker *workers = berth_calloc((size_t) *n, sizeof *workers);
    int k                  = 0;
    for (; workers != NULL && k < *n; k++) {
        workers[k].crew  = crew;
        workers[k].exact = berth_exact_new(p);
        workers[k].off   = berth_malloc((size_t) p->n * sizeof *workers[k].off);
        if (workers[k].exact == NULL || workers[k].off == NULL) {
            berth_exact_free(workers[k].exact);
            berth_free(workers[k].off);
            workers[k] = (struct worker){0};
            break;
        }
    }
    *n = k;
    return workers;
}

enum ggml_status berth_plan_search(const struct plan_prob *p, const struct plan_goal *g, struct plan_state *st) {
    if (p->chunk > 0 && p->n_fixed == 0) {
        return berth_plan_chunked(p, g, st);
    }
    if (plan_prob_is_constrained(p) || p->is_loose) {
        return berth_plan_search_constrained(p, g, st);
    }
    int64_t cap             = g->enough > 0 ? g->enough : st->bound;
    enum ggml_status status = berth_plan_critical(p, cap, 0, g, st);
    if (status != GGML_STATUS_SUCCESS || plan_is_done(st, g)) {
        return status;
    }
    int64_t n_pairs = berth_exact_pairs(p);
    if (n_pairs > (g->deadline_us - plan_now_us()) * 1000 / PAIR_NS) {
        return GGML_STATUS_SUCCESS;
    }
    struct search *s = berth_calloc(1, sizeof *s);
    if (s == NULL || pthread_mutex_init(&s->crew.lock, NULL) != 0) {
        berth_free(s);
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "plan: out of memory for the search");
    }
    s->p         = p;
    s->goal      = g;
    s->state     = st;
    s->part      = 0.5;
    s->crew.p    = p;
    s->crew.off  = st->spare;
    s->n_workers = g->n_threads < 2 * N_MEMBERS ? g->n_threads : 2 * N_MEMBERS;
    s->workers   = workers_new(p, &s->crew, &s->n_workers);
    bool ok      = s->n_workers > 0;
    for (; ok && !plan_is_done(st, g) && !is_time_up(s); s->round++) {
        search_round(s);
        if (s->round >= NOISY_ROUND) {
            search_noisy(s);
        }
    }
    workers_free(s->workers, s->n_workers);
    pthread_mutex_destroy(&s->crew.lock);
    berth_free(s);
    return ok ? GGML_STATUS_SUCCESS
              : berth_fail(GGML_STATUS_ALLOC_FAILED, "plan: out of memory for the search over %d blocks", p->n);
}
