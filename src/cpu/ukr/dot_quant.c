// SPDX-License-Identifier: MIT
// dot_quant.c: portable dot products of block formats with the activation format each is paired with. They widen both rows to
// floats a piece at a time: correct for every format and none of them fast; tiers replace the formats that matter.
// q4_1 and q5_1 use the block sums q8_1 carries, as its other kernels do: the sum is rounded to a half there.

#include "cpu/kernels.h"

#include "base/min.h"
#include "quant/half.h"
#include "quant/quants.h"

#include <stddef.h>

#define PIECE 256 // a whole number of blocks of every format

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

static void vec_dot_q4_1_q8_1(
    int n, float *restrict s, size_t bs, const void *restrict vx, size_t bx, const void *restrict vy, size_t by, int nrc) {
    (void) bs, (void) bx, (void) by, (void) nrc;
    const block_q4_1 *x = vx;
    const block_q8_1 *y = vy;
    float sum = 0;
    for (int i = 0; i < n / 32; i++) {
        int dot = 0;
        for (int j = 0; j < 16; j++) {
            dot += (x[i].qs[j] & 15) * y[i].qs[j] + (x[i].qs[j] >> 4) * y[i].qs[j + 16];
        }
        sum += berth_half_to_float(x[i].d) * berth_half_to_float(y[i].d) * (float) dot +
               berth_half_to_float(x[i].m) * berth_half_to_float(y[i].s);
    }
    *s = sum;
}

static void vec_dot_q5_1_q8_1(
    int n, float *restrict s, size_t bs, const void *restrict vx, size_t bx, const void *restrict vy, size_t by, int nrc) {
    (void) bs, (void) bx, (void) by, (void) nrc;
    const block_q5_1 *x = vx;
    const block_q8_1 *y = vy;
    float sum = 0;
    for (int i = 0; i < n / 32; i++) {
        int dot = 0;
        for (int j = 0; j < 16; j++) {
            const int lo = (x[i].qs[j] & 15) | (x[i].qh[j / 8] >> (j % 8) & 1) << 4;
            const int hi = (x[i].qs[j] >> 4) | (x[i].qh[j / 8 + 2] >> (j % 8) & 1) << 4;
            dot += lo * y[i].qs[j] + hi * y[i].qs[j + 16];
        }
        sum += berth_half_to_float(x[i].d) * berth_half_to_float(y[i].d) * (float) dot +
               berth_half_to_float(x[i].m) * berth_half_to_float(y[i].s);
    }
    *s = sum;
}

#define DOT(tx, name, ty, ...) \
    static void vec_dot_##tx##_##ty( \
        int n, float *restrict s, size_t bs, const void *restrict x, size_t bx, const void *restrict y, size_t by, int nrc) { \
        (void) bs, (void) bx, (void) by, (void) nrc; \
        *s = dot_widened(n, GGML_TYPE_##tx, x, GGML_TYPE_##ty, y); \
    }
BERTH_FORMATS(DOT)

void cpu_ukr_dot_quant(struct cpu_kernels *k) {
    static const struct {
        enum ggml_type type, with;
        ggml_vec_dot_t dot;
    } rows[] = {
#define ROW(tx, name, ty, ...) {GGML_TYPE_##tx, GGML_TYPE_##ty, vec_dot_##tx##_##ty},
        BERTH_FORMATS(ROW)
#undef ROW
            {GGML_TYPE_Q4_1, GGML_TYPE_Q8_1, vec_dot_q4_1_q8_1},
        {GGML_TYPE_Q5_1, GGML_TYPE_Q8_1, vec_dot_q5_1_q8_1},
        {GGML_TYPE_Q8_1, GGML_TYPE_Q8_1, NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct ggml_type_traits_cpu *t = &k->traits[rows[i].type];
        t->vec_dot = k->to_float[rows[i].type] != NULL ? rows[i].dot : NULL; // the base has the format
        t->vec_dot_type = rows[i].with;
        t->nrows = 1;
    }
}
