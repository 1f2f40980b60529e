// SPDX-License-Identifier: MIT
// train.c: cases of op/train.c: the loss, gradients, optimiser steps.

#include "op.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#define N(a) (sizeof(a) / sizeof((a)[0]))

static const int64_t shapes[][4] = {{7, 1, 1, 1}, {33, 5, 1, 1}, {64, 3, 2, 2}, {1000, 3, 1, 1}, {2049, 2, 1, 1}, {5, 4, 3, 2},
    {128, 300, 1, 1}, {16, 1, 9, 1}, {31, 2, 2, 2}};

enum { LOSS, LOSS_BACK, SILU_BACK, RMS_NORM_BACK, SOFT_MAX_BACK, REPEAT_BACK, ADAMW, SGD };
static const char *const names[] = {"CROSS_ENTROPY_LOSS", "CROSS_ENTROPY_LOSS_BACK", "SILU_BACK", "RMS_NORM_BACK",
    "SOFT_MAX_BACK", "REPEAT_BACK", "OPT_STEP_ADAMW", "OPT_STEP_SGD"};

struct train {
    int which;
    const int64_t *ne;
    int variant;
    enum ggml_type type;
    bool holes, specials;
};

static struct ggml_tensor *like(struct op_build *b, const struct train *c, float lo, float hi) {
    return c->holes ? op_input_holes(b, c->type, c->ne) : op_input_range(b, c->type, c->ne, lo, hi);
}

// Returns labels whose rows sum to 1. variant 2: one element of each row is 1, the others are 0.
static struct ggml_tensor *labels(struct op_build *b, const struct train *c) {
    struct ggml_tensor *t = op_input_range(b, GGML_TYPE_F32, c->ne, 0.0f, 1.0f);
    const int64_t n = t->ne[0];
    for (int64_t r = 0; r < ggml_nrows(t); r++) {
        float sum = 0.0f;
        for (int64_t i = 0; i < n; i++) {
            sum += *(float *) op_at(t, r * n + i);
        }
        for (int64_t i = 0; i < n; i++) {
            float *x = op_at(t, r * n + i);
            *x = c->variant == 2 ? (float) (i == r % n) : *x / sum;
        }
    }
    return t;
}

static struct ggml_tensor *build_loss(struct op_build *b, const struct train *c) {
    static const float ranges[][2] = {{-1.0f, 1.0f}, {-30.0f, 30.0f}, {-2.0f, 2.0f}, {90.0f, 110.0f}};
    struct ggml_tensor *x = op_input_range(b, GGML_TYPE_F32, c->ne, ranges[c->variant][0], ranges[c->variant][1]);
    if (c->specials && ggml_nelements(x) > 3) {
        *(float *) op_at(x, 3) = c->variant == 0 ? NAN : c->variant == 1 ? INFINITY : c->variant == 2 ? -INFINITY : 1e30f;
    }
    if (c->which == LOSS) {
        return ggml_cross_entropy_loss(b->ctx, x, labels(b, c));
    }
    return ggml_cross_entropy_loss_back(b->ctx, op_input(b, GGML_TYPE_F32, NE(1, 1, 1, 1)), x, labels(b, c));
}

static void set_numbers(struct ggml_tensor *t, const float *x) {
    for (int64_t i = 0; i < ggml_nelements(t); i++) {
        *(float *) op_at(t, i) = x[i];
    }
}

// The graph adds the moments to the result, so that they are compared too.
static struct ggml_tensor *build_step(struct op_build *b, const struct train *c) {
    static const float numbers[][7] = {{1e-3f, 0.9f, 0.999f, 1e-8f, 0.0f, 10.0f, 1000.0f},
        {1e-2f, 0.8f, 0.99f, 1e-8f, 0.1f, 1.5f, 2.0f}, {0.1f, 0.0f, 0.0f, 1e-3f, 0.5f, 1.0f, 1.0f},
        {1.0f, 0.5f, 0.5f, 0.0f, 0.0f, 1.0f, 1.0f}};
    struct ggml_tensor *w = op_input(b, GGML_TYPE_F32, c->ne), *grad = op_input(b, GGML_TYPE_F32, c->ne);
    ggml_set_param(w);
    if (c->specials) {
        op_with_specials(grad);
    }
    struct ggml_tensor *n = op_input(b, GGML_TYPE_F32, NE(c->which == SGD ? 2 : 7, 1, 1, 1));
    if (c->which == SGD) {
        set_numbers(n, (float[]){numbers[c->variant][0], numbers[c->variant][4]});
        return ggml_opt_step_sgd(b->ctx, w, grad, n);
    }
    set_numbers(n, numbers[c->variant]);
    struct ggml_tensor *m = op_input(b, GGML_TYPE_F32, c->ne), *v = op_input_range(b, GGML_TYPE_F32, c->ne, 0.0f, 1.0f);
    struct ggml_tensor *step = ggml_opt_step_adamw(b->ctx, w, grad, m, v, n);
    return c->specials ? step : ggml_add(b->ctx, ggml_add(b->ctx, step, m), v);
}

static struct ggml_tensor *build_train(struct op_build *b, const void *arg) {
    const struct train *c = arg;
    static const float numbers[] = {0.0f, 1e-6f, 0.3f, 1.0f};
    static const int64_t more[][4] = {{1, 1, 1, 1}, {2, 3, 1, 1}, {1, 2, 3, 2}, {4, 1, 1, 5}};
    const int64_t *m = more[c->variant], *ne = c->ne;
    struct ggml_tensor *x, *d;
    switch (c->which) {
        case LOSS:
        case LOSS_BACK: return build_loss(b, c);
        case ADAMW:
        case SGD: return build_step(b, c);
        case REPEAT_BACK:
            x = c->holes ? op_input_holes(b, c->type, NE(ne[0] * m[0], ne[1] * m[1], ne[2] * m[2], ne[3] * m[3]))
                         : op_input(b, c->type, NE(ne[0] * m[0], ne[1] * m[1], ne[2] * m[2], ne[3] * m[3]));
            return ggml_repeat_back(b->ctx, x, ggml_new_tensor(b->ctx, GGML_TYPE_F32, 4, ne));
        default: break;
    }
    d = like(b, c, -1.0f, 1.0f);
    x = c->which == SOFT_MAX_BACK ? labels(b, c)
                                  : like(b, c, -1.0f - 5.0f * (float) c->variant, 1.0f + 5.0f * (float) c->variant);
    if (c->specials) {
        op_with_specials(x);
    }
    return c->which == SILU_BACK       ? ggml_silu_back(b->ctx, d, x)
           : c->which == RMS_NORM_BACK ? ggml_rms_norm_back(b->ctx, d, x, numbers[c->variant])
           : c->variant == 3           ? ggml_soft_max_ext_back_inplace(b->ctx, d, x, 0.7f, 0.0f)
                                       : ggml_soft_max_ext_back(b->ctx, d, x, 0.125f + numbers[c->variant], 0.0f);
}

struct gather {
    int64_t n, n_rows, n_ids;
    enum ggml_type type;
    bool holes;
};

static struct ggml_tensor *build_gather(struct op_build *b, const void *arg) {
    const struct gather *c = arg;
    const int64_t *ne = NE(c->n, c->n_ids, 1, 1);
    struct ggml_tensor *x = c->holes ? op_input_holes(b, c->type, ne) : op_input(b, c->type, ne);
    return ggml_get_rows_back(b->ctx, x, op_indices(b, GGML_TYPE_I32, NE(c->n_ids, 1, 1, 1), c->n_rows, false),
        ggml_new_tensor_2d(b->ctx, GGML_TYPE_F32, c->n, c->n_rows));
}

void op_suite_train(struct op_suite *s) {
    for (int which = LOSS; which <= SGD; which++) {
        for (size_t i = 0; i < N(shapes); i++) {
            for (int variant = 0; variant < 4; variant++) {
                struct train c = {which, shapes[i], variant, GGML_TYPE_F32, false, false};
                op_case(s, names[which], op_text("shape %zu variant %d", i, variant), OP_F32, build_train, &c);
                if (which == RMS_NORM_BACK || (which == SILU_BACK && shapes[i][2] == 1) || which == REPEAT_BACK) {
                    c.holes = true;
                    op_case(s, names[which], op_text("shape %zu variant %d holes", i, variant), OP_F32, build_train, &c);
                }
                if (which == SILU_BACK) {
                    c.holes = false;
                    c.type = GGML_TYPE_F16;
                    op_case(s, names[which], op_text("shape %zu variant %d f16", i, variant), 1e-6, build_train, &c);
                }
            }
        }
        for (int variant = 0; variant < 4 && which != REPEAT_BACK; variant++) {
            const struct train c = {which, shapes[2], variant, GGML_TYPE_F32, false, true};
            op_case(s, names[which], op_text("specials variant %d", variant), OP_F32, build_train, &c);
        }
    }
    static const int64_t sizes[][3] = {{1, 1, 1}, {5, 6, 9}, {64, 3, 40}, {1025, 20, 7}, {4100, 2, 5}, {33, 100, 3}};
    for (size_t i = 0; i < N(sizes); i++) {
        for (int half = 0; half < 2; half++) {
            for (int holes = 0; holes < 2; holes++) {
                for (int more = 1; more < 3; more++) {
                    const struct gather c = {
                        sizes[i][0], sizes[i][1], sizes[i][2] * more, half ? GGML_TYPE_F16 : GGML_TYPE_F32, holes};
                    op_case(s, "GET_ROWS_BACK", op_text("size %zu half %d holes %d more %d", i, half, holes, more), OP_F32,
                        build_gather, &c);
                }
            }
        }
    }
}
