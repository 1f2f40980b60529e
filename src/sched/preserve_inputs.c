// SPDX-License-Identifier: MIT
// preserve_inputs.c: keeps the contents of inputs when a graph is placed a second time.
//
// A program may change a graph after the graph's memory was assigned. If the changed graph gets new addresses, the inputs are
// saved on the host and written to the new addresses. The cost is O(graph) plus the bytes of the inputs.

#include "sched/sched.h"

struct preserved_input {
    struct ggml_tensor *tensor;
    ggml_backend_buffer_t buffer; // buffer before the change
    void *data;
    size_t bytes_off; // offset of its bytes in preserved.bytes
};

static bool preserved_reserve(struct sched_preserved *preserved, size_t n, size_t n_bytes) {
    return BERTH_GROW(&preserved->list, &preserved->cap, n) && BERTH_GROW(&preserved->bytes, &preserved->bytes_cap, n_bytes);
}

bool sched_preserved_reserve(struct ggml_backend_sched *sched, const struct sched_cached *cached) {
    size_t n = 0, n_bytes = 0;
    for (int32_t r = 0; r < cached->rec.n_rows; r++) {
        if (cached->rec.rows[r].op == GGML_OP_NONE && sched_base(cached, r) == r && !cached->rows[r].is_placed) {
            n++;
            n_bytes += sched_nbytes(cached, r);
        }
    }
    return preserved_reserve(&sched->preserved, n, n_bytes);
}

// Saves t (or, if t is a view, the tensor that t views) if no op computes the tensor and the scheduler placed it. Then clears the
// tensor's address, so that a second call does nothing. False: out of memory.
static bool input_save(struct ggml_backend_sched *sched, struct ggml_tensor *t) {
    struct sched_preserved *preserved = &sched->preserved;
    if (t != NULL && t->view_src != NULL) {
        t = t->view_src;
    }
    if (t == NULL || t->op != GGML_OP_NONE || t->buffer == NULL || t->data == NULL ||
        ggml_backend_buffer_get_size(t->buffer) == 0 || !berth_galloc_owns(sched->galloc, t->buffer)) {
        return true;
    }
    const size_t size = ggml_nbytes(t);
    if (!preserved_reserve(preserved, preserved->n + 1, preserved->n_bytes + size)) {
        return false;
    }
    ggml_backend_tensor_get(t, preserved->bytes + preserved->n_bytes, 0, size);
    preserved->list[preserved->n++] = (struct preserved_input){t, t->buffer, t->data, preserved->n_bytes};
    preserved->n_bytes += size;
    t->buffer = NULL;
    t->data = NULL;
    return true;
}

enum ggml_status sched_preserved_save(struct ggml_backend_sched *sched, const struct ggml_cgraph *graph) {
    bool ok = true;
    if (sched->preserved.is_saved) {
        return GGML_STATUS_SUCCESS;
    }
    sched->preserved.is_saved = true;
    sched_drain(sched);
    for (int i = 0; i < graph->n_leafs && ok; i++) {
        ok = input_save(sched, graph->leafs[i]);
    }
    for (int i = 0; i < graph->n_nodes && ok; i++) {
        ok = input_save(sched, graph->nodes[i]);
        for (int k = 0; k < GGML_MAX_SRC && ok; k++) {
            ok = input_save(sched, graph->nodes[i]->src[k]);
        }
    }
    if (!ok) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED,
            "scheduler: out of memory to save the inputs of a graph of %d nodes, which was changed after it was allocated",
            graph->n_nodes);
    }
    return GGML_STATUS_SUCCESS;
}

void sched_preserved_restore(struct ggml_backend_sched *sched) {
    struct sched_preserved *preserved = &sched->preserved;
    for (size_t i = 0; i < preserved->n; i++) {
        const struct preserved_input *input = &preserved->list[i];
        if (input->tensor->buffer == NULL) { // not placed: the old address is valid
            input->tensor->buffer = input->buffer;
            input->tensor->data = input->data;
        } else if (input->tensor->buffer != input->buffer || input->tensor->data != input->data) {
            ggml_backend_tensor_set(input->tensor, preserved->bytes + input->bytes_off, 0, ggml_nbytes(input->tensor));
        }
    }
    preserved->is_saved = false;
    preserved->n = preserved->n_bytes = 0;
}
