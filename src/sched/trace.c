// SPDX-License-Identifier: MIT
// trace.c: a timeline of splits, ops and copies in the Trace Event Format, and a track of the memory in use. A bar that cannot be
// kept for lack of memory is left out, and said to be missing when the timeline is written.

#include "sched/sched.h"

#include "base/json.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

int64_t sched_clock_ns(clockid_t clock) {
    struct timespec t;
    return clock_gettime(clock, &t) == 0 ? (int64_t) t.tv_sec * 1000000000 + t.tv_nsec : 0;
}

int64_t sched_trace_now(void) {
    return sched_clock_ns(CLOCK_MONOTONIC);
}

struct sched_trace_event *sched_trace_add(
    struct ggml_backend_sched *sched, enum sched_trace_kind kind, const char *name, int split, int backend, int64_t start_ns) {
    if (!berth_grow((void **) &sched->trace, &sched->trace_cap, sched->n_trace + 1, sizeof sched->trace[0])) {
        sched->n_trace_lost++;
        return NULL;
    }
    const struct sched_split *s = &sched->cur->splits[split];
    struct sched_trace_event *e = &sched->trace[sched->n_trace++];

    *e = (struct sched_trace_event){.start_ns = start_ns,
        .end_ns = sched_trace_now(),
        .split = split,
        .n_nodes = s->i_end - s->i_start,
        .backend = (int16_t) backend,
        .in_use = -1,
        .kind = (uint8_t) kind};
    if (name != NULL) {
        strncpy(e->name, name, sizeof e->name - 1);
    }
    return e;
}

enum ggml_status berth_sched_trace_start(ggml_backend_sched_t sched) {
    if (sched == NULL) {
        return berth_fail(GGML_STATUS_FAILED, "berth_sched_trace_start: the scheduler is NULL");
    }
    if (!sched_is_idle(__func__, sched)) {
        return GGML_STATUS_FAILED;
    }
    sched->n_trace = 0;
    sched->n_trace_lost = 0;
    sched->trace_start_ns = sched_trace_now();
    sched->is_tracing = true;
    return GGML_STATUS_SUCCESS;
}

// What an op did, and how fast: bytes and operations in a nanosecond are GB and GFLOP a second.
static void write_op(struct berth_json_writer *w, const struct ggml_backend_sched *sched, const struct sched_trace_event *e) {
    const double ns = e->end_ns > e->start_ns ? (double) (e->end_ns - e->start_ns) : 1;
    berth_json_printf(w,
        "'op': %s, 'device': %s, 'split': %d, 'read': %zu, 'written': %zu, 'flops': %.0f, 'GB/s': %.3f, 'GFLOP/s': %.3f, "
        "'threads busy': %.2f",
        e->op, ggml_backend_name(sched->backends[e->backend]), e->split, e->bytes, e->written, e->flops,
        (double) (e->bytes + e->written) / ns, e->flops / ns, (double) e->cpu_ns / ns);
}

static void write_event(struct berth_json_writer *w, const struct ggml_backend_sched *sched, const struct sched_trace_event *e) {
    static const char *const kinds[] = {[SCHED_TRACE_SPLIT] = "compute", [SCHED_TRACE_COPY] = "copy", [SCHED_TRACE_OP] = "op"};
    const double start_us = (double) (e->start_ns - sched->trace_start_ns) / 1000;
    char text[2 * GGML_MAX_NAME];
    if (e->kind == SCHED_TRACE_SPLIT) {
        snprintf(text, sizeof text, "split %d", e->split);
    } else {
        snprintf(text, sizeof text, "%s%s", e->kind == SCHED_TRACE_COPY ? "copy " : "", e->name[0] != '\0' ? e->name : e->op);
    }
    berth_json_line(w, 0);
    berth_json_begin(w, NULL, '{');
    berth_json_printf(w, "'ph': 'X', 'pid': 1, 'tid': %d, 'cat': %s, 'ts': %.3f, 'dur': %.3f, 'name': %s", e->backend,
        kinds[e->kind], start_us, (double) (e->end_ns - e->start_ns) / 1000, text);
    berth_json_begin(w, "args", '{');
    if (e->kind == SCHED_TRACE_OP) {
        write_op(w, sched, e);
    } else {
        berth_json_printf(w, "'split': %d, 'nodes': %d, 'bytes': %zu", e->split, e->n_nodes, e->bytes);
    }
    berth_json_end(w);
    berth_json_end(w);
    if (e->kind == SCHED_TRACE_OP && e->in_use >= 0) { // a track
        snprintf(text, sizeof text, "compute memory in use, %s", ggml_backend_name(sched->backends[e->backend]));
        berth_json_line(w, 0);
        berth_json_printf(
            w, "{'ph': 'C', 'pid': 1, 'ts': %.3f, 'name': %s, 'args': {'bytes': %" PRId64 "}}", start_us, text, e->in_use);
    }
}

enum ggml_status berth_sched_trace_stop(ggml_backend_sched_t sched, FILE *file) {
    if (!sched_is_idle(__func__, sched)) {
        return GGML_STATUS_FAILED;
    }
    if (sched == NULL || file == NULL || !sched->is_tracing) {
        const char *why = file == NULL ? "the file is NULL" : "no trace was started";
        return berth_fail(GGML_STATUS_FAILED, "berth_sched_trace_stop: %s", sched == NULL ? "the scheduler is NULL" : why);
    }
    sched->is_tracing = false;
    struct berth_json_writer w = {.file = file};
    berth_json_begin(&w, NULL, '{');
    berth_json_printf(&w, "'displayTimeUnit': 'ms'");
    berth_json_begin(&w, "traceEvents", '[');
    for (int b = 0; b < sched->n_backends; b++) { // rows of the picture
        berth_json_line(&w, 0);
        berth_json_printf(&w, "{'ph': 'M', 'pid': 1, 'tid': %d, 'name': 'thread_name', 'args': {'name': %s}}", b,
            ggml_backend_name(sched->backends[b]));
    }
    for (size_t i = 0; i < sched->n_trace; i++) {
        write_event(&w, sched, &sched->trace[i]);
    }
    berth_json_line(&w, 0);
    berth_json_end(&w);
    berth_json_end(&w);
    fputc('\n', file);
    const size_t n_all = sched->n_trace + sched->n_trace_lost;
    berth_free(sched->trace);
    sched->trace = NULL;
    sched->n_trace = 0;
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
