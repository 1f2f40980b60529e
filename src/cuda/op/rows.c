// SPDX-License-Identifier: MIT
// rows.c: GET_ROWS and SET_ROWS: rows by number. A number out of range reads as zeros and writes nothing: the device cannot say
// so, and nothing outside is touched.

#include "cuda/kernel/rows.h"

#include "cuda/op/op.h"

static bool get_supports(const struct cuda_device *dev, const struct ggml_tensor *op) {
    (void) dev;
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    if (a == NULL || b == NULL || b->type != GGML_TYPE_I32 || a->ne[0] != op->ne[0] || b->ne[3] != 1 || op->ne[1] != b->ne[0] ||
        op->ne[2] != b->ne[1] || op->ne[3] != b->ne[2] || a->ne[2] < op->ne[2] || a->ne[3] < op->ne[3]) {
        return false;
    }
    if (ggml_blck_size(a->type) > 1 && a->nb[0] != ggml_type_size(a->type)) {
        return false;
    }
    return a->type == GGML_TYPE_I32 ? op->type == GGML_TYPE_I32 : op->type == GGML_TYPE_F32 && cuda_can_widen(a->type);
}

static struct cuda_dims row_dims(int64_t n_rows, int64_t ne0) {
    const int64_t pieces = (ne0 + 255) / 256;
    return cuda_grid(min_i64(n_rows, 1 << 20), min_i64(pieces, 64), 1, 256, 0);
}

static enum ggml_status get_run(struct cuda_run *r, struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    const struct cuda_rows_args args = {.dst = cuda_view_of(op),
        .a = cuda_view_of(a),
        .numbers = cuda_view_of(op->src[1]),
        .n_rows = ggml_nrows(op),
        .size = a->type == op->type ? (int32_t) ggml_type_size(a->type) : 0};
    return cuda_launch_one(r, "rows_get", row_dims(args.n_rows, op->ne[0]), &args);
}

static bool set_supports(const struct cuda_device *dev, const struct ggml_tensor *op) {
    (void) dev;
    const struct ggml_tensor *rows = op->src[0], *numbers = op->src[1];
    if (rows == NULL || numbers == NULL || rows->ne[0] != op->ne[0] || rows->ne[2] != op->ne[2] || rows->ne[3] != op->ne[3]) {
        return false;
    }
    if ((numbers->type != GGML_TYPE_I64 && numbers->type != GGML_TYPE_I32) || numbers->ne[0] != rows->ne[1] ||
        numbers->ne[1] < 1 || numbers->ne[2] < 1 || op->nb[0] != ggml_type_size(op->type) ||
        rows->nb[0] != ggml_type_size(rows->type)) {
        return false;
    }
    return (rows->type == op->type && ggml_blck_size(op->type) == 1) ||
           (cuda_is_float(rows->type) && (cuda_is_float(op->type) || cuda_can_quantise(op->type)));
}

static enum ggml_status set_run(struct cuda_run *r, struct ggml_tensor *op) {
    const struct ggml_tensor *rows = op->src[0];
    const struct cuda_rows_args args = {.dst = cuda_view_of(op),
        .a = cuda_view_of(rows),
        .numbers = cuda_view_of(op->src[1]),
        .n_rows = ggml_nrows(rows),
        .size = rows->type == op->type ? (int32_t) ggml_type_size(op->type) : 0};
    if (args.n_rows == 0) {
        return GGML_STATUS_SUCCESS;
    }
    if (ggml_is_quantized(op->type)) {
        return cuda_launch_one(r, "rows_set_blocks", cuda_flat(r, args.n_rows * (rows->ne[0] / 32), 128), &args);
    }
    return cuda_launch_one(r, "rows_set", row_dims(args.n_rows, rows->ne[0]), &args);
}

const struct cuda_op_entry cuda_ops_rows[] = {
    {GGML_OP_GET_ROWS, {.supports = get_supports, .run = get_run}},
    {GGML_OP_SET_ROWS, {.supports = set_supports, .run = set_run}},
    CUDA_OPS_END,
};
