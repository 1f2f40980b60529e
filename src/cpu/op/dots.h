// SPDX-License-Identifier: MIT
// dots.h: dot products of some rows with some other rows, by the best micro-kernel there is for their type.
#pragma once

#include "cpu/cpu.h"

// s[ix + iy * ld_s] = dot(row ix of x, row iy of y) over n elements; x is of the type given, y of its vec_dot_type; bx and by:
// bytes from row to row.
static inline void cpu_dots(const struct cpu_kernels *k, enum ggml_type type, int64_t n, float *s, int64_t ld_s, const char *x,
    size_t bx, int nx, const char *y, size_t by, int ny) {
    const struct cpu_tile *tile = &k->tile[type];
    if (tile->run == NULL) {
        const ggml_vec_dot_t dot = k->traits[type].vec_dot;
        for (int ix = 0; ix < nx; ix++) {
            for (int iy = 0; iy < ny; iy++) {
                dot((int) n, s + ix + iy * ld_s, 0, x + (size_t) ix * bx, 0, y + (size_t) iy * by, 0, 1);
            }
        }
        return;
    }
    for (int iy = 0; iy < ny; iy += tile->nr) {
        for (int ix = 0; ix < nx; ix += tile->mr) {
            tile->run(n, s + ix + iy * ld_s, ld_s, x + (size_t) ix * bx, bx, nx - ix < tile->mr ? nx - ix : tile->mr,
                y + (size_t) iy * by, by, ny - iy < tile->nr ? ny - iy : tile->nr);
        }
    }
}
