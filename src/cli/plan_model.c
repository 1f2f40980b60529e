// SPDX-License-Identifier: MIT
// plan_model.c: the graph of a model's batch as items to plan: what a session with this context and batch would ask for. Weights
// are not touched, so a file with a hole for them will do.

#include "cli/plan_graph.h"

#include "base/base.h"
#include "cli/models.h"

#include <stdlib.h>
#include <string.h>

// Through the file format of plans, which has all that a plan has.
static enum ggml_status plan_of(const struct session *session, const char *title, struct berth_plan_set **set) {
    char *text              = NULL;
    size_t size             = 0;
    FILE *file              = open_memstream(&text, &size);
    enum ggml_status status = file != NULL ? berth_sched_save(session->sched, file) : GGML_STATUS_ALLOC_FAILED;
    if (file != NULL && fclose(file) != 0) {
        status = GGML_STATUS_ALLOC_FAILED;
    }
    if (status == GGML_STATUS_SUCCESS) {
        status = berth_plan_read_json(text, size, title, set);
    } else if (status == GGML_STATUS_ALLOC_FAILED) {
        berth_set_error("out of memory for the plan as text");
    }
    free(text);
    return status;
}

enum ggml_status cli_plan_read_model(const char *path, const struct cli_model_options *options, struct berth_plan_set **set) {
    struct session_params params = cli_model_params(options);
    struct model_error error     = {""};
    struct model_devices devices = {0};
    struct session *session      = NULL;
    enum ggml_status status      = GGML_STATUS_FAILED;
    params.plan_only             = true;
    ggml_backend_load_all();
    struct model *model = model_open(path, &error);
    if (model != NULL && model_devices_open(&devices, NULL, 0, &error) &&
        model_place(model, &devices, true, NULL, NULL, &error)) {
        session = session_new(model, &devices, &params, &error);
    }
    if (session != NULL) {
        cli_model_warn(model, options);
    }
    if (session != NULL && session_reserve(session, &error)) {
        status = plan_of(session, path, set);
    } else {
        berth_set_error("%s", error.text);
    }
    if (status == GGML_STATUS_SUCCESS) {
        (*set)->has_offsets = false; // the plan is to be made, not to be started from
    }
    session_free(session);
    model_free(model);
    model_devices_close(&devices);
    return status;
}
