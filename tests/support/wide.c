// SPDX-License-Identifier: MIT
// wide.c: a graph in double precision: the table of ops, the values of the tensors, and the loop over the nodes.

#include "support/wide.h"

#include "core/graph.h"

#include <stdlib.h>

// clang-format off
static const wide_op_t wide_ops[GGML_OP_COUNT] = {
    [GGML_OP_DUP] = wide_copy, [GGML_OP_CPY] = wide_copy, [GGML_OP_CONT] = wide_copy, [GGML_OP_RESHAPE] = wide_copy,
    [GGML_OP_VIEW] = wide_view, [GGML_OP_PERMUTE] = wide_permute, [GGML_OP_TRANSPOSE] = wide_transpose,
    [GGML_OP_ADD] = wide_add, [GGML_OP_SUB] = wide_sub, [GGML_OP_MUL] = wide_mul, [GGML_OP_DIV] = wide_div,
    [GGML_OP_ADD1] = wide_add1, [GGML_OP_ADD_ID] = wide_add_id, [GGML_OP_ACC] = wide_acc, [GGML_OP_SET] = wide_set,
    [GGML_OP_SQR] = wide_sqr, [GGML_OP_SQRT] = wide_sqrt, [GGML_OP_LOG] = wide_log, [GGML_OP_SIN] = wide_sin,
    [GGML_OP_COS] = wide_cos, [GGML_OP_SCALE] = wide_scale, [GGML_OP_CLAMP] = wide_clamp,
    [GGML_OP_LEAKY_RELU] = wide_leaky_relu, [GGML_OP_TRI] = wide_tri, [GGML_OP_UNARY] = wide_unary_op, [GGML_OP_GLU] = wide_glu,
    [GGML_OP_SUM] = wide_sum, [GGML_OP_SUM_ROWS] = wide_sum_rows, [GGML_OP_MEAN] = wide_mean, [GGML_OP_CUMSUM] = wide_cumsum,
    [GGML_OP_REPEAT] = wide_repeat, [GGML_OP_REPEAT_BACK] = wide_repeat_back, [GGML_OP_CONCAT] = wide_concat,
    [GGML_OP_GET_ROWS] = wide_get_rows, [GGML_OP_GET_ROWS_BACK] = wide_get_rows_back, [GGML_OP_SET_ROWS] = wide_set_rows,
    [GGML_OP_DIAG] = wide_diag, [GGML_OP_DIAG_MASK_INF] = wide_diag_mask_inf, [GGML_OP_DIAG_MASK_ZERO] = wide_diag_mask_zero,
    [GGML_OP_ROLL] = wide_roll, [GGML_OP_PAD] = wide_pad, [GGML_OP_UPSCALE] = wide_upscale,
    [GGML_OP_NORM] = wide_norm, [GGML_OP_RMS_NORM] = wide_rms_norm, [GGML_OP_GROUP_NORM] = wide_group_norm,
    [GGML_OP_L2_NORM] = wide_l2_norm, [GGML_OP_CROSS_ENTROPY_LOSS] = wide_cross_entropy_loss,
    [GGML_OP_MUL_MAT] = wide_mul_mat, [GGML_OP_MUL_MAT_ID] = wide_mul_mat_id, [GGML_OP_OUT_PROD] = wide_out_prod,
    [GGML_OP_SOFT_MAX] = wide_soft_max, [GGML_OP_FLASH_ATTN_EXT] = wide_flash_attn_ext,
    [GGML_OP_ROPE] = wide_rope, [GGML_OP_ROPE_BACK] = wide_rope,
    [GGML_OP_IM2COL] = wide_im2col, [GGML_OP_CONV_2D] = wide_conv_2d, [GGML_OP_CONV_2D_DW] = wide_conv_2d_dw,
    [GGML_OP_CONV_TRANSPOSE_1D] = wide_conv_transpose_1d, [GGML_OP_CONV_TRANSPOSE_2D] = wide_conv_transpose_2d,
    [GGML_OP_POOL_1D] = wide_pool_1d, [GGML_OP_POOL_2D] = wide_pool_2d,
};
// clang-format on

struct value {
    const struct ggml_tensor *t;
    double *y;
    const double *x[GGML_MAX_SRC];
};

struct wide {
    int n_values;
    struct value values[]; // leaves, then nodes
};

double *wide_of(const struct wide *w, const struct ggml_tensor *t) {
    for (int i = 0; i < w->n_values; i++) {
        if (w->values[i].t == t) {
            return w->values[i].y;
        }
    }
    return NULL;
}

const struct ggml_tensor *wide_base(const struct ggml_tensor *view) {
    const struct ggml_tensor *t = view->src[0];
    while (!ggml_is_contiguous(t) && t->src[0] != NULL) {
        t = t->src[0];
    }
    return t;
}

// Loads a contiguous leaf without rounding.
static void leaf_load(const struct ggml_tensor *t, double *y) {
    const int64_t n = ggml_nelements(t);
    if (t->type == GGML_TYPE_I32 || t->type == GGML_TYPE_I64) {
        for (int64_t i = 0; i < n; i++) {
            y[i] = t->type == GGML_TYPE_I32 ? (double) ((const int32_t *) t->data)[i] : (double) ((const int64_t *) t->data)[i];
        }
        return;
    }
    float *x = malloc((size_t) n * sizeof *x);
    if (t->type == GGML_TYPE_F32) {
        memcpy(x, t->data, (size_t) n * sizeof *x);
    } else {
        ggml_get_type_traits(t->type)->to_float(t->data, x, n);
    }
    for (int64_t i = 0; i < n; i++) {
        y[i] = x[i];
    }
    free(x);
}

static void add_value(struct wide *w, const struct ggml_tensor *t) {
    struct value *v = &w->values[w->n_values++];
    *v = (struct value){.t = t, .y = calloc((size_t) ggml_nelements(t), sizeof *v->y)};
    if (t->op == GGML_OP_NONE) {
        leaf_load(t, v->y);
        return;
    }
    for (int i = 0; i < GGML_MAX_SRC; i++) {
        v->x[i] = t->src[i] == NULL ? NULL : wide_of(w, t->op == GGML_OP_VIEW ? wide_base(t) : t->src[i]);
    }
}

struct wide *wide_new(struct ggml_cgraph *graph, const char **missing) {
    for (int i = 0; i < graph->n_nodes; i++) {
        if (graph->nodes[i]->op != GGML_OP_NONE && wide_ops[graph->nodes[i]->op] == NULL) {
            *missing = ggml_op_name(graph->nodes[i]->op);
            return NULL;
        }
    }
    struct wide *w = calloc(1, sizeof *w + (size_t) (graph->n_leafs + graph->n_nodes) * sizeof w->values[0]);
    for (int i = 0; i < graph->n_leafs; i++) {
        add_value(w, graph->leafs[i]);
    }
    for (int i = 0; i < graph->n_nodes; i++) {
        add_value(w, graph->nodes[i]);
    }
    return w;
}

void wide_free(struct wide *w) {
    for (int i = 0; i < w->n_values; i++) {
        free(w->values[i].y);
    }
    free(w);
}

void wide_run(struct wide *w) {
    for (int i = 0; i < w->n_values; i++) {
        const struct value *v = &w->values[i];
        if (v->t->op != GGML_OP_NONE) {
            wide_ops[v->t->op](v->t, v->y, v->x);
        }
    }
}
