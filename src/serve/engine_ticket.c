// SPDX-License-Identifier: MIT
// engine_ticket.c: how a client reads, cancels and releases a request (engine.h). The text is computed here, from the tokens: so a slow
// reader needs no more memory than its tokens.

#include "base/min.h"
#include "serve/engine_state.h"

#include <string.h>

// ---- for the engine's thread ----

void ticket_free(struct engine_ticket *t) {
    t->state = TICKET_FREE;
    t->next = t->engine->free;
    t->engine->free = t;
}

void ticket_end(struct engine_ticket *t, enum engine_end end) {
    struct engine_stats *stats = &t->engine->stats;
    if (end == ENGINE_CANCELLED) {
        stats->n_cancelled++;
    } else if (end == ENGINE_TIMEOUT) {
        stats->n_refused++;
    } else if (end == ENGINE_ERROR) {
        stats->n_failed++;
    } else {
        stats->n_done++;
    }
    t->state = TICKET_ENDED;
    t->end = end;
    if (t->is_released) {
        ticket_free(t);
    } else {
        pthread_cond_broadcast(&t->news);
    }
}

// ---- reading ----

// What engine_read may return, copied with the lock held.
struct view {
    int64_t n_made;
    enum engine_end end;
};

static bool has_news(const struct engine_ticket *t) {
    return t->n_made > t->n_read || t->end != ENGINE_RUNNING;
}

static struct view view_get(struct engine_ticket *t, int64_t timeout_us, struct engine_piece *out) {
    struct engine *e = t->engine;
    const int64_t until_us = engine_now_us() + timeout_us;
    pthread_mutex_lock(&e->lock);
    while (timeout_us > 0 && !has_news(t) && engine_wait(e, &t->news, until_us)) {
    }
    const struct view view = {.n_made = t->n_made, .end = t->end};
    *out = (struct engine_piece){
        .text = t->text, .n_prompt = t->n_prompt, .n_cached = t->n_cached, .is_waiting = t->state == TICKET_WAITING};
    pthread_mutex_unlock(&e->lock);
    return view;
}

static void text_append(struct engine_ticket *t, struct engine_piece *out, const char *text, size_t n) {
    memcpy(t->text + out->n_text, text, n);
    out->n_text += n;
}

static void logprob_append(struct engine_ticket *t, struct engine_piece *out) {
    const struct logprob *items = t->logs.items + t->n_read * (t->logs.n_top + 1);
    int n_top = 0;
    while (n_top < t->logs.n_top && items[1 + n_top].token >= 0) {
        n_top++;
    }
    t->read_logprobs[out->n_logprobs++] =
        (struct engine_logprob){.token = items[0].token, .log = items[0].log, .top = items + 1, .n_top = n_top};
    out->logprobs = t->read_logprobs;
}

// Appends the text of published tokens, as far as it fits into the piece.
static void tokens_read(struct engine_ticket *t, int64_t n_made, struct engine_piece *out) {
    for (int i = 0; i < ENGINE_READ_TOKENS && t->n_read < n_made && out->n_text < ENGINE_READ_SIZE; i++) {
        char *text;
        const size_t n = text_filter_put(&t->read_filter, t->tokens[t->n_prompt + t->n_read], &text);
        text_append(t, out, text, n);
        if (t->n_logprobs >= 0) {
            logprob_append(t, out);
        }
        t->n_read++;
    }
}

static void end_read(struct engine_ticket *t, enum engine_end end, struct engine_piece *out) {
    out->end = end;
    if (!t->is_over) {
        char *text;
        const size_t n = text_filter_end(&t->read_filter, &text);
        text_append(t, out, text, n);
        t->is_over = true;
    }
    if (end == ENGINE_ERROR) {
        out->error = t->error.text;
    } else if (t->is_embedding && end == ENGINE_STOP) {
        out->embedding = t->embedding;
    }
}

void engine_read(struct engine_ticket *t, int64_t timeout_us, struct engine_piece *out) {
    const struct view view = view_get(t, timeout_us, out);
    tokens_read(t, view.n_made, out);
    out->n_made = t->n_read;
    if (t->n_read == view.n_made && out->n_text < ENGINE_READ_SIZE) {
        if (view.end != ENGINE_RUNNING) {
            end_read(t, view.end, out);
        }
        return;
    }
    out->has_more = true;
    pthread_mutex_lock(&t->engine->lock);
    t->has_more = true;
    pthread_cond_signal(&t->engine->work);
    pthread_mutex_unlock(&t->engine->lock);
}

// ---- the end ----

void engine_cancel(struct engine_ticket *t) {
    pthread_mutex_lock(&t->engine->lock);
    t->is_cancelled = true;
    pthread_cond_signal(&t->engine->work);
    pthread_mutex_unlock(&t->engine->lock);
}

void engine_release(struct engine_ticket *t) {
    if (t == NULL) {
        return;
    }
    struct engine *e = t->engine;
    pthread_mutex_lock(&e->lock);
    t->is_released = true;
    t->is_cancelled = true;
    if (t->state == TICKET_WAITING) {
        text_guide_close(&t->guide); // the client counts its guides, and a step may take long
    }
    if (t->state == TICKET_ENDED) {
        ticket_free(t);
    } else {
        pthread_cond_signal(&e->work);
    }
    pthread_mutex_unlock(&e->lock);
}
