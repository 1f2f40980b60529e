// SPDX-License-Identifier: MIT
// test_engine_memory.c: after engine_new, requests run with every allocation failing, Berth's and libc's. If an allocation of
// engine_new fails, it returns an error. engine_plan predicts the memory.

#include "support/engine_sample.h"
#include "support/libc_fail.h"

// Texts, embeddings, log probabilities, penalties and biases, of more requests than run at once, some of them cancelled. The cache is
// too small for all, so that requests wait, pages move and kept pages are dropped.
static void test_no_allocation(void **state) {
    (void) state;
    enum { N = CHECK_PART > 1 ? 20 : 48 };
    static struct answer answers[N];
    const struct sample_bias bias = {.token = 5, .bias = -2};
    const char *const stops[] = {" the harbour"};
    struct engine *e = engine_open(16, 1024, false);
    for (size_t i = 0; i < N; i++) {
        struct engine_request *r = &answers[i].r;
        answers[i] = answer_of(i, 20 + (int64_t) (i * 31 % 100), i % 2 == 0 ? 0 : 0.9f);
        r->n_logprobs = i % 4 == 0 ? 2 : -1;
        r->sampling.repeat = 1.1f;
        r->is_embedding = i % 8 == 7;
        r->sampling.biases = &bias;
        r->sampling.n_biases = i % 3 == 0;
        r->stops = stops;
        r->n_stops = i % 5 == 0;
    }
    berth_alloc_watch(true);
    atomic_store(&must_fail, true);
    for (size_t i = 0; i < N; i++) {
        answer_submit(e, &answers[i]);
    }
    for (size_t i = 0; i < N; i++) {
        if (i % 11 == 10) {
            engine_cancel(answers[i].ticket);
        }
        answer_finish(&answers[i]);
    }
    atomic_store(&must_fail, false);
    assert_int_equal(atomic_load(&n_asked), 0);
    assert_int_equal(berth_alloc_made(), 0);
    berth_alloc_watch(false);
    for (size_t i = 0; i < N; i++) {
        assert_int_not_equal(answers[i].last.end, ENGINE_ERROR);
        answer_fini(&answers[i]);
    }
    engine_free(e);
}

static void test_memory(void **state) {
    (void) state;
    struct engine *e = NULL;
    struct engine_stats plan, stats;
    struct model_error error = {""};
    const struct engine_params params = params_of(2, 512, false);
    for (int64_t n = 1; e == NULL; n += 1 + n / 16) {
        error.text[0] = '\0';
        assert_true(n < 100000);
        berth_alloc_watch(true);
        berth_alloc_fail_at(n);
        e = engine_new(&params, &error);
        berth_alloc_fail_at(0);
        assert_true(e != NULL || error.text[0] != '\0');
    }
    engine_stats(e, &stats);
    engine_free(e);
    berth_alloc_watch(false);
    assert_true(engine_plan(&params, &plan, &error));
    assert_true(plan.n_pool == 512 && plan.weights == stats.weights && plan.cache == stats.cache && plan.own == stats.own);
    assert_true(plan.compute == stats.compute && plan.work == stats.work);
}

int main(void) {
    check_quiet();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_allocation), cmocka_unit_test(test_memory)};
    return cmocka_run_group_tests_name("engine_memory", tests, bench_open, bench_close);
}
