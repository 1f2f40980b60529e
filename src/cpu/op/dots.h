// SPDX-License-Identifier: MIT
// dots.h: dot products of several rows, by the best kernel for their type.
#pragma once

#include "base/min.h"
#include "cpu/cpu.h"
#include "cpu/rowio.h"

// s[ix + iy * ld_s] = dot(row ix of x, row iy of y) over n elements. x has type `type`, y its vec_dot_type. Rows are bx and by
// bytes apart.
static inline void cpu_dots(const struct cpu_kernels *k, enum ggml_type type, int64_t n, float *s, int64_t ld_s, const char *x,
    size_t bx, int nx, const char *y, size_t by, int ny) {
    const struct cpu_tile *tile = &k->tile[type];
    if (tile->run == NULL) {
        const ggml_vec_dot_t dot = k->traits[type].vec_dot;
        for (int ix = 0; ix < nx; ix++) {
            for (int iy = 0; iy < ny; iy++) {
                dot(cpu_dot_length(n), s + ix + iy * ld_s, 0, x + (size_t) ix * bx, 0, y + (size_t) iy * by, 0, 1);
            }
        }
        return;
    }
    for (int iy = 0; iy < ny; iy += tile->nr) {
        for (int ix = 0; ix < nx; ix += tile->mr) {
            tile->run(n, s + ix + iy * ld_s, ld_s, x + (size_t) ix * bx, bx, min_int(nx - ix, tile->mr), y + (size_t) iy * by, by,
                min_int(ny - iy, tile->nr));
        }
    }
}

// ---- MUL_MAT and MUL_MAT_ID: rows of src[0] with rows of src[1] ----

// The type to which rows of src[1] are converted for the dot products of src[0]'s type.
static inline enum ggml_type cpu_dot_type(const struct ggml_tensor *op) {
    return cpu_kernels_portable.traits[op->src[0]->type].vec_dot_type;
}

static inline bool cpu_dot_is_ready(const struct ggml_tensor *op) {
    const struct ggml_tensor *b = op->src[1];
    return b->type == cpu_dot_type(op) && b->nb[0] == ggml_type_size(b->type);
}

static inline bool cpu_dot_supports(const struct ggml_tensor *op) {
    const struct cpu_kernels *k = &cpu_kernels_portable;
    const struct ggml_tensor *a = op->src[0];
    return k->traits[a->type].vec_dot != NULL && cpu_dot_is_length(a->ne[0]) && a->nb[0] == ggml_type_size(a->type) &&
           (cpu_dot_is_ready(op) || (cpu_is_float(op->src[1]->type) && k->traits[cpu_dot_type(op)].from_float != NULL));
}

// Returns one task per 32768 multiplications, which take about 3 us: waking a task and waiting for it takes less than 1 us.
static inline int cpu_dot_tasks(const struct ggml_tensor *op, int n_threads) {
    const double n = (double) ggml_nelements(op) * (double) op->src[0]->ne[0] / 32768;
    return cpu_tasks_for(n, n_threads);
}
