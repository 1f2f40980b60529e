// SPDX-License-Identifier: MIT
// repeat.c: REPEAT, CONCAT, DIAG, ACC, SET, ADD1. REPEAT, CONCAT and DIAG accept any type and strides. ACC adds a tensor to a
// part of another tensor; SET copies it there. No constructor checks the part. If the part extends past the result, the op fails.

#include "base/min.h"
#include "cpu/op/cells.h"
#include "cpu/optable.h"
#include "cpu/rowio.h"

#include <inttypes.h>

// ---- REPEAT ----

static bool repeat_supports(const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    return a != NULL && a->type == op->type && cells_movable(a) && cells_movable(op) && ggml_can_repeat(a, op);
}

static void repeat_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    const size_t size = ggml_type_size(op->type);
    const int64_t n = cells_of(op, op->ne[0]), n_period = cells_of(a, a->ne[0]);
    int64_t r0, r1;
    cpu_share(p, ggml_nrows(op), &r0, &r1);
    for (int64_t ir = r0; ir < r1; ir++) {
        const struct cpu_row_pos at = cpu_row_pos(op, ir);
        char *to = cpu_row(op, at);
        cells_copy(to, op->nb[0], cpu_row_repeat(a, at), a->nb[0], n_period, size);
        // Each copy doubles the elements written so far.
        for (int64_t n_done = n_period; n_done < n;) {
            const int64_t m = min_i64(n - n_done, n_done);
            cells_copy(to + (size_t) n_done * op->nb[0], op->nb[0], to, op->nb[0], m, size);
            n_done += m;
        }
    }
}

// ---- CONCAT ----

static bool concat_supports(const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    const int32_t dim = param_i32(op, 0);
    if (a == NULL || b == NULL || a->type != op->type || b->type != op->type || dim < 0 || dim >= GGML_MAX_DIMS ||
        !cells_movable(a) || !cells_movable(b) || !cells_movable(op)) {
        return false;
    }
    for (int i = 0; i < GGML_MAX_DIMS; i++) {
        if (i == dim ? op->ne[i] != a->ne[i] + b->ne[i] : op->ne[i] != a->ne[i] || op->ne[i] != b->ne[i]) {
            return false;
        }
    }
    return true;
}

static void concat_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    const int32_t dim = param_i32(op, 0);
    int64_t r0, r1;
    cpu_share(p, ggml_nrows(op), &r0, &r1);
    for (int64_t ir = r0; ir < r1; ir++) {
        const struct cpu_row_pos at = cpu_row_pos(op, ir);
        char *to = cpu_row(op, at);
        if (dim == 0) {
            cells_copy_row(op, to, a, cpu_row(a, at));
            cells_copy_row(op, to + (size_t) cells_of(a, a->ne[0]) * op->nb[0], b, cpu_row(b, at));
            continue;
        }
        int64_t i[] = {0, at.i1, at.i2, at.i3};
        const bool second = i[dim] >= a->ne[dim];
        const struct ggml_tensor *from = second ? b : a;
        i[dim] -= second ? a->ne[dim] : 0;
        cells_copy_row(op, to, from, cpu_row_at(from, i[1], i[2], i[3]));
    }
}

// ---- DIAG ----

static bool diag_supports(const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    return a != NULL && a->type == op->type && ggml_blck_size(a->type) == 1 && a->ne[1] == 1 && op->ne[0] == a->ne[0] &&
           op->ne[1] == a->ne[0] && op->ne[2] == a->ne[2] && op->ne[3] == a->ne[3];
}

static void diag_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    const size_t size = ggml_type_size(op->type);
    int64_t r0, r1;
    cpu_share(p, ggml_nrows(op), &r0, &r1);
    for (int64_t ir = r0; ir < r1; ir++) {
        const struct cpu_row_pos at = cpu_row_pos(op, ir);
        char *to = cpu_row(op, at);
        cells_zero(to, op->nb[0], op->ne[0], size);
        memcpy(to + (size_t) at.i1 * op->nb[0], cpu_row_at(a, 0, at.i2, at.i3) + (size_t) at.i1 * a->nb[0], size);
    }
}

// ---- ACC, SET ----

// The part of the result that ACC or SET changes, with the shape of b.
struct part {
    size_t nb[GGML_MAX_DIMS];
    size_t off, end; // byte offsets in the result; end is exclusive
    bool overlaps;   // rows may overlap: task 0 writes all rows
};

// If the part is outside the result or unaligned, or its end overflows, returns false.
static bool part_of(const struct ggml_tensor *op, struct part *part) {
    const struct ggml_tensor *b = op->src[1];
    const int32_t off = param_i32(op, 3);
    *part = (struct part){.nb = {ggml_type_size(op->type)}};
    if (off < 0 || (size_t) off % part->nb[0] != 0) {
        return false;
    }
    part->off = (size_t) off;
    part->end = part->off + part->nb[0];
    for (int i = 0; i < GGML_MAX_DIMS; i++) {
        const int32_t nb = i == 0 ? 0 : param_i32(op, i - 1);
        if (b->ne[i] == 1) {
            continue;
        }
        if (nb < 0 || (size_t) nb % part->nb[0] != 0) {
            return false;
        }
        part->nb[i] = i == 0 ? part->nb[0] : (size_t) nb;
        size_t reach;
        if (__builtin_mul_overflow((size_t) (b->ne[i] - 1), part->nb[i], &reach) ||
            __builtin_add_overflow(part->end, reach, &part->end)) {
            return false;
        }
        part->overlaps = part->overlaps || (i > 0 && part->nb[i] < (size_t) b->ne[i - 1] * part->nb[i - 1]);
    }
    return part->end <= ggml_nbytes(op);
}

static bool part_supports(const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    return a != NULL && b != NULL && a->type == op->type && b->type == op->type && ggml_are_same_shape(a, op) &&
           ggml_is_contiguous(op) && (op->type == GGML_TYPE_F32 || (op->op == GGML_OP_SET && op->type == GGML_TYPE_I32));
}

// If the op runs in place, does nothing.
static void result_init(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    if (a->data == op->data) {
        return;
    }
    int64_t r0, r1;
    cpu_share(p, ggml_nrows(op), &r0, &r1);
    for (int64_t ir = r0; ir < r1; ir++) {
        const struct cpu_row_pos at = cpu_row_pos(op, ir);
        cells_copy_row(op, cpu_row(op, at), a, cpu_row(a, at));
    }
    cpu_barrier(p);
}

static void row_add(const struct cpu_kernels *k, float *to, const struct ggml_tensor *b, const char *row) {
    float buf[CPU_PIECE];
    for (int64_t i = 0; i < b->ne[0]; i += CPU_PIECE) {
        const int64_t n = min_i64(b->ne[0] - i, CPU_PIECE);
        k->add(n, to + i, to + i, cpu_row_load(k, b, row, i, n, buf));
    }
}

static void part_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct ggml_tensor *b = op->src[1];
    struct part part = {0}; // unused if b is empty
    if (!ggml_is_empty(b) && !part_of(op, &part)) {
        cpu_fail(p,
            "%s '%s': the part at offset %d with strides %d, %d, %d for [%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64
            "] elements is not aligned to elements or not within the %zu bytes of the result",
            ggml_op_name(op->op), op->name, param_i32(op, 3), param_i32(op, 0), param_i32(op, 1), param_i32(op, 2), b->ne[0],
            b->ne[1], b->ne[2], b->ne[3], ggml_nbytes(op));
        return; // all tasks return, so none waits
    }
    result_init(p, op);
    if (ggml_is_empty(b) || (part.overlaps && p->ith != 0)) {
        return;
    }
    int64_t r0 = 0, r1 = ggml_nrows(b);
    if (!part.overlaps) {
        cpu_share(p, r1, &r0, &r1);
    }
    for (int64_t ir = r0; ir < r1; ir++) {
        const struct cpu_row_pos at = cpu_row_pos(b, ir);
        char *to = (char *) op->data + part.off + (size_t) at.i1 * part.nb[1] + (size_t) at.i2 * part.nb[2] +
                   (size_t) at.i3 * part.nb[3];
        if (op->op == GGML_OP_ACC) {
            row_add(p->k, (float *) (void *) to, b, cpu_row(b, at));
        } else {
            cells_copy(to, part.nb[0], cpu_row(b, at), b->nb[0], b->ne[0], part.nb[0]);
        }
    }
}

// ---- ADD1 ----

static bool add1_supports(const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    const struct cpu_kernels *k = &cpu_kernels_portable;
    return a != NULL && b != NULL && op->type == a->type && cpu_is_float(b->type) && ggml_nelements(b) == 1 &&
           ggml_are_same_shape(a, op) && cells_movable(a) && cells_movable(op) && k->to_float[a->type] != NULL &&
           k->traits[a->type].from_float != NULL;
}

static void add1_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    float buf_x[CPU_PIECE], buf_y[CPU_PIECE], v;
    p->k->to_float[op->src[1]->type](op->src[1]->data, &v, 1);
    for (struct cpu_pieces it = cpu_pieces(p, op); cpu_piece_next(&it);) {
        char *row = cpu_row(op, it.at);
        const float *x = cpu_row_load(p->k, a, cpu_row(a, it.at), it.i0, it.n, buf_x);
        float *y = cpu_row_target(op, row, it.i0, buf_y);
        for (int64_t i = 0; i < it.n; i++) {
            y[i] = x[i] + v;
        }
        cpu_row_store(p->k, op, row, it.i0, it.n, y);
    }
}

const struct cpu_op_entry cpu_ops_repeat[] = {
    {GGML_OP_REPEAT, {.supports = repeat_supports, .run = repeat_run}},
    {GGML_OP_CONCAT, {.supports = concat_supports, .run = concat_run, .empty_srcs = 1 << 0 | 1 << 1}},
    {GGML_OP_DIAG, {.supports = diag_supports, .run = diag_run}},
    {GGML_OP_ACC, {.supports = part_supports, .run = part_run, .uses = CPU_USE_ADD, .empty_srcs = 1 << 1}},
    {GGML_OP_SET, {.supports = part_supports, .run = part_run, .empty_srcs = 1 << 1}},
    {GGML_OP_ADD1, {.supports = add1_supports, .run = add1_run, .uses = CPU_USE_CONVERT}},
    CPU_OPS_END,
};
