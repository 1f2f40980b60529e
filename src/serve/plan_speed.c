// SPDX-License-Identifier: MIT
// plan_speed.c: how many users a planned server has at the same time, why one more waits, and how fast their tokens are generated.
// The speed comes from measurements of the devices (model/speed.c). A small model is measured itself: it computes steps in which
// every user has half of a context, whose contents do not change the time.

#include "admit/admit.h"
#include "base/min.h"
#include "model/pool.h"
#include "serve/plan.h"

#define TRIAL_US 200000 // microseconds of a trial
#define TRIAL_STEPS 4   // steps at least; the first one plans the graph

// ---- users ----

int serve_plan_users(const struct serve_plan *plan, char *text, size_t size) {
    const struct engine_params *e = &plan->engine;
    const struct admit_params params = {.n_page = e->n_page,
        .n_pages = e->n_pool / e->n_page,
        .n_ctx = e->n_ctx,
        .n_batch = e->n_batch,
        .n_running = e->n_running};
    const struct admit_request full = {.n_prompt = 1, .n_new = e->n_ctx - 1};
    struct admit_reason reason;
    struct admit *a = admit_new(&params);
    int n = 0, id;
    if (a == NULL) {
        return 0;
    }
    while (admit_request(a, &full, &id, &reason) == ADMIT_YES) {
        n++;
    }
    admit_explain(&reason, text, size);
    admit_free(a);
    return n;
}

// ---- speed ----

static double speed_predict(const struct serve_plan *plan, int n_users, struct model_error *error) {
    const struct engine_params *e = &plan->engine;
    const struct session_params params = {.n_ctx = e->n_ctx,
        .n_batch = min_i64(e->n_batch, e->n_ctx),
        .cache_k = GGML_TYPE_F16,
        .cache_v = GGML_TYPE_F16,
        .plan_only = true};
    struct model_speed speed = {0};
    struct session *s = session_new(e->model, e->devices, &params, error);
    double per_second = 0;
    if (s != NULL && session_reserve(s, error) && model_speed_measure(e->model, e->devices, n_users, &speed)) {
        per_second = model_speed_predict(&speed, s);
    }
    model_speed_fini(&speed);
    session_free(s);
    return per_second;
}

// Computes one token of every user after `pos` positions.
static bool step_compute(struct pool *pool, int n_users, int64_t pos, struct model_error *error) {
    static const int32_t token = 0;
    pool_batch(pool, false);
    for (int i = 0; i < n_users; i++) {
        const struct pool_run run = {.tokens = &token, .n = 1, .pos = pos, .seq = i, .has_logits = true};
        if (pool_add(pool, &run, error) < 0) {
            return false;
        }
    }
    return pool_decode(pool, error);
}

static double pool_speed(struct pool *pool, int n_users, struct model_error *error) {
    const int64_t pos = pool->params.n_ctx / 2, begin = ggml_time_us();
    int64_t best = INT64_MAX;
    for (int i = 0; i < TRIAL_STEPS || ggml_time_us() - begin < TRIAL_US; i++) {
        const int64_t start = ggml_time_us();
        if (!step_compute(pool, n_users, pos, error)) {
            return 0;
        }
        if (i > 0) {
            best = min_i64(best, max_i64(ggml_time_us() - start, 1));
        }
    }
    return n_users * 1e6 / (double) best;
}

static double speed_try(const struct serve_plan *plan, const struct model_options *o, int n_users, struct model_error *error) {
    const struct engine_params *e = &plan->engine;
    const struct pool_params params = {.n_ctx = e->n_ctx,
        .n_rows = e->n_pool / e->n_page * e->n_page,
        .n_page = e->n_page,
        .n_batch = e->n_batch,
        .n_seq = e->n_running,
        .cache_k = GGML_TYPE_F16,
        .cache_v = GGML_TYPE_F16};
    struct model_options loaded = *o;
    struct workbench m;
    loaded.plan_only = false;
    if (!workbench_open(&m, &loaded, error)) {
        return 0;
    }
    struct pool *pool = pool_new(m.model, &m.devices, &params, error);
    const double per_second = pool != NULL ? pool_speed(pool, n_users, error) : 0;
    pool_free(pool);
    workbench_close(&m);
    return per_second;
}

double serve_plan_speed(const struct serve_plan *plan, const struct model_options *o, int n_users, struct model_error *error) {
    const struct engine_stats *sizes = &plan->sizes;
    const bool is_small = sizes->weights + sizes->cache + sizes->compute + sizes->work <= SPEED_TRIAL_SIZE;
    return is_small ? speed_try(plan, o, n_users, error) : speed_predict(plan, n_users, error);
}
