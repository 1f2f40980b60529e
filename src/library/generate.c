// SPDX-License-Identifier: MIT
// generate.c: generates texts and answers (berth-model.h).

#include "library/library.h"

#include "base/base.h"
#include "base/min.h"

#include <math.h>

void berth_generate_params_init(struct berth_generate_params *params) {
    if (params != NULL) {
        *params = (struct berth_generate_params){.max_tokens = -1,
            .seed = -1,
            .temperature = 0.8f,
            .top_k = 40,
            .typical = 1,
            .top_p = 0.95f,
            .repeat_penalty = 1,
            .repeat_last_n = 64,
            .mirostat_eta = 0.1f};
    }
}

// ---- one call ----

static bool params_check(const struct berth_generate_params *p, struct model_error *error) {
    const struct {
        const char *name;
        double value, min, max;
    } rows[] = {
        {"max_tokens", (double) p->max_tokens, -1, INFINITY},
        {"temperature", p->temperature, 0, 1e6},
        {"top_k", (double) p->top_k, 0, INFINITY},
        {"typical", p->typical, 0, 1},
        {"top_p", p->top_p, 0, 1},
        {"min_p", p->min_p, 0, 1},
        {"repeat_penalty", p->repeat_penalty, 1e-6f, 1e6},
        {"frequency_penalty", p->frequency_penalty, -1e6, 1e6},
        {"presence_penalty", p->presence_penalty, -1e6, 1e6},
        {"repeat_last_n", (double) p->repeat_last_n, 0, 1 << 24},
        {"mirostat_tau", p->mirostat_tau, 0, 1e6},
        {"mirostat_eta", p->mirostat_eta, 0, 1e6},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!(rows[i].value >= rows[i].min && rows[i].value <= rows[i].max)) {
            return model_fail(error, "%s is %g; it must be %g to %g", rows[i].name, rows[i].value, rows[i].min, rows[i].max);
        }
    }
    for (int i = 0; i < p->n_stops; i++) {
        if (p->stops[i] == NULL || p->stops[i][0] == '\0') {
            return model_fail(error, "stop text %d is empty", i + 1);
        }
    }
    if (p->grammar != NULL && p->json_schema != NULL) {
        return model_fail(error, "grammar and json_schema cannot be combined");
    }
    return true;
}

static bool guide_open(struct library_call *call, struct model_error *error) {
    const struct berth_generate_params *p = call->params;
    const char *text = p->grammar != NULL ? p->grammar : p->json_schema;
    if (text == NULL) {
        return true;
    }
    const struct guide_source source = {.text = text,
        .size = strlen(text),
        .name = p->grammar != NULL ? "grammar" : "json_schema",
        .is_schema = p->grammar == NULL,
        .stop = library_is_stopped,
        .stop_data = call->session->model};
    return text_guide_open(&call->guide, &source, call->session->model->w.vocab, error);
}

static void sampler_prepare(struct sampler *s, const struct berth_generate_params *p, int64_t seed) {
    sampler_init(s, p->temperature, p->top_k, p->top_p, (uint64_t) seed);
    s->typical = p->typical;
    s->min_p = p->min_p;
    s->repeat = p->repeat_penalty;
    s->frequency = p->frequency_penalty;
    s->presence = p->presence_penalty;
    s->last_n = p->repeat_last_n;
    s->tau = p->mirostat_tau;
    s->eta = p->mirostat_eta;
    s->biases = (const struct sample_bias *) p->biases;
    s->n_biases = p->n_biases;
}
_Static_assert(sizeof(struct sample_bias) == sizeof(struct berth_token_bias) &&
                   offsetof(struct sample_bias, bias) == offsetof(struct berth_token_bias, bias),
    "the biases of a caller are those of a sampler");

// Never fails: after a refusal, the generator stops before the next token.
static bool text_put(const char *text, size_t size, void *user) {
    struct library_call *call = user;
    if (!call->is_refused && call->params->on_text != NULL) {
        call->is_refused = !call->params->on_text(text, size, call->params->user_data);
    }
    return true;
}

static bool call_is_stopped(void *user) {
    const struct library_call *call = user;
    return call->is_refused || library_is_stopped(call->session->model);
}

bool library_call_init(struct library_call *call, struct berth_session *session, const struct berth_generate_params *params,
    struct model_error *error) {
    *call = (struct library_call){.params = params, .session = session, .seed = params->seed};
    if (session->session->params.is_embedding) {
        return model_fail(error, "the session computes embeddings; generating text requires a session without is_embedding");
    }
    if (!params_check(params, error)) {
        return false;
    }
    if (call->seed < 0) {
        call->seed = sampler_seed_new();
    }
    sampler_prepare(&call->sampler, params, call->seed);
    if (!guide_open(call, error)) {
        return false;
    }
    if (!text_writer_init(&call->writer, session->model->w.vocab, params->stops, params->n_stops, NULL)) {
        return model_fail(error, "out of memory");
    }
    call->writer.put = text_put;
    call->writer.put_user = call;
    call->generator = (struct generator){.session = session->session,
        .writer = &call->writer,
        .sampler = &call->sampler,
        .guide = call->guide.guide,
        .stop = call_is_stopped,
        .stop_data = call};
    return true;
}

void library_call_fini(struct library_call *call) {
    text_writer_fini(&call->writer);
    sampler_fini(&call->sampler);
    text_guide_close(&call->guide);
}

static enum berth_end end_of(const struct library_call *call, const struct generate_result *made, enum ggml_status status) {
    const struct session *s = call->session->session;
    if (status == GGML_STATUS_ABORTED) {
        return BERTH_END_ABORTED;
    }
    if (call->writer.filter.is_over) {
        return BERTH_END_STOP;
    }
    if (call->params->max_tokens >= 0 && made->n_made >= call->params->max_tokens) {
        return BERTH_END_TOKENS;
    }
    const bool is_ended = made->n_made == 0 || vocab_is_end(call->session->model->w.vocab, made->last);
    return !is_ended && s->n_past == s->params.n_ctx ? BERTH_END_CONTEXT : BERTH_END_MODEL;
}

enum ggml_status library_call_end(const struct library_call *call, const struct generate_result *made, bool ok,
    const struct model_error *error, struct berth_generate_result *result) {
    const bool is_stopped = call_is_stopped((void *) call);
    const enum ggml_status status = library_status(ok && !is_stopped, is_stopped, error);
    if (result != NULL) {
        result->end = end_of(call, made, status);
        result->n_generated = made->n_made;
        result->n_decoded = made->n_decoded;
        result->generate_us = made->made_us;
        result->seed = call->seed;
    }
    return status;
}

// ---- texts ----

static bool prompt_continue(const struct library_call *call, const char *prompt, size_t size, struct generate_result *made,
    struct berth_generate_result *result, struct model_error *error) {
    struct token_list tokens = {0};
    struct session *s = call->session->session;
    session_reset(s);
    bool ok = text_prompt_encode(&call->generator, prompt, size, &tokens, error);
    const int64_t start = ggml_time_us();
    if (ok) {
        ok = session_decode(s, tokens.ids, (int64_t) tokens.n, error);
    }
    if (result != NULL) {
        result->n_prompt = s->n_past;
        result->prompt_us = ggml_time_us() - start;
    }
    token_list_fini(&tokens);
    return ok && text_generate(&call->generator, call->params->max_tokens, made, error) &&
           text_writer_end(call->generator.writer);
}

enum ggml_status berth_session_generate(struct berth_session *session, const char *prompt, size_t size,
    const struct berth_generate_params *params, struct berth_generate_result *result) {
    struct berth_generate_params defaults;
    struct generate_result made = {0};
    struct model_error error = {""};
    struct library_call call;
    if (result != NULL) {
        *result = (struct berth_generate_result){0};
    }
    if (session == NULL || (prompt == NULL && size > 0)) {
        return berth_fail(GGML_STATUS_FAILED, "berth_session_generate requires a session and a prompt");
    }
    berth_generate_params_init(&defaults);
    session->cached = NULL;
    const bool is_ready = library_call_init(&call, session, params != NULL ? params : &defaults, &error);
    const bool ok = is_ready && prompt_continue(&call, prompt != NULL ? prompt : "", size, &made, result, &error);
    const enum ggml_status status = library_call_end(&call, &made, ok, &error, result);
    library_call_fini(&call);
    return status;
}
