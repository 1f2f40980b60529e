#version 450
// SPDX-License-Identifier: MIT
// convolution.comp: im2col, convolutions and pooling of images, and image resizing.
//KERNEL im2col
//KERNEL conv_f32
//KERNEL conv_f16
//KERNEL conv_dw
//KERNEL conv_transpose
//KERNEL pool
//KERNEL pool_back
//KERNEL im2col_back
//KERNEL col2im
//KERNEL upscale
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "tensor.glsl"
#include "conv.h"

#if defined(KERNEL_im2col) || defined(KERNEL_conv_f32) || defined(KERNEL_conv_f16)
ARGS(gpu_conv_args)
#else
ARGS(gpu_op_args)
#endif

float to_f16_and_back(float v) {
    return half_to_float(float_to_half(v));
}

#ifdef KERNEL_im2col
// One thread per element. A row is one window, [channel][kz][ky][kx]. Rows are ordered by batch, then window.
void main() {
    const int64_t k0 = g.c.k[0], k1 = g.c.k[1], k2 = g.c.k[2], out0 = g.c.windows[0], out1 = g.c.windows[1];
    const int64_t n_in_row = k0 * k1 * k2 * g.c.n_channels, count = out0 * out1 * g.c.windows[2];
    const int size = g.type == GGML_TYPE_F32 ? 4 : 2;
    for (int64_t i = thread_index(); i < n_in_row * count * g.c.n_batch; i += thread_count()) {
        const int64_t e = i % n_in_row, row = i / n_in_row;
        const int64_t kx = e % k0, ky = e / k0 % k1, kz = e / (k0 * k1) % k2, ic = e / (k0 * k1 * k2);
        const int64_t batch = row / count, w = row % count;
        const int64_t x = w % out0 * g.c.stride[0] - g.c.pad[0] + kx * g.c.dil[0];
        const int64_t y = w / out0 % out1 * g.c.stride[1] - g.c.pad[1] + ky * g.c.dil[1];
        const int64_t z = w / (out0 * out1) * g.c.stride[2] - g.c.pad[2] + kz * g.c.dil[2];
        float v = 0.0;
        if (x >= 0 && x < g.c.n[0] && y >= 0 && y < g.c.n[1] && z >= 0 && z < g.c.n[2]) {
            v = load_number(g.data + uint64_t(x * g.c.nb[0] + y * g.c.nb[1] + z * g.c.nb[2] + ic * g.c.nb_channel +
                                              batch * g.c.nb_batch),
                g.data_type);
        }
        store_number(g.dst + uint64_t(i * size), g.type, v);
    }
}
#endif
#if defined(KERNEL_conv_f32) || defined(KERNEL_conv_f16)
const int CONV_OUT = 8; // channels of the result per thread; equals CONV_OUT in gpu/op/conv.c
// One thread per window and CONV_OUT channels. gl_WorkGroupID.y: group of channels; gl_WorkGroupID.z: batch.
void main() {
    const int64_t k0 = g.c.k[0], k1 = g.c.k[1], n_taps = k0 * k1 * g.c.k[2], n_in_row = n_taps * g.c.n_channels;
    const int64_t count = g.c.windows[0] * g.c.windows[1] * g.c.windows[2];
    const int64_t oc0 = int64_t(gl_WorkGroupID.y) * CONV_OUT, w = thread_index(), batch = int64_t(gl_WorkGroupID.z);
    if (w >= count) {
        return;
    }
    const int64_t x0 = w % g.c.windows[0] * g.c.stride[0] - g.c.pad[0];
    const int64_t y0 = w / g.c.windows[0] % g.c.windows[1] * g.c.stride[1] - g.c.pad[1];
    const int64_t z0 = w / (g.c.windows[0] * g.c.windows[1]) * g.c.stride[2] - g.c.pad[2];
    float sum[CONV_OUT];
    for (int o = 0; o < CONV_OUT; o++) {
        sum[o] = 0.0;
    }
    for (int64_t ic = 0; ic < g.c.n_channels; ic++) {
        const uint64_t plane = g.data + uint64_t(ic * g.c.nb_channel + batch * g.c.nb_batch);
        for (int64_t t = 0; t < n_taps; t++) {
            const int64_t x = x0 + t % k0 * g.c.dil[0], y = y0 + t / k0 % k1 * g.c.dil[1], z = z0 + t / (k0 * k1) * g.c.dil[2];
            if (x < 0 || x >= g.c.n[0] || y < 0 || y >= g.c.n[1] || z < 0 || z >= g.c.n[2]) {
                continue;
            }
            float v = load_f32(plane + uint64_t(x * g.c.nb[0] + y * g.c.nb[1] + z * g.c.nb[2]));
#    ifdef KERNEL_conv_f16
            v = to_f16_and_back(v);
#    endif
            for (int o = 0; o < CONV_OUT; o++) {
                if (oc0 + o < g.n_out) {
                    const int64_t at = (oc0 + o) * n_in_row + ic * n_taps + t;
#    ifdef KERNEL_conv_f16
                    sum[o] += v * half_to_float(load_u16(g.kernel + uint64_t(at * 2)));
#    else
                    sum[o] += v * load_f32(g.kernel + uint64_t(at * 4));
#    endif
                }
            }
        }
    }
    for (int o = 0; o < CONV_OUT; o++) {
        if (oc0 + o < g.n_out) {
            store_f32(g.dst + uint64_t(((batch * g.n_out + oc0 + o) * count + w) * 4), sum[o]);
        }
    }
}
#endif

// ---- one thread per element of the result ----

#ifdef KERNEL_conv_dw
// Depthwise convolution: one filter per channel. a: filters; b: data. p: s0 s1 p0 p1 d0 d1 (strides, padding, dilations).
float element_of(at4 x) {
    float sum = 0.0;
    for (int64_t ky = 0; ky < g.a.ne[1]; ky++) {
        const int64_t y = x.i1 * g.p[1] - g.p[3] + ky * g.p[5];
        for (int64_t kx = 0; kx < g.a.ne[0] && y >= 0 && y < g.b.ne[1]; kx++) {
            const int64_t ix = x.i0 * g.p[0] - g.p[2] + kx * g.p[4];
            if (ix >= 0 && ix < g.b.ne[0]) {
                sum += load_f32(at_indices(g.b, ix, y, x.i2, x.i3)) * load_number(at_indices(g.a, kx, ky, 0, x.i2), g.a.type);
            }
        }
    }
    return sum;
}
#endif
#ifdef KERNEL_conv_transpose
// Transposed convolution in one or two dimensions. p[0]: stride.
float element_of(at4 x) {
    const int64_t s = g.p[0];
    const bool is_flat = g.what == GGML_OP_CONV_TRANSPOSE_1D, halves = g.a.type == GGML_TYPE_F16;
    const int64_t kx_n = g.a.ne[0], ky_n = is_flat ? 1 : g.a.ne[1], n_in = is_flat ? g.a.ne[2] : g.a.ne[3];
    const int64_t oy = is_flat ? 0 : x.i1, oc = is_flat ? x.i1 : x.i2, batch = is_flat ? 0 : x.i3, n_y = is_flat ? 1 : g.b.ne[1];
    float sum = 0.0;
    for (int64_t iy = 0; iy < n_y; iy++) {
        const int64_t ky = oy - iy * s;
        for (int64_t ix = 0; ix < g.b.ne[0] && ky >= 0 && ky < ky_n; ix++) {
            const int64_t kx = x.i0 - ix * s;
            if (kx < 0 || kx >= kx_n) {
                continue;
            }
            for (int64_t c = 0; c < n_in; c++) {
                float v = load_f32(is_flat ? at_indices(g.b, ix, c, 0, 0) : at_indices(g.b, ix, iy, c, batch));
                const float k =
                    load_number(is_flat ? at_indices(g.a, kx, oc, c, 0) : at_indices(g.a, kx, ky, oc, c), g.a.type);
                if (halves) {
                    v = to_f16_and_back(v);
                }
                sum += v * k;
            }
        }
    }
    return sum;
}
#endif
#ifdef KERNEL_pool
// Pooling. p: kind, k0, k1 (window), s0, s1 (strides), p0, p1 (padding), and 1 for POOL_1D or 0 for POOL_2D.
float element_of(at4 x) {
    const bool is_max = g.p[0] == GGML_OP_POOL_MAX, rows = g.p[7] != 0;
    const int64_t x0 = x.i0 * g.p[3] - g.p[5], y0 = rows ? x.i1 : x.i1 * g.p[4] - g.p[6], y1 = y0 + (rows ? 1 : g.p[2]);
    float v = is_max ? -3.402823466e+38 : 0.0;
    int64_t n = 0;
    for (int64_t y = y0; y < y1; y++) {
        for (int64_t j = x0; j < x0 + g.p[1] && y >= 0 && y < g.a.ne[1]; j++) {
            if (j >= 0 && j < g.a.ne[0]) {
                const float e = load_number(at_indices(g.a, j, y, x.i2, x.i3), g.a.type);
                if (!is_max) {
                    v += e;
                } else if (is_nan(e) || is_nan(v) || e >= v) {
                    v = e;
                }
                n++;
            }
        }
    }
    if (!rows) {
        n = int64_t(g.p[1]) * g.p[2];
    }
    if (!is_max) {
        v = n > 0 ? v / float(n) : 0.0;
    }
    return v;
}
#endif
#ifdef KERNEL_pool_back
// Gradient of pooling. a: gradient of the pooled image; b: the image.
float element_of(at4 x) {
    const bool is_max = g.p[0] == GGML_OP_POOL_MAX;
    float sum = 0.0;
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
            const float d = load_number(at_indices(g.a, ox, oy, x.i2, x.i3), g.a.type);
            if (!is_max) {
                sum += d / float(int64_t(g.p[1]) * g.p[2]);
                continue;
            }
            int64_t xm = -1, ym = -1;
            float top = -3.402823466e+38;
            for (int64_t y = y0 < 0 ? 0 : y0; y < y0 + g.p[2] && y < g.dst.ne[1]; y++) {
                for (int64_t j = x0 < 0 ? 0 : x0; j < x0 + g.p[1] && j < g.dst.ne[0]; j++) {
                    const float e = load_number(at_indices(g.b, j, y, x.i2, x.i3), g.b.type);
                    if (is_nan(e) || is_nan(top) || e > top) {
                        top = e;
                        xm = j;
                        ym = y;
                    }
                }
            }
            sum += xm == x.i0 && ym == x.i1 ? d : 0.0;
        }
    }
    return sum;
}
#endif
#ifdef KERNEL_im2col_back
// Gradient of im2col: sums columns into images. a: columns; b: tensor with the shape of the filter. p: s0 s1 p0 p1 d0 d1 is_2d.
float element_of(at4 x) {
    const bool is_flat = g.p[6] != 1;
    const int64_t kw = g.b.ne[0], kh = is_flat ? 1 : g.b.ne[1], oh = is_flat ? 1 : g.a.ne[2];
    const int64_t y = is_flat ? 0 : x.i1, ic = is_flat ? x.i1 : x.i2, batch = is_flat ? x.i2 : x.i3;
    float sum = 0.0;
    for (int64_t oy = 0; oy < oh; oy++) {
        for (int64_t ky = 0; ky < kh; ky++) {
            if (!is_flat && oy * g.p[1] - g.p[3] + ky * g.p[5] != y) {
                continue;
            }
            for (int64_t ox = 0; ox < g.a.ne[1]; ox++) {
                for (int64_t kx = 0; kx < kw; kx++) {
                    if (ox * g.p[0] - g.p[2] + kx * g.p[4] == x.i0) {
                        const int64_t e = (ic * kh + ky) * kw + kx;
                        sum += load_f32(is_flat ? at_indices(g.a, e, ox, batch, 0) : at_indices(g.a, e, ox, oy, batch));
                    }
                }
            }
        }
    }
    return sum;
}
#endif
#ifdef KERNEL_col2im
// Sums columns into a signal. p: stride, channels, padding.
float element_of(at4 x) {
    const int64_t k = g.a.ne[0] / g.p[1];
    float sum = 0.0;
    for (int64_t w = 0; w < g.a.ne[1]; w++) {
        const int64_t j = x.i0 - (w * g.p[0] - g.p[2]);
        if (j >= 0 && j < k) {
            sum += load_number(at_indices(g.a, x.i1 * k + j, w, 0, 0), g.a.type);
        }
    }
    return sum;
}
#endif
#ifdef KERNEL_upscale
int64_t clip(int64_t i, int64_t n) {
    if (i < 0) {
        return 0;
    }
    return i < n ? i : n - 1;
}
// Returns pixel (x, y). Outside the image, returns the nearest pixel of its edge.
float pixel(uint64_t plane, int64_t x, int64_t y) {
    return load_f32(plane + uint64_t(clip(x, g.a.ne[0]) * g.a.nb[0] + clip(y, g.a.ne[1]) * g.a.nb[1]));
}
// The weights of four neighbouring pixels. d: distance of the point from the second pixel, 0 to 1.
vec4 cubic(float d) {
    const float c = -0.75, near0 = d, near1 = 1.0 - d, far0 = d + 1.0, far1 = 2.0 - d;
    return vec4(((c * far0 - 5.0 * c) * far0 + 8.0 * c) * far0 - 4.0 * c, ((c + 2.0) * near0 - (c + 3.0)) * near0 * near0 + 1.0,
        ((c + 2.0) * near1 - (c + 3.0)) * near1 * near1 + 1.0, ((c * far1 - 5.0 * c) * far1 + 8.0 * c) * far1 - 4.0 * c);
}
float bicubic(uint64_t plane, float at_x, float at_y) {
    const int64_t x0 = int64_t(floor(at_x)), y0 = int64_t(floor(at_y));
    const vec4 wx = cubic(at_x - float(x0)), wy = cubic(at_y - float(y0));
    float sum = 0.0;
    for (int j = 0; j < 4; j++) {
        float row = 0.0;
        for (int k = 0; k < 4; k++) {
            row += pixel(plane, x0 - 1 + k, y0 - 1 + j) * wx[k];
        }
        sum += row * wy[j];
    }
    return sum;
}
// The weighted mean of the source pixels around a pixel of the result. The weights are a triangle. Its half width is the number of
// source pixels per result pixel, but at least 1.
float antialias(uint64_t plane, float offset, int64_t x, int64_t y) {
    const float sx = max_of(1.0, divided(1.0, g.f[0])), sy = max_of(1.0, divided(1.0, g.f[1]));
    const float ax = divided(float(x) + offset, g.f[0]), ay = divided(float(y) + offset, g.f[1]);
    const int64_t x_end = min(int64_t(ax + sx + offset), g.a.ne[0]), y_end = min(int64_t(ay + sy + offset), g.a.ne[1]);
    float sum = 0.0, weights = 0.0;
    for (int64_t j = max(int64_t(ay - sy + offset), int64_t(0)); j < y_end; j++) {
        const float wy = max_of(1.0 - abs((float(j) - ay + offset) / sy), 0.0);
        for (int64_t i = max(int64_t(ax - sx + offset), int64_t(0)); i < x_end; i++) {
            const float w = max_of(1.0 - abs((float(i) - ax + offset) / sx), 0.0) * wy;
            if (w > 0.0) {
                sum += pixel(plane, i, j) * w;
                weights += w;
            }
        }
    }
    return weights > 0.0 ? sum / weights : sum;
}
// f: result pixels per source pixel, per dimension. p[0]: mode and flags.
float element_of(at4 x) {
    const int mode = g.p[0] & 0xff;
    const float offset = (g.p[0] & GGML_SCALE_FLAG_ALIGN_CORNERS) != 0 ? 0.0 : 0.5;
    const uint64_t plane = at_indices(
        g.a, 0, 0, clip(int64_t(float(x.i2) / g.f[2]), g.a.ne[2]), clip(int64_t(float(x.i3) / g.f[3]), g.a.ne[3]));
    if (mode == GGML_SCALE_MODE_NEAREST) {
        return pixel(plane, int64_t(divided(float(x.i0), g.f[0])), int64_t(divided(float(x.i1), g.f[1])));
    }
    const float ax = divided(float(x.i0) + offset, g.f[0]) - offset, ay = divided(float(x.i1) + offset, g.f[1]) - offset;
    if (mode == GGML_SCALE_MODE_BICUBIC) {
        return bicubic(plane, ax, ay);
    }
    if ((g.p[0] & GGML_SCALE_FLAG_ANTIALIAS) != 0) {
        return antialias(plane, offset, x.i0, x.i1);
    }
    const int64_t x0 = int64_t(floor(ax)), y0 = int64_t(floor(ay));
    const float dx = min_of(1.0, max_of(0.0, ax - float(clip(x0, g.a.ne[0])))), dy = min_of(1.0, max_of(0.0, ay - float(clip(y0, g.a.ne[1]))));
    return pixel(plane, x0, y0) * (1.0 - dx) * (1.0 - dy) + pixel(plane, x0 + 1, y0) * dx * (1.0 - dy) +
           pixel(plane, x0, y0 + 1) * (1.0 - dx) * dy + pixel(plane, x0 + 1, y0 + 1) * dx * dy;
}
#endif

#if !defined(KERNEL_im2col) && !defined(KERNEL_conv_f32) && !defined(KERNEL_conv_f16)
void main() {
    for (int64_t i = thread_index(); i < g.n; i += thread_count()) {
        const at4 x = index_split(i, g.index, g.dst);
        store_number(at_element(g.dst, x), g.dst.type, element_of(x));
    }
}
#endif
