// SPDX-License-Identifier: MIT
// compare.c: computes the difference between two results.

#include "op.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double *op_values(const struct ggml_tensor *t) {
    double *v = malloc((size_t) ggml_nelements(t) * sizeof *v + 1);
    float *x = malloc((size_t) t->ne[0] * sizeof *x + 1);
    size_t n = 0;
    for (int64_t ir = 0; ir < ggml_nrows(t); ir++) {
        const int64_t i3 = ir / (t->ne[1] * t->ne[2]), i2 = ir / t->ne[1] % t->ne[2], i1 = ir % t->ne[1];
        const char *row = (const char *) t->data + (size_t) i1 * t->nb[1] + (size_t) i2 * t->nb[2] + (size_t) i3 * t->nb[3];
        if (ggml_is_quantized(t->type)) {
            ggml_get_type_traits(t->type)->to_float(row, x, t->ne[0]);
        }
        for (int64_t i0 = 0; i0 < t->ne[0]; i0++) {
            const char *at = row + (size_t) i0 * t->nb[0];
            int64_t v64;
            double v_f64;
            switch (t->type) {
                case GGML_TYPE_F32: v[n++] = *(const float *) (const void *) at; break;
                case GGML_TYPE_F16: v[n++] = ggml_fp16_to_fp32(*(const ggml_fp16_t *) (const void *) at); break;
                case GGML_TYPE_BF16: v[n++] = ggml_bf16_to_fp32(*(const ggml_bf16_t *) (const void *) at); break;
                case GGML_TYPE_I8: v[n++] = *(const int8_t *) at; break;
                case GGML_TYPE_I16: v[n++] = *(const int16_t *) (const void *) at; break;
                case GGML_TYPE_I32: v[n++] = *(const int32_t *) (const void *) at; break;
                case GGML_TYPE_I64: memcpy(&v64, at, sizeof v64), v[n++] = (double) v64; break;
                case GGML_TYPE_F64: memcpy(&v_f64, at, sizeof v_f64), v[n++] = v_f64; break;
                default: v[n++] = x[i0];
            }
        }
    }
    free(x);
    return v;
}

double op_rounded(enum ggml_type type, double v) {
    const float f = (float) v;
    switch (type) {
        case GGML_TYPE_F16: return ggml_fp16_to_fp32(ggml_fp32_to_fp16(f));
        case GGML_TYPE_BF16: return ggml_bf16_to_fp32(ggml_fp32_to_bf16(f));
        default: return f;
    }
}

double op_nmse(const double *got, const double *want, int64_t n) {
    double err = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) {
        if (isnan(want[i]) || isnan(got[i]) || isinf(want[i]) || isinf(got[i])) {
            if (!(isnan(want[i]) && isnan(got[i])) && got[i] != want[i]) {
                return INFINITY;
            }
            continue;
        }
        err += (got[i] - want[i]) * (got[i] - want[i]);
        norm += want[i] * want[i];
    }
    return err == 0 ? 0 : norm == 0 ? INFINITY : err / norm;
}
