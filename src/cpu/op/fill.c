// SPDX-License-Identifier: MIT
// fill.c: DIAG_MASK_INF, DIAG_MASK_ZERO, TRI, FILL, ARANGE, TIMESTEP_EMBEDDING, LEAKY_RELU.

#include "base/min.h"
#include "cpu/op/cells.h"
#include "cpu/optable.h"
#include "cpu/rowio.h"

#include <math.h>

// ---- triangles ----

static bool same_f32(const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    return a != NULL && a->type == GGML_TYPE_F32 && op->type == GGML_TYPE_F32 && ggml_are_same_shape(a, op);
}

static void row_set(const struct cpu_kernels *k, const struct ggml_tensor *t, char *row, int64_t from, int64_t to, float v) {
    if (t->nb[0] == sizeof(float)) {
        k->fill(to - from, (float *) (void *) row + from, v);
        return;
    }
    for (int64_t i = from; i < to; i++) {
        memcpy(row + (size_t) i * t->nb[0], &v, sizeof v);
    }
}

// In row i1, copies elements [i1 + first, i1 + end) from a and sets the other elements to v.
static void band_run(const struct cpu_params *p, struct ggml_tensor *op, int64_t first, int64_t end, float v) {
    const struct ggml_tensor *a = op->src[0];
    const int64_t n = op->ne[0];
    int64_t r0, r1;
    cpu_share(p, ggml_nrows(op), &r0, &r1);
    for (int64_t ir = r0; ir < r1; ir++) {
        const struct cpu_row_pos at = cpu_row_pos(op, ir);
        char *to = cpu_row(op, at);
        const char *from = cpu_row(a, at);
        const int64_t i0 = clamp_i64(at.i1 + first, 0, n), i1 = clamp_i64(at.i1 + end, 0, n);
        if (to != from && i0 < i1) {
            cells_copy(to + (size_t) i0 * op->nb[0], op->nb[0], from + (size_t) i0 * a->nb[0], a->nb[0], i1 - i0, sizeof(float));
        }
        row_set(p->k, op, to, 0, i0 < i1 ? i0 : 0, v);
        row_set(p->k, op, to, i0 < i1 ? i1 : 0, n, v);
    }
}

#define BEYOND ((int64_t) 1 << 40) // beyond every row; adding an index cannot overflow

static void diag_mask_inf_run(const struct cpu_params *p, struct ggml_tensor *op) {
    band_run(p, op, -BEYOND, (int64_t) param_i32(op, 0) + 1, -INFINITY);
}

static void diag_mask_zero_run(const struct cpu_params *p, struct ggml_tensor *op) {
    band_run(p, op, -BEYOND, (int64_t) param_i32(op, 0) + 1, 0.0f);
}

static bool tri_supports(const struct ggml_tensor *op) {
    return same_f32(op) && (unsigned) param_i32(op, 0) <= GGML_TRI_TYPE_LOWER;
}

static void tri_run(const struct cpu_params *p, struct ggml_tensor *op) {
    static const struct {
        int64_t first, end;
    } kept[] = {
        [GGML_TRI_TYPE_UPPER_DIAG] = {0, BEYOND},
        [GGML_TRI_TYPE_UPPER] = {1, BEYOND},
        [GGML_TRI_TYPE_LOWER_DIAG] = {-BEYOND, 1},
        [GGML_TRI_TYPE_LOWER] = {-BEYOND, 0},
    };
    const int32_t kind = param_i32(op, 0);
    band_run(p, op, kept[kind].first, kept[kind].end, 0.0f);
}

// ---- tensors from numbers ----

static bool fill_supports(const struct ggml_tensor *op) {
    return cpu_is_float(op->type);
}

static void fill_run(const struct cpu_params *p, struct ggml_tensor *op) {
    float v[CPU_PIECE];
    p->k->fill(min_i64(op->ne[0], CPU_PIECE), v, param_f32(op, 0));
    for (struct cpu_pieces it = cpu_pieces(p, op); cpu_piece_next(&it);) {
        cpu_row_store(p->k, op, cpu_row(op, it.at), it.i0, it.n, v);
    }
}

static bool arange_supports(const struct ggml_tensor *op) {
    return op->type == GGML_TYPE_F32;
}

static void arange_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const float start = param_f32(op, 0), step = param_f32(op, 2);
    for (struct cpu_pieces it = cpu_pieces(p, op); cpu_piece_next(&it);) {
        char *row = cpu_row(op, it.at);
        for (int64_t i = it.i0; i < it.i0 + it.n; i++) {
            // The reference's compiler fuses multiplication and addition.
            const float v = fmaf(step, (float) i, start);
            memcpy(row + (size_t) i * op->nb[0], &v, sizeof v);
        }
    }
}

static bool timestep_supports(const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    return a != NULL && a->type == GGML_TYPE_F32 && op->type == GGML_TYPE_F32 && op->nb[0] == sizeof(float) &&
           op->ne[0] == param_i32(op, 0) && op->ne[1] == a->ne[0];
}

// A row holds cos(t f), then sin(t f). Frequencies f fall from 1 towards 1 / max_period. The last element of an odd row is 0.
static void timestep_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    const int64_t half = op->ne[0] / 2;
    const float max_period = (float) param_i32(op, 1);
    int64_t j0, j1;
    cpu_share(p, half, &j0, &j1);
    for (int64_t j = j0; j < j1; j++) {
        const float freq = expf(-logf(max_period) * (float) j / (float) half);
        for (int64_t i = 0; i < op->ne[1]; i++) {
            float *y = (float *) (void *) cpu_row_at(op, i, 0, 0);
            float t;
            memcpy(&t, (const char *) a->data + (size_t) i * a->nb[0], sizeof t);
            y[j] = cosf(t * freq);
            y[j + half] = sinf(t * freq);
        }
    }
    if (op->ne[0] % 2 != 0 && p->ith == 0) {
        for (int64_t i = 0; i < op->ne[1]; i++) {
            ((float *) (void *) cpu_row_at(op, i, 0, 0))[2 * half] = 0.0f;
        }
    }
}

// ---- LEAKY_RELU ----

static bool leaky_relu_supports(const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    return a != NULL && cpu_is_float(a->type) && op->type == a->type && ggml_are_same_shape(a, op);
}

static void leaky_relu_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    const float slope = param_f32(op, 0);
    float buf_x[CPU_PIECE], buf_y[CPU_PIECE];
    for (struct cpu_pieces it = cpu_pieces(p, op); cpu_piece_next(&it);) {
        char *row = cpu_row(op, it.at);
        const float *x = cpu_row_load(p->k, a, cpu_row(a, it.at), it.i0, it.n, buf_x);
        float *y = cpu_row_target(op, row, it.i0, buf_y);
        for (int64_t i = 0; i < it.n; i++) {
            // If x is NaN, max_f32 and min_f32 return their second argument, 0.
            y[i] = max_f32(x[i], 0.0f) + slope * min_f32(x[i], 0.0f);
        }
        cpu_row_store(p->k, op, row, it.i0, it.n, y);
    }
}

const struct cpu_op_entry cpu_ops_fill[] = {
    {GGML_OP_DIAG_MASK_INF, {.supports = same_f32, .run = diag_mask_inf_run, .uses = CPU_USE_FILL}},
    {GGML_OP_DIAG_MASK_ZERO, {.supports = same_f32, .run = diag_mask_zero_run, .uses = CPU_USE_FILL}},
    {GGML_OP_TRI, {.supports = tri_supports, .run = tri_run, .uses = CPU_USE_FILL}},
    {GGML_OP_FILL, {.supports = fill_supports, .run = fill_run, .uses = CPU_USE_FILL | CPU_USE_CONVERT}},
    {GGML_OP_ARANGE, {.supports = arange_supports, .run = arange_run}},
    {GGML_OP_TIMESTEP_EMBEDDING, {.supports = timestep_supports, .run = timestep_run}},
    {GGML_OP_LEAKY_RELU, {.supports = leaky_relu_supports, .run = leaky_relu_run, .uses = CPU_USE_CONVERT}},
    CPU_OPS_END,
};
