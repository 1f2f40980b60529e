// SPDX-License-Identifier: MIT
// request.c: begins and frees requests, and the service that they share (request.h).

#include "serve/request_internal.h"

#include <inttypes.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

// Bytes per token that a request reserves for its answer as JSON: text, and each log probability with its token's text and bytes.
#define TOKEN_SIZE 32
#define LOGPROB_SIZE 192
#define TOKENIZER_RATIO 90 // bytes of the tokenizer's work per byte of text, about
#define NUMBER_SIZE 20     // a number of an embedding, as text and as a float

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
    // A guide has its grammar, stacks and arrays, which are limited, and a sorted copy of the vocabulary. One more is for a grammar that
    // is being parsed, and for a copy of stacks from which unused ones are removed.
    const size_t per_guide = SERVICE_GRAMMAR_RATIO * API_MAX_SCHEMA_SIZE + 2 * SERVICE_STACKS_SIZE + (size_t) n_vocab * 32;
    const size_t per_request =
        sizeof(struct service_slot) + sizeof(struct request) + API_MAX_CHOICES * sizeof(struct request_item);
    // One thread tokenizes one text at a time.
    return p->answers_size + TOKENIZER_RATIO * p->max_text + (size_t) (p->n_guided + 1) * per_guide +
           (size_t) p->n_requests * per_request;
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

// ---- a new request ----

// Returns the bytes of a request that has been read from a body of this size. All its texts together are not larger than the body.
static size_t request_size(const struct request *r, size_t body_size) {
    const struct api_request *a = &r->api;
    size_t size = body_size + a->messages_room * sizeof *a->messages + a->inputs_room * sizeof *a->inputs +
                  a->stops_room * sizeof *a->stops + a->tokens_room * sizeof *a->tokens + a->biases_room * sizeof *a->biases +
                  a->tools_room * sizeof *a->tools + a->tools_size + r->n_prompts * sizeof *r->prompts;
    for (size_t i = 0; i < r->n_prompts; i++) {
        size += r->prompts[i].cap * sizeof *r->prompts[i].ids;
    }
    return size;
}

// Reserves memory for the request and its answers, so that no admitted request lacks it later.
static bool answers_reserve(struct request *r, size_t body_size, int64_t n_max, struct api_error *error) {
    struct service *s = r->service;
    const size_t own_size = request_size(r, body_size);
    size_t per_token = TOKEN_SIZE, size;
    if (r->api.has_logprobs) {
        per_token += ((size_t) r->api.n_logprobs + 1) * LOGPROB_SIZE;
    }
    if (r->api.n_tools > 0) {
        per_token += TOKEN_SIZE; // the part that is not divided yet
    }
    const size_t n = r->api.kind == API_EMBEDDING ? (size_t) s->params.n_embd : (size_t) n_max;
    if (!berth_mul_ok(n, r->api.kind == API_EMBEDDING ? NUMBER_SIZE : per_token, &size) ||
        !berth_mul_ok(size, r->n_items, &size) || size > s->params.answers_size || own_size > s->params.answers_size - size) {
        return api_fail(error, 400, "answer_too_large", NULL,
            "a request of %zu bytes with %zu answers of up to %" PRId64
            " tokens can need more than the %zu bytes that this server has for requests and answers",
            own_size, r->n_items, n_max, s->params.answers_size);
    }
    size += own_size;
    if (size > s->params.answers_size - s->answers_reserved) {
        api_fail(error, 429, "rate_limit_exceeded", NULL, "the request and its answer need up to %zu bytes, %zu of %zu are free",
            size, s->params.answers_size - s->answers_reserved, s->params.answers_size);
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
            "%zu answers with a schema or a required call requested, %d of %d are free", r->n_items,
            s->params.n_guided - s->n_guided, s->params.n_guided);
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
        !answers_reserve(r, size, n_max, error) || !guide_count(r, error)) {
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
    return request_items_submit(r, error);
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
        berth_free(item->rest);
        for (int k = 0; item->calls != NULL && k < item->n_calls; k++) {
            api_call_fini(&item->calls[k]);
        }
        berth_free(item->calls);
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
