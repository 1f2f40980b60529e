// SPDX-License-Identifier: MIT
// carry.c: a graph that was changed after it had got its memory is placed anew when it is computed. What the program has written
// into its inputs by then goes along: the bytes are kept on the host while places change.
// O(graph) and the inputs' bytes; graphs that stay where they are never come here.

#include "sched/sched.h"

struct carried {
    struct ggml_tensor *tensor;
    ggml_backend_buffer_t buffer; // where it was
    void *data;
    size_t at; // its bytes in carry.bytes
};

static bool carry_room(struct sched_carry *carry, size_t n, size_t n_bytes) {
    return BERTH_GROW(&carry->list, &carry->cap, n) && BERTH_GROW(&carry->bytes, &carry->bytes_cap, n_bytes);
}

bool sched_carry_room(struct ggml_backend_sched *sched, const struct sched_memo *memo) {
    size_t n = 0, n_bytes = 0;
    for (int32_t r = 0; r < memo->rec.n_rows; r++) {
        if (memo->rec.rows[r].op == GGML_OP_NONE && sched_base(memo, r) == r && !memo->rows[r].is_placed) {
            n++;
            n_bytes += sched_nbytes(memo, r);
        }
    }
    return carry_room(&sched->carry, n, n_bytes);
}

// Takes its place from a tensor that nobody computes, which marks it as taken. False: out of memory.
static bool input_take(struct ggml_backend_sched *sched, struct ggml_tensor *t) {
    struct sched_carry *carry = &sched->carry;
    if (t != NULL && t->view_src != NULL) {
        t = t->view_src;
    }
    if (t == NULL || t->op != GGML_OP_NONE || t->buffer == NULL || t->data == NULL ||
        ggml_backend_buffer_get_size(t->buffer) == 0 || !berth_galloc_owns(sched->galloc, t->buffer)) {
        return true;
    }
    const size_t size = ggml_nbytes(t);
    if (!carry_room(carry, carry->n + 1, carry->n_bytes + size)) {
        return false;
    }
    ggml_backend_tensor_get(t, carry->bytes + carry->n_bytes, 0, size);
    carry->list[carry->n++] = (struct carried){t, t->buffer, t->data, carry->n_bytes};
    carry->n_bytes += size;
    t->buffer = NULL;
    t->data = NULL;
    return true;
}

enum ggml_status sched_carry_take(struct ggml_backend_sched *sched, const struct ggml_cgraph *graph) {
    bool ok = true;
    if (sched->carry.is_taken) {
        return GGML_STATUS_SUCCESS;
    }
    sched->carry.is_taken = true;
    sched_drain(sched);
    for (int i = 0; i < graph->n_leafs && ok; i++) {
        ok = input_take(sched, graph->leafs[i]);
    }
    for (int i = 0; i < graph->n_nodes && ok; i++) {
        ok = input_take(sched, graph->nodes[i]);
        for (int k = 0; k < GGML_MAX_SRC && ok; k++) {
            ok = input_take(sched, graph->nodes[i]->src[k]);
        }
    }
    if (!ok) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED,
            "scheduler: out of memory for the inputs of a graph of %d nodes that was changed after it was allocated",
            graph->n_nodes);
    }
    return GGML_STATUS_SUCCESS;
}

void sched_carry_give(struct ggml_backend_sched *sched) {
    struct sched_carry *carry = &sched->carry;
    for (size_t i = 0; i < carry->n; i++) {
        const struct carried *c = &carry->list[i];
        if (c->tensor->buffer == NULL) { // no new place
            c->tensor->buffer = c->buffer;
            c->tensor->data = c->data;
        } else if (c->tensor->buffer != c->buffer || c->tensor->data != c->data) {
            ggml_backend_tensor_set(c->tensor, carry->bytes + c->at, 0, ggml_nbytes(c->tensor));
        }
    }
    carry->is_taken = false;
    carry->n = carry->n_bytes = 0;
}
