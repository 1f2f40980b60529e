// SPDX-License-Identifier: MIT
// ops_conv.c: constructors of convolutions. a is the kernel, b the data: [width, height, (depth,) channels, batch].
// Composite constructors use im2col and mul_mat. Direct constructors make one op. Extents that overflow are refused.

#include "core/grad.h"
#include "core/op.h"
#include "core/sample.h"

#include <limits.h>

struct conv_axis {
    int stride;
    int pad; // padding on each side
    int dilation;
};

// *out: the number of windows of k elements that fit into n elements, (n + 2 pad - dilation (k - 1) - 1) / stride + 1.
// Returns false if the stride is 0 or a number overflows. 2 * pad must fit an int, as in the kernels.
// The quotient rounds toward 0, so *out may be 1 although the window is larger than the padded data. All callers refuse a
// negative *out. The im2col constructors also refuse 0.
static bool axis_extent(int64_t n, int64_t k, struct conv_axis w, int64_t *out) {
    int64_t span, room;
    if (w.stride == 0 || w.pad > INT_MAX / 2 || w.pad < INT_MIN / 2 || !berth_add_i64_ok(k, -1, &span) ||
        !berth_mul_i64_ok(span, w.dilation, &span) || !berth_add_i64_ok(n, 2 * (int64_t) w.pad, &room) ||
        __builtin_sub_overflow(room, span, &room) || !berth_add_i64_ok(room, -1, &room)) {
        return false;
    }
    // INT64_MIN / -1 is the only quotient that overflows.
    if (room == INT64_MIN && w.stride == -1) {
        return false;
    }
    return berth_add_i64_ok(room / w.stride, 1, out);
}

#define AXIS_TEXT "stride %d, pad %d, dilation %d"
#define AXIS(w) (w).stride, (w).pad, (w).dilation

static struct ggml_tensor *axis_refuse(
    struct ggml_context *ctx, const char *func, const char *axis, int64_t n, int64_t k, struct conv_axis w) {
    return berth_poison(ctx, func, "no window of %" PRId64 " fits into a %s of %" PRId64 " (" AXIS_TEXT ")", k, axis, n, AXIS(w));
}

// ---- im2col ----

struct columns {
    struct conv_axis w[3];
    bool is_2D;
    enum ggml_type type;
    int64_t n_channel; // for 3D only: ne[3] of 3D data is channels * batches
};

// func is the public name for error messages.
static struct ggml_tensor *im2col_new(
    struct ggml_context *ctx, const char *func, struct ggml_tensor *a, struct ggml_tensor *b, const struct columns *to) {
    const struct conv_axis w0 = to->w[0], w1 = to->w[1];
    const bool is_2D = to->is_2D;
    BERTH_SOURCES_AS(ctx, func, a, b);
    const int i_channel = is_2D ? 2 : 1;
    BERTH_REQUIRE_AS(ctx, func, a->ne[i_channel] == b->ne[i_channel],
        "a " BERTH_SHAPE " and b " BERTH_SHAPE " differ in channels (ne[%d])", BERTH_NE(a), BERTH_NE(b), i_channel);
    BERTH_REQUIRE_AS(ctx, func, is_2D || b->ne[3] == 1, "b " BERTH_SHAPE " must have three dimensions", BERTH_NE(b));
    int64_t width, height = 0;
    if (is_2D && (!axis_extent(b->ne[1], a->ne[1], w1, &height) || height <= 0)) {
        return axis_refuse(ctx, func, "height", b->ne[1], a->ne[1], w1);
    }
    if (!axis_extent(b->ne[0], a->ne[0], w0, &width) || width <= 0) {
        return axis_refuse(ctx, func, "width", b->ne[0], a->ne[0], w0);
    }
    int64_t column;
    const bool fits = berth_mul_i64_ok(a->ne[0], a->ne[1], &column) && (!is_2D || berth_mul_i64_ok(column, a->ne[2], &column));
    BERTH_REQUIRE_AS(ctx, func, fits, "kernel " BERTH_SHAPE " has too many elements", BERTH_NE(a));
    const int64_t ne[] = {column, width, is_2D ? height : b->ne[2], is_2D ? b->ne[3] : 1};
    const int32_t params[] = {w0.stride, w1.stride, w0.pad, w1.pad, w0.dilation, w1.dilation, is_2D};
    return BERTH_OP_WITH(berth_tensor_new(ctx, func, to->type, 4, ne), GGML_OP_IM2COL, params, a, b);
}

struct ggml_tensor *ggml_im2col(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int s0, int s1, int p0,
    int p1, int d0, int d1, bool is_2D, enum ggml_type dst_type) {
    BERTH_SOURCES(ctx, a, b);
    return im2col_new(ctx, __func__, a, b, &(struct columns){{{s0, p0, d0}, {s1, p1, d1}}, is_2D, dst_type, 0});
}

// a: the gradient of the columns, b: the kernel, ne: the shape of the data of im2col.
struct ggml_tensor *ggml_im2col_back(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int64_t *ne, int s0,
    int s1, int p0, int p1, int d0, int d1, bool is_2D) {
    BERTH_SOURCES(ctx, a, b);
    BERTH_REQUIRE(ctx, ne != NULL, "ne is NULL");
    const int32_t params[] = {s0, s1, p0, p1, d0, d1, is_2D};
    return BERTH_OP_WITH(berth_tensor_new(ctx, __func__, GGML_TYPE_F32, 4, ne), GGML_OP_IM2COL_BACK, params, a, b);
}

static struct ggml_tensor *im2col_3d_new(
    struct ggml_context *ctx, const char *func, struct ggml_tensor *a, struct ggml_tensor *b, const struct columns *to) {
    const struct conv_axis *w = to->w;
    const int64_t n_channel = to->n_channel;
    BERTH_REQUIRE_AS(ctx, func, n_channel != 0 && n_channel == (int32_t) n_channel,
        "%" PRId64 " channels, must be an int32 other than 0", n_channel);
    static const char *const axis[] = {"width", "height", "depth"};
    int64_t extent[3];
    for (int i = 0; i < 3; i++) {
        if (!axis_extent(b->ne[i], a->ne[i], w[i], &extent[i]) || extent[i] <= 0) {
            return axis_refuse(ctx, func, axis[i], b->ne[i], a->ne[i], w[i]);
        }
    }
    int64_t column, depths;
    const bool fits = berth_mul_i64_ok(a->ne[0], a->ne[1], &column) && berth_mul_i64_ok(column, a->ne[2], &column) &&
                      berth_mul_i64_ok(column, n_channel, &column) && berth_mul_i64_ok(b->ne[3] / n_channel, extent[2], &depths);
    BERTH_REQUIRE_AS(
        ctx, func, fits, "kernel " BERTH_SHAPE " over data " BERTH_SHAPE " makes too many elements", BERTH_NE(a), BERTH_NE(b));
    const int64_t ne[] = {column, extent[0], extent[1], depths};
    const int32_t params[] = {w[0].stride, w[1].stride, w[2].stride, w[0].pad, w[1].pad, w[2].pad, w[0].dilation, w[1].dilation,
        w[2].dilation, (int32_t) n_channel};
    return BERTH_OP_WITH(berth_tensor_new(ctx, func, to->type, 4, ne), GGML_OP_IM2COL_3D, params, a, b);
}

struct ggml_tensor *ggml_im2col_3d(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int64_t IC, int s0,
    int s1, int s2, int p0, int p1, int p2, int d0, int d1, int d2, enum ggml_type dst_type) {
    BERTH_SOURCES(ctx, a, b);
    const struct columns to = {{{s0, p0, d0}, {s1, p1, d1}, {s2, p2, d2}}, false, dst_type, IC};
    return im2col_3d_new(ctx, __func__, a, b, &to);
}

// a: [k * oc, n], n windows of k elements for each of oc channels. Adds each window to the result at the window's position.
// Windows may overlap.
struct ggml_tensor *ggml_col2im_1d(struct ggml_context *ctx, struct ggml_tensor *a, int s0, int oc, int p0) {
    BERTH_SOURCES(ctx, a);
    BERTH_REQUIRE(ctx, ggml_is_matrix(a), "a " BERTH_SHAPE " must be a matrix", BERTH_NE(a));
    BERTH_REQUIRE(ctx, ggml_is_contiguous(a), "a is not contiguous: strides " BERTH_STRIDE, BERTH_NB(a));
    BERTH_REQUIRE(ctx, a->type == GGML_TYPE_F32 || a->type == GGML_TYPE_F16 || a->type == GGML_TYPE_BF16,
        "a is %s, must be f32, f16 or bf16", ggml_type_name(a->type));
    BERTH_REQUIRE(
        ctx, s0 > 0 && oc > 0 && p0 >= 0, "stride %d and channels %d must be positive, pad %d must not be negative", s0, oc, p0);
    BERTH_REQUIRE(ctx, a->ne[0] > 0 && a->ne[0] % oc == 0, "columns of %" PRId64 " elements are not divisible by %d channels",
        a->ne[0], oc);
    int64_t width;
    const bool fits = p0 <= INT_MAX / 2 && berth_add_i64_ok(a->ne[1], -1, &width) && berth_mul_i64_ok(width, s0, &width) &&
                      berth_add_i64_ok(width, a->ne[0] / oc - 2 * (int64_t) p0, &width) && width > 0;
    BERTH_REQUIRE(
        ctx, fits, "%" PRId64 " windows of %" PRId64 " (stride %d, pad %d) leave no output", a->ne[1], a->ne[0] / oc, s0, p0);
    const int64_t ne[] = {width, oc};
    const int32_t params[] = {s0, oc, p0};
    return BERTH_OP_WITH(berth_tensor_new(ctx, __func__, a->type, 2, ne), GGML_OP_COL2IM_1D, params, a);
}

// ---- composite constructors: im2col, then mul_mat ----

// The product wraps around on overflow, which can happen only for an empty tensor. ggml_reshape then refuses the product.
static int64_t extent_mul(int64_t x, int64_t y) {
    return (int64_t) ((uint64_t) x * (uint64_t) y);
}

// For a bf16 kernel the columns are f32, because bf16 has a larger range than f16.
static enum ggml_type column_type(const struct ggml_tensor *kernel) {
    return kernel->type == GGML_TYPE_BF16 ? GGML_TYPE_F32 : GGML_TYPE_F16;
}

static struct ggml_tensor *conv_1d_new(
    struct ggml_context *ctx, const char *func, struct ggml_tensor *a, struct ggml_tensor *b, struct conv_axis w) {
    struct ggml_tensor *col = im2col_new(ctx, func, a, b, &(struct columns){{w}, false, column_type(a), 0});
    struct ggml_tensor *rows = ggml_reshape_2d(ctx, col, col->ne[0], extent_mul(col->ne[2], col->ne[1]));
    struct ggml_tensor *flat = ggml_reshape_2d(ctx, a, extent_mul(a->ne[0], a->ne[1]), a->ne[2]);
    struct ggml_tensor *out = ggml_mul_mat(ctx, rows, flat);
    return ggml_reshape_3d(ctx, out, col->ne[1], a->ne[2], col->ne[2]);
}

// *pad: half the kernel's extent. Returns false if *pad does not fit an int.
static bool half_pad(int64_t k, int *pad) {
    *pad = (int) (k / 2);
    return k / 2 == *pad;
}

struct ggml_tensor *ggml_conv_1d(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int s0, int p0, int d0) {
    BERTH_SOURCES(ctx, a, b);
    return conv_1d_new(ctx, __func__, a, b, (struct conv_axis){s0, p0, d0});
}

struct ggml_tensor *ggml_conv_1d_ph(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int s, int d) {
    BERTH_SOURCES(ctx, a, b);
    int pad;
    BERTH_REQUIRE(ctx, half_pad(a->ne[0], &pad), "kernel " BERTH_SHAPE " is too wide", BERTH_NE(a));
    return conv_1d_new(ctx, __func__, a, b, (struct conv_axis){s, pad, d});
}

static struct ggml_tensor *conv_1d_dw_new(
    struct ggml_context *ctx, const char *func, struct ggml_tensor *a, struct ggml_tensor *b, struct conv_axis w) {
    struct ggml_tensor *data = ggml_reshape_4d(ctx, b, b->ne[0], 1, b->ne[1], b->ne[2]);
    struct ggml_tensor *col = im2col_new(ctx, func, a, data, &(struct columns){{w}, false, column_type(a), 0});
    struct ggml_tensor *out = ggml_mul_mat(ctx, col, a);
    return ggml_reshape_3d(ctx, out, out->ne[0], out->ne[2], 1);
}

struct ggml_tensor *ggml_conv_1d_dw(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int s0, int p0, int d0) {
    BERTH_SOURCES(ctx, a, b);
    return conv_1d_dw_new(ctx, __func__, a, b, (struct conv_axis){s0, p0, d0});
}

struct ggml_tensor *ggml_conv_1d_dw_ph(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int s0, int d0) {
    BERTH_SOURCES(ctx, a, b);
    int pad;
    BERTH_REQUIRE(ctx, half_pad(a->ne[0], &pad), "kernel " BERTH_SHAPE " is too wide", BERTH_NE(a));
    return conv_1d_dw_new(ctx, __func__, a, b, (struct conv_axis){s0, pad, d0});
}

static struct ggml_tensor *conv_2d_new(struct ggml_context *ctx, const char *func, struct ggml_tensor *a, struct ggml_tensor *b,
    struct conv_axis w0, struct conv_axis w1) {
    struct ggml_tensor *col = im2col_new(ctx, func, a, b, &(struct columns){{w0, w1}, true, column_type(a), 0});
    struct ggml_tensor *rows = ggml_reshape_2d(ctx, col, col->ne[0], extent_mul(col->ne[3], extent_mul(col->ne[2], col->ne[1])));
    struct ggml_tensor *flat = ggml_reshape_2d(ctx, a, extent_mul(a->ne[0], extent_mul(a->ne[1], a->ne[2])), a->ne[3]);
    struct ggml_tensor *out = ggml_mul_mat(ctx, rows, flat);

    out = ggml_reshape_4d(ctx, out, col->ne[1], col->ne[2], col->ne[3], a->ne[3]);
    return ggml_cont(ctx, ggml_permute(ctx, out, 0, 1, 3, 2));
}

struct ggml_tensor *ggml_conv_2d(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int s0, int s1, int p0, int p1, int d0, int d1) {
    BERTH_SOURCES(ctx, a, b);
    return conv_2d_new(ctx, __func__, a, b, (struct conv_axis){s0, p0, d0}, (struct conv_axis){s1, p1, d1});
}

// The stride is the kernel size.
struct ggml_tensor *ggml_conv_2d_sk_p0(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b) {
    BERTH_SOURCES(ctx, a, b);
    BERTH_REQUIRE(ctx, a->ne[0] <= INT_MAX && a->ne[1] <= INT_MAX, "kernel " BERTH_SHAPE " is too large", BERTH_NE(a));
    return conv_2d_new(ctx, __func__, a, b, (struct conv_axis){(int) a->ne[0], 0, 1}, (struct conv_axis){(int) a->ne[1], 0, 1});
}

struct ggml_tensor *ggml_conv_2d_s1_ph(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b) {
    BERTH_SOURCES(ctx, a, b);
    int p0, p1;
    BERTH_REQUIRE(ctx, half_pad(a->ne[0], &p0) && half_pad(a->ne[1], &p1), "kernel " BERTH_SHAPE " is too large", BERTH_NE(a));
    return conv_2d_new(ctx, __func__, a, b, (struct conv_axis){1, p0, 1}, (struct conv_axis){1, p1, 1});
}

// Each channel is treated as a batch with one channel.
struct ggml_tensor *ggml_conv_2d_dw(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int s0, int s1, int p0, int p1, int d0, int d1) {
    BERTH_SOURCES(ctx, a, b);
    struct ggml_tensor *kernel = ggml_reshape_4d(ctx, a, a->ne[0], a->ne[1], 1, extent_mul(a->ne[2], a->ne[3]));
    struct ggml_tensor *data = ggml_reshape_4d(ctx, b, b->ne[0], b->ne[1], 1, extent_mul(b->ne[2], b->ne[3]));
    const struct columns to = {{{s0, p0, d0}, {s1, p1, d1}}, true, column_type(a), 0};
    struct ggml_tensor *col = im2col_new(ctx, __func__, kernel, data, &to);
    struct ggml_tensor *rows = ggml_reshape_4d(ctx, col, col->ne[0], extent_mul(col->ne[2], col->ne[1]), b->ne[2], b->ne[3]);

    kernel = ggml_reshape_4d(ctx, kernel, extent_mul(kernel->ne[0], kernel->ne[1]), kernel->ne[2], kernel->ne[3], 1);
    struct ggml_tensor *out = ggml_mul_mat(ctx, kernel, rows);
    return ggml_reshape_4d(ctx, out, col->ne[1], col->ne[2], b->ne[2], b->ne[3]);
}

struct ggml_tensor *ggml_conv_3d(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int64_t IC, int s0,
    int s1, int s2, int p0, int p1, int p2, int d0, int d1, int d2) {
    BERTH_SOURCES(ctx, a, b);
    BERTH_REQUIRE(ctx, IC != 0, "IC is 0, must be the number of channels");
    const int64_t n_batch = b->ne[3] / IC;
    const int64_t n_out = a->ne[3] / IC;
    BERTH_REQUIRE(ctx, n_batch != 0, "IC is %" PRId64 ", but b " BERTH_SHAPE " has fewer channels", IC, BERTH_NE(b));
    const struct columns to = {{{s0, p0, d0}, {s1, p1, d1}, {s2, p2, d2}}, false, column_type(a), IC};
    struct ggml_tensor *col = im2col_3d_new(ctx, __func__, a, b, &to);
    if (BERTH_UNLIKELY(berth_poisoned(col))) {
        return col;
    }
    const int64_t depth = col->ne[3] / n_batch;
    struct ggml_tensor *rows = ggml_reshape_2d(ctx, col, col->ne[0], extent_mul(col->ne[3], extent_mul(col->ne[2], col->ne[1])));
    struct ggml_tensor *flat = ggml_reshape_2d(ctx, a, col->ne[0], n_out);
    struct ggml_tensor *out = ggml_mul_mat(ctx, rows, flat);

    out = ggml_reshape_4d(ctx, out, extent_mul(col->ne[1], col->ne[2]), depth, n_batch, n_out);
    out = ggml_cont(ctx, ggml_permute(ctx, out, 0, 1, 3, 2));
    return ggml_reshape_4d(ctx, out, col->ne[1], col->ne[2], depth, extent_mul(n_out, n_batch));
}

// ---- direct constructors ----

struct ggml_tensor *ggml_conv_2d_direct(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int s0, int s1, int p0, int p1, int d0, int d1) {
    BERTH_SOURCES(ctx, a, b);
    BERTH_REQUIRE(ctx, a->ne[2] == b->ne[2], "a " BERTH_SHAPE " and b " BERTH_SHAPE " differ in channels (ne[2])", BERTH_NE(a),
        BERTH_NE(b));
    const struct conv_axis w0 = {s0, p0, d0}, w1 = {s1, p1, d1};
    int64_t ne[] = {0, 0, a->ne[3], b->ne[3]};
    if (!axis_extent(b->ne[0], a->ne[0], w0, &ne[0]) || ne[0] < 0) {
        return axis_refuse(ctx, __func__, "width", b->ne[0], a->ne[0], w0);
    }
    if (!axis_extent(b->ne[1], a->ne[1], w1, &ne[1]) || ne[1] < 0) {
        return axis_refuse(ctx, __func__, "height", b->ne[1], a->ne[1], w1);
    }
    const int32_t params[] = {s0, s1, p0, p1, d0, d1};
    return BERTH_OP_WITH(berth_tensor_new(ctx, __func__, b->type, 4, ne), GGML_OP_CONV_2D, params, a, b);
}

struct ggml_tensor *ggml_conv_2d_dw_direct(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int stride0,
    int stride1, int pad0, int pad1, int dilation0, int dilation1) {
    BERTH_SOURCES(ctx, a, b);
    BERTH_REQUIRE(ctx, a->ne[2] == 1 && a->ne[3] == b->ne[2],
        "a " BERTH_SHAPE " must have one kernel for each of the %" PRId64
        " channels of b: ne[2] must be 1, and ne[3] must be the number of channels",
        BERTH_NE(a), b->ne[2]);
    const struct conv_axis w0 = {stride0, pad0, dilation0}, w1 = {stride1, pad1, dilation1};
    int64_t ne[] = {0, 0, b->ne[2], b->ne[3]};
    if (!axis_extent(b->ne[0], a->ne[0], w0, &ne[0]) || ne[0] < 0) {
        return axis_refuse(ctx, __func__, "width", b->ne[0], a->ne[0], w0);
    }
    if (!axis_extent(b->ne[1], a->ne[1], w1, &ne[1]) || ne[1] < 0) {
        return axis_refuse(ctx, __func__, "height", b->ne[1], a->ne[1], w1);
    }
    struct ggml_tensor *result = berth_tensor_new(ctx, __func__, b->type, 4, ne);
    if (BERTH_UNLIKELY(berth_poisoned(result))) {
        return result;
    }
    if (ggml_is_contiguous_channels(b)) {
        // The result keeps b's memory order, with channels innermost.
        result->nb[2] = ggml_type_size(b->type);
        result->nb[0] = result->nb[2] * (size_t) result->ne[2];
        result->nb[1] = result->nb[0] * (size_t) result->ne[0];
    }
    const int32_t params[] = {stride0, stride1, pad0, pad1, dilation0, dilation1};
    return BERTH_OP_WITH(result, GGML_OP_CONV_2D_DW, params, a, b);
}

struct ggml_tensor *ggml_conv_3d_direct(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int s0, int s1,
    int s2, int p0, int p1, int p2, int d0, int d1, int d2, int n_channels, int n_batch, int n_channels_out) {
    BERTH_SOURCES(ctx, a, b);
    BERTH_REQUIRE(ctx, a->ne[3] == (int64_t) n_channels * n_channels_out,
        "ne[3] of a " BERTH_SHAPE " must be %d input channels * %d output channels", BERTH_NE(a), n_channels, n_channels_out);
    BERTH_REQUIRE(ctx, b->ne[3] == (int64_t) n_channels * n_batch, "ne[3] of b " BERTH_SHAPE " must be %d batches * %d channels",
        BERTH_NE(b), n_batch, n_channels);
    static const char *const axis[] = {"width", "height", "depth"};
    const struct conv_axis w[] = {{s0, p0, d0}, {s1, p1, d1}, {s2, p2, d2}};
    int64_t ne[] = {0, 0, 0, (int64_t) n_channels_out * n_batch};
    for (int i = 0; i < 3; i++) {
        if (!axis_extent(b->ne[i], a->ne[i], w[i], &ne[i]) || ne[i] < 0) {
            return axis_refuse(ctx, __func__, axis[i], b->ne[i], a->ne[i], w[i]);
        }
    }
    const int32_t params[] = {s0, s1, s2, p0, p1, p2, d0, d1, d2, n_channels, n_batch, n_channels_out};
    return BERTH_OP_WITH(berth_tensor_new(ctx, __func__, GGML_TYPE_F32, 4, ne), GGML_OP_CONV_3D, params, a, b);
}

// *out: the number of elements that n windows of k elements cover, (n - 1) stride + k. Returns false on overflow.
static bool transposed_extent(int64_t n, int64_t k, int stride, int64_t *out) {
    return berth_add_i64_ok(n, -1, out) && berth_mul_i64_ok(*out, stride, out) && berth_add_i64_ok(*out, k, out) && *out >= 0;
}

// a: [width, channels out, channels in], b: [width, channels in].
struct ggml_tensor *ggml_conv_transpose_1d(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int s0, int p0, int d0) {
    BERTH_SOURCES(ctx, a, b);
    BERTH_REQUIRE(ctx, ggml_is_matrix(b), "b " BERTH_SHAPE " must be a matrix", BERTH_NE(b));
    BERTH_REQUIRE(ctx, a->ne[2] == b->ne[1] && a->ne[3] == 1,
        "a " BERTH_SHAPE " must have the %" PRId64 " channels of b as ne[2] and three dimensions", BERTH_NE(a), b->ne[1]);
    BERTH_REQUIRE(ctx, p0 == 0 && d0 == 1, "pad %d and dilation %d, must be 0 and 1", p0, d0);
    int64_t ne[] = {0, a->ne[1], b->ne[2], 1};
    BERTH_REQUIRE(ctx, transposed_extent(b->ne[0], a->ne[0], s0, &ne[0]),
        "a kernel of %" PRId64 " with stride %d gives no valid width for %" PRId64, a->ne[0], s0, b->ne[0]);
    const int32_t params[] = {s0, p0, d0};
    return BERTH_OP_WITH(berth_tensor_new(ctx, __func__, GGML_TYPE_F32, 4, ne), GGML_OP_CONV_TRANSPOSE_1D, params, a, b);
}

// a: [width, height, channels out, channels in].
struct ggml_tensor *ggml_conv_transpose_2d_p0(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int stride) {
    BERTH_SOURCES(ctx, a, b);
    BERTH_REQUIRE(
        ctx, a->ne[3] == b->ne[2], "a " BERTH_SHAPE " must have the %" PRId64 " channels of b as ne[3]", BERTH_NE(a), b->ne[2]);
    int64_t ne[] = {0, 0, a->ne[2], b->ne[3]};
    BERTH_REQUIRE(ctx,
        transposed_extent(b->ne[0], a->ne[0], stride, &ne[0]) && transposed_extent(b->ne[1], a->ne[1], stride, &ne[1]),
        "kernel " BERTH_SHAPE " with stride %d gives no valid extent for " BERTH_SHAPE, BERTH_NE(a), stride, BERTH_NE(b));
    const int32_t params[] = {stride};
    return BERTH_OP_WITH(berth_tensor_new(ctx, __func__, GGML_TYPE_F32, 4, ne), GGML_OP_CONV_TRANSPOSE_2D, params, a, b);
}

// ---- gradients ----
// With columns c[k, p] of position p and kernels w[k, o] of output o, out[p, o] is the matrix product of c and w.

static struct ggml_tensor *columns_back(
    struct berth_grad *g, struct ggml_tensor *grad, struct ggml_tensor *kernel, struct ggml_tensor *data, bool is_2D) {
    const int32_t *p = g->node->op_params;
    return ggml_im2col_back(g->ctx, grad, kernel, data->ne, p[0], p[1], p[2], p[3], p[4], p[5], is_2D);
}

static struct ggml_tensor *columns_of(struct berth_grad *g, struct ggml_tensor *kernel, struct ggml_tensor *data) {
    const int32_t *p = g->node->op_params;
    return ggml_im2col(g->ctx, kernel, data, p[0], p[1], p[2], p[3], p[4], p[5], true, GGML_TYPE_F32);
}

// Only the shape of the kernel is used.
static void grad_im2col(struct berth_grad *g) {
    berth_grad_put_add(
        g, 1, columns_back(g, berth_grad_dense(g, g->grad), g->node->src[0], g->node->src[1], g->node->op_params[6] != 0));
}

static void grad_conv_2d(struct berth_grad *g) {
    struct ggml_context *ctx = g->ctx;
    struct ggml_tensor *w = g->node->src[0], *x = g->node->src[1], *y = g->node;
    const int64_t n_k = w->ne[0] * w->ne[1] * w->ne[2], n_p = y->ne[0] * y->ne[1] * y->ne[3];
    struct ggml_tensor *d = ggml_cont(ctx, ggml_permute(ctx, g->grad, 0, 1, 3, 2));
    d = ggml_reshape_2d(ctx, d, n_p, y->ne[2]);
    if (berth_grad_needed(g, 0)) {
        struct ggml_tensor *c = ggml_reshape_2d(ctx, columns_of(g, w, berth_grad_dense(g, x)), n_k, n_p);
        berth_grad_put_add(g, 0, ggml_reshape(ctx, ggml_out_prod(ctx, c, ggml_transpose(ctx, d)), w));
    }
    if (berth_grad_needed(g, 1)) {
        struct ggml_tensor *flat = ggml_reshape_2d(ctx, berth_grad_dense(g, w), n_k, w->ne[3]);
        struct ggml_tensor *c = ggml_reshape_4d(ctx, ggml_out_prod(ctx, flat, d), n_k, y->ne[0], y->ne[1], y->ne[3]);
        berth_grad_put_add(g, 1, columns_back(g, c, w, x, true));
    }
}

// Channels and images are the batches of a matrix product.
static void grad_conv_2d_dw(struct berth_grad *g) {
    struct ggml_context *ctx = g->ctx;
    struct ggml_tensor *w = g->node->src[0], *x = g->node->src[1], *y = g->node;
    const int64_t n_k = w->ne[0] * w->ne[1], n_p = y->ne[0] * y->ne[1], n_c = y->ne[2], n_b = y->ne[3];
    struct ggml_tensor *one = ggml_reshape_4d(ctx, berth_grad_dense(g, w), w->ne[0], w->ne[1], 1, n_c);
    struct ggml_tensor *d = berth_grad_dense(g, g->grad);
    if (berth_grad_needed(g, 0)) {
        struct ggml_tensor *flat = ggml_reshape_4d(ctx, berth_grad_dense(g, x), x->ne[0], x->ne[1], 1, n_c * n_b);
        struct ggml_tensor *c = ggml_reshape_4d(ctx, columns_of(g, one, flat), n_k, n_p, n_c, n_b);
        struct ggml_tensor *each = ggml_out_prod(ctx, c, ggml_reshape_4d(ctx, d, 1, n_p, n_c, n_b));
        struct ggml_tensor *sum = berth_grad_fold_batches(g, each, ggml_new_tensor_3d(ctx, GGML_TYPE_F32, n_k, 1, n_c));
        berth_grad_put_add(g, 0, ggml_reshape(ctx, sum, w));
    }
    if (berth_grad_needed(g, 1)) {
        struct ggml_tensor *flat = ggml_reshape_3d(ctx, one, n_k, 1, n_c);
        struct ggml_tensor *c = ggml_out_prod(ctx, flat, ggml_reshape_4d(ctx, d, n_p, 1, n_c, n_b));
        struct ggml_tensor *shape = ggml_new_tensor_4d(ctx, GGML_TYPE_F32, x->ne[0], x->ne[1], 1, n_c * n_b);
        c = ggml_reshape_4d(ctx, c, n_k, y->ne[0], y->ne[1], n_c * n_b);
        berth_grad_put_add(g, 1, ggml_reshape(ctx, columns_back(g, c, one, shape, true), x));
    }
}

// ---- gradients of transposed convolutions ----

// d is the gradient of the result. The gradient of the data x is the convolution of d with the same kernel.
// The gradient of the kernel is the kernel gradient of a convolution in which d is the data and x is the gradient of the result.
static void transposed_back(
    struct berth_grad *g, struct ggml_tensor *w, struct ggml_tensor *x, struct ggml_tensor *d, int stride) {
    struct ggml_context *ctx = g->ctx;
    if (berth_grad_needed(g, 0)) {
        const int64_t n_k = w->ne[0] * w->ne[1] * w->ne[2], n_p = x->ne[0] * x->ne[1] * x->ne[3];
        struct ggml_tensor *c = ggml_im2col(ctx, w, d, stride, stride, 0, 0, 1, 1, true, GGML_TYPE_F32);
        struct ggml_tensor *y = ggml_cont(ctx, ggml_permute(ctx, x, 0, 1, 3, 2));
        y = ggml_transpose(ctx, ggml_reshape_2d(ctx, y, n_p, x->ne[2]));
        struct ggml_tensor *sum = ggml_out_prod(ctx, ggml_reshape_2d(ctx, c, n_k, n_p), y);
        berth_grad_put_add(g, 0, ggml_reshape(ctx, sum, g->node->src[0]));
    }
    if (berth_grad_needed(g, 1)) {
        struct ggml_tensor *back = ggml_conv_2d_direct(ctx, w, d, stride, stride, 0, 0, 1, 1);
        berth_grad_put_add(g, 1, ggml_reshape(ctx, back, g->node->src[1]));
    }
}

static void grad_conv_transpose_2d(struct berth_grad *g) {
    struct ggml_tensor *w = berth_grad_dense(g, g->node->src[0]), *x = berth_grad_dense(g, g->node->src[1]);
    transposed_back(g, w, x, berth_grad_dense(g, g->grad), g->node->op_params[0]);
}

// Treats rows as images that are one pixel high.
static void grad_conv_transpose_1d(struct berth_grad *g) {
    struct ggml_tensor *w = berth_grad_dense(g, g->node->src[0]), *x = berth_grad_dense(g, g->node->src[1]);
    struct ggml_tensor *d = berth_grad_dense(g, g->grad);
    w = ggml_reshape_4d(g->ctx, w, w->ne[0], 1, w->ne[1], w->ne[2]);
    x = ggml_reshape_4d(g->ctx, x, x->ne[0], 1, x->ne[1], 1);
    d = ggml_reshape_4d(g->ctx, d, d->ne[0], 1, d->ne[1], 1);
    transposed_back(g, w, x, d, g->node->op_params[0]);
}

// ---- costs ----

static void cost_conv_2d(const struct ggml_tensor *node, struct berth_op_cost *c) {
    const int64_t *ne = node->src[0]->ne;
    c->flops = 2 * (double) ggml_nelements(node) * (double) (ne[0] * ne[1]) * (double) ne[2];
}

static void cost_conv_2d_dw(const struct ggml_tensor *node, struct berth_op_cost *c) {
    const int64_t *ne = node->src[0]->ne;
    c->flops = 2 * (double) ggml_nelements(node) * (double) (ne[0] * ne[1]);
}

static void cost_conv_3d(const struct ggml_tensor *node, struct berth_op_cost *c) {
    cost_conv_2d(node, c);
    c->flops *= (double) node->op_params[9]; // channels
}

static void cost_conv_transpose_1d(const struct ggml_tensor *node, struct berth_op_cost *c) {
    c->flops = 2 * (double) ggml_nelements(node->src[0]) * (double) node->src[1]->ne[0];
}

static void cost_conv_transpose_2d(const struct ggml_tensor *node, struct berth_op_cost *c) {
    const int64_t *ne = node->src[1]->ne;
    c->flops = 2 * (double) ggml_nelements(node->src[0]) * (double) (ne[0] * ne[1]) * (double) ne[3];
}

// ---- rows of the op table, and the samples that they name ----

SAMPLE(conv_transpose_1d, ggml_conv_transpose_1d(c, sample_shaped(c, a, N, 4, 2, 1), sample_shaped(c, b, N, 2, 1, 1), 1, 0, 1))
SAMPLE(im2col, ggml_im2col(c, sample_shaped(c, F32, 3, 3, 2, 4), sample_shaped(c, a, N, 8, 2, 1), 1, 1, 0, 0, 1, 1, true, b))
static struct ggml_tensor *sample_im2col_back(BERTH_SAMPLE_ARGS) {
    BERTH_SAMPLE_UNUSED;
    int64_t ne[4] = {N, 8, 2, 1};
    return ggml_im2col_back(
        c, sample_shaped(c, a, 3 * 3 * 2, N - 2, 6, 1), sample_shaped(c, F32, 3, 3, 2, 4), ne, 1, 1, 0, 0, 1, 1, true);
}
SAMPLE(im2col_3d,
    ggml_im2col_3d(c, sample_shaped(c, F32, 3, 3, 3, 8), sample_shaped(c, a, N, 8, 8, 2), 2, 1, 1, 1, 0, 0, 0, 1, 1, 1, b))
SAMPLE(col2im_1d, ggml_col2im_1d(c, sample_shaped(c, a, N, 4, 1, 1), 1, 64, 0))
SAMPLE(conv_2d, ggml_conv_2d_direct(c, sample_shaped(c, a, N, 3, 2, 4), sample_shaped(c, b, N, 8, 2, 1), 1, 1, 0, 0, 1, 1))
SAMPLE(conv_3d,
    ggml_conv_3d_direct(c, sample_shaped(c, a, N, 3, 3, 8), sample_shaped(c, b, N, 8, 8, 2), 1, 1, 1, 0, 0, 0, 1, 1, 1, 2, 1, 4))
SAMPLE(conv_2d_dw, ggml_conv_2d_dw_direct(c, sample_shaped(c, a, N, 3, 1, 2), sample_shaped(c, b, N, 8, 2, 1), 1, 1, 0, 0, 1, 1))
SAMPLE(conv_transpose_2d, ggml_conv_transpose_2d_p0(c, sample_shaped(c, a, N, 2, 4, 2), sample_shaped(c, b, N, 8, 2, 1), 1))

// clang-format off
const struct berth_op_entry berth_ops_conv[] = {
    {GGML_OP_CONV_TRANSPOSE_1D, {"CONV_TRANSPOSE_1D", "conv_transpose_1d(x)", .n_src = 2, .family = BERTH_OP_CONV, .cost = cost_conv_transpose_1d, .sample = sample_conv_transpose_1d, .relation = "on", .grad = grad_conv_transpose_1d, .grad_src_mask = 3}},
    {GGML_OP_IM2COL, {"IM2COL", "im2col(x)", .n_src = 2, .family = BERTH_OP_CONV, .cost = berth_cost_move, .sample = sample_im2col, .relation = "to", .grad = grad_im2col, .grad_src_mask = 2}},
    {GGML_OP_IM2COL_BACK, {"IM2COL_BACK", "im2col_back(x)", .n_src = 2, .family = BERTH_OP_TRAIN, .sample = sample_im2col_back}},
    {GGML_OP_IM2COL_3D, {"IM2COL_3D", "im2col_3d(x)", .n_src = 2, .family = BERTH_OP_CONV, .cost = berth_cost_move, .sample = sample_im2col_3d, .relation = "to"}},
    {GGML_OP_COL2IM_1D, {"COL2IM_1D", "col2im_1d(x)", .n_src = 1, .family = BERTH_OP_CONV, .sample = sample_col2im_1d}},
    {GGML_OP_CONV_2D, {"CONV_2D", "conv_2d(x)", .n_src = 2, .family = BERTH_OP_CONV, .cost = cost_conv_2d, .sample = sample_conv_2d, .relation = "on", .grad = grad_conv_2d, .grad_src_mask = 3}},
    {GGML_OP_CONV_3D, {"CONV_3D", "conv_3d(x)", .n_src = 2, .family = BERTH_OP_CONV, .cost = cost_conv_3d, .sample = sample_conv_3d, .relation = "on"}},
    {GGML_OP_CONV_2D_DW, {"CONV_2D_DW", "conv_2d_dw(x)", .n_src = 2, .family = BERTH_OP_CONV, .cost = cost_conv_2d_dw, .sample = sample_conv_2d_dw, .relation = "on", .grad = grad_conv_2d_dw, .grad_src_mask = 3}},
    {GGML_OP_CONV_TRANSPOSE_2D, {"CONV_TRANSPOSE_2D", "conv_transpose_2d(x)", .n_src = 2, .family = BERTH_OP_CONV, .cost = cost_conv_transpose_2d, .sample = sample_conv_transpose_2d, .relation = "on", .grad = grad_conv_transpose_2d, .grad_src_mask = 3}},
    BERTH_OPS_END,
};
// clang-format on
