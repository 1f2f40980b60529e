// SPDX-License-Identifier: MIT
// attention.c: FLASH_ATTN_EXT. One workgroup computes one head of one query.

#include "vulkan/kernel/products.h"

#include "gpu/op/op.h"

#include <math.h>

// Returns the kernel for keys and values of these types; NULL: there is none.
static const char *kernel_of(enum ggml_type k, enum ggml_type v) {
    if (k != v) {
        return NULL;
    }
    switch (k) {
        case GGML_TYPE_F32: return "attn_f32";
        case GGML_TYPE_F16: return "attn_f16";
        case GGML_TYPE_Q8_0: return "attn_q8_0";
        case GGML_TYPE_Q4_0: return "attn_q4_0";
        default: return NULL;
    }
}

static bool attention_supports(GPU_DEV, const struct ggml_tensor *op) {
    const struct ggml_tensor *q = op->src[0], *k = op->src[1], *v = op->src[2], *mask = op->src[3], *sinks = op->src[4];
    if (q == NULL || k == NULL || v == NULL || q->type != GGML_TYPE_F32 || op->type != GGML_TYPE_F32 ||
        kernel_of(k->type, v->type) == NULL) {
        return false;
    }
    const bool has_rows = gpu_rows_are_dense(k) && gpu_rows_are_dense(v) && ggml_is_contiguous(op);
    const bool fits = q->ne[0] == k->ne[0] && k->ne[0] <= ATTN_DIM_MAX && v->ne[0] <= ATTN_DIM_MAX && k->ne[1] == v->ne[1] &&
                      k->ne[1] > 0 && k->ne[2] > 0 && v->ne[2] > 0 && q->ne[2] % k->ne[2] == 0 && q->ne[2] % v->ne[2] == 0 &&
                      k->ne[3] > 0 && v->ne[3] > 0 && q->ne[3] % k->ne[3] == 0 && q->ne[3] % v->ne[3] == 0;
    const bool mask_fits = mask == NULL || (mask->type == GGML_TYPE_F16 && mask->ne[0] >= k->ne[1] && mask->ne[1] >= q->ne[1] &&
                                               mask->ne[2] > 0 && mask->ne[3] > 0);
    return has_rows && fits && mask_fits && (sinks == NULL || (sinks->type == GGML_TYPE_F32 && sinks->nb[0] == sizeof(float)));
}

static enum ggml_status attention_run(struct gpu_run *r, struct ggml_tensor *op) {
    const struct ggml_tensor *q = op->src[0], *k = op->src[1], *v = op->src[2], *mask = op->src[3], *sinks = op->src[4];
    const float max_bias = param_f32(op, 1);
    struct vulkan_attn_args args = {.q = gpu_view_of(q),
        .k = gpu_view_of(k),
        .v = gpu_view_of(v),
        .y = gpu_view_of(op),
        .sinks = sinks != NULL ? sinks->data : NULL,
        .scale = param_f32(op, 0),
        .softcap = param_f32(op, 2)};
    if (args.softcap != 0.0f) {
        args.scale /= args.softcap;
    }
    if (mask != NULL) {
        args.mask = gpu_view_of(mask);
    }
    if (max_bias > 0.0f) {
        args.n_head_log2 = 1;
        while ((int64_t) args.n_head_log2 * 2 <= q->ne[2]) {
            args.n_head_log2 *= 2;
        }
        args.m0 = powf(2.0f, -max_bias / (float) args.n_head_log2);
        args.m1 = powf(2.0f, -max_bias / 2.0f / (float) args.n_head_log2);
    }
    const struct gpu_dims dims = {
        .grid = {(unsigned) q->ne[1], (unsigned) q->ne[2], (unsigned) q->ne[3]}, .block = {ATTN_THREADS}};
    return gpu_launch(r, kernel_of(k->type, v->type), dims, &args);
}

const struct gpu_op_entry vulkan_ops_attention[] = {
    {GGML_OP_FLASH_ATTN_EXT, {.supports = attention_supports, .run = attention_run}},
    GPU_OPS_END,
};
