// SPDX-License-Identifier: MIT
// test_plan_search.c: parts of the planner's search, called directly: the check of a problem's plan, the exact search with a beam, the
// number of pairs, and the progress callback.

#include "plan/solve/exact.h"
#include "plan/solve/plan.h"
#include "support/check.h"
#include "support/plan_made.h"

// Blocks 0 and 1 are alive together in section 0, blocks 1 and 2 in section 1.
static struct plan_prob three_blocks(void) {
    // The element after the last one is not a block.
    static int32_t begin[] = {0, 0, 1, 0}, end[] = {1, 2, 2, 0};
    static int64_t size[] = {4, 2, 4, 0}, total[] = {6, 6, 0};
    return (struct plan_prob){.n = 3, .n_sec = 2, .begin = begin, .end = end, .size = size, .total = total, .bound = 6};
}

static void test_is_valid(void **state) {
    (void) state;
    struct plan_prob p = three_blocks();
    assert_true(berth_plan_is_valid(&p, (const int64_t[]){0, 4, 0}));
    assert_false(berth_plan_is_valid(&p, (const int64_t[]){0, 3, 0}));
    assert_false(berth_plan_is_valid(&p, (const int64_t[]){-1, 4, 0}));
    assert_true(berth_plan_is_valid(&p, (const int64_t[]){0, INT64_MAX - 2, 0}));
    assert_false(berth_plan_is_valid(&p, (const int64_t[]){0, INT64_MAX - 1, 0}));
    int64_t align[] = {1, 4, 1}, fixed[] = {-1, 8, -1};
    p.align = align;
    assert_true(berth_plan_is_valid(&p, (const int64_t[]){0, 8, 1}));
    assert_false(berth_plan_is_valid(&p, (const int64_t[]){0, 6, 1}));
    p.fixed = fixed;
    assert_true(berth_plan_is_valid(&p, (const int64_t[]){0, 8, 1}));
    assert_false(berth_plan_is_valid(&p, (const int64_t[]){0, 4, 0}));
    p.align = p.fixed = NULL;
    p.chunk = 5;
    assert_true(berth_plan_is_valid(&p, (const int64_t[]){0, 5, 1}));
    assert_false(berth_plan_is_valid(&p, (const int64_t[]){0, 4, 0})); // crosses two chunks
    fixed[0] = fixed[1] = 0;                                           // two members of one alias group
    p.chunk = 0;
    p.fixed = fixed;
    assert_true(berth_plan_is_valid(&p, (const int64_t[]){0, 0, 2}));
}

static void test_pairs(void **state) {
    (void) state;
    const struct plan_prob p = three_blocks();
    assert_int_equal(berth_exact_pairs(&p), 2);
}

// A beam of four states finds a plan at the bound of a hard problem. The number of nodes depends on which states it drops: those
// with the least free memory. After a change of the beam that is made on purpose, replace this number.
static void test_beam_keeps_the_best(void **state) {
    (void) state;
    struct plan_made m;
    plan_made_hard(&m, 14);
    int32_t ids[500];
    int64_t off[500], next, n_nodes = 0;
    struct plan_pool pool = {.items = m.items, .ids = ids, .n_ids = (int32_t) m.n};
    struct plan_traits traits;
    struct berth_scratch scratch;
    bool is_late;
    assert_in_range(m.n, 1, 500);
    for (int32_t i = 0; i < pool.n_ids; i++) {
        ids[i] = i;
    }
    berth_scratch_init(&scratch);
    assert_int_equal(berth_plan_items_check(m.items, m.n, 0, &traits), GGML_STATUS_SUCCESS);
    assert_int_equal(berth_plan_pool_init(&pool, &traits, &scratch), GGML_STATUS_SUCCESS);
    struct exact *x = berth_exact_new(&pool.prob);
    assert_non_null(x);
    const struct exact_ask ask = {.cap = pool.prob.bound,
        .preorder = PLAN_TAW,
        .valley = EXACT_LOWEST,
        .rules = EXACT_ALL,
        .width = 4,
        .max_nodes = 3000,
        .deadline_us = INT64_MAX};
    assert_int_equal(berth_exact_ask(x, &ask, off, &next, &n_nodes, &is_late), EXACT_FITS);
    assert_true(berth_plan_is_valid(&pool.prob, off));
    assert_int_equal(n_nodes, 1696);
    berth_exact_free(x);
    berth_plan_pool_fini(&pool);
    berth_scratch_fini(&scratch);
    made_free(&m);
}

// If one thread calls the callback, the other threads go on. They do not call it, and their searches do not end.
static bool never(uint64_t peak, uint64_t bound, void *user) {
    (void) peak;
    (void) bound;
    ++*(int *) user;
    return false;
}

static void test_watch_is_busy(void **state) {
    (void) state;
    int n_calls = 0;
    const struct plan_state s = {.peak = 6, .bound = 6};
    struct plan_watch watch = {.ask = never, .user = &n_calls, .state = &s, .unit = 1, .lock = ATOMIC_FLAG_INIT};
    atomic_init(&watch.least, INT64_MAX);
    assert_false(atomic_flag_test_and_set(&watch.lock));
    assert_false(berth_plan_watch_is_over(&watch, 1));
    assert_int_equal(n_calls, 0);
    atomic_flag_clear(&watch.lock);
    assert_true(berth_plan_watch_is_over(&watch, 1));
    assert_true(berth_plan_watch_is_over(&watch, 1));
    assert_int_equal(n_calls, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_is_valid),
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_beam_keeps_the_best),
        cmocka_unit_test(test_watch_is_busy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
