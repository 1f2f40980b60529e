// SPDX-License-Identifier: MIT
// test_generate.c: tests the token loop and the processing of contexts on a small model: limits, stop words, a grammar, stopping,
// and failing allocations.

#include "support/model_sample.h"
#include "support/vocab_sample.h"

#include "base/base.h"
#include "generate/generate.h"

#define N_CTX 16

// The small model that all tests use.
static struct bench {
    char path[32];
    struct model_devices devices;
    struct model *model;
    struct vocab *vocab;
    struct session *session;
} bench;

static void vocab_add(struct gguf_context *g, void *arg) {
    struct gguf_context *keys = sample_vocab_keys(arg, "gpt-2");
    gguf_set_kv(g, keys);
    gguf_free(keys);
}

static int bench_open(void **state) {
    (void) state;
    struct sample_model m = sample_model_default();
    struct sample_vocab v;
    struct model_error error = {""};
    const struct session_params params = {
        .n_ctx = N_CTX, .n_batch = N_CTX, .cache_k = GGML_TYPE_F32, .cache_v = GGML_TYPE_F32, .all_outputs = true};
    sample_vocab_init(&v);
    m.n_vocab = (int) v.n_tokens;
    m.last = vocab_add;
    m.last_arg = &v;
    strcpy(bench.path, "/tmp/generate-XXXXXX");
    sample_model_write(&m, bench.path);
    sample_vocab_fini(&v);
    assert_true(model_devices_open(&bench.devices, "CPU", 1, &error));
    bench.model = model_open(bench.path, &error);
    assert_non_null(bench.model);
    assert_true(model_place(bench.model, &bench.devices, false, NULL, NULL, &error));
    bench.vocab = vocab_of_model(bench.model, &error);
    bench.session = session_new(bench.model, &bench.devices, &params, &error);
    assert_true(bench.vocab != NULL && bench.session != NULL && session_reserve(bench.session, &error));
    return 0;
}

static int bench_close(void **state) {
    (void) state;
    session_free(bench.session);
    vocab_free(bench.vocab);
    model_free(bench.model);
    model_devices_close(&bench.devices);
    unlink(bench.path);
    return 0;
}

// Returns false in the first *user calls, then true. *user counts down.
static bool stop_later(void *user) {
    int *n = user;
    return --*n < 0;
}

// What a run of the token loop has generated. ok: the run succeeded; otherwise `error` is set.
struct answer {
    struct berth_stream text;
    struct generate_result made;
    struct model_error error;
    struct logprobs logs;
    bool ok;
};

// Generates text after the BOS token. n_asks: calls of the stop callback before it stops the text; -1: no callback.
static struct answer answer_generate(int64_t n_max, const char *const *stops, int n_stops, struct guide *guide, int n_asks) {
    struct answer a = {.logs = {.n_top = 1}};
    struct text_writer w = {0};
    struct sampler sampler;
    sampler_init(&sampler, 0.8f, 40, 0.95f, 1);
    const bool is_open = berth_stream_open(&a.text);
    const struct generator g = {.session = bench.session,
        .writer = &w,
        .sampler = &sampler,
        .guide = guide,
        .logs = &a.logs,
        .stop = n_asks >= 0 ? stop_later : NULL,
        .stop_data = &n_asks};
    session_reset(bench.session);
    a.ok = is_open && text_writer_init(&w, bench.vocab, stops, n_stops, a.text.file) &&
           session_decode(bench.session, &bench.vocab->bos, 1, &a.error) && text_generate(&g, n_max, &a.made, &a.error) &&
           text_writer_end(&w);
    text_writer_fini(&w);
    sampler_fini(&sampler);
    a.ok = berth_stream_close(&a.text) && a.ok;
    return a;
}

static void answer_fini(struct answer *a) {
    berth_stream_fini(&a->text);
    logprobs_fini(&a->logs);
}

static void test_limits(void **state) {
    (void) state;
    struct answer a = answer_generate(5, NULL, 0, NULL, -1);
    assert_true(a.ok && a.made.n_made == 5 && a.made.n_decoded == 4 && !a.made.is_last_read && a.logs.n == 5);
    assert_int_equal(a.logs.items[4 * 2].token, a.made.last);
    struct answer all = answer_generate(-1, NULL, 0, NULL, -1);
    assert_true(all.ok && bench.session->n_past == N_CTX && all.made.n_made == N_CTX);
    assert_true(all.text.size > a.text.size && memcmp(all.text.text, a.text.text, a.text.size - 4) == 0);
    // The stop word begins within one token and ends within another.
    char stop[8] = "";
    memcpy(stop, all.text.text + all.text.size / 2, 4);
    struct answer stopped = answer_generate(-1, (const char *const[]){stop}, 1, NULL, -1);
    assert_true(stopped.ok && stopped.made.n_made < N_CTX && stopped.text.size <= all.text.size / 2);
    assert_null(strstr(stopped.text.text, stop));
    struct answer cancelled = answer_generate(-1, NULL, 0, NULL, 3);
    assert_true(cancelled.ok && cancelled.made.n_made == 3);
    answer_fini(&a);
    answer_fini(&all);
    answer_fini(&stopped);
    answer_fini(&cancelled);
}

static void test_guide(void **state) {
    (void) state;
    static const char gbnf[] = "root ::= [a-c]{4}";
    struct text_guide guide;
    struct model_error error = {""};
    const struct guide_source source = {.text = gbnf, .size = strlen(gbnf), .name = "made"};
    assert_true(text_guide_open(&guide, &source, bench.vocab, &error));
    struct answer a = answer_generate(-1, NULL, 0, guide.guide, -1);
    assert_true(a.ok && a.text.size == 4 && strspn(a.text.text, "abc") == 4);
    answer_fini(&a);
    text_guide_close(&guide);
    const struct guide_source wrong = {.text = "root ::=", .size = 3, .name = "wrong.gbnf"};
    assert_false(text_guide_open(&guide, &wrong, bench.vocab, &error));
    assert_memory_equal(error.text, "wrong.gbnf: ", 12);
}

static void test_memory(void **state) {
    (void) state;
    for (int64_t n = 1, is_complete = 0; !is_complete; n++) {
        berth_alloc_watch(true);
        berth_alloc_fail_at(n);
        struct answer a = answer_generate(4, (const char *const[]){"END"}, 1, NULL, -1);
        berth_alloc_fail_at(0);
        is_complete = a.ok;
        answer_fini(&a);
        assert_int_equal(berth_alloc_alive(), 0);
    }
}

// ---- contexts ----

struct contexts_seen {
    int64_t n, n_max;
    bool fails;
};

static bool context_count(void *user, const int32_t *ids, int64_t i, int64_t n, struct model_error *error) {
    struct contexts_seen *contexts_seen = user;
    assert_int_equal(ids[0], bench.vocab->bos);
    assert_int_equal(i, contexts_seen->n);
    contexts_seen->n_max = n;
    if (contexts_seen->fails && i == 1) {
        return model_fail(error, "the second context");
    }
    contexts_seen->n++;
    return true;
}

static bool contexts_count(
    struct contexts_seen *contexts_seen, size_t size, int64_t n_max, int n_asks, int64_t *n_read, struct model_error *error) {
    const struct context_reader r = {.session = bench.session,
        .vocab = bench.vocab,
        .text = sample_text,
        .size = size,
        .name = "made.txt",
        .n_max = n_max,
        .each = context_count,
        .user = contexts_seen,
        .stop = n_asks >= 0 ? stop_later : NULL,
        .stop_data = &n_asks};
    return contexts_read(&r, n_read, error);
}

static void test_contexts(void **state) {
    (void) state;
    struct model_error error = {""};
    struct contexts_seen contexts_seen = {0};
    int64_t n;
    assert_true(contexts_count(&contexts_seen, strlen(sample_text), 0, -1, &n, &error));
    assert_true(n > 4 && n == contexts_seen.n && n == contexts_seen.n_max);
    contexts_seen = (struct contexts_seen){0};
    assert_true(contexts_count(&contexts_seen, strlen(sample_text), 3, -1, &n, &error));
    assert_true(n == 3 && contexts_seen.n_max == 3);
    contexts_seen = (struct contexts_seen){0};
    assert_true(contexts_count(&contexts_seen, strlen(sample_text), 0, 2, &n, &error)); // stopped after two contexts
    assert_int_equal(n, 2);
    contexts_seen = (struct contexts_seen){0};
    assert_false(contexts_count(&contexts_seen, strlen(sample_text), 0, 0, &n, &error));
    assert_string_equal(error.text, "interrupted within the first context");
    error.text[0] = '\0';
    assert_false(contexts_count(&contexts_seen, 10, 0, -1, &n, &error));
    assert_non_null(strstr(error.text, "made.txt: "));
    assert_non_null(strstr(error.text, " tokens, but a context needs 16"));
    error.text[0] = '\0';
    contexts_seen = (struct contexts_seen){.fails = true};
    assert_false(contexts_count(&contexts_seen, strlen(sample_text), 0, -1, &n, &error));
    assert_string_equal(error.text, "the second context");
    assert_int_equal(n, 1);
    for (int64_t at = 1, is_complete = 0; !is_complete; at++) {
        error.text[0] = '\0';
        contexts_seen = (struct contexts_seen){0};
        berth_alloc_watch(true);
        berth_alloc_fail_at(at);
        is_complete = contexts_count(&contexts_seen, strlen(sample_text), 1, -1, &n, &error);
        berth_alloc_fail_at(0);
        assert_int_equal(is_complete, error.text[0] == '\0');
        assert_int_equal(berth_alloc_alive(), 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_limits), cmocka_unit_test(test_guide), cmocka_unit_test(test_memory),
        cmocka_unit_test(test_contexts)};
    check_quiet();
    return cmocka_run_group_tests(tests, bench_open, bench_close);
}
