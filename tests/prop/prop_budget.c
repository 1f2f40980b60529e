// SPDX-License-Identifier: MIT
// prop_budget.c: compares the budget solver with brute force on small random graphs, at every memory limit. Some tests limit the
// live bytes, others limit packed memory, which is the peak of a plan. On chains, the solver is compared with the known optimum.
// BERTH_SEED=n repeats a run.

#include "budget_brute.h"
#include "budget_chain.h"

static void test_exact(void **state) {
    (void) state;
    cases_compare(1, check_cases(500), 0);
}

static void test_spill(void **state) {
    (void) state;
    brute_seed = check_seed(2);
    struct case_queue *q = case_queue_new();
    struct budget_case c;
    for (int i = 0; i < check_cases(60); i++) {
        case_make(&c, 2 + (int32_t) case_roll(5), true);
        const uint64_t total = case_total(&c);
        for (uint64_t budget = 0; budget <= total; budget++) {
            case_compare(q, &c, budget);
        }
    }
    case_queue_free(q);
}

static void test_packed(void **state) {
    (void) state;
    cases_compare_packed(3, check_cases(100));
}

static void test_chains(void **state) {
    (void) state;
    static const int32_t lengths[] = {10, 11, 40, 100};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        for (uint64_t budget = 3; budget <= (uint64_t) lengths[i] + 3; budget++) {
            chain_compare_equal(lengths[i], budget);
        }
    }
    struct check_rng rng = check_rng_new(check_seed(5));
    for (int32_t l = 3; l <= 24; l += 3) {
        chain_compare_costs(l, &rng);
    }
}

// Invalid schedules and graphs are refused with a message.
static void test_refused(void **state) {
    (void) state;
    const int32_t zero[] = {0}, one[] = {1};
    struct berth_budget_op ops[] = {{.flags = BERTH_BUDGET_INPUT, .size = 1}, {.srcs = zero, .n_srcs = 1, .size = 4, .cost = 1},
        {.srcs = one, .n_srcs = 1, .size = 4, .cost = 1}};
    struct berth_budget_result *r = NULL;
    const struct berth_budget_step good[] = {{1, BERTH_BUDGET_RUN}, {1, BERTH_BUDGET_RUN}, {2, BERTH_BUDGET_RUN}},
                                   early[] = {{2, BERTH_BUDGET_RUN}, {1, BERTH_BUDGET_RUN}},
                                   twice[] = {{1, BERTH_BUDGET_RUN}, {2, BERTH_BUDGET_RUN}, {2, BERTH_BUDGET_RUN}},
                                   out[] = {{1, BERTH_BUDGET_RUN}, {1, BERTH_BUDGET_SPILL}, {2, BERTH_BUDGET_RUN}};
    assert_int_equal(berth_budget_check(ops, 3, NULL, good, 3, &r), GGML_STATUS_SUCCESS);
    assert_true(r->fits && r->cost == 3 && r->n_recomputed == 1 && r->uses[0].peak == 8);
    berth_budget_free(r);
    assert_int_equal(berth_budget_check(ops, 3, NULL, early, 2, &r), GGML_STATUS_FAILED);
    assert_non_null(strstr(berth_last_error(), "reads a value that does not exist"));
    assert_int_equal(berth_budget_check(ops, 3, NULL, twice, 3, &r), GGML_STATUS_FAILED);
    assert_non_null(strstr(berth_last_error(), "recomputes an op that may run only once"));
    assert_int_equal(berth_budget_check(ops, 3, NULL, out, 3, &r), GGML_STATUS_FAILED);
    assert_non_null(strstr(berth_last_error(), "no pool to spill to"));
    assert_int_equal(berth_budget_check(ops, 3, NULL, good, 1, &r), GGML_STATUS_FAILED);
    assert_non_null(strstr(berth_last_error(), "has not run"));
    assert_int_equal(berth_budget_check(ops, 3, NULL, good, -1, &r), GGML_STATUS_FAILED);
    assert_non_null(strstr(berth_last_error(), "n_steps = -1"));
    assert_int_equal(berth_budget_solve(ops, -1, NULL, &r), GGML_STATUS_FAILED);
    assert_non_null(strstr(berth_last_error(), "n_ops = -1"));
    assert_int_equal(berth_budget_solve(ops, 3, &(struct berth_budget_params){.n_pools = -1}, &r), GGML_STATUS_FAILED);
    assert_non_null(strstr(berth_last_error(), "n_pools = -1"));
    ops[1].srcs = one;
    assert_int_equal(berth_budget_solve(ops, 3, NULL, &r), GGML_STATUS_FAILED);
    assert_null(r);
}

// The sum of the sizes of all ops, or of all steps of a schedule, overflows.
static void test_too_large(void **state) {
    (void) state;
    const int32_t zero[] = {0}, one[] = {1};
    struct berth_budget_op ops[] = {{.flags = BERTH_BUDGET_INPUT, .size = 1},
        {.srcs = zero, .n_srcs = 1, .size = (uint64_t) 1 << 61, .cost = 1}, {.srcs = one, .n_srcs = 1, .size = 4, .cost = 1}};
    struct berth_budget_params params = {0};
    struct berth_budget_result *r = NULL;
    struct berth_budget_step steps[6];
    for (int k = 0; k < 5; k++) {
        steps[k] = (struct berth_budget_step){1, BERTH_BUDGET_RUN};
    }
    steps[5] = (struct berth_budget_step){2, BERTH_BUDGET_RUN};
    for (int live_only = 0; live_only < 2; live_only++) {
        params.live_only = live_only != 0;
        assert_int_equal(berth_budget_check(ops, 3, &params, steps + 2, 4, &r), GGML_STATUS_SUCCESS);
        berth_budget_free(r);
        assert_int_equal(berth_budget_check(ops, 3, &params, steps, 6, &r), GGML_STATUS_FAILED);
        assert_non_null(strstr(berth_last_error(), "sum to more than 2^63 - 1"));
    }
    ops[2].size = ((uint64_t) 1 << 61) + 1;
    assert_int_equal(berth_budget_solve(ops, 3, &params, &r), GGML_STATUS_FAILED);
    assert_non_null(strstr(berth_last_error(), "limits: 2^60 and 2^62"));
    assert_null(r);
}

// Each allocation fails once: the solver returns a status, leaks nothing, and the next call works.
static void test_memory_fails(void **state) {
    (void) state;
    brute_seed = check_seed(4);
    struct budget_case c;
    for (int i = 0; i < check_cases(12); i++) {
        case_make(&c, BUDGET_MAX, false);
        c.pools[0].limit = case_total(&c) * (3 + (uint64_t) i % 3) / 8;
        for (int64_t n = 1;; n++) {
            const struct berth_budget_params params = {.pools = c.pools, .n_pools = 1, .max_nodes = i % 2 == 0 ? 0 : -1};
            struct berth_budget_result *r = NULL;
            berth_alloc_watch(true);
            berth_alloc_fail_at(n);
            const enum ggml_status status = berth_budget_solve(c.ops, c.n, &params, &r);
            const bool was_reached = berth_alloc_made() >= n || status != GGML_STATUS_SUCCESS;
            berth_alloc_fail_at(0);
            assert_int_equal(status == GGML_STATUS_SUCCESS, r != NULL);
            berth_budget_free(r);
            assert_int_equal(berth_alloc_alive(), 0);
            berth_alloc_watch(false);
            if (!was_reached) {
                break;
            }
        }
    }
}

int main(void) {
    check_quiet();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact),
        cmocka_unit_test(test_spill),
        cmocka_unit_test(test_packed),
        cmocka_unit_test(test_chains),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_too_large),
        cmocka_unit_test(test_memory_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
