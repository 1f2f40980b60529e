// SPDX-License-Identifier: MIT
// test_plan_search.c: parts of the planner's search, called directly: the check of a problem's plan, the exact search with a beam, the
// number of pairs, plans of a core, fills, and the progress callback.

#include "plan/solve/exact.h"
#include "plan/solve/fill.h"
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

// A generated problem of one pool.
struct rig {
    struct plan_made m;
    int32_t *ids;
    int64_t *off; // [n]
    struct plan_pool pool;
    struct plan_traits traits;
    struct berth_scratch scratch;
};

// Takes over r->m.
static void rig_init(struct rig *r) {
    const size_t n = (size_t) r->m.n & 0xFFFFFF;
    r->ids = calloc(n, sizeof *r->ids);
    r->off = calloc(n, sizeof *r->off);
    assert_true(r->ids != NULL && r->off != NULL);
    r->pool = (struct plan_pool){.items = r->m.items, .ids = r->ids, .n_ids = (int32_t) r->m.n};
    for (int32_t i = 0; i < r->pool.n_ids; i++) {
        r->ids[i] = i;
    }
    berth_scratch_init(&r->scratch);
    assert_int_equal(berth_plan_items_check(r->m.items, r->m.n, 0, &r->traits), GGML_STATUS_SUCCESS);
    assert_int_equal(berth_plan_pool_init(&r->pool, &r->traits, &r->scratch), GGML_STATUS_SUCCESS);
}

static void rig_fini(struct rig *r) {
    berth_plan_pool_fini(&r->pool);
    berth_scratch_fini(&r->scratch);
    made_free(&r->m);
    free(r->ids);
    free(r->off);
}

// A beam of four states finds a plan at the bound of a hard problem. The number of nodes depends on which states it drops: those
// with the least free memory. After a change of the beam that is made on purpose, replace this number.
static void test_beam_keeps_the_best(void **state) {
    (void) state;
    struct rig r;
    plan_made_hard(&r.m, 14);
    rig_init(&r);
    int64_t next, n_nodes = 0;
    bool is_late;
    struct exact *x = berth_exact_new(&r.pool.prob);
    assert_non_null(x);
    const struct exact_ask ask = {.cap = r.pool.prob.bound,
        .preorder = PLAN_TAW,
        .valley = EXACT_LOWEST,
        .rules = EXACT_ALL,
        .width = 4,
        .max_nodes = 3000,
        .deadline_us = INT64_MAX};
    assert_int_equal(berth_exact_ask(x, &ask, r.off, &next, &n_nodes, &is_late), EXACT_FITS);
    assert_true(berth_plan_is_valid(&r.pool.prob, r.off));
    assert_int_equal(n_nodes, 1696);
    berth_exact_free(x);
    rig_fini(&r);
}

// A random problem whose core is less than half of its blocks.
static const struct plan_prob *rig_init_flat(struct rig *r) {
    plan_made_random(&r->m, 3000, false, 1);
    rig_init(r);
    return &r->pool.prob;
}

// The blocks of the core have a plan without the other blocks.
static void check_core(const struct rig *r, int64_t least, int32_t n_core) {
    const struct plan_prob *p = &r->pool.prob;
    const size_t n = (size_t) p->n & 0xFFFFFF;
    int64_t *most = calloc(n, sizeof *most), *core_off = calloc(n, sizeof *core_off);
    int32_t *core = calloc(n, sizeof *core), n_found = 0;
    assert_true(most != NULL && core_off != NULL && core != NULL && berth_plan_life_max(p, most));
    for (int32_t i = 0; i < p->n; i++) {
        assert_int_equal(r->off[i] >= 0, most[i] >= least);
        if (most[i] >= least) {
            core_off[n_found] = r->off[i];
            core[n_found++] = i;
        }
    }
    assert_int_equal(n_found, n_core);
    struct plan_prob sub;
    assert_true(berth_plan_prob_subset(p, core, n_found, &sub));
    assert_true(berth_plan_is_valid(&sub, core_off));
    berth_plan_prob_fini(&sub);
    free(most);
    free(core_off);
    free(core);
}

static void test_core(void **state) {
    (void) state;
    struct rig r;
    const struct plan_prob *p = rig_init_flat(&r);
    struct plan_work work = {0};
    const struct plan_goal goal = {.deadline_us = 1000000, .work = &work, .n_threads = 1};
    assert_int_equal(berth_plan_core(p, 0, 0, &goal, r.off), 0); // all blocks
    for (int64_t until_us = 0; until_us <= 20000; until_us += 20000) {
        work.ns = 0;
        const int32_t n_core = berth_plan_core(p, 0.97, until_us, &goal, r.off);
        assert_in_range(n_core, 1, p->n / 2);
        check_core(&r, (int64_t) ((double) p->bound * 0.97), n_core);
    }
    // If an allocation fails, there is no plan of the core. After enough successful ones there is.
    int32_t n_core = 0;
    for (int64_t k = 1; n_core == 0; k++) {
        work.ns = 0;
        berth_alloc_fail_at(k);
        n_core = berth_plan_core(p, 0.97, 0, &goal, r.off);
        berth_alloc_fail_at(0);
        assert_in_range(k, 1, 1000);
    }
    rig_fini(&r);
}

// A fill that begins with a core places the other blocks around it. A block of the core that ends above the cap is placed anew.
static void test_fill_around_core(void **state) {
    (void) state;
    struct rig r;
    const struct plan_prob *p = rig_init_flat(&r);
    struct plan_work work = {0};
    const struct plan_goal goal = {.deadline_us = INT64_MAX / 2, .work = &work, .n_threads = 1};
    struct plan_overlap overlap;
    assert_true(berth_overlap_init(&overlap, p));
    struct eject *eject = berth_eject_new(p, &overlap, 1);
    struct fill *fill = berth_fill_new(p, eject, 1);
    int64_t *plan = calloc((size_t) p->n & 0xFFFFFF, sizeof *plan);
    assert_true(eject != NULL && fill != NULL && plan != NULL);
    assert_in_range(berth_plan_core(p, 0.97, 0, &goal, r.off), 1, p->n / 2);
    const int64_t cap = p->bound / 4 * 5;
    int32_t moved = -1;
    for (int32_t i = 0; i < p->n && moved < 0; i++) {
        if (r.off[i] >= 0) {
            moved = i;
        }
    }
    r.off[moved] += 2 * cap;
    berth_fill_begin_new(fill, r.off, cap);
    assert_int_equal(berth_fill_run(fill, &goal), FILL_DONE);
    berth_eject_store(eject, plan);
    assert_true(berth_plan_is_valid(p, plan));
    assert_true(berth_plan_peak(p, plan) <= cap);
    for (int32_t i = 0; i < p->n; i++) {
        assert_true(i == moved || r.off[i] < 0 || plan[i] == r.off[i]);
    }
    free(plan);
    berth_fill_free(fill);
    berth_eject_free(eject);
    berth_overlap_fini(&overlap);
    rig_fini(&r);
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
        cmocka_unit_test(test_core),
        cmocka_unit_test(test_fill_around_core),
        cmocka_unit_test(test_watch_is_busy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
