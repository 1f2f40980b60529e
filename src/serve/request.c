// SPDX-License-Identifier: MIT
// request.c: a request on the engine (request.h): submits its prompts, collects its answers.

#include "serve/request.h"
#include "base/json.h"
#include "base/min.h"
#include "serve/request_prompt.h"

#include <inttypes.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

// Bytes per token that a request reserves for its answer as JSON: text, and each log probability with its token's text and bytes.
#define TOKEN_SIZE 32
#define LOGPROB_SIZE 192
#define NUMBER_SIZE 20 // a number of an embedding, as text and as a float

// ---- the service ----

bool service_init(struct service *s, const struct service_params *params) {
    *s = (struct service){.params = *params, .wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    s->slots = berth_calloc((size_t) params->n_requests, sizeof *s->slots);
    if (s->slots == NULL || s->wake_fd < 0) {
        service_fini(s);
        return false;
    }
    for (int i = 0; i < params->n_requests; i++) {
        s->slots[i].service = s;
        atomic_init(&s->slots[i].has_news, false);
    }
    if (getrandom(&s->random, sizeof s->random, GRND_NONBLOCK) != (ssize_t) sizeof s->random) {
        s->random = (uint64_t) time(NULL) * 1000003 + (uint64_t) ggml_time_us();
    }
    return true;
}

void service_fini(struct service *s) {
    if (s->wake_fd >= 0) {
        close(s->wake_fd);
    }
    berth_free(s->slots);
    *s = (struct service){.wake_fd = -1};
}

size_t service_size(const struct service_params *p, int64_t n_vocab) {
    // A guide has its stacks, arrays of about the same size, and a sorted copy of the vocabulary.
    const size_t per_guide = SERVICE_GRAMMAR_RATIO * API_MAX_SCHEMA_SIZE + 2 * SERVICE_STACKS_SIZE + (size_t) n_vocab * 32;
    const size_t per_request =
        sizeof(struct service_slot) + sizeof(struct request) + API_MAX_CHOICES * sizeof(struct request_item);
    return p->answers_size + (size_t) p->n_guided * per_guide + (size_t) p->n_requests * per_request;
}

// Called by the engine's thread.
static void service_wake(void *user) {
    struct service_slot *slot = user;
    const uint64_t one = 1;
    if (!atomic_exchange(&slot->has_news, true)) {
        // Fails only if the counter is at its maximum, and then the descriptor is readable already.
        (void) !write(slot->service->wake_fd, &one, sizeof one);
    }
}

static uint64_t seed_next(struct service *s) { // splitmix64
    uint64_t x = s->random += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

static struct service_slot *slot_take(struct service *s, struct request *r) {
    for (int i = 0; i < s->params.n_requests; i++) {
        if (s->slots[i].request == NULL) {
            s->slots[i].request = r;
            s->n_active++;
            return &s->slots[i];
        }
    }
    return NULL;
}

// ---- submitting ----

// Opens the grammar of a schema, with the limits of a server.
static bool guide_open(const struct request *r, struct text_guide *guide, struct api_error *error) {
    const struct guide_source source = {
        .text = r->api.schema, .size = r->api.schema_size, .name = "response_format", .is_schema = true};
    struct model_error why = {""};
    char *text = schema_to_grammar(&source, &why);
    *guide = (struct text_guide){NULL, NULL};
    if (text != NULL) {
        guide->grammar = grammar_new(text, strlen(text), NULL, NULL, &why);
        berth_free(text);
    }
    if (guide->grammar != NULL) {
        guide->grammar->max_stack_size = SERVICE_STACKS_SIZE;
        guide->grammar->max_steps = SERVICE_STEPS_LEAST + SERVICE_STEPS_PER_TOKEN * (uint64_t) r->service->params.vocab->n_tokens;
        guide->guide = guide_new(guide->grammar, r->service->params.vocab, &why);
    }
    if (guide->guide != NULL) {
        return true;
    }
    text_guide_close(guide);
    return api_fail(error, 400, "invalid_schema", "response_format", "%s", why.text);
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

static enum engine_status item_submit(struct request *r, struct request_item *item, struct api_error *error) {
    const struct api_request *a = &r->api;
    const struct token_list *prompt = &r->prompts[item->input];
    struct model_error why = {""};
    int retry_s = 0;
    struct engine_request e = {.tokens = prompt->ids,
        .n_tokens = (int64_t) prompt->n,
        .n_max = request_item_max(r, item->input),
        .sampling = a->sampling,
        .stops = a->stops,
        .n_stops = (int) a->n_stops,
        .n_logprobs = a->has_logprobs ? (int) a->n_logprobs : -1,
        .is_embedding = a->kind == API_EMBEDDING,
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

// Submits items until the window is full. False: *error is set. If the engine is full although items of this request have begun,
// the others are submitted later.
static bool items_submit(struct request *r, struct api_error *error) {
    r->is_stalled = false;
    while (r->n_submitted < r->n_items && r->n_submitted - r->n_ended < REQUEST_WINDOW) {
        struct api_error why = {0};
        const enum engine_status status = item_submit(r, &r->items[r->n_submitted], &why);
        if (status == ENGINE_FULL && r->n_submitted > 0) {
            r->is_stalled = r->n_submitted == r->n_ended;
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

// ---- a new request ----

// Reserves memory for the answers, so that no admitted request lacks it later.
static bool answers_reserve(struct request *r, int64_t n_max, struct api_error *error) {
    struct service *s = r->service;
    size_t per_token = TOKEN_SIZE, size;
    if (r->api.has_logprobs) {
        per_token += ((size_t) r->api.n_logprobs + 1) * LOGPROB_SIZE;
    }
    const size_t n = r->api.kind == API_EMBEDDING ? (size_t) s->params.n_embd : (size_t) n_max;
    if (!berth_mul_ok(n, r->api.kind == API_EMBEDDING ? NUMBER_SIZE : per_token, &size) ||
        !berth_mul_ok(size, r->n_items, &size) || size > s->params.answers_size) {
        return api_fail(error, 400, "answer_too_large", NULL,
            "%zu answers of up to %" PRId64 " tokens can have more than the %zu bytes that this server has for answers",
            r->n_items, n_max, s->params.answers_size);
    }
    if (size > s->params.answers_size - s->answers_reserved) {
        api_fail(error, 429, "rate_limit_exceeded", NULL, "the answer needs up to %zu bytes, %zu of %zu are free", size,
            s->params.answers_size - s->answers_reserved, s->params.answers_size);
        error->retry_s = API_RETRY_S;
        return false;
    }
    r->reserved = size;
    s->answers_reserved += size;
    return true;
}

static bool guide_count(struct request *r, struct api_error *error) {
    struct service *s = r->service;
    if (r->api.schema == NULL) {
        return true;
    }
    if (s->n_guided + (int) r->n_items > s->params.n_guided) {
        const int status = (int) r->n_items > s->params.n_guided ? 400 : 429;
        api_fail(error, status, "rate_limit_exceeded", "response_format",
            "%zu answers with a schema requested, %d of %d are free", r->n_items, s->params.n_guided - s->n_guided,
            s->params.n_guided);
        error->retry_s = status == 429 ? API_RETRY_S : 0;
        return false;
    }
    r->is_guided = true;
    s->n_guided += (int) r->n_items;
    return true;
}

static bool items_make(struct request *r, struct api_error *error) {
    const size_t n_choices = (size_t) r->api.n_choices;
    r->n_items = r->n_prompts * n_choices;
    r->items = berth_calloc(r->n_items, sizeof *r->items);
    if (r->items == NULL) {
        r->n_items = 0;
        return api_out_of_memory(error);
    }
    const uint64_t seed = r->api.has_seed ? r->api.sampling.seed : seed_next(r->service);
    for (size_t i = 0; i < r->n_items; i++) {
        r->items[i] = (struct request_item){.input = i / n_choices, .seed = seed + i % n_choices};
        r->items[i].logprobs.n_top = r->api.n_logprobs;
    }
    return true;
}

static bool request_init(struct request *r, enum api_kind kind, const char *body, size_t size, struct api_error *error) {
    static const char *const prefixes[API_N_KINDS] = {"chatcmpl", "cmpl", "embd"};
    struct service *s = r->service;
    int64_t n_max = 0;
    r->slot = slot_take(s, r);
    if (r->slot == NULL) {
        api_fail(error, 429, "rate_limit_exceeded", NULL, "%d requests are active, which is the limit", s->params.n_requests);
        error->retry_s = API_RETRY_S;
        return false;
    }
    if (!api_request_read(&r->api, kind, body, size, error) || !request_prompts_make(r, &n_max, error) || !items_make(r, error) ||
        !answers_reserve(r, n_max, error) || !guide_count(r, error)) {
        return false;
    }
    snprintf(r->id, sizeof r->id, "%s-%08" PRIx64 "%08" PRIx64, prefixes[kind], (uint64_t) s->params.created & 0xffffffffu,
        ++s->n_ids);
    r->reply = (struct api_reply){.kind = kind,
        .id = r->id,
        .model = s->params.model,
        .created = (int64_t) time(NULL),
        .vocab = s->params.vocab,
        .has_stream_usage = r->api.has_stream_usage,
        .is_base64 = r->api.is_base64};
    return items_submit(r, error);
}

struct request *request_new(struct service *s, enum api_kind kind, const char *body, size_t size, struct api_error *error) {
    struct request *r = berth_calloc(1, sizeof *r);
    if (r == NULL) {
        api_out_of_memory(error);
        return NULL;
    }
    r->service = s;
    if (!request_init(r, kind, body, size, error)) {
        request_free(r);
        return NULL;
    }
    return r;
}

void request_free(struct request *r) {
    if (r == NULL) {
        return;
    }
    struct service *s = r->service;
    for (size_t i = 0; i < r->n_items; i++) {
        struct request_item *item = &r->items[i];
        if (item->ticket != NULL) {
            engine_release(item->ticket);
        }
        berth_free(item->text);
        berth_free(item->embedding);
        logprobs_fini(&item->logprobs);
    }
    for (size_t i = 0; r->prompts != NULL && i < r->n_prompts; i++) {
        token_list_fini(&r->prompts[i]);
    }
    if (r->is_guided) {
        s->n_guided -= (int) r->n_items;
    }
    s->answers_reserved -= r->reserved;
    if (r->slot != NULL) {
        r->slot->request = NULL;
        s->n_active--;
    }
    berth_free(r->prompts);
    berth_free(r->items);
    berth_free(r->out);
    api_request_fini(&r->api);
    berth_free(r);
}

// ---- collecting ----

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
    bool ok = berth_stream_close(&s);
    ok = ok && bytes_append(&r->out, &r->n_out, &r->out_room, s.text, s.size);
    berth_stream_fini(&s);
    return ok;
}

static int64_t chars_count(const char *text, size_t n) {
    int64_t n_chars = 0;
    for (size_t i = 0; i < n; i++) {
        n_chars += ((uint8_t) text[i] & 0xc0) != 0x80;
    }
    return n_chars;
}

static bool piece_stream(struct request *r, struct request_item *item, const struct engine_piece *piece) {
    const struct api_choice choice = {.index = (int) (item - r->items),
        .text = piece->text,
        .n_text = piece->n_text,
        .logprobs = r->api.has_logprobs ? &item->logprobs : NULL,
        .text_off = item->n_chars,
        .is_first = !item->is_begun,
        .end = piece->end};
    if (piece->n_text == 0 && piece->n_logprobs == 0 && piece->end == ENGINE_RUNNING) {
        return true;
    }
    const bool ok = event_append(r, &choice, NULL);
    item->is_begun = true;
    item->n_chars += chars_count(piece->text, piece->n_text);
    item->logprobs.n = 0;
    return ok;
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
    item->usage = (struct api_usage){piece.n_prompt, piece.n_cached, piece.n_made};
    if (!end_check(r, &piece)) {
        return false;
    }
    bool ok = logprobs_append(&item->logprobs, &piece);
    if (ok && r->api.is_stream) {
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
        engine_release(item->ticket);
        item->ticket = NULL;
    }
    return ok || api_out_of_memory(&r->error);
}

static bool items_poll(struct request *r) {
    for (size_t i = 0; i < r->n_submitted; i++) {
        if (r->items[i].ticket != NULL && !item_poll(r, &r->items[i])) {
            return false;
        }
    }
    return items_submit(r, &r->error);
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
    bool ok = state == REQUEST_FAILED ? event_append(r, NULL, NULL) : true; // the error
    if (state == REQUEST_DONE && r->api.has_stream_usage) {
        ok = event_append(r, NULL, &usage);
    }
    if (state == REQUEST_DONE) {
        ok = ok && event_append(r, NULL, NULL);
    }
    return ok ? state : (api_out_of_memory(&r->error), REQUEST_FAILED);
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
            .end = item->end};
    }
    api_write_answers(file, &r->reply, choices, (int) r->n_items, &usage);
}
