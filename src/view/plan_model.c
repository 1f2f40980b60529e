// SPDX-License-Identifier: MIT
// plan_model.c: the graph of a model's batch as items to plan: what a session with this context and batch would ask for. Weights
// are not touched, so a file with a hole for them will do.

#include "view/plan.h"

#include "base/base.h"
#include "cli/models.h"

#include <stdlib.h>
#include <string.h>

// Through the file format of plans, which has all that a plan has.
static enum ggml_status plan_of(const struct session *session, const char *title, struct berth_plan_set **set) {
    struct berth_stream s;
    enum ggml_status status = berth_stream_open(&s) ? berth_sched_save(session->sched, s.file) : GGML_STATUS_ALLOC_FAILED;
    if (!berth_stream_close(&s)) {
        status = GGML_STATUS_ALLOC_FAILED;
    }
    if (status == GGML_STATUS_SUCCESS) {
        status = berth_plan_read_json(s.text, s.size, title, set);
    } else if (status == GGML_STATUS_ALLOC_FAILED) {
        berth_set_error("out of memory for the plan as text");
    }
    berth_stream_fini(&s);
    return status;
}

static bool homes_set(const struct model *model, const struct session *session, struct cli_plan *plan) {
    const struct model_devices *devices = session->devices;
    plan->homes = calloc((size_t) devices->n + 1, sizeof *plan->homes);
    for (int d = 0; d < devices->n && plan->homes != NULL; d++) {
        const struct session_memory *m = &session->memory[d];
        if (m->weights + m->cache + m->compute > 0) {
            struct cli_home *home = &plan->homes[plan->n_homes++];
            *home = (struct cli_home){
                .weights = m->weights, .cache = m->cache, .compute = m->compute, .is_mapped = model->parts[d].is_mapped};
            snprintf(home->device, sizeof home->device, "%s", ggml_backend_dev_name(devices->dev[d]));
        }
    }
    return plan->homes != NULL;
}

enum ggml_status cli_plan_read_model(const char *path, const struct model_options *options, struct cli_plan *plan) {
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
    if (session != NULL && !options->is_quiet) {
        cli_model_warn(model, options);
    }
    if (session != NULL && session_reserve(session, &error)) {
        status = plan_of(session, path, &plan->set);
    } else {
        berth_set_error("%s", error.text);
    }
    if (status == GGML_STATUS_SUCCESS) {
        plan->set->has_offsets = false; // the plan is to be made, not to be started from
        status = homes_set(model, session, plan) ? status : berth_fail(GGML_STATUS_ALLOC_FAILED, "%s: out of memory", path);
    }
    session_free(session);
    model_free(model);
    model_devices_close(&devices);
    return status;
}
