// SPDX-License-Identifier: MIT
// assign.c: a backend for every tensor, and why.
//
// Fixed first: what the caller chose, what has memory, inputs (the host, which is the last backend), ops that read weights.
// Then the fixed ones spread over the ops between them, devices before the host; where two devices meet, the border is put
// where the fewest bytes cross. What is still free goes where most of its source bytes are. Tensors that only lie there follow
// the first op that reads them.
//
// Invariant: memory is written where it lies. A root that is not placed decides for all its views, so a backend is taken for it
// only if it can run every op that writes into it. O(edges * backends) with each backend asked once for each op.

#include "sched/assign.h"

#include "core/op.h"

#include <string.h>

bool sched_reaches(const struct ggml_backend_sched *sched, const struct sched_memo *memo, int b, int32_t i) {
    const int32_t base = sched_base(memo, i);
    if (memo->rows[i].is_placed) {
        return assign_uses_buft(sched, b, memo->rec.rows[base].buft);
    }
    const int owner = memo->rows[base].backend;
    return owner >= 0 && sched->reaches[(size_t) b * (size_t) sched->n_backends + (size_t) owner];
}

// ---- what is left ----

static uint64_t bytes_at_hand(struct assign *a, int b, int32_t node) {
    const struct record_row *row = &a->memo->rec.rows[node];
    uint64_t bytes = 0;
    for (int32_t k = row->src; k < row->src + row->n_src; k++) {
        if (sched_reaches(a->sched, a->memo, b, a->memo->rec.srcs[k])) {
            bytes += sched_nbytes(a->memo, a->memo->rec.srcs[k]);
        }
    }
    return bytes;
}

static enum ggml_status pick(struct assign *a, int32_t node) {
    const int32_t root = sched_root(a->memo, node);
    int best = -1;
    uint64_t most = 0;
    for (int b = 0; b < a->sched->n_backends; b++) {
        if (!assign_can_run(a, b, root)) {
            assign_refuse(a, root, b);
            continue;
        }
        const uint64_t bytes = bytes_at_hand(a, b, node);
        if (best < 0 || bytes > most) {
            best = b;
            most = bytes;
        }
    }
    if (best < 0) {
        const struct ggml_tensor *t = a->memo->rec.tensors[node];
        return berth_fail(GGML_STATUS_FAILED, "scheduler: no backend can run %s (%s, %s%s)", berth_name_of(t), ggml_op_desc(t),
            ggml_type_name(t->type), assign_writer_after(a, root) >= 0 ? ", with the ops that share its memory" : "");
    }
    assign_set(a, node, best, BERTH_SCHED_PRIORITY);
    return GGML_STATUS_SUCCESS;
}

// A backend of the same memory and a higher priority takes the op over if it can: nothing crosses for it.
static void upgrade(struct assign *a, int32_t node) {
    struct sched_row *row = &a->memo->rows[sched_root(a->memo, node)];
    if (row->reason == BERTH_SCHED_CALLER || (row->is_input && row->reason == BERTH_SCHED_INPUT)) {
        return;
    }
    for (int b = a->sched->first_alike[row->backend]; b < row->backend; b++) {
        if (a->sched->bufts[b] != a->sched->bufts[row->backend] || !assign_can_run(a, b, sched_root(a->memo, node))) {
            continue;
        }
        const struct record_row *n = &a->memo->rec.rows[node];
        bool reaches_all = true;
        for (int32_t k = n->src; k < n->src + n->n_src && reaches_all; k++) {
            const int32_t s = a->memo->rec.srcs[k];
            reaches_all = sched_is_open(a->memo, s) || sched_reaches(a->sched, a->memo, b, s);
        }
        if (reaches_all) {
            row->backend = (int16_t) b;
            return;
        }
    }
}

static enum ggml_status settle(struct assign *a) {
    struct sched_memo *memo = a->memo;
    const bool is_done = a->n_free == 0 && !a->sched->has_alike; // most often
    for (int32_t r = 0; !is_done && r < memo->rec.n_nodes; r++) {
        if (!assign_is_node(a, r)) {
            continue;
        }
        if (!assign_is_set(a, r)) {
            const enum ggml_status status = pick(a, r);
            if (status != GGML_STATUS_SUCCESS) {
                return status;
            }
        }
        const int b = assign_backend_of(a, r);
        if (a->sched->first_alike[b] != b) {
            upgrade(a, r);
        }
    }
    for (int32_t r = 0; a->has_unread && r < memo->rec.n_nodes; r++) { // what only lies there follows its first reader
        const struct record_row *row = &memo->rec.rows[r];
        for (int32_t k = row->src; !memo->rows[r].is_empty && k < row->src + row->n_src; k++) {
            if (!memo->rows[memo->rec.srcs[k]].is_placed && !assign_is_set(a, memo->rec.srcs[k])) {
                assign_set(a, memo->rec.srcs[k], assign_backend_of(a, r), BERTH_SCHED_READER);
            }
        }
    }
    for (int32_t r = 0; a->has_unread && r < memo->rec.n_rows; r++) {
        const int32_t root = sched_root(memo, r);
        if (root == r && !memo->rows[r].is_placed && memo->rows[r].backend < 0) {
            assign_set(a, r, a->last, BERTH_SCHED_READER); // nobody reads it
        }
    }
    for (int32_t r = 0; memo->has_views && r < memo->rec.n_rows; r++) { // the root's word holds for its views
        const struct sched_row *root = &memo->rows[sched_root(memo, r)];
        struct sched_row *row = &memo->rows[r];
        if (root == row) {
            continue;
        }
        row->backend = root->backend;
        row->reason = root->reason;
        row->refused = root->refused;
    }
    return GGML_STATUS_SUCCESS;
}

static bool begin(struct assign *a) {
    const size_t n_nodes = (size_t) a->memo->rec.n_nodes, n_rows = (size_t) a->memo->rec.n_rows;
    const size_t n_known = n_nodes * (size_t) a->sched->n_backends;
    const size_t n_writers = a->memo->n_writers > 0 ? n_rows : 0;
    a->last = a->sched->n_backends - 1;
    a->change = sched_scratch(a->sched, (n_nodes + 2) * sizeof a->change[0] + n_writers * sizeof a->next_writer[0] + n_known);
    if (a->change == NULL) {
        return false;
    }
    int32_t *after_change = (int32_t *) (a->change + n_nodes + 2);
    a->known = (uint8_t *) (after_change + n_writers);
    memset(a->known, 0, n_known);
    if (n_writers == 0) {
        return true;
    }
    a->next_writer = after_change;
    memset(a->next_writer, -1, n_rows * sizeof a->next_writer[0]);
    for (int32_t r = a->memo->rec.n_nodes - 1; r >= 0; r--) {
        const int32_t root = sched_root(a->memo, r);
        if (root != r && assign_is_node(a, r)) {
            a->next_writer[r] = a->next_writer[root];
            a->next_writer[root] = r;
        }
    }
    return true;
}

enum ggml_status sched_assign(struct ggml_backend_sched *sched, struct sched_memo *memo) {
    struct assign a = {.sched = sched, .memo = memo};
    enum ggml_status status = GGML_STATUS_SUCCESS;
    if (!begin(&a)) {
        status = berth_fail(GGML_STATUS_ALLOC_FAILED, "scheduler: out of memory for %d backends of %d nodes", sched->n_backends,
            memo->rec.n_nodes);
    }
    if (status == GGML_STATUS_SUCCESS) {
        status = sched_fix(&a);
    }
    if (status == GGML_STATUS_SUCCESS) {
        if (sched->n_backends > 1) { // devices, before the host
            sched_spread_down(&a, false);
            sched_spread_up(&a, false);
        }
        sched_spread_down(&a, true);
        sched_spread_up(&a, true);
        status = settle(&a);
    }
    return status;
}
