// SPDX-License-Identifier: MIT
// galloc_report.c: what a plan looks like from outside: how good it is, and which tensors are alive when.

#include "alloc/galloc.h"

enum ggml_status berth_gallocr_report(ggml_gallocr_t galloc, int buffer_id, struct berth_plan_report *report) {
    if (galloc == NULL || report == NULL || buffer_id < 0 || buffer_id >= galloc->n_bufs || galloc->n_plans == 0) {
        return berth_fail(GGML_STATUS_FAILED, "berth_gallocr_report: buffer %d has no plan", buffer_id);
    }
    *report = galloc->plans[0]->needs[galloc->pool_of[buffer_id]].report;
    return GGML_STATUS_SUCCESS;
}
