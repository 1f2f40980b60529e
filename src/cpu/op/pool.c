// SPDX-License-Identifier: MIT
// pool.c: POOL_1D, POOL_2D, POOL_2D_BACK: the maximum or the mean of each window. Elements of a window outside the data are
// ignored, but the mean of POOL_2D always divides by the size of the complete window. The maximum is at least -FLT_MAX.

#include "base/min.h"
#include "cpu/optable.h"
#include "cpu/rowio.h"

#include <float.h>

// A one-dimensional pool has windows of height 1. Index 0: x, 1: y.
struct pool {
    int32_t kind;    // GGML_OP_POOL_MAX or GGML_OP_POOL_AVG
    int32_t size[2]; // extents of the window
    int32_t stride[2], pad[2];
};

static struct pool pool_of(const struct ggml_tensor *op) {
    const int32_t *q = op->op_params;
    if (op->op == GGML_OP_POOL_1D) {
        return (struct pool){q[0], {q[1], 1}, {q[2], 1}, {q[3], 0}};
    }
    return (struct pool){q[0], {q[1], q[2]}, {q[3], q[4]}, {q[5], q[6]}};
}

static float element_at(const struct cpu_kernels *k, const struct ggml_tensor *t, const char *row, int64_t x) {
    float v;
    const char *at = row + (size_t) x * t->nb[0];
    if (t->type == GGML_TYPE_F32) {
        memcpy(&v, at, sizeof v);
    } else {
        k->to_float[t->type](at, &v, 1);
    }
    return v;
}

static void window_clip(int64_t i, const struct pool *w, int d, int64_t n, int64_t *i0, int64_t *i1) {
    const int64_t first = i * w->stride[d] - w->pad[d];
    *i0 = max_i64(0, first);
    *i1 = min_i64(first + w->size[d], n);
}

// ---- forward ----

static bool pool_supports(const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    const int32_t kind = param_i32(op, 0);
    return a != NULL && cpu_is_float(a->type) && op->type == GGML_TYPE_F32 &&
           (kind == GGML_OP_POOL_MAX || kind == GGML_OP_POOL_AVG) && (op->op == GGML_OP_POOL_2D || a->ne[1] == op->ne[1]) &&
           a->ne[2] == op->ne[2] && a->ne[3] == op->ne[3];
}

static float window_pool(
    const struct cpu_kernels *k, const struct ggml_tensor *op, const struct pool *w, struct cpu_row_pos at, int64_t ox) {
    const struct ggml_tensor *a = op->src[0];
    const bool rows = op->op == GGML_OP_POOL_1D; // each row is pooled separately
    int64_t x0, x1, y0, y1;
    window_clip(ox, w, 0, a->ne[0], &x0, &x1);
    window_clip(at.i1, w, 1, a->ne[1], &y0, &y1);
    const bool max = w->kind == GGML_OP_POOL_MAX;
    float v = max ? -FLT_MAX : 0.0f;
    for (int64_t y = rows ? at.i1 : y0; y < (rows ? at.i1 + 1 : y1); y++) {
        const char *row = cpu_row_at(a, y, at.i2, at.i3);
        for (int64_t x = x0; x < x1; x++) {
            const float e = element_at(k, a, row, x);
            v = max ? max_f32(v, e) : v + e; // if v or e is NaN, max_f32 returns e
        }
    }
    if (max) {
        return v;
    }
    const int64_t n = rows ? x1 - x0 : (int64_t) w->size[0] * w->size[1];
    return n > 0 ? v / (float) n : 0.0f;
}

static void pool_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct pool w = pool_of(op);
    int64_t r0, r1;
    cpu_share(p, ggml_nrows(op), &r0, &r1);
    for (int64_t ir = r0; ir < r1; ir++) {
        const struct cpu_row_pos at = cpu_row_pos(op, ir);
        char *to = cpu_row(op, at);
        for (int64_t x = 0; x < op->ne[0]; x++) {
            const float v = window_pool(p->k, op, &w, at, x);
            memcpy(to + (size_t) x * op->nb[0], &v, sizeof v);
        }
    }
}

// ---- backward: src[0] is the gradient of the pooled image, src[1] the image ----

static bool pool_back_supports(const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *af = op->src[1];
    const int32_t kind = param_i32(op, 0);
    return a != NULL && af != NULL && cpu_is_float(a->type) && cpu_is_float(af->type) && op->type == GGML_TYPE_F32 &&
           (kind == GGML_OP_POOL_MAX || kind == GGML_OP_POOL_AVG) && ggml_are_same_shape(af, op) && a->ne[2] == op->ne[2] &&
           a->ne[3] == op->ne[3];
}

static void grad_add(char *plane, const struct ggml_tensor *op, int64_t x, int64_t y, float g) {
    char *at = plane + (size_t) x * op->nb[0] + (size_t) y * op->nb[1];
    float v;
    memcpy(&v, at, sizeof v);
    v += g;
    memcpy(at, &v, sizeof v);
}

static void window_back(
    const struct cpu_kernels *k, const struct ggml_tensor *op, const struct pool *w, struct cpu_row_pos at, int64_t ox, float g) {
    const struct ggml_tensor *af = op->src[1];
    char *plane = cpu_row_at(op, 0, at.i2, at.i3);
    int64_t x0, x1, y0, y1;
    window_clip(ox, w, 0, op->ne[0], &x0, &x1);
    window_clip(at.i1, w, 1, op->ne[1], &y0, &y1);
    int64_t x_max = -1, y_max = -1;
    float max = -FLT_MAX;
    for (int64_t y = y0; y < y1; y++) {
        const char *row = cpu_row_at(af, y, at.i2, at.i3);
        for (int64_t x = x0; x < x1; x++) {
            if (w->kind == GGML_OP_POOL_AVG) {
                grad_add(plane, op, x, y, g / (float) ((int64_t) w->size[0] * w->size[1]));
                continue;
            }
            const float e = element_at(k, af, row, x);
            if (!(e <= max)) {
                max = e;
                x_max = x;
                y_max = y;
            }
        }
    }
    if (x_max >= 0) {
        grad_add(plane, op, x_max, y_max, g);
    }
}

static void pool_back_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    const struct pool w = pool_of(op);
    int64_t i0, i1;
    cpu_share(p, op->ne[2] * op->ne[3], &i0, &i1);
    for (int64_t i = i0; i < i1; i++) {
        struct cpu_row_pos at = {.i2 = i % op->ne[2], .i3 = i / op->ne[2]};
        for (int64_t y = 0; y < op->ne[1]; y++) {
            for (int64_t x = 0; x < op->ne[0]; x++) {
                memset(cpu_row_at(op, y, at.i2, at.i3) + (size_t) x * op->nb[0], 0, sizeof(float));
            }
        }
        for (at.i1 = 0; at.i1 < a->ne[1]; at.i1++) {
            for (int64_t x = 0; x < a->ne[0]; x++) {
                window_back(p->k, op, &w, at, x, element_at(p->k, a, cpu_row(a, at), x));
            }
        }
    }
}

const struct cpu_op_entry cpu_ops_pool[] = {
    {GGML_OP_POOL_1D, {.supports = pool_supports, .run = pool_run, .uses = CPU_USE_CONVERT}},
    {GGML_OP_POOL_2D, {.supports = pool_supports, .run = pool_run, .uses = CPU_USE_CONVERT}},
    {GGML_OP_POOL_2D_BACK, {.supports = pool_back_supports, .run = pool_back_run, .uses = CPU_USE_CONVERT}},
    CPU_OPS_END,
};
