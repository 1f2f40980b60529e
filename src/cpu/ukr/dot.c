// SPDX-License-Identifier: MIT
// dot.c: portable dot products. Float types use LANES partial sums. Block formats convert both rows to floats, one piece at a
// time. This is slow, so tiers replace the kernels of common formats.

#include "base/min.h"
#include "cpu/kernels.h"
#include "quant/half.h"
#include "quant/quants.h"

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
    static void name(CPU_DOT_ARGS) { \
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

#define IDENTITY(v) (v)
DOT(vec_dot_f32, float, IDENTITY)
DOT(vec_dot_f16, uint16_t, berth_half_to_float)
DOT(vec_dot_bf16, uint16_t, berth_bf16_to_float)

// ---- block formats ----

#define PIECE 256 // a multiple of the block size of every format

static float dot_f32(int n, const float *x, const float *y) {
    float lane[16] = {0};
    int i = 0;
    for (; i + 16 <= n; i += 16) {
        for (int j = 0; j < 16; j++) {
            lane[j] += x[i + j] * y[i + j];
        }
    }
    float sum = 0;
    for (int j = 0; j < 16; j++) {
        sum += lane[j];
    }
    return sum;
}

static float dot_widened(int n, enum ggml_type tx, const char *x, enum ggml_type ty, const char *y) {
    const size_t x_step = ggml_row_size(tx, PIECE), y_step = ggml_row_size(ty, PIECE);
    float a[PIECE], b[PIECE];
    double sum = 0;
    for (int i = 0; i < n; i += PIECE, x += x_step, y += y_step) {
        const int m = min_int(n - i, PIECE);
        cpu_kernels_portable.to_float[tx](x, a, m);
        cpu_kernels_portable.to_float[ty](y, b, m);
        sum += dot_f32(m, a, b);
    }
    return (float) sum;
}

#define DOT_WIDENED(tx, name, ty, ...) \
    static void vec_dot_##tx##_##ty(CPU_DOT_ARGS) { \
        *s = dot_widened(n, GGML_TYPE_##tx, vx, GGML_TYPE_##ty, vy); \
    }
BERTH_FORMATS(DOT_WIDENED)

// q4_1 and q5_1 multiply m with the block sum s of q8_1. All tiers use this s, which is rounded to f16.
#define DOT_MIN(type, low, high) \
    static void vec_dot_##type##_q8_1(CPU_DOT_ARGS) { \
        const block_##type *x = vx; \
        const block_q8_1 *y = vy; \
        float sum = 0; \
        for (int i = 0; i < n / 32; i++) { \
            int dot = 0; \
            for (int j = 0; j < 16; j++) { \
                dot += (low) *y[i].qs[j] + (high) *y[i].qs[j + 16]; \
            } \
            sum += berth_half_to_float(x[i].d) * berth_half_to_float(y[i].d) * (float) dot + \
                   berth_half_to_float(x[i].m) * berth_half_to_float(y[i].s); \
        } \
        *s = sum; \
    }
DOT_MIN(q4_1, x[i].qs[j] & 15, x[i].qs[j] >> 4)
DOT_MIN(
    q5_1, (x[i].qs[j] & 15) | (x[i].qh[j / 8] >> (j % 8) & 1) << 4, (x[i].qs[j] >> 4) | (x[i].qh[j / 8 + 2] >> (j % 8) & 1) << 4)

void cpu_ukr_dot(struct cpu_kernels *k) {
    static const struct {
        enum ggml_type type, with;
        ggml_vec_dot_t dot;
    } rows[] = {
        {GGML_TYPE_F32, GGML_TYPE_F32, vec_dot_f32},
        {GGML_TYPE_F16, GGML_TYPE_F16, vec_dot_f16},
        {GGML_TYPE_BF16, GGML_TYPE_BF16, vec_dot_bf16},
#define ROW(tx, name, ty, ...) {GGML_TYPE_##tx, GGML_TYPE_##ty, vec_dot_##tx##_##ty},
        BERTH_FORMATS(ROW)
#undef ROW
            {GGML_TYPE_Q4_1, GGML_TYPE_Q8_1, vec_dot_q4_1_q8_1},
        {GGML_TYPE_Q5_1, GGML_TYPE_Q8_1, vec_dot_q5_1_q8_1},
        {GGML_TYPE_Q8_1, GGML_TYPE_Q8_1, NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct ggml_type_traits_cpu *t = &k->traits[rows[i].type];
        // If to_float is NULL, the loaded libggml-base is not Berth's and lacks the format.
        t->vec_dot = rows[i].type == GGML_TYPE_F32 || k->to_float[rows[i].type] != NULL ? rows[i].dot : NULL;
        t->vec_dot_type = rows[i].with;
        t->nrows = 1;
    }
}
