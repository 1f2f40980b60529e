// SPDX-License-Identifier: MIT
// engine_step.c: the engine's thread. It repeats:
//
//     1. With the lock: end cancelled and expired requests, admit waiting requests.
//     2. Without the lock: compute the tokens of every running sequence, choose the next tokens.
//     3. With the lock: publish the tokens, end finished requests.
//     4. Without the lock: call `wake` of the requests that have something new.
//
// A step has one graph for the sequences that generate text and one for those that compute embeddings.

#include "base/min.h"
#include "serve/engine_state.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

// ---- 1: requests ----

static void wake_add(struct engine *e, const struct engine_ticket *t) {
    if (t->wake != NULL && !t->is_released && e->n_wakes < e->max_wakes) {
        e->wakes[e->n_wakes++] = (struct wake_call){t->wake, t->user};
    }
}

// Ends a ticket that does not run. Requires the lock.
static void ticket_finish(struct engine *e, struct engine_ticket *t, enum engine_end end) {
    wake_add(e, t);
    text_guide_close(&t->guide);
    ticket_end(t, end);
}

// Ends a running ticket. Its pages are free from now on. Requires the lock.
static void ticket_stop(struct engine *e, struct engine_ticket *t, enum engine_end end) {
    pool_end(e->pool, t->id);
    admit_end(e->admit, t->id);
    e->running[t->id] = NULL;
    ticket_finish(e, t, end);
}

static enum engine_end waiting_end(const struct engine *e, const struct engine_ticket *t, int64_t now_us) {
    if (t->is_cancelled || e->is_closed) {
        return ENGINE_CANCELLED;
    }
    return e->params.wait_us > 0 && now_us - t->begin_us >= e->params.wait_us ? ENGINE_TIMEOUT : ENGINE_RUNNING;
}

// Ends the waiting requests that were cancelled or have waited too long.
static void waiting_end_all(struct engine *e, int64_t now_us) {
    struct engine_ticket **at = &e->first;
    e->last = NULL;
    while (*at != NULL) {
        struct engine_ticket *t = *at;
        const enum engine_end end = waiting_end(e, t, now_us);
        if (end == ENGINE_RUNNING) {
            e->last = t;
            at = &t->next;
        } else {
            *at = t->next;
            e->stats.n_waiting--;
            ticket_finish(e, t, end);
        }
    }
}

static void running_end_all(struct engine *e, int64_t now_us) {
    const bool is_late = e->is_closed && now_us >= e->deadline_us;
    for (int id = 0; id < e->params.n_running; id++) {
        if (e->running[id] != NULL && (is_late || e->running[id]->is_cancelled)) {
            ticket_stop(e, e->running[id], ENGINE_CANCELLED);
        }
    }
}

static void has_more_wake(struct engine *e) {
    for (int i = 0; i < e->n_tickets; i++) {
        struct engine_ticket *t = &e->tickets[i];
        if (t->has_more) {
            t->has_more = false;
            if (t->state == TICKET_RUNNING || t->state == TICKET_ENDED) {
                wake_add(e, t);
            }
        }
    }
}

// Returns the number of prompt tokens of t, in complete pages, that the prompt of a running request begins with too.
static int64_t common_tokens(const struct engine *e, const struct engine_ticket *t, const struct engine_ticket *running) {
    const int64_t n_most = min_i64(t->n_prompt - 1, running->n_prompt);
    int64_t n = 0;
    while (n < n_most && t->tokens[n] == running->tokens[n]) {
        n++;
    }
    return n / e->params.n_page * e->params.n_page;
}

// Returns the number of tokens that running requests will have computed for t soon, because their prompts begin with the same
// tokens; 0: no more than n_cached. It is faster to wait for them than to compute them twice. Requests that arrive together, such as
// several answers to one prompt, would share nothing otherwise.
static int64_t tokens_soon(const struct engine *e, const struct engine_ticket *t, int64_t n_cached) {
    int64_t n_soon = 0;
    const bool can_share = e->pool->can_share && !t->is_embedding;
    for (int id = 0; can_share && id < e->params.n_running; id++) {
        if (e->running[id] != NULL && admit_computed(e->admit, id) < e->running[id]->n_prompt) {
            n_soon = max_i64(n_soon, common_tokens(e, t, e->running[id]));
        }
    }
    return n_soon > n_cached ? n_soon : 0;
}

// Asks for the first waiting request to run. ADMIT_WAIT: stats.why_waiting has the reason. Requires the lock.
static enum admit_status ticket_admit(struct engine *e, struct engine_ticket *t, struct admit_reason *reason) {
    struct pages_prefix found = {0};
    if (!t->is_embedding) { // an embedding needs the hidden states of all tokens
        found = pool_find(e->pool, t->tokens, t->n_prompt);
    }
    const int64_t n_soon = tokens_soon(e, t, found.n_cached);
    if (n_soon > 0) {
        snprintf(e->stats.why_waiting, sizeof e->stats.why_waiting,
            "a running request computes the first %" PRId64 " tokens of the same prompt", n_soon);
        e->stats.waiting_kind = "prefix";
        return ADMIT_WAIT;
    }
    const struct admit_request request = {.n_prompt = t->n_prompt,
        .n_new = t->n_max,
        .n_cached = found.n_cached,
        .n_shared = found.n_shared,
        .sharer = found.sharer};
    const enum admit_status status = admit_request(e->admit, &request, &t->id, reason);
    if (status == ADMIT_YES) {
        pool_start(e->pool, t->id, t->tokens, &found);
        e->running[t->id] = t;
        t->state = TICKET_RUNNING;
        t->n_cached = found.n_cached;
        e->stats.n_cached_tokens += found.n_cached;
    } else if (status == ADMIT_WAIT) {
        admit_explain(reason, e->stats.why_waiting, sizeof e->stats.why_waiting);
        e->stats.waiting_kind = reason->why == ADMIT_WHY_RUNNING ? "running" : "pages";
    }
    return status;
}

static void waiting_admit(struct engine *e) {
    struct admit_reason reason = {.why = ADMIT_WHY_NONE};
    e->stats.why_waiting[0] = '\0';
    e->stats.waiting_kind = NULL;
    while (e->first != NULL) {
        struct engine_ticket *t = e->first;
        const enum admit_status status = ticket_admit(e, t, &reason);
        if (status == ADMIT_WAIT) {
            break;
        }
        e->first = t->next;
        if (e->first == NULL) {
            e->last = NULL;
        }
        e->stats.n_waiting--;
        if (status != ADMIT_YES) { // engine_submit has refused such requests
            char text[160];
            model_fail(&t->error, "%s", admit_explain(&reason, text, sizeof text));
            ticket_finish(e, t, ENGINE_ERROR);
        }
    }
    e->n_wait_steps = e->first != NULL ? reason.n_wait : 0;
}

// ---- 2: a step ----

// Adds the tokens of a running sequence to the batch.
static void ticket_add(struct engine *e, struct engine_ticket *t) {
    const int64_t n = admit_tokens(e->admit, t->id), pos = admit_computed(e->admit, t->id);
    const struct pool_run run = {.tokens = t->tokens + pos,
        .n = n,
        .pos = pos,
        .seq = t->id,
        .has_logits = !t->is_embedding && pos + n == t->n_prompt + t->n_new};
    const int64_t result = pool_add(e->pool, &run, &t->error);
    t->result = run.has_logits || t->is_embedding ? result : -1;
    if (result < 0) {
        t->ended = ENGINE_ERROR;
    }
}

static void token_add(struct engine *e, struct engine_ticket *t) {
    const int64_t n_vocab = e->params.model->params.n_vocab;
    const struct token_chooser chooser = {
        .sampler = &t->sampler, .guide = t->guide.guide, .logs = t->n_logprobs >= 0 ? &t->logs : NULL};
    t->sampler.heap = e->scratch.heap;
    t->sampler.n_heap = e->scratch.n_heap;
    t->sampler.logits = e->scratch.logits;
    t->sampler.n_logits = e->scratch.n_logits;
    const int32_t token = token_choose(&chooser, pool_result(e->pool, t->result), n_vocab, &t->error);
    if (token == TOKEN_FAILED) {
        t->ended = ENGINE_ERROR;
        return;
    }
    if (token == TOKEN_NONE || vocab_is_end(e->params.vocab, token)) {
        t->ended = ENGINE_STOP;
        return;
    }
    t->tokens[t->n_prompt + t->n_new++] = token;
    char *text;
    text_filter_put(&t->filter, token, &text);
    if (t->filter.is_over) {
        t->ended = ENGINE_STOP;
    } else if (t->n_new == t->n_max) {
        t->ended = ENGINE_LENGTH;
    }
}

static void embedding_add(struct engine *e, struct engine_ticket *t) {
    const int64_t n_embd = e->params.model->params.n_embd;
    const int64_t n = admit_tokens(e->admit, t->id), pos = admit_computed(e->admit, t->id);
    for (int64_t i = 0; i < n; i++) {
        const float *hidden = pool_result(e->pool, t->result + i);
        for (int64_t k = 0; k < n_embd; k++) {
            t->embedding[k] += hidden[k];
        }
    }
    if (pos + n == t->n_prompt) {
        for (int64_t k = 0; k < n_embd; k++) {
            t->embedding[k] /= (float) t->n_prompt;
        }
        t->ended = ENGINE_STOP;
    }
}

// Uses the result of a computed sequence.
static void ticket_advance(struct engine *e, struct engine_ticket *t) {
    const int64_t n = admit_tokens(e->admit, t->id), pos = admit_computed(e->admit, t->id);
    pool_learn(e->pool, t->id, t->tokens, pos + n);
    if (t->is_embedding) {
        embedding_add(e, t);
    } else if (t->result >= 0) {
        token_add(e, t);
    }
}

// Computes the running sequences of one kind.
static void sequences_compute(struct engine *e, bool is_embedding) {
    struct model_error error = {""};
    int n = 0;
    pool_batch(e->pool, is_embedding);
    for (int id = 0; id < e->params.n_running; id++) {
        if (e->running[id] != NULL && e->running[id]->is_embedding == is_embedding) {
            ticket_add(e, e->running[id]);
            n++;
        }
    }
    if (n == 0) {
        return;
    }
    const bool ok = e->pool->n_tokens > 0 && pool_decode(e->pool, &error);
    for (int id = 0; id < e->params.n_running; id++) {
        struct engine_ticket *t = e->running[id];
        if (t == NULL || t->is_embedding != is_embedding || t->ended != ENGINE_RUNNING) {
            continue;
        }
        if (ok) {
            ticket_advance(e, t);
        } else {
            model_fail(&t->error, "%s", error.text);
            t->ended = ENGINE_ERROR;
        }
    }
}

// ---- 3: publication ----

static void ticket_publish(struct engine *e, struct engine_ticket *t, int64_t now_us) {
    const int64_t n = admit_tokens(e->admit, t->id), pos = admit_computed(e->admit, t->id);
    e->stats.n_prompt_tokens += clamp_i64(t->n_prompt - pos, 0, n);
    e->stats.n_made_tokens += t->n_new - t->n_made;
    if (t->n_new > t->n_made) {
        if (t->n_made == 0) {
            latency_add(&e->stats.first, now_us - t->begin_us);
        } else {
            latency_add(&e->stats.next, now_us - t->token_us);
        }
        t->token_us = now_us;
        t->n_made = t->n_new;
        if (t->ended == ENGINE_RUNNING) {
            wake_add(e, t);
            pthread_cond_broadcast(&t->news);
        }
    }
}

static void stats_set(struct engine *e) {
    e->stats.n_used = pages_n_used(e->pool->pages) * e->params.n_page;
    e->stats.n_promised_peak = admit_peak(e->admit) * e->params.n_page;
    e->stats.n_running = admit_n_running(e->admit);
}

// Requires the lock.
static void step_publish(struct engine *e, int64_t begin_us) {
    const int64_t now_us = engine_now_us(), step_us = now_us - begin_us;
    for (int id = 0; id < e->params.n_running; id++) {
        if (e->running[id] != NULL) {
            ticket_publish(e, e->running[id], now_us);
        }
    }
    for (int id = 0; id < e->params.n_running; id++) {
        if (e->running[id] != NULL && e->running[id]->ended != ENGINE_RUNNING) {
            ticket_stop(e, e->running[id], e->running[id]->ended);
        }
    }
    admit_advance(e->admit);
    stats_set(e);
    e->stats.n_steps++;
    e->step_us = e->step_us > 0 ? (7 * e->step_us + step_us) / 8 : step_us;
}

// ---- the thread ----

// Steps 1 and 4. Returns whether a sequence runs; waits for work if none does. *is_over: the engine is closed and nothing runs.
static bool work_find(struct engine *e, bool *is_over) {
    pthread_mutex_lock(&e->lock);
    const int64_t now_us = engine_now_us();
    waiting_end_all(e, now_us);
    running_end_all(e, now_us);
    waiting_admit(e);
    has_more_wake(e);
    stats_set(e);
    const bool has_running = e->stats.n_running > 0;
    *is_over = e->is_closed && !has_running;
    if (!has_running && !*is_over && e->n_wakes == 0) {
        // With no sequence running, the first waiting request was admitted, so none waits.
        engine_wait(e, &e->work, 0);
    }
    pthread_mutex_unlock(&e->lock);
    for (int i = 0; i < e->n_wakes; i++) {
        e->wakes[i].wake(e->wakes[i].user);
    }
    e->n_wakes = 0;
    return has_running;
}

void *engine_run(void *engine) {
    struct engine *e = engine;
    for (bool is_over = false; !is_over;) {
        if (!work_find(e, &is_over)) {
            continue;
        }
        const int64_t begin_us = engine_now_us();
        sequences_compute(e, false);
        sequences_compute(e, true);
        pthread_mutex_lock(&e->lock);
        step_publish(e, begin_us);
        pthread_mutex_unlock(&e->lock);
    }
    return NULL;
}
