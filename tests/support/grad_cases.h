// SPDX-License-Identifier: MIT
// grad_cases.h: a random graph for each gradient rule: parameters with data, and a result.
//
// Values stay away from points where a function is not differentiable: |x| is 0.2 to 0.6 or 0.9 to 1.4. Shapes are random.
#pragma once

#include "support/check.h"
#include "support/grad_api.h"

#include <math.h>
#include <string.h>

#define GRAD_N_PARAMS 6

struct grad_case {
    const struct grad_api *a;
    struct ggml_context *ctx;
    struct check_rng *rng;
    struct ggml_tensor *params[GRAD_N_PARAMS];
    int n_params;
    double scale; // factor of all values; 1 by default
};

typedef struct ggml_tensor *(*grad_build_t)(struct grad_case *c, int kind);

typedef struct ggml_tensor T;

static inline int64_t grad_pick(struct grad_case *c, int64_t low, int64_t high) {
    return low + (int64_t) check_rng_below(c->rng, (uint64_t) (high - low + 1));
}

static inline float grad_number(struct grad_case *c) {
    const double u = (double) check_rng_below(c->rng, 1u << 20) / (1u << 20);
    const double x = u < 0.5 ? 0.2 + 0.8 * u : 0.9 + (u - 0.5);
    return (float) (c->scale * (check_rng_below(c->rng, 2) != 0 ? x : -x));
}

static inline T *grad_leaf(struct grad_case *c, enum ggml_type type, int64_t n0, int64_t n1, int64_t n2, int64_t n3) {
    T *t = c->a->ggml_new_tensor(c->ctx, type, 4, (int64_t[]){n0, n1, n2, n3});
    for (int64_t i = 0; i < n0 * n1 * n2 * n3; i++) {
        const float x = grad_number(c);
        if (type == GGML_TYPE_F32) {
            ((float *) t->data)[i] = x;
        } else if (type == GGML_TYPE_F16) {
            ((ggml_fp16_t *) t->data)[i] = ggml_fp32_to_fp16(x);
        }
    }
    return t;
}

static inline T *grad_param(struct grad_case *c, int64_t n0, int64_t n1, int64_t n2, int64_t n3) {
    T *t = grad_leaf(c, GGML_TYPE_F32, n0, n1, n2, n3);
    c->a->ggml_set_param(t);
    c->params[c->n_params++] = t;
    return t;
}

static inline T *grad_param_any(struct grad_case *c) {
    return grad_param(c, grad_pick(c, 1, 7), grad_pick(c, 1, 4), grad_pick(c, 1, 3), grad_pick(c, 1, 2));
}

static inline T *grad_ids(struct grad_case *c, enum ggml_type type, int64_t n, int64_t n1, int64_t below) {
    T *t = c->a->ggml_new_tensor(c->ctx, type, 2, (int64_t[]){n, n1});
    for (int64_t i = 0; i < n * n1; i++) {
        ((int32_t *) t->data)[i] = (int32_t) grad_pick(c, 0, below - 1);
    }
    return t;
}

// Returns n different indices below `below`, which is odd.
static inline T *grad_places(struct grad_case *c, enum ggml_type type, int64_t n, int64_t below) {
    T *t = c->a->ggml_new_tensor(c->ctx, type, 1, &n);
    for (int64_t i = 0, first = grad_pick(c, 0, below - 1); i < n; i++) {
        const int64_t id = (first + 2 * i) % below;
        if (type == GGML_TYPE_I32) {
            ((int32_t *) t->data)[i] = (int32_t) id;
        } else {
            ((int64_t *) t->data)[i] = id;
        }
    }
    return t;
}

static inline void grad_make_positive(T *t) {
    for (int64_t i = 0; i < ggml_nelements(t); i++) {
        ((float *) t->data)[i] = fabsf(((float *) t->data)[i]);
    }
}

// Elements differ by at least 0.1, so that a small change does not change the maximum of a pool.
static inline void grad_make_distinct(struct grad_case *c, T *t) {
    const int64_t n = ggml_nelements(t);
    float *x = t->data;
    for (int64_t i = 0; i < n; i++) {
        x[i] = 0.13f * (float) (i - n / 2);
    }
    for (int64_t i = n - 1; i > 0; i--) {
        const int64_t j = grad_pick(c, 0, i);
        const float tmp = x[i];
        x[i] = x[j];
        x[j] = tmp;
    }
}

// Some extents are reduced to 1.
static inline T *grad_param_bcast(struct grad_case *c, const T *x) {
    int64_t ne[4];
    for (int i = 0; i < 4; i++) {
        ne[i] = grad_pick(c, 0, 2) == 0 ? 1 : x->ne[i];
    }
    return grad_param(c, ne[0], ne[1], ne[2], ne[3]);
}

// ---- builders ----

enum { BCAST = 1, TWICE = 2, POSITIVE = 4 };

typedef T *(*grad_binary_t)(struct ggml_context *, T *, T *);

static inline T *grad_two(struct grad_case *c, grad_binary_t op, int kind) {
    T *x = grad_param_any(c);
    T *y = (kind & TWICE) != 0   ? x
           : (kind & BCAST) != 0 ? grad_param_bcast(c, x)
                                 : grad_param(c, x->ne[0], x->ne[1], x->ne[2], x->ne[3]);
    return op(c->ctx, x, y);
}

static inline T *build_add(struct grad_case *c, int kind) {
    return grad_two(c, c->a->ggml_add, kind);
}
static inline T *build_sub(struct grad_case *c, int kind) {
    return grad_two(c, c->a->ggml_sub, kind);
}
static inline T *build_mul(struct grad_case *c, int kind) {
    return grad_two(c, c->a->ggml_mul, kind);
}
static inline T *build_div(struct grad_case *c, int kind) {
    return grad_two(c, c->a->ggml_div, kind);
}

typedef T *(*grad_unary_t)(struct ggml_context *, T *);

static inline T *grad_one(struct grad_case *c, grad_unary_t op, int kind) {
    T *x = grad_param_any(c);
    if ((kind & POSITIVE) != 0) {
        grad_make_positive(x);
    }
    return op(c->ctx, x);
}

#define GRAD_ONE(name) \
    static inline T *build_##name(struct grad_case *c, int kind) { \
        return grad_one(c, c->a->ggml_##name, kind); \
    }
GRAD_ONE(dup)
GRAD_ONE(sqr)
GRAD_ONE(sqrt)
GRAD_ONE(log)
GRAD_ONE(sin)
GRAD_ONE(cos)
GRAD_ONE(sum)
GRAD_ONE(sum_rows)
GRAD_ONE(mean)
GRAD_ONE(cumsum)
GRAD_ONE(cont)
GRAD_ONE(transpose)
#undef GRAD_ONE

static inline T *build_unary(struct grad_case *c, int kind) {
    T *x = grad_param_any(c);
    // These functions are not differentiable at -3 and 3. After the scaling, |x| is at most 2.4 or at least 3.6.
    if (kind == GGML_UNARY_OP_HARDSWISH || kind == GGML_UNARY_OP_HARDSIGMOID) {
        for (int64_t i = 0; i < ggml_nelements(x); i++) {
            ((float *) x->data)[i] *= 4.0f;
        }
    }
    return kind == GGML_UNARY_OP_XIELU ? c->a->ggml_xielu(c->ctx, x, 0.3f, 0.7f, 0.5f, -1e-6f)
                                       : c->a->ggml_unary(c->ctx, x, (enum ggml_unary_op) kind);
}

// Step functions pass no gradient: the derivative of x * step(x) is step(x). Values stay 0.1 away from multiples of 0.5.
static inline T *build_flat(struct grad_case *c, int kind) {
    T *x = grad_param_any(c);
    for (int64_t i = 0; i < ggml_nelements(x); i++) {
        ((float *) x->data)[i] = (float) grad_pick(c, -4, 3) * 0.5f + 0.1f + (float) grad_pick(c, 0, 300) * 1e-3f;
    }
    return c->a->ggml_mul(c->ctx, x, c->a->ggml_unary(c->ctx, x, (enum ggml_unary_op) kind));
}

static inline T *build_glu(struct grad_case *c, int kind) {
    const int form = (int) grad_pick(c, 0, 2);
    const int64_t n = grad_pick(c, 1, 5), n1 = grad_pick(c, 1, 3), n2 = grad_pick(c, 1, 2);
    const bool split = form == 0 || kind == GGML_GLU_OP_SWIGLU_OAI || kind == GGML_GLU_OP_SWIGLU_CLAMP;
    if (!split) {
        return c->a->ggml_glu(c->ctx, grad_param(c, 2 * n, n1, n2, 1), (enum ggml_glu_op) kind, form == 1);
    }
    T *x = grad_param(c, n, n1, n2, 1), *g = grad_param(c, n, n1, n2, 1);
    if (kind == GGML_GLU_OP_SWIGLU_OAI) {
        return c->a->ggml_swiglu_oai(c->ctx, x, g, 1.7f, 0.75f);
    }
    return kind == GGML_GLU_OP_SWIGLU_CLAMP ? c->a->ggml_swiglu_clamp(c->ctx, x, g, 0.75f)
                                            : c->a->ggml_glu_split(c->ctx, x, g, (enum ggml_glu_op) kind);
}

// SWIGLU with two sources is the only gated unit for which the reference has a gradient.
static inline T *build_swiglu_split(struct grad_case *c, int kind) {
    (void) kind;
    T *x = grad_param_any(c), *g = grad_param(c, x->ne[0], x->ne[1], x->ne[2], x->ne[3]);
    return c->a->ggml_glu_split(c->ctx, x, g, GGML_GLU_OP_SWIGLU);
}

static inline T *build_scale(struct grad_case *c, int kind) {
    (void) kind;
    return c->a->ggml_scale_bias(c->ctx, grad_param_any(c), -1.7f, 0.3f);
}
static inline T *build_clamp(struct grad_case *c, int kind) {
    return c->a->ggml_clamp(c->ctx, grad_param_any(c), kind == 0 ? -0.75f : -INFINITY, 0.75f);
}
static inline T *build_leaky_relu(struct grad_case *c, int kind) {
    (void) kind;
    return c->a->ggml_leaky_relu(c->ctx, grad_param_any(c), 0.1f, false);
}
static inline T *build_tri(struct grad_case *c, int kind) {
    const int64_t n = grad_pick(c, 1, 5);
    return c->a->ggml_tri(c->ctx, grad_param(c, n, n, 2, 1), (enum ggml_tri_type) kind);
}
static inline T *build_add1(struct grad_case *c, int kind) {
    (void) kind;
    return c->a->ggml_add1(c->ctx, grad_param_any(c), grad_param(c, 1, 1, 1, 1));
}
static inline T *build_add_id(struct grad_case *c, int kind) {
    (void) kind;
    const int64_t n = grad_pick(c, 1, 6), n_used = grad_pick(c, 1, 3), n_tokens = grad_pick(c, 1, 4);
    T *x = grad_param(c, n, n_used, n_tokens, 1), *b = grad_param(c, n, 4, 1, 1);
    return c->a->ggml_add_id(c->ctx, x, b, grad_ids(c, GGML_TYPE_I32, n_used, n_tokens, 4));
}
static inline T *build_part(struct grad_case *c, int kind) {
    const int64_t n0 = grad_pick(c, 2, 6), n1 = grad_pick(c, 2, 5), n2 = grad_pick(c, 1, 3);
    T *x = grad_param(c, n0, n1, n2, 1), *b = grad_param(c, grad_pick(c, 1, n0 - 1), grad_pick(c, 1, n1 - 1), n2, 1);
    const size_t offset = x->nb[1] + x->nb[0]; // row 1, column 1
    return (kind == 0 ? c->a->ggml_acc : c->a->ggml_set)(c->ctx, x, b, x->nb[1], x->nb[2], x->nb[3], offset);
}
static inline T *build_cpy(struct grad_case *c, int kind) {
    const int64_t n = grad_pick(c, 1, 5), m = grad_pick(c, 1, 4);
    T *x = c->a->ggml_sqr(c->ctx, grad_param(c, 2 * n, m, 1, 1));
    T *t = kind == 0 ? grad_leaf(c, GGML_TYPE_F32, n, 2 * m, 1, 1) : NULL;
    return kind == 0 ? c->a->ggml_cpy(c->ctx, x, t) : c->a->ggml_cont_2d(c->ctx, x, m, 2 * n);
}
static inline T *build_reshape(struct grad_case *c, int kind) {
    const int64_t n = grad_pick(c, 1, 3), m = grad_pick(c, 1, 4);
    T *x = c->a->ggml_reshape_3d(c->ctx, grad_param(c, 2 * n, 3 * m, 1, 1), m, 3, 2 * n);
    return kind == 0 ? x : c->a->ggml_cont(c->ctx, c->a->ggml_permute(c->ctx, x, 2, 0, 1, 3));
}
static inline T *build_view(struct grad_case *c, int kind) {
    const int64_t n0 = grad_pick(c, 3, 7), n1 = grad_pick(c, 4, 6);
    T *s = c->a->ggml_sqr(c->ctx, grad_param(c, n0 + 1, n1 + 1, 1, 1));
    T *v = c->a->ggml_view_2d(c->ctx, s, n0 - 1, n1 - 1, s->nb[1], s->nb[1] + s->nb[0]);
    if (kind == 1) { // two overlapping views
        v = c->a->ggml_mul(c->ctx, v, c->a->ggml_view_2d(c->ctx, s, n0 - 1, n1 - 1, s->nb[1], s->nb[0]));
    } else if (kind == 2) { // a view of a view: every other row
        v = c->a->ggml_view_2d(c->ctx, v, n0 - 2, 2, 2 * s->nb[1], s->nb[0]);
    }
    return c->a->ggml_cont(c->ctx, v);
}
static inline T *build_permute(struct grad_case *c, int kind) {
    static const int axes[][4] = {{0, 2, 1, 3}, {1, 2, 3, 0}, {3, 0, 2, 1}, {2, 0, 1, 3}};
    const int *x = axes[kind];
    return c->a->ggml_cont(c->ctx, c->a->ggml_permute(c->ctx, c->a->ggml_sqr(c->ctx, grad_param_any(c)), x[0], x[1], x[2], x[3]));
}
static inline T *build_repeat(struct grad_case *c, int kind) {
    const int64_t n0 = grad_pick(c, 1, 3), n1 = grad_pick(c, 1, 3);
    T *x = kind == 0 ? grad_param(c, n0, n1, 1, 1) : grad_leaf(c, GGML_TYPE_F32, n0, n1, 1, 1);
    T *y = grad_param(c, n0 * grad_pick(c, 1, 3), n1 * grad_pick(c, 1, 2), grad_pick(c, 1, 2), grad_pick(c, 1, 2));
    return kind == 0 ? c->a->ggml_mul(c->ctx, c->a->ggml_repeat(c->ctx, x, y), y) : c->a->ggml_repeat_back(c->ctx, y, x);
}
static inline T *build_concat(struct grad_case *c, int kind) {
    int64_t ne[] = {grad_pick(c, 1, 4), grad_pick(c, 1, 3), grad_pick(c, 1, 3), grad_pick(c, 1, 2)};
    T *x = grad_param(c, ne[0], ne[1], ne[2], ne[3]);
    ne[kind] = grad_pick(c, 1, 4);
    return c->a->ggml_concat(c->ctx, x, grad_param(c, ne[0], ne[1], ne[2], ne[3]), kind);
}

// kind: 0 no batches, 1 equal batches, 2 b has more batches than a along axis 2, 3 along axes 2 and 3, 4 b is transposed
static inline T *build_mul_mat(struct grad_case *c, int kind) {
    const int64_t k = grad_pick(c, 1, 9), m = grad_pick(c, 1, 9), n = grad_pick(c, 1, 9);
    const int64_t b2 = kind == 0 || kind == 4 ? 1 : 4, b3 = kind == 1 || kind == 3 ? 2 : 1;
    T *a = grad_param(c, k, m, kind == 2 || kind == 3 ? 2 : b2, kind == 3 ? 1 : b3);
    if (kind == 4) {
        return c->a->ggml_mul_mat(c->ctx, a, c->a->ggml_transpose(c->ctx, grad_param(c, n, k, 1, 1)));
    }
    return c->a->ggml_mul_mat(c->ctx, a, grad_param(c, k, n, b2, b3));
}
static inline T *build_out_prod(struct grad_case *c, int kind) {
    (void) kind;
    const int64_t k = grad_pick(c, 1, 5), n2 = grad_pick(c, 1, 3), n3 = grad_pick(c, 1, 2);
    return c->a->ggml_out_prod(
        c->ctx, grad_param(c, grad_pick(c, 1, 5), k, n2, n3), grad_param(c, grad_pick(c, 1, 5), k, n2, n3));
}
// A product with a quantised matrix: the matrix gets no gradient, the other source gets one.
static inline T *build_mul_mat_quant(struct grad_case *c, int kind) {
    const int64_t k = 32 * grad_pick(c, 1, 3), m = grad_pick(c, 1, 5);
    T *w = c->a->ggml_new_tensor(c->ctx, (enum ggml_type) kind, 2, (int64_t[]){k, m}),
      *x = grad_leaf(c, GGML_TYPE_F32, k, m, 1, 1);
    ggml_quantize_chunk((enum ggml_type) kind, x->data, w->data, 0, m, k, NULL);
    return c->a->ggml_mul_mat(c->ctx, w, grad_param(c, k, grad_pick(c, 1, 5), 1, 1));
}
// Each selected expert has a column of its own; all share one column; the experts are not parameters.
enum { COLUMN_PER_EXPERT, SHARED_COLUMN, FIXED_EXPERTS };
static inline T *build_mul_mat_id(struct grad_case *c, int kind) {
    const int64_t k = grad_pick(c, 1, 7), m = grad_pick(c, 1, 6), n_expert = grad_pick(c, 2, 5);
    const int64_t n_used = grad_pick(c, 1, 2), n_token = grad_pick(c, 1, 5);
    T *as = kind == FIXED_EXPERTS ? grad_leaf(c, GGML_TYPE_F32, k, m, n_expert, 1) : grad_param(c, k, m, n_expert, 1);
    T *b = grad_param(c, k, kind == SHARED_COLUMN ? 1 : n_used, n_token, 1);
    return c->a->ggml_mul_mat_id(c->ctx, as, b, grad_ids(c, GGML_TYPE_I32, n_used, n_token, n_expert));
}

static inline T *build_get_rows(struct grad_case *c, int kind) {
    (void) kind;
    T *ids = grad_ids(c, GGML_TYPE_I32, grad_pick(c, 1, 8), 1, 4); // some rows occur several times, some never
    T *x = grad_param(c, grad_pick(c, 1, 6), 4, 1, 1);
    return c->a->ggml_get_rows(c->ctx, x, ids);
}
static inline T *build_get_rows_back(struct grad_case *c, int kind) {
    (void) kind;
    const int64_t n = grad_pick(c, 1, 6), n_rows = grad_pick(c, 1, 8);
    T *shape = grad_leaf(c, GGML_TYPE_F32, n, 4, 1, 1);
    return c->a->ggml_get_rows_back(c->ctx, grad_param(c, n, n_rows, 1, 1), grad_ids(c, GGML_TYPE_I32, n_rows, 1, 4), shape);
}
static inline T *build_set_rows(struct grad_case *c, int kind) {
    const int64_t n = grad_pick(c, 1, 6), n_rows = grad_pick(c, 1, 4), n_places = 2 * grad_pick(c, 2, 4) + 1;
    T *into = c->a->ggml_sqr(c->ctx, grad_param(c, n, n_places, 1, 1)); // a copy, so that the parameter is not overwritten
    return c->a->ggml_set_rows(c->ctx, into, grad_param(c, n, n_rows, 1, 1),
        grad_places(c, kind == 0 ? GGML_TYPE_I64 : GGML_TYPE_I32, n_rows, n_places));
}
static inline T *build_diag(struct grad_case *c, int kind) {
    (void) kind;
    return c->a->ggml_diag(c->ctx, grad_param(c, grad_pick(c, 1, 5), 1, grad_pick(c, 1, 3), grad_pick(c, 1, 2)));
}
static inline T *build_diag_mask(struct grad_case *c, int kind) {
    T *x = grad_param(c, grad_pick(c, 2, 6), grad_pick(c, 1, 5), grad_pick(c, 1, 2), 1);
    const int n_past = (int) grad_pick(c, 0, 2);
    return kind == 0 ? c->a->ggml_diag_mask_zero(c->ctx, x, n_past)
                     : c->a->ggml_soft_max_ext(c->ctx, c->a->ggml_diag_mask_inf(c->ctx, x, n_past), NULL, 1.0f, 0.0f);
}

enum { MASK = 1, MASK_F16 = 2, ALIBI = 4, SINKS = 8, MASK_PARAM = 16, CAP = 32, GROUPED = 64 };

static inline T *build_soft_max(struct grad_case *c, int kind) {
    const int64_t n = grad_pick(c, 2, 7), n_rows = grad_pick(c, 1, 4), n_head = grad_pick(c, 1, 6), n_seq = grad_pick(c, 1, 2);
    T *x = grad_param(c, n, n_rows, n_head, n_seq);
    T *mask = (kind & MASK_PARAM) != 0 ? grad_param(c, n, n_rows, 1, 1)
              : (kind & MASK) != 0     ? grad_leaf(c, (kind & MASK_F16) != 0 ? GGML_TYPE_F16 : GGML_TYPE_F32, n, n_rows, 1, n_seq)
                                       : NULL;
    T *y = c->a->ggml_soft_max_ext(c->ctx, x, mask, 0.7f, (kind & ALIBI) != 0 ? 8.0f : 0.0f);
    if ((kind & SINKS) != 0) {
        c->a->ggml_soft_max_add_sinks(y, grad_param(c, n_head, 1, 1, 1));
    }
    return y;
}

static inline T *build_roll(struct grad_case *c, int kind) {
    (void) kind;
    T *x = grad_param_any(c);
    int by[4];
    for (int i = 0; i < 4; i++) {
        by[i] = (int) grad_pick(c, -x->ne[i] + 1, x->ne[i] - 1);
    }
    return c->a->ggml_roll(c->ctx, x, by[0], by[1], by[2], by[3]);
}
static inline T *build_pad(struct grad_case *c, int kind) {
    (void) kind;
    T *x = grad_param_any(c);
    int by[8];
    for (int i = 0; i < 8; i++) {
        by[i] = (int) grad_pick(c, 0, 2);
    }
    return c->a->ggml_pad_ext(c->ctx, x, by[0], by[1], by[2], by[3], by[4], by[5], by[6], by[7]);
}
static inline T *build_upscale(struct grad_case *c, int kind) {
    (void) kind;
    return c->a->ggml_upscale(c->ctx, grad_param_any(c), (int) grad_pick(c, 2, 4), GGML_SCALE_MODE_NEAREST);
}

enum { NORM, RMS_NORM, GROUP_NORM, L2_NORM, L2_NORM_SHORT };

static inline T *build_norm(struct grad_case *c, int kind) {
    const int64_t n_groups = grad_pick(c, 1, 3), n0 = grad_pick(c, 2, 9), n1 = grad_pick(c, 1, 3), n2 = grad_pick(c, 1, 2);
    T *x = grad_param(c, n0, n1, kind == GROUP_NORM ? n2 * n_groups : n2, grad_pick(c, 1, 2));
    switch (kind) {
        case NORM: return c->a->ggml_norm(c->ctx, x, 0.05f);
        case RMS_NORM: return c->a->ggml_rms_norm(c->ctx, x, 0.05f);
        case GROUP_NORM: return c->a->ggml_group_norm(c->ctx, x, (int) n_groups, 0.05f);
        default: return c->a->ggml_l2_norm(c->ctx, x, kind == L2_NORM ? 1e-3f : 50.0f);
    }
}

enum { ROPE_NORMAL, ROPE_NEOX, ROPE_FACTORS, ROPE_OFFSET, ROPE_MULTI, ROPE_INTERLEAVED, ROPE_YARN, ROPE_BACKWARD };

static inline T *build_rope(struct grad_case *c, int kind) {
    const bool multi = kind == ROPE_MULTI || kind == ROPE_INTERLEAVED;
    const int64_t n_token = grad_pick(c, 1, 4);
    T *x = grad_param(c, 12 + (multi ? 0 : 2 * grad_pick(c, 0, 3)), grad_pick(c, 1, 3), n_token, grad_pick(c, 1, 2));
    T *pos = grad_ids(c, GGML_TYPE_I32, multi ? 4 * n_token : n_token, 1, 40);
    if (multi) {
        int sections[] = {2, 2, 1, 1};
        return c->a->ggml_rope_multi(c->ctx, x, pos, NULL, 12, sections,
            kind == ROPE_MULTI ? GGML_ROPE_TYPE_MROPE : GGML_ROPE_TYPE_IMROPE, 64, 10000.0f, 1.0f, 0.0f, 1.0f, 32.0f, 1.0f);
    }
    if (kind == ROPE_BACKWARD) {
        return c->a->ggml_rope_ext_back(c->ctx, x, pos, NULL, 8, 0, 64, 10000.0f, 1.0f, 0.0f, 1.0f, 32.0f, 1.0f);
    }
    T *factors = NULL;
    if (kind == ROPE_FACTORS) {
        factors = grad_leaf(c, GGML_TYPE_F32, 4, 1, 1, 1);
        grad_make_positive(factors);
    }
    const float ext = kind == ROPE_YARN ? 1.0f : 0.0f;
    T *y = c->a->ggml_rope_ext(c->ctx, x, pos, factors, 8, kind == ROPE_NEOX ? GGML_ROPE_TYPE_NEOX : 0, 64, 10000.0f,
        kind == ROPE_YARN ? 0.25f : 1.0f, ext, 1.1f, 32.0f, 1.0f);
    return kind == ROPE_OFFSET ? c->a->ggml_rope_set_offset(y, 4) : y;
}

static inline T *build_attn(struct grad_case *c, int kind) {
    const int64_t n_kv_head = grad_pick(c, 1, 3), n_head = (kind & GROUPED) != 0 ? 2 * n_kv_head : n_kv_head;
    const int64_t n = 4 * grad_pick(c, 1, 3), n_q = grad_pick(c, 1, 4), n_kv = grad_pick(c, 2, 6), n_seq = grad_pick(c, 1, 2);
    T *q = grad_param(c, n, n_q, n_head, n_seq);
    T *k = grad_param(c, n, n_kv, n_kv_head, n_seq), *v = grad_param(c, n, n_kv, n_kv_head, n_seq);
    T *mask = (kind & MASK) != 0 ? grad_leaf(c, GGML_TYPE_F16, n_kv, n_q, 1, 1) : NULL;
    T *y = c->a->ggml_flash_attn_ext(
        c->ctx, q, k, v, mask, 0.35f, (kind & ALIBI) != 0 ? 8.0f : 0.0f, (kind & CAP) != 0 ? 2.0f : 0.0f);
    if ((kind & SINKS) != 0) {
        c->a->ggml_flash_attn_ext_add_sinks(y, grad_param(c, n_head, 1, 1, 1));
    }
    return y;
}

enum { IM2COL, CONV_2D, CONV_2D_DIRECT, CONV_2D_DW };

// The parameters of a convolution along one axis. side: extent of the image, at least that of the dilated kernel.
struct grad_axis {
    int stride, pad, dilation;
    int64_t kernel, side;
};
static inline struct grad_axis grad_axis_any(struct grad_case *c, bool dilated) {
    struct grad_axis w = {.stride = (int) grad_pick(c, 1, 2), .pad = (int) grad_pick(c, 0, 1), .kernel = grad_pick(c, 1, 3)};
    w.dilation = dilated ? (int) grad_pick(c, 1, 2) : 1;
    w.side = (w.kernel - 1) * w.dilation + 1 + grad_pick(c, 0, 3);
    return w;
}

static inline T *build_conv(struct grad_case *c, int kind) {
    const struct grad_axis a = grad_axis_any(c, true), b = grad_axis_any(c, true);
    const int64_t n_in = grad_pick(c, 1, 3), n_out = grad_pick(c, 1, 3), n_pictures = grad_pick(c, 1, 2);
    T *x = grad_param(c, a.side, b.side, n_in, n_pictures);
    if (kind == IM2COL) {
        T *shape = grad_leaf(c, GGML_TYPE_F32, a.kernel, b.kernel, n_in, n_out);
        return c->a->ggml_im2col(c->ctx, shape, x, a.stride, b.stride, a.pad, b.pad, a.dilation, b.dilation, true, GGML_TYPE_F32);
    }
    T *w = kind == CONV_2D_DW ? grad_param(c, a.kernel, b.kernel, 1, n_in) : grad_param(c, a.kernel, b.kernel, n_in, n_out);
    return (kind == CONV_2D ? c->a->ggml_conv_2d
            : kind == CONV_2D_DIRECT
                ? c->a->ggml_conv_2d_direct
                : c->a->ggml_conv_2d_dw_direct)(c->ctx, w, x, a.stride, b.stride, a.pad, b.pad, a.dilation, b.dilation);
}

static inline T *build_im2col_1d(struct grad_case *c, int kind) {
    (void) kind;
    const struct grad_axis w = grad_axis_any(c, true);
    const int64_t n_in = grad_pick(c, 1, 3);
    T *x = grad_param(c, w.side, n_in, grad_pick(c, 1, 2), 1), *shape = grad_leaf(c, GGML_TYPE_F32, w.kernel, n_in, 2, 1);
    return c->a->ggml_im2col(c->ctx, shape, x, w.stride, 0, w.pad, 0, w.dilation, 0, false, GGML_TYPE_F32);
}

static inline T *build_conv_transpose(struct grad_case *c, int kind) {
    const int64_t n_in = grad_pick(c, 1, 3), n_out = grad_pick(c, 1, 4), k0 = grad_pick(c, 1, 3), n0 = grad_pick(c, 1, 5);
    const int stride = (int) grad_pick(c, 1, 3);
    if (kind == 1) {
        return c->a->ggml_conv_transpose_1d(
            c->ctx, grad_param(c, k0, n_out, n_in, 1), grad_param(c, n0, n_in, 1, 1), stride, 0, 1);
    }
    T *w = grad_param(c, k0, grad_pick(c, 1, 3), n_out, n_in),
      *x = grad_param(c, n0, grad_pick(c, 1, 4), n_in, grad_pick(c, 1, 2));
    return c->a->ggml_conv_transpose_2d_p0(c->ctx, w, x, stride);
}

static inline T *build_pool(struct grad_case *c, int kind) {
    const struct grad_axis a = grad_axis_any(c, false), b = grad_axis_any(c, false);
    const int p0 = a.kernel > 1 ? a.pad : 0, p1 = b.kernel > 1 ? b.pad : 0; // no window is completely outside the image
    T *x = grad_param(c, a.side, b.side, grad_pick(c, 1, 2), 1);
    grad_make_distinct(c, x);
    const enum ggml_op_pool op = (kind & 1) != 0 ? GGML_OP_POOL_MAX : GGML_OP_POOL_AVG;
    return kind < 2
               ? c->a->ggml_pool_1d(c->ctx, x, op, (int) a.kernel, (int) a.kernel, p0)
               : c->a->ggml_pool_2d(c->ctx, x, op, (int) a.kernel, (int) b.kernel, a.stride, b.stride, (float) p0, (float) p1);
}

static inline T *build_loss(struct grad_case *c, int kind) {
    (void) kind;
    T *x = grad_param(c, grad_pick(c, 2, 7), grad_pick(c, 1, 4), 1, 1);
    T *l = grad_leaf(c, GGML_TYPE_F32, x->ne[0], x->ne[1], 1, 1);
    for (int64_t r = 0; r < x->ne[1]; r++) { // each row is a distribution
        float *row = (float *) l->data + r * x->ne[0], sum = 0.0f;
        for (int64_t i = 0; i < x->ne[0]; i++) {
            sum += row[i] = fabsf(row[i]);
        }
        for (int64_t i = 0; i < x->ne[0]; i++) {
            row[i] /= sum;
        }
    }
    return c->a->ggml_cross_entropy_loss(c->ctx, x, l);
}

// A residual connection, in which several ops read one tensor.
static inline T *build_block(struct grad_case *c, int kind) {
    (void) kind;
    struct ggml_context *ctx = c->ctx;
    const int64_t n_embd = grad_pick(c, 2, 9), n_ff = grad_pick(c, 1, 7);
    T *x = grad_param(c, n_embd, grad_pick(c, 1, 5), 1, 1), *w1 = grad_param(c, n_embd, n_ff, 1, 1);
    T *w2 = grad_param(c, n_ff, n_embd, 1, 1), *n = grad_param(c, n_embd, 1, 1, 1);
    T *h = c->a->ggml_mul(ctx, c->a->ggml_rms_norm(ctx, x, 0.01f), n);
    h = c->a->ggml_unary(ctx, c->a->ggml_mul_mat(ctx, w1, h), GGML_UNARY_OP_SILU);
    h = c->a->ggml_add(ctx, c->a->ggml_mul_mat(ctx, w2, h), x);
    return c->a->ggml_mul(ctx, h, x);
}

static inline float grad_element(const struct ggml_tensor *t, int64_t i) {
    int64_t at[4];
    ggml_unravel_index(t, i, &at[0], &at[1], &at[2], &at[3]);
    float x;
    memcpy(&x,
        (const char *) t->data + (size_t) at[0] * t->nb[0] + (size_t) at[1] * t->nb[1] + (size_t) at[2] * t->nb[2] +
            (size_t) at[3] * t->nb[3],
        sizeof x);
    return x;
}

struct grad_rule {
    const char *name;
    grad_build_t build;
    int kind;
    bool same;      // the reference has the rule, too, and builds the same backward graph
    double forward; // tolerance of the result relative to double precision; 0: that of f32
    double tol;     // tolerance of the gradients
};

// clang-format off
// The tolerances are larger for ops that round to f16 (11 bits), for products with quantised weights, which round activations to
// 8 bits (only in the result), for RoPE with angles up to 200 in f32, and for sequences of ops.
#define HALF 1e-3

static const struct grad_rule grad_rules[] = {
    {"dup", build_dup, 0, true, 0, 0}, {"add", build_add, 0, true, 0, 0}, {"add repeated", build_add, BCAST, true, 0, 0},
    {"add twice", build_add, TWICE, true, 0, 0}, {"sub", build_sub, 0, true, 0, 0}, {"sub repeated", build_sub, BCAST, false, 0, 0},
    {"sub twice", build_sub, TWICE, true, 0, 0}, {"mul", build_mul, 0, true, 0, 0}, {"mul repeated", build_mul, BCAST, true, 0, 0},
    {"mul twice", build_mul, TWICE, true, 0, 0}, {"div", build_div, 0, true, 0, 0}, {"div repeated", build_div, BCAST, false, 0, 0},
    {"div twice", build_div, TWICE, true, 0, 0}, {"add1", build_add1, 0, false, 0, 0}, {"add_id", build_add_id, 0, false, 0, 0},
    {"acc", build_part, 0, true, 0, 0}, {"set", build_part, 1, true, 0, 0},
    {"sqr", build_sqr, 0, true, 0, 0}, {"sqrt", build_sqrt, POSITIVE, true, 0, 0}, {"log", build_log, POSITIVE, true, 0, 0},
    {"sin", build_sin, 0, true, 0, 0}, {"cos", build_cos, 0, true, 0, 0}, {"scale", build_scale, 0, true, 0, 0},
    {"clamp", build_clamp, 0, false, 0, 0}, {"clamp above", build_clamp, 1, false, 0, 0}, {"leaky_relu", build_leaky_relu, 0, false, 0, 0},
    {"tri upper", build_tri, GGML_TRI_TYPE_UPPER, false, 0, 0}, {"tri lower diag", build_tri, GGML_TRI_TYPE_LOWER_DIAG, false, 0, 0},
    {"abs", build_unary, GGML_UNARY_OP_ABS, true, 0, 0}, {"neg", build_unary, GGML_UNARY_OP_NEG, true, 0, 0},
    {"tanh", build_unary, GGML_UNARY_OP_TANH, false, 0, 0}, {"elu", build_unary, GGML_UNARY_OP_ELU, false, 0, 0},
    {"relu", build_unary, GGML_UNARY_OP_RELU, true, 0, 0}, {"sigmoid", build_unary, GGML_UNARY_OP_SIGMOID, false, 0, 0},
    {"gelu", build_unary, GGML_UNARY_OP_GELU, false, HALF, 0}, {"gelu_quick", build_unary, GGML_UNARY_OP_GELU_QUICK, false, HALF, 0},
    {"gelu_erf", build_unary, GGML_UNARY_OP_GELU_ERF, false, 0, 0}, {"silu", build_unary, GGML_UNARY_OP_SILU, true, 0, 0},
    {"hardswish", build_unary, GGML_UNARY_OP_HARDSWISH, false, 0, 0},
    {"hardsigmoid", build_unary, GGML_UNARY_OP_HARDSIGMOID, false, 0, 0},
    {"exp", build_unary, GGML_UNARY_OP_EXP, true, 0, 0}, {"expm1", build_unary, GGML_UNARY_OP_EXPM1, true, 0, 0},
    {"softplus", build_unary, GGML_UNARY_OP_SOFTPLUS, true, 0, 0}, {"xielu", build_unary, GGML_UNARY_OP_XIELU, false, 0, 0},
    {"geglu", build_glu, GGML_GLU_OP_GEGLU, false, HALF, HALF}, {"geglu_quick", build_glu, GGML_GLU_OP_GEGLU_QUICK, false, HALF, HALF},
    {"reglu", build_glu, GGML_GLU_OP_REGLU, false, 0, 0}, {"swiglu", build_glu, GGML_GLU_OP_SWIGLU, false, 0, 0},
    {"swiglu split", build_swiglu_split, 0, true, 0, 0}, {"swiglu_oai", build_glu, GGML_GLU_OP_SWIGLU_OAI, false, 0, 0},
    {"swiglu_clamp", build_glu, GGML_GLU_OP_SWIGLU_CLAMP, false, 0, 0}, {"geglu_erf", build_glu, GGML_GLU_OP_GEGLU_ERF, false, 0, 0},
    {"cpy", build_cpy, 0, true, 0, 0}, {"cont", build_cont, 0, true, 0, 0}, {"cont 2d", build_cpy, 1, true, 0, 0},
    {"reshape", build_reshape, 0, true, 0, 0}, {"reshape, permute", build_reshape, 1, true, 0, 0},
    {"view", build_view, 0, false, 0, 0}, {"two views", build_view, 1, false, 0, 0}, {"view of view", build_view, 2, false, 0, 0},
    {"transpose", build_transpose, 0, true, 0, 0}, {"permute 0", build_permute, 0, true, 0, 0}, {"permute 1", build_permute, 1, true, 0, 0},
    {"permute 2", build_permute, 2, true, 0, 0}, {"permute 3", build_permute, 3, true, 0, 0},
    {"sgn", build_flat, GGML_UNARY_OP_SGN, false, 0, 0}, {"step", build_flat, GGML_UNARY_OP_STEP, false, 0, 0}, {"floor", build_flat, GGML_UNARY_OP_FLOOR, false, 0, 0},
    {"ceil", build_flat, GGML_UNARY_OP_CEIL, false, 0, 0}, {"round", build_flat, GGML_UNARY_OP_ROUND, false, 0, 0}, {"trunc", build_flat, GGML_UNARY_OP_TRUNC, false, 0, 0},
    {"sum", build_sum, 0, true, 0, 0}, {"sum_rows", build_sum_rows, 0, true, 0, 0}, {"mean", build_mean, 0, true, 0, 0},
    {"cumsum", build_cumsum, 0, false, 0, 0}, {"repeat", build_repeat, 0, true, 0, 0}, {"repeat_back", build_repeat, 1, true, 0, 0},
    {"concat 0", build_concat, 0, false, 0, 0}, {"concat 1", build_concat, 1, false, 0, 0}, {"concat 2", build_concat, 2, false, 0, 0},
    {"concat 3", build_concat, 3, false, 0, 0},
    {"mul_mat", build_mul_mat, 0, true, 0, 0}, {"mul_mat batches", build_mul_mat, 1, true, 0, 0},
    {"mul_mat shared", build_mul_mat, 2, true, 0, 0}, {"mul_mat shared 3", build_mul_mat, 3, false, 0, 0},
    {"mul_mat transposed", build_mul_mat, 4, false, 0, 0}, {"out_prod", build_out_prod, 0, false, 0, 0},
    {"mul_mat q8_0", build_mul_mat_quant, GGML_TYPE_Q8_0, false, 0.3, 0}, {"mul_mat q4_0", build_mul_mat_quant, GGML_TYPE_Q4_0, false, 0.3, 0},
    {"mul_mat_id", build_mul_mat_id, COLUMN_PER_EXPERT, false, 0, 0}, {"mul_mat_id one", build_mul_mat_id, SHARED_COLUMN, false, 0, 0},
    {"mul_mat_id given", build_mul_mat_id, FIXED_EXPERTS, false, 0, 0},
    {"get_rows", build_get_rows, 0, true, 0, 0}, {"get_rows_back", build_get_rows_back, 0, false, 0, 0},
    {"set_rows i64", build_set_rows, 0, false, 0, 0}, {"set_rows i32", build_set_rows, 1, false, 0, 0},
    {"diag", build_diag, 0, false, 0, 0}, {"diag_mask_zero", build_diag_mask, 0, true, 0, 0}, {"diag_mask_inf", build_diag_mask, 1, true, 0, 0},
    {"soft_max", build_soft_max, 0, true, 0, 0}, {"soft_max mask", build_soft_max, MASK, true, 0, 0},
    {"soft_max f16 mask", build_soft_max, MASK | MASK_F16, true, 0, 0}, {"soft_max alibi", build_soft_max, MASK | ALIBI, false, 0, 0},
    {"soft_max sinks", build_soft_max, MASK | SINKS, false, 0, 0}, {"soft_max learnt mask", build_soft_max, MASK_PARAM, false, 0, 0},
    {"roll", build_roll, 0, false, 0, 0}, {"pad", build_pad, 0, false, 0, 0}, {"upscale", build_upscale, 0, false, 0, 0},
    {"norm", build_norm, NORM, false, 0, 0}, {"rms_norm", build_norm, RMS_NORM, true, 0, 0}, {"group_norm", build_norm, GROUP_NORM, false, 0, 0},
    {"l2_norm", build_norm, L2_NORM, false, 0, 0}, {"l2_norm short", build_norm, L2_NORM_SHORT, false, 0, 0},
    {"rope", build_rope, ROPE_NORMAL, true, 0, 0}, {"rope neox", build_rope, ROPE_NEOX, true, 0, 0},
    {"rope factors", build_rope, ROPE_FACTORS, true, 2e-5, 2e-5}, {"rope offset", build_rope, ROPE_OFFSET, false, 0, 0},
    {"rope multi", build_rope, ROPE_MULTI, true, 0, 0}, {"rope interleaved", build_rope, ROPE_INTERLEAVED, true, 0, 0}, {"rope yarn", build_rope, ROPE_YARN, true, 0, 0},
    {"rope_back", build_rope, ROPE_BACKWARD, false, 0, 0},
    {"attention", build_attn, 0, false, 0, 0}, {"attention mask", build_attn, MASK, false, 0, 0},
    {"attention grouped", build_attn, MASK | GROUPED, false, 0, 0}, {"attention alibi", build_attn, MASK | ALIBI, false, 0, 0},
    {"attention sinks", build_attn, MASK | SINKS | GROUPED, false, 0, 0}, {"attention cap", build_attn, CAP, false, 0, 0},
    {"im2col 1d", build_im2col_1d, 0, false, 0, 0}, {"im2col", build_conv, IM2COL, true, 0, 0}, {"conv_2d", build_conv, CONV_2D, true, 20 * HALF, 5 * HALF},
    {"conv_2d direct", build_conv, CONV_2D_DIRECT, false, 0, 0}, {"conv_2d_dw", build_conv, CONV_2D_DW, false, 0, 0},
    {"conv_transpose_1d", build_conv_transpose, 1, false, 0, 0}, {"conv_transpose_2d", build_conv_transpose, 2, false, 0, 0},
    {"pool_1d avg", build_pool, 0, false, 0, 0}, {"pool_1d max", build_pool, 1, false, 0, 0},
    {"pool_2d avg", build_pool, 2, true, 0, 0}, {"pool_2d max", build_pool, 3, true, 0, 0},
    {"cross_entropy_loss", build_loss, 0, true, 0, 0}, {"block", build_block, 0, true, 1e-5, 1e-5},
};
// clang-format on
#define GRAD_N_RULES ((int) (sizeof grad_rules / sizeof grad_rules[0]))

// Parameters, a result, weights of its elements, and loss = sum(result * weights).
struct grad_graph {
    T *result, *weights, *loss;
};

static inline struct grad_graph grad_graph_new(struct grad_case *c, const struct grad_rule *rule) {
    struct grad_graph g;
    g.result = rule->build(c, rule->kind);
    const T *r = g.result;
    g.weights = grad_leaf(c, GGML_TYPE_F32, r->ne[0], r->ne[1], r->ne[2], r->ne[3]);
    T *dense = ggml_is_contiguous(g.result) && g.result->nb[0] == sizeof(float) ? g.result : c->a->ggml_cont(c->ctx, g.result);
    g.loss = c->a->ggml_sum(c->ctx, c->a->ggml_mul(c->ctx, dense, g.weights));
    c->a->ggml_set_loss(g.loss);
    return g;
}
