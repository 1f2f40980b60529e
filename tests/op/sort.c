// SPDX-License-Identifier: MIT
// sort.c: cases of op/sort.c. The order of equal elements is undefined, so cases with equal elements (ties) compare the elements
// at the indices instead of the indices.

#include "op.h"

#define N(a) (sizeof(a) / sizeof((a)[0]))

struct sort {
    const int64_t *ne;
    int64_t k; // 0: a full sort
    enum ggml_sort_order order;
    bool ties;
};

// Distinct numbers in each row, shuffled.
static struct ggml_tensor *distinct(struct op_build *b, const int64_t *ne) {
    struct ggml_tensor *t = ggml_new_tensor(b->ctx, GGML_TYPE_F32, 4, ne);
    float *x = t->data;
    for (int64_t i = 0; i < ggml_nelements(t); i++) {
        x[i] = (float) (i % ne[0]) - (float) ne[0] / 2;
        const int64_t j = i - (int64_t) (op_random(b) % (uint64_t) (i % ne[0] + 1));
        const float v = x[i];
        x[i] = x[j];
        x[j] = v;
    }
    return t;
}

static struct ggml_tensor *build(struct op_build *b, const void *arg) {
    const struct sort *c = arg;
    struct ggml_tensor *a = distinct(b, c->ne);
    for (int64_t i = 0; c->ties && i < ggml_nelements(a); i++) {
        static const float few[] = {-1.0f, 0.0f, -0.0f, 2.0f, 1e30f};
        *(float *) op_at(a, i) = few[op_random(b) % 5];
    }
    struct ggml_tensor *t = c->k > 0 ? ggml_top_k(b->ctx, a, (int) c->k) : ggml_argsort(b->ctx, a, c->order);
    if (!c->ties) {
        return t;
    }
    return ggml_get_rows(
        b->ctx, ggml_reshape_3d(b->ctx, a, 1, a->ne[0], ggml_nrows(a)), ggml_reshape_2d(b->ctx, t, t->ne[0], ggml_nrows(t)));
}

void op_suite_sort(struct op_suite *s) {
    static const int64_t shapes[][4] = {{1, 1, 1, 1}, {2, 3, 1, 1}, {7, 1, 1, 1}, {31, 5, 3, 2}, {32, 2, 1, 1}, {33, 4, 2, 1},
        {64, 3, 1, 4}, {255, 9, 1, 1}, {1023, 2, 2, 1}, {1025, 7, 1, 1}, {5000, 3, 1, 1}, {151936, 1, 1, 1}};
    static const int64_t ks[] = {1, 2, 3, 8, 40, 100, 1024, 1025, 5000};
    for (size_t i = 0; i < N(shapes); i++) {
        for (int ties = 0; ties < 2; ties++) {
            for (int order = 0; order < 2; order++) {
                const struct sort c = {shapes[i], 0, (enum ggml_sort_order) order, ties};
                op_case(s, "ARGSORT", op_text("shape %zu order %d ties %d", i, order, ties), OP_EXACT, build, &c);
            }
            for (size_t k = 0; k < N(ks) && ks[k] <= shapes[i][0]; k++) {
                const struct sort c = {shapes[i], ks[k], GGML_SORT_ORDER_DESC, ties};
                op_case(s, "TOP_K", op_text("shape %zu k %d ties %d", i, (int) ks[k], ties), OP_EXACT, build, &c);
            }
        }
    }
}
