// SPDX-License-Identifier: MIT
// memo.c: a graph as the scheduler sees it: a record of all that decides where ops run and what crosses, and its columns.

#include "sched/sched.h"

#include <string.h>

// ---- building ----

// Needs no look at a tensor.
static void columns_fill(const struct ggml_backend_sched *sched, struct sched_memo *memo) {
    struct record *rec = &memo->rec;
    for (int32_t r = 0; r < rec->n_rows; r++) {
        const struct berth_op_info *info = berth_op_info((enum ggml_op) rec->rows[r].op);
        const int32_t base = record_base(rec, r);

        memo->rows[r] = (struct sched_row){
            .base = base,
            .slots = -1,
            .caller = (int16_t) sched_choice(&sched->chosen, rec->tensors[r]),
            .backend = -1,
            .refused = -1,
            .is_placed = rec->rows[base].has_memory,
            .is_empty = info == NULL || info->is_empty,
            .is_input = (rec->rows[r].flags & GGML_TENSOR_FLAG_INPUT) != 0,
        };
        memo->has_choices = memo->has_choices || memo->rows[r].caller >= 0;
        if (base != r) {
            memo->has_views = true;
            memo->n_writers += !memo->rows[r].is_empty && r < rec->n_nodes;
            rec->rows[r].has_memory = rec->rows[base].has_memory; // a view may not have been told yet
        }
    }
}

enum ggml_status sched_memo_build(struct ggml_backend_sched *sched, struct sched_memo *memo, const struct ggml_cgraph *graph) {
    const struct record_rules rules = berth_galloc_record_rules(sched->galloc);
    sched_memo_drop(memo);
    memo->rec.is_whole = true;
    memo->rec.column_size = sizeof memo->rows[0];
    // Room for copies too: a plan would have to move the record for them.
    const size_t n_listed = (size_t) graph->n_nodes + (size_t) graph->n_leafs;
    if (sched->n_backends > 1 && !berth_record_room(&memo->rec, n_listed + n_listed / 8 + 16, n_listed * 2)) {
        goto no_room;
    }
    const enum ggml_status status = berth_record_build(&memo->rec, graph, &rules);
    if (status != GGML_STATUS_SUCCESS) {
        sched_memo_drop(memo);
        return status;
    }
    memo->rows = memo->rec.columns;
    if (!BERTH_GROW(&memo->places, &memo->places_cap, (size_t) memo->rec.n_rows + 1)) {
        goto no_room;
    }
    columns_fill(sched, memo);
    return GGML_STATUS_SUCCESS;
no_room:
    sched_memo_drop(memo);
    return berth_fail(GGML_STATUS_ALLOC_FAILED, "scheduler: out of memory for a graph of %d nodes", graph->n_nodes);
}

// ---- comparing ----

static bool same_choices(const struct ggml_backend_sched *sched, const struct sched_memo *memo) {
    for (int32_t r = 0; (memo->has_choices || sched->chosen.n > 0) && r < memo->rec.n_rows; r++) {
        if (memo->rows[r].caller != sched_choice(&sched->chosen, memo->rec.tensors[r])) {
            return false;
        }
    }
    return true;
}

// Another graph of the same form: its tensors take the place of the old ones.
static void nodes_renew(struct sched_memo *memo) {
    for (int32_t i = 0; memo->is_reordered && i < memo->rec.n_nodes; i++) {
        memo->nodes[i] = memo->rec.tensors[memo->order[i]];
    }
    memo->uid_slot = -1;
}

enum sched_match sched_memo_match(
    struct ggml_backend_sched *sched, struct sched_memo *memo, const struct ggml_cgraph *graph, bool put) {
    const struct record_rules rules = berth_galloc_record_rules(sched->galloc);
    struct record_placer placer = {.places = sched_has_places(sched, memo) ? memo->places : NULL};
    if (put && placer.places != NULL) {
        placer.undo = sched_scratch(sched, (size_t) memo->rec.n_rows * sizeof placer.undo[0]);
        placer.may_write = placer.undo != NULL;
    }
    if (berth_record_match(&memo->rec, graph, &rules, &placer) != RECORD_SAME) {
        return SCHED_OTHER;
    }
    if (placer.is_moved) {
        nodes_renew(memo);
    }
    if (!same_choices(sched, memo)) {
        return SCHED_OTHER;
    }
    return put && placer.is_done ? SCHED_SAME_PLACED : SCHED_SAME;
}

// ---- end ----

void sched_memo_drop(struct sched_memo *memo) {
    berth_record_clear(&memo->rec);
    memo->n_writers = memo->n_splits = memo->n_copies = memo->n_edges = memo->n_deps = memo->n_inputs = 0;
    memo->has_views = memo->has_choices = memo->is_reordered = memo->is_split = false;
    memo->epoch = 0;
}

void sched_memo_fini(struct sched_memo *memo) {
    berth_record_fini(&memo->rec);
    berth_free(memo->places);
    berth_free(memo->nodes);
    berth_free(memo->order);
    berth_free(memo->splits);
    berth_free(memo->copies);
    berth_free(memo->edges);
    berth_free(memo->deps);
    berth_free(memo->tensors);
    berth_free(memo->slot_places);
    berth_free(memo->conflict);
    *memo = (struct sched_memo){0};
}
