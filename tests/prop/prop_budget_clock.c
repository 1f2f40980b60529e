// SPDX-License-Identifier: MIT
// prop_budget_clock.c: the results of the budget solver do not depend on the clock. Random graphs are solved with a clock that
// does not advance, and with a clock that advances two hours per reading. Only local search may give different results.
// berth_budget_check must confirm all results. BERTH_SEED=n repeats a run.

#include "support/check.h"

#include <time.h>

// ---- the clock of this program ----

static int64_t clock_ns = 1000000000000;
static int64_t clock_step = 0; // nanoseconds per reading

int clock_gettime(clockid_t id, struct timespec *t) {
    (void) id;
    clock_ns += clock_step;
    t->tv_sec = (time_t) (clock_ns / 1000000000);
    t->tv_nsec = (long) (clock_ns % 1000000000);
    return 0;
}

#define STILL 0
#define TWO_US 2000               // the clock advances by two microseconds per reading
#define TWO_HOURS 7200000000000LL // the clock advances by two hours per reading

// ---- random graphs ----

#define OPS_MAX 48

struct problem {
    struct berth_budget_op ops[OPS_MAX];
    int32_t srcs[OPS_MAX][3];
    size_t n;
    struct berth_budget_pool pools[2];
    struct berth_budget_params params;
};

// Like a training step. The sizes have no common divisor, so that packing is difficult.
static void problem_make(struct check_rng *rng, struct problem *p) {
    const bool is_aligned = check_rng_below(rng, 4) == 0, may_spill = check_rng_below(rng, 3) == 0;
    *p = (struct problem){.n = 12 + check_rng_below(rng, OPS_MAX - 11), .params = {.pools = p->pools, .max_nodes = 300}};
    for (int32_t i = 0; i < (int32_t) p->n; i++) {
        struct berth_budget_op *op = &p->ops[i];
        *op = (struct berth_budget_op){
            .srcs = p->srcs[i], .size = 1 + check_rng_below(rng, 1000), .cost = 1 + check_rng_below(rng, 50)};
        op->flags = i == 0 ? BERTH_BUDGET_INPUT : check_rng_below(rng, 12) == 0 ? BERTH_BUDGET_ONCE : 0;
        op->align = is_aligned ? (uint64_t) 1 << check_rng_below(rng, 7) : 1;
        const int32_t mirror = (int32_t) p->n - i;
        if (i > 0) {
            p->srcs[i][op->n_srcs++] = i - 1;
        }
        if (mirror > 0 && mirror < i - 1) {
            p->srcs[i][op->n_srcs++] = mirror;
        }
        if (i > 2 && check_rng_below(rng, 3) == 0) {
            p->srcs[i][op->n_srcs++] = (int32_t) check_rng_below(rng, (uint64_t) i - 1);
        }
    }
    p->params.n_pools = may_spill ? 2 : 1;
    p->pools[0] =
        (struct berth_budget_pool){.may_spill = may_spill, .spill_to = 1, .spill_cost_per_byte = 0.02, .spill_cost_per_copy = 2};
    p->pools[1] = (struct berth_budget_pool){.pool = 1, .limit = 1000 + check_rng_below(rng, 3000)};
}

// Draws a limit between the least bytes of any schedule and the bytes of the given order.
static void problem_limit(struct check_rng *rng, struct problem *p) {
    struct berth_budget_result *r = NULL;
    p->pools[0].limit = UINT64_MAX;
    assert_int_equal(berth_budget_solve(p->ops, p->n, &p->params, &r), GGML_STATUS_SUCCESS);
    const uint64_t least = r->uses[0].live_bound, most = r->uses[0].peak;
    p->pools[0].limit = least + check_rng_below(rng, most - least + 2);
    berth_budget_free(r);
}

// ---- the same results with every clock ----

static struct berth_budget_result *solve_by(const struct problem *p, int64_t step) {
    struct berth_budget_result *r = NULL;
    clock_step = step;
    assert_int_equal(berth_budget_solve(p->ops, p->n, &p->params, &r), GGML_STATUS_SUCCESS);
    return r;
}

static void result_same(const struct berth_budget_result *a, const struct berth_budget_result *b) {
    assert_int_equal(a->fits, b->fits);
    assert_int_equal(a->cost, b->cost);
    assert_int_equal(a->n_steps, b->n_steps);
    assert_int_equal(a->n_uses, b->n_uses);
    for (int64_t k = 0; k < a->n_steps; k++) {
        assert_true(a->steps[k].op == b->steps[k].op && a->steps[k].kind == b->steps[k].kind);
    }
    for (int64_t k = 0; k < a->n_uses; k++) {
        assert_int_equal(a->uses[k].peak, b->uses[k].peak);
    }
}

static void check_same(const struct problem *p, const struct berth_budget_result *r, int64_t step) {
    struct berth_budget_result *checked = NULL;
    clock_step = step;
    assert_int_equal(berth_budget_check(p->ops, p->n, &p->params, r->steps, r->n_steps, &checked), GGML_STATUS_SUCCESS);
    result_same(r, checked);
    berth_budget_free(checked);
}

static void test_clock(void **state) {
    (void) state;
    clock_step = TWO_HOURS;
    const int64_t begin = ggml_time_us();
    assert_true(ggml_time_us() - begin >= TWO_HOURS / 1000); // this program's clock is in use
}

static void test_solve(void **state) {
    (void) state;
    struct check_rng rng = check_rng_new(check_seed(6));
    struct problem p;
    int n_fit = 0;
    for (int i = 0; i < check_cases(200); i++) {
        problem_make(&rng, &p);
        problem_limit(&rng, &p);
        struct berth_budget_result *r = solve_by(&p, STILL), *late = solve_by(&p, TWO_HOURS);
        result_same(r, late);
        check_same(&p, r, STILL);
        check_same(&p, r, TWO_HOURS);
        n_fit += r->fits;
        berth_budget_free(late);
        berth_budget_free(r);
    }
    assert_true(n_fit >= check_cases(50));
}

// Local search ends by the clock, so its schedule depends on the clock.
static void test_local_search(void **state) {
    (void) state;
    struct check_rng rng = check_rng_new(check_seed(7));
    struct problem p;
    for (int i = 0; i < check_cases(100); i++) {
        problem_make(&rng, &p);
        problem_limit(&rng, &p);
        p.params.time_limit_us = 200;
        p.params.seed = (uint64_t) i;
        struct berth_budget_result *r = solve_by(&p, TWO_US);
        check_same(&p, r, TWO_HOURS);
        check_same(&p, r, STILL);
        berth_budget_free(r);
    }
}

// Work limits give the same plan with every clock and number of threads, also with alignments and chunks.
static void test_planner(void **state) {
    (void) state;
    struct check_rng rng = check_rng_new(check_seed(8));
    struct berth_plan_item items[200];
    uint64_t one[200], other[200];
    for (int i = 0; i < check_cases(60); i++) {
        const int64_t n = 20 + (int64_t) check_rng_below(&rng, 181);
        const int kind = i % 3;
        for (int64_t k = 0; k < n; k++) {
            const int64_t first = (int64_t) check_rng_below(&rng, (uint64_t) n);
            items[k] = (struct berth_plan_item){.first = first,
                .last = first + (int64_t) check_rng_below(&rng, (uint64_t) n / 3),
                .size = 1 + check_rng_below(&rng, 1000),
                .align = kind == 1 ? (uint64_t) 1 << check_rng_below(&rng, 8) : 1};
        }
        struct berth_plan_params params = {.time_limit_us = 2000, .is_counted = true, .chunk_limit = kind == 2 ? 4000 : 0};
        struct berth_plan_report a, b;
        clock_step = STILL;
        assert_int_equal(berth_plan_solve(items, n, &params, one, &a), GGML_STATUS_SUCCESS);
        clock_step = TWO_HOURS;
        params.n_threads = 4;
        assert_int_equal(berth_plan_solve(items, n, &params, other, &b), GGML_STATUS_SUCCESS);
        assert_true(a.peak == b.peak && a.bound == b.bound && a.n_nodes == b.n_nodes);
        assert_memory_equal(one, other, (size_t) n * sizeof *one);
    }
}

int main(void) {
    check_quiet();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clock),
        cmocka_unit_test(test_solve),
        cmocka_unit_test(test_local_search),
        cmocka_unit_test(test_planner),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
