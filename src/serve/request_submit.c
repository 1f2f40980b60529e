// SPDX-License-Identifier: MIT
// request_submit.c: submits the prompts of a request to the engine (request.h).

#include "serve/request_internal.h"

#include <string.h>
#include <unistd.h>

#define RETRY_US 500000 // between two attempts if the engine is full; each one compiles the grammar of a schema

// Called by the engine's thread.
static void service_wake(void *user) {
    struct service_slot *slot = user;
    const uint64_t one = 1;
    if (!atomic_exchange(&slot->has_news, true)) {
        // Fails only if the counter is at its maximum, and then the descriptor is readable already.
        (void) !write(slot->service->wake_fd, &one, sizeof one);
    }
}

// Opens the grammar of a schema, with the limits of a server.
static bool guide_open(const struct request *r, struct text_guide *guide, struct api_error *error) {
    const char *name = r->api.n_tools > 0 ? "tools" : "response_format";
    const struct guide_source source = {.text = r->api.schema, .size = r->api.schema_size, .name = name, .is_schema = true};
    struct model_error why = {""};
    char *text = schema_to_grammar(&source, &why);
    *guide = (struct text_guide){NULL, NULL};
    if (text != NULL) {
        guide->grammar = grammar_new(text, strlen(text), NULL, NULL, &why);
        berth_free(text);
    }
    if (guide->grammar != NULL && grammar_size(guide->grammar) > SERVICE_GRAMMAR_RATIO * API_MAX_SCHEMA_SIZE) {
        model_fail(&why, "the grammar of the schema needs %zu bytes, more than the limit of %d", grammar_size(guide->grammar),
            SERVICE_GRAMMAR_RATIO * API_MAX_SCHEMA_SIZE);
    } else if (guide->grammar != NULL) {
        guide->grammar->max_stack_size = SERVICE_STACKS_SIZE;
        guide->grammar->max_steps = SERVICE_STEPS_LEAST + SERVICE_STEPS_PER_TOKEN * (uint64_t) r->service->params.vocab->n_tokens;
        guide->guide = guide_new(guide->grammar, r->service->params.vocab, &why);
    }
    if (guide->guide != NULL) {
        return true;
    }
    text_guide_close(guide);
    return api_fail(error, 400, "invalid_schema", name, "%s", why.text);
}

static bool submit_refuse(enum engine_status status, int retry_s, const struct model_error *why, struct api_error *error) {
    const int wait_s = retry_s > 0 ? retry_s : API_RETRY_S;
    switch (status) {
        case ENGINE_FULL:
            api_fail(error, 429, "rate_limit_exceeded", NULL, "%s", why->text[0] != '\0' ? why->text : "the queue is full");
            error->retry_s = wait_s;
            break;
        case ENGINE_CLOSED:
            api_fail(error, 503, "shutting_down", NULL, "the server is shutting down");
            error->retry_s = wait_s;
            break;
        case ENGINE_NEVER: api_fail(error, 400, "context_length_exceeded", NULL, "%s", why->text); break;
        default: api_fail(error, 500, NULL, NULL, "%s", why->text); break;
    }
    return false;
}

// Sets the stop texts of an answer and returns their number. With is_one_call, the end of the first call ends the answer.
static int stops_get(const struct request *r, const char *stops[ENGINE_MAX_STOPS]) {
    int n = 0;
    for (; n < (int) r->api.n_stops; n++) {
        stops[n] = r->api.stops[n];
    }
    if (r->api.n_tools > 0 && r->api.is_one_call) {
        stops[n++] = r->service->params.chat->tools->call_end;
    }
    return n;
}

static enum engine_status item_submit(struct request *r, struct request_item *item, struct api_error *error) {
    const struct api_request *a = &r->api;
    const struct token_list *prompt = &r->prompts[item->input];
    const char *stops[ENGINE_MAX_STOPS];
    struct model_error why = {""};
    int retry_s = 0;
    struct engine_request e = {.tokens = prompt->ids,
        .n_tokens = (int64_t) prompt->n,
        .n_max = request_item_max(r, item->input),
        .sampling = a->sampling,
        .stops = stops,
        .n_stops = stops_get(r, stops),
        .n_logprobs = a->has_logprobs ? (int) a->n_logprobs : -1,
        .is_embedding = a->kind == API_EMBEDDING,
        .is_retried = r->n_submitted > 0,
        .wake = service_wake,
        .user = r->slot};
    e.sampling.seed = item->seed;
    if (a->schema != NULL && !guide_open(r, &e.guide, error)) {
        return ENGINE_FAILED;
    }
    const enum engine_status status = engine_submit(r->service->params.engine, &e, &item->ticket, &retry_s, &why);
    if (status != ENGINE_OK) {
        item->ticket = NULL;
        text_guide_close(&e.guide);
        submit_refuse(status, retry_s, &why, error);
    }
    return status;
}

bool request_items_submit(struct request *r, struct api_error *error) {
    if (r->retry_us > ggml_time_us()) {
        return true;
    }
    r->is_stalled = false;
    while (r->n_submitted < r->n_items && r->n_submitted - r->n_ended < REQUEST_WINDOW) {
        struct api_error why = {0};
        const enum engine_status status = item_submit(r, &r->items[r->n_submitted], &why);
        if (status == ENGINE_FULL && r->n_submitted > 0) {
            r->is_stalled = true;
            r->retry_us = ggml_time_us() + RETRY_US;
            return true;
        }
        if (status != ENGINE_OK) {
            *error = why;
            return false;
        }
        r->n_submitted++;
    }
    return true;
}
