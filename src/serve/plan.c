// SPDX-License-Identifier: MIT
// plan.c: plans the memory of a server (plan.h).

#include "serve/plan.h"
#include "base/min.h"
#include "model/vocab.h"

#include <inttypes.h>

#define DEFAULT_BATCH 512 // at least; two tokens per sequence
#define MAX_DEFAULT_CTX 4096
#define MAX_GUIDED 16

// ---- sizes of one setting ----

size_t serve_plan_size(const struct serve_plan *p) {
    return p->sizes.weights + p->sizes.cache + p->sizes.compute + p->sizes.work + p->sizes.own + p->http;
}

// Requests have at most one text of a full context each, with room for escapes; all bodies and all answers together have room for
// several of them.
static void http_size_set(const struct serve_question *q, const struct engine_params *e) {
    const size_t text_size = (size_t) e->n_ctx * 16;
    q->service->n_ctx = e->n_ctx;
    q->service->n_embd = e->model->params.n_embd;
    q->service->n_running = e->n_running;
    q->service->n_waiting = e->n_waiting;
    q->service->n_requests = q->http->n_connections;
    q->service->n_guided = min_int(MAX_GUIDED, max_int(e->n_running, API_MAX_CHOICES));
    q->service->answers_size = ((size_t) 8 << 20) + (size_t) (e->n_running + e->n_waiting) * (size_t) e->n_ctx * 32;
    q->http->max_body = ((size_t) 1 << 20) + text_size;
    q->http->bodies_size = 4 * q->http->max_body;
    q->service->max_text = min_size(q->http->max_body, (size_t) e->n_ctx * max_size(q->vocab->max_size, 1));
}

static bool plan_make(const struct serve_question *q, int64_t n_pool, struct serve_plan *plan, struct model_error *error) {
    plan->engine.n_pool = n_pool;
    plan->engine.n_batch = min_i64(q->n_batch > 0 ? q->n_batch : max_i64(DEFAULT_BATCH, 2 * (int64_t) q->n_running), n_pool);
    http_size_set(q, &plan->engine);
    plan->http = http_size(q->http) + service_size(q->service, q->vocab->n_tokens);
    return engine_plan(&plan->engine, &plan->sizes, error);
}

// ---- the largest pool ----

static int64_t pages_for(int64_t n_tokens) {
    return (n_tokens + SERVE_PAGE - 1) / SERVE_PAGE;
}

bool serve_plan_find(const struct serve_question *q, struct serve_plan *plan, struct model_error *error) {
    const struct model_params *m = &q->model->params;
    const int64_t n_ctx = q->n_ctx > 0 ? q->n_ctx : min_i64(m->n_ctx_train, MAX_DEFAULT_CTX);
    *plan = (struct serve_plan){.engine = {.model = q->model,
                                    .devices = q->devices,
                                    .vocab = q->vocab,
                                    .n_ctx = n_ctx,
                                    .n_page = SERVE_PAGE,
                                    .n_running = q->n_running,
                                    .n_waiting = q->n_waiting,
                                    .wait_us = q->wait_us,
                                    .is_deterministic = q->is_deterministic}};
    int64_t least = pages_for(n_ctx), most = least;
    if (!berth_mul_i64_ok(least, q->n_running, &most) || most > INT32_MAX / SERVE_PAGE) {
        return model_fail(error, "%d sequences of %" PRId64 " tokens are more than this server can address", q->n_running, n_ctx);
    }
    if (q->memory == 0) {
        return plan_make(q, most * SERVE_PAGE, plan, error);
    }
    if (!plan_make(q, least * SERVE_PAGE, plan, error)) {
        return false;
    }
    if (serve_plan_size(plan) > q->memory) {
        return model_fail(error,
            "one sequence of %" PRId64
            " tokens needs %zu bytes: weights %zu, cache %zu, compute %zu, work %zu, engine %zu, HTTP %zu; "
            "--memory is %zu; lower --ctx or --parallel",
            n_ctx, serve_plan_size(plan), plan->sizes.weights, plan->sizes.cache, plan->sizes.compute, plan->sizes.work,
            plan->sizes.own, plan->http, q->memory);
    }
    while (least < most) { // the pool of `least` pages fits
        const int64_t middle = least + (most - least + 1) / 2;
        if (!plan_make(q, middle * SERVE_PAGE, plan, error)) {
            return false;
        }
        if (serve_plan_size(plan) <= q->memory) {
            least = middle;
        } else {
            most = middle - 1;
        }
    }
    return plan_make(q, least * SERVE_PAGE, plan, error);
}
