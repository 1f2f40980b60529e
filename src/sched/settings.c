// SPDX-License-Identifier: MIT
// settings.c: queries of a scheduler, the caller's choices of backends, and settings beyond ggml: strict mode, memory limits,
// graphs in flight, reports.

#include "sched/sched.h"

#include "core/op.h"

// ---- queries and choices ----

static int index_of(const struct ggml_backend_sched *sched, ggml_backend_t backend) {
    for (int b = 0; sched != NULL && backend != NULL && b < sched->n_backends; b++) {
        if (sched->backends[b] == backend) {
            return b;
        }
    }
    return -1;
}

int ggml_backend_sched_get_n_backends(ggml_backend_sched_t sched) {
    return sched != NULL ? sched->n_backends : 0;
}

ggml_backend_t ggml_backend_sched_get_backend(ggml_backend_sched_t sched, int i) {
    return sched != NULL && i >= 0 && i < sched->n_backends ? sched->backends[i] : NULL;
}

int ggml_backend_sched_get_n_splits(ggml_backend_sched_t sched) {
    return sched != NULL ? sched->last_n_splits : 0;
}

int ggml_backend_sched_get_n_copies(ggml_backend_sched_t sched) {
    return sched != NULL ? sched->n_slots : 0;
}

ggml_backend_buffer_type_t ggml_backend_sched_get_buffer_type(ggml_backend_sched_t sched, ggml_backend_t backend) {
    const int b = index_of(sched, backend);
    return b >= 0 ? sched->bufts[b] : NULL;
}

size_t ggml_backend_sched_get_buffer_size(ggml_backend_sched_t sched, ggml_backend_t backend) {
    const int b = index_of(sched, backend);
    return b >= 0 ? ggml_gallocr_get_buffer_size(sched->galloc, b) : 0;
}

static bool choice_add(struct sched_choices *choices, struct ggml_tensor *t, int b) {
    const size_t n = (size_t) choices->n + 1;
    if (!BERTH_GROW(&choices->tensors, &choices->tensors_cap, n) || !BERTH_GROW(&choices->backends, &choices->backends_cap, n) ||
        !(n == 1 ? berth_record_index_reset(&choices->index, 1)
                 : berth_record_index_reserve(&choices->index, choices->tensors, choices->n, n))) {
        return false;
    }
    choices->tensors[choices->n] = t;
    const int32_t i = record_index_add(&choices->index, choices->tensors, choices->n);
    choices->backends[i] = (int16_t) b;
    choices->n += i == choices->n;
    return true;
}

void ggml_backend_sched_set_tensor_backend(ggml_backend_sched_t sched, struct ggml_tensor *node, ggml_backend_t backend) {
    const int b = index_of(sched, backend);
    if (b < 0 || node == NULL) {
        const char *why = node == NULL ? "the tensor is NULL" : "the backend does not belong to the scheduler";
        if (sched == NULL) {
            why = "the scheduler is NULL";
        }
        berth_fail(GGML_STATUS_FAILED, "ggml_backend_sched_set_tensor_backend: %s", why);
        return;
    }
    if (!sched_is_idle(__func__, sched)) {
        return;
    }
    if (!choice_add(&sched->chosen, node, b)) {
        berth_backend_fail(backend, "ggml_backend_sched_set_tensor_backend: out of memory for the choice of %s", node->name);
    }
    sched->is_graph_allocated = false;
}

ggml_backend_t ggml_backend_sched_get_tensor_backend(ggml_backend_sched_t sched, struct ggml_tensor *node) {
    if (sched == NULL || node == NULL) {
        return NULL;
    }
    const int32_t r = sched->cur != NULL ? berth_record_find(&sched->cur->rec, node) : -1;
    const int b = r >= 0 ? sched->cur->rows[r].backend : sched_choice(&sched->chosen, node);
    return b >= 0 ? sched->backends[b] : NULL;
}

// ---- beyond ggml ----

void berth_sched_set_spill_backends(
    ggml_backend_sched_t sched, const struct ggml_cgraph *graph, ggml_backend_t own, ggml_backend_t other) {
    for (int i = 0; graph != NULL && i < graph->n_nodes; i++) {
        const enum berth_move kind = berth_move_of(graph->nodes[i]);
        if (kind != BERTH_MOVE_NONE) {
            ggml_backend_sched_set_tensor_backend(sched, graph->nodes[i], kind == BERTH_MOVE_OUT ? other : own);
        }
    }
}

static void cached_forget_all(struct ggml_backend_sched *sched) {
    for (int m = 0; m < SCHED_N_CACHED; m++) {
        sched_cached_drop(&sched->cached_graphs[m]);
    }
    sched->cur = NULL;
    sched->graph = NULL;
    sched->is_graph_allocated = false;
}

void berth_sched_set_strict(ggml_backend_sched_t sched, bool strict) {
    if (sched != NULL && sched->is_strict != strict && sched_is_idle(__func__, sched)) {
        sched->is_strict = strict;
        cached_forget_all(sched);
    }
}

void berth_sched_set_memory_limit(ggml_backend_sched_t sched, ggml_backend_t backend, size_t limit) {
    const int b = index_of(sched, backend);
    if (b < 0) {
        berth_fail(GGML_STATUS_FAILED, "berth_sched_set_memory_limit: the backend does not belong to the scheduler");
        return;
    }
    if (!sched_is_idle(__func__, sched)) {
        return;
    }
    sched->limits[b] = limit;
    cached_forget_all(sched);
}

void berth_sched_set_resident_limit(ggml_backend_sched_t sched, ggml_backend_t backend, size_t limit) {
    const int b = index_of(sched, backend);
    if (b < 0 || b == sched->n_backends - 1) {
        berth_fail(GGML_STATUS_FAILED, "berth_sched_set_resident_limit: the backend %s",
            b < 0 ? "does not belong to the scheduler" : "is the host's");
        return;
    }
    if (!sched_is_idle(__func__, sched)) {
        return;
    }
    sched_hold(sched);
    sched_drain(sched);
    sched_residents_free(sched);
    sched->residents.limits[b] = limit;
    cached_forget_all(sched);
    sched_let_go(sched);
}

void berth_sched_set_n_copies(ggml_backend_sched_t sched, int n_copies) {
    if (sched == NULL || n_copies < 1) {
        berth_fail(GGML_STATUS_FAILED, "berth_sched_set_n_copies: the scheduler is NULL, or %d graphs in flight are fewer than 1",
            n_copies);
        return;
    }
    if (!sched_is_idle(__func__, sched)) {
        return;
    }
    sched_hold(sched);
    sched_drain(sched);
    sched->n_slots = n_copies;
    sched->slot = sched->next_slot = 0;
    cached_forget_all(sched);
    sched_let_go(sched);
}

void berth_sched_stats(ggml_backend_sched_t sched, struct berth_sched_stats *stats) {
    if (sched != NULL && stats != NULL) {
        sched_hold(sched);
        *stats = sched->stats;
        stats->resident_size = 0;
        for (int b = 0; b < sched->n_backends; b++) {
            stats->resident_size += (int64_t) sched->residents.used[b];
        }
        sched_let_go(sched);
    }
}

// ---- the last plan ----

enum ggml_status berth_sched_report(ggml_backend_sched_t sched, ggml_backend_t backend, struct berth_plan_report *report) {
    if (sched == NULL || report == NULL || berth_galloc_plan_report(sched->galloc, sched->plan, 0) == NULL) {
        return berth_fail(GGML_STATUS_FAILED, "berth_sched_report: no graph was planned");
    }
    const int b = index_of(sched, backend);
    if (b < 0) {
        return berth_fail(GGML_STATUS_FAILED, "berth_sched_report: the backend does not belong to the scheduler");
    }
    *report = *berth_galloc_plan_report(sched->galloc, sched->plan, b);
    return GGML_STATUS_SUCCESS;
}

enum ggml_status berth_sched_save(ggml_backend_sched_t sched, FILE *file) {
    if (sched == NULL || file == NULL || sched->planned == NULL) {
        return berth_fail(GGML_STATUS_FAILED,
            "berth_sched_save: no graph has been planned, its cache entry has been reused, or the file is NULL");
    }
    return berth_galloc_plan_save(sched->galloc, sched->plan, file);
}
