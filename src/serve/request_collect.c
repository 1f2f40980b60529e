// SPDX-License-Identifier: MIT
// request_collect.c: collects the answers of a request from the engine, and writes its response (request.h).

#include "serve/request_internal.h"

#include <inttypes.h>
#include <string.h>

static bool bytes_append(char **to, size_t *n, size_t *room, const char *bytes, size_t size) {
    if (size == 0) {
        return true;
    }
    if (!BERTH_GROW(to, room, *n + size)) {
        return false;
    }
    memcpy(*to + *n, bytes, size);
    *n += size;
    return true;
}

static bool logprobs_append(struct logprobs *l, const struct engine_piece *piece) {
    const size_t row = (size_t) l->n_top + 1;
    for (int i = 0; i < piece->n_logprobs; i++) {
        const struct engine_logprob *from = &piece->logprobs[i];
        if (!BERTH_GROW(&l->items, &l->room, (l->n + 1) * row)) {
            return false;
        }
        struct logprob *to = l->items + l->n * row;
        to[0] = (struct logprob){from->token, from->log};
        for (int64_t k = 1; k <= l->n_top; k++) {
            to[k] = k <= from->n_top ? from->top[k - 1] : (struct logprob){-1, 0};
        }
        l->n++;
    }
    return true;
}

static bool embedding_copy(struct request *r, struct request_item *item, const float *vector) {
    const size_t size = (size_t) r->service->params.n_embd * sizeof *vector;
    item->embedding = berth_malloc(size);
    if (item->embedding == NULL) {
        return false;
    }
    memcpy(item->embedding, vector, size);
    return true;
}

// Appends an event to r->out. Without choice and usage: the error, or the last event.
static bool event_append(struct request *r, const struct api_choice *choice, const struct api_usage *usage) {
    struct berth_stream s;
    if (!berth_stream_open(&s)) {
        return false;
    }
    if (choice != NULL || usage != NULL) {
        api_write_event(s.file, &r->reply, choice, usage);
    } else if (r->error.status != 0) {
        api_write_error_event(s.file, &r->error);
    } else {
        api_write_done(s.file);
    }
    const bool ok = berth_stream_close(&s) && bytes_append(&r->out, &r->n_out, &r->out_room, s.text, s.size);
    berth_stream_fini(&s);
    return ok;
}

// Writes a part of an answer as an event. choice has its text or its call, and its end.
static bool choice_stream(struct request *r, struct request_item *item, struct api_choice choice) {
    choice.index = (int) (item - r->items);
    choice.logprobs = r->api.has_logprobs ? &item->logprobs : NULL;
    choice.text_off = item->n_chars;
    choice.is_first = !item->is_begun;
    choice.first_call = item->n_calls;
    const bool ok = event_append(r, &choice, NULL);
    item->is_begun = true;
    item->n_chars += api_chars_count(choice.text, choice.n_text);
    item->logprobs.n = 0;
    return ok;
}

static bool piece_stream(struct request *r, struct request_item *item, const struct engine_piece *piece) {
    if (piece->n_text == 0 && piece->n_logprobs == 0 && piece->end == ENGINE_RUNNING) {
        return true;
    }
    return choice_stream(r, item, (struct api_choice){.text = piece->text, .n_text = piece->n_text, .end = piece->end});
}

// ---- answers with tools ----

static bool call_take(struct request *r, struct request_item *item, struct api_call *call) {
    // "chatcmpl-NUMBER" is the id of the request.
    snprintf(call->id, sizeof call->id, "call_%s_%d_%d", strchr(r->id, '-') + 1, (int) (item - r->items), item->n_calls);
    bool ok = false;
    if (r->api.is_stream) {
        ok = choice_stream(r, item, (struct api_choice){.text = "", .calls = call, .n_calls = 1});
        api_call_fini(call);
    } else {
        ok = BERTH_GROW(&item->calls, &item->calls_room, (size_t) item->n_calls + 1);
        if (ok) {
            item->calls[item->n_calls] = *call;
        } else {
            api_call_fini(call);
        }
    }
    item->n_calls += ok;
    return ok;
}

static bool part_take(struct request *r, struct request_item *item, struct api_part *part) {
    if (part->call.name != NULL) {
        return call_take(r, item, &part->call);
    }
    if (part->n_text == 0) {
        return true;
    }
    return r->api.is_stream ? choice_stream(r, item, (struct api_choice){.text = part->text, .n_text = part->n_text})
                            : bytes_append(&item->text, &item->n_text, &item->text_room, part->text, part->n_text);
}

// Divides what the engine has made into text and calls, as far as it is complete. A call that is required begins in the prompt.
static bool piece_divide(struct request *r, struct request_item *item, const struct engine_piece *piece) {
    const struct chat_tools *tools = r->service->params.chat->tools;
    const bool is_end = piece->end != ENGINE_RUNNING;
    if (r->api.choice == API_TOOLS_REQUIRED && item->rest == NULL &&
        !bytes_append(&item->rest, &item->n_rest, &item->rest_room, tools->call_begin, strlen(tools->call_begin))) {
        return false;
    }
    if (!bytes_append(&item->rest, &item->n_rest, &item->rest_room, piece->text, piece->n_text)) {
        return false;
    }
    struct api_part part = {.n_used = 1};
    size_t at = 0;
    for (; at < item->n_rest && part.n_used > 0; at += part.n_used) {
        if (!api_answer_divide(tools, item->rest + at, item->n_rest - at, is_end, item->n_calls > 0, &part) ||
            !part_take(r, item, &part)) {
            return false;
        }
    }
    if (at > 0) {
        item->n_rest -= at;
        memmove(item->rest, item->rest + at, item->n_rest);
    }
    return !is_end || !r->api.is_stream || choice_stream(r, item, (struct api_choice){.text = "", .end = piece->end});
}

static bool end_check(struct request *r, const struct engine_piece *piece) {
    switch (piece->end) {
        case ENGINE_TIMEOUT:
            api_fail(&r->error, 429, "rate_limit_exceeded", NULL, "the request waited too long for memory");
            r->error.retry_s = API_RETRY_S;
            return false;
        case ENGINE_CANCELLED:
            api_fail(&r->error, 503, "cancelled", NULL, "the request was cancelled after %" PRId64 " tokens", piece->n_made);
            r->error.retry_s = API_RETRY_S;
            return false;
        case ENGINE_ERROR:
            return api_fail(&r->error, 500, NULL, NULL, "the request failed after %" PRId64 " tokens: %s", piece->n_made,
                piece->error != NULL ? piece->error : "unknown cause");
        default: return true;
    }
}

// Reads the news of one item. False: r->error is set.
static bool item_poll(struct request *r, struct request_item *item) {
    struct engine_piece piece = {0};
    engine_read(item->ticket, 0, &piece);
    r->is_admitted = r->is_admitted || !piece.is_waiting;
    r->has_more = r->has_more || piece.has_more;
    item->usage = (struct api_usage){piece.n_prompt, piece.n_cached, piece.n_made};
    if (!end_check(r, &piece)) {
        return false;
    }
    bool ok = logprobs_append(&item->logprobs, &piece);
    if (ok && r->api.n_tools > 0) {
        ok = piece_divide(r, item, &piece);
    } else if (ok && r->api.is_stream) {
        ok = piece_stream(r, item, &piece);
    } else if (ok) {
        ok = bytes_append(&item->text, &item->n_text, &item->text_room, piece.text, piece.n_text);
    }
    if (ok && piece.embedding != NULL && piece.end != ENGINE_RUNNING) {
        ok = embedding_copy(r, item, piece.embedding);
    }
    if (ok && r->api.kind == API_EMBEDDING && piece.end != ENGINE_RUNNING && item->embedding == NULL) {
        return api_fail(&r->error, 500, NULL, NULL, "the engine returned no vector for text %zu", item->input);
    }
    item->end = piece.end;
    if (piece.end != ENGINE_RUNNING) {
        r->n_ended++;
        r->retry_us = 0; // the engine has room now
        engine_release(item->ticket);
        item->ticket = NULL;
    }
    return ok || api_out_of_memory(&r->error);
}

static bool items_poll(struct request *r) {
    r->has_more = false;
    for (size_t i = 0; i < r->n_submitted; i++) {
        if (r->items[i].ticket != NULL && !item_poll(r, &r->items[i])) {
            return false;
        }
    }
    return request_items_submit(r, &r->error);
}

enum request_state request_state(const struct request *r) {
    if (r->error.status != 0) {
        return REQUEST_FAILED;
    }
    if (r->n_ended == r->n_items) {
        return REQUEST_DONE;
    }
    return r->is_admitted ? REQUEST_RUNNING : REQUEST_WAITING;
}

enum request_state request_poll(struct request *r) {
    if (request_state(r) == REQUEST_FAILED) {
        return REQUEST_FAILED;
    }
    if (!items_poll(r) && r->error.status == 0) {
        api_out_of_memory(&r->error);
    }
    const enum request_state state = request_state(r);
    if (!r->api.is_stream || r->is_closed || (state != REQUEST_DONE && state != REQUEST_FAILED)) {
        return state;
    }
    const struct api_usage usage = request_usage(r);
    r->is_closed = true;
    const bool has_usage = state == REQUEST_DONE && r->api.has_stream_usage;
    if ((has_usage && !event_append(r, NULL, &usage)) ||
        !event_append(r, NULL, NULL)) { // the second: the error, or the last event
        api_out_of_memory(&r->error);
        return REQUEST_FAILED;
    }
    return state;
}

// ---- the response ----

struct api_usage request_usage(const struct request *r) {
    struct api_usage sum = {0};
    for (size_t i = 0; i < r->n_items; i++) {
        const struct request_item *item = &r->items[i];
        // The answers to one prompt count it once.
        if (i == 0 || item->input != r->items[i - 1].input) {
            sum.n_prompt += item->usage.n_prompt;
            sum.n_cached += item->usage.n_cached;
        }
        sum.n_made += item->usage.n_made;
    }
    return sum;
}

void request_write(const struct request *r, FILE *file) {
    const struct api_usage usage = request_usage(r);
    if (r->api.kind == API_EMBEDDING) {
        const float *vectors[API_MAX_INPUTS];
        for (size_t i = 0; i < r->n_items; i++) {
            vectors[i] = r->items[i].embedding;
        }
        api_write_embeddings(file, &r->reply, vectors, (int) r->n_items, r->service->params.n_embd, &usage);
        return;
    }
    struct api_choice choices[API_MAX_CHOICES];
    for (size_t i = 0; i < r->n_items; i++) {
        const struct request_item *item = &r->items[i];
        choices[i] = (struct api_choice){.index = (int) i,
            .text = item->text,
            .n_text = item->n_text,
            .logprobs = r->api.has_logprobs ? &item->logprobs : NULL,
            .calls = item->calls,
            .n_calls = item->n_calls,
            .end = item->end};
    }
    api_write_answers(file, &r->reply, choices, (int) r->n_items, &usage);
}
