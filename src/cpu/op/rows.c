// SPDX-License-Identifier: MIT
// rows.c: GET_ROWS and SET_ROWS read and write rows by index. If an index is out of range, the op fails without accessing that row.

#include "cpu/op/cells.h"
#include "cpu/optable.h"
#include "cpu/rowio.h"

static int64_t row_number(const struct ggml_tensor *t, int64_t i0, int64_t i1, int64_t i2) {
    const char *at = (const char *) t->data + (size_t) i0 * t->nb[0] + (size_t) i1 * t->nb[1] + (size_t) i2 * t->nb[2];
    if (t->type == GGML_TYPE_I64) {
        int64_t v;
        memcpy(&v, at, sizeof v);
        return v;
    }
    int32_t v;
    memcpy(&v, at, sizeof v);
    return v;
}

static bool number_ok(const struct cpu_params *p, const struct ggml_tensor *op, int64_t number, int64_t n_rows) {
    if (number >= 0 && number < n_rows) {
        return true;
    }
    cpu_fail(p, "%s '%s': row index %lld is out of range: there are %lld rows", ggml_op_name(op->op), op->name,
        (long long) number, (long long) n_rows);
    return false;
}

// ---- GET_ROWS ----

static bool get_supports(const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    if (a == NULL || b == NULL || b->type != GGML_TYPE_I32 || a->ne[0] != op->ne[0] || b->ne[3] != 1 || op->ne[1] != b->ne[0] ||
        op->ne[2] != b->ne[1] || op->ne[3] != b->ne[2] || a->ne[2] < op->ne[2] || a->ne[3] < op->ne[3]) {
        return false;
    }
    if (op->nb[0] != ggml_type_size(op->type) || (a->nb[0] != ggml_type_size(a->type) && ggml_blck_size(a->type) > 1)) {
        return false;
    }
    return a->type == GGML_TYPE_I32 ? op->type == GGML_TYPE_I32
                                    : op->type == GGML_TYPE_F32 && cpu_kernels_portable.to_float[a->type] != NULL;
}

static void get_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    int64_t r0, r1;
    cpu_share(p, ggml_nrows(op), &r0, &r1);
    for (int64_t ir = r0; ir < r1; ir++) {
        const struct cpu_row_pos at = cpu_row_pos(op, ir);
        const int64_t number = row_number(b, at.i1, at.i2, at.i3);
        if (!number_ok(p, op, number, a->ne[1])) {
            return;
        }
        const char *from = cpu_row_at(a, number, at.i2, at.i3);
        if (a->type == op->type) {
            cells_copy_row(op, cpu_row(op, at), a, from);
        } else {
            cpu_row_widen(p->k, a, from, 0, op->ne[0], (float *) (void *) cpu_row(op, at));
        }
    }
}

// ---- SET_ROWS: the result is src[2]; rows of src[0] replace the rows whose indices are in src[1] ----

static bool set_supports(const struct ggml_tensor *op) {
    const struct ggml_tensor *rows = op->src[0], *numbers = op->src[1];
    if (rows == NULL || numbers == NULL || rows->ne[0] != op->ne[0] || rows->ne[2] != op->ne[2] || rows->ne[3] != op->ne[3]) {
        return false;
    }
    return (numbers->type == GGML_TYPE_I64 || numbers->type == GGML_TYPE_I32) && numbers->ne[0] == rows->ne[1] &&
           numbers->ne[1] > 0 && numbers->ne[2] > 0 && numbers->ne[3] > 0 && op->nb[0] == ggml_type_size(op->type) &&
           rows->nb[0] == ggml_type_size(rows->type) &&
           (rows->type == op->type || (cpu_is_float(rows->type) && cpu_kernels_portable.traits[op->type].from_float != NULL));
}

static void set_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct ggml_tensor *rows = op->src[0], *numbers = op->src[1];
    float buf[CPU_PIECE];
    for (struct cpu_pieces it = cpu_pieces(p, rows); cpu_piece_next(&it);) {
        const int64_t number = row_number(numbers, it.at.i1, it.at.i2 % numbers->ne[1], it.at.i3 % numbers->ne[2]);
        if (!number_ok(p, op, number, op->ne[1])) {
            return;
        }
        char *to = cpu_row_at(op, number, it.at.i2, it.at.i3);
        const char *from = cpu_row(rows, it.at);
        if (rows->type == op->type) {
            const size_t off = ggml_row_size(op->type, it.i0);
            memcpy(to + off, from + off, ggml_row_size(op->type, it.n));
        } else {
            cpu_row_store(p->k, op, to, it.i0, it.n, cpu_row_load(p->k, rows, from, it.i0, it.n, buf));
        }
    }
}

static int set_tasks(const struct ggml_tensor *op, int n_threads) {
    const int64_t n = ggml_nelements(op->src[0]) / CPU_TASK_ELEMENTS; // counts the written elements, not those of the result
    return cpu_tasks_for((double) n, n_threads);
}

static int get_tasks(const struct ggml_tensor *op, int n_threads) {
    const int64_t n = ggml_nelements(op) / CPU_TASK_ELEMENTS;
    return cpu_tasks_for((double) n, n_threads);
}

const struct cpu_op_entry cpu_ops_rows[] = {
    {GGML_OP_GET_ROWS, {.supports = get_supports, .n_tasks = get_tasks, .run = get_run, .uses = CPU_USE_RETYPE}},
    {GGML_OP_SET_ROWS,
        {.supports = set_supports, .n_tasks = set_tasks, .run = set_run, .uses = CPU_USE_RETYPE, .empty_srcs = 1 << 0 | 1 << 1}},
    CPU_OPS_END,
};
