// SPDX-License-Identifier: MIT
// trace.c: a timeline of splits and copies in the Trace Event Format. A bar that cannot be kept for lack of memory is left out,
// and said to be missing when the timeline is written.

#include "sched/sched.h"

#include "plan/io/json.h"

#include <inttypes.h>
#include <string.h>

void sched_trace_add(struct ggml_backend_sched *sched, const char *name, int split, int backend, size_t bytes, int64_t start_us) {
    if (!berth_grow((void **) &sched->trace, &sched->trace_cap, sched->n_trace + 1, sizeof sched->trace[0])) {
        sched->n_trace_lost++;
        return;
    }
    const struct sched_split *s = &sched->cur->splits[split];
    struct sched_trace_event *e = &sched->trace[sched->n_trace++];

    *e = (struct sched_trace_event){.start_us = start_us,
        .end_us                               = ggml_time_us(),
        .bytes                                = bytes,
        .split                                = split,
        .n_nodes                              = s->i_end - s->i_start,
        .backend                              = (int16_t) backend,
        .is_copy                              = name != NULL};
    if (name != NULL) {
        strncpy(e->name, name, sizeof e->name - 1);
    }
}

enum ggml_status berth_sched_trace_start(ggml_backend_sched_t sched) {
    if (sched == NULL) {
        return berth_fail(GGML_STATUS_FAILED, "berth_sched_trace_start: the scheduler is NULL");
    }
    ggml_time_init();
    sched->n_trace        = 0;
    sched->n_trace_lost   = 0;
    sched->trace_start_us = ggml_time_us();
    sched->is_tracing     = true;
    return GGML_STATUS_SUCCESS;
}

enum ggml_status berth_sched_trace_stop(ggml_backend_sched_t sched, FILE *file) {
    if (sched == NULL || file == NULL || !sched->is_tracing) {
        return berth_fail(GGML_STATUS_FAILED, "berth_sched_trace_stop: %s",
            sched == NULL  ? "the scheduler is NULL"
            : file == NULL ? "the file is NULL"
                           : "no trace was started");
    }
    sched->is_tracing = false;
    fputs("{\"displayTimeUnit\": \"ms\", \"traceEvents\": [", file);
    for (int b = 0; b < sched->n_backends; b++) { // rows of the picture
        fprintf(file,
            "%s\n{\"ph\": \"M\", \"pid\": 1, \"tid\": %d, \"name\": \"thread_name\", \"args\": {\"name\": ", b > 0 ? "," : "", b);
        berth_json_write_string(ggml_backend_name(sched->backends[b]), file);
        fputs("}}", file);
    }
    for (size_t i = 0; i < sched->n_trace; i++) {
        const struct sched_trace_event *e = &sched->trace[i];
        fprintf(file,
            ",\n{\"ph\": \"X\", \"pid\": 1, \"tid\": %d, \"cat\": \"%s\", \"ts\": %" PRId64 ", \"dur\": %" PRId64 ", \"name\": ",
            e->backend, e->is_copy ? "copy" : "compute", e->start_us - sched->trace_start_us, e->end_us - e->start_us);
        char text[64];
        if (e->is_copy) {
            snprintf(text, sizeof text, "copy %s", e->name);
        } else {
            snprintf(text, sizeof text, "split %d", e->split);
        }
        berth_json_write_string(text, file);
        fprintf(file, ", \"args\": {\"split\": %d, \"nodes\": %d, \"bytes\": %zu}}", e->split, e->n_nodes, e->bytes);
    }
    fputs("\n]}\n", file);
    const size_t n_all = sched->n_trace + sched->n_trace_lost;
    berth_free(sched->trace);
    sched->trace     = NULL;
    sched->n_trace   = 0;
    sched->trace_cap = 0;
    if (fflush(file) != 0 || ferror(file)) {
        return berth_fail(GGML_STATUS_FAILED, "berth_sched_trace_stop: the stream cannot be written");
    }
    if (sched->n_trace_lost > 0) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "berth_sched_trace_stop: for lack of memory %zu of %zu bars are missing",
            sched->n_trace_lost, n_all);
    }
    return GGML_STATUS_SUCCESS;
}
