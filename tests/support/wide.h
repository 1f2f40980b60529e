// SPDX-License-Identifier: MIT
// wide.h: evaluates a graph in double precision, independently of src/cpu. Each tensor is a contiguous array of doubles. Leaves
// are converted without rounding. Only the ops of WIDE_OPS are supported.
#pragma once

#include "core/op_params.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

struct wide;

// The leaves must have their data. If an op is not in WIDE_OPS, returns NULL and stores its name in *missing.
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

// X(OP, name): wide_name computes GGML_OP_OP.
// clang-format off
#define WIDE_OPS(X) \
    /* wide_eltwise.c */ X(DUP, copy) X(CPY, copy) X(CONT, copy) X(RESHAPE, copy) X(ADD, add) X(SUB, sub) X(MUL, mul) \
    X(DIV, div) X(ADD1, add1) X(ADD_ID, add_id) X(ACC, acc) X(SET, set) X(SQR, sqr) X(SQRT, sqrt) X(LOG, log) X(SIN, sin) \
    X(COS, cos) X(SCALE, scale) X(CLAMP, clamp) X(LEAKY_RELU, leaky_relu) X(TRI, tri) X(UNARY, unary_op) X(GLU, glu) \
    /* wide_rows.c */ X(VIEW, view) X(PERMUTE, permute) X(TRANSPOSE, transpose) X(SUM, sum) X(SUM_ROWS, sum_rows) \
    X(MEAN, mean) X(CUMSUM, cumsum) X(REPEAT, repeat) X(REPEAT_BACK, repeat_back) X(CONCAT, concat) X(GET_ROWS, get_rows) \
    X(GET_ROWS_BACK, get_rows_back) X(SET_ROWS, set_rows) X(DIAG, diag) X(DIAG_MASK_INF, diag_mask_inf) \
    X(DIAG_MASK_ZERO, diag_mask_zero) X(ROLL, roll) X(PAD, pad) X(UPSCALE, upscale) X(NORM, norm) X(RMS_NORM, rms_norm) \
    X(GROUP_NORM, group_norm) X(L2_NORM, l2_norm) X(CROSS_ENTROPY_LOSS, cross_entropy_loss) \
    /* wide_matmul.c */ X(MUL_MAT, mul_mat) X(MUL_MAT_ID, mul_mat_id) X(OUT_PROD, out_prod) X(SOFT_MAX, soft_max) \
    X(FLASH_ATTN_EXT, flash_attn_ext) X(ROPE, rope) X(ROPE_BACK, rope) X(IM2COL, im2col) X(CONV_2D, conv_2d) \
    X(CONV_2D_DW, conv_2d_dw) X(CONV_TRANSPOSE_1D, conv_transpose_1d) X(CONV_TRANSPOSE_2D, conv_transpose_2d) \
    X(POOL_1D, pool_1d) X(POOL_2D, pool_2d)
// clang-format on
#define WIDE_DECLARE(op, name) void wide_##name(const struct ggml_tensor *t, double *y, const double *const *x);
WIDE_OPS(WIDE_DECLARE)
#undef WIDE_DECLARE
