// SPDX-License-Identifier: MIT
// engine.c: the part of models and sessions that all engines share (struct model_engine).

#include "base/min.h"
#include "model/vocab.h"

#include <inttypes.h>
#include <string.h>

bool model_fail(struct model_error *error, const char *fmt, ...) {
    if (error != NULL && error->text[0] == '\0') {
        va_list args;
        va_start(args, fmt);
        vsnprintf(error->text, sizeof error->text, fmt, args);
        va_end(args);
    }
    return false;
}

bool model_place(struct model *m, const struct model_devices *devices, bool plan_only, berth_gguf_progress_t progress,
    void *user_data, struct model_error *error) {
    if (m->parts != NULL) {
        return model_fail(error, "the model is already placed");
    }
    m->parts = berth_calloc((size_t) devices->n, sizeof *m->parts);
    if (m->parts == NULL) {
        return model_fail(error, "out of memory for the weights of %d devices", devices->n);
    }
    m->n_parts = devices->n;
    return m->engine->place(m, devices, plan_only, progress, user_data, error);
}

void model_parts_free(struct model_part *parts, int n) {
    for (int i = 0; parts != NULL && i < n; i++) {
        ggml_backend_buffer_free(parts[i].buffer);
        ggml_free(parts[i].ctx);
    }
    berth_free(parts);
}

struct vocab *vocab_of_model(const struct model *model, struct model_error *error) {
    return model->engine->vocab_new(model, error);
}

// ---- sessions ----

static void session_defaults(struct session_params *p, const struct model *model) {
    if (p->n_ctx <= 0) {
        p->n_ctx = max_i64(512, min_i64(model->params.n_ctx_train, 4096));
        if (model->position_embd != NULL) {
            p->n_ctx = min_i64(p->n_ctx, model->position_embd->ne[1]);
        }
    }
    if (p->n_batch <= 0) {
        p->n_batch = 512;
    }
    p->n_batch = min_i64(p->n_batch, max_i64(p->n_ctx, p->n_rows));
}

struct session *session_new(const struct model *model, const struct model_devices *devices, const struct session_params *params,
    struct model_error *error) {
    struct session *s = berth_calloc(1, sizeof *s);
    if (s == NULL) {
        model_fail(error, "out of memory");
        return NULL;
    }
    s->model = model;
    s->devices = devices;
    s->params = *params;
    session_defaults(&s->params, model);
    s->memory = berth_calloc((size_t) devices->n, sizeof *s->memory);
    if (s->memory == NULL) {
        model_fail(error, "out of memory for %d devices", devices->n);
    }
    if (s->memory == NULL || !model->engine->session_init(s, error)) {
        session_free(s);
        return NULL;
    }
    return s;
}

void session_free(struct session *s) {
    if (s == NULL) {
        return;
    }
    s->model->engine->session_fini(s);
    berth_free(s->memory);
    berth_free(s->logits);
    berth_free(s->sums);
    berth_free(s);
}

bool session_reserve(struct session *s, struct model_error *error) {
    return s->model->engine->session_reserve(s, error);
}

bool session_graph(struct session *s, int64_t n_tokens, int64_t n_kv, struct model_error *error) {
    return s->model->engine->session_graph(s, n_tokens, n_kv, error);
}

bool session_decode(struct session *s, const int32_t *tokens, int64_t n, struct model_error *error) {
    if (n > s->params.n_ctx - s->n_past) {
        return model_fail(error,
            "%" PRId64 " tokens do not fit into the context: %" PRId64 " of %" PRId64 " positions are in use", n, s->n_past,
            s->params.n_ctx);
    }
    for (int64_t i = 0; i < n; i++) {
        if (tokens[i] < 0 || tokens[i] >= s->model->params.n_vocab) {
            return model_fail(
                error, "token %d is outside the vocabulary of %" PRId64 " tokens", tokens[i], s->model->params.n_vocab);
        }
    }
    bool is_done = false;
    if (s->model->engine->session_begin != NULL && !s->model->engine->session_begin(s, tokens, n, &is_done, error)) {
        return false;
    }
    for (int64_t at = 0; at < n && !is_done; at += s->params.n_batch) {
        if (!s->model->engine->batch_decode(s, tokens + at, min_i64(n - at, s->params.n_batch), error)) {
            return false;
        }
    }
    return true;
}

bool session_row(const struct session *s, int64_t i, float *out, struct model_error *error) {
    return s->model->engine->session_row(s, i, out, error);
}

void session_reset(struct session *s) {
    s->n_past = 0;
    if (s->sums != NULL) {
        memset(s->sums, 0, (size_t) s->model->params.n_embd * sizeof *s->sums);
    }
    s->model->engine->session_reset(s);
}
