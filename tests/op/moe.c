// SPDX-License-Identifier: MIT
// moe.c: cases of op/experts.c and op/outprod.c: experts of every type, biases per expert, outer products.

#include "op.h"

#include <stddef.h>

#define N(a) (sizeof(a) / sizeof((a)[0]))

struct moe {
    enum ggml_type type, type_b;
    int64_t k, rows, n_expert, n_b, n_used, n_token;
    int layout; // 0 dense, 1 experts with holes, 2 b permuted, 3 ids a view
};

static struct ggml_tensor *ids_of(struct op_build *b, const struct moe *c) {
    struct ggml_tensor *ids =
        op_indices(b, GGML_TYPE_I32, NE(c->layout == 3 ? c->n_used + 5 : c->n_used, c->n_token, 1, 1), c->n_expert, false);
    return c->layout == 3 ? ggml_view_2d(b->ctx, ids, c->n_used, c->n_token, ids->nb[1], 2 * ids->nb[0]) : ids;
}

static struct ggml_tensor *build_mul(struct op_build *b, const void *arg) {
    const struct moe *c = arg;
    const int64_t *ne = NE(c->k, c->rows, c->n_expert, 1);
    struct ggml_tensor *a = c->layout == 1 ? op_input_holes(b, c->type, ne) : op_input(b, c->type, ne);
    struct ggml_tensor *x = c->layout == 2
                                ? ggml_permute(b->ctx, op_input(b, c->type_b, NE(c->k, c->n_token, c->n_b, 1)), 0, 2, 1, 3)
                                : op_input(b, c->type_b, NE(c->k, c->n_b, c->n_token, 1));
    return ggml_mul_mat_id(b->ctx, a, x, ids_of(b, c));
}

static struct ggml_tensor *build_add(struct op_build *b, const void *arg) {
    const struct moe *c = arg;
    const int64_t *ne = NE(c->k, c->n_used, c->n_token, c->n_b);
    struct ggml_tensor *x = c->layout == 1 ? op_input_holes(b, c->type, ne) : op_input(b, c->type, ne);
    return ggml_add_id(b->ctx, x, op_input(b, GGML_TYPE_F32, NE(c->k, c->n_expert, 1, 1)), ids_of(b, c));
}

static void mul_cases(struct op_suite *s, enum ggml_type type, int64_t k, double tol) {
    static const int64_t sizes[][5] = {{1, 1, 1, 1, 1}, {16, 4, 1, 2, 1}, {33, 8, 2, 2, 5}, {40, 4, 1, 4, 33}, {7, 3, 4, 4, 7},
        {64, 16, 1, 8, 20}, {37, 5, 2, 4, 203} /* more pairs than WAVE_PAIRS (op/experts.c) */};
    for (size_t i = 0; i < N(sizes); i++) {
        const struct moe c = {type, GGML_TYPE_F32, k, sizes[i][0], sizes[i][1], sizes[i][2], sizes[i][3], sizes[i][4],
            i == 2   ? 1
            : i == 4 ? 2
                     : 0};
        const double tol_here = c.rows >= 8       ? tol
                                : tol == OP_F16   ? OP_F16_FEW
                                : tol == OP_QUANT ? OP_QUANT_FEW
                                                  : tol; // with few results, the error varies more
        op_case(s, "MUL_MAT_ID", op_text("%s k %lld size %zu", ggml_type_name(type), (long long) k, i), tol_here, build_mul, &c);
    }
}

struct outer {
    enum ggml_type type;
    int64_t n, m, k, a2, a3, b2, b3;
    int layout; // 0 dense, 1 holes, 2 b transposed
};

static struct ggml_tensor *build_outer(struct op_build *b, const void *arg) {
    const struct outer *c = arg;
    const int64_t *na = NE(c->n, c->k, c->a2, c->a3), *nb = NE(c->m, c->k, c->b2, c->b3);
    struct ggml_tensor *x = c->layout == 1 ? op_input_holes(b, c->type, na) : op_input(b, c->type, na);
    struct ggml_tensor *y = c->layout == 1   ? op_input_holes(b, GGML_TYPE_F32, nb)
                            : c->layout == 2 ? op_input_swapped(b, GGML_TYPE_F32, nb)
                                             : op_input(b, GGML_TYPE_F32, nb);
    return ggml_out_prod(b->ctx, x, y);
}

static bool is_weight(int t) {
    return ggml_is_quantized((enum ggml_type) t) && t != GGML_TYPE_Q8_1 && t != GGML_TYPE_Q8_K;
}

static void outer_cases(struct op_suite *s) {
    static const int64_t sizes[][3] = {{1, 1, 1}, {5, 7, 3}, {31, 5, 40}, {64, 33, 9}, {1030, 9, 17}, {2, 100, 64}};
    for (size_t i = 0; i < N(sizes); i++) {
        for (int batch = 0; batch < 3; batch++) {
            for (int layout = 0; layout < 3; layout++) {
                const int64_t a2 = batch == 1 ? 2 : 1, a3 = batch == 1 ? 3 : 1, b2 = batch > 0 ? 2 : 1, b3 = batch > 0 ? 3 : 1;
                const struct outer c = {GGML_TYPE_F32, sizes[i][0], sizes[i][1], sizes[i][2], a2, a3, b2, b3, layout};
                op_case(s, "OUT_PROD", op_text("size %zu batch %d layout %d", i, batch, layout), OP_F32, build_outer, &c);
            }
        }
    }
    for (int t = 0; t < GGML_TYPE_COUNT; t++) {
        if (is_weight(t)) {
            const struct outer c = {(enum ggml_type) t, 512, 9, 5, 2, 1, 2, 1, 0};
            op_case(s, "OUT_PROD", op_text("%s", ggml_type_name(c.type)), OP_F32, build_outer, &c);
        }
    }
}

void op_suite_moe(struct op_suite *s) {
    static const int64_t depths[] = {1, 31, 64, 257};
    for (size_t i = 0; i < N(depths); i++) {
        mul_cases(s, GGML_TYPE_F32, depths[i], OP_F32);
        mul_cases(s, GGML_TYPE_F16, depths[i], OP_F16);
        mul_cases(s, GGML_TYPE_BF16, depths[i], OP_F32);
    }
    for (int t = 0; t < GGML_TYPE_COUNT; t++) {
        if (is_weight(t)) {
            mul_cases(s, (enum ggml_type) t, 256, OP_QUANT);
            mul_cases(s, (enum ggml_type) t, 768, OP_QUANT);
        }
    }
    const struct moe large = {GGML_TYPE_F32, GGML_TYPE_F32, 256, 200, 8, 1, 4, 64, 3};
    op_case(s, "MUL_MAT_ID", "large", OP_F32, build_mul, &large);
    static const int64_t lengths[] = {1, 7, 64, 1025, 2500};
    for (size_t i = 0; i < N(lengths); i++) {
        for (int64_t n_used = 1; n_used < 8; n_used += 3) {
            for (int layout = 0; layout < 4; layout += layout == 1 ? 2 : 1) {
                const struct moe c = {GGML_TYPE_F32, GGML_TYPE_F32, lengths[i], 0, 5, 1 + (int64_t) (i & 1), n_used, 6, layout};
                op_case(s, "ADD_ID", op_text("length %zu used %d layout %d", i, (int) n_used, layout), OP_F32, build_add, &c);
            }
        }
    }
    outer_cases(s);
}
