// SPDX-License-Identifier: MIT
// further.c: predicts or measures the decode speed of a setting, and finds the effect of more memory.

#include "fit/fit.h"

#define STEP_SIZE ((uint64_t) 1 << 30)

static bool is_limited_by_memory(const struct fit_answer *a) {
    return !a->fits || a->ctx_limit == FIT_MEMORY || a->batch_limit == FIT_MEMORY || a->n_host > 0 || a->n_host_experts > 0 ||
           (a->cache != GGML_TYPE_F16 && a->full != FIT_NONE);
}

// Adds one GiB to the limit of device `full` and solves again.
static bool next_find(struct fit_next *next, struct fit_question *q, int full, const struct model_speed *speed, double tried,
    struct model_error *error) {
    struct fit_limit *limit = fit_limits_get(&q->limits, full);
    struct workbench m;
    next->bytes = limit->bytes += STEP_SIZE;
    next->device = limit->device;
    if (!fit_open(q, &m, error)) {
        return false;
    }
    const bool ok = fit_solve(q, &m, &next->answer, error);
    if (ok && next->answer.fits) {
        next->per_second = model_speed_predict(speed, m.session) * (tried > 0 ? tried : 1);
    }
    workbench_close(&m);
    return ok;
}

// Finds the effect of up to FIT_N_NEXT more GiB. Each GiB is added to the limit that was exceeded last. Restores the limits
// afterwards.
static bool further_find(
    struct fit_found *f, struct fit_question *q, const struct model_speed *speed, struct model_error *error) {
    const struct fit_answer *a = &f->answer;
    int n_raised = 0;
    bool ok = true;
    while (ok && f->n_next < FIT_N_NEXT && is_limited_by_memory(a) && a->full != FIT_NONE) {
        struct fit_next *next = &f->next[f->n_next];
        ok = next_find(next, q, a->full, speed, f->tried, error);
        a = &next->answer;
        n_raised++;
        f->n_next += ok;
    }
    for (int i = 0; i < n_raised; i++) {
        fit_limits_get(&q->limits, f->next[i].device)->bytes -= STEP_SIZE;
    }
    return ok;
}

// Measures the decode speed. Returns tokens per second; 0: the model is too large for a measurement, or cannot run.
static double speed_try(const struct fit_question *q, const struct workbench *m, const struct fit_answer *a) {
    struct model_options o = q->model;
    struct model_error error = {""};
    struct workbench trial;
    if (!m->model->engine->can_replan || fit_bytes(m, FIT_ALL) > SPEED_TRIAL_SIZE) {
        return 0;
    }
    fit_apply(q, a, &o);
    if (!workbench_open(&trial, &o, &error)) {
        return 0;
    }
    const double per_second = workbench_session_open(&trial, &o, &error) ? model_speed_trial(trial.session, &error) : 0;
    workbench_close(&trial);
    return per_second;
}

bool fit_find(struct fit_question *q, struct workbench *m, struct fit_found *out, struct model_error *error) {
    struct model_speed speed = {0};
    *out = (struct fit_found){.n_next = 0};
    bool ok = fit_solve(q, m, &out->answer, error);
    if (ok && out->answer.fits && model_speed_measure(m->model, &m->devices, 1, &speed)) {
        out->per_second = model_speed_predict(&speed, m->session);
        const double measured = out->per_second > 0 ? speed_try(q, m, &out->answer) : 0;
        if (measured > 0) {
            out->tried = measured / out->per_second;
            out->per_second = measured;
        }
        if (m->model->engine->can_replan) {
            struct model_error why = {""}; // the prediction is optional
            out->prompt_per_second = model_speed_prompt(m->session, &out->n_prompt, &why);
        }
        ok = further_find(out, q, &speed, error);
    }
    model_speed_fini(&speed);
    return ok;
}
