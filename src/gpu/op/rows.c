// SPDX-License-Identifier: MIT
// rows.c: GET_ROWS and SET_ROWS access rows by index. DUP, CPY and CONT copy elements, in order, between layouts and types.
// Kernels cannot report an error. If an index is out of range, GET_ROWS therefore returns zeros and SET_ROWS writes nothing. The
// source and result of a copy have the same number of elements, but may differ in shape.

#include "gpu/kernel/rows.h"

#include "gpu/op/op.h"

static bool get_supports(GPU_DEV, const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    if (a == NULL || b == NULL || b->type != GGML_TYPE_I32 || a->ne[0] != op->ne[0] || b->ne[3] != 1 || op->ne[1] != b->ne[0] ||
        op->ne[2] != b->ne[1] || op->ne[3] != b->ne[2] || a->ne[2] < op->ne[2] || a->ne[3] < op->ne[3]) {
        return false;
    }
    if (ggml_blck_size(a->type) > 1 && a->nb[0] != ggml_type_size(a->type)) {
        return false;
    }
    return a->type == GGML_TYPE_I32 ? op->type == GGML_TYPE_I32 : op->type == GGML_TYPE_F32 && gpu_can_widen(a->type);
}

static struct gpu_dims row_dims(int64_t n_rows, int64_t ne0) {
    const int64_t pieces = (ne0 + 255) / 256;
    return gpu_grid(min_i64(n_rows, 1 << 20), min_i64(pieces, 64), 1, 256, 0);
}

static enum ggml_status get_run(struct gpu_run *r, struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    const struct gpu_rows_args args = {.dst = gpu_view_of(op),
        .a = gpu_view_of(a),
        .numbers = gpu_view_of(op->src[1]),
        .n_rows = ggml_nrows(op),
        .size = a->type == op->type ? (int32_t) ggml_type_size(a->type) : 0};
    return gpu_launch(r, "rows_get", row_dims(args.n_rows, op->ne[0]), &args);
}

static bool set_supports(const struct gpu_device *dev, const struct ggml_tensor *op) {
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
           (gpu_is_float(rows->type) && (gpu_is_float(op->type) || gpu_can_quantise(dev, op->type)));
}

static enum ggml_status set_run(struct gpu_run *r, struct ggml_tensor *op) {
    const struct ggml_tensor *rows = op->src[0];
    const struct gpu_rows_args args = {.dst = gpu_view_of(op),
        .a = gpu_view_of(rows),
        .numbers = gpu_view_of(op->src[1]),
        .n_rows = ggml_nrows(rows),
        .size = rows->type == op->type ? (int32_t) ggml_type_size(op->type) : 0,
        .dst_block = (int32_t) ggml_blck_size(op->type)};
    if (args.n_rows == 0) {
        return GGML_STATUS_SUCCESS;
    }
    if (args.dst_block > 32) { // one warp per block
        return gpu_launch(r, "rows_set_super", gpu_dims_1d(r, args.n_rows * (rows->ne[0] / args.dst_block) * 32, 128), &args);
    }
    if (args.dst_block == 32) {
        return gpu_launch(r, "rows_set_blocks", gpu_dims_1d(r, args.n_rows * (rows->ne[0] / 32), 128), &args);
    }
    return gpu_launch(r, "rows_set", row_dims(args.n_rows, rows->ne[0]), &args);
}

// ---- DUP, CPY, CONT ----

#define BLOCK_THREADS 256    // threads per block of a copy kernel
#define COPY_LONG (1u << 20) // bytes from which on the driver copies

static bool is_plain(enum ggml_type t) {
    return ggml_blck_size(t) == 1;
}

static bool is_number(enum ggml_type t) {
    return gpu_is_float(t) || t == GGML_TYPE_I32;
}

static bool copy_supports(const struct gpu_device *dev, const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    if (a == NULL || ggml_nelements(a) != ggml_nelements(op)) {
        return false;
    }
    if ((!is_plain(a->type) && a->nb[0] != ggml_type_size(a->type)) ||
        (!is_plain(op->type) && op->nb[0] != ggml_type_size(op->type))) {
        return false;
    }
    if (a->type == op->type) {
        return is_plain(a->type) || a->ne[0] == op->ne[0] || (ggml_is_contiguous(a) && ggml_is_contiguous(op));
    }
    return (is_number(a->type) || gpu_can_widen(a->type)) && (is_number(op->type) || gpu_can_quantise(dev, op->type)) &&
           op->ne[0] % ggml_blck_size(op->type) == 0;
}

// Returns a copy of t in which each quantised block counts as one element.
static struct ggml_tensor in_blocks(const struct ggml_tensor *t) {
    struct ggml_tensor b = *t;
    b.ne[0] /= ggml_blck_size(t->type);
    return b;
}

// The driver copies large sizes, because its copy is fastest. It also copies sizes and addresses that are not multiples of 16. A
// kernel copies all other sizes, because a kernel can start before the previous kernel ends (gpu_dims.overlap).
static enum ggml_status copy_dense(struct gpu_run *r, struct ggml_tensor *op) {
    const size_t size = ggml_nbytes(op);
    if (op->data == op->src[0]->data) {
        return GGML_STATUS_SUCCESS;
    }
    if (size >= COPY_LONG || size % 16 != 0 || ((uintptr_t) op->data | (uintptr_t) op->src[0]->data) % 16 != 0) {
        return gpu_copy_bytes(r, op->data, op->src[0]->data, size);
    }
    const struct gpu_copy_args args = {.dst = {.p = op->data}, .a = {.p = op->src[0]->data}, .n = (int64_t) (size / 16)};
    return gpu_launch(r, "copy_words", gpu_dims_1d(r, args.n, BLOCK_THREADS), &args);
}

static bool is_transpose(const struct ggml_tensor *op, const struct ggml_tensor *a) {
    const size_t size = ggml_type_size(a->type);
    return a->type == op->type && ggml_are_same_shape(a, op) && (size == 2 || size == 4) && is_plain(a->type) &&
           a->nb[1] == size && op->nb[0] == size && a->ne[0] >= 16 && a->ne[1] >= 16 && (a->ne[1] + 31) / 32 <= 65535;
}

static enum ggml_status copy_transpose(struct gpu_run *r, struct ggml_tensor *op) {
    const int64_t n_z = op->ne[2] * op->ne[3];
    const struct gpu_copy_args args = {.dst = gpu_view_of(op), .a = gpu_view_of(op->src[0]), .n = n_z};
    const struct gpu_dims dims = {
        .grid = {(unsigned) ((op->ne[0] + 31) / 32), (unsigned) ((op->ne[1] + 31) / 32), (unsigned) min_i64(n_z, 65535)},
        .block = {32, 8},
        .overlap = true};
    return gpu_launch(r, ggml_type_size(op->type) == 4 ? "copy_transpose_4" : "copy_transpose_2", dims, &args);
}

// Writes blocks of the result's type: source 0 converted, or the sum of source 0 and b.
static enum ggml_status narrow_run(struct gpu_run *r, struct ggml_tensor *op, const struct ggml_tensor *b) {
    const struct ggml_tensor *a = op->src[0];
    struct gpu_copy_args args = {.dst = gpu_view_of(op),
        .a = gpu_view_of(a),
        .dst_index = gpu_index_of(op),
        .a_index = gpu_index_of(a),
        .n = ggml_nelements(op) / ggml_blck_size(op->type),
        .block = (int32_t) ggml_blck_size(a->type),
        .dst_block = (int32_t) ggml_blck_size(op->type)};
    if (b != NULL) {
        args.b = gpu_view_of(b);
    }
    return args.dst_block > 32 ? gpu_launch(r, "copy_narrow_super", gpu_dims_1d(r, args.n * 32, 128), &args) // a warp per block
                               : gpu_launch(r, "copy_narrow", gpu_dims_1d(r, args.n, 128), &args);
}

static enum ggml_status copy_run(struct gpu_run *r, struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    if (a->type == op->type && ggml_is_contiguous(a) && ggml_is_contiguous(op)) {
        return copy_dense(r, op);
    }
    if (is_transpose(op, a) && !gpu_overlap(op, a)) {
        return copy_transpose(r, op);
    }
    const bool as_is = a->type == op->type;
    if (!as_is && !is_plain(op->type)) {
        return narrow_run(r, op, NULL);
    }
    const struct ggml_tensor to = as_is ? in_blocks(op) : *op, from = as_is ? in_blocks(a) : *a;
    const struct gpu_copy_args args = {.dst = gpu_view_of(&to),
        .a = gpu_view_of(&from),
        .dst_index = gpu_index_of(&to),
        .a_index = gpu_index_of(&from),
        .n = to.ne[0] * to.ne[1] * to.ne[2] * to.ne[3],
        .size = as_is ? (int32_t) ggml_type_size(op->type) : 0,
        .block = (int32_t) ggml_blck_size(a->type)};
    const char *kernel = is_plain(a->type) ? "copy_convert" : "copy_widen";
    if (as_is) {
        kernel = "copy_as_is";
    }
    return gpu_launch(r, kernel, gpu_dims_1d(r, args.n, BLOCK_THREADS), &args);
}

// ---- ADD and ADD1 with a quantised result ----

bool gpu_can_add_quantised(const struct gpu_device *dev, const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    return a != NULL && b != NULL && gpu_can_quantise(dev, op->type) && a->type == op->type && gpu_is_float(b->type) &&
           ggml_are_same_shape(a, op) && ggml_can_repeat(b, a) && gpu_rows_are_dense(a) && gpu_rows_are_dense(op);
}

enum ggml_status gpu_add_quantised(struct gpu_run *r, struct ggml_tensor *op) {
    return narrow_run(r, op, op->src[1]);
}

#define COPY \
    { .supports = copy_supports, .run = copy_run }

const struct gpu_op_entry gpu_ops_rows[] = {
    {GGML_OP_GET_ROWS, {.supports = get_supports, .run = get_run}},
    {GGML_OP_SET_ROWS, {.supports = set_supports, .run = set_run}},
    {GGML_OP_DUP, COPY},
    {GGML_OP_CPY, COPY},
    {GGML_OP_CONT, COPY},
    GPU_OPS_END,
};
