// SPDX-License-Identifier: MIT
// fake_engine.c: the engine of fake_engine.h.

#include "serve/fake_engine.h"
#include "base/base.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_TOP 20

struct fake fake;

struct engine_ticket {
    struct engine_ticket *next;
    struct engine *engine;
    struct text_guide guide;
    int64_t n_prompt, n_max, n_made, n_read; // n_read: tokens whose text was read
    int n_wait, n_logprobs;
    bool is_embedding;
    enum engine_end end;
    void (*wake)(void *user);
    void *user;
    char text[4096]; // of the last engine_read
    struct engine_logprob logprobs[64];
    struct logprob top[64][MAX_TOP];
    float embedding[64];
};

struct engine {
    struct engine_params params;
    pthread_mutex_t lock;
    pthread_t thread;
    bool has_thread, is_closed, is_over;
    struct engine_ticket *tickets;
    struct engine_stats stats;
};

static void ticket_step(struct engine_ticket *t) {
    if (t->end != ENGINE_RUNNING) {
        return;
    }
    if (fake.forced_end != ENGINE_RUNNING) {
        t->end = fake.forced_end;
    } else if (t->n_wait > 0) {
        t->n_wait--;
    } else if (t->is_embedding) {
        t->end = ENGINE_STOP;
    } else {
        t->n_made++;
        if (t->n_made == fake.n_stop || (fake.words != NULL && fake.words[t->n_made] == NULL)) {
            t->end = ENGINE_STOP;
        } else if (t->n_made == t->n_max) {
            t->end = ENGINE_LENGTH;
        }
    }
}

void fake_step(struct engine *e) {
    void (*wakes[256])(void *user);
    void *users[256];
    int n = 0;
    pthread_mutex_lock(&e->lock);
    e->stats.n_steps++;
    for (struct engine_ticket *t = e->tickets; t != NULL; t = t->next) {
        ticket_step(t);
        if (t->wake != NULL && n < 256) {
            wakes[n] = t->wake;
            users[n++] = t->user;
        }
    }
    pthread_mutex_unlock(&e->lock);
    for (int i = 0; i < n; i++) {
        wakes[i](users[i]);
    }
}

static void *thread_run(void *arg) {
    struct engine *e = arg;
    bool is_over = false;
    while (!is_over) {
        usleep((useconds_t) fake.step_us);
        fake_step(e);
        pthread_mutex_lock(&e->lock);
        is_over = e->is_over;
        pthread_mutex_unlock(&e->lock);
    }
    return NULL;
}

struct engine *engine_new(const struct engine_params *params, struct model_error *error) {
    struct engine *e = calloc(1, sizeof *e);
    if (e == NULL) {
        model_fail(error, "out of memory");
        return NULL;
    }
    e->params = *params;
    pthread_mutex_init(&e->lock, NULL);
    e->stats.n_pool = params->n_pool;
    e->has_thread = fake.step_us > 0 && pthread_create(&e->thread, NULL, thread_run, e) == 0;
    return e;
}

bool engine_plan(const struct engine_params *params, struct engine_stats *out, struct model_error *error) {
    (void) error;
    *out = (struct engine_stats){.n_pool = params->n_pool, .cache = (size_t) params->n_pool * 1000};
    return true;
}

void engine_close(struct engine *e, int64_t drain_us) {
    (void) drain_us;
    pthread_mutex_lock(&e->lock);
    e->is_closed = true;
    for (struct engine_ticket *t = e->tickets; t != NULL; t = t->next) {
        if (t->end == ENGINE_RUNNING) {
            t->end = ENGINE_CANCELLED;
        }
    }
    pthread_mutex_unlock(&e->lock);
}

void engine_free(struct engine *e) {
    if (e == NULL) {
        return;
    }
    pthread_mutex_lock(&e->lock);
    e->is_over = true;
    pthread_mutex_unlock(&e->lock);
    if (e->has_thread) {
        pthread_join(e->thread, NULL);
    }
    pthread_mutex_destroy(&e->lock);
    free(e);
}

static enum engine_status status_find(const struct engine *e) {
    if (fake.submit_status != ENGINE_OK) {
        return fake.submit_status;
    }
    if (e->is_closed) {
        return ENGINE_CLOSED;
    }
    return fake.n_queue > 0 && fake.n_active >= fake.n_queue ? ENGINE_FULL : ENGINE_OK;
}

enum engine_status engine_submit(
    struct engine *e, const struct engine_request *r, struct engine_ticket **out, int *retry_s, struct model_error *error) {
    pthread_mutex_lock(&e->lock);
    enum engine_status status = status_find(e);
    struct engine_ticket *t = status == ENGINE_OK ? calloc(1, sizeof *t) : NULL;
    if (t == NULL) {
        model_fail(error, "the fake engine refuses: status %d", (int) status);
        *retry_s = 7;
        pthread_mutex_unlock(&e->lock);
        return status != ENGINE_OK ? status : ENGINE_FAILED;
    }
    *t = (struct engine_ticket){.next = e->tickets,
        .engine = e,
        .guide = r->guide,
        .n_prompt = r->n_tokens,
        .n_max = r->n_max,
        .n_wait = fake.n_wait_steps,
        .n_logprobs = r->n_logprobs,
        .is_embedding = r->is_embedding,
        .wake = r->wake,
        .user = r->user};
    e->tickets = t;
    fake.n_submitted++;
    fake.n_active++;
    fake.n_guides += r->guide.guide != NULL;
    fake.n_stops = r->n_stops;
    e->stats.n_requests++;
    *out = t;
    pthread_mutex_unlock(&e->lock);
    return ENGINE_OK;
}

void engine_read(struct engine_ticket *t, int64_t timeout_us, struct engine_piece *out) {
    (void) timeout_us;
    pthread_mutex_lock(&t->engine->lock);
    *out = (struct engine_piece){
        .text = t->text, .n_prompt = t->n_prompt, .n_made = t->n_made, .end = t->end, .is_waiting = t->n_wait > 0};
    for (; t->n_read < t->n_made && out->n_text < 4000 && out->n_logprobs < 64; t->n_read++) {
        out->n_text += fake.words != NULL ? (size_t) sprintf(t->text + out->n_text, "%s", fake.words[t->n_read])
                                          : (size_t) sprintf(t->text + out->n_text, " w%d", (int) t->n_read);
        if (t->n_logprobs >= 0) {
            struct engine_logprob *l = &t->logprobs[out->n_logprobs];
            *l = (struct engine_logprob){40 + (int32_t) t->n_read % 32, -0.5f, t->top[out->n_logprobs], t->n_logprobs};
            for (int k = 0; k < t->n_logprobs; k++) {
                t->top[out->n_logprobs][k] = (struct logprob){40 + k, -0.5f * (float) (k + 1)};
            }
            out->logprobs = t->logprobs;
            out->n_logprobs++;
        }
    }
    if (t->n_read < t->n_made) { // the rest follows
        out->end = ENGINE_RUNNING;
        out->has_more = true;
    }
    if (t->is_embedding && t->end == ENGINE_STOP) {
        for (int i = 0; i < 64; i++) {
            t->embedding[i] = (float) (i + 1);
        }
        out->embedding = t->embedding;
    }
    if (out->end == ENGINE_ERROR) {
        out->error = "the fake engine fails";
    }
    pthread_mutex_unlock(&t->engine->lock);
}

void engine_cancel(struct engine_ticket *t) {
    pthread_mutex_lock(&t->engine->lock);
    if (t->end == ENGINE_RUNNING) {
        t->end = ENGINE_CANCELLED;
        fake.n_cancelled++;
    }
    pthread_mutex_unlock(&t->engine->lock);
}

void engine_release(struct engine_ticket *t) {
    struct engine *e = t->engine;
    engine_cancel(t);
    pthread_mutex_lock(&e->lock);
    struct engine_ticket **at = &e->tickets;
    while (*at != t) {
        at = &(*at)->next;
    }
    *at = t->next;
    fake.n_active--;
    pthread_mutex_unlock(&e->lock);
    text_guide_close(&t->guide);
    free(t);
}

void engine_stats(struct engine *e, struct engine_stats *out) {
    pthread_mutex_lock(&e->lock);
    *out = e->stats;
    out->n_running = fake.n_active;
    pthread_mutex_unlock(&e->lock);
}
