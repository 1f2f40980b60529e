// SPDX-License-Identifier: MIT
// rowio.c: see rowio.h. Strided rows are gathered element by element; dense ones go through the kernel table.

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
    // one turn of the source, then copies of what is there already
    int64_t have = 0, from = i0 % ne0;
    const int64_t turn = min_i64(n, ne0);
    while (have < turn) {
        const int64_t m = min_i64(turn - have, ne0 - from);
        const float *found = cpu_row_load(k, t, row, from, m, buf + have);
        if (found != buf + have) {
            memcpy(buf + have, found, (size_t) m * sizeof *buf);
        }
        have += m;
        from = 0;
    }
    while (have < n) {
        const int64_t m = min_i64(n - have, have);
        memcpy(buf + have, buf, (size_t) m * sizeof *buf);
        have += m;
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
