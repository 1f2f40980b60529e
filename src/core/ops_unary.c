// SPDX-License-Identifier: MIT
// ops_unary.c: constructors of activation functions. UNARY applies a formula to each element.
// GLU (gated linear unit) multiplies formula(x) by a gate. x and the gate are in one row, or in two tensors.
// op_params: unary [formula], glu [formula, swapped, alpha, limit]. alpha and limit are floats.
// swiglu_oai sets alpha and limit. swiglu_clamp sets limit.

#include "base/min.h"
#include "core/grad.h"
#include "core/op.h"
#include "core/sample.h"

#include <math.h>

// ---- one formula ----

static struct ggml_tensor *unary_new(
    struct ggml_context *ctx, const char *func, struct ggml_tensor *a, enum ggml_unary_op op, bool inplace) {
    BERTH_SOURCES_AS(ctx, func, a);
    BERTH_REQUIRE_AS(ctx, func, ggml_is_contiguous_rows(a),
        "the rows of a " BERTH_SHAPE " with strides " BERTH_STRIDE " have holes", BERTH_NE(a), BERTH_NB(a));
    const int32_t param = (int32_t) op;
    return BERTH_OP_WITH(berth_like_or_view(ctx, func, a, inplace), GGML_OP_UNARY, param, a);
}

struct ggml_tensor *ggml_unary(struct ggml_context *ctx, struct ggml_tensor *a, enum ggml_unary_op op) {
    BERTH_REQUIRE(ctx, (unsigned) op < GGML_UNARY_OP_COUNT, "%d is not a ggml_unary_op", (int) op);
    return unary_new(ctx, __func__, a, op, false);
}

struct ggml_tensor *ggml_unary_inplace(struct ggml_context *ctx, struct ggml_tensor *a, enum ggml_unary_op op) {
    BERTH_REQUIRE(ctx, (unsigned) op < GGML_UNARY_OP_COUNT, "%d is not a ggml_unary_op", (int) op);
    return unary_new(ctx, __func__, a, op, true);
}

#define UNARY_PLAIN(name, op) \
    struct ggml_tensor *ggml_##name(struct ggml_context *ctx, struct ggml_tensor *a) { \
        return unary_new(ctx, __func__, a, op, false); \
    }
#define UNARY(name, op) \
    UNARY_PLAIN(name, op) \
    struct ggml_tensor *ggml_##name##_inplace(struct ggml_context *ctx, struct ggml_tensor *a) { \
        return unary_new(ctx, __func__, a, op, true); \
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

// The shapes are compared by kernels, as in ggml.
struct ggml_tensor *ggml_silu_back(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b) {
    BERTH_SOURCES(ctx, a, b);
    return BERTH_OP(berth_like(ctx, __func__, a), GGML_OP_SILU_BACK, a, b);
}

// ---- gated units ----

// Without b, each row of a is divided into two halves. swapped: the gate is the first half.
static struct ggml_tensor *glu_new(
    struct ggml_context *ctx, const char *func, struct ggml_tensor *a, struct ggml_tensor *b, enum ggml_glu_op op, bool swapped) {
    BERTH_SOURCES_AS(ctx, func, a);
    BERTH_SOURCE_OPT_AS(ctx, func, b);
    BERTH_REQUIRE_AS(ctx, func, ggml_is_contiguous_1(a),
        "a " BERTH_SHAPE " has strides " BERTH_STRIDE ": its rows must be dense and evenly spaced", BERTH_NE(a), BERTH_NB(a));
    int64_t ne0 = a->ne[0] / 2;
    if (b != NULL) {
        BERTH_REQUIRE_AS(ctx, func, ggml_is_contiguous_1(b),
            "b " BERTH_SHAPE " has strides " BERTH_STRIDE ": its rows must be dense and evenly spaced", BERTH_NE(b), BERTH_NB(b));
        BERTH_REQUIRE_AS(
            ctx, func, ggml_are_same_shape(a, b), "a is " BERTH_SHAPE ", b is " BERTH_SHAPE, BERTH_NE(a), BERTH_NE(b));
        BERTH_REQUIRE_AS(ctx, func, a->type == b->type, "a is %s, b is %s", ggml_type_name(a->type), ggml_type_name(b->type));
        ne0 = a->ne[0];
    }
    const int64_t ne[] = {ne0, a->ne[1], a->ne[2], a->ne[3]};
    const int32_t params[] = {(int32_t) op, swapped};
    return BERTH_OP_WITH(berth_tensor_new(ctx, func, a->type, GGML_MAX_DIMS, ne), GGML_OP_GLU, params, a, b);
}

struct ggml_tensor *ggml_glu(struct ggml_context *ctx, struct ggml_tensor *a, enum ggml_glu_op op, bool swapped) {
    BERTH_REQUIRE(ctx, (unsigned) op < GGML_GLU_OP_COUNT, "%d is not a ggml_glu_op", (int) op);
    return glu_new(ctx, __func__, a, NULL, op, swapped);
}

struct ggml_tensor *ggml_glu_split(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, enum ggml_glu_op op) {
    BERTH_REQUIRE(ctx, (unsigned) op < GGML_GLU_OP_COUNT, "%d is not a ggml_glu_op", (int) op);
    return glu_new(ctx, __func__, a, b, op, false);
}

#define GLU(name, op) \
    struct ggml_tensor *ggml_##name(struct ggml_context *ctx, struct ggml_tensor *a) { \
        return glu_new(ctx, __func__, a, NULL, op, false); \
    } \
    struct ggml_tensor *ggml_##name##_swapped(struct ggml_context *ctx, struct ggml_tensor *a) { \
        return glu_new(ctx, __func__, a, NULL, op, true); \
    } \
    struct ggml_tensor *ggml_##name##_split(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b) { \
        return glu_new(ctx, __func__, a, b, op, false); \
    }

GLU(reglu, GGML_GLU_OP_REGLU)
GLU(geglu, GGML_GLU_OP_GEGLU)
GLU(swiglu, GGML_GLU_OP_SWIGLU)
GLU(geglu_erf, GGML_GLU_OP_GEGLU_ERF)
GLU(geglu_quick, GGML_GLU_OP_GEGLU_QUICK)

struct ggml_tensor *ggml_swiglu_oai(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, float alpha, float limit) {
    struct ggml_tensor *result = glu_new(ctx, __func__, a, b, GGML_GLU_OP_SWIGLU_OAI, false);
    if (result != NULL && !berth_poisoned(result)) {
        memcpy(&result->op_params[2], &alpha, sizeof alpha);
        memcpy(&result->op_params[3], &limit, sizeof limit);
    }
    return result;
}

struct ggml_tensor *ggml_swiglu_clamp(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, float limit) {
    struct ggml_tensor *result = glu_new(ctx, __func__, a, b, GGML_GLU_OP_SWIGLU_CLAMP, false);
    if (result != NULL && !berth_poisoned(result)) {
        memcpy(&result->op_params[3], &limit, sizeof limit);
    }
    return result;
}

// ---- shapes ----

static bool shape_glu(const struct ggml_tensor *r) {
    const struct ggml_tensor *a = r->src[0], *b = r->src[1];
    const bool is_split = b != NULL;
    return ggml_is_contiguous_rows(a) &&
           (!is_split || (ggml_is_contiguous_rows(b) && ggml_are_same_shape(a, b) && a->type == b->type)) &&
           (is_split || a->ne[0] % 2 == 0) && berth_shape_is(r, is_split ? a->ne[0] : a->ne[0] / 2, a->ne[1], a->ne[2], a->ne[3]);
}

// ---- gradients ----
// Derivatives are built from ops that every backend has. Only the derivative of silu has its own op.

typedef struct ggml_tensor T;

// ---- derivatives: each function returns grad times the derivative at x; y is the result of the op at x ----

static T *back_abs(struct berth_grad *g, T *grad, T *x, T *y) {
    (void) y;
    return ggml_mul(g->ctx, ggml_sgn(g->ctx, x), grad);
}

static T *back_tanh(struct berth_grad *g, T *grad, T *x, T *y) {
    (void) x;
    return ggml_mul(g->ctx, grad, berth_grad_one_minus(g, ggml_sqr(g->ctx, y)));
}

// The derivative is exp(x) for x < 0, else 1.
static T *back_elu(struct berth_grad *g, T *grad, T *x, T *y) {
    (void) y;
    return ggml_mul(g->ctx, grad, ggml_exp(g->ctx, ggml_clamp(g->ctx, x, -INFINITY, 0.0f)));
}

static T *back_relu(struct berth_grad *g, T *grad, T *x, T *y) {
    (void) y;
    return ggml_mul(g->ctx, ggml_step(g->ctx, x), grad);
}

static T *back_sigmoid(struct berth_grad *g, T *grad, T *x, T *y) {
    (void) x;
    return ggml_mul(g->ctx, grad, ggml_mul(g->ctx, y, berth_grad_one_minus(g, y)));
}

// The op is x s with s = sigmoid(v) and v = 2 c (x + a x^3). Its derivative is s (1 + (1 - s) x v').
static T *back_gelu(struct berth_grad *g, T *grad, T *x, T *y) {
    (void) y;
    struct ggml_context *ctx = g->ctx;
    const float c2 = 2.0f * 0.79788456080286535588f, a = 0.044715f;
    T *xx = ggml_sqr(ctx, x);
    T *s = ggml_sigmoid(ctx, ggml_mul(ctx, ggml_scale_bias(ctx, xx, c2 * a, c2), x));
    T *xv = ggml_mul(ctx, ggml_scale_bias(ctx, xx, 3.0f * c2 * a, c2), x);
    T *d = ggml_mul(ctx, s, ggml_scale_bias(ctx, ggml_mul(ctx, berth_grad_one_minus(g, s), xv), 1.0f, 1.0f));
    return ggml_mul(ctx, grad, d);
}

// The op is silu(1.702 x) / 1.702.
static T *back_gelu_quick(struct berth_grad *g, T *grad, T *x, T *y) {
    (void) y;
    return ggml_silu_back(g->ctx, grad, ggml_scale(g->ctx, x, 1.702f));
}

// The derivative is P(x) + x p(x), with p and P the density and the distribution function of the normal distribution. There is no
// op for P, but gelu_erf(x) = x P(x). So P(z) = gelu_erf(z) / z for z = max(|x|, 0.01). For |x| < 0.01, P(|x|) is approximated by
// the tangent at 0, P(z) - p(0) (z - |x|), with an error below 1e-6. P(-|x|) = 1 - P(|x|).
static T *back_gelu_erf(struct berth_grad *g, T *grad, T *x, T *y) {
    (void) y;
    struct ggml_context *ctx = g->ctx;
    const float p0 = 0.39894228040143267794f;
    T *size = ggml_abs(ctx, x);
    T *z = ggml_clamp(ctx, size, 0.01f, INFINITY);
    T *far = ggml_div(ctx, ggml_gelu_erf(ctx, z), z);
    T *at = ggml_sub(ctx, far, ggml_scale(ctx, ggml_sub(ctx, z, size), p0));
    T *dist = ggml_scale_bias(ctx, ggml_mul(ctx, ggml_scale_bias(ctx, at, 1.0f, -0.5f), ggml_sgn(ctx, x)), 1.0f, 0.5f);
    T *dens = ggml_scale(ctx, ggml_exp(ctx, ggml_scale(ctx, ggml_sqr(ctx, x), -0.5f)), p0);
    return ggml_mul(ctx, grad, ggml_add(ctx, dist, ggml_mul(ctx, x, dens)));
}

static T *back_silu(struct berth_grad *g, T *grad, T *x, T *y) {
    (void) y;
    return ggml_silu_back(g->ctx, grad, x);
}

// Returns 1 where -3 < x < 3, else 0. hardsigmoid has the slope 1 / 6 there, and is constant elsewhere.
static T *slope_mask(struct berth_grad *g, T *x) {
    T *above = ggml_step(g->ctx, ggml_scale_bias(g->ctx, x, 1.0f, 3.0f));
    return ggml_mul(g->ctx, above, ggml_step(g->ctx, ggml_scale_bias(g->ctx, x, -1.0f, 3.0f)));
}

static T *back_hardsigmoid(struct berth_grad *g, T *grad, T *x, T *y) {
    (void) y;
    return ggml_mul(g->ctx, grad, ggml_scale(g->ctx, slope_mask(g, x), 1.0f / 6.0f));
}

static T *back_hardswish(struct berth_grad *g, T *grad, T *x, T *y) {
    (void) y;
    T *sloped = ggml_mul(g->ctx, x, ggml_scale(g->ctx, slope_mask(g, x), 1.0f / 6.0f));
    return ggml_mul(g->ctx, grad, ggml_add(g->ctx, ggml_hardsigmoid(g->ctx, x), sloped));
}

static T *back_exp(struct berth_grad *g, T *grad, T *x, T *y) {
    (void) x;
    return ggml_mul(g->ctx, y, grad);
}

static T *back_expm1(struct berth_grad *g, T *grad, T *x, T *y) {
    (void) y;
    return ggml_mul(g->ctx, grad, ggml_exp(g->ctx, x));
}

static T *back_softplus(struct berth_grad *g, T *grad, T *x, T *y) {
    (void) y;
    return ggml_mul(g->ctx, grad, ggml_sigmoid(g->ctx, x));
}

typedef T *(*derivative_t)(struct berth_grad *g, T *grad, T *x, T *y);

// clang-format off
static const derivative_t derivatives[GGML_UNARY_OP_COUNT] = {
    [GGML_UNARY_OP_ABS] = back_abs,
    [GGML_UNARY_OP_TANH] = back_tanh,
    [GGML_UNARY_OP_ELU] = back_elu,
    [GGML_UNARY_OP_RELU] = back_relu,
    [GGML_UNARY_OP_SIGMOID] = back_sigmoid,
    [GGML_UNARY_OP_GELU] = back_gelu,
    [GGML_UNARY_OP_GELU_QUICK] = back_gelu_quick,
    [GGML_UNARY_OP_GELU_ERF] = back_gelu_erf,
    [GGML_UNARY_OP_SILU] = back_silu,
    [GGML_UNARY_OP_HARDSIGMOID] = back_hardsigmoid,
    [GGML_UNARY_OP_HARDSWISH] = back_hardswish,
    [GGML_UNARY_OP_EXP] = back_exp,
    [GGML_UNARY_OP_EXPM1] = back_expm1,
    [GGML_UNARY_OP_SOFTPLUS] = back_softplus,
};
// clang-format on

// x <= 0: alpha_n (exp(min(x, eps)) - 1 - x) + beta x. x > 0: alpha_p x^2 + beta x. In models, eps <= 0.
static T *back_xielu(struct berth_grad *g, T *x) {
    const float alpha_n = param_f32(g->node, 1), alpha_p = param_f32(g->node, 2), beta = param_f32(g->node, 3);
    const float eps = param_f32(g->node, 4);
    T *sloped = ggml_step(g->ctx, ggml_scale_bias(g->ctx, x, -1.0f, min_f32(eps, 0.0f)));
    T *low = ggml_mul(g->ctx, ggml_exp(g->ctx, ggml_clamp(g->ctx, x, -INFINITY, 0.0f)), sloped);
    T *is_low = berth_grad_one_minus(g, ggml_step(g->ctx, x));
    T *left = ggml_mul(g->ctx, ggml_scale_bias(g->ctx, low, alpha_n, -alpha_n), is_low);
    T *right = ggml_scale(g->ctx, ggml_relu(g->ctx, x), 2.0f * alpha_p);
    return ggml_mul(g->ctx, g->grad, ggml_scale_bias(g->ctx, ggml_add(g->ctx, left, right), 1.0f, beta));
}

static void grad_unary(struct berth_grad *g) {
    const enum ggml_unary_op op = (enum ggml_unary_op) g->node->op_params[0];
    T *x = g->node->src[0];
    if (op == GGML_UNARY_OP_NEG) {
        berth_grad_put_sub(g, 0, g->grad);
    } else if (op == GGML_UNARY_OP_XIELU) {
        berth_grad_put_add(g, 0, back_xielu(g, berth_grad_dense(g, x)));
    } else if ((unsigned) op < GGML_UNARY_OP_COUNT && derivatives[op] != NULL) {
        berth_grad_put_add(g, 0, derivatives[op](g, g->grad, berth_grad_dense(g, x), g->node));
    } else {
        berth_grad_refuse(g, "the op has no gradient rule");
    }
}

// ---- gated units: act(x) * gate ----

static const enum ggml_unary_op activations[GGML_GLU_OP_COUNT] = {
    [GGML_GLU_OP_REGLU] = GGML_UNARY_OP_RELU,
    [GGML_GLU_OP_GEGLU] = GGML_UNARY_OP_GELU,
    [GGML_GLU_OP_SWIGLU] = GGML_UNARY_OP_SILU,
    [GGML_GLU_OP_GEGLU_ERF] = GGML_UNARY_OP_GELU_ERF,
    [GGML_GLU_OP_GEGLU_QUICK] = GGML_UNARY_OP_GELU_QUICK,
    [GGML_GLU_OP_SWIGLU_OAI] = GGML_UNARY_OP_SILU,
    [GGML_GLU_OP_SWIGLU_CLAMP] = GGML_UNARY_OP_SILU,
};

struct glu_inputs {
    T *x, *gate;
    bool need_x, need_gate;
    T *to_x, *to_gate;
};

static void plain_glu_backward(struct berth_grad *g, struct glu_inputs *s, enum ggml_unary_op op) {
    if (s->need_x) {
        s->to_x = derivatives[op](g, ggml_mul(g->ctx, g->grad, s->gate), s->x, NULL);
    }
    if (s->need_gate) {
        s->to_gate = ggml_mul(g->ctx, ggml_unary(g->ctx, s->x, op), g->grad);
    }
}

// The op is v sigmoid(alpha v) (u + shift) with v = min(x, limit) and u = clamp(gate, -limit, limit).
// Outside the limits the gradient is 0.
static void limited_glu_backward(struct berth_grad *g, struct glu_inputs *s, float alpha, float limit, float shift) {
    struct ggml_context *ctx = g->ctx;
    T *v = ggml_clamp(ctx, s->x, -INFINITY, limit);
    T *av = ggml_scale(ctx, v, alpha);
    if (s->need_x) {
        T *u = ggml_scale_bias(ctx, ggml_clamp(ctx, s->gate, -limit, limit), 1.0f, shift);
        T *inside = ggml_step(ctx, ggml_scale_bias(ctx, s->x, -1.0f, limit));
        // d(v s(a v)) = s (1 + a v (1 - s)) is the derivative of silu at a v.
        s->to_x = ggml_mul(ctx, ggml_silu_back(ctx, ggml_mul(ctx, g->grad, u), av), inside);
    }
    if (s->need_gate) {
        T *inside = ggml_step(ctx, ggml_scale_bias(ctx, ggml_abs(ctx, s->gate), -1.0f, limit));
        s->to_gate = ggml_mul(ctx, ggml_mul(ctx, ggml_scale(ctx, ggml_silu(ctx, av), 1.0f / alpha), inside), g->grad);
    }
}

static void glu_backward(struct berth_grad *g, struct glu_inputs *s) {
    const enum ggml_glu_op op = (enum ggml_glu_op) g->node->op_params[0];
    if (op == GGML_GLU_OP_SWIGLU_OAI) {
        limited_glu_backward(g, s, param_f32(g->node, 2), param_f32(g->node, 3), 1.0f);
    } else if (op == GGML_GLU_OP_SWIGLU_CLAMP) {
        limited_glu_backward(g, s, 1.0f, param_f32(g->node, 3), 0.0f);
    } else {
        plain_glu_backward(g, s, activations[op]);
    }
}

static void grad_glu(struct berth_grad *g) {
    T *a = g->node->src[0], *b = g->node->src[1];
    if ((unsigned) g->node->op_params[0] >= GGML_GLU_OP_COUNT) {
        berth_grad_refuse(g, "the formula is not a ggml_glu_op");
        return;
    }
    if (b != NULL) {
        struct glu_inputs s = {.x = a, .gate = b, .need_x = berth_grad_needed(g, 0), .need_gate = berth_grad_needed(g, 1)};
        glu_backward(g, &s);
        berth_grad_put_add(g, 0, s.to_x);
        berth_grad_put_add(g, 1, s.to_gate);
        return;
    }
    const int64_t n = g->node->ne[0];
    const bool swap = g->node->op_params[1] != 0;
    T *half[2];
    for (int i = 0; i < 2; i++) {
        half[i] = ggml_cont(g->ctx,
            ggml_view_4d(g->ctx, a, n, a->ne[1], a->ne[2], a->ne[3], a->nb[1], a->nb[2], a->nb[3], (size_t) (i * n) * a->nb[0]));
    }
    struct glu_inputs s = {.x = half[swap], .gate = half[!swap], .need_x = true, .need_gate = true};
    glu_backward(g, &s);
    berth_grad_put_add(g, 0, ggml_concat(g->ctx, swap ? s.to_gate : s.to_x, swap ? s.to_x : s.to_gate, 0));
}

// ---- rows of the op table, and the samples that they name ----

TWICE(silu_back)
static struct ggml_tensor *sample_unary(BERTH_SAMPLE_ARGS) {
    BERTH_SAMPLE_UNUSED;
    return sub == GGML_UNARY_OP_XIELU ? ggml_xielu(c, sample_rows(c, a), 0.8f, 0.8f, 0.5f, -1e-6f)
                                      : ggml_unary(c, sample_rows(c, a), (enum ggml_unary_op) sub);
}
static struct ggml_tensor *sample_glu(BERTH_SAMPLE_ARGS) {
    BERTH_SAMPLE_UNUSED;
    struct ggml_tensor *x = sample_rows(c, a), *gate = sample_rows(c, a);
    if (sub == GGML_GLU_OP_SWIGLU_OAI) {
        return ggml_swiglu_oai(c, x, gate, 1.7f, 7.0f);
    }
    return sub == GGML_GLU_OP_SWIGLU_CLAMP ? ggml_swiglu_clamp(c, x, gate, 7.0f)
                                           : ggml_glu_split(c, x, gate, (enum ggml_glu_op) sub);
}

// clang-format off
const struct berth_op_entry berth_ops_unary[] = {
    {GGML_OP_SILU_BACK, {"SILU_BACK", "silu_back(x)", .n_src = 2, .in_place = true, .family = BERTH_OP_TRAIN, .split = BERTH_SPLIT_EACH, .sample = sample_silu_back}},
    {GGML_OP_UNARY, {"UNARY", "unary(x)", .n_src = 1, .in_place = true, .family = BERTH_OP_ACTIVATION, .split = BERTH_SPLIT_EACH, .shape = berth_shape_as_source, .sample = sample_unary, .grad = grad_unary, .grad_src_mask = 1}},
    {GGML_OP_GLU, {"GLU", "glu(x)", .n_src = 2, .family = BERTH_OP_ACTIVATION, .split = BERTH_SPLIT_GLU, .n_needed = 1, .shape = shape_glu, .sample = sample_glu, .grad = grad_glu, .grad_src_mask = 3}},
    BERTH_OPS_END,
};
// clang-format on
