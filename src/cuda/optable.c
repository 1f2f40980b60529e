// SPDX-License-Identifier: MIT
// optable.c: the CUDA backend's op rows, collected from the families in op/, and its fusions.

#include "cuda/cuda.h"

#include <pthread.h>

// A new op/<name>.c needs a line here.
// clang-format off
#define CUDA_FAMILIES(X) \
    X(eltwise) \
    X(norm) \
    X(rope) \
    X(rows) \
    X(rearrange) \
    X(reduce) \
    X(conv) \
    X(recur) \
    X(ssm) \
    X(train) \
    X(matmul) \
    X(mmid) \
    X(attention)
// clang-format on

#define CUDA_FAMILY_DECLARE(name) extern const struct cuda_op_entry cuda_ops_##name[];
CUDA_FAMILIES(CUDA_FAMILY_DECLARE)
#undef CUDA_FAMILY_DECLARE

// Ops that compute nothing.
static const struct cuda_op_entry views[] = {
    {GGML_OP_NONE, {.run = NULL}},
    {GGML_OP_VIEW, {.run = NULL}},
    {GGML_OP_RESHAPE, {.run = NULL}},
    {GGML_OP_PERMUTE, {.run = NULL}},
    {GGML_OP_TRANSPOSE, {.run = NULL}},
    CUDA_OPS_END,
};

#define FAMILY(name) cuda_ops_##name,
static const struct cuda_op_entry *const families[] = {views, CUDA_FAMILIES(FAMILY)};

static const struct cuda_op_row *rows[GGML_OP_COUNT];

static void rows_gather(void) {
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        for (const struct cuda_op_entry *e = families[i]; e->op != GGML_OP_COUNT; e++) {
            BERTH_ASSERT(rows[e->op] == NULL);
            rows[e->op] = &e->row;
        }
    }
}

const struct cuda_op_row *cuda_op_row(enum ggml_op op) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, rows_gather);
    return (unsigned) op < GGML_OP_COUNT ? rows[op] : NULL;
}

// Returns whether no source is empty, except for those that row->empty_srcs allows.
static bool has_nonempty_sources(const struct ggml_tensor *op, const struct cuda_op_row *row) {
    for (int i = 0; i < GGML_MAX_SRC; i++) {
        if (op->src[i] != NULL && ggml_nelements(op->src[i]) == 0 && (row->empty_srcs >> i & 1) == 0) {
            return false;
        }
    }
    return true;
}

bool cuda_supports_op(const struct cuda_device *dev, const struct ggml_tensor *op) {
    const struct cuda_op_row *row = cuda_op_row(op->op);
    if (row == NULL) {
        return false;
    }
    if (row->run == NULL || ggml_nelements(op) == 0) {
        return true; // there is nothing to compute
    }
    return has_nonempty_sources(op, row) && (row->supports == NULL || row->supports(dev, op));
}

// ---- fusions ----

// Longer fusions come first. A new struct cuda_fusion of op/*.c needs an entry here.
extern const struct cuda_fusion cuda_fusion_mv, cuda_fusion_norm, cuda_fusion_rope_qkv, cuda_fusion_rope_set, cuda_fusion_conv,
    cuda_fusion_scan, cuda_fusion_gate, cuda_fusion_router, cuda_fusion_experts, cuda_fusion_expert_sum;
static const struct cuda_fusion *const fusions[] = {&cuda_fusion_mv, &cuda_fusion_norm, &cuda_fusion_rope_qkv,
    &cuda_fusion_rope_set, &cuda_fusion_conv, &cuda_fusion_scan, &cuda_fusion_gate, &cuda_fusion_router, &cuda_fusion_experts,
    &cuda_fusion_expert_sum, NULL};

const struct cuda_fusion *const *cuda_fusions(void) {
    return fusions;
}
