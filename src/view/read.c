// SPDX-License-Identifier: MIT
// read.c: reads any input file as a plan. A model is planned as a session with the context and batch of the options. The weights
// are not read.

#include "base/base.h"
#include "model/workbench.h"
#include "view/plan.h"

#include <string.h>

// ---- models ----

static enum ggml_status sched_write(FILE *file, void *sched) {
    return berth_sched_save(sched, file);
}

static bool homes_fill(const struct model *model, const struct session *session, struct view_plan *plan) {
    const struct model_devices *devices = session->devices;
    plan->homes = berth_calloc((size_t) devices->n + 1, sizeof *plan->homes);
    for (int d = 0; d < devices->n && plan->homes != NULL; d++) {
        const struct session_memory *m = &session->memory[d];
        if (m->weights + m->cache + m->compute > 0) {
            struct view_home *home = &plan->homes[plan->n_homes++];
            *home = (struct view_home){
                .weights = m->weights, .cache = m->cache, .compute = m->compute, .is_mapped = model->parts[d].is_mapped};
            snprintf(home->device, sizeof home->device, "%s", ggml_backend_dev_name(devices->dev[d]));
        }
    }
    return plan->homes != NULL;
}

enum ggml_status view_plan_read_model(const char *path, const struct model_options *options, struct view_plan *plan) {
    struct session_params params = workbench_session_params(options);
    struct model_error error = {""};
    struct model_devices devices = {0};
    struct session *session = NULL;
    enum ggml_status status = GGML_STATUS_FAILED;
    params.plan_only = true;
    ggml_backend_load_all();
    struct model *model = workbench_model(path, options, &error);
    if (model != NULL && model_devices_open(&devices, NULL, 0, &error) &&
        model_place(model, &devices, true, NULL, NULL, &error)) {
        session = session_new(model, &devices, &params, &error);
    }
    if (session == NULL || !session_reserve(session, &error)) {
        berth_set_error("%s", error.text);
    } else if (!homes_fill(model, session, plan)) {
        status = berth_fail(GGML_STATUS_ALLOC_FAILED, "%s: out of memory", path);
    } else {
        plan->n_ctx_train = model->params.n_ctx_train;
        status = view_set_make(sched_write, session->sched, path, &plan->set);
    }
    session_free(session);
    model_free(model);
    model_devices_close(&devices);
    return status;
}

// ---- files of any kind ----

enum ggml_status view_plan_read(
    const char *path, const struct model_options *options, const struct view_budget *budget, struct view_plan *plan) {
    const bool is_graph = berth_ends_with(path, ".ggraph") || berth_ends_with(path, ".ggraph.gz") ||
                          berth_file_starts_with(path, "ggraph 1") || berth_file_starts_with(path, "\x1f\x8b"); // gzip
    const bool is_model = !is_graph && berth_file_starts_with(path, "GGUF");
    *plan = (struct view_plan){.budget = *budget, .can_budget = is_graph};
    if (!is_model && options->n_ctx > 0) {
        return berth_fail(GGML_STATUS_FAILED, "%s: --ctx requires a model (GGUF)", path);
    }
    if (is_model && budget->bytes > 0) {
        return berth_fail(GGML_STATUS_FAILED, "%s: --budget requires a captured graph or a CSV with costs, not a model", path);
    }
    enum ggml_status status;
    if (is_graph) {
        status = view_plan_read_graph(path, plan);
    } else if (is_model) {
        status = view_plan_read_model(path, options, plan);
    } else {
        status = berth_plan_read_file(path, &plan->set);
        if (budget->bytes > 0 && status == GGML_STATUS_SUCCESS) { // view_plan_read_graph applies the limit of a graph
            status = view_plan_budget_set(path, plan);
        }
    }
    if (status == GGML_STATUS_SUCCESS) {
        status = view_plan_buffers(plan);
    }
    if (status != GGML_STATUS_SUCCESS) {
        view_plan_free(plan);
    }
    return status;
}
