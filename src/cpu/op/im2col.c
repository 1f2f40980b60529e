// SPDX-License-Identifier: MIT
// im2col.c: IM2COL and IM2COL_3D copy the windows of an image to columns (columns.h). IM2COL_BACK and COL2IM_1D add the elements
// of each column to its window, in f32. Windows may overlap. Each task computes complete channels, so tasks share no element.

#include "base/min.h"
#include "cpu/op/cells.h"
#include "cpu/op/columns.h"
#include "cpu/op/scratch.h"
#include "cpu/optable.h"
#include "cpu/rowio.h"

// ---- gathering ----

// Range [*i0, *i1) of the taps i < k for which first + i * dil is in [0, n). Tap: a position in a window.
static void taps_inside(int64_t first, int64_t dil, int64_t k, int64_t n, int64_t *i0, int64_t *i1) {
    *i0 = 0;
    *i1 = k;
    while (*i0 < k && (first + *i0 * dil < 0 || first + *i0 * dil >= n)) {
        ++*i0;
    }
    while (*i1 > *i0 && (first + (*i1 - 1) * dil < 0 || first + (*i1 - 1) * dil >= n)) {
        --*i1;
    }
}

void cpu_column_gather(const struct columns *c, const char *data, const int64_t at[3], char *to) {
    int64_t first[3], lo, hi;
    for (int d = 0; d < 3; d++) {
        first[d] = at[d] * c->stride[d] - c->pad[d];
    }
    taps_inside(first[0], c->dil[0], c->k[0], c->n[0], &lo, &hi);
    const int64_t step = (int64_t) ((size_t) c->dil[0] * c->nb[0]); // bytes between taps; may be negative
    const size_t row = (size_t) c->k[0] * c->size;
    for (int64_t ic = 0; ic < c->n_channels; ic++) {
        for (int64_t kz = 0; kz < c->k[2]; kz++) {
            const int64_t z = first[2] + kz * c->dil[2];
            for (int64_t ky = 0; ky < c->k[1]; ky++, to += row) {
                const int64_t y = first[1] + ky * c->dil[1];
                if (z < 0 || z >= c->n[2] || y < 0 || y >= c->n[1] || lo == hi) {
                    memset(to, 0, row);
                    continue;
                }
                const char *from = data + (size_t) ic * c->nb_channel + (size_t) z * c->nb[2] + (size_t) y * c->nb[1] +
                                   (first[0] + lo * c->dil[0]) * (int64_t) c->nb[0];
                memset(to, 0, (size_t) lo * c->size);
                if (c->size == sizeof(float)) { // constant size, so that memcpy is inlined
                    for (int64_t i = lo; i < hi; i++) {
                        memcpy(to + (size_t) i * sizeof(float), from + (i - lo) * step, sizeof(float));
                    }
                } else {
                    for (int64_t i = lo; i < hi; i++) {
                        memcpy(to + (size_t) i * c->size, from + (i - lo) * step, c->size);
                    }
                }
                memset(to + (size_t) hi * c->size, 0, (size_t) (c->k[0] - hi) * c->size);
            }
        }
    }
}

// ---- IM2COL, IM2COL_3D ----

// op_params: [s0, s1, p0, p1, d0, d1, is_2D]
static struct columns columns_2d(const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    const int32_t *q = op->op_params;
    const bool is_2d = q[6] == 1;
    return (struct columns){
        .k = {a->ne[0], is_2d ? a->ne[1] : 1, 1},
        .n = {b->ne[0], is_2d ? b->ne[1] : 1, 1},
        .out = {op->ne[1], is_2d ? op->ne[2] : 1, 1},
        .stride = {q[0], is_2d ? q[1] : 1, 1},
        .pad = {q[2], is_2d ? q[3] : 0, 0},
        .dil = {q[4], is_2d ? q[5] : 1, 1},
        .n_channels = b->ne[is_2d ? 2 : 1],
        .n_batch = b->ne[is_2d ? 3 : 2],
        .nb = {b->nb[0], is_2d ? b->nb[1] : 0, 0},
        .nb_channel = b->nb[is_2d ? 2 : 1],
        .nb_batch = b->nb[is_2d ? 3 : 2],
        .size = ggml_type_size(b->type),
    };
}

// op_params: [s0, s1, s2, p0, p1, p2, d0, d1, d2, channels]. ne[3] of the data is channels * batch size.
static struct columns columns_3d(const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    const int32_t *q = op->op_params;
    const int64_t n_batch = q[9] > 0 ? b->ne[3] / q[9] : 0;
    return (struct columns){
        .k = {a->ne[0], a->ne[1], a->ne[2]},
        .n = {b->ne[0], b->ne[1], b->ne[2]},
        .out = {op->ne[1], op->ne[2], n_batch > 0 ? op->ne[3] / n_batch : 0},
        .stride = {q[0], q[1], q[2]},
        .pad = {q[3], q[4], q[5]},
        .dil = {q[6], q[7], q[8]},
        .n_channels = q[9],
        .n_batch = n_batch,
        .nb = {b->nb[0], b->nb[1], b->nb[2]},
        .nb_channel = b->nb[3],
        .nb_batch = b->nb[3] * (size_t) max_i64(q[9], 0),
        .size = ggml_type_size(b->type),
    };
}

static struct columns columns_of(const struct ggml_tensor *op) {
    return op->op == GGML_OP_IM2COL_3D ? columns_3d(op) : columns_2d(op);
}

static bool im2col_supports(const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    if (a == NULL || b == NULL || !ggml_is_contiguous(op) || !cpu_is_float(op->type) ||
        (b->type != GGML_TYPE_F32 && b->type != op->type)) {
        return false;
    }
    const struct columns c = columns_of(op);
    int64_t n_rows;
    return columns_fit(&c) && berth_mul_i64_ok(columns_count(&c), c.n_batch, &n_rows) && op->ne[0] == columns_length(&c) &&
           ggml_nrows(op) == n_rows;
}

static size_t im2col_work(const struct ggml_tensor *op, int n_tasks) {
    return op->type == op->src[1]->type ? 0 : cpu_scratch_size(op->ne[0], n_tasks);
}

static void im2col_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct ggml_tensor *b = op->src[1];
    const struct columns c = columns_of(op);
    const bool same = op->type == b->type;
    const size_t row_size = (size_t) op->ne[0] * ggml_type_size(op->type);
    float *scratch = same ? NULL : cpu_scratch(p, op->ne[0]);
    int64_t r0, r1;
    cpu_share(p, ggml_nrows(op), &r0, &r1);
    for (int64_t ir = r0; ir < r1; ir++) {
        const int64_t i_batch = ir / columns_count(&c), i = ir % columns_count(&c);
        const int64_t at[] = {i % c.out[0], i / c.out[0] % c.out[1], i / c.out[0] / c.out[1]};
        char *to = (char *) op->data + (size_t) ir * row_size;
        cpu_column_gather(&c, (const char *) b->data + (size_t) i_batch * c.nb_batch, at, same ? to : (char *) scratch);
        if (!same) {
            p->k->traits[op->type].from_float(scratch, to, op->ne[0]);
        }
    }
}

// ---- IM2COL_BACK ----

static bool im2col_back_supports(const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    if (a == NULL || b == NULL || a->type != GGML_TYPE_F32 || op->type != GGML_TYPE_F32 || op->nb[0] != sizeof(float)) {
        return false;
    }
    const bool is_2d = param_i32(op, 6) == 1;
    int64_t length;
    return berth_mul_i64_ok(b->ne[0], is_2d ? b->ne[1] : 1, &length) &&
           berth_mul_i64_ok(length, op->ne[is_2d ? 2 : 1], &length) && a->ne[0] == length &&
           a->ne[is_2d ? 3 : 2] == op->ne[is_2d ? 3 : 2];
}

// Adds the elements of one channel, at `taps`, to the window at (x0, y0).
static void window_add(const struct ggml_tensor *op, char *plane, const char *taps, size_t step, int64_t x0, int64_t y0,
    int64_t kx, int64_t ky, int64_t n_y) {
    const int32_t *q = op->op_params;
    for (int64_t j = 0; j < ky; j++) {
        const int64_t y = y0 + j * q[5];
        for (int64_t i = 0; i < kx && y >= 0 && y < n_y; i++) {
            const int64_t x = x0 + i * q[4];
            if (x >= 0 && x < op->ne[0]) {
                float v;
                memcpy(&v, taps + (size_t) (j * kx + i) * step, sizeof v);
                ((float *) (void *) (plane + (size_t) y * op->nb[1]))[x] += v;
            }
        }
    }
}

static void im2col_back_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    const int32_t *q = op->op_params;
    const bool is_2d = q[6] == 1;
    const int d_channel = is_2d ? 2 : 1;
    const int64_t kx = b->ne[0], ky = is_2d ? b->ne[1] : 1, n_y = is_2d ? op->ne[1] : 1;
    const int64_t n_channels = op->ne[d_channel], n_out_y = is_2d ? a->ne[2] : 1;
    int64_t i0, i1;
    cpu_share(p, n_channels * op->ne[d_channel + 1], &i0, &i1);
    for (int64_t i = i0; i < i1; i++) {
        const int64_t ic = i % n_channels, i_batch = i / n_channels;
        char *plane = (char *) op->data + (size_t) ic * op->nb[d_channel] + (size_t) i_batch * op->nb[d_channel + 1];
        for (int64_t y = 0; y < n_y; y++) {
            p->k->fill(op->ne[0], (float *) (void *) (plane + (size_t) y * op->nb[1]), 0.0f);
        }
        for (int64_t oy = 0; oy < n_out_y; oy++) {
            for (int64_t ox = 0; ox < a->ne[1]; ox++) {
                const char *column = is_2d ? cpu_row_at(a, ox, oy, i_batch) : cpu_row_at(a, ox, i_batch, 0);
                window_add(op, plane, column + (size_t) (ic * kx * ky) * a->nb[0], a->nb[0], ox * q[0] - q[2],
                    is_2d ? oy * q[1] - q[3] : 0, kx, ky, n_y);
            }
        }
    }
}

static int im2col_back_tasks(const struct ggml_tensor *op, int n_threads) {
    const bool is_2d = param_i32(op, 6) == 1;
    const int64_t planes = is_2d ? op->ne[2] * op->ne[3] : op->ne[1] * op->ne[2];
    const int n = cpu_tasks_by_size(op, n_threads);
    return planes < n ? (int) planes : n;
}

// ---- COL2IM_1D: op_params [stride, channels, pad] ----

static bool col2im_supports(const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    const int32_t *q = op->op_params;
    return a != NULL && cpu_is_float(a->type) && op->type == a->type && q[0] > 0 && q[1] > 0 && a->ne[0] % q[1] == 0 &&
           op->ne[1] == q[1] && op->ne[2] == 1 && op->ne[3] == 1 && a->ne[2] == 1 && a->ne[3] == 1;
}

static size_t col2im_work(const struct ggml_tensor *op, int n_tasks) {
    return cpu_scratch_size(op->ne[0], n_tasks);
}

static void col2im_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    const int32_t *q = op->op_params;
    const int64_t k = a->ne[0] / q[1];
    float *sums = cpu_scratch(p, op->ne[0]);
    float buf[CPU_PIECE];
    int64_t c0, c1;
    cpu_share(p, op->ne[1], &c0, &c1);
    for (int64_t c = c0; c < c1; c++) {
        p->k->fill(op->ne[0], sums, 0.0f);
        for (int64_t i = 0; i < a->ne[1]; i++) {
            const int64_t first = i * q[0] - q[2];
            for (int64_t j0 = 0; j0 < k; j0 += CPU_PIECE) {
                const int64_t n = min_i64(k - j0, CPU_PIECE);
                const float *x = cpu_row_load(p->k, a, cpu_row_at(a, i, 0, 0), c * k + j0, n, buf);
                for (int64_t j = 0; j < n; j++) {
                    const int64_t at = first + j0 + j;
                    if (at >= 0 && at < op->ne[0]) {
                        sums[at] += x[j];
                    }
                }
            }
        }
        cpu_row_store(p->k, op, cpu_row_at(op, c, 0, 0), 0, op->ne[0], sums);
    }
}

static int col2im_tasks(const struct ggml_tensor *op, int n_threads) {
    const int n = cpu_tasks_by_size(op, n_threads);
    return op->ne[1] < n ? (int) op->ne[1] : n;
}

const struct cpu_op_entry cpu_ops_im2col[] = {
    {GGML_OP_IM2COL, {.supports = im2col_supports, .work_size = im2col_work, .run = im2col_run, .uses = CPU_USE_CONVERT}},
    {GGML_OP_IM2COL_3D, {.supports = im2col_supports, .work_size = im2col_work, .run = im2col_run, .uses = CPU_USE_CONVERT}},
    {GGML_OP_IM2COL_BACK, {.supports = im2col_back_supports, .n_tasks = im2col_back_tasks, .run = im2col_back_run}},
    {GGML_OP_COL2IM_1D, {.supports = col2im_supports,
                            .n_tasks = col2im_tasks,
                            .work_size = col2im_work,
                            .run = col2im_run,
                            .uses = CPU_USE_CONVERT}},
    CPU_OPS_END,
};
