// SPDX-License-Identifier: MIT
// repeat.c: cases of op/repeat.c and op/fill.c.

#include "op.h"

#define N(a) (sizeof(a) / sizeof((a)[0]))

struct repeat {
    enum ggml_op op;
    enum ggml_type type;
    const int64_t *ne;
    int layout; // 0 dense, 1 holes, 2 swapped, 3 special values
    int i;      // parameter of the op: repeats, dimension, n_past or kind
    bool inplace;
    float f[3];
};

static struct ggml_tensor *input(struct op_build *b, enum ggml_type type, const int64_t *ne, int layout) {
    return layout == 1   ? op_input_holes(b, type, ne)
           : layout == 2 ? op_input_swapped(b, type, ne)
           : layout == 3 ? op_with_specials(op_input(b, type, ne))
                         : op_input(b, type, ne);
}

// Adds or copies b to the middle of a, which is larger than b.
static struct ggml_tensor *build_part(struct op_build *b, const struct repeat *c) {
    const int64_t *ne = c->ne;
    struct ggml_context *ctx = b->ctx;
    struct ggml_tensor *a = op_input(b, c->type, NE(ne[0] + 2, ne[1] + 1, ne[2] + 1, ne[3]));
    struct ggml_tensor *part = input(b, c->type, ne, c->layout);
    const size_t nb0 = ggml_type_size(c->type), nb1 = nb0 * (size_t) (ne[0] + 2); // strides of the result, for any layout of a
    const size_t nb2 = nb1 * (size_t) (ne[1] + 1), nb3 = nb2 * (size_t) (ne[2] + 1);
    const size_t off = nb0 * (size_t) (c->i % 3) + nb1 * (size_t) (c->i % 2);
    if (c->op == GGML_OP_SET) {
        return c->inplace ? ggml_set_inplace(ctx, a, part, nb1, nb2, nb3, off) : ggml_set(ctx, a, part, nb1, nb2, nb3, off);
    }
    return c->inplace ? ggml_acc_inplace(ctx, a, part, nb1, nb2, nb3, off) : ggml_acc(ctx, a, part, nb1, nb2, nb3, off);
}

static struct ggml_tensor *build(struct op_build *b, const void *arg) {
    const struct repeat *c = arg;
    struct ggml_context *ctx = b->ctx;
    const int64_t *ne = c->ne;
    switch (c->op) {
        case GGML_OP_REPEAT: {
            const int i = c->i;
            return ggml_repeat_4d(ctx, input(b, c->type, ne, c->layout), ne[0] * (1 + i % 3), ne[1] * (1 + i % 2),
                ne[2] * (1 + i / 2 % 2), ne[3] * (1 + i / 4 % 2));
        }
        case GGML_OP_CONCAT: {
            int64_t other[] = {ne[0], ne[1], ne[2], ne[3]};
            other[c->i] *= 2;
            struct ggml_tensor *x = input(b, c->type, ne, c->layout);
            return ggml_concat(ctx, x, input(b, c->type, other, c->layout), c->i);
        }
        case GGML_OP_SET:
        case GGML_OP_ACC: return build_part(b, c);
        case GGML_OP_ADD1: {
            struct ggml_tensor *x = input(b, c->type, ne, c->layout);
            struct ggml_tensor *y = op_input(b, (enum ggml_type) c->i, NE(1, 1, 1, 1));
            return c->inplace ? ggml_add1_inplace(ctx, x, y) : ggml_add1(ctx, x, y);
        }
        case GGML_OP_DIAG: return ggml_diag(ctx, input(b, c->type, NE(ne[0], 1, ne[2], ne[3]), c->layout));
        case GGML_OP_DIAG_MASK_INF:
            return c->inplace ? ggml_diag_mask_inf_inplace(ctx, input(b, c->type, ne, c->layout), c->i)
                              : ggml_diag_mask_inf(ctx, input(b, c->type, ne, c->layout), c->i);
        case GGML_OP_DIAG_MASK_ZERO:
            return c->inplace ? ggml_diag_mask_zero_inplace(ctx, input(b, c->type, ne, c->layout), c->i)
                              : ggml_diag_mask_zero(ctx, input(b, c->type, ne, c->layout), c->i);
        case GGML_OP_TRI:
            return ggml_tri(ctx, input(b, c->type, NE(ne[0], ne[0], ne[2], ne[3]), c->layout), (enum ggml_tri_type) c->i);
        case GGML_OP_FILL:
            return c->inplace ? ggml_fill_inplace(ctx, input(b, c->type, ne, 0), c->f[0])
                              : ggml_fill(ctx, input(b, c->type, ne, 0), c->f[0]);
        case GGML_OP_ARANGE: return ggml_arange(ctx, c->f[0], c->f[1], c->f[2]);
        case GGML_OP_TIMESTEP_EMBEDDING:
            return ggml_timestep_embedding(ctx, op_input_range(b, c->type, ne, 0.0f, c->f[0]), c->i, (int) c->f[1]);
        default: return ggml_leaky_relu(ctx, input(b, c->type, ne, c->layout), c->f[0], c->inplace);
    }
}

static void one(struct op_suite *s, struct repeat c, double max_nmse) {
    const int64_t *ne = c.ne;
    op_case(s, ggml_op_name(c.op),
        op_text("%s %d %d %d %d layout %d i %d inplace %d f %g", ggml_type_name(c.type), (int) ne[0], (int) ne[1], (int) ne[2],
            (int) ne[3], c.layout, c.i, c.inplace, (double) c.f[0]),
        max_nmse, build, &c);
}

static const int64_t shapes[][4] = {{1, 1, 1, 1}, {5, 4, 3, 2}, {64, 3, 2, 2}, {257, 9, 1, 2}, {33, 65, 4, 1}};

static void moves(struct op_suite *s) {
    static const enum ggml_type types[] = {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_I32, GGML_TYPE_I16};
    static const enum ggml_type more[] = {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_I32, GGML_TYPE_I8, GGML_TYPE_I64};
    for (size_t i = 0; i < N(shapes); i++) {
        for (size_t t = 0; t < N(types); t++) {
            for (int layout = 0; layout < 2; layout++) {
                for (int r = 0; r < 8; r += t == 0 ? 1 : 3) {
                    one(s, (struct repeat){GGML_OP_REPEAT, types[t], shapes[i], layout, r, false, {0}}, OP_EXACT);
                }
            }
            for (int dim = 0; dim < 4; dim++) {
                for (int layout = 0; layout < 3; layout++) {
                    one(s, (struct repeat){GGML_OP_CONCAT, more[t], shapes[i], layout, dim, false, {0}}, OP_EXACT);
                }
            }
        }
        for (int k = 0; k < 4; k++) {
            for (int layout = 0; layout < 2; layout++) {
                one(s, (struct repeat){GGML_OP_SET, GGML_TYPE_F32, shapes[i], layout, k, k > 1, {0}}, OP_EXACT);
                one(s, (struct repeat){GGML_OP_SET, GGML_TYPE_I32, shapes[i], layout, k, k > 1, {0}}, OP_EXACT);
                one(s, (struct repeat){GGML_OP_ACC, GGML_TYPE_F32, shapes[i], layout, k, k > 1, {0}}, OP_EXACT);
            }
        }
        for (int layout = 0; layout < 2; layout++) {
            one(s, (struct repeat){GGML_OP_DIAG, GGML_TYPE_F32, shapes[i], layout, 0, false, {0}}, OP_EXACT);
        }
    }
    for (int n = 1; n <= 20; n++) {
        for (int layout = 0; layout < 2; layout++) {
            one(s, (struct repeat){GGML_OP_DIAG, GGML_TYPE_F32, NE(3 * n, 1, 1 + n % 3, 1 + n % 2), layout, 0, false, {0}},
                OP_EXACT);
        }
    }
    static const enum ggml_type blocks[] = {GGML_TYPE_Q4_0, GGML_TYPE_Q8_0};
    for (size_t t = 0; t < N(blocks); t++) {
        for (int dim = 0; dim < 4; dim++) {
            one(s, (struct repeat){GGML_OP_CONCAT, blocks[t], shapes[2], 0, dim, false, {0}}, OP_EXACT);
        }
    }
}

static void masks(struct op_suite *s) {
    static const int past[] = {0, 1, 5, 40, 300};
    for (size_t i = 0; i < N(shapes); i++) {
        for (size_t p = 0; p < N(past); p++) {
            for (int inplace = 0; inplace < 2; inplace++) {
                one(s, (struct repeat){GGML_OP_DIAG_MASK_INF, GGML_TYPE_F32, shapes[i], 0, past[p], inplace, {0}}, OP_EXACT);
                one(s, (struct repeat){GGML_OP_DIAG_MASK_ZERO, GGML_TYPE_F32, shapes[i], 0, past[p], inplace, {0}}, OP_EXACT);
            }
        }
        for (int kind = 0; kind < 4; kind++) {
            one(s, (struct repeat){GGML_OP_TRI, GGML_TYPE_F32, shapes[i], 0, kind, false, {0}}, OP_EXACT);
            one(s, (struct repeat){GGML_OP_TRI, GGML_TYPE_F32, shapes[i], 3, kind, false, {0}}, OP_EXACT);
        }
    }
}

static void numbers(struct op_suite *s) {
    static const float values[] = {0.0f, -1.5f, 3e38f, 1e-8f};
    static const float slopes[] = {0.1f, -0.5f, 0.0f, 1.0f};
    for (size_t i = 0; i < N(shapes); i++) {
        for (size_t v = 0; v < N(values); v++) {
            for (int half = 0; half < 2; half++) {
                const enum ggml_type type = half ? GGML_TYPE_F16 : GGML_TYPE_F32;
                one(s, (struct repeat){GGML_OP_FILL, type, shapes[i], 0, 0, v % 2 == 1, {values[v]}}, OP_EXACT);
                one(s, (struct repeat){GGML_OP_LEAKY_RELU, type, shapes[i], 0, 0, v % 2 == 1, {slopes[v]}}, OP_EXACT);
            }
            one(s, (struct repeat){GGML_OP_LEAKY_RELU, GGML_TYPE_F32, shapes[i], 3, 0, false, {slopes[v]}}, OP_EXACT);
        }
        for (int inplace = 0; inplace < 2; inplace++) {
            static const enum ggml_type pairs[][2] = {{GGML_TYPE_F32, GGML_TYPE_F32}, {GGML_TYPE_F16, GGML_TYPE_F32},
                {GGML_TYPE_F16, GGML_TYPE_F16}, {GGML_TYPE_BF16, GGML_TYPE_F32}, {GGML_TYPE_BF16, GGML_TYPE_BF16}};
            for (size_t p = 0; p < N(pairs); p++) {
                one(s, (struct repeat){GGML_OP_ADD1, pairs[p][0], shapes[i], 0, (int) pairs[p][1], inplace, {0}}, OP_EXACT);
            }
        }
        for (int k = 0; k < 8; k++) {
            const float f[] = {(float) k - 3.0f, (float) (k * 20 + 1), 0.25f + 0.3f * (float) i};
            one(s, (struct repeat){GGML_OP_ARANGE, GGML_TYPE_F32, shapes[i], 0, k, false, {f[0], f[1], f[2]}}, OP_EXACT);
        }
    }
    static const enum ggml_type blocks[] = {GGML_TYPE_Q4_0, GGML_TYPE_Q4_1, GGML_TYPE_Q5_0, GGML_TYPE_Q5_1, GGML_TYPE_Q8_0};
    for (size_t t = 0; t < N(blocks); t++) {
        one(s, (struct repeat){GGML_OP_ADD1, blocks[t], NE(64, 3, 2, 1), 0, GGML_TYPE_F32, false, {0}}, OP_EXACT);
    }
    static const int dims[] = {1, 2, 7, 64, 321};
    for (size_t d = 0; d < N(dims); d++) {
        for (int n = 1; n < 10; n += 4) {
            for (int period = 10; period <= 10000; period *= 1000) {
                for (int far = 1; far <= 1000; far *= 1000) {
                    one(s,
                        (struct repeat){GGML_OP_TIMESTEP_EMBEDDING, GGML_TYPE_F32, NE(n, 1, 1, 1), 0, dims[d], false,
                            {(float) far, (float) period}},
                        OP_F32);
                }
            }
        }
    }
}

void op_suite_repeat(struct op_suite *s) {
    moves(s);
    masks(s);
    numbers(s);
}
