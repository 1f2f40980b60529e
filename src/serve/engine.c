// SPDX-License-Identifier: MIT
// engine.c: creates an engine and accepts requests (engine.h).

#include "base/min.h"
#include "serve/engine_state.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

// ---- memory ----

// Wakes of one ticket between two rounds of calls: for its tokens, for its end, for unread text, and for its next request.
#define MAX_WAKES 4

// A client may hold as many ended tickets as sequences run, so that slow clients do not keep others out.
static int ticket_count(const struct engine_params *p) {
    return 2 * p->n_running + p->n_waiting;
}

static size_t item_count(const struct engine_params *p) {
    return (size_t) min_i64(p->n_ctx * (ENGINE_MAX_LOGPROBS + 1), ENGINE_MAX_ITEMS);
}

static size_t filter_size(const struct engine_params *p) {
    return text_filter_size_for(p->vocab, ENGINE_MAX_STOP_SIZE);
}

static struct admit_params admit_params_of(const struct engine_params *p) {
    return (struct admit_params){.n_page = p->n_page,
        .n_pages = p->n_pool / p->n_page,
        .n_ctx = p->n_ctx,
        .n_batch = p->n_batch,
        .n_running = p->n_running};
}

static struct pool_params pool_params_of(const struct engine_params *p) {
    return (struct pool_params){.n_ctx = p->n_ctx,
        .n_rows = p->n_pool / p->n_page * p->n_page,
        .n_page = p->n_page,
        .n_batch = p->n_batch,
        .n_seq = p->n_running,
        .is_deterministic = p->is_deterministic,
        .cache_k = p->has_cache_type ? p->cache_k : GGML_TYPE_F16,
        .cache_v = p->has_cache_type ? p->cache_v : GGML_TYPE_F16};
}

// Bytes of a ticket with its arrays.
static size_t ticket_size(const struct engine_params *p) {
    return sizeof(struct engine_ticket) + (size_t) p->n_ctx * sizeof(int32_t) + 3 * filter_size(p) + ENGINE_READ_SIZE +
           item_count(p) * sizeof(struct logprob) + (size_t) p->model->params.n_embd * sizeof(float);
}

static size_t own_size(const struct engine_params *p) {
    const struct admit_params admit = admit_params_of(p);
    const size_t n_tickets = (size_t) ticket_count(p), n_vocab = (size_t) p->model->params.n_vocab;
    const size_t per_logit = 2 * (sizeof(float) + sizeof(int32_t)) + 2 * sizeof(float); // struct sampler: heap, logits
    return sizeof(struct engine) + n_tickets * (ticket_size(p) + MAX_WAKES * sizeof(struct wake_call)) +
           (size_t) p->n_running * sizeof(struct engine_ticket *) + n_vocab * per_logit + admit_size(&admit);
}

static void sizes_set(const struct engine_params *p, const struct pool *pool, struct engine_stats *out) {
    for (int d = 0; d < p->devices->n; d++) {
        const struct session_memory *m = &pool->session->memory[d];
        out->weights += m->weights;
        out->cache += m->cache;
        out->compute += m->compute;
        out->work += m->work;
    }
    out->own = own_size(p);
    out->n_pool = pool->params.n_rows;
}

static bool params_check(const struct engine_params *p, struct model_error *error) {
    if (p->n_page < 1 || p->n_pool < p->n_page) {
        return model_fail(error, "a cache of %" PRId64 " tokens has no page of %" PRId64 " tokens", p->n_pool, p->n_page);
    }
    if (p->n_running < 1 || p->n_running > 4096 || p->n_waiting < 1 || p->n_waiting > (1 << 20)) {
        return model_fail(
            error, "%d running and %d waiting requests are outside 1 ... 4096 and 1 ... %d", p->n_running, p->n_waiting, 1 << 20);
    }
    if (p->is_deterministic && !pool_ops_of(p->model)->is_deterministic) {
        return model_fail(error,
            "--deterministic requires Berth's own graphs: %s runs this model, and its results depend on the other requests",
            p->model->engine->name);
    }
    return true;
}

bool engine_plan(const struct engine_params *params, struct engine_stats *out, struct model_error *error) {
    *out = (struct engine_stats){0};
    if (!params_check(params, error)) {
        return false;
    }
    struct pool_params pool_params = pool_params_of(params);
    pool_params.plan_only = true;
    struct pool *pool = pool_new(params->model, params->devices, &pool_params, error);
    if (pool == NULL) {
        return false;
    }
    sizes_set(params, pool, out);
    pool_free(pool);
    return true;
}

// ---- creation ----

// Writes the new memory, so that it is resident: a later step cannot fail because the system has no page left.
static void *array_new(struct engine *e, size_t n, size_t size) {
    void *p = berth_arrays_new(&e->memory, n, size);
    if (p != NULL) {
        memset(p, 0, n * size);
    }
    return p;
}

static void tickets_make(struct engine *e) {
    struct engine_params *p = &e->params;
    for (int i = e->n_tickets; i-- > 0 && !e->memory.has_failed;) {
        struct engine_ticket *t = &e->tickets[i];
        t->engine = e;
        t->tokens = array_new(e, (size_t) p->n_ctx, sizeof *t->tokens);
        t->filter_memory = array_new(e, filter_size(p), 1);
        t->read_memory = array_new(e, filter_size(p), 1);
        t->text = array_new(e, ENGINE_READ_SIZE + filter_size(p), 1);
        t->logs.items = array_new(e, e->n_items, sizeof *t->logs.items);
        t->embedding = array_new(e, (size_t) p->model->params.n_embd, sizeof *t->embedding);
        t->next = e->free;
        e->free = t;
    }
}

static bool memory_make(struct engine *e, struct model_error *error) {
    const struct engine_params *p = &e->params;
    const struct admit_params admit = admit_params_of(p);
    const struct pool_params pool = pool_params_of(p);
    e->pool = pool_new(p->model, p->devices, &pool, error);
    if (e->pool == NULL) {
        return false;
    }
    e->admit = admit_new(&admit);
    if (e->admit == NULL) {
        return model_fail(error, "%s", berth_last_error());
    }
    e->n_items = item_count(p);
    e->n_tickets = ticket_count(p);
    e->tickets = array_new(e, (size_t) e->n_tickets, sizeof *e->tickets);
    e->max_wakes = MAX_WAKES * e->n_tickets;
    e->wakes = array_new(e, (size_t) e->max_wakes, sizeof *e->wakes);
    e->running = array_new(e, (size_t) p->n_running, sizeof *e->running);
    if (e->tickets != NULL) {
        tickets_make(e);
    }
    if (e->memory.has_failed || !sampler_reserve(&e->scratch, p->model->params.n_vocab)) {
        return model_fail(error, "out of memory for %zu bytes of %d requests", own_size(p), e->n_tickets);
    }
    sizes_set(p, e->pool, &e->stats);
    return true;
}

static void deterministic_set(const struct model_devices *devices, bool is_deterministic) {
    void (*set)(ggml_backend_t backend, bool batch_invariant) = NULL;
    const int host = devices->n - 1;
    model_device_proc(devices->dev[host], "berth_cpu_set_batch_invariant", &set);
    if (set != NULL && is_deterministic) {
        set(devices->backend[host], true);
    }
}

static void locks_make(struct engine *e) {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->work, &monotonic);
    for (int i = 0; i < e->n_tickets; i++) {
        pthread_cond_init(&e->tickets[i].news, &monotonic);
    }
    pthread_condattr_destroy(&monotonic);
    e->has_locks = true;
}

struct engine *engine_new(const struct engine_params *params, struct model_error *error) {
    if (!params_check(params, error)) {
        return NULL;
    }
    struct engine *e = berth_calloc(1, sizeof *e);
    if (e == NULL) {
        model_fail(error, "out of memory");
        return NULL;
    }
    e->params = *params;
    deterministic_set(params->devices, params->is_deterministic);
    if (!memory_make(e, error)) {
        engine_free(e);
        return NULL;
    }
    locks_make(e);
    const int code = pthread_create(&e->thread, NULL, engine_run, e);
    e->has_thread = code == 0;
    if (code != 0) {
        model_fail(error, "cannot start the engine's thread: %s", strerror(code));
        engine_free(e);
        return NULL;
    }
    return e;
}

void engine_close(struct engine *e, int64_t drain_us) {
    pthread_mutex_lock(&e->lock);
    const bool is_first = !e->is_closed;
    e->is_closed = true;
    e->deadline_us = engine_now_us() + max_i64(drain_us, 0);
    pthread_cond_signal(&e->work);
    pthread_mutex_unlock(&e->lock);
    if (is_first) {
        pthread_join(e->thread, NULL);
    }
}

void engine_free(struct engine *e) {
    if (e == NULL) {
        return;
    }
    if (e->has_thread) {
        engine_close(e, 0);
    }
    for (int i = 0; e->has_locks && i < e->n_tickets; i++) {
        pthread_cond_destroy(&e->tickets[i].news);
    }
    if (e->has_locks) {
        pthread_cond_destroy(&e->work);
        pthread_mutex_destroy(&e->lock);
    }
    pool_free(e->pool);
    admit_free(e->admit);
    sampler_fini(&e->scratch);
    berth_arrays_free(&e->memory);
    berth_free(e);
}

// ---- requests ----

// Checks everything about a request that does not depend on other requests.
static enum engine_status request_check(const struct engine *e, const struct engine_request *r, struct model_error *error) {
    const struct engine_params *p = &e->params;
    const int64_t n_vocab = p->model->params.n_vocab;
    for (int64_t i = 0; i < r->n_tokens; i++) {
        if (r->tokens[i] < 0 || r->tokens[i] >= n_vocab) {
            model_fail(error, "token %d is outside the vocabulary of %" PRId64 " tokens", r->tokens[i], n_vocab);
            return ENGINE_FAILED;
        }
    }
    if (r->n_tokens < 1 || (!r->is_embedding && r->n_max < 1)) {
        model_fail(error, "a request needs at least one token and one new token, but has %" PRId64 " and %" PRId64, r->n_tokens,
            r->n_max);
        return ENGINE_FAILED;
    }
    if (r->n_stops > ENGINE_MAX_STOPS || r->sampling.n_biases > ENGINE_MAX_BIASES || r->n_logprobs > ENGINE_MAX_LOGPROBS) {
        model_fail(error, "%d stop texts, %" PRId64 " biases and %d alternatives are above the limits of %d, %d and %d",
            r->n_stops, r->sampling.n_biases, r->n_logprobs, ENGINE_MAX_STOPS, ENGINE_MAX_BIASES, ENGINE_MAX_LOGPROBS);
        return ENGINE_FAILED;
    }
    for (int i = 0; i < r->n_stops; i++) {
        const size_t size = strlen(r->stops[i]);
        if (size == 0 || size > ENGINE_MAX_STOP_SIZE) {
            model_fail(error, "stop text %d has %zu bytes; 1 ... %d are allowed", i + 1, size, ENGINE_MAX_STOP_SIZE);
            return ENGINE_FAILED;
        }
    }
    return ENGINE_OK;
}

// Refuses a request that does not fit even if no other request runs.
static enum engine_status size_check(const struct engine *e, const struct engine_request *r, struct model_error *error) {
    const struct engine_params *p = &e->params;
    const int64_t n_new = r->is_embedding ? 0 : min_i64(r->n_max, INT64_MAX / 4), n_all = r->n_tokens + n_new;
    const int64_t n_pages = (n_all - min_i64(n_new, 1) + p->n_page - 1) / p->n_page, n_have = p->n_pool / p->n_page;
    struct admit_reason reason = {.why = ADMIT_WHY_NONE};
    if (n_all > p->n_ctx) {
        reason = (struct admit_reason){.why = ADMIT_WHY_CONTEXT, .n_need = n_all, .n_have = p->n_ctx};
    } else if (n_pages > n_have) {
        reason = (struct admit_reason){.why = ADMIT_WHY_PAGES, .n_need = n_pages, .n_have = n_have};
    }
    if (reason.why != ADMIT_WHY_NONE) {
        char text[160];
        model_fail(error, "%s", admit_explain(&reason, text, sizeof text));
        return ENGINE_NEVER;
    }
    const int64_t n_items = n_new * (r->n_logprobs + 1);
    if (n_items > (int64_t) e->n_items) {
        model_fail(error,
            "%" PRId64 " new tokens with %d alternatives each need %" PRId64 " log probabilities, above the limit of %zu", n_new,
            r->n_logprobs, n_items, e->n_items);
        return ENGINE_NEVER;
    }
    return ENGINE_OK;
}

static void sampler_set(struct engine_ticket *t, const struct engine_sampling *s) {
    sampler_init(&t->sampler, s->temperature, s->top_k, s->top_p, s->seed);
    t->sampler.min_p = s->min_p;
    t->sampler.repeat = s->repeat;
    t->sampler.frequency = s->frequency;
    t->sampler.presence = s->presence;
    t->sampler.n_biases = s->n_biases;
    t->sampler.biases = t->biases;
    if (s->n_biases > 0) {
        memcpy(t->biases, s->biases, (size_t) s->n_biases * sizeof *s->biases);
    }
    t->sampler.last_n = ENGINE_LAST_N;
    t->sampler.past = t->past;
    t->sampler.past_room = ENGINE_LAST_N;
    for (int64_t i = 0; i < t->n_prompt; i++) {
        sampler_accept(&t->sampler, t->tokens[i]); // does not allocate, because `past` has the right size
    }
}

static void ticket_fill(struct engine_ticket *t, const struct engine_request *r) {
    const struct engine *e = t->engine;
    t->is_cancelled = false;
    t->is_released = false;
    t->has_more = false;
    t->end = ENGINE_RUNNING;
    t->ended = ENGINE_RUNNING;
    t->n_made = 0;
    t->n_cached = 0;
    t->n_new = 0;
    t->n_read = 0;
    t->is_over = false;
    t->id = -1;
    t->error.text[0] = '\0';
    t->n_prompt = r->n_tokens;
    t->n_max = r->is_embedding ? 0 : r->n_max;
    t->n_logprobs = r->n_logprobs;
    t->is_embedding = r->is_embedding;
    t->wake = r->wake;
    t->user = r->user;
    t->guide = r->guide;
    t->begin_us = engine_now_us();
    t->logs.n_top = max_int(r->n_logprobs, 0);
    t->logs.n = 0;
    t->logs.room = e->n_items / (size_t) (t->logs.n_top + 1);
    memcpy(t->tokens, r->tokens, (size_t) r->n_tokens * sizeof *r->tokens);
    memset(t->embedding, 0, (size_t) e->params.model->params.n_embd * sizeof *t->embedding);
    for (int i = 0; i < r->n_stops; i++) {
        memcpy(t->stop_texts[i], r->stops[i], strlen(r->stops[i]) + 1);
        t->stops[i] = t->stop_texts[i];
    }
    text_filter_init(&t->filter, e->params.vocab, t->stops, r->n_stops, t->filter_memory);
    text_filter_init(&t->read_filter, e->params.vocab, t->stops, r->n_stops, t->read_memory);
    sampler_set(t, &r->sampling);
}

// Returns a number of seconds after which the queue is probably shorter.
static int retry_after(const struct engine *e) {
    return (int) clamp_i64(e->n_wait_steps * e->step_us / 1000000, 1, 60);
}

// Appends a ticket to the queue. Requires the lock.
static enum engine_status request_queue(struct engine *e, const struct engine_request *r, struct engine_ticket **out) {
    if (e->is_closed) {
        return ENGINE_CLOSED;
    }
    struct engine_ticket *t = e->free;
    if (t == NULL || e->stats.n_waiting == e->params.n_waiting) {
        e->stats.n_refused += !r->is_retried;
        return ENGINE_FULL;
    }
    e->free = t->next;
    ticket_fill(t, r);
    t->state = TICKET_WAITING;
    t->next = NULL;
    if (e->last != NULL) {
        e->last->next = t;
    } else {
        e->first = t;
    }
    e->last = t;
    e->stats.n_waiting++;
    e->stats.n_requests++;
    pthread_cond_signal(&e->work);
    *out = t;
    return ENGINE_OK;
}

enum engine_status engine_submit(
    struct engine *e, const struct engine_request *r, struct engine_ticket **out, int *retry_s, struct model_error *error) {
    *out = NULL;
    enum engine_status status = request_check(e, r, error);
    if (status == ENGINE_OK) {
        status = size_check(e, r, error);
    }
    pthread_mutex_lock(&e->lock);
    if (status != ENGINE_OK) {
        e->stats.n_refused++;
    } else {
        status = request_queue(e, r, out);
    }
    const int n_waiting = e->stats.n_waiting;
    if (retry_s != NULL) {
        *retry_s = retry_after(e);
    }
    pthread_mutex_unlock(&e->lock);
    if (status == ENGINE_FULL) {
        model_fail(error, "the queue is full: %d of %d requests wait, and %d can be open at once", n_waiting, e->params.n_waiting,
            e->n_tickets);
    } else if (status == ENGINE_CLOSED) {
        model_fail(error, "the engine is shutting down");
    }
    return status;
}

void engine_stats(struct engine *e, struct engine_stats *out) {
    pthread_mutex_lock(&e->lock);
    *out = e->stats;
    pthread_mutex_unlock(&e->lock);
}
