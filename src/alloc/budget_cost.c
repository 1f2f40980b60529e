// SPDX-License-Identifier: MIT
// budget_cost.c: what computing a node costs, from shapes alone: multiplications and additions, and what its bytes take to move,
// as so many of these. Made for comparing nodes of one graph, not for telling seconds.

#include "alloc/budget.h"

#define FLOPS_A_BYTE 2   // a core multiplies and adds about that much while a byte passes
#define FLOPS_A_STEP 8   // of an element of a plain op, and 2 for each
#define FLOPS_A_CURVE 24 // of an element of exp, tanh, a root

static double product(const struct ggml_tensor *t) {
    const struct ggml_tensor *a = t->src[0], *b = t->src[1];
    const double n = (double) ggml_nelements(t);
    if (a == NULL || b == NULL) {
        return 0;
    }
    switch (t->op) {
        case GGML_OP_MUL_MAT:
        case GGML_OP_MUL_MAT_ID: return 2 * n * (double) a->ne[0];
        case GGML_OP_OUT_PROD: return 2 * n * (double) a->ne[1];
        case GGML_OP_CONV_2D: return 2 * n * (double) (a->ne[0] * a->ne[1]) * (double) a->ne[2];
        case GGML_OP_CONV_2D_DW: return 2 * n * (double) (a->ne[0] * a->ne[1]);
        case GGML_OP_CONV_TRANSPOSE_1D: return 2 * (double) ggml_nelements(a) * (double) b->ne[0];
        case GGML_OP_CONV_TRANSPOSE_2D: return 2 * (double) ggml_nelements(a) * (double) (b->ne[0] * b->ne[1]);
        case GGML_OP_FLASH_ATTN_EXT: return 4 * n * (double) b->ne[1];
        default: return 0;
    }
}

// The source of which only some rows are read or written, -1: none.
static int table_of(const struct ggml_tensor *node) {
    return node->op == GGML_OP_GET_ROWS ? 0 : node->op == GGML_OP_SET_ROWS ? 2 : -1;
}

uint64_t berth_node_cost(const struct ggml_tensor *node) {
    const struct berth_op_info *info = node == NULL ? NULL : berth_op_info(node->op);
    if (info == NULL || info->is_empty) {
        return 0;
    }
    const int i_table = table_of(node);
    const bool is_set = i_table > 0 && node->src[0] != NULL; // writes as many rows as it is given
    double most = (double) ggml_nelements(is_set ? node->src[0] : node);
    double bytes =
        is_set ? (double) ggml_row_size(node->type, node->ne[0]) * (double) ggml_nrows(node->src[0]) : (double) ggml_nbytes(node);
    for (int k = 0; k < GGML_MAX_SRC; k++) {
        if (node->src[k] != NULL && node->src[k] != node->view_src && k != i_table) {
            const double n = (double) ggml_nelements(node->src[k]);
            bytes += (double) ggml_nbytes(node->src[k]);
            most = n > most ? n : most;
        }
    }
    const enum berth_op_family family = info->family;
    const double flops = product(node);
    const bool is_curve =
        family == BERTH_OP_ACTIVATION || family == BERTH_OP_ATTENTION || family == BERTH_OP_NORM || family == BERTH_OP_TRAIN;
    const double each = flops > 0 ? 0 : most * (is_curve ? FLOPS_A_CURVE : FLOPS_A_STEP);
    const double cost = flops + each + bytes * FLOPS_A_BYTE + BUDGET_FLOPS_A_NODE;
    return cost < 0x1p52 ? (uint64_t) cost : (uint64_t) 1 << 52;
}
