// SPDX-License-Identifier: MIT
// reduce.c: cases of op/reduce.c. If the reference supports rows with gaps only in matrices, the cases with gaps are matrices.

#include "op.h"

#define N(a) (sizeof(a) / sizeof((a)[0]))

struct reduce {
    enum ggml_op op;
    enum ggml_type type;
    const int64_t *ne;
    int layout; // 0 dense, 1 holes, 2 with special values, 3 few different values
};

static struct ggml_tensor *input(struct op_build *b, const struct reduce *c) {
    if (c->type == GGML_TYPE_I32) {
        return op_indices(b, c->type, c->ne, 4, false);
    }
    if (c->layout == 1) {
        return op_input_holes(b, c->type, c->ne);
    }
    struct ggml_tensor *t = op_input(b, c->type, c->ne);
    if (c->layout == 2) {
        return op_with_specials(t);
    }
    for (int64_t i = 0; c->layout == 3 && i < ggml_nelements(t); i++) {
        *(float *) op_at(t, i) = (float) (op_random(b) % 5);
    }
    return t;
}

static struct ggml_tensor *build(struct op_build *b, const void *arg) {
    const struct reduce *c = arg;
    struct ggml_tensor *a = input(b, c);
    switch (c->op) {
        case GGML_OP_SUM: return ggml_sum(b->ctx, a);
        case GGML_OP_SUM_ROWS: return ggml_sum_rows(b->ctx, a);
        case GGML_OP_MEAN: return ggml_mean(b->ctx, a);
        case GGML_OP_CUMSUM: return ggml_cumsum(b->ctx, a);
        case GGML_OP_ARGMAX: return ggml_argmax(b->ctx, a);
        default: return ggml_count_equal(b->ctx, a, input(b, c));
    }
}

static void cases(struct op_suite *s, enum ggml_op op, enum ggml_type type, const int64_t (*shapes)[4], size_t n, int n_layouts,
    double max_nmse) {
    for (size_t i = 0; i < n; i++) {
        for (int layout = 0; layout < n_layouts; layout++) {
            const struct reduce c = {op, type, shapes[i], layout};
            op_case(s, ggml_op_name(op), op_text("%s shape %zu layout %d", ggml_type_name(type), i, layout), max_nmse, build, &c);
        }
    }
}

void op_suite_reduce(struct op_suite *s) {
    static const int64_t shapes[][4] = {{1, 1, 1, 1}, {7, 1, 1, 1}, {31, 5, 3, 2}, {64, 3, 1, 4}, {1023, 2, 2, 1},
        {1025, 7, 1, 1}, {3, 257, 1, 1}, {5000, 3, 1, 1}, {2, 3, 4, 5}, {100000, 1, 1, 1}, {17, 1, 33, 1}, {129, 64, 2, 3}};
    static const int64_t matrices[][4] = {{1, 1, 1, 1}, {7, 1, 1, 1}, {31, 5, 1, 1}, {64, 3, 1, 1}, {1023, 2, 1, 1},
        {1025, 7, 1, 1}, {3, 257, 1, 1}, {5000, 3, 1, 1}, {40000, 2, 1, 1}, {2, 1000, 1, 1}, {129, 64, 1, 1}, {33, 9, 1, 1}};
    cases(s, GGML_OP_SUM, GGML_TYPE_F32, shapes, N(shapes), 4, OP_F32);
    cases(s, GGML_OP_SUM, GGML_TYPE_F16, shapes, N(shapes), 2, 1e-6); // one unit of an f16 result is 2.4e-7
    cases(s, GGML_OP_SUM, GGML_TYPE_BF16, shapes, N(shapes), 2, 1e-4);
    cases(s, GGML_OP_SUM_ROWS, GGML_TYPE_F32, shapes, N(shapes), 4, OP_F32);
    cases(s, GGML_OP_MEAN, GGML_TYPE_F32, shapes, N(shapes), 4, OP_F32);
    cases(s, GGML_OP_CUMSUM, GGML_TYPE_F32, shapes, N(shapes), 4, OP_F32);
    cases(s, GGML_OP_ARGMAX, GGML_TYPE_F32, matrices, N(matrices), 4, OP_EXACT);
    cases(s, GGML_OP_COUNT_EQUAL, GGML_TYPE_I32, matrices, N(matrices), 4, OP_EXACT);

    static const int64_t empty[][4] = {{0, 3, 2, 1}, {4, 0, 1, 1}};
    cases(s, GGML_OP_SUM_ROWS, GGML_TYPE_F32, empty, N(empty), 1, OP_EXACT);
    cases(s, GGML_OP_CUMSUM, GGML_TYPE_F32, empty, N(empty), 1, OP_EXACT);
}
