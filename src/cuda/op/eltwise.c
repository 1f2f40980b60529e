// SPDX-License-Identifier: MIT
// eltwise.c: element by element, two sources: the second repeats to the first's shape.

#include "cuda/kernel/eltwise.h"

#include "cuda/op/op.h"

#define BLOCK 256

static bool binary_supports(const struct cuda_device *dev, const struct ggml_tensor *op) {
    (void) dev;
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    return a != NULL && b != NULL && cuda_is_float(op->type) && cuda_is_float(a->type) && cuda_is_float(b->type) &&
           ggml_are_same_shape(a, op) && ggml_can_repeat(b, a);
}

static enum cuda_binary what_of(enum ggml_op op) {
    switch (op) {
        case GGML_OP_ADD: return CUDA_BINARY_ADD;
        case GGML_OP_SUB: return CUDA_BINARY_SUB;
        case GGML_OP_MUL: return CUDA_BINARY_MUL;
        default: return CUDA_BINARY_DIV;
    }
}

// b repeats as a whole: its dimensions are those of a, up to one from which on they are 1.
static bool repeats_whole(const struct ggml_tensor *b, const struct ggml_tensor *a) {
    int i = 0;
    while (i < 4 && b->ne[i] == a->ne[i]) {
        i++;
    }
    while (i < 4 && b->ne[i] == 1) {
        i++;
    }
    return i == 4;
}

static enum ggml_status binary_run(struct cuda_run *r, struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    const int64_t n = ggml_nelements(op), n_b = ggml_nelements(b);
    if (cuda_is_f32_fours(op) && cuda_is_f32_fours(a) && cuda_is_f32_fours(b) && n % 4 == 0 && n_b % 4 == 0 &&
        repeats_whole(b, a) && n / 4 < CUDA_FLAT_MAX) {
        const struct cuda_binary_dense_args args = {.dst = op->data,
            .a = a->data,
            .b = b->data,
            .n = n,
            .n_b = n_b,
            .d_b = cuda_div_of(n_b / 4),
            .what = what_of(op->op)};
        return cuda_launch_one(r, "eltwise_binary_dense", cuda_flat(r, n / 4, BLOCK), &args);
    }
    const struct cuda_binary_args args = {.dst = cuda_view_of(op),
        .a = cuda_view_of(a),
        .b = cuda_view_of(b),
        .index = cuda_index_of(op),
        .n = n,
        .what = what_of(op->op)};
    return cuda_launch_one(r, "eltwise_binary", cuda_flat(r, n, BLOCK), &args);
}

#define BINARY \
    { .supports = binary_supports, .run = binary_run }

const struct cuda_op_entry cuda_ops_eltwise[] = {
    {GGML_OP_ADD, BINARY},
    {GGML_OP_SUB, BINARY},
    {GGML_OP_MUL, BINARY},
    {GGML_OP_DIV, BINARY},
    CUDA_OPS_END,
};
