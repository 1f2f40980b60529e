// SPDX-License-Identifier: MIT
// test_view_plan.c: reading all kinds of files as plans: accepted and refused files, buffers and their sum, a watched search, live
// values.

#include "model/workbench.h"
#include "support/check.h"
#include "view/plan.h"

#include <unistd.h>

static const struct model_options no_options;
static const struct view_budget no_budget;

static const char *file_write(const char *name, const char *text) {
    static char path[256];
    snprintf(path, sizeof path, "/tmp/test_view_plan_%d_%s", (int) getpid(), name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0 && fclose(file) == 0);
    return path;
}

static enum ggml_status text_read(const char *name, const char *text, const struct view_budget *budget, struct view_plan *plan) {
    const char *path = file_write(name, text);
    const enum ggml_status status = view_plan_read(path, &no_options, budget, plan);
    unlink(path);
    return status;
}

static const char two_pools[] = "id,lower,upper,size,pool\n"
                                "a,0,4,100,0\n"
                                "b,2,6,50,0\n"
                                "c,0,3,30,7\n"
                                "d,3,5,40,7\n";

static void test_buffers(void **state) {
    (void) state;
    struct view_plan plan;
    assert_int_equal(text_read("two.csv", two_pools, &no_budget, &plan), GGML_STATUS_SUCCESS);
    assert_int_equal(plan.n_buffers, 2);
    assert_int_equal(plan.buffers[0].pool, 0);
    assert_int_equal(plan.buffers[1].pool, 7);
    assert_int_equal(plan.buffers[1].items[0], 2);
    uint64_t offsets[4];
    struct berth_plan_report sum;
    bool is_stopped = true;
    assert_int_equal(view_plan_solve(&plan, &(struct berth_plan_params){0}, offsets, &sum, &is_stopped), GGML_STATUS_SUCCESS);
    assert_false(is_stopped);
    assert_int_equal(plan.buffers[0].report.peak, 150);
    assert_int_equal(plan.buffers[1].report.peak, 40);
    assert_int_equal(sum.peak, 190);
    assert_true(sum.proven);
    assert_ptr_equal(view_plan_largest(&plan), &plan.buffers[0]);
    view_plan_free(&plan);
    assert_null(view_plan_largest(&plan));
}

static void test_alive(void **state) {
    (void) state;
    struct view_plan plan;
    assert_int_equal(text_read("alive.csv", two_pools, &no_budget, &plan), GGML_STATUS_SUCCESS);
    uint64_t offsets[4], bytes;
    struct berth_plan_report sum;
    bool is_stopped;
    size_t n;
    assert_int_equal(view_plan_solve(&plan, &(struct berth_plan_params){0}, offsets, &sum, &is_stopped), GGML_STATUS_SUCCESS);
    struct view_alive *alive = view_alive_at_bound(&plan, &plan.buffers[0], &n, &bytes);
    assert_non_null(alive);
    assert_int_equal(n, 2);
    assert_int_equal(bytes, 150);
    assert_string_equal(alive[0].name, "a"); // the larger value first
    assert_string_equal(alive[1].name, "b");
    assert_string_equal(alive[0].op, "");
    free(alive);
    view_plan_free(&plan);
}

static void test_refused(void **state) {
    (void) state;
    struct view_plan plan;
    const struct model_options with_ctx = {.n_ctx = 64};
    const char *path = file_write("ctx.csv", two_pools);
    assert_int_equal(view_plan_read(path, &with_ctx, &no_budget, &plan), GGML_STATUS_FAILED);
    assert_non_null(strstr(berth_last_error(), "--ctx requires a model"));
    assert_null(plan.set);
    unlink(path);
    const struct view_budget budget = {.bytes = 1 << 20};
    assert_int_equal(view_plan_read("tests/data/tales-3m-q8_0.gguf", &no_options, &budget, &plan), GGML_STATUS_FAILED);
    assert_non_null(strstr(berth_last_error(), "--budget requires a captured graph"));
    assert_int_equal(view_plan_read("/nonexistent/x.csv", &no_options, &no_budget, &plan), GGML_STATUS_FAILED);
    assert_non_null(strstr(berth_last_error(), "/nonexistent/x.csv"));
    assert_int_equal(text_read("broken.ggraph", "ggraph 1\nnonsense\n", &no_budget, &plan), GGML_STATUS_FAILED);
    assert_null(plan.set);
}

// The last op of a chain reads an early value. To keep the memory limit, the search recomputes that value.
static void test_costs(void **state) {
    (void) state;
    static const char text[] = "id,lower,upper,size,cost,reads\n"
                               "x,0,7,10,,\n"
                               "a,1,7,100,5,x\n"
                               "b,2,4,100,5,a\n"
                               "c,3,5,100,5,b\n"
                               "d,4,6,100,5,c\n"
                               "e,5,7,10,5,d\n"
                               "f,6,7,10,5,e a\n";
    struct view_plan plan;
    const struct view_budget budget = {.bytes = 260};
    assert_int_equal(text_read("costs.csv", text, &budget, &plan), GGML_STATUS_SUCCESS);
    assert_non_null(plan.budgeted);
    assert_true(plan.budgeted->fits);
    assert_int_equal(plan.budgeted->n_recomputed, 1);
    assert_int_equal(plan.set->n_items, 8);
    view_plan_free(&plan);
    const struct view_budget less = {.bytes = 100};
    assert_int_equal(text_read("costs.csv", text, &less, &plan), GGML_STATUS_SUCCESS);
    assert_false(plan.budgeted->fits);
    assert_true(plan.budgeted->n_alive > 0);
    assert_true(plan.alive[0].size > 0);
    view_plan_free(&plan);
}

static void test_model(void **state) {
    (void) state;
    struct view_plan plan;
    assert_int_equal(view_plan_read("tests/data/tales-3m-q8_0.gguf", &no_options, &no_budget, &plan), GGML_STATUS_SUCCESS);
    assert_true(plan.n_ctx_train > 0);
    assert_true(plan.n_homes > 0);
    assert_true(plan.homes[0].weights > 0 && plan.homes[0].cache > 0 && plan.homes[0].compute > 0);
    assert_false(plan.set->has_offsets);
    view_plan_free(&plan);
}

static bool search_end(const struct view_progress *progress, void *user) {
    assert_true(progress->peak >= progress->bound && progress->limit_us == 60000000);
    ++*(int *) user;
    return false;
}

// A watch that returns false ends the search immediately, with a valid plan.
static void test_watched(void **state) {
    (void) state;
    struct check_rng rng = check_rng_new(7);
    char text[1 << 14];
    size_t size = (size_t) snprintf(text, sizeof text, "id,lower,upper,size\n");
    for (int i = 0; i < 300; i++) {
        const unsigned first = (unsigned) check_rng_below(&rng, 200);
        size += (size_t) snprintf(text + size, sizeof text - size, "t%d,%u,%u,%u\n", i, first,
            first + 1 + (unsigned) check_rng_below(&rng, 40), 1 + (unsigned) check_rng_below(&rng, 1000));
    }
    struct view_plan plan;
    assert_int_equal(text_read("hard.csv", text, &no_budget, &plan), GGML_STATUS_SUCCESS);
    uint64_t offsets[300];
    struct berth_plan_report sum;
    bool is_stopped = false;
    int n_seen = 0;
    plan.watch = search_end;
    plan.watch_user = &n_seen;
    const struct berth_plan_params params = {.time_limit_us = 60000000};
    assert_int_equal(view_plan_solve(&plan, &params, offsets, &sum, &is_stopped), GGML_STATUS_SUCCESS);
    assert_int_equal(is_stopped, n_seen > 0);
    assert_true(sum.proven || is_stopped);
    view_plan_free(&plan);
}

// Each allocation of the libraries fails in turn: the result is an error without a leak, or a plan.
static void test_faults(void **state) {
    (void) state;
    const char *path = file_write("fault.csv", two_pools);
    enum ggml_status status = GGML_STATUS_FAILED;
    for (int64_t n = 1; status != GGML_STATUS_SUCCESS; n++) {
        struct view_plan plan;
        assert_true(n < 1000);
        berth_alloc_fail_at(n);
        status = view_plan_read(path, &no_options, &no_budget, &plan);
        berth_alloc_fail_at(0);
        assert_int_equal(status == GGML_STATUS_SUCCESS, plan.set != NULL);
        view_plan_free(&plan);
    }
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_buffers), cmocka_unit_test(test_alive),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_costs), cmocka_unit_test(test_model),
        cmocka_unit_test(test_watched), cmocka_unit_test(test_faults)};
    check_quiet();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
