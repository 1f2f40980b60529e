// SPDX-License-Identifier: MIT
// search.c: finds better plans and raises the bound, by exact searches with growing limits. The searches ask two questions:
// 1. Is there a plan whose peak is the bound (or the caller's capacity)? The answer "no" raises the bound.
// 2. Is there a plan with a peak between the bound and the best peak so far? The answer "yes" lowers the best peak; the answer
//    "no" raises the bound. This question is not asked if the caller gave a capacity.
// Question 1 comes first, because the bound is nearly always the optimum.
//
// An ask is one run of the exact search. There are three kinds of asks:
// - A member is an ask with a fixed order of valleys and blocks.
// - A beam is a breadth-first ask (beam.c).
// - A chain is a sequence of short asks, its links. The links share the blame of blocks, which counts failures (exact.h). Blocks
//   with much blame are placed earlier in the next link.
// Asks are run in lists, by several threads. If several asks of a list have conclusive answers, the answer of the first one in
// the list counts. So the number of threads does not change the result.

#include "base/min.h"
#include "plan/solve/exact.h"

#include <pthread.h>
#include <string.h>

#define N_MEMBERS 6
#define WINDOW_MAX 4000        // largest number of blocks in a window
#define WINDOW_MIN 1000        // blocks; with fewer, the exact search is better
#define EXACT_BLOCKS_MAX 10000 // problems with more blocks are not searched, because a node would take 0.1 s
#define CORE_US 600000         // time limit of the search over the core
#define CORE_WORK_US 800000    // the same if a search with a time limit counts its work
#define WINDOW_US 250000       // time limit of the first window; each round has a longer limit
#define REPEAT_NODES 8         // node limit of a repeated search, per node of the search before
#define WINDOW_ROUNDS 3        // rounds of windows, if the exact search follows

static const struct {
    enum exact_valley valley;
    int preorder;
    const char *name;
} members[N_MEMBERS] = {
    {EXACT_TIGHTEST, PLAN_TWA, "exact, tightest, TWA"},
    {EXACT_LOWEST, PLAN_TAW, "exact, lowest, TAW"},
    {EXACT_LOWEST, PLAN_AT, "exact, lowest, AT"},
    {EXACT_TIGHTEST, PLAN_WAT, "exact, tightest, WAT"},
    {EXACT_TIGHTEST, PLAN_TAW, "exact, tightest, TAW"},
    {EXACT_NARROWEST, PLAN_TWA, "exact, narrowest, TWA"},
};

// ---- a list of asks, run by one or several threads ----

struct task {
    struct exact_ask ask;
    const char *name;
    enum exact_answer answer;
    int64_t next, n_nodes; // results of berth_exact_ask
    bool is_late;
    bool is_joined;   // the ask is about crew.joined instead of crew.p
    atomic_bool stop; // an earlier task has a conclusive answer
};

struct crew {
    const struct plan_prob *p;
    struct plan_prob joined; // p with joined blocks (join.c); n == 0: none
    int32_t *joined_id;      // [n] number of each block in joined
    int64_t joined_cap;      // capacity at which the answer for joined holds for p
    struct task tasks[2 * N_MEMBERS];
    int n_tasks;
    atomic_int i_next;  // the next task to run
    atomic_int i_first; // the first task in the list that has a conclusive answer; n_tasks: none
    int64_t *off;       // plan of task i_first, if EXACT_FITS
    pthread_mutex_t lock;
};

struct worker {
    struct crew *crew;
    struct exact *exact;
    struct exact *joined; // search in crew.joined; NULL: nothing was joined
    int64_t *off;         // [n]
    pthread_t thread;
    bool is_running;
};

// Runs a task. A proof has no step for joined blocks, so the answer "no" for the joined problem is repeated with p.
static void task_run(struct worker *w, struct task *t) {
    struct exact_ask ask = t->ask;
    if (t->is_joined) {
        ask.proof = NULL;
    }
    t->answer = berth_exact_ask(t->is_joined ? w->joined : w->exact, &ask, w->off, &t->next, &t->n_nodes, &t->is_late);
    if (t->is_joined && t->answer == EXACT_NO && t->ask.proof != NULL) {
        ask.proof = t->ask.proof;
        ask.blame = NULL;
        ask.max_nodes = max_i64(REPEAT_NODES * t->n_nodes, t->ask.max_nodes);
        t->answer = berth_exact_ask(w->exact, &ask, w->off, &t->next, &t->n_nodes, &t->is_late);
        t->is_joined = false;
    }
}

static void *worker_run(void *arg) {
    struct worker *w = arg;
    struct crew *c = w->crew;
    for (;;) {
        int i = atomic_fetch_add(&c->i_next, 1);
        if (i >= c->n_tasks || i > atomic_load(&c->i_first)) {
            return NULL;
        }
        struct task *t = &c->tasks[i];
        task_run(w, t);
        if (t->answer == EXACT_UNKNOWN) {
            continue;
        }
        if (t->is_joined && t->next > t->ask.cap + 1) { // with more capacity the joined blocks may have different offsets
            t->next = t->ask.cap + 1;
        }
        pthread_mutex_lock(&c->lock);
        if (i < atomic_load(&c->i_first)) {
            atomic_store(&c->i_first, i);
            for (int k = i + 1; k < c->n_tasks; k++) {
                atomic_store(&c->tasks[k].stop, true);
            }
            if (t->answer == EXACT_FITS) {
                for (int32_t b = 0; b < c->p->n; b++) {
                    c->off[b] = w->off[t->is_joined ? c->joined_id[b] : b];
                }
            }
        }
        pthread_mutex_unlock(&c->lock);
    }
}

// Returns the first task with a conclusive answer, or -1.
static int crew_run(struct crew *c, struct worker *workers, int n_workers, int64_t *n_nodes) {
    atomic_store(&c->i_next, 0);
    atomic_store(&c->i_first, c->n_tasks);
    for (int i = 0; i < c->n_tasks; i++) {
        atomic_store(&c->tasks[i].stop, false);
        c->tasks[i].n_nodes = 0;
        c->tasks[i].answer = EXACT_UNKNOWN;
        c->tasks[i].is_late = false;
    }
    for (int k = 1; k < n_workers; k++) {
        // If a thread does not start, the other threads do its work.
        workers[k].is_running = pthread_create(&workers[k].thread, NULL, worker_run, &workers[k]) == 0;
    }
    worker_run(&workers[0]);
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

// ---- the lists of asks ----

#define N_CHAINS (2 * N_MEMBERS)
#define BLAME_DECAY 0.8f                // all blame is multiplied by this factor before each link
#define FRACTION_MAX 0.9                // if search.fraction rises above this value, question 2 begins a new round
#define SHARE_FULL 3                    // if most sections are full, question 1 gets this number of nodes per node of question 2
#define BEAM_OPEN 32                    // beam width in round 0, if few sections are full
#define BEAM_FULL 2                     // beam width in round 0, if most sections are full
#define BEAM_LEAST 8                    // narrower beams are not run
#define BEAM_BYTES ((int64_t) 64 << 20) // memory of one beam

struct question {
    float *blame;    // [N_CHAINS][n + n_sec] blame of blocks, then of sections
    int64_t n_links; // number of links of each chain so far
    int64_t n_nodes; // number of nodes used so far
    int round;       // node limits and beam widths grow with each round
};

struct search {
    const struct plan_prob *p;
    const struct plan_goal *goal;
    struct plan_state *state;
    struct plan_improve *improve; // gets a share of the time between two lists; NULL: out of memory
    struct crew crew;
    struct worker *workers;
    int n_workers;
    struct question at_bound;   // question 1: at the bound or the capacity
    struct question below_peak; // question 2: between bound and peak
    double fraction;            // question 2: members and beams are asked at bound + (peak - bound) * fraction
    int shift;                  // question 2: chains are asked at peak - (peak - bound) / 2^shift
    int i_turn;                 // question 2: members, beams and chains take turns
    bool is_open;               // few sections are full at the bound
};

static bool is_over(const struct search *s) {
    return plan_is_done(s->state, s->goal) || plan_is_over(s->goal->deadline_us, s->goal->work, s->goal->watch);
}

static int64_t round_factor(const struct question *q) {
    return (int64_t) 1 << (2 * min_int(q->round, 20));
}

static struct task *add_task(struct search *s, int64_t cap, const char *name) {
    struct task *t = &s->crew.tasks[s->crew.n_tasks++];
    t->name = name;
    t->is_joined = false;
    t->ask = (struct exact_ask){
        .cap = cap,
        .rules = EXACT_ALL,
        .deadline_us = s->goal->deadline_us,
        .work = s->goal->work,
        .stop = &t->stop,
        .watch = s->goal->watch,
        .proof = s->goal->proof,
        .scope = {.n = s->p->n},
    };
    return t;
}

// Returns whether the joined problem gives the answer for p at this capacity.
static bool can_join(const struct search *s, int64_t cap) {
    return s->crew.joined.n > 0 && cap == s->crew.joined_cap;
}

// Round 0 searches the original problem, which is sometimes faster. Later rounds search the joined problem.
static void list_members(struct search *s, const struct question *q, int64_t cap) {
    s->crew.n_tasks = 0;
    for (int m = 0; m < N_MEMBERS; m++) {
        struct task *t = add_task(s, cap, members[m].name);
        t->is_joined = q->round > 0 && can_join(s, cap);
        t->ask.preorder = members[m].preorder;
        t->ask.valley = members[m].valley;
        t->ask.max_nodes = (2 * (int64_t) s->p->n + 100) << min_int(q->round, 20);
    }
}

// Lists the next link of each chain.
static void list_chains(struct search *s, struct question *q, int64_t cap) {
    static const float weights[] = {8, 32, 128};
    static const int lengths[] = {3, 3, 6}; // node limits of successive links, in units of n / 2
    static const enum plan_priority preorders[2][2] = {{PLAN_TZ, PLAN_TWA}, {PLAN_AT, PLAN_TAW}};
    const int grown = q->round < 20 ? max_int(q->round - 1, 0) : 20;
    const int64_t length = (lengths[q->n_links++ % 3] * (int64_t) s->p->n / 2) << grown;
    s->crew.n_tasks = 0;
    for (int k = 0; k < N_CHAINS; k++) {
        struct task *t = add_task(s, cap, "exact, blame");
        t->is_joined = can_join(s, cap);
        t->ask.preorder = preorders[k < N_CHAINS / 2][k % 2];
        t->ask.valley = EXACT_BLAMED;
        t->ask.weight = weights[k / 2 % 3];
        t->ask.blame = q->blame + (size_t) k * (size_t) (s->p->n + s->p->n_sec);
        t->ask.max_nodes = length + 50;
        for (int32_t i = 0; i < s->p->n + s->p->n_sec; i++) {
            t->ask.blame[i] *= BLAME_DECAY;
        }
    }
}

// Lists two beams. False: the memory limit makes them too narrow.
static bool list_beams(struct search *s, const struct question *q, int64_t cap) {
    static const enum exact_valley valleys[] = {EXACT_LOWEST, EXACT_TIGHTEST};
    const int64_t state_size = (3 * (int64_t) s->p->n + 4 * (int64_t) s->p->n_sec + 1) * (int64_t) sizeof(int64_t);
    const int64_t most = BEAM_BYTES / 2 / state_size;
    const int64_t width = (int64_t) (s->is_open ? BEAM_OPEN : BEAM_FULL) << min_int(q->round, 20);
    s->crew.n_tasks = 0;
    for (int k = 0; k < 2; k++) {
        struct task *t = add_task(s, cap, "beam");
        t->ask.preorder = PLAN_TAW;
        t->ask.valley = valleys[k];
        t->ask.width = (int32_t) min_i64(width, most);
        t->ask.max_nodes = INT64_MAX;
    }
    return width >= BEAM_LEAST && most >= BEAM_LEAST;
}

// Clears the blame of the chains after task `first`, which has a conclusive answer. With one thread, these chains have not run,
// and the result must not depend on the number of threads.
static void chains_forget(struct search *s, int first) {
    for (int k = first + 1; k < s->crew.n_tasks; k++) {
        if (s->crew.tasks[k].ask.blame != NULL) {
            memset(s->crew.tasks[k].ask.blame, 0, (size_t) (s->p->n + s->p->n_sec) * sizeof(float));
        }
    }
}

// ---- questions ----

static void note_answer(struct search *s, const struct task *t) {
    struct plan_state *st = s->state;
    if (t->answer == EXACT_FITS) {
        const int64_t peak = berth_plan_peak(s->p, s->crew.off);
        if (peak < st->peak) {
            plan_state_take(st, peak, t->name);
            s->crew.off = st->spare;
        }
    } else if (t->next > st->bound) {
        st->bound = min_i64(t->next, st->peak);
    }
}

// Runs the list of asks. Returns the answer that counts; EXACT_UNKNOWN if no ask has a conclusive answer.
static enum exact_answer run_list(struct search *s, struct question *q) {
    const int64_t before = s->state->n_nodes;
    const int first = crew_run(&s->crew, s->workers, s->n_workers, &s->state->n_nodes);
    q->n_nodes += s->state->n_nodes - before;
    enum exact_answer answer = EXACT_UNKNOWN;
    if (first >= 0) {
        note_answer(s, &s->crew.tasks[first]);
        chains_forget(s, first);
        answer = s->crew.tasks[first].answer;
    }
    berth_plan_improve_share(s->improve);
    s->crew.off = s->state->spare; // local search may have exchanged the arrays
    return answer;
}

// Question 2: asks the chains at a capacity below the peak. The distance to the peak grows after a success and shrinks after a
// failure.
static void ask_chains(struct search *s) {
    const int64_t step = (s->state->peak - s->state->bound) >> s->shift;
    list_chains(s, &s->below_peak, s->state->peak - max_i64(step, 1));
    const bool fits = run_list(s, &s->below_peak) == EXACT_FITS;
    s->shift += fits ? -(s->shift > 2) : s->shift < 6;
}

static void ask_between(struct search *s, bool is_beam) {
    const struct plan_state *st = s->state;
    const int64_t mid = st->bound + (int64_t) ((double) (st->peak - st->bound) * s->fraction);
    const int64_t cap = mid < st->peak ? mid : st->peak - 1;
    if (is_beam && !list_beams(s, &s->below_peak, cap)) {
        return;
    }
    if (!is_beam) {
        list_members(s, &s->below_peak, cap);
    }
    const enum exact_answer answer = run_list(s, &s->below_peak);
    if (answer == EXACT_FITS) {
        s->fraction /= 2;
    } else if (answer == EXACT_UNKNOWN && is_beam == s->is_open) {
        s->fraction = (1 + s->fraction) / 2;
        if (s->fraction > FRACTION_MAX) {
            s->below_peak.round++;
            s->fraction = 0.5;
        }
    }
}

static void ask_below_peak(struct search *s) {
    switch (s->i_turn++ % 3) {
        case 0: ask_between(s, false); break;
        case 1: ask_between(s, true); break;
        default: ask_chains(s); break;
    }
}

// Asks question 2 until it has used its share of the nodes. If most sections are full, the bound is probably the optimum, so the
// share of question 2 is small.
static void below_peak_catch_up(struct search *s) {
    const int share = s->is_open ? 1 : SHARE_FULL;
    while (s->goal->enough == 0 && share * s->below_peak.n_nodes < s->at_bound.n_nodes && !is_over(s)) {
        ask_below_peak(s);
    }
}

// Asks question 1 by members, beams and chains. If the bound was raised, starts again with the members.
static void search_round(struct search *s) {
    enum exact_answer answer = EXACT_NO;
    while (answer == EXACT_NO && !is_over(s)) {
        const int64_t cap = s->goal->enough > 0 ? s->goal->enough : s->state->bound;
        list_members(s, &s->at_bound, cap);
        answer = run_list(s, &s->at_bound);
        below_peak_catch_up(s);
        if (answer == EXACT_UNKNOWN && !is_over(s) && list_beams(s, &s->at_bound, cap)) {
            answer = run_list(s, &s->at_bound);
            below_peak_catch_up(s);
        }
        for (int64_t links = 3 * round_factor(&s->at_bound); links > 0 && answer == EXACT_UNKNOWN && !is_over(s); links--) {
            if (s->goal->enough == 0 && s->state->bound > cap) {
                answer = EXACT_NO; // question 2 has raised the bound
                break;
            }
            list_chains(s, &s->at_bound, cap);
            answer = run_list(s, &s->at_bound);
            below_peak_catch_up(s);
        }
    }
    s->at_bound.round++;
}

// ---- the search ----

// Returns whether less than a quarter of the sections are full (within 1% of the bound).
static bool prob_is_open(const struct plan_prob *p) {
    int64_t n_full = 0;
    for (int32_t s = 0; s < p->n_sec; s++) {
        n_full += p->total[s] > p->bound - p->bound / 100;
    }
    return 4 * n_full < p->n_sec;
}

static void worker_fini(struct worker *w) {
    berth_exact_free(w->joined);
    berth_exact_free(w->exact);
    berth_free(w->off);
}

static void workers_free(struct worker *workers, int n) {
    for (int k = 0; workers != NULL && k < n; k++) {
        worker_fini(&workers[k]);
    }
    berth_free(workers);
}

// Makes at most *n workers, as memory allows. Sets *n to their number.
static struct worker *workers_new(const struct plan_prob *p, struct crew *crew, int *n) {
    struct worker *workers = berth_calloc((size_t) *n, sizeof *workers);
    int k = 0;
    for (; workers != NULL && k < *n; k++) {
        workers[k].crew = crew;
        workers[k].exact = berth_exact_new(p);
        workers[k].joined = crew->joined.n > 0 ? berth_exact_new(&crew->joined) : NULL;
        workers[k].off = berth_malloc((size_t) p->n * sizeof *workers[k].off);
        if (workers[k].exact == NULL || workers[k].off == NULL || (crew->joined.n > 0 && workers[k].joined == NULL)) {
            worker_fini(&workers[k]);
            break;
        }
    }
    *n = k;
    return workers;
}

// Fills c->joined. False: out of memory.
static bool crew_join(struct crew *c, int64_t cap) {
    c->joined_cap = cap;
    c->joined_id = berth_malloc((size_t) c->p->n * sizeof *c->joined_id);
    return c->joined_id != NULL && berth_plan_join(c->p, cap, c->joined_id, &c->joined);
}

// The problem must be plain and have a plan.
static enum ggml_status search_exact(
    const struct plan_prob *p, const struct plan_goal *g, struct plan_state *st, struct plan_improve *improve) {
    int64_t n_pairs = berth_exact_pairs(p);
    if (p->n > EXACT_BLOCKS_MAX || n_pairs > EXACT_PAIRS_MAX ||
        n_pairs * EXACT_PAIR_NS / 1000 > g->deadline_us - plan_now_us(g->work)) {
        return GGML_STATUS_SUCCESS;
    }
    plan_work_add(g->work, n_pairs * EXACT_PAIR_NS);
    struct search *s = berth_calloc(1, sizeof *s);
    if (s == NULL || pthread_mutex_init(&s->crew.lock, NULL) != 0) {
        berth_free(s);
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "plan: out of memory for the search");
    }
    s->p = p;
    s->goal = g;
    s->state = st;
    s->improve = improve;
    s->fraction = 0.5;
    s->crew.p = p;
    s->crew.off = st->spare;
    bool ok = crew_join(&s->crew, g->enough > 0 ? g->enough : st->bound);
    s->n_workers = min_i32(g->n_threads, 2 * N_MEMBERS);
    s->workers = workers_new(p, &s->crew, &s->n_workers);
    float *blame = berth_calloc(2 * N_CHAINS * (size_t) (p->n + p->n_sec), sizeof *blame);
    if (s->n_workers > 0 && blame != NULL) {
        s->at_bound.blame = blame;
        s->below_peak.blame = blame + N_CHAINS * (size_t) (p->n + p->n_sec);
    } else {
        ok = false;
    }
    s->shift = 3;
    s->is_open = prob_is_open(p);
    while (ok && !is_over(s)) {
        search_round(s);
    }
    workers_free(s->workers, s->n_workers);
    berth_free(blame);
    berth_plan_prob_fini(&s->crew.joined);
    berth_free(s->crew.joined_id);
    pthread_mutex_destroy(&s->crew.lock);
    berth_free(s);
    return GGML_STATUS_SUCCESS; // also after a failed allocation, because the plan in st stays valid
}

// Searches windows at the bound and halfway to the peak, in rounds with growing time limits. A window that ends before its time
// limit has no further way to search, so it is not repeated. Local search gets its share of the time.
static enum ggml_status search_windows(
    const struct plan_prob *p, const struct plan_goal *g, struct plan_state *st, struct plan_improve *improve) {
    const bool is_last = p->n > EXACT_BLOCKS_MAX; // the exact search does not follow
    bool may_again[2] = {true, g->enough == 0};
    int64_t limit_us = WINDOW_US;
    for (int round = 0; is_last || round < WINDOW_ROUNDS; round++) {
        for (int k = 0; k < 2; k++) {
            const int64_t now = plan_now_us(g->work), until = min_i64(now + limit_us, g->deadline_us);
            const int64_t low = max_i64(g->enough, st->bound), peak = st->peak;
            if (plan_is_done(st, g) || plan_is_over(g->deadline_us, g->work, g->watch)) {
                return GGML_STATUS_SUCCESS;
            }
            if (!may_again[k]) {
                continue;
            }
            const enum ggml_status status = berth_plan_window(p, k == 0 ? low : low + (peak - low) / 2, WINDOW_MAX, until, g, st);
            if (status != GGML_STATUS_SUCCESS) {
                return status;
            }
            may_again[k] = st->peak < peak || plan_now_us(g->work) >= until;
            berth_plan_improve_share(improve);
        }
        if (!may_again[0] && !may_again[1]) {
            break;
        }
        limit_us = min_i64(limit_us * (is_last ? 2 : 4), INT64_MAX / 8);
    }
    return GGML_STATUS_SUCCESS;
}

bool berth_plan_counts_work(const struct plan_prob *p) {
    return p->n > EXACT_BLOCKS_MAX && !plan_prob_is_constrained(p) && !p->bound_is_inexact;
}

static enum ggml_status search_plain(
    const struct plan_prob *p, const struct plan_goal *g, struct plan_state *st, struct plan_improve *improve) {
    struct plan_goal brief = *g;
    const int64_t core_us = berth_plan_counts_work(p) ? CORE_WORK_US : CORE_US;
    brief.deadline_us = min_i64(g->deadline_us, plan_now_us(g->work) + core_us);
    enum ggml_status status = berth_plan_critical(p, g->enough > 0 ? g->enough : st->bound, WINDOW_MAX, &brief, st);
    berth_plan_improve_share(improve);
    if (status != GGML_STATUS_SUCCESS || plan_is_done(st, g)) {
        return status;
    }
    if (p->n >= WINDOW_MIN && (g->enough == 0 || g->enough >= p->bound)) {
        status = search_windows(p, g, st, improve);
    }
    if (status != GGML_STATUS_SUCCESS || plan_is_done(st, g)) {
        return status;
    }
    return search_exact(p, g, st, improve);
}

enum ggml_status berth_plan_search(const struct plan_prob *p, const struct plan_goal *g, struct plan_state *st) {
    if (p->chunk > 0 && p->n_fixed == 0) {
        return berth_plan_chunked(p, g, st);
    }
    if (plan_prob_is_constrained(p) || p->bound_is_inexact) {
        return berth_plan_search_constrained(p, g, st);
    }
    // Without memory for local search, the other searches run alone.
    struct plan_improve *improve = berth_plan_improve_new(p, g, st);
    berth_plan_improve_share(improve);
    struct plan_goal goal = *g;
    if (g->work != NULL) {
        goal.n_threads = 1; // the other threads are those of local search
    }
    const enum ggml_status status = plan_is_done(st, g) ? GGML_STATUS_SUCCESS : search_plain(p, &goal, st, improve);
    if (status == GGML_STATUS_SUCCESS && improve != NULL && !plan_is_done(st, g)) {
        berth_plan_improve_turn(improve, g->deadline_us);
    }
    berth_plan_improve_free(improve);
    return status;
}
