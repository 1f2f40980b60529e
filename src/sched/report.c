// SPDX-License-Identifier: MIT
// report.c: what the plan that was made last looks like from outside: how good it is, and all of it as a file.

#include "sched/sched.h"

#include "alloc/galloc.h"

enum ggml_status berth_sched_report(ggml_backend_sched_t sched, ggml_backend_t backend, struct berth_plan_report *report) {
    if (sched == NULL || report == NULL || sched->plan == NULL || !sched->plan->is_ready) {
        return berth_fail(GGML_STATUS_FAILED, "berth_sched_report: no graph was planned");
    }
    for (int b = 0; backend != NULL && b < sched->n_backends; b++) {
        if (sched->backends[b] == backend) {
            *report = sched->plan->needs[sched->galloc->pool_of[b]].report;
            return GGML_STATUS_SUCCESS;
        }
    }
    return berth_fail(GGML_STATUS_FAILED, "berth_sched_report: the backend is none of the scheduler's");
}

enum ggml_status berth_sched_save(ggml_backend_sched_t sched, FILE *file) {
    if (sched == NULL || file == NULL || sched->plan == NULL || !sched->plan->is_ready) {
        return berth_fail(GGML_STATUS_FAILED, "berth_sched_save: no graph was planned, or there is no file");
    }
    return berth_galloc_plan_save(sched->galloc, sched->plan, file);
}
