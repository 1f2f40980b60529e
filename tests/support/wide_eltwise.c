// SPDX-License-Identifier: MIT
// wide_eltwise.c: elementwise ops, in double precision.

#include "support/wide.h"

typedef struct ggml_tensor T;

// Ops that keep the order of elements: DUP, CPY, CONT, RESHAPE.
void wide_copy(const T *t, double *y, const double *const *x) {
    memcpy(y, x[0], (size_t) ggml_nelements(t) * sizeof *y);
}

// ---- two sources, the second one repeated ----

#define BINARY(name, op) \
    void wide_##name(const T *t, double *y, const double *const *x) { \
        WIDE_EACH(t, p) { \
            y[p.n] = x[0][p.n] op x[1][wide_round(t->src[1], p.i0, p.i1, p.i2, p.i3)]; \
        } \
    }
BINARY(add, +)
BINARY(sub, -)
BINARY(mul, *)
BINARY(div, /)
#undef BINARY

void wide_add1(const T *t, double *y, const double *const *x) {
    WIDE_EACH(t, p) {
        y[p.n] = x[0][p.n] + x[1][0];
    }
}

void wide_add_id(const T *t, double *y, const double *const *x) {
    WIDE_EACH(t, p) {
        const int64_t id = (int64_t) x[2][wide_index(t->src[2], p.i1, p.i2, 0, 0)];
        y[p.n] = x[0][p.n] + x[1][wide_index(t->src[1], p.i0, id, 0, 0)];
    }
}

// Returns the index to which ACC and SET write an element of their second source.
static int64_t part_index(const T *t, struct wide_at p) {
    const int32_t *nb = t->op_params;
    return (p.i1 * nb[0] + p.i2 * nb[1] + p.i3 * nb[2] + nb[3]) / (int64_t) sizeof(float) + p.i0;
}

void wide_acc(const T *t, double *y, const double *const *x) {
    wide_copy(t, y, x);
    WIDE_EACH(t->src[1], p) {
        y[part_index(t, p)] += x[1][p.n];
    }
}

void wide_set(const T *t, double *y, const double *const *x) {
    wide_copy(t, y, x);
    WIDE_EACH(t->src[1], p) {
        y[part_index(t, p)] = x[1][p.n];
    }
}

// ---- one source ----

#define EACH(name, f) \
    void wide_##name(const T *t, double *y, const double *const *x) { \
        WIDE_EACH(t, p) { \
            const double v = x[0][p.n]; \
            y[p.n] = f; \
        } \
    }
EACH(sqr, v *v)
EACH(sqrt, sqrt(v))
EACH(log, log(v))
EACH(sin, sin(v))
EACH(cos, cos(v))
EACH(scale, v *(double) param_f32(t, 0) + (double) param_f32(t, 1))
EACH(clamp, fmin((double) param_f32(t, 1), fmax((double) param_f32(t, 0), v)))
EACH(leaky_relu, v > 0 ? v : v * (double) param_f32(t, 0))
#undef EACH

void wide_tri(const T *t, double *y, const double *const *x) {
    WIDE_EACH(t, p) {
        const enum ggml_tri_type type = (enum ggml_tri_type) t->op_params[0];
        const bool keep = type == GGML_TRI_TYPE_UPPER_DIAG   ? p.i0 >= p.i1
                          : type == GGML_TRI_TYPE_UPPER      ? p.i0 > p.i1
                          : type == GGML_TRI_TYPE_LOWER_DIAG ? p.i0 <= p.i1
                                                             : p.i0 < p.i1;
        y[p.n] = keep ? x[0][p.n] : 0;
    }
}

// ---- functions of one number ----

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

static double hardsigmoid(double x) {
    return fmin(1, fmax(0, (x + 3) / 6));
}

double wide_unary(enum ggml_unary_op op, double x) {
    switch (op) {
        case GGML_UNARY_OP_ABS: return fabs(x);
        case GGML_UNARY_OP_SGN: return (x > 0) - (x < 0);
        case GGML_UNARY_OP_NEG: return -x;
        case GGML_UNARY_OP_STEP: return x > 0;
        case GGML_UNARY_OP_TANH: return tanh(x);
        case GGML_UNARY_OP_ELU: return x > 0 ? x : expm1(x);
        case GGML_UNARY_OP_RELU: return fmax(0, x);
        case GGML_UNARY_OP_SIGMOID: return sigmoid(x);
        case GGML_UNARY_OP_GELU: return 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
        case GGML_UNARY_OP_GELU_QUICK: return x * sigmoid(1.702 * x);
        case GGML_UNARY_OP_GELU_ERF: return 0.5 * x * (1 + erf(x * 0.70710678118654752440));
        case GGML_UNARY_OP_SILU: return x * sigmoid(x);
        case GGML_UNARY_OP_HARDSWISH: return x * hardsigmoid(x);
        case GGML_UNARY_OP_HARDSIGMOID: return hardsigmoid(x);
        case GGML_UNARY_OP_EXP: return exp(x);
        case GGML_UNARY_OP_EXPM1: return expm1(x);
        case GGML_UNARY_OP_SOFTPLUS: return log1p(exp(x));
        case GGML_UNARY_OP_FLOOR: return floor(x);
        case GGML_UNARY_OP_CEIL: return ceil(x);
        case GGML_UNARY_OP_ROUND: return round(x);
        case GGML_UNARY_OP_TRUNC: return trunc(x);
        default: return NAN;
    }
}

static double xielu(const T *t, double x) {
    const double alpha_n = (double) param_f32(t, 1), alpha_p = (double) param_f32(t, 2), beta = (double) param_f32(t, 3),
                 eps = (double) param_f32(t, 4);
    return x > 0 ? alpha_p * x * x + beta * x : alpha_n * (expm1(fmin(x, eps)) - x) + beta * x;
}

void wide_unary_op(const T *t, double *y, const double *const *x) {
    const enum ggml_unary_op op = (enum ggml_unary_op) t->op_params[0];
    WIDE_EACH(t, p) {
        y[p.n] = op == GGML_UNARY_OP_XIELU ? xielu(t, x[0][p.n]) : wide_unary(op, x[0][p.n]);
    }
}

// ---- gated units ----

static double gated(const T *t, double v, double gate) {
    const double limit = (double) param_f32(t, 3);
    switch ((enum ggml_glu_op) t->op_params[0]) {
        case GGML_GLU_OP_REGLU: return gate * wide_unary(GGML_UNARY_OP_RELU, v);
        case GGML_GLU_OP_GEGLU: return gate * wide_unary(GGML_UNARY_OP_GELU, v);
        case GGML_GLU_OP_SWIGLU: return gate * wide_unary(GGML_UNARY_OP_SILU, v);
        case GGML_GLU_OP_GEGLU_ERF: return gate * wide_unary(GGML_UNARY_OP_GELU_ERF, v);
        case GGML_GLU_OP_GEGLU_QUICK: return gate * wide_unary(GGML_UNARY_OP_GELU_QUICK, v);
        case GGML_GLU_OP_SWIGLU_OAI:
            v = fmin(v, limit);
            return v * sigmoid((double) param_f32(t, 2) * v) * (fmin(limit, fmax(-limit, gate)) + 1);
        case GGML_GLU_OP_SWIGLU_CLAMP: v = fmin(v, limit); return v * sigmoid(v) * fmin(limit, fmax(-limit, gate));
        default: return NAN;
    }
}

void wide_glu(const T *t, double *y, const double *const *x) {
    const bool swapped = t->op_params[1] != 0;
    WIDE_EACH(t, p) {
        const double *row = x[0] + p.n / t->ne[0] * 2 * t->ne[0];
        const double first = x[1] != NULL ? x[0][p.n] : row[p.i0], second = x[1] != NULL ? x[1][p.n] : row[p.i0 + t->ne[0]];
        y[p.n] = swapped ? gated(t, second, first) : gated(t, first, second);
    }
}
