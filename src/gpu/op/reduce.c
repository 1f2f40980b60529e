// SPDX-License-Identifier: MIT
// reduce.c: SUM, SUM_ROWS, MEAN, CUMSUM, ARGMAX, COUNT_EQUAL, ARGSORT, TOP_K.

#include "gpu/kernel/reduce.h"

#include "gpu/op/op.h"

#define BLOCK 256
#define PARTS 512 // largest number of blocks of a reduction; each block stores one partial sum

static bool same_rows(const struct ggml_tensor *a, const struct ggml_tensor *op) {
    return a->ne[1] == op->ne[1] && a->ne[2] == op->ne[2] && a->ne[3] == op->ne[3];
}

// ---- reductions of a tensor to one number ----

static bool sum_supports(GPU_DEV, const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    return a != NULL && gpu_is_float(a->type) && op->type == a->type && ggml_nelements(op) == 1;
}

static bool count_supports(GPU_DEV, const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    return a != NULL && b != NULL && a->type == GGML_TYPE_I32 && b->type == GGML_TYPE_I32 && op->type == GGML_TYPE_I64 &&
           ggml_are_same_shape(a, b) && ggml_nelements(op) == 1;
}

static size_t parts_size(GPU_DEV, const struct ggml_tensor *op) {
    (void) op;
    return PARTS * sizeof(double);
}

static enum ggml_status sum_run(struct gpu_run *r, struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    const int64_t n = ggml_nelements(a);
    struct gpu_reduce_args args = {.dst = gpu_view_of(op),
        .a = gpu_view_of(a),
        .index = gpu_index_of(a),
        .n = n,
        .parts = gpu_work(r, PARTS * sizeof(double)),
        .n_parts = (int32_t) min_i64((n + BLOCK - 1) / BLOCK, PARTS)};
    if (op->op == GGML_OP_COUNT_EQUAL) {
        args.b = gpu_view_of(op->src[1]);
    }
    if (args.parts == NULL) {
        return GGML_STATUS_FAILED;
    }
    const struct gpu_dims many = gpu_grid(args.n_parts, 1, 1, BLOCK, 0);
    const struct gpu_dims one = gpu_grid(1, 1, 1, BLOCK, 0);
    const enum ggml_status status = gpu_launch(r, "reduce_all", many, &args);
    return status == GGML_STATUS_SUCCESS ? gpu_launch(r, "reduce_parts", one, &args) : status;
}

// ---- reductions of rows, running sums ----

static bool rows_supports(GPU_DEV, const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    return a != NULL && gpu_is_float(a->type) && op->type == (op->op == GGML_OP_MEAN ? GGML_TYPE_F32 : a->type) &&
           op->ne[0] == 1 && same_rows(a, op) && ggml_nrows(a) <= INT32_MAX;
}

static bool argmax_supports(GPU_DEV, const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    return a != NULL && gpu_is_float(a->type) && op->type == GGML_TYPE_I32 && a->ne[1] == op->ne[0] && ggml_is_matrix(a) &&
           ggml_is_vector(op) && a->ne[1] <= INT32_MAX;
}

static bool cumsum_supports(GPU_DEV, const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    return a != NULL && a->type == GGML_TYPE_F32 && op->type == GGML_TYPE_F32 && ggml_are_same_shape(a, op) &&
           ggml_nrows(a) <= INT32_MAX;
}

static enum ggml_status rows_run(struct gpu_run *r, struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    const struct gpu_reduce_args args = {.dst = gpu_view_of(op), .a = gpu_view_of(a), .n = a->ne[0], .what = (int32_t) op->op};
    const char *kernel = "reduce_rows";
    if (op->op == GGML_OP_CUMSUM) {
        kernel = "reduce_cumsum";
    } else if (op->op == GGML_OP_ARGMAX) {
        kernel = "reduce_argmax";
    }
    unsigned block = op->op == GGML_OP_SUM_ROWS ? BLOCK : 1024;
    if (a->ne[0] <= 1024) {
        block = a->ne[0] <= 64 ? 32 : 128;
    }
    const struct gpu_dims dims = gpu_grid(ggml_nrows(a), 1, 1, block, 0);
    return gpu_launch(r, kernel, dims, &args);
}

// ---- sorting ----

#define SORT_SHARED 4096 // longest padded row that is sorted in shared memory

static bool sort_supports(GPU_DEV, const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    return a != NULL && gpu_is_float(a->type) && op->type == GGML_TYPE_I32 && op->ne[0] <= a->ne[0] &&
           a->ne[0] <= INT32_MAX / 2 && same_rows(a, op) && ggml_nrows(a) <= INT32_MAX;
}

// Returns the row length of the bitonic network: the smallest power of two that is at least n and at least 2.
static int64_t sort_padded(int64_t n) {
    int64_t p = 2;
    while (p < n) {
        p *= 2;
    }
    return p;
}

static size_t sort_extra(GPU_DEV, const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    const int64_t n = sort_padded(a->ne[0]);
    return n > SORT_SHARED ? (size_t) n * (size_t) ggml_nrows(a) * sizeof(uint64_t) : 0;
}

// Sorts rows in device memory (args->keys), with one launch per step of the bitonic network.
static enum ggml_status sort_long(struct gpu_run *r, struct gpu_sort_args *args) {
    const struct gpu_dims dims = gpu_dims_1d(r, args->n_rows * args->n_pad, BLOCK);
    enum ggml_status status = gpu_launch(r, "sort_fill", dims, args);
    for (args->k = 2; args->k <= args->n_pad; args->k *= 2) {
        for (args->j = args->k / 2; args->j > 0 && status == GGML_STATUS_SUCCESS; args->j /= 2) {
            status = gpu_launch(r, "sort_step", dims, args);
        }
    }
    return status == GGML_STATUS_SUCCESS
               ? gpu_launch(r, "sort_store", gpu_dims_1d(r, args->n_rows * args->dst.ne[0], BLOCK), args)
               : status;
}

static enum ggml_status sort_run(struct gpu_run *r, struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    struct gpu_sort_args args = {.dst = gpu_view_of(op),
        .a = gpu_view_of(a),
        .n_rows = ggml_nrows(a),
        .n_pad = sort_padded(a->ne[0]),
        .down = op->op == GGML_OP_TOP_K || param_i32(op, 0) == GGML_SORT_ORDER_DESC,
        .swap = op->op == GGML_OP_TOP_K};
    if (args.n_pad > SORT_SHARED) {
        args.keys = gpu_extra(op);
        return sort_long(r, &args);
    }
    const struct gpu_dims dims = gpu_grid(args.n_rows, 1, 1, clamp_i64(args.n_pad / 2, 32, 1024), args.n_pad * sizeof(uint64_t));
    return gpu_launch(r, "sort_shared", dims, &args);
}

const struct gpu_op_entry gpu_ops_reduce[] = {
    {GGML_OP_SUM, {.supports = sum_supports, .work_size = parts_size, .run = sum_run, .empty_srcs = 1 << 0}},
    {GGML_OP_COUNT_EQUAL, {.supports = count_supports, .work_size = parts_size, .run = sum_run, .empty_srcs = 1 << 0 | 1 << 1}},
    {GGML_OP_SUM_ROWS, {.supports = rows_supports, .run = rows_run, .empty_srcs = 1 << 0}},
    {GGML_OP_MEAN, {.supports = rows_supports, .run = rows_run, .empty_srcs = 1 << 0}},
    {GGML_OP_ARGMAX, {.supports = argmax_supports, .run = rows_run, .empty_srcs = 1 << 0}},
    {GGML_OP_CUMSUM, {.supports = cumsum_supports, .run = rows_run}},
    {GGML_OP_ARGSORT, {.supports = sort_supports, .extra_size = sort_extra, .run = sort_run}},
    {GGML_OP_TOP_K, {.supports = sort_supports, .extra_size = sort_extra, .run = sort_run}},
    GPU_OPS_END,
};
