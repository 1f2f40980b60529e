// SPDX-License-Identifier: MIT
// optable.c: what every GPU backend asks about an op.

#include "gpu/gpu.h"

// Ops that compute nothing.
const struct gpu_op_entry gpu_ops_views[] = {
    {GGML_OP_NONE, {.run = NULL}},
    {GGML_OP_VIEW, {.run = NULL}},
    {GGML_OP_RESHAPE, {.run = NULL}},
    {GGML_OP_PERMUTE, {.run = NULL}},
    {GGML_OP_TRANSPOSE, {.run = NULL}},
    GPU_OPS_END,
};

void gpu_rows_gather(const struct gpu_op_row **rows, const struct gpu_op_entry *const *families) {
    for (; *families != NULL; families++) {
        for (const struct gpu_op_entry *e = *families; e->op != GGML_OP_COUNT; e++) {
            BERTH_ASSERT(rows[e->op] == NULL);
            rows[e->op] = &e->row;
        }
    }
}

bool gpu_is_view_op(enum ggml_op op) {
    return op == GGML_OP_NONE || op == GGML_OP_VIEW || op == GGML_OP_RESHAPE || op == GGML_OP_PERMUTE || op == GGML_OP_TRANSPOSE;
}

// Returns whether no source is empty, except for those that row->empty_srcs allows.
static bool has_nonempty_sources(const struct ggml_tensor *op, const struct gpu_op_row *row) {
    for (int i = 0; i < GGML_MAX_SRC; i++) {
        if (op->src[i] != NULL && ggml_nelements(op->src[i]) == 0 && (row->empty_srcs >> i & 1) == 0) {
            return false;
        }
    }
    return true;
}

bool gpu_supports_op(const struct gpu_device *dev, const struct ggml_tensor *op) {
    const struct gpu_op_row *row = gpu_op_row(dev, op->op);
    if (row == NULL) {
        return false;
    }
    if (row->run == NULL || ggml_nelements(op) == 0) {
        return true; // there is nothing to compute
    }
    return has_nonempty_sources(op, row) && (row->supports == NULL || row->supports(dev, op));
}

// ---- memory of a run ----

void *gpu_work(struct gpu_run *r, size_t size) {
    r->kept = NULL;
    if (size > r->work_size) {
        shim_error(
            GGML_STATUS_FAILED, "%s: an op uses %zu bytes of work memory but requested %zu", r->dev->name, size, r->work_size);
        return NULL;
    }
    return r->work;
}

void *gpu_extra(const struct ggml_tensor *op) {
    return (void *) (((uintptr_t) op->data + ggml_nbytes(op) + 255) / 256 * 256);
}
