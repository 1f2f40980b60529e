// SPDX-License-Identifier: MIT
// dot.c: portable dot products of the float types, in LANES partial sums, and the tile of f32 that matmul.c uses.

#include "cpu/kernels.h"

#include "quant/half.h"

#include <stddef.h>

#define LANES 16

static float lanes_sum(const float *lane) {
    float sum[4];
    for (int j = 0; j < 4; j++) {
        sum[j] = (lane[j] + lane[j + 4]) + (lane[j + 8] + lane[j + 12]);
    }
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

#define DOT(name, element, to_float) \
    static void name( \
        int n, float *restrict s, size_t bs, const void *restrict vx, size_t bx, const void *restrict vy, size_t by, int nrc) { \
        (void) bs, (void) bx, (void) by, (void) nrc; \
        const element *x = vx, *y = vy; \
        float lane[LANES] = {0}; \
        int i = 0; \
        for (; i + LANES <= n; i += LANES) { \
            for (int j = 0; j < LANES; j++) { \
                lane[j] += to_float(x[i + j]) * to_float(y[i + j]); \
            } \
        } \
        float sum = lanes_sum(lane); \
        for (; i < n; i++) { \
            sum += to_float(x[i]) * to_float(y[i]); \
        } \
        *s = sum; \
    }

#define AS_IS(v) (v)
DOT(vec_dot_f32, float, AS_IS)
DOT(vec_dot_f16, uint16_t, berth_half_to_float)
DOT(vec_dot_bf16, uint16_t, berth_bf16_to_float)

void cpu_ukr_dot(struct cpu_kernels *k) {
    static const struct {
        enum ggml_type type;
        ggml_vec_dot_t dot;
    } rows[] = {{GGML_TYPE_F32, vec_dot_f32}, {GGML_TYPE_F16, vec_dot_f16}, {GGML_TYPE_BF16, vec_dot_bf16}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct ggml_type_traits_cpu *t = &k->traits[rows[i].type];
        t->vec_dot = rows[i].dot;
        t->vec_dot_type = rows[i].type;
        t->nrows = 1;
    }
}
