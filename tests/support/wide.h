// SPDX-License-Identifier: MIT
// wide.h: evaluates a graph in double precision, independently of src/cpu. Each tensor is a contiguous array of doubles. Leaves
// are converted without rounding. Only ops with a row in wide_ops (wide.c) are supported.
#pragma once

#include "core/op_params.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

struct wide;

// The leaves must have their data. If an op has no row in wide_ops, returns NULL and stores its name in *missing.
struct wide *wide_new(struct ggml_cgraph *graph, const char **missing);
void wide_free(struct wide *w);
// Leaves and parameters may be changed before the next wide_run.
double *wide_of(const struct wide *w, const struct ggml_tensor *t);
void wide_run(struct wide *w);

// ---- for the functions of single ops ----

// y: the elements of the result. x[i]: the elements of source i, NULL if there is none.
typedef void (*wide_op_t)(const struct ggml_tensor *t, double *y, const double *const *x);

// An element of a tensor: its index in the order of elements, and its coordinates.
struct wide_at {
    int64_t n, i0, i1, i2, i3;
};

#define WIDE_EACH(t, p) for (struct wide_at p = {0}; p.n < ggml_nelements(t); wide_next(t, &p))

static inline void wide_next(const struct ggml_tensor *t, struct wide_at *p) {
    p->n++;
    if (++p->i0 == t->ne[0]) {
        p->i0 = 0;
        if (++p->i1 == t->ne[1]) {
            p->i1 = 0;
            if (++p->i2 == t->ne[2]) {
                p->i2 = 0;
                p->i3++;
            }
        }
    }
}

static inline int64_t wide_index(const struct ggml_tensor *t, int64_t i0, int64_t i1, int64_t i2, int64_t i3) {
    return ((i3 * t->ne[2] + i2) * t->ne[1] + i1) * t->ne[0] + i0;
}

// The coordinates wrap around.
static inline int64_t wide_round(const struct ggml_tensor *t, int64_t i0, int64_t i1, int64_t i2, int64_t i3) {
    return wide_index(t, i0 % t->ne[0], i1 % t->ne[1], i2 % t->ne[2], i3 % t->ne[3]);
}

// Returns the nearest contiguous source of a view. The view's byte offset counts from the start of this source.
const struct ggml_tensor *wide_base(const struct ggml_tensor *view);

// Returns the ALiBi slope of a head, 1 without ALiBi.
double wide_slope(double max_bias, int64_t head, int64_t n_head);
double wide_unary(enum ggml_unary_op op, double x);

// clang-format off
#define WIDE_OPS(X) \
    /* wide_eltwise.c */ X(copy) X(add) X(sub) X(mul) X(div) X(add1) X(add_id) X(acc) X(set) X(sqr) X(sqrt) X(log) X(sin) X(cos) \
    X(scale) X(clamp) X(leaky_relu) X(tri) X(unary_op) X(glu) \
    /* wide_rows.c */ X(view) X(permute) X(transpose) X(sum) X(sum_rows) X(mean) X(cumsum) X(repeat) X(repeat_back) X(concat) \
    X(get_rows) X(get_rows_back) X(set_rows) X(diag) X(diag_mask_inf) X(diag_mask_zero) X(roll) X(pad) X(upscale) \
    X(norm) X(rms_norm) X(group_norm) X(l2_norm) X(cross_entropy_loss) \
    /* wide_matmul.c */ X(mul_mat) X(mul_mat_id) X(out_prod) X(soft_max) X(flash_attn_ext) X(rope) \
    X(im2col) X(conv_2d) X(conv_2d_dw) X(conv_transpose_1d) X(conv_transpose_2d) X(pool_1d) X(pool_2d)
// clang-format on
#define WIDE_DECLARE(name) void wide_##name(const struct ggml_tensor *t, double *y, const double *const *x);
WIDE_OPS(WIDE_DECLARE)
#undef WIDE_DECLARE
