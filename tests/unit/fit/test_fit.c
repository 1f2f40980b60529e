// SPDX-License-Identifier: MIT
// test_fit.c: tests memory limits (fit/limits.c) and the search within them (fit/search.c, fit/further.c) on the shipped model:
// duplicate, unknown and exceeded limits; the largest context and batch; compromises (--allow) that make a given context fit; a
// search that is stopped; allocations that fail.

#include "support/check.h"

#include "base/base.h"
#include "fit/fit.h"

#include <string.h>

#define MODEL "tests/data/tales-3m-q8_0.gguf"
#define MIB ((uint64_t) 1 << 20)

static struct fit_question question_new(uint64_t bytes) {
    struct fit_question q = {.model = {.path = MODEL, .device = "CPU", .n_threads = 1}};
    struct model_error error = {""};
    assert_int_equal(fit_limits_add(&q.limits, "as given", 0, bytes, &error), GGML_STATUS_SUCCESS);
    return q;
}

static void test_limits(void **state) {
    (void) state;
    struct fit_question q = question_new(5 * MIB);
    struct model_error error = {""};
    struct workbench m;
    assert_int_equal(fit_limits_add(&q.limits, "6M", 0, 6 * MIB, &error), GGML_STATUS_FAILED);
    assert_string_equal(error.text, "--memory 'as given' and --memory '6M' limit the same device");
    error.text[0] = '\0';
    assert_int_equal(fit_limits_add(&q.limits, "CPU=7M", 3, 7 * MIB, &error), GGML_STATUS_SUCCESS);
    assert_int_equal(fit_limits_add(&q.limits, "CPU=8M", 3, 8 * MIB, &error), GGML_STATUS_FAILED);
    error.text[0] = '\0';
    assert_int_equal(fit_limits_add(&q.limits, "CPU1=7M", 4, 7 * MIB, &error), GGML_STATUS_SUCCESS);
    assert_false(fit_open(&q, &m, &error));
    assert_non_null(strstr(error.text, "the model does not use a device 'CPU1'"));
    error.text[0] = '\0';
    q.limits.n--;
    assert_true(fit_open(&q, &m, &error));
    assert_int_equal(q.limits.n, 2); // no limit is added, because the CPU is not a GPU
    assert_int_equal(fit_limits_get(&q.limits, 0)->bytes, 7 * MIB);
    assert_int_equal(fit_limits_get(&q.limits, FIT_ALL)->bytes, 5 * MIB);
    assert_null(fit_limits_get(&q.limits, 1));

    q.model.n_ctx = 64;
    q.model.plan_only = true;
    assert_true(workbench_session_open(&m, &q.model, &error));
    const uint64_t taken = fit_bytes(&m, FIT_ALL);
    assert_int_equal(fit_bytes(&m, 0), taken);
    q.limits.items[0].bytes = q.limits.items[1].bytes = taken;
    assert_int_equal(fit_limits_exceeded(&q.limits, &m), FIT_NONE);
    q.limits.items[1].bytes = taken - 1;
    assert_int_equal(fit_limits_exceeded(&q.limits, &m), 0);
    q.limits.items[0].bytes = taken - 1;
    assert_int_equal(fit_limits_exceeded(&q.limits, &m), FIT_ALL);
    workbench_close(&m);
    berth_free(q.limits.items);
}

static void test_allow(void **state) {
    (void) state;
    struct model_error error = {""};
    unsigned allow = 0;
    assert_true(fit_allow_parse("batch,recompute", &allow, &error));
    assert_int_equal(allow, FIT_BATCH | FIT_RECOMPUTE);
    assert_true(fit_allow_parse("spill,", &allow, &error));
    assert_int_equal(allow, FIT_BATCH | FIT_RECOMPUTE | FIT_SPILL);
    assert_false(fit_allow_parse("batch,cache", &allow, &error));
    assert_string_equal(error.text, "--allow: unknown value 'cache'; use cache-type, batch, spill, recompute");
    error.text[0] = '\0';
    assert_false(fit_allow_parse("", &allow, &error));
}

// Solves the question and checks that an answer that fits stays within the limits.
static struct fit_answer answer_find(struct fit_question *q) {
    struct model_error error = {""};
    struct fit_answer a;
    struct workbench m;
    if (!fit_open(q, &m, &error) || !fit_solve(q, &m, &a, &error)) {
        fail_msg("%s", error.text);
    }
    assert_int_equal(a.fits, fit_limits_exceeded(&q->limits, &m) == FIT_NONE);
    assert_int_equal(m.session->params.n_ctx, a.n_ctx);
    assert_int_equal(m.session->params.n_batch, a.n_batch);
    workbench_close(&m);
    return a;
}

static void test_largest(void **state) {
    (void) state;
    struct fit_question q = question_new(5 * MIB);
    const struct fit_answer a = answer_find(&q);
    assert_true(a.fits && a.ctx_limit == FIT_MEMORY && a.ctx_full == FIT_ALL);
    q.model.n_ctx = a.n_ctx; // one more position does not fit; a batch of the whole context grows with it
    q.model.n_batch = a.n_batch;
    assert_true(answer_find(&q).fits);
    q.model.n_ctx++;
    q.model.n_batch += a.batch_limit == FIT_CONTEXT;
    assert_false(answer_find(&q).fits);
    berth_free(q.limits.items);

    q = question_new(100 * MIB);
    q.max_ctx = 128;
    const struct fit_answer most = answer_find(&q);
    assert_true(most.fits && most.n_ctx == 128 && most.ctx_limit == FIT_MAX_CTX);
    assert_true(most.n_batch == 128 && most.batch_limit == FIT_CONTEXT);
    berth_free(q.limits.items);

    q = question_new(MIB); // less than the size of the weights
    const struct fit_answer none = answer_find(&q);
    assert_true(!none.fits && none.full == FIT_ALL);
    berth_free(q.limits.items);
}

// The context is kept: the batch is reduced first, then the type of the cache is changed.
static void test_allowed(void **state) {
    (void) state;
    struct fit_question q = question_new(100 * MIB);
    struct model_options o = {0};
    q.allow = FIT_BATCH | FIT_CACHE_TYPE;
    q.model.n_ctx = 256;
    struct fit_answer a = answer_find(&q);
    assert_true(a.fits && a.n_ctx == 256 && a.n_batch == a.batch_wanted && a.cache == GGML_TYPE_F16);
    q.limits.items[0].bytes = 5 * MIB;
    a = answer_find(&q);
    assert_true(a.fits && a.n_ctx == 256 && a.n_batch < a.batch_wanted && a.cache == GGML_TYPE_F16);
    assert_int_equal(a.batch_limit, FIT_MEMORY);
    q.limits.items[0].bytes = 5 * MIB - 400 * 1024;
    a = answer_find(&q);
    assert_true(a.fits && a.n_ctx == 256 && a.cache == GGML_TYPE_Q8_0);
    char text[256];
    assert_true(fit_answer_describe(&q, &a, text));
    assert_non_null(strstr(text, "a cache of q8_0 instead of f16"));
    assert_true(text[0] == 'a');
    a.cache = GGML_TYPE_F16;
    a.n_batch = a.batch_wanted;
    assert_false(fit_answer_describe(&q, &a, text));
    a = (struct fit_answer){.n_ctx = INT64_MIN,
        .ctx_wanted = INT64_MAX,
        .n_batch = INT64_MIN,
        .batch_wanted = INT64_MAX,
        .cache = GGML_TYPE_IQ3_XXS,
        .n_host = INT64_MAX,
        .compute = 1};
    assert_true(fit_answer_describe(&q, &a, text));
    assert_true(strlen(text) < sizeof text);
    a = answer_find(&q);
    fit_apply(&q, &a, &o);
    assert_true(o.n_ctx == 256 && o.n_batch == a.n_batch && o.has_cache_type && o.cache_v == GGML_TYPE_Q8_0);
    berth_free(q.limits.items);
}

// The search also reports the larger context that more memory allows. Afterwards the limits have their old values.
static void test_further(void **state) {
    (void) state;
    berth_alloc_watch(true);
    struct fit_question q = question_new(5 * MIB);
    struct model_error error = {""};
    struct fit_found found;
    struct workbench m;
    assert_true(fit_open(&q, &m, &error));
    assert_true(fit_find(&q, &m, &found, &error));
    assert_true(found.answer.fits && found.per_second > 0 && found.tried > 0);
    assert_true(found.n_next >= 1 && found.next[0].device == FIT_ALL);
    assert_int_equal(found.next[0].bytes, 5 * MIB + ((uint64_t) 1 << 30));
    assert_true(found.next[0].answer.n_ctx > found.answer.n_ctx);
    assert_int_equal(q.limits.items[0].bytes, 5 * MIB);
    workbench_close(&m);
    berth_free(q.limits.items);
    assert_int_equal(berth_alloc_alive(), 0);
}

// Two settings lower the memory of a plan: a smaller batch, and another cache type unless the user has given one.
static void test_suggestions(void **state) {
    (void) state;
    berth_alloc_watch(true);
    struct model_options o = {.device = "CPU", .n_threads = 1, .n_ctx = 256, .n_batch = 64};
    struct model_error error = {""};
    struct fit_way ways[FIT_MAX_WAYS];
    struct fit_peak peak;
    if (!fit_peak_init(&peak, MODEL, &o, &error)) {
        fail_msg("%s", error.text);
    }
    assert_true(peak.report.peak > 0 && peak.report.peak >= peak.report.bound);
    assert_int_equal(fit_ways_find(MODEL, &o, &peak.plan, ways), 2);
    assert_string_equal(ways[0].option, "-b 32");
    assert_string_equal(ways[1].option, "--cache-type q8_0");
    assert_true(ways[0].less > 0 && ways[1].less > 0 && ways[0].error[0] == '\0');
    o.has_cache_type = true;
    o.cache_k = o.cache_v = GGML_TYPE_F16;
    assert_int_equal(fit_ways_find(MODEL, &o, &peak.plan, ways), 1);
    fit_peak_fini(&peak);
    assert_false(fit_peak_init(&peak, "/nowhere.gguf", &o, &error));
    assert_true(error.text[0] != '\0');
    assert_int_equal(berth_alloc_alive(), 0);
}

static int n_reports;

static void count_reports(const char *what, uint64_t done, uint64_t all, const char *text, void *user) {
    (void) user;
    assert_true(done < all && *what != '\0' && *text != '\0');
    n_reports++;
}

static bool is_stopped(void *user) {
    (void) user;
    return n_reports == 2;
}

static void test_watch(void **state) {
    (void) state;
    struct fit_question q = question_new(5 * MIB);
    struct model_error error = {""};
    struct fit_answer a;
    struct workbench m;
    q.watch = (struct work_watch){.progress = count_reports, .is_stopped = is_stopped};
    assert_true(fit_open(&q, &m, &error));
    assert_false(fit_solve(&q, &m, &a, &error));
    assert_string_equal(error.text, "interrupted while searching for a setting that fits");
    assert_int_equal(n_reports, 2);
    workbench_close(&m);
    berth_free(q.limits.items);
}

static bool all_run(int64_t at) {
    struct fit_question q = {.model = {.path = MODEL, .device = "CPU", .n_threads = 1, .n_ctx = 64}};
    struct model_error error = {""};
    struct fit_answer a;
    struct workbench m;
    berth_alloc_watch(true);
    berth_alloc_fail_at(at);
    bool ok = fit_limits_add(&q.limits, "5M", 0, 5 * MIB, &error) == GGML_STATUS_SUCCESS && fit_open(&q, &m, &error);
    if (ok) {
        ok = fit_solve(&q, &m, &a, &error);
        workbench_close(&m);
    }
    berth_free(q.limits.items);
    assert_int_equal(ok, error.text[0] == '\0');
    return ok;
}

static void test_no_memory(void **state) {
    (void) state;
    assert_true(all_run(0));
    const int64_t n = berth_alloc_made();
    int n_failed = 0;
    for (int64_t at = 1; at <= n; at += 1 + at / 40) {
        n_failed += !all_run(at);
        berth_alloc_fail_at(0);
        assert_int_equal(berth_alloc_alive(), 0);
    }
    print_message("%d of %lld allocations failed with an error\n", n_failed, (long long) n);
    assert_true(n > 20 && n_failed > 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_allow),
        cmocka_unit_test(test_largest),
        cmocka_unit_test(test_allowed),
        cmocka_unit_test(test_further),
        cmocka_unit_test(test_suggestions),
        cmocka_unit_test(test_watch),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
