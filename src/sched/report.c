// SPDX-License-Identifier: MIT
// report.c: what the plan that was made last looks like from outside: how good it is, and all of it as a file.

#include "sched/sched.h"

enum ggml_status berth_sched_report(ggml_backend_sched_t sched, ggml_backend_t backend, struct berth_plan_report *report) {
    if (sched == NULL || report == NULL || berth_galloc_plan_report(sched->galloc, sched->plan, 0) == NULL) {
        return berth_fail(GGML_STATUS_FAILED, "berth_sched_report: no graph was planned");
    }
    for (int b = 0; backend != NULL && b < sched->n_backends; b++) {
        if (sched->backends[b] == backend) {
            *report = *berth_galloc_plan_report(sched->galloc, sched->plan, b);
            return GGML_STATUS_SUCCESS;
        }
    }
    return berth_fail(GGML_STATUS_FAILED, "berth_sched_report: the backend is none of the scheduler's");
}

enum ggml_status berth_sched_save(ggml_backend_sched_t sched, FILE *file) {
    if (sched == NULL || file == NULL || sched->planned == NULL) {
        return berth_fail(GGML_STATUS_FAILED, "berth_sched_save: no graph was planned, or it is forgotten, or there is no file");
    }
    return berth_galloc_plan_save(sched->galloc, sched->plan, file);
}
