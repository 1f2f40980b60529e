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

struct map {
    int which;
    enum ggml_type type;
    const int64_t *ne;
    int layout;
    bool specials;
    float lo, hi;
};

enum { MAP_SQR, MAP_SQRT, MAP_LOG, MAP_SIN, MAP_COS, MAP_SCALE, MAP_SCALE_BIAS, MAP_CLAMP, MAP_XIELU, MAP_UNARY };

static struct ggml_tensor *build_map(struct op_build *b, const void *arg) {
    const struct map *c = arg;
    struct ggml_tensor *x = c->layout == 1 ? op_input_holes(b, c->type, c->ne) : op_input_range(b, c->type, c->ne, c->lo, c->hi);
    struct ggml_context *ctx = b->ctx;
    if (c->specials) {
        op_with_specials(x);
    }
    const bool plain = c->which == MAP_UNARY + GGML_UNARY_OP_GELU || c->which == MAP_UNARY + GGML_UNARY_OP_GELU_ERF ||
                       c->which == MAP_UNARY + GGML_UNARY_OP_GELU_QUICK || c->which == MAP_UNARY + GGML_UNARY_OP_SILU;
    if (plain && c->type == GGML_TYPE_BF16) {
        b->plain = op_plain_map;
        b->plain_nmse = OP_BF16;
    } else if ((c->which == MAP_SCALE || c->which == MAP_SCALE_BIAS) && c->layout == 1) {
        b->plain = op_plain_map;
    }
    switch (c->which) {
        case MAP_SQR: return ggml_sqr(ctx, x);
        case MAP_SQRT: return ggml_sqrt(ctx, x);
        case MAP_LOG: return ggml_log(ctx, x);
        case MAP_SIN: return ggml_sin(ctx, x);
        case MAP_COS: return ggml_cos(ctx, x);
        case MAP_SCALE: return ggml_scale(ctx, x, 0.7f);
        case MAP_SCALE_BIAS: return ggml_scale_bias(ctx, x, -1.3f, 0.4f);
        case MAP_CLAMP: return ggml_clamp(ctx, x, -0.3f, 0.5f);
        case MAP_XIELU: return ggml_xielu(ctx, x, 0.8f, 0.7f, 0.5f, -1e-6f);
        default: return ggml_unary(ctx, x, (enum ggml_unary_op)(c->which - MAP_UNARY));
    }
}

static void map_cases(struct op_suite *s, const char *op, int which, bool all_types, bool holes, float lo, float hi, double tol) {
    static const int64_t shapes[][4] = {
        {1, 1, 1, 1}, {7, 3, 2, 1}, {64, 5, 4, 3}, {1000, 3, 1, 1}, {1025, 5, 2, 1}, {5000, 17, 1, 1}, {0, 3, 1, 1}};
    for (size_t i = 0; i < N(shapes); i++) {
        for (size_t t = 0; t < (all_types ? N(float_types) : 1); t++) {
            for (int layout = 0; layout <= (holes && shapes[i][0] > 0 && shapes[i][2] == 1);
                 layout++) { // the reference assumes dense planes
                const struct map c = {which, float_types[t], shapes[i], layout, false, lo, hi};
                op_case(s, op, op_text("%s %s shape %zu layout %d", op, ggml_type_name(c.type), i, layout), tol, build_map, &c);
            }
        }
    }
    const struct map c = {which, GGML_TYPE_F32, shapes[2], 0, true, lo, hi};
    op_case(s, op, op_text("%s specials", op), tol, build_map, &c);
}

static void unary_cases(struct op_suite *s) {
    for (int u = 0; u < GGML_UNARY_OP_COUNT; u++) {
        if (u == GGML_UNARY_OP_XIELU) {
            continue; // it has parameters
        }
        map_cases(s, ggml_unary_op_name((enum ggml_unary_op) u), MAP_UNARY + u, true, false, -5.0f, 5.0f, OP_F32);
        map_cases(s, ggml_unary_op_name((enum ggml_unary_op) u), MAP_UNARY + u, true, false, -100.0f, 100.0f, OP_F32);
    }
    map_cases(s, "XIELU", MAP_XIELU, true, false, -5.0f, 5.0f, OP_F32);
}

void op_suite_eltwise(struct op_suite *s) {
    binary_cases(s, "ADD", ggml_add);
    binary_cases(s, "SUB", ggml_sub);
    binary_cases(s, "MUL", ggml_mul);
    binary_cases(s, "DIV", ggml_div);
    quant_add_cases(s);
    map_cases(s, "SQR", MAP_SQR, true, false, -3.0f, 3.0f, OP_F32);
    map_cases(s, "SQRT", MAP_SQRT, true, false, -0.1f, 9.0f, OP_F32);
    map_cases(s, "LOG", MAP_LOG, true, false, -0.1f, 9.0f, OP_F32);
    map_cases(s, "SIN", MAP_SIN, true, false, -30.0f, 30.0f, OP_F32);
    map_cases(s, "COS", MAP_COS, true, false, -30.0f, 30.0f, OP_F32);
    map_cases(s, "SCALE", MAP_SCALE, false, true, -3.0f, 3.0f, OP_F32);
    map_cases(s, "SCALE", MAP_SCALE_BIAS, false, true, -3.0f, 3.0f, OP_F32);
    map_cases(s, "CLAMP", MAP_CLAMP, false, true, -1.0f, 1.0f, OP_EXACT);
    unary_cases(s);
}
