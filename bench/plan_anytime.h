// SPDX-License-Identifier: MIT
// plan_anytime.h: bench-plan anytime: the gap of generated problems after 0.1, 1, 10 and 60 s of search. One search with the
// longest limit gives the gaps of all shorter limits: the observer records the peak at these times. The run ends with exit code 1
// if a peak rises.
#pragma once

#include "plan_instance.h"
#include "support/plan_made.h"

static const double anytime_marks[] = {0.1, 1, 10, 60};
#define ANYTIME_MARKS ((int) (sizeof anytime_marks / sizeof anytime_marks[0]))

struct anytime {
    double start_s;             // when the search began; 0: not yet
    double gaps[ANYTIME_MARKS]; // at each mark; n_marks of them are known
    double first, last;         // gap of the first and of the last plan
    uint64_t peak;
    uint64_t first_bound; // bytes
    double bound_rise;    // of the bound, relative to the first one
    bool has_risen;
    int n_marks;
};

static bool anytime_watch(uint64_t peak, uint64_t bound, void *user) {
    struct anytime *a = user;
    const double now = clock_s(CLOCK_MONOTONIC), gap = (double) peak / (double) bound - 1;
    if (a->start_s == 0) {
        a->start_s = now;
        a->first = gap;
        a->first_bound = bound;
    } else {
        a->has_risen |= peak > a->peak;
    }
    while (a->n_marks < ANYTIME_MARKS && now - a->start_s >= anytime_marks[a->n_marks]) {
        a->gaps[a->n_marks++] = a->last; // the watch reports an improvement late rather than early
    }
    a->peak = peak;
    a->last = gap;
    return true;
}

// Solves a problem and fills in the marks up to `seconds`.
static void anytime_run(struct plan_made *m, const char *name, double seconds, int n_threads, struct anytime *a) {
    struct instance in = {m->items, calloc((size_t) m->n, sizeof(uint64_t)), m->n};
    struct berth_plan_params params = {.time_limit_us = (int64_t) (seconds * 1e6), .n_threads = n_threads};
    struct berth_plan_report r;
    struct berth_plan_fault fault = {0};
    *a = (struct anytime){.peak = UINT64_MAX};
    if (berth_plan_solve_watched(in.items, in.n, &params, anytime_watch, a, in.offsets, &r) != GGML_STATUS_SUCCESS ||
        berth_plan_check(in.items, in.n, &params, in.offsets, &fault) != GGML_STATUS_SUCCESS || r.peak > a->peak ||
        a->has_risen) {
        fprintf(stderr, "%s: wrong plan or a rising peak: fault %d at items %lld and %lld\n", name, (int) fault.kind,
            (long long) fault.i, (long long) fault.j);
        exit(1);
    }
    if (a->start_s == 0) {
        a->first = r.gap;
    } else {
        a->bound_rise = (double) r.bound / (double) a->first_bound - 1;
    }
    for (; a->n_marks < ANYTIME_MARKS; a->n_marks++) {
        a->gaps[a->n_marks] = r.gap;
    }
    free(in.offsets);
}

// class: "wide", "flat" or "hard". seeds: "4" for 1 to 4, or "3-4".
static int run_anytime(const char *class, int64_t n, const char *seeds, double seconds, int n_threads) {
    double mean[ANYTIME_MARKS + 1] = {0}, worst[ANYTIME_MARKS + 1] = {0}, rise = 0;
    int first = 1, last = 1;
    if (sscanf(seeds, "%d-%d", &first, &last) < 2) {
        last = first;
        first = 1;
    }
    const int n_seeds = last - first + 1;
    if (n_seeds < 1) {
        fprintf(stderr, "bench-plan: SEEDS '%s' is neither a number nor a range\n", seeds);
        return 2;
    }
    for (int seed = first; seed <= last; seed++) {
        struct plan_made m;
        struct anytime a;
        char name[64];
        if (class[0] == 'h') {
            plan_made_pieces(&m, (uint64_t) seed);
        } else {
            plan_made_random(&m, n, class[0] == 'w', (uint64_t) seed);
        }
        snprintf(name, sizeof name, "%s %lld seed %d", class, (long long) m.n, seed);
        anytime_run(&m, name, seconds, n_threads, &a);
        printf("%-24s at once %7.3f%%", name, 100 * a.first);
        mean[0] += a.first / n_seeds;
        worst[0] = a.first > worst[0] ? a.first : worst[0];
        for (int k = 0; k < ANYTIME_MARKS && anytime_marks[k] <= seconds; k++) {
            printf("  %gs %7.3f%%", anytime_marks[k], 100 * a.gaps[k]);
            mean[k + 1] += a.gaps[k] / n_seeds;
            worst[k + 1] = a.gaps[k] > worst[k + 1] ? a.gaps[k] : worst[k + 1];
        }
        printf("  bound +%.3f%%\n", 100 * a.bound_rise);
        rise += a.bound_rise / n_seeds;
        fflush(stdout);
        made_free(&m);
    }
    printf("%s %lld, mean (worst): at once %.3f%% (%.3f%%)", class, (long long) n, 100 * mean[0], 100 * worst[0]);
    for (int k = 0; k < ANYTIME_MARKS && anytime_marks[k] <= seconds; k++) {
        printf("  %gs %.3f%% (%.3f%%)", anytime_marks[k], 100 * mean[k + 1], 100 * worst[k + 1]);
    }
    printf("  bound +%.3f%%\n", 100 * rise);
    return 0;
}
