// SPDX-License-Identifier: MIT
// plan_known.h: bench-plan hard and training: generated problems (support/plan_made.h), whose optimum is known.
#pragma once

#include "plan_instance.h"
#include "support/plan_made.h"

// The peak of largest first, the usual greedy method, divided by the bound.
static double greedy_ratio(const struct plan_made *m) {
    struct one_pool one;
    one_pool_init(&one, m->items, m->n);
    const double ratio = (double) berth_plan_largest_first(&one.pool.prob, PLAN_NO_CAP, one.off) / (double) one.pool.prob.bound;
    one_pool_fini(&one);
    return ratio;
}

// A problem is hard if largest first is 10 to 50% above the bound and the fast path does not reach the optimum.
static bool is_hard(struct plan_made *m) {
    const double ratio = greedy_ratio(m);
    uint64_t *offsets = malloc((size_t) m->n * sizeof *offsets);
    struct berth_plan_report report = {0};
    const bool ok = berth_plan_solve(m->items, m->n, NULL, offsets, &report) == GGML_STATUS_SUCCESS;
    free(offsets);
    return ok && ratio >= 1.1 && ratio <= 1.5 && report.peak > m->optimum && report.bound == m->optimum;
}

static uint64_t made_next(struct plan_made *m, bool training, uint64_t seed) {
    for (;; seed++) {
        if (training) {
            plan_made_training(m, seed);
            return seed;
        }
        plan_made_hard(m, seed);
        if (is_hard(m)) {
            return seed;
        }
        made_free(m);
    }
}

struct made_tally {
    double ask_s[1024];
    int n, n_ask, n_least, n_behind, n_close;
};

static void made_run(struct plan_made *m, uint64_t seed, double seconds, const char *what, struct made_tally *t) {
    struct instance in = {m->items, calloc((size_t) m->n, sizeof(uint64_t)), m->n};
    struct berth_plan_params params = {.time_limit_us = (int64_t) (seconds * 1e6)};
    char name[32];
    double s, asked = 0;
    snprintf(name, sizeof name, "seed %llu", (unsigned long long) seed);
    printf("%-12s %6lld", name, (long long) m->n);
    bool fits = false;
    if (m->optimum > 0) {
        printf("  greedy %.3f", greedy_ratio(m));
        if (strcmp(what, "least") != 0) {
            params.memory_limit = m->optimum;
            struct berth_plan_report r = solve(&in, &params, name, &asked);
            fits = r.fits;
            params.memory_limit = 0;
            t->ask_s[t->n] = fits ? asked : 1e9;
            t->n_ask += fits;
            printf("  capacity %-3s %7.3f s %8lld nodes", fits ? "yes" : "?", asked, (long long) r.n_nodes);
        }
    }
    if (strcmp(what, "asks") != 0) {
        struct berth_plan_report r = solve(&in, &params, name, &s);
        printf("  peak %llu  +%.4f%%  %7.3f s %8lld nodes  %s", (unsigned long long) r.peak, 100 * r.gap, s,
            (long long) r.n_nodes, r.method);
        t->n_least += r.proven;
        t->n_close += r.gap <= 0.0005;
        t->n_behind += fits && !r.proven;
        printf("%s", fits && !r.proven ? "  MINIMUM NOT FOUND" : "");
    }
    printf("\n");
    fflush(stdout);
    t->n++;
    free(in.offsets);
}

static int run_made(bool training, int n, uint64_t seed, double seconds, const char *what) {
    struct made_tally t = {0};
    while (t.n < n && t.n < 1024) {
        struct plan_made m;
        seed = made_next(&m, training, seed);
        made_run(&m, seed++, seconds, what, &t);
        made_free(&m);
    }
    qsort(t.ask_s, (size_t) t.n, sizeof t.ask_s[0], clock_by_value);
    printf("%d problems: ", t.n);
    if (!training && strcmp(what, "least") != 0) {
        printf("a plan at the optimum found for %d, median %.3f s, 95%% within %.3f s; ", t.n_ask, t.ask_s[t.n / 2],
            t.ask_s[(t.n * 19 + 19) / 20 - 1]);
    }
    printf("minimised to the optimum: %d, to within 0.05%%: %d, optimum found with a capacity but not by minimising: %d\n",
        t.n_least, t.n_close, t.n_behind);
    return t.n_behind > 0;
}

static int make_csv(bool training, uint64_t seed) {
    struct plan_made m;
    made_next(&m, training, seed);
    printf("id,lower,upper,size\n");
    for (int64_t i = 0; i < m.n; i++) {
        printf("%lld,%lld,%lld,%llu\n", (long long) i, (long long) m.items[i].first, (long long) m.items[i].last + 1,
            (unsigned long long) m.items[i].size);
    }
    made_free(&m);
    return 0;
}
