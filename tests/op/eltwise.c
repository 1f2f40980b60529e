// SPDX-License-Identifier: MIT
// eltwise.c: cases of op/eltwise.c.

#include "op.h"
#include "plain.h"

#define N(a) (sizeof(a) / sizeof((a)[0]))

static const enum ggml_type float_types[] = {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16};

// ---- two sources ----

typedef struct ggml_tensor *(*binary_t)(struct ggml_context *, struct ggml_tensor *, struct ggml_tensor *);

struct binary {
    binary_t make;
    enum ggml_type ta, tb;
    const int64_t *a, *b;
    int layout; // 0 dense, 1 holes, 2 b with holes
    bool specials;
};

static struct ggml_tensor *build_binary(struct op_build *b, const void *arg) {
    const struct binary *c = arg;
    struct ggml_tensor *x = c->layout == 1 ? op_input_holes(b, c->ta, c->a) : op_input(b, c->ta, c->a);
    struct ggml_tensor *y = c->layout == 2 ? op_input_holes(b, c->tb, c->b) : op_input_range(b, c->tb, c->b, 0.5f, 2.0f);
    if (c->specials) {
        op_with_specials(x);
        op_with_specials(y);
    }
    return c->make(b->ctx, x, y);
}

static void binary_cases(struct op_suite *s, const char *op, binary_t make) {
    static const int64_t shapes[][2][4] = {
        {{1, 1, 1, 1}, {1, 1, 1, 1}},
        {{16, 5, 4, 3}, {16, 5, 4, 3}},
        {{33, 5, 4, 3}, {33, 5, 4, 3}},
        {{64, 5, 4, 3}, {64, 1, 1, 1}},
        {{64, 5, 4, 3}, {1, 5, 4, 3}},
        {{64, 5, 4, 3}, {1, 1, 1, 1}},
        {{64, 6, 4, 3}, {32, 3, 2, 1}},
        {{30, 6, 4, 2}, {10, 6, 1, 2}},
        {{2049, 3, 1, 1}, {683, 1, 1, 1}},
        {{5000, 7, 1, 1}, {5000, 1, 1, 1}},
        {{128, 300, 2, 1}, {128, 1, 2, 1}},
        {{0, 5, 1, 1}, {0, 5, 1, 1}},
    };
    for (size_t i = 0; i < N(shapes); i++) {
        for (int layout = 0; layout < 3; layout++) {
            const struct binary c = {make, GGML_TYPE_F32, GGML_TYPE_F32, shapes[i][0], shapes[i][1], layout, false};
            op_case(s, op, op_text("shape %zu layout %d", i, layout), OP_F32, build_binary, &c);
        }
    }
    // Combinations of types that the reference supports.
    static const enum ggml_type mixes[][2] = {{GGML_TYPE_F16, GGML_TYPE_F16}, {GGML_TYPE_F16, GGML_TYPE_F32},
        {GGML_TYPE_BF16, GGML_TYPE_BF16}, {GGML_TYPE_BF16, GGML_TYPE_F32}};
    for (size_t m = 0; m < N(mixes); m++) {
        for (size_t i = 0; i < N(shapes); i++) {
            const struct binary c = {make, mixes[m][0], mixes[m][1], shapes[i][0], shapes[i][1], 0, false};
            op_case(s, op, op_text("%s %s shape %zu", ggml_type_name(c.ta), ggml_type_name(c.tb), i), OP_F32, build_binary, &c);
        }
    }
    const struct binary special = {make, GGML_TYPE_F32, GGML_TYPE_F32, shapes[1][0], shapes[1][1], 0, true};
    op_case(s, op, "specials", OP_F32, build_binary, &special);
}

static void quant_add_cases(struct op_suite *s) {
    static const int64_t a[4] = {256, 5, 2, 1};
    for (int t = 0; t < GGML_TYPE_COUNT; t++) {
        if (ggml_is_quantized((enum ggml_type) t) && t != GGML_TYPE_Q8_1 && t != GGML_TYPE_Q8_K &&
            ggml_get_type_traits_cpu((enum ggml_type) t)->from_float != NULL) {
            const struct binary c = {ggml_add, (enum ggml_type) t, GGML_TYPE_F32, a, a, 0, false};
            op_case(s, "ADD", op_text("%s f32", ggml_type_name(c.ta)), OP_EXACT, build_binary, &c);
        }
    }
}

// ---- one source ----

typedef struct ggml_tensor *(*map_t)(struct ggml_context *, struct ggml_tensor *);

struct map {
    map_t make; // NULL: ggml_unary
    enum ggml_unary_op unary;
    enum ggml_type type;
    const int64_t *ne;
    int layout;
    bool specials;
    float lo, hi;
};

static struct ggml_tensor *make_scale(struct ggml_context *ctx, struct ggml_tensor *x) {
    return ggml_scale(ctx, x, 0.7f);
}

static struct ggml_tensor *make_scale_bias(struct ggml_context *ctx, struct ggml_tensor *x) {
    return ggml_scale_bias(ctx, x, -1.3f, 0.4f);
}

static struct ggml_tensor *make_clamp(struct ggml_context *ctx, struct ggml_tensor *x) {
    return ggml_clamp(ctx, x, -0.3f, 0.5f);
}

static struct ggml_tensor *make_xielu(struct ggml_context *ctx, struct ggml_tensor *x) {
    return ggml_xielu(ctx, x, 0.8f, 0.7f, 0.5f, -1e-6f);
}

static struct ggml_tensor *build_map(struct op_build *b, const void *arg) {
    const struct map *c = arg;
    struct ggml_tensor *x = c->layout == 1 ? op_input_holes(b, c->type, c->ne) : op_input_range(b, c->type, c->ne, c->lo, c->hi);
    if (c->specials) {
        op_with_specials(x);
    }
    struct ggml_tensor *y = c->make != NULL ? c->make(b->ctx, x) : ggml_unary(b->ctx, x, c->unary);
    const bool is_rounded = c->make == NULL && (c->unary == GGML_UNARY_OP_GELU || c->unary == GGML_UNARY_OP_GELU_ERF ||
                                                   c->unary == GGML_UNARY_OP_GELU_QUICK || c->unary == GGML_UNARY_OP_SILU);
    if (is_rounded && c->type == GGML_TYPE_BF16) {
        b->plain = op_plain_map;
        b->plain_nmse = OP_BF16;
    } else if (y->op == GGML_OP_SCALE && c->layout == 1) {
        b->plain = op_plain_map;
    }
    return y;
}

// `of` has the constructor, and the range of x.
static void map_cases(struct op_suite *s, const char *op, struct map of, bool all_types, bool holes, double tol) {
    static const int64_t shapes[][4] = {
        {1, 1, 1, 1}, {7, 3, 2, 1}, {64, 5, 4, 3}, {1000, 3, 1, 1}, {1025, 5, 2, 1}, {5000, 17, 1, 1}, {0, 3, 1, 1}};
    struct map c = of;
    for (size_t i = 0; i < N(shapes); i++) {
        c.ne = shapes[i];
        for (size_t t = 0; t < (all_types ? N(float_types) : 1); t++) {
            c.type = float_types[t];
            const int n_layouts = holes && shapes[i][0] > 0 && shapes[i][2] == 1 ? 2 : 1; // the reference assumes dense planes
            for (c.layout = 0; c.layout < n_layouts; c.layout++) {
                op_case(s, op, op_text("%s %s shape %zu layout %d", op, ggml_type_name(c.type), i, c.layout), tol, build_map, &c);
            }
        }
    }
    of.type = GGML_TYPE_F32;
    of.ne = shapes[2];
    of.specials = true;
    op_case(s, op, op_text("%s specials", op), tol, build_map, &of);
}

static void unary_cases(struct op_suite *s) {
    for (int u = 0; u < GGML_UNARY_OP_COUNT; u++) {
        if (u == GGML_UNARY_OP_XIELU) {
            continue; // it has parameters
        }
        const char *name = ggml_unary_op_name((enum ggml_unary_op) u);
        map_cases(s, name, (struct map){.unary = (enum ggml_unary_op) u, .lo = -5.0f, .hi = 5.0f}, true, false, OP_F32);
        map_cases(s, name, (struct map){.unary = (enum ggml_unary_op) u, .lo = -100.0f, .hi = 100.0f}, true, false, OP_F32);
    }
    map_cases(s, "XIELU", (struct map){make_xielu, .lo = -5.0f, .hi = 5.0f}, true, false, OP_F32);
}

void op_suite_eltwise(struct op_suite *s) {
    binary_cases(s, "ADD", ggml_add);
    binary_cases(s, "SUB", ggml_sub);
    binary_cases(s, "MUL", ggml_mul);
    binary_cases(s, "DIV", ggml_div);
    quant_add_cases(s);
    map_cases(s, "SQR", (struct map){ggml_sqr, .lo = -3.0f, .hi = 3.0f}, true, false, OP_F32);
    map_cases(s, "SQRT", (struct map){ggml_sqrt, .lo = -0.1f, .hi = 9.0f}, true, false, OP_F32);
    map_cases(s, "LOG", (struct map){ggml_log, .lo = -0.1f, .hi = 9.0f}, true, false, OP_F32);
    map_cases(s, "SIN", (struct map){ggml_sin, .lo = -30.0f, .hi = 30.0f}, true, false, OP_F32);
    map_cases(s, "COS", (struct map){ggml_cos, .lo = -30.0f, .hi = 30.0f}, true, false, OP_F32);
    map_cases(s, "SCALE", (struct map){make_scale, .lo = -3.0f, .hi = 3.0f}, false, true, OP_F32);
    map_cases(s, "SCALE", (struct map){make_scale_bias, .lo = -3.0f, .hi = 3.0f}, false, true, OP_F32);
    map_cases(s, "CLAMP", (struct map){make_clamp, .lo = -1.0f, .hi = 1.0f}, false, true, OP_EXACT);
    unary_cases(s);
}
