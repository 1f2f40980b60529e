// SPDX-License-Identifier: MIT
// engine_sample.h: an engine on a model, such as the one that comes with Berth, and requests with the text that they have returned.
#pragma once

#include "check.h"

#include "berth-cpu.h"
#include "serve/engine_state.h"

#include <unistd.h>

#define N_CTX 256

static struct bench {
    struct model_devices devices;
    struct model *model;
    struct vocab *vocab;
} bench;

static inline void bench_open_model(struct model *model, struct model_error *error) {
    bench.model = model;
    const bool ok = model != NULL && model_devices_open(&bench.devices, "CPU", 2, error) &&
                    model_place(bench.model, &bench.devices, false, NULL, NULL, error);
    bench.vocab = ok ? vocab_of_model(bench.model, error) : NULL;
    assert_string_equal(error->text, "");
    assert_non_null(bench.vocab);
}

static inline int bench_open(void **state) {
    (void) state;
    struct model_error error = {""};
    bench_open_model(model_open("tests/data/tales-3m-q8_0.gguf", &error), &error);
    return 0;
}

static inline int bench_close(void **state) {
    (void) state;
    vocab_free(bench.vocab);
    model_free(bench.model);
    model_devices_close(&bench.devices);
    return 0;
}

static inline struct engine_params params_of(int n_running, int64_t n_pool, bool is_deterministic) {
    return (struct engine_params){.model = bench.model,
        .devices = &bench.devices,
        .vocab = bench.vocab,
        .n_ctx = N_CTX,
        .n_pool = n_pool,
        .n_page = 16,
        .n_batch = 64,
        .n_running = n_running,
        .n_waiting = 64,
        .is_deterministic = is_deterministic};
}

static inline struct engine *engine_open(int n_running, int64_t n_pool, bool is_deterministic) {
    struct model_error error = {""};
    const struct engine_params params = params_of(n_running, n_pool, is_deterministic);
    berth_cpu_set_batch_invariant(bench.devices.backend[0], false);
    struct engine *e = engine_new(&params, &error);
    assert_string_equal(error.text, "");
    assert_non_null(e);
    return e;
}

static const char *const prompts[] = {"Once upon a time, there was a", "The little dog", "Tom and Mia went to the park.",
    "One day", "Once upon a time, there was a big", "A bird sat on the", "The sun was",
    "Once upon a time, there was a red ball. The ball"};
#define N_PROMPTS (sizeof prompts / sizeof *prompts)

// A request and what it has returned.
struct answer {
    struct token_list tokens;
    struct engine_request r;
    struct engine_ticket *ticket;
    char text[4096];
    size_t n_text;
    struct engine_piece last;
    int n_logprobs;
};

static inline struct answer answer_of(size_t i, int64_t n_max, float temperature) {
    struct answer a = {.r = {.n_max = n_max,
                           .n_logprobs = -1,
                           .sampling = {.temperature = temperature, .top_k = 40, .top_p = 0.95f, .repeat = 1, .seed = 100 + i}}};
    struct model_error error = {""};
    const char *prompt = prompts[i % N_PROMPTS];
    assert_true(vocab_encode(bench.vocab, prompt, strlen(prompt), ENCODE_ADD, &a.tokens, &error));
    a.r.tokens = a.tokens.ids;
    a.r.n_tokens = (int64_t) a.tokens.n;
    return a;
}

static inline void answer_submit(struct engine *e, struct answer *a) {
    struct model_error error = {""};
    assert_int_equal(engine_submit(e, &a->r, &a->ticket, NULL, &error), ENGINE_OK);
}

static inline bool answer_read(struct answer *a, int64_t timeout_us) {
    engine_read(a->ticket, timeout_us, &a->last);
    assert_true(a->n_text + a->last.n_text < sizeof a->text);
    memcpy(a->text + a->n_text, a->last.text, a->last.n_text);
    a->n_text += a->last.n_text;
    a->text[a->n_text] = '\0';
    a->n_logprobs += a->last.n_logprobs;
    return a->last.end != ENGINE_RUNNING;
}

static inline void answer_finish(struct answer *a) {
    while (!answer_read(a, 1000000)) {
    }
    engine_release(a->ticket);
    a->ticket = NULL;
}

static inline void answer_fini(struct answer *a) {
    token_list_fini(&a->tokens);
}

// Generates the same text with a session, as `berth run` does.
static inline struct berth_stream text_alone(const struct answer *a, bool is_deterministic) {
    struct model_error error = {""};
    struct berth_stream text;
    struct text_writer w;
    struct sampler sampler;
    struct generate_result made = {0};
    const struct session_params params = {.n_ctx = N_CTX, .cache_k = GGML_TYPE_F16, .cache_v = GGML_TYPE_F16};
    berth_cpu_set_batch_invariant(bench.devices.backend[0], is_deterministic);
    struct session *s = session_new(bench.model, &bench.devices, &params, &error);
    assert_true(s != NULL && session_reserve(s, &error));
    sampler_init(&sampler, a->r.sampling.temperature, a->r.sampling.top_k, a->r.sampling.top_p, a->r.sampling.seed);
    sampler.repeat = a->r.sampling.repeat;
    for (int64_t i = 0; i < a->r.n_tokens; i++) {
        assert_true(sampler_accept(&sampler, a->r.tokens[i]));
    }
    const struct generator g = {.session = s, .writer = &w, .sampler = &sampler};
    assert_true(berth_stream_open(&text) && text_writer_init(&w, bench.vocab, a->r.stops, a->r.n_stops, text.file));
    assert_true(session_decode(s, a->r.tokens, a->r.n_tokens, &error) && text_generate(&g, a->r.n_max, &made, &error));
    assert_true(text_writer_end(&w) && berth_stream_close(&text));
    text_writer_fini(&w);
    sampler_fini(&sampler);
    session_free(s);
    return text;
}

static inline bool answer_is_same(const struct answer *a, bool is_deterministic) {
    struct berth_stream text = text_alone(a, is_deterministic);
    const bool is_same = strcmp(a->text, text.text) == 0;
    if (!is_same && is_deterministic) {
        print_message("together: %s\nalone: %s\n", a->text, text.text);
    }
    berth_stream_fini(&text);
    return is_same;
}

static inline struct engine_stats stats_when_idle(struct engine *e) {
    struct engine_stats stats;
    do {
        usleep(500);
        engine_stats(e, &stats);
    } while (stats.n_running + stats.n_waiting > 0);
    return stats;
}
