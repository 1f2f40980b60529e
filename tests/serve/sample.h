// SPDX-License-Identifier: MIT
// sample.h: a service with the fake engine and a small vocabulary.
#pragma once

#include "support/vocab_sample.h"

#include "base/base.h"
#include "serve/fake_engine.h"
#include "serve/request.h"

#define SAMPLE_CTX 128
#define SAMPLE_EMBD 64

struct sample_service {
    struct gguf_context *keys;
    struct vocab *vocab;
    struct engine *engine;
    struct service service;
};

static inline void sample_service_open(struct sample_service *s, int step_us, int n_requests) {
    struct sample_vocab v;
    struct model_error error = {""};
    sample_vocab_init(&v);
    s->keys = sample_vocab_keys(&v, "gpt-2");
    s->vocab = vocab_new(s->keys, (int64_t) v.n_tokens, &error);
    sample_vocab_fini(&v);
    assert_non_null(s->vocab);
    fake = (struct fake){.step_us = step_us, .n_embd = SAMPLE_EMBD};
    s->engine = engine_new(&(struct engine_params){.n_ctx = SAMPLE_CTX, .n_pool = 1024}, &error);
    assert_non_null(s->engine);
    const struct service_params params = {.engine = s->engine,
        .vocab = s->vocab,
        .chat = chat_template_find("chatml"),
        .model = "sample",
        .n_ctx = SAMPLE_CTX,
        .n_embd = SAMPLE_EMBD,
        .n_requests = n_requests,
        .n_guided = 2,
        .answers_size = 1 << 20,
        .created = 5};
    assert_true(service_init(&s->service, &params));
}

static inline void sample_service_close(struct sample_service *s) {
    assert_int_equal(s->service.n_active, 0);
    assert_int_equal(s->service.n_guided, 0);
    assert_int_equal(s->service.answers_reserved, 0);
    assert_int_equal(fake.n_active, 0);
    engine_free(s->engine);
    service_fini(&s->service);
    vocab_free(s->vocab);
    gguf_free(s->keys);
}
