// SPDX-License-Identifier: MIT
// pad.c: PAD, PAD_REFLECT_1D, ROLL, WIN_PART, WIN_UNPART, GET_REL_POS, ADD_REL_POS. Nothing is converted.

#include "base/min.h"
#include "cpu/op/cells.h"
#include "cpu/optable.h"
#include "cpu/rowio.h"

// Result in [0, n), also for negative i; n > 0.
static int64_t index_wrap(int64_t i, int64_t n) {
    const int64_t r = i % n;
    return r < 0 ? r + n : r;
}

// False for block formats.
static bool same_cells(const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    return a != NULL && a->type == op->type && ggml_blck_size(a->type) == 1;
}

// ---- PAD, ROLL ----

static bool pad_supports(const struct ggml_tensor *op) {
    if (!same_cells(op)) {
        return false;
    }
    for (int i = 0; i < GGML_MAX_DIMS; i++) {
        if (op->ne[i] != op->src[0]->ne[i] + param_i32(op, 2 * i) + param_i32(op, 2 * i + 1)) {
            return false;
        }
    }
    return true;
}

struct line {
    char *p;
    size_t step; // bytes between elements
    int64_t n;   // elements
};

// Repeats row `from`. One copy starts at index shift.
static void row_wrap(struct line to, struct line from, int64_t shift, size_t size) {
    for (int64_t i = 0; i < to.n;) {
        const int64_t j = index_wrap(i - shift, from.n);
        const int64_t m = min_i64(to.n - i, from.n - j);
        cells_copy(to.p + (size_t) i * to.step, to.step, from.p + (size_t) j * from.step, from.step, m, size);
        i += m;
    }
}

// Copies row `from` to index shift of `to`, and sets the other elements to zero.
static void row_place(struct line to, struct line from, int64_t shift, size_t size) {
    const int64_t begin = clamp_i64(shift, 0, to.n);
    const int64_t end = max_i64(begin, min_i64(shift + from.n, to.n));
    cells_zero(to.p, to.step, begin, size);
    cells_copy(
        to.p + (size_t) begin * to.step, to.step, from.p + (begin - shift) * (int64_t) from.step, from.step, end - begin, size);
    cells_zero(to.p + (size_t) end * to.step, to.step, to.n - end, size);
}

static void pad_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    const size_t size = ggml_type_size(op->type);
    const bool circular = param_i32(op, 8) != 0 && !ggml_is_empty(a);
    int64_t r0, r1;
    cpu_share(p, ggml_nrows(op), &r0, &r1);
    for (int64_t ir = r0; ir < r1; ir++) {
        const struct cpu_row_pos at = cpu_row_pos(op, ir);
        char *to = cpu_row(op, at);
        int64_t i[] = {0, at.i1, at.i2, at.i3};
        bool inside = a->ne[0] > 0;
        for (int d = 1; d < GGML_MAX_DIMS; d++) {
            i[d] -= param_i32(op, 2 * d);
            if (circular) {
                i[d] = index_wrap(i[d], a->ne[d]);
            }
            inside &= i[d] >= 0 && i[d] < a->ne[d];
        }
        if (!inside) {
            cells_zero(to, op->nb[0], op->ne[0], size);
            continue;
        }
        const struct line from = {cpu_row_at(a, i[1], i[2], i[3]), a->nb[0], a->ne[0]};
        (circular ? row_wrap : row_place)((struct line){to, op->nb[0], op->ne[0]}, from, param_i32(op, 0), size);
    }
}

static bool roll_supports(const struct ggml_tensor *op) {
    return same_cells(op) && ggml_are_same_shape(op->src[0], op);
}

static void roll_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    const size_t size = ggml_type_size(op->type);
    int64_t r0, r1;
    cpu_share(p, ggml_nrows(op), &r0, &r1);
    for (int64_t ir = r0; ir < r1; ir++) {
        const struct cpu_row_pos at = cpu_row_pos(op, ir);
        char *from = cpu_row_at(a, index_wrap(at.i1 - param_i32(op, 1), a->ne[1]), index_wrap(at.i2 - param_i32(op, 2), a->ne[2]),
            index_wrap(at.i3 - param_i32(op, 3), a->ne[3]));
        const struct line to = {cpu_row(op, at), op->nb[0], op->ne[0]};
        row_wrap(to, (struct line){from, a->nb[0], a->ne[0]}, param_i32(op, 0), size);
    }
}

// ---- PAD_REFLECT_1D ----

static bool reflect_supports(const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    const int64_t left = param_i32(op, 0), right = param_i32(op, 1);
    return same_cells(op) && left >= 0 && right >= 0 && left < a->ne[0] && right < a->ne[0] &&
           op->ne[0] == a->ne[0] + left + right && op->ne[1] == a->ne[1] && op->ne[2] == a->ne[2] && op->ne[3] == a->ne[3];
}

static void reflect_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    const int64_t left = param_i32(op, 0), right = param_i32(op, 1), n = a->ne[0];
    const size_t size = ggml_type_size(op->type);
    int64_t r0, r1;
    cpu_share(p, ggml_nrows(op), &r0, &r1);
    for (int64_t ir = r0; ir < r1; ir++) {
        const struct cpu_row_pos at = cpu_row_pos(op, ir);
        const char *from = cpu_row(a, at);
        char *to = cpu_row(op, at) + (size_t) left * op->nb[0]; // position of element 0 of a
        cells_copy(to, op->nb[0], from, a->nb[0], n, size);
        for (int64_t i = 1; i <= left; i++) {
            memcpy(to - (size_t) i * op->nb[0], from + (size_t) i * a->nb[0], size);
        }
        for (int64_t i = 1; i <= right; i++) {
            memcpy(to + (size_t) (n - 1 + i) * op->nb[0], from + (size_t) (n - 1 - i) * a->nb[0], size);
        }
    }
}

// ---- windows: [channels, width, height] to [channels, w, w, windows] and back ----

static bool win_part_supports(const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    const int64_t n_x = param_i32(op, 0), n_y = param_i32(op, 1), w = param_i32(op, 2);
    return same_cells(op) && w > 0 && op->ne[0] == a->ne[0] && op->ne[1] == w && op->ne[2] == w && op->ne[3] == n_x * n_y;
}

static void win_part_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    const int64_t n_x = param_i32(op, 0), w = param_i32(op, 2);
    const size_t size = ggml_type_size(op->type);
    int64_t r0, r1;
    cpu_share(p, ggml_nrows(op), &r0, &r1);
    for (int64_t ir = r0; ir < r1; ir++) {
        const struct cpu_row_pos at = cpu_row_pos(op, ir);
        const int64_t x = at.i3 % n_x * w + at.i1, y = at.i3 / n_x * w + at.i2;
        if (x < a->ne[1] && y < a->ne[2]) {
            cells_copy_row(op, cpu_row(op, at), a, cpu_row_at(a, x, y, 0));
        } else {
            cells_zero(cpu_row(op, at), op->nb[0], op->ne[0], size);
        }
    }
}

static bool win_unpart_supports(const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    const int64_t w = param_i32(op, 0);
    // win_unpart_run checks that the windows cover the result.
    return same_cells(op) && w > 0 && op->ne[0] == a->ne[0] && op->ne[3] == 1;
}

static void win_unpart_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    const int64_t w = param_i32(op, 0);
    const int64_t n_x = (op->ne[1] + w - 1) / w;
    const int64_t n_y = (op->ne[2] + w - 1) / w;
    if (n_x * n_y > a->ne[3] || w > a->ne[1] || w > a->ne[2]) {
        cpu_fail(p, "WIN_UNPART '%s': requires %lld x %lld windows of size %lld, src[0] has %lld of %lld x %lld", op->name,
            (long long) n_x, (long long) n_y, (long long) w, (long long) a->ne[3], (long long) a->ne[1], (long long) a->ne[2]);
        return;
    }
    int64_t r0, r1;
    cpu_share(p, ggml_nrows(op), &r0, &r1);
    for (int64_t ir = r0; ir < r1; ir++) {
        const struct cpu_row_pos at = cpu_row_pos(op, ir);
        const int64_t i_win = at.i2 / w * n_x + at.i1 / w;
        cells_copy_row(op, cpu_row(op, at), a, cpu_row_at(a, at.i1 % w, at.i2 % w, i_win));
    }
}

// ---- relative positions ----

static bool get_rel_pos_supports(const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    // The op copies bits without conversion: a bf16 source gives bf16 bits, even if the result is declared as f16.
    return a != NULL && ggml_type_size(a->type) == ggml_type_size(op->type) && ggml_blck_size(a->type) == 1 &&
           ggml_blck_size(op->type) == 1 && op->ne[0] == a->ne[0] && op->ne[1] == op->ne[2] && a->ne[1] == 2 * op->ne[1] - 1 &&
           op->ne[3] == 1 && a->ne[2] > 0 && a->ne[3] > 0;
}

static void get_rel_pos_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    int64_t r0, r1;
    cpu_share(p, ggml_nrows(op), &r0, &r1);
    for (int64_t ir = r0; ir < r1; ir++) {
        const struct cpu_row_pos at = cpu_row_pos(op, ir);
        cells_copy_row(op, cpu_row(op, at), a, cpu_row_at(a, op->ne[1] - 1 - at.i1 + at.i2, 0, 0));
    }
}

static bool add_rel_pos_supports(const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *pw = op->src[1], *ph = op->src[2];
    int64_t n_cells, n_rows;
    return a != NULL && pw != NULL && ph != NULL && a->type == GGML_TYPE_F32 && op->type == GGML_TYPE_F32 &&
           pw->type == GGML_TYPE_F32 && ph->type == GGML_TYPE_F32 && ggml_are_same_shape(a, op) && ggml_are_same_shape(pw, ph) &&
           ggml_is_contiguous(a) && ggml_is_contiguous(op) && ggml_is_contiguous(pw) && ggml_is_contiguous(ph) &&
           berth_mul_i64_ok(pw->ne[0], pw->ne[0], &n_cells) && n_cells == a->ne[0] &&
           berth_mul_i64_ok(pw->ne[1], pw->ne[2], &n_rows) && n_rows == a->ne[1] && pw->ne[3] == a->ne[2] && a->ne[3] == 1;
}

// A row has w * w elements. Element (y, x) of row r becomes (a[r, y, x] + pw[r, x]) + ph[r, y].
static void add_rel_pos_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *pw = op->src[1], *ph = op->src[2];
    const int64_t w = pw->ne[0];
    int64_t r0, r1;
    cpu_share(p, ggml_nrows(op), &r0, &r1);
    for (int64_t ir = r0; ir < r1; ir++) {
        const float *x = (const float *) a->data + ir * w * w;
        const float *add_w = (const float *) pw->data + ir * w, *add_h = (const float *) ph->data + ir * w;
        float *y = (float *) op->data + ir * w * w;
        for (int64_t i = 0; i < w; i++) {
            for (int64_t j = 0; j < w; j++) {
                y[i * w + j] = (x[i * w + j] + add_w[j]) + add_h[i];
            }
        }
    }
}

const struct cpu_op_entry cpu_ops_pad[] = {
    {GGML_OP_PAD, {.supports = pad_supports, .run = pad_run, .empty_srcs = 1 << 0}},
    {GGML_OP_PAD_REFLECT_1D, {.supports = reflect_supports, .run = reflect_run}},
    {GGML_OP_ROLL, {.supports = roll_supports, .run = roll_run}},
    {GGML_OP_WIN_PART, {.supports = win_part_supports, .run = win_part_run}},
    {GGML_OP_WIN_UNPART, {.supports = win_unpart_supports, .run = win_unpart_run}},
    {GGML_OP_GET_REL_POS, {.supports = get_rel_pos_supports, .run = get_rel_pos_run}},
    {GGML_OP_ADD_REL_POS, {.supports = add_rel_pos_supports, .run = add_rel_pos_run}},
    CPU_OPS_END,
};
