// SPDX-License-Identifier: MIT
// rows.c: cases of op/rows.c and op/softmax.c.

#include "op.h"

#include <math.h>
#include <stddef.h>

#define N(a) (sizeof(a) / sizeof((a)[0]))

struct rows {
    enum ggml_type type, index;
    enum ggml_type source; // of SET_ROWS
    int64_t n, n_rows, n_get;
    int64_t ne2, ne3;
    int layout;
};

static struct ggml_tensor *build_get(struct op_build *b, const void *arg) {
    const struct rows *c = arg;
    struct ggml_tensor *x = c->layout == 1 ? op_input_holes(b, c->type, NE(c->n, c->n_rows, c->ne2, c->ne3))
                                           : op_input(b, c->type, NE(c->n, c->n_rows, c->ne2, c->ne3));
    return ggml_get_rows(b->ctx, x, op_indices(b, GGML_TYPE_I32, NE(c->n_get, c->ne2, c->ne3, 1), c->n_rows, false));
}

static struct ggml_tensor *build_set(struct op_build *b, const void *arg) {
    const struct rows *c = arg;
    struct ggml_tensor *a = c->layout == 1 ? op_input_holes(b, c->type, NE(c->n, c->n_rows, c->ne2, c->ne3))
                                           : op_input(b, c->type, NE(c->n, c->n_rows, c->ne2, c->ne3));
    struct ggml_tensor *x = op_input(b, c->source, NE(c->n, c->n_get, c->ne2, c->ne3));
    return ggml_set_rows(b->ctx, a, x, op_indices(b, c->index, NE(c->n_get, 1, c->ne3, 1), c->n_rows, true));
}

static void rows_cases(struct op_suite *s) {
    for (int t = 0; t < GGML_TYPE_COUNT; t++) {
        const enum ggml_type type = (enum ggml_type) t;
        const bool quant = ggml_is_quantized(type);
        if (t == GGML_TYPE_Q8_1 || t == GGML_TYPE_Q8_K ||
            (!quant && type != GGML_TYPE_F32 && type != GGML_TYPE_F16 && type != GGML_TYPE_BF16 && type != GGML_TYPE_I32)) {
            continue;
        }
        static const int64_t shapes[][5] = {{256, 10, 4, 1, 1}, {1280, 7, 5, 3, 2}, {512, 33, 33, 2, 1}};
        for (size_t i = 0; i < N(shapes); i++) {
            for (int layout = 0; layout < 2; layout++) {
                struct rows c = {type, GGML_TYPE_I64, GGML_TYPE_F32, shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][3],
                    shapes[i][4], layout};
                op_case(s, "GET_ROWS", op_text("%s shape %zu layout %d", ggml_type_name(type), i, layout), OP_F32, build_get, &c);
                for (int wide = 0; wide < 2 && type != GGML_TYPE_I32; wide++) {
                    c.index = wide ? GGML_TYPE_I64 : GGML_TYPE_I32;
                    op_case(s, "SET_ROWS",
                        op_text("%s by %s shape %zu layout %d", ggml_type_name(type), ggml_type_name(c.index), i, layout),
                        quant ? OP_EXACT : OP_F32, build_set, &c);
                }
                c.source = GGML_TYPE_F16;
                if (type != GGML_TYPE_I32) {
                    op_case(s, "SET_ROWS", op_text("%s from f16 shape %zu layout %d", ggml_type_name(type), i, layout),
                        quant ? OP_EXACT : OP_F32, build_set, &c);
                }
            }
        }
    }
}

struct soft_max {
    const int64_t *ne;
    int mask; // 0 none, 1 f32, 2 f16
    bool mask_all, sinks, inf;
    float scale, max_bias;
};

static struct ggml_tensor *build_soft_max(struct op_build *b, const void *arg) {
    const struct soft_max *c = arg;
    struct ggml_tensor *x = op_input_range(b, GGML_TYPE_F32, c->ne, -5.0f, 5.0f);
    struct ggml_tensor *mask = NULL;
    if (c->mask > 0) {
        const enum ggml_type type = c->mask == 1 ? GGML_TYPE_F32 : GGML_TYPE_F16;
        mask = op_input(b, type, c->mask_all ? c->ne : NE(c->ne[0], c->ne[1] + 3, 1, 1));
        for (int64_t i = 0; c->inf && i < ggml_nelements(mask); i += 3) {
            if (type == GGML_TYPE_F32) {
                *(float *) op_at(mask, i) = -INFINITY;
            } else {
                *(uint16_t *) op_at(mask, i) = 0xfc00;
            }
        }
    }
    struct ggml_tensor *t = ggml_soft_max_ext(b->ctx, x, mask, c->scale, c->max_bias);
    if (c->sinks) {
        ggml_soft_max_add_sinks(t, op_input(b, GGML_TYPE_F32, NE(c->ne[2], 1, 1, 1)));
    }
    return t;
}

static void soft_max_cases(struct op_suite *s) {
    static const int64_t shapes[][4] = {{1, 1, 1, 1}, {2, 3, 4, 2}, {33, 5, 12, 1}, {256, 64, 2, 1}, {2050, 3, 3, 2}};
    static const float scales[] = {1.0f, 0.125f};
    for (size_t i = 0; i < N(shapes); i++) {
        for (int mask = 0; mask < 3; mask++) {
            for (size_t sc = 0; sc < N(scales); sc++) {
                for (int sinks = 0; sinks < 2; sinks++) {
                    for (int bias = 0; bias <= (mask > 0); bias++) {
                        for (int all = 0; all <= (mask > 0); all++) {
                            const struct soft_max c = {shapes[i], mask, all, sinks, i > 1, scales[sc], bias ? 8.0f : 0.0f};
                            op_case(s, "SOFT_MAX",
                                op_text("shape %zu mask %d all %d scale %g sinks %d bias %d", i, mask, all, (double) c.scale,
                                    sinks, bias),
                                OP_F32, build_soft_max, &c);
                        }
                    }
                }
            }
        }
    }
}

void op_suite_rows(struct op_suite *s) {
    rows_cases(s);
    soft_max_cases(s);
}
