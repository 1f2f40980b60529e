// SPDX-License-Identifier: MIT
// carry.c: a graph that was changed after it had got its memory is placed anew when it is computed. What the program has written
// into its inputs by then goes along: the bytes are kept on the host while places change.
// O(graph) and the inputs' bytes; graphs that stay where they are never come here.

#include "sched/sched.h"

struct carried {
    struct ggml_tensor *tensor;
    ggml_backend_buffer_t buffer; // where it was
    void *data;
    char *bytes;
};

// Takes its place from a tensor that nobody computes, which marks it as taken. False: out of memory.
static bool take(const struct ggml_backend_sched *sched, struct sched_carry *carry, struct ggml_tensor *t) {
    t = t != NULL && t->view_src != NULL ? t->view_src : t;
    if (t == NULL || t->op != GGML_OP_NONE || t->buffer == NULL || t->data == NULL ||
        ggml_backend_buffer_get_size(t->buffer) == 0 || !berth_galloc_owns(sched->galloc, t->buffer)) {
        return true;
    }
    const size_t size = ggml_nbytes(t);
    char *bytes       = berth_malloc(size + 1);
    if (bytes == NULL || !berth_grow((void **) &carry->list, &carry->cap, carry->n + 1, sizeof carry->list[0])) {
        berth_free(bytes);
        return false;
    }
    ggml_backend_tensor_get(t, bytes, 0, size);
    carry->list[carry->n++] = (struct carried){t, t->buffer, t->data, bytes};
    t->buffer               = NULL;
    t->data                 = NULL;
    return true;
}

enum ggml_status sched_carry_take(struct ggml_backend_sched *sched, struct sched_carry *carry, const struct ggml_cgraph *graph) {
    bool ok = true;
    if (carry->is_taken) {
        return GGML_STATUS_SUCCESS;
    }
    carry->is_taken = true;
    sched_drain(sched);
    for (int i = 0; i < graph->n_leafs && ok; i++) {
        ok = take(sched, carry, graph->leafs[i]);
    }
    for (int i = 0; i < graph->n_nodes && ok; i++) {
        ok = take(sched, carry, graph->nodes[i]);
        for (int k = 0; k < GGML_MAX_SRC && ok; k++) {
            ok = take(sched, carry, graph->nodes[i]->src[k]);
        }
    }
    if (!ok) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED,
            "scheduler: out of memory for the inputs of a graph of %d nodes that was changed after it was allocated",
            graph->n_nodes);
    }
    return GGML_STATUS_SUCCESS;
}

void sched_carry_give(struct sched_carry *carry) {
    for (size_t i = 0; i < carry->n; i++) {
        const struct carried *c = &carry->list[i];
        if (c->tensor->buffer == NULL) { // no new place
            c->tensor->buffer = c->buffer;
            c->tensor->data   = c->data;
        } else if (c->tensor->buffer != c->buffer || c->tensor->data != c->data) {
            ggml_backend_tensor_set(c->tensor, c->bytes, 0, ggml_nbytes(c->tensor));
        }
        berth_free(c->bytes);
    }
    berth_free(carry->list);
    *carry = (struct sched_carry){0};
}
