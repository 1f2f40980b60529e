// SPDX-License-Identifier: MIT
// ops_unary.c: constructors of activation functions: one formula on each element (op UNARY), and gated units, which multiply one
// half of a row, or one of two tensors, with the activated other (op GLU).
// op_params: unary [formula], glu [formula, swapped, alpha, limit]; the last two are floats that swiglu_oai sets, swiglu_clamp
// the last.

#include "core/grad.h"
#include "core/op.h"
#include "core/sample.h"

// ---- one formula ----

static struct ggml_tensor *unary(
    struct ggml_context *ctx, const char *func, struct ggml_tensor *a, enum ggml_unary_op op, bool inplace) {
    BERTH_SOURCES_AS(ctx, func, a);
    BERTH_REQUIRE_AS(ctx, func, ggml_is_contiguous_rows(a),
        "the rows of a " BERTH_SHAPE " with strides " BERTH_STRIDE " have holes", BERTH_NE(a), BERTH_NB(a));
    const int32_t param = (int32_t) op;
    return berth_op_set(berth_like_or_view(ctx, func, a, inplace), GGML_OP_UNARY, &param, sizeof param, a, NULL, NULL);
}

struct ggml_tensor *ggml_unary(struct ggml_context *ctx, struct ggml_tensor *a, enum ggml_unary_op op) {
    BERTH_REQUIRE(ctx, (unsigned) op < GGML_UNARY_OP_COUNT, "%d is no unary op", (int) op);
    return unary(ctx, __func__, a, op, false);
}

struct ggml_tensor *ggml_unary_inplace(struct ggml_context *ctx, struct ggml_tensor *a, enum ggml_unary_op op) {
    BERTH_REQUIRE(ctx, (unsigned) op < GGML_UNARY_OP_COUNT, "%d is no unary op", (int) op);
    return unary(ctx, __func__, a, op, true);
}

#define UNARY_PLAIN(name, op) \
    struct ggml_tensor *ggml_##name(struct ggml_context *ctx, struct ggml_tensor *a) { \
        return unary(ctx, __func__, a, op, false); \
    }
#define UNARY(name, op) \
    UNARY_PLAIN(name, op) \
    struct ggml_tensor *ggml_##name##_inplace(struct ggml_context *ctx, struct ggml_tensor *a) { \
        return unary(ctx, __func__, a, op, true); \
    }

UNARY(abs, GGML_UNARY_OP_ABS)
UNARY(sgn, GGML_UNARY_OP_SGN)
UNARY(neg, GGML_UNARY_OP_NEG)
UNARY(step, GGML_UNARY_OP_STEP)
UNARY(tanh, GGML_UNARY_OP_TANH)
UNARY(elu, GGML_UNARY_OP_ELU)
UNARY(relu, GGML_UNARY_OP_RELU)
UNARY(sigmoid, GGML_UNARY_OP_SIGMOID)
UNARY(gelu, GGML_UNARY_OP_GELU)
UNARY(gelu_erf, GGML_UNARY_OP_GELU_ERF)
UNARY(gelu_quick, GGML_UNARY_OP_GELU_QUICK)
UNARY(silu, GGML_UNARY_OP_SILU)
UNARY_PLAIN(hardswish, GGML_UNARY_OP_HARDSWISH)
UNARY_PLAIN(hardsigmoid, GGML_UNARY_OP_HARDSIGMOID)
UNARY(exp, GGML_UNARY_OP_EXP)
UNARY(expm1, GGML_UNARY_OP_EXPM1)
UNARY(softplus, GGML_UNARY_OP_SOFTPLUS)
UNARY(floor, GGML_UNARY_OP_FLOOR)
UNARY(ceil, GGML_UNARY_OP_CEIL)
UNARY(round, GGML_UNARY_OP_ROUND)
UNARY(trunc, GGML_UNARY_OP_TRUNC)

// The gradient of silu. Shapes are not compared, as in ggml; kernels do.
struct ggml_tensor *ggml_silu_back(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b) {
    BERTH_SOURCES(ctx, a, b);
    return berth_op_set(berth_like(ctx, __func__, a), GGML_OP_SILU_BACK, NULL, 0, a, b, NULL);
}

// ---- gated units ----

// Without b, a's rows are cut into two halves; swapped: the gate is the second one.
static struct ggml_tensor *glu(
    struct ggml_context *ctx, const char *func, struct ggml_tensor *a, struct ggml_tensor *b, enum ggml_glu_op op, bool swapped) {
    BERTH_SOURCES_AS(ctx, func, a);
    BERTH_SOURCE_OPT_AS(ctx, func, b);
    BERTH_REQUIRE_AS(ctx, func, ggml_is_contiguous_1(a),
        "a " BERTH_SHAPE " with strides " BERTH_STRIDE " is not contiguous but for rows", BERTH_NE(a), BERTH_NB(a));
    int64_t ne0 = a->ne[0] / 2;
    if (b != NULL) {
        BERTH_REQUIRE_AS(ctx, func, ggml_is_contiguous_1(b),
            "b " BERTH_SHAPE " with strides " BERTH_STRIDE " is not contiguous but for rows", BERTH_NE(b), BERTH_NB(b));
        BERTH_REQUIRE_AS(
            ctx, func, ggml_are_same_shape(a, b), "a is " BERTH_SHAPE ", b is " BERTH_SHAPE, BERTH_NE(a), BERTH_NE(b));
        BERTH_REQUIRE_AS(ctx, func, a->type == b->type, "a is %s, b is %s", ggml_type_name(a->type), ggml_type_name(b->type));
        ne0 = a->ne[0];
    }
    const int64_t ne[] = {ne0, a->ne[1], a->ne[2], a->ne[3]};
    const int32_t params[] = {(int32_t) op, swapped};
    return berth_op_set(
        berth_tensor_new(ctx, func, a->type, GGML_MAX_DIMS, ne, NULL, 0), GGML_OP_GLU, params, sizeof params, a, b, NULL);
}

struct ggml_tensor *ggml_glu(struct ggml_context *ctx, struct ggml_tensor *a, enum ggml_glu_op op, bool swapped) {
    BERTH_REQUIRE(ctx, (unsigned) op < GGML_GLU_OP_COUNT, "%d is no gated unit", (int) op);
    return glu(ctx, __func__, a, NULL, op, swapped);
}

struct ggml_tensor *ggml_glu_split(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, enum ggml_glu_op op) {
    BERTH_REQUIRE(ctx, (unsigned) op < GGML_GLU_OP_COUNT, "%d is no gated unit", (int) op);
    return glu(ctx, __func__, a, b, op, false);
}

#define GLU(name, op) \
    struct ggml_tensor *ggml_##name(struct ggml_context *ctx, struct ggml_tensor *a) { \
        return glu(ctx, __func__, a, NULL, op, false); \
    } \
    struct ggml_tensor *ggml_##name##_swapped(struct ggml_context *ctx, struct ggml_tensor *a) { \
        return glu(ctx, __func__, a, NULL, op, true); \
    } \
    struct ggml_tensor *ggml_##name##_split(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b) { \
        return glu(ctx, __func__, a, b, op, false); \
    }

GLU(reglu, GGML_GLU_OP_REGLU)
GLU(geglu, GGML_GLU_OP_GEGLU)
GLU(swiglu, GGML_GLU_OP_SWIGLU)
GLU(geglu_erf, GGML_GLU_OP_GEGLU_ERF)
GLU(geglu_quick, GGML_GLU_OP_GEGLU_QUICK)

struct ggml_tensor *ggml_swiglu_oai(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, float alpha, float limit) {
    struct ggml_tensor *result = glu(ctx, __func__, a, b, GGML_GLU_OP_SWIGLU_OAI, false);
    if (result != NULL && !berth_poisoned(result)) {
        memcpy(&result->op_params[2], &alpha, sizeof alpha);
        memcpy(&result->op_params[3], &limit, sizeof limit);
    }
    return result;
}

struct ggml_tensor *ggml_swiglu_clamp(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, float limit) {
    struct ggml_tensor *result = glu(ctx, __func__, a, b, GGML_GLU_OP_SWIGLU_CLAMP, false);
    if (result != NULL && !berth_poisoned(result)) {
        memcpy(&result->op_params[3], &limit, sizeof limit);
    }
    return result;
}

// ---- rows ----

TWICE(silu_back)
static struct ggml_tensor *sample_unary(BERTH_SAMPLE_ARGS) {
    BERTH_SAMPLE_UNUSED;
    return sub == GGML_UNARY_OP_XIELU ? ggml_xielu(c, rows(c, a), 0.8f, 0.8f, 0.5f, -1e-6f)
                                      : ggml_unary(c, rows(c, a), (enum ggml_unary_op) sub);
}
SAMPLE(glu, sub == GGML_GLU_OP_SWIGLU_OAI     ? ggml_swiglu_oai(c, rows(c, a), rows(c, a), 1.7f, 7.0f)
            : sub == GGML_GLU_OP_SWIGLU_CLAMP ? ggml_swiglu_clamp(c, rows(c, a), rows(c, a), 7.0f)
                                              : ggml_glu_split(c, rows(c, a), rows(c, a), (enum ggml_glu_op) sub))

// clang-format off
const struct berth_op_entry berth_ops_unary[] = {
    {GGML_OP_SILU_BACK, {"SILU_BACK", "silu_back(x)", .n_src = 2, .in_place = true, .family = BERTH_OP_TRAIN, .sample = sample_silu_back}},
    {GGML_OP_UNARY, {"UNARY", "unary(x)", .n_src = 1, .in_place = true, .family = BERTH_OP_ACTIVATION, .sample = sample_unary, .grad = berth_grad_unary, .grad_srcs = 1}},
    {GGML_OP_GLU, {"GLU", "glu(x)", .n_src = 2, .family = BERTH_OP_ACTIVATION, .sample = sample_glu, .grad = berth_grad_glu, .grad_srcs = 3}},
    BERTH_OPS_END,
};
// clang-format on
