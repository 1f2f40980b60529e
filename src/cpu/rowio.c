// SPDX-License-Identifier: MIT
// rowio.c: the conversions of rowio.h that are not inline. Strided rows are gathered element by element; dense rows are converted
// by the kernel table.

#include "cpu/rowio.h"

#include "base/min.h"
#include "quant/half.h"

static void row_gather(
    const struct cpu_kernels *k, const struct ggml_tensor *t, const char *row, int64_t i0, int64_t n, float *buf) {
    for (int64_t i = 0; i < n; i++) {
        k->to_float[t->type](row + (size_t) (i0 + i) * t->nb[0], buf + i, 1);
    }
}

const float *cpu_row_widen(
    const struct cpu_kernels *k, const struct ggml_tensor *t, const char *row, int64_t i0, int64_t n, float *buf) {
    const size_t size = ggml_type_size(t->type);
    const int64_t blck = ggml_blck_size(t->type);
    if (t->nb[0] != size) {
        row_gather(k, t, row, i0, n, buf);
        return buf;
    }
    const char *at = row + (size_t) (i0 / blck) * size;
    k->to_float[t->type](at, buf, n);
    return buf;
}

const float *cpu_row_load_repeat(
    const struct cpu_kernels *k, const struct ggml_tensor *t, const char *row, int64_t i0, int64_t n, float *buf) {
    const int64_t ne0 = t->ne[0];
    if (i0 + n <= ne0) {
        return cpu_row_load(k, t, row, i0, n, buf);
    }
    // Loads min(n, ne0) elements, the period of the result, and then fills the rest of buf with copies of them.
    int64_t n_done = 0, from = i0 % ne0;
    const int64_t n_period = min_i64(n, ne0);
    while (n_done < n_period) {
        const int64_t m = min_i64(n_period - n_done, ne0 - from);
        const float *found = cpu_row_load(k, t, row, from, m, buf + n_done);
        if (found != buf + n_done) {
            memcpy(buf + n_done, found, (size_t) m * sizeof *buf);
        }
        n_done += m;
        from = 0;
    }
    while (n_done < n) {
        const int64_t m = min_i64(n - n_done, n_done);
        memcpy(buf + n_done, buf, (size_t) m * sizeof *buf);
        n_done += m;
    }
    return buf;
}

void cpu_row_narrow(
    const struct cpu_kernels *k, const struct ggml_tensor *t, char *row, int64_t i0, int64_t n, const float *from) {
    const size_t size = ggml_type_size(t->type);
    const int64_t blck = ggml_blck_size(t->type);
    if (t->nb[0] != size) {
        for (int64_t i = 0; i < n; i++) {
            k->traits[t->type].from_float(from + i, row + (size_t) (i0 + i) * t->nb[0], 1);
        }
        return;
    }
    k->traits[t->type].from_float(from, row + (size_t) (i0 / blck) * size, n);
}
