// SPDX-License-Identifier: MIT
// upscale.c: UPSCALE: scales an f32 image: nearest, bilinear (also with antialiasing), or bicubic. Dimensions 2 and 3 use the
// nearest index. Positions are computed in float, as in the reference: rounding decides which pixel is nearest. Without
// ALIGN_CORNERS, the edges of source and result coincide. With ALIGN_CORNERS, the centres of the outermost pixels coincide.

#include "base/min.h"
#include "cpu/optable.h"

#include <math.h>
#include <string.h>

struct scale {
    float f[GGML_MAX_DIMS]; // result pixels per source pixel
    float offset;           // centre of a pixel: 0.5; ALIGN_CORNERS: 0
};

static struct scale scale_of(const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    const int32_t mode = param_i32(op, 0);
    struct scale s = {.offset = 0.5f};
    for (int i = 0; i < GGML_MAX_DIMS; i++) {
        s.f[i] = (float) op->ne[i] / (float) a->ne[i];
    }
    if ((mode & GGML_SCALE_FLAG_ALIGN_CORNERS) != 0) {
        s.offset = 0.0f;
        for (int i = 0; i < 2; i++) {
            if (op->ne[i] > 1 && a->ne[i] > 1) {
                s.f[i] = (float) (op->ne[i] - 1) / (float) (a->ne[i] - 1);
            }
        }
    }
    return s;
}

static int64_t index_clip(int64_t i, int64_t n) {
    return clamp_i64(i, 0, n - 1);
}

static float pixel_at(const struct ggml_tensor *t, const char *plane, int64_t x, int64_t y) {
    float v;
    memcpy(&v, plane + (size_t) index_clip(x, t->ne[0]) * t->nb[0] + (size_t) index_clip(y, t->ne[1]) * t->nb[1], sizeof v);
    return v;
}

// ---- one pixel of the result ----

typedef float (*sample_t)(const struct ggml_tensor *a, const char *plane, const struct scale *s, int64_t x, int64_t y);

static float sample_nearest(const struct ggml_tensor *a, const char *plane, const struct scale *s, int64_t x, int64_t y) {
    return pixel_at(a, plane, (int64_t) ((float) x / s->f[0]), (int64_t) ((float) y / s->f[1]));
}

// Maps result pixel i to a position in the source. Returns the source pixel before the position, and in *part the distance.
// Outside the image, edge pixels are repeated.
static int64_t pixel_between(int64_t i, float f, float offset, int64_t n, float *part) {
    const float at = ((float) i + offset) / f - offset;
    const int64_t j = (int64_t) floorf(at);
    *part = fminf(1.0f, fmaxf(0.0f, at - (float) index_clip(j, n)));
    return j;
}

static float sample_bilinear(const struct ggml_tensor *a, const char *plane, const struct scale *s, int64_t x, int64_t y) {
    float dx, dy;
    const int64_t x0 = pixel_between(x, s->f[0], s->offset, a->ne[0], &dx),
                  y0 = pixel_between(y, s->f[1], s->offset, a->ne[1], &dy);
    return pixel_at(a, plane, x0, y0) * (1 - dx) * (1 - dy) + pixel_at(a, plane, x0 + 1, y0) * dx * (1 - dy) +
           pixel_at(a, plane, x0, y0 + 1) * (1 - dx) * dy + pixel_at(a, plane, x0 + 1, y0 + 1) * dx * dy;
}

// Triangular weights. The triangle extends one result pixel to each side, at least one source pixel.
static float sample_antialias(const struct ggml_tensor *a, const char *plane, const struct scale *s, int64_t x, int64_t y) {
    const float support[] = {fmaxf(1.0f, 1.0f / s->f[0]), fmaxf(1.0f, 1.0f / s->f[1])};
    const float at[] = {((float) x + s->offset) / s->f[0], ((float) y + s->offset) / s->f[1]};
    int64_t lo[2], hi[2];
    for (int d = 0; d < 2; d++) {
        const int64_t first = (int64_t) (at[d] - support[d] + s->offset), end = (int64_t) (at[d] + support[d] + s->offset);
        lo[d] = max_i64(0, first);
        hi[d] = min_i64(end, a->ne[d]);
    }
    float sum = 0.0f, weights = 0.0f;
    for (int64_t j = lo[1]; j < hi[1]; j++) {
        const float wy = fmaxf(1.0f - fabsf(((float) j - at[1] + s->offset) / support[1]), 0.0f);
        for (int64_t i = lo[0]; i < hi[0]; i++) {
            const float w = fmaxf(1.0f - fabsf(((float) i - at[0] + s->offset) / support[0]), 0.0f) * wy;
            if (w > 0.0f) {
                sum += pixel_at(a, plane, i, j) * w;
                weights += w;
            }
        }
    }
    return weights > 0.0f ? sum / weights : sum;
}

// Cubic convolution with coefficient -0.75. d: distance from the second of four pixels.
static void cubic_weights(float d, float w[4]) {
    const float c = -0.75f;
    const float near[] = {d, 1 - d}, far[] = {d + 1, 2 - d};
    w[0] = ((c * far[0] - 5 * c) * far[0] + 8 * c) * far[0] - 4 * c;
    w[1] = ((c + 2) * near[0] - (c + 3)) * near[0] * near[0] + 1;
    w[2] = ((c + 2) * near[1] - (c + 3)) * near[1] * near[1] + 1;
    w[3] = ((c * far[1] - 5 * c) * far[1] + 8 * c) * far[1] - 4 * c;
}

static float sample_bicubic(const struct ggml_tensor *a, const char *plane, const struct scale *s, int64_t x, int64_t y) {
    const float at_x = ((float) x + s->offset) / s->f[0] - s->offset, at_y = ((float) y + s->offset) / s->f[1] - s->offset;
    const int64_t x0 = (int64_t) floorf(at_x), y0 = (int64_t) floorf(at_y);
    float wx[4], wy[4], sum = 0.0f;
    cubic_weights(at_x - (float) x0, wx);
    cubic_weights(at_y - (float) y0, wy);
    for (int j = 0; j < 4; j++) {
        float row = 0.0f;
        for (int i = 0; i < 4; i++) {
            row += pixel_at(a, plane, x0 - 1 + i, y0 - 1 + j) * wx[i];
        }
        sum += row * wy[j];
    }
    return sum;
}

static sample_t sample_of(const struct ggml_tensor *op) {
    const int32_t mode = param_i32(op, 0);
    switch (mode & 0xFF) {
        case GGML_SCALE_MODE_NEAREST: return sample_nearest;
        case GGML_SCALE_MODE_BILINEAR: return (mode & GGML_SCALE_FLAG_ANTIALIAS) != 0 ? sample_antialias : sample_bilinear;
        case GGML_SCALE_MODE_BICUBIC: return sample_bicubic;
        default: return NULL;
    }
}

// ---- the op ----

static bool upscale_supports(const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    return a != NULL && a->type == GGML_TYPE_F32 && op->type == GGML_TYPE_F32 && sample_of(op) != NULL &&
           (!ggml_is_empty(a) || ggml_is_empty(op));
}

static void upscale_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    const struct scale s = scale_of(op);
    const sample_t sample = sample_of(op);
    int64_t r0, r1;
    cpu_share(p, ggml_nrows(op), &r0, &r1);
    for (int64_t ir = r0; ir < r1; ir++) {
        const struct cpu_row_pos at = cpu_row_pos(op, ir);
        const char *plane = cpu_row_at(a, 0, index_clip((int64_t) ((float) at.i2 / s.f[2]), a->ne[2]),
            index_clip((int64_t) ((float) at.i3 / s.f[3]), a->ne[3]));
        char *to = cpu_row(op, at);
        for (int64_t x = 0; x < op->ne[0]; x++) {
            const float v = sample(a, plane, &s, x, at.i1);
            memcpy(to + (size_t) x * op->nb[0], &v, sizeof v);
        }
    }
}

const struct cpu_op_entry cpu_ops_upscale[] = {
    {GGML_OP_UPSCALE, {.supports = upscale_supports, .run = upscale_run}},
    CPU_OPS_END,
};
