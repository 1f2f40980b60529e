// SPDX-License-Identifier: MIT
// prop_plan_improve.c: random problems of up to a few thousand items, of classes that differ in sizes, lifetimes, alignments, fixed
// offsets, alias groups and capacities. Every plan of the search is valid, the peak never rises during a search, the plan is never
// worse than without search, a counted search repeats exactly, and a search can be ended at any time or run out of memory.

#include "support/check.h"
#include "support/plan_made.h"

#include "base/base.h"

enum { ALIGNED = 1, FIXED = 2, ALIASES = 4, POWERS = 8, LONG = 16, CAPACITY = 32 };

struct random_case {
    struct plan_made made;
    uint64_t *off, *other;
    struct berth_plan_params params;
};

// Gives some items fixed offsets. They are above each other, so they share no byte.
static void fix_some(struct plan_made *m) {
    uint64_t at = 0;
    for (int64_t i = 0; i < m->n; i++) {
        struct berth_plan_item *it = &m->items[i];
        if (it->alias == 0 && made_below(m, 200) == 0) {
            it->is_fixed = true;
            it->align = 1;
            it->fixed = at;
            at += it->size;
        }
    }
}

static void case_init(struct random_case *c, uint64_t seed) {
    struct plan_made *m = &c->made;
    plan_made_random(m, 30 + (int64_t) (seed * 7919 % 1500), seed % 2 == 0, seed);
    const int features = (int) made_below(m, 64);
    for (int64_t i = 0; i < m->n; i++) {
        struct berth_plan_item *it = &m->items[i];
        if (features & POWERS) {
            it->size = (uint64_t) 1 << made_below(m, 12);
        }
        if ((features & LONG) && made_below(m, 10) == 0) {
            it->last += m->n;
        }
        if (features & ALIGNED) {
            it->align = (uint64_t) 1 << made_below(m, 9);
        }
        if ((features & ALIASES) && made_below(m, 10) == 0) {
            it->alias = 1 + (int32_t) made_below(m, m->n);
        }
    }
    if (features & FIXED) {
        fix_some(m);
    }
    c->off = calloc((size_t) m->n & 0xFFFFFF, sizeof *c->off);
    c->other = calloc((size_t) m->n & 0xFFFFFF, sizeof *c->other);
    assert_true(c->off != NULL && c->other != NULL);
    c->params = (struct berth_plan_params){.seed = seed};
    struct berth_plan_report r;
    assert_int_equal(berth_plan_solve(m->items, m->n, &c->params, c->off, &r), GGML_STATUS_SUCCESS);
    if (features & CAPACITY) {
        c->params.memory_limit = r.bound + (r.peak - r.bound) / 2;
    }
    c->params.time_limit_us = 20000;
}

static void case_fini(struct random_case *c) {
    free(c->off);
    free(c->other);
    made_free(&c->made);
}

struct watched {
    uint64_t peak;
    int n_left; // calls until the callback ends the search
    bool has_risen;
    bool ends_at_fall; // the callback ends the search when the peak has fallen
};

static bool watch_peak(uint64_t peak, uint64_t bound, void *user) {
    struct watched *w = user;
    const bool has_fallen = w->peak != UINT64_MAX && peak < w->peak;
    w->has_risen |= peak > w->peak || bound > peak;
    w->peak = peak;
    return --w->n_left > 0 && !(w->ends_at_fall && has_fallen);
}

static void case_solve(struct random_case *c, int n_left, struct berth_plan_report *r) {
    const struct plan_made *m = &c->made;
    struct watched w = {.peak = UINT64_MAX, .n_left = n_left};
    assert_int_equal(berth_plan_solve_watched(m->items, m->n, &c->params, watch_peak, &w, c->off, r), GGML_STATUS_SUCCESS);
    assert_int_equal(berth_plan_check(m->items, m->n, &c->params, c->off, NULL), GGML_STATUS_SUCCESS);
    assert_true(!w.has_risen && r->peak <= w.peak && r->bound <= r->peak);
}

// A search with counted work is valid, repeats exactly with any number of threads, and is not worse than the plan without search.
static void test_counted(void **state) {
    (void) state;
    for (int k = 0; k < check_cases(30); k++) {
        struct random_case c;
        struct berth_plan_report first, r, again;
        case_init(&c, (uint64_t) k);
        c.params.time_limit_us = 0;
        case_solve(&c, INT32_MAX, &first);
        c.params.time_limit_us = 20000;
        c.params.is_counted = true;
        case_solve(&c, INT32_MAX, &r);
        assert_true(r.peak <= first.peak && r.bound >= first.bound);
        memcpy(c.other, c.off, (size_t) c.made.n * sizeof *c.off);
        c.params.n_threads = 3;
        case_solve(&c, INT32_MAX, &again);
        assert_true(again.peak == r.peak && again.bound == r.bound);
        assert_memory_equal(c.other, c.off, (size_t) c.made.n * sizeof *c.off);
        case_fini(&c);
    }
}

// Searches with several threads, each ended by the callback or by the clock.
static void test_threads(void **state) {
    (void) state;
    for (int k = 0; k < check_cases(24); k++) {
        struct random_case c;
        struct berth_plan_report r;
        case_init(&c, 1000 + (uint64_t) k);
        c.params.n_threads = 1 + k % 4;
        c.params.time_limit_us = 10000 + 10000 * (k % 3);
        case_solve(&c, k % 2 == 0 ? 1 : INT32_MAX, &r);
        case_fini(&c);
    }
}

// Problems that are too large for the exact search: helpers search during the whole search. The search ends when the callback
// learns of a lower plan. The result is this plan or a lower one.
static void test_large_threads(void **state) {
    (void) state;
    for (int k = 0; k < 4; k++) {
        struct random_case c = {.params = {.time_limit_us = 10000000, .n_threads = 2 + k}};
        struct watched w = {.peak = UINT64_MAX, .n_left = INT32_MAX, .ends_at_fall = true};
        struct berth_plan_report r;
        plan_made_random(&c.made, 12000, k % 2 == 0, (uint64_t) k + 1);
        const struct plan_made *m = &c.made;
        c.off = calloc((size_t) m->n & 0xFFFFFF, sizeof *c.off);
        assert_non_null(c.off);
        assert_int_equal(berth_plan_solve_watched(m->items, m->n, &c.params, watch_peak, &w, c.off, &r), GGML_STATUS_SUCCESS);
        assert_int_equal(berth_plan_check(m->items, m->n, &c.params, c.off, NULL), GGML_STATUS_SUCCESS);
        assert_true(!w.has_risen && r.peak <= w.peak);
        case_fini(&c);
    }
}

// In run n, the n-th allocation fails. The search then ends with an error or with a valid plan.
static void test_out_of_memory(void **state) {
    (void) state;
    check_quiet();
    for (uint64_t seed = 3; seed < 4; seed++) {
        struct random_case c;
        struct berth_plan_report r;
        case_init(&c, seed);
        c.params.time_limit_us = 3000;
        c.params.is_counted = true;
        for (int64_t n = 1; n <= 90; n += check_step()) {
            berth_alloc_fail_at(n);
            const enum ggml_status status = berth_plan_solve(c.made.items, c.made.n, &c.params, c.off, &r);
            berth_alloc_fail_at(0);
            assert_true(status == GGML_STATUS_SUCCESS || status == GGML_STATUS_ALLOC_FAILED);
            if (status == GGML_STATUS_SUCCESS) {
                assert_int_equal(berth_plan_check(c.made.items, c.made.n, &c.params, c.off, NULL), GGML_STATUS_SUCCESS);
            }
        }
        case_fini(&c);
    }
    ggml_log_set(NULL, NULL);
}

// Local search lowers the peak of large random problems in little time.
static void test_large(void **state) {
    (void) state;
    for (uint64_t seed = 1; seed <= 2; seed++) {
        struct plan_made m;
        plan_made_random(&m, 5000, true, seed);
        uint64_t *off = calloc((size_t) m.n & 0xFFFFFF, sizeof *off);
        assert_non_null(off);
        struct berth_plan_params params = {0};
        struct berth_plan_report first, r;
        assert_int_equal(berth_plan_solve(m.items, m.n, &params, off, &first), GGML_STATUS_SUCCESS);
        params.time_limit_us = 1000000;
        params.is_counted = true;
        assert_int_equal(berth_plan_solve(m.items, m.n, &params, off, &r), GGML_STATUS_SUCCESS);
        assert_int_equal(berth_plan_check(m.items, m.n, &params, off, NULL), GGML_STATUS_SUCCESS);
        printf("seed %d: gap %.3f%% at once, %.3f%% after search\n", (int) seed, 100 * first.gap, 100 * r.gap);
        assert_true(r.peak < first.peak);
        free(off);
        made_free(&m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counted),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_large_threads),
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
