// SPDX-License-Identifier: MIT
// graph_cache.c: builds and compares the cached graphs of the scheduler. A cached graph has a full record (src/record/record.h)
// with the columns of struct sched_row.

#include "sched/sched.h"

#include <string.h>

// ---- build ----

// Reads only the record, not the tensors.
static void columns_fill(const struct ggml_backend_sched *sched, struct sched_cached *cached) {
    struct record *rec = &cached->rec;
    for (int32_t r = 0; r < rec->n_rows; r++) {
        const struct berth_op_info *info = berth_op_info((enum ggml_op) rec->rows[r].op);
        const int32_t base = record_base(rec, r);

        cached->rows[r] = (struct sched_row){
            .base = base,
            .slots = -1,
            .caller_backend = (int16_t) sched_choice(&sched->chosen, rec->tensors[r]),
            .backend = -1,
            .refused = -1,
            .is_placed = rec->rows[base].has_memory,
            .is_empty = info == NULL || info->is_empty,
            .is_input = (rec->rows[r].flags & GGML_TENSOR_FLAG_INPUT) != 0,
        };
        cached->has_choices = cached->has_choices || cached->rows[r].caller_backend >= 0;
        if (base != r) {
            cached->has_views = true;
            cached->n_writers += !cached->rows[r].is_empty && r < rec->n_nodes;
            cached->writes_weights = cached->writes_weights || (!cached->rows[r].is_empty && r < rec->n_nodes &&
                                                                   rec->rows[base].usage == GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
            rec->rows[r].has_memory = rec->rows[base].has_memory; // the caller may not have set the memory of a view yet
        }
    }
}

enum ggml_status sched_cached_build(
    struct ggml_backend_sched *sched, struct sched_cached *cached, const struct ggml_cgraph *graph) {
    const struct record_rules rules = berth_galloc_record_rules(sched->galloc);
    sched_cached_drop(cached);
    cached->rec.is_full_match = true;
    cached->rec.column_size = sizeof cached->rows[0];
    // Reserves rows for copies too, so that sched_plan does not reallocate the record.
    const size_t n_listed = (size_t) graph->n_nodes + (size_t) graph->n_leafs;
    if (sched->n_backends > 1 && !berth_record_reserve(&cached->rec, n_listed + n_listed / 8 + 16, n_listed * 2)) {
        goto out_of_memory;
    }
    const enum ggml_status status = berth_record_build(&cached->rec, graph, &rules);
    if (status != GGML_STATUS_SUCCESS) {
        sched_cached_drop(cached);
        return status;
    }
    cached->rows = cached->rec.columns;
    if (!BERTH_GROW(&cached->places, &cached->places_cap, (size_t) cached->rec.n_rows + 1)) {
        goto out_of_memory;
    }
    columns_fill(sched, cached);
    return GGML_STATUS_SUCCESS;
out_of_memory:
    sched_cached_drop(cached);
    return berth_fail(GGML_STATUS_ALLOC_FAILED, "scheduler: out of memory for the record of a graph of %d nodes", graph->n_nodes);
}

// ---- compare ----

static bool same_choices(const struct ggml_backend_sched *sched, const struct sched_cached *cached) {
    for (int32_t r = 0; (cached->has_choices || sched->chosen.n > 0) && r < cached->rec.n_rows; r++) {
        if (cached->rows[r].caller_backend != sched_choice(&sched->chosen, cached->rec.tensors[r])) {
            return false;
        }
    }
    return true;
}

// Replaces the nodes after a match with a graph that is equal but has other tensors.
static void nodes_renew(struct sched_cached *cached) {
    for (int32_t i = 0; cached->is_reordered && i < cached->rec.n_nodes; i++) {
        cached->nodes[i] = cached->rec.tensors[cached->order[i]];
    }
    cached->uid_slot = -1;
}

enum sched_match sched_cached_match(
    struct ggml_backend_sched *sched, struct sched_cached *cached, const struct ggml_cgraph *graph, bool with_places) {
    const struct record_rules rules = berth_galloc_record_rules(sched->galloc);
    struct record_placer placer = {.places = sched_has_places(sched, cached) ? cached->places : NULL};
    if (with_places && placer.places != NULL) {
        placer.undo = sched_scratch(sched, (size_t) cached->rec.n_rows * sizeof placer.undo[0]);
        placer.may_write = placer.undo != NULL;
    }
    if (berth_record_match(&cached->rec, graph, &rules, &placer) != RECORD_SAME) {
        return SCHED_OTHER;
    }
    if (placer.is_moved) {
        nodes_renew(cached);
    }
    if (!same_choices(sched, cached) || !sched_resident_is_valid(sched, cached)) {
        return SCHED_OTHER;
    }
    return with_places && placer.is_done ? SCHED_SAME_PLACED : SCHED_SAME;
}

// ---- free ----

void sched_cached_drop(struct sched_cached *cached) {
    berth_record_clear(&cached->rec);
    cached->n_writers = cached->n_splits = cached->n_copies = cached->n_edges = cached->n_deps = cached->n_inputs = 0;
    cached->has_views = cached->has_choices = cached->writes_weights = cached->is_reordered = cached->is_split = false;
    cached->epoch = 0;
}

void sched_cached_fini(struct sched_cached *cached) {
    berth_record_fini(&cached->rec);
    berth_free(cached->places);
    berth_free(cached->nodes);
    berth_free(cached->order);
    berth_free(cached->splits);
    berth_free(cached->copies);
    berth_free(cached->edges);
    berth_free(cached->deps);
    berth_free(cached->tensors);
    berth_free(cached->slot_places);
    berth_free(cached->conflict);
    *cached = (struct sched_cached){0};
}
