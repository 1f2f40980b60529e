// SPDX-License-Identifier: MIT
// trace.c: records a timeline of splits, ops and copies in the Trace Event Format, with a track of the memory in use.
//
// While tracing is on, nodes run one by one. If memory runs out, events are dropped; berth_sched_trace_stop reports their number.

#include "sched/sched.h"

#include "base/json.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

static int64_t clock_ns(clockid_t clock) {
    struct timespec t;
    return clock_gettime(clock, &t) == 0 ? (int64_t) t.tv_sec * 1000000000 + t.tv_nsec : 0;
}

int64_t sched_trace_now(void) {
    return clock_ns(CLOCK_MONOTONIC);
}

struct sched_trace_event *sched_trace_add(
    struct ggml_backend_sched *sched, enum sched_trace_kind kind, const char *name, int split, int backend, int64_t start_ns) {
    if (!BERTH_GROW(&sched->trace, &sched->trace_cap, sched->n_trace + 1)) {
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

struct lifetime {
    int32_t first, last; // steps; first -1: no node uses the memory
};

// cached: the cached graph (sched.h) that is traced.
static bool is_ours(const struct ggml_backend_sched *sched, const struct sched_cached *cached, int32_t base) {
    const struct ggml_tensor *t = cached->rec.tensors[base];
    return !cached->rows[base].is_placed && t->buffer != NULL && berth_galloc_owns(sched->galloc, t->buffer);
}

static void lifetimes_find(const struct sched_cached *cached, struct lifetime *lifetimes) {
    const struct record *rec = &cached->rec;
    for (int32_t r = 0; r < rec->n_rows; r++) {
        lifetimes[r] = (struct lifetime){-1, -1};
    }
    for (int32_t i = 0; i < rec->n_nodes; i++) {
        const int32_t r = sched_order(cached, i), own = sched_base(cached, r);
        for (int k = 0; k < rec->rows[r].n_src; k++) {
            const int32_t base = sched_base(cached, rec->srcs[rec->rows[r].src + k]);
            struct lifetime *lifetime = &lifetimes[base];
            if (base == own && rec->rows[r].names_self) { // a cast is its own source, but does not read it
                continue;
            }
            if (lifetime->first < 0) { // not computed by an earlier node: an input
                lifetime->first = 0;
            }
            lifetime->last = i;
        }
        if (lifetimes[own].first < 0) {
            lifetimes[own].first = i;
        }
        lifetimes[own].last = (rec->rows[r].flags & GGML_TENSOR_FLAG_OUTPUT) != 0 ? rec->n_nodes - 1 : i;
    }
    // If a result took over the memory of its source, the bytes count once.
    for (int32_t i = 0; i < rec->n_nodes; i++) {
        const int32_t r = sched_order(cached, i), own = sched_base(cached, r);
        for (int k = 0; k < rec->rows[r].n_src; k++) {
            const int32_t base = sched_base(cached, rec->srcs[rec->rows[r].src + k]);
            if (base != own && lifetimes[base].last == i && lifetimes[own].first == i &&
                rec->tensors[base]->data == rec->tensors[own]->data) {
                lifetimes[base].last = i - 1;
            }
        }
    }
}

bool sched_trace_memory(struct ggml_backend_sched *sched, const struct sched_cached *cached) {
    const struct record *rec = &cached->rec;
    const size_t n_steps = (size_t) rec->n_nodes + 1, n = n_steps * (size_t) sched->n_backends;
    struct lifetime *lifetimes = berth_malloc(((size_t) rec->n_rows + 1) * sizeof *lifetimes);
    const bool ok = lifetimes != NULL && BERTH_GROW(&sched->in_use, &sched->in_use_cap, n);
    if (ok) {
        memset(sched->in_use, 0, n * sizeof sched->in_use[0]);
        lifetimes_find(cached, lifetimes);
    }
    for (int32_t r = 0; ok && r < rec->n_rows; r++) {
        const int b = cached->rows[r].backend;
        if (lifetimes[r].first >= 0 && lifetimes[r].last >= lifetimes[r].first && b >= 0 && is_ours(sched, cached, r)) {
            const int64_t size = (int64_t) ggml_nbytes(rec->tensors[r]);
            int64_t *steps = sched->in_use + (size_t) b * n_steps;
            steps[lifetimes[r].first] += size;
            steps[lifetimes[r].last + 1] -= size;
        }
    }
    for (size_t i = 1; ok && i < n; i++) {
        sched->in_use[i] += i % n_steps != 0 ? sched->in_use[i - 1] : 0;
    }
    berth_free(lifetimes);
    return ok;
}

// ---- running ----

static enum ggml_status nodes_run(struct ggml_backend_sched *sched, struct sched_cached *cached, int b, int32_t i, int32_t end) {
    ggml_backend_t backend = sched->backends[b];
    struct ggml_cgraph part = sched_part(sched, cached, i, end);
    enum ggml_status status = ggml_backend_graph_compute_async(backend, &part);
    const enum ggml_status sync_status = berth_backend_synchronize(backend);
    return status != GGML_STATUS_SUCCESS ? status : sync_status;
}

enum ggml_status sched_trace_ops(struct ggml_backend_sched *sched, struct sched_cached *cached, int32_t i_split) {
    const struct sched_split *split = &cached->splits[i_split];
    const int64_t *in_use =
        sched->has_in_use ? sched->in_use + (size_t) split->backend * ((size_t) cached->rec.n_nodes + 1) : NULL;
    for (int32_t i = split->i_start, end; i < split->i_end; i = end) {
        end = i + 1;
        while (end < split->i_end &&
               cached->rows[sched_order(cached, end - 1)].is_empty) { // an empty op runs together with the next op
            end++;
        }
        const int64_t start_ns = sched_trace_now(), cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
        const enum ggml_status status = nodes_run(sched, cached, split->backend, i, end);
        if (status != GGML_STATUS_SUCCESS) {
            return status;
        }
        if (cached->rows[sched_order(cached, end - 1)].is_empty) {
            continue;
        }
        const struct ggml_tensor *node = sched_nodes(cached)[end - 1];
        struct sched_trace_event *e = sched_trace_add(sched, SCHED_TRACE_OP, node->name, i_split, split->backend, start_ns);
        if (e != NULL) {
            const struct berth_op_cost cost = berth_op_cost(node);
            e->op = ggml_op_desc(node);
            e->bytes = (size_t) cost.read_size; // for an op: the bytes that it reads
            e->written = (size_t) cost.written_size;
            e->flops = cost.flops;
            e->cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_ns;
            e->in_use = in_use != NULL ? in_use[end - 1] : -1;
        }
    }
    return GGML_STATUS_SUCCESS;
}

// ---- writing ----

// Bytes per nanosecond are GB/s, and operations per nanosecond are GFLOP/s.
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
    if (e->kind == SCHED_TRACE_OP && e->in_use >= 0) { // one sample of the memory track
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
    for (int b = 0; b < sched->n_backends; b++) { // one row of the timeline per backend
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
        return berth_fail(GGML_STATUS_FAILED, "berth_sched_trace_stop: writing to the stream failed");
    }
    if (sched->n_trace_lost > 0) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED,
            "berth_sched_trace_stop: %zu of %zu events are missing, because memory ran out", sched->n_trace_lost, n_all);
    }
    return GGML_STATUS_SUCCESS;
}
