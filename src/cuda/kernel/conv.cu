// SPDX-License-Identifier: MIT
// conv.cu: im2col, convolutions and pooling of images, and image resizing.

#include "cuda/kernel/common.cuh"
#include "gpu/kernel/conv.h"

// ---- im2col and convolutions ----

// One thread per element. A row is one window, [channel][kz][ky][kx]. Rows are ordered by batch, then window.
KERNEL im2col(const __grid_constant__ struct gpu_conv_args g) {
    dep_begin();
    const struct gpu_columns &c = g.c;
    const int64_t length = c.k[0] * c.k[1] * c.k[2] * c.n_channels, count = c.windows[0] * c.windows[1] * c.windows[2];
    const int size = g.type == GGML_TYPE_F32 ? 4 : 2;
    for (int64_t i = thread_index(); i < length * count * c.n_batch; i += thread_count()) {
        int64_t e = i % length, w = i / length;
        const int64_t kx = e % c.k[0], ky = e / c.k[0] % c.k[1], kz = e / (c.k[0] * c.k[1]) % c.k[2],
                      ic = e / (c.k[0] * c.k[1] * c.k[2]);
        const int64_t batch = w / count;
        w %= count;
        const int64_t x = w % c.windows[0] * c.stride[0] - c.pad[0] + kx * c.dil[0];
        const int64_t y = w / c.windows[0] % c.windows[1] * c.stride[1] - c.pad[1] + ky * c.dil[1];
        const int64_t z = w / (c.windows[0] * c.windows[1]) * c.stride[2] - c.pad[2] + kz * c.dil[2];
        const bool in = x >= 0 && x < c.n[0] && y >= 0 && y < c.n[1] && z >= 0 && z < c.n[2];
        const float v =
            in ? load_number(
                     g.data + x * c.nb[0] + y * c.nb[1] + z * c.nb[2] + ic * c.nb_channel + batch * c.nb_batch, g.data_type)
               : 0.0f;
        store_number(g.dst + i * size, g.type, v);
    }
}

#define CONV_OUT 8 // channels of the result per thread; a pixel is read once for all of them

// One thread per window and CONV_OUT channels. blockIdx.y: group of channels; blockIdx.z: batch.
template <bool HALVES> DEV void conv(const struct gpu_conv_args &g) {
    dep_begin();
    const struct gpu_columns &c = g.c;
    const int64_t count = c.windows[0] * c.windows[1] * c.windows[2], n_taps = c.k[0] * c.k[1] * c.k[2],
                  length = n_taps * c.n_channels;
    const int64_t oc0 = (int64_t) blockIdx.y * CONV_OUT, w = thread_index(), batch = blockIdx.z;
    if (w >= count) {
        return;
    }
    const int64_t x0 = w % c.windows[0] * c.stride[0] - c.pad[0], y0 = w / c.windows[0] % c.windows[1] * c.stride[1] - c.pad[1];
    const int64_t z0 = w / (c.windows[0] * c.windows[1]) * c.stride[2] - c.pad[2];
    float sum[CONV_OUT] = {};
    for (int64_t ic = 0; ic < c.n_channels; ic++) {
        const char *plane = g.data + ic * c.nb_channel + batch * c.nb_batch;
        for (int64_t t = 0; t < n_taps; t++) {
            const int64_t x = x0 + t % c.k[0] * c.dil[0], y = y0 + t / c.k[0] % c.k[1] * c.dil[1],
                          z = z0 + t / (c.k[0] * c.k[1]) * c.dil[2];
            if (x < 0 || x >= c.n[0] || y < 0 || y >= c.n[1] || z < 0 || z >= c.n[2]) {
                continue;
            }
            float v = *(const float *) (plane + x * c.nb[0] + y * c.nb[1] + z * c.nb[2]);
            if (HALVES) {
                v = half_to_float(float_to_half(v));
            }
#pragma unroll
            for (int o = 0; o < CONV_OUT; o++) {
                if (oc0 + o < g.n_out) {
                    const int64_t at = (oc0 + o) * length + ic * n_taps + t;
                    sum[o] += v * (HALVES ? half_to_float(((const uint16_t *) g.kernel)[at]) : ((const float *) g.kernel)[at]);
                }
            }
        }
    }
#pragma unroll
    for (int o = 0; o < CONV_OUT; o++) {
        if (oc0 + o < g.n_out) {
            ((float *) g.dst)[(batch * g.n_out + oc0 + o) * count + w] = sum[o];
        }
    }
}
KERNEL conv_f32(const __grid_constant__ struct gpu_conv_args g) {
    conv<false>(g);
}
KERNEL conv_f16(const __grid_constant__ struct gpu_conv_args g) {
    conv<true>(g);
}

// ---- one thread per element of the result ----

// Depthwise convolution: one filter per channel. a: filters; b: data. p: s0 s1 p0 p1 d0 d1 (strides, padding, dilations).
KERNEL conv_dw(const __grid_constant__ struct gpu_op_args g) {
    dep_begin();
    for (int64_t i = thread_index(); i < g.n; i += thread_count()) {
        const at4 x = g.index.d0.d != 0 ? index_split(i, g.index) : index_split(i, g.dst.ne);
        float sum = 0.0f;
        for (int64_t ky = 0; ky < g.a.ne[1]; ky++) {
            const int64_t y = x.i1 * g.p[1] - g.p[3] + ky * g.p[5];
            for (int64_t kx = 0; kx < g.a.ne[0] && y >= 0 && y < g.b.ne[1]; kx++) {
                const int64_t ix = x.i0 * g.p[0] - g.p[2] + kx * g.p[4];
                if (ix >= 0 && ix < g.b.ne[0]) {
                    sum += *(const float *) at(g.b, ix, y, x.i2, x.i3) * load_number(at(g.a, kx, ky, 0, x.i2), g.a.type);
                }
            }
        }
        *(float *) at(g.dst, x) = sum;
    }
}

// Transposed convolution in one or two dimensions. p[0]: stride.
KERNEL conv_transpose(const __grid_constant__ struct gpu_op_args g) {
    dep_begin();
    const int64_t s = g.p[0];
    const bool flat = g.what == GGML_OP_CONV_TRANSPOSE_1D, halves = g.a.type == GGML_TYPE_F16;
    const int64_t kx_n = g.a.ne[0], ky_n = flat ? 1 : g.a.ne[1], n_in = flat ? g.a.ne[2] : g.a.ne[3];
    for (int64_t i = thread_index(); i < g.n; i += thread_count()) {
        const at4 x = g.index.d0.d != 0 ? index_split(i, g.index) : index_split(i, g.dst.ne);
        const int64_t oy = flat ? 0 : x.i1, oc = flat ? x.i1 : x.i2, batch = flat ? 0 : x.i3;
        float sum = 0.0f;
        for (int64_t iy = 0; iy < (flat ? 1 : g.b.ne[1]); iy++) {
            const int64_t ky = oy - iy * s;
            for (int64_t ix = 0; ix < g.b.ne[0] && ky >= 0 && ky < ky_n; ix++) {
                const int64_t kx = x.i0 - ix * s;
                if (kx < 0 || kx >= kx_n) {
                    continue;
                }
                for (int64_t c = 0; c < n_in; c++) {
                    float v = *(const float *) (flat ? at(g.b, ix, c, 0, 0) : at(g.b, ix, iy, c, batch));
                    const float k = load_number(flat ? at(g.a, kx, oc, c, 0) : at(g.a, kx, ky, oc, c), g.a.type);
                    if (halves) {
                        v = half_to_float(float_to_half(v));
                    }
                    sum += v * k;
                }
            }
        }
        *(float *) at(g.dst, x) = sum;
    }
}

// Pooling. p: kind, k0, k1 (window), s0, s1 (strides), p0, p1 (padding), and 1 for POOL_1D or 0 for POOL_2D.
KERNEL pool(const __grid_constant__ struct gpu_op_args g) {
    dep_begin();
    const bool max = g.p[0] == GGML_OP_POOL_MAX, rows = g.p[7] != 0;
    for (int64_t i = thread_index(); i < g.n; i += thread_count()) {
        const at4 x = g.index.d0.d != 0 ? index_split(i, g.index) : index_split(i, g.dst.ne);
        const int64_t x0 = x.i0 * g.p[3] - g.p[5], y0 = rows ? x.i1 : x.i1 * g.p[4] - g.p[6];
        float v = max ? -3.402823466e+38f : 0.0f;
        int64_t n = 0;
        for (int64_t y = y0; y < y0 + (rows ? 1 : g.p[2]); y++) {
            for (int64_t j = x0; j < x0 + g.p[1] && y >= 0 && y < g.a.ne[1]; j++) {
                if (j >= 0 && j < g.a.ne[0]) {
                    const float e = load_number(at(g.a, j, y, x.i2, x.i3), g.a.type);
                    if (!max) {
                        v += e;
                    } else if (!(v > e)) {
                        v = e;
                    }
                    n++;
                }
            }
        }
        if (!rows) {
            n = (int64_t) g.p[1] * g.p[2];
        }
        if (!max) {
            v = n > 0 ? v / (float) n : 0.0f;
        }
        *(float *) at(g.dst, x) = v;
    }
}

// Gradient of pooling. a: gradient of the pooled image; b: the image.
KERNEL pool_back(const __grid_constant__ struct gpu_op_args g) {
    dep_begin();
    const bool max = g.p[0] == GGML_OP_POOL_MAX;
    for (int64_t i = thread_index(); i < g.n; i += thread_count()) {
        const at4 x = g.index.d0.d != 0 ? index_split(i, g.index) : index_split(i, g.dst.ne);
        float sum = 0.0f;
        for (int64_t oy = 0; oy < g.a.ne[1]; oy++) {
            const int64_t y0 = oy * g.p[4] - g.p[6];
            if (x.i1 < y0 || x.i1 >= y0 + g.p[2]) {
                continue;
            }
            for (int64_t ox = 0; ox < g.a.ne[0]; ox++) {
                const int64_t x0 = ox * g.p[3] - g.p[5];
                if (x.i0 < x0 || x.i0 >= x0 + g.p[1]) {
                    continue;
                }
                const float d = load_number(at(g.a, ox, oy, x.i2, x.i3), g.a.type);
                if (!max) {
                    sum += d / (float) ((int64_t) g.p[1] * g.p[2]);
                    continue;
                }
                int64_t xm = -1, ym = -1;
                float top = -3.402823466e+38f;
                for (int64_t y = y0 < 0 ? 0 : y0; y < y0 + g.p[2] && y < g.dst.ne[1]; y++) {
                    for (int64_t j = x0 < 0 ? 0 : x0; j < x0 + g.p[1] && j < g.dst.ne[0]; j++) {
                        const float e = load_number(at(g.b, j, y, x.i2, x.i3), g.b.type);
                        if (!(e <= top)) {
                            top = e, xm = j, ym = y;
                        }
                    }
                }
                sum += xm == x.i0 && ym == x.i1 ? d : 0.0f;
            }
        }
        *(float *) at(g.dst, x) = sum;
    }
}

// Gradient of im2col: sums columns into images. a: columns; b: tensor with the shape of the filter. p: s0 s1 p0 p1 d0 d1 is_2d.
KERNEL im2col_back(const __grid_constant__ struct gpu_op_args g) {
    dep_begin();
    const bool flat = g.p[6] != 1;
    const int64_t kw = g.b.ne[0], kh = flat ? 1 : g.b.ne[1], oh = flat ? 1 : g.a.ne[2];
    for (int64_t i = thread_index(); i < g.n; i += thread_count()) {
        const at4 x = g.index.d0.d != 0 ? index_split(i, g.index) : index_split(i, g.dst.ne);
        const int64_t y = flat ? 0 : x.i1, ic = flat ? x.i1 : x.i2, batch = flat ? x.i2 : x.i3;
        float sum = 0.0f;
        for (int64_t oy = 0; oy < oh; oy++) {
            for (int64_t ky = 0; ky < kh; ky++) {
                if (!flat && oy * g.p[1] - g.p[3] + ky * g.p[5] != y) {
                    continue;
                }
                for (int64_t ox = 0; ox < g.a.ne[1]; ox++) {
                    for (int64_t kx = 0; kx < kw; kx++) {
                        if (ox * g.p[0] - g.p[2] + kx * g.p[4] == x.i0) {
                            const int64_t e = (ic * kh + ky) * kw + kx;
                            sum += *(const float *) (flat ? at(g.a, e, ox, batch, 0) : at(g.a, e, ox, oy, batch));
                        }
                    }
                }
            }
        }
        *(float *) at(g.dst, x) = sum;
    }
}

// Sums columns into a signal. p: stride, channels, padding.
KERNEL col2im(const __grid_constant__ struct gpu_op_args g) {
    dep_begin();
    const int64_t k = g.a.ne[0] / g.p[1];
    for (int64_t i = thread_index(); i < g.n; i += thread_count()) {
        const int64_t x = i % g.dst.ne[0], c = i / g.dst.ne[0];
        float sum = 0.0f;
        for (int64_t w = 0; w < g.a.ne[1]; w++) {
            const int64_t j = x - (w * g.p[0] - g.p[2]);
            if (j >= 0 && j < k) {
                sum += load_number(at(g.a, c * k + j, w, 0, 0), g.a.type);
            }
        }
        store_number(at(g.dst, x, c, 0, 0), g.dst.type, sum);
    }
}

// ---- resizing ----

DEV int64_t clip(int64_t i, int64_t n) {
    if (i < 0) {
        return 0;
    }
    return i < n ? i : n - 1;
}
// Returns pixel (x, y). Outside the image, returns the nearest pixel of its edge.
DEV float pixel(const struct gpu_view &v, const char *plane, int64_t x, int64_t y) {
    return *(const float *) (plane + clip(x, v.ne[0]) * v.nb[0] + clip(y, v.ne[1]) * v.nb[1]);
}
// Pixel i is between two source pixels. Returns the left pixel. *part: weight of the right pixel.
DEV int64_t between(int64_t i, float f, float offset, int64_t n, float *part) {
    const float at = ((float) i + offset) / f - offset;
    const int64_t j = (int64_t) floorf(at);
    *part = fminf(1.0f, fmaxf(0.0f, at - (float) clip(j, n)));
    return j;
}
// Stores the weights of four neighbouring pixels. d: distance of the point from the second pixel, 0 to 1.
DEV void cubic(float d, float *w) {
    const float c = -0.75f, near0 = d, near1 = 1 - d, far0 = d + 1, far1 = 2 - d;
    w[0] = ((c * far0 - 5 * c) * far0 + 8 * c) * far0 - 4 * c;
    w[1] = ((c + 2) * near0 - (c + 3)) * near0 * near0 + 1;
    w[2] = ((c + 2) * near1 - (c + 3)) * near1 * near1 + 1;
    w[3] = ((c * far1 - 5 * c) * far1 + 8 * c) * far1 - 4 * c;
}
DEV float bicubic(const struct gpu_view &a, const char *plane, float at_x, float at_y) {
    const int64_t x0 = (int64_t) floorf(at_x), y0 = (int64_t) floorf(at_y);
    float wx[4], wy[4], sum = 0.0f;
    cubic(at_x - (float) x0, wx);
    cubic(at_y - (float) y0, wy);
    for (int j = 0; j < 4; j++) {
        float row = 0.0f;
        for (int k = 0; k < 4; k++) {
            row += pixel(a, plane, x0 - 1 + k, y0 - 1 + j) * wx[k];
        }
        sum += row * wy[j];
    }
    return sum;
}
// Returns the weighted mean of the source pixels around pixel (x, y) of the result. The weights are a triangle. Its half width is
// the number of source pixels per result pixel, but at least 1.
DEV float antialias(const struct gpu_view &a, const char *plane, const float *f, float offset, int64_t x, int64_t y) {
    const float support[] = {fmaxf(1.0f, 1.0f / f[0]), fmaxf(1.0f, 1.0f / f[1])};
    const float at[] = {((float) x + offset) / f[0], ((float) y + offset) / f[1]};
    int64_t lo[2], hi[2];
    for (int d = 0; d < 2; d++) {
        const int64_t first = (int64_t) (at[d] - support[d] + offset), end = (int64_t) (at[d] + support[d] + offset);
        lo[d] = max(first, (int64_t) 0);
        hi[d] = min(end, a.ne[d]);
    }
    float sum = 0.0f, weights = 0.0f;
    for (int64_t j = lo[1]; j < hi[1]; j++) {
        const float wy = fmaxf(1.0f - fabsf(((float) j - at[1] + offset) / support[1]), 0.0f);
        for (int64_t i = lo[0]; i < hi[0]; i++) {
            const float w = fmaxf(1.0f - fabsf(((float) i - at[0] + offset) / support[0]), 0.0f) * wy;
            if (w > 0.0f) {
                sum += pixel(a, plane, i, j) * w;
                weights += w;
            }
        }
    }
    return weights > 0.0f ? sum / weights : sum;
}

// f: result pixels per source pixel, per dimension. p[0]: mode and flags.
KERNEL upscale(const __grid_constant__ struct gpu_op_args g) {
    dep_begin();
    const int mode = g.p[0] & 0xff;
    const float offset = (g.p[0] & GGML_SCALE_FLAG_ALIGN_CORNERS) != 0 ? 0.0f : 0.5f;
    for (int64_t i = thread_index(); i < g.n; i += thread_count()) {
        const at4 x = g.index.d0.d != 0 ? index_split(i, g.index) : index_split(i, g.dst.ne);
        const char *plane =
            at(g.a, 0, 0, clip((int64_t) ((float) x.i2 / g.f[2]), g.a.ne[2]), clip((int64_t) ((float) x.i3 / g.f[3]), g.a.ne[3]));
        float v, dx, dy;
        if (mode == GGML_SCALE_MODE_NEAREST) {
            v = pixel(g.a, plane, (int64_t) ((float) x.i0 / g.f[0]), (int64_t) ((float) x.i1 / g.f[1]));
        } else if (mode == GGML_SCALE_MODE_BICUBIC) {
            v = bicubic(g.a, plane, ((float) x.i0 + offset) / g.f[0] - offset, ((float) x.i1 + offset) / g.f[1] - offset);
        } else if ((g.p[0] & GGML_SCALE_FLAG_ANTIALIAS) != 0) {
            v = antialias(g.a, plane, g.f, offset, x.i0, x.i1);
        } else {
            const int64_t x0 = between(x.i0, g.f[0], offset, g.a.ne[0], &dx), y0 = between(x.i1, g.f[1], offset, g.a.ne[1], &dy);
            v = pixel(g.a, plane, x0, y0) * (1 - dx) * (1 - dy) + pixel(g.a, plane, x0 + 1, y0) * dx * (1 - dy) +
                pixel(g.a, plane, x0, y0 + 1) * (1 - dx) * dy + pixel(g.a, plane, x0 + 1, y0 + 1) * dx * dy;
        }
        *(float *) at(g.dst, x) = v;
    }
}
