// SPDX-License-Identifier: MIT
// mix.h: weighted sums of rows (kernels.h: mix) for any vector of floats. Before it is included, these macros must be defined: V, the
// vector; V_LANES; V_LOAD, V_STORE; V_ALL(x), all lanes are x; V_FMA(a, b, c), a b + c; V_WHERE_NOT_0(v, weight), v with 0 in the
// lanes whose weight is 0.
#pragma once

#include "cpu/kernels.h"

#include <math.h>

#define MIX_INLINE static inline __attribute__((always_inline))

#define MIX_ROWS 4                      // rows of y per tile
#define MIX_VECS (V_LANES == 8 ? 2 : 4) // vectors per tile; their sums stay in registers

// some_0: some weights are 0. A row of x with weight 0 must not affect row j of y, even with NaN or infinity.
MIX_INLINE void mix_tile(float *y, int64_t ld_y, const int ny, const int nv, const float *w, int64_t ld_w, const float *x,
    int64_t ld_x, int n, const bool some_0) {
    V a[MIX_ROWS][4];
    for (int j = 0; j < ny; j++) {
        for (int u = 0; u < nv; u++) {
            a[j][u] = V_LOAD(y + j * ld_y + V_LANES * u);
        }
    }
    for (int i = 0; i < n; i++) {
        V v[4];
        for (int u = 0; u < nv; u++) {
            v[u] = V_LOAD(x + i * ld_x + V_LANES * u);
        }
        for (int j = 0; j < ny; j++) {
            const V weight = V_ALL(w[i + j * ld_w]);
            for (int u = 0; u < nv; u++) {
                a[j][u] = V_FMA(some_0 ? V_WHERE_NOT_0(v[u], weight) : v[u], weight, a[j][u]);
            }
        }
    }
    for (int j = 0; j < ny; j++) {
        for (int u = 0; u < nv; u++) {
            V_STORE(y + j * ld_y + V_LANES * u, a[j][u]);
        }
    }
}

// ny: a constant.
MIX_INLINE void mix_rows(int64_t d, float *y, int64_t ld_y, const int ny, const float *w, int64_t ld_w, const float *x,
    int64_t ld_x, int n, const bool some_0) {
    int64_t k = 0;
    for (; k + MIX_VECS * V_LANES <= d; k += MIX_VECS * V_LANES) {
        mix_tile(y + k, ld_y, ny, MIX_VECS, w, ld_w, x + k, ld_x, n, some_0);
    }
    for (; k + V_LANES <= d; k += V_LANES) {
        mix_tile(y + k, ld_y, ny, 1, w, ld_w, x + k, ld_x, n, some_0);
    }
    for (int j = 0; j < ny && k < d; j++) {
        for (int i = 0; i < n; i++) {
            for (int64_t u = k; u < d && w[i + j * ld_w] != 0.0f; u++) {
                y[j * ld_y + u] = fmaf(w[i + j * ld_w], x[i * ld_x + u], y[j * ld_y + u]);
            }
        }
    }
}

static bool has_0(int ny, const float *w, int64_t ld_w, int n) {
    int n_0 = 0;
    for (int j = 0; j < ny; j++) {
        for (int i = 0; i < n; i++) {
            n_0 += w[i + j * ld_w] == 0.0f;
        }
    }
    return n_0 > 0;
}

static void rows_mix(CPU_MIX_ARGS) {
    int j = 0;
    for (; j + MIX_ROWS <= ny; j += MIX_ROWS) {
        if (has_0(MIX_ROWS, w + j * ld_w, ld_w, n)) {
            mix_rows(d, y + j * ld_y, ld_y, MIX_ROWS, w + j * ld_w, ld_w, x, ld_x, n, true);
        } else {
            mix_rows(d, y + j * ld_y, ld_y, MIX_ROWS, w + j * ld_w, ld_w, x, ld_x, n, false);
        }
    }
    for (; j < ny; j++) {
        if (has_0(1, w + j * ld_w, ld_w, n)) {
            mix_rows(d, y + j * ld_y, ld_y, 1, w + j * ld_w, ld_w, x, ld_x, n, true);
        } else {
            mix_rows(d, y + j * ld_y, ld_y, 1, w + j * ld_w, ld_w, x, ld_x, n, false);
        }
    }
}
