// SPDX-License-Identifier: MIT
// engine_sample.h: an engine on the model that comes with Berth, and requests with the text that they have returned.
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

static inline int bench_open(void **state) {
    (void) state;
    struct model_error error = {""};
    assert_true(model_devices_open(&bench.devices, "CPU", 2, &error));
    bench.model = model_open("models/tales-q8_0.gguf", &error);
    assert_non_null(bench.model);
    assert_true(model_place(bench.model, &bench.devices, false, NULL, NULL, &error));
    bench.vocab = vocab_of_model(bench.model, &error);
    assert_non_null(bench.vocab);
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

static inline struct engine_stats stats_when_idle(struct engine *e) {
    struct engine_stats stats;
    do {
        usleep(500);
        engine_stats(e, &stats);
    } while (stats.n_running + stats.n_waiting > 0);
    return stats;
}
