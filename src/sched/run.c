// SPDX-License-Identifier: MIT
// run.c: computes a graph that has been split and placed. For each split, it makes the copies that the split reads, then runs the
// split's nodes on the split's backend.
//
// These rules keep the order between backends:
// 1. A copy starts after its source is computed, and ends before the split that reads the copy. Weights may be copied while the
//    split before it runs (early.c).
// 2. With one graph in flight, the host waits for the reading backend before it makes a copy, because the backend may still use
//    the copy's memory. With several graphs in flight, this wait is not needed: copies share memory with no other tensor, and a
//    slot is reused only after its previous graph has finished.
// 3. The bytes of the caller's inputs are copied before compute returns, because the caller may overwrite the inputs.
// 4. Backends that use each other's memory without a copy wait for each other before each split. A split without copies waits for
//    the preceding split if another backend runs that split, because tensors of the caller may share bytes without being views.
//
// Backends read a graph during graph_compute only, so copies replace sources during that call only.

#include "sched/sched.h"

#include "core/span.h"

#include <stdio.h>
#include <string.h>

// ---- waits ----

static void wait_for(struct ggml_backend_sched *sched, int b) {
    if (b >= 0 && sched->in_flight[b]) {
        berth_backend_wait(sched->backends[b]);
        sched->in_flight[b] = false;
    }
}

void sched_finish(struct ggml_backend_sched *sched) {
    sched_early_wait(sched);
    for (int b = 0; b < sched->n_backends; b++) {
        wait_for(sched, b);
    }
}

void sched_drain(struct ggml_backend_sched *sched) {
    sched_early_wait(sched);
    for (int b = 0; b < sched->n_backends; b++) {
        berth_backend_wait(sched->backends[b]);
        sched->in_flight[b] = false;
    }
    if (sched->recorded != NULL) {
        memset(sched->recorded, 0, (size_t) sched->n_backends * (size_t) sched->n_event_slots * sizeof sched->recorded[0]);
    }
}

// Returns the first stored failure of a backend or copier, with the name of the backend in the last error. No failure remains
// stored.
static enum ggml_status failures_take(struct ggml_backend_sched *sched) {
    char text[512];
    enum ggml_status status = GGML_STATUS_SUCCESS;
    for (int i = 0; i < 2 * sched->n_backends; i++) {
        ggml_backend_t backend = i % 2 == 0 ? sched->copiers[i / 2].backend : sched->backends[i / 2];
        if (backend != NULL && berth_backend_report(backend) != GGML_STATUS_SUCCESS && status == GGML_STATUS_SUCCESS) {
            status = GGML_STATUS_FAILED;
            snprintf(text, sizeof text, "scheduler: backend %s: %s", ggml_backend_name(backend), berth_last_error());
        }
    }
    if (status != GGML_STATUS_SUCCESS) {
        sched_residents_clear(sched);
        berth_set_error("%s", text);
    }
    return status;
}

enum ggml_status sched_wait_all(struct ggml_backend_sched *sched) {
    sched_drain(sched);
    return failures_take(sched);
}

void sched_wait_slot(struct ggml_backend_sched *sched, int slot) {
    for (int b = 0; sched->recorded != NULL && b < sched->n_backends; b++) {
        const size_t i = (size_t) b * (size_t) sched->n_event_slots + (size_t) slot;
        if (!sched->recorded[i]) {
            continue;
        }
        if (sched->events[i] != NULL) {
            ggml_backend_event_synchronize(sched->events[i]);
        } else {
            wait_for(sched, b);
        }
        sched->recorded[i] = false;
    }
}

// ---- events ----

enum ggml_status sched_events_init(struct ggml_backend_sched *sched) {
    if (sched->n_slots <= 1 || sched->n_event_slots >= sched->n_slots) {
        return GGML_STATUS_SUCCESS;
    }
    sched_drain(sched);
    sched_events_fini(sched);
    const size_t n = (size_t) sched->n_backends * (size_t) sched->n_slots;
    sched->events = berth_calloc(n, sizeof sched->events[0]);
    sched->recorded = berth_calloc(n, sizeof sched->recorded[0]);
    if (sched->events == NULL || sched->recorded == NULL) {
        sched_events_fini(sched);
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "scheduler: out of memory for %zu events", n);
    }
    sched->n_event_slots = sched->n_slots;
    for (size_t i = 0; i < n; i++) { // NULL: sched_wait_slot waits for all work of the backend instead
        ggml_backend_t backend = sched->backends[i / (size_t) sched->n_event_slots];
        sched->events[i] = backend->iface.event_record != NULL ? ggml_backend_event_new(backend->device) : NULL;
    }
    return GGML_STATUS_SUCCESS;
}

void sched_events_fini(struct ggml_backend_sched *sched) {
    for (size_t i = 0; sched->events != NULL && i < (size_t) sched->n_backends * (size_t) sched->n_event_slots; i++) {
        ggml_backend_event_free(sched->events[i]);
    }
    berth_free(sched->events);
    berth_free(sched->recorded);
    sched->events = NULL;
    sched->recorded = NULL;
    sched->n_event_slots = 0;
}

static void event_record(struct ggml_backend_sched *sched, int b) {
    const size_t i = (size_t) b * (size_t) sched->n_event_slots + (size_t) sched->slot;
    if (sched->recorded == NULL || !sched->in_flight[b]) {
        return;
    }
    if (sched->events[i] != NULL) {
        ggml_backend_event_record(sched->events[i], sched->backends[b]);
    }
    sched->recorded[i] = true;
}

static void events_record(struct ggml_backend_sched *sched) {
    for (int b = 0; b < sched->n_backends; b++) {
        event_record(sched, b);
    }
}

static void backend_wait_on(struct ggml_backend_sched *sched, int b, int other) {
    const size_t i = (size_t) other * (size_t) sched->n_event_slots + (size_t) sched->slot;
    if (sched->recorded != NULL && sched->recorded[i] && sched->events[i] != NULL && sched->in_flight[other] &&
        sched->backends[b]->iface.event_wait != NULL) {
        ggml_backend_event_wait(sched->backends[b], sched->events[i]);
        sched->in_flight[b] = sched->in_flight[b] || sched->backends[b]->iface.synchronize != NULL;
    } else {
        wait_for(sched, other);
    }
}

// ---- copies ----

// Copies from src, which has a host address but no buffer, or is a view of such a tensor.
static bool copy_unbuffered(const struct ggml_tensor *src, struct ggml_tensor *dst) {
    const enum berth_span_fault fault = berth_span_check(&(struct berth_span_base){0}, src);
    if (fault > BERTH_SPAN_EMPTY) {
        char text[256];
        berth_span_report(fault, src, text, sizeof text);
        berth_set_error("%s", text);
        return false;
    }
    ggml_backend_tensor_set(dst, src->data, 0, ggml_nbytes(src));
    return true;
}

// Returns true if the copy is done, or queued in the right order.
static bool copy_between(struct ggml_backend_sched *sched, struct sched_cached *cached, const struct sched_copy *copy,
    const struct ggml_tensor *src, struct ggml_tensor *dst) {
    ggml_backend_t to = sched->backends[copy->backend];
    const int from = copy->from;
    if (copy->writer >= 0 && copy->writer != from) {
        wait_for(sched, copy->writer);
    }
    const bool has_buffer = berth_tensor_buffer(src) != NULL;
    if (has_buffer && !copy->copies_caller_bytes && from >= 0 && to->iface.cpy_tensor_async != NULL &&
        to->iface.cpy_tensor_async(sched->backends[from], to, src, dst)) {
        sched->in_flight[from] = sched->in_flight[from] || sched->backends[from]->iface.synchronize != NULL;
        sched->in_flight[copy->backend] = to->iface.synchronize != NULL;
        return true;
    }
    if (!copy->copies_caller_bytes || cached->rows[copy->row].is_placed) {
        wait_for(sched, from);
    }
    return has_buffer ? berth_tensor_copy("scheduler", to, src, dst, &sched->staging) : copy_unbuffered(src, dst);
}

static enum ggml_status copy_run(struct ggml_backend_sched *sched, struct sched_cached *cached, int32_t i_copy, int32_t i_split) {
    const struct sched_copy *copy = &cached->copies[i_copy];
    if (sched_resident_is_ready(sched, copy->resident)) {
        return GGML_STATUS_SUCCESS;
    }
    struct ggml_tensor *src = cached->rec.tensors[copy->row], *dst = sched_copy_tensor(cached, i_copy, sched->slot);
    const int64_t start_ns = sched->is_tracing ? sched_trace_now() : 0;
    const bool is_copied = copy_between(sched, cached, copy, src, dst);
    // A function of the backend that returns void stores its failure in the backend.
    if (berth_backend_report(sched->backends[copy->backend]) != GGML_STATUS_SUCCESS || !is_copied) {
        return berth_fail(GGML_STATUS_FAILED, "scheduler: copying %s to backend %s for split %d of %d failed: %s",
            berth_name_of(src), ggml_backend_name(sched->backends[copy->backend]), i_split, cached->n_splits, berth_last_error());
    }
    if (copy->resident >= 0) {
        sched_resident_filled(sched, copy->resident);
    }
    sched->stats.n_copied++;
    sched->stats.copied_size += (int64_t) ggml_nbytes(src);
    if (sched->is_tracing) {
        wait_for(sched, copy->from);
        wait_for(sched, copy->backend);
        struct sched_trace_event *e = sched_trace_add(sched, SCHED_TRACE_COPY, src->name, i_split, copy->backend, start_ns);
        if (e != NULL) {
            e->bytes = ggml_nbytes(src);
        }
    }
    return GGML_STATUS_SUCCESS;
}

// ---- splits ----

// Computes the split in parts for the eval callback. Each part ends at a node that the callback selects. Sets *go_on to false if
// the callback stops the graph.
static enum ggml_status compute_watched(
    struct ggml_backend_sched *sched, struct sched_cached *cached, const struct sched_split *split, bool *go_on) {
    ggml_backend_t backend = sched->backends[split->backend];
    enum ggml_status status = GGML_STATUS_SUCCESS;
    // The callback may register another callback for the next split.
    const ggml_backend_sched_eval_callback callback = sched->callback;
    void *const user_data = sched->callback_data;
    for (int32_t i = split->i_start; i < split->i_end && *go_on;) {
        int32_t end = i + 1;
        bool is_selected = callback(sched_nodes(cached)[i], true, user_data);
        while (!is_selected && end < split->i_end) {
            is_selected = callback(sched_nodes(cached)[end++], true, user_data);
        }
        struct ggml_cgraph part = sched_part(sched, cached, i, end);

        status = ggml_backend_graph_compute_async(backend, &part);
        const enum ggml_status sync_status = berth_backend_synchronize(backend);
        if (status == GGML_STATUS_SUCCESS) {
            status = sync_status;
        }
        if (status != GGML_STATUS_SUCCESS) {
            break;
        }
        if (is_selected) {
            *go_on = callback(sched_nodes(cached)[end - 1], false, user_data);
        }
        i = end;
    }
    return status;
}

static void wait_conflicts(struct ggml_backend_sched *sched, const struct sched_cached *cached, int b) {
    const size_t n = (size_t) sched->n_backends;
    for (int other = 0; other < sched->n_backends; other++) {
        const bool shares =
            sched->bufts[other] == sched->bufts[b] || (cached->has_conflict && cached->conflict[(size_t) b * n + (size_t) other]);
        if (other != b && shares) {
            wait_for(sched, other);
        }
    }
}

// Returns true if the split is one move (a spill copy), and the scheduler's copy of its source is already at the result's
// address.
static bool split_is_copied_move(
    const struct ggml_backend_sched *sched, const struct sched_cached *cached, const struct sched_split *split) {
    bool is_done = split->n_copies == 1;
    for (int32_t i = split->i_start; i < split->i_end && is_done; i++) {
        const struct ggml_tensor *node = sched_nodes(cached)[i];
        is_done =
            cached->rows[sched_order(cached, i)].is_empty ||
            (berth_move_of(node) != BERTH_MOVE_NONE && node->data == sched_copy_tensor(cached, split->copies, sched->slot)->data);
    }
    return is_done;
}

// Returns the number of copies that are made directly before the split.
static int32_t split_count_late(const struct ggml_backend_sched *sched, const struct sched_cached *cached, int32_t i_split) {
    const struct sched_split *split = &cached->splits[i_split];
    int32_t n = 0;
    for (int32_t i = split->copies; i < split->copies + split->n_copies; i++) {
        const bool is_made_early = sched->early_split == i_split && cached->copies[i].is_early;
        n += !is_made_early && !sched_resident_is_ready(sched, cached->copies[i].resident);
    }
    return n;
}

// Makes the copies that the split reads, after the waits that they and the split's nodes require.
static enum ggml_status split_begin(struct ggml_backend_sched *sched, struct sched_cached *cached, int32_t i_split) {
    const struct sched_split *split = &cached->splits[i_split];
    const int b = split->backend;
    const bool has_early = sched->early_split == i_split;
    const int32_t n_late = split_count_late(sched, cached, i_split);
    wait_conflicts(sched, cached, b);
    if (cached->n_slots == 1 && n_late > 0) {
        wait_for(sched, b);
    }
    if (n_late == 0 && i_split > 0 && cached->splits[i_split - 1].backend != b) {
        backend_wait_on(sched, b, cached->splits[i_split - 1].backend);
    }
    enum ggml_status status = GGML_STATUS_SUCCESS;
    for (int32_t i = split->copies; i < split->copies + split->n_copies && status == GGML_STATUS_SUCCESS; i++) {
        if (!has_early || !cached->copies[i].is_early) {
            status = copy_run(sched, cached, i, i_split);
        }
    }
    if (has_early) {
        sched_early_join(sched, cached);
    }
    return status;
}

static enum ggml_status split_run(struct ggml_backend_sched *sched, struct sched_cached *cached, int32_t i_split, bool *go_on) {
    struct sched_split *split = &cached->splits[i_split];
    const int b = split->backend;
    ggml_backend_t backend = sched->backends[b];
    enum ggml_status status = split_begin(sched, cached, i_split);
    if (status != GGML_STATUS_SUCCESS || (sched->callback == NULL && split_is_copied_move(sched, cached, split))) {
        return status;
    }
    bool starts_early = sched_early_prepare(sched, cached, i_split + 1);
    if (starts_early && cached->splits[i_split + 1].backend != b) { // a backend of the host returns when it has computed
        starts_early = false;
        status = sched_early_start(sched, cached, i_split + 1);
        if (status != GGML_STATUS_SUCCESS) {
            return status;
        }
    }
    const int64_t start_ns = sched->is_tracing ? sched_trace_now() : 0;
    sched_edges_to_copies(cached, split, sched->slot);
    if (sched->callback != NULL) {
        status = compute_watched(sched, cached, split, go_on);
    } else if (sched->is_tracing) {
        status = sched_trace_ops(sched, cached, i_split);
    } else {
        struct ggml_cgraph part = sched_part(sched, cached, split->i_start, split->i_end);
        part.uid = split->uid;
        status = ggml_backend_graph_compute_async(backend, &part);
        sched->in_flight[b] = backend->iface.synchronize != NULL;
        if (cached->n_slots > 1) {
            event_record(sched, b);
        }
    }
    sched_edges_to_graph(cached, split);
    if (sched->is_tracing) {
        wait_for(sched, b);
        sched_trace_add(sched, SCHED_TRACE_SPLIT, NULL, i_split, b, start_ns);
    }
    if (status != GGML_STATUS_SUCCESS && status != GGML_STATUS_ABORTED) {
        const char *why = berth_last_error();
        return berth_fail(status, "scheduler: backend %s failed at split %d of %d (%s to %s, %d nodes): %s",
            ggml_backend_name(backend), i_split, cached->n_splits, berth_name_of(sched_nodes(cached)[split->i_start]),
            berth_name_of(sched_nodes(cached)[split->i_end - 1]), split->i_end - split->i_start,
            why[0] != '\0' ? why : "no reason given");
    }
    return starts_early && status == GGML_STATUS_SUCCESS ? sched_early_start(sched, cached, i_split + 1) : status;
}

enum ggml_status sched_run(struct ggml_backend_sched *sched) {
    struct sched_cached *cached = sched->cur;
    enum ggml_status status = GGML_STATUS_SUCCESS;
    bool go_on = true;
    sched->has_in_use = sched->is_tracing && sched_trace_memory(sched, cached);
    sched->n_trace_lost += sched->is_tracing && !sched->has_in_use;
    if (cached->n_slots > 1) {
        sched_wait_slot(sched, sched->slot);
    }
    sched->is_running = true;
    for (int32_t s = 0; s < cached->n_splits && go_on && status == GGML_STATUS_SUCCESS; s++) {
        status = split_run(sched, cached, s, &go_on);
    }
    sched->is_running = false;
    sched_residents_end(sched, status);
    if (status == GGML_STATUS_SUCCESS && go_on) {
        sched_residents_skip_own_writes(sched, cached);
    }
    if (status != GGML_STATUS_SUCCESS) { // all work of this graph must end first
        char text[512];
        snprintf(text, sizeof text, "%s", berth_last_error());
        sched_drain(sched);
        const enum ggml_status known = failures_take(sched);
        (void) known; // dropped, because such a failure is a consequence of the failure that `text` describes
        berth_set_error("%s", text);
    } else if (cached->n_slots > 1) {
        events_record(sched);
    }
    if (sched->early_split >= 0) { // the graph ended before the split
        sched_early_wait(sched);
    }
    return status;
}
