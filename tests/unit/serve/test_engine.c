// SPDX-License-Identifier: MIT
// test_engine.c: tests the engine with the model that comes with Berth: texts compared with a session of its own, joining and leaving,
// prefixes, cancelling, a full queue, requests that never fit, stop texts, grammars, log probabilities, embeddings, and shutdown.

#include "support/engine_sample.h"

#include <stdatomic.h>

// ---- texts ----

static void alone_run(bool is_deterministic) {
    struct engine *e = engine_open(1, N_CTX, is_deterministic);
    for (size_t i = 0; i < 4; i++) {
        struct answer a = answer_of(i, 60, i % 2 == 0 ? 0 : 0.8f);
        a.r.sampling.repeat = i < 2 ? 1 : 1.1f;
        answer_submit(e, &a);
        answer_finish(&a);
        assert_true(a.last.end == ENGINE_LENGTH || a.last.end == ENGINE_STOP);
        assert_true(answer_is_same(&a, is_deterministic));
        answer_fini(&a);
    }
    engine_free(e);
}

static void test_alone(void **state) {
    (void) state;
    alone_run(false);
    alone_run(true);
}

// Requests join and leave while others run. The cache is small, so requests wait and pages move. Without batch invariance, sums are
// rounded differently in batches of other sizes. Then a text changes where two tokens are equally likely.
static void together_run(bool is_deterministic) {
    enum { N = CHECK_PART > 1 ? 18 : 40 };
    static struct answer answers[N];
    struct engine *e = engine_open(17, 1280, is_deterministic);
    struct engine_stats stats;
    for (size_t i = 0; i < N; i++) {
        answers[i] = answer_of(i, 20 + (int64_t) (i * 37 % 120) / CHECK_PART, i % 3 == 0 ? 0 : 0.9f);
        answer_submit(e, &answers[i]);
        if (i % 5 == 4) {
            usleep(3000);
        }
    }
    for (size_t i = 0; i < N; i++) {
        answer_finish(&answers[i]);
        assert_true(answers[i].last.end == ENGINE_LENGTH || answers[i].last.end == ENGINE_STOP);
    }
    engine_stats(e, &stats);
    assert_int_equal(stats.n_done, N);
    assert_int_equal(stats.n_requests, N);
    assert_true(stats.n_cached_tokens > 0 || CHECK_PART > 1);
    engine_free(e);
    int n_same = 0;
    for (size_t i = 0; i < N; i++) {
        n_same += answer_is_same(&answers[i], is_deterministic);
        answer_fini(&answers[i]);
    }
    print_message("%d of %d texts are the same\n", n_same, N);
    assert_true(n_same >= (is_deterministic ? N : N / 2));
}

static void test_together(void **state) {
    (void) state;
    together_run(true);
    together_run(false);
}

// ---- pages ----

static void test_cancel(void **state) {
    (void) state;
    struct engine *e = engine_open(2, 512, false);
    struct answer a = answer_of(0, 200, 0.8f), b = answer_of(1, 200, 0.8f), c = answer_of(2, 8, 0);
    answer_submit(e, &a);
    answer_submit(e, &b);
    answer_submit(e, &c); // waits: two requests run
    while (a.n_text == 0) {
        answer_read(&a, 100000);
    }
    struct engine_piece piece;
    engine_read(c.ticket, 0, &piece);
    struct engine_stats stats;
    engine_stats(e, &stats);
    assert_true(stats.n_used > 0 && stats.n_promised_peak >= stats.n_used);
    engine_cancel(a.ticket);
    answer_finish(&a);
    assert_int_equal(a.last.end, ENGINE_CANCELLED);
    answer_finish(&c);
    assert_true(c.last.end == ENGINE_LENGTH || c.last.end == ENGINE_STOP);
    engine_release(b.ticket); // a client that goes away
    stats = stats_when_idle(e);
    assert_int_equal(stats.n_used, 0);
    assert_int_equal(stats.n_promised_peak, 0);
    assert_int_equal(stats.n_cancelled, 2);
    assert_int_equal(stats.n_done, 1);
    answer_fini(&a);
    answer_fini(&b);
    answer_fini(&c);
    engine_free(e);
}

static void test_prefix(void **state) {
    (void) state;
    struct engine *e = engine_open(4, 1024, true);
    struct answer a = answer_of(7, 100, 0), b = answer_of(7, 100, 0);
    assert_true(a.r.n_tokens > 0);
    // A long prompt: the text of the first answer.
    answer_submit(e, &a);
    answer_finish(&a);
    struct model_error error = {""};
    b.tokens.n = 0;
    assert_true(vocab_encode(bench.vocab, prompts[7], strlen(prompts[7]), ENCODE_ADD, &b.tokens, &error));
    assert_true(vocab_encode(bench.vocab, a.text, a.n_text, ENCODE_PLAIN, &b.tokens, &error));
    b.r.tokens = b.tokens.ids;
    b.r.n_tokens = (int64_t) b.tokens.n;
    b.r.n_max = 20;
    answer_submit(e, &b);
    answer_finish(&b);
    const int64_t n_first = b.last.n_cached;
    assert_true(answer_is_same(&b, true));
    b.n_text = 0;
    answer_submit(e, &b);
    answer_finish(&b);
    assert_int_equal(b.last.n_cached, (b.r.n_tokens - 1) / 16 * 16); // all complete pages before the last token
    assert_true(n_first <= b.last.n_cached);
    assert_true(answer_is_same(&b, true));
    engine_free(e);
    // Requests with the same prompt that arrive together: it is computed once.
    struct answer same[4];
    e = engine_open(4, 1024, true);
    for (int i = 0; i < 4; i++) {
        same[i] = b;
        same[i].n_text = 0;
        same[i].r.sampling.seed = 1 + (uint64_t) i;
        same[i].r.sampling.temperature = 0.8f;
        answer_submit(e, &same[i]);
    }
    for (int i = 0; i < 4; i++) {
        answer_finish(&same[i]);
        assert_int_equal(same[i].last.n_cached, i == 0 ? 0 : (b.r.n_tokens - 1) / 16 * 16);
    }
    engine_free(e);
    for (int i = 0; i < 4; i++) {
        assert_true(answer_is_same(&same[i], true));
    }
    answer_fini(&a);
    answer_fini(&b);
}

// ---- refusals ----

static void test_refused(void **state) {
    (void) state;
    struct model_error error = {""};
    struct engine_params params = params_of(1, 128, false);
    params.n_waiting = 2;
    params.n_ctx = 128;
    struct engine *e = engine_new(&params, &error);
    assert_non_null(e);
    struct answer a = answer_of(0, 100, 0.8f);
    struct engine_ticket *tickets[4] = {NULL}, *none;
    int retry_s = 0;
    for (int i = 0; i < 4; i++) { // one runs, two wait; the first may not have started yet
        const enum engine_status status = engine_submit(e, &a.r, &tickets[i], &retry_s, &error);
        assert_true(status == ENGINE_OK || (i >= 2 && status == ENGINE_FULL));
    }
    error.text[0] = '\0';
    assert_int_equal(engine_submit(e, &a.r, &none, &retry_s, &error), ENGINE_FULL);
    assert_null(none);
    assert_true(retry_s >= 1 && strstr(error.text, "2 of 2 requests wait") != NULL);
    a.r.n_max = 1000;
    error.text[0] = '\0';
    assert_int_equal(engine_submit(e, &a.r, &none, &retry_s, &error), ENGINE_NEVER);
    char want[32];
    snprintf(want, sizeof want, "%d", (int) a.r.n_tokens + 1000);
    assert_non_null(strstr(error.text, want));
    assert_non_null(strstr(error.text, "128"));
    const int32_t wrong = (int32_t) bench.model->params.n_vocab;
    struct engine_request r = {.tokens = &wrong, .n_tokens = 1, .n_max = 1};
    error.text[0] = '\0';
    assert_int_equal(engine_submit(e, &r, &none, NULL, &error), ENGINE_FAILED);
    assert_non_null(strstr(error.text, "outside the vocabulary"));
    r.n_tokens = 0;
    error.text[0] = '\0';
    assert_int_equal(engine_submit(e, &r, &none, NULL, &error), ENGINE_FAILED);
    for (int i = 0; i < 4; i++) {
        engine_release(tickets[i]);
    }
    stats_when_idle(e);
    a.r.n_max = 20;
    answer_submit(e, &a); // the queue has places again
    answer_finish(&a);
    answer_fini(&a);
    engine_free(e);
}

static void test_timeout(void **state) {
    (void) state;
    struct model_error error = {""};
    struct engine_params params = params_of(1, N_CTX, false);
    params.wait_us = 1;
    struct engine *e = engine_new(&params, &error);
    struct answer a = answer_of(0, 200, 0.8f), b = answer_of(1, 200, 0.8f);
    answer_submit(e, &a);
    while (!answer_read(&a, 1000000) && a.n_text == 0) {
    }
    if (a.last.end == ENGINE_RUNNING) {
        answer_submit(e, &b);
        answer_finish(&b);
        assert_int_equal(b.last.end, ENGINE_TIMEOUT);
        struct engine_stats stats;
        engine_stats(e, &stats);
        assert_true(stats.n_refused == 1 && stats.n_failed == 0);
    }
    answer_finish(&a);
    answer_fini(&a);
    answer_fini(&b);
    engine_free(e);
}

// ---- options of a request ----

static void test_options(void **state) {
    (void) state;
    struct engine *e = engine_open(4, 1024, true);
    struct answer a = answer_of(0, 80, 0);
    answer_submit(e, &a);
    answer_finish(&a);
    // A stop text from the middle of the answer.
    char stop[6] = "";
    memcpy(stop, a.text + a.n_text / 2, 5);
    const char *const stops[] = {"no such text", stop};
    struct answer b = answer_of(0, 80, 0);
    b.r.stops = stops;
    b.r.n_stops = 2;
    answer_submit(e, &b);
    answer_finish(&b);
    assert_int_equal(b.last.end, ENGINE_STOP);
    assert_true(b.n_text < a.n_text && memcmp(a.text, b.text, b.n_text) == 0 && strstr(b.text, stop) == NULL);
    assert_true(answer_is_same(&b, true));
    // A grammar.
    static const char gbnf[] = "root ::= \"a\" [b-d]{3} \"\\n\"";
    struct model_error error = {""};
    const struct guide_source source = {.text = gbnf, .size = strlen(gbnf), .name = "made"};
    struct answer c = answer_of(1, 80, 0.8f);
    assert_true(text_guide_open(&c.r.guide, &source, bench.vocab, &error));
    c.r.n_logprobs = 3;
    answer_submit(e, &c);
    answer_finish(&c);
    assert_true(c.n_text == 5 && c.text[0] == 'a' && c.text[4] == '\n');
    assert_int_equal(c.n_logprobs, c.last.n_made);
    // Log probabilities: the most probable token is the chosen one.
    struct answer d = answer_of(2, 30, 0);
    d.r.n_logprobs = 2;
    answer_submit(e, &d);
    for (bool is_over = false; !is_over;) {
        is_over = answer_read(&d, 1000000);
        for (int i = 0; i < d.last.n_logprobs; i++) {
            const struct engine_logprob *l = &d.last.logprobs[i];
            assert_true(l->n_top == 2 && l->top[0].token == l->token && l->top[0].log == l->log && l->log <= 0);
            assert_true(l->top[1].log <= l->top[0].log);
        }
    }
    assert_int_equal(d.n_logprobs, d.last.n_made);
    engine_release(d.ticket);
    answer_fini(&a);
    answer_fini(&b);
    answer_fini(&c);
    answer_fini(&d);
    engine_free(e);
}

static void test_embedding(void **state) {
    (void) state;
    struct model_error error = {""};
    struct engine *e = engine_open(4, 1024, true);
    struct answer other = answer_of(0, 60, 0.8f), a = answer_of(7, 0, 0);
    a.r.is_embedding = true;
    answer_submit(e, &other);
    answer_submit(e, &a);
    while (!answer_read(&a, 1000000)) {
    }
    assert_int_equal(a.last.end, ENGINE_STOP);
    const struct session_params params = {
        .n_ctx = N_CTX, .cache_k = GGML_TYPE_F16, .cache_v = GGML_TYPE_F16, .is_embedding = true};
    struct session *s = session_new(bench.model, &bench.devices, &params, &error);
    answer_finish(&other); // the engine does not use the devices any more
    assert_true(s != NULL && session_reserve(s, &error) && session_decode(s, a.r.tokens, a.r.n_tokens, &error));
    for (int64_t i = 0; i < bench.model->params.n_embd; i++) {
        assert_true(a.last.embedding[i] == s->sums[i] / (float) a.r.n_tokens);
    }
    session_free(s);
    engine_release(a.ticket);
    answer_fini(&a);
    answer_fini(&other);
    engine_free(e);
}

// ---- the end ----

static void count_wake(void *user) {
    atomic_int *n = user;
    (*n)++;
}

static void test_close(void **state) {
    (void) state;
    struct model_error error = {""};
    static atomic_int n_wakes;
    struct engine *e = engine_open(1, N_CTX, false);
    struct answer a = answer_of(0, 30, 0.8f), b = answer_of(1, 30, 0.8f);
    a.r.wake = count_wake;
    a.r.user = &n_wakes;
    answer_submit(e, &a);
    while (answer_read(&a, 100000), a.last.is_waiting) {
    }
    answer_submit(e, &b);
    engine_close(e, 60000000);
    assert_int_equal(engine_submit(e, &a.r, &(struct engine_ticket *){NULL}, NULL, &error), ENGINE_CLOSED);
    answer_finish(&a); // it ran, so it could finish
    assert_true(a.last.end == ENGINE_LENGTH || a.last.end == ENGINE_STOP);
    assert_true(n_wakes > 0);
    answer_finish(&b);
    assert_true(b.last.end == ENGINE_CANCELLED || a.last.n_made < 2); // it waited
    answer_fini(&a);
    answer_fini(&b);
    engine_free(e);
}

int main(void) {
    check_quiet();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_alone), cmocka_unit_test(test_together),
        cmocka_unit_test(test_cancel), cmocka_unit_test(test_prefix), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_timeout), cmocka_unit_test(test_options), cmocka_unit_test(test_embedding),
        cmocka_unit_test(test_close)};
    return cmocka_run_group_tests_name("engine", tests, bench_open, bench_close);
}
