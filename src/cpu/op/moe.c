// SPDX-License-Identifier: MIT
// moe.c: ADD_ID, which adds each row the bias of its expert.

#include "cpu/op/experts.h"
#include "cpu/optable.h"
#include "cpu/rowio.h"

#include <inttypes.h>

// ---- ADD_ID: a row of src[1], named by ids, to each row of src[0] ----

static bool add_id_supports(const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1], *ids = op->src[2];
    return a != NULL && b != NULL && ids != NULL && cpu_is_float(a->type) && cpu_is_float(b->type) && cpu_is_float(op->type) &&
           ids->type == GGML_TYPE_I32 && ggml_are_same_shape(a, op) && a->ne[0] == b->ne[0] && a->ne[1] == ids->ne[0] &&
           a->ne[2] == ids->ne[1] && ggml_nelements(b) > 0;
}

static void add_id_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1], *ids = op->src[2];
    float buf_a[CPU_PIECE], buf_b[CPU_PIECE], buf_z[CPU_PIECE];
    for (struct cpu_pieces it = cpu_pieces(p, op); cpu_piece_next(&it);) {
        const int32_t id = cpu_expert_of(ids, it.at.i1, it.at.i2);
        if (id < 0 || id >= b->ne[1]) {
            cpu_fail(p, "%s: row %d is wanted, there are %" PRId64, op->name, id, b->ne[1]);
            return;
        }
        char *row = cpu_row(op, it.at);
        const float *x = cpu_row_load(p->k, a, cpu_row(a, it.at), it.i0, it.n, buf_a);
        const float *y = cpu_row_load(p->k, b, cpu_row_at(b, id, 0, 0), it.i0, it.n, buf_b);
        float *z = cpu_row_target(op, row, it.i0, buf_z);
        p->k->add(it.n, z, x, y);
        cpu_row_store(p->k, op, row, it.i0, it.n, z);
    }
}

const struct cpu_op_entry cpu_ops_moe[] = {
    {GGML_OP_ADD_ID, {.supports = add_id_supports, .run = add_id_run, .uses = CPU_USE_ADD | CPU_USE_CONVERT}},
    CPU_OPS_END,
};
