// SPDX-License-Identifier: MIT
// explain.c: reports as text or JSON on which backend each op runs, the reason, and the tensors that are copied between backends.

#include "sched/sched.h"

#include "base/json.h"
#include "core/op.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {
    [BERTH_SCHED_NONE] = "none",
    [BERTH_SCHED_PLACED] = "placed",
    [BERTH_SCHED_CALLER] = "caller",
    [BERTH_SCHED_INPUT] = "input",
    [BERTH_SCHED_WEIGHT] = "weight",
    [BERTH_SCHED_OFFLOAD] = "offload",
    [BERTH_SCHED_EXPANSION] = "expansion",
    [BERTH_SCHED_PRIORITY] = "priority",
    [BERTH_SCHED_READER] = "reader",
    [BERTH_SCHED_FALLBACK_OP] = "fallback: op not supported",
    [BERTH_SCHED_FALLBACK_TYPE] = "fallback: type not supported",
    [BERTH_SCHED_FALLBACK_BUFFER] = "fallback: buffer not supported",
};

const char *berth_sched_reason_name(enum berth_sched_reason reason) {
    return reason >= 0 && (size_t) reason < sizeof names / sizeof names[0] ? names[reason] : "?";
}

// ---- fallbacks ----

// Returns true if the backend does not support the op as it is, but would support it with F32 in place of the other float types.
// The types have then caused the fallback.
static bool supports_as_f32(ggml_backend_t backend, const struct ggml_tensor *t) {
    struct ggml_tensor node = *t, srcs[GGML_MAX_SRC];
    bool differs = node.type != GGML_TYPE_F32;
    for (int k = 0; k < GGML_MAX_SRC; k++) {
        if (t->src[k] == NULL) {
            continue;
        }
        srcs[k] = *t->src[k];
        if (srcs[k].type != GGML_TYPE_F32 && srcs[k].type != GGML_TYPE_I32 && srcs[k].type != GGML_TYPE_I64) {
            differs = true;
            ggml_format_name(&srcs[k], "as f32");
            srcs[k].type = GGML_TYPE_F32;
            srcs[k].nb[0] = sizeof(float);
            for (int i = 1; i < GGML_MAX_DIMS; i++) {
                srcs[k].nb[i] = srcs[k].nb[i - 1] * (size_t) srcs[k].ne[i - 1];
            }
        }
        node.src[k] = &srcs[k];
    }
    node.type = GGML_TYPE_F32;
    for (int i = 0; i < GGML_MAX_DIMS; i++) {
        node.nb[i] = i == 0 ? sizeof(float) : node.nb[i - 1] * (size_t) node.ne[i - 1];
    }
    return differs && ggml_backend_supports_op(backend, &node);
}

// The reason is a fallback if both conditions hold:
// - A pass after assign_fixed assigned the op.
// - A backend of higher priority, or the backend that owns the op's weight, cannot run the op.
enum berth_sched_reason sched_reason(struct ggml_backend_sched *sched, struct sched_cached *cached, int32_t r) {
    const struct sched_row *row = &cached->rows[r];
    const bool is_free = row->reason == BERTH_SCHED_EXPANSION || row->reason == BERTH_SCHED_PRIORITY;
    const bool is_lower_priority = row->refused >= row->backend && !row->is_weight_owner_refused;
    if (!is_free || row->refused < 0 || is_lower_priority || r >= cached->rec.n_nodes || row->is_empty) {
        return row->reason;
    }
    ggml_backend_t preferred = sched->backends[row->refused];
    const struct ggml_tensor *t = cached->rec.tensors[r];
    if (ggml_backend_supports_op(preferred, t)) {
        return BERTH_SCHED_FALLBACK_BUFFER; // the backend cannot run another op that writes this memory
    }
    return supports_as_f32(preferred, t) ? BERTH_SCHED_FALLBACK_TYPE : BERTH_SCHED_FALLBACK_OP;
}

enum berth_sched_reason berth_sched_reason(ggml_backend_sched_t sched, const struct ggml_tensor *tensor) {
    const int32_t r = sched != NULL && sched->cur != NULL && tensor != NULL ? berth_record_find(&sched->cur->rec, tensor) : -1;
    return r >= 0 ? sched_reason(sched, sched->cur, r) : BERTH_SCHED_NONE;
}

// ---- text ----

static const char *backend_name(const struct ggml_backend_sched *sched, int b) {
    return b >= 0 ? ggml_backend_name(sched->backends[b]) : "-";
}

static const char *plural_end(int n) {
    return n == 1 ? "" : "s";
}

static const char *resident_text(const struct ggml_backend_sched *sched, const struct sched_copy *copy) {
    if (copy->resident < 0 || copy->resident >= sched->residents.n) { // all may have been freed since the graph was split
        return "";
    }
    return sched->residents.list[copy->resident].is_filled ? ", resident" : ", becomes resident";
}

static void split_text(struct ggml_backend_sched *sched, struct sched_cached *cached, int32_t s, bool with_nodes, FILE *file) {
    const struct sched_split *split = &cached->splits[s];
    size_t bytes = 0;
    for (int32_t i = split->copies; i < split->copies + split->n_copies; i++) {
        bytes += sched_nbytes(cached, cached->copies[i].row);
    }
    const int n_nodes = split->i_end - split->i_start;
    fprintf(file, "split %d: %s, %d node%s, %d input%s, %zu bytes\n", s, backend_name(sched, split->backend), n_nodes,
        plural_end(n_nodes), split->n_copies, plural_end(split->n_copies), bytes);
    for (int32_t i = split->copies; i < split->copies + split->n_copies; i++) {
        const struct sched_copy *copy = &cached->copies[i];
        const struct ggml_tensor *t = cached->rec.tensors[copy->row];
        fprintf(file, "  input %s from %s: %zu bytes%s%s\n", berth_name_of(t), backend_name(sched, copy->from), ggml_nbytes(t),
            copy->is_early ? ", copied during the split before" : "", resident_text(sched, copy));
    }
    for (int32_t i = split->i_start; with_nodes && i < split->i_end; i++) {
        const int32_t r = sched_order(cached, i);
        const struct ggml_tensor *t = cached->rec.tensors[r];
        if (!cached->rows[r].is_empty) {
            fprintf(file, "  node %d %s (%s, %s " BERTH_SHAPE "): %s, %s", i, berth_name_of(t), ggml_op_desc(t),
                ggml_type_name(t->type), BERTH_NE(t), backend_name(sched, cached->rows[r].backend),
                berth_sched_reason_name(sched_reason(sched, cached, r)));
            fprintf(file, cached->rows[r].refused >= 0 ? " (not by %s)\n" : "\n", backend_name(sched, cached->rows[r].refused));
        }
    }
}

static void explain_text(struct ggml_backend_sched *sched, bool with_nodes, FILE *file) {
    struct sched_cached *cached = sched->cur;
    fprintf(file, "graph: %d node%s, %d split%s, %d %s, %d in flight\n", cached->rec.n_nodes, plural_end(cached->rec.n_nodes),
        cached->n_splits, plural_end(cached->n_splits), cached->n_copies, cached->n_copies == 1 ? "copy" : "copies",
        cached->n_slots);
    for (int32_t s = 0; s < cached->n_splits; s++) {
        split_text(sched, cached, s, with_nodes, file);
    }
    for (int b = 0; b < sched->n_backends; b++) { // composite devices report the graph that they computed last
        berth_meta_explain(sched->backends[b], file);
    }
}

static enum ggml_status check_graph(const char *func, ggml_backend_sched_t sched, FILE *file) {
    if (sched == NULL || file == NULL || sched->cur == NULL) {
        const char *why = file == NULL ? "the file is NULL" : "no graph has been split since the scheduler was created or reset";
        return berth_fail(GGML_STATUS_FAILED, "%s: %s", func, sched == NULL ? "the scheduler is NULL" : why);
    }
    return GGML_STATUS_SUCCESS;
}

static enum ggml_status stream_check(const char *func, FILE *file) {
    if (fflush(file) != 0 || ferror(file)) {
        return berth_fail(GGML_STATUS_FAILED, "%s: writing to the stream failed", func);
    }
    return GGML_STATUS_SUCCESS;
}

enum ggml_status berth_sched_explain_text(ggml_backend_sched_t sched, FILE *file) {
    if (check_graph(__func__, sched, file) != GGML_STATUS_SUCCESS) {
        return GGML_STATUS_FAILED;
    }
    sched_hold(sched);
    explain_text(sched, true, file);
    sched_let_go(sched);
    return stream_check(__func__, file);
}

void sched_explain_log(struct ggml_backend_sched *sched) {
    struct berth_stream s;
    if (!berth_stream_open(&s)) {
        return;
    }
    explain_text(sched, sched->debug > 1, s.file);
    if (berth_stream_close(&s)) {
        for (char *line = s.text; line != NULL && *line != '\0';) {
            char *end = strchr(line, '\n');
            berth_log(GGML_LOG_LEVEL_DEBUG, "%.*s\n", (int) (end != NULL ? end - line : (ptrdiff_t) strlen(line)), line);
            line = end != NULL ? end + 1 : NULL;
        }
    }
    berth_stream_fini(&s);
}

// ---- JSON ----

static void split_json(struct berth_json_writer *w, struct ggml_backend_sched *sched, struct sched_cached *cached, int32_t s) {
    const struct sched_split *split = &cached->splits[s];
    berth_json_line(w, 2);
    berth_json_begin(w, NULL, '{');
    berth_json_printf(
        w, "'backend': %s, 'first': %d, 'end': %d", backend_name(sched, split->backend), split->i_start, split->i_end);
    berth_json_begin(w, "inputs", '[');
    for (int32_t i = split->copies; i < split->copies + split->n_copies; i++) {
        const struct sched_copy *copy = &cached->copies[i];
        const struct ggml_tensor *t = cached->rec.tensors[copy->row];
        berth_json_printf(w, "{'name': %s, 'from': %s, 'bytes': %zu, 'early': %c, 'resident': %c}", t->name,
            backend_name(sched, copy->from), ggml_nbytes(t), copy->is_early, copy->resident >= 0);
    }
    berth_json_end(w);
    berth_json_end(w);
}

static void node_json(struct berth_json_writer *w, struct ggml_backend_sched *sched, struct sched_cached *cached, int32_t i) {
    const int32_t r = sched_order(cached, i);
    const struct ggml_tensor *t = cached->rec.tensors[r];
    berth_json_line(w, 2);
    berth_json_begin(w, NULL, '{');
    berth_json_printf(w,
        "'name': %s, 'op': %s, 'type': %s, 'ne': [%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64
        "], 'backend': %s, 'reason': %s",
        t->name, ggml_op_desc(t), ggml_type_name(t->type), t->ne[0], t->ne[1], t->ne[2], t->ne[3],
        backend_name(sched, cached->rows[r].backend), berth_sched_reason_name(sched_reason(sched, cached, r)));
    if (cached->rows[r].refused >= 0) {
        berth_json_printf(w, "'refused_by': %s", backend_name(sched, cached->rows[r].refused));
    }
    berth_json_printf(w, "'bytes': %zu", ggml_nbytes(t));
    berth_json_end(w);
}

enum ggml_status berth_sched_explain_json(ggml_backend_sched_t sched, FILE *file) {
    if (check_graph(__func__, sched, file) != GGML_STATUS_SUCCESS) {
        return GGML_STATUS_FAILED;
    }
    struct sched_cached *cached = sched->cur;
    struct berth_json_writer w = {.file = file};
    berth_json_begin(&w, NULL, '{');
    berth_json_begin(&w, "backends", '[');
    for (int b = 0; b < sched->n_backends; b++) {
        berth_json_printf(&w, "{'name': %s, 'buffer_type': %s, 'buffer_bytes': %zu}", backend_name(sched, b),
            ggml_backend_buft_name(sched->bufts[b]), ggml_gallocr_get_buffer_size(sched->galloc, b));
    }
    berth_json_end(&w);
    berth_json_line(&w, 0);
    berth_json_printf(&w, "'in_flight': %d", cached->n_slots);
    berth_json_line(&w, 0);
    berth_json_begin(&w, "splits", '[');
    for (int32_t s = 0; s < cached->n_splits; s++) {
        split_json(&w, sched, cached, s);
    }
    berth_json_end(&w);
    berth_json_line(&w, 0);
    berth_json_begin(&w, "nodes", '[');
    for (int32_t i = 0; i < cached->rec.n_nodes; i++) {
        node_json(&w, sched, cached, i);
    }
    berth_json_end(&w);
    berth_json_end(&w);
    fputc('\n', file);
    return stream_check(__func__, file);
}
