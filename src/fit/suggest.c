// SPDX-License-Identifier: MIT
// suggest.c: finds settings of a model that would lower the memory of its plan.

#include "fit/fit.h"

#include <inttypes.h>

#define BATCH 512 // default batch of a session

static uint64_t plan_bytes(const struct view_plan *plan) {
    uint64_t sum = 0;
    for (size_t i = 0; i < plan->n_homes; i++) {
        sum += plan->homes[i].weights + plan->homes[i].cache + plan->homes[i].compute;
    }
    return sum;
}

// Plans the model with other options. Returns true if they save memory, or if planning failed.
static bool way_try(const char *path, const struct model_options *other, const struct view_plan *plan, struct fit_way *way) {
    const uint64_t taken = plan_bytes(plan);
    struct view_plan found = {0};
    const bool ok = view_plan_read_model(path, other, &found) == GGML_STATUS_SUCCESS;
    way->less = ok && plan_bytes(&found) < taken ? taken - plan_bytes(&found) : 0;
    snprintf(way->error, sizeof way->error, "%s", ok ? "" : berth_last_error());
    view_plan_free(&found);
    berth_clear_error();
    return !ok || way->less > 0;
}

int fit_ways_find(
    const char *path, const struct model_options *options, const struct view_plan *plan, struct fit_way ways[FIT_MAX_WAYS]) {
    int n = 0;
    struct model_options other = *options;
    if (plan->n_homes == 0) {
        return 0;
    }
    other.n_batch = (options->n_batch > 0 ? options->n_batch : BATCH) / 2;
    if (other.n_batch > 0) {
        snprintf(ways[n].option, sizeof ways[n].option, "-b %" PRId64, other.n_batch);
        n += way_try(path, &other, plan, &ways[n]);
    }
    other = *options;
    if (!options->has_cache_type) {
        other.has_cache_type = true;
        other.cache_k = other.cache_v = GGML_TYPE_Q8_0;
        snprintf(ways[n].option, sizeof ways[n].option, "--cache-type q8_0");
        n += way_try(path, &other, plan, &ways[n]);
    }
    return n;
}

bool fit_peak_init(struct fit_peak *p, const char *path, const struct model_options *options, struct model_error *error) {
    const struct berth_plan_params params = {0};
    bool is_stopped = false, ok = false;
    *p = (struct fit_peak){.report = {0}};
    if (view_plan_read(path, options, &(struct view_budget){0}, &p->plan) == GGML_STATUS_SUCCESS) {
        uint64_t *offsets = berth_malloc((p->plan.set->n_items + 1) * sizeof *offsets);
        ok = offsets != NULL && view_plan_solve(&p->plan, &params, offsets, &p->report, &is_stopped) == GGML_STATUS_SUCCESS;
        berth_free(offsets);
    }
    if (!ok) {
        const char *why = berth_last_error();
        model_fail(error, "%s", *why != '\0' ? why : "out of memory");
        fit_peak_fini(p);
    }
    return ok;
}

void fit_peak_fini(struct fit_peak *p) {
    view_plan_free(&p->plan);
    berth_clear_error();
}
