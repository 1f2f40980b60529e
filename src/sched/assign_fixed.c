// SPDX-License-Identifier: MIT
// assign_fixed.c: ops and tensors whose backend is decided before any spreading: the caller chose it, memory is there, it is an
// input, or a weight pulls it.

#include "sched/assign.h"

#include "core/op.h"

// Into memory of this type, with this node's op.
static int first_for_buft(struct assign *a, ggml_backend_buffer_type_t buft, int32_t node) {
    for (int b = 0; b < a->sched->n_backends; b++) {
        if (assign_uses_buft(a->sched, b, buft) && (!assign_is_node(a, node) || assign_supports(a, b, node))) {
            return b;
        }
    }
    return -1;
}

static enum ggml_status fix_placed(struct assign *a, int32_t r) {
    struct sched_memo *memo = a->memo;
    const ggml_backend_buffer_type_t buft = memo->rec.rows[sched_base(memo, r)].buft;
    struct sched_row *row = &memo->rows[r];
    const bool is_chosen = assign_is_node(a, r) && row->caller >= 0; // memory stays where it is whatever is chosen
    const int b = is_chosen ? row->caller : first_for_buft(a, buft, r);
    const struct ggml_tensor *t = memo->rec.tensors[r];
    row->backend = (int16_t) b;
    row->reason = is_chosen ? BERTH_SCHED_CALLER : BERTH_SCHED_PLACED;
    if (assign_is_node(a, r) && (b < 0 || !assign_uses_buft(a->sched, b, buft))) {
        return berth_fail(GGML_STATUS_FAILED, "scheduler: %s (%s) writes into memory of type %s, and %s can do that",
            berth_name_of(t), ggml_op_name(t->op), buft != NULL ? ggml_backend_buft_name(buft) : "host",
            b >= 0 ? "the backend chosen for it is not one that" : "no backend");
    }
    return GGML_STATUS_SUCCESS;
}

// How many tokens an op works on at once: a weight is worth its way to a device if many share it.
static int64_t batch_of(const struct ggml_tensor *t) {
    switch (t->op) {
        case GGML_OP_GET_ROWS: return 0; // touches few rows of its weight
        case GGML_OP_MUL_MAT: return t->ne[1];
        case GGML_OP_MUL_MAT_ID:
        case GGML_OP_ROPE: return t->ne[2];
        default: return ggml_nrows(t);
    }
}

static bool wants_offload(struct assign *a, int b, int32_t node) {
    const struct ggml_tensor *t = a->memo->rec.tensors[node];
    return (a->sched->offload_min_batch <= 0 || batch_of(t) >= a->sched->offload_min_batch) && assign_supports(a, b, node) &&
           ggml_backend_offload_op(a->sched->backends[b], t);
}

// The backend of a weight that node reads, or of a device that wants the op in spite of it.
static bool follow_weight(struct assign *a, int32_t node, ggml_backend_buffer_type_t buft) {
    struct sched_row *root = &a->memo->rows[sched_root(a->memo, node)];
    const int b = first_for_buft(a, buft, node);
    if (a->sched->op_offload && b == a->last && ggml_backend_buft_is_host(buft)) {
        for (int d = 0; d < b; d++) {
            if (wants_offload(a, d, node) && assign_set_if_able(a, node, d, BERTH_SCHED_OFFLOAD)) {
                return true;
            }
        }
    }
    if (b >= 0 && assign_set_if_able(a, node, b, BERTH_SCHED_WEIGHT)) {
        return true;
    }
    for (int d = 0; b < 0 && d < a->sched->n_backends && !root->lost_weight; d++) { // who has the weight cannot run the op
        if (assign_uses_buft(a->sched, d, buft)) {
            root->refused = (int16_t) d;
            root->lost_weight = true;
        }
    }
    root->lost_weight = root->lost_weight || b >= 0;
    return false;
}

// The largest weight decides, the first of equals; if its backend cannot run the op, another one may.
static bool fix_by_weight(struct assign *a, int32_t node) {
    struct sched_memo *memo = a->memo;
    const struct record_row *row = &memo->rec.rows[node];
    if (row->op == GGML_OP_ROPE) {
        return false; // its frequency factors are too small to decide anything
    }
    int32_t largest = -1;
    for (int32_t k = row->src; k < row->src + row->n_src; k++) {
        const int32_t s = memo->rec.srcs[k];
        largest = sched_is_weight(memo, s) && (largest < 0 || sched_nbytes(memo, s) > sched_nbytes(memo, largest)) ? s : largest;
    }
    if (largest < 0 || follow_weight(a, node, memo->rec.rows[sched_base(memo, largest)].buft)) {
        return largest >= 0;
    }
    for (int32_t k = row->src; k < row->src + row->n_src; k++) {
        const int32_t s = memo->rec.srcs[k];
        if (s != largest && sched_is_weight(memo, s) && follow_weight(a, node, memo->rec.rows[sched_base(memo, s)].buft)) {
            return true;
        }
    }
    return false;
}

static inline bool reads_weight(const struct sched_memo *memo, const struct record_row *row) {
    bool any = false;
    for (int32_t k = row->src; k < row->src + row->n_src; k++) {
        any = any || sched_is_weight(memo, memo->rec.srcs[k]);
    }
    return any;
}

static inline enum ggml_status fix_row(struct assign *a, int32_t r) {
    struct sched_memo *memo = a->memo;
    enum ggml_status status = GGML_STATUS_SUCCESS;
    const struct sched_row *row = &memo->rows[r];
    if (row->is_placed) {
        status = fix_placed(a, r);
    } else if (!assign_is_set(a, r) && memo->rows[sched_root(memo, r)].is_input) {
        a->n_free += assign_set_if_able(a, r, a->last, BERTH_SCHED_INPUT); // it is none of those that are counted
    }
    if (assign_is_set(a, r)) {
        return status;
    }
    if (!assign_is_node(a, r)) {
        a->has_unread = a->has_unread || sched_root(memo, r) == r; // a view follows its root
        return status;
    }
    a->n_free++;
    if (row->reads_weight) {
        (void) fix_by_weight(a, r);
    }
    return status;
}

enum ggml_status sched_fix(struct assign *a) {
    struct sched_memo *memo = a->memo;
    for (int32_t r = 0; memo->has_choices && r < memo->rec.n_rows;
         r++) { // roots and writers that were chosen come before all else
        if (memo->rows[r].caller >= 0 && (sched_base(memo, r) == r || assign_is_node(a, r))) {
            assign_set(a, r, memo->rows[r].caller, BERTH_SCHED_CALLER);
        }
    }
    a->n_free = 0;
    enum ggml_status status = GGML_STATUS_SUCCESS;
    for (int32_t r = memo->rec.n_nodes; r < memo->rec.n_rows && status == GGML_STATUS_SUCCESS; r++) { // memory before who uses it
        status = fix_row(a, r);
    }
    for (int32_t r = 0; r < memo->rec.n_nodes && status == GGML_STATUS_SUCCESS; r++) {
        memo->rows[r].reads_weight = reads_weight(memo, &memo->rec.rows[r]);
        status = fix_row(a, r);
    }
    return status;
}
