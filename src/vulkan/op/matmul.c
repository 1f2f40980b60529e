// SPDX-License-Identifier: MIT
// matmul.c: MUL_MAT and MUL_MAT_ID. Up to MV_COLS columns are multiplied by the kernel mv_<type>, with 32 threads per row. More
// columns are multiplied in tiles by mm_<type>. MUL_MAT_ID multiplies each pair of a token and a slot as one column.

#include "vulkan/kernel/products.h"

#include "gpu/op/op.h"
#include "quant/formats.h"

struct type_kernels {
    enum ggml_type type;
    const char *mv, *mm;
};

#define KERNELS(TYPE, name) {GGML_TYPE_##TYPE, "mv_" #name, "mm_" #name},
#define FORMAT(TYPE, name, ...) KERNELS(TYPE, name)
static const struct type_kernels types[] = {KERNELS(F32, f32) KERNELS(F16, f16) KERNELS(BF16, bf16) BERTH_FORMATS(FORMAT)};

static const struct type_kernels *kernels_of(enum ggml_type type) {
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (types[i].type == type) {
            return &types[i];
        }
    }
    return NULL;
}

static bool weights_fit(const struct ggml_tensor *w) {
    return kernels_of(w->type) != NULL && (gpu_is_float(w->type) || w->nb[0] == ggml_type_size(w->type)) && w->ne[1] <= INT32_MAX;
}

static bool product_supports(GPU_DEV, const struct ggml_tensor *op) {
    const struct ggml_tensor *w = op->src[0], *x = op->src[1];
    return w != NULL && x != NULL && op->type == GGML_TYPE_F32 && weights_fit(w) && gpu_is_float(x->type) &&
           w->ne[0] == x->ne[0] && w->ne[2] > 0 && w->ne[3] > 0 && x->ne[2] % w->ne[2] == 0 && x->ne[3] % w->ne[3] == 0 &&
           op->ne[0] == w->ne[1] && op->ne[1] == x->ne[1] && op->ne[2] == x->ne[2] && op->ne[3] == x->ne[3];
}

enum { MV_ROWS = 4 }; // rows per workgroup

static enum ggml_status product_run(struct gpu_run *r, struct ggml_tensor *op) {
    const struct ggml_tensor *w = op->src[0], *x = op->src[1];
    const struct type_kernels *t = kernels_of(w->type);
    const struct vulkan_product_args args = {.w = gpu_view_of(w),
        .x = gpu_view_of(x),
        .y = gpu_view_of(op),
        .r2 = x->ne[2] / w->ne[2],
        .r3 = x->ne[3] / w->ne[3],
        .n_tiles = (x->ne[1] + MM_TILE - 1) / MM_TILE};
    const unsigned n_batch = (unsigned) (op->ne[2] * op->ne[3]);
    if (x->ne[1] > MV_COLS) {
        const struct gpu_dims dims = {
            .grid = {(unsigned) ((op->ne[0] + MM_TILE - 1) / MM_TILE), (unsigned) args.n_tiles, n_batch}, .block = {16, 16}};
        return gpu_launch(r, t->mm, dims, &args);
    }
    const struct gpu_dims dims = {.grid = {(unsigned) ((op->ne[0] + MV_ROWS - 1) / MV_ROWS), 1, n_batch}, .block = {32, MV_ROWS}};
    return gpu_launch(r, t->mv, dims, &args);
}

static bool expert_supports(GPU_DEV, const struct ggml_tensor *op) {
    const struct ggml_tensor *w = op->src[0], *x = op->src[1], *ids = op->src[2];
    return w != NULL && x != NULL && ids != NULL && op->type == GGML_TYPE_F32 && weights_fit(w) && gpu_is_float(x->type) &&
           ids->type == GGML_TYPE_I32 && w->ne[0] == x->ne[0] && w->ne[3] == 1 && x->ne[3] == 1 && x->ne[1] > 0 &&
           ids->ne[0] % x->ne[1] == 0 && op->ne[0] == w->ne[1] && op->ne[1] == ids->ne[0] && op->ne[2] == ids->ne[1] &&
           x->ne[2] == ids->ne[1];
}

static enum ggml_status expert_run(struct gpu_run *r, struct ggml_tensor *op) {
    const struct ggml_tensor *w = op->src[0], *x = op->src[1];
    const struct vulkan_product_args args = {
        .w = gpu_view_of(w), .x = gpu_view_of(x), .y = gpu_view_of(op), .ids = gpu_view_of(op->src[2]), .r2 = 1, .r3 = 1};
    const struct gpu_dims dims = {
        .grid = {(unsigned) ((op->ne[0] + MV_ROWS - 1) / MV_ROWS), (unsigned) op->ne[1], (unsigned) op->ne[2]},
        .block = {32, MV_ROWS}};
    return gpu_launch(r, kernels_of(w->type)->mv, dims, &args);
}

const struct gpu_op_entry vulkan_ops_matmul[] = {
    {GGML_OP_MUL_MAT, {.supports = product_supports, .run = product_run, .empty_srcs = 0}},
    {GGML_OP_MUL_MAT_ID, {.supports = expert_supports, .run = expert_run}},
    GPU_OPS_END,
};
