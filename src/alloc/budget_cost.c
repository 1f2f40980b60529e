// SPDX-License-Identifier: MIT
// budget_cost.c: one number for what running a node takes on a CPU, in multiplications and additions. It compares nodes of one
// graph; it does not predict seconds.

#include "alloc/budget.h"

#include "base/min.h"

#define FLOPS_A_BYTE 2   // a core multiplies and adds about that much while a byte passes
#define FLOPS_A_STEP 8   // of an element of a plain op
#define FLOPS_A_CURVE 24 // of an element of exp, tanh, a root

uint64_t berth_node_cost(const struct ggml_tensor *node) {
    const struct berth_op_info *info = node == NULL ? NULL : berth_op_info(node->op);
    if (info == NULL || info->is_empty) {
        return 0;
    }
    const struct berth_op_cost c = berth_op_cost(node);
    const double n_written = c.bytes_written / (double) ggml_type_size(node->type) * (double) ggml_blck_size(node->type);
    const double n_read = node->src[0] != NULL && c.flops > 0 ? (double) ggml_nelements(node->src[0]) : 0;
    const double n = max_f64(n_written, n_read);
    const enum berth_op_family family = info->family;
    const bool is_curve =
        family == BERTH_OP_ACTIVATION || family == BERTH_OP_ATTENTION || family == BERTH_OP_NORM || family == BERTH_OP_TRAIN;
    // More than one operation per element: a product, whose multiply-adds run at full speed.
    const double work = c.flops > n ? c.flops : n * (is_curve ? FLOPS_A_CURVE : FLOPS_A_STEP);
    const double cost = work + (c.bytes_read + c.bytes_written) * FLOPS_A_BYTE + BUDGET_FLOPS_A_NODE;
    return cost < 0x1p52 ? (uint64_t) cost : (uint64_t) 1 << 52;
}
