// SPDX-License-Identifier: MIT
// conv.c: cases of op/im2col.c and op/conv.c.

#include "op.h"

#define N(a) (sizeof(a) / sizeof((a)[0]))

struct conv {
    enum ggml_op op;
    enum ggml_type kernel, type; // type: of an IM2COL result
    int64_t n[3], k[3];          // extents of data and window
    int64_t in, out, batch;      // channels in and out, batch
    int s[3], p[3], d[3];
    int layout; // 1: one dimension (IM2COL), or channels innermost (CONV_2D_DW); 2: f16 data (IM2COL)
};

// Shape [w, h, c, n], with adjacent channels: a permuted view of [c, w, h, n].
static struct ggml_tensor *channels_first(struct op_build *b, enum ggml_type type, const int64_t *ne) {
    return ggml_permute(b->ctx, op_input(b, type, NE(ne[2], ne[0], ne[1], ne[3])), 2, 0, 1, 3);
}

static struct ggml_tensor *build_dw(struct op_build *b, const struct conv *c) {
    const int64_t ne[] = {c->n[0], c->n[1], c->in, c->batch};
    struct ggml_tensor *kernel, *data;
    if (c->layout == 1) {
        data = channels_first(b, GGML_TYPE_F32, ne);
        kernel = ggml_permute(b->ctx, op_input(b, c->kernel, NE(c->in, 1, c->k[0], c->k[1])), 3, 2, 0, 1);
    } else {
        data = op_input(b, GGML_TYPE_F32, ne);
        kernel = op_input(b, c->kernel, NE(c->k[0], c->k[1], 1, c->in));
    }
    return ggml_conv_2d_dw_direct(b->ctx, kernel, data, c->s[0], c->s[1], c->p[0], c->p[1], c->d[0], c->d[1]);
}

static struct ggml_tensor *build(struct op_build *b, const void *arg) {
    const struct conv *c = arg;
    struct ggml_context *ctx = b->ctx;
    const int64_t *n = c->n, *k = c->k;
    const int *s = c->s, *p = c->p, *d = c->d;
    switch (c->op) {
        case GGML_OP_IM2COL:
            if (c->layout == 1) {
                return ggml_im2col(ctx, op_input(b, c->kernel, NE(k[0], c->in, c->out, 1)),
                    op_input(b, GGML_TYPE_F32, NE(n[0], c->in, c->batch, 1)), s[0], 0, p[0], 0, d[0], 0, false, c->type);
            }
            return ggml_im2col(ctx, op_input(b, c->kernel, NE(k[0], k[1], c->in, c->out)),
                op_input(b, c->layout == 2 ? c->type : GGML_TYPE_F32, NE(n[0], n[1], c->in, c->batch)), s[0], s[1], p[0], p[1],
                d[0], d[1], true, c->type);
        case GGML_OP_IM2COL_BACK: {
            struct ggml_tensor *kernel = op_input(b, c->kernel, NE(k[0], k[1], c->in, c->out));
            int64_t ne[] = {n[0], n[1], c->in, c->batch};
            struct ggml_tensor *col =
                ggml_im2col(ctx, kernel, op_input(b, GGML_TYPE_F32, ne), s[0], s[1], p[0], p[1], d[0], d[1], true, GGML_TYPE_F32);
            return ggml_im2col_back(
                ctx, op_input(b, GGML_TYPE_F32, col->ne), kernel, ne, s[0], s[1], p[0], p[1], d[0], d[1], true);
        }
        case GGML_OP_IM2COL_3D:
            return ggml_im2col_3d(ctx, op_input(b, c->kernel, NE(k[0], k[1], k[2], c->in * c->out)),
                op_input(b, GGML_TYPE_F32, NE(n[0], n[1], n[2], c->in * c->batch)), c->in, s[0], s[1], s[2], p[0], p[1], p[2],
                d[0], d[1], d[2], c->type);
        case GGML_OP_COL2IM_1D:
            return ggml_col2im_1d(ctx, op_input(b, c->kernel, NE(k[0] * c->out, n[0], 1, 1)), s[0], (int) c->out, p[0]);
        case GGML_OP_CONV_2D:
            return ggml_conv_2d_direct(ctx, op_input(b, c->kernel, NE(k[0], k[1], c->in, c->out)),
                op_input(b, GGML_TYPE_F32, NE(n[0], n[1], c->in, c->batch)), s[0], s[1], p[0], p[1], d[0], d[1]);
        case GGML_OP_CONV_3D:
            return ggml_conv_3d_direct(ctx, op_input(b, c->kernel, NE(k[0], k[1], k[2], c->in * c->out)),
                op_input(b, GGML_TYPE_F32, NE(n[0], n[1], n[2], c->in * c->batch)), s[0], s[1], s[2], p[0], p[1], p[2], d[0],
                d[1], d[2], (int) c->in, (int) c->batch, (int) c->out);
        case GGML_OP_CONV_2D_DW: return build_dw(b, c);
        case GGML_OP_CONV_TRANSPOSE_1D:
            return ggml_conv_transpose_1d(ctx, op_input(b, c->kernel, NE(k[0], c->out, c->in, 1)),
                op_input(b, GGML_TYPE_F32, NE(n[0], c->in, 1, 1)), s[0], 0, 1);
        default:
            return ggml_conv_transpose_2d_p0(ctx, op_input(b, c->kernel, NE(k[0], k[1], c->out, c->in)),
                op_input(b, GGML_TYPE_F32, NE(n[0], n[1], c->in, c->batch)), s[0]);
    }
}

static const struct conv geometries[] = {
    {.n = {7, 6, 4}, .k = {3, 2, 2}, .in = 4, .out = 5, .batch = 2, .s = {1, 1, 1}, .p = {0, 0, 0}, .d = {1, 1, 1}},
    {.n = {7, 6, 4}, .k = {3, 3, 3}, .in = 3, .out = 2, .batch = 1, .s = {1, 1, 1}, .p = {1, 1, 1}, .d = {1, 1, 1}},
    {.n = {9, 8, 5}, .k = {3, 3, 2}, .in = 2, .out = 3, .batch = 3, .s = {2, 2, 2}, .p = {1, 1, 0}, .d = {1, 1, 1}},
    {.n = {12, 10, 6}, .k = {3, 2, 2}, .in = 5, .out = 7, .batch = 2, .s = {1, 2, 1}, .p = {2, 1, 1}, .d = {2, 3, 2}},
    {.n = {5, 4, 3}, .k = {1, 1, 1}, .in = 33, .out = 17, .batch = 2, .s = {1, 1, 1}, .p = {0, 0, 0}, .d = {1, 1, 1}},
    {.n = {4, 4, 4}, .k = {4, 4, 4}, .in = 2, .out = 1, .batch = 1, .s = {4, 4, 4}, .p = {0, 0, 0}, .d = {1, 1, 1}},
    {.n = {40, 30, 3}, .k = {5, 5, 1}, .in = 3, .out = 16, .batch = 1, .s = {2, 1, 1}, .p = {2, 2, 0}, .d = {1, 1, 1}},
    {.n = {16, 16, 2}, .k = {3, 3, 1}, .in = 64, .out = 32, .batch = 1, .s = {1, 1, 1}, .p = {1, 1, 0}, .d = {1, 1, 1}},
    {.n = {3, 3, 3}, .k = {5, 5, 5}, .in = 1, .out = 1, .batch = 1, .s = {1, 1, 1}, .p = {4, 4, 4}, .d = {1, 1, 1}},
    {.n = {1, 1, 1}, .k = {1, 1, 1}, .in = 1, .out = 1, .batch = 1, .s = {1, 1, 1}, .p = {0, 0, 0}, .d = {1, 1, 1}},
    {.n = {30, 2, 2}, .k = {2, 1, 2}, .in = 6, .out = 9, .batch = 4, .s = {3, 1, 1}, .p = {5, 0, 1}, .d = {4, 1, 1}},
};

// Some CPU libraries of the reference add f16 products in f16 and differ by these tolerances.
static double tolerance(enum ggml_op op, enum ggml_type kernel) {
    const bool sums =
        op == GGML_OP_CONV_2D || op == GGML_OP_CONV_3D || op == GGML_OP_CONV_TRANSPOSE_1D || op == GGML_OP_CONV_TRANSPOSE_2D;
    return kernel == GGML_TYPE_F32 ? OP_F32 : sums ? 1e-5 : op == GGML_OP_COL2IM_1D ? 1e-6 : OP_F32;
}

// variant 1: with more padding and channels.
static void one(
    struct op_suite *s, size_t i, int variant, enum ggml_op op, enum ggml_type kernel, enum ggml_type type, int layout) {
    struct conv c = geometries[i];
    c.op = op;
    c.kernel = kernel;
    c.type = type;
    c.layout = layout;
    for (int d = 0; d < 3; d++) {
        c.p[d] += variant;
    }
    c.in += variant;
    c.out += 3 * variant;
    op_case(s, ggml_op_name(op),
        op_text(
            "walk %zu turn %d kernel %s result %s layout %d", i, variant, ggml_type_name(kernel), ggml_type_name(type), layout),
        tolerance(op, kernel), build, &c);
}

// For ops with a single stride: runs each geometry with strides 1 to 3, and with f32 and f16 kernels.
static void stride_cases(struct op_suite *s) {
    for (size_t i = 0; i < N(geometries); i++) {
        for (int half = 0; half < 2; half++) {
            for (int stride = 1; stride <= 3; stride++) {
                struct conv c = geometries[i];
                c.kernel = half ? GGML_TYPE_F16 : GGML_TYPE_F32;
                c.s[0] = stride;
                static const enum ggml_op ops[] = {GGML_OP_CONV_TRANSPOSE_1D, GGML_OP_CONV_TRANSPOSE_2D, GGML_OP_COL2IM_1D};
                for (size_t o = 0; o < N(ops); o++) {
                    c.op = ops[o];
                    c.p[0] = ops[o] == GGML_OP_COL2IM_1D ? (int) (c.k[0] - 1) / 2 : 0;
                    op_case(s, ggml_op_name(ops[o]), op_text("walk %zu stride %d half %d", i, stride, half),
                        tolerance(ops[o], c.kernel), build, &c);
                }
            }
        }
    }
}

void op_suite_conv(struct op_suite *s) {
    const enum ggml_type f32 = GGML_TYPE_F32, f16 = GGML_TYPE_F16;
    for (size_t i = 0; i < N(geometries); i++) {
        for (int form = 0; form < 4; form++) { // kernels of f32 or f16, each with variant 0 or 1
            const enum ggml_type kernel = form % 2 ? f16 : f32;
            one(s, i, form / 2, GGML_OP_IM2COL, kernel, f32, 0);
            one(s, i, form / 2, GGML_OP_IM2COL, kernel, f16, 0);
            one(s, i, form / 2, GGML_OP_IM2COL, kernel, f32, 1);
            one(s, i, form / 2, GGML_OP_IM2COL, kernel, f16, 1);
            one(s, i, form / 2, GGML_OP_IM2COL, kernel, f16, 2);
            one(s, i, form / 2, GGML_OP_IM2COL_3D, kernel, f32, 0);
            one(s, i, form / 2, GGML_OP_IM2COL_3D, kernel, f16, 0);
            one(s, i, form / 2, GGML_OP_IM2COL_BACK, kernel, f32, 0);
            one(s, i, form / 2, GGML_OP_CONV_2D, kernel, f32, 0);
            one(s, i, form / 2, GGML_OP_CONV_3D, kernel, f32, 0);
            one(s, i, form / 2, GGML_OP_CONV_2D_DW, kernel, f32, 0);
            one(s, i, form / 2, GGML_OP_CONV_2D_DW, kernel, f32, 1);
        }
        // Elements must be left between the paddings.
        if ((geometries[i].n[0] - 1) * geometries[i].s[0] + geometries[i].k[0] > 2 * geometries[i].p[0]) {
            one(s, i, 0, GGML_OP_COL2IM_1D, GGML_TYPE_BF16, f32, 0);
        }
    }
    stride_cases(s);
}
