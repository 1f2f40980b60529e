// SPDX-License-Identifier: MIT
// beside.c: moves beside ops. A copy out may be under way from the step that makes its value until its place in the schedule,
// behind which the memory is another's; a copy in from its place until its first reader. So what goes out is put later and what
// comes back earlier, past as many ops as the copy takes time, as far as memory allows. Moves keep their order, since one copies
// at a time; ops keep theirs, and the cost is the same. Linear in steps, but for moves with much to pass.

#include "base/min.h"
#include "plan/budget/budget.h"

#include <string.h>

#define N_TRIES 10      // each with less room for live bytes, since holes count
#define PASSED_MAX 4096 // steps a move goes past
#define SLACK 2         // times that a copy is given, since what it takes is a guess

struct shift {
    const struct budget_graph *g;
    struct budget_steps *s;
    const uint64_t *room; // [n_pools] bytes alive that moves may bring a pool to
    uint64_t *live;       // [steps * n_pools] not below what is alive
    double *wish;         // [steps] of a move: the time at which a copy out is over, at which one in should begin
};

static double step_time(const struct budget_graph *g, const struct berth_budget_step *step) {
    return step->kind == BERTH_BUDGET_RUN ? (double) g->cost[step->op] : 0;
}

static double move_time(const struct budget_graph *g, const struct berth_budget_step *step) {
    return SLACK * (double) budget_spill_cost(g, step->op);
}

// ---- when copies would like to be ----

// By the ops' own time, at which nobody waits for a copy.
static void wishes_find(struct shift *f, const struct budget_trace *t, double *begins) {
    const int32_t n = f->g->n, m = (int32_t) f->s->n;
    double at = 0, queue = 0;
    for (int32_t k = 0; k < m; k++) {
        const struct berth_budget_step *step = &f->s->at[k];
        begins[k] = at;
        at += step_time(f->g, step);
        if (step->kind == BERTH_BUDGET_OUT) {
            const int32_t made = t->src[t->start[k]] - n;
            const double there = made < 0 ? 0 : begins[made] + step_time(f->g, &f->s->at[made]);
            queue = max_f64(there, queue) + move_time(f->g, step);
            f->wish[k] = queue;
        }
    }
    for (int32_t k = 0; k < m; k++) { // the first reader of what comes back
        if (f->s->at[k].kind == BERTH_BUDGET_IN) {
            f->wish[k] = at;
        }
    }
    for (int32_t k = m; k-- > 0;) {
        for (int32_t j = t->start[k]; j < t->start[k + 1]; j++) {
            const int32_t made = t->src[j] - n;
            if (made >= 0 && f->s->at[made].kind == BERTH_BUDGET_IN) {
                f->wish[made] = begins[k];
            }
        }
    }
    queue = at;
    for (int32_t k = m; k-- > 0;) {
        if (f->s->at[k].kind == BERTH_BUDGET_IN) {
            queue = min_f64(f->wish[k], queue) - move_time(f->g, &f->s->at[k]);
            f->wish[k] = queue;
        }
    }
}

// ---- moving them there ----

// Runs the step without the value, and without making it?
static bool is_apart(const struct budget_graph *g, const struct berth_budget_step *step, int32_t value) {
    bool is_apart = step->kind == BERTH_BUDGET_RUN && step->op != value;
    for (int32_t j = g->srcs.start[step->op]; is_apart && j < g->srcs.start[step->op + 1]; j++) {
        is_apart = g->srcs.at[j] != value;
    }
    return is_apart;
}

// A move goes past the step at `to`, its neighbour, during which its value is there then.
static bool step_pass(struct shift *f, size_t from, size_t to) {
    const struct budget_graph *g = f->g;
    const struct berth_budget_step one = f->s->at[from], other = f->s->at[to];
    const size_t p = (size_t) g->n_pools, home = (size_t) g->pool[one.op];
    if (!is_apart(g, &other, one.op) || f->live[to * p + home] + g->size[one.op] > f->room[home]) {
        return false;
    }
    f->live[to * p + home] += g->size[one.op];
    memcpy(&f->live[from * p], &f->live[to * p], p * sizeof *f->live);
    f->s->at[from] = other;
    f->s->at[to] = one;
    const double wish = f->wish[from];
    f->wish[from] = f->wish[to];
    f->wish[to] = wish;
    return true;
}

// begins[k] is the time before step k as it stood: the ops' order is the same, and so are their times.
static void outs_shift(struct shift *f, const double *begins) {
    for (size_t k = f->s->n; k-- > 0;) {
        double at = begins[k];
        size_t to = k;
        while (f->s->at[to].kind == BERTH_BUDGET_OUT && to + 1 < f->s->n && to - k < PASSED_MAX && at < f->wish[to] &&
               step_pass(f, to, to + 1)) {
            at += step_time(f->g, &f->s->at[to]);
            to++;
        }
    }
}

static void ins_shift(struct shift *f) {
    double at = 0;
    for (size_t k = 0; k < f->s->n; k++) {
        const struct berth_budget_step step = f->s->at[k];
        double back = at;
        at += step_time(f->g, &step);
        for (size_t to = k;
             step.kind == BERTH_BUDGET_IN && to > 0 && k - to < PASSED_MAX && back > f->wish[to] && step_pass(f, to, to - 1);
             to--) {
            back -= step_time(f->g, &f->s->at[to]);
        }
    }
}

// ---- the whole ----

static bool has_moves(const struct budget_steps *s) {
    bool has = false;
    for (size_t k = 0; k < s->n && !has; k++) {
        has = s->at[k].kind != BERTH_BUDGET_RUN;
    }
    return has;
}

// Is it sound, and within the limits as packed without a search?
static enum ggml_status steps_judge(const struct budget_graph *g, const struct budget_steps *s, const uint64_t *limits,
    bool live_only, struct budget_trace *t, uint64_t *peaks, bool *fits) {
    bool is_sure;
    *fits = false;
    if (!budget_trace(g, s, t)) {
        return GGML_STATUS_ALLOC_FAILED;
    }
    BERTH_ASSERT(t->fault < 0);
    *fits = t->fault < 0;
    if (*fits) {
        memcpy(peaks, t->peak, (size_t) g->n_pools * sizeof *peaks);
    }
    const enum ggml_status status =
        *fits && !live_only ? budget_pack(g, s, t, &(struct budget_pack){limits, 0}, peaks, &is_sure) : GGML_STATUS_SUCCESS;
    for (int32_t p = 0; p < g->n_pools; p++) {
        *fits = *fits && peaks[p] <= limits[p];
    }
    return status;
}

enum ggml_status budget_beside(const struct budget_graph *g, const uint64_t *limits, bool live_only, struct budget_steps *steps) {
    const size_t p = (size_t) g->n_pools;
    if (!has_moves(steps)) {
        return GGML_STATUS_SUCCESS;
    }
    struct budget_trace t = {0}, t2 = {0};
    struct budget_steps s = {0};
    uint64_t *live = berth_calloc(steps->n * p + 2 * p + 1, sizeof *live);
    double *times = berth_calloc(2 * steps->n + 1, sizeof *times);
    enum ggml_status status = GGML_STATUS_ALLOC_FAILED;
    bool fits = false;
    if (live != NULL && times != NULL && budget_trace(g, steps, &t)) {
        status = GGML_STATUS_SUCCESS;
    }
    for (uint64_t n = 0; n < N_TRIES && status == GGML_STATUS_SUCCESS && t.fault < 0 && !fits; n++) {
        uint64_t *room = live + steps->n * p, *peaks = room + p;
        struct shift f = {.g = g, .s = &s, .room = room, .live = live, .wish = times};
        for (size_t i = 0; i < p; i++) {
            room[i] = limits[i] - limits[i] / 32 * n;
        }
        memcpy(live, t.live, steps->n * p * sizeof *live);
        if (!budget_copy(&s, steps)) {
            status = GGML_STATUS_ALLOC_FAILED;
            break;
        }
        wishes_find(&f, &t, times + steps->n);
        outs_shift(&f, times + steps->n);
        ins_shift(&f);
        status = steps_judge(g, &s, limits, live_only, &t2, peaks, &fits);
    }
    if (fits && status == GGML_STATUS_SUCCESS && !budget_copy(steps, &s)) {
        status = GGML_STATUS_ALLOC_FAILED;
    }
    berth_free(s.at);
    berth_free(live);
    berth_free(times);
    budget_trace_fini(&t);
    budget_trace_fini(&t2);
    return status;
}
