// SPDX-License-Identifier: MIT
// api_request.c: reads a request body (api.h). The object's members are read by the table of api_fields.c. Checks that concern
// several members follow.

#include "serve/api.h"

#include <inttypes.h>
#include <string.h>

// ---- checks after all members are read ----

static bool chat_check(struct api_parser *p) {
    const struct api_request *r = p->r;
    p->name = "messages";
    if (r->n_messages == 0) {
        return api_fail(p->error, 400, "missing_required_parameter", p->name, "missing parameter: messages");
    }
    p->name = "top_logprobs";
    if (r->n_logprobs > 0 && !r->has_logprobs) {
        return api_refuse(p, "top_logprobs %" PRId64 " requires logprobs true", r->n_logprobs);
    }
    return api_tools_check(p);
}

static bool inputs_check(struct api_parser *p) {
    const struct api_request *r = p->r;
    p->name = r->kind == API_EMBEDDING ? "input" : "prompt";
    if (r->n_inputs == 0) {
        return api_fail(p->error, 400, "missing_required_parameter", p->name, "missing parameter: %s", p->name);
    }
    const int64_t n_answers = (int64_t) r->n_inputs * r->n_choices;
    if (r->kind == API_COMPLETION && n_answers > API_MAX_CHOICES) {
        return api_refuse(p, "%zu prompts with n %" PRId64 " require %" PRId64 " answers, at most %d are allowed", r->n_inputs,
            r->n_choices, n_answers, API_MAX_CHOICES);
    }
    return true;
}

static bool request_check(struct api_parser *p) {
    struct api_request *r = p->r;
    if (!(r->kind == API_CHAT ? chat_check(p) : inputs_check(p))) {
        return false;
    }
    p->name = "best_of";
    if (p->n_best >= 0 && p->n_best != r->n_choices) {
        return api_refuse(p, "best_of %" PRId64 " differs from n %" PRId64 ": answers are not ranked", p->n_best, r->n_choices);
    }
    p->name = "stream_options";
    if (r->has_stream_usage && !r->is_stream) {
        return api_refuse(p, "stream_options requires stream true");
    }
    r->sampling.biases = r->biases;
    r->sampling.n_biases = (int64_t) r->n_biases;
    size_t at = 0; // the array of tokens does not move any more
    for (size_t i = 0; i < r->n_inputs; i++) {
        if (r->inputs[i].text == NULL) {
            r->inputs[i].tokens = r->tokens + at;
            at += r->inputs[i].n_tokens;
        }
    }
    return true;
}

bool api_request_read(struct api_request *r, enum api_kind kind, const char *body, size_t size, struct api_error *error) {
    struct berth_json json;
    *r = (struct api_request){
        .kind = kind, .n_max = -1, .n_choices = 1, .dimensions = -1, .sampling = {.temperature = 1, .top_p = 1, .repeat = 1}};
    struct api_parser p = {.json = &json, .r = r, .error = error, .n_best = -1};
    berth_json_init(&json, body, size, "body");
    bool ok = api_parse_object(&p, api_field_read, NULL);
    if (ok) {
        ok = berth_json_done(&json) ? request_check(&p) : api_refuse_json(&p);
    }
    berth_json_fini(&json);
    berth_free(p.text);
    return ok;
}

void api_request_fini(struct api_request *r) {
    berth_arrays_free(&r->memory);
    berth_free(r->messages);
    berth_free(r->tools);
    berth_free(r->inputs);
    berth_free(r->stops);
    berth_free(r->tokens);
    berth_free(r->biases);
    *r = (struct api_request){0};
}
