// SPDX-License-Identifier: MIT
// wide_matmul.c: products, attention, RoPE, convolutions and pooling, in double precision.

#include "support/wide.h"

#include <stdlib.h>

typedef struct ggml_tensor T;

// ---- products ----

void wide_mul_mat(const T *t, double *y, const double *const *x) {
    const T *a = t->src[0], *b = t->src[1];
    WIDE_EACH(t, p) {
        const int64_t a2 = p.i2 / (b->ne[2] / a->ne[2]), a3 = p.i3 / (b->ne[3] / a->ne[3]);
        y[p.n] = 0;
        for (int64_t k = 0; k < a->ne[0]; k++) {
            y[p.n] += x[0][wide_index(a, k, p.i0, a2, a3)] * x[1][wide_index(b, k, p.i1, p.i2, p.i3)];
        }
    }
}

// t[m, slot, token] uses the expert ids[slot, token].
void wide_mul_mat_id(const T *t, double *y, const double *const *x) {
    const T *as = t->src[0], *b = t->src[1];
    WIDE_EACH(t, p) {
        const int64_t id = (int64_t) x[2][wide_index(t->src[2], p.i1, p.i2, 0, 0)];
        y[p.n] = 0;
        for (int64_t k = 0; k < as->ne[0]; k++) {
            y[p.n] += x[0][wide_index(as, k, p.i0, id, 0)] * x[1][wide_index(b, k, p.i1 % b->ne[1], p.i2, 0)];
        }
    }
}

void wide_out_prod(const T *t, double *y, const double *const *x) {
    const T *a = t->src[0], *b = t->src[1];
    WIDE_EACH(t, p) {
        const int64_t a2 = p.i2 / (b->ne[2] / a->ne[2]), a3 = p.i3 / (b->ne[3] / a->ne[3]);
        y[p.n] = 0;
        for (int64_t k = 0; k < a->ne[1]; k++) {
            y[p.n] += x[0][wide_index(a, p.i0, k, a2, a3)] * x[1][wide_index(b, p.i1, k, p.i2, p.i3)];
        }
    }
}

// ---- attention ----

// Press et al., arXiv 2108.12409.
double wide_slope(double max_bias, int64_t head, int64_t n_head) {
    if (max_bias == 0) {
        return 1;
    }
    const int64_t n = (int64_t) 1 << (int) floor(log2((double) n_head));
    return head < n ? pow(2, -max_bias / (double) n * (double) (head + 1))
                    : pow(2, -max_bias / 2 / (double) n * (double) (2 * (head - n) + 1));
}

// A sink (NULL: none) is a logit that adds to the sum but has no element.
static void softmax_row(int64_t n, double *y, const double *sink) {
    double max = sink != NULL ? *sink : -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++) {
        max = fmax(max, y[i]);
    }
    for (int64_t i = 0; i < n; i++) {
        sum += y[i] = exp(y[i] - max);
    }
    sum += sink != NULL ? exp(*sink - max) : 0;
    for (int64_t i = 0; i < n; i++) {
        y[i] /= sum;
    }
}

void wide_soft_max(const T *t, double *y, const double *const *x) {
    const int64_t n = t->ne[0];
    for (int64_t r = 0; r < ggml_nrows(t); r++) {
        const int64_t i1 = r % t->ne[1], i2 = r / t->ne[1] % t->ne[2], i3 = r / t->ne[1] / t->ne[2];
        const double slope = wide_slope((double) param_f32(t, 1), i2, t->ne[2]);
        for (int64_t i = 0; i < n; i++) {
            const double mask = x[1] != NULL ? x[1][wide_round(t->src[1], i, i1, i2, i3)] : 0;
            y[r * n + i] = (double) param_f32(t, 0) * x[0][r * n + i] + slope * mask;
        }
        softmax_row(n, y + r * n, x[2] != NULL ? &x[2][i2] : NULL);
    }
}

static void attn_row(const T *t, double *row, const double *const *x, int64_t token, int64_t head, int64_t seq) {
    const T *q = t->src[0], *k = t->src[1];
    const double scale = (double) param_f32(t, 0), slope = wide_slope((double) param_f32(t, 1), head, q->ne[2]),
                 cap = (double) param_f32(t, 2);
    const int64_t k2 = head / (q->ne[2] / k->ne[2]), k3 = seq / (q->ne[3] / k->ne[3]);
    for (int64_t j = 0; j < k->ne[1]; j++) {
        double s = 0;
        for (int64_t d = 0; d < k->ne[0]; d++) {
            s += x[0][wide_index(q, d, token, head, seq)] * x[1][wide_index(k, d, j, k2, k3)];
        }
        s = cap != 0 ? cap * tanh(scale * s / cap) : scale * s;
        row[j] = s + (x[3] != NULL ? slope * x[3][wide_round(t->src[3], j, token, head, seq)] : 0);
    }
    softmax_row(k->ne[1], row, x[4] != NULL ? &x[4][head] : NULL);
}

// t: [d, head, token, sequence]
void wide_flash_attn_ext(const T *t, double *y, const double *const *x) {
    const T *q = t->src[0], *v = t->src[2];
    double *row = malloc((size_t) v->ne[1] * sizeof *row);
    WIDE_EACH(t, p) {
        if (p.i0 == 0) {
            attn_row(t, row, x, p.i2, p.i1, p.i3);
        }
        y[p.n] = 0;
        for (int64_t j = 0; j < v->ne[1]; j++) {
            y[p.n] += row[j] * x[2][wide_index(v, p.i0, j, p.i1 / (q->ne[2] / v->ne[2]), p.i3 / (q->ne[3] / v->ne[3]))];
        }
    }
    free(row);
}

// ---- RoPE ----

static double yarn_pair(const T *t, double n_rot) {
    const double n_dims = t->op_params[1], base = (double) param_f32(t, 5);
    return n_dims * log(t->op_params[4] / (n_rot * 2 * 3.14159265358979323846)) / (2 * log(base));
}

// Returns which of the four positions of M-RoPE rotates a pair.
static int rope_section(const T *t, int64_t pair) {
    const int32_t *s = t->op_params + 11;
    const int64_t at = pair % (s[0] + s[1] + s[2] + s[3]);
    if (t->op_params[2] == GGML_ROPE_TYPE_IMROPE) {
        return at < 3 * s[at % 3] ? (int) (at % 3) : 3;
    }
    return at < s[0] ? 0 : at < s[0] + s[1] ? 1 : at < s[0] + s[1] + s[2] ? 2 : 3;
}

static double rope_angle(const T *t, const double *const *x, int64_t pair, int64_t token) {
    const bool is_multi = (t->op_params[2] & GGML_ROPE_TYPE_MROPE) != 0;
    const double pos = x[1][token + (is_multi ? rope_section(t, pair) * t->ne[2] : 0)];
    const double plain =
        pos * pow((double) param_f32(t, 5), -2.0 * (double) pair / t->op_params[1]) / (x[2] != NULL ? x[2][pair] : 1);
    const double scaled = plain * (double) param_f32(t, 6), ext = (double) param_f32(t, 7);
    if (ext == 0) {
        return scaled;
    }
    const double low = fmax(0, floor(yarn_pair(t, (double) param_f32(t, 9))));
    const double high = fmin(t->op_params[1] - 1, ceil(yarn_pair(t, (double) param_f32(t, 10))));
    const double mix = ext * (1 - fmin(1, fmax(0, ((double) pair - low) / fmax(0.001, high - low))));
    return scaled * (1 - mix) + plain * mix;
}

// Computes ROPE, and with negated angles ROPE_BACK.
void wide_rope(const T *t, double *y, const double *const *x) {
    const int64_t n_dims = t->op_params[1], first = t->op_params[15], mode = t->op_params[2];
    const bool neox_order = mode != GGML_ROPE_TYPE_NORMAL;
    const double ext = (double) param_f32(t, 7), sign = t->op == GGML_OP_ROPE_BACK ? -1 : 1;
    const double length = (double) param_f32(t, 8) * (ext != 0 ? 1 + 0.1 * log(1 / (double) param_f32(t, 6)) : 1);
    memcpy(y, x[0], (size_t) ggml_nelements(t) * sizeof *y);
    for (int64_t r = 0; r < ggml_nrows(t); r++) {
        for (int64_t i = 0; i < n_dims / 2; i++) {
            const int64_t a = r * t->ne[0] + first + (neox_order ? i : 2 * i), b = a + (neox_order ? n_dims / 2 : 1);
            const double angle = rope_angle(t, x, i, r / t->ne[1] % t->ne[2]);
            const double c = length * cos(angle), s = sign * length * sin(angle);
            y[a] = x[0][a] * c - x[0][b] * s;
            y[b] = x[0][a] * s + x[0][b] * c;
        }
    }
}

// ---- convolutions ----

// Returns a pixel of data [width, height, channel, image], 0 outside the image.
static double pixel(const T *data, const double *x, int64_t i0, int64_t i1, int64_t channel, int64_t image) {
    const bool inside = i0 >= 0 && i0 < data->ne[0] && i1 >= 0 && i1 < data->ne[1];
    return inside ? x[wide_index(data, i0, i1, channel, image)] : 0;
}

// Returns the pixel at element (k0, k1) of the kernel for element (i0, i1) of the result. op_params: strides, pads, dilations.
static double pixel_at_kernel(
    const T *t, const double *x, int64_t i0, int64_t i1, int64_t k0, int64_t k1, int64_t channel, int64_t image) {
    const int32_t *w = t->op_params;
    return pixel(t->src[1], x, i0 * w[0] + k0 * w[4] - w[2], i1 * w[1] + k1 * w[5] - w[3], channel, image);
}

// A column has the width, height and channels of the kernel. In one dimension, the data is [length, channel, row].
void wide_im2col(const T *t, double *y, const double *const *x) {
    const T *kernel = t->src[0], *data = t->src[1];
    const int32_t *w = t->op_params;
    const int64_t n0 = kernel->ne[0], n1 = kernel->ne[1];
    WIDE_EACH(t, p) {
        if (w[6] != 0) {
            y[p.n] = pixel_at_kernel(t, x[1], p.i1, p.i2, p.i0 % n0, p.i0 / n0 % n1, p.i0 / n0 / n1, p.i3);
        } else {
            const int64_t at = p.i1 * w[0] + p.i0 % n0 * w[4] - w[2];
            y[p.n] = at >= 0 && at < data->ne[0] ? x[1][wide_index(data, at, p.i0 / n0, p.i2, 0)] : 0;
        }
    }
}

void wide_conv_2d(const T *t, double *y, const double *const *x) {
    const T *kernel = t->src[0];
    WIDE_EACH(t, p) {
        y[p.n] = 0;
        WIDE_EACH(kernel, k) {
            if (k.i3 == p.i2) {
                y[p.n] += x[0][k.n] * pixel_at_kernel(t, x[1], p.i0, p.i1, k.i0, k.i1, k.i2, p.i3);
            }
        }
    }
}

void wide_conv_2d_dw(const T *t, double *y, const double *const *x) {
    const T *kernel = t->src[0];
    WIDE_EACH(t, p) {
        y[p.n] = 0;
        WIDE_EACH(kernel, k) {
            if (k.i3 == p.i2) {
                y[p.n] += x[0][k.n] * pixel_at_kernel(t, x[1], p.i0, p.i1, k.i0, k.i1, p.i2, p.i3);
            }
        }
    }
}

// kernel: [k, out, in], data: [length, in]
void wide_conv_transpose_1d(const T *t, double *y, const double *const *x) {
    const T *kernel = t->src[0], *data = t->src[1];
    memset(y, 0, (size_t) ggml_nelements(t) * sizeof *y);
    WIDE_EACH(kernel, k) {
        for (int64_t i = 0; i < data->ne[0]; i++) {
            y[wide_index(t, i * t->op_params[0] + k.i0, k.i1, 0, 0)] += x[0][k.n] * x[1][wide_index(data, i, k.i2, 0, 0)];
        }
    }
}

// kernel: [k0, k1, out, in], data: [width, height, in, image]
void wide_conv_transpose_2d(const T *t, double *y, const double *const *x) {
    const T *kernel = t->src[0];
    const int64_t stride = t->op_params[0];
    memset(y, 0, (size_t) ggml_nelements(t) * sizeof *y);
    WIDE_EACH(t->src[1], d) {
        WIDE_EACH(kernel, k) {
            if (k.i3 == d.i2) {
                y[wide_index(t, d.i0 * stride + k.i0, d.i1 * stride + k.i1, k.i2, d.i3)] += x[0][k.n] * x[1][d.n];
            }
        }
    }
}

// ---- pooling ----

// Maxima ignore elements outside the image. Means of images count them as zeros, means of rows do not count them.
static void pool(const T *t, double *y, const double *x, const int32_t k[2], const int32_t stride[2], const int32_t pad[2]) {
    const T *a = t->src[0];
    const bool is_max = t->op_params[0] == GGML_OP_POOL_MAX;
    WIDE_EACH(t, p) {
        double max = -INFINITY, sum = 0;
        int n_inside = 0;
        for (int64_t n = 0; n < (int64_t) k[0] * k[1]; n++) {
            const int64_t i0 = p.i0 * stride[0] - pad[0] + n % k[0], i1 = p.i1 * stride[1] - pad[1] + n / k[0];
            if (i0 >= 0 && i0 < a->ne[0] && i1 >= 0 && i1 < a->ne[1]) {
                const double v = x[wide_index(a, i0, i1, p.i2, p.i3)];
                max = fmax(max, v);
                sum += v;
                n_inside++;
            }
        }
        y[p.n] = is_max ? max : sum / (t->op == GGML_OP_POOL_1D ? n_inside : k[0] * k[1]);
    }
}

void wide_pool_1d(const T *t, double *y, const double *const *x) {
    const int32_t *w = t->op_params;
    pool(t, y, x[0], (int32_t[]){w[1], 1}, (int32_t[]){w[2], 1}, (int32_t[]){w[3], 0});
}

void wide_pool_2d(const T *t, double *y, const double *const *x) {
    const int32_t *w = t->op_params;
    pool(t, y, x[0], w + 1, w + 3, w + 5);
}
