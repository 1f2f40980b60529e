// SPDX-License-Identifier: MIT
// plan.c: inputs of the planner, and pictures of plans (berth-model.h).

#include "library/library.h"

#include "base/base.h"
#include "view/map.h"

enum ggml_status berth_plan_input_read(
    const char *path, const struct berth_plan_input_params *params, struct berth_plan_set **set) {
    static const struct berth_plan_input_params no_params;
    const struct berth_plan_input_params *p = params != NULL ? params : &no_params;
    struct model_options options = {.n_ctx = p->n_ctx, .n_batch = p->n_batch, .may_llama = true};
    struct view_plan plan;
    if (path == NULL || set == NULL) {
        return berth_fail(GGML_STATUS_FAILED, "berth_plan_input_read requires a path and a place for the set");
    }
    *set = NULL;
    if (p->cache_type != NULL && !workbench_cache_type(&options, p->cache_type)) {
        return berth_fail(GGML_STATUS_FAILED,
            "cache_type '%s' is neither a type such as f16 or q8_0 nor two types such as q8_0,f16", p->cache_type);
    }
    const enum ggml_status status = view_plan_read(path, &options, &(const struct view_budget){0}, &plan);
    if (status == GGML_STATUS_SUCCESS) {
        *set = plan.set;
        plan.set = NULL;
        view_plan_free(&plan);
    }
    return status;
}

enum ggml_status berth_plan_map(
    struct berth_plan_set *set, const uint64_t *offsets, const char *title, enum berth_map_format format, FILE *file) {
    struct view_plan plan = {.set = set};
    struct map_view view;
    if (set == NULL || file == NULL) {
        return berth_fail(GGML_STATUS_FAILED, "berth_plan_map requires a set and a file");
    }
    if (offsets == NULL) {
        offsets = set->offsets;
    }
    if (offsets == NULL || berth_plan_check(set->items, set->n_items, NULL, offsets, NULL) != GGML_STATUS_SUCCESS) {
        return berth_fail(GGML_STATUS_FAILED, "the map cannot be drawn: the offsets are not a valid plan");
    }
    enum ggml_status status = view_plan_buffers(&plan);
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    if (!map_view_init(&view, &(const struct map_plan){title != NULL ? title : "plan", &plan, offsets})) {
        status = GGML_STATUS_FAILED;
    } else {
        const bool ok = (format == BERTH_MAP_HTML ? map_html_write : map_svg_write)(&view, 1, file);
        map_view_fini(&view);
        if (!ok) {
            status = berth_fail(GGML_STATUS_FAILED, "writing the map of %s failed", title != NULL ? title : "plan");
        }
    }
    plan.set = NULL;
    view_plan_free(&plan);
    return status;
}
