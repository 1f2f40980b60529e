// SPDX-License-Identifier: MIT
// session.c: sessions, embeddings and generated text (berth-model.h).

#include "library/library.h"

#include "base/base.h"

// ---- sessions ----

static struct session *session_open(
    const struct berth_model *model, const struct berth_session_params *p, struct model_error *error) {
    struct model_options options = {.n_ctx = p->n_ctx, .n_batch = p->n_batch, .is_embedding = p->is_embedding};
    if (p->n_ctx < 0 || p->n_ctx > INT32_MAX || p->n_batch < 0 || p->n_batch > INT32_MAX) {
        model_fail(error, "n_ctx and n_batch must be 0 to 2147483647");
        return NULL;
    }
    if (p->cache_type != NULL && !workbench_cache_type(&options, p->cache_type)) {
        model_fail(error, "cache_type '%s' is neither a type such as f16 or q8_0 nor two types such as q8_0,f16", p->cache_type);
        return NULL;
    }
    const struct session_params params = workbench_session_params(&options);
    struct session *session = session_new(model->w.model, &model->w.devices, &params, error);
    if (session != NULL && !session_reserve(session, error)) {
        session_free(session);
        return NULL;
    }
    return session;
}

struct berth_session *berth_session_new(struct berth_model *model, const struct berth_session_params *params) {
    static const struct berth_session_params no_params;
    struct model_error error = {""};
    if (model == NULL) {
        berth_set_error("berth_session_new requires a model");
        return NULL;
    }
    struct berth_session *session = berth_calloc(1, sizeof *session);
    if (session == NULL) {
        berth_set_error("out of memory");
        return NULL;
    }
    session->model = model;
    session->session = session_open(model, params != NULL ? params : &no_params, &error);
    if (session->session == NULL) {
        berth_set_error("%s: %s", model->w.path, error.text);
        berth_free(session);
        return NULL;
    }
    return session;
}

void berth_session_free(struct berth_session *session) {
    if (session != NULL) {
        session_free(session->session);
        berth_free(session);
    }
}

bool berth_session_memory(const struct berth_session *session, int i, struct berth_session_memory *memory) {
    if (session == NULL || memory == NULL || i < 0 || i >= session->model->w.devices.n) {
        return false;
    }
    const struct session_memory *m = &session->session->memory[i];
    *memory = (struct berth_session_memory){.device = ggml_backend_dev_name(session->model->w.devices.dev[i]),
        .weights = m->weights,
        .cache = m->cache,
        .compute = m->compute,
        .bound = m->report.bound,
        .work = m->work};
    return true;
}

int64_t berth_session_n_ctx(const struct berth_session *session) {
    return session != NULL ? session->session->params.n_ctx : 0;
}

int64_t berth_session_n_past(const struct berth_session *session) {
    return session != NULL ? session->session->n_past : 0;
}

void berth_session_reset(struct berth_session *session) {
    if (session != NULL) {
        session_reset(session->session);
        session->cached = NULL;
    }
}

static bool tokens_decode(struct berth_session *session, const int32_t *tokens, int64_t n, struct model_error *error) {
    const struct session *s = session->session;
    const int64_t n_free = s->params.n_ctx - s->n_past;
    if (n > n_free) {
        return model_fail(error, "%lld tokens do not fit: the context has %lld free positions; enlarge it with n_ctx",
            (long long) n, (long long) n_free);
    }
    for (int64_t i = 0; i < n; i++) {
        if (tokens[i] < 0 || tokens[i] >= s->model->params.n_vocab) {
            return model_fail(
                error, "token %d is not in the vocabulary of %lld tokens", (int) tokens[i], (long long) s->model->params.n_vocab);
        }
    }
    return n <= 0 || session_decode(session->session, tokens, n, error);
}

enum ggml_status berth_session_decode(struct berth_session *session, const int32_t *tokens, int64_t n) {
    struct model_error error = {""};
    if (session == NULL || (tokens == NULL && n > 0)) {
        return berth_fail(GGML_STATUS_FAILED, "berth_session_decode requires a session and tokens");
    }
    session->cached = NULL;
    const bool ok = tokens_decode(session, tokens, n, &error);
    return library_status(ok, library_is_stopped(session->model), &error);
}

const float *berth_session_logits(const struct berth_session *session) {
    return session != NULL && session->session->n_past > 0 ? session->session->logits : NULL;
}

enum ggml_status berth_session_embed(
    struct berth_session *session, const char *text, size_t size, bool is_last, bool is_raw, float *embedding) {
    struct model_error error = {""};
    int64_t n_tokens;
    if (session == NULL || text == NULL || embedding == NULL) {
        return berth_fail(GGML_STATUS_FAILED, "berth_session_embed requires a session, a text and memory for the embedding");
    }
    if (!session->session->params.is_embedding) {
        return berth_fail(GGML_STATUS_FAILED, "embeddings require a session with is_embedding");
    }
    session->cached = NULL;
    const struct text_embedder embedder = {
        .session = session->session, .vocab = session->model->w.vocab, .is_last = is_last, .is_raw = is_raw};
    const bool ok = text_embed(&embedder, text, size, embedding, &n_tokens, &error);
    return library_status(ok, library_is_stopped(session->model), &error);
}
